/* Programs: texts compiled by NVRTC. */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

/* ---- choosing a compiler --------------------------------------------------------------------- */

/* Compilers are tried in this order:
 *
 *   1. each NVRTC that supports the architecture of the device, which compiles to machine code
 *   2. each NVRTC, which compiles to PTX for the newest architecture that it and the device support
 *
 * The next compiler is tried if the driver rejects the output.  The fields `compiler` and
 * `portable` of a device hold the current attempt. */

/* Returns the newest architecture that both NVRTC and the device support; 0: none; -1: NVRTC's list
 * of architectures cannot be read. */
static int arch_of(const wb__cu_device *d, const wb__cu_compiler *c)
{
    int known[64], n = 0, best = 0;
    if (c->f.GetNumSupportedArchs(&n) || n > (int)WB__COUNT(known) || c->f.GetSupportedArchs(known))
        return -1;
    for (int i = 0; i < n; i++)
        if (known[i] <= d->arch && known[i] > best) best = known[i];
    return best;
}

/* Returns the compiler to use, and sets *arch to the architecture to compile for.  Moves
 * d->compiler and d->portable to the first suitable compiler from the current one on.  NULL: there
 * is none, or a compiler's architectures cannot be read. */
static const wb__cu_compiler *cuda_program_choose_compiler(wb__cu_device *d, int *arch)
{
    for (;; d->compiler++) {
        const wb__cu_compiler *c = wb__cu_compiler_at(d->compiler);
        if (!c && (d->portable || !d->compiler)) return NULL;
        if (!c) {
            d->portable = true;
            d->compiler = -1;
            continue;
        }
        *arch = arch_of(d, c);
        if (*arch < 0) return NULL;
        if (d->portable ? *arch > 0 : *arch == d->arch) return c;
    }
}

/* Sets the error that no compiler is suitable, and d->compiler to the first compiler again, for the
 * next program.  Returns false. */
static bool nothing_left(wb__cu_device *d)
{
    const wb__cu_compiler *c = wb__cu_compiler_at(0);
    d->compiler = 0;
    d->portable = false;
    if (c)
        wb__fail(WB_ERROR_DEVICE, "cuda:%d: NVRTC %d.%d cannot compile for %s,"
                 " compute capability %d.%d: install another one", d->gpu.base.ordinal,
                 c->version / 1000, c->version % 1000 / 10, d->gpu.name, d->arch / 10,
                 d->arch % 10);
    return false;
}

bool wb__cu_options(wb__gpu_device *base, int flags, char *text, size_t capacity)
{
    wb__cu_device *d = wb__cu_of(base);
    int arch = 0;
    (void)flags;
    const wb__cu_compiler *c = cuda_program_choose_compiler(d, &arch);
    if (!c) return nothing_left(d);
    snprintf(base->maker, sizeof base->maker, "NVRTC %d.%d", c->version / 1000,
             c->version % 1000 / 10);
    snprintf(text, capacity, "--gpu-architecture=%s_%d --fmad=false -default-device",
             d->portable ? "compute" : "sm", arch);
    return true;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Whether the error code means that an image is for a newer driver or for another device. */
static bool is_foreign(int code)
{
    return code == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || code == CUDA_ERROR_NO_BINARY_FOR_GPU ||
           code == CUDA_ERROR_INVALID_IMAGE || code == CUDA_ERROR_INVALID_PTX;
}

static int cuda_program_load_failed(wb__gpu_device *base, int code, const char *options)
{
    const wb__gpu_driver *v = base->driver;
    const int arch = (int)strcspn(options, " "), version = wb__cu_driver_version;
    if (!is_foreign(code))
        return wb__gpu_fail(v, base, code, "a kernel compiled with %.*s", arch, options);
    wb__gpu_fail(v, base, code, "the driver, for CUDA %d.%d, rejects the output of %s with %.*s:"
                 " install a newer driver, or an older NVRTC and name its folder in"
                 " WEBER_CUDA_PATH",
                 version / 1000, version % 1000 / 10, base->maker, arch, options);
    return WB_ERROR_UNSUPPORTED;
}

/* ---- compiling ------------------------------------------------------------------------------- */

#define RTC_TABLE wb__nvrtc_functions
#define RTC_PROGRAM nvrtcProgram
#define RTC_NAME "nvrtc"
#define RTC_FILE "kernel.cu"
#define RTC_NO_MEMORY NVRTC_ERROR_OUT_OF_MEMORY
#define RTC_INVALID_OPTION NVRTC_ERROR_INVALID_OPTION
#define PORTABLE(d) (((const wb__cu_device *)(d))->portable)
#define RTC_SIZE(d, f, program, bytes)                                                             \
    (PORTABLE(d) ? (f)->GetPTXSize((program), (bytes)) : (f)->GetCUBINSize((program), (bytes)))
#define RTC_IMAGE(d, f, program, image)                                                            \
    (PORTABLE(d) ? (f)->GetPTX((program), (image)) : (f)->GetCUBIN((program), (image)))
#define RTC_LOAD_FAILED(d, code, options) cuda_program_load_failed((d), (code), (options))
#include "backend/gpu/runtime/rtc_api.h"

/* Returns 0 or an error code.  WB_ERROR_UNSUPPORTED: the compiler is not suitable, and d->compiler
 * is now the next compiler. */
int wb__cu_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                   void **image, size_t *bytes)
{
    wb__cu_device *d = wb__cu_of(base);
    const wb__nvrtc_functions *f = &wb__cu_compiler_at(d->compiler)->f;
    const int status = rtc_make_program(base, f, text, options, program, image, bytes);
    d->compiler += status == WB_ERROR_UNSUPPORTED;
    return status;
}
