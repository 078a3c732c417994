#!/usr/bin/env python3
"""Every road between two nodes: real ones, in network namespaces, behind every pair of kinds of network.

    matrix.py MAYFLY [--quick] [--cells 'A:B …'] [--seed 1] [--jobs 3] [--no-punch] [--json FILE] [--markdown FILE]

A cell is two nodes, each on a network of its own kind (kinds.py), and a rendezvous node with a public address. The first
node makes a conversation, the second joins it, each says something; then the second gets a new address, its router, if
there is one, too, and forgets all connections; each says something again. The cell lan:lan is
two nodes on one network; island:island is that without a rendezvous node or a way to elsewhere, where both move at one
time and LAN discovery is on. A cell fails if

- the path between the two is worse than what physics allows, before or after that, or gets there too late;
- a message is not delivered, or more than once; a node ends, or does not end when it is told to.

Needs root; the exit code is 77 where namespaces are not permitted, 1 if a cell fails, 2 if it was told nonsense.
"""
import argparse
import concurrent.futures
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kinds import KINDS, RANK, expected
from network import Gateway, Network, NetworkError, remove_stale, require_namespaces
from nats import wrong
from node import Failure, Node, both, end_all, until

#: What a newcomer's machine can run in a minute: each way there is, the change of addresses included.
QUICK = ["none:none", "cone:cone", "cone:symmetric", "none:no-udp", "ipv6:none", "symmetric:mapped", "lan:lan",
         "island:island"]
#: Seconds: for a message after a join and after a move; for the best path, whose search begins after 15 s over a relay.
MESSAGE = 90
PATH = 75

stopping = threading.Event()


class Cell:
    def __init__(self, name, options):
        self.name = name
        self.options = options
        first, second = name.split(":")
        self.same = first in ("lan", "island")
        self.island = first == "island"
        self.kinds = [KINDS["cone" if self.same else kind] for kind in (first, second)]
        self.expected, self.why = expected(*self.kinds, punching=options.punch, same_network=self.same)
        self.result = {"a": first, "b": second, "expected": self.expected, "why": self.why}

    def run(self, number):
        self.directory = f"{self.options.work}/{number}"
        os.mkdir(self.directory)
        self.network = Network(str(number), *self.kinds, self.options.seed, self.same, self.island)
        self.nodes = {
            role: Node(self.options.mayfly, self.network, role, self.directory,
                       (["--rendezvous"] if role == "r" else ["--discover", "lan"] if self.island else [])
                       + ([] if role == "r" else self.options.flags.split())
                       + (["--map-ports"] if role != "r" and self.kinds["ab".index(role)].maps else [])
                       + ["--log-level", self.options.log_level])
            for role in ("r", "a", "b")
        }
        begin = time.monotonic()
        problem = None
        try:
            self.network.up()
            self.steps()
        except (Failure, NetworkError) as failure:
            problem = str(failure)
        except Exception as error:
            problem = repr(error)
        finally:
            for role, node in self.nodes.items():
                if not node.stop() and problem is None:
                    problem = f"{role} ended badly"
            self.network.down()
        self.result["seconds"] = round(time.monotonic() - begin, 1)
        self.result["failure"] = problem
        if problem is None and not self.options.keep:
            shutil.rmtree(self.directory, ignore_errors=True)
        elif problem:
            self.result["logs"] = self.directory
        return self.result

    def steps(self):
        a, b, r = (self.nodes[role] for role in "abr")
        for node in (r, a, b):
            node.start()
        for node, kind in ((a, self.kinds[0]), (b, self.kinds[1])):
            # Who everybody can reach has no use for a rendezvous node.
            if self.island or kind.is_public and kind.families == {4, 6}:
                continue
            r.call("peer.add", name=node.role, card=node.call("peer.card")["contact"])
            node.call("peer.add", name="hub", card=r.call("peer.card")["contact"])
            node.call("peer.set", name="hub", key="rendezvous", value="on")
            until(f"a reservation of {node.role}", 90, lambda: any(
                check["name"] == "rendezvous" and check["state"] == "ok" for check in node.call("status")["checks"]),
                stopping)
        a.call("conversation.create", name="room", **{"as": "ann"})
        slug = a.call("invite.create", conversation="room")["slug"]
        begin = time.monotonic()
        joined = b.call("join", MESSAGE + 10, slug=slug, timeout=f"{MESSAGE}s", **{"as": "bob"})
        if joined["state"] != "ready":
            raise Failure(f"the join is {joined['state']}")
        b.send("one", MESSAGE)
        self.result["first"] = round(time.monotonic() - begin, 2)
        a.send("two", MESSAGE)
        self.settle("before", begin)
        begin = time.monotonic()
        self.network.move("b")
        if self.island:
            # Nobody else could tell either where the other one is.
            self.network.move("a")
        seconds = both(lambda: a.send("three", MESSAGE), lambda: b.send("four", MESSAGE))
        self.result["moved"] = {"a": round(seconds[0], 2), "b": round(seconds[1], 2)}
        self.settle("after", begin)
        for node in (a, b):
            if sorted(node.texts()) != ["four", "one", "three", "two"]:
                raise Failure(f"{node.role} has {node.texts()}")

    def settle(self, when, begin):
        """Waits for a path as good as can be, on both sides."""
        seen = []

        def look():
            paths = [self.nodes[role].path() for role in "ab"]
            if not seen or seen[-1][1] != paths:
                seen.append((round(time.monotonic() - begin, 2), paths))
            self.result[when] = {"paths": seen, "path": None}
            good = all(path and RANK[path[0]] >= RANK[self.expected] for path in paths)
            # Of a relayed link each side tells what its own link to the rendezvous node runs over.
            told = 1 if good and paths[0][0] == "relayed" else 2
            return good and paths[0][:told] == paths[1][:told] and paths

        paths = until(f"{self.expected} {when} the move", PATH, look, stopping)
        path, transport, family = paths[0]
        self.result[when] = {"path": path, "transport": transport, "family": family,
                             "settled": round(time.monotonic() - begin, 2), "paths": seen}


def line(result):
    def state(when):
        one = result.get(when, {})
        if not one.get("path"):
            return f"{'–':17} {'':6}"
        return f"{one['path']:8} {one['transport']} {one['family']:4} {one['settled']:6.1f}"
    moved = result.get("moved", {})
    return (f"{result['a']:10} {result['b']:10} {result['expected']:8} {result.get('first', float('nan')):6.1f}  "
            f"{state('before')}  {moved.get('a', float('nan')):6.1f} {moved.get('b', float('nan')):6.1f}  "
            f"{state('after')}  {'FAILED ' + result['failure'] if result['failure'] else 'ok'}")


HEADER = (f"{'A':10} {'B':10} {'expected':8} {'first':>6}  {'path':8} {'over':8} {'after':>6}  "
          f"{'A to B':>6} {'B to A':>6}  {'path':8} {'over':8} {'after':>6}")


def markdown(results):
    """A row for each kind of A, a column for each of B: path and seconds to the first message; the same after the move."""
    names = [name for name in list(KINDS) + ["lan", "island"] if any(name in (one["a"], one["b"]) for one in results)]
    by_pair = {(one["a"], one["b"]): one for one in results}
    yield "| A \\ B | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for a in names:
        cells = []
        for b in names:
            one = by_pair.get((a, b))
            if one is None:
                cells.append("")
            elif one["failure"]:
                cells.append("fails")
            else:
                moved = max(one["moved"].values())
                cells.append(f"{one['before']['path']} {one['first']:.1f}, {moved:.1f}")
        if any(cells):
            yield f"| {a} | " + " | ".join(cells) + " |"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mayfly")
    parser.add_argument("--quick", action="store_true", help=" ".join(QUICK))
    parser.add_argument("--cells", default="", metavar="'A:B …'", help="* stands for every kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=3, help="cells at a time")
    parser.add_argument("--no-punch", dest="punch", action="store_false", help="expect no hole punching")
    parser.add_argument("--json", help="write a line a cell")
    parser.add_argument("--markdown", help="write a table")
    parser.add_argument("--flags", default="", metavar="'--no-udp'",
                        help="for each `mayfly run` of the two: to see a cell fail")
    parser.add_argument("--log-level", default="notice")
    parser.add_argument("--keep", action="store_true", help="keep homes and logs")
    options = parser.parse_args()
    options.mayfly = os.path.realpath(options.mayfly)
    if not os.access(options.mayfly, os.X_OK):
        parser.error(f"{options.mayfly} is no program")
    every = [f"{a}:{b}" for a in KINDS for b in KINDS] + ["lan:lan", "island:island"]
    wanted = QUICK if options.quick else options.cells.split() or every
    cells = []
    for pattern in wanted:
        parts = pattern.split(":")
        if len(parts) != 2:
            parser.error(f"a cell is A:B, not {pattern}")
        chosen = [one for one in every if all(
            part == "*" or part == kind for part, kind in zip(parts, one.split(":")))]
        if not chosen:
            parser.error(f"{pattern}: the kinds are {', '.join(KINDS)}, and lan:lan, island:island")
        cells += [one for one in chosen if one not in cells]
    return options, cells


def main():
    options, cells = parse()
    require_namespaces()
    if not Gateway.program:
        print("matrix: SKIPPED: cells with `mapped` need miniupnpd", file=sys.stderr)
        cells = [cell for cell in cells if "mapped" not in cell.split(":")]
    remove_stale()
    options.work = tempfile.mkdtemp(prefix="mx-", dir="/tmp")

    def stop(*_):
        stopping.set()
        end_all()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    # What is dear comes in any order: no cell profits from its neighbours.
    random.Random(options.seed).shuffle(cells)
    results = []
    print(f"{len(cells)} cells, seed {options.seed}, logs in {options.work}\n{HEADER}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        used = [kind for kind in KINDS.values() if any(kind.name in cell.split(":") for cell in cells)]
        problems = [problem for problem in pool.map(lambda kind: wrong(kind, options.seed), used) if problem]
        if problems:
            print("\n".join(f"matrix: {problem}" for problem in problems), file=sys.stderr)
            return 1

        def guarded(number, name):
            return None if stopping.is_set() else Cell(name, options).run(number)
        tasks = [pool.submit(guarded, number, name) for number, name in enumerate(cells)]
        for task in concurrent.futures.as_completed(tasks):
            result = task.result()
            if result is None:
                continue
            results.append(result)
            print(line(result), flush=True)
            if options.json:
                with open(options.json, "a") as file:
                    file.write(json.dumps(result) + "\n")
    order = list(KINDS) + ["lan", "island"]
    results.sort(key=lambda one: (order.index(one["a"]), order.index(one["b"])))
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write("\n".join(markdown(results)) + "\n")
    failed = [one for one in results if one["failure"]]
    for one in failed:
        print(f"matrix: {one['a']}:{one['b']}: {one['failure']}; {one['expected']} because {one['why']}; "
              f"logs in {one.get('logs')}", file=sys.stderr)
    if not failed and not options.keep:
        shutil.rmtree(options.work, ignore_errors=True)
    if stopping.is_set():
        print("matrix: stopped", file=sys.stderr)
        return 1
    print(f"{len(results) - len(failed)} of {len(cells)} cells are as good as physics allows")
    return 1 if failed or len(results) < len(cells) else 0


if __name__ == "__main__":
    sys.exit(main())
