/* Progress bars and curves: their output, and values that are missing or not finite. */
#include "test.h"

#include "base/base.h"
#include "base/files/file.h"

#include <unistd.h>
#include <weber.h>

/* The standard error output of f, written to a file, which is no terminal. */
static char printed[4096];
static void capture(void (*f)(void))
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    int before = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    f();
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    printed[fread(printed, 1, sizeof printed - 1, file)] = 0;
    fclose(file);
}

static void three_steps(void)
{
    wb_progress *p = wb_progress_of(3, "epoch %d", 7);
    for (int i = 0; i < 3; i++) IN_SCOPE {
        wb_progress_step(p, "loss", wb_mul(wb_scalar(i), wb_ones(1)));
        wb_progress_step(p, "accuracy", wb_scalar(0.5));
    }
    wb_progress_end(p);
    wb_progress_end(p);
    wb_progress_step(p, "loss", wb_scalar(100));
}

TEST(test_progress_counts_and_averages)
{
    capture(three_steps);
    assert_non_null(strstr(printed, "epoch 7  3 steps in "));
    assert_non_null(strstr(printed, "mean loss 1  mean accuracy 0.5\n"));
    assert_ptr_equal(strchr(printed, '\n'), printed + strlen(printed) - 1);     /* one line */
}

static void no_value(void)
{
    wb_scope *scope = wb_scope_open();
    wb_progress *p = wb_progress_begin(NULL, "reading");
    wb_progress_step(p, NULL, NULL);
    wb_progress_step(p, "loss", NULL);
    wb_progress_step(p, "loss", WB_NONE);
    wb_progress_step(NULL, "loss", NULL);
    wb_scope_close(scope);                      /* ends the progress bar */
}

TEST(test_progress_without_values_ends_with_its_scope)
{
    capture(no_value);
    assert_non_null(strstr(printed, "reading  3 steps in "));
    assert_null(strstr(printed, "loss"));
}

static char *read_file(const char *path)
{
    static char text[65536];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

TEST(test_curves_leave_gaps_and_escape_names)
{
    double x[] = {0, 1, 2, 3, 4}, y[] = {1, 0.5, NAN, 0.25, 0.125}, flat[] = {2, 2, 2, 2, 2};
    wb_series series[] = {{"a < b & c", 5, x, y}, {"flat", 5, x, flat}, {"none", 0, NULL, NULL}};
    assert_int_equal(wb_save_curves("pictures.svg", "t", "x", "y", 3, series), 0);
    char *text = read_file("pictures.svg");
    assert_int_equal(count(text, "<polyline"), 3);          /* NaN divides the first into two */
    assert_int_equal(count(text, "<svg"), count(text, "</svg>"));
    assert_int_equal(count(text, "<text"), count(text, "</text>"));
    assert_non_null(strstr(text, "a &lt; b &amp; c"));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));

    double one[] = {7};
    assert_int_equal(
        wb_save_curves("pictures.svg", NULL, NULL, NULL, 1, &(wb_series){"one", 1, one, one}), 0);
    assert_null(strstr(read_file("pictures.svg"), "nan"));

    wb_series strange = {"run\x01", 1, one, one};        /* a character that XML forbids */
    assert_int_equal(
        wb_save_curves("pictures.svg", "caf\xe9 \xef\xbf\xbf", "\x7f", "\xc3\xa9", 1, &strange), 0);
    text = read_file("pictures.svg");
    const char *written[] = {">run\\x01<", ">caf\\xe9 ?<", ">\\x7f<", ">\xc3\xa9<"};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (!strstr(text, written[i])) fail_msg("\"%s\" is not in the picture", written[i]);
    remove("pictures.svg");
}

TEST(test_curves_report_what_is_wrong)
{
    assert_int_equal(wb_save_curves("pictures.svg", "t", "x", "y", 0, NULL), WB_ERROR_ARGUMENT);
    wb_clear_error();
    wb_series empty = {"nothing", 3, NULL, NULL};
    assert_int_equal(wb_save_curves("pictures.svg", "t", "x", "y", 1, &empty), WB_ERROR_ARGUMENT);
    wb_clear_error();
    empty.n = 0;
    assert_int_equal(wb_save_curves("no/such/folder.svg", "t", "x", "y", 1, &empty), WB_ERROR_FILE);
    FAILED(WB_ERROR_FILE, "no/such/folder.svg");
    wb_clear_error();
}

/* Whatever call fails, the older picture is there, whole. */
TEST(test_a_picture_is_whole)
{
    static double x[3000];
    char older[20000];
    for (int i = 0; i < 3000; i++) x[i] = i;
    const wb_series few = {"few", 3, x, x}, many = {"many", 3000, x, x};
    assert_int_equal(wb_save_curves("pictures.svg", "t", "x", "y", 1, &few), 0);
    snprintf(older, sizeof older, "%s", read_file("pictures.svg"));
    for (int i = 1;; i++) {
        wb__io_fail_at(i);
        const int status = wb_save_curves("pictures.svg", "t", "x", "y", 1, &many);
        const bool reached = wb__io_count() >= i;
        wb__io_fail_at(0);
        const char *text = read_file("pictures.svg");
        assert_non_null(strstr(text, "</svg>"));
        if (!reached) {
            assert_true(i > 3);
            assert_int_equal(status, 0);
            assert_int_equal(count(text, ">many<"), 1);
            break;
        }
        if (!strcmp(text, older)) assert_int_equal(status, WB_ERROR_FILE);
        else assert_int_equal(wb_save_curves("pictures.svg", "t", "x", "y", 1, &few), 0);
        wb_clear_error();
    }
    remove("pictures.svg");
}
