#!/usr/bin/env python3
"""Lint is tested by planting what it must find, one thing at a time, in a small project that is clean otherwise.

Prints a line a check, as cmocka does.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

LINT = Path(__file__).resolve().parent / "lint.py"
CLEAN = {
    "include/weber.h": "#ifndef W\n#define W\n/** one */\nint wb_one(void);\n#endif\n",
    "src/base/base.h": "void wb__free(void *p);\n",
    "src/base/alloc.c": '#include "base/base.h"\n#include <stdlib.h>\nvoid wb__free(void *p) { free(p); }\n',
    "src/engine/run.c": '#include "base/base.h"\nvoid wb__run(void *p) { wb__free(p); }    /* not free(p) */\n',
    "src/nn/dense.c": '#include "engine/run.h"\n',
    "src/cli/main.c": "int main(void) { exit(0); }\n",
    "CMakeLists.txt": "project(x)\n",
}
PLANTED = [     # what it is, the file, its text, the rule that must speak
    ("an include from above", "src/base/low.c", '#include "engine/tensor.h"\n', "floors"),
    ("an include of the floor beside", "src/nn/far.c", '#include "optim/rule.h"\n', "floors"),
    ("a folder on no floor", "src/attic/old.c", "int wb__old;\n", "floors"),
    ("a vendor's name in code", "src/engine/fast.c", "int wb__cuda_stream;\n", "vendors"),
    ("a vendor's name in a comment", "src/engine/fast.c", "/* as cuDNN does it */\n", "vendors"),
    ("601 lines", "src/engine/long.c", "int wb__x;\n" * 601, "size"),
    ("a line of 101 columns", "src/engine/wide.c", "/* " + "x" * 95 + " */\n", "size"),
    ("a line of 131 columns in a test", "tests/engine/wide.c", "/* " + "x" * 125 + " */\n", "size"),
    ("a line of 101 columns in a public header", "include/weber/wide.h", "/* " + "x" * 95 + " */\n", "size"),
    ("a word that is not the field's", "include/weber/odd.h", "/* the tenant of the arena */\n", "words"),
    ("a tab", "src/engine/tab.c", "\tint wb__x;\n", "size"),
    ("malloc", "src/engine/heap.c", "void *wb__p(void) { return malloc(4); }\n", "memory"),
    ("free", "src/data/heap.c", "void wb__p(void *p) { free(p); }\n", "memory"),
    ("exit", "src/io/stop.c", "void wb__stop(void) { exit(1); }\n", "calm"),
    ("printf", "src/io/talk.c", 'void wb__talk(void) { printf("x"); }\n', "calm"),
    ("a mark of unfinished work", "src/io/later.c", "/* TO" + "DO: this */\n", "unfinished"),
    ("unsafe arithmetic", "CMakeLists.txt", "add_compile_options(-f" + "fast-math)\n", "flags"),
    ("a header that needs another", "include/weber/bad.h", "/* x */\nsize_t wb_size_of(void);\n", "headers"),
    ("a macro of C that C++ lacks", "include/weber/two.h", "#ifndef __cplusplus\n#define wb_two(x) 2\n#endif\n",
     "languages"),
    ("a declaration without a comment", "include/weber/mute.h", "WB_API int wb_mute(void);\n", "symbols"),
]


def findings(files, fast):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        run = subprocess.run([sys.executable, str(LINT), folder, *(["--fast"] if fast else [])],
                             capture_output=True, text=True, check=False)
    return run.returncode, run.stdout


def main():
    status, said = findings(CLEAN, False)
    results = [("a clean project", status == 0, said)]
    for what, name, text, rule in PLANTED:
        status, said = findings({**CLEAN, name: text}, rule not in ("headers", "languages", "symbols"))
        here = [line for line in said.splitlines() if line.startswith(f"{name}:") and f": {rule}: " in line]
        results.append((what, status == 1 and bool(here), said))
    for what, good, said in results:
        if not good:
            print(said)
        print(f"[{'       OK' if good else '  FAILED '} ] {what}")
    return 0 if all(good for _, good, _ in results) else 1


sys.exit(main())
