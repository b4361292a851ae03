"""Tests tools/rename-0.6.sed, which converts programs for Weber 0.4.

    upgrade.py LIBRARY COMPILER

The header declares each new name of the script.  The converted examples of 0.4 compile without a
warning, and those that need no data run.  The examples are in this repository's history; the test
is skipped if the history does not contain them.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tools/rename-0.6.sed"
OLD = "fc3901f"                                 # the last commit of 0.4
RUN = ["01_tensor", "02_gradient", "03_xor", "04_mlp", "08_actor_critic"]    # these need no data
SKIPPED = 77


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True,
                          check=False)


def converted(text):
    done = subprocess.run(["sed", "-E", "-f", str(SCRIPT)], input=text, capture_output=True,
                          text=True, check=True)
    return done.stdout


def unknown_names():
    """The new names of the script that the header does not declare."""
    headers = [ROOT / "include/weber.h", *(ROOT / "include/weber").glob("*.h")]
    header = "".join(path.read_text() for path in headers)
    known = set(re.findall(r"\bwb_\w+|\bWB_\w+", header))
    missing = []
    for line in SCRIPT.read_text().splitlines():
        rule = re.match(r"s/\\b(.*?)\\b/(.*?)/g;", line)
        if not rule:
            continue
        left, right = rule.groups()
        choices = re.search(r"\(([^)]*)\)", left)
        for choice in choices.group(1).split("|") if choices else [""]:
            name = right.replace("\\1", choice)
            if re.match(r"[wW]", name) and name not in known:
                missing.append(name)
    return missing


def main(library, compiler):
    missing = unknown_names()
    if missing:
        print("the header does not declare:", *missing)
        return 1
    names = []
    if shutil.which("git"):
        names = git("ls-tree", "--name-only", OLD, "examples/").stdout.split()
    if not names or not shutil.which("sed"):
        print(f"SKIPPED: there is no sed, or no commit {OLD} in the history of {ROOT}")
        return SKIPPED
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="weber-upgrade-") as folder:
        for name in (n for n in names if n.endswith(".c")):
            stem = Path(name).stem
            source, program = Path(folder, stem + ".c"), Path(folder, stem)
            source.write_text(converted(git("show", f"{OLD}:{name}").stdout))
            command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror",
                       f"-I{ROOT / 'include'}", str(source), "-o", str(program), library,
                       f"-Wl,-rpath,{Path(library).parent}", "-lm"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{stem} does not compile:\n{done.stderr}")
            elif stem in RUN:
                done = subprocess.run([str(program)], cwd=folder, capture_output=True, text=True,
                                      timeout=120)
                if done.returncode:
                    output = done.stdout[-500:] + done.stderr[-500:]
                    print(f"{stem} ends with {done.returncode}:\n{output}")
            wrong += done.returncode != 0
    print(f"{len(names)} programs of 0.4, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
