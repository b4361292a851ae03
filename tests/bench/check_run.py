#!/usr/bin/env python3
"""./run where nothing is installed and no package server answers: it says so, once, and soon, and tries to install nothing.

A copy of the script runs with programs that only note that they were called: a compiler without headers, and an apt-get
whose server is a port that nobody listens at.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = Path(__file__).resolve().parents[2] / "run"
STUBS = {"cc": "exit 1", "g++": "exit 0", "cmake": "exit 1", "ninja": "exit 1", "sudo": 'shift; exec "$@"',
         "apt-get": 'echo "$*" >>"$CALLS"\ncase $* in *--print-uris*) echo "\'http://127.0.0.1:9/InRelease\' x 0" ;; *) exit 1 ;; esac'}


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(f"ok: {what}")


def run(folder, *words, **more):
    calls = folder / "calls"
    calls.write_text("")
    environment = dict(os.environ, PATH=f"{folder / 'bin'}:{os.environ['PATH']}", CALLS=str(calls), **more)
    environment.pop("CMAKE_PREFIX_PATH", None)
    begun = time.monotonic()
    done = subprocess.run([str(folder / "run"), *words], env=environment, capture_output=True, text=True, timeout=120, check=False)
    print(done.stdout + done.stderr)
    return done.returncode, done.stdout + done.stderr, calls.read_text().splitlines(), time.monotonic() - begun


with tempfile.TemporaryDirectory() as name:
    here = Path(name)
    shutil.copy(RUN, here / "run")
    (here / "bin").mkdir()
    for program, text in STUBS.items():
        (here / "bin" / program).write_text(f"#!/bin/sh\n{text}\n")
        (here / "bin" / program).chmod(0o755)
    for command in ("gpu", "build"):
        code, said, called, seconds = run(here, command, WEBER_INSTALL="1")
        expect(code == 1 and "Cannot build without: zlib1g-dev" in said, f"{command}: what is missing is named")
        expect(said.count("No package server answers") == 1, f"{command}: that no server answers is said, once")
        expect(len(called) == 1 and "--print-uris" in called[0], f"{command}: nothing is asked of apt-get but where its server is")
        expect(seconds < 30, f"{command}: no time-outs are waited for")
    code, said, called, seconds = run(here, "gpu", WEBER_INSTALL="0")
    expect(code == 1 and not called and "WEBER_INSTALL=0" in said, "WEBER_INSTALL=0: apt-get is not called")
