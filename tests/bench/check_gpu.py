#!/usr/bin/env python3
"""bench/gpu.py from end to end, without a GPU and without the libraries it compares with.

    check_gpu.py BUILD_FOLDER

Runs it on OpenCL, or on the CPU where that does not work, beside programs that answer as its sides do: one with figures
that are known, one that ends with a message, one that is never ready, one that is missing.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SIDE = '''
import json, sys, time
if "--broken" in sys.argv:
    sys.exit("it is broken")
if "--late" in sys.argv:
    time.sleep(600)
print("noise"); print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    print(json.dumps({"step_us": 1e6, "step_us_p10": 9e5, "samples_per_s": 64.0, "peak_gpu_mb": 12345.0, "host_us": 7.5,
                      "batch": 64, "parameters": 1, "first_loss": 1.0, "last_loss": 0.5}), flush=True)
'''
BUILD = Path(sys.argv[1]).resolve()
GPU = Path(__file__).resolve().parents[2] / "bench" / "gpu.py"


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(f"ok: {what}")


def run(folder, *more):
    side = f"{sys.executable} {folder / 'side.py'}"
    command = [sys.executable, str(GPU), "--device", device, "--build", str(BUILD), "--rows", "W1,W2", "--rounds", "2", "--seconds",
               "0.02", "--minutes", "4", "--checks", "W3", "--parts", "bandwidth", "--sides", "weber-compiled,weber,jax", "--out",
               str(folder), "--name", "found", "--peer", f"torch-graph={side}", "--peer", f"broken={side} --broken", "--peer",
               f"jax={folder / 'nowhere'}", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    print(done.stdout + done.stderr)
    return done.returncode, json.loads((folder / "found.json").read_text()), (folder / "found.md").read_text()


def check_first(folder):
    code, found, page = run(folder)
    expect(code == 0, "the exit status says that every row was measured")
    for row in ("W1", "W2"):
        sides = found["rows"][row]
        expect(set(sides) == {"weber-compiled", "weber", "torch-graph"}, f"{row}: the sides that work, and no others")
        expect(sides["torch-graph"]["step_us"] == 1e6 and sides["torch-graph"]["runs"] == 2, f"{row}: a side's figures are its own")
        expect(0 < sides["weber-compiled"]["step_us"] < 1e6, f"{row}: Weber was measured")
        expect(f"{row}: step at most 0.8 of the best peer's | 0." in page, f"{row}: its goal is on the page")
    reasons = {(entry["row"], entry["side"]): entry["why"] for entry in found["dropped"]}
    expect(reasons[("W2", "broken")] == "it is broken", "what a side that ended had said")
    expect("nowhere" in reasons[("W1", "jax")], "a side that cannot be started")
    expect("it is broken" in page, "what was left out is on the page")
    expect(found["checks"]["losses W3"]["worst"] <= 1e-4, "losses of LeNet are those of the CPU")
    expect(found["checks"]["bits W3"]["same"] is True, "two deterministic runs are alike")
    expect(found["parts"]["weber"]["copy"] > 0 and found["parts"]["weber"]["chain"] > 0, "copies and a chain were measured")
    expect("1e+06" not in page and "1000.00 ms" in page, "times are for people")
    if device != "CPU":
        expect("W1: peak memory at most PyTorch's least" in page, "memory beside a side of PyTorch's")
        expect(found["rows"]["W1"]["weber-compiled"]["host_us"] > 0, "the host's share was measured")


def check_second(folder):
    """Goes on from the first: W1 and W2 are kept, and a side that is never ready is ended."""
    side = f"{sys.executable} {folder / 'side.py'}"
    before = json.loads((folder / "found.json").read_text())
    code, found, page = run(folder, "--resume", "--rows", "W1,W2,W7a", "--minutes", "0.4", "--peer", f"late={side} --late")
    expect(code == 0 and found["rows"]["W1"] == before["rows"]["W1"], "--resume keeps what is there")
    expect("weber-compiled" in found["rows"]["W7a"] and len(found["runs"]) == 2, "--resume does the rest")
    why = [entry["why"] for entry in found["dropped"] if entry["side"] == "late"]
    expect(len(why) == 1 and ("not ready" in why[0] or "needs about" in why[0]), "a side that is never ready")
    expect(page.count("    bench/gpu.py") == 2, "both commands are on the page")


listing = subprocess.run([str(BUILD / "weber"), "devices"], capture_output=True, text=True, timeout=60, check=False).stdout
device = "OpenCL" if any(line.split()[:2] == ["OpenCL", "works"] for line in listing.splitlines()) else "CPU"
with tempfile.TemporaryDirectory() as name:
    (Path(name) / "side.py").write_text(SIDE)
    check_first(Path(name))
    check_second(Path(name))
