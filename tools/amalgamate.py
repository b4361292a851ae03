#!/usr/bin/env python3
"""Writes the library as two files, weber.c and weber.h, for the CPU alone.

    amalgamate.py [FOLDER]      FOLDER: build/amalgamation by default

weber.h is the public header with its chapters.  weber.c is tools/weber.c.in and, one behind the
other, the sources of src/ that need nothing but libc and libm: their static names are unique.  A
header is before the first source that includes it; a header of CODE, or without a guard, is in each
source that includes it.  The names of a source that includes CODE, which a C preprocessor (CC,
default cc) finds, get the source's name by a #define.  The macros of a source end with it.  Pragmas
compile the sources of TARGETS for instruction sets.

The code depends on the sources alone: neither on the machine nor on the preprocessor.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from version import commit, version

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = re.compile(r"src/(weber|cli/|dist/mpi/|backend/(amdgpu|cuda|gpu|metal|nccl|opencl)/)"
                      r"|.*/(dnnl[^/]*|os_[a-z]+_process)\.c$")
# Inline functions of these, compiled elsewhere, would not be inlined for another instruction set.
CODE = re.compile(r'(?:src/|#include ")(base/numbers/(dialect|formulas)'
                  r"|backend/cpu/(transpose|cpu_kernels|tile/rows|product/int8_kernel))\.h\b")
KERNELS = "src/backend/cpu/"
AVX2, AVX512 = "avx2,fma,f16c", "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
# The ends of file names, with condition and instruction sets.  The first row that fits counts.
TARGETS = {"/bf16_avx512.c": ("WB_HAVE_AVX512_BF16", AVX512 + ",avx512bf16"),
           "/int8_vnni_avx512.c": ("WB_HAVE_VNNI_AVX512", AVX512 + ",avx512vnni"),
           "/int8_vnni_avx2.c": ("WB_HAVE_VNNI_AVX2", AVX2 + ",avxvnni"),
           "avx512.c": ("WB_HAVE_X86_ISA", AVX512), "avx2.c": ("WB_HAVE_X86_ISA", AVX2)}
OPTIONS = '"O3", "fp-contract=off", "no-math-errno", "no-trapping-math", "align-functions=64"'
WRAPS = ("/tile/portable.c", "/tile/avx2.c", "/tile/avx512.c")  # integers of tensors wrap around
# What the preprocessor knows of two processors: together, nearly each line of the sources.
MACHINES = ["-D__GNUC__=12 -D__clang__ -D__clang_major__=14 -D__linux__ -D__x86_64__ -D__SSE2__",
            "-D__GNUC__=12 -D__clang__ -D__APPLE__ -D__aarch64__"]

INCLUDE = re.compile(r'^[ \t]*#\s*include "([^"]+)".*$', re.M)
GUARD = re.compile(r"^#ifndef (\w+_H)\n#define \1$", re.M)
PROTOTYPE = re.compile(r"^(?!static|extern|typedef|FN|WB__INLINE)"
                       r"(?=\w[^\n;{}=#]*?\bwb__\w+\)?\([^;{}]*;)", re.M)
# Functions, variables, types and constants of preprocessed code, without ATTRIBUTEs.
ATTRIBUTE = re.compile(r"(?:__attribute__|__typeof__|_Alignas)\s*"
                       r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
STATIC = re.compile(r"\b(?:static|typedef)\b[^;{}=(]*?(?:\(\*\w*\s*)?\b((?:\w+\s*,\s*)*\w+)\)?\s*"
                    r"(?:\((?!\*)|[\[=;])|\benum\s*\{([^}]*)\}"
                    r"|\}\s*(?!return|break|continue)(\w+);")


def read(path):
    return (ROOT / path).read_text()


def expand(path, seen, headers, macros):
    """The text of a file.  `headers` gets those that are not in `seen`, `macros` its own ones."""
    def included(found):
        name = f"src/{found.group(1)}"
        if LEFT_OUT.match(name):
            return ""
        if CODE.match(name) or not name.endswith(".h") or not GUARD.search(read(name)):
            return expand(name, seen, headers, macros)
        if name not in seen:
            seen.add(name)
            headers.append(PROTOTYPE.sub("WB__OWN ", expand(name, seen, headers, [])))
        return ""
    text = read(path)
    macros += re.findall(r"^\s*#\s*define\s+(\w+)", text, re.M)
    guards = [x.group(1) for x in GUARD.finditer(text) if CODE.match(path)]
    return "\n".join([INCLUDE.sub(included, text), *(f"#undef {x}" for x in guards)])


def section(path, body, macros, names):
    """A source with its pragmas; the names get its name."""
    begin, end = [f"/* ---- {path} {'-' * (89 - len(path))} */"], []
    for condition, isa in [TARGETS[x] for x in TARGETS
                           if path.startswith(KERNELS) and path.endswith(x)][:1]:
        known = [f"__{x.upper()}__" for x in f"avx,sse4_1,{isa}".split(",")]
        wide = ",prefer-vector-width=512" if "avx512f" in isa else ""
        begin += [f"#ifdef {condition}\n#ifdef __clang__\n#pragma clang attribute push"
                  f'(__attribute__((target("{isa}"))), apply_to = function)',
                  *(f'#pragma push_macro("{x}")\n#undef {x}\n#define {x} 1' for x in known),
                  "#else                           /* the pragma also defines the macros */",
                  f'#pragma GCC push_options\n#pragma GCC target("{isa}{wide}")\n#endif']
        end = ["#ifdef __clang__\n#pragma clang attribute pop",
               *(f'#pragma pop_macro("{x}")' for x in known),
               "#else\n#pragma GCC pop_options\n#endif\n#endif"]
    if path.startswith(KERNELS):
        options = OPTIONS + ', "wrapv"' * path.endswith(WRAPS)
        begin.append("#ifdef WB__GCC_OPTIMISES\n#pragma GCC push_options\n"
                     f"#pragma GCC optimize({options})\n#endif")
        end.insert(0, "#ifdef WB__GCC_OPTIMISES\n#pragma GCC pop_options\n#endif")
    own = path[len("src/"):-len(".c")].replace("/", "_")
    return "\n".join(begin + [f"#define {x} {own}__{x}" for x in names] + [body] +
                     [f"#undef {x}" for x in sorted({*names, *macros})] + end)


def names_of(code, numbers):
    """For these sources, which begin with a pragma, the names that each defines for itself."""
    names = {number: set() for number in numbers}
    code = re.sub(r"^\s*#\s*include.*", "", code, flags=re.M)
    for machine in MACHINES:
        command = [os.environ.get("CC", "cc"), "-E", "-P", "-undef", "-nostdinc", *machine.split()]
        pieces = subprocess.run([*command, "-xc", "-"], input=code, text=True, check=True,
                                stdout=subprocess.PIPE).stdout.split("#pragma source\n")
        for number, found in names.items():
            for match in STATIC.finditer(ATTRIBUTE.sub("", pieces[2 * number + 1])):
                found.update(re.findall(r"(?:^|,)\s*(\w+)", match.group(match.lastindex)))
    types = re.findall(r"^typedef.*\b(\w+);$", read("src/base/numbers/dialect.h"), re.M)
    return {number: sorted(found.difference(types)) for number, found in names.items()}


def header(name, seen):
    """A public header with the chapters that are not in `seen`."""
    def chapter(found):
        new = found.group(1) not in seen
        seen.add(found.group(1))
        return header(found.group(1), seen) if new else ""
    return INCLUDE.sub(chapter, read(f"include/{name}"))


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "amalgamation")
    folder.mkdir(parents=True, exist_ok=True)
    # Sources for instruction sets follow all others, so that no header is expanded in one.
    paths = sorted((str(p.relative_to(ROOT)) for p in (ROOT / "src").rglob("*.c")), key=lambda p: (
        p.startswith(KERNELS), p.endswith(tuple(TARGETS)), p))
    seen, sources = set(), []
    for path in filter(lambda p: not LEFT_OUT.match(p), paths):
        headers, macros = [], []
        body = expand(path, seen, headers, macros)
        sources.append(("\n".join(headers), path, body, macros))
    licence = "".join(f" * {x}".rstrip() + "\n" for x in read("LICENSE").strip().split("\n"))
    head, begin = read("tools/weber.c.in").replace("@VERSION@", version(ROOT)).replace(
        "@COMMIT@", commit(ROOT)).replace("@LICENCE@\n", licence).split("@HEADER@\n")
    mark = "\n#pragma source\n"
    marked = begin + "".join(f"{headers}{mark}{section(*x, [])}{mark}" for headers, *x in sources)
    names = names_of(marked, [i for i, x in enumerate(sources) if CODE.search(read(x[1]))])
    text = head + begin + "".join(f"{headers}\n{section(*source, names.get(i, []))}\n"
                                  for i, (headers, *source) in enumerate(sources))
    (folder / "weber.c").write_text(re.sub(r"\n{3,}", "\n\n", text))
    (folder / "weber.h").write_text(head + "\n" + header("weber.h", {"weber.h"}))


if __name__ == "__main__":
    main()
