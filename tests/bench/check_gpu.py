#!/usr/bin/env python3
"""Tests bench/gpu.py from end to end, without a GPU, PyTorch and JAX.

    check_gpu.py BUILD_FOLDER

Runs gpu.py on OpenCL, or on the CPU if OpenCL does not work, with side.py in the place of the
other sides: one with known figures, one that ends with a message, one that is never ready, and one
whose program does not exist.  Then runs the slices of `./run gpu` on the test doubles of CUDA, if
they are built.
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
from gpu_report import compare_losses                   # noqa: E402  (needs the line above)


def expect(condition, check):
    if not condition:
        sys.exit(f"FAILED: {check}")
    print(f"ok: {check}")


def run(folder, *more):
    """(exit status, report as JSON, report as a page) of gpu.py"""
    command = [sys.executable, str(GPU), "--device", device, "--build", str(BUILD),
               "--rows", "W1,W2", "--rounds", "2", "--seconds", "0.02", "--minutes", "4",
               "--checks", "W3", "--parts", "bandwidth", "--sides", "weber-compiled,weber,jax",
               "--out", str(folder), "--name", "found", "--peer", f"torch-graph={SIDE}",
               "--peer", f"broken={SIDE} --broken", "--peer", f"jax={folder / 'nowhere'}", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    print(done.stdout + done.stderr)
    report = json.loads((folder / "found.json").read_text())
    return done.returncode, report, (folder / "found.md").read_text()


def check_first(folder):
    code, found, page = run(folder)
    expect(code == 0, "the exit status is 0 if every row was measured")
    for row in ("W1", "W2"):
        sides = found["rows"][row]
        expect(set(sides) == {"weber-compiled", "weber", "torch-graph"},
               f"{row}: exactly the sides that work are in the report")
        expect(sides["torch-graph"]["step_us"] == 1e6 and sides["torch-graph"]["runs"] == 2,
               f"{row}: the report has the figures that the side printed")
        expect(0 < sides["weber-compiled"]["step_us"] < 1e6, f"{row}: Weber was measured")
        expect(f"{row}: step at most 0.8 of the best peer's | 0." in page,
               f"{row}: its goal is on the page")
    reasons = {(entry["row"], entry["side"]): entry["reason"] for entry in found["dropped"]}
    expect(reasons[("W2", "broken")] == "it is broken",
           "the reason of a side that ended is its own message")
    expect("nowhere" in reasons[("W1", "jax")], "a side that cannot be started is reported")
    expect("it is broken" in page, "sides that were left out are on the page")
    expect(found["checks"]["losses W3"]["first"] <= 1e-4,
           "the first ten losses of LeNet agree with the CPU's")
    expect(found["checks"]["losses W3"]["share"] <= 1,
           "fifty losses are as close to f64 as the CPU's")
    expect(found["checks"]["bits W3"]["same"] is True, "two deterministic runs are equal")
    expect(found["parts"]["weber"]["copy"] > 0 and found["parts"]["weber"]["chain"] > 0,
           "copies and a chain were measured")
    expect("1e+06" not in page and "1000.00 ms" in page, "times are readable on the page")
    if device != "CPU":
        expect("W1: peak memory at most PyTorch's least" in page,
               "memory is compared with a side of PyTorch's")
        expect(found["rows"]["W1"]["weber-compiled"]["host_us"] > 0,
               "the host's time per step was measured")


def check_second(folder):
    """Continues the first run: W1 and W2 are kept, and a side that is never ready is ended."""
    before = json.loads((folder / "found.json").read_text())
    code, found, page = run(folder, "--resume", "--rows", "W1,W2,W7a", "--minutes", "0.4",
                            "--peer", f"late={SIDE} --late")
    expect(code == 0 and found["rows"]["W1"] == before["rows"]["W1"],
           "--resume keeps the results of the first run")
    expect("weber-compiled" in found["rows"]["W7a"] and len(found["runs"]) == 2,
           "--resume measures the rest")
    reason = [entry["reason"] for entry in found["dropped"] if entry["side"] == "late"]
    expect(len(reason) == 1 and ("not ready" in reason[0] or "needs about" in reason[0]),
           "a side that is never ready is reported once")
    expect(page.count("    bench/gpu.py") == 2, "both commands are on the page")


def check_losses():
    """compare_losses with known losses."""
    exact = [1 / (1 + step) for step in range(50)]
    # diverges as with Adam: by 0.6 % at the end
    cpu = [e * (1 + 1e-7 * 1.25 ** step) for step, e in enumerate(exact)]
    mirrored = compare_losses(cpu, [2 * e - a for a, e in zip(cpu, exact)], exact)
    expect(mirrored["first"] <= 1e-4 and mirrored["share"] <= 1,
           "a run passes whose error against f64 is as large as the CPU's")
    far = compare_losses(cpu, [e + 5 * (a - e) for a, e in zip(cpu, exact)], exact)
    expect(far["share"] > 1, "a run fails whose error is five times as large")
    wrong = [a * (1 + 2e-4 * (step == 5)) for step, a in enumerate(cpu)]
    early = compare_losses(cpu, wrong, exact)
    expect(early["first"] > 1e-4, "a run fails that has a wrong loss among the first ten")


def slice_command(folder, number):
    return [str(ROOT / "run"), "gpu", "--dry", "--build", str(BUILD), "--results", str(folder),
            "--slice", str(number)]


def slice_of(folder, number, seconds=200, **more):
    environment = dict(os.environ, WEBER_COMMIT="abc", WEBER_SLICE_SECONDS=str(seconds),
                       SIDE_LOG=str(folder / "log"), **more)
    done = subprocess.run(slice_command(folder, number), capture_output=True, text=True,
                          timeout=250, check=False, env=environment, cwd="/")
    print(done.stdout + done.stderr)
    return done


def check_slice_cut(folder):
    """./run gets TERM during a measurement."""
    running = subprocess.Popen(slice_command(folder, 2), stdout=subprocess.DEVNULL,
                               env=dict(os.environ, SIDE_LOG=str(folder / "log")))
    waited = time.monotonic() + 100
    kept = folder / "dry.json"
    while not (kept.exists() and json.loads(kept.read_text())["rows"]):
        if time.monotonic() >= waited:
            break
        time.sleep(0.1)
    running.terminate()
    expect(running.wait(30) == 143, "a slice ends when it gets TERM")
    found = json.loads(kept.read_text())
    expect(any("ended by SIGTERM" in note for note in found["notes"]) and found["rows"],
           "and it keeps its measurements")


def check_slices(folder):
    done = slice_of(folder, 1)
    steps = json.loads((folder / "steps.json").read_text())
    expect(done.returncode == 0 and len(steps["losses"]) == 3, "slice 1: three steps")
    expect("PASSED" in (folder / "tree_walk.log").read_text(), "slice 1: a test passes")
    expect("test double" in done.stdout, "slice 1 reports that the device is a test double")
    done = slice_of(folder, 2)
    found = json.loads((folder / "dry.json").read_text())
    expect(done.returncode == 0 and found["done"] == ["W1", "W2"], "slice 2: small rows")
    log = [line.split() for line in (folder / "log").read_text().splitlines()]
    measured = [(float(a), float(b)) for event, a, b in log if event == "measured"]
    ahead = [float(a) for event, a, _ in log if event == "ahead"]
    expect({name for event, _, name in log if event == "ahead"} == {"G1"},
           "slice 2 compiles ahead for the large workload that compiles longest")
    expect(not any(a + 0.05 < t < b for t in ahead for a, b in measured),
           "slice 2 never compiles during a measurement")
    done = slice_of(folder, 3)
    found = json.loads((folder / "dry.json").read_text())
    page = (folder / "dry.md").read_text()
    expect(done.returncode == 0 and found["done"][:2] == ["W1", "W2"]
           and "G2:tf32" in found["done"], "slice 3 continues slice 2")
    expect("| W2 |" in page and "| G1:tf32 |" in page,
           "slice 3: rows of both slices are on the page")
    results = folder / "tests" / "tree_walk_cuda" / "results.xml"
    expect(results.exists() and "0 failed" in done.stdout, "slice 3: tests pass")
    before = results.stat().st_mtime_ns
    again = slice_of(folder, 3)
    expect(json.loads((folder / "dry.json").read_text())["rows"] == found["rows"],
           "slice 3 again: no row is measured again")
    expect(again.returncode == 0 and results.stat().st_mtime_ns == before,
           "slice 3 again: no test runs again")


def check_cut(folder):
    """gpu.py gets TERM: it keeps its measurements and reports the signal."""
    command = [sys.executable, str(GPU), "--device", device, "--build", str(BUILD),
               "--rows", "W1,W2", "--rounds", "1", "--seconds", "0.02", "--checks", "",
               "--parts", "none", "--sides", "", "--out", str(folder), "--name", "cut",
               "--peer", f"weber-compiled={SIDE}", "--peer", f"late={SIDE} --late"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                               env=dict(os.environ, SIDE_LOG=str(folder / "log")))
    waited, log = time.monotonic() + 60, folder / "log"
    while not (log.exists() and "late" in log.read_text()) and time.monotonic() < waited:
        time.sleep(0.2)
    running.terminate()
    expect(running.wait(30) == 1, "the exit status is 1 if not every row was measured")
    notes = json.loads((folder / "cut.json").read_text())["notes"]
    expect(any("ended by SIGTERM" in note for note in notes), "the report names the signal")


listing = subprocess.run([str(BUILD / "weber"), "devices"], capture_output=True, text=True,
                         timeout=60, check=False).stdout
works = [line.split()[0] for line in listing.splitlines() if line.split()[1:2] == ["works"]]
device = "OpenCL" if "OpenCL" in works else "CPU"
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
