/* From a fused group to its program: loads, one instruction a value, stores. */
#include "engine/plan/stages.h"

#include <string.h>

/* The program under construction. */
typedef struct {
    wb__emitter *m;
    const wb__group *group;
    int g;
    wb__instr *instr;
    int n_instr, instr_room;
    wb__view *views;
    int *owners;
    int n_views, views_room;
    struct {
        int value, level, instr;
    } * had; /* operands from outside that were loaded already */
    int n_had, had_room;
} program;

static bool grow(program *p, void *list, int *room, int want, size_t size)
{
    if (wb__make_room(list, room, want, size)) return true;
    p->m->failed = true;
    return false;
}

/* An instruction without operands, for a value of this dtype. */
static wb__instr blank(wb__instr_kind kind, int level, int dtype)
{
    return (wb__instr){.kind = (uint8_t)kind, .reg = (uint8_t)wb__reg_of((wb_dtype)dtype),
                       .level = (uint8_t)level, .dtype = (uint8_t)dtype,
                       .a = -1, .b = -1, .c = -1, .arg = -1};
}

static int add(program *p, wb__instr i)
{
    if (!grow(p, &p->instr, &p->instr_room, p->n_instr + 1, sizeof i)) return 0;
    p->instr[p->n_instr] = i;
    return p->n_instr++;
}

/* `owners` grows with `views`: both have views_room places. */
static int add_view(program *p, const wb__view *v, int owner)
{
    int room = p->views_room;
    if (!grow(p, &p->owners, &room, p->n_views + 1, sizeof owner) ||
        !grow(p, &p->views, &p->views_room, p->n_views + 1, sizeof *v))
        return 0;
    p->views[p->n_views] = *v;
    p->owners[p->n_views] = owner;
    return p->n_views++;
}

/* A view of v's dimensions as one of the space: aligned at the last logical axis, in the order of
 * the space. */
static wb__view in_space(const wb__group *g, const wb__view *v)
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

static bool varies(const wb__group *g, const wb__view *v)
{
    for (int i = g->ndim - g->col_dims; i < g->ndim; i++)
        if (v->strides[i] && v->dims[i] > 1) return true;
    return false;
}

static int constant(program *p, double v)
{
    wb__programs *o = p->m->out;
    if (!grow(p, &o->constants, &o->constants_capacity, o->n_constants + 1, sizeof *o->constants))
        return 0;
    o->constants[o->n_constants].f = v;
    return o->n_constants++;
}

static int number(program *p, int x, int level)
{
    wb__emitter *m = p->m;
    const wb__value *v = wb__value_at(m->values, x);
    wb__instr i = blank(WB__NUMBER, level, v->dtype);
    i.arg = v->number;
    if (v->fixed) {
        if (m->constant_of[x] < 0) m->constant_of[x] = constant(p, v->value);
        i.arg = m->attempt->request->n_numbers + m->constant_of[x];
    }
    return add(p, i);
}

/* The index along one axis; where a view made it run along several, the sum of them. */
static int iota(program *p, const wb__value *v, const wb__view *view, int level)
{
    int sum = -1;
    int64_t shift = view->offset;
    wb__instr i = blank(WB__IOTA, level, v->dtype);
    for (int d = 0; d < view->ndim; d++) {
        if (!view->strides[d] || view->dims[d] == 1) continue;
        i.arg = d;
        i.scale = view->strides[d];
        i.shift = shift;
        shift = 0;
        int one = add(p, i);
        wb__instr both = i;
        both.kind = WB__ROW;
        both.op = WB__OP_add;
        both.a = sum;
        both.b = one;
        sum = sum < 0 ? one : add(p, both);
    }
    if (sum >= 0) return sum;
    i.arg = 0;
    i.scale = 0;
    i.shift = shift;
    return add(p, i);
}

static int draw(program *p, const wb__value *v, const wb__view *view, int level)
{
    wb__instr i = blank(v->op == WB__OP_uniform ? WB__UNIFORM : WB__GAUSSIAN, level, v->dtype);
    i.arg = v->number;
    i.c = add_view(p, view, -1);
    return add(p, i);
}

static int load(program *p, int dtype, const wb__view *view, int owner, int level)
{
    wb__instr i = blank(WB__LOAD, level, dtype);
    i.arg = add_view(p, view, owner);
    return add(p, i);
}

static void store(program *p, int instr, const wb__view *view, int owner)
{
    wb__instr i = blank(WB__STORE, p->instr[instr].level, p->instr[instr].dtype);
    i.a = instr;
    i.arg = add_view(p, view, owner);
    add(p, i);
}

static int elementwise(program *p, const wb__value *v, int level, const int *in)
{
    wb__instr i = blank(v->op == WB__OP_cast ? WB__CAST : WB__ROW, level, v->dtype);
    i.op = v->op;
    i.a = in[0];
    i.b = in[1];
    i.c = in[2];
    return add(p, i);
}

static int outside(program *p, int x, int level, bool whole);

static int keep_had(program *p, int x, int level, int instr)
{
    if (!grow(p, &p->had, &p->had_room, p->n_had + 1, sizeof *p->had)) return 0;
    p->had[p->n_had].value = x;
    p->had[p->n_had].level = level;
    p->had[p->n_had++].instr = instr;
    return instr;
}

/* A value that no kernel stores: from its operands, at this level. */
static int rematerialised(program *p, int x, int level)
{
    const wb__ir *ir = &p->m->values->ir;
    const wb__value v = ir->value[x];
    int in[3] = {-1, -1, -1};
    for (int i = 0; i < p->n_had; i++)
        if (p->had[i].value == x && p->had[i].level == level) return p->had[i].instr;
    for (int i = 0; i < v.n_in; i++) in[i] = outside(p, ir->inputs[v.in + i], level, true);
    if (p->m->failed) return 0;
    return keep_had(p, x, level, elementwise(p, &v, level, in));
}

/* An operand from outside the group, or a number.  `whole`: at the level of the space even if it
 * does not vary there. */
static int outside(program *p, int x, int level, bool whole)
{
    wb__emitter *m = p->m;
    const wb__value *v = wb__value_at(m->values, x);
    wb__view view;
    int owner, at;
    if (m->groups->of[x].rematerialised) return rematerialised(p, x, level);
    if (v->op == WB__OP_literal && !m->values->needed[x])
        return number(p, x, whole ? level : WB__LEVEL_ONE);
    if (!wb__place_of(m, x, &view, &owner)) return 0;
    view = in_space(p->group, &view);
    if (level == WB__LEVEL_FULL && !whole && !varies(p->group, &view)) level = WB__LEVEL_ROW;
    for (int i = 0; i < p->n_had; i++)
        if (p->had[i].value == x && p->had[i].level == level) return p->had[i].instr;
    int base = m->values->base[x];
    const wb__value *b = wb__value_at(m->values, base);
    const bool source = wb__is_free_source(m->values, base);
    if (source && b->op == WB__OP_literal) at = number(p, base, level);
    else if (source && b->op == WB__OP_iota) at = iota(p, b, &view, level);
    else if (source) at = draw(p, b, &view, level);
    else at = load(p, v->dtype, &view, owner, level);
    return keep_had(p, x, level, at);
}

static bool inside(const program *p, int x) { return p->m->groups->of[x].group == p->g; }

static int operand(program *p, int x, int level, bool whole)
{
    return inside(p, x) ? p->m->instr_of[x] : outside(p, x, level, whole);
}

/* Operands of an elementwise value.  At least one must be at the value's own level. */
static void operands(program *p, const wb__value *v, int level, int *in)
{
    const wb__ir *ir = &p->m->values->ir;
    int finest = -1;
    for (int i = 0; i < v->n_in; i++) {
        in[i] = operand(p, ir->inputs[v->in + i], level, false);
        if (!p->m->failed) finest = WB__MAX(finest, p->instr[in[i]].level);
    }
    for (int i = 0; i < v->n_in && finest < level && !p->m->failed; i++) {
        int x = ir->inputs[v->in + i];
        if (inside(p, x)) continue;
        in[i] = outside(p, x, level, true);
        finest = level;
    }
}

static void store_value(program *p, int x)
{
    wb__view view;
    int owner;
    if (!wb__place_of(p->m, x, &view, &owner)) return;
    view = in_space(p->group, &view);
    store(p, p->m->instr_of[x], &view, owner);
}

static void fold(program *p, int x, const wb__value *v)
{
    wb__emitter *m = p->m;
    const wb__group *g = p->group;
    int of = m->values->ir.inputs[v->in];
    const wb__value *f = wb__value_at(m->values, of);
    wb__instr i = blank(WB__FOLD_COLS, WB__LEVEL_ROW, v->dtype);
    i.op = v->op;
    i.a = operand(p, of, wb__space_is(g, f) ? WB__LEVEL_FULL : WB__LEVEL_ROW, true);
    if (m->failed) return;
    if (!m->groups->of[x].ends) {
        m->instr_of[x] = add(p, i);
        return;
    }
    wb__view view;
    int owner;
    if (!wb__place_of(m, x, &view, &owner)) return;
    view = in_space(g, &view);                  /* the folded axes have size 1 and so stride 0 */
    i.kind = v->size == 1 && g->outer_dims == 0 ? WB__FOLD_ALL : WB__FOLD_ROWS;
    i.level = WB__LEVEL_ONE;
    i.arg = add_view(p, &view, owner);
    m->instr_of[x] = add(p, i);
}

/* A copy, in order, has its own dimensions; the space has its operand's. */
static void store_in_order(program *p, int x, const wb__value *v)
{
    wb__emitter *m = p->m;
    wb__view view, mine;
    int owner;
    if (!wb__place_of(m, x, &mine, &owner)) return;
    wb__value like = *wb__ir_in(&m->values->ir, v, 0);
    like.nhwc = false;
    wb__contiguous(&like, &view);
    view.buffer = mine.buffer;
    view.offset = mine.offset;
    view = in_space(p->group, &view);
    store(p, m->instr_of[x], &view, owner);
}

static void one(program *p, int x)
{
    wb__emitter *m = p->m;
    const wb__value *v = wb__value_at(m->values, x);
    const wb__group *g = p->group;
    int in[3] = {-1, -1, -1};
    const int level = wb__space_is(g, v) ? WB__LEVEL_FULL : WB__LEVEL_ROW;
    wb__op_class class = wb__ops[v->op].class;
    if (class == WB__REDUCE) {
        fold(p, x, v);
    } else if (class == WB__SOURCE) {
        wb__view view;
        wb__contiguous(v, &view);
        if (v->op == WB__OP_iota) {
            memset(view.strides, 0, sizeof view.strides);
            view.strides[m->values->ir.attrs[v->attr]] = 1;
        }
        view = in_space(g, &view);
        m->instr_of[x] = v->op == WB__OP_literal ? number(p, x, WB__LEVEL_FULL)
                         : v->op == WB__OP_iota  ? iota(p, v, &view, level)
                                                 : draw(p, v, &view, level);
    } else if (class == WB__MOVE) { /* a copy, in order: the space is its operand's */
        m->instr_of[x] = outside(p, m->values->ir.inputs[v->in], WB__LEVEL_FULL, true);
    } else {
        operands(p, v, level, in);
        if (m->failed) return;
        m->instr_of[x] = elementwise(p, v, level, in);
    }
    if (m->failed || !m->groups->of[x].stored) return;
    if (class == WB__MOVE) store_in_order(p, x, v);
    else if (!m->groups->of[x].ends) store_value(p, x);
}

static void free_program(program *p)
{
    wb__free(p->instr);
    wb__free(p->views);
    wb__free(p->owners);
    wb__free(p->had);
}

/* Hands the program over to a new step. */
static void finish(program *p)
{
    wb__emitter *m = p->m;
    const wb__group *g = p->group;
    wb__space *space = wb__alloc(sizeof *space);
    wb__plan_step *d = m->failed || !space ? NULL : wb__emit_step(m, WB__STEP_FUSED);
    if (!d) {
        m->failed = true;
        wb__free(space);
        free_program(p);
        return;
    }
    *space = (wb__space){.ndim = g->ndim,
                         .row_dims = g->ndim - g->col_dims - g->outer_dims,
                         .col_dims = g->col_dims};
    for (int i = 0; i < g->ndim; i++) space->dims[i] = g->dims[g->axis[i]];
    d->instr = p->instr;
    d->views = p->views;
    d->owners = p->owners;
    d->spaces = space;
    d->n_owners = p->n_views;
    d->step.fused = (wb__fused){.n_instr = p->n_instr, .n_views = p->n_views, .n_segments = 1};
    wb__free(p->had);
}

void wb__emit_fused(wb__emitter *m, int group)
{
    program p = {.m = m, .group = &m->groups->group[group], .g = group};
    for (int x = p.group->first; x >= 0 && !m->failed; x = m->groups->of[x].next) one(&p, x);
    finish(&p);
}

/* A program of two instructions: zero, stored everywhere. */
void wb__emit_zeros(wb__emitter *m, wb__view to, int owner)
{
    wb__group g = {.ndim = to.ndim, .col_dims = WB__MIN(to.ndim, 1)};
    for (int i = 0; i < to.ndim; i++) g.axis[i] = i;
    memcpy(g.dims, to.dims, sizeof g.dims);
    program p = {.m = m, .group = &g, .g = -1};
    wb__instr zero = blank(WB__NUMBER, WB__LEVEL_FULL, (int)to.dtype);
    zero.arg = m->attempt->request->n_numbers + constant(&p, 0);
    const int from = add(&p, zero);
    if (!m->failed) store(&p, from, &to, owner);
    finish(&p);
}
