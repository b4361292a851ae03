#!/usr/bin/env python3
"""Tests that MPI gets addresses of a GPU's memory if it takes them, or if a preference is true, and
only then.  The GPUs are doubles, whose memory any MPI can read and write.

    check_aware.py MPIRUN PROGRAM

What a preference does is the same with every MPI, so MPICH gets addresses, and is asked.
"""
import os
import subprocess
import sys
import tempfile

CUDA, ROCM = "FluxDistributedMPICUDAAware", "FluxDistributedMPIROCMAware"


def run(text, backend, way, overlap):
    """(exit status, output) of two ranks where LocalPreferences.toml has this text."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/LocalPreferences.toml", "w", encoding="ascii") as file:
            file.write(text)
        done = subprocess.run([sys.argv[1], "-np", "2", sys.argv[2], backend, way], cwd=folder,
                              capture_output=True, text=True, timeout=250, check=False,
                              env=dict(os.environ, WEBER_DEBUG="dist",
                                       WEBER_DISTRIBUTED_OVERLAP=overlap))
        return done.returncode, done.stdout + done.stderr


def check(text, backend, way, overlap="0"):
    status, output = run(text, backend, way, overlap)
    what = f"{backend}, {way}, {text.strip() or 'no preference'}, overlap {overlap}"
    if status:
        sys.exit(f"FAILED: {what}: status {status}\n{output}")
    print(f"ok: {what}: {output.strip()}", flush=True)


for overlap in "01":
    check(f"[Flux]\n{CUDA} = true\n", "CUDA", "direct", overlap)
check("", "CUDA", "asked")
if "mpich" in sys.argv[1]:
    sys.exit(0)
for overlap in "01":
    check(f"[Flux]\n{CUDA} = false\n", "CUDA", "staged", overlap)
check(f"[Flux]\n{ROCM} = true\n{CUDA} = false\n", "AMDGPU", "direct")
check(f"[Flux]\n{ROCM} = false\n{CUDA} = true\n", "AMDGPU", "staged")
check(f"[Flux]\n{CUDA} = true\n{ROCM} = true\n", "OpenCL", "staged")        # it has no addresses
for value in ('"true"', "1", "{}"):
    status, output = run(f"[Flux]\n{CUDA} = {value}\n", "CUDA", "asked", "0")
    if not status or CUDA not in output or "true nor false" not in output:
        sys.exit(f"FAILED: {CUDA} = {value}: status {status}\n{output}")
    print(f"ok: {CUDA} = {value} is an error")
