#!/usr/bin/env python3
"""Prints folders, with colons between, in which this Python's packages have those of NVIDIA's libraries that the system
does not find: for LD_LIBRARY_PATH.  Nothing where nothing is missing, or nothing is there."""
import ctypes
import importlib.util
from pathlib import Path

WANTED = {"libnvrtc": ("13", "12"), "libcublasLt": ("13", "12"), "libcudnn": ("9",)}


def is_here(name, versions):
    for version in versions:
        try:
            ctypes.CDLL(f"{name}.so.{version}")
            return True
        except OSError:
            pass
    return False


def folder_of(name, versions):
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations if spec else ():
        for version in versions:
            for path in sorted(Path(root).glob(f"*/lib/{name}.so.{version}")):
                return str(path.parent)
    return None


missing = [item for item in WANTED.items() if not is_here(*item)]
print(":".join(dict.fromkeys(folder for folder in (folder_of(*item) for item in missing) if folder)))
