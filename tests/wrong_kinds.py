"""Tests that each public function names an object of a wrong kind.

    wrong_kinds.py LIBRARY COMPILER [WORDS...]

Each function of the public headers that takes an object is called with an object of each other
kind in its place, and with two paths: one that is aligned, as an object is, and one at an odd
address that ends with the last byte of readable memory.  A C compiler only warns of such a call.
The function must fail with a message that begins with its name and has the kind that was found and
the kind that was expected; where it fails with objects of the right kinds too, since the other
arguments here do not fit them, with a message that begins with its name.  With WORDS, only
functions whose name has one of them are called.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import reference  # noqa: E402

KINDS = {"tensor": "x", "layer": "layer", "tree": "tree", "rule": "rule", "schedule": "schedule",
         "opt_state": "state", "dataset": "dataset", "loader": "loader",
         "tokenizer": "tokenizer", "decoder": "decoder", "progress": "progress",
         "logger": "logger", "compiled": "compiled", "device": "wb_cpu_device()"}
WORDS = {"opt_state": "state", "compiled": "compiled function"}
# Functions that take more than one kind, by function and argument.
SEVERAL = {"model": ("layer", "tree"), "average": ("layer", "tree"),
           "object": ("layer", "tree", "tensor")}
ANY = ("wb_object_keep", "wb_object_free", "wb_retain", "wb_release", "wb_object_show",
       "wb_object_format")
MOVED = ("tensor", "layer", "tree", "opt_state", "dataset", "loader")
BRANCH = ("layer", "tree")
WALKED = ("tensor", "layer", "tree")
SPECIAL = {("wb_object_to", "x"): MOVED, ("wb_object_cpu", "x"): MOVED,
           ("wb_object_device", "x"): MOVED, ("wb_object_clone", "x"): BRANCH,
           ("wb_fmap_layer", "x"): BRANCH, ("wb_fmap_tree", "x"): BRANCH,
           ("wb_trainmode", "layer"): BRANCH, ("wb_testmode", "layer"): BRANCH,
           ("wb_automode", "layer"): BRANCH, ("wb_set", "layer"): BRANCH,
           ("wb_tie", "layer"): BRANCH, ("wb_update_new", "model"): BRANCH,
           ("wb_setup_with", "model"): WALKED, ("wb_update", "model"): WALKED,
           ("wb_update", "grads"): BRANCH, ("wb_update_new", "grads"): BRANCH,
           ("wb_each_parameter", "object"): WALKED, ("wb_each_tensor", "object"): WALKED,
           ("wb_each_layer", "object"): BRANCH, ("wb_parameter_count", "object"): WALKED,
           ("wb_distributed_synchronize_with", "object"): (*WALKED, "opt_state")}
# wb_set_allocator and wb_is_none take no object, or only compare its address; wb_describe and
# wb_identity read nothing of it; wb_gpu returns it where there is no GPU.
LEFT_OUT = {"wb_is_none", "wb_set_allocator", "wb_describe", "wb_identity", "wb_object_gpu"}
# These end an object, which the wrong calls need.
ENDS = {"wb_object_free", "wb_release", "wb_progress_end", "wb_logger_close", "wb_decoder_end"}
# Functions whose argument `path` is that of a file.
FILES = {"wb_save_with", "wb_load_state_with", "wb_save_lora", "wb_object_load_lora",
         "wb_save_image", "wb_save_npy", "wb_save_curves"}
# The names of functions in messages, where these are the names of macros.
NAMED = {"wb_object_format": "show", "wb_summary_format": "summary",
         "wb_object_device": "device_of", "wb_batch_to": "to", "wb_fmap_layer": "fmap",
         "wb_fmap_tree": "fmap", "wb_gradient_tensor": "gradient", "wb_gradient_layer": "gradient",
         "wb_gradient_tree": "gradient", "wb_to_dlpack_unversioned": "to_dlpack"}
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weber.h>

static int dummy(void) { return 0; }
static int record(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_relu(in[0]);
    return 1;
}

static _Alignas(16) char path[64] = "wrong_kinds.safetensors";
static const char *const names[] = {NAMES, NULL};
static void *objects[32];

/* A short text whose last byte is that before a page which cannot be read. */
static void *short_path(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || mprotect(at + page, page, PROT_NONE)) exit(2);
    return strcpy(at + page - 3, "m/");
}
static wb_tensor *x; static wb_layer *layer; static wb_tree *tree; static wb_rule *rule;
static wb_schedule *schedule; static wb_opt_state *state; static wb_dataset *dataset;
static wb_loader *loader; static wb_tokenizer *tokenizer; static wb_decoder *decoder;
static wb_progress *progress; static wb_logger *logger; static wb_compiled *compiled;
static wb_batch batch;
static int64_t longs[16] = {1, 1, 1, 1, 1, 1, 1, 1};
static double doubles[8];
static wb_tensor *tensors[8];
static void *others[8];

static int begun(void)
{
    x = wb_ones(2, 3);
    layer = wb_Dense(3, 2);
    tree = wb_tuple(wb_ones(2), wb_ones(2));
    rule = wb_Adam();
    schedule = wb_ScheduleExp(1, 0.5);
    state = wb_setup(rule, layer);
    dataset = wb_dataset_of(x, wb_ones(2, 2));
    loader = wb_dataloader(dataset);
    FILE *f = fopen("tokenizer.json", "w");
    fputs(TOKENIZER, f);
    fclose(f);
    tokenizer = wb_load_tokenizer("tokenizer.json");
    decoder = wb_decoder_begin(tokenizer);
    progress = wb_progress_begin(loader, "test");
    logger = wb_logger_open("log");
    compiled = wb_compile(record, NULL);
    batch = (wb_batch){.x = x, .y = x, .n = 2};
    void *all[] = {OBJECTS};
    memcpy(objects, all, sizeof all);
    for (int i = 0; names[i]; i++) {
        if (objects[i]) continue;
        printf("no %s: %s\\n", names[i], wb_error());
        return 1;
    }
    return 0;
}

static int failures, cases;

/* `expected`: kinds that fit, separated by blanks. */
static int fits(const char *kind, const char *expected)
{
    char text[256], word[64];
    snprintf(text, sizeof text, "|%s|", expected);
    snprintf(word, sizeof word, "|%s|", kind);
    return strstr(text, word) != NULL;
}

static void check(const char *function, const char *argument, const char *kind,
                  const char *says, int succeeds)
{
    const char *text = wb_error();
    const size_t n = strlen(function);
    int good = !strncmp(text, function, n) && text[n] == ':';
    if (succeeds) good = good && strstr(text, kind);
    char one[64];
    for (const char *at = says; *at && good && succeeds;) {
        const size_t length = strcspn(at, "|");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        good = strstr(text + n, one) != NULL;
        at += length + (at[length] == '|');
    }
    cases++;
    if (good) return;
    printf("%s, %s in place of %s: %s\\n", function, kind, argument,
           *text ? text : "no error");
    failures++;
}

/* Runs one function's calls in a process of its own, since a wrong call may crash. */
static void guarded(const char *function, void (*f)(void))
{
    int ends[2], numbers[2] = {1, 0}, status;
    fflush(stdout);
    if (pipe(ends)) exit(2);
    const pid_t child = fork();
    if (!child) {
        failures = cases = 0;
        alarm(60);
        f();
        numbers[0] = failures, numbers[1] = cases;
        fflush(stdout);
        if (write(ends[1], numbers, sizeof numbers) < 0) _exit(3);
        _exit(0);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], numbers, sizeof numbers);
    close(ends[0]);
    waitpid(child, &status, 0);
    failures += numbers[0], cases += numbers[1];
    if (got == sizeof numbers) return;
    printf("%s: crashed, signal %d\\n", function, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}
"""
TOKENIZER = ('{"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",'
             '"max_input_chars_per_word":100,"vocab":{"[UNK]":0,"a":1}},'
             '"pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece"},'
             '"normalizer":{"type":"BertNormalizer","lowercase":true}}')


def prototypes():
    """(name, [(type, argument)]) of the functions of the headers, and the types of functions."""
    found, callbacks = [], set()
    for path in reference.headers(ROOT):
        text = re.sub(r"/\*.*?\*/", " ", reference.for_c(path.read_text()), flags=re.S)
        text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", "", text, flags=re.M)
        text = re.sub(r"WB_PRINTF_\([^)]*\)", "", text)
        callbacks |= set(re.findall(r"typedef[^;{}]*\(\*(wb_\w+)\)\(", text))
        for name, rest in re.findall(r"WB_API[^;{}()]*?\b\(?(wb_\w+)\)?\s*\(([^;]*)\)\s*;", text):
            arguments, depth, part = [], 0, ""
            for c in rest + ",":
                depth += (c == "(") - (c == ")")
                if c == "," and not depth:
                    arguments.append(" ".join(part.split()))
                    part = ""
                else:
                    part += c
            found.append((name, [a for a in arguments if a and a not in ("void", "...")]))
    return found, callbacks


def good(function, argument, callbacks):
    """An expression that fits the argument."""
    kind = re.match(r"(?:const )?wb_(\w+) \*(\w+)$", argument)
    array = re.match(r"(?:const )?wb_(\w+) \*const \*(\w+)$", argument)
    if kind and kind[1] in KINDS:
        return KINDS[kind[1]]
    if array and array[1] in KINDS:
        return f"(void *[]){{{KINDS[array[1]]}}}"
    if re.match(r"wb_batch \w+$", argument):
        return "batch"
    if re.match(r"wb_batch \*", argument):
        return "&batch"
    if re.match(r"wb_tensor \*\*", argument):
        return "tensors"
    if "(*" in argument or argument.split()[0] in callbacks:
        return "(void *)dummy"
    if argument in ("const char *name", "const char *token", "const char *tag"):
        return '"a"'
    if argument == "const char *path" and function not in FILES:
        return '"weight"'
    if re.match(r"const char \*\w+$", argument):
        return "path"
    if re.match(r"(const )?int64_t \*", argument):
        return "longs"
    if re.match(r"(const )?double \*", argument):
        return "doubles"
    if re.match(r"const char \*const \*", argument):
        return '(const char *[]){"a", "b"}'
    if re.match(r"void \*(model|object|average|x)$", argument):
        return "layer"
    if re.match(r"void \*const \*objects", argument):
        return "(void *[]){x}"
    if re.match(r"(wb_\w+) \*\*", argument) or "void *" in argument:
        return "(void *)others" if "**" in argument else "0"
    if re.match(r"wb_dtype|wb_ranks_reduction|wb_\w+ (reduce|how|mode|kind)$", argument):
        return "0" if "wb_dtype" not in argument else "WB_F32"
    if "*" in argument:
        return "0"
    if re.match(r"(int|int64_t|size_t|double|bool|uint64_t|float)\b", argument):
        return "1"
    return None


def expected(function, argument):
    """The kinds that the argument may have; None: it is not an object."""
    if function in LEFT_OUT:
        return None
    kind = re.match(r"(?:const )?wb_(\w+) \*(?:const \*)?(\w+)$", argument)
    name = re.search(r"(\w+)$", argument)
    name = name[1] if name else ""
    if (function, name) in SPECIAL:
        return SPECIAL[function, name]
    if kind and kind[1] in KINDS:
        return (kind[1],)
    if re.match(r"void \*(model|object|average|x)$", argument):
        return tuple(KINDS)[:-1] if function in ANY else SEVERAL[name]
    return None


def calls(words):
    text, runs, n = [], [], 0
    found, callbacks = prototypes()
    for function, arguments in found:
        if words and not any(word in function for word in words):
            continue
        objects = [(i, expected(function, a)) for i, a in enumerate(arguments)]
        objects = [(i, kinds) for i, kinds in objects if kinds]
        values = [good(function, a, callbacks) for a in arguments]
        if not objects:
            continue
        if None in values:
            raise SystemExit(f"{function}: no value for {arguments[values.index(None)]}")
        short = re.sub(r"^object_", "", re.sub(r"_(with|array|typed)$", "", function[3:]))
        short = NAMED.get(function, re.sub("(?<=elu|ink|max|glu)_(of|over)$", "", short))
        lines = []
        call = f"({function})({', '.join(values)})"
        for i, kinds in objects:
            argument = arguments[i]
            is_array = "*const *" in argument
            wrong = "(void *[]){objects[i]}" if is_array else "objects[i]"
            listed = ", ".join(wrong if k == i else v for k, v in enumerate(values))
            fitting = "|".join(WORDS.get(k, k) for k in kinds)
            says = "object" if function in ANY else "" if kinds == MOVED else fitting
            # the inputs of a layer: the layer names them
            named = {"call": "Dense", "call_outputs": "Dense", "summary": "eval"}
            named = named.get(short, short) if kinds == ("tensor",) else short
            name = re.search(r"(\w+)$", argument)[1]
            lines.append(f"""    for (int i = 0; names[i]; i++) {{
        if (fits(names[i], "{fitting}")) continue;
        wb_clear_error();
        ({function})({listed});
        check("{named}", "{name}", names[i], "{says}", succeeds);
    }}""")
        first = f"    wb_clear_error();\n    {call};\n    const int succeeds = !wb_error_code();\n"
        if function in ENDS:
            first = "    const int succeeds = 1;\n"
        text.append(f"static void f{n}(void)\n{{\n" + first + "\n".join(lines) + "\n}\n")
        runs.append(f'    guarded("{short}", f{n});')
        n += 1
    return "\n".join(text), "\n".join(runs), n


def head():
    """The beginning of a program: an object of each kind, and what runs calls."""
    names = ", ".join(f'"{WORDS.get(k, k)}"' for k in KINDS) + ', "pointer", "pointer"'
    values = ", ".join(f"(void *){v}" for v in KINDS.values()) + ", path, short_path()"
    literal = '"' + TOKENIZER.replace('"', '\\"') + '"'
    return MAIN.replace("NAMES", names).replace("OBJECTS", values).replace("TOKENIZER", literal)


def run(library, compiler, text):
    """Compiles a program and returns its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        program = folder / "program.c"
        program.write_text(text)
        library = str(Path(library).absolute())
        flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-O0", "-w", f"-I{ROOT}/include"]
        subprocess.run([compiler, *flags, str(program), library,
                        f"-Wl,-rpath,{Path(library).parent}", "-o", str(folder / "program")],
                       check=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEBER_")}
        environment.update(WEBER_BACKENDS="", WEBER_NUM_THREADS="1")
        return subprocess.run([str(folder / "program")], cwd=folder, env=environment,
                              check=False).returncode


def main(library, compiler, *words):
    functions, runs, n = calls(words)
    return run(library, compiler, head() + functions + f"""
int main(void)
{{
    if (begun()) return 1;
{runs}
    printf("%d functions, %d calls, %d failures\\n", {n}, cases, failures);
    return failures != 0;
}}
""")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
