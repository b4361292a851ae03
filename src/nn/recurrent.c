/* RNN, LSTM and two GRUs, as cells that compute one step and as layers over whole sequences.  A
 * layer over sequences multiplies the inputs of all steps by weight_input in one product.
 * weight_hidden needs a product at each step.  A state that is not given is zero, and its product
 * with weight_hidden is skipped.  With .initial_state such a state is a parameter instead.
 *
 * A layer with .layers or .bidirectional consists of several passes over the sequences, one for
 * each layer and direction.  Each pass has children of its own. */
#include "nn/recurrent.h"

#include <stdio.h>

#define RECURRENT_OPTIONS(X)                                                                    \
    X(wb_Recurrent_options, in, INT, 1) X(wb_Recurrent_options, out, INT, 1)                    \
    X(wb_Recurrent_options, activation, FUNCTION, 1) X(wb_Recurrent_options, bias, BOOL, 1)     \
    X(wb_Recurrent_options, last, BOOL, 1) X(wb_Recurrent_options, init, INITIALISER, 1)        \
    X(wb_Recurrent_options, dtype, DTYPE, 1) X(wb_Recurrent_options, hidden_bias, BOOL, 1)      \
    X(wb_Recurrent_options, initial_state, BOOL, 1)                                             \
    X(wb_Recurrent_options, return_state, BOOL, 1) X(wb_Recurrent_options, layers, INT, 1)      \
    X(wb_Recurrent_options, bidirectional, BOOL, 1)
static const wb__option recurrent_table[] = {RECURRENT_OPTIONS(WB__OPTION_ROW)};

/* Indices of the children of a pass, relative to its first child.  With .hidden_bias, bias_hidden
 * has index MORE.  With .initial_state, the initial states are the last children of the pass. */
enum { RECURRENT_INPUT, RECURRENT_HIDDEN, RECURRENT_BIAS, MORE };
enum { RECURRENT_MOST_LAYERS = 1000 };
static const char *const initial_names[2] = {"initial_hidden", "initial_cell"};

/* A pass: one direction of one of the .layers of l.  `first` is the index of its first child. */
typedef struct {
    wb_layer *l;                        /* the layer */
    const wb_Recurrent_options *o;      /* its options */
    int first;
} recurrent_pass;

/* A kind of cell, with the numbers of its gates and states.  `step` computes one step and replaces
 * the states by the new states.  x [..., gates·out] is weight_input·input + bias.  A NULL state
 * counts as zero. */
typedef struct {
    int gates, states;
    bool (*step)(const recurrent_pass *p, wb_tensor *x, wb_tensor **states);
} recurrent_cell_kind;

/* Returns the number of children of a pass. */
static int children_of_pass(const recurrent_cell_kind *kind, const wb_Recurrent_options *o)
{
    return MORE + o->hidden_bias + (o->initial_state ? kind->states : 0);
}

/* Returns the number of passes: one for each layer and direction. */
static int recurrent_pass_count(const wb_Recurrent_options *o)
{
    return (int)o->layers * (o->bidirectional ? 2 : 1);
}

/* Returns pass `number` of l, in the order of the children. */
static recurrent_pass recurrent_pass_of(wb_layer *l, int number)
{
    return (recurrent_pass){l, l->options, number * children_of_pass(l->type->detail, l->options)};
}

static wb_tensor *recurrent_child(const recurrent_pass *p, int i) {
    return wb__layer_child(p->l, p->first + i);
}

/* Returns weight_hidden·h + bias_hidden.  If h is NULL, returns bias_hidden, or NULL without an
 * error if there is no bias_hidden. */
static wb_tensor *recurrent_hidden_product(const recurrent_pass *p, wb_tensor *h)
{
    bool biased = p->o->hidden_bias;
    wb_tensor *bias = biased ? recurrent_child(p, MORE) : WB_NONE;
    return h ? wb_linear(h, recurrent_child(p, RECURRENT_HIDDEN), bias) : biased ? bias : NULL;
}

/* Returns x + weight_hidden·h, or x if h is NULL.  RNN and LSTM, which have no bias_hidden, use
 * this function. */
static wb_tensor *recurrent_add_hidden(const recurrent_pass *p, wb_tensor *x, wb_tensor *h)
{
    return h ? wb_add(x, recurrent_hidden_product(p, h)) : x;
}

/* Returns the gates number `from` to `to` - 1 of z. */
static wb_tensor *recurrent_gates(const recurrent_pass *p, wb_tensor *z, int from, int to)
{
    return z ? wb_slice(z, -1, from * p->o->out, to * p->o->out) : NULL;
}

static wb_tensor *recurrent_gate(const recurrent_pass *p, wb_tensor *z,
                                 int i) { return recurrent_gates(p, z, i, i + 1); }

static bool recurrent_rnn_step(const recurrent_pass *p, wb_tensor *x, wb_tensor **s)
{
    wb_tensor *z = recurrent_add_hidden(p, x, s[0]);
    s[0] = z ? (p->o->activation ? p->o->activation : wb_tanh)(z) : NULL;
    return s[0] != NULL;
}

static bool recurrent_lstm_step(const recurrent_pass *p, wb_tensor *x, wb_tensor **s)
{
    wb_tensor *z = recurrent_add_hidden(p, x, s[0]);
    wb_tensor *i = wb_sigmoid(recurrent_gate(p, z, 0)), *g = wb_tanh(recurrent_gate(p, z, 2)),
              *o = wb_sigmoid(recurrent_gate(p, z, 3));
    wb_tensor *c = wb_mul(i, g);
    if (s[1]) c = wb_add(wb_mul(wb_sigmoid(recurrent_gate(p, z, 1)), s[1]), c);
    s[0] = wb_mul(o, wb_tanh(c));
    s[1] = c;
    return s[0] != NULL;
}

/* Returns the new state of a GRU, (1 - z) n + z h. */
static wb_tensor *recurrent_gru_state(wb_tensor *z, wb_tensor *n, wb_tensor *h)
{
    return h ? wb_add(n, wb_mul(z, wb_sub(h, n))) : wb_mul(n, wb_sub(wb_scalar(1), z));
}

static bool recurrent_gru_step(const recurrent_pass *p, wb_tensor *x, wb_tensor **s)
{
    wb_tensor *h = s[0], *hh = recurrent_hidden_product(p, h);
    if (h && !hh) return false;
    wb_tensor *z = recurrent_gate(p, x, 1), *n = recurrent_gate(p, x, 2);
    if (hh) {
        wb_tensor *r = wb_sigmoid(wb_add(recurrent_gate(p, x, 0), recurrent_gate(p, hh, 0)));
        z = wb_add(z, recurrent_gate(p, hh, 1));
        n = wb_add(n, wb_mul(r, recurrent_gate(p, hh, 2)));
    }
    s[0] = recurrent_gru_state(wb_sigmoid(z), wb_tanh(n), h);
    return s[0] != NULL;
}

/* Computes a step of a GRUv3, in which the last third of weight_hidden multiplies r h. */
static bool recurrent_gruv3_step(const recurrent_pass *p, wb_tensor *x, wb_tensor **s)
{
    const int64_t out = p->o->out;
    wb_tensor *h = s[0], *z = recurrent_gate(p, x, 1), *n = recurrent_gate(p, x, 2),
              *w = recurrent_child(p, RECURRENT_HIDDEN);
    if (h) {
        wb_tensor *both = wb_linear(h, wb_slice(w, 0, 0, 2 * out), WB_NONE);
        both = wb_sigmoid(wb_add(recurrent_gates(p, x, 0, 2), both));
        n = wb_add(n, wb_linear(wb_mul(recurrent_gate(p, both, 0), h),
                                wb_slice(w, 0, 2 * out, 3 * out), WB_NONE));
        z = recurrent_gate(p, both, 1);
    } else {
        z = wb_sigmoid(z);
    }
    s[0] = recurrent_gru_state(z, wb_tanh(n), h);
    return s[0] != NULL;
}

static const recurrent_cell_kind recurrent_rnn_kind = {1, 1, recurrent_rnn_step},
                                 recurrent_lstm_kind = {4, 2, recurrent_lstm_step},
                                 recurrent_gru_kind = {3, 1, recurrent_gru_step},
                                 gruv3_kind = {3, 1, recurrent_gruv3_step};

/* Sets NULL states to the initial states, if the layer has them.  An initial state has `ndim`
 * dimensions, and one row, which broadcasts over the batch. */
static bool recurrent_first_states(const recurrent_pass *p, int ndim, wb_tensor **states)
{
    const wb_Recurrent_options *o = p->o;
    const recurrent_cell_kind *kind = p->l->type->detail;
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < ndim; i++) dims[i] = i == ndim - 1 ? o->out : 1;
    const int first = MORE + o->hidden_bias;
    for (int i = 0; o->initial_state && i < kind->states; i++)
        if (!states[i] &&
            !(states[i] = wb_reshape_array(recurrent_child(p, first + i), ndim, dims)))
            return false;
    return true;
}

static wb_tensor *recurrent_input_product(const recurrent_pass *p, wb_tensor *x)
{
    wb_tensor *weight = recurrent_child(p, RECURRENT_INPUT);
    x = wb__layer_input(p->l, x, weight);
    return wb_linear(x, weight, recurrent_child(p, RECURRENT_BIAS));
}

/* The function wb__steps.step of a pass.  x is one time step of recurrent_input_product. */
static bool recurrent_pass_step(const wb__steps *steps, wb_tensor *x, int *n, wb_tensor **states,
                                wb_tensor **y)
{
    const recurrent_pass *p = steps->ctx;
    const recurrent_cell_kind *kind = p->l->type->detail;
    *n = kind->states;
    *y = kind->step(p, x, states) ? states[0] : NULL;
    return *y != NULL;
}

/* Returns the output of number `number` of the .layers.  states[direction] has the states of a
 * direction. */
static wb_tensor *recurrent_run_layer(wb_layer *l, wb__over_steps how, int number, wb_tensor *x,
                                      wb_tensor *lengths, wb_tensor *(*states)[2],
                                      wb_tensor **outputs)
{
    const wb_Recurrent_options *o = l->options;
    const int64_t steps = x->dims[1];
    const int directions = o->bidirectional ? 2 : 1;
    const bool last = how.last && number + 1 == o->layers;
    wb_tensor *y[2];
    if (!(x = wb__steps_first(x))) return NULL;
    for (int i = 0; i < directions; i++) {
        const recurrent_pass p = recurrent_pass_of(l, number * directions + i);
        const wb__steps all = {recurrent_pass_step, &p};
        int n = ((const recurrent_cell_kind *)l->type->detail)->states;
        if (!recurrent_first_states(&p, 2, states[i]) ||
            !wb__unroll(&all, recurrent_input_product(&p, x), lengths, how.reverse || i == 1, &n,
                        states[i], outputs))
            return NULL;
        y[i] = last ? states[i][0] : wb__stack_steps(steps, outputs);
    }
    return directions == 1 ? y[0] : y[0] && y[1] ? wb_concat_array(-1, 2, y) : NULL;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Checks the states of a call, converts them to the layer's dtype, and assigns them to passes. */
static bool recurrent_read_states(wb_layer *l, const wb_tensor *x, int n, wb_tensor *const *given,
                                  wb_tensor *(*states)[2])
{
    const wb_Recurrent_options *o = l->options;
    const int count = recurrent_pass_count(o), ndim = count > 1 ? 3 : 2;
    const int64_t dims[3] = {count, x->dims[0], o->out}, *want = dims + 3 - ndim;
    for (int i = 0; i < n; i++) {
        wb_tensor *s = given[i];
        if (s->ndim != ndim || memcmp(s->dims, want, (size_t)ndim * sizeof *want)) {
            char several[24] = "";
            if (count > 1) snprintf(several, sizeof several, "%d,", count);
            return !wb__fail(WB_ERROR_SHAPE, "%s: expects states [%s%lld,%lld], got %s",
                             l->type->name, several, (long long)x->dims[0], (long long)o->out,
                             wb_describe(s));
        }
        if (!(s = wb__layer_input(l, s, wb__layer_child(l, RECURRENT_HIDDEN)))) return false;
        for (int k = 0; k < count; k++) {
            states[k][i] = count > 1 ? wb_slice(s, 0, k, k + 1) : s;
            if (count > 1 && states[k][i])
                states[k][i] = wb_reshape_array(states[k][i], 2, dims + 1);
            if (!states[k][i]) return false;
        }
    }
    return true;
}

/* Returns state i of all passes: [N, out], or [passes, N, out] if there are several. */
static wb_tensor *joint_state(const wb_Recurrent_options *o, int i, wb_tensor *(*states)[2],
                              wb_tensor **room)
{
    const int count = recurrent_pass_count(o);
    if (count == 1) return states[0][i];
    for (int k = 0; k < count; k++) room[k] = states[k][i];
    return wb_stack_array(0, count, room);
}

/* Sets the results of a call.  `room` is memory for one tensor for each time step and each pass. */
static int recurrent_run_layers(wb_layer *l, wb__over_steps how, wb_tensor *x, wb_tensor *lengths,
                                wb_tensor *(*states)[2], wb_tensor **room, wb_tensor **results)
{
    const wb_Recurrent_options *o = l->options;
    const int n_states = ((const recurrent_cell_kind *)l->type->detail)->states;
    const int directions = o->bidirectional ? 2 : 1;
    for (int k = 0; k < o->layers; k++)
        if (!(x = recurrent_run_layer(l, how, k, x, lengths, states + k * directions, room)))
            return -1;
    results[0] = x;
    for (int i = 0; how.return_state && i < n_states; i++)
        if (!(results[i + 1] = joint_state(o, i, states, room))) return -1;
    return how.return_state ? 1 + n_states : 1;
}

int wb__call_sequence(wb_layer *l, wb__over_steps how, int n, wb_tensor *const *inputs,
                      wb_tensor **results)
{
    const wb_Recurrent_options *o = l->options;
    const int n_states = ((const recurrent_cell_kind *)l->type->detail)->states, given = n;
    wb_tensor *x = inputs[0], *lengths = NULL;
    if (x->ndim != 3 || x->dims[2] != o->in)
        return wb__fail(WB_ERROR_SHAPE, "%s: expects [N,T,%lld], got %s", l->type->name,
                        (long long)o->in, wb_describe(x)), -1;
    if (!x->dims[1])
        return wb__fail(WB_ERROR_SHAPE, "%s: no steps in %s", l->type->name, wb_describe(x)), -1;
    if (!wb__read_lengths(l->type->name, x, &n, inputs, &lengths)) return -1;
    if (n != 1 && n != 1 + n_states)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: takes x, or x and its %d states, and then integers "
                        "that are lengths; got %d inputs", l->type->name, n_states, given), -1;
    wb_tensor *(*states)[2] = wb__alloc_zero((size_t)recurrent_pass_count(o), sizeof *states);
    const size_t most = (size_t)WB__MAX(x->dims[1], recurrent_pass_count(o));
    wb_tensor **room = wb__alloc(most * sizeof *room);
    int n_results = -1;
    if (states && room && recurrent_read_states(l, x, n - 1, inputs + 1, states))
        n_results = recurrent_run_layers(l, how, x, lengths, states, room, results);
    wb__free(room);
    wb__free(states);
    return n_results;
}

static int sequence_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **results)
{
    const wb_Recurrent_options *o = l->options;
    return wb__call_sequence(l, (wb__over_steps){o->last, false, o->return_state}, n, inputs,
                             results);
}

bool wb__is_recurrent(const wb_layer *l) { return l->type->call_many == sequence_call; }

bool wb__first_states(wb_layer *l, int64_t batch, int n_states, wb_tensor **states)
{
    const wb_Recurrent_options *o = l->options;
    const recurrent_cell_kind *kind = l->type->detail;
    const int count = recurrent_pass_count(o), ndim = count > 1 ? 3 : 2;
    const int64_t dims[3] = {count, batch, o->out};
    if (n_states != kind->states)
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: has %d states, got %d", l->type->name,
                         kind->states, n_states);
    for (int i = 0; i < n_states; i++) {
        const wb_tensor *weight = wb__layer_child(l, RECURRENT_HIDDEN);
        wb_tensor *all[2 * RECURRENT_MOST_LAYERS];
        for (int k = 0; o->initial_state && k < count; k++) {
            const recurrent_pass p = recurrent_pass_of(l, k);
            all[k] = recurrent_child(&p, MORE + o->hidden_bias + i);
        }
        states[i] = !o->initial_state ? wb_full_array(0, (wb_dtype)weight->dtype, ndim,
                                                      dims + 3 - ndim)
                                      : wb_stack_array(0, count, all);
        if (o->initial_state && states[i] && count > 1) states[i] = wb_unsqueeze(states[i], 1);
        if (o->initial_state && states[i])
            states[i] = wb_expand_array(states[i], ndim, dims + 3 - ndim);
        if (!states[i]) return false;
    }
    return true;
}

static bool cell_checks(const wb_layer *l, const wb_tensor *x, int n, wb_tensor *const *states)
{
    const wb_Recurrent_options *o = l->options;
    const recurrent_cell_kind *kind = l->type->detail;
    if (n > kind->states)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: has %d states, got %d", l->type->name, kind->states,
                        n), false;
    if (wb_dim(x, -1) != o->in)
        return wb__fail(WB_ERROR_SHAPE, "%s: expects %lld features in the last dimension, got %s",
                        l->type->name, (long long)o->in, wb_describe(x)), false;
    for (int i = 0; i < n; i++)
        if (states[i] && wb_dim(states[i], -1) != o->out)
            return wb__fail(WB_ERROR_SHAPE, "%s: expects a state of %lld features, got %s",
                            l->type->name, (long long)o->out, wb_describe(states[i])), false;
    return true;
}

static bool recurrent_cell_step(wb_layer *l, wb_tensor *x, int n, wb_tensor **states)
{
    const recurrent_cell_kind *kind = l->type->detail;
    if (!cell_checks(l, x, n, states)) return false;
    for (int i = 0; i < n; i++)
        if (states[i] &&
            !(states[i] = wb__layer_input(l, states[i], wb__layer_child(l, RECURRENT_HIDDEN))))
            return false;
    const recurrent_pass p = recurrent_pass_of(l, 0);
    x = recurrent_input_product(&p, x);
    return x && recurrent_first_states(&p, x->ndim, states) && kind->step(&p, x, states);
}

static wb_tensor *recurrent_cell_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    wb_tensor *states[2] = {n > 1 ? inputs[1] : NULL, n > 2 ? inputs[2] : NULL};
    if (n > 3)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: takes x and its states, got %d inputs",
                             l->type->name, n);
    return recurrent_cell_step(l, inputs[0], n - 1, states) ? states[0] : NULL;
}

bool wb__is_cell(const wb_layer *l) { return l->type->call == recurrent_cell_call; }

/* Computes wb_cell_step in its caller's frame, and sets `next`.  Returns 0 or an error code. */
static int recurrent_step_once(wb_layer *cell, wb_tensor *x, int n_states, wb_tensor *const *states,
                               wb_tensor **next)
{
    if (!(cell = wb__with_weights(cell))) return wb__error_or(WB_ERROR_MEMORY);
    if (!wb__is_cell(cell))
        return wb__fail(WB_ERROR_ARGUMENT, "cell_step: not a cell");
    const recurrent_cell_kind *kind = cell->type->detail;
    if (n_states != kind->states || !states)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: has %d states, got %d", cell->type->name,
                        kind->states, n_states);
    if (!wb__operand(cell->type->name, x)) return wb_error_code();
    for (int i = 0; i < n_states; i++) {
        next[i] = wb_is_none(states[i]) ? NULL : states[i];
        if (next[i] && !wb__operand(cell->type->name, next[i])) return wb_error_code();
    }
    wb__branch_used(&cell->node);
    return recurrent_cell_step(cell, x, n_states, next) ? 0 : wb_error_code();
}

int wb_cell_step(wb_layer *cell, wb_tensor *x, int n_states, wb_tensor **states)
{
    WB__EDGE;
    if (!wb__expect("cell_step", cell, &wb__layer_class) || WB__NULL(x))
        return wb__error_or(WB_ERROR_ARGUMENT);
    wb_tensor *next[2] = {NULL, NULL};
    const wb__frame f = wb__frame_begin();
    const int status = recurrent_step_once(cell, x, n_states, states, next);
    wb__frame_end_many(f, status ? 0 : n_states, (void *const *)next);
    for (int i = 0; !status && i < n_states; i++) states[i] = next[i];
    return status;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static void recurrent_print(const wb_layer *l, wb__text *t)
{
    const wb_Recurrent_options *o = l->options;
    wb__text_add(t, "%s(%lld => %lld", l->type->name, (long long)o->in, (long long)o->out);
    if (l->type->detail == &recurrent_rnn_kind) {
        if (o->activation) wb__print_activation(o->activation, t);
        else wb__text_add(t, ", tanh");
    }
    const char *before = ";";
    if (!o->bias) wb__text_add(t, "%s bias=false", before), before = ",";
    if (o->hidden_bias) wb__text_add(t, "%s hidden_bias=true", before), before = ",";
    if (o->initial_state) wb__text_add(t, "%s initial_state=true", before), before = ",";
    if (o->return_state) wb__text_add(t, "%s return_state=true", before), before = ",";
    if (o->layers > 1)
        wb__text_add(t, "%s layers=%lld", before, (long long)o->layers), before = ",";
    if (o->bidirectional) wb__text_add(t, "%s bidirectional=true", before);
    wb__text_add(t, ")");
}

static bool recurrent_check_options(const wb__layer_type *type, wb_Recurrent_options *o)
{
    const recurrent_cell_kind *kind = type->detail;
    const char *name = type->name;
    if (o->in < 1 || o->out < 1)
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: sizes are positive, got %lld => %lld", name,
                         (long long)o->in, (long long)o->out);
    if (o->layers < 1 || o->layers > RECURRENT_MOST_LAYERS)
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: .layers is %lld; it is from 1 to %d", name,
                         (long long)o->layers, RECURRENT_MOST_LAYERS);
    if (o->activation && kind != &recurrent_rnn_kind)
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: its activations are fixed; only an RNN has "
                         ".activation", name);
    if (o->hidden_bias && (kind != &recurrent_gru_kind || !o->bias))
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: only a GRU with a bias has .hidden_bias", name);
    const char *of_sequences = o->last                       ? ".last"
                               : o->return_state             ? ".return_state"
                               : o->layers > 1               ? ".layers"
                               : o->bidirectional            ? ".bidirectional"
                                                             : NULL;
    if (of_sequences && type->call)
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: a cell has one step; it has no %s", name,
                         of_sequences);
    return wb__layer_dtype(name, &o->dtype);
}

/* Sets child i of a pass to a new parameter with the name `name` + `suffix`.  The variable itself
 * is named `name`, a constant string.  If this fails, frees the layer and returns false. */
static bool recurrent_put_child(const recurrent_pass *p, int i, const char *name,
                                const char *suffix, bool has, int ndim, const int64_t *dims)
{
    char full[48];
    const bool is_weight = ndim == 2;
    wb_initializer init = !is_weight ? wb_init_zeros : p->o->init ? p->o->init : wb_glorot_uniform;
    snprintf(full, sizeof full, "%s%s", name, suffix);
    wb_tensor *x = has ? wb__parameter(p->l->type->name, name, init, p->o->dtype, ndim, dims)
                       : WB_NONE;
    if (x && wb__branch_put_copy(&p->l->node, p->first + i, full, x)) return true;
    wb_object_free(p->l);
    return false;
}

/* Makes the children of a pass, whose inputs have `in` features. */
static bool recurrent_put_pass(const recurrent_pass *p, const char *suffix, int64_t in)
{
    const wb_Recurrent_options *o = p->o;
    const recurrent_cell_kind *kind = p->l->type->detail;
    const int64_t rows = kind->gates * o->out;
    if (!recurrent_put_child(p, RECURRENT_INPUT, "weight_input", suffix, true, 2,
                             (int64_t[]){rows, in}) ||
        !recurrent_put_child(p, RECURRENT_HIDDEN, "weight_hidden", suffix, true, 2,
                             (int64_t[]){rows, o->out}) ||
        !recurrent_put_child(p, RECURRENT_BIAS, "bias", suffix, o->bias, 1, &rows) ||
        (o->hidden_bias && !recurrent_put_child(p, MORE, "bias_hidden", suffix, true, 1, &rows)))
        return false;
    const int first = MORE + o->hidden_bias;
    for (int i = 0; o->initial_state && i < kind->states; i++)
        if (!recurrent_put_child(p, first + i, initial_names[i], suffix, true, 1, &o->out))
            return false;
    return true;
}

static wb_layer *recurrent_make_kind(const wb__layer_type *type, const wb_Recurrent_options *given)
{
    wb_Recurrent_options o;
    if (!wb__read_options(type->name, wb_Recurrent_options, &o, given, NULL)) return NULL;
    if (!recurrent_check_options(type, &o)) return NULL;
    const int directions = o.bidirectional ? 2 : 1;
    wb_layer *l = wb__layer_new(type, &o,
                                recurrent_pass_count(&o) * children_of_pass(type->detail, &o));
    if (!l) return NULL;
    l->node.owns_names = true;
    for (int k = 0; k < recurrent_pass_count(&o); k++) {
        const int number = k / directions;
        const recurrent_pass p = recurrent_pass_of(l, k);
        char suffix[24] = "";
        if (number) snprintf(suffix, sizeof suffix, "_l%d", number);
        if (k % directions) strcat(suffix, "_reverse");
        if (!recurrent_put_pass(&p, suffix, number ? directions * o.out : o.in)) return NULL;
    }
    return l;
}

/* Defines a kind of layer or cell. */
#define RECURRENT_LAYER(id, Name, by, calls, of, names)                                         \
    WB__PLAIN_LAYER(id, #Name, wb_Recurrent_options, recurrent_table, wb_##Name##_with,         \
                    .by = calls, .print = recurrent_print, .detail = &of, .torch = names);      \
    wb_layer *wb_##Name##_with(const wb_Recurrent_options *o)                                   \
    {                                                                                           \
        return recurrent_make_kind(&wb__##id##_type, o);                                        \
    }

/* The columns of RECURRENT_KINDS: identifier, name, call or call_many, the function,
 * recurrent_cell_kind, suffix of PyTorch's names, wb__torch_child.unused.  Without .hidden_bias,
 * `bias` is PyTorch's bias_ih + bias_hh.  The last third of a GRU's bias_hh cannot be added to
 * `bias`, because the reset gate r multiplies it. */
#define RECURRENT_KINDS(X)                                                                      \
    X(rnn, RNN, call_many, sequence_call, recurrent_rnn_kind, "_l0", 0)                         \
    X(rnn_cell, RNNCell, call, recurrent_cell_call, recurrent_rnn_kind, NULL, 0)                \
    X(lstm, LSTM, call_many, sequence_call, recurrent_lstm_kind, "_l0", 0)                      \
    X(lstm_cell, LSTMCell, call, recurrent_cell_call, recurrent_lstm_kind, NULL, 0)             \
    X(gru, GRU, call_many, sequence_call, recurrent_gru_kind, "_l0", 3)                         \
    X(gru_cell, GRUCell, call, recurrent_cell_call, recurrent_gru_kind, NULL, 3)

#define RECURRENT_KIND(id, Name, by, calls, of, of_first, unused)                               \
    static const wb__torch_child id##_torch_rows[] = {                                          \
        {"weight_input", "weight_ih", NULL, 0},                                                 \
        {"weight_hidden", "weight_hh", NULL, 0},                                                \
        {"bias", "bias_ih", "bias_hh", unused},                                                 \
        {"bias_hidden", "bias_hh", NULL, 0}};                                                   \
    static const wb__torch_kind id##_torch = {                                                  \
        WB__TORCH_CHILDREN(id##_torch_rows), .suffix = of_first, .inner_activation = true};     \
    RECURRENT_LAYER(id, Name, by, calls, of, &id##_torch)
RECURRENT_KINDS(RECURRENT_KIND)

/* PyTorch has no such layer. */
RECURRENT_LAYER(gruv3, GRUv3, call_many, sequence_call, gruv3_kind, NULL)
RECURRENT_LAYER(gruv3_cell, GRUv3Cell, call, recurrent_cell_call, gruv3_kind, NULL)
