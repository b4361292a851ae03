"""The cases of the Python package onnx for nodes.c, and their table in docs/onnx.md.

    nodes.py write FOLDER    writes the cases into the folder, if it does not have them
    nodes.py check FOLDER    compares the table with the results of nodes.c, FOLDER/results.txt
    nodes.py page FOLDER     replaces the table

The cases are those of onnx.backend.test.case.node and the models in onnx/backend/test/data.  See
cases.py for the folder and page.py for the table.
"""
import json
import re
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.case import base

import cases
import page

# Their expected values are numbers of NumPy's generator.
RANDOM = re.compile(r"test_(bernoulli.*|training_dropout(_default)?(_mask)?)")
# Cases that the package cannot write as arrays: its NumPy has no bfloat16.
NOT_ARRAYS = re.compile(r".*BFLOAT16.*" if onnx.__version__ < "1.13" else r"(?!)")
# Cases with another rtol and atol than the package's 1e-3 and 1e-7.  NumPy computes attention of
# f16 with a rounding to f16 at each step: Weber's 0.46899 and NumPy's 0.46948 are 0.46919 in double
# precision.  After an inverse transform NumPy has 1.9e-7 in the place of 0.
TOLERANCES = (("test_attention_.*fp16", 2.0 ** -9, 1e-7), ("test_dft_inverse", 1e-3, 1e-6))


def node_cases():
    base.process_snippet = lambda name, *_: (name, "")      # documentation, which takes seconds
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for kind in (bool, float, int, object):     # names of NumPy that onnx 1.12 still uses
            if not hasattr(np, kind.__name__):
                setattr(np, kind.__name__, kind)
        from onnx.backend.test.case.node import collect_testcases
        return collect_testcases(None)          # of all operators


def write_nodes(suite):
    """Each operator's cases, and those where it is expanded into the operators that define it"""
    name, group = None, None
    for case in {case.name: case for case in node_cases()}.values():    # onnx 1.12 has one twice
        if name is None or not case.name.startswith(name + "_expanded"):
            node = case.model.graph.node[0]
            name, group = case.name, f"{node.domain}.{node.op_type}".lstrip(".")
        (inputs, outputs), = case.data_sets
        if NOT_ARRAYS.fullmatch(case.name):
            continue
        wider = (most for cases_named, *most in TOLERANCES if re.match(cases_named, case.name))
        rtol, atol = next(wider, (case.rtol, case.atol))
        suite.add(case.name, group, case.model.SerializeToString(), inputs, outputs, rtol=rtol,
                  atol=atol, flags="r" if RANDOM.fullmatch(case.name) else "")


def protos(folder, word):
    """The bytes of WORD_0.pb, WORD_1.pb, ..."""
    files = (folder / f"{word}_{i}.pb" for i in range(len(list(folder.glob(f"{word}_*.pb")))))
    return [file.read_bytes() for file in files]


def write_models(suite, data, kind):
    if not (data / kind).exists():                      # Debian's package has no models
        return
    for folder in sorted(path for path in (data / kind).iterdir() if path.is_dir()):
        sets = sorted(folder.glob("test_data_set_*"))
        for i, values in enumerate(sets):
            suite.add(folder.name + (f".{i}" if i else ""), f"models: {kind}",
                      (folder / "model.onnx").read_bytes(), protos(values, "input"),
                      protos(values, "output"))


def write_light(suite, data):
    """Networks for images.  Their weights are constants, so that the files are small; their inputs
    are 0, 1/n, ..., (n-1)/n."""
    for description in sorted((data / "real").glob("*/data.json")):
        about = json.loads(description.read_text(encoding="utf-8"))
        path = data / "light" / Path(about["url"]).name
        model = onnx.load(path)
        fixed = {tensor.name for tensor in model.graph.initializer}
        inputs = []
        for value in model.graph.input:
            if value.name not in fixed:
                dims = value.type.tensor_type.shape.dim
                shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in dims]
                n = int(np.prod(shape))
                inputs.append((np.arange(n) / n).astype(np.float32).reshape(shape))
        outputs = [(path.parent / f"{path.stem}_output_{i}.pb").read_bytes()
                   for i in range(len(model.graph.output))]
        suite.add(description.parent.name, "models: light", path.read_bytes(), inputs, outputs,
                  rtol=about["rtol"], atol=about["atol"], flags="h")


def write(folder):
    suite = cases.Suite(folder, f"onnx {onnx.__version__}", __file__)
    if suite.made:
        return
    write_nodes(suite)
    data = Path(onnx.__file__).parent / "backend/test/data"
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        write_models(suite, data, kind)
    write_light(suite, data)
    suite.end()


if __name__ == "__main__":
    page.run(write, "nodes")
