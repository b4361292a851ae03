/* Making a plan: the passes in turn, updates of many parameters merged, the arena laid out, kernels
 * prepared. */
#include "engine/plan.h"

#include <stdio.h>
#include <string.h>

/* ---- segments: kernels that differ in what they work on become one --------------------------- */

static bool same_program(const wb__draft *p, const wb__draft *q)
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
        if (p->views[i].dtype != q->views[i].dtype) return false;
    const wb__space *s = &p->spaces[0], *t = &q->spaces[0];
    return s->ndim == t->ndim && s->row_dims == t->row_dims && s->col_dims == t->col_dims;
}

/* A program that walks all its views in the same dense order is one over a line. */
static void flatten(wb__draft *d)
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
    for (int v = 0; v < d->step.fused.n_views; v++)
        for (int i = 0; i < s->ndim; i++)
            if (s->dims[i] != 1 && d->views[v].strides[i] != stride[i] && d->views[v].strides[i])
                return;
    for (int v = 0; v < d->step.fused.n_views;
         v++) { /* a number in memory varies nowhere; all else must everywhere */
        bool any = false, all = true;
        for (int i = 0; i < s->ndim; i++)
            if (s->dims[i] != 1) {
                any |= d->views[v].strides[i] != 0;
                all &= d->views[v].strides[i] != 0;
            }
        if (any != all && size != 1) return;
    }
    for (int v = 0; v < d->step.fused.n_views; v++) {
        wb__view *w = &d->views[v];
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

static const void *place_of(const wb__draft *d, int view)
{
    const uint64_t buffer = (uint32_t)(d->views[view].buffer + 2);
    return (const void *)(uintptr_t)(buffer << 40 | (uint64_t)(uint32_t)(d->owners[view] + 2) << 4);
}

/* Adds a kernel of one segment; false without memory. */
static bool add_traffic(traffic *t, const wb__draft *d)
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
static bool apart(const traffic *t, const wb__draft *d)
{
    for (int v = 0; v < d->step.fused.n_views; v++)
        if (wb__pointer_map_get(&t->written, place_of(d, v)) >= 0) return false;
    for (int i = 0; i < d->step.fused.n_instr; i++)
        if (d->instr[i].kind == WB__STORE &&
            wb__pointer_map_get(&t->touched, place_of(d, d->instr[i].arg)) >= 0)
            return false;
    return true;
}

static bool append_segment(wb__draft *p, const wb__draft *q)
{
    int n = p->step.fused.n_segments, views = p->step.fused.n_views;
    wb__space *spaces = wb__realloc(p->spaces, (size_t)(n + 1) * sizeof *spaces);
    if (spaces) p->spaces = spaces;
    wb__view *v = wb__realloc(p->views, (size_t)((n + 1) * views) * sizeof *v);
    if (v) p->views = v;
    int *owners = wb__realloc(p->owners, (size_t)((n + 1) * views) * sizeof *owners);
    if (owners) p->owners = owners;
    if (!spaces || !v || !owners) return false;
    p->spaces[n] = q->spaces[0];
    memcpy(p->views + n * views, q->views, (size_t)views * sizeof *v);
    memcpy(p->owners + n * views, q->owners, (size_t)views * sizeof *owners);
    p->step.fused.n_segments++;
    p->n_owners = (n + 1) * views;
    return true;
}

/* The kernels after number i that do the same become segments of it, in one pass; they are marked in
 * `gone`.  `own` and `between` are for this function alone. */
static bool merge_into(wb__making *m, int i, bool *gone, traffic *own, traffic *between)
{
    clear_traffic(own);
    clear_traffic(between);
    bool good = add_traffic(own, &m->draft[i]);
    for (int j = i + 1; good && j < m->n_drafts; j++) {
        const wb__draft *d = &m->draft[j];
        if (gone[j - m->n_compute]) continue;
        if (d->step.kind != WB__STEP_FUSED) break;
        if (same_program(&m->draft[i], d) && apart(own, d) && apart(between, d)) {
            gone[j - m->n_compute] = true;
            good = add_traffic(own, d) && append_segment(&m->draft[i], d);
        } else {
            good = add_traffic(between, d);
        }
    }
    return good;
}

/* Only among the kernels that write variables: they are many, small and alike. */
static void merge_segments(wb__making *m)
{
    traffic own = {0}, between = {0};
    for (int i = m->n_compute; i < m->n_drafts; i++)
        if (m->draft[i].step.kind == WB__STEP_FUSED) flatten(&m->draft[i]);
    bool *gone = wb__alloc_zero((size_t)(m->n_drafts - m->n_compute) + 1, sizeof *gone);
    if (!gone) m->failed = true;
    for (int i = m->n_compute; i < m->n_drafts && !m->failed; i++)
        if (m->draft[i].step.kind == WB__STEP_FUSED && !gone[i - m->n_compute])
            m->failed = !merge_into(m, i, gone, &own, &between);
    if (gone) wb__drafts_drop(m, m->n_compute, gone);
    free_traffic(&own);
    free_traffic(&between);
    wb__free(gone);
}

/* ---- the arena ------------------------------------------------------------------------------- */

typedef struct { int64_t offset, bytes; } hole;

/* The smallest hole that is large enough, else the end of the arena. */
static int64_t take(hole *holes, int *n, int64_t bytes, int64_t *end)
{
    int best = -1;
    for (int i = 0; i < *n; i++)
        if (holes[i].bytes >= bytes && (best < 0 || holes[i].bytes < holes[best].bytes)) best = i;
    if (best < 0 && *n &&
        holes[*n - 1].offset + holes[*n - 1].bytes == *end) { /* the last hole grows */
        best = *n - 1;
        *end += bytes - holes[best].bytes;
        holes[best].bytes = bytes;
    }
    if (best < 0) {
        *end += bytes;
        return *end - bytes;
    }
    int64_t at = holes[best].offset;
    holes[best].offset += bytes;
    holes[best].bytes -= bytes;
    if (!holes[best].bytes) {
        memmove(&holes[best], &holes[best + 1], (size_t)(*n - best - 1) * sizeof *holes);
        --*n;
    }
    return at;
}

static void give_back(hole *holes, int *n, int64_t offset, int64_t bytes)
{
    int i = 0, high = *n;
    while (i < high) {
        int mid = (i + high) / 2;
        if (holes[mid].offset < offset) i = mid + 1;
        else high = mid;
    }
    bool before = i > 0 && holes[i - 1].offset + holes[i - 1].bytes == offset;
    bool after = i < *n && offset + bytes == holes[i].offset;
    if (before && after) {
        holes[i - 1].bytes += bytes + holes[i].bytes;
        memmove(&holes[i], &holes[i + 1], (size_t)(*n - i - 1) * sizeof *holes);
        --*n;
    } else if (before) {
        holes[i - 1].bytes += bytes;
    } else if (after) {
        holes[i] = (hole){offset, bytes + holes[i].bytes};
    } else {
        memmove(&holes[i + 1], &holes[i], (size_t)(*n - i) * sizeof *holes);
        holes[i] = (hole){offset, bytes};
        ++*n;
    }
}

static void lives_at(wb__making *m, int tenant, int draft)
{
    if (tenant < 0) return;
    wb__tenant *t = &m->tenant[tenant];
    if (t->born < 0) t->born = draft;
    t->dies = draft;
}

static void find_lives(wb__making *m)
{
    for (int i = 0; i < m->n_drafts; i++) {
        const wb__draft *d = &m->draft[i];
        for (int v = 0; v < d->n_owners; v++) lives_at(m, d->owners[v], i);
        lives_at(m, d->aux_owner, i);
        lives_at(m, d->sums_owner, i);
    }
}

/* Step by step: what is born gets a place, what dies gives it back. */
bool wb__lay_out(wb__making *m, wb__plan *p)
{
    size_t n = (size_t)m->n_tenants;
    int *at = wb__alloc_zero((size_t)m->n_drafts + 2, sizeof *at),
        *by_birth = wb__alloc((n + 1) * sizeof *by_birth);
    int *next_dead = wb__alloc((n + 1) * sizeof *next_dead),
        *dead = wb__alloc(((size_t)m->n_drafts + 1) * sizeof *dead);
    hole *holes = wb__alloc((n + 2) * sizeof *holes);
    int n_holes = 0;
    int64_t end = 0;
    bool good = at && by_birth && next_dead && dead && holes;
    find_lives(m);
    if (good) {
        for (int i = 0; i < m->n_drafts; i++) dead[i] = -1;
        for (size_t t = 0; t < n; t++)
            if (m->tenant[t].born >= 0) at[m->tenant[t].born + 1]++;
        for (int i = 0; i < m->n_drafts; i++) at[i + 1] += at[i];
        for (size_t t = 0; t < n; t++) {
            if (m->tenant[t].born < 0) continue;
            by_birth[at[m->tenant[t].born]++] = (int)t;
            next_dead[t] = dead[m->tenant[t].dies];
            dead[m->tenant[t].dies] = (int)t;
        }
        for (int i = 0, next = 0; i < m->n_drafts; i++) {
            for (; next < at[i]; next++) {
                wb__tenant *t = &m->tenant[by_birth[next]];
                t->bytes = (t->bytes + 63) / 64 * 64;
                t->offset = t->bytes ? take(holes, &n_holes, t->bytes, &end) : 0;
            }
            for (int t = dead[i]; t >= 0; t = next_dead[t])
                if (m->tenant[t].bytes)
                    give_back(holes, &n_holes, m->tenant[t].offset, m->tenant[t].bytes);
        }
        const int64_t unit = WB__WORKSPACE_ALIGN;
        p->arena_bytes = (end + unit - 1) / unit * unit;
    }
    wb__free(at);
    wb__free(by_birth);
    wb__free(next_dead);
    wb__free(dead);
    wb__free(holes);
    return good;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void settle_view(const wb__making *m, wb__view *v, int owner)
{
    if (owner >= 0) v->offset += m->tenant[owner].offset / (int64_t)wb__dtype_size(v->dtype);
}

static void settle(const wb__making *m, wb__draft *d)
{
    wb__view *views = d->step.kind == WB__STEP_FUSED ? d->views : d->step.views;
    for (int i = 0; i < d->n_owners; i++) settle_view(m, &views[i], d->owners[i]);
    settle_view(m, &d->step.aux, d->aux_owner);
    settle_view(m, &d->step.sums, d->sums_owner);
    d->step.fused.instr = d->instr;
    d->step.fused.views = d->views;
    d->step.fused.spaces = d->spaces;
}

static char *describe(const wb__draft *d, const wb__kernel *k)
{
    static const char *const kinds[] = {"fused", "matmul",   "conv", "pool",
                                        "take",  "take_add", "copy", "attention"};
    char text[768];
    size_t n = 0, room = sizeof text;
    const wb__view *shape = d->step.kind == WB__STEP_FUSED
                                ? NULL
                                : &d->step.views[d->step.kind == WB__STEP_COPY ? 1 : 2];
    if (d->step.kind == WB__STEP_ATTENTION) shape = &d->step.views[3];
    if (d->step.kind == WB__STEP_POOL) shape = &d->step.views[d->step.n_views - 1];
    n += (size_t)snprintf(text, room, "%-8s [", kinds[d->step.kind]);
    const int64_t *dims = shape ? shape->dims : d->spaces[0].dims;
    int ndim = shape ? shape->ndim : d->spaces[0].ndim;
    for (int i = 0; i < ndim; i++)
        n += (size_t)snprintf(text + n, room - n, i ? ",%lld" : "%lld", (long long)dims[i]);
    n += (size_t)snprintf(text + n, room - n, "]");
    if (!shape) {
        if (d->step.fused.n_segments > 1)
            n += (size_t)snprintf(text + n, room - n, " and %d more", d->step.fused.n_segments - 1);
        n += (size_t)snprintf(text + n, room - n, ":");
        for (int i = 0; i < d->step.fused.n_instr && n < room - 24; i++) {
            const wb__instr *in = &d->instr[i];
            const char *word = in->kind == WB__ROW || in->kind == WB__FOLD_COLS ||
                                       in->kind == WB__FOLD_ROWS || in->kind == WB__FOLD_ALL
                                   ? wb__ops[in->op].name
                               : in->kind == WB__CAST                                ? "cast"
                               : in->kind == WB__LOAD                                ? "load"
                               : in->kind == WB__STORE                               ? "store"
                               : in->kind == WB__UNIFORM || in->kind == WB__GAUSSIAN ? "draw"
                                                                                     : NULL;
            const char *over = in->kind == WB__FOLD_COLS   ? " cols"
                               : in->kind == WB__FOLD_ROWS ? " rows"
                               : in->kind == WB__FOLD_ALL  ? " all"
                                                           : "";
            if (word) n += (size_t)snprintf(text + n, room - n, " %s%s", word, over);
        }
    } else if (d->text && n < room) {
        n += (size_t)snprintf(text + n, room - n, " %s", d->text);
    }
    const bool back = d->step.aux_kind == WB__AUX_FACTOR || d->step.aux_kind == WB__AUX_MASK;
    if (d->step.epilogue && n < room)
        n += (size_t)snprintf(text + n, room - n, back ? " + slope" : " + activation");
    if ((d->step.kind == WB__STEP_MATMUL || d->step.kind == WB__STEP_CONV) &&
        d->step.n_views == 4 && n < room)
        n += (size_t)snprintf(text + n, room - n, " + bias");
    if (d->step.sums_of && n < room) n += (size_t)snprintf(text + n, room - n, " + sums");
    if (k->impl && n < room)
        snprintf(text + n, room - n, "  {%s%s%s}", k->impl, k->why ? "; " : "",
                 k->why ? k->why : "");
    return wb__strdup(text);
}

/* What a library operation will be done by, and why not by a vendor's routine. */
static void tell_dispatch(const wb__making *m, const wb__draft *d, const wb__kernel *k)
{
    char *text = describe(d, k);
    wb__log(WB_LOG_DEBUG, "dispatch: %s:%d: %s", m->device->backend->tag, m->device->ordinal,
            text ? text : "");
    wb__free(text);
}

/* ---- steps that the backend takes, and declines ---------------------------------------------- */

static bool same_problem(const wb__step *a, const wb__step *b)
{
    bool same = a->kind == b->kind && a->variant == b->variant && a->epilogue == b->epilogue &&
                a->aux_kind == b->aux_kind && a->sums_of == b->sums_of &&
                a->n_views == b->n_views;
    for (int i = 0; i < a->n_views && same; i++) {
        const wb__view *v = &a->views[i], *w = &b->views[i];
        same = v->dtype == w->dtype && v->ndim == w->ndim &&
               !memcmp(v->dims, w->dims, (size_t)v->ndim * sizeof v->dims[0]);
    }
    return same;
}

/* The number of a declined step in the list; `n` if it is not there. */
static int place_of_declined(const wb__declined *d, const wb__step *s)
{
    int i = 0;
    while (i < d->n && !same_problem(&d->step[i], s)) i++;
    return i;
}

bool wb__taken(const wb__making *m, const wb__step *s)
{
    const wb__declined *d = m->declined;
    return !d->all && place_of_declined(d, s) == d->n && m->device->backend->takes(m->device, s);
}

/* What is declined a second time was asked for in another form: then nothing is asked any more. */
static bool note_declined(wb__declined *d, const wb__step *s)
{
    const int i = place_of_declined(d, s);
    d->all |= i < d->known;
    if (i < d->n) return true;
    if (!wb__make_room(&d->step, &d->room, d->n + 1, sizeof *d->step)) return false;
    d->step[d->n++] = *s;
    return true;
}

/* *status: WB_ERROR_UNSUPPORTED where the step was declined, which the next attempt knows. */
static bool prepare_step(wb__making *m, const wb__step *s, wb__kernel **k, int *status)
{
    *status = m->device->backend->prepare(m->device, s, k);
    if (!*status) return true;
    const bool taken = s->kind == WB__STEP_ATTENTION || wb__step_is_special(s);
    if (*status != WB_ERROR_UNSUPPORTED || !taken || m->declined->all) return false;
    if (wb__debug("plan"))
        wb__log(WB_LOG_DEBUG, "plan: made again, since a step was declined: %s", wb_error());
    return note_declined(m->declined, s);
}

/* After a declined step the others are prepared all the same, so that all that are declined are
 * known at once. */
static bool prepare(wb__making *m, wb__plan *p)
{
    const bool telling = wb__debug("plan"), dispatch = wb__debug("dispatch");
    p->kernels = wb__alloc_zero((size_t)m->n_drafts + 1, sizeof *p->kernels);
    p->text = telling ? wb__alloc_zero((size_t)m->n_drafts + 1, sizeof *p->text) : NULL;
    if (!p->kernels || (telling && !p->text)) return false;
    p->n_compute = m->n_compute;
    bool declined = false;
    for (int i = 0; i < m->n_drafts; i++) {
        wb__draft *d = &m->draft[i];
        int status = 0;
        settle(m, d);
        if (!prepare_step(m, &d->step, &p->kernels[p->n_steps], &status)) return false;
        declined |= status != 0;
        if (status) continue;
        p->n_steps++;
        if (declined) continue;
        const int launches = WB__MAX(d->step.fused.n_segments, 1);
        p->n_launches += launches;
        if (i >= m->n_compute) p->n_final_launches += launches;
        p->workspace_bytes = WB__MAX(p->workspace_bytes, (int64_t)p->kernels[i]->workspace);
        if (telling) p->text[i] = describe(d, p->kernels[i]);
        if (dispatch && d->step.kind != WB__STEP_FUSED) tell_dispatch(m, d, p->kernels[i]);
    }
    if (declined) wb__fail(WB_ERROR_UNSUPPORTED, "a step that was taken is declined");
    return !declined;
}

void wb__plan_free(wb__plan *p)
{
    if (!p) return;
    for (int i = 0; i < WB__PARTS; i++)
        if (p->part[i].graph) p->device->backend->graph_free(p->device, p->part[i].graph);
    for (int i = p->n_steps - 1; i >= 0; i--) {     /* the youngest first: drivers keep lists of them */
        p->device->backend->destroy(p->device, p->kernels[i]);
        if (p->text) wb__free(p->text[i]);
    }
    wb__free(p->kernels);
    wb__free(p->text);
    wb__free(p->words);
    wb__free(p->constants);
    wb__free(p->buffers);
    wb__free(p);
}

void wb__plan_print(const wb__plan *p)
{
    wb__log(WB_LOG_DEBUG,
            "plan: %d kernels, the last %d write variables\n"
            "bytes: arena %lld, workspace %lld, inputs %lld, results %lld: peak %lld",
            p->n_steps, p->n_steps - p->n_compute, (long long)p->arena_bytes,
            (long long)p->workspace_bytes, (long long)p->input_bytes, (long long)p->result_bytes,
            (long long)(p->arena_bytes + p->workspace_bytes + p->input_bytes + p->result_bytes));
    for (int i = 0; i < p->n_steps; i++)
        wb__log(WB_LOG_DEBUG, "%4d %s", i, p->text && p->text[i] ? p->text[i] : "");
}

static bool keep_key(const wb__request *r, const wb__making *m, wb__plan *p)
{
    p->words = wb__alloc((size_t)(r->n_words + 1) * sizeof *p->words);
    p->constants = wb__alloc((size_t)(m->n_constants + 1) * sizeof *p->constants);
    if (!p->words || !p->constants) return false;
    memcpy(p->words, r->words, (size_t)r->n_words * sizeof *p->words);
    if (m->n_constants)
        memcpy(p->constants, m->constants, (size_t)m->n_constants * sizeof *p->constants);
    p->n_words = r->n_words;
    p->n_constants = m->n_constants;
    return true;
}

static size_t bytes_of(const wb_tensor *x)
{
    return (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype);
}

/* What each buffer is for, and how far into it the plan reaches. */
static bool tell_buffers(const wb__request *r, const wb__making *m, wb__plan *p)
{
    p->buffers = wb__alloc_zero((size_t)p->arena + 1, sizeof *p->buffers);
    if (!p->buffers) return false;
    wb__buffer *b = p->buffers;
    for (int i = 0; i < r->n_leaves; i++, b++) {
        const wb__plan_leaf *l = &r->leaves[i];
        b->kind = l->tensor->variable && !l->granule ? WB__BUFFER_VARIABLE : WB__BUFFER_INPUT;
        b->scattered = l->scattered;
    }
    for (int i = 0; i < m->ir.n; i++)           /* others are read through windows only */
        if (m->ir.value[i].op == WB__OP_constant)
            p->buffers[m->ir.value[i].leaf].bytes =
                (size_t)r->leaves[m->ir.value[i].leaf].bytes;
    for (int i = 0; i < r->n_targets; i++) b[i].kind = WB__BUFFER_VARIABLE;
    for (int i = 0; i < r->n_writes; i++)
        if (r->targets[i] >= 0) p->buffers[r->targets[i]].kind = WB__BUFFER_VARIABLE;
    for (int i = 0; i < r->n_writes; i++)
        if (r->targets[i] >= r->n_leaves)
            p->buffers[r->targets[i]].bytes = bytes_of(r->writes[i]->variable);
    b += r->n_targets;
    for (int i = 0; i < r->n_results; i++, b++)
        *b = (wb__buffer){.kind = WB__BUFFER_RESULT, .bytes = bytes_of(r->results[i])};
    *b = (wb__buffer){.kind = WB__BUFFER_ARENA,
                     .bytes = (size_t)(p->arena_bytes + p->workspace_bytes)};
    return true;
}

static wb__plan *make(const wb__request *r, uint64_t hash, int most_values, wb__declined *declined)
{
    wb__making m = {.request = r, .device = r->device, .most_values = most_values,
                    .declined = declined};
    declined->known = declined->n;
    wb__plan *p = wb__alloc_zero(1, sizeof *p);
    bool good = p && wb__import(&m) && wb__rewrite(&m) && wb__fuse(&m) && wb__emit(&m);
    if (good) {
        wb__sums_beside_products(&m);
        merge_segments(&m);
        p->hash = hash;
        p->device = m.device;
        p->arena = wb__arena_buffer(&m);
        good = !m.failed && wb__lay_out(&m, p) && prepare(&m, p) && keep_key(r, &m, p) &&
               tell_buffers(r, &m, p);
    }
    if (good)
        for (int i = 0; i < r->n_leaves; i++)
            if (!r->leaves[i].granule) p->input_bytes += r->leaves[i].bytes;
    if (good)
        for (int i = 0; i < r->n_results; i++)
            p->result_bytes +=
                r->results[i]->size * (int64_t)wb__dtype_size((wb_dtype)r->results[i]->dtype);
    wb__drafts_free(&m);
    wb__ir_free(&m.ir);
    wb__free(m.value_of);
    wb__free(m.fate);
    wb__free(m.next);
    wb__free(m.group);
    wb__free(m.constants);
    wb__free(m.tenant);
    if (good && wb__debug("plan")) wb__plan_print(p);
    if (good) return p;
    wb__plan_free(p);
    return NULL;
}

/* A device may refuse a fused kernel that is too large for it: smaller ones then; or decline a step
 * that it took: then the plan is made without it. */
wb__plan *wb__plan_make(const wb__request *r, uint64_t hash)
{
    static const int most_values[] = {256, 64, 16, 4, 1};
    wb__declined declined = {0};
    wb__plan *p = NULL;
    for (size_t i = 0; !p && i < WB__COUNT(most_values);) {
        const int before = declined.n + declined.all;
        p = make(r, hash, most_values[i], &declined);
        if (p || wb_error_code() != WB_ERROR_UNSUPPORTED) break;
        const bool learnt = declined.n + declined.all > before;
        if (!learnt && (!r->device->backend->is_gpu || ++i == WB__COUNT(most_values))) break;
        wb_clear_error();
    }
    wb__free(declined.step);
    return p;
}
