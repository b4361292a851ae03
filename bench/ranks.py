#!/usr/bin/env python3
"""Measures training by 1 and 2 ranks, and allreduces, in turn; prints a table with ratios.

    bench/ranks.py [--program build/bench/ranks_bench] [--workloads W2,W4a] [--rounds 5]
                   [--seconds 2] [--bytes 4,25000000] [--json FILE]

Each rank has one thread, and both ranks share the batch of the workload.  Every round runs all
sides, and each round reverses the order of the round before; figures are medians over the rounds.
The ratio of two ranks is to half the time of one rank: 1 is perfect.  PyTorch's side is
DistributedDataParallel on gloo (torch_twin.py), left out if PyTorch is missing.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run as bench                                     # noqa: E402

BATCH = {"W2": 64, "W3": 64, "W4a": 32, "W4b": 32, "W5": 8, "W6": 32}
PORT = 29541


def of_mpi(ranks, program, *words):
    """What rank 0 prints, read as JSON."""
    environment = dict(os.environ, WEBER_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    done = subprocess.run(["mpirun", "-np", str(ranks), program, *map(str, words)],
                          env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def of_torch(ranks, python, workload, seconds):
    """The figures of torch_twin.py on one rank or on several."""
    words = [python, str(bench.HERE / "torch_twin.py"), "--workload", workload, "--seconds",
             str(seconds), "--batch", str(BATCH[workload] // ranks)]
    processes = []
    for rank in range(ranks):
        environment = dict(bench.tuned())
        if ranks > 1:
            environment.update(WORLD_SIZE=str(ranks), RANK=str(rank), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(PORT))
        processes.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE,
                                          text=True))
    texts = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"torch_twin.py failed on {workload} with {ranks} ranks")
    return json.loads(texts[0])


def in_turn(sides, rounds):
    """{side: median of its rounds} for {side: function that returns a number}"""
    found = {side: [] for side in sides}
    for k in range(rounds):
        for side in list(sides)[::1 if k % 2 else -1]:
            found[side].append(sides[side]())
    return {side: statistics.median(values) for side, values in found.items()}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--program", default="build/bench/ranks_bench")
    options.add_argument("--workloads", default="W2,W3,W4a,W4b,W5,W6")
    options.add_argument("--bytes", default="4,65536,25000000")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=2)
    options.add_argument("--json")
    options = options.parse_args()
    python, rows = bench.find_torch(), []
    if not python:
        print("PyTorch is not installed: its side is left out (Debian: python3-torch).")
    print("allreduce of 2 ranks: bytes, us of MPI itself, and the ratio in a plan, of a tensor")
    for size in filter(None, options.bytes.split(",")):
        runs = [of_mpi(2, options.program, "allreduce", size, options.seconds)
                for _ in range(options.rounds)]
        row = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
        rows.append(row)
        print(f"{row['bytes']:10d} {row['bare_us']:10.2f} {row['plan_us'] / row['bare_us']:8.3f}"
              f" {row['tensor_us'] / row['bare_us']:8.3f}", flush=True)
    print("steps: us of 1 rank, of 2, ratio to half; the same of PyTorch; 2 ranks to PyTorch's")
    for name in filter(None, options.workloads.split(",")):
        sides = {ranks: lambda ranks=ranks: of_mpi(ranks, options.program, "step", name,
                                                   options.seconds)["step_us"] for ranks in (1, 2)}
        if python:
            sides.update({f"torch {ranks}": lambda ranks=ranks: of_torch(
                ranks, python, name, options.seconds)["step_us"] for ranks in (1, 2)})
        found = in_turn(sides, options.rounds)
        rows.append({"workload": name, **{str(side): value for side, value in found.items()}})
        line = f"{name:5s} {found[1]:10.1f} {found[2]:10.1f} {2 * found[2] / found[1]:7.3f}"
        if python:
            line += (f" {found['torch 1']:10.1f} {found['torch 2']:10.1f}"
                     f" {2 * found['torch 2'] / found['torch 1']:7.3f}"
                     f" {found[2] / found['torch 2']:7.3f}")
        print(line, flush=True)
    if options.json:
        Path(options.json).write_text("".join(json.dumps(row) + "\n" for row in rows))


main()
