/* Kernels' texts written to the folder WEBER_DUMP_KERNELS, one file a text, named by its entry and
 * a hash: for ./run kernels, which compiles them. */
#ifndef WB_TEST_KERNEL_TEXTS_H
#define WB_TEST_KERNEL_TEXTS_H

#include "backend/gpu/gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static inline void dump_kernel(const wb__gpu_launch *l)
{
    const char *folder = getenv("WEBER_DUMP_KERNELS");
    if (!folder) return;
    uint64_t hash = 14695981039346656037u;
    for (const char *c = l->text; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    char *path = wb__printf("%s/%s-%016" PRIx64 ".k", folder, l->entry, hash);
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f || fprintf(f, "%s%s%s", l->f64 ? "#define WB_F64\n" : "", wb__gpu_prelude, l->text) < 0
        || fclose(f)) {
        fprintf(stderr, "cannot write %s\n", path ? path : folder);
        exit(1);
    }
    wb__free(path);
}

/* A step in words, for messages; valid until the next call. */
static inline const char *text_of_step(const wb__step *s)
{
    static char text[600];
    static const char *const kinds[] = {"fused", "matmul", "conv", "pool", "take", "take_add",
                                        "copy"};
    size_t at = (size_t)snprintf(text, sizeof text, "%s %d", kinds[s->kind], s->variant);
    for (int i = 0; i < s->n_views; i++) {
        const wb__view *v = &s->views[i];
        for (int d = -1; d < v->ndim && at < sizeof text - 60; d++)
            at += d < 0 ? (size_t)snprintf(text + at, sizeof text - at, " %s", wb_dtype_name(v->dtype))
                        : (size_t)snprintf(text + at, sizeof text - at, "%s%lld/%lld", d ? "," : " ",
                                           (long long)v->dims[d], (long long)v->strides[d]);
    }
    return text;
}

#endif
