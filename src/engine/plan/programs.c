/* From groups to steps: every group its kernel, results and writes their copies.
 *
 * Order of the steps: groups that only compute; copies into results; then groups that write
 * variables in place, and last the copies into variables that could not be written so.  A failure
 * before the writes leaves everything as it was. */
#include "engine/plan/stages.h"

static const wb__value *value(const wb__emitter *m, int x) { return wb__value_at(m->values, x); }

/* ---- steps and their operands ---------------------------------------------------------------- */

bool wb__place_of(wb__emitter *m, int x, wb__place *out)
{
    const int base = m->values->base[x], place = m->placement->role[base].place;
    *out = (wb__place){.memory = -1};
    if (m->failed) return false;
    if (wb__is_free_source(m->values, base)) {
        out->view = m->values->view[x];
        return true;
    }
    if (place >= 0) {
        const wb__place *at = &m->placement->place[place];
        out->memory = at->memory;
        if (wb__view_of(m->values, x, &at->view, &out->view)) return true;
    }
    wb__fail(WB_ERROR_INTERNAL, "plan: a view of %s could not be told in strides",
             wb__ops[value(m, base)->op].name);
    m->failed = true;
    return false;
}

wb__place wb__emit_memory(wb__emitter *m, const wb__value *like)
{
    wb__programs *p = m->out;
    wb__place at = {.memory = m->placement->n_memory + p->n_memory};
    wb__contiguous(like, &at.view);
    at.view.buffer = m->placement->arena_buffer;
    if (wb__reserve(&p->bytes, &p->memory_capacity, p->n_memory + 1, sizeof *p->bytes))
        p->bytes[p->n_memory++] = wb__value_bytes(like);
    else m->failed = true;
    return at;
}

void wb__step_begin(const wb__emitter *m, wb__step_kind kind, wb__plan_step *d)
{
    *d = (wb__plan_step){.step = wb__step_blank(m->attempt, kind), .aux = {.memory = -1},
                         .sums = {.memory = -1}};
}

int wb__add_place(wb__emitter *m, wb__plan_step *d, const wb__place *at)
{
    if (m->failed || !wb__reserve(&d->place, &d->capacity, d->n_places + 1, sizeof *at)) {
        m->failed = true;
        return 0;
    }
    d->place[d->n_places] = *at;
    return d->n_places++;
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

void wb__emit_copy(wb__emitter *m, const wb__place *from, const wb__place *to, const char *why)
{
    wb__plan_step d;
    wb__step_begin(m, WB__STEP_COPY, &d);
    wb__add_place(m, &d, from);
    wb__add_place(m, &d, to);
    d.text = wb__strdup(why);
    wb__emit_step(m, &d);
}

/* A value's elements row-major in a buffer that is not the arena. */
static wb__place in_buffer(const wb__value *v, int buffer)
{
    wb__value like = *v;
    wb__place at = {.memory = -1};
    like.layout = WB__ROW_MAJOR;
    wb__contiguous(&like, &at.view);
    at.view.buffer = buffer;
    return at;
}

/* ---- concats --------------------------------------------------------------------------------- */

static void concat(wb__emitter *m, int x)
{
    const wb__value *a = value(m, x);
    wb__place whole, from;
    if (!wb__place_of(m, x, &whole)) return;
    if (!wb__is_covered(m->values, a)) wb__emit_zeros(m, &whole);
    for (int j = 0; j < a->n_in && !m->failed; j++) {
        const int p = wb__input(m->values, a, j);
        const wb__role *c = &m->placement->role[wb__content(m->values, p)];
        if (c->concat == x && c->part == j) continue;
        wb__place part = whole;
        const int64_t *start = m->values->ir.attrs + a->attr + j * a->ndim;
        for (int i = 0; i < a->ndim; i++) {
            part.view.dims[i] = value(m, p)->dims[i];
            part.view.offset += start[i] * whole.view.strides[i];
        }
        if (value(m, p)->size && wb__place_of(m, p, &from)) wb__emit_copy(m, &from, &part, "piece");
    }
}

/* ---- results and writes ---------------------------------------------------------------------- */

static void copy_results(wb__emitter *m)
{
    const wb__request *r = m->attempt->request;
    for (int i = 0; i < r->n_results; i++) {
        const int x = wb__root(m->values, r->results[i]);
        wb__place from;
        if (m->placement->role[wb__same_memory(m->values, x)].result == i) continue;
        if (!wb__place_of(m, x, &from)) return;
        const wb__place to = in_buffer(value(m, x), m->placement->result_buffer + i);
        wb__emit_copy(m, &from, &to, "result");
    }
}

/* Is x in the memory of a leaf, which a write may change?  A value that is made in the memory of another variable, at the
 * end, is there only then. */
static bool is_from_variable(const wb__emitter *m, int x, const wb__place *from)
{
    return from->view.buffer >= 0 && from->view.buffer < m->placement->result_buffer &&
           m->placement->role[m->values->base[x]].write < 0;
}

/* Writes that are not made in place.  Before variables are written (`first`), those that read another
 * variable's memory are set aside, in aside[i]. */
static void copy_writes(wb__emitter *m, wb__place *aside, bool first)
{
    const wb__request *r = m->attempt->request;
    for (int i = 0; i < r->n_writes; i++) {
        const int x = wb__root(m->values, r->writes[i]), target = r->targets[i];
        wb__place from;
        if (target < 0 || m->placement->role[x].write == i || !wb__place_of(m, x, &from)) continue;
        const bool from_variable = is_from_variable(m, x, &from);
        if (!first) {
            const wb__place to = in_buffer(value(m, x), target);
            wb__emit_copy(m, from_variable ? &aside[i] : &from, &to, "write");
        } else if (from_variable) {
            wb__value like = *value(m, x);
            like.layout = WB__ROW_MAJOR;
            aside[i] = wb__emit_memory(m, &like);
            wb__emit_copy(m, &from, &aside[i], "set aside");
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
    wb__place *aside = wb__alloc(((size_t)m->attempt->request->n_writes + 1) * sizeof *aside);
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
    for (int i = 0; good && i < p->n; i++) m.bits_of[i].memory = -1;
    good = good && emit(&m) && wb__merge_segments(out) && wb__lay_out(l, out);
    wb__free(m.instr_of);
    wb__free(m.constant_of);
    wb__free(m.bits_of);
    return good;
}

void wb__step_free(wb__plan_step *d)
{
    wb__free(d->place);
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
