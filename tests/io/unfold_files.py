"""Small files that describe much, for io_unfold.c.

    unfold_files.py write FOLDER
"""
import struct
import sys
import zipfile
from pathlib import Path

from pt_files import archive, number, of, tensor, text


def get(i):
    return b"h" + bytes([i])


def shared(depth, kind):
    """A list whose items are twice the same list, `depth` times."""
    pickle = b"\x80\x02" + tensor(sizes=(1,)) + b"q\0"
    for i in range(depth):
        pair = get(i) + get(i)
        pickle += {"tuples": pair + b"\x86", "marked": b"(" + pair + b"t",
                   "lists": b"](" + pair + b"e",
                   "dicts": b"}(" + text("a") + get(i) + text("b") + get(i) + b"u"}[kind]
        pickle += b"q" + bytes([i + 1])
    return pickle + b"."


def deep_names(depth=50, tensors=2000):
    """Dicts in dicts with keys of 900 bytes, around many references to one tensor."""
    pickle = b"\x80\x02" + tensor(sizes=(1,)) + b"q\0" + text("k" * 900) + b"q\1"
    pickle += b"".join(b"}" + get(1) for _ in range(depth)) + b"](" + get(0) * tensors + b"e"
    return pickle + b"s" * depth + b"."


def views(n, elements):
    """n views of one element that alternate between two storages."""
    one, two = (tensor(key=k, elements=elements, sizes=(1,), offset=int(k)) for k in "01")
    return b"\x80\x02](" + (one + two) * (n // 2) + b"e."


def npz(path):
    """One member of 1 MB, which many entries of the directory claim."""
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000,), }\n"
    array = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(1000000)
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("x.npy", array)
    data = path.read_bytes()
    begin = data.rindex(b"PK\1\2")
    entry, end = data[begin:data.rindex(b"PK\5\6")], bytearray(data[data.rindex(b"PK\5\6"):])
    entries = b"".join(entry.replace(b"x.npy", b"%05d" % i) for i in range(1000))
    struct.pack_into("<HHI", end, 8, 1000, 1000, len(entries))
    path.write_bytes(data[:begin] + entries + bytes(end))


def write(folder):
    def put(name, pickle, **options):
        archive(folder / f"{name}.pt", pickle, **options)

    for depth in (15, 17, 21, 40, 60):
        for kind in ("tuples", "marked", "lists", "dicts"):
            put(f"{kind}-{depth}", shared(depth, kind))
    put("names", deep_names())
    put("wide", b"\x80\x02" + tensor(sizes=(1,)) + b"q\0](" + get(0) * 100 + b"eq\1](" +
        get(1) * 100 + b"e.")
    put("repeated", b"\x80\x02" + tensor() + b"q\0](" + get(0) * 1000 + b"e.")
    put("repeated-much", b"\x80\x02" + tensor() + b"q\0](" + get(0) * 100000 + b"e.")
    put("expanded", of(("x", tensor(sizes=(1000, 100), strides=(0, 0)))))
    put("expanded-much", of(*((f"x{i}", tensor(sizes=(1000, 250), strides=(0, 0), offset=3))
                              for i in range(20))))
    put("lists", b"\x80\x02" + b"]" * 200000 + b".")
    put("constants", b"\x80\x02" + b"N" * 200000 + b".")
    put("numbers", b"\x80\x02" + b"(" + b"K\1K\2" * 100000 + b"t.")
    n = 1 << 18
    put("views", views(1000, n), more=[("a/data/1", struct.pack("<2f", 5, 6) + bytes(4 * n - 8))],
        storage=struct.pack("<2f", 3, 4) + bytes(4 * n - 8))
    npz(folder / "claims.npz")


if __name__ == "__main__":
    write(Path(sys.argv[2]))
