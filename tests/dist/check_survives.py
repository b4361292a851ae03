#!/usr/bin/env python3
"""Kills a rank of a training at random moments, until the training is complete.

    check_survives.py MPIRUN PROGRAM [TRIES]

Each try starts 2, 3 or 4 ranks, which go on from the checkpoint of the try before.  All ranks must
end within 10 s of the kill, no epoch that was complete may be trained again, and the last loss must
be that of a training that nobody killed, up to the order of sums.
"""
import os
import random
import re
import subprocess
import sys
import tempfile
import time

LIMIT, ENDLESS = 10, 1000000


def run(ranks, *words):
    """(exit status, output, seconds)"""
    begun = time.monotonic()
    done = subprocess.run([sys.argv[1], "-np", str(ranks), sys.argv[2], *map(str, words)],
                          capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begun


def expect(condition, what, output):
    if not condition:
        sys.exit(f"FAILED: {what}\n{output}")


def main():
    tries = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    random.seed(15)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.safetensors")
        complete, slowest, killed = 0, 0, 0
        for k in range(tries):
            ranks, seconds = random.choice((2, 3, 4)), random.uniform(0.3, 1.5)
            status, output, took = run(ranks, path, ENDLESS, random.randrange(ranks), seconds)
            expect(status != 0, f"try {k}: the exit status is not 0", output)
            expect(took < seconds + LIMIT, f"try {k}: all ranks end: {took:.1f} s", output)
            epochs = [int(e) for e in re.findall(r"^epoch (\d+)$", output, re.MULTILINE)]
            if epochs:
                expect(epochs[0] >= complete, f"try {k}: begins with epoch {epochs[0]}, and epoch "
                       f"{complete} had begun", output)
                complete = epochs[-1]
            slowest, killed = max(slowest, took - seconds), killed + 1
        expect(complete > 1, "no training has gone beyond its first epoch", "")
        losses = []
        for checkpoint, ranks in ((path, 3), (os.path.join(folder, "other.safetensors"), 2)):
            status, output, _ = run(ranks, checkpoint, complete + 5, -1, 0)
            expect(status == 0, "a training that nobody kills ends", output)
            losses.append(float(re.search(r"^loss (.*)$", output, re.MULTILINE).group(1)))
        # At this learning rate one epoch changes the loss by much more than 2e-5 of it.
        expect(abs(losses[0] - losses[1]) < 2e-5 * losses[1],
               f"the losses with and without kills are {losses[0]} and {losses[1]}", "")
        print(f"ok: losses {losses[0]:.9g} with kills, {losses[1]:.9g} without")
        print(f"ok: {killed} kills; all ranks had ended {slowest:.1f} s after a kill; "
              f"{complete} epochs begun")


main()
