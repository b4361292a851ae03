/* Random graphs of 5 to 60 operations over small shapes, computed three ways: lazily as one plan,
 * with several results evaluated at once and assignments to variables between the operations;
 * eagerly, one operation at a time; by an interpreter in double precision.  Their gradients are
 * compared with finite differences of the interpreter.
 *
 *   conformance_graph [--seed N] [--count N]       the seed of a graph that fails is printed
 *
 * A graph is drawn as a program, a list of instructions over earlier values.  Each value has a
 * bound of its error in units of the dtype's precision.  An instruction whose result or error bound
 * is large is rejected, so that the comparison can be tight. */
#include "conformance_program.h"

#include "engine/tensor.h"

/* ---- drawing --------------------------------------------------------------------------------- */

/* The least and greatest element and the greatest magnitude; *high is NaN if an element is. */
static void extent(array x, double *low, double *high, double *most)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (int64_t i = 0; i < x.size; i++) {
        *low = fmin(*low, x.at[i]);
        *high = fmax(*high, x.at[i]);
        if (isnan(x.at[i])) *high = NAN;
    }
    if (!x.size) *low = *high = 0;
    *most = fmax(fabs(*low), fabs(*high));
}

/* A bound of |f'| on [low, high]; -1 where f is not defined there or its bound is too large. */
static double slope(const char *f, double low, double high)
{
    if (!strcmp(f, "square")) return 2 * fmax(fabs(low), fabs(high));
    if (!strcmp(f, "exp")) return high < 4 ? exp(high) : -1;
    if (!strcmp(f, "sqrt")) return low > 0.1 ? 2 : -1;
    if (!strcmp(f, "log")) return low > 0.1 ? 10 : -1;
    if (!strcmp(f, "log1p")) return low > -0.9 ? 10 : -1;
    if (!strcmp(f, "rsqrt")) return low > 0.2 ? 6 : -1;
    if (!strcmp(f, "reciprocal")) return low > 0.3 || high < -0.3 ? 12 : -1;
    return 2;
}

static bool draw_step(program *p, instruction *i, const array *value, double *error, bool *exact)
{
    int n = p->n_values;
    double low, high, most, low2 = 0, high2 = 0, most2 = 0;
    *i = (instruction){.kind = (op_kind)draw_int(0, OP_KINDS - 1),
                       .a = (int)draw_int(draw_int(0, 1) && n > 8 ? n - 6 : 0, n - 1)};
    array x = value[i->a];
    if (x.size > 400) return false;
    extent(x, &low, &high, &most);
    double e = p->error[i->a];
    *exact = false;
    switch (i->kind) {
    case OP_UNARY:
        i->name = unary_names[draw_int(0, LENGTH(unary_names) - 1)];
        if (slope(i->name, low, high) < 0) return false;
        if ((!strcmp(i->name, "sign") || !strcmp(i->name, "floor")) && !p->exact[i->a])
            return false;
        *exact = p->exact[i->a] &&
                 (!strcmp(i->name, "neg") || !strcmp(i->name, "abs") || !strcmp(i->name, "relu"));
        *error = e * slope(i->name, low, high) + 8;
        return true;
    case OP_BINARY:
        i->name = binary_names[draw_int(0, LENGTH(binary_names) - 1)];
        i->b = (int)draw_int(0, n - 1);
        if (!ref_broadcast(&x, &value[i->b], &i->n, i->dims)) return false;
        extent(value[i->b], &low2, &high2, &most2);
        if (!strcmp(i->name, "div") && !(low2 > 0.3 || high2 < -0.3)) return false;
        *error = !strcmp(i->name, "mul") ? e * most2 + p->error[i->b] * most
               : !strcmp(i->name, "div") ? 4 * e + 12 * most * p->error[i->b] : e + p->error[i->b];
        return true;
    case OP_SCALAR:
        i->name = binary_names[draw_int(0, LENGTH(binary_names) - 1)];
        i->number = draw_int(0, 2) ? (double)draw_int(-8, 8) / 4 : (double)draw_int(-1, 1);
        if (!strcmp(i->name, "div") && fabs(i->number) < 0.3) return false;
        *error = e * 4 + 2;
        return true;
    case OP_WHERE:
        i->name = draw_int(0, 1) ? "gt" : "le";
        i->b = (int)draw_int(0, n - 1);
        i->c = (int)draw_int(0, n - 1);
        i->number = (double)draw_int(-2, 2) / 4;
        *error = fmax(e, p->error[i->b]);
        return p->exact[i->c] && ref_broadcast(&x, &value[i->b], &i->n, i->dims) &&
               ref_broadcast(&value[i->c],
                             &(array){.ndim = i->n,
                                      .dims = {i->dims[0], i->dims[1], i->dims[2], i->dims[3],
                                               i->dims[4], i->dims[5]}},
                             &i->n, i->dims);
    case OP_REDUCE:
        i->name = reduce_names[draw_int(0, LENGTH(reduce_names) - 1)];
        i->mask = (unsigned)draw_int(0, (1 << x.ndim) - 1);
        if (!i->mask) i->mask = (1u << x.ndim) - 1;
        i->keep = draw_int(0, 1);
        if (!x.size) return false;
        *error = (strcmp(i->name, "sum") ? 4 * (1 + most) : (double)x.size) * (e + 1);
        return true;
    case OP_ROWS:
        i->name = row_names[draw_int(0, LENGTH(row_names) - 1)];
        i->n = (int)draw_int(1, x.ndim ? x.ndim : 1);
        *error = (20 * e + 20) * (1 + most);
        return x.ndim > 0 && x.size > 0;
    case OP_RESHAPE: {
        int64_t left = x.size;
        if (!left) return false;
        i->n = 0;
        while (left > 1 && i->n < 4) {
            int64_t d = draw_int(1, 6);
            if (left % d) continue;
            i->dims[i->n++] = d;
            left /= d;
        }
        if (left > 1) i->dims[i->n++] = left;
        break;
    }
    case OP_PERMUTE:
        for (int d = 0; d < x.ndim; d++) i->dims[d] = d;
        for (int d = x.ndim - 1; d > 0; d--) {
            int64_t at = draw_int(0, d), was = i->dims[d];
            i->dims[d] = i->dims[at];
            i->dims[at] = was;
        }
        i->n = x.ndim;
        break;
    case OP_EXPAND: {
        int extra = x.ndim < 4 ? (int)draw_int(0, 1) : 0;
        i->n = x.ndim + extra;
        if (extra) i->dims[0] = draw_int(1, 3);
        for (int d = 0; d < x.ndim; d++)
            i->dims[d + extra] = x.dims[d] == 1 ? draw_int(1, 4) : x.dims[d];
        break;
    }
    case OP_SLICE:
        if (!x.ndim) return false;
        i->n = (int)draw_int(0, x.ndim - 1);
        i->dims[0] = draw_int(0, x.dims[i->n] - 1);
        i->dims[1] = draw_int(i->dims[0] + 1, x.dims[i->n]);
        break;
    case OP_FLIP:
        if (!x.ndim) return false;
        i->n = (int)draw_int(0, x.ndim - 1);
        break;
    case OP_PAD:
        if (!x.ndim) return false;
        i->n = (int)draw_int(0, x.ndim - 1);
        i->dims[0] = draw_int(0, 2);
        i->dims[1] = draw_int(0, 2);
        break;
    case OP_CONCAT: case OP_STACK:
        if (!x.ndim && i->kind == OP_CONCAT) return false;
        i->n = (int)draw_int(0, x.ndim - (i->kind == OP_CONCAT));
        i->c = 1;
        i->part[0] = i->a;
        *exact = p->exact[i->a];
        for (int k = 0; k < 20 && i->c < 4; k++) {
            int j = (int)draw_int(0, n - 1);
            bool fits = value[j].ndim == x.ndim;
            for (int d = 0; fits && d < x.ndim; d++)
                fits = (d == i->n && i->kind == OP_CONCAT) || value[j].dims[d] == x.dims[d];
            if (!fits) continue;
            i->part[i->c++] = j;
            e = fmax(e, p->error[j]);
            *exact &= p->exact[j];
        }
        *error = e;
        return x.ndim < 5;
    case OP_MATMUL: {
        i->b = (int)draw_int(0, n - 1);
        array y = value[i->b];
        if (x.ndim < 2 || y.ndim < 2 || x.dims[x.ndim - 1] != y.dims[y.ndim - 2]) return false;
        array lx = {.ndim = x.ndim - 2}, ly = {.ndim = y.ndim - 2};
        memcpy(lx.dims, x.dims, sizeof lx.dims);
        memcpy(ly.dims, y.dims, sizeof ly.dims);
        if (!ref_broadcast(&lx, &ly, &i->n, i->dims)) return false;
        extent(y, &low2, &high2, &most2);
        *error = (double)(x.dims[x.ndim - 1] + 1) *
                 ((e + 1) * (most2 + 1) + (p->error[i->b] + 1) * (most + 1));
        return true;
    }
    case OP_TAKE:
        if (!x.ndim || !x.dims[0]) return false;
        i->dims[0] = draw_int(1, 4);
        for (int k = 0; k < i->dims[0]; k++)
            i->part[k] = (int)draw_int(draw_int(0, 5) ? 0 : -1, x.dims[0]);
        break;
    case OP_ASSIGN: {
        i->b = i->a;
        i->a = (int)draw_int(0, VARIABLES - 1);
        array v = value[i->a];
        if (p->smooth || v.ndim != x.ndim ||
            memcmp(v.dims, x.dims, sizeof *x.dims * (size_t)x.ndim))
            return false;
        *error = 0;
        return true;
    }
    default: return false;
    }
    *error = e;
    *exact = p->exact[i->a];
    return true;
}

/* Draws a program.  value receives its values; value[0 .. VARIABLES) holds what the variables
 * contain after the last assignment. */
static void draw_program(program *p, array *value)
{
    static const double limit[] = {[WB_F32] = 2e4, [WB_F64] = 1e9};
    int n_ops = (int)draw_int(5, MAX_OPS);
    int64_t dims[WB_MAX_DIMS];
    p->n_values = VARIABLES + LEAVES;
    p->n_ops = 0;
    for (int i = 0; i < p->n_values; i++) {
        int ndim = (int)draw_int(0, 4);
        for (int d = 0; d < ndim; d++) dims[d] = draw_int(0, 3) ? 3 : draw_int(1, 6);
        value[i] = draw_array(ndim, dims, -2, 2);
        round_to(value[i], p->dtype);
        p->start[i] = value[i];
        p->error[i] = 0;
        p->exact[i] = true;
    }
    for (int tries = 0; p->n_ops < n_ops && tries < 3000; tries++) {
        instruction i;
        double error, low, high, most;
        bool exact;
        if (!draw_step(p, &i, value, &error, &exact)) continue;
        if (i.kind == OP_ASSIGN) {
            value[i.a] = value[i.b];
            p->error[i.a] = p->error[i.b];
            p->exact[i.a] = p->exact[i.b];
            p->op[p->n_ops++] = i;
            continue;
        }
        if (p->n_values == MAX_VALUES) break;
        array y = interpret(&i, value);
        extent(y, &low, &high, &most);
        error += exact ? 0 : 4 * (1 + most);
        if (!(most < 100) || !(error < limit[p->dtype]) || y.ndim > 6 || y.size > 3000) continue;
        value[p->n_values] = y;
        p->error[p->n_values] = error;
        p->exact[p->n_values++] = exact;
        p->op[p->n_ops++] = i;
    }
}

/* ---- the library ----------------------------------------------------------------------------- */

static wb_tensor *unary(const char *name, wb_tensor *x)
{
    static const struct { const char *name; wb_tensor *(*f)(wb_tensor *); } all[] = {
#define WB_UNARY(name, accepts, expression, gradient) {#name, wb_##name},
#include "ops/ops.def"
        {"softmax", wb_softmax}, {"logsoftmax", wb_logsoftmax}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].f(x);
    return NULL;
}

static wb_tensor *binary(const char *name, wb_tensor *x, wb_tensor *y)
{
    static const struct { const char *name; wb_tensor *(*f)(wb_tensor *, wb_tensor *); } all[] = {
#define WB_BINARY(name, accepts, expression, gradient_x, gradient_y) {#name, wb_##name},
#define WB_COMPARE(name, accepts, expression) {#name, wb_##name},
#include "ops/ops.def"
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].f(x, y);
    return NULL;
}

static wb_tensor *call(const instruction *i, wb_tensor *const *value)
{
    wb_tensor *x = value[i->a], *part[4];
    wb_reduce_options o = WB_OPTIONS_OF(wb_reduce_options, .keep = i->keep);
    int64_t axes[WB_MAX_DIMS];
    int n_axes = 0;
    switch (i->kind) {
    case OP_UNARY: return unary(i->name, x);
    case OP_BINARY: return binary(i->name, x, value[i->b]);
    case OP_SCALAR: return binary(i->name, x, wb_scalar(i->number));
    case OP_WHERE:
        return wb_where(binary(i->name, value[i->c], wb_scalar(i->number)), x, value[i->b]);
    case OP_REDUCE:
        for (int d = 0; d < wb_ndim(x); d++)
            if (i->mask >> d & 1) axes[n_axes++] = d % 2 ? d : d - wb_ndim(x);
        wb_ints_set(o.axes, n_axes, axes);
        return !strcmp(i->name, "sum")        ? wb_sum_with(x, &o)
               : !strcmp(i->name, "mean")     ? wb_mean_with(x, &o)
               : !strcmp(i->name, "max")      ? wb_max_with(x, &o)
               : !strcmp(i->name, "min")      ? wb_min_with(x, &o)
               : !strcmp(i->name, "variance") ? wb_variance_with(x, &o)
                                              : wb_logsumexp_with(x, &o);
    case OP_ROWS:
        return strcmp(i->name, "normalize") ? unary(i->name, x) : wb_normalize(x, i->n, 0.1);
    case OP_RESHAPE: return wb_reshape_array(x, i->n, i->dims);
    case OP_PERMUTE: return wb_permute_array(x, i->n, i->dims);
    case OP_EXPAND: return wb_expand_array(x, i->n, i->dims);
    case OP_SLICE: return wb_slice(x, i->n, i->dims[0], i->dims[1]);
    case OP_FLIP: return wb_flip(x, i->n);
    case OP_PAD: return wb_pad(x, i->n, i->dims[0], i->dims[1]);
    case OP_CONCAT: case OP_STACK:
        for (int k = 0; k < i->c; k++) part[k] = value[i->part[k]];
        return i->kind == OP_CONCAT ? wb_concat_array(i->n, i->c, part)
                                    : wb_stack_array(i->n, i->c, part);
    case OP_MATMUL: return wb_matmul(x, value[i->b]);
    case OP_TAKE: return wb_take(x, wb_from(i->part, WB_I32, 1, i->dims));
    default: return NULL;
    }
}

/* Prints the instructions that value `of` depends on to standard error. */
static void describe(const program *p, const array *value, int of)
{
    static const char *const kinds[] = {"",        "",        "scalar ", "where ", "",      "",
                                        "reshape", "permute", "expand",  "slice",  "flip",  "pad",
                                        "concat",  "stack",   "matmul",  "take",   "assign"};
    bool needed[MAX_VALUES] = {false};
    int v = p->n_values;
    needed[of] = true;
    for (int i = 0; p->smooth && i < p->n_values; i++)
        needed[i] = true; /* the gradient depends on all values */
    for (int k = p->n_ops - 1; k >= 0; k--) {
        const instruction *i = &p->op[k];
        bool assigns = i->kind == OP_ASSIGN;
        if (!assigns) v--;
        if (assigns ? !needed[i->a] : !needed[v]) continue;
        needed[i->a] |= !assigns;
        if (assigns || i->kind == OP_BINARY || i->kind == OP_WHERE || i->kind == OP_MATMUL)
            needed[i->b] = true;
        if (i->kind == OP_WHERE) needed[i->c] = true;
        for (int j = 0; (i->kind == OP_CONCAT || i->kind == OP_STACK) && j < i->c; j++)
            needed[i->part[j]] = true;
    }
    v = VARIABLES + LEAVES;
    for (int k = 0; k < p->n_ops; k++) {
        const instruction *i = &p->op[k];
        if (i->kind == OP_ASSIGN) {
            fprintf(stderr, "  variable %d = %d\n", i->a, i->b);
            continue;
        }
        if (!needed[v++]) continue;
        fprintf(stderr, "  %d: %s%s %d %d %d n=%d mask=%x number=%g", v - 1, kinds[i->kind],
                i->name ? i->name : "", i->a, i->b, i->c, i->n, i->mask, i->number);
        for (int d = 0; d < 4 && (i->kind >= OP_RESHAPE); d++)
            fprintf(stderr, " %lld/%d", (long long)i->dims[d], i->part[d]);
        fprintf(stderr, " -> [");
        for (int d = 0; d < value[v - 1].ndim; d++)
            fprintf(stderr, d ? ",%lld" : "%lld", (long long)value[v - 1].dims[d]);
        fprintf(stderr, "]\n");
    }
}

/* Builds p with the library; t receives its values, first the VARIABLES variables. */
static void build(const program *p, wb_tensor **t)
{
    int n = VARIABLES + LEAVES;
    for (int i = 0; i < n; i++) {
        t[i] = tensor_of(p->start[i], p->dtype, i % VIEWS);
        if (i < VARIABLES) t[i] = wb_variable(t[i]);
    }
    for (int k = 0; k < p->n_ops; k++) {
        const instruction *i = &p->op[k];
        if (i->kind == OP_ASSIGN) {
            if (wb_assign(t[i->a], t[i->b])) fail_msg("assign: %s", wb_error());
        } else if (!(t[n++] = call(i, t))) {
            fail_msg("operation %d: %s", k, wb_error());
        }
    }
}

/* Compares all values with the interpreter's.  lazy: reads them in a mixed order and leaves out
 * those that an assignment has made unreadable. */
static void compare_all(const program *p, wb_tensor **t, const array *value, bool lazy,
                        const char *mode, int64_t seed)
{
    for (int k = 0; k < p->n_values; k++) {
        int i = lazy ? (int)((k * 7919LL + seed) % p->n_values) : k;
        if (lazy && !t[i]) continue;
        const void *data = wb_data(t[i]);
        if (!data && lazy && wb_error_code() == WB_ERROR_VERSION) continue;
        double unit = p->dtype == WB_F64 ? 0x1p-52 : 0x1p-23,
               most = p->exact[i] ? 0 : 2 * unit * (p->error[i] + 1);
        array got = values_of(t[i]);
        bool good = got.size == value[i].size;
        for (int64_t j = 0; good && j < got.size; j++)
            good = fabs(got.at[j] - value[i].at[j]) <= most;
        if (!good) describe(p, value, i);
        check(t[i], value[i], 0, most, "seed %lld, %s, value %d", (long long)seed, mode, i);
    }
}

/* The seed of the current graph, to be read in a debugger after a crash. */
static volatile int64_t current_seed;

static void one_graph(int64_t seed, wb_dtype dtype)
{
    current_seed = seed;
    static program p;
    array value[MAX_VALUES];
    wb_tensor *t[MAX_VALUES], *some[6];
    memset(&p, 0, sizeof p);
    draw_state = (uint64_t)seed * 77777;
    p.dtype = dtype;
    draw_program(&p, value);
    /* eagerly: one evaluation for each node */
    wb_scope *scope = wb_scope_open();
    wb__this_thread()->eager = 1;
    build(&p, t);
    compare_all(&p, t, value, false, "eagerly", seed);
    wb__this_thread()->eager = 0;
    assert_int_equal(wb_scope_close(scope), 0);
    /* lazily: several values in one evaluation, then the others one after the other */
    scope = wb_scope_open();
    build(&p, t);
    int n = (int)draw_int(1, 6);
    for (int i = 0; i < n; i++)
        some[i] = t[draw_int(0, 2) ? draw_int(0, p.n_values - 1) : p.n_values - 1];
    if (wb_eval_array(n, some)) fail_msg("seed %lld: %s", (long long)seed, wb_error());
    compare_all(&p, t, value, true, "lazily", seed);
    for (int i = 0; i < n; i++)
        if (!wb_data(some[i])) fail_msg("seed %lld: %s", (long long)seed, wb_error());
    assert_int_equal(wb_scope_close(scope), 0);
    wb_clear_error();
    ref_forget();
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The index of the only value in the loss, from the environment (ONLY); -1: all values. */
static int only = -1;

static double loss_at(const program *p, array *value, const array *direction, double h,
                      double weight)
{
    for (int i = 0; i < VARIABLES + LEAVES; i++) {
        value[i] = ref_new(p->start[i].ndim, p->start[i].dims);
        for (int64_t j = 0; j < value[i].size; j++)
            value[i].at[j] = p->start[i].at[j] + h * direction[i].at[j];
    }
    double loss = 0;
    for (int k = 0; k < p->n_ops; k++) value[VARIABLES + LEAVES + k] = interpret(&p->op[k], value);
    for (int i = VARIABLES + LEAVES; i < p->n_values; i++)
        for (int64_t j = 0; j < value[i].size && (only < 0 || only == i); j++)
            loss += value[i].at[j] * cos(weight * (double)(i + j));
    return loss;
}

static void one_gradient(int64_t seed)
{
    current_seed = seed;
    static program p;
    enum { N = VARIABLES + LEAVES };
    array value[MAX_VALUES], direction[N];
    wb_tensor *t[MAX_VALUES], *leaf[N], *grad[N], *loss = wb_scalar(0), *second[N];
    memset(&p, 0, sizeof p);
    draw_state = (uint64_t)seed * 77777;
    p.dtype = WB_F64;
    p.smooth = true;
    draw_program(&p, value);
    wb_scope *scope = wb_scope_open();
    for (int i = 0; i < N; i++) direction[i] = draw_array(p.start[i].ndim, p.start[i].dims, -1, 1);
    build(&p, t);
    for (int i = 0; i < N; i++) leaf[i] = t[i];
    for (int i = N; i < p.n_values; i++) {
        if (only >= 0 && only != i) continue;
        array w = ref_new(value[i].ndim, value[i].dims);
        for (int64_t j = 0; j < w.size; j++) w.at[j] = cos(0.7 * (double)(i + j));
        wb_tensor *part = wb_sum(wb_mul(t[i], tensor_of(w, WB_F64, 0)));
        loss = wb_size(loss) && wb_dtype_of(loss) == WB_F32 ? part : wb_add(loss, part);
    }
    if (p.n_values == N) return;
    if (wb__gradients(loss, N, leaf, grad)) fail_msg("seed %lld: %s", (long long)seed, wb_error());
    double h = 1e-6, along = 0, size = 1, base = loss_at(&p, value, direction, 0, 0.7);
    double up = loss_at(&p, value, direction, h, 0.7),
           down = loss_at(&p, value, direction, -h, 0.7);
    wb_tensor *dot = NULL;
    for (int i = 0; i < N; i++) {
        if (!grad[i]) continue;
        wb_tensor *part = wb_sum(wb_mul(grad[i], tensor_of(direction[i], WB_F64, 0)));
        dot = dot ? wb_add(dot, part) : part;
        array g = values_of(grad[i]);
        for (int64_t j = 0; j < g.size; j++) {
            along += g.at[j] * direction[i].at[j];
            size += fabs(g.at[j]);
        }
    }
    double ahead = (up - base) / h, behind = (base - down) / h, central = (up - down) / (2 * h);
    bool kink = fabs(ahead - behind) > 1e-3 * size;
    bool good = kink || fabs(central - along) <= 1e-5 * size + 1e-8 * fabs(base);
    if (!good) describe(&p, value, p.n_values - 1);
    if (!good)
        fail_msg("seed %lld: the gradient along a direction is %.10g, finite differences give "
                 "%.10g (%.10g, %.10g)",
                 (long long)seed, along, central, ahead, behind);
    /* The second derivative along the direction, unless the first one has a kink there. */
    if (dot && !kink) {
        double e = 1e-4, middle = base;
        double far_up = loss_at(&p, value, direction, e, 0.7),
               far_down = loss_at(&p, value, direction, -e, 0.7);
        double up2 = loss_at(&p, value, direction, 2 * e, 0.7),
               down2 = loss_at(&p, value, direction, -2 * e, 0.7);
        double narrow = (far_up - 2 * middle + far_down) / (e * e),
               wide = (up2 - 2 * middle + down2) / (4 * e * e), got = 0;
        if (wb__gradients(dot, N, leaf, second))
            fail_msg("seed %lld, second: %s", (long long)seed, wb_error());
        for (int i = 0; i < N; i++) {
            if (!second[i]) continue;
            array g = values_of(second[i]);
            for (int64_t j = 0; j < g.size; j++) got += g.at[j] * direction[i].at[j];
        }
        double scale = fabs(narrow) + size;
        bool rough = fabs(narrow - wide) > 1e-3 * scale;
        if (!rough && !(fabs(narrow - got) <= 5e-3 * scale)) describe(&p, value, p.n_values - 1);
        if (!rough && !(fabs(narrow - got) <= 5e-3 * scale))
            fail_msg("seed %lld: the second derivative along a direction is %.10g, finite "
                     "differences give %.10g (%.10g)",
                     (long long)seed, got, narrow, wide);
    }
    wb_scope_close(scope);
    ref_forget();
}

/* ---- the program ----------------------------------------------------------------------------- */

static int64_t count_of(int64_t n)
{
#if defined(__SANITIZE_ADDRESS__)
    n /= 4;
#endif
    return option_count ? option_count : n;
}

TEST(graphs_f64)
{
    need_dtype(WB_F64);
    for (int64_t i = 0; i < count_of(300); i++) one_graph(option_seed + i, WB_F64);
}
TEST(graphs_f32)
{
    for (int64_t i = 0; i < count_of(300); i++) one_graph(option_seed + i, WB_F32);
}
TEST(gradients)
{
    need_dtype(WB_F64);
    for (int64_t i = 0; i < count_of(200); i++) one_gradient(option_seed + i);
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    if (getenv("ONLY")) only = atoi(getenv("ONLY"));
    return run_all_cases();
}
