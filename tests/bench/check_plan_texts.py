#!/usr/bin/env python3
"""Compares what bench/plan_texts.py reads in a log, and its columns, with numbers made by hand."""
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
import plan_texts       # noqa: E402

LOG = """\
┌ Debug: kernel: cuda:0: --gpu-architecture=sm_90 (text 0a)
│ first
│ second
└ }
[ Debug: kernel: cuda:0: step fused [3] f32; text 0a, fused, 256 items
┌ Debug: plan: 1 kernels, the last 0 write variables
└ bytes: arena 0
[ Debug: kernel: cuda:0: step matmul [3,4] f32
[ Debug: kernel: cuda:0: step fused [9] f32; text 0b, fused, 512 items; text 0a, fused, 256 items
┌ Debug: plan: 2 kernels, the last 1 write variables
└ bytes: arena 0
[ Debug: kernel: cuda:0: step fused [5] f32; text 0a, fused, 256 items
┌ Debug: plan: 1 kernels, the last 0 write variables
└ bytes: arena 0
"""


def expect(what, found, wanted):
    assert found == wanted, f"{what}: {found}, not {wanted}"


def main():
    texts, plan = plan_texts.read_log(LOG.splitlines())
    expect("texts", texts, {"0a": "first\nsecond\n}"})
    expect("the largest plan", plan, [[], [("0b", "fused", 512), ("0a", "fused", 256)]])
    slow = {"registers": 40, "spills": 8, "moving_load": 2, "a_byte": 100.0, "macs": 0}
    fast = slow | {"registers": 20, "spills": 0, "moving_load": 16, "a_byte": 1.0}
    moved = plan_texts.ISSUED / 100         # the slow kernel issues for a second
    m = plan_texts.summary([None, slow, fast], [(1, 2.0), (moved, 0.25), (3 * moved, 0.5)], 1.0)
    expect("columns", m, {"registers": 40, "spilling": 1, "load": (2 + 3 * 16) / 4,
                          "each": (100 + 3) / 4, "issue": 1e6 * (2.0 + 1.0 + 0.5 + 1.0)})
    expect("a product", plan_texts.issue(slow | {"macs": 64}, moved), 0)


if __name__ == "__main__":
    main()
