#!/usr/bin/env python3
"""Compares the losses of 4 ranks of Weber with those of PyTorch's DistributedDataParallel (gloo).

    bench/ddp_losses.py [--program build/bench/ranks_bench] [--steps 50] [--ranks 4]

Both train LeNet (W3) from the same weights on the same batches, which ranks_bench writes; each rank
has its part of each batch.  PyTorch is the newest that run.py finds.  Prints its version and the
largest difference of a loss.  The exit status is 1 if it is above 1e-5.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run as bench                                     # noqa: E402

BATCH, BATCHES, LIMIT = 64, 8, 1e-5


def read_tensors(path, torch):
    """{name: tensor} of a safetensors file of f32"""
    data = bytearray(Path(path).read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in entry["data_offsets"])
            found[name] = torch.frombuffer(data[begin:end], dtype=torch.float32).reshape(
                entry["shape"])
    return found


def train(folder, steps):
    """A rank of PyTorch's side; rank 0 prints the losses."""
    import torch
    from torch import nn
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
                          nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 120), nn.ReLU(),
                          nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    values = iter(sorted(read_tensors(f"{folder}/model.safetensors", torch).items(),
                         key=lambda item: (item[0].split(".")[-2], item[0].endswith("bias"))))
    with torch.no_grad():
        for parameter in model.parameters():
            name, value = next(values)
            if tuple(value.shape) != tuple(parameter.shape):
                value = value.t()
            parameter.copy_(value.reshape(parameter.shape))
    model = nn.parallel.DistributedDataParallel(model)
    rule = torch.optim.Adam(model.parameters(), lr=1e-3)
    part = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    losses = []
    for step in range(steps):
        x, y = (Path(f"{folder}/{step % BATCHES}.{name}").read_bytes() for name in "xy")
        x = torch.frombuffer(bytearray(x), dtype=torch.float32).reshape(BATCH, 1, 28, 28)[part]
        y = torch.frombuffer(bytearray(y), dtype=torch.int32).long()[part]
        rule.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        rule.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / ranks)
    if rank == 0:
        print(json.dumps({"version": torch.__version__, "losses": losses}))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--program", default="build/bench/ranks_bench")
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--ranks", type=int, default=4)
    options.add_argument("--train", help=argparse.SUPPRESS)
    options = options.parse_args()
    if options.train:
        return train(options.train, options.steps)
    python = bench.find_torch()
    if not python:
        sys.exit("PyTorch is not installed (Debian: python3-torch; BENCH_PYTHON names a Python)")
    environment = dict(os.environ, WEBER_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                       WORLD_SIZE=str(options.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="29543")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.program, "data", "W3", folder], env=environment, check=True)
        done = subprocess.run(["mpirun", "-np", str(options.ranks), options.program, "losses", "W3",
                               str(options.steps)], env=environment, stdout=subprocess.PIPE,
                              check=True)
        ours = json.loads(done.stdout)
        words = [python, __file__, "--train", folder, "--steps", str(options.steps)]
        processes = [subprocess.Popen(words, env=dict(environment, RANK=str(rank)),
                                      stdout=subprocess.PIPE) for rank in range(options.ranks)]
        texts = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit("PyTorch's side failed")
    theirs = json.loads(texts[0])
    version, theirs = theirs["version"], theirs["losses"]
    most = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    print(f"{options.ranks} ranks, {options.steps} steps: loss {ours[0]:.6f} to {ours[-1]:.6f}; "
          f"largest difference to PyTorch {version} {most:.2e}")
    return 0 if most <= LIMIT else 1


sys.exit(main())
