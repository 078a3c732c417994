#!/usr/bin/env python3
"""How soon after its lifetime of an hour a message is hidden, overwritten and without a key, on a real node.

    expiry.py MAYFLY [MESSAGES]

Takes an hour and some minutes. Two nodes on the loopback agree on one hour. One sends MESSAGES (40), two seconds apart
and never at the end of a bucket; the other's home is watched when they expire, and its user calls `read` without pause.
Prints three delays in milliseconds: the first `read` without the message, the changed ciphertext in the segment, and the
changed key page of the bucket (one-hour buckets end at multiples of 10 s). Fails if a `read` after the expiry shows a
message, or if a step takes more than five seconds.
"""
import datetime
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

MAYFLY = os.path.abspath(sys.argv[1])
MESSAGES = int(sys.argv[2] if len(sys.argv) > 2 else 40)
BUCKET = 10
#: Seconds to wait after the expiry.
PATIENCE = 5


class Node:
    def __init__(self, directory, name):
        self.home = os.path.join(directory, name)
        self.ok("init", "--listen", "tcp://127.0.0.1:0")
        self.process = subprocess.Popen([MAYFLY, "run", "--json", "--home", self.home], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        assert json.loads(self.process.stdout.readline())["event"] == "ready"

    def ok(self, *arguments):
        done = subprocess.run([MAYFLY, *arguments, "--json", "--home", self.home], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"mayfly {' '.join(arguments)}: {done.returncode}: {done.stdout}{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Reader:
    """Asks a node for its messages, over one connection."""

    def __init__(self, node):
        self.process = subprocess.Popen([MAYFLY, "rpc", "--home", node.home], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def messages(self):
        request = {"jsonrpc": "2.0", "id": 1, "method": "read", "params": {"conversation": "room", "last": 200}}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return {each["message"]: each for each in json.loads(self.process.stdout.readline())["result"]["messages"]}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def seconds(timestamp):
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def wait_until(moment):
    time.sleep(max(0, moment - time.time()))


def contents(pattern):
    """The bytes of all these files; one that is gone holds none."""
    result = []
    for path in sorted(glob.glob(pattern)):
        try:
            with open(path, "rb") as file:
                result.append((path, file.read()))
        except FileNotFoundError:
            pass
    return result


def until(due, isOver):
    """Milliseconds from `due` until it is over."""
    while not isOver():
        if time.time() > due + PATIENCE:
            sys.exit(f"expiry: not over {PATIENCE} s after it was due")
        time.sleep(0.002)
    return (time.time() - due) * 1_000


def watch(home, reader, message, due, hidden, overwritten):
    wait_until(due - 0.2)
    assert message in reader.messages(), "hidden before its time"
    segments = os.path.join(home, "inboxes", "*", "*")
    before = contents(segments)

    def isHidden():
        asked = time.time()
        isShown = message in reader.messages()
        if isShown and asked >= due:
            sys.exit(f"expiry: shown {(asked - due) * 1_000:.0f} ms after its time")
        return not isShown

    hidden.append(until(due, isHidden))
    overwritten.append(until(due, lambda: contents(segments) != before))


def show(what, values):
    values.sort()
    print(f"{what}: median {statistics.median(values):.0f} ms, most {values[-1]:.0f} ms, of {len(values)}", flush=True)


def main(directory):
    ann, bob = Node(directory, "ann"), Node(directory, "bob")
    try:
        ann.ok("conversation", "create", "--name", "room")
        bob.ok("join", ann.ok("invite", "create", "room")[0]["slug"])
        ann.ok("lifetime", "propose", "room", "1h")
        bob.ok("lifetime", "accept", "room")
        reader = Reader(bob)
        sent = []
        for number in range(MESSAGES):
            now = time.time()
            wait_until(now - now % BUCKET + 2 * (number % 4 + 1) + BUCKET * (number % 4 == 0))
            sent.append(ann.ok("send", "room", f"number {number}", "--wait", "delivered")[0]["message"])
        kept = reader.messages()
        times = sorted((seconds(kept[message]["expiresAt"]), message) for message in sent)
        print(f"{len(times)} messages; the first is due in {times[0][0] - time.time():.0f} s", flush=True)
        hidden, overwritten, keys = [], [], []
        columns = os.path.join(bob.home, "columns.slots")
        edges = sorted({-(-due // BUCKET) * BUCKET for due, _ in times})
        while times or edges:
            if times and times[0][0] < edges[0]:
                due, message = times.pop(0)
                watch(bob.home, reader, message, due, hidden, overwritten)
                continue
            edge = edges.pop(0)
            wait_until(edge - 0.05)
            before = contents(columns)
            keys.append(until(edge, lambda: contents(columns) != before))
        show("hidden after its time", hidden)
        show("ciphertext overwritten after its time", overwritten)
        show("key page overwritten after the end of its bucket", keys)
        reader.close()
    finally:
        ann.stop()
        bob.stop()


with tempfile.TemporaryDirectory(prefix="mayfly-expiry-") as directory:
    main(directory)
