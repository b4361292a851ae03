/* The stages that build a plan (plan.c describes each) and their results.  Each stage gets the
 * results of the earlier stages as const.
 *
 *   values      values.c, import.c, ir.c, variance.c, view.c, gaps.c,
 *               window.c
 *   patterns    patterns.c, products.c
 *   groups      groups.c, spaces.c, merge.c, remake.c
 *   placement   placement.c
 *   programs    programs.c, fused.c, library.c, segments.c, arena.c,
 *               branches.c
 *   plan        prepare.c, describe.c, trace.c, plan.c
 *
 * A value is an index into the array of values.  Inputs come before the values that read them. */
#ifndef WB__STAGES_H
#define WB__STAGES_H

#include "engine/plan.h"
#include "engine/plan/ir.h"

/* Plan steps that the backend accepted (`supports`) and then refused to prepare.  The list outlives
 * one attempt at a plan, so that the next attempt avoids these steps. */
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
    wb__declined *declined;             /* steps that the backend has refused to prepare so far */
} wb__attempt;

/* Returns a step of this kind without operands. */
static inline wb__step wb__step_blank(const wb__attempt *a, wb__step_kind kind)
{
    const bool products =
        kind == WB__STEP_MATMUL || kind == WB__STEP_CONV || kind == WB__STEP_ATTENTION;
    return (wb__step){.kind = kind,
                      .precision = products ? a->request->precision : WB__PRECISION_HIGHEST,
                      .deterministic = a->request->deterministic};
}

/* Whether the backend's `supports` accepts this step, and the step is not one of the declined steps
 * of the attempt. */
bool wb__supported(const wb__attempt *a, const wb__step *s);

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct {
    wb__ir ir;
    int *of;                /* of each tensor of the request's order: index of its value */
    bool *needed;           /* of each value: whether a library operation, a concat, a result or a
                               write reads it from memory, directly or through views */
    int *base;              /* of each value: index of the value in whose memory it is; its own if
                               it is no view */
    wb__view *view;         /* of each value: its view of a base that is dense in the base's layout;
                               buffer is -1.  Of a free source: see wb__source_view */
    int *window;            /* of each value: index of its window; -1: it is no padded view */
    wb__window *windows;    /* dimensions are in the order of the axes of the value */
    int n_windows, windows_capacity;
    bool attention_grad;    /* the graph has gradients of attention */
} wb__values;

bool wb__values_make(const wb__attempt *a, wb__values *s);
void wb__values_free(wb__values *s);
/* The window of x; NULL: x is no padded view. */
static inline const wb__window *wb__window_of(const wb__values *s, int x)
{
    return s->window[x] < 0 ? NULL : &s->windows[s->window[x]];
}
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

/* Whether op is a view operation: its result is the operand's memory with other dimensions, strides
 * or offset. */
static inline bool wb__is_view_op(wb__op op)
{
    return op == WB__OP_reshape || op == WB__OP_permute || op == WB__OP_expand ||
           op == WB__OP_slice;
}
static inline bool wb__is_view(const wb__values *s, int x) { return s->base[x] != x; }

/* Whether x is a literal, an index (iota) or random numbers, and no kernel stores x.  Each kernel
 * that reads x generates the elements itself. */
static inline bool wb__is_free_source(const wb__values *s, int x)
{
    return wb__ops[wb__value_at(s, x)->op].class == WB__SOURCE && !s->needed[x];
}

/* A rebuild of the values, of which `uses` are known, with rules (values.c).  A rule adds to `to`
 * what replaces value i of `from`, and returns its index there; -1: the rule does not suit. */
typedef struct {
    const wb__ir *from;
    wb__ir *to;
    struct {
        int to;             /* index, in w->to, of the value that replaces this value */
        int variance;       /* index of the sum of (x - mean)^2 if this is the sum of x; or 0 */
        int shape;          /* index of the reshape by which a matrix is read; at most 0: none */
        bool gone;          /* only slices read the value, and rules replace these slices */
    } *of;                  /* for each value of `from` */
    int *applied;           /* for each rule: how often it has replaced a value */
} wb__rewrite;

/* The slices that read a value: their number, and their elements together. */
typedef struct { int n; int64_t size; } wb__slices;
static inline void wb__slices_add(wb__slices *of, const wb__ir *ir, int slice)
{
    of[ir->inputs[ir->value[slice].in]].n++;
    of[ir->inputs[ir->value[slice].in]].size += ir->value[slice].size;
}
/* Whether nothing but the slices reads v, and the slices do not read an element of v twice. */
static inline bool wb__slices_are_all(const wb__slices *s, const wb__value *v)
{
    return s->n && s->n == v->uses && s->size <= v->size;
}

int wb__one_pass_variance(const wb__rewrite *w, int i);     /* variance.c */
int wb__fill_gap(const wb__rewrite *w, int i);              /* gaps.c */
int wb__slice_product(const wb__rewrite *w, int i);         /* products.c */
/* Sets `variance` of the sums in w->of.  The function below it sets `gone` of small products of
 * which only slices along the last axis are read. */
void wb__find_variances(const wb__rewrite *w);
void wb__find_sliced(const wb__attempt *a, const wb__rewrite *w);
/* Value i is the sum of (x - mean)^2.  Adds the sums of d and d^2 (variance.c) for it to `w->to`,
 * right behind the sum of x, so that one kernel computes all three. */
void wb__add_variance_sums(const wb__rewrite *w, int i);
/* Sets s->base, s->view and s->window.  A view that strides cannot express becomes a copy with
 * memory of its own.  Where a window cannot express a view of a padded view, marks the pad as
 * `needed` and sets *again: the caller finds all views again.  False: out of memory. */
bool wb__find_views(const wb__attempt *a, wb__values *s, bool *again);
/* Whether the concat x is a padded view (window.c): x is one part among zeros, only fused kernels
 * that take windows read it, and the part has memory.  `needed` is known for the values after x. */
bool wb__may_be_padded_view(const wb__attempt *a, const wb__values *s, int x);
/* Turns the view of a part, which is padded already if is_padded, and its window into those of the
 * concat v, in which the part begins at `start`. */
void wb__window_pad(const wb__value *v, const int64_t *start, bool is_padded, wb__view *view,
                    wb__window *w);
/* Does for a padded view what wb__view_through does, and changes the window *w to that of the
 * result.  False: strides and a window cannot express the result. */
bool wb__window_through(wb__op op, int ndim, const int64_t *dims, const int64_t *attr,
                        const wb__view *in, wb__view *out, wb__window *w);
/* Applies the view operation `op`, with its attributes `attr`, to the view `in`.  Sets *out to the
 * result, which has ndim dimensions, `dims`.  False: strides cannot express a reshape. */
bool wb__view_through(wb__op op, int ndim, const int64_t *dims, const int64_t *attr,
                      const wb__view *in, wb__view *out);
/* Sets *out to the view of x, given `base`, the view of the value in whose memory x is.  False:
 * strides cannot express the view of x, or memory ran out. */
bool wb__view_of(const wb__values *s, int x, const wb__view *base, wb__view *out);
/* Sets *out to a view without a buffer for x, an iota or random numbers.  The view's offset and
 * strides map the position of an element to a number: the index along the axis of an iota, or the
 * row-major index of a random element. */
void wb__source_view(const wb__values *s, int x, wb__view *out);
/* Sets *out to a dense view with v's dtype, dimensions and layout, and without a buffer (-1). */
void wb__contiguous(const wb__value *v, wb__view *out);
/* Returns the view of an operand of a matrix product.  The last two axes are exchanged if
 * `transposed`; the leading axes are broadcast to those of the product. */
wb__view wb__matrix_view(wb__view v, bool transposed, const wb__value *product);

/* ---- patterns -------------------------------------------------------------------------------- */

/* A library operation and the values that are fused into its kernel.  `value`, `made_at`, `result`,
 * `bias`, `aux` and `sums` are indices of values; -1: none. */
typedef struct {
    int value;              /* the library operation */
    int made_at;            /* the value at whose position, in the order of values, the kernel runs:
                               `value`, or the addition of a bias that is computed after `value` */
    int result;             /* the last fused value: the epilogue, else the addition of the bias,
                               else `value` */
    int bias;               /* the vector that is added to `value` */
    wb__op epilogue;        /* WB__OP_NONE: none */
    wb__aux aux_kind;
    int aux;                /* for WB__AUX_OPERAND, WB__AUX_FACTOR and WB__AUX_ADDEND: the value
                               that the kernel writes or reads */
    /* bits: for WB__AUX_SIGNS and WB__AUX_MASK, index, in wb__patterns.product, of the product that
     * writes the sign bits; -1: none */
    int bits;
    wb__sums sums_of;
    int sums;               /* the sum that sums_of describes */
    bool in_reader;         /* the fused kernel that is the product's first reader computes the
                               product; nothing else is fused into the product */
} wb__product;

typedef struct {
    int product;            /* index, in wb__patterns.product, of the product whose kernel computes
                               the value; -1: none */
    bool unused;            /* no kernel computes the value; all its readers are gradients fused
                               into products, which read the aux of an earlier product instead */
} wb__match;

typedef struct {
    wb__product *product;
    int n, capacity;
    wb__match *of;          /* the match of each value */
} wb__patterns;

/* Sets in_reader of the products that fused kernels compute (products.c).  False: out of memory. */
bool wb__products_choose(const wb__attempt *a, const wb__values *s, wb__patterns *p);

bool wb__patterns_find(const wb__attempt *a, const wb__values *s, wb__patterns *p);
void wb__patterns_free(wb__patterns *p);

/* ---- groups ---------------------------------------------------------------------------------- */

typedef enum { WB__GROUP_FUSED, WB__GROUP_LIBRARY, WB__GROUP_CONCAT } wb__group_kind;

/* The values that one kernel computes.  A concat is an exception: it has one kernel for each input
 * that is copied, and one that writes zeros if the inputs leave gaps. */
typedef struct {
    wb__group_kind kind;
    int product;        /* index in wb__patterns.product of a library group's operation; or -1 */
    int ndim, outer_dims, col_dims;     /* number of dimensions of a fused group's space: first
                                           outer_dims outer dimensions, then the rows, then col_dims
                                           columns (-1: not fixed yet) */
    wb__layout layout;
    int64_t dims[WB_MAX_DIMS];          /* size of each logical axis */
    int axis[WB_MAX_DIMS];              /* dimension i of the space is the logical axis axis[i] */
    bool turns;                         /* a reduction may change the order of the axes, as long as
                                           none has fixed col_dims (wb__space_turn) */
    int first, last, n;                 /* list of the group's values, linked by wb__member.next;
                                           first is -1 if it is empty.  Values fused into a library
                                           operation are not in the list */
    int products;                       /* of a fused group: number of matrix products among its
                                           values; such a group has no reductions */
    bool reduces;                       /* a reduction is among its values */
} wb__group;
enum { WB__MOST_PRODUCTS = 8 };         /* limit of `products` */

typedef struct {
    int group;          /* index of the group that computes the value; -1: none (a leaf, a view, a
                           free source, an unused or a rematerialised value) */
    int next;           /* next value in the group's list; -1: none */
    bool ends;  /* the value is complete only when its kernel ends, so its group cannot read it */
    bool rematerialised; /* each kernel that reads the value computes it again, for each element of
                            its space; `group` also computes it, unless it is -1 */
    bool stored;        /* a kernel writes it to memory */
} wb__member;

/* Groups are in order of execution: a group reads only its own values and those of earlier
 * groups. */
typedef struct {
    wb__group *group;
    int n, capacity;
    wb__member *of;                     /* one for each value */
} wb__groups;

bool wb__groups_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                     wb__groups *g);
void wb__groups_free(wb__groups *g);
/* Merges elementwise groups with later groups that read them, and rematerialises values (merge.c).
 * False: out of memory. */
bool wb__groups_merge(const wb__attempt *a, const wb__values *s, wb__groups *g);
/* The values that read x, directly or through a view: user[first[x]] .. user[first[x + 1] - 1]. */
typedef struct { int *first, *user; } wb__readers;
/* Whether the result of op depends on the exact value of its operand: op compares or tests it,
 * counts with it, or makes a number of another dtype of it.  A value of f16 or bf16 that a kernel
 * computes has more digits in a register than in memory; these operations read the number in
 * memory, whether it is stored or not.  So all kernels, and the program, see one number. */
static inline bool wb__asks_which(wb__op op)
{
    const wb__op_class class = wb__ops[op].class;
    return class == WB__COMPARE || class == WB__TEST || op == WB__OP_cast || op == WB__OP_argmax ||
           op == WB__OP_floor || op == WB__OP_sign || op == WB__OP_pow;
}
/* Whether `user` does not read x through a view.  It may read x itself. */
bool wb__reads_directly(const wb__values *s, const wb__value *user, int x);
/* Whether a value of the group is written to a variable.  written: of each value. */
bool wb__group_writes(const wb__groups *g, int group, const bool *written);
/* Rematerialises values that cost less to compute again than to load (remake.c). */
void wb__groups_remake(const wb__attempt *a, const wb__values *s, const wb__readers *readers,
                       const bool *written, wb__groups *g);

/* The dimensions of a group's space that a reduction reduces (spaces.c). */
typedef enum {
    WB__NO_REDUCTION, WB__REDUCES_COLUMNS, WB__REDUCES_ROWS, WB__REDUCES_ALL
} wb__reduction;
void wb__space_of(wb__group *g, const wb__value *v);
void wb__space_of_reduction(wb__group *g, const wb__values *s, const wb__value *v);
/* Returns which dimensions of g's space the reduction v reduces.  Sets *cols to the number of
 * column dimensions that the space must have for v. */
wb__reduction wb__space_reduction(const wb__group *g, const wb__values *s, const wb__value *v,
                                  int *cols);
/* Moves the axes that v reduces to the end of g's space, where they become the columns, if the
 * reduction v does not fit without that and no other reduction has fixed the order.  The innermost
 * axis must stay innermost, since its elements are adjacent in memory. */
void wb__space_turn(wb__group *g, const wb__values *s, const wb__value *v);
/* Whether v fits into g's space.  If v is a reduction that fits, and g->col_dims is -1, may set
 * g->col_dims and turn the space. */
bool wb__space_admit(wb__group *g, const wb__values *s, const wb__value *v);
/* Whether the reduction v is over the last axes, but not over all axes, of an operand that is not
 * channels last.  The kernel that computes such a reduction can also read the result. */
bool wb__reduces_columns(const wb__values *s, const wb__value *v);
/* Whether v has the dimensions of g's space. */
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
    int allocation;     /* index of the arena allocation from whose first byte the view's offset
                           counts; -1: the view is of another buffer, or of none */
} wb__step_operand;

/* The memory that holds a value.  A field is -1 where it does not apply. */
typedef struct {
    int operand;    /* index in wb__placement.operand: memory of a stored value or a leaf */
    int result;         /* the value is computed in the memory of this result; index in
                           wb__request.results */
    int write;          /* the value is computed in the variable of this write; index in
                           wb__request.writes */
    int concat, part;   /* the value is in the memory of the value `concat`, as its input number
                           `part`; a value that is itself a concat may be this input and inputs
                           after it */
    int dense;          /* whether each part of this concat is dense if the concat is; 1, 0 or -1 */
    int replaced;       /* index of the allreduce or scatter_set, its only reader, in whose memory
                           it is */
} wb__role;

typedef struct {
    wb__step_operand *operand;
    int n_operands;
    wb__role *role;     /* the role of each value */
    bool *is_final;     /* of each group: whether it runs at the end, where variables are written */
    int64_t *bytes;     /* size of each arena allocation */
    int n_allocations;
    int result_buffer, arena_buffer;    /* buffer index of the first result; buffer index of the
                                           arena */
} wb__placement;

bool wb__placement_make(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
                        const wb__groups *g, wb__placement *l);
void wb__placement_free(wb__placement *l);
/* Returns the value in whose memory x is by reshapes alone; x itself if that value is another view
 * or is channels last. */
int wb__same_memory(const wb__values *s, int x);
/* Returns the value that x, an input of the concat, reshapes, through several reshapes; x if there
 * are none.  Unless the parts of the concat are dense in its memory, only reshapes that add or drop
 * dimensions of size 1 count. */
int wb__content(const wb__values *s, const wb__placement *l, int concat, int x);
/* Whether the inputs of the concat cover all of its elements. */
bool wb__is_covered(const wb__values *s, const wb__value *concat);

/* ---- programs -------------------------------------------------------------------------------- */

/* A plan step that is being built.  wb__lay_out makes the views of `step` from `operand`, `aux` and
 * `sums`. */
typedef struct {
    wb__step step;
    wb__step_operand *operand;          /* memory of step.views */
    int n_operands, capacity;
    wb__step_operand aux, sums;         /* memory of step.aux and step.sums */
    /* of a fused step: the arrays to which step.fused points */
    wb__view *views;
    wb__instr *instr;
    wb__space *spaces;
    wb__window *windows;
    int32_t *args;
    int n_windows, windows_capacity;
    char *text;
    int waits_for;      /* last COLLECTIVE step that must be complete before this step; -1: none */
    int after;  /* last step of the other branch that must be complete before this step; -1: none */
    bool first;                         /* the step copies a leaf, and is moved to the beginning */
} wb__plan_step;

typedef struct {
    wb__plan_step *step;
    int n, capacity, n_compute;         /* steps before n_compute write no variable */
    wb__number *constants;              /* values of fixed literals; the numbers of a run are the
                                           request's numbers and then these */
    int n_constants, constants_capacity;
    int64_t *bytes;                     /* sizes of the arena allocations that this stage adds;
                                           their indices follow those of wb__placement */
    int n_allocations, allocations_capacity;
    int64_t arena_bytes;
    bool branches;                      /* some step is in the other branch */
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
    int *instr_of;              /* of each value of the current group: index of its instruction */
    int *constant_of;   /* of each fixed literal: its index in out->constants; -1: not added yet */
    /* of each product of wb__patterns: the memory of the sign bits that it writes; allocation -1:
     * none yet */
    wb__step_operand *bits_of;
    bool failed;
} wb__emitter;

/* Sets *out to the view and the memory of x.  False: the emitter has failed, now or earlier. */
bool wb__step_operand_of(wb__emitter *m, int x, wb__step_operand *out);
/* Adds an arena allocation of the size of `like`.  Returns a dense operand in it, with the dtype,
 * dimensions and layout of `like`. */
wb__step_operand wb__emit_allocation(wb__emitter *m, const wb__value *like);
void wb__step_begin(const wb__emitter *m, wb__step_kind kind, wb__plan_step *d);
/* Adds an operand to the step, and returns the operand's index. */
int wb__add_operand(wb__emitter *m, wb__plan_step *d, const wb__step_operand *at);
/* Adds the step to the programs; takes ownership of d's arrays. */
void wb__emit_step(wb__emitter *m, wb__plan_step *d);
void wb__emit_copy(wb__emitter *m, const wb__step_operand *from, const wb__step_operand *to,
                   const char *reason);
void wb__emit_fused(wb__emitter *m, int group);                     /* fused.c */
void wb__emit_zeros(wb__emitter *m, const wb__step_operand *to);
/* Emits a step that fills `to` with a padded view, whose window is w. */
void wb__emit_padded(wb__emitter *m, const wb__step_operand *from, const wb__window *w,
                     const wb__step_operand *to);
/* Emits the copy of a leaf, which runs at the beginning.  Copies of one dtype become one kernel. */
void wb__emit_first(wb__emitter *m, const wb__step_operand *from, const wb__step_operand *to);
void wb__emit_library(wb__emitter *m, int group);                   /* library.c */
void wb__step_free(wb__plan_step *d);
/* Moves the copies of leaves to the beginning.  Merges copies, and kernels that write variables, if
 * they differ only in their operands, or if `numbers` also in numbers (segments.c). */
bool wb__merge_segments(wb__programs *p, bool numbers);

/* Adds steps that pack an operand of several products (packs.c).  False: failed, the error set. */
bool wb__pack_operands(wb__emitter *m);
/* Whether two views of one buffer are the same. */
bool wb__same_view(const wb__view *a, const wb__view *b);

/* Assigns an offset to each arena allocation and fills in the views of the steps (arena.c).
 * scarce: scarce_memory of wb__backend.  branches: may put steps into the other branch
 * (branches.c), if the arena grows little by this. */
bool wb__lay_out(const wb__placement *l, bool scarce, bool branches, wb__programs *s);
/* Sets `in_branch` of the steps and s->branches (branches.c); the steps have their views.  False:
 * out of memory. */
bool wb__branches_choose(const wb__placement *l, wb__programs *s);
/* Sets `after` of the steps.  of: for each arena allocation, its bytes in the arena. */
typedef struct { int64_t begin, end; } wb__range;
void wb__branches_join(wb__programs *s, const wb__range *of);

/* ---- plan ------------------------------------------------------------------------------------ */

/* trace.c: logs the results of the stages. */
void wb__trace(const wb__attempt *a, const wb__values *s, const wb__patterns *p,
               const wb__groups *g, const wb__placement *l);
/* Makes the plan (prepare.c).  NULL: failure, with the error set; the error is WB_ERROR_UNSUPPORTED
 * if the backend declined a step. */
wb__plan *wb__plan_finish(const wb__attempt *a, const wb__values *values,
                          const wb__placement *placement, const wb__programs *programs);
/* The cost of a step (cost.c): bytes of operands and results, each element counted once, and the
 * floating-point operations of a product, a convolution or attention (of others: 0). */
typedef struct { int64_t read, written; double flops; } wb__cost;
wb__cost wb__step_cost(const wb__step *s);
bool wb__step_writes(const wb__step *s, int i);      /* whether a library step writes view i */
char *wb__describe(const wb__plan_step *d, const wb__kernel *k);     /* describe.c: one line, which
                                                                        the caller frees; NULL: out
                                                                        of memory */

#endif
