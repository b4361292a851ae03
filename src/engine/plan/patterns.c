/* What the kernel of a library operation makes beside the operation itself.
 *
 * Everywhere: the bias of a product, and a unary row of ops.def behind it.  Where the backend accepts
 * them (its `supports`; matrix products without batch dimensions):
 *   - a row whose operand others read (gelu, whose gradient is in the plan too), with the operand
 *     left beside the result, for relu its signs;
 *   - that gradient, in the product which makes its factor;
 *   - sums of rows, of the product itself or of an operand: the gradient of a layer's bias is dy
 *     summed over its rows, over which the product of its weight's gradient, dyT * x, walks anyway.
 *
 * Everything is matched here, once, by the tables at the end of this file; the stages behind this
 * one only read the result. */
#include "engine/plan/stages.h"

#include <string.h>

/* What is known of a value while patterns are looked for. */
typedef struct {
    bool deferred;          /* it waits for its first reader that may not wait itself */
    int ready_at;           /* of a value that is not deferred: itself, or the reader that it waited for */
    int first_reader;       /* perhaps through views */
    bool read_elementwise;  /* an elementwise operation or a reduction reads it */
    bool wants_bits;        /* of a relu: a gradient reads nothing of it but its signs */
} fact;

typedef struct {
    const wb__attempt *attempt;
    const wb__values *values;
    wb__patterns *out;
    fact *of;
} finder;

static const wb__value *value(const finder *f, int x) { return wb__value_at(f->values, x); }
static int input(const finder *f, const wb__value *v, int i) { return wb__input(f->values, v, i); }
static int base_of(const finder *f, int x) { return f->values->base[x]; }

/* The product that makes x as its last value so far; NULL if none does. */
static wb__product *made_by(const finder *f, int x)
{
    const int p = f->out->of[x].product;
    return p >= 0 && f->out->product[p].result == x ? &f->out->product[p] : NULL;
}

/* The value at which x's memory is complete; -1: before all others. */
static int ready_at(const finder *f, int x)
{
    const int base = base_of(f, x), p = f->out->of[base].product;
    if (value(f, base)->op == WB__OP_constant) return -1;
    return p >= 0 ? f->out->product[p].made_at : f->of[base].ready_at;
}

/* x is part of product p, which is now as `with`. */
static void set(finder *f, wb__product *p, const wb__product *with, int x)
{
    *p = *with;
    f->out->of[x].product = (int)(p - f->out->product);
}

/* ---- asking the backend ---------------------------------------------------------------------- */

static wb__view operand(const finder *f, const wb__value *product, int i)
{
    return wb__matrix_view(f->values->view[input(f, product, i)], f->values->ir.attrs[product->attr + i], product);
}

/* Does the backend do all of this, for a matrix product, in one step? */
static bool taken(const finder *f, const wb__product *p)
{
    const wb__value *v = value(f, p->value);
    if (!f->attempt->device->backend->supports || v->op != WB__OP_matmul || v->ndim != 2 ||
        !v->size)
        return false;
    wb__step s = wb__step_blank(f->attempt, WB__STEP_MATMUL);
    s.n_views = 3;
    s.epilogue = p->epilogue;
    s.aux_kind = p->aux_kind;
    for (int i = 0; i < 2; i++) s.views[i] = operand(f, v, i);
    wb__contiguous(v, &s.views[2]);
    const wb__view row = {.dtype = (wb_dtype)v->dtype, .buffer = -1, .ndim = 1,
                          .dims = {v->dims[1]}, .strides = {1}};
    if (p->bias >= 0) s.views[s.n_views++] = row;
    if (p->aux_kind == WB__AUX_OPERAND || p->aux_kind == WB__AUX_FACTOR) s.aux = s.views[2];
    if (p->aux_kind == WB__AUX_SIGNS || p->aux_kind == WB__AUX_MASK) {
        const wb__value bits = {.dtype = WB_U8, .ndim = 2,
                                .dims = {v->dims[0], wb__relu_bytes(v->dims[1])}};
        wb__contiguous(&bits, &s.aux);
    }
    if (p->sums >= 0) {
        s.sums_of = p->sums_of;
        s.sums = row;
        s.sums.dtype = (wb_dtype)value(f, p->sums)->dtype;
        s.sums.dims[0] = value(f, p->sums)->size;
    }
    return wb__taken(f->attempt, &s);
}

/* ---- bias ------------------------------------------------------------------------------------ */

/* The product behind which x, of its shape, may add a bias or be the epilogue: it makes x's operand
 * i and has neither an epilogue nor sums yet. */
static wb__product *before(const finder *f, const wb__value *x, int i)
{
    wb__product *p = made_by(f, input(f, x, i));
    if (!p) return NULL;
    const wb__value *v = value(f, p->value);
    if (!wb__has_epilogue(&wb__ops[v->op]) || p->epilogue || p->sums >= 0) return NULL;
    return v->size == x->size && v->ndim == x->ndim ? p : NULL;
}

/* The vector that a product adds to its result: a number for each column (or channel), in memory,
 * side by side. */
static bool is_bias(const finder *f, int x, const wb__product *p)
{
    const wb__value *b = value(f, x), *v = value(f, p->value);
    const int channel = v->op == WB__OP_matmul ? v->ndim - 1 : 1;
    const int from_end = v->ndim - channel, base = base_of(f, x);
    if (b->ndim < from_end || b->dtype != v->dtype || b->size != v->dims[channel]) return false;
    if (b->dims[b->ndim - from_end] != b->size || wb__is_free_source(f->values, base)) return false;
    if (f->of[base].deferred) return false;
    return b->size == 1 || f->values->view[x].strides[b->ndim - from_end] == 1;
}

static bool match_bias(finder *f, int x)
{
    const wb__value *v = value(f, x);
    if (v->op != WB__OP_add) return false;
    for (int i = 0; i < 2; i++) {
        wb__product *p = before(f, v, i);
        if (!p || p->bias >= 0 || value(f, p->result)->uses != 1) continue;
        wb__product with = *p;
        with.bias = input(f, v, !i);
        with.result = x;
        if (!is_bias(f, with.bias, p)) continue;
        if (ready_at(f, with.bias) > p->value) with.made_at = x;     /* the only reader */
        set(f, p, &with, x);
        return true;
    }
    return false;
}

/* ---- activation ------------------------------------------------------------------------------ */

/* Whether a row pays behind a product where a library may need another pass for it: relu always,
 * others not over thin rows (of the last axis: behind a convolution, the image's), and only tanh and
 * sigmoid, which libraries have, where that pass would join other elementwise work. */
static bool pays(const finder *f, int x)
{
    const wb__value *v = value(f, x);
    if (v->op == WB__OP_relu) return true;
    if (v->dims[v->ndim - 1] < 16) return false;
    return v->op == WB__OP_tanh || v->op == WB__OP_sigmoid || !f->of[x].read_elementwise;
}

/* A unary row; where others read its operand, that is left beside the result, or its signs where
 * they are enough. */
static bool match_activation(finder *f, int x)
{
    const wb__value *v = value(f, x);
    if (!wb__is_epilogue(&wb__ops[v->op])) return false;
    wb__product *p = before(f, v, 0);
    if (!p) return false;
    wb__product with = *p;
    with.epilogue = (wb__op)v->op;
    with.result = x;
    if (value(f, p->result)->uses != 1) {
        with.aux_kind = WB__AUX_OPERAND;
        with.aux = p->result;
        if (!taken(f, &with)) return false;
    } else if (f->of[x].wants_bits) {
        with.aux_kind = WB__AUX_SIGNS;
        if (taken(f, &with)) with.bits = (int)(p - f->out->product);
        else with.aux_kind = WB__AUX_NONE;
    }
    if (!with.aux_kind && !pays(f, x) && !taken(f, &with)) return false;
    set(f, p, &with, x);
    return true;
}

/* ---- the gradient of an activation ----------------------------------------------------------- */

/* x = product * factor(of), or 0 where the factor is false: an epilogue of the product. */
typedef struct {
    wb__aux kind;
    int product, factor, of;
} slope;

static bool alike(const wb__value *p, const wb__value *q)
{
    return p->dtype == q->dtype && p->ndim == q->ndim &&
           !memcmp(p->dims, q->dims, p->ndim * sizeof p->dims[0]);
}

/* A product that nothing else reads. */
static bool is_own(const finder *f, int p)
{
    const wb__value *v = value(f, p);
    return v->op == WB__OP_matmul && v->ndim == 2 && v->uses == 1;
}

static bool is_zero(const finder *f, int x)
{
    const wb__value *v = value(f, x);
    return v->op == WB__OP_literal && v->fixed && v->value == 0;
}

/* x = product * gelu'(z) */
static bool is_gelu_slope(const finder *f, const wb__value *x, slope *s)
{
    for (int i = 0; x->op == WB__OP_mul && i < 2; i++) {
        *s = (slope){WB__AUX_FACTOR, input(f, x, i), input(f, x, !i), -1};
        const wb__value *factor = value(f, s->factor);
        if (factor->op != WB__OP_gelu_slope || !is_own(f, s->product)) continue;
        s->of = input(f, factor, 0);
        if (alike(x, factor) && alike(x, value(f, s->product)) && alike(x, value(f, s->of)))
            return true;
    }
    return false;
}

/* x = where(y > 0, product, 0), y a relu */
static bool is_relu_slope(const finder *f, const wb__value *x, slope *s)
{
    if (x->op != WB__OP_where || !is_zero(f, input(f, x, 2))) return false;
    *s = (slope){WB__AUX_MASK, input(f, x, 1), input(f, x, 0), -1};
    const wb__value *above = value(f, s->factor);
    if (above->op != WB__OP_gt || !is_zero(f, input(f, above, 1)) || !is_own(f, s->product))
        return false;
    s->of = input(f, above, 0);
    const wb__value *y = value(f, s->of);
    return y->op == WB__OP_relu && alike(x, y) && alike(x, value(f, s->product));
}

static bool find_slope(const finder *f, int x, slope *s)
{
    const wb__value *v = value(f, x);
    if (v->op != WB__OP_mul && v->op != WB__OP_where) return false;
    return is_gelu_slope(f, v, s) || is_relu_slope(f, v, s);
}

static wb__product with_slope(const wb__product *p, const slope *s)
{
    wb__product with = *p;
    with.aux_kind = s->kind;
    with.epilogue = s->kind == WB__AUX_FACTOR ? WB__OP_gelu_slope : WB__OP_relu;
    return with;
}

/* The activation is behind an earlier product, which leaves what the gradient reads. */
static bool match_gradient(finder *f, int x)
{
    slope s;
    if (!f->attempt->device->backend->supports || !find_slope(f, x, &s)) return false;
    const int p = f->out->of[s.product].product, from = f->out->of[s.of].product;
    if (from < 0) return false;
    const wb__product *earlier = &f->out->product[from];
    if (earlier->made_at >= f->out->product[p].made_at) return false;
    wb__product with = with_slope(&f->out->product[p], &s);
    with.result = x;
    if (s.kind == WB__AUX_FACTOR) {
        if (earlier->aux_kind != WB__AUX_OPERAND || earlier->aux != s.of) return false;
        with.aux = s.of;
    } else {
        if (earlier->aux_kind != WB__AUX_SIGNS || earlier->result != s.of) return false;
        with.bits = earlier->bits;
    }
    if (!taken(f, &with)) return false;
    set(f, &f->out->product[p], &with, x);
    return true;
}

/* Before anything is matched: a factor that gradients alone read, each of which the backend would
 * accept, is not matched itself, and a relu below it leaves its signs. */
static bool find_factors(finder *f)
{
    const int n = f->values->ir.n;
    slope s;
    int *readers = wb__alloc_zero((size_t)n + 1, sizeof *readers);
    if (!readers) return false;
    for (int x = 0; x < n; x++) {
        if (!find_slope(f, x, &s)) continue;
        const wb__product alone = {.value = s.product, .bias = -1, .sums = -1};
        const wb__product with = with_slope(&alone, &s);
        if (taken(f, &with)) readers[s.factor]++;
    }
    for (int x = 0; x < n; x++) {
        const wb__value *v = value(f, x);
        if (!readers[x] || readers[x] != v->uses) continue;
        f->out->of[x].unused = true;
        if (v->op == WB__OP_gt) f->of[input(f, v, 0)].wants_bits = true;
    }
    wb__free(readers);
    return true;
}

/* Afterwards: a factor is unused only where all its readers were matched. */
static void keep_read_factors(finder *f)
{
    slope s;
    for (int x = 0; x < f->values->ir.n; x++)
        if (f->out->of[x].product < 0 && find_slope(f, x, &s)) f->out->of[s.factor].unused = false;
}

/* ---- sums of rows ---------------------------------------------------------------------------- */

static bool match_sums_of_result(finder *f, int x)
{
    const wb__value *v = value(f, x);
    if (v->op != WB__OP_sum || f->values->ir.attrs[v->attr] != 1) return false;
    const int y = input(f, v, 0);
    wb__product *p = made_by(f, y);
    if (!p || p->sums >= 0) return false;
    if (v->dtype != WB_F32 && v->dtype != value(f, y)->dtype) return false;
    wb__product with = *p;
    with.sums = x;
    with.sums_of = WB__SUMS_OF_C;
    if (!taken(f, &with)) return false;
    set(f, p, &with, x);
    return true;
}

/* A matrix in memory: the places of [k, n] elements from the beginning of the base on. */
typedef struct {
    int base;
    int64_t offset, k, n, k_stride, n_stride;
} matrix;

/* Dimensions of v whose bits are set in `axes`, in the order of the layout, as one run: its length and
 * stride; false where they are none. */
static bool as_one(const wb__view *v, wb__layout layout, unsigned axes, int64_t *dim,
                   int64_t *stride)
{
    *dim = *stride = 1;
    bool any = false;
    for (int i = v->ndim - 1; i >= 0; i--) {
        const int axis = wb__layout_axis(layout, i);
        if (!(axes >> axis & 1) || v->dims[axis] == 1) continue;
        if (!any) *stride = v->strides[axis];
        else if (v->strides[axis] != *stride * *dim) return false;
        any = true;
        *dim *= v->dims[axis];
    }
    return true;
}

/* x = the sum of a matrix over its rows, which are its leading dimensions. */
static bool sums_rows(const finder *f, int x, matrix *m)
{
    const wb__value *v = value(f, x);
    if (v->op != WB__OP_sum || !v->size) return false;
    const wb__value *y = value(f, input(f, v, 0));
    const unsigned rows = (unsigned)f->values->ir.attrs[v->attr];
    const wb__layout layout =
        y->layout == WB__CHANNELS_LAST ? WB__CHANNELS_LAST : WB__ROW_MAJOR;
    bool kept = false;
    for (int i = 0; i < y->ndim; i++) {
        const int axis = wb__layout_axis(layout, i);
        if (y->dims[axis] == 1) continue;
        if (rows >> axis & 1 && kept) return false;
        kept |= !(rows >> axis & 1);
    }
    if (!kept) return false;
    const wb__view *view = &f->values->view[input(f, v, 0)];
    m->base = base_of(f, input(f, v, 0));
    m->offset = view->offset;
    return as_one(view, layout, rows, &m->k, &m->k_stride) &&
           as_one(view, layout, ~rows, &m->n, &m->n_stride);
}

static bool is_matrix(const matrix *m, const wb__view *v, int k, int n)
{
    return v->offset == m->offset && v->dims[k] == m->k && v->dims[n] == m->n &&
           (m->k == 1 || v->strides[k] == m->k_stride) &&
           (m->n == 1 || v->strides[n] == m->n_stride);
}

/* Whether the product's a or b is the matrix, k being what the product sums over. */
static wb__sums operand_is(const finder *f, const wb__value *product, const matrix *m)
{
    const int i = product->ndim - 2, j = product->ndim - 1;
    const bool a = base_of(f, input(f, product, 0)) == m->base;
    if (!a && base_of(f, input(f, product, 1)) != m->base) return WB__SUMS_NONE;
    for (int batch = 0; batch < i; batch++)
        if (product->dims[batch] != 1) return WB__SUMS_NONE;
    wb__view v;
    if (a) {
        v = operand(f, product, 0);
        if (is_matrix(m, &v, j, i)) return WB__SUMS_OF_A;
    }
    if (base_of(f, input(f, product, 1)) != m->base) return WB__SUMS_NONE;
    v = operand(f, product, 1);
    return is_matrix(m, &v, i, j) ? WB__SUMS_OF_B : WB__SUMS_NONE;
}

/* Beside the first product that reads the matrix and whose sums the backend takes, if that product is
 * before the first reader of the sum. */
static bool match_sums_of_operand(finder *f, int x)
{
    matrix m;
    if (!sums_rows(f, x, &m)) return false;
    for (int i = 0; i < f->out->n; i++) {
        wb__product with = f->out->product[i];
        const wb__value *v = value(f, with.value);
        if (v->op != WB__OP_matmul || with.sums >= 0) continue;
        if (with.made_at >= f->of[x].first_reader) continue;
        with.sums = x;
        with.sums_of = operand_is(f, v, &m);
        if (!with.sums_of || !taken(f, &with)) continue;
        set(f, &f->out->product[i], &with, x);
        return true;
    }
    return false;
}

/* ---- what is known of values before ---------------------------------------------------------- */

static void find_readers(finder *f)
{
    const int n = f->values->ir.n;
    for (int x = 0; x < n; x++) {
        f->of[x] = (fact){.ready_at = x, .first_reader = n};
        f->out->of[x] = (wb__part){.product = -1};
    }
    for (int x = 0; x < n; x++) {
        const wb__value *v = value(f, x);
        const bool elementwise =
            wb__is_elementwise((wb__op)v->op) || wb__ops[v->op].class == WB__REDUCE;
        for (int i = 0; i < v->n_in && !wb__is_view(f->values, x); i++) {
            int y = input(f, v, i);
            fact *base = &f->of[base_of(f, y)];
            base->first_reader = WB__MIN(base->first_reader, x);
            while (elementwise && wb__looks((wb__op)value(f, y)->op)) y = input(f, value(f, y), 0);
            if (elementwise) f->of[y].read_elementwise = true;
        }
    }
}

/* Made of leaves, free sources and deferred values alone, and ending no kernel.  can_wait of groups.c
 * defers comparisons of a product's result too. */
static bool may_defer(const finder *f, int x)
{
    const wb__value *v = value(f, x);
    if (f->values->needed[x]) return false;
    if (wb__ops[v->op].class == WB__REDUCE ? !wb__reduces_columns(f->values, v)
                                           : !wb__is_elementwise((wb__op)v->op))
        return false;
    for (int i = 0; i < v->n_in; i++) {
        const int in = input(f, v, i), base = base_of(f, in);
        if (value(f, base)->op != WB__OP_constant && !wb__is_free_source(f->values, base) &&
            (!f->of[base].deferred || in != base))
            return false;
    }
    return true;
}

static void find_ready_at(finder *f, int x)
{
    const wb__value *v = value(f, x);
    if (wb__is_view(f->values, x) || f->out->of[x].product >= 0 || f->out->of[x].unused) return;
    f->of[x].deferred = may_defer(f, x);
    for (int i = 0; i < v->n_in && !f->of[x].deferred; i++) {
        fact *in = &f->of[base_of(f, input(f, v, i))];
        if (in->deferred) in->ready_at = x;
        in->deferred = false;
    }
}

/* A library operation begins a product; the further results of its step are part of it. */
static bool begin(finder *f, int x)
{
    wb__patterns *p = f->out;
    const wb__value *v = value(f, x);
    if (wb__is_beside(v->op)) {
        p->of[x].product = p->of[input(f, v, 0)].product;
        return true;
    }
    if (!wb__reserve(&p->product, &p->capacity, p->n + 1, sizeof *p->product)) return false;
    p->product[p->n] = (wb__product){
        .value = x, .made_at = x, .result = x, .bias = -1, .aux = -1, .bits = -1, .sums = -1};
    p->of[x].product = p->n++;
    return true;
}

/* ---- the tables ------------------------------------------------------------------------------ */

/* Each value is offered to the rows in turn; a row that matches has made the value part of a
 * product.  The rows of the second table see products that are complete but for their sums. */
typedef bool (*pattern)(finder *f, int x);

static const pattern behind_products[] = {match_bias, match_activation, match_gradient,
                                          match_sums_of_result};
static const pattern beside_products[] = {match_sums_of_operand};

static void match(finder *f, int x, const pattern *rows, size_t n)
{
    const wb__op op = (wb__op)value(f, x)->op;
    if (!wb__is_elementwise(op) && wb__ops[op].class != WB__REDUCE) return;
    if (f->out->of[x].product >= 0 || f->out->of[x].unused) return;
    for (size_t i = 0; i < n && !rows[i](f, x); i++) {}
}

static bool find(finder *f)
{
    const int n = f->values->ir.n;
    const bool asks = f->attempt->device->backend->supports != NULL;
    find_readers(f);
    if (asks && !find_factors(f)) return false;
    for (int x = 0; x < n; x++) {
        if (wb__ops[value(f, x)->op].class == WB__LIBRARY && !begin(f, x)) return false;
        match(f, x, behind_products, WB__COUNT(behind_products));
        find_ready_at(f, x);
    }
    if (asks) keep_read_factors(f);
    for (int x = 0; asks && x < n; x++) match(f, x, beside_products, WB__COUNT(beside_products));
    return true;
}

bool wb__patterns_find(const wb__attempt *a, const wb__values *s, wb__patterns *p)
{
    const size_t n = (size_t)s->ir.n + 1;
    finder f = {.attempt = a, .values = s, .out = p, .of = wb__alloc(n * sizeof *f.of)};
    p->of = wb__alloc(n * sizeof *p->of);
    const bool good = p->of && f.of && find(&f);
    wb__free(f.of);
    return good;
}

void wb__patterns_free(wb__patterns *p)
{
    wb__free(p->product);
    wb__free(p->of);
}
