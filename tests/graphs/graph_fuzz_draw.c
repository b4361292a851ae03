/* Draws a program: a list of instructions over earlier values, then the results to evaluate and
 * how. */
#include "graph_fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double small_number(wb_dtype t)
{
    if (!is_float(t)) return (double)draw_between(t == WB_U8 ? 0 : -3, 4);
    return (double)draw_between(-8, 8) / 4;
}

static void any_sizes(const drawing *d, instruction *s, int ndim)
{
    s->n = ndim;
    for (int i = 0; i < ndim; i++) s->p[i] = draw_size(d);
}

/* ---- sources --------------------------------------------------------------------------------- */

static bool draw_source(drawing *d, instruction *s)
{
    static const wb_dtype number_types[] = {WB_F32, WB_F64, WB_I32, WB_I64,
                                            WB_I8,  WB_U8,  WB_F16, WB_BF16};
    bool real = s->op == OP_RAND || s->op == OP_RANDN;
    s->dtype = real || draw_chance(2) ? d->main : number_types[draw_between(0, 7)];
    if (real && !is_float(s->dtype)) s->dtype = WB_F32;
    any_sizes(d, s,
              s->op == OP_ARANGE                      ? 1
              : s->op == OP_EYE || s->op == OP_CAUSAL ? 2
                                                      : (int)draw_between(0, 4));
    if (s->op == OP_EYE) s->p[1] = s->p[0];
    s->number = small_number(s->dtype);
    return add_step(d, s) >= 0;
}

static bool draw_leaf(drawing *d, op_kind op)
{
    static const wb_dtype all[] = {WB_F32, WB_F64, WB_F16, WB_BF16, WB_I8,
                                   WB_U8,  WB_I32, WB_I64, WB_BOOL};
    int64_t dims[WB_MAX_DIMS];
    int ndim = (int)draw_between(0, draw_chance(8) ? 8 : 4);
    for (int i = 0; i < ndim; i++) dims[i] = ndim > 4 ? draw_between(1, 2) : draw_size(d);
    int i = operand_leaf(d, draw_chance(3) ? all[draw_between(0, 8)] : d->main, ndim, dims);
    if (i >= 0) d->p->step[i].op = op;
    return i >= 0;
}

/* ---- elementwise ----------------------------------------------------------------------------- */

/* A shape that can be broadcast with that of x. */
static int other_shape(const drawing *d, const value *x, int64_t *dims)
{
    int ndim = x->ndim, drop = ndim && draw_chance(3) ? (int)draw_between(0, ndim) : 0;
    for (int i = 0; i < ndim - drop; i++) {
        int64_t n = x->dims[i + drop];
        dims[i] = n == 1 && draw_chance(3) ? draw_size(d) : draw_chance(4) ? 1 : n;
    }
    return ndim - drop;
}

static bool draw_elementwise(drawing *d, instruction *s)
{
    int kind = s->op == OP_WHERE || s->op == OP_CAST || s->op == OP_STOP ? ANY
             : s->op == OP_UNARY && draw_chance(is_float(d->main) ? 6 : 2) ? NO_BOOL
             : s->op == OP_UNARY || s->op == OP_ISFINITE ? FLOATS : ANY;
    int i = operand_any(d, kind, 0, WB_MAX_DIMS);
    if (i < 0) return false;
    const value x = d->v[i];
    int64_t dims[WB_MAX_DIMS];
    bool floats = is_float(x.dtype);
    s->in[s->n_in++] = i;
    switch (s->op) {
    case OP_UNARY: s->row = (int)draw_between(0, floats ? N_UNARY - 1 : U_square); break;
    case OP_CAST: s->dtype = (wb_dtype)draw_between(WB_F32, WB_BOOL); break;
    case OP_BINARY: case OP_COMPARE: {
        int ndim = other_shape(d, &x, dims);
        s->row = (int)(s->op == OP_BINARY ? draw_between(0, N_BINARY - 1)
                       : x.dtype == WB_BOOL ? (int[]){C_eq, C_ne, C_and, C_or}[draw_between(0, 3)]
                                            : draw_between(0, C_ge));
        int j = operand_like(d, x.dtype, ndim, dims);
        s->in[s->n_in++] = j;
        if (draw_chance(2)) s->in[0] = j, s->in[1] = i;
        break;
    }
    case OP_BINARY_NUMBER: case OP_COMPARE_NUMBER:
        s->row = (int)(s->op == OP_BINARY_NUMBER ? draw_between(0, N_BINARY - 1)
                                                 : draw_between(0, C_ge));
        s->number = small_number(x.dtype);
        s->flag = draw_chance(3);
        break;
    case OP_WHERE: {
        int ndim = other_shape(d, &x, dims);
        int c = operand_like(d, WB_BOOL, ndim, dims);
        ndim = other_shape(d, &x, dims);
        int j = operand_like(d, x.dtype, ndim, dims);
        if (c < 0) return false;
        s->in[0] = c;
        s->in[1] = draw_chance(2) ? i : j;
        s->in[2] = s->in[1] == i ? j : i;
        s->n_in = 3;
        break;
    }
    default: break;
    }
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] < 0) return false;
    return add_step(d, s) >= 0;
}

/* ---- reductions and shapes ------------------------------------------------------------------- */

static bool draw_reduce(drawing *d, instruction *s)
{
    bool whole = !is_float(d->main) || draw_chance(3);
    int least = s->op == OP_REDUCE && draw_chance(4) ? 0 : 1;
    int i = operand_any(d, whole ? NO_BOOL : FLOATS, least, WB_MAX_DIMS);
    if (i < 0) return false;
    const value *x = &d->v[i];
    s->in[s->n_in++] = i;
    s->row = (int)(is_float(x->dtype) ? draw_between(0, N_REDUCE - 1)
                                      : (int[]){R_sum, R_sum, R_max, R_min}[draw_between(0, 3)]);
    s->flag = draw_chance(3);
    if (s->op != OP_REDUCE) {
        s->n = 1;
        s->p[0] = draw_between(-x->ndim, x->ndim - 1);
        for (; s->op == OP_CUMSUM && s->n < 3; s->n++) s->p[s->n] = draw_between(0, 1);
    } else if (!draw_chance(3)) {
        for (int a = 0; a < x->ndim; a++)
            if (draw_chance(2)) s->p[s->n++] = draw_chance(2) ? a : a - x->ndim;
    }
    int y = add_step(d, s);
    if (y >= 0 && !is_float(d->v[y].dtype) && draw_chance(2)) {     /* it may have overflowed */
        instruction cast = {.op = OP_CAST, .n_in = 1, .in = {y}};
        cast.dtype = draw_chance(2) ? WB_F32 : (wb_dtype)draw_between(WB_F32, WB_I64);
        add_step(d, &cast);
    }
    return y >= 0;
}

static void any_reshape(const value *x, instruction *s)
{
    int64_t left = x->size;
    int most = draw_chance(6) ? 8 : 4;
    s->n = 0;
    if (!left) {
        s->n = x->ndim;
        for (int i = 0; i < x->ndim; i++) s->p[i] = x->dims[x->ndim - 1 - i];
        return;
    }
    while (s->n < most && (left > 1 || draw_chance(4))) {
        int64_t f = draw_between(1, 6);
        if (draw_chance(3)) f = left;
        if (left % f) continue;
        s->p[s->n++] = f;
        left /= f;
    }
    if (left > 1 && s->n) s->p[s->n - 1] *= left;
    else if (left > 1) s->p[s->n++] = left;
}

static bool draw_shape(drawing *d, instruction *s)
{
    bool needs_axis = s->op != OP_RESHAPE && s->op != OP_UNSQUEEZE && s->op != OP_EXPAND;
    int i = operand_any(d, ANY, needs_axis ? s->op == OP_TRANSPOSE ? 2 : 1 : 0, WB_MAX_DIMS);
    if (i < 0) return false;
    const value *x = &d->v[i];
    s->in[s->n_in++] = i;
    int64_t a = x->ndim ? draw_between(-x->ndim, x->ndim - 1) : 0;
    int64_t n = x->ndim ? x->dims[a < 0 ? a + x->ndim : a] : 0;
    s->p[0] = a;
    s->n = 1;
    switch (s->op) {
    case OP_RESHAPE: any_reshape(x, s); break;
    case OP_PERMUTE:
        s->n = x->ndim;
        for (int k = 0; k < s->n; k++) s->p[k] = k;
        for (int k = s->n - 1; k > 0; k--) {
            int64_t j = draw_between(0, k), was = s->p[k];
            s->p[k] = s->p[j];
            s->p[j] = was;
        }
        break;
    case OP_EXPAND: {
        int extra = x->ndim < WB_MAX_DIMS ? (int)draw_between(0, 1) : 0;
        s->n = x->ndim + extra;
        s->p[0] = draw_size(d);
        for (int k = 0; k < x->ndim; k++)
            s->p[k + extra] = x->dims[k] == 1 ? draw_size(d) : x->dims[k];
        break;
    }
    case OP_UNSQUEEZE: s->p[0] = draw_between(0, x->ndim); break;
    case OP_SQUEEZE:
        for (int k = 0; k < x->ndim; k++)
            if (x->dims[k] == 1) s->p[0] = k;
        break;
    case OP_SLICE:
        s->n = 3;
        s->p[1] = draw_between(0, n);
        s->p[2] = draw_between(s->p[1], n);
        if (s->p[1] && draw_chance(4)) s->p[1] -= n;
        break;
    case OP_PAD: s->n = 3; s->p[1] = draw_between(0, 2); s->p[2] = draw_between(0, 2); break;
    default: break;
    }
    return add_step(d, s) >= 0;
}

/* An operand that a product or convolution already has, so that two instructions read one value
 * with different strides; else any value. */
static int operand_twice(drawing *d, int least_ndim, int most_ndim)
{
    for (int tries = 0; tries < 12 && d->p->n && !draw_chance(3); tries++) {
        const instruction *s = &d->p->step[draw_between(0, d->p->n - 1)];
        if (s->op < OP_TAKE || s->op > OP_MEANPOOL || !s->n_in) continue;
        int i = s->in[s->n_in - 1 - (draw_chance(3) ? (int)draw_between(0, s->n_in - 1) : 0)];
        if (d->v[i].ndim >= least_ndim && d->v[i].ndim <= most_ndim) return i;
    }
    return operand_any(d, ANY, least_ndim, most_ndim);
}

static bool draw_joined(drawing *d, instruction *s)
{
    int i =
        operand_twice(d, s->op == OP_CONCAT, s->op == OP_CONCAT ? WB_MAX_DIMS : WB_MAX_DIMS - 1);
    if (i < 0) return false;
    const value x = d->v[i];
    int parts = (int)draw_between(2, 4), axis = (int)draw_between(0, x.ndim - (s->op == OP_CONCAT));
    s->n = 1;
    s->p[0] = axis;
    s->in[s->n_in++] = i;
    for (int k = 1; k < parts; k++) {
        int64_t dims[WB_MAX_DIMS];
        memcpy(dims, x.dims, sizeof dims);
        if (s->op == OP_CONCAT && draw_chance(2)) dims[axis] = draw_size(d);
        int j = draw_chance(6) ? i : operand_like(d, x.dtype, x.ndim, dims);
        if (j < 0) return false;
        s->in[s->n_in++] = j;
    }
    int first = (int)draw_between(0, s->n_in - 1), was = s->in[0];
    s->in[0] = s->in[first];
    s->in[first] = was;
    return add_step(d, s) >= 0;
}

/* ---- the choice of instructions, and programs ------------------------------------------------ */

static const struct { op_kind op; int weight;
} weights[] = {
    {OP_LEAF, 3},
    {OP_VARIABLE, 1},
    {OP_FULL, 1},
    {OP_ARANGE, 1},
    {OP_EYE, 1},
    {OP_CAUSAL, 1},
    {OP_RAND, 1},
    {OP_RANDN, 1},
    {OP_UNARY, 12},
    {OP_NOT, 1},
    {OP_ISFINITE, 1},
    {OP_BINARY, 12},
    {OP_BINARY_NUMBER, 5},
    {OP_COMPARE, 3},
    {OP_COMPARE_NUMBER, 2},
    {OP_WHERE, 4},
    {OP_CAST, 5},
    {OP_STOP, 1},
    {OP_REDUCE, 11},
    {OP_ARGMAX, 1},
    {OP_ONECOLD, 1},
    {OP_CUMSUM, 2},
    {OP_RESHAPE, 5},
    {OP_PERMUTE, 4},
    {OP_EXPAND, 2},
    {OP_TRANSPOSE, 2},
    {OP_FLATTEN, 1},
    {OP_UNSQUEEZE, 1},
    {OP_SQUEEZE, 1},
    {OP_SLICE, 5},
    {OP_FLIP, 2},
    {OP_PAD, 3},
    {OP_CONCAT, 6},
    {OP_STACK, 6},
    {OP_TAKE, 3},
    {OP_ONEHOT, 1},
    {OP_MATMUL, 6},
    {OP_LINEAR, 7},
    {OP_CONV, 5},
    {OP_MAXPOOL, 2},
    {OP_MEANPOOL, 2},
    {OP_SOFTMAX, 3},
    {OP_LOGSOFTMAX, 2},
    {OP_SOFTMAX_OVER, 1},
    {OP_LOGSOFTMAX_OVER, 1},
    {OP_NORMALISE, 3},
    {OP_ATTENTION, 3},
    {OP_DROPOUT, 1},
    {OP_LOSS, 3},
    {OP_LAYERNORM, 2},
    {OP_BATCHNORM, 2},
    {OP_GRADIENT, 7},
    {OP_JACOBIAN, 1},
    {OP_ASSIGN, 3},
};

bool draw_step(drawing *d)
{
    int sum = 0, at = 0;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) sum += weights[i].weight;
    int64_t left = draw_between(0, sum - 1);
    while (left >= weights[at].weight) left -= weights[at++].weight;
    instruction s = {.op = weights[at].op};
    switch (s.op) {
    case OP_LEAF: case OP_VARIABLE: return draw_leaf(d, s.op);
    case OP_FULL: case OP_ARANGE: case OP_EYE: case OP_CAUSAL: case OP_RAND: case OP_RANDN:
        return draw_source(d, &s);
    case OP_UNARY: case OP_BINARY: case OP_BINARY_NUMBER: case OP_COMPARE: case OP_COMPARE_NUMBER:
    case OP_NOT: case OP_ISFINITE: case OP_WHERE: case OP_CAST: case OP_STOP:
        return draw_elementwise(d, &s);
    case OP_REDUCE: case OP_ARGMAX: case OP_ONECOLD: case OP_CUMSUM: return draw_reduce(d, &s);
    case OP_CONCAT: case OP_STACK: return draw_joined(d, &s);
    case OP_RESHAPE: case OP_PERMUTE: case OP_EXPAND: case OP_TRANSPOSE: case OP_FLATTEN:
    case OP_UNSQUEEZE: case OP_SQUEEZE: case OP_SLICE: case OP_FLIP: case OP_PAD:
        return draw_shape(d, &s);
    default: return draw_product(d, s.op);
    }
}

/* Draws the requested results; in some programs these are only values that no instruction uses. */
static void choose_results(program *p)
{
    int may[MOST_INSTRUCTIONS], n = 0;
    bool used[MOST_INSTRUCTIONS] = {false}, ends = draw_chance(3);
    for (int i = 0; i < p->n && ends; i++)
        for (int k = 0; k < p->step[i].n_in; k++) used[p->step[i].in[k]] = true;
    for (int i = 0; i < p->n; i++)
        if (p->step[i].op > OP_VARIABLE && p->step[i].op != OP_ASSIGN && !used[i]) may[n++] = i;
    int most = (int)draw_between(1, MOST_RESULTS);
    p->n_results = 0;
    while (n && p->n_results < most) {
        int k = (int)(draw_chance(3) ? n - 1 : draw_between(0, n - 1));
        p->results[p->n_results++] = may[k];
        memmove(may + k, may + k + 1, (size_t)(--n - k) * sizeof *may);
    }
    for (int i = p->n_results - 1; i > 0; i--) {
        int j = (int)draw_between(0, i), was = p->results[i];
        p->results[i] = p->results[j];
        p->results[j] = was;
    }
}

static void choose_manner(program *p, bool device)
{
    manner *w = &p->way;
    bool recordable = true;
    *w = (manner){.threads = (int)draw_between(1, 2), .calls = 1};
    w->n_first = draw_chance(2) ? p->n_results : (int)draw_between(0, p->n_results);
    for (int i = 0; i < p->n; i++)
        recordable &= p->step[i].op != OP_LAYERNORM && p->step[i].op != OP_BATCHNORM &&
                      p->step[i].op != OP_JACOBIAN;
    if (draw_chance(5) && !device) w->eager = true;
    else if (recordable && draw_chance(4)) w->compiled = true;
    if (w->compiled) w->calls = 3;
    w->inner_scope = !w->compiled && draw_chance(6);
    w->free_some = !w->compiled && draw_chance(5);
}

void draw_program(program *p, uint64_t seed, bool device)
{
    static const wb_dtype mains[] = {WB_F32, WB_F32, WB_F32, WB_F32, WB_F32, WB_F64,
                                     WB_F64, WB_F16, WB_BF16, WB_I32, WB_I8, WB_I8, WB_U8};
    static const int64_t sizes[] = {1, 1, 2, 3, 4, 5, 8, 16, 17, 19, 33};
    static drawing d;
    memset(p, 0, sizeof *p);
    memset(&d, 0, sizeof d);
    draw_seed(seed);
    interpret_forget();
    wb_seed(seed);
    p->seed = seed;
    d.p = p;
    d.main = mains[draw_between(0, 12)];
    d.grid = !draw_chance(3);
    d.special = draw_chance(25);
    for (int i = 0; i < 4; i++) d.sizes[i] = sizes[draw_between(0, draw_chance(4) ? 10 : 6)];
    /* short programs on a device, which compiles their kernels */
    int n = (int)draw_between(3, device ? 8 : draw_chance(3) ? 40 : 15);
    for (int made = 0, tries = 0; made < n && tries < 200 && p->n < MOST_INSTRUCTIONS - 8;
         tries++) {
        int before = p->n;
        bool good = draw_step(&d);
        made += good;
        for (int i = p->n; i < before; i++) d.v[i] = (value){0};
    }
    choose_results(p);
    prune_program(p);
    choose_manner(p, device);
}
