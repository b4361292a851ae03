#!/usr/bin/env python3
"""Makes the corpora of the fuzz tests: a folder of files for each target.

    fuzz_corpus.py FOLDER [--weber build/weber]

The files made by hand are small; together they contain each construct of their format.  If there is
a folder of real data (WEBER_SHARED/data, else ../shared/data beside the project), its files of up
to 128 KiB and the beginnings of larger ones are added.  With --weber, some of the files are
converted into other formats by the library and added.  The same input files give the same corpora.
"""
import argparse
import gzip
import importlib.util
import io
import json
import os
import re
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

LARGEST = 128 << 10


# ---- BSON files of Julia's values, in the form of BSON.jl ----------------------------------------

def element(key, value):
    name = key.encode() + b"\0"
    if value is None:
        return b"\x0a" + name
    if isinstance(value, bool):
        return b"\x08" + name + bytes([value])
    if isinstance(value, int):
        return b"\x12" + name + struct.pack("<q", value)
    if isinstance(value, float):
        return b"\x01" + name + struct.pack("<d", value)
    if isinstance(value, str):
        text = value.encode() + b"\0"
        return b"\x02" + name + struct.pack("<i", len(text)) + text
    if isinstance(value, bytes):
        return b"\x05" + name + struct.pack("<iB", len(value), 0) + value
    if isinstance(value, list):
        return b"\x04" + name + document({str(i): x for i, x in enumerate(value)})
    return b"\x03" + name + document(value)


def document(fields):
    body = b"".join(element(key, value) for key, value in fields.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def kind(*name, params=()):
    return {"tag": "datatype", "params": list(params), "name": list(name)}


def julia(name, *fields, params=()):
    return {"tag": "struct", "type": kind(*name.split("."), params=params), "data": list(fields)}


def function(name):
    return julia(name)


def floats(*dims, dtype="Float32"):
    n = 1
    for d in dims:
        n *= d
    width = {"Float32": "f", "Float64": "d", "Int64": "q"}[dtype]
    numbers = [(7 * i % 11 - 5) / 2 if width != "q" else i for i in range(n)]
    values = struct.pack(f"<{n}{width}", *numbers)
    return {"tag": "array", "type": kind("Core", dtype), "size": list(dims), "data": values}


def tuple_(*values):
    return {"tag": "tuple", "data": list(values)}


def named(names, *values):
    names = tuple_(*({"tag": "symbol", "name": n} for n in names))
    named_tuple = kind("Core", "NamedTuple", params=[names, kind("Core", "Tuple")])
    return {"tag": "struct", "type": named_tuple, "data": list(values)}


def backref(i):
    return {"tag": "backref", "ref": i}


def bson_files():
    relu, sigma = function("NNlib.#relu"), function("NNlib.#σ")
    same = function("Main.Base.#identity")
    dense = julia("Flux.Dense", floats(2, 3), floats(2), relu)
    conv = julia("Flux.Conv", relu, floats(3, 3, 1, 2), floats(2), tuple_(1, 1),
                 tuple_(1, 1, 1, 1), tuple_(1, 1), 1)
    old_conv = julia("Flux.Conv", same, floats(2, 2, 1, 1), floats(1), tuple_(1, 1),
                     tuple_(0, 0), tuple_(1, 1))
    pool = julia("Flux.MaxPool", tuple_(2, 2), tuple_(0, 0, 0, 0), tuple_(2, 2), params=[2, 4])
    type_name = {"tag": "struct", "type": kind("Core", "TypeName"),
                 "data": [{"tag": "symbol", "name": "#7#8"}]}
    closure = {"tag": "struct",
               "type": {"tag": "jl_anonymous", "typename": type_name, "params": []}, "data": []}
    norm = julia("Flux.BatchNorm", same, floats(2), floats(2), floats(2), floats(2), 1e-5, 0.1,
                 True, True, None, 2)
    drop = julia("Flux.Dropout", 0.5, julia("Base.Colon"), None)
    lstm_state = tuple_(floats(2, 1), floats(2, 1))
    lstm = julia("Flux.LSTMCell", floats(8, 3), floats(8, 2), floats(8), lstm_state)
    gru = julia("Flux.GRUCell", floats(6, 3), floats(6, 2), floats(6), floats(2, 1))
    rnn = julia("Flux.RNNCell", function("Base.#tanh"), floats(2, 3), floats(2, 2), floats(2),
                floats(2, 1))

    def chain(*layers):
        return julia("Flux.Chain", tuple_(*layers))
    yield "chain", {"model": chain(dense, julia("Flux.Dense", floats(1, 2), False, sigma))}
    last = julia("Flux.Dense", floats(2, 8), floats(2), same)
    yield "conv", {"model": chain(conv, pool, norm, closure, last, drop,
                                  function("NNlib.#softmax"))}
    yield "old", {"model": julia("Flux.Chain", [old_conv, function("MLUtils.#flatten")])}
    yield "named", {"model": julia("Flux.Chain", named(["first", "second"], dense, drop))}
    yield "recurrent", {"model": chain(julia("Flux.Recur", lstm, lstm_state),
                                       julia("Flux.Recur", gru, floats(2, 1)), rnn)}
    yield "skip", {"net": julia("Flux.SkipConnection", dense, function("Base.#+"))}
    yield "parallel", {"net": julia("Flux.Parallel", function("Base.#vcat"), tuple_(dense, dense)),
                       "epoch": 3, "loss": 0.5}
    yield "shared", {"_backrefs": [floats(2, 2), julia("Flux.Dense", backref(1), floats(2), relu)],
                     "model": chain(backref(2), backref(2),
                                    julia("Flux.Dense", backref(1), floats(2), same))}
    yield "cycle", {"_backrefs": [backref(2), backref(1), [backref(3), backref(3)]],
                    "model": tuple_(backref(1), backref(3))}
    state = named(["weight", "bias", "σ"], floats(2, 3), floats(2), tuple_())
    yield "state", {"model": named(["layers"], tuple_(state))}
    yield "params", {"weights": [floats(3, 2), floats(3), floats(1, 3, dtype="Float64"),
                                 floats(2, dtype="Int64")]}
    yield "unknown", {"model": chain(julia("Main.Controller", dense, floats(2), "text", 3),
                                     julia("Flux.GroupNorm", 1, floats(2)))}
    on_gpu = julia("CuArrays.CuArray", 1, [2, 3])
    yield "gpu", {"model": julia("Flux.Dense", on_gpu, floats(2), relu)}
    tracked = julia("Flux.Tracker.TrackedArray", None, floats(2, 3), floats(2, 3))
    yield "tracked", {"model": julia("Flux.Dense", tracked, floats(2), same)}
    yield "empty", {}
    deep = dense
    for _ in range(40):
        deep = chain(deep)
    yield "deep", {"model": deep}


# ---- other formats -------------------------------------------------------------------------------

def safetensors(header, data, spaces=0):
    text = (header if isinstance(header, str) else json.dumps(header)).encode() + b" " * spaces
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_files():
    def layer(name, inner, outer):
        return {"name": name, "layer": "Dense", "options": {"in": inner, "out": outer}}

    dense = {"version": 1, "model": {"layer": "Chain", "parts": [layer("0", 2, 3)]}}
    tied = {"version": 1, "ties": {"layers.1.weight": "layers.0.weight"},
            "model": {"layer": "Chain", "parts": [layer("0", 2, 2), layer("1", 2, 2)]}}
    data = struct.pack("<9f", *range(9))
    yield "model", safetensors({"__metadata__": {"format": "weber", "weber": json.dumps(dense)},
                                "layers.0.weight": tensor("F32", [3, 2], 0, 24),
                                "layers.0.bias": tensor("F32", [3], 24, 36)}, data)
    yield "tied", safetensors({"__metadata__": {"format": "weber", "weber": json.dumps(tied)},
                               "layers.0.weight": tensor("F32", [2, 2], 0, 16),
                               "layers.0.bias": tensor("F32", [2], 16, 24),
                               "layers.1.bias": tensor("F32", [2], 24, 32)}, data[:32])
    yield "torch", safetensors({"__metadata__": {"format": "pt"},
                                "0.weight": tensor("F16", [2, 2], 0, 8),
                                "0.bias": tensor("BF16", [2], 8, 12),
                                "1.num_batches_tracked": tensor("I64", [], 12, 20)},
                               data[:20], spaces=3)
    types = [("F64", 8), ("I64", 8), ("U64", 8), ("F32", 4), ("I32", 4), ("U32", 4), ("I16", 2),
             ("U16", 2), ("F8_E4M3", 1), ("I8", 1), ("U8", 1), ("BOOL", 1)]
    header, end = {}, 0
    for name, width in types:
        header[name.lower()] = tensor(name, [1, 2], end, end + 2 * width)
        end += 2 * width
    yield "types", safetensors(header, bytes(i % 2 for i in range(end)))
    checkpoint = {"version": 1, "epoch": 3, "random": ["17", "4096"],
                  "loader": ["3", "0", "9", "0"], "rule": [{"name": "Adam", "eta": "0.001"}],
                  "slots": [{"path": "weight", "steps": 51}]}
    metadata = {"format": "weber", "weber_checkpoint": json.dumps(checkpoint)}
    yield "checkpoint", safetensors({"__metadata__": metadata,
                                     "model.weight": tensor("F32", [2], 0, 8),
                                     "state.weight.0": tensor("F32", [2], 8, 16)}, data[:16])
    yield "empty", safetensors({"a": tensor("F32", [0, 5], 0, 0),
                                "b\u00e9\"": tensor("F32", [], 0, 4)}, data[:4])
    yield "none", safetensors("{}", b"")
    # The model of fuzz_safetensors.c with PyTorch's names.
    shapes = {"0.weight": [1, 1, 1, 1], "0.bias": [1], "2.weight": [1], "2.bias": [1],
              "2.running_mean": [1], "2.running_var": [1], "3.in_proj_weight": [3, 1],
              "3.out_proj.weight": [1, 1], "r.weight_ih_l0": [3, 1], "r.weight_hh_l0": [3, 1],
              "r.bias_ih_l0": [3], "r.bias_hh_l0": [3]}
    header, end = {}, 0
    for name, shape in shapes.items():
        header[name] = tensor("F32", shape, end, end + 4 * max(shape))
        end += 4 * max(shape)
    header["2.num_batches_tracked"] = tensor("I64", [], end, end + 8)
    values = struct.pack("<%df" % (end // 4 + 2), *[1] * (end // 4 - 3), *[0] * 5)
    yield "modules", safetensors({"__metadata__": {"format": "pt"}, **header}, values)


def npy(descr, shape, data, fortran=False, version=1):
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    length = 10 + 2 * (version > 1)
    text += " " * (-(length + len(text) + 1) % 64) + "\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode() + data


def npy_files():
    for descr, width in (("<f4", 4), ("<f8", 8), ("<f2", 2), ("|i1", 1), ("|u1", 1), ("|b1", 1),
                         ("<i4", 4), ("<i8", 8), ("<i2", 2), ("<u2", 2), ("<u4", 4), (">f4", 4),
                         ("<c8", 8)):
        name = descr.strip("<>|") + ("_big" if descr[0] == ">" else "")
        yield name, npy(descr, (2, 3), bytes(range(6 * width)))
    yield "fortran", npy("<f4", (2, 3, 2), bytes(48), fortran=True, version=2)
    yield "scalar", npy("<f8", (), bytes(8), version=3)
    yield "vector", npy("<i4", (4,), bytes(16))
    yield "none", npy("<f4", (0, 7), b"")


def archive(members, method):
    to = io.BytesIO()
    with zipfile.ZipFile(to, "w", method) as z:
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name), data, method)
    return to.getvalue()


def npz_files():
    members = [("weight.npy", npy("<f4", (2, 3), bytes(24))),
               ("layers.0.bias.npy", npy("<f8", (2,), bytes(16))),
               ("n.npy", npy("<i8", (), bytes(8)))]
    yield "stored", archive(members, zipfile.ZIP_STORED)
    yield "deflated", archive(members, zipfile.ZIP_DEFLATED)
    large = [("zeros.npy", npy("<f4", (4096,), bytes(16384)))]
    yield "large", archive(large, zipfile.ZIP_DEFLATED)
    other = [("readme.txt", b"text"), ("a/b.npy", npy("|u1", (1,), b"\1"))]
    yield "other", archive(other, zipfile.ZIP_STORED)
    yield "twice", archive([members[0]], zipfile.ZIP_STORED).replace(b"weight", b"WEIGHT", 1)
    yield "none", archive([], zipfile.ZIP_STORED)


def idx_files():
    for code, width in ((8, 1), (9, 1), (11, 2), (12, 4), (13, 4), (14, 8)):
        head = bytes([0, 0, code, 2]) + struct.pack(">2I", 2, 3)
        yield f"type{code}", head + bytes(range(6 * width))
    images = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 4, 4) + bytes(32)
    yield "packed", gzip.compress(images, mtime=0)
    yield "scalar", bytes([0, 0, 13, 0]) + bytes(4)


def wav_files():
    for tag, width in ((1, 1), (1, 2), (1, 3), (1, 4), (3, 4), (3, 8)):
        form = struct.pack("<2H2I2H", tag, 2, 8000, 16000 * width, 2 * width, 8 * width)
        data = struct.pack("<4sI", b"data", 6 * width) + bytes(range(6 * width))
        yield f"type{tag}-{width}", b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", 16) + form + data
    wide = struct.pack("<2H2I4HIH", 0xfffe, 1, 8000, 16000, 2, 16, 22, 16, 4, 1) + \
        bytes.fromhex("000000001000800000aa00389b71")
    yield "extensible", b"RIFF\0\0\0\0WAVEfmt \x28\0\0\0" + wide + \
        b"data\xff\xff\xff\xff" + b"abcd"


def varint(n):
    n %= 1 << 64
    return bytes([n]) if n < 128 else bytes([n % 128 | 128]) + varint(n >> 7)


def message(*fields):
    """A message of protobuf of (number, value), where a value is an int, a float, text, bytes or a
    message."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def onnx_node(op, inputs, outputs, *attributes, domain=""):
    return message(*((1, x) for x in inputs.split()), *((2, x) for x in outputs.split()), (4, op),
                   *((5, x) for x in attributes), *([(7, domain)] if domain else []))


def onnx_attribute(name, type_, number, value):
    return message((1, name), (number, value), (20, type_))


def onnx_tensor(name, type_, dims, number, value):
    return message((1, b"".join(varint(d) for d in dims)), (2, type_), (number, value), (8, name))


def onnx_value(name, *dims):
    shape = message(*((1, message((2 if isinstance(d, str) else 1, d))) for d in dims))
    return message((1, name), (2, message((1, message((1, 1), (2, shape))))))


def onnx_graph(nodes, *others, inputs=(), outputs=("y",)):
    return message(*((1, n) for n in nodes), (2, "g"), *others,
                   *((11, onnx_value(x, "N", 2)) for x in inputs),
                   *((12, onnx_value(x, "N", 2)) for x in outputs))


def onnx_model(graph, *others, opset=17):
    return message((1, 8), (2, "by hand"), (7, graph), (8, message((2, opset))), *others)


def onnx_files():
    weight = onnx_tensor("w", 1, [2, 2], 9, struct.pack("<4f", 1, 2, 3, 4))
    gemm = onnx_node("Gemm", "x w b", "h", onnx_attribute("alpha", 1, 2, 0.5),
                     onnx_attribute("transB", 2, 3, 1))
    bias = onnx_tensor("b", 1, [2], 4, struct.pack("<2f", 5, 6))
    yield "gemm", onnx_model(onnx_graph([gemm, onnx_node("Relu", "h", "y")], (5, weight), (5, bias),
                                        (13, onnx_value("h", 3, 2)), inputs=["x"]))
    late = [onnx_node("Relu", "h", "y"), onnx_node("Abs", "x", "h")]
    yield "unsorted", onnx_model(onnx_graph(late, inputs=["x"]), opset=9)
    numbers = b"".join(varint(i) for i in (1, -2, 300))
    typed = [onnx_tensor("a", 7, [3], 7, numbers), onnx_tensor("c", 6, [3], 5, numbers),
             onnx_tensor("d", 10, [3], 5, bytes(3)), onnx_tensor("e", 9, [3], 5, bytes([0, 1, 0])),
             onnx_tensor("f", 11, [2], 10, bytes(16)), onnx_tensor("s", 8, [1], 6, "text"),
             onnx_tensor("z", 1, [0, 4], 9, b""), onnx_tensor("q", 22, [3], 9, b"ab")]
    yield "typed", onnx_model(onnx_graph([], *((5, t) for t in typed), outputs=["a"]))
    external = message((1, "location"), (2, "w.bin"))
    away = message((1, varint(2)), (2, 1), (8, "w"), (13, external), (14, 1),
                   (13, message((1, "offset"), (2, "8"))))
    yield "external", onnx_model(onnx_graph([], (5, away), outputs=["w"]))
    deep = onnx_graph([onnx_node("Neg", "x", "y")])
    for _ in range(4):
        body = onnx_attribute("then_branch", 5, 6, deep)
        deep = onnx_graph([onnx_node("If", "x", "y", body)])
    lists = [onnx_attribute("ints", 7, 8, numbers), onnx_attribute("floats", 6, 7, bytes(8)),
             onnx_attribute("strings", 8, 9, "one"), onnx_attribute("text", 3, 4, "two"),
             onnx_attribute("value", 4, 5, typed[0])]
    nodes = [onnx_node("If", "x", "h", body), onnx_node("Op", "h", "y", *lists)]
    yield "if", onnx_model(onnx_graph(nodes, inputs=["x"]))
    refers = message((1, "k"), (20, 2), (21, "alpha"))
    step = onnx_node("Op", "a", "b", refers)
    function = message((1, "F"), (4, "a"), (5, "b"), (7, step), (10, "own"),
                       (11, onnx_attribute("alpha", 2, 3, 7)), (9, message((2, 17))))
    again = message((1, "G"), (4, "a"), (5, "b"), (7, onnx_node("F", "a", "c", domain="own")),
                    (7, onnx_node("F", "c", "b", onnx_attribute("alpha", 2, 3, 1), domain="own")),
                    (10, "own"))
    yield "functions", onnx_model(onnx_graph([onnx_node("G", "x", "y", domain="own")],
                                             inputs=["x"]), (25, function), (25, again))
    package = importlib.util.find_spec("onnx")
    if package and package.origin:              # its models, where it is installed
        data = Path(package.origin).parent / "backend/test/data"
        for path in sorted(data.glob("*/*/model.onnx"))[:200]:
            if path.stat().st_size <= LARGEST:  # opsets below 9, which are refused, become 9
                yield f"real-{path.parent.name}", re.sub(
                    rb"B(\x04\n\x00|\x02)\x10[\x01-\x08]", b"B\\1\x10\x09", path.read_bytes())


def tokenizer_files():
    """tokenizer.json with all parts that are known, around small models."""
    golden = Path(__file__).resolve().parents[1] / "tests/data/tokenizers.json"
    golden = json.loads(golden.read_text(encoding="utf-8"))
    words = ["a", "b", "ab", "##b", "u", "new", "\u0120", "\u2581", "<0x41>", "b</w>"]
    vocab = {word: i for i, word in enumerate(words)}
    small = {"wordpiece": {"type": "WordPiece", "unk_token": "u", "vocab": vocab},
             "bpe": {"type": "BPE", "unk_token": "u", "fuse_unk": True, "byte_fallback": True,
                     "vocab": vocab, "merges": ["a b"]}}
    for case in golden["cases"]:
        model = small["wordpiece" if case["model"] == "wordpiece" else "bpe"]
        parts = json.loads("{" + case["parts"] + "}")
        parts.pop("added_tokens", None)
        added = [{"id": 20, "content": "new ", "single_word": True, "lstrip": True, "rstrip": True,
                  "normalized": True, "special": False}]
        whole = {**parts, "added_tokens": added, "model": model,
                 "truncation": {"max_length": 9, "strategy": "OnlyFirst", "direction": "Left"},
                 "padding": {"strategy": {"Fixed": 4}, "direction": "Left", "pad_id": 3}}
        yield case["name"], json.dumps(whole, ensure_ascii=False).encode()
    for name, model in golden["models"].items():
        yield "model-" + name, ('{"model":' + model + "}").encode()
    yield "vocab.txt", b"[UNK]\n[CLS]\n[SEP]\na\n##b\n"


TEXTS = {
    "csv": {
        "numbers": b"1,2,3\n4,5.5,-6e3\n",
        "header": b"a,b,label\n1,2,0\n3,4,1\n",
        "quoted": b'"x ""y""","2"\n"1",2\n',
        "crlf": b"1;2\r\n3;4\r\n",
        "cr": b'a,b\r"1",2\r"3\r4",5\r',
        "utf16": "k,n\nh\u00f6he,1\n\U0001F600,2\n".encode("utf-16"),
        "utf16be": "a,b\r\n1,2\r\n3,4\r\n".encode("utf-16-be"),
        "blank": b"1,2\n\n,\n# no\n3,4",
        "names": b"sepal,kind\n5.1,setosa\n4.9,virginica\n",
        "wide": b",".join(b"%d" % i for i in range(300)) + b"\n",
        "words": b"kind,b,id\nred,1,7\n,2,8\nblue,NA,9\nred,3,10\n",
        "columns": b"weber columns,1,\nheader,yes,\nmissing,mean,\nmissing texts,\"NA,?\",\n"
                   b"label,numbers,\none-hot,kind,1\nword,\"a\"\"b\",\nword,x,\n"
                   b"numbers,b,5.25\nleft out,id,\ny,price,\n",
    },
    "toml": {
        "preferences": b'[Flux]\ngpu_backend = "CUDA"\n',
        "nested": b'[a]\nb = "c"\n[a.d."e f"]\nx = [1, 2, [3]]\ny = {z = 1, w.v = true}\n',
        "texts": b'a = """one\\\n  two \\u00e9"""\nb = \'\'\'raw\'\'\'\n'
                 b'c = "\\t\\"\\U0001F600"\n',
        "tables": b'[[p]]\nn = 1\n[[p]]\nn = 2\n[p.q]\n',
        "numbers": b'a = 1_000\nb = 0xff\nc = 0b1\nd = -1.5e-3\ne = inf\nf = nan\n'
                   b'g = 1979-05-27T07:32:00Z\nh = 07:32:00.5\n',
        "comments": b'# one\na = 1 # two\r\n\n"quoted key" = 1\na.b.c = 3\n',
    },
}


# ---- the corpora ---------------------------------------------------------------------------------

def add(folder, target, name, data):
    to = folder / target
    to.mkdir(parents=True, exist_ok=True)
    (to / name).write_bytes(data)


def real_files(folder, data):
    for path in sorted((data / "flux-models").glob("*.bson")):
        add(folder, "bson", "real-" + path.stem, path.read_bytes()[:LARGEST])
    for path in sorted((data / "mnist-t10k").glob("*.gz")):
        whole = gzip.decompress(path.read_bytes())
        n = 20
        each = (len(whole) - 8) // 10000 if whole[3] == 1 else 28 * 28
        head = whole[:4] + struct.pack(">I", n) + whole[8:4 + 4 * whole[3]]
        add(folder, "idx", "real-" + path.stem, head + whole[4 + 4 * whole[3]:][:n * each])
        add(folder, "idx", "real-cut-" + path.stem, path.read_bytes()[:4096])
    tables = ((data / "digits/iris.csv", "iris"), (data / "digits/digits.csv.gz", "digits"))
    for path, name in tables:
        if path.exists():
            text = path.read_bytes()
            text = gzip.decompress(text) if path.suffix == ".gz" else text
            lines = text.splitlines(keepends=True)
            add(folder, "csv", "real-" + name, b"".join(lines[:40]))


def converted(folder, weber):
    """Adds the conversions of small files into other formats by the library."""
    made = folder / "made"
    made.mkdir(exist_ok=True)
    sources = [folder / "safetensors/model", folder / "safetensors/tied", folder / "bson/chain",
               folder / "bson/recurrent", folder / "npy/f4"]
    for source in sources:
        for ending in ("safetensors", "bson", "npz", "npy"):
            to = made / f"x.{ending}"
            run = subprocess.run([str(weber), "convert", str(source), str(to)],
                                 capture_output=True, check=False)
            if run.returncode == 0:
                add(folder, ending, f"made-{source.parent.name}-{source.name}", to.read_bytes())
            to.unlink(missing_ok=True)
    made.rmdir()


def pt_files():
    """Files of torch.save, and their pickles alone, which no checksum guards."""
    for path in sorted((Path(__file__).resolve().parents[1] / "tests/data").glob("*.pt")):
        yield path.stem, path.read_bytes()
        with zipfile.ZipFile(path) as z:
            yield path.stem + "-pickle", z.read(path.stem + "/data.pkl")


def pretrained_files():
    """config.json of the small models of tests/data/pretrained."""
    for path in sorted((Path(__file__).resolve().parents[1] / "tests" / "data" / "pretrained")
                       .glob("*/config.json")):
        yield path.parent.name + ".json", path.read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weber", type=Path)
    options = parser.parse_args()
    for target in ("bson", "safetensors", "npy", "npz", "idx", "wav", "pt", "onnx", "tokenizer",
                   "pretrained", *TEXTS):
        shutil.rmtree(options.folder / target, ignore_errors=True)
    for name, fields in bson_files():
        add(options.folder, "bson", name, document(fields))
    for target, files in (("safetensors", safetensors_files), ("npy", npy_files),
                          ("npz", npz_files), ("idx", idx_files), ("wav", wav_files),
                          ("pt", pt_files), ("onnx", onnx_files), ("tokenizer", tokenizer_files),
                          ("pretrained", pretrained_files)):
        for name, data in files():
            add(options.folder, target, name, data)
    for target, files in TEXTS.items():
        for name, data in files.items():
            add(options.folder, target, name, data)
    shared = Path(os.environ.get("WEBER_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    data = shared / "data"
    if data.is_dir():
        real_files(options.folder, data)
    if options.weber:
        converted(options.folder, options.weber)
    for target in sorted(path for path in options.folder.iterdir() if path.is_dir()):
        files = list(target.iterdir())
        size = sum(path.stat().st_size for path in files)
        print(f"{target.name}: {len(files)} files, {size} bytes")


main()
