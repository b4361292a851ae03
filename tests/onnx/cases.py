"""Folders of cases for nodes.c, which calls a model with inputs and compares the outputs.

A folder has the file cases.txt, with one line for each case, whose fields are separated by tabs:

    name   the case's folder
    group  its row of the table in docs/onnx.md: the operator, or the collection of models
    rtol   an element may differ from the expected one by atol + rtol * abs(expected)
    atol
    flags  letters, or "-".  r: the expected values are random, only shapes and dtypes are compared;
           h: the case takes long; g: grad.pb is the gradient of the mean of the squared first
           output with respect to the first input; t: the model has parameters, with gradients
    inputs and outputs  their kinds, separated by blanks, or "-": the dtype of a tensor, such as
           float16, else sequence, optional, map or sparse.  A sequence of maps that is given as an
           array is a tensor

The folder NAME has model.onnx, and input_0.pb, output_0.pb ... (TensorProto with raw_data) for the
tensors of the dtypes that Weber has.  The file "version", written last, names the packages that
made the cases; its second line is a hash of the program, so that an old folder is made again.
"""
import hashlib
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

# The dtypes that Weber has, by their names in ONNX.
DTYPES = ("float", "double", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")


def kind_of(type_proto):
    """The kind of a value: see the head."""
    kind = type_proto.WhichOneof("value")
    if kind == "tensor_type":
        return onnx.TensorProto.DataType.Name(type_proto.tensor_type.elem_type).lower()
    return {"sequence_type": "sequence", "optional_type": "optional", "map_type": "map",
            "sparse_tensor_type": "sparse"}.get(kind, "unknown")


def as_proto(value, name):
    """A tensor, given as an array, a TensorProto or its bytes, as the bytes of a TensorProto with
    this name, whose values are in raw_data"""
    if isinstance(value, bytes):
        proto = onnx.TensorProto()
        proto.ParseFromString(value)
        value = proto
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    return numpy_helper.from_array(np.asarray(value), name).SerializeToString()


class Suite:
    """Writes a folder of cases:  suite = Suite(...); suite.made or (suite.add(...), suite.end())"""

    def __init__(self, folder, versions, *programs):
        text = b"".join(Path(program).read_bytes() for program in (__file__, *programs))
        self.folder = Path(folder)
        self.version = f"{versions}\n{hashlib.sha256(text).hexdigest()}\n"
        stamp = self.folder / "version"
        self.made = stamp.exists() and stamp.read_text(encoding="utf-8") == self.version
        self.lines = []
        if not self.made:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)

    def add(self, name, group, model, inputs, outputs, *, rtol=1e-3, atol=1e-7, flags="",
            grad=None, external=False):
        """A case: the model's bytes, the values of its inputs and outputs (as_proto).  With
        `external` its large tensors are in the file "weights" beside it."""
        graph = onnx.load_model_from_string(model).graph
        fixed = {tensor.name for tensor in graph.initializer}
        taken = [value for value in graph.input if value.name not in fixed]
        case = self.folder / name
        case.mkdir()
        (case / "model.onnx").write_bytes(model)
        if external:
            onnx.save_model(onnx.load(case / "model.onnx"), case / "model.onnx",
                            save_as_external_data=True, location="weights", size_threshold=64)
        columns = []
        for word, given, declared in (("input", inputs, taken), ("output", outputs, graph.output)):
            if len(given) != len(declared):
                sys.exit(f"{name} has {len(given)} {word}s, its model {len(declared)}")
            kinds = [kind_of(value.type) for value in declared]
            kinds = ["float" if kind == "sequence" and isinstance(value, np.ndarray) else kind
                     for kind, value in zip(kinds, given)]      # of maps, by ZipMap
            for i, (value, kind) in enumerate(zip(given, kinds)):
                if kind in DTYPES:
                    (case / f"{word}_{i}.pb").write_bytes(as_proto(value, f"{word}_{i}"))
            columns.append(" ".join(kinds) or "-")
        if grad is not None:
            (case / "grad.pb").write_bytes(as_proto(grad, "grad"))
            flags += "g"
        self.lines.append("\t".join((name, group, f"{rtol:g}", f"{atol:g}", flags or "-",
                                     *columns)))

    def end(self):
        (self.folder / "cases.txt").write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        (self.folder / "version").write_text(self.version, encoding="utf-8")
