"""Tests the rules of docs/abi.md by which structs grow, with headers that this test makes.

    older_headers.py LIBRARY CC [CXX]

The older header has each struct of options without its last option.  The newer one has one option
more in each, and a field in place of each reserve.  The same program is compiled with both and with
the header of this library: it prints the same.  What only the newer header has is an error that
names it, if it is given.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = r"""
#include <stdio.h>
#include <weber.h>
static wb_tensor *loss(wb_layer *model, wb_batch batch, void *ctx)
{
    (void)ctx;
    return wb_mse(wb_call(model, batch.x), batch.y);
}
static int fill(int64_t i, void *x, void *y, void *ctx)
{
    (void)ctx;
    for (int k = 0; k < 4; k++) ((float *)x)[k] = (float)((i * 7 + k * 3) % 11) / 11;
    *(float *)y = ((float *)x)[0] * 2;
    return 0;
}
static void shown(const char *what, bool worked)
{
    printf("%s: %s\n", what, worked ? "works" : wb_error());
    wb_clear_error();
}
#if NEWER
#define STRICT .strict = 3
#endif
int main(void)
{
    wb_seed(1);
    wb_dataset_source source = {.size = sizeof source, .n = 64, .x_ndim = 1, .x_dims = {4},
                                .y_ndim = 1, .y_dims = {1}, .get = fill};
    wb_dataset *data = wb_dataset_from(&source);
    wb_layer *model = wb_Chain(wb_Dense(4, 8, .init = wb_kaiming_normal), wb_tanh,
                               wb_BatchNorm(8, .eps = 1e-3), wb_Dense(8, 1));
    wb_loader *loader = wb_dataloader(data, 16, .seed = 3);
    wb_opt_state *state = wb_setup(wb_AdamW(0.01, .lambda = 0), model, .unguarded = true);
    double losses[3] = {0};
    int status = wb_train(loss, model, loader, state, .losses = losses, .keep_last = 2);
    printf("train %d %.9g\n", status, losses[0]);
    wb_Rule_options own = WB_OPTIONS_OF(wb_Rule_options, .eta = 0.5);
    wb_object_show(wb_Descent_with(&own));
    own.eta = 0;
    wb_object_show(wb_Descent_with(&own));
    wb_tensor *x = wb_reshape(wb_arange(12, WB_F32), 3, 4);
    printf("sum %g\n", wb_item(wb_sum(wb_mean(x, .axes = {1}))));
    wb_tensor *image = wb_ones(1, 2, 8, 8), *kernel = wb_ones(4, 2, 3, 3);
    printf("conv %s\n", wb_describe(wb_conv(image, kernel, WB_NONE, .pad = {1, 0})));
    wb_memory memory;
    shown("memory", !wb_estimate_memory(1, &x, &memory) && wb_stats().steps > 0);
    wb_checkpoint point = {.model = model, .state = state};
    shown("checkpoint", !wb_save_checkpoint("point.safetensors", &point));
#if NEWER
    printf("%d\n", (int)wb_stats().strict + (int)memory.strict);
    shown("Dense", wb_Dense(4, 8, .strict = 0) != NULL);
    shown("Dense", wb_Dense(4, 8, wb_relu, STRICT) != NULL);
    shown("dataloader", wb_dataloader(data, 16, .ahead = 3, STRICT) != NULL);
    shown("Adam", wb_Adam(0.1, STRICT) != NULL);
    shown("sum", wb_sum(x, .keep = true, STRICT) != NULL);
    shown("train", wb_train(loss, model, loader, state, STRICT) == 0);
    source.strict = 3;
    shown("source", wb_dataset_from(&source) != NULL);
    point.strict = &source;
    shown("checkpoint", !wb_save_checkpoint("point.safetensors", &point));
    static wb_rule_type type = {.name = "none", .apply = NULL, .strict = 3};
    type.apply = (wb_tensor *(*)(wb_rule_step *, void *))loss;
    shown("Rule", wb_CustomRule(&type) != NULL);
#elif !OLDER
    static const size_t sizes[] = {0, 8, 9, sizeof own - 1, sizeof own + 1, 65536, (size_t)-8};
    for (int i = 0; i < 7; i++) {
        own.size = sizes[i];
        shown("size", wb_Descent_with(&own) != NULL);
    }
#endif
    return 0;
}
"""
CXX = r"""
#include <cstdio>
#include <weber.h>
int main()
{
    wb_dataset *data = wb_dataset_of(wb_ones(64, 4), wb_ones(64, 1));
    wb_Rule_options own;
    own.eta = 0.0, own.beta = {0.5};
    wb_show(wb_Adam(own));
    wb_show(wb_Adam(0.25));
    wb_dataloader_options o;
    o.seed = 3;
    std::printf("%lld\n", (long long)wb_loader_length(wb_dataloader(data, 16, o)));
#if NEWER
    o.strict = 3;
    if (!wb_dataloader(data, 16, o)) std::printf("%s\n", wb_error());
#endif
}
"""
# What the program prints with the newer header only.
NAMED = [r"0", r"Dense: works",
         r"Dense: Dense: \(4, 8, wb_relu, \.strict = 3\) has an option that this library .*",
         r"dataloader: dataloader: \(16, \.ahead = 3, \.strict = 3\) has an option that .*",
         r"Adam: Adam: \(0\.1, \.strict = 3\) has .*",
         r"sum: sum: \(\.keep = (true|1), \.strict = 3\) has .*",
         r"train: train: \(\.strict = 3\) has .*", r"source: dataset_from: .*does not know.*",
         r"checkpoint: checkpoint: the struct has a field that this library .*",
         r"Rule: Rule: the struct has a field that this library .*"]
NAMED_CXX = [r"dataloader: \(\.\.\.\) has an option that this library .*"]


# The last members of these structs are cut off.
CUTS = [("train.h", r"wb_Rule_options_\(OPT", r" *\\\n    ARG\(double, rho, WB_DEFAULT\)"),
        ("layers.h", r"wb_Dense_options_\(OPT", r" *\\\n    ARG\(wb_function, activation, NULL\)"),
        ("data.h", "observations", r"\n    int \(\*restart\)\(int64_t epoch, void \*ctx\);")]


def make_older(folder):
    """Cuts structs short; in C++ nothing else may name what is cut off."""
    for name, struct, member in CUTS:
        path = folder / "weber" / name
        text, found = re.subn(f"({struct}.*?){member}", r"\1", path.read_text(), count=1,
                              flags=re.S)
        assert found == 1, f"{struct} has another last member"
        path.write_text(text)
    for path in folder.glob("weber/cxx*.h"):
        path.write_text(re.sub(r"\bo\.(rho|activation) = [^;]*;", "", path.read_text()))
    path = folder / "weber/train.h"
    path.write_text(path.read_text().replace(" X(AdaDelta, rho)", ""))


def make_newer(folder):
    for path in folder.glob("weber/*.h"):
        text = path.read_text()
        text = re.sub(r"\n(WB_OPTIONS\w*\(wb_)", r" \\\n    ARG(int64_t, strict, 0)\n\1", text)
        text = re.sub(r"(\w+ )(\*?)reserved_\[(\d+)\];", lambda m: f"{m[1]}{m[2]}strict, "
                      f"{m[2]}reserved_[{int(m[3]) - 1}];", text)
        path.write_text(text.replace("} wb_dataset_source;",
                                     "    int64_t strict;\n} wb_dataset_source;"))


def unnamed():
    """The structs of the header for which docs/abi.md has no rule."""
    text = "".join(path.read_text() for path in (ROOT / "include/weber").glob("*.h"))
    page = (ROOT / "docs/abi.md").read_text()
    names = re.findall(r"^(?:typedef struct \{.*)?\} (wb_\w+);", text, re.M)
    names = set(names) - set(re.findall(r"\benum \{[^{}]*\} (wb_\w+);", text))
    ending = re.compile("(_options|_expected|_)$")
    return {x for x in names if not ending.search(x) and f"`{x}`" not in page}


def printed(text, compiler, library, include, folder, *flags):
    """The lines that a program prints; None, with the reason printed, if it fails."""
    language = "c++" if "++" in Path(compiler).name else "c"
    source, binary = folder / f"program.{language}", folder / "program"
    source.write_text(text)
    built = subprocess.run(
        [compiler, "-x", language, f"-std={'c++17' if language == 'c++' else 'c11'}", "-O1", *flags,
         f"-I{include}", str(source), "-x", "none", library, f"-Wl,-rpath,{Path(library).parent}",
         "-o", str(binary)], capture_output=True, text=True, check=False)
    if built.returncode:
        print(built.stderr[:3000])
        return None
    ran = subprocess.run([str(binary)], capture_output=True, text=True, check=False, cwd=folder,
                         timeout=120, env={**os.environ, "WEBER_BACKENDS": ""})
    if ran.returncode:
        print(f"exit status {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return None
    return ran.stdout.splitlines()


def differ(what, lines, expected):
    """Whether lines of output are not those expected, which are patterns."""
    if lines is not None and len(lines) == len(expected) and \
            all(map(re.fullmatch, expected, lines)):
        return False
    print(f"{what} prints", *(lines or ["nothing"]), "and not", *expected, sep="\n  ")
    return True


def main(library, *compilers):
    library, compilers = str(Path(library).resolve()), list(filter(shutil.which, compilers))
    failures = len(unnamed())
    if failures:
        print("docs/abi.md has no rule for", *sorted(unnamed()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for age, change in (("older", make_older), ("newer", make_newer)):
            shutil.copytree(ROOT / "include", folder / age)
            change(folder / age)
        for compiler in compilers:
            cxx = "++" in Path(compiler).name
            text = CXX if cxx else PROGRAM
            lines = printed(text, compiler, library, ROOT / "include", folder) or []
            common = [re.escape(x) for x in lines if not x.startswith("size: ")]
            sizes = [x for x in lines if x.startswith("size: ")]
            failures += differ("the program", [str(len(common))], ["3" if cxx else "7"])
            if not cxx:
                failures += differ("a wrong .size", sizes,
                                   [r"size: Descent: \.size is \d+; .*"] * 7)
            for age, more in (("older", []), ("newer", NAMED_CXX if cxx else NAMED)):
                found = printed(text, compiler, library, folder / age, folder, f"-D{age.upper()}=1")
                failures += differ(f"{compiler}: the program with the {age} header", found,
                                   common + more)
    print(f"{len(compilers)} compilers, {failures} failures")
    return 1 if failures or not compilers else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
