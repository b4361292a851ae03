/* What the files of this folder define.  Each file has one operation, or a few that belong
 * together: the public function with its shape rule, the gradient, the composed form, and the step
 * that a backend performs.  The row of an operation in ops.def names its functions for the
 * gradient, the composed form and the step, which begin with wb__grad_, wb__composed_ and
 * wb__fill_. table.c has tables of these functions. */
#ifndef WB__OP_H
#define WB__OP_H

#include "engine/gradient/gradient.h"
#include "engine/plan/stages.h"
#include "weber/indexing.h"

#define WB__ANY_USE __attribute__((unused))

/* ---- the gradient: see wb__gradient_rule ----------------------------------------------------- */

#define GRADIENT(name)                                                                             \
    void wb__grad_##name(WB__ANY_USE wb__gradient_walk *w, WB__ANY_USE wb_tensor *node,            \
                         WB__ANY_USE wb_tensor *g, WB__ANY_USE const bool *wanted,                 \
                         wb_tensor **out)

/* Returns the operation `op` of p and q (q NULL: of p alone), with the shape of `like` and the
 * attributes of `node`. */
wb_tensor *wb__like(wb__op op, const wb_tensor *like, wb_tensor *p, wb_tensor *q,
                    const wb_tensor *node);

/* Whether b is WB_NONE or a bias of n numbers with the dtype of the weight w.  Else sets the
 * error. */
bool wb__bias_fits(const char *what, const wb_tensor *b, const wb_tensor *w, int64_t n);

/* Reads the options of a reduction of x: sets *o to them and *mask to the reduced axes.  False: the
 * error is set. */
bool wb__read_axes(const char *what, const wb_tensor *x, const wb_reduce_options *options,
                   wb_reduce_options *o, unsigned *mask);
/* Returns the number of elements of x along the axes of the mask. */
double wb__reduced(const wb_tensor *x, unsigned mask);
/* Returns the square root of x, whose gradient is 0 where x is 0.  NULL gives NULL. */
wb_tensor *wb__root_of(wb_tensor *x);
/* Returns x as [outer, n, inner], where n is the size of the axis.  NULL: failed. */
wb_tensor *wb__around(wb_tensor *x, int axis);
/* Returns y, [outer, n, inner] with any n, in the shape of x with n in place of the axis. */
wb_tensor *wb__around_back(wb_tensor *y, const wb_tensor *x, int axis);

/* ---- the composed form: the operation, computed by other operations -------------------------- */

typedef int wb__composed_function(const wb__attempt *a, wb__values *s, const wb_tensor *x,
                                  const int *in);
#define WB_LIBRARY(name, step, variant, form, gradient) wb__composed_function wb__composed_##form;
#define WB_COMPOSITE(name, form, gradient) wb__composed_function wb__composed_##form;
#include "ops/ops.def"
extern wb__composed_function *const wb__composed[WB__OP_COUNT];        /* NULL: the operation has no
                                                                          composed form */

#define COMPOSED(name)                                                                             \
    int wb__composed_##name(WB__ANY_USE const wb__attempt *a, WB__ANY_USE wb__values *s,           \
                            WB__ANY_USE const wb_tensor *x, const int *in)

int wb__ir_as(wb__ir *ir, int x, wb_dtype dtype);       /* value x cast to dtype; x itself if it has
                                                           that dtype */
int wb__ir_softmax(wb__ir *ir, int x);                  /* the softmax of value x over its last
                                                           axis, in x's dtype */

/* ---- the step: its operands, results and attributes ------------------------------------------ */

typedef void wb__fill_function(wb__emitter *m, const wb__group *g, const wb__product *p,
                               const wb__value *v);
#define WB_LIBRARY(name, step, variant, form, gradient) wb__fill_function wb__fill_##step;
#include "ops/ops.def"
/* NULL: the operation has no step */
extern wb__fill_function *const wb__fill[WB__OP_COUNT];

#define FILL(STEP)                                                                                 \
    void wb__fill_##STEP(wb__emitter *m, WB__ANY_USE const wb__group *g,                           \
                         WB__ANY_USE const wb__product *p, const wb__value *v)

static inline wb__plan_step *wb__last_step(wb__emitter *m) { return m->step; }
static inline int wb__operand_of(const wb__emitter *m, const wb__value *v, int i)
{
    return wb__input(m->values, v, i);
}
static inline const int64_t *wb__attrs_of(const wb__emitter *m, const wb__value *v)
{
    return m->values->ir.attrs + v->attr;
}

/* Adds value x as the next operand of the step (plan/library.c).  If the strides of x are not
 * allowed, an earlier step copies x first.  Allowed strides:
 *   add_dense    dense and row-major, or dense in the layout [N, H, W, C] if `channels_last`
 *   add_matrix   one of the last two strides is 1
 *   add_rows     the last stride is 1, the others are positive
 *   add_any      any */
void wb__add_dense(wb__emitter *m, int x, bool channels_last);
void wb__add_matrix(wb__emitter *m, int x, bool transposed, const wb__value *product);
void wb__add_rows(wb__emitter *m, int x);
void wb__add_any(wb__emitter *m, int x);
/* Adds the result `op` of the step as the next operand.  If the plan does not use this result, the
 * operand is new memory with the shape of `like` that is free again after the step. */
void wb__add_result(wb__emitter *m, const wb__group *g, wb__op op, const wb__value *like);

/* Moves an axis to the front of the view, and reverses it if `reverse`. */
void wb__bring_in_front(wb__view *v, int axis, bool reverse);

/* ---- memory layout --------------------------------------------------------------------------- */

bool wb__conv_prefers_channels_last(const wb__attempt *a, const wb__ir *ir, const wb__value *v);

#endif
