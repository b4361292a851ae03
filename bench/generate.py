#!/usr/bin/env python3
"""Tokens per second of a GPT with a cache of keys and values: Weber beside PyTorch.

  bench/generate.py BUILD [--model small|gpt2] [--dtype f32|bf16] [--tokens N] [--batch 1]
                    [--threads 1] [--rounds 5]

BUILD is a build folder with bench/generate_bench.  small: 256 characters of a small GPT; gpt2: 64
tokens of GPT-2 124M.  All sides have the same weights, generate the most likely token each time,
and must write the same text; in bf16, where sides round differently, the page has the number of
equal tokens.  They run in turns; the figures are the medians over the rounds of each round's
fastest repeat.

Each token reads all weights once, so the memory's bandwidth is the limit of gpt2.  It is measured
in the same run, with as many threads, as the fastest reading of 512 MiB.

The Python must have PyTorch (./run bench --rivals).  PyTorch is eager, with one product for query,
key and value.  llama.cpp is not measured: PyPI has it as source only, which takes long to build.
"""
import argparse
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

REPEATS = 5
SIZES = {"small": (65, 256, 128, 4, 4, 256), "gpt2": (50257, 1024, 768, 12, 12, 64)}
options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
options.add_argument("build", type=pathlib.Path)
options.add_argument("--model", choices=list(SIZES), default="small")
options.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
for name, value in (("tokens", 0), ("batch", 1), ("threads", 1), ("rounds", 5)):
    options.add_argument("--" + name, type=int, default=value)
options = options.parse_args()
CLASSES, LENGTH, WIDTH, HEADS, BLOCKS, TOKENS = SIZES[options.model]
TIED = options.model == "gpt2"          # the head is the table of the tokens
HEAD = "layers.0.layers.0.weight" if TIED else f"layers.{BLOCKS + 2}.weight"


def weights(torch):
    """The weights by Weber's names; large enough that the text is no repetition."""
    torch.manual_seed(1)
    w = {}

    def draw(name, *shape, scale=0.08):
        w[name] = torch.randn(*shape) * scale

    def norm(name):
        draw(name + ".scale", WIDTH, scale=0.1)
        w[name + ".scale"] += 1
        draw(name + ".bias", WIDTH)

    def dense(name, out, inner):
        draw(name + ".weight", out, inner)
        draw(name + ".bias", out)

    draw("layers.0.layers.0.weight", CLASSES, WIDTH, scale=0.05 if TIED else 1)
    draw("layers.0.layers.1.layers.1.weight", LENGTH, WIDTH, scale=1)
    for i in range(BLOCKS):
        at = f"layers.{i + 1}.layers"
        norm(f"{at}.0.layers.layers.0")
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            dense(f"{at}.0.layers.layers.1.{part}", WIDTH, WIDTH)
        norm(f"{at}.1.layers.layers.0")
        dense(f"{at}.1.layers.layers.1", 4 * WIDTH, WIDTH)
        dense(f"{at}.1.layers.layers.2", WIDTH, 4 * WIDTH)
    norm(f"layers.{BLOCKS + 1}")
    if not TIED:
        draw(HEAD, CLASSES, WIDTH)
    return w


def bytes_of_token(w):
    """The bytes of the weights that one token reads: without the tables, except for the head."""
    table = "layers.0.layers."
    count = sum(x.numel() for name, x in w.items()
                if name == HEAD or not (name.startswith(table) and name.endswith(".weight")))
    return count * (2 if options.dtype == "bf16" else 4)


def save(w, path):
    header, at = {}, 0
    for name, x in w.items():
        header[name] = {"dtype": "F32", "shape": list(x.shape),
                        "data_offsets": [at, at + 4 * x.numel()]}
        at += 4 * x.numel()
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for x in w.values():
            f.write(x.numpy().tobytes())


def torch_side(torch, w, tokens, batch):
    """Returns a function that generates, and returns the characters."""
    F = torch.nn.functional
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    w = {name: x.to(dtype) for name, x in w.items()}
    blocks = []
    for i in range(BLOCKS):
        at = f"layers.{i + 1}.layers"
        p = {k[len(at) + 1:]: v for k, v in w.items() if k.startswith(at + ".")}
        parts = [f"0.layers.layers.1.{part}_proj." for part in "qkv"]
        p["in.weight"] = torch.cat([p[part + "weight"] for part in parts])
        p["in.bias"] = torch.cat([p[part + "bias"] for part in parts])
        blocks.append(p)
    keys, values = ([torch.zeros(batch, HEADS, LENGTH, WIDTH // HEADS, dtype=dtype) for _ in blocks]
                    for _ in range(2))

    def norm(x, p, name):
        return F.layer_norm(x, (WIDTH,), p[name + ".scale"], p[name + ".bias"])

    def linear(x, p, name):
        return F.linear(x, p[name + ".weight"], p[name + ".bias"])

    def step(x, at):
        y = F.embedding(x, w["layers.0.layers.0.weight"])
        y = y + w["layers.0.layers.1.layers.1.weight"][at:at + 1]
        for p, k, v in zip(blocks, keys, values):
            joint = linear(norm(y, p, "0.layers.layers.0"), p, "in")
            q, k_now, v_now = (part.view(batch, 1, HEADS, -1).transpose(1, 2)
                               for part in joint.split(WIDTH, 2))
            k[:, :, at:at + 1] = k_now
            v[:, :, at:at + 1] = v_now
            a = F.scaled_dot_product_attention(q, k[:, :, :at + 1], v[:, :, :at + 1])
            y = y + linear(a.transpose(1, 2).reshape(batch, 1, WIDTH), p,
                           "0.layers.layers.1.out_proj")
            z = F.gelu(linear(norm(y, p, "1.layers.layers.0"), p, "1.layers.layers.1"),
                       approximate="tanh")
            y = y + linear(z, p, "1.layers.layers.2")
        y = norm(y, w, f"layers.{BLOCKS + 1}")
        return F.linear(y, w[HEAD]).argmax(-1)

    def generate():
        x = torch.arange(batch).remainder(CLASSES).view(batch, 1)
        line = x.flatten().tolist()
        for at in range(tokens):
            x = step(x, at)
            line += x.flatten().tolist()
        return line
    return generate


def timed(generate):
    """(the seconds of the fastest repeat, the text)"""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        line = generate()
        best = min(best, time.perf_counter() - start)
    return best, line


def weber_side(file, tokens, rates):
    """As timed(); appends the memory's bandwidth to `rates`."""
    command = [options.build / "bench" / "generate_bench", file]
    for name in ("model", "dtype", "batch", "threads"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--tokens", str(tokens), "--repeats", str(REPEATS)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(run.stdout)
    rates.append(statistics.median(result["bytes_per_second"]))
    return min(result["seconds"]), result["tokens"]


def main():
    import torch
    tokens = options.tokens or TOKENS
    torch.set_num_threads(options.threads)
    w, rates = weights(torch), []
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        file = pathlib.Path(folder) / "gpt.safetensors"
        save(w, file)
        torch_generate = torch_side(torch, w, tokens, options.batch)
        sides = {"Weber": lambda: weber_side(file, tokens, rates),
                 f"PyTorch {torch.__version__}": lambda: timed(torch_generate)}
        seconds, texts = {side: [] for side in sides}, {}
        for _ in range(options.rounds):
            for side, measure in sides.items():
                t, texts[side] = measure()
                seconds[side].append(t)
    rate, need = statistics.median(rates), bytes_of_token(w)
    line = texts["Weber"]
    print(f"{options.model}, {options.dtype}: {tokens} tokens, batch {options.batch}, "
          f"{options.threads} threads, {len(set(line))} different tokens; a token reads "
          f"{need / 1e6:.1f} MB, the memory's bandwidth is {rate / 1e9:.1f} GB/s\n")
    print("| side | tokens/s | a token | share of the bandwidth | equal tokens |")
    print("| --- | --- | --- | --- | --- |")
    for side, times in seconds.items():
        t = statistics.median(times) / tokens
        equal = next((i for i, pair in enumerate(zip(line, texts[side])) if pair[0] != pair[1]),
                     len(line)) // options.batch - 1
        print(f"| {side} | {options.batch / t:.1f} | {1e6 * t:.0f} us | {need / t / rate:.2f} "
              f"| {equal} of {tokens} |")
    print("| llama.cpp | not measured | | | |")
    if options.dtype == "f32" and any(text != line for text in texts.values()):
        sys.exit("the texts differ")


if __name__ == "__main__":
    main()
