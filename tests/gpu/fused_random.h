/* Random fused programs, for tests of the backends that run them.  Spaces and views are of all
 * kinds; numbers are small integers, so that results are exact and must be equal. */
#ifndef WB_TEST_FUSED_RANDOM_H
#define WB_TEST_FUSED_RANDOM_H

#include "tests/cpu/cpu_tile_reference.h"

#include "test.h"

/* ---- drawing --------------------------------------------------------------------------------- */

static uint64_t drawn;

static inline uint64_t draw(void)
{
    drawn += 0x9e3779b97f4a7c15u;
    uint64_t z = drawn;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline int64_t below(int64_t n) { return (int64_t)(draw() % (uint64_t)n); }
static inline bool chance(int percent) { return below(100) < percent; }

enum { MOST_INSTR = 48, MOST_VIEWS = 40, MOST_BUFFERS = 128, MOST_SEGMENTS = 3 };

typedef struct {
    wb__fused f;
    wb__instr instr[MOST_INSTR];
    wb__space spaces[MOST_SEGMENTS];
    wb__view views[MOST_SEGMENTS * MOST_VIEWS];
    wb__window windows[MOST_VIEWS];
    int32_t args[MOST_SEGMENTS * MOST_INSTR];
    double bound[MOST_INSTR];
    int view_of_load[MOST_VIEWS];
    int n_buffers;
    int64_t bytes[MOST_BUFFERS];
    wb__number numbers[8];
    int n_shapes;
} program;

static const wb_dtype dtypes[] =
    {WB_F32, WB_F32, WB_F32, WB_F64, WB_F16, WB_BF16, WB_I8, WB_U8, WB_I32, WB_I64, WB_BOOL};

static inline void draw_space(wb__space *s, int ndim, int outer, int rows)
{
    int64_t size = 1;
    static const int64_t some[] =
        {1, 2, 3, 5, 7, 10, 16, 17, 33, 64, 65, 100, 128, 250, 1000, 1025, 2100, 5000};
    memset(s, 0, sizeof *s);
    s->ndim = ndim;
    s->row_dims = rows;
    s->col_dims = ndim - outer - rows;
    for (int i = 0; i < ndim; i++) {
        int64_t d = chance(20) ? 1 : some[below(WB__COUNT(some))];
        while (size * d > 40000) d = 1 + below(4);
        s->dims[i] = d;
        size *= d;
    }
}

/* Draws a view: its dimensions are in any order in memory, with stride 0 along `flat`, sometimes
 * with negative strides or with gaps. */
static inline void draw_view(program *p, const wb__space *s, wb__view *v, wb_dtype t,
                             const bool *flat, bool is_new, int buffer)
{
    int order[WB_MAX_DIMS];
    for (int i = 0; i < s->ndim; i++) order[i] = i;
    if (chance(30))
        for (int i = s->ndim - 1; i > 0; i--) {
            const int j = (int)below(i + 1), o = order[i];
            order[i] = order[j];
            order[j] = o;
        }
    memset(v, 0, sizeof *v);
    v->dtype = t;
    v->ndim = s->ndim;
    v->offset = chance(20) ? below(9) : 0;
    int64_t step = chance(5) ? 2 : 1;
    for (int k = s->ndim - 1; k >= 0; k--) {
        const int i = order[k];
        v->dims[i] = s->dims[i];
        if (flat[i]) continue;
        v->strides[i] = step;
        step *= s->dims[i];
        if (chance(5)) step += below(5);
    }
    for (int i = 0; i < s->ndim; i++)
        if (v->strides[i] && chance(4)) {
            v->offset += v->strides[i] * (s->dims[i] - 1);
            v->strides[i] = -v->strides[i];
        }
    if (!is_new) return;
    v->buffer = buffer;
    p->bytes[buffer] = (step + 64 + v->offset) * (int64_t)wb__dtype_size(t);
}

static inline int add_view(program *p, wb_dtype t, const bool *flat)
{
    const int at = p->f.n_views++;
    for (int s = 0; s < p->f.n_segments; s++)
        draw_view(p, &p->spaces[s], &p->views[s * MOST_VIEWS + at], t, flat, true, p->n_buffers++);
    return at;
}

static inline bool is_flat(const wb__view *v)
{
    for (int i = 0; i < v->ndim; i++)
        if (!v->strides[i] && v->dims[i] > 1) return true;
    return false;
}

static inline wb__instr *add(program *p, int kind, int reg, int level, wb_dtype t)
{
    wb__instr *i = &p->instr[p->f.n_instr++];
    *i = (wb__instr){.kind = (uint8_t)kind, .reg = (uint8_t)reg, .level = (uint8_t)level,
                     .dtype = (uint8_t)t,
                     .a = -1, .b = -1, .c = -1, .arg = -1};
    return i;
}

static inline int add_load(program *p, bool row)
{
    const wb_dtype t = dtypes[below(WB__COUNT(dtypes))];
    const wb__space *s = &p->spaces[0];
    bool flat[WB_MAX_DIMS];
    const int broad = chance(40) ? 40 : 0, first_col = s->ndim - s->col_dims;
    for (int i = 0; i < s->ndim; i++) flat[i] = chance(broad) || (row && i >= first_col);
    p->bound[p->f.n_instr] = t == WB_BOOL ? 1 : 4;
    const int view = add_view(p, t, flat);
    add(p, WB__LOAD, reg_of(t), row ? WB__LEVEL_PER_ROW : WB__LEVEL_FULL, t)->arg = view;
    return p->f.n_instr - 1;
}

/* Picks an instruction as an operand, of register kind `reg` (-1: any) and level at most `level`;
 * -1 if there is none. */
static inline int pick(const program *p, int reg, int level)
{
    for (int tries = 0; tries < 30; tries++) {
        const int i = (int)below(p->f.n_instr);
        const wb__instr *in = &p->instr[i];
        if (in->kind >= WB__REDUCE_ROWS || in->level > level) continue;
        if (reg >= 0 && in->reg != reg) continue;
        return i;
    }
    return -1;
}

static inline void add_row(program *p)
{
    static const wb__op ops[] = {
        WB__OP_neg, WB__OP_abs, WB__OP_sign, WB__OP_square, WB__OP_relu, WB__OP_floor, WB__OP_add,
        WB__OP_add, WB__OP_sub, WB__OP_mul, WB__OP_maximum, WB__OP_minimum, WB__OP_eq, WB__OP_lt,
        WB__OP_ge, WB__OP_where, WB__OP_where, WB__OP_not, WB__OP_isfinite, WB__OP_and,
    };
    const wb__op op = ops[below(WB__COUNT(ops))];
    const int class = wb__ops[op].class, level = chance(25) ? WB__LEVEL_PER_ROW : WB__LEVEL_FULL;
    const bool of_bool = op == WB__OP_where || op == WB__OP_not || op == WB__OP_and;
    int a = pick(p, of_bool ? WB__REG_I32 : -1, level), b = -1, c = -1;
    if (a < 0) return;
    const bool is_float = p->instr[a].reg <= WB__REG_F64;
    if (wb__ops[op].accepts == WB__FLOATS && !is_float) return;
    if (op == WB__OP_where) {
        b = pick(p, -1, level);
        if (b < 0 || (c = pick(p, p->instr[b].reg, level)) < 0) return;
    } else if (class == WB__BINARY || class == WB__COMPARE) {
        if ((b = pick(p, p->instr[a].reg, level)) < 0) return;
    }
    const double ba = p->bound[a], bb = b < 0 ? 0 : p->bound[b], bc = c < 0 ? 0 : p->bound[c];
    const bool test = class == WB__COMPARE || class == WB__TEST;
    const double bound = test || op == WB__OP_sign ? 1
                       : op == WB__OP_where ? fmax(bb, bc)
                       : op == WB__OP_square ? ba * ba
                       : op == WB__OP_mul ? ba * bb
                       : op == WB__OP_add || op == WB__OP_sub ? ba + bb : fmax(ba, bb);
    if (bound > 4000) return;
    p->bound[p->f.n_instr] = bound;
    int finest = p->instr[a].level;
    if (b >= 0) finest = WB__MAX(finest, p->instr[b].level);
    if (c >= 0) finest = WB__MAX(finest, p->instr[c].level);
    const wb__instr *like = &p->instr[op == WB__OP_where ? b : a];
    wb__instr *in = add(p, WB__ELEMENTWISE_OP, test ? WB__REG_I32 : like->reg, finest,
                        test ? WB_BOOL : (wb_dtype)like->dtype);
    in->op = (uint16_t)op;
    in->a = a, in->b = b, in->c = c;
}

/* A dtype whose values a register of this kind can represent, also a narrower one. */
static inline wb_dtype some_dtype(int reg)
{
    static const wb_dtype integers[] = {WB_I32, WB_I8, WB_U8, WB_BOOL};
    return reg == WB__REG_I32 ? integers[below(4)] : whole_dtype(reg);
}

static inline void add_reduce_columns(program *p)
{
    const int a = pick(p, -1, WB__LEVEL_FULL);
    if (a < 0 || p->instr[a].level != WB__LEVEL_FULL) return;
    static const wb__op ops[] = {WB__OP_sum, WB__OP_max, WB__OP_min, WB__OP_argmax};
    const wb__op op = ops[below(4)];
    int64_t cols = 1;
    for (int s = 0; s < p->f.n_segments; s++) {
        int64_t n = 1;
        const wb__space *sp = &p->spaces[s];
        for (int i = sp->ndim - sp->col_dims; i < sp->ndim; i++) n *= sp->dims[i];
        cols = WB__MAX(cols, n);
    }
    const double bound = op == WB__OP_argmax ? (double)cols
                       : op == WB__OP_sum ? p->bound[a] * (double)cols : p->bound[a];
    if (bound > 1e6) return;
    p->bound[p->f.n_instr] = bound;
    const int reg = p->instr[a].reg;
    wb__instr *in =
        add(p, WB__REDUCE_COLUMNS, op == WB__OP_argmax ? WB__REG_I32 : reg, WB__LEVEL_PER_ROW,
            op == WB__OP_argmax ? WB_I32
            : op == WB__OP_sum  ? some_dtype(reg) : whole_dtype(reg));
    in->op = (uint16_t)op;
    in->a = a;
}

static inline void add_end_reduction(program *p, bool all)
{
    const int a = pick(p, -1, WB__LEVEL_FULL);
    const wb__space *s = &p->spaces[0];
    if (a < 0 || p->instr[a].level != WB__LEVEL_FULL || p->bound[a] > 300) return;
    static const wb__op ops[] = {WB__OP_sum, WB__OP_sum, WB__OP_max, WB__OP_min, WB__OP_argmax};
    const wb__op op = ops[below(5)];
    bool flat[WB_MAX_DIMS];
    const int outer = s->ndim - s->row_dims - s->col_dims;
    for (int i = 0; i < s->ndim; i++) flat[i] = all || (i >= outer && i < outer + s->row_dims);
    const bool place = op == WB__OP_argmax;
    const wb_dtype whole = chance(50) ? WB_I32 : WB_I64;
    const int reg = place ? WB__REG_I32 : p->instr[a].reg;
    wb_dtype t = place ? whole : dtypes[below(WB__COUNT(dtypes) - 1)];
    /* an instruction has the register of its dtype (wb__reg_of): a sum of floats is no i8 */
    if (reg <= WB__REG_F64 && (t == WB_I8 || t == WB_U8)) t = whole_dtype(reg);
    const int view = add_view(p, t, flat);
    wb__instr *in = add(p, all ? WB__REDUCE_ALL : WB__REDUCE_ROWS, reg, WB__LEVEL_ONE, t);
    in->op = (uint16_t)op;
    in->a = a;
    in->arg = view;
}

static inline void add_store(program *p)
{
    const int a = pick(p, -1, WB__LEVEL_FULL);
    const wb__space *s = &p->spaces[0];
    if (a < 0) return;
    const bool row = p->instr[a].level == WB__LEVEL_PER_ROW && chance(60);
    const wb_dtype t = chance(60) ? whole_dtype(p->instr[a].reg) : dtypes[below(WB__COUNT(dtypes))];
    bool flat[WB_MAX_DIMS];
    for (int i = 0; i < s->ndim; i++) flat[i] = row && i >= s->ndim - s->col_dims;
    int view = -1;
    if (!row && chance(30)) {                   /* overwrites a view that was loaded */
        const int l = (int)below(p->f.n_instr);
        if (p->instr[l].kind == WB__LOAD) {
            bool taken = false;
            const int at = p->instr[l].arg;
            for (int i = 0; i < p->f.n_instr; i++)
                taken |= p->instr[i].kind == WB__STORE && p->instr[i].arg == at;
            for (int k = 0; k < p->f.n_segments; k++)
                taken |= is_flat(&p->views[k * MOST_VIEWS + at]);
            if (!taken) view = at;
        }
    }
    if (view < 0) view = add_view(p, t, flat);
    wb__instr *in = add(p, WB__STORE, p->instr[a].reg, row ? WB__LEVEL_PER_ROW : WB__LEVEL_FULL, t);
    in->a = a;
    in->arg = view;
}

static inline void draw_program(program *p)
{
    memset(p, 0, sizeof *p);
    p->f.n_segments = chance(70) ? 1 : 2 + (int)below(2);
    const int ndim = 1 + (int)below(4), cols = (int)below(ndim + 1);
    const int outer = chance(20) ? (int)below(ndim - cols + 1) : 0;
    for (int s = 0; s < p->f.n_segments; s++)
        draw_space(&p->spaces[s], ndim, outer, ndim - cols - outer);
    for (int i = 0; i < 8; i++) p->numbers[i].f = (double)(below(9) - 4);
    for (int i = 1 + (int)below(4); i > 0; i--) add_load(p, cols && chance(20));
    if (chance(40)) {
        const int reg = (int)below(4);
        wb__instr *in = add(p, WB__NUMBER, reg, WB__LEVEL_ONE, some_dtype(reg));
        in->arg = (int)below(8);
        p->bound[p->f.n_instr - 1] = 4;
    }
    if (chance(20)) {
        const int reg = (int)below(4);
        wb__instr *in = add(p, WB__IOTA, reg, WB__LEVEL_FULL, some_dtype(reg));
        in->arg = (int)below(ndim);
        in->scale = below(3);
        in->shift = below(5) - 2;
        p->bound[p->f.n_instr - 1] = 2 * 5000 + 5;
    }
    const bool folds = chance(50);
    for (int i = 2 + (int)below(18); i > 0; i--) {
        if (chance(12)) {
            const int a = pick(p, -1, WB__LEVEL_FULL);
            const wb_dtype t = dtypes[below(WB__COUNT(dtypes))];
            const double most = t == WB_BOOL ? 1 : t == WB_U8 ? 255 : t == WB_I8 ? 128 : 1e9;
            p->bound[p->f.n_instr] = t == WB_U8 ? most : fmin(p->bound[a < 0 ? 0 : a], most);
            if (a >= 0) {
                wb__instr *in = add(p, WB__CAST, reg_of(t), p->instr[a].level, t);
                in->a = a;
            }
        } else if (folds && chance(15)) {
            add_reduce_columns(p);
        } else {
            add_row(p);
        }
    }
    for (int i = 1 + (int)below(3); i > 0; i--) add_store(p);
    if (chance(25) || outer) add_end_reduction(p, false);
    if (chance(20) && !outer) add_end_reduction(p, true);
    p->f.instr = p->instr;
    p->f.spaces = p->spaces;
    for (int s = 1; s < p->f.n_segments; s++)
        memmove(&p->views[s * p->f.n_views], &p->views[s * MOST_VIEWS],
                (size_t)p->f.n_views * sizeof *p->views);
    p->f.views = p->views;
}

/* Changes some loads of a program for GPUs into loads of padded views, with windows along any
 * dimensions; and gives segments other numbers. */
static inline void draw_for_gpu(program *p)
{
    const wb__space *s = &p->spaces[0];
    int n = 0;
    for (int i = 0; i < p->f.n_instr && p->f.n_segments == 1; i++) {
        wb__instr *in = &p->instr[i];
        bool stored = in->kind != WB__LOAD;
        for (int j = 0; j < p->f.n_instr; j++)
            stored |= wb__instr_writes((wb__instr_kind)p->instr[j].kind) &&
                      p->instr[j].arg == in->arg;
        if (stored || chance(50)) continue;
        wb__window *w = &p->windows[in->a = n++];
        for (int d = 0; d < s->ndim; d++) {
            const bool whole = chance(40) || s->dims[d] < 2 ||
                               (in->level == WB__LEVEL_PER_ROW && d >= s->ndim - s->col_dims);
            const int64_t step = whole || chance(60) ? 1 : 1 + below(4);
            const int64_t begin = whole ? 0 : chance(30) ? s->dims[d] / 16 * 8 : below(s->dims[d]);
            const int64_t most = (s->dims[d] - begin + step - 1) / step;
            w->begin[d] = begin;
            w->step[d] = step;
            w->size[d] = whole || chance(30) ? most : chance(30) ? most / 8 * 8 : below(most + 1);
        }
    }
    p->f.windows = p->windows;
    for (int k = 0; k < p->f.n_segments; k++)
        for (int i = 0; i < p->f.n_instr; i++) {
            const bool number = p->instr[i].kind == WB__NUMBER && k;
            p->args[k * p->f.n_instr + i] = number ? (int)below(8) : p->instr[i].arg;
        }
    p->f.args = p->args;
}

static inline void fill(program *p, void **buffers)
{
    for (int b = 0; b < p->n_buffers; b++) {
        buffers[b] = malloc((size_t)p->bytes[b]);
        for (int i = 0; i < p->f.n_segments * p->f.n_views; i++) {
            const wb__view *v = &p->views[i];
            if (v->buffer != b) continue;
            const int64_t size = (int64_t)wb__dtype_size(v->dtype);
            for (int64_t j = 0; j < p->bytes[b] / size; j++) {
                const int64_t n = v->dtype == WB_BOOL ? below(2)
                                : v->dtype == WB_U8 ? below(5) : below(9) - 4;
                wb__convert((char *)buffers[b] + j * size, v->dtype, &n, WB_I64, 1);
            }
        }
    }
}

static inline void print_program(const program *p)
{
    static const char *kinds[] = {
        "load", "number", "iota", "uniform", "gaussian", "row", "cast", "reduce_columns",
        "reduce_rows", "reduce_all", "store"};
    static const char *regs[] = {"f32", "f64", "i32", "i64"}, *levels[] = {"one", "row", "full"};
    for (int s = 0; s < p->f.n_segments; s++) {
        const wb__space *sp = &p->spaces[s];
        print_message("space: rows %d cols %d of", sp->row_dims, sp->col_dims);
        for (int i = 0; i < sp->ndim; i++) print_message(" %d", (int)sp->dims[i]);
        print_message("\n");
    }
    for (int i = 0; i < p->f.n_instr; i++) {
        const wb__instr *in = &p->instr[i];
        print_message("%2d %-9s %s %-4s %-4s %-8s", i, kinds[in->kind], regs[in->reg],
                      levels[in->level], wb_dtype_name(in->dtype),
                      in->op ? wb__ops[in->op].name : "");
        print_message(" a %d b %d c %d arg %d", in->a, in->b, in->c, in->arg);
        if (in->kind == WB__LOAD || in->kind >= WB__REDUCE_ROWS) {
            const wb__view *v = &p->views[in->arg];
            print_message("  [%s buffer %d +%d:", wb_dtype_name(v->dtype), v->buffer,
                          (int)v->offset);
            for (int k = 0; k < v->ndim; k++) print_message(" %d", (int)v->strides[k]);
            print_message("]");
        }
        print_message("\n");
    }
}

#endif
