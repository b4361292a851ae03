/* Large matrix products by CLBlast, if it is installed.  CLBlast is loaded at run time.  CLBlast
 * itself opens the default OpenCL driver, so it is not used if WEBER_OPENCL_LIBRARY names another
 * driver.  Small products, and all products on a CPU, use our own kernels.
 *
 *   WEBER_OPENCL_CLBLAST   0: never; 1: also for small products and on CPUs */
#include "backend/opencl/opencl.h"
#include "base/environment.h"

#include <stdio.h>

enum { ROW_MAJOR = 101, NOT_TRANSPOSED = 111, TRANSPOSED = 112 };

/* With fewer multiplications than 256 x 256 x 256, CLBlast is not faster. */
static const int64_t clblast_min_work = (int64_t)1 << 24;

#define SIDES(T)                                                                                   \
    (int layout, int a_transposed, int b_transposed, size_t m, size_t n, size_t k, T alpha,        \
     cl_mem a, size_t a_at, size_t a_row, cl_mem b, size_t b_at, size_t b_row, T beta, cl_mem c,   \
     size_t c_at, size_t c_row, cl_command_queue *queue, cl_event *event)
#define BATCHED(T)                                                                                 \
    (int layout, int a_transposed, int b_transposed, size_t m, size_t n, size_t k, T alpha,        \
     cl_mem a, size_t a_at, size_t a_row, size_t a_step, cl_mem b, size_t b_at, size_t b_row,      \
     size_t b_step, T beta, cl_mem c, size_t c_at, size_t c_row, size_t c_step, size_t batch,      \
     cl_command_queue *queue, cl_event *event)

#define CLBLAST_FUNCTIONS(X)                                                                       \
    X(int, Sgemm, SIDES(float)) X(int, Dgemm, SIDES(double))                                       \
    X(int, SgemmStridedBatched, BATCHED(float)) X(int, DgemmStridedBatched, BATCHED(double))       \
    X(int, ClearCache, (void))

#define FIELD(type, name, parameters) type (*name) parameters;
typedef struct { CLBLAST_FUNCTIONS(FIELD) } clblast_functions;
#undef FIELD
#define NAME(type, name, parameters) {"CLBlast" #name, offsetof(clblast_functions, name)},
static const wb__gpu_function clblast_names[] = {CLBLAST_FUNCTIONS(NAME)};
#undef NAME
static clblast_functions clblast;

/* A product prepared for CLBlast. */
typedef struct {
    wb__gpu_routine base;
    wb_dtype dtype;
    int view[3];                            /* buffer indices of a, b, c */
    bool transposed[2];
    size_t m, n, k, at[3];              /* sizes; offsets of a, b and c, in elements */
    int64_t batch, row[3], step[3];         /* row, step: distances of rows and of matrices */
} clblast_product;

/* ---- opening --------------------------------------------------------------------------------- */

static bool clblast_used;       /* whether CLBlast's caches contain objects of our contexts */

static bool clblast_is_usable(const void *table, const char *missing, char *reason, size_t capacity)
{
    (void)table;
    if (missing) snprintf(reason, capacity, "libclblast.so.1 has no %s", missing);
    return !missing;
}

static wb__gpu_vendor clblast_library = {
    .name = "CLBlast", .advice = "install CLBlast 1.5 or newer (Debian: libclblast1)",
    .search = &(const wb__gpu_search){.tag = "opencl"},
    .files = (const wb__gpu_file[]){{"libclblast.so.1", 1}, {NULL, 0}}, .functions = clblast_names,
    .n_functions = WB__COUNT(clblast_names), .table = &clblast, .suits = clblast_is_usable,
    .lock = WB__MUTEX_INIT,
};

bool wb__cl_blast_works(void)
{
    if (wb__cl_usual_driver()) return wb__gpu_vendor_works(&clblast_library);
    wb__fail(WB_ERROR_UNSUPPORTED, "opencl: CLBlast is not used with a driver that"
             " WEBER_OPENCL_LIBRARY names: it opens the usual one");
    return false;
}

void wb__cl_blast_stop(void)
{
    if (clblast_used) clblast.ClearCache();
    clblast_used = false;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static const char *clblast_refusal(const wb__gpu_device *d, const wb__step *step,
                                   clblast_product *p)
{
    const wb__view *a = &step->views[0], *c = &step->views[2];
    const bool always = wb__environment_switch("WEBER_OPENCL_CLBLAST", false);
    const int last = c->ndim - 1;
    if (wb__gpu_is_off("WEBER_OPENCL_CLBLAST")) return "CLBlast: disabled";
    if (d->target.in_turn && !always) return "CLBlast: no faster on a CPU";
    if (a->dtype != WB_F32 && a->dtype != WB_F64) return "CLBlast: neither f32 nor f64";
    *p = (clblast_product){.dtype = a->dtype, .m = (size_t)c->dims[last - 1],
                           .n = (size_t)c->dims[last], .k = (size_t)a->dims[a->ndim - 1]};
    const double work = (double)p->m * (double)p->n * (double)p->k;
    if (!work) return "CLBlast: nothing to multiply";
    if (work < (double)clblast_min_work && !always) return "CLBlast: too small";
    for (int j = 0; j < 3; j++) {
        bool transposed = false;
        const wb__view *v = &step->views[j];
        if (v->ndim != c->ndim || !wb__gpu_is_matrix(v, &transposed, &p->row[j]))
            return "CLBlast: strides";
        if (j < 2) p->transposed[j] = transposed;
        else if (transposed) return "CLBlast: the result is transposed";
        p->view[j] = v->buffer;
        p->at[j] = (size_t)v->offset;
    }
    if (!wb__gpu_merge_batch(step->views, p->step, &p->batch) || !p->batch)
        return "CLBlast: strides of the batch";
    if (!wb__cl_blast_works()) {
        wb_clear_error();
        return "CLBlast: not installed";
    }
    if (step->n_views > 3 || step->epilogue) return "CLBlast: bias or epilogue";
    return NULL;
}

static int clblast_prepare(wb__gpu_device *d, const wb__step *step, wb__gpu_routine **r,
                           const char **reason)
{
    clblast_product p = {.batch = 0};
    *reason = wb__step_is_special(step) ? "CLBlast: sums or operands beside the product"
                                        : clblast_refusal(d, step, &p);
    if (*reason) return WB_ERROR_UNSUPPORTED;
    p.base = (wb__gpu_routine){.library = &wb__cl_blast, .impl = "CLBlast"};
    return wb__gpu_keep_routine(&p.base, sizeof p, NULL, r);
}

/* ---- launching ------------------------------------------------------------------------------- */

#define ONE(T) ROW_MAJOR, side[p->transposed[0]], side[p->transposed[1]], p->m, p->n, p->k, (T)1,  \
               object[0], at[0], p->row[0]

static int clblast_launch(wb__gpu_device *d, wb__gpu_routine *r, wb__gpu_queue q,
                          const wb__gpu_addresses *addresses)
{
    const clblast_product *p = (const clblast_product *)r;
    cl_command_queue *queue = &wb__cl_of(d)->queue[q];
    static const int side[2] = {NOT_TRANSPOSED, TRANSPOSED};
    const bool f32 = p->dtype == WB_F32;
    cl_mem object[3];
    size_t at[3];
    void **wanted = wb__gpu_next_event(d);
    cl_event *event = (cl_event *)wanted;
    for (int j = 0; j < 3; j++) {
        object[j] = wb__cl_object(((wb__gpu_memory *)addresses->buffers[p->view[j]])->at);
        at[j] = p->at[j];
        if (addresses->offsets) at[j] += addresses->offsets[p->view[j]] / (f32 ? 4 : 8);
    }
    clblast_used = true;
#define CLBLAST_PRODUCT(T, name)                                                                   \
    clblast.name(ONE(T), object[1], at[1], p->row[1], (T)0, object[2], at[2], p->row[2], queue,    \
                 event)
#define PRODUCTS(T, name)                                                                          \
    clblast.name(ONE(T), p->step[0], object[1], at[1], p->row[1], p->step[1], (T)0, object[2],     \
                 at[2], p->row[2], p->step[2], p->batch, queue, event)
    const int code = p->batch > 1 ? f32 ? PRODUCTS(float, SgemmStridedBatched)
                                        : PRODUCTS(double, DgemmStridedBatched)
                     : f32 ? CLBLAST_PRODUCT(float, Sgemm) : CLBLAST_PRODUCT(double, Dgemm);
    wb__gpu_call = "CLBlast";
    if (code)
        return wb__gpu_fail(&wb__cl_driver, d, code, "%zu products of %zu x %zu x %zu",
                            (size_t)p->batch, p->m, p->n, p->k);
    wb__gpu_count_command(d, wanted);
    return 0;
}

const wb__gpu_hook wb__cl_blast = {
    .kinds = 1u << WB__STEP_MATMUL, .bare = true, .prepare = clblast_prepare,
    .launch = clblast_launch,
};

