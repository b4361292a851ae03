/* The values that variables of the environment take.  A value that a variable does not take has no
 * effect, and is reported once. */
#include "base/environment.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SWITCH "0 1", 0, false
#define NUMBER(least) NULL, least, false

/* `words` are separated by blanks; NULL: a number from `least` on.  A list has words with commas
 * between. */
/* clang-format off */
static const struct { const char *name, *words; double least; bool list; } rows[] = {
    {"WEBER_AMDGPU_GRAPHS", SWITCH}, {"WEBER_AMDGPU_MIOPEN", SWITCH},
    {"WEBER_AMDGPU_RCCL", SWITCH}, {"WEBER_AMDGPU_ROCBLAS", SWITCH},
    {"WEBER_CPU_DEVICES", NUMBER(1)}, {"WEBER_CUDA_CUBLASLT", SWITCH},
    {"WEBER_CUDA_CUDNN", SWITCH}, {"WEBER_CUDA_GRAPHS", SWITCH}, {"WEBER_CUDA_NCCL", SWITCH},
    {"WEBER_DEBUG", "load stages plan dispatch kernel check sync dist all", 0, true},
    {"WEBER_DETERMINISTIC", SWITCH}, {"WEBER_DISTRIBUTED_OVERLAP", SWITCH},
    {"WEBER_EAGER", SWITCH}, {"WEBER_FAIL_ALLOC", NUMBER(0)}, {"WEBER_GPU_BRANCHES", SWITCH},
    {"WEBER_GPU_TIMING", NUMBER(0)}, {"WEBER_ISA", "portable avx2 avx512", 0, false},
    {"WEBER_METAL_MPS", SWITCH}, {"WEBER_METAL_MPSGRAPH", SWITCH},
    {"WEBER_METAL_STAGING", SWITCH}, {"WEBER_NUM_THREADS", NUMBER(1)},
    {"WEBER_ONEDNN", SWITCH}, {"WEBER_OPENCL_ATTENTION", SWITCH},
    {"WEBER_OPENCL_BINARIES", SWITCH}, {"WEBER_OPENCL_CLBLAST", SWITCH},
    {"WEBER_OPENCL_FRAGMENTS", SWITCH}, {"WEBER_OPENCL_PRODUCTS", SWITCH},
    {"WEBER_OPENCL_STAGING", SWITCH}, {"WEBER_WINOGRAD", SWITCH},
};
/* clang-format on */

/* Whether the blank-separated list has the word of n characters. */
static bool has(const char *list, const char *word, size_t n)
{
    for (; *list; list += strspn(list, " ")) {
        const size_t length = strcspn(list, " ");
        if (length == n && !memcmp(list, word, n)) return true;
        list += length;
    }
    return false;
}

static bool takes(int row, const char *value)
{
    if (!rows[row].words) {
        char *end;
        const double v = strtod(value, &end);
        return end > value && !*end && v >= rows[row].least && isfinite(v);
    }
    if (!rows[row].list) return has(rows[row].words, value, strlen(value));
    for (bool more = true; more; value++) {
        value += strspn(value, " ");
        const size_t n = strcspn(value, ", ");
        if (n && !has(rows[row].words, value, n)) return false;
        value += n + strspn(value + n, " ");
        more = *value == ',';
        if (*value && !more) return false;
    }
    return true;
}

/* Writes "0 or 1" for "0 1". */
static void describe(int row, char *text, size_t bytes)
{
    if (!rows[row].words) {
        snprintf(text, bytes, "a number from %g on", rows[row].least);
        return;
    }
    size_t at = (size_t)snprintf(text, bytes, rows[row].list ? "a list, with commas, of " : "");
    for (const char *word = rows[row].words; *word && at < bytes;) {
        const size_t n = strcspn(word, " ");
        const bool first = word == rows[row].words, last = !word[n];
        at += (size_t)snprintf(text + at, bytes - at, "%s%.*s", first ? "" : last ? " or " : ", ",
                               (int)n, word);
        word += n + !last;
    }
}

bool wb__environment_takes(const char *name, const char *value, char *allowed, size_t bytes)
{
    for (int i = 0; i < (int)WB__COUNT(rows); i++) {
        if (strcmp(name, rows[i].name) || !*value || takes(i, value)) continue;
        describe(i, allowed, bytes);
        return false;
    }
    return true;
}

static void check(void)
{
    char allowed[128];
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        const char *value = getenv(rows[i].name);
        if (value && !wb__environment_takes(rows[i].name, value, allowed, sizeof allowed))
            wb__log(WB_LOG_WARN, "%s is \"%s\", which has no effect: it is %s.", rows[i].name,
                    value, allowed);
    }
}

void wb__environment_check(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, check);
}
