#!/usr/bin/env python3
"""Tests `weber launch`, run as a user runs it.

    check_launch.py WEBER RENDEZVOUS

RENDEZVOUS is the program of rendezvous.c. The other ranks are
this program again: check_launch.py --rank WHAT [ARGUMENT]
"""
import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

SOON = 15       # seconds, on a busy machine; the ranks of these tests would run for a minute
GRACE = 3       # seconds from SIGTERM to SIGKILL
MINUTE = 60


# ---- what a rank does --------------------------------------------------------------------------

def environment():
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "RENDEZVOUS", "NUM_THREADS")
    print(" ".join(f"{name}={os.environ.get('WEBER_' + name)}" for name in names))


def token():
    print(os.environ.get("WEBER_RENDEZVOUS_TOKEN"))


def lines():
    """Writes lines in parts, so that those of the ranks are mixed if they are not kept whole."""
    for i in range(20):
        for part in (f"line {i} ", "of ", os.environ["WEBER_RANK"], "\n"):
            os.write(1, part.encode())
            time.sleep(0.0005)
    os.write(2, b"an error\n\nwithout end")
    os.write(1, b"x" * 3_000_000 + b"\nlast")


def fail(how):
    """Rank 1 fails when all ranks have started; the others would go on."""
    folder = how[1]
    rank = os.environ["WEBER_RANK"]
    if how[0] == "stubborn" and rank != "1":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "77"])
    with open(f"{folder}/{rank}.new", "w", encoding="ascii") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename(f"{folder}/{rank}.new", f"{folder}/{rank}")
    while rank == "1" and len([n for n in os.listdir(folder) if "." not in n]) < 3:
        time.sleep(0.01)
    if rank == "1":
        print("the cause", file=sys.stderr, flush=True)
        if how[0] == "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        sys.exit(0 if how[0] == "interrupt" else 9)
    time.sleep(MINUTE)


def leave(how):
    """Leaves a process that keeps the output open."""
    child = subprocess.Popen(["sleep", "77"])
    with open(f"{how[0]}/{os.environ['WEBER_RANK']}", "w", encoding="ascii") as file:
        file.write(f"{os.getpid()} {child.pid}")


def interrupted(how):
    """Ends with status 0 on a signal, after it has noted it."""
    def note(number, _):
        print(f"caught {signal.Signals(number).name}", flush=True)
        sys.exit(0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN if how[0] == "ignore" else note)
    print("ready", flush=True)
    time.sleep(MINUTE)


if sys.argv[1] == "--rank":
    what, rest = sys.argv[2], sys.argv[3:]
    {"environment": environment, "lines": lines, "token": token, "fail": lambda: fail(rest),
     "leave": lambda: leave(rest), "interrupted": lambda: interrupted(rest)}[what]()
    sys.exit(0)

# ---- the tests -----------------------------------------------------------------------------------

WEBER = sys.argv[1]
RANK = [sys.executable, os.path.abspath(__file__), "--rank"]
PLAIN = {k: v for k, v in os.environ.items()
         if not k.startswith("WEBER_") and k != "OMP_NUM_THREADS"}


def expect(condition, what, output=""):
    if not condition:
        sys.exit(f"FAILED: {what}\n{output}")
    print(f"ok: {what}", flush=True)


class Run:
    def __init__(self, *words, env=None):
        begun = time.monotonic()
        done = subprocess.run([WEBER, "launch", *words], capture_output=True, text=True,
                              timeout=MINUTE, check=False, env={**PLAIN, **(env or {})})
        self.took = time.monotonic() - begun
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.all = f"status {self.status} after {self.took:.1f} s\n{self.out[:4000]}\n{self.err}"


def alive(number):
    """Whether a process runs; a zombie does not."""
    if os.path.isdir("/proc/self"):
        try:
            with open(f"/proc/{number}/stat", encoding="utf-8") as file:
                state = file.read().rsplit(")", 1)[1].strip()
        except OSError:
            return False
    else:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(number)], capture_output=True,
                               text=True, check=False).stdout.strip()
    return bool(state) and not state.startswith("Z")


def processes_of(folder):
    """The processes that the ranks have noted: themselves and one that each has started."""
    numbers = []
    for name in os.listdir(folder):
        if "." not in name:
            with open(f"{folder}/{name}", encoding="ascii") as file:
                numbers += [int(word) for word in file.read().split()]
    return numbers


def check_environment():
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 64
    r = Run("-np", "3", "--", *RANK, "environment")
    rows = sorted(r.out.splitlines())
    expect(r.status == 0 and len(rows) == 3 and not r.err, "three ranks run", r.all)
    ports = set()
    for i, row in enumerate(rows):
        place, rest = row.split(" RENDEZVOUS=")
        expect(place == f"[{i}] RANK={i} SIZE=3 LOCAL_RANK={i} LOCAL_SIZE=3",
               f"the place of rank {i}", r.all)
        address, threads = rest.split(" NUM_THREADS=")
        ports.add(address)
        expect(1 <= int(threads) <= max(1, processors // 3), "the processors are shared", r.all)
    expect(len(ports) == 1, "one address for all", r.all)
    host, port = ports.pop().split(":")
    expect(host == "127.0.0.1" and 0 < int(port) < 65536, "it is a port of this machine", r.all)
    first, second = (Run("-np", "3", *RANK, "token", env=env).out.split()[1::2]
                     for env in ({}, {"WEBER_RENDEZVOUS_TOKEN": ""}))
    expect(len({*first, *second}) == 2 and len(first) == len(second) == 3 and
           all(re.fullmatch("[0-9a-f]{32}", token) for token in first + second),
           "a token for all ranks, another one each time", f"{first} {second}")
    r = Run("-np", "2", *RANK, "token", env={"WEBER_RENDEZVOUS_TOKEN": "given"})
    expect(r.out.split()[1::2] == ["given"] * 2, "a given token stays", r.all)
    one = Run("-np", "1", *RANK, "environment")
    total = int(one.out.split("NUM_THREADS=")[1])
    expect(int(rows[0].split("NUM_THREADS=")[1]) == max(1, total // 3), "a third each", one.all)
    r = Run("-np", "2", *RANK, "environment",
            env={"WEBER_RENDEZVOUS": "host:7", "WEBER_NUM_THREADS": "5", "WEBER_RANK": "8",
                 "WEBER_SIZE": "9"})
    expect(r.out.count("RENDEZVOUS=host:7 NUM_THREADS=5") == 2, "given variables stay", r.all)
    expect("[1] RANK=1 SIZE=2 " in r.out, "but not those of an outer launch", r.all)
    r = Run("-np", "2", *RANK, "environment", env={"OMP_NUM_THREADS": "5"})
    expect(r.out.count("NUM_THREADS=None") == 2, "OMP_NUM_THREADS counts too", r.all)


def check_lines():
    r = Run("-np", "3", *RANK, "lines")
    expect(r.status == 0, "the ranks end well", r.all)
    for rank in range(3):
        mine = [row[4:] for row in r.out.splitlines() if row.startswith(f"[{rank}] ")]
        expect(mine[:20] == [f"line {i} of {rank}" for i in range(20)],
               f"lines of rank {rank} are whole and in order", r.all)
        expect("".join(mine[20:-1]) == "x" * 3_000_000 and mine[-1] == "last",
               "long lines, and one without end", "\n".join(mine)[:3000])
    expect(r.out.endswith("\n"), "the last line is ended")
    expect(sorted(r.err.splitlines()) ==
           sorted(f"[{k}] {text}" for k in range(3) for text in ("an error", "", "without end")),
           "standard error is apart", r.all)


def check_failures():
    for how, status, words in (("status", 9, "status 9"),
                               ("signal", 128 + signal.SIGSEGV, "SIGSEGV"),
                               ("stubborn", 9, "status 9")):
        with tempfile.TemporaryDirectory() as folder:
            r = Run("-np", "3", *RANK, "fail", how, folder)
            expect(r.took < SOON, f"{how}: all ranks end: {r.took:.1f} s", r.all)
            expect(how != "stubborn" or r.took > GRACE - 0.1, f"{how}: SIGKILL comes later", r.all)
            expect(r.status == status, f"{how}: the exit status", r.all)
            last = r.err.splitlines()[-1]
            expect("rank 1 of 3" in last and words in last and "the cause" in last,
                   f"{how}: the message: {last}", r.all)
            numbers = processes_of(folder)
            expect(len(numbers) == 6, f"{how}: all ranks had started", r.all)
            expect(not any(alive(n) for n in numbers), f"{how}: no process is left", r.all)


def check_left_processes():
    with tempfile.TemporaryDirectory() as folder:
        r = Run("-np", "2", *RANK, "leave", folder)
        expect(r.status == 0 and r.took < SOON, "the launcher does not wait for left processes",
               r.all)
        numbers = processes_of(folder)
        expect(len(numbers) == 4 and not any(alive(n) for n in numbers), "they are ended", r.all)


def interrupt(how, numbers):
    """Starts two ranks, sends signals to the launcher, and returns status, output and seconds."""
    with subprocess.Popen([WEBER, "launch", "-np", "2", *RANK, "interrupted", how], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=PLAIN) as p:
        ready = [p.stdout.readline(), p.stdout.readline()]
        expect(sorted(ready) == ["[0] ready\n", "[1] ready\n"], "the ranks are ready", ready)
        begun = time.monotonic()
        for number in numbers:
            p.send_signal(number)
            time.sleep(0.3)
        out, err = p.communicate(timeout=MINUTE)
        return p.returncode, out + err, time.monotonic() - begun


def check_signals():
    for number in (signal.SIGINT, signal.SIGTERM):
        name = number.name
        status, output, took = interrupt("note", [number])
        expect(output.count(f"caught {name}") == 2, f"{name} is passed on", output)
        expect(status == 0 and took < SOON, f"{name}: ranks that end well", output)
    status, output, took = interrupt("ignore", [signal.SIGTERM, signal.SIGTERM])
    expect(status == 128 + signal.SIGKILL and "SIGTERM was passed on" in output
           and "SIGKILL" in output and took < SOON, "a second signal kills", output)


def check_killed_launcher():
    """On Linux the ranks end even if the launcher cannot end them."""
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen([WEBER, "launch", "-np", "2", *RANK, "fail", "status", folder],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=PLAIN) as p:
            end = time.monotonic() + SOON
            while len(numbers := processes_of(folder)) < 4 and time.monotonic() < end:
                time.sleep(0.02)
            p.kill()
        ranks = numbers[::2]
        while any(alive(n) for n in ranks) and time.monotonic() < end:
            time.sleep(0.02)
        for number in numbers[1::2]:        # what the ranks have started is not known to it
            os.kill(number, signal.SIGKILL)
        expect(len(ranks) == 2 and not any(alive(n) for n in ranks), "ranks of a killed launcher",
               numbers)


def check_closed_files():
    """A launcher that is started without some of the standard files, as by a daemon: what ranks
    write to is no pipe of the launcher."""
    for closed in ("<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        with tempfile.TemporaryDirectory() as folder:
            script = f'"{WEBER}" launch -np 2 sh -c "echo hello; echo hello >&2; sleep 0.5; ' \
                     f'echo x > {folder}/done-\\$WEBER_RANK" {closed}'
            done = subprocess.run(["sh", "-c", script], capture_output=True, text=True,
                                  timeout=MINUTE, check=False, env=PLAIN)
            ended = len(os.listdir(folder))
            if " >&-" in f" {closed}":      # the output of the ranks is lost, which is an error
                expect(done.returncode == 1 and "passed on" not in done.stderr, closed, done)
                expect("2>&-" in closed or done.stderr.endswith(
                    f"weber: standard output: {os.strerror(errno.EBADF)}\n"), closed, done)
            else:
                expect(done.returncode == 0 and ended == 2, f"{closed}: {ended}", done)
                expect(sorted(done.stdout.split()) == ["[0]", "[1]", "hello", "hello"], closed,
                       done)
    for words in (["version"], ["explain", "W0201"], ["devices"], ["foo"]):
        script = f'exec "{WEBER}" "$@" <&- 2>&-'
        done = subprocess.run(["sh", "-c", script, "sh", *words], capture_output=True, text=True,
                              timeout=MINUTE, check=False, env=PLAIN)
        expect(done.returncode == (2 if words == ["foo"] else 0), f"{words}: {done.returncode}",
               done)


def check_escapes():
    r = Run("-np", "1", "sh", "-c", r"printf '\033[31mthe cause\tis\n' >&2; exit 3")
    last = r.err.splitlines()[-1]
    expect(r.status == 3 and "stderr: \\x1b[31mthe cause\\tis" in last, "escapes", r.all)


def check_few_files():
    begun = time.monotonic()
    done = subprocess.run(["sh", "-c", f'ulimit -n 24 && exec "{WEBER}" launch -np 30 sleep 77'],
                          capture_output=True, text=True, timeout=MINUTE, check=False, env=PLAIN)
    expect(done.returncode == 1 and os.strerror(errno.EMFILE) in done.stderr and
           "cannot be started" in done.stderr, "too many ranks for the limit of files", done.stderr)
    took = time.monotonic() - begun
    expect(took < GRACE, f"the ranks that have started end by SIGTERM: {took:.1f} s", done.stderr)


def check_programs():
    with tempfile.TemporaryDirectory() as folder:
        plain = f"{folder}/plain"
        with open(plain, "w", encoding="ascii") as file:
            file.write("text")
        for program in ("./no-such-program", plain, folder):
            r = Run("-np", "3", program)
            expect(r.status == 127 and program in r.err and r.err.count("\n") == 1,
                   f"{program} cannot be executed", r.all)
    r = Run("-np", "2", "--", "sh", "-c", "exit $#", "a", "-np", "--")
    expect(r.status == 2, "arguments of the program are its own", r.all)


def check_closed_output():
    """The reader of the output goes away, as in `weber launch ... | head`."""
    with subprocess.Popen([WEBER, "launch", "-np", "2", "yes"], text=True, env=PLAIN,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        p.stdout.readline()
        p.stdout.close()
        err = p.stderr.read()
        status = p.wait(timeout=SOON)
        expect(status == 1 and "standard output: " + os.strerror(errno.EPIPE) in err,
               "ranks end if nothing reads them", err)


def check_rendezvous():
    r = Run("-np", "4", sys.argv[2], "rank")
    expect(r.status == 0 and sorted(r.out.split("\n")[:-1]) == [f"[{k}] 4711" for k in range(4)],
           "the ranks meet at the address of the launcher", r.all)


def check_wrong_use():
    for words, facts in (([], "-np"), (["-np"], "-np"), (["-np", "0", "true"], "-np 0"),
                         (["-np", "-3", "true"], "-np -3"), (["-np", "two", "true"], "-np two"),
                         (["-np", "2x", "true"], "-np 2x"), (["-np", "", "true"], "-np "),
                         (["-np", "99999999999999999999", "true"], "-np 9999"),
                         (["-np", "2"], "program"), (["-np", "2", "--"], "program"),
                         (["-z", "true"], "-z"), (["true"], "-np")):
        r = Run(*words)
        expect(r.status == 2 and facts in r.err and not r.out and r.err.count("\n") == 1,
               f"wrong use: {words}", r.all)
    r = Run("--help")
    expect(r.status == 0 and "-np N" in r.out and not r.err, "--help", r.all)


check_environment()
check_lines()
check_failures()
check_left_processes()
check_signals()
check_closed_files()
check_escapes()
check_few_files()
if sys.platform == "linux":
    check_killed_launcher()
check_programs()
check_closed_output()
check_rendezvous()
check_wrong_use()
