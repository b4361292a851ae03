/* Creates values: simplifies them and merges equal ones. */
#include "engine/plan/ir.h"

#include <string.h>

void wb__ir_free(wb__ir *ir)
{
    wb__free(ir->value);
    wb__free(ir->inputs);
    wb__free(ir->attrs);
    wb__hash_free(&ir->table);
    memset(ir, 0, sizeof *ir);
}

/* ---- merging of equal values ----------------------------------------------------------------- */

static uint64_t ir_hash_of(const wb__value *v, int n_in, const int *in, int n_attr,
                           const int64_t *attr)
{
    uint64_t bits;
    memcpy(&bits, &v->value, sizeof bits);
    uint64_t h = wb__mix(wb__mix((uint64_t)v->op << 16 | (uint64_t)v->dtype << 8 | v->ndim, bits),
                     (uint64_t)(uint32_t)v->number << 32 | (uint32_t)v->leaf);
    for (int i = 0; i < v->ndim; i++) h = wb__mix(h, (uint64_t)v->dims[i]);
    for (int i = 0; i < n_in; i++) h = wb__mix(h, (uint64_t)in[i]);
    for (int i = 0; i < n_attr; i++) h = wb__mix(h, (uint64_t)attr[i]);
    return h | 1;
}

/* Whether p and v, with these inputs and attributes, compute the same. */
static bool ir_equal(const wb__ir *ir, const wb__value *p, const wb__value *v, int n_in,
                     const int *in, int n_attr, const int64_t *attr)
{
    return p->op == v->op && p->dtype == v->dtype && p->ndim == v->ndim && p->fixed == v->fixed &&
           p->number == v->number && p->leaf == v->leaf &&
           !memcmp(&p->value, &v->value, sizeof v->value) && p->n_in == n_in &&
           p->n_attr == n_attr && !memcmp(p->dims, v->dims, v->ndim * sizeof v->dims[0]) &&
           (!n_in || !memcmp(ir->inputs + p->in, in, (size_t)n_in * sizeof *in)) &&
           (!n_attr || !memcmp(ir->attrs + p->attr, attr, (size_t)n_attr * sizeof *attr));
}

/* Returns the index of the value equal to v, which is added if there is none. */
static int ir_find_or_add(wb__ir *ir, wb__value v, int n_in, const int *in, int n_attr,
                          const int64_t *attr)
{
    if (ir->failed) return 0;
    const uint64_t key = ir_hash_of(&v, n_in, in, n_attr, attr);
    const wb__hashed *same = wb__hash_get(&ir->table, key);
    for (; same; same = wb__hash_next(&ir->table, same))
        if (ir_equal(ir, &ir->value[same->number], &v, n_in, in, n_attr, attr))
            return (int)same->number;
    /* one input and one attribute more than needed, so that these arrays are never NULL */
    ir->failed =
        !wb__reserve(&ir->value, &ir->capacity, ir->n + 1, sizeof v) ||
        !wb__reserve(&ir->inputs, &ir->inputs_capacity, ir->n_inputs + n_in + 1, sizeof *in) ||
        !wb__reserve(&ir->attrs, &ir->attrs_capacity, ir->n_attrs + n_attr + 1, sizeof *attr);
    wb__hashed *entry = ir->failed ? NULL : wb__hash_add(&ir->table, key);
    if ((ir->failed = !entry)) return 0;
    v.n_in = n_in;
    v.in = ir->n_inputs;
    v.n_attr = n_attr;
    v.attr = ir->n_attrs;
    v.uses = 0;
    v.size = 1;
    for (int i = 0; i < v.ndim; i++) v.size *= v.dims[i];
    for (int i = 0; i < n_in; i++) ir->inputs[ir->n_inputs++] = in[i];
    for (int i = 0; i < n_attr; i++) ir->attrs[ir->n_attrs++] = attr[i];
    ir->value[ir->n] = v;
    entry->number = ir->n;
    return ir->n++;
}

/* ---- simplification -------------------------------------------------------------------------- */

static bool ir_same_shape(const wb__value *p, const wb__value *q)
{
    return p->ndim == q->ndim && !memcmp(p->dims, q->dims, p->ndim * sizeof p->dims[0]);
}

static bool ir_is_number(const wb__value *v, double number)
{
    return v->op == WB__OP_literal && v->fixed && v->value == number;
}

/* Returns the operand of v that v does not change: v adds or subtracts 0, or multiplies or divides
 * by 1, and the operand has v's dimensions.  Otherwise returns -1. */
static int ir_unchanged_operand(const wb__ir *ir, const wb__value *v, const int *in)
{
    const wb__value *x = &ir->value[in[0]], *y = &ir->value[in[1]];
    double unit = v->op == WB__OP_mul || v->op == WB__OP_div ? 1 : 0;
    if (v->op != WB__OP_add && v->op != WB__OP_sub && v->op != WB__OP_mul && v->op != WB__OP_div)
        return -1;
    if (ir_is_number(y, unit) && ir_same_shape(x, v)) return in[0];
    if ((v->op == WB__OP_add || v->op == WB__OP_mul) && ir_is_number(x, unit) &&
        ir_same_shape(y, v))
        return in[1];
    return -1;
}

/* Whether x is a reduction that keeps an axis after a reduced one.  The result of such a reduction
 * is usually complete only when its kernel ends. */
static bool ends_kernel(const wb__ir *ir, int x)
{
    const wb__value *v = &ir->value[x];
    if (wb__ops[v->op].class != WB__REDUCE) return false;
    const wb__value *of = wb__ir_in(ir, v, 0);
    bool kept = false;
    for (int i = of->ndim - 1; i >= 0; i--) {
        if (of->dims[i] == 1) continue;
        const bool reduced = ir->attrs[v->attr] >> i & 1;
        if (reduced && kept) return true;
        kept |= !reduced;
    }
    return false;
}

/* Returns f(reshape(r)) in place of v = reshape(x) with x = f(r), if f is elementwise and
 * ends_kernel(r).  f may have a number as a second operand.  Otherwise returns -1. */
static int reshape_before_elementwise(wb__ir *ir, wb__value v, int x)
{
    const wb__value p = ir->value[x];
    const wb__op_class class = wb__ops[p.op].class;
    int in[2], sum = -1;
    if ((class != WB__UNARY && class != WB__BINARY) || p.n_in > 2) return -1;
    for (int i = 0; i < p.n_in; i++) {
        in[i] = ir->inputs[p.in + i];
        const wb__value *of = &ir->value[in[i]];
        if (of->op == WB__OP_literal && of->size == 1) continue;
        if (sum >= 0 || !ir_same_shape(of, &p) || !ends_kernel(ir, in[i])) return -1;
        sum = i;
    }
    if (sum < 0) return -1;
    for (int i = 0; i < p.n_in; i++)
        in[i] = i == sum ? wb__ir_move(ir, WB__OP_reshape, in[i], v.ndim, v.dims, 0, NULL)
                         : wb__ir_move(ir, WB__OP_reshape, in[i], 0, NULL, 0, NULL);
    wb__value made = p;
    made.ndim = v.ndim;
    memcpy(made.dims, v.dims, sizeof v.dims);
    return wb__ir_make(ir, made, p.n_in, in, 0, NULL);
}

/* Returns the simplest value for v, which moves the elements of x (a view operation or a copy). */
static int simplify_move(wb__ir *ir, wb__value v, int x, int n_attr, const int64_t *attr)
{
    const wb__value p = ir->value[x];
    int64_t both[2 * WB_MAX_DIMS];
    if (v.op != WB__OP_permute && v.op != WB__OP_slice && ir_same_shape(&p, &v)) return x;
    if (p.op == WB__OP_literal) {
        v.op = WB__OP_literal;
        v.fixed = p.fixed;
        v.value = p.value;
        v.number = p.number;
        return ir_find_or_add(ir, v, 0, NULL, 0, NULL);
    }
    int below = p.n_in ? ir->inputs[p.in] : -1;
    if (v.op == p.op && (v.op == WB__OP_reshape || v.op == WB__OP_expand))
        return wb__ir_make(ir, v, 1, &below, 0, NULL);
    const int made = v.op == WB__OP_reshape ? reshape_before_elementwise(ir, v, x) : -1;
    if (made >= 0) return made;
    if (v.op == WB__OP_permute && p.op == WB__OP_permute) {
        bool still = true;
        for (int i = 0; i < n_attr; i++) {
            both[i] = ir->attrs[p.attr + attr[i]];
            still &= both[i] == i;
        }
        return still ? below : wb__ir_make(ir, v, 1, &below, n_attr, both);
    }
    if (v.op == WB__OP_slice && p.op == WB__OP_slice) {
        for (int i = 0; i < v.ndim; i++) {
            int64_t step = ir->attrs[p.attr + v.ndim + i];
            both[i] = ir->attrs[p.attr + i] + step * attr[i];
            both[v.ndim + i] = step * attr[v.ndim + i];
        }
        return wb__ir_make(ir, v, 1, &below, n_attr, both);
    }
    return ir_find_or_add(ir, v, 1, &x, n_attr, attr);
}

/* Whether x is a reshape of a value y that is neither a leaf nor a collective nor a slice of a
 * collective.  Sets *below to y.  Such a reshape can move behind an operation f that reads it:
 * f(reshape(y)) becomes reshape(f(y)).  Then one kernel can compute y and f(y). */
static bool is_movable_reshape(const wb__ir *ir, int x, int *below)
{
    const wb__value *p = &ir->value[x];
    if (p->op != WB__OP_reshape) return false;
    const wb__value *y = wb__ir_in(ir, p, 0);
    *below = ir->inputs[p->in];
    if (y->op == WB__OP_slice) y = wb__ir_in(ir, y, 0);
    return y->op != WB__OP_collective && ir->value[*below].op != WB__OP_constant;
}

/* Returns the mask of the axes of q that correspond to the axes of p, a reshape of q, in `mask`; 0
 * if they are not whole axes of q, or if p has no elements. */
static unsigned axes_below(const wb__value *p, const wb__value *q, unsigned mask)
{
    unsigned moved = 0;
    int i = 0, j = 0;
    if (!p->size) return 0;
    while (i < p->ndim || j < q->ndim) {        /* finds the next shortest runs of axes of p and of
                                                   q that have the same product of sizes */
        int i0 = i, j0 = j;
        int64_t a = i < p->ndim ? p->dims[i++] : 1, b = j < q->ndim ? q->dims[j++] : 1;
        while (a != b) {
            if (a < b) a *= p->dims[i++];
            else b *= q->dims[j++];
        }
        unsigned run = 0, ones = 0;
        for (int k = i0; k < i; k++) {
            run |= 1u << k;
            if (p->dims[k] == 1) ones |= 1u << k;
        }
        if ((run & mask) == 0) continue;
        if ((run & (mask | ones)) != run) return 0;
        for (int k = j0; k < j; k++)
            if (q->dims[k] != 1) moved |= 1u << k;
    }
    return moved;
}

/* Returns reshape(reduce(y)) for v, the reduction of x = reshape(y); -1: this is not possible. */
static int reduce_before_reshape(wb__ir *ir, wb__value v, int x, unsigned mask)
{
    int below;
    if (!is_movable_reshape(ir, x, &below)) return -1;
    const wb__value *y = &ir->value[below];
    if (ir->joins && wb__ops[y->op].class == WB__LIBRARY && y->ndim == 2) return -1;
    unsigned moved = axes_below(&ir->value[x], &ir->value[below], mask);
    if (!moved) return -1;
    int r = wb__ir_reduce(ir, (wb__op)v.op, below, moved);
    return wb__ir_move(ir, WB__OP_reshape, r, v.ndim, v.dims, 0, NULL);
}

/* Returns the simplest value for v, a reduction of x over the axes in attr[0]. */
static int simplify_reduce(wb__ir *ir, wb__value v, int x, const int64_t *attr)
{
    const wb__value p = ir->value[x];
    unsigned mask = 0;
    for (int i = 0; i < p.ndim; i++)
        if (attr[0] >> i & 1 && p.dims[i] != 1) mask |= 1u << i;
    if (!mask)
        return v.op == WB__OP_argmax ? wb__ir_move(ir, WB__OP_expand, wb__ir_literal(ir, 0, WB_I32),
                                                   v.ndim, v.dims, 0, NULL)
                                     : x;
    if (v.op != WB__OP_argmax) {
        int moved = reduce_before_reshape(ir, v, x, mask);
        if (moved >= 0) return moved;
        if (p.op == v.op)
            return wb__ir_reduce(ir, v.op, ir->inputs[p.in], mask | (unsigned)ir->attrs[p.attr]);
    }
    return ir_find_or_add(ir, v, 1, &x, 1, (int64_t[]){mask});
}

/* Returns reshape(f(a, b)) in place of the elementwise v = f(reshape(a), reshape(b)).  Operands
 * that are numbers stay.  Returns -1 if a and b differ in shape, or if
 * another operand is not a reshape that can move. */
static int elementwise_before_reshapes(wb__ir *ir, wb__value v, int n_in, const int *in)
{
    int moved[3], below, shape = -1;
    for (int i = 0; i < n_in; i++) {
        const wb__value *p = &ir->value[in[i]];
        moved[i] = in[i];
        if (p->op == WB__OP_literal && p->size == 1) continue;
        if (!ir_same_shape(p, &v) || !is_movable_reshape(ir, in[i], &below) ||
            ends_kernel(ir, below))
            return -1;
        if (shape >= 0 && !ir_same_shape(&ir->value[shape], &ir->value[below])) return -1;
        shape = moved[i] = below;
    }
    if (shape < 0) return -1;
    for (int i = 0; i < n_in; i++)              /* numbers must not add dimensions */
        if (moved[i] == in[i] && ir->value[in[i]].ndim)
            moved[i] = wb__ir_move(ir, WB__OP_reshape, in[i], 0, NULL, 0, NULL);
    wb__value inner = v;
    const wb__value *q = &ir->value[shape];
    inner.ndim = q->ndim;
    memcpy(inner.dims, q->dims, sizeof q->dims);
    int r = wb__ir_make(ir, inner, n_in, moved, 0, NULL);
    return wb__ir_move(ir, WB__OP_reshape, r, v.ndim, v.dims, 0, NULL);
}

/* Sets `bare` to the operands of the elementwise operation v without their expands, since v
 * broadcasts its operands.  Keeps the expands if no operand would have v's shape without them. */
static void strip_expands(const wb__ir *ir, const wb__value *v, int n_in, const int *in, int *bare)
{
    bool whole = false;
    for (int i = 0; i < n_in; i++) {
        const wb__value *x = &ir->value[in[i]];
        bare[i] = x->op == WB__OP_expand ? ir->inputs[x->in] : in[i];
        whole |= ir_same_shape(&ir->value[bare[i]], v) && x->op != WB__OP_literal;
    }
    for (int i = 0; i < n_in && !whole; i++) bare[i] = in[i];
}

/* Returns expand(f(...)) in place of v = f(expand(...)), if all operands of the elementwise f are
 * numbers or expands of values of one shape; else -1.  f is then computed for fewer elements, and
 * the layout of f does not bind the values that read the expand. */
static int elementwise_before_expands(wb__ir *ir, wb__value v, int n_in, const int *in)
{
    int below[3], shape = -1;
    for (int i = 0; i < n_in; i++) {
        const wb__value *x = &ir->value[in[i]];
        below[i] = in[i];
        if (x->op == WB__OP_literal) continue;
        below[i] = ir->inputs[x->in];
        if (x->op != WB__OP_expand || !ir_same_shape(x, &v) ||
            ir->value[below[i]].op == WB__OP_slice ||       /* the kernel that reads the whole */
            (shape >= 0 && !ir_same_shape(&ir->value[shape], &ir->value[below[i]])))
            return -1;
        shape = below[i];
    }
    if (shape < 0) return -1;
    for (int i = 0; i < n_in; i++)
        if (below[i] == in[i]) below[i] = wb__ir_move(ir, WB__OP_reshape, in[i], 0, NULL, 0, NULL);
    wb__value inner = v;
    inner.ndim = ir->value[shape].ndim;
    memcpy(inner.dims, ir->value[shape].dims, sizeof inner.dims);
    const int made = wb__ir_make(ir, inner, n_in, below, 0, NULL);
    return wb__ir_move(ir, WB__OP_expand, made, v.ndim, v.dims, 0, NULL);
}

int wb__ir_make(wb__ir *ir, wb__value v, int n_in, const int *in, int n_attr, const int64_t *attr)
{
    if (ir->failed) return 0;
    if (v.op != WB__OP_literal) {
        v.fixed = false;
        v.value = 0;
    }
    switch (wb__ops[v.op].class) {
    case WB__BINARY: {
        int stays = ir_unchanged_operand(ir, &v, in);
        if (stays >= 0) return stays;
    } /* fall through */
    case WB__UNARY: case WB__COMPARE: case WB__TEST: case WB__ELEMENTWISE: {
        int bare[3], small = ir->joins ? elementwise_before_expands(ir, v, n_in, in) : -1;
        if (small >= 0) return small;
        strip_expands(ir, &v, n_in, in, bare);
        int moved = elementwise_before_reshapes(ir, v, n_in, bare);
        return moved >= 0 ? moved : ir_find_or_add(ir, v, n_in, bare, 0, NULL);
    }
    case WB__MOVE:
        if (v.op == WB__OP_concat)
            return n_in == 1 && ir_same_shape(&ir->value[in[0]], &v)
                       ? in[0]
                       : ir_find_or_add(ir, v, n_in, in, n_attr, attr);
        return simplify_move(ir, v, in[0], n_attr, attr);
    case WB__REDUCE: return simplify_reduce(ir, v, in[0], attr);
    default: return ir_find_or_add(ir, v, n_in, in, n_attr, attr);
    }
}

/* ---- short forms of wb__ir_make -------------------------------------------------------------- */

static wb__value ir_blank_value(wb__op op, wb_dtype dtype)
{
    return (wb__value){.op = (uint16_t)op, .dtype = (uint8_t)dtype, .number = -1, .leaf = -1};
}

/* Broadcasts v's dimensions with those of x. */
static void ir_broadcast_dims(wb__value *v, const wb__value *x)
{
    int n = WB__MAX(v->ndim, x->ndim);
    int64_t dims[WB_MAX_DIMS];
    for (int i = 1; i <= n; i++) {
        int64_t a = i <= v->ndim ? v->dims[v->ndim - i] : 1,
                b = i <= x->ndim ? x->dims[x->ndim - i] : 1;
        dims[n - i] = a == 1 ? b : a;
    }
    v->ndim = (uint8_t)n;
    memcpy(v->dims, dims, (size_t)n * sizeof *dims);
}

int wb__ir_elementwise(wb__ir *ir, wb__op op, int a, int b)
{
    wb__op_class class = wb__ops[op].class;
    wb__value v = ir_blank_value(
        op, class == WB__COMPARE || class == WB__TEST ? WB_BOOL : (wb_dtype)ir->value[a].dtype);
    ir_broadcast_dims(&v, &ir->value[a]);
    if (b >= 0) ir_broadcast_dims(&v, &ir->value[b]);
    return wb__ir_make(ir, v, b >= 0 ? 2 : 1, (int[]){a, b}, 0, NULL);
}

int wb__ir_where(wb__ir *ir, int condition, int x, int y)
{
    wb__value v = ir_blank_value(WB__OP_where, (wb_dtype)ir->value[x].dtype);
    ir_broadcast_dims(&v, &ir->value[condition]);
    ir_broadcast_dims(&v, &ir->value[x]);
    ir_broadcast_dims(&v, &ir->value[y]);
    return wb__ir_make(ir, v, 3, (int[]){condition, x, y}, 0, NULL);
}

int wb__ir_reduce(wb__ir *ir, wb__op op, int x, unsigned mask)
{
    const wb__value *p = &ir->value[x];
    wb__value v = ir_blank_value(op, op == WB__OP_argmax ? WB_I32 : (wb_dtype)p->dtype);
    v.ndim = p->ndim;
    for (int i = 0; i < p->ndim; i++) v.dims[i] = mask >> i & 1 ? 1 : p->dims[i];
    return wb__ir_make(ir, v, 1, &x, 1, (int64_t[]){mask});
}

int wb__ir_literal(wb__ir *ir, double value, wb_dtype dtype)
{
    wb__value v = ir_blank_value(WB__OP_literal, dtype);
    v.fixed = true;
    v.value = value;
    return ir_find_or_add(ir, v, 0, NULL, 0, NULL);
}

int wb__ir_move(wb__ir *ir, wb__op op, int x, int ndim, const int64_t *dims, int n_attr,
                const int64_t *attr)
{
    wb__value v = ir_blank_value(op, (wb_dtype)ir->value[x].dtype);
    v.ndim = (uint8_t)ndim;
    if (ndim) memcpy(v.dims, dims, (size_t)ndim * sizeof *dims);
    return wb__ir_make(ir, v, 1, &x, n_attr, attr);
}
