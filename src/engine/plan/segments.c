/* Kernels that differ in what they work on alone become one kernel of many segments. */
#include "engine/plan/stages.h"

#include <string.h>

static bool same_program(const wb__plan_step *p, const wb__plan_step *q)
{
    const wb__fused *a = &p->step.fused, *b = &q->step.fused;
    if (a->n_instr != b->n_instr || a->n_views != b->n_views) return false;
    for (int i = 0; i < a->n_instr; i++) {
        const wb__instr *x = &p->instr[i], *y = &q->instr[i];
        if (x->kind != y->kind || x->reg != y->reg || x->level != y->level ||
            x->dtype != y->dtype || x->op != y->op || x->a != y->a || x->b != y->b ||
            x->c != y->c || x->arg != y->arg || x->scale != y->scale || x->shift != y->shift)
            return false;
    }
    for (int i = 0; i < a->n_views; i++)
        if (p->place[i].view.dtype != q->place[i].view.dtype) return false;
    const wb__space *s = &p->spaces[0], *t = &q->spaces[0];
    return s->ndim == t->ndim && s->row_dims == t->row_dims && s->col_dims == t->col_dims;
}

/* A program that walks all its views in the same dense order is one over a line.  Each view must vary
 * everywhere, or nowhere. */
static void flatten(wb__plan_step *d)
{
    const wb__space *s = &d->spaces[0];
    int64_t size = 1, stride[WB_MAX_DIMS];
    for (int i = s->ndim - 1; i >= 0; i--) {
        stride[i] = size;
        size *= s->dims[i];
    }
    for (int i = 0; i < d->step.fused.n_instr; i++)
        if (d->instr[i].kind != WB__LOAD && d->instr[i].kind != WB__STORE &&
            d->instr[i].kind != WB__ROW && d->instr[i].kind != WB__NUMBER &&
            d->instr[i].kind != WB__CAST)
            return;
    for (int v = 0; v < d->n_places; v++) {
        bool any = false, all = true;
        for (int i = 0; i < s->ndim; i++) {
            const int64_t step = d->place[v].view.strides[i];
            if (s->dims[i] == 1) continue;
            if (step && step != stride[i]) return;
            any |= step != 0;
            all &= step != 0;
        }
        if (any != all && size != 1) return;
    }
    for (int v = 0; v < d->n_places; v++) {
        wb__view *w = &d->place[v].view;
        int64_t step = size == 1;
        for (int i = 0; i < s->ndim; i++) step |= s->dims[i] != 1 && w->strides[i];
        w->ndim = 1;
        w->dims[0] = size;
        w->strides[0] = step;
    }
    d->spaces[0] = (wb__space){.ndim = 1, .row_dims = 0, .col_dims = 1, .dims = {size}};
}

/* What kernels read and write: pairs of a buffer and, where it is the arena, who has the place. */
typedef struct { wb__pointer_map touched, written; } traffic;

static const void *place_of(const wb__plan_step *d, int view)
{
    const wb__place *at = &d->place[view];
    const uint64_t buffer = (uint32_t)(at->view.buffer + 2);
    return (const void *)(uintptr_t)(buffer << 40 | (uint64_t)(uint32_t)(at->memory + 2) << 4);
}

/* Adds a kernel of one segment; false without memory. */
static bool add_traffic(traffic *t, const wb__plan_step *d)
{
    bool good = true;
    for (int v = 0; good && v < d->step.fused.n_views; v++)
        good = wb__pointer_map_put(&t->touched, place_of(d, v), 1);
    for (int i = 0; good && i < d->step.fused.n_instr; i++)
        if (d->instr[i].kind == WB__STORE)
            good = wb__pointer_map_put(&t->written, place_of(d, d->instr[i].arg), 1);
    return good;
}

static void clear_traffic(traffic *t)
{
    wb__pointer_map_clear(&t->touched);
    wb__pointer_map_clear(&t->written);
}

static void free_traffic(traffic *t)
{
    wb__pointer_map_free(&t->touched);
    wb__pointer_map_free(&t->written);
}

/* May a kernel run side by side with those?  Neither touches what the other writes. */
static bool apart(const traffic *t, const wb__plan_step *d)
{
    for (int v = 0; v < d->step.fused.n_views; v++)
        if (wb__pointer_map_get(&t->written, place_of(d, v)) >= 0) return false;
    for (int i = 0; i < d->step.fused.n_instr; i++)
        if (d->instr[i].kind == WB__STORE &&
            wb__pointer_map_get(&t->touched, place_of(d, d->instr[i].arg)) >= 0)
            return false;
    return true;
}

static bool append_segment(wb__plan_step *p, const wb__plan_step *q)
{
    const int n = p->step.fused.n_segments, views = q->n_places;
    wb__space *spaces = wb__realloc(p->spaces, (size_t)(n + 1) * sizeof *spaces);
    if (spaces) p->spaces = spaces;
    if (!spaces || !wb__make_room(&p->place, &p->capacity, p->n_places + views, sizeof *p->place))
        return false;
    spaces[n] = q->spaces[0];
    if (views) memcpy(p->place + p->n_places, q->place, (size_t)views * sizeof *q->place);
    p->n_places += views;
    p->step.fused.n_segments++;
    return true;
}

/* The kernels after number i that do the same become segments of it, in one pass; they are marked
 * in `gone`.  `own` and `between` are for this function alone. */
static bool merge_into(wb__programs *m, int i, bool *gone, traffic *own, traffic *between)
{
    clear_traffic(own);
    clear_traffic(between);
    bool good = add_traffic(own, &m->step[i]);
    for (int j = i + 1; good && j < m->n; j++) {
        const wb__plan_step *d = &m->step[j];
        if (gone[j - m->n_compute]) continue;
        if (d->step.kind != WB__STEP_FUSED) break;
        if (same_program(&m->step[i], d) && apart(own, d) && apart(between, d)) {
            gone[j - m->n_compute] = true;
            good = add_traffic(own, d) && append_segment(&m->step[i], d);
        } else {
            good = add_traffic(between, d);
        }
    }
    return good;
}

static void drop(wb__programs *m, const bool *gone)
{
    int n = m->n_compute;
    for (int i = n; i < m->n; i++) {
        if (gone[i - m->n_compute]) wb__step_free(&m->step[i]);
        else m->step[n++] = m->step[i];
    }
    m->n = n;
}

/* Only among the kernels that write variables: they are many, small and alike. */
bool wb__merge_segments(wb__programs *m)
{
    traffic own = {0}, between = {0};
    for (int i = m->n_compute; i < m->n; i++)
        if (m->step[i].step.kind == WB__STEP_FUSED) flatten(&m->step[i]);
    bool *gone = wb__alloc_zero((size_t)(m->n - m->n_compute) + 1, sizeof *gone), good = gone;
    for (int i = m->n_compute; good && i < m->n; i++)
        if (m->step[i].step.kind == WB__STEP_FUSED && !gone[i - m->n_compute])
            good = merge_into(m, i, gone, &own, &between);
    if (gone) drop(m, gone);
    free_traffic(&own);
    free_traffic(&between);
    wb__free(gone);
    return good;
}
