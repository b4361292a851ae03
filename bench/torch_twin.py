#!/usr/bin/env python3
"""The workloads of weber_bench.c on PyTorch: the same flags, the same JSON line, side "torch".

A training step is forward, loss, gradient, update on one of eight batches made beforehand, and reading the loss
(item()); an inference is forward.  float32, eager mode, optimisers with foreach, which is the faster of the two
on a CPU.  Works with PyTorch 1.13 and 2.  See weber_bench.c for what the workloads are.
"""
import argparse
import json
import math
import os
import resource
import time

options = argparse.ArgumentParser()
options.add_argument("--workload", required=True)
options.add_argument("--threads", type=int, default=1)
options.add_argument("--seconds", type=float, default=2)
options = options.parse_args()
for name in ("OMP", "OPENBLAS", "MKL"):
    os.environ[name + "_NUM_THREADS"] = str(options.threads)

import torch                                            # noqa: E402  (reads the variables above)
from torch import nn                                    # noqa: E402
from torch.nn import functional as F                    # noqa: E402

torch.set_num_threads(options.threads)
torch.manual_seed(1)


def mlp(*sizes, activation=nn.ReLU):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers[:-1])


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), *mlp(256, 120, 84, 10))


def vgg():
    layers, previous = [], 3
    for channels in (32, 64, 128):
        for _ in range(2):
            layers += [nn.Conv2d(previous, channels, 3, padding=1), nn.ReLU()]
            previous = channels
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), *mlp(2048, 256, 10))


class Residual(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.new = outer - inner
        stride = 2 if self.new else 1
        self.way = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        y = self.way(x)
        if self.new:                                    # every other pixel, zeros for the new channels
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.new // 2, self.new // 2))
        return F.relu(x + y)


def resnet20():
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [Residual(a, b) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Block(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.before, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.join, self.middle = nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("hidden", torch.ones(length, length, dtype=torch.bool).triu(1), persistent=False)

    def attend(self, x):
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.project(x).split(width, dim=2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            weights = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[-1])
            y = weights.masked_fill(self.hidden, -math.inf).softmax(-1) @ v
        return self.join(y.transpose(1, 2).reshape(n, t, width))

    def forward(self, x):
        x = x + self.attend(self.before(x))
        return x + self.down(F.gelu(self.up(self.middle(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, letters=65, length=128, width=128, heads=4, blocks=4):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        for table in (self.letters, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, length) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = self.letters(x) + self.places.weight[:x.shape[1]]
        return F.linear(self.norm(self.blocks(y)), self.letters.weight)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


ADAM, ADAMW, SGD = torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD
WORKLOADS = {           # model, shape of x, classes, rule and its numbers (None: inference)
    "W1": (lambda: mlp(2, 3, 2, activation=nn.Tanh), (64, 2), 2, (ADAM, {"lr": 1e-2})),
    "W2": (lambda: mlp(784, 256, 10), (64, 784), 10, (ADAM, {"lr": 1e-3})),
    "W3": (lenet, (64, 1, 28, 28), 10, (ADAM, {"lr": 1e-3})),
    "W4a": (vgg, (32, 3, 32, 32), 10, (SGD, {"lr": 0.01, "momentum": 0.9})),
    "W4b": (resnet20, (32, 3, 32, 32), 10, (SGD, {"lr": 0.01, "momentum": 0.9})),
    "W5": (GPT, (8, 128), 65, (ADAMW, {"lr": 3e-4, "weight_decay": 0.01})),
    "W6": (Recurrent, (32, 50, 64), 10, (ADAM, {"lr": 1e-3})),
    "W7a": (lambda: mlp(784, 256, 10), (1, 784), 10, None),
    "W7b": (lenet, (1, 1, 28, 28), 10, None),
}
make, shape, classes, rule = WORKLOADS[options.workload]
model = make()
if options.workload == "W5":
    xs = [torch.randint(classes, shape) for _ in range(8)]
    ys = [torch.randint(classes, (shape[0] * shape[1],)) for _ in range(8)]
else:
    xs = [torch.randn(shape) for _ in range(8)]
    ys = [torch.randint(classes, shape[:1]) for _ in range(8)]
if options.workload == "W1":
    ys = [((x[:, 0] > 0) != (x[:, 1] > 0)).long() for x in xs]

if rule:
    optimiser = rule[0](model.parameters(), foreach=True, **rule[1])

    def step(i):
        optimiser.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(xs[i % 8]).view(-1, classes), ys[i % 8])
        loss.backward()
        optimiser.step()
        return loss.item()
else:
    model.eval()

    def step(i):
        with torch.inference_mode():
            model(xs[i % 8])
        return math.nan


def age():
    """Seconds since the process began: by whoever started it, else by the kernel, to 10 ms."""
    if "BENCH_STARTED_AT" in os.environ:
        return time.clock_gettime(time.CLOCK_MONOTONIC) - float(os.environ["BENCH_STARTED_AT"])
    with open("/proc/self/stat") as f:
        began = int(f.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


first_loss = step(0)
first_step = age()
clock = time.perf_counter

# Warm up for a fifth of the time, then time blocks of about 20 ms, each at least one step.
i, begun = 1, clock()
while clock() < begun + max(0.2, options.seconds / 5) or i < 6:
    step(i)
    i += 1
block = max(1, int(0.02 / ((clock() - begun) / (i - 1))))
times, last_loss = [], math.nan
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
begun = clock()
while clock() < begun + options.seconds or len(times) < 7:
    t = clock()
    for _ in range(block):
        last_loss = step(i)
        i += 1
    times.append((clock() - t) / block)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
times.sort()

with open("/proc/self/status") as f:
    peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))
finite = lambda x: round(x, 6) if math.isfinite(x) else None        # noqa: E731
print(json.dumps({
    "workload": options.workload, "side": "torch", "threads": options.threads,
    "step_us": round(times[len(times) // 2] * 1e6, 2), "step_us_p10": round(times[len(times) // 10] * 1e6, 2),
    "peak_mb": round(peak / 1024, 1), "first_step_ms": round(first_step * 1e3, 1),
    "first_loss": finite(first_loss), "last_loss": finite(last_loss),
    "checksum": finite(sum(p.detach().double().abs().sum().item() for p in model.parameters())),
    "faults_a_step": round(faults / (len(times) * block), 3), "steps": len(times) * block,
    "parameters": sum(p.numel() for p in model.parameters()), "version": torch.__version__,
}))
