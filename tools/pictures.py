"""Draws the pictures of the site with the programs in docs/site/pictures: ./run docs --pictures.

The programs write curves, matrices and images.  Here the plan of a step, which the library logs
with WEBER_DEBUG=stages,plan, becomes a graph, by dot, and the trace of wb_profile_end a timeline.
"""
import html
import json
import os
import re
import subprocess
from pathlib import Path

FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]


def run(root, build, name, arguments, environment=None, libraries=(), launchers=((),)):
    """Compiles a program of docs/site/pictures and runs it by each launcher; whether all succeeded.
    """
    source = root / f"docs/site/pictures/{name}.c"
    binary = root / f"build/docs-pictures/{name}"
    binary.parent.mkdir(parents=True, exist_ok=True)
    command = [os.environ.get("CC", "cc"), *FLAGS, f"-I{root}/include", str(source), "-o",
               str(binary), *libraries, f"{build}/libweber.so", f"-Wl,-rpath,{build}", "-lm"]
    if subprocess.run(command, check=False).returncode:
        return False
    return not any(subprocess.run([*launcher, str(binary), *map(str, arguments)], check=False,
                                  env={**os.environ, **(environment or {})}).returncode
                   for launcher in launchers)


def run_ranks(root, build, arguments, environment):
    """Runs ranks.c alone, then as four ranks of an MPI."""
    launch = {"mpich": ["mpiexec.mpich", "-n", "4"],
              "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "4"]}
    for name, launcher in launch.items():
        library = build / f"libweber-mpi-{name}.so"
        if library.exists():
            return run(root, build, "ranks", arguments, environment, [str(library)],
                       [[], launcher])
    print("The picture of several ranks needs MPICH or Open MPI")
    return False


# ---- the plan as a graph -------------------------------------------------------------------------


def read_plan(text):
    """(values, groups, kernels) of the last plan in a log.

    values {v: (operation, shape, operands, view)}, groups {g: (kind, values)}."""
    text = text[text.rindex("graph:"):]
    values = {}
    for match in re.finditer(r"^  (v\d+) +(\w+) +(\[[\d,]*\]) \w+(?:  of (v\d+(?:, v\d+)*))?(.*)$",
                             text, re.M):
        name, operation, shape, operands, rest = match.groups()
        operands = operands.split(", ") if operands else []
        values[name] = (operation, shape, operands, "view of" in rest)
    groups = {match.group(1): (match.group(2), match.group(3).split()) for match in
              re.finditer(r"^  (g\d+) +(\w+) +((?:v\d+ ?)+)$", text, re.M)}
    return values, groups


def plan_graph(text):
    """A plan as a graph for dot: a box for each kernel, with its operations."""
    values, groups = read_plan(text)
    owner = {v: g for g, (_, members) in groups.items() for v in members}

    def owned(name):
        operation, _, operands, _ = values[name]
        if name in owner or operation in ("leaf", "literal", "iota") or not operands:
            return owner.get(name, name)
        return owned(operands[0])

    inside = {g: [] for g in groups}
    for name in values:
        if owned(name) in inside and not values[name][3]:
            inside[owned(name)].append(name)
    out = ["digraph plan {", 'rankdir=TB; nodesep=0.25; ranksep=0.3; bgcolor="white";',
           'node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11,'
           ' color="#8899aa"];', 'edge [color="#8899aa", arrowsize=0.6];']
    edges, leaves = set(), set()
    for group, (kind, _) in groups.items():
        words = [values[v][0] for v in inside[group]]
        lines = [" ".join(words[i:i + 5]) for i in range(0, len(words), 5)]
        shape = values[inside[group][-1]][1]
        colour = "#d7e7f7" if kind == "library" else "#e8f3df"
        label = "\\n".join(lines + [shape])
        out.append(f'{group} [label="{label}", fillcolor="{colour}"];')
        for name in inside[group]:
            for operand in values[name][2]:
                source = owned(operand)
                number = source in values and values[source][0] in ("literal", "iota")
                if source == group or number:
                    continue
                edges.add((source, group))
                if source in values:
                    leaves.add(source)
    for leaf in sorted(leaves):
        out.append(f'{leaf} [label="{values[leaf][1]}", shape=ellipse, fillcolor="#fdf3d8"];')
    out += [f"{a} -> {b};" for a, b in sorted(edges)]
    return "\n".join(out) + "\n}\n"


# ---- the trace as a timeline ---------------------------------------------------------------------


def timeline(events):
    """The shortest step of a trace as SVG: a row for each kernel."""
    events = [x for x in events if x.get("ph") == "X"]
    starts = [i for i, x in enumerate(events) if x["name"] == events[0]["name"]]
    steps = [events[a:b] for a, b in zip(starts, starts[1:] + [len(events)])]

    def duration(step):
        return step[-1]["ts"] + step[-1]["dur"] - step[0]["ts"]

    step = min(steps, key=duration)
    begin, length = step[0]["ts"], duration(step)
    left, width, row = 330, 460, 17
    height = 44 + row * len(step) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 70} {height}" '
           f'width="{left + width + 70}" font-family="sans-serif" font-size="11">',
           '<rect width="100%" height="100%" fill="#ffffff"/>']
    ticks = 5
    for i in range(ticks + 1):
        x = left + width * i / ticks
        out.append(f'<line x1="{x:.1f}" y1="30" x2="{x:.1f}" y2="{height - 8}" stroke="#e5e5e5"/>'
                   f'<text x="{x:.1f}" y="22" text-anchor="middle" fill="#555555">'
                   f'{length * i / ticks / 1000:.2f} ms</text>')
    colours = {"conv": "#4c78a8", "matmul": "#72b7b2", "pool": "#f2a541", "fused": "#88b04b"}
    for i, event in enumerate(step):
        name = re.split(r"  +\{", event["name"])[0]
        kind, _, rest = name.partition(" ")
        name = html.escape(f"{kind} {rest.strip()}"[:52])
        x = left + width * (event["ts"] - begin) / length
        wide = max(1.0, width * event["dur"] / length)
        y = 38 + row * i
        out.append(f'<text x="{left - 8}" y="{y + 10}" text-anchor="end">{name}</text>'
                   f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="12" '
                   f'fill="{colours.get(kind, "#b0b0b0")}"/>'
                   f'<text x="{x + wide + 4:.1f}" y="{y + 10}" fill="#777777">'
                   f'{event["dur"]:.0f} us</text>')
    return "\n".join(out) + "\n</svg>\n"


def draw(root, build, digits):
    """Draws all pictures into docs/site/static/pictures; whether all were drawn."""
    folder = root / "docs/site/static/pictures"
    folder.mkdir(parents=True, exist_ok=True)
    work = root / "build/docs-pictures"
    work.mkdir(parents=True, exist_ok=True)
    one = {"WEBER_NUM_THREADS": "1"}
    if not (run(root, build, "curves", [folder], one) and
            run(root, build, "digits", [folder, digits], one) and
            run(root, build, "files", [folder, work], one) and
            run(root, build, "devices", [folder], one) and
            run_ranks(root, build, [folder, work], one) and
            run(root, build, "table", [folder], one) and
            run(root, build, "step", [work], {"WEBER_DEBUG": "stages,plan", **one})):
        return False
    dot = subprocess.run(["dot", "-Tsvg"], input=plan_graph((work / "plan.txt").read_text()),
                         capture_output=True, text=True, check=False)
    if dot.returncode:
        print(dot.stderr)
        return False
    svg = re.sub(r"<!--.*?-->\n?", "", dot.stdout, flags=re.S)
    (folder / "plan.svg").write_text(svg[svg.index("<svg"):])
    (folder / "timeline.svg").write_text(
        timeline(json.loads((work / "step.json").read_text())["traceEvents"]))
    names = sorted(path.name for path in folder.iterdir())
    print(f"{len(names)} pictures: {' '.join(names)}")
    return True
