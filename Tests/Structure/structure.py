#!/usr/bin/env python3
"""Structure and size of the sources, which only get better: fails when they get worse.

No folder has more than 20 files, no type is in more than 5 files of a folder, and no more than 5 files of a target refer
to each other in a circle; an extension's reference to its own type does not count. REACHED has the sizes that were reached: when yours is smaller, lower the number.
Reads text, not the compiler's index: a name counts for every type of its target with that name.
"""
import collections
import os
import re
import sys

FILES_OF_FOLDER, FILES_OF_TYPE, FILES_OF_CYCLE = 20, 5, 5
# Folder, ending, and how many lines, files or kilobytes there are at most. Generated code does not count.
REACHED = [
    ("Sources", ".swift", "lines", 75_560), ("Sources", ".swift", "files", 555), ("Tests", ".swift", "lines", 74_700),
    ("Sources", ".md", "kilobytes", 337), ("Sources", ".md", "files", 16),
]
# The shell owns all parts of a node, and every part asks it for the others.
HUBS = {"Shell", "Part"}
NOT_CODE = re.compile(r'"""[\s\S]*?"""|//[^\n]*|"(?:\\.|[^"\\\n])*"|^import [^\n]*', re.M)
DECLARED = re.compile(r"^(?:@\S+ )*(?:[a-z]+(?:\([a-z]+\))? )*(struct|enum|class|actor|protocol|typealias|extension) ([A-Z]\w*)",
                      re.M)
NESTED = re.compile(r"^ +(?:[a-z]+(?:\([a-z]+\))? )*(?:struct|enum|class|typealias) ([A-Z]\w*)", re.M)


def cycles(references):
    """Strongly connected parts with more than one member: Tarjan, without recursion."""
    number, lowest, stack, waiting, parts = {}, {}, [], set(), []
    for start in references:
        work = [(start, iter(references[start]))] if start not in number else []
        while work:
            node, others = work[-1]
            if node not in number:
                number[node] = lowest[node] = len(number)
                stack.append(node)
                waiting.add(node)
            for other in others:
                if other not in number:
                    work.append((other, iter(references[other])))
                    break
                if other in waiting:
                    lowest[node] = min(lowest[node], number[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    part = stack[stack.index(node):]
                    del stack[stack.index(node):]
                    waiting.difference_update(part)
                    if len(part) > 1:
                        parts.append(part)
    return parts


REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def sizes():
    """What is larger than its number in REACHED."""
    for root, ending, unit, most in REACHED:
        texts = []
        for folder, _, names in os.walk(os.path.join(REPOSITORY, root)):
            for name in names:
                if name.endswith(ending) and not name.endswith(".pb.swift"):
                    with open(os.path.join(folder, name), "rb") as file:
                        texts.append(file.read())
        size = {"files": len(texts), "lines": sum(text.count(b"\n") for text in texts),
                "kilobytes": sum(map(len, texts)) // 1000}[unit]
        if size > most:
            yield f"{root}: {size} {unit} of *{ending}: more than the {most} that were reached"


def main(root):
    texts = {}
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".swift") and not name.endswith(".pb.swift"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    texts[path] = NOT_CODE.sub(" ", file.read())
    target = {path: os.path.relpath(path, root).split(os.sep)[0] for path in texts}
    wrong = []
    for folder, count in collections.Counter(map(os.path.dirname, texts)).items():
        if count > FILES_OF_FOLDER:
            wrong.append(f"{folder} has {count} files: more than {FILES_OF_FOLDER}")
    homes, spread = collections.defaultdict(set), collections.defaultdict(set)
    extended = collections.defaultdict(set)
    for path, text in texts.items():
        for kind, name in DECLARED.findall(text):
            spread[target[path], os.path.dirname(path), name].add(path)
            if kind != "extension":
                homes[target[path], name].add(path)
            else:
                extended[path].add(name)
    for (where, folder, name), paths in spread.items():
        # A type of another target, or of a library, belongs to nobody here.
        if (where, name) in homes and len(paths) > FILES_OF_TYPE:
            wrong.append(f"{where}.{name} stands in {len(paths)} files: more than {FILES_OF_TYPE}")
    references = {
        path: {home for word in set(re.findall(r"\b[A-Z]\w+", text)) - set(NESTED.findall(text)) - extended[path] - HUBS
               for home in homes.get((target[path], word), ()) if home != path}
        for path, text in texts.items()
    }
    for part in cycles(references):
        if len(part) > FILES_OF_CYCLE:
            names = " ".join(sorted(os.path.basename(path) for path in part))
            wrong.append(f"{target[part[0]]}: {len(part)} files refer to each other in a circle: {names}")
    wrong.extend(sizes())
    for line in sorted(wrong):
        print(line)
    print(f"structure: {len(texts)} files, {len(wrong)} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "Sources"))
