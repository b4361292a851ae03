/* Saves the models of written_models.h as files of ONNX, reads them again, and compares outputs and
 * gradients; then written.py has the same outputs computed by ONNX Runtime.
 *
 *     written [FOLDER [WORD...]]      all models, or those whose names contain a word; without a
 *                                     folder in one that is removed
 *
 * FOLDER/NAME has model.onnx and, for two sizes of the batch, the inputs and outputs:
 * 1_input_0.npy, 6_output_1.npy, ...  FOLDER/models.txt has a line for each: name, description,
 * numbers of inputs and outputs, tolerance, separated by tabs. */
#include "written_models.h"

#include "process.h"
#include "python.h"

#include <sys/stat.h>

enum { MOST = 4, EXAMPLE = 2 };
static const int64_t batches[] = {1, 6};    /* not those with which the model is saved: 2, 3, 4 */

static const char *folder;
static char **words;
static int n_words;

/* ---- inputs ---------------------------------------------------------------------------------- */

typedef struct { char kind; int below, ndim, batch_axis; int64_t dims[WB_MAX_DIMS]; } input_spec;

/* Reads a word such as "i9:N,5" and returns what is behind it. */
static const char *read_spec(const char *text, input_spec *s)
{
    *s = (input_spec){.kind = 'f', .batch_axis = -1};
    int used = 0;
    if (sscanf(text, "%c%d:%n", &s->kind, &s->below, &used) == 2 && used) text += used;
    else if (text[1] == ':') s->kind = *text, text += 2;
    else s->kind = 'f';
    for (; *text && *text != ' '; s->ndim++) {
        if (*text == 'N') s->batch_axis = s->ndim, s->dims[s->ndim] = -1, text++;
        else s->dims[s->ndim] = strtoll(text, (char **)(uintptr_t)&text, 10);
        text += *text == ',';
    }
    return text + (*text == ' ');
}

/* Offsets of bags, which ascend from 0 */
static wb_tensor *offsets(int64_t n, int below)
{
    int64_t at[16];
    for (int64_t i = 0; i < n; i++) at[i] = i * below / n;
    return wb_from(at, WB_I64, 1, &n);
}

static wb_tensor *draw(const input_spec *s, int64_t batch)
{
    int64_t dims[WB_MAX_DIMS];
    for (int i = 0; i < s->ndim; i++) dims[i] = s->dims[i] < 0 ? batch : s->dims[i];
    if (s->kind == 'o') return offsets(batch, s->below);
    wb_tensor *x = wb_randn_array(WB_F32, s->ndim, dims);
    if (s->kind == 'm') return wb_gt(x, -0.5);
    if (s->kind == 'i' || s->kind == 'u')
        return wb_astype(wb_mul(wb_rand_array(WB_F32, s->ndim, dims), (double)s->below),
                         s->kind == 'i' ? WB_I64 : WB_U8);
    return s->kind == 'd' ? wb_astype(x, WB_F64) : s->kind == 'h' ? wb_astype(x, WB_F16)
         : s->kind == 'b' ? wb_astype(x, WB_BF16) : x;
}

/* Sets the inputs of a model; returns how many. */
static int inputs_of(const char *text, int64_t batch, wb_tensor **x, int64_t *axes)
{
    int n = 0;
    for (input_spec s; *text && n < MOST; n++) {
        text = read_spec(text, &s);
        MADE(x[n] = draw(&s, batch));
        WORKS(wb_eval(x[n]));
        axes[n] = s.batch_axis;
    }
    return n;
}

/* ---- models ---------------------------------------------------------------------------------- */

/* Vectors, which begin as zeros or ones, get numbers that are positive, as variances are. */
static int vary(wb_tensor *x, const char *path, void *ctx)
{
    if (wb_ndim(x) != 1) return 0;
    wb_tensor *r = wb_add(wb_rand_array(WB_F32, 1, (int64_t[]){wb_dim(x, 0)}), 0.5);
    return wb_assign(x, wb_astype(r, wb_dtype_of(x)));
}

typedef struct { wb_dtype dtype; bool found; } dtype_search;
static int find_dtype(wb_tensor *x, const char *path, void *ctx)
{
    dtype_search *s = ctx;
    s->found |= wb_dtype_of(x) == s->dtype;
    return 0;
}

static bool has_dtype(wb_layer *l, int n, wb_tensor *const *x, wb_dtype dtype)
{
    dtype_search s = {dtype, false};
    for (int i = 0; i < n; i++) s.found |= wb_dtype_of(x[i]) == dtype;
    WORKS(wb_each_tensor(l, find_dtype, &s));
    return s.found;
}

/* By how much outputs may differ, relative to the greatest */
static double tolerance(wb_layer *l, int n, wb_tensor *const *x)
{
    return has_dtype(l, n, x, WB_BF16) ? 3e-2 : has_dtype(l, n, x, WB_F16) ? 4e-3 : 1e-5;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static int failures;                    /* outputs and gradients that are wrong */

static bool same_shape(wb_tensor *a, wb_tensor *b)
{
    bool same = wb_ndim(a) == wb_ndim(b) && wb_dtype_of(a) == wb_dtype_of(b);
    for (int i = 0; same && i < wb_ndim(a); i++) same = wb_dim(a, i) == wb_dim(b, i);
    return same;
}

/* Numbers may differ by the tolerance times the greatest one, or times `least`, if that is more:
 * for gradients that are 0. */
static void alike(const char *model, const char *what, wb_tensor *a, wb_tensor *b, double tolerance,
                  double least)
{
    if (a && b && wb_is_none(a) && wb_is_none(b)) return;
    const bool both = a && b && !wb_is_none(a) && !wb_is_none(b), same = both && same_shape(a, b);
    const double *p = same ? wb_data(wb_astype(a, WB_F64)) : NULL;
    const double *q = p ? wb_data(wb_astype(b, WB_F64)) : NULL;
    if (!q) {
        print_error("%s: %s: %s\n", model, what, both ? wb_describe(b) : wb_error());
        failures++;
        return;
    }
    double greatest = least;
    for (int64_t i = 0; i < wb_size(a); i++)
        if (isfinite(p[i])) greatest = fmax(greatest, fabs(p[i]));
    for (int64_t i = 0; i < wb_size(a); i++) {
        if (fabs(p[i] - q[i]) <= tolerance * greatest || p[i] == q[i] ||
            (isnan(p[i]) && isnan(q[i])))
            continue;
        print_error("%s: %s: element %d is %g, not %g\n", model, what, (int)i, q[i], p[i]);
        failures++;
        return;
    }
}

#define SMALL 1e-4                      /* of gradients */

/* ONNX has no wb_stop_gradient, which these models have. */
static bool has_other_gradients(const char *name)
{
    return !strcmp(name, "stopped") || !strcmp(name, "embedding");
}

typedef struct { const char *model; wb_tree *a, *b; double tolerance; } gradients;

static int compare_gradient(wb_tensor *x, const char *path, void *ctx)
{
    const gradients *g = ctx;
    if (!*path) return 0;
    wb_tensor *b = wb_get(g->b, path);
    if (b) alike(g->model, path, wb_get(g->a, path), b, g->tolerance, SMALL);
    else wb_clear_error();              /* a parameter on which no output depends is not there */
    return 0;
}

/* A loss to whose gradient all elements of y contribute in different ways */
static wb_tensor *loss_of(wb_tensor *y)
{
    if (!y) return NULL;
    y = wb_reshape(y, -1);
    wb_tensor *w = wb_sin(wb_mul(wb_arange(wb_size(y), wb_dtype_of(y)), 1.7));
    return wb_mean(wb_add(wb_mul(y, w), wb_mul(wb_square(y), 0.1)));
}

/* Compares the gradients of a model and of its file with respect to parameters and the first
 * input. */
static void compare_gradients(const char *name, wb_layer *l, wb_layer *read, int n, wb_tensor **x,
                              wb_tensor *y, wb_tensor *z, double tolerance)
{
    const wb_dtype of = wb_dtype_of(y), first = wb_dtype_of(x[0]);
    const bool floating = of == WB_F32 || of == WB_F64, wrt_x = first == WB_F32 || first == WB_F64;
    if (!floating || has_other_gradients(name)) return;
    if (wrt_x)
        alike(name, "the gradient of the input", wb_gradient(loss_of(y), x[0]),
              wb_gradient(loss_of(z), x[0]), 100 * tolerance, SMALL);
    if (wb_parameter_count(read) < 1) return;
    gradients g = {name, wb_gradient(loss_of(y), l), wb_gradient(loss_of(z), read),
                   100 * tolerance};
    if (g.a && g.b) WORKS(wb_each_parameter(l, compare_gradient, &g));
    else alike(name, "gradients", NULL, NULL, 0, 0);
}

/* ---- one model ------------------------------------------------------------------------------- */

static const char *path_in(const char *name, const char *file)
{
    static char paths[2][900];
    static int turn;
    char *path = paths[turn++ & 1];
    snprintf(path, sizeof paths[0], "%s/%s%s%s", folder, name, file ? "/" : "", file ? file : "");
    return path;
}

static void put_tensor(const char *name, int64_t batch, const char *kind, int i, wb_tensor *x)
{
    char file[64];
    snprintf(file, sizeof file, "%d_%s_%d.npy", (int)batch, kind, i);
    WORKS(wb_save_npy(path_in(name, file), x));
}

static int outputs_of(const char *name, wb_layer *l, int n, wb_tensor **x, wb_tensor **y)
{
    for (int n_out = 1; n_out <= MOST; n_out++)
        if (!wb_call_outputs(l, n, x, n_out, y)) return n_out;
    fail_msg("%s: %s", name, wb_error());
    return 0;
}

/* Compares the model with its file for a batch, and writes the inputs and outputs; returns the
 * number of outputs. */
static int compare(const char *name, const char *inputs, wb_layer *l, wb_layer *read, int64_t batch)
{
    wb_scope *scope = wb_scope_open();
    wb_tensor *x[MOST], *y[MOST] = {NULL}, *z[MOST] = {NULL};
    int64_t axes[MOST];
    const int n = inputs_of(inputs, batch, x, axes), n_out = outputs_of(name, l, n, x, y);
    const double allowed = tolerance(l, n, x);
    wb_call_outputs(read, n, x, n_out, z);
    for (int i = 0; i < n_out; i++) alike(name, "as read", y[i], z[i], allowed, 0);
    if (z[0]) compare_gradients(name, l, read, n, x, y[0], z[0], allowed);
    for (int i = 0; i < n; i++) put_tensor(name, batch, "input", i, x[i]);
    for (int i = 0; i < n_out; i++) put_tensor(name, batch, "output", i, y[i]);
    WORKS(wb_scope_close(scope));
    return n_out;
}

static void save_one(int k, FILE *list)
{
    const char *name = written_models[k].name, *inputs = written_models[k].inputs;
    wb_scope *scope = wb_scope_open();
    wb_seed((uint64_t)k + 1);
    wb_layer *l = written_models[k].make();
    if (!l) fail_msg("%s: %s", name, wb_error());
    wb_testmode(l);
    WORKS(wb_each_tensor(l, vary, NULL));
    wb_save_options o = WB_OPTIONS_OF(wb_save_options);
    int64_t axes[MOST];
    const int n = inputs_of(inputs, EXAMPLE, o.inputs, axes);
    wb_ints_set(o.batch_axes, n, axes);
    mkdir(path_in(name, NULL), 0777);
    const int status = wb_save_with(path_in(name, "model.onnx"), l, &o);
    wb_layer *read = status ? NULL : wb_load(path_in(name, "model.onnx"));
    if (!read) alike(name, status ? "is not saved" : "is not read", NULL, NULL, 0, 0);
    int n_out = 0;
    for (size_t i = 0; read && i < sizeof batches / sizeof *batches; i++)
        n_out = compare(name, inputs, l, read, batches[i]);
    if (!status) fprintf(list, "%s\t%s\t%d\t%d\t%g\n", name, written_models[k].what, n, n_out,
            tolerance(l, n, o.inputs));
    WORKS(wb_scope_close(scope));
}

static bool is_named(const char *name)
{
    bool named = !n_words;
    for (int i = 0; i < n_words; i++) named = named || strstr(name, words[i]);
    return named;
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(models_as_read_again)
{
    mkdir(folder, 0777);
    FILE *list = fopen(path_in("models.txt", NULL), "w");
    assert_non_null(list);
    for (size_t i = 0; i < sizeof written_models / sizeof *written_models; i++)
        if (is_named(written_models[i].name)) save_one((int)i, list);
    assert_int_equal(fclose(list), 0);
    assert_int_equal(failures, 0);
}

TEST(models_in_onnx_runtime)
{
    if (!python_has("onnx") || !python_has("onnxruntime")) skip();
    if (python_script("onnx/written.py run", folder)) fail_msg("models of ONNX are wrong");
    if (!n_words && python_script("onnx/written.py check", folder))
        fail_msg("docs/onnx.md is not of these results");
}

int main(int argc, char **argv)
{
    folder = argc > 1 ? argv[1] : process_folder();
    if (argc > 2) words = argv + 2, n_words = argc - 2;
    const int status = run_all_cases();
    if (argc < 2) process_remove(folder);
    return status;
}
