/* Programs: texts compiled by hiprtc to code objects. */
#include "backend/amdgpu/amdgpu.h"

#include <stdio.h>
#include <string.h>

static const char *const common[] = {"-ffp-contract=off", "-O3"};

bool wb__hip_options(wb__gpu_device *base, int flags, char *text, size_t capacity)
{
    wb__hip_device *d = wb__hip_of(base);
    const wb__hip_compiler *c = wb__hip_compiler_get();
    (void)flags;
    if (!c || wb__hip_check_arch(d)) return false;
    snprintf(base->maker, sizeof base->maker, "hiprtc %d.%d of HIP %d", c->major, c->minor,
             wb__hip_version);
    snprintf(text, capacity, "--offload-arch=%s %s %s", d->arch, common[0], common[1]);
    return true;
}

static int hiprtc_failed(const wb__hip_device *d, const char *call, hiprtcResult code,
                         const char *what)
{
    return wb__fail(code == HIPRTC_ERROR_OUT_OF_MEMORY ? WB_ERROR_MEMORY : WB_ERROR_DEVICE,
                    "amdgpu:%d: %s: %s (%u): %s", d->gpu.base.ordinal, call,
                    wb__hip_compiler_get()->f.GetErrorString(code), code, what);
}

/* Reports the compiler's messages: the error has their beginning; with WEBER_DEBUG=kernel, the log
 * has all of them.  Returns the code of the error. */
static int compile_failed(const wb__hip_device *d, const wb__hiprtc_functions *f,
                          hiprtcProgram program, hiprtcResult code, const char *text)
{
    size_t bytes = 0;
    char *log = NULL;
    if (!f->GetProgramLogSize(program, &bytes) && bytes) log = wb__alloc_zero(bytes + 1, 1);
    if (log && f->GetProgramLog(program, log)) log[0] = 0;
    wb__gpu_log_build(&d->gpu, text, log);
    const int status = hiprtc_failed(d, "hiprtcCompileProgram", code,
                                     log && *log ? log : "the compiler gave no reason");
    wb__free(log);
    return status;
}

/* Gets the image of a compiled program, which the caller frees.  Returns 0, or an error. */
static int image_of(const wb__hip_device *d, const wb__hiprtc_functions *f, hiprtcProgram program,
                    void **image, size_t *bytes)
{
    hiprtcResult code = f->GetCodeSize(program, bytes);
    if (!code && !(*image = wb__alloc(*bytes + 1))) return WB_ERROR_MEMORY;
    if (!code) code = f->GetCode(program, *image);
    if (!code) return 0;
    wb__free(*image);
    *image = NULL;
    return hiprtc_failed(d, "hiprtcGetCode", code, "the compiled program");
}

int wb__hip_load_image(wb__gpu_device *base, const void *image, size_t bytes, const char *options,
                       void **program)
{
    hipModule module = NULL;
    (void)base, (void)bytes, (void)options;
    const int code = CALL(ModuleLoadData, &module, image);
    *program = module;
    return code;
}

int wb__hip_compile(wb__gpu_device *base, const char *text, const char *options, void **program,
                    void **image, size_t *bytes)
{
    wb__hip_device *d = wb__hip_of(base);
    const wb__hiprtc_functions *f = &wb__hip_compiler_get()->f;
    char arch[96];
    const char *list[] = {arch, common[0], common[1]};
    hiprtcProgram made = NULL;
    snprintf(arch, sizeof arch, "%.*s", (int)strcspn(options, " "), options);
    hiprtcResult code = f->CreateProgram(&made, text, "kernel.hip", 0, NULL, NULL);
    if (code) return hiprtc_failed(d, "hiprtcCreateProgram", code, "a kernel's text");
    code = f->CompileProgram(made, (int)WB__COUNT(list), list);
    int status = code ? compile_failed(d, f, made, code, text) : image_of(d, f, made, image, bytes);
    f->DestroyProgram(&made);
    if (status) return status;
    const int loaded = wb__hip_load_image(base, *image, *bytes, options, program);
    if (!loaded) return 0;
    *program = NULL;
    return wb__gpu_fail(base->driver, base, loaded, "a kernel compiled with %s", arch);
}

/* Waits first: a program without users may still have kernels in the queue. */
void wb__hip_unload(wb__gpu_device *base, void *program)
{
    hip.StreamSynchronize(wb__hip_of(base)->stream[WB__GPU_COMPUTE]);
    hip.ModuleUnload(program);
}

int wb__hip_function(wb__gpu_device *base, void *program, const char *entry, void **function,
                     size_t *max_items)
{
    hipFunction made = NULL;
    int most = 0, code = CALL(ModuleGetFunction, &made, program, entry);
    (void)base;
    *function = made;
    if (!code) code = CALL(FuncGetAttribute, &most, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, made);
    *max_items = (size_t)most;
    return code;
}
