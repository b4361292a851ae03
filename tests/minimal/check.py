#!/usr/bin/env python3
"""Tests that minimal/cmocka.c ends tests in the same way as cmocka.

    check.py OUTCOMES... [-- PROGRAM...]

Each OUTCOMES is outcomes.c linked with cmocka or with minimal/cmocka.c: the first word of the name
of each test is its required outcome, and the exit status is the number of tests that failed.  Each
PROGRAM is an ordinary test program linked with minimal/cmocka.c, and passes.
"""
import re
import subprocess
import sys

OUTCOMES = {"OK": "passes", "FAILED": "fails", "ERROR": "fails", "SKIPPED": "skipped"}


def run(program):
    return subprocess.run([program], capture_output=True, text=True, timeout=250, check=False)


def endings(program):
    """(names of the tests in order, {name: set of outcomes}, exit status) of a program.

    The summary below the number of a group's tests, which repeats the failures, is not read.
    """
    done = run(program)
    lines = (done.stdout + "\n" + done.stderr).splitlines()
    begun = [line.split()[-1] for line in lines if re.match(r"\[ RUN +\] ", line)]
    ended = {}
    groups = re.split(r"Running \d+ test\(s\)", done.stdout)
    output = "".join(group.split(" test(s) run.")[0] for group in groups)
    for line in output.splitlines() + done.stderr.splitlines():
        hit = re.match(r"\[ +(OK|FAILED|ERROR|SKIPPED) +\] (\w+)$", line)
        if hit:
            ended.setdefault(hit.group(2), set()).add(OUTCOMES[hit.group(1)])
    return begun, ended, done.returncode


programs = sys.argv[1:]
split = programs.index("--") if "--" in programs else len(programs)
for program in programs[:split]:
    begun, ended, status = endings(program)
    for test in begun:
        if ended.get(test) != {test.split("_")[0]}:
            sys.exit(f"FAILED: {program}: {test} ended as {ended.get(test)}")
    fails = sum(test.startswith("fails") for test in begun)
    if len(begun) != 30 or status != fails:
        sys.exit(f"FAILED: {program}: {len(begun)} tests, exit status {status}; {fails} fail")
    print(f"ok: {program}: {len(begun)} tests, {fails} fail as required")
for program in programs[split + 1:]:
    done = run(program)
    if done.returncode or not re.search(r"^\[  PASSED  \] [1-9]\d* test", done.stdout, re.M):
        output = done.stdout[-2000:] + done.stderr[-2000:]
        sys.exit(f"FAILED: {program}: exit status {done.returncode}\n{output}")
    print(f"ok: {program} passes")
