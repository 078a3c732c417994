#!/usr/bin/env python3
"""Structure and size of the sources, which only get better: fails when they get worse.

A folder has at most 20 files; a type is in at most 5 files of a folder and 9 of a target. At most 5 files of a target
refer to each other in a circle: an extension's reference to its own type does not count, nor one to a hub (HUBS).
UNDER_HUB counts each `shell.PART` once a file: what the files of NodeRuntime take from their hub. It and REACHED have
what was reached: when yours is smaller, lower the number. Reads text, not the compiler's index: a name counts for every
type of its target with that name.
"""
import collections
import os
import re
import sys

FILES_OF_FOLDER, FILES_OF_TYPE, FILES_OF_TARGET, FILES_OF_CYCLE, UNDER_HUB = 20, 5, 9, 5, 256
# Folder, ending, and how many lines, files or kilobytes there are at most; long lines have over 120 columns. Generated
# code does not count.
REACHED = [
    ("Sources", ".swift", "lines", 71_009), ("Sources", ".swift", "files", 361), ("Tests", ".swift", "lines", 62_652),
    ("Sources", ".md", "kilobytes", 289), ("Sources", ".md", "files", 16), ("Sources", ".swift", "long lines", 1),
    ("Tests", ".swift", "long lines", 16),
]
# By target. The shell owns all parts of a node, and every part asks it for the others.
HUBS = {"NodeRuntime": {"Shell", "Part"}}
NOT_CODE = re.compile(r'"""[\s\S]*?"""|//[^\n]*|"(?:\\.|[^"\\\n])*"|^import [^\n]*', re.M)
DECLARED = re.compile(r"^(?:@\S+ )*(?:[a-z]+(?:\([a-z]+\))? )*"
                      r"(struct|enum|class|actor|protocol|typealias|extension) ([A-Z]\w*)", re.M)
NESTED = re.compile(r"^ +(?:[a-z]+(?:\([a-z]+\))? )*(?:struct|enum|class|typealias) ([A-Z]\w*)", re.M)


def cycles(references):
    """Strongly connected parts with more than one member: Tarjan, without recursion."""
    number, lowest, stack, waiting, parts = {}, {}, [], set(), []
    for start in references:
        work = [(start, iter(references[start]))] if start not in number else []
        while work:
            node, others = work[-1]
            if node not in number:
                number[node] = lowest[node] = len(number)
                stack.append(node)
                waiting.add(node)
            for other in others:
                if other not in number:
                    work.append((other, iter(references[other])))
                    break
                if other in waiting:
                    lowest[node] = min(lowest[node], number[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    part = stack[stack.index(node):]
                    del stack[stack.index(node):]
                    waiting.difference_update(part)
                    if len(part) > 1:
                        parts.append(part)
    return parts


REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def sizes():
    """What is larger than its number in REACHED."""
    for root, ending, unit, most in REACHED:
        texts = []
        for folder, _, names in os.walk(os.path.join(REPOSITORY, root)):
            for name in names:
                if name.endswith(ending) and not name.endswith(".pb.swift"):
                    with open(os.path.join(folder, name), "rb") as file:
                        texts.append(file.read())
        size = {"files": len(texts), "lines": sum(text.count(b"\n") for text in texts),
                "long lines": sum(len(line) > 120 for text in texts for line in text.decode().split("\n")),
                "kilobytes": sum(map(len, texts)) // 1000}[unit]
        if size > most:
            yield f"{root}: {size} {unit} of *{ending}: more than the {most} that were reached"


def main(root):
    texts = {}
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".swift") and not name.endswith(".pb.swift"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    texts[path] = NOT_CODE.sub(" ", file.read())
    target = {path: os.path.relpath(path, root).split(os.sep)[0] for path in texts}
    wrong = []
    for folder, count in collections.Counter(map(os.path.dirname, texts)).items():
        if count > FILES_OF_FOLDER:
            wrong.append(f"{folder} has {count} files: more than {FILES_OF_FOLDER}")
    homes, spread = collections.defaultdict(set), collections.defaultdict(set)
    extended = collections.defaultdict(set)
    for path, text in texts.items():
        for kind, name in DECLARED.findall(text):
            spread[target[path], os.path.dirname(path), name].add(path)
            spread[target[path], "", name].add(path)
            if kind != "extension":
                homes[target[path], name].add(path)
            else:
                extended[path].add(name)
    for (where, folder, name), paths in spread.items():
        # An extension of another target's type has no home here.
        most = FILES_OF_TYPE if folder else FILES_OF_TARGET
        if (where, name) in homes and len(paths) > most:
            wrong.append(f"{where}.{name} stands in {len(paths)} files of {folder or 'its target'}: more than {most}")
    references = {
        path: {home for word in set(re.findall(r"\b[A-Z]\w+", text)) - set(NESTED.findall(text)) - extended[path]
               - HUBS.get(target[path], set())
               for home in homes.get((target[path], word), ()) if home != path}
        for path, text in texts.items()
    }
    for part in cycles(references):
        if len(part) > FILES_OF_CYCLE:
            names = " ".join(sorted(os.path.basename(path) for path in part))
            wrong.append(f"{target[part[0]]}: {len(part)} files refer to each other in a circle: {names}")
    taken = sum(len(set(re.findall(r"\bshell\.(\w+)", text)))
                for path, text in texts.items() if target[path] == "NodeRuntime")
    if taken > UNDER_HUB:
        wrong.append(f"NodeRuntime: {taken} times a file takes a part from its shell: more than {UNDER_HUB}")
    wrong.extend(sizes())
    for line in sorted(wrong):
        print(line)
    print(f"structure: {len(texts)} files, {len(wrong)} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "Sources"))
