#!/usr/bin/env python3
"""The links of the documentation: links.py [ROOT]

In README.md and in the pages of each catalogue every relative link names a file of the repository, and a heading in it if
the link has a fragment; every <doc:Page#Heading> names a page and a heading of the same catalogue; and the first page of a
catalogue, or a page below it, lists every other page under Topics, so that a reader finds it. `make docs` has docc check
the symbols, too. Text lines of manual pages have at most 80 bytes, as mandoc asks for in `make package`.
"""

import glob
import os
import re
import sys
import unicodedata

ROOT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../.."))
failures = []


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def prose(text):
    """Without code: a link in it is an example. Lines stay, for their numbers."""
    blank = lambda found: re.sub(r"[^\n]", " ", found[0])
    text = re.sub(r"^```.*?^```", blank, text, flags=re.M | re.S)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", blank, text)


def fragments(text):
    """The headings, as docc and forges write them in a link."""
    headings = re.findall(r"^#{1,6} (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {fragment(heading) for heading in headings}


def fragment(heading):
    kept = (c for c in heading.replace("`", "") if c == "-" or c.isspace() or not unicodedata.category(c).startswith("P"))
    return re.sub(r"\s+", "-", "".join(kept).strip()).lower()


def fail(path, text, at, words):
    failures.append(f"{os.path.relpath(path, ROOT)}:{text.count(chr(10), 0, at) + 1}: {words}")


def check(path, pages):
    text = prose(read(path))
    for found in re.finditer(r"\]\(([^)\s]+)\)", text):
        link = found[1]
        if re.match(r"[a-z]+:", link):
            continue
        target, _, place = link.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(file):
            fail(path, text, found.start(), f"no file {target}")
        elif place and fragment(place) not in fragments(read(file)):
            fail(path, text, found.start(), f"no heading {place} in {target or 'this page'}")
    for found in re.finditer(r"<doc:([^>#]+)(?:#([^>]+))?>", text):
        name, place = found[1], found[2]
        if name not in pages:
            fail(path, text, found.start(), f"no page {name} in this catalogue")
        elif place and fragment(place) not in fragments(read(pages[name])):
            fail(path, text, found.start(), f"no heading {place} in {name}")


def listed(pages):
    """The pages that stand under Topics somewhere."""
    names = set()
    for path in pages.values():
        _, _, topics = prose(read(path)).partition("\n## Topics")
        names |= set(re.findall(r"^- <doc:([^>#]+)>", topics, re.M))
    return names


def main():
    check(os.path.join(ROOT, "README.md"), {})
    catalogues = sorted(glob.glob(os.path.join(ROOT, "Sources/*/*.docc")))
    count = 1
    for catalogue in catalogues:
        pages = {os.path.basename(path)[:-3]: path for path in glob.glob(os.path.join(catalogue, "*.md"))}
        for path in sorted(pages.values()):
            check(path, pages)
        root = os.path.basename(catalogue)[: -len(".docc")]
        for name in sorted(pages.keys() - listed(pages) - {root}):
            failures.append(f"{os.path.relpath(pages[name], ROOT)}: no page lists it under Topics")
        count += len(pages)
    for path in sorted(glob.glob(os.path.join(ROOT, "Sources/Manual/*.[57]"))):
        for number, line in enumerate(read(path).split("\n"), 1):
            if len(line.encode()) > 80 and not line.startswith("."):
                failures.append(f"{os.path.relpath(path, ROOT)}:{number}: more than 80 bytes")
    if failures or not catalogues:
        sys.exit("\n".join(failures) or "no catalogues")
    print(f"links: {count} pages")


main()
