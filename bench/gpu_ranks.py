#!/usr/bin/env python3
"""Trains W2 by WB_NCCL, one rank on each GPU of this machine, and compares its losses with those of
one process without ranks.

    bench/gpu_ranks.py [--build FOLDER]

All ranks have the same batches, so the losses must be the same up to rounding.  Prints a line of
JSON, with the time of an allreduce of 25 MB; on one GPU this is the time of a call and a copy, and
no connection takes part.  The exit status is 1 if losses differ, or a program fails.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

STEPS, TOLERANCE = 10, 1e-5
parser = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default=str(Path(__file__).resolve().parent.parent / "build"))
folder = Path(parser.parse_args().build)
program = [str(folder / "bench" / "weber_bench"), "--workload", "W2", "--device", "CUDA", "--mode",
           "weber-compiled", "--losses", str(STEPS)]


def run(*command):
    """The output of a program; ends this one if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                          env=dict(os.environ, WEBER_MATMUL_PRECISION="highest"))
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def gpus():
    """The number of CUDA devices in the table of `weber devices`."""
    table = run(str(folder / "weber"), "devices").split("\nAMDGPU")[0].split("\nCUDA")[1]
    return len(re.findall(r"(?:^|\n) +(?:works +)?\d+\. ", table))


ranks = gpus()
alone = json.loads(run(*program).strip().splitlines()[-1])["losses"]
lines = run(str(folder / "weber"), "launch", "-np", str(ranks), "--", *program, "--ranks")
found = [json.loads(text) for text in re.findall(r"^\[\d+\] (\{.*\})$", lines, re.MULTILINE)]
apart = max((abs(a - b) / max(abs(a), 1e-12) for result in found
             for a, b in zip(alone, result["losses"])), default=1)
same = len({result["bits"] for result in found}) == 1
print(json.dumps({"ranks": ranks, "steps": STEPS, "losses_apart": apart, "same_bits": same,
                  "allreduce_25MB_us": max((r["allreduce_us"] for r in found), default=None)}))
if len(found) != ranks or any(len(result["losses"]) != STEPS for result in found):
    sys.exit(f"{len(found)} of {ranks} ranks printed their losses:\n{lines}")
if not apart <= TOLERANCE or not same:
    sys.exit(f"the losses of {ranks} ranks of NCCL are not those of one process:\n{alone}\n{lines}")
