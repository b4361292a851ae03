/* Rules and their state.  A rule is a list of parts, each with a kind (rules.c) and numbers; its
 * state has a slot for each distinct parameter: moments, which are variables, and how often it was
 * stepped. */
#ifndef WB__OPTIM_H
#define WB__OPTIM_H

#include "base/options.h"
#include "tree/tree.h"

enum { WB__MOMENTS = 2, WB__RULE_NUMBERS = 8, WB__MOST_NUMBERS = 9 };

/* One parameter under one part.  g is the gradient that arrives and, after, what the part makes of
 * it; x, g and the moments are of one floating dtype (f32 for half parameters). */
typedef struct {
    wb_tensor *x, *g;
    wb_tensor *moment[WB__MOMENTS];     /* as they are */
    wb_tensor *next[WB__MOMENTS];       /* to be assigned */
} wb__rule_step;

typedef struct {
    const char *name;
    int moments;
    wb_Rule_options defaults;           /* a number it does not have is 0 */
    /* The literals of the t-th step (from 1), at most WB__MOST_NUMBERS; a plan takes them when it
     * runs.  NULL: the numbers that it has, in the order of wb__rule_fields. */
    int (*numbers)(const wb_Rule_options *o, double t, double *out);
    bool (*apply)(wb__rule_step *s, wb_tensor *const *number);
    /* Where steps are counted on the device: makes of the numbers of step INFINITY those of the
     * steps t [slots], some of them [slots] too.  NULL: they do not depend on it. */
    bool (*counted)(wb_tensor **number, wb_tensor *t);
    bool all_together;                  /* ClipNorm: its number is made of all gradients */
} wb__rule_kind;

typedef struct { const wb__rule_kind *kind; wb_Rule_options o; } wb__rule_part;

struct wb_rule {
    wb__object object;
    int n;
    wb__rule_part *parts;
};

typedef struct {
    const char *path;                   /* of its first place, which owns it */
    int ndim;
    wb_dtype dtype;                     /* the parameter's */
    int64_t dims[WB_MAX_DIMS];
    wb_tensor **moments;                /* of all parts, one after the other, and in mixed precision
                                           the parameter itself, in f32 (counted) */
    int64_t steps, unsure;              /* of these, so many wait for their writes to be made */
    wb_tensor *written;                 /* the last step's new value (counted) */
    wb__setting frozen;
} wb__slot;

/* A place of a parameter in the model; tied places have one slot. */
typedef struct { char *path; int slot; } wb__step_operand_of_slot;

/* What scales the gradients of f16, on the device: the scale; the updates since it changed or one
 * was skipped; and of each slot the steps that were made, since the host cannot know which were. */
enum { WB__SCALE, WB__GOOD, WB__MADE, WB__SCALING };

struct wb_opt_state {
    wb__object object;
    wb_rule *rule;                      /* its own copy (counted) */
    wb_dtype mixed;                     /* of the parameters, where masters are kept; else 0 */
    wb_tensor *scaling[WB__SCALING];    /* variables of f32 (counted); NULL where nothing is scaled */
    bool scaled;                        /* a loss was scaled by it */
    bool unguarded;                     /* updates are made whatever the loss is */
    int n_moments;                      /* a slot, with the master */
    int n;
    wb__slot *slots;
    int n_places;
    wb__step_operand_of_slot *places;          /* in the order of the walk */
};

/* The fields of wb_Rule_options, for adjusting, printing and files. */
typedef struct { const char *name; size_t offset; } wb__rule_field;
extern const wb__rule_field wb__rule_fields[WB__RULE_NUMBERS];
static inline double *wb__rule_number(const wb_Rule_options *o, int field)
{
    return (double *)((char *)(uintptr_t)o + wb__rule_fields[field].offset);
}

/* A half has too few bits to average in. */
static inline wb_dtype wb__moment_dtype(wb_dtype parameter)
{
    return parameter == WB_F64 ? WB_F64 : WB_F32;
}

/* The moments of the rule alone. */
static inline int wb__rule_moments(const wb_opt_state *s) { return s->n_moments - (s->mixed != 0); }

int wb__rule_literals(const wb__rule_kind *kind, const wb_Rule_options *o, double t, double *out);
void wb__rule_read(wb_Rule_options *o, const wb_Rule_options *given);
bool wb__rule_check(const wb__rule_kind *kind, const wb_Rule_options *o);
wb_rule *wb__rule_copy(const wb_rule *rule);
void wb__rule_print(const wb_rule *rule, wb__text *t);

/* Takes back the counts of steps whose writes an evaluation that failed did not make. */
void wb__opt_settle(wb_opt_state *s);

/* mixed.c: masters and scaled gradients. */
extern const char *const wb__scaling_names[WB__SCALING];
/* The parameters become s->mixed, if all can. */
int wb__mixed_narrow(const wb_opt_state *s, void *model);
wb_tensor *wb__mixed_master(wb_tensor *parameter);      /* a variable, counted for the caller */
int wb__scaling_new(wb_opt_state *s, const wb_device *d);

/* One update with scaled gradients: whether all are finite, what to multiply them with, the steps t
 * [slots] if this one is made, and the state after it. */
typedef struct {
    wb_tensor *ok, *inverse, *t, *next[WB__SCALING];
} wb__scaling_step;
/* The count of what is not finite, with that of one more gradient (sum NULL: the first). */
wb_tensor *wb__scaling_count(wb_tensor *sum, wb_tensor *g);
/* bad: such a count of each slot that takes part, else NULL; at least one does. */
bool wb__scaling_begin(const wb_opt_state *s, wb_tensor *const *bad, wb__scaling_step *step);
wb_tensor *wb__scaling_undo(const wb__scaling_step *step, wb_tensor *g);
wb_tensor *wb__scaling_number(wb_tensor *numbers, int slot);    /* one of [slots] */

/* move.c: behind wb_to and wb_device_of. */
void *wb__opt_to(void *state, const wb_device *d, wb_dtype dtype);
const wb_device *wb__opt_device(void *state);

#endif
