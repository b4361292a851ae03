"""Tests docs/errors.md: runs its examples with the library and compares their messages, the pages
with what `weber explain` prints, and both with the table of messages, src/base/mistakes.def.

    errors.py LIBRARY COMPILER WEBER [--update]

A page is a heading "### W0201: ...".  Its C block is an example, whose message is the next block;
the block before the first page is at file scope.  --update writes the messages.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs/errors.md"
TASKS = ROOT / "docs/site/tasks.md"
# What people look for, and the beginning of the title of its topic.
SEARCHED = {
    "early stopping": "Early stopping", "patience": "Early stopping",
    "copy weights": "Copy weights", "copying weights": "Copy weights",
    "copy the weights of one model to another": "Copy weights", "load_state_dict": "Copy weights",
    "target network": "Copy weights", "polyak": "Polyak", "ema": "Polyak", "soft update": "Polyak",
    "dqn": "Reinforcement learning", "replay buffer": "Reinforcement learning",
    "gather": "Elements by index", "index_add": "Sums by index",
    "scatter_reduce": "Sums by index", "graph networks": "Graph neural networks",
    "argmax": "The maximum", "max(dim).values": "The maximum", "nan_to_num": "NaN",
    "nanmean": "NaN", "masked mean": "A masked mean", "class weights": "Class weights",
    "sample weights": "Class weights", "quantile loss": "Quantile loss",
    "pinball": "Quantile loss", "segmentation": "Segmentation", "iou": "Segmentation",
    "gradient clipping": "Gradient clipping", "clip gradients": "Gradient clipping",
    "kaiming init": "Initial values", "learning rate schedules": "Learning rate",
    "freeze layers": "Freeze layers", "confusion matrix": "Metrics",
}
EXAMPLE = re.compile(r"```c\n(.*?)```\n(?:```\n(.*?)```\n)?", re.S)

MAIN = """
int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    int page = atoi(argv[1]);
    wb_seed(1);
    %s
    puts(wb_error());
    return 0;
}
"""


def pages(text):
    """(number, body) of each page."""
    parts = re.split(r"^### W(\d{4}): ", text, flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def build(text, compiler, library, folder):
    shared = EXAMPLE.search(text[:text.index("\n### ")]).group(1)
    calls, functions = [], []
    for number, body in pages(text):
        example = EXAMPLE.search(body)
        if example:
            functions.append(f"static void w{number}(void)\n{{\n{example.group(1)}}}\n")
            calls.append(f"if (page == 1{number} - 10000) w{number}();")
    program = folder / "errors.c"
    heads = "".join(f"#include <{name}.h>\n" for name in ("math", "stdio", "stdlib", "weber"))
    program.write_text(heads + shared + "\n".join(functions) + MAIN % "\n    ".join(calls))
    flags = ["-std=c11", "-w", "-Werror=implicit-function-declaration", f"-I{ROOT}/include"]
    subprocess.run([compiler, *flags, str(program), library,
                    f"-Wl,-rpath,{Path(library).parent}", "-o", str(folder / "errors")], check=True)
    return folder / "errors"


def message(program, number, folder):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WEBER_")}
    environment["WEBER_BACKENDS"] = ""
    done = subprocess.run([str(program), str(int(number))], capture_output=True, text=True,
                          cwd=folder, env=environment, check=False, timeout=60)
    if done.returncode:
        return f"exit status {done.returncode}: {done.stderr}"
    return done.stdout.strip()


def check_examples(text, program, folder, update):
    failures = 0
    for number, body in pages(text):
        example = EXAMPLE.search(body)
        if not example:
            continue
        if example.group(2) is None:
            print(f"W{number}: its example has no message")
            failures += 1
            continue
        found = message(program, number, folder)
        if found.endswith(" (W1002)"):
            print(f"SKIP: W{number}: {found}")
            continue
        wanted = " ".join(example.group(2).split()) + f" (W{number})"
        if update and found.endswith(f" (W{number})"):
            lines = found[:-len(" (W0000)")] + "\n"
            start = example.start(2) + text.index(body)
            text = text[:start] + lines + text[start + len(example.group(2)):]
        elif " ".join(found.split()) != wanted:
            print(f"W{number}: the message is\n    {found}\nthe page has\n    {wanted}")
            failures += 1
    if update:
        PAGES.write_text(text)
    return failures


def formats():
    """(file, status, format) of each failure in the library's sources."""
    literal = r'"(?:[^"\\]|\\.)*"'
    call = re.compile(r"wb__fail(?:_null)?\(\s*(?:WB_ERROR_)?(\w+)\s*,\s*"
                      rf"((?:(?:{literal}|PRI\w+)\s*)+)")
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        for status, text in call.findall(path.read_text()):
            yield path, status, "".join(part[1:-1] for part in re.findall(literal, text))


def check_table(text):
    failures = 0
    rows = re.findall(r'^WB_MISTAKE\((\d{4}), (\w+), "(.*)"\)$',
                      (ROOT / "src/base/mistakes.def").read_text(), re.M)
    base = (ROOT / "include/weber/base.h").read_text()
    listed = re.search(r"#define WB_ERRORS\(X\).*?\n\n", base, re.S).group(0)
    statuses = re.findall(r"\bX\((\w+), ", listed)
    general = {f"{100 * number:04}" for number in range(1, len(statuses) + 1)}
    of_text = {number for number, _ in pages(text)}
    for number in sorted(of_text ^ ({row[0] for row in rows} | general)):
        print(f"W{number} is on one side alone: docs/errors.md, or the table")
        failures += 1
    if [number for number, _ in pages(text)] != sorted(of_text):
        print("the pages are not in order, or one is there twice")
        failures += 1
    used = set()
    for path, status, form in formats():
        own = [row for row in rows if row[1] == status and row[2] in form]
        used.update(own)
        if len({row[0] for row in own}) > 1:
            print(f"{path}: {form}: two pages: {own}")
            failures += 1
    for number, status, form in rows:
        if statuses.index(status) + 1 != int(number) // 100:
            print(f"W{number} is not a number for {status}")
            failures += 1
        if (number, status, form) not in used:
            print(f"no message of {status} has the text of W{number}: {form}")
            failures += 1
    return failures


def explain(weber, *words):
    return subprocess.run([weber, "explain", *words], capture_output=True, text=True, check=False)


def check_command(text, weber):
    failures = 0
    listed = explain(weber).stdout.split("\n")
    titles = re.findall(r"^### (W\d{4}: .*)$", text, re.M)
    topics = re.findall(r"^## (.*)$", TASKS.read_text(), re.M)
    if listed[:len(titles) + 1] != titles + [""] or listed[len(titles) + 2:] != topics + [""]:
        print("`weber explain` lists other pages:", listed)
        failures += 1
    for number, body in pages(text):
        wanted = re.sub(r"^```c?\n", "", re.split(r"^##", body, flags=re.M)[0], flags=re.M)
        wanted = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", wanted)        # links by their words
        for name in (f"W{number}", f"w{number}", str(int(number))):
            done = explain(weber, name)
            printed = re.sub(r"^ +", "", done.stdout, flags=re.M)
            wanted = re.sub(r"^ +", "", wanted, flags=re.M)
            if done.returncode or printed.strip() != f"W{number}: {wanted.strip()}":
                print(f"`weber explain {name}` prints\n{done.stdout}")
                failures += 1
    for wrong in ("W0299", "W9999", "W02", "W", "0", "W02011", "-1", "", "qxqx", "(W0299)"):
        done = explain(weber, wrong)
        if done.returncode != 1 or f'"{wrong}"; `weber explain` lists' not in done.stderr or \
           done.stdout:
            print(f"`weber explain {wrong}` does not say that there is none")
            failures += 1
    for word in ("--help", "-h"):
        if not explain(weber, word).stdout.startswith("weber new "):
            print(f"`weber explain {word}` does not print the help")
            failures += 1
    page = explain(weber, "W0203").stdout
    quoted = "Dense: expects 3 features in the last dimension, got [2,4] f32 (W0203)"
    for words in ([quoted], quoted.split(), ["mse: (W0201) ... " + quoted]):
        if explain(weber, *words).stdout != page:
            print(f"`weber explain {words}` does not print the page of the message")
            failures += 1
    for words in (["NaN"], ["nan"], ["class", "numbers"]):
        text_of = " ".join(words)
        having = [f"W{number}: " for number, body in pages(text)
                  if text_of.lower() in re.split(r"^## ", body, flags=re.M)[0].lower()]
        printed = explain(weber, *words).stdout.partition("\n\n")[0].split("\n") + [""]
        if printed[0] != f'pages that have "{text_of}":' or \
           [line[:7] for line in printed[1:-1]] != having or not having:
            print(f"`weber explain {words}` prints {printed}, not {having}")
            failures += 1
    return failures


def check_topics(weber):
    """Words, questions and names of other libraries find the topic with a title that begins so."""
    failures = 0
    for words, title in SEARCHED.items():
        for asked in (words, words.upper(), f"how do I {words}?"):
            done = explain(weber, *asked.split())
            lines = done.stdout.partition("\n\n")[2].split("\n") + done.stdout.split("\n")
            if done.returncode or not any(line.startswith(title) for line in lines):
                print(f"`weber explain {asked}` does not find {title}:\n{done.stdout}{done.stderr}")
                failures += 1
    for title in re.findall(r"^## (.*)$", TASKS.read_text(), re.M):
        if not explain(weber, title).stdout.startswith(f"{title}\n"):
            print(f"`weber explain {title}` does not print it")
            failures += 1
    printed = explain(weber, "early", "stopping").stdout
    if "training: [" in printed or "`.stop` of `wb_train`" not in printed or \
            ": training. In a loop" not in printed or "\n    wb_watch watch" not in printed:
        print(f"`weber explain early stopping` prints\n{printed}")
        failures += 1
    return failures


def main(library, compiler, weber, *options):
    text = PAGES.read_text()
    library = str(Path(library).absolute())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(text, compiler, library, folder)
        failures = check_examples(text, program, folder, "--update" in options)
    failures += check_table(text) + check_command(PAGES.read_text(), weber) + check_topics(weber)
    print(f"{len(pages(text))} pages, {failures} failures")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
