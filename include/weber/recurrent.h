/* Weber, chapter 4: recurrent layers and cells.  layers.h includes this header. */
#ifndef WEBER_RECURRENT_H
#define WEBER_RECURRENT_H

#include "weber/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of recurrent layers and cells. */
#define wb_Recurrent_options_(OPT, ARG)                                                            \
    OPT(bool, bias, true)                                                                          \
    OPT(bool, last, false)                  /* returns only the last output; not for cells */      \
    OPT(wb_initializer, init, wb_glorot_uniform)                                                   \
    OPT(wb_dtype, dtype, WB_F32)                                                                   \
    OPT(bool, hidden_bias, false)           /* for a GRU with a bias: adds bias_hidden [3 out] */  \
    /* the layer has parameters initial_hidden and, if it is an LSTM, initial_cell */              \
    OPT(bool, initial_state, false)                                                                \
    OPT(bool, return_state, false)          /* returns the last states too; not for cells */       \
    OPT(int64_t, layers, 1)                 /* layers, one behind the other; not for cells */      \
    OPT(bool, bidirectional, false)         /* also runs from the last step; not for cells */      \
    ARG(int64_t, in, WB_REQUIRED(0)) ARG(int64_t, out, WB_REQUIRED(0))                             \
    ARG(wb_function, activation, NULL)      /* for an RNN only; NULL: wb_tanh */
WB_OPTIONS(wb_Recurrent_options);
/** h' = activation(weight_input·x + weight_hidden·h + bias): wb_RNN(in, out, activation).
 *   x [N, T, in]   y [N, T, out]: the states h' of all steps; with .last [N, out], the last one
 *   weight_input [gates out, in]   weight_hidden [gates out, out]   bias [gates out]
 * weight_input has `out` rows for each gate, in the order of the formula: an RNN has 1 gate, an
 * LSTM 4, a GRU 3.  In the formula x and h are the vectors of one step.  The state before step 1 is
 * that of the call, wb_call(layer, x, h) with h [N, out], for an LSTM wb_call(layer, x, h, c); else
 * the parameter initial_hidden [out] with .initial_state; else zeros.  With .return_state the layer
 * gives several tensors (wb_call_outputs): y and the last state h, of an LSTM h and c, which a
 * later call takes to go on where this one ended.
 *
 * The last input may be lengths, integers [N] from 0 to T: wb_call(layer, x, lengths).  Steps
 * behind the length of a sequence do not count: y is 0 there.  (pack_padded_sequence of PyTorch)
 * With .bidirectional y is [N, T, 2 out]; with D = layers times directions above 1, states are [D,
 * N, out].  docs/site/guide/layers.md has more about these.
 *
 * Errors: a call with T = 0; states or lengths of another shape or number; lengths out of range
 * with WEBER_DEBUG=check (else the nearest in range); .layers outside 1 to 1000. */
WB_API wb_layer *wb_RNN_with(const wb_Recurrent_options *o);
/** An LSTM: wb_LSTM(in, out).  The sum in the first line is split into four vectors.
 *   [i, f, g, o] = weight_input·x + weight_hidden·h + bias
 *   c' = sigmoid(f) c + sigmoid(i) tanh(g)   h' = sigmoid(o) tanh(c')
 * Shapes as wb_RNN.  Error: .activation is given. */
WB_API wb_layer *wb_LSTM_with(const wb_Recurrent_options *o);
/** A GRU: wb_GRU(in, out).  Both sums in the first line are split into three vectors.
 *   [ar, az, an] = weight_input·x + bias   [br, bz, bn] = weight_hidden·h + bias_hidden
 *   r = sigmoid(ar + br)   z = sigmoid(az + bz)   n = tanh(an + r bn)   h' = (1 - z) n + z h
 * Without .hidden_bias, bias_hidden is 0; PyTorch's GRU has that bias.  Shapes as wb_RNN.  Error:
 * .activation is given. */
WB_API wb_layer *wb_GRU_with(const wb_Recurrent_options *o);
/** The GRU of the first version of the paper, Flux's GRUv3: wb_GRUv3(in, out).
 *   [ar, az, an] = weight_input·x + bias   [br, bz] = weight_hidden[:2 out]·h
 *   r = sigmoid(ar + br)   z = sigmoid(az + bz)   n = tanh(an + weight_hidden[2 out:]·(r h))
 *   h' = (1 - z) n + z h
 * weight_hidden [3 out, out] has Flux's Wh above its Wh_h̃.  Shapes as wb_RNN.  Errors: .activation
 * or .hidden_bias is given.  (Cho et al. 2014) */
WB_API wb_layer *wb_GRUv3_with(const wb_Recurrent_options *o);
/** One step of an RNN: wb_call(cell, x, h) with x [N, in], h [N, out] returns the new h.  Without
 * h, wb_call(cell, x), the state is 0 or, with .initial_state, the parameter initial_hidden. */
WB_API wb_layer *wb_RNNCell_with(const wb_Recurrent_options *o);
/** One step of an LSTM: wb_call(cell, x, h, c) returns the new h only; wb_cell_step returns the new
 * h and c.  A state that is not given is 0 or, with .initial_state, the parameter initial_hidden
 * (h) or initial_cell (c). */
WB_API wb_layer *wb_LSTMCell_with(const wb_Recurrent_options *o);
/** One step of a GRU: wb_call(cell, x, h) returns the new h.  Without h, the state is 0 or, with
 * .initial_state, the parameter initial_hidden. */
WB_API wb_layer *wb_GRUCell_with(const wb_Recurrent_options *o);
/** One step of a GRUv3, with the calls of wb_GRUCell. */
WB_API wb_layer *wb_GRUv3Cell_with(const wb_Recurrent_options *o);
/** One step of a cell: replaces the tensors in `states` by the new states, which belong to the
 * current scope.  n_states is 2 (h and c) for an LSTM, else 1 (h).  A state that is WB_NONE or NULL
 * counts as not given (see wb_RNNCell).  Returns 0 or an error code, and then `states` is
 * unchanged. */
WB_API int wb_cell_step(wb_layer *cell, wb_tensor *x, int n_states, wb_tensor **states);
/** Sets states[0], ..., to the states with which a recurrent layer, a cell or a Recurrence over a
 * cell of the library begins `batch` sequences: zeros, or with .initial_state the parameters, whose
 * gradients pass.  Each is [batch, out], or [D, batch, out] in a layer with D layers times
 * directions above 1, in the dtype of the weights, and belongs to the current scope.  n_states is 2
 * (h and c) for an LSTM, else 1 (h).  Returns 0 or an error code, and then `states` is unchanged.
 * Errors: another number of states; a cell of the program, which begins with its own states if it
 * is called without any. */
WB_API int wb_initial_states(wb_layer *layer, int64_t batch, int n_states, wb_tensor **states);

/** Options of wb_Recurrence. */
#define wb_Recurrence_options_(OPT, ARG)                                                           \
    OPT(bool, last, false)                  /* returns only the output of the last step */         \
    OPT(bool, reverse, false)               /* runs from the last step to the first one */         \
    OPT(bool, return_state, false)          /* returns the last states too */
WB_OPTIONS(wb_Recurrence_options);
/** Runs a cell over sequences: wb_Recurrence(cell), wb_Recurrence(cell, .return_state = true).
 *   x [N, T, ...]   y [N, T, ...]: the outputs of all steps; with .last [N, ...], the last one
 * The cell is one of the library, or a layer that is called with x of one step, [N, ...], and the
 * states of the step before, and gives an output [N, ...] and then the new states (as many, at
 * least 1 and at most 15): usually a struct of WB_LAYER.  It gets x alone in the first step, and
 * begins with states of its own, unless the call has states, wb_call(layer, x, states...).  With
 * .return_state the layer gives y and the last states (wb_call_outputs), in the order of the cell.
 *
 * The last input may be lengths, as of wb_RNN, and then output and states are [N, ...]; the last
 * state of a program's cell is 0 for a sequence of length 0 that had none before.  Integer states
 * come before floating ones, since integers in the last place are lengths.  With .reverse y[:, t]
 * is still the output of step t.  Parameters are named "cell.weight_input".
 *
 * Errors: a layer that runs over sequences itself; a layer of the library that is no cell; a call
 * with T = 0; a cell that gives one tensor, another number of states than it got, or an output
 * without a row for each sequence; lengths with .reverse and a cell of the program
 * without states. */
WB_API wb_layer *wb_Recurrence_with(wb_layer *cell, const wb_Recurrence_options *o);

#ifndef __cplusplus
#define wb_RNN(...) WB_OPTIONS_(wb_RNN_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_LSTM(...) WB_OPTIONS_(wb_LSTM_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_GRU(...) WB_OPTIONS_(wb_GRU_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_RNNCell(...) WB_OPTIONS_(wb_RNNCell_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_LSTMCell(...) WB_OPTIONS_(wb_LSTMCell_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_GRUv3(...) WB_OPTIONS_(wb_GRUv3_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_GRUv3Cell(...) WB_OPTIONS_(wb_GRUv3Cell_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_GRUCell(...) WB_OPTIONS_(wb_GRUCell_with, wb_Recurrent_options, __VA_ARGS__)
#define wb_Recurrence(...) WB_RECURRENCE_(__VA_ARGS__, )
#define WB_RECURRENCE_(cell, ...) \
    WB_CALL_WITH_(wb_Recurrence_with((cell), WB_GET_(wb_Recurrence_options, __VA_ARGS__)))
#endif

#ifdef __cplusplus
}
#endif
#endif
