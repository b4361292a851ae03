#!/usr/bin/env python3
"""Measures copies and matrix products with PyTorch, in the way of speed_bench.c.

    torch_parts.py [cuda|cpu [PRODUCTS [MIB]]]        defaults: cuda, all products, 1024 MiB

PRODUCTS 0 skips the products.  On a GPU PyTorch computes them with cuBLASLt.  Prints one line of
JSON: GB/s of the copy, TFLOP/s of each product.
"""
import json
import sys
import time

import torch

device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
mib = int(sys.argv[3]) if len(sys.argv) > 3 else 1024
wait = torch.cuda.synchronize if device == "cuda" else lambda: None
SHAPES = [("bf16", 8192, 8192, 8192), ("bf16", 4096, 4096, 4096), ("bf16", 16384, 3072, 768),
          ("bf16", 16384, 768, 3072), ("bf16", 16384, 50304, 768), ("tf32", 8192, 8192, 8192),
          ("f32", 4096, 4096, 4096), ("f32", 64, 256, 784)]


def time_of(call):
    """Seconds per call: the least of five blocks of about 50 ms, after three blocks of warm-up."""
    best, calls = 1e30, 1
    for k in range(8):
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        each = (time.perf_counter() - begun) / calls
        if k >= 3:
            best = min(best, each)
        elif k:
            calls = int(0.05 / each) + 1
    return best


def copy():
    x = torch.rand(mib << 8, 1024, device=device)
    to = torch.empty_like(x)
    return round(8e-9 * x.numel() / time_of(lambda: to.copy_(x)), 1)


def product(dtype, m, n, k):
    torch.set_float32_matmul_precision("highest" if dtype == "f32" else "high")
    stored = torch.bfloat16 if dtype == "bf16" else torch.float32
    x, y = (torch.randn(rows, k, device=device).to(stored) for rows in (m, n))
    return round(2e-12 * m * n * k / time_of(lambda: x @ y.T), 3)


answer = {"device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "copy": copy()}
if len(sys.argv) < 3 or sys.argv[2] != "0":
    answer.update({f"{dtype} {m}x{n}x{k}": product(dtype, m, n, k) for dtype, m, n, k in SHAPES})
print(json.dumps(answer))
