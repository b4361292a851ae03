"""Compares the rows of ops.def and ops_ml.def with the schemas of the Python package onnx and with
docs/onnx.md, and writes models of one node for forms.c, which has written FOLDER/rows.

    forms.py check FOLDER    fails if the table of operators in docs/onnx.md differs from the rows
    forms.py page FOLDER     writes that table
    forms.py write FOLDER    fails if a row differs from the schemas; writes FOLDER/models

For each operator, and each opset in which it changes or which is the last before a change, there
are a model with all that the operator has in this opset, and models with one input, output or
attribute too many or too few, with an attribute of another type, or with a word that is not known.
Where the package onnxruntime is installed, it must refuse the same, but for words.

FOLDER/models has for each model a line of its bytes, "right" or "wrong", and a name, and then the
bytes.
"""
import collections
import re
import struct
import sys
from pathlib import Path

import page

try:
    import onnx
    from onnx import helper
except ImportError:                                     # "check" and "page" do without it
    onnx = None

SOURCES = Path(__file__).resolve().parents[2] / "src/io/onnx"
# The versions of the domains that Weber reads (model.c)
LAST = {"": "LAST_OPSET", "ai.onnx.ml": "LAST_ML"}
ANY = 255
# Words of ONNX Runtime's errors about a node that is not of its opset
WORDS = re.compile("Unrecognized attribute|not in range|has more (in|out)puts|is marked single|"
                   "Required attribute|is deprecated|missing required attribute|"
                   "appears to be|Mismatched attribute type|attribute type", re.I)
# The standard has the first form of it no more, ONNX Runtime has it.
STILL_READ = {"GroupNormalization"}
# ONNX Runtime does not look at the form of the first, nor at the attributes of the second.  Weber
# reads the values of the first in each opset.
UNCHECKED = {"Constant", "LayerNormalization"}
# Attributes whose defaults mean the same as nothing
WITHOUT = {("Clip", "min"), ("Clip", "max")}

Attribute = collections.namedtuple("Attribute", "name type needed since before default")
Ports = collections.namedtuple("Ports", "inputs outputs")
Row = collections.namedtuple("Row", "name domain removed operation last ports attributes")


def rows_of(folder):
    """The rows that forms.c has written; ports: {opset: Ports}"""
    model = (SOURCES / "model.c").read_text(encoding="utf-8")
    rows = []
    for line in (Path(folder) / "rows").read_text(encoding="utf-8").splitlines():
        kind, *words = line.split("\t")
        if kind == "operator":
            name, domain, removed, operation = words
            last = int(re.search(rf"\b{LAST[domain]} = (\d+)", model).group(1)) \
                if domain in LAST else None
            rows.append(Row(name, domain, int(removed), operation, last, {}, []))
        elif kind == "ports":
            since, *counts = map(int, words)
            rows[-1].ports[since] = Ports(tuple(counts[:2]), tuple(counts[2:]))
        else:
            name, of_type, needed, since, before, default = words
            rows[-1].attributes.append(Attribute(name, of_type, needed == "1", int(since),
                                                 int(before), default))
    return rows


def attributes_of(row, opset):
    return {a.name: a for a in row.attributes
            if opset >= a.since and (not a.before or opset < a.before)}


# ---- docs/onnx.md --------------------------------------------------------------------------------

def described(attribute):
    """An attribute in the table of the page"""
    text = f"`{attribute.name}`"
    if attribute.type == "string" and attribute.default:
        words = [word.replace("=", " (or ") + ")" * ("=" in word)
                 for word in attribute.default.split()]
        text += ": " + ", ".join(words)
    elif attribute.default:
        text += f" = {float(attribute.default):.6g}"
    elif attribute.needed:
        text += " (needed)"
    if attribute.since and attribute.before:
        return text + f" (opsets {attribute.since} to {attribute.before - 1})"
    if attribute.since:
        return text + f" (from opset {attribute.since})"
    return text + f" (to opset {attribute.before - 1})" * bool(attribute.before)


def operators(rows):
    """The table of operators"""
    lines = []
    for domain in ("", "ai.onnx.ml", "com.microsoft"):
        of = f" of `{domain}`" * bool(domain)
        mine = sorted((row for row in rows if row.domain == domain), key=lambda r: r.name.lower())
        lines += [f"{len(mine)} operators{of}:", "",
                  "| operator | from opset | attributes with their defaults | operation |",
                  "| --- | ---: | --- | --- |"]
        for row in mine:
            first = f"{min(row.ports)}" + f" to {row.removed - 1}" * bool(row.removed)
            operation = f"`wb_{row.operation}`" if row.operation else ""
            lines.append(f"| {row.name} | {first} | "
                         f"{'; '.join(map(described, row.attributes))} | {operation} |")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def compare_page(folder, replace):
    """Returns the exit status."""
    text, new = page.PAGE.read_text(encoding="utf-8"), operators(rows_of(folder))
    head, old, tail = page.parts_of(text, "operators")
    if replace:
        page.PAGE.write_text(head + new + tail, encoding="utf-8")
    elif old != new:
        print(f"{page.PAGE.name} has other operators: tests/onnx/forms.py page {folder}")
    return not replace and old != new


# ---- the schemas ---------------------------------------------------------------------------------

def leading(ports):
    """How many of the first inputs or outputs are needed"""
    options = [str(port.option).rpartition(".")[2] for port in ports]
    return next((i for i, option in enumerate(options) if option != "Single"), len(options))


def ports_of(schema):
    return Ports((leading(schema.inputs), min(schema.max_input, ANY)),
                 (leading(schema.outputs), min(schema.max_output, ANY)))


def kind_of(attribute):
    return str(attribute.type).rpartition(".")[2].replace("_", " ").lower()


def default_of(name, attribute):
    """The default of a schema as a row has it"""
    value = attribute.default_value
    if (name, attribute.name) in WITHOUT or not value.type:
        return ""
    return {"int": value.i, "float": value.f,
            "string": value.s.decode()}.get(kind_of(attribute), "")


def same_default(default, attribute):
    """Whether the default of a schema is that of the row"""
    if attribute.type == "string":
        return not attribute.default or attribute.needed or \
            default in attribute.default.split()[0].split("=")
    if attribute.type not in ("int", "float") or "" in (default, attribute.default):
        return attribute.type not in ("int", "float") or default == attribute.default
    return struct.pack("f", float(attribute.default)) == struct.pack("f", default)


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


def differences(row, opset, schema):
    """Yields the differences of a row and a schema."""
    if latest(row.ports, opset) != ports_of(schema):
        yield f"{latest(row.ports, opset)}, {ports_of(schema)}"
    mine, theirs = attributes_of(row, opset), schema.attributes
    if set(mine) != set(theirs):
        yield f"attributes {sorted(set(mine) ^ set(theirs))}"
    for name in set(mine) & set(theirs):
        a, b = mine[name], theirs[name]
        if (a.type, a.needed) != (kind_of(b), b.required) or \
                not same_default(default_of(row.name, b), a):
            yield f"{a}, {kind_of(b)}, {b.required}, {default_of(row.name, b)}"


def compare(row, schemas):
    """Yields the differences of a row and the schemas."""
    newest = latest(schemas, row.last)
    for opset in range(min(row.ports), newest_of(row) + 1):
        schema = latest(schemas, opset)
        gone = schema is None or (schema.deprecated and row.name not in STILL_READ)
        if gone != bool(row.removed and opset >= row.removed):
            yield f"{row.name} of opset {opset}: the standard has {'not' if gone else ''} it"
        elif not gone:
            for text in differences(row, opset, newest if row.name == "Constant" else schema):
                yield f"{row.name} of opset {opset}: {text}"


def names_that_no_row_has(rows):
    """Yields names of attributes that functions read and no row has."""
    known = {a.name for row in rows for a in row.attributes}
    for path in sorted(SOURCES.glob("ops_*.c")):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'wb__onnx_(?:int|real|text|word|ints|int_or|list|attribute|'
                               r'dtype_in)\(c, "(\w+)"', text):
            if name not in known:
                yield f"{path.name} reads '{name}', which no row has"


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


# Parts of names of models
OTHER, NO_WORD = "another type of", "an unknown word of"


def without(attributes, name):
    return {key: value for key, value in attributes.items() if key != name}


def models(row, schemas, opset):
    """(name, whether it is right, model) of an opset"""
    ports, schema = latest(row.ports, opset), latest(schemas, opset)
    mine = attributes_of(row, opset)
    values = {name: value_of(a) for name, a in schema.attributes.items()}
    attributes = {name: value for name, value in values.items() if value is not None}
    worded = [name for name, a in mine.items() if a.type == "string" and a.default]
    attributes |= {name: mine[name].default.split()[0].split("=")[0] for name in worded}
    if row.name == "Constant":                          # has one of its attributes
        attributes = {"value": attributes["value"]}
    (few, most), (few_out, most_out) = ports
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
    for name, a in mine.items():
        if a.needed:
            yield made(f"no {name}", False, given=without(attributes, name))
    for name in sorted(set(attributes) & set(mine)):
        yield made(f"{OTHER} {name}", False,
                   given={**attributes, name: 1.5 if mine[name].type != "float" else 1})
    for name in worded:
        yield made(f"{NO_WORD} {name}", False, given={**attributes, name: "odd"})
    others = {name: a for other in schemas.values() for name, a in other.attributes.items()
              if name not in mine and value_of(a) is not None}
    for name, attribute in others.items():
        yield made(f"{name} of another opset", False,
                   given={**attributes, name: value_of(attribute)})


def opsets_of(row, schemas):
    """The first and the last opset of each form and schema, that Weber reads"""
    first, last = min(row.ports), newest_of(row)
    if row.removed:
        last = min(last, row.removed - 1)
    mine = [v for a in row.attributes for v in (a.since, a.before)]
    edges = {first, last} | {v - d for v in [*schemas, *row.ports, *mine] for d in (0, 1)}
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
    if action in ("check", "page"):
        return compare_page(folder, action == "page")
    if action != "write":
        return f"forms.py has no action {action}"
    rows, schemas, n = rows_of(folder), histories(), 0
    wrong = list(names_that_no_row_has(rows))
    with (Path(folder) / "models").open("wb") as file:
        for row in (row for row in rows if row.domain in LAST):
            history = schemas[row.domain, row.name]
            wrong += compare(row, history)
            for opset in opsets_of(row, history):
                for name, is_right, model in models(row, history, opset):
                    data = model.SerializeToString()
                    line = f"{len(data)} {'right' if is_right else 'wrong'} {name}\n"
                    file.write(line.encode() + data)
                    n += 1
                    by_both = not is_right and row.name not in UNCHECKED and NO_WORD not in name
                    said = refused_by_runtime(model) if by_both else None
                    if said is not None and not WORDS.search(said):
                        wrong.append(f"{name}: ONNX Runtime says \"{said}\"")
    print(f"{n} models with onnx {onnx.__version__}")
    print("\n".join(wrong[:60]))
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
