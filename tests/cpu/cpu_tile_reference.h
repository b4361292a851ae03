/* The interpreter that tile programs are compared with.  It stores every value as an array and
 * computes one element at a time. */
#include "backend/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct { double f; int64_t i; } cell;           /* floats in f, integers in i */

static inline int reg_of(wb_dtype t)
{
    switch (t) {
    case WB_F64: return WB__REG_F64;
    case WB_I64: return WB__REG_I64;
    case WB_F32: case WB_F16: case WB_BF16: return WB__REG_F32;
    default: return WB__REG_I32;
    }
}

static inline wb_dtype whole_dtype(int reg)
{
    static const wb_dtype t[] = {WB_F32, WB_F64, WB_I32, WB_I64};
    return t[reg];
}

/* A number rounded or wrapped as a register of kind `reg` holds it. */
static inline cell in_reg(cell c, int reg)
{
    if (reg == WB__REG_F32) c.f = (float)c.f;
    if (reg == WB__REG_I32) c.i = (int32_t)c.i;
    return c;
}

static inline void put_cell(void *p, wb_dtype t, cell c, int reg)
{
    if (reg == WB__REG_F32) {
        float f = (float)c.f;
        wb__convert(p, t, &f, WB_F32, 1);
    } else if (reg == WB__REG_F64) {
        wb__convert(p, t, &c.f, WB_F64, 1);
    } else {
        wb__convert(p, t, &c.i, WB_I64, 1);
    }
}

static inline cell get_cell(const void *p, wb_dtype t)
{
    cell c = {0, 0};
    const int reg = reg_of(t);
    if (reg <= WB__REG_F64) wb__convert(&c.f, WB_F64, p, t, 1);
    else wb__convert(&c.i, WB_I64, p, t, 1);
    return c;
}

static inline cell to_dtype(cell c, int reg, wb_dtype t)
{
    char memory[8];
    put_cell(memory, t, c, reg);
    return get_cell(memory, t);
}

static inline cell apply(wb__op op, int reg, cell x, cell y, cell z)
{
    const bool f = reg <= WB__REG_F64;
    cell r = {0, 0};
#define BOTH(of_f, of_i) (f ? (void)(r.f = (of_f)) : (void)(r.i = (of_i)))
#define ASK(relation) (r.i = f ? x.f relation y.f : x.i relation y.i)
    switch (op) {
    case WB__OP_neg: BOTH(-x.f, -x.i); break;
    case WB__OP_abs: BOTH(fabs(x.f), llabs(x.i)); break;
    case WB__OP_sign: BOTH((x.f > 0) - (x.f < 0), (x.i > 0) - (x.i < 0)); break;
    case WB__OP_square: BOTH(x.f * x.f, x.i * x.i); break;
    case WB__OP_relu: BOTH(x.f < 0 ? 0 : x.f, 0); break;
    case WB__OP_floor: BOTH(floor(x.f), 0); break;
    case WB__OP_add: BOTH(x.f + y.f, x.i + y.i); break;
    case WB__OP_sub: BOTH(x.f - y.f, x.i - y.i); break;
    case WB__OP_mul: BOTH(x.f * y.f, x.i * y.i); break;
    case WB__OP_maximum: BOTH(x.f >= y.f ? x.f : y.f, x.i >= y.i ? x.i : y.i); break;
    case WB__OP_minimum: BOTH(x.f <= y.f ? x.f : y.f, x.i <= y.i ? x.i : y.i); break;
    case WB__OP_eq: ASK(==); break;
    case WB__OP_lt: ASK(<); break;
    case WB__OP_ge: ASK(>=); break;
    case WB__OP_and: r.i = x.i && y.i; break;
    case WB__OP_not: r.i = !x.i; break;
    case WB__OP_isfinite: r.i = isfinite(x.f) != 0; break;
    case WB__OP_where: r = x.i ? y : z; break;
    default: abort();
    }
    return r;
}

/* Reduces element v of index `at` into *to, whose index (of the extreme so far) is *index; an index
 * below 0: *to is empty.  f: compares floats, else integers. */
static inline void accumulate(wb__op op, bool f, cell *to, int64_t *index, cell v, int64_t at)
{
    if (*index < 0) {
        *to = v;
        *index = at;
    } else if (op == WB__OP_sum) {
        to->f += v.f;
        to->i += v.i;
    } else if (op == WB__OP_min ? (f ? v.f < to->f : v.i < to->i)
                                : (f ? v.f > to->f : v.i > to->i)) {
        *to = v;
        *index = at;
    }
}

static inline void *address_of(void **buffers, const wb__view *v, const int64_t *index)
{
    int64_t at = v->offset;
    for (int i = 0; i < v->ndim; i++) at += v->strides[i] * index[i];
    return (char *)buffers[v->buffer] + at * (int64_t)wb__dtype_size(v->dtype);
}

/* Turns an index of a padded view into that of the part; false: the index is outside the window. */
static inline bool go_inside(const wb__window *w, int ndim, int64_t *index)
{
    for (int d = 0; d < ndim; d++) {
        const int64_t from = index[d] - w->begin[d];
        index[d] = from / w->step[d];
        if (from < 0 || from % w->step[d] || index[d] >= w->size[d]) return false;
    }
    return true;
}

static inline void interpret(const wb__fused *f, int segment, void **buffers,
                             const wb__number *numbers)
{
    const wb__space *s = &f->spaces[segment];
    const int outer_dims = s->ndim - s->row_dims - s->col_dims;
    int64_t n = 1, cols = 1, rows = 1;
    for (int i = 0; i < s->ndim; i++) {
        n *= s->dims[i];
        if (i >= s->ndim - s->col_dims) cols *= s->dims[i];
        else if (i >= outer_dims) rows *= s->dims[i];
    }
    cell **value = calloc((size_t)f->n_instr, sizeof *value);
    int64_t (*index)[WB_MAX_DIMS] = calloc((size_t)n, sizeof *index);
    for (int64_t e = 0; e < n; e++) {
        int64_t left = e;
        for (int i = s->ndim - 1; i >= 0; i--) {
            index[e][i] = left % s->dims[i];
            left /= s->dims[i];
        }
    }
    for (int i = 0; i < f->n_instr; i++) {                  /* all reads come before all writes */
        const wb__instr *in = &f->instr[i];
        const bool views = in->arg >= 0 && in->arg < f->n_views;
        const wb__view *v = views ? &f->views[segment * f->n_views + in->arg] : NULL;
        cell *d = value[i] = calloc((size_t)n, sizeof *d);
        const int number = f->args ? f->args[segment * f->n_instr + i] : in->arg;
        const bool reads = in->a >= 0 && in->kind != WB__LOAD;
        const int reg = reads ? f->instr[in->op == WB__OP_where ? in->b : in->a].reg : in->reg;
        for (int64_t e = 0; e < n; e++) {
            const cell none = {0, 0};
            const cell x = reads ? value[in->a][e] : none;
            const cell y = in->b >= 0 ? value[in->b][e] : none;
            const cell z = in->c >= 0 ? value[in->c][e] : none;
            switch ((wb__instr_kind)in->kind) {
            case WB__LOAD: {
                int64_t at[WB_MAX_DIMS];
                memcpy(at, index[e], sizeof at);
                if (in->a < 0 || go_inside(&f->windows[in->a], v->ndim, at))
                    d[e] = get_cell(address_of(buffers, v, at), v->dtype);
                break;
            }
            case WB__NUMBER: d[e] = (cell){numbers[number].f, (int64_t)numbers[number].f}; break;
            case WB__IOTA:
                d[e].i = in->scale * index[e][in->arg] + in->shift;
                d[e].f = (double)d[e].i;
                break;
            case WB__ELEMENTWISE_OP: d[e] = in_reg(apply(in->op, reg, x, y, z), in->reg); break;
            case WB__CAST: d[e] = to_dtype(x, reg, in->dtype); break;
            default: break;
            }
            const bool computed =
                in->kind == WB__ELEMENTWISE_OP || in->kind == WB__NUMBER || in->kind == WB__IOTA;
            if (computed && wb__is_narrow(in))
                d[e] = to_dtype(d[e], in->reg, in->dtype);
        }
        if (in->kind == WB__REDUCE_COLUMNS)
            for (int64_t r = 0; r < n / cols; r++) {
                cell best = {0, 0};
                int64_t at = -1;
                for (int64_t c = 0; c < cols; c++)
                    accumulate(in->op, reg <= WB__REG_F64, &best, &at, value[in->a][r * cols + c],
                               c);
                if (in->op == WB__OP_argmax) best = (cell){(double)at, at};
                best = in_reg(best, in->reg);
                if (wb__is_narrow(in)) best = to_dtype(best, in->reg, in->dtype);
                for (int64_t c = 0; c < cols; c++) d[r * cols + c] = best;
            }
    }
    for (int i = 0; i < f->n_instr; i++) {
        const wb__instr *in = &f->instr[i];
        if (in->kind != WB__STORE && in->kind < WB__REDUCE_ROWS) continue;
        const wb__view *v = &f->views[segment * f->n_views + in->arg];
        const int reg = f->instr[in->a].reg;

        if (in->kind == WB__STORE) {
            for (int64_t e = 0; e < n; e++)
                put_cell(address_of(buffers, v, index[e]), v->dtype, value[in->a][e], reg);
            continue;
        }
        const bool all = in->kind == WB__REDUCE_ALL;
        const int64_t outers = all ? 1 : n / rows / cols, lines = all ? n : rows;
        const int64_t wide = all ? 1 : cols;
        for (int64_t o = 0; o < outers; o++)
            for (int64_t c = 0; c < wide; c++) {
                cell best = {0, 0};
                int64_t at = -1;
                for (int64_t r = 0; r < lines; r++)
                    accumulate(in->op, reg <= WB__REG_F64, &best, &at,
                               value[in->a][(o * lines + r) * wide + c], r);
                const bool argmax = in->op == WB__OP_argmax;
                if (argmax) best = (cell){(double)at, at};
                put_cell(address_of(buffers, v, index[o * lines * wide + c]), v->dtype,
                         in_reg(best, in->reg), argmax ? WB__REG_I64 : in->reg);
            }
    }
    for (int i = 0; i < f->n_instr; i++) free(value[i]);
    free(value);
    free(index);
}
