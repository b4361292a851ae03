"""For gpu.py: the machine, and the processes that are measured on it."""
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROBES = {
    "torch": "import json, torch; print(json.dumps({'PyTorch': torch.__version__,"
             " 'CUDA of PyTorch': torch.version.cuda,"
             " 'cuDNN of PyTorch': torch.backends.cudnn.version(),"
             " 'gpu': torch.cuda.is_available()}))",
    "jax": "import json, jax; print(json.dumps({'JAX': jax.__version__,"
           " 'gpu': jax.default_backend() == 'gpu'}))",
}
# Environment variables that name caches of compiled kernels, and the folders of the caches.
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton",
          "JAX_COMPILATION_CACHE_DIR": "jax", "CUDA_CACHE_PATH": "cuda"}


class Trouble(Exception):
    """A program failed; the text is the reason."""


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def result_of(command, environment=None, limit=60):
    """Runs a program for at most `limit` seconds; the JSON object that it prints last."""
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True,
                             timeout=limit, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Trouble(str(error)) from error
    if run.returncode:
        raise Trouble(last_line(run.stderr) or f"exit status {run.returncode}")
    try:
        return json.loads(run.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise Trouble(f"no result: {last_line(run.stdout)}") from error


def output_of(*command):
    """The output of a program; "" if it cannot run."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return run.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


class Process:
    """A process of a side: it prints a line of JSON when it is ready, then, for each number of
    seconds that it reads, a line of figures."""
    def __init__(self, side, command, environment):
        self.side, self.started, self.lines = side, time.monotonic(), queue.Queue()
        self.errors = tempfile.TemporaryFile("w+")
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        environment = dict(environment, BENCH_STARTED_AT=repr(now))
        try:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                            start_new_session=True)
        except OSError as error:
            raise Trouble(str(error)) from error
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put(None)

    def next(self, end, state):
        """The next line of JSON; Trouble "not STATE" if it does not come before `end`."""
        try:
            line = self.lines.get(timeout=max(0.1, end - time.monotonic()))
        except queue.Empty:
            self.stop()
            seconds = time.monotonic() - self.started
            raise Trouble(f"not {state} after {seconds:.0f} s") from None
        if line is None:
            self.stop()
            self.errors.seek(0)
            reason = last_line(self.errors.read())
            raise Trouble(reason or f"ended with exit status {self.process.returncode}")
        try:
            return json.loads(line)
        except ValueError:
            raise Trouble(f"no result: {line[:200]}") from None

    def ready(self, end):
        return self.next(end, "ready")

    def measure(self, seconds, end):
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        except OSError:
            pass                        # it has ended: next() finds the reason
        figures = self.next(end, "done")
        figures["side"] = self.side
        return figures

    def hang_up(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass

    def stop(self):
        """Waits 3 s for the process to end, then kills it and the processes that it started."""
        self.hang_up()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def descendants(root):
    """The process ids of the children of a process, of their children, and so on."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue                    # it has ended
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, waiting = [], [root]
    while waiting:
        found += children.get(waiting[-1], [])
        waiting += children.get(waiting.pop(), [])
    return found


class Warming:
    """Compiles the kernels of large workloads ahead, one job after the other, into kept caches.

    A job is a (side, workload, dtype).  Jobs run only inside of `with warming:` and are stopped
    elsewhere, so that they do not disturb measurements.
    """
    def __init__(self, machine, jobs, note):
        self.machine, self.jobs, self.note = machine, list(jobs), note
        self.process, self.job = None, None

    def signal(self, number):
        for pid in [self.process.pid, *descendants(self.process.pid)] if self.process else []:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def next(self):
        """Starts the next job if none is running."""
        if self.process and self.process.poll() is not None:
            if self.process.returncode:
                self.note(f"{' '.join(self.job)}, compiled ahead: exit status "
                          f"{self.process.returncode}")
            self.process = None
        if not self.process and self.jobs:
            self.job = self.jobs.pop(0)
            side, workload, dtype = self.job
            command = [*self.machine.command(side), "--workload", workload, "--dtype", dtype,
                       "--hold"]
            self.process = subprocess.Popen(command, env=self.machine.environment,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL, start_new_session=True)

    def __enter__(self):
        try:
            self.next()
        except OSError as error:
            self.note(f"{' '.join(self.job)}, compiled ahead: {error}")
        self.signal(signal.SIGCONT)

    def __exit__(self, *_):
        self.signal(signal.SIGSTOP)

    def finish(self, end):
        """Runs the remaining jobs until `end`, then stops."""
        while time.monotonic() < end and (self.process or self.jobs):
            with self:
                while self.process and self.process.poll() is None and time.monotonic() < end:
                    time.sleep(0.2)
        self.stop()

    def stop(self):
        self.jobs = []
        self.signal(signal.SIGKILL)
        if self.process:
            self.process.wait()
            self.process = None


class Machine:
    """This machine: Weber's programs, the Pythons with PyTorch and JAX, and the device."""
    def __init__(self, options):
        self.device = options.device
        self.build = Path(options.build)
        self.own = dict(item.split("=", 1) for item in options.peer)
        self.running = []
        self.environment = dict(os.environ)
        self.environment.update(XLA_PYTHON_CLIENT_PREALLOCATE="false",
                                TORCHINDUCTOR_COMPILE_THREADS="4", PYTHONWARNINGS="ignore")
        cache = Path(options.cache or self.build / "peers").resolve()       # kept between runs
        for name, folder in CACHES.items():
            self.environment.setdefault(name, str(cache / folder))
        self.environment.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "1")
        self.pythons, self.versions = {}, {}
        kinds = {side.partition("-")[0] for side in options.sides if side not in self.own}
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.find_python, sorted(kinds & set(PROBES))))
        self.describe()

    def find_python(self, name):
        """Finds a Python with the library `name`; for CUDA the library must also find a GPU."""
        for python in dict.fromkeys([sys.executable, "python3", "/usr/bin/python3"]):
            try:
                found = result_of([python, "-c", PROBES[name]], self.environment, 120)
            except Trouble:
                continue
            if found.pop("gpu") or self.device != "CUDA":
                self.pythons[name] = python
                self.versions.update({k: v for k, v in found.items() if v is not None})
                return

    def describe(self):
        self.listing = output_of(str(self.build / "weber"), "devices", "--verbose")
        smi = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                        "--format=csv,noheader,nounits")
        self.gpu, self.memory = self.device, 0
        if self.device == "CUDA" and smi.count(",") >= 2:
            name, driver, megabytes = (part.strip() for part in smi.splitlines()[0].split(",")[:3])
            self.gpu, self.memory = name, float(megabytes) * 2**20
            self.versions["driver"] = driver
        git = ("git", "-C", str(HERE))
        commit = output_of(*git, "rev-parse", "--short", "HEAD")
        commit = commit or os.environ.get("WEBER_COMMIT", "unknown")
        changed = output_of(*git, "status", "--porcelain", "--untracked-files=no")
        self.versions["Weber"] = commit + (", changed" if changed else "")

    def missing(self, side):
        """The reason for which a side cannot be measured on this machine; "" if it can."""
        kind = side.partition("-")[0]
        if side in self.own or kind in self.pythons:
            return ""
        library = {"torch": "PyTorch", "jax": "JAX"}.get(kind, side)
        return library + " is not installed, or finds no GPU"

    def command(self, side):
        kind, _, mode = side.partition("-")
        if side in self.own:
            return shlex.split(self.own[side])
        if kind == "weber":
            program = str(self.build / "bench" / "weber_bench")
            return [program, "--mode", side, "--device", self.device]
        if kind == "jax":
            return [self.pythons["jax"], str(HERE / "jax_twin.py")]
        device = "cuda" if self.device == "CUDA" else "cpu"
        plain = mode[:-5] if mode.endswith("-nhwc") else mode
        last = ["--channels-last"] if plain != mode else []
        return [self.pythons["torch"], str(HERE / "torch_twin.py"), "--device", device,
                "--mode", plain, *last]

    def start(self, side, workload, dtype):
        command = [*self.command(side), "--workload", workload, "--dtype", dtype, "--hold"]
        self.running.append(Process(side, command, self.environment))
        return self.running[-1]

    def stop_all(self):
        for process in self.running:
            process.hang_up()
        while self.running:
            self.running.pop().stop()

    def losses(self, workload, device, dtype="f32", deterministic=False):
        command = [str(self.build / "bench" / "weber_bench"), "--workload", workload,
                   "--device", device, "--losses", "50", "--mode", "weber-compiled",
                   "--dtype", dtype, "--threads", str(os.cpu_count() or 1)]
        environment = dict(self.environment)
        if deterministic:
            environment["WEBER_DETERMINISTIC"] = "1"
        return result_of(command, environment, 120)

    def parts(self, side, products):
        if side == "weber":
            command = [str(self.build / "bench" / "speed_bench"), self.device]
        else:
            command = [self.pythons["torch"], str(HERE / "torch_parts.py"),
                       "cuda" if self.device == "CUDA" else "cpu"]
        return result_of(command + ([] if products else ["0", "64"]), self.environment, 90)
