#!/usr/bin/env python3
"""A side of bench/gpu.py that measures nothing and prints constant figures.

    side.py [--broken] [--late] --workload NAME --dtype NAME --hold

--broken ends with a message, --late is never ready.  With SIDE_LOG, the name of a file, it appends
"measured BEGIN END" for each measurement, and "late TIME 0" with --late.  If it reads no line, as a
process that only compiles ahead, it appends "ahead TIME WORKLOAD" every 10 ms for 1.5 s.
"""
import json
import os
import sys
import time


def note(*words):
    if "SIDE_LOG" in os.environ:
        with open(os.environ["SIDE_LOG"], "a") as log:
            log.write(" ".join(map(str, words)) + "\n")


if "--broken" in sys.argv:
    sys.exit("it is broken")
if "--late" in sys.argv:
    note("late", time.monotonic(), 0)
    time.sleep(600)
print("noise")
print(json.dumps({"ready": True}), flush=True)
measured = False
for line in sys.stdin:
    begun = time.monotonic()
    if "SIDE_LOG" in os.environ:
        time.sleep(0.5)
    note("measured", begun, time.monotonic())
    print(json.dumps({"step_us": 1e6, "step_us_p10": 9e5, "samples_per_s": 64.0,
                      "peak_gpu_mb": 12345.0, "host_us": 7.5, "batch": 64, "parameters": 1,
                      "first_loss": 1.0, "last_loss": 0.5}), flush=True)
    measured = True
for _ in range(150 if "SIDE_LOG" in os.environ and not measured else 0):
    note("ahead", time.monotonic(), sys.argv[sys.argv.index("--workload") + 1])
    time.sleep(0.01)
