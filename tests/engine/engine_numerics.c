/* The settings for the precision of products and for determinism: their values, what backends
 * receive, and which plans are rebuilt after a change. */
#include "far_device.h"
#include "near_device.h"
#include "process.h"
#include "reference.h"

/* The last step that the far device prepared, by kind. */
static struct { int n, precision, deterministic; } seen[WB__STEP_COUNT];

static void look(const wb__step *step)
{
    seen[step->kind].n++;
    seen[step->kind].precision = step->precision;
    seen[step->kind].deterministic = step->deterministic;
}

static void forget(void) { memset(seen, 0, sizeof seen); }

TEST(names)
{
    assert_string_equal(wb_matmul_precision(), "highest");
    assert_false(wb_deterministic());
    static const char *const all[] = {"medium", "high", "highest"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wb_set_matmul_precision(all[i]), 0);
        assert_string_equal(wb_matmul_precision(), all[i]);
    }
    wb_set_matmul_precision("high");
    FAILS(wb_set_matmul_precision("tf32"), WB_ERROR_ARGUMENT, "set_matmul_precision", "\"tf32\"",
          "highest", "high", "medium");
    assert_int_equal(wb_set_matmul_precision(NULL), WB_ERROR_ARGUMENT);
    assert_string_equal(wb_matmul_precision(), "high");
    wb_clear_error();
    wb_set_matmul_precision("highest");
}

static void product(const wb_device *d)
{
    wb_scope *s = wb_scope_open();
    wb_set_default_device(d);
    wb_tensor *a = wb_ones(4, 5), *b = wb_ones(5, 3);
    wb_tensor *y = wb_exp(wb_matmul(a, b));
    wb_tensor *z = wb_conv(wb_ones(1, 2, 6, 6), wb_ones(3, 2, 3, 3), WB_NONE);
    if (wb_eval(y, z)) fail_msg("%s", wb_error());
    assert_true(fabs(wb_at(y, 1, 1) - exp(5)) < 1e-3 && wb_at(z, 0, 0, 1, 1) == 18);
    wb_set_default_device(NULL);
    assert_int_equal(wb_scope_close(s), 0);
}

/* Each setting has its own plans, whose steps carry the setting. */
TEST(plans_carry_the_setting)
{
    static const char *const all[] = {"highest", "high", "medium"};
    far_watch(look);
    for (int p = 0; p < 3; p++)
        for (int same = 0; same < 2; same++) {
            wb_set_matmul_precision(all[p]);
            wb_set_deterministic(same);
            forget();
            int64_t built = wb_stats().plans_built;
            product(far_device());
            assert_true(wb_stats().plans_built > built);
            built = wb_stats().plans_built;
            assert_int_equal(seen[WB__STEP_MATMUL].n, 1);
            assert_int_equal(seen[WB__STEP_CONV].n, 1);
            assert_int_equal(seen[WB__STEP_MATMUL].precision, p);
            assert_int_equal(seen[WB__STEP_CONV].precision, p);
            assert_true(seen[WB__STEP_FUSED].n > 0);
            assert_int_equal(seen[WB__STEP_FUSED].precision, 0);
            assert_int_equal(seen[WB__STEP_FUSED].deterministic, same);
            assert_int_equal(seen[WB__STEP_MATMUL].deterministic, same);
            product(far_device());
            assert_int_equal(wb_stats().plans_built, built);
        }
    far_watch(NULL);
    wb_set_matmul_precision("highest");
    wb_set_deterministic(false);
}

/* A backend receives the settings also when the engine asks whether it accepts a step. */
TEST_IN_SCOPE(backends_are_asked)
{
    wb_set_default_device(near_device());
    wb_set_matmul_precision("medium");
    wb_set_deterministic(true);
    wb_tensor *y = wb_gelu(wb_matmul(wb_ones(4, 5), wb_ones(5, 8)));
    if (wb_eval(y)) fail_msg("%s", wb_error());
    assert_int_equal(near_asked()->kind, WB__STEP_MATMUL);
    assert_int_equal(near_asked()->epilogue, WB__OP_gelu);
    assert_int_equal(near_asked()->precision, WB__PRECISION_MEDIUM);
    assert_true(near_asked()->deterministic);
    wb_set_matmul_precision("highest");
    wb_set_deterministic(false);
    wb_set_default_device(NULL);
}

static int record(wb_tensor *const *in, wb_tensor **out, void *ctx)
{
    ++*(int *)ctx;
    out[0] = wb_matmul(in[0], in[0]);
    return out[0] ? 1 : -1;
}

/* A recording keeps the setting of its time; a call with other shapes is recorded with the current
 * one. */
TEST_IN_SCOPE(recordings_keep)
{
    int calls = 0;
    wb_set_default_device(far_device());
    wb_tensor *x = wb_ones(3, 3), *larger = wb_ones(4, 4), *y;
    wb_compiled *c = wb_compile(record, &calls);
    wb_set_matmul_precision("high");
    far_watch(look);
    forget();
    assert_int_equal(wb_call_compiled(c, 1, &x, 1, &y), 0);
    assert_int_equal(seen[WB__STEP_MATMUL].precision, WB__PRECISION_HIGH);
    wb_set_matmul_precision("highest");
    forget();
    assert_int_equal(wb_call_compiled(c, 1, &x, 1, &y), 0);
    assert_true(wb_at(y, 2, 2) == 3);
    assert_int_equal(calls, 1);
    assert_int_equal(seen[WB__STEP_MATMUL].n, 0);
    assert_int_equal(wb_call_compiled(c, 1, &larger, 1, &y), 0);
    assert_int_equal(calls, 2);
    assert_int_equal(seen[WB__STEP_MATMUL].n, 1);
    assert_int_equal(seen[WB__STEP_MATMUL].precision, WB__PRECISION_HIGHEST);
    far_watch(NULL);
    wb_set_default_device(NULL);
}

/* ---- the environment: one process for each case ---------------------------------------------- */

static void warned(wb_log_level level, const char *text, void *context)
{
    if (level == WB_LOG_WARN && strstr(text, "WEBER_MATMUL_PRECISION is \"exact\""))
        ++*(int *)context;
}

/* Prints the settings, in the child process. */
static int print_settings(void)
{
    int warnings = 0;
    wb_set_log(warned, &warnings);
    printf("%s %d", wb_matmul_precision(), wb_deterministic());
    printf(" %d\n", warnings);
    return 0;
}

TEST(environment)
{
    static const struct { const char *precision, *deterministic, *want; } rows[] = {
        {"WEBER_MATMUL_PRECISION=", "WEBER_DETERMINISTIC=", "highest 0 0\n"},
        {"WEBER_MATMUL_PRECISION=high", "WEBER_DETERMINISTIC=0", "high 0 0\n"},
        {"WEBER_MATMUL_PRECISION=medium", "WEBER_DETERMINISTIC=1", "medium 1 0\n"},
        {"WEBER_MATMUL_PRECISION=exact", "WEBER_DETERMINISTIC=1", "highest 1 1\n"}};
    const char *folder = process_folder();
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        process p;
        process_run(&p, folder, ENVIRONMENT(rows[i].precision, rows[i].deterministic),
                    (const char *const[]){process_self(), "settings", NULL});
        assert_int_equal(p.status, 0);
        assert_string_equal(p.out, rows[i].want);
    }
    process_remove(folder);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "settings")) return print_settings();
    return run_all_cases();
}
