/* States that are divided over the ranks, wb_DistributedOptimizer(rule, .shard = true), on several
 * numbers of ranks.  Each rank runs all cases; the output is that of rank 0. */
#include "rank_cases.h"

#include "process.h"

#include "backend/backend.h"
#include "engine/request.h"

#include <sys/stat.h>
#include <unistd.h>

#ifdef WB_TEST_NCCL
enum { BLOCK = 512 };
#else
enum { BLOCK = 64 };
#endif

/* ---- training -------------------------------------------------------------------------------- */

enum { DESCENT, MOMENTUM, ADAM, ADAMW, AMSGRAD, CLIPPED, TWICE, RULES };

static wb_rule *rule_of(int kind)
{
    switch (kind) {
    case DESCENT: return wb_Descent(0.05);
    case MOMENTUM: return wb_Momentum(0.01);
    case ADAM: return wb_Adam(0.01);
    case ADAMW: return wb_AdamW(0.01, .lambda = 0.1);
    case AMSGRAD: return wb_AMSGrad(0.01, .eps = 0.125);
    case CLIPPED: return wb_OptimizerChain(wb_ClipNorm(.omega = 0.05), wb_Momentum(0.05));
    default:
        return wb_OptimizerChain(wb_ClipNorm(.omega = 0.5), wb_WeightDecay(.lambda = 0.01),
                                 wb_Adam(0.01), wb_ClipNorm(.omega = 0.02));
    }
}

/* Parameters of 320, 40, 1320, 33, 33 and 1 elements: not all can be divided equally, and one has
 * fewer elements than there are ranks. */
static wb_layer *model_of(uint64_t seed)
{
    wb_seed(seed);
    return wb_Chain(wb_Dense(8, 40, wb_relu), wb_Dense(40, 33, wb_tanh), wb_Dense(33, 1));
}

static const char *const paths[] = {"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                    "layers.1.bias", "layers.2.weight", "layers.2.bias"};
enum { PATHS = sizeof paths / sizeof *paths };

static wb_opt_state *state_of(int kind, wb_layer *m, bool shard, wb_dtype mixed)
{
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(rule_of(kind), .bucket = 3000,
                                                       .shard = shard), m, .mixed = mixed);
    if (!s) fail_msg("%s", wb_error());
    return s;
}

/* The loss; *grads are those of the scaled loss, if the state is mixed in f16. */
static wb_tensor *scaled_loss(wb_layer *m, wb_opt_state *s, wb_batch b, wb_tree **grads)
{
    wb_trainmode(m);
    wb_tensor *loss = mse_loss(m, b, NULL);
    *grads = loss ? wb_gradient(wb_scale_loss(s, loss), m) : NULL;
    return *grads ? loss : NULL;
}

/* Batch k of this rank. */
static wb_batch batch_of(int k)
{
    wb_seed((uint64_t)(1000 * k + rank));
    return (wb_batch){.x = wb_randn(16, 8), .y = wb_randn(16, 1), .n = 16, .index = k};
}

/* Updates the model for a batch.  Returns the loss. */
static double update_by(wb_layer *m, wb_opt_state *s, wb_batch b)
{
    wb_tree *grads;
    wb_tensor *loss = scaled_loss(m, s, b, &grads);
    if (!loss || wb_update(s, m, grads)) fail_msg("rank %d: %s", rank, wb_error());
    return wb_item(loss);
}

static double update(wb_layer *m, wb_opt_state *s, int k) { return update_by(m, s, batch_of(k)); }

/* The largest difference between the parameters of two models, as a part of the largest one. */
static double apart(wb_layer *a, wb_layer *b)
{
    double most = 0;
    for (int i = 0; i < PATHS; i++) {
        wb_tensor *x = wb_astype(wb_get(a, paths[i]), WB_F32);
        wb_tensor *y = wb_astype(wb_get(b, paths[i]), WB_F32);
        const double d = wb_item(wb_max(wb_abs(wb_sub(x, y))));
        const double by = wb_item(wb_max(wb_abs(x)));
        most = fmax(most, d / fmax(by, 1e-3));
    }
    return most;
}

static void train_alike(int kind, wb_dtype mixed, double tolerance)
{
    wb_scope *s = wb_scope_open();
    wb_layer *a = model_of(1), *b = model_of(1);
    wb_opt_state *whole = state_of(kind, a, false, mixed);
    wb_opt_state *divided = state_of(kind, b, true, mixed);
    for (int k = 0; k < 5; k++) {
        const double x = update(a, whole, k), y = update(b, divided, k);
        if (!(fabs(x - y) <= tolerance * fmax(fabs(x), 1)))
            fail_msg("rank %d of %d, rule %d, step %d: loss %.9g, not %.9g", rank, size, kind, k,
                     y, x);
    }
    const double most = apart(a, b);
    if (!(most <= tolerance))
        fail_msg("rank %d of %d, rule %d: parameters %g apart", rank, size, kind, most);
    expect_alike(b);
    WORKS(wb_scope_close(s));
}

TEST(training_as_with_a_whole_state)
{
    for (int kind = 0; kind < RULES; kind++) train_alike(kind, WB_DTYPE_DEFAULT, 2e-6);
}

/* The parameters are rounded to halves; the masters differ in the last bits of f32. */
TEST(training_in_mixed_precision)
{
    train_alike(ADAM, WB_BF16, 0.01);
    train_alike(ADAMW, WB_BF16, 0.01);
    train_alike(TWICE, WB_BF16, 0.01);
    train_alike(MOMENTUM, WB_F16, 0.002);
    train_alike(ADAM, WB_F16, 0.002);
    train_alike(CLIPPED, WB_F16, 0.002);
}

/* With one rank a state with .shard is whole, and the bits are those without .shard. */
TEST_IN_SCOPE(one_rank_is_not_divided)
{
    if (size > 1) return;
    wb_layer *a = model_of(1), *b = model_of(1);
    wb_opt_state *x = state_of(ADAM, a, false, WB_DTYPE_DEFAULT);
    wb_opt_state *y = state_of(ADAM, b, true, WB_DTYPE_DEFAULT);
    for (int k = 0; k < 3; k++) assert_true(update(a, x, k) == update(b, y, k));
    assert_true(apart(a, b) == 0);
}

/* ---- unusual parameters ---------------------------------------------------------------------- */

/* A tied weight [5, 5], its bias, an f64 parameter, and one that the loss does not use. */
static wb_tree *odd_model(void)
{
    wb_seed(4);
    wb_tensor *w = wb_variable(wb_randn(5, 5)), *bias = wb_variable(wb_randn(5));
    wb_tensor *wide = wb_variable(wb_astype(wb_randn(3), WB_F64));
    wb_tensor *unused = wb_variable(wb_randn(7));
    static const char *const names[] = {"again", "weight", "bias", "wide", "unused"};
    return wb_named_tuple(5, names, (void *[]){w, w, bias, wide, unused});
}

static void update_odd(wb_tree *m, wb_opt_state *s, int k)
{
    wb_seed((uint64_t)(10 * k + rank));
    wb_tensor *w = wb_get(m, "weight");
    wb_tensor *b = wb_get(m, "bias"), *wide = wb_get(m, "wide");
    wb_tensor *y = wb_matmul(wb_tanh(wb_matmul(wb_randn(8, 5), w)), wb_transpose(w));
    wb_tensor *loss = wb_add(wb_mean(wb_square(wb_add(y, b))),
                             wb_astype(wb_mean(wb_square(wide)), WB_F32));
    wb_tree *grads = wb_gradient(loss, m);
    if (!grads || wb_update(s, m, grads) || wb_eval(loss))
        fail_msg("rank %d: %s", rank, wb_error());
}

/* Frozen from step 3 on, and thawed in step 6: the bias. */
static void train_odd(wb_rule *rule, bool norm)
{
    wb_tree *m[2];
    for (int i = 0; i < 2; i++) {
        m[i] = odd_model();
        wb_opt_state *s = wb_setup(wb_DistributedOptimizer(rule, .bucket = 90, .shard = i > 0),
                                   m[i]);
        if (!s) fail_msg("%s", wb_error());
        for (int k = 0; k < 8; k++) {
            if (k == 3) WORKS(wb_freeze(s, "bias"));
            if (k == 4) WORKS(wb_adjust(s, .eta = 0.03));
            if (k == 6) WORKS(wb_thaw(s, "bias"));
            update_odd(m[i], s, k);
        }
    }
    static const char *const all[] = {"weight", "bias", "wide", "unused"};
    for (int i = 0; i < 4; i++) {
        wb_tensor *x = wb_get(m[0], all[i]);
        wb_tensor *y = wb_get(m[1], all[i]);
        assert_int_equal(wb_dtype_of(x), wb_dtype_of(y));
        const double d = wb_item(wb_max(wb_abs(wb_sub(x, y))));
        if (!(d <= (wb_dtype_of(x) == WB_F64 && !norm ? 1e-12 : 5e-6)))
            fail_msg("rank %d of %d: %s is %g apart", rank, size, all[i], d);
    }
}

TEST_IN_SCOPE(tied_and_frozen_and_unused_and_f64_parameters)
{
    train_odd(wb_Adam(0.01), false);
    train_odd(wb_OptimizerChain(wb_ClipNorm(.omega = 0.5), wb_Momentum(0.01)), true);
}

/* A gradient that is not finite on one rank, in its part of one parameter: no rank updates, and the
 * loss scale is halved on all. */
TEST_IN_SCOPE(a_gradient_that_is_not_finite_in_f16)
{
    wb_layer *m = model_of(2);
    wb_opt_state *s = state_of(ADAM, m, true, WB_F16);
    update(m, s, 0);
    wb_tensor *before = wb_mul(wb_get(m, "layers.0.weight"), wb_scalar(1));
    WORKS(wb_eval(before));
    wb_tensor *scale = wb_scale_loss(s, wb_scalar(1));
    const double was = wb_item(scale);
    const float big = rank == size - 1 ? 1e5f : 1;
    const wb_batch b = {.x = wb_full(big, 4, 8), .y = wb_full(1, 4, 1), .n = 4, .index = 1};
    wb_tree *grads;
    wb_tensor *loss = scaled_loss(m, s, b, &grads);
    WORKS(wb_update(s, m, grads));
    WORKS(wb_eval(loss));
    assert_true(wb_item(wb_scale_loss(s, wb_scalar(1))) == was / 2);
    assert_true(wb_item(wb_max(wb_abs(wb_sub(before, wb_get(m, "layers.0.weight"))))) == 0);
}

/* The loss of one rank is NaN: no rank updates its model or its moments. */
TEST_IN_SCOPE(a_loss_that_is_not_finite)
{
    wb_layer *m = model_of(3), *same = model_of(3);
    wb_opt_state *s = state_of(ADAM, m, true, WB_DTYPE_DEFAULT);
    wb_opt_state *other = state_of(ADAM, same, true, WB_DTYPE_DEFAULT);
    const wb_batch b = {.x = wb_full(rank == size - 1 ? NAN : 1, 4, 8), .y = wb_zeros(4, 1),
                        .n = 4};
    wb_tree *grads;
    wb_tensor *loss = wb_withgradient(mse_loss, m, b, &grads);
    WORKS(wb_update(s, m, grads));
    assert_int_equal(wb_eval(loss), WB_ERROR_NUMBER);
    wb_clear_error();
    for (int k = 0; k < 3; k++) {
        update(m, s, k);
        update(same, other, k);
    }
    assert_true(apart(m, same) == 0);
}

/* ---- other ways to update -------------------------------------------------------------------- */

TEST_IN_SCOPE(a_compiled_step)
{
    trained r[2];
    for (int i = 0; i < 2; i++) {
        r[i].model = model_of(5);
        r[i].state = state_of(TWICE, r[i].model, true, WB_DTYPE_DEFAULT);
    }
    wb_compiled *c = wb_compile(train_step, &r[0]);
    for (int i = 0; i < 6; i++) {
        wb_seed((uint64_t)(100 * i + rank));
        wb_tensor *in[] = {wb_randn(16, 8), wb_randn(16, 1)}, *a, *b;
        WORKS(wb_eval_array(2, in));
        WORKS(wb_call_compiled(c, 2, in, 1, &a));
        assert_int_equal(train_step(in, &b, &r[1]), 1);
        assert_true(wb_item(a) == wb_item(b));
    }
    assert_true(apart(r[0].model, r[1].model) == 0);
    expect_alike(r[0].model);
}

TEST_IN_SCOPE(updates_that_make_a_new_model)
{
    wb_layer *a = model_of(6), *b = model_of(6);
    wb_opt_state *x = state_of(ADAM, a, true, WB_DTYPE_DEFAULT);
    wb_opt_state *y = state_of(ADAM, b, true, WB_DTYPE_DEFAULT);
    for (int k = 0; k < 3; k++) {
        update(a, x, k);
        const wb_batch batch = batch_of(k);
        wb_tree *grads;
        if (!wb_withgradient(mse_loss, b, batch, &grads)) fail_msg("%s", wb_error());
        b = wb_update_new(y, b, grads);
        if (!b) fail_msg("%s", wb_error());
    }
    assert_true(apart(a, b) == 0);
}

enum { TOGETHER = 3 };                  /* batches of one step */

static wb_layer *accumulate(int kind, bool shard)
{
    wb_layer *m = model_of(7);
    wb_opt_state *s = wb_setup(wb_DistributedOptimizer(rule_of(kind), .bucket = 3000,
                                                       .accumulate = TOGETHER, .shard = shard), m);
    for (int k = 0; k < 3 * TOGETHER; k++) {
        wb_tensor *before = wb_mul(wb_get(m, paths[2]), wb_scalar(1));
        WORKS(wb_eval(before));
        update(m, s, k);
        wb_tensor *moved = wb_max(wb_abs(wb_sub(wb_get(m, paths[2]), before)));
        assert_true((wb_item(moved) > 0) == (k % TOGETHER == TOGETHER - 1));
    }
    return m;
}

/* The same steps without .accumulate: the batches of a step are one. */
static wb_layer *train_at_once(int kind)
{
    wb_layer *m = model_of(7);
    wb_opt_state *s = state_of(kind, m, false, WB_DTYPE_DEFAULT);
    for (int k = 0; k < 3 * TOGETHER; k += TOGETHER) {
        wb_tensor *x[TOGETHER], *y[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            const wb_batch b = batch_of(k + i);
            x[i] = b.x;
            y[i] = b.y;
        }
        const wb_batch all = {.x = wb_concat_array(0, TOGETHER, x),
                              .y = wb_concat_array(0, TOGETHER, y), .n = 16 * TOGETHER,
                              .index = k};
        update_by(m, s, all);
    }
    return m;
}

/* The sums of .accumulate stay whole; the parts of the mean of the batches are scattered at once.
 * Only Descent shows a constant factor. */
TEST_IN_SCOPE(accumulated_gradients)
{
    static const int kinds[] = {TWICE, DESCENT};
    for (int i = 0; i < 2; i++) {
        wb_layer *whole = accumulate(kinds[i], false), *divided = accumulate(kinds[i], true);
        wb_layer *once = train_at_once(kinds[i]);
        assert_true(apart(whole, divided) < 2e-6);
        if (!(apart(once, divided) < 1e-5))
            fail_msg("rank %d, rule %d: %g apart", rank, kinds[i], apart(once, divided));
        expect_alike(divided);
    }
}

/* ---- states ---------------------------------------------------------------------------------- */

TEST_IN_SCOPE(a_state_that_is_moved_and_printed)
{
    wb_layer *a = model_of(8), *b = model_of(8);
    wb_opt_state *x = state_of(ADAM, a, true, WB_DTYPE_DEFAULT);
    wb_opt_state *y = state_of(ADAM, b, true, WB_DTYPE_DEFAULT);
    for (int k = 0; k < 4; k++) {
        if (k == 2) {
            const wb_device *other = &wb__cpu_devices[1];
            y = wb_to(y, other);
            b = wb_to(b, other);
            if (!y || !b) fail_msg("%s", wb_error());
            y = wb_to(y, wb_device_of(a));
            b = wb_to(b, wb_device_of(a));
        }
        update(a, x, k);
        update(b, y, k);
    }
    assert_true(apart(a, b) == 0);
    char *text = wb_object_format(y);
    assert_non_null(text);
    assert_non_null(strstr(text, "shard=true)"));
    assert_non_null(strstr(text, "[33,40] f32, 2 moments, 4 steps"));
    wb_free_text(text);
}

static wb_layer *early_model;           /* made before the ranks are connected */
static wb_opt_state *early_state;

TEST_IN_SCOPE(a_state_from_before_the_ranks)
{
    const wb_device *was = wb_default_device();
    wb_set_default_device(wb_device_of(early_model));
    const wb_batch b = {.x = wb_randn(4, 8), .y = wb_randn(4, 1), .n = 4};
    wb_tree *grads;
    if (size == 1) {
        update(early_model, early_state, 0);
    } else {
        if (!scaled_loss(early_model, early_state, b, &grads)) fail_msg("%s", wb_error());
        FAILS(wb_update(early_state, early_model, grads), WB_ERROR_ARGUMENT, "update",
              "divided the state over 1 rank", "call wb_setup after");
    }
    wb_set_default_device(was);
    wb_clear_error();
}

/* The ranks get rank 0's hyperparameters and what is frozen, and keep their moments. */
TEST_IN_SCOPE(synchronising_a_state)
{
    wb_layer *m = model_of(9);
    wb_opt_state *s = state_of(ADAM, m, true, WB_DTYPE_DEFAULT);
    for (int k = 0; k < 2; k++) update(m, s, k);
    if (rank == 0) {
        WORKS(wb_adjust(s, .eta = 0.125));
        WORKS(wb_freeze(s, "layers.1"));
    }
    WORKS(wb_distributed_synchronize(s));
    char *text = wb_object_format(s);
    assert_true(text && strstr(text, "eta=0.125") && strstr(text, "frozen"));
    wb_free_text(text);
    WORKS(wb_thaw(s, "layers.1"));
    update(m, s, 3);
    expect_alike(m);
}

/* ---- files ----------------------------------------------------------------------------------- */

static char files[60];                  /* a folder, the same on all ranks; main removes it */

static void make_files(void)
{
    wb_tensor *id = wb_distributed_broadcast(wb_scalar((double)(getpid() % 1000000)), 0);
    if (!id) fail_msg("rank %d: %s", rank, wb_error());
    snprintf(files, sizeof files, "/tmp/weber-test-shard-%d", (int)wb_item(id));
    if (!rank) {
        process_remove(files);          /* of a process that was killed */
        assert_int_equal(mkdir(files, 0700), 0);
    }
    WORKS(wb_distributed_barrier());
}

static const char *file(const char *name)
{
    static char path[120];
    if (!*files) make_files();
    snprintf(path, sizeof path, "%s/%s", files, name);
    return path;
}

/* A checkpoint has whole moments: a whole state continues from it like the divided one, and a
 * divided one from the file of a whole one. */
static void go_on_from_file(wb_dtype mixed)
{
    wb_layer *m[4];
    wb_opt_state *s[4];
    for (int i = 0; i < 4; i++) {
        m[i] = model_of(11);
        s[i] = state_of(TWICE, m[i], i % 2, mixed);
    }
    for (int k = 0; k < 3; k++) update(m[0], s[0], k);
    for (int k = 0; k < 3; k++) update(m[1], s[1], k);
    for (int i = 0; i < 2; i++) {
        const char *path = file("moments");
        wb_checkpoint c = {.model = m[i], .state = s[i], .epoch = 3};
        if (i || !rank) WORKS(wb_save_checkpoint(path, &c));
        WORKS(wb_distributed_barrier());
        wb_checkpoint to = {.model = m[3 - i], .state = s[3 - i]};
        WORKS(wb_load_checkpoint(path, &to));
        assert_int_equal(to.epoch, 3);
        WORKS(wb_distributed_synchronize(s[3 - i]));
        WORKS(wb_distributed_barrier());
    }
    for (int k = 3; k < 6; k++)
        for (int i = 0; i < 4; i++) update(m[i], s[i], k);
    for (int i = 1; i < 4; i++) {
        const double most = apart(m[0], m[i]);
        if (!(most < (mixed ? 0.01 : 4e-6))) fail_msg("rank %d, %d: %g apart", rank, i, most);
    }
}

TEST_IN_SCOPE(checkpoints_of_divided_states)
{
    go_on_from_file(WB_DTYPE_DEFAULT);
    go_on_from_file(WB_BF16);
}

/* Rank 0 alone loads a divided state: the other ranks have no moments for it. */
TEST_IN_SCOPE(a_checkpoint_that_one_rank_loads)
{
    if (size == 1) return;
    wb_layer *m = model_of(12);
    wb_opt_state *s = state_of(ADAM, m, true, WB_DTYPE_DEFAULT);
    update(m, s, 0);
    const char *path = file("one");
    wb_checkpoint c = {.model = m, .state = s};
    WORKS(wb_save_checkpoint(path, &c));
    wb_opt_state *fresh = state_of(ADAM, m, true, WB_DTYPE_DEFAULT);
    wb_checkpoint to = {.model = m, .state = fresh};
    if (!rank) WORKS(wb_load_checkpoint(path, &to));
    REFUSED(!wb_distributed_synchronize(fresh), WB_ERROR_ARGUMENT, "distributed_synchronize",
            "all ranks must load");
}

/* wb_train into a folder: rank 0 has the files, and reads them for all.  The learning rate of the
 * checkpoint is that of all ranks. */
TEST_IN_SCOPE(a_training_that_goes_on_in_a_folder)
{
    char folder[140];
    snprintf(folder, sizeof folder, "%s-%d", file("folder"), rank);
    wb_layer *m[2];
    for (int i = 0; i < 2; i++) {
        for (int part = 0; part < 2; part++) {
            m[i] = model_of(13 + (uint64_t)part);
            wb_seed(6);
            wb_dataset *d = wb_dataset_of(wb_randn(8 * size, 8), wb_randn(8 * size, 1));
            wb_loader *l = wb_dataloader(wb_distributed_dataset(d), 4, true, .seed = 3);
            wb_opt_state *s = state_of(ADAM, m[i], true, WB_DTYPE_DEFAULT);
            if (part && i) WORKS(wb_adjust(s, .eta = 0.5));
            if (!i && !part) continue;
            if (!i) m[i] = model_of(13);
            if (!i) s = state_of(ADAM, m[i], true, WB_DTYPE_DEFAULT);
            wb_seed(1);
            WORKS(wb_train(mse_loss, m[i], l, s, .epochs = i && !part ? 2 : 4,
                           .folder = i ? folder : NULL, .resume = i > 0));
        }
        expect_alike(m[i]);
    }
    assert_true(apart(m[0], m[1]) == 0);
    assert_int_equal(access(folder, F_OK), rank ? -1 : 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Large enough that what is saved is more than the rounding of memory to blocks. */
enum { INPUTS = 64, HIDDEN = 256 };
static const int64_t sizes[] = {INPUTS * HIDDEN, HIDDEN, HIDDEN, 1};
enum { SIZES = sizeof sizes / sizeof *sizes, MOMENTS = 2 * SIZES };

/* The bytes that wb_estimate_memory counts as inputs of a step.  Its number for the arena is that
 * after the step. */
static int64_t step_on(wb_layer *m, wb_opt_state *s)
{
    wb_scope *scope = wb_scope_open();
    const wb_batch b = {.x = wb_randn(16, INPUTS), .y = wb_randn(16, 1), .n = 16, .index = 1};
    WORKS(wb_eval(b.x, b.y));
    wb_tree *grads;
    wb_memory need;
    wb_tensor *loss = scaled_loss(m, s, b, &grads);
    WORKS(wb_update(s, m, grads));
    wb__cache_clear();                  /* frees the arenas of other plans */
    WORKS(wb_estimate_memory(1, &loss, &need));
    WORKS(wb_eval(loss));
    assert_int_equal(wb_stats().arena_bytes, need.arena);
    WORKS(wb_scope_close(scope));
    return need.inputs;
}

/* Memory of the default device, without what is kept for reuse; blocks have a multiple of BLOCK
 * bytes. */
static int64_t used_now(void)
{
    const wb_device *d = wb_default_device();
    wb_device_memory m;
    wb_device_trim(d);
    if (!wb_device_is_gpu(d)) return wb_memory_used();
    WORKS(wb_device_memory_of(d, &m));
    return m.used;
}

/* What a state holds: *estimated as a part of a step, and, returned, of memory. */
static int64_t memory_of(bool shard, int64_t *estimated)
{
    int64_t used = 0, parameters = 4 * 16 * (INPUTS + 1);       /* and the batch */
    wb_layer *m = wb_Chain(wb_Dense(INPUTS, HIDDEN, wb_tanh), wb_Dense(HIDDEN, 1));
    for (int i = 0; i < SIZES; i++) parameters += 4 * sizes[i];
    for (int again = 0; again < 3; again++) {           /* then all plans exist */
        const int64_t before = used_now();
        wb_scope *scope = wb_scope_open();
        wb_opt_state *s = state_of(ADAM, m, shard, WB_DTYPE_DEFAULT);
        step_on(m, s);
        *estimated = step_on(m, s) - parameters;
        used = used_now() - before;
        WORKS(wb_scope_close(scope));
    }
    return used;
}

/* A state holds its moments, with 4 ranks a quarter of them, rounded up; wb_estimate_memory has the
 * same number, and the memory that is saved is that of the moments. */
TEST_IN_SCOPE(memory_of_a_rank)
{
    int64_t used[2], estimated[2], moments[2] = {0};
    for (int i = 0; i < SIZES; i++) {
        moments[0] += 2 * 4 * sizes[i];
        moments[1] += 2 * 4 * ((sizes[i] + size - 1) / size);
    }
    for (int i = 0; i < 2; i++) {
        used[i] = memory_of(i > 0, &estimated[i]);
        assert_int_equal(estimated[i], moments[i]);
    }
    /* Each moment is in a block of memory of its own, which may be an eighth larger. */
    const int64_t saved = moments[0] - moments[1], slack = moments[0] / 8 + MOMENTS * BLOCK;
    if (size > 1) assert_true(slack < saved / 2);
    if (llabs(used[0] - used[1] - saved) > slack)
        fail_msg("%lld bytes less, not %lld", (long long)(used[0] - used[1]), (long long)saved);
    for (int i = 0; i < 2; i++)
        if (used[i] < moments[i] || used[i] > moments[i] + slack)
            fail_msg("%lld bytes, not %lld", (long long)used[i], (long long)moments[i]);
}

int main(int argc, char **argv)
{
    setenv("WEBER_CPU_DEVICES", "2", 1);
    early_model = model_of(14);
    early_state = state_of(ADAM, early_model, true, WB_DTYPE_DEFAULT);
    if (!ranks_begin(connect_ranks(60))) return 1;
#ifdef WB_TEST_NCCL                     /* on the device of this rank */
    if (!use_own_gpu()) return 1;
#endif
    const int status = run_all_cases();
    if (!rank && *files) process_remove(files);
    return status;
}
