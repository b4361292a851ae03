/* Flux's models out of BSON files: real ones of real programs, and one made here for every struct and generation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/flux.h"
#include "nn/layer.h"
#include "shared_data.h"

/* ---- real files ------------------------------------------------------------------------------ */

static char real_path[1024];

static wb_layer *load_real(const char *name, const wb_load_options *o)
{
    char file[200];
    snprintf(file, sizeof file, "flux-models/%s", name);
    if (!shared_file(real_path, sizeof real_path, file)) skip();
    wb__mapping *m = wb__map(real_path);
    assert_non_null(m);
    wb_layer *model = wb__flux_load(m, o);
    wb__unmap(m);
    return model;
}

/* The first axis of the arrays that these two were trained on is a picture's row, the last one here: the pictures lie on
 * their side. */
static double accuracy(wb_layer *model, const float *logits)
{
    char images[1024], labels[1024];
    if (!shared_file(images, sizeof images, "mnist-t10k/t10k-images-idx3-ubyte.gz") ||
        !shared_file(labels, sizeof labels, "mnist-t10k/t10k-labels-idx1-ubyte.gz")) skip();
    wb_tensor *x = wb_read_idx(images), *y = wb_read_idx(labels);
    x = wb_div(wb_astype(wb_permute(x, 0, 2, 1), WB_F32), wb_scalar(255));
    x = wb_reshape(x, 10000, 1, 28, 28);
    int right = 0;
    for (int at = 0; at < 10000; at += 1000) {
        wb_scope *s = wb_scope_open();
        wb_tensor *out = wb_call(model, wb_slice(x, 0, at, at + 1000));
        const float *p = wb_data(out);
        const uint8_t *label = wb_data(wb_slice(y, 0, at, at + 1000));
        assert_non_null(p);
        for (int i = 0; !at && i < 10; i++) assert_float_equal(p[i], logits[i], 1e-3);
        for (int i = 0; i < 1000; i++) {
            int best = 0;
            for (int k = 1; k < 10; k++)
                if (p[10 * i + k] > p[10 * i + best]) best = k;
            right += best == label[i];
        }
        wb_scope_close(s);
    }
    return right / 1e4;
}

static void told(wb_log_level level, const char *message, void *ctx)
{
    (void)level;
    snprintf(ctx, 500, "%s", message);
}

static void a_model_of_2020(void **state)
{
    (void)state;
    static const float logits[10] = {-7.4504f, -3.0844f, 1.2763f, -2.1351f, -13.6553f,
                                     -13.4810f, -32.2989f, 15.9946f, -7.9445f, 0.9139f};
    char said[500] = "";
    wb_scope *s = wb_scope_open();
    wb_set_log(told, said);
    wb_layer *model = load_real("juliacon2020-model_conv.bson", NULL);
    wb_set_log(NULL, NULL);
    if (!model) fail_msg("%s", wb_error());
    assert_non_null(strstr(said, "\"layers.6\" is a closure (#3#4)"));
    assert_non_null(strstr(said, "taken for Flatten"));
    wb_layer *parts[8];
    for (int i = 0; i < 8; i++) {
        char path[16];
        snprintf(path, sizeof path, "layers.%d", i);
        parts[i] = wb_layer_at(model, path);
    }
    assert_true(accuracy(wb_chain_of(8, parts), logits) == 0.9874);        /* without its softmax */
    wb_scope_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_model_of_2020)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
