#!/usr/bin/env python3
"""Products with i8 weights at the sizes of GPT-2 124M: Weber, PyTorch and ONNX Runtime.

  bench/int8.py BUILD [--rows 1,256] [--threads 1,2] [--rounds 3]

BUILD is a build folder with bench/int8_bench, whose head describes the models. All sides quantise
activations when they multiply: Weber by rows, PyTorch (linear_dynamic) and ONNX Runtime
(quantize_dynamic: DynamicQuantizeLinear and MatMulInteger, per channel) the whole input. The sides
run in turns; the figures are microseconds for a layer, medians over the rounds of each round's
median. The Python must have PyTorch, onnx and onnxruntime; a side that it lacks is left out.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

REPEATS = 15
MODELS = {"attention": (48, (768, 768)), "perceptron": (24, (768, 3072)), "head": (1, (768, 50257))}
options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
options.add_argument("build", type=pathlib.Path)
options.add_argument("--rows", default="1,256")
options.add_argument("--threads", default="1,2")
options.add_argument("--rounds", type=int, default=3)
options = options.parse_args()


def median_of(call):
    """Seconds: the median of the repeats."""
    times = []
    for i in range(REPEATS + 2):
        start = time.perf_counter()
        call()
        if i >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def sizes_of(model):
    layers, sizes = MODELS[model]
    return [(sizes[i % 2], sizes[(i + 1) % 2]) for i in range(layers)]


def torch_sides(model, rows):
    """{name: function that computes once}"""
    import torch
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(out, inner, generator=generator) / inner ** 0.5
               for inner, out in sizes_of(model)]
    biases = [torch.zeros(len(w)) for w in weights]
    x = torch.randn(rows, weights[0].shape[1], generator=generator)
    packed = []
    for w, b in zip(weights, biases):
        scale = w.abs().amax(1) / 127
        q = torch.quantize_per_channel(w, scale, torch.zeros(len(w), dtype=torch.int64), 0,
                                       torch.qint8)
        packed.append(torch.ops.quantized.linear_prepack(q, b))
    halves = [(w.bfloat16(), b.bfloat16()) for w, b in zip(weights, biases)]

    def dense(pairs, y):
        for w, b in pairs:
            y = torch.nn.functional.linear(y, w, b)
        return y

    def quantised():
        y = x
        for p in packed:
            y = torch.ops.quantized.linear_dynamic(y, p)
        return y

    half = x.bfloat16()
    return {"PyTorch f32": lambda: dense(zip(weights, biases), x),
            "PyTorch bf16": lambda: dense(halves, half), "PyTorch int8": quantised}


def onnx_sides(model, rows, threads, folder):
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime.quantization import QuantType, quantize_dynamic
    random = np.random.default_rng(1)
    nodes, tensors, name = [], [], "x"
    for i, (inner, out) in enumerate(sizes_of(model)):
        w = (random.standard_normal((inner, out)) / inner ** 0.5).astype(np.float32)
        tensors += [numpy_helper.from_array(w, f"w{i}"),
                    numpy_helper.from_array(np.zeros(out, np.float32), f"b{i}")]
        nodes += [helper.make_node("MatMul", [name, f"w{i}"], [f"m{i}"]),
                  helper.make_node("Add", [f"m{i}", f"b{i}"], [f"y{i}"])]
        name = f"y{i}"
    first, last = sizes_of(model)[0][0], sizes_of(model)[-1][1]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, first])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, last])], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    plain, small = folder / "plain.onnx", folder / "int8.onnx"
    onnx.save(made, plain)
    quantize_dynamic(plain, small, per_channel=True, weight_type=QuantType.QInt8)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    x = {"x": random.standard_normal((rows, first)).astype(np.float32)}
    sides = {}
    for side, path in (("f32", plain), ("int8", small)):
        session = onnxruntime.InferenceSession(str(path), settings,
                                               providers=["CPUExecutionProvider"])
        sides[f"ONNX Runtime {side}"] = lambda session=session: session.run(None, x)
    return sides


def weber_seconds(rows, threads):
    run = subprocess.run([options.build / "bench" / "int8_bench", "--rows", str(rows), "--threads",
                          str(threads), "--repeats", str(REPEATS)], check=True,
                         capture_output=True, text=True)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    return {line["model"]: {f"Weber {kind}": statistics.median(line[kind])
                            for kind in ("f32", "bf16", "int8")} for line in lines}


def measure(rows, threads):
    """{model: {side: microseconds for a layer}}"""
    times = {model: {} for model in MODELS}
    try:
        import torch
        torch.set_num_threads(threads)
        print(f"PyTorch {torch.__version__}", end=" ")
    except ImportError:
        torch = None
    try:
        import onnxruntime
        print(f"ONNX Runtime {onnxruntime.__version__}")
    except ImportError:
        onnxruntime = None
    for _ in range(options.rounds):
        for model, found in weber_seconds(rows, threads).items():
            sides = {}
            with tempfile.TemporaryDirectory() as folder:
                if torch:
                    sides.update(torch_sides(model, rows))
                if onnxruntime:
                    sides.update(onnx_sides(model, rows, threads, pathlib.Path(folder)))
                for side, call in sides.items():
                    found[side] = median_of(call)
            for side, t in found.items():
                times[model].setdefault(side, []).append(t / MODELS[model][0])
    return {model: {side: 1e6 * statistics.median(t) for side, t in sides.items()}
            for model, sides in times.items()}


def main():
    for threads in map(int, options.threads.split(",")):
        for rows in map(int, options.rows.split(",")):
            found = measure(rows, threads)
            print(f"\n{rows} rows, {threads} threads, microseconds for a layer\n")
            print("| side | " + " | ".join(found) + " |")
            print("| --- |" + " --- |" * len(found))
            for side in next(iter(found.values())):
                print(f"| {side} | " + " | ".join(f"{found[model][side]:.0f}" for model in found)
                      + " |")


if __name__ == "__main__":
    main()
