/* Weber, chapter 6: optimiser rules, training, progress bars, plots. */
#ifndef WEBER_TRAIN_H
#define WEBER_TRAIN_H

#include "weber/data.h"
#include "weber/nn.h"

#ifdef __cplusplus
#include <math.h>
#endif

#ifdef __cplusplus
/** {b1, b2} or {b1}; what is left out has the rule's default. */
struct wb_betas {
    double list[2];
    wb_betas() : list{WB_DEFAULT, WB_DEFAULT} {}
    wb_betas(std::initializer_list<double> values) : wb_betas()
    {
        if (values.size() == 0 || values.size() > 2) list[0] = NAN;     /* an error of the rule */
        int i = 0;
        for (double value : values)
            if (i < 2 && values.size() <= 2) list[i++] = value;
    }
    double &operator[](int i) { return list[i]; }
};
extern "C" {
#endif

/* ---- rules ----------------------------------------------------------------------------------- */

/** Options of all rules and of wb_adjust.  A rule has the numbers of its formula, with the defaults
 * in its comment; another number is an error.  Errors: NaN; eta negative or infinite; a beta of 1
 * or more; any number but lambda negative. */
typedef struct wb_Rule_options {
    WB_OPTIONS_HEAD(wb_Rule_options)
#ifndef __cplusplus
    double beta[2];                         /* {b1, b2}; with {b1} b2 has its default */
#else
    wb_betas beta = {};
#endif
    double eps WB_IS(WB_DEFAULT);
    double lambda WB_IS(WB_DEFAULT);
    double delta WB_IS(WB_DEFAULT);
    double omega WB_IS(WB_DEFAULT);
    WB_BY_PLACE
    double eta WB_IS(WB_DEFAULT);           /* the learning rate */
    double rho WB_IS(WB_DEFAULT);
    WB_NO_MORE
} wb_Rule_options;

/* Rules update a parameter x with its gradient g; their states v and m start as 0.  Numbers in
 * brackets are the defaults.  NULL: a number is wrong, or memory is short. */

/** x <- x - eta g: wb_Descent(eta).  [eta 0.1] */
WB_API wb_rule *wb_Descent_with(const wb_Rule_options *o);
/** v <- rho v + eta g;  x <- x - v: wb_Momentum(eta, rho).  [eta 0.01, rho 0.9] */
WB_API wb_rule *wb_Momentum_with(const wb_Rule_options *o);
/** m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g²;
 * x <- x - eta (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps), in update t: wb_Adam(eta).
 * [eta 0.001, beta {0.9, 0.999}, eps 1e-8]  (Kingma & Ba 2015, algorithm 1) */
WB_API wb_rule *wb_Adam_with(const wb_Rule_options *o);
/** Adam, and in the same update x <- x - eta lambda x with the x before it: wb_AdamW(eta, .lambda =
 * 0.01).  [as Adam, lambda 0.01]  (Loshchilov & Hutter 2019) */
WB_API wb_rule *wb_AdamW_with(const wb_Rule_options *o);
/** g <- g + lambda x, before another rule of a wb_OptimiserChain: wb_WeightDecay(.lambda = 5e-4).
 * [lambda 5e-4] */
WB_API wb_rule *wb_WeightDecay_with(const wb_Rule_options *o);
/** g <- g with each element limited to [-delta, delta], before another rule of a wb_OptimiserChain:
 * wb_ClipGrad(.delta = 10).  [delta 10] */
WB_API wb_rule *wb_ClipGrad_with(const wb_Rule_options *o);
/** g <- g omega / |g| if |g| > omega, before another rule of a wb_OptimiserChain:
 * wb_ClipNorm(.omega = 10).  |g| is the Euclidean norm of all gradients together that an update
 * uses.  [omega 10] */
WB_API wb_rule *wb_ClipNorm_with(const wb_Rule_options *o);
/** Rules in sequence, each with the result of the one before it as its gradient:
 * wb_OptimiserChain(wb_ClipNorm(), wb_Adam()).  The result of the last is subtracted from x.  The
 * rules are copied.  Error: no rules. */
WB_API wb_rule *wb_OptimiserChain_array(int n, wb_rule *const *rules);

/** Options of wb_setup. */
typedef struct wb_setup_options {
    WB_OPTIONS_HEAD(wb_setup_options)
    bool unguarded WB_IS(false);            /* updates are made even if the loss is not finite */
    WB_BY_PLACE
    wb_dtype mixed WB_IS(WB_DTYPE_DEFAULT);  /* WB_BF16 or WB_F16; default: no mixed precision */
    WB_NO_MORE
} wb_setup_options;
/** The state of a rule for every trainable parameter of a layer or tree, on the parameter's device:
 * wb_setup(wb_Adam(), model).  Tied parameters share one state.  The rule is copied; the model is
 * not held, and each wb_update gets it.  Errors: no trainable parameter; in a tree a floating
 * tensor that is no variable; .mixed is another dtype, or the device does not have it; the call is
 * in a function that wb_compile records.
 *
 * Mixed precision: the parameters are converted to .mixed in place, and the state keeps a master of
 * each in f32; running statistics keep their dtype.  The rule works on the masters, with gradients
 * converted to f32, and the parameters get the rounded results.  From then on layers convert their
 * inputs.  A value that wb_load_state or wb_assign puts into the model also replaces its master.
 * With WB_F16 the loss is scaled: see wb_scale_loss.
 *
 * Guard: an update is executed only if the loss of its gradients is finite (with ClipNorm: the norm
 * of the gradients).  Otherwise the evaluation of the update returns WB_ERROR_NUMBER, and
 * parameters, state and all other pending assignments keep their values; the loss can be read.
 * Each update waits for the device, unless it shares the host's memory.  .unguarded removes the
 * guard from wb_update; wb_train stops at a loss that is not finite in any case.  With WB_F16
 * nothing waits: the device skips an update whose gradients are not finite. */
WB_API wb_opt_state *wb_setup_with(wb_rule *rule, void *model, const wb_setup_options *o);

/** The loss to differentiate, for a state with .mixed = WB_F16: the loss times a scale, in f32, so
 * that small gradients do not vanish in f16.  With any other state: the loss.  wb_update divides
 * the gradients by the scale; wb_train does both.
 *
 *     wb_tensor *loss = wb_mse(wb_call(model, x), y);
 *     wb_update(state, model, wb_gradient(wb_scale_loss(state, loss), model));
 *
 * The scale starts at 65536.  A gradient that is not finite halves it, and that update changes
 * nothing; 2000 updates without such a gradient double it.  This happens on the device, and nothing
 * waits.  Errors: the loss is not floating, or has more than one element. */
WB_API wb_tensor *wb_scale_loss(wb_opt_state *state, wb_tensor *loss);

/** Updates each parameter of a model by the rule of the state, recorded as wb_assign is.  `grads`
 * has the structure of the model; parameters whose gradient is WB_NONE, and frozen ones, are
 * skipped.  Returns 0, or an error code, and then nothing was recorded.  Errors: state or gradients
 * of another model, or on another device than their parameter; .mixed = WB_F16, and wb_scale_loss
 * was never called with this state.
 *
 * A gradient can be read until the update is evaluated, or in the same evaluation: wb_eval(loss,
 * g). After that its operands are overwritten (WB_ERROR_VERSION).  In the root scope an update
 * first executes the update before it (wb_scope_close). */
WB_API int wb_update(wb_opt_state *state, void *model, wb_tree *grads);
/** wb_update into a new model, which belongs to the current scope; it is evaluated at once.  The
 * given model keeps its values; the state's moments advance.  NULL, with the state unchanged: an
 * error of wb_update, or a loss that is not finite. */
WB_API wb_layer *wb_update_new(wb_opt_state *state, wb_layer *model, wb_tree *grads);

/** Changes numbers of the rule: wb_adjust(state, .eta = 1e-4).  In an OptimiserChain a number is
 * changed in each rule that has it.  Returns 0 or an error code, and then nothing is changed.
 * Errors: no number; a number that no rule has. */
WB_API int wb_adjust_with(wb_opt_state *state, const wb_Rule_options *o);
/** Freezes the parameters below a path of the model such as "layers.0" (with "" all): updates skip
 * them, and gradients that only they need are not computed.  A BatchNorm in train mode goes on
 * updating its running statistics; wb_testmode stops that.  Returns 0 or an error code.  Error: no
 * parameter is below the path. */
WB_API int wb_freeze(wb_opt_state *state, const char *path);
/** Undoes wb_freeze for the parameters below a path.  Returns 0 or an error code, as wb_freeze. */
WB_API int wb_thaw(wb_opt_state *state, const char *path);
#ifndef __cplusplus
#define wb_Descent(...) wb_Descent_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_Momentum(...) wb_Momentum_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_Adam(...) wb_Adam_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_AdamW(...) wb_AdamW_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_WeightDecay(...) wb_WeightDecay_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_ClipGrad(...) wb_ClipGrad_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_ClipNorm(...) wb_ClipNorm_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_OptimiserChain(...)                        \
    wb_OptimiserChain_array(WB_NARGS_(__VA_ARGS__),   \
                            (wb_rule *[WB_NARGS_(__VA_ARGS__)]){__VA_ARGS__})
#define wb_setup(...) WB_SETUP_(__VA_ARGS__, )
#define WB_SETUP_(rule, model, ...) \
    wb_setup_with((rule), (model), WB_GET_(wb_setup_options, __VA_ARGS__))
#define wb_adjust(state, ...) wb_adjust_with((state), WB_RULE_OPTIONS_(__VA_ARGS__))
#define WB_RULE_OPTIONS_(...) (WB_GET_(wb_Rule_options, __VA_ARGS__))
#endif

/* ---- training -------------------------------------------------------------------------------- */

/** Returns the loss of a model on a batch, a floating tensor with one element; NULL on failure.
 * `ctx` is that of wb_withgradient, or the option of wb_train. */
typedef wb_tensor *(*wb_loss)(wb_layer *model, wb_batch batch, void *ctx);

/** Calls a loss in train mode, returns it, and sets *grads to its gradient with respect to the
 * model (wb_gradient_layer).  `grads` may be NULL: no gradient.  On failure both are NULL, and
 * running statistics are not updated.  In C and C++ ctx may be left out: wb_withgradient(loss,
 * model, batch, &grads). */
WB_API wb_tensor *wb_withgradient(wb_loss loss, wb_layer *model, wb_batch batch, wb_tree **grads,
                                  void *ctx);

/** Options of wb_train. */
typedef struct wb_train_options {
    WB_OPTIONS_HEAD(wb_train_options)
    bool progress WB_IS(false);             /* shows a progress bar on standard error */
    void *ctx WB_IS(NULL);                  /* passed to the loss, .each and .metric */
    /* Called after each batch; epoch and batch count from 1.  If it returns another value than 0,
     * the training ends with success, without a checkpoint of that epoch. */
    int (*each)(int epoch, int64_t batch, wb_tensor *loss, void *ctx) WB_IS(NULL);
    const char *checkpoint WB_IS(NULL);     /* a file, written after each epoch */
    const char *folder WB_IS(NULL);         /* or a folder, as wb_checkpoint_keep; not both */
    const char *name WB_IS(NULL);           /* of the checkpoints, as in wb_checkpoint */
    int keep_last WB_IS(3);                 /* how many the folder keeps; negative: all */
    bool keep_best WB_IS(false);            /* keeps the one with the lowest metric too */
    bool higher WB_IS(false);               /* a higher metric is better */
    bool resume WB_IS(false);               /* continues from the checkpoint, if there is one */
    /* The metric of a checkpoint.  Default: the mean of the losses of the epoch's batches. */
    double (*metric)(wb_layer *model, int epoch, void *ctx) WB_IS(NULL);
    WB_BY_PLACE
    int epochs WB_IS(1);                    /* 0 or more */
    WB_NO_MORE
} wb_train_options;
/** Trains a model: for each batch loss, gradient and update:
 * wb_train(loss, model, loader, state, .epochs = 5, .progress = true).  Returns 0 or an error code.
 *
 * Every update waits for a finite loss (with ClipNorm for a finite norm).  A loss that is not
 * finite ends the training with WB_ERROR_NUMBER ("loss is NaN on batch 51"), and the model keeps
 * the values from before that batch; with WEBER_EAGER=1 running statistics have changed already.
 *
 * Checkpoints have the metric that .metric returns for the epoch.  It is called outside of
 * training, where automatic mode is test mode.
 *
 * .resume: a program that was stopped at any time continues when it is run again.  The checkpoint
 * restores model, state, loader and random numbers; .epochs includes the epochs that it has behind
 * it; the results have the same bits as a training that was never stopped.  Several wb_train in one
 * program need a .name or a file each.
 *
 * Errors: a loader without batches; negative .epochs; .resume without .checkpoint or .folder;
 * .keep_last = 0; the errors of the loss, of evaluations and of files. */
WB_API int wb_train_with(wb_loss loss, wb_layer *model, wb_loader *data, wb_opt_state *state,
                         const wb_train_options *o);
#ifndef __cplusplus
#define wb_withgradient(...) WB_PASTE_(WB_WITHGRADIENT_, WB_NARGS_(__VA_ARGS__))(__VA_ARGS__)
#define WB_WITHGRADIENT_3(...) wb_withgradient(__VA_ARGS__)
#define WB_WITHGRADIENT_4(...) wb_withgradient(__VA_ARGS__, NULL)
#define WB_WITHGRADIENT_5(...) wb_withgradient(__VA_ARGS__)
#define WB_WITHGRADIENT_6(...) wb_withgradient(__VA_ARGS__)
#define wb_train(...) WB_TRAIN_(__VA_ARGS__, )
#define WB_TRAIN_(loss, model, data, state, ...)                \
    wb_train_with((loss), (model), (data), (state),             \
                  WB_GET_(wb_train_options, __VA_ARGS__))
#endif

/* ---- progress bars and plots ----------------------------------------------------------------- */

/** A progress bar on standard error, with rate, remaining time and metrics; lines of text where
 * standard error is not a terminal.  Its length is that of the loader, unknown if `loader` is NULL.
 * `format` and the arguments after it are the title, as for printf. */
WB_API wb_progress *wb_progress_begin(wb_loader *loader, const char *format, ...);
/** A progress bar of a number of steps (0: unknown); else as wb_progress_begin. */
WB_API wb_progress *wb_progress_of(int64_t steps, const char *format, ...);
/** Sets a metric, at most 4, to a tensor with one element.  A call with the first metric's name, or
 * with NULL, is also a step.  `value` is read at that metric's next call, so that nothing waits for
 * it; WB_NONE or NULL: no value. */
WB_API void wb_progress_step(wb_progress *p, const char *metric, wb_tensor *value);
/** Ends a progress bar with a last line: steps, duration, means of the metrics.  The end of its
 * scope does so too.  NULL is ignored. */
WB_API void wb_progress_end(wb_progress *p);

/** A line of a plot: n points (x[i], y[i]), and its name in the legend; NULL: the legend leaves the
 * line out. */
typedef struct { const char *name; int n; const double *x, *y; } wb_series;
/** Writes a plot of n_series lines, with axes and a legend, as an SVG file.  Texts that are NULL
 * are left out.  A point that is not finite leaves a gap.  Returns 0 or an error code.  Errors: no
 * series; the file cannot be written, and may then be incomplete. */
WB_API int wb_svg_curves(const char *path, const char *title, const char *x_label,
                         const char *y_label, int n_series, const wb_series *series);

#ifdef __cplusplus
}
#endif
#endif
