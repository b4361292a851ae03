/* Weber, chapter 6: optimiser rules, training, progress bars, plots.  schedules.h has the schedules
 * of the learning rate, logger.h logs for TensorBoard. */
#ifndef WEBER_TRAIN_H
#define WEBER_TRAIN_H

#include "weber/data.h"
#include "weber/logger.h"
#include "weber/schedules.h"
#include "weber/models.h"

#ifdef __cplusplus
#include <math.h>
#endif

/** An option with two numbers, such as .beta: {b1, b2}, or {b1} with the rule's default b2. */
#ifndef __cplusplus
typedef double wb_pair[2];
/** The default of a wb_pair: the rule's own default. */
#define WB_DEFAULT_PAIR {WB_DEFAULT, WB_DEFAULT}
#else
#define WB_DEFAULT_PAIR {}
struct wb_pair {
    double list[2];
    wb_pair() : list{WB_DEFAULT, WB_DEFAULT} {}
    wb_pair(std::initializer_list<double> values) : wb_pair()
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

/** Options of all rules and of wb_adjust.  A rule uses the numbers that its formula names.  The
 * comment of the rule gives their defaults.  A number by place is eta, or for a rule without eta
 * the number that its comment gives by place.  Errors: a number that the rule does not use, or
 * that is given twice; NaN; an infinite eta; a beta of 1 or more; a rho above 1; a negative number
 * other than lambda; ell[0] above 1, or ell[1] below 1; gamma[0] above gamma[1]; .centered in a
 * rule other than wb_RMSProp. */
#define wb_Rule_options_(OPT, ARG)                                                                 \
    OPT(wb_pair, beta, WB_DEFAULT_PAIR)     /* {b1, b2}, or {b1} with the default b2 */            \
    OPT(wb_pair, ell, WB_DEFAULT_PAIR)      /* factors of step sizes: {shorter, longer} */         \
    OPT(wb_pair, gamma, WB_DEFAULT_PAIR)    /* bounds of step sizes: {lowest, highest} */          \
    OPT(double, eps, WB_DEFAULT)                                                                   \
    OPT(double, lambda, WB_DEFAULT)                                                                \
    OPT(double, delta, WB_DEFAULT)                                                                 \
    OPT(double, omega, WB_DEFAULT)                                                                 \
    OPT(bool, centered, false)                                                                     \
    OPT(double, eta, WB_DEFAULT)            /* the learning rate */                                \
    ARG(double, number, WB_DEFAULT)         /* eta, or the number that the rule takes by place */  \
    ARG(double, rho, WB_DEFAULT)
WB_OPTIONS_WITH_(wb_Rule_options, WB_FOREIGN_NUMBERS_);

/* The rules of the library, and the number that each takes by place: wb_ClipNorm(1) is
 * wb_ClipNorm(.omega = 1), in C and in C++. */
#define WB_RULES_(X)                                                                        \
    X(Descent, eta) X(Momentum, eta) X(Nesterov, eta) X(RMSProp, eta) X(Rprop, eta)         \
    X(Lion, eta) X(Adam, eta) X(AdamW, eta) X(OAdam, eta) X(AdaBelief, eta) X(RAdam, eta)   \
    X(AdaMax, eta) X(NAdam, eta) X(AMSGrad, eta) X(AdaGrad, eta) X(AdaDelta, rho)           \
    X(SignDecay, lambda) X(WeightDecay, lambda) X(ClipGrad, delta) X(ClipNorm, omega)       \
    X(LAMB, eta) X(Adafactor, eta) X(Muon, eta)

/* Rules update a parameter x with its gradient g in step t, which counts from 1.  Their states have
 * the shape of x, are f64 for f64 parameters and else f32, and start as 0 unless the comment names
 * another value.  Operations are elementwise.  A function that makes a rule returns NULL if a
 * number is wrong or memory is short. */

/** x <- x - eta g: wb_Descent(eta).  Default: eta 0.1. */
WB_API wb_rule *wb_Descent_with(const wb_Rule_options *o);
/** v <- rho v + eta g;  x <- x - v: wb_Momentum(eta, rho).  Defaults: eta 0.01, rho 0.9. */
WB_API wb_rule *wb_Momentum_with(const wb_Rule_options *o);
/** v <- rho v + eta g;  x <- x - (rho v + eta g), with the new v: wb_Nesterov(eta, rho).
 * Defaults: eta 0.001, rho 0.9.  While eta stays the same, the steps are
 * those of PyTorch's SGD with nesterov=True, whose velocity is without eta. */
WB_API wb_rule *wb_Nesterov_with(const wb_Rule_options *o);
/** v <- rho v + (1 - rho) g²;  x <- x - eta g / (sqrt(v) + eps): wb_RMSProp(eta, rho).  With
 * .centered, m <- rho m + (1 - rho) g, and the root is of max(v - m², 0); the rule is printed and
 * saved as CenteredRMSProp, and wb_adjust cannot change .centered.  Defaults: eta 0.001, rho 0.9,
 * eps 1e-8, centered false.  PyTorch has the same formula, without the maximum; its defaults
 * differ: eta 0.01, rho 0.99. */
WB_API wb_rule *wb_RMSProp_with(const wb_Rule_options *o);
/** Each element of x has a step size d, which starts at eta, and the gradient p of the step before,
 * which starts at 0.  If p g > 0, d <- min(ell[1] d, gamma[1]).  If p g < 0,
 * d <- max(ell[0] d, gamma[0]), and g <- 0.  Then p <- g;  x <- x - d sign(g): wb_Rprop(eta).  It
 * is for gradients of the whole dataset.  Defaults: eta 0.001, ell {0.5, 1.2}, gamma {1e-6, 50}.
 * As eta is only where d starts, wb_adjust refuses it.  PyTorch has the same formula; its eta is
 * 0.01.  (Riedmiller & Braun 1993) */
WB_API wb_rule *wb_Rprop_with(const wb_Rule_options *o);
/** m <- (1 - b2) m + b2 g;  x <- x - eta sign(b1 m + (b2 - b1) g): wb_Lion(eta).  Defaults:
 * eta 0.001, beta {0.9, 0.999}.  In this formula, which is that of Optimisers.jl, b2 is the weight
 * of the new gradient, so that with the default m is almost the last gradient.  In the paper b2 is
 * the weight of m; its steps with the decay rates c1 and c2 (0.9 and 0.99) are those of
 * .beta = {c1 (1 - c2) / c2, 1 - c2}.  (Chen et al. 2023) */
WB_API wb_rule *wb_Lion_with(const wb_Rule_options *o);
/** m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g²;
 * x <- x - eta (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps), in update t: wb_Adam(eta).
 * Defaults: eta 0.001, beta {0.9, 0.999}, eps 1e-8.  (Kingma & Ba 2015, algorithm 1) */
WB_API wb_rule *wb_Adam_with(const wb_Rule_options *o);
/** Adam with decoupled weight decay: each update also subtracts eta lambda x, with the value of x
 * before the update: wb_AdamW(eta, .lambda = 0.01).  Defaults: lambda 0.01, the others as Adam.
 * (Loshchilov & Hutter 2019) */
WB_API wb_rule *wb_AdamW_with(const wb_Rule_options *o);
/** Optimistic Adam: with Adam's step u of this update and w of the update before, which is 0 in the
 * first, x <- x - (2 u - w): wb_OAdam(eta).  Defaults: eta 0.001, beta {0.5, 0.9}, eps 1e-8.
 * (Daskalakis et al. 2018) */
WB_API wb_rule *wb_OAdam_with(const wb_Rule_options *o);
/** Adam with v <- b2 v + (1 - b2) (g - m)² + eps, where m is already updated: wb_AdaBelief(eta).
 * Defaults: eta 0.001, beta {0.9, 0.999}, eps 1e-16.  (Zhuang et al. 2020) */
WB_API wb_rule *wb_AdaBelief_with(const wb_Rule_options *o);
/** Rectified Adam: wb_RAdam(eta).  With m and v as in Adam, rho_inf = 2 / (1 - b2) - 1 and
 * rho_t = rho_inf - 2 t b2^t / (1 - b2^t):  if rho_t > 4, x <- x - r s, where s is Adam's step and
 * r = sqrt((rho_t - 4) (rho_t - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho_t));  else
 * x <- x - eta m / (1 - b1^t).  Defaults as Adam.  PyTorch rectifies if rho_t > 5, and adds eps
 * before the bias correction of v.  (Liu et al. 2020) */
WB_API wb_rule *wb_RAdam_with(const wb_Rule_options *o);
/** m <- b1 m + (1 - b1) g;  u <- max(b2 u, |g|);  x <- x - eta / (1 - b1^t) m / (u + eps):
 * wb_AdaMax(eta).  Defaults as Adam.  PyTorch adds eps to |g| instead.  (Kingma & Ba 2015,
 * algorithm 2) */
WB_API wb_rule *wb_AdaMax_with(const wb_Rule_options *o);
/** Adam with Nesterov momentum: with m and v as in Adam, x <- x - eta (b1 m / (1 - b1^(t + 1)) +
 * (1 - b1) g / (1 - b1^t)) / (sqrt(b2 v / (1 - b2^t)) + eps): wb_NAdam(eta).  Defaults as Adam.
 * PyTorch differs: its b1 grows from step to step, and it has no factor b2 below the root.
 * (Dozat 2016) */
WB_API wb_rule *wb_NAdam_with(const wb_Rule_options *o);
/** With m and v as in Adam, but without bias corrections: w <- max(w, v); x <- x - eta m / (sqrt(w)
 * + eps): wb_AMSGrad(eta).  m, v and w start at eps.  Defaults as Adam.  PyTorch's Adam with
 * amsgrad=True differs: it has the bias corrections, and starts at 0.  (Reddi et al. 2018) */
WB_API wb_rule *wb_AMSGrad_with(const wb_Rule_options *o);
/** v <- v + g²;  x <- x - eta g / (sqrt(v) + eps): wb_AdaGrad(eta).  v starts at eps.  Defaults:
 * eta 0.1, eps 1e-8.  PyTorch has the same formula; its defaults differ: eta 0.01, eps 1e-10, and v
 * starts at 0.  (Duchi et al. 2011) */
WB_API wb_rule *wb_AdaGrad_with(const wb_Rule_options *o);
/** v <- rho v + (1 - rho) g²;  u = g sqrt(w + eps) / sqrt(v + eps);  x <- x - u;
 * w <- rho w + (1 - rho) u²: wb_AdaDelta(rho).  It has no eta.  Defaults: rho 0.9, eps 1e-8.
 * PyTorch has the same formula, with u times an eta of 1; its eps is 1e-6.  (Zeiler 2012) */
WB_API wb_rule *wb_AdaDelta_with(const wb_Rule_options *o);
/** g <- g + lambda sign(x), the gradient of an L1 penalty, in a wb_OptimizerChain before another
 * rule: wb_SignDecay(lambda).  Default: lambda 1e-3. */
WB_API wb_rule *wb_SignDecay_with(const wb_Rule_options *o);
/** g <- g + lambda x, in a wb_OptimizerChain before another rule: wb_WeightDecay(lambda).
 * Default: lambda 5e-4. */
WB_API wb_rule *wb_WeightDecay_with(const wb_Rule_options *o);
/** g <- g with each element limited to [-delta, delta], in a wb_OptimizerChain before another rule:
 * wb_ClipGrad(delta).  Default: delta 10. */
WB_API wb_rule *wb_ClipGrad_with(const wb_Rule_options *o);
/** g <- g omega / |g| if |g| > omega, in a wb_OptimizerChain before another rule:
 * wb_ClipNorm(omega).  |g| is the Euclidean norm over the gradients of all parameters
 * together.  Default: omega 10. */
WB_API wb_rule *wb_ClipNorm_with(const wb_Rule_options *o);
/** Rules in sequence: wb_OptimizerChain(wb_ClipNorm(), wb_Adam()).  Each rule takes the result of
 * the rule before it as its gradient.  The result of the last rule is subtracted from x.  The rules
 * are copied.  Error: no rules. */
WB_API wb_rule *wb_OptimizerChain_array(int n, wb_rule *const *rules);

/** wb_OptimizerChain(wb_AccumGrad(4), wb_Adam()): each n-th wb_update applies the other rules to
 * the mean of the last n gradients; the other calls change no parameter.  It is the .accumulate of
 * wb_DistributedOptimizer (distributed.h): the same sums, also in f16, and in any place of a chain
 * it acts first.  Error: n is below 1.  Error of wb_setup: the chain has no other rule. */
WB_API wb_rule *wb_AccumGrad(int64_t n);

/* The next three rules look at a whole parameter, not only at its elements, so a state cannot
 * divide it over ranks (.shard of wb_DistributedOptimizer). */

/** LAMB: with m, v and Adam's step without eta, r = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) +
 * eps), u = r + lambda x;  x <- x - eta (|x| / |u|) u, with Euclidean norms, and 1 in place of a
 * quotient whose |x| or |u| is 0: wb_LAMB(eta).  Defaults: eta 0.001, beta {0.9, 0.999}, eps
 * 1e-6, lambda 0.01.  (You et al. 2020, algorithm 2, with phi(z) = z) */
WB_API wb_rule *wb_LAMB_with(const wb_Rule_options *o);
/** Adafactor: wb_Adafactor(eta).  With a = t^-rho, each parameter [..., n, m] has r [..., n, 1],
 * which averages the means of g² over the last axis, r <- (1 - a) r + a mean(g²), and c [..., 1, m]
 * those over the axis before it;  v = r c / max(mean of r over its axis n, eps).  Parameters with
 * fewer dimensions have v <- (1 - a) v + a g².  u = g / sqrt(max(v, eps²)); x <- x - eta lambda x -
 * min(eta, 1 / sqrt(t)) max(delta, rms(x)) u / max(1, rms(u) / omega), where rms is the root of the
 * mean square.  Defaults: eta 0.01, rho 0.8, eps 1.1920929e-7, delta 1e-3, omega 1, lambda 0.
 * PyTorch has the same formula; its names are lr, -beta2_decay, eps[0], eps[1], d and
 * weight_decay.  (Shazeer & Stern 2018) */
WB_API wb_rule *wb_Adafactor_with(const wb_Rule_options *o);
/** Muon: m <- rho m + (1 - rho) g;  u = rho m + (1 - rho) g, with the new m;  x <- x - eta lambda x
 * - eta sqrt(max(1, rows / columns)) O(u): wb_Muon(eta, rho).  O(u) replaces the singular values of
 * the matrix u by about 1: u / max(|u|, eps), then 5 times u <- 3.4445 u + (-4.775 u u^T + 2.0315
 * (u u^T)²) u, in f32 (PyTorch: in bf16).  A parameter of more than two dimensions is the matrix of
 * its first dimension and all others together; with fewer than two dimensions O(u) is u /
 * max(rms(u), eps), whose elements have the root mean square 1.  Defaults: eta 0.001, rho 0.95, eps
 * 1e-7, lambda 0.1, as in PyTorch, which takes matrices only.  (Jordan et al. 2024) */
WB_API wb_rule *wb_Muon_with(const wb_Rule_options *o);

/** What a rule of the program's own gets for one parameter in one update.  x, g and the states have
 * the shape of the parameter, and are f64 for f64 parameters and else f32, also in mixed precision.
 * The numbers are tensors without dimensions, of the same dtype; those that the rule does not have
 * are NULL. */
typedef struct wb_rule_step {
    wb_tensor *x, *g;                       /* the parameter, and its gradient */
    wb_tensor *state[3];                    /* the states before the update */
    wb_tensor *next[3];                     /* the states after it; `apply` sets .states of them */
    wb_tensor *t;                           /* the number of this update, from 1 */
    wb_tensor *eta, *rho, *beta[2], *eps, *lambda, *delta, *omega, *ell[2], *gamma[2];
} wb_rule_step;

/** A rule of the program's own, made of operations.
 *
 *     static wb_tensor *apply(wb_rule_step *s, void *ctx)
 *     {
 *         s->next[0] = wb_add(wb_mul(s->rho, s->state[0]), s->g);
 *         return wb_mul(s->eta, wb_sign(s->next[0]));
 *     }
 *     static const wb_rule_type signum = {"Signum", apply, .states = 1, .eta = 0.01, .rho = 0.9};
 *     wb_rule *rule = wb_CustomRule(&signum, .eta = 0.1);
 *
 * `apply` returns what is subtracted from x, or what the next rule of a wb_OptimizerChain takes as
 * its gradient; NULL: failed.  It must not evaluate (wb_item, wb_data).  All else is as with other
 * rules: printing, wb_adjust, schedules, checkpoints (by the name), mixed precision, accumulation,
 * wb_compile; and .shard, unless .whole is set. */
typedef struct wb_rule_type {
    const char *name;
    wb_tensor *(*apply)(wb_rule_step *s, void *ctx);
    int states;                             /* number of states of a parameter, 0 to 3 */
    double start[3];                        /* the value of all elements of a state at first */
    bool whole;                             /* apply needs whole parameters, not only elements */
    void *ctx;                              /* for apply; must live as long as the program */
    /* defaults of the numbers that the rule has, which are not 0; 0: the rule lacks the number */
    double eta, rho, beta[2], eps, lambda, delta, omega, ell[2], gamma[2];
    double reserved_[8];                    /* 0: for numbers of later versions */
} wb_rule_type;
/** A rule of the program's own: wb_CustomRule(&type, .eta = 0.1).  `type` must live as long as the
 * program.  Errors: no name or no apply; .states is not 0 to 3; the name of another rule; more than
 * 64 types; the errors of wb_Rule_options.  Errors of wb_update: apply returns NULL, or a result or
 * a next state that has another shape or dtype. */
WB_API wb_rule *wb_CustomRule_with(const wb_rule_type *type, const wb_Rule_options *o);

/** Options of wb_setup. */
#define wb_setup_options_(OPT, ARG)                                                                \
    OPT(bool, unguarded, false)             /* makes updates even if the loss is not finite */     \
    OPT(wb_schedule *, schedule, NULL)      /* as wb_set_schedule for all parameters */            \
    ARG(wb_dtype, mixed, WB_DTYPE_DEFAULT)  /* WB_BF16 or WB_F16; default: no mixed precision */
WB_OPTIONS(wb_setup_options);
/** The state of a rule for every trainable parameter of a layer or tree, on the parameter's device:
 * wb_setup(wb_Adam(), model).  Tied parameters share one state.  The rule is copied.  The state
 * does not hold the model: each wb_update takes it.  Errors: no trainable parameter; a tree has,
 * outside its layers, a floating tensor that is not a variable; .mixed is another dtype, or the
 * device does not have it; the call is in a function that wb_compile records.
 *
 * Mixed precision: the parameters are converted to .mixed in place, and the state keeps a master
 * copy of each parameter in f32; running statistics keep their dtype.  The rule works on the
 * masters, with gradients converted to f32, and the parameters get the rounded results.  From then
 * on layers convert their inputs.  A value that wb_load_state or wb_assign puts into the model also
 * replaces its master.  With WB_F16 the loss is scaled: see wb_scale_loss.
 *
 * Guard: an update is executed only if the loss that was differentiated is finite (with ClipNorm:
 * only if the norm of the gradients is finite).  Otherwise the evaluation of the update returns
 * WB_ERROR_NUMBER, and parameters, state and all other pending assignments keep their values; the
 * loss can be read.  A GPU looks at the guard itself, and the error comes with a later evaluation
 * (docs/site/guide/training.md).  .unguarded removes the guard from wb_update; wb_train stops at a
 * loss that is not finite in any case.  With WB_F16 the device skips an update whose gradients are
 * not finite. */
WB_API wb_opt_state *wb_setup_with(wb_rule *rule, void *model, const wb_setup_options *o);

/** The loss to differentiate, for a state with .mixed = WB_F16: the loss times a scale, in f32, so
 * that small gradients do not vanish in f16.  With any other state the result is `loss` itself.
 * wb_update divides the gradients by the scale.  wb_train needs no call of this function: it scales
 * the loss itself.
 *
 *     wb_tensor *loss = wb_mse(wb_call(model, x), y);
 *     wb_update(state, model, wb_gradient(wb_scale_loss(state, loss), model));
 *
 * The scale starts at 65536.  An update with a gradient that is not finite changes no parameter and
 * halves the scale; 2000 updates in a row without such a gradient double it.  This happens on the
 * device, and the host does not wait.  Errors: the loss is not floating, or has more than one
 * element. */
WB_API wb_tensor *wb_scale_loss(wb_opt_state *state, wb_tensor *loss);

/** Updates each parameter of a model by the rule of the state.  The assignments are recorded and
 * executed later, as in wb_assign.  `grads` has the structure of the model; parameters whose
 * gradient is WB_NONE, and frozen parameters, are skipped.  Returns 0, or an error code, and then
 * nothing was recorded.  Errors: state or gradients of another model; a state or a gradient on
 * another device than its parameter; .mixed = WB_F16, and wb_scale_loss was never called with this
 * state.
 *
 * A gradient g that the program reads must be evaluated before the update is executed, or in the
 * same evaluation: wb_eval(loss, g).  After the update the operands of g are overwritten
 * (WB_ERROR_VERSION).  In the root scope an update first executes the previous update, if that is
 * still pending (wb_scope_close). */
WB_API int wb_update(wb_opt_state *state, void *model, wb_tree *grads);
/** Like wb_update, but puts the new values into a new model, which belongs to the current scope,
 * and evaluates them at once.  The given model keeps its values; the state's moments advance.
 * NULL, with the state unchanged: an error of wb_update, or a loss that is not finite. */
WB_API wb_layer *wb_update_new(wb_opt_state *state, wb_layer *model, wb_tree *grads);

/** Changes numbers of the rule: wb_adjust(state, .eta = 1e-4).  In an OptimizerChain a number is
 * changed in each rule that has it, and for each parameter, also where wb_adjust_at has changed it.
 * A new eta ends all schedules.  Returns 0 or an error code, and then nothing is changed.
 * Errors: no number is given; a number that no rule uses; .centered; the eta of Rprop. */
WB_API int wb_adjust_with(wb_opt_state *state, const wb_Rule_options *o);
/** wb_adjust for the parameters below a path: wb_adjust_at(state, "encoder", .eta = 1e-5).  A path
 * is that of a parameter, such as "layers.0.weight", or of what contains it, such as "layers.0";
 * the path "" means all parameters.  In a path with '*', this is any text: with wb_adjust_at(state,
 * "*.bias", .lambda = 0) biases have no weight decay.  A tied parameter has several paths.  A new
 * eta ends the schedule of these parameters.  Checkpoints save the numbers.  All ranks must call it
 * alike.  Returns 0 or an error code, and then nothing is changed.  Errors: those of wb_adjust; no
 * parameter is below the path; .omega, since the norm is that of all parameters together. */
WB_API int wb_adjust_at_with(wb_opt_state *state, const char *path, const wb_Rule_options *o);
/** Sets *value to a number of the rule for the first parameter below a path, as the next update
 * uses it: wb_rule_number(state, "", "eta", &eta).  Names are those of the options, and "beta[0]",
 * "beta[1]", "ell[0]", ...  In an OptimizerChain it is that of the first rule that has it.  Returns
 * 0 or an error code.  Errors: no parameter is below the path; no rule has the number; the schedule
 * of the parameter fails. */
WB_API int wb_rule_number(wb_opt_state *state, const char *path, const char *name, double *value);
/** The learning rate of the parameters below a path, as in wb_adjust_at, becomes that of a
 * schedule: wb_set_schedule(state, "", wb_ScheduleExp(0.1, 0.999)).  Update t of the state, counted
 * from 1, has the eta wb_schedule_at(schedule, t), until a wb_adjust of eta.  With .accumulate only
 * the updates that change parameters count; with .mixed = WB_F16 those that the device skips
 * count too.  The count, not the schedule, is part of checkpoints: a program that resumes gives
 * the schedule again.  Learning rates are arguments of plans, and advance in a function of
 * wb_compile.  If the schedule fails, so does wb_update, and nothing is updated.  Returns 0 or
 * an error code.  Errors: no parameter is below the path; no rule has an eta that is more than a
 * start (Rprop); the call is in a function that wb_compile records. */
WB_API int wb_set_schedule(wb_opt_state *state, const char *path, wb_schedule *schedule);
/** Freezes the parameters below a path of the model such as "layers.0", as in wb_adjust_at; the
 * path "" means all parameters.  Updates skip them, and gradients that only frozen parameters
 * need are not computed.  A BatchNorm in train mode goes on updating its running statistics;
 * wb_testmode stops that.  Returns 0 or an error code.  Error: no parameter is below the path. */
WB_API int wb_freeze(wb_opt_state *state, const char *path);
/** Undoes wb_freeze for the parameters below a path.  Returns 0 or an error code, as wb_freeze. */
WB_API int wb_thaw(wb_opt_state *state, const char *path);
#ifndef __cplusplus
#define wb_Descent(...) WB_OPTIONS_(wb_Descent_with, wb_Rule_options, __VA_ARGS__)
#define wb_Momentum(...) WB_OPTIONS_(wb_Momentum_with, wb_Rule_options, __VA_ARGS__)
#define wb_Nesterov(...) WB_OPTIONS_(wb_Nesterov_with, wb_Rule_options, __VA_ARGS__)
#define wb_RMSProp(...) WB_OPTIONS_(wb_RMSProp_with, wb_Rule_options, __VA_ARGS__)
#define wb_Rprop(...) WB_OPTIONS_(wb_Rprop_with, wb_Rule_options, __VA_ARGS__)
#define wb_Lion(...) WB_OPTIONS_(wb_Lion_with, wb_Rule_options, __VA_ARGS__)
#define wb_OAdam(...) WB_OPTIONS_(wb_OAdam_with, wb_Rule_options, __VA_ARGS__)
#define wb_AdaBelief(...) WB_OPTIONS_(wb_AdaBelief_with, wb_Rule_options, __VA_ARGS__)
#define wb_RAdam(...) WB_OPTIONS_(wb_RAdam_with, wb_Rule_options, __VA_ARGS__)
#define wb_AdaMax(...) WB_OPTIONS_(wb_AdaMax_with, wb_Rule_options, __VA_ARGS__)
#define wb_NAdam(...) WB_OPTIONS_(wb_NAdam_with, wb_Rule_options, __VA_ARGS__)
#define wb_AMSGrad(...) WB_OPTIONS_(wb_AMSGrad_with, wb_Rule_options, __VA_ARGS__)
#define wb_AdaGrad(...) WB_OPTIONS_(wb_AdaGrad_with, wb_Rule_options, __VA_ARGS__)
#define wb_AdaDelta(...) WB_OPTIONS_(wb_AdaDelta_with, wb_Rule_options, __VA_ARGS__)
#define wb_SignDecay(...) WB_OPTIONS_(wb_SignDecay_with, wb_Rule_options, __VA_ARGS__)
#define wb_Adam(...) WB_OPTIONS_(wb_Adam_with, wb_Rule_options, __VA_ARGS__)
#define wb_AdamW(...) WB_OPTIONS_(wb_AdamW_with, wb_Rule_options, __VA_ARGS__)
#define wb_WeightDecay(...) WB_OPTIONS_(wb_WeightDecay_with, wb_Rule_options, __VA_ARGS__)
#define wb_ClipGrad(...) WB_OPTIONS_(wb_ClipGrad_with, wb_Rule_options, __VA_ARGS__)
#define wb_ClipNorm(...) WB_OPTIONS_(wb_ClipNorm_with, wb_Rule_options, __VA_ARGS__)
#define wb_LAMB(...) WB_OPTIONS_(wb_LAMB_with, wb_Rule_options, __VA_ARGS__)
#define wb_Adafactor(...) WB_OPTIONS_(wb_Adafactor_with, wb_Rule_options, __VA_ARGS__)
#define wb_Muon(...) WB_OPTIONS_(wb_Muon_with, wb_Rule_options, __VA_ARGS__)
#define wb_CustomRule(...) WB_RULE_(__VA_ARGS__, )
#define WB_RULE_(type, ...) \
    WB_CALL_WITH_(wb_CustomRule_with((type), WB_GET_(wb_Rule_options, __VA_ARGS__)))
#define wb_OptimizerChain(...)                        \
    wb_OptimizerChain_array(WB_NARGS_(__VA_ARGS__),   \
                            (wb_rule *[WB_NARGS_(__VA_ARGS__)]){__VA_ARGS__})
#define wb_setup(...) WB_SETUP_(__VA_ARGS__, )
#define WB_SETUP_(rule, model, ...) \
    WB_CALL_WITH_(wb_setup_with((rule), (model), WB_GET_(wb_setup_options, __VA_ARGS__)))
#define wb_adjust(state, ...) \
    WB_CALL_WITH_(wb_adjust_with((state), WB_GET_(wb_Rule_options, __VA_ARGS__)))
#define wb_adjust_at(state, path, ...) \
    WB_CALL_WITH_(wb_adjust_at_with((state), (path), WB_GET_(wb_Rule_options, __VA_ARGS__)))
#endif

/* ---- copies and averages of parameters ------------------------------------------------------- */

/** Copies the values of all parameters and of the states that are not trained, such as running
 * statistics, from one model, a layer or tree, to another of the same structure: wb_copy(to, from),
 * as for a target network.  Values are converted to the dtypes of `to` and moved to its devices.
 * Constants stay.  The assignments are recorded, as in wb_update, also in a function of wb_compile
 * where the devices are the same.  A parameter that has two places in `to` (tied) is assigned once.
 * Returns 0 or an error code, and then nothing is assigned.  Errors name the path: a name or a
 * tensor that one of the two does not have; other shapes; a constant in place of a parameter; one
 * parameter of `to` at two places that are two parameters in `from`. */
WB_API int wb_copy(void *to, void *from);

/** A copy of a model, a layer or tree, for wb_average: a model of its own, which can be called,
 * saved and loaded.  The parameters of a .mixed model (wb_setup) are f32 in it.
 * wb_average_of(model) is the typed form. */
WB_API void *wb_object_average_of(void *model);
/** Options of wb_average. */
#define wb_average_options_(OPT, ARG)                                                              \
    OPT(int64_t, count, 0)                  /* number of models in the mean; 0: .decay is used */  \
    ARG(double, decay, WB_DEFAULT)          /* from 0 to 1; default: 0.999 */
WB_OPTIONS(wb_average_options);
/** a <- decay a + (1 - decay) x for each parameter x of a model and a of its average:
 * wb_average(average, model, 0.999), after wb_update.  With .count = n, decay is n / (n + 1): the
 * average is the mean of n + 1 models (SWA).  Tensors that are not trained, such as running
 * statistics, are copied.  The assignments are recorded, as in wb_update, and executed with those
 * of the model.  In a function of wb_compile .decay and .count are constants.  wb_average_of makes
 * `average`; wb_checkpoint.average saves it.  Returns 0 or an error code.  Errors: the two are
 * different models; decay outside 0 to 1; negative .count.
 *
 * wb_average(target, model) does not copy: with the default decay it moves the target by 1/1000.
 * The log reports it once, for targets that wb_average_of did not make and that have other numbers
 * altogether.  For that the first call evaluates pending writes; later ones cost nothing more. */
WB_API int wb_average_with(void *average, void *model, const wb_average_options *o);
#ifndef __cplusplus
#define wb_average_of(model) WB_ONCE_(WB_AVERAGE_OF_, model, )
#define WB_AVERAGE_OF_(x, _) (__typeof__(x))wb_object_average_of(WB_MODEL_(x))
#define wb_average(...) WB_AVERAGE_(__VA_ARGS__, )
#define WB_AVERAGE_(average, model, ...) \
    WB_CALL_WITH_(wb_average_with((average), (model), WB_GET_(wb_average_options, __VA_ARGS__)))
#endif

/* ---- watching a number ----------------------------------------------------------------------- */

/** A watched number, such as the loss on held-out data after each epoch.  The program sets the
 * first three fields, and the others are 0 at first: wb_watch watch = {.wait = 3}. */
typedef struct wb_watch {
    int wait;                               /* the number of calls in a row that end the waiting */
    double min_dist;                        /* by how much the number must change; 0: an equal
                                               number is no worse */
    bool higher;                            /* higher numbers are better */
    int count;                              /* such calls in a row until now */
    bool begun;                             /* `score` is set: NaN is no best score */
    double score;                           /* the best score, or the last one for wb_plateau */
} wb_watch;
/** Whether the last .wait calls were all `bad`, as in Flux.patience.  This function and the three
 * below return false, with the error set, if their first argument is NULL. */
WB_API bool wb_patience(wb_watch *w, bool bad);
/** Whether none of the last .wait scores was better than the best one before by .min_dist or more,
 * as in Flux.early_stopping: with .min_dist 0 a score that equals the best one ends the row too.
 * Lower is better, or with .higher higher; the first call counts as an improvement; NaN is never
 * better. */
WB_API bool wb_early_stopping(wb_watch *w, double score);
/** Whether in the last .wait calls the score differed from that of the call before by less than
 * .min_dist, as in Flux.plateau, whose default is 1e-6. */
WB_API bool wb_plateau(wb_watch *w, double score);
/** Whether `seconds` have passed since *last, which is 0 at first, and then sets *last to now: true
 * in the first call and then at most once in that time, as in Flux.throttle:
 * static double last; if (wb_throttle(&last, 10)) report(). */
WB_API bool wb_throttle(double *last, double seconds);

/* ---- training -------------------------------------------------------------------------------- */

/** Returns the loss of a model on a batch, a floating tensor with one element; NULL on failure.
 * `model` is the model of wb_withgradient or wb_train; if that is a tree, the function casts it
 * back to wb_tree *.  (C has no type for "layer or tree" without a cast.  Most models are layers,
 * and their losses call them, so the type is a layer's: with void * the compiler would let any
 * pointer pass to wb_call.)  `ctx` is the argument of wb_withgradient, or the option of
 * wb_train. */
typedef wb_tensor *(*wb_loss)(wb_layer *model, wb_batch batch, void *ctx);

/** Calls a loss in train mode, returns it, and sets *grads to its gradient with respect to the
 * model, a layer or tree (wb_gradient).  `grads` may be NULL: no gradient.  On failure the result
 * and *grads are NULL, and running statistics are not updated.  In C and C++ ctx may be left out:
 * wb_withgradient(loss, model, batch, &grads). */
WB_API wb_tensor *wb_withgradient(wb_loss loss, void *model, wb_batch batch, wb_tree **grads,
                                  void *ctx);

/** Called by wb_train after each batch; epoch and batch count from 1.  If it returns a value other
 * than 0, the training ends with success, without a checkpoint of that epoch. */
typedef int (*wb_after_batch)(int epoch, int64_t batch, wb_tensor *loss, void *ctx);
/** Returns the metric of an epoch of wb_train.  An error of it ends the training. */
typedef double (*wb_epoch_metric)(wb_layer *model, int epoch, void *ctx);
/** Options of wb_train. */
#define wb_train_options_(OPT, ARG)                                                                \
    OPT(bool, progress, false)              /* shows a progress bar on standard error */           \
    /* Gets the "loss" of each update and, if there is .metric, the "metric" of each epoch.  The
     * step is the number of updates of the state until then.  Of ranks, that of rank 0 counts. */ \
    OPT(wb_logger *, logger, NULL)                                                                 \
    OPT(void *, ctx, NULL)                  /* passed to the loss, .each and .metric */            \
    OPT(wb_after_batch, each, NULL)                                                                \
    OPT(const char *, checkpoint, NULL)     /* a file, written after each epoch */                 \
    OPT(const char *, folder, NULL)         /* or a folder, for wb_keep_checkpoint; not both */    \
    OPT(const char *, name, NULL)           /* name of the checkpoints, as in wb_checkpoint */     \
    OPT(int, keep_last, 3)                  /* number of checkpoints to keep; negative: all */     \
    OPT(bool, keep_best, false)             /* also keeps the checkpoint of the best metric */     \
    OPT(bool, higher, false)                /* the best metric is the highest, not the lowest */   \
    OPT(bool, resume, false)                /* continues from the checkpoint, if there is one */   \
    OPT(wb_schedule *, schedule, NULL)      /* as wb_set_schedule for all parameters */            \
    /* the result of wb_average_of(model), which wb_average updates after each update */           \
    OPT(void *, average, NULL)                                                                     \
    OPT(double, decay, 0.999)               /* the decay of .average */                            \
    /* Ends the training, with success, after the epoch in which wb_early_stopping of the metric is
     * true.  Its .higher is the option .higher. */                                                \
    OPT(wb_watch *, stop, NULL)                                                                    \
    /* Multiplies eta by .factor after an epoch in which wb_early_stopping of the metric is true,
     * and sets its .count to 0. */                                                                \
    OPT(wb_watch *, reduce, NULL)                                                                  \
    OPT(double, factor, 0.1)                                                                       \
    OPT(wb_epoch_metric, metric, NULL)      /* default: the mean loss */                           \
    /* .epochs numbers: the mean loss of each epoch, in which the loss of a batch, with ranks the
     * mean of an update, counts as often as the batch has observations on this rank */            \
    OPT(double *, losses, NULL)                                                                    \
    OPT(double *, metrics, NULL)            /* .epochs numbers: the metric of each epoch */        \
    ARG(int, epochs, 1)                     /* 0 or more */
WB_OPTIONS(wb_train_options);
/** Trains a model, a layer or tree: computes loss, gradient and update for each batch.
 * wb_train(loss, model, loader, state, .epochs = 5, .progress = true).  Returns 0 or an error code.
 *
 * An update is executed only if the loss is finite (with ClipNorm: if the norm of the gradients is
 * finite).  A loss that is not finite ends the training with WB_ERROR_NUMBER ("loss is NaN on batch
 * 51"), and the model keeps the values from before that batch.
 *
 * The metric of a checkpoint, of .stop, of .reduce and in .metrics is what .metric returns for the
 * epoch.  While .metric runs, automatic mode is test mode.
 *
 *     double losses[20], errors[20];
 *     wb_train(loss, model, data, state, .epochs = 20, .losses = losses,
 *              .metric = held_out_error, .metrics = errors);
 *
 * A number that is NaN is that of an epoch that was not trained.
 *
 * With .resume a program that was stopped continues from its last checkpoint, with the same bits as
 * one that never stopped; .epochs also counts the epochs before.  docs/site/guide/training.md has
 * more about losses that are not finite, metrics, checkpoints and ranks.
 *
 * Errors: a loader without batches; negative .epochs; .checkpoint and .folder together; .resume
 * without either; .keep_best without .folder; .higher without .folder, .stop or .reduce;
 * .keep_last = 0; a .name that wb_save_checkpoint rejects; a .wait of .stop or .reduce below 1;
 * .factor outside 0 to 1; .reduce together with a schedule, also one of wb_set_schedule, or with a
 * rule without an eta that it can change (AdaDelta, Rprop); ranks with different numbers of batches
 * or .epochs, or of which only some have .average, .stop, .reduce or .metrics; a loss that depends
 * on no parameter that is trained; the errors of the loss, of wb_set_schedule and wb_average, of
 * evaluations and of files. */
WB_API int wb_train_with(wb_loss loss, void *model, wb_loader *data, wb_opt_state *state,
                         const wb_train_options *o);
#ifndef __cplusplus
#define wb_withgradient(...) WB_PASTE_(WB_WITHGRADIENT_, WB_NARGS_(__VA_ARGS__))(__VA_ARGS__)
#define WB_WITHGRADIENT_3(...) wb_withgradient(__VA_ARGS__)
#define WB_WITHGRADIENT_4(...) wb_withgradient(__VA_ARGS__, NULL)
#define WB_WITHGRADIENT_5(...) wb_withgradient(__VA_ARGS__)
#define WB_WITHGRADIENT_6(...) wb_withgradient(__VA_ARGS__)
#define wb_train(...) WB_TRAIN_(__VA_ARGS__, )
#define WB_TRAIN_(loss, model, data, state, ...) \
    WB_CALL_WITH_(wb_train_with((loss), (model), (data), (state), \
                                WB_GET_(wb_train_options, __VA_ARGS__)))
#endif

/* ---- progress bars and plots ----------------------------------------------------------------- */

/** A progress bar on standard error, with rate, remaining time and metrics; lines of text where
 * standard error is not a terminal.  The bar's length is the number of batches of the loader,
 * unknown if `loader` is NULL.  `format` and the arguments after it are the title, as for
 * printf. */
WB_API wb_progress *wb_progress_begin(wb_loader *loader, const char *format, ...)
    WB_PRINTF_(2, 3);
/** wb_progress_begin with a number of steps instead of a loader; 0: unknown. */
WB_API wb_progress *wb_progress_of(int64_t steps, const char *format, ...)
    WB_PRINTF_(2, 3);
/** Sets a metric to a tensor with one element.  A bar has at most 4 metrics; others are ignored.  A
 * call with the name of the first metric, or with NULL, also counts a step.  The next call for the
 * same metric reads `value`, so that this call does not wait for it.  If `value` is WB_NONE or
 * NULL, the metric gets no value. */
WB_API void wb_progress_step(wb_progress *p, const char *metric, wb_tensor *value);
/** Ends a progress bar with a last line: steps, duration, means of the metrics.  A bar that is
 * still running when its scope closes ends in the same way.  NULL is ignored. */
WB_API void wb_progress_end(wb_progress *p);

/** A line of a plot: n points (x[i], y[i]), and its name in the legend.  If the name is NULL, the
 * line is not in the legend. */
typedef struct { const char *name; int n; const double *x, *y; } wb_series;
/** Writes a plot of n_series lines, with axes and a legend, as an SVG file.  Texts that are NULL
 * are left out.  A point that is not finite leaves a gap.  Returns 0 or an error code.  Errors: no
 * series; the file cannot be written, and the one that was there before is unchanged. */
WB_API int wb_save_curves(const char *path, const char *title, const char *x_label,
                          const char *y_label, int n_series, const wb_series *series);

#ifdef __cplusplus
}
#endif
#endif
