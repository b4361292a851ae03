#!/usr/bin/env python3
"""Prints a value for LD_LIBRARY_PATH: the folders of NVIDIA's libraries in this Python's packages.

A library that the system's loader finds is left out.  Prints an empty line if no library is missing
or no package has one of those that are missing.
"""
import ctypes
import importlib.util
from pathlib import Path

LIBRARIES = {"libnvrtc": ("13", "12"), "libcublasLt": ("13", "12"), "libcudnn": ("9",)}


def is_found(name, versions):
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


missing = [item for item in LIBRARIES.items() if not is_found(*item)]
folders = [folder_of(*item) for item in missing]
print(":".join(dict.fromkeys(filter(None, folders))))
