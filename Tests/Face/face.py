#!/usr/bin/env python3
"""What users and scripts see of the program, as text to compare: a refactoring of the face changes none of it.

    face.py MAYFLY DIRECTORY            writes schema and help
    face.py --answers MAYFLY DIRECTORY CMD...   also runs CMD, which finds the program in $MAYFLY, and writes the shape
                                        of each answer: exit code, JSON fields and types, or the lines of text without
                                        ids, times and numbers
    face.py --compare BEFORE AFTER      prints what differs; exits with 1 for a difference
"""
import collections
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile

# Runs the program and keeps its words, exit code and output; a node runs in place.
WRAPPER = """#!/bin/sh
case " $* " in *" run "*|*" chat "*|*" --generate-completion-script "*) exec {program} "$@" ;; esac
out=$(mktemp {log}/XXXXXXXX)
{program} "$@" >$out.1 2>$out.2; code=$?
{{ printf '%s\\n' "$code $*"; cat $out.1; echo; echo "$(cat $out.2)" | sed 's/^/2> /'; }} >$out
cat $out.1; cat $out.2 >&2; rm -f $out.1 $out.2; exit $code
"""
VARIES = [
    (r"/\S*/", "/"), (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"), (r"mayfly:\S+", "LINK"),
    (r"[0-9a-f-]{8,}", "ID"), (r"\d+-[a-z]+-[a-z]+", "CODE"), (r"\d+(\.\d+)?", "N"), (r" {2,}", "  "),
]


def shape(value):
    if isinstance(value, dict):
        return {key: shape(part) for key, part in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def lines(text):
    for line in text.splitlines():
        try:
            yield json.dumps(shape(json.loads(line)))
        except ValueError:
            for pattern, word in VARIES:
                line = re.sub(pattern, word, line)
            yield line.rstrip()


def answers(program, command):
    shapes = collections.defaultdict(set)
    with tempfile.TemporaryDirectory() as log:
        wrapper = log + "/mayfly"
        with open(wrapper, "w") as file:
            file.write(WRAPPER.format(program=program, log=log))
        os.chmod(wrapper, 0o755)
        subprocess.run(command, env=dict(os.environ, MAYFLY=wrapper), check=False)
        for name in os.listdir(log):
            text = open(f"{log}/{name}", errors="replace").read()
            if name == "mayfly" or not text[:1].isdigit():
                continue
            head, _, rest = text.partition("\n")
            code, *words = head.split(" ")
            verb = " ".join(word for word in words[:2] if re.fullmatch("[a-z]+", word))
            shapes[f"{verb} {code}"].update(line for line in lines(rest) if line.strip("> 2"))
    return "".join(f"{verb}: {line}\n" for verb in sorted(shapes) for line in sorted(shapes[verb]))


def compare(before, after):
    differs = False
    for name in sorted(os.listdir(before)):
        texts = [open(f"{place}/{name}").read().splitlines() for place in (before, after)]
        for line in difflib.unified_diff(*texts, f"{before}/{name}", f"{after}/{name}", lineterm="", n=1):
            differs = True
            print(line)
    return differs


if sys.argv[1] == "--compare":
    sys.exit(compare(*sys.argv[2:4]))
with_answers = sys.argv[1] == "--answers"
program, directory, *command = sys.argv[1 + with_answers:]
program = os.path.abspath(program)
os.makedirs(directory, exist_ok=True)
for name, words in [("schema", ["schema"]), ("help", ["--experimental-dump-help"])]:
    printed = subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout
    with open(f"{directory}/{name}", "w") as file:
        value = json.loads(printed)
        value.get("methods", []).sort(key=lambda method: method["name"])
        file.write(json.dumps(value, indent=1, sort_keys=True) + "\n")
if with_answers:
    with open(f"{directory}/answers", "w") as file:
        file.write(answers(program, command))
