"""What a compiler makes of a kernel: registers, spills, and the instructions of its hot loop.

NVRTC compiles for NVIDIA's GPUs, and nvdisasm and cuobjdump show the code; clang compiles for
AMD's.  A loop is the code that a branch back to its beginning repeats, without the loops inside it.
The hot loop of a kernel is the one with the most multiply-adds, where those of a loop inside
another count sixteen times; without any, the one that loads the most bytes.

The share of the peak is an upper bound by issue slots: the cycles that the multiply-adds of the
loop take at the peak of a scheduler, over the cycles in which it issues the loop's instructions.
"""
import ctypes
import glob
import hashlib
import inspect
import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from shutil import which

CORES = os.cpu_count() or 1
# What ends a block; NVIDIA's compiler also leaves loops by conditional calls of labels.
BRANCH = r"(BRA|CALL|EXIT|RET|JMP|BRX)\b|s_c?branch|s_endpgm|s_setpc"

# Multiply-adds a cycle of one scheduler (NVIDIA: a quarter of an SM; AMD: a SIMD of a CU) in f32
# without matrix units, in f32 with them (TF32 on NVIDIA's), and in 16 bits; items of a warp; cycles
# in which one instruction is issued.
ARCHS = {"sm_80": (16, 128, 256, 32, 1), "sm_90": (32, 256, 512, 32, 1),
         "gfx90a": (32, 32, 128, 64, 4)}
NVIDIA = ("sm_80", "sm_90")
RTC_OPTIONS = ["--fmad=false", "-default-device", "-w"]


class Instruction:
    """One instruction: its name and operands, and per item the multiply-adds and bytes it loads."""
    def __init__(self, name, operands):
        self.name, self.operands = name, operands
        self.macs, self.on_matrix, self.issued = 0.0, False, True
        self.leaves = False             # the next instruction follows from elsewhere only
        self.ticket = False             # what follows is for the group with the last ticket
        self.load = self.store = self.local = 0         # bytes: global loads, stores, local loads


# ---- NVIDIA --------------------------------------------------------------------------------------

SHAPES = {"16816": 16 * 8 * 16, "1688": 16 * 8 * 8, "1684": 16 * 8 * 4, "884": 8 * 8 * 4}


# A branch to a label that no operand is a condition of, and the end of a kernel.
LEAVES = re.compile(r"BRA(\.\w+)* `?\(?\.L|(EXIT|RET|JMP|BRX)\b")


def sass_width(words):
    """The bytes of a load or store with these modifiers."""
    for word, size in (("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1)):
        if word in words:
            return size
    return 4


def sass_instruction(name, operands):
    i = Instruction(name, operands)
    base, *words = name.split(".")
    if base in ("FFMA", "DFMA"):
        i.macs = 1
    elif base in ("FFMA2", "HFMA2") and "RZ, RZ" not in operands:       # else it moves a constant
        i.macs = 2
    elif base == "HMMA":
        i.macs, i.on_matrix = SHAPES.get(words[0], 0) / 32, True
    elif base == "HGMMA":                               # 64xNxK, by four warps
        m, n, k = map(int, words[0].split("x"))
        i.macs, i.on_matrix = m * n * k / 128, True
    elif base in ("LDG", "LDGSTS"):
        i.load = sass_width(words)
    elif base == "LD" and "CONSTANT" not in words:
        i.load = sass_width(words)
    elif base in ("STG", "ST"):
        i.store = sass_width(words)
    elif base == "ATOMG":
        i.ticket = True
    elif base == "LDS":
        i.local = sass_width(words)
    elif base == "LDSM":                                # ldmatrix: 4 bytes an item and matrix
        i.local = 4 * int(words[-1])
    i.issued = base != "NOP"
    return i


def read_sass(text):
    """{kernel: [instructions and labels]} of nvdisasm's output; a label is a string."""
    kernels, code = {}, None
    for line in text.splitlines():
        section = re.match(r"\s*\.section\s+\.text\.([\w$]+)", line)
        label = re.match(r"(\.L_\w+):", line)
        words = re.match(r"\s*/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;", line)
        if section:
            code = kernels.setdefault(section[1], [])
        elif label and code is not None:
            code.append(label[1])
        elif words and code is not None:
            code.append(sass_instruction(words[2], words[3]))
            code[-1].leaves = not words[1] and bool(LEAVES.match(f"{words[2]} {words[3]}"))
    return kernels


def read_usage(text):
    """{kernel: (registers, bytes of local memory, of shared memory)} of cuobjdump's output"""
    return {name: (int(r), int(stack) + int(local), int(shared))
            for name, r, stack, shared, local in re.findall(
                r"Function (\w+):\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", text)}


class Nvrtc:
    """NVRTC with NVIDIA's tools, or `missing`, the reason why it cannot be used."""
    def __init__(self, rtc, library, missing, arch):
        self.rtc, self.library, self.arch, self.missing = rtc, library, arch, missing
        self.tools = [tool(name) for name in ("nvdisasm", "cuobjdump")]
        self.name = None
        if not missing and not all(self.tools):
            self.missing = "no nvdisasm or cuobjdump"
        if not self.missing:
            major, minor = ctypes.c_int(), ctypes.c_int()
            ctypes.CDLL(library).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
            self.name = f"NVRTC {major.value}.{minor.value}"

    def compile(self, path):
        """The figures of each kernel of a text."""
        done = subprocess.run(
            [self.rtc, self.library, "nvrtc", f"--gpu-architecture={self.arch}", *RTC_OPTIONS, "--",
             str(path)], env=os.environ | {"RTC_CUBIN": "1"}, capture_output=True, text=True,
            check=False)
        if done.returncode:
            raise RuntimeError(f"{path}: {done.stdout[-1500:]}")
        code = Path(f"{path}.cubin")
        shown = [subprocess.run([self.tools[n], option, str(code)], capture_output=True, text=True,
                                check=True).stdout for n, option in ((0, "-c"), (1, "-res-usage"))]
        code.unlink()
        usage = read_usage(shown[1])
        return {k: figures(self.arch, *usage[k], v) for k, v in read_sass(shown[0]).items()
                if k in usage}


def tool(name):
    """The path of a tool of CUDA: in PATH, beside the toolkit, or in an installed Triton."""
    found = which(name) or next(iter(sorted(glob.glob(f"/usr/local/cuda*/bin/{name}"))), None)
    triton = None if found else find_spec("triton")
    inside = Path(triton.origin).parent / "backends/nvidia/bin" / name if triton else None
    return found or (str(inside) if inside and inside.exists() else None)


# ---- AMD -----------------------------------------------------------------------------------------

HIP = Path(__file__).resolve().parent / "hip.h"       # without AMD's headers and libraries
AMD_MACS = {"v_fma_f32": 1, "v_fmac_f32": 1, "v_mad_f32": 1, "v_mac_f32": 1, "v_fma_f64": 1,
            "v_fmac_f64": 1, "v_pk_fma_f32": 2, "v_pk_fma_f16": 2, "v_fma_mix_f32": 1,
            "v_dot2_f32_f16": 2, "v_dot2c_f32_f16": 2, "v_fmaak_f32": 1, "v_fmamk_f32": 1}
BLOCKS = {"32x32x4": 2, "16x16x4": 4, "4x4x4": 16, "32x32x1": 2, "16x16x1": 4, "4x4x1": 16}
WIDTHS = {"ubyte": 1, "sbyte": 1, "ushort": 2, "sshort": 2, "byte": 1, "short": 2, "dword": 4,
          "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2,
          "i16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}


def gcn_instruction(name, operands):
    i = Instruction(name, operands)
    plain = re.sub(r"_(e32|e64|dpp|sdwa)$", "", name)
    matrix = re.match(r"v_mfma_f32_((\d+)x(\d+)x(\d+))(f32|f16|bf16)", plain)
    memory = re.match(r"(global|flat)_(load|store)_(\w+?)(_d16.*)?$", plain)     # not of spills
    local = re.match(r"ds_read(2|2st64)?_(\w+?)(_d16.*)?$", plain)
    if matrix:
        m, n, k = map(int, matrix.groups()[1:4])
        f32_whole = matrix[5] == "f32" and matrix[1] == "16x16x4"
        i.macs = m * n * k * (1 if f32_whole else BLOCKS.get(matrix[1], 1)) / 64
        i.on_matrix = True
    elif memory:
        setattr(i, memory[2], WIDTHS.get(memory[3], 4))
    elif local:
        i.local = WIDTHS.get(local[2], 4) * (2 if local[1] else 1)
    else:
        i.macs = AMD_MACS.get(plain, 0)
    i.issued = name.startswith("v_")        # others are issued beside those of other waves
    i.leaves = name in ("s_branch", "s_endpgm", "s_setpc_b64")
    return i


def read_gcn(text):
    """{kernel: [instructions and labels]} of clang's assembly"""
    kernels, code = {}, None
    for line in text.splitlines():
        function = re.match(r"(\w+):\s*; @(\w+)", line)
        label = re.match(r"(\.L\w+):", line)
        words = re.match(r"\t((?:s|v|ds|global|flat|buffer|scratch)_\w+)\s*([^;]*)", line)
        if function:
            code = kernels.setdefault(function[1], [])
        elif line.startswith(".Lfunc_end"):
            code = None
        elif label and code is not None:
            code.append(label[1])
        elif words and code is not None:
            code.append(gcn_instruction(words[1], words[2].strip()))
    return kernels


class Clang:
    """clang for an AMD GPU, or `missing`, the reason why it cannot be used."""
    def __init__(self, clang, arch):
        self.clang, self.arch, self.name, self.missing = clang, arch, None, None
        if not clang:
            self.missing = "no clang"
            return
        shown = subprocess.run([clang, "--print-targets"], capture_output=True, text=True,
                               check=False)
        if "amdgcn" not in shown.stdout:
            self.missing = f"{clang} has no AMD GPUs"
        version = subprocess.run([clang, "--version"], capture_output=True, text=True, check=False)
        self.name = "clang " + re.search(r"version (\S+)", version.stdout)[1]

    def compile(self, path):
        done = subprocess.run(
            [self.clang, "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib",
             f"--offload-arch={self.arch}", "-include", str(HIP), "-ffp-contract=off", "-O3", "-w",
             "-S", "-o", "-", str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{path}: {done.stderr[-1500:]}")
        usage = {}
        for part in re.split(r"^  - \.", done.stdout, flags=re.M):
            found = dict(re.findall(r"\.?(name|vgpr_count|private_segment_fixed_size|"
                                    r"group_segment_fixed_size):\s+'?(\w+)", part))
            if "vgpr_count" in found:
                name = re.findall(r"^    \.name:\s+(\w+)", part, re.M)[-1]
                usage[name] = tuple(int(found[k]) for k in (
                    "vgpr_count", "private_segment_fixed_size", "group_segment_fixed_size"))
        return {k: figures(self.arch, *usage[k], v) for k, v in read_gcn(done.stdout).items()
                if k in usage}


# ---- figures -------------------------------------------------------------------------------------

def blocks_of(code):
    """[(the indices of its instructions, the blocks that it continues with)] of each basic block"""
    begins, labels = {0}, {}
    for at, i in enumerate(code):
        if isinstance(i, str):
            begins.add(at)
        elif re.match(BRANCH, i.name):
            begins.add(at + 1)
    begins = sorted(b for b in begins if b < len(code))
    for n, at in enumerate(begins):
        if isinstance(code[at], str):
            labels[code[at]] = n
    blocks = []
    for n, (begin, end) in enumerate(zip(begins, begins[1:] + [len(code)])):
        own = [at for at in range(begin, end) if isinstance(code[at], Instruction)]
        last = code[own[-1]] if own else None
        target = last and re.match(BRANCH, last.name) and re.search(r"\.L\w+", last.operands)
        follow = {labels[target[0]]} if target and target[0] in labels else set()
        if n + 1 < len(begins) and not (last and last.leaves):
            follow.add(n + 1)
        blocks.append((own, follow))
    return blocks


def loops_of(code):
    """[(the loops around it, the indices of its instructions, the first block of the outermost loop
    around it)] of each loop, without the instructions of the loops inside it

    A loop begins with a block through which every path to its other blocks leads, and to which one
    of them branches.  The order of the code does not count: compilers move blocks that are seldom
    needed behind other code."""
    blocks = blocks_of(code)
    before = [set() for _ in blocks]
    for n, (_, follow) in enumerate(blocks):
        for to in follow:
            before[to].add(n)
    reached, wanted = set(), [0]
    while wanted:
        n = wanted.pop()
        if n not in reached:
            reached.add(n)
            wanted += blocks[n][1]
    # The blocks through which every path to a block leads, as bits.
    through, changed = [1] + [(1 << len(blocks)) - 1] * (len(blocks) - 1), True
    while changed:
        changed = False
        for n in range(1, len(blocks)):
            bits = -1
            for at in before[n]:
                bits &= through[at]
            bits = bits & (1 << len(blocks)) - 1 | 1 << n
            changed |= bits != through[n]
            through[n] = bits
    bodies = {}
    for n in reached:
        for head in blocks[n][1]:
            if through[n] >> head & 1:
                body, wanted = bodies.setdefault(head, {head}), [n]
                while wanted:
                    at = wanted.pop()
                    if at not in body:
                        body.add(at)
                        wanted += before[at]
    loops = []
    for head, body in bodies.items():
        inner = set().union(*(b for h, b in bodies.items() if h != head and h in body))
        outer = [h for h, b in bodies.items() if h != head and head in b]
        own = sorted(at for n in body - inner for at in blocks[n][0])
        if len(own) > 1:                        # code ends with a branch to itself
            loops.append((len(outer), own, min(outer, key=lambda h: -len(bodies[h]), default=head)))
    return loops


def figures(arch, registers, spills, local, code):
    """A dictionary of numbers: of the kernel, of its hot loop, and of the code that moves the most
    bytes to and from global memory, which is a loop before any ticket, or the whole kernel."""
    def total(part, *fields):
        return sum(getattr(code[at], field) for at in part for field in fields)

    def mean(part, field):
        widths = [getattr(code[at], field) for at in part if getattr(code[at], field)]
        return sum(widths) / len(widths) if widths else 0

    def most(*fields, end=len(code)):
        """The loop in which the sum of the first fields, or of the next ones, is largest, within
        the outermost loop in which it is largest."""
        loops = [loop for loop in loops_of(code) if loop[1][0] < end]
        sums = {}
        for _, own, root in loops:
            sums[root] = [a + total(own, *f) for a, f in zip(sums.get(root, [0] * 9), fields)]
        best = max(sums, default=None, key=sums.get)
        return max((loop for loop in loops if loop[2] == best), default=(0, []),
                   key=lambda loop: (*(16 ** loop[0] * total(loop[1], *f) for f in fields),
                                     len(loop[1])))[1]

    whole = [at for at, i in enumerate(code) if isinstance(i, Instruction)]
    ticket = next((at for at in whole if code[at].ticket), len(code))
    hot, moving = most(["macs"], ["load", "local"]), most(["load"], end=ticket)
    if not total(moving, "load"):
        moving = whole
    moved = total(moving, "load", "store")
    macs = total(hot, "macs")
    return {"registers": registers, "spills": spills, "local": local, "instructions": len(whole),
            "loop": len(hot), "macs": macs, "matrix": any(code[at].on_matrix for at in hot),
            "issued": sum(code[at].issued for at in hot),
            "load": mean(hot, "load") or mean(whole, "load"),
            "local_load": mean(hot, "local") or mean(whole, "local"),
            "moving_load": mean(moving, "load") or mean(moving, "store"),
            "a_byte": len(moving) / moved if moved else 0, "arch": arch}


def share(f, narrow):
    """The share of the peak, which is that of 16 bits if `narrow`; None: no multiply-adds."""
    plain, wide, half, items, cycles = ARCHS[f["arch"]]
    if not f["macs"]:
        return None
    rate = half if narrow else wide if f["matrix"] else plain
    return min(1, f["macs"] * items / rate / (f["issued"] * cycles))


# ---- many texts ----------------------------------------------------------------------------------

def salt(compiler):
    """What the figures depend on, except for the text."""
    parts = ((Nvrtc, read_sass, sass_instruction, sass_width, read_usage)
             if isinstance(compiler, Nvrtc) else (Clang, read_gcn, gcn_instruction))
    return "\n".join([compiler.name, compiler.arch, *RTC_OPTIONS, BRANCH, LEAVES.pattern,
                      HIP.read_text(),
                      *(inspect.getsource(p) for p in (*parts, blocks_of, loops_of, figures))])


class Cache:
    """The figures of texts by hash, in a file."""
    def __init__(self, path):
        self.path = Path(path)
        self.known = json.loads(self.path.read_text()) if self.path.exists() else {}

    def compile(self, compiler, paths):
        """[the figures of the kernels of each text]"""
        head = salt(compiler)
        keys = [hashlib.sha256((head + Path(p).read_text()).encode()).hexdigest() for p in paths]
        new = {k: p for k, p in zip(keys, paths) if k not in self.known}
        with ThreadPoolExecutor(CORES) as pool:
            self.known |= zip(new, pool.map(compiler.compile, new.values()))
        if new:
            part = self.path.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(self.known))
            part.replace(self.path)
        return [self.known[k] for k in keys]
