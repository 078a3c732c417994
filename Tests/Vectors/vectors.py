#!/usr/bin/env python3
"""Writes the examples of the specification, one file for each page: a second implementation, from the pages alone.

A vector is a paragraph of such a file; its first line is `vector: NAME`. The tests compare the program with the files;
`--check` compares the files with what is computed here.
"""

import pathlib
import sys

import codes
import datagrams
import frames
import links
import mlkem
import primitives
import ristretto
import services
import store
import values

HERE = pathlib.Path(__file__).resolve().parent
FILES = {
    "SignedValues": values.blocks,
    "Frames": frames.blocks,
    "Links": links.blocks,
    "DatagramLinks": datagrams.blocks,
    "Relay": services.relay,
    "Mailbox": services.mailbox,
    "SpokenCodes": codes.blocks,
    "Store": store.blocks,
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
    mlkem.check()
    isWrong = False
    for name, make in FILES.items():
        file = HERE / f"{name}.txt"
        new = "\n".join("\n".join([f"vector: {title}", *lines(block), ""]) for title, block in make().items())
        if file.exists() and file.read_text() == new:
            continue
        if "--check" in sys.argv:
            print(f"{file.name} says otherwise", file=sys.stderr)
            isWrong = True
        else:
            file.write_text(new)
    sys.exit(isWrong)


if __name__ == "__main__":
    main()
