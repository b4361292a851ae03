#!/usr/bin/env python3
"""Tests tools/mutate.py: what it changes in C, and what it reports of a small project; and that the
rows of tools/faults.py fit the sources.

    test_mutate.py [BUILD]      with a folder of a build: that ctest has the tests of the rows
"""
import contextlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import faults
import mutate

# The body of a function, and its mutants: (kind, old text, new text).
CASES = [
    ("return a + b;", {("operator", "+", "-"), ("drop", "return a + b;", "return 0;")}),
    ("g(a, *b);", {("drop", "g(a, *b);", ";"), ("swap", "a, *b", "*b, a")}),
    ("if (a < b) a = *b;", {
        ("operator", "<", "<="), ("operator", "<", ">="), ("condition", "a < b", "0"),
        ("condition", "a < b", "1"), ("condition", "a < b", "!(a < b)"), ("drop", "a = *b;", ";")}),
    ("while (!a) break;", {
        ("operator", "!", ""), ("condition", "!a", "0"), ("drop", "break;", ";")}),
    ("a = b && f(c) ? 2 : 0;", {
        ("operator", "&&", "||"), ("condition", "b", "1"), ("condition", "f(c)", "1"),
        ("condition", "b && f(c)", "1"), ("condition", "b && f(c)", "0"), ("constant", "0", "1"),
        ("constant", "2", "(2 + 1)"), ("constant", "2", "(2 - 1)"),
        ("drop", "a = b && f(c) ? 2 : 0;", ";")}),
    ("for (a = 1; a != b; a++) c[a] = 0.5f;", {
        ("constant", "1", "0"), ("constant", "1", "2"), ("operator", "!=", "=="),
        ("condition", "a != b", "0"), ("constant", "0.5f", "(0.5f + 1)"),
        ("constant", "0.5f", "(0.5f * 0)"), ("drop", "c[a] = 0.5f;", ";")}),
    ("if (a) return;\n    b += 2 * -c;", {
        ("condition", "a", "0"), ("condition", "a", "1"), ("condition", "a", "!(a)"),
        ("drop", "return;", ";"), ("operator", "+=", "-="), ("operator", "*", "/"),
        ("constant", "2", "(2 + 1)"), ("constant", "2", "(2 - 1)"),
        ("drop", "b += 2 * -c;", ";")}),
    ("static_assert(sizeof a == 4, \"a + 1\");", set()),
    ("/* a + b */ // 1 < 2\n#define X (a + \\\n    1)", set()),
    ("const char *x = \"a + b\", y = '\\'', *const *z = &x;", set()),
    ("f(\"%d is at most %d\", a, b + 1);", {
        ("drop", "f(\"%d is at most %d\", a, b + 1);", ";")}),
    ("struct at x = {.a = {b, c}};", set()),
]
PROJECT = {
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(small C)\nenable_testing()\n"
                      "add_library(weber STATIC src/small.c)\nadd_executable(sums tests/sums.c)\n"
                      "target_link_libraries(sums weber)\nadd_test(NAME sums COMMAND sums)\n",
    "src/small.c": """int wb_sum(const int *x, int n)
{
    int sum = 0;
    while (n > 0) {
        sum += x[n - 1];
        n--;
    }
    return sum;
}

int wb_next(int x)
{
    return x + 1;
}

int wb_same(unsigned x)
{
    return x >= 0 && sizeof(char) == 1;
}

struct pair { int first; } wb_pair(struct pair x)
{
    return x;
}
""",
    "tests/sums.c": "int wb_sum(const int *x, int n);\nint main(void)\n{\n"
                    "    const int x[] = {1, 2, 4};\n    return wb_sum(x, 3) != 7;\n}\n",
}
# The verdict; a part of its line in the report.
EXPECTED = [
    ("killed", "wb_sum operator: += -> -="), ("killed", "wb_sum condition: n > 0 -> 0"),
    ("killed", "wb_sum constant: 1 -> 2"),
    ("killed", "wb_sum drop: n--; -> ;: by sums: no end within"),
    ("SURVIVED", "wb_next operator: + -> -: sums"), ("SURVIVED", "wb_next constant: 1 -> 0: sums"),
    ("accepted", "wb_same operator: >= -> <: it is the same here"),
    ("equivalent", "wb_same operator: && -> ||: the same programs"),
    ("no compile", "wb_pair drop: return x; -> return 0;"),
]


def fail(text):
    print(f"{Path(__file__).name}: ERROR: {text}")
    sys.exit(1)


def check_changes():
    for body, expected in CASES:
        text = f"static int f(int a, int *b)\n{{\n    {body}\n}}\n"
        found = {(m.kind, m.old, m.new) for m in mutate.Source("x.c", text).mutants()}
        if found != expected:
            fail(f"{body}\nnot made: {expected - found}\nmade: {found - expected}")
    rows = mutate.Source("x.def", "WB_ROW(neg, 2)\nstatic const int t[] = {3};\n").mutants()
    if {m.function for m in rows} != {"neg", "t"}:
        fail(f"functions of mutants: {rows}")


def report(*words):
    """(status, output) of the program with these words"""
    output = io.StringIO()
    sys.argv = ["mutate.py", *words]
    with contextlib.redirect_stdout(output):
        status = mutate.main()
    return status, output.getvalue()


def check_project(folder):
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "Small"], check=True)
    mutate.ROOT, mutate.PATIENCE, mutate.OPTIONS = folder, 1, ("-DCMAKE_BUILD_TYPE=Release",)
    faults.REACH, faults.ACCEPTED = [("src/", "sums")], {
        ("src/small.c", "wb_same"): "it is the same here"}
    build = ("--build", str(folder / "build"))
    status, text = report("src/small.c", "--must", *build)
    for verdict, part in EXPECTED:
        if not any(row.startswith(verdict) and part in row for row in text.split("\n")):
            fail(f"no row of {verdict}, {part}, in:\n{text}")
    if status != 1 or report("src/small.c:wb_same", "--must", *build)[0] != 0:
        fail("--must: the status is that of survivors that are not accepted")
    if (folder / "src/small.c").read_text(encoding="utf-8") != PROJECT["src/small.c"]:
        fail("the sources are not what they were")
    lists = [report("--tree", "--list", "--sample", "5", "--seed", seed)[1] for seed in "112"]
    if lists[0] != lists[1] or lists[0] == lists[2] or lists[0].count("\n") != 6:
        fail(f"samples: {lists}")
    changed = PROJECT["src/small.c"].replace("sum = 0", "sum = 5")
    (folder / "src/small.c").write_text(changed, encoding="utf-8")
    rows = report("--base", "HEAD", "--list")[1].split("\n")[1:-1]
    if len(rows) != 2 or not all("src/small.c:3 wb_sum constant: 5" in row for row in rows):
        fail(f"mutants of a changed line: {rows}")


def check_rows(build):
    files = mutate.git("ls-files", "src")
    for file in filter(None, (files or "").split("\n")):
        if file.endswith(mutate.ENDINGS):
            mutate.reach(file)
    if not faults.changes(mutate.ROOT):
        fail("there are no faults")
    for file, function in faults.ACCEPTED:
        if function not in {m.function for m in mutate.all_mutants({file: None})}:
            fail(f"ACCEPTED: {file} has no {function}")
    named = {test for row in (*faults.REACH, *faults.FAULTS) for test in row[-1].split()}
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True,
                           stdout=subprocess.PIPE).stdout if build else b'{"tests": []}'
    there = {test["name"] for test in json.loads(shown)["tests"]}
    # another build may lack devices or MPI
    if {"conformance_metal", "aware_openmpi", "gpu_fused"} <= there and not named <= there:
        fail(f"ctest has no {', '.join(sorted(named - there))}")


def main():
    check_changes()
    check_rows(sys.argv[1] if len(sys.argv) > 1 else None)
    if not mutate.git("rev-parse", "HEAD"):
        print("SKIP: the sources are no checkout of git")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        check_project(Path(folder))
    print("Each kind of mutant is made, killed, survives, or is equivalent")
    return 0


if __name__ == "__main__":
    sys.exit(main())
