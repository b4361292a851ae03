#!/usr/bin/env python3
"""Tests the tests: changes the sources in one place at a time, and reports which changes no test
notices.

    mutate.py [--base REV]              the lines of src/ that differ from REV; by default from the
                                        commit where this branch left main, on main from HEAD~1
    mutate.py FILE[:FUNCTION]...        these files, functions or folders
    mutate.py --tree                    all of src/
    mutate.py --faults [WORD]           the faults that tools/faults.py describes by hand, or those
                                        whose file or description contains WORD
    --sample N, --seed S                only N of the mutants, which depend on S
    --must                              exit status 1 if a mutant survives that is not accepted
    --list                              prints the mutants and tests none
    --build FOLDER                      the copy of the sources and its build (build-mutants)

A mutant has another operator, another constant, a condition that is negated or always true or
false, a statement less, or two arguments in the wrong order.  Comments, texts, lines of the
preprocessor, static assertions and the arguments of messages are left as they are.  The copy is
built with Ninja and without oneDNN, except for files of onednn/, and only what a mutant changes is
compiled again.  In tools/faults.py, REACH names the tests of each file, in the order in which they
run until one fails, and ACCEPTED the functions whose surviving mutants are accepted.

A mutant is "killed" by a test that fails or that does not end in time.  It is "equivalent" if the
programs of its tests are the same bytes as without it.
"""
import argparse
import collections
import contextlib
import filecmp
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import faults

ROOT = Path(__file__).resolve().parent.parent
ENDINGS = (".c", ".h", ".def", ".k")
OPTIONS = ("-DCMAKE_BUILD_TYPE=Release", "-DWEBER_EXAMPLES=OFF", "-DWEBER_BENCH=OFF",
           "-DWEBER_TESTS=ON",
           "-DCMAKE_C_FLAGS=-Werror=incompatible-pointer-types -Werror=int-conversion"
           " -Werror=implicit-function-declaration")

PATIENCE = 10          # seconds that a test may take beyond five times its own

Mutant = collections.namedtuple("Mutant", "file function line kind begin end new old")
Token = collections.namedtuple("Token", "kind text begin end")

TOKEN = re.compile(
    r"(?P<skip>/\*.*?\*/|//[^\n]*|^[ \t]*#(?:\\\n|/\*.*?\*/|[^\n])*)"
    r"|(?P<string>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
    r"|(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[^\s\w])",
    re.M | re.S)
UNTOUCHED = ("static_assert", "_Static_assert", "__attribute__", "WB__PRINTF", "_Alignas",
             "_Pragma", "asm", "__asm__")
CONTROL = ("if", "while", "for", "switch")
OTHER_SIGNS = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "==": "!=", "!=": "==",
               "<": "<= >=", "<=": "< >", ">": ">= <=", ">=": "> <", "&&": "||", "||": "&&",
               "<<": ">>", ">>": "<<", "&": "|", "|": "&", "+=": "-=", "-=": "+=", "|=": "&=",
               "&=": "|="}
ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")
ENDS = {",", ";", "?", ":", "return", *ASSIGNMENTS}
OPEN, CLOSE = "([{", ")]}"
# What an expression statement has behind the name with which it begins.
AFTER_NAME = {"(", "[", ".", "->", "++", "--", ";", *ASSIGNMENTS}


class Source:
    """A file of C, and what may be changed in it."""

    def __init__(self, name, text):
        self.name, self.text, self.found, self.keys = name, text, [], set()
        self.t = [Token(m.lastgroup, m.group(), *m.span()) for m in TOKEN.finditer(text)
                  if m.lastgroup != "skip"]
        self.pair, self.around = {}, []         # brackets; the open bracket around each token
        stack = []
        for i, token in enumerate(self.t):
            if token.kind == "sign" and token.text in CLOSE and stack:
                self.pair[i] = stack.pop()
                self.pair[self.pair[i]] = i
            self.around.append(stack[-1] if stack else -1)
            if token.kind == "sign" and token.text in OPEN:
                stack.append(i)
        self.blocks, self.owner, self.fixed = set(), [], set()
        self.find_blocks()

    def word(self, i):
        return self.t[i].text if 0 <= i < len(self.t) and self.t[i].kind != "string" else ""

    def find_blocks(self):
        """The braces that hold statements, and the function or table of each token."""
        name, called = "", False
        for i, token in enumerate(self.t):
            outside = self.around[i] == -1
            before = self.word(i - 1)
            if outside and token.text == "(" and self.t[i - 1].kind == "name":
                # a row of a .def file has the name of its first argument
                row = before.isupper() and self.t[i + 1].kind == "name"
                name, called = (self.word(i + 1), called) if row else (before, True)
            elif outside and token.text in ("=", "[", "{") and not called and \
                    self.t[i - 1].kind == "name":
                name, called = before, token.text != "{"
            if token.text == "{" and (outside and before == ")" or
                                      self.around[i] in self.blocks and self.starts(i)):
                self.blocks.add(i)
            if token.text in UNTOUCHED and self.word(i + 1) == "(":
                self.fixed.update(range(i, self.pair.get(i + 1, i) + 1))
            if token.kind == "string" and "%" in token.text and self.around[i] >= 0:
                self.fixed.update(range(self.around[i], self.pair.get(self.around[i], i) + 1))
            self.owner.append(name)
            if outside and token.text in (";", "}"):
                called = False

    def starts(self, i):
        """Whether a statement begins with token i, which is directly in a block."""
        before = self.word(i - 1)
        if before in (";", "{", "}", "else", "do"):
            return before != "}" or self.pair.get(i - 1) in self.blocks
        if before == ":":                       # a label, no conditional expression
            while i > self.around[i - 1] and self.word(i) not in (";", "{", "}", "?"):
                i -= 1
            return self.word(i) != "?"
        return before == ")" and self.word(self.pair.get(i - 1, 0) - 1) in CONTROL

    def add(self, kind, first, last, new):
        """A mutant in which the tokens from first to last are `new`; lines keep their numbers."""
        begin, end = self.t[first].begin, self.t[last].end
        old = self.text[begin:end]
        new += "\n" * (old.count("\n") - new.count("\n"))
        if not self.fixed.isdisjoint(range(first, last + 1)) and kind != "drop":
            return
        if new != old and (begin, end, new) not in self.keys:
            self.keys.add((begin, end, new))
            line = self.text.count("\n", 0, begin) + 1
            self.found.append(
                Mutant(self.name, self.owner[first], line, kind, begin, end, new, old))

    def operand(self, i, step, ends):
        """The last token of the operand beside i in the direction of step."""
        around = self.around[i]
        j = i + step
        while 0 <= j < len(self.t) and j != around and j != self.pair.get(around):
            if j in self.pair and (step > 0) == (self.word(j) in OPEN):
                j = self.pair[j]
            elif self.word(j) in ends:
                break
            j += step
        return j - step

    def number(self, i):
        text = self.t[i].text
        plain = re.match(r"(0[xX][\da-fA-F]+|\d+)[uUlL]*$", text)
        if plain and int(re.sub("[uUlL]+$", "", text), 16 if "x" in text.lower() else 10) < 2:
            for new in "1" if int(text.rstrip("uUlL"), 0) == 0 else "02":
                self.add("constant", i, i, new)
        else:
            self.add("constant", i, i, f"({text} + 1)")
            self.add("constant", i, i, f"({text} - 1)" if plain else f"({text} * 0)")

    def sign(self, i):
        text, token = self.t[i].text, self.t[i]
        if text == "!":
            self.add("operator", i, i, "")
        beside = self.text[token.begin - 1] + self.text[token.end:token.end + 1]
        if not beside.split() and self.word(i - 1) not in ENDS | set(OPEN):     # of two operands
            for new in OTHER_SIGNS.get(text, "").split():
                self.add("operator", i, i, new)
        if text in ("&&", "||"):
            ends = ENDS | {"&&", "||"}
            new = "1" if text == "&&" else "0"
            self.add("condition", self.operand(i, -1, ends), i - 1, new)
            self.add("condition", i + 1, self.operand(i, 1, ends), new)
        elif text == "?":
            for new in "10":
                self.add("condition", self.operand(i, -1, ENDS), i - 1, new)

    def header(self, i):
        """The condition of the if, while or for at token i."""
        first, last = i + 2, self.pair.get(i + 1, 0) - 1
        if self.word(i) == "for":
            ends = [k for k in range(first, last + 1)
                    if self.word(k) == ";" and self.around[k] == i + 1]
            if len(ends) != 2:
                return
            first, last = ends[0] + 1, ends[1] - 1
        if first <= last:
            self.add("condition", first, last, "0")
            if self.word(i) == "if":
                self.add("condition", first, last, "1")
            signs = [self.word(k) for k in range(first, last + 1)]
            if self.word(i) != "for" and (signs[0] != "!" or "&&" in signs or "||" in signs):
                self.add("condition", first, last,
                         f"!({self.text[self.t[first].begin:self.t[last].end]})")

    def statement(self, i):
        end = self.operand(i - 1 if self.around[i - 1] == self.around[i] else i, 1, {";"}) + 1
        first = self.word(i)
        if self.word(end) != ";" or first in UNTOUCHED:
            return
        if first == "return":
            after = self.pair.get(end + 1) == self.around[i] and self.around[self.around[i]] == -1
            if not after:                       # the function goes on behind it
                self.add("drop", i, end, ";")
            if end > i + 1 and (end > i + 2 or self.word(i + 1) not in ("0", "NULL", "false")):
                self.add("drop", i, end, "return 0;")
        elif first in ("break", "continue"):
            self.add("drop", i, end, ";")
        elif self.t[i].kind == "name" and self.word(i + 1) in AFTER_NAME and first not in CONTROL \
                or first in ("*", "++", "--") or first == "(" and self.word(i + 1) != "void":
            self.add("drop", i, end, ";")

    def call(self, i):
        """Exchanges arguments of the call whose name is token i."""
        last = self.pair.get(i + 1, 0)
        commas = [k for k in range(i + 2, last) if self.word(k) == "," and self.around[k] == i + 1]
        ends = [i + 1, *commas, last]
        for a, b, c in zip(ends, ends[1:], ends[2:]):
            if b > a + 1 and c > b + 1:
                one = self.text[self.t[a + 1].begin:self.t[b - 1].end]
                two = self.text[self.t[b + 1].begin:self.t[c - 1].end]
                self.add("swap", a + 1, c - 1, f"{two}, {one}")

    def mutants(self):
        for i, token in enumerate(self.t):
            in_block = self.around[i] in self.blocks
            if token.kind == "number":
                self.number(i)
            elif token.kind == "sign":
                self.sign(i)
            elif token.text in CONTROL[:3] and self.word(i + 1) == "(":
                self.header(i)
            elif token.kind == "name" and self.word(i + 1) == "(" and self.around[i] >= 0 and \
                    token.text not in (*CONTROL, "return", "sizeof"):
                self.call(i)
            if in_block and self.starts(i):
                self.statement(i)
        return self.found


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, **more)


def die(text):
    print(text, file=sys.stderr)
    sys.exit(2)


def git(*words):
    done = run(["git", "-C", str(ROOT), *words])
    return done.stdout if done.returncode == 0 else None


def limits():
    """A mutant may ask for memory, or write, without an end."""
    resource.setrlimit(resource.RLIMIT_DATA, (12 << 30, 12 << 30))
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 30, 16 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Build:
    """A copy of the sources and its build, in a folder that later runs use again."""

    def __init__(self, folder, options):
        self.tree, self.build, self.seconds, self.bytes = folder / "tree", folder / "build", {}, {}
        listing = git("ls-files", "-co", "--exclude-standard")
        if listing is None or not shutil.which("ninja"):
            die("mutate.py needs a checkout of git, and Ninja")
        for name in filter(None, listing.split("\n")):
            source, target = ROOT / name, self.tree / name
            # A file that is the same keeps its time, so that it is not compiled again.
            if source.is_file() and not (target.is_file() and filecmp.cmp(source, target, False)):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        done = run(["cmake", "-S", str(self.tree), "-B", str(self.build), "-G", "Ninja", *options])
        if done.returncode:
            die(done.stdout[-3000:])
        rows = run(["ninja", "-C", str(self.build), "-t", "targets", "all"]).stdout.split("\n")
        targets = {row.partition(":")[0] for row in rows}
        shown = run(["ctest", "--show-only=json-v1"], cwd=self.build)
        self.tests = {test["name"]: test for test in json.loads(shown.stdout)["tests"]}
        # ctest does not show the command of a program that is not built yet
        self.commands, self.programs = {}, {}
        for file in self.build.rglob("CTestTestfile.cmake"):
            for name, rest in re.findall(r"^add_test\((?:\[=\[)?([^\s\]]+)\S* (.*)\)$",
                                         file.read_text(encoding="utf-8"), re.M):
                self.commands[name] = shlex.split(rest)
                paths = [os.path.relpath(word, self.build) for word in self.commands[name]
                         if word.startswith("/")]
                self.programs[name] = [path for path in paths if path in targets]

    def make(self, tests):
        """(whether the programs of the tests are built, the compiler's output)"""
        programs = sorted({path for test in tests for path in self.programs[test]})
        done = run(["ninja", "-C", str(self.build), *programs]) if programs else None
        return not done or done.returncode == 0, done.stdout if done else ""

    def digest(self, test):
        return [hashlib.sha256((self.build / path).read_bytes()).digest()
                for path in self.programs[test]]

    def failure(self, test, limit):
        """How a test fails; "": it passes; None: it is skipped."""
        facts = {row["name"]: row["value"] for row in self.tests[test]["properties"]}
        environment = dict(os.environ)
        for row in facts.get("ENVIRONMENT", []):
            name, _, environment[name] = row.partition("=")
        with open(self.build / "output.txt", "w+b") as output, \
                subprocess.Popen(self.commands[test], cwd=facts["WORKING_DIRECTORY"],
                                 env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                 stderr=output, start_new_session=True,
                                 preexec_fn=limits) as child:
            try:
                status = child.wait(limit)
            except subprocess.TimeoutExpired:
                return f"no end within {limit:.0f} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        if status and status == facts.get("SKIP_RETURN_CODE"):
            return None
        return f"status {status}" if status else ""

    def base(self, tests):
        """Those of the tests that can be used, which pass without a mutant."""
        usable = [test for test in tests if test in self.tests]
        done, output = self.make(usable)
        if not done:
            die(output[-3000:])
        for test in sorted(set(usable) - set(self.seconds)):
            begin = time.monotonic()
            failure = self.failure(test, 600)
            if failure:
                tail = (self.build / "output.txt").read_text(errors="replace")[-2000:]
                die(f"{tail}\n{test} fails without a mutant: {failure}")
            self.seconds[test] = time.monotonic() - begin if failure is not None else -1
            self.bytes[test] = self.digest(test)
        for test in sorted(set(tests)):
            if self.seconds.get(test, -1) < 0:
                print(f"NOT USED {test}: this build does not have it, or skips it")
        return [test for test in tests if self.seconds.get(test, -1) >= 0]

    def judge(self, tests, always):
        """(verdict, reason) on the sources as they are now; always: whatever the programs are"""
        same = True
        for test in tests:
            made, output = self.make([test])
            if not made:
                error = re.search(r"error: .*", output)
                return "no compile", error.group() if error else output[-200:]
            if not always and self.digest(test) == self.bytes[test]:
                continue
            same = False
            failure = self.failure(test, PATIENCE + 5 * self.seconds[test])
            if failure:
                return "killed", f"by {test}: {failure}"
        return ("equivalent", "the same programs") if same else ("SURVIVED", ", ".join(tests))


def reach(name):
    for prefix, tests in faults.REACH:
        if name.startswith(prefix):
            return tests.split()
    return die(f"{name}: no row of REACH has its tests")


def sources(names):
    for name in names:
        if name.endswith(ENDINGS):
            yield name, (ROOT / name).read_text(encoding="utf-8")


def all_mutants(chosen):
    """The mutants of {file: lines, functions, or None for all of it}."""
    found = []
    for name, text in sources(sorted(chosen)):
        mutants = Source(name, text).mutants()
        only = chosen[name]
        found += [m for m in mutants if only is None or m.function in only or m.line in only]
    return found


def sample(mutants, n, seed):
    """n of the mutants: those of other functions do not decide whether one is among them."""
    counts = collections.Counter()

    def rank(m):
        key = (m.file, m.function, m.kind, m.old, m.new)
        counts[key] += 1
        return hashlib.sha256(repr((seed, key, counts[key])).encode()).digest()
    ranks = {m: rank(m) for m in mutants}
    return sorted(sorted(mutants, key=ranks.get)[:n])


def changed(base):
    """{file: the lines that differ from a revision}"""
    if not base:
        head, base = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "main")
        base = base.strip() if base and base != head else "HEAD~1"
    diff = git("diff", "-U0", "--no-renames", base, "--", "src")
    if diff is None:
        die(f"There is no revision {base}")
    new = git("ls-files", "-o", "--exclude-standard", "src").split("\n")
    lines, name = dict.fromkeys(filter(None, new)), None
    for row in diff.split("\n"):
        if row.startswith("+++ "):
            name = row[6:] if row.startswith("+++ b/") else None
        hit = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", row)
        if hit and name:
            first, n = int(hit.group(1)), int(hit.group(2) or 1)
            lines.setdefault(name, set()).update(range(first, first + n))
    return lines


def try_all(folder, changes, always):
    """Tests (file, its new text, description, tests, key) one after the other; the survivors."""
    survivors, verdicts = 0, collections.Counter()
    for onednn in ("OFF", "ON"):
        some = [c for c in changes if ("/onednn/" in c[0]) == (onednn == "ON")]
        if not some:
            continue
        build = Build(folder / f"onednn-{onednn.lower()}", [f"-DWEBER_ONEDNN={onednn}", *OPTIONS])
        usable = build.base(sorted({test for c in some for test in c[3]}))
        for name, text, description, tests, key in some:
            path = build.tree / name
            original = path.read_text(encoding="utf-8")
            path.write_text(text, encoding="utf-8")
            try:
                own = [test for test in tests if test in usable]
                verdict, reason = "SURVIVED", "no test runs here"
                if own:
                    verdict, reason = build.judge(own, always)
            finally:
                path.write_text(original, encoding="utf-8")
            if verdict == "SURVIVED" and key in faults.ACCEPTED:
                verdict, reason = "accepted", faults.ACCEPTED[key]
            verdicts[verdict] += 1
            survivors += verdict == "SURVIVED"
            print(f"{verdict:10} {description}: {reason}", flush=True)
    print(", ".join(f"{n} {verdict}" for verdict, n in sorted(verdicts.items())))
    return survivors


def short(text):
    return " ".join(text.split())[:60] or "nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FILE[:FUNCTION]")
    for name in ("--tree", "--must", "--list"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--base")
    parser.add_argument("--faults", nargs="?", const="")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default=str(ROOT / "build-mutants"))
    options = parser.parse_args()
    if options.faults is not None:
        changes = faults.changes(ROOT, options.faults)
    else:
        if options.names:
            chosen = {}
            for name in options.names:
                place, _, function = name.partition(":")
                files = (git("ls-files", "-co", place) or "").split()
                for file in files or die(f"There is no {place}"):
                    chosen.setdefault(file, []).append(function)
            chosen = {file: None if "" in only else only for file, only in chosen.items()}
        elif options.tree:
            chosen = dict.fromkeys(filter(None, git("ls-files", "src").split("\n")))
        else:
            chosen = changed(options.base)
        mutants = all_mutants(chosen)
        if options.names and not mutants:
            die(f"There is nothing to change in {' '.join(options.names)}")
        if options.sample is not None:
            mutants = sample(mutants, options.sample, options.seed)
        texts = {}
        changes = []
        for m in mutants:
            text = texts.setdefault(m.file, (ROOT / m.file).read_text(encoding="utf-8"))
            changes.append((m.file, text[:m.begin] + m.new + text[m.end:],
                            f"{m.file}:{m.line} {m.function} {m.kind}: "
                            f"{short(m.old)} -> {short(m.new)}", reach(m.file),
                            (m.file, m.function)))
    print(f"{len(changes)} mutants", flush=True)
    if options.list or not changes:
        for change in changes:
            print(change[2])
        return 0
    survivors = try_all(Path(options.build).resolve(), changes, options.faults is not None)
    return 1 if survivors and options.must else 0


if __name__ == "__main__":
    sys.exit(main())
