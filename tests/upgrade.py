"""Programs for Weber 0.4, turned by tools/rename-0.5.sed, compile without a warning and run: upgrade.py LIBRARY COMPILER

The programs are the examples of 0.4, from this repository's history; where that does not reach so far the test is
skipped.  Each new name that the script writes is in the header."""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tools/rename-0.5.sed"
OLD = "fc3901f"                                 # the last commit of 0.4
RUN = ["01_tensor", "02_gradient", "03_xor", "04_mlp", "08_actor_critic"]        # those that need no data
SKIPPED = 77


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


def turned(text):
    return subprocess.run(["sed", "-E", "-f", str(SCRIPT)], input=text, capture_output=True, text=True, check=True).stdout


def unknown_names():
    """names on the right of the script that the header does not have"""
    header = "".join(p.read_text() for p in [ROOT / "include/weber.h", *(ROOT / "include/weber").glob("*.h")])
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
        print("not in the header:", *missing)
        return 1
    names = git("ls-tree", "--name-only", OLD, "examples/").stdout.split() if shutil.which("git") else []
    if not names or not shutil.which("sed"):
        print(f"SKIPPED: no sed, or no commit {OLD} in the history of {ROOT}")
        return SKIPPED
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="weber-upgrade-") as folder:
        for name in (n for n in names if n.endswith(".c")):
            stem = Path(name).stem
            source, program = Path(folder, stem + ".c"), Path(folder, stem)
            source.write_text(turned(git("show", f"{OLD}:{name}").stdout))
            done = subprocess.run([compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", str(source), "-o",
                                   str(program), library, f"-Wl,-rpath,{Path(library).parent}", "-lm"], capture_output=True, text=True)
            if done.returncode:
                print(f"{stem} does not compile:\n{done.stderr}")
            elif stem in RUN:
                done = subprocess.run([str(program)], cwd=folder, capture_output=True, text=True, timeout=120)
                if done.returncode:
                    print(f"{stem} ends with {done.returncode}:\n{done.stdout[-500:]}{done.stderr[-500:]}")
            wrong += done.returncode != 0
    print(f"{len(names)} programs of 0.4, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
