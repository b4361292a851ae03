/* WEBER_DEBUG=check: whatever is used after its end is named, with the scope that closed; so are
 * labels and indices out of range. */
#include "reference.h"

#include "weber/data.h"
#include "weber/device.h"
#include "weber/files.h"
#include "weber/nn.h"
#include "weber/train.h"

#include <unistd.h>

static int code(void)
{
    const int c = wb_error_code();
    return c ? c : -1;
}

/* The last error names the object and a scope's number; it is cleared. */
static void names(const char *call, const char *object)
{
    if (wb_error_code() != WB_ERROR_ARGUMENT || !strstr(wb_error(), object) ||
        !strstr(wb_error(), "freed") || !strstr(wb_error(), "scope "))
        fail_msg("%s: \"%s\" does not name %s", call, wb_error(), object);
    wb_clear_error();
}

#define GONE(object, call)                      \
    do {                                        \
        wb_clear_error();                       \
        (void)(call);                           \
        names(#call, object);                   \
    } while (0)
#define GONE_VOID(object, call) GONE(object, ((call), 0))

TEST(tensors)
{
    wb_scope *s = wb_scope_open();
    wb_tensor *x = wb_ones(2, 5), *v = wb_variable(wb_ones(3));
    wb_scope_close(s);
    wb_tensor *fine = wb_ones(2, 5);
    GONE("tensor, [2,5] f32", wb_add(fine, x));
    GONE("tensor, [2,5] f32", wb_at(x, 0, 0));
    GONE("tensor, [2,5] f32", wb_item(x));
    GONE("tensor, [2,5] f32", wb_data(x));
    GONE("tensor, [2,5] f32", wb_dims(x));
    GONE("tensor, [2,5] f32", wb_ndim(x));
    GONE("tensor, [2,5] f32", wb_dim(x, 0));
    GONE("tensor, [2,5] f32", wb_size(x));
    GONE("tensor, [2,5] f32", wb_dtype_of(x));
    GONE("tensor, [2,5] f32", wb_eval(x));
    GONE("tensor, [2,5] f32", wb_keep(x));
    GONE("tensor, [2,5] f32", wb_retain(x));
    GONE_VOID("tensor, [2,5] f32", wb_free(x));
    GONE_VOID("tensor, [2,5] f32", wb_release(x));
    GONE_VOID("tensor, [2,5] f32", wb_show(x));
    GONE("tensor, [2,5] f32", wb_sum(x));
    GONE("tensor, [2,5] f32", wb_mse(fine, x));
    GONE("tensor, [2,5] f32", wb_concat(0, fine, x));
    GONE("tensor, [2,5] f32", wb_gradient(wb_sum(fine), x));
    GONE("tensor, [2,5] f32", wb_tuple(fine, x));
    GONE("tensor, [2,5] f32", wb_to(x, wb_cpu_device()));
    GONE("tensor, [2,5] f32", wb_dataset_of(x, WB_NONE));
    GONE("tensor, [2,5] f32", wb_save_npy("/nonexistent/x.npy", x));
    GONE("tensor, [3] f32", wb_assign(v, fine));
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
    GONE("layer, Dense", wb_call(m, x));
    GONE("layer, Dense", wb_keep(m));
    GONE("layer, Dense", wb_get(m, "weight"));
    GONE("layer, Dense", wb_layer_at(m, ""));
    GONE("layer, Dense", wb_set(m, "weight", x));
    GONE("layer, Dense", wb_trainmode(m));
    GONE("layer, Dense", wb_parameter_count(m));
    GONE("layer, Dense", wb_Chain(m, fine));
    GONE("layer, Dense", wb_SkipConnection(m, wb_add));
    GONE("layer, Dense", wb_named("a", m));
    GONE("layer, Dense", wb_setup(wb_Adam(), m));
    GONE("layer, Dense", wb_gradient(wb_sum(wb_call(fine, x)), m));
    GONE("layer, Dense", wb_update(good, m, g));
    GONE("layer, Dense", wb_save("/nonexistent/m.safetensors", m));
    GONE("layer, Dense", wb_device_of(m));
    GONE_VOID("layer, Dense", wb_show(m));
    GONE_VOID("layer, Dense", wb_free(m));
    GONE("tree", wb_update(good, fine, tree));
    GONE("tree", wb_get(tree, "0"));
    GONE("tree", wb_opaque_get(tree));
    GONE("state", wb_update(opt, fine, g));
    GONE("state", wb_adjust(opt, .eta = 1));
    GONE("state", wb_freeze(opt, "weight"));
    GONE("state", wb_checkpoint_save("/nonexistent/c", &(wb_checkpoint){.state = opt}));
    GONE("rule", wb_setup(rule, fine));
    GONE("rule", wb_OptimiserChain(wb_Descent(), rule));
    GONE("compiled function", wb_call_compiled(f, 1, &x, 1, &out));
    GONE_VOID("progress", wb_progress_step(bar, "loss", x));
    GONE_VOID("progress", wb_progress_end(bar));
    wb_shutdown();
}

TEST(data)
{
    wb_scope *s = wb_scope_open();
    wb_dataset *d = wb_dataset_of(wb_randn(6, 4), wb_randn(6, 2));
    wb_loader *gone = wb_dataloader(d, .batchsize = 2);
    wb_scope_close(s);
    wb_batch batch;
    GONE("dataset", wb_dataset_length(d));
    GONE("dataset", wb_dataset_x(d));
    GONE("dataset", wb_dataloader(d, .batchsize = 2));
    GONE("dataset", wb_subset(d, 0, 1));
    GONE("loader", wb_loader_next(gone, &batch));
    GONE("loader", wb_loader_length(gone));
    wb_loader *l = wb_dataloader(wb_dataset_of(wb_randn(6, 4), wb_randn(6, 2)), .batchsize = 2);
    wb_tensor *last = NULL;
    WB_EACH_BATCH(b, l) last = b.x;
    GONE("tensor, [2,4] f32", wb_sum(last));            /* a batch after its loop */
    wb_layer *m = wb_Dense(4, 2);
    wb_opt_state *opt = wb_setup(wb_Adam(), m);
    GONE("loader", wb_train(loss, m, gone, opt));
    wb_shutdown();
}

/* The scope's number and how many are open now. */
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
        assert_non_null(strstr(wb_error(), "1 scope is open now"));
        snprintf(number[i], sizeof number[i], "%.20s", at);
        wb_scope_close(outer);
        wb_clear_error();
        assert_null(wb_neg(x));
        assert_non_null(strstr(wb_error(), "0 scopes are open now"));
    }
    assert_string_not_equal(number[0], number[1]);
    wb_tensor *x = wb_ones(9);
    wb_free(x);
    wb_clear_error();
    assert_null(wb_neg(x));
    assert_non_null(strstr(wb_error(), "[9] f32"));
    assert_non_null(strstr(wb_error(), "wb_free"));
    wb_shutdown();
}

/* Nothing is used again at once, and not for ever. */
TEST(the_queue_is_bounded)
{
    wb_tensor *first = wb_ones(11);
    wb_free(first);
    for (int i = 0; i < 1000; i++) {
        wb_tensor *x = wb_ones(11);
        assert_ptr_not_equal(x, first);
        wb_free(x);
    }
    wb_clear_error();
    assert_null(wb_neg(first));
    assert_non_null(strstr(wb_error(), "tensor, [11] f32"));
    int64_t most = 0;
    for (int i = 0; i < 600000; i++) {
        wb_free(wb_scalar(i));
        if (wb_memory_used() > most) most = wb_memory_used();
    }
    assert_true(most < (int64_t)110 << 20);
    wb_shutdown();
}

static void out_of_range(int status, const char *value, const char *place, const char *bound)
{
    if (status != WB_ERROR_ARGUMENT || !strstr(wb_error(), value) || !strstr(wb_error(), place) ||
        !strstr(wb_error(), bound))
        fail_msg("\"%s\" does not name %s at %s, bound %s", wb_error(), value, place, bound);
    wb_clear_error();
}

TEST(labels_and_indices)
{
    const int32_t labels[6] = {0, 1, 2, 9, 0, -3};
    const int64_t wide[2] = {1, 70};
    const uint8_t small[2] = {4, 200};
    wb_tensor *y = wb_from(labels, WB_I32, 2, (int64_t[]){2, 3}), *table = wb_randn(5, 2);
    wb_clear_error();
    assert_null(wb_onehotbatch(y, 4));
    out_of_range(code(), "9", "[1,0]", "0 to 3");
    assert_null(wb_onehotbatch(y, 9));
    out_of_range(code(), "9", "[1,0]", "0 to 8");
    assert_null(wb_onehotbatch(y, 10));
    out_of_range(code(), "-3", "[1,2]", "0 to 9");
    assert_null(wb_take(table, y));
    out_of_range(code(), "9", "[1,0]", "0 to 4");
    assert_null(wb_call(wb_Embedding(50, 3), wb_from(wide, WB_I64, 1, (int64_t[]){2})));
    out_of_range(code(), "70", "[1]", "0 to 49");
    assert_null(wb_take(table, wb_from(small, WB_U8, 1, (int64_t[]){2})));
    out_of_range(code(), "200", "[1]", "0 to 4");
    assert_non_null(wb_take(table, wb_maximum(wb_minimum(y, wb_scalar(4)), wb_scalar(0))));
    assert_non_null(wb_onehotbatch(wb_arange(4, WB_I32), 4));
    /* looking at an index that is still to be computed takes nothing from what is being built */
    wb_tensor *v = wb_variable(wb_ones(2)), *before = wb_exp(v), *use = wb_sum(before);
    wb_assign(v, wb_zeros(2));
    assert_non_null(wb_take(table, wb_add(wb_arange(3, WB_I32), wb_scalar(1))));
    assert_true(fabs(wb_at(wb_gradient(use, v), 0) - exp(1)) < 1e-6 && wb_at(before, 1) > 2.7);
    assert_true(wb_at(v, 0) == 0);
    wb_shutdown();
}

int main(void)
{
    setenv("WEBER_DEBUG", "check", 1);          /* before anything asks for it */
    return run_all_cases();
}
