"""Tests `weber doctor`: doctor.py WEBER

Its list of variables is compared with the sources, which read them.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPEED = re.compile(r"^  a training step of 784-256-10, batch 64: (\d+) us on one thread,"
                   r" about \d+ us usual for (AVX-512|AVX2|portable)", re.M)
BACKENDS = {"WEBER_CUDA", "WEBER_AMDGPU", "WEBER_METAL", "WEBER_OPENCL"}    # options of CMake


def doctor(weber, folder, *words, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEBER_")}
    done = subprocess.run([weber, "doctor", *words], capture_output=True, text=True, cwd=folder,
                          env={**environment, **variables}, check=False, timeout=280)
    return done.returncode, done.stdout, done.stderr


def known():
    text = (ROOT / "src/cli/variables.c").read_text()
    library = text[:text.index("/* of examples")]
    return set(re.findall(r'"(WEBER_\w+)"', library))


def read_by_sources():
    names = set()
    for path in (ROOT / "src").rglob("*.[ch]"):
        if path.name not in ("variables.c", "environment.c", "doctor.c"):
            names |= set(re.findall(r'"(WEBER_[A-Z0-9_]+)"', path.read_text()))
    return names - BACKENDS


def checks_values(weber, folder):
    """Values of variables that have no effect are named, once on standard error."""
    code, out, err = doctor(weber, folder, WEBER_DEBUG="chek", WEBER_NUM_THREADS="abc",
                            WEBER_ISA="avx2", WEBER_EAGER="", WEBER_GPU_TIMING="0.5")
    topics = ("a list, with commas, of load, stages, plan, dispatch, kernel, check, sync, dist or"
              " all")
    yield "values", code == 1 and "\n2 problems were found" in out and \
        f"PROBLEM: this value has no effect: WEBER_DEBUG is {topics}\n" in out and \
        "no effect: WEBER_NUM_THREADS is a number from 1 on\n" in out, out
    whole = f'WEBER_DEBUG is "chek", which has no effect: it is {topics}.'
    yield "warnings", err.count(whole) == 1 and err.count("which has") == 2 and \
        err.count('WEBER_NUM_THREADS is "abc"') == 1, err
    wrong = (("WEBER_DEBUG", "plan,,x", "a list"), ("WEBER_EAGER", "yes", "0 or 1"),
             ("WEBER_ISA", "sse", "portable, avx2 or avx512"),
             ("WEBER_GPU_TIMING", "-1", "a number from 0 on"))
    code, out, err = doctor(weber, folder, **{name: value for name, value, _ in wrong})
    for name, value, words in wrong:
        yield value, code == 1 and f"{name} is {words}" in out and \
            f'{name} is "{value}", which has no effect' in err, out + err
    code, out, err = doctor(weber, folder, WEBER_DEBUG="check, plan ")
    yield "a list", code == 0 and "has no effect" not in out + err, out + err


def checks_threads(weber, folder):
    _, out, _ = doctor(weber, folder, WEBER_NUM_THREADS="16")
    one, all_threads = (int(re.search(pattern, out).group(1)) for pattern in
                        (r"batch 64: (\d+) us", r"on 16 threads (\d+) us"))
    slow = all_threads > 1.5 * one
    reported = "slower than on one.  Threads" in out
    yield "threads", abs(all_threads - 1.5 * one) < 2 or slow == reported, out
    yield "finding", reported == ("found; threads are slower than one" in out), out


def checks_library(weber, folder):
    """A libweber.so beside the program that needs a library that is not there."""
    compiler = shutil.which("cc")
    if not compiler or sys.platform == "darwin":
        return
    there = folder / "beside"
    there.mkdir()
    shutil.copy(weber, there / "weber")
    code, out, _ = doctor(str(there / "weber"), folder)
    yield "no library", code == 0 and "libweber.so: not beside this program\n" in out, out
    (there / "empty.c").write_text("int wb_nothing;\n")
    build = [compiler, "-shared", "-fPIC"]
    needed = str(there / "libutf8proc.so.2")
    subprocess.run([*build, "-Wl,-soname,libutf8proc.so.2.none", str(there / "empty.c"),
                    "-o", needed], check=True)
    subprocess.run([*build, "-Wl,--no-as-needed", str(there / "empty.c"), needed,
                    "-o", str(there / "libweber.so")], check=True)
    code, out, _ = doctor(str(there / "weber"), folder)
    reason = re.search(r"PROBLEM: programs cannot load it: (.*); install (.*)\n", out)
    yield "library", code == 1 and "\n1 problem was found\n" in out and reason and \
        reason.group(1).startswith("libutf8proc.so.2.none: cannot open") and \
        reason.group(2) == "libutf8proc-dev (Debian, Ubuntu)", out
    subprocess.run([*build, str(there / "empty.c"), "-o", str(there / "libweber.so")], check=True)
    code, out, _ = doctor(str(there / "weber"), folder)
    yield "loads", code == 0 and "beside/libweber.so: programs can load it\n" in out, out


def checks(weber, folder):
    """(name, whether it holds, what is printed if not)"""
    code, out, err = doctor(weber, folder)
    if "build type Debug" in out:
        yield "debug", code == 1 and "PROBLEM: the build type is Debug" in out, out
        return
    yield "no problem", code == 0 and "\nno problem was found" in out and not err, out
    yield "speed", SPEED.search(out) and int(SPEED.search(out).group(1)) > 0, out
    for words in ("oneDNN", "LAPACK", "libpng", "CUDA", "OpenCL", "ranks: MPI", "preference: none",
                  "processors may be used", "weber 0."):
        yield words, words in out, out
    code, out, _ = doctor(weber, folder, WEBER_NUM_THREAD="1", WEBER_ISA="portable",
                          WEBER_BACKENDS="CPU")
    yield "unknown", code == 1 and "\n1 problem was found\n" in out, out
    yield "nearest", "no variable WEBER_NUM_THREAD; perhaps it is WEBER_NUM_THREADS\n" in out, out
    yield "known", "WEBER_BACKENDS=CPU" in out and "variable WEBER_BACKENDS" not in out, out
    yield "limited", "instruction set portable (WEBER_ISA limits it)" in out, out
    _, out, _ = doctor(weber, folder, WEBER_SOMETHING_ELSE="1")
    yield "far", "no variable WEBER_SOMETHING_ELSE\n" in out, out
    code, out, _ = doctor(weber, folder, WEBER_LAPACK_LIBRARY="/nonexistent")
    yield "missing", code == 0 and re.search("LAPACK +no: .*install liblapack3", out), out
    (folder / "LocalPreferences.toml").write_text("[weber]\nx = = 1\n")
    code, out, err = doctor(weber, folder)
    yield "preferences", code == 1 and "PROBLEM: the preferences cannot be read" in out and \
        "LocalPreferences.toml" in err, out
    code, out, err = doctor(weber, folder, "now")
    (folder / "LocalPreferences.toml").unlink()
    yield "words", code == 2 and not out and "weber doctor" in err, out
    for more in (checks_values, checks_threads, checks_library):
        yield from more(weber, folder)
    free = {name for name in known() if re.search("_(PATH|DIR|LIBRARY|DEVICES|RANK|SIZE)$", name)}
    free |= {"WEBER_BACKENDS", "WEBER_MATMUL_PRECISION", "WEBER_MEMORY_LIMIT", "WEBER_RENDEZVOUS"}
    rows = set(re.findall(r'"(WEBER_\w+)"', (ROOT / "src/base/environment.c").read_text()))
    yield "all values", rows | free == known() and rows & free == {"WEBER_CPU_DEVICES"}, \
        rows | free ^ known()
    yield "list", known() == read_by_sources(), known() ^ read_by_sources()


def main(weber):
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, holds, found in checks(str(Path(weber).absolute()), Path(folder)):
            print(f"[{'       OK' if holds else '  FAILED '} ] {name}")
            if not holds:
                print(found)
                failures += 1
    return failures != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
