#!/usr/bin/env python3
"""Measures Weber on the CPU beside the newest PyTorch, JAX and ONNX Runtime, in turn.

    bench/run.py [--workloads W2,W3,G1] [--threads 1,2] [--rounds 5] [--seconds 2] [--json FILE]
                 [--sides weber,weber-compiled,torch,torch-compile,jax,onnxruntime,...]

workloads.h lists the workloads; G1 has one sequence of 256 tokens here, G2 a batch of 4.  ONNX
Runtime runs inferences only; torch-nhwc and torch-compile-nhwc are PyTorch in the layout channels
last, for workloads with convolutions.  A rival that is missing, or a PyTorch with the reference
BLAS, is left out, with the reason.  BENCH_PYTHON names one more Python that may have rivals;
`./run bench --rivals` installs the newest ones into build/bench-venv.

All sides begin with Weber's initial parameters and batches: a row has a ratio only if the first
losses agree to 1e-4, or the sums of the absolute results of an inference, and the second losses to
1e-3, of G2 to 4e-2.  The ratio is the step of the better of weber and weber-compiled divided by the
step of the fastest rival.

Every round runs the sides of a workload one after the other; each round reverses the order of the
round before.  Each run first waits for a quiet moment, and is bound to as many processors as it may
have threads.  The processor time that other processes took during a run is its "foreign" time, in
cores.  Medians are over the runs with less than 0.1 foreign cores; if fewer than two runs are so
quiet, over the two quietest, and the row ends with a star.

The rivals are tuned: PyTorch's AVX-512 kernels if the processor has AVX-512, an allocator that
keeps its pages, fused optimisers, and for Debian's PyTorch the OpenMP build of OpenBLAS.
torch.compile and JAX keep compiled code in build/peers, so that their first step is quicker from
the second run on.  --json writes one line for each workload, side and number of threads.
"""
import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import rivals

HERE = Path(__file__).resolve().parent
WORKLOADS = ["W1", "W2", "W3", "W4a", "W4b", "W5", "W6", "W7a", "W7b", "G1", "G2"]
OWN = {"weber": "weber", "weber-compiled": "compiled"}
SIDES = [*OWN, *rivals.NAMES]
SIZES = {"G1": ["--batch", "1", "--length", "256"], "G2": ["--batch", "4"]}
AGREE = {"first_loss": 1e-4, "second_loss": 1e-3}       # relative differences of the losses
# In f32 the first step of ResNet-50 on 4 images depends on the rounding: Weber on one
# and on two threads, PyTorch and JAX differ by about 1 % afterwards.
AGREE_G2 = dict(AGREE, second_loss=0.04)
CONVOLUTIONS = ["W3", "W4a", "W4b", "W7b", "G2"]
QUIET = 0.10        # the foreign cores of a run that counts as quiet
TICK = os.sysconf("SC_CLK_TCK")
LIMIT = 1200        # seconds for a run; torch.compile may need minutes


def processors(count):
    """The processors for `count` threads: one of each core, the last ones; interrupts come to the
    first."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
            core = siblings.read_text()
        except OSError:
            core = str(cpu)
        cores.setdefault(core, []).append(cpu)
    order = [cpus.pop() for _ in range(64) for cpus in cores.values() if cpus]
    return order[:len(cores)][-count:] if count <= len(cores) else order[:count]


def available():
    """How many processors this process may use."""
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1)


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


def measure(command, environment, cpus):
    def own_time():
        """Processor seconds of the processes that this one has started and waited for."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    used, all_used, begun = own_time(), busy(), time.monotonic()
    environment = dict(environment, BENCH_STARTED_AT=repr(time.clock_gettime(time.CLOCK_MONOTONIC)))
    row, reason = None, f"no result in {LIMIT} s"
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True,
                             timeout=LIMIT, check=False,
                             preexec_fn=cpus and (lambda: os.sched_setaffinity(0, cpus)))
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
    for key in ("step_us", "step_us_p10", "peak_mb", "first_step_ms", "faults_a_step", "cores"):
        result[key] = round(median([row[key] for row in kept]), 3)
    for key in ("batch", "first_loss", "second_loss", "last_loss", "checksum", "parameters"):
        result[key] = kept[0][key]
    result.update(runs=len(kept), foreign=round(max(row["foreign"] for row in kept), 3),
                  disturbed=len(quiet) < 2)
    return result


def disagreement(own, other):
    """The reason why a side does not do Weber's work; "" if it does."""
    for key in ("batch", "parameters"):
        if own[key] != other[key]:
            return f"{other[key]} {key}, Weber {own[key]}"
    for key, limit in (AGREE_G2 if own["workload"] == "G2" else AGREE).items():
        a, b = own[key], other[key]
        if a is None or b is None or abs(a - b) > limit * max(abs(a), 1e-12):
            return f"{key.replace('_', ' ')} {b}, Weber's {a}"
    return ""


def ratio(steps):
    """(the better of Weber's steps divided by the fastest rival's, the name of that rival), or None
    if one of them is missing; steps: {side: microseconds}."""
    own = [steps[side] for side in OWN if side in steps]
    others = {side: step for side, step in steps.items() if side not in OWN}
    if not own or not others:
        return None
    fastest = min(others, key=others.get)
    return min(own) / others[fastest], fastest


def human(microseconds):
    return f"{microseconds:.2f} us" if microseconds < 1000 else f"{microseconds / 1000:.2f} ms"


def cpu_name():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit():
    git = subprocess.run(["git", "-C", str(HERE), "describe", "--always", "--dirty"], text=True,
                         capture_output=True, check=False)
    return git.stdout.strip() or os.environ.get("WEBER_COMMIT", "unknown")


def find_sides(wished, program):
    """{side: its command}; prints versions, settings, and the reasons of those left out."""
    commands = {side: [program, "--mode", side] for side in wished if side in OWN}
    print(f"{cpu_name()}, {os.cpu_count()} processors; Weber {commit()}")
    shown = False
    for side in wished:
        if side in OWN:
            continue
        python, about = rivals.find(side)
        if not python:
            print(f"{rivals.NAMES[side]} {about}: this side is left out.")
            continue
        commands[side] = rivals.command(side, python)
        print(f"{rivals.NAMES[side]} {about['version']} ({python})")
        if about["config"] and not shown:
            shown = True
            print(f"BLAS of PyTorch: {rivals.blas_of(about['config'], about['mapped'])}\n"
                  f"{about['config'].strip()}")
    return commands


def measure_row(workload, count, commands, options):
    """{side: summary} of a workload; a side with other losses has the reason in "wrong"."""
    rows = {side: [] for side in commands}
    more = [*SIZES.get(workload, []), "--workload", workload, "--threads", str(count)]
    cpus = processors(count)
    with tempfile.TemporaryDirectory() as folder:
        start = f"{folder}/start.safetensors"
        subprocess.run([options.program, *more, "--save", start], check=True)
        for number in range(options.rounds):
            for side in list(commands) if number % 2 == 0 else list(commands)[::-1]:
                wait_for_quiet(options.patience)
                own = side in OWN
                environment = dict(os.environ) if own else rivals.environment()
                environment["OMP_NUM_THREADS"] = str(count)
                row = measure([*commands[side], *more, "--seconds", str(options.seconds),
                               *([] if own else ["--start", start])], environment, cpus)
                if row:
                    rows[side].append(row)
    done = {side: summary(rows[side]) for side in commands if rows[side]}
    own = next((done[side] for side in OWN if side in done), None)
    for r in done.values():
        r["wrong"] = disagreement(own, r) if own else "Weber was not measured"
    return done


def print_row(done, result):
    for side, r in done.items():
        step, fast = human(r["step_us"]), human(r["step_us_p10"])
        share = f"{r['step_us'] / done[result[1]]['step_us']:.3f}" if result else ""
        print(f"{r['workload']:5s}{r['threads']:8d} {side:19s}{step:>12s}{fast:>12s}{share:>9s}"
              f"{r['first_step_ms']:10.1f} ms{r['peak_mb']:8.1f} MB{r['faults_a_step']:8.1f}"
              f"{r['cores']:7.2f}  {r['first_loss']:.6g} {r['second_loss']:.6g}"
              f"{'; NOT THE SAME WORK: ' + r['wrong'] if r['wrong'] else ''}"
              f"{' *' if r['disturbed'] else ''}", flush=True)


def print_page(table, sides):
    """The table as Markdown; table: {threads: {workload: {side: summary}}}."""
    names = {**OWN, **rivals.NAMES}
    for count, rows in table.items():
        print(f"\n## {count} thread{'s' if count > 1 else ''}\n")
        print(f"| workload | {' | '.join(names[side] for side in sides)} | ratio | to "
              "| peak memory | start to first step |")
        print("| --- " * (len(sides) + 5) + "|")
        for workload, done in rows.items():
            result = ratio({side: r["step_us"] for side, r in done.items() if not r["wrong"]})
            cells = [human(done[side]["step_us"]) if side in done else "" for side in sides]
            cells += [f"{result[0]:.3f}", names[result[1]]] if result else ["", ""]
            best = [min((side for side in done if (side in OWN) == own), default=None,
                        key=lambda side: done[side]["step_us"]) for own in (True, False)]
            for key, unit in (("peak_mb", "MB"), ("first_step_ms", "ms")):
                cells.append(" / ".join(f"{done[side][key]:.0f}" for side in best if side)
                             + f" {unit}")
            star = " *" if any(r["disturbed"] for r in done.values()) else ""
            print(f"| {workload}{star} | {' | '.join(cells)} |")
    print("\nPeak memory and the time from the start to the first step: Weber's / the fastest "
          "rival's.")


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--patience", type=float, default=20,
                        help="seconds to wait for a quiet moment")
    parser.add_argument("--program", default=str(HERE.parent / "build" / "bench" / "weber_bench"))
    parser.add_argument("--json", help="the file that gets a line for each measurement")
    options = parser.parse_args()
    unknown = set(options.sides.split(",")) - set(SIDES)
    if unknown:
        parser.error(f"no such side: {', '.join(unknown)}; the sides are {', '.join(SIDES)}")
    threads = [int(t) for t in options.threads.split(",") if int(t) <= available()]
    commands = find_sides(options.sides.split(","), options.program)

    table, missing, wrong = {}, 0, 0
    if options.json:
        Path(options.json).write_text("")
    print(f"\n{'':5s}{'threads':>8s} {'side':19s}{'step':>12s}{'p10':>12s}{'of best':>9s}"
          f"{'first step':>13s}{'peak':>11s}{'faults':>8s}{'cores':>7s}  losses")
    for count in threads:
        for workload in options.workloads.split(","):
            chosen = {side: command for side, command in commands.items()
                      if (side != "onnxruntime" or workload.startswith("W7"))
                      and (not side.endswith("-nhwc") or workload in CONVOLUTIONS)}
            done = measure_row(workload, count, chosen, options)
            result = ratio({side: r["step_us"] for side, r in done.items() if not r["wrong"]})
            print_row(done, result)
            table.setdefault(count, {})[workload] = done
            if options.json:
                with open(options.json, "a") as f:
                    f.writelines(json.dumps(r) + "\n" for r in done.values())
            missing += len(chosen) - len(done)
            wrong += sum(bool(r["wrong"]) for r in done.values())
    print_page(table, list(commands))
    if missing or wrong:
        print(f"{missing} measurements failed, {wrong} sides did other work", file=sys.stderr)
    return 1 if missing or wrong or not table else 0


if __name__ == "__main__":
    sys.exit(main())
