#!/usr/bin/env python3
"""Writes the manual pages of the commands, mayfly.1 and mayfly-COMMAND.1, in mdoc(7), from the help of the program.

    mayfly --experimental-dump-help | manual.py DIRECTORY        SOURCE_DATE_EPOCH is the date in the pages

People write the other pages, which lie beside this file: mayfly-config.5, mayfly-concepts.7, mayfly-operations.7,
mayfly-promises.7 and mayfly-scripting.7.
"""

import json
import os
import re
import sys
import time

OUTSIDE = [
    ("mayfly-config", "5"), ("mayfly-concepts", "7"), ("mayfly-operations", "7"), ("mayfly-promises", "7"),
    ("mayfly-scripting", "7"),
]
# The marks of the chat's screen: `MessageRows.mark` and the chat's /help.
MARKS = [
    ("…", "The message is queued."), ("✓", "The message was sent."), ("✓✓ 1/2", "One of two members has the message."),
    ("✓✓ read", "All members have read the message, and send read receipts."),
    ("⇡", "A mailbox keeps the message for a member that is away."),
    ("✗", "The message failed, was cancelled, or expired before it arrived."),
    ("●", "The member has a link to this node."), ("○", "The member has no link to this node."),
]
# The sections of mayfly-chat(1) that the help does not have: a paragraph, or a word and what it means.
CHAT = [
    ("SCREEN", [
        ("first line", """The conversation, its members, and the retention in force: MEMORY ONLY, KEPT 1 DAY on disk, the
            countdown of a scheduled explosion, or EXPLODED."""),
        ("messages", """Local time, sender, text, delivery, and the time that is left. A message ticks each second in its last
            minute; then a note replaces it for two seconds. A line marks where the unread messages begin."""),
        ("card", """An open proposal, or the end of an agreement, with the keys that answer it. For one second after a card
            has changed its keys do nothing. An accept names the id of the proposal."""),
        ("last line", "The retention that the message being typed will get."),
        ("list", """Without a conversation: unread counts, invitations, and joins under way. Enter on an invitation asks: `a`
            accepts, `d` declines."""),
    ]),
    ("BEHAVIOUR", [
        """The chat is a client of the control socket.""",
        """Each conversation has its own input line and history, so a text typed for one cannot be sent to another. A reply
            belongs to the text being typed. If its original is gone, the first Enter warns, and the second sends the text
            without it.""",
        """/explode and /leave ask for the name of the conversation. After an explosion the messages and the text being
            typed leave the screen at once; the page then shows who has confirmed.""",
        """A lock (mayfly lock) clears the screen and the memory of the chat, drafts included. Text typed then is dropped,
            and Enter on an empty line unlocks, as mayfly unlock in another terminal does. If the home has a passphrase,
            the input line takes it, with a dot for each character. Without a node a command or text that needs one is
            refused, and the input line stays. A request that was not
            answered is named, and its text returns to the input line.""",
        """Images are cards. Alt-V draws the selected one with chafa, if installed, in a process without rights: only the
            programs and libraries of the system to read (landlock(7)), no socket, file, ioctl or other process (seccomp(2)),
            1 GiB of memory and 5 s. Only colours and printable characters of its output reach the terminal.""",
        """A slash at the beginning of a text is typed twice. A paste of several lines, or of more than 500 bytes, asks
            first. A text of more than 32,768 bytes is refused.""",
        """The end restores the terminal, also after a signal, a crash and Ctrl-Z. Retention is shown as a word and a colour;
            NO_COLOR is obeyed. The screen needs a terminal that reads ECMA-48; on others use --plain.""",
    ]),
    ("PLAIN MODE", [
        """Lines of a pipe are texts, even with a slash in front, so that a program that writes into the pipe cannot
            command; --commands makes them commands. Each line waits for the answer to the line before it. A line ends with
            LF or CRLF. A line that is not UTF-8, or longer than a message, is refused with 64, its number and the byte; the
            lines after it are read. The exit code of a pipe is 0, or that of the first line that failed; an unknown
            conversation ends the chat with 7.""",
    ]),
]
# These stand once in mayfly(1).
COMMON = {"home", "json", "version", "help"}


def escape(text, literal=False):
    """Text as roff(7) takes it; a literal text keeps the characters that a shell needs."""
    text = text.replace("\\", "\\e")
    if literal:
        for character, name in (("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga"), ("~", "\\(ti"), ("^", "\\(ha")):
            text = text.replace(character, name)
    return "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)


def guarded(line):
    return "\\&" + line if line.startswith((".", "'")) else line


def prose(text):
    """A paragraph: one sentence a line, at most 78 bytes; what stands between backquotes is bold."""
    lines = []
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`{])", " ".join(text.split())):
        parts = [
            f"\\fB{escape(part, True)}\\fP" if index % 2 else escape(part)
            for index, part in enumerate(sentence.split("`"))
        ]
        joined = re.sub(r"(?<![\w\\-])(--[a-z][a-z-]*)", lambda found: f"\\fB{escape(found[1], True)}\\fP", "".join(parts))
        lines += wrapped(joined)
    return lines


def wrapped(text):
    """Lines of at most 78 bytes, as far as there are spaces to break at."""
    lines = []
    for word in text.split():
        if lines and len(f"{lines[-1]} {word}".encode()) <= 78:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [guarded(line) for line in lines]


def literal(lines):
    return [".Bd -literal -offset indent"] + [guarded(escape(line, True)) for line in lines] + [".Ed"]


def discussion(text):
    """What a command's help says: its paragraphs, and its examples."""
    body, examples = [], []
    target = body
    for block in (text or "").split("\n\n"):
        lines = block.split("\n")
        if lines[0].startswith("Usage:"):
            continue
        while lines:
            if re.fullmatch(r"Examples?:", lines[0].strip()):
                target = examples
                lines.pop(0)
                continue
            # An example is indented, or stands behind words and three spaces: "Talk:   mayfly send".
            isLiteral = lambda line: line.startswith("  ") or re.match(r"[A-Z][^:]*:\s{2,}", line)
            count = 0
            while count < len(lines) and bool(isLiteral(lines[count])) == bool(isLiteral(lines[0])):
                count += 1
            chunk, lines = lines[:count], lines[count:]
            if isLiteral(chunk[0]):
                target += literal([line[2:] if line.startswith("  ") else line for line in chunk])
            else:
                target += ([".Pp"] if body or target is examples else []) + prose(" ".join(chunk))
    return body, examples


def names(argument):
    return [("-" if name["kind"] == "long" else "") + name["name"] for name in argument.get("names", [])]


def value(argument):
    choices = argument.get("allValues")
    return " | ".join(choices) if choices and len(choices) <= 4 else argument["valueName"]


def shown(arguments):
    return [argument for argument in arguments if argument["shouldDisplay"]]


def own(command):
    """Its arguments without those of all commands; a flag has the names of its inversion, too, in `both`."""
    arguments = [
        argument for argument in shown(command.get("arguments", []))
        if not COMMON.intersection(name.lstrip("-") for name in names(argument)) or argument["kind"] == "positional"
    ]
    flags = {names(argument)[0] for argument in arguments if argument["kind"] == "flag"}
    for argument in arguments:
        if argument["kind"] == "flag":
            inverse = f"-no{names(argument)[0]}"
            argument["both"] = [names(argument)[0]] + ([inverse] if inverse in flags else [])
    inverses = {f"-no{name}" for name in flags} & flags
    return [argument for argument in arguments if not inverses.intersection(names(argument))]


def synopsis(words, command):
    lines = [f".Nm {words}"]
    for argument in sorted(own(command), key=lambda argument: argument["kind"] == "positional"):
        if argument["kind"] == "positional":
            word = f"Ar {escape(argument['valueName'])}"
        elif argument["kind"] == "flag":
            word = " | ".join(f"Fl {escape(name)}" for name in argument["both"])
        else:
            word = f"Fl {escape(names(argument)[0])} Ar {escape(value(argument))}"
        word += " ..." if argument["isRepeating"] else ""
        lines.append(f".Op {word}" if argument["isOptional"] else f".{word}")
    return lines


def options(arguments):
    if not arguments:
        return []
    lines = [".Bl -tag -width Ds"]
    for argument in sorted(arguments, key=lambda argument: argument["kind"] != "positional"):
        if argument["kind"] == "positional":
            lines.append(f".It Ar {escape(argument['valueName'])}")
        else:
            every = argument.get("both") or sorted(names(argument), key=len)
            words = " , ".join(f"Fl {escape(name)}" for name in every)
            lines.append(f".It {words}" + (f" Ar {escape(value(argument))}" if argument["kind"] == "option" else ""))
        text = argument.get("abstract") or ""
        choices = argument.get("allValues")
        if choices:
            text += f" One of {', '.join(choices)}."
        if argument.get("defaultValue"):
            text += f" {argument['defaultValue']} unless given."
        lines += prose(text) or ["See above."]
    return lines + [".El"]


def title(abstract):
    """The abstract as `Nd` takes it."""
    text = abstract.rstrip(".")
    return text if text[:2].isupper() else text[0].lower() + text[1:]


def head(name, date, abstract):
    return [
        f".\\\" Written by Sources/Manual/manual.py.", f".Dd {date}", f".Dt {name.upper()} 1", ".Os", ".Sh NAME",
        f".Nm {name}", f".Nd {escape(title(abstract))}",
    ]


def seeAlso(pages):
    pages = sorted(set(pages), key=lambda page: (page[1], page[0]))
    return [".Sh SEE ALSO"] + [
        f".Xr {name} {section}" + (" ," if index + 1 < len(pages) else "") for index, (name, section) in enumerate(pages)
    ]


def subcommands(command):
    return [
        below for below in command.get("subcommands", []) if below["shouldDisplay"] and below["commandName"] != "help"
    ]


def words(command, below):
    """How a subcommand is typed: the first one by the name of its command alone, where the help says so."""
    path = f"mayfly {command['commandName']}"
    isDefault = below is subcommands(command)[0] and command.get("discussion", "").startswith(f"Usage: {path} ")
    return path if isDefault else f"{path} {below['commandName']}"


def mentioned(text, commands):
    found = set(re.findall(r"mayfly ([a-z]+)", text))
    return [(f"mayfly-{name}", "1") for name in commands if name in found]


def page(command, date, commands):
    name = command["commandName"]
    lines = head(f"mayfly-{name}", date, command["abstract"])
    body, examples = discussion(command.get("discussion"))
    below = subcommands(command)
    lines += [".Sh SYNOPSIS"]
    if below:
        for each in below:
            lines += synopsis(words(command, each), each)
    else:
        lines += synopsis(f"mayfly {name}", command)
    lines += [".Sh DESCRIPTION"] + prose(command["abstract"]) + ([".Pp"] if body else []) + body
    if below:
        lines += [".Sh COMMANDS"]
        for each in below:
            lines += [f".Ss {words(command, each)}"] + prose(each["abstract"])
            text, calls = discussion(each.get("discussion"))
            lines += ([".Pp"] if text else []) + text + options(own(each))
            lines += [".Pp", "Examples:"] + calls if calls else []
    else:
        lines += options(own(command))
    lines += [
        ".Pp", "The options", ".Fl -home", "and", ".Fl -json", "of", ".Xr mayfly 1", "are taken, too." if not below
        else "are taken by all of them.",
    ]
    if name == "chat":
        lines += [".Sh MARKS", ".Bl -tag -width Ds"]
        lines += [line for mark, meaning in MARKS for line in (f".It {escape(mark)}", meaning)] + [".El"]
        for title, entries in CHAT:
            lines += [f".Sh {title}"] + ([".Bl -tag -width Ds"] if isinstance(entries[0], tuple) else [])
            for index, entry in enumerate(entries):
                if isinstance(entry, tuple):
                    lines += [f".It {entry[0]}"] + prose(entry[1])
                else:
                    lines += ([".Pp"] if index else []) + prose(entry)
            lines += [".El"] if isinstance(entries[0], tuple) else []
    lines += [".Sh EXIT STATUS", "See", ".Xr mayfly 1 ."]
    if examples:
        lines += [".Sh EXAMPLES"] + examples
    others = [pair for pair in mentioned(json.dumps(command), commands) if pair[0] != f"mayfly-{name}"]
    return lines + seeAlso([("mayfly", "1"), *others, *OUTSIDE])


def overview(root, date):
    """mayfly.1"""
    commands = subcommands(root)
    lines = head("mayfly", date, root["abstract"])
    lines += [
        ".Sh SYNOPSIS", ".Nm", ".Ar command", ".Op Ar argument ...", ".Op Fl -home Ar dir", ".Op Fl -json",
        ".Sh DESCRIPTION", ".Nm", "is a peer-to-peer messaging node and the command line that talks to it.",
        "Nodes talk directly, over TCP or UDP, without a server or an account.",
        "Messages stay in memory unless all members of a conversation have signed how", "long to keep them.", ".Pp",
        "Start:",
    ]
    body, _ = discussion(root["discussion"])
    # The table of exit codes follows below.
    codes = next(index for index, line in enumerate(body) if line.startswith("Exit codes"))
    lines += body[: codes - 1] + [".Sh OPTIONS", "Every command takes these, after its name."]
    status = next(each for each in commands if each["commandName"] == "status")
    lines += options(
        [each for each in shown(status["arguments"]) if COMMON.intersection(n.lstrip("-") for n in names(each))]
    )
    lines += [".Sh COMMANDS", ".Bl -tag -width Ds"]
    for each in commands:
        lines += [f".It Xr mayfly-{each['commandName']} 1"] + prose(each["abstract"])
    lines += [
        ".El", ".Sh ENVIRONMENT", ".Bl -tag -width Ds", ".It Ev MAYFLY_HOME", "The node's directory, without",
        ".Fl -home .", "Without both it is", ".Pa /var/lib/mayfly", "for the user that owns it,", "else",
        ".Pa $XDG_STATE_HOME/mayfly ,", "else", ".Pa ~/.local/state/mayfly .",
        ".It Ev MAYFLY_PASSPHRASE_FILE", "The file with the passphrase, without", ".Fl -passphrase-file .",
        ".It Ev CREDENTIALS_DIRECTORY", "Set by", ".Xr systemd 1 :", "the file", ".Pa mayfly-passphrase",
        "in that directory has the passphrase, unless an option or variable names one.",
        ".It Ev NOTIFY_SOCKET , WATCHDOG_USEC , WATCHDOG_PID", "Set by", ".Xr systemd 1 :", "see",
        ".Xr mayfly-operations 7 .", ".El", ".Sh FILES", ".Bl -tag -width Ds", ".It Pa ~/.local/state/mayfly",
        "The home: keys, stored messages and configuration; see", ".Xr mayfly-config 5 .", ".It Pa /var/lib/mayfly",
        "The home of the service that the Debian package installs.", ".El", ".Sh EXIT STATUS",
    ]
    table = [entry.split(" ", 1) for entry in re.search(r"Exit codes: (.*)\.", root["discussion"], re.S)[1].split(", ")]
    lines += [".Bl -tag -width Ds"]
    for code, meaning in sorted(table, key=lambda entry: int(entry[0])):
        lines += [f".It {code}"] + prose(meaning[0].upper() + meaning[1:] + ".")
    lines += [".El"]
    return lines + seeAlso([(f"mayfly-{each['commandName']}", "1") for each in commands] + OUTSIDE)


def main():
    directory = sys.argv[1]
    root = json.load(sys.stdin)["command"]
    epoch = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    date = f"{time.strftime('%B', epoch)} {epoch.tm_mday}, {epoch.tm_year}"
    commands = [command["commandName"] for command in subcommands(root)]
    os.makedirs(directory, exist_ok=True)
    pages = {"mayfly": overview(root, date)}
    for command in subcommands(root):
        pages[f"mayfly-{command['commandName']}"] = page(command, date, commands)
    for name, lines in pages.items():
        with open(os.path.join(directory, f"{name}.1"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
