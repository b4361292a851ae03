"""Files of the reference package safetensors, for io_reference.c.

    safetensors_files.py write FOLDER    writes files, and checks how the package reads them
    safetensors_files.py check FILE      reads a file that Weber wrote, with the package

FOLDER gets reference.safetensors, which the package wrote, and files made by hand: both readers
accept good-*, both refuse bad-*.  The package accepts strict-*, which Weber refuses: the format
forbids these files (the same key twice, a header that does not begin with a brace), or they have
fields that the format does not have.
"""
import ctypes
import os
import struct
import sys

import safetensors

BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8,
        "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8}
SHAPES = [(), (3,), (2, 0, 3), (2, 3), (1, 2, 1, 2, 1, 2, 1, 2), (1,) * 9]


def rule(name, n, dtype):
    """The n bytes of the tensor with this name; io_reference.c computes the same."""
    seed = sum(name.encode())
    return bytes((i * 37 + seed * 11) % (2 if dtype == "BOOL" else 251) for i in range(n))


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def build(header, n=0, length=None):
    """The bytes of a file with n bytes of data; `length` replaces the length of the header."""
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + bytes(n)


def tensor(name="a", dtype='"F32"', shape="[1]", offsets="[0,4]"):
    return '"%s":{"dtype":%s,"shape":%s,"data_offsets":%s}' % (name, dtype, shape, offsets)


def one(**changes):
    return "{" + tensor(**changes) + "}"


BAD = {
    "empty": b"", "seven": b"\2\0\0\0\0\0\0", "no-header": build(""), "length": build("{}", 0, 3),
    "huge-length": build("{}", 0, 2**63), "hundred-mb": build("{}", 0, 100000001),
    "list": build("[]"), "bom": build(b"\xef\xbb\xbf{}"), "junk": build("{}x"),
    "zeros": build("{}\0\0"), "open": build("{"),
    "comma": build("{" + tensor() + ",}", 4), "short": build(one(), 3), "long": build(one(), 5),
    "dtype": build(one(dtype='"F99"'), 4), "lower": build(one(dtype='"f32"'), 4),
    "no-text": build(one(dtype="3"), 4),
    "negative": build(one(shape="[-1]"), 4), "fraction": build(one(shape="[1.0]"), 4),
    "exponent": build(one(shape="[1e0]"), 4), "octal": build(one(shape="[01]"), 4),
    "text": build(one(shape='["1"]'), 4), "null": build(one(shape="[null]"), 4),
    "no-shape": build(one(shape="7"), 4), "large": build(one(shape="[2]"), 4),
    "overflow": build(one(shape="[4294967296,4294967297]"), 4),
    "wide": build(one(shape="[99999999999999999999999]"), 4),
    "three": build(one(offsets="[0,4,8]"), 4), "backward": build(one(offsets="[4,0]"), 4),
    "before": build(one(offsets="[-4,0]"), 4), "hole": build(one(offsets="[4,8]"), 8),
    "overlap": build("{" + tensor() + "," + tensor(name="b", offsets="[2,6]") + "}", 8),
    "inside": build("{" + tensor() + "," + tensor(name="b", shape="[0]", offsets="[2,2]") + "}", 4),
    "twice-field": build('{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4),
    "twice-apart": build("{" + tensor() + "," + tensor(offsets="[4,8]") + "}", 8),
    "no-dtype": build('{"a":{"shape":[1],"data_offsets":[0,4]}}', 4),
    "half-byte": build(one(dtype='"F4"', offsets="[0,1]"), 1),
    "metadata-list": build('{"__metadata__":[]}'),
    "metadata-number": build('{"__metadata__":{"a":1}}'),
    "two-metadata": build('{"__metadata__":{},"__metadata__":{}}'),
    "control": build(one(name="a\x01"), 4),
    "surrogate": build(one(name="\\ud800"), 4), "escape": build(one(name="\\x41"), 4),
    "latin": build(b'{"\xe9":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4),
}
GOOD = {
    "none": build("{}"), "spaces": build("{}   \n"),
    "escapes": build(one(name="\\u00e9\\ud83d\\ude00\\n\\/"), 4),
    "order": build('{"a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}}', 4),
    "no-name": build(one(name=""), 4),
    "f4": build(one(dtype='"F4"', shape="[2,3]", offsets="[0,3]"), 3),
    "f6": build(one(dtype='"F6_E2M3"', shape="[4]", offsets="[0,3]"), 3),
    "c64": build(one(dtype='"C64"', offsets="[0,8]"), 8),
    "empty-wide": build(one(shape="[0,9223372036854775807]", offsets="[0,0]")),
    "bool": build(one(dtype='"BOOL"', offsets="[0,1]")) + b"\2",
}
STRICT = {
    "space-first": build(" {}"), "twice-same": build("{" + tensor() + "," + tensor() + "}", 4),
    "twice-metadata": build('{"__metadata__":{"a":"1","a":"2"}}'),
    "null-metadata": build('{"__metadata__":null}'),
    "more-fields": build('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}', 4),
    "zero-in-name": build(one(name="a\\u0000"), 4), "as-list": build('{"a":["F32",[1],[0,4]]}', 4),
}


def accepts(data):
    try:
        safetensors.deserialize(data)
        return True
    except Exception:
        return False


def spec(dtype, shape, data):
    """A tensor in the form that the package's writer accepts, in new and in old versions."""
    if not hasattr(safetensors, "TensorSpec"):
        return {"dtype": dtype, "shape": shape, "data": data}
    address = ctypes.cast(data, ctypes.c_void_p).value or 0
    return safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=address, data_len=len(data))


def write(folder):
    tensors, held = {}, []
    for dtype, bits in BITS.items():
        for shape in SHAPES:
            name = dtype + "." + "x".join(map(str, shape))
            n = count(shape) * bits // 8
            held.append(rule(name, n, dtype))
            tensors[name] = spec(NAMES[dtype], list(shape), held[-1])
    data = safetensors.serialize(tensors, {"by": "the reference", "\u00e9": "\u20ac"})
    open(os.path.join(folder, "reference.safetensors"), "wb").write(data)
    for kind, table in (("good", GOOD), ("bad", BAD), ("strict", STRICT)):
        for name, data in table.items():
            if accepts(data) != (kind != "bad"):
                action = "reads" if kind == "bad" else "refuses"
                sys.exit("the package %s %s-%s" % (action, kind, name))
            path = os.path.join(folder, "%s-%s.safetensors" % (kind, name))
            open(path, "wb").write(data)


# The names of dtypes for the package's writer.  Its reader returns the names in the files.
NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
         "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
         "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
         "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


def check(path):
    data = open(path, "rb").read()
    found = safetensors.deserialize(data)
    for name, t in found:
        expected = rule(name, count(t["shape"]) * BITS[t["dtype"]] // 8, t["dtype"])
        if bytes(t["data"]) != expected or not name.startswith(t["dtype"] + "."):
            sys.exit("%s: %s differs" % (path, name))
    with safetensors.safe_open(path, framework="np") as f:
        if f.metadata()["note"] != "\u00e9\n\"":
            sys.exit("%s: the note differs" % path)
    if (8 + struct.unpack("<Q", data[:8])[0]) % 8:
        sys.exit("%s: the tensors do not begin at a multiple of 8 bytes" % path)
    print(len(found))


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
