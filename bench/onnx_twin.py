#!/usr/bin/env python3
"""An inference of the benchmark on ONNX Runtime: the options and the JSON of weber_bench.c.

    onnx_twin.py --workload W7a|W7b [--threads 1] [--seconds 2] --start FILE

--start: the parameters and batches of a file of weber_bench --save.  The model has no other layers
than Weber's and is optimised by ONNX Runtime at its highest level.  Inputs and output are bound
once, in memory that the program owns, or given at each call: the faster of both is measured.
"""
import argparse
import json

options = argparse.ArgumentParser()
options.add_argument("--workload", required=True, choices=["W7a", "W7b"])
options.add_argument("--threads", type=int, default=1)
options.add_argument("--seconds", type=float, default=2)
options.add_argument("--start", required=True, help="a file of weber_bench --save")
options = options.parse_args()

import numpy                                            # noqa: E402  (--help is quick)
import onnxruntime as ort                               # noqa: E402
from onnx import TensorProto, helper, numpy_helper      # noqa: E402
import twins                                            # noqa: E402

parameters, batches = twins.read_start(options.start)
# Operator and attributes; a layer with parameters takes the next weight and bias.
POOL = ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]})
DENSE, CONV, RELU = ("Gemm", {"transB": 1}), ("Conv", {}), ("Relu", {})
LAYERS = {
    "W7a": [DENSE, RELU, DENSE],
    "W7b": [CONV, RELU, POOL, CONV, RELU, POOL, ("Flatten", {}), DENSE, RELU, DENSE, RELU, DENSE],
}


def model():
    nodes, names, at = [], [], "x"
    for number, (kind, attributes) in enumerate(LAYERS[options.workload]):
        inputs = [at]
        for _ in range(2 if kind in ("Gemm", "Conv") else 0):
            names.append(f"p{len(names)}")
            inputs.append(names[-1])
        at = f"y{number}"
        nodes.append(helper.make_node(kind, inputs, [at], **attributes))
    values = [numpy_helper.from_array(p, name) for name, p in zip(names, parameters, strict=True)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, batches[0][0].shape)
    y = helper.make_tensor_value_info(at, TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, options.workload, [x], [y], values)
    # an old format, which each version reads
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), at


settings = ort.SessionOptions()
settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads, 1
settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
network, RESULT = model()
session = ort.InferenceSession(network.SerializeToString(), settings,
                               providers=["CPUExecutionProvider"])
result = numpy.empty((1, 10), numpy.float32)
xs = [x for x, _ in batches]
bindings = []
for array in xs:
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, numpy.float32, array.shape, array.ctypes.data)
    binding.bind_output(RESULT, "cpu", 0, numpy.float32, result.shape, result.ctypes.data)
    bindings.append(binding)
steps = 0


def bound(count):
    global steps
    for _ in range(count):
        session.run_with_iobinding(bindings[steps % len(bindings)])
        steps += 1


def plain(count):
    global steps, result
    for _ in range(count):
        result = session.run([RESULT], {"x": xs[steps % len(xs)]})[0]
        steps += 1


def first_loss():
    """The sum of the absolute results of the next step."""
    bound(1)
    return round(float(numpy.abs(result).sum(dtype=float)), 6)


losses = [first_loss()]
first_step = twins.age()
losses.append(first_loss())
fastest = min((bound, plain), key=lambda way: twins.timings(way, 0.1, 0.05)["step_us"])
row = {"workload": options.workload, "side": "onnxruntime", "device": "cpu", "dtype": "f32",
       "threads": options.threads, "batch": 1, "parameters": sum(p.size for p in parameters),
       "version": ort.__version__, "call": fastest.__name__}
row.update(twins.timings(fastest, options.seconds, max(0.2, options.seconds / 5)))
row.update(samples_per_s=round(1e6 / row["step_us"], 1), peak_mb=twins.peak_mb(),
           first_step_ms=round(first_step * 1e3, 1), first_loss=losses[0], second_loss=losses[1],
           last_loss=None, checksum=float(sum(numpy.abs(p).sum(dtype=float) for p in parameters)))
print(json.dumps(row))
