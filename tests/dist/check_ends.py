#!/usr/bin/env python3
"""Tests that all ranks end soon after one of them has ended, and what they print; and that a
process of a launcher that MPI does not know is an error.

    check_ends.py MPIRUN PROGRAM
"""
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 10      # seconds; the time-out of ranks that need not wait is 60 s


def expect(condition, what, output):
    if not condition:
        sys.exit(f"FAILED: {what}\n{output}")
    print(f"ok: {what}", flush=True)        # in front of the message of a failure


def living_children(process):
    """How many children of a process have not ended."""
    states = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = file.read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:                 # it has ended meanwhile
            continue
        if int(parent) == process:
            states.append(state)
    return sum(state != "Z" for state in states)


def run_ranks(how):
    """Exit status and output of three ranks.  Status None: all ranks have ended, but mpirun has
    not: the one of Open MPI 4 now and then waits for itself in PMIx_server_finalize."""
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen([sys.argv[1], "-np", "3", sys.argv[2], how], stdout=log,
                              stderr=subprocess.STDOUT) as mpirun:
            try:
                status = mpirun.wait(timeout=4 * LIMIT)
            except subprocess.TimeoutExpired:
                status = -1 if living_children(mpirun.pid) else None
                mpirun.kill()
        log.seek(0)
        return status, log.read()


for how, words in (("kill", "rank 1 "), ("error", "rank 1 of 3 ends with an error"),
                   ("success", "has waited 1 s"), ("sleep", "has waited 1 s"),
                   ("frozen", "froze different parameters|freeze the same parameters"),
                   ("frozen-large", "froze different parameters|freeze the same parameters"),
                   ("frozen-shard", "froze different parameters|freeze the same parameters"),
                   ("replayed", "mean loss of the ranks is NaN|freeze the same parameters"),
                   ("finalise", "has waited 1 s in MPI_Finalize"),
                   ("again", "MPI has been finalised, and cannot be initialised again")):
    begun = time.monotonic()
    status, output = run_ranks(how)
    if status is None:
        print(f"again: {how}: all ranks have ended, and mpirun waits for ever", flush=True)
        begun = time.monotonic()
        status, output = run_ranks(how)
    took = time.monotonic() - begun
    expect(took < LIMIT, f"{how}: all ranks end within {LIMIT} s: {took:.1f} s", output)
    expect(output.count("[ Info: The CUDA functionality") <= 1,
           f"{how}: only rank 0 prints notes", output)
    expect(status, f"{how}: the exit status is not 0", output)
    if how != "kill" or "openmpi" in sys.argv[1]:       # MPICH does not name the rank
        expect(re.search(words, output), f"{how}: the message has \"{words}\"", output)

# The log of each rank goes to a file of its own: mpirun mixes pieces of lines of several ranks.
OWN_LOG = 'exec "$0" "$@" 2>"$LOGS/${OMPI_COMM_WORLD_RANK-$PMI_RANK}"'
with tempfile.TemporaryDirectory() as logs:
    done = subprocess.run([sys.argv[1], "-np", "3", "sh", "-c", OWN_LOG, sys.argv[2], "differ"],
                          capture_output=True, text=True, timeout=120, check=False,
                          env=dict(os.environ, WEBER_DEBUG="dist", LOGS=logs))
    output = done.stderr + "".join(Path(logs, str(rank)).read_text() for rank in range(3))
expect(done.returncode == 0, "differ: the training ends", output)
own = subprocess.run([sys.argv[1], "-np", "3", sys.argv[2], "own"], capture_output=True, text=True,
                     timeout=120, check=False)
expect(own.returncode == 0, "own: a program that finalises MPI itself ends",
       own.stdout + own.stderr)
expect("before the broadcast, 2 of 4 tensors differ between the ranks: layers.0.weight,"
       " layers.1.weight" in output,
       "differ: the first weights of the ranks are compared", output)
expect("rank 2: after an epoch, 1 of 4 tensors differ between the ranks: layers.1.bias" in output,
       "differ: the changed bias is named", output)
steps = re.findall(r"rank 0: a plan: \d+ operations?, (\d+) bytes", output)
# 267 observations a rank and epoch in batches of 4; 4 bytes for each parameter and the loss
expect(steps.count(str(4 * (8 * 32 + 32 + 32 * 2 + 2 + 1))) == 2 * 67,
       "differ: each step is logged with its bytes", output)
status, output = run_ranks("forks")
expect(status == 0, "forks: the ranks go on when a child of one of them ends", output)

for name, size, status in (("WEBER_SIZE", "1", 0), ("WEBER_SIZE", "3", 2),
                           ("OMPI_COMM_WORLD_SIZE", "3", 2), ("PMI_SIZE", "3", 2),
                           ("SLURM_STEP_NUM_TASKS", "3", 2)):
    # a process that believes to be of its own MPI's launcher waits for it
    if name.startswith("OMPI" if "openmpi" in sys.argv[1] else "PMI"):
        continue
    done = subprocess.run([sys.argv[2], "success"], capture_output=True, text=True, timeout=120,
                          check=False, env={**os.environ, name: size})
    output = done.stdout + done.stderr
    expect(done.returncode == status, f"alone, {name}={size}: the exit status", output)
    if status:
        expect(f"one of 3 by {name}" in output and "mpirun -np 3" in output,
               "the message has the cure", output)
