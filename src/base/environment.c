/* The variables of the environment, and the values that each takes: the only list of them.  A value
 * that a variable does not take has no effect, and is reported once.  In a list of words, only the
 * unknown words have no effect. */
#include "base/environment.h"

#include "base/mutex.h"
#include "base/os.h"
#include "base/text.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { ONE_WORD, ENV_LIST, WHOLE, ENV_REAL, ENV_ANY } env_form;
#define SWITCH "0 1", 0, 0, ONE_WORD
#define WORDS(words) words, 0, 0, ONE_WORD
#define TEXT NULL, 0, 0, ENV_ANY     /* any text, or the variable's reader reports a wrong one */
#define ENV_NUMBER(least, most, form) NULL, least, most, form

/* `words` are separated by blanks; NULL: a number from `least` to `most`. */
/* clang-format off */
static const struct { const char *name, *words; double least, most; env_form form; } env_rows[] = {
    {"WEBER_AMDGPU_GRAPHS", SWITCH}, {"WEBER_AMDGPU_MIOPEN", SWITCH},
    {"WEBER_AMDGPU_RCCL", SWITCH}, {"WEBER_AMDGPU_ROCBLAS", SWITCH},
    {"WEBER_CPU_DEVICES", ENV_NUMBER(1, WB__MAX_CPU_DEVICES, WHOLE)},
    {"WEBER_CUDA_CUBLASLT", SWITCH},
    {"WEBER_CUDA_CUDNN", SWITCH}, {"WEBER_CUDA_GRAPHS", SWITCH}, {"WEBER_CUDA_NCCL", SWITCH},
    {"WEBER_DEBUG", "load stages plan dispatch kernel check sync dist all", 0, 0, ENV_LIST},
    {"WEBER_DETERMINISTIC", SWITCH}, {"WEBER_DISTRIBUTED_OVERLAP", SWITCH},
    {"WEBER_EAGER", SWITCH}, {"WEBER_FAIL_ALLOC", ENV_NUMBER(0, INFINITY, WHOLE)},
    {"WEBER_GPU_BRANCHES", SWITCH}, {"WEBER_GPU_TIMING", ENV_NUMBER(0, INFINITY, ENV_REAL)},
    {"WEBER_ISA", WORDS("portable avx2 avx512")},
    {"WEBER_METAL_MPS", SWITCH}, {"WEBER_METAL_MPSGRAPH", SWITCH},
    {"WEBER_METAL_STAGING", SWITCH}, {"WEBER_NUM_THREADS", ENV_NUMBER(1, WB__MOST_THREADS, WHOLE)},
    {"WEBER_ONEDNN", SWITCH}, {"WEBER_OPENCL_ATTENTION", SWITCH},
    {"WEBER_OPENCL_BINARIES", SWITCH}, {"WEBER_OPENCL_CLBLAST", SWITCH},
    {"WEBER_OPENCL_FRAGMENTS", SWITCH}, {"WEBER_OPENCL_PRODUCTS", SWITCH},
    {"WEBER_OPENCL_STAGING", SWITCH}, {"WEBER_WINOGRAD", SWITCH},
    {"WEBER_BACKENDS", TEXT}, {"WEBER_CACHE_DIR", TEXT}, {"WEBER_CUDA_LIBRARY", TEXT},
    {"WEBER_CUDA_PATH", TEXT}, {"WEBER_HDF5_LIBRARY", TEXT}, {"WEBER_JPEG_LIBRARY", TEXT},
    {"WEBER_LAPACK_LIBRARY", TEXT}, {"WEBER_LOCAL_RANK", TEXT}, {"WEBER_LOCAL_SIZE", TEXT},
    {"WEBER_MATMUL_PRECISION", TEXT}, {"WEBER_MEMORY_LIMIT", TEXT}, {"WEBER_METAL_DEVICES", TEXT},
    {"WEBER_METAL_LIBRARY", TEXT}, {"WEBER_METAL_PATH", TEXT}, {"WEBER_OPENCL_DEVICES", TEXT},
    {"WEBER_OPENCL_LIBRARY", TEXT}, {"WEBER_PNG_LIBRARY", TEXT}, {"WEBER_RANK", TEXT},
    {"WEBER_RENDEZVOUS", TEXT}, {"WEBER_RENDEZVOUS_TOKEN", TEXT}, {"WEBER_ROCM_PATH", TEXT},
    {"WEBER_SIZE", TEXT},
    /* variables of examples and scripts */
    {"WEBER_CCACHE", TEXT}, {"WEBER_COMMIT", TEXT}, {"WEBER_DATA", TEXT},
    {"WEBER_DEBIAN_MIRROR", TEXT}, {"WEBER_DIGITS", TEXT}, {"WEBER_DUMP_KERNELS", TEXT},
    {"WEBER_GPT2", TEXT}, {"WEBER_INCLUDE", TEXT}, {"WEBER_INSTALL", TEXT}, {"WEBER_LIBRARY", TEXT},
    {"WEBER_MINILM", TEXT}, {"WEBER_REQUIRE_IMAGES", TEXT}, {"WEBER_REQUIRE_LAPACK", TEXT},
    {"WEBER_RESULTS", TEXT}, {"WEBER_ROOTS", TEXT}, {"WEBER_SHARED", TEXT},
    {"WEBER_SLICE_SECONDS", TEXT},
};
/* clang-format on */

/* Whether the blank-separated list has the word of n characters. */
static bool env_list_has(const char *list, const char *word, size_t n)
{
    for (; *list; list += strspn(list, " ")) {
        const size_t length = strcspn(list, " ");
        if (length == n && !memcmp(list, word, n)) return true;
        list += length;
    }
    return false;
}

static int env_row_of(const char *name)
{
    for (int i = 0; i < (int)WB__COUNT(env_rows); i++)
        if (!strcmp(name, env_rows[i].name)) return i;
    return -1;
}

const char *wb__environment_name(int i)
{
    return i < (int)WB__COUNT(env_rows) ? env_rows[i].name : NULL;
}

/* Reads a number that the variable of the row takes.  false: the value is no such number. */
static bool env_read_number(int row, const char *value, double *number)
{
    char *end;
    *number = wb__plain_number(value, &end);
    return end > value && !*end && *number >= env_rows[row].least &&
           *number <= env_rows[row].most && isfinite(*number) &&
           (env_rows[row].form == ENV_REAL || *number == floor(*number));
}

/* Finds the first part of the value that the variable does not take.  false: it takes all parts. */
static bool env_find_wrong(int row, const char *value, const char **wrong, size_t *n)
{
    double number;
    *wrong = value, *n = strlen(value);
    if (env_rows[row].form == ENV_ANY) return false;
    if (!env_rows[row].words) return !env_read_number(row, value, &number);
    if (env_rows[row].form != ENV_LIST) return !env_list_has(env_rows[row].words, value, *n);
    for (;; value += *value == ',') {
        value += strspn(value, " ");
        const size_t length = strcspn(value, ",");
        for (*n = length; *n && value[*n - 1] == ' ';) --*n;
        if (*n && !env_list_has(env_rows[row].words, *wrong = value, *n)) return true;
        value += length;
        if (!*value) return false;
    }
}

static void env_describe(int row, char *text, size_t bytes)
{
    if (!env_rows[row].words) {
        const int n = wb__plain(text, bytes, "a %snumber from %g",
                                env_rows[row].form == WHOLE ? "whole " : "", env_rows[row].least);
        if (isfinite(env_rows[row].most))
            wb__plain(text + n, bytes - (size_t)n, " to %g", env_rows[row].most);
        else wb__plain(text + n, bytes - (size_t)n, " on");
        return;
    }
    const bool list = env_rows[row].form == ENV_LIST;
    const size_t at = (size_t)snprintf(text, bytes, list ? "a list, with commas, of " : "");
    wb__list_words(text + at, bytes - at, env_rows[row].words);
}

bool wb__environment_takes(const char *name, const char *value, char *why, size_t bytes)
{
    char allowed[128];
    const char *wrong;
    size_t n;
    const int row = env_row_of(name);
    if (row < 0 || !*value || !env_find_wrong(row, value, &wrong, &n)) return true;
    char part[65];
    wb__text clean = {0};
    env_describe(row, allowed, sizeof allowed);
    snprintf(part, sizeof part, "%.*s", (int)WB__MIN(n, sizeof part - 1), wrong);
    wb__text_foreign(&clean, part);
    char *found = wb__text_take(&clean);
    snprintf(why, bytes, "%s %s \"%s\", which has no effect: it is %s", name,
             env_rows[row].form == ENV_LIST ? "has" : "is", found ? found : "?", allowed);
    wb__free(found);
    return false;
}

const char *wb__environment_text(const char *name) { return getenv(name); }

const char *wb__environment_path(const char *name)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    const char *value = wb__environment_text(name);
    if (!value || !wb__os_has_more_rights()) return value;
    if (wb__begins(name, "WEBER_") && !atomic_flag_test_and_set(&reported))
        wb__log(WB_LOG_WARN, "%s has no effect: this program has rights that its caller lacks "
                "(set-user-ID, set-group-ID or capabilities),\nso it reads no variables that name "
                "files, folders or addresses.", name);
    return NULL;
}

double wb__environment_number(const char *name, double by_default)
{
    const char *value = wb__environment_text(name);
    const int row = env_row_of(name);
    double number;
    return value && row >= 0 && env_read_number(row, value, &number) ? number : by_default;
}

bool wb__environment_switch(const char *name, bool by_default)
{
    const char *value = wb__environment_text(name);
    return value && (!strcmp(value, "0") || !strcmp(value, "1")) ? *value == '1' : by_default;
}

static void env_check(void)
{
    char why[320];
    for (size_t i = 0; i < WB__COUNT(env_rows); i++) {
        const char *value = wb__environment_text(env_rows[i].name);
        if (value && !wb__environment_takes(env_rows[i].name, value, why, sizeof why))
            wb__log(WB_LOG_WARN, "%s.", why);
    }
}

void wb__environment_check(void)
{
    static wb__once once = WB__ONCE_INIT;
    wb__once_run(&once, env_check);
}
