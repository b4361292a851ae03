/* A frozen part of a model costs only its forward pass: a step has as many kernels as a step
 * whose loss excludes the part with wb_stop_gradient. */
#include "test.h"

#include "engine/request.h"

enum { BATCH = 6, CLASSES = 3 };

/* ---- the number of kernels of the largest plan, which WEBER_DEBUG=plan logs ------------------ */

static int kernels;

static void log_line(wb_log_level level, const char *line, void *context)
{
    int n;
    if (sscanf(line, "plan: %d kernels", &n) == 1 && n > kernels) kernels = n;
}

/* ---- the model ------------------------------------------------------------------------------- */

static wb_layer *residual(void)
{
    wb_layer *inner = wb_Chain(
        wb_Conv(4, 4, {3, 3}, .pad = {1, 1}, .bias = false), wb_BatchNorm(4, wb_relu),
        wb_Conv(4, 4, {3, 3}, .pad = {1, 1}, .bias = false), wb_BatchNorm(4));
    return wb_Chain(wb_SkipConnection(inner, wb_add), wb_relu);
}

static wb_layer *model(void)
{
    wb_layer *body = wb_Chain(wb_Conv(1, 4, {3, 3}, .pad = {1, 1}, .bias = false),
                              wb_BatchNorm(4, wb_relu), residual(), residual(),
                              wb_GlobalMeanPool(), wb_Flatten(), wb_Dense(4, 4, wb_tanh));
    return wb_Chain(wb_named("body", body), wb_named("head", wb_Dense(4, CLASSES)));
}

typedef enum { ALL, CUT, FROZEN, MAPPED } variant;

static wb_tensor *loss(wb_layer *m, wb_batch b, void *ctx)
{
    wb_tensor *features = wb_call(wb_layer_at(m, "layers.body"), b.x);
    if (*(const variant *)ctx == CUT) features = wb_stop_gradient(features);
    return wb_logitcrossentropy(wb_call(wb_layer_at(m, "layers.head"), features), b.y);
}

static wb_batch batch(void)
{
    static float x[BATCH * 36], y[BATCH * CLASSES];
    for (int i = 0; i < BATCH * 36; i++) x[i] = (float)(i * 7 % 19) / 19 - 0.4f;
    for (int i = 0; i < BATCH; i++) y[i * CLASSES + i % CLASSES] = 1;
    return (wb_batch){.x = wb_from(x, WB_F32, 4, (int64_t[]){BATCH, 1, 6, 6}),
                      .y = wb_from(y, WB_F32, 2, (int64_t[]){BATCH, CLASSES}), .n = BATCH};
}

static wb_tensor *halved(wb_tensor *g, const char *path, void *ctx)
{
    return (void)path, (void)ctx, wb_is_none(g) ? g : wb_mul(g, wb_scalar(0.5));
}

/* ---- a step ---------------------------------------------------------------------------------- */

typedef struct {
    wb_layer *m;
    wb_opt_state *s;
    variant variant;
} subject;

static subject new_subject(wb_rule *rule, wb_dtype mixed, bool tied, variant how)
{
    wb_seed(5);
    subject t = {.m = model(), .variant = how};
    if (tied && wb_tie(t.m, "layers.body.layers.3.layers.0.layers.layers.0.weight",
                       "layers.body.layers.2.layers.0.layers.layers.0.weight"))
        fail_msg("%s", wb_error());
    t.s = wb_setup(rule, t.m, .mixed = mixed);
    if (!t.s) fail_msg("%s", wb_error());
    if (how >= FROZEN) assert_int_equal(wb_freeze(t.s, "layers.body"), 0);
    return t;
}

/* Returns the loss in train mode.  *g is its gradient, scaled as the state's update expects. */
static wb_tensor *gradients(subject *t, wb_tree **g)
{
    wb__this_thread()->training++;
    wb_tensor *l = loss(t->m, batch(), &t->variant);
    *g = l ? wb_gradient(wb_scale_loss(t->s, l), t->m) : NULL;
    wb__this_thread()->training--;
    if (!*g) fail_msg("%s", wb_error());
    return l;
}

static wb_tensor *update(subject *t)
{
    wb_tree *g;
    wb_tensor *l = gradients(t, &g);
    if (t->variant == MAPPED) g = wb_fmap(halved, g, NULL);
    if (!g || wb_update(t->s, t->m, g)) fail_msg("%s", wb_error());
    return l;
}

/* Does one step and returns the number of its kernels.  *value is a weight after it. */
static int step(subject *t, float *value)
{
    wb__cache_clear();
    kernels = 0;
    wb_scope *s = wb_scope_open();
    wb_tensor *l = update(t);
    if (!isfinite(wb_item(l)) || wb_scope_close(s)) fail_msg("%s", wb_error());
    *value = (float)wb_at(wb_get(t->m, "layers.head.weight"), 1, 2);
    return kernels;
}

static int kernels_of(wb_rule *(*rule)(void), wb_dtype mixed, bool tied, variant how, float *value)
{
    wb_scope *s = wb_scope_open();
    subject t = new_subject(rule(), mixed, tied, how);
    float weight = (float)wb_at(wb_get(t.m, "layers.body.layers.0.weight"), 1, 0, 1, 2);
    wb_tensor *mean = wb_get(t.m, "layers.body.layers.1.mean");
    if (!mean) fail_msg("%s", wb_error());
    assert_true(wb_at(mean, 1) == 0);
    int n = step(&t, value);
    if (wb_at(mean, 1) == 0) fail_msg("a frozen part's running mean was not updated");
    if (how != ALL)
        assert_true((float)wb_at(wb_get(t.m, "layers.body.layers.0.weight"), 1, 0, 1, 2) == weight);
    wb_scope_close(s);
    return n;
}

static wb_rule *descent(void) { return wb_Descent(); }
static wb_rule *adam(void) { return wb_Adam(); }
static wb_rule *clipped(void)
{
    return wb_OptimizerChain(wb_ClipNorm(.omega = 0.01), wb_WeightDecay(), wb_Momentum());
}

TEST(no_backward_pass)
{
    wb_rule *(*const rules[])(void) = {descent, adam, clipped};
    const wb_dtype mixed[] = {0, WB_BF16, WB_F16};
    for (int i = 0; i < 18; i++) {
        wb_rule *(*rule)(void) = rules[i % 3];
        const wb_dtype type = mixed[i / 3 % 3];
        const bool tied = i / 9;
        float cut = 0, frozen = 1, rest;
        const int all = kernels_of(rule, type, tied, ALL, &rest);
        const int by_hand = kernels_of(rule, type, tied, CUT, &cut);
        const int n = kernels_of(rule, type, tied, FROZEN, &frozen);
        const int mapped = kernels_of(rule, type, tied, MAPPED, &rest);
        assert_true(all > by_hand + 8);
        if (n != by_hand || mapped > by_hand + 2)
            fail_msg("case %d: %d kernels cut off, %d frozen, %d mapped, %d with all", i, by_hand,
                     n, mapped, all);
        assert_true(cut == frozen);
    }
}

/* ---- gradients of frozen parameters that are read -------------------------------------------- */

static double norm(wb_tensor *g) { return wb_item(wb_sum(wb_square(g))); }

/* The gradient of a frozen parameter can be read before an update, and after it until the update is
 * evaluated.  Then reading it is an error. */
TEST(reading)
{
    enum { BEFORE, BETWEEN, TOGETHER, MADE_OF_IT, AFTER, CASES };
    double value[CASES];
    for (int i = 0; i < CASES; i++) {
        wb_tree *g;
        wb_scope *s = wb_scope_open();
        subject t = new_subject(adam(), 0, false, FROZEN);
        wb_tensor *l = gradients(&t, &g), *read = wb_get(g, "layers.body.layers.0.weight");
        wb_tensor *made = NULL;
        if (i == BEFORE) value[i] = norm(read);
        assert_int_equal(wb_update(t.s, t.m, g), 0);
        if (i == BETWEEN) value[i] = norm(read);
        if (i == TOGETHER) assert_int_equal(wb_eval(l, read), 0);
        if (i == MADE_OF_IT) made = wb_sum(wb_square(read));
        if (i != BETWEEN) assert_true(isfinite(wb_item(l)));
        wb_clear_error();
        if (i == TOGETHER || i == AFTER) value[i] = norm(read);
        if (i == MADE_OF_IT) value[i] = wb_item(made);
        if (i == AFTER) assert_int_equal(wb_error_code(), WB_ERROR_VERSION);
        else assert_true(value[i] > 0 && fabs(value[i] / value[BEFORE] - 1) < 1e-5);
        assert_int_equal(wb_scope_close(s), 0);
    }
    assert_true(isnan(value[AFTER]));
    FAILED(WB_ERROR_VERSION, "overwritten", "update");
    wb_clear_error();
}

/* After wb_thaw, the next update trains the part again. */
TEST(thawed)
{
    float value;
    wb_scope *s = wb_scope_open();
    subject t = new_subject(adam(), 0, false, FROZEN);
    const int frozen = step(&t, &value);
    double before = wb_at(wb_get(t.m, "layers.body.layers.0.weight"), 0, 0, 0, 0);
    assert_int_equal(wb_thaw(t.s, "layers.body"), 0);
    assert_true(step(&t, &value) > frozen + 8);
    assert_true(wb_at(wb_get(t.m, "layers.body.layers.0.weight"), 0, 0, 0, 0) != before);
    wb_scope_close(s);
}

/* ---- wb_train and wb_compile ----------------------------------------------------------------- */

static int built;

/* The number of tensors that the step has built in its scope. */
static int count_built(int epoch, int64_t batch_number, wb_tensor *l, void *ctx)
{
    built = wb__this_thread()->scope->n;
    return 0;
}

static int trained(variant how, float *value)
{
    wb_scope *s = wb_scope_open();
    subject t = new_subject(clipped(), 0, true, how);
    wb_batch b = batch();
    wb_loader *data = wb_dataloader(wb_dataset_of(b.x, b.y), .batchsize = BATCH);
    wb__cache_clear();
    kernels = 0;
    if (wb_train(loss, t.m, data, t.s, .epochs = 2, .ctx = &t.variant, .each = count_built))
        fail_msg("%s", wb_error());
    int n = kernels;
    *value = (float)wb_at(wb_get(t.m, "layers.head.weight"), 1, 2);
    wb_scope_close(s);
    return n;
}

TEST(by_train)
{
    float cut = 0, frozen = 1, rest;
    const int by_hand = trained(CUT, &cut), built_by_hand = built;
    assert_int_equal(trained(FROZEN, &frozen), by_hand);
    if (built > built_by_hand) fail_msg("%d tensors were built, %d cut off", built, built_by_hand);
    assert_true(trained(ALL, &rest) > by_hand + 8);
    assert_true(cut == frozen);
}

/* With all parameters frozen, wb_train still calls the model for each batch. */
TEST(nothing_to_train)
{
    wb_scope *s = wb_scope_open();
    subject t = new_subject(adam(), WB_F16, false, FROZEN);
    wb_batch b = batch();
    wb_loader *data = wb_dataloader(wb_dataset_of(b.x, b.y), .batchsize = BATCH);
    assert_int_equal(wb_freeze(t.s, ""), 0);
    if (wb_train(loss, t.m, data, t.s, .ctx = &t.variant)) fail_msg("%s", wb_error());
    assert_true(wb_at(wb_get(t.m, "layers.body.layers.1.mean"), 1) != 0);
    wb_scope_close(s);
}

static int recorded(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    outputs[0] = update(ctx);
    return 1;
}

static int compiled(variant how, float *value)
{
    wb_scope *s = wb_scope_open();
    subject t = new_subject(adam(), 0, false, how);
    wb_compiled *c = wb_compile(recorded, &t);
    wb_tensor *l;
    wb__cache_clear();
    kernels = 0;
    for (int i = 0; i < 2; i++)
        if (wb_call_compiled(c, 0, NULL, 1, &l)) fail_msg("%s", wb_error());
    int n = kernels;
    *value = (float)wb_at(wb_get(t.m, "layers.head.weight"), 1, 2);
    wb_scope_close(s);
    return n;
}

TEST(by_a_compiled_step)
{
    float cut = 0, frozen = 1, rest;
    const int by_hand = compiled(CUT, &cut);
    assert_int_equal(compiled(FROZEN, &frozen), by_hand);
    assert_true(compiled(ALL, &rest) > by_hand + 8);
    assert_true(cut == frozen);
}

int main(void)
{
    setenv("WEBER_DEBUG", "plan", 1);           /* read once, at the first plan */
    wb_set_log(log_line, NULL);
    return run_all_cases();
}
