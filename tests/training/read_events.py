"""Compares what TensorBoard reads in a folder with the lines of scalars.csv:
read_events.py FOLDER
"""
import csv
import math
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def f32(number):
    if not math.isfinite(number):
        return number
    return struct.unpack("f", struct.pack("f", number))[0]


def key(number):
    return "nan" if math.isnan(number) else number


def main(folder):
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    expected = {}
    with open(f"{folder}/scalars.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            expected.setdefault(row["tag"], []).append(
                (int(row["step"]), key(f32(float(row["value"]))), float(row["wall_time"])))
    if sorted(events.Tags()["scalars"]) != sorted(expected) or not expected:
        print("tags:", events.Tags()["scalars"], "expected:", sorted(expected))
        return 1
    for tag, rows in expected.items():
        found = [(e.step, key(e.value), e.wall_time) for e in events.Scalars(tag)]
        if [row[:2] for row in found] != [row[:2] for row in rows] or \
                any(abs(a[2] - b[2]) > 2e-6 for a, b in zip(found, rows)):
            print(tag, found, "expected:", rows)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
