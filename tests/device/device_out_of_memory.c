/* An evaluation that needs more memory than the device has fails before anything runs, and the
 * program can continue: on a device that reports its memory, and on OpenCL with a limit. */
#include "far_device.h"
#include "reference.h"

#include "engine/request.h"

enum { MIB = 1 << 20, LIMIT = 24 * MIB };

static const wb_device *places[2];
static int n_places;

static int64_t used(const wb_device *d)
{
    wb_device_memory m;
    if (wb_device_memory_of(d, &m)) fail_msg("%s", wb_error());
    return m.used;
}

/* Two products of x [rows, 256], whose results are both in memory until the end. */
static wb_tensor *large(wb_tensor *x, wb_tensor *w)
{
    wb_tensor *a = wb_matmul(x, w), *b = wb_matmul(a, w);
    return wb_add(wb_matmul(wb_tanh(b), w), wb_mul(a, b));
}

/* On a device that limits the buffers of a kernel, plans have kernels of fewer buffers, also where
 * a value would be computed inside the kernel of its reader. */
TEST(kernels_of_few_buffers)
{
    enum { LEAVES = 70 };
    static const int most[] = {40, 10, 4};
    for (size_t i = 0; i < WB__COUNT(most); i++) IN_SCOPE {
        wb_set_default_device(far_device());
        wb_tensor *leaves[LEAVES];
        for (int k = 0; k < LEAVES; k++)
            leaves[k] = wb_variable(wb_full_array(k + 1, WB_F32, 1, (int64_t[]){5}));
        assert_int_equal(wb_eval_array(LEAVES, leaves), 0);
        wb_tensor *chain = leaves[0], *pairs = wb_zeros(5);
        for (int k = 1; k < LEAVES; k++) chain = wb_add(chain, leaves[k]);
        for (int k = 1; k < LEAVES; k++)
            pairs = wb_maximum(pairs, wb_mul(leaves[k - 1], leaves[k]));
        far_views(most[i]);
        const int status = wb_eval(chain, pairs);
        far_views(0);
        if (status) fail_msg("at most %d views: %s", most[i], wb_error());
        assert_true(wb_at(chain, 4) == LEAVES * (LEAVES + 1) / 2);
        assert_true(wb_at(pairs, 4) == LEAVES * (LEAVES - 1));
        wb_set_default_device(NULL);
    }
}

TEST(too_large_is_refused)
{
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        const wb_device *d = places[i];
        wb_set_default_device(d);
        wb_tensor *w = wb_variable(wb_zeros(256, 256)), *x = wb_zeros(12288, 256);   /* 12 MiB */
        if (wb_eval(w, x)) fail_msg("%s", wb_error());
        wb__cache_clear();                                  /* frees other plans' arenas */
        const int64_t before = used(d), steps = wb_stats().steps;
        far_forget();
        wb_scope *inner = wb_scope_open();
        wb_tensor *y = large(x, w);
        assert_int_equal(wb_assign(w, wb_add(w, wb_scalar(1))), 0);
        FAILS(wb_eval(y), WB_ERROR_MEMORY, "MiB", "evaluation", "parameters", "inputs", "12.2");
        assert_int_equal(wb_stats().steps, steps);          /* nothing ran or was allocated */
        assert_int_equal(used(d), before);
        assert_int_equal(far_count().launches, 0);
        wb_clear_error();
        assert_true(wb_at(w, 3, 3) == 0);                   /* the assignment was undone */
        assert_int_equal(wb_scope_close(inner), 0);
        wb_tensor *part = large(wb_slice(x, 0, 0, 64), w);
        if (wb_eval(part)) fail_msg("%s", wb_error());
        assert_int_equal(wb_assign(w, wb_add(w, wb_scalar(1))), 0);
        assert_true(wb_at(w, 3, 3) == 1);
        wb_set_default_device(NULL);
    }
}

static int recorded(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = large(in[0], ctx);
    return out[0] ? 1 : -1;
}

TEST(recordings_too)
{
    for (int i = 0; i < n_places; i++) IN_SCOPE {
        const wb_device *d = places[i];
        wb_set_default_device(d);
        wb_tensor *w = wb_variable(wb_zeros(256, 256)), *x = wb_zeros(12288, 256), *y;
        wb_tensor *few = wb_zeros(16, 256);
        if (wb_eval(w, x, few)) fail_msg("%s", wb_error());
        wb_compiled *c = wb_compile(recorded, w);
        FAILS(wb_call_compiled(c, 1, &x, 1, &y), WB_ERROR_MEMORY, "MiB", "evaluation");
        wb_clear_error();
        if (wb_call_compiled(c, 1, &few, 1, &y)) fail_msg("%s", wb_error());
        assert_true(wb_at(y, 15, 255) == 0);
        wb_set_default_device(NULL);
    }
}

/* An idle arena counts as free memory for a plan that needs nearly all memory. */
TEST_IN_SCOPE(idle_arenas_count)
{
    const wb_device *d = far_device();
    wb__cache_clear();
    wb_set_default_device(d);
    wb_tensor *w = wb_variable(wb_zeros(256, 256)), *x = wb_zeros(4096, 256);
    if (wb_eval(w, x, large(wb_slice(x, 0, 0, 2048), w))) fail_msg("%s", wb_error());
    const int64_t idle = wb_stats().arena_bytes;
    assert_true(idle > 2 * MIB);
    wb_scope *inner = wb_scope_open();
    wb_tensor *z = large(wb_slice(x, 0, 0, 2112), w);
    wb_memory need;
    assert_int_equal(wb_estimate_memory(1, &z, &need), 0);
    assert_true(need.arena + need.outputs > idle);
    far_limit(far_held() - idle + need.arena + need.outputs);
    if (wb_eval(z)) fail_msg("%s", wb_error());
    assert_int_equal(wb_scope_close(inner), 0);
    wb_tensor *more = large(wb_slice(x, 0, 0, 2400), w);
    assert_int_equal(wb_eval(more), WB_ERROR_MEMORY);
    wb_clear_error();
    far_limit(LIMIT);
    wb_set_default_device(NULL);
}

int main(void)
{
    char text[32];
    snprintf(text, sizeof text, "%d", LIMIT);
    setenv("WEBER_MEMORY_LIMIT", text, 1);
    far_limit(LIMIT);
    places[n_places++] = far_device();
    if (!wb_using("OpenCL") && wb_functional("OpenCL"))
        places[n_places++] = wb_device_at("OpenCL", 0);
    else print_message("without OpenCL, since: %s\n", wb_why_not("OpenCL"));
    wb_clear_error();
    wb_allow_scalar(true);
    return run_all_cases();
}
