/* Optimisation rules and their state.  A rule is a list of parts, each with a kind (formulas.c) and
 * hyperparameters.  The state has a slot for each distinct parameter.  A slot holds the moments,
 * which are variables, and the step count of the parameter. */
#ifndef WB__OPTIM_H
#define WB__OPTIM_H

#include "base/options.h"
#include "engine/journal.h"
#include "tree/tree.h"

enum { WB__MOMENTS = 3, WB__RULE_NUMBERS = 12, WB__MAX_NUMBERS = 13 };

/* The input and the result of one part of a rule for one parameter x.  `apply` replaces the
 * gradient g by the result of the part.  x, g and the moments have the dtype of the parameter, but
 * f32 instead of f16 and bf16. */
typedef struct {
    const struct wb__rule_kind *kind;
    wb_tensor *x, *g;                   /* the parameter, its gradient */
    wb_tensor *moment[WB__MOMENTS];     /* before the update */
    wb_tensor *next[WB__MOMENTS];       /* after the update, to be assigned */
} wb__rule_step;

/* Where the moments of a rule start: at 0; or at eps; or the first moment at 0 and the second,
 * which has a step size for each element, at eta, which the rule uses for nothing else. */
typedef enum { WB__FROM_ZERO, WB__FROM_EPS, WB__STEPS_FROM_ETA } wb__moment_start;

typedef struct wb__rule_kind {
    const char *name;
    int moments;
    wb__moment_start start;
    /* A default of 0: the rule lacks this hyperparameter, unless its bit in `zeros` is set. */
    wb_Rule_options defaults;
    unsigned zeros;
    /* Writes the numbers that `apply` uses in step t to `out` and returns how many, at most
     * WB__MAX_NUMBERS.  The first step has t = 1.  If `numbers` is NULL, the numbers are the
     * hyperparameters of the rule, in the order of wb__rule_fields. */
    int (*numbers)(const wb_Rule_options *o, double t, double *out);
    bool (*apply)(wb__rule_step *s, wb_tensor *const *number);
    /* With f16 the step counts are a tensor t [slots] on the device, which the host does not read.
     * So `number` holds the numbers of step INFINITY, and `counted` replaces each number that
     * depends on the step by a tensor [slots] computed from t.  NULL: no number depends on it. */
    bool (*counted)(wb_tensor **number, wb_tensor *t);
    bool all_together;                  /* number[0] is computed from all gradients (ClipNorm) */
    bool whole;                         /* `apply` needs whole parameters, not a rank's part */
    /* Changes *ndim and dims from a parameter's shape to a moment's.  NULL: they are equal. */
    void (*shape)(int moment, int *ndim, int64_t *dims);
    const wb_rule_type *own;            /* type of a program's rule, whose last number is t */
} wb__rule_kind;

typedef struct { const wb__rule_kind *kind; wb_Rule_options o; } wb__rule_part;

struct wb_rule {
    wb__object object;
    int n;
    wb__rule_part *parts;
    int64_t bucket;     /* bytes of the buckets in which ranks average gradients; 0: no averaging */
    bool shard;         /* the state is divided over the ranks */
    int64_t accumulate; /* number of batches whose mean gradient makes an update; 0: one batch */
};

/* The state of one distinct parameter. */
typedef struct {
    /* first path of the parameter in the model; the string belongs to wb_opt_state.paths */
    const char *path;
    int ndim;
    wb_dtype dtype;                     /* dtype of the parameter */
    int64_t dims[WB_MAX_DIMS];
    /* references to the moments of all parts of the rule in order, followed by the f32 master in
     * mixed precision.  They have the shape of the parameter, or, if the state is divided,
     * [wb__part_length] */
    wb_tensor **moments;
    wb_tensor *sum;     /* variable: sum of accumulated gradients (reference); NULL: not needed */
    wb__setting frozen;
    /* numbers of the parts of the rule for this slot alone; NULL: those of the rule */
    wb_Rule_options *own;
    wb_schedule *schedule;              /* schedule of eta (reference), or NULL */
} wb__slot;

/* The counters of the updates.  They are an object of their own, to which the journal holds
 * references: pending updates are counted, and the journal undoes the counts of cancelled ones. */
typedef struct {
    wb__object object;
    size_t bytes;                       /* size of this struct */
    int64_t updates;                    /* updates so far, which are the t of schedules */
    int64_t accumulated;                /* batches in the sums of gradients */
    struct {
        int64_t steps;                  /* updates of the slot's parameter */
        bool summed;                    /* an accumulated batch had a gradient for the slot */
    } slot[];
} wb__opt_counts;
/* Returns new counts of n slots: those of `from`, or zeros if `from` is NULL.  The caller owns a
 * reference.  NULL: out of memory. */
wb__opt_counts *wb__opt_counts_new(int n, const wb__opt_counts *from);

/* The path of a parameter in the model, and the index of its slot.  A tied parameter has several
 * paths and one slot. */
typedef struct { char *path; int slot; } wb__parameter_path;

/* Indices into wb_opt_state.scaling, the variables of the f16 loss scaling on the device.
 * WB__SCALE is the scale.  WB__SINCE_CHANGE counts updates, from 0 again when an update is skipped
 * or the scale is due to grow.  WB__STEPS_MADE [slots] is the step count of each slot. */
enum { WB__SCALE, WB__SINCE_CHANGE, WB__STEPS_MADE, WB__SCALING };

struct wb_opt_state {
    wb__object object;
    wb_rule *rule;                      /* a copy (reference) */
    wb_dtype mixed;                     /* dtype of the parameters in mixed precision, else 0 */
    wb_tensor *scaling[WB__SCALING];    /* f32 variables (references); NULL: no loss scaling */
    bool scaled;                        /* wb_scale_loss has been called */
    bool keeps_loss;            /* wb_update sets mean_loss, if the rule is distributed */
    wb_tensor *mean_loss;       /* the last update's loss, the mean over ranks and accumulated
                                   batches (reference), or NULL */
    wb_tensor *loss_sum;        /* a variable (reference); NULL: the rule does not accumulate */
    wb__opt_counts *counts;     /* (reference) */
    uint32_t recorded;          /* id of the last recording of an update with accumulation */
    int parts, part;            /* number of ranks that divide the state (1: none do), and the rank
                                   whose part this state is */
    /* the first collective of an update: allreduce or reduce_scatter, elements for each rank */
    struct { int kind; wb_dtype dtype; int64_t n; } first;
    uint32_t changes;           /* counter of changes of the slots' own numbers and schedules */
    int64_t agreed;     /* hash of what the ranks exchange, which they compared; 0: not yet */
    bool gives;         /* rank 0 loads a checkpoint and sends the others their parts */
    bool unguarded;             /* wb_update does not check that the loss or norm is finite */
    int n_moments;                      /* number of moments per slot, the master included */
    int n;
    wb__slot *slots;
    int n_paths;
    wb__parameter_path *paths;           /* paths of parameters, in the order of wb__walk */
};

/* A hyperparameter in wb_Rule_options.  Files and messages use `name`.  `option` is the name of the
 * option.  For the numbers of .beta, `name` is "beta[0]" or "beta[1]" and `option` is "beta". */
typedef struct {
    const char *name, *option;
    size_t offset;
} wb__rule_field;
extern const wb__rule_field wb__rule_fields[WB__RULE_NUMBERS];
enum { WB__ETA, WB__LAMBDA = 5 };       /* the indices of eta and lambda */
static inline double *wb__rule_number(const wb_Rule_options *o, int field)
{
    return (double *)((char *)(uintptr_t)o + wb__rule_fields[field].offset);
}

/* Returns the dtype of moments, at least f32, because f16 and bf16 have too few bits for
 * averages. */
static inline wb_dtype wb__moment_dtype(wb_dtype parameter)
{
    return parameter == WB_F64 ? WB_F64 : WB_F32;
}

/* Returns the number of moments per slot, without the master. */
static inline int wb__rule_moments(const wb_opt_state *s) { return s->n_moments - (s->mixed != 0); }

/* The square of a norm of f32 or f64 elements x: `plain` is sum(x^2), and `shrunk` is sum((2^-80
 * x)^2), for the case that `plain` overflows: in f32 where |x| > 2^64, in f64 where |x| > 2^512.
 * (In f64 `shrunk` overflows where |x| > 2^592.)  NULL fields: no x yet. */
typedef struct { wb_tensor *plain, *shrunk; } wb__squares;
bool wb__squares_add(wb__squares *sum, wb_tensor *x);
wb_tensor *wb__norm_of(wb__squares s, bool inverse);
wb_tensor *wb__norm_finite(wb__squares s);
/* Sets out[0 .. 3] to the weights that wb__averages uses, and returns 4. */
int wb__weights(const wb_Rule_options *o, double *out);
/* Updates two moments to averages of g and g^2.  number[0 .. 3] are their weights. */
bool wb__averages(wb__rule_step *s, wb_tensor *const *number);
/* Sets the numbers from out[n] on, in step INFINITY, to those of wb__complement_of_power for both
 * betas. */
int wb__logarithms(const wb_Rule_options *o, double t, int n, double *out);
/* Returns 1 - b^t, accurate also for b near 1.  minus_half_log is -log(b) / 2. */
wb_tensor *wb__complement_of_power(wb_tensor *minus_half_log, wb_tensor *t);

int wb__rule_literals(const wb__rule_kind *kind, const wb_Rule_options *o, double t, double *out);
/* Reads the options of a rule into *o.  `rule` is the rule's name in WB_RULES_, which has the
 * number that the rule takes by place, without a name; NULL: eta. */
bool wb__rule_read(const char *what, const char *rule, wb_Rule_options *o,
                   const wb_Rule_options *given);
/* Returns a rule of one part, of the kind `centred` if the option .centered is true.  NULL: failed;
 * a rule without such a kind refuses the option. */
wb_rule *wb__rule_of(const wb__rule_kind *kind, const wb__rule_kind *centred,
                     const wb_Rule_options *given);
/* Returns false, with the error set, if a number is outside its range. */
bool wb__rule_check(const wb__rule_kind *kind, const wb_Rule_options *o);
/* Returns the value at which a moment starts.  `moment` counts over all parts of the rule. */
double wb__rule_start(const wb_rule *rule, int moment);
/* Sets *ndim and dims [WB_MAX_DIMS] to the shape of a moment of a state that is not divided, or of
 * the master. */
void wb__moment_shape(const wb_opt_state *s, const wb__slot *slot, int moment, int *ndim,
                      int64_t *dims);
/* Returns a rule of n parts, which the caller fills in.  NULL: out of memory. */
wb_rule *wb__rule_new(int n);
/* Returns the name of the first part that needs whole parameters; NULL: no part does. */
const char *wb__rule_whole(const wb_rule *rule);
/* Whether a rule of the library has this name. */
bool wb__rule_known(const char *name);
wb_rule *wb__rule_copy(const wb_rule *rule);
void wb__rule_print(const wb_rule *rule, wb__text *t);

/* ---- numbers.c, adjust.c and schedules.c ----------------------------------------------------- */

/* Whether rules of a kind, or the rule of a part, have this hyperparameter. */
static inline bool wb__kind_has(const wb__rule_kind *kind, int field)
{
    return *wb__rule_number(&kind->defaults, field) != 0 || kind->zeros >> field & 1;
}
static inline bool wb__part_has(const wb__rule_part *part, int field)
{
    return wb__kind_has(part->kind, field);
}
/* Whether a schedule gives the eta of the part. */
static inline bool wb__part_follows(const wb__rule_part *part)
{
    return wb__part_has(part, WB__ETA) && part->kind->start != WB__STEPS_FROM_ETA;
}
/* Returns 0 if `by`, such as "a schedule", can change an eta of the rule, else an error code. */
int wb__rule_follows(const char *what, const wb_rule *rule, const char *by);
/* Sets *o to the hyperparameters of part p of the rule for the next step of the slot.  False, with
 * the error set: its schedule failed. */
bool wb__slot_options(const wb_opt_state *s, int p, int slot, wb_Rule_options *o);
/* Whether two slots have the same hyperparameters in part p of the rule. */
bool wb__slots_alike(const wb_opt_state *s, int p, int a, int b);
/* Returns the number of a slot's next step, which is at least 1.  Returns INFINITY if the device
 * counts the steps (f16). */
double wb__next_step(const wb_opt_state *s, int slot);
/* Sets `out` to the numbers of part p of the rule for the slot's next step, as scalars of `dtype`.
 * Each replay of a recording computes the numbers again.  t is wb__scaling_step.t.  Returns 0 or an
 * error code. */
int wb__literals(wb_opt_state *s, int p, int slot, wb_dtype dtype, wb_tensor *t, wb_tensor **out);
/* Whether the schedules of the state have values for the next update. */
bool wb__schedules_fit(const wb_opt_state *s);
/* Gives the slot numbers of its own, equal to its present numbers, or takes them away.  Returns 0
 * or an error code. */
int wb__slot_own(const wb_opt_state *s, wb__slot *slot, bool own);
/* Makes `schedule` the schedule of the slot; NULL: the slot has none. */
void wb__slot_follow(wb_opt_state *s, wb__slot *slot, wb_schedule *schedule);
/* Whether `schedule` is a schedule; else sets an error that begins with `what`. */
bool wb__schedule_given(const char *what, const wb_schedule *schedule);
void wb__schedule_print(const wb_schedule *schedule, wb__text *t);

/* ---- ranks.c --------------------------------------------------------------------------------- */

/* Part r of a parameter of a divided state is elements r * length to (r + 1) * length - 1 of the
 * parameter in one dimension, which zeros fill up to parts * length elements. */

/* Returns the number of elements of a part of the slot's parameter. */
int64_t wb__part_length(const wb_opt_state *s, const wb__slot *slot);
/* Returns this rank's part [length] of x, which has the shape of the slot's parameter; x itself if
 * the state is whole.  NULL: failed. */
wb_tensor *wb__own_part(const wb_opt_state *s, const wb__slot *slot, wb_tensor *x);

/* The functions below append collectives of the ranks.  *before is the operation that the
 * collectives follow, or NULL, and becomes the last of them.  Element i of an array belongs to slot
 * i. */

/* Sets *before to the last operation of the pending updates, if there are any, since other ranks
 * may have evaluated these updates already.  Returns 0 or an error code. */
int wb__ranks_begin(wb_opt_state *s, wb_tensor **before);
/* Records that an update is pending.  `last` is its last operation, and may be NULL. */
void wb__ranks_pending(wb_tensor *last);
/* Returns 0 if the state is divided over the present ranks, or need not be divided, else an error
 * code. */
int wb__ranks_check(const char *what, const wb_opt_state *s);
/* Replaces the sums *g[i] of the gradients of `batches` batches, some of which may be NULL, and the
 * sum of the losses, which may be NULL, by their means over these batches and the ranks; if the
 * state is divided, gradients by this rank's part of them.  An error if the ranks have gradients of
 * different parameters.  Returns 0 or an error code. */
int wb__ranks_mean(wb_opt_state *s, int64_t batches, wb_tensor **const *g, wb_tensor **loss,
                   wb_tensor **before);
/* Replaces the parts *x[i], some of which may be NULL, of a divided state by whole tensors.
 * Returns 0 or an error code. */
int wb__ranks_gather(const wb_opt_state *s, wb_tensor **const *x, wb_tensor **before);
/* Returns the sum of the ranks' x.  NULL: failed. */
wb_tensor *wb__ranks_sum(wb_tensor *x, wb_tensor **before);

/* ---- other files ----------------------------------------------------------------------------- */

/* Returns a variable of the slot, which shows the slot's device; NULL if the slot has none. */
static inline const wb_tensor *wb__slot_variable(const wb_opt_state *s, const wb__slot *slot)
{
    return s->n_moments ? slot->moments[0] : slot->sum;
}

/* Returns a variable on d whose elements are `value`.  The caller owns a reference.  NULL:
 * failed. */
wb_tensor *wb__new_filled(const wb_device *d, double value, wb_dtype dtype, int ndim,
                          const int64_t *dims, const char *name);

/* Computes a wb_update that applies the accumulated gradients, of however many batches.  With grads
 * = NULL no batch is added.  Returns 0 or an error code. */
int wb__update_now(wb_opt_state *s, void *model, wb_tree *grads);

/* accumulate.c: the sums of gradients.  `applies` is whether an update applies the sums, or only
 * adds gradients to them. */
/* Makes the sum of the losses.  Returns 0 or an error code. */
int wb__sums_new(wb_opt_state *s);
/* Whether the next wb_update applies the sums. */
bool wb__sums_apply_next(const wb_opt_state *s);
/* Adds the gradients g[i], some of which may be NULL, and the loss, which may be NULL, to the sums.
 * Sets next[i] to the new value of the sum of slot i, or to NULL if it stays, and next[s->n] to
 * that of the losses.  If `applies`, sets g[i] and *loss to the sums, else *loss to NULL.  Returns
 * 0 or an error code. */
int wb__sums_add(wb_opt_state *s, bool applies, wb_tensor **const *g, wb_tensor **loss,
                 wb_tensor **next);
/* Counts the update whose new sums are `next`, and while wb_compile records, each of its replays.
 * Returns 0 or an error code. */
int wb__sums_count(wb_opt_state *s, bool applies, wb_tensor *const *next);
/* Sets an error that begins with `what`, and returns its code, if batches are accumulated. */
int wb__sums_whole(const char *what, const wb_opt_state *s);
/* Drops the accumulated batches.  Returns 0 or an error code: WB_ERROR_NUMBER, after dropping them,
 * if the guard of the last update was not finite. */
int wb__sums_drop(wb_opt_state *s);

/* mixed.c: master copies and loss scaling. */
extern const char *const wb__scaling_names[WB__SCALING];
/* Converts all parameters of the model to s->mixed; on failure converts none. */
int wb__mixed_narrow(const wb_opt_state *s, void *model);
/* Returns the f32 master copy of this rank's part of a parameter, a variable with the same value.
 * The caller owns a reference. */
wb_tensor *wb__mixed_master(const wb_opt_state *s, const wb__slot *slot, wb_tensor *parameter);
/* Returns the f32 value from which an update of x starts.  Elements of x that equal the rounded
 * master take the value of the master.  The other elements, which the program has assigned, keep
 * the value of x. */
wb_tensor *wb__mixed_value(wb_tensor *x, wb_tensor *master);
int wb__scaling_new(wb_opt_state *s, const wb_device *d);

/* The tensors of one update with loss scaling.  `ok` is whether all gradients are finite, `inverse`
 * is 1 / scale, t [slots] has the update's number for each slot if the update is made, and `next`
 * has the new values of s->scaling. */
typedef struct {
    wb_tensor *ok, *inverse, *t, *next[WB__SCALING];
} wb__scaling_step;
/* Returns `sum` plus the number of elements of g that are not finite.  A NULL `sum` counts as 0. */
wb_tensor *wb__scaling_count(wb_tensor *sum, wb_tensor *g);
/* Returns the sum of all bad[i].  bad[i] is the wb__scaling_count of slot i, or NULL if the slot
 * has no gradient; at least one slot has a gradient.  NULL: failed. */
wb_tensor *wb__scaling_total(const wb_opt_state *s, wb_tensor *const *bad);
/* Fills *step for an update in which slot i has a gradient if bad[i] is not NULL, and `total`
 * elements of gradients are not finite.  False, with the error set, on failure. */
bool wb__scaling_begin(const wb_opt_state *s, wb_tensor *const *bad, wb_tensor *total,
                       wb__scaling_step *step);
wb_tensor *wb__scaling_undo(const wb__scaling_step *step, wb_tensor *g);

/* Returns element `slot` of a tensor [slots], as a scalar. */
wb_tensor *wb__scaling_number(wb_tensor *numbers, int slot);
/* move.c: wb_to and wb_device_of of a state. */
void *wb__opt_to(void *state, const wb_device *d, wb_dtype dtype);
const wb_device *wb__opt_device(void *state);

#endif
