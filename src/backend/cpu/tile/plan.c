/* Compiles the engine's instructions to the calls of a tile program.
 *
 * If whole rows fit in a tile, or no value depends on whole rows, there is one list of calls per
 * tile, in the program's order.  Otherwise a row is processed in chunks, once for each phase.  A
 * reduction along columns ends a phase; values that depend on it are computed in the next phase.  A
 * value that a later phase needs is kept for the whole row; loads are repeated instead. */
#include "backend/cpu/tile/compiler.h"

#include <string.h>

/* The lists of calls.  LIST_ONCE runs once per task, LIST_HOIST once for all tiles with the same
 * columns.  From LIST_PHASES on, each phase has two lists: the first runs once for the rows of a
 * tile, the second for each chunk of these rows.  The last list runs after all phases. */
enum { LIST_ONCE, LIST_HOIST, LIST_PHASES };
/* In tiles with fewer columns, an operand with one value per row is spread (CALL_SPLAT). */
enum { SHORT_ROW = 48 };

static int reg_size(int reg) { return wb__reg_size(reg); }

/* ---- emitting -------------------------------------------------------------------------------- */

static tile_call *tile_plan_emit(tile_compiler *c, int list, tile_call_kind kind)
{
    static _Thread_local tile_call spare;
    tile_program *p = c->p;
    if (!wb__reserve(&p->calls, &c->capacity, p->n_calls + 1, sizeof *p->calls)) {
        c->failed = true;
        return &spare;
    }
    tile_call *call = &p->calls[p->n_calls++];
    memset(call, 0, sizeof *call);
    call->kind = (uint8_t)kind;
    call->list = (uint8_t)list;
    for (int k = 0; k < 4; k++) call->value[k] = -1;
    return call;
}

/* Sets operand k of a call. */
static void tile_plan_set(tile_call *call, int k, int value, int reg, int level)
{
    call->value[k] = (int16_t)value;
    call->size[k] = (uint8_t)reg_size(reg);
    call->level[k] = (uint8_t)(level == LEVEL_PER_COLUMN ? LEVEL_FULL : level);
    if (!k) call->reg = (uint8_t)reg, call->row = level == LEVEL_PER_ROW;
}

static int tile_plan_list_of(const tile_compiler *c, int level)
{
    if (level == LEVEL_ONE) return LIST_ONCE;
    if (level == LEVEL_PER_COLUMN) return LIST_HOIST;
    return LIST_PHASES + 2 * c->phase + (level == LEVEL_FULL || !c->chunked);
}

/* Whether a tile of this view has the memory layout of a register. */
static bool tile_plan_bindable(const tile_compiler *c, const tile_view *v, int reg, int level)
{
    const tile_segment *s = c->s;
    const int last_col = v->at[COLS] + v->n[COLS] - 1;
    if (v->buffer < 0 || v->dtype != tile_dtype(reg) || level == LEVEL_ONE) return false;
    if (level == LEVEL_PER_ROW)
        return s->tile_rows == 1 || (v->n[ROWS] == 1 && v->stride[v->at[ROWS]] == 1);
    if (s->n[COLS] > 1 && v->stride[last_col] != 1) return false;
    if (s->tile_rows == 1) return v->n[COLS] == 1 || s->run >= s->tile_cols;
    return level == LEVEL_FULL && s->tile_cols == s->n[COLS] && v->n[COLS] == 1 && v->n[ROWS] == 1
        && v->stride[v->at[ROWS]] == s->n[COLS];
}

static int tile_plan_new_value(tile_compiler *c) { return c->p->n_values++; }

static int tile_plan_value_of(tile_compiler *c, int i, int level);

/* Emits a call that converts value `from` to in->dtype, as storing and loading it would. */
static void tile_plan_emit_narrow(tile_compiler *c, int list, const wb__instr *in, int to, int from,
                                  int level)
{
    tile_call *call = tile_plan_emit(c, list, CALL_PLAIN);
    call->row_fn = c->t->cast[WB__REG_I32][in->dtype];
    tile_plan_set(call, 0, to, in->reg, level);
    tile_plan_set(call, 1, from, in->reg, level);
}

/* Emits a load, or another value that depends on the position only. */
static void emit_source(tile_compiler *c, int i)
{
    const wb__instr *in = instr(c, i);
    const tile_view *v = view_of(c, i);
    const int level = c->level[i], list = tile_plan_list_of(c, level), d = tile_plan_new_value(c);
    const bool narrows = in->kind == WB__IOTA && wb__is_narrow(in);
    tile_call *call;
    if (in->kind == WB__LOAD && !c->copied[i] && tile_plan_bindable(c, v, in->reg, level)) {
        call = tile_plan_emit(c, list, CALL_BIND);
    } else if (in->kind == WB__LOAD) {
        call = tile_plan_emit(c, list, CALL_LOAD);
        call->load = c->t->load[v->dtype];
    } else if (in->kind == WB__IOTA) {
        call = tile_plan_emit(c, list, CALL_IOTA);
        call->iota = c->t->iota[in->reg];
    } else {
        call = tile_plan_emit(c, list, CALL_DRAW);
        call->draw =
            (in->kind == WB__UNIFORM ? c->t->uniform : c->t->gaussian)[in->reg == WB__REG_F64];
        call->numbers = in->arg;
    }
    call->arg = (int)(v - c->s->views);
    tile_plan_set(call, 0, d, in->reg, level);
    c->value[i] = narrows ? tile_plan_new_value(c) : d;
    c->value_phase[i] = c->phase;
    if (narrows) tile_plan_emit_narrow(c, list, in, c->value[i], d, level);
}

static void emit_number(tile_compiler *c, int i)
{
    const wb__instr *in = instr(c, i);
    const int d = tile_plan_new_value(c);
    tile_call *call = tile_plan_emit(c, LIST_ONCE, CALL_NUMBER);
    tile_plan_set(call, 0, d, in->reg, LEVEL_ONE);
    call->arg = in->arg;
    call->half = wb__is_half(in->dtype);
    c->value[i] = wb__is_narrow(in) ? tile_plan_new_value(c) : d;
    if (wb__is_narrow(in)) tile_plan_emit_narrow(c, LIST_ONCE, in, c->value[i], d, LEVEL_ONE);
}

/* Returns the value of instruction i at this level, and emits calls for it if necessary. */
static int tile_plan_value_of(tile_compiler *c, int i, int level)
{
    const wb__instr *in = instr(c, i);
    const int own = c->level[i] == LEVEL_PER_COLUMN ? LEVEL_FULL : c->level[i];
    if (in->kind == WB__NUMBER && c->value[i] < 0) {
        emit_number(c, i);
    } else if (is_source(in)) {
        const bool again = c->level[i] == LEVEL_FULL && c->value_phase[i] != c->phase;
        if (c->value[i] < 0 || again) emit_source(c, i);
    }
    if (own == level || c->value[i] < 0) return c->value[i];
    if (c->spread[i] >= 0 && c->spread_phase[i] == c->phase) return c->spread[i];
    tile_call *call;
    if (own == LEVEL_PER_ROW) {
        call = tile_plan_emit(c, tile_plan_list_of(c, LEVEL_FULL), CALL_SPLAT);
        call->splat = c->t->splat[in->reg];
    } else {
        call = tile_plan_emit(
            c, level == LEVEL_FULL && !c->chunked ? LIST_HOIST : tile_plan_list_of(c, level),
            CALL_SPLAT_ONE);
        call->splat = c->t->splat[in->reg];
    }
    const int d = tile_plan_new_value(c);
    tile_plan_set(call, 0, d, in->reg, level);
    tile_plan_set(call, 1, c->value[i], in->reg, own);
    if (level == LEVEL_FULL) c->spread[i] = d, c->spread_phase[i] = c->phase;
    return d;
}

/* Returns the store into whose memory instruction i can write its result directly; -1: none. */
static int direct_store(const tile_compiler *c, int i)
{
    if (c->level[i] != LEVEL_FULL) return -1;
    for (int u = i + 1; u < c->n; u++) {
        const wb__instr *in = instr(c, u);
        if (!uses(in, i)) continue;
        if (c->when[u] != c->when[i]) return -1;
    }
    for (int u = i + 1; u < c->n; u++) {
        const wb__instr *in = instr(c, u);
        if (in->kind != WB__STORE || in->a != i || c->late[u] || c->done[u]) continue;
        const tile_view *v = &c->s->views[in->arg];
        if (tile_plan_bindable(c, v, instr(c, i)->reg, LEVEL_FULL) &&
            !tile_would_overwrite(c, u, i))
            return u;
    }
    return -1;
}

static int tile_plan_shape_of(const int *level, bool where)
{
    if (where) return (level[2] == LEVEL_FULL ? 0 : 1) + (level[3] == LEVEL_FULL ? 0 : 2);
    return level[1] == LEVEL_FULL ? (level[2] == LEVEL_FULL ? 0 : 1) : 2;
}

static wb__elementwise_fn *row_fn(const tile_compiler *c, const wb__instr *in, int shape)
{
    if (in->kind == WB__CAST)
        return c->t->cast[instr(c, in->a)->reg][in->dtype ? in->dtype : WB_F32];
    if (in->op == WB__OP_where) {
        const int reg = instr(c, in->b)->reg;
        return shape == 3 ? c->t->where_ss[reg] : c->t->row[in->op][reg][shape];
    }
    const int reg = instr(c, in->a)->reg;
    if (shape == WB__VVV) return wb__tile_unary(c->t, (wb__op)in->op, reg);
    return c->t->row[in->op][reg][shape];
}

/* Emits an elementwise instruction or a cast.  An operand of a coarser level than the instruction
 * is passed as a scalar.  If the function takes no scalar for this operand, or if the rows are
 * short (SHORT_ROW), the operand is spread over the tile instead. */
static void emit_row(tile_compiler *c, int i)
{
    const wb__instr *in = instr(c, i);
    const int operand[4] = {-1, in->a, in->b, in->c};
    const int own = c->level[i] == LEVEL_PER_COLUMN ? LEVEL_FULL : c->level[i];
    const bool where = in->kind == WB__ELEMENTWISE_OP && in->op == WB__OP_where;
    int level[4] = {own, own, own, own}, value[4] = {-1, -1, -1, -1};
    bool by_row = false;
    for (int k = 1; k < 4; k++) {
        if (operand[k] < 0) continue;
        const int has =
            c->level[operand[k]] == LEVEL_PER_COLUMN ? LEVEL_FULL : c->level[operand[k]];
        const bool spreads = where ? k == 1 : in->b < 0;
        if (has == own || spreads) continue;
        if (has == LEVEL_PER_ROW && c->s->tile_cols < SHORT_ROW && c->s->tile_rows > 1) continue;
        level[k] = has;
        if (has == LEVEL_PER_ROW) by_row = true;
    }
    for (int k = 1; k < 4; k++)
        if (operand[k] >= 0) value[k] = tile_plan_value_of(c, operand[k], level[k]);
    int as[4];
    for (int k = 0; k < 4; k++) as[k] = level[k] == own ? LEVEL_FULL : LEVEL_ONE;
    wb__elementwise_fn *fn = row_fn(c, in, where || in->b >= 0 ? tile_plan_shape_of(as, where) : 0);
    const bool narrows = in->kind == WB__ELEMENTWISE_OP && wb__is_narrow(in);
    const int list = tile_plan_list_of(c, c->level[i]), store = direct_store(c, i);
    if (!fn) {
        if (!c->failed)
            wb__fail(WB_ERROR_INTERNAL, "cpu: %s is not defined for this kind of number",
                     wb__ops[in->op].name);
        c->failed = true;
        return;
    }
    const int d = tile_plan_new_value(c), result = narrows ? tile_plan_new_value(c) : d;
    if (store >= 0) {
        tile_call *bind = tile_plan_emit(c, list, CALL_BIND);
        tile_plan_set(bind, 0, result, in->reg, LEVEL_FULL);
        bind->arg = instr(c, store)->arg;
        c->done[store] = true;
    }
    tile_call *call = tile_plan_emit(c, list, by_row ? CALL_BY_ROW : CALL_PLAIN);
    call->row_fn = fn;
    tile_plan_set(call, 0, d, in->reg, c->level[i]);
    for (int k = 1; k < 4; k++)
        if (operand[k] >= 0) tile_plan_set(call, k, value[k], instr(c, operand[k])->reg, level[k]);
    if (narrows) tile_plan_emit_narrow(c, list, in, result, d, c->level[i]);
    c->value[i] = result;
    c->value_phase[i] = c->phase;
}

/* Emits one call that computes instruction i and instruction k before it, whose result i reads. */
static void emit_pair(tile_compiler *c, int k, int i)
{
    const wb__instr *first = instr(c, k), *second = instr(c, i);
    const bool swapped = !is_vector(c, first->a);       /* a number and a vector, in this order */
    const int with = second_operand(first), other = second->a == k ? second->b : second->a;
    const int operand[4] = {-1, swapped ? with : first->a, swapped ? first->a : with, other};
    const bool reversed = second->op == WB__OP_sub && second->a != k;
    int level[4], value[4], form = 0;
    for (int j = 1; j < 4; j++) {
        level[j] = is_vector(c, operand[j]) ? LEVEL_FULL : LEVEL_ONE;
        value[j] = tile_plan_value_of(c, operand[j], level[j]);
        if (level[j] == LEVEL_ONE) form |= 1 << (j - 2);
    }
    const int list = tile_plan_list_of(c, LEVEL_FULL), store = direct_store(c, i),
              d = tile_plan_new_value(c);
    if (store >= 0) {
        tile_call *bind = tile_plan_emit(c, list, CALL_BIND);
        tile_plan_set(bind, 0, d, second->reg, LEVEL_FULL);
        bind->arg = instr(c, store)->arg;
        c->done[store] = true;
    }
    tile_call *call = tile_plan_emit(c, list, CALL_PLAIN);
    call->row_fn =
        c->t->pair[pair_number(first)][reversed ? WB__PAIR_RSUB : pair_number(second)][form];
    tile_plan_set(call, 0, d, second->reg, LEVEL_FULL);
    for (int j = 1; j < 4; j++) tile_plan_set(call, j, value[j], WB__REG_F32, level[j]);
    c->value[i] = d;
    c->value_phase[i] = c->phase;
}

static int tile_plan_reduction_number(int op)
{
    return op == WB__OP_sum ? 0 : op == WB__OP_max ? 1 : op == WB__OP_min ? 2 : 3;
}

static void emit_reduce_columns(tile_compiler *c, int i)
{
    const wb__instr *in = instr(c, i);
    int reg = instr(c, in->a)->reg, a = tile_plan_value_of(c, in->a, LEVEL_FULL);
    const int op = tile_plan_reduction_number(in->op);
    tile_program *p = c->p;
    if (op != 3 && reg != in->reg) {                    /* a sum in a wider register */
        tile_call *cast = tile_plan_emit(c, tile_plan_list_of(c, LEVEL_FULL), CALL_PLAIN);
        const int d = tile_plan_new_value(c);
        cast->row_fn = c->t->cast[reg][tile_dtype(in->reg)];
        tile_plan_set(cast, 0, d, in->reg, LEVEL_FULL);
        tile_plan_set(cast, 1, a, reg, LEVEL_FULL);
        a = d;
        reg = in->reg;
    }
    const bool narrows = in->op == WB__OP_sum && wb__is_narrow(in);
    const int d = tile_plan_new_value(c), done = c->chunked ? LIST_PHASES + 2 * (c->phase + 1)
                                                 : tile_plan_list_of(c, LEVEL_FULL);
    tile_call *call = tile_plan_emit(c, tile_plan_list_of(c, LEVEL_FULL),
                                     c->chunked ? CALL_REDUCE_CHUNK : CALL_REDUCE);
    call->reduction = c->t->reduction[op][reg];
    if (!c->chunked) tile_plan_set(call, 0, d, in->reg, LEVEL_PER_ROW);
    tile_plan_set(call, 1, a, reg, LEVEL_FULL);
    call->row = 0;
    if (c->chunked) {
        call->arg = p->n_reductions;
        p->reductions[p->n_reductions] = (tile_reduction){
            .op = (uint8_t)op, .reg = (uint8_t)reg, .kind = REDUCE_COLUMNS, .view = -1};
        call = tile_plan_emit(c, done, CALL_REDUCE_DONE);
        call->arg = p->n_reductions++;
        tile_plan_set(call, 0, d, in->reg, LEVEL_PER_ROW);
    }
    c->value[i] = narrows ? tile_plan_new_value(c) : d;
    if (narrows) tile_plan_emit_narrow(c, done, in, c->value[i], d, LEVEL_PER_ROW);
}

static void emit_gather(tile_compiler *c, int i)
{
    const wb__instr *in = instr(c, i);
    tile_reduction *reduction = &c->p->reductions[c->p->n_reductions];
    const int reg = instr(c, in->a)->reg, a = tile_plan_value_of(c, in->a, LEVEL_FULL);
    reduction->op = (uint8_t)tile_plan_reduction_number(in->op);
    reduction->reg = (uint8_t)reg;
    reduction->out = in->reg;
    reduction->kind = in->kind == WB__REDUCE_ALL ? REDUCE_ALL : REDUCE_ROWS;
    reduction->view = in->arg;
    tile_call *call = tile_plan_emit(c, tile_plan_list_of(c, LEVEL_FULL), CALL_GATHER);
    call->gather = c->t->gather[reduction->op][reg];
    call->arg = c->p->n_reductions++;
    tile_plan_set(call, 1, a, reg, LEVEL_FULL);
}

/* Emits a store, after a cast if the register's dtype differs from the view's. */
static void emit_store(tile_compiler *c, int i)
{
    const wb__instr *in = instr(c, i);
    const tile_view *v = &c->s->views[in->arg];
    const bool row = !v->varies[COLS] && c->s->n[COLS] != 1;
    const int level = row ? LEVEL_PER_ROW : LEVEL_FULL;
    const int list = row && c->chunked ? LIST_PHASES + 2 * c->phases : tile_plan_list_of(c, level);
    int reg = instr(c, in->a)->reg, a = tile_plan_value_of(c, in->a, level);
    if (wb__reg_of(v->dtype) != (wb__reg)reg) {
        tile_call *call = tile_plan_emit(c, list, CALL_PLAIN);
        const int d = tile_plan_new_value(c), to = wb__reg_of(v->dtype);
        call->row_fn = c->t->cast[reg][v->dtype];
        tile_plan_set(call, 0, d, to, level);
        tile_plan_set(call, 1, a, reg, level);
        a = d;
        reg = to;
    }
    tile_call *call = tile_plan_emit(c, list, CALL_STORE);
    call->store = c->t->store[v->dtype];
    call->arg = in->arg;
    tile_plan_set(call, 1, a, reg, level);
    call->row = row;
}

static void emit_phase(tile_compiler *c)
{
    for (int i = 0; i < c->n; i++) {
        const wb__instr *in = instr(c, i);
        if (c->when[i] != c->phase) continue;
        if (c->into[i] >= 0) continue;
        if (in->kind == WB__ELEMENTWISE_OP || in->kind == WB__CAST) {
            const int k = in->a >= 0 && c->into[in->a] == i ? in->a
                        : in->b >= 0 && c->into[in->b] == i ? in->b : -1;
            if (k >= 0) emit_pair(c, k, i);
            else if (c->users[i]) emit_row(c, i);
        } else if (in->kind == WB__REDUCE_COLUMNS) {
            emit_reduce_columns(c, i);
        } else if (in->kind == WB__REDUCE_ROWS || in->kind == WB__REDUCE_ALL) {
            emit_gather(c, i);
        } else if (in->kind == WB__UNIFORM || in->kind == WB__GAUSSIAN) {
            if (c->users[i] && c->value[i] < 0) emit_source(c, i);
        } else if (in->kind == WB__STORE && !c->late[i] && !c->done[i]) {
            emit_store(c, i);
        }
    }
}

/* Sorts the calls by list; within a list, the order of emission is kept. */
static int order_calls(tile_compiler *c)
{
    tile_program *p = c->p;
    const int lists = LIST_PHASES + 2 * c->phases + 1;
    tile_call *sorted = wb__alloc((size_t)WB__MAX(p->n_calls, 1) * sizeof *sorted);
    if (!sorted) return WB_ERROR_MEMORY;
    int n = 0;
    for (int list = 0; list < lists; list++) {
        for (int i = 0; i < p->n_calls; i++)
            if (p->calls[i].list == list) sorted[n++] = p->calls[i];
        const int phase = (list - LIST_PHASES) / 2;
        if (list == LIST_ONCE) p->once_to = n;
        else if (list == LIST_HOIST) p->hoist_to = n;
        else if (list == lists - 1) break;
        else if ((list - LIST_PHASES) % 2 == 0) p->phases[phase].from = n;
        else p->phases[phase].to = n;
    }
    p->last_from = p->phases[p->n_phases - 1].to;
    for (int i = 0; i < p->n_phases; i++)
        p->phases[i].rows_from = i ? p->phases[i - 1].to : p->hoist_to;
    wb__free(p->calls);
    p->calls = sorted;
    return 0;
}

/* Sets `ahead` of the calls that bind or load values of full tiles, once for each view, in programs
 * that compute for so long that the memory of a tile arrives meanwhile.  Shorter programs keep the
 * memory busy all the time; they would only become slower. */
static void fetch_ahead(const tile_compiler *c)
{
    enum { LONG = 6 };
    tile_program *p = c->p;
    int work = 0;
    for (int i = p->hoist_to; i < p->last_from; i++)
        work += p->calls[i].kind != CALL_BIND && !p->calls[i].row;
    for (int i = p->hoist_to; work >= LONG && i < p->last_from; i++) {
        tile_call *call = &p->calls[i];
        call->ahead = (call->kind == CALL_BIND || call->kind == CALL_LOAD) && !call->row &&
                      call->level[0] == LEVEL_FULL;
        for (int k = p->hoist_to; k < i && call->ahead; k++) {
            if (!p->calls[k].ahead) continue;
            const tile_view *a = &c->s->views[call->arg], *b = &c->s->views[p->calls[k].arg];
            if (a->buffer == b->buffer && a->offset == b->offset)
                call->ahead = false;            /* the memory is read and written in place */
        }
    }
}

int tile_compile(tile_program *p, const tile_segment *s, const wb__fused *f, const wb__view *views,
                 const int *pseudo, const wb__tile_table *t, bool chunked, int64_t register_bytes)
{
    const size_t n = (size_t)WB__MAX(f->n_instr, 1);
    tile_compiler c = {.f = f, .views = views, .pseudo = pseudo, .s = s, .t = t, .p = p,
                  .chunked = chunked, .n = f->n_instr};
    memset(p, 0, sizeof *p);
    p->chunked = chunked;
    int *ints = wb__alloc_zero(8 * n, sizeof *ints);
    bool *bools = wb__alloc_zero(3 * n, sizeof *bools);
    p->reductions = wb__alloc_zero(n, sizeof *p->reductions);
    int e = ints && bools && p->reductions ? 0 : WB_ERROR_MEMORY;
    if (!e) {
        c.level = ints, c.when = ints + n, c.value = ints + 2 * n, c.value_phase = ints + 3 * n;
        c.spread = ints + 4 * n, c.spread_phase = ints + 5 * n, c.users = ints + 6 * n;
        c.into = ints + 7 * n;
        c.late = bools, c.done = bools + n, c.copied = bools + 2 * n;
        for (int i = 0; i < c.n; i++) {
            const wb__instr *in = &f->instr[i];
            c.value[i] = c.value_phase[i] = c.spread[i] = c.spread_phase[i] = -1;
            if (is_source(in) || in->kind == WB__NUMBER) continue;
            const int operand[3] = {in->a, in->b, in->c};
            for (int k = 0; k < 3; k++)
                if (operand[k] >= 0) c.users[operand[k]]++;
        }
        tile_analyse(&c);
        p->n_phases = c.phases;
        p->phases = wb__alloc_zero((size_t)c.phases, sizeof *p->phases);
        if (!p->phases) c.failed = true;
        for (c.phase = 0; c.phase < c.phases && !c.failed; c.phase++) emit_phase(&c);
        c.phase = c.phases - 1;
        for (int i = 0; i < c.n; i++)
            if (c.late[i] && !c.done[i] && is_source(&f->instr[f->instr[i].a]))
                tile_plan_value_of(&c, f->instr[i].a,
                                   c.level[f->instr[i].a] == LEVEL_PER_COLUMN
                                       ? LEVEL_FULL
                                       : c.level[f->instr[i].a]);
        for (int i = 0; i < c.n; i++)
            if (c.late[i] && !c.done[i]) emit_store(&c, i);
        e = c.failed ? WB_ERROR_MEMORY : order_calls(&c);
        if (!e) fetch_ahead(&c);
        if (!e) e = tile_allocate_values(p, s, register_bytes);
    }
    wb__free(ints);
    wb__free(bools);
    if (e) tile_program_free(p);
    return e;
}
