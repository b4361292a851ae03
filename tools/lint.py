#!/usr/bin/env python3
"""The rules that a machine can check.  lint.py [ROOT] [--fast] [--wide]

  floors      a file includes what is on its own floor or below (docs/design.md)
  headers     each public header compiles alone, as C11, C17, C23, C++17 and C++20, by gcc and clang
  vendors     no vendor's name in code or comments but in its own folder and the registry's table
  size        no file over 600 lines; no line over 100 columns (tests: 130), no tabs, no blanks at ends
  words       no word of the list BANNED in comments
  memory      host memory comes from wb__alloc and its kin alone
  calm        the library never exits or aborts, and never prints to standard output by itself
  flags       never -ffast-math
  unfinished  no marks of unfinished work
  symbols     the library exports wb_ names only; each public declaration is defined, with a /** comment */ above it
  languages   each macro of C has its form in C++

--fast leaves out what needs a compiler, --wide lists lines over 100 columns, which are only counted.  One line a finding, "path:line: rule: text"; the exit status is 1
if there is any.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which

# Lowest first.  A file may include its own floor and those before it; floors that stand in one row may not
# include each other.
FLOORS = [
    ["base"], ["ops"], ["backend"], ["engine"], ["tree"], ["device"], ["nn", "optim"], ["io"], ["data"],
    ["train"], ["dist"], ["cli"],
]
LEVEL = {name: level for level, row in enumerate(FLOORS) for name in row}

VENDORS = re.compile(
    r"(?<![a-z])(cuda|cublas\w*|cudnn|nvrtc|nvidia|nccl|rccl|hip|hipblas\w*|hiprtc|miopen|rocm|amdgpu|radeon|"
    r"opencl|pocl|metal|mpi|openmpi|mpich)(?![a-z])|wb_\w*(cuda|opencl|metal|hip|amdgpu)\w*", re.I)
VENDOR_ROOMS = ("src/backend/cuda/", "src/backend/amdgpu/", "src/backend/hip/", "src/backend/metal/",
                "src/backend/opencl/", "src/dist/mpi", "src/dist/nccl", "src/device/registry",
                "src/backend/gpu/prelude.k",    # the one text that knows which language it is in
                "include/weber/device.h")       # the backends' names are its vocabulary

MAX_LINES = 600
MAX_COLUMNS = 130
AIM_COLUMNS = 100                       # what is wider is counted, and --wide lists it; in PLAIN_ROOMS it is a finding
BANNED = re.compile(r"\b(fates?|tenants?|gifts?|sinks?|feeders?|pour(s|ed|ing)?|wish(ed|es)|stands?|stood|lies|"
                    r"wants?|wanted|says?|said|tells?|told|theirs)\b", re.I)
PLAIN_ROOMS = ("include/", "src/", "examples/", "bench/")   # folders that are held to BANNED and AIM_COLUMNS

RAW_MEMORY = re.compile(r"(?<![\w.>])(malloc|calloc|realloc|free|strdup|strndup|asprintf|aligned_alloc|posix_memalign)\s*\(")
MEMORY_ROOMS = ("src/base/alloc.c", "src/base/thread_text.c",
                "src/engine/object.c")  # a thread's own block, which must be there before the first error
EXITS = re.compile(r"(?<![\w.>])(exit|abort|_exit|quick_exit|assert)\s*\(")
PRINTS = re.compile(r"(?<![\w.>])(printf|puts|putchar|vprintf|perror)\s*\(")
PRINT_ROOMS = ("src/tree/show", "src/device/show")      # wb_show and its kin, which are asked
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
FAST_MATH = re.compile("-f" + "fast-math|-O" + "fast")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)

STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
PUBLIC = ["-Wconversion", "-Wshadow"]   # a program may ask for these beside


def without_comments(text):
    """The text with comments and string literals blanked, lines kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)


class Lint:
    def __init__(self, root):
        self.root = root
        self.found = []
        self.wide = []
        names = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                               capture_output=True, text=True, check=False).stdout.split("\n")
        if not any(names):
            names = [str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()]
        self.files = sorted(name for name in set(names) if name and (root / name).is_file())

    def report(self, path, line, rule, text):
        self.found.append(f"{path}:{line}: {rule}: {text}")

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def each_match(self, name, text, pattern):
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, match

    # ---- one file at a time ----

    def floors(self, name, text):
        parts = name.split("/")
        here = LEVEL.get(parts[1]) if parts[0] == "src" and len(parts) > 2 else None
        if parts[0] == "src" and len(parts) > 2 and here is None:
            self.report(name, 1, "floors", f"src/{parts[1]} is not on any floor")
            return
        if here is None:
            return
        for line, match in self.each_match(name, text, INCLUDE):
            target = match.group(1)
            if (self.root / name).parent.joinpath(target).is_file():
                continue
            floor = target.split("/")[0]
            if floor not in LEVEL or "/" not in target:
                continue
            if LEVEL[floor] > here:
                self.report(name, line, "floors", f"{parts[1]} includes {target}, which is above it")
            elif LEVEL[floor] == here and floor != parts[1]:
                self.report(name, line, "floors", f"{parts[1]} includes {target}, its neighbour")

    def vendors(self, name, text):
        if not name.startswith(("src/", "include/")) or name.startswith(VENDOR_ROOMS):
            return
        for line, match in self.each_match(name, text, VENDORS):
            self.report(name, line, "vendors", f"{match.group(0)} outside its own folder")

    def size(self, name, text):
        lines = text.split("\n")
        if len(lines) - 1 > MAX_LINES:
            self.report(name, len(lines) - 1, "size", f"{len(lines) - 1} lines; at most {MAX_LINES}")
        for number, line in enumerate(lines, 1):
            most = AIM_COLUMNS if name.startswith(PLAIN_ROOMS) else MAX_COLUMNS
            if len(line) > most:
                self.report(name, number, "size", f"{len(line)} columns; at most {most}")
            elif len(line) > AIM_COLUMNS:
                self.wide.append(f"{name}:{number}: {len(line)} columns")
            if line != line.rstrip():
                self.report(name, number, "size", "blanks at the end of the line")
            if "\t" in line:
                self.report(name, number, "size", "a tab")

    def words(self, name, text):
        if name.startswith(PLAIN_ROOMS):
            for comment in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.S):
                for word in BANNED.finditer(comment.group(0)):
                    line = text.count("\n", 0, comment.start() + word.start()) + 1
                    self.report(name, line, "words", f'"{word.group(0)}" in a comment')

    def memory(self, name, code):
        if name.startswith("src/") and name not in MEMORY_ROOMS:
            for line, match in self.each_match(name, code, RAW_MEMORY):
                self.report(name, line, "memory", f"{match.group(1)}() instead of wb__alloc and its kin")

    def calm(self, name, code):
        if name.startswith("src/") and not name.startswith("src/cli/"):
            for line, match in self.each_match(name, code, EXITS):
                self.report(name, line, "calm", f"{match.group(1)}() ends the program that called")
            for line, match in self.each_match(name, code, PRINTS) if not name.startswith(PRINT_ROOMS) else ():
                self.report(name, line, "calm", f"{match.group(1)}() prints without being asked")

    def one_file(self, name):
        text = self.read(name)
        in_code = name.endswith((".c", ".h", ".def", ".k", ".inc", ".cpp"))
        if in_code:
            code = without_comments(text)
            self.floors(name, text)
            self.vendors(name, text)
            self.size(name, text)
            self.words(name, text)
            self.memory(name, code)
            self.calm(name, code)
        if (in_code or name.endswith((".py", ".sh", ".txt", ".cmake", ".in")) or name in ("run", ".ci/run")) \
                and not name.startswith("tools/"):
            for line, match in self.each_match(name, text, UNFINISHED):
                self.report(name, line, "unfinished", match.group(0))
            for line, match in self.each_match(name, text, FAST_MATH):
                self.report(name, line, "flags", f"{match.group(0)} breaks NaN, infinities and GELU")

    # ---- with a compiler ----

    def headers(self):
        include = self.root / "include"
        for header in sorted(include.rglob("*.h")):
            name = header.relative_to(include).as_posix()
            languages = [("c", standard, ("gcc", "clang")) for standard in ("c11", "c17", "c2x")]
            if name == "weber/cxx.h":
                languages = []
            languages += [("c++", standard, ("g++", "clang++")) for standard in ("c++17", "c++20")]
            for language, standard, compilers in languages:
                for compiler in compilers:
                    if not which(compiler):
                        continue
                    run = subprocess.run(
                        [compiler, f"-std={standard}", *STRICT, *PUBLIC, f"-I{include}", "-x", language, "-"],
                        input=f'#include <{name}>\ntypedef int nothing;\n', capture_output=True, text=True, check=False)
                    if run.returncode:
                        first = next((x for x in run.stderr.splitlines() if "error" in x), "does not compile")
                        self.report(f"include/{name}", 1, "headers", f"{compiler} -std={standard}: {first}")

    def declared(self):
        """name -> (header, line, has a comment) of every function and object of the public headers"""
        names = {}
        for header in sorted((self.root / "include").rglob("*.h")):
            path = header.relative_to(self.root).as_posix()
            text = header.read_text()
            for match in re.finditer(r"^WB_API\b.*?(\w+)\s*(\(|;)", text, re.M):
                before = text[:match.start()].rstrip()
                documented = before.endswith("*/") and before[before.rindex("/*"):].startswith("/**")
                struct = re.search(r"/\*\*(?:(?!\*/).)*\*/\s*typedef struct \{[^{}]*\} \w+;$", before, re.S)
                names[match.group(1)] = (path, before.count("\n") + 2, documented or bool(struct))
        return names

    def languages(self):
        """Each macro of C that a program calls has a function, a template or a macro in C++ too."""
        folder = self.root / "include/weber"
        cxx = (folder / "cxx.h").read_text() if (folder / "cxx.h").exists() else ""
        for header in sorted(folder.glob("*.h")):
            text = header.read_text()
            for part in re.finditer(r"#ifndef __cplusplus\n(.*?)#endif", text, re.S):
                for macro in re.finditer(r"#define (wb_[A-Za-z]\w*)", part.group(1)):
                    name = macro.group(1)
                    if not re.search(rf"\b{name}\(|\({name}[,)]", cxx):
                        line = text.count("\n", 0, part.start(1) + macro.start()) + 1
                        self.report(header.relative_to(self.root), line, "languages", f"{name} is a macro of C alone")

    def symbols(self):
        names = self.declared()
        for name, (path, line, commented) in names.items():
            if not commented:
                self.report(path, line, "symbols", f"{name} has no /** comment */ directly above")
        built = [self.root / folder / "libweber.so" for folder in ("build", "build-test")]
        built = [path for path in built if path.exists()]
        if not built or not which("nm"):
            print("symbols: no libweber.so to look at; ./run build makes it")
            return
        library = max(built, key=lambda path: path.stat().st_mtime)
        table = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
        exported = {line.split()[-1].split("@")[0] for line in table.stdout.splitlines()}
        exported -= {"_init", "_fini", "__bss_start", "_edata", "_end"}
        for name in sorted(exported):
            if not re.match(r"(wb|WB)_(?!_)", name):
                self.report(library.relative_to(self.root), 0, "symbols", f"{name} is exported and is not wb_")
            elif name not in names:
                self.report(library.relative_to(self.root), 0, "symbols", f"{name} is exported and in no public header")
        for name, (path, line, _) in names.items():
            if name not in exported:
                self.report(path, line, "symbols", f"{name} is declared and nowhere defined")
        table = subprocess.run(["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True)
        for entry in table.stdout.splitlines():
            if re.match(r"wb_", entry.split()[-1]):
                self.report(library.relative_to(self.root), 0, "symbols", f"{entry.split()[-1]} is used and nowhere defined")

    def run(self, fast):
        for name in self.files:
            self.one_file(name)
        if not fast:
            self.headers()
            self.languages()
            self.symbols()
        return self.found


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    root = Path(arguments[0] if arguments else ".").resolve()
    lint = Lint(root)
    found = lint.run("--fast" in sys.argv)
    for line in found:
        print(line)
    if "--wide" in sys.argv:
        print("\n".join(lint.wide))
    print(f"lint: {len(lint.files)} files, {len(lint.wide)} lines over {AIM_COLUMNS} columns, "
          f"{len(found)} finding{'' if len(found) == 1 else 's'}")
    return 1 if found else 0


sys.exit(main())
