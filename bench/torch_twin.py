#!/usr/bin/env python3
"""One workload of the benchmark on PyTorch: the options and the line of JSON of weber_bench.c.

    torch_twin.py --workload W3 [--threads 1] [--seconds 2] [--batch N] [--length N] [--hold]
                  [--device cuda] [--mode eager|compile|graph|compile-graph]
                  [--dtype f32|tf32|bf16] [--channels-last] [--start FILE]

workloads.h lists the workloads.  A training step computes forward pass, loss, gradient and update
on one of a few batches created beforehand; an inference step computes the forward pass.  The side
is named "torch" on the CPU in eager mode, else "torch-MODE".  Works with PyTorch 1.13 and 2.

--start: the parameters and batches of a file of weber_bench --save, so that the losses are Weber's.

On the CPU: float32; fused optimisers, or foreach where PyTorch has none; each step reads the loss.

On a GPU (PyTorch 2): fused optimisers, cuDNN's benchmark mode, TF32 unless --dtype is f32, autocast
for bf16; only the last step of a block reads the loss and waits for the device.  Modes: compile
compiles model and loss with torch.compile, graph replays the whole step as one CUDA graph,
compile-graph does both.

Ranks: with WORLD_SIZE above 1 (and RANK, MASTER_ADDR, MASTER_PORT) it trains with
DistributedDataParallel on gloo; --batch is then the batch of one rank, and rank 0 prints.

--hold: prints a line when it is ready; then, for each line with a number of seconds that it reads,
prints a line of figures.  The first measurement begins with the choice of algorithms by cuDNN and
the capture of the graph, so that sides which share a device do not disturb each other's choices.
"""
import argparse
import json
import math
import os

options = argparse.ArgumentParser()
options.add_argument("--workload", required=True)
options.add_argument("--threads", type=int, default=1)
options.add_argument("--seconds", type=float, default=2)
options.add_argument("--device", default="cpu", type=str.lower)
options.add_argument("--mode", default="eager", choices=[
    "eager", "compile", "graph", "compile-graph"])
options.add_argument("--dtype", default="f32", choices=["f32", "tf32", "bf16"])
options.add_argument("--batch", type=int, default=0, help="samples per batch; 0: as in workloads.h")
options.add_argument("--length", type=int, default=0,
                     help="tokens per sequence; 0: as in workloads.h")
options.add_argument("--channels-last", action="store_true")
options.add_argument("--start", help="a file of weber_bench --save")
options.add_argument("--hold", action="store_true")
options = options.parse_args()
for name in ("OMP", "OPENBLAS", "MKL"):
    os.environ[name + "_NUM_THREADS"] = str(options.threads)

import torch                                            # noqa: E402  (reads the variables above)
from torch import nn                                    # noqa: E402
from torch.nn import functional as F                    # noqa: E402
import twins                                            # noqa: E402
from twins import clock, finite                         # noqa: E402

ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
torch.set_num_threads(options.threads)
torch.manual_seed(1)
device = torch.device(options.device)
on_gpu = device.type == "cuda"
if on_gpu:
    torch.set_float32_matmul_precision("highest" if options.dtype == "f32" else "high")
    torch.backends.cudnn.allow_tf32 = options.dtype != "f32"


def mlp(*sizes, activation=nn.ReLU):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers[:-1])


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), *mlp(256, 120, 84, 10))


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
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        y = self.body(x)
        if self.new:    # every second pixel; zeros for the new channels
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.new // 2, self.new // 2))
        return F.relu(x + y)


def resnet20():
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [Residual(a, b) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Bottleneck(nn.Module):
    def __init__(self, inner, width, stride):
        super().__init__()
        outer = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outer, 1, bias=False), nn.BatchNorm2d(outer))
        self.shortcut = nn.Identity() if inner == outer else nn.Sequential(
            nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


def resnet50():
    blocks, inner = [], 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for number in range(count):
            width = 64 << stage
            blocks.append(Bottleneck(inner, width, 2 if stage and not number else 1))
            inner = 4 * width
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                         nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(2048, 1000))


class Block(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.before, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.join, self.middle = nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        if not hasattr(F, "scaled_dot_product_attention"):
            mask = torch.ones(length, length, dtype=torch.bool).triu(1)
            self.register_buffer("hidden", mask, persistent=False)

    def attend(self, x):
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2)
                   for part in self.project(x).split(width, dim=2))
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
    def __init__(self, vocabulary=65, length=128, width=128, heads=4, blocks=4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, length) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = self.tokens(x) + self.positions.weight[:x.shape[1]]
        return F.linear(self.norm(self.blocks(y)), self.tokens.weight)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


ADAM, ADAMW, SGD = torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD
# Model, shape of x, number of classes, (optimiser, its options) or None for inference, batches.
WORKLOADS = {
    "W1": (lambda: mlp(2, 3, 2, activation=nn.Tanh), (64, 2), 2, (ADAM, {"lr": 1e-2}), 8),
    "W2": (lambda: mlp(784, 256, 10), (64, 784), 10, (ADAM, {"lr": 1e-3}), 8),
    "W3": (lenet, (64, 1, 28, 28), 10, (ADAM, {"lr": 1e-3}), 8),
    "W4a": (vgg, (32, 3, 32, 32), 10, (SGD, {"lr": 0.01, "momentum": 0.9}), 8),
    "W4b": (resnet20, (32, 3, 32, 32), 10, (SGD, {"lr": 0.01, "momentum": 0.9}), 8),
    "W5": (GPT, (8, 128), 65, (ADAMW, {"lr": 3e-4, "weight_decay": 0.01}), 8),
    "W6": (Recurrent, (32, 50, 64), 10, (ADAM, {"lr": 1e-3}), 8),
    "W7a": (lambda: mlp(784, 256, 10), (1, 784), 10, None, 8),
    "W7b": (lenet, (1, 1, 28, 28), 10, None, 8),
    "G1": (lambda: GPT(50304, 1024, 768, 12, 12), (16, 1024), 50257,
           (ADAMW, {"lr": 3e-4, "weight_decay": 0.01}), 8),
    "G2": (resnet50, (128, 3, 224, 224), 1000, (SGD, {"lr": 0.01, "momentum": 0.9}), 2),
}
make, shape, classes, rule, BATCHES = WORKLOADS[options.workload]
tokens = len(shape) == 2 and make is GPT or options.workload == "G1"
shape = (options.batch or shape[0], *((options.length or shape[1],) if tokens else shape[1:]))
model = make().to(device)
if options.start:
    first, start = twins.read_start(options.start)
    first, BATCHES = iter(first), len(start)
    with torch.no_grad():
        for name, p in model.named_parameters():
            second = "bias_hh" in name              # the other sides have one bias
            p.copy_(torch.zeros_like(p) if second else torch.tensor(next(first)))
            p.requires_grad_(not second)
    xs = [torch.tensor(x).long() if tokens else torch.tensor(x) for x, _ in start]
    ys = [torch.tensor(y).long() for _, y in start]
    del first, start
elif tokens:
    xs = [torch.randint(classes, shape, device=device) for _ in range(BATCHES)]
    ys = [torch.randint(classes, (shape[0] * shape[1],), device=device) for _ in range(BATCHES)]
else:
    xs = [torch.randn(shape).to(device) for _ in range(BATCHES)]
    ys = [torch.randint(classes, shape[:1]).to(device) for _ in range(BATCHES)]
if options.workload == "W1" and not options.start:
    ys = [((x[:, 0] > 0) != (x[:, 1] > 0)).long() for x in xs]
if ranks > 1:
    torch.distributed.init_process_group("gloo")
    # PyTorch before 2.0 cannot broadcast the mask, a buffer of bool
    constant = [name for name, x in model.named_buffers() if x.dtype is torch.bool]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, constant)
    model = nn.parallel.DistributedDataParallel(model)
if options.channels_last:
    model = model.to(memory_format=torch.channels_last)
    xs = [x.contiguous(memory_format=torch.channels_last) for x in xs]


def loss_of(x, y):
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
        scores = model(x)
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), y)


captures = options.mode.endswith("graph") and on_gpu
if options.mode.startswith("compile"):
    loss_of = torch.compile(loss_of)
if rule:
    fused = on_gpu or torch.__version__ >= (2, 4)
    variant = {"fused": True} if fused else {"foreach": True}
    if captures and rule[0] is not SGD:
        variant["capturable"] = True
    optimiser = rule[0](model.parameters(), **variant, **rule[1])

    def compute(x, y):
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(x, y)
        loss.backward()
        optimiser.step()
        return loss.detach()
else:
    model.eval()

    def compute(x, y):
        with torch.inference_mode():
            return model(x)


class Captured:
    """The whole step as one CUDA graph, which reads copies of the batches in its own tensors."""
    def __init__(self):
        self.x, self.y = xs[0].clone(), ys[0].clone()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                compute(self.x, self.y)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        if rule:
            optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.result = compute(self.x, self.y)

    def __call__(self, x, y):
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.result


runner, steps, last_loss = compute, 0, math.nan


def wait():
    if on_gpu:
        torch.cuda.synchronize()


def block_of(count):
    """Runs `count` steps.  Reads the loss of the last on a GPU, of each on the CPU."""
    global steps, last_loss
    for k in range(count):
        result = runner(xs[steps % BATCHES], ys[steps % BATCHES])
        steps += 1
        if rule and (not on_gpu or k == count - 1):
            last_loss = result.item()
    wait()


def settle():
    """Lets cuDNN choose its algorithms by trial and captures the graph, on an idle device."""
    global runner
    if on_gpu:
        torch.backends.cudnn.benchmark = True
        for _ in range(3):
            block_of(1)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        if captures:
            runner = Captured()


def host_us():
    """Microseconds of the host for one step on an idle device: the median of up to 51 steps."""
    global steps
    took, begun = [], clock()
    while len(took) < 51 and (len(took) < 5 or clock() < begun + 0.2):
        wait()
        t = clock()
        runner(xs[steps % BATCHES], ys[steps % BATCHES])
        took.append(clock() - t)
        steps += 1
    wait()
    return sorted(took)[len(took) // 2] * 1e6


def goes_on(more):
    """The decision of rank 0, for all ranks."""
    if ranks == 1:
        return more
    decision = torch.tensor(int(more))
    torch.distributed.broadcast(decision, 0)
    return bool(decision)


def measure(seconds, warm):
    row = dict(head, **twins.timings(block_of, seconds, warm, on_gpu, ranks > 1, goes_on))
    if tokens:
        row["tokens_per_s"] = round(shape[0] * shape[1] / row["step_us"] * 1e6, 1)
    else:
        row["samples_per_s"] = round(shape[0] / row["step_us"] * 1e6, 1)
    if on_gpu:
        row["peak_gpu_mb"] = round(torch.cuda.max_memory_allocated() / 2**20, 2)
        row["host_us"] = round(host_us(), 2)
    row.update(peak_mb=twins.peak_mb(), first_step_ms=round(first_step * 1e3, 1),
               first_loss=finite(losses[0]), second_loss=finite(losses[1]),
               last_loss=finite(last_loss))
    if not options.hold:
        sums = (p.detach().double().abs().sum().item() for p in model.parameters())
        row["checksum"] = finite(sum(sums))
    return row


def first_loss(batch):
    """The loss of the next step; of an inference, the sum of the absolute results."""
    if rule:
        block_of(1)
        return last_loss
    return compute(*batch).abs().double().sum().item()


side = "torch" if options.mode == "eager" and not on_gpu else "torch-" + options.mode
side = "torch-ddp" if ranks > 1 else side
head = {"workload": options.workload, "side": side + ("-nhwc" if options.channels_last else ""),
        "device": options.device, "dtype": options.dtype, "threads": options.threads,
        "batch": shape[0],
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "version": torch.__version__}
losses = [first_loss((xs[0], ys[0]))]
first_step = twins.age()
losses.append(first_loss((xs[1], ys[1])))
if options.hold:
    if on_gpu:
        torch.cuda.empty_cache()
    twins.serve(dict(head, first_step_ms=round(first_step * 1e3, 1)), measure, settle)
else:
    settle()
    figures = measure(options.seconds, max(0.2, options.seconds / 5))
    if rank == 0:
        print(json.dumps(figures))
