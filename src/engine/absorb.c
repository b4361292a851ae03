/* What joins a product's kernel instead of having one of its own.
 *
 * Everywhere: a bias, and a unary row of ops.def behind it.  Where the backend takes them (its
 * `takes`; matrix products without batch dimensions): a row whose operand others read (gelu, whose
 * gradient is in the plan too), with the operand left beside the result, for relu its signs; that
 * gradient, in the product which makes what it multiplies; and the sums of the rows of the finished
 * product. */
#include "engine/plan.h"

#include <string.h>

static wb__value *value(const wb__making *m, int x) { return &m->ir.value[x]; }
static int input(const wb__making *m, const wb__value *v, int i) { return m->ir.inputs[v->in + i]; }

/* ---- asking the backend ---------------------------------------------------------------------- */

static wb__view operand(const wb__making *m, const wb__value *product, int i)
{
    const int x = input(m, product, i);
    wb__view v;
    if (!wb__view_of(m, x, &v)) wb__contiguous(value(m, x), &v);    /* it will be copied */
    v.buffer = -1;
    return wb__matrix_view(v, m->ir.attrs[product->attr + i], product);
}

/* Does the backend do this group, of a matrix product, in one step? */
static bool taken(const wb__making *m, const wb__group *g)
{
    const wb__value *p = value(m, g->first);
    if (!m->device->backend->takes || p->op != WB__OP_matmul || p->ndim != 2 || !p->size) return false;
    wb__step s = wb__step_blank(m, WB__STEP_MATMUL);
    s.n_views = 3;
    s.epilogue = g->epilogue;
    s.aux_kind = g->aux_kind;
    for (int i = 0; i < 2; i++) s.views[i] = operand(m, p, i);
    wb__contiguous(p, &s.views[2]);
    const wb__view row = {.dtype = (wb_dtype)p->dtype, .buffer = -1, .ndim = 1, .dims = {p->dims[1]},
                          .strides = {1}};
    if (g->bias >= 0) s.views[s.n_views++] = row;
    if (g->aux_kind == WB__AUX_OPERAND || g->aux_kind == WB__AUX_FACTOR) s.aux = s.views[2];
    if (g->aux_kind == WB__AUX_SIGNS || g->aux_kind == WB__AUX_MASK) {
        const wb__value bits = {.dtype = WB_U8, .ndim = 2,
                                .dims = {p->dims[0], wb__relu_bytes(p->dims[1])}};
        wb__contiguous(&bits, &s.aux);
    }
    if (g->sums >= 0) {
        s.sums_of = WB__SUMS_OF_C;
        s.sums = row;
        s.sums.dtype = (wb_dtype)value(m, g->sums)->dtype;
    }
    return wb__taken(m, &s);
}

/* ---- patterns of gradients ------------------------------------------------------------------- */

static bool alike(const wb__value *p, const wb__value *q)
{
    return p->dtype == q->dtype && p->ndim == q->ndim &&
           !memcmp(p->dims, q->dims, p->ndim * sizeof p->dims[0]);
}

/* A product that nobody else wants. */
static bool is_own(const wb__making *m, int p)
{
    const wb__value *v = value(m, p);
    return v->op == WB__OP_matmul && v->ndim == 2 && v->uses == 1;
}

static bool is_zero(const wb__making *m, int x)
{
    const wb__value *v = value(m, x);
    return v->op == WB__OP_literal && v->fixed && v->value == 0;
}

/* x = product · gelu'(z): what it would be to the product, with the slope and z. */
static wb__aux gelu_back(const wb__making *m, const wb__value *x, int *product, int *slope, int *of)
{
    for (int i = 0; x->op == WB__OP_mul && i < 2; i++) {
        *product = input(m, x, i);
        *slope = input(m, x, !i);
        const wb__value *s = value(m, *slope);
        if (s->op != WB__OP_gelu_slope || !is_own(m, *product)) continue;
        *of = input(m, s, 0);
        if (alike(x, s) && alike(x, value(m, *product)) && alike(x, value(m, *of)))
            return WB__AUX_FACTOR;
    }
    return WB__AUX_NONE;
}

/* x = where(y > 0, product, 0), y a relu: the same, with the comparison and y. */
static wb__aux relu_back(const wb__making *m, const wb__value *x, int *product, int *above, int *of)
{
    if (x->op != WB__OP_where || !is_zero(m, input(m, x, 2))) return WB__AUX_NONE;
    *above = input(m, x, 0);
    *product = input(m, x, 1);
    const wb__value *c = value(m, *above);
    if (c->op != WB__OP_gt || !is_zero(m, input(m, c, 1)) || !is_own(m, *product))
        return WB__AUX_NONE;
    *of = input(m, c, 0);
    const wb__value *y = value(m, *of);
    return y->op == WB__OP_relu && alike(x, y) && alike(x, value(m, *product)) ? WB__AUX_MASK
                                                                                : WB__AUX_NONE;
}

static wb__aux gradient(const wb__making *m, int x, int *product, int *factor, int *of)
{
    const wb__value *v = value(m, x);
    const wb__aux kind = gelu_back(m, v, product, factor, of);
    return kind ? kind : relu_back(m, v, product, factor, of);
}

/* Makes a group's epilogue a gradient's. */
static void as_gradient(wb__group *g, wb__aux kind)
{
    g->aux_kind = kind;
    g->epilogue = kind == WB__AUX_FACTOR ? WB__OP_gelu_slope : WB__OP_relu;
}

/* Which values an elementwise operation or a fold reads. */
static void find_company(wb__making *m)
{
    for (int x = 0; x < m->ir.n; x++) {
        const wb__value *v = value(m, x);
        if (!wb__is_elementwise((wb__op)v->op) && wb__ops[v->op].class != WB__REDUCE) continue;
        for (int i = 0; i < v->n_in; i++)
            m->fate[wb__base(m, input(m, v, i))].has_company = true;
    }
}

/* The factors of gradients are not made where all their users will do without; if one of these is
 * not absorbed after all, it has them made. */
void wb__find_absorbable(wb__making *m)
{
    int product, factor, of;
    find_company(m);
    if (!m->device->backend->takes) return;
    int *absorbing = wb__alloc_zero((size_t)m->ir.n + 1, sizeof *absorbing);
    if (!absorbing) {
        m->failed = true;
        return;
    }
    for (int x = 0; x < m->ir.n; x++) {
        const wb__aux kind = gradient(m, x, &product, &factor, &of);
        if (!kind) continue;
        wb__group with = {.first = product, .bias = -1, .sums = -1};
        as_gradient(&with, kind);
        if (taken(m, &with)) absorbing[factor]++;
    }
    for (int x = 0; x < m->ir.n; x++) {
        const wb__value *v = value(m, x);
        if (!absorbing[x] || absorbing[x] != v->uses) continue;
        m->fate[x].put_off = true;
        if (v->op == WB__OP_gt) m->fate[input(m, v, 0)].wants_bits = true;
    }
    wb__free(absorbing);
}

/* ---- absorbing ------------------------------------------------------------------------------- */

static void absorb(wb__making *m, int g, const wb__group *as, int x)
{
    m->group[g] = *as;
    m->group[g].product = x;
    m->fate[x].group = g;
}

static bool absorb_gradient(wb__making *m, int x)
{
    int product, factor, of;
    const wb__aux kind = gradient(m, x, &product, &factor, &of);
    if (!kind) return false;
    const int g = m->fate[product].group, from = m->fate[of].group;
    if (g < 0 || m->group[g].product != product || m->group[g].first != product || from < 0 ||
        from >= g || m->group[from].kind != WB__GROUP_LIBRARY)
        return false;
    wb__group with = m->group[g];
    as_gradient(&with, kind);
    if (kind == WB__AUX_FACTOR) {
        if (m->group[from].aux_kind != WB__AUX_OPERAND || m->group[from].aux != of) return false;
        with.aux = of;
    } else {
        if (m->group[from].aux_kind != WB__AUX_SIGNS || m->group[from].product != of) return false;
        with.bits = m->group[from].bits;
    }
    if (!taken(m, &with)) return false;
    absorb(m, g, &with, x);
    return true;
}

/* The bias' gradient, for one. */
static bool absorb_sums(wb__making *m, int x)
{
    const wb__value *v = value(m, x);
    const int p = input(m, v, 0), g = m->fate[p].group;
    if (v->op != WB__OP_sum || g < 0 || m->group[g].kind != WB__GROUP_LIBRARY ||
        m->group[g].product != p || m->group[g].sums >= 0 || m->ir.attrs[v->attr] != 1)
        return false;
    if (v->dtype != WB_F32 && v->dtype != value(m, p)->dtype) return false;
    wb__group with = m->group[g];
    with.sums = x;
    if (!taken(m, &with)) return false;
    m->group[g] = with;
    m->fate[x].group = g;
    return true;
}

/* The vector that a library kernel adds to its product: one number a column (or channel), standing
 * in a row. */
static bool is_bias(const wb__making *m, int x, const wb__value *product, int group)
{
    const wb__value *b = value(m, x);
    int channel = product->op == WB__OP_matmul ? product->ndim - 1 : 1;
    wb__view view;
    int from_end = product->ndim - channel, base = wb__base(m, x);
    if (b->ndim < from_end || b->dtype != product->dtype || b->size != product->dims[channel])
        return false;
    if (b->dims[b->ndim - from_end] != b->size || m->fate[base].group >= group) return false;
    if ((wb__ops[value(m, base)->op].class == WB__SOURCE && m->fate[base].group < 0) ||
        m->fate[base].deferred)
        return false;
    return wb__view_of(m, x, &view) && (b->size == 1 || view.strides[b->ndim - from_end] == 1);
}

/* Whether a row pays behind a product where a library may need another pass for it: relu always,
 * others not over thin rows, and only tanh and sigmoid, which libraries have, where that pass would
 * join other elementwise work. */
static bool pays(const wb__making *m, int x)
{
    const wb__value *v = value(m, x);
    if (v->op == WB__OP_relu) return true;
    if (v->dims[v->ndim - 1] < 16) return false;
    return v->op == WB__OP_tanh || v->op == WB__OP_sigmoid || !m->fate[x].has_company;
}

/* A unary row of a product; where others want its operand, that is left beside the result, or its
 * signs where they are enough. */
static bool absorb_unary(wb__making *m, int x, int g)
{
    const wb__value *v = value(m, x);
    wb__group with = m->group[g];
    with.epilogue = (wb__op)v->op;
    if (value(m, with.product)->uses != 1) {
        with.aux_kind = WB__AUX_OPERAND;
        with.aux = with.product;
        if (!taken(m, &with)) return false;
    } else if (m->fate[x].wants_bits) {
        with.aux_kind = WB__AUX_SIGNS;
        if (taken(m, &with)) with.bits = wb__tenant_new(m, v->dims[0] * wb__relu_bytes(v->dims[1]));
        else with.aux_kind = WB__AUX_NONE;
    }
    if (!with.aux_kind && !pays(m, x) && !taken(m, &with)) return false;
    absorb(m, g, &with, x);
    return true;
}

bool wb__absorbed(wb__making *m, int x)
{
    const wb__value *v = value(m, x);
    const bool unary = wb__is_epilogue(&wb__ops[v->op]);
    if (wb__ops[v->op].class == WB__REDUCE) return absorb_sums(m, x);
    if (v->op != WB__OP_add && !unary) return absorb_gradient(m, x);
    for (int i = 0; i < v->n_in; i++) {
        int p = input(m, v, i), g = m->fate[p].group;
        if (g < 0 || m->group[g].kind != WB__GROUP_LIBRARY || m->group[g].product != p) continue;
        const wb__value *library = value(m, m->group[g].first);
        if (!wb__has_epilogue(&wb__ops[library->op]) || m->group[g].epilogue) continue;
        if (library->size != v->size || library->ndim != v->ndim || m->group[g].sums >= 0) continue;
        if (unary) return absorb_unary(m, x, g);
        if (value(m, p)->uses != 1) continue;
        int b = input(m, v, !i);
        if (m->group[g].bias >= 0 || !is_bias(m, b, library, g)) continue;
        m->group[g].bias = b;
        m->group[g].product = x;
        m->fate[x].group = g;
        return true;
    }
    return false;
}
