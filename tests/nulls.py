"""Tests that each public function takes NULL as an error, or as nothing, and does not crash.

    nulls.py LIBRARY COMPILER [WORDS...]

Each function of the public headers is called with NULL in place of each argument that is a pointer,
whatever it points to, while the other arguments fit (counts are 1); with a struct of zeros in place
of each struct of the program's own; and with NULL in place of all pointers.  Each call is in a
process of its own.  A call that gets NULL must set an error, unless the argument is optional: a
struct of options, or one of OPTIONAL.  With WORDS, only functions whose name has one of them are
called.
"""
import re
import sys

import wrong_kinds

# Arguments that may be NULL, by their names, and by function.
OPTIONAL = {"ctx", "context"}
OPTIONAL_OF = {
    "wb_object_free": ("object",), "wb_release": ("object",), "wb_free_text": ("text",),
    "wb_is_none": ("object",), "wb_describe": ("x",), "wb_identity": ("x",),
    "wb_object_gpu": ("x",), "wb_object_cpu": ("x",), "wb_opaque": ("p",),
    "wb_set_log": ("handler",), "wb_topk_with": ("index",), "wb_batch_of": ("y",),
    "wb_groupobs": ("labels",), "wb_batch_sequence": ("lengths",),
    "wb_word_classes": ("other",), "wb_withgradient": ("grads",),
    "wb_progress_begin": ("loader", "format"), "wb_progress_of": ("format",),
    "wb_progress_step": ("p", "metric", "value"), "wb_progress_end": ("p",),
    "wb_device_ordinal": ("d",), "wb_device_name": ("d",), "wb_device_backend": ("d",),
    "wb_device_describe": ("d",), "wb_device_is_gpu": ("d",), "wb_set_default_device": ("d",),
    "wb_set_gpu_backend": ("backend",)}
MORE = """
typedef struct { wb_tensor *x; } of_test;
WB_FUNCTOR(of_test, x)
static wb_watch watch = {.wait = 1};
static char text[256];

/* Runs one call in a process of its own. */
static void guarded_call(const char *what, int (*f)(void), int must_fail)
{
    int status;
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        alarm(60);
        wb_clear_error();
        const int code = f();
        fflush(stdout);
        _exit(code ? 0 : 1);
    }
    waitpid(child, &status, 0);
    cases++;
    const int crashed = !WIFEXITED(status) || WEXITSTATUS(status) > 1;
    if (!crashed && (!must_fail || !WEXITSTATUS(status))) return;
    if (crashed) printf("%s: signal %d\\n", what, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    else printf("%s: no error\\n", what);
    failures++;
}
"""


def is_pointer(argument, callbacks):
    return "*" in argument or argument.split()[0] in callbacks


def name_of(argument):
    pointer = re.search(r"\(\*(\w+)\)", argument)
    return pointer[1] if pointer else re.search(r"(\w+)(?:\[\w*\])?$", argument)[1]


def is_optional(function, argument):
    return (re.match(r"const wb_\w+_options \*", argument) or name_of(argument) in OPTIONAL
            or name_of(argument) in OPTIONAL_OF.get(function, ()))


def good(function, argument, callbacks):
    if re.match(r"wb_watch \*", argument):
        return "&watch"
    if re.match(r"const wb_struct_type \*", argument):
        return "&of_test_wb_type"
    if re.match(r"(const )?void \*value", argument):
        return "&(of_test){x}"
    if re.match(r"char \*\w+$", argument) and function != "wb_free_text":
        return "text"
    return wrong_kinds.good(function, argument, callbacks) or "0"


def zeros(argument):
    """A struct of zeros, if the argument is one of the program's own."""
    kind = re.match(r"(?:const )?(wb_\w+) \*\w+$", argument)
    if not kind or kind[1][3:] in wrong_kinds.KINDS or kind[1] in ("wb_scope", "wb_columns"):
        return None
    if kind[1] in ("wb_distributed_backend", "wb_allocator") or kind[1].endswith("_options"):
        return None
    return f"&({kind[1]}){{0}}"


def calls(words):
    functions, runs = [], []
    found, callbacks = wrong_kinds.prototypes()
    for function, arguments in found:
        if words and not any(word in function for word in words):
            continue
        pointers = [i for i, a in enumerate(arguments) if is_pointer(a, callbacks)]
        values = [good(function, a, callbacks) for a in arguments]
        tried = [({i: "0"}, name_of(arguments[i]), not is_optional(function, arguments[i]))
                 for i in pointers]
        tried += [({i: zeros(arguments[i])}, f"{name_of(arguments[i])} of zeros", False)
                  for i in pointers if zeros(arguments[i])]
        if len(pointers) > 1:
            tried.append(({i: "0" for i in pointers}, "all", False))
        for changed, what, must_fail in tried:
            listed = ", ".join(changed.get(k, v) for k, v in enumerate(values))
            n = len(functions)
            functions.append(f"static int f{n}(void) {{ ({function})({listed}); "
                             "return wb_error_code(); }")
            runs.append(f'    guarded_call("{function}, NULL as {what}", f{n}, {int(must_fail)});')
    return "\n".join(functions), "\n".join(runs)


def main(library, compiler, *words):
    functions, runs = calls(words)
    text = wrong_kinds.head() + MORE + functions + f"""
int main(void)
{{
    if (begun()) return 1;
{runs}
    printf("%d calls, %d failures\\n", cases, failures);
    return failures != 0;
}}
"""
    return wrong_kinds.run(library, compiler, text)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
