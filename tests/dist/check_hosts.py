#!/usr/bin/env python3
"""Tests ranks on two machines, which are network namespaces with a host name each, joined by a
cable: a training over MPICH by TCP, and the rendezvous of ranks by TCP.

    check_hosts.py RENDEZVOUS [MPIEXEC PROGRAM]

RENDEZVOUS is the program of rendezvous.c, PROGRAM that of hosts.c, built with MPICH.  Namespaces
need Linux, root and iproute2.  The exit status is 77, with the reason, if something is missing.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
LIMIT = 120         # seconds
ADDRESS = ("10.77.0.1", "10.77.0.2")
PREFIX = "weber-hosts-"
HOSTS = tuple(f"{PREFIX}{os.getpid()}-{i}" for i in range(2))

# MPICH before its pull request 6596 (2023) may never return from MPI_Finalize over UCX's TCP: a
# rank that has disconnected waits in a barrier of PMI, and does not answer the ranks that still
# disconnect from it.  A program that only calls MPI_Allreduce hangs so too, and no setting avoids
# it.  Weber's time-out ends such ranks with this message.
UNFINISHED = "in MPI_Finalize, after the last operation of all ranks"

# What MPICH starts programs with, in place of ssh: RSH [OPTION...] ADDRESS COMMAND...
RSH = """#!/bin/sh
while case "$1" in -*) true;; *) false;; esac; do shift; done
case "$1" in {0}) host={2};; {1}) host={3};; *) exit 9;; esac
shift
exec ip netns exec $host unshare -u sh -c "hostname $host; $*"
"""


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(SKIPPED)


def expect(condition, what, output=""):
    if not condition:
        sys.exit(f"FAILED: {what}\n{output}")
    print(f"ok: {what}", flush=True)


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


def remove(host):
    """Ends what runs on a host, and removes it."""
    for number in ip("netns", "pids", host).stdout.split():
        try:
            os.kill(int(number), signal.SIGKILL)
        except ProcessLookupError:
            pass
    ip("netns", "del", host)


def remove_left():
    """Removes hosts of a run that was killed."""
    for name in ip("netns", "list").stdout.split():
        if name.startswith(PREFIX) and not os.path.exists("/proc/" + name.split("-")[2]):
            remove(name)


def make_hosts():
    for host in HOSTS:
        done = ip("netns", "add", host)
        if done.returncode:
            skip(f"no network namespace can be made: {done.stderr.strip()}")
    done = ip("link", "add", "eth0", "netns", HOSTS[0], "type", "veth", "peer", "name", "eth0",
              "netns", HOSTS[1])
    if done.returncode:
        skip(f"no cable between network namespaces can be made: {done.stderr.strip()}")
    for host, address in zip(HOSTS, ADDRESS):
        for words in (("addr", "add", address + "/24", "dev", "eth0"),
                      ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
            done = ip("-n", host, *words)
            expect(done.returncode == 0, f"{host}: ip {' '.join(words)}", done.stderr)
    end = time.monotonic() + LIMIT
    while any("state UP" not in ip("-n", host, "link", "show", "eth0").stdout for host in HOSTS):
        if time.monotonic() > end:
            sys.exit("FAILED: the cable does not connect the hosts")
        time.sleep(0.05)


def start(words, **variables):
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            start_new_session=True, env=dict(os.environ, **variables))


def end(process):
    """Ends a process and what it has started, which mpiexec does on SIGTERM."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def finish(what, process, excuse=None):
    """The output of a process that must end well within the time limit.  It may fail with the
    message `excuse` about a defect that is not Weber's."""
    try:
        output = process.communicate(timeout=LIMIT)[0]
    except subprocess.TimeoutExpired:
        end(process)
        sys.exit(f"FAILED: {what}: does not end within {LIMIT} s\n{process.communicate()[0]}")
    except SystemExit:
        end(process)
        raise
    if excuse and process.returncode and excuse in output:
        print(f"note: {what}: MPI_Finalize of MPICH has not returned, after all operations")
        return output
    expect(process.returncode == 0, f"{what}: the exit status is 0",
           f"status {process.returncode}\n{output}")
    return output


def check_rendezvous(program):
    """Four ranks, two on each host, meet at an address of the first host."""
    ranks = [start(["ip", "netns", "exec", HOSTS[rank // 2], program, "rank"],
                   WEBER_RENDEZVOUS=f"{ADDRESS[0]}:29577", WEBER_RANK=str(rank), WEBER_SIZE="4",
                   WEBER_LOCAL_RANK=str(rank % 2), WEBER_LOCAL_SIZE="2") for rank in range(4)]
    for rank, process in enumerate(ranks):
        output = finish(f"rendezvous: rank {rank}", process)
        expect(output == "4711\n", f"rendezvous: rank {rank} gets the bytes of rank 0", output)


def losses(what, output):
    found = re.findall(r"^step (\d+): (\S+)$", output, re.MULTILINE)
    expect([int(step) for step, _ in found] == list(range(1, 13)), f"{what}: twelve losses", output)
    return [float(loss) for _, loss in found]


def places(output):
    return sorted(re.findall(r"^rank (\d) of (\d): local (\d) of (\d) on (\S+)$", output,
                             re.MULTILINE))


def check_training(mpiexec, program, rsh, ranks):
    """The ranks of two hosts have the losses of the same ranks on one."""
    what = f"{ranks} ranks"
    alone = finish(what + " on one host", start([mpiexec, "-np", str(ranks), program]))
    own = os.uname().nodename
    expect(places(alone) == [(str(r), str(ranks), str(r), str(ranks), own) for r in range(ranks)],
           f"{what} on one host: their places", alone)
    # UCX would see through the namespaces, and use shared memory instead of TCP.
    command = (f"hostname {HOSTS[0]}; exec {mpiexec} -launcher ssh -launcher-exec {rsh} -iface eth0"
               f" -hosts {','.join(ADDRESS)} -np {ranks} -ppn {ranks // 2} -genv UCX_TLS tcp,self"
               f" -genv UCX_NET_DEVICES eth0 {program}")
    output = finish(what + " on two hosts",
                    start(["ip", "netns", "exec", HOSTS[0], "unshare", "-u", "sh", "-c", command]),
                    UNFINISHED)
    expect(all(f"rank {r} is done\n" in output for r in range(ranks)),
           f"{what} on two hosts: all are done", output)
    half = ranks // 2
    expect(places(output) == [(str(r), str(ranks), str(r % half), str(half), HOSTS[r // half])
                              for r in range(ranks)], f"{what} on two hosts: their places", output)
    one, two = losses(what + " on one host", alone), losses(what + " on two hosts", output)
    apart = max(abs(x - y) / abs(x) for x, y in zip(one, two))
    expect(apart < 2e-6, f"{what}: the losses are {apart:.1e} apart", f"{one}\n{two}")
    expect(one[-1] < 0.9 * one[0], f"{what}: the losses fall", one)


def main():
    if sys.platform != "linux":
        skip("network namespaces need Linux")
    if os.geteuid():
        skip("network namespaces need root")
    for program, package in (("ip", "iproute2"), ("unshare", "util-linux")):
        if not shutil.which(program):
            skip(f"{program} is not installed: apt-get install {package}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: ended by SIGTERM"))
    remove_left()
    try:
        make_hosts()
        check_rendezvous(sys.argv[1])
        if len(sys.argv) < 4:
            skip("MPICH is not installed: the rendezvous was tested, and no training")
        with tempfile.TemporaryDirectory() as folder:
            rsh = os.path.join(folder, "rsh")
            with open(rsh, "w", encoding="ascii") as file:
                file.write(RSH.format(*ADDRESS, *HOSTS))
            os.chmod(rsh, 0o755)
            for ranks in (2, 4):
                check_training(sys.argv[2], sys.argv[3], rsh, ranks)
    finally:
        for host in HOSTS:
            remove(host)


main()
