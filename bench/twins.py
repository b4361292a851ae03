"""What the twins of weber_bench share: the start that weber_bench --save wrote, and the clock.

A start is a safetensors file with the initial parameters of a workload and its batches, so that
all sides compute the same losses.
"""
import json
import math
import os
import resource
import struct
import sys
import time

clock = time.perf_counter
loading = 0.0           # seconds that read_start took; no part of the time to the first step
# The order of a layer's parameters in the twins; running statistics are no parameters.
ORDER = ["q_proj", "k_proj", "v_proj", "out_proj", "scale", "weight", "weight_input",
         "weight_hidden", "bias"]


def place(name):
    """The sorting key of a parameter by its path, such as 0.layers.10.weight."""
    return [(0, int(part)) if part.isdigit() else (1, ORDER.index(part) if part in ORDER else -1)
            for part in name.split(".")]


def arrays_of(path):
    """The arrays of a safetensors file by their names, in NumPy."""
    import numpy as np
    types = {"F32": np.float32, "I32": np.int32}
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data, at = memoryview(f.read()), {}
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        at[name] = np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return at


def read_start(path):
    """(the parameters in the order in which the twins create them, the batches as pairs (x, y)).

    The products of query, key and value are one array, as in the twins.
    """
    global loading
    import numpy as np
    begun = clock()
    found = arrays_of(path)
    names = sorted((name for name in found if name.startswith("0.")
                    and name.rpartition(".")[2] in ORDER), key=place)
    parameters = []
    for name in names:
        if ".q_proj." in name:
            parts = [found[name.replace("q_proj", part)] for part in ORDER[:3]]
            parameters.append(np.concatenate(parts))
        elif ".k_proj." not in name and ".v_proj." not in name:
            parameters.append(found[name])
    count = sum(name.startswith("1.") for name in found)
    batches = [(found[f"1.{k}"], found[f"1.{k + 1}"]) for k in range(0, count, 2)]
    loading += clock() - begun
    return parameters, batches


def age():
    """Seconds since the process started: from BENCH_STARTED_AT, else from /proc (to 10 ms)."""
    if "BENCH_STARTED_AT" in os.environ:
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        return now - float(os.environ["BENCH_STARTED_AT"]) - loading
    with open("/proc/self/stat") as f:
        began = int(f.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began - loading


def finite(x, digits=6):
    return round(x, digits) if math.isfinite(x) else None


def peak_mb():
    with open("/proc/self/status") as f:
        return round(next(int(x.split()[1]) for x in f if x.startswith("VmHWM:")) / 1024, 1)


def timings(block_of, seconds, warm, waits=False, single=False, goes_on=bool):
    """Warms up, then times blocks of about 20 ms, each of at least one step.

    block_of(n) runs n steps.  waits: a block is faster than single steps, which wait for a device.
    single: each block is one step.  goes_on(more): whether all ranks continue.
    """
    warmed, begun = 0, clock()
    while goes_on(clock() < begun + warm or warmed < 5):
        block_of(1)
        warmed += 1
    block = 1 if single else max(1, int(0.02 / ((clock() - begun) / warmed)))
    if waits:
        begun = clock()
        block_of(block)
        block = max(1, int(0.02 / ((clock() - begun) / block)))
    times, before, used, begun = [], resource.getrusage(resource.RUSAGE_SELF), os.times(), clock()
    while goes_on(clock() < begun + seconds or len(times) < 7):
        t = clock()
        block_of(block)
        times.append((clock() - t) / block)
    wall, now = clock() - begun, os.times()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before.ru_minflt
    times.sort()
    return {"step_us": round(times[len(times) // 2] * 1e6, 2),
            "step_us_p10": round(times[len(times) // 10] * 1e6, 2),
            "cores": round((now.user - used.user + now.system - used.system) / wall, 2),
            "faults_a_step": round(faults / (len(times) * block), 3), "steps": len(times) * block}


def serve(head, measure, settle=lambda: None):
    """--hold: prints a line when it is ready, then figures for each number of seconds it reads."""
    print(json.dumps(dict(head, ready=True)), flush=True)
    settled = False
    for line in sys.stdin:
        if not settled:
            settle()
        print(json.dumps(measure(float(line), 0.02 if settled else 0.2)), flush=True)
        settled = True
