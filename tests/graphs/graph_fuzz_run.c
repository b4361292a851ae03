/* Evaluates a program in one of many ways and compares every element with the interpreter's. */
#include "graph_fuzz.h"

#include "engine/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- comparing ------------------------------------------------------------------------------- */

static bool agree(wb_dtype t, const number *n, double got, int64_t got_integer, verdict *v)
{
    v->compared++;
    if (!is_float(t)) {
        bool known = n->error == 0;
        v->exact += known;
        v->tight += known;
        v->unknown += !known;
        return !known || got_integer == n->i;
    }
    if (!isfinite(n->error)) {
        v->unknown++;
        return true;
    }
    v->exact += n->error == 0;
    v->tight += n->error <= 0.01 * (1 + fabs(n->v));
    if (isnan(n->v)) return isnan(got);
    if (n->error == 0 || !isfinite(n->v)) return got == n->v;
    return fabs(got - n->v) <= 2 * n->error;
}

static double real_of(wb_dtype t, const void *data, int64_t k)
{
    return t == WB_F64 ? ((const double *)data)[k] : (double)((const float *)data)[k];
}

static int64_t integer_of(wb_dtype t, const void *data, int64_t k)
{
    switch (t) {
    case WB_I8: return ((const int8_t *)data)[k];
    case WB_I32: return ((const int32_t *)data)[k];
    case WB_I64: return ((const int64_t *)data)[k];
    default: return ((const uint8_t *)data)[k];
    }
}

static void fail(verdict *v, int call, int result, const char *what)
{
    v->failed = true;
    v->call = call;
    v->result = result;
    v->element = -1;
    snprintf(v->text, sizeof v->text, "%s: %s", what, wb_error());
}

/* Copies the values of x, f16 and bf16 as f32; NULL: this failed. */
static void *values_of(wb_tensor *x, wb_dtype t)
{
    static double values[4096];
    wb_dtype stored = t == WB_F16 || t == WB_BF16 ? WB_F32 : t;
    if (stored != t) {
        const void *half = wb_data(x);              /* evaluates x, so that it is rounded */
        if (!half && wb_size(x)) return NULL;
        x = wb_astype(x, WB_F32);
    }
    if (!x || wb_size(x) > 4096) return NULL;
    return wb_copy_out(x, values, (size_t)wb_size(x) * wb_dtype_bytes(stored)) ? NULL : values;
}

/* An evaluation may fail because a result needs the overwritten value of a variable; the
 * assignments of this evaluation are then not done either. */
static bool is_gone(const program *p, verdict *v)
{
    for (int i = 0; i < p->n && !v->gone; i++)
        v->gone = p->step[i].op == OP_ASSIGN && wb_error_code() == WB_ERROR_VERSION;
    return v->gone;
}

static void compare(const program *p, wb_tensor *x, const value *want, int call, int result,
                    verdict *v)
{
    if (v->failed || v->gone) return;
    wb_clear_error();
    bool shaped = wb_ndim(x) == want->ndim && wb_dtype_of(x) == want->dtype;
    for (int i = 0; shaped && i < want->ndim; i++) shaped = wb_dims(x)[i] == want->dims[i];
    if (!shaped) {
        fail(v, call, result, "shape or dtype");
        snprintf(v->text, sizeof v->text, "shape or dtype: %s", wb_describe(x));
        return;
    }
    const void *data = values_of(x, want->dtype);
    if (!data) {
        if (!is_gone(p, v)) fail(v, call, result, "reading failed");
        return;
    }
    for (int64_t k = 0; k < want->size; k++) {
        const number *n = &numbers[want->at[k]];
        bool real = is_float(want->dtype);
        double got = real ? real_of(want->dtype, data, k) : 0;
        int64_t integer = real ? 0 : integer_of(want->dtype, data, k);
        if (agree(want->dtype, n, got, integer, v)) continue;
        v->failed = true;
        v->call = call;
        v->result = result;
        v->element = k;
        v->got = real ? got : (double)integer;
        v->want = real ? n->v : (double)n->i;
        v->error = real ? 2 * n->error : 0;
        snprintf(v->text, sizeof v->text, "%s element %lld: got %.9g, expected %.9g within %.3g",
                 wb_describe(x), (long long)k, v->got, v->want, v->error);
        return;
    }
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static int64_t size_of(const instruction *s)
{
    int64_t size = 1;
    for (int i = 0; i < s->n; i++) size *= s->p[i];
    return size;
}

/* At later calls of a compiled function an input's elements are shifted by one place each. */
element shifted(const instruction *s, int64_t size, int64_t k, int call)
{
    return s->data[(k + call) % size];
}

bool is_input(const program *p, int i)
{
    int inputs = 0;
    for (int k = 0; k <= i; k++) inputs += p->step[k].op == OP_LEAF;
    return p->way.compiled && p->step[i].op == OP_LEAF && inputs <= 6;
}

static wb_tensor *make_leaf(const program *p, int i, int call)
{
    instruction s = p->step[i];
    int64_t size = size_of(&s);
    if (!call || !size || !is_input(p, i)) return leaf_tensor(&s);
    s.data = malloc((size_t)size * sizeof *s.data);
    if (!s.data) abort();
    for (int64_t k = 0; k < size; k++) s.data[k] = shifted(&p->step[i], size, k, call);
    wb_tensor *x = leaf_tensor(&s);
    free(s.data);
    return x;
}

static bool make_leaves(const program *p, wb_tensor **t, int call, bool variables)
{
    for (int i = 0; i < p->n; i++) {
        op_kind op = p->step[i].op;
        if (op != OP_LEAF && !(op == OP_VARIABLE && variables)) continue;
        if (!(t[i] = make_leaf(p, i, call))) return false;
    }
    return true;
}

/* The interpreter's values at a call; `start` has the values of the variables before it. */
static bool interpret_call(const program *p, value *v, int call, element *const *start)
{
    static program now;
    now = *p;
    for (int i = 0; i < p->n; i++) {
        int64_t size = p->step[i].op <= OP_VARIABLE ? size_of(&p->step[i]) : 0;
        if (start && start[i]) now.step[i].data = start[i];
        else if (call && size && is_input(p, i)) {
            now.step[i].data = malloc((size_t)size * sizeof(element));
            if (!now.step[i].data) abort();
            for (int64_t k = 0; k < size; k++)
                now.step[i].data[k] = shifted(&p->step[i], size, k, call);
        }
    }
    wb_seed(p->seed + (uint64_t)call);
    bool good = interpret(&now, v);
    for (int i = 0; i < p->n; i++)
        if (now.step[i].data != p->step[i].data && !(start && start[i])) free(now.step[i].data);
    return good;
}

/* ---- evaluating ------------------------------------------------------------------------------ */

static bool build(const program *p, wb_tensor **t, verdict *v)
{
    for (int i = 0; i < p->n; i++) {
        wb_tensor *x = call_step(p, i, t);
        if (!x && is_gone(p, v)) return false;
        if (!x) {
            char what[80];
            snprintf(what, sizeof what, "instruction %d, %s", i, op_names[p->step[i].op]);
            fail(v, 0, -1000, what);
            return false;
        }
        t[i] = x;
    }
    return true;
}

static void compare_variables(const program *p, wb_tensor *const *t, const value *want, int call,
                              verdict *v)
{
    for (int i = 0; i < p->n; i++)
        if (p->step[i].op == OP_VARIABLE) compare(p, t[i], &want[i], call, -1 - i, v);
}

static bool is_result(const program *p, int i)
{
    for (int k = 0; k < p->n_results; k++)
        if (p->results[k] == i) return true;
    return false;
}

/* Releases the tensors that are neither results nor leaves: the graph holds them. */
static void free_others(const program *p, wb_tensor *const *t)
{
    for (int i = 0; i < p->n; i++) {
        bool again = p->step[i].op == OP_ASSIGN;
        for (int k = 0; k < p->n && !again; k++) again = k != i && t[k] == t[i];
        if (p->step[i].op > OP_VARIABLE && !again && !is_result(p, i) && i % 2) wb_free(t[i]);
    }
}

/* ---- what is asked of a result of f16 or bf16 ------------------------------------------------ */

/* Operations that depend on which number x is, of a result x of f16 or bf16, evaluated with it.
 * They see the number that x has in memory, also where x's own kernel has more digits. */
enum { IS_FINITE, IS_MORE, AS_F32, AS_I32, FLOORED, QUESTIONS };
typedef struct { wb_tensor *of[MOST_RESULTS][QUESTIONS]; } questions;

static bool is_half(const wb_tensor *x)
{
    return wb_dtype_of(x) == WB_F16 || wb_dtype_of(x) == WB_BF16;
}

/* Asks, and evaluates answers and results together.  False: the evaluation failed. */
static bool ask(const program *p, wb_tensor *const *t, questions *q, verdict *v)
{
    wb_tensor *all[MOST_RESULTS * (1 + QUESTIONS)];
    int n = 0;
    memset(q, 0, sizeof *q);
    for (int k = 0; k < p->n_results; k++) {
        wb_tensor *x = t[p->results[k]];
        all[n++] = x;
        if (!is_half(x)) continue;
        wb_tensor *of[QUESTIONS] = {wb_isfinite(x), wb_gt(x, 0.5), wb_astype(x, WB_F32),
                                    wb_astype(x, WB_I32), wb_floor(x)};
        memcpy(q->of[k], of, sizeof of);
        for (int i = 0; i < QUESTIONS; i++) all[n++] = of[i];
    }
    if (!wb_eval_array(n, all)) return true;
    if (!is_gone(p, v)) fail(v, 0, -1000, "evaluating answers");
    return false;
}

static float number_of(wb_dtype t, const void *x, int64_t i)
{
    uint16_t bits;
    memcpy(&bits, (const char *)x + 2 * i, sizeof bits);
    return t == WB_F16 ? wb__f16_to_f32(bits) : wb__bf16_to_f32(bits);
}

static void check_answers(const program *p, wb_tensor *const *t, const questions *q, verdict *v)
{
    for (int k = 0; k < p->n_results && !v->failed; k++) {
        if (!q->of[k][0]) continue;
        const wb_dtype type = wb_dtype_of(t[p->results[k]]);
        const void *x = wb_data(t[p->results[k]]), *a[QUESTIONS];
        for (int i = 0; i < QUESTIONS; i++) a[i] = wb_data(q->of[k][i]);
        for (int64_t i = 0; i < wb_size(t[p->results[k]]) && !v->failed; i++) {
            const float f = number_of(type, x, i);
            const float floored = number_of(type, a[FLOORED], i);
            const float wide = ((const float *)a[AS_F32])[i];
            int32_t whole;
            wb__convert(&whole, WB_I32, &f, WB_F32, 1);
            const bool right = ((const uint8_t *)a[IS_FINITE])[i] == isfinite(f) &&
                               ((const uint8_t *)a[IS_MORE])[i] == (f > 0.5f) &&
                               (wide == f || (isnan(wide) && isnan(f))) &&
                               ((const int32_t *)a[AS_I32])[i] == whole &&
                               (floored == floorf(f) || isnan(f));
            v->compared += QUESTIONS;
            if (right) continue;
            fail(v, 0, k, "an answer");
            snprintf(v->text, sizeof v->text, "%s element %d is %.9g: finite %d, more than 0.5 %d, "
                     "f32 %.9g, i32 %d, floor %.9g", wb_describe(t[p->results[k]]), (int)i, f,
                     ((const uint8_t *)a[IS_FINITE])[i], ((const uint8_t *)a[IS_MORE])[i], wide,
                     ((const int32_t *)a[AS_I32])[i], floored);
        }
    }
}

static void run_plain(const program *p, const value *want, verdict *v)
{
    wb_tensor *t[MOST_INSTRUCTIONS] = {NULL}, *first[MOST_RESULTS];
    questions q = {0};
    wb_scope *scope = wb_scope_open(), *inner = NULL;
    if (!make_leaves(p, t, 0, true)) {
        fail(v, 0, -1000, "a leaf");
        return;
    }
    wb_seed(p->seed);
    if (p->way.inner_scope) inner = wb_scope_open();
    wb__this_thread()->eager = p->way.eager;
    bool good = build(p, t, v);
    wb__this_thread()->eager = false;
    const bool asks = p->seed % 2 && !p->way.inner_scope;
    if (good && asks) good = ask(p, t, &q, v);
    if (good && p->way.free_some) free_others(p, t);
    if (good && inner) {
        for (int k = 0; k < p->n_results; k++) {
            bool kept = p->step[p->results[k]].op <= OP_VARIABLE;
            for (int j = 0; j < p->n && !kept; j++)
                kept = t[j] == t[p->results[k]] &&
                       (p->step[j].op <= OP_VARIABLE || (j < p->results[k] && is_result(p, j)));
            if (!kept) wb_keep(t[p->results[k]]);
        }
        if (wb_scope_close(inner) && !is_gone(p, v)) fail(v, 0, -1000, "closing a scope");
    }
    for (int k = 0; k < p->way.n_first && k < p->n_results; k++) first[k] = t[p->results[k]];
    int n = p->way.n_first < p->n_results ? p->way.n_first : p->n_results;
    if (good && !v->failed && n && wb_eval_array(n, first) && !is_gone(p, v))
        fail(v, 0, -1000, "evaluating");
    for (int k = 0; good && k < p->n_results; k++)
        compare(p, t[p->results[k]], &want[p->results[k]], 0, k, v);
    if (good) compare_variables(p, t, want, 0, v);
    if (good && !v->failed && !v->gone) check_answers(p, t, &q, v);
    if (wb_scope_close(scope) && !v->failed && !is_gone(p, v))
        fail(v, 0, -1000, "closing the scope");
}

typedef struct { const program *p; wb_tensor **t; verdict *v; } recording;

static int record(wb_tensor *const *inputs, wb_tensor **outputs, void *context)
{
    recording *r = context;
    const program *p = r->p;
    wb_tensor *t[MOST_INSTRUCTIONS];
    memcpy(t, r->t, sizeof t);
    for (int i = 0, k = 0; i < p->n; i++)
        if (is_input(p, i)) t[i] = inputs[k++];
    if (!build(p, t, r->v)) return -1;
    for (int k = 0; k < p->n_results; k++) outputs[k] = t[p->results[k]];
    return p->n_results;
}

/* Reads the library's values of the variables, with which the interpreter continues. */
static bool read_variables(const program *p, wb_tensor *const *t, element **start)
{
    for (int i = 0; i < p->n; i++) {
        if (p->step[i].op != OP_VARIABLE) continue;
        const void *data = values_of(t[i], p->step[i].dtype);
        if (!data) return false;
        for (int64_t k = 0; k < size_of(&p->step[i]); k++) {
            if (is_float(p->step[i].dtype)) start[i][k].v = real_of(p->step[i].dtype, data, k);
            else start[i][k].i = integer_of(p->step[i].dtype, data, k);
        }
    }
    return true;
}

static void run_compiled(const program *p, value *want, verdict *v)
{
    wb_tensor *t[MOST_INSTRUCTIONS] = {NULL}, *in[MOST_INSTRUCTIONS], *out[MOST_RESULTS];
    element *start[MOST_INSTRUCTIONS] = {NULL};
    wb_scope *scope = wb_scope_open();
    recording r = {p, t, v};
    if (!make_leaves(p, t, 0, true)) {
        fail(v, 0, -1000, "a leaf");
        return;
    }
    for (int i = 0; i < p->n; i++)
        if (p->step[i].op == OP_VARIABLE)
            start[i] = calloc((size_t)size_of(&p->step[i]) + 1, sizeof **start);
    wb_compiled *c = wb_compile(record, &r);
    for (int call = 0; call < p->way.calls && !v->failed; call++) {
        int n = 0;
        if (call && (!read_variables(p, t, start) || !interpret_call(p, want, call, start))) break;
        for (int i = 0; i < p->n; i++)
            if (is_input(p, i)) in[n++] = call ? make_leaf(p, i, call) : t[i];
        wb_seed(p->seed + (uint64_t)call);
        if (wb_call_compiled(c, n, in, p->n_results, out) && !v->failed)
            fail(v, call, -1000, "the call");
        for (int k = 0; !v->failed && k < p->n_results; k++)
            compare(p, out[k], &want[p->results[k]], call, k, v);
        if (!v->failed) compare_variables(p, t, want, call, v);
    }
    for (int i = 0; i < p->n; i++) free(start[i]);
    if (wb_scope_close(scope) && !v->failed && !is_gone(p, v))
        fail(v, 0, -1000, "closing the scope");
}

bool run_program(const program *p, verdict *v)
{
    static value want[MOST_INSTRUCTIONS];
    v->failed = false;
    wb_clear_error();
    if (!p->n_results || !interpret_call(p, want, 0, NULL)) return false;
    wb_set_threads(p->way.threads);
    if (p->way.compiled) run_compiled(p, want, v);
    else run_plain(p, want, v);
    return true;
}
