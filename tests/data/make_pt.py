#!/usr/bin/env python3
"""Makes state.pt, checkpoint.pt and protocol1.pt, ..., which io_pt.c reads; PyTorch 2.15 made the
committed ones:

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
    base = torch.arange(6.0).reshape(2, 3)
    small = {
        "whole": base, "row": base[1], "spread": base[:1].expand(2, 3),
        "i16": torch.tensor([-3, 300], dtype=torch.int16),
        "u16": torch.tensor([[65535], [1]], dtype=torch.uint16),
        "turned": torch.tensor([[1, 2], [-3, 4]], dtype=torch.int16).t(),
        "u32": torch.tensor([4294967295, 2], dtype=torch.uint32),
        "parameter": torch.nn.Parameter(torch.tensor([1.5])),
        "list": [torch.tensor([1, 2]), (torch.tensor([True, False]),)],
        "ordered": OrderedDict([("weight", base.double())]),
        "others": [70000, -5, 2 ** 40, 0.5, None, True, "a text", torch.float32],
    }
    for protocol in (1, 2, 4, 5):
        torch.save(small, folder / f"protocol{protocol}.pt", pickle_protocol=protocol)


main()
