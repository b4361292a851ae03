/* Matrix products by rocBLAS.  The library is opened for the first product.  rocBLAS adds no bias
 * and no epilogue; a kernel of ours applies these.  rocBLAS computes D = op(A)·op(B) in
 * column-major order.  A row-major c = a·b is the column-major cᵀ = bᵀ·aᵀ, so A is b and B is a.
 *
 *   WEBER_AMDGPU_ROCBLAS   0: rocBLAS is not used */
#include "backend/amdgpu/amdgpu.h"
#include "backend/amdgpu/blas.h"

#include "base/environment.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ----------------------------------------------------------------------------- */

static wb__blas_functions rocblas;

/* A product without its addresses: the problem (vendor.h) of its entry.  It is initialised with
 * zeros, since problems are compared byte by byte. */
typedef struct {
    int32_t m, n, k, batch, op[2], ld[3];       /* op: of A and B; ld: of A, B and D */
    int32_t type, compute;              /* rocBLAS's codes of the operands' type and of the sums' */
    int64_t step[3];                    /* elements between the matrices of a batch */
} rocblas_problem;

typedef struct {
    wb__gpu_entry base;
    rocblas_problem problem;
} rocblas_entry;
_Static_assert(offsetof(rocblas_entry, problem) == sizeof(wb__gpu_entry), "base, then problem");

typedef struct {
    wb__gpu_routine base;
    rocblas_entry *entry;
    rocblas_handle handle;
    int buffer[3];                      /* indices, in the plan, of the buffers of A, B and D */
    size_t at[3];                       /* the operands' offsets in their buffers, in bytes */
} rocblas_routine;

/* The workspace of each product, in bytes.  rocBLAS is not asked for the size that it needs: some
 * versions run the product during such a query.  A product that needs more is refused. */
enum { WORKSPACE = 32 << 20 };

/* Whether the library can be used: a rocBLAS of another version of ROCm brings its own HIP. */
static bool rocblas_is_usable(const void *table, const char *missing, char *reason, size_t capacity)
{
    const wb__blas_functions *f = table;
    void *address = NULL, *ours = NULL;
    memcpy(&address, &f->create_handle, sizeof address);
    memcpy(&ours, &hip.Init, sizeof ours);
    if (!missing) return wb__gpu_shares_driver(address, "hipInit", ours, reason, capacity);
    snprintf(reason, capacity, "librocblas has no %s: it is too old", missing);
    return false;
}

/* Whether a folder, or a folder in it down to this depth, has a file with kernels for `arch`. */
static bool rocblas_has_file(const char *folder, const char *arch, size_t length, int depth)
{
    wb__os_folder *all = wb__os_folder_open(folder);
    bool found = false;
    for (const char *name; all && !found && (name = wb__os_folder_next(all));) {
        const char *at = strstr(name, "gfx");
        char below[1024];
        found = at && !strncmp(at, arch, length) &&
                !strchr("0123456789abcdef", at[length] ? at[length] : '.');
        if (found || !depth || name[0] == '.') continue;
        if (snprintf(below, sizeof below, "%s/%s", folder, name) < (int)sizeof below)
            found = rocblas_has_file(below, arch, length, depth - 1);
    }
    if (all) wb__os_folder_close(all);
    return found;
}

/* Whether rocBLAS has kernels for the device: without them its first product ends the process.
 * They are in the folder that ROCBLAS_TENSILE_LIBPATH names, or below "rocblas" beside the
 * library.  false: the error is set. */
static bool has_kernels(wb__hip_device *d)
{
    const char *named = wb__environment_path("ROCBLAS_TENSILE_LIBPATH");
    const size_t length = strcspn(d->arch, ":");
    char folder[1024] = "";
    void *address = NULL;
    if (d->blas_kernels > 0) return true;
    memcpy(&address, &rocblas.create_handle, sizeof address);
    const char *file = wb__os_library_file(address), *slash = file ? strrchr(file, '/') : NULL;
    if (named) snprintf(folder, sizeof folder, "%s", named);
    else if (slash) snprintf(folder, sizeof folder, "%.*s/rocblas", (int)(slash - file), file);
    if (!d->blas_kernels)
        d->blas_kernels = *folder && rocblas_has_file(folder, d->arch, length, 2) ? 1 : -1;
    if (d->blas_kernels > 0) return true;
    wb__fail(WB_ERROR_UNSUPPORTED, "amdgpu:%d: rocBLAS has no kernels for %.*s in %s;"
             " ROCBLAS_TENSILE_LIBPATH names another folder", d->gpu.base.ordinal, (int)length,
             d->arch, *folder ? folder : "its folder");
    return false;
}

/* Whether rocBLAS has kernels for the device; if not, logs a warning once, and sets no error. */
static bool has_kernels_or_warns(wb__hip_device *d)
{
    if (has_kernels(d)) return true;
    if (!d->blas_warned) wb__log(WB_LOG_WARN, "%s; our own kernels compute products", wb_error());
    d->blas_warned = true;
    wb_clear_error();
    return false;
}

/* Creates a handle that allows no sums by atomics, whose order differs from run to run. */
static int rocblas_new_handle(void **handle)
{
    rocblas_handle made = NULL;
    int status = (int)rocblas.create_handle(&made);
    if (status) return status;
    status = (int)rocblas.set_atomics_mode(made, rocblas_atomics_not_allowed);
    /* frees the handle's own memory now, since that would fail in a recording */
    if (!status) status = (int)rocblas.set_workspace(made, NULL, 0);
    if (status) rocblas.destroy_handle(made);
    else *handle = made;
    return status;
}

static void rocblas_destroy_handle(void *handle) { rocblas.destroy_handle(handle); }
static const char *rocblas_status_name(int status)
{
    return rocblas.status_to_string((HIPenum)status);
}
static bool rocblas_is_memory_error(int status) { return status == rocblas_status_memory_error; }

/* Calls the product with these addresses of A, B and D.  Returns rocBLAS's status. */
static int rocblas_multiply(const rocblas_problem *p, rocblas_handle handle, void *const at[3])
{
    static const float one = 1, zero = 0;
    static const double one_f64 = 1, zero_f64 = 0;
    const bool f64 = p->type == rocblas_datatype_f64_r;
    const HIPenum type = (HIPenum)p->type;
    const int status = (int)rocblas.gemm_strided_batched_ex(
        handle, (HIPenum)p->op[0], (HIPenum)p->op[1], p->m, p->n, p->k,
        f64 ? (const void *)&one_f64 : &one, at[0], type, p->ld[0], p->step[0], at[1], type,
        p->ld[1], p->step[1], f64 ? (const void *)&zero_f64 : &zero, at[2], type, p->ld[2],
        p->step[2], at[2], type, p->ld[2], p->step[2], p->batch, (HIPenum)p->compute,
        rocblas_gemm_algo_standard, 0, 0);
    return status == rocblas_status_perf_degraded ? 0 : status;
}

static int rocblas_fill_entry(wb__gpu_device *d, const wb__gpu_vendor *l, void *handle,
                              wb__gpu_entry *e)
{
    (void)d, (void)l, (void)handle;
    e->found = true;
    return 0;
}

#define NAME(name, parameters) {"rocblas_" #name, offsetof(wb__blas_functions, name)},
static const wb__gpu_function rocblas_functions[] = {
    WB__BLAS_FUNCTIONS(NAME)
    NAME(status_to_string, (HIPenum status))
};
#undef NAME
_Static_assert(WB__COUNT(rocblas_functions) <= WB__GPU_MAX_FUNCTIONS, "room for the functions");

static wb__gpu_vendor rocblas_library = {
    .name = "rocBLAS", .variable = "WEBER_AMDGPU_ROCBLAS",
    .advice = "install rocBLAS (Debian 13: librocblas0; Ubuntu with AMD's packages and Fedora:"
              " rocblas), or name its folder in WEBER_ROCM_PATH",
    .search = &wb__hip_search,
    .files = (const wb__gpu_file[]){{"librocblas.so.5", 7}, {"librocblas.so.4", 6},
                                    {"librocblas.so.3", 5}, {"librocblas.so.0", 5},
                                    {"librocblas.so", 0}, {NULL, 0}},
    .functions = rocblas_functions, .n_functions = WB__COUNT(rocblas_functions), .table = &rocblas,
    .suits = rocblas_is_usable, .creating = "rocblas_create_handle", .create = rocblas_new_handle,
    .destroy = rocblas_destroy_handle, .status_name = rocblas_status_name,
    .is_memory = rocblas_is_memory_error, .entry_bytes = sizeof(rocblas_entry),
    .problem_bytes = sizeof(rocblas_problem), .find = rocblas_fill_entry,
    .reasons = {"rocBLAS is not used", "rocBLAS: it does not work here",
                "rocBLAS: it does not take this product", "rocBLAS: it refused this one"},
    .lock = WB__MUTEX_INIT,
};

bool wb__hip_blas_works(void)
{
    const wb__gpu_state *s = wb__hip_driver.state;
    bool works = false;
    for (int i = 0; i < s->n && !works && wb__gpu_vendor_works(&rocblas_library); i++) {
        wb__mutex_lock(&s->device[i]->lock);
        works = has_kernels(wb__hip_of(s->device[i]));
        wb__mutex_unlock(&s->device[i]->lock);
    }
    if (works) wb_clear_error();
    return works;
}

bool wb__hip_blas_serves(wb__hip_device *d)
{
    if (wb__gpu_vendor_works(&rocblas_library) && has_kernels(d)) return true;
    wb_clear_error();
    return false;
}

/* ---- preparing ------------------------------------------------------------------------------- */

static int32_t rocblas_type_of(wb_dtype t)
{
    return t == WB_F32    ? rocblas_datatype_f32_r
           : t == WB_F64  ? rocblas_datatype_f64_r
           : t == WB_F16  ? rocblas_datatype_f16_r
           : t == WB_BF16 ? rocblas_datatype_bf16_r : 0;
}

/* Sets *p and r's operands from a step.  Returns NULL, or a short reason not to use rocBLAS. */
static const char *rocblas_problem_of(wb__hip_device *d, const wb__step *step, rocblas_problem *p,
                                      rocblas_routine *r)
{
    const wb__view *a = &step->views[0], *c = &step->views[2];
    const wb_dtype t = c->dtype;
    const int last = c->ndim - 1;
    int64_t rows[3], steps[3], batch;
    memset(p, 0, sizeof *p);
    if (wb__step_is_special(step)) return "rocBLAS: sums or operands beside the product";
    if (step->n_views > 3 || step->epilogue) return "rocBLAS: bias or epilogue";
    if (!rocblas_type_of(t) || a->dtype != t || step->views[1].dtype != t) return "rocBLAS: dtype";
    /* the matrix units of gfx90a replace subnormal numbers by 0; those of bf16 are as small as
     * those of f32, but not those of f16 */
    if (t == WB_F16 && wb__begins(d->arch, "gfx90a")) return "rocBLAS: f16 on gfx90a";
    const int64_t m = c->dims[last - 1], n = c->dims[last], k = a->dims[a->ndim - 1];
    if (!m || !n || !k) return "rocBLAS: nothing to multiply";
    for (int j = 0; j < 3; j++) {
        /* A is b, B is a */
        const int i = j == 2 ? 2 : 1 - j;
        const wb__view *v = &step->views[i];
        bool transposed = false;
        if (v->ndim != c->ndim || !wb__gpu_is_matrix(v, &transposed, &rows[i]))
            return "rocBLAS: strides";
        if (j < 2) p->op[j] = transposed ? rocblas_operation_transpose : rocblas_operation_none;
        else if (transposed) return "rocBLAS: the result is transposed";
        if (rows[i] > INT32_MAX) return "rocBLAS: too large";
        p->ld[j] = (int32_t)rows[i];
        r->buffer[j] = v->buffer;
        r->at[j] = (size_t)v->offset * wb__dtype_size(t);
    }
    if (!wb__gpu_merge_batch(step->views, steps, &batch) || !batch)
        return "rocBLAS: strides of the batch";
    if (WB__MAX(WB__MAX(m, n), WB__MAX(k, batch)) > INT32_MAX) return "rocBLAS: too large";
    if (batch > 1)
        for (int j = 0; j < 3; j++) p->step[j] = steps[j == 2 ? 2 : 1 - j];
    if (!has_kernels_or_warns(d)) return "rocBLAS: no kernels for this GPU";
    p->m = (int32_t)n, p->n = (int32_t)m, p->k = (int32_t)k, p->batch = (int32_t)batch;
    p->type = rocblas_type_of(t);
    p->compute = t == WB_F64 ? rocblas_datatype_f64_r : rocblas_datatype_f32_r;
    return NULL;
}

static int rocblas_prepare(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                           const char **reason)
{
    rocblas_problem p;
    rocblas_routine made = {.base = {.library = &wb__hip_blas, .impl = "rocBLAS"}};
    int error = WB_ERROR_UNSUPPORTED;
    *reason = rocblas_problem_of(wb__hip_of(d), step, &p, &made);
    if (*reason) return error;
    made.entry = (rocblas_entry *)wb__gpu_entry_of(d, &rocblas_library, &p, reason, &error);
    if (!made.entry) return error;
    made.base.workspace = WORKSPACE;
    made.handle = wb__gpu_vendor_handle(d, &rocblas_library);
    return wb__gpu_keep_routine(&made.base, sizeof made, &made.entry->base, r);
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Enqueues the product.  Its workspace is that of the plan, so that rocBLAS allocates nothing. */
static int rocblas_launch(wb__gpu_device *d, wb__gpu_routine *base, wb__gpu_queue q,
                          const wb__gpu_addresses *addresses)
{
    rocblas_routine *r = (rocblas_routine *)base;
    const char *call = "rocblas_set_stream";
    void *at[3], *lent = (void *)(uintptr_t)(addresses->workspace + addresses->workspace_at);
    for (int j = 0; j < 3; j++)
        at[j] = (void *)(uintptr_t)(addresses->address[r->buffer[j]] + r->at[j]);
    int status = (int)rocblas.set_stream(r->handle, wb__hip_of(d)->stream[q]);
    if (!status) {
        call = "rocblas_set_workspace";
        status = (int)rocblas.set_workspace(r->handle, lent, WORKSPACE);
    }
    if (!status) {
        call = "rocblas_gemm_strided_batched_ex";
        status = rocblas_multiply(&r->entry->problem, r->handle, at);
    }
    if (status) return wb__gpu_refuse_entry(d, &rocblas_library, &r->entry->base, status, call);
    if (q == WB__GPU_COMPUTE) wb__gpu_count_command(d, NULL);
    return 0;
}

const wb__gpu_hook wb__hip_blas = {
    .kinds = 1u << WB__STEP_MATMUL, .bare = true, .vendor = &rocblas_library,
    .prepare = rocblas_prepare, .launch = rocblas_launch,
};
