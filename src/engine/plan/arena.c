/* Assigns offsets in the arena to allocations.  Allocations that are not used at the same time
 * share memory.  They are placed in the order of their first use, so that memory is used again
 * while it is in a cache.  If that leaves many holes in a large arena, they are also placed in the
 * order of their sizes, the largest first, and the smaller arena counts.  On a GPU a fused kernel
 * stores a value in the memory of an operand that nothing reads later: the gradient of logits takes
 * the place of the logits. */
#include "engine/plan/stages.h"

#include <stdlib.h>
#include <string.h>

typedef struct { int64_t offset, bytes; } hole;

/* Allocates `bytes` bytes and returns their offset.  Takes them from the smallest hole that is
 * large enough, else from the end of the arena. */
static int64_t arena_allocate(hole *holes, int *n, int64_t bytes, int64_t *end)
{
    int best = -1;
    for (int i = 0; i < *n; i++)
        if (holes[i].bytes >= bytes && (best < 0 || holes[i].bytes < holes[best].bytes)) best = i;
    if (best < 0 && *n &&
        holes[*n - 1].offset + holes[*n - 1].bytes == *end) { /* a hole at the arena's end grows */
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

/* Makes bytes of the arena a hole, joined with the holes beside it. */
static void arena_release_bytes(hole *holes, int *n, int64_t offset, int64_t bytes)
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

/* ---- allocations in the order of the steps --------------------------------------------------- */

typedef struct {
    int first_use, last_use;            /* indices of plan steps; -1: none */
    int next;                           /* next allocation with the same last use; -1: none */
    int at;                 /* index of the allocation whose memory this one has, often its own */
    bool passed_on;                     /* another allocation takes its memory after its last use */
    bool placed;                        /* it has an offset */
    int64_t bytes;
} lifetime;

typedef struct {
    lifetime *lifetimes;
    int64_t *offsets, end;
    hole *holes;                        /* free bytes between allocations that are in use */
    int n_holes;
    int64_t live, most;                 /* bytes that are in use; the most so far */
    bool scarce;                        /* scarce_memory of wb__backend */
} arena;

/* Gives an allocation its offset, unless it has one already. */
static void arena_give_offset(arena *a, int allocation)
{
    if (allocation >= 0) allocation = a->lifetimes[allocation].at;
    if (allocation < 0 || a->lifetimes[allocation].placed) return;
    lifetime *l = &a->lifetimes[allocation];
    l->placed = true;
    a->live += l->bytes;
    a->most = WB__MAX(a->most, a->live);
    if (l->bytes) a->offsets[allocation] = arena_allocate(a->holes, &a->n_holes, l->bytes, &a->end);
}

/* Records that a step uses the allocation. */
static void arena_record_use(arena *a, int allocation, int step)
{
    if (allocation < 0) return;
    lifetime *l = &a->lifetimes[allocation];
    if (l->first_use < 0) l->first_use = step;
    l->last_use = step;
}

/* Whether two operands are in one allocation or, outside the arena, in one buffer. */
static bool have_one_memory(const wb__step_operand *a, const wb__step_operand *b)
{
    if (a->allocation >= 0 || b->allocation >= 0) return a->allocation == b->allocation;
    return a->view.buffer == b->view.buffer;
}

/* Whether step d reads or writes memory of the operand. */
static bool arena_touches(const wb__plan_step *d, const wb__step_operand *at)
{
    bool found = (d->step.aux_kind && have_one_memory(&d->aux, at)) ||
                 (d->step.sums_of && have_one_memory(&d->sums, at));
    for (int v = 0; v < d->n_operands && !found; v++) found = have_one_memory(&d->operand[v], at);
    return found;
}

/* Finds the steps that wait for a COLLECTIVE.  A COLLECTIVE goes on while later steps run.  The
 * first step that touches its memory waits for it, and its memory stays allocated until then.
 * COLLECTIVEs are complete in their order, so a wait for one is a wait for all before it. */
static void arena_find_waits(arena *a, const wb__programs *s)
{
    for (int i = 0; i < s->n; i++) s->step[i].waits_for = s->step[i].after = -1;
    for (int i = 0; i < s->n; i++) {
        const wb__plan_step *d = &s->step[i];
        if (d->step.kind != WB__STEP_COLLECTIVE) continue;
        int end = i + 1;
        while (end < s->n && !arena_touches(&s->step[end], &d->operand[0]) &&
               !arena_touches(&s->step[end], &d->operand[1]))
            end++;
        if (end < s->n) s->step[end].waits_for = i;
        for (int v = 0; v < d->n_operands; v++) {
            const int allocation = d->operand[v].allocation;
            if (allocation < 0) continue;
            int *last = &a->lifetimes[allocation].last_use;
            *last = WB__MAX(*last, WB__MIN(end, s->n - 1));
        }
    }
}

/* Fills the lifetimes: sizes, and the first and last steps that use each allocation. */
static void arena_find_uses(arena *a, const wb__placement *l, const wb__programs *s)
{
    for (int i = 0; i < l->n_allocations + s->n_allocations; i++) {
        const int64_t bytes = i < l->n_allocations ? l->bytes[i] : s->bytes[i - l->n_allocations];
        a->lifetimes[i] = (lifetime){
            .first_use = -1, .last_use = -1, .next = -1, .at = i, .bytes = (bytes + 63) / 64 * 64};
    }
    for (int i = 0; i < s->n; i++) {
        const wb__plan_step *d = &s->step[i];
        for (int v = 0; v < d->n_operands; v++) arena_record_use(a, d->operand[v].allocation, i);
        arena_record_use(a, d->aux.allocation, i);
        arena_record_use(a, d->sums.allocation, i);
    }
}

bool wb__same_view(const wb__view *a, const wb__view *b)
{
    bool same = a->dtype == b->dtype && a->offset == b->offset && a->ndim == b->ndim;
    for (int i = 0; i < a->ndim && same; i++)
        same = a->dims[i] == b->dims[i] && a->strides[i] == b->strides[i];
    return same;
}

/* Whether step i, which is fused, may store `to` in the memory of its operand `from`: it reads that
 * memory through the view of `to` only (see wb__instr_kind), and no later step reads it. */
static bool arena_may_store_over(const arena *a, const wb__plan_step *d, int i,
                                 const wb__step_operand *from, const wb__step_operand *to)
{
    const lifetime *l = from->allocation < 0 ? NULL : &a->lifetimes[from->allocation];
    if (!l || l->last_use != i || l->first_use == i || l->passed_on ||
        l->bytes != a->lifetimes[to->allocation].bytes)
        return false;
    for (int v = 0; v < d->n_operands; v++)
        if (d->operand[v].allocation == from->allocation &&
            !wb__same_view(&d->operand[v].view, &to->view))
            return false;
    for (int k = 0; k < d->step.fused.n_instr; k++)         /* loads of padded views */
        if (d->instr[k].kind == WB__LOAD && d->instr[k].a >= 0 &&
            d->operand[d->instr[k].arg].allocation == from->allocation)
            return false;
    return true;
}

/* Puts the allocation of `to`, which step i, a fused one, stores and uses first, into the memory of
 * an operand that the step loads, if arena_may_store_over allows it. */
static void arena_store_over_operand(arena *a, const wb__plan_step *d, int i,
                                     const wb__step_operand *to)
{
    lifetime *l = &a->lifetimes[to->allocation];
    for (int v = 0; v < d->n_operands && l->at == to->allocation; v++) {
        const int from = d->operand[v].allocation;
        if (!arena_may_store_over(a, d, i, &d->operand[v], to)) continue;
        l->at = a->lifetimes[from].at;
        a->lifetimes[from].passed_on = true;
    }
    lifetime *in = &a->lifetimes[l->at];
    in->last_use = WB__MAX(in->last_use, l->last_use);
}

/* Lets fused steps store results in the memory of their operands where this is allowed. */
static void arena_store_over_operands(arena *a, const wb__programs *s)
{
    for (int i = 0; i < s->n; i++) {
        const wb__plan_step *d = &s->step[i];
        if (d->step.kind != WB__STEP_FUSED || d->step.fused.n_segments != 1) continue;
        for (int k = 0; k < d->step.fused.n_instr; k++) {
            const wb__step_operand *to = &d->operand[WB__MAX(d->instr[k].arg, 0)];
            if (d->instr[k].kind == WB__STORE && to->allocation >= 0 &&
                a->lifetimes[to->allocation].first_use == i)
                arena_store_over_operand(a, d, i, to);
        }
    }
}

enum { LATE = 8 };

/* Lets memory of the other branch live longer: a step of that branch may run later than its place
 * in the order, so its memory stays allocated for LATE steps, before other steps wait for it. */
static void lengthen_branch_lifetimes(arena *a, const wb__programs *s)
{
    for (int i = 0; i < s->n_compute; i++) {
        const wb__plan_step *d = &s->step[i];
        const int end = WB__MIN(i + LATE, s->n_compute - 1);
        if (!d->step.in_branch) continue;
        for (int v = 0; v < d->n_operands + 2; v++) {
            const int allocation = v < d->n_operands    ? d->operand[v].allocation
                                   : v == d->n_operands ? d->aux.allocation
                                                        : d->sums.allocation;
            if (allocation < 0) continue;
            lifetime *l = &a->lifetimes[allocation];
            l->last_use = WB__MAX(l->last_use, end);
        }
    }
}

/* Goes through the steps in order.  Gives each allocation an offset at its first use, and makes its
 * bytes a hole after its last use. */
static void arena_lay_out_in_order(arena *a, const wb__programs *s, int n, int *ending)
{
    for (int i = 0; i < s->n; i++) ending[i] = -1;
    for (int allocation = 0; allocation < n; allocation++) {
        lifetime *l = &a->lifetimes[allocation];
        if (l->last_use < 0 || l->at != allocation) continue;
        l->next = ending[l->last_use];
        ending[l->last_use] = allocation;
    }
    for (int i = 0; i < s->n; i++) {
        const wb__plan_step *d = &s->step[i];
        for (int v = 0; v < d->n_operands; v++) arena_give_offset(a, d->operand[v].allocation);
        arena_give_offset(a, d->aux.allocation);
        arena_give_offset(a, d->sums.allocation);
        for (int k = ending[i]; k >= 0; k = a->lifetimes[k].next) {
            a->live -= a->lifetimes[k].bytes;
            if (a->lifetimes[k].bytes)
                arena_release_bytes(a->holes, &a->n_holes, a->offsets[k], a->lifetimes[k].bytes);
        }
    }
}

/* ---- the largest allocations first ----------------------------------------------------------- */

enum {
    ARENA_LARGE = 16 << 20,             /* bytes of an arena whose holes matter */
    LARGE_IF_SCARCE = 1 << 20,          /* the same limit where memory is scarce */
    MOST_SORTED = 4096                  /* most allocations; each is compared with all others */
};

typedef struct { int allocation; int64_t bytes, offset; } arena_block;

static int larger_first(const void *x, const void *y)
{
    const arena_block *a = x, *b = y;
    return a->bytes != b->bytes ? (a->bytes < b->bytes ? 1 : -1) : a->allocation - b->allocation;
}

static bool live_at_one_time(const lifetime *a, const lifetime *b)
{
    return a->first_use <= b->last_use && b->first_use <= a->last_use;
}

/* Places each block at the lowest offset that no block before it has at the same time; placed[] is
 * in the order of offsets.  Returns the end of the arena. */
static int64_t place_blocks(const arena *a, arena_block *blocks, int n, arena_block *placed)
{
    int64_t end = 0;
    for (int i = 0; i < n; i++) {
        int64_t offset = 0;
        int at = 0;
        for (int k = 0; k < i; k++) {
            if (!live_at_one_time(&a->lifetimes[placed[k].allocation],
                                  &a->lifetimes[blocks[i].allocation]))
                continue;
            if (placed[k].offset >= offset + blocks[i].bytes) break;
            offset = WB__MAX(offset, placed[k].offset + placed[k].bytes);
        }
        blocks[i].offset = offset;
        while (at < i && placed[at].offset < offset) at++;
        memmove(&placed[at + 1], &placed[at], (size_t)(i - at) * sizeof *placed);
        placed[at] = blocks[i];
        end = WB__MAX(end, offset + blocks[i].bytes);
    }
    return end;
}

/* Replaces the layout by a smaller one, if the arena is large and has more than 1 % of holes when
 * most of it is in use.  False: out of memory. */
static bool arena_lay_out_by_size(arena *a, int n)
{
    if (a->end < (a->scarce ? LARGE_IF_SCARCE : ARENA_LARGE) || a->end - a->most <= a->most / 100 ||
        n > MOST_SORTED)
        return true;
    arena_block *blocks = wb__alloc(((size_t)n + 1) * sizeof *blocks);
    arena_block *placed = wb__alloc(((size_t)n + 1) * sizeof *placed);
    int count = 0;
    for (int i = 0; blocks && i < n; i++)
        if (a->lifetimes[i].at == i && a->lifetimes[i].first_use >= 0 && a->lifetimes[i].bytes)
            blocks[count++] = (arena_block){i, a->lifetimes[i].bytes, 0};
    if (blocks && placed) {
        qsort(blocks, (size_t)count, sizeof *blocks, larger_first);
        const int64_t end = place_blocks(a, blocks, count, placed);
        for (int i = 0; i < count && end < a->end; i++)
            a->offsets[blocks[i].allocation] = blocks[i].offset;
        a->end = WB__MIN(a->end, end);
    }
    const bool good = blocks && placed;
    wb__free(blocks);
    wb__free(placed);
    return good;
}

/* ---- views of the arena ---------------------------------------------------------------------- */

static int64_t arena_offset_of(const arena *a, int allocation)
{
    return a->offsets[a->lifetimes[allocation].at];
}

/* Returns the view of an operand, with its offset in the arena if it is there. */
static wb__view arena_view_of(const arena *a, const wb__step_operand *at)
{
    wb__view v = at->view;
    if (at->allocation >= 0)
        v.offset += arena_offset_of(a, at->allocation) / (int64_t)wb__dtype_size(v.dtype);
    return v;
}

/* Fills in the views of a step from its operands.  False: out of memory. */
static bool fill_views(const arena *a, wb__plan_step *d)
{
    wb__step *s = &d->step;
    wb__view *views = s->views;
    if (s->kind == WB__STEP_FUSED)
        views = d->views =
            d->views ? d->views : wb__alloc(((size_t)d->n_operands + 1) * sizeof *views);
    else s->n_views = d->n_operands;
    for (int i = 0; views && i < d->n_operands; i++) views[i] = arena_view_of(a, &d->operand[i]);
    s->aux = arena_view_of(a, &d->aux);
    s->sums = arena_view_of(a, &d->sums);
    s->fused.instr = d->instr;
    s->fused.views = d->views;
    s->fused.spaces = d->spaces;
    s->fused.windows = d->windows;
    s->fused.args = d->args;
    return views;
}

/* Lays out the arena, and fills in the views of the steps.  False: out of memory. */
static bool arena_lay_out_steps(arena *a, const wb__placement *l, wb__programs *s, int *ending)
{
    const int n = l->n_allocations + s->n_allocations;
    a->end = a->live = a->most = a->n_holes = 0;
    arena_find_uses(a, l, s);
    arena_find_waits(a, s);
    lengthen_branch_lifetimes(a, s);
    if (a->scarce) arena_store_over_operands(a, s);
    arena_lay_out_in_order(a, s, n, ending);
    bool good = arena_lay_out_by_size(a, n);
    for (int i = 0; good && i < s->n; i++) good = fill_views(a, &s->step[i]);
    return good;
}

/* Chooses the steps of the other branch.  If their memory makes the arena grow by more than a
 * quarter (and 16 MiB), or by more than 64 MiB, there is no other branch. */
static bool arena_choose_branch(arena *a, const wb__placement *l, wb__programs *s, int *ending)
{
    const int n = l->n_allocations + s->n_allocations;
    const int64_t mib = 1 << 20, end = a->end;
    wb__range *ranges = wb__alloc(((size_t)n + 1) * sizeof *ranges);
    bool good = ranges && wb__branches_choose(l, s);
    if (good && s->branches) good = arena_lay_out_steps(a, l, s, ending);
    s->branches &= good && a->end <= end + WB__MIN(WB__MAX(end / 4, 16 * mib), 64 * mib);
    for (int i = 0; i < s->n && !s->branches; i++) s->step[i].step.in_branch = false;
    if (good && !s->branches && a->end != end) good = arena_lay_out_steps(a, l, s, ending);
    for (int i = 0; good && i < n; i++)
        ranges[i] = (wb__range){arena_offset_of(a, i), arena_offset_of(a,
                                                                       i) + a->lifetimes[i].bytes};
    if (good && s->branches) wb__branches_join(s, ranges);
    wb__free(ranges);
    return good;
}

bool wb__lay_out(const wb__placement *l, bool scarce, bool branches, wb__programs *s)
{
    const int n = l->n_allocations + s->n_allocations, unit = WB__WORKSPACE_ALIGN;
    int *ending = wb__alloc(((size_t)s->n + 1) * sizeof *ending);
    arena a = {.lifetimes = wb__alloc(((size_t)n + 1) * sizeof *a.lifetimes),
               .offsets = wb__alloc_zero((size_t)n + 1, sizeof *a.offsets),
               .holes = wb__alloc(((size_t)n + 2) * sizeof *a.holes),
               .scarce = scarce};
    bool good = ending && a.lifetimes && a.offsets && a.holes &&
                arena_lay_out_steps(&a, l, s, ending);
    if (good && branches) good = arena_choose_branch(&a, l, s, ending);
    s->arena_bytes = (a.end + unit - 1) / unit * unit;
    wb__free(ending);
    wb__free(a.lifetimes);
    wb__free(a.offsets);
    wb__free(a.holes);
    return good;
}
