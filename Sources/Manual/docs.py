#!/usr/bin/env python3
"""The documentation as a site of static files: the pages of the catalogues, and the symbols of their modules.

    docs.py BUILD RESULT [BASE]

BUILD is the debug directory of a build of the modules. BASE is the path below which a web server serves RESULT. Needs the
toolchain's docc and swift-symbolgraph-extract, and no network. Fails at a link that leads nowhere.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODULES = ["Messaging", "Store"]
# Parameters with clear names have no description. The pages Lifetime.md and Delivery.md replace those of the types.
ACCEPTED = (r"Parameter '.*' is missing documentation|"
            r"Article '(Lifetime|Delivery).md' \((Lifetime|Delivery)\) would override (enumeration|structure)")


def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{done.stdout}")
    return done.stdout


def symbols(module, build, triple, directory):
    """The graph of the public and package symbols of a module that is built."""
    os.makedirs(directory)
    maps = [name for name in os.listdir(SOURCES) if os.path.exists(f"{SOURCES}/{name}/module.modulemap")]
    run("swift", "symbolgraph-extract", "-module-name", module, "-target", triple, "-I", f"{build}/Modules",
        "-minimum-access-level", "package", "-output-dir", directory,
        *(word for name in maps for word in ("-Xcc", f"-fmodule-map-file={SOURCES}/{name}/module.modulemap")))


def problems(path):
    with open(path, encoding="utf-8") as file:
        found = json.load(file)["diagnostics"]
    for each in found:
        if each["severity"] in ("warning", "error") and not re.match(ACCEPTED, each["summary"]):
            line = each.get("range", {}).get("start", {}).get("line", 1)
            yield f"{each.get('source', 'docc').removeprefix('file://')}:{line}: {each['summary']}"


def main():
    build, result = (os.path.abspath(path) for path in sys.argv[1:3])
    base = sys.argv[3] if len(sys.argv) > 3 else "/"
    triple = json.loads(run("swift", "-print-target-info"))["target"]["triple"]
    failures = []
    with tempfile.TemporaryDirectory() as work:
        for module in MODULES:
            symbols(module, build, triple, f"{work}/symbols/{module}")
            run("docc", "convert", f"{SOURCES}/{module}/{module}.docc", "--output-path", f"{work}/{module}.doccarchive",
                "--additional-symbol-graph-dir", f"{work}/symbols/{module}", "--diagnostics-file", f"{work}/{module}.json",
                "--fallback-bundle-identifier", f"mayfly.{module}", "--fallback-default-module-kind", "Specification",
                "--hosting-base-path", base)
            failures += problems(f"{work}/{module}.json")
        if failures:
            sys.exit("\n".join(failures))
        run("docc", "merge", *(f"{work}/{module}.doccarchive" for module in MODULES), "--output-path", f"{work}/site",
            "--synthesized-landing-page-name", "Mayfly", "--synthesized-landing-page-kind", "Specification")
        with open(f"{work}/site/index.html", "w", encoding="utf-8") as file:
            file.write('<!doctype html><title>Mayfly</title><meta http-equiv="refresh" content="0; url=documentation/">\n'
                       '<a href="documentation/">Documentation</a>\n')
        shutil.rmtree(result, ignore_errors=True)
        shutil.copytree(f"{work}/site", result)
    print(f"{result}, to be served below {base}")


main()
