"""Tests `weber doctor`: doctor.py WEBER

Its list of variables is compared with the sources, which read them.
"""
import os
import re
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
        if path.name not in ("variables.c", "doctor.c"):
            names |= set(re.findall(r'"(WEBER_[A-Z0-9_]+)"', path.read_text()))
    return names - BACKENDS


def checks(weber, folder):
    """(name, whether it holds, what is printed if not)"""
    code, out, err = doctor(weber, folder)
    if "build type Debug" in out:
        yield "debug", code == 1 and "PROBLEM: the build type is Debug" in out, out
        return
    yield "no problem", code == 0 and out.endswith("\nno problem was found\n") and not err, out
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
    yield "words", code == 2 and not out and "weber doctor" in err, out
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
