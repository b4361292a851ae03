/* Weber, chapter 6: rules, training, progress. */
#ifndef WEBER_TRAIN_H
#define WEBER_TRAIN_H

#include "weber/data.h"
#include "weber/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rules ------------------------------------------------------------------------------------ */

/* x <- x - step(g).  A number that is given as 0 is 0.  Errors: eta negative or infinite, beta 1 or
 * more, a number other than lambda negative, NaN; a number that the rule does not have.
 *   Descent   eta g                                                          eta 0.1
 *   Momentum  v = rho v + eta g;  step v                                     eta 0.01, rho 0.9
 *   Adam      m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
 *             eta (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + eps)                    eta 0.001, beta {0.9, 0.999}, eps 1e-8
 *             (Kingma & Ba 2015, algorithm 1)
 *   AdamW     Adam's step + eta lambda x (Loshchilov & Hutter 2019)          lambda 0.01
 *   WeightDecay  g + lambda x (in a chain, before a rule)                    lambda 5e-4
 *   ClipGrad  each element into [-delta, delta]                              delta 10
 *   ClipNorm  g omega / |g| where |g| > omega, |g| over all parameters       omega 10  */
typedef struct wb_Rule_options {
    size_t size;
#ifndef __cplusplus
    double beta[3];
#else
    double beta[3] = {WB_DEFAULT, WB_DEFAULT, WB_DEFAULT};      /* the third is not used */
#endif
    WB_HAS(beta)
    WB_NUMBER(eps)
    WB_NUMBER(lambda)
    WB_NUMBER(delta)
    WB_NUMBER(omega)
    WB_BY_PLACE
    WB_NUMBER(eta)
    WB_NUMBER(rho)
    WB_NO_MORE
} wb_Rule_options;
WB_API wb_rule *wb_Descent_with(const wb_Rule_options *o);
WB_API wb_rule *wb_Momentum_with(const wb_Rule_options *o);
WB_API wb_rule *wb_Adam_with(const wb_Rule_options *o);
WB_API wb_rule *wb_AdamW_with(const wb_Rule_options *o);
WB_API wb_rule *wb_WeightDecay_with(const wb_Rule_options *o);
WB_API wb_rule *wb_ClipGrad_with(const wb_Rule_options *o);
WB_API wb_rule *wb_ClipNorm_with(const wb_Rule_options *o);
/* Rules one after the other, each fed with what the one before it makes of the gradient. */
WB_API wb_rule *wb_OptimiserChain_array(int n, wb_rule *const *rules);

/* State for every trainable parameter of a model (a layer or tree), on its device; tied parameters share one.
 *
 * .mixed = WB_BF16 or WB_F16 trains in mixed precision: the parameters become that dtype, in place (running statistics
 * stay what they are), and the state keeps them in f32 besides.  The rule works on these masters, with gradients
 * converted, and the parameters get their values rounded.  From then on layers convert what they are given without a
 * word.  A value that is put into the model later (wb_load_state, wb_assign) takes the place of its master.
 * With WB_F16 gradients are also scaled, below.
 *
 * An update is guarded by the loss that its gradients were taken of (wb_gradient,
 * wb_withgradient), or with ClipNorm by the norm of the gradients.  Where that is not finite, the
 * evaluation that would make the update writes nothing and returns WB_ERROR_NUMBER: parameters,
 * state and whatever else was assigned since the last evaluation stay what they were, and the
 * loss can be read.  Gradients that are not finite under a finite loss are noticed with ClipNorm
 * only.  The guard waits at each update for a device that does not share the host's memory.  With
 * .unguarded = true every update of wb_update is made; wb_train stops at such a loss all the
 * same.  With WB_F16 nothing waits: the device skips an update whose gradients are not finite
 * (wb_scale_loss).
 * Errors: .mixed is another dtype, or none of the device's; the model has nothing to train;
 * inside a function of wb_compile. */
typedef struct {
    size_t size;
    bool unguarded;
    WB_BY_PLACE
    wb_dtype mixed;
    WB_NO_MORE
} wb_setup_options;
WB_API wb_opt_state *wb_setup_with(wb_rule *rule, void *model, const wb_setup_options *o);

/* The loss to take the gradient of, for a state of .mixed = WB_F16: times a scale (f32), so that small gradients are not
 * lost in f16.  wb_update takes the scale out again; wb_train does both by itself.  Any other state: the loss itself.
 * The scale begins at 65536.  A gradient that is not finite halves it and leaves all parameters, moments and step counts
 * as they were; 2000 updates in a row without one double it.  All that happens on the device: nothing waits.
 *   wb_tensor *loss = wb_mse(wb_call(model, x), y);
 *   wb_update(state, model, wb_gradient(wb_scale_loss(state, loss), model));
 * Errors: the loss is not floating, or has more than one element. */
WB_API wb_tensor *wb_scale_loss(wb_opt_state *state, wb_tensor *loss);

/* model <- rule(gradients), recorded like wb_assign.  `grads` mirrors the model; parameters whose gradient is
 * WB_NONE are skipped entirely, and so are frozen ones.  0, or an error code, and then nothing was
 * recorded.  A gradient can be read until the update is evaluated, or together with it
 * (wb_eval(loss, g)).  Afterwards the parameters that it was made from are overwritten, and
 * reading it is WB_ERROR_VERSION.  A frozen parameter's gradient that nobody reads by then is
 * never computed.  Outside any scope an update first makes the one before it (base.h, scopes).
 * Errors: state or gradients of another model, or on another device than their parameter; .mixed = WB_F16, and
 * wb_scale_loss was never called with this state. */
WB_API int wb_update(wb_opt_state *state, void *model, wb_tree *grads);
/* Out of place: a new model; state and model stay as they are but for the state's moments. */
WB_API wb_layer *wb_update_new(wb_opt_state *state, wb_layer *model, wb_tree *grads);

/* Changes numbers of the rule (those given); freezes and thaws parameters below a path ("" is all).
 * No gradient is computed that only frozen parameters need, also in wb_train: a frozen part with
 * nothing trainable before it costs its forward pass alone.  Its running statistics (BatchNorm in
 * train mode) go on; wb_testmode on the part stops them. */
WB_API int wb_adjust_with(wb_opt_state *state, const wb_Rule_options *o);
WB_API int wb_freeze(wb_opt_state *state, const char *path);
WB_API int wb_thaw(wb_opt_state *state, const char *path);
#ifndef __cplusplus
#define wb_Descent(...) wb_Descent_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_Momentum(...) wb_Momentum_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_Adam(...) wb_Adam_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_AdamW(...) wb_AdamW_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_WeightDecay(...) wb_WeightDecay_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_ClipGrad(...) wb_ClipGrad_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_ClipNorm(...) wb_ClipNorm_with(WB_RULE_OPTIONS_(__VA_ARGS__))
#define wb_OptimiserChain(...) wb_OptimiserChain_array((int)(sizeof((wb_rule *[]){__VA_ARGS__}) / sizeof(wb_rule *)), \
                                                (wb_rule *[]){__VA_ARGS__})
#define wb_setup(...) WB_SETUP_(__VA_ARGS__, )
#define WB_SETUP_(rule, model, ...) \
    wb_setup_with((rule), (model), WB_GET_(wb_setup_options, __VA_ARGS__))
#define wb_adjust(state, ...) wb_adjust_with((state), WB_RULE_OPTIONS_(__VA_ARGS__))
#define WB_RULE_OPTIONS_(...) (WB_GET_(wb_Rule_options, WB_GIVE_(__VA_ARGS__)))
#endif

/* ---- training --------------------------------------------------------------------------------- */

/* The loss of a model on a batch, 0-dimensional. */
typedef wb_tensor *(*wb_loss)(wb_layer *model, wb_batch batch, void *ctx);

/* Calls the loss in train mode and takes its gradient with respect to the model. */
WB_API wb_tensor *wb_withgradient(wb_loss loss, wb_layer *model, wb_batch batch, wb_tree **grads, void *ctx);

/* Trains: for each batch, loss, gradient, update.  Every write waits for a finite loss, and with
 * ClipNorm for a finite norm of the gradients: one that is not finite ends training with
 * WB_ERROR_NUMBER ("loss is NaN on batch 51") and the model as it was before that batch (under
 * WEBER_EAGER=1 a BatchNorm's running statistics are written as they are made, before the loss is
 * known).
 * A loader without batches is an error.
 * .epochs 1; .progress shows a bar; .ctx goes to the loss; .each is called after a batch (epoch and batch count
 * from 1), and ends training, without an error, if it returns nonzero.
 *
 * After each epoch a checkpoint is written: to the file .checkpoint, or into the folder .folder, which keeps the
 * .keep_last ones (3) and, with .keep_best, the best (weber/files.h); .name is theirs.  Their metric is what .metric
 * returns for the epoch, called in test mode with .ctx, the lower the better unless .higher; or the mean of the batches'
 * losses.  With .resume a program that was stopped, however that was, does the rest when it is run again: what is
 * there is loaded (model, state, loader, random numbers), .epochs counts those that were made already, and the bits are those
 * that never stopping would have given.  Where there is nothing yet, training begins.  Calls that go on after
 * one another in one program want a name, or a file, each. */
typedef struct {
    size_t size;
    bool progress; WB_HAS(progress)
    void *ctx; WB_HAS(ctx)
    int (*each)(int epoch, int64_t batch, wb_tensor *loss, void *ctx); WB_HAS(each)
    const char *checkpoint; WB_HAS(checkpoint)
    const char *folder; WB_HAS(folder)
    const char *name; WB_HAS(name)
    int keep_last; WB_HAS(keep_last)        /* negative: all */
    bool keep_best; WB_HAS(keep_best)
    bool higher; WB_HAS(higher)
    bool resume; WB_HAS(resume)
    double (*metric)(wb_layer *model, int epoch, void *ctx); WB_HAS(metric)
    WB_BY_PLACE
    int epochs; WB_HAS(epochs)
    WB_NO_MORE
} wb_train_options;
WB_API int wb_train_with(wb_loss loss, wb_layer *model, wb_loader *data, wb_opt_state *state, const wb_train_options *o);
#ifndef __cplusplus
#define wb_withgradient(...) WB_WITHGRADIENT_(__VA_ARGS__, NULL, )
#define WB_WITHGRADIENT_(loss, model, batch, grads, ctx, ...) \
    wb_withgradient((loss), (model), (batch), (grads), (ctx))
#define wb_train(...) WB_PASTE_(WB_TRAIN_, WB_AFTER_4_(__VA_ARGS__))(__VA_ARGS__)
#define WB_TRAIN_none(loss, model, data, state) \
    wb_train_with((loss), (model), (data), (state), NULL)
#define WB_TRAIN_more(loss, model, data, state, ...)            \
    wb_train_with((loss), (model), (data), (state),             \
                  WB_GET_(wb_train_options, WB_GIVE_(__VA_ARGS__)))
#endif

/* ---- progress and pictures -------------------------------------------------------------------- */

/* A bar with rate, time left and metrics on a terminal, plain lines elsewhere, on standard error.  `loader` may be NULL.
 * A call with the first metric's name, or with none, is a step; other names (at most 4 in all) add to its line. */
WB_API wb_progress *wb_progress_begin(wb_loader *loader, const char *format, ...);
WB_API wb_progress *wb_progress_of(int64_t steps, const char *format, ...);
WB_API void wb_progress_step(wb_progress *p, const char *metric, wb_tensor *value);     /* read a step late: nothing waits */
WB_API void wb_progress_end(wb_progress *p);                                            /* also when its scope closes */

/* Curves as SVG: n_series lines of n points, with axes and a legend.  Points that are not finite leave a gap.
 * 0, or an error code. */
typedef struct { const char *name; int n; const double *x, *y; } wb_series;
WB_API int wb_svg_curves(const char *path, const char *title, const char *x_label, const char *y_label,
                         int n_series, const wb_series *series);

#ifdef __cplusplus
}
#endif
#endif
