#!/usr/bin/env python3
"""Writes the library as two files, weber.c and weber.h, for the CPU alone.

    amalgamate.py [FOLDER]      FOLDER: build/amalgamation by default

weber.h is the public header with its chapters.  weber.c is one translation unit of the sources of
src/ that need nothing but libc and libm; a C preprocessor (CC, default cc) is all that this program
needs.  Each source is a section.  Between sections:

  headers     A header with a guard is expanded once, where it is first included.  Headers in
              SECTION, and headers without a guard, are expanded in every section that includes
              them.
  macros      A section ends with #undef for each macro that it defined.
  names       Sources may use one name for different static functions, types or constants.  A name
              of a section that occurs elsewhere too becomes section__name, by a #define around the
              section.  A #define would also rename a member of a struct, so where the section reads
              a member of that name, its text is renamed instead.
  processors  Sections of TARGETS are compiled for instruction sets by pragmas; wb__isa_here chooses
              one at run time.

The code depends on the sources alone: neither on the machine nor on the preprocessor.  The head
names the commit that `git describe` finds here; outside a clone, that of WEBER_COMMIT.
"""
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from shutil import which

from version import version

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = re.compile(r"^src/(cli|dist/mpi|backend/(amdgpu|cuda|gpu|metal|nccl|opencl))/"
                      r"|/(dnnl[^/]*|os_[a-z]+_process)\.c$")
SECTION = {"base/numbers/dialect.h", "base/numbers/formulas.h", "backend/cpu/transpose.h"}

# Names of libc that sections use for functions of their own.
LIBC = {"connect", "read", "write"}

AVX2 = "avx2,fma,f16c"
AVX512 = "avx512f,avx512bw,avx512dq,avx512vl," + AVX2
# The ends of file names, with condition, instruction sets, and the macros of the compiler for them.
# The first row that fits counts.
AVX2_MACROS = ["AVX__", "AVX2__", "FMA__", "F16C__", "SSE3__", "SSSE3__", "SSE4_1__", "SSE4_2__"]
AVX512_MACROS = AVX2_MACROS + ["AVX512F__", "AVX512BW__", "AVX512DQ__", "AVX512VL__"]
TARGETS = [
    ("/bf16_avx512.c", "WB_HAVE_AVX512_BF16", AVX512 + ",avx512bf16", AVX512_MACROS),
    ("/int8_vnni_avx512.c", "WB_HAVE_VNNI_AVX512", AVX512 + ",avx512vnni", AVX512_MACROS),
    ("/int8_vnni_avx2.c", "WB_HAVE_VNNI_AVX2", AVX2 + ",avxvnni", AVX2_MACROS),
    ("avx512.c", "WB_HAVE_X86_ISA", AVX512, AVX512_MACROS),
    ("avx2.c", "WB_HAVE_X86_ISA", AVX2, AVX2_MACROS),
]
KERNELS = "src/backend/cpu/"
WRAPS = re.compile(r"/tile/(portable|avx2|avx512)\.c$")     # integers of tensors wrap around

TOKEN = re.compile(r"""
    (?P<comment>/\*.*?\*/|//[^\n]*)
  | (?P<directive>(?:(?<=\n)|\A)[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
  | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<space>\s+)
  | (?P<sign>->|\#\#|\.\.\.|.)""", re.X | re.S)
WORD = re.compile(r"""[A-Za-z_]\w*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[0-9][\w.]*|[^\s\w]""")
INCLUDE = re.compile(r'\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
DEFINE = re.compile(r"\s*#\s*define\s+(\w+)")
NAME = re.compile(r"[A-Za-z_]\w*$")


def tokens(text):
    return [(m.lastgroup, m.group()) for m in TOKEN.finditer(text)]


def read(path):
    return (ROOT / path).read_text()


def guard_of(text):
    found = re.search(r"^#ifndef (\w+_H)\n#define \1$", text, re.M)
    return found and found.group(1)


def public(name):
    return name == "weber.h" or name.startswith("weber/")


class Section:
    """A source of src/ with the headers that it includes first.  `headers` and `body` are lists of
    (path of the file, kind of token, text)."""

    def __init__(self, path):
        self.path = path
        self.headers, self.body = [], []
        self.name = path[len("src/"):-len(".c")].replace("/", "_")
        self.target = next((row for row in TARGETS if path.startswith(KERNELS) and
                            path.endswith(row[0])), None)

    def macros(self):
        """The macros that the body defines and leaves defined, in order."""
        left = {}
        for _, kind, text in self.body:
            if kind != "directive":
                continue
            if found := DEFINE.match(text):
                left[found.group(1)] = True
            elif found := re.match(r"\s*#\s*undef\s+(\w+)", text):
                left.pop(found.group(1), None)
        return list(left)


class Unit:
    """The sources, with their includes expanded."""

    def __init__(self, paths):
        self.done, self.seen, self.system = set(), set(), set()
        self.sections = []
        for path in paths:
            section = Section(path)
            self.expand(path, section, section.body)
            self.sections.append(section)

    def expand(self, path, section, to):
        """Appends the tokens of a file to the list `to`; comments only the first time."""
        text = read(path)
        again = path in self.seen
        self.seen.add(path)
        guard = path.endswith(".h") and guard_of(text)
        depth = -1 if guard else 0
        for kind, token in tokens(text):
            if kind == "directive":
                if found := INCLUDE.match(token):
                    self.include(found, path, section, to, depth, token)
                    continue
                depth += bool(re.match(r"\s*#\s*if", token)) - bool(
                    re.match(r"\s*#\s*endif", token))
            to.append((path, "space", " ") if again and kind == "comment" else
                      (path, kind, token))
        to.append((path, "space", "\n"))

    def include(self, found, path, section, to, depth, token):
        name, system = found.groups()
        if system:
            if depth:
                if system != "immintrin.h":
                    to.append((path, "directive", token))
            elif system not in ("immintrin.h", "weber.h"):
                self.system.add(system)
        elif public(name) or LEFT_OUT.search("src/" + name):
            pass
        elif name in SECTION or not (name.endswith(".h") and guard_of(read("src/" + name))):
            self.expand("src/" + name, section, to)
            if name in SECTION:                     # the next section expands it again
                guard = guard_of(read("src/" + name))
                to.append((path, "directive", f"#undef {guard}"))
        elif name not in self.done:
            if depth:
                sys.exit(f"amalgamate.py: {path} includes {name} under a condition: include it "
                         f"always, or add it to SECTION")
            self.done.add(name)
            self.expand("src/" + name, section, section.headers)


# ---- names ---------------------------------------------------------------------------------------

QUALIFIERS = set("static inline extern const volatile restrict unsigned signed int char short long "
                 "float double void struct union enum typedef _Bool _Atomic _Thread_local "
                 "__inline __restrict TYPE".split())
SKIPPED = {"__attribute__", "__asm__", "__typeof__", "_Alignas", "_Static_assert", "__extension__"}


def without_attributes(words):
    found, at = [], 0
    while at < len(words):
        if words[at] not in SKIPPED:
            found.append(words[at])
            at += 1
            continue
        if words[at] == "__typeof__":
            found.append("TYPE")
        at += 1
        if at < len(words) and words[at] == "(":
            at = closing(words, at) + 1
    return found


def closing(words, at):
    """The index of the bracket that closes the one at index `at`."""
    depth = 0
    for i in range(at, len(words)):
        depth += (words[i] in "([{") - (words[i] in ")]}")
        if not depth:
            return i
    return len(words) - 1


def declared(words):
    """The names that one external declaration declares, with their kinds."""
    words = without_attributes(words)
    names, flat, at = [], [], 0
    while at < len(words):                          # structs, unions, enums become TYPE
        if words[at] in ("struct", "union", "enum"):
            kind, brace = words[at], at + 1
            if brace < len(words) and NAME.match(words[brace]):
                brace += 1
            flat.append("TYPE")
            if brace < len(words) and words[brace] == "{":
                if brace == at + 2:
                    names.append((words[at + 1], "tag"))
                end = closing(words, brace)
                if kind == "enum":
                    depth = 0
                    for i in range(brace, end):
                        depth += (words[i] in "([{") - (words[i] in ")]}")
                        if depth == 1 and words[i] in "{," and NAME.match(words[i + 1]):
                            names.append((words[i + 1], "constant"))
                brace = end + 1
            at = brace
            continue
        flat.append(words[at])
        at += 1
    kind = next((w for w in flat[:4] if w in ("static", "typedef")), "extern")
    for part in declarators(flat):
        name = None
        for i, word in enumerate(part):
            if word == "(":
                name = next((w for w in part[i + 1:] if NAME.match(w) and w not in QUALIFIERS),
                            None) if part[i + 1:i + 2] == ["*"] else part[i - 1] if i else None
                break
            if word == "[":
                name = part[i - 1]
                break
        else:
            name = part[-1] if len(part) > 1 or part is not flat else None
        if name and NAME.match(name) and name not in QUALIFIERS:
            names.append((name, kind))
    return names


def declarators(words):
    """Divides a declaration at its commas; leaves out initialisers and bodies of functions."""
    parts, part, depth, value = [], [], 0, False
    for i, word in enumerate(words):
        if word == "{" and not depth and not value:
            break
        depth += (word in "([{") - (word in ")]}")
        if not depth and word == "=":
            value = True
        if not depth and word in (",", ";"):
            parts.append(part)
            part, value = [], False
        elif not value:
            part.append(word)
    return [p for p in parts + [part] if p]


def declarations(words):
    """Divides the (path, word) of a translation unit into external declarations."""
    part, depth = [], 0
    for path, word in words:
        part.append((path, word))
        depth += (word == "{") - (word == "}")
        ends = word == ";"
        if word == "}" and not depth:
            plain = without_attributes([w for _, w in part])
            ends = plain[plain.index("{") - 1] == ")"           # a function
        if ends and not depth:
            yield part
            part = []


def preprocessed(unit, options):
    """The (section, path, word) of the unit behind a C preprocessor without the machine's headers
    and macros."""
    lines = []
    for number, section in enumerate(unit.sections):
        instructions = section.target[3] if section.target else []
        lines += [f"#define __{macro} 1\n" for macro in instructions]
        for where, pieces in (("h", section.headers), ("b", section.body)):
            path = None
            for piece_path, kind, text in pieces:
                if piece_path != path:
                    path = piece_path
                    lines.append(f'\n# 1 "{number}{where}{path}"\n')
                lines.append(text if kind != "comment" else " ")
        lines.append("\n")
        lines += [f"#undef {macro}\n" for macro in section.macros()]
        lines += [f"#undef __{macro}\n" for macro in instructions]
    with tempfile.TemporaryDirectory() as folder:
        stubs = unit.system | set(re.findall(r"#\s*include\s*<(.*?)>", "".join(lines)))
        for name in stubs:
            stub = Path(folder, name)
            stub.parent.mkdir(parents=True, exist_ok=True)
            stub.write_text("")
        Path(folder, "unit.c").write_text("".join(lines))
        result = subprocess.run([os.environ.get("CC", "cc"), "-E", "-undef", "-nostdinc",
                                 f"-I{folder}", *options, f"{folder}/unit.c"],
                                stdout=subprocess.PIPE, text=True, check=True)
    number, path = None, None
    for line in result.stdout.split("\n"):
        if found := re.match(r'# \d+ "(\d*[hb])?(.*?)"', line):
            number, path = found.groups()
        elif number and not line.startswith("#"):
            for word in WORD.findall(line):
                yield number, path, word


LINUX = ["-D__GNUC__=12", "-D__linux__", "-D__GLIBC__=2", "-D__x86_64__", "-D__SSE2__",
         "-DWB_HAVE_X86_ISA", "-DWB_HAVE_AVX512_BF16", "-DWB_HAVE_VNNI_AVX2",
         "-DWB_HAVE_VNNI_AVX512"]
APPLE = ["-D__GNUC__=12", "-D__APPLE__", "-D__aarch64__", "-DWB_HAVE_ZLIB", "-DWB_HAVE_BSON",
         "-DWB_HAVE_ZIP", "-DWB_HAVE_UTF8PROC"]


def names_of(unit):
    """For each section, the names of its body that only it may see; and the names that all see.  A
    header may declare a struct whose members one section alone knows: its name is of all."""
    local, everywhere = [set() for _ in unit.sections], defaultdict(set)
    tags = [set() for _ in unit.sections]
    for options in (LINUX, APPLE):     # together, nearly each line of the sources
        words = (((number, path), word) for number, path, word in preprocessed(unit, options))
        for part in declarations(words):
            number, path = part[-1][0]
            for name, kind in declared([word for _, word in part]):
                if kind == "typedef" and path[len("src/"):] in SECTION:
                    continue                        # C allows to repeat it
                if kind != "extern" and number.endswith("b"):
                    (tags if kind == "tag" else local)[int(number[:-1])].add(name)
                else:
                    everywhere[name].add(number)
    for section in unit.sections:
        for _, kind, text in section.headers:
            if kind == "directive" and (found := DEFINE.match(text)):
                everywhere[found.group(1)].add(section.name)
    return [l | (t - set(everywhere)) for l, t in zip(local, tags)], everywhere


def renamed(unit):
    """For each section, the set of names that another section, or all, also has."""
    local, everywhere = names_of(unit)
    count = defaultdict(int)
    for names in local:
        for name in names:
            count[name] += 1
    return [{name for name in names if count[name] > 1 or name in everywhere or name in LIBC}
            for names in local]


# ---- output --------------------------------------------------------------------------------------

def member_uses(section):
    """The names of members that the body reads or sets: those behind a point or an arrow."""
    used = set()
    for _, kind, text in section.body:
        if kind == "directive":
            used |= set(re.findall(r"(?:\.|->)\s*([A-Za-z_]\w*)", text))
    code = [(kind, text) for _, kind, text in section.body if kind not in ("space", "comment")]
    for before, (kind, text) in zip(code, code[1:]):
        if kind == "name" and before[1] in (".", "->"):
            used.add(text)
    return used


def members_declared(code):
    """The indices of the tokens that declare members of structs and unions."""
    found, structs, depth, round_ = set(), [], 0, 0
    for i, (kind, text) in enumerate(code):
        if text == "{":
            depth += 1
            if i and (code[i - 1][1] in ("struct", "union") or
                      i > 1 and code[i - 2][1] in ("struct", "union")):
                structs.append(depth)
        elif text == "}":
            if structs and structs[-1] == depth:
                structs.pop()
            depth -= 1
        elif text == "(":
            round_ += 1
        elif text == ")":
            round_ -= 1
        elif kind == "name" and structs and structs[-1] == depth and i + 1 < len(code):
            after, before = code[i + 1][1], code[i - 1][1]
            if after in (";", ",", "[", ":") and not round_ and before != "[":
                found.add(i)
            elif after == ")" and before == "*" and code[i - 2][1] == "(":
                found.add(i)
    return found


def rename(section, names):
    """Renames names in the text of the body, except members."""
    if not names:
        return
    at = [i for i, (_, kind, _) in enumerate(section.body) if kind not in ("space", "comment")]
    code = [section.body[i][1:] for i in at]
    skipped = members_declared(code)
    word = re.compile(r"(\.\s*|->\s*|#\s*|\b)(" + "|".join(sorted(names)) + r")\b")
    for k, i in enumerate(at):
        path, kind, text = section.body[i]
        if kind == "directive":
            text = word.sub(lambda m: m.group() if m.group(1) else
                            f"{section.name}__{m.group(2)}", text)
        elif text in names and k not in skipped and code[k - 1][1] not in (".", "->"):
            text = f"{section.name}__{text}"
        section.body[i] = path, kind, text


def own(headers):
    """The pieces with WB__OWN before each prototype of a function."""
    part, depth, starts = [], 0, set()
    for i, (_, kind, text) in enumerate(headers):
        if kind in ("space", "comment", "directive"):
            continue
        part.append((i, text))
        depth += (text == "{") - (text == "}")
        if depth or text not in (";", "}"):
            continue
        words = [word for _, word in part]
        if text == ";" and "(" in words and not {"{", "=", "typedef", "static", "extern",
                                                 "_Static_assert"} & set(words):
            starts.add(part[0][0])
        if text == ";" or words[words.index("{") - 1] == ")":
            part = []
    return [(path, kind, ("WB__OWN " if i in starts else "") + text)
            for i, (path, kind, text) in enumerate(headers)]


def without_gaps(text):
    """The text with at most one empty line between others."""
    return re.sub(r"\n\s*\n(?=\n)", "\n", text)


def text_of(pieces):
    text = "".join(text for _, _, text in pieces)
    return without_gaps(re.sub(r" +$", "", text, flags=re.M)).strip("\n") + "\n"


def target_begin(section):
    _, condition, isa, macros = section.target
    lines = [f"#ifdef {condition}", "#ifdef __clang__",
             f'#pragma clang attribute push(__attribute__((target("{isa}"))), apply_to = function)']
    for macro in macros:                # gcc's pragma defines them
        lines += [f"#ifndef __{macro}", f"#define __{macro} 1", f"#define WB__OWN_{macro}",
                  "#endif"]
    vectors = ",prefer-vector-width=512" if "avx512f" in isa else ""
    return lines + ["#else", "#pragma GCC push_options", f'#pragma GCC target("{isa}{vectors}")',
                    "#endif"]


def target_end(section):
    lines = ["#ifdef __clang__", "#pragma clang attribute pop"]
    for macro in section.target[3]:
        lines += [f"#ifdef WB__OWN_{macro}", f"#undef __{macro}", f"#undef WB__OWN_{macro}",
                  "#endif"]
    return lines + ["#else", "#pragma GCC pop_options", "#endif", "#endif"]


def section_text(section, names):
    """The lines of one section; `names` are renamed."""
    in_text = names & member_uses(section)
    rename(section, in_text)
    names = sorted(names - in_text)
    macros = section.macros()
    lines = [text_of(own(section.headers)).rstrip("\n")] if section.headers else []
    lines += [f"/* ---- {section.path} {'-' * (89 - len(section.path))} */", ""]
    options = []
    if section.path.startswith(KERNELS):
        options = ["O3", "fp-contract=off", "no-math-errno", "no-trapping-math",
                   "align-functions=64"]
        options += ["wrapv"] * bool(WRAPS.search(section.path))
    if section.target:
        lines += target_begin(section)
    if options:
        quoted = ", ".join(f'"{o}"' for o in options)
        lines += ["#ifdef WB__GCC_OPTIMISES", "#pragma GCC push_options",
                  f"#pragma GCC optimize({quoted})", "#endif"]
    lines += [f"#define {name} {section.name}__{name}" for name in names]
    lines.append(text_of(section.body).rstrip("\n"))
    lines += [f"#undef {name}" for name in sorted(set(names) | set(macros))]
    if options:
        lines += ["#ifdef WB__GCC_OPTIMISES", "#pragma GCC pop_options", "#endif"]
    if section.target:
        lines += target_end(section)
    return lines


def sources():
    paths = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "src").rglob("*.c"))
    paths = [p for p in paths if not LEFT_OUT.search(p)]
    # Sections for instruction sets follow all others, so that no header is expanded in one.
    return sorted(paths, key=lambda p: (p.startswith(KERNELS), bool(Section(p).target), p))


HEAD = """\
/* Weber {version}, neural networks for C and C++ programs, as two files: weber.c and weber.h.
 * Made from commit {commit} by tools/amalgamate.py.
 *
 *     cc -O2 program.c weber.c -lm -lpthread
 *
 * A C++ program includes weber.h and links with weber.o, which a C compiler makes of weber.c.
 * Compiled with gcc 12 and clang 14, on Linux; others were not tried (glibc before 2.34 also needs
 * -ldl).  clang needs -fwrapv where integers of tensors overflow.  The kernels of AVX2 and AVX-512
 * are chosen at run time.  The files have the CPU alone: no GPU, no MPI, no oneDNN, no command
 * `weber`.  Libraries of file formats are left out unless they are asked for: -DWB_HAVE_ZLIB -lz
 * (gzip), -DWB_HAVE_ZIP -lzip (.npz, .pt), -DWB_HAVE_UTF8PROC -lutf8proc (tokenizers),
 * -DWB_HAVE_BSON -lbson-1.0 with its -I (.bson).
 *
{licence} */
"""
BEGIN = """
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define WB_NO_MORE
#include "weber.h"

#ifndef WB__OWN                 /* before functions that are not in weber.h */
#define WB__OWN static
#endif
"""
CONFIG = """
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#ifndef __clang__               /* gcc follows values through more functions than it understands */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif
/* A product and a sum stay two operations, so that all compilers compute the same numbers. */
#ifdef __clang__
#pragma clang fp contract(off)
#elif defined(__GNUC__) && defined(__OPTIMIZE__)
#define WB__GCC_OPTIMISES
#if defined(__FMA__) || !defined(__x86_64__)
#pragma GCC optimize("fp-contract=off")
#endif
#endif

#if defined(__x86_64__) && !defined(__ILP32__) && defined(__GNUC__)
#define WB_HAVE_X86_ISA 1
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define WB_HAVE_AVX512_BF16 1
#define WB_HAVE_VNNI_AVX2 1
#define WB_HAVE_VNNI_AVX512 1
#endif
#endif
#ifdef __SSE2__
#include <immintrin.h>
#endif

/* Loops of square roots become loops of vectors only without errno, and the pragma for
 * -fno-math-errno has no effect on them. */
#include <math.h>
#ifdef __GNUC__
float sqrtf(float) __attribute__((const));
double sqrt(double) __attribute__((const));
#endif
"""


def header():
    """weber.h with its chapters in place."""
    done = set()

    def expand(name):
        lines = []
        for kind, text in tokens(read("include/" + name)):
            found = kind == "directive" and INCLUDE.match(text)
            if found and found.group(1):
                if found.group(1) not in done:
                    done.add(found.group(1))
                    lines.append(expand(found.group(1)))
            else:
                lines.append(text)
        return "".join(lines)
    return without_gaps(expand("weber.h"))


def commit():
    """The commit of this project; not that of a repository around an archive."""
    def git(*words):
        run = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True,
                             check=False)
        return run.stdout.strip() if not run.returncode else ""
    top = which("git") and git("rev-parse", "--show-toplevel")
    found = top and Path(top).resolve() == ROOT and git(
        "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    return found or os.environ.get("WEBER_COMMIT", "unknown")


def head():
    licence = "\n".join(f" * {line}".rstrip() for line in read("LICENSE").strip().split("\n"))
    return HEAD.format(version=version(ROOT), commit=commit(), licence=licence)


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "amalgamation")
    folder.mkdir(parents=True, exist_ok=True)
    unit = Unit(sources())
    lines = [head() + BEGIN] + [f"#include <{name}>" for name in sorted(unit.system)] + [CONFIG]
    for section, names in zip(unit.sections, renamed(unit)):
        lines += section_text(section, names)
    (folder / "weber.c").write_text("\n".join(lines) + "\n")
    (folder / "weber.h").write_text(head() + "\n" + header())


if __name__ == "__main__":
    main()
