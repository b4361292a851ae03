/* A test double of cuBLASLt: plain loops in double compute each product in stream order.  See
 * vgpu.h.
 *
 * It has both matrix orders, transposes, batches, f32, f64, f16 and bf16, and epilogues.
 * Descriptors are checked as in the real library.  Wrong uses are a matrix that exceeds its block
 * of memory, an address that is aligned less than the preferences promised, and an algorithm of
 * another problem.  The workspace must be aligned to 256 bytes, and be NULL if the algorithm needs
 * none; it is filled with NaN.
 *
 *   VGPU_LT_DECLINES=n   the creation of every n-th product's descriptor fails
 *   VGPU_LT_REFUSES=n    the launch of every n-th product fails */
#include "number.h"
#include "vgpu.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef VGPU_TOOLKIT
#include <cublasLt.h>
#else
typedef int cublasStatus_t, cublasComputeType_t, cudaDataType_t, cublasLtMatrixLayoutAttribute_t,
    cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct opaque_layout *cublasLtMatrixLayout_t;
typedef struct opaque_desc *cublasLtMatmulDesc_t;
typedef struct opaque_preference *cublasLtMatmulPreference_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct { uint64_t data[8]; } cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
enum {
    CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_NOT_SUPPORTED = 15
};
#endif

enum { COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_16BF = 75, COMPUTE_TF32 = 77 };
enum { ROW_ORDER = 1 };
/* Bits of epilogues.  SUMS...: the bias gradient, sums of the result or of an operand. */
enum {
    PLAIN = 1, RELU = 2, BIAS = 4, RELU_GRAD = 8, SUMS = 16, GELU = 32, GELU_GRAD = 64, AUX = 128,
    SUMS_OF_A = 256, SUMS_OF_B = 512
};

typedef struct {
    int32_t type, order;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batch;
    int64_t step;
} layout;

typedef struct {
    int32_t compute, scale, pointers, op_a, op_b, op_c;
    uint32_t epilogue;
    uint64_t bias, aux;
    int64_t aux_ld;
} desc;

typedef struct {
    uint64_t workspace;
    uint32_t mode, reductions, align[4];
} preference;

/* One product with its addresses: the payload of a vgpu_task. */
typedef struct {
    desc d;
    layout a, b, c;
    int64_t m, n, k;
    const char *at_a, *at_b, *at_c;
    char *at_d, *workspace;
    size_t workspace_bytes;
    double alpha, beta;
} product;

struct algo {                           /* the content of a cublasLtMatmulAlgo_t */
    uint64_t magic, problem;
    uint64_t workspace;
    uint32_t align[4], index;
};
static const uint64_t magic = 0x7667707561c67373u;
_Static_assert(sizeof(struct algo) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm must fit");

static int64_t alive;                   /* handles and descriptors */
static int64_t times_run[16];           /* how often each algorithm was launched */
__attribute__((visibility("default"))) int64_t vgpu_lt_runs(int i) { return times_run[i % 16]; }

/* Counts a call; true if it is an n-th one, where n is the value of the environment variable. */
static bool is_turn(const char *variable, int64_t *calls)
{
    const char *n = getenv(variable);
    return n && atoll(n) > 0 && __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) % atoll(n) == 0;
}

/* Objects of this library that were created and not destroyed. */
VGPU_API int64_t vgpu_lt_objects(void);
VGPU_API int64_t vgpu_lt_objects(void) { return __atomic_load_n(&alive, __ATOMIC_RELAXED); }

static void *make(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) abort();
    __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
    return p;
}
static cublasStatus_t drop(void *p)
{
    if (!p) return CUBLAS_STATUS_INVALID_VALUE;
    free(p);
    __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- handles and descriptors ----------------------------------------------------------------- */

#define LT(type, name, parameters)                                                               \
    VGPU_API type cublasLt##name parameters;                                                     \
    VGPU_API type cublasLt##name parameters

LT(size_t, GetVersion, (void)) { return VGPU_MAJOR * 10000 + 100; }

LT(const char *, GetStatusName, (cublasStatus_t status))
{
    switch ((int)status) {
    case 0: return "CUBLAS_STATUS_SUCCESS";
    case 1: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3: return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7: return "CUBLAS_STATUS_INVALID_VALUE";
    case 13: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 15: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}
LT(const char *, GetStatusString, (cublasStatus_t status)) { return cublasLtGetStatusName(status); }

LT(cublasStatus_t, Create, (cublasLtHandle_t *handle))
{
    const char *driver = getenv("VGPU_DRIVER");
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    if (driver && *driver && atoi(driver) / 1000 < VGPU_MAJOR) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = make(16);
    return CUBLAS_STATUS_SUCCESS;
}
LT(cublasStatus_t, Destroy, (cublasLtHandle_t handle)) { return drop(handle); }

typedef struct {
    int attribute;
    size_t at, bytes;
} field;
#define FIELD(number, type, name) {number, offsetof(type, name), sizeof(((type *)0)->name)}

static cublasStatus_t set(void *object, const field *fields, size_t n, int attribute,
                          const void *value, size_t bytes)
{
    if (!object || !value) return CUBLAS_STATUS_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        if (fields[i].attribute != attribute) continue;
        if (fields[i].bytes != bytes) return CUBLAS_STATUS_INVALID_VALUE;
        memcpy((char *)object + fields[i].at, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    vgpu_wrong("cublasLt: this double does not know attribute %d", attribute);
    return CUBLAS_STATUS_INVALID_VALUE;
}
#define SET(fields) set((void *)object, fields, sizeof fields / sizeof *fields, (int)attribute,   \
                        value, bytes)

static const field layout_fields[] = {
    FIELD(0, layout, type), FIELD(1, layout, order), FIELD(2, layout, rows), FIELD(3, layout, cols),
    FIELD(4, layout, ld), FIELD(5, layout, batch), FIELD(6, layout, step)};
static const field desc_fields[] = {
    FIELD(0, desc, compute), FIELD(1, desc, scale), FIELD(2, desc, pointers), FIELD(3, desc, op_a),
    FIELD(4, desc, op_b), FIELD(5, desc, op_c), FIELD(7, desc, epilogue), FIELD(8, desc, bias),
    FIELD(11, desc, aux), FIELD(12, desc, aux_ld)};
static const field preference_fields[] = {
    FIELD(0, preference, mode), FIELD(1, preference, workspace), FIELD(3, preference, reductions),
    FIELD(5, preference, align[0]), FIELD(6, preference, align[1]), FIELD(7, preference, align[2]),
    FIELD(8, preference, align[3])};

LT(cublasStatus_t, MatrixLayoutCreate,
   (cublasLtMatrixLayout_t *made, cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld))
{
    if (!made) return CUBLAS_STATUS_INVALID_VALUE;
    layout *l = make(sizeof *l);
    *l = (layout){.type = (int32_t)type, .rows = rows, .cols = cols, .ld = ld, .batch = 1};
    *made = (cublasLtMatrixLayout_t)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}
LT(cublasStatus_t, MatrixLayoutDestroy, (cublasLtMatrixLayout_t l)) { return drop((void *)l); }
LT(cublasStatus_t, MatrixLayoutSetAttribute,
   (cublasLtMatrixLayout_t object, cublasLtMatrixLayoutAttribute_t attribute, const void *value,
    size_t bytes))
{
    return SET(layout_fields);
}

LT(cublasStatus_t, MatmulDescCreate,
   (cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType_t scale))
{
    static int64_t calls;
    if (!made) return CUBLAS_STATUS_INVALID_VALUE;
    if (is_turn("VGPU_LT_DECLINES", &calls)) return CUBLAS_STATUS_NOT_SUPPORTED;
    desc *d = make(sizeof *d);
    *d = (desc){.compute = (int32_t)compute, .scale = (int32_t)scale, .epilogue = PLAIN};
    *made = (cublasLtMatmulDesc_t)(void *)d;
    return CUBLAS_STATUS_SUCCESS;
}
LT(cublasStatus_t, MatmulDescDestroy, (cublasLtMatmulDesc_t d)) { return drop((void *)d); }
LT(cublasStatus_t, MatmulDescSetAttribute,
   (cublasLtMatmulDesc_t object, cublasLtMatmulDescAttributes_t attribute, const void *value,
    size_t bytes))
{
    return SET(desc_fields);
}

LT(cublasStatus_t, MatmulPreferenceCreate, (cublasLtMatmulPreference_t *made))
{
    if (!made) return CUBLAS_STATUS_INVALID_VALUE;
    preference *p = make(sizeof *p);
    *p = (preference){.reductions = 7, .align = {256, 256, 256, 256}};
    *made = (cublasLtMatmulPreference_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}
LT(cublasStatus_t, MatmulPreferenceDestroy, (cublasLtMatmulPreference_t p))
{
    return drop((void *)p);
}
LT(cublasStatus_t, MatmulPreferenceSetAttribute,
   (cublasLtMatmulPreference_t object, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *value, size_t bytes))
{
    return SET(preference_fields);
}

/* ---- problems and algorithms ----------------------------------------------------------------- */

static bool known_type(int type)
{
    return type == VGPU_F32 || type == VGPU_F64 || type == VGPU_F16 || type == VGPU_BF16;
}

/* The number of elements in memory from the first to the last one. */
static int64_t extent(const layout *l)
{
    const int64_t lines = (int64_t)(l->order == ROW_ORDER ? l->rows : l->cols);
    const int64_t length = (int64_t)(l->order == ROW_ORDER ? l->cols : l->rows);
    return (l->batch - 1) * l->step + (lines - 1) * l->ld + length;
}

static bool good_layout(const layout *l, uint64_t rows, uint64_t cols, int32_t batch)
{
    return l->rows == rows && l->cols == cols && l->batch == batch && l->step >= 0
           && l->ld >= (int64_t)(l->order == ROW_ORDER ? cols : rows);
}

static cublasStatus_t check_epilogue(const product *p)
{
    const uint32_t e = p->d.epilogue;
    static const uint32_t known[] = {
        PLAIN, RELU, BIAS, RELU | BIAS, RELU | AUX, RELU | AUX | BIAS, GELU, GELU | BIAS,
        GELU | AUX, GELU | AUX | BIAS, RELU_GRAD | AUX, RELU_GRAD | AUX | SUMS, GELU_GRAD | AUX,
        GELU_GRAD | AUX | SUMS, SUMS_OF_A, SUMS_OF_B};
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= known[i] == e;
    if (!found) return CUBLAS_STATUS_INVALID_VALUE;
    if (e & (BIAS | SUMS | SUMS_OF_A | SUMS_OF_B) && !p->d.bias) return CUBLAS_STATUS_INVALID_VALUE;
    if (!(e & AUX)) return CUBLAS_STATUS_SUCCESS;
    const int64_t unit = e & (RELU | RELU_GRAD) ? 128 : 8;
    if (!p->d.aux || p->d.aux_ld < p->m || p->d.aux_ld % unit) return CUBLAS_STATUS_INVALID_VALUE;
    if (p->d.aux % 16) return CUBLAS_STATUS_NOT_SUPPORTED;
    return p->c.batch > 1 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t read_problem(product *p, const void *d, const void *a, const void *b,
                                   const void *c, const void *out)
{
    if (!d || !a || !b || !c || !out) return CUBLAS_STATUS_INVALID_VALUE;
    memset(p, 0, sizeof *p);
    memcpy(&p->d, d, sizeof p->d);
    memcpy(&p->a, a, sizeof p->a);
    memcpy(&p->b, b, sizeof p->b);
    memcpy(&p->c, c, sizeof p->c);
    /* the double supports equal layouts of C and D only */
    if (memcmp(c, out, sizeof p->c)) return CUBLAS_STATUS_NOT_SUPPORTED;
    p->m = (int64_t)p->c.rows;
    p->n = (int64_t)p->c.cols;
    p->k = (int64_t)(p->d.op_a ? p->a.rows : p->a.cols);
    const uint64_t m = p->c.rows, n = p->c.cols, k = (uint64_t)p->k;
    if (!m || !n || !k || p->c.batch < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (!good_layout(&p->a, p->d.op_a ? k : m, p->d.op_a ? m : k, p->c.batch)
        || !good_layout(&p->b, p->d.op_b ? n : k, p->d.op_b ? k : n, p->c.batch)
        || !good_layout(&p->c, m, n, p->c.batch))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p->d.op_c || p->d.pointers || (p->c.batch > 1 && p->c.step < extent(&p->c) / p->c.batch))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const int t = p->c.type;
    if (!known_type(t) || p->a.type != t || p->b.type != t) return CUBLAS_STATUS_NOT_SUPPORTED;
    const int x = p->d.compute;
    if (t == VGPU_F64 ? x != COMPUTE_64F || p->d.scale != VGPU_F64
                      : p->d.scale != VGPU_F32
                        || (x != COMPUTE_32F && (t != VGPU_F32 || (x != COMPUTE_TF32
                                                                   && x != COMPUTE_16BF))))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return check_epilogue(p);
}

/* A hash of the problem: of everything except addresses. */
static uint64_t hash(const product *p)
{
    const int64_t all[] = {
        p->d.compute, p->d.op_a, p->d.op_b, p->d.epilogue, p->d.aux_ld, p->a.type, p->a.order,
        p->b.order, p->c.order, p->a.ld, p->b.ld, p->c.ld, p->a.step, p->b.step, p->c.step,
        p->c.batch, p->m, p->n, p->k};
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        h = (h ^ (uint64_t)all[i]) * 1099511628211u;
    return h;
}

/* VGPU_LT_TIMES=30,10,... lists the times in microseconds of the algorithms of each problem.
 * Returns that of algorithm i; negative: there are fewer. */
static double time_of(int i)
{
    const char *list = getenv("VGPU_LT_TIMES");
    if (!list || !*list) return i ? -1 : 0;
    for (; i > 0; i--) {
        if (!(list = strchr(list, ','))) return -1;
        list++;
    }
    return atof(list);
}

/* There is one algorithm for a problem, or as many as VGPU_LT_TIMES has.  If k is large and the
 * preferences permit it, it needs a workspace, as for split sums. */
LT(cublasStatus_t, MatmulAlgoGetHeuristic,
   (cublasLtHandle_t handle, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
    cublasLtMatmulPreference_t limits, int most, cublasLtMatmulHeuristicResult_t results[], int *n))
{
    product p;
    if (!handle || !limits || most < 1 || !results || !n) return CUBLAS_STATUS_INVALID_VALUE;
    *n = 0;
    const cublasStatus_t status = read_problem(&p, (void *)d, (void *)a, (void *)b, (void *)c,
                                               (void *)out);
    if (status) return status;
    preference w;
    memcpy(&w, (void *)limits, sizeof w);
    struct algo algo = {.magic = magic, .problem = hash(&p)};
    if (p.k >= 2 * p.m && w.reductions) algo.workspace = (uint64_t)(p.m * p.n * p.c.batch) * 4 + 16;
    if (algo.workspace > w.workspace) algo.workspace = 0;
    for (int i = 0; i < 4; i++) {
        if (!w.align[i] || w.align[i] < vgpu_size(p.c.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
        algo.align[i] = w.align[i] < 16 ? w.align[i] : 16;
    }
    for (; *n < most && (!*n || time_of(*n) >= 0); ++*n) {
        algo.index = (uint32_t)*n;
        memset(&results[*n], 0, sizeof *results);
        memcpy(&results[*n].algo, &algo, sizeof algo);
        results[*n].workspaceSize = algo.workspace;
        results[*n].wavesCount = 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products -------------------------------------------------------------------------------- */

static double element(const char *at, const layout *l, int op, int64_t batch, int64_t i, int64_t j)
{
    const int64_t row = op ? j : i, col = op ? i : j;
    const int64_t index = l->order == ROW_ORDER ? row * l->ld + col : col * l->ld + row;
    return vgpu_load(at, l->type, batch * l->step + index);
}

/* An element of an operand, rounded to the compute type. */
static double operand(const product *p, const char *at, const layout *l, int op, int64_t batch,
                      int64_t i, int64_t j)
{
    const double v = element(at, l, op, batch, i, j);
    return p->d.compute == COMPUTE_TF32 ? vgpu_round(v, 11, -125)
           : p->d.compute == COMPUTE_16BF ? vgpu_round(v, 8, -125) : v;
}

/* The epilogue of element [i, j], whose sum is v.  May write the auxiliary matrix. */
static double epilogue(const product *p, double v, int64_t i, int64_t j)
{
    const uint32_t e = p->d.epilogue;
    char *aux = (char *)(uintptr_t)p->d.aux;
    const int64_t at = j * p->d.aux_ld + i;
    unsigned char *bits = (unsigned char *)aux + at / 8;
    const unsigned bit = 1u << at % 8;
    if (e & BIAS) v += vgpu_load((char *)(uintptr_t)p->d.bias, p->c.type, i);
    if (e & AUX && e & RELU) *bits = (unsigned char)(v > 0 ? *bits | bit : *bits & ~bit);
    if (e & AUX && e & GELU) vgpu_store(aux, p->c.type, at, v);
    if (e & RELU) v = v > 0 || v != v ? v : 0;
    if (e & GELU) v = vgpu_gelu(v);
    if (e & RELU_GRAD) v = *bits & bit ? v : 0;
    if (e & GELU_GRAD) v *= vgpu_gelu_slope(vgpu_load(aux, p->c.type, at));
    return v;
}

static void sum_up(const product *p)
{
    const uint32_t e = p->d.epilogue;
    char *to = (char *)(uintptr_t)p->d.bias;
    const int64_t n = e & SUMS_OF_B ? p->n : p->m, over = e & SUMS ? p->n : p->k;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < over; j++)
            sum += e & SUMS ? element(p->at_d, &p->c, 0, 0, i, j)
                   : e & SUMS_OF_A ? element(p->at_a, &p->a, p->d.op_a, 0, i, j)
                                   : element(p->at_b, &p->b, p->d.op_b, 0, j, i);
        vgpu_store(to, p->c.type, i, sum);
    }
}

static void one_batch(const product *p, int64_t batch, double *a, double *b)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t l = 0; l < p->k; l++)
            a[i * p->k + l] = operand(p, p->at_a, &p->a, p->d.op_a, batch, i, l);
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t l = 0; l < p->k; l++)
            b[j * p->k + l] = operand(p, p->at_b, &p->b, p->d.op_b, batch, l, j);
    for (int64_t j = 0; j < p->n; j++) {
        for (int64_t i = 0; i < p->m; i++) {
            const int64_t at = batch * p->c.step
                               + (p->c.order == ROW_ORDER ? i * p->c.ld + j : j * p->c.ld + i);
            double v = 0;
            for (int64_t l = 0; l < p->k; l++) v += a[i * p->k + l] * b[j * p->k + l];
            v *= p->alpha;
            if (p->beta != 0) v += p->beta * vgpu_load(p->at_c, p->c.type, at);
            vgpu_store(p->at_d, p->c.type, at, epilogue(p, v, i, j));
        }
    }
}

static int run(void *payload)
{
    const product *p = payload;
    double *a = malloc((size_t)(p->m * p->k) * sizeof *a);
    double *b = malloc((size_t)(p->n * p->k) * sizeof *b);
    if (!a || !b) abort();
    if (p->workspace_bytes) vgpu_scratch(p->workspace, p->workspace_bytes);
    for (int64_t i = 0; i < p->c.batch; i++) one_batch(p, i, a, b);
    if (p->d.epilogue & (SUMS | SUMS_OF_A | SUMS_OF_B)) sum_up(p);
    free(a);
    free(b);
    return 0;
}

/* True if these bytes are within one block and the address is aligned; else a wrong use. */
static bool reaches(const char *what, const void *at, int64_t bytes, uint32_t align)
{
    const uint64_t address = (uint64_t)(uintptr_t)at;
    const size_t span = vgpu_span(address);
    if (span >= (size_t)bytes && address % align == 0) return true;
    vgpu_wrong("cublasLtMatmul: %s at %#llx: of %lld bytes %zu are there; to be aligned to %u",
               what, (unsigned long long)address, (long long)bytes, span, align);
    return false;
}

static bool is_null(const char *what, const void *at)
{
    if (!at) return true;
    vgpu_wrong("cublasLtMatmul: %s at %p, where none is needed", what, at);
    return false;
}

static bool check_addresses(const product *p, const struct algo *algo)
{
    const int64_t each = (int64_t)vgpu_size(p->c.type);
    const uint32_t e = p->d.epilogue;
    const int64_t aux_bits = e & (RELU | RELU_GRAD) ? 1 : 8 * each;
    return reaches("A", p->at_a, extent(&p->a) * each, algo->align[0])
           && reaches("B", p->at_b, extent(&p->b) * each, algo->align[1])
           && reaches("D", p->at_d, extent(&p->c) * each, algo->align[3])
           && (p->beta == 0 || reaches("C", p->at_c, extent(&p->c) * each, algo->align[2]))
           && (!(e & AUX) || reaches("the auxiliary matrix", (void *)(uintptr_t)p->d.aux,
                                     ((p->n - 1) * p->d.aux_ld + p->m) * aux_bits / 8, 16))
           && (!(e & (BIAS | SUMS | SUMS_OF_A | SUMS_OF_B))
               || reaches("the bias", (void *)(uintptr_t)p->d.bias,
                          (e & SUMS_OF_B ? p->n : p->m) * each, (uint32_t)each))
           && (algo->workspace
                   ? reaches("the workspace", p->workspace, (int64_t)algo->workspace, 256)
                   : is_null("the workspace", p->workspace));
}

LT(cublasStatus_t, Matmul,
   (cublasLtHandle_t handle, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
    cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
    const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *out,
    cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t *chosen, void *workspace,
    size_t workspace_bytes, cudaStream_t stream))
{
    /* NOT_SUPPORTED, INVALID_VALUE, ALLOC_FAILED, EXECUTION_FAILED */
    static const cublasStatus_t refusals[] = {15, 7, 3, 13};
    static int64_t calls, refused;
    product p;
    struct algo algo;
    if (!handle || !alpha || !beta || !chosen) return CUBLAS_STATUS_INVALID_VALUE;
    if (is_turn("VGPU_LT_REFUSES", &calls))
        return refusals[__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED) % 4];
    const cublasStatus_t status = read_problem(&p, (void *)d, (void *)a_layout, (void *)b_layout,
                                               (void *)c_layout, (void *)out_layout);
    if (status) {
        vgpu_wrong("cublasLtMatmul: status %d", (int)status);
        return status;
    }
    memcpy(&algo, chosen, sizeof algo);
    if (algo.magic != magic || algo.problem != hash(&p) || workspace_bytes < algo.workspace) {
        vgpu_wrong("cublasLtMatmul: the algorithm is another problem's, or its workspace is"
                   " too small");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    p.at_a = a;
    p.at_b = b;
    p.at_c = c;
    p.at_d = out;
    p.alpha = vgpu_load(alpha, p.d.scale, 0);
    p.beta = vgpu_load(beta, p.d.scale, 0);
    p.workspace = workspace;
    p.workspace_bytes = algo.workspace;
    if (!check_addresses(&p, &algo)) return CUBLAS_STATUS_INVALID_VALUE;
    const int e = vgpu_enqueue((struct CUstream_st *)stream, "cublasLtMatmul", run, &p, sizeof p);
    vgpu_spend((struct CUstream_st *)stream, time_of((int)algo.index));
    __atomic_add_fetch(&times_run[algo.index % 16], 1, __ATOMIC_RELAXED);
    return e ? (cublasStatus_t)13 : CUBLAS_STATUS_SUCCESS;
}
