/* Programs: a text is compiled once a device, and its binary kept on disk for the next process. */
#include "backend/opencl/opencl.h"

#include <stdio.h>
#include <string.h>

/* ---- compiling ------------------------------------------------------------------------------- */

static const char *options_of(const wb__cl_device *d, int f64)
{
    static const char *const texts[2][2] = {
        {"-cl-std=CL1.2 -cl-single-precision-constant",
         "-cl-std=CL1.2 -cl-single-precision-constant -cl-fp32-correctly-rounded-divide-sqrt"},
        {"-cl-std=CL1.2 -DWB_F64",
         "-cl-std=CL1.2 -DWB_F64 -cl-fp32-correctly-rounded-divide-sqrt"}};
    return texts[f64][d->exact_division];
}

/* The compiler's words, which may be long: the message has the beginning, the log all of it. */
static int build_failed(wb__cl_device *d, cl_program program, cl_int code, const char *text)
{
    size_t bytes = 0;
    char *log = NULL;
    if (!cl.GetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) && bytes)
        log = wb__alloc_zero(bytes + 1, 1);
    if (log && cl.GetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL))
        log[0] = 0;
    if (wb__debug("kernel"))
        wb__log(WB_LOG_ERROR, "kernel: opencl:%d: does not compile:\n%s\n%s", d->base.ordinal, text,
                log ? log : "");
    const int status = wb__cl_fail(d, "clBuildProgram", code, "%s",
                                   log && *log ? log : "the compiler gave no reason");
    wb__free(log);
    return status;
}

static cl_program from_text(wb__cl_device *d, const char *text, const char *options)
{
    const char *texts[2] = {wb__gpu_prelude, text};
    cl_int code = 0;
    cl_program program =
        cl.CreateProgramWithSource(d->platform->context, 2, texts, NULL, &code);
    if (code) {
        wb__cl_fail(d, "clCreateProgramWithSource", code, "%zu characters", strlen(text));
        return NULL;
    }
    code = cl.BuildProgram(program, 1, &d->id, options, NULL, NULL);
    if (!code) return program;
    build_failed(d, program, code, text);
    cl.ReleaseProgram(program);
    return NULL;
}

/* NULL: the driver refuses it, whatever the reason. */
static cl_program from_binary(wb__cl_device *d, const void *binary, size_t bytes,
                              const char *options)
{
    const unsigned char *data = binary;
    cl_int code = 0, status = 0;
    cl_program program = cl.CreateProgramWithBinary(d->platform->context, 1, &d->id, &bytes, &data,
                                                    &status, &code);
    if (code) return NULL;
    if (!status && !cl.BuildProgram(program, 1, &d->id, options, NULL, NULL)) return program;
    cl.ReleaseProgram(program);
    return NULL;
}

/* ---- on disk --------------------------------------------------------------------------------- */

/* All that a binary depends on. */
static char *key_of(const wb__cl_device *d, const char *text, const char *options, size_t *bytes)
{
    char *key = wb__printf("%s\n%s\n%s\n%s\n%s%s", d->platform->name, d->name, d->driver, options,
                           wb__gpu_prelude, text);
    if (key) *bytes = strlen(key);
    return key;
}

/* The program's devices are those of its context; we want the binary of one of them. */
static int find_binary(wb__cl_device *d, cl_program program, cl_device_id *ids, size_t *sizes,
                       unsigned char **binaries, cl_uint n)
{
    if (cl.GetProgramInfo(program, CL_PROGRAM_DEVICES, n * sizeof(*ids), ids, NULL) ||
        cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, n * sizeof(*sizes), sizes, NULL))
        return -1;
    int mine = -1;
    for (cl_uint i = 0; i < n; i++) {
        if (ids[i] == d->id) mine = (int)i;
        if (sizes[i] && !(binaries[i] = wb__alloc(sizes[i]))) return -1;
    }
    if (mine < 0 || !binaries[mine] ||
        cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, n * sizeof(*binaries), binaries, NULL))
        return -1;
    return mine;
}

/* Failing to keep a binary is no error: it is compiled again another time. */
static void keep(wb__cl_device *d, cl_program program, const char *key, size_t key_bytes)
{
    cl_uint n = 0;
    if (cl.GetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof n, &n, NULL) || !n) return;
    cl_device_id *ids = wb__alloc_zero(n, sizeof(*ids));
    size_t *sizes = wb__alloc_zero(n, sizeof *sizes);
    unsigned char **binaries = wb__alloc_zero(n, sizeof(*binaries));
    if (ids && sizes && binaries) {
        const int mine = find_binary(d, program, ids, sizes, binaries, n);
        if (mine >= 0) wb__kernel_cache_put("opencl", key, key_bytes, binaries[mine], sizes[mine]);
        else wb_clear_error();
    } else {
        wb_clear_error();
    }
    for (cl_uint i = 0; i < n && binaries; i++) wb__free(binaries[i]);
    wb__free(binaries);
    wb__free(sizes);
    wb__free(ids);
}

static void *make(void *device, const char *text, int f64)
{
    wb__cl_device *d = device;
    const char *options = options_of(d, f64);
    size_t key_bytes = 0, bytes = 0;
    if (wb__debug("kernel"))
        wb__log(WB_LOG_DEBUG, "kernel: opencl:%d: %s\n%s", d->base.ordinal, options, text);
    if (!d->keeps_binaries) return from_text(d, text, options);
    char *key = key_of(d, text, options, &key_bytes);
    if (!key) return NULL;
    cl_program program = NULL;
    void *binary = wb__kernel_cache_get("opencl", key, key_bytes, &bytes);
    if (binary) program = from_binary(d, binary, bytes, options);
    wb__free(binary);
    if (!program) {
        program = from_text(d, text, options);
        if (program) keep(d, program, key, key_bytes);
    }
    wb__free(key);
    return program;
}

static void drop(void *made) { cl.ReleaseProgram(made); }

const wb__gpu_compiler wb__cl_compiler = {.make = make, .drop = drop};
