#!/usr/bin/env python3
"""Measures training by 1 and 2 ranks, and allreduces, in turn; prints a table with ratios.

    bench/ranks.py [--program build/bench/ranks_bench] [--workloads W2,W4a] [--rounds 5]
                   [--seconds 2] [--bytes 4,25000000] [--json FILE]
    bench/ranks.py --collect FILE [--minutes 14] [--program ...]

Each rank has one thread, and both ranks share the batch of the workload.  Every round runs all
sides, and each round reverses the order of the round before; figures are medians over the rounds.
The ratio of two ranks is to half the time of one rank: 1 is perfect.  PyTorch's side is
DistributedDataParallel on gloo (torch_twin.py), left out if PyTorch is missing.

--collect measures what tools/scale_model.py needs: allreduces of 2 to 7 ranks, steps of 1 to 7
ranks which share a batch, and steps over simulated networks, all by ranks of one thread each.
Rounds go over all points until 3 quiet runs of each are close together, a point has 9 runs, or the
minutes are over; each run is written to FILE at once, and the same command goes on with a file that
exists.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run as bench                                     # noqa: E402

BATCH = {"W2": 64, "W3": 64, "W4a": 32, "W4b": 32, "W5": 8, "W6": 32}
PORT = 29541


def mpi_environment():
    return dict(os.environ, WEBER_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")


def of_mpi(ranks, program, *words):
    """What rank 0 prints, read as JSON."""
    done = subprocess.run(["mpirun", "-np", str(ranks), program, *map(str, words)],
                          env=mpi_environment(), capture_output=True, text=True, check=True)
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


# ---- what the model of the cost needs ------------------------------------------------------------

MOST_RANKS, ENOUGH, MOST_RUNS, CLOSE = 7, 3, 9, 0.05
REDUCED = (4, 4096, 65536, 300000, 1000000, 2500000, 5000000, 25000000)     # bytes
# Workload: bytes a microsecond of simulated networks whose allreduce takes about a half of a step,
# and more than a step; buckets of these bytes.
NETWORKS = {"W4a": ((130, 60), (25000000, 500000)), "W4b": ((30, 15), (25000000, 200000)),
            "W5": ((110, 50), (25000000, 500000)), "W6": ((100, 50), (25000000, 80000))}


def points():
    """{point: words of mpirun after -np}; a point is "reduce P BYTES", "step P WORKLOAD BATCH" or
    "network WORKLOAD BATCH BYTES BUCKET"."""
    found = {f"reduce {ranks} {size}": (ranks, "reduce", size, "SECONDS")
             for ranks in range(2, MOST_RANKS + 1) for size in REDUCED}
    for name, batch in BATCH.items():
        shares = [(ranks, batch // ranks) for ranks in range(1, MOST_RANKS + 1)]
        shares += [(1, batch // k) for k in (2, 4, 7)]
        found.update({f"step {ranks} {name} {part}": (ranks, "step", name, "SECONDS", part)
                      for ranks, part in shares})
    for name, (speeds, buckets) in NETWORKS.items():
        found.update({f"network {name} {BATCH[name]} {speed} {bucket}":
                      (1, "network", name, "SECONDS", BATCH[name], 100, speed, bucket)
                      for speed in speeds for bucket in buckets})
    return found


def kept(runs):
    """The times of the runs that count: the quiet ones, or the quietest if there are too few."""
    runs = sorted(runs, key=lambda run: run["foreign"])
    quiet = [run["us"] for run in runs if run["foreign"] < bench.QUIET]
    return quiet if len(quiet) >= ENOUGH else [run["us"] for run in runs[:ENOUGH]]


def spread(values):
    """Half of the runs are within this share of the median."""
    if len(values) < 2:
        return 1.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / statistics.median(values)


def is_settled(runs):
    quiet = sum(run["foreign"] < bench.QUIET for run in runs)
    return len(runs) >= MOST_RUNS or (quiet >= ENOUGH and spread(kept(runs)) <= CLOSE)


def about(program):
    """The machine and the versions that a file of measurements is of."""
    def first_line(*command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return (done.stdout or done.stderr).split("\n")[0]
    models = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().split("\n")
              if line.startswith("model name")]
    return {"machine": f"{os.cpu_count()} x {models[0] if models else platform.machine()}",
            "cores": os.cpu_count(), "system": platform.platform(),
            "mpi": first_line("mpirun", "--version"),
            "compiler": first_line("cc", "--version"),
            "weber": first_line(str(Path(program).parent.parent / "weber"), "--version")}


def collect(options):
    path, todo = Path(options.collect), points()
    head, runs = about(options.program), {point: [] for point in todo}
    if path.exists():
        old = json.loads(path.read_text())
        if old["about"] != head:
            sys.exit(f"{path} is of {old['about']}, this is {head}: move it away")
        runs.update({row["point"]: row["runs"] for row in old["points"]})
    end, turn = time.monotonic() + 60 * options.minutes, 0
    while todo and time.monotonic() < end:
        for point, (ranks, *words) in list(todo.items())[::-1 if turn % 2 else 1]:
            if time.monotonic() > end:
                break
            words = [options.seconds if word == "SECONDS" else word for word in words]
            bench.wait_for_quiet(options.patience)
            row = bench.measure(["mpirun", "-np", str(ranks), options.program, *map(str, words)],
                                mpi_environment())
            if not row:
                sys.exit(f"{point} failed")
            runs[point].append({"us": row["us"], "foreign": round(row["foreign"], 3)})
            write(path, head, runs)
        todo = {point: words for point, words in todo.items() if not is_settled(runs[point])}
        turn += 1
        print(f"round {turn}: {len(todo)} of {len(runs)} points are not settled", flush=True)


def write(path, head, runs):
    rows = [{"point": point, "us": round(statistics.median(kept(of)), 2),
             "spread": round(spread(kept(of)), 3), "settled": is_settled(of), "runs": of}
            for point, of in runs.items() if of]
    text = ",\n  ".join(json.dumps(row) for row in rows)
    command = "bench/ranks.py " + " ".join(sys.argv[1:])
    path.write_text(f'{{"about": {json.dumps(head)},\n "command": {json.dumps(command)},\n'
                    f' "points": [\n  {text}]}}\n')


# ---- the comparison ------------------------------------------------------------------------------

def main():
    options = argparse.ArgumentParser()
    options.add_argument("--program", default="build/bench/ranks_bench")
    options.add_argument("--workloads", default="W2,W3,W4a,W4b,W5,W6")
    options.add_argument("--bytes", default="4,65536,25000000")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=0,
                         help="of a run; default: 2, and 0.5 for --collect")
    options.add_argument("--json")
    options.add_argument("--collect")
    options.add_argument("--minutes", type=float, default=14)
    options.add_argument("--patience", type=float, default=20,
                         help="seconds to wait for a quiet moment")
    options = options.parse_args()
    options.seconds = options.seconds or (0.5 if options.collect else 2)
    if options.collect:
        return collect(options)
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
                                                   options.seconds)["us"] for ranks in (1, 2)}
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
