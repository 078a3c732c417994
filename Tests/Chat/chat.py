#!/usr/bin/env python3
"""Two people talk in `mayfly chat`, each in a terminal of tmux, over two nodes: chat.py MAYFLY [RECORDING]

What is on the screen is waited for, compared, and written down as text. Everything runs on the loopback, in a directory
and with a tmux of its own.
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

MAYFLY = os.path.abspath(sys.argv[1])
PATIENCE = 30
# Seconds for which a lid is closed. A link is given up after 45 s of silence, and its session 5 s later: 180 shows the
# default of 30 s (MAYFLY_LID=180).
LID = int(os.environ.get("MAYFLY_LID", "55"))
GRACE = 5 if LID < 80 else 30


class Failure(Exception):
    pass


class Desk:
    """A node, and a terminal beside it."""

    def __init__(self, scene, name, columns, rows, secret=()):
        self.scene, self.name = scene, name
        self.home = os.path.join(scene.directory, name)
        self.secret = secret
        self.command("init", "--listen", "tcp://127.0.0.1:0", *secret)
        self.start()
        scene.tmux("new-session", "-d", "-s", name, "-x", str(columns), "-y", str(rows), "sh")
        scene.tmux("set-option", "-t", name, "status", "off")

    def start(self):
        self.node = subprocess.Popen([MAYFLY, "run", "--home", self.home, "--session-grace", str(GRACE), *self.secret],
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if json.loads(self.node.stdout.readline())["event"] != "ready":
            raise Failure(f"{self.name}: no node")

    def close_lid(self, *others):
        """The whole machine stands still, as the others see; then it goes on."""
        self.node.send_signal(signal.SIGSTOP)
        end = time.monotonic() + LID
        try:
            for other in others:
                other.sees(f"{self.name}○", patience=LID)
            time.sleep(max(0, end - time.monotonic()))
        finally:
            self.node.send_signal(signal.SIGCONT)

    def command(self, *words):
        done = subprocess.run([MAYFLY, *words, "--home", self.home, "--json"], capture_output=True, text=True,
                              timeout=PATIENCE)
        if done.returncode:
            raise Failure(f"{self.name}: mayfly {' '.join(words)}: {done.stdout}{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def chat(self, *words):
        """Starts the chat in the terminal."""
        self.keys(f"clear; {MAYFLY} chat {' '.join(words)} --home {self.home}")
        self.press("Enter")

    def keys(self, text):
        self.scene.tmux("send-keys", "-t", self.name, "-l", "--", text)

    def press(self, *keys):
        self.scene.tmux("send-keys", "-t", self.name, *keys)

    def say(self, line):
        self.keys(line)
        self.press("Enter")

    def screen(self):
        return self.scene.tmux("capture-pane", "-p", "-t", self.name).rstrip("\n")

    def sees(self, *texts, without=(), patience=PATIENCE):
        """Waits until all of it is on the screen, and writes the screen down."""
        end = time.monotonic() + patience
        while True:
            screen = self.screen()
            missing = [text for text in texts if text not in screen] + [text for text in without if text in screen]
            if not missing:
                self.scene.write(self, screen)
                return screen
            if time.monotonic() > end:
                raise Failure(f"{self.name} does not see as expected: {missing}\n{screen}")
            time.sleep(0.02)

    def end(self):
        self.node.send_signal(signal.SIGTERM)
        self.node.wait(PATIENCE)


class Scene:
    def __init__(self, recording):
        self.directory = tempfile.mkdtemp(prefix="mayfly-chat-")
        self.socket = os.path.join(self.directory, "tmux")
        self.recording = recording
        self.count = 0

    def tmux(self, *words):
        environment = dict(os.environ, LC_ALL="C.UTF-8", TZ="UTC", PS1="$ ")
        done = subprocess.run(["tmux", "-u", "-f", "/dev/null", "-S", self.socket, *words], capture_output=True, text=True,
                              env=environment, timeout=PATIENCE)
        if done.returncode:
            raise Failure(f"tmux {' '.join(words)}: {done.stderr}")
        return done.stdout

    def write(self, desk, screen):
        self.count += 1
        self.recording.write(f"--- {self.count}: {desk.name}\n{screen}\n")
        self.recording.flush()


def talk(scene):
    secret = os.path.join(scene.directory, "secret")
    with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write("correct horse\n")
    ann, bob = Desk(scene, "ann", 80, 24), Desk(scene, "bob", 40, 12)
    cat = Desk(scene, "cat", 80, 24, ("--passphrase-file", secret))
    try:
        play(scene, ann, bob, cat)
    finally:
        for desk in (ann, bob, cat):
            desk.end()


def play(scene, ann, bob, cat):
    ann.chat()
    ann.sees("0 conversations", "No conversation yet")
    ann.say("/create room")
    # Asked once, and remembered.
    ann.sees("your name, as others see it (Enter for none):")
    ann.say("ann")
    ann.sees(" room · nobody else yet", "MEMORY ONLY")
    ann.say("/invite single")
    ann.sees("Invitation to room", "for one", "q shows it as a QR code")
    ann.press("Escape")
    invite = ann.command("invite", "create", "room")[0]["slug"]

    bob.chat()
    bob.sees("0 conversations")
    bob.say(f"/join {invite}")
    bob.sees("your name, as others see it")
    bob.say("bob")
    bob.sees(" room · ann●", "MEMORY")
    ann.sees(" room · bob●")

    # Emoji, wide, right-to-left; what a terminal would obey is harmless, at whoever reads and at whoever writes.
    ann.say("hello 👍 漢字 שלום")
    bob.sees("ann  hello 👍 漢字 שלום")
    ann.sees("✓✓ 1/1")
    bob.command("send", "room", "\x1b[2Jred\x07 \u202eevil")
    ann.sees("?[2Jred? evil", "hello 👍 漢字")
    long = "all work and no play " * 12
    bob.say(long)
    ann.sees("all work and no play all work")

    # A proposal is a card on the other side, answered with one key.
    ann.say("/propose 1d")
    ann.sees("you propose 1 day (now memory only)", "waits for bob", "Alt-W withdraw")
    bob.sees("1 day, proposed by ann", "Alt-A accept")
    bob.press("M-d")
    bob.sees("in force: memory only", "proposed: 1 day, by ann")
    bob.press("Escape")
    bob.press("M-a")
    bob.sees("KEPT 1 DAY")
    ann.sees("KEPT 1 DAY on disk")
    ann.say("rotate the key?")
    bob.sees("rotate the key?")
    ann.sees("What you send now is kept until tomorrow", "1d 0h")

    # An answer and a reaction, without an id.
    bob.press("M-Up")
    bob.sees("Enter, Alt-E")
    bob.press("Enter")
    bob.sees("answers ann: rotate the key?")
    bob.say("done")
    ann.sees("↳ you: rotate the key?", "done")
    ann.press("M-Up", "M-e", "1")
    bob.sees("👍 ann")

    # Letters typed while a message is selected are a text.
    bob.press("M-Up")
    bob.sees("Enter, Alt-E")
    bob.keys("see you")
    bob.sees("> see you")
    bob.press("Enter")
    ann.sees("bob  see you")

    # A lock takes everything from the screen, and an unlock brings it back.
    ann.command("lock")
    ann.sees("mayfly · locked", "Enter here opens it", without=["rotate the key?", "bob"])
    bob.say("said meanwhile")
    ann.command("unlock")
    ann.sees("rotate the key?", "said meanwhile", without=["locked"])
    ann.command("lock")
    ann.sees("mayfly · locked", "Enter here opens it", without=["rotate the key?"])
    ann.keys("half a text")
    ann.press("Enter")
    ann.sees("mayfly · locked", "Enter unlocks", without=["half a text", "rotate the key?"])
    ann.press("Enter")
    ann.sees("rotate the key?", without=["mayfly · locked"])

    path, saved = os.path.join(scene.directory, "report.txt"), os.path.join(scene.directory, "saved")
    content = os.urandom(200_000)
    with open(path, "wb") as file:
        file.write(content)
    ann.say(f"/file {path}")
    bob.sees("▤ report.txt")
    ann.sees("✓✓ 1/1", "report.txt (195.3 KiB")
    bob.say(f"/save {saved}")
    end = time.monotonic() + PATIENCE
    while not os.path.exists(saved) and time.monotonic() < end:
        time.sleep(0.02)
    with open(saved, "rb") as file:
        if file.read() != content:
            raise Failure("the file is another one")
    ann.say(f"/save {saved}")
    ann.sees(f"{saved} exists; /save OTHER-NAME")

    # An image is a card; on a key it is drawn, by a program without rights.
    image = os.path.join(scene.directory, "map.png")
    with open(image, "wb") as file:
        file.write(png(64, 32))
    ann.say(f"/file {image}")
    bob.sees("▤ map.png", "image)")
    ann.sees("map.png (113 bytes) ✓✓ 1/1")
    if os.path.exists("/usr/bin/chafa"):
        bob.press("M-Up", "M-v")
        bob.sees("map.png", "any key goes on", without=["report.txt"])
        bob.press("Escape")
        bob.sees("report.txt")
    # What only says that it is one is not.
    with open(image, "wb") as file:
        file.write(os.urandom(1_000))
    ann.say(f"/file {image}")
    bob.sees("map.png (1000", "bytes, image)")
    ann.sees("map.png (1000 bytes) ✓✓ 1/1")
    if os.path.exists("/usr/bin/chafa"):
        bob.press("Escape", "M-Up", "M-v")
        bob.sees("this file cannot be shown as an image")
        bob.press("Escape")

    # Another size, and back; a paste of several lines is asked about.
    scene.tmux("resize-window", "-t", "ann", "-x", "40", "-y", "12")
    ann.sees("KEPT 1 DAY", without=["on disk"])
    scene.tmux("resize-window", "-t", "ann", "-x", "100", "-y", "30")
    ann.sees("KEPT 1 DAY on disk")
    scene.tmux("set-buffer", "one\ntwo\nthree")
    scene.tmux("paste-buffer", "-p", "-t", "ann")
    ann.sees("paste 3 lines, 13 bytes?")
    ann.press("Escape")
    ann.sees("nothing was done")

    ann.press("C-z")
    ann.sees("Stopped", without=["rotate the key?"])
    ann.say("fg")
    ann.sees("rotate the key?")

    # The end of a node, and its return: the chat goes on by itself.
    bob.end()
    bob.sees("no node")
    bob.start()
    # A restart ends the agreement. Both have agreed to renew it, so what is said is kept again.
    bob.sees(" room · ann●", "KEPT 1 DAY", without=["no node", "MEMORY"])
    ann.sees("KEPT 1 DAY on disk", "bob●", without=["nothing is stored"])
    ann.say("after the restart")
    bob.sees("after the restart")
    ann.sees("after the restart ✓✓ 1/1", "What you send now is kept until")

    # A node that hangs says so in 2 s, and what was typed stays in sight and is sent once.
    ann.node.send_signal(signal.SIGSTOP)
    try:
        ann.say("to a stopped node")
        ann.sees(f"process {ann.node.pid} does not answer", "to a stopped node", patience=2)
    finally:
        ann.node.send_signal(signal.SIGCONT)
    ann.sees("to a stopped node ✓✓ 1/1", without=["does not answer"])
    bob.sees("to a stopped node")
    if any(desk.screen().count("to a stopped node") != 1 for desk in (ann, bob)):
        raise Failure("what was typed at a stopped node is not there once")

    # A lid that is closed for longer than the grace ends the agreement, and it is there again by itself: one line.
    bob.close_lid(ann)
    ann.sees("as before: bob was out of reach for over", "KEPT 1 DAY on disk", "bob●",
             without=["nothing is stored"])
    bob.sees("KEPT 1 DAY", "as before", without=["MEMORY"])
    ann.say("after the lid")
    bob.sees("after the lid")
    ann.sees("after the lid ✓✓ 1/1", "What you send now is kept until")

    # Three members: each sees who has signed.
    ann.command("conversation", "create", "--name", "trio")
    trio = ann.command("invite", "create", "trio")[0]["slug"]
    for desk in (bob, cat):
        desk.command("join", trio, "--as", desk.name)
    cat.chat("trio")
    cat.sees(" trio · ", "ann●", "bob●")
    ann.say("/open trio")
    ann.sees(" trio · ", "bob●", "cat●")
    bob.say("/open trio")
    bob.sees(" trio · ")
    ann.say("/propose 1d")
    for desk in (bob, cat):
        desk.sees("1 day, proposed by ann")
    time.sleep(1.1)  # Nobody reads a card in less: its keys do nothing.
    bob.press("M-a")
    ann.sees("waits for cat ")
    bob.sees("waits for cat")
    cat.sees("waits for you ")
    cat.press("M-a")
    for desk in (ann, bob, cat):
        desk.sees("KEPT 1 DAY")
    # A home with a passphrase asks for it, without an echo.
    cat.command("lock")
    cat.sees("mayfly · locked", "Enter here opens it", without=["trio"])
    cat.press("Enter")
    cat.sees("\npassphrase:")
    cat.keys("correct horse")
    cat.sees("passphrase: •••••••••••••", without=["horse"])
    cat.press("Enter")
    cat.sees(" trio · ", "KEPT 1 DAY", without=["locked", "passphrase"])
    # What is written is not lost by one key.
    cat.keys("half a text")
    cat.press("C-c")
    cat.sees("> half a text", "Ctrl-C again ends the chat")
    cat.press("C-c")
    cat.sees(without=["half a text", "KEPT"])
    for desk in (ann, bob):
        desk.say("/open room")
        desk.sees(" room · ")

    # The chat as lines, from a pipe.
    plain = subprocess.run([MAYFLY, "chat", "room", "--plain", "--home", ann.home], input="said from a pipe\n/leave\nroom\n",
                           capture_output=True, text=True, timeout=PATIENCE)
    if plain.returncode or "rotate the key?" not in plain.stdout:
        raise Failure(f"plain: {plain.returncode} {plain.stdout}{plain.stderr}")
    scene.recording.write(f"--- plain\n{plain.stdout}")
    # Nobody who writes into a pipe commands.
    bob.sees("said from a pipe", "/leave")

    for words, code in ((["nowhere"], 7), (["room", "--json"], 64)):
        done = subprocess.run([MAYFLY, "chat", *words, "--plain", "--home", ann.home], input="lost\n",
                              capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode != code:
            raise Failure(f"chat {words}: {done.returncode} {done.stdout}{done.stderr}")

    # The explosion: the name, then what each member has confirmed.
    ann.say("/explode")
    ann.sees("type room:", "all members' copies are destroyed now")
    ann.say("rom")
    ann.sees("that is not the name")
    ann.say("/explode")
    ann.say("room")
    ann.sees("EXPLODED", "bob ✓", "Every member has confirmed.", without=["rotate the key?"])
    bob.sees("EXPLODED", without=["rotate the key?"])

    # The terminal is as it was, and nothing of the chat is left on it.
    for desk in (ann, bob):
        desk.press("C-c")
        desk.sees(without=["EXPLODED"])
        desk.say("echo ended $?")
        screen = desk.sees("ended 0")
        history = scene.tmux("capture-pane", "-p", "-S", "-", "-t", desk.name)
        for secret in ("rotate the key?", "all work", "said from a pipe"):
            if secret in screen + history:
                raise Failure(f"{desk.name}: {secret!r} is left on the terminal")
        desk.say("echo it echoes")
        desk.sees("echo it echoes\nit echoes")


def png(width, height):
    """Red on the left, blue on the right: PNG, section 11.2."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    row = b"\0" + b"\xff\0\0" * (width // 2) + b"\0\0\xff" * (width // 2)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b""))


def main():
    if not shutil.which("tmux"):
        raise Failure("tmux is not installed")
    path = sys.argv[2] if len(sys.argv) > 2 else os.devnull
    with open(path, "w") as recording:
        scene = Scene(recording)
        try:
            talk(scene)
        finally:
            subprocess.run(["tmux", "-S", scene.socket, "kill-server"], capture_output=True)
            shutil.rmtree(scene.directory)
    print(f"chat: {scene.count} screens as expected")


try:
    main()
except Failure as failure:
    sys.exit(f"chat: {failure}")
