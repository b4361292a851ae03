"""The version of the headers, the versions of CHANGELOG.md, and the commit."""
import os
import re
import subprocess
from pathlib import Path
from shutil import which


def version(root):
    """MAJOR.MINOR.PATCH of include/weber/base.h"""
    header = (root / "include/weber/base.h").read_text()
    return ".".join(re.search(rf"WB_VERSION_{part} (\d+)", header).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def minor(root):
    """MAJOR.MINOR, which the soname has"""
    return version(root).rpartition(".")[0]


def releases(root):
    """[(version, whether it is released)], newest first"""
    heads = re.findall(r"^## (\S+)(.*)", (root / "CHANGELOG.md").read_text(), re.M)
    return [(name, "not released" not in rest) for name, rest in heads]


def commit(root):
    """The commit that `git describe` finds here, not that of a repository around an archive;
    outside a clone, that of WEBER_COMMIT."""
    def git(*words):
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True,
                              check=False).stdout.strip()
    ours = which("git") and Path(git("rev-parse", "--show-toplevel") or "/").resolve() == root
    return (ours and git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
            or os.environ.get("WEBER_COMMIT", "unknown"))
