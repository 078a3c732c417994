#!/usr/bin/env python3
"""Three real nodes under steady load, and whether what they take grows.

    soak.py MAYFLY [--seconds 900] [--seed 1] [--interval 3]

Two permanent conversations of all three, one in memory only and one in which the first node speaks and which stores
what nobody reads for a minute, and what one has said oneself for an hour; at most ten messages a second in each. Beside
them conversations come and go: invite, join, agreement, messages, files, sleep and wake, and in the end they explode or
are left. One node is restarted now and then. After a warm-up of a quarter of the time, and of no less than 90 s or half
of it, the resident memory, the descriptors, the threads and the bytes on the disk of each node are fitted to a line.

It fails when a node dies or refuses what it may not refuse, when a message is not delivered in a minute or not shown to
somebody it was delivered to, when nothing exploded or restarted in a minute or more, or when a line rises by more than
this:
  memory        2 MiB, and 24 KiB for each explosion: its tombstone is kept for 45 days by design; and 192 bytes for each
                message, up to 65,536: so many numbers are remembered, to know what comes twice
  disk          2 MiB, and 8 KiB for each explosion: the same; at the first node three times what it has said in the
                conversation that stores, for a message is written again as it is sent and as it is delivered
  descriptors   8
  threads       2
in what is left of the time after the warm-up. A bound is for the whole period, so the longer the run the smaller the
slope that it finds. At the start it plants a member that stands still and figures that grow, and fails if it does not
see them.
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
        self.samples = []
        # When its user said something that this node keeps, and how much.
        self.kept = []
        # Since when what is in the outbox was seen there.
        self.waiting = {}
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
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} does not stop") from None
        if code != 0:
            raise Failure(f"{self.name} stops with {code}")

    def call(self, method, may=(), body=b"", **params):
        """The result, or None for a refusal of a kind that may be; any other fails the run."""
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params, "body": len(body)}
        try:
            self.socket.sendall(json.dumps(request).encode() + b"\n" + body)
            while True:
                line = self.stream.readline()
                if not line:
                    raise Failure(f"{self.name} closes the control socket at {method}")
                answer = json.loads(line)
                if answer.get("id") == self.number:
                    break
        except OSError as error:
            raise Failure(f"{self.name} does not answer {method}: {error}") from None
        if "error" in answer:
            kind = answer["error"].get("data", {}).get("kind", "")
            count(f"refused {method}: {kind}")
            if kind not in may:
                raise Failure(f"{self.name} refuses {method}: {kind}, {answer['error'].get('message', '')}")
            return None
        count(method)
        return answer["result"]

    def outbox(self, conversation=None):
        only = {"conversation": conversation} if conversation else {}
        return self.call("outbox.list", **only)["messages"]

    def overdue(self, patience=60):
        """What was in the outbox for so long, as far as anybody has looked."""
        now = time.monotonic()
        names = {(one["message"], one["to"]) for one in self.outbox()}
        self.waiting = {name: self.waiting.get(name, now) for name in names}
        return [name for name, since in self.waiting.items() if now - since >= patience]

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


def meet(nodes, name, agreement=None):
    """A conversation of the first node that the others join; with an agreement of all if wanted."""
    first = nodes[0]
    conversation = first.call("conversation.create", name=name, **{"as": first.name})["conversation"]
    for other in nodes[1:]:
        slug = first.call("invite.create", conversation=conversation, singleUse=True)["slug"]
        joined = other.call("join", slug=slug, timeout="60s", **{"as": other.name})
        if joined["state"] != "ready":
            raise Failure(f"{other.name}'s join to {name} is {joined['state']}: {joined.get('message', '')}")
    until(f"everybody in {name}", lambda: all(
        len(node.call("conversation.show", conversation=conversation)["members"]) >= len(nodes) - 1 for node in nodes))
    if agreement:
        agree(nodes, conversation, agreement)
    return conversation


def agree(nodes, conversation, agreement):
    """Proposes and accepts until all have it; nothing if they do."""
    first = nodes[0]
    # A link may be lost, and the proposal with it, between any two of these calls; and who has proposed often waits
    # some seconds. Then it is said again, for a minute.
    later = ("unreachable", "notFound", "failed")

    def has_it():
        return first.call("lifetime.show", conversation=conversation)["state"] == "agreed"

    def settle():
        if first.call("lifetime.propose", may=later, conversation=conversation, **agreement) is None:
            time.sleep(1)
        for other in nodes[1:]:
            for _ in range(40):
                shown = other.call("lifetime.show", conversation=conversation)
                if shown["proposal"]:
                    other.call("lifetime.accept", may=later, conversation=conversation)
                    break
                if shown["state"] == "agreed":
                    break
                time.sleep(0.05)
        time.sleep(0.1)
        return has_it()
    if not has_it():
        count("agreements")
        until("an agreement", settle)


def arrived(sent, wait):
    """The id of a message that has come as far as was asked."""
    stages = ["queued", "sent", "delivered"]
    if stages.index(sent["state"]) < stages.index(wait):
        raise Failure(f"a message that was to be {wait} is {sent['state']}")
    return sent["message"]


def say(node, conversation, wait="sent", timeout="60s", keeps=False):
    text = "x" * chance.choice([5, 40, 400, 4_000])
    if keeps:
        # The text, and what a record has beside it.
        node.kept.append((time.monotonic(), len(text) + 300))
    return arrived(node.call("send", conversation=conversation, text=text, wait=wait, timeout=timeout), wait)


def send_file(node, conversation):
    upload = node.call("attachment.begin", conversation=conversation, name="f.bin", byteCount=200_000)["upload"]
    node.call("attachment.append", body=chance.randbytes(200_000), upload=upload)
    return arrived(node.call("attachment.commit", upload=upload, wait="delivered", timeout="60s"), "delivered")


def deliver(nodes, conversation=None):
    """Waits until nothing is on its way any more."""
    until("an empty outbox", lambda: not any(node.outbox(conversation) for node in nodes))


def round_trip(nodes, number):
    """A conversation from its first word to its end."""
    members = chance.sample(nodes, chance.choice([2, 3]))
    conversation = meet(members, f"round-{number}", {"lifetime": "1h"} if number % 2 else None)
    said = {say(chance.choice(members), conversation, chance.choice(["queued", "sent", "delivered"]))
            for _ in range(10)}
    if number % 3 == 0:
        said.add(send_file(members[0], conversation))
    deliver(members, conversation)
    for member in members:
        shown = member.call("read", conversation=conversation, last=40)["messages"]
        missing = said - {one["message"] for one in shown}
        if missing:
            raise Failure(f"{member.name} does not show {len(missing)} of {len(said)} messages")
    if number % 5 == 0:
        for inbox in nodes[0].call("inbox.list")["inboxes"]:
            # One that has something to do stays awake.
            if nodes[0].call("inbox.sleep", may=("failed",), inbox=inbox["inbox"]) is not None:
                nodes[0].call("inbox.wake", inbox=inbox["inbox"])
    if number % 4 == 0:
        members[0].call("explode", conversation=conversation)
        count("explosions")
        until("the end of an explosion", lambda: all(
            member.call("conversation.show", may=("expired",), conversation=conversation) is None
            for member in members[1:]))
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


def bounds(explosions, kept=0, messages=0):
    """Where each figure is in a sample, and what it may rise by."""
    remembered = 192 * min(messages, 65_536)
    return {"memory": (1, (2 << 20) + explosions * (24 << 10) + remembered), "descriptors": (2, 8), "threads": (3, 2),
            "disk": (4, (2 << 20) + explosions * (8 << 10) + 3 * kept)}


def plant_growth():
    """Figures that go up and down stay within their bounds, and each that also grows by twice its bound is seen."""
    period = 675

    def rises(growing):
        samples = [[at, 32 << 20, 40, 5, 2 << 20] for at in range(0, period, 3)]
        for index, one in enumerate(samples):
            for column, bound in bounds(0).values():
                one[column] += bound // 2 * (index % 5 - 2) / 2
                if column == growing:
                    one[column] += 2 * bound * one[0] / period
        return [column for column, bound in bounds(0).values() if slope(samples, column) * period > bound]
    if rises(None) or any(rises(column) != [column] for column, _ in bounds(0).values()):
        raise Failure("what grows is not told from what does not")


def plant_silence(nodes, conversation):
    """A message to a member that stands still is not delivered, and that is seen: by who waits, and in the outbox."""
    silent = nodes[2].process.pid
    os.kill(silent, signal.SIGSTOP)
    try:
        say(nodes[0], conversation, "delivered", timeout="2s")
        seen = False
    except Failure:
        seen = bool(nodes[0].overdue(patience=0))
    finally:
        os.kill(silent, signal.SIGCONT)
    if not seen:
        raise Failure("a message to somebody who stands still counts as delivered")
    deliver(nodes)


def run():
    plant_growth()
    nodes = [Node(name) for name in ("ann", "bob", "cid")]
    try:
        for node in nodes:
            node.start()
        memory = meet(nodes, "memory")
        minute = {"lifetime": "1h", "unopened": "1m", "timer": "read"}
        stored = meet(nodes, "stored", minute)
        plant_silence(nodes, memory)
        # The first minute fills what is kept for one.
        warm_up = max(options.seconds / 4, min(90, options.seconds / 2))
        begin = time.monotonic()
        next_sample = next_round = begin
        next_restart = begin + max(20, options.seconds / 12)
        explosions_before = messages_before = 0
        number = 0
        warm = begin + warm_up
        while time.monotonic() < begin + options.seconds:
            now = time.monotonic()
            if now >= next_sample:
                next_sample = now + options.interval
                if options.leak:
                    with open(f"{nodes[1].home}/leak", "ab") as leak:
                        leak.write(bytes(int(options.leak * options.interval)))
                for node in nodes:
                    node.sample(now - begin)
                    if node.overdue():
                        raise Failure(f"{node.name} has a message that is not delivered in a minute")
            if now < warm:
                explosions_before = counts.get("explosions", 0)
                messages_before = counts.get("send", 0)
            if now >= next_round:
                next_round = now + 4
                number += 1
                round_trip(nodes, number)
                # Without an agreement nothing is stored, and what nobody reads fills the memory until no more is
                # taken.
                agree(nodes, stored, minute)
                # What is in memory only stays until a conversation is closed, up to 8 MiB of each: no slope, but long.
                if number % 5 == 0:
                    # Closing takes back what is still on its way.
                    deliver(nodes, memory)
                    for node in nodes:
                        node.call("conversation.close", conversation=memory)
            if now >= next_restart:
                next_restart = now + max(20, options.seconds / 12)
                # Nobody is asked for anything meanwhile. What this node had in memory goes with its process, as it
                # should; what the others have for it is delivered when it is back, in a minute from then.
                nodes[2].stop()
                nodes[2].start()
                count("restarts")
                for node in nodes:
                    node.waiting = {}
                # The session has ended, and the agreement with it; once all have heard this node they know that.
                say(nodes[2], stored, "delivered")
                agree(nodes, stored, minute)
                deliver(nodes, memory)
                for node in nodes:
                    node.call("conversation.close", conversation=memory)
            say(chance.choice(nodes), memory, chance.choice(["queued", "sent"]))
            say(nodes[0], stored, "queued", keeps=True)
            if chance.random() < 0.02:
                for node in nodes:
                    node.call("read", conversation=memory, last=256)
            time.sleep(0.1)
        period = options.seconds - warm_up
        explosions = counts.get("explosions", 0) - explosions_before
        messages = counts.get("send", 0) - messages_before
        failed = []
        print(f"{options.seconds:.0f} s, seed {options.seed}, {explosions} explosions after the warm-up; by the line, "
              f"over {period:.0f} s:")
        for node in nodes:
            since = max(warm, time.monotonic() - 3_600)
            kept = sum(byte_count for at, byte_count in node.kept if at >= since)
            for name, (column, bound) in bounds(explosions, kept, messages).items():
                samples = [one for one in node.samples if one[0] >= warm_up]
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
        deliver(nodes)
        # By then both are due several times.
        for name in ("explosions", "restarts"):
            if options.seconds >= 60 and name not in counts:
                raise Failure(f"{options.seconds:.0f} s without {name}")
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
