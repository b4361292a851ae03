#!/usr/bin/env python3
"""Tests tools/dist.py and the recipes of packaging/ for package managers.

A small repository with what dist.py reads is archived twice, with other settings: the bytes are the
same.  A changed tree and a folder without .git are errors.  The recipes that dist.py writes have
version, address and hashes of the archive, set options that CMakeLists.txt has, and set each option
whose default depends on the machine.  Ruby and Nix parse their recipes where they are installed.
"""
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READ = (".gitignore", "CHANGELOG.md", "CMakeLists.txt", "LICENSE", "README.md", "include",
        "packaging", "run", "tools/abi.py", "tools/dist.py", "tools/version.py")
# Options that decide what a package has, whatever their defaults are
DECIDED = {"WEBER_ZLIB", "WEBER_MPI", "WEBER_TESTS", "WEBER_EXAMPLES", "WEBER_BENCH"}
# The fields of vcpkg.json and of its features that vcpkg documents and these recipes may use
FIELDS = {"name", "version", "port-version", "description", "homepage", "documentation", "license",
          "supports", "dependencies", "default-features", "features"}
FEATURE_FIELDS = {"description", "dependencies", "supports", "license"}
failed = False


def expect(condition, check, shown=""):
    global failed
    print(f"{'ok' if condition else 'FAILED'}: {check}" + (f": {shown}" if not condition else ""))
    failed = failed or not condition


def run(*words, folder, umask=0o022, **variables):
    author = {f"GIT_{role}_{what}": "x@y.z" for role in ("AUTHOR", "COMMITTER")
              for what in ("NAME", "EMAIL")}
    return subprocess.run([str(word) for word in words], cwd=folder, umask=umask, text=True,
                          env=dict(os.environ, **author, **variables), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)


def repository(folder):
    for name in READ:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        run("git", *words, folder=folder)


def dist(folder, *words, **more):
    return run(sys.executable, folder / "tools/dist.py", *words, folder=folder, **more)


def archives(work):
    """Tests the archive; returns the folder of the clone, the archive and its recipes."""
    first, second = work / "first", work / "second"
    first.mkdir()
    repository(first)
    done = dist(first, "--local", TZ="UTC", LC_ALL="C")
    found = list((first / "build/dist").glob("weber-*.tar.gz"))
    expect(done.returncode == 0 and len(found) == 1, "it writes one archive", done.stdout)
    archive = found[0]
    run("git", "clone", "-q", first, second, folder=work, umask=0o077)
    dist(second, umask=0o077, TZ="Pacific/Chatham", GIT_CONFIG_COUNT="2",
         GIT_CONFIG_KEY_0="tar.umask", GIT_CONFIG_VALUE_0="user",
         GIT_CONFIG_KEY_1="core.autocrlf", GIT_CONFIG_VALUE_1="true")
    other = second / "build/dist" / archive.name
    expect(other.exists() and other.read_bytes() == archive.read_bytes(),
           "two clones give the same bytes")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    expect(Path(f"{archive}.sha256").read_text() == f"{digest}  {archive.name}\n",
           "the hash beside the archive is right")
    with tarfile.open(archive) as files:
        members = files.getmembers()
    top = archive.name[:-len(".tar.gz")]
    names = {member.name for member in members if member.isfile()}
    tracked = run("git", "ls-files", folder=first).stdout.split()
    expect(names == {f"{top}/{name}" for name in tracked}, "it has every tracked file and no other")
    expect(all(member.uid == member.gid == 0 and member.mode in (0o644, 0o755)
               for member in members), "owner and modes are fixed")
    return first, archive


def refusals(clone, archive, work):
    (clone / "LICENSE").write_text("another")
    (clone / "new.c").write_text("")
    done = dist(clone)
    expect(done.returncode != 0 and " M LICENSE" in done.stdout and "?? new.c" in done.stdout,
           "changed and new files are named in an error", done.stdout)
    run("tar", "-xzf", archive, folder=work)
    done = dist(work / archive.name[:-len(".tar.gz")])
    expect(done.returncode != 0 and "it has no .git" in done.stdout,
           "an unpacked archive is an error", done.stdout)


def release(clone):
    """What a commit lacks to be a release is named, and an error with --release."""
    run("git", "checkout", "-q", ".", folder=clone)
    run("git", "clean", "-fdq", folder=clone)
    log = clone / "CHANGELOG.md"
    text = re.sub(r"^(## \S+).*", r"\1", log.read_text(), count=1, flags=re.M)

    def commit(changes):
        log.write_text(changes)
        run("git", "commit", "-qam", "changes", folder=clone)
        return dist(clone, "--release")
    done = commit(text.replace("\n## ", "\n## 99.0.0 (not released yet)\n\n## ", 1))
    expect(done.returncode == 1 and "is 99.0.0" in done.stdout and "is not released" in done.stdout,
           "a head of another version, which is not released, is no release", done.stdout)
    done = commit(text)
    expect("CHANGELOG" not in done.stdout, "a released head of this version is one", done.stdout)
    if shutil.which("abidw"):
        log.write_text(re.sub(r"^## .*", r"\g<0> (not released)", text, flags=re.M))
        run(sys.executable, clone / "tools/abi.py", "--update", folder=clone)
        done = commit(text + "\n")
        expect(done.returncode == 0 and "not a release" not in done.stdout,
               "with the interface of the headers it is a release", done.stdout)
        header = clone / "include/weber/base.h"
        header.write_text(header.read_text().replace("int wb_threads(void)", "int wb_x(void)"))
        done = commit(text)
        expect(done.returncode == 1 and "libweber.abi is not" in done.stdout,
               "with another interface it is no release", done.stdout)


def options():
    """The options of CMakeLists.txt, and those whose default is AUTO."""
    text = (ROOT / "CMakeLists.txt").read_text()
    known = set(re.findall(r"^option\((WEBER_\w+)", text, re.M))
    automatic = set(re.findall(r"^set\((WEBER_\w+) AUTO CACHE", text, re.M))
    return known | automatic | set(re.findall(r"^set\((WEBER_\w+) .*CACHE", text, re.M)), automatic


def recipe_options(name, text):
    """The options that a recipe sets."""
    found = set(re.findall(r"(?:-D|\b)(WEBER_[A-Z0-9_]+)", text))
    if name == "conan":                     # it makes the names from those of its options
        tree = ast.parse(text)
        dictionary = next(node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)
                          and getattr(node.targets[0], "id", "") == "LIBRARIES")
        libraries = {ast.literal_eval(key) for key in dictionary.keys}
        given = next(ast.literal_eval(node.value) for node in ast.walk(tree) if
                     isinstance(node, ast.Assign) and
                     getattr(node.targets[0], "id", "") == "options")
        expect({f"with_{library}" for library in libraries} ==
               {option for option in given if option.startswith("with_")},
               "conan: its options are those of its libraries")
        found |= {f"WEBER_{library.upper()}" for library in libraries}
        loop = re.search(r"for name in (\(.*?\)):\n +values\[f\"WEBER_\{name\}\"\]", text)
        found |= {f"WEBER_{word}" for word in ast.literal_eval(loop.group(1))}
    return found


def check_vcpkg(folder):
    port = json.loads((folder / "vcpkg.json").read_text())
    features = port["features"]
    expect(set(port) <= FIELDS and all(set(f) <= FEATURE_FIELDS for f in features.values()),
           "vcpkg: its fields are documented ones")
    expect(all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in (port["name"], *features)),
           "vcpkg: names have small letters, digits and hyphens")
    listed = re.search(r"FEATURES\n(.*?)\)", (folder / "portfile.cmake").read_text(), re.S)
    pairs = dict(line.split() for line in listed.group(1).strip().splitlines())
    expect(set(pairs) == set(features), "vcpkg: the features of both files agree", sorted(pairs))
    expect(all(option == f"WEBER_{name.upper()}" for name, option in pairs.items()),
           "vcpkg: features have the names of their options", pairs)
    return port["version"]


def recipes(clone, archive):
    folder = clone / "build/dist/recipes"
    content = archive.read_bytes()
    version = re.search(r"weber-(.*)\.tar\.gz", archive.name).group(1)
    header = (ROOT / "include/weber/base.h").read_text()
    expect(re.findall(r"WB_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header) == version.split("."),
           "the version is that of base.h")
    known, automatic = options()
    for name in ("conan", "homebrew", "nix", "vcpkg"):
        files = {path: path.read_text() for path in (folder / name).rglob("*") if path.is_file()}
        text = "\n".join(files.values())
        expect(not re.search(r"@[A-Z0-9]+@", text), f"{name}: no word is left to fill in")
        digest = hashlib.new("sha512" if name == "vcpkg" else "sha256", content).hexdigest()
        expect(digest in text and archive.as_uri() in text and (version in text or
               name == "homebrew"), f"{name}: version, address and hash are those of the archive")
        used = recipe_options(name, "\n".join(text for path, text in files.items()
                              if path.name not in ("program.c", "conandata.yml")
                              and "test_package" not in path.parts))
        expect(used <= known, f"{name}: CMakeLists.txt has its options", sorted(used - known))
        missing = (automatic | DECIDED) - used
        expect(not missing, f"{name}: it sets what depends on the machine", sorted(missing))
        for path in files:
            if path.suffix == ".py":
                compile(files[path], path, "exec")
    expect(check_vcpkg(folder / "vcpkg/weber") == version, "vcpkg: its version is the archive's")
    program = (folder / "conan/test_package/program.c").read_text()
    expect("int main(" in program and program in (ROOT / "README.md").read_text(),
           "conan: it is tested with the README's program")
    for words, path in ((["ruby", "-c"], "homebrew/weber.rb"),
                        (["nix-instantiate", "--parse"], "nix/package.nix"),
                        (["nix-instantiate", "--parse"], "nix/default.nix")):
        if not shutil.which(words[0]):
            print(f"not checked: {path}: there is no {words[0]}")
            continue
        done = run(*words, folder / path, folder=folder, HOME=str(clone))
        expect(done.returncode == 0, f"{words[0]} parses {path}", done.stdout)


def main():
    if not shutil.which("git"):
        print("SKIPPED: there is no git")
        return 77
    with tempfile.TemporaryDirectory(prefix="weber-recipes-") as name:
        work = Path(name)
        clone, archive = archives(work)
        recipes(clone, archive)
        refusals(clone, archive, work)
        release(clone)
    return int(failed)


sys.exit(main())
