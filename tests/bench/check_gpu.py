#!/usr/bin/env python3
"""bench/gpu.py from end to end, without a GPU and without the libraries it compares with.

    check_gpu.py BUILD_FOLDER

Runs it on OpenCL, or on the CPU where that does not work, beside programs that answer as its sides do: one with figures
that are known, one that ends with a message, one that is never ready, one that is missing (side.py).  Then the slices of
`./run gpu`, on the doubles of CUDA where they are built.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUILD = Path(sys.argv[1]).resolve()
ROOT = Path(__file__).resolve().parents[2]
GPU = ROOT / "bench" / "gpu.py"
SIDE = f"{sys.executable} {ROOT / 'tests' / 'bench' / 'side.py'}"
sys.path.insert(0, str(GPU.parent))
from gpu_report import compare_losses                   # noqa: E402  (found by the line above)


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(f"ok: {what}")


def run(folder, *more):
    command = [sys.executable, str(GPU), "--device", device, "--build", str(BUILD), "--rows", "W1,W2", "--rounds", "2", "--seconds",
               "0.02", "--minutes", "4", "--checks", "W3", "--parts", "bandwidth", "--sides", "weber-compiled,weber,jax", "--out",
               str(folder), "--name", "found", "--peer", f"torch-graph={SIDE}", "--peer", f"broken={SIDE} --broken", "--peer",
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
    expect(found["checks"]["losses W3"]["first"] <= 1e-4, "ten losses of LeNet are those of the CPU")
    expect(found["checks"]["losses W3"]["share"] <= 1, "fifty are as near to f64 as the CPU's")
    expect(found["checks"]["bits W3"]["same"] is True, "two deterministic runs are alike")
    expect(found["parts"]["weber"]["copy"] > 0 and found["parts"]["weber"]["chain"] > 0, "copies and a chain were measured")
    expect("1e+06" not in page and "1000.00 ms" in page, "times are for people")
    if device != "CPU":
        expect("W1: peak memory at most PyTorch's least" in page, "memory beside a side of PyTorch's")
        expect(found["rows"]["W1"]["weber-compiled"]["host_us"] > 0, "the host's share was measured")


def check_second(folder):
    """Goes on from the first: W1 and W2 are kept, and a side that is never ready is ended."""
    before = json.loads((folder / "found.json").read_text())
    code, found, page = run(folder, "--resume", "--rows", "W1,W2,W7a", "--minutes", "0.4", "--peer", f"late={SIDE} --late")
    expect(code == 0 and found["rows"]["W1"] == before["rows"]["W1"], "--resume keeps what is there")
    expect("weber-compiled" in found["rows"]["W7a"] and len(found["runs"]) == 2, "--resume does the rest")
    why = [entry["why"] for entry in found["dropped"] if entry["side"] == "late"]
    expect(len(why) == 1 and ("not ready" in why[0] or "needs about" in why[0]), "a side that is never ready")
    expect(page.count("    bench/gpu.py") == 2, "both commands are on the page")


def check_losses():
    """What the goals are, of losses that are known."""
    exact = [1 / (1 + step) for step in range(50)]
    cpu = [e * (1 + 1e-7 * 1.25 ** step) for step, e in enumerate(exact)]       # parts from it, as with Adam: 0.6 % in the end
    parted = compare_losses(cpu, [2 * e - a for a, e in zip(cpu, exact)], exact)
    expect(parted["first"] <= 1e-4 and parted["share"] <= 1, "a run that parts from f64 as the CPU's does is right")
    far = compare_losses(cpu, [e + 5 * (a - e) for a, e in zip(cpu, exact)], exact)
    expect(far["share"] > 1, "one that parts five times as far is not")
    early = compare_losses(cpu, [a * (1 + 2e-4 * (step == 5)) for step, a in enumerate(cpu)], exact)
    expect(early["first"] > 1e-4, "nor one with a wrong loss among the first ten")


def slice_of(folder, number, seconds=200, **more):
    command = [str(ROOT / "run"), "gpu", "--dry", "--build", str(BUILD), "--results", str(folder), "--slice", str(number)]
    environment = dict(os.environ, WEBER_COMMIT="abc", WEBER_SLICE_SECONDS=str(seconds), SIDE_LOG=str(folder / "log"), **more)
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False, env=environment, cwd="/")
    print(done.stdout + done.stderr)
    return done


def check_slice_cut(folder):
    """TERM to ./run itself, while something is measured."""
    command = [str(ROOT / "run"), "gpu", "--dry", "--build", str(BUILD), "--results", str(folder), "--slice", "2"]
    running = subprocess.Popen(command, env=dict(os.environ, SIDE_LOG=str(folder / "log")), stdout=subprocess.DEVNULL)
    waited = time.monotonic() + 100
    kept = folder / "dry.json"
    while not (kept.exists() and json.loads(kept.read_text())["rows"]) and time.monotonic() < waited:
        time.sleep(0.1)
    running.terminate()
    expect(running.wait(30) == 143, "a slice that is told to end does so")
    found = json.loads(kept.read_text())
    expect(any("ended by SIGTERM" in note for note in found["notes"]) and found["rows"], "and keeps what it had measured")


def check_slices(folder):
    done = slice_of(folder, 1)
    steps = json.loads((folder / "steps.json").read_text())
    expect(done.returncode == 0 and len(steps["losses"]) == 3, "slice 1: three steps")
    expect("PASSED" in (folder / "tree_walk.log").read_text(), "slice 1: a test")
    expect("test double" in done.stdout, "it is said that this is no GPU")
    done = slice_of(folder, 2)
    found = json.loads((folder / "dry.json").read_text())
    expect(done.returncode == 0 and found["done"] == ["W1", "W2"], "slice 2: small rows")
    log = [line.split() for line in (folder / "log").read_text().splitlines()]
    measured = [(float(a), float(b)) for what, a, b in log if what == "measured"]
    ahead = [float(a) for what, a, _ in log if what == "ahead"]
    expect({name for what, _, name in log if what == "ahead"} == {"G1"}, "slice 2: what is long to compile is compiled ahead")
    expect(not any(a + 0.05 < t < b for t in ahead for a, b in measured), "slice 2: but never while something is timed")
    done = slice_of(folder, 3)
    found = json.loads((folder / "dry.json").read_text())
    page = (folder / "dry.md").read_text()
    expect(done.returncode == 0 and found["done"][:2] == ["W1", "W2"] and "G2:tf32" in found["done"], "slice 3 goes on")
    expect("| W2 |" in page and "| G1:tf32 |" in page, "slice 3: rows of both slices are on the page")
    expect((folder / "tests" / "tree_walk_cuda" / "results.xml").exists() and "0 failed" in done.stdout, "slice 3: tests")
    before = (folder / "tests" / "tree_walk_cuda" / "results.xml").stat().st_mtime_ns
    again = slice_of(folder, 3)
    expect(json.loads((folder / "dry.json").read_text())["rows"] == found["rows"], "slice 3 again: nothing is measured anew")
    expect(again.returncode == 0 and (folder / "tests" / "tree_walk_cuda" / "results.xml").stat().st_mtime_ns == before,
           "slice 3 again: nothing is tested anew")


def check_cut(folder):
    """Told to end, it has what it had measured, and says so."""
    command = [sys.executable, str(GPU), "--device", device, "--build", str(BUILD), "--rows", "W1,W2", "--rounds", "1", "--seconds",
               "0.02", "--checks", "", "--parts", "none", "--sides", "", "--out", str(folder), "--name", "cut",
               "--peer", f"weber-compiled={SIDE}", "--peer", f"late={SIDE} --late"]
    running = subprocess.Popen(command, env=dict(os.environ, SIDE_LOG=str(folder / "log")), stdout=subprocess.DEVNULL)
    waited = time.monotonic() + 60
    while not (folder / "cut.json").exists() and time.monotonic() < waited:
        time.sleep(0.2)
    time.sleep(2)
    running.terminate()
    expect(running.wait(30) == 1, "the exit status of one that was cut short says that not all was measured")
    notes = json.loads((folder / "cut.json").read_text())["notes"]
    expect(any("ended by SIGTERM" in note for note in notes), "one that was cut short says so")


listing = subprocess.run([str(BUILD / "weber"), "devices"], capture_output=True, text=True, timeout=60, check=False).stdout
device = "OpenCL" if any(line.split()[:2] == ["OpenCL", "works"] for line in listing.splitlines()) else "CPU"
with tempfile.TemporaryDirectory() as name:
    check_losses()
    check_first(Path(name))
    check_second(Path(name))
with tempfile.TemporaryDirectory() as name:
    check_cut(Path(name))
if (BUILD / "tests" / "vgpu" / "libcuda.so.1").exists():
    with tempfile.TemporaryDirectory() as name:
        check_slice_cut(Path(name))
    with tempfile.TemporaryDirectory() as name:
        check_slices(Path(name))
