#!/usr/bin/env python3
"""Measures the workloads W1 to W7 with Weber and PyTorch in turn; prints a table with ratios.

    bench/run.py [--workloads W2,W3] [--threads 1,2] [--sides weber,weber-compiled,torch]
                 [--rounds 3] [--seconds 2] [--json FILE]

Every round runs the sides of a workload one after the other; each round reverses the order of the
round before.  Each run first waits for a quiet moment.  The processor time that other processes
took during a run is its "foreign" time, in cores.  Medians are over the runs with less than 0.1
foreign cores; if fewer than two runs are so quiet, over the two quietest, and the row ends with a
star.

PyTorch is tuned: its AVX-512 kernels if the processor has AVX-512, an allocator that keeps its
pages, and Debian's OpenMP build of OpenBLAS, so that there is one pool of threads and OpenBLAS
chooses its own kernels.  If PyTorch is missing its side is left out.  --json writes one line for
each workload, side and number of threads.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORKLOADS = ["W1", "W2", "W3", "W4a", "W4b", "W5", "W6", "W7a", "W7b"]
SIDES = ["weber", "weber-compiled", "torch"]
QUIET = 0.10        # the foreign cores of a run that counts as quiet
TICK = os.sysconf("SC_CLK_TCK")


def find_torch():
    """The Python with the newest torch, or None; BENCH_PYTHON names one more that is tried."""
    found = {}
    for python in [os.environ.get("BENCH_PYTHON"), sys.executable, "/usr/bin/python3", "python3"]:
        try:
            run = subprocess.run([python or "", "-c", "import torch; print(torch.__version__)"],
                                 capture_output=True, text=True, timeout=300, check=True)
            numbers = run.stdout.split("+")[0].strip().split(".")
            found.setdefault(tuple(int("0" + "".join(filter(str.isdigit, n))) for n in numbers),
                             python)
        except (OSError, subprocess.SubprocessError):
            pass
    return found[max(found)] if found else None


def tuned():
    """The environment variables with which PyTorch is fastest on this machine."""
    environment = dict(os.environ)
    for name in ("OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA"):
        environment.pop(name, None)
    try:
        if "avx512f" in Path("/proc/cpuinfo").read_text():
            environment["ATEN_CPU_CAPABILITY"] = "avx512"
    except OSError:
        pass
    environment.update(MALLOC_TRIM_THRESHOLD_=str(1 << 33), MALLOC_MMAP_THRESHOLD_=str(1 << 33),
                       MALLOC_TOP_PAD_=str(1 << 26))
    for folder in sorted(Path("/usr/lib").glob("*/openblas-openmp")):
        path = f"{folder}:{environment.get('LD_LIBRARY_PATH', '')}"
        environment["LD_LIBRARY_PATH"] = path.rstrip(":")
    return environment


def busy():
    """Processor seconds since boot of all processes, and of the host of a virtual machine."""
    with open("/proc/stat") as f:
        t = [int(x) / TICK for x in f.readline().split()[1:9]]
    return t[0] + t[1] + t[2] + t[5] + t[6] + t[7]


def wait_for_quiet(patience):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        before, t = busy(), time.monotonic()
        time.sleep(0.3)
        if (busy() - before) / (time.monotonic() - t) < QUIET:
            return


def measure(command, environment):
    def own_time():
        """Processor seconds of the processes that this one has started and waited for."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    used, all_used, begun = own_time(), busy(), time.monotonic()
    environment = dict(environment, BENCH_STARTED_AT=repr(time.clock_gettime(time.CLOCK_MONOTONIC)))
    row, reason = None, "no result in 300 s"
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300,
                             check=False)
        reason = "".join(run.stderr.strip().splitlines()[-1:])
        reason = reason or f"exit status {run.returncode}, no result"
        row = json.loads(run.stdout.strip().splitlines()[-1]) if run.returncode == 0 else None
    except OSError as error:
        reason = str(error)
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        pass
    if row is None:
        print(f"{' '.join(map(str, command))}: {reason}", file=sys.stderr)
        return None
    row["foreign"] = max(0.0, busy() - all_used - (own_time() - used)) / (time.monotonic() - begun)
    return row


def median(values):
    values = sorted(values)
    return (values[len(values) // 2] + values[(len(values) - 1) // 2]) / 2


def summary(rows):
    rows = sorted(rows, key=lambda row: row["foreign"])
    quiet = [row for row in rows if row["foreign"] < QUIET]
    kept = quiet if len(quiet) >= 2 else rows[:2]
    result = {key: kept[0][key] for key in ("workload", "side", "threads")}
    for key in ("step_us", "step_us_p10", "peak_mb", "first_step_ms", "faults_a_step"):
        result[key] = round(median([row[key] for row in kept]), 3)
    for key in ("first_loss", "last_loss", "checksum", "parameters"):
        result[key] = kept[0][key]
    result.update(runs=len(kept), foreign=round(max(row["foreign"] for row in kept), 3),
                  disturbed=len(quiet) < 2)
    return result


def human(microseconds):
    return f"{microseconds:.2f} us" if microseconds < 1000 else f"{microseconds / 1000:.2f} ms"


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--patience", type=float, default=20,
                        help="seconds to wait for a quiet moment")
    parser.add_argument("--program", default=str(HERE.parent / "build" / "bench" / "weber_bench"))
    parser.add_argument("--json", help="the file that gets a line for each measurement")
    options = parser.parse_args()
    sides = options.sides.split(",")
    threads = [int(t) for t in options.threads.split(",") if int(t) <= (os.cpu_count() or 1)]

    python = find_torch() if "torch" in sides else None
    if "torch" in sides and not python:
        print("PyTorch is not installed: its side is left out (Debian: python3-torch).")
        sides.remove("torch")
    commands = {side: [options.program, "--mode", side] for side in sides if side != "torch"}
    environments = {side: dict(os.environ) for side in sides}
    if python:
        commands["torch"] = [python, str(HERE / "torch_twin.py")]
        environments["torch"] = tuned()

    results = []
    print(f"{'':5s}{'threads':>8s} {'side':16s}{'step':>12s}{'p10':>12s}{'of torch':>10s}"
          f"{'first step':>12s}{'peak':>10s}{'faults':>8s}   last loss")
    for count in threads:
        for workload in options.workloads.split(","):
            rows = {side: [] for side in sides}
            for number in range(options.rounds):
                for side in sides if number % 2 == 0 else sides[::-1]:
                    wait_for_quiet(options.patience)
                    command = [*commands[side], "--workload", workload, "--threads", str(count),
                               "--seconds", str(options.seconds)]
                    row = measure(command, dict(environments[side], OMP_NUM_THREADS=str(count)))
                    if row:
                        rows[side].append(row)
            done = {side: summary(rows[side]) for side in sides if rows[side]}
            for side, r in done.items():
                ratio = f"{r['step_us'] / done['torch']['step_us']:.3f}" if "torch" in done else ""
                loss = "" if r["last_loss"] is None else f"{r['last_loss']:.4g}"
                step, fast = human(r["step_us"]), human(r["step_us_p10"])
                print(f"{workload:5s}{count:8d} {side:16s}{step:>12s}{fast:>12s}{ratio:>10s}"
                      f"{r['first_step_ms']:9.1f} ms{r['peak_mb']:7.1f} MB"
                      f"{r['faults_a_step']:8.1f}   {loss}{' *' if r['disturbed'] else ''}",
                      flush=True)
                results.append(r)
    if options.json:
        with open(options.json, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in results)
    missing = len(threads) * len(options.workloads.split(",")) * len(sides) - len(results)
    if missing:
        print(f"{missing} measurements failed", file=sys.stderr)
    return 1 if missing or not results else 0


if __name__ == "__main__":
    sys.exit(main())
