"""Tests the table of public functions, src/engine/public.def.

    duties.py LIBRARY COMPILER [WORDS...]

Each function of the public headers has a row, or needs none, and each function with a duty begins
with its head, WB__PUBLIC.  Then each function is called, with arguments that fit, inside a function
that wb_compile records, in a process of its own.  With a duty to read or to act, the call must fail
with its name and the cure, twice, and the next recording has the random numbers of a first one;
without, it must not fail for the recording: a function that fails so needs a row.  What programs
of tests/ do for rows of SOMETIMES is compared by name.  With WORDS, only functions whose name has
one of them are called.
"""
import re
import sys

import nulls
import wrong_kinds
from wrong_kinds import ROOT, reference

TABLE = "src/engine/public.def"
# They change what the test needs, or are in a library of their own.
NOT_CALLED = ("wb_set_allocator", "wb_catch_", "wb_distributed_mpi")
MORE = """
static void (*act)(void);
static void nothing(void) {}
static int with_act(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    act();
    out[0] = wb_add(wb_mul(in[0], in[1]), wb_rand(2, 2));
    return 1;
}

/* 0, or what is wrong.  `name` begins the error; NULL: the call is part of the recording. */
static const char *recorded(const char *name, void (*f)(void))
{
    wb_tensor *in[2] = {wb_full(2, 2, 2), wb_ones(2, 2)}, *y;
    const char *const found = "called inside a function that wb_compile is recording: ";
    char begin[128];
    wb_seed(8);
    const double drawn = wb_at(wb_rand(2, 2), 1, 1);
    wb_compiled *c = wb_compile(with_act, NULL);
    act = f;
    for (int again = 0; again < 2; again++) {
        wb_clear_error();
        wb_seed(8);
        const int status = wb_call_compiled(c, 2, in, 1, &y);
        snprintf(begin, sizeof begin, "%s: %s", name ? name : "", found);
        if (!name && status && strstr(wb_error(), found)) return "needs a row";
        if (name && (status != WB_ERROR_ARGUMENT || strncmp(wb_error(), begin, strlen(begin)) ||
                     !strstr(wb_error(), "wb_call_compiled")))
            return "the error is another one";
    }
    if (!name) return NULL;
    act = nothing;
    wb_clear_error();
    if (wb_call_compiled(c, 2, in, 1, &y) || wb_at(y, 1, 1) != 2 + drawn)
        return "the next recording differs";
    return NULL;
}

static void guarded_record(const char *function, const char *name, void (*f)(void))
{
    int status;
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        alarm(60);
        const char *wrong = recorded(name, f);
        if (wrong) printf("%s: %s: %s\\n", function, wrong, wb_error());
        fflush(stdout);
        _exit(wrong != NULL);
    }
    waitpid(child, &status, 0);
    cases++;
    failures += status != 0;
    if (WIFSIGNALED(status)) printf("%s: signal %d\\n", function, WTERMSIG(status));
}
"""
CLEARS = re.compile(r"    (?:if|for) \(.*\) \*?\w+(?:\[\w+\])? = [^;]*;$")


def table():
    """{function: (kind, called, duty)} of the rows, and the functions without a duty"""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / TABLE).read_text(), flags=re.S)
    listed = re.findall(r"^(ROW|SOMETIMES)\((\w+), (\w+), (\w+)\)$", text, re.M)
    nothing = re.findall(r"\w+", " ".join(re.findall(r"^NOTHING\(([^)]*)\)", text, re.M)))
    headers = re.findall(r"\w+\.h", " ".join(re.findall(r"^NOTHING_IN\(([^)]*)\)", text, re.M)))
    names = [row[1] for row in listed] + nothing
    twice = sorted({name for name in names if names.count(name) > 1})
    return {row[1]: (row[0], *row[2:]) for row in listed}, nothing, headers, twice


def without_row(headers):
    """Whether a function needs no row: operations, layers, rules"""
    free = "".join(path.read_text() for path in reference.headers(ROOT) if path.name in headers)
    made = set(re.findall(r"\bwb_\w+", re.sub(r"/\*.*?\*/", "", free, flags=re.S)))
    return lambda name: name in made or name[3].isupper()


def findings(functions):
    """What is wrong with the table, in sentences"""
    rows, nothing, headers, twice = table()
    free = without_row(headers)
    for name in twice:
        yield f"{name} has two rows in {TABLE}"
    for name in functions:
        if name not in rows and name not in nothing and not free(name):
            yield (f"{name} has no row in {TABLE}: add ROW({name}, {name}, READS) if it reads "
                   "values, ACTS if it has an effect that a replay of wb_compile would not repeat, "
                   f"and begin it with WB__PUBLIC({name}, FAILED), where FAILED is what it returns "
                   "on failure; else add it to NOTHING")
    for name in (*rows, *nothing):
        if name not in functions:
            yield f"{name} has a row in {TABLE} and is in no public header"
    public = "".join(path.read_text() for path in reference.headers(ROOT))
    heads = {}
    for path in sorted(ROOT.glob("src/**/*.c")):
        text = path.read_text()
        for name in re.findall(r"\bWB__(?:(?:PUBLIC|FIRST)\(|OF_)(\w+)", text):
            heads.setdefault(name, []).append(text)
    tests = "".join(path.read_text() for path in sorted(ROOT.glob("tests/**/*.c")))
    for name, (kind, called, _) in rows.items():
        if called != name and not re.search(rf"^#define {called}\(", public, re.M):
            yield f"{called}, by which {TABLE} calls {name}, is no macro of the public headers"
        places = heads.get(name, ())
        if kind == "SOMETIMES" and not places:
            yield f"{name}: no function has WB__FIRST({name}, ...)"
        elif kind == "SOMETIMES" and f'"{called[3:]}:' not in tests:
            yield f"{name}: no test in C calls it while wb_compile records (\"{called[3:]}:\")"
        elif kind == "ROW" and len(places) != 1:
            yield f"{name}: {len(places)} places have WB__PUBLIC({name}, ...), and not one"
        elif kind == "ROW" and not begins(name, places[0]):
            yield f"{name} does not begin with WB__PUBLIC({name}, ...)"


def begins(name, text):
    """Whether the function begins with its head.  What comes before only clears results."""
    lines = re.split(rf"    WB__(?:PUBLIC|FIRST)\({name},", text)[0].splitlines()
    while lines[-1] == "    WB__EDGE;" or CLEARS.match(lines[-1]):
        lines.pop()
    return lines[-1] == "{" and re.search(rf"^\w.*\b{name}\(", "\n".join(lines[-4:]), re.M)


def calls(found, callbacks, words):
    functions, runs = [], []
    rows = table()[0]
    for name, arguments in found:
        kind, called, duty = rows.get(name, ("", name, ""))
        if kind == "SOMETIMES" or name in NOT_CALLED or name[3].isupper() and not kind:
            continue
        if words and not any(word in name for word in words):
            continue
        fails = kind and duty != "CONFIRMS"
        values = ", ".join(nulls.good(name, a, callbacks) for a in arguments)
        of = f'"{called[3:]}"' if fails else "NULL"
        functions.append(f"static void f{len(runs)}(void) {{ ({name})({values}); }}")
        runs.append(f'    guarded_record("{name}", {of}, f{len(runs)});')
    return "\n".join(functions), "\n".join(runs)


def main(library, compiler, *words):
    found, callbacks = wrong_kinds.prototypes()
    wrong = list(findings([name for name, _ in found]))
    print("\n".join(wrong))
    functions, runs = calls(found, callbacks, words)
    text = wrong_kinds.head() + nulls.MORE + MORE + functions + f"""
int main(void)
{{
    if (begun()) return 1;
{runs}
    printf("%d calls, %d failures\\n", cases, failures);
    return failures != 0;
}}
"""
    return wrong_kinds.run(library, compiler, text) or len(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
