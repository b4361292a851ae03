/* How a plan is built.  A request is a graph in topological order.  Six stages turn it into kernels
 * over buffers; each stage only reads the results of the stages before it:
 *
 *   values      Each tensor becomes a value; composites (softmax, for example) become the
 *               operations that they are composed of.  Creating a value simplifies it and merges
 *               it with an equal one.  Slices are pushed towards leaves, layouts are chosen, and
 *               views are separated from values that have memory of their own.
 *   patterns    Finds the matrix products and convolutions into whose kernels biases, activations,
 *               gradients of activations and sums of rows can be fused.
 *   groups      Each computed value gets a group: one fused kernel, one library operation with the
 *               values fused into it, or the copies of a concat.
 *   placement   Each value that a kernel stores gets memory: a result, a variable, a part of a
 *               concat, or an arena allocation.
 *   programs    A group becomes one step or several: a fused program, a library operation on views,
 *               or copies.  Kernels that write variables and differ only in their operands become
 *               one step.  Arena allocations get offsets; allocations that are not used at the same
 *               time share memory.
 *   plan        The backend prepares a kernel for each step.
 *
 * Attention is a library operation where the backend accepts it.  Elsewhere it is composed of other
 * operations, like every composite. */
#include "engine/plan/stages.h"

/* Runs the stages once and returns the plan; NULL: one failed, with the error set. */
static wb__plan *plan_attempt(const wb__attempt *a)
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

/* Builds a plan in one or more attempts.  If the backend declines a fused kernel as too large, the
 * next attempt makes smaller kernels.  If the backend declines a step that its `supports` accepted,
 * the next attempt avoids this step. */
wb__plan *wb__plan_make(const wb__request *r, uint64_t hash)
{
    static const int most_values[] = {256, 64, 16, 4, 1};
    wb__declined declined = {0};
    wb__plan *p = NULL;
    for (size_t i = 0; !p && i < WB__COUNT(most_values);) {
        const int before = declined.n + declined.all;
        const wb__attempt a = {r, r->device, most_values[i], &declined};
        declined.known = declined.n;
        p = plan_attempt(&a);
        if (p || wb_error_code() != WB_ERROR_UNSUPPORTED) break;
        const bool learnt = declined.n + declined.all > before;
        if (!learnt && i + 1 == WB__COUNT(most_values)) break;
        /* an attempt that only avoids more steps keeps the kernel size */
        i += !learnt;
        wb_clear_error();
    }
    if (p) p->hash = hash;
    wb__free(declined.step);
    return p;
}
