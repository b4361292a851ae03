#!/usr/bin/env python3
"""Tests scale_model.py: on measurements that follow the model up to 3 %, with faults planted in
them, and on a document whose table is changed.  Prints one line for each check."""
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import scale_model as model                             # noqa: E402

TOOL = HERE / "scale_model.py"
DOCUMENT = HERE.parent / "docs/distributed.md"
# Parameters that the workloads' models have: bench/weber_bench prints them.
PARAMETERS = {"W2": 203530, "W3": 44426, "W4a": 814122, "W4b": 269722, "W5": 818048, "W6": 100106}
# t0 and t1 (us) and the batch of the measurements that are made up
ALONE = {"W2": (60, 8, 64), "W4a": (900, 1500, 32), "W4b": (700, 2300, 32), "W5": (800, 7300, 8),
         "W6": (300, 230, 32)}


def expect(condition, what, output=""):
    if not condition:
        sys.exit(f"FAILED: {what}\n{output}")
    print(f"ok: {what}")


def measurements():
    made = model.Machine(2, 0.7, 2.4, 8, 1e-4, 2e-4, 32e6, 0.08, 0.7, 30)
    noise, names = random.Random(1), []
    for ranks in range(2, 8):
        names += [f"reduce {ranks} {size}" for size in (4, 65536, 1000000, 5000000, 25000000)]
    for name, (_, _, batch) in ALONE.items():
        names += [f"step 1 {name} {part}" for part in (batch, batch // 2, batch // 4, batch // 7)]
        names += [f"step {ranks} {name} {batch // ranks}" for ranks in range(2, 8)]
    names += [f"network {name} {ALONE[name][2]} 100 {bucket}" for name in ("W4a", "W5")
              for bucket in (500000, 25000000)]
    fit = model.Fit.__new__(model.Fit)
    fit.machine, fit.alone = made, {name: line[:2] for name, line in ALONE.items()}
    rows = []
    for name in names:
        row = {"point": name, "us": 0, "spread": 0.01}
        row["us"] = fit.predict(model.Point(row)) * noise.uniform(0.97, 1.03)
        rows.append(row)
    about = {"machine": "made up", "mpi": "none", "cores": 2}
    return {"about": about, "command": "none", "points": rows}


def checked(folder, data):
    path = Path(folder) / "data.json"
    path.write_text(json.dumps(data))
    done = subprocess.run([sys.executable, str(TOOL), str(path), "--check"], capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stdout + done.stderr


for name, count in PARAMETERS.items():
    expect(model.parameters(name) == count, f"{name} has {count} parameters")
expect(abs(model.flops("ResNet-50") / 3 / 8.2e9 - 1) < 0.02, "FLOPs of ResNet-50")
# As WEBER_DEBUG=dist counts the operations of a step.
for name, limit, count in (("W4a", 500000, 6), ("W4b", 200000, 7), ("W5", 500000, 9),
                           ("W6", 80000, 3)):
    parts = model.buckets(name, limit)
    shares = [share for share, _ in parts]
    expect(len(parts) == count and sum(size for _, size in parts) == 4 * PARAMETERS[name] + 4
           and shares == sorted(shares), f"{name} has {count} buckets of {limit} bytes", str(parts))
serial = model.step_time(100, 10, [(0.5, 1), (1, 1)], lambda size: 30, False)
expect(serial == 170, f"without overlap all parts follow each other: {serial}")
hidden = model.step_time(100, 10, [(0.5, 1), (1, 1)], lambda size: 30, True)
expect(hidden == 140, f"the first bucket is hidden, the last is not: {hidden}")
queued = model.step_time(100, 10, [(0.5, 1), (1, 1)], lambda size: 70, True)
expect(queued == 200, f"the last bucket waits for the first: {queued}")

with tempfile.TemporaryDirectory() as folder:
    code, output = checked(folder, measurements())
    expect(code == 0 and output.count("; 0 of them are more") == 3,
           "what follows the model is predicted", output)
    for change, spoiled in (("a held-out allreduce", "reduce 6 25000000"),
                            ("a held-out step", "step 3 W4b 10"),
                            ("a step over a network", "network W5 8 100 500000")):
        data = measurements()
        for row in data["points"]:
            if row["point"] == spoiled:
                row["us"] *= 1.3
        code, output = checked(folder, data)
        expect(code == 1 and "1 of them are more" in output, f"{change} that is 30 % off fails",
               output)
    data = measurements()
    data["points"] = [row for row in data["points"] if row["point"] != "step 3 W4b 10"]
    code, output = checked(folder, data)
    expect(code == 1 and "step 3 W4b 10 is missing" in output, "a point that is missing fails",
           output)

    def compared(path):
        return subprocess.run([sys.executable, str(TOOL), "--document", str(path)],
                              capture_output=True, text=True, check=False).returncode

    expect(compared(DOCUMENT) == 0, "the document has the table that the tool makes")
    copy, text = Path(folder) / "copy.md", DOCUMENT.read_text()
    copy.write_text(text.replace("| GPT-2 124M | 64 |", "| GPT-2 124M | 63 |", 1))
    expect(copy.read_text() != text and compared(copy) == 1, "a changed table is found")
