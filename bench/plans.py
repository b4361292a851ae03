#!/usr/bin/env python3
"""Counts what the GPU plans of the workloads do, without a GPU.

  bench/plans.py BUILD [--only W4b,G1] [--dtypes f32,bf16] [--show N] [--update]

BUILD is a build folder with bench/weber_bench and the test doubles of CUDA.  The doubles run dry
(tests/doubles/cuda/vgpu.h): plans of any size are built as for an H100, and compute nothing.
Prints a line for each workload and dtype, and compares it with bench/results/plans.md: more nodes,
bytes or memory than there is a failure.  --update writes that file.  --show lists the kernels that
move the most bytes.  G1-96 is G1 with a batch of 96, in bf16 only, on a device of 1 TB.

  nodes    nodes of the CUDA graph of a training step
  chain    nodes of the longest chain of this graph, each of which waits for the one before
  kernels  steps of the plan
  moved    bytes that the kernels read and write, each element of an operand or result once, and
           again where a later loop over a long row, which is not kept on the chip, loads it again
  library  the part of `moved` of products, convolutions, attention and rows by index; the rest is
           of fused kernels
  least    bytes of the plan's inputs, results and written variables, each once
  memory   device memory at most, with parameters and the optimiser's state
  estimate bytes or FLOPs of each kernel at the rates below, whichever takes longer, plus the time
           of each node of the chain

If NVRTC and NVIDIA's tools are installed, also of our own kernels (plan_texts.py):

  registers  of the kernel with the most
  spilling   kernels that spill registers
  load       mean bytes of a load
  each       mean instructions a byte, both weighted by the bytes that the kernels move
  issue      the estimate, if no kernel is faster than its instructions are issued
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

import plan_texts

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "bench" / "results" / "plans.md"
LARGE = ("G1-96", "G1-256", "G2-96", "G2-256")      # with their batch
WORKLOADS = ("W1", "W2", "W3", "W4a", "W4b", "W5", "W6", "G1", "G2", *LARGE)
DTYPES = ("f32", "tf32", "bf16")
MEMORY = {False: 80 << 30, True: 1 << 40}           # of the device; True: of LARGE

# Stated rates of an H100 that a good kernel reaches: bytes and FLOPs a second, seconds a node.
BYTES = 2.8e12
FLOPS = {"f32": 50e12, "tf32": 300e12, "bf16": 600e12}
NODE = 1.5e-6

# Decimals of each column.
COLUMNS = {"nodes": 0, "chain": 0, "kernels": 0, "moved": 2, "library": 2, "least": 2, "memory": 2,
           "estimate": 0, "registers": 0, "spilling": 0, "load": 1, "each": 1, "issue": 0}
BOUNDED = ("nodes", "chain", "moved", "memory")


def run(build, workload, dtype):
    """Returns the lines that a few dry steps log."""
    doubles = build / "tests" / "vgpu"
    name, *batch = workload.split("-")
    with tempfile.TemporaryDirectory() as cache:
        env = os.environ | {
            "WEBER_CUDA_LIBRARY": str(doubles / "libcuda.so.1"), "WEBER_CUDA_PATH": str(doubles),
            "WEBER_CACHE_DIR": cache, "VGPU_DRY": "1", "VGPU_DEVICES": "1",
            "VGPU_MEMORY": str(MEMORY[workload in LARGE]), "WEBER_DEBUG": "plan,kernel"}
        done = subprocess.run(
            [build / "bench" / "weber_bench", "--workload", name, "--device", "CUDA", "--mode",
             "weber-compiled", "--dtype", dtype, "--losses", "6",
             *(["--batch", *batch] if batch else [])],
            env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{workload} {dtype}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stderr.splitlines()


def largest_plan(lines):
    """Returns the lines of the plan with the most kernels, and the bytes in its heading."""
    plans = []
    for line in lines:
        if re.search(r"plan: \d+ kernels", line):
            plans.append([])
        elif plans and re.match(r"└ bytes: |\[ Debug: +\d+ ", line):
            plans[-1].append(line)
    plan = max(plans, key=len)
    sizes = re.search(r"inputs (\d+), results (\d+)", plan[0])
    return [line for line in plan if " reads " in line], sum(map(int, sizes.groups()))


def kernel(line, dtype):
    """Returns the bytes and the estimated seconds of a kernel."""
    read, written = map(int, re.search(r"reads (\d+), writes (\d+)", line).groups())
    flops = re.search(r"writes \d+, (\S+) FLOP", line)
    moved = read + written
    return moved, max(moved / BYTES, float(flops[1]) / FLOPS[dtype] if flops else 0)


def measure(build, workload, dtype, show, compiler):
    lines = run(build, workload, dtype)
    plan, least = largest_plan(lines)
    report = re.search(r"vgpu: (\d+) nodes in the largest graph, (\d+) bytes .*, (\d+) nodes in"
                       " the longest chain", "\n".join(lines))
    costs = [kernel(line, dtype) for line in plan]
    chain = int(report[3])
    made = [None] * len(plan)
    if not compiler.missing:
        made = plan_texts.figures(compiler, build / "plan-texts", lines)
    order = sorted(range(len(plan)), key=lambda i: (-costs[i][0], i))
    for i in order[:show]:
        f = made[i]
        print(f"{costs[i][0] / 1e6:10.2f} MB  {plan[i].split('  reads')[0][8:]}"
              + (f"  {f['registers']} registers, {f['spills']} bytes spilled, "
                 f"{f['moving_load']:.1f} bytes a load, {f['a_byte']:.1f} instructions a byte"
                 if f else ""))
    fused = sum(m for (m, _), line in zip(costs, plan) if re.search(r"\d (fused|copy) ", line))
    total = sum(m for m, _ in costs)
    row = {"nodes": int(report[1]), "chain": chain, "kernels": len(plan), "moved": total / 1e6,
           "library": (total - fused) / 1e6, "least": least / 1e6, "memory": int(report[2]) / 1e6,
           "estimate": 1e6 * (sum(t for _, t in costs) + chain * NODE)}
    return row | (plan_texts.summary(made, costs, chain * NODE) if any(made) else {})


def written(name, m):
    numbers = [f"{m[c]:.{digits}f}" if c in m else "" for c, digits in COLUMNS.items()]
    return re.sub(r" +\|", " |", f"| {name} | {' | '.join(numbers)} |")


def known():
    """Returns the rows of the committed table, by name, and the compiler that it states."""
    rows, compiler, columns = {}, None, []
    for line in TABLE.read_text().splitlines() if TABLE.exists() else ():
        words = [w.strip() for w in line.strip("|").split("|")]
        if line.startswith("Compiler:"):
            compiler = line.split(maxsplit=1)[1].rstrip(".")
        elif words[0] == "workload":
            columns = words[1:]
        elif len(words) == len(columns) + 1 and re.fullmatch(r"\S+ \S+", words[0]):
            rows[words[0]] = {c: float(w) for c, w in zip(columns, words[1:]) if w}
    return rows, compiler


HEAD = "# GPU plans, counted without a GPU\n\n" + textwrap.fill(
    "`./run plans --update` writes this file, and `./run plans` compares with it. No figure was "
    "measured on a GPU: dry test doubles of CUDA, cuBLASLt and cuDNN accept each call and compute "
    "nothing. Bytes are in MB (1e6). The estimate is in us for a step, at "
    f"{BYTES / 1e12:.1f} TB/s, "
    + ", ".join(f"{rate / 1e12:.0f} ({dtype})" for dtype, rate in FLOPS.items()) +
    f" TFLOP/s, and {1e6 * NODE:.1f} us for a node of the longest chain. `bench/plans.py` explains "
    "the columns.", 100
) + "\n\nCompiler: {}.\n\n" + f"| workload | {' | '.join(COLUMNS)} |\n" + "| --- " * (
    len(COLUMNS) + 1) + "|\n"


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("build", type=pathlib.Path)
    a.add_argument("--only", default=",".join(WORKLOADS))
    a.add_argument("--dtypes", default=",".join(DTYPES))
    a.add_argument("--show", type=int, default=0, metavar="N")
    a.add_argument("--update", action="store_true")
    a = a.parse_args()
    (table, state), rows, worse = known(), [], []
    compiler, bounded = plan_texts.compiler_of(a.build.resolve()), BOUNDED
    if compiler.missing:
        print(f"No figures of our own kernels: {compiler.missing}")
    elif compiler.name == state:
        bounded += ("spilling",)
    print(HEAD.splitlines()[-2])
    for workload in a.only.split(","):
        for dtype in a.dtypes.split(","):
            if workload in LARGE and dtype != "bf16":
                continue
            name = f"{workload} {dtype}"
            m = measure(a.build.resolve(), workload, dtype, a.show, compiler)
            rows.append(written(name, m))
            print(rows[-1], flush=True)
            if name not in table and not a.update:
                worse.append(f"{name}: no row in {TABLE.relative_to(ROOT)}")
            for column in bounded if name in table else ():
                if m[column] > table[name].get(column, m[column]) + 0.005:
                    worse.append(f"{name}: {column} {m[column]:.10g}, in the table "
                                 f"{table[name][column]:.10g}")
    if a.update:
        TABLE.write_text(HEAD.format(compiler.name or "none") + "\n".join(rows) + "\n")
    elif worse:
        sys.exit("\n".join(worse))


if __name__ == "__main__":
    main()
