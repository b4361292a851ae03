/* CSV files: numbers, quotes, labels, and errors that name the position. */
#define WB_NO_MORE                  /* so that a struct may contain options (weber/base.h) */
#include "folder.h"

#include "base/files/file.h"
#include "shared_data.h"

#include <locale.h>

static char path[96];

static wb_dataset *load(const char *text, wb_load_csv_options o)
{
    o.size = sizeof o;
    put_file(path, text, strlen(text));
    return wb_load_csv_with(path, &o);
}

static void expect(const char *text, wb_load_csv_options o, int64_t rows, int64_t columns,
                   const double *x, const int *y)
{
    wb_scope *s = wb_scope_open();
    wb_dataset *d = load(text, o);
    if (!d) fail_msg("%s", wb_error());
    wb_tensor *all = wb_dataset_x(d), *labels = wb_dataset_y(d);
    assert_int_equal(wb_ndim(all), 2);
    assert_int_equal(wb_dim(all, 0), rows);
    assert_int_equal(wb_dim(all, 1), columns);
    const float *got = wb_data(all);
    for (int64_t i = 0; i < rows * columns; i++)
        if (!(got[i] == (float)x[i] || (isnan(got[i]) && isnan(x[i]))))
            fail_msg("%s: %g is not %g", text, got[i], x[i]);
    assert_int_equal(wb_is_none(labels), y == NULL);
    if (y) assert_memory_equal(wb_data(labels), y, (size_t)rows * sizeof *y);
    wb_scope_close(s);
}

TEST(tables)
{
    const double x[] = {1, 2.5, -3, 4e3, 0.5, 6};
    expect("1,2.5,-3\n4e3,.5,6\n", (wb_load_csv_options){0}, 2, 3, x, NULL);
    expect("1,2.5,-3\r\n4e3,.5,6", (wb_load_csv_options){0}, 2, 3, x, NULL);
    expect("\xef\xbb\xbf"
           "a,b,c\n\n 1 , +2.5,\t-3\n  \n4E+3,\"0.5\",6.\n\n",
           (wb_load_csv_options){.header = true}, 2, 3, x, NULL);
    expect("1;2.5;-3\n4e3;.5;6\n", (wb_load_csv_options){.separator = ';'}, 2, 3, x, NULL);
    expect("1\t2.5\t-3\n4e3\t.5\t6\n", (wb_load_csv_options){.separator = '\t'}, 2, 3, x, NULL);
    expect("1 2.5 -3\n4e3 .5 6\n", (wb_load_csv_options){.separator = ' '}, 2, 3, x, NULL);
    expect("1e400,-inf,NaN,0.1234567890123456789,123456789012345678901234567890,1e-50\n",
           (wb_load_csv_options){0}, 1, 6,
           (double[]){INFINITY, -INFINITY, NAN, 0.1234567890123456789,
                      123456789012345678901234567890.0, 1e-50},
           NULL);
    if (setlocale(LC_ALL, "de_DE.UTF-8"))
        expect("1,2.25,1.5e-7\n", (wb_load_csv_options){0}, 1, 3, (double[]){1, 2.25, 1.5e-7},
               NULL);
    setlocale(LC_ALL, "C");
}

TEST(labels)
{
    const double x[] = {1, 2, 3, 4, 5, 6};
    expect("1,2,7\n3,4,0\n5,6,7.0\n", (wb_load_csv_options){.has_label = true, .label = -1}, 3, 2,
           x, (int[]){7, 0, 7});
    expect("b,1,2\na,3,4\nb,5,6\n", (wb_load_csv_options){.has_label = true}, 3, 2, x,
           (int[]){0, 1, 0});
    expect("1,\"x, y\",2\n3,\"say \"\"z\"\"\",4\n5,\"x, y\",6\n",
           (wb_load_csv_options){.has_label = true, .label = 1}, 3, 2, x, (int[]){0, 1, 0});
    expect("1,\"two\nlines\",2\n3,4,4\n5,4,6\n",
           (wb_load_csv_options){.has_label = true, .label = 1}, 3, 2, x, (int[]){0, 1, 1});
    expect("1\n2\n", (wb_load_csv_options){.has_label = true}, 2, 0, x, (int[]){1, 2});
}

TEST(messages)
{
    static const struct {
        const char *text;
        wb_load_csv_options o;
        const char *facts[6];
    } wrong[] = {
        {"", {0}, {"byte 0", "line 1", "rows"}},
        {"a,b\n", {.header = true}, {"byte 4", "line 2", "rows"}},
        {"a,b\n1,2\n", {0}, {"byte 0", "line 1", "column 0", "\"a\"", "number"}},
        {"1,2\n\n3,x4\n", {0}, {"byte 7", "line 3", "column 1", "\"x4\"", "number"}},
        {"1,2\n3,\n", {0}, {"byte 6", "line 2", "column 1", "number"}},
        {"1,2\n3\n", {0}, {"byte 4", "line 2", "1", "columns", "2"}},
        {"1,2\n3,4,5\n", {0}, {"byte 7", "line 2", "2"}},
        {"1,\"2\n3,4", {0}, {"byte 2", "line 1", "column 1"}},
        {"1,\"2\"x\n", {0}, {"byte 5", "line 1", "column 1", "quote"}},
        {"1,0x10\n", {0}, {"byte 2", "number"}},
        {"1,nan(3)\n", {0}, {"byte 2", "number"}},
        {"1,--2\n", {0}, {"byte 2", "number"}},
        {"1,.\n", {0}, {"byte 2", "number"}},
        {"1,2e\n", {0}, {"byte 2", "number"}},
        {"1,2\n3,0.5\n", {.has_label = true, .label = 1}, {"byte 6", "\"0.5\"", "class"}},
        {"1,2\n3,1e10\n", {.has_label = true, .label = 1}, {"byte 6", "class"}},
        {"1,\n", {.has_label = true, .label = 1}, {"byte 2", "label"}},
    };
    wb_scope *s = wb_scope_open();
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        assert_null(load(wrong[i].text, wrong[i].o));
        if (!failed_with(WB_ERROR_FORMAT, wrong[i].facts) || !HAS_FACTS(wb_error(), path))
            fail_msg("%zu: %s", i, wb_error());
    }
    assert_null(load("1,2\n", (wb_load_csv_options){.has_label = true, .label = 2}));
    FAILED(WB_ERROR_ARGUMENT, "label", "2", "2");
    assert_null(load("1,2\n", (wb_load_csv_options){.has_label = true, .label = -3}));
    assert_null(wb_load_csv("/nonexistent.csv"));
    wb_scope_close(s);
}

TEST(every_length_and_every_byte)
{
    static const char text[] = "a,b,\"c\"\n1,2.5e1,\"x\"\n-3,4,y\r\n\n5,6,\"z\"\"\"\n";
    wb_load_csv_options o = {.size = sizeof o, .header = true, .has_label = true, .label = -1};
    for (size_t cut = 0; cut < sizeof text; cut++) {
        put_file(path, text, cut);
        wb_scope *s = wb_scope_open();
        wb_load_csv_with(path, &o);
        wb_scope_close(s);
    }
    for (size_t at = 0; at < sizeof text - 1; at++)
        for (int value = 0; value < 256; value++) {
            char hurt[sizeof text];
            memcpy(hurt, text, sizeof text);
            hurt[at] = (char)value;
            put_file(path, hurt, sizeof text - 1);
            wb_scope *s = wb_scope_open();
            wb_dataset *d = wb_load_csv_with(path, &o);
            assert_true(!d || wb_dataset_length(d) <= 5);
            wb_scope_close(s);
        }
}

TEST(every_allocation_may_fail)
{
    bool finished = false;
    for (int64_t n = 1; !finished; n++) {
        wb_scope *s = wb_scope_open();
        wb__alloc_fail_at(n);
        wb_dataset *d = load("1,2,a\n3,4,b\n",
                             (wb_load_csv_options){.has_label = true, .label = -1});
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        assert_true(finished == (d != NULL));
        if (!d) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
        wb_scope_close(s);
    }
}

TEST_IN_SCOPE(many_classes_are_fast)
{
    enum { ROWS = 200000 };
    char *text = malloc(ROWS * 12), *at = text;
    for (int i = 0; i < ROWS; i++) at += sprintf(at, "%d,n%d\n", i % 10, i);
    put_file(path, text, (size_t)(at - text));
    free(text);
    double start = wb__now();
    wb_dataset *d = wb_load_csv(path, .has_label = true, .label = -1);
    assert_true(wb__now() - start < 5);
    assert_true(wb_at(wb_dataset_y(d), ROWS - 1) == ROWS - 1);
}

TEST(real_files)
{
    char digits[512], iris[512];
    if (!shared_file(digits, sizeof digits, "digits/digits.csv.gz") ||
        !shared_file(iris, sizeof iris, "digits/iris.csv"))
        skip();
    wb_scope *s = wb_scope_open();
    wb_dataset *d = wb_load_csv(digits, .has_label = true, .label = -1);
    if (!d) fail_msg("%s", wb_error());
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[1797,64] f32");
    assert_true(wb_at(wb_dataset_y(d), 0) == 0 && wb_at(wb_dataset_y(d), 1) == 1 &&
                wb_at(wb_dataset_x(d), 0, 2) == 5);
    d = wb_load_csv(iris, .header = true, .has_label = true, .label = -1);
    if (!d) fail_msg("%s", wb_error());
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[150,4] f32");
    assert_true(wb_at(wb_dataset_y(d), 149) == 2 && wb_at(wb_dataset_x(d), 1, 0) == (double)4.9f);
    wb_scope_close(s);
}

static int make(void **state)
{
    if (make_folder(state)) return 1;
    snprintf(path, sizeof path, "%s/a.csv", folder);
    return 0;
}

int main(void) { return run_cases(make, remove_folder); }
