#!/usr/bin/env python3
"""The floors of src/, and a check of which file calls which, in the object files of a build.

    floors.py BUILD [--of FOLDER]        BUILD: a build folder of x86-64 Linux

A file calls functions of its own floor and of the floors below it (FLOORS), and no cycle of calls
inside a floor has more than MOST files.  A call by a table of functions (wb__class, wb__backend,
wb__evaluation) is none.  --of prints the cycles of the folder, with each call.  Ends with 1 if
there are findings, and with 77 if the objects are those of another processor, or of a compiler that
leaves calls to the linker."""
import argparse
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# The lowest floor is first.  A file may include files of its own floor and of the floors before it.
# Two floors of one row may not include each other.
FLOORS = [
    ["base"], ["ops"], ["backend"], ["engine"], ["tree"], ["device"], ["nn", "optim"], ["io"],
    ["data"], ["dist"], ["train"], ["cli"],
]
LEVEL = {name: level for level, row in enumerate(FLOORS) for name in row}

MOST = 12
CALL = "R_X86_64_PLT32"


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def calls_of(build):
    """{file: {file: functions that it calls there}}, without endings, relative to src/."""
    root = build / "CMakeFiles/weber_objects.dir/src"
    objects = [str(p.relative_to(root)) for p in sorted(root.rglob("*.c.o"))]
    if not objects:
        sys.exit(f"{root} has no object files: build the target weber there first")
    owner = {}
    for line in output("nm", "-A", "--defined-only", *(str(root / p) for p in objects)):
        path, _, symbol = line.rpartition(":")
        kind, name = symbol.split()[-2:]
        if kind.isupper():
            owner[name] = str(Path(path).relative_to(root))[:-len(".c.o")]
    calls, here, is_code = defaultdict(lambda: defaultdict(set)), None, False
    for line in output("readelf", "-rW", *(str(root / p) for p in objects)):
        if line.startswith("File: "):
            here = str(Path(line[len("File: "):]).relative_to(root))[:-len(".c.o")]
        elif line.startswith("Relocation section"):
            is_code = "'.rela.text" in line
        elif is_code and CALL in line:
            name = line.split()[4]
            if owner.get(name, here) != here:
                calls[here][owner[name]].add(name)
    return calls


def cycles(calls, floor):
    """The cycles of files of a floor: sets of files which all reach each other (Tarjan)."""
    number, lowest, stack, found = {}, {}, [], []

    def visit(a):
        number[a] = lowest[a] = len(number)
        stack.append(a)
        for b in calls.get(a, ()):
            if not b.startswith(floor + "/"):
                continue
            if b not in number:
                visit(b)
            if b in stack:
                lowest[a] = min(lowest[a], lowest[b])
        if lowest[a] == number[a]:
            at = stack.index(a)
            found.append(set(stack[at:]))
            del stack[at:]

    for a in sorted(calls):
        if a.startswith(floor + "/") and a not in number:
            visit(a)
    return found


def findings(calls):
    for a in sorted(calls):
        for b in sorted(calls[a]):
            floors = a.split("/")[0], b.split("/")[0]
            if floors[0] != floors[1] and LEVEL[floors[0]] <= LEVEL[floors[1]]:
                names = ", ".join(sorted(calls[a][b]))
                yield f"src/{a}.c calls {names} of src/{b}.c, a floor above"
    for floor in LEVEL:
        for cycle in cycles(calls, floor):
            if len(cycle) > MOST:
                yield (f"{len(cycle)} files of src/{floor} call each other in a cycle, and {MOST} "
                       f"may: {', '.join(sorted(cycle))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--of")
    given = parser.parse_args()
    calls = calls_of(given.build.resolve())
    if not calls:
        print(f"no {CALL} in the objects: they have other relocations, or are made for the linker")
        sys.exit(77)
    for cycle in cycles(calls, given.of) if given.of else ():
        for a in sorted(cycle):
            for b in sorted(cycle & set(calls[a])):
                print(f"{a} -> {b}: {', '.join(sorted(calls[a][b]))}")
    found = list(findings(calls))
    print("\n".join(found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
