/* Prints a program as C that can be compiled, with its expected results. */
#include "graph_fuzz.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *type_name(wb_dtype t)
{
    static char text[16];
    snprintf(text, sizeof text, "WB_%s", wb_dtype_name(t));
    for (char *c = text; *c; c++) *c = (char)toupper((unsigned char)*c);
    return text;
}

static const char *list(int n, const int64_t *p)
{
    static char text[256];
    size_t at = (size_t)snprintf(text, sizeof text, "%d, ", n);
    at += (size_t)snprintf(text + at, sizeof text - at, n ? "(int64_t[]){" : "NULL");
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%" PRId64, i ? ", " : "", p[i]);
    if (n) snprintf(text + at, sizeof text - at, "}");
    return text;
}

static const char *real(double v)
{
    static char text[40];
    if (isnan(v)) return "NAN";
    if (isinf(v)) return v < 0 ? "-INFINITY" : "INFINITY";
    snprintf(text, sizeof text, "%.17g", v);
    return text;
}

static int64_t size_of(const instruction *s)
{
    int64_t size = 1;
    for (int i = 0; i < s->n; i++) size *= s->p[i];
    return size;
}

/* Leaves in f16 and bf16 are converted from f32. */
static void print_leaf(FILE *f, const program *p, int i, int call)
{
    static const char *const types[] = {"",       "float",   "double",  "float",   "float",
                                        "int8_t", "uint8_t", "int32_t", "int64_t", "uint8_t"};
    const instruction *s = &p->step[i];
    bool half = s->dtype == WB_F16 || s->dtype == WB_BF16;
    int64_t size = size_of(s);
    fprintf(f, "    t[%d] = %s%swb_from((%s[]){", i, s->op == OP_VARIABLE ? "wb_variable(" : "",
            half ? "wb_astype(" : "", types[s->dtype]);
    for (int64_t k = 0; k < size; k++) {
        element e = shifted(s, size, k, call);
        if (k) fprintf(f, ", ");
        if (is_float(s->dtype)) fprintf(f, "%s", real(e.v));
        else fprintf(f, e.i == INT64_MIN ? "INT64_MIN" : "%" PRId64, e.i);
    }
    fprintf(f, "%s}, %s, ", size ? "" : "0", type_name(half ? WB_F32 : s->dtype));
    fprintf(f, "%s)", list(s->n, s->p));
    if (half) fprintf(f, ", %s)", type_name(s->dtype));
    fprintf(f, "%s;\n", s->op == OP_VARIABLE ? ")" : "");
}

static void print_norm(FILE *f, const instruction *s, int i)
{
    int x = s->in[0], scale = s->in[1];
    if (s->op == OP_BATCHNORM)
        fprintf(f, "    l = wb_BatchNorm(wb_dim(t[%d], 1), .dtype = wb_dtype_of(t[%d]));\n", x, x);
    else
        fprintf(f, "    {\n        wb_LayerNorm_options o = WB_OPTIONS_OF(wb_LayerNorm_options, "
                   ".dtype = wb_dtype_of(t[%d]));\n"
                   "        wb_ints_set(o.shape, wb_ndim(t[%d]), wb_dims(t[%d]));\n"
                   "        l = wb_LayerNorm_with(&o);\n    }\n", x, scale, scale);
    fprintf(f, "    wb_set(l, \"scale\", t[%d]);\n    wb_set(l, \"bias\", t[%d]);\n", scale,
            s->in[2]);
    fprintf(f, "    t[%d] = wb_call(wb_trainmode(l), t[%d]);\n", i, x);
}

static void print_windows(FILE *f, const instruction *s)
{
    const int64_t *p = s->p;
    if (s->op == OP_CONV) {
        fprintf(f, "wb_conv(t[%d], t[%d], ", s->in[0], s->in[1]);
        if (s->n_in > 2) fprintf(f, "t[%d]", s->in[2]);
        else fprintf(f, "WB_NONE");
        fprintf(
            f, ", .stride = {%d, %d}, .pad = {%d, %d, %d, %d}, .dilation = {%d, %d}, .groups = %d)",
            (int)p[0], (int)p[1], (int)p[2], (int)p[3], (int)p[4], (int)p[5], (int)p[6], (int)p[7],
            (int)p[8]);
        return;
    }
    fprintf(f, "wb_%s(t[%d], .window = {%d, %d}, .stride = {%d, %d}, .pad = {%d, %d, %d, %d})",
            s->op == OP_MAXPOOL ? "maxpool" : "meanpool", s->in[0], (int)p[0], (int)p[1], (int)p[2],
            (int)p[3], (int)p[4], (int)p[5], (int)p[6], (int)p[7]);
}

static void print_reduce(FILE *f, const instruction *s)
{
    fprintf(f, "wb_%s(t[%d]", reduce_names[s->row], s->in[0]);
    if (s->n) fprintf(f, ", .axes = WB_INTS(");
    for (int k = 0; k < s->n; k++) fprintf(f, k ? ", %d" : "%d", (int)s->p[k]);
    fprintf(f, s->n ? ")%s)" : "%s)", s->flag ? ", .keep = true" : "");
}

static void print_with_number(FILE *f, const instruction *s)
{
    const char *name = (s->op == OP_BINARY_NUMBER ? binary_names : compare_names)[s->row];
    if (s->flag) fprintf(f, "wb_%s(wb_scalar(%g), t[%d])", name, s->number, s->in[0]);
    else fprintf(f, "wb_%s(t[%d], wb_scalar(%g))", name, s->in[0], s->number);
}

/* wb_NAME(t[operand], ..., more) */
static void print_named(FILE *f, const char *name, const instruction *s, const char *more)
{
    fprintf(f, "wb_%s(", name);
    for (int k = 0; k < s->n_in; k++) fprintf(f, k ? ", t[%d]" : "t[%d]", s->in[k]);
    fprintf(f, "%s)", more);
}

/* Prints the call of an operation that has the name of its row in FUZZ_OPS, with the arguments
 * after the operands. */
static void print_plain(FILE *f, const instruction *s)
{
    char name[32], more[64] = "";
    snprintf(name, sizeof name, "%s", op_names[s->op]);
    for (char *c = name; *c; c++) *c = (char)tolower((unsigned char)*c);
    switch (s->op) {
    case OP_STOP: snprintf(name, sizeof name, "stop_gradient"); break;
    case OP_ONEHOT:
        snprintf(name, sizeof name, "onehotbatch");
        snprintf(more, sizeof more, ", %d", (int)s->p[0]);
        break;
    case OP_ARGMAX: case OP_UNSQUEEZE: case OP_SQUEEZE: case OP_FLIP: case OP_SOFTMAX_OVER:
    case OP_LOGSOFTMAX_OVER:
        snprintf(more, sizeof more, ", %d", (int)s->p[0]);
        break;
    case OP_SLICE: case OP_PAD:
        snprintf(more, sizeof more, ", %d, %d, %d", (int)s->p[0], (int)s->p[1], (int)s->p[2]);
        break;
    case OP_CUMSUM:
        snprintf(more, sizeof more, ", %d, .exclusive = %d, .reverse = %d", (int)s->p[0],
                 (int)s->p[1], (int)s->p[2]);
        break;
    case OP_NORMALISE: snprintf(more, sizeof more, ", %d, %g", (int)s->p[0], s->number); break;
    case OP_DROPOUT: snprintf(more, sizeof more, ", %g", s->number); break;
    case OP_LINEAR: case OP_ATTENTION:
        if (s->n_in == (s->op == OP_LINEAR ? 2 : 3)) snprintf(more, sizeof more, ", WB_NONE");
        break;
    case OP_LOSS:
        snprintf(name, sizeof name, "%s", loss_names[s->row]);
        if (s->row == L_huber) snprintf(more, sizeof more, ", %g", s->number);
        break;
    default: break;
    }
    print_named(f, name, s, more);
}

static void print_source(FILE *f, const instruction *s)
{
    switch (s->op) {
    case OP_FULL:
        fprintf(f, "wb_full_array(%g, %s, ", s->number, type_name(s->dtype));
        fprintf(f, "%s)", list(s->n, s->p));
        break;
    case OP_ARANGE: case OP_EYE:
        fprintf(f, "wb_%s(%d, %s)", s->op == OP_EYE ? "eye" : "arange", (int)s->p[0],
                type_name(s->dtype));
        break;
    case OP_CAUSAL: fprintf(f, "wb_causal_mask(%d, %d)", (int)s->p[0], (int)s->p[1]); break;
    default:
        fprintf(f, "wb_%s_of(%s, ", s->op == OP_RAND ? "rand" : "randn", type_name(s->dtype));
        fprintf(f, "%s)", list(s->n, s->p));
    }
}

static void print_step(FILE *f, const program *p, int i)
{
    const instruction *s = &p->step[i];
    char more[300];
    if (s->op <= OP_VARIABLE) return;
    if (s->op == OP_LAYERNORM || s->op == OP_BATCHNORM) {
        print_norm(f, s, i);
        return;
    }
    if (s->op == OP_ASSIGN) {
        fprintf(f, "    wb_assign(t[%d], t[%d]);\n", s->in[0], s->in[1]);
        return;
    }
    fprintf(f, "    t[%d] = ", i);
    switch (s->op) {
    case OP_FULL: case OP_ARANGE: case OP_EYE: case OP_CAUSAL: case OP_RAND: case OP_RANDN:
        print_source(f, s);
        break;
    case OP_UNARY: print_named(f, unary_names[s->row], s, ""); break;
    case OP_BINARY: print_named(f, binary_names[s->row], s, ""); break;
    case OP_COMPARE: print_named(f, compare_names[s->row], s, ""); break;
    case OP_BINARY_NUMBER: case OP_COMPARE_NUMBER: print_with_number(f, s); break;
    case OP_CAST:
        snprintf(more, sizeof more, ", %s", type_name(s->dtype));
        print_named(f, "astype", s, more);
        break;
    case OP_REDUCE: print_reduce(f, s); break;
    case OP_RESHAPE: case OP_PERMUTE: case OP_EXPAND:
        snprintf(more, sizeof more, ", %s", list(s->n, s->p));
        print_named(f,
                    s->op == OP_RESHAPE   ? "reshape_to"
                    : s->op == OP_PERMUTE ? "permute_to"
                                          : "expand_to",
                    s, more);
        break;
    case OP_CONCAT: case OP_STACK:
        fprintf(f, "wb_%s(%d", s->op == OP_CONCAT ? "concat" : "stack", (int)s->p[0]);
        for (int k = 0; k < s->n_in; k++) fprintf(f, ", t[%d]", s->in[k]);
        fprintf(f, ")");
        break;
    case OP_CONV: case OP_MAXPOOL: case OP_MEANPOOL: print_windows(f, s); break;
    default: print_plain(f, s);
    }
    fprintf(f, ";\n");
}

/* ---- the program ----------------------------------------------------------------------------- */

static void print_expected(FILE *f, const program *p, const verdict *v)
{
    static value want[MOST_INSTRUCTIONS];
    if (v->result <= -1000) return;
    int i = v->result >= 0 ? p->results[v->result] : -1 - v->result;
    wb_seed(p->seed);
    if (v->call || !interpret(p, want)) {
        fprintf(f, "    /* t[%d] fails at call %d of the compiled function: %s */\n", i, v->call,
                v->text);
        return;
    }
    fprintf(
        f, "    const double want[][2] = {        /* the value, and how far from it is right */\n");
    for (int64_t k = 0; k < want[i].size; k++) {
        const number *n = &numbers[want[i].at[k]];
        bool floats = is_float(want[i].dtype);
        fprintf(f, "        {%s, ", real(floats ? n->v : (double)n->i));
        fprintf(f, "%s},\n", real(floats ? 2 * n->error : n->error > 0 ? INFINITY : 0));
    }
    fprintf(f,
            "        {0, 0}};\n    int wrong = 0;\n"
            "    for (int64_t k = 0; k < wb_size(t[%d]); k++) {\n"
            "        double got = wb_at(wb_reshape(t[%d], -1), k);\n"
            "        int bad = isnan(want[k][0]) ? !isnan(got) && isfinite(want[k][1])\n"
            "                : !(got == want[k][0] || fabs(got - want[k][0]) <= want[k][1]);\n"
            "        if (bad) printf(\"element %%lld: got %%.9g, expected %%.9g\\n\", (long "
            "long)k, got, want[k][0]);\n"
            "        wrong += bad;\n    }\n    return wrong != 0;\n",
            i, i);
}

static void print_body(FILE *f, const program *p)
{
    for (int i = 0; i < p->n; i++) print_step(f, p, i);
}

static void print_compiled(FILE *f, const program *p)
{
    int inputs = 0;
    fprintf(f, "static int step(wb_tensor *const *in, wb_tensor **out, void *context)\n{\n    "
               "(void)context, (void)in;\n");
    for (int i = 0; i < p->n; i++)
        if (is_input(p, i)) fprintf(f, "    t[%d] = in[%d];\n", i, inputs++);
    print_body(f, p);
    for (int k = 0; k < p->n_results; k++) fprintf(f, "    out[%d] = t[%d];\n", k, p->results[k]);
    fprintf(f, "    return %d;\n}\n\n", p->n_results);
}

static void print_calls(FILE *f, const program *p)
{
    fprintf(
        f,
        "    wb_compiled *c = wb_compile(step, NULL);\n    wb_tensor *in[8] = {NULL}, *out[8];\n");
    for (int call = 0; call < p->way.calls; call++) {
        int inputs = 0;
        for (int i = 0; i < p->n; i++) {
            if (!is_input(p, i)) continue;
            if (call) print_leaf(f, p, i, call);
            fprintf(f, "    in[%d] = t[%d];\n", inputs++, i);
        }
        fprintf(f, "    wb_seed(%" PRIu64 ");\n", p->seed + (uint64_t)call);
        fprintf(f, "    if (wb_call_compiled(c, %d, in, %d, out)) puts(wb_error());\n", inputs,
                p->n_results);
        for (int k = 0; k < p->n_results; k++)
            fprintf(f, "    t[%d] = out[%d];\n    wb_show(t[%d]);\n", p->results[k], k,
                    p->results[k]);
    }
}

void print_program(FILE *f, const program *p, const verdict *v)
{
    fprintf(f, "/* graph_fuzz --from %" PRIu64 " --seeds 1 --shrink:\n   ", p->seed);
    if (v->result >= 0) fprintf(f, "t[%d]: ", p->results[v->result]);
    fprintf(
        f,
        "%s */\n#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <weber.h>\n\n",
        v->text);
    fprintf(f, "static wb_tensor *t[%d];\nstatic wb_layer *l;\n\n", p->n + 1);
    if (p->way.compiled) print_compiled(f, p);
    fprintf(f, "int main(void)\n{\n    (void)l;\n");
    if (p->way.eager) fprintf(f, "    setenv(\"WEBER_EAGER\", \"1\", 1);\n");
    fprintf(f, "    wb_set_threads(%d);\n", p->way.threads);
    for (int i = 0; i < p->n; i++)
        if (p->step[i].op <= OP_VARIABLE) print_leaf(f, p, i, 0);
    if (p->way.compiled) {
        print_calls(f, p);
    } else {
        fprintf(f, "    wb_seed(%" PRIu64 ");\n", p->seed);
        if (p->way.inner_scope) fprintf(f, "    wb_scope *inner = wb_scope_open();\n");
        print_body(f, p);
        for (int k = 0; p->way.inner_scope && k < p->n_results; k++)
            fprintf(f, "    wb_keep(t[%d]);\n", p->results[k]);
        if (p->way.inner_scope) fprintf(f, "    wb_scope_close(inner);\n");
        for (int i = 0; i < p->n && p->way.free_some; i++)
            fprintf(f,
                    i ? ""
                      : "    /* some tensors, no results, were freed here with wb_free */\n");
        for (int k = 0; k < p->way.n_first && k < p->n_results; k++)
            fprintf(f, k ? ", t[%d]" : "    wb_eval(t[%d]", p->results[k]);
        if (p->way.n_first && p->n_results) fprintf(f, ");\n");
        for (int k = p->way.n_first; k < p->n_results; k++)
            fprintf(f, "    wb_data(t[%d]);\n", p->results[k]);
    }
    print_expected(f, p, v);
    fprintf(f, "}\n");
}
