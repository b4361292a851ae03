"""NPZ archives for io_npz.c, made with zipfile and struct.

    npz_files.py write FOLDER    writes valid and broken archives, and those of NumPy if installed
    npz_files.py check FILE      reads an archive that Weber wrote, with zipfile and with NumPy
"""
import os
import struct
import sys
import warnings
import zipfile
import zlib

try:
    import numpy
except ImportError:
    numpy = None


def npy(descr, shape, data, fortran=False, version=1):
    text = "{'descr': %s, 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, shape)
    text = text.encode() + b" " * (-(len(text) + 11) % 64) + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


six = struct.pack("<6f", 0, 1, 2, 3, 4, 5)
F4 = npy("'<f4'", "(2, 3)", six)


def archive(path, members, method=zipfile.ZIP_STORED):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")         # two members with one name
        with zipfile.ZipFile(path, "w", method) as z:
            for name, data in members:
                z.writestr(name, data)


def changed(path, new, at, old, to):
    """Writes a copy with the bytes `to` in the place of `old` in all headers.

    at: the offsets of the bytes from the start of a local and of a central header.
    """
    data = bytearray(open(path, "rb").read())
    for signature, offset in ((b"PK\3\4", at[0]), (b"PK\1\2", at[1])):
        start = data.find(signature)
        while start >= 0:
            assert data[start + offset:start + offset + len(old)] == old, (path, signature)
            data[start + offset:start + offset + len(to)] = to
            start = data.find(signature, start + 4)
    open(new, "wb").write(data)


def directory_only(path, new, offset, to):
    """Writes a copy with the bytes `to` at this offset of the last central header."""
    data = bytearray(open(path, "rb").read())
    start = data.rfind(b"PK\1\2")
    data[start + offset:start + offset + len(to)] = to
    open(new, "wb").write(data)


def write(folder):
    at = lambda name: os.path.join(folder, name)
    members = [("layers.0.weight.npy", F4),
               ("turned.npy", npy("'<f4'", "(2, 3)", six, fortran=True, version=2)),
               ("deep/er.npy", npy("'<i2'", "(3,)", struct.pack("<3h", -1, 2, -32768))),
               ("flags.npy", npy("'|b1'", "(4,)", b"\0\1\2\xff")),
               ("a number.npy", npy("'<f8'", "()", struct.pack("<d", 2.5))),
               ("empty.npy", npy("'<f2'", "(0, 7)", b"")),
               ("gr\u00f6\u00dfe.npy", npy("'|u1'", "(1,)", b"\x07")),
               ("folder/", b"")]
    archive(at("stored.npz"), members)
    archive(at("deflated.npz"), members, zipfile.ZIP_DEFLATED)
    others = [("f4.npy", F4), ("notes.txt", b"words"), ("big.npy", npy(
        "'>f4'", "(1,)", b"\0\0\0\0")),
              ("record.npy", npy("[('a', '<f4'), ('b]', '<i2', (2,))]", "(1,)", bytes(8))),
              ("object.npy", npy("'|O'", "(1,)", b"cos\nsystem\n")),
              ("nine.npy", npy("'|u1'", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", b"\0")),
              ("huge.npy", npy("'|u1'", "(65536, 16777216)", b""))]
    archive(at("others.npz"), others)
    archive(at("nothing.npz"), [])
    archive(at("twice.npz"), [("a.npy", F4), ("a.npy", F4)])
    archive(at("nameless.npz"), [(".npy", F4)])
    archive(at("bzip2.npz"), [("a.npy", F4)], zipfile.ZIP_BZIP2)
    archive(at("one.npz"), [("a.npy", F4)])
    archive(at("packed.npz"), [("a.npy", F4)], zipfile.ZIP_DEFLATED)
    changed(at("one.npz"), at("locked.npz"), (6, 8), b"\0\0", b"\1\0")
    archive(at("short.npz"), [("a.npy", F4[:-4])])
    archive(at("long.npz"), [("a.npy", F4 + b"\0")])
    archive(at("wrong.npz"), [("a.npy", b"PK" + F4)])
    archive(at("bomb.npz"), [("a.npy", npy("'|u1'", "(50000000,)", bytes(50000000)))],
            zipfile.ZIP_DEFLATED)
    bombs = [("%d.npy" % i, npy("'|u1'", "(4000000,)", bytes(4000000))) for i in range(12)]
    archive(at("bombs.npz"), bombs, zipfile.ZIP_DEFLATED)
    liar = npy("'|u1'", "(4000000000,)", b"\0" * 100)
    archive(at("liar.npz"), [("a.npy", liar)], zipfile.ZIP_DEFLATED)
    size = struct.pack("<I", len(liar) - 100 + 4000000000)
    directory_only(at("liar.npz"), at("liar.npz"), 24, size)
    size = struct.pack("<I", len(liar) - 100 + 4000000000)
    archive(at("claims.npz"), [("a.npy", liar)])
    directory_only(at("claims.npz"), at("claims.npz"), 20, size + size)
    damaged = bytearray(open(at("one.npz"), "rb").read())
    damaged[damaged.find(six) + 5] ^= 1
    open(at("checksum.npz"), "wb").write(damaged)
    overlap(at("overlap.npz"))
    with zipfile.ZipFile(at("many.npz"), "w") as z:
        for i in range(70000):
            z.writestr("%d.npy" % i, npy("'|u1'", "()", bytes([i % 251])))
    if numpy:
        values = {"x.y": numpy.arange(12, dtype="f4").reshape(3, 4),
                  "bool": numpy.array([True, False]),
                  "f": numpy.asfortranarray(numpy.arange(6, dtype="i8").reshape(2, 3))}
        numpy.savez(at("numpy.npz"), **values)
        numpy.savez_compressed(at("numpy-packed.npz"), **values)
        numpy.save(at("numpy.npy"), values["f"])


def overlap(path):
    """Writes an archive of 1,000 members that share the same bytes of the file."""
    data = npy("'|u1'", "(100000,)", bytes(100000))
    name = lambda i: b"%05d.npy" % i
    crc = zlib.crc32(data)
    head = struct.pack("<HHHHHIIIH", 20, 0, 0, 0, 33, crc, len(data), len(data), 9)
    out = b"PK\3\4" + head + b"\0\0" + name(0) + data
    start = len(out)
    for i in range(1000):
        out += b"PK\1\2" + struct.pack("<H", 20) + head
        out += struct.pack("<HHHHII", 0, 0, 0, 0, 0, 0) + name(i)
    out += b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1000, 1000, len(out) - start, start, 0)
    open(path, "wb").write(out)


def check(path):
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        names = z.namelist()
        for name in names:
            info = z.getinfo(name)
            assert name.endswith(".npy") and info.compress_type == zipfile.ZIP_STORED, name
            data = z.read(name)
            assert data[:6] == b"\x93NUMPY" and len(data) == info.file_size
    if numpy:
        with numpy.load(path) as file:
            if "a.b" in file.files:
                assert file["a.b"].dtype == "<f4" and file["a.b"].shape == (2, 3)
                assert file["a.b"].tobytes() == six
                assert file["gr\u00f6\u00dfe"].dtype == bool and file["half"].dtype == "<f2"
                assert file["brain"].dtype == "<f4" and file["brain"].tolist() == [1.0, 2.0]
    print("Python read %d arrays%s" % (len(names), "" if numpy else " (without NumPy)"))


{"write": write, "check": check}[sys.argv[1]](sys.argv[2])
