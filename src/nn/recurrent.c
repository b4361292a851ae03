/* RNN, LSTM and GRU, as cells that compute one step and as layers over whole sequences. A layer
 * over sequences multiplies the inputs of all steps by weight_input in one product. weight_hidden
 * needs a product at each step. A state that is not given is zero, and its product with
 * weight_hidden is skipped. With .initial_state such a state is a parameter instead. */
#include "nn/layer.h"

#define OPTIONS(X)                                                                              \
    X(wb_Recurrent_options, in, INT, 1) X(wb_Recurrent_options, out, INT, 1)                    \
    X(wb_Recurrent_options, activation, FUNCTION, 1) X(wb_Recurrent_options, no_bias, BOOL, 1)  \
    X(wb_Recurrent_options, last, BOOL, 1) X(wb_Recurrent_options, init, INITIALISER, 1)        \
    X(wb_Recurrent_options, dtype, DTYPE, 1) X(wb_Recurrent_options, hidden_bias, BOOL, 1)      \
    X(wb_Recurrent_options, initial_state, BOOL, 1)                                             \
    X(wb_Recurrent_options, return_state, BOOL, 1)
static const wb__option option_table[] = {OPTIONS(WB__OPTION_ROW)};

/* Indices of the children. With .hidden_bias, bias_hidden is at index MORE. With .initial_state,
 * the initial states are the last children. */
enum { INPUT, HIDDEN, BIAS, MORE };
static const char *const initial_names[2] = {"initial_hidden", "initial_cell"};

/* A kind of cell, with the numbers of its gates and states. `step` computes one step and replaces
 * the states by the new states. x [..., gates·out] is weight_input·input + bias. A NULL state
 * counts as zero. */
typedef struct {
    int gates, states;
    bool (*step)(const wb_layer *l, wb_tensor *x, wb_tensor **states);
} cell_kind;

/* Returns weight_hidden·h + bias_hidden. If h is NULL, returns bias_hidden, or NULL without an
 * error if there is no bias_hidden. */
static wb_tensor *hidden(const wb_layer *l, wb_tensor *h)
{
    bool biased = ((const wb_Recurrent_options *)l->options)->hidden_bias;
    wb_tensor *bias = biased ? wb__layer_child(l, MORE) : WB_NONE;
    return h ? wb_linear(h, wb__layer_child(l, HIDDEN), bias) : biased ? bias : NULL;
}

/* Returns x + weight_hidden·h, or x if h is NULL. RNN and LSTM, which have no bias_hidden, use this
 * function. */
static wb_tensor *gates_of(const wb_layer *l, wb_tensor *x, wb_tensor *h)
{
    return h ? wb_add(x, hidden(l, h)) : x;
}

static wb_tensor *gate(const wb_layer *l, wb_tensor *z, int i)
{
    int64_t out = ((const wb_Recurrent_options *)l->options)->out;
    return z ? wb_slice(z, -1, i * out, (i + 1) * out) : NULL;
}

static bool rnn_step(const wb_layer *l, wb_tensor *x, wb_tensor **s)
{
    const wb_Recurrent_options *o = l->options;
    wb_tensor *z = gates_of(l, x, s[0]);
    s[0] = z ? (o->activation ? o->activation : wb_tanh)(z) : NULL;
    return s[0] != NULL;
}

static bool lstm_step(const wb_layer *l, wb_tensor *x, wb_tensor **s)
{
    wb_tensor *z = gates_of(l, x, s[0]);
    wb_tensor *i = wb_sigmoid(gate(l, z, 0)), *g = wb_tanh(gate(l, z, 2)),
              *o = wb_sigmoid(gate(l, z, 3));
    wb_tensor *c = wb_mul(i, g);
    if (s[1]) c = wb_add(wb_mul(wb_sigmoid(gate(l, z, 1)), s[1]), c);
    s[0] = wb_mul(o, wb_tanh(c));
    s[1] = c;
    return s[0] != NULL;
}

static bool gru_step(const wb_layer *l, wb_tensor *x, wb_tensor **s)
{
    wb_tensor *h = s[0], *hh = hidden(l, h);
    if (h && !hh) return false;
    wb_tensor *z = gate(l, x, 1), *n = gate(l, x, 2);
    if (hh) {
        wb_tensor *r = wb_sigmoid(wb_add(gate(l, x, 0), gate(l, hh, 0)));
        z = wb_add(z, gate(l, hh, 1));
        n = wb_add(n, wb_mul(r, gate(l, hh, 2)));
    }
    z = wb_sigmoid(z);
    n = wb_tanh(n);
    s[0] = h ? wb_add(n, wb_mul(z, wb_sub(h, n))) : wb_mul(n, wb_sub(wb_scalar(1), z));
    return s[0] != NULL;
}

static const cell_kind rnn_kind = {1, 1, rnn_step}, lstm_kind = {4, 2, lstm_step},
                       gru_kind = {3, 1, gru_step};

/* Sets NULL states to the initial states, if the layer has them. An initial state has one row,
 * which broadcasts over the batch. */
static bool first_states(const wb_layer *l, const wb_tensor *x, wb_tensor **states)
{
    const wb_Recurrent_options *o = l->options;
    const cell_kind *kind = l->type->detail;
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) dims[i] = i == x->ndim - 1 ? o->out : 1;
    const int first = MORE + o->hidden_bias;
    for (int i = 0; o->initial_state && i < kind->states; i++)
        if (!states[i] &&
            !(states[i] = wb_reshape_array(wb__layer_child(l, first + i), x->ndim, dims)))
            return false;
    return true;
}

/* ---- sequences ------------------------------------------------------------------------------- */

static wb_tensor *input_product(const wb_layer *l, wb_tensor *x)
{
    wb_tensor *weight = wb__layer_child(l, INPUT);
    x = wb__layer_input(l, x, weight);
    return wb_linear(x, weight, wb__layer_child(l, BIAS));
}

/* Computes all steps, and replaces the states by the last ones. */
static wb_tensor *unroll(wb_layer *l, wb_tensor *x, wb_tensor **states, wb_tensor **outputs)
{
    const wb_Recurrent_options *o = l->options;
    const cell_kind *kind = l->type->detail;
    int64_t steps = x->dims[1], wide[2] = {x->dims[0], kind->gates * o->out};
    wb_tensor *all = input_product(l, x);
    for (int64_t t = 0; t < steps; t++) {
        wb_tensor *now = wb_slice(all, 1, t, t + 1);
        now = now ? wb_reshape_array(now, 2, wide) : NULL;
        if (!t && now && !first_states(l, now, states)) return NULL;
        if (!now || !kind->step(l, now, states)) return NULL;
        outputs[t] = states[0];
    }
    return o->last ? states[0] : wb_stack_array((int)steps, outputs, 1);
}

/* Checks the states of a call, [N, out], and converts them to the layer's dtype. */
static bool read_states(wb_layer *l, const wb_tensor *x, int n, wb_tensor **states)
{
    const wb_Recurrent_options *o = l->options;
    for (int i = 0; i < n; i++) {
        if (states[i]->ndim != 2 || states[i]->dims[0] != x->dims[0] ||
            states[i]->dims[1] != o->out)
            return !wb__fail(WB_ERROR_SHAPE, "%s: expects states [%lld,%lld], got %s",
                             l->type->name, (long long)x->dims[0], (long long)o->out,
                             wb_describe(states[i]));
        if (!(states[i] = wb__layer_input(l, states[i], wb__layer_child(l, HIDDEN)))) return false;
    }
    return true;
}

static int sequence_call(wb_layer *l, int n, wb_tensor *const *inputs, wb_tensor **results)
{
    const wb_Recurrent_options *o = l->options;
    const int n_states = ((const cell_kind *)l->type->detail)->states;
    wb_tensor *x = inputs[0], *states[2] = {n > 1 ? inputs[1] : NULL, n > 2 ? inputs[2] : NULL};
    if (n != 1 && n != 1 + n_states)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: takes x, or x and its %d states; got %d inputs",
                        l->type->name, n_states, n), -1;
    if (x->ndim != 3 || x->dims[2] != o->in)
        return wb__fail(WB_ERROR_SHAPE, "%s: expects [N,T,%lld], got %s", l->type->name,
                        (long long)o->in, wb_describe(x)), -1;
    if (!x->dims[1])
        return wb__fail(WB_ERROR_SHAPE, "%s: no steps in %s", l->type->name, wb_describe(x)), -1;
    if (!read_states(l, x, n - 1, states)) return -1;
    wb_tensor **outputs = wb__alloc((size_t)x->dims[1] * sizeof *outputs);
    if (!outputs) return -1;
    results[0] = unroll(l, x, states, outputs);
    wb__free(outputs);
    for (int i = 0; o->return_state && i < n_states; i++) results[i + 1] = states[i];
    return !results[0] ? -1 : o->return_state ? 1 + n_states : 1;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static bool cell_checks(const wb_layer *l, const wb_tensor *x, int n, wb_tensor *const *states)
{
    const wb_Recurrent_options *o = l->options;
    const cell_kind *kind = l->type->detail;
    if (n > kind->states)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: has %d states, got %d", l->type->name, kind->states,
                        n),
               false;
    if (wb_dim(x, -1) != o->in)
        return wb__fail(WB_ERROR_SHAPE, "%s: expects %lld features in the last dimension, got %s",
                        l->type->name, (long long)o->in, wb_describe(x)),
               false;
    for (int i = 0; i < n; i++)
        if (states[i] && wb_dim(states[i], -1) != o->out)
            return wb__fail(WB_ERROR_SHAPE, "%s: expects a state of %lld features, got %s",
                            l->type->name, (long long)o->out, wb_describe(states[i])),
                   false;
    return true;
}

static bool cell_step(wb_layer *l, wb_tensor *x, int n, wb_tensor **states)
{
    const cell_kind *kind = l->type->detail;
    if (!cell_checks(l, x, n, states)) return false;
    for (int i = 0; i < n; i++)
        if (states[i] && !(states[i] = wb__layer_input(l, states[i], wb__layer_child(l, HIDDEN))))
            return false;
    x = input_product(l, x);
    return x && first_states(l, x, states) && kind->step(l, x, states);
}

static wb_tensor *cell_call(wb_layer *l, int n, wb_tensor *const *inputs)
{
    wb_tensor *states[2] = {n > 1 ? inputs[1] : NULL, n > 2 ? inputs[2] : NULL};
    if (n > 3)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: takes x and its states, got %d inputs",
                             l->type->name, n);
    return cell_step(l, inputs[0], n - 1, states) ? states[0] : NULL;
}

int wb_cell_step(wb_layer *cell, wb_tensor *x, int n_states, wb_tensor **states)
{
    if (WB__NULL(cell) || WB__NULL(x)) return wb__error_or(WB_ERROR_ARGUMENT);
    if (!wb__is(cell, &wb__layer_class) || cell->type->call != cell_call)
        return wb__fail(WB_ERROR_ARGUMENT, "cell_step: not a cell");
    const cell_kind *kind = cell->type->detail;
    if (n_states != kind->states || !states)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: has %d states, got %d", cell->type->name,
                        kind->states, n_states);
    if (!wb__operand(cell->type->name, x)) return wb_error_code();
    wb_tensor *next[2] = {NULL, NULL};
    for (int i = 0; i < n_states; i++) {
        next[i] = wb_is_none(states[i]) ? NULL : states[i];
        if (next[i] && !wb__operand(cell->type->name, next[i])) return wb_error_code();
    }
    wb__branch_used(&cell->node);
    const wb__frame f = wb__frame_begin();
    const bool done = cell_step(cell, x, n_states, next);
    wb__frame_end_many(f, done ? n_states : 0, (void *const *)next);
    if (!done) return wb_error_code();
    for (int i = 0; i < n_states; i++) states[i] = next[i];
    return 0;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static void print(const wb_layer *l, wb__text *t)
{
    const wb_Recurrent_options *o = l->options;
    wb__text_add(t, "%s(%lld => %lld", l->type->name, (long long)o->in, (long long)o->out);
    if (l->type->detail == &rnn_kind) {
        if (o->activation) wb__print_activation(o->activation, t);
        else wb__text_add(t, ", tanh");
    }
    const char *before = ";";
    if (o->no_bias) wb__text_add(t, "%s bias=false", before), before = ",";
    if (o->hidden_bias) wb__text_add(t, "%s hidden_bias=true", before), before = ",";
    if (o->initial_state) wb__text_add(t, "%s initial_state=true", before), before = ",";
    if (o->return_state) wb__text_add(t, "%s return_state=true", before);
    wb__text_add(t, ")");
}

static wb_layer *make_kind(const wb__layer_type *type, const wb_Recurrent_options *given)
{
    const cell_kind *kind = type->detail;
    wb_Recurrent_options o;
    if (!wb__read_options(type->name, &o, sizeof o, given, "", NULL)) return NULL;
    if (o.in < 1 || o.out < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: sizes are positive, got %lld => %lld",
                             type->name, (long long)o.in, (long long)o.out);
    if (o.activation && kind != &rnn_kind)
        return wb__fail_null(WB_ERROR_ARGUMENT,
                             "%s: its activations are fixed; only an RNN has .activation",
                             type->name);
    if (o.hidden_bias && (kind != &gru_kind || o.no_bias))
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: only a GRU with a bias has .hidden_bias",
                             type->name);
    if ((o.last || o.return_state) && strstr(type->name, "Cell"))
        return wb__fail_null(WB_ERROR_ARGUMENT, "%s: a cell has one step; it has no %s", type->name,
                             o.last ? ".last" : ".return_state");
    if (!wb__layer_dtype(type->name, &o.dtype)) return NULL;
    wb_initialiser init = o.init ? o.init : wb_glorot_uniform;
    int64_t rows = kind->gates * o.out;
    const int first = MORE + o.hidden_bias;
    wb_layer *l = wb__layer_new(type, &o, first + (o.initial_state ? kind->states : 0));
    if (!wb__layer_put_parameter(l, INPUT, "weight_input", true, init, o.dtype, 2,
                                 (int64_t[]){rows, o.in}) ||
        !wb__layer_put_parameter(l, HIDDEN, "weight_hidden", true, init, o.dtype, 2,
                                 (int64_t[]){rows, o.out}) ||
        !wb__layer_put_parameter(l, BIAS, "bias", !o.no_bias, wb_init_zeros, o.dtype, 1, &rows) ||
        (o.hidden_bias && !wb__layer_put_parameter(l, MORE, "bias_hidden", true, wb_init_zeros,
                                                   o.dtype, 1, &rows)))
        return NULL;
    for (int i = 0; o.initial_state && i < kind->states; i++)
        if (!wb__layer_put_parameter(l, first + i, initial_names[i], true, wb_init_zeros, o.dtype,
                                     1, &o.out))
            return NULL;
    return l;
}

/* The columns of KINDS: identifier, name, call or call_many, the function, cell_kind, suffix of
 * PyTorch's names, wb__torch_child.unused. Without .hidden_bias, `bias` is PyTorch's bias_ih +
 * bias_hh. The last third of a GRU's bias_hh cannot be added to `bias`, because the reset gate r
 * multiplies it. */
#define KINDS(X)                                                                                \
    X(rnn, RNN, call_many, sequence_call, rnn_kind, "_l0", 0)                                   \
    X(rnn_cell, RNNCell, call, cell_call, rnn_kind, "", 0)                                      \
    X(lstm, LSTM, call_many, sequence_call, lstm_kind, "_l0", 0)                                \
    X(lstm_cell, LSTMCell, call, cell_call, lstm_kind, "", 0)                                   \
    X(gru, GRU, call_many, sequence_call, gru_kind, "_l0", 3)                                   \
    X(gru_cell, GRUCell, call, cell_call, gru_kind, "", 3)

#define KIND(id, Name, by, calls, of, suffix, unused)                                           \
    static const wb__torch_child id##_torch_rows[] = {                                          \
        {"weight_input", "weight_ih" suffix, NULL, 0},                                          \
        {"weight_hidden", "weight_hh" suffix, NULL, 0},                                         \
        {"bias", "bias_ih" suffix, "bias_hh" suffix, unused},                                   \
        {"bias_hidden", "bias_hh" suffix, NULL, 0}};                                            \
    static const wb__torch_kind id##_torch = {                                                  \
        WB__TORCH_CHILDREN(id##_torch_rows), .inner_activation = true};                         \
    WB__PLAIN_LAYER(id, #Name, wb_Recurrent_options, option_table, wb_##Name##_with,            \
                    .by = calls, .print = print, .detail = &of, .torch = &id##_torch);          \
    wb_layer *wb_##Name##_with(const wb_Recurrent_options *o)                                   \
    {                                                                                           \
        return make_kind(&wb__##id##_type, o);                                                  \
    }
KINDS(KIND)
