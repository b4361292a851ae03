#!/usr/bin/env python3
"""Writes tests/data/gpt.safetensors: the initial weights of a small GPT and its losses over 100
steps of AdamW, computed by PyTorch 1.13 on one thread.

    /usr/bin/python3 tests/golden/make_gpt.py

The GPT has 2 layers, 2 heads, width 32, 32 positions, 65 characters and batches of 4; pre-norm
blocks, the tanh form of gelu, no dropout and no shared weights.  The losses are computed in f32 and
in f64 from the same initial weights, which are exact in f32.  The text is the formula `character`,
which the test gpt_golden.c computes too.
"""
import json
import math
import struct
from pathlib import Path

import torch
from torch.nn import functional as F

LAYERS, HEADS, WIDTH, POSITIONS, VOCABULARY, BATCH, STEPS = 2, 2, 32, 32, 65, 4, 100


def character(step, row, position):
    value = position * position + 7 * row + 3 * position + 5 * (step % 10)
    return (value * 31 // 8) % VOCABULARY


def weights():
    torch.manual_seed(1)
    made = {"token": torch.randn(VOCABULARY, WIDTH) * 0.1,
            "place": torch.randn(POSITIONS, WIDTH) * 0.1}
    for i in range(LAYERS):
        for name in ("q", "k", "v", "o"):
            made[f"{i}.{name}"] = torch.randn(WIDTH, WIDTH) / math.sqrt(WIDTH)
        made[f"{i}.up"] = torch.randn(4 * WIDTH, WIDTH) / math.sqrt(WIDTH)
        made[f"{i}.up_bias"] = torch.zeros(4 * WIDTH)
        made[f"{i}.down"] = torch.randn(WIDTH, 4 * WIDTH) / math.sqrt(4 * WIDTH)
        made[f"{i}.down_bias"] = torch.zeros(WIDTH)
        for norm in ("norm1", "norm2"):
            made[f"{i}.{norm}.scale"] = torch.ones(WIDTH)
            made[f"{i}.{norm}.bias"] = torch.zeros(WIDTH)
    made["norm.scale"], made["norm.bias"] = torch.ones(WIDTH), torch.zeros(WIDTH)
    made["head"] = torch.randn(VOCABULARY, WIDTH) / math.sqrt(WIDTH)
    return made


def loss_of(w, ids):
    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), w[name + ".scale"], w[name + ".bias"])

    def heads(x):
        return x.view(BATCH, POSITIONS, HEADS, WIDTH // HEADS).transpose(1, 2)

    mask = torch.tril(torch.ones(POSITIONS, POSITIONS, dtype=torch.bool))
    x = w["token"][ids[:, :-1]] + w["place"]
    for i in range(LAYERS):
        y = norm(x, f"{i}.norm1")
        q, k, v = (heads(F.linear(y, w[f"{i}.{name}"])) for name in "qkv")
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        a = scores.masked_fill(~mask, -math.inf).softmax(-1) @ v
        x = x + F.linear(a.transpose(1, 2).reshape(BATCH, POSITIONS, WIDTH), w[f"{i}.o"])
        y = F.linear(norm(x, f"{i}.norm2"), w[f"{i}.up"], w[f"{i}.up_bias"])
        y = F.gelu(y, approximate="tanh")
        x = x + F.linear(y, w[f"{i}.down"], w[f"{i}.down_bias"])
    logits = F.linear(norm(x, "norm"), w["head"])
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))


def losses(start, dtype):
    w = {name: v.to(dtype).clone().requires_grad_() for name, v in start.items()}
    rule = torch.optim.AdamW(w.values(), lr=3e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    seen = []
    for step in range(STEPS):
        ids = torch.tensor([[character(step, r, p) for p in range(POSITIONS + 1)]
                            for r in range(BATCH)])
        rule.zero_grad()
        loss = loss_of(w, ids)
        loss.backward()
        rule.step()
        seen.append(loss.item())
    return torch.tensor(seen, dtype=dtype)


def save(path, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        raw = t.contiguous().numpy().tobytes()
        dtype = {torch.float32: "F32", torch.float64: "F64"}[t.dtype]
        header[name] = {"dtype": dtype, "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    torch.set_num_threads(1)
    start = weights()
    tensors = {"losses_f64": losses(start, torch.float64),
               "losses_f32": losses(start, torch.float32)}
    tensors.update(start)
    save(Path(__file__).resolve().parent.parent / "data" / "gpt.safetensors", tensors)


if __name__ == "__main__":
    main()
