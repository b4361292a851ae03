#!/usr/bin/env python3
"""Compares steps with oneDNN and without it (WEBER_ONEDNN=0), by one build: what its calls win.

  bench/onednn.py BUILD [--only W1,G2] [--dtypes f32,bf16] [--threads 1,2] [--pairs 5] [-o FILE]

BUILD is a build folder with bench/weber_bench.  Both sides run in turn, --pairs times; a row has
the medians of both (ms, the 10th percentile of the steps of a run) and the median of the ratios.
G1 and G2 have the smaller sizes of SIZES, since their steps take half a minute on two cores."""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

WORKLOADS = "W1 W2 W3 W4a W4b W5 W6 W7a W7b G1 G2".split()
SIZES = {"G1": ("--batch", "1", "--length", "256"), "G2": ("--batch", "4")}
HEAD = ("| workload | dtype | threads | with, ms | without, ms | without / with | pairs |\n"
        "|---|---|---|---|---|---|---|")


def step_ms(build, workload, dtype, threads, without):
    made = subprocess.run(
        [build / "bench/weber_bench", "--workload", workload, "--mode", "weber-compiled",
         "--dtype", dtype, "--threads", threads, "--seconds", "0.7", *SIZES.get(workload, ())],
        capture_output=True, text=True, check=False,
        env={**os.environ, "WEBER_NUM_THREADS": threads, "WEBER_ONEDNN": "0" if without else "1"})
    if made.returncode:
        sys.exit(f"{workload} {dtype}: {made.stderr.strip()}")
    return json.loads(made.stdout.splitlines()[-1])["step_us_p10"] / 1000


def row(build, workload, dtype, threads, pairs):
    sides = [[step_ms(build, workload, dtype, threads, without) for without in (False, True)]
             for _ in range(pairs)]
    ratios = sorted(b / a for a, b in sides)
    a, b = (statistics.median(side) for side in zip(*sides))
    return (f"| {workload} | {dtype} | {threads} | {a:.3f} | {b:.3f} | "
            f"{statistics.median(ratios):.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("build", type=lambda p: Path(p).resolve())
    parser.add_argument("--only", default=",".join(WORKLOADS))
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("-o", type=Path)
    given = parser.parse_args()
    lines = [HEAD]
    print(HEAD)
    for dtype in given.dtypes.split(","):
        for threads in given.threads.split(","):
            for workload in given.only.split(","):
                lines.append(row(given.build, workload, dtype, threads, given.pairs))
                print(lines[-1], flush=True)
    if given.o:
        given.o.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
