#!/usr/bin/env python3
"""Builds and checks the site: ./run docs.

    docs.py [--pictures] [--check]
    docs.py --pages

Puts docs/site, docs/*.md, the pages of src/, README.md, the examples and the reference that
reference.py makes of the headers into build/docs-source, and runs Sphinx, whose warnings are
errors.  The build fails if a public name has no entry in the reference.  The site is
build/docs/index.html.

  --pictures   first runs the programs in docs/site/pictures, which draw the pictures (pictures.py);
               WEBER_DIGITS is the file digits.csv.gz
  --check      afterwards opens pages in Chromium (docs_check.py)
  --pages      builds nothing: prints the pages that no table of contents has; a test runs this
"""
import fnmatch
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import reference

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build/docs-source"
SITE = ROOT / "build/docs"
# File of the project: page of the site.
PAGES = {"README.md": "overview.md", "CHANGELOG.md": "changes.md",
         "CONTRIBUTING.md": "contributing.md",
         "examples/python/README.md": "other_languages.md"}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)#\s]*)(#[\w-]*)?\)")


def source_pages():
    """{file of the project: page} of what is written elsewhere than in docs/site."""
    pages = dict(PAGES)
    for path in sorted((ROOT / "docs").glob("*.md")):
        pages[f"docs/{path.name}"] = path.name
    written = set((ROOT / "src").rglob("*.md")) - {ROOT / "src/cli/new/README.md"}  # for programs
    for path in [*sorted(written), ROOT / "tests/README.md"]:
        name = path.relative_to(ROOT).as_posix()    # src/engine/plan/README.md: engine_plan.md
        short = re.sub("^src/|/README(?=.md$)", "", name).replace("/", "_")
        pages[name] = f"design/{short}"
    for path in sorted((ROOT / "bench/results").glob("*.md")):
        pages[f"bench/results/{path.name}"] = f"figures/{path.name}"
    return pages


def unlisted():
    """The written pages that no table of contents names, except the first page."""
    written = set(source_pages().values())
    listed = set()
    for path in (ROOT / "docs/site").rglob("*.md"):
        written.add(path.relative_to(ROOT / "docs/site").as_posix())
        for entries in re.findall(r"(?ms)^```{toctree}\n(.*?)^```", path.read_text()):
            listed |= set(re.findall(r"^(?:.* <)?([\w/*]+)>?$", entries, re.M))
    return sorted(page for page in written - {"index.md"}
                  if not any(fnmatch.fnmatch(page[:-len(".md")], entry) for entry in listed))


def example_title(path):
    """(title, comment, code) of an example: its file begins with a comment."""
    text = path.read_text()
    comment = re.match(r"/\*.*?\*/\n", text, re.S).group(0)
    lines = reference.comment_lines(comment.rstrip())
    number, _, name = path.stem.partition("_")
    title = f"{number} {name.replace('_', ' ')}"
    return title, lines, text[len(comment):].lstrip("\n")


def linked(text, name, pages):
    """The text of a page, with links that fit the site; what the site lacks is no link."""
    folder = os.path.dirname(name)
    here = os.path.dirname(pages.get(name, name))

    def link(match):
        label, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        if re.match(r"\w+:", target) or not target:
            return match.group(0)
        path = os.path.normpath(os.path.join(folder, target))
        header = re.match(r"include/(?:weber/)?(\w+)\.h$", path)
        example = re.match(r"examples/(\w+)\.c$|examples/python/(\w+)\.py$", path)
        if path in pages:
            page = pages[path]
        elif header:
            stem = header.group(1)
            page = f"reference/{'index' if stem == 'weber' else stem}.rst"
            page = "reference/cxx.rst" if stem.startswith("cxx") else page
        elif example:
            page = f"examples/{example.group(1) or 'python_' + example.group(2)}.rst"
        else:
            return label
        return f"[{label}]({os.path.relpath(page, here or '.')}{anchor})"

    parts = re.split(r"(?ms)^(```.*?^```$)", text)
    return "".join(part if i % 2 else fenced_all(re.sub(LINK, link, part))
                   for i, part in enumerate(parts))


def fenced_all(text):
    """The text with each indented block fenced."""
    before = r"^((?:(?!\d+\.|[-*] ).*\S)?)\n\n"
    return re.sub(before + r"((?:    .*\n|\n)*    .*\n)", fenced, text, flags=re.M)


def fenced(match):
    """An indented block as one with a language, unless it continues an item of a list."""
    before, block = match.groups()
    lines = [line[4:] for line in block.rstrip("\n").split("\n")]
    return f"{before}\n\n```{reference.language(lines)}\n" + "\n".join(lines) + "\n```\n"


def assemble():
    """Writes build/docs-source; returns the public names."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs/site", SOURCE, ignore=shutil.ignore_patterns("*.c", "*.h"))
    pages = source_pages()
    for name, page in pages.items():
        path = SOURCE / page
        path.parent.mkdir(exist_ok=True)
        text = linked((ROOT / name).read_text(), name, pages)
        if page == "errors.md":             # errors.html#w0201
            text = re.sub(r"(?m)^(?=### (W\d{4}):)", r"(\1)=\n", text)
        path.write_text(text)
    texts, names, made = reference.make(ROOT)
    (SOURCE / "reference").mkdir()
    for page, text in texts.items():
        (SOURCE / f"reference/{page}.rst").write_text(text)
    (SOURCE / "examples").mkdir()
    listed = []
    for path in sorted((ROOT / "examples").glob("*.c")):
        title, lines, code = example_title(path)
        text = f"{title}\n{'=' * len(title)}\n\n{reference.prose(lines)}\n\n"
        text += f".. code-block:: c\n   :caption: {path.relative_to(ROOT)}\n\n"
        text += reference.indented(code)
        (SOURCE / f"examples/{path.stem}.rst").write_text(text)
        listed.append(f"   {path.stem}")
    for path in sorted((ROOT / "examples/python").glob("*.py")):
        (SOURCE / f"examples/python_{path.stem}.rst").write_text(
            f"Python: {path.name}\n{'=' * 40}\n\n.. code-block:: python\n"
            f"   :caption: {path.relative_to(ROOT)}\n\n{reference.indented(path.read_text())}")
        listed.append(f"   python_{path.stem}")
    (SOURCE / "examples/index.rst").write_text(
        "Examples\n========\n\nPrograms that build on each other.  The tests compile and run them, "
        "and compare what they print.\n\n.. toctree::\n   :maxdepth: 1\n\n" + "\n".join(listed) +
        "\n")
    return names, made


def covered(names):
    """Whether the reference has an entry for each public name; prints the count."""
    from sphinx.util.inventory import InventoryFile
    with (SITE / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", os.path.join)
    kinds = getattr(inventory, "data", inventory)       # Sphinx 9 has a dictionary
    entries = {name for kind, rows in kinds.items() if kind.startswith("c:") for name in rows}
    missing = sorted(set(names) - entries)
    for name in missing:
        print(f"include/weber/{names[name]}: {name} has no entry in the reference")
    print(f"{len(names) - len(missing)} of {len(names)} public names are in the reference")
    return not missing


def build():
    names, made = assemble()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "2", "-b",
               "html", "-d", str(ROOT / "build/docs-trees"), str(SOURCE), str(SITE)]
    if subprocess.run(command, check=False).returncode:
        return False
    functions = [name for name, entry in made.functions.items() if entry.kind == "function"]
    print(f"{len(functions) - len(made.without()[1])} of {len(functions)} functions have an "
          "example that the tests run")
    return covered(names)


def main():
    options = set(sys.argv[1:])
    if options - {"--pictures", "--check", "--pages"}:
        sys.exit(__doc__)
    if "--pages" in options:
        for page in unlisted():
            print(f"{page}: no table of contents of docs/site has this page")
        return 1 if unlisted() else 0
    if "--pictures" in options:
        import pictures
        if not pictures.draw(ROOT, ROOT / "build", Path(os.environ["WEBER_DIGITS"]).resolve()):
            return 1
    if not build():
        return 1
    print(f"The site is {SITE.relative_to(ROOT)}/index.html")
    if "--check" in options:
        import docs_check
        return 0 if docs_check.check(SITE) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
