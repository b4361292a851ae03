/* Recurrence: a layer that runs a cell over sequences.  The cell is one of the library, which
 * recurrent.c runs, or a layer with the inputs x, states and the outputs y, states. */
#include "nn/recurrent.h"

#define RECURRENCE_OPTIONS(X)                                                                   \
    X(wb_Recurrence_options, last, BOOL, 1) X(wb_Recurrence_options, reverse, BOOL, 1)          \
    X(wb_Recurrence_options, return_state, BOOL, 1)
static const wb__option recurrence_table[] = {RECURRENCE_OPTIONS(WB__OPTION_ROW)};

extern const wb__layer_type wb__recurrence_type;

/* Whether the number of outputs of the cell is 1 + *n; sets *n if no states were passed.  If not,
 * sets the error. */
static bool recurrence_check_count(const wb_layer *cell, int n_out, int *n)
{
    const char *name = cell->type->name;
    if (n_out < 2)
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: gives one tensor; a cell gives its output and "
                         "then its new states", name);
    if (*n && *n != n_out - 1)
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: gives %d new states for %d states", name,
                         n_out - 1, *n);
    *n = n_out - 1;
    return true;
}

/* Calls the cell with x and *n states, and checks its outputs. */
static bool recurrence_call_cell(wb_layer *cell, wb_tensor *x, int *n, wb_tensor **states,
                                 wb_tensor **y)
{
    wb_tensor *inputs[1 + WB__OUTPUTS] = {x}, *outputs[WB__OUTPUTS];
    memcpy(inputs + 1, states, (size_t)*n * sizeof *states);
    const int n_out = wb__call_layer(cell, 1 + *n, inputs, outputs);
    if (n_out < 0 || !recurrence_check_count(cell, n_out, n)) return false;
    if (!outputs[0]->ndim || outputs[0]->dims[0] != x->dims[0])
        return !wb__fail(WB_ERROR_SHAPE, "%s: gives the output %s for the step %s; it has a row "
                         "for each of the %lld sequences", cell->type->name,
                         wb_describe(outputs[0]), wb_describe(x), (long long)x->dims[0]);
    *y = outputs[0];
    memcpy(states, outputs + 1, (size_t)*n * sizeof *states);
    return true;
}

/* Calls the cell for one time step: the function wb__steps.step for a cell of the program. */
static bool recurrence_call_step(const wb__steps *s, wb_tensor *x, int *n, wb_tensor **states,
                                 wb_tensor **y)
{
    const unsigned failures = wb__failures();
    const bool ok = recurrence_call_cell((wb_layer *)(uintptr_t)s->ctx, x, n, states, y);
    if (!ok && failures != wb__failures()) wb__failed_in("cell", "");
    return ok;
}

/* Returns the output of the last time step of each sequence, which `lengths` determines. */
static wb_tensor *recurrence_last_of(int64_t n_steps, wb_tensor *const *outputs, wb_tensor *lengths)
{
    wb_tensor *last = outputs[0];
    for (int64_t t = 1; last && t < n_steps; t++)
        last = wb__where_valid(wb_gt(lengths, wb_scalar_int(t)), outputs[t], last);
    return last;
}

/* Runs a program's cell over a sequence.  Returns the number of results; negative: failed. */
static int recurrence_run_own(const wb_Recurrence_options *o, wb_layer *cell, int n,
                              wb_tensor *const *inputs, wb_tensor **results)
{
    wb_tensor *x = inputs[0], *lengths = NULL, *states[WB__OUTPUTS] = {NULL};
    if (x->ndim < 2 || !x->dims[1])
        return wb__fail(WB_ERROR_SHAPE, "Recurrence: expects [N,T,...] with steps, got %s",
                        wb_describe(x)), -1;
    if (!wb__read_lengths("Recurrence", x, &n, inputs, &lengths)) return -1;
    if (n > WB__OUTPUTS)
        return wb__fail(WB_ERROR_ARGUMENT, "Recurrence: got %d states; a cell has at most %d",
                        n - 1, WB__OUTPUTS - 1), -1;
    int n_states = n - 1;
    if (lengths && o->reverse && !n_states)
        return wb__fail(WB_ERROR_ARGUMENT, "Recurrence: with .reverse and lengths, a cell of the "
                        "program begins with states that are given: a short sequence begins at a "
                        "later step"), -1;
    memcpy(states, inputs + 1, (size_t)n_states * sizeof *states);
    wb_tensor **outputs = wb__alloc((size_t)x->dims[1] * sizeof *outputs);
    const wb__steps steps = {recurrence_call_step, cell};
    bool ok = outputs && wb__unroll(&steps, wb__steps_first(x), lengths, o->reverse, &n_states,
                                    states, outputs);
    const int64_t n_steps = x->dims[1], end = o->reverse ? 0 : n_steps - 1;
    if (ok)
        results[0] = !o->last                 ? wb__stack_steps(n_steps, outputs)
                     : lengths && !o->reverse ? recurrence_last_of(n_steps, outputs, lengths)
                                              : outputs[end];
    wb__free(outputs);
    if (!ok || !results[0]) return -1;
    memcpy(results + 1, states, (size_t)n_states * sizeof *states);
    return o->return_state ? 1 + n_states : 1;
}

static int recurrence_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **results)
{
    const wb_Recurrence_options *o = l->options;
    wb_layer *cell = wb__with_weights(wb__layer_child(l, 0));
    if (!cell) return -1;
    if (!wb__is_cell(cell)) return recurrence_run_own(o, cell, n, inputs, results);
    const unsigned failures = wb__failures();
    const wb__over_steps how = {o->last, o->reverse, o->return_state};
    const int n_results = wb__call_sequence(cell, how, n, inputs, results);
    if (n_results < 0 && failures != wb__failures()) wb__failed_in("cell", "");
    return n_results;
}

static void recurrence_print(const wb_layer *l, wb__text *t)
{
    const wb_Recurrence_options *o = l->options;
    const char *before = ";";
    wb__text_add(t, "Recurrence(");
    wb__print_layer(wb__layer_child(l, 0), t);
    if (o->last) wb__text_add(t, "%s last=true", before), before = ",";
    if (o->reverse) wb__text_add(t, "%s reverse=true", before), before = ",";
    if (o->return_state) wb__text_add(t, "%s return_state=true", before);
    wb__text_add(t, ")");
}

static wb_layer *recurrence_assemble(const void *options, int n, const char *const *names,
                                     wb_layer *const *layers)
{
    (void)names;
    if (n == 1) return wb_Recurrence_with(layers[0], options);
    return wb__fail_null(WB_ERROR_ARGUMENT, "Recurrence: has one cell, got %d", n);
}

const wb__layer_type wb__recurrence_type = {
    .name = "Recurrence", WB__LAYER_ROWS(wb_Recurrence_options, recurrence_table),
    .call_many = recurrence_call, .print = recurrence_print, .assemble = recurrence_assemble,
    .one_row = true};

wb_layer *wb_Recurrence_with(wb_layer *cell, const wb_Recurrence_options *given)
{
    WB__EDGE;
    wb_Recurrence_options o;
    if (!wb__expect("Recurrence", cell, &wb__layer_class)) return NULL;
    if (!wb__read_options("Recurrence", wb_Recurrence_options, &o, given, NULL)) return NULL;
    cell = wb__layer_unnamed(cell, NULL);
    const wb_layer *base = cell;
    int child;
    wb__normed_child(cell, &base, &child);
    if (wb__is_recurrent(base))
        return wb__fail_null(WB_ERROR_ARGUMENT, "Recurrence: %s runs over sequences itself: give "
                             "the cell, or call the layer", base->type->name);
    if (base->type->call && !wb__is_cell(base))
        return wb__fail_null(WB_ERROR_ARGUMENT, "Recurrence: %s is no cell, which takes x and "
                             "states and gives its output and the new states", base->type->name);
    wb_layer *l = wb__layer_new(&wb__recurrence_type, &o, 1);
    return l && wb__layer_put(l, 0, "cell", cell) ? l : NULL;
}

/* ---- initial states -------------------------------------------------------------------------- */

/* Computes wb_initial_states inside the frame of its caller.  Returns 0 or an error code. */
static int recurrence_make_states(wb_layer *layer, int64_t batch, int n_states, wb_tensor **states)
{
    wb_layer *l = wb__layer_unnamed(layer, NULL);
    if (l->type == &wb__recurrence_type) l = wb__layer_child(l, 0);
    if (!(l = wb__with_weights(l))) return wb__error_or(WB_ERROR_MEMORY);
    if (!wb__is_cell(l) && !wb__is_recurrent(l))
        return wb__fail(WB_ERROR_ARGUMENT, "initial_states: %s has none that the library knows%s",
                        l->type->name, wb__own_struct(l->type)
                        ? ": called without states it begins with its own" : "");
    if (batch < 0)
        return wb__fail(WB_ERROR_ARGUMENT, "initial_states: the batch %lld is negative",
                        (long long)batch);
    wb__branch_used(&l->node);
    return wb__first_states(l, batch, n_states, states) ? 0 : wb__error_or(WB_ERROR_MEMORY);
}

int wb_initial_states(wb_layer *layer, int64_t batch, int n_states, wb_tensor **states)
{
    if (!wb__expect("initial_states", layer, &wb__layer_class))
        return wb__error_or(WB_ERROR_ARGUMENT);
    if (!states) return wb__fail(WB_ERROR_ARGUMENT, "initial_states: no place for the states");
    wb_tensor *made[WB__OUTPUTS] = {NULL};
    const wb__frame f = wb__frame_begin();
    const int status = recurrence_make_states(layer, batch, n_states, made);
    wb__frame_end_many(f, status ? 0 : n_states, (void *const *)made);
    if (!status) memcpy(states, made, (size_t)n_states * sizeof *made);
    return status;
}
