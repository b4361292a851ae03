"""For gpu.py: the report of the measurements and of the goals, as JSON and as a page."""
import json
import re
import shlex
import sys
import time
from pathlib import Path

SMALL = ("W1", "W2", "W3", "W4a", "W4b", "W5", "W6")
BANDWIDTHS = {"copy": "copy within the device", "chain": "elementwise chain"}


def human(microseconds):
    if microseconds is None:
        return ""
    return f"{microseconds:.2f} us" if microseconds < 1000 else f"{microseconds / 1000:.2f} ms"


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def ours(row):
    """The figures of the faster of Weber's two sides; None if neither was measured."""
    both = [row[side] for side in ("weber", "weber-compiled") if side in row]
    return min(both, key=lambda r: r["step_us"], default=None)


def peers(row, kind=""):
    """The figures of the sides that are not Weber's and whose names begin with `kind`."""
    return [figures for side, figures in row.items()
            if not side.startswith("weber") and side.startswith(kind)]


def ratio(row):
    """(Weber's step time divided by the best peer's, the name of that peer), or (None, "")."""
    best = min(peers(row), key=lambda r: r["step_us"], default=None)
    if not ours(row) or not best:
        return None, ""
    return ours(row)["step_us"] / best["step_us"], best["side"]


TENTH, TIMES, ROUNDING = 10, 3, 1e-6


def compare_losses(cpu, gpu, exact):
    """Compares the losses of a run on the CPU, of one on the GPU, and of an exact one in f64.

    "first" is the largest relative difference of GPU and CPU in the first TENTH steps.  "share" is
    the largest quotient of the GPU's error against f64 and its bound.  The bound of a step is TIMES
    the largest error of the CPU's f32 run up to that step: Adam magnifies rounding errors, so two
    correct runs diverge, and the CPU's run shows how fast.
    """
    first = max(abs(a - b) / max(abs(a), 1e-12) for a, b in zip(cpu[:TENTH], gpu))
    share = error = 0
    for a, b, e in zip(cpu, gpu, exact):
        error = max(error, abs(a - e))
        share = max(share, abs(b - e) / (TIMES * error + ROUNDING * abs(e) + 1e-12))
    steps = min(len(cpu), len(gpu), len(exact))
    return {"first": first, "share": share, "steps": steps, "last": gpu[-1]}


def table(heads, lines):
    return ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |",
            *("| " + " | ".join(line) + " |" for line in lines), ""]


class Report:
    def __init__(self, options, machine):
        device = f"{options.device} {machine.gpu}".lower()
        self.name = options.name or re.sub(r"[^a-z0-9]+", "-", device).strip("-")
        self.folder = Path(options.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.json = self.folder / f"{self.name}.json"
        self.requested = [name for name in options.rows.split(",") if name]
        self.data = {"rows": {}, "checks": {}, "parts": {}, "done": [], "dropped": [], "notes": [],
                     "runs": []}
        if options.resume and self.json.exists():
            self.data = json.loads(self.json.read_text())
            done = self.data["done"]
            self.data["dropped"] = [e for e in self.data["dropped"] if e["row"] in done]
        self.data.update(device=machine.device, gpu=machine.gpu, versions=machine.versions,
                         listing=machine.listing)
        command = shlex.join(["bench/gpu.py", *sys.argv[1:]])
        self.data["runs"].append({"date": time.strftime("%Y-%m-%d %H:%M"), "command": command})
        print(f"{machine.gpu}; {self.versions()}", flush=True)

    def versions(self):
        return "; ".join(f"{key} {value}" for key, value in self.data["versions"].items())

    # ---- results are added ----

    def has(self, part, name):
        return name in self.data[part]

    def check(self, name, result):
        self.data["checks"][name] = result
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in result.items()),
              flush=True)
        self.write()

    def parts(self, best):
        self.data["parts"] = best
        self.write()

    def row(self, name, sides):
        self.data["rows"][name] = sides
        self.write()

    def done(self, name):
        self.data["done"].append(name)
        self.write()

    def note(self, text):
        self.data["notes"].append(text)
        print(text, flush=True)
        self.write()

    def dropped(self, row, side, reason):
        self.data["dropped"].append({"row": row, "side": side, "reason": reason})
        print(f"{row}: {side} left out: {reason}", flush=True)
        self.write()

    def finish(self, seconds):
        self.data["runs"][-1]["seconds"] = round(seconds)
        self.write()
        print("\n".join(self.page()[1:]))
        print(f"{self.folder / self.name}.md and .json; {seconds:.0f} s")

    def complete(self):
        return all(ours(self.data["rows"].get(name, {})) for name in self.requested)

    # ---- results are judged ----

    def shown(self):
        """The rows on the page, which include those of earlier runs."""
        return list(dict.fromkeys([*self.data["rows"], *self.requested]))

    def kept(self, name, rounds):
        """The sides of a row that earlier runs measured at least `rounds` times."""
        sides = self.data["rows"].get(name, {})
        return [side for side, figures in sides.items() if figures["runs"] >= rounds]

    def goals(self):
        """A list of (goal, result, whether it is met; None if it was not measured)."""
        found = []
        for name, result in self.data["checks"].items():
            if name.startswith("losses"):
                first, share = result.get("first"), result.get("share")
                found.append((f"{name}: the first {TENTH} steps within 1e-4 of the CPU's",
                              number(first, "{:.2g}") or result["trouble"],
                              first is not None and first <= 1e-4))
                found.append((f"{name}: 50 steps within {TIMES} times the error of the CPU's f32",
                              number(share, "{:.2g} of that") or result["trouble"],
                              share is not None and share <= 1))
            else:
                found.append((f"{name}: two deterministic runs are equal",
                              " ".join(result["bits"]), result["same"]))
        rows = self.data["rows"]
        for name in self.shown():
            row, most = rows.get(name, {}), 0.8 if name in SMALL else 1.0
            value, best = ratio(row)
            found.append((f"{name}: step at most {most} of the best peer's",
                          f"{value:.3f} of {best}" if best else "",
                          value <= most if best else None))
        for name in self.shown():
            found += self.goals_of_row(name, rows.get(name, {}))
        return found + self.goals_of_parts()

    def goals_of_row(self, name, row):
        compiled = row.get("weber-compiled", {})
        found = []
        host, growth = compiled.get("host_us"), compiled.get("growth_mb")
        if host is not None:
            found.append((f"{name}: host less than 10 us per replayed step", human(host),
                          host < 10))
        if growth is not None:
            found.append((f"{name}: memory does not grow after step 20", f"{growth:+.3f} MiB",
                          growth <= 0))
        held = compiled.get("peak_gpu_mb")
        peaks = [r["peak_gpu_mb"] for r in peers(row, "torch") if "peak_gpu_mb" in r]
        least = min(peaks, default=None)
        if held is not None and least is not None:
            found.append((f"{name}: peak memory at most PyTorch's least",
                          f"{held:.1f} of {least:.1f} MiB", held <= least))
        return found

    def goals_of_parts(self):
        weber, torch = self.data["parts"].get("weber", {}), self.data["parts"].get("torch", {})
        copy = max(weber.get("copy", 0), torch.get("copy", 0))
        found = []
        for key, text in BANDWIDTHS.items():
            if key in weber and copy:
                found.append((f"{text}: 90 % of the measured copy bandwidth",
                              f"{weber[key]:.0f} of {copy:.0f} GB/s", weber[key] >= 0.9 * copy))
        for key in weber:
            if key not in BANDWIDTHS and torch.get(key):
                found.append((f"product {key}: 95 % of PyTorch's cuBLASLt",
                              f"{weber[key]:.1f} of {torch[key]:.1f} TFLOP/s",
                              weber[key] >= 0.95 * torch[key]))
        return found

    # ---- the page ----

    def page_of_rows(self):
        rows = {name: self.data["rows"][name] for name in self.shown() if name in self.data["rows"]}
        rows = dict(sorted(rows.items(), key=lambda item: (item[0][0] == "G", item[0])))
        sides = list(dict.fromkeys(side for row in rows.values() for side in row))
        steps, more = [], []
        for name, row in rows.items():
            value, best = ratio(row)
            times = [human(row[side]["step_us"]) if side in row else "" for side in sides]
            steps.append([name, *times, number(value, "{:.3f}"), best])
            for side, figures in row.items():
                rate = figures.get("tokens_per_s") or figures.get("samples_per_s")
                more.append([name, side, human(figures["step_us_p10"]), number(rate, "{:,.0f}"),
                             human(figures.get("host_us")), number(figures.get("peak_gpu_mb")),
                             number(figures.get("growth_mb"), "{:+.3f}"),
                             number(figures.get("last_loss"), "{:.4g}"), str(figures["runs"])])
        heads = ["", "side", "10th percentile", "samples or tokens per second", "host, per step",
                 "peak MiB", "growth MiB", "last loss", "runs"]
        return ["## Steps", "",
                "Medians. Ratio: the faster side of Weber's divided by the best of the others.", "",
                *table(["", *sides, "ratio", "best peer"], steps), *table(heads, more)]

    def page_of_parts(self):
        weber, torch = self.data["parts"].get("weber", {}), self.data["parts"].get("torch", {})
        lines = []
        for key in {**weber, **torch}:
            both = weber.get(key) and torch.get(key)
            lines.append([BANDWIDTHS.get(key, "product " + key), number(weber.get(key), "{:.1f}"),
                          number(torch.get(key), "{:.1f}"),
                          f"{weber[key] / torch[key]:.3f}" if both else ""])
        return ["## Parts", "",
                "GB/s read and written, TFLOP/s of products; the better of two runs.", "",
                *table(["", "Weber", "PyTorch", "ratio"], lines)]

    def page(self):
        data = self.data
        verdict = {True: "met", False: "**not met**", None: "not measured"}
        lines = [f"# Weber on {data['gpu']}", "", self.versions() + ".", ""]
        for run in data["runs"]:
            took = f"{run['seconds']} s" if "seconds" in run else "cut short"
            lines.append(f"    {run['command']}      # {run['date']}, {took}")
        goals = [[goal, result, verdict[met]] for goal, result, met in self.goals()]
        lines += ["", "## Goals", "", *table(["goal", "result", ""], goals)]
        if data["rows"]:
            lines += self.page_of_rows()
        if data["parts"]:
            lines += self.page_of_parts()
        if data["dropped"] or data["notes"]:
            lines += ["## Left out", "",
                      *(f"- {e['row']}, {e['side']}: {e['reason']}" for e in data["dropped"]),
                      *(f"- {text}" for text in data["notes"]), ""]
        if data["listing"]:
            lines += ["## weber devices --verbose", "", "```", data["listing"], "```", ""]
        return lines

    def write(self):
        """Writes both files; each is replaced at once, so that it is always complete."""
        for path, text in ((self.json, json.dumps(self.data, indent=1) + "\n"),
                           (self.folder / f"{self.name}.md", "\n".join(self.page()))):
            part = path.with_suffix(path.suffix + ".part")
            part.write_text(text)
            part.replace(path)
