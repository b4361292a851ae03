/* Makes documents of Flux and reads them: for the tests io_flux_read, _files and _tables. */
#ifndef FLUX_READING_H
#define FLUX_READING_H

#include "test.h"

#include "bson_maker.h"
#include "io/flux/flux.h"
#include "nn/layer.h"

static inline bson_maker made(void)
{
    bson_maker m = {0};
    bm_document(&m);
    bm_key(&m, "model");
    return m;
}

static inline wb__mapping mapped(bson_maker *m)
{
    bm_finish(m);
    return (wb__mapping){.path = (char *)(uintptr_t)"made.bson", .data = m->bytes,
                         .bytes = (int64_t)m->n};
}

static inline wb_layer *load_with(bson_maker *m, const wb_load_options *o)
{
    wb__mapping map = mapped(m);
    wb_layer *l = wb__flux_load(&map, o);
    bm_free(m);
    return l;
}

static inline wb_layer *load(bson_maker *m)
{
    wb_layer *l = load_with(m, NULL);
    if (!l) fail_msg("%s", wb_error());
    return l;
}

/* The layer printed on one line.  The text is valid until the next call. */
static inline const char *printed(wb_layer *l)
{
    static char line[1000];
    wb__text t = {0};
    wb__print_layer(l, &t);
    char *text = wb__text_take(&t);
    snprintf(line, sizeof line, "%s", text);
    wb__free(text);
    return line;
}

static inline void expect_layer(bson_maker *m, const char *text)
{
    assert_string_equal(printed(load(m)), text);
}

/* The elements of the parameter count up from `first` in the order of memory, or with `transposed`,
 * which matrices of Julia need, column by column. */
static inline void expect_values(wb_layer *l, const char *path, const char *shape, double first,
                                 bool transposed)
{
    wb_tensor *x = wb_get(l, path);
    if (!x) fail_msg("%s", wb_error());
    assert_string_equal(wb_describe(x), shape);
    const int64_t *dims = wb_dims(x);
    for (int64_t i = 0; i < wb_size(x); i++) {
        int64_t at = transposed ? i % dims[1] * dims[0] + i / dims[1] : i;
        double value = wb_dtype_of(x) == WB_F64 ? ((const double *)wb_data(x))[i]
                                                : ((const float *)wb_data(x))[i];
        assert_true(value == first + (double)at);
    }
}

static inline void dense_fields(bson_maker *m, const char *activation)
{
    bm_struct(m, "Flux.Dense");
    bm_array(m, 2, 3, 2);
    bm_array(m, 1, 3);
    bm_function(m, activation);
    bm_end(m);
}

static inline void conv_fields(bson_maker *m, const char *type, int extra)
{
    bm_struct(m, type);
    bm_function(m, "NNlib.#relu");
    bm_array(m, 4, 3, 2, 1, 4);
    bm_array(m, 1, 4);
    bm_integers(m, 2, 2, 1);
    bm_integers(m, 4, 1, 2, 3, 0);
    bm_integers(m, 2, 1, 2);
    if (extra > 0) bm_integer(m, 1);
    if (extra > 1) bm_symbol(m, "zeros");
    bm_end(m);
}

static inline void batchnorm_fields(bson_maker *m, bool old, bool affine, bool track)
{
    bm_struct(m, "Flux.BatchNorm");
    bm_function(m, "NNlib.#relu");
    for (int i = 0; i < 4; i++)
        if (i < 2 ? affine : track) bm_array(m, 1, 3);
        else bm_null(m);
    bm_float(m, 1e-3f);
    bm_float(m, 0.2f);
    if (!old) bm_bool(m, affine), bm_bool(m, track);
    if (old) bm_bool(m, 0);
    else bm_null(m);
    if (!old) bm_integer(m, 3);
    bm_end(m);
}

/* A recurrent layer in the form of one of Flux's generations.  0: Recur(cell, init, state), whose
 * cell has vectors as its state; 1: Recur(cell, state), with state0 in the cell; 2: LSTM(cell); 3:
 * the cell alone. */
static inline void recurrent_fields(bson_maker *m, const char *name, int gates, int generation,
                                    double state)
{
    char cell[40], layer[40];
    snprintf(cell, sizeof cell, "Flux.%sCell", name);
    snprintf(layer, sizeof layer, "Flux.%s", name);
    int n = gates == 4 ? 2 : 1;
    if (generation < 3) bm_struct(m, generation < 2 ? "Flux.Recur" : layer);
    bm_struct(m, cell);
    if (gates == 1) bm_function(m, "Base.#tanh");
    m->value = 0;
    bm_array(m, 2, 3 * gates, 2);
    bm_array(m, 2, 3 * gates, 3);
    bm_array(m, 1, 3 * gates);
    float h[3] = {(float)state, 0, (float)state};
    if (generation == 1 && n == 2) bm_tuple(m);
    for (int i = 0; generation < 2 && i < n; i++)
        bm_bytes(m, "Core.Float32", generation ? 2 : 1, (int64_t[]){3, 1}, h, sizeof h);
    if (generation == 1 && n == 2) bm_end(m);
    bm_end(m);
    if (generation == 0) bm_null(m);
    if (generation < 2) bm_null(m);
    if (generation < 3) bm_end(m);
}

/* A struct that no version of Flux has, with another unknown struct in it. */
static inline void unknown_attention(bson_maker *m)
{
    bm_struct(m, "Main.Attention");
    dense_fields(m, "NNlib.#relu");
    bm_array(m, 2, 3, 5);
    bm_integer(m, 7);
    bm_function(m, "Base.#tanh");
    bm_tuple(m);
    bm_null(m), bm_array(m, 1, 2);
    bm_end(m);
    bm_struct(m, "DNC.State");
    bm_array(m, 1, 4);
    bm_end(m);
    bm_end(m);
}

/* Whether this build has libbson; prints a line where it does not. */
static inline bool reads_bson(void)
{
    bson_maker none = {0};
    bm_document(&none);
    wb__mapping map = mapped(&none);
    bool reads = wb__flux_load(&map, NULL) || wb_error_code() != WB_ERROR_UNSUPPORTED;
    if (!reads) printf("SKIP: %s\n", wb_error());
    bm_free(&none);
    return reads;
}

#endif
