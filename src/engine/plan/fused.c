/* Makes the program of a fused group: loads, instructions for the values, and stores.  An
 * instruction of level FULL computes a number for each element of the group's space.  Level PER_ROW
 * computes a number for each row, and level ONE a single number. */
#include "engine/plan/stages.h"

#include <string.h>

/* A program that is being built.  An instruction names a view by its index in step->operand. */
typedef struct {
    wb__emitter *m;
    const wb__group *group;
    int g;                              /* index of the group */
    wb__plan_step *step;
    int instr_capacity;
    struct {
        int value, level, instr;        /* the value; wb__level; index of the instruction */
    } *loaded; /* values from outside the group that are loaded */
    int n_loaded, loaded_capacity;
} program_draft;

/* Reserves room for n elements of a list; false: out of memory, and the emitter fails. */
static bool reserve_or_fail(program_draft *p, void *list, int *capacity, int n, size_t size)
{
    if (!p->m->failed && wb__reserve(list, capacity, n, size)) return true;
    p->m->failed = true;
    return false;
}

/* Returns an instruction without operands, for a value of this dtype. */
static wb__instr blank_instr(wb__instr_kind kind, int level, int dtype)
{
    return (wb__instr){.kind = (uint8_t)kind, .reg = (uint8_t)wb__reg_of((wb_dtype)dtype),
                       .level = (uint8_t)level, .dtype = (uint8_t)dtype,
                       .a = -1, .b = -1, .c = -1, .arg = -1};
}

/* Adds an instruction and returns its index. */
static int emit_instr(program_draft *p, wb__instr i)
{
    int *n = &p->step->step.fused.n_instr;
    if (!reserve_or_fail(p, &p->step->instr, &p->instr_capacity, *n + 1, sizeof i)) return 0;
    p->step->instr[*n] = i;
    return (*n)++;
}

static int emit_instr_of_arg(program_draft *p, wb__instr_kind kind, int level, int dtype, int arg)
{
    wb__instr i = blank_instr(kind, level, dtype);
    i.arg = arg;
    return emit_instr(p, i);
}

/* Returns v broadcast to the space of g.  v's last axis is the last logical axis of the space; the
 * dimensions of the result are in the order of the space. */
static wb__view view_in_space(const wb__group *g, const wb__view *v)
{
    wb__view out = *v;
    out.ndim = g->ndim;
    int lead = g->ndim - v->ndim;
    for (int i = 0; i < g->ndim; i++) {
        int axis = g->axis[i] - lead;
        out.dims[i] = g->dims[g->axis[i]];
        out.strides[i] = axis < 0 || v->dims[axis] == 1 ? 0 : v->strides[axis];
    }
    return out;
}

/* Returns the window w of v in the space of g, as view_in_space does with the view of v. */
static wb__window window_in_space(const wb__group *g, const wb__value *v, const wb__window *w)
{
    wb__window out = {.size = {0}};
    const int lead = g->ndim - v->ndim;
    for (int i = 0; i < g->ndim; i++) {
        const int axis = g->axis[i] - lead;
        const bool alike = axis >= 0 && v->dims[axis] == g->dims[g->axis[i]];
        out.begin[i] = alike ? w->begin[axis] : 0;
        out.step[i] = alike ? w->step[axis] : 1;
        out.size[i] = alike ? w->size[axis] : g->dims[g->axis[i]];
    }
    return out;
}

/* Whether a view in the space varies along the columns.  w: the view's window, or NULL. */
static bool varies_along_columns(const wb__group *g, const wb__view *v, const wb__window *w)
{
    for (int i = g->ndim - g->col_dims; i < g->ndim; i++)
        if (v->dims[i] > 1 && (v->strides[i] || (w && !wb__window_is_whole(w, i, v->dims[i]))))
            return true;
    return false;
}

/* Adds a load from the operand `at`.  w: the operand's window in the space, or NULL. */
static int emit_load(program_draft *p, int level, const wb__step_operand *at, const wb__window *w)
{
    wb__plan_step *d = p->step;
    wb__instr i = blank_instr(WB__LOAD, level, (int)at->view.dtype);
    i.arg = wb__add_operand(p->m, d, at);
    if (w && reserve_or_fail(p, &d->windows, &d->windows_capacity, d->n_windows + 1, sizeof *w)) {
        d->windows[d->n_windows] = *w;
        i.a = d->n_windows++;
    }
    return emit_instr(p, i);
}

/* Adds a number to the constants of the programs and returns its index. */
static int add_constant(program_draft *p, double v)
{
    wb__programs *o = p->m->out;
    if (!reserve_or_fail(p, &o->constants, &o->constants_capacity, o->n_constants + 1,
                         sizeof *o->constants))
        return 0;
    o->constants[o->n_constants].f = v;
    return o->n_constants++;
}

/* Adds the instruction that gives the literal x, and returns the instruction's index. */
static int emit_literal(program_draft *p, int x, int level)
{
    wb__emitter *m = p->m;
    const wb__value *v = wb__value_at(m->values, x);
    wb__instr i = blank_instr(WB__NUMBER, level, v->dtype);
    i.arg = v->number;
    if (v->fixed) {
        if (m->constant_of[x] < 0) m->constant_of[x] = add_constant(p, v->value);
        i.arg = m->attempt->request->n_numbers + m->constant_of[x];
        i.scale = v->value == 0 || v->value == 1;
        i.shift = v->value == 1;
    }
    return emit_instr(p, i);
}

/* Adds the instructions for an index (iota): one for each dimension along which the index varies,
 * and their additions.  Returns the index of the last instruction. */
static int emit_iota(program_draft *p, const wb__value *v, const wb__view *view, int level)
{
    int sum = -1;
    int64_t shift = view->offset;
    wb__instr i = blank_instr(WB__IOTA, level, v->dtype);
    for (int d = 0; d < view->ndim; d++) {
        if (!view->strides[d] || view->dims[d] == 1) continue;
        i.arg = d;
        i.scale = view->strides[d];
        i.shift = shift;
        shift = 0;
        int one = emit_instr(p, i);
        wb__instr both = i;
        both.kind = WB__ELEMENTWISE_OP;
        both.op = WB__OP_add;
        both.a = sum;
        both.b = one;
        sum = sum < 0 ? one : emit_instr(p, both);
    }
    if (sum >= 0) return sum;
    i.arg = 0;
    i.scale = 0;
    i.shift = shift;
    return emit_instr(p, i);
}

/* Adds the instructions for random numbers.  Uniform ones are below 1: those of f16 and bf16 that
 * would be rounded to 1 are the greatest number below 1. */
static int emit_random(program_draft *p, const wb__value *v, const wb__view *view, int level)
{
    wb__instr i = blank_instr(v->op == WB__OP_uniform ? WB__UNIFORM : WB__GAUSSIAN, level,
                              v->dtype);
    const wb__step_operand at = {*view, -1};
    i.arg = v->number;
    i.c = wb__add_operand(p->m, p->step, &at);
    const int drawn = emit_instr(p, i);
    if (v->op != WB__OP_uniform || !wb__is_half(v->dtype)) return drawn;
    wb__instr below = blank_instr(WB__ELEMENTWISE_OP, level, v->dtype);
    below.op = WB__OP_minimum;
    below.a = drawn;
    below.b = emit_instr_of_arg(p, WB__NUMBER, WB__LEVEL_ONE, v->dtype,
                                p->m->attempt->request->n_numbers +
                          add_constant(p, v->dtype == WB_F16 ? 1 - 0x1p-11 : 1 - 0x1p-8));
    return emit_instr(p, below);
}

/* Adds the instructions for a value without operands: an index, random numbers or a literal. */
static int emit_free_source(program_draft *p, int x, const wb__view *view, int level)
{
    const wb__value *v = wb__value_at(p->m->values, x);
    if (v->op == WB__OP_literal) return emit_literal(p, x, level);
    return v->op == WB__OP_iota ? emit_iota(p, v, view, level)
                                : emit_random(p, v, view, level);
}

/* Adds the store of an instruction's result in the memory `at`. */
static void emit_store_to(program_draft *p, int instr, const wb__step_operand *at)
{
    if (p->m->failed) return;
    wb__instr i = blank_instr(WB__STORE, p->step->instr[instr].level, p->step->instr[instr].dtype);
    i.a = instr;
    i.arg = wb__add_operand(p->m, p->step, at);
    emit_instr(p, i);
}

/* Returns the instruction that gives `op` its operand: `instr`, or, if wb__asks_which, one that
 * rounds the result of `instr`. */
static int emit_rounding(program_draft *p, wb__op op, int instr)
{
    if (p->m->failed || !wb__asks_which(op)) return instr;
    const wb__instr of = p->step->instr[instr];
    const bool half = wb__is_half(of.dtype);
    if (!half || of.kind == WB__LOAD || of.kind == WB__CAST) return instr;
    if (op == WB__OP_pow && of.kind == WB__NUMBER) return instr;        /* x^0.1 is not x^0.0999 */
    for (int i = instr + 1; i < p->step->step.fused.n_instr; i++) {
        const wb__instr *known = &p->step->instr[i];
        if (known->kind == WB__CAST && known->a == instr && known->dtype == of.dtype) return i;
    }
    wb__instr i = blank_instr(WB__CAST, of.level, of.dtype);
    i.op = WB__OP_cast;
    i.a = instr;
    return emit_instr(p, i);
}

/* Adds the elementwise instruction for v with the operands `in`, rounded where v needs that. */
static int emit_elementwise(program_draft *p, const wb__value *v, int level, const int *in)
{
    wb__instr i = blank_instr(v->op == WB__OP_cast ? WB__CAST : WB__ELEMENTWISE_OP, level,
                              v->dtype);
    int of[3];
    for (int k = 0; k < 3; k++) of[k] = in[k] < 0 ? -1 : emit_rounding(p, (wb__op)v->op, in[k]);
    i.op = v->op;
    i.a = of[0];
    i.b = of[1];
    i.c = of[2];
    return emit_instr(p, i);
}

static int emit_outside_operand(program_draft *p, int x, int level, bool whole);

/* Returns the index of the instruction of this level that gives x; -1: none. */
static int find_loaded(const program_draft *p, int x, int level)
{
    for (int i = 0; i < p->n_loaded; i++)
        if (p->loaded[i].value == x && p->loaded[i].level == level) return p->loaded[i].instr;
    return -1;
}

/* Records that the instruction gives the value x at this level, and returns the instruction. */
static int add_loaded(program_draft *p, int x, int level, int instr)
{
    if (!reserve_or_fail(p, &p->loaded, &p->loaded_capacity, p->n_loaded + 1, sizeof *p->loaded))
        return 0;
    p->loaded[p->n_loaded].value = x;
    p->loaded[p->n_loaded].level = level;
    p->loaded[p->n_loaded++].instr = instr;
    return instr;
}

/* Adds instructions of this level that recompute the rematerialised value x. */
static int emit_rematerialised(program_draft *p, int x, int level)
{
    const wb__values *s = p->m->values;
    const wb__value *v = wb__value_at(s, x);
    int in[3] = {-1, -1, -1};
    for (int i = 0; i < v->n_in; i++)
        in[i] = emit_outside_operand(p, wb__input(s, v, i), level, true);
    return emit_elementwise(p, v, level, in);
}

/* Returns the index of the instruction for x, a value from outside the group; adds the instruction
 * if needed.  Its level is `level`.  If `whole` is false, its level may be coarser: ONE for a
 * literal, PER_ROW if x does not vary along the columns. */
static int emit_outside_operand(program_draft *p, int x, int level, bool whole)
{
    wb__emitter *m = p->m;
    const wb__value *v = wb__value_at(m->values, x);
    const int base = m->values->base[x];
    const bool recompute = m->groups->of[x].rematerialised;
    wb__step_operand at = {.allocation = -1};
    const wb__window *padded = wb__window_of(m->values, x);
    wb__window window;
    if (padded) {
        window = window_in_space(p->group, v, padded);
        padded = &window;
    }
    if (!recompute && v->op == WB__OP_literal && !m->values->needed[x])
        return emit_literal(p, x, whole ? level : WB__LEVEL_ONE);
    if (!recompute) {
        if (!wb__step_operand_of(m, x, &at)) return 0;
        at.view = view_in_space(p->group, &at.view);
        if (level == WB__LEVEL_FULL && !whole && !varies_along_columns(p->group, &at.view, padded))
            level = WB__LEVEL_PER_ROW;
    }
    const int known = find_loaded(p, x, level);
    if (known >= 0) return known;
    return add_loaded(p, x, level,
                      recompute ? emit_rematerialised(p, x, level)
                      : wb__is_free_source(m->values, base)
                           ? emit_free_source(p, base, &at.view, level)
                           : emit_load(p, level, &at, padded));
}

static int emit_operand(program_draft *p, int x, int level, bool whole)
{
    return p->m->groups->of[x].group == p->g ? p->m->instr_of[x]
                                             : emit_outside_operand(p, x, level, whole);
}

/* Sets `in` to the instructions of v's operands.  At least one operand is loaded at the level of v,
 * since an elementwise instruction has the finest level of its operands. */
static void emit_operands(program_draft *p, const wb__value *v, int level, int *in)
{
    const wb__ir *ir = &p->m->values->ir;
    int finest = -1;
    for (int i = 0; i < v->n_in; i++) {
        in[i] = emit_operand(p, ir->inputs[v->in + i], level, false);
        if (!p->m->failed) finest = WB__MAX(finest, p->step->instr[in[i]].level);
    }
    for (int i = 0; i < v->n_in && finest < level && !p->m->failed; i++) {
        int x = ir->inputs[v->in + i];
        if (p->m->groups->of[x].group == p->g) continue;
        in[i] = emit_outside_operand(p, x, level, true);
        finest = level;
    }
}

/* Returns the view of operand i of the product v: the dimensions of the group's space, then k. */
static wb__view product_operand_view(const program_draft *p, const wb__value *v, int i,
                                     const wb__view *of)
{
    const wb__group *g = p->group;
    const wb__view m = wb__matrix_view(*of, p->m->values->ir.attrs[v->attr + i] != 0, v);
    const int row = v->ndim - 2, col = v->ndim - 1;
    wb__view out = m;
    out.ndim = g->ndim + 1;
    for (int d = 0; d < g->ndim; d++) {
        const int axis = g->axis[d];
        out.dims[d] = g->dims[axis];
        out.strides[d] = m.dims[axis] == 1 || axis == (i ? row : col) ? 0 : m.strides[axis];
    }
    out.dims[g->ndim] = m.dims[i ? row : col];
    out.strides[g->ndim] = m.strides[i ? row : col];
    return out;
}

/* Adds the instruction for v, a product that the group computes. */
static int emit_product(program_draft *p, const wb__value *v)
{
    wb__instr out = blank_instr(WB__PRODUCT, WB__LEVEL_FULL, v->dtype);
    for (int i = 0; i < 2; i++) {
        wb__step_operand at;
        if (!wb__step_operand_of(p->m, wb__input(p->m->values, v, i), &at)) return 0;
        at.view = product_operand_view(p, v, i, &at.view);
        out.scale = at.view.dims[p->group->ndim];
        *(i ? &out.c : &out.arg) = wb__add_operand(p->m, p->step, &at);
    }
    return emit_instr(p, out);
}

/* Adds the store of x, which the group has computed. */
static void emit_value_store(program_draft *p, int x)
{
    wb__step_operand at;
    if (!wb__step_operand_of(p->m, x, &at)) return;
    at.view = view_in_space(p->group, &at.view);
    emit_store_to(p, p->m->instr_of[x], &at);
}

/* Adds the instruction for x, a reduction. */
static void emit_reduction(program_draft *p, int x, const wb__value *v)
{
    wb__emitter *m = p->m;
    const wb__group *g = p->group;
    const int of = wb__input(m->values, v, 0);
    wb__instr i = blank_instr(WB__REDUCE_COLUMNS, WB__LEVEL_PER_ROW, v->dtype);
    wb__step_operand at;
    const bool full = wb__space_is(g, wb__value_at(m->values, of));
    i.op = v->op;
    i.a = emit_rounding(p, (wb__op)v->op,
                    emit_operand(p, of, full ? WB__LEVEL_FULL : WB__LEVEL_PER_ROW, true));
    if (m->groups->of[x].ends) {
        if (!wb__step_operand_of(m, x, &at)) return;
        at.view = view_in_space(g, &at.view); /* the reduced axes have size 1 and stride 0 */
        i.kind = v->size == 1 && g->outer_dims == 0 ? WB__REDUCE_ALL : WB__REDUCE_ROWS;
        i.level = WB__LEVEL_ONE;
        i.arg = wb__add_operand(m, p->step, &at);
    }
    m->instr_of[x] = emit_instr(p, i);
}

/* Stores x, a contiguous copy of its operand.  The space has the dimensions of the operand, so x is
 * stored through a view with these dimensions. */
static void emit_ordered_store(program_draft *p, int x, const wb__value *v)
{
    wb__step_operand at;
    wb__view view;
    if (!wb__step_operand_of(p->m, x, &at)) return;
    wb__value like = *wb__ir_in(&p->m->values->ir, v, 0);
    like.layout = WB__ROW_MAJOR;
    wb__contiguous(&like, &view);
    view.buffer = at.view.buffer;
    view.offset = at.view.offset;
    at.view = view_in_space(p->group, &view);
    emit_store_to(p, p->m->instr_of[x], &at);
}

/* Adds the instructions that compute x and, if a kernel must store x, its store. */
static void emit_value(program_draft *p, int x)
{
    wb__emitter *m = p->m;
    const wb__value *v = wb__value_at(m->values, x);
    const wb__op_class class = wb__ops[v->op].class;
    const int level = wb__space_is(p->group, v) ? WB__LEVEL_FULL : WB__LEVEL_PER_ROW;
    int in[3] = {-1, -1, -1};
    if (class == WB__REDUCE) {
        emit_reduction(p, x, v);
    } else if (class == WB__LIBRARY) {
        m->instr_of[x] = emit_product(p, v);
    } else if (class == WB__SOURCE) {
        wb__view view;
        wb__source_view(m->values, x, &view);
        view = view_in_space(p->group, &view);
        m->instr_of[x] = emit_free_source(p, x, &view, level);
    } else if (class == WB__MOVE) { /* x is a contiguous copy of its operand */
        m->instr_of[x] = emit_outside_operand(p, wb__input(m->values, v, 0), WB__LEVEL_FULL, true);
    } else {
        emit_operands(p, v, level, in);
        m->instr_of[x] = emit_elementwise(p, v, level, in);
    }
    if (m->failed || !m->groups->of[x].stored) return;
    if (class == WB__MOVE) emit_ordered_store(p, x, v);
    else if (!m->groups->of[x].ends) emit_value_store(p, x);
}

/* Completes the step and emits it. */
static void finish_fused_step(program_draft *p)
{
    const wb__group *g = p->group;
    wb__plan_step *d = p->step;
    wb__free(p->loaded);
    if (!(d->spaces = wb__alloc(sizeof *d->spaces))) p->m->failed = true;
    else {
        *d->spaces = (wb__space){.ndim = g->ndim,
                                 .row_dims = g->ndim - g->col_dims - g->outer_dims,
                                 .col_dims = g->col_dims};
        for (int i = 0; i < g->ndim; i++) d->spaces->dims[i] = g->dims[g->axis[i]];
    }
    d->step.fused.n_views = d->n_operands;
    d->step.fused.n_segments = 1;
    wb__emit_step(p->m, d);
}

void wb__emit_fused(wb__emitter *m, int group)
{
    wb__plan_step d;
    program_draft p = {.m = m, .group = &m->groups->group[group], .g = group, .step = &d};
    wb__step_begin(m, WB__STEP_FUSED, &d);
    for (int x = p.group->first; x >= 0 && !m->failed; x = m->groups->of[x].next) emit_value(&p, x);
    finish_fused_step(&p);
}

/* Emits a step that fills `to` with the elements of `from`; NULL: with zeros.  w: the window of
 * `from`, or NULL. */
static void emit_fill(wb__emitter *m, const wb__step_operand *from, const wb__window *w,
                      const wb__step_operand *to, bool first)
{
    wb__group g = {.ndim = to->view.ndim, .col_dims = WB__MIN(to->view.ndim, 1)};
    for (int i = 0; i < g.ndim; i++) g.axis[i] = i;
    memcpy(g.dims, to->view.dims, sizeof g.dims);
    wb__plan_step d;
    program_draft p = {.m = m, .group = &g, .g = -1, .step = &d};
    wb__step_begin(m, WB__STEP_FUSED, &d);
    d.first = first;
    emit_store_to(&p,
                  from ? emit_load(&p, WB__LEVEL_FULL, from, w)
                       : emit_instr_of_arg(&p, WB__NUMBER, WB__LEVEL_FULL, (int)to->view.dtype,
                                           m->attempt->request->n_numbers + add_constant(&p, 0)),
                  to);
    finish_fused_step(&p);
}

void wb__emit_zeros(wb__emitter *m, const wb__step_operand *to)
{
    emit_fill(m, NULL, NULL, to, false);
}

void wb__emit_first(wb__emitter *m, const wb__step_operand *from, const wb__step_operand *to)
{
    emit_fill(m, from, NULL, to, true);
}

void wb__emit_padded(wb__emitter *m, const wb__step_operand *from, const wb__window *w,
                     const wb__step_operand *to)
{
    emit_fill(m, from, w, to, false);
}
