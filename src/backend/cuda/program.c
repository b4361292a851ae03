/* Programs: a text is compiled once a device, and what NVRTC made of it kept on disk for the next
 * process. */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

/* ---- what to compile with -------------------------------------------------------------------- */

/* First each NVRTC that knows the device's architecture, then each for the newest architecture that
 * it knows and the device has, as PTX, which the driver translates: what the driver refuses, and an
 * NVRTC that does not know the device, is followed by the next.  A device's choice is in its
 * `compiler` and `portable`. */
typedef struct {
    const wb__cu_compiler *with;
    char arch[40];
    const char *option[3];
    const char *defines;        /* what stands in front of the prelude */
    bool portable;
} options;

/* The newest architecture that NVRTC knows and the device has, or 0; -1: it does not say. */
static int arch_of(const wb__cu_device *d, const wb__cu_compiler *c)
{
    int known[64], n = 0, best = 0;
    if (c->f.GetNumSupportedArchs(&n) || n > (int)WB__COUNT(known) ||
        c->f.GetSupportedArchs(known))
        return -1;
    for (int i = 0; i < n; i++)
        if (known[i] <= d->arch && known[i] > best) best = known[i];
    return best;
}

/* The device's choice, or the first possible one after it, with the architecture; NULL: there is
 * none. */
static const wb__cu_compiler *choose(wb__cu_device *d, int *arch)
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

static void choose_first(wb__cu_device *d)
{
    d->compiler = 0;
    d->portable = false;
}

static int unknown_device(wb__cu_device *d)
{
    const wb__cu_compiler *c = wb__cu_compiler_at(0);
    if (!c) return wb_error_code();
    return wb__fail(WB_ERROR_DEVICE, "cuda:%d: NVRTC %d.%d does not know how to compile for %s,"
                    " compute capability %d.%d: install another one", d->ordinal, c->version / 1000,
                    c->version % 1000 / 10, d->name, d->arch / 10, d->arch % 10);
}

/* False: there is nothing more to compile with; no error is set. */
static bool set_options(wb__cu_device *d, int flags, options *o)
{
    static const char *const defines[] = {
        [WB__CU_PLAIN] = "", [WB__CU_F64] = "#define WB_F64\n", [WB__CU_TABLE] = "#define WB_TABLE\n",
        [WB__CU_F64 | WB__CU_TABLE] = "#define WB_F64\n#define WB_TABLE\n"};
    int arch = 0;
    *o = (options){.with = choose(d, &arch), .portable = d->portable, .defines = defines[flags],
                   .option = {o->arch, "--fmad=false", "-default-device"}};
    snprintf(o->arch, sizeof o->arch, "--gpu-architecture=%s_%d", o->portable ? "compute" : "sm",
             arch);
    return o->with;
}

/* ---- compiling ------------------------------------------------------------------------------- */

static int nvrtc_failed(const wb__cu_device *d, const options *o, const char *call,
                        nvrtcResult code, const char *what)
{
    return wb__fail(code == NVRTC_ERROR_OUT_OF_MEMORY ? WB_ERROR_MEMORY : WB_ERROR_DEVICE,
                    "cuda:%d: %s: %s (%u): %s", d->ordinal, call, o->with->f.GetErrorString(code),
                    code, what);
}

/* The compiler's words, which may be long: the message has the beginning, the log all of it. */
static int compile_failed(const wb__cu_device *d, const options *o, nvrtcProgram program,
                          nvrtcResult code, const char *text)
{
    const wb__nvrtc_functions *f = &o->with->f;
    size_t bytes = 0;
    char *log = NULL;
    if (!f->GetProgramLogSize(program, &bytes) && bytes) log = wb__alloc_zero(bytes + 1, 1);
    if (log && f->GetProgramLog(program, log)) log[0] = 0;
    if (wb__debug("kernel"))
        wb__log(WB_LOG_ERROR, "kernel: cuda:%d: does not compile:\n%s\n%s", d->ordinal, text,
                log ? log : "");
    const int status = nvrtc_failed(d, o, "nvrtcCompileProgram", code,
                                    log && *log ? log : "the compiler gave no reason");
    wb__free(log);
    return status;
}

/* The image of a compiled program, allocated; NULL on failure. */
static void *image_of(const wb__cu_device *d, const options *o, nvrtcProgram program, size_t *bytes)
{
    const wb__nvrtc_functions *f = &o->with->f;
    void *image = NULL;
    const char *call = o->portable ? "nvrtcGetPTX" : "nvrtcGetCUBIN";
    nvrtcResult code = o->portable ? f->GetPTXSize(program, bytes)
                                   : f->GetCUBINSize(program, bytes);
    if (!code && !(image = wb__alloc(*bytes + 1))) return NULL;
    if (!code) code = o->portable ? f->GetPTX(program, image) : f->GetCUBIN(program, image);
    if (!code) return image;
    wb__free(image);
    nvrtc_failed(d, o, call, code, "the compiled program");
    return NULL;
}

/* *next: whether another NVRTC may do better. */
static void *compile(wb__cu_device *d, const char *text, const options *o, size_t *bytes,
                     bool *next)
{
    const wb__nvrtc_functions *f = &o->with->f;
    nvrtcProgram program = NULL;
    void *image = NULL;
    char *whole = wb__printf("%s%s\n%s", o->defines, wb__gpu_prelude, text);
    if (!whole) return NULL;
    nvrtcResult code = f->CreateProgram(&program, whole, "kernel.cu", 0, NULL, NULL);
    if (code) {
        nvrtc_failed(d, o, "nvrtcCreateProgram", code, "a kernel's text");
    } else {
        code = f->CompileProgram(program, (int)WB__COUNT(o->option), o->option);
        *next = code == NVRTC_ERROR_INVALID_OPTION;
        if (code) compile_failed(d, o, program, code, text);
        else image = image_of(d, o, program, bytes);
        f->DestroyProgram(&program);
    }
    wb__free(whole);
    return image;
}

/* ---- loading, and keeping on disk ------------------------------------------------------------ */

/* All that an image depends on. */
static char *key_of(const options *o, const char *text, size_t *bytes)
{
    char *key = wb__printf("%d %s %s %s\n%s%s\n%s", o->with->version, o->option[0],
                           o->option[1], o->option[2], o->defines, wb__gpu_prelude, text);
    if (key) *bytes = strlen(key);
    return key;
}

/* The driver does not take such images: they are for a newer one, or another device. */
static bool is_foreign(CUresult code)
{
    return code == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || code == CUDA_ERROR_NO_BINARY_FOR_GPU ||
           code == CUDA_ERROR_INVALID_IMAGE || code == CUDA_ERROR_INVALID_PTX;
}

static int load_failed(wb__cu_device *d, CUresult code, const options *o)
{
    if (is_foreign(code))
        return wb__cu_fail(d, "cuModuleLoadData", code, "the driver, for CUDA %d.%d, does not take"
                           " what NVRTC %d.%d made with %s: install a newer driver, or an older"
                           " NVRTC and name its folder in WEBER_CUDA_PATH",
                           wb__cu_driver_version / 1000, wb__cu_driver_version % 1000 / 10,
                           o->with->version / 1000, o->with->version % 1000 / 10, o->arch);
    return wb__cu_fail(d, "cuModuleLoadData", code, "a kernel compiled with %s", o->arch);
}

/* With the device's choice of a compiler; NULL with the error set.  What was kept may be damaged:
 * then it is compiled again. */
static CUmodule make_with(wb__cu_device *d, const char *text, const options *o, bool *next)
{
    CUmodule module = NULL;
    size_t key_bytes = 0, bytes = 0;
    if (wb__debug("kernel"))
        wb__log(WB_LOG_DEBUG, "kernel: cuda:%d: %s %s %s\n%s%s", d->ordinal, o->option[0],
                o->option[1], o->option[2], o->defines, text);
    char *key = key_of(o, text, &key_bytes);
    if (!key) return NULL;
    void *image = wb__kernel_cache_get("cuda", key, key_bytes, &bytes);
    if (image && cu.ModuleLoadData(&module, image)) module = NULL;
    wb__free(image);
    if (!module && (image = compile(d, text, o, &bytes, next))) {
        const CUresult code = cu.ModuleLoadData(&module, image);
        if (!code) wb__kernel_cache_put("cuda", key, key_bytes, image, bytes);
        else module = NULL, load_failed(d, code, o);
        *next = is_foreign(code);
        wb__free(image);
    }
    wb__free(key);
    return module;
}

/* Where nothing that there is will do, the error is the first one's. */
static void *make(void *device, const char *text, int flags)
{
    wb__cu_device *d = device;
    char first[600] = "";
    options o;
    while (set_options(d, flags, &o)) {
        bool next = false;
        CUmodule module = make_with(d, text, &o, &next);
        if (module && *first) {
            wb__log(WB_LOG_INFO, "%s; NVRTC %d.%d with %s does", first, o.with->version / 1000,
                    o.with->version % 1000 / 10, o.arch);
            wb_clear_error();
        }
        if (module || !next) return module;
        if (!*first) snprintf(first, sizeof first, "%s", wb_error());
        d->compiler++;
    }
    choose_first(d);
    if (*first) wb__fail(WB_ERROR_DEVICE, "%s", first);
    else unknown_device(d);
    return NULL;
}

static void drop(void *made) { cu.ModuleUnload(made); }

/* A module that is unloaded while its kernels run takes them along: what is dropped was given back
 * by 128 kernels' worth of others before, but their launches may still wait in line. */
static void wait_for_kernels(void *device)
{
    const wb__cu_device *d = device;
    cu.StreamSynchronize(d->compute);
}

const wb__gpu_compiler wb__cu_compiling = {make, drop, wait_for_kernels};

int wb__cu_function(wb__cu_device *d, const wb__gpu_program *p, const char *entry, uint32_t items,
                    CUfunction *function)
{
    int most = 0;
    CUresult code = cu.ModuleGetFunction(function, p->made, entry);
    if (code) return wb__cu_fail(d, "cuModuleGetFunction", code, "kernel %s", entry);
    code = cu.FuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, *function);
    if (code) return wb__cu_fail(d, "cuFuncGetAttribute", code, "kernel %s", entry);
    if (items <= (uint32_t)most) return 0;
    return wb__fail(WB_ERROR_DEVICE, "cuda:%d: kernel %s wants %u items in a group; %s allows it"
                    " %d", d->ordinal, entry, items, d->name, most);
}
