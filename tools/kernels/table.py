#!/usr/bin/env python3
"""What the compilers make of the kernels written by hand, in bench/results/kernels.md.

  table.py FOLDER RTC [--update]

FOLDER and RTC are those of check.py.  Compares the figures with the file, for each architecture
whose compiler has the version that the file states: more spills, more instructions a multiply-add,
a lower share of the peak, and a kernel that only one of the two has, are failures.  --update writes
the file; an architecture whose compiler is missing keeps its figures.  machine.py has the figures.
"""
import argparse
import re
import sys
import textwrap
from pathlib import Path

import check
import machine

ROOT = check.HERE.parent.parent
TABLE = ROOT / "bench" / "results" / "kernels.md"
DTYPES = {"NAME F32": "f32", "NAME BF16": "bf16", "ELEMENT u32": "u32", "ELEMENT u16": "u16"}
# Texts for processors; options that make other kernels of little interest.
SKIPPED = re.compile(r"BLOCK|PANEL|WIDE|DEPTH 80|COMBINE .*|SET|FEW|DESCENDING|EXCLUSIVE"
                     r"|FRAGMENTS (?:8|16)")
# Options that a row does not name; kernels on which the options have no effect.
UNNAMED = re.compile(r"NAME .*|STORED .*|KIND .*|ELEMENT .*|ACTIVATION .*|INDEX .*|WIDTH_V .*"
                     r"|INTEGER|LOSSY|FORWARD|OF_QUERIES|OF_KEYS|GRADIENTS|RUN .*|SIMPLE|TILE"
                     r"|GATHER")
PLAIN = ("product_finish", "rows_clear")
COLUMNS = ("registers", "spills", "local", "loop", "FMA", "each", "load", "local load", "peak")

MODEL = """
`./run kernels --update` writes this file, and `./run kernels` compares with it. No figure was
measured on a GPU: NVRTC compiled the texts for sm_80 and sm_90, and clang, as HIP, for gfx90a.

The hot loop is within the outermost loop that has the most multiply-adds, and is the one with the
most there, where those of a loop inside another count sixteen times; without multiply-adds, the one
that loads the most bytes. Loops inside it are not counted. Its instructions are *loop*, its
multiply-adds *FMA* (of one item: an m16n8k16 instruction has 64), instructions a multiply-add
*each*. *registers* are those of an item, *spills* the bytes of memory of its own, which also has
arrays with indices that are not constants, and *local* the bytes of a group's memory. *load* and
*local load* are the mean bytes of a load from global and from local memory, in the loop if it has
loads.

*peak* is an upper bound of the share of the peak: the cycles of the loop's multiply-adds at the
peak, over the cycles in which a scheduler issues the loop's instructions. The peak of f32 is that
without matrix units (with them, if the loop uses them: TF32), the peak of bf16 that of matrix
units. Latency, bank conflicts, memory and the code around the loop are not counted. A scheduler of
sm_80 and sm_90 issues one instruction of 32 items a cycle; one of gfx90a issues a vector
instruction of 64 items in four cycles, and others beside it. Multiply-adds a cycle of a scheduler:
"""

SOURCES = """
Sources: NVIDIA's whitepapers of A100 (64 f32 units and 1,024 multiply-adds of matrix units an SM)
and H100 (128 and 2,048, which only wgmma reaches), by four schedulers; AMD's of CDNA 2 (a CU has
256 operations a cycle in packed f32, 256 in f32 and 1,024 in bf16 by matrix units), by four SIMDs.
"""


def options_of(body):
    """The #define lines at the head of a text."""
    head = re.match(r"(?:#.*\n)*", body)[0]
    return re.findall(r"^#define (.*)$", head, re.M)


def chosen(texts):
    """{(kernel, row name, dtype, flags): text}; of the texts with the same options the first.  The
    flags are options that a row does not name, but that may leave out the kernel."""
    rows = {}
    for text in sorted(texts, key=lambda t: (len(options_of(t.body)), t.body)):
        options = options_of(text.body)
        dtype = next((DTYPES[o] for o in options if o in DTYPES), None)
        if text.entry is None or not dtype or any(map(SKIPPED.fullmatch, options)):
            continue
        named = [o for o in options if not UNNAMED.fullmatch(o)]
        flags = tuple(o for o in options if UNNAMED.fullmatch(o) and " " not in o)
        for kernel in re.findall(r"^KERNEL(?:_OF\(.*?\))? (\w+)\(", text.body, re.M):
            name = " ".join([kernel, *([] if kernel in PLAIN else named)]).lower()
            rows.setdefault((kernel, name, dtype, flags), text)
    return rows


def measure(compiler, rows, cache):
    """{row name: {column: text}} of the rows whose text has the kernel, for waves of the GPU's"""
    wave = machine.ARCHS[compiler.arch][3]
    rows = {row: text for row, text in rows.items()
            if re.search(r"\bfragments (\d+)|$", row[1])[1] in (None, str(wave))}
    texts = sorted({t.path for t in rows.values()})
    made = dict(zip(texts, cache.compile(compiler, texts)))
    table = {}
    for (kernel, name, dtype, _), text in sorted(rows.items(), key=lambda row: row[0][1:]):
        f = made[text.path].get(kernel)
        if not f or f"{name} {dtype}" in table:
            continue
        peak = machine.share(f, dtype == "bf16")
        table[f"{name} {dtype}"] = dict(zip(COLUMNS, (
            str(f["registers"]), str(f["spills"]), str(f["local"]), str(f["loop"]),
            f"{f['macs']:g}", f"{f['loop'] / f['macs']:.2f}" if f["macs"] else "",
            f"{f['load']:.1f}" if f["load"] else "",
            f"{f['local_load']:.1f}" if f["local_load"] else "",
            "" if peak is None else f"{100 * peak:.1f} %")))
    return table


def known():
    """{architecture: (compiler, {row name: {column: text}})} of the file"""
    sections = {}
    for part in re.split(r"^## ", TABLE.read_text() if TABLE.exists() else "", flags=re.M)[1:]:
        arch, compiler = re.match(r"(\S+): (.*)\n", part).groups()
        rows = {}
        for line in part.splitlines():
            words = [w.strip() for w in line.strip("|").split("|")]
            if len(words) == len(COLUMNS) + 1 and words[0] not in ("kernel", "---"):
                rows[words[0]] = dict(zip(COLUMNS, words[1:]))
        sections[arch] = compiler, rows
    return sections


def worse(arch, old, new):
    """What is worse than in the file."""
    for name in sorted(old.keys() ^ new.keys()):
        yield f"{arch} {name}: " + ("not in the file" if name in new else "only in the file")
    for name in sorted(old.keys() & new.keys()):
        for column, sign in ("spills", 1), ("each", 1), ("peak", -1):
            a, b = (float(r[name][column].strip(" %") or 0) for r in (old, new))
            if sign * (b - a) > 0.01 * abs(a) + 0.005:
                yield f"{arch} {name}: {column} {b:g}, in the file {a:g}"


def written(sections):
    text = "# What the compilers make of the kernels\n"
    text += "".join("\n" + textwrap.fill(p, 100) + "\n" for p in MODEL.strip().split("\n\n"))
    text += "\n| | f32 | f32, matrix units | bf16, matrix units |\n| --- | --- | --- | --- |\n"
    for arch, (plain, wide, half, *_) in machine.ARCHS.items():
        text += f"| {arch} | {plain} | {wide} | {half} |\n"
    text += "\n" + textwrap.fill(SOURCES.strip(), 100) + "\n"
    for arch, (compiler, rows) in sections.items():
        text += f"\n## {arch}: {compiler}\n\n| kernel | {' | '.join(COLUMNS)} |\n"
        text += "| --- " * (len(COLUMNS) + 1) + "|\n"
        for name, row in rows.items():
            text += f"| {name} | {' | '.join(row[c] for c in COLUMNS)} |\n"
    return re.sub(r" +\|", " |", text)


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("folder", type=Path)
    a.add_argument("rtc")
    a.add_argument("--update", action="store_true")
    a = a.parse_args()
    rows = chosen(check.read_texts(a.folder))
    cache = machine.Cache(a.folder.parent / "machine.json")
    library, missing = check.usable(a.rtc, check.CUDA_LIBRARIES, "nvrtc", check.CUDA_FOLDERS)
    sections, failures = known(), []
    for arch in machine.ARCHS:
        compiler = (machine.Nvrtc(a.rtc, library, missing, arch) if arch in machine.NVIDIA
                    else machine.Clang(check.clang_of(15), arch))
        old, table = sections.get(arch, (None, {}))
        if compiler.missing:
            print(f"{arch}: skipped: {compiler.missing}")
        elif not a.update and old != compiler.name:
            print(f"{arch}: skipped: the file is of {old}, here is {compiler.name}")
        else:
            new = measure(compiler, rows, cache)
            print(f"{arch}: {len(new)} kernels by {compiler.name}")
            failures += worse(arch, table, new)
            sections[arch] = compiler.name, new
    if a.update:
        TABLE.write_text(written({arch: sections[arch] for arch in machine.ARCHS
                                  if arch in sections}))
    elif failures:
        print("\n".join(failures) + "\n./run kernels --update accepts this")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
