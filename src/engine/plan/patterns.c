/* Finds the values that the kernel of a library operation computes beside the operation itself.
 * A product is a matrix product or a convolution.
 *
 * On every backend: a bias that is added to a product, and a unary operation on the product (its
 * activation).  For matrix products without batch dimensions, if `supports` of the backend accepts
 * the step:
 *   - an activation whose gradient needs the activation's operand (gelu) or the sign bits of the
 *     operand (relu): the kernel writes these, too;
 *   - the gradient of such an activation: it is fused into the product that computes the gradient
 *     of the activation's result;
 *   - the addition of another product's result, such as in the gradient of what two layers read;
 *   - sums over the rows of a product or of its operands.  For example, the gradient of a layer's
 *     bias is dy summed over its rows, and the gradient of the layer's weight, dyT * x, reads dy.
 *
 * Products that are faster in the fused kernels that read them are then chosen (products.c).
 *
 * The tables at the end of this file list the patterns.  Later stages only read the result. */
#include "engine/plan/stages.h"

#include <string.h>

/* Facts about a value that the patterns need. */
typedef struct {
    bool deferred;          /* the kernel of a later value, not known yet, computes the value;
                               ready_at is not set */
    int ready_at;       /* index of the value whose kernel computes this one: itself or a reader */
    int first_reader;       /* index of the first value that reads it, directly or through views;
                               number of values if none reads it */
    bool read_elementwise;  /* an elementwise operation or a reduction reads it */
    bool signs_suffice;     /* the value is a relu of which gradients read only the signs */
} fact;

typedef struct {
    const wb__attempt *attempt;
    const wb__values *values;
    wb__patterns *out;
    fact *of;                           /* facts about each value */
} finder;

static const wb__value *pattern_value(const finder *f, int x) { return wb__value_at(f->values, x); }
static int pattern_base_of(const finder *f, int x) { return f->values->base[x]; }

/* Returns the product whose result is x; NULL: none. */
static wb__product *product_of_result(const finder *f, int x)
{
    const int p = f->out->of[x].product;
    return p >= 0 && f->out->product[p].result == x && !pattern_value(f, x)->in_reader
               ? &f->out->product[p]
               : NULL;
}

/* Returns the index of the value at whose position, in the order of values, the kernel that
 * computes x runs; -1: x is a leaf or a view of a leaf. */
static int ready_at(const finder *f, int x)
{
    const int base = pattern_base_of(f, x), p = f->out->of[base].product;
    if (pattern_value(f, base)->op == WB__OP_constant) return -1;
    return p >= 0 ? f->out->product[p].made_at : f->of[base].ready_at;
}

/* Replaces product p by `with`, which is p with the value x fused into it. */
static void pattern_set_product(finder *f, wb__product *p, const wb__product *with, int x)
{
    *p = *with;
    f->out->of[x].product = (int)(p - f->out->product);
}

static bool have_one_type(const wb__value *p, const wb__value *q)
{
    return p->dtype == q->dtype && p->ndim == q->ndim &&
           !memcmp(p->dims, q->dims, p->ndim * sizeof p->dims[0]);
}

/* ---- asking the backend ---------------------------------------------------------------------- */

static wb__view pattern_operand_view(const finder *f, const wb__value *product, int i)
{
    return wb__matrix_view(f->values->view[wb__input(f->values, product, i)],
                           f->values->ir.attrs[product->attr + i], product);
}

/* Whether the backend accepts this matrix product, with its bias, epilogue, aux and sums, as one
 * step. */
static bool pattern_is_supported(const finder *f, const wb__product *p)
{
    const wb__value *v = pattern_value(f, p->value);
    if (v->op != WB__OP_matmul || v->ndim != 2 || !v->size) return false;
    wb__step s = wb__step_blank(f->attempt, WB__STEP_MATMUL);
    s.n_views = 3;
    s.epilogue = p->epilogue;
    s.aux_kind = p->aux_kind;
    for (int i = 0; i < 2; i++) s.views[i] = pattern_operand_view(f, v, i);
    wb__contiguous(v, &s.views[2]);
    const wb__view row = {.dtype = (wb_dtype)v->dtype, .buffer = -1, .ndim = 1,
                          .dims = {v->dims[1]}, .strides = {1}};
    if (p->bias >= 0) s.views[s.n_views++] = row;
    if (p->aux >= 0) s.aux = s.views[2];
    if (p->aux_kind == WB__AUX_SIGNS || p->aux_kind == WB__AUX_MASK) {
        const wb__value bits = {.dtype = WB_U8, .ndim = 2,
                                .dims = {v->dims[0], wb__relu_bytes(v->dims[1])}};
        wb__contiguous(&bits, &s.aux);
    }
    if (p->sums >= 0) {
        s.sums_of = p->sums_of;
        s.sums = row;
        s.sums.dtype = (wb_dtype)pattern_value(f, p->sums)->dtype;
        s.sums.dims[0] = pattern_value(f, p->sums)->size;
    }
    return wb__supported(f->attempt, &s);
}

/* Returns the product that computes operand i of x, if x can be fused into that product: the
 * product has x's shape, and no epilogue or sums yet.  Otherwise returns NULL. */
static wb__product *product_before(const finder *f, const wb__value *x, int i)
{
    wb__product *p = product_of_result(f, wb__input(f->values, x, i));
    if (!p) return NULL;
    const wb__value *v = pattern_value(f, p->value);
    if (!wb__has_epilogue(&wb__ops[v->op]) || p->epilogue || p->aux_kind || p->sums >= 0)
        return NULL;
    return v->size == x->size && v->ndim == x->ndim ? p : NULL;
}

/* Whether x can be the bias of the product: a contiguous vector in memory, with one number for each
 * column or, for a convolution, for each channel. */
static bool pattern_is_bias(const finder *f, int x, const wb__product *p)
{
    const wb__value *b = pattern_value(f, x), *v = pattern_value(f, p->value);
    const int channel = v->op == WB__OP_matmul ? v->ndim - 1 : 1;
    const int from_end = v->ndim - channel, base = pattern_base_of(f, x);
    if (b->ndim < from_end || b->dtype != v->dtype || b->size != v->dims[channel]) return false;
    if (b->dims[b->ndim - from_end] != b->size || wb__is_free_source(f->values, base)) return false;
    if (f->of[base].deferred || wb__window_of(f->values, x)) return false;
    return b->size == 1 || f->values->view[x].strides[b->ndim - from_end] == 1;
}

static bool match_bias(finder *f, int x)
{
    const wb__value *v = pattern_value(f, x);
    if (v->op != WB__OP_add) return false;
    for (int i = 0; i < 2; i++) {
        wb__product *p = product_before(f, v, i);
        if (!p || p->bias >= 0 || pattern_value(f, p->result)->uses != 1) continue;
        wb__product with = *p;
        with.bias = wb__input(f->values, v, !i);
        with.result = x;
        if (!pattern_is_bias(f, with.bias, p)) continue;
        /* a bias that is computed after the product delays the product's kernel */
        if (ready_at(f, with.bias) > p->value) with.made_at = x;
        pattern_set_product(f, p, &with, x);
        return true;
    }
    return false;
}

/* ---- the sum of two products ----------------------------------------------------------------- */

/* Whether x is the result of a library step, with memory of its own. */
static bool is_step_result(const finder *f, int x)
{
    const int p = f->out->of[x].product;
    return pattern_base_of(f, x) == x && p >= 0 && f->out->product[p].result == x &&
           !pattern_value(f, x)->in_reader;
}

/* Matches x, the sum of a product with one reader and of the result of another library step.  The
 * later of two products adds the earlier one's result. */
static bool match_addend(finder *f, int x)
{
    const wb__value *v = pattern_value(f, x);
    if (v->op != WB__OP_add || v->layout != WB__ROW_MAJOR) return false;
    for (int i = 0; i < 2; i++) {
        wb__product *p = product_before(f, v, i);
        const int y = wb__input(f->values, v, !i);
        if (!p || pattern_value(f, p->result)->uses != 1 || !is_step_result(f, y) ||
            !have_one_type(v, pattern_value(f, y)) ||
            pattern_value(f, y)->layout != WB__ROW_MAJOR || ready_at(f, y) >= p->made_at)
            continue;
        wb__product with = *p;
        with.aux_kind = WB__AUX_ADDEND;
        with.aux = y;
        with.result = x;
        if (!pattern_is_supported(f, &with)) continue;
        pattern_set_product(f, p, &with, x);
        return true;
    }
    return false;
}

/* Whether fusing the activation x into its product is faster than a separate kernel.  Fusing relu
 * always is.  Fusing another activation is slower if the last axis is shorter than 16.  If an
 * elementwise operation or a reduction reads x, fusing is faster for tanh and sigmoid only. */
static bool pays_to_fuse_activation(const finder *f, int x)
{
    const wb__value *v = pattern_value(f, x);
    if (v->op == WB__OP_relu) return true;
    if (v->dims[v->ndim - 1] < 16) return false;
    return v->op == WB__OP_tanh || v->op == WB__OP_sigmoid || !f->of[x].read_elementwise;
}

/* Matches x, a unary operation on a product.  If the product has other readers, the kernel also
 * writes the product itself.  If x is a relu and its gradients read only its signs, the kernel
 * writes the sign bits of x's operand. */
static bool match_activation(finder *f, int x)
{
    const wb__value *v = pattern_value(f, x);
    if (!wb__is_epilogue(&wb__ops[v->op])) return false;
    if (wb__is_half(v->dtype) && wb__asks_which((wb__op)v->op)) return false;
    wb__product *p = product_before(f, v, 0);
    if (!p) return false;
    wb__product with = *p;
    with.epilogue = (wb__op)v->op;
    with.result = x;
    if (pattern_value(f, p->result)->uses != 1) {
        with.aux_kind = WB__AUX_OPERAND;
        with.aux = p->result;
        if (!pattern_is_supported(f, &with)) return false;
    } else if (f->of[x].signs_suffice) {
        with.aux_kind = WB__AUX_SIGNS;
        if (pattern_is_supported(f, &with)) with.bits = (int)(p - f->out->product);
        else with.aux_kind = WB__AUX_NONE;
    }
    if (!with.aux_kind && !pays_to_fuse_activation(f, x) && !pattern_is_supported(f, &with))
        return false;
    pattern_set_product(f, p, &with, x);
    return true;
}

/* ---- the gradient of an activation ----------------------------------------------------------- */

/* The gradient x of an activation, in a form that can be the epilogue of a product:
 *   WB__AUX_FACTOR    x = product * factor, with factor = gelu'(of)
 *   WB__AUX_MASK      x = where(factor, product, 0), with factor = (of > 0)
 * The last three fields are indices of values. */
typedef struct {
    wb__aux kind;
    int product, factor, of;
} slope;

/* Whether p is a matrix product without batch dimensions and with one reader. */
static bool has_one_reader(const finder *f, int p)
{
    const wb__value *v = pattern_value(f, p);
    return v->op == WB__OP_matmul && v->ndim == 2 && v->uses == 1 && !v->in_reader;
}

static bool is_zero(const finder *f, int x)
{
    const wb__value *v = pattern_value(f, x);
    return v->op == WB__OP_literal && v->fixed && v->value == 0;
}

/* Whether x = product * gelu'(z) for a value z.  If so, fills s. */
static bool is_gelu_slope(const finder *f, const wb__value *x, slope *s)
{
    for (int i = 0; x->op == WB__OP_mul && i < 2; i++) {
        *s = (slope){WB__AUX_FACTOR, wb__input(f->values, x, i), wb__input(f->values, x, !i), -1};
        const wb__value *factor = pattern_value(f, s->factor);
        if (factor->op != WB__OP_gelu_slope || !has_one_reader(f, s->product)) continue;
        s->of = wb__input(f->values, factor, 0);
        if (have_one_type(x, factor) && have_one_type(x, pattern_value(f, s->product)) &&
            have_one_type(x, pattern_value(f, s->of)))
            return true;
    }
    return false;
}

/* Whether x = where(y > 0, product, 0), where y is a relu.  If so, fills s. */
static bool is_relu_slope(const finder *f, const wb__value *x, slope *s)
{
    if (x->op != WB__OP_where || !is_zero(f, wb__input(f->values, x, 2))) return false;
    *s = (slope){WB__AUX_MASK, wb__input(f->values, x, 1), wb__input(f->values, x, 0), -1};
    const wb__value *above = pattern_value(f, s->factor);
    if (above->op != WB__OP_gt || !is_zero(f, wb__input(f->values, above, 1)) ||
        !has_one_reader(f, s->product))
        return false;
    s->of = wb__input(f->values, above, 0);
    const wb__value *y = pattern_value(f, s->of);
    return y->op == WB__OP_relu && have_one_type(x, y) &&
           have_one_type(x, pattern_value(f, s->product));
}

/* Whether x is the gradient of an activation in one of these two forms.  If so, fills s. */
static bool find_slope(const finder *f, int x, slope *s)
{
    const wb__value *v = pattern_value(f, x);
    if (v->op != WB__OP_mul && v->op != WB__OP_where) return false;
    return is_gelu_slope(f, v, s) || is_relu_slope(f, v, s);
}

static wb__product fuse_slope(const wb__product *p, const slope *s)
{
    wb__product with = *p;
    with.aux_kind = s->kind;
    with.epilogue = s->kind == WB__AUX_FACTOR ? WB__OP_gelu_slope : WB__OP_relu;
    return with;
}

/* Matches x, the gradient of an activation, if the activation is fused into an earlier product, and
 * the kernel of that product writes what x reads: the activation's operand or the sign bits. */
static bool match_gradient(finder *f, int x)
{
    slope s;
    if (!find_slope(f, x, &s)) return false;
    const int p = f->out->of[s.product].product, from = f->out->of[s.of].product;
    if (from < 0) return false;
    const wb__product *earlier = &f->out->product[from];
    if (earlier->made_at >= f->out->product[p].made_at) return false;
    wb__product with = fuse_slope(&f->out->product[p], &s);
    with.result = x;
    if (s.kind == WB__AUX_FACTOR) {
        if (earlier->aux_kind != WB__AUX_OPERAND || earlier->aux != s.of) return false;
        with.aux = s.of;
    } else {
        if (earlier->aux_kind != WB__AUX_SIGNS || earlier->result != s.of) return false;
        with.bits = earlier->bits;
    }
    if (!pattern_is_supported(f, &with)) return false;
    pattern_set_product(f, &f->out->product[p], &with, x);
    return true;
}

/* Marks a factor (see slope), before the patterns are matched, as unused if its only readers are
 * gradients that the backend accepts as epilogues.  If such a factor is y > 0, also marks that only
 * the signs of y are read.  False: out of memory. */
static bool mark_unused_factors(finder *f)
{
    const int n = f->values->ir.n;
    slope s;
    int *readers = wb__alloc_zero((size_t)n + 1, sizeof *readers);
    if (!readers) return false;
    for (int x = 0; x < n; x++) {
        if (!find_slope(f, x, &s)) continue;
        const wb__product alone = {.value = s.product, .bias = -1, .sums = -1};
        const wb__product with = fuse_slope(&alone, &s);
        if (pattern_is_supported(f, &with)) readers[s.factor]++;
    }
    for (int x = 0; x < n; x++) {
        const wb__value *v = pattern_value(f, x);
        if (!readers[x] || readers[x] != v->uses) continue;
        f->out->of[x].unused = true;
        if (v->op == WB__OP_gt) f->of[wb__input(f->values, v, 0)].signs_suffice = true;
    }
    wb__free(readers);
    return true;
}

/* Clears `unused` of a factor, after the patterns are matched, if a gradient that reads the factor
 * was not fused into a product. */
static void keep_read_factors(finder *f)
{
    slope s;
    for (int x = 0; x < f->values->ir.n; x++)
        if (f->out->of[x].product < 0 && find_slope(f, x, &s)) f->out->of[s.factor].unused = false;
}

/* ---- sums of rows ---------------------------------------------------------------------------- */

static bool match_sums_of_result(finder *f, int x)
{
    const wb__value *v = pattern_value(f, x);
    if (v->op != WB__OP_sum || f->values->ir.attrs[v->attr] != 1) return false;
    const int y = wb__input(f->values, v, 0);
    wb__product *p = product_of_result(f, y);
    if (!p || p->sums >= 0) return false;
    if (v->dtype != WB_F32 && v->dtype != pattern_value(f, y)->dtype) return false;
    wb__product with = *p;
    with.sums = x;
    with.sums_of = WB__SUMS_OF_C;
    if (!pattern_is_supported(f, &with)) return false;
    pattern_set_product(f, p, &with, x);
    return true;
}

/* A matrix [k, n] in the memory of the value `base`.  Offset and strides are in elements. */
typedef struct {
    int base;
    int64_t offset, k, n, k_stride, n_stride;
} pattern_matrix;

/* Combines the axes of v that the bit mask `axes` selects into one dimension, in the layout's
 * order.  False: no single stride expresses this dimension. */
static bool combine_axes(const wb__view *v, wb__layout layout, unsigned axes, int64_t *dim,
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

/* Whether x is the sum of a value over the leading axes of the value, in the order of its layout.
 * If so, sets m to the value as a matrix, which x sums over the rows. */
static bool pattern_sums_rows(const finder *f, int x, pattern_matrix *m)
{
    const wb__value *v = pattern_value(f, x);
    if (v->op != WB__OP_sum || !v->size) return false;
    const wb__value *y = pattern_value(f, wb__input(f->values, v, 0));
    const unsigned rows = (unsigned)f->values->ir.attrs[v->attr];
    const wb__layout layout = y->layout == WB__CHANNELS_LAST ? WB__CHANNELS_LAST : WB__ROW_MAJOR;
    bool kept = false;
    for (int i = 0; i < y->ndim; i++) {
        const int axis = wb__layout_axis(layout, i);
        if (y->dims[axis] == 1) continue;
        if (rows >> axis & 1 && kept) return false;
        kept |= !(rows >> axis & 1);
    }
    if (!kept || wb__window_of(f->values, wb__input(f->values, v, 0))) return false;
    const wb__view *view = &f->values->view[wb__input(f->values, v, 0)];
    m->base = pattern_base_of(f, wb__input(f->values, v, 0));
    m->offset = view->offset;
    return combine_axes(view, layout, rows, &m->k, &m->k_stride) &&
           combine_axes(view, layout, ~rows, &m->n, &m->n_stride);
}

/* Whether v is the matrix m, with the rows along dimension k and the columns along n. */
static bool is_view_of_matrix(const pattern_matrix *m, const wb__view *v, int k, int n)
{
    return v->offset == m->offset && v->dims[k] == m->k && v->dims[n] == m->n &&
           (m->k == 1 || v->strides[k] == m->k_stride) &&
           (m->n == 1 || v->strides[n] == m->n_stride);
}

/* Returns which operand of the product is the matrix m.  The product must sum over m's dimension k.
 * WB__SUMS_NONE: neither operand is m, or the product has batch dimensions. */
static wb__sums pattern_summed_operand(const finder *f, const wb__value *product,
                                       const pattern_matrix *m)
{
    const int i = product->ndim - 2, j = product->ndim - 1;
    const bool a = pattern_base_of(f, wb__input(f->values, product, 0)) == m->base;
    if (!a && pattern_base_of(f, wb__input(f->values, product, 1)) != m->base) return WB__SUMS_NONE;
    for (int batch = 0; batch < i; batch++)
        if (product->dims[batch] != 1) return WB__SUMS_NONE;
    wb__view v;
    if (a) {
        v = pattern_operand_view(f, product, 0);
        if (is_view_of_matrix(m, &v, j, i)) return WB__SUMS_OF_A;
    }
    if (pattern_base_of(f, wb__input(f->values, product, 1)) != m->base) return WB__SUMS_NONE;
    v = pattern_operand_view(f, product, 1);
    return is_view_of_matrix(m, &v, i, j) ? WB__SUMS_OF_B : WB__SUMS_NONE;
}

/* Fuses the sum x into a product that has the summed matrix as an operand.  Takes the first such
 * product that runs before all readers of x, and for which the backend accepts the sum. */
static bool match_sums_of_operand(finder *f, int x)
{
    pattern_matrix m;
    if (!pattern_sums_rows(f, x, &m)) return false;
    for (int i = 0; i < f->out->n; i++) {
        wb__product with = f->out->product[i];
        const wb__value *v = pattern_value(f, with.value);
        if (v->op != WB__OP_matmul || v->in_reader || with.sums >= 0) continue;
        if (with.made_at >= f->of[x].first_reader) continue;
        with.sums = x;
        with.sums_of = pattern_summed_operand(f, v, &m);
        if (!with.sums_of || !pattern_is_supported(f, &with)) continue;
        pattern_set_product(f, &f->out->product[i], &with, x);
        return true;
    }
    return false;
}

/* ---- facts about values ---------------------------------------------------------------------- */

static void pattern_find_readers(finder *f)
{
    const int n = f->values->ir.n;
    for (int x = 0; x < n; x++) {
        f->of[x] = (fact){.ready_at = x, .first_reader = n};
        f->out->of[x] = (wb__match){.product = -1};
    }
    for (int x = 0; x < n; x++) {
        const wb__value *v = pattern_value(f, x);
        const bool elementwise =
            wb__is_elementwise((wb__op)v->op) || wb__ops[v->op].class == WB__REDUCE;
        for (int i = 0; i < v->n_in && !wb__is_view(f->values, x); i++) {
            int y = wb__input(f->values, v, i);
            fact *base = &f->of[pattern_base_of(f, y)];
            base->first_reader = WB__MIN(base->first_reader, x);
            while (elementwise && wb__is_view_op((wb__op)pattern_value(f, y)->op))
                y = wb__input(f->values, pattern_value(f, y), 0);
            if (elementwise) f->of[y].read_elementwise = true;
        }
    }
}

/* Whether x can be deferred.  x must be elementwise, or a reduction that satisfies
 * wb__reduces_columns, and must read only leaves, free sources and deferred values.  (can_wait in
 * groups.c also defers comparisons of a product's result.) */
static bool may_defer(const finder *f, int x)
{
    const wb__value *v = pattern_value(f, x);
    if (f->values->needed[x]) return false;
    if (wb__ops[v->op].class == WB__REDUCE ? !wb__reduces_columns(f->values, v)
                                           : !wb__is_elementwise((wb__op)v->op))
        return false;
    for (int i = 0; i < v->n_in; i++) {
        const int in = wb__input(f->values, v, i), base = pattern_base_of(f, in);
        if (pattern_value(f, base)->op != WB__OP_constant && !wb__is_free_source(f->values, base) &&
            (!f->of[base].deferred || in != base))
            return false;
    }
    return true;
}

/* Decides whether x is deferred, and sets ready_at of x and of the deferred values that x reads. */
static void find_ready_at(finder *f, int x)
{
    const wb__value *v = pattern_value(f, x);
    if (wb__is_view(f->values, x) || f->out->of[x].product >= 0 || f->out->of[x].unused) return;
    f->of[x].deferred = may_defer(f, x);
    for (int i = 0; i < v->n_in && !f->of[x].deferred; i++) {
        fact *in = &f->of[pattern_base_of(f, wb__input(f->values, v, i))];
        if (in->deferred) in->ready_at = x;
        in->deferred = false;
    }
}

/* Adds a wb__product for the library operation x, of any kind.  A further result of a step gets the
 * wb__product of the first result of that step.  False: out of memory. */
static bool pattern_add_product(finder *f, int x)
{
    wb__patterns *p = f->out;
    const wb__value *v = pattern_value(f, x);
    if (wb__is_further_result(v->op)) {
        p->of[x].product = p->of[wb__input(f->values, v, 0)].product;
        return true;
    }
    if (!wb__reserve(&p->product, &p->capacity, p->n + 1, sizeof *p->product)) return false;
    p->product[p->n] = (wb__product){
        .value = x, .made_at = x, .result = x, .bias = -1, .aux = -1, .bits = -1, .sums = -1};
    p->of[x].product = p->n++;
    return true;
}

/* ---- the tables of patterns ------------------------------------------------------------------ */

/* A pattern tries to fuse the value x into a product, and returns whether it did.  For each value,
 * the patterns of a table are tried in order until one succeeds.  The second table is used after
 * the first one has been used for all values. */
typedef bool (*pattern_row)(finder *f, int x);

static const pattern_row behind_products[] = {match_bias, match_addend, match_activation,
                                              match_gradient, match_sums_of_result};
static const pattern_row beside_products[] = {match_sums_of_operand};

/* Tries the patterns `rows` on x, in order, until one fuses x into a product. */
static void pattern_try_rows(finder *f, int x, const pattern_row *rows, size_t n)
{
    const wb__op op = (wb__op)pattern_value(f, x)->op;
    if (!wb__is_elementwise(op) && wb__ops[op].class != WB__REDUCE) return;
    if (f->out->of[x].product >= 0 || f->out->of[x].unused) return;
    for (size_t i = 0; i < n && !rows[i](f, x); i++) {}
}

static bool pattern_find_all(finder *f)
{
    const int n = f->values->ir.n;
    const bool takes_more = f->attempt->device->backend->supports != NULL;
    pattern_find_readers(f);
    if (takes_more && !mark_unused_factors(f)) return false;
    for (int x = 0; x < n; x++) {
        if (wb__ops[pattern_value(f, x)->op].class == WB__LIBRARY && !pattern_add_product(f, x))
            return false;
        pattern_try_rows(f, x, behind_products, WB__COUNT(behind_products));
        find_ready_at(f, x);
    }
    if (takes_more) keep_read_factors(f);
    for (int x = 0; takes_more && x < n; x++)
        pattern_try_rows(f, x, beside_products, WB__COUNT(beside_products));
    return !takes_more || wb__products_choose(f->attempt, f->values, f->out);
}

bool wb__patterns_find(const wb__attempt *a, const wb__values *s, wb__patterns *p)
{
    const size_t n = (size_t)s->ir.n + 1;
    finder f = {.attempt = a, .values = s, .out = p, .of = wb__alloc(n * sizeof *f.of)};
    p->of = wb__alloc(n * sizeof *p->of);
    const bool good = p->of && f.of && pattern_find_all(&f);
    wb__free(f.of);
    return good;
}

void wb__patterns_free(wb__patterns *p)
{
    wb__free(p->product);
    wb__free(p->of);
}
