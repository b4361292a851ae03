/* Whole training runs in mixed precision compared with f32: losses, wb_train, plans, recordings,
 * checkpoints, devices. */
#include "optim_mixed.h"

#include "engine/request.h"

/* ---- training -------------------------------------------------------------------------------- */

enum { SEEN = 4 };
static const int looks[SEEN] = {0, 20, 60, 200};       /* numbers of steps before a loss is read */

static void train(bool conv, wb_dtype mixed, double *seen)
{
    wb_scope *s = wb_scope_open();
    problem p = {0};
    make(&p, conv);
    MADE(p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = mixed));
    for (int i = 0, at = 0; at < SEEN; i++) {
        if (i == looks[at]) seen[at++] = loss_now(&p);
        MADE(step(&p));
    }
    if (mixed) assert_true(check_masters(&p) > 0);
    if (conv) assert_int_equal(wb_dtype_of(wb_get(p.model, "layers.1.mean")), WB_F32);
    wb_scope_close(s);
}

/* During training and after 200 steps, the losses differ from those of f32 by less than 10 %. */
TEST(losses_as_in_f32)
{
    for (int conv = 0; conv < 2; conv++) {
        double want[SEEN], got[SEEN];
        train(conv, WB_DTYPE_DEFAULT, want);
        assert_true(want[SEEN - 1] < 0.02 * want[0]);
        for (int i = 0; i < 2; i++) {
            train(conv, halves[i], got);
            for (int k = 0; k < SEEN; k++) {
                print_message("%s %s after %d: %.5f, f32 %.5f\n", conv ? "convnet" : "mlp",
                              wb_dtype_name(halves[i]), looks[k], got[k], want[k]);
                assert_true(fabs(got[k] - want[k]) < 0.1 * want[k]);
            }
        }
    }
}

static wb_loader *loader_of(const problem *p)
{
    return wb_dataloader(wb_dataset_of(p->x, p->y), .batchsize = ROWS);
}

/* wb_train scales the loss itself, and computes the same bits as the explicit loop. */
TEST(train_scales_by_itself)
{
    for (int i = 0; i < 2; i++) IN_SCOPE {
        problem p = {0}, q = {0};
        make(&p, true);
        make(&q, true);
        p.state = wb_setup(wb_AdamW(.eta = 0.003), p.model, .mixed = halves[i]);
        q.state = wb_setup(wb_AdamW(.eta = 0.003), q.model, .mixed = halves[i]);
        for (int k = 0; k < 6; k++) MADE(step(&p));
        if (wb_train(loss_of, q.model, loader_of(&q), q.state, .epochs = 6))
            fail_msg("%s", wb_error());
        for (int k = 0; k < p.state->n; k++) {
            array a = values_of(master_of(p.state, k)), b = values_of(master_of(q.state, k));
            assert_memory_equal(a.at, b.at, (size_t)a.size * sizeof(double));
        }
        ref_forget();
    }
}

/* ---- a GPT ----------------------------------------------------------------------------------- */

enum { LETTERS = 11, CONTEXT = 16, WIDTH = 16, LINES = 4, GPT_STEPS = 50 };

static wb_tensor *positions(wb_tensor *x) { return x ? wb_arange(wb_dim(x, -1), WB_I32) : NULL; }

static wb_layer *block(void)
{
    wb_layer *attend = wb_Chain(wb_LayerNorm({WIDTH}),
                                wb_MultiHeadAttention(WIDTH, 2, .causal = true));
    wb_layer *think = wb_Chain(wb_LayerNorm({WIDTH}), wb_Dense(WIDTH, 2 * WIDTH, wb_gelu),
                               wb_Dense(2 * WIDTH, WIDTH));
    return wb_Chain(wb_SkipConnection(attend, wb_add), wb_SkipConnection(think, wb_add));
}

static wb_layer *gpt(void)
{
    wb_layer *embed = wb_Parallel(wb_add, wb_Embedding(LETTERS, WIDTH),
                                  wb_Chain(positions, wb_Embedding(CONTEXT, WIDTH)));
    wb_layer *m = wb_Chain(embed, block(), block(), wb_LayerNorm({WIDTH}),
                           wb_Dense(WIDTH, LETTERS, .bias = false));
    MADE(m && !wb_tie(m, "layers.4.weight", "layers.0.layers.0.weight"));
    return m;
}

static wb_tensor *gpt_loss(wb_layer *m, wb_batch b, void *state)
{
    wb_tensor *scores = wb_reshape(wb_call(m, b.x), -1, LETTERS);
    wb_tensor *l = wb_logitcrossentropy(scores, wb_onehotbatch(wb_reshape(b.y, -1), LETTERS));
    return state ? wb_scale_loss(state, l) : l;
}

/* Lines of a sequence of letters with period 11, from another position in each step.  The targets
 * are the next letters. */
static wb_batch line_of(int step, const wb_device *d)
{
    int32_t x[LINES * CONTEXT], y[LINES * CONTEXT];
    for (int i = 0; i < LINES * CONTEXT; i++) {
        const int at = 7 * step + 3 * (i / CONTEXT) + i % CONTEXT;
        x[i] = at * at % LETTERS;
        y[i] = (at + 1) * (at + 1) % LETTERS;
    }
    wb_tensor *in = wb_from(x, WB_I32, 2, (int64_t[]){LINES, CONTEXT});
    return (wb_batch){.x = wb_to(in, d),
                      .y = wb_to(wb_from(y, WB_I32, 2, (int64_t[]){LINES, CONTEXT}), d)};
}

static void train_gpt(const wb_device *d, wb_dtype mixed, double *losses)
{
    wb_scope *s = wb_scope_open();
    wb_seed(9);
    wb_layer *m = wb_to(gpt(), d);
    wb_opt_state *state = wb_setup(wb_AdamW(.eta = 0.003), m, .mixed = mixed);
    MADE(state);
    for (int i = 0; i < GPT_STEPS; i++) IN_SCOPE {
        wb_tree *g;
        wb_batch b = line_of(i, d);
        wb_tensor *l = gpt_loss(m, b, NULL);
        MADE(wb_withgradient(gpt_loss, m, b, &g, state) && !wb_update(state, m, g));
        losses[i] = wb_item(l);
    }
    wb_scope_close(s);
}

/* On the CPU and on OpenCL, the losses differ from those of f32 on the CPU by less than 3 %: in
 * bf16 at each step, in f16 at the end, since it skips steps until its scale is small enough. */
TEST(a_gpt_on_two_devices)
{
    const wb_device *places[2] = {wb_cpu_device(), NULL};
    if (!wb_using("OpenCL") && wb_functional("OpenCL")) places[1] = wb_device_at("OpenCL", 0);
    else print_message("without OpenCL, since: %s\n", wb_why_not("OpenCL"));
    wb_clear_error();
    double want[GPT_STEPS], got[GPT_STEPS], worst;
    train_gpt(places[0], WB_DTYPE_DEFAULT, want);
    assert_true(want[GPT_STEPS - 1] < 0.6 * want[0]);
    for (int p = 0; p < 2 && places[p]; p++)
        for (int i = 0; i < 2; i++) {
            train_gpt(places[p], halves[i], got);
            worst = 0;
            for (int k = halves[i] == WB_F16 ? GPT_STEPS - 1 : 0; k < GPT_STEPS; k++)
                worst = fmax(worst, fabs(got[k] / want[k] - 1));
            print_message("%s %s: losses %.4f to %.4f, f32 %.4f to %.4f; at most %.2f %% apart\n",
                          wb_device_backend(places[p]), wb_dtype_name(halves[i]), got[0],
                          got[GPT_STEPS - 1], want[0], want[GPT_STEPS - 1], 100 * worst);
            assert_true(worst < 0.03);
        }
}

/* ---- plans, recordings, files, devices ------------------------------------------------------- */

static void ignore_log(wb_log_level level, const char *text, void *context)
{
}

static int fused_updates, segments;
static void read_plan(wb_log_level level, const char *text, void *context)
{
    const char *more = strstr(text, " and "), *word = strstr(text, " more:");
    if (!strstr(text, "fused") || !more || !word || more > word) return;
    fused_updates++;
    segments = atoi(more + 5) + 1;
}

/* All parameters are updated by one kernel with a segment each. */
TEST(one_kernel_updates_all)
{
    for (int i = 0; i < 2; i++) IN_SCOPE {
        problem p = {0};
        make(&p, false);
        MADE(p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = halves[i]));
        wb__cache_clear();                          /* so that a plan is built and logged */
        fused_updates = segments = 0;
        wb_set_log(read_plan, NULL);
        MADE(step(&p));
        wb_set_log(ignore_log, NULL);
        assert_int_equal(fused_updates, 1);
        assert_int_equal(segments, p.state->n);
    }
}

/* Assigns 2 from[:5] to x and 2 and_from[:3] to y.  Returns the number of segments of the kernel
 * that does both. */
static int segments_of(wb_tensor *x, wb_tensor *from, wb_tensor *y, wb_tensor *and_from)
{
    const double want = 2 * wb_at(and_from, 0);
    wb_tensor *two = wb_scalar(2), *first = wb_mul(wb_slice(from, 0, 0, 5), two),
              *second = wb_mul(wb_slice(and_from, 0, 0, 3), two);
    wb__cache_clear();
    segments = 0;
    wb_set_log(read_plan, NULL);
    assert_int_equal(wb_assign(x, first) | wb_assign(y, second), 0);
    assert_int_equal(wb_eval(x, y), 0);
    wb_set_log(ignore_log, NULL);
    assert_true(wb_at(x, 0) == 2 && wb_at(y, 0) == want);
    return segments;
}

static wb_tensor *line(int64_t n, double value)
{
    return wb_variable(wb_full_array(value, WB_F32, 1, &n));
}

/* Kernels with the same program are fused into one pass.  The values are right also where one
 * kernel writes a variable that the other one reads. */
TEST_IN_SCOPE(kernels_of_one_program_share_a_pass)
{
    wb_tensor *x = line(5, 7), *y = line(3, 7);
    assert_int_equal(segments_of(x, line(5, 1), y, line(3, 2)), 2);
    x = line(5, 3);
    segments_of(x, line(5, 1), y, x);
}

static int recorded(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    problem *p = ctx;
    wb_tree *g;
    out[0] = wb_withgradient(scaled_loss, p->model, ((wb_batch){.x = in[0], .y = in[1]}), &g, p);
    return !out[0] || wb_update(p->state, p->model, g) ? -1 : 1;
}

static int forward(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = wb_call(ctx, in[0]);
    return out[0] ? 1 : -1;
}

/* The same problem twice, trained by Adam. */
static void make_two(problem *p, problem *q, wb_dtype mixed)
{
    problem *const both[] = {p, q};
    for (int i = 0; i < 2; i++) {
        make(both[i], false);
        both[i]->state = wb_setup(wb_Adam(.eta = 0.003), both[i]->model, .mixed = mixed);
    }
}

static void assert_same_numbers(const problem *p, const problem *q)
{
    array a = snapshot(p), b = snapshot(q);
    assert_memory_equal(a.at, b.at, (size_t)a.size * sizeof(double));
}

/* Compiled steps compute the same bits as plain ones.  A function that was recorded before the
 * parameters changed their dtype is recorded again. */
TEST(recordings)
{
    for (int i = 0; i < 2; i++) IN_SCOPE {
        problem p = {0}, q = {0};
        make(&p, false);
        make(&q, false);
        wb_compiled *f = wb_compile(forward, q.model);
        wb_tensor *y;
        MADE(!wb_call_compiled(f, 1, &q.x, 1, &y));
        assert_int_equal(wb_dtype_of(y), WB_F32);
        p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = halves[i]);
        q.state = wb_setup(wb_Adam(.eta = 0.003), q.model, .mixed = halves[i]);
        MADE(!wb_call_compiled(f, 1, &q.x, 1, &y));
        assert_int_equal(wb_dtype_of(y), halves[i]);
        array a = values_of(y), b = values_of(wb_call(q.model, q.x));
        assert_memory_equal(a.at, b.at, (size_t)a.size * sizeof(double));
        wb_compiled *c = wb_compile(recorded, &q);
        for (int k = 0; k < 6; k++) {
            if (k == 4)
                assert_true(!wb_adjust(p.state, .eta = 0.01) && !wb_adjust(q.state, .eta = 0.01));
            MADE(step(&p));
            wb_tensor *loss;
            MADE(!wb_call_compiled(c, 2, (wb_tensor *[]){q.x, q.y}, 1, &loss));
            assert_same_numbers(&p, &q);
        }
        ref_forget();
    }
}

/* Training resumed from a checkpoint computes the same bits as uninterrupted training. */
TEST(checkpoints)
{
    const char *path = "optim_mixed.checkpoint";
    for (int i = 0; i < 2; i++) IN_SCOPE {
        problem p = {0}, q = {0}, other = {0};
        make(&p, true);
        make(&q, true);
        make(&other, true);
        p.state = wb_setup(wb_Adam(.eta = 0.003), p.model, .mixed = halves[i]);
        p.loss_factor = 1e6;                                /* in f16, the scale is halved */
        MADE(step(&p));
        p.loss_factor = 1;
        for (int k = 0; k < 5; k++) MADE(step(&p));
        MADE(!wb_save_checkpoint(path,
                                 &(wb_checkpoint){.model = p.model, .state = p.state, .epoch = 3}));
        for (int k = 0; k < 5; k++) MADE(step(&p));
        q.state = wb_setup(wb_Adam(.eta = 1), q.model, .mixed = halves[i]);
        wb_checkpoint c = {.model = q.model, .state = q.state};
        MADE(!wb_load_checkpoint(path, &c));
        assert_int_equal(c.epoch, 3);
        for (int k = 0; k < 5; k++) MADE(step(&q));
        assert_same_numbers(&p, &q);
        if (halves[i] == WB_F16) assert_true(scale_of(&p) == scale_of(&q) && scale_of(&q) < 65536);
        other.state = wb_setup(wb_Adam(), other.model, .mixed = halves[!i]);
        FAILS(wb_load_checkpoint(path, &(wb_checkpoint){.state = other.state}), WB_ERROR_FORMAT,
              path, "state", ".mixed", wb_dtype_name(halves[i]), wb_dtype_name(halves[!i]));
        wb_clear_error();
        remove(path);
        ref_forget();
    }
}

/* Training that moves to another device and back computes the same bits. */
TEST(devices)
{
    for (int i = 0; i < 2; i++) IN_SCOPE {
        problem p, q;
        make_two(&p, &q, halves[i]);
        for (int k = 0; k < 9; k++) {
            if (k % 3 == 0) {
                const wb_device *d = k == 3 ? far_device() : wb_cpu_device();
                q.model = wb_to(q.model, d);
                q.state = wb_to(q.state, d);
                q.x = wb_to(q.x, d);
                q.y = wb_to(q.y, d);
                MADE(q.model && q.state && q.x && q.y);
            }
            MADE(step(&p));
            MADE(step(&q));
            assert_same_numbers(&p, &q);
        }
        if (halves[i] == WB_F16) assert_true(scale_of(&p) == scale_of(&q));
        ref_forget();
    }
}

/* wb_update_new returns new models with the same numbers as updates in place. */
TEST(out_of_place)
{
    for (int i = 0; i < 2; i++) IN_SCOPE {
        problem p, q;
        make_two(&p, &q, halves[i]);
        for (int k = 0; k < 3; k++) {
            MADE(step(&p));
            wb_tree *g;
            MADE(wb_withgradient(scaled_loss, q.model, ((wb_batch){.x = q.x, .y = q.y}), &g, &q));
            MADE(q.model = wb_update_new(q.state, q.model, g));
            assert_same_numbers(&p, &q);
        }
        ref_forget();
    }
}

int main(int argc, char **argv)
{
    setenv("WEBER_DEBUG", "plan", 1);               /* for one_kernel_updates_all */
    wb_set_log(ignore_log, NULL);
    wb_set_threads(1);                              /* the problems are too small for more */
    read_options(argc, argv);
    return run_all_cases();
}
