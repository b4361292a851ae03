/* See onnx_case.h. */
#include "onnx_case.h"

#include "io/protobuf.h"
#include "weber.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 64 };

typedef struct {
    const char *folder;
    const onnx_case *c;
    char *reason;
    size_t bytes;
} run;

static case_result ends(run *r, case_result result, const char *format, ...) WB__PRINTF(3, 4);
static case_result ends(run *r, case_result result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->reason, r->bytes, format, args);
    va_end(args);
    return result;
}

/* The result after an error of the library.  Its message loses the path of the case's folder. */
static case_result refused(run *r, const char *doing)
{
    const wb_status code = wb_error_code();
    if (code != WB_ERROR_UNSUPPORTED)
        return ends(r, CASE_FAILED, "%s: error %d: %s", doing, (int)code, wb_error());
    ends(r, CASE_UNSUPPORTED, "%s", wb_error());
    char *page = strstr(r->reason, " (W");      /* the name of the message's page */
    if (page) *page = 0;
    char path[1000];
    const int n = snprintf(path, sizeof path, "%s/%s/", r->folder, r->c->name);
    for (char *at; (at = strstr(r->reason, path)) != NULL;) memmove(at, at + n, strlen(at + n) + 1);
    return CASE_UNSUPPORTED;
}

/* ---- files of tensors ------------------------------------------------------------------------ */

static const struct { const char *kind; int type; wb_dtype dtype; } dtypes[] = {
    {"float", 1, WB_F32},    {"uint8", 2, WB_U8},  {"int8", 3, WB_I8},
    {"int32", 6, WB_I32},    {"int64", 7, WB_I64}, {"bool", 9, WB_BOOL},
    {"float16", 10, WB_F16}, {"double", 11, WB_F64}, {"bfloat16", 16, WB_BF16}};

/* A TensorProto whose values are in raw_data */
static wb_tensor *tensor_of(const wb__wire_file *file, const void *data, size_t n)
{
    wb__wire w = wb__wire_of(file, data, n), list;
    wb__wire_field f;
    wb__span raw = {NULL, 0};
    int64_t dims[WB_MAX_DIMS], type = 0, size = 1;
    int ndim = 0;
    while (wb__wire_next(&w, &f)) {
        uint64_t d;
        if (f.number == 1 && wb__wire_list(&w, &f, WB__WIRE_VARINT, &list))
            while (ndim < WB_MAX_DIMS && wb__wire_number(&list, WB__WIRE_VARINT, &d))
                size *= dims[ndim++] = (int64_t)d;
        if (f.number == 2) wb__wire_int(&w, &f, &type);
        if (f.number == 9) wb__wire_bytes(&w, &f, &raw);
    }
    if (w.status) return NULL;
    for (size_t i = 0; i < WB__COUNT(dtypes); i++)
        if (dtypes[i].type == type && raw.n == (size_t)size * wb_dtype_bytes(dtypes[i].dtype))
            return wb_from(raw.at, dtypes[i].dtype, ndim, dims);
    wb_fail(WB_ERROR_FORMAT, "%s: type %d with %zu bytes", file->path, (int)type, raw.n);
    return NULL;
}

static wb_tensor *read_tensor(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return wb_fail(WB_ERROR_FILE, "%s: cannot be read", path), NULL;
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    rewind(f);
    uint8_t *data = malloc((size_t)n + 1);
    wb_tensor *x = NULL;
    if (data && fread(data, 1, (size_t)n, f) == (size_t)n)
        x = tensor_of(&(wb__wire_file){path, data}, data, (size_t)n);
    free(data);
    fclose(f);
    return x;
}

static wb_tensor *tensor_named(const run *r, const char *name)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s/%s.pb", r->folder, r->c->name, name);
    return read_tensor(path);
}

static wb_tensor *numbered(const run *r, const char *word, int i)
{
    char name[32];
    snprintf(name, sizeof name, "%s_%d", word, i);
    return tensor_named(r, name);
}

/* Splits the kinds of values; returns their count. */
static int kinds_of(const char *text, char kinds[MOST_VALUES][16])
{
    int n = 0, used;
    if (!strcmp(text, "-")) return 0;
    for (; n < MOST_VALUES && sscanf(text, "%15s%n", kinds[n], &used) == 1; n++) text += used;
    return n;
}

static bool is_known(const char *kind)
{
    for (size_t i = 0; i < WB__COUNT(dtypes); i++)
        if (!strcmp(kind, dtypes[i].kind)) return true;
    return false;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static double element(const void *data, wb_dtype t, int64_t i)
{
    switch (t) {
    case WB_F32: return ((const float *)data)[i];
    case WB_F64: return ((const double *)data)[i];
    case WB_F16: return wb__f16_to_f32(((const uint16_t *)data)[i]);
    case WB_BF16: return wb__bf16_to_f32(((const uint16_t *)data)[i]);
    case WB_I8: return ((const int8_t *)data)[i];
    case WB_I32: return ((const int32_t *)data)[i];
    case WB_I64: return (double)((const int64_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
    }
}

/* NaN is equal to NaN, and an infinity to itself. */
static bool is_near(double a, double b, double rtol, double atol)
{
    if (isnan(b)) return isnan(a);
    if (isinf(a) || isinf(b)) return a == b;
    return fabs(a - b) <= atol + rtol * fabs(b);
}

/* Compares an output with the expected one as ONNX's runner does, but integers exactly.  Numbers of
 * bf16 may differ by two units of their last place. */
static case_result compare(run *r, const char *name, wb_tensor *y, wb_tensor *expected,
                           double atol)
{
    const wb_dtype t = wb_dtype_of(expected);
    if (wb_dtype_of(y) != t || wb_ndim(y) != wb_ndim(expected) ||
        memcmp(wb_dims(y), wb_dims(expected), (size_t)wb_ndim(y) * sizeof(int64_t)))
        return ends(r, CASE_FAILED, "%s is %s, expected %s", name, wb_describe(y),
                    wb_describe(expected));
    const void *a = wb_data(y), *b = wb_data(expected);
    const int64_t n = wb_size(y);
    if (n && (!a || !b)) return refused(r, name);
    if (strchr(r->c->flags, 'r')) return CASE_PASSED;
    const bool floating = t == WB_F32 || t == WB_F64 || t == WB_F16 || t == WB_BF16;
    const double rtol = t == WB_BF16 ? fmax(r->c->rtol, 0x1p-6) : r->c->rtol;
    const size_t bytes = wb_dtype_bytes(t);
    int64_t differ = 0, first = 0;
    for (int64_t i = n; i-- > 0;) {
        const bool same = !memcmp((const char *)a + (size_t)i * bytes,
                                  (const char *)b + (size_t)i * bytes, bytes);
        if (same || (floating && is_near(element(a, t, i), element(b, t, i), rtol, atol)))
            continue;
        differ++;
        first = i;
    }
    if (!differ) return CASE_PASSED;
    return ends(r, CASE_FAILED, "%s: %" PRId64 " of %" PRId64 " elements differ; [%" PRId64
                "] is %.9g, expected %.9g", name, differ, n, first, element(a, t, first),
                element(b, t, first));
}

/* ---- gradients ------------------------------------------------------------------------------- */

typedef struct { int n; bool finite, changes; } slopes;

static int look_at_slope(wb_tensor *g, const char *path, void *ctx)
{
    slopes *s = ctx;
    const void *data = wb_data(g);
    if (!data && wb_size(g)) return wb_error_code();
    s->n++;
    for (int64_t i = 0; i < wb_size(g); i++) {
        const double e = element(data, wb_dtype_of(g), i);
        s->finite = s->finite && isfinite(e);
        s->changes = s->changes || e != 0;
    }
    (void)path;
    return 0;
}

/* The gradients of the mean of y squared: that of x is in the folder, those of the parameters are
 * finite and not all 0. */
static double largest(wb_tensor *x)
{
    double most = 0;
    for (int64_t i = 0; i < wb_size(x); i++)
        most = fmax(most, fabs(element(wb_data(x), wb_dtype_of(x), i)));
    return most;
}

static case_result compare_gradients(run *r, wb_layer *m, wb_tensor *x, wb_tensor *y)
{
    const bool of_x = strchr(r->c->flags, 'g'), of_m = strchr(r->c->flags, 't');
    if (!of_x && !of_m) return CASE_PASSED;
    wb_tensor *loss = wb_mean(wb_mul(y, y));
    if (of_x) {
        wb_tensor *g = wb_gradient(loss, x), *expected = tensor_named(r, "grad");
        if (!g || !expected) return refused(r, "gradient");
        const case_result result = compare(r, "gradient", g, expected,
                                           r->c->rtol * largest(expected));
        if (result != CASE_PASSED) return result;
    }
    if (!of_m) return CASE_PASSED;
    slopes s = {0, true, false};
    wb_tree *grads = wb_gradient(loss, m);
    if (!grads || wb_each_tensor(grads, look_at_slope, &s))
        return refused(r, "gradients of the parameters");
    if (s.n && s.finite && s.changes) return CASE_PASSED;
    return ends(r, CASE_FAILED, "%d parameters have gradients, %s", s.n,
                s.finite ? "all 0" : "not all finite");
}

/* ---- the case -------------------------------------------------------------------------------- */

static const char *written;             /* see write_onnx_cases */

void write_onnx_cases(const char *path) { written = path; }

/* Writes the model and reads it again; its batch may have any size if it is an export.  NULL with
 * the error set. */
static wb_layer *write_again(const run *r, wb_layer *m, int n, wb_tensor *const *in)
{
    wb_save_options o = WB_OPTIONS_OF(wb_save_options, .fixed = !strchr(r->c->flags, 't'));
    int64_t axes[WB_MAX_DIMS];
    if (n > WB_MAX_DIMS || !n)
        return wb_fail(WB_ERROR_UNSUPPORTED, "written: %d inputs", n), NULL;
    for (int i = 0; i < n; i++) {
        o.inputs[i] = in[i];
        for (axes[i] = 0; axes[i] < wb_ndim(in[i]); axes[i]++)
            if (wb_dim(in[i], (int)axes[i]) == wb_dim(in[0], 0)) break;
        if (axes[i] == wb_ndim(in[i])) axes[i] = -1;
    }
    if (!o.fixed) wb_ints_set(o.batch_axes, n, axes);
    return wb_save_with(written, m, &o) ? NULL : wb_load(written);
}

static case_result call(run *r, wb_layer *m)
{
    char kinds[MOST_VALUES][16];
    wb_tensor *in[MOST_VALUES] = {NULL}, *out[MOST_VALUES] = {NULL};
    const int n_in = kinds_of(r->c->inputs, kinds);
    for (int i = 0; i < n_in; i++) {
        if (!is_known(kinds[i]))
            return ends(r, CASE_UNSUPPORTED, "an input of the kind %s", kinds[i]);
        if (!(in[i] = numbered(r, "input", i))) return refused(r, "reading an input");
    }
    const int n_out = kinds_of(r->c->outputs, kinds);
    if (written && !(m = write_again(r, m, n_in, in))) return refused(r, "writing");
    if (strpbrk(r->c->flags, "gt")) wb_testmode(m);     /* gradients need a mode */
    if (wb_call_outputs(m, n_in, in, n_out, out)) return refused(r, "calling");
    for (int i = 0; i < n_out; i++) {
        char name[32];
        snprintf(name, sizeof name, "output %d", i);
        if (!is_known(kinds[i]))
            return ends(r, CASE_FAILED, "%s is %s, expected %s", name, wb_describe(out[i]),
                        kinds[i]);
        wb_tensor *expected = numbered(r, "output", i);
        if (!expected) return refused(r, "reading an output");
        const case_result result = compare(r, name, out[i], expected, r->c->atol);
        if (result != CASE_PASSED) return result;
    }
    const case_result result = compare_gradients(r, m, in[0], out[0]);
    if (result != CASE_PASSED) return result;
    if (strchr(r->c->flags, 'r'))
        return ends(r, CASE_UNSUPPORTED, "the expected values are random; shapes and dtypes agree");
    return CASE_PASSED;
}

case_result run_onnx_case(const char *folder, const onnx_case *c, char *reason, size_t bytes)
{
    run r = {folder, c, reason, bytes};
    char path[1000];
    reason[0] = 0;
    wb_clear_error();
    snprintf(path, sizeof path, "%s/%s/model.onnx", folder, c->name);
    wb_scope *s = wb_scope_open();
    wb_layer *m = wb_load(path);
    case_result result = m ? call(&r, m) : refused(&r, "loading");
    if (wb_scope_close(s) && result == CASE_PASSED) result = refused(&r, "closing the scope");
    return result;
}
