#!/usr/bin/env python3
"""Measures saving and loading 500 MB of weights beside dd on the same disk, in the same run.

    bench/files.py [--folder FOLDER] [--mb 500] [--rounds 7] [--build build] [--json FILE]

Each round first writes: with dd (conv=fdatasync, into a new file, as wb_save does) and by saving
in every format.  Then it reads from a cold cache: with dd (iflag=direct), with dd through the
cache, and with wb_load or wb_load_checkpoint.  Each measurement is a process of its own.  The order
of the measurements is reversed from one round to the next.  The time of a save ends when the file
is durable under its name.  The table shows medians; a ratio of 0.5 is half the speed of dd.  A
format that this build cannot write, such as BSON without libbson, is left out with a message.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = {"safetensors": "m.safetensors", "BSON": "m.bson", "NPZ": "m.npz",
         "checkpoint": "c.safetensors"}
READS = {"safetensors": "load", "BSON": "load", "checkpoint": "resume"}
LC = dict(os.environ, LC_ALL="C")


def dd(*words):
    """Runs dd; the bytes per second that it reports."""
    run = subprocess.run(["dd", *words], capture_output=True, text=True, check=True, env=LC)
    size, seconds = re.search(r"(\d+) bytes.*copied, ([0-9.e-]+) s", run.stderr).groups()
    return int(size) / float(seconds)


class Side:
    """One measured program and its rates in bytes per second, one for each round."""

    def __init__(self, name, run):
        self.name, self.run, self.rates = name, run, []

    def rate(self):
        return statistics.median(self.rates)


def sides(program, folder, mb):
    """The sides that write and those that read, which read the files of the former."""
    count = round(mb * 1e6 / (1 << 20))

    def bench(command, file):
        def run():
            done = subprocess.run([program, command, str(folder / file), str(mb)],
                                  capture_output=True, text=True, check=True)
            report = json.loads(done.stdout)
            if not report["right"]:
                raise ValueError(f"{file} has another format")
            return report["bytes"] / report["seconds"]
        return run

    def dd_write():
        rate = dd("if=/dev/zero", f"of={folder / 'dd.new'}", "bs=1M", f"count={count}",
                  "conv=fdatasync")
        (folder / "dd.new").replace(folder / "dd")
        return rate

    def dd_read(*how):
        def run():
            subprocess.run([program, "cool", str(folder / "dd")], check=True)
            return dd(f"if={folder / 'dd'}", "of=/dev/null", "bs=1M", *how)
        return run

    writes = [Side("dd", dd_write)]
    for name, file in FILES.items():
        writes.append(Side(name, bench("checkpoint" if name == "checkpoint" else "save", file)))
    reads = [Side("dd", dd_read("iflag=direct")), Side("dd, through the cache", dd_read())]
    reads += [Side(name, bench(command, FILES[name])) for name, command in READS.items()]
    return writes, reads


def measure(writes, reads, rounds):
    for number in range(rounds):
        for part in (writes, reads):
            for side in part if number % 2 == 0 else part[::-1]:
                if side.rates is None:
                    continue
                try:
                    side.rates.append(side.run())
                except (subprocess.CalledProcessError, ValueError) as e:
                    print(f"{side.name} is left out: {getattr(e, 'stderr', None) or e}",
                          file=sys.stderr)
                    side.rates = None


def table(title, part):
    disk = part[0].rate()
    print(f"{title:24}{'MB/s':>8}{'of dd':>8}   each round, MB/s")
    for side in part:
        if side.rates:
            print(f"{side.name:24}{side.rate() / 1e6:8.0f}{side.rate() / disk:8.2f}   "
                  + " ".join(f"{r / 1e6:.0f}" for r in side.rates))
    print()
    return [{"what": title, "side": s.name, "rate": s.rate(), "ratio": s.rate() / disk,
             "rates": s.rates} for s in part if s.rates]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=None, help="a folder on the disk that is measured")
    parser.add_argument("--mb", type=float, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--json")
    given = parser.parse_args()
    program = Path(given.build) / "bench" / "file_bench"
    if not program.exists():
        sys.exit(f"{program} does not exist: build with -DWEBER_BENCH=ON")
    parent = given.folder or given.build
    with tempfile.TemporaryDirectory(prefix="weber-files-", dir=parent) as folder:
        writes, reads = sides(program, Path(folder), given.mb)
        measure(writes, reads, given.rounds)
    print(f"{given.mb:.0f} MB, {given.rounds} rounds, medians; {os.cpu_count()} processors, "
          f"load {os.getloadavg()[0]:.1f}\n")
    rows = table("saved", writes) + table("loaded from cold", reads)
    if given.json:
        Path(given.json).write_text("".join(json.dumps(row) + "\n" for row in rows))
    slow = [f"{row['what']}: {row['side']}" for row in rows if row["ratio"] < 0.5]
    if slow:
        print("Below half the disk's speed: " + "; ".join(slow))


if __name__ == "__main__":
    main()
