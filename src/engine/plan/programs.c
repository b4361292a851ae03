/* From groups to steps: a kernel for each group, and copies into results and variables.
 *
 * Order of the steps: groups that only compute; copies into results; groups that write variables in
 * place; copies into the other variables.  So a failure before the writes changes no variable. */
#include "engine/plan/stages.h"

bool wb__step_operand_of(wb__emitter *m, int x, wb__step_operand *out)
{
    const int base = m->values->base[x], index = m->placement->role[base].operand;
    *out = (wb__step_operand){.allocation = -1};
    if (m->failed) return false;
    if (wb__is_free_source(m->values, base)) {
        out->view = m->values->view[x];
        return true;
    }
    if (index >= 0) {
        const wb__step_operand *at = &m->placement->operand[index];
        out->allocation = at->allocation;
        if (wb__view_of(m->values, x, &at->view, &out->view)) return true;
    }
    wb__fail(WB_ERROR_INTERNAL, "plan: strides cannot express a view of %s",
             wb__ops[wb__value_at(m->values, base)->op].name);
    m->failed = true;
    return false;
}

wb__step_operand wb__emit_allocation(wb__emitter *m, const wb__value *like)
{
    wb__programs *p = m->out;
    wb__step_operand at = {.allocation = m->placement->n_allocations + p->n_allocations};
    wb__contiguous(like, &at.view);
    at.view.buffer = m->placement->arena_buffer;
    if (wb__reserve(&p->bytes, &p->allocations_capacity, p->n_allocations + 1, sizeof *p->bytes))
        p->bytes[p->n_allocations++] = wb__value_bytes(like);
    else m->failed = true;
    return at;
}

void wb__step_begin(const wb__emitter *m, wb__step_kind kind, wb__plan_step *d)
{
    *d = (wb__plan_step){.step = wb__step_blank(m->attempt, kind), .aux = {.allocation = -1},
                         .sums = {.allocation = -1}};
}

int wb__add_operand(wb__emitter *m, wb__plan_step *d, const wb__step_operand *at)
{
    if (m->failed || !wb__reserve(&d->operand, &d->capacity, d->n_operands + 1, sizeof *at)) {
        m->failed = true;
        return 0;
    }
    d->operand[d->n_operands] = *at;
    return d->n_operands++;
}

void wb__emit_step(wb__emitter *m, wb__plan_step *d)
{
    wb__programs *p = m->out;
    if (m->failed || !wb__reserve(&p->step, &p->capacity, p->n + 1, sizeof *d)) {
        m->failed = true;
        wb__step_free(d);
        return;
    }
    p->step[p->n++] = *d;
}

void wb__emit_copy(wb__emitter *m, const wb__step_operand *from, const wb__step_operand *to,
                   const char *reason)
{
    wb__plan_step d;
    wb__step_begin(m, WB__STEP_COPY, &d);
    wb__add_operand(m, &d, from);
    wb__add_operand(m, &d, to);
    d.text = wb__strdup(reason);
    wb__emit_step(m, &d);
}

/* Returns a row-major operand with v's dimensions, in a buffer other than the arena. */
static wb__step_operand operand_in_buffer(const wb__value *v, int buffer)
{
    wb__value like = *v;
    wb__step_operand at = {.allocation = -1};
    like.layout = WB__ROW_MAJOR;
    wb__contiguous(&like, &at.view);
    at.view.buffer = buffer;
    return at;
}

/* Whether x is in the memory of a leaf, which a write may change before x is read. */
static bool is_from_variable(const wb__emitter *m, int x, const wb__step_operand *from)
{
    return from->view.buffer >= 0 && from->view.buffer < m->placement->result_buffer &&
           m->placement->role[m->values->base[x]].write < 0;
}

/* Whether two operands of the same dimensions are the same memory. */
static bool programs_same_memory(const wb__step_operand *p, const wb__step_operand *q)
{
    const wb__view *v = &p->view, *w = &q->view;
    bool same = p->allocation == q->allocation && v->buffer == w->buffer && v->offset == w->offset;
    for (int i = 0; i < v->ndim && same; i++)
        same = v->dims[i] == 1 || v->strides[i] == w->strides[i];
    return same;
}

/* Emits a step that fills the concat with its only part and with zeros. */
static void emit_padded_concat(wb__emitter *m, const wb__value *a, const wb__step_operand *whole)
{
    wb__step_operand from;
    wb__window w;
    if (!wb__step_operand_of(m, wb__input(m->values, a, 0), &from)) return;
    wb__window_pad(a, m->values->ir.attrs + a->attr, false, &from.view, &w);
    wb__emit_padded(m, &from, &w, whole);
}

/* Emits steps that copy the parts of the concat x that are not in its memory yet, and zeros for its
 * gaps. */
static void emit_concat(wb__emitter *m, int x)
{
    const wb__value *a = wb__value_at(m->values, x);
    const bool covered = wb__is_covered(m->values, a);
    const wb__backend *b = m->attempt->device->backend;
    const bool by_kernel = a->dtype != WB_F64;   /* all devices copy f64; some cannot compute it */
    const bool at_first = covered && by_kernel && b->dear_launches;
    wb__step_operand whole, from;
    if (!wb__step_operand_of(m, x, &whole)) return;
    if (!covered && by_kernel && b->padded_views && a->n_in == 1 &&
        wb__ir_in(&m->values->ir, a, 0)->size) {
        emit_padded_concat(m, a, &whole);
        return;
    }
    if (!covered) wb__emit_zeros(m, &whole);
    for (int j = 0; j < a->n_in && !m->failed; j++) {
        const int p = wb__input(m->values, a, j);
        wb__step_operand part = whole;
        const int64_t *start = m->values->ir.attrs + a->attr + j * a->ndim;
        for (int i = 0; i < a->ndim; i++) {
            part.view.dims[i] = wb__value_at(m->values, p)->dims[i];
            part.view.offset += start[i] * whole.view.strides[i];
        }
        if (!wb__value_at(m->values, p)->size || !wb__step_operand_of(m, p, &from) ||
            programs_same_memory(&from, &part))
            continue;
        if (at_first && is_from_variable(m, p, &from)) wb__emit_first(m, &from, &part);
        else wb__emit_copy(m, &from, &part, "part");
    }
}

/* Emits copies of the results that are not computed in their own memory. */
static void copy_results(wb__emitter *m)
{
    const wb__request *r = m->attempt->request;
    for (int i = 0; i < r->n_results; i++) {
        const int x = wb__root(m->values, r->results[i]);
        wb__step_operand from;
        if (m->placement->role[wb__same_memory(m->values, x)].result == i) continue;
        if (!wb__step_operand_of(m, x, &from)) return;
        const wb__step_operand to = operand_in_buffer(wb__value_at(m->values, x),
                                                      m->placement->result_buffer + i);
        wb__emit_copy(m, &from, &to, "result");
    }
}

/* Emits copies for the writes that are not in place.  The first call, before variables are written,
 * saves the values that are in leaves: the value of write i is copied to aside[i].  The second call
 * copies to the variables. */
static void copy_writes(wb__emitter *m, wb__step_operand *aside, bool first)
{
    const wb__request *r = m->attempt->request;
    for (int i = 0; i < r->n_writes; i++) {
        const int x = wb__root(m->values, r->writes[i]), target = r->targets[i];
        wb__step_operand from;
        if (target < 0 || m->placement->role[wb__same_memory(m->values, x)].write == i ||
            !wb__step_operand_of(m, x, &from))
            continue;
        const bool from_variable = is_from_variable(m, x, &from);
        if (!first) {
            const wb__step_operand to = operand_in_buffer(wb__value_at(m->values, x), target);
            wb__emit_copy(m, from_variable ? &aside[i] : &from, &to, "write");
        } else if (from_variable) {
            wb__value like = *wb__value_at(m->values, x);
            like.layout = WB__ROW_MAJOR;
            aside[i] = wb__emit_allocation(m, &like);
            wb__emit_copy(m, &from, &aside[i], "saved");
        }
    }
}

/* Emits the steps of the groups that are final, or of the others. */
static void emit_groups(wb__emitter *m, bool is_final)
{
    for (int g = 0; g < m->groups->n && !m->failed; g++) {
        const wb__group *group = &m->groups->group[g];
        if (m->placement->is_final[g] != is_final || group->first < 0) continue;
        switch (group->kind) {
        case WB__GROUP_FUSED: wb__emit_fused(m, g); break;
        case WB__GROUP_LIBRARY: wb__emit_library(m, g); break;
        case WB__GROUP_CONCAT: emit_concat(m, group->first); break;
        }
    }
}

static bool emit_all_steps(wb__emitter *m)
{
    const size_t n_writes = (size_t)m->attempt->request->n_writes;
    wb__step_operand *aside = wb__alloc((n_writes + 1) * sizeof *aside);
    if (!aside) return false;
    emit_groups(m, false);
    copy_results(m);
    copy_writes(m, aside, true);
    m->out->n_compute = m->out->n;
    emit_groups(m, true);
    copy_writes(m, aside, false);
    wb__free(aside);
    return !m->failed;
}

bool wb__programs_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                       const wb__groups *g, const wb__placement *l, wb__programs *out)
{
    const size_t n = (size_t)s->ir.n + 1;
    wb__emitter m = {.attempt = a, .values = s, .patterns = p, .groups = g, .placement = l,
                     .out = out};
    m.instr_of = wb__alloc(n * sizeof *m.instr_of);
    m.constant_of = wb__alloc(n * sizeof *m.constant_of);
    m.bits_of = wb__alloc(((size_t)p->n + 1) * sizeof *m.bits_of);
    bool good = m.instr_of && m.constant_of && m.bits_of;
    for (int x = 0; good && x < s->ir.n; x++) m.constant_of[x] = -1;
    for (int i = 0; good && i < p->n; i++) m.bits_of[i].allocation = -1;
    const wb__backend *b = a->device->backend;
    const bool branches = b->branches && b->branches(a->device);
    good = good && emit_all_steps(&m) && wb__merge_segments(out, b->segment_numbers) &&
           wb__pack_operands(&m) && wb__lay_out(l, b->scarce_memory, branches, out);
    wb__free(m.instr_of);
    wb__free(m.constant_of);
    wb__free(m.bits_of);
    return good;
}

void wb__step_free(wb__plan_step *d)
{
    wb__free(d->operand);
    wb__free(d->views);
    wb__free(d->instr);
    wb__free(d->spaces);
    wb__free(d->windows);
    wb__free(d->args);
    wb__free(d->text);
}

void wb__programs_free(wb__programs *p)
{
    for (int i = 0; i < p->n; i++) wb__step_free(&p->step[i]);
    wb__free(p->step);
    wb__free(p->constants);
    wb__free(p->bytes);
}
