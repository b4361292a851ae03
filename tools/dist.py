#!/usr/bin/env python3
"""Makes the archive of a release, and the recipes of package managers for it.

    dist.py [--local] [--check] [--release]

build/dist/weber-VERSION.tar.gz has every file of the commit HEAD; weber-VERSION.tar.gz.sha256 its
hash.  The bytes depend on the commit, not on settings: the names are sorted, the owner is root,
the times are that of the commit, and GNU gzip, which is needed, writes neither name nor time.
--check proves this on one machine; other versions of git and of GNU gzip were not compared.
`git get-tar-commit-id` reads the commit back.

"not a release: ..." names what the commit lacks: a head of CHANGELOG.md that is released and has
the version of base.h, and packaging/abi/libweber.abi as `./run abi --update` writes it.  With
--release this is an error, and nothing is written.

build/dist/recipes/ has the recipes of packaging/ with version, address and hashes in the place of
@WORDS@.  Address and homepage are those of packaging/release.json; with --local, or without an
address there, the recipes name the archive in build/dist/.

--check makes the archive again in two clones with other settings of umask, time zone, language and
git, and compares the bytes; unpacks, builds and tests it, with both libraries and with one of them;
and builds the program of docs/embedding.md.  It takes some minutes.
"""
import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import abi
from version import releases, version

ROOT = Path(__file__).resolve().parent.parent
TO = ROOT / "build/dist"
MANAGERS = ("conan", "homebrew", "nix", "vcpkg")
# Settings of the user that would change the bytes; git gives each file its mode less tar.umask.
SETTINGS = ("-c", "tar.umask=0022", "-c", "core.autocrlf=false", "-c", "core.eol=lf",
            "-c", f"core.attributesFile={os.devnull}")


def run(*command, **more):
    """Runs a command and returns its output; if it fails, prints the end of that and exits."""
    more = {"stderr": subprocess.STDOUT, **more}
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, check=False,
                          **more)
    if done.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"{done.stdout.decode(errors='replace')[-6000:]}\n{words}: "
                 f"exit status {done.returncode}")
    return done.stdout


def git(*words):
    return run("git", "-C", ROOT, *words, stderr=None)


def description():
    return re.search(r'DESCRIPTION "([^"]*)"', (ROOT / "CMakeLists.txt").read_text()).group(1)


def first_program():
    """The first block of the README, a program."""
    return re.search(r"^```c\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S).group(1)


def require_clean_clone():
    if not (ROOT / ".git").exists():
        sys.exit(f"{ROOT} is not a clone of the repository (it has no .git): the archive is made "
                 "from a commit.  What was unpacked from an archive can be built, not archived")
    changed = git("status", "--porcelain").decode().splitlines()
    if changed:
        shown = "\n".join(changed[:10] + (["..."] if len(changed) > 10 else []))
        sys.exit(f"{shown}\nThese files differ from the commit HEAD or are not in it: commit, "
                 "remove or ignore them first")


def lacks():
    """What the commit lacks to be a release."""
    newest, released = releases(ROOT)[0]
    if newest != version(ROOT):
        yield f"the head of CHANGELOG.md is {newest}, include/weber/base.h has {version(ROOT)}"
    if not released:
        yield f"CHANGELOG.md says that {newest} is not released"
    if tool := abi.missing_tool():
        yield f"{abi.KEPT} is not compared: there is no {tool}"
        return
    with tempfile.TemporaryDirectory() as folder:
        if abi.interface(ROOT, Path(folder)) != (ROOT / abi.KEPT).read_text():
            yield (f"{abi.KEPT} is not the interface of the headers: "
                   "./run abi --update writes it")


def make_archive(name):
    # git's own compression differs from version to version.
    if b"Free Software Foundation" not in run("gzip", "--version"):
        sys.exit("gzip is not GNU gzip: another one writes other bytes.  Install GNU gzip")
    files = git(*SETTINGS, "archive", "--format=tar", f"--prefix={name}/", "HEAD")
    shutil.rmtree(TO, ignore_errors=True)
    TO.mkdir(parents=True)
    path = TO / f"{name}.tar.gz"
    path.write_bytes(run("gzip", "-9", "-n", input=files, stderr=None))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    Path(f"{path}.sha256").write_text(f"{digest}  {path.name}\n")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes, sha256 {digest}")
    return path


def make_recipes(archive, local):
    release = json.loads((ROOT / "packaging/release.json").read_text())
    content = archive.read_bytes()
    url = None if local else release["url"]
    words = {"VERSION": version(ROOT), "DESCRIPTION": description(),
             "HOMEPAGE": release["homepage"],
             "SHA256": hashlib.sha256(content).hexdigest(),
             "SHA512": hashlib.sha512(content).hexdigest()}
    words["URL"] = url.replace("@VERSION@", version(ROOT)) if url else archive.as_uri()
    to = TO / "recipes"
    for manager in MANAGERS:
        for source in sorted((ROOT / "packaging" / manager).rglob("*")):
            target = to / source.relative_to(ROOT / "packaging")
            if source.is_dir():
                continue
            text = source.read_text()
            if not words["HOMEPAGE"]:                   # each recipe may leave it out
                text = re.sub(r".*@HOMEPAGE@.*\n", "", text)
            text = re.sub(r"@([A-Z0-9]+)@", lambda match: words[match.group(1)], text)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    (to / "conan/test_package/program.c").write_text(first_program())
    print(f"{to.relative_to(ROOT)}: recipes for {', '.join(MANAGERS)} with {words['URL']}")


# ---- --check -------------------------------------------------------------------------------------

def in_clone(folder, umask, **variables):
    """The bytes of the archive that a clone in a folder makes."""
    run("git", "clone", "-q", ROOT, folder)
    run(sys.executable, folder / "tools/dist.py", env=dict(os.environ, **variables), umask=umask)
    return next((folder / "build/dist").glob("*.tar.gz")).read_bytes()


def configure(source, build, *options):
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run("cmake", "-S", source, "-B", build, *generator, *options)


def build_targets(build, *targets):
    words = [word for target in targets for word in ("--target", target)]
    run("cmake", "--build", build, "-j", os.cpu_count(), *words)


def expect_output(program, **variables):
    """The program is the README's; its output is the README's second block."""
    readme = (ROOT / "README.md").read_text()
    expected = re.search(r"^```\n(Chain.*?)^```$", readme, re.M | re.S).group(1)
    printed = run(program, env=dict(os.environ, **variables)).decode()
    if printed != expected:
        sys.exit(f"{program} prints\n{printed}and not\n{expected}")


def consume(work, prefix, title):
    """Builds and runs the README's program with an installation, by pkg-config and by CMake."""
    project = work / f"of-{prefix.name}"
    project.mkdir()
    (project / "program.c").write_text(first_program())
    (project / "CMakeLists.txt").write_text(
        (ROOT / "packaging/conan/test_package/CMakeLists.txt").read_text())
    found = next(prefix.rglob("weber.pc"))
    words = dict(os.environ, PKG_CONFIG_PATH=str(found.parent))
    flags = run("pkg-config", "--cflags", "--libs", "weber", env=words).decode().split()
    run("cc", "-std=c11", project / "program.c", "-o", project / "program", *flags)
    expect_output(project / "program", LD_LIBRARY_PATH=str(found.parent.parent))
    configure(project, project / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    build_targets(project / "build", "all")
    expect_output(project / "build/program")
    print(f"{title}: the README's program runs, by pkg-config and by CMake")


def check_builds(source, work):
    """Builds the archive with both libraries and with each; installs them; runs a few tests."""
    build, common = source / "build", ("-DWEBER_EXAMPLES=OFF", "-DWEBER_BENCH=OFF",
                                       "-DWEBER_MPI=OFF", "-DWEBER_WERROR=ON")
    for title in ("shared", "static", "shared and static"):
        prefix = work / title.replace(" ", "-")
        wanted = {"libweber.so": "shared" in title, "libweber.a": "static" in title}
        configure(source, build, *common, "-DWEBER_TESTS=OFF", f"-DCMAKE_INSTALL_PREFIX={prefix}",
                  f"-DWEBER_SHARED={wanted['libweber.so']}",
                  f"-DWEBER_STATIC={wanted['libweber.a']}")
        build_targets(build, "all")
        run("cmake", "--install", build)
        for name, is_wanted in wanted.items():
            if bool(list(prefix.rglob(name))) != is_wanted:
                sys.exit(f"{prefix}: {name} is {'missing' if is_wanted else 'there'}")
        consume(work, prefix, title)
    configure(source, build, *common, "-DWEBER_TESTS=ON")
    build_targets(build, "base_core", "train_loop")
    tests = "^(base_core|consumer|recipes|train_loop)$"
    log = run("ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error", "-R", tests)
    print(re.search(r"^.* tests passed.*$", log.decode(), re.M).group(0))


def check_embedding(archive, work):
    """Builds the project of docs/embedding.md, with the C library of the system and with musl."""
    page = (ROOT / "docs/embedding.md").read_text()
    project = work / "embedding"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        re.search(r"^```cmake\n(.*?)^```$", page, re.M | re.S).group(1))
    (project / "program.c").write_text(first_program())
    shutil.copy(archive, project / "weber.tar.gz")
    for compiler, flags in (("cc", ""), ("musl-gcc", "-static")):
        if not shutil.which(compiler):
            print(f"NOT CHECKED: embedding with {compiler}, which is not installed")
            continue
        build = project / compiler
        configure(project, build, f"-DCMAKE_C_COMPILER={compiler}",
                  f"-DCMAKE_EXE_LINKER_FLAGS={flags}")
        build_targets(build, "all")
        expect_output(build / "program")
        if list(build.rglob("libweber.so")):
            sys.exit(f"{build}: the shared library was built too")
        run("strip", build / "program")
        size = (build / "program").stat().st_size
        print(f"embedding with {compiler} {flags}: {size} bytes".replace(" :", ":"))


def check(archive):
    with tempfile.TemporaryDirectory(prefix="weber-dist-") as name:
        work = Path(name)
        one = in_clone(work / "one", 0o022, TZ="UTC", LC_ALL="C")
        time.sleep(1.1)                                 # another second
        two = in_clone(work / "two", 0o077, TZ="Pacific/Chatham", LC_ALL="C.UTF-8",
                       GIT_CONFIG_COUNT="2", GIT_CONFIG_KEY_0="tar.umask",
                       GIT_CONFIG_VALUE_0="user", GIT_CONFIG_KEY_1="core.autocrlf",
                       GIT_CONFIG_VALUE_1="true")
        if not archive.read_bytes() == one == two:
            sys.exit("Two clones of the same commit made archives with different bytes")
        print("two clones: the same bytes")
        run("tar", "-C", work, "-xzf", archive)
        source = work / archive.name[:-len(".tar.gz")]
        check_builds(source, work)
        check_embedding(archive, work)


def main():
    parser = argparse.ArgumentParser(prog="./run dist")
    parser.add_argument("--local", action="store_true",
                        help="recipes with the archive in build/dist/")
    parser.add_argument("--check", action="store_true", help="builds what the archive has")
    parser.add_argument("--release", action="store_true",
                        help="what the commit lacks to be a release is an error")
    options = parser.parse_args()
    require_clean_clone()
    reasons = list(lacks())
    for reason in reasons:
        print(f"not a release: {reason}")
    if reasons and options.release:
        sys.exit(1)
    archive = make_archive(f"weber-{version(ROOT)}")
    make_recipes(archive, options.local)
    if options.check:
        check(archive)


main()
