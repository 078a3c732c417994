#!/usr/bin/env python3
"""Three real nodes under steady load, and whether what they take grows.

    soak.py MAYFLY [--seconds 900] [--seed 1] [--interval 3]

Two permanent conversations of all three, one in memory only and one that stores what nobody reads for a minute; beside
them conversations come and go: invite, join, agreement, messages, files, sleep and wake, and in the end they explode or
are left. One node is restarted now and then. After a warm-up of a quarter of the time the resident memory, the
descriptors, the threads and the bytes on the disk of each node are fitted to a line.

It fails when a node dies, when a message is not delivered in a minute, or when a line rises by more than this:
  memory        2 MiB, and 24 KiB for each explosion: its tombstone is kept for 45 days by design
  disk          2 MiB, and 8 KiB for each explosion: the same
  descriptors   8
  threads       2
in what is left of the time after the warm-up. A bound is for the whole period, so the longer the run the smaller the
slope that it finds.
"""
import argparse, json, os, random, shutil, signal, socket, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("mayfly")
parser.add_argument("--seconds", type=float, default=900)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--interval", type=float, default=3)
# For the test of this program: what a node would lose, in bytes of its home for each second.
parser.add_argument("--leak", type=int, default=0)
# For a load under a sanitizer, which takes what memory it likes.
parser.add_argument("--no-bounds", action="store_true")
options = parser.parse_args()
chance = random.Random(options.seed)
mayfly = os.path.realpath(options.mayfly)
work = tempfile.mkdtemp(prefix="soak-", dir="/tmp")
counts = {}


def count(name, number=1):
    counts[name] = counts.get(name, 0) + number


class Failure(Exception):
    pass


class Node:
    def __init__(self, name):
        self.name = name
        self.home = f"{work}/{name}"
        self.listen = "tcp://127.0.0.1:0"
        self.process = None
        self.cursor = 0
        self.samples = []
        self.command("init", "--name", name, "--listen", self.listen, "--capacity", "4")

    def command(self, *arguments):
        subprocess.run([mayfly, *arguments, "--home", self.home], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def start(self):
        self.process = subprocess.Popen(
            [mayfly, "run", "--json", "--listen", self.listen, "--home", self.home],
            stdout=subprocess.PIPE, stderr=open(f"{work}/{self.name}.log", "ab"), stdin=subprocess.DEVNULL)
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"{self.name} does not start")
        self.listen = json.loads(line)["listen"][0]
        self.connect()

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(90)
        self.socket.connect(f"{self.home}/control.sock")
        self.stream = self.socket.makefile("rb")
        self.number = 0

    def stop(self):
        self.stream.close()
        self.socket.close()
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60) != 0:
            raise Failure(f"{self.name} stops with {self.process.returncode}")

    def call(self, method, **params):
        """The result, or None for a refusal, which is counted."""
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            line = self.stream.readline()
            if not line:
                raise Failure(f"{self.name} closes the control socket at {method}")
            answer = json.loads(line)
            if answer.get("id") == self.number:
                break
        if "error" in answer:
            count(f"refused {method}: {answer['error'].get('data', {}).get('kind', '')}")
            return None
        count(method)
        return answer["result"]

    def sample(self, at):
        if self.process.poll() is not None:
            raise Failure(f"{self.name} has ended with {self.process.returncode}")
        status = dict(line.split(":", 1) for line in open(f"/proc/{self.process.pid}/status") if ":" in line)
        disk = sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(self.home)
                   for name in names if os.path.exists(os.path.join(path, name)))
        self.samples.append((at, int(status["VmRSS"].split()[0]) * 1024,
                             self.descriptors(), int(status["Threads"]), disk))

    def descriptors(self):
        """Without the store's files, of which it keeps up to 256 open by design."""
        number = 0
        for name in os.listdir(f"/proc/{self.process.pid}/fd"):
            try:
                path = os.readlink(f"/proc/{self.process.pid}/fd/{name}")
            except OSError:
                continue
            number += not path.endswith((".seg", ".log"))
        return number


def until(what, ready, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if ready():
            return
        time.sleep(0.05)
    raise Failure(f"{what} does not come in {seconds} s")


def ready(node, name):
    shown = node.call("conversation.show", conversation=name)
    return shown and shown["state"] == "ready" and shown


def meet(nodes, name, agreement=None):
    """A conversation of the first node that the others join; with an agreement of all if wanted."""
    first = nodes[0]
    made = first.call("conversation.create", name=name, **{"as": first.name})
    if made is None:
        return None
    conversation = made["conversation"]
    for other in nodes[1:]:
        slug = first.call("invite.create", conversation=conversation, singleUse=True)["slug"]
        joined = other.call("join", slug=slug, timeout="60s", **{"as": other.name})
        if joined is None or joined["state"] != "ready":
            return None
    until(f"everybody in {name}", lambda: all(
        len((node.call("conversation.show", conversation=conversation) or {"members": []})["members"]) >= len(nodes) - 1
        for node in nodes))
    if agreement:
        agree(nodes, conversation, agreement)
    return conversation


def agree(nodes, conversation, agreement):
    """Proposes and accepts until all have it; a link that has just been lost puts it off."""
    first = nodes[0]

    def has_it():
        return first.call("lifetime.show", conversation=conversation).get("state") == "agreed"

    def settle():
        if has_it():
            return True
        if first.call("lifetime.propose", conversation=conversation, **agreement) is None:
            time.sleep(1)
        for other in nodes[1:]:
            for _ in range(40):
                shown = other.call("lifetime.show", conversation=conversation) or {}
                if shown.get("proposal"):
                    other.call("lifetime.accept", conversation=conversation)
                    break
                if shown.get("state") == "agreed":
                    break
                time.sleep(0.05)
        time.sleep(0.1)
        return has_it()
    until("an agreement", settle)


def say(node, conversation, wait="sent"):
    text = "x" * chance.choice([5, 40, 400, 4_000])
    return node.call("send", conversation=conversation, text=text, wait=wait, timeout="60s")


def send_file(node, conversation):
    upload = node.call("attachment.begin", conversation=conversation, name="f.bin", byteCount=200_000)
    if upload is None:
        return
    import base64
    data = base64.b64encode(chance.randbytes(200_000)).decode()
    if node.call("attachment.append", upload=upload["upload"], data=data) is not None:
        node.call("attachment.commit", upload=upload["upload"], wait="delivered", timeout="60s")


def round_trip(nodes, number):
    """A conversation from its first word to its end."""
    members = chance.sample(nodes, chance.choice([2, 3]))
    conversation = meet(members, f"round-{number}", {"lifetime": "1h"} if number % 2 else None)
    if conversation is None:
        return
    for _ in range(10):
        say(chance.choice(members), conversation, chance.choice(["queued", "sent", "delivered"]))
    if number % 3 == 0:
        send_file(members[0], conversation)
    for member in members:
        member.call("read", conversation=conversation, last=20)
    if number % 5 == 0:
        for inbox in (nodes[0].call("inbox.list") or {}).get("inboxes", []):
            if nodes[0].call("inbox.sleep", inbox=inbox["inbox"]) is not None:
                nodes[0].call("inbox.wake", inbox=inbox["inbox"])
    if number % 4 == 0:
        if members[0].call("explode", conversation=conversation) is not None:
            count("explosions")
            until("the end of an explosion", lambda: all(
                member.call("conversation.show", conversation=conversation) is None for member in members[1:]))
    else:
        for member in reversed(members):
            member.call("conversation.leave", conversation=conversation)


def slope(samples, column):
    """Least squares, per second."""
    n = len(samples)
    mean_x = sum(one[0] for one in samples) / n
    mean_y = sum(one[column] for one in samples) / n
    spread = sum((one[0] - mean_x) ** 2 for one in samples)
    return sum((one[0] - mean_x) * (one[column] - mean_y) for one in samples) / spread if spread else 0


def run():
    nodes = [Node(name) for name in ("ann", "bob", "cid")]
    try:
        for node in nodes:
            node.start()
        memory = meet(nodes, "memory")
        minute = {"lifetime": "1h", "unopened": "1m", "timer": "read"}
        stored = meet(nodes, "stored", minute)
        if memory is None or stored is None:
            raise Failure("the nodes do not come together")
        begin = time.monotonic()
        next_sample = next_round = begin
        next_restart = begin + max(20, options.seconds / 12)
        explosions_before = 0
        number = 0
        warm = begin + options.seconds / 4
        while time.monotonic() < begin + options.seconds:
            now = time.monotonic()
            if now >= next_sample:
                next_sample = now + options.interval
                if options.leak:
                    with open(f"{nodes[1].home}/leak", "ab") as leak:
                        leak.write(bytes(int(options.leak * options.interval)))
                for node in nodes:
                    node.sample(now - begin)
            if now < warm:
                explosions_before = counts.get("explosions", 0)
            if now >= next_round:
                next_round = now + 4
                number += 1
                round_trip(nodes, number)
                # What is in memory only stays until a conversation is closed, up to 8 MiB of each: no slope, but long.
                if number % 5 == 0:
                    for node in nodes:
                        node.call("conversation.close", conversation=memory)
            if now >= next_restart:
                next_restart = now + max(20, options.seconds / 12)
                nodes[2].stop()
                nodes[2].start()
                count("restarts")
                # The session has ended, and the agreement with it: without another one nothing is stored.
                agree(nodes, stored, minute)
                for node in nodes:
                    node.call("conversation.close", conversation=memory)
                # What a new process takes is no slope of the old one's; the disk goes on.
                nodes[2].restarted = time.monotonic() - begin
            sender = chance.choice(nodes)
            say(sender, memory, chance.choice(["queued", "sent"]))
            say(sender, stored, "queued")
            if chance.random() < 0.02:
                for node in nodes:
                    node.call("read", conversation=memory, last=10)
            time.sleep(0.05)
        period = options.seconds * 3 / 4
        explosions = counts.get("explosions", 0) - explosions_before
        bounds = {"memory": (1, (2 << 20) + explosions * (24 << 10)), "descriptors": (2, 8), "threads": (3, 2),
                  "disk": (4, (2 << 20) + explosions * (8 << 10))}
        failed = []
        print(f"{options.seconds:.0f} s, seed {options.seed}, {explosions} explosions after the warm-up; by the line, "
              f"over {period:.0f} s:")
        for node in nodes:
            for name, (column, bound) in bounds.items():
                samples = [one for one in node.samples if one[0] >= options.seconds / 4]
                # The node that is restarted begins anew: only its descriptors and its disk are one line.
                if node is nodes[2] and name in ("memory", "threads"):
                    continue
                rise = slope(samples, column) * period
                first, last = samples[0][column], samples[-1][column]
                verdict = "ok" if rise <= bound else "GROWS"
                print(f"  {node.name} {name:12} {first:>12} → {last:>12}  rises by {rise:>12.1f} of {bound:>10}  {verdict}")
                if rise > bound and not options.no_bounds:
                    failed.append(f"{node.name}'s {name}")
        for name in sorted(counts):
            print(f"  {counts[name]:>8} {name}")
        if failed:
            raise Failure("grows: " + ", ".join(failed))
        for node in nodes:
            node.stop()
    finally:
        for node in nodes:
            if node.process and node.process.poll() is None:
                node.process.kill()
                node.process.wait()


try:
    run()
    code = 0
except Failure as failure:
    print(f"soak: {failure}", file=sys.stderr)
    for name in ("ann", "bob", "cid"):
        try:
            sys.stderr.write("".join(open(f"{work}/{name}.log").readlines()[-10:]))
        except OSError:
            pass
    code = 1
finally:
    shutil.rmtree(work, ignore_errors=True)
sys.exit(code)
