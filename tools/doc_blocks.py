#!/usr/bin/env python3
"""Compiles and runs the blocks of C in pages of the site, and compares what they print.

    doc_blocks.py LIBRARY [PAGE.md...]

LIBRARY is libweber.so.  The pages are those of docs/site by default, with docs/site/examples.c.
The blocks of a page are one program: blocks with functions, types or directives are at file scope,
the others follow each other in main and share variables.  A block with a main is a program by
itself, which runs after them, in the same folder.  A block ```output behind a block of C is what
that block prints; "..." in it means any text.  An error of the library that is left at the end of a
block is a failure, unless the block calls wb_error, or the library was built without a library of
files.

The blocks of README.md and docs/*.md are parts of programs: each is compiled by itself, with the
declarations of CONTEXT, and not run.  tests/errors.py runs those of docs/errors.md.

Comments of a page that begin with <!--c or <!--python are blocks that the reader does not see.  On
a page with <!--separate--> each block of main has a scope of its own; hidden blocks have none.
Blocks of Python are run, as one program, if WEBER_TEST_PYTHON has torch, which most pages import,
or NumPy.  They can import examples/python/weber.py.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import docs

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$|^<!--(c|python)\n(.*?)^-->$", re.M | re.S)
FILE_SCOPE = re.compile(r"(static|typedef|struct \w+ \{|enum|#|WB_LAYER|WB_FUNCTOR|WB_INITIALIZER)")
FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable",
         "-Wno-unused-but-set-variable", "-Wno-unused-function", "-Wno-unused-parameter"]
HEAD = """#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weber.h>
__attribute__((unused)) static void page_end(const char *place, int errors_are_shown)
{
    fflush(stdout);
    if (wb_error_code() == WB_ERROR_UNSUPPORTED)        /* a build without a library of files */
        fprintf(stderr, "%s: %s\\n", place, wb_error());
    else if (wb_error_code() && !errors_are_shown) {
        fprintf(stderr, "%s: %s\\n", place, wb_error());
        exit(1);
    }
    wb_clear_error();
    printf("\\x1e");
}
"""

# Declarations for the blocks of README.md and docs/*.md.
CONTEXT = """
static wb_tensor *x, *w, *b, *ids;
static wb_layer *model;
static wb_opt_state *state;
static wb_loader *loader;
static wb_dataset *data;
static const char *texts[8];
static int n;
static wb_tensor *loss(wb_layer *of, wb_batch batch, void *ctx)
{
    return wb_mse(wb_call(of, batch.x), batch.y);
}
"""
CONTEXTS = {"onnx.md": "static wb_layer *lenet;\n",
            "distributed.md": "static wb_layer *lenet(void) { return model; }\n"}


class Block:
    def __init__(self, language, text, line, hidden):
        self.language, self.text, self.line, self.hidden = language, text, line, hidden
        self.expected = None


def blocks(page):
    found = []
    text = page.read_text()
    for match in BLOCK.finditer(text):
        hidden = bool(match.group(3))
        language = match.group(3) or match.group(1)
        body = match.group(4) if hidden else match.group(2)
        line = text.count("\n", 0, match.start()) + 2
        if language == "output":
            found[-1].expected = body
        else:
            found.append(Block(language, body, line, hidden))
    return found, "<!--separate-->" in text


def program(page, parts, separate):
    """(text, blocks in main) of the program of a page's blocks."""
    name = page.name
    top, main = [HEAD], ["int main(void)\n{"]
    shown = []
    for block in parts:
        at = f'#line {block.line} "{name}"\n'
        if FILE_SCOPE.match(block.text):
            top.append(at + block.text)
            continue
        scoped = separate and not block.hidden
        main.append(("{\n" if scoped else "") + at + block.text)
        handles = int("wb_error" in block.text)
        main.append(f'page_end("{name}:{block.line}", {handles});' + ("\n}" if scoped else ""))
        shown.append(block)
    main.append("return 0;\n}\n")
    return "\n".join(top) + "\n" + "\n".join(main), shown


def compare(page, block, printed):
    expected = [re.escape(line.rstrip()).replace(r"\.\.\.", ".*")
                for line in (block.expected or "").rstrip("\n").split("\n")]
    lines = [line.rstrip() for line in printed.rstrip("\n").split("\n")]
    if block.expected is None:
        return True
    if len(expected) == len(lines) and all(map(re.fullmatch, expected, lines)):
        return True
    print(f"{page.name}:{block.line}: the block prints\n{printed}\nand the page has\n"
          f"{block.expected}")
    return False


def run(text, library, folder, name):
    """The standard output of a program in C; None if it does not compile or fails."""
    source, binary = folder / f"{name}.c", folder / name
    source.write_text(text)
    compiler = os.environ.get("CC", "cc")
    command = [compiler, *FLAGS, f"-I{ROOT}/include", str(source), "-o", str(binary),
               str(library), f"-Wl,-rpath,{library.parent}", "-lm"]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if compiled.returncode:
        print(compiled.stderr[:3000])
        return None
    ran = subprocess.run([str(binary)], capture_output=True, text=True, check=False, cwd=folder,
                         timeout=120)
    if ran.returncode:
        print(f"{name}: exit status {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        return None
    return ran.stdout


def compile_all(page, folder):
    """(whether each block of C of a page compiles, their number)"""
    parts = re.split(r"(?ms)^(```.*?^```$)", page.read_text())
    text = "".join(x if i % 2 else docs.fenced_all(x) for i, x in enumerate(parts))
    ok, count = True, 0
    for match in BLOCK.finditer(text):
        if match.group(1) != "c":
            continue
        block = match.group(2)
        count += 1
        if "#include" in block:
            whole = block
        elif FILE_SCOPE.match(block):
            whole = HEAD + CONTEXT + CONTEXTS.get(page.name, "") + block
        else:
            whole = HEAD + CONTEXT + CONTEXTS.get(page.name, "") + \
                f"int f(void)\n{{\n{block}\nreturn 0;\n}}\n"
        source = folder / "part.c"
        source.write_text(whole)
        command = [os.environ.get("CC", "cc"), *FLAGS, f"-I{ROOT}/include", "-fsyntax-only",
                   str(source)]
        compiled = subprocess.run(command, capture_output=True, text=True, check=False)
        if compiled.returncode:
            print(f"{page.name}: a block does not compile\n{block}\n{compiled.stderr[:2000]}")
            ok = False
    return ok, count


def can_run(python, rows):
    """Whether a Python, which may be None, has the package that blocks import."""
    package = "torch" if re.search(r"^import torch", rows, re.M) else "numpy"
    return bool(python) and subprocess.run([python, "-c", f"import {package}"], check=False,
                                           capture_output=True).returncode == 0


def check(page, library, python, folder):
    parts, separate = blocks(page)
    name = page.stem
    ok, count = True, 0
    rest = [x for x in parts if x.language == "c" and "int main(" not in x.text]
    if rest:
        text, shown = program(page, rest, separate)
        printed = run(text, library, folder, name)
        if printed is None:
            return False, count
        for block, output in zip(shown, printed.split("\x1e")):
            ok = compare(page, block, output) and ok
        count += len(rest)
    for i, block in enumerate(x for x in parts if x.language == "c" and "int main(" in x.text):
        printed = run(block.text, library, folder, f"{name}_{i}")
        ok = printed is not None and compare(page, block, printed) and ok
        count += 1
    rows = "\n".join(x.text for x in parts if x.language == "python")
    if rows and can_run(python, rows):
        ran = subprocess.run([python, "-c", rows], capture_output=True, text=True, check=False,
                             cwd=folder, env={**os.environ, "WEBER_LIBRARY": str(library),
                                              "WEBER_INCLUDE": f"{ROOT}/include",
                                              "PYTHONPATH": f"{ROOT}/examples/python"})
        if ran.returncode:
            print(f"{page.name}: the blocks of Python fail\n{ran.stderr[-2000:]}")
            ok = False
    return ok, count


def main():
    arguments = sys.argv[1:]
    python = os.environ.get("WEBER_TEST_PYTHON")
    if not arguments:
        sys.exit(__doc__)
    library = Path(arguments[0]).resolve()
    pages = [Path(x) for x in arguments[1:]] or [*sorted((ROOT / "docs/site").rglob("*.md")),
                                                 ROOT / "examples/python/README.md"]
    ok, total = True, 0
    with tempfile.TemporaryDirectory() as folder:
        if not arguments[1:]:
            ok = run((ROOT / "docs/site/examples.c").read_text(), library, Path(folder),
                     "examples") is not None
            for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
                if page.name == "errors.md":
                    continue                                    # tests/errors.py runs its blocks
                good, count = compile_all(page, Path(folder))
                print(f"{page.name}: {count} blocks of C compile{'' if good else ': FAILED'}")
                ok, total = ok and good, total + count
        for page in pages:
            good, count = check(page, library, python, Path(folder))
            print(f"{page.name}: {count} blocks of C{'' if good else ': FAILED'}")
            ok, total = ok and good, total + count
    print(f"{total} blocks of C in {len(pages)} pages; Python "
          f"{'of ' + python if python else 'not run: no WEBER_TEST_PYTHON'}")
    return 0 if ok and total else 1


sys.exit(main())
