/* The stages in which a plan is made. */
#ifndef WB__STAGES_H
#define WB__STAGES_H

#include "engine/plan.h"
#include "engine/plan/ir.h"

/* How a value is had. */
typedef struct {
    int group;          /* that makes it; -1: a leaf, a view, or a source made where it is used */
    bool deferred;      /* made of leaves alone: joins the first group that wants it */
    int waiting;        /* how many such values it stands on */
    bool stored;        /* it is needed in memory */
    bool put_off;       /* its user is to be absorbed, and will do without it */
    bool wants_bits;    /* a relu whose gradient wants to know where it was positive */
    bool has_company;   /* an elementwise operation or a fold reads it */
    bool closed;        /* a fold over rows or all: nobody in its own group may use it */
    bool again;         /* it has no group: whoever wants it makes it, for each point of a larger space */
    int result;         /* number of the result it is, -1 */
    int write;          /* number of the write whose variable it is made in, -1 */
    int reader;         /* the last fused group that loads it, for kernels side by side; -1 */
    int inside;         /* the assembly in whose window it stands, -1 */
    int piece;          /* which piece of it */
    bool placed;
    wb__view place;     /* once placed */
    int constant;       /* of a fixed literal: its number, -1 until needed */
    int made;           /* its instruction, while its group's program is written */
    int tenant;         /* its memory in the arena, -1 */
} wb__fate;

typedef enum { WB__GROUP_FUSED, WB__GROUP_LIBRARY, WB__GROUP_ASSEMBLE } wb__group_kind;

/* One kernel to be (an assembly: as many as it has pieces that stand elsewhere).  Groups are made
 * in an order in which each needs earlier ones only; joining one keeps it so. */
typedef struct {
    wb__group_kind kind;
    int ndim, outer_dims, col_dims;     /* of a fused group; col_dims -1 while free */
    bool nhwc, is_final;                /* is_final: it writes variables, and runs at the end */
    int64_t dims[WB_MAX_DIMS];          /* logical */
    int axis[WB_MAX_DIMS];              /* dimension i of the space is logical axis axis[i] */
    int first, last, n;                 /* its values, through making.next */
    int bias;                           /* absorbed by a library group, -1 where not */
    wb__op epilogue;                    /* absorbed too, WB__OP_NONE where not */
    wb__aux aux_kind;
    int product;                        /* the value after both */
    int aux;                            /* the epilogue's other operand or result, -1; or */
    int bits;                           /* memory (a tenant) of bits, -1 */
    int sums;                           /* the value that is the sum of the product's rows, -1 */
} wb__group;

typedef struct {
    const wb__request *request;
    const wb_device *device;
    int most_values;                    /* in one kernel */
    struct wb__declined *declined;      /* steps that no plan of this request has again */
    bool attention_back;                /* the plan has gradients of attention */
    wb__ir ir;
    int *value_of;                      /* of each tensor of the order */
    wb__fate *fate;
    int *next;                          /* list of a group's values */
    wb__group *group;
    int n_groups, groups_room;
    wb__number *constants;              /* fixed literals, numbered after the request's numbers */
    int n_constants, constants_room;
    struct wb__draft *draft;            /* the steps, before memory is laid out */
    int n_drafts, drafts_room, n_compute;
    struct wb__tenant *tenant;          /* what lives in the arena */
    int n_tenants, tenants_room;
    bool failed;
} wb__making;

/* Steps that the backend took and then did not prepare.  They outlive one attempt at a plan, so
 * that the next one is made without them. */
typedef struct wb__declined {
    wb__step *step;
    int n, room;
    int known;                          /* those of earlier attempts */
    bool all;                           /* nothing is to be asked for any more */
} wb__declined;

/* A step whose views into the arena still count from the start of their tenant. */
typedef struct wb__draft {
    wb__step step;
    int n_owners, *owners;              /* of each view: its tenant, or -1 */
    int aux_owner, sums_owner;          /* of step.aux and step.sums, where it has them */
    wb__view *views;                    /* of a fused step: what step.fused.views points to */
    wb__instr *instr;
    wb__space *spaces;
    char *text;
} wb__draft;

typedef struct wb__tenant {
    int64_t bytes, offset;
    int born, dies;                     /* steps; -1: not in the arena */
} wb__tenant;

static inline int64_t wb__value_bytes(const wb__value *v)
{
    return v->size * (int64_t)wb__dtype_size((wb_dtype)v->dtype);
}

/* A step to be filled in, or to ask the backend about. */
static inline wb__step wb__step_blank(const wb__making *m, wb__step_kind kind)
{
    const bool products =
        kind == WB__STEP_MATMUL || kind == WB__STEP_CONV || kind == WB__STEP_ATTENTION;
    return (wb__step){.kind = kind,
                      .precision = products ? m->request->precision : WB__PRECISION_HIGHEST,
                      .deterministic = m->request->deterministic};
}

/* Does the backend do this step (its `takes`)?  False for one that it declined before. */
bool wb__taken(const wb__making *m, const wb__step *s);
int wb__arena_buffer(const wb__making *m);
int wb__result_buffer(const wb__making *m, int result);
/* Where value x stands, by view; what has no place yet gets one.  `owner` is its tenant or -1. */
bool wb__place_of(wb__making *m, int x, wb__view *out, int *owner);
int wb__tenant_new(wb__making *m, int64_t bytes);
wb__draft *wb__draft_new(wb__making *m, wb__step_kind kind);        /* NULL: failed */
void wb__drafts_drop(wb__making *m, int first, const bool *gone);   /* of those from `first` on */
void wb__draft_view(wb__making *m, wb__draft *d, wb__view v, int owner);    /* of a library step */
bool wb__draft_fused(wb__making *m, int group);                     /* emit_fused.c */
void wb__draft_library(wb__making *m, const wb__group *g);          /* emit_library.c */
void wb__draft_copy(wb__making *m, wb__view from, int from_owner, wb__view to, int to_owner,
                    const char *why);
void wb__draft_zeros(wb__making *m, wb__view to, int owner);
void wb__drafts_free(wb__making *m);

/* Operations that only look at their operand in another way. */
static inline bool wb__looks(wb__op op)
{
    return op == WB__OP_reshape || op == WB__OP_permute || op == WB__OP_expand ||
           op == WB__OP_slice;
}
/* Such an operation's result, by its shape and attributes, as a view of what `in` views; false where
 * a reshape cannot be told in strides. */
bool wb__view_through(wb__op op, int ndim, const int64_t *dims, const int64_t *attr,
                      const wb__view *in, wb__view *out);
/* a reshape, permute, expand or slice without memory of its own? */
bool wb__is_view(const wb__making *m, int x);
int wb__base(const wb__making *m, int x);           /* what a chain of views looks at */
/* The elements of x over its base's memory (buffer -1 where that has none: a source).  False where
 * a reshape cannot be told in strides. */
bool wb__view_of(const wb__making *m, int x, wb__view *out);
void wb__contiguous(const wb__value *v, wb__view *out); /* row-major, or NHWC where v stands so */
bool wb__import(wb__making *m);
bool wb__rewrite(wb__making *m);
bool wb__fuse(wb__making *m);
void wb__merge_groups(wb__making *m, const bool *needed);           /* merge.c */
/* absorb.c: looks for what products may absorb; makes value x part of the kernel before it, if it may. */
void wb__find_absorbable(wb__making *m);
bool wb__absorbed(wb__making *m, int x);
/* A matrix, as it stands or turned, as an operand of a product: leading axes broadcast. */
wb__view wb__matrix_view(wb__view v, bool transposed, const wb__value *product);
bool wb__emit(wb__making *m);
void wb__sums_beside_products(wb__making *m);                       /* sums.c */
void wb__merge_segments(wb__making *m);                             /* segments.c */
bool wb__lay_out(wb__making *m, wb__plan *p);                       /* arena.c */
bool wb__prepare(wb__making *m, wb__plan *p);                       /* prepare.c: the kernels */
char *wb__describe(const wb__draft *d, const wb__kernel *k);        /* describe.c */

#endif
