/* Two branches of a plan.  Where a device runs a plan as a graph, steps that do not depend on each
 * other may run at the same time.  The longest chain of steps is the main branch.  A small step
 * that is not on it, such as the gradient of a weight, is in the other branch: alone it does not
 * fill a GPU.
 *
 * The steps of one branch run in their order.  Between the branches, a step waits for the last
 * earlier step of the other branch that has memory in common with it, if one of them writes this
 * memory.  So the results are those of the order of the steps, whatever the layout of the arena.
 * But memory that is soon used again makes steps wait; arena.c lets the memory of the other branch
 * live longer. */
#include "engine/plan/stages.h"

#include <string.h>

enum {
    SMALL_BYTES = 8 << 20, SMALL_FLOPS = 1000000000,    /* of a step that does not fill a GPU */
    MOST_BACK = 512             /* a step waits for all steps that are so far before it */
};

/* Returns memory number v of a step: operand, auxiliary operand, sums.  NULL: it has none. */
static const wb__step_operand *branches_memory_of(const wb__plan_step *d, int v)
{
    if (v < d->n_operands) return &d->operand[v];
    if (v == d->n_operands) return d->step.aux_kind ? &d->aux : NULL;
    return d->step.sums_of ? &d->sums : NULL;
}

static int branches_count_memory(const wb__plan_step *d) { return d->n_operands + 2; }

/* Whether branches_writes knows which operands the step writes. */
static bool has_known_writes(const wb__step *s)
{
    return s->kind == WB__STEP_FUSED || s->kind == WB__STEP_MATMUL || s->kind == WB__STEP_CONV ||
           s->kind == WB__STEP_COPY;
}

/* Whether the step writes its memory number v; true also if this is not known. */
static bool branches_writes(const wb__plan_step *d, int v)
{
    if (!has_known_writes(&d->step)) return true;
    if (v == d->n_operands)
        return d->step.aux_kind == WB__AUX_OPERAND || d->step.aux_kind == WB__AUX_SIGNS;
    if (v > d->n_operands) return true;
    if (d->step.kind != WB__STEP_FUSED) return wb__step_writes(&d->step, v);
    const wb__fused *f = &d->step.fused;
    for (int i = 0; i < f->n_instr; i++)
        if (wb__instr_writes((wb__instr_kind)d->instr[i].kind) && d->instr[i].arg == v % f->n_views)
            return true;
    return false;
}

/* The last accesses to an allocation or a buffer: the step that wrote it last and, among the steps
 * that have read it since, the one with the longest chain before that step; -1: none. */
typedef struct { int writer, reader; } last_access;

typedef struct {
    last_access *last;          /* the last accesses to each allocation, then to each buffer */
    int *length, *before;       /* of each step: length of the longest chain that ends with it; the
                                   step before it in this chain, or -1 */
    bool *is_main;              /* of each step: it is on the longest chain */
} chains;

static last_access *branches_last_access_of(const chains *c, const wb__placement *l,
                                            const wb__programs *s, const wb__step_operand *at)
{
    if (!at || (at->allocation < 0 && at->view.buffer < 0)) return NULL;
    return &c->last[at->allocation >= 0 ? at->allocation
                                        : l->n_allocations + s->n_allocations + at->view.buffer];
}

/* Makes step `before` the one before step i in the longest chain, if that chain gets longer. */
static void branches_lengthen_chain(const chains *c, int i, int before)
{
    if (before < 0 || c->length[before] < c->length[i]) return;
    c->length[i] = c->length[before] + 1;
    c->before[i] = before;
}

/* Marks the steps of the longest chain. */
static void find_main_branch(const chains *c, const wb__placement *l, const wb__programs *s)
{
    int longest = 0;
    for (int i = 0; i < s->n_compute; i++) {
        const wb__plan_step *d = &s->step[i];
        c->length[i] = 1;
        c->before[i] = -1;
        for (int v = 0; v < branches_count_memory(d); v++) {
            const last_access *m = branches_last_access_of(c, l, s, branches_memory_of(d, v));
            if (m) branches_lengthen_chain(c, i, m->writer);
            if (m && branches_writes(d, v)) branches_lengthen_chain(c, i, m->reader);
        }
        for (int v = 0; v < branches_count_memory(d); v++) {
            last_access *m = branches_last_access_of(c, l, s, branches_memory_of(d, v));
            if (m && branches_writes(d, v)) *m = (last_access){i, -1};
            else if (m && (m->reader < 0 || c->length[i] > c->length[m->reader])) m->reader = i;
        }
        if (c->length[i] >= c->length[longest]) longest = i;
    }
    for (int i = longest; i >= 0; i = c->before[i]) c->is_main[i] = true;
}

static bool is_small(const wb__step *s)
{
    const wb__cost cost = wb__step_cost(s);
    return has_known_writes(s) && cost.flops <= SMALL_FLOPS &&
           cost.read + cost.written <= SMALL_BYTES;
}

bool wb__branches_choose(const wb__placement *l, wb__programs *s)
{
    const size_t n = (size_t)s->n + 1;
    const int memories = l->n_allocations + s->n_allocations + l->arena_buffer + 1;
    for (int i = 0; i < s->n; i++)      /* kinds that overlap with other steps by themselves */
        if (s->step[i].step.kind == WB__STEP_COLLECTIVE || s->step[i].step.kind == WB__STEP_HOST)
            return true;
    chains c = {.last = wb__alloc(((size_t)memories + 1) * sizeof *c.last),
                .length = wb__alloc(n * sizeof *c.length),
                .before = wb__alloc(n * sizeof *c.before),
                .is_main = wb__alloc_zero(n, sizeof *c.is_main)};
    bool good = c.last && c.length && c.before && c.is_main;
    for (int m = 0; good && m <= memories; m++) c.last[m] = (last_access){-1, -1};
    if (good && s->n_compute) find_main_branch(&c, l, s);
    for (int i = 0; good && i < s->n_compute; i++) {
        s->step[i].step.in_branch = !c.is_main[i] && is_small(&s->step[i].step);
        s->branches |= s->step[i].step.in_branch;
    }
    wb__free(c.last);
    wb__free(c.length);
    wb__free(c.before);
    wb__free(c.is_main);
    return good;
}

/* Whether two operands have bytes in common, given the range of each allocation. */
static bool branches_overlap(const wb__range *of, const wb__step_operand *x,
                             const wb__step_operand *y)
{
    const int i = x->allocation, k = y->allocation;
    if (i < 0 || k < 0) return i < 0 && k < 0 && x->view.buffer == y->view.buffer;
    return of[i].begin < of[k].end && of[k].begin < of[i].end;
}

/* Whether one of the two steps writes memory of the other. */
static bool branches_depend(const wb__range *of, const wb__plan_step *d, const wb__plan_step *e)
{
    for (int v = 0; v < branches_count_memory(d); v++) {
        const wb__step_operand *x = branches_memory_of(d, v);
        const bool written = x && branches_writes(d, v);
        for (int w = 0; x && w < branches_count_memory(e); w++) {
            const wb__step_operand *y = branches_memory_of(e, w);
            if (y && branches_overlap(of, x, y) && (written || branches_writes(e, w))) return true;
        }
    }
    return false;
}

/* Returns the last step of the other branch, after step `known`, for which step i waits; or
 * `known`.  The steps that write variables wait for all steps of the other branch: a variable may
 * be another buffer's memory too. */
static int branches_last_awaited(const wb__range *of, const wb__programs *s, int i, int known)
{
    for (int k = i - 1; k > known; k--) {
        if (s->step[k].step.in_branch == s->step[i].step.in_branch) continue;
        const bool waits = i >= s->n_compute || i - k > MOST_BACK;
        if (waits || branches_depend(of, &s->step[k], &s->step[i])) return k;
    }
    return known;
}

void wb__branches_join(wb__programs *s, const wb__range *of)
{
    int known[2] = {-1, -1};            /* steps for which each branch has waited */
    for (int i = 0; i < s->n; i++) {
        int *mine = &known[s->step[i].step.in_branch];
        const int k = branches_last_awaited(of, s, i, *mine);
        s->step[i].after = k > *mine ? k : -1;
        *mine = k;
    }
}
