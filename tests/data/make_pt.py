#!/usr/bin/env python3
"""Makes state.pt and checkpoint.pt, which io_pt.c reads; PyTorch 2.15 made the committed ones:

    make_pt.py FOLDER
"""
import sys
from collections import OrderedDict
from pathlib import Path

import torch


def main():
    folder = Path(sys.argv[1])
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    state = model.state_dict()
    with torch.no_grad():
        for i, value in enumerate(state.values()):
            value.copy_(torch.arange(value.numel()).reshape(value.shape) + 10 * i)
    torch.save(state, folder / "state.pt")
    whole = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    numbers = torch.tensor([1, -2, 3])
    dtypes = (torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.bool)
    checkpoint = {
        "epoch": 70000, "loss": 0.5, "big": 2 ** 40, "name": "a text", "none": None, "best": True,
        "whole": whole, "turned": whole.t(), "slice": whole[1:, 1:3],
        "spread": whole[:1].expand(2, 4),
        "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.tensor([1.5, 2.5])),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}, 1: {}}, "groups": [{"lr": 0.1}]},
        "list": [numbers.to(t) for t in dtypes] + [(torch.tensor([200], dtype=torch.uint8),)],
        "model": OrderedDict([("weight", whole.float())]),
    }
    torch.save(checkpoint, folder / "checkpoint.pt")


main()
