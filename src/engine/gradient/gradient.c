/* The gradient walk, from a scalar back to the tensors that it was computed from.  The walk adds
 * ordinary operations to the graph.  The gradient rules of elementwise operations are in ops.def.
 * The rules of other operations are in the file of the operation (ops/, move.c).  src/tree/ builds
 * trees of gradients. */
#include "engine/gradient/gradient.h"

#include <string.h>

/* A contribution of an operation to the gradient of one of its inputs.  GRADIENT_PLAIN: the tensor
 * g.  SLICE: g at `starts` in a tensor of zeros.  GRADIENT_PRODUCT: the matrix product of g and b.
 * The last two are not computed at once, so that several can be computed together. */
typedef enum { GRADIENT_PLAIN, SLICE, GRADIENT_PRODUCT } contribution_kind;
typedef struct {
    contribution_kind kind;
    int next;                               /* next contribution to the same node; -1: none */
    wb_tensor *g;
    /* a GRADIENT_PRODUCT also has its second factor, and whether g and b are transposed */
    wb_tensor *b;
    bool ta, tb;
    int64_t starts[WB_MAX_DIMS];            /* where g of a SLICE begins on each axis */
} contribution;

/* For a node of the walk: the first and last of its contributions, as indices in `list` (first is
 * -1 if there are none), and whether its gradient is needed. */
typedef struct { int first, last; bool needed; } gradient_state;

struct wb__gradient_walk {
    wb__order order;
    wb__pointer_map wanted;                 /* index, in `wrt` of wb__gradients, of each tensor to
                                               differentiate by */
    bool wants_tensors;                     /* some of these tensors are no variables */
    bool bounded;                       /* the walk ends at the tensors of `wrt` and at `beside` */
    wb_tensor *beside;                      /* parameter of wb__gradients_within, or NULL */
    gradient_state *states;                 /* one for each tensor of the order */
    int state_capacity;
    contribution *list;                 /* the contributions to all nodes */
    int n_list, list_capacity;
    bool failed;
};

/* Arrays that the thread's next walk uses.  A walk inside another walk allocates its own. */
static _Thread_local wb__gradient_walk gradient_kept;

/* Returns a walk that has the arrays of the thread's last walk. */
static wb__gradient_walk take_kept_walk(void)
{
    wb__gradient_walk w = gradient_kept;
    gradient_kept = (wb__gradient_walk){0};
    w.n_list = 0;
    w.failed = w.bounded = w.wants_tensors = false;
    w.beside = NULL;
    wb__hash_clear(&w.wanted);
    return w;
}

static void free_walk(wb__gradient_walk *w)
{
    wb__order_free(&w->order);
    wb__pointer_map_free(&w->wanted);
    wb__free(w->states);
    wb__free(w->list);
    *w = (wb__gradient_walk){0};
}

/* Keeps the arrays of the walk for the next one. */
static void keep_walk(const wb__gradient_walk *w)
{
    wb__gradient_end();
    gradient_kept = *w;
}

void wb__gradient_end(void) { free_walk(&gradient_kept); }

static bool gradient_is_leaf(const wb_tensor *x)
{
    return x->op == WB__OP_constant || x->op == WB__OP_assign || x->op == WB__OP_stop;
}

/* Returns the index of a tensor in the walk; -1: it is not in the walk.  A gradient rule may
 * evaluate tensors, as that of wb_to does, which overwrites indices; then they are written
 * again. */
static int gradient_index_of(wb__gradient_walk *w, const wb_tensor *x)
{
    int i = wb__order_index(&w->order, x, gradient_is_leaf);
    if (i >= 0) return i;
    wb__order_again(&w->order, gradient_is_leaf);
    return wb__order_index(&w->order, x, gradient_is_leaf);
}

/* ---- contributions --------------------------------------------------------------------------- */

/* Adds a contribution to a node and returns it, so that the caller can fill it in.  NULL: the node
 * needs no gradient, or memory ran out (w->failed). */
static contribution *add_contribution(wb__gradient_walk *w, const wb_tensor *to,
                                      contribution_kind kind, wb_tensor *g)
{
    const int node = gradient_index_of(w, to);
    if (node < 0 || !w->states[node].needed) return NULL;
    if (!wb__reserve(&w->list, &w->list_capacity, w->n_list + 1, sizeof *w->list)) {
        w->failed = true;
        return NULL;
    }
    gradient_state *s = &w->states[node];
    if (s->first < 0) s->first = w->n_list;
    else w->list[s->last].next = w->n_list;
    s->last = w->n_list++;
    contribution *made = &w->list[s->last];
    made->kind = kind;
    made->next = -1;
    made->g = g;
    return made;
}

void wb__contribute_slice(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *g,
                          const int64_t *starts)
{
    contribution *made = add_contribution(w, node->in[i], SLICE, g);
    if (made) memcpy(made->starts, starts, node->in[i]->ndim * sizeof *starts);
}

void wb__contribute_product(wb__gradient_walk *w, wb_tensor *node, int i, wb_tensor *a,
                            wb_tensor *b, bool ta, bool tb)
{
    contribution *made = add_contribution(w, node->in[i], GRADIENT_PRODUCT, a);
    if (!made) return;
    made->b = b;
    made->ta = ta;
    made->tb = tb;
}

/* ---- sums of contributions ------------------------------------------------------------------- */

static bool slices_overlap(const contribution *p, const contribution *q, int ndim)
{
    for (int i = 0; i < ndim; i++)
        if (p->starts[i] + p->g->dims[i] <= q->starts[i] ||
            q->starts[i] + q->g->dims[i] <= p->starts[i])
            return false;
    return true;
}

/* Whether there is an axis along which the slices, in the order of p, only ascend or only descend
 * without overlap. */
static bool slices_in_a_row(contribution *const *p, int n, int ndim)
{
    for (int axis = 0; axis < ndim; axis++) {
        bool up = true, down = true;
        for (int i = 1; i < n && (up || down); i++) {
            up &= p[i - 1]->starts[axis] + p[i - 1]->g->dims[axis] <= p[i]->starts[axis];
            down &= p[i]->starts[axis] + p[i]->g->dims[axis] <= p[i - 1]->starts[axis];
        }
        if (up || down) return true;
    }
    return false;
}

static bool slices_are_disjoint(contribution *const *p, int n, int ndim)
{
    if (slices_in_a_row(p, n, ndim)) return true;
    if (n > 256) return false;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (slices_overlap(p[i], p[j], ndim)) return false;
    return true;
}

/* Returns the sum of the slices, with x's shape.  Slices that do not overlap become one concat. */
static wb_tensor *sum_of_slices(const wb_tensor *x, contribution *const *p, int n)
{
    wb_tensor *sum = NULL;
    if (slices_are_disjoint(p, n, x->ndim) && n * x->ndim <= UINT16_MAX) {
        wb_tensor **part = wb__alloc((size_t)n * sizeof *part);
        int64_t *starts = wb__alloc((size_t)(n * x->ndim + 1) * sizeof *starts);
        for (int i = 0; part && starts && i < n; i++) {
            part[i] = p[i]->g;
            memcpy(starts + i * x->ndim, p[i]->starts, x->ndim * sizeof *starts);
        }
        if (part && starts) sum = wb__concat_at(x->ndim, x->dims, n, part, starts);
        wb__free(part);
        wb__free(starts);
        return sum;
    }
    for (int i = 0; i < n; i++) {
        wb_tensor *one = wb__concat_at(x->ndim, x->dims, 1, &p[i]->g, p[i]->starts);
        sum = i ? wb_add(sum, one) : one;
    }
    return sum;
}

/* Returns the first or second factors of the contributions as one tensor.  The last contribution
 * comes first: it belongs to what the program computed first, and slices of the same tensors are in
 * that order. */
static wb_tensor *concatenate_factors(contribution *const *p, int n, bool second)
{
    wb_tensor **part = wb__alloc((size_t)n * sizeof *part), *all = NULL;
    for (int i = 0; part && i < n; i++) part[n - 1 - i] = second ? p[i]->b : p[i]->g;
    int axis = second ? p[0]->tb : !p[0]->ta;           /* the axis that the product sums over */
    if (part) all = wb_concat_array(axis, n, part);
    wb__free(part);
    return all;
}

/* Returns the sum of the products.  Three or more with the same transpositions become one product
 * of concatenated factors. */
static wb_tensor *sum_of_products(contribution *const *p, int n)
{
    bool alike = n > 2;
    for (int i = 1; i < n; i++) alike &= p[i]->ta == p[0]->ta && p[i]->tb == p[0]->tb;
    if (alike)
        return wb__matmul(concatenate_factors(p, n, false), concatenate_factors(p, n, true),
                          p[0]->ta, p[0]->tb);
    wb_tensor *sum = NULL;
    for (int i = 0; i < n; i++) {
        wb_tensor *one = wb__matmul(p[i]->g, p[i]->b, p[i]->ta, p[i]->tb);
        sum = i ? wb_add(sum, one) : one;
    }
    return sum;
}

static wb_tensor *sum_of_tensors(contribution *const *p, int n)
{
    wb_tensor *sum = p[0]->g;
    for (int i = 1; i < n; i++) sum = wb_add(sum, p[i]->g);
    return sum;
}

/* Returns the sum of the contributions to a node. */
static wb_tensor *total_gradient(wb__gradient_walk *w, int node)
{
    const wb_tensor *x = w->order.node[node];
    const int first = w->states[node].first;
    int all = 0;
    for (int i = first; i >= 0; i = w->list[i].next) all++;
    if (all == 1 && w->list[first].kind == GRADIENT_PLAIN) return w->list[first].g;
    contribution *few[4], **list = all <= 4 ? few : wb__alloc((size_t)all * sizeof *list);
    wb_tensor *sum = NULL;
    for (contribution_kind kind = GRADIENT_PLAIN; list && kind <= GRADIENT_PRODUCT; kind++) {
        int n = 0;
        for (int i = first; i >= 0; i = w->list[i].next)
            if (w->list[i].kind == kind) list[n++] = &w->list[i];
        if (!n) continue;
        wb_tensor *part = kind == GRADIENT_PLAIN    ? sum_of_tensors(list, n)
                          : kind == SLICE ? sum_of_slices(x, list, n)
                                           : sum_of_products(list, n);
        if (!(sum = sum ? wb_add(sum, part) : part)) break;
    }
    if (list != few) wb__free(list);
    return sum;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static int index_in_wrt(const wb__gradient_walk *w, const wb_tensor *x)
{
    const bool is_version = x->variable && !wb__is_gone(x);
    int i = is_version ? wb__pointer_map_get(&w->wanted, x->variable) : -1;
    return i >= 0 || !w->wants_tensors ? i : wb__pointer_map_get(&w->wanted, x);
}

/* Whether the walk ends at x, which need not be a leaf. */
static bool is_bound(const wb__gradient_walk *w, const wb_tensor *x)
{
    return gradient_is_leaf(x) || (w->bounded && (x == w->beside || index_in_wrt(w, x) >= 0));
}

/* Lists the tensors from the loss back to `wrt`, and which of them need a gradient. */
static bool list_walk(wb__gradient_walk *w, wb_tensor *loss, int n, wb_tensor *const *wrt)
{
    for (int i = 0; i < n; i++) {
        const wb_tensor *x = wrt[i];
        w->wants_tensors |= x->op != WB__OP_variable;
        if (!wb__pointer_map_put(&w->wanted, x, i)) return false;
    }
    wb__order_begin(&w->order);
    for (int i = 0; w->bounded && i < n; i++) {
        wb_tensor *end = wb__version("gradient", wrt[i]);
        if (!end || !wb__order_add_end(&w->order, end, gradient_is_leaf)) return false;
    }
    if (w->beside && !wb__order_add_end(&w->order, w->beside, gradient_is_leaf)) return false;
    if (!wb__order_add(&w->order, loss, gradient_is_leaf)) return false;
    if (!wb__reserve(&w->states, &w->state_capacity, w->order.n, sizeof *w->states)) return false;
    for (int i = 0; i < w->order.n; i++) {
        const wb_tensor *x = w->order.node[i];
        bool needed = index_in_wrt(w, x) >= 0;
        for (uint32_t j = 0; j < x->n_in && !needed && !is_bound(w, x); j++)
            needed = w->states[wb__order_index(&w->order, x->in[j], gradient_is_leaf)].needed;
        needed = needed && wb__dtype_float((wb_dtype)x->dtype);
        w->states[i] = (gradient_state){.first = -1, .needed = needed};
    }
    return true;
}

/* Calls the gradient rule of node x, whose gradient is g, and adds the results to the contributions
 * of x's inputs.  False: failed, with the error set or w->failed. */
static bool apply_rule(wb__gradient_walk *w, wb_tensor *x, wb_tensor *g)
{
    bool few_wanted[4] = {false};
    wb_tensor *few[4] = {NULL};
    bool *wanted = few_wanted, any = false;
    wb_tensor **out = few;
    if (x->op == WB__OP_automatic) {
        wb__fail(
            WB_ERROR_ARGUMENT,
            "gradient: %s acted in test mode, since the loss was built outside wb_withgradient: "
            "take the gradient with wb_withgradient(loss, model, batch, &grads), or call "
            "wb_trainmode (or "
            "wb_testmode) on the layer first",
            x->name ? x->name : "a layer");
        return false;
    }
    if (x->n_in > 4) {
        wanted = wb__alloc_zero(x->n_in, sizeof *wanted);
        out = wb__alloc_zero(x->n_in, sizeof *out);
    }
    bool good = wanted && out;
    for (uint32_t i = 0; good && i < x->n_in; i++) {
        any |= wanted[i] = w->states[gradient_index_of(w, x->in[i])].needed;
    }
    if (good && any && wb__gradient_rules[x->op]) {
        wb__gradient_rules[x->op](w, x, g, wanted, out);
        for (uint32_t i = 0; good && i < x->n_in; i++) {
            if (!wanted[i]) continue;
            good = out[i] != NULL;
            if (good && out[i] != WB_NONE) add_contribution(w, x->in[i], GRADIENT_PLAIN, out[i]);
        }
    }
    if (wanted != few_wanted) wb__free(wanted);
    if (out != few) wb__free(out);
    return good && !w->failed;
}

/* Whether a variable has no gradient because the loss was computed from a version that was
 * overwritten.  If so, sets the error. */
static bool fail_if_overwritten(const wb__gradient_walk *w, int n, wb_tensor *const *grads)
{
    for (int i = 0; i < w->order.n; i++) {
        const wb_tensor *x = w->order.node[i];
        if (!wb__is_gone(x) || !x->variable) continue;
        int which = wb__pointer_map_get(&w->wanted, x->variable);
        if (which < 0 || which >= n || grads[which]) continue;
        if (wb__overwritten_by_another("gradient", x)) return true;
        wb__fail(WB_ERROR_VERSION,
                 "gradient: the loss was made from a value of %s, %s, that has been overwritten "
                 "since: take the gradient before the update, or call the model again",
                 x->name ? x->name : "a parameter", wb_describe(x));
        return true;
    }
    return false;
}

/* Does the work of wb__gradients and, if `bounded`, of wb__gradients_within. */
static int gradients_of_loss(wb_tensor *loss, int n, wb_tensor *const *wrt, wb_tensor **grads,
                             bool bounded, wb_tensor *beside)
{
    if (!wb__floating("gradient", loss))
        return wb__error_or(WB_ERROR_ARGUMENT);
    if (loss->size != 1)
        return wb__fail(WB_ERROR_SHAPE, "gradient: the loss is %s, not one number",
                        wb_describe(loss));
    if (!(loss = wb__version("gradient", loss))) return (int)wb_error_code();
    if (loss->flags & WB__CUT && !loss->name)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "gradient: the loss, %s, outlived the scope that it was made in, and only "
                        "its value is known: take the gradient before the scope closes",
                        wb_describe(loss));
    if (loss->flags & WB__CUT && wb__overwritten_by_another("gradient", loss))
        return WB_ERROR_VERSION;
    if (loss->flags & WB__CUT)
        return wb__fail(WB_ERROR_VERSION,
                        "gradient: the loss was made from a value of %s that has been overwritten "
                        "since: take the gradient before the update, or call the model again",
                        loss->name);
    wb__gradient_walk w = take_kept_walk();
    w.bounded = bounded;
    w.beside = beside;
    const wb__frame f = wb__frame_begin();
    wb__this_thread()->busy++;
    for (int i = 0; i < n; i++) grads[i] = NULL;
    bool good = list_walk(&w, loss, n, wrt);
    if (good && w.states[w.order.n - 1].needed)
        add_contribution(&w, loss, GRADIENT_PLAIN,
                         wb_full_array(1, (wb_dtype)loss->dtype, loss->ndim, loss->dims));
    for (int i = w.order.n - 1; good && i >= 0; i--) {
        wb_tensor *x = w.order.node[i];
        if (w.states[i].first < 0) continue;
        wb_tensor *g = total_gradient(&w, i);
        int which = index_in_wrt(&w, x);
        good = g != NULL;
        /* The graph may have several versions of a variable.  Their gradients are added. */
        if (good && which >= 0)
            good = (grads[which] = grads[which] ? wb_add(grads[which], g) : g) != NULL;
        if (good && !is_bound(&w, x)) good = apply_rule(&w, x, g);
    }
    if (good && fail_if_overwritten(&w, n, grads)) good = false;
    for (int i = 0; good && i < n; i++)
        if (grads[i]) good = (grads[i] = wb__with_device(grads[i], wrt[i]->device)) != NULL;
    wb__this_thread()->busy--;
    wb__frame_end_many(f, good ? n : 0, (void *const *)grads);
    keep_walk(&w);
    if (good && !w.failed) return 0;
    return wb__error_or(WB_ERROR_MEMORY);
}

int wb__gradients(wb_tensor *loss, int n, wb_tensor *const *wrt, wb_tensor **grads)
{
    return gradients_of_loss(loss, n, wrt, grads, false, NULL);
}

int wb__gradients_within(wb_tensor *loss, int n, wb_tensor *const *wrt, wb_tensor **grads,
                         wb_tensor *beside)
{
    if (!(beside = wb__version("gradient", beside))) return (int)wb_error_code();
    return gradients_of_loss(loss, n, wrt, grads, true, beside);
}
