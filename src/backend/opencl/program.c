/* Compiles programs with the driver, and gets and loads their images (compiled binaries). */
#include "backend/opencl/opencl.h"

#include <stdio.h>
#include <string.h>

/* Writes the options.  PoCL reads the 18,000 lines of clang's opencl-c.h before each program, which
 * takes most of the time to compile a kernel, and to find it in PoCL's cache.  _OPENCL_H_, the
 * guard of that file, leaves these lines out, and the prelude declares what our kernels use. */
bool wb__cl_options(wb__gpu_device *base, int flags, char *text, size_t capacity)
{
    const wb__cl_device *d = wb__cl_of(base);
    snprintf(text, capacity, "-cl-std=CL1.2%s%s%s",
             flags & WB__GPU_F64 ? "" : " -cl-single-precision-constant",
             d->exact_division ? " -cl-fp32-correctly-rounded-divide-sqrt" : "",
             d->declares ? " -D_OPENCL_H_ -DWB_DECLARE" : "");
    return true;
}

/* Sets the error to the beginning of the compiler's messages, and returns the error code.  With
 * WEBER_DEBUG=kernel, also logs all messages and the program's text. */
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

/* Returns a copy of the program's image for device `d`, which the caller frees; NULL, without an
 * error: there is none. */
static void *opencl_program_image_of(const wb__cl_device *d, cl_program program, size_t *bytes)
{
    cl_device_id ids[WB__GPU_MAX_DEVICES];
    size_t sizes[WB__GPU_MAX_DEVICES], ids_bytes = 0;
    unsigned char *images[WB__GPU_MAX_DEVICES] = {NULL};
    if (cl.GetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof ids, ids, &ids_bytes) ||
        cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL))
        return NULL;
    size_t mine = 0;
    const size_t n = ids_bytes / sizeof(*ids);
    while (mine < n && ids[mine] != d->id) mine++;
    if (mine == n || !sizes[mine]) return NULL;
    if ((images[mine] = wb__alloc(sizes[mine])) &&      /* NULL skips the other images */
        !cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, n * sizeof(*images), images, NULL)) {
        *bytes = sizes[mine];
        return images[mine];
    }
    wb__free(images[mine]);
    wb_clear_error();
    return NULL;
}

int wb__cl_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                   void **image, size_t *bytes)
{
    wb__cl_device *d = wb__cl_of(base);
    cl_int code = 0;
    cl_program made = MAKE(&code, CreateProgramWithSource, d->platform->context, 1, &text, NULL);
    if (code) return wb__gpu_fail(&wb__cl_driver, base, code, "%zu characters", strlen(text));
    code = CALL(BuildProgram, made, 1, &d->id, options, NULL, NULL);
    if (code) {
        int status = build_failed(d, made, code, text);
        cl.ReleaseProgram(made);
        if (code == CL_BUILD_PROGRAM_FAILURE && d->declares) {
            d->declares = false;        /* wb__cl_options then writes other options */
            status = WB_ERROR_UNSUPPORTED;
        }
        return status;
    }
    *program = made;
    if (base->keeps_images) *image = opencl_program_image_of(d, made, bytes);
    return 0;
}
