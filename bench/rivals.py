"""The rivals that run.py measures: the Pythons that have them, and whether they are worth it."""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build"
NAMES = {"torch": "PyTorch", "torch-nhwc": "PyTorch, channels last",
         "torch-compile": "torch.compile", "torch-compile-nhwc": "torch.compile, channels last",
         "jax": "JAX", "onnxruntime": "ONNX Runtime"}
IMPORTS = {"torch": "torch", "jax": "jax", "onnxruntime": "onnx, onnxruntime"}
PROBE = """
import {imports}, json, numpy, sys
about = {{"version": {library}.__version__, "config": "", "mapped": []}}
if "{library}" == "torch":
    about["config"] = torch.__config__.show()
    try:
        about["mapped"] = sorted({{line.split()[-1] for line in open("/proc/self/maps")}})
    except OSError:
        pass
print(json.dumps(about))
"""
BLAS = {"mkl": "MKL", "open": "OpenBLAS", "openblas": "OpenBLAS", "blis": "BLIS", "atlas": "ATLAS",
        "flexi": "FlexiBLAS", "accelerate": "Accelerate", "veclib": "Accelerate", "nvpl": "NVPL",
        "essl": "ESSL", "armpl": "Arm Performance Libraries"}
CURE = "./run bench --rivals installs the newest; Debian's needs libopenblas0-openmp"


def blas_of(config, mapped):
    """The name of PyTorch's BLAS; "" if it is the reference BLAS or none.

    config: torch.__config__.show().  mapped: the files that the process has mapped.  Debian's
    libblas.so.3 may be a library of any maker: the folder or name of the mapped file decides.
    """
    own = [path for path in mapped if not re.search(r"/(numpy|scipy)", path)]
    for path in own:
        if re.search(r"/lib(blas|openblas|blis|mkl_rt)[^/]*$", path):
            known = re.search(r"openblas|blis|mkl|atlas", path)
            return BLAS[known.group()] if known else ""
    built = re.search(r"BLAS_INFO=(\w+)", config)
    kind = built.group(1).lower() if built else ""
    if kind == "mkl" or not built and "Math Kernel Library" in config:
        version = re.search(r"Math Kernel Library Version (\S+?)(?:-\w+)? ", config)
        return f"MKL {version.group(1)}" if version else "MKL"
    return BLAS.get(kind, "")


def numbers(version):
    """2.15.0+cu132 as (2, 15, 0)"""
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0]))


def choose(found):
    """(Python, its report) of the newest good library of {Python: report}, or (None, reason)."""
    reason = "is not installed (./run bench --rivals installs it)"
    for python, about in sorted(found.items(), key=lambda x: numbers(x[1]["version"]),
                                reverse=True):
        if not about["config"] or blas_of(about["config"], about["mapped"]):
            return python, about
        reason = (f"{about['version']} of {python} has neither MKL nor OpenBLAS, only the "
                  f"reference BLAS, which is 10 to 20 times slower; {CURE}")
    return None, reason


def pythons():
    wishes = [os.environ.get("BENCH_PYTHON"), str(BUILD / "bench-venv" / "bin" / "python3"),
              sys.executable, "/usr/bin/python3", "python3"]
    return [path for path in dict.fromkeys(shutil.which(wish) for wish in wishes if wish) if path]


def find(side):
    """(Python, its report) of a rival, or (None, the reason why it is left out)."""
    if side.startswith("torch-compile") and not any(map(shutil.which, ("g++", "c++", "clang++"))):
        return None, "needs a C++ compiler"
    return find_library(side.partition("-")[0])


@functools.lru_cache
def find_library(library):
    code, found = PROBE.format(imports=IMPORTS[library], library=library), {}
    for python in pythons():
        try:
            run = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=300,
                                 env=environment(), check=True)
            found[python] = json.loads(run.stdout.strip().splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            pass
    return choose(found)


def environment():
    """The environment variables with which the rivals are fastest on this machine."""
    result = dict(os.environ)
    for name in ("OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA"):
        result.pop(name, None)
    try:
        if "avx512f" in Path("/proc/cpuinfo").read_text():
            result["ATEN_CPU_CAPABILITY"] = "avx512"
    except OSError:
        pass
    result.update(MALLOC_TRIM_THRESHOLD_=str(1 << 33), MALLOC_MMAP_THRESHOLD_=str(1 << 33),
                  MALLOC_TOP_PAD_=str(1 << 26), CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu",
                  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0", PYTHONWARNINGS="ignore")
    result.setdefault("TORCHINDUCTOR_CACHE_DIR", str(BUILD / "peers" / "inductor"))
    result.setdefault("JAX_COMPILATION_CACHE_DIR", str(BUILD / "peers" / "jax"))
    for folder in sorted(Path("/usr/lib").glob("*/openblas-openmp")):
        path = f"{folder}:{result.get('LD_LIBRARY_PATH', '')}"
        result["LD_LIBRARY_PATH"] = path.rstrip(":")
    return result


def command(side, python):
    if side == "jax":
        return [python, str(HERE / "jax_twin.py")]
    if side == "onnxruntime":
        return [python, str(HERE / "onnx_twin.py")]
    mode = "compile" if side.startswith("torch-compile") else "eager"
    layout = ["--channels-last"] if side.endswith("-nhwc") else []
    return [python, str(HERE / "torch_twin.py"), "--mode", mode, *layout]
