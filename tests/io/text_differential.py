#!/usr/bin/env python3
"""Compares Weber's tokenizers with the library `tokenizers` on random texts, and their speeds.

    text_differential.py LIBWEBER [--texts N] [--seed S] [--probe] [--only NAMES] [FOLDER...]
    text_differential.py LIBWEBER --speed TEXTFILE [--only NAMES] [FOLDER...]

The tokenizers are the cases of tests/data/tokenizers.json, and those of the FOLDERs of a model hub.
Random texts are sequences of characters of all planes of Unicode, most of them from a few blocks.
If ids differ, each character of the text is encoded alone: those on which both sides differ, since
they know other versions of Unicode, are counted and left out, and without them no difference is
allowed.  --probe tests all characters first.  Offsets and decoded texts are compared too; exit
status 1 if ids or decoded texts differ.  Offsets may differ where marks are brought into their
order: those of `tokenizers` belong to the places, Weber's to the characters.
"""
import argparse
import ctypes
import json
import random
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

from tokenizers import Tokenizer

GOLDEN = Path(__file__).resolve().parents[1] / "data/tokenizers.json"
BLOCKS = [(0x20, 0x7e)] * 8 + [(9, 13), (0x20, 0x20), (0x80, 0xff), (0x100, 0x24f), (0x300, 0x36f),
          (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff),
          (0x1e00, 0x1fff), (0x2000, 0x206f), (0x2070, 0x24ff), (0x3000, 0x30ff),
          (0x3400, 0x4dbf), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xf900, 0xfdff), (0xfe00, 0xffff),
          (0x1d100, 0x1d7ff), (0x1f000, 0x1faff), (0x20000, 0x2fa1f), (1, 0xd7ff),
          (0xe000, 0x10ffff)]


class Weber:
    """A tokenizer of the library at a path, by its C functions."""
    lib = None

    @classmethod
    def open(cls, path):
        cls.lib = lib = ctypes.CDLL(path)
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        for name, result, arguments in (
                ("wb_load_tokenizer", pointer, [text]), ("wb_error", text, []),
                ("wb_encode_with", pointer, [pointer, text, pointer]),
                ("wb_decode_with", pointer, [pointer, pointer, pointer]),
                ("wb_free_text", None, [pointer]), ("wb_size", ctypes.c_int64, [pointer]),
                ("wb_data", pointer, [pointer]), ("wb_scope_open", pointer, []),
                ("wb_scope_close", ctypes.c_int, [pointer])):
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments

    class Options(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("given", ctypes.c_char_p),
                    ("pair", ctypes.c_char_p), ("a", ctypes.c_void_p), ("special", ctypes.c_bool),
                    ("b", ctypes.c_void_p), ("offsets", ctypes.c_void_p), ("c", ctypes.c_char * 16)]

    def __init__(self, path):
        self.t = self.lib.wb_load_tokenizer(str(path).encode())
        if not self.t:
            sys.exit(self.lib.wb_error().decode())

    def numbers(self, x):
        if not x:
            sys.exit(self.lib.wb_error().decode())
        n = self.lib.wb_size(x)
        return list((ctypes.c_int32 * n).from_address(self.lib.wb_data(x))) if n else []

    def encode(self, raw):
        """(ids, offsets, decoded text)"""
        scope = self.lib.wb_scope_open()
        places = ctypes.c_void_p()
        options = self.Options(ctypes.sizeof(self.Options), b"*", special=True,
                               offsets=ctypes.cast(ctypes.pointer(places), ctypes.c_void_p))
        x = self.lib.wb_encode_with(self.t, raw, ctypes.byref(options))
        ids, offsets = self.numbers(x), self.numbers(places.value)
        text = self.lib.wb_decode_with(self.t, x, None)
        decoded = ctypes.string_at(text).decode()
        self.lib.wb_free_text(text)
        self.lib.wb_scope_close(scope)
        return ids, offsets, decoded

    def ids(self, raw):
        scope = self.lib.wb_scope_open()
        ids = self.numbers(self.lib.wb_encode_with(self.t, raw, None))
        self.lib.wb_scope_close(scope)
        return ids


def in_bytes(text, offsets):
    places = [0]
    for c in text:
        places.append(places[-1] + len(c.encode("utf-8")))
    return [places[i] for pair in offsets for i in pair]


def random_text(rng, left_out):
    out = []
    low, high = rng.choice(BLOCKS)
    for _ in range(rng.randrange(1, 48)):
        if rng.random() < 0.3:
            low, high = rng.choice(BLOCKS)
        c = rng.randrange(low, high + 1)
        if not 0xd800 <= c < 0xe000 and c not in left_out:
            out.append(chr(c))
        if rng.random() < 0.05:
            out.append(rng.choice(["'s", "'LL", " ", "  ", "\n\n", "[MASK]", "<mask>", "</s>", "12",
                                   "new", "\u0301", "\u1161"]))
    return "".join(out)


def around(c):
    """A text that shows how a character is classified."""
    return "a" + c + "b1" + c + "2 " + c + "." + c + "\u0301 " + c + "'s" + c + "new"


def differing(ours, theirs, characters):
    """The characters on which both differ alone."""
    return {ord(c) for c in characters
            if ours.ids(around(c).encode()) != theirs.encode(around(c)).ids}


def probed(ours, theirs):
    """The characters of all planes on which both differ alone."""
    found = set()
    whole = [chr(c) for c in range(1, 0x110000) if not 0xd800 <= c < 0xe000]
    for i in range(0, len(whole), 64):
        part = whole[i:i + 64]
        text = "".join(around(c) for c in part)
        if ours.ids(text.encode()) != theirs.encode(text).ids:
            found |= differing(ours, theirs, part)
    return found


def ranges(numbers):
    """Numbers as a text of ranges with the categories that Python's version of Unicode gives."""
    out = []
    for c in sorted(numbers):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return " ".join(f"{a:04X}" + (f"-{b:04X}" if b > a else "") + ":" + unicodedata.category(chr(a))
                    for a, b in out)


def compare(name, path, options):
    ours, theirs = Weber(path), Tokenizer.from_file(str(path))
    theirs.no_truncation()
    theirs.no_padding()
    left_out = probed(ours, theirs) if options.probe else set()
    rng = random.Random(options.seed)
    wrong = {"other ids": 0, "other offsets": 0, "other decoded texts": 0}

    def report(kind, text, got, expected):
        wrong[kind] += 1
        if wrong[kind] <= 3 and (options.offsets or kind != "other offsets"):
            print(f"  {name}: {kind}: {text!r}: {got}, not {expected}")
    for _ in range(options.texts):
        text = random_text(rng, left_out)
        expected = theirs.encode(text)
        got = ours.encode(text.encode())
        if got[0] != expected.ids:
            left_out |= differing(ours, theirs, set(text))
            text = "".join(c for c in text if ord(c) not in left_out)
            expected = theirs.encode(text)
            got = ours.encode(text.encode())
        if got[0] != expected.ids:
            report("other ids", text, got[0], expected.ids)
            continue
        if got[1] != in_bytes(text, expected.offsets):
            report("other offsets", text, got[1], in_bytes(text, expected.offsets))
        decoded = theirs.decode(expected.ids)
        if got[2] != decoded:
            report("other decoded texts", text, repr(got[2]), repr(decoded))
    counts = ", ".join(f"{n} with {kind}" for kind, n in wrong.items())
    print(f"{name}: {options.texts} texts, {counts}"
          f"; {len(left_out)} characters that differ alone were left out: "
          f"{ranges(left_out)[:options.width]}", flush=True)
    return wrong["other ids"] + wrong["other decoded texts"]


def speed(name, path, text):
    ours, theirs = Weber(path), Tokenizer.from_file(str(path))
    theirs.no_truncation()
    theirs.no_padding()
    lines = text.split("\n")
    parts = ["\n".join(lines[i:i + 40]) for i in range(0, len(lines), 40)]
    raw = [part.encode() for part in parts]
    scope = ours.lib.wb_scope_open()
    best = [1e9, 1e9]
    for _ in range(5):
        begin = time.thread_time()
        for part in raw:
            inner = ours.lib.wb_scope_open()
            ours.lib.wb_encode_with(ours.t, part, None)
            ours.lib.wb_scope_close(inner)
        best[0] = min(best[0], time.thread_time() - begin)
        begin = time.thread_time()
        for part in parts:
            theirs.encode(part)
        best[1] = min(best[1], time.thread_time() - begin)
    ours.lib.wb_scope_close(scope)
    megabytes = len(text.encode()) / 1e6
    print(f"{name}: {megabytes:.2f} MB: Weber {megabytes / best[0]:.2f} MB/s, tokenizers "
          f"{megabytes / best[1]:.2f} MB/s (time of the processor, one thread, the best of 5)")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--offsets", action="store_true", help="prints other offsets too")
    parser.add_argument("--width", type=int, default=300, help="letters of the list of characters")
    parser.add_argument("--speed", type=Path)
    parser.add_argument("--only", help="names of cases, separated by commas")
    options = parser.parse_args()
    Weber.open(options.library)
    with tempfile.TemporaryDirectory() as work:
        return run(options, Path(work))


def run(options, work):
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    paths = {f"real-{folder.name}": folder / "tokenizer.json" for folder in options.folders}
    for case in golden["cases"]:
        path = work / f"{case['name']}.json"
        path.write_text("{" + case["parts"] + ("," if case["parts"] else "") + '"model":' +
                        golden["models"][case["model"]] + "}", encoding="utf-8")
        paths[case["name"]] = path
    only = options.only.split(",") if options.only else paths
    wrong = 0
    for name, path in paths.items():
        if name in only and options.speed:
            speed(name, path, options.speed.read_text(encoding="utf-8"))
        elif name in only:
            wrong += compare(name, path, options)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
