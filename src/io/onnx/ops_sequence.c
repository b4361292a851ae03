/* RNN, LSTM and GRU of ONNX, over the loop of Weber's recurrent layers (nn/recurrent.h).
 *
 * With T steps, N sequences, D directions, I inputs, H hidden units and G gates:
 *   X [T, N, I]   W [D, G H, I]   R [D, G H, H]   B [D, 2 G H]   states [D, N, H]   Y [T, D, N, H]
 * With layout 1 the sequences come first: X [N, T, I], states [N, D, H], Y [N, T, D, H].  One
 * product multiplies the inputs of all steps by W. */
#include "io/onnx/ops_common.h"
#include "nn/recurrent.h"

#include <string.h>

/* An activation with its numbers, alpha and beta. */
typedef struct {
    wb_tensor *(*f)(wb_tensor *x, double a, double b);
    double a, b;
} onnx_rnn_activation;

/* One direction of the layer.  `hidden_bias` is added to R·h, in a GRU whose reset gate multiplies
 * that sum; other biases are in W·x already. */
typedef struct {
    int64_t hidden;
    wb_tensor *recurrent;               /* [G H, H] */
    wb_tensor *hidden_bias, *peepholes; /* [G H], [3 H]; or NULL */
    onnx_rnn_activation f[3];
    bool resets_product;                /* linear_before_reset */
} onnx_rnn_pass;

/* A kind of cell.  `step` replaces the states by the new ones; x is W·x + bias, [N, G H]. */
typedef struct {
    int gates, states, functions;
    const char *by_default[3];          /* its functions */
    bool (*step)(const onnx_rnn_pass *p, wb_tensor *x, wb_tensor **states);
} onnx_rnn_cell_kind;

/* ---- activations ----------------------------------------------------------------------------- */

#define ONNX_RNN_PLAIN(name)                                                                    \
    static wb_tensor *of_##name(wb_tensor *x, double a, double b)                               \
    {                                                                                           \
        (void)a, (void)b;                                                                       \
        return wb_##name(x);                                                                    \
    }
ONNX_RNN_PLAIN(tanh)
ONNX_RNN_PLAIN(sigmoid)
ONNX_RNN_PLAIN(relu)
ONNX_RNN_PLAIN(softsign)
ONNX_RNN_PLAIN(softplus)

static wb_tensor *onnx_rnn_affine(wb_tensor *x, double a, double b)
{
    return wb_add(wb_mul(x, wb__number_of(a)), wb__number_of(b));
}
static wb_tensor *hard_sigmoid(wb_tensor *x, double a, double b)
{
    return wb_clamp(onnx_rnn_affine(x, a, b), wb__number_of(0), wb__number_of(1));
}
static wb_tensor *scaled_tanh(wb_tensor *x, double a, double b)
{
    return wb_mul(wb_tanh(wb_mul(x, wb__number_of(b))), wb__number_of(a));
}
static wb_tensor *leaky_relu(wb_tensor *x, double a, double b)
{
    return (void)b, wb_leakyrelu_of(x, a);
}
static wb_tensor *thresholded_relu(wb_tensor *x, double a, double b)
{
    return (void)b, wb_trelu_of(x, a);
}
static wb_tensor *onnx_rnn_elu(wb_tensor *x, double a, double b) { return (void)b,
                                                                   wb_elu_of(x, a); }

/* A row of the table of activations.  `numbers`: how many of alpha and beta the activation has;
 * their defaults are in `by_default`. */
static const struct {
    const char *name;
    int numbers;
    onnx_rnn_activation by_default;
} onnx_rnn_activations[] = {{"Affine", 2, {onnx_rnn_affine, 1, 0}},
                            {"Elu", 1, {onnx_rnn_elu, 1, 0}},
                            {"HardSigmoid", 2, {hard_sigmoid, 0.2, 0.5}},
                            {"LeakyRelu", 1, {leaky_relu, 0.01, 0}},
                            {"Relu", 0, {of_relu, 0, 0}},
                            {"ScaledTanh", 2, {scaled_tanh, 1, 1}},
                            {"Sigmoid", 0, {of_sigmoid, 0, 0}},
                            {"Softplus", 0, {of_softplus, 0, 0}},
                            {"Softsign", 0, {of_softsign, 0, 0}},
                            {"Tanh", 0, {of_tanh, 0, 0}},
                            {"ThresholdedRelu", 1, {thresholded_relu, 1, 0}}};

static wb_tensor *onnx_rnn_activated(const onnx_rnn_activation *f, wb_tensor *x) {
    return f->f(x, f->a, f->b);
}

static wb_tensor *onnx_rnn_gate(const onnx_rnn_pass *p, wb_tensor *z, int from, int to)
{
    return z ? wb_slice(z, -1, from * p->hidden, to * p->hidden) : NULL;
}

static wb_tensor *onnx_rnn_hidden_product(wb_tensor *h, wb_tensor *weight, wb_tensor *bias)
{
    return wb_linear(h, weight, bias ? bias : WB_NONE);
}

static bool onnx_rnn_step(const onnx_rnn_pass *p, wb_tensor *x, wb_tensor **s)
{
    s[0] = onnx_rnn_activated(&p->f[0],
                              wb_add(x, onnx_rnn_hidden_product(s[0], p->recurrent, NULL)));
    return s[0];
}

/* Returns gate i of z, plus the cell times its peephole. */
static wb_tensor *onnx_rnn_add_peephole(const onnx_rnn_pass *p, wb_tensor *z, int i,
                                        wb_tensor *cell)
{
    wb_tensor *y = onnx_rnn_gate(p, z, i, i + 1);
    return p->peepholes ? wb_add(y, wb_mul(cell, onnx_rnn_gate(p, p->peepholes, i, i + 1))) : y;
}

/* Computes a step of an LSTM.  Gates are in the order input, output, forget, cell. */
static bool onnx_rnn_lstm_step(const onnx_rnn_pass *p, wb_tensor *x, wb_tensor **s)
{
    wb_tensor *z = wb_add(x, onnx_rnn_hidden_product(s[0], p->recurrent, NULL));
    wb_tensor *in = onnx_rnn_activated(&p->f[0], onnx_rnn_add_peephole(p, z, 0, s[1]));
    wb_tensor *forget = onnx_rnn_activated(&p->f[0], onnx_rnn_add_peephole(p, z, 2, s[1]));
    wb_tensor *new = onnx_rnn_activated(&p->f[1], onnx_rnn_gate(p, z, 3, 4));
    wb_tensor *c = wb_add(wb_mul(forget, s[1]), wb_mul(in, new));
    wb_tensor *out = onnx_rnn_activated(&p->f[0], onnx_rnn_add_peephole(p, z, 1, c));
    s[0] = wb_mul(out, onnx_rnn_activated(&p->f[2], c));
    s[1] = c;
    return s[0];
}

/* Computes a step of a GRU.  Gates are in the order update, reset, hidden. */
static bool onnx_rnn_gru_step(const onnx_rnn_pass *p, wb_tensor *x, wb_tensor **s)
{
    wb_tensor *h = s[0], *w = p->recurrent, *n = onnx_rnn_gate(p, x, 2, 3), *product = NULL;
    if (p->resets_product) {
        product = onnx_rnn_hidden_product(h, w, p->hidden_bias);
    } else {
        w = w ? wb_slice(w, 0, 0, 2 * p->hidden) : NULL;
        product = onnx_rnn_hidden_product(h, w, NULL);
    }
    wb_tensor *both = wb_add(onnx_rnn_gate(p, x, 0, 2), onnx_rnn_gate(p, product, 0, 2));
    both = onnx_rnn_activated(&p->f[0], both);
    wb_tensor *z = onnx_rnn_gate(p, both, 0, 1), *r = onnx_rnn_gate(p, both, 1, 2);
    if (p->resets_product) {
        n = wb_add(n, wb_mul(r, onnx_rnn_gate(p, product, 2, 3)));
    } else {
        w = wb_slice(p->recurrent, 0, 2 * p->hidden, 3 * p->hidden);
        n = wb_add(n, onnx_rnn_hidden_product(wb_mul(r, h), w, NULL));
    }
    n = onnx_rnn_activated(&p->f[1], n);
    s[0] = wb_add(n, wb_mul(z, wb_sub(h, n)));
    return s[0];
}

static const onnx_rnn_cell_kind onnx_rnn_kind = {1, 1, 1, {"Tanh"}, onnx_rnn_step};
static const onnx_rnn_cell_kind onnx_rnn_lstm_kind = {4, 2, 3, {"Sigmoid", "Tanh", "Tanh"},
                                                      onnx_rnn_lstm_step};
static const onnx_rnn_cell_kind onnx_rnn_gru_kind = {3, 1, 2, {"Sigmoid", "Tanh"},
                                                     onnx_rnn_gru_step};

/* A node: its inputs after X, W, R, B and sequence_lens; X has the steps first. */
typedef struct {
    const onnx_rnn_cell_kind *kind;
    wb_tensor *x, *lengths;             /* lengths: i64 [N, 1] or NULL */
    wb_tensor *first[2];                /* initial states, [D, N, H] or NULL */
    int directions;
    bool backwards, batch_first;        /* backwards: the first direction */
    int64_t steps, batch, hidden;
} recurrent;

static bool onnx_rnn_refuse_options(const wb__onnx_call *c)
{
    if (wb__onnx_attribute(c, "clip")) return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "the "
                                                             "attribute clip is not done");
    if (wb__onnx_int(c, "input_forget"))
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "input_forget 1 is not done");
    return true;
}

/* Sets *number to the next number of a list for an activation, unless the list has ended. */
static void onnx_rnn_next_number(const wb__onnx_attr *list, int *taken, double *number)
{
    if (list && *taken < list->n) *number = (double)list->floats[(*taken)++];
}

/* Sets the functions of a direction.  The numbers in activation_alpha and activation_beta are those
 * of the functions that have such numbers, in their order over all directions. */
static bool onnx_rnn_read_activations(const wb__onnx_call *c, const recurrent *r, int direction,
                                      onnx_rnn_pass *p)
{
    const wb__onnx_attr *names = wb__onnx_attribute(c, "activations");
    const wb__onnx_attr *alpha = wb__onnx_attribute(c, "activation_alpha");
    const wb__onnx_attr *beta = wb__onnx_attribute(c, "activation_beta");
    const int n = r->kind->functions, all = n * r->directions;
    int alphas = 0, betas = 0;
    if (names && names->n && names->n != all)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "activations has %d names; it has %d here",
                               names->n, all);
    for (int i = 0; i < n * (direction + 1); i++) {
        const char *name = names && names->n ? names->strings[i] : r->kind->by_default[i % n];
        size_t k = 0;
        while (k < WB__COUNT(onnx_rnn_activations) && strcmp(name, onnx_rnn_activations[k].name))
            k++;
        if (k == WB__COUNT(onnx_rnn_activations))
            return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "the activation %s", name);
        onnx_rnn_activation f = onnx_rnn_activations[k].by_default;
        if (onnx_rnn_activations[k].numbers > 0) onnx_rnn_next_number(alpha, &alphas, &f.a);
        if (onnx_rnn_activations[k].numbers > 1) onnx_rnn_next_number(beta, &betas, &f.b);
        p->f[i % n] = f;
    }
    return true;
}

/* Whether input i, if it is given, has these dimensions. */
static bool onnx_rnn_has_dims(const wb__onnx_call *c, int i, int ndim, const int64_t *dims)
{
    const wb_tensor *x = wb__onnx_in(c, i);
    bool fits = !x || x->ndim == ndim;
    for (int k = 0; x && fits && k < ndim; k++) fits = x->dims[k] == dims[k];
    return fits || wb__onnx_refuse(c, WB_ERROR_SHAPE, "input %d is %s, which does not fit to X %s "
                                   "and R %s", i, wb_describe(x), wb_describe(c->in[0]),
                                   wb_describe(c->in[2]));
}

static bool onnx_rnn_shapes_fit(const wb__onnx_call *c, const recurrent *r)
{
    const int64_t d = r->directions, h = r->hidden, rows = r->kind->gates * h, n = r->batch;
    const int64_t states[3] = {r->batch_first ? n : d, r->batch_first ? d : n, h};
    for (int i = 0; i < r->kind->states; i++)
        if (!onnx_rnn_has_dims(c, 5 + i, 3, states)) return false;
    return onnx_rnn_has_dims(c, 1, 3, (int64_t[]){d, rows, c->in[0]->dims[2]}) &&
           onnx_rnn_has_dims(c, 2, 3, (int64_t[]){d, rows, h}) &&
           onnx_rnn_has_dims(c, 3, 2, (int64_t[]){d, 2 * rows}) && onnx_rnn_has_dims(c, 4, 1, &n) &&
           (r->kind != &onnx_rnn_lstm_kind || onnx_rnn_has_dims(c, 7, 2, (int64_t[]){d, 3 * h}));
}

static bool onnx_rnn_read_node(wb__onnx_call *c, const onnx_rnn_cell_kind *kind, recurrent *r)
{
    const int direction = wb__onnx_word_index(c, "direction");
    *r = (recurrent){.kind = kind, .backwards = direction == 1,
                     .directions = direction == 2 ? 2 : 1};
    if (!onnx_rnn_refuse_options(c)) return false;
    wb_tensor *x = c->in[0], *lengths = wb__onnx_in(c, 4);
    if (x->ndim != 3 || c->in[2]->ndim != 3 || !wb__dtype_float((wb_dtype)x->dtype))
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "X is %s, and R is %s", wb_describe(x),
                               wb_describe(c->in[2]));
    r->batch_first = wb__onnx_int(c, "layout");
    r->steps = x->dims[r->batch_first];
    r->batch = x->dims[!r->batch_first];
    r->hidden = c->in[2]->dims[2];
    if (wb__onnx_int_or(c, "hidden_size", r->hidden) != r->hidden || r->steps < 1)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "hidden_size is %lld, R is %s, and X has %lld "
                               "steps", (long long)wb__onnx_int_or(c, "hidden_size", r->hidden),
                               wb_describe(c->in[2]), (long long)r->steps);
    if (!onnx_rnn_shapes_fit(c, r)) return false;
    r->x = r->batch_first ? wb__steps_first(x) : x;
    for (int i = 0; i < kind->states; i++) {
        r->first[i] = wb__onnx_in(c, 5 + i);
        if (r->first[i] && r->batch_first && !(r->first[i] = wb__steps_first(r->first[i])))
            return false;
    }
    if (lengths && !(r->lengths = wb_unsqueeze(wb__as(lengths, WB_I64), -1))) return false;
    return r->x;
}

/* The context of a step of the loop. */
typedef struct { const onnx_rnn_cell_kind *kind; const onnx_rnn_pass *p; } of_step;

/* Returns x[direction]; NULL: x is NULL, or the call failed. */
static wb_tensor *onnx_rnn_of_direction(wb_tensor *x, int direction)
{
    if (x && x->dims[0] > 1) x = wb_slice(x, 0, direction, direction + 1);
    return x ? wb_squeeze(x, 0) : NULL;
}

static bool onnx_rnn_scan_step(const wb__steps *steps, wb_tensor *x, int *n, wb_tensor **states,
                               wb_tensor **y)
{
    const of_step *now = steps->ctx;
    *n = now->kind->states;
    *y = now->kind->step(now->p, x, states) ? states[0] : NULL;
    return *y;
}

/* Computes one direction: sets *y, [T, N, H], and the last states. */
static bool onnx_rnn_run_pass(wb__onnx_call *c, const recurrent *r, int direction, wb_tensor **y,
                              wb_tensor **states)
{
    const int64_t dims[2] = {r->batch, r->hidden}, rows = r->kind->gates * r->hidden;
    const wb_dtype t = (wb_dtype)r->x->dtype;
    wb_tensor *bias = onnx_rnn_of_direction(wb__onnx_in(c, 3), direction),
              *weight = onnx_rnn_of_direction(c->in[1], direction);
    onnx_rnn_pass p = {.hidden = r->hidden,
                       .recurrent = onnx_rnn_of_direction(c->in[2], direction)};
    p.resets_product = r->kind == &onnx_rnn_gru_kind && wb__onnx_int(c, "linear_before_reset");
    if (r->kind == &onnx_rnn_lstm_kind)
        p.peepholes = onnx_rnn_of_direction(wb__onnx_in(c, 7), direction);
    if (!onnx_rnn_read_activations(c, r, direction, &p) || (wb__onnx_in(c, 3) && !bias) ||
        (r->kind == &onnx_rnn_lstm_kind && wb__onnx_in(c, 7) && !p.peepholes))
        return false;
    if (bias) {
        wb_tensor *of_hidden = wb_slice(bias, 0, rows, 2 * rows);
        bias = wb_slice(bias, 0, 0, rows);
        if (p.resets_product) p.hidden_bias = of_hidden;
        else bias = wb_add(bias, of_hidden);
        if (!bias || !of_hidden) return false;
    }
    for (int i = 0; i < r->kind->states; i++) {
        states[i] = r->first[i] ? onnx_rnn_of_direction(r->first[i], direction)
                                : wb_expand_array(wb__literal(0, t), 2, dims);
        if (!states[i]) return false;
    }
    const of_step now = {r->kind, &p};
    const wb__steps steps = {onnx_rnn_scan_step, &now};
    int n = r->kind->states;
    wb_tensor *x = wb_linear(r->x, weight, bias ? bias : WB_NONE);
    wb_tensor **outputs = wb__alloc((size_t)r->steps * sizeof *outputs);
    const bool ok = x && p.recurrent && outputs &&
                    wb__unroll(&steps, x, r->lengths, r->backwards || direction == 1, &n, states,
                               outputs);
    *y = ok ? wb_stack_array(0, (int)r->steps, outputs) : NULL;
    wb__free(outputs);
    return *y;
}

static bool onnx_rnn_run(wb__onnx_call *c, const onnx_rnn_cell_kind *kind)
{
    recurrent r;
    wb_tensor *y[2], *states[2][2];
    if (!onnx_rnn_read_node(c, kind, &r)) return false;
    for (int d = 0; d < r.directions; d++)
        if (!onnx_rnn_run_pass(c, &r, d, &y[d], states[d])) return false;
    if (wb__onnx_wants(c, 0)) {
        wb_tensor *all = wb_stack_array(1, r.directions, y);
        if (r.batch_first && all) all = wb_permute_array(all, 4, (int64_t[]){2, 0, 1, 3});
        if (!wb__onnx_give(c, all)) return false;
    }
    for (int i = 0; i < kind->states; i++) {
        wb_tensor *last[2] = {states[0][i], states[r.directions - 1][i]};
        if (!wb__onnx_wants(c, 1 + i)) continue;
        wb_tensor *all = wb_stack_array(0, r.directions, last);
        c->out[1 + i] = r.batch_first ? wb__steps_first(all) : all;
        if (!c->out[1 + i]) return false;
    }
    return true;
}

bool wb__onnx_rnn(wb__onnx_call *c) { return onnx_rnn_run(c, &onnx_rnn_kind); }

bool wb__onnx_lstm(wb__onnx_call *c) { return onnx_rnn_run(c, &onnx_rnn_lstm_kind); }

bool wb__onnx_gru(wb__onnx_call *c) { return onnx_rnn_run(c, &onnx_rnn_gru_kind); }
