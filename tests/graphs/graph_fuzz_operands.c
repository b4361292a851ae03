/* Chooses operands that fit: earlier values if possible, else values that are permuted, sliced,
 * expanded or converted. */
#include "graph_fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- chance ---------------------------------------------------------------------------------- */

static uint64_t state;

void draw_seed(uint64_t seed) { state = seed * 0x9e3779b97f4a7c15u + 0x1234567; }

uint64_t draw_word(void)            /* splitmix64 */
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int64_t draw_between(int64_t low, int64_t high)
{
    return low + (int64_t)(draw_word() % (uint64_t)(high - low + 1));
}

bool draw_chance(int one_in) { return draw_word() % (uint64_t)one_in == 0; }

int64_t draw_size(const drawing *d)
{
    if (draw_chance(35)) return 0;
    if (draw_chance(12)) return draw_between(1, 20);
    return d->sizes[draw_between(0, 3)];
}

static double draw_real(const drawing *d, wb_dtype t)
{
    static const double special[] = {INFINITY, -INFINITY, NAN, -0.0, 0.0, 1.0};
    if (d->special && draw_chance(6)) return special[draw_between(0, 5)];
    if (d->grid) return (double)draw_between(-8, 8) / 4;
    double x = (double)(int64_t)(draw_word() >> 11) * 0x1p-53 * 4 - 2;
    if (draw_chance(40)) x *= draw_chance(2) ? 1e-3 : 10;
    if (t == WB_F64 && draw_chance(100)) x *= 1e-50;
    return rounded(t, x);
}

static int64_t draw_integer(wb_dtype t)
{
    if (t == WB_BOOL) return draw_between(0, 1);
    if (draw_chance(3)) return wrapped(t, (int64_t)draw_word() >> (draw_chance(2) ? 0 : 33));
    if (draw_chance(2)) return wrapped(t, draw_between(-128, 127));
    return wrapped(t, draw_between(t == WB_U8 ? 0 : -3, 5));
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* False for values so large or inaccurate that results computed from them could not be checked. */
static bool useful(const drawing *d, const value *x)
{
    int64_t bad = 0;
    for (int64_t k = 0; k < x->size; k++) {
        const number *n = &numbers[x->at[k]];
        if (!is_float(x->dtype)) bad += n->error != 0;
        else if (!isfinite(n->v)) bad += !d->special || !isfinite(n->error);
        else if (fabs(n->v) > (x->dtype == WB_F16 ? 1e3 : 1e5)) return false;
        else bad += !(n->error < 0.02 * (1 + fabs(n->v)));
    }
    return bad * 6 <= x->size;
}

int add_step(drawing *d, const instruction *s)
{
    program *p = d->p;
    if (p->n == MOST_INSTRUCTIONS || n_numbers > MOST_NUMBERS / 2) return -1;
    p->step[p->n] = *s;
    value was = s->op == OP_ASSIGN ? d->v[s->in[0]] : (value){0};
    if (!interpret_step(p, d->v, p->n) ||
        !useful(d, s->op == OP_ASSIGN ? &d->v[s->in[0]] : &d->v[p->n])) {
        if (s->op == OP_ASSIGN) d->v[s->in[0]] = was;
        return -1;
    }
    return p->n++;
}

int operand_leaf(drawing *d, wb_dtype t, int ndim, const int64_t *dims)
{
    instruction s = {.op = draw_chance(6) ? OP_VARIABLE : OP_LEAF, .dtype = t, .n = ndim};
    int64_t size = 1;
    for (int i = 0; i < ndim; i++) size *= s.p[i] = dims[i];
    if (size > 1000 || size < 0) return -1;
    s.data = malloc(((size_t)size + 1) * sizeof *s.data);
    if (!s.data) abort();
    for (int64_t k = 0; k < size; k++) {
        if (is_float(t)) s.data[k].v = draw_real(d, t);
        else s.data[k].i = draw_integer(t);
    }
    int i = add_step(d, &s);
    if (i < 0) free(s.data);
    return i;
}

/* ---- finding --------------------------------------------------------------------------------- */

static bool of_kind(int kind, wb_dtype t)
{
    return kind == ANY || (kind == FLOATS && is_float(t)) || (kind == NO_BOOL && t != WB_BOOL) ||
           (kind == INTEGERS && !is_float(t) && t != WB_BOOL);
}

int operand_any(drawing *d, int kind, int least_ndim, int most_ndim)
{
    int n = d->p->n;
    for (int tries = 0; n && tries < 10; tries++) {
        int i = (int)draw_between(n > 6 && draw_chance(2) ? n - 5 : 0, n - 1);
        const value *x = &d->v[i];
        if (d->p->step[i].op == OP_ASSIGN || !of_kind(kind, x->dtype)) continue;
        if (x->ndim >= least_ndim && x->ndim <= most_ndim && x->size <= 600) return i;
    }
    static const wb_dtype mixed[] = {WB_F32, WB_F64, WB_F16, WB_BF16, WB_I8,
                                     WB_U8,  WB_I32, WB_I64, WB_BOOL};
    wb_dtype t = d->main;
    if (!of_kind(kind, t) || draw_chance(12)) t = mixed[draw_between(0, 8)];
    if (!of_kind(kind, t)) t = kind == INTEGERS ? WB_I32 : WB_F32;
    int64_t dims[WB_MAX_DIMS];
    int ndim = (int)draw_between(0, draw_chance(10) ? 8 : 4);
    if (ndim < least_ndim) ndim = least_ndim;
    if (ndim > most_ndim) ndim = most_ndim;
    for (int i = 0; i < ndim; i++) dims[i] = ndim > 4 ? draw_between(1, 2) : draw_size(d);
    return operand_leaf(d, t, ndim, dims);
}

static bool same_dims(const value *x, int ndim, const int64_t *dims)
{
    return x->ndim == ndim && (!ndim || !memcmp(x->dims, dims, (size_t)ndim * sizeof *dims));
}

/* Adds one instruction that changes value i to the given shape, if there is one. */
static int fitted(drawing *d, int i, int ndim, const int64_t *dims, int64_t size)
{
    const value *x = &d->v[i];
    instruction s = {.n_in = 1, .in = {i}};
    if (same_dims(x, ndim, dims)) return i;
    if (x->size == size && draw_chance(2)) {
        s.op = OP_RESHAPE;
        s.n = ndim;
        memcpy(s.p, dims, (size_t)ndim * sizeof *dims);
        return add_step(d, &s);
    }
    if (x->ndim == ndim && ndim >= 2) {                 /* a transposition */
        int64_t swapped[WB_MAX_DIMS];
        memcpy(swapped, dims, (size_t)ndim * sizeof *dims);
        swapped[ndim - 1] = dims[ndim - 2];
        swapped[ndim - 2] = dims[ndim - 1];
        s.op = OP_TRANSPOSE;
        if (same_dims(x, ndim, swapped)) return add_step(d, &s);
    }
    if (x->ndim == ndim) {                              /* a slice, along one axis or several */
        for (int a = 0; a < ndim; a++) {
            if (d->v[i].dims[a] <= dims[a]) continue;
            int64_t start = draw_between(0, d->v[i].dims[a] - dims[a]);
            s = (instruction){
                .op = OP_SLICE, .n_in = 1, .in = {i}, .n = 3, .p = {a, start, start + dims[a]}};
            if ((i = add_step(d, &s)) < 0) return -1;
        }
        if (same_dims(&d->v[i], ndim, dims)) return i;
    }
    if (d->v[i].ndim == ndim + 1 && same_dims(&(value){.ndim = ndim}, 0, NULL) == (ndim == 0)) {
        for (int a = 0; a <= ndim; a++) {               /* a sum over one axis */
            int64_t rest[WB_MAX_DIMS];
            for (int k = 0, j = 0; k <= ndim; k++)
                if (k != a) rest[j++] = d->v[i].dims[k];
            if (memcmp(rest, dims, (size_t)ndim * sizeof *dims) || d->v[i].dtype == WB_BOOL)
                continue;
            s = (instruction){
                .op = OP_REDUCE, .n_in = 1, .in = {i}, .n = 1, .p = {a}, .row = R_sum};
            return add_step(d, &s);
        }
    }
    bool stretches = d->v[i].ndim <= ndim;
    for (int a = 1; stretches && a <= d->v[i].ndim; a++) {
        int64_t have = d->v[i].dims[d->v[i].ndim - a];
        stretches = have == 1 || have == dims[ndim - a];
    }
    if (!stretches) return -1;
    s = (instruction){.op = OP_EXPAND, .n_in = 1, .in = {i}, .n = ndim};
    memcpy(s.p, dims, (size_t)ndim * sizeof *dims);
    return add_step(d, &s);
}

/* A leaf, or a function of a leaf. */
static int computed_leaf(drawing *d, wb_dtype t, int ndim, const int64_t *dims)
{
    static const int functions[] = {U_tanh, U_relu, U_neg, U_square, U_sigmoid};
    int i = operand_leaf(d, t, ndim, dims);
    if (i < 0 || t == WB_BOOL || draw_chance(2)) return i;
    int f = functions[draw_between(0, is_float(t) ? 4 : 0)];
    instruction s = {.op = OP_UNARY, .row = is_float(t) ? f : U_neg, .n_in = 1, .in = {i}};
    int y = add_step(d, &s);
    return y < 0 ? i : y;
}

int operand_like(drawing *d, wb_dtype t, int ndim, const int64_t *dims)
{
    int64_t size = 1;
    for (int i = 0; i < ndim; i++) size *= dims[i];
    for (int tries = 0; tries < 8 && d->p->n; tries++) {
        int i = (int)draw_between(0, d->p->n - 1);
        if (d->p->step[i].op == OP_ASSIGN) continue;
        if (d->v[i].dtype != t && !draw_chance(4)) continue;
        if (!same_dims(&d->v[i], ndim, dims) && tries < 4) continue;
        int n = d->p->n, y = fitted(d, i, ndim, dims, size);
        if (y >= 0 && d->v[y].dtype != t) {
            instruction s = {.op = OP_CAST, .dtype = t, .n_in = 1, .in = {y}};
            y = add_step(d, &s);
        }
        if (y >= 0) return y;
        d->p->n = n;
    }
    return computed_leaf(d, t, ndim, dims);
}
