/* All texts have a decimal point, also where the program's locale has a comma. The locale is made
 * here, by localedef, if it is not installed. */
#include "test.h"

#include "weber.h"

#include "folder.h"

#include <locale.h>
#include <stdlib.h>

static bool has_comma(void)
{
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) {
        char command[600];
        snprintf(command, sizeof command,
                 "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", folder);
        if (system(command) || setenv("LOCPATH", folder, 1) || !setlocale(LC_ALL, "de_DE.UTF-8")) {
            puts("SKIP: there is no locale de_DE.UTF-8, and localedef does not make it");
            return false;
        }
    }
    char text[16];
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
    return true;
}

static void has(char *text, const char *part)
{
    if (!text || !strstr(text, part)) fail_msg("no %s in %s; %s", part, text, wb_error());
    wb_free_text(text);
}

static char heard[1000];
static void hear(wb_log_level level, const char *text, void *ctx)
{
    (void)level, (void)ctx;
    snprintf(heard, sizeof heard, "%s", text);
}

TEST_IN_SCOPE(texts)
{
    if (!has_comma()) return;
    wb_layer *m = wb_Chain(wb_Dense(2, 2), wb_Dropout(0.25));
    has(wb_object_format(wb_Adam(0.5)), "(0.9, 0.999)");
    has(wb_object_format(m), "0.25");
    has(wb_object_format(wb_full(1.5, 2)), "1.5");
    has(wb_object_format(wb_setup(wb_Descent(0.125), m)), "0.125");
    has(wb_object_format(wb_ScheduleExp(0.5, 0.75)), "0.75");
    assert_null(wb_Dropout(1.5));
    assert_non_null(strstr(wb_error(), "1.5"));
    wb_clear_error();
    assert_true(wb_fail(WB_ERROR_ARGUMENT, "%g", 2.5) && !strncmp(wb_error(), "2.5", 3));
    wb_clear_error();
    wb_set_log(hear, NULL);
    wb__log(WB_LOG_WARN, "%.2f", 0.25);
    wb_set_log(NULL, NULL);
    assert_string_equal(heard, "0.25");
    wb_progress *p = wb_progress_of(2, "now %g", 0.5);
    wb_progress_step(p, "loss", wb_full(0.375, 1));
    has(wb_object_format(p), "now 0.5");
    wb_progress_end(p);
}

/* What is written with one locale is read with the other. */
TEST_IN_SCOPE(files)
{
    if (!has_comma()) return;
    wb_layer *m = wb_Chain(wb_Dense(2, 2), wb_Dropout(0.375));
    WORKS(wb_save(in_folder("m.weber"), m));
    wb_opt_state *s = wb_setup(wb_Adam(0.25, .beta = {0.75, 0.875}), m);
    wb_checkpoint c = {.model = m, .state = s, .epoch = 1, .metric = 0.625, .has_metric = true};
    WORKS(wb_save_checkpoint(in_folder("c"), &c));
    setlocale(LC_ALL, "C");
    wb_checkpoint back = {.model = m, .state = s};
    WORKS(wb_load_checkpoint(in_folder("c"), &back));
    assert_true(back.metric == 0.625);
    setlocale(LC_ALL, "de_DE.UTF-8");
    WORKS(wb_load_checkpoint(in_folder("c"), &back));
    assert_true(back.metric == 0.625);
    wb_layer *loaded = wb_load(in_folder("m.weber"));
    MADE(loaded);
    has(wb_object_format(loaded), "0.375");
    setlocale(LC_ALL, "C");
}

int main(void) { return run_cases(make_folder, remove_folder); }
