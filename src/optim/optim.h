/* Optimisation rules and their state. A rule is a list of parts, each with a kind (rules.c) and
 * hyperparameters ("numbers"). The state has a slot for each distinct parameter: its moments, which
 * are variables, and its step count. */
#ifndef WB__OPTIM_H
#define WB__OPTIM_H

#include "base/options.h"
#include "tree/tree.h"

enum { WB__MOMENTS = 2, WB__RULE_NUMBERS = 8, WB__MAX_NUMBERS = 9 };

/* One parameter in one part of a rule. g is the incoming gradient; `apply` replaces it by the
 * part's result. x, g and the moments have one floating dtype (f32 for f16 and bf16 parameters). */
typedef struct {
    wb_tensor *x, *g;
    wb_tensor *moment[WB__MOMENTS];     /* before the step */
    wb_tensor *next[WB__MOMENTS];       /* after the step, to be assigned */
} wb__rule_step;

typedef struct {
    const char *name;
    int moments;
    wb_Rule_options defaults;           /* 0: the rule has no such number */
    /* Writes the literals of step t (1 is the first), at most WB__MAX_NUMBERS, and returns how
     * many. A plan reads them each time it runs. NULL: the rule's own numbers, in the order of
     * wb__rule_fields. */
    int (*numbers)(const wb_Rule_options *o, double t, double *out);
    bool (*apply)(wb__rule_step *s, wb_tensor *const *number);
    /* For steps counted on the device (f16): `number` holds the literals of step INFINITY; replaces
     * the literals that depend on the step by tensors computed from t [slots]. NULL: none depend on
     * it. */
    bool (*counted)(wb_tensor **number, wb_tensor *t);
    bool all_together;                  /* ClipNorm: its number is computed from all gradients */
} wb__rule_kind;

typedef struct { const wb__rule_kind *kind; wb_Rule_options o; } wb__rule_part;

struct wb_rule {
    wb__object object;
    int n;
    wb__rule_part *parts;
};

typedef struct {
    /* the parameter's first path in the model; owned by that wb__parameter_path */
    const char *path;
    int ndim;
    wb_dtype dtype;                     /* dtype of the parameter */
    int64_t dims[WB_MAX_DIMS];
    /* the moments of all parts in order; in mixed precision, behind them the f32 master
     * (references) */
    wb_tensor **moments;
    int64_t steps;
    int64_t unsure;                     /* steps whose writes are pending; part of `steps` */
    wb_tensor *written;                 /* the value from the last step (reference) */
    wb__setting frozen;
} wb__slot;

/* The path of a parameter in the model. Tied parameters have several paths and one slot. */
typedef struct { char *path; int slot; } wb__parameter_path;

/* Variables of the f16 loss scaling, on the device: the scale; the updates since the scale changed
 * or an update was skipped; and for each slot its step count, which the host cannot know. */
enum { WB__SCALE, WB__SINCE_CHANGE, WB__STEPS_MADE, WB__SCALING };

struct wb_opt_state {
    wb__object object;
    wb_rule *rule;                      /* a copy (reference) */
    wb_dtype mixed;                     /* dtype of the parameters in mixed precision, else 0 */
    wb_tensor *scaling[WB__SCALING];    /* f32 variables (references); NULL: no loss scaling */
    bool scaled;                        /* wb_scale_loss has been called */
    bool unguarded;             /* no check that loss or norm is finite; f16 has its own check */
    int n_moments;                      /* per slot, the master included */
    int n;
    wb__slot *slots;
    int n_paths;
    wb__parameter_path *paths;           /* in the order of wb__walk */
};

/* The fields of wb_Rule_options, for wb_adjust, printing and files. */
typedef struct {
    const char *name, *option;
    int position;               /* index of the option if it is given without a
                                 * name; -1: it needs its name */
    size_t offset;
} wb__rule_field;
extern const wb__rule_field wb__rule_fields[WB__RULE_NUMBERS];
static inline double *wb__rule_number(const wb_Rule_options *o, int field)
{
    return (double *)((char *)(uintptr_t)o + wb__rule_fields[field].offset);
}

/* Moments are at least f32: f16 and bf16 have too few bits for averages. */
static inline wb_dtype wb__moment_dtype(wb_dtype parameter)
{
    return parameter == WB_F64 ? WB_F64 : WB_F32;
}

/* Moments per slot without the master. */
static inline int wb__rule_moments(const wb_opt_state *s) { return s->n_moments - (s->mixed != 0); }

int wb__rule_literals(const wb__rule_kind *kind, const wb_Rule_options *o, double t, double *out);
/* Reads options: numbers that are not given become 0, numbers given as 0 become WB__ZERO. */
bool wb__rule_read(const char *what, wb_Rule_options *o, const wb_Rule_options *given);
bool wb__rule_check(const wb__rule_kind *kind, const wb_Rule_options *o);
wb_rule *wb__rule_copy(const wb_rule *rule);
void wb__rule_print(const wb_rule *rule, wb__text *t);

/* Subtracts steps whose writes were undone by a failed evaluation from the step counts. */
void wb__opt_undo_failed(wb_opt_state *s);

/* mixed.c: master copies and loss scaling. */
extern const char *const wb__scaling_names[WB__SCALING];
/* Converts all parameters of the model to s->mixed; on failure converts none. */
int wb__mixed_narrow(const wb_opt_state *s, void *model);
/* Makes an f32 variable with the parameter's value; the caller owns a reference. */
wb_tensor *wb__mixed_master(wb_tensor *parameter);
int wb__scaling_new(wb_opt_state *s, const wb_device *d);

/* One update with loss scaling: ok (all gradients are finite), the inverse of the scale, the step
 * numbers t [slots] if the update is made, and the next values of s->scaling. */
typedef struct {
    wb_tensor *ok, *inverse, *t, *next[WB__SCALING];
} wb__scaling_step;
/* Adds the number of elements of g that are not finite to `sum`; NULL is 0. */
wb_tensor *wb__scaling_count(wb_tensor *sum, wb_tensor *g);
/* Fills *step for an update. bad[i] is the wb__scaling_count of slot i, or NULL if the slot has no
 * gradient; at least one is not NULL. False: failed, with the error set. */
bool wb__scaling_begin(const wb_opt_state *s, wb_tensor *const *bad, wb__scaling_step *step);
wb_tensor *wb__scaling_undo(const wb__scaling_step *step, wb_tensor *g);

/* Returns element `slot` of a tensor [slots], as a scalar. */
wb_tensor *wb__scaling_number(wb_tensor *numbers, int slot);
/* move.c: wb_to and wb_device_of of a state. */
void *wb__opt_to(void *state, const wb_device *d, wb_dtype dtype);
const wb_device *wb__opt_device(void *state);

#endif
