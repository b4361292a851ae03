#!/usr/bin/env python3
"""Tests the ends of ranks of NCCL, or of RCCL with WEBER_BACKENDS=AMDGPU: that all end soon after
one has ended, and what they print; that a rank without a device, or a failing call, is an error;
and which of the two libraries is used.

    check_nccl.py WEBER PROGRAM
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

LIMIT = 10      # seconds; the time-out of ranks that need not wait is 60 s
BACKEND = os.environ.get("WEBER_BACKENDS", "CUDA")
NAME, SWITCH, VISIBLE = {
    "CUDA": ("NCCL", "WEBER_CUDA_NCCL", {"CUDA_VISIBLE_DEVICES": "1"}),
    "AMDGPU": ("RCCL", "WEBER_AMDGPU_RCCL", {"HIP_VISIBLE_DEVICES": "0"})}[BACKEND]


def check(what, how, ranks, status, words, folder=None, **variables):
    begun = time.monotonic()
    done = subprocess.run([sys.argv[1], "launch", "-np", str(ranks), sys.argv[2], how],
                          capture_output=True, text=True, timeout=120, check=False, cwd=folder,
                          env=dict(os.environ, **variables))
    took = time.monotonic() - begun
    output = done.stdout + done.stderr
    for condition, part in ((took < LIMIT, f"all ranks end within {LIMIT} s: {took:.1f} s"),
                            (done.returncode == status, f"the exit status is {status}"),
                            (words in output, f'the message has "{words}"')):
        if not condition:
            sys.exit(f"FAILED: {what}: {part}: {done.returncode}\n{output}")
    print(f"ok: {what}: {took:.1f} s")


def check_reason():
    """Rank 1 gets the reason why rank 0 has no id, and does not wait for its time-out."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        begun = time.monotonic()
        for rank in ("0", "1"):
            place = {"WEBER_RANK": rank, "WEBER_SIZE": "2", "WEBER_LOCAL_RANK": rank,
                     "WEBER_LOCAL_SIZE": "2", "WEBER_RENDEZVOUS": f"file:{folder}/ranks",
                     "VGPU_NCCL_FAIL": "GetUniqueId:1"}
            ranks.append(subprocess.Popen([sys.argv[2], "none"], stderr=subprocess.PIPE, text=True,
                                          env=dict(os.environ, **place)))
        for rank, process in enumerate(ranks):
            errors = process.communicate(timeout=60)[1]
            words = f"rank 0 cannot connect the ranks: {NAME}: ncclGetUniqueId" if rank else \
                    f"{NAME}: ncclGetUniqueId"
            if process.returncode != 2 or words not in errors:
                sys.exit(f"FAILED: rank {rank} without an id: {process.returncode}\n{errors}")
        print(f"ok: the reason of rank 0 on rank 1: {time.monotonic() - begun:.1f} s")


def check_vendors(both):
    """Ranks with GPUs of two vendors."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank, backend in ("0", "CUDA"), ("1", "AMDGPU"):
            place = {"WEBER_RANK": rank, "WEBER_SIZE": "2", "WEBER_LOCAL_RANK": rank,
                     "WEBER_LOCAL_SIZE": "2", "WEBER_RENDEZVOUS": f"file:{folder}/ranks",
                     "WEBER_BACKENDS": backend}
            ranks.append(subprocess.Popen([sys.argv[2], "vendors"], text=True,
                                          stderr=subprocess.PIPE,
                                          env=dict(os.environ, **both, **place)))
        errors = [process.communicate(timeout=60)[1] for process in ranks]
        if "rank 1 of 2 uses RCCL, and rank 0 uses NCCL" not in errors[1]:
            sys.exit(f"FAILED: ranks of two vendors: {errors}")
        if [process.returncode for process in ranks] != [2, 2]:
            sys.exit(f"FAILED: ranks of two vendors: the exit status: {errors}")
        print("ok: ranks of two vendors")


def check_choice():
    """Which library is used where the GPUs of both vendors work."""
    cuda = os.environ["VGPU_LIBRARY"]
    both = {"WEBER_CUDA_LIBRARY": cuda, "WEBER_CUDA_PATH": os.path.dirname(cuda)}
    names = {"NCCL": "weber: NCCL: rank 1 of 3 ends", "RCCL": "weber: RCCL: rank 1 of 3 ends"}
    check("the backend in use is AMDGPU", "error", 3, 1, names["RCCL"], **both)
    check("none is in use", "error", 3, 1, names["NCCL"], WEBER_BACKENDS="", **both)
    with tempfile.TemporaryDirectory() as folder:
        check("only AMDGPU works", "error", 3, 1, names["RCCL"], WEBER_BACKENDS="",
              WEBER_CUDA_LIBRARY=f"{folder}/none")
        with open(f"{folder}/LocalPreferences.toml", "w", encoding="utf-8") as file:
            file.write('[Flux]\ngpu_backend = "AMDGPU"\n')
        check("AMDGPU is preferred", "error", 3, 1, names["RCCL"], folder, WEBER_BACKENDS="",
              **both)
    for reason in ("cuda: ", "amdgpu: ", "use WB_MPI"):
        check("no device of either", "error", 1, 2, reason, VGPU_DEVICES="0", **both)
    check_vendors(both)


if BACKEND == "AMDGPU":
    check_choice()
check_reason()
check("a killed rank", "kill", 3, 128 + signal.SIGKILL, "SIGKILL")
check("a rank with an error", "error", 3, 1, f"{NAME}: rank 1 of 3 ends with an error")
check("a rank that stays away", "sleep", 3, 1, " of 3 has waited 1 s")
check("too few devices", "error", 3, 2,
      f"{NAME}: this machine has 2 {BACKEND} devices for 3 ranks", VGPU_DEVICES="2")
check("one device for two ranks", "error", 2, 2, "Duplicate GPU", **VISIBLE)
check("no device", "error", 1, 2, "use WB_MPI", VGPU_DEVICES="0")
check("a library that is switched off", "error", 1, 2, SWITCH + "=0", **{SWITCH: "0"})
check("a failing CommDestroy", "none", 2, 1, "ncclCommDestroy: internal error (3)",
      VGPU_NCCL_FAIL="CommDestroy:1")
check("an error of the communicator", "none", 2, 1,
      "fails in a broadcast of 1024 bytes: unhandled system error", VGPU_NCCL_FAIL="Running:12")
for call in ("GetUniqueId:1", "CommInitRankConfig:1", "CommFinalize:1", "AllReduce:1",
             "AllReduce:9", "Broadcast:1", "Broadcast:2"):
    # 2: the ranks cannot be connected; 1: they fail later
    early = call in ("GetUniqueId:1", "CommInitRankConfig:1", "AllReduce:1")
    check(f"a failing {call}", "none", 2, 2 if early else 1,
          f"nccl{call.split(':', maxsplit=1)[0]}", VGPU_NCCL_FAIL=call)
