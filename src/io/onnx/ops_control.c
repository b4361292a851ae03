/* Operators of ONNX that call graphs, make constants, or keep their input's elements: If, Loop,
 * Constant, ConstantOfShape, Shape, Cast, Range, EyeLike. */
#include "io/onnx/frame.h"
#include "io/onnx/ops_common.h"
#include "weber/ops.h"

#include <math.h>
#include <string.h>

/* ---- If -------------------------------------------------------------------------------------- */

/* Sets *yes to the one element of x.  False with the error set. */
static bool onnx_control_read_bool(wb__onnx_call *c, const wb__onnx_value *value, wb_tensor *x,
                                   wb__onnx_known known, bool *yes)
{
    const int64_t *list;
    const int n = wb__onnx_numbers(c, "the condition", value, x, known, &list);
    if (n < 0) return false;
    if (n != 1)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "the condition is %s; it must be one element",
                               wb_describe(x));
    *yes = *list != 0;
    return true;
}

/* Returns the graph that is the attribute's value.  NULL with the error set. */
static const wb__onnx_graph *onnx_control_graph_of(wb__onnx_call *c, const char *name)
{
    const wb__onnx_attr *a = wb__onnx_attribute(c, name);
    if (a && a->g) return a->g;
    wb__onnx_refuse(c, WB_ERROR_FORMAT, "has no graph '%s'", name);
    return NULL;
}

bool wb__onnx_if(wb__onnx_call *c)
{
    int64_t yes = 0;
    if (!wb__onnx_input_int(c, 0, &yes)) return false;
    const wb__onnx_graph *g = onnx_control_graph_of(c, yes ? "then_branch" : "else_branch");
    if (!g) return false;
    if (g->n_outputs != c->n_out)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "has %d outputs, and its graph '%.100s' %d",
                               c->n_out, g->name, g->n_outputs);
    wb__onnx_known *known = c->run->out_known, condition = wb__onnx_known_of(c, 0);
    if (!wb__onnx_subgraph(c, g, 0, NULL, NULL, c->out, known)) return false;
    for (int i = 0; i < c->n_out; i++) known[i] = WB__MIN(known[i], condition);
    return true;
}

/* ---- Loop ------------------------------------------------------------------------------------ */

enum { ITERATIONS = 1 << 16 };          /* the most of all loops in a call */

/* A loop that is being unrolled.  The body's inputs are the iteration, the condition and n values
 * that go from iteration to iteration.  Its outputs are the condition, these n values, and n_scans
 * further ones, whose values of all iterations are collected. */
typedef struct {
    const wb__onnx_graph *body;
    int n, n_scans;
    int64_t most, done;                 /* the most iterations; those that are done */
    bool goes_on;                       /* whether a further iteration follows */
    wb__onnx_known known;               /* what the number of iterations depends on */
    wb_tensor **in, **out;              /* inputs and outputs of the body */
    wb__onnx_known *in_known, *out_known;
    wb_tensor **scanned;                /* the further outputs, [done][n_scans] */
    wb__onnx_known *scanned_known;
    int capacity, known_capacity;       /* capacities of these two lists */
} onnx_control_loop;

/* Returns an i64 or bool of no dimensions, on the CPU. */
static wb_tensor *onnx_control_number(int64_t value, wb_dtype dtype)
{
    wb__apart a;
    const uint8_t byte = value != 0;
    wb__apart_begin(&a, &wb__cpu);
    wb_tensor *x = wb_from(dtype == WB_BOOL ? (const void *)&byte : &value, dtype, 0, NULL);
    wb__apart_end(&a);
    return x;
}

/* Reads the trip count and the condition into *l, and checks the numbers of inputs and outputs. */
static bool onnx_control_init_loop(wb__onnx_call *c, onnx_control_loop *l)
{
    int64_t yes = 1;
    const wb__onnx_graph *g = l->body;
    l->n = WB__MAX(c->n_in - 2, 0);
    l->n_scans = g->n_outputs - 1 - l->n;
    if (g->n_inputs != 2 + l->n || l->n_scans < 0 || c->n_out > l->n + l->n_scans)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "carries %d values and has %d outputs; its "
                               "graph has %d inputs and %d outputs", l->n, c->n_out, g->n_inputs,
                               g->n_outputs);
    if (l->n_scans > INT32_MAX / ITERATIONS)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "collects %d values in each iteration; at "
                               "most %d are done", l->n_scans, INT32_MAX / ITERATIONS);
    l->most = INT64_MAX;
    if (!wb__onnx_input_int(c, 0, &l->most) || !wb__onnx_input_int(c, 1, &yes)) return false;
    l->goes_on = yes != 0;
    l->known = WB__MIN(WB__ONNX_BY_SIZES,
                       WB__MIN(wb__onnx_known_of(c, 0), wb__onnx_known_of(c, 1)));
    for (int i = 0; i < l->n; i++) {
        if (!wb__onnx_in(c, 2 + i))
            return wb__onnx_refuse(c, WB_ERROR_FORMAT, "its input %d is left out", 2 + i);
        l->in[2 + i] = c->in[2 + i];
        l->in_known[2 + i] = WB__MIN(l->known, wb__onnx_known_of(c, 2 + i));
    }
    return true;
}

/* Calls the body once, and updates *l. */
static bool onnx_control_iterate(wb__onnx_call *c, onnx_control_loop *l)
{
    const wb__onnx_graph *g = l->body;
    if (++c->run->iterations > ITERATIONS)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "the loops of a call have more than %d "
                               "iterations, which are unrolled", ITERATIONS);
    l->in[0] = onnx_control_number(l->done, WB_I64);
    l->in[1] = onnx_control_number(l->goes_on, WB_BOOL);
    l->in_known[0] = l->in_known[1] = l->known;
    if (!l->in[0] || !l->in[1]) return false;
    if (!wb__onnx_subgraph(c, g, g->n_inputs, l->in, l->in_known, l->out, l->out_known) ||
        !onnx_control_read_bool(c, &g->values[g->outputs[0]], l->out[0], l->out_known[0],
                                &l->goes_on))
        return false;
    l->known = WB__MIN(l->known, l->out_known[0]);
    for (int i = 0; i < l->n; i++) {
        l->in[2 + i] = l->out[1 + i];
        l->in_known[2 + i] = WB__MIN(l->known, l->out_known[1 + i]);
    }
    const int first = (int)l->done * l->n_scans;
    if (!wb__reserve(&l->scanned, &l->capacity, first + l->n_scans, sizeof *l->scanned) ||
        !wb__reserve(&l->scanned_known, &l->known_capacity, first + l->n_scans,
                     sizeof *l->scanned_known))
        return false;
    for (int i = 0; i < l->n_scans; i++) {
        l->scanned[first + i] = l->out[1 + l->n + i];
        l->scanned_known[first + i] = l->out_known[1 + l->n + i];
    }
    l->done++;
    return true;
}

/* Returns the collected output of a loop without iterations: of size 0 along the new axis. */
static wb_tensor *onnx_control_empty_output(wb__onnx_call *c, const wb__onnx_value *value)
{
    const wb_dtype dtype = wb__onnx_dtype(value->type);
    int64_t dims[WB_MAX_DIMS] = {0};
    bool known = dtype && value->ndim >= 0 && value->ndim < WB_MAX_DIMS;
    for (int i = 0; known && i < value->ndim; i++)
        known = (dims[1 + i] = value->dims[i]) >= 0;
    if (known) return wb_full_array(0, dtype, value->ndim + 1, dims);
    wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "has no iterations, and the file does not have the "
                    "sizes of its output '%.100s'", value->name);
    return NULL;
}

/* Returns collected output i.  The results of the iterations may be on several devices, if some of
 * them do not vary; then all go to the device of the call. */
static wb_tensor *onnx_control_stack_output(wb__onnx_call *c, const onnx_control_loop *l, int i,
                                            wb__onnx_known *known)
{
    const wb__onnx_value *value = &l->body->values[l->body->outputs[1 + l->n + i]];
    wb__apart a;
    *known = l->known;
    if (!l->done) return onnx_control_empty_output(c, value);
    wb_tensor **list = wb__alloc((size_t)l->done * sizeof *list);
    if (!list) return NULL;
    for (int64_t k = 0; k < l->done; k++)
        *known = WB__MIN(*known, l->scanned_known[k * l->n_scans + i]);
    bool ok = true;
    for (int64_t k = 0; ok && k < l->done; k++) {
        const int64_t at = k * l->n_scans + i;
        list[k] = *known != WB__ONNX_VARIES ? l->scanned[at]
                         : wb__onnx_data(c->run, value, l->scanned[at],
                                         WB__MIN(WB__ONNX_BY_SIZES, l->scanned_known[at]));
        ok = list[k] != NULL;
    }
    if (*known != WB__ONNX_VARIES) wb__apart_begin(&a, &wb__cpu);
    wb_tensor *x = ok ? wb_stack_array(0, (int)l->done, list) : NULL;
    if (*known != WB__ONNX_VARIES) wb__apart_end(&a);
    wb__free(list);
    return x;
}

static bool onnx_control_run_loop(wb__onnx_call *c, onnx_control_loop *l)
{
    if (!onnx_control_init_loop(c, l)) return false;
    while (l->goes_on && l->done < l->most)
        if (!onnx_control_iterate(c, l)) return false;
    for (int i = 0; i < c->n_out; i++) {
        wb__onnx_known *known = &c->run->out_known[i];
        if (i < l->n) {
            c->out[i] = l->in[2 + i];
            *known = WB__MIN(l->known, l->in_known[2 + i]);
        } else if (wb__onnx_wants(c, i) &&
                   !(c->out[i] = onnx_control_stack_output(c, l, i - l->n, known))) {
            return false;
        }
    }
    return true;
}

bool wb__onnx_loop(wb__onnx_call *c)
{
    onnx_control_loop l = {.body = onnx_control_graph_of(c, "body")};
    if (!l.body) return false;
    const size_t n = (size_t)WB__MAX(l.body->n_inputs, c->n_in) + 2;
    const size_t n_out = (size_t)l.body->n_outputs + 1;
    l.in = wb__alloc_zero(n + n_out, sizeof *l.in);
    l.in_known = wb__alloc_zero(n + n_out, sizeof *l.in_known);
    bool ok = l.in && l.in_known;
    if (ok) {
        l.out = l.in + n;
        l.out_known = l.in_known + n;
        ok = onnx_control_run_loop(c, &l);
    }
    wb__free(l.in);
    wb__free(l.in_known);
    wb__free(l.scanned);
    wb__free(l.scanned_known);
    return ok;
}

/* Returns the constant of an attribute other than `value`. */
static wb_tensor *onnx_control_list_of(wb__onnx_call *c, const wb__onnx_attr *a)
{
    const int64_t n = a->n;
    if (!strcmp(a->name, "value_int") && a->type == WB__ONNX_IS_INT)
        return wb_from(&a->i, WB_I64, 0, NULL);
    if (!strcmp(a->name, "value_ints") && a->type == WB__ONNX_IS_INTS)
        return wb_from(a->ints, WB_I64, 1, &n);
    if (!strcmp(a->name, "value_float") && a->type == WB__ONNX_IS_FLOAT)
        return wb_from(&a->f, WB_F32, 0, NULL);
    if (!strcmp(a->name, "value_floats") && a->type == WB__ONNX_IS_FLOATS)
        return wb_from(a->floats, WB_F32, 1, &n);
    wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "its attribute '%.100s' of type %s is not known; "
                    "texts and sparse tensors are not supported", a->name,
                    wb__onnx_attr_type_name(a->type));
    return NULL;
}

bool wb__onnx_constant_node(wb__onnx_call *c)
{
    if (c->node->n_attrs != 1)
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "has %d attributes; it must have one",
                               c->node->n_attrs);
    const wb__onnx_attr *a = c->node->attrs;
    if (!strcmp(a->name, "value") && a->t) return wb__onnx_give(c, wb__onnx_constant(c, a->t));
    wb_tensor *kept = wb__onnx_cached(c->run->state, wb_default_device(), a);
    if (!kept)
        kept = wb__onnx_cache(c->run->state, wb_default_device(), a, onnx_control_list_of(c, a));
    return wb__onnx_give(c, kept);
}

bool wb__onnx_constant_of_shape(wb__onnx_call *c)
{
    const int64_t *dims;
    const wb__onnx_attr *a = wb__onnx_attribute(c, "value");
    const wb__onnx_tensor *t = a ? a->t : NULL;
    if (a && (!t || t->size != 1))
        return wb__onnx_refuse(c, WB_ERROR_FORMAT, "its attribute 'value' is not one number");
    const int n = wb__onnx_input_ints(c, 0, &dims);
    if (n < 0) return false;
    if (n > WB_MAX_DIMS)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "%d dimensions; the most are %d", n,
                               WB_MAX_DIMS);
    const wb_dtype dtype = t ? wb__onnx_dtype(t->type) : WB_F32;
    double value = 0;
    int64_t whole = 0;
    char element[8] = {0};
    if (t && !dtype) return wb__onnx_give(c, wb__onnx_constant(c, t));      /* which fails */
    if (t) memcpy(element, t->data, wb__dtype_size(dtype));
    if (t) wb__convert(&value, WB_F64, element, dtype, 1);
    memcpy(&whole, element, sizeof whole);
    if (dtype != WB_I64 || (whole < (int64_t)1 << 53 && whole > -((int64_t)1 << 53)))
        return wb__onnx_give(c, wb_full_array(value, dtype, n, dims));
    wb_tensor *x = wb__onnx_constant(c, t);             /* no double has the number */
    x = x ? wb_reshape_array(x, 0, NULL) : NULL;
    return wb__onnx_give(c, x ? wb_expand_array(x, n, dims) : NULL);
}

bool wb__onnx_shape(wb__onnx_call *c)
{
    const int64_t ndim = c->in[0]->ndim;
    int64_t start = wb__onnx_int(c, "start"), end = wb__onnx_int_or(c, "end", ndim);
    start = WB__MIN(WB__MAX(start < 0 ? start + ndim : start, 0), ndim);
    end = WB__MIN(WB__MAX(end < 0 ? end + ndim : end, 0), ndim);
    const int64_t n = WB__MAX(end - start, 0);
    return wb__onnx_give(c, wb_from(c->in[0]->dims + (n ? start : 0), WB_I64, 1, &n));
}

/* ---- Cast ------------------------------------------------------------------------------------ */

/* Computes Cast.  The attributes `saturate` and `round_mode` are about float8, which Weber
 * lacks. */
bool wb__onnx_cast(wb__onnx_call *c)
{
    const wb_dtype dtype = wb__onnx_dtype_in(c, "to", 0);
    return dtype && wb__onnx_give(c, wb__as(c->in[0], dtype));
}

/* ---- Range and EyeLike ----------------------------------------------------------------------- */

static bool onnx_control_real_range(wb__onnx_call *c, wb_dtype dtype)
{
    double v[3] = {0};
    for (int i = 0; i < 3; i++)
        if (!wb__onnx_input_real(c, i, &v[i])) return false;
    const double count = ceil((v[1] - v[0]) / v[2]);
    if (v[2] == 0 || !isfinite(count) || count >= (double)WB__MAX_DIM)
        return wb__onnx_refuse(c, WB_ERROR_ARGUMENT, "from %g to %g by %g", v[0], v[1], v[2]);
    const int64_t n = count > 0 ? (int64_t)count : 0;
    double *values = wb__alloc((size_t)n * sizeof *values + 1);
    for (int64_t i = 0; values && i < n; i++) values[i] = v[0] + (double)i * v[2];
    return wb__onnx_give(c, wb__from_doubles(values, dtype, 1, &n));
}

bool wb__onnx_range(wb__onnx_call *c)
{
    int64_t v[3] = {0};
    if (wb__onnx_int(c, "stash_type") != WB__ONNX_FLOAT)
        return wb__onnx_refuse(c, WB_ERROR_UNSUPPORTED, "stash_type is not float32");
    const wb_dtype dtype = (wb_dtype)c->in[0]->dtype;
    if (wb__dtype_float(dtype)) return onnx_control_real_range(c, dtype);
    for (int i = 0; i < 3; i++)
        if (!wb__onnx_input_int(c, i, &v[i])) return false;
    const int64_t most = (int64_t)1 << 52;      /* a double has these integers */
    bool fits = v[2] != 0;
    for (int i = 0; i < 3; i++) fits = fits && v[i] < most && v[i] > -most;
    const int64_t distance = fits ? v[1] - v[0] : 0;
    const int64_t n = fits && (distance > 0) == (v[2] > 0) ? distance / v[2] +
                                                             (distance % v[2] != 0) : 0;
    if (!fits || n >= WB__MAX_DIM)
        return wb__onnx_refuse(c, WB_ERROR_ARGUMENT, "from %lld to %lld by %lld", (long long)v[0],
                               (long long)v[1], (long long)v[2]);
    wb_tensor *x = wb_arange(n, dtype);
    if (x && v[2] != 1) x = wb_mul(x, wb__literal((double)v[2], dtype));
    if (x && v[0]) x = wb_add(x, wb__literal((double)v[0], dtype));
    return wb__onnx_give(c, x);
}

bool wb__onnx_eye_like(wb__onnx_call *c)
{
    const wb_tensor *x = c->in[0];
    const wb_dtype dtype = wb__onnx_dtype_in(c, "dtype", (wb_dtype)x->dtype);
    const int64_t k = wb__onnx_int(c, "k");
    if (!dtype) return false;
    if (x->ndim != 2)
        return wb__onnx_refuse(c, WB_ERROR_SHAPE, "its input is %s; it must have 2 dimensions",
                               wb_describe(x));
    if (k > WB__MAX_DIM || k < -WB__MAX_DIM)
        return wb__onnx_give(c, wb_full_array(0, dtype, 2, x->dims));
    wb_tensor *row = wb_arange(x->dims[0], WB_I64), *column = wb_arange(x->dims[1], WB_I64);
    row = row ? wb_add(wb_unsqueeze(row, 1), wb__literal((double)k, WB_I64)) : NULL;
    return wb__onnx_give(c, row && column ? wb_astype(wb_eq(row, column), dtype) : NULL);
}
