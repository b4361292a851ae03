#!/usr/bin/env python3
"""Compiles the kernel texts with every compiler that is installed.  check.py FOLDER RTC

FOLDER contains the texts that tests/gpu/gpu_texts.c writes: ENTRY-HASH.k is a kernel written by
hand, HASH.k a generated one; names that end in .f64.k are texts that use double.  RTC is the
program compiled from rtc.c.  Each text is compiled together with the prelude:

  as OpenCL C 1.2     with clang, without generating code; with clang's declarations of OpenCL's
                      functions, and as with PoCL with those of the prelude; texts for Intel's
                      matrix units with the declarations of their extension (intel.h)
  as CUDA             with NVRTC: one text of each kernel and some generated texts to PTX; with
                      WEBER_TEST_ALL all texts, and one of each kernel for two GPUs
  as HIP              with hiprtc: one text of each kernel and some generated texts
  as Metal            with two substitutes for Apple's compiler: C++ for OpenCL (strict/), which
                      checks address spaces, and plain C++ (plain/).  A pointer without an address
                      space is an error in OpenCL C only: C++ for OpenCL accepts it for every space.

The rows "PoCL" and "plain C++" have one text of each kernel and all generated texts: the tests on
PoCL and on the double of Metal compile the others so.  The rows "1.2" and "C++ for OpenCL" have
these and each a half of the others.  With WEBER_TEST_ALL all four have all texts.

Prints a table with the number of texts that were compiled and that failed.  A compiler that is not
installed is skipped with a reason.  The exit status is 1 if a text failed or if no text was
compiled.
"""
import glob
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
CORES = os.cpu_count() or 1
# For texts written by hand; generated texts may define more than they use.
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-parameter",
            "-Wno-unknown-pragmas"]
CUDA_LIBRARIES = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
CUDA_FOLDERS = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib"]
# Since ROCm 6 hiprtc is a library of its own; before, it was part of the runtime.
HIP_LIBRARIES = ["libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.5"]


class Text:
    def __init__(self, path):
        self.f64 = path.name.endswith(".f64.k")
        # The name of the kernel; None for generated texts.
        self.entry = path.name.split("-")[0] if "-" in path.name else None
        self.body = path.read_text()
        self.tickets = "COUNTERS(" in self.body         # for CUDA and HIP only
        # Launches of Metal do not ask for local memory.
        self.not_metal = "LAUNCH_LOCAL(" in self.body
        # for the matrix units of Intel's GPUs, by OpenCL only
        self.intel = re.search(r"^#define FRAGMENTS (?:8|16)$", self.body, re.M) is not None
        self.path = None


def prelude():
    """The text before every kernel, as cmake/embed.cmake makes it."""
    formulas = (SOURCE / "base/numbers/formulas.h").read_text()
    text = (SOURCE / "backend/gpu/prelude.k").read_text()
    return text.replace('#include "base/numbers/formulas.h"\n', formulas)


def read_texts(folder):
    """Writes each different text once, with the prelude, to FOLDER/whole; returns the texts."""
    head = prelude()
    whole = folder / "whole"
    whole.mkdir(exist_ok=True)
    texts = {}
    for path in sorted(folder.glob("*.k")):
        text = Text(path)
        known = texts.setdefault((text.body, text.f64), text)
        if known is text:
            text.path = whole / path.name
            text.path.write_text(("#define WB_F64\n" if text.f64 else "") + head + text.body)
    return list(texts.values())


# The wrapper of src/backend/gpu/runtime/table.c, which calls a kernel as a function for one row of
# a table of arguments.
WRAPPER = """
typedef struct {{ u64 at[{n}]; {type} a; uint first; }} wb_row;
extern "C" __global__ void wb_table(const wb_row *rows, uint n)
{{
    uint low = n - 1;
    {entry}({buffers}rows[low].a, blockIdx.x - rows[low].first);
}}
"""


def as_tables(texts, folder):
    """Generated texts with WRAPPER, which calls their kernel for the rows of a table."""
    tables = []
    folder.mkdir(exist_ok=True)
    for text in texts:
        head = re.search(r"KERNEL(?:_OF\(.*?\))? (\w+)\(((?:BUF\(\w+, \d+\), )+)"
                         r"ARGS\((\w+), (\d+)\)\)", text.body)
        if text.entry is not None or not head:
            continue
        table = Text(text.path)
        table.f64 = text.f64
        n = int(head.group(4))
        table.path = folder / text.path.name
        table.path.write_text("#define WB_TABLE\n" + text.path.read_text() + WRAPPER.format(
            n=n, type=head.group(3), entry=head.group(1),
            buffers="".join(f"(u8 *)rows[low].at[{i}], " for i in range(n))))
        tables.append(table)
    return tables


def sample(texts):
    """One text of each kernel and combination of options except dtypes; four generated ones."""
    seen, few = {}, []
    for text in texts:
        if text.entry is None:
            few.append(text)
        else:
            options = re.findall(r"^#define (?:CONV_\w+|POOL_\w+|SIMPLE|BLOCK|BM \d+|[AB]_ALONG \d"
                                 r"|FRAGMENTS \d+)$",
                                 text.body, re.M)
            seen.setdefault((text.entry, *options), text)
    return list(seen.values()) + few[:4] + [t for t in few[4:] if t.tickets][:4]


class Row:
    """A row of the table: a language, a compiler and a target."""
    def __init__(self, language, compiler, target):
        self.names = (language, compiler, target)
        self.good, self.bad, self.skipped, self.seconds = 0, [], None, 0.0


def frontend(clang, options, path):
    """The command of clang's own process that compiles, which takes many files at once."""
    run = subprocess.run([clang, *options, "-fsyntax-only", "-###", path], capture_output=True,
                         text=True, check=False)
    command = shlex.split(run.stderr.strip().split("\n")[-1])
    return command[:-1] if command[1:2] == ["-cc1"] and command[-1] == path else None


def with_clang(row, clang, options, texts):
    """Starting clang takes longer than checking a text, so a process checks many; if one of them
    fails, each is checked alone."""
    path = str(texts[0].path) if texts else ""
    commands = {written: frontend(clang, [*options, *warnings], path)
                for written, warnings in ((True, WARNINGS), (False, ["-w"]))}

    def some(part):
        written, paths = part[0].entry is not None, [str(text.path) for text in part]
        command = commands[written]
        if command and not subprocess.run([*command, *paths], capture_output=True,
                                          check=False).returncode:
            return [(text, 0, "") for text in part]
        alone = [clang, *options, *(WARNINGS if written else ["-w"]), "-fsyntax-only"]
        runs = [subprocess.run([*alone, path], capture_output=True, text=True, check=False)
                for path in paths]
        return [(text, run.returncode, run.stderr) for text, run in zip(part, runs)]

    parts = []
    for written in (True, False):
        own = [text for text in texts if (text.entry is not None) == written]
        parts += [own[i:i + 20] for i in range(0, len(own), 20)]
    with ThreadPoolExecutor(CORES) as pool:
        for results in pool.map(some, parts):
            for text, code, messages in results:
                if code:
                    row.bad.append((text.path.name, messages))
                else:
                    row.good += 1


def with_rtc(row, rtc, library, prefix, options, texts):
    def some(part):
        run = subprocess.run([rtc, library, prefix, *options, "--", *(str(t.path) for t in part)],
                             capture_output=True, text=True, check=False, errors="replace")
        return part, run

    parts = [texts[i::CORES] for i in range(CORES) if texts[i::CORES]]
    with ThreadPoolExecutor(CORES) as pool:
        for part, run in pool.map(some, parts):
            answered = 0
            for chunk in re.split(r"^(?=ok |failed )", run.stdout, flags=re.M):
                if chunk.startswith("ok "):
                    row.good += 1
                    answered += 1
                elif chunk.startswith("failed "):
                    row.bad.append((Path(chunk.split()[1]).name, chunk))
                    answered += 1
            if answered < len(part):
                row.bad.append((part[answered].path.name,
                                f"the compiler ended the process ({run.returncode})\n{run.stderr}"))


def usable(rtc, names, prefix, folders):
    """(the first library that rtc can open, None), or (None, the reason)"""
    reasons = []
    for name in names:
        for path in [name, *(p for f in folders for p in sorted(glob.glob(f"{f}/{name}")))]:
            run = subprocess.run([rtc, path, prefix, "--"], capture_output=True, text=True,
                                 check=False)
            if run.returncode == 0:
                return path, None
            reasons.append(run.stdout.strip() or f"{path} ended the process")
    return None, reasons[-1] if reasons else "no library"


def clang_of(least):
    """The name of an installed clang of version `least` or later, or None."""
    for name in ["clang-15", "clang", *(f"clang-{v}" for v in range(22, 13, -1))]:
        if which(name):
            run = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
            version = re.search(r"version (\d+)", run.stdout)
            if version and int(version.group(1)) >= least:
                return name
    return None


def run_all(texts, rtc):
    rows = []

    def add(language, compiler, target, reason, check, *arguments):
        row = Row(language, compiler, target)
        rows.append(row)
        began = time.monotonic()
        if reason:
            row.skipped = reason
        else:
            check(row, *arguments)
        row.seconds = time.monotonic() - began

    intel = [t for t in texts if t.intel]
    texts = [t for t in texts if not t.intel]
    few = sample(texts)
    some = few + [t for t in texts if t.entry is None and t not in few][:20]    # hiprtc is slow
    brief, whole = texts, bool(os.environ.get("WEBER_TEST_ALL"))
    if not whole:
        brief = few + [t for t in texts if t.entry is None and t not in few]
    brief = [t for t in brief if not t.tickets]
    without = [t for t in texts if not t.tickets]
    rest = [t for t in without if t not in brief]
    half, other = (without, without) if whole else (brief + rest[::2], brief + rest[1::2])
    clang = clang_of(14)
    missing = None if clang else "no clang of 14 or later"
    target = ["-target", "spir64", "-Xclang", "-finclude-default-header", "-Xclang",
              "-fdeclare-opencl-builtins"]
    add("OpenCL C", clang or "clang", "1.2", missing, with_clang, clang,
        ["-x", "cl", "-cl-std=CL1.2", *target], half)
    add("OpenCL C", clang or "clang", "1.2, PoCL", missing, with_clang, clang,
        ["-x", "cl", "-cl-std=CL1.2", *target[:2], "-include", "opencl-c-base.h", "-D_OPENCL_H_",
         "-DWB_DECLARE"], brief)
    add("OpenCL C", clang or "clang", "1.2, Intel", missing, with_clang, clang,
        ["-x", "cl", "-cl-std=CL1.2", *target, "-include", str(HERE / "intel.h")], intel)

    library, reason = usable(rtc, CUDA_LIBRARIES, "nvrtc", CUDA_FOLDERS)
    options = ["--fmad=false", "-default-device", "-w"]
    most = (("compute_80", texts), ("sm_80", few), ("sm_90", few))
    for arch, which_texts in most if whole else (("compute_80", some),):
        add("CUDA", "NVRTC", "PTX" if arch.startswith("compute") else arch, reason, with_rtc, rtc,
            library, "nvrtc", [f"--gpu-architecture={arch}", *options], which_texts)
    tables = as_tables(texts, texts[0].path.parent / "tables")
    most = (("compute_80", tables), ("sm_90", tables[:12]))
    for arch, which_texts in most if whole else (("compute_80", tables[:12]),):
        code = "PTX" if arch.startswith("compute") else arch
        add("CUDA", "NVRTC", "tables, " + code, reason, with_rtc, rtc, library, "nvrtc",
            [f"--gpu-architecture={arch}", *options], which_texts)

    library, reason = usable(rtc, HIP_LIBRARIES, "hiprtc", ["/opt/rocm/lib"])
    for arch, which_texts in ("gfx90a", some), ("gfx906", few), ("gfx1030", few):
        add("HIP", "hiprtc", arch, reason, with_rtc, rtc, library, "hiprtc",
            [f"--offload-arch={arch}", "-ffp-contract=off", "-w"], which_texts)

    metal = ["-D__METAL_VERSION__=240", "-Wno-unknown-attributes", "-Wno-ignored-attributes"]
    add("Metal", clang or "clang", "C++ for OpenCL", missing, with_clang, clang,
        ["-x", "cl", "-cl-std=clc++2021", *target, "-I", str(HERE / "strict"), *metal],
        [t for t in other if not t.f64 and not t.not_metal])
    add("Metal", clang or "clang", "plain C++", missing, with_clang, clang,
        ["-x", "c++", "-std=c++17", "-nostdinc++", "-I", str(HERE / "plain"), *metal],
        [t for t in brief if not t.f64 and not t.not_metal])
    return rows


def main():
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    texts = read_texts(Path(sys.argv[1]))
    written = sum(t.entry is not None for t in texts)
    print(f"{written} texts of kernels written by hand, {len(texts) - written} generated texts")
    rows = run_all(texts, sys.argv[2])
    print(f"{'language':10}{'compiler':12}{'for':18}{'compiled':>9}{'failed':>8}{'seconds':>9}")
    for row in rows:
        names = "".join(f"{name:{width}}" for name, width in zip(row.names, (10, 12, 18)))
        if row.skipped:
            print(f"{names} skipped: {row.skipped}")
        else:
            print(f"{names}{row.good:9}{len(row.bad):8}{row.seconds:9.1f}")
    for row in rows:
        for name, messages in row.bad[:3]:
            print(f"\n{' '.join(row.names)}: {name}\n" + "\n".join(messages.splitlines()[:20]))
    failed = any(row.bad for row in rows)
    done = all(row.good or row.skipped for row in rows) and any(row.good for row in rows)
    return 0 if texts and done and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
