#!/usr/bin/env python3
"""Runs an example and compares what it prints with the expected output in its head comment.

    check_example.py SOURCE.c PROGRAM

The expected lines stand below "Prints:", three blanks in.  "..." stands for any text within a line, and alone on
a line for any number of lines.  A line "Tested with: NAME=value argument ..." gives the small settings of a
test; {source} in it is the folder of the example, {shared} that of the real data: WEBER_SHARED/data, else
../shared/data beside the project; where a path below it is missing, the example is skipped.  The program runs in an
empty folder.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def read_head(source):
    """(expected lines, settings) from the first comment"""
    head = source.read_text().split("*/", 1)[0].split("\n")
    lines = [re.sub(r"^\s*(/\*| \*) ?", "", line).rstrip() for line in head]
    settings, expected, inside = "", [], False
    for line in lines:
        if line.startswith("Tested with:"):
            settings = line.split(":", 1)[1]
            inside = False
        elif line.startswith("Prints"):
            inside = True
        elif inside and line.startswith("  "):
            expected.append(line[2:])
        elif inside and not line and expected:
            expected.append("")
        elif inside:
            inside = False
    while expected and not expected[-1]:
        expected.pop()
    return expected, settings.split()


def pattern(expected):
    parts = []
    for line in expected:
        if line == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*?".join(re.escape(piece) for piece in line.split("...")) + r"[ ]*\n")
    return re.compile("".join(parts) + r"\Z")


def first_difference(expected, printed):
    """The number of the expected line up to which the output agrees."""
    for n in range(len(expected), 0, -1):
        if re.compile(pattern(expected[:n]).pattern[:-2]).match(printed):
            return n
    return 0


def main():
    source, program = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    expected, settings = read_head(source)
    environment = dict(os.environ, LC_ALL="C.UTF-8")
    arguments = []
    shared = Path(environment.get("WEBER_SHARED", source.parents[2] / "shared")) / "data"
    for word in settings:
        if "{shared}" in word and not Path(word.replace("{shared}", str(shared))).exists():
            print(f"SKIP: no {word.replace('{shared}', str(shared))} (set WEBER_SHARED to the folder that holds data/)")
            return 77
        word = word.replace("{source}", str(source.parent)).replace("{shared}", str(shared))
        name, equals, value = word.partition("=")
        if equals and name.isupper():
            environment[name] = value
        else:
            arguments.append(word)
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([str(program), *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, check=False)
    printed = run.stdout.decode(errors="replace")
    printed = "".join(line.rstrip() + "\n" for line in printed.splitlines())
    good = run.returncode == 0 and pattern(expected).match(printed)
    if not good:
        n = first_difference(expected, printed)
        print(printed + run.stderr.decode(errors="replace"))
        print(f"exit status {run.returncode}; the output agrees with the first {n} of {len(expected)} expected lines")
        if n < len(expected):
            print(f"then was expected: {expected[n]}")
    print(f"[{'       OK' if good else '  FAILED '} ] {source.stem}")
    return 0 if good else 1


sys.exit(main())
