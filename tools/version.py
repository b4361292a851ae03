"""The version of the headers, and the versions of CHANGELOG.md."""
import re


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
