#!/usr/bin/env python3
"""Tests abi.py: changes the headers in a copy of them, one change at a time.

abi.py must report each change by which a program could fail, and must pass the others.  Prints one
line for each check, as cmocka does.  Exit status 77: there is no abidw.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which

ROOT = Path(__file__).resolve().parent.parent
DENSE = r"(#define wb_Dense_options_\(OPT, ARG\).*?)"
# The change; the header; a regular expression; its replacement; a word of the report, or "" if the
# change is compatible.
CHANGES = [
    ("a function is gone", "base.h", r"^WB_API int wb_threads\(void\);", "", "wb_threads"),
    ("an object is gone", "base.h", r"^WB_API extern wb_tensor \*const WB_NONE;", "", "WB_NONE"),
    ("a parameter has another type", "base.h", r"wb_set_threads\(int n\)",
     "wb_set_threads(long n)", "wb_set_threads"),
    ("a result has another type", "base.h", r"^WB_API int64_t wb_memory_used",
     "WB_API int wb_memory_used", "wb_memory_used"),
    ("a field in the middle of options", "layers.h", DENSE + r"(    OPT\(wb_dtype, dtype)",
     r"\1    OPT(int64_t, more_, 0) \\\n\2", "more_"),
    ("a small field in the middle of options", "layers.h", DENSE + r"(    OPT\(wb_dtype, dtype)",
     r"\1    OPT(int, more_, 0) \\\n\2", "more_"),
    ("a field before those by place", "layers.h", DENSE + r"(    ARG\(int64_t, in)",
     r"\1    ARG(int64_t, more_, 0) \\\n\2", "more_"),
    ("a field at the end of options and one in the middle", "layers.h",
     DENSE + r"(    ARG\(int64_t, in.*?)(\nWB_OPTIONS)",
     r"\1    OPT(int64_t, a_, 0) \\\n\2 \\\n    ARG(int64_t, b_, 0)\3", "a_"),
    ("a field at the end of options and two in another order", "layers.h",
     DENSE + r"ARG\(int64_t, in,([^A]*)ARG\(int64_t, out,(.*?)(\nWB_OPTIONS)",
     r"\1ARG(int64_t, out,\2ARG(int64_t, in,\3 \\\n    ARG(int64_t, b_, 0)\4", "wb_Dense_options"),
    ("a small field at the end of options, which they have as padding", "device.h",
     r"(\nWB_OPTIONS\(wb_get_device_options\))", r" \\\n    ARG(bool, more_, false)\1", "more_"),
    ("the last field of options is gone", "layers.h",
     DENSE + r" *\\\n    ARG\(wb_function, activation, NULL\)", r"\1", "activation"),
    ("a field of options has another type", "layers.h", DENSE + "wb_dtype, dtype",
     r"\1int64_t, dtype", "dtype"),
    ("a field at the end of a struct that is passed by value", "data.h", r"^\} wb_batch;",
     "int64_t more_;\n} wb_batch;", "more_"),
    ("an enumerator in the middle", "base.h", r"^    X\(I32,",
     r'    X(XX, int8_t, 1, 0, "x") \\' "\n    X(I32,", "WB_I32"),
    ("an enumerator in the middle of an enum without a name", "layers.h", "WB_BAG_SUM, WB_BAG_MAX",
     "WB_BAG_XX, WB_BAG_SUM, WB_BAG_MAX", "WB_BAG_SUM"),
    ("an enumerator is gone", "base.h", r"^    X\(ARGUMENT,.*?\n", "", "WB_ERROR_ARGUMENT"),
    ("nothing", "base.h", "^#define WB_API", "#define WB_API", ""),
    ("a new function, a new struct", "base.h", r"^WB_API int wb_threads",
     "typedef struct { int x; } wb_more;\nWB_API int wb_another(wb_more *x);\n"
     "WB_API int wb_threads", ""),
    ("a new struct", "base.h", r"^WB_API int wb_threads",
     "typedef struct { int x; } wb_more;\nWB_API int wb_threads", ""),
    ("a field at the end of options", "layers.h", DENSE + r"(\nWB_OPTIONS)",
     r"\1 \\\n    ARG(int64_t, more_, 0)\2", ""),
    ("two fields at the end of options, behind the padding", "device.h",
     r"(\nWB_OPTIONS\(wb_get_device_options\))",
     r" \\\n    ARG(int64_t, a_, 0) ARG(bool, b_, false)\1", ""),
    ("an enumerator at the end of an enum without a name", "layers.h", "WB_BAG_MAX }",
     "WB_BAG_MAX, WB_BAG_XX }", ""),
    ("another name of a parameter, on another line", "base.h",
     r"^WB_API int wb_set_threads\(int n\)", "\n\nWB_API int wb_set_threads(int threads)", ""),
]


def abi(folder, *options):
    run = subprocess.run([sys.executable, str(folder / "tools/abi.py"), str(folder), *options],
                         capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


def copy(folder):
    for name in ("include", "packaging/abi"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "tools").mkdir()
    for name in ("abi.py", "version.py"):
        shutil.copy(ROOT / "tools" / name, folder / "tools")
    shutil.copy(ROOT / "CHANGELOG.md", folder)


def change(path, pattern, replacement):
    text, n = re.subn(pattern, replacement, path.read_text(), count=1, flags=re.M | re.S)
    if not n:
        raise ValueError(f"{path} has no {pattern}")
    path.write_text(text)


def of_changes(folder):
    """(check, whether it passed, output) of each row"""
    for name, header, pattern, replacement, word in CHANGES:
        path = folder / "include/weber" / header
        before = path.read_text()
        try:
            change(path, pattern, replacement)
            status, output = abi(folder)
            passed = status == (1 if word else 0) and word in output
        except ValueError as error:
            passed, output = False, str(error)
        path.write_text(before)
        yield name, passed, output


def of_updates(folder):
    """--update is refused only for a released version"""
    kept = folder / "packaging/abi/libweber.abi"
    log, base = folder / "CHANGELOG.md", folder / "include/weber/base.h"
    version = re.search(r"^## (\d+\.\d+)", log.read_text(), re.M).group(1)
    change(base, r"^WB_API int wb_threads\(void\);", "")
    unreleased = log.read_text()
    log.write_text(f"## {version}.1 (not released yet)\n\n## {version}.0\n")
    before = kept.read_text()
    status, output = abi(folder, "--update")
    yield "an update after the release", status == 1 and kept.read_text() == before, output
    change(base, r"(WB_VERSION_MINOR) \d+", r"\1 99")
    status, output = abi(folder)
    yield "a new soname", status == 1 and "libweber.so.0.99" in output, output
    status, output = abi(folder, "--update")
    passed = status == 0 and "libweber.so.0.99" in kept.read_text()
    yield "an update for a new soname", passed, output
    status, output = abi(folder)
    yield "after the update", status == 0, output
    kept.write_text(before)
    change(base, r"(WB_VERSION_MINOR) \d+", rf"\1 {version.split('.')[1]}")
    log.write_text(re.sub(r"^(## \S+).*", r"\1 (not released yet)", unreleased, count=1,
                          flags=re.M))
    status, output = abi(folder, "--update")
    yield "an update before the release", status == 0 and kept.read_text() != before, output


def main():
    if not which("abidw"):
        print("SKIP: there is no abidw (Debian's abigail-tools)")
        return 77
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(folder)
        status, output = abi(folder, "--update")            # of these headers
        results = [("the kept interface", status == 0, output)]
        for check, passed, output in [*results, *of_changes(folder), *of_updates(folder)]:
            if not passed:
                print(output)
            print(f"[{'       OK' if passed else '  FAILED '} ] {check}")
            good = good and passed
    return 0 if good else 1


sys.exit(main())
