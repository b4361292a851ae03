"""Compares ops.def and ops_ml.def with the schemas of the Python package onnx, and writes models of
one node for forms.c.

    forms.py write FOLDER    fails if a row differs from the schemas; writes FOLDER/models

For each operator, and each opset in which it changes or which is the last before a change, there
are a model with all that the operator has in this opset, and models with one input, output or
attribute too many or too few.  Where the package onnxruntime is installed, it must refuse the same.

FOLDER/models has for each model a line of its bytes, "right" or "wrong", and a name, and then the
bytes.
"""
import collections
import re
import sys
from pathlib import Path

import onnx
from onnx import helper

SOURCES = Path(__file__).resolve().parents[2] / "src/io/onnx"
# The file, its domain, the versions that Weber reads (model.c)
TABLES = (("ops.def", "", "LAST_OPSET"), ("ops_ml.def", "ai.onnx.ml", "LAST_ML"))
ANY = 255
# Words of ONNX Runtime's errors about a node that is not of its opset
WORDS = re.compile("Unrecognized attribute|not in range|has more (in|out)puts|is marked single|"
                   "Required attribute|is deprecated|missing required attribute", re.I)
# The standard has the first form of it no more, ONNX Runtime has it.
STILL_READ = {"GroupNormalization"}
# ONNX Runtime does not look at the form of the first, nor at the attributes of the second.  Weber
# reads the values of the first in each opset.
UNCHECKED = {"Constant", "LayerNormalization"}

Form = collections.namedtuple("Form", "inputs outputs attributes")
Row = collections.namedtuple("Row", "name domain forms removed last")


def number(text):
    return ANY if text == "ANY" else int(text)


def rows_of(file, domain, last):
    """The rows of a table; forms: {opset: Form}"""
    text = (SOURCES / file).read_text(encoding="utf-8")
    model = (SOURCES / "model.c").read_text(encoding="utf-8")
    newest = int(re.search(rf"\b{last} = (\d+)", model).group(1))
    pair = r"\{(\d+|ANY), (\d+|ANY)\}"
    form = re.compile(rf'\{{(\d+), {pair}, {pair},((?:\s*"[^"]*")+)\}}')
    for row in re.split(r"^(?=ONNX_OP)", text, flags=re.M)[1:]:
        name = re.match(r"ONNX_OP\((\w+)", row).group(1)
        forms = {}
        for since, *counts, texts in form.findall(row):
            words = "".join(re.findall(r'"([^"]*)"', texts)).split()
            a, b, c, d = map(number, counts)
            forms[int(since)] = Form((a, b), (c, d), frozenset(words))
        removed = re.search(r"\.removed = (\d+)", row)
        yield Row(name, domain, forms, int(removed.group(1)) if removed else None, newest)


# ---- the schemas ---------------------------------------------------------------------------------

def leading(ports):
    """How many of the first inputs or outputs are needed"""
    options = [str(port.option).rpartition(".")[2] for port in ports]
    return next((i for i, option in enumerate(options) if option != "Single"), len(options))


def form_of(schema):
    words = (name + ("!" if a.required else "") for name, a in schema.attributes.items())
    return Form((leading(schema.inputs), min(schema.max_input, ANY)),
                (leading(schema.outputs), min(schema.max_output, ANY)), frozenset(words))


def histories():
    """{(domain, operator): {version: schema}}"""
    all_of = collections.defaultdict(dict)
    for schema in onnx.defs.get_all_schemas_with_history():
        all_of[schema.domain, schema.name][schema.since_version] = schema
    return all_of


def latest(versions, opset):
    """The value of the greatest version that is not above opset, or None"""
    return versions.get(max((v for v in versions if v <= opset), default=None))


def newest_of(row):
    """The last opset of the row that Weber and the package have"""
    of_package = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": max(
        s.since_version for s in onnx.defs.get_all_schemas_with_history()
        if s.domain == "ai.onnx.ml")}
    return min(row.last, of_package[row.domain])


def compare(row, schemas):
    """Yields the differences of a row and the schemas."""
    newest = latest(schemas, row.last)
    for opset in range(min(row.forms), newest_of(row) + 1):
        schema = latest(schemas, opset)
        gone = schema is None or (schema.deprecated and row.name not in STILL_READ)
        if gone != bool(row.removed and opset >= row.removed):
            yield f"{row.name} of opset {opset}: the standard has {'not' if gone else ''} it"
        elif not gone and latest(row.forms, opset) != form_of(newest if row.name == "Constant" else
                                                              schema):
            yield f"{row.name} of opset {opset}: {latest(row.forms, opset)}, {form_of(schema)}"


# ---- models of one node --------------------------------------------------------------------------

def value_of(attribute):
    """A value of the attribute's type"""
    kind = str(attribute.type).rpartition(".")[2]
    node = helper.make_node("Identity", ["in"], ["out"])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("out", 1, None)])
    tensor = helper.make_tensor("t", 1, [1], [1.0])
    return {"INT": 1, "FLOAT": 1.0, "STRING": "x", "TENSOR": tensor, "GRAPH": graph, "INTS": [1],
            "FLOATS": [1.0], "STRINGS": ["x"]}.get(kind)


def model_of(row, opset, n_in, outputs, attributes):
    node = helper.make_node(row.name, [f"x{i}" for i in range(n_in)], outputs, domain=row.domain,
                            **attributes)
    named = [f"x{i}" for i in range(n_in)] + ["in"]
    inputs = [helper.make_tensor_value_info(name, 1, None) for name in named]
    last = helper.make_node("Identity", ["in"], ["y"])
    graph = helper.make_graph([node, last], "g", inputs,
                              [helper.make_tensor_value_info("y", 1, None)])
    opsets = {"": 14, row.domain: opset}
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def without(attributes, name):
    return {key: value for key, value in attributes.items() if key != name}


def models(row, schemas, opset):
    """(name, whether it is right, model) of an opset"""
    form, schema = latest(row.forms, opset), latest(schemas, opset)
    values = {name: value_of(a) for name, a in schema.attributes.items()}
    attributes = {name: value for name, value in values.items() if value is not None}
    if row.name == "Constant":                          # has one of its attributes
        attributes = {"value": attributes["value"]}
    (few, most), (few_out, most_out) = form.inputs, form.outputs
    n_in = min(most, few + 2)
    outs = [f"o{i}" for i in range(max(few_out, 1))]

    def made(what, is_right, n=n_in, outputs=outs, given=attributes):
        return f"{row.name} {opset}: {what}", is_right, model_of(row, opset, n, outputs, given)

    yield made("all", True)
    yield made("an attribute of the runtime", True, given={**attributes, "__hint": 1})
    yield made("an unknown attribute", False, given={**attributes, "odd": 1})
    if most < ANY:
        yield made("an input too many", False, n=most + 1)
    if most_out < ANY:
        yield made("an output too many", False, outputs=[f"o{i}" for i in range(most_out + 1)])
    if few:
        yield made("an input too few", False, n=few - 1)
    if few_out:
        yield made("an output without a name", False, outputs=[""] + outs[1:])
        if n_in:                                        # else ONNX Runtime drops the node
            yield made("no output", False, outputs=[])
    for word in sorted(form.attributes):
        if word.endswith("!"):
            yield made(f"no {word}", False, given=without(attributes, word[:-1]))
    others = {name: a for other in schemas.values() for name, a in other.attributes.items()
              if not {name, name + "!"} & form.attributes and value_of(a) is not None}
    for name, attribute in others.items():
        yield made(f"{name} of another opset", False,
                   given={**attributes, name: value_of(attribute)})


def opsets_of(row, schemas):
    """The first and the last opset of each form and schema, that Weber reads"""
    first, last = min(row.forms), newest_of(row)
    if row.removed:
        last = min(last, row.removed - 1)
    edges = {first, last} | {v - d for v in [*schemas, *row.forms] for d in (0, 1)}
    return sorted(v for v in edges if first <= v <= last)


def refused_by_runtime(model):
    """ONNX Runtime's error about a wrong model; None: it is not installed, or lacks the opset"""
    try:
        import onnxruntime
    except ImportError:
        return None
    onnxruntime.set_default_logger_severity(4)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(),
                                     providers=["CPUExecutionProvider"])
    except Exception as error:  # pylint: disable=broad-except
        text = str(error)
        return None if "under development" in text or "not a registered" in text else text
    return ""


def main(action, folder):
    if action != "write":
        return f"forms.py has no action {action}"
    wrong, n = [], 0
    schemas = histories()
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / "models").open("wb") as file:
        for row in (row for table in TABLES for row in rows_of(*table)):
            history = schemas[row.domain, row.name]
            wrong += compare(row, history)
            for opset in opsets_of(row, history):
                for name, is_right, model in models(row, history, opset):
                    data = model.SerializeToString()
                    line = f"{len(data)} {'right' if is_right else 'wrong'} {name}\n"
                    file.write(line.encode() + data)
                    n += 1
                    by_both = not is_right and row.name not in UNCHECKED
                    said = refused_by_runtime(model) if by_both else None
                    if said is not None and not WORDS.search(said):
                        wrong.append(f"{name}: ONNX Runtime says \"{said}\"")
    print(f"{n} models with onnx {onnx.__version__}")
    print("\n".join(wrong[:60]))
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
