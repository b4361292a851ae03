/* Accumulation of gradients.  If the rule has .accumulate = k > 1, the state has a sum for each
 * slot and one for the loss, which are zeros between the accumulations.  The first k - 1 updates
 * add to the sums.  The k-th applies the sums together with its own gradients, and zeroes them. */
#include "optim/optim.h"

bool wb__sums_apply_next(const wb_opt_state *s)
{
    return s->counts->accumulated + 1 >= s->rule->accumulate;
}

int wb__sums_whole(const char *what, const wb_opt_state *s)
{
    const int64_t n = s->counts->accumulated, k = s->rule->accumulate;
    if (!n) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: the state is in the middle of an accumulation: %lld of "
                    "%lld batches are accumulated: call wb_update for %lld more first", what,
                    (long long)n, (long long)k, (long long)(k - n));
}

int wb__sums_new(wb_opt_state *s)
{
    const wb_device *d = wb__opt_device(s);
    if (!d) return wb__error_or(WB_ERROR_DEVICE);
    s->loss_sum = wb__new_filled(d, 0, wb__moment_dtype(s->slots[0].dtype), 0, NULL,
                                 "sum of losses");
    return s->loss_sum ? 0 : WB_ERROR_MEMORY;
}

/* ---- the graphs ------------------------------------------------------------------------------ */

/* Adds the gradient *g, which may be NULL, to the slot's sum.  Sets *next to the new value of the
 * sum, or to NULL if it stays.  If `applies`, sets *g to the whole sum. */
static bool add_slot(wb_opt_state *s, int i, bool applies, wb_tensor **g, wb_tensor **next)
{
    wb__slot *slot = &s->slots[i];
    const bool summed = s->counts->slot[i].summed;
    *next = NULL;
    if (!*g && !(applies && summed)) return true;
    wb_tensor *sum = slot->sum;
    if (*g) sum = wb_add(sum, *g);
    else if (wb__setting_read(s, &slot->frozen)) sum = NULL;
    else sum = wb__unchanged(sum);
    if (!applies) return (*next = sum) != NULL;
    const bool good = sum || !*g;
    *g = sum;
    return (*next = wb__zeros_like(slot->sum)) && good;
}

int wb__sums_add(wb_opt_state *s, bool applies, wb_tensor **const *g, wb_tensor **loss,
                 wb_tensor **next)
{
    wb_tensor *total = *loss ? wb__as(*loss, (wb_dtype)s->loss_sum->dtype) : NULL;
    if (total) total = wb_reshape_array(total, 0, NULL);
    if (*loss && !total) return WB_ERROR_MEMORY;
    total = total ? wb_add(s->loss_sum, total) : wb__unchanged(s->loss_sum);
    for (int i = 0; i < s->n && total; i++)
        if (!add_slot(s, i, applies, g[i], &next[i])) return WB_ERROR_MEMORY;
    *loss = applies ? total : NULL;
    next[s->n] = applies ? wb__zeros_like(s->loss_sum) : total;
    return total && next[s->n] ? 0 : WB_ERROR_MEMORY;
}

/* ---- counting -------------------------------------------------------------------------------- */

/* A slot in a recorded update, for replays: whether the batch had a gradient for the slot, and
 * whether an earlier batch had added one to the sum. */
typedef struct { bool gradient, summed; } recorded_slot;
typedef struct { wb_opt_state *state; bool applies; recorded_slot slot[]; } accumulate_counting;

/* Counts an update whose pending write (see wb__journal) is *write.  Returns 0 or an error code. */
static int accumulate_count(const accumulate_counting *c, wb_tensor *const *write)
{
    wb__opt_counts *s = c->state->counts;
    int status = wb__journal(*write, s, &s->accumulated, sizeof s->accumulated);
    if (status) return status;
    s->accumulated = c->applies ? 0 : s->accumulated + 1;
    for (int i = 0; i < c->state->n && !status; i++) {
        bool *summed = &s->slot[i].summed, now = !c->applies && (*summed || c->slot[i].gradient);
        if (now == *summed) continue;
        status = wb__journal(*write, s, summed, sizeof *summed);
        if (!status) *summed = now;
    }
    return status;
}

static int count_again(void *context) { return accumulate_count(context,
                                                                &wb__this_thread()->late.guard); }

/* Whether a recorded update can be replayed.  If it applies the sums and its batch had no gradient
 * for a slot, it uses the slot's sum exactly if an earlier batch had added to the sum. */
static wb__fit accumulate_fits(const void *context)
{
    const accumulate_counting *c = context;
    bool same = c->applies == wb__sums_apply_next(c->state);
    for (int i = 0; i < c->state->n && c->applies; i++)
        same &= c->slot[i].gradient || c->slot[i].summed == c->state->counts->slot[i].summed;
    return same ? WB__FITS : WB__FITS_NOT_NOW;
}

int wb__sums_count(wb_opt_state *s, bool applies, wb_tensor *const *next)
{
    const wb__thread *t = wb__this_thread();
    const size_t bytes = sizeof(accumulate_counting) + (size_t)s->n * sizeof(recorded_slot);
    accumulate_counting *c = wb__alloc_zero(1, bytes);
    if (!c) return WB_ERROR_MEMORY;
    int status = 0;
    c->state = s;
    c->applies = applies;
    for (int i = 0; i < s->n; i++)
        c->slot[i] = (recorded_slot){next[i] != NULL, s->counts->slot[i].summed};
    if (!t->recording) status = accumulate_count(c, &s->loss_sum->current);
    else if (s->recorded == t->recorded)
        status = wb__fail(WB_ERROR_ARGUMENT, "update: called twice for one state with .accumulate "
                          "in a function that wb_compile is recording: call wb_update once in it");
    else status = wb__on_replay(&(wb__replay){.after = count_again, .fits = accumulate_fits,
                                              .context = c, .bytes = bytes, .holds = s});
    s->recorded = t->recorded;
    wb__free(c);
    return status;
}

static int accumulate_zero_sum(wb_tensor *sum)
{
    const size_t bytes = (size_t)sum->size * wb__dtype_size((wb_dtype)sum->dtype);
    void *zeros = wb__alloc_zero(bytes + 1, 1);
    const int status = zeros ? wb__overwrite(sum, zeros, bytes) : WB_ERROR_MEMORY;
    wb__free(zeros);
    return status;
}

int wb__sums_drop(wb_opt_state *s)
{
    const int late = wb__guard_confirm();
    if (late && late != WB_ERROR_NUMBER) return late;
    if (!s->counts->accumulated) return late;
    int status = accumulate_zero_sum(s->loss_sum);
    for (int i = 0; i < s->n && !status; i++) {
        status = accumulate_zero_sum(s->slots[i].sum);
        s->counts->slot[i].summed = false;
    }
    s->counts->accumulated = 0;
    return status ? status : late;
}
