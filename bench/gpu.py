#!/usr/bin/env python3
"""Measures Weber on a GPU beside PyTorch and JAX within a time limit, and checks its goals.

    bench/gpu.py [--device CUDA] [--minutes 8] [--rows W2,W5,G1:bf16]
                 [--sides weber-compiled,torch-graph] [--rounds 3] [--seconds 0.3] [--name NAME]
                 [--out FOLDER] [--resume] [--checks W3,W5] [--parts all|bandwidth|none]
                 [--slice 2|3] [--cache FOLDER]

Writes FOLDER/NAME.json and FOLDER/NAME.md after every measurement, so that a run that is cut short
keeps its results.  It measures three things:

  checks   whether losses agree with the CPU's, and whether two deterministic runs agree bit for bit
  parts    copy bandwidth, an elementwise chain and matrix products, beside PyTorch's
  rows     workloads, each in one dtype

A side of a row is a process (weber_bench, torch_twin.py or jax_twin.py with --hold) that prepares
itself and then measures for each number of seconds that it reads.  Weber's sides prepare first,
alone.  The other sides prepare at the same time, so their first steps are neither timed nor shown.
Then the sides measure in turn; each round reverses the order of the round before.  In rows of large
workloads (G1, G2) only one of the other sides runs at a time: it measures in turn with
weber-compiled and is then ended.

Each row gets its share of the remaining minutes, but at least 45 s (90 s for large workloads) while
time remains.  Sides that need more time than is left are dropped, from the end of the list of
sides; sides that are not ready in time are ended; rows for which no time is left are left out.  The
report lists what was dropped.  --resume keeps the results of the JSON file and measures the rest.
"""
import argparse
import signal
import sys
import time
from pathlib import Path

from gpu_report import Report, compare_losses
from gpu_sides import Machine, Trouble, Warming

HERE = Path(__file__).resolve().parent
# The most important rows first.
ROWS = ["W2", "W3", "W5", "G1:bf16", "W1", "W4a", "W6", "W4b", "G2:bf16", "G2:tf32"]
SIDES = ["weber-compiled", "weber", "torch-graph", "torch-compile-graph", "torch-eager", "jax",
         "torch-compile"]
# Seconds that a side needs to prepare itself.
READY = {"torch-graph": 12, "torch-eager": 12, "torch-compile-graph": 25, "torch-compile": 25,
         "jax": 20}
LARGE = ("G1", "G2")                    # workloads that take twice as long
SLICES = {2: {"rows": "W2,W3,W5,W1,W4a,W6,W4b"},
          3: {"rows": "G1:bf16,G2:bf16,G2:tf32,G1:tf32", "checks": "", "parts": "none"}}
SLOW = "torch-compile-graph"            # the side that takes longest to compile
LEAST = 45                              # seconds that a row gets at least while time remains
LARGE_MEMORY = 120e9                    # bytes of device memory that hold all sides at once


def expected(side, options, large):
    """The seconds that a side adds to its row."""
    ready = READY.get(side.replace("-nhwc", ""), 20)
    return (ready + 6 * options.seconds * options.rounds) * (2 if large else 1)


def sides_of(workload, requested):
    """The sides of a row.  Convolutions of PyTorch run in channels_last too, in G2 only so."""
    if workload == "G2":
        return [side + "-nhwc" if side.startswith("torch") else side for side in requested]
    if workload.startswith("W4"):
        both_layouts = ("torch-graph", "torch-compile-graph")
        return [*requested, *(side + "-nhwc" for side in requested if side in both_layouts)]
    return list(requested)


def median(values):
    values = sorted(values)
    return (values[len(values) // 2] + values[(len(values) - 1) // 2]) / 2


def summary(rows):
    """One dict of figures from the measurements of a side: medians and maxima."""
    result = {key: rows[0].get(key) for key in ("side", "batch", "parameters", "first_loss")}
    result["runs"] = len(rows)
    for key in ("step_us", "step_us_p10", "host_us", "tokens_per_s", "samples_per_s"):
        values = [row[key] for row in rows if row.get(key) is not None]
        if values:
            result[key] = round(median(values), 3)
    for key in ("peak_gpu_mb", "growth_mb", "peak_mb"):
        values = [row[key] for row in rows if row.get(key) is not None]
        if values:
            result[key] = max(values)
    result["last_loss"] = rows[-1].get("last_loss")
    if rows[0]["side"].startswith("weber"):
        result["first_step_ms"] = rows[0].get("first_step_ms")
    return result


class Row:
    """One workload in one dtype, measured on all sides."""
    def __init__(self, name, machine, options, report, warming):
        self.workload, _, dtype = name.partition(":")
        self.dtype = dtype or "f32"
        self.name, self.machine, self.options = name, machine, options
        self.report, self.warming = report, warming
        self.large = self.workload in LARGE
        self.figures, self.kept, self.cut = {}, {}, False
        if self.large and options.resume:
            self.kept = {side: report.data["rows"][name][side]
                         for side in report.kept(name, options.rounds)}

    def drop(self, side, reason):
        self.report.dropped(self.name, side, reason)

    def start(self, side):
        try:
            return self.machine.start(side, self.workload, self.dtype)
        except Trouble as trouble:
            self.drop(side, str(trouble))
            return None

    def ready(self, process, end):
        """Waits until the process is ready and returns it; or drops its side and returns None."""
        if not process:
            return None
        try:
            process.ready(end)
            return process
        except Trouble as trouble:
            self.drop(process.side, str(trouble))
            return None

    def begin(self, sides, end):
        """Starts all sides, then returns the processes that become ready."""
        started = [self.start(side) for side in sides]
        return [process for process in started if self.ready(process, end)]

    def rounds(self, processes, end):
        """Measures the processes in turn.  A side that fails is dropped."""
        processes = list(processes)
        for number in range(self.options.rounds):
            if number and time.monotonic() > end:
                self.report.note(f"{self.name}: {number} of {self.options.rounds} rounds: the time "
                                 "was over")
                return
            for process in processes[::1 if number % 2 == 0 else -1]:
                try:
                    limit = max(end, time.monotonic() + 30)
                    figures = process.measure(self.options.seconds, limit)
                    self.figures.setdefault(process.side, []).append(figures)
                    new = {side: summary(rows) for side, rows in self.figures.items()}
                    self.report.row(self.name, {**self.kept, **new})
                except Trouble as trouble:
                    self.drop(process.side, str(trouble))
                    processes.remove(process)
                    process.stop()

    def all_at_once(self, ours, others, end):
        """Measures a small workload: all sides stay in memory."""
        running = self.begin(ours, end)
        with self.warming:
            running += self.begin(others, end - 10)
        self.rounds(running, end)

    def one_by_one(self, ours, others, end):
        """Measures a large workload: Weber's first side beside one other side at a time."""
        stays = self.begin(ours[:1], end)
        coming = [side for side in ours[1:] + others if side not in self.kept]
        together = self.machine.memory > LARGE_MEMORY
        if together:
            started = [self.start(side) for side in coming]
            waiting = {process.side: process for process in started if process}
        for side in coming:
            if time.monotonic() > end:
                self.cut = True
                self.drop(side, "no time was left")
                continue
            process = waiting.get(side) if together else self.start(side)
            if self.ready(process, end):
                self.rounds([*stays, process], end)
                process.stop()
        if stays and not coming and stays[0].side not in self.kept:
            self.rounds(stays, end)

    def run(self, end):
        allowance = end - time.monotonic()
        sides = sides_of(self.workload, self.options.sides)
        ours = [side for side in sides if side.startswith("weber")]
        others, spent = [], 0
        for side in (side for side in sides if side not in ours):
            missing = self.machine.missing(side)
            alone = expected(side, self.options, self.large)
            if side in self.kept:
                others.append(side)
            elif missing:
                self.drop(side, missing)
            elif alone > allowance - spent:
                self.cut = self.large
                left = max(0, allowance - spent)
                self.drop(side, f"it needs about {alone:.0f} s; {left:.0f} s were left for it")
            else:
                others.append(side)
                spent += 6 * self.options.seconds * self.options.rounds
        try:
            (self.one_by_one if self.large else self.all_at_once)(ours, others, end)
        finally:
            self.machine.stop_all()
        return bool(self.figures or self.kept) and not self.cut


def check_losses(machine, report, workloads):
    """Compares 50 losses with the CPU's in f32 and f64, and two deterministic runs."""
    for workload in workloads:
        try:
            cpu, gpu = machine.losses(workload, "CPU"), machine.losses(workload, machine.device)
            exact = machine.losses(workload, "CPU", "f64")
            comparison = compare_losses(cpu["losses"], gpu["losses"], exact["losses"])
            report.check("losses " + workload, comparison)
            one, two = (machine.losses(workload, machine.device, deterministic=True)
                        for _ in range(2))
            same = one["losses"] == two["losses"] and one["bits"] == two["bits"]
            report.check("bits " + workload, {"same": same, "bits": [one["bits"], two["bits"]]})
        except (Trouble, TypeError) as trouble:         # TypeError: a loss is null (not finite)
            report.check("losses " + workload, {"trouble": str(trouble)})


def measure_parts(machine, report, products):
    """Measures Weber's and PyTorch's copies, chain and products twice in turn; keeps the better."""
    best = {}
    missing = machine.missing("torch")
    if missing:
        report.note("parts: " + missing)
    for side in ("weber",) * 2 if missing else ("weber", "torch") * 2:
        try:
            found = machine.parts(side, products)
        except Trouble as trouble:
            report.note(f"parts, {side}: {trouble}")
            continue
        for key, value in found.items():
            if isinstance(value, (int, float)):
                best.setdefault(side, {})[key] = max(value, best.get(side, {}).get(key, 0))
        report.parts(best)


def read_options():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument("--device", default="CUDA")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--rows", "--workloads", default=",".join(ROWS))
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--name", help="the name of the result files; default: the device's")
    parser.add_argument("--out", default=str(HERE / "results"))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--checks", default="W3,W5", help="the workloads whose losses are compared")
    parser.add_argument("--parts", default="all", choices=["all", "bandwidth", "none"])
    parser.add_argument("--slice", type=int, choices=sorted(SLICES))
    parser.add_argument("--cache", help="a folder for the kernels that PyTorch and JAX compile")
    parser.add_argument("--build", default=str(HERE.parent / "build"))
    parser.add_argument("--peer", action="append", default=[], metavar="SIDE=COMMAND",
                        help="adds a side, or runs another program for a side, with the options "
                             "--workload, --dtype and --hold")
    known, _ = parser.parse_known_args()
    parser.set_defaults(**SLICES.get(known.slice, {}))
    options = parser.parse_args()
    options.resume = options.resume or options.slice is not None
    options.sides = [side for side in options.sides.split(",") if side]
    added = [peer.partition("=")[0] for peer in options.peer]
    options.sides += [side for side in added if side not in options.sides]
    return options


def compiled_ahead(options, machine):
    """In slice 2: the (side, workload, dtype) of slice 3 whose compilation begins now; else []."""
    if options.slice != 2 or SLOW not in options.sides:
        return []
    names = [name.partition(":") for name in SLICES[3]["rows"].split(",")]
    return [(side, workload, dtype) for workload, _, dtype in names
            for side in sides_of(workload, [SLOW]) if not machine.missing(side)]


def measure_rows(options, machine, report, warming, end):
    rows = [name for name in options.rows.split(",") if name and not report.has("done", name)]
    weights = {name: 2 if name.partition(":")[0] in LARGE else 1 for name in rows}
    for number, name in enumerate(rows):
        now = time.monotonic()
        if end - now < 10:
            report.dropped(name, "all", "no time was left")
            continue
        share = (end - now) * weights[name] / sum(weights[rest] for rest in rows[number:])
        row = Row(name, machine, options, report, warming)
        if row.run(min(end, now + max(share, LEAST * weights[name]))):
            report.done(name)


class Ended(Exception):
    """A signal ends this program."""


def end_now(number, _):
    raise Ended(signal.Signals(number).name)


def main():
    options = read_options()
    begun = time.monotonic()
    end = begun + 60 * options.minutes
    machine = Machine(options)
    report = Report(options, machine)
    warming = Warming(machine, compiled_ahead(options, machine), report.note)
    signal.signal(signal.SIGTERM, end_now)
    try:
        with warming:
            check_losses(machine, report, [name for name in options.checks.split(",")
                                           if name and not report.has("checks", "bits " + name)])
        if options.parts != "none" and not report.has("done", "parts"):
            measure_parts(machine, report, options.parts == "all")
            report.done("parts")
        measure_rows(options, machine, report, warming, end)
        warming.finish(end)
    except Ended as ended:
        report.note(f"ended by {ended} after {time.monotonic() - begun:.0f} s")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        warming.stop()
        machine.stop_all()
    report.finish(time.monotonic() - begun)
    return 0 if report.complete() else 1


sys.exit(main())
