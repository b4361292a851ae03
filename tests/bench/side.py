#!/usr/bin/env python3
"""A side of bench/gpu.py that only pretends to be measured: its figures are known.

    side.py [--broken] [--late] --workload NAME --dtype NAME --hold

--broken ends with a message, --late is never ready.  With SIDE_LOG, a file, it notes when it was measured, and, started
without anything to read, as what compiles ahead, that it is at work, every 10 ms for a second and a half.
"""
import json
import os
import sys
import time

if "--broken" in sys.argv:
    sys.exit("it is broken")
if "--late" in sys.argv:
    time.sleep(600)


def note(*words):
    if "SIDE_LOG" in os.environ:
        with open(os.environ["SIDE_LOG"], "a") as log:
            log.write(" ".join(map(str, words)) + "\n")


print("noise")
print(json.dumps({"ready": True}), flush=True)
measured = False
for line in sys.stdin:
    begun = time.monotonic()
    if "SIDE_LOG" in os.environ:
        time.sleep(0.5)
    note("measured", begun, time.monotonic())
    print(json.dumps({"step_us": 1e6, "step_us_p10": 9e5, "samples_per_s": 64.0, "peak_gpu_mb": 12345.0, "host_us": 7.5,
                      "batch": 64, "parameters": 1, "first_loss": 1.0, "last_loss": 0.5}), flush=True)
    measured = True
for _ in range(150 if "SIDE_LOG" in os.environ and not measured else 0):
    note("ahead", time.monotonic(), sys.argv[sys.argv.index("--workload") + 1])
    time.sleep(0.01)
