#!/usr/bin/env python3
"""Products with i8 weights at the sizes of GPT-2 124M: Weber, PyTorch and ONNX Runtime.

  bench/int8.py BUILD [--rows 1,256] [--threads 1,2] [--rounds 3]

BUILD is a build folder with bench/int8_bench, whose head describes the models. All sides quantise
activations when they multiply: Weber by rows, PyTorch (linear_dynamic) and ONNX Runtime
(quantize_dynamic: DynamicQuantizeLinear and MatMulInteger, per channel) the whole input. The sides
run in turns; the figures are microseconds for a layer, medians over the rounds of each round's
fastest repeat. The Python must have PyTorch, onnx and onnxruntime; a side that it lacks is left
out.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

MODELS = {"attention": (48, (768, 768)), "perceptron": (24, (768, 3072)), "head": (1, (768, 50257))}
options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
options.add_argument("build", type=pathlib.Path)
options.add_argument("--rows", default="1,256")
options.add_argument("--threads", default="1,2")
options.add_argument("--rounds", type=int, default=3)
options = options.parse_args()


def repeats(rows):
    return 15 if rows < 16 else 5


def fastest(call, rows):
    """Seconds of the fastest repeat."""
    best = float("inf")
    call()
    for _ in range(repeats(rows)):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


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


def write_onnx(model, folder):
    """Writes the model in f32 and quantised."""
    import numpy as np
    import onnx
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
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", first])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", last])], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    plain = folder / f"{model} f32.onnx"
    onnx.save(made, plain)
    quantize_dynamic(plain, folder / f"{model} int8.onnx", per_channel=True,
                     weight_type=QuantType.QInt8)


def onnx_sides(model, rows, threads, folder):
    import numpy as np
    import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    x = {"x": np.random.default_rng(1).standard_normal((rows, 768)).astype(np.float32)}
    sides = {}
    for kind in ("f32", "int8"):
        session = onnxruntime.InferenceSession(str(folder / f"{model} {kind}.onnx"), settings,
                                               providers=["CPUExecutionProvider"])
        sides[f"ONNX Runtime {kind}"] = lambda session=session: session.run(None, x)
    return sides


def weber_seconds(rows, threads):
    run = subprocess.run([options.build / "bench" / "int8_bench", "--rows", str(rows), "--threads",
                          str(threads), "--repeats", str(repeats(rows))], check=True,
                         capture_output=True, text=True)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    return {line["model"]: {f"Weber {kind}": min(line[kind])
                            for kind in ("f32", "bf16", "int8")} for line in lines}


def measure(rows, threads, torch, folder):
    """{model: {side: microseconds for a layer}}"""
    times = {model: {} for model in MODELS}
    sides = {model: {} for model in MODELS}
    for model, of in sides.items():
        if torch:
            torch.set_num_threads(threads)
            of.update(torch_sides(model, rows))
        if folder:
            of.update(onnx_sides(model, rows, threads, folder))
    for _ in range(options.rounds):
        for model, found in weber_seconds(rows, threads).items():
            for side, call in sides[model].items():
                found[side] = fastest(call, rows)
            for side, t in found.items():
                times[model].setdefault(side, []).append(t / MODELS[model][0])
    return {model: {side: 1e6 * statistics.median(t) for side, t in sides.items()}
            for model, sides in times.items()}


def compare(torch, folder):
    for threads in map(int, options.threads.split(",")):
        for rows in map(int, options.rows.split(",")):
            found = measure(rows, threads, torch, folder)
            print(f"\n{rows} rows, {threads} threads, microseconds for a layer\n")
            print("| side | " + " | ".join(found) + " |")
            print("| --- |" + " --- |" * len(found))
            for side in next(iter(found.values())):
                print(f"| {side} | " + " | ".join(f"{found[model][side]:.0f}" for model in found)
                      + " |", flush=True)


def main():
    try:
        import torch
        print(f"PyTorch {torch.__version__}")
    except ImportError:
        torch = None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            import onnxruntime
            for model in MODELS:
                write_onnx(model, folder)
            print(f"ONNX Runtime {onnxruntime.__version__}")
        except ImportError:
            folder = None
        compare(torch, folder)


if __name__ == "__main__":
    main()
