/* WEBER_DEBUG=check: the error for a freed object names the object and the scope that closed;
 * labels and indices out of range are errors. */
#include "reference.h"

#include "weber/data.h"
#include "weber/device.h"
#include "weber/files.h"
#include "weber/nn.h"
#include "weber/train.h"

#include <unistd.h>

/* `call` fails because an object was freed; the message names the object and a scope.  Clears the
 * error. */
#define GONE(call, ...)                                                     \
    do {                                                                    \
        wb_clear_error();                                                   \
        (void)(call);                                                       \
        FAILED(WB_ERROR_ARGUMENT, "freed", "scope", __VA_ARGS__);           \
        wb_clear_error();                                                   \
    } while (0)

TEST(tensors)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *x = wb_ones(2, 5), *v = wb_variable(wb_ones(3));
    wb_scope_close(s);
    wb_tensor *fine = wb_ones(2, 5);
    GONE(wb_add(fine, x), "tensor", "[2,5] f32");
    GONE(wb_at(x, 0, 0), "tensor", "[2,5] f32");
    GONE(wb_item(x), "tensor", "[2,5] f32");
    GONE(wb_data(x), "tensor", "[2,5] f32");
    GONE(wb_dims(x), "tensor", "[2,5] f32");
    GONE(wb_ndim(x), "tensor", "[2,5] f32");
    GONE(wb_dim(x, 0), "tensor", "[2,5] f32");
    GONE(wb_size(x), "tensor", "[2,5] f32");
    GONE(wb_dtype_of(x), "tensor", "[2,5] f32");
    GONE(wb_eval(x), "tensor", "[2,5] f32");
    GONE(wb_keep(x), "tensor", "[2,5] f32");
    GONE(wb_retain(x), "tensor", "[2,5] f32");
    GONE(wb_free(x), "tensor", "[2,5] f32");
    GONE(wb_release(x), "tensor", "[2,5] f32");
    GONE(wb_show(x), "tensor", "[2,5] f32");
    GONE(wb_sum(x), "tensor", "[2,5] f32");
    GONE(wb_mse(fine, x), "tensor", "[2,5] f32");
    GONE(wb_concat(0, fine, x), "tensor", "[2,5] f32");
    GONE(wb_gradient(wb_sum(fine), x), "tensor", "[2,5] f32");
    GONE(wb_tuple(fine, x), "tensor", "[2,5] f32");
    GONE(wb_to(x, wb_cpu_device()), "tensor", "[2,5] f32");
    GONE(wb_dataset_of(x, WB_NONE), "tensor", "[2,5] f32");
    GONE(wb_save_npy(WB_TEST_NOWHERE "/x.npy", x), "tensor", "[2,5] f32");
    GONE(wb_assign(v, fine), "tensor", "[3] f32");
    assert_non_null(strstr(wb_describe(x), "tensor, [2,5] f32"));
    wb_shutdown();
}

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mse(wb_call(m, b.x), b.y);
}

static int nothing(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_neg(in[0]);
    return 1;
}

TEST(models_and_states)
{
    wb_scope *s = wb_scope_open();
    wb_layer *m = wb_Dense(4, 2);
    wb_opt_state *opt = wb_setup(wb_Adam(), m);
    wb_rule *rule = wb_Descent();
    wb_tree *tree = wb_tuple(wb_ones(2));
    wb_compiled *f = wb_compile(nothing, NULL);
    wb_progress *bar = wb_progress_of(3, "bar");
    wb_scope_close(s);
    wb_layer *fine = wb_Dense(4, 2);
    wb_opt_state *good = wb_setup(wb_Adam(), fine);
    wb_tensor *x = wb_ones(1, 4), *out;
    wb_tree *g = wb_gradient(wb_sum(wb_call(fine, x)), fine);
    GONE(wb_call(m, x), "layer", "Dense");
    GONE(wb_keep(m), "layer", "Dense");
    GONE(wb_get(m, "weight"), "layer", "Dense");
    GONE(wb_layer_at(m, ""), "layer", "Dense");
    GONE(wb_set(m, "weight", x), "layer", "Dense");
    GONE(wb_trainmode(m), "layer", "Dense");
    GONE(wb_parameter_count(m), "layer", "Dense");
    GONE(wb_Chain(m, fine), "layer", "Dense");
    GONE(wb_SkipConnection(m, wb_add), "layer", "Dense");
    GONE(wb_named("a", m), "layer", "Dense");
    GONE(wb_setup(wb_Adam(), m), "layer", "Dense");
    GONE(wb_gradient(wb_sum(wb_call(fine, x)), m), "layer", "Dense");
    GONE(wb_update(good, m, g), "layer", "Dense");
    GONE(wb_save(WB_TEST_NOWHERE "/m.safetensors", m), "layer", "Dense");
    GONE(wb_device_of(m), "layer", "Dense");
    GONE(wb_show(m), "layer", "Dense");
    GONE(wb_free(m), "layer", "Dense");
    GONE(wb_update(good, fine, tree), "tree");
    GONE(wb_get(tree, "0"), "tree");
    GONE(wb_opaque_get(tree), "tree");
    GONE(wb_update(opt, fine, g), "state");
    GONE(wb_adjust(opt, .eta = 1), "state");
    GONE(wb_freeze(opt, "weight"), "state");
    GONE(wb_save_checkpoint(WB_TEST_NOWHERE "/c", &(wb_checkpoint){.state = opt}), "state");
    GONE(wb_setup(rule, fine), "rule");
    GONE(wb_OptimizerChain(wb_Descent(), rule), "rule");
    GONE(wb_call_compiled(f, 1, &x, 1, &out), "compiled function");
    GONE(wb_progress_step(bar, "loss", x), "progress");
    GONE(wb_progress_end(bar), "progress");
    wb_shutdown();
}

TEST(data)
{
    wb_scope *s = wb_scope_open();
    wb_dataset *d = wb_dataset_of(wb_randn(6, 4), wb_randn(6, 2));
    wb_loader *gone = wb_dataloader(d, .batchsize = 2);
    wb_scope_close(s);
    wb_batch batch;
    GONE(wb_dataset_length(d), "dataset");
    GONE(wb_dataset_x(d), "dataset");
    GONE(wb_dataloader(d, .batchsize = 2), "dataset");
    GONE(wb_subset(d, 0, 1), "dataset");
    GONE(wb_loader_next(gone, &batch), "loader");
    GONE(wb_loader_length(gone), "loader");
    wb_loader *l = wb_dataloader(wb_dataset_of(wb_randn(6, 4), wb_randn(6, 2)), .batchsize = 2);
    wb_tensor *last = NULL;
    WB_EACH_BATCH(b, l) last = b.x;
    GONE(wb_sum(last), "tensor", "[2,4] f32");            /* a batch after its loop */
    wb_layer *m = wb_Dense(4, 2);
    wb_opt_state *opt = wb_setup(wb_Adam(), m);
    GONE(wb_train(loss, m, gone, opt), "loader");
    wb_shutdown();
}

/* The message names the number of the closed scope and how many scopes are open. */
TEST(scopes_are_numbered)
{
    char number[2][64];
    for (int i = 0; i < 2; i++) {
        wb_scope *outer = wb_scope_open(), *inner = wb_scope_open();
        wb_tensor *x = wb_ones(7);
        wb_scope_close(inner);
        wb_clear_error();
        assert_null(wb_neg(x));
        const char *at = strstr(wb_error(), "scope ");
        assert_non_null(at);
        FAILED(WB_ERROR_ARGUMENT, "1 scope");
        snprintf(number[i], sizeof number[i], "%.20s", at);
        wb_scope_close(outer);
        REFUSED(wb_neg(x), WB_ERROR_ARGUMENT, "0 scopes");
    }
    assert_string_not_equal(number[0], number[1]);
    wb_tensor *x = wb_ones(9);
    wb_free(x);
    REFUSED(wb_neg(x), WB_ERROR_ARGUMENT, "[9] f32", "wb_free");
    wb_shutdown();
}

/* The memory of a freed object is not reused at once, but the memory that is kept so is bounded. */
TEST(the_queue_is_bounded)
{
    wb_tensor *first = wb_ones(11);
    wb_free(first);
    for (int i = 0; i < 1000; i++) {
        wb_tensor *x = wb_ones(11);
        assert_ptr_not_equal(x, first);
        wb_free(x);
    }
    REFUSED(wb_neg(first), WB_ERROR_ARGUMENT, "tensor", "[11] f32");
    int64_t most = 0;
    for (int i = 0; i < 600000; i++) {
        wb_free(wb_scalar(i));
        if (wb_memory_used() > most) most = wb_memory_used();
    }
    assert_true(most < (int64_t)110 << 20);
    wb_shutdown();
}

TEST(labels_and_indices)
{
    const int32_t labels[6] = {0, 1, 2, 9, 0, -3};
    const int64_t wide[2] = {1, 70};
    const uint8_t small[2] = {4, 200};
    wb_tensor *y = wb_from(labels, WB_I32, 2, (int64_t[]){2, 3}), *table = wb_randn(5, 2);
    REFUSED(wb_onehotbatch(y, 4), WB_ERROR_ARGUMENT, "9", "[1,0]", "0", "3");
    REFUSED(wb_onehotbatch(y, 9), WB_ERROR_ARGUMENT, "9", "[1,0]", "0", "8");
    REFUSED(wb_onehotbatch(y, 10), WB_ERROR_ARGUMENT, "-3", "[1,2]", "0", "9");
    REFUSED(wb_take(table, y), WB_ERROR_ARGUMENT, "9", "[1,0]", "0", "4");
    REFUSED(wb_call(wb_Embedding(50, 3), wb_from(wide, WB_I64, 1, (int64_t[]){2})),
            WB_ERROR_ARGUMENT, "70", "[1]", "0", "49");
    REFUSED(wb_take(table, wb_from(small, WB_U8, 1, (int64_t[]){2})), WB_ERROR_ARGUMENT, "200",
            "[1]", "0", "4");
    assert_non_null(wb_take(table, wb_maximum(wb_minimum(y, wb_scalar(4)), wb_scalar(0))));
    assert_non_null(wb_onehotbatch(wb_arange(4, WB_I32), 4));
    wb_tensor *scores = wb_randn(2, 3, 9);
    REFUSED(wb_logitcrossentropy(scores, y), WB_ERROR_ARGUMENT, "9", "[1,0]", "0", "8");
    REFUSED(wb_crossentropy(wb_softmax(scores), wb_add(y, wb_scalar(0)), .ignore_index = 9),
            WB_ERROR_ARGUMENT, "crossentropy", "-3", "[1,2]", "0", "8");
    assert_non_null(wb_logitcrossentropy(scores, wb_maximum(y, wb_scalar(0)), .ignore_index = 9));
    wb_tensor *offsets = wb_from((int32_t[]){0, 1, 3}, WB_I32, 1, (int64_t[]){3});
    wb_tensor *rows = wb_from((int32_t[]){1, 2}, WB_I32, 1, (int64_t[]){2});
    REFUSED(wb_call(wb_EmbeddingBag(5, 2), rows, wb_maximum(offsets, wb_scalar_int(0))),
            WB_ERROR_ARGUMENT, "EmbeddingBag offsets", "3, at [2]", "0 to 2");
    assert_non_null(wb_call(wb_EmbeddingBag(5, 2), rows, wb_minimum(offsets, wb_scalar_int(2))));
    /* The check evaluates an index that is not computed yet, which must not consume other pending
     * tensors. */
    wb_tensor *v = wb_variable(wb_ones(2)), *before = wb_exp(v), *use = wb_sum(before);
    wb_assign(v, wb_zeros(2));
    assert_non_null(wb_take(table, wb_add(wb_arange(3, WB_I32), wb_scalar(1))));
    assert_true(fabs(wb_at(wb_gradient(use, v), 0) - exp(1)) < 1e-6 && wb_at(before, 1) > 2.7);
    assert_true(wb_at(v, 0) == 0);
    wb_shutdown();
}

int main(void)
{
    setenv("WEBER_DEBUG", "check", 1);          /* before the library reads it */
    return run_all_cases();
}
