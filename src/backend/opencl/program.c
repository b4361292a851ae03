/* Programs: texts compiled by the driver, and their images. */
#include "backend/opencl/opencl.h"

#include <stdio.h>
#include <string.h>

bool wb__cl_options(wb__gpu_device *base, int flags, char *text, size_t room)
{
    snprintf(text, room, "-cl-std=CL1.2%s%s",
             flags & WB__GPU_F64 ? "" : " -cl-single-precision-constant",
             wb__cl_of(base)->exact_division ? " -cl-fp32-correctly-rounded-divide-sqrt" : "");
    return true;
}

/* The compiler's words, which may be long: the message has the beginning, the log all of it. */
static int build_failed(wb__cl_device *d, cl_program program, int code, const char *text)
{
    size_t bytes = 0;
    char *log = NULL;
    if (!cl.GetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) && bytes)
        log = wb__alloc_zero(bytes + 1, 1);
    if (log && cl.GetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL))
        log[0] = 0;
    wb__gpu_log_build(&d->gpu, text, log);
    const int status = wb__gpu_fail(&wb__cl_driver, &d->gpu, code, "%s",
                                    log && *log ? log : "the compiler gave no reason");
    wb__free(log);
    return status;
}

int wb__cl_load_image(wb__gpu_device *base, const void *image, size_t bytes, const char *options,
                      void **program)
{
    wb__cl_device *d = wb__cl_of(base);
    const unsigned char *data = image;
    cl_int code = 0, status = 0;
    cl_program made = MAKE(&code, CreateProgramWithBinary, d->platform->context, 1, &d->id, &bytes,
                           &data, &status);
    if (code) return code;
    if (!status) status = CALL(BuildProgram, made, 1, &d->id, options, NULL, NULL);
    if (status) cl.ReleaseProgram(made);
    else *program = made;
    return status;
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
static void *image_of(wb__cl_device *d, cl_program program, size_t *bytes)
{
    void *image = NULL;
    cl_uint n = 0;
    if (cl.GetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof n, &n, NULL) || !n)
        return NULL;
    cl_device_id *ids = wb__alloc_zero(n, sizeof(*ids));
    size_t *sizes = wb__alloc_zero(n, sizeof *sizes);
    unsigned char **binaries = wb__alloc_zero(n, sizeof(*binaries));
    if (ids && sizes && binaries) {
        const int mine = find_binary(d, program, ids, sizes, binaries, n);
        if (mine >= 0) {
            image = binaries[mine];
            *bytes = sizes[mine];
            binaries[mine] = NULL;
        } else {
            wb_clear_error();
        }
    } else {
        wb_clear_error();
    }
    for (cl_uint i = 0; i < n && binaries; i++) wb__free(binaries[i]);
    wb__free(binaries);
    wb__free(sizes);
    wb__free(ids);
    return image;
}

int wb__cl_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                   void **image, size_t *bytes)
{
    wb__cl_device *d = wb__cl_of(base);
    cl_int code = 0;
    cl_program made =
        MAKE(&code, CreateProgramWithSource, d->platform->context, 1, &text, NULL);
    if (code)
        return wb__gpu_fail(&wb__cl_driver, base, code, "%zu characters", strlen(text));
    code = CALL(BuildProgram, made, 1, &d->id, options, NULL, NULL);
    if (code) {
        const int status = build_failed(d, made, code, text);
        cl.ReleaseProgram(made);
        return status;
    }
    *program = made;
    if (base->keeps_images) *image = image_of(d, made, bytes);
    return 0;
}
