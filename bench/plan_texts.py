"""What NVRTC makes of the kernels of a plan, for plans.py: registers, spills, bytes a load and
instructions a byte of each step that our own kernels compute.

The instructions a byte are those of the code that moves the most bytes, which is a loop or the
whole kernel, over the bytes that it loads and stores (tools/kernels/machine.py).  An H100 issues
ISSUED instructions of items a second, so a kernel of more than about 10 a byte waits for issue
slots and not for memory.
"""
import re
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent / "tools" / "kernels"
sys.path.append(str(TOOLS))
import check            # noqa: E402
import machine          # noqa: E402

ISSUED = 132 * 4 * 32 * 1.7e9           # SMs, schedulers, items, cycles a second
COLUMNS = ("registers", "spilling", "load", "each", "issue")


def compiler_of(build):
    """NVRTC for sm_90, whose `missing` is the reason why it cannot be used, or None."""
    rtc = str(build / "tests" / "vgpu" / "vgpu_rtc")
    library, missing = check.usable(rtc, check.CUDA_LIBRARIES, "nvrtc", check.CUDA_FOLDERS)
    return machine.Nvrtc(rtc, library, missing, "sm_90")


def read_log(lines):
    """({hash: text}, [the launches of each step of the plan with the most steps]) of the log of
    WEBER_DEBUG=plan,kernel; a launch is (hash, entry, items)"""
    texts, text, steps, plan = {}, None, [], []
    for line in lines:
        begins = re.match(r"┌ Debug: kernel: .* \(text (\w+)\)$", line)
        made = re.match(r"┌ Debug: plan: (\d+) kernels", line)
        if begins:
            text = texts[begins[1]] = []
        elif text is not None and line[:1] in "│└":
            text.append(line[2:])
            text = None if line[0] == "└" else text
        elif line.startswith("[ Debug: kernel: "):
            steps.append([(h, e, int(n)) for h, e, n in
                          re.findall(r"; text (\w+), (\w+), (\d+) items", line)])
        elif made and int(made[1]) > len(plan):
            plan = steps[-int(made[1]):]
    return {h: "\n".join(t) for h, t in texts.items()}, plan


def figures(compiler, folder, lines):
    """For each step of the largest plan the figures of the launch with the most items, and the most
    registers and spills of all its launches; None: a vendor's routine."""
    texts, plan = read_log(lines)
    used = sorted({launch[0] for step in plan for launch in step})
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for h in used:
        paths.append(folder / f"{h}.k")
        paths[-1].write_text(check.prelude() + texts[h])
    made = dict(zip(used, machine.Cache(folder / "machine.json").compile(compiler, paths)))
    for path in paths:
        path.unlink()
    steps = []
    for step in plan:
        launches = [made[h][entry] for h, entry, _ in sorted(step, key=lambda l: -l[2])]
        steps.append(launches[0] | {key: max(f[key] for f in launches)
                                    for key in ("registers", "spills")} if step else None)
    return steps


def summary(kernels, costs, node):
    """The columns.  costs: (bytes, seconds) of each step; node: the seconds of all nodes."""
    own = [(f, moved) for f, (moved, _) in zip(kernels, costs) if f]
    total = sum(moved for _, moved in own) or 1
    seconds = [max(t, issue(f, moved)) for f, (moved, t) in zip(kernels, costs)]
    return {"registers": max(f["registers"] for f, _ in own),
            "spilling": sum(f["spills"] > 0 for f, _ in own),
            "load": sum(f["moving_load"] * moved for f, moved in own) / total,
            "each": sum(f["a_byte"] * moved for f, moved in own) / total,
            "issue": 1e6 * (sum(seconds) + node)}


def issue(f, moved):
    """The seconds in which the kernel's instructions are issued; 0: of a product, which uses bytes
    several times, or of a vendor's routine."""
    return 0 if not f or f["macs"] > 16 else f["a_byte"] * moved / ISSUED
