#!/usr/bin/env python3
"""How much of the code the unit tests run through, room by room.

    coverage.py REPORT

REPORT is what `swift test --enable-code-coverage` has written. A region is a piece of code that is run as a whole: the body
of a branch, a closure, what follows a throw. The scripts that start real nodes are not counted. Fails if one of the rooms
whose mistakes cannot be made good (the store, the cryptography, the negotiation, the end) has less than 95 % of its lines.
"""
import collections
import json
import sys

AIM = 95
#: The parts whose mistakes cannot be made good.
PROMISED = ("Store", "Cryptography", "Messaging/Lifetime", "Messaging/Explode")


def room(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "Messaging" and len(parts) > 2 else parts[0]


def main(report):
    with open(report) as file:
        files = json.load(file)["data"][0]["files"]
    rooms = collections.defaultdict(lambda: [0, 0, 0, 0])
    for each in files:
        before, found, path = each["filename"].rpartition("/Sources/")
        if not found or "/.build" in before:
            continue
        lines, regions = each["summary"]["lines"], each["summary"]["regions"]
        counts = (lines["covered"], lines["count"], regions["covered"], regions["count"])
        rooms[room(path)] = [have + more for have, more in zip(rooms[room(path)], counts)]
    missing = set(PROMISED) - set(rooms)
    if missing:
        sys.exit(f"coverage: nothing is known of {', '.join(sorted(missing))}")
    print(f"{'':26} {'lines':>8} {'%':>6} {'regions':>8} {'%':>6}")
    low = []
    for name, (lines, allLines, regions, allRegions) in sorted(rooms.items()):
        share = 100 * lines / allLines
        print(f"{name:26} {allLines:8} {share:6.1f} {allRegions:8} {100 * regions / allRegions:6.1f}")
        if name in PROMISED and share < AIM:
            low.append(f"{name} {share:.1f} %")
    if low:
        sys.exit(f"coverage: less than {AIM} % of the lines of {', '.join(low)}")


main(sys.argv[1])
