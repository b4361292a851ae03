"""The tables of docs/onnx.md, made of a folder of cases (cases.py) and FOLDER/results.txt.

A line of results.txt has a case's name, "passed", "unsupported" or "failed", and the reason,
separated by tabs.  A table is between the lines <!-- NAME --> and <!-- end of NAME -->.  It names
the versions of the packages that made the cases, and is compared only with those of these versions.
"""
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/onnx.md"
RESULTS = ("passed", "unsupported", "failed")


def read(folder):
    """The versions, and (name, group, result, reason) of each case"""
    def table(file):
        text = (folder / file).read_text(encoding="utf-8")
        return [line.split("\t") for line in text.splitlines()]
    groups = {name: group for name, group, *_ in table("cases.txt")}
    rows = [(name, groups[name], result, reason) for name, result, reason in table("results.txt")]
    if len(rows) != len(groups):
        sys.exit(f"{folder}: {len(groups)} cases, {len(rows)} results")
    return table("version")[0][0], rows


def domain_of(group):
    """The domain of an operator, "" for ONNX's own and for a collection of models"""
    return group.rpartition(".")[0] if not group.startswith("models:") else ""


def plain(group, reason):
    """A reason without the names of nodes and files"""
    if domain_of(group) and "not supported" in reason:
        return f"operators of the domain {domain_of(group)}"
    reason = re.sub(r"(onnx: |[\w./-]*model\.onnx: )", "", reason)
    lacks = re.search(r"(\w+), which Weber lacks|(a sequence|optional); only tensors", reason)
    if lacks:
        return f"{lacks.group(1)}, a dtype that Weber lacks" if lacks.group(1) else \
            "a value that is a sequence or optional"
    missing = re.search(r"operators? (?:is|are) not supported: (.*)", reason)
    if missing:
        names = re.sub(r" \([^()]*(\)|$)", "", missing.group(1)).split(", ")
        return "no operator " + ", ".join(sorted(set(names)))
    return re.sub(r"^(\w+) (?:'[^']*'|\(node \d+\))(?: \(node \d+\))?: ", r"\1: ", reason)


def escaped(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def counted(rows):
    """Counts by operator, and reasons by how many cases have them"""
    counts, reasons = defaultdict(Counter), defaultdict(Counter)
    for _, group, result, reason in rows:
        domain = domain_of(group)
        row = f"domain {domain}" if domain else group
        counts[row][result] += 1
        if result == "unsupported":
            reasons[plain(group, reason)][row] += 1
    lines = ["| operator | passed | unsupported | failed |", "| --- | ---: | ---: | ---: |"]
    for row in sorted(counts, key=lambda row: (":" in row, " " in row, row.lower())):
        lines.append(f"| {row} | " + " | ".join(str(counts[row][r]) for r in RESULTS) + " |")
    lines += ["", "| reason | unsupported cases | of |", "| --- | ---: | --- |"]
    for reason, of in sorted(reasons.items(), key=lambda item: (-item[1].total(), item[0])):
        rest = f" and {len(of) - 4} more" if len(of) > 4 else ""
        names = ", ".join(sorted(of)[:4])
        lines.append(f"| {escaped(reason)} | {of.total()} | {names}{rest} |")
    return lines


def listed(rows, what):
    lines = [f"| model | {what} | result |", "| --- | --- | --- |"]
    for name, group, result, reason in rows:
        why = f": {escaped(plain('', reason))}" if reason else ""
        lines.append(f"| {name} | {group} | {result}{why} |")
    return lines


def section(folder, name):
    """(versions, text) of a table"""
    version, rows = read(folder)
    counts = Counter(result for _, _, result, _ in rows)
    total = ", ".join(f"{counts[result]} {result}" for result in RESULTS)
    lines = [f"{len(rows)} cases made with {version}: {total}.", ""]
    if name == "nodes":
        lines += counted(rows)
    else:
        lines += listed(rows, "exported by" if name in ("exports", "keras_models") else
                        "what it is")
    return version, "\n".join(lines) + "\n"


def parts_of(page, name):
    """The page before a table, the table, and the page after it"""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, _, rest = page.partition(begin)
    old, _, tail = rest.partition(end)
    return head + begin, old, end + tail


def main(action, folder, name):
    """Compares ("check") or replaces ("page") the table; returns the exit status."""
    version, new = section(Path(folder), name)
    page = PAGE.read_text(encoding="utf-8")
    if action == "page":
        head, _, tail = parts_of(page, name)
        PAGE.write_text(head + new + tail, encoding="utf-8")
        return 0
    old = parts_of(page, name)[1]
    made_with = re.search(r" cases made with (.*?): ", old)
    if made_with and made_with.group(1) != version:
        print(f"{PAGE.name} was made with {made_with.group(1)}, not {version}: not compared")
        return 0
    if old == new:
        return 0
    there = set(old.splitlines())
    print(f"{PAGE.name} differs: tests/onnx/{name}.py page {folder} replaces its table.")
    print("\n".join([line for line in new.splitlines() if line not in there][:40]))
    return 1


def run(write, name):
    """A program that writes cases into a folder, or compares or replaces the table of them"""
    action, folder = sys.argv[1:]
    if action == "write":
        write(folder)
    else:
        sys.exit(main(action, folder, name))
