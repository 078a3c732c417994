#!/usr/bin/env python3
"""A file between two nodes directly, and through a rendezvous node that limits nothing, in turns: real nodes on the loopback.

    relay.py MAYFLY [MEBIBYTES [ROUNDS]]

Prints MiB/s of each round, from the command to send until the other side has delivered all of it, the middle of both,
and their ratio.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MAYFLY = os.path.abspath(sys.argv[1])
SIZE = int(sys.argv[2] if len(sys.argv) > 2 else 64) << 20
ROUNDS = int(sys.argv[3] if len(sys.argv) > 3 else 5)
#: A closed port, advertised in place of the node's own address.
NOWHERE = "tcp://127.0.0.1:9"


class Node:
    def __init__(self, directory, name, arguments=(), init=()):
        self.home = os.path.join(directory, name)
        self.ok("init", "--listen", "tcp://127.0.0.1:0", *init)
        self.process = subprocess.Popen([MAYFLY, "run", "--json", "--home", self.home, *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert json.loads(self.process.stdout.readline())["event"] == "ready"

    def ok(self, *arguments):
        done = subprocess.run([MAYFLY, *arguments, "--json", "--home", self.home], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"mayfly {' '.join(arguments)}: {done.returncode}: {done.stdout}{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def pair(directory, isRelayed):
    """Two nodes with a conversation `room`, kept for a day, and the nodes to be stopped."""
    os.mkdir(directory)
    nodes, init = [], ["--advertise", NOWHERE] if isRelayed else []
    ann, bob = (Node(directory, name, ["--no-udp"], init) for name in ("ann", "bob"))
    nodes += [ann, bob]
    if isRelayed:
        hub = Node(directory, "hub", ["--rendezvous"])
        hub.stop()
        path = os.path.join(hub.home, "config.json")
        with open(path) as file:
            configuration = json.load(file)
        configuration["rendezvous"] = {"serve": True, "bytesPerSecond": 1 << 30, "bytesPerSecondTotal": 1 << 32}
        with open(path, "w") as file:
            json.dump(configuration, file)
        hub.process = subprocess.Popen([MAYFLY, "run", "--json", "--home", hub.home], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
        hub.process.stdout.readline()
        nodes.append(hub)
        hub.ok("peer", "add", "ann", ann.ok("peer", "card")[0]["contact"])
        ann.ok("peer", "add", "hub", hub.ok("peer", "card")[0]["contact"])
        ann.ok("peer", "set", "hub", "rendezvous=on")
        until(lambda: any(check["name"] == "rendezvous" and check["state"] == "ok"
                          for check in ann.ok("status")[0]["checks"]))
    ann.ok("conversation", "create", "--name", "room")
    slug = ann.ok("invite", "create", "room")[0]["slug"]
    bob.ok("join", slug, "--as", "room")
    ann.ok("send", "room", "hello", "--wait", "delivered")
    path = [member["path"] for member in bob.ok("conversation", "members", "room")[0]["members"] if member.get("path")]
    assert path == ["relayed" if isRelayed else "direct"], path
    ann.ok("lifetime", "propose", "room", "1d")
    until(lambda: bob.ok("lifetime", "show", "room")[0].get("proposal"))
    bob.ok("lifetime", "accept", "room")
    return ann, bob, nodes


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            sys.exit("it does not come to be")
        time.sleep(0.2)


def main():
    directory = tempfile.mkdtemp()
    file = os.path.join(directory, "file")
    with open(file, "wb") as out:
        out.write(os.urandom(SIZE))
    rates, nodes = {"direct": [], "relayed": []}, []
    try:
        pairs = {}
        for kind in rates:
            ann, _, more = pair(os.path.join(directory, kind), kind == "relayed")
            pairs[kind] = ann
            nodes += more
        for _ in range(ROUNDS):
            for kind, ann in pairs.items():
                begin = time.monotonic()
                ann.ok("send", "room", "--file", file, "--wait", "delivered", "--timeout", "300")
                rates[kind].append(SIZE / (1 << 20) / (time.monotonic() - begin))
                print(f"{kind} {rates[kind][-1]:.1f} MiB/s", flush=True)
    finally:
        for node in nodes:
            node.stop()
        shutil.rmtree(directory)
    middle = {kind: statistics.median(rates[kind]) for kind in rates}
    print(f"a file of {SIZE >> 20} MiB, middle of {ROUNDS}: direct {middle['direct']:.1f}, relayed {middle['relayed']:.1f} "
          f"MiB/s, {middle['relayed'] / middle['direct']:.2f}")


main()
