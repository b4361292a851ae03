/* How a plan is made.  A request is a graph in order; six stages, each of which only reads what the
 * stages before it made, turn it into kernels over buffers:
 *
 *   values      Each tensor becomes a value; composites (softmax, say) become the operations that
 *               they are made of.  Making a value simplifies it and merges it with an equal one.
 *               Slices are pushed towards leaves, layouts chosen, views distinguished from values
 *               with memory of their own.
 *   patterns    Biases, activations, their gradients and sums of rows find the matrix products and
 *               convolutions whose kernels can make them too.
 *   groups      Each value that is made gets a group: one fused kernel, one library operation with
 *               what its kernel makes beside it, or the copies of a concat.
 *   placement   Each value that a kernel stores for another gets its memory: a result's, a
 *               variable's, a part of a concat, or a piece of the arena.
 *   programs    Each group becomes a step: a program over tiles, or a library operation on views.
 *               Updates that differ in their operands alone become one step; the pieces of the
 *               arena get their places, so that what is not used at the same time shares memory.
 *   plan        The backend prepares a kernel for each step.
 *
 * Attention is a library operation where the backend accepts it, and is otherwise written out among
 * the values, like every composite. */
#include "engine/plan/stages.h"

static wb__plan *attempt(const wb__attempt *a)
{
    wb__values values = {0};
    wb__patterns patterns = {0};
    wb__groups groups = {0};
    wb__placement placement = {0};
    wb__programs programs = {0};
    wb__plan *p = NULL;
    if (wb__values_make(a, &values) && wb__patterns_find(a, &values, &patterns) &&
        wb__groups_make(a, &values, &patterns, &groups) &&
        wb__placement_make(a, &values, &patterns, &groups, &placement) &&
        wb__programs_make(a, &values, &patterns, &groups, &placement, &programs)) {
        if (wb__debug("stages")) wb__trace(a, &values, &patterns, &groups, &placement);
        p = wb__plan_finish(a, &values, &placement, &programs);
    }
    wb__programs_free(&programs);
    wb__placement_free(&placement);
    wb__groups_free(&groups);
    wb__patterns_free(&patterns);
    wb__values_free(&values);
    if (p && wb__debug("plan")) wb__plan_print(p);
    return p;
}

/* A device may refuse a fused kernel that is too large for it: smaller ones then; or decline a step
 * that it accepted: then the plan is made without it. */
wb__plan *wb__plan_make(const wb__request *r, uint64_t hash)
{
    static const int most_values[] = {256, 64, 16, 4, 1};
    wb__declined declined = {0};
    wb__plan *p = NULL;
    for (size_t i = 0; !p && i < WB__COUNT(most_values);) {
        const int before = declined.n + declined.all;
        const wb__attempt a = {r, r->device, most_values[i], &declined};
        declined.known = declined.n;
        p = attempt(&a);
        if (p || wb_error_code() != WB_ERROR_UNSUPPORTED) break;
        const bool learnt = declined.n + declined.all > before;
        if (!learnt && (!r->device->backend->is_gpu || i + 1 == WB__COUNT(most_values))) break;
        i += !learnt;                   /* without the declined steps the same size is tried again */
        wb_clear_error();
    }
    if (p) p->hash = hash;
    wb__free(declined.step);
    return p;
}
