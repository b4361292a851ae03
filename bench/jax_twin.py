#!/usr/bin/env python3
"""One workload of the benchmark on JAX: the options and the line of JSON of weber_bench.c.

    jax_twin.py --workload W3 [--threads 1] [--seconds 2] [--dtype f32|tf32|bf16] [--batch N]
                [--length N] [--start FILE] [--hold]

workloads.h lists the workloads.  The side is named "jax".

Plain JAX on its default device.  The whole step is one jitted function; parameters and optimiser
state are donated, so that they are updated in place.  bf16: parameters and optimiser state are f32,
the model computes in bf16, losses and norms in f32; causal attention in bf16 on a GPU is cuDNN's.
On a GPU only the last step of a block reads the loss and waits for the device; on the CPU each step
does.  JAX has a thread for each processor that the process may use: run.py grants --threads.

--start: the parameters and batches of a file of weber_bench --save, so that the losses are Weber's.

--hold: prints a line when it is ready; then, for each line with a number of seconds that it reads,
prints a line of figures.  The first measurement begins with the compilation, which measures
algorithms.
"""
import argparse
import json
import math
import os

options = argparse.ArgumentParser()
options.add_argument("--workload", required=True)
options.add_argument("--threads", type=int, default=0)
options.add_argument("--seconds", type=float, default=2)
options.add_argument("--dtype", default="f32", choices=["f32", "tf32", "bf16"])
options.add_argument("--batch", type=int, default=0, help="samples per batch; 0: as in workloads.h")
options.add_argument("--length", type=int, default=0,
                     help="tokens per sequence; 0: as in workloads.h")
options.add_argument("--start", help="a file of weber_bench --save")
options.add_argument("--hold", action="store_true")
options = options.parse_args()
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy                                            # noqa: E402
import jax                                              # noqa: E402  (reads the variable above)
import jax.numpy as jnp                                 # noqa: E402
from jax import lax, nn                                 # noqa: E402
import twins                                            # noqa: E402
from twins import clock, finite                         # noqa: E402

on_gpu = jax.default_backend() == "gpu"
precision = "highest" if options.dtype == "f32" else "tensorfloat32"
jax.config.update("jax_default_matmul_precision", precision)
COMPUTE = jnp.bfloat16 if options.dtype == "bf16" else jnp.float32
draws = iter(jax.random.split(jax.random.PRNGKey(1), 4096))
first, start = twins.read_start(options.start) if options.start else ([], None)
first = iter(first)     # in the order in which the functions below create parameters


# ---- layers: lists and dicts of parameter arrays, and functions that apply them ------------------

def low(x):
    return x.astype(COMPUTE)


def given(make):
    """The next parameter of the start, in the layout of PyTorch; make() without a start."""
    return jnp.asarray(next(first)) if start else make()


def uniform(shape, fan):
    bound = 1 / math.sqrt(fan)
    return jax.random.uniform(next(draws), shape, jnp.float32, -bound, bound)


def small(*shape):
    return given(lambda: 0.02 * jax.random.normal(next(draws), shape))


def weight(inner, outer):
    return given(lambda: uniform((outer, inner), inner)).T


def dense(inner, outer):
    return {"w": weight(inner, outer), "b": given(lambda: jnp.zeros(outer))}


def linear(p, x):
    return x @ low(p["w"]) + low(p["b"])


def conv(inner, outer, size, bias=True):
    p = {"w": given(lambda: uniform((outer, inner, size, size), inner * size * size))}
    return dict(p, b=given(lambda: jnp.zeros(outer))) if bias else p


def convolve(p, x, stride=1, pad=0):
    y = lax.conv_general_dilated(x, low(p["w"]), (stride, stride), [(pad, pad)] * 2,
                                 dimension_numbers=("NCHW", "OIHW", "NCHW"))
    return y + low(p["b"])[:, None, None] if "b" in p else y


def pool(x, size=2, pad="VALID"):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, size, size), (1, 1, 2, 2), pad)


def channels(n):
    return {"scale": given(lambda: jnp.ones(n)), "bias": given(lambda: jnp.zeros(n))}


def statistics(widths):
    return [{"mean": jnp.zeros(n), "var": jnp.ones(n)} for n in widths]


def batch_norm(p, x, running):
    """The result and the new running statistics."""
    wide = x.astype(jnp.float32)
    mean, var = wide.mean((0, 2, 3)), wide.var((0, 2, 3))
    count = x.size / x.shape[1]
    moved = {"mean": 0.9 * running["mean"] + 0.1 * mean,
             "var": 0.9 * running["var"] + 0.1 * var * count / (count - 1)}
    scale = p["scale"] * lax.rsqrt(var + 1e-5)
    return low(wide * scale[:, None, None] + (p["bias"] - mean * scale)[:, None, None]), moved


def layer_norm(p, x):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    var = ((wide - mean) ** 2).mean(-1, keepdims=True)
    return low((wide - mean) * lax.rsqrt(var + 1e-5) * p["scale"] + p["bias"])


# ---- models: (parameters, state, function(parameters, state, x) -> (scores, new state)) ----------
# The state is what a step changes without a gradient: the running statistics of batch norms.

def plain(parameters, function):
    return parameters, (), lambda p, s, x: (function(p, x), s)


def mlp(*sizes, activation=nn.relu):
    def run(p, x):
        for layer in p[:-1]:
            x = activation(linear(layer, x))
        return linear(p[-1], x)
    return plain([dense(a, b) for a, b in zip(sizes, sizes[1:])], run)


def lenet():
    parameters = {"one": conv(1, 6, 5), "two": conv(6, 16, 5)}
    parameters["head"], _, run_head = mlp(256, 120, 84, 10)

    def run(p, x):
        x = pool(nn.relu(convolve(p["one"], x)))
        x = pool(nn.relu(convolve(p["two"], x)))
        return run_head(p["head"], (), x.reshape(x.shape[0], -1))[0]
    return plain(parameters, run)


def vgg():
    widths = [3, 32, 32, 64, 64, 128, 128]
    parameters = {"convs": [conv(a, b, 3) for a, b in zip(widths, widths[1:])]}
    parameters["head"], _, run_head = mlp(2048, 256, 10)

    def run(p, x):
        for k, layer in enumerate(p["convs"]):
            x = nn.relu(convolve(layer, x, pad=1))
            x = pool(x) if k % 2 else x
        return run_head(p["head"], (), x.reshape(x.shape[0], -1))[0]
    return plain(parameters, run)


def resnet20():
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    pairs = list(zip(widths, widths[1:]))
    parameters = {"stem": conv(3, 16, 3, False), "norm": channels(16)}
    parameters["blocks"] = [{"one": conv(a, b, 3, False), "norm": channels(b),
                             "two": conv(b, b, 3, False), "last": channels(b)} for a, b in pairs]
    parameters["head"] = dense(64, 10)
    state = statistics([16] + [b for _, b in pairs for _ in range(2)])

    def run(p, s, x):
        x, first = batch_norm(p["norm"], convolve(p["stem"], x, pad=1), s[0])
        x, moved = nn.relu(x), [first]
        for k, (block, (a, b)) in enumerate(zip(p["blocks"], pairs)):
            y = convolve(block["one"], x, 1 if a == b else 2, 1)
            y, one = batch_norm(block["norm"], y, s[1 + 2 * k])
            y = convolve(block["two"], nn.relu(y), pad=1)
            y, two = batch_norm(block["last"], y, s[2 + 2 * k])
            if a != b:
                more = (b - a) // 2
                x = jnp.pad(x[:, :, ::2, ::2], ((0, 0), (more, more), (0, 0), (0, 0)))
            x, moved = nn.relu(x + y), moved + [one, two]
        return linear(p["head"], x.mean((2, 3))), moved
    return parameters, state, run


def resnet50():
    shapes, inner = [], 64                  # of the blocks: inner, width, stride
    for stage, count in enumerate((3, 4, 6, 3)):
        for number in range(count):
            shapes.append((inner, 64 << stage, 2 if stage and not number else 1))
            inner = 4 * shapes[-1][1]
    parameters = {"stem": conv(3, 64, 7, False), "norm": channels(64), "blocks": []}
    widths = [64]
    for inner, width, _ in shapes:
        block = {"one": conv(inner, width, 1, False), "norm": channels(width),
                 "two": conv(width, width, 3, False), "middle": channels(width),
                 "three": conv(width, 4 * width, 1, False), "last": channels(4 * width)}
        widths += [width, width, 4 * width]
        if inner != 4 * width:
            block.update(four=conv(inner, 4 * width, 1, False), short=channels(4 * width))
            widths.append(4 * width)
        parameters["blocks"].append(block)
    parameters["head"] = dense(2048, 1000)

    def run(p, s, x):
        old, moved = iter(s), []

        def normed(norm, y):
            y, new = batch_norm(norm, y, next(old))
            moved.append(new)
            return y
        x = nn.relu(normed(p["norm"], convolve(p["stem"], x, 2, 3)))
        x = pool(x, 3, ((0, 0), (0, 0), (1, 1), (1, 1)))
        for block, (_, _, stride) in zip(p["blocks"], shapes):
            y = nn.relu(normed(block["norm"], convolve(block["one"], x)))
            y = nn.relu(normed(block["middle"], convolve(block["two"], y, stride, 1)))
            y = normed(block["last"], convolve(block["three"], y))
            if "four" in block:
                x = normed(block["short"], convolve(block["four"], x, stride))
            x = nn.relu(x + y)
        return linear(p["head"], x.mean((2, 3))), moved
    return parameters, statistics(widths), run


def attend(q, k, v):
    """Causal attention; q, k, v and the result are [n, t, heads, size]."""
    if on_gpu and COMPUTE == jnp.bfloat16:
        return nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
    return nn.dot_product_attention(q, k, v, is_causal=True)


def gpt(vocabulary=65, length=128, width=128, heads=4, blocks=4):
    parameters = {"tokens": small(vocabulary, width), "positions": small(length, width)}
    parameters["blocks"] = [
        {"before": channels(width), "project": dense(width, 3 * width),
         "join": dense(width, width), "middle": channels(width), "up": dense(width, 4 * width),
         "down": dense(4 * width, width)} for _ in range(blocks)]
    parameters["norm"] = channels(width)

    def run(p, x):
        n, t = x.shape
        y = low(p["tokens"])[x] + low(p["positions"])[:t]
        for block in p["blocks"]:
            projected = linear(block["project"], layer_norm(block["before"], y))
            q, k, v = (part.reshape(n, t, heads, -1) for part in jnp.split(projected, 3, axis=-1))
            y = y + linear(block["join"], attend(q, k, v).reshape(n, t, width))
            wide = nn.gelu(linear(block["up"], layer_norm(block["middle"], y)), approximate=True)
            y = y + linear(block["down"], wide)
        return (layer_norm(p["norm"], y) @ low(p["tokens"]).T).reshape(n * t, -1)
    return plain(parameters, run)


def lstm(inner=64, width=128):
    def run(p, x):
        gates = (linear(p["input"], x)).transpose(1, 0, 2)

        def cell(carry, gate):
            h, c = carry
            i, f, g, o = jnp.split(gate + h @ low(p["hidden"]), 4, axis=-1)
            c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
            return (nn.sigmoid(o) * jnp.tanh(c), c), None
        zero = jnp.zeros((x.shape[0], width), COMPUTE)
        (h, _), _ = lax.scan(cell, (zero, zero), gates, unroll=gates.shape[0])
        return linear(p["head"], h)
    products = {"w": weight(inner, 4 * width)}
    hidden = weight(width, 4 * width)
    products["b"] = given(lambda: jnp.zeros(4 * width))
    return plain({"input": products, "hidden": hidden, "head": dense(width, 10)}, run)


# ---- rules: (function(parameters) -> state, function(parameters, state, gradients) -> both) ------

def adam(rate, decay=0.0):
    def update(p, state, gradients):
        t = state["t"] + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], gradients)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["v"], gradients)
        a, b = 1 - 0.9 ** t, 1 - 0.999 ** t

        def moved(p, m, v):
            return p - rate * (m / a / (jnp.sqrt(v / b) + 1e-8) + decay * p)
        p = jax.tree.map(moved, p, m, v)
        return p, {"m": m, "v": v, "t": t}
    zeros = lambda p: jax.tree.map(jnp.zeros_like, p)           # noqa: E731
    return lambda p: {"m": zeros(p), "v": zeros(p), "t": jnp.float32(0)}, update


def momentum(rate=0.01, rho=0.9):
    def update(p, state, gradients):
        v = jax.tree.map(lambda v, g: rho * v + rate * g, state, gradients)
        return jax.tree.map(jnp.subtract, p, v), v
    return lambda p: jax.tree.map(jnp.zeros_like, p), update


WORKLOADS = {           # model, shape of x, number of classes, rule or None for inference
    "W1": (lambda: mlp(2, 3, 2, activation=jnp.tanh), (64, 2), 2, adam(1e-2)),
    "W2": (lambda: mlp(784, 256, 10), (64, 784), 10, adam(1e-3)),
    "W3": (lenet, (64, 1, 28, 28), 10, adam(1e-3)),
    "W4a": (vgg, (32, 3, 32, 32), 10, momentum()),
    "W4b": (resnet20, (32, 3, 32, 32), 10, momentum()),
    "W5": (gpt, (8, 128), 65, adam(3e-4, 0.01)),
    "W6": (lstm, (32, 50, 64), 10, adam(1e-3)),
    "W7a": (lambda: mlp(784, 256, 10), (1, 784), 10, None),
    "W7b": (lenet, (1, 1, 28, 28), 10, None),
    "G1": (lambda: gpt(50304, 1024, 768, 12, 12), (16, 1024), 50257, adam(3e-4, 0.01)),
    "G2": (resnet50, (128, 3, 224, 224), 1000, momentum()),
}
make, shape, classes, rule = WORKLOADS[options.workload]
begin, update = rule or (lambda p: (), None)
tokens = options.workload in ("W5", "G1")
shape = (options.batch or shape[0], *((options.length or shape[1],) if tokens else shape[1:]))
BATCHES = len(start) if start else 2 if options.workload == "G2" else 8
head = {"workload": options.workload, "side": "jax", "device": jax.devices()[0].platform,
        "dtype": options.dtype, "threads": options.threads, "batch": shape[0],
        "version": jax.__version__}


def loss_of(p, s, x, y):
    scores, s = apply(p, s, low(x) if jnp.issubdtype(x.dtype, jnp.floating) else x)
    scores = scores.astype(jnp.float32)
    chosen = jnp.take_along_axis(scores, y[:, None], axis=-1)[:, 0]
    return (nn.logsumexp(scores, axis=-1) - chosen).mean(), s


def step(p, s, o, x, y):
    (loss, s), gradients = jax.value_and_grad(loss_of, has_aux=True)(p, s, x, y)
    p, o = update(p, o, gradients)
    return p, s, o, loss


def infer(p, s, x):
    return apply(p, s, low(x))[0]


step, infer = jax.jit(step, donate_argnums=(0, 1, 2)), jax.jit(infer)


def prepare():
    """Creates model, state and batches.  The first step compiles."""
    global apply, parameters, state, moments, batches, start
    parameters, state, apply = make()
    moments = begin(parameters)
    if start:
        xs = [jnp.asarray(x) for x, _ in start]
        ys = [jnp.asarray(y) for _, y in start]
    elif tokens:
        xs = [jax.random.randint(next(draws), shape, 0, classes) for _ in range(BATCHES)]
        ys = [jax.random.randint(next(draws), (shape[0] * shape[1],), 0, classes)
              for _ in range(BATCHES)]
    else:
        xs = [jax.random.normal(next(draws), shape) for _ in range(BATCHES)]
        ys = [jax.random.randint(next(draws), shape[:1], 0, classes) for _ in range(BATCHES)]
    if options.workload == "W1" and not start:
        ys = [((x[:, 0] > 0) != (x[:, 1] > 0)).astype(jnp.int32) for x in xs]
    batches = list(zip(xs, ys))
    head["parameters"] = sum(p.size for p in jax.tree.leaves(parameters))


steps, last_loss = 0, math.nan


def enqueue():
    global parameters, state, moments, steps
    x, y = batches[steps % BATCHES]
    steps += 1
    if not rule:
        return infer(parameters, state, x)
    parameters, state, moments, loss = step(parameters, state, moments, x, y)
    return loss


def block_of(count):
    """Runs `count` steps.  Reads the loss of the last on a GPU, of each on the CPU."""
    global last_loss
    for k in range(count):
        result = enqueue()
        if not on_gpu or k == count - 1:
            last_loss = float(result) if rule else numpy.asarray(result)
    if on_gpu:
        jax.block_until_ready((parameters, state, moments))


def first_loss():
    """The loss of the next step; of an inference, the sum of the absolute results."""
    block_of(1)
    return last_loss if rule else float(numpy.abs(last_loss).sum())


def host_us():
    """Microseconds of the host for one step on an idle device: the median of up to 51 steps."""
    took, begun = [], clock()
    while len(took) < 51 and (len(took) < 5 or clock() < begun + 0.2):
        jax.block_until_ready(parameters)
        t = clock()
        enqueue()
        took.append(clock() - t)
    jax.block_until_ready(parameters)
    return sorted(took)[len(took) // 2] * 1e6


def measure(seconds, warm):
    row = dict(head, **twins.timings(block_of, seconds, warm, on_gpu))
    row.update(first_loss=finite(losses[0]), second_loss=finite(losses[1]),
               last_loss=finite(last_loss) if rule else None, first_step_ms=first_step_ms,
               peak_mb=twins.peak_mb())
    if tokens:
        row["tokens_per_s"] = round(shape[0] * shape[1] / row["step_us"] * 1e6, 1)
    else:
        row["samples_per_s"] = round(shape[0] / row["step_us"] * 1e6, 1)
    if on_gpu:
        row["host_us"] = round(host_us(), 2)
    if not options.hold:
        row["checksum"] = finite(sum(float(jnp.abs(p).sum()) for p in jax.tree.leaves(parameters)))
    held = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in held:
        row["peak_gpu_mb"] = round(held["peak_bytes_in_use"] / 2**20, 2)
    return row


def first_steps():
    global losses, first_step_ms
    losses = [first_loss()]
    first_step_ms = round(twins.age() * 1e3, 1)
    losses.append(first_loss())


prepare()
if options.hold:
    twins.serve(head, measure, first_steps)
else:
    first_steps()
    print(json.dumps(measure(options.seconds, max(0.2, options.seconds / 5))))
