/* Calls that a function recorded by wb_compile must not make: each fails the recording, even if
 * the function ignores the failure. */
#include "recorded.h"

/* ---- calls that cannot be recorded ----------------------------------------------------------- */

static struct {
    wb_layer *model;
    wb_opt_state *state;
    wb_dataset *data, *mapped, *there;
    wb_progress *bar;
    wb_scope *scope;
    wb_tensor *kept;
} world;

static double nothing_to(wb_tensor *x, wb_tensor *y)
{
    return 0;
}
static double an_item(wb_tensor *x, wb_tensor *y) { return wb_item(wb_sum(x)) + (y != NULL); }
static double moves(wb_tensor *x, wb_tensor *y) { return wb_to(x, elsewhere()) == y; }
static double moves_model(wb_tensor *x, wb_tensor *y)
{
    return wb_to(world.model, elsewhere()) == NULL && x && y;
}
static double moves_state(wb_tensor *x, wb_tensor *y)
{
    return wb_to(world.state, elsewhere()) == NULL && x && y;
}
static double moves_dataset(wb_tensor *x, wb_tensor *y)
{
    return wb_to(world.data, elsewhere()) == NULL && x && y;
}
static double sets(wb_tensor *x, wb_tensor *y)
{
    return wb_set(world.model, "layers.0.weight", x) + (y != NULL);
}
static double ties(wb_tensor *x, wb_tensor *y)
{
    return wb_tie(world.model, "layers.1.weight", "layers.0.weight") + (x && y);
}
static double whole_dataset(wb_tensor *x, wb_tensor *y)
{
    return wb_dataset_x(world.mapped) == NULL && x && y;
}
static double whole_labels(wb_tensor *x, wb_tensor *y)
{
    return wb_dataset_y(world.mapped) == NULL && x && y;
}
static double whole_field(wb_tensor *x, wb_tensor *y)
{
    return wb_dataset_get(world.mapped, "x") == NULL && x && y;
}
static double joins(wb_tensor *x, wb_tensor *y)
{
    return wb_joinobs(world.there, world.there) == NULL && x && y;
}
static double splits(wb_tensor *x, wb_tensor *y)
{
    wb_dataset *parts[2];
    return wb_splitobs_array(world.data, 1, (double[]){0.5}, parts, .stratified = true) + (x && y);
}
static double folds(wb_tensor *x, wb_tensor *y)
{
    wb_dataset *parts[2];
    return wb_kfolds(world.data, 2, 0, parts, parts + 1, .stratified = true) + (x && y);
}
static double steps_bar(wb_tensor *x, wb_tensor *y)
{
    wb_progress_step(NULL, "loss", x);
    wb_progress_step(world.bar, "loss", x);
    return y != NULL;
}
static double ends_bar(wb_tensor *x, wb_tensor *y)
{
    wb_progress_end(NULL);
    wb_progress_end(world.bar);
    return x && y;
}
static double seeds(wb_tensor *x, wb_tensor *y)
{
    wb_seed(3);
    return x && y;
}
static double moves_default(wb_tensor *x, wb_tensor *y)
{
    wb_set_default_device(elsewhere());
    return x && y;
}
static double keeps(wb_tensor *x, wb_tensor *y) { return wb_keep(wb_neg(x)) == y; }
static double closes(wb_tensor *x, wb_tensor *y) { return wb_scope_close(world.scope) + (x && y); }
static double retains(wb_tensor *x, wb_tensor *y)
{
    world.kept = wb_retain(wb_add(x, y));
    return 0;
}

typedef double (*act)(wb_tensor *x, wb_tensor *y);
/* Calls that can be recorded in other cases, and some of those that never can: tests/duties.py
 * makes all of these. */
static const struct { const char *name; act act; } acts[] = {
    {"item:", an_item}, {"to:", moves}, {"to:", moves_model}, {"to:", moves_state},
    {"to:", moves_dataset}, {"set:", sets}, {"tie:", ties}, {"dataset_x:", whole_dataset},
    {"dataset_y:", whole_labels}, {"dataset_get:", whole_field}, {"joinobs:", joins},
    {"splitobs_array:", splits}, {"kfolds:", folds}, {"progress_step:", steps_bar},
    {"progress_end:", ends_bar}, {"seed:", seeds}, {"set_default_device:", moves_default},
    {"keep:", keeps}, {"scope_close:", closes}, {"outlives", retains}};
enum { ACTS = sizeof acts / sizeof *acts };

/* A recorded function that makes the call and ignores its failure and its result. */
static int with_act(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    const act *f = ctx;
    (*f)(in[0], in[1]);
    out[0] = wb_add(wb_mul(in[0], in[1]), wb_rand(2, 2));
    return 1;
}

static int doubled(wb_batch *b, void *ctx)
{
    b->x = wb_add(b->x, b->x);
    return b->x ? 0 : -1;
}

static void make_world(void)
{
    world.scope = wb_scope_open();
    world.model = wb_Chain(wb_Dense(2, 2), wb_Dense(2, 2));
    world.state = wb_setup(wb_Adam(), world.model);
    world.data = wb_dataset_of(wb_ones(4, 2), wb_ones(4));
    world.mapped = wb_mapobs(world.data, doubled, NULL);
    world.there = wb_to(world.data, elsewhere());
    world.bar = wb_progress_of(3, "test");
}

/* Each call fails the recording with its name and the cure in the message.  The failure leaves no
 * state behind: the next recording has the random numbers of a first one. */
TEST(unrecordable)
{
    make_world();
    wb_tensor *in[2] = {wb_full_array(2, WB_F32, 2, (int64_t[]){2, 2}), wb_ones(2, 2)}, *y;
    wb_seed(8);
    const double drawn = wb_at(wb_rand(2, 2), 1, 1);
    for (int i = 0; i < ACTS; i++) {
        wb_scope *s = wb_scope_open();
        act now = acts[i].act;
        const wb_device *device = wb_default_device();
        wb_compiled *c = wb_compile(with_act, &now);
        wb_seed(8);
        for (int again = 0; again < 2; again++) {
            wb_clear_error();
            const int status = wb_call_compiled(c, 2, in, 1, &y);
            const char *cure = i < ACTS - 1 ? "wb_call_compiled" : "result";
            const char *const *facts = FACTS(acts[i].name, cure);
            if (status != WB_ERROR_ARGUMENT || !failed_with(WB_ERROR_ARGUMENT, facts))
                fail_msg("%s gives %d, \"%s\"", acts[i].name, status, wb_error());
            if (world.kept) wb_release(world.kept);
            world.kept = NULL;
            assert_ptr_equal(wb_default_device(), device);
        }
        wb_clear_error();
        now = nothing_to;
        WORKS(wb_call_compiled(c, 2, in, 1, &y));
        if (wb_at(y, 1, 1) != 2 + drawn)
            fail_msg("after %s: %.9g for %.9g", acts[i].name, wb_at(y, 1, 1), 2 + drawn);
        WORKS(wb_scope_close(s));
    }
    assert_true(wb_at(wb_get(world.model, "layers.0.weight"), 0, 0) !=
                wb_at(wb_get(world.model, "layers.1.weight"), 0, 0));
    WORKS(wb_scope_close(world.scope));
}

/* The first failure within the function is reported, whatever it returns.  A failure before the
 * call does not count. */
static int reads_and_fails(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    if (wb_item(in[0]) > 0) return 0;
    out[0] = wb_matmul(in[0], wb_ones(3, 3));
    return *(int *)ctx;
}

static int takes_two(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    for (int i = 1; i < 9; i++) assert_null(in[i]);
    out[0] = wb_add(in[0], in[1]);
    return 1;
}

static int double_of(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_add(in[0], in[0]);
    return 1;
}

/* When the function returns, no graph contains the freed input, and a new tensor may get its
 * address. */
static int frees_its_input(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    wb_free(in[0]);
    out[0] = wb_mul(in[1], wb_borrow(ctx, WB_F32, 1, (int64_t[]){1}, NULL, NULL));
    return 1;
}

TEST_IN_SCOPE(inputs_may_be_freed)
{
    float seven = 7;
    wb_compiled *c = wb_compile(frees_its_input, &seven);
    for (int i = 0; i < 3; i++) {
        wb_tensor *in[2] = {wb_full_array(i, WB_F32, 1, (int64_t[]){1}), wb_ones(1)}, *y;
        WORKS(wb_call_compiled(c, 2, in, 1, &y));
        assert_true(wb_item(y) == 7 && wb_item(in[0]) == i);
    }
}

TEST_IN_SCOPE(errors_of_recordings)
{
    wb_tensor *x = wb_ones(1), *y;
    for (int returned = -1; returned < 2; returned++) {
        FAILS(wb_call_compiled(wb_compile(reads_and_fails, &returned), 1, &x, 0, NULL),
              WB_ERROR_ARGUMENT, "item");
    }
    REFUSED(wb_reshape_array(x, 1, (int64_t[]){7}), WB_ERROR_SHAPE, "reshape");
    assert_int_equal(wb_call_compiled(wb_compile(takes_two, NULL), 1, &x, 1, &y),
                     WB_ERROR_ARGUMENT);
    assert_null(strstr(wb_error(), "reshape"));
    FAILED(WB_ERROR_ARGUMENT, "NULL");
    assert_null(wb_reshape_array(x, 1, (int64_t[]){7}));
    WORKS(wb_call_compiled(wb_compile(double_of, NULL), 1, &x, 1, &y));
    FAILED(WB_ERROR_SHAPE, "reshape");     /* a call that succeeds does not clear the error */
    wb_clear_error();
}

/* ---- no memory ------------------------------------------------------------------------------- */

typedef struct {
    wb_layer *model;
    wb_tensor *before;
    wb_compiled *inner;
} parts;

static int all_of_it(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    const parts *p = ctx;
    wb_tensor *half;
    wb_trainmode(wb_layer_at(p->model, "layers.0"));
    if (wb_call_compiled(p->inner, 1, in, 1, &half)) return -1;
    wb_scope *s = wb_scope_open();
    if (!s) return -1;
    wb_tensor *y = wb_add(wb_call(p->model, half), wb_mul(p->before, in[1]));
    y = wb_keep(y);
    if (wb_scope_close(s)) return -1;
    out[0] = wb_sum(y);
    return 1;
}

/* Makes three calls and repeats those that fail; the n-th allocation fails.  Returns the number of
 * failures. */
static int calls_with(int64_t n, double seen[3])
{
    wb_scope *s = wb_scope_open();
    wb_seed(5);
    parts p = {.model = wb_Chain(wb_Dropout(.p = 0.5), wb_Dense(3, 3)),
               .inner = wb_compile(double_of, NULL)};
    wb_compiled *c = wb_compile(all_of_it, &p);
    wb_tensor *in[2] = {wb_ones(4, 3), NULL}, *y;
    WORKS(wb_eval(in[0], wb_get(p.model, "layers.1.weight")));
    int failures = 0;
    p.before = wb_exp(wb_rand(3));
    wb__alloc_fail_at(n);
    for (int i = 0; i < 3; i++) {
        do in[1] = wb_scalar(0.5 + i);
        while (!in[1]);
        wb_seed(10 + (uint64_t)i);
        int status = wb_call_compiled(c, 2, in, 1, &y);
        if (status) {
            failures++;
            assert_int_equal(status, WB_ERROR_MEMORY);
            assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
            wb_clear_error();
            wb_seed(10 + (uint64_t)i);
            WORKS(wb_call_compiled(c, 2, in, 1, &y));
        }
        while (wb_eval(y)) failures++;
        seen[i] = wb_item(y);
        if (i == 1) wb_automode(p.model);
    }
    wb__alloc_fail_at(0);
    WORKS(wb_scope_close(s));
    wb_clear_error();
    return failures;
}

TEST(no_memory)
{
    double plain[3], seen[3];
    int64_t n = 1, caught = 0;
    calls_with(0, plain);
    for (int64_t quiet = 0; quiet < 40; n++) {
        wb_set_plan_cache(0);           /* so that the plan is built again */
        wb_set_plan_cache(64);
        const int failures = calls_with(n, seen);
        caught += failures;
        quiet = failures ? 0 : quiet + 1;
        assert_memory_equal(plain, seen, sizeof plain);
    }
    print_message("%lld of %lld allocations failed\n", (long long)caught, (long long)n);
    assert_true(caught > 50);
}

int main(int argc, char **argv)
{
    setenv("WEBER_CPU_DEVICES", "2", 0);
    read_options(argc, argv);
    return run_all_cases();
}
