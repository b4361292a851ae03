"""Tests `weber doctor`: doctor.py WEBER

The tables of variables and packages are compared with the sources and pages that use them.
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
                          env={**environment, "TMPDIR": str(folder), **variables}, check=False,
                          timeout=280)
    return done.returncode, done.stdout, done.stderr


def read_by(path):
    """Variables that a source, a script or an example reads, and those that a page sets."""
    if path.suffix in (".c", ".h", ".def") and path.is_relative_to(ROOT / "src"):
        return re.findall(r'"(WEBER_[A-Z0-9_]+)"', path.read_text())
    c = r'(?:getenv\(|real_folder\(\w+, )"(WEBER_\w+)"'
    reads = {".sh": r"\$\{?(WEBER_\w+)", ".c": c, ".h": c,
             ".py": r"""environ(?:\.get\(|\[)\s*["'](WEBER_\w+)""",
             ".md": r"(?<!-D)\b(WEBER_\w+)=(?!ON|OFF)"}
    read = reads.get(path.suffix or ".sh")
    return re.findall(read, path.read_text(errors="replace")) if read else ()


def variables(text):
    """(name, values) of the library's rows in environment.c, in alphabetical order"""
    rows = re.findall(r'\{"(WEBER_\w+)", (SWITCH|TEXT|WORDS\("[^"]*"\)|"[^"]*"|ENV_NUMBER\(.*?\))',
                      text.split("/* variables of examples and scripts */")[0])
    words = {"SWITCH": "0, 1", "TEXT": "a text"}
    return sorted((name, words.get(values) or ("a number" if values.startswith("ENV_NUMBER") else
                   re.search('"(.*)"', values)[1].replace(" ", ", "))) for name, values in rows)


def checks_tables():
    """All variables that are read are in environment.c, and the table of the page on installing
    has the packages of packages.def."""
    table = ROOT / "src/base/environment.c"
    rows = set(re.findall(r'\{"(WEBER_\w+)"', table.read_text()))
    found = set()
    for folder in ("src", "tools", "examples", "bench", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path != table and path.name != "doctor.py":
                found |= set(read_by(path))
    found |= set(read_by(ROOT / "run"))
    found = {name for name in found - BACKENDS if not name.startswith("WEBER_TEST_")}
    yield "variables", rows == found, rows ^ found
    page = (ROOT / "docs/site/guide/debugging.md").read_text()
    listed = re.findall(r"^\| `(WEBER_\w+)` \| (.*?) \| .+ \|$", page, re.M)
    wanted = variables(table.read_text())
    yield "the page's variables", listed == wanted, set(listed) ^ set(wanted)
    page = (ROOT / "docs/site/install.md").read_text()
    packages = re.findall(r'^WB_PACKAGE\(\w+, "(.*?)", "(.*?)", "[^"]*", "(.*?)"',
                          (ROOT / "src/base/packages.def").read_text(), re.M)
    missing = [row for row in packages if not re.search(
        rf"^\| {row[0]} \| {row[1]} \|" + "".join(rf"(?=.*`{name}`)"
                                                  for name in row[2].split(" or ")), page, re.M)]
    yield "packages", len(packages) > 8 and not missing, missing


def checks_formats(weber, folder):
    """README.md has the formats that `weber doctor` prints, and what they hold."""
    _, out, _ = doctor(weber, folder)
    rows = re.findall(r"^  \w+ +(\.[\w., ]+): (?:models (.*); )?tensors ([a-z, ]+)"
                      r"(?:; reading needs (\w+))?$", out, re.M)
    page = (ROOT / "README.md").read_text()
    missing = []
    for endings, models, tensors, package in rows:
        names = ", ".join(f"`{name}`" for name in endings.split(", "))
        if not re.search(rf"^\| {names}(?:, CSV)? \| {models and models + ' '}\| {tensors} \| .*"
                         rf"{package}", page, re.M):
            missing.append((endings, models, tensors, package))
    yield "formats", len(rows) > 7 and not missing, (rows, missing)


def checks_values(weber, folder):
    """Values of variables that have no effect are named, once on standard error."""
    code, out, err = doctor(weber, folder, WEBER_DEBUG="chek", WEBER_NUM_THREADS="abc",
                            WEBER_ISA="avx2", WEBER_EAGER="", WEBER_GPU_TIMING="0.5")
    whole = ('WEBER_DEBUG has "chek", which has no effect: it is a list, with commas, of load,'
             " stages, plan, dispatch, kernel, check, sync, dist or all")
    number = 'WEBER_NUM_THREADS is "abc", which has no effect: it is a whole number from 1 to 256'
    yield "values", code == 1 and "\n2 problems were found" in out and \
        f"PROBLEM: {whole}\n" in out and f"PROBLEM: {number}\n" in out, out
    yield "warnings", err.count(f"{whole}.") == 1 and err.count("which has") == 2 and \
        err.count(f"{number}.") == 1, err
    wrong = (("WEBER_DEBUG", "check,x y", 'has "x y"', "a list"),
             ("WEBER_EAGER", "yes", 'is "yes"', "0 or 1"),
             ("WEBER_ISA", "sse", 'is "sse"', "portable, avx2 or avx512"),
             ("WEBER_NUM_THREADS", "8,4", 'is "8,4"', "a whole number from 1 to 256"),
             ("WEBER_CPU_DEVICES", "1.5", 'is "1.5"', "a whole number from 1 to 16"),
             ("WEBER_GPU_TIMING", "-1", 'is "-1"', "a number from 0 on"))
    code, out, err = doctor(weber, folder, **{name: value for name, value, _, _ in wrong})
    for name, value, found, words in wrong:
        whole = f"{name} {found}, which has no effect: it is {words}"
        yield value, code == 1 and f"PROBLEM: {whole}" in out and whole in err, out + err
    code, out, err = doctor(weber, folder, WEBER_EAGER="\x1b[31mno\n", WEBER_DATA="\x1b[2J\t",
                            WEBER_MATMUL_PRECISION="\x1b[1m", WEBER_RENDEZVOUS_TOKEN="secret")
    yield "escapes", "\x1b" not in out + err and 'WEBER_EAGER is "\\x1b[31mno\\n", which' in out \
        and "  WEBER_DATA=\\x1b[2J\\t\n" in out, out + err
    yield "a secret", "WEBER_RENDEZVOUS_TOKEN=(not shown)\n" in out and "secret" not in out, out
    threads = re.compile(r"by (\d+) threads?")
    usual = doctor(weber, folder)[1]
    yield "threads of no effect", threads.search(out)[1] == threads.search(usual)[1], out
    code, out, err = doctor(weber, folder, WEBER_DEBUG="check, plan ")
    yield "a list", code == 0 and "has no effect" not in out + err, out + err


def checks_readers():
    """All readers of a variable of the table take what the table takes."""
    text = (ROOT / "src/base/environment.c").read_text()
    rows = set(re.findall(r'\{"(WEBER_\w+)"', text))
    own = {"WEBER_DEBUG", "WEBER_ISA"}      # of words: the reader compares them
    own |= set(re.findall(r'\{"(WEBER_\w+)", TEXT\}', text))
    read = {name: path for path in (ROOT / "src").rglob("*.c")
            for name in re.findall(r'environment_(?:text|path)\("(WEBER_\w+)"', path.read_text())
            if name in rows - own and path.parent.name != "cli"}
    yield "readers", own < rows and not read, read


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
    soname = re.search(r"libweber\.so\.[0-9.]+", doctor(weber, folder)[1])
    yield "soname", soname, doctor(weber, folder)[1]
    there = folder / "beside"
    there.mkdir()
    shutil.copy(weber, there / "weber")
    soname = re.match(r"libweber\.so\.\d+\.\d+", soname[0])[0]
    (there / "empty.c").write_text("int wb_nothing;\n")
    build = [compiler, "-shared", "-fPIC", str(there / "empty.c")]
    subprocess.run([*build, "-o", str(there / "libweber.so")], check=True)
    code, out, _ = doctor(str(there / "weber"), folder)
    yield "no library", code == 0 and f"{soname}: not beside this program\n" in out, out
    needed = str(there / "libutf8proc.so.2")
    subprocess.run([*build, "-Wl,-soname,libutf8proc.so.2.none", "-o", needed], check=True)
    subprocess.run([*build, "-Wl,--no-as-needed", needed, "-o", str(there / soname)], check=True)
    code, out, _ = doctor(str(there / "weber"), folder)
    reason = re.search(r"PROBLEM: programs cannot load it: (.*); install (.*)\n(.*)\n", out)
    yield "library", code == 1 and "\n1 problem was found\n" in out and reason and \
        reason[1].startswith("libutf8proc.so.2.none: cannot open") and \
        reason[2] == "libutf8proc-dev (Debian, Ubuntu)" and \
        "built for another release: build Weber on this machine" in reason[3], out
    real = there / f"{soname}.9"
    (there / soname).unlink()
    (there / soname).symlink_to(real.name)
    subprocess.run([*build, "-o", str(real)], check=True)
    code, out, _ = doctor(str(there / "weber"), folder)
    yield "loads", code == 0 and f"beside/{soname}.9: programs can load it\n" in out, out
    for end, words in (("raise(SIGSEGV)", "signal 11"), ("_exit(0)", "status 0")):
        (there / "empty.c").write_text("#include <signal.h>\n#include <unistd.h>\n"
                                       "__attribute__((constructor)) static void begin(void)\n"
                                       f"{{ {end}; }}\n")
        subprocess.run([*build, "-o", str(real)], check=True)
        code, out, _ = doctor(str(there / "weber"), folder)
        yield end, code == 1 and "PROBLEM: programs cannot load it: the process that loaded it" \
            f" ended with {words}" in out, out


def checks_programs(weber, folder):
    """An installation whose header declares what the program of five lines needs."""
    if not shutil.which("cc") or not shutil.which("pkg-config"):
        return
    version = re.match(r"weber (\S+),", doctor(weber, folder)[1])[1]
    there = folder / "installed"
    for name in ("bin", "include", "lib/pkgconfig"):
        (there / name).mkdir(parents=True)
    shutil.copy(weber, there / "bin/weber")
    (there / "lib/pkgconfig/weber.pc").write_text(
        "prefix=${pcfiledir}/../..\nName: weber\nDescription: x\nVersion: 0\n"
        "Cflags: -I${prefix}/include\nLibs:\n")

    def told(statement, answer, **variables):
        (there / "include/weber.h").write_text(
            "#define wb_add(x, y) 2\n#define wb_item(x) x\n#include <stdlib.h>\n"
            f"static const char *wb_version(void) {{ {statement} return \"{answer}\"; }}\n")
        code, out, _ = doctor(str(there / "bin/weber"), folder, PKG_CONFIG_LIBDIR=str(folder),
                              weber_DIR=str(folder), **variables)
        return code, out.partition("programs that are compiled here\n")[2].partition("\n\n")[0]
    found = {"PKG_CONFIG_PATH": str(there / "lib/pkgconfig")}
    runs = "  pkg-config: a program is built and runs"
    code, out = told("", version, **found)
    yield "a program", code == 0 and f"{runs}\n" in out, out
    code, out = told("", version)
    yield "no program", code == 1 and f"{runs}\n" in out and \
        f"PROBLEM: pkg-config does not find {there}/lib/pkgconfig/weber.pc:\n" \
        f"    export PKG_CONFIG_PATH={there}/lib/pkgconfig\n" in out, out
    code, out = told("", "9.9.9", **found)
    yield "another version", code == 0 and f"{runs}, with Weber 9.9.9: not that of this command, " \
        f"which is {version}\n" in out, out
    code, out = told("oops", version, **found)
    yield "not built", code == 1 and "by pkg-config, is not built:\n" in out and "oops" in out and \
        "The headers are not where `pkg-config --cflags weber` names" in out, out
    code, out = told("puts(\"libweber.so.0.6: cannot open\"); exit(3);", version, **found)
    yield "does not run", code == 1 and "by pkg-config, is built and does not run:\n" \
        "    libweber.so.0.6: cannot open\n" in out and "-Wl,-rpath,FOLDER" in out, out
    code, out = told("", version, CC="no-compiler", **found)
    yield "no compiler", code == 0 and out.count("no C compiler was found: install gcc") == 2, out
    code, out, _ = doctor(weber, folder, PKG_CONFIG_LIBDIR=str(folder))
    yield "nothing installed", code == 0 and "pkg-config finds no Weber, and this command is " \
        "installed with none: it is the package libweber-dev" in out, out
    yield "nothing left", not list(folder.glob("weber-doctor-*")), folder


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
    code, out, _ = doctor(weber, folder, WEBER_LAPACK_LIBRARY=str(folder / "none"))
    yield "missing", code == 0 and re.search("LAPACK +no; .*install liblapack3", out), out
    (folder / "LocalPreferences.toml").write_text("[weber]\nx = = 1\n")
    code, out, err = doctor(weber, folder)
    yield "preferences", code == 1 and "PROBLEM: the preferences cannot be read" in out and \
        "LocalPreferences.toml" in err, out
    code, out, err = doctor(weber, folder, "now")
    (folder / "LocalPreferences.toml").unlink()
    yield "words", code == 2 and not out and "weber doctor" in err, out
    for more in (checks_formats, checks_values, checks_threads, checks_library, checks_programs):
        yield from more(weber, folder)
    yield from checks_readers()
    yield from checks_tables()


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
