#!/usr/bin/env python3
"""Models that PyTorch exports as ONNX: Weber beside ONNX Runtime and PyTorch.

    exported.py [--build build] [--rounds 5] [--seconds 2] [--threads 1,2] [--json FILE]

ResNet-18 on images of 224 x 224, and an encoder with the sizes of all-MiniLM-L6-v2, with random
values.  Each is measured in four ways, in turn: `wb_load` of the ONNX file, the same model written
with Weber's layers (onnx_bench.c), ONNX Runtime at its highest level, and PyTorch's own modules.
Prints the median of the rounds' medians, in milliseconds; the ratio of the file's time to ONNX
Runtime's; and the largest difference of the file's output from PyTorch's, relative to the largest
output.  Needs torch, onnx and
onnxruntime: BENCH_PYTHON names a Python that has them, else build/bench-venv of ./run bench.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent


# ---- the models ----------------------------------------------------------------------------------

def resnet18(torch):
    nn = torch.nn

    def conv_norm(into, out, kernel, stride):
        return nn.Sequential(nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False),
                             nn.BatchNorm2d(out))

    class Residual(nn.Module):
        def __init__(self, into, out, stride):
            super().__init__()
            self.inner = nn.Sequential(conv_norm(into, out, 3, stride), nn.ReLU(),
                                       conv_norm(out, out, 3, 1))
            self.outer = nn.Identity() if into == out else conv_norm(into, out, 1, stride)

        def forward(self, x):
            return torch.relu(self.inner(x) + self.outer(x))

    layers = [conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for into, out in ((64, 64), (64, 128), (128, 256), (256, 512)):
        layers += [Residual(into, out, 1 if into == out else 2), Residual(out, out, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def encoder(torch):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(384, 3 * 384), nn.Linear(384, 384)
            self.norm, self.last_norm = nn.LayerNorm(384), nn.LayerNorm(384)
            self.mlp = nn.Sequential(nn.Linear(384, 1536), nn.GELU(), nn.Linear(1536, 384))

        def forward(self, x, mask):
            n, t, _ = x.size()
            q, k, v = (part.view(n, t, 12, 32).transpose(1, 2)
                       for part in self.qkv(x).split(384, 2))
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = self.norm(x + self.out(y.transpose(1, 2).reshape(n, t, 384)))
            return self.last_norm(x + self.mlp(x))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(30522, 384), nn.Embedding(512, 384)
            self.norm = nn.LayerNorm(384)
            self.blocks = nn.ModuleList(Block() for _ in range(6))

        def forward(self, ids, mask):
            x = self.norm(self.words(ids) + self.places.weight[:ids.size(1)])
            keep = (mask != 0)[:, None, None, :]
            for block in self.blocks:
                x = block(x, keep)
            return x

    return Encoder()


def inputs_of(torch, kind, batch):
    if kind == "resnet18":
        return (torch.randn(batch, 3, 224, 224),)
    mask = torch.ones(batch, 128, dtype=torch.int64)
    mask[-1, 120:] = 0
    return torch.randint(0, 30522, (batch, 128)), mask


MODELS = {"resnet18": resnet18, "encoder": encoder}
CASES = [("resnet18", 1), ("resnet18", 8), ("encoder", 1), ("encoder", 16)]


def export(folder):
    """Writes KIND.onnx, and for each case its inputs and PyTorch's output."""
    import numpy
    import torch
    for kind, make in MODELS.items():
        torch.manual_seed(1)
        model = make(torch).eval()
        names = ["x"] if kind == "resnet18" else ["ids", "mask"]
        axes = {0: "batch"} if kind == "resnet18" else {0: "batch", 1: "length"}
        torch.onnx.export(model, inputs_of(torch, kind, 2), folder / f"{kind}.onnx", dynamo=False,
                          opset_version=17, input_names=names, output_names=["y"],
                          dynamic_axes={name: axes for name in names})
        torch.save(model.state_dict(), folder / f"{kind}.pt")
        for batch in (batch for name, batch in CASES if name == kind):
            inputs = inputs_of(torch, kind, batch)
            with torch.no_grad():
                y = model(*inputs)
            for name, value in (*zip(names, inputs), ("y", y)):
                numpy.save(folder / f"{kind}-{batch}-{name}.npy", value.numpy())


# ---- the sides -----------------------------------------------------------------------------------

def timed(call, seconds):
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return {"us": 1e6 * median(times)}


def runtime_side(folder, kind, batch, threads, seconds):
    import numpy
    import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(folder / f"{kind}.onnx", settings,
                                           providers=["CPUExecutionProvider"])
    feed = {each.name: numpy.load(folder / f"{kind}-{batch}-{each.name}.npy")
            for each in session.get_inputs()}
    return timed(lambda: session.run(None, feed), seconds)


def torch_side(folder, kind, batch, threads, seconds):
    import torch
    torch.set_num_threads(threads)
    model = MODELS[kind](torch).eval()
    model.load_state_dict(torch.load(folder / f"{kind}.pt"))
    inputs = inputs_of(torch, kind, batch)
    with torch.inference_mode():
        return timed(lambda: model(*inputs), seconds)


def side(words):
    name, folder, kind, batch, threads, seconds = words
    run = {"ONNX Runtime": runtime_side, "PyTorch": torch_side}[name]
    print(json.dumps(run(Path(folder), kind, int(batch), int(threads), float(seconds))))


def command(name, program, folder, kind, batch, threads, seconds):
    if not name.startswith("Weber"):
        return [sys.executable, __file__, "--side", name, folder, kind, batch, threads, seconds]
    names = ["x"] if kind == "resnet18" else ["ids", "mask"]
    model = folder / f"{kind}.onnx" if name == "Weber, file" else kind
    return [program, model, *(folder / f"{kind}-{batch}-{each}.npy" for each in names),
            "--threads", threads, "--seconds", seconds, "--out", folder / "out.npy"]


SIDES = ("Weber, file", "Weber, layers", "ONNX Runtime", "PyTorch")


def difference(folder, kind, batch):
    import numpy
    y, out = numpy.load(folder / f"{kind}-{batch}-y.npy"), numpy.load(folder / "out.npy")
    return float(abs(y - out).max() / abs(y).max())


def measure(folder, options, kind, batch, threads):
    """The median milliseconds of each side; ratio: the file's to ONNX Runtime's"""
    rows, far = {name: [] for name in SIDES}, 0.0
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    for _ in range(options.rounds):
        for name in SIDES:
            words = command(name, Path(options.build).resolve() / "bench" / "onnx_bench", folder,
                            kind, batch, threads, options.seconds)
            run = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                                 env=environment, check=False)
            if run.returncode:
                sys.exit(f"{name}, {kind}: {run.stderr.strip()}")
            rows[name].append(json.loads(run.stdout.splitlines()[-1])["us"] / 1e3)
            if name == "Weber, file":
                far = max(far, difference(folder, kind, batch))
    result = {"model": kind, "batch": batch, "threads": threads, "difference": far}
    result.update({name: round(median(times), 3) for name, times in rows.items()})
    result["ratio"] = round(result["Weber, file"] / result["ONNX Runtime"], 3)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="the folder of the build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--json", help="writes the results to this file")
    options = parser.parse_args()
    import onnxruntime
    import torch
    print(f"PyTorch {torch.__version__}, ONNX Runtime {onnxruntime.__version__}; milliseconds")
    print(f"{'model':<12}{'batch':>6}{'threads':>8}" + "".join(f"{name:>15}" for name in SIDES) +
          f"{'ratio':>8}{'difference':>12}")
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export(folder)
        for kind, batch in CASES:
            for threads in map(int, options.threads.split(",")):
                r = measure(folder, options, kind, batch, threads)
                results.append(r)
                print(f"{kind:<12}{batch:>6}{threads:>8}" +
                      "".join(f"{r[side]:>15.3f}" for side in SIDES) +
                      f"{r['ratio']:>8.3f}{r['difference']:>12.1e}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    python = os.environ.get("BENCH_PYTHON") or HERE.parent / "build/bench-venv/bin/python3"
    if sys.argv[1:2] == ["--side"]:
        side(sys.argv[2:])
    elif Path(python).exists() and not os.environ.get("ONNX_BENCH"):
        os.execve(python, [str(python), __file__, *sys.argv[1:]], dict(os.environ, ONNX_BENCH="1"))
    else:
        main()
