"""Archives like those of torch.save for io_pt.c, made with zipfile and pickle opcodes.

    pt_files.py write FOLDER    writes broken and hostile archives
"""
import struct
import sys
import zipfile
from pathlib import Path


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def number(n):
    return b"J" + struct.pack("<i", n)


def tensor(key="0", elements=4, offset=0, sizes=(4,), strides=(1,), kind="FloatStorage"):
    storage = (b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) +
               text("cpu") + number(elements) + b"tQ")
    return (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + b"(" +
            b"".join(map(number, sizes)) + b"t(" + b"".join(map(number, strides)) + b"t\x89}tR")


def of(*items):
    return b"\x80\x02}(" + b"".join(text(k) + v for k, v in items) + b"u."


def archive(path, pickle, more=(), method=zipfile.ZIP_STORED, order=b"little",
            storage=struct.pack("<4f", 1, 2, 3, 4)):
    members = [("a/data.pkl", pickle), ("a/byteorder", order), ("a/data/0", storage), *more]
    with zipfile.ZipFile(path, "w", method) as z:
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name), data, method)


def write(folder):
    def put(name, pickle, **options):
        archive(folder / f"{name}.pt", pickle, **options)

    put("good", of(("x", tensor())))
    put("views", of(("x", tensor(sizes=(2, 2), strides=(0, 2), offset=1)), ("y", tensor())))
    put("alone", b"\x80\x02" + tensor() + b".")
    put("executes", b"\x80\x02cposix\nsystem\n(" + text("true") + b"tR.")
    put("class", of(("x", b"c__main__\nNet\n)R")))
    put("object", b"\x80\x02c__main__\nNet\n)\x81.")
    put("opcode", b"\x80\x02c" + b"collections\nOrderedDict\n)\x81.")
    put("beyond", of(("x", tensor(sizes=(5,)))))
    put("offset", of(("x", tensor(offset=1))))
    put("negative", of(("x", tensor(offset=-1))))
    put("strides", of(("x", tensor(strides=(-1,)))))
    put("sizes", of(("x", tensor(sizes=(-4,)))))
    put("large", of(("x", tensor(sizes=(60000, 60000), strides=(0, 0)))))
    put("axes", of(("x", tensor(sizes=(1,) * 9, strides=(1,) * 9))))
    put("missing", of(("x", tensor(key="1"))))
    put("outside", of(("x", tensor(key="../../x"))))
    put("elements", of(("x", tensor(elements=5))))
    put("complex", of(("x", tensor(kind="ComplexFloatStorage"))))
    put("twice", of(("x", tensor()), ("x", tensor())))
    put("itself", b"\x80\x02}q\0" + text("x") + b"h\0s.")
    put("many", b"\x80\x02]" + b"".join(b"q%c]h%ch%c\x86a" % (i, i, i) for i in range(60)) + b".")
    put("ends", b"\x80\x02}(X\xff\xff\xff\xff")
    put("stack", b"\x80\x02t.")
    put("nothing", b".")
    put("memo", b"\x80\x02h\5.")
    # a number behind 2^24, and an opcode that lengthens the sizes of a tensor after its own
    put("far", b"\x80\x02}r\0\0\0\1." + bytes(1 << 24))
    lists = tensor(sizes=(), strides=()).replace(b"(t(t", b"]q\5]")
    put("longer", b"\x80\x02}(" + text("x") + lists + text("y") + b"h\5(" + number(2) * 2 + b"eu.")
    put("set", b"\x80\4\x8f(" + tensor() + b"\x90.")
    put("frame", b"\x80\4\x95" + bytes(8) + b"\x8c\5torch\x94\x8c\5Thing\x94\x93.")
    put("global", b"\x80\4N\x8c\5float\x93.")
    put("memoize", b"\x80\4\x94.")
    put("bytes8", b"\x80\5\x8e" + struct.pack("<Q", 2**63) + b".")
    put("written", b"I12x\n.")
    put("deflated", of(("x", tensor())), method=zipfile.ZIP_DEFLATED)
    put("big", of(("x", tensor())), order=b"big")
    damaged = bytearray((folder / "good.pt").read_bytes())
    damaged[damaged.index(struct.pack("<4f", 1, 2, 3, 4))] ^= 1
    (folder / "damaged.pt").write_bytes(damaged)
    (folder / "old.pt").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")


if __name__ == "__main__":
    write(Path(sys.argv[2]))
