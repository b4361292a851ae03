#!/usr/bin/env python3
"""Measures the library as two files (tools/amalgamate.py) beside the full library.

    amalgamation.py FOLDER [--build build] [--rounds N] [--seconds S] [--workloads W1,...]

FOLDER has weber.c and weber.h.  Prints sizes; the time to compile weber.c with -O2, in processor
seconds, of gcc and clang; the size of a stripped program; and, for each workload and one and two
threads, the time of a step with

  full        libweber with oneDNN              own         libweber without it (WEBER_ONEDNN=0)
  gcc, clang  weber.c compiled with -O2

A step is the least 10th percentile of the rounds, in each of which all sides run in turn.
"""
import argparse
import json
import os
import resource
import subprocess
from pathlib import Path
from shutil import which

ROOT = Path(__file__).resolve().parent.parent


def compile_time(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def step(program, workload, threads, seconds, environment):
    done = subprocess.run([program, "--workload", workload, "--threads", str(threads),
                           "--seconds", str(seconds)], capture_output=True, text=True, check=True,
                          env=dict(os.environ, **environment))
    return json.loads(done.stdout)["step_us_p10"]


def human(microseconds):
    return f"{microseconds:.2f} us" if microseconds < 1000 else f"{microseconds / 1000:.2f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--workloads", default="W1,W2,W3,W4a,W5,W6,W7b")
    options = parser.parse_args()
    for name in ("weber.c", "weber.h"):
        data = (options.folder / name).read_bytes()
        print(f"{name}: {len(data) / 1e6:.1f} MB, {data.count(10):,} lines")
    sides = {"full": (options.build / "bench/weber_bench", {}),
             "own": (options.build / "bench/weber_bench", {"WEBER_ONEDNN": "0"})}
    for compiler in ("gcc", "clang"):
        if not which(compiler):
            continue
        unit, program = options.folder / f"{compiler}.o", options.folder / f"{compiler}_bench"
        seconds = compile_time([compiler, "-O2", "-c", options.folder / "weber.c", "-o", unit])
        subprocess.run([compiler, "-O2", "-I", options.folder, ROOT / "bench/weber_bench.c",
                        ROOT / "bench/workloads.c", unit, "-lm", "-lpthread", "-o", program],
                       check=True)
        stripped = options.folder / "stripped"
        subprocess.run(["strip", "-o", stripped, program], check=True)
        print(f"{compiler} -O2: {seconds:.0f} s, a stripped program of "
              f"{stripped.stat().st_size / 1e6:.1f} MB")
        stripped.unlink()
        sides[compiler] = (program, {})
    print(f"\n| | threads | {' | '.join(sides)} | gcc : full | gcc : own |")
    print("| --- " * (len(sides) + 4) + "|")
    for workload in options.workloads.split(","):
        for threads in (1, 2):
            best = {}
            for _ in range(options.rounds):
                for side, (program, environment) in sides.items():
                    us = step(program, workload, threads, options.seconds, environment)
                    best[side] = min(us, best.get(side, us))
            cells = [human(best[side]) for side in sides]
            cells += [f"{best['gcc'] / best[side]:.2f}" if "gcc" in best else ""
                      for side in ("full", "own")]
            print(f"| {workload} | {threads} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
