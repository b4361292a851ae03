#!/usr/bin/env python3
"""Tests ./run on a machine without compilers and without a package server.

It must report both once, within 30 s, and install nothing.  A copy of the script runs with stubs
in the place of programs: a compiler without headers, and an apt-get that logs its arguments and
whose server is a port without a listener.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = Path(__file__).resolve().parents[2] / "run"
STUBS = {"cc": "exit 1", "g++": "exit 0", "cmake": "exit 1", "ninja": "exit 1",
         "sudo": 'shift; exec "$@"',
         "apt-get": 'echo "$*" >>"$CALLS"\ncase $* in *--print-uris*) '
                    'echo "\'http://127.0.0.1:9/InRelease\' x 0" ;; *) exit 1 ;; esac'}


def expect(condition, check):
    if not condition:
        sys.exit(f"FAILED: {check}")
    print(f"ok: {check}")


def run(folder, *words, **more):
    calls = folder / "calls"
    calls.write_text("")
    environment = dict(os.environ, PATH=f"{folder / 'bin'}:{os.environ['PATH']}",
                       CALLS=str(calls), **more)
    environment.pop("CMAKE_PREFIX_PATH", None)
    begun = time.monotonic()
    done = subprocess.run([str(folder / "run"), *words], env=environment, capture_output=True,
                          text=True, timeout=120, check=False)
    seconds = time.monotonic() - begun
    output = done.stdout + done.stderr
    print(output)
    return done.returncode, output, calls.read_text().splitlines(), seconds


with tempfile.TemporaryDirectory() as name:
    here = Path(name)
    shutil.copy(RUN, here / "run")
    (here / "bin").mkdir()
    for program, text in STUBS.items():
        (here / "bin" / program).write_text(f"#!/bin/sh\n{text}\n")
        (here / "bin" / program).chmod(0o755)
    for command in ("gpu", "build"):
        code, output, calls, seconds = run(here, command, WEBER_INSTALL="1")
        expect(code == 1 and "Cannot build without: zlib1g-dev" in output,
               f"{command}: it names the missing packages")
        expect(output.count("No package server answers") == 1,
               f"{command}: it reports once that no package server answers")
        expect(len(calls) == 1 and "--print-uris" in calls[0],
               f"{command}: its only call of apt-get lists the addresses of the servers")
        expect(seconds < 30, f"{command}: it does not wait for time-outs")
    code, output, calls, seconds = run(here, "gpu", WEBER_INSTALL="0")
    expect(code == 1 and not calls and "WEBER_INSTALL=0" in output,
           "WEBER_INSTALL=0: it does not call apt-get")
