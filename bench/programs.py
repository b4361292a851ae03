#!/usr/bin/env python3
"""Ten programs in C and their twins in PyTorch: lines, losses and the time of a step.

  bench/programs.py BUILD [NAME ...] [--rounds 3] [--out FILE.md]

BUILD is a build folder with bench/unet and so on.  Each twin writes its first weights, from which
the C program begins.  The sides run in turns, with two threads each; the time of a step is the
median of a run, and the table has the median of the rounds.  Lines are those that are neither blank
nor comment, without programs/history.h, which measures.
"""
import argparse
import io
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import tokenize

HERE = pathlib.Path(__file__).parent / "programs"
STEP = re.compile(r"^(.*): loss (.*?)(?:, moves .*)?, ([0-9.]+) ms a step$", re.M)


def lines_of_c(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return sum(1 for line in text.splitlines() if line.strip())


def lines_of_python(text):
    """Lines with tokens that are neither comments nor strings that are a whole statement."""
    found, alone = set(), True
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
            tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in skip:
            alone = alone or token.type == tokenize.NEWLINE
        elif not (token.type == tokenize.STRING and alone):
            found.update(range(token.start[0], token.end[0] + 1))
            alone = False
    return len(found)


def run(command):
    """The parts that a program measures: name, loss and milliseconds of a step."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = STEP.findall(done.stdout)
    if done.returncode or not found:
        sys.exit(f"{command[0]}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return [(part, loss, float(ms)) for part, loss, ms in found]


def rows_of(name, build, rounds):
    text = [(HERE / f"{name}.{end}").read_text() for end in ("c", "py")]
    count = lines_of_c(text[0]), lines_of_python(text[1])
    runs = [[], []]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            weights = f"{folder}/first.pt"
            runs[1].append(run([sys.executable, str(HERE / f"{name}.py"), weights]))
            runs[0].append(run([str(build / "bench" / name), weights]))
    for i, (part, loss, _) in enumerate(runs[0][0]):
        ms = [statistics.median(r[i][2] for r in side) for side in runs]
        title = name if part == name else f"{name}: {part}"
        yield (f"| {title} | {count[0]} | {count[1]} | {count[0] / count[1]:.2f} | {ms[0]:.2f} | "
               f"{ms[1]:.2f} | {ms[1] / ms[0]:.2f} | {loss} | {runs[1][0][i][1]} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    table = ["| program | lines of C | of Python | ratio | ms a step, C | PyTorch | ratio | "
             "loss, C | loss, PyTorch |", "|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(table), flush=True)
    for name in args.names or sorted(p.stem for p in HERE.glob("*.c")):
        for row in rows_of(name, args.build.resolve(), args.rounds):
            table.append(row)
            print(row, flush=True)
    if args.out:
        args.out.write_text("\n".join(table) + "\n")


main()
