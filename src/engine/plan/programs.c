/* From groups to steps: every group its kernel, results and writes their copies.
 *
 * Order of the steps: groups that only compute; copies into results; then groups that write
 * variables in place, and last the copies into variables that could not be written so.  A failure
 * before the writes leaves everything as it was. */
#include "engine/plan/stages.h"

static const wb__value *value(const wb__emitter *m, int x) { return wb__value_at(m->values, x); }

/* ---- steps and their operands ---------------------------------------------------------------- */

bool wb__place_of(wb__emitter *m, int x, wb__view *out, int *owner)
{
    const int base = m->values->base[x];
    *owner = -1;
    if (wb__is_free_source(m->values, base)) {
        wb__view_alone(m->values, x, out);
        return true;
    }
    const int place = m->placement->role[base].place;
    if (place >= 0) {
        const wb__place *at = &m->placement->place[place];
        *owner = at->memory;
        if (wb__view_of(m->values, x, &at->view, out)) return true;
    }
    wb__fail(WB_ERROR_INTERNAL, "plan: a view of %s could not be told in strides",
             wb__ops[value(m, base)->op].name);
    m->failed = true;
    return false;
}

int wb__emit_memory(wb__emitter *m, int64_t bytes)
{
    wb__programs *p = m->out;
    if (!wb__make_room(&p->bytes, &p->memory_capacity, p->n_memory + 1, sizeof *p->bytes)) {
        m->failed = true;
        return 0;
    }
    p->bytes[p->n_memory] = bytes;
    return m->placement->n_memory + p->n_memory++;
}

wb__plan_step *wb__emit_step(wb__emitter *m, wb__step_kind kind)
{
    wb__programs *p = m->out;
    if (!wb__make_room(&p->step, &p->capacity, p->n + 1, sizeof *p->step)) {
        m->failed = true;
        return NULL;
    }
    wb__plan_step *d = &p->step[p->n++];
    *d = (wb__plan_step){
        .step = wb__step_blank(m->attempt, kind), .aux_owner = -1, .sums_owner = -1};
    return d;
}

void wb__emit_view(wb__emitter *m, wb__plan_step *d, wb__view v, int owner)
{
    if (!d->owners && !(d->owners = wb__alloc(WB__COUNT(d->step.views) * sizeof *d->owners))) {
        m->failed = true;
        return;
    }
    d->owners[d->n_owners++] = owner;
    d->step.views[d->step.n_views++] = v;
}

void wb__emit_copy(wb__emitter *m, wb__view from, int from_owner, wb__view to, int to_owner,
                   const char *why)
{
    wb__plan_step *d = wb__emit_step(m, WB__STEP_COPY);
    if (!d) return;
    wb__emit_view(m, d, from, from_owner);
    wb__emit_view(m, d, to, to_owner);
    d->text = wb__strdup(why);
}

/* ---- concats --------------------------------------------------------------------------------- */

static void concat(wb__emitter *m, int x)
{
    const wb__value *a = value(m, x);
    wb__view whole, from;
    int owner, from_owner;
    int64_t covered = 0;
    if (!wb__place_of(m, x, &whole, &owner)) return;
    for (int j = 0; j < a->n_in; j++) covered += wb__ir_in(&m->values->ir, a, j)->size;
    if (covered != a->size) wb__emit_zeros(m, whole, owner);
    for (int j = 0; j < a->n_in && !m->failed; j++) {
        const int p = wb__input(m->values, a, j);
        const wb__role *c = &m->placement->role[wb__content(m->values, p)];
        if (c->concat == x && c->part == j) continue;
        wb__view part = whole;
        const int64_t *start = m->values->ir.attrs + a->attr + j * a->ndim;
        for (int i = 0; i < a->ndim; i++) {
            part.dims[i] = value(m, p)->dims[i];
            part.offset += start[i] * whole.strides[i];
        }
        if (value(m, p)->size && wb__place_of(m, p, &from, &from_owner))
            wb__emit_copy(m, from, from_owner, part, owner, "piece");
    }
}

/* ---- results and writes ---------------------------------------------------------------------- */

static void copy_results(wb__emitter *m)
{
    const wb__request *r = m->attempt->request;
    for (int i = 0; i < r->n_results && !m->failed; i++) {
        const int x = wb__root(m->values, r->results[i]);
        if (m->placement->role[wb__same_memory(m->values, x)].result == i) continue;
        wb__value like = *value(m, x);
        wb__view from, to;
        int owner;
        if (!wb__place_of(m, x, &from, &owner)) return;
        like.dtype = r->results[i]->dtype;
        like.nhwc = like.heads_first = false;
        wb__contiguous(&like, &to);
        to.buffer = m->placement->result_buffer + i;
        wb__emit_copy(m, from, owner, to, -1, "result");
    }
}

/* Is x in the memory of a variable?  A value that is made in the memory of another variable, at the
 * end, is there only then. */
static bool is_from_variable(const wb__emitter *m, int x, const wb__view *from)
{
    return from->buffer >= 0 && from->buffer < m->placement->result_buffer &&
           m->placement->role[m->values->base[x]].write < 0;
}

/* Writes that are not made in place.  `aside`: what they take from another variable's memory is set
 * aside, in the piece of memory aside[i]; this is done before variables are written. */
static void copy_writes(wb__emitter *m, int *aside, bool first)
{
    const wb__request *r = m->attempt->request;
    for (int i = 0; i < r->n_writes && !m->failed; i++) {
        const int x = wb__root(m->values, r->writes[i]), target = r->targets[i];
        wb__view from, to;
        int owner;
        if (target < 0 || m->placement->role[x].write == i || !wb__place_of(m, x, &from, &owner))
            continue;
        wb__value like = *value(m, x);
        like.nhwc = false;
        wb__contiguous(&like, &to);
        const bool from_variable = is_from_variable(m, x, &from);
        if (first && from_variable) {
            to.buffer = m->placement->arena_buffer;
            aside[i] = wb__emit_memory(m, wb__value_bytes(&like));
            wb__emit_copy(m, from, owner, to, aside[i], "set aside");
        } else if (!first) {
            if (from_variable) {
                from = to;
                from.buffer = m->placement->arena_buffer;
                owner = aside[i];
            }
            to.buffer = target;
            wb__emit_copy(m, from, owner, to, -1, "write");
        }
    }
}

/* ---- everything ------------------------------------------------------------------------------ */

static void emit_groups(wb__emitter *m, bool is_final)
{
    for (int g = 0; g < m->groups->n && !m->failed; g++) {
        const wb__group *group = &m->groups->group[g];
        if (m->placement->is_final[g] != is_final || group->first < 0) continue;
        switch (group->kind) {
        case WB__GROUP_FUSED: wb__emit_fused(m, g); break;
        case WB__GROUP_LIBRARY: wb__emit_library(m, g); break;
        case WB__GROUP_CONCAT: concat(m, group->first); break;
        }
    }
}

static bool emit(wb__emitter *m)
{
    int *aside = wb__alloc(((size_t)m->attempt->request->n_writes + 1) * sizeof *aside);
    if (!aside) return false;
    emit_groups(m, false);
    if (!m->failed) copy_results(m);
    if (!m->failed) copy_writes(m, aside, true);
    m->out->n_compute = m->out->n;
    emit_groups(m, true);
    if (!m->failed) copy_writes(m, aside, false);
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
    for (int i = 0; good && i < p->n; i++) m.bits_of[i] = -1;
    good = good && emit(&m) && wb__merge_segments(out) && wb__lay_out(l, out);
    wb__free(m.instr_of);
    wb__free(m.constant_of);
    wb__free(m.bits_of);
    return good;
}

void wb__step_free(wb__plan_step *d)
{
    wb__free(d->owners);
    wb__free(d->views);
    wb__free(d->instr);
    wb__free(d->spaces);
    wb__free(d->text);
}

void wb__programs_free(wb__programs *p)
{
    for (int i = 0; i < p->n; i++) wb__step_free(&p->step[i]);
    wb__free(p->step);
    wb__free(p->constants);
    wb__free(p->bytes);
}
