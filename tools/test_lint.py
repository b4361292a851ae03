#!/usr/bin/env python3
"""Tests lint.py: plants one fault at a time in a small project that is clean otherwise.

lint.py must report each fault by its rule.  Prints one line for each check, as cmocka does.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

LINT = Path(__file__).resolve().parent / "lint.py"
CLEAN = {
    "include/weber.h": "#ifndef W\n#define W\n/** one */\nint wb_one(void);\n#endif\n",
    "src/base/base.h": "void wb__free(void *p);\n",
    "src/base/alloc.c": '#include "base/base.h"\n#include <stdlib.h>\n'
                        'void wb__free(void *p) { free(p); }\n',
    "src/engine/run.c": '#include "base/base.h"\n'
                        'void wb__run(void *p) { wb__free(p); }    /* not free(p) */\n',
    "src/nn/dense.c": '#include "engine/run.h"\n'
                      "enum { LEAST = 2, MOST };\n#define TWICE(x) 2 * (x)\ntypedef int pair;\n"
                      "static const int *const table[2];\nstatic int find(void)\n{\n}\n"
                      "typedef struct {\n    int n;\n} list;\n",
    # names that the file undefines, gives to an included text, has in a function, or shares
    "src/nn/rows.def": "LEAST(MOST)\n",
    "src/nn/norm.c": '#define TWICE(x) x\n#undef TWICE\n#define LEAST(x) x\n'
                     '#include "nn/rows.def"\n'
                     "int wb__n(int find)\n{\n    static int table;\n    return find;\n}\n",
    "src/cli/main.c": "int main(void) { exit(0); }\n",
    "CMakeLists.txt": "project(x)\n",
    # banned words outside of comments and docstrings
    "tools/words.py": '"""A script."""\nname = "tenant"      # a name\n'
                      'print("# the tenant", name)\n',
    "tests/minimal/cmocka.h": "#define assert_true(c) minimal_true(c)\n"
                              "void minimal_true(int c);\n",
    "tests/base/own.c": '#include <cmocka.h>\nstatic void assert_own(int x)\n{\n'
                        '    assert_true(x);\n}\n',
    "run": "#!/bin/sh\necho tenant     # a name\n",
    "tests/traps.py": '"""Quotes lines."""\nTABLE = ["' + "x" * 120 + '"]\n',
    "docs/guides.md": "| row | behaviour | function | test |\n| --- | --- | --- | --- |\n"
                      "| S1 | moves | `f` | moves: there, back (twice); ends_nccl_2: no device |\n"
                      "| S2 | learns | `g` | example 01_gpu; moves; every test `*_gpu` of ctest |\n"
                      "| S3 | prints | `h` | install: prints; as S1 |\n",
    "tests/device/moves.c": "TEST(there)\n{\n}\nstatic void back(void)\n{\n}\n",
    "tests/dist/ends.c": "int x;\n",
    "tests/dist/check_nccl.py": 'check("no device")\n',
    "tests/install/check.sh": "check prints true\n",
    "examples/01_gpu.c": "int x;\n",
    # at most 100 columns
    "tests/base/wide.c": "/* " + "x" * 94 + " */\n",
    "tools/wide.py": "# " + "x" * 98 + "\n",
}
PLANTED = [     # the fault, the file, its text, the rule that must report it
    ("an include from above", "src/base/low.c", '#include "engine/tensor.h"\n', "floors"),
    ("an include of the floor beside", "src/nn/far.c", '#include "optim/rule.h"\n', "floors"),
    ("a folder on no floor", "src/attic/old.c", "int wb__old;\n", "floors"),
    ("a vendor's name in code", "src/engine/fast.c", "int wb__cuda_stream;\n", "vendors"),
    ("a vendor's name in a comment", "src/engine/fast.c", "/* as cuDNN does it */\n", "vendors"),
    ("601 lines", "src/engine/long.c", "int wb__x;\n" * 601, "size"),
    ("a line of 101 columns", "src/engine/wide.c", "/* " + "x" * 95 + " */\n", "size"),
    ("a line of 101 columns in a test", "tests/base/wide.c", "/* " + "x" * 95 + " */\n", "size"),
    ("a line of 101 columns in a public header", "include/weber/wide.h",
     "/* " + "x" * 95 + " */\n", "size"),
    ("a line of 101 columns in C++", "tests/consumer/wide.cpp", "// " + "x" * 98 + "\n", "size"),
    ("a line of 101 columns in Python", "tools/wide.py", "# " + "x" * 99 + "\n", "size"),
    ("a line of 101 columns in a script", "tests/wide.sh", "# " + "x" * 99 + "\n", "size"),
    ("a line of 101 columns in ./run", "run", "# " + "x" * 99 + "\n", "size"),
    ("a line of 101 columns in CMake", "tests/CMakeLists.txt", "# " + "x" * 99 + "\n", "size"),
    ("a comment of 101 columns beside a table", "tests/traps.py",
     "# " + "x" * 99 + "\nTABLE = []\n", "size"),
    ("a docstring of 101 columns beside a table", "tests/traps.py",
     '"""' + "x" * 95 + '"""\nTABLE = []\n', "size"),
    ("blanks at the end of a line", "src/engine/blank.c", "int wb__x; \n", "size"),
    ("blanks at the end of a line of Python", "tools/blank.py", "x = 1 \n", "size"),
    ("a banned word in a header", "include/weber/odd.h", "/* a tenant of the arena */\n", "words"),
    ("a banned word in a test", "tests/base/odd.c", "int x;    // what it says\n", "words"),
    ("a banned word in a comment of Python", "tools/odd.py", "x = 1     # the tenant\n", "words"),
    ("a banned word in a docstring of a file", "tools/odd.py",
     '"""The arena.\n\nIts tenants.\n"""\n', "words"),
    ("a banned word in a docstring of a function", "tools/odd.py",
     'class A:\n    def f(self):\n        """The tenant."""\n', "words"),
    ("a banned word in a comment of a script", "tests/odd.sh", "true    # the tenant\n", "words"),
    ("a banned word in a comment of ./run", "run", "# the tenant\n", "words"),
    ("a banned word in a comment of .ci/run", ".ci/run", "# the tenant\n", "words"),
    ("a banned word in a comment of CMake", "cmake/odd.cmake", "# the tenant\n", "words"),
    ("Python that cannot be parsed", "tools/odd.py", "x = (\n", "words"),
    ("a tab", "src/engine/tab.c", "\tint wb__x;\n", "size"),
    ("a tab in a script", "tests/tab.sh", "\ttrue\n", "size"),
    ("malloc", "src/engine/heap.c", "void *wb__p(void) { return malloc(4); }\n", "memory"),
    ("free", "src/data/heap.c", "void wb__p(void *p) { free(p); }\n", "memory"),
    *((f"a {what} of another source", "src/nn/other.c", text, "statics") for what, text in (
        ("function", "static inline void find(int x) { }\n"), ("type", "} list;\n"),
        ("type without members", "typedef float pair;\n"), ("macro", "#define TWICE 2\n"),
        ("variable", "static char table[] = {0};\n"),
        ("constant", "enum {\n    A,\n    MOST\n};\n"),
        ("pointer to a function", "static int (*find)(void);\n"))),
    ("a static function that a header defines too", "src/nn/norm.h",
     "#ifndef NORM_H\n#define NORM_H\nstatic int find(void);\n#endif\n", "statics"),
    ("an edge that is none", "src/nn/edge.c",
     "int wb_two(void)\n{\n    return wb__two();\n}\n"
     "int wb__two(void)\n{\n    return wb_three();\n}\n"
     "int wb_three(void)\n{\n    WB__EDGE;\n    return 3;\n}\n", "edges"),
    ("getenv", "src/io/home.c", 'const char *wb__p(void) { return getenv("HOME"); }\n',
     "environment"),
    ("secure_getenv", "src/io/home.c", 'int wb__p(void) { return !secure_getenv("HOME"); }\n',
     "environment"),
    ("a lock that fork does not know", "src/engine/lock.c", "static pthread_mutex_t lock;\n",
     "locks"),
    ("a lock of base/os.h", "src/engine/lock.c", "static wb__os_mutex lock;\n", "locks"),
    ("a header of the system", "src/engine/wait.c", "#include <sys/wait.h>\n", "systems"),
    ("a number of an error", "src/io/wait.c", "enum { GONE = ENOENT };\n", "systems"),
    ("the header of threads in a header", "src/io/wait.h", "# include <pthread.h>\n", "systems"),
    ("a function that runs once, which fork does not know", "src/engine/once.c",
     "void wb__f(void) { pthread_once(&once, f); }\n", "locks"),
    ("exit", "src/io/stop.c", "void wb__stop(void) { exit(1); }\n", "calm"),
    ("printf", "src/io/talk.c", 'void wb__talk(void) { printf("x"); }\n', "calm"),
    ("a mark of unfinished work", "src/io/later.c", "/* TO" + "DO: this */\n", "unfinished"),
    ("names that differ by case", "include/weber/one.h", "int wb_ONE(void);\n", "twins"),
    ("a name of a page that no header declares", "docs/odd.md", "`wb_odd(x)` is even.\n", "names"),
    ("a name of README.md that only a comment of a header has", "README.md",
     "`wb_other` is one.\n", "names"),
    *((f"guides that name {what}", "docs/guides.md", f"| S1 | x | `f` | {column} |\n", "tests")
      for what, column in (
          ("a test that is gone", "moves: there, forth"),
          ("a program that is gone", "moved: there"),
          ("a check that is gone", "ends_nccl: two devices"),
          ("a line of a script that is gone", "install: shows"),
          ("an example that is gone", "examples 01_gpu, 02_gpu"),
          ("a test of another program", "ends: there"))),
    ("unsafe arithmetic", "CMakeLists.txt", "add_compile_options(-f" + "fast-math)\n", "flags"),
    ("a header that needs another", "include/weber/bad.h",
     "/* x */\nsize_t wb_size_of(void);\n", "headers"),
    ("a macro of C without a form in C++", "include/weber/two.h",
     "#ifndef __cplusplus\n#define wb_two(x) 2\n#endif\n", "languages"),
    ("a name of cmocka that tests/minimal lacks", "tests/base/fewer.c",
     "void t(void) { cmocka_unit_test_prestate(t, 0); }\n", "minimal"),
    ("a declaration without a comment", "include/weber/mute.h",
     "WB_API int wb_mute(void);\n", "symbols"),
]


def findings(files, fast):
    """The exit status of lint.py and its output, on a project of these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        run = subprocess.run([sys.executable, str(LINT), folder, *(["--fast"] if fast else [])],
                             capture_output=True, text=True, check=False)
    return run.returncode, run.stdout


def main():
    status, output = findings(CLEAN, False)
    results = [("a clean project", status == 0, output)]
    for fault, name, text, rule in PLANTED:
        fast = rule not in ("headers", "languages", "symbols")
        status, output = findings({**CLEAN, name: text}, fast)
        reported = [line for line in output.splitlines()
                    if line.startswith(f"{name}:") and f": {rule}: " in line]
        results.append((fault, status == 1 and len(reported) > 0, output))
    for check, good, output in results:
        if not good:
            print(output)
        print(f"[{'       OK' if good else '  FAILED '} ] {check}")
    return 0 if all(good for _, good, _ in results) else 1


sys.exit(main())
