#!/usr/bin/env python3
"""Tests that a checkpoint of a divided state is continued by other numbers of ranks, with a divided
state or a whole one; and that all ranks fail, and no file appears, if rank 0 cannot write it or
saves it alone.

    check_resume.py MPIRUN PROGRAM
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MPIRUN, PROGRAM = sys.argv[1:3]
CLOSE = 2e-5        # relative; sums over other numbers of ranks have other roundings


def expect(condition, what, output=""):
    if not condition:
        sys.exit(f"FAILED: {what}\n{output}")
    print(f"ok: {what}")


def run(ranks, *arguments):
    return subprocess.run([MPIRUN, "-np", str(ranks), PROGRAM, *map(str, arguments)],
                          capture_output=True, text=True, timeout=120, check=False)


def train(ranks, path, epochs, how):
    done = run(ranks, "train", path, epochs, how)
    expect(done.returncode == 0, f"{ranks} ranks train to epoch {epochs}, {how}",
           done.stdout + done.stderr)
    return [float(word) for word in done.stdout.split()]


def alike(a, b):
    return len(a) == len(b) == 9 and all(abs(x - y) <= CLOSE * max(abs(x), 1)
                                         for x, y in zip(a, b))


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    wanted = train(1, folder / "alone", 6, "whole")
    expect(alike(train(4, folder / "four", 3, "shard"), train(1, folder / "one", 3, "whole")),
           "4 ranks with a divided state train like one process")
    sizes = {(folder / file).stat().st_size for file in ("four", "one")}
    expect(len(sizes) == 1, "the files of a divided and a whole state have the same size", sizes)
    for ranks, how in ((4, "shard"), (2, "shard"), (3, "shard"), (3, "whole"), (1, "shard"),
                       (1, "whole")):
        path = folder / f"{ranks}-{how}"
        shutil.copy(folder / "four", path)
        got = train(ranks, path, 6, how)
        expect(alike(wanted, got), "  and end where one process ends", f"{got}, not {wanted}")
    shutil.copy(folder / "one", folder / "from-one")
    expect(alike(wanted, train(4, folder / "from-one", 6, "shard")),
           "4 ranks with a divided state continue what one process has begun")

    # At /dev/full writing fails after the first moments have travelled.
    for path, words in ((folder / "none" / "x", "No such file"), ("/dev/full", "No space left")):
        done = run(3, "save", path)
        output = done.stdout + done.stderr
        lines = sorted(done.stdout.splitlines())
        expect(done.returncode == 0 and len(lines) == 3, f"{path}: all ranks fail", output)
        expect(words in lines[0] and all("failed on rank 0" in line for line in lines[1:]),
               "  rank 0 has the reason, and the others name it", output)

    begun = time.monotonic()
    done = run(3, "alone", folder / "lone")
    output = done.stdout + done.stderr
    expect(done.returncode != 0 and "has waited 1 s" in output and time.monotonic() - begun < 15,
           "rank 0 saves alone: it waits no longer than the time-out", output)
    expect(not os.path.exists(folder / "lone"), "  and no file appears")
