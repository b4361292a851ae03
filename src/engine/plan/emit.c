/* From groups to steps: every stored value gets its place, every group its kernel, results and
 * writes their copies.
 *
 * Order of the steps: groups that only compute; copies into results; then groups that write
 * variables in place, and last the copies into variables that could not be written so.  A failure
 * before the writes leaves everything as it was. */
#include "engine/plan/stages.h"

#include <string.h>

static wb__value *value(const wb__making *m, int x) { return &m->ir.value[x]; }
static int input(const wb__making *m, const wb__value *v, int i) { return m->ir.inputs[v->in + i]; }

/* ---- buffers --------------------------------------------------------------------------------- */

int wb__result_buffer(const wb__making *m, int result)
{
    return m->request->n_leaves + m->request->n_targets + result;
}
int wb__arena_buffer(const wb__making *m) { return wb__result_buffer(m, m->request->n_results); }

int wb__tenant_new(wb__making *m, int64_t bytes)
{
    if (!wb__make_room(&m->tenant, &m->tenants_room, m->n_tenants + 1, sizeof *m->tenant)) {
        m->failed = true;
        return 0;
    }
    m->tenant[m->n_tenants] = (wb__tenant){.bytes = bytes, .born = -1, .dies = -1};
    return m->n_tenants++;
}

/* A base without a place gets one: the memory of a leaf, a window in an assembly, the memory of a
 * result or variable that was chosen for it, or a tenant of the arena. */
static bool give_place(wb__making *m, int x)
{
    wb__fate *f = &m->fate[x];
    const wb__value *v = value(m, x);
    wb__view *place = &f->place;
    wb__contiguous(v, place);
    if (v->op == WB__OP_constant) {
        place->buffer = v->leaf;
        place->granule = m->request->leaves[v->leaf].granule;
    } else if (f->inside >= 0) {
        wb__view whole;
        int owner;
        const wb__value *a = value(m, f->inside);
        if (!wb__place_of(m, f->inside, &whole, &owner)) return false;
        const int64_t *start = m->ir.attrs + a->attr + f->piece * a->ndim;
        const wb__value *p = wb__ir_in(&m->ir, a, f->piece);    /* v, perhaps with units between */
        place->buffer = whole.buffer;
        place->offset = whole.offset;
        for (int i = 0, k = 0; k < p->ndim; k++) {
            place->offset += start[k] * whole.strides[k];
            while (i < v->ndim && v->dims[i] == 1 && p->dims[k] != 1) place->strides[i++] = 0;
            if (i < v->ndim && v->dims[i] == p->dims[k]) place->strides[i++] = whole.strides[k];
        }
        f->tenant = owner;
    } else if (f->write >= 0) {
        place->buffer = m->request->targets[f->write];
    } else if (f->result >= 0) {
        place->buffer = wb__result_buffer(m, f->result);
    } else {
        place->buffer = wb__arena_buffer(m);
        f->tenant = wb__tenant_new(m, wb__value_bytes(v));
    }
    f->placed = true;
    return !m->failed;
}

bool wb__place_of(wb__making *m, int x, wb__view *out, int *owner)
{
    int base = wb__base(m, x);
    bool source = wb__ops[value(m, base)->op].class == WB__SOURCE && m->fate[base].group < 0;
    if (!source && !m->fate[base].placed && !give_place(m, base)) return false;
    *owner = m->fate[base].tenant;
    if (wb__view_of(m, x, out)) return true;
    wb__fail(WB_ERROR_INTERNAL, "plan: a view of %s could not be told in strides",
             wb__ops[value(m, base)->op].name);
    m->failed = true;
    return false;
}

/* ---- drafts ---------------------------------------------------------------------------------- */

wb__draft *wb__draft_new(wb__making *m, wb__step_kind kind)
{
    if (!wb__make_room(&m->draft, &m->drafts_room, m->n_drafts + 1, sizeof *m->draft)) {
        m->failed = true;
        return NULL;
    }
    wb__draft *d = &m->draft[m->n_drafts++];
    *d = (wb__draft){.step = wb__step_blank(m, kind), .aux_owner = -1, .sums_owner = -1};
    return d;
}

static void draft_free(wb__draft *d)
{
    wb__free(d->owners);
    wb__free(d->views);
    wb__free(d->instr);
    wb__free(d->spaces);
    wb__free(d->text);
}

void wb__drafts_drop(wb__making *m, int first, const bool *gone)
{
    int n = first;
    for (int i = first; i < m->n_drafts; i++) {
        if (gone[i - first]) draft_free(&m->draft[i]);
        else m->draft[n++] = m->draft[i];
    }
    m->n_drafts = n;
}

void wb__drafts_free(wb__making *m)
{
    for (int i = 0; i < m->n_drafts; i++) draft_free(&m->draft[i]);
    wb__free(m->draft);
}

void wb__draft_view(wb__making *m, wb__draft *d, wb__view v, int owner)
{
    if (!d->owners && !(d->owners = wb__alloc(WB__COUNT(d->step.views) * sizeof *d->owners))) {
        m->failed = true;
        return;
    }
    d->owners[d->n_owners++] = owner;
    d->step.views[d->step.n_views++] = v;
}

void wb__draft_copy(wb__making *m, wb__view from, int from_owner, wb__view to, int to_owner,
                    const char *why)
{
    wb__draft *d = wb__draft_new(m, WB__STEP_COPY);
    if (!d) return;
    wb__draft_view(m, d, from, from_owner);
    wb__draft_view(m, d, to, to_owner);
    d->text = wb__strdup(why);
}

/* ---- assemblies ------------------------------------------------------------------------------ */

/* May a piece be made in its window at once?  Then all who read it read the window. */
static bool may_stand_inside(const wb__making *m, int x)
{
    const wb__fate *f = &m->fate[x];
    if (f->group < 0 || f->inside >= 0 || f->result >= 0 || f->write >= 0 || f->closed)
        return false;
    const wb__value *v = value(m, x);
    const wb__group *g = &m->group[f->group];
    if (v->heads_first) return false;
    if (v->nhwc || wb__ops[v->op].class == WB__MOVE) return v->op == WB__OP_assemble && !v->nhwc;
    if (g->kind == WB__GROUP_FUSED) return true;
    return value(m, g->first)->op == WB__OP_matmul && !g->aux_kind && g->sums < 0;
}

/* A reshape that does nothing but bring or drop dimensions of size 1. */
static bool only_units(const wb__making *m, const wb__value *v)
{
    const wb__value *x = wb__ir_in(&m->ir, v, 0);
    int i = 0, k = 0;
    while (i < v->ndim || k < x->ndim) {
        while (i < v->ndim && v->dims[i] == 1) i++;
        while (k < x->ndim && x->dims[k] == 1) k++;
        if (i == v->ndim || k == x->ndim) break;
        if (v->dims[i++] != x->dims[k++]) return false;
    }
    return i == v->ndim && k == x->ndim;
}

/* What would stand in the window of piece x: itself, or what it is but for dimensions of size 1. */
static int content(const wb__making *m, int x)
{
    while (wb__is_view(m, x) && value(m, x)->op == WB__OP_reshape && only_units(m, value(m, x)))
        x = input(m, value(m, x), 0);
    return x;
}

/* Values that stay out of windows.  A reshape of a window may not be a view by strides.  Operands of
 * convolutions, pools and rows are dense (emit_library.c) and would be copied out again; a bias would
 * too, but it is small. */
static void find_dense(const wb__making *m, bool *is_dense)
{
    for (int i = 0; i < m->ir.n; i++) {
        const wb__value *v = value(m, i);
        if (v->op == WB__OP_reshape && wb__is_view(m, i) && !only_units(m, v))
            is_dense[wb__base(m, i)] = true;
        if (wb__ops[v->op].class == WB__LIBRARY && v->op != WB__OP_matmul)
            for (int j = 0; j < v->n_in; j++) is_dense[wb__base(m, input(m, v, j))] = true;
    }
}

/* Is there a piece everywhere? */
static bool covered(const wb__making *m, const wb__value *a)
{
    int64_t size = 0;
    for (int i = 0; i < a->n_in; i++) size += wb__ir_in(&m->ir, a, i)->size;
    return size == a->size;
}

/* Places of windows within windows are found by recursion: deeper ones are copied. */
enum { MOST_NESTED = 32 };

static void choose_windows(wb__making *m)
{
    bool *is_dense = wb__alloc_zero((size_t)m->ir.n + 1, 2 * sizeof *is_dense);
    if (!is_dense) {
        m->failed = true;
        return;
    }
    unsigned char *nested = (unsigned char *)(is_dense + m->ir.n + 1);
    find_dense(m, is_dense);
    for (int i = m->ir.n - 1; i >= 0; i--) {        /* outer assemblies first */
        const wb__value *a = value(m, i);
        if (a->op != WB__OP_assemble || !covered(m, a) || nested[i] == MOST_NESTED) continue;
        for (int j = 0; j < a->n_in; j++) {
            int x = content(m, input(m, a, j));
            if (!may_stand_inside(m, x) || is_dense[x]) continue;
            nested[x] = (unsigned char)(nested[i] + 1);
            m->fate[x].inside = i;
            m->fate[x].piece = j;
        }
    }
    wb__free(is_dense);
}

static void assemble(wb__making *m, int x)
{
    const wb__value *a = value(m, x);
    wb__view whole, from;
    int owner, from_owner;
    if (!wb__place_of(m, x, &whole, &owner)) return;
    if (!covered(m, a)) { /* zeros where no piece is: a number over the whole */
        wb__draft_zeros(m, whole, owner);
    }
    for (int j = 0; j < a->n_in && !m->failed; j++) {
        int p = input(m, a, j);
        const wb__fate *c = &m->fate[content(m, p)];
        if (c->inside == x && c->piece == j) continue;
        wb__view window = whole;
        const int64_t *start = m->ir.attrs + a->attr + j * a->ndim;
        for (int i = 0; i < a->ndim; i++) {
            window.dims[i] = value(m, p)->dims[i];
            window.offset += start[i] * whole.strides[i];
        }
        if (value(m, p)->size && wb__place_of(m, p, &from, &from_owner))
            wb__draft_copy(m, from, from_owner, window, owner, "piece");
    }
}

/* ---- results and writes ---------------------------------------------------------------------- */

static int root(const wb__making *m, const wb_tensor *x) { return m->value_of[x->index]; }

/* What a chain of reshapes is the same memory as; else x itself. */
static int same_memory(const wb__making *m, int x)
{
    int at = x;
    while (wb__is_view(m, at) && value(m, at)->op == WB__OP_reshape) at = input(m, value(m, at), 0);
    return wb__is_view(m, at) || value(m, at)->nhwc ? x : at;
}

/* A value made by a group can be made in the result's own memory, if it is asked for once and
 * row-major. */
static void choose_results(wb__making *m)
{
    for (int i = 0; i < m->request->n_results; i++) {
        int x = same_memory(m, root(m, m->request->results[i]));
        wb__fate *f = &m->fate[x];
        if (f->group >= 0 && f->result < 0 && f->inside < 0 && !value(m, x)->nhwc) f->result = i;
    }
}

/* Groups all of whose values are used by themselves or by writes only may run last and write
 * variables in place. */
static void find_final(wb__making *m)
{
    for (int g = 0; g < m->n_groups; g++) m->group[g].is_final = false;
    for (int i = 0; i < m->request->n_writes; i++) {
        int x = root(m, m->request->writes[i]), g = m->fate[x].group;
        if (m->request->targets[i] >= 0 && g >= 0 && m->group[g].kind == WB__GROUP_FUSED)
            m->group[g].is_final = true;
    }
    for (int x = 0; x < m->ir.n; x++) {
        const wb__value *v = value(m, x);
        for (int j = 0; j < v->n_in; j++) {
            int base = wb__base(m, input(m, v, j)), g = m->fate[base].group;
            if (g >= 0 && g != m->fate[x].group && !wb__is_view(m, x)) m->group[g].is_final = false;
        }
    }
    for (int i = 0; i < m->request->n_results; i++) {
        int g = m->fate[wb__base(m, root(m, m->request->results[i]))].group;
        if (g >= 0) m->group[g].is_final = false;
    }
}

static bool reads(const wb__making *m, int g, int leaf, bool *only_in_step)
{
    bool any = false;
    for (int x = m->group[g].first; x >= 0; x = m->next[x]) {
        const wb__value *v = value(m, x);
        for (int j = 0; j < v->n_in; j++) {
            int in = input(m, v, j), base = wb__base(m, in);
            if (value(m, base)->op != WB__OP_constant || value(m, base)->leaf != leaf) continue;
            any = true;
            *only_in_step &= in == base && value(m, in)->size == v->size;
        }
    }
    return any;
}

/* In place: made by a final group that reads the variable, if at all, element by element, and no
 * other final group reads it. */
static void choose_writes(wb__making *m)
{
    const wb__request *r = m->request;
    int *reader = wb__alloc((size_t)(r->n_leaves + r->n_targets + 1) * sizeof *reader);
    if (!reader) {
        m->failed = true;
        return;
    }
    for (int i = 0; i < r->n_leaves + r->n_targets; i++) reader[i] = -1;
    for (int x = 0; x < m->ir.n; x++) { /* the final group that reads a leaf; -2: several */
        const wb__value *v = value(m, x);
        int g = m->fate[x].group;
        for (int j = 0; j < v->n_in && g >= 0 && m->group[g].is_final; j++) {
            const wb__value *b = value(m, wb__base(m, input(m, v, j)));
            if (b->op == WB__OP_constant)
                reader[b->leaf] = reader[b->leaf] == -1 || reader[b->leaf] == g ? g : -2;
        }
    }
    for (int i = 0; i < r->n_writes; i++) {
        int x = root(m, r->writes[i]), g = m->fate[x].group, target = r->targets[i];
        wb__fate *f = &m->fate[x];
        bool in_step = true;
        if (target < 0 || g < 0 || !m->group[g].is_final || f->write >= 0 || f->result >= 0 ||
            f->inside >= 0 || f->closed || value(m, x)->nhwc)
            continue;
        if (reader[target] != -1 && reader[target] != g) continue;
        reads(m, g, target, &in_step);
        if (in_step) f->write = i;
    }
    wb__free(reader);
}

static void copy_results(wb__making *m)
{
    for (int i = 0; i < m->request->n_results && !m->failed; i++) {
        int x = root(m, m->request->results[i]);
        if (m->fate[same_memory(m, x)].result == i) continue;
        const wb_tensor *t = m->request->results[i];
        wb__value like = {.dtype = t->dtype, .ndim = value(m, x)->ndim};
        memcpy(like.dims, value(m, x)->dims, sizeof like.dims);
        wb__view from, to;
        int owner;
        if (!wb__place_of(m, x, &from, &owner)) return;
        wb__contiguous(&like, &to);
        to.buffer = wb__result_buffer(m, i);
        wb__draft_copy(m, from, owner, to, -1, "result");
    }
}

/* Writes that were not made in place.  What they take from another variable's memory is set aside
 * first. */
static void copy_writes(wb__making *m, bool aside)
{
    const wb__request *r = m->request;
    for (int i = 0; i < r->n_writes && !m->failed; i++) {
        int x = root(m, r->writes[i]), target = r->targets[i], owner;
        wb__view from, to;
        if (target < 0 || m->fate[x].write == i || !wb__place_of(m, x, &from, &owner)) continue;
        wb__value like = *value(m, x);
        like.nhwc = false;
        wb__contiguous(&like, &to);
        /* what is made in the memory of another variable, at the end, stands there then */
        bool from_variable = from.buffer >= 0 && from.buffer < r->n_leaves + r->n_targets && m->fate[wb__base(m, x)].write < 0;
        if (aside && from_variable) {
            to.buffer = wb__arena_buffer(m);
            m->fate[x].made = wb__tenant_new(m, wb__value_bytes(&like));
            wb__draft_copy(m, from, owner, to, m->fate[x].made, "set aside");
        } else if (!aside) {
            if (from_variable) {
                from = to;
                from.buffer = wb__arena_buffer(m);
                owner = m->fate[x].made;
            }
            to.buffer = target;
            wb__draft_copy(m, from, owner, to, -1, "write");
        }
    }
}

static void emit_group(wb__making *m, int g)
{
    if (m->group[g].first < 0) return;          /* it became part of another */
    switch (m->group[g].kind) {
    case WB__GROUP_FUSED: wb__draft_fused(m, g); break;
    case WB__GROUP_LIBRARY: wb__draft_library(m, &m->group[g]); break;
    case WB__GROUP_ASSEMBLE: assemble(m, m->group[g].first); break;
    }
}

bool wb__emit(wb__making *m)
{
    find_final(m);
    choose_results(m);
    choose_writes(m);
    choose_windows(m);
    for (int g = 0; g < m->n_groups && !m->failed; g++)
        if (!m->group[g].is_final) emit_group(m, g);
    if (!m->failed) copy_results(m);
    if (!m->failed) copy_writes(m, true);
    m->n_compute = m->n_drafts;
    for (int g = 0; g < m->n_groups && !m->failed; g++)
        if (m->group[g].is_final) emit_group(m, g);
    if (!m->failed) copy_writes(m, false);
    return !m->failed;
}
