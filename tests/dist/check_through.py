#!/usr/bin/env python3
"""Tests the ends of ranks of NCCL or RCCL whose hosts MPI connects: that all end soon after one has
ended, and that a failure of one rank before they are connected is an error of all.

    check_through.py MPIRUN PROGRAM
"""
import os
import subprocess
import sys
import time

LIMIT = 12      # seconds; the time-out of ranks that need not wait is 60 s
BACKEND = os.environ.get("WEBER_BACKENDS", "CUDA")
NAME, VISIBLE = {"CUDA": ("NCCL", {"CUDA_VISIBLE_DEVICES": "1"}),
                 "AMDGPU": ("RCCL", {"HIP_VISIBLE_DEVICES": "0"})}[BACKEND]


def check(what, how, ranks, words, fails=True, **variables):
    begun = time.monotonic()
    done = subprocess.run([sys.argv[1], "-np", str(ranks), sys.argv[2], how], capture_output=True,
                          text=True, timeout=120, check=False, env=dict(os.environ, **variables))
    took = time.monotonic() - begun
    output = done.stdout + done.stderr
    for condition, part in ((took < LIMIT, f"all ranks end within {LIMIT} s: {took:.1f} s"),
                            ((done.returncode != 0) == fails, "the exit status"),
                            *((word in output, f'the message has "{word}"') for word in words)):
        if not condition:
            sys.exit(f"FAILED: {what}: {part}: {done.returncode}\n{output}")
    print(f"ok: {what}: {took:.1f} s")


check("a killed rank", "kill", 3, [])
check("a rank with an error", "error", 3, ["rank 1 of 3 ends with an error"])
check("a rank that stays away", "sleep", 3, ["has waited 1 s"])
check("too few devices", "error", 3, [f"2 {BACKEND} devices for 3 ranks"], VGPU_DEVICES="2")
check("a rank that fails alone", "none", 3,
      [f" of 3 cannot be connected, since rank 0 fails: {NAME}", "ncclGetUniqueId: "],
      VGPU_NCCL_FAIL="GetUniqueId:1")
check("one device for two ranks", "none", 2, ["Duplicate GPU"], **VISIBLE)
for call in ("CommInitRankConfig", "AllReduce", "CommDestroy"):
    check(f"a failing {call}", "none", 2, ["nccl" + call], VGPU_NCCL_FAIL=call + ":1")
check("nothing fails", "none", 2, [], fails=False)
