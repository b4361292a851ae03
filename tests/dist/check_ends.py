#!/usr/bin/env python3
"""Tests that all ranks end soon after one of them has ended, and what they print; and that a
process of `weber launch`, which MPI does not know, is an error.

    check_ends.py MPIRUN PROGRAM
"""
import os
import subprocess
import sys
import time

LIMIT = 10      # seconds


def expect(condition, what, output):
    if not condition:
        sys.exit(f"FAILED: {what}\n{output}")
    print(f"ok: {what}")


for how, words in (("kill", "rank 1 "), ("error", "rank 1 of 3 ends with an error"),
                   ("success", "has waited 3 s"), ("sleep", "has waited 3 s")):
    begun = time.monotonic()
    done = subprocess.run([sys.argv[1], "-np", "3", sys.argv[2], how], capture_output=True,
                          text=True, timeout=60, check=False)
    took = time.monotonic() - begun
    output = done.stdout + done.stderr
    expect(took < LIMIT, f"{how}: all ranks end within {LIMIT} s: {took:.1f} s", output)
    expect(done.returncode != 0, f"{how}: the exit status is not 0", output)
    if how != "kill" or "openmpi" in sys.argv[1]:       # MPICH does not name the rank
        expect(words in output, f"{how}: the message has \"{words}\"", output)

for size, status in (("1", 0), ("3", 2)):
    done = subprocess.run([sys.argv[2], "success"], capture_output=True, text=True, timeout=60,
                          check=False, env={**os.environ, "WEBER_SIZE": size})
    output = done.stdout + done.stderr
    expect(done.returncode == status, f"alone, WEBER_SIZE={size}: the exit status", output)
    if status:
        expect("WEBER_SIZE" in output and "mpirun -np 3" in output, "the message has the cure",
               output)
