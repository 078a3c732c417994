#!/usr/bin/env python3
"""Writes the test vectors of the specification into its pages: a second implementation, from the pages alone.

A vector is a fenced block whose first line is `vector: NAME`; the rest of the block is replaced. The tests compare the
program with what the pages say; `--check` compares the pages with what is computed here.
"""

import pathlib
import re
import sys

import codes
import datagrams
import frames
import links
import primitives
import ristretto
import services
import store
import values

ROOT = pathlib.Path(__file__).resolve().parents[2]
MESSAGING = ROOT / "Sources/Messaging/Messaging.docc"
PAGES = {
    MESSAGING / "SignedValues.md": values.blocks,
    MESSAGING / "Frames.md": frames.blocks,
    MESSAGING / "Links.md": links.blocks,
    MESSAGING / "DatagramLinks.md": datagrams.blocks,
    MESSAGING / "Relay.md": services.relay,
    MESSAGING / "Mailbox.md": services.mailbox,
    MESSAGING / "SpokenCodes.md": codes.blocks,
    ROOT / "Sources/Store/Store.docc/Store.md": store.blocks,
}
WIDTH = 96


def lines(block):
    for name, value in block:
        text = value.hex() if isinstance(value, bytes) else str(value)
        if len(name) + len(text) + 2 <= WIDTH:
            yield f"{name}: {text}".rstrip()
            continue
        yield f"{name}:"
        step = WIDTH - 2
        yield from ("  " + text[start : start + step] for start in range(0, len(text), step))


def main():
    primitives.check()
    ristretto.check()
    isWrong = False
    for page, make in PAGES.items():
        blocks, used = make(), set()

        def fill(match):
            name = match[1]
            used.add(name)
            return "```text\nvector: " + name + "\n" + "\n".join(lines(blocks[name])) + "\n```"

        old = page.read_text()
        new = re.sub(r"```text\nvector: ([^\n]*)\n.*?```", fill, old, flags=re.DOTALL)
        for missing in sorted(set(blocks) - used):
            sys.exit(f"{page.name} has no vector named {missing!r}")
        if new != old and "--check" in sys.argv:
            print(f"{page.name} says otherwise", file=sys.stderr)
            isWrong = True
        elif new != old:
            page.write_text(new)
    sys.exit(isWrong)


if __name__ == "__main__":
    main()
