/* The stages in which a plan is made (plan.c says what each does) and their results.  A result is
 * const to the stages behind it.
 *
 *   values      values.c, import.c, ir.c, view.c
 *   patterns    patterns.c
 *   groups      groups.c, spaces.c, merge.c
 *   placement   placement.c
 *   programs    programs.c, fused.c, library.c, segments.c, arena.c
 *   plan        prepare.c, describe.c, plan.c
 *
 * A value is an index into the array of values; inputs come before their users. */
#ifndef WB__STAGES_H
#define WB__STAGES_H

#include "engine/plan.h"
#include "engine/plan/ir.h"

/* Steps that the backend accepted and then did not prepare.  They outlive one attempt at a plan, so
 * that the next attempt is made without them. */
typedef struct wb__declined {
    wb__step *step;
    int n, capacity;
    int known;                          /* number of steps declined in earlier attempts */
    bool all;                           /* the backend is asked for nothing any more */
} wb__declined;

/* One attempt at a plan: what every stage reads. */
typedef struct {
    const wb__request *request;
    const wb_device *device;
    int most_values;                    /* in one kernel */
    wb__declined *declined;             /* written by the last stage, for the next attempt */
} wb__attempt;

/* A step to be filled in, or to ask the backend about. */
static inline wb__step wb__step_blank(const wb__attempt *a, wb__step_kind kind)
{
    const bool products =
        kind == WB__STEP_MATMUL || kind == WB__STEP_CONV || kind == WB__STEP_ATTENTION;
    return (wb__step){.kind = kind,
                      .precision = products ? a->request->precision : WB__PRECISION_HIGHEST,
                      .deterministic = a->request->deterministic};
}

/* Does the backend do this step (its `takes`)?  False for a step that it declined before. */
bool wb__taken(const wb__attempt *a, const wb__step *s);

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct {
    wb__ir ir;
    int *of;                /* of each tensor of the request's order: its value */
    bool *needed;           /* of each value: a library operation, a concat, a result or a write
                               reads it (perhaps through a view) in memory */
    int *base;              /* of each value: the value whose memory it is a view of; itself where
                               it is no view */
    wb__view *view;         /* of each value: its elements over its base's memory where that is the
                               base's own, in its layout (buffer -1), or a free source's */
    bool attention_grad;    /* the graph has gradients of attention */
} wb__values;

bool wb__values_make(const wb__attempt *a, wb__values *s);
void wb__values_free(wb__values *s);
bool wb__import(const wb__attempt *a, wb__values *s);       /* fills ir and of */

static inline const wb__value *wb__value_at(const wb__values *s, int x) { return &s->ir.value[x]; }
static inline int wb__input(const wb__values *s, const wb__value *v, int i)
{
    return s->ir.inputs[v->in + i];
}
static inline int wb__root(const wb__values *s, const wb_tensor *x) { return s->of[x->index]; }

static inline int64_t wb__value_bytes(const wb__value *v)
{
    return v->size * (int64_t)wb__dtype_size((wb_dtype)v->dtype);
}

/* Operations that only view their operand in another way. */
static inline bool wb__looks(wb__op op)
{
    return op == WB__OP_reshape || op == WB__OP_permute || op == WB__OP_expand ||
           op == WB__OP_slice;
}
static inline bool wb__is_view(const wb__values *s, int x) { return s->base[x] != x; }

/* A literal, an index or a draw that no kernel stores: its readers make it. */
static inline bool wb__is_free_source(const wb__values *s, int x)
{
    return wb__ops[wb__value_at(s, x)->op].class == WB__SOURCE && !s->needed[x];
}

/* Fills base and view: a chain of views has its base's memory unless strides cannot express it. */
void wb__find_views(wb__values *s);
/* The result of a viewing operation, by its shape and attributes, as a view of what `in` views;
 * false where strides cannot express a reshape. */
bool wb__view_through(wb__op op, int ndim, const int64_t *dims, const int64_t *attr,
                      const wb__view *in, wb__view *out);
/* The elements of x over its base's memory, which `base` views; false where the base's strides do
 * not allow it. */
bool wb__view_of(const wb__values *s, int x, const wb__view *base, wb__view *out);
/* A source's elements: they are numbered (draws) or vary along one axis (iota). */
void wb__source_view(const wb__values *s, int x, wb__view *out);
/* In the layout of v. */
void wb__contiguous(const wb__value *v, wb__view *out);
/* A matrix, transposed or not, as an operand of a product: leading axes broadcast. */
wb__view wb__matrix_view(wb__view v, bool transposed, const wb__value *product);

/* ---- patterns -------------------------------------------------------------------------------- */

/* A library operation and the values that its kernel makes with it. */
typedef struct {
    int value;              /* the operation */
    int made_at;            /* the value at which its kernel is made: itself, or the addition of a
                               bias that is made after it */
    int result;             /* the value behind bias and epilogue */
    int bias;               /* -1: none, as below */
    wb__op epilogue;        /* WB__OP_NONE: none */
    wb__aux aux_kind;
    int aux;                /* the value that the epilogue leaves beside the result, or reads */
    int bits;               /* the product that writes the bits: this one, or the one whose bits it reads; -1 */
    wb__sums sums_of;
    int sums;               /* the value that is a sum of rows beside the product */
} wb__product;

typedef struct {
    int product;            /* the product whose kernel makes the value, -1 */
    bool unused;            /* only gradients that products make read it, and these have it in
                               another form */
} wb__part;

typedef struct {
    wb__product *product;
    int n, capacity;
    wb__part *of;           /* of each value */
} wb__patterns;

bool wb__patterns_find(const wb__attempt *a, const wb__values *s, wb__patterns *p);
void wb__patterns_free(wb__patterns *p);

/* ---- groups ---------------------------------------------------------------------------------- */

typedef enum { WB__GROUP_FUSED, WB__GROUP_LIBRARY, WB__GROUP_CONCAT } wb__group_kind;

/* The values of one kernel (a concat: of zeros, and of one copy for each part that is not made in
 * place).  A fused group has a space: dimension i is logical axis axis[i].  A library group lists its
 * operation and the operation's further results; bias, epilogue and sums have the group's number and
 * are not listed. */
typedef struct {
    wb__group_kind kind;
    int product;                        /* of a library group: its number among the patterns */
    int ndim, outer_dims, col_dims;     /* col_dims: -1 while any number would do */
    wb__layout layout;
    int64_t dims[WB_MAX_DIMS];          /* logical */
    int axis[WB_MAX_DIMS];
    int first, last, n;                 /* its values, linked by wb__member.next; first -1: empty */
} wb__group;

typedef struct {
    int group;          /* the group that makes the value; -1: a leaf, a view, a free source,
                           unused, or rematerialised */
    int next;
    bool ends;          /* it is complete when its kernel ends: its own group cannot read it */
    bool rematerialised; /* each reader computes it anew, for each point of its own space */
    bool stored;        /* it is in memory */
} wb__member;

/* Groups are in an order in which each needs earlier groups only. */
typedef struct {
    wb__group *group;
    int n, capacity;
    wb__member *of;                     /* of each value */
} wb__groups;

bool wb__groups_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                     wb__groups *g);
void wb__groups_free(wb__groups *g);
/* merge.c: the second half of that, over groups that were just formed. */
bool wb__groups_merge(const wb__attempt *a, const wb__values *s, wb__groups *g);

/* spaces.c: how a reduction is folded in a group's space. */
typedef enum { WB__NO_REDUCTION, WB__REDUCES_COLUMNS, WB__REDUCES_ROWS, WB__REDUCES_ALL } wb__reduction;
void wb__space_of(wb__group *g, const wb__value *v);
void wb__space_of_reduction(wb__group *g, const wb__values *s, const wb__value *v);
/* How the reduction v is folded in g's space, where that has `cols` columns then. */
wb__reduction wb__space_reduction(const wb__group *g, const wb__values *s, const wb__value *v, int *cols);
/* Does v fit?  Then the space has the columns that a reduction needs from now on. */
bool wb__space_admit(wb__group *g, const wb__values *s, const wb__value *v);
/* Is the reduction over trailing axes, and not all of them?  Then it ends no kernel. */
bool wb__reduces_columns(const wb__values *s, const wb__value *v);
/* Has v the dimensions of the whole space? */
static inline bool wb__space_is(const wb__group *g, const wb__value *v)
{
    if (v->ndim != g->ndim) return false;
    for (int i = 0; i < g->ndim; i++)
        if (v->dims[i] != g->dims[i]) return false;
    return true;
}

/* ---- placement ------------------------------------------------------------------------------- */

typedef struct {
    wb__view view;
    int memory;         /* the piece of the arena that the view is in, from whose beginning it
                           counts; -1: another buffer, or none */
} wb__place;

/* What a value's memory is; -1 where not. */
typedef struct {
    int place;          /* its number among the places: of each stored value and each leaf */
    int result;         /* the request's result */
    int write;          /* the request's write, whose variable it is made in */
    int concat, part;   /* the concat of which it is a part in place, and which part */
} wb__role;

typedef struct {
    wb__place *place;
    int n_places;
    wb__role *role;     /* of each value */
    bool *is_final;     /* of each group: it writes variables, and runs at the end */
    int64_t *bytes;     /* of each piece of the arena */
    int n_memory;
    int result_buffer, arena_buffer;    /* the first result's, the arena's */
} wb__placement;

bool wb__placement_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                        const wb__groups *g, wb__placement *l);
void wb__placement_free(wb__placement *l);
/* The value whose memory a root can share: behind reshapes, x itself where there is none. */
int wb__same_memory(const wb__values *s, int x);
/* The value that is in place where x is a part of a concat: x but for dimensions of size 1. */
int wb__content(const wb__values *s, int x);
bool wb__is_covered(const wb__values *s, const wb__value *concat);  /* is there a part everywhere? */

/* ---- programs -------------------------------------------------------------------------------- */

/* A step.  While programs are made, views into the arena count from the beginning of a piece;
 * wb__lay_out fills in the step's own views from the places. */
typedef struct {
    wb__step step;
    wb__place *place;                   /* of each view */
    int n_places, capacity;
    wb__place aux, sums;                /* of step.aux and step.sums */
    wb__view *views;                    /* of a fused step, like the two below: step.fused's */
    wb__instr *instr;
    wb__space *spaces;
    char *text;
} wb__plan_step;

typedef struct {
    wb__plan_step *step;
    int n, capacity, n_compute;         /* steps before n_compute write no variable */
    wb__number *constants;              /* fixed literals, numbered after the request's numbers */
    int n_constants, constants_capacity;
    int64_t *bytes;                     /* of pieces of the arena, numbered after the placement's */
    int n_memory, memory_capacity;
    int64_t arena_bytes;
} wb__programs;

bool wb__programs_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                       const wb__groups *g, const wb__placement *l, wb__programs *out);
void wb__programs_free(wb__programs *p);

/* While programs are made. */
typedef struct {
    const wb__attempt *attempt;
    const wb__values *values;
    const wb__patterns *patterns;
    const wb__groups *groups;
    const wb__placement *placement;
    wb__programs *out;
    wb__plan_step *step;                /* the library step whose operands are being added */
    int *instr_of;                      /* of each value of the group at hand: its instruction */
    int *constant_of;                   /* of each fixed literal: its number, -1 until needed */
    wb__place *bits_of;                 /* of each product: where its bits are, piece -1 until needed */
    bool failed;
} wb__emitter;

/* Where x is; false where the emitter has failed. */
bool wb__place_of(wb__emitter *m, int x, wb__place *out);
/* One more piece of the arena, for a value like this. */
wb__place wb__emit_memory(wb__emitter *m, const wb__value *like);
void wb__step_begin(const wb__emitter *m, wb__step_kind kind, wb__plan_step *d);
int wb__add_place(wb__emitter *m, wb__plan_step *d, const wb__place *at);   /* its number */
void wb__emit_step(wb__emitter *m, wb__plan_step *d);               /* takes over all that d has */
void wb__emit_copy(wb__emitter *m, const wb__place *from, const wb__place *to, const char *why);
void wb__emit_fused(wb__emitter *m, int group);                     /* fused.c */
void wb__emit_zeros(wb__emitter *m, const wb__place *to);
void wb__emit_library(wb__emitter *m, int group);                   /* library.c */
void wb__step_free(wb__plan_step *d);
/* segments.c: kernels that write variables and differ in nothing but their operands become one. */
bool wb__merge_segments(wb__programs *p);

/* arena.c: gives each piece of the arena its place, from which the steps' views then count. */
bool wb__lay_out(const wb__placement *l, wb__programs *s);

/* ---- plan ------------------------------------------------------------------------------------ */

/* trace.c: logs the results of the stages. */
void wb__trace(const wb__attempt *a, const wb__values *s, const wb__patterns *p, const wb__groups *g,
               const wb__placement *l);
/* prepare.c; NULL: failed, or a step was declined. */
wb__plan *wb__plan_finish(const wb__attempt *a, const wb__values *values,
                          const wb__placement *placement, const wb__programs *programs);
char *wb__describe(const wb__plan_step *d, const wb__kernel *k);     /* describe.c */

#endif
