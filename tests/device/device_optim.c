/* Optimiser state on devices: it is created on the device of its model, moves with it, and an
 * update with state on another device fails. */
#include "far_device.h"
#include "reference.h"

#include "optim/optim.h"

static const wb_device *places[MOST_PLACES];
static int n_paths;

static wb_layer *make_model(void)
{
    wb_seed(3);
    return wb_Chain(wb_Dense(4, 8, wb_tanh), wb_Dense(8, 3));
}

static wb_tensor *loss_of(wb_layer *m, wb_batch b, void *ctx)
{
    return wb_mean(wb_square(wb_sub(wb_call(m, b.x), b.y)));
}

static wb_batch batch_on(const wb_device *d, int number, wb_dtype dtype)
{
    float x[5 * 4], y[5 * 3];
    for (int i = 0; i < 20; i++) x[i] = sinf((float)(i * (number + 1)));
    for (int i = 0; i < 15; i++) y[i] = cosf((float)(i + number));
    wb_batch b = {.x = wb_astype(wb_from(x, WB_F32, 2, (int64_t[]){5, 4}), dtype),
                  .y = wb_astype(wb_from(y, WB_F32, 2, (int64_t[]){5, 3}), dtype), .n = 5};
    return wb_to(b, d);
}

/* One step on the device of the model. */
static void step(wb_opt_state *s, wb_layer *m, int number)
{
    wb_tree *g;
    wb_scope *scope = wb_scope_open();
    wb_dtype dtype = wb_dtype_of(wb_get(m, "layers.0.weight"));
    if (!wb_withgradient(loss_of, m, batch_on(wb_device_of(m), number, dtype), &g) ||
        wb_update(s, m, g) || wb_scope_close(scope))
        fail_msg("step %d: %s", number, wb_error());
}

static void assert_same(wb_layer *a, wb_layer *b, bool bits)
{
    static const char *const paths[] = {"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                        "layers.1.bias"};
    for (size_t p = 0; p < WB__COUNT(paths); p++) {
        wb_tensor *x = wb_get(a, paths[p]), *y = wb_get(b, paths[p]);
        const float *u = wb_data(x), *v = wb_data(y);
        assert_true(u && v && wb_size(x) == wb_size(y));
        for (int64_t i = 0; i < wb_size(x); i++)
            if (bits ? u[i] != v[i] : !(fabsf(u[i] - v[i]) <= 1e-4f))
                fail_msg("%s[%d]: %g, %g", paths[p], (int)i, u[i], v[i]);
    }
}

/* The two states are equal except for their device. */
static void assert_same_text(wb_opt_state *a, wb_opt_state *b)
{
    assert_shown_alike(a, b);
}

static wb_rule *rule(int i)
{
    switch (i) {
    case 0: return wb_Descent(.eta = 0.05);
    case 1: return wb_Momentum(.eta = 0.05);
    case 2: return wb_Adam(.eta = 0.02);
    default:
        return wb_OptimizerChain(wb_ClipNorm(.omega = 0.5), wb_WeightDecay(),
                                 wb_AdamW(.eta = 0.02));
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(moments_stand_beside_their_parameters)
{
    for (int i = 0; i < n_paths; i++) IN_SCOPE {
        wb_layer *m = wb_to(make_model(), places[i]);
        wb_opt_state *o = wb_setup(wb_Adam(), m);
        assert_ptr_equal(wb_device_of(o), places[i]);
        for (int k = 0; k < o->n; k++) {
            assert_ptr_equal(o->slots[k].moments[0]->device, places[i]);
            assert_ptr_equal(o->slots[k].moments[1]->storage->device, places[i]);
            assert_true(wb_item(wb_sum(o->slots[k].moments[1])) == 0);
        }
    }
}

/* A state that moves with its model between any two steps continues with the same numbers. */
TEST(training_goes_on_where_the_state_went)
{
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < n_paths; i++)
            for (int j = 0; j < n_paths; j++) IN_SCOPE {
                wb_layer *m = make_model(), *there = make_model();
                wb_opt_state *o = wb_setup(rule(r), m), *moved;
                for (int k = 0; k < 6; k++) step(o, m, k);
                there = wb_to(there, places[i]);
                moved = wb_setup(rule(r), there);
                for (int k = 0; k < 3; k++) step(moved, there, k);
                wb_opt_state *before = moved;
                there = wb_to(there, places[j]);
                moved = wb_to(moved, places[j]);
                assert_non_null(moved);
                assert_true(moved != before || i == j || r == 0);
                assert_true(moved == before || i != j);
                assert_ptr_equal(wb_device_of(moved), r ? places[j] : wb_cpu_device());
                assert_same_text(moved, before);
                for (int k = 3; k < 6; k++) step(moved, there, k);
                assert_same_text(moved, o);
                assert_same(m, there, same_bits(places[i]) && same_bits(places[j]));
            }
}

TEST(the_one_that_was_moved_is_as_it_was)
{
    for (int i = 1; i < n_paths; i++) IN_SCOPE {
        wb_layer *m = make_model(), *plain = make_model();
        wb_opt_state *o = wb_setup(wb_Adam(.eta = 0.1), m);
        wb_opt_state *p = wb_setup(wb_Adam(.eta = 0.1), plain);
        for (int k = 0; k < 2; k++) step(o, m, k), step(p, plain, k);
        assert_int_equal(wb_freeze(o, "layers.1"), 0);
        wb_opt_state *moved = wb_to(o, places[i]);
        assert_same_text(moved, o);
        assert_int_equal(wb_thaw(o, ""), 0);
        assert_int_equal(wb_adjust(moved, .eta = 0.5), 0);
        assert_true(moved->slots[2].frozen && !o->slots[2].frozen);
        assert_true(o->rule->parts[0].o.eta == 0.1 && moved->rule->parts[0].o.eta == 0.5);
        step(moved, wb_to(m, places[i]), 7);            /* does not change m or o */
        step(o, m, 2), step(p, plain, 2);
        assert_same(m, plain, true);
        assert_same_text(o, p);
    }
}

TEST(steps_under_way_move_with_it)
{
    for (int i = 1; i < n_paths; i++) IN_SCOPE {
        wb_layer *m = make_model();
        wb_opt_state *o = wb_setup(wb_Adam(), m);
        wb_tree *g;
        assert_non_null(wb_withgradient(loss_of, m, batch_on(places[0], 0, WB_F32), &g));
        assert_int_equal(wb_update(o, m, g), 0);
        wb_opt_state *moved = wb_to(o, places[i]);      /* the update was only recorded */
        assert_int_equal(moved->counts->slot[0].steps, 1);
        assert_true(wb_item(wb_sum(wb_square(moved->slots[0].moments[0]))) > 0);
        wb_tensor *nan = wb_div(wb_scalar(0), wb_scalar(0));
        assert_non_null(wb_withgradient(loss_of, m, batch_on(places[0], 0, WB_F32), &g));
        assert_int_equal(wb_update(o, m, g), 0);
        assert_int_equal(wb__evaluate(1, &nan, nan), WB_ERROR_NUMBER);
        moved = wb_to(o, places[i]);                    /* that step was undone */
        assert_int_equal(moved->counts->slot[0].steps, 1);
    }
}

TEST(ties_share_one_state)
{
    for (int i = 1; i < n_paths; i++) IN_SCOPE {
        wb_layer *m = wb_Chain(wb_Dense(4, 4), wb_Dense(4, 4));
        assert_int_equal(wb_tie(m, "layers.1.weight", "layers.0.weight"), 0);
        wb_opt_state *o = wb_setup(wb_Adam(), m), *moved = wb_to(o, places[i]);
        assert_int_equal(moved->n, 3);
        assert_int_equal(moved->n_paths, 4);
        for (int k = 0; k < 4; k++) {
            assert_int_equal(moved->paths[k].slot, o->paths[k].slot);
            assert_string_equal(moved->paths[k].path, o->paths[k].path);
        }
    }
}

/* f64: the state gets the dtype of its model. */
TEST(dtypes_follow_the_parameters)
{
    for (int r = 0; r < 3; r++) IN_SCOPE {
        wb_layer *m = wb_to(make_model(), places[0], .dtype = WB_F64);
        wb_opt_state *o = wb_setup(rule(r), m);
        step(o, m, 0);
        assert_ptr_equal(wb_to(o, places[0], .dtype = WB_F64), o);
        wb_opt_state *f = wb_to(o, far_device());
        wb_layer *there = wb_to(m, far_device());
        assert_int_equal(wb_dtype_of(wb_get(there, "layers.0.bias")), WB_F32);
        step(f, there, 1);
        step(o, m, 1);
        wb_opt_state *back = wb_cpu(f);                 /* not F64 again */
        if (r) assert_int_equal(wb_dtype_of(back->slots[0].moments[0]), WB_F32);
        step(back, wb_cpu(there), 2);
        assert_null(wb_to(o, far_device(), .dtype = WB_DTYPE_KEEP));
        FAILED(WB_ERROR_UNSUPPORTED, "far:0", "f64", ".dtype", "WB_DTYPE_KEEP", "f32");
        wb_opt_state *again = wb_to(f, places[0], .dtype = WB_F64);     /* far has no f64 */
        if (!again) fail_msg("%s", wb_error());
        step(again, wb_to(there, places[0], .dtype = WB_F64), 2);
        wb_opt_state *half = wb_to(o, places[1], .dtype = WB_F16);
        if (r) assert_int_equal(wb_dtype_of(half->slots[0].moments[0]), WB_F32);
        step(half, wb_to(m, places[1], .dtype = WB_F16), 2);
        assert_null(wb_to(o, places[1], .dtype = WB_I32));
    }
}

TEST(a_state_elsewhere_is_an_error)
{
    for (int i = 1; i < n_paths; i++) IN_SCOPE {
        char there[32];
        snprintf(there, sizeof there, "%s:%d", places[i]->backend->tag, places[i]->ordinal);
        wb_layer *m = make_model(), *same = make_model(), *moved = wb_to(m, places[i]);
        wb_opt_state *o = wb_setup(wb_Momentum(), m);
        wb_tree *g, *near;
        assert_non_null(wb_withgradient(loss_of, moved, batch_on(places[i], 0, WB_F32), &g));
        assert_non_null(wb_withgradient(loss_of, m, batch_on(places[0], 0, WB_F32), &near));

        FAILS(wb_update(o, moved, g), WB_ERROR_DEVICE, "update", "state", "\"layers.0.weight\"",
              "cpu:0", "parameter", there, "state", "wb_to", "wb_device_of", "model");
        assert_null(wb_update_new(o, moved, g));
        FAILED(WB_ERROR_DEVICE, "update_new", "state", "\"layers.0.weight\"");

        FAILS(wb_update(o, m, g), WB_ERROR_DEVICE, "update", "gradient", "\"layers.0.weight\"",
              there, "parameter", "cpu:0", "wb_to", "wb_device_of", "model");
        REFUSED(wb_update_new(o, m, g), WB_ERROR_DEVICE, "update_new", "gradient");

        assert_int_equal(wb__pending_count(), 0);       /* nothing was recorded */
        assert_same(m, same, true);
        for (int k = 0; k < o->n; k++) assert_int_equal(o->counts->slot[k].steps, 0);

        /* after the moves that the error proposes, the update succeeds */
        assert_int_equal(wb_update(o, m, wb_to(g, wb_device_of(m))), 0);
        assert_int_equal(wb_update(wb_to(o, wb_device_of(moved)), moved, wb_to(near, places[i])),
                         0);
        wb_layer *next = wb_update_new(wb_to(o, places[i]), moved, g);
        assert_ptr_equal(wb_device_of(next), places[i]);
    }
}

TEST(a_model_on_two_devices_has_its_state_on_both)
{
    for (int i = 1; i < n_paths; i++) IN_SCOPE {
        wb_tensor *a = wb_variable(wb_ones(3)), *b = wb_variable(wb_to(wb_ones(2), places[i]));
        wb_tree *both = wb_named_tuple(2, (const char *[]){"near", "there"}, (void *[]){a, b});
        wb_opt_state *o = wb_setup(wb_Momentum(.eta = 0.5), both);
        REFUSED(wb_device_of(o), WB_ERROR_DEVICE, "state", "\"near\"", "cpu:0", "\"there\"");
        wb_tree *g = wb_named_tuple(2, (const char *[]){"near", "there"},
                                    (void *[]){wb_ones(3), wb_to(wb_ones(2), places[i])});
        assert_int_equal(wb_update(o, both, g), 0);
        assert_true(wb_item(wb_sum(a)) == 1.5 && wb_item(wb_sum(b)) == 1);
        o = wb_to(o, places[0]);
        assert_ptr_equal(wb_device_of(o), places[0]);
        assert_int_equal(wb_update(o, wb_to(both, places[0]), wb_to(g, places[0])), 0);
    }
}

static wb_opt_state *recorded_state;
static wb_layer *recorded_model;
static int record_step(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    wb_tree *g;
    wb_batch b = {.x = in[0], .y = in[1], .n = 5};
    out[0] = wb_withgradient(loss_of, recorded_model, b, &g);
    return out[0] && !wb_update(recorded_state, recorded_model, g) ? 1 : -1;
}

static int record_move(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    out[0] = in[0];
    return wb_to(recorded_state, places[1]) ? 1 : -1;
}

TEST(recorded_steps_run_where_the_state_is)
{
    for (int i = 0; i < n_paths; i++) IN_SCOPE {
        wb_layer *plain = make_model();
        wb_opt_state *o = wb_setup(wb_Adam(), plain);
        recorded_model = wb_to(make_model(), places[i]);
        recorded_state = wb_to(wb_setup(wb_Adam(), plain), places[i]);
        wb_compiled *c = wb_compile(record_step, NULL);
        for (int k = 0; k < 4; k++) {
            wb_tensor *loss;
            wb_batch b = batch_on(places[i], k, WB_F32);
            if (wb_call_compiled(c, 2, (wb_tensor *[]){b.x, b.y}, 1, &loss) != 0)
                fail_msg("%s", wb_error());
            step(o, plain, k);
        }
        assert_same(plain, recorded_model, same_bits(places[i]));
        assert_int_equal(recorded_state->counts->slot[0].steps, 4);
        recorded_state = o;
        wb_tensor *one = wb_ones(1);
        assert_int_not_equal(wb_call_compiled(wb_compile(record_move, NULL), 1, &one, 1, &one), 0);
        FAILED(WB_ERROR_ARGUMENT, "to:", "wb_compile");
    }
}

/* The n-th allocation on the host, or call of the device, fails: this is an error, nothing leaks,
 * and the next attempt succeeds. */
static void failing_moves(void (*fail_at)(int64_t), const char *what)
{
    int failures = 0;
    for (int64_t n = 1;; n++) {
        wb_scope *s = wb_scope_open();
        wb_layer *m = make_model();
        wb_opt_state *o = wb_setup(wb_Adam(), m);
        step(o, m, 0);
        const int64_t held = far_held();
        wb_clear_error();
        fail_at(n);
        wb_opt_state *moved = wb_to(o, far_device());
        fail_at(0);
        if (!moved) {
            failures++;
            assert_true(wb_error()[0]);
            assert_int_equal(far_held(), held);
            assert_int_equal(o->counts->slot[0].steps, 1);
            assert_non_null(wb_to(o, far_device()));
        }
        step(o, m, 1);
        assert_int_equal(wb_scope_close(s), 0);
        if (moved) break;
    }
    assert_true(failures > 3);
    print_message("%s: %d places\n", what, failures);
}

TEST(failing_allocations)
{
    failing_moves(wb__alloc_fail_at, "allocation");
}

TEST(failing_calls)
{
    failing_moves(far_fail_at, "call");
}

int main(void) { return run_everywhere(places, &n_paths); }
