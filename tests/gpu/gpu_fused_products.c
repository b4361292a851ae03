/* Kernel texts of fused programs with matrix products, compared with sums in f64.  The elements are
 * small integers, so that results are exact in every order of the sums. */
#include "test.h"

#include "gpu_fused.h"

/* ---- a program ------------------------------------------------------------------------------- */

/* Products of [batch, m, k] and [batch or 1, k, n].  b is read in `windows` windows of n columns.
 * k_inner: k is the innermost dimension of a, and of b; shift: elements before the first. */
typedef struct {
    wb_dtype dtype;
    int64_t batch, m, n, k;
    bool k_inner[2], shared_b;
    int windows, shift;
} shape;

enum { BATCH, ROW, COLUMN, K, DIMS };

typedef struct {
    wb__instr instr[64];
    wb__view views[64];
    wb__space space;
    wb__fused f;
    void *data[64];                     /* of each buffer */
    size_t bytes[64];
    int n_buffers;
} built;

static int add_instr(built *b, wb__instr in)
{
    b->instr[b->f.n_instr] = in;
    return b->f.n_instr++;
}

/* Adds a view with these strides, in a buffer of its own or in the buffer `shared`. */
static int operand_in(built *b, wb_dtype t, int ndim, const int64_t *dims, const int64_t *strides,
                    int64_t offset, int64_t elements, int shared)
{
    wb__view v = {.dtype = t, .buffer = shared < 0 ? b->n_buffers : shared, .ndim = ndim,
                  .offset = offset};
    memcpy(v.dims, dims, (size_t)ndim * sizeof *dims);
    memcpy(v.strides, strides, (size_t)ndim * sizeof *strides);
    b->views[b->f.n_views] = v;
    if (shared < 0) {
        const int i = b->n_buffers++;
        b->bytes[i] = (size_t)elements * wb__dtype_size(t);
        b->data[i] = calloc(b->bytes[i] + 1, 1);
        for (int64_t j = 0; j < elements; j++) {
            const double x = (double)below(9) - 4;
            wb__convert((char *)b->data[i] + (size_t)j * wb__dtype_size(t), t, &x, WB_F64, 1);
        }
    }
    return b->f.n_views++;
}

static wb__instr plain(wb__instr_kind kind, wb_dtype t)
{
    return (wb__instr){.kind = (uint8_t)kind, .reg = (uint8_t)reg_of(t), .dtype = (uint8_t)t,
                       .level = WB__LEVEL_FULL, .a = -1, .b = -1, .c = -1, .arg = -1};
}

static int store_of(built *b, int a, const shape *s)
{
    const wb_dtype t = s->dtype == WB_F64 ? WB_F64 : WB_F32;
    const int64_t dims[] = {s->batch, s->m, s->n}, strides[] = {s->m * s->n, s->n, 1};
    wb__instr in = plain(WB__STORE, t);
    in.a = a;
    in.arg = operand_in(b, t, 3, dims, strides, 0, s->batch * s->m * s->n, -1);
    return b->instr[add_instr(b, in)].arg;
}

/* Fills b with the program.  out[w]: the view that has product number w; out[windows]: that which
 * has x plus the products. */
static void build(built *b, const shape *s, int *out)
{
    memset(b, 0, sizeof *b);
    b->space = (wb__space){.ndim = 3, .row_dims = 2, .col_dims = 1, .dims = {s->batch, s->m, s->n}};
    b->f = (wb__fused){.n_segments = 1, .instr = b->instr, .views = b->views, .spaces = &b->space};
    const int64_t dims[DIMS] = {s->batch, s->m, s->n, s->k}, all = s->n * s->windows;
    const int64_t a[DIMS] = {s->m * s->k, s->k_inner[0] ? s->k : 1, 0, s->k_inner[0] ? 1 : s->m};
    const int64_t c[DIMS] = {s->shared_b ? 0 : all * s->k, 0, s->k_inner[1] ? s->k : 1,
                             s->k_inner[1] ? 1 : all};
    const int64_t x[] = {s->m * s->n, s->n, 1};
    wb__instr load = plain(WB__LOAD, s->dtype);
    load.arg = operand_in(b, s->dtype, 3, dims, x, 0, s->batch * s->m * s->n, -1);
    int sum = add_instr(b, load), buffer_a = -1, buffer_b = -1;
    for (int w = 0; w < s->windows; w++) {
        wb__instr in = plain(WB__PRODUCT, s->dtype);
        in.scale = s->k;
        in.arg = operand_in(b, s->dtype, DIMS, dims, a, s->shift,
                          s->batch * s->m * s->k + s->shift, buffer_a);
        in.c = operand_in(b, s->dtype, DIMS, dims, c, s->shift + w * s->n * c[COLUMN],
                        s->batch * all * s->k + s->shift, buffer_b);
        buffer_a = b->views[in.arg].buffer;
        buffer_b = b->views[in.c].buffer;
        const int product = add_instr(b, in);
        wb__instr both = plain(WB__ELEMENTWISE_OP, s->dtype);
        both.op = WB__OP_add;
        both.a = sum;
        both.b = product;
        out[w] = store_of(b, product, s);
        sum = add_instr(b, both);
    }
    out[s->windows] = store_of(b, sum, s);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static double at(const built *b, int view, const int64_t *index)
{
    const wb__view *v = &b->views[view];
    int64_t place = v->offset;
    double x;
    for (int d = 0; d < v->ndim; d++) place += index[d] * v->strides[d];
    wb__convert(&x, WB_F64, (char *)b->data[v->buffer] + (size_t)place * wb__dtype_size(v->dtype),
                v->dtype, 1);
    return x;
}

static void check_element(const built *b, const shape *s, const int *out, int64_t *i)
{
    double sum = at(b, 0, i);
    for (int w = 0, n = 0; w <= s->windows; w++) {
        double want = 0;
        while (w < s->windows && b->instr[n].kind != WB__PRODUCT) n++;
        for (i[K] = 0; w < s->windows && i[K] < s->k; i[K]++)
            want += at(b, b->instr[n].arg, i) * at(b, b->instr[n].c, i);
        n++;
        sum += want;
        if (w == s->windows) want = sum;
        const double got = at(b, out[w], i);
        if (got != want)
            fail_msg("%s, %lld of [%lld,%lld,%lld] (inner: %d, %d; shift %d%s), %d of %d, element "
                     "%lld, %lld, %lld: %g, not %g", wb_dtype_name(s->dtype), (long long)s->batch,
                     (long long)s->m, (long long)s->n, (long long)s->k, s->k_inner[0],
                     s->k_inner[1], s->shift, way_name(), w, s->windows, (long long)i[BATCH],
                     (long long)i[ROW], (long long)i[COLUMN], got, want);
    }
}

static void check_shape(const shape *s)
{
    static built b;
    int out[16];
    int64_t i[DIMS];
    if (s->dtype == WB_F64 && !gpu->has_dtype(gpu_device, WB_F64)) return;
    build(&b, s, out);
    for (int way = 0; way < WAYS; way++) {
        go_way(way, 37);
        run_on(gpu, gpu_device, &b.f, b.n_buffers, b.data, b.bytes, NULL);
        for (i[BATCH] = 0; i[BATCH] < s->batch; i[BATCH]++)
            for (i[ROW] = 0; i[ROW] < s->m; i[ROW]++)
                for (i[COLUMN] = 0; i[COLUMN] < s->n; i[COLUMN]++) check_element(&b, s, out, i);
        for (int w = 0; w <= s->windows; w++)
            memset(b.data[b.views[out[w]].buffer], 0x55, b.bytes[b.views[out[w]].buffer]);
    }
    for (int n = 0; n < b.n_buffers; n++) free(b.data[n]);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Steps of recurrent layers: gates forward, the state's gradient backward, and one row. */
TEST(recurrent_steps)
{
    if (no_device()) skip();
    static const wb_dtype types[] = {WB_F32, WB_F64, WB_F16, WB_BF16};
    for (int t = 0; t < 4; t++)
        for (int rows = 1; rows <= 32; rows += 31) {
            check_shape(&(shape){types[t], 1, rows, 48, 64, {true, true}, true, 4, 0});
            check_shape(&(shape){types[t], 1, rows, 48, 256, {true, false}, true, 1, 0});
        }
}

/* Odd sizes, addresses that no vector suits, both orders of the operands, batches. */
TEST(shapes)
{
    if (no_device()) skip();
    static const wb_dtype types[] = {WB_F32, WB_F64, WB_F16, WB_BF16};
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 9, 16, 24, 33};
    static const int64_t sums[] = {1, 2, 3, 6, 8, 12, 40, 64, 136, 200, 1024};
    for (int n = 0; n < 24; n++) {
        shape s = {.dtype = types[n % 4], .batch = chance(30) ? 1 + below(5) : 1,
                   .m = sizes[below(10)], .n = sizes[below(10)], .k = sums[below(11)],
                   .k_inner = {chance(70), chance(50)}, .shared_b = chance(50),
                   .windows = 1 + (int)below(8), .shift = chance(30) ? 1 + (int)below(7) : 0};
        if (s.k > 200) s.n = 1 + below(9);
        check_shape(&s);
    }
}

/* A reduction in the program is refused, not computed wrongly. */
TEST(no_reductions)
{
    if (no_device()) skip();
    static built b;
    int out[16];
    build(&b, &(shape){WB_F32, 1, 4, 4, 4, {true, true}, true, 1, 0}, out);
    wb__instr sum = plain(WB__REDUCE_ALL, WB_F32);
    sum.op = WB__OP_sum;
    sum.a = 1;
    const int64_t one[] = {1, 1, 1}, none[] = {0, 0, 0};
    sum.arg = operand_in(&b, WB_F32, 3, one, none, 0, 1, -1);
    add_instr(&b, sum);
    const wb__step step = {.kind = WB__STEP_FUSED, .fused = b.f};
    wb__kernel *k = NULL;
    assert_int_equal(gpu->prepare(gpu_device, &step, &k), WB_ERROR_UNSUPPORTED);
    wb_clear_error();
    for (int n = 0; n < b.n_buffers; n++) free(b.data[n]);
}

int main(void) { return run_cases(open_device, close_device); }
