/* Rules and their state.  A rule is a list of parts, each with a kind (rules.c) and numbers; its
 * state has a slot for each distinct parameter: moments, which are variables, and how often it was
 * stepped. */
#ifndef WB__OPTIM_H
#define WB__OPTIM_H

#include "base/options.h"
#include "tree/tree.h"

enum { WB__MOMENTS = 2, WB__RULE_NUMBERS = 8 };

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
    wb_rule_options defaults;           /* a number it does not have is 0 */
    /* The literals of the t-th step (from 1); a plan takes them when it runs. */
    int (*numbers)(const wb_rule_options *o, double t, double *out);
    bool (*apply)(wb__rule_step *s, wb_tensor *const *number);
    bool all_together;                  /* ClipNorm: its number is made of all gradients */
} wb__rule_kind;

typedef struct { const wb__rule_kind *kind; wb_rule_options o; } wb__rule_part;

struct wb_rule {
    wb__object object;
    int n;
    wb__rule_part *parts;
};

typedef struct {
    char *path;
    int ndim;
    wb_dtype dtype;                     /* the parameter's */
    int64_t dims[WB_MAX_DIMS];
    wb_tensor **moments;                /* of all parts, one after the other (counted) */
    int64_t steps, unsure;              /* of these, so many wait for their writes to be made */
    wb_tensor *written;                 /* the last step's new value (counted) */
    bool frozen;
} wb__slot;

struct wb_opt_state {
    wb__object object;
    wb_rule *rule;                      /* its own copy (counted) */
    int n_moments;                      /* a slot */
    int n;
    wb__slot *slots;
    int n_leaves;
    int *slot_of_leaf;                  /* in the order of the walk, ties leading to one slot */
};

/* The fields of wb_rule_options, for adjusting, printing and files. */
typedef struct { const char *name; size_t offset; } wb__rule_field;
extern const wb__rule_field wb__rule_fields[WB__RULE_NUMBERS];
static inline double *wb__rule_number(const wb_rule_options *o, int field)
{
    return (double *)((char *)(uintptr_t)o + wb__rule_fields[field].offset);
}

/* A half has too few bits to average in. */
static inline wb_dtype wb__moment_dtype(wb_dtype parameter)
{
    return parameter == WB_F64 ? WB_F64 : WB_F32;
}

bool wb__rule_check(const wb__rule_kind *kind, const wb_rule_options *o);
wb_rule *wb__rule_copy(const wb_rule *rule);
void wb__rule_print(const wb_rule *rule, wb__text *t);

/* Takes back the counts of steps whose writes an evaluation that failed did not make. */
void wb__opt_settle(wb_opt_state *s);

/* move.c: behind wb_to and wb_device_of. */
void *wb__opt_to(void *state, const wb_device *d, wb_dtype dtype);
const wb_device *wb__opt_device(void *state);

#endif
