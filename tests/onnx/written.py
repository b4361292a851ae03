"""Runs the files of ONNX that written.c has saved, and their table in docs/onnx.md.

    written.py run FOLDER      checks each file with onnx.checker, and computes its outputs by ONNX
                               Runtime for two sizes of the batch; writes FOLDER/results.txt
    written.py check FOLDER    compares the table with these results
    written.py page FOLDER     replaces the table

A file with an operator that ONNX Runtime lacks for its dtype is computed by the reference
implementation of the package onnx; the table has a note.  Outputs may differ by the tolerance of
the model times the greatest output.  See page.py for the table.
"""
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import page

TYPES = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.DOUBLE: np.float64,
         onnx.TensorProto.FLOAT16: np.float16, onnx.TensorProto.BFLOAT16: np.float32,
         onnx.TensorProto.INT8: np.int8, onnx.TensorProto.UINT8: np.uint8,
         onnx.TensorProto.INT32: np.int32, onnx.TensorProto.INT64: np.int64,
         onnx.TensorProto.BOOL: np.bool_}


def widened(model):
    """The model with inputs and outputs of f32 in place of bf16, which NumPy lacks"""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    cast = onnx.helper.make_node
    for value in model.graph.input:
        kind = value.type.tensor_type
        if kind.elem_type == onnx.TensorProto.BFLOAT16:
            kind.elem_type = onnx.TensorProto.FLOAT
            for node in model.graph.node:
                for i, name in enumerate(node.input):
                    if name == value.name:
                        node.input[i] = name + "/rounded"
            model.graph.node.insert(0, cast("Cast", [value.name], [value.name + "/rounded"],
                                            to=onnx.TensorProto.BFLOAT16))
    for value in model.graph.output:
        kind = value.type.tensor_type
        if kind.elem_type == onnx.TensorProto.BFLOAT16:
            kind.elem_type = onnx.TensorProto.FLOAT
            for node in model.graph.node:
                for i, name in enumerate(node.output):
                    if name == value.name:
                        node.output[i] = name + "/rounded"
            model.graph.node.append(cast("Cast", [value.name + "/rounded"], [value.name],
                                         to=onnx.TensorProto.FLOAT))
    return model


def runner_of(model):
    """(what runs the model, a function from inputs by name to outputs)"""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
        return "", lambda inputs: session.run(None, inputs)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        lacking = str(error).partition("implementation for ")[2].partition("(")[0]
        evaluator = ReferenceEvaluator(model)
        return (f"by the reference implementation: ONNX Runtime has no {lacking} of this dtype",
                lambda inputs: evaluator.run(None, inputs))


def difference(given, expected):
    """The greatest difference relative to the greatest number; infinite: of another kind"""
    if given.shape != expected.shape:
        return f"the shape is {given.shape}, not {expected.shape}"
    given, expected = given.astype(np.float64), expected.astype(np.float64)
    same = (given == expected) | (np.isnan(given) & np.isnan(expected))
    if same.all():
        return 0.0
    if not np.isfinite(given[~same]).all() or not np.isfinite(expected[~same]).all():
        return "infinite or NaN in other places"
    greatest = np.abs(expected[np.isfinite(expected)]).max()
    return float(np.abs(given - expected)[~same].max() / max(greatest, 1e-30))


def run_model(folder, n_in, n_out, tolerance):
    """(result, reason) of the model in the folder"""
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    model = onnx.load(folder / "model.onnx")
    if model.ir_version != 8 or [(o.domain, o.version) for o in model.opset_import] != [("", 17)]:
        return "failed", f"version {model.ir_version}, opsets {model.opset_import}"
    kinds = [value.type.tensor_type.elem_type for value in model.graph.output]
    by, run = runner_of(widened(model))
    batches = sorted({file.name.partition("_")[0] for file in folder.glob("*_input_0.npy")})
    if len(batches) < 2:
        return "failed", "fewer than two batches"
    for batch in batches:
        values = [np.load(folder / f"{batch}_input_{i}.npy") for i in range(n_in)]
        names = [value.name for value in model.graph.input]
        outputs = run(dict(zip(names, values)))
        if len(outputs) != n_out:
            return "failed", f"{len(outputs)} outputs"
        for i, given in enumerate(outputs):
            expected = np.load(folder / f"{batch}_output_{i}.npy")
            if np.asarray(given).dtype != TYPES[kinds[i]] or expected.dtype != TYPES[kinds[i]]:
                return "failed", f"output {i} is {given.dtype}, not {expected.dtype}"
            differs = difference(np.asarray(given), expected)
            if isinstance(differs, str) or differs > tolerance:
                return "failed", f"batch {batch}, output {i}: {differs}"
    return "passed", by


def run_all(folder):
    lines = [line.split("\t") for line in
             (folder / "models.txt").read_text(encoding="utf-8").splitlines()]
    results, cases, failed = [], [], 0
    for name, what, n_in, n_out, tolerance in lines:
        try:
            result, reason = run_model(folder / name, int(n_in), int(n_out), float(tolerance))
        except Exception as error:          # pylint: disable=broad-except
            result, reason = "failed", f"{type(error).__name__}: {error}".replace("\n", " ")
        results.append(f"{name}\t{result}\t{reason}\n")
        cases.append(f"{name}\t{what}\n")
        if result == "failed":
            print(f"{name}: {reason}")
            failed += 1
    (folder / "results.txt").write_text("".join(results), encoding="utf-8")
    (folder / "cases.txt").write_text("".join(cases), encoding="utf-8")
    made = f"onnx {version('onnx')} and ONNX Runtime {version('onnxruntime')}\n"
    (folder / "version").write_text(made, encoding="utf-8")
    print(f"{len(lines) - failed} models passed, {failed} failed")
    return failed > 0


def main(action, folder):
    if action == "run":
        warnings.simplefilter("ignore")
        return run_all(Path(folder))
    return page.main(action, folder, "written")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
