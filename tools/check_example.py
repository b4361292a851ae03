#!/usr/bin/env python3
"""Runs an example and compares what it prints with the expected output in its head comment.

    check_example.py SOURCE.c PROGRAM [LAUNCHER WORD ...]

With a launcher, such as mpirun -np 2, it starts the program.

The expected lines follow the line "Prints:" of that comment and are indented by three blanks.
"..." matches any text within a line; alone on a line it matches any number of lines.

A line "Tested with: NAME=value argument ..." has the environment variables and arguments of the
test.  In them {source} is the folder of the example, and {shared} the folder of the real data:
WEBER_SHARED/data, else ../shared/data beside the project.  If a path in {shared} does not exist the
example is skipped.  The program runs in an empty folder.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def read_head(source):
    """(expected lines, words of "Tested with:") of the first comment"""
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
    """A regular expression that matches the expected output."""
    parts = []
    for line in expected:
        if line == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            texts = [re.escape(text) for text in line.split("...")]
            parts.append(r"[^\n]*?".join(texts) + r"[ ]*\n")
    return re.compile("".join(parts) + r"\Z")


def first_difference(expected, printed):
    """The number of expected lines at the beginning that the output agrees with."""
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
        path = word.replace("{shared}", str(shared))
        if "{shared}" in word and not Path(path).exists():
            print(f"SKIP: {path} does not exist (WEBER_SHARED names the folder of data/)")
            return 77
        word = word.replace("{source}", str(source.parent)).replace("{shared}", str(shared))
        name, equals, value = word.partition("=")
        if equals and name.isupper():
            environment[name] = value
        else:
            arguments.append(word)
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([*sys.argv[3:], str(program), *arguments], cwd=folder, env=environment,
                             capture_output=True, check=False)
    printed = run.stdout.decode(errors="replace")
    printed = "".join(line.rstrip() + "\n" for line in printed.splitlines())
    good = run.returncode == 0 and pattern(expected).match(printed)
    if not good:
        n = first_difference(expected, printed)
        print(printed + run.stderr.decode(errors="replace"))
        print(f"exit status {run.returncode}; the output agrees with the first {n} of "
              f"{len(expected)} expected lines")
        if n < len(expected):
            print(f"the next expected line: {expected[n]}")
    print(f"[{'       OK' if good else '  FAILED '} ] {source.stem}")
    return 0 if good else 1


sys.exit(main())
