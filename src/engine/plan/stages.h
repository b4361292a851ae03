/* The stages that build a plan (plan.c describes each) and their results.  Later stages receive a
 * result as const.
 *
 *   values      values.c, import.c, ir.c, view.c
 *   patterns    patterns.c
 *   groups      groups.c, spaces.c, merge.c
 *   placement   placement.c
 *   programs    programs.c, fused.c, library.c, segments.c, arena.c
 *   plan        prepare.c, describe.c, trace.c, plan.c
 *
 * A value is an index into the array of values.  Inputs come before the values that read them. */
#ifndef WB__STAGES_H
#define WB__STAGES_H

#include "engine/plan.h"
#include "engine/plan/ir.h"

/* Steps that the backend accepted (`supports`) and then refused to prepare.  The list outlives one
 * attempt at a plan, so that the next attempt avoids these steps. */
typedef struct wb__declined {
    wb__step *step;
    int n, capacity;
    int known;                          /* number of steps declined in earlier attempts */
    bool all;                           /* wb__supported returns false for every step */
} wb__declined;

/* One attempt at a plan.  Every stage reads it. */
typedef struct {
    const wb__request *request;
    const wb_device *device;
    int most_values;                    /* upper limit of values in one kernel */
    wb__declined *declined;             /* the last stage adds to it, for the next attempt */
} wb__attempt;

/* A step of this kind without operands. */
static inline wb__step wb__step_blank(const wb__attempt *a, wb__step_kind kind)
{
    const bool products =
        kind == WB__STEP_MATMUL || kind == WB__STEP_CONV || kind == WB__STEP_ATTENTION;
    return (wb__step){.kind = kind,
                      .precision = products ? a->request->precision : WB__PRECISION_HIGHEST,
                      .deterministic = a->request->deterministic};
}

/* Whether the backend's `supports` accepts this step, and the backend did not decline to prepare it
 * in an earlier attempt. */
bool wb__supported(const wb__attempt *a, const wb__step *s);

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct {
    wb__ir ir;
    int *of;                /* the value of each tensor of the request's order */
    bool *needed;           /* of each value: a library operation, a concat, a result or a write
                               reads it from memory (perhaps through a view) */
    int *base;              /* of each value: the value that owns the memory; the value itself if it
                               is no view */
    wb__view *view;         /* of each value: its view of its base, as if the base were dense in its
                               own layout (buffer -1); of a free source: see wb__source_view */
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

/* Whether the result of op is its operand's elements with other dimensions and strides. */
static inline bool wb__is_view_op(wb__op op)
{
    return op == WB__OP_reshape || op == WB__OP_permute || op == WB__OP_expand ||
           op == WB__OP_slice;
}
static inline bool wb__is_view(const wb__values *s, int x) { return s->base[x] != x; }

/* Whether x is a literal, an index (iota) or random numbers that no kernel stores.  Each reader of
 * x generates the elements itself. */
static inline bool wb__is_free_source(const wb__values *s, int x)
{
    return wb__ops[wb__value_at(s, x)->op].class == WB__SOURCE && !s->needed[x];
}

/* Fills base and view.  A chain of views shares its base's memory, unless strides cannot express
 * the view: then the value is a copy and its own base. */
void wb__find_views(wb__values *s);
/* Sets *out to the view that the view operation `op`, with these attributes, makes of `in`; ndim
 * and dims are the dimensions of the result.  False: strides cannot express a reshape. */
bool wb__view_through(wb__op op, int ndim, const int64_t *dims, const int64_t *attr,
                      const wb__view *in, wb__view *out);
/* Sets *out to the view of x, given the view `base` of x's base.  False: the strides of `base`
 * cannot express it, or memory ran out. */
bool wb__view_of(const wb__values *s, int x, const wb__view *base, wb__view *out);
/* Sets *out to a view without a buffer whose offset and strides give the number of each element of
 * the source x.  Random elements are numbered in row-major order, those of iota along its axis. */
void wb__source_view(const wb__values *s, int x, wb__view *out);
/* Sets *out to the dense view of v in v's own layout, without a buffer (-1). */
void wb__contiguous(const wb__value *v, wb__view *out);
/* Returns the view of an operand of a matrix product: the last two axes are exchanged if
 * `transposed`, and the leading axes broadcast to the product's. */
wb__view wb__matrix_view(wb__view v, bool transposed, const wb__value *product);

/* ---- patterns -------------------------------------------------------------------------------- */

/* A library operation and the values that its kernel computes with it. */
typedef struct {
    int value;              /* the operation */
    int made_at;            /* the value at which the kernel is emitted: the operation itself, or
                               the addition of a bias that is computed after the operation */
    int result;             /* the last value of the chain: operation, bias, epilogue */
    int bias;               /* -1: none; likewise aux, bits and sums */
    wb__op epilogue;        /* WB__OP_NONE: none */
    wb__aux aux_kind;
    int aux;                /* the value that the epilogue writes beside the result, or reads */
    /* bits: index of the product that writes the sign bits of a relu's operand: this product, or
     * the earlier product whose bits it reads. */
    int bits;
    wb__sums sums_of;
    int sums;               /* the value that is the sum of rows */
} wb__product;

typedef struct {
    int product;            /* index of the product whose kernel computes the value; -1: none */
    bool unused;            /* no kernel computes it: all its readers are gradients fused into
                               products, whose kernels read the activation's operand or sign bits
                               instead */
} wb__match;

typedef struct {
    wb__product *product;
    int n, capacity;
    wb__match *of;           /* of each value */
} wb__patterns;

bool wb__patterns_find(const wb__attempt *a, const wb__values *s, wb__patterns *p);
void wb__patterns_free(wb__patterns *p);

/* ---- groups ---------------------------------------------------------------------------------- */

typedef enum { WB__GROUP_FUSED, WB__GROUP_LIBRARY, WB__GROUP_CONCAT } wb__group_kind;

/* The values of one kernel.  (A concat is several kernels: one writes zeros if the parts do not
 * cover it, and one copies each part that is not computed in place.) Dimension i of a fused group's
 * space is the logical axis axis[i].  A library group lists its operation and the operation's
 * further results.  Values for bias, epilogue and sums have the group's index, but are not
 * listed. */
typedef struct {
    wb__group_kind kind;
    int product;                        /* of a library group: its index in the patterns */
    int ndim, outer_dims, col_dims;     /* the first outer_dims dimensions of the space are outer,
                                           the last col_dims are columns, the others are rows;
                                           col_dims: -1 while no member fixes it */
    wb__layout layout;
    int64_t dims[WB_MAX_DIMS];          /* by logical axis */
    int axis[WB_MAX_DIMS];
    int first, last, n;                 /* a list of values, linked by wb__member.next; first is -1
                                           if empty */
} wb__group;

typedef struct {
    int group;          /* the group that computes the value; -1: a leaf, a view, a free source,
                           unused, or rematerialised */
    int next;
    bool ends;          /* complete only when its kernel ends, so its own group cannot read it */
    bool rematerialised; /* each reader recomputes it for each element of the reader's space */
    bool stored;        /* a kernel writes it to memory */
} wb__member;

/* Groups are in order of execution: each reads only earlier groups. */
typedef struct {
    wb__group *group;
    int n, capacity;
    wb__member *of;                     /* of each value */
} wb__groups;

bool wb__groups_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                     wb__groups *g);
void wb__groups_free(wb__groups *g);
/* merge.c: merges small groups, as the last step of wb__groups_make.  False: out of memory. */
bool wb__groups_merge(const wb__attempt *a, const wb__values *s, wb__groups *g);

/* spaces.c: which dimensions of a group's space a reduction is over. */
typedef enum {
    WB__NO_REDUCTION, WB__REDUCES_COLUMNS, WB__REDUCES_ROWS, WB__REDUCES_ALL
} wb__reduction;
void wb__space_of(wb__group *g, const wb__value *v);
void wb__space_of_reduction(wb__group *g, const wb__values *s, const wb__value *v);
/* How the reduction v reduces g's space.  Sets *cols to the number of column dimensions that the
 * space then has. */
wb__reduction wb__space_reduction(const wb__group *g, const wb__values *s, const wb__value *v,
                                  int *cols);
/* Whether v fits into the space.  If so, fixes the number of column dimensions that a reduction
 * needs. */
bool wb__space_admit(wb__group *g, const wb__values *s, const wb__value *v);
/* Whether the reduction v is over the trailing axes, but not over all axes, and its operand is not
 * channels last.  Its own kernel can then read the result. */
bool wb__reduces_columns(const wb__values *s, const wb__value *v);
/* Whether v has the dimensions of the whole space. */
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
    int allocation;     /* index of the arena allocation from whose beginning the view's offset
                           counts; -1: another buffer, or no memory */
} wb__step_operand;

/* The memory that a value has.  A field is -1 where it does not apply. */
typedef struct {
    int operand;        /* of each stored value and each leaf: index of its operand */
    int result;         /* index of the request's result in whose memory it is */
    int write;          /* index of the request's write in whose variable it is computed */
    int concat, part;   /* the concat in whose memory it is, and which part of it */
} wb__role;

typedef struct {
    wb__step_operand *operand;
    int n_operands;
    wb__role *role;     /* of each value */
    bool *is_final;     /* of each group: it writes variables, and runs at the end */
    int64_t *bytes;     /* of each arena allocation */
    int n_allocations;
    int result_buffer, arena_buffer;    /* index of the buffer of the first result; index of the
                                           arena's buffer */
} wb__placement;

bool wb__placement_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                        const wb__groups *g, wb__placement *l);
void wb__placement_free(wb__placement *l);
/* The value whose memory has the elements of x in x's order: the value behind x's reshapes; x
 * itself if another view or the layout channels last comes next behind these. */
int wb__same_memory(const wb__values *s, int x);
/* The value that is written in place if x is part of a concat: x without reshapes that only add or
 * drop dimensions of size 1. */
int wb__content(const wb__values *s, int x);
/* Whether the parts of the concat cover all of its elements. */
bool wb__is_covered(const wb__values *s, const wb__value *concat);

/* ---- programs -------------------------------------------------------------------------------- */

/* A step of the plan.  Until wb__lay_out fills in the views of `step`, its operands are in
 * `operand`, `aux` and `sums`, whose offsets into the arena count from the beginning of their
 * allocation. */
typedef struct {
    wb__step step;
    wb__step_operand *operand;          /* the operand of each view */
    int n_operands, capacity;
    wb__step_operand aux, sums;         /* of step.aux and step.sums */
    wb__view *views;                    /* of a fused step: views, instr and spaces are the arrays
                                           that step.fused points to */
    wb__instr *instr;
    wb__space *spaces;
    char *text;
} wb__plan_step;

typedef struct {
    wb__plan_step *step;
    int n, capacity, n_compute;         /* steps before n_compute write no variable */
    wb__number *constants;              /* fixed literals; in the numbers of a run they come after
                                           the request's numbers */
    int n_constants, constants_capacity;
    int64_t *bytes;                     /* size of each arena allocation; these allocations are
                                           numbered after the placement's */
    int n_allocations, allocations_capacity;
    int64_t arena_bytes;
} wb__programs;

bool wb__programs_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                       const wb__groups *g, const wb__placement *l, wb__programs *out);
void wb__programs_free(wb__programs *p);

/* The state while programs are built. */
typedef struct {
    const wb__attempt *attempt;
    const wb__values *values;
    const wb__patterns *patterns;
    const wb__groups *groups;
    const wb__placement *placement;
    wb__programs *out;
    wb__plan_step *step;                /* the library step whose operands are being added */
    int *instr_of;                      /* of each value of the current group: its instruction */
    int *constant_of;                   /* of each fixed literal: its index in constants; -1: not
                                           added yet */
    /* of each product that writes the sign bits of its relu's operand (wb__product.bits): the
     * memory of these bits; allocation -1: not allocated yet */
    wb__step_operand *bits_of;
    bool failed;
} wb__emitter;

/* Sets *out to the view of x and its memory.  False if the emitter has failed, here or before. */
bool wb__step_operand_of(wb__emitter *m, int x, wb__step_operand *out);
/* Adds an arena allocation for a value like `like` (dtype, dimensions, layout), and returns it as a
 * dense operand. */
wb__step_operand wb__emit_allocation(wb__emitter *m, const wb__value *like);
void wb__step_begin(const wb__emitter *m, wb__step_kind kind, wb__plan_step *d);
/* Returns the operand's index. */
int wb__add_operand(wb__emitter *m, wb__plan_step *d, const wb__step_operand *at);
/* Takes ownership of d's arrays. */
void wb__emit_step(wb__emitter *m, wb__plan_step *d);
void wb__emit_copy(wb__emitter *m, const wb__step_operand *from, const wb__step_operand *to,
                   const char *reason);
void wb__emit_fused(wb__emitter *m, int group);                     /* fused.c */
void wb__emit_zeros(wb__emitter *m, const wb__step_operand *to);
void wb__emit_library(wb__emitter *m, int group);                   /* library.c */
void wb__step_free(wb__plan_step *d);
/* segments.c: kernels that write variables and differ only in their operands become one kernel. */
bool wb__merge_segments(wb__programs *p);

/* arena.c: assigns an offset to each arena allocation, and fills in the steps' views. */
bool wb__lay_out(const wb__placement *l, wb__programs *s);

/* ---- plan ------------------------------------------------------------------------------------ */

/* trace.c: logs the results of the stages. */
void wb__trace(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
               const wb__groups *g, const wb__placement *l);
/* prepare.c.  NULL, with the error set: it failed; WB_ERROR_UNSUPPORTED if the backend declined a
 * step. */
wb__plan *wb__plan_finish(const wb__attempt *a, const wb__values *values,
                          const wb__placement *placement, const wb__programs *programs);
char *wb__describe(const wb__plan_step *d, const wb__kernel *k);     /* describe.c: a line for a
                                                                        log, which the caller frees;
                                                                        NULL: out of memory */

#endif
