#!/usr/bin/env python3
"""Compares the binary interface of the headers with the one that programs were built for.

    abi.py [ROOT] [--update] [--must]

packaging/abi/libweber.abi is the interface of the last release: functions, the layouts of structs,
the values of enumerators, as libabigail's abidw writes them.  A change by which a program that was
built for it could fail is a finding: a function or a field that is gone, another layout, another
value.  Additions pass, as do the changes of packaging/abi/compatible.ini.

What is compared is a library with an empty body for each declaration of the headers, compiled with
the compiler's description of all types; the rule `symbols` of lint.py checks that libweber.so has
these symbols and no others.  Elsewhere than on x86-64 Linux nothing is compared; without abidw and
abidiff (Debian's abigail-tools) neither, which is an error with --must.

--update writes the file anew.  It refuses a change by which a program could fail, unless the
version's soname is new or no version with this soname has been released (CHANGELOG.md).

The exit status is 1 if there are findings, 2 for a word that is no option, else 0.
"""
import argparse
import platform
import re
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path
from shutil import which
from xml.etree import ElementTree

from version import minor, releases

ROOT = Path(__file__).resolve().parent.parent
KEPT = "packaging/abi/libweber.abi"
COMPATIBLE = "packaging/abi/compatible.ini"
PUBLIC = re.compile(r'__attribute__\s*\(\(visibility\("default"\)\)\)\s+([^;{}]+);')
# Locations and paths are left out: the file changes only where the interface does.
ABIDW = ["abidw", "--load-all-types", "--drop-private-types", "--type-id-style", "hash",
         "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--no-elf-needed",
         "--no-parameter-names", "--no-write-default-sizes"]
TROUBLE = 3             # the bits of abidiff's status that mean that it did not work


class Failure(Exception):
    """A tool did not work."""


def output_of(command, text=None):
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if run.returncode:
        raise Failure(f"{command[0]}: {(run.stderr or run.stdout).strip()}")
    return run.stdout


def soname(root):
    """The soname of CMakeLists.txt, from the headers' version"""
    return f"libweber.so.{minor(root)}"


def is_released(root, name):
    """Whether CHANGELOG.md has a released version with this soname"""
    return any(released and f"libweber.so.{version}".startswith(f"{name}.")
               for version, released in releases(root))


def missing_tool():
    """The first program that is not installed, or None"""
    return next((tool for tool in ("gcc", "abidw", "abidiff") if not which(tool)), None)


def interface(root, folder):
    """abidw's text for the headers of a root"""
    include = root / "include"
    # The array at the end of structs of options has no elements: it only makes an argument too many
    # an error, and hides which field is the last.
    text = output_of(["gcc", "-std=c11", "-E", "-DWB_NO_MORE=", f"-I{include}", "-x", "c", "-"],
                     "#include <weber.h>\n")
    bodies = []
    for found in PUBLIC.findall(re.sub(r"^#.*$", "", text, flags=re.M)):
        declaration = re.sub(r"__attribute__\s*\(\(format.*\)\)\s*$", "", found, flags=re.S)
        if declaration.startswith("extern "):
            bodies.append(declaration.removeprefix("extern ") + ";\n")
        else:
            bodies.append(declaration + "{ __builtin_trap(); }\n")
    if not bodies:
        raise Failure(f"{include}/weber.h declares nothing public")
    source, library = folder / "interface.i", folder / "libweber.so"
    source.write_text(text + "".join(bodies))
    output_of(["gcc", "-std=c11", "-w", "-g", "-fno-eliminate-unused-debug-types", "-fPIC",
               "-shared", f"-Wl,-soname,{soname(root)}", str(source), "-o", str(library)])
    abi = output_of([*ABIDW, "--headers-dir", str(include), str(library)])
    return re.sub(r"^ +", "", abi, flags=re.M)


def named(types, number):
    """The type of a number, as C has it"""
    at = types[number]
    of = [named(types, child.get("type-id")) for child in (at, *at)
          if child.get("type-id") and not at.get("name") and child.tag != "subrange"]
    if at.tag == "function-type":
        return f"{of[-1]} ({', '.join(of[:-1])})"
    if at.tag == "array-type-def":
        return of[0] + "".join(f"[{part.get('length')}]" for part in at)
    begin = "const " if at.get("const") else ""
    return at.get("name") or begin + of[0] + (" *" if at.tag == "pointer-type-def" else "")


def options_of(text):
    """{struct that begins with .size: (its bits, its fields, each with offset, name and type)}"""
    tree = ElementTree.fromstring(text)
    types = {at.get("id"): at for at in tree.iter() if at.get("id")}
    structs = {struct.get("name"): (int(struct.get("size-in-bits") or 0),
                                    [(int(field.get("layout-offset-in-bits")), field[0].get("name"),
                                      named(types, field[0].get("type-id")))
                                     for field in struct.iter("data-member")])
               for struct in tree.iter("class-decl")}
    return {name: found for name, found in structs.items() if found[1][:1] and
            found[1][0][1] == "size"}


def changed_options(before, now):
    """A struct of options may have new fields behind its end: .size is that of the program's.
    Between its last field and its end a program has bytes without a value.  abidiff's suppression
    looks at new fields only; here, the old ones are where they were."""
    new = options_of(now)
    for name, (bits, fields) in options_of(before).items():
        kept, added = (new[name][1][:len(fields)], new[name][1][len(fields):]) if name in new else \
                      (fields, [])
        for old, field in zip_longest(fields, kept):
            if old != field:
                yield f"{name}: .{old[1]} is gone, or has another offset or type"
                break
        if added and added[0][0] < bits:
            yield (f"{name}: .{added[0][1]} is within the {bits // 8} bytes that programs have, "
                   "without a value: give it a type of 8 bytes")


def changes(root, folder, now):
    """What programs can fail by: a text, empty if every change is compatible"""
    new = folder / "now.abi"
    new.write_text(now)
    run = subprocess.run(
        ["abidiff", "--no-added-syms", "--non-reachable-types", "--suppressions",
         str(root / COMPATIBLE), str(root / KEPT), str(new)],
        capture_output=True, text=True, check=False)
    if run.returncode & TROUBLE:
        raise Failure(f"abidiff: {(run.stderr or run.stdout).strip()}")
    found = list(changed_options((root / KEPT).read_text(), now))
    if any(map(int, re.findall(r"(\d+) (?:removed|changed)", run.stdout, re.I))):
        found.append(run.stdout.strip())
    return "\n".join(found)


def check(root, update):
    """The exit status"""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        now, kept = interface(root, folder), root / KEPT
        before = re.search(r"soname='([^']*)'", kept.read_text()) if kept.exists() else None
        before, here = before.group(1) if before else "", soname(root)
        found = changes(root, folder, now) if before == here else ""
        if update:
            if found and is_released(root, here):
                print(f"{found}\nabi: programs that were built for the released {here} could fail: "
                      "undo the change, or raise WB_VERSION_MINOR, which changes the soname")
                return 1
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(now)
            print(f"abi: wrote {KEPT}, {len(now) // 1000} kB")
            return 0
        if before != here:
            print(f"{KEPT}:1: abi: is of {before or 'no library'}, the headers are of {here}: "
                  "./run abi --update writes it anew")
            return 1
        if found:
            cure = ("undo the change, or raise WB_VERSION_MINOR, which changes the soname, and call"
                    if is_released(root, here) else f"as {here} is not released yet, call")
            print(f"{found}\n{KEPT}:1: abi: programs that were built for it could fail: "
                  f"{cure} ./run abi --update")
            return 1
    print(f"abi: compatible with {KEPT}")
    return 0


def main():
    parser = argparse.ArgumentParser(prog="./run abi", allow_abbrev=False)
    parser.add_argument("root", nargs="?", default=ROOT, type=Path, help="default: this project")
    parser.add_argument("--update", action="store_true", help=f"writes {KEPT} anew")
    parser.add_argument("--must", action="store_true", help="without abidw the check fails")
    options = parser.parse_args()
    if not (options.root / "include/weber.h").exists():
        parser.error(f"{options.root} has no include/weber.h")
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        print(f"abi: skipped: {KEPT} is that of x86-64 Linux")
        return 0
    if tool := missing_tool():
        print(f"NOT CHECKED: abi: there is no {tool} (Debian's "
              f"{'gcc' if tool == 'gcc' else 'abigail-tools'})")
        return int(options.must or options.update)
    try:
        return check(options.root.resolve(), options.update)
    except Failure as failure:
        print(f"{KEPT}:1: abi: {failure}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
