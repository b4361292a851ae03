#!/usr/bin/env python3
"""Tests ./run on a machine without a compiler, or without headers, and without a package server.

It must report both once, within 30 s, and install nothing; without headers it builds with fewer
libraries.  A copy of the script runs with stubs in the place of programs: a compiler without
headers, a cmake that logs its arguments, and an apt-get that does too and whose server is a port
without a listener.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = Path(__file__).resolve().parents[2] / "run"
STUBS = {"cc": "exit 1", "g++": "exit 0", "cmake": 'echo "cmake $*"; exit 1', "ninja": "exit 1",
         "sudo": 'shift; exec "$@"',
         "apt-get": 'echo "$*" >>"$CALLS"\ncase $* in *--print-uris*) '
                    'echo "\'http://127.0.0.1:9/InRelease\' x 0" ;; *) exit 1 ;; esac'}
# All that ./run calls before it needs a compiler
TOOLS = ("sh", "uname", "tr", "sed", "head", "mkdir", "rm", "timeout", "id", "env", "dirname")


def expect(condition, check):
    if not condition:
        sys.exit(f"FAILED: {check}")
    print(f"ok: {check}")


def run(folder, *words, path=os.environ["PATH"], **more):
    calls = folder / "calls"
    calls.write_text("")
    environment = dict(os.environ, PATH=f"{folder / 'bin'}:{path}", CALLS=str(calls), **more)
    environment.pop("CMAKE_PREFIX_PATH", None)
    begun = time.monotonic()
    done = subprocess.run([shutil.which("sh"), str(folder / "run"), *words], env=environment,
                          capture_output=True, text=True, timeout=120, check=False, cwd=folder)
    seconds = time.monotonic() - begun
    output = done.stdout + done.stderr
    print(output)
    return done.returncode, output, calls.read_text().splitlines(), seconds


def check(folder, command, cause, check_of_cause, **more):
    """What holds for each command on a machine without a package server."""
    for made in ("build", "build-gpu"):
        shutil.rmtree(folder / made, ignore_errors=True)
    code, output, calls, seconds = run(folder, command, WEBER_INSTALL="1", **more)
    expect(code == 1 and cause in output, f"{command}: {check_of_cause}")
    expect(output.count("No package server answers") == 1,
           f"{command}: it reports once that no package server answers")
    expect(len(calls) == 1 and "--print-uris" in calls[0],
           f"{command}: its only call of apt-get lists the addresses of the servers")
    expect(seconds < 30, f"{command}: it does not wait for time-outs")
    return output


with tempfile.TemporaryDirectory() as name:
    here = Path(name)
    shutil.copy(RUN, here / "run")
    (here / "bin").mkdir()
    for program, text in STUBS.items():
        (here / "bin" / program).write_text(f"#!/bin/sh\n{text}\n")
        (here / "bin" / program).chmod(0o755)
    for command, of in (("gpu", "build-gpu"), ("build", "build")):
        output = check(here, command, f"No zlib: {of} is built with -DWEBER_ZLIB=OFF",
                       "it reports that zlib is missing")
        expect(re.search(rf"^cmake -S . -B {of} .*-DWEBER_ZLIB=OFF", output, re.M),
               f"{command}: and goes on to cmake without it")
    code, output, calls, seconds = run(here, "gpu", WEBER_INSTALL="0")
    expect(code == 1 and not calls and "WEBER_INSTALL=0" in output,
           "WEBER_INSTALL=0: it does not call apt-get")
    (here / "bin" / "cc").unlink()
    (here / "few").mkdir()
    for tool in TOOLS:
        if shutil.which(tool):
            (here / "few" / tool).symlink_to(shutil.which(tool))
    for command in ("gpu", "build"):
        check(here, command, "Cannot build without: gcc", "it names the missing packages",
              path=str(here / "few"))
