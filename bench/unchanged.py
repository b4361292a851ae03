#!/usr/bin/env python3
"""Compares what two builds of Weber compute, plan, write and take, for changes that must change
nothing.

  bench/unchanged.py OLD NEW [--only W1,W4b] [--skip speed,plans,...]

OLD and NEW are build folders with bench/weber_bench, the command and the tests.  Compared are

  bits     losses of STEPS steps and all parameters behind them: W1 to W7b, uncompiled and compiled,
           on one thread, for each instruction set of this CPU
  plans    the steps of the CPU's plans, with bytes and memory, of W1 to W7b, G1 and G2
  files    safetensors, BSON and NPZ files of the same models, byte for byte
  memory   the peak of the process, within a hundredth and half a megabyte
  start    the time until a first result, and the time of a step: medians of PAIRS pairs, in turn;
           these are printed, and are no difference

Prints each difference; ends with 1 if there is one."""
import argparse
import filecmp
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, PAIRS = 50, 7
WORKLOADS = "W1 W2 W3 W4a W4b W5 W6 W7a W7b".split()
LARGE = ("G1", "G2")
MODES = ("weber", "weber-compiled")


def run(build, *words, **variables):
    made = subprocess.run([build / words[0], *words[1:]], capture_output=True, text=True,
                          env={**os.environ, "WEBER_NUM_THREADS": "1", **variables}, check=False)
    if made.returncode:
        sys.exit(f"{' '.join(map(str, words))} in {build}: {made.stderr.strip()}")
    return made


def bench(build, workload, mode, *words, **variables):
    made = run(build, "bench/weber_bench", "--workload", workload, "--mode", mode, "--threads", "1",
               *words, **variables)
    return json.loads(made.stdout.splitlines()[-1]), made.stderr


def bits(build, workload, folder):
    del folder
    seen = {}
    for isa in ("portable", "avx2", "avx512"):
        for mode in MODES:
            got, _ = bench(build, workload, mode, "--losses", str(STEPS), WEBER_ISA=isa)
            seen[f"{isa} {mode}"] = [got["bits"], got["losses"][-1]]
    return seen


def plans(build, workload, folder):
    del folder
    words = ("--losses", "1") if workload in LARGE else ("--losses", "2")
    _, log = bench(build, workload, MODES[1], *words, WEBER_DEBUG="plan")
    return dict(enumerate(log.splitlines()))


def files(build, workload, folder):
    made = {}
    first = folder / "m.safetensors"
    run(build, "bench/weber_bench", "--workload", workload, "--threads", "1", "--save", first)
    for name in ("m.bson", "m.npz"):
        run(build, "weber", "convert", first, folder / name)
    for path in sorted(folder.iterdir()):
        made[path.name] = path
    return made


def memory(build, workload, folder):
    del folder
    return bench(build, workload, MODES[1], "--seconds", "0.2")[0]["peak_mb"]


def same(what, a, b):
    if what == "memory":
        return b <= 1.01 * a + 0.5
    return filecmp.cmp(a, b, shallow=False) if isinstance(a, Path) else a == b


def compare(what, work, old, new):
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        for i, build in enumerate((old, new)):
            mine = Path(folder) / str(i)
            mine.mkdir()
            sides.append(globals()[what](build, work, mine))
        if not isinstance(sides[0], dict):
            sides = [{"": side} for side in sides]
        keys = list(dict.fromkeys([*sides[0], *sides[1]]))
        wrong = [k for k in keys if k not in sides[0] or k not in sides[1]
                 or not same(what, sides[0][k], sides[1][k])]
        for k in wrong[:5]:
            print(f"{what} {work} {k}:\n  - {sides[0].get(k)}\n  + {sides[1].get(k)}")
    return len(wrong)


def speed(work, old, new):
    ratios = {"first_step_ms": [], "step_us_p10": []}
    for mode in MODES:
        for _ in range(PAIRS):
            a, b = (bench(build, work, mode, "--seconds", "0.7")[0] for build in (old, new))
            for key, values in ratios.items():
                values.append(b[key] / a[key])
        print(f"{work} {mode}: " + ", ".join(f"{key} {statistics.median(values):.3f}"
                                             for key, values in ratios.items()), flush=True)
        for values in ratios.values():
            values.clear()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("old", type=lambda p: Path(p).resolve())
    parser.add_argument("new", type=lambda p: Path(p).resolve())
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="")
    given = parser.parse_args()
    only, skip, wrong = given.only.split(",") if given.only else None, given.skip.split(","), 0
    for what in ("bits", "plans", "files", "memory"):
        works = WORKLOADS + list(LARGE) * (what == "plans")
        for work in works:
            if what not in skip and (not only or work in only):
                wrong += compare(what, work, given.old, given.new)
        print(f"{what}: {'left out' if what in skip else 'compared'}", flush=True)
    for work in WORKLOADS:
        if "speed" not in skip and (not only or work in only):
            speed(work, given.old, given.new)
    sys.exit(f"{wrong} differences" if wrong else 0)


if __name__ == "__main__":
    main()
