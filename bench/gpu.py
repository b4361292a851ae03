#!/usr/bin/env python3
"""Weber on a GPU beside PyTorch and JAX, in one run with a limit of time; and whether it does what it is held to.

    bench/gpu.py [--device CUDA] [--minutes 8] [--rows W2,W5,G1:bf16] [--sides weber-compiled,torch-graph]
                 [--rounds 3] [--seconds 0.3] [--name NAME] [--out FOLDER] [--resume] [--checks W3,W5]
                 [--parts all|bandwidth|none] [--slice 2|3] [--cache FOLDER]

Writes FOLDER/NAME.json and FOLDER/NAME.md after every measurement, so that a run cut short leaves what it has.
Everything is: losses beside the CPU's and whether two runs are equal bit for bit (checks); copy bandwidth, an
elementwise chain and matrix products beside PyTorch's (parts); and the rows, one workload in one dtype each.

A side of a row is a process that makes itself ready and then measures for as long as it is told (--hold of
weber_bench, torch_twin.py, jax_twin.py).  Weber's come first, alone; the others make themselves ready side by side, so
their first steps are not timed fairly and not shown; then all measure in turn, each round in the opposite order to the
last.  Of large workloads (G1, G2) one other side at a time measures, in turn with weber-compiled, and is ended.

A row gets its share of the minutes that are left, but 45 s (large ones 90) while there are any.  Sides that would not
fit are dropped, from the end of their list (torch-compile first), sides that are not ready in time are ended, and rows
that no time is left for are left out; what was dropped is said.  --resume keeps what the JSON file has and does the rest.
"""
import argparse
import json
import signal
import sys
import time
from pathlib import Path

from gpu_report import Report, compare_losses
from gpu_sides import Machine, Trouble, Warming

HERE = Path(__file__).resolve().parent
ROWS = ["W2", "W3", "W5", "G1:bf16", "W1", "W4a", "W6", "W4b", "G2:bf16", "G2:tf32"]    # most wanted first
SIDES = ["weber-compiled", "weber", "torch-graph", "torch-compile-graph", "torch-eager", "jax", "torch-compile"]
READY = {"torch-graph": 12, "torch-eager": 12, "torch-compile-graph": 25, "torch-compile": 25, "jax": 20}    # seconds
LARGE = ("G1", "G2")                    # these take twice as long
SLICES = {2: {"rows": "W2,W3,W5,W1,W4a,W6,W4b"},
          3: {"rows": "G1:bf16,G2:bf16,G2:tf32,G1:tf32", "checks": "", "parts": "none"}}
SLOW = "torch-compile-graph"            # the side that is long to compile
LEAST = 45                              # seconds that a row gets while there are any
ROOMY = 120e9                           # bytes of device memory that hold a first step of every side at once


def expected(side, options, large):
    """Seconds that a side by itself keeps its row."""
    return (READY.get(side.replace("-nhwc", ""), 20) + 6 * options.seconds * options.rounds) * (2 if large else 1)


def sides_of(workload, wanted):
    """The sides of a row; convolutions also (G2: only) with channels last where PyTorch computes them."""
    if workload == "G2":
        return [side + "-nhwc" if side.startswith("torch") else side for side in wanted]
    if workload.startswith("W4"):
        return [*wanted, *(side + "-nhwc" for side in wanted if side in ("torch-graph", "torch-compile-graph"))]
    return list(wanted)


def median(values):
    values = sorted(values)
    return (values[len(values) // 2] + values[(len(values) - 1) // 2]) / 2


def summary(rows):
    """What a side's measurements come to."""
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
    """One workload in one dtype on all sides."""
    def __init__(self, name, machine, options, report, warming):
        self.workload, _, dtype = name.partition(":")
        self.dtype = dtype or "f32"
        self.name, self.machine, self.options, self.report, self.warming = name, machine, options, report, warming
        self.large = self.workload in LARGE
        self.figures, self.kept, self.cut = {}, {}, False
        if self.large and options.resume:
            self.kept = {side: report.data["rows"][name][side] for side in report.kept(name, options.rounds)}

    def drop(self, side, why):
        self.report.dropped(self.name, side, why)

    def start(self, side):
        try:
            return self.machine.start(side, self.workload, self.dtype)
        except Trouble as trouble:
            self.drop(side, str(trouble))
            return None

    def ready(self, process, end):
        """The side that runs in `process`, or None and the reason told."""
        if not process:
            return None
        try:
            process.ready(end)
            return process
        except Trouble as trouble:
            self.drop(process.side, str(trouble))
            return None

    def begin(self, sides, end):
        """Starts sides together; gives those back that become ready."""
        return [process for process in [self.start(side) for side in sides] if self.ready(process, end)]

    def rounds(self, processes, end):
        """Measures in turn; a side that fails is left out from there on."""
        processes = list(processes)
        for number in range(self.options.rounds):
            if number and time.monotonic() > end:
                self.report.note(f"{self.name}: {number} of {self.options.rounds} rounds, for want of time")
                return
            for process in processes[::1 if number % 2 == 0 else -1]:
                try:
                    figures = process.measure(self.options.seconds, max(end, time.monotonic() + 30))
                    self.figures.setdefault(process.side, []).append(figures)
                    new = {side: summary(rows) for side, rows in self.figures.items()}
                    self.report.row(self.name, {**self.kept, **new})
                except Trouble as trouble:
                    self.drop(process.side, str(trouble))
                    processes.remove(process)
                    process.stop()

    def all_at_once(self, ours, others, end):
        """Small workloads."""
        running = self.begin(ours, end)
        with self.warming:
            running += self.begin(others, end - 10)
        self.rounds(running, end)

    def one_by_one(self, ours, others, end):
        """Large workloads: the first of our sides stays, the others come and go."""
        stays = self.begin(ours[:1], end)
        coming = [side for side in ours[1:] + others if side not in self.kept]
        together = self.machine.memory > ROOMY
        if together:
            waiting = {process.side: process for process in [self.start(side) for side in coming] if process}
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
                self.drop(side, f"it needs about {alone:.0f} s; {max(0, allowance - spent):.0f} s were left for it")
            else:
                others.append(side)
                spent += 6 * self.options.seconds * self.options.rounds
        try:
            (self.one_by_one if self.large else self.all_at_once)(ours, others, end)
        finally:
            self.machine.stop_all()
        return bool(self.figures or self.kept) and not self.cut


def check_losses(machine, report, workloads):
    """Losses of 50 steps beside the CPU's in f32 and in f64, and two deterministic runs beside each other."""
    for workload in workloads:
        try:
            cpu, gpu = machine.losses(workload, "CPU"), machine.losses(workload, machine.device)
            exact = machine.losses(workload, "CPU", "f64")
            report.check("losses " + workload, compare_losses(cpu["losses"], gpu["losses"], exact["losses"]))
            one, two = (machine.losses(workload, machine.device, deterministic=True) for _ in range(2))
            same = one["losses"] == two["losses"] and one["bits"] == two["bits"]
            report.check("bits " + workload, {"same": same, "bits": [one["bits"], two["bits"]]})
        except (Trouble, TypeError) as trouble:         # TypeError: a loss that is not finite is null
            report.check("losses " + workload, {"trouble": str(trouble)})


def measure_parts(machine, report, products):
    """Copies, a chain and products: Weber's and PyTorch's, twice in turn, the better of each."""
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
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--device", default="CUDA")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--rows", "--workloads", default=",".join(ROWS))
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--name", help="of the files; the device's unless said")
    parser.add_argument("--out", default=str(HERE / "results"))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--checks", default="W3,W5", help="of which workloads losses are compared")
    parser.add_argument("--parts", default="all", choices=["all", "bandwidth", "none"])
    parser.add_argument("--slice", type=int, choices=sorted(SLICES))
    parser.add_argument("--cache", help="a folder for what the others compile")
    parser.add_argument("--build", default=str(HERE.parent / "build"))
    parser.add_argument("--peer", action="append", default=[], metavar="SIDE=COMMAND",
                        help="a side more, or another program for one: it gets --workload, --dtype and --hold")
    known, _ = parser.parse_known_args()
    parser.set_defaults(**SLICES.get(known.slice, {}))
    options = parser.parse_args()
    options.resume = options.resume or options.slice is not None
    options.sides = [side for side in options.sides.split(",") if side]
    options.sides += [side for side in (peer.partition("=")[0] for peer in options.peer) if side not in options.sides]
    return options


def compiled_ahead(options, machine):
    """(side, workload, dtype) of the next slice's slow sides, where this is the second and they are here."""
    if options.slice != 2 or SLOW not in options.sides:
        return []
    names = [name.partition(":") for name in SLICES[3]["rows"].split(",")]
    return [(side, workload, dtype) for workload, _, dtype in names for side in sides_of(workload, [SLOW])
            if not machine.missing(side)]


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
    """By a signal."""


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
