"""Tests that exceptions of C++ pass through the library: builds tests/consumer/exceptions.cpp and
runs it.

    exceptions.py LIBRARY CXX
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(library, compiler):
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "exceptions"
        library = Path(library).absolute()
        subprocess.run([compiler, "-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror",
                        f"-I{ROOT}/include", str(ROOT / "tests/consumer/exceptions.cpp"),
                        str(library), f"-Wl,-rpath,{library.parent}", "-pthread", "-o",
                        str(program)], check=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEBER_")}
        environment["WEBER_BACKENDS"] = ""
        return subprocess.run([str(program), f"{folder}/exceptions.bson"], env=environment,
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
