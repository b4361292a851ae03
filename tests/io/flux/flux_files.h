/* Helpers of the tests that write files for Flux: a folder, the reference reader
 * (bson_reference.py), models that are saved and loaded. */
#ifndef FLUX_FILES_H
#define FLUX_FILES_H

#include "golden.h"
#include "folder.h"
#include "shared_data.h"

#include "base/files/file.h"
#include "io/flux/flux.h"

/* Runs bson_reference.py and returns what it prints.  Skips the test where Python is missing. */
static inline const char *reference(const char *what, const char *a, const char *b, const char *c)
{
    static process p;
    const char *words[] = {"/usr/bin/env", "python3", WB_TEST_DATA "/../io/flux/bson_reference.py",
                           what, a, b, c, NULL};
    process_run(&p, folder, ENVIRONMENT("PYTHONIOENCODING=utf-8"), words);
    if (p.status == 127) {
        printf("SKIP: python3 was not found, which checks what is written for Flux\n");
        fflush(stdout);
        skip();
    }
    if (p.status) fail_msg("%s %s: %s%s", what, a, p.out, p.err);
    return p.out;
}

static inline void refused_by_reference(const char *name, const char *version)
{
    static process p;
    const char *words[] = {"/usr/bin/env", "python3", WB_TEST_DATA "/../io/flux/bson_reference.py",
                           "list", in_folder(name), version, NULL};
    process_run(&p, folder, ENVIRONMENT("PYTHONIOENCODING=utf-8"), words);
    if (p.status != 1 || p.err[0]) fail_msg("%s: %d %s%s", name, p.status, p.out, p.err);
}

static inline int save(const char *name, void *model, const char *flux, bool structs)
{
    const wb_save_options o = WB_OPTIONS_OF(wb_save_options, .flux = flux, .structs = structs);
    return wb__flux_save(in_folder(name), model, &o);
}

static inline void must_save(const char *name, void *model, const char *flux, bool structs)
{
    if (save(name, model, flux, structs)) fail_msg("%s %s: %s", name, flux ? flux : "", wb_error());
}

/* Fills a tensor with random numbers in [0.25, 1.25), so that none is zero. */
static inline int randomise(wb_tensor *x, const char *path, void *ctx)
{
    if (!wb__dtype_float(wb_dtype_of(x))) return 0;
    wb_tensor *drawn = wb_astype(wb_rand_array(WB_F32, wb_ndim(x), x->dims), wb_dtype_of(x));
    return wb_assign(x, wb_add(drawn, wb_astype(wb_scalar(0.25), wb_dtype_of(x))));
}

/* Skips the test where the library was built without libbson, which reads BSON files. */
static inline void needs_reading(void)
{
#ifndef WB_HAVE_BSON
    printf("SKIP: built without libbson, which reads BSON files\n");
    fflush(stdout);
    skip();
#endif
}

static inline wb_layer *loaded(const char *name)
{
    wb_seed(9);
    wb_layer *l = wb_load(in_folder(name));
    if (!l) fail_msg("%s: %s", name, wb_error());
    return l;
}

static inline void same_model(const char *name, wb_layer *m)
{
    wb_layer *l = loaded(name);
    assert_shown_alike(m, l);
    wb_each_tensor(m, same_bits_in, l);
    wb_each_tensor(l, same_bits_in, m);
}

#endif
