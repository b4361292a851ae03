#!/usr/bin/env python3
"""Characters per second of a small GPT with a cache of keys and values: Weber and PyTorch.

  bench/generate.py BUILD [--tokens 256] [--batch 1] [--threads 1] [--rounds 5]

BUILD is a build folder with bench/generate_bench.  Both sides have the same weights, generate the
most likely character each time, and must write the same text.  They run in turns; the figures are
the medians over the rounds of each round's fastest repeat.
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

CLASSES, LENGTH, WIDTH, HEADS, BLOCKS, REPEATS = 65, 256, 128, 4, 4, 5


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

    draw("layers.0.layers.0.weight", CLASSES, WIDTH, scale=1)
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
    draw(f"layers.{BLOCKS + 2}.weight", CLASSES, WIDTH)
    return w


def save(w, path):
    header, data = {}, b""
    for name, x in w.items():
        raw = x.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def torch_side(torch, w, tokens, batch):
    """Returns a function that generates, and returns the characters."""
    F = torch.nn.functional
    blocks = []
    for i in range(BLOCKS):
        at = f"layers.{i + 1}.layers"
        p = {k[len(at) + 1:]: v for k, v in w.items() if k.startswith(at + ".")}
        parts = [f"0.layers.layers.1.{part}_proj." for part in "qkv"]
        p["in.weight"] = torch.cat([p[part + "weight"] for part in parts])
        p["in.bias"] = torch.cat([p[part + "bias"] for part in parts])
        blocks.append(p)
    keys, values = ([torch.zeros(batch, HEADS, LENGTH, WIDTH // HEADS) for _ in blocks]
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
        return F.linear(y, w[f"layers.{BLOCKS + 2}.weight"]).argmax(-1)

    def generate():
        x = torch.arange(batch).remainder(CLASSES).view(batch, 1)
        line = x.flatten().tolist()
        for at in range(tokens):
            x = step(x, at)
            line += x.flatten().tolist()
        return line
    return generate


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("build", type=pathlib.Path)
    for name, value in (("tokens", LENGTH), ("batch", 1), ("threads", 1), ("rounds", 5)):
        a.add_argument("--" + name, type=int, default=value)
    a = a.parse_args()
    import torch
    torch.set_num_threads(a.threads)
    w = weights(torch)
    generate = torch_side(torch, w, a.tokens, a.batch)
    seconds = {"Weber": [], f"PyTorch {torch.__version__}": []}
    ours, theirs = seconds.values()
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        file = pathlib.Path(folder) / "gpt.safetensors"
        save(w, file)
        command = [a.build / "bench" / "generate_bench", file, "--tokens", str(a.tokens), "--batch",
                   str(a.batch), "--repeats", str(REPEATS)]
        for _ in range(a.rounds):
            run = subprocess.run(command, check=True, capture_output=True, text=True,
                                 env=os.environ | {"WEBER_NUM_THREADS": str(a.threads)})
            result = json.loads(run.stdout)
            ours.append(min(result["seconds"]))
            times = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                line = generate()
                times.append(time.perf_counter() - start)
            theirs.append(min(times))
            if line != result["characters"]:
                sys.exit("the texts differ")
    print(f"{a.tokens} characters, batch {a.batch}, {a.threads} threads; the texts are the same, "
          f"with {len(set(line))} different characters")
    for side, times in seconds.items():
        t = statistics.median(times)
        print(f"{side}: {a.tokens * a.batch / t:.0f} characters/s, "
              f"{1e6 * t / a.tokens:.0f} us a step")
    print(f"ratio {statistics.median(theirs) / statistics.median(ours):.2f}")


if __name__ == "__main__":
    main()
