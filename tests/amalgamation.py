#!/usr/bin/env python3
"""Compiles the library as two files (tools/amalgamate.py) and compares it with the library.

    amalgamation.py LIBRARY [--all]     LIBRARY: libweber.so

  files      two runs write the same bytes, the second with another preprocessor if there is one
  warnings   gcc and clang find none with -Wall -Wextra
  README     its program prints what the README shows
  numbers    MLP and LeNet-5 (bench/workloads.c) have the losses and, after three steps, the
             parameters of the library without oneDNN: the same bits for each instruction set of
             this processor
  unsafe     unsafe arithmetic stops weber.c with a reason, and not a program that includes weber.h
  messages   what is left out is named, with a cure, by the error of a program that asks for it
  C++        a C++17 program includes weber.h and links with weber.o; with -fexceptions an exception
             passes through it, and the library goes on

One compiler compiles weber.c without optimisation.  --all, or WEBER_TEST_ALL: with -O2 gcc, clang
and musl-gcc, and the cross compiler for 64-bit ARM, whose programs qemu runs.  A compiler that is
not installed is skipped.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which

ROOT = Path(__file__).resolve().parent.parent
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
LEFT_OUT = {"bson": "libbson", "npz": "libzip", "pt": "libzip", "gzip": "zlib",
            "tokenizer": "utf8proc", "CUDA": "WEBER_CUDA=ON", "NCCL": "WEBER_CUDA=ON"}
CXX = """#include "weber.h"
int main()
{
    auto model = wb_Chain(wb_Dense(2, 8, wb_tanh), wb_Dense(8, 1));
    return !wb_call(model, wb_zeros(4, 2));
}
"""
THROWS = """#include "weber.h"
#include <cstring>
static wb_tensor *loss(wb_layer *m, wb_batch b, void *) { wb_call(m, b.x); throw 7; }
int main()
{
    auto model = wb_Chain(wb_Dense(2, 8, wb_tanh), wb_Dropout(0.5), wb_Dense(8, 1));
    auto loader = wb_dataloader(wb_dataset_of(wb_ones(8, 2), wb_ones(8, 1)), 4);
    int caught = 0;
    for (int i = 0; i < 3; i++)
        try {
            wb_train(loss, model, loader, wb_setup(wb_Adam(), model));
        } catch (int n) {
            caught += n;
        }
    return caught != 21 || !std::strstr(wb_error(), "has thrown an exception") ||
           wb_in_trainmode() || !wb_call(model, wb_zeros(4, 2));
}
"""
failures = []


def check(holds, text):
    if not holds:
        failures.append(text)
        print(f"FAILED: {text}")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
                 f"{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def files(folder):
    run(sys.executable, ROOT / "tools/amalgamate.py", folder)
    again = folder / "again"
    other = which("clang") or os.environ.get("CC", "cc")
    run(sys.executable, ROOT / "tools/amalgamate.py", again, env=dict(os.environ, CC=other))
    for name in ("weber.c", "weber.h"):
        check((folder / name).read_bytes() == (again / name).read_bytes(),
              f"two runs write different bytes into {name}")


def readme():
    """The first program of the README and what it prints."""
    found = re.search(r"^```c\n(#include <stdio.h>.*?)^```\n\n```\n(.*?)^```",
                      (ROOT / "README.md").read_text(), re.M | re.S)
    return found.groups()


def losses(program, isa):
    rows = []
    for workload in ("W2", "W3"):
        out = run(*program, "--workload", workload, "--losses", "3", "--threads", "2",
                  env=dict(os.environ, WEBER_ONEDNN="0", WEBER_ISA=isa))
        row = json.loads(out)
        rows.append((row["losses"], row["bits"]))
    return rows


def bench(library):
    """The compiler's options for the benchmark program, linked with this library or object."""
    return ["-O1", ROOT / "bench/weber_bench.c", ROOT / "bench/workloads.c", library, "-lm",
            "-lpthread"]


def check_numbers(program, reference, name):
    levels = ["portable"] if name == "aarch64" else ["portable", "avx2", "avx512"]
    for isa in levels:
        ours, theirs = losses(program, isa), losses(reference, isa)
        if name == "aarch64":           # its kernels use fused multiply-add
            for (mine, _), (other, _) in zip(ours, theirs):
                check(all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(mine, other)),
                      f"{name}: losses {mine} are not {other}")
        else:
            check(ours == theirs, f"{name}, {isa}: {ours} is not {theirs}")


def compiled(compiler, options, folder, name, launcher=()):
    """Compiles weber.c, runs the programs, and returns the object."""
    unit = folder / f"{name}.o"
    run(*compiler, *options, *WARNINGS, "-c", folder / "weber.c", "-o", unit)
    source, expected = readme()
    (folder / "xor.c").write_text(source)
    sources = {"xor": ["-O1", folder / "xor.c", unit, "-lm", "-lpthread"],
               "left_out": ["-O1", ROOT / "tests/amalgamation.c", unit, "-lm", "-lpthread"],
               "bench": bench(unit)}
    programs = {}
    for program, arguments in sources.items():
        made = folder / f"{name}_{program}"
        run(*compiler, "-I", folder, *arguments, "-o", made)
        programs[program] = [*launcher, made]
    printed = run(*programs["xor"])
    check(printed == expected, f"{name}: the README's program prints\n{printed}")
    printed = dict(line.split(": ", 1) for line in
                   run(*programs["left_out"], folder).strip().split("\n"))
    for what, word in LEFT_OUT.items():
        check(word in printed.get(what, ""), f"{name}: {what}: {printed.get(what)}")
    check_numbers(programs["bench"], [folder / "reference"], name)
    return unit


def unsafe(folder):
    """Options by which weber.c would not find NaN stop it; a program may have them."""
    for name in filter(which, ("gcc", "clang")):
        for option in ("-ffast" + "-math", "-O" + "fast", "-ffinite-math-only"):
            done = subprocess.run([name, option, "-E", "-o", os.devnull, folder / "weber.c"],
                                  capture_output=True, text=True, check=False)
            check(done.returncode and "#error" in done.stderr and "NaN" in done.stderr,
                  f"{name} {option} compiles weber.c: {done.stderr[:200]}")
            run(name, option, "-fno-fast" + "-math", "-E", "-o", os.devnull, folder / "weber.c")
            (folder / "unsafe.c").write_text('#include "weber.h"\n')
            run(name, option, "-I", folder, "-fsyntax-only", folder / "unsafe.c")


def main():
    everything = "--all" in sys.argv or os.environ.get("WEBER_TEST_ALL")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files(folder)
        unsafe(folder)
        library = Path(sys.argv[1]).resolve()
        run(os.environ.get("CC", "cc"), "-I", ROOT / "include", *bench(library),
            f"-Wl,-rpath,{library.parent}", "-o", folder / "reference")
        first = which("clang") or os.environ.get("CC", "cc")
        if which("gcc") and which("clang"):
            zlib = ["-DWB_HAVE_ZLIB"] if Path("/usr/include/zlib.h").exists() else []
            run("gcc", *WARNINGS, *zlib, "-fsyntax-only", folder / "weber.c")
        unit = compiled([first], ["-O0", "-fexceptions"], folder, "first")
        (folder / "program.cpp").write_text(CXX)
        (folder / "throws.cpp").write_text(THROWS)
        for name in filter(which, ("g++", "clang++")):
            for source in ("program.cpp", "throws.cpp"):
                program = folder / name
                run(name, "-std=c++17", *WARNINGS, "-I", folder, folder / source, unit,
                    "-lm", "-lpthread", "-o", program)
                run(program)
        wanted = [("gcc", "gcc", ["-O2"], []), ("clang", "clang", ["-O2"], []),
                  ("musl", "musl-gcc", ["-O2"], []),
                  ("aarch64", "aarch64-linux-gnu-gcc", ["-O2"],
                   ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"])]
        for name, compiler, options, launcher in wanted if everything else []:
            if which(compiler) and (not launcher or which(launcher[0])):
                compiled([compiler], options, folder, name, launcher)
                print(f"{compiler} {' '.join(options)}: compiled and run")
            else:
                print(f"SKIPPED: there is no {compiler}{' or qemu' if launcher else ''}")
    print("FAILED" if failures else "passed")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
