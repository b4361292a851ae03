/* Fault injection.  A program builds a small model of convolution, batch norm and dense layers,
 * makes two training steps, saves and loads; its n-th allocation fails, for every n.  Likewise the
 * n-th call that reads or writes a file.  After each fault: no crash, a message, no memory held
 * after wb_shutdown, and the repeated call gives the numbers of a run without faults.
 *
 *   faults [--count N]     at most N values of n, evenly spread (WEBER_TEST_ALL: all of them) */
#include "reference.h"

#include "engine/tensor.h"
#include "base/files/file.h"
#include "weber/train.h"

#include <unistd.h>

static char path[64];

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_logitcrossentropy(wb_call(m, b.x), b.y);
}

static wb_layer *make_model(void)
{
    return wb_Chain(wb_Conv(1, 2, {3}, wb_relu), wb_BatchNorm(2), wb_MaxPool({2}), wb_Flatten(),
                    wb_Dense(8, 3));
}

static int one_step(wb_layer *m, wb_opt_state *o, int number)
{
    float x[4 * 36], y[12] = {0};
    int status = 1;
    wb_tree *g = NULL;
    wb_scope *s = wb_scope_open();
    if (!s) return 1;
    for (int i = 0; i < 4 * 36; i++) x[i] = sinf((float)(i * (number + 1)));
    for (int i = 0; i < 4; i++) y[3 * i + (i + number) % 3] = 1;
    wb_batch b = {.x = wb_from(x, WB_F32, 4, (int64_t[]){4, 1, 6, 6}),
                  .y = wb_from(y, WB_F32, 2, (int64_t[]){4, 3}),
                  .n = 4};
    if (b.x && b.y && wb_withgradient(loss_of, m, b, &g)) status = wb_update(o, m, g);
    int closed = wb_scope_close(s);
    return status ? status : closed;
}

static int sum_up(wb_tensor *x, const char *name, void *ctx)
{
    array v = values_of(x);
    for (int64_t i = 0; i < v.size; i++)
        *(double *)ctx = *(double *)ctx * 1.0000001 + v.at[i] * (double)(1 + i % 7);
    return 0;
}

/* A number computed from all parameters.  Running statistics are left out: they change with each
 * forward pass, and a step that failed after its forward pass is repeated. */
static double digest(wb_layer *m)
{
    double sum = 0;
    if (wb_each_parameter(m, sum_up, &sum)) fail_msg("%s", wb_error());
    return sum;
}

typedef struct { double first, second; int failures; } outcome;

/* Each call that may fail is repeated if it failed, and must then succeed. */
static outcome scenario(bool with_faults)
{
    outcome out = {0};
    wb_scope *s = wb_scope_open();
    if (!s && with_faults) s = wb_scope_open();
    wb_seed(6);
    wb_layer *m = make_model(), *loaded;
    if (!m) {
        out.failures++;
        wb_seed(6);
        if (!(m = make_model())) fail_msg("the model: %s", wb_error());
    }
    wb_opt_state *o = wb_setup(wb_Adam(), m);
    if (!o && ++out.failures && !(o = wb_setup(wb_Adam(), m)))
        fail_msg("the state: %s", wb_error());
    for (int i = 0; i < 2; i++) {
        if (!one_step(m, o, i)) continue;
        out.failures++;
        if (!wb_error()[0]) fail_msg("a step failed without a message");
        /* The step computed everything before it wrote a parameter, so the model is unchanged and
         * the step can be repeated. */
        if (one_step(m, o, i)) fail_msg("step %d after a failure: %s", i, wb_error());
    }
    if (wb_save(path, m)) {
        out.failures++;
        if (wb_save(path, m)) fail_msg("saving after a failure: %s", wb_error());
    }
    if (!(loaded = wb_load(path))) {
        out.failures++;
        if (!(loaded = wb_load(path))) fail_msg("loading after a failure: %s", wb_error());
    }
    wb__alloc_fail_at(0);
    wb__io_fail_at(0);
    out.first = digest(m);
    out.second = digest(loaded);
    wb_scope_close(s);
    wb_shutdown();
    ref_forget();
    wb_clear_error();
    return out;
}

static void every_n(const char *what, void (*fail_at)(int64_t n), int64_t (*count)(void))
{
    outcome plain = scenario(false);
    if (getenv("FAULT_AT")) fail_at(atol(getenv("FAULT_AT"))), scenario(true);
    fail_at(INT64_MAX);
    scenario(false);
    int64_t base = wb_memory_used(), n = 0,
            most = option_count               ? option_count
                   : getenv("WEBER_TEST_ALL") ? INT64_MAX
                                              : 4000;
    fail_at(INT64_MAX);
    int64_t all = 0;
    { /* all: the first n at which nothing fails, by binary search.  No counter can be read instead:
         scenario() ends the injection. */
        (void)count;
        int64_t low = 1, high = 1 << 20;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            fail_at(middle);
            if (scenario(true).failures) low = middle + 1;
            else high = middle;
        }
        all = low;
    }
    int64_t stride = all / most + 1;
    for (n = 1 + draw_int(0, stride - 1); n <= all; n += stride) {
        fail_at(n);
        outcome now = scenario(true);
        if (now.first != plain.first || now.second != plain.second)
            fail_msg(
                "%s %lld of %lld fails: the model became %.12g (undisturbed %.12g), the file %.12g",
                what, (long long)n, (long long)all, now.first, plain.first, now.second);
        if (wb_memory_used() > base)
            fail_msg("%s %lld of %lld fails: %lld bytes are left, undisturbed %lld", what,
                     (long long)n, (long long)all, (long long)wb_memory_used(), (long long)base);
    }
    print_message("%s: %lld cases\n", what, (long long)all);
}

TEST(allocations)
{
    every_n("allocation", wb__alloc_fail_at, wb__alloc_count);
}

TEST(files)
{
    every_n("file call", wb__io_fail_at, NULL);
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    snprintf(path, sizeof path, "/tmp/weber-faults-%ld.safetensors", (long)getpid());
    wb_set_threads(1);
    int failed = run_all_cases();
    unlink(path);
    return failed;
}
