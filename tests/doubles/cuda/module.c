/* Modules, their kernels, launches.  See vgpu.h.
 *
 *   VGPU_PTX_ONLY   1: the driver accepts no compiled images (cubin), only PTX */
#include "inside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SHARED = 48 << 10 };        /* bytes of shared memory if a kernel asks for no more */

struct CUmod_st {
    vgpu_object object;
    void *code;
};

struct CUfunc_st {
    vgpu_object object;
    char name[128];
    CUmodule module;
    const vgpu_kernel *kernel;
    vgpu_position *here;
    char *shared, *shared_end;
    int own, most;              /* bytes of the kernel's arrays; that a launch may ask for beside */
};

/* ---- modules --------------------------------------------------------------------------------- */

/* 0 if the image is valid and its code can run here.  Reads no more bytes than its header gives. */
static CUresult check_image(const vgpu_image *image)
{
    const bool ptx = !memcmp(image->magic, "VGPUPTX", 8);
    if (!ptx && memcmp(image->magic, "VGPUBIN", 8)) return CUDA_ERROR_INVALID_IMAGE;
    if (image->bytes > 64 << 20 || vgpu_hash(image + 1, image->bytes) != image->hash)
        return CUDA_ERROR_INVALID_IMAGE;
    const uint32_t arch = (uint32_t)vgpu_env_number("VGPU_ARCH", 90);
    if (image->toolkit > vgpu_env_number("VGPU_DRIVER", 13000) / 1000)
        return ptx ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION : CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (!ptx && vgpu_env_number("VGPU_PTX_ONLY", 0)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const bool fits = ptx ? image->arch <= arch
                          : image->arch / 10 == arch / 10 && image->arch % 10 <= arch % 10;
    if (!fits || strncmp(image->flags, vgpu_machine_flags(), sizeof image->flags))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return CUDA_SUCCESS;
}

void *vgpu_open_code(const void *code, size_t bytes)
{
    char path[256];
    snprintf(path, sizeof path, "%s/vgpu-XXXXXX.so", vgpu_env("TMPDIR", "/tmp"));
    const int file = mkstemps(path, 3);
    void *handle = NULL;
    if (file < 0) {
        perror(path);
        return NULL;
    }
    if (write(file, code, bytes) == (ssize_t)bytes) handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fprintf(stderr, "vgpu: %s\n", dlerror());
    close(file);
    unlink(path);
    return handle;
}

static CUresult load(CUmodule *module, const void *data)
{
    vgpu_image head;
    CONTEXT(c);
    SAFE_ONLY;
    if (!module || !data) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&head, data, sizeof head.magic);
    if (memcmp(head.magic, "VGPU", 4)) return CUDA_ERROR_INVALID_IMAGE;
    TRY(check_image(data));
    memcpy(&head, data, sizeof head);
    void *code = vgpu_dry() ? NULL : vgpu_open_code((const char *)data + sizeof head, head.bytes);
    if (!code && !vgpu_dry()) return CUDA_ERROR_INVALID_IMAGE;
    *module = vgpu_new(VGPU_MODULE, sizeof **module, c);
    (*module)->code = code;
    return CUDA_SUCCESS;
}
API(cuModuleLoadData, (CUmodule *module, const void *data), (module, data))
{
    return load(module, data);
}

static CUmodule unloading;
static void end_function(void *f)
{
    if (((CUfunction)f)->module == unloading) vgpu_end(f);
}

API(cuModuleUnload, (CUmodule m), (m))
{
    CONTEXT(c);
    SAFE_ONLY;
    if (!vgpu_is(m, VGPU_MODULE) || m->object.context != c) return CUDA_ERROR_INVALID_HANDLE;
    vgpu_wait_all();
    unloading = m;
    vgpu_each(c, VGPU_FUNCTION, end_function);
    if (m->code) dlclose(m->code);
    vgpu_end(m);
    return CUDA_SUCCESS;
}

static CUmodule same_module;
static const char *same_name;
static CUfunction same;
static void compare_function(void *object)
{
    CUfunction f = object;
    if (f->module == same_module && !strcmp(f->name, same_name)) same = f;
}

API(cuModuleGetFunction, (CUfunction *function, CUmodule m, const char *name), (function, m, name))
{
    CONTEXT(c);
    if (!vgpu_is(m, VGPU_MODULE) || m->object.context != c) return CUDA_ERROR_INVALID_HANDLE;
    if (!function || !name) return CUDA_ERROR_INVALID_VALUE;
    static const vgpu_kernel no_code;
    static char *const nothing[2];
    char symbol[160];
    same_name = name;
    same_module = m;
    same = NULL;
    vgpu_each(c, VGPU_FUNCTION, compare_function);
    if (same) {                         /* as in the driver, a function is one object */
        *function = same;
        return CUDA_SUCCESS;
    }
    snprintf(symbol, sizeof symbol, "vgpu_kernel_%s", name);
    const vgpu_kernel *kernel = m->code ? dlsym(m->code, symbol) : &no_code;
    if (!kernel) return CUDA_ERROR_NOT_FOUND;
    char *const *shared = m->code ? dlsym(m->code, "vgpu_shared") : nothing;
    CUfunction f = vgpu_new(VGPU_FUNCTION, sizeof *f, c);
    snprintf(f->name, sizeof f->name, "%s", name);
    f->module = m;
    f->kernel = kernel;
    f->here = m->code ? dlsym(m->code, "vgpu_here") : NULL;
    f->shared = shared[0];
    f->shared_end = shared[1];
    f->own = f->shared_end - f->shared > 16 ? (int)(f->shared_end - f->shared) - 16 : 0;
    /* `own` has the arrays of all kernels of the module, which may be more than one can have. */
    f->most = f->own < MOST_SHARED ? MOST_SHARED - f->own : 0;
    *function = f;
    return CUDA_SUCCESS;
}

API(cuFuncGetAttribute, (int *value, CUfunction_attribute which, CUfunction f), (value, which, f))
{
    if (!vgpu_is(f, VGPU_FUNCTION)) return CUDA_ERROR_INVALID_HANDLE;
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    if (which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) *value = 1024;
    else if (which == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) *value = f->own;
    else return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

API(cuFuncSetAttribute, (CUfunction f, CUfunction_attribute which, int value), (f, which, value))
{
    CONTEXT(c);
    if (!vgpu_is(f, VGPU_FUNCTION) || f->object.context != c) return CUDA_ERROR_INVALID_HANDLE;
    if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        return value < -1 || value > 100 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value > vgpu_most_shared() - f->own)
        return CUDA_ERROR_INVALID_VALUE;
    f->most = value;
    return CUDA_SUCCESS;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* A launch and its arguments, each padded to a multiple of 16 bytes. */
typedef struct {
    vgpu_grid grid;
    char name[128];
    _Alignas(16) unsigned char arguments[];
} launch;

static size_t padded(size_t argument) { return (argument + 15) / 16 * 16; }

/* Every pointer must be NULL or an address that the device can access. */
static bool check_pointers(vgpu_work *w, const vgpu_grid *g)
{
    for (int i = 0; i < g->kernel->n; i++) {
        CUdeviceptr at;
        if (!g->kernel->pointers[i]) continue;
        memcpy(&at, g->arguments[i], sizeof at);
        if (!at || vgpu_reaches(w->context, at)) continue;
        vgpu_fault(w->context, CUDA_ERROR_ILLEGAL_ADDRESS,
                   "%s: argument %d, %#llx, is nothing that device %d reaches", g->name, i, at,
                   w->context->device);
        return false;
    }
    return true;
}

static CUresult run_launch(vgpu_work *w)
{
    launch *l = (launch *)w->payload;
    void *arguments[256];
    size_t at = 0;
    for (int i = 0; i < l->grid.kernel->n; i++) {
        arguments[i] = l->arguments + at;
        at += padded(l->grid.kernel->sizes[i]);
    }
    vgpu_grid grid = l->grid;
    grid.name = l->name;
    grid.arguments = arguments;
    if (!check_pointers(w, &grid) || vgpu_dry()) return CUDA_SUCCESS;
    return vgpu_run_grid(&grid) ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

static CUresult check_size(const unsigned groups[3], const unsigned items[3])
{
    static const unsigned max_groups[3] = {INT32_MAX, 65535, 65535},
                          max_items[3] = {1024, 1024, 64};
    uint64_t all = 1;
    for (int i = 0; i < 3; i++) {
        if (!groups[i] || !items[i] || groups[i] > max_groups[i] || items[i] > max_items[i])
            return CUDA_ERROR_INVALID_VALUE;
        all *= items[i];
    }
    return all > 1024 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Creates the work of a launch, with a copy of its arguments. */
static CUresult launch_work(CUcontext c, CUfunction f, const unsigned groups[3],
                            const unsigned items[3], unsigned shared, void **arguments,
                            void **extra, vgpu_work **work)
{
    if (!vgpu_is(f, VGPU_FUNCTION) || f->object.context != c) return CUDA_ERROR_INVALID_HANDLE;
    TRY(check_size(groups, items));
    if (extra || (f->kernel->n && !arguments)) return CUDA_ERROR_INVALID_VALUE;
    if ((int64_t)shared > f->most) return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = 0, exact = 0;
    for (int i = 0; i < f->kernel->n; i++) {
        bytes += padded(f->kernel->sizes[i]);
        exact += f->kernel->sizes[i];
    }
    if (exact > VGPU_MOST_ARGUMENTS || f->kernel->n > 256) return CUDA_ERROR_INVALID_VALUE;
    vgpu_work *w = vgpu_work_new(c, NULL, run_launch, NULL, sizeof(launch) + bytes);
    launch *l = (launch *)w->payload;
    memcpy(l->name, f->name, sizeof l->name);
    w->name = l->name;
    l->grid = (vgpu_grid){.kernel = f->kernel, .here = f->here, .shared = f->shared,
                          .shared_end = f->shared_end,
                          .groups = {groups[0], groups[1], groups[2]},
                          .items = {items[0], items[1], items[2]}, .launch_local = shared};
    size_t at = 0;
    for (int i = 0; i < f->kernel->n; i++) {
        memcpy(l->arguments + at, arguments[i], f->kernel->sizes[i]);
        at += padded(f->kernel->sizes[i]);
    }
    *work = w;
    return CUDA_SUCCESS;
}

/* The stream takes the time of VGPU_KERNEL_TIMES longer. */
static void spend(CUstream s, double groups)
{
    const char *times = getenv("VGPU_KERNEL_TIMES"), *each = times ? strchr(times, ',') : NULL;
    if (each) vgpu_spend(s, atof(times) + atof(each + 1) * groups);
}

API(cuLaunchKernel,
    (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
     unsigned shared, CUstream s, void **arguments, void **extra),
    (f, gx, gy, gz, bx, by, bz, shared, s, arguments, extra))
{
    vgpu_work *w;
    CONTEXT(c);
    TRY(vgpu_stream(s, true));
    TRY(launch_work(c, f, (const unsigned[]){gx, gy, gz}, (const unsigned[]){bx, by, bz}, shared,
                    arguments, extra, &w));
    spend(s, (double)gx * gy * gz);
    return vgpu_put(s, w);
}
