#!/usr/bin/env python3
"""Tests how bench/run.py chooses and compares the rivals: without PyTorch, JAX and ONNX Runtime."""
import json
import struct
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import rivals                                           # noqa: E402  (needs the line above)
import run                                              # noqa: E402
import twins                                            # noqa: E402


def expect(found, wanted, check):
    if found != wanted:
        sys.exit(f"FAILED: {check}: {found!r} instead of {wanted!r}")
    print(f"ok: {check}")


# torch.__config__.show() of PyPI's wheel, shortened, and of a build as Debian's, which needs
# libblas.so.3 and may not name its BLAS
WHEEL = """PyTorch built with:
  - GCC 13.3
  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for Intel(R) 64
  - Intel(R) MKL-DNN v3.13.3 (Git Hash b38f97eb6f2173513112f15a0481750b8a66e901)
  - LAPACK is enabled (usually provided by MKL)
  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release, LAPACK_INFO=mkl, USE_MKL=ON
"""
DEBIAN = """PyTorch built with:
  - GCC 12.2
  - Intel(R) MKL-DNN v2.6.3
  - LAPACK is enabled (usually provided by MKL)
  - Build settings: BLAS_INFO=DEBIAN_INFO, BUILD_TYPE=None, LAPACK_INFO=generic, USE_MKL=OFF
"""
LIB = "/usr/lib/x86_64-linux-gnu/"


def check_blas():
    numpy = "/venv/site-packages/numpy.libs/libscipy_openblas64_-32a4b2a6.so"
    for kind in ("BLAS_INFO=open, ", "BLAS_INFO=generic, ", ""):
        text = DEBIAN.replace("BLAS_INFO=DEBIAN_INFO, ", kind)
        reference = [numpy, LIB + "blas/libblas.so.3.11.0", LIB + "lapack/liblapack.so.3.11.0"]
        expect(rivals.blas_of(text, reference), "", f"{kind}the reference BLAS")
        expect(rivals.blas_of(text, [LIB + "openblas-openmp/libblas.so.3", numpy]), "OpenBLAS",
               f"{kind}OpenBLAS in the place of libblas")
    expect(rivals.blas_of(WHEEL, [numpy]), "MKL 2024.2", "the wheel has MKL")
    expect(rivals.blas_of(DEBIAN.replace("DEBIAN_INFO", "generic"), [numpy]), "",
           "NumPy's OpenBLAS is not PyTorch's")
    expect(rivals.blas_of(DEBIAN.replace("DEBIAN_INFO", "open"), []), "OpenBLAS",
           "OpenBLAS inside of PyTorch's library, as on 64-bit ARM")
    expect(rivals.blas_of(DEBIAN.replace("DEBIAN_INFO", "accelerate"), []), "Accelerate", "macOS")
    expect(rivals.blas_of("PyTorch built with:\n", []), "", "no BLAS")


def check_choice():
    bad = {"version": "1.13.1", "config": DEBIAN.replace("DEBIAN_INFO", "generic"),
           "mapped": [LIB + "blas/libblas.so.3.11.0"]}
    old = {"version": "2.9.1+cpu", "config": WHEEL, "mapped": []}
    new = {"version": "2.15.0+cu132", "config": WHEEL, "mapped": []}
    expect(rivals.choose({"a": old, "b": new, "c": bad}), ("b", new), "2.15 is newer than 2.9")
    expect(rivals.choose({"a": dict(new, version="9.0", config=bad["config"]), "b": old}),
           ("b", old), "a newer PyTorch without a good BLAS is not used")
    python, reason = rivals.choose({"/usr/bin/python3": bad})
    expect((python, "reference BLAS" in reason, "./run bench --rivals" in reason),
           (None, True, True), "a PyTorch with the reference BLAS is refused with the cure")
    expect("installed" in rivals.choose({})[1], True, "nothing is installed")
    jax = {"version": "0.10.2", "config": "", "mapped": []}
    expect(rivals.choose({"a": dict(jax, version="0.9.9"), "b": jax}), ("b", jax), "the newest JAX")


def check_ratio():
    steps = {"weber": 12.0, "weber-compiled": 4.0, "torch": 100.0, "jax": 16.0}
    expect(run.ratio(steps), (0.25, "jax"), "the better mode beside the fastest rival")
    expect(run.ratio(dict(steps, weber=2.0)), (0.125, "jax"), "the plain loop may be the better")
    expect(run.ratio({"weber": 1.0}), None, "no rival, no ratio")
    expect(run.ratio({"torch": 1.0}), None, "no Weber, no ratio")
    own = {"workload": "W1", "batch": 64, "parameters": 17, "first_loss": 2.0, "second_loss": 1.0}
    expect(run.disagreement(own, dict(own, first_loss=2.00019)), "", "first losses within 1e-4")
    for change in ({"first_loss": 2.0003}, {"second_loss": 1.002}, {"first_loss": None},
                   {"batch": 32}, {"parameters": 18}):
        expect(bool(run.disagreement(own, dict(own, **change))), True, f"other work: {change}")
    own["workload"] = "G2"
    expect(run.disagreement(own, dict(own, second_loss=1.01)), "", "G2 is sensitive to rounding")


def check_start():
    """Parameters come in the order of the layers, with one product for query, key and value."""
    shapes = {"0.layers.10.bias": [1], "0.layers.2.bias": [2], "0.layers.2.scale": [2],
              "0.layers.2.mean": [2], "0.layers.3.k_proj.weight": [2, 2],
              "0.layers.3.out_proj.weight": [3, 2], "0.layers.3.q_proj.weight": [2, 2],
              "0.layers.3.v_proj.weight": [2, 2], "1.0": [4], "1.1": [1], "1.10": [7], "1.11": [1],
              **{f"1.{k}": [k] for k in range(2, 10)}}
    header, data = {"__metadata__": {"a": "b"}}, b""
    for number, (name, shape) in enumerate(shapes.items()):
        count = 1
        for length in shape:
            count *= length
        raw = struct.pack("<f", number) * count
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "start.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        parameters, batches = twins.read_start(path)
    expect([list(p.shape) for p in parameters], [[2], [2], [6, 2], [3, 2], [1]],
           "the order of the parameters")
    expect(parameters[2][::2, 0].tolist(), [6.0, 4.0, 7.0], "query, key, value")
    expect([x.size for x, _ in batches], [4, 2, 4, 6, 8, 7], "the order of the batches")


check_blas()
check_choice()
check_ratio()
for threads in range(1, run.available() + 1):
    expect(len(set(run.processors(threads) or range(threads))), threads,
           f"{threads} processors for {threads} threads")
try:
    import numpy                                        # noqa: F401  (twins.py needs it)
except ImportError:
    print("skipped: NumPy is not installed")
else:
    check_start()
