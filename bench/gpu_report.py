"""For gpu.py: what was measured, as JSON and as a page, and what it says of the goals."""
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
    """The faster of Weber's two sides; None if there is none."""
    both = [row[side] for side in ("weber", "weber-compiled") if side in row]
    return min(both, key=lambda r: r["step_us"], default=None)


def peers(row, kind=""):
    return [figures for side, figures in row.items() if not side.startswith("weber") and side.startswith(kind)]


def ratio(row):
    """Step time to that of the best peer, and which that is."""
    best = min(peers(row), key=lambda r: r["step_us"], default=None)
    if not ours(row) or not best:
        return None, ""
    return ours(row)["step_us"] / best["step_us"], best["side"]


TENTH, TIMES, ROUNDING = 10, 3, 1e-6


def compare_losses(cpu, gpu, exact):
    """Of a run on the CPU, one on the GPU, and one in f64: how far the first ten steps of the two are apart, relative;
    and how near the GPU stays to f64: its largest share of what it may be away, which is TIMES what the CPU's f32 was
    away so far.  Steps of Adam magnify rounding, so that two right runs part soon; how soon, the CPU's shows."""
    first = max(abs(a - b) / max(abs(a), 1e-12) for a, b in zip(cpu[:TENTH], gpu))
    share = away = 0
    for a, b, e in zip(cpu, gpu, exact):
        away = max(away, abs(a - e))
        share = max(share, abs(b - e) / (TIMES * away + ROUNDING * abs(e) + 1e-12))
    return {"first": first, "share": share, "steps": min(len(cpu), len(gpu), len(exact)), "last": gpu[-1]}


def table(heads, lines):
    return ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |",
            *("| " + " | ".join(line) + " |" for line in lines), ""]


class Report:
    def __init__(self, options, machine):
        self.name = options.name or re.sub(r"[^a-z0-9]+", "-", (options.device + " " + machine.gpu).lower()).strip("-")
        self.folder = Path(options.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.json = self.folder / f"{self.name}.json"
        self.wanted = [name for name in options.rows.split(",") if name]
        self.data = {"rows": {}, "checks": {}, "parts": {}, "done": [], "dropped": [], "notes": [], "runs": []}
        if options.resume and self.json.exists():
            self.data = json.loads(self.json.read_text())
            self.data["dropped"] = [entry for entry in self.data["dropped"] if entry["row"] in self.data["done"]]
        self.data.update(device=machine.device, gpu=machine.gpu, versions=machine.versions, listing=machine.listing)
        command = shlex.join(["bench/gpu.py", *sys.argv[1:]])
        self.data["runs"].append({"date": time.strftime("%Y-%m-%d %H:%M"), "command": command})
        print(f"{machine.gpu}; {self.versions()}", flush=True)

    def versions(self):
        return "; ".join(f"{key} {value}" for key, value in self.data["versions"].items())

    # ---- what is told ----

    def has(self, part, name):
        return name in self.data[part]

    def check(self, name, result):
        self.data["checks"][name] = result
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in result.items()), flush=True)
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

    def dropped(self, row, side, why):
        self.data["dropped"].append({"row": row, "side": side, "why": why})
        print(f"{row}: {side} left out: {why}", flush=True)
        self.write()

    def finish(self, seconds):
        self.data["runs"][-1]["seconds"] = round(seconds)
        self.write()
        print("\n".join(self.page()[1:]))
        print(f"{self.folder / self.name}.md and .json; {seconds:.0f} s")

    def complete(self):
        return all(ours(self.data["rows"].get(name, {})) for name in self.wanted)

    # ---- what it comes to ----

    def shown(self):
        """Rows on the page: those of earlier runs too."""
        return list(dict.fromkeys([*self.data["rows"], *self.wanted]))

    def kept(self, name, rounds):
        """Sides of a row that an earlier run measured as often as is wanted."""
        return [side for side, figures in self.data["rows"].get(name, {}).items() if figures["runs"] >= rounds]

    def goals(self):
        """(goal, found, met or not, or None: not measured)"""
        found = []
        for name, result in self.data["checks"].items():
            if name.startswith("losses"):
                first, share = result.get("first"), result.get("share")
                found.append((f"{name} over {TENTH} steps as the CPU's, within 1e-4",
                              number(first, "{:.2g}") or result["trouble"], first is not None and first <= 1e-4))
                found.append((f"{name} over 50 steps within {TIMES} times of what the CPU's f32 is away from f64",
                              number(share, "{:.2g} of that") or result["trouble"], share is not None and share <= 1))
            else:
                found.append((f"{name}: two deterministic runs alike", " ".join(result["bits"]), result["same"]))
        rows = self.data["rows"]
        for name in self.shown():
            row, most = rows.get(name, {}), 0.8 if name in SMALL else 1.0
            value, best = ratio(row)
            found.append((f"{name}: step at most {most} of the best peer's",
                          f"{value:.3f} of {best}" if best else "", value <= most if best else None))
        for name in self.shown():
            found += self.goals_of_row(name, rows.get(name, {}))
        return found + self.goals_of_parts()

    def goals_of_row(self, name, row):
        compiled = row.get("weber-compiled", {})
        found = []
        host, growth = compiled.get("host_us"), compiled.get("growth_mb")
        if host is not None:
            found.append((f"{name}: host under 10 us a replayed step", human(host), host < 10))
        if growth is not None:
            found.append((f"{name}: memory flat from step 20 on", f"{growth:+.3f} MiB",
                          growth <= 0))
        held = compiled.get("peak_gpu_mb")
        least = min((r["peak_gpu_mb"] for r in peers(row, "torch") if "peak_gpu_mb" in r), default=None)
        if held is not None and least is not None:
            found.append((f"{name}: peak memory at most PyTorch's least", f"{held:.1f} of {least:.1f} MiB",
                          held <= least))
        return found

    def goals_of_parts(self):
        us, them = self.data["parts"].get("weber", {}), self.data["parts"].get("torch", {})
        copy = max(us.get("copy", 0), them.get("copy", 0))
        found = []
        for key, text in BANDWIDTHS.items():
            if key in us and copy:
                found.append((f"{text}: 90 % of the measured copy bandwidth", f"{us[key]:.0f} of {copy:.0f} GB/s",
                              us[key] >= 0.9 * copy))
        for key in us:
            if key not in BANDWIDTHS and them.get(key):
                found.append((f"product {key}: 95 % of PyTorch's cuBLASLt", f"{us[key]:.1f} of {them[key]:.1f} TFLOP/s",
                              us[key] >= 0.95 * them[key]))
        return found

    # ---- the page ----

    def page_of_rows(self):
        rows = {name: self.data["rows"][name] for name in self.shown() if name in self.data["rows"]}
        rows = dict(sorted(rows.items(), key=lambda item: (item[0][0] == "G", item[0])))
        sides = list(dict.fromkeys(side for row in rows.values() for side in row))
        steps, more = [], []
        for name, row in rows.items():
            value, best = ratio(row)
            steps.append([name, *(human(row[side]["step_us"]) if side in row else "" for side in sides),
                          number(value, "{:.3f}"), best])
            for side, figures in row.items():
                rate = figures.get("tokens_per_s") or figures.get("samples_per_s")
                more.append([name, side, human(figures["step_us_p10"]), number(rate, "{:,.0f}"),
                             human(figures.get("host_us")), number(figures.get("peak_gpu_mb")),
                             number(figures.get("growth_mb"), "{:+.3f}"), number(figures.get("last_loss"), "{:.4g}"),
                             str(figures["runs"])])
        heads = ["", "side", "10th percentile", "samples or tokens a second", "host, a step", "peak MiB", "growth MiB",
                 "last loss", "runs"]
        return ["## Steps", "", "Medians. Ratio: the faster of Weber's two to the best of the others.", "",
                *table(["", *sides, "ratio", "best peer"], steps), *table(heads, more)]

    def page_of_parts(self):
        us, them = self.data["parts"].get("weber", {}), self.data["parts"].get("torch", {})
        lines = []
        for key in {**us, **them}:
            both = us.get(key) and them.get(key)
            lines.append([BANDWIDTHS.get(key, "product " + key), number(us.get(key), "{:.1f}"),
                          number(them.get(key), "{:.1f}"), f"{us[key] / them[key]:.3f}" if both else ""])
        return ["## Parts", "", "GB/s read and written, TFLOP/s; the better of two runs in turn.", "",
                *table(["", "Weber", "PyTorch", "ratio"], lines)]

    def page(self):
        data = self.data
        verdict = {True: "met", False: "**not met**", None: "not measured"}
        lines = [f"# Weber on {data['gpu']}", "", self.versions() + ".", ""]
        for run in data["runs"]:
            took = f"{run['seconds']} s" if "seconds" in run else "cut short"
            lines.append(f"    {run['command']}      # {run['date']}, {took}")
        goals = [[goal, found, verdict[met]] for goal, found, met in self.goals()]
        lines += ["", "## Goals", "", *table(["goal", "found", ""], goals)]
        if data["rows"]:
            lines += self.page_of_rows()
        if data["parts"]:
            lines += self.page_of_parts()
        if data["dropped"] or data["notes"]:
            lines += ["## Left out", "", *(f"- {e['row']}, {e['side']}: {e['why']}" for e in data["dropped"]),
                      *(f"- {text}" for text in data["notes"]), ""]
        if data["listing"]:
            lines += ["## weber devices --verbose", "", "```", data["listing"], "```", ""]
        return lines

    def write(self):
        """Both files, each whole at any moment."""
        for path, text in ((self.json, json.dumps(self.data, indent=1) + "\n"),
                           (self.folder / f"{self.name}.md", "\n".join(self.page()))):
            part = path.with_suffix(path.suffix + ".part")
            part.write_text(text)
            part.replace(path)
