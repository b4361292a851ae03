#!/usr/bin/env python3
"""Checks the rules of this project that a program can check.

    lint.py [ROOT] [--fast]

  floors      a file includes only files of its own floor or a lower one (docs/design.md)
  headers     each public header compiles alone, as C11, C17, C23, C++17 and C++20, with gcc and
              with clang
  vendors     a vendor's name occurs only in the files of VENDOR_FILES
  size        no C file has more than 600 lines; no line of C, Python, shell or CMake has more than
              100 columns, a tab, or blanks at its end
  words       no comment, and no docstring of Python, has a word of the list BANNED
  systems     only src/base/os* includes the headers of an operating system, and names its errors
  locks       locks, and functions that run once, are those of base/mutex.h, which fork knows
  memory      host memory comes from wb__alloc and the functions beside it
  statics     two sources of src/ do not define the same static name: function, variable, type,
              constant or macro; macros that the file undefines, and those in front of an include,
              which are its parameters, do not count
  edges       a public function that calls one with WB__EDGE, in whatever function of the library,
              has it too
  environment only environment.c reads variables, so that a program with more rights than its
              caller reads no path of it
  calm        the library never exits or aborts, and prints to standard output only on request
  flags       never -ffast-math
  tests       the tests, programs and examples that docs/guides.md names are there
  unfinished  no marks of unfinished work
  symbols     the library exports only names that begin with wb_, on ELF systems with the version
              of its soname; each public declaration is defined and has a /** comment */ directly
              above it
  languages   each macro of C has its form in C++
  names       each public name in README.md and docs/ is declared in a public header
  twins       no two public names differ only by case or underscores, except those of TWINS
  minimal     each name of cmocka in tests/ is defined in tests/minimal/cmocka.h, or by the tests

--fast skips the rules that need a compiler.  Prints one line for each finding,
"path:line: rule: text".  The exit status is 1 if there are findings, else 0.
"""
import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from shutil import which

from floors import LEVEL
from version import minor

VENDORS = re.compile(
    r"(?<![a-z])(cuda|cublas\w*|cudnn|nvrtc|nvidia|nccl|rccl|hip|hipblas\w*|hiprtc|miopen|rocm|"
    r"amdgpu|radeon|opencl|pocl|metal|mpi|openmpi|mpich)(?![a-z])"
    r"|wb_\w*(cuda|opencl|metal|hip|amdgpu)\w*",
    re.I)
VENDOR_FILES = (
    "src/backend/cuda/", "src/backend/amdgpu/", "src/backend/hip/", "src/backend/metal/",
    "src/backend/opencl/", "src/backend/nccl/", "src/dist/mpi", "src/dist/nccl", "src/dist/dist.h",
    "src/cli/ranks.c", "src/base/environment.c", "src/engine/public.def",
    "src/dist/place.",              # the variables that launchers set
    "src/device/registry",
    "src/backend/gpu/prelude.k",    # the only kernel texts that depend on the language
    "src/backend/gpu/kernels/fragments.k",
    # document the names of the backends
    "include/weber/device.h", "include/weber/distributed.h")

C_ENDINGS = (".c", ".h", ".def", ".k", ".inc", ".cpp")
SHELL_ENDINGS = (".sh", "/run", "CMakeLists.txt", ".cmake", ".cmake.in")    # comments begin with #
MAX_LINES = 600
MAX_COLUMNS = 100
# Tables that quote lines of C exactly: there only comments and docstrings are held to MAX_COLUMNS.
WIDE_TABLES = ("tests/traps.py",)
BANNED = re.compile(
    r"\b(fates?|tenants?|gifts?|sinks?|feeders?|pour(s|ed|ing)?|wish(ed|es)|stands?|stood|lies|"
    r"wants?|wanted|says?|said|tells?|told|theirs)\b", re.I)

RAW_MEMORY = re.compile(
    r"(?<![\w.>])(malloc|calloc|realloc|free|strdup|strndup|asprintf|aligned_alloc|posix_memalign)"
    r"\s*\(")
MEMORY_FILES = ("src/base/alloc.c", "src/base/thread_text.c",
                "src/engine/object.c")  # a thread's own block is needed before its first error
RAW_LOCKS = re.compile(
    r"\b(pthread_(mutex|rwlock|spin|once|atfork|cond_(timed|clock)?wait|barrier)\w*"
    r"|PTHREAD_(MUTEX|ONCE|RWLOCK)\w*|mtx_\w+|call_once"
    r"|wb__os_(mutex\w*|cond_wait\w*|at_fork)|WB__OS_MUTEX_INIT)\b")
SYSTEM_HEADER = re.compile(
    r"^\s*#\s*include\s+<((?:pthread|unistd|dlfcn|sched|fcntl|dirent|poll|netdb|signal|spawn|glob|"
    r"termios|pwd|time|link|windows|winsock2|(?:sys|net|netinet|arpa|mach|linux)/\w+)\.h)>", re.M)
ERROR_NUMBER = re.compile(r"\b(?:E(?:NOENT|EXIST|ISDIR|NOTDIR|IO|INTR|AGAIN|INVAL|ACCES|PIPE)|"
                          r"ETIMEDOUT|strerror)\b")
# libweber-mpi is a library of its own; a rank that forks has no ranks in its child.
LOCK_FILES = ("src/base/mutex.", "src/base/os", "src/dist/mpi/", "src/cli/")
# A rank that another one has left waiting ends its process, as MPI_Abort does; a new process ends
# if it cannot become the program.
END_FILES = ("src/backend/nccl/ranks.c", "src/base/os_posix_process.c")
READS_VARIABLE = re.compile(r"(?<![\w.>])((?:secure_)?getenv)\s*\(")
# libweber-mpi, which has no access to environment.c, reads numbers of launchers
ENVIRONMENT_FILES = ("src/base/environment.c", "src/dist/mpi/mpi.c")
EXITS = re.compile(r"(?<![\w.>])(exit|abort|_exit|quick_exit|assert)\s*\(")
PRINTS = re.compile(r"(?<![\w.>])(printf|puts|putchar|vprintf|perror)\s*\(")
# wb_show, wb_show_devices and wb_summary print
PRINT_FILES = ("src/tree/show", "src/device/show", "src/nn/summary")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
FAST_MATH = re.compile("-f" + "fast-math|-O" + "fast")
ERROR_LINE = re.compile(r"^#error .*", re.M)     # it may name what it refuses
# A function of C, in several lines or in one; its name is one of the two groups.
FUNCTION = re.compile(
    r"^(?![\s#}]|typedef|struct|enum)[^\n;{}=]*?\(?\b(\w+)\)?\([^;{}]*\)\s*\n?\{.*?^\}"
    r"|^(?![\s#}]|typedef)[^\n;{}=]*?\b(\w+)\([^;{}\n]*\) \{[^\n]*\}$", re.M | re.S)
# What a source defines for itself, at the begin of a line: a static function or variable, the name
# of a type behind its members or at the end of its line, a list of constants, a macro.
STATIC = re.compile(
    r"^(?:static|WB__INLINE)\b[^\n;={}]*?\b(?!struct\b|__att)(\w+)\s*(?=\((?!\*)|[\[;={])"
    r"|^(?:static|typedef)\b[^\n;]*?\(\*(?:const )?(\w+)|^typedef\b[^\n]*?\b(\w+);$"
    r"|^\} (\w+)(?=;$|\[| =)|^enum \w*\s*\{([^}]*)\}|^#define (\w+)", re.M)
# These only close, so that they throw nothing (weber/cxx.h).
NO_EDGES = ("wb_loader_stop",)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)

CMOCKA = re.compile(
    r"(?<![\w.>])(_?cmocka_\w+|assert_\w+|will_\w+|mock(?:_\w+)?|check_expected\w*|"
    r"expect_(?:any|check|function_call|in|memory|not|string|value)\w*|function_called|"
    r"test_[mc]alloc|fail(?:_msg)?|skip|v?print_(?:message|error|warning))\s*\(")

PUBLIC_NAME = re.compile(r"\b(?:wb|WB)_(?!_)\w*\w(?<!_)\b")

# A layer and the function of the same operation have one name, as in Flux and NNlib; a macro in
# capitals may be named after the type of the object that it makes.
TWINS = re.compile(
    r"wb_(Conv|ConvTranspose|Dropout|Flatten|MaxPool|MeanPool|Pool|PixelShuffle|Upsample)"
    r"(_with|_options)?$|WB_(INITIALIZER|INTS|LAYER)$")

# The last column of docs/guides.md is `program: test, test; program, program`.  A program of ctest
# may be NAME_nccl_2, made of NAME.c; its scripts are check_NAME.py, check_nccl.py and check.sh.
GUIDES = "docs/guides.md"
VARIANT = re.compile(r"_(nccl|rccl|openmpi|mpich|staged|\d+)$")
TEST_FILE = re.compile(r"tests/(?:.*/)?(?:check_)?(\w+)(?:/check\.sh|\.c|\.py)$")
IS_TEST = r'(?m)^TEST\w*\({0}\)|^(?:static )?(?:int|void) {0}\(void|"{0}"|^\s*check {0}\b'

STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
PUBLIC = ["-Wconversion", "-Wshadow"]   # further warnings that a program may enable


def without_comments(text):
    """The text with blanks for comments and literals; its line numbers do not change."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    comment_or_literal = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    return re.sub(comment_or_literal, blank, text, flags=re.S)


def c_comments(text):
    """(line, text) of each comment of C"""
    for match in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.S):
        yield text.count("\n", 0, match.start()) + 1, match.group(0)


def shell_comments(text):
    """(line, text) of each comment of a shell script or of CMake"""
    for number, line in enumerate(text.split("\n"), 1):
        match = re.search(r"(?:^|\s)#(?!!).*", line)
        if match:
            yield number, match.group(0)


def python_comments(text):
    """(line, text) of each comment and docstring of Python"""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            yield token.start[0], token.string
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines = text.split("\n")[docstring.lineno - 1:docstring.end_lineno]
            yield docstring.lineno, "\n".join(lines)


def comments_of(name, text):
    """A list of (line, text) of the comments of a file; None if comments of it are not checked."""
    if name.endswith(C_ENDINGS):
        return list(c_comments(text))
    if name.endswith(".py"):
        return list(python_comments(text))
    if f"/{name}".endswith(SHELL_ENDINGS):
        return list(shell_comments(text))
    return None


class Lint:
    def __init__(self, root):
        self.root = root
        self.found = []
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
                self.report(name, line, "floors",
                            f"{parts[1]} includes {target}, which is on a higher floor")
            elif LEVEL[floor] == here and floor != parts[1]:
                self.report(name, line, "floors",
                            f"{parts[1]} includes {target}, which is beside it on the same floor")

    def vendors(self, name, text):
        if not name.startswith(("src/", "include/")) or name.startswith(VENDOR_FILES):
            return
        for line, match in self.each_match(name, text, VENDORS):
            self.report(name, line, "vendors", f"{match.group(0)} outside of VENDOR_FILES")

    def size(self, name, text, comments):
        lines = text.split("\n")
        if name.endswith(C_ENDINGS) and len(lines) - 1 > MAX_LINES:
            self.report(name, len(lines) - 1, "size",
                        f"{len(lines) - 1} lines; at most {MAX_LINES}")
        checked = set(range(1, len(lines) + 1))
        if name in WIDE_TABLES:
            checked = {first + i for first, comment in comments
                       for i in range(comment.count("\n") + 1)}
        for number, line in enumerate(lines, 1):
            if number in checked and len(line) > MAX_COLUMNS:
                self.report(name, number, "size", f"{len(line)} columns; at most {MAX_COLUMNS}")
            if line != line.rstrip():
                self.report(name, number, "size", "blanks at the end of the line")
            if "\t" in line:
                self.report(name, number, "size", "a tab")

    def words(self, name, comments):
        for first, comment in comments:
            for word in BANNED.finditer(comment):
                line = first + comment.count("\n", 0, word.start())
                self.report(name, line, "words", f'"{word.group(0)}" in a comment')

    def memory(self, name, code):
        if name.startswith("src/") and name not in MEMORY_FILES:
            for line, match in self.each_match(name, code, RAW_MEMORY):
                self.report(name, line, "memory", f"{match.group(1)}() instead of wb__alloc")

    def environment(self, name, code):
        if name.startswith("src/") and name not in ENVIRONMENT_FILES:
            for line, match in self.each_match(name, code, READS_VARIABLE):
                self.report(name, line, "environment",
                            f"{match.group(1)}() instead of wb__environment_path or _text")

    def locks(self, name, code):
        if name.startswith("src/") and not name.startswith(LOCK_FILES):
            for line, match in self.each_match(name, code, RAW_LOCKS):
                self.report(name, line, "locks",
                            f"{match.group(1)}: fork does not know it; base/mutex.h has its form")

    def systems(self, name, code):
        if name.startswith("src/") and not name.startswith("src/base/os"):
            for line, match in self.each_match(name, code, SYSTEM_HEADER):
                self.report(name, line, "systems", f"<{match.group(1)}>: base/os.h has its form")
            for line, match in self.each_match(name, code, ERROR_NUMBER):
                self.report(name, line, "systems", f"{match.group(0)}: base/os.h has its form")

    def calm(self, name, code):
        if name.startswith("src/") and not name.startswith(("src/cli/", *END_FILES)):
            for line, match in self.each_match(name, code, EXITS):
                self.report(name, line, "calm", f"{match.group(1)}() ends the calling program")
        if name.startswith("src/") and not name.startswith(("src/cli/", *PRINT_FILES)):
            for line, match in self.each_match(name, code, PRINTS):
                self.report(name, line, "calm", f"{match.group(1)}() prints to standard output")

    def one_file(self, name):
        text = self.read(name)
        try:
            comments = comments_of(name, text)
        except (SyntaxError, tokenize.TokenError) as error:
            self.report(name, 1, "words", f"the comments cannot be read: {error}")
            comments = []
        if name.endswith(C_ENDINGS):
            code = without_comments(text)
            self.floors(name, text)
            self.vendors(name, text)
            self.memory(name, code)
            self.environment(name, code)
            self.systems(name, code)
            self.locks(name, code)
            self.calm(name, code)
        if comments is not None:
            self.size(name, text, comments)
            self.words(name, comments)
        checked = comments is not None or name.endswith((".txt", ".in"))
        if checked and not name.startswith("tools/"):
            for line, match in self.each_match(name, text, UNFINISHED):
                self.report(name, line, "unfinished", match.group(0))
            for line, match in self.each_match(name, ERROR_LINE.sub("", text), FAST_MATH):
                self.report(name, line, "flags",
                            f"{match.group(0)} breaks NaN, infinities and GELU")

    def names(self):
        """Public names in the pages for users.  A name that ends with _ is the begin of several."""
        headers = sorted((self.root / "include").rglob("*.h"))
        code = "".join(without_comments(header.read_text()) for header in headers)
        declared = {match.group(0) for match in PUBLIC_NAME.finditer(code)}
        # names of enumerations, WB_##NAME with the rows X(NAME, ...)
        declared |= {begin + row for begin in re.findall(r"\b((?:wb|WB)_\w*)##", code)
                     for row in re.findall(r"\bX\((\w+)", code)}
        for name in self.files:
            if name == "README.md" or re.match(r"docs/.*\.md$", name):
                for line, match in self.each_match(name, self.read(name), PUBLIC_NAME):
                    if match.group(0) not in declared:
                        self.report(name, line, "names",
                                    f"{match.group(0)} is in no public header")

    def twins(self):
        """Public names that differ only by case or underscores."""
        found = {}
        for path in sorted((self.root / "include").rglob("*.h")):
            name = path.relative_to(self.root).as_posix()
            for line, match in self.each_match(name, without_comments(path.read_text()),
                                               PUBLIC_NAME):
                key = match.group().lower().replace("_", "")
                found.setdefault(key, {}).setdefault(match.group(), (name, line))
        for names in found.values():
            if len(names) > 1 and not any(map(TWINS.match, names)):
                self.report(*max(names.values()), "twins", " and ".join(sorted(names)))

    def tests(self):
        """The tests that the last column of docs/guides.md names."""
        if GUIDES not in self.files:
            return
        files = {}
        for name in self.files:
            match = TEST_FILE.match(name)
            if match:
                files.setdefault(match.group(1), []).append(name)
        for line, text in enumerate(self.read(GUIDES).split("\n"), 1):
            cells = text.split(" | ")
            if re.match(r"\| [SD]\d", text) and len(cells) > 3:
                column = re.sub(r"\([^()]*\)|as [SD]\d+", "", cells[-1].strip(" |"))
                for part in filter(str.strip, column.split(";")):
                    self.named_tests(line, part.strip(), files)

    def named_tests(self, line, part, files):
        """`program: test, test`, `examples 07_gpu, 08_mlp` or "every test `*_x` of ctest"."""
        programs, _, tests = part.partition(":")
        text = ""
        for program in re.split(r",\s*", re.sub(r"^(examples? )", "", programs.strip())):
            if program.startswith("every test"):
                continue
            if programs.startswith("example"):
                if f"examples/{program}.c" not in self.files:
                    self.report(GUIDES, line, "tests", f"there is no examples/{program}.c")
                continue
            names, of_ctest = [], program
            while program not in files and VARIANT.search(program):
                names += VARIANT.findall(program)
                program = VARIANT.sub("", program)
            if program not in files:
                self.report(GUIDES, line, "tests", f"no program of tests/ is named {of_ctest}")
            text += "".join(self.read(x) for name in [program, *names] for x in files.get(name, ()))
        for test in filter(None, (x.strip() for x in tests.split(","))):
            if test != "all" and not re.search(IS_TEST.format(re.escape(test)), text):
                self.report(GUIDES, line, "tests", f"{programs} has no test {test}")

    def statics(self):
        """Static names that two sources, or a source and a header, define."""
        files = [name for name in self.files if re.match(r"src/(?!cli/new/).*\.[ch]$", name)]
        code = {name: without_comments(self.read(name)) for name in files}
        plain = {name for name in self.files if name.startswith("src/") and
                 not re.search(r"^#ifndef \w+_H$", code.get(name, ""), re.M)}
        owners = {}
        for name in files:
            if name in plain and name.endswith(".h"):
                continue
            given = set(re.findall(r"^#undef (\w+)", code[name], re.M))
            for _, match in self.each_match(name, self.read(name), INCLUDE):
                if f"src/{match.group(1)}" in plain:
                    given |= set(re.findall(r"\w+", self.read(f"src/{match.group(1)}")))
            for line, match in self.each_match(name, code[name], STATIC):
                words = re.findall(r"(?:^|,)\s*(\w+)", match.group(match.lastindex))
                for word in words if not words[0].startswith("wb__") else ():
                    other = name if word in given else owners.setdefault(word, name)
                    if other != name and not (name + other).count(".h") > 1:
                        self.report(name, line, "statics", f"{other} also defines {word}")

    def edges(self):
        """Public functions without WB__EDGE from which one with it can be reached."""
        bodies = {}                     # by file and name; those of the library also by "" and name
        for name in self.files:
            if not re.match(r"src/.*\.c$", name):
                continue
            code = without_comments(self.read(name))
            for line, match in self.each_match(name, code, FUNCTION):
                function = match.group(1) or match.group(2)
                place = (name, line, set(re.findall(r"\w+", match.group(0))))
                bodies[name, function] = place
                if function.startswith("wb__"):
                    bodies["", function] = place
        public = {at: place for at, place in bodies.items() if re.match(r"wb_(?!_)", at[1])}
        edges = {at[1] for at, place in public.items() if {"WB__EDGE", "WB__PUBLIC"} & place[2]}
        for (name, function), place in public.items():
            seen, todo = set(), [] if function in edges | set(NO_EDGES) else [place]
            reached = set()
            while todo:
                path, line, words = todo.pop()
                if (path, line) in seen:
                    continue
                seen.add((path, line))
                reached |= words & edges
                todo += [bodies.get((path, word)) or bodies["", word] for word in words - edges
                         if ((path, word) in bodies and (path, word) not in public)
                         or ("", word) in bodies]
            if reached:
                self.report(name, place[1], "edges",
                            f"{function} has no WB__EDGE and calls {', '.join(sorted(reached))}")

    # ---- with a compiler ----

    def minimal(self):
        """Machines without cmocka build the tests with tests/minimal/cmocka.h in its place."""
        header = "tests/minimal/cmocka.h"
        if header not in self.files:
            return
        codes = {name: without_comments(self.read(name)) for name in self.files
                 if name.startswith("tests/") and name.endswith((".c", ".h"))}
        defined = set()
        for code in codes.values():
            defined |= set(re.findall(r"^\s*#\s*define\s+(\w+)", code, re.M))
            defined |= set(re.findall(r"^[A-Za-z_][\w \t*]*?(\w+)\(", code, re.M))
        for name, code in codes.items():
            for line, match in self.each_match(name, code, CMOCKA):
                if match.group(1) not in defined:
                    self.report(name, line, "minimal", f"{match.group(1)} is not in {header}")

    def headers(self):
        include = self.root / "include"
        for header in sorted(include.rglob("*.h")):
            name = header.relative_to(include).as_posix()
            languages = [("c", standard, ("gcc", "clang")) for standard in ("c11", "c17", "c2x")]
            if name.startswith("weber/cxx"):
                languages = []
            languages += [("c++", standard, ("g++", "clang++")) for standard in ("c++17", "c++20")]
            for language, standard, compilers in languages:
                for compiler in compilers:
                    if not which(compiler):
                        continue
                    run = subprocess.run(
                        [compiler, f"-std={standard}", *STRICT, *PUBLIC, f"-I{include}",
                         "-x", language, "-"],
                        input=f'#include <{name}>\ntypedef int nothing;\n',
                        capture_output=True, text=True, check=False)
                    if run.returncode:
                        first = next((x for x in run.stderr.splitlines() if "error" in x),
                                     "does not compile")
                        self.report(f"include/{name}", 1, "headers",
                                    f"{compiler} -std={standard}: {first}")

    def declared(self):
        """{name: (header, line, whether it has a comment)} of the public functions and objects"""
        names = {}
        for header in sorted((self.root / "include").rglob("*.h")):
            path = header.relative_to(self.root).as_posix()
            text = header.read_text()
            for match in re.finditer(r"^WB_API\b.*?(\w+)\s*(\(|;)", text, re.M):
                before = text[:match.start()].rstrip()
                documented = (before.endswith("*/")
                              and before[before.rindex("/*"):].startswith("/**"))
                struct = re.search(
                    r"/\*\*(?:(?!\*/).)*\*/\s*typedef struct \{[^{}]*\} \w+;$", before, re.S)
                names[match.group(1)] = (path, before.count("\n") + 2, documented or bool(struct))
        return names

    def languages(self):
        """Each public macro that only C sees has a function, a template or a macro for C++ too."""
        folder = self.root / "include/weber"
        cxx = "".join(path.read_text() for path in sorted(folder.glob("cxx*.h")))
        # cxx_train.h makes the forms of the rules from the same list as train.h
        if "WB_RULES_(WB_RULE_)" in cxx:
            rules = re.search(r"#define WB_RULES_\(X\)(.*?)\n\n",
                              (folder / "train.h").read_text(), re.S)
            cxx += "".join(f"wb_{name}(" for name in re.findall(r"X\((\w+),", rules.group(1)))
        for header in sorted(folder.glob("*.h")):
            text = header.read_text()
            for part in re.finditer(r"#ifndef __cplusplus\n(.*?)#endif", text, re.S):
                for macro in re.finditer(r"#define (wb_[A-Za-z]\w*)", part.group(1)):
                    name = macro.group(1)
                    if not re.search(rf"\b{name}\(|\({name}[,)]", cxx):
                        line = text.count("\n", 0, part.start(1) + macro.start()) + 1
                        self.report(header.relative_to(self.root), line, "languages",
                                    f"{name} has no form in C++")

    def symbols(self):
        names = self.declared()
        for name, (path, line, commented) in names.items():
            if not commented:
                self.report(path, line, "symbols", f"{name} has no /** comment */ directly above")
        built = [self.root / folder / "libweber.so" for folder in ("build", "build-test")]
        built = [path for path in built if path.exists()]
        if not built or not which("nm"):
            print("symbols: skipped: no libweber.so was found; ./run build makes one")
            return
        library = max(built, key=lambda path: path.stat().st_mtime)
        at = library.relative_to(self.root)

        def listed(which_symbols):
            table = subprocess.run(["nm", "-D", which_symbols, str(library)],
                                   capture_output=True, text=True, check=True)
            return [line.split()[-1] for line in table.stdout.splitlines()]

        version = minor(self.root)
        exported = set()
        for symbol in listed("--defined-only"):
            name, _, node = symbol.partition("@@")
            if name not in {"_init", "_fini", "__bss_start", "_edata", "_end", f"WEBER_{version}"}:
                exported.add(name)
                if sys.platform == "linux" and node != f"WEBER_{version}":
                    self.report(at, 0, "symbols",
                                f"{symbol} has not the version WEBER_{version}")
        for name in sorted(exported):
            if not re.match(r"(wb|WB)_(?!_)", name):
                self.report(at, 0, "symbols", f"{name} is exported and does not begin with wb_")
            elif name not in names:
                self.report(at, 0, "symbols", f"{name} is exported and in no public header")
        for name, (path, line, _) in names.items():
            # libweber-mpi has this one
            if name not in exported and name != "wb_distributed_mpi":
                self.report(path, line, "symbols", f"{name} is declared and not defined")
        for name in listed("--undefined-only"):
            if re.match(r"wb_", name):
                self.report(at, 0, "symbols", f"{name} is used and not defined")

    def run(self, fast):
        self.tests()
        for name in self.files:
            self.one_file(name)
        self.names()
        self.twins()
        self.edges()
        self.statics()
        self.minimal()
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
    print(f"lint: {len(lint.files)} files, {len(found)} finding{'' if len(found) == 1 else 's'}")
    return 1 if found else 0


sys.exit(main())
