#!/usr/bin/env python3
"""Tests the ends of ranks of NCCL: that all end soon after one has ended, and what they print; and
that a rank without a device, or a failing call, is an error.

    check_nccl.py WEBER PROGRAM
"""
import os
import subprocess
import sys
import time

LIMIT = 10      # seconds


def check(what, how, ranks, status, words, **variables):
    begun = time.monotonic()
    done = subprocess.run([sys.argv[1], "launch", "-np", str(ranks), sys.argv[2], how],
                          capture_output=True, text=True, timeout=120, check=False,
                          env=dict(os.environ, **variables))
    took = time.monotonic() - begun
    output = done.stdout + done.stderr
    for condition, part in ((took < LIMIT, f"all ranks end within {LIMIT} s: {took:.1f} s"),
                            ((done.returncode != 0) == (status != 0), "the exit status"),
                            (words in output, f'the message has "{words}"')):
        if not condition:
            sys.exit(f"FAILED: {what}: {part}: {done.returncode}\n{output}")
    print(f"ok: {what}: {took:.1f} s")


check("a killed rank", "kill", 3, 1, "SIGKILL")
check("a rank with an error", "error", 3, 1, "rank 1 of 3 ends with an error")
check("a rank that stays away", "sleep", 3, 1, "has waited 3 s")
check("too few devices", "error", 3, 2, "2 CUDA devices for 3 ranks", VGPU_DEVICES="2")
check("one device for two ranks", "error", 2, 2, "Duplicate GPU", CUDA_VISIBLE_DEVICES="1")
check("no device", "error", 1, 2, "use WB_MPI", VGPU_DEVICES="0")
check("a library that is switched off", "error", 1, 2, "WEBER_CUDA_NCCL=0", WEBER_CUDA_NCCL="0")
for call in ("GetUniqueId:1", "CommInitRankConfig:1", "AllReduce:1", "AllReduce:9", "Broadcast:2"):
    check(f"a failing {call}", "none", 2, 1, f"nccl{call.split(':', maxsplit=1)[0]}",
          VGPU_NCCL_FAIL=call)
