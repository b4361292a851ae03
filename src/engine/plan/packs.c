/* Packs an operand once for several products.
 *
 * The steps of a recurrent layer multiply different matrices by the same weights, and a kernel
 * reads b of a product in another order than it has in memory: it packs b first.  Where several
 * products of a plan have the same b, and the backend is faster with its packed form, a step of its
 * own packs it into the arena, before the first of these products.
 *
 * Products with the same view of the same memory read the same numbers: each value is computed
 * once, variables are written by the last steps of a plan only, and the only reader of a value
 * whose memory another step writes again is that step (wb__role.replaced). */
#include "engine/plan/stages.h"

#include <string.h>

enum {
    PACKS_FEWEST = 4,   /* products with one b; a library takes the time of packing b for two or
                           three of them */
    MOST_OPEN = 8       /* operands with which a product is compared */
};

/* Products with the same b. */
typedef struct {
    int first, n;                       /* index of the first of their steps; number of products */
    int64_t bytes;                      /* size of the packed form */
    wb__step_operand packed;            /* operand with the packed form */
} chain;

typedef struct {
    wb__emitter *m;
    chain *chain;
    int *of;                            /* index of the chain of each step; -1: none */
    int n, n_packs;
    int open[MOST_OPEN], n_open;        /* the chains used last, the latest first */
} packer;

/* Returns the size of the packed form of b if the step is a product that gains by it; else 0. */
static int64_t packs_bytes(const packer *p, const wb__plan_step *d)
{
    const wb_device *device = p->m->attempt->device;
    wb__step s = d->step;
    if (s.kind != WB__STEP_MATMUL || wb__step_is_special(&s)) return 0;
    s.n_views = d->n_operands;
    for (int i = 0; i < d->n_operands; i++) s.views[i] = d->operand[i].view;
    return device->backend->packed_bytes(device, &s);
}

/* Whether two products read the same b from the same memory. */
static bool reads_same_b(const wb__plan_step *d, const wb__plan_step *e)
{
    const wb__step_operand *a = &d->operand[1], *b = &e->operand[1];
    return a->allocation == b->allocation && a->view.buffer == b->view.buffer &&
           wb__same_view(&a->view, &b->view);
}

/* Adds step i, a product, to the chain of the products with the same b, which may be new. */
static void packs_add_product(packer *p, int i, int64_t bytes)
{
    const wb__plan_step *step = p->m->out->step;
    int at = 0;
    while (at < p->n_open && !reads_same_b(&step[p->chain[p->open[at]].first], &step[i])) at++;
    const int c = at < p->n_open ? p->open[at] : p->n++;
    if (at == p->n_open) {
        p->chain[c] = (chain){.first = i, .bytes = bytes};
        if (p->n_open < MOST_OPEN) p->n_open++;
        else at--;
    }
    memmove(&p->open[1], &p->open[0], (size_t)at * sizeof p->open[0]);
    p->open[0] = c;
    p->of[i] = c;
    p->n_packs += ++p->chain[c].n == PACKS_FEWEST;
}

/* Returns a step that packs b for the products of chain c into a new allocation. */
static wb__plan_step make_pack_step(const packer *p, chain *c, const wb__step_operand *b)
{
    wb__plan_step d;
    const wb__value form = {.dtype = WB_U8, .ndim = 1, .dims = {c->bytes}, .size = c->bytes};
    c->packed = wb__emit_allocation(p->m, &form);
    wb__step_begin(p->m, WB__STEP_PACK, &d);
    wb__add_operand(p->m, &d, b);
    wb__add_operand(p->m, &d, &c->packed);
    return d;
}

/* Copies the steps to `all`, with a step that packs before the first product of each chain. */
static void packs_insert_steps(const packer *p, wb__plan_step *all)
{
    wb__programs *s = p->m->out;
    int to = 0;
    for (int i = 0; i < s->n; i++) {
        chain *c = p->of[i] >= 0 && p->chain[p->of[i]].n >= PACKS_FEWEST ? &p->chain[p->of[i]]
                                                                         : NULL;
        if (c && c->first == i) all[to++] = make_pack_step(p, c, &s->step[i].operand[1]);
        all[to] = s->step[i];
        if (c) {
            all[to].operand[1] = c->packed;
            all[to].step.packed = true;
        }
        to++;
    }
    wb__free(s->step);
    s->step = all;
    s->n = s->capacity = to;
    s->n_compute += p->n_packs;
}

bool wb__pack_operands(wb__emitter *m)
{
    wb__programs *s = m->out;
    if (!m->attempt->device->backend->packed_bytes) return true;
    const size_t n = (size_t)s->n_compute + 1;
    packer p = {.m = m, .chain = wb__alloc(n * sizeof *p.chain),
                .of = wb__alloc(((size_t)s->n + 1) * sizeof *p.of)};
    bool good = p.chain && p.of;
    for (int i = 0; good && i < s->n; i++) {
        const int64_t bytes = i < s->n_compute ? packs_bytes(&p, &s->step[i]) : 0;
        p.of[i] = -1;
        if (bytes > 0) packs_add_product(&p, i, bytes);
    }
    if (good && p.n_packs) {
        wb__plan_step *all = wb__alloc((size_t)(s->n + p.n_packs) * sizeof *all);
        good = all;
        if (good) packs_insert_steps(&p, all);
    }
    wb__free(p.chain);
    wb__free(p.of);
    return good && !m->failed;
}
