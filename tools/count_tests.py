#!/usr/bin/env python3
"""Counts the tests of ctest: each cmocka test, and one test for each other program.

    count_tests.py BUILD_FOLDER...

Reads BUILD_FOLDER/results.xml (ctest --output-junit).  Prints the tests that failed, with the last
lines of their output, and again at the end with the line that gives the reason; and the tests
that were skipped, with the reason: a test prints "SKIP: reason" before it skips.  A program that
LeakSanitizer did not check, since LeakSanitizer itself crashed, counts as in
BUILD_FOLDER/again.xml, its second run.  A program that crashed, timed out or failed without a
failed test counts as one failure.  The last line is "N passed, N failed[, N skipped]".  The exit
status is 1 if a test failed, a build has no results, or no test ran.
"""
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

RESULT = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] (\S.*)$", re.M)
TALLY = re.compile(r"^\[\s+(PASSED|FAILED|SKIPPED)\s+\] (\d+ test\(s\)|.*, listed below)")
LSAN = "LeakSanitizer has encountered a fatal error"
TAIL = 60


def read_program(case):
    """(passed names, failed names, skipped (name, reason), output) of one entry of ctest"""
    name, status = case.get("name"), case.get("status")
    output = case.findtext("system-out") or ""
    passed, failed, skipped = [], [], []
    reason, last_run = "", ""
    in_summary = False                      # cmocka lists failures again in its summary
    for line in output.splitlines():
        if line.startswith("[==========]"):
            in_summary = "run" in line
        if TALLY.match(line):
            in_summary = True
        skip = re.match(r"(?:.*\s)?SKIP: (.*)", line)
        if skip:
            reason = skip.group(1).strip()
        begun = re.match(r"\[ RUN\s+\] (\S+)", line)
        if begun:
            in_summary, last_run, reason = False, begun.group(1), ""
        hit = RESULT.match(line)
        if not hit or in_summary:
            continue
        test = f"{name}.{hit.group(2)}"
        if hit.group(1) == "OK":
            passed.append(test)
        elif hit.group(1) == "FAILED":
            failed.append(test)
        else:
            skipped.append((test, reason or "no reason given"))
        last_run = ""
    if not passed and not failed and not skipped:
        if status == "run":
            passed.append(name)
        elif status != "fail" and reason:
            skipped.append((name, reason))
        elif status != "fail":
            failed.append(f"{name} (not run)")
    if status == "fail" and not failed:
        failed.append(f"{name} (crashed{' in ' + last_run if last_run else ''}: {failure(case)})")
    return passed, failed, skipped, output


def cases(folder):
    """The entries of ctest."""
    def entries(name):
        file = folder / name
        return ET.parse(file).getroot().iter("testcase") if file.exists() else []
    again = {case.get("name"): case for case in entries("again.xml")}
    for case in entries("results.xml"):
        name = case.get("name")
        if LSAN in (case.findtext("system-out") or "") and name in again:
            print(f"REPEATED {folder}: {name}: LeakSanitizer crashed at its end")
            case = again[name]
        yield case


WHY = re.compile(r"FAILED: |ERROR: |Sanitizer|[Ff]atal|Timeout|^\[\s+ERROR\s+\]"
                 r"|^.*\.(py|[ch]):\d+: ")


def why(output):
    """The line of a failed program's output that gives the reason; the last line if none does."""
    lines = [line for line in output.splitlines() if line.strip()]
    said = [line for line in lines if WHY.search(line) and not RESULT.match(line)]
    return (said or lines or ["no output"])[0 if said else -1].strip()[:300]


def failure(case):
    node = case.find("failure")
    return (node.get("message") or "failed") if node is not None else "failed"


def main():
    total = [0, 0, 0]
    reasons, failures = {}, []
    for folder in sys.argv[1:]:
        results = Path(folder) / "results.xml"
        counts = [0, 0, 0]
        if results.exists():
            for case in cases(Path(folder)):
                passed, failed, skipped, output = read_program(case)
                counts = [
                    counts[0] + len(passed), counts[1] + len(failed), counts[2] + len(skipped)]
                for test in failed:
                    print(f"FAILED  {folder}: {test}")
                if failed:
                    lines = output.splitlines()
                    print("\n".join("    " + line for line in lines[-TAIL:]))
                    failures += [f"{folder}: {test}: {why(output)}" for test in failed]
                for test, reason in skipped:
                    reasons.setdefault(reason, []).append(f"{folder}: {test}")
        else:
            counts[1] = 1
            print(f"FAILED  {folder}: the build failed, or ctest did not run")
        print(f"{folder:12s} {counts[0]:6d} passed {counts[1]:4d} failed {counts[2]:4d} skipped")
        total = [a + b for a, b in zip(total, counts)]
    for reason, tests in reasons.items():
        print(f"SKIPPED {len(tests)}: {reason}")
        for test in tests:
            print(f"    {test}")
    for line in failures:
        print(f"FAILED  {line}")
    skipped = f", {total[2]} skipped" if total[2] else ""
    print(f"{total[0]} passed, {total[1]} failed{skipped}")
    return 1 if total[1] or total[0] == 0 else 0


sys.exit(main())
