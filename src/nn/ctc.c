/* The loss of connectionist temporal classification, by the forward algorithm in log space.  The
 * lattice of a sequence has 2 L + 1 states: the labels in their order, with a blank before, between
 * and behind them.  One tensor [N, 2 L + 1] has, for each state, the logarithm of the sum over the
 * paths that end there.  Impossible states have the finite number NEVER, so that no difference of
 * infinities makes NaN. */
#include "nn/losses.h"

#include <math.h>

#define NEVER (-1e30)

/* One call of the loss for n sequences, each of `steps` time steps with `classes` scores and at
 * most `labels` labels. */
typedef struct {
    wb_ctc_loss_options o;          /* options, with defaults filled in */
    wb_tensor *yhat, *y;            /* y: i32 or i64 */
    int64_t n, steps, labels, classes;
    wb_tensor *valid;               /* bool [N, 1]: labels and lengths are in range; NULL: all */
    wb__loss_weights w;             /* weights of the n losses */
} ctc;

static bool ctc_has_integers(const char *name, const wb_tensor *x)
{
    if (wb__is_integer(x)) return true;
    return !wb__fail(WB_ERROR_DTYPE, "ctc_loss: %s has integers, got %s", name, wb_describe(x));
}

/* Checks the lengths that an option gives, at most `most`, and sets *at to them as i32 [N, 1]. */
static bool ctc_read_lengths(ctc *l, const char *name, int64_t most, wb_tensor **at)
{
    wb_tensor *x = *at;
    if (!x) return true;
    if (!ctc_has_integers(name, x)) return false;
    if (x->ndim != 1 || x->dims[0] != l->n)
        return !wb__fail(WB_ERROR_SHAPE, "ctc_loss: %s is %s; it has a number for each of the %lld "
                         "sequences", name, wb_describe(x), (long long)l->n);
    if (!wb__one_device("ctc_loss", l->yhat, x) || !(x = wb__loss_masked(&l->w, x, -1, 0)) ||
        !wb__indices_below(name, x, most + 1))
        return false;
    *at = x = wb_unsqueeze(wb__as(x, WB_I32), -1);
    return x && wb__also(&l->valid, wb__in_range(x, most + 1));
}

/* Checks the labels, and sets those behind the length of their sequence to the blank. */
static bool ctc_read_labels(ctc *l)
{
    const wb_dtype number = l->y->dtype == WB_I64 ? WB_I64 : WB_I32;
    wb_tensor *lengths = l->o.target_lengths, *y = l->y;
    if (!l->labels) return (l->y = wb__as(y, number)) != NULL;
    wb_tensor *blank = wb_scalar_int(l->o.blank), *counts = NULL;
    y = l->w.mask ? wb_where(wb_unsqueeze(l->w.mask, 1), y, wb_scalar_int(!l->o.blank)) : y;
    if (lengths) {
        y = wb__as(y, number);
        counts = wb_lt(wb_arange(l->labels, WB_I32), lengths);
        y = wb_where(counts, y, blank);
    }
    if (!y || !wb__labels_below("ctc_loss", y, l->classes, NULL)) return false;
    l->y = y = wb__as(y, number);
    wb_tensor *right = wb_and(wb__in_range(y, l->classes), wb_ne(y, blank));
    if (counts) right = wb_or(right, wb_not(counts));
    return y && wb__also(&l->valid, wb_all(right, .axes = {1}, .keep = true));
}

static bool ctc_read_operands(ctc *l, const wb_ctc_loss_options *given)
{
    wb__given g;
    const char *what = "ctc_loss";
    wb_tensor *x = l->yhat, *y = l->y;
    if (!x || !y) return !wb__null(what, x ? "y" : "yhat");
    if (!wb__floating(what, x) || !wb__operand(what, y) ||
        !wb__read_options(what, wb_ctc_loss_options, &l->o, given, &g) ||
        !wb__read_agg(what, l->o.agg) ||
        !wb__read_tensor_option(what, "input_lengths", &g, &l->o.input_lengths) ||
        !wb__read_tensor_option(what, "target_lengths", &g, &l->o.target_lengths) ||
        !ctc_has_integers("y", y))
        return false;
    if (x->ndim != 3 || y->ndim != 2 || x->dims[0] != y->dims[0] || !x->dims[2])
        return !wb__fail(WB_ERROR_SHAPE, "ctc_loss: expects yhat [N,T,classes] and y [N,L], got "
                         "%s · %s", wb_describe(x), wb_describe(y));
    if (!wb__one_device(what, x, y)) return false;
    l->n = x->dims[0], l->steps = x->dims[1], l->classes = x->dims[2], l->labels = y->dims[1];
    if (l->o.blank == -1) l->o.blank = l->classes - 1;
    if (l->o.blank < 0 || l->o.blank >= l->classes)
        return !wb__fail(WB_ERROR_ARGUMENT, "ctc_loss: .blank is %lld; it is a class from 0 to "
                         "%lld, or -1, the last", (long long)l->o.blank, (long long)l->classes - 1);
    if (!wb__read_loss_weights(&l->w, what, &g, l->o.sample_weight, l->o.mask, x, 6)) return false;
    l->yhat = wb__wide(x);
    if (l->w.mask)
        l->yhat = wb_where(wb_unsqueeze(wb_unsqueeze(l->w.mask, 1), 2), l->yhat, wb_scalar(0));
    return l->yhat && ctc_read_lengths(l, ".input_lengths", l->steps, &l->o.input_lengths) &&
           ctc_read_lengths(l, ".target_lengths", l->labels, &l->o.target_lengths) &&
           ctc_read_labels(l);
}

/* Returns the classes of the states, [N, 2 L + 1]: a label after each blank but the last. */
static wb_tensor *states_of(const ctc *l)
{
    const int64_t wide[3] = {l->n, l->labels, 1}, flat[2] = {l->n, 2 * l->labels};
    wb_tensor *y = wb_pad(wb_reshape_array(l->y, 3, wide), 2, 1, 0, .value = (double)l->o.blank);
    return wb_pad(wb_reshape_array(y, 2, flat), 1, 0, 1, .value = (double)l->o.blank);
}

/* Returns the logarithms of the probabilities of the states' classes at all steps, [T, N, 2 L + 1].
 * They are finite. */
static wb_tensor *ctc_emissions(const ctc *l, wb_tensor *states)
{
    wb_tensor *logp = wb_permute(wb_logsoftmax(l->yhat), 1, 0, 2);
    logp = wb_take_along(logp, wb_unsqueeze(states, 0), 2);
    return wb_maximum(logp, wb_scalar(NEVER));
}

/* Returns the logarithms of all states after the next time step.  A path to a state comes from the
 * same state, the state before, or the label before it; `skip` is NEVER where labels are equal. */
static wb_tensor *ctc_after_step(wb_tensor *paths, wb_tensor *skip, wb_tensor *emission)
{
    if (!paths) return NULL;
    const int64_t states = paths->dims[1];
    wb_tensor *from = wb_pad(paths, 1, 2, 0, .value = NEVER);
    wb_tensor *before = wb_slice(from, 1, 1, states + 1),
              *label = wb_add(wb_slice(from, 1, 0, states), skip);
    wb_tensor *top = wb_stop_gradient(wb_maximum(wb_maximum(paths, before), label));
    wb_tensor *sum = wb_add(wb_add(wb_exp(wb_sub(paths, top)), wb_exp(wb_sub(before, top))),
                            wb_exp(wb_sub(label, top)));
    return wb_add(wb_add(top, wb_log(sum)), emission);
}

/* Returns the lattice [N, 2 L + 1] after the last step of each sequence.  Before the first step all
 * paths are in the first blank. */
static wb_tensor *ctc_forward_pass(const ctc *l)
{
    const int64_t width = 2 * l->labels + 1, step[2] = {l->n, width};
    wb_tensor *states = states_of(l), *all = ctc_emissions(l, states), *never = wb_scalar(NEVER);
    wb_tensor *before = wb_slice(wb_pad(states, 1, 2, 0, .value = (double)l->o.blank), 1, 0, width);
    wb_tensor *other = wb_and(wb_ne(states, before), wb_ne(states, wb_scalar_int(l->o.blank)));
    wb_tensor *zeros = wb_full_array(0, (wb_dtype)l->yhat->dtype, 2, step);
    wb_tensor *skip = wb_where(other, zeros, never);
    wb_tensor *first = wb_eq(wb_arange(width, WB_I32), wb_scalar_int(0));
    wb_tensor *paths = wb_where(first, zeros, never);
    for (int64_t t = 0; paths && t < l->steps; t++) {
        wb_tensor *emission = wb_slice(all, 0, t, t + 1);
        emission = emission ? wb_reshape_array(emission, 2, step) : NULL;
        wb_tensor *next = emission ? ctc_after_step(paths, skip, emission) : NULL;
        if (l->o.input_lengths)
            next = wb_where(wb_gt(l->o.input_lengths, wb_scalar_int(t)), next, paths);
        paths = next;
    }
    return paths;
}

/* Returns the losses [N, 1].  A path ends in the last label or in the blank behind it. */
static wb_tensor *ctc_losses_of(const ctc *l)
{
    wb_tensor *paths = ctc_forward_pass(l), *never = wb_scalar(NEVER);
    wb_tensor *number = wb_arange(2 * l->labels + 1, WB_I32);
    wb_tensor *length = l->o.target_lengths ? l->o.target_lengths
                                            : wb_full_array((double)l->labels, WB_I32, 2,
                                                            (int64_t[]){1, 1});
    wb_tensor *last = wb_mul(length, wb_scalar_int(2));
    wb_tensor *ends = wb_or(wb_eq(number, last), wb_eq(number, wb_sub(last, wb_scalar_int(1))));
    wb_tensor *loss = wb_neg(wb_logsumexp(wb_where(ends, paths, never), .axes = {1}, .keep = true));
    wb_tensor *possible = wb_lt(loss, wb_scalar(NEVER / -10));
    loss = wb_where(possible, loss, wb_scalar(l->o.zero_infinity ? 0 : INFINITY));
    if (l->o.agg == WB_AGG_MEAN)
        loss = wb_div(loss, wb_astype(wb_maximum(length, wb_scalar_int(1)),
                                      (wb_dtype)l->yhat->dtype));
    return l->valid ? wb_where(l->valid, loss, wb_scalar(NAN)) : loss;
}

wb_tensor *wb_ctc_loss_with(wb_tensor *yhat, wb_tensor *y, const wb_ctc_loss_options *o)
{
    const wb__frame f = wb__frame_begin();
    ctc l = {.yhat = yhat, .y = y};
    wb_tensor *losses = ctc_read_operands(&l, o) ? ctc_losses_of(&l) : NULL;
    losses = losses ? wb_reshape_array(losses, 1, &l.n) : NULL;
    return wb__frame_end(f, losses ? wb__weighted(&l.w, l.o.agg, losses) : NULL);
}

wb_tensor *(wb_ctc_loss)(wb_tensor *yhat, wb_tensor *y)
{
    return wb_ctc_loss_with(yhat, y, NULL);
}
