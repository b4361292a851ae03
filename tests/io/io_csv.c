/* CSV files: numbers, quotes, labels, and errors that name the position. */
#define WB_NO_MORE                  /* so that a struct may contain options (weber/base.h) */
#include "folder.h"

#include "base/files/file.h"
#include "shared_data.h"

#include <locale.h>

#define CSV(...) WB_OPTIONS_OF_(wb_load_csv_options, __VA_ARGS__)
static char path[96];

static wb_dataset *load(const char *text, wb_load_csv_options o)
{
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
    expect("1,2.5,-3\n4e3,.5,6\n", CSV(), 2, 3, x, NULL);
    expect("1,2.5,-3\r\n4e3,.5,6", CSV(), 2, 3, x, NULL);
    expect("\xef\xbb\xbf"
           "a,b,c\n\n 1 , +2.5,\t-3\n  \n4E+3,\"0.5\",6.\n\n", CSV(.header = true), 2, 3, x, NULL);
    expect("1;2.5;-3\n4e3;.5;6\n", CSV(.separator = ';'), 2, 3, x, NULL);
    expect("1\t2.5\t-3\n4e3\t.5\t6\n", CSV(.separator = '\t'), 2, 3, x, NULL);
    expect("1 2.5 -3\n4e3 .5 6\n", CSV(.separator = ' '), 2, 3, x, NULL);
    expect("3.40282347e+38,NaN,0.1234567890123456789,123456789012345678901234567890,1e-50\n",
           CSV(.missing = WB_MISSING_NAN), 1, 5,
           (double[]){0x1.fffffep127, NAN, 0.1234567890123456789, 123456789012345678901234567890.0,
                      1e-50},
           NULL);
    if (setlocale(LC_ALL, "de_DE.UTF-8"))
        expect("1,2.25,1.5e-7\n", CSV(), 1, 3, (double[]){1, 2.25, 1.5e-7}, NULL);
    setlocale(LC_ALL, "C");
}

TEST(labels)
{
    const double x[] = {1, 2, 3, 4, 5, 6};
    expect("1,2,7\n3,4,0\n5,6,7.0\n", CSV(.label = -1), 3, 2,
           x, (int[]){7, 0, 7});
    expect("b,1,2\na,3,4\nb,5,6\n", CSV(.label = 0), 3, 2, x, (int[]){1, 0, 1});
    expect("1,\"x, y\",2\n3,\"say \"\"z\"\"\",4\n5,\"x, y\",6\n",
           CSV(.label = 1), 3, 2, x, (int[]){1, 0, 1});
    expect("1,\"two\nlines\",2\n3,4,4\n5,4,6\n",
           CSV(.label = 1), 3, 2, x, (int[]){1, 0, 0});
    expect("10,1,2\nred,3,4\n9,5,6\n", CSV(.label = 0), 3, 2, x,
           (int[]){0, 2, 1});           /* the labels are words, though the first is a number */
}

TEST_IN_SCOPE(messages)
{
    const struct {
        const char *text;
        wb_load_csv_options o;
        const char *facts[8];
    } wrong[] = {
        {"", CSV(), {"byte 0", "line 1", "rows"}},
        {"a,b\n", CSV(.header = true), {"byte 4", "line 2", "rows"}},
        {"a,b\n1,2\n", CSV(), {"byte 0", "line 1", "column 1)", "\"a\"", ".header = true"}},
        {"1,2\n\n3,x4\n", CSV(),
         {"byte 7", "line 3", "column 2)", "\"x4\"", "number", ".one_hot = \"*\""}},
        {"1,2\n3,\n", CSV(), {"byte 6", "line 2", "column 2)", "missing", ".missing"}},
        {"1,2\n3\n", CSV(), {"byte 4", "line 2", "1", "columns", "2"}},
        {"1,2\n3,4,5\n", CSV(), {"byte 7", "line 2", "2"}},
        {"1,\"2\n3,4", CSV(), {"byte 2", "line 1", "column 2"}},
        {"1,\"2\"x\n", CSV(), {"byte 5", "line 1", "column 2", "quote"}},
        {"1,0x10\n", CSV(), {"byte 2", "number"}},
        {"1,nan(3)\n", CSV(), {"byte 2", "number"}},
        {"1,--2\n", CSV(), {"byte 2", "number"}},
        {"1,.\n", CSV(), {"byte 2", "number"}},
        {"1,2e\n", CSV(), {"byte 2", "number"}},
        {"1,2\n3,0.5\n", CSV(.label = 1),
         {"byte 6", "line 2", "\"0.5\"", "class", ".label_dtype = WB_F32"}},
        {"1,2\n3,1e10\n", CSV(.label = 1),
         {"byte 6", "line 2", "\"1e10\"", "class", "up to 2147483647"}},
        {"1,2\n3,1e39\n", CSV(), {"byte 6", "line 2, column 2", "\"1e39\"", "too large for f32"}},
        {"a\n1\n-1e300\n", CSV(.header = true), {"line 3, column 1 \"a\"", "too large for f32"}},
        {"1,1e400\n", CSV(.label = -1, .label_dtype = WB_F32),
         {"byte 2", "line 1, column 2", "\"1e400\"", "too large for f32"}},
        {"1,-Infinity\n", CSV(), {"byte 2", "\"-Infinity\" is not finite"}},
        {"a,b\n1e39,x\n2,3\n4,5\n1,inf\n", CSV(.header = true, .one_hot = "*"),
         {"byte 4 (line 2, column 1 \"a\")", "\"1e39\"", "too large for f32"}},
        {"rooms,price\n3,250\n4,NA\n", CSV(.header = true),
         {"byte 20", "line 3, column 2 \"price\"", "\"NA\"", "missing", "WB_MISSING_MEAN"}},
        {"rooms,colour\n3,red\n", CSV(.header = true),
         {"line 2, column 2 \"colour\"", "\"red\"", ".one_hot = \"colour\"", ".skip"}},
        {"1;2;3\n4;5;6\n", CSV(), {"line 1", "','", "';' 2 times", ".separator = ';'"}},
        {"a\tb\n1\t2\n", CSV(.header = true), {"'\\t' 1 times", ".separator = '\\t'"}},
        {"1|2\n", CSV(.label = 0), {"'|'", ".separator = '|'"}},
        {"1,2\n", CSV(.separator = ';'), {"no ';'", "',' 1 times", ".separator = ','"}},
        {"1,5;2\n", CSV(), {"byte 2", "\"5;2\"", "';'", ".separator"}},
        {"1;2,5\n", CSV(.separator = ';'), {"\"2,5\"", "decimal point"}},
        {"1\n2\n", CSV(.label = 0), {"line 1", "no column is left", "1"}},
        {"a,b\n1,2,3\n", CSV(.header = true), {"line 2", "3 columns", "2 names"}},
        {"rooms\n3\n", CSV(.header = false, .one_hot = "*"),
         {"line 2", "column 1", ".header = true"}},
        {"name,2019,2020\nA,1,2\n", CSV(.one_hot = "*"),
         {"byte 0 (line 1, column 1)", "\"name\" is a word", ".header = true", ".header = false"}},
        {"NA,5,colour\n,6,red\n", CSV(.numbered = "*", .missing = WB_MISSING_NAN),
         {"line 1, column 3", "\"colour\" is a word", ".header = true", ".header = false"}},
        {"age,b\n1,x\n-,y\n2,z\n7,NA\n-,\n", CSV(.header = true, .one_hot = "*",
                                                  .missing = WB_MISSING_NAN),
         {"byte 10 (line 3, column 1 \"age\")", "\"-\" is not a number", "3 of 5 cells",
          ".missing_texts", ".one_hot = \"*,age\"", "W0610"}},
        {"2,x\n\"1,5\",y\n3,z\n", CSV(.header = false, .numbered = "*"),
         {"line 2, column 1", "\"1,5\" is not a number", "2 of 3", "decimal point"}},
        {"a,b\n1,NA\n,2\n", CSV(.header = true, .missing = WB_MISSING_DROP), {"no row", "2"}},
        {"a,b\n1,NA\n2,\n", CSV(.header = true, .missing = WB_MISSING_MEAN),
         {"column 2 \"b\"", "no value", ".skip"}},
        {"a,b\n1,x\n", CSV(.label_name = "b", .label_dtype = WB_F32), {"\"x\"", "not a number"}},
        {"1,\n", CSV(.label = 1), {"byte 2", "missing", "WB_MISSING_DROP"}},
    };
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        assert_null(load(wrong[i].text, wrong[i].o));
        if (!failed_with(WB_ERROR_FORMAT, wrong[i].facts) || !HAS_FACTS(wb_error(), path))
            fail_msg("%zu: %s", i, wb_error());
    }
    /* The hint at a line of names is there only if it is right. */
    assert_null(load("1,a\n", CSV()));
    assert_null(strstr(wb_error(), ".header"));
    assert_null(load("1,2\na,b\n", CSV()));
    assert_null(strstr(wb_error(), ".header"));
    /* Nor is there a name without a heading. */
    assert_null(load("1,\n2,NA\n", CSV(.missing = WB_MISSING_MEAN)));
    FAILED(WB_ERROR_FORMAT, "column 2", "no value in the whole column");
    assert_null(strstr(wb_error(), ".skip"));
    REFUSED(load("1,2\n", CSV(.label = 2)), WB_ERROR_ARGUMENT, "label", "2", "2");
    assert_null(load("1,2\n", CSV(.label = -3)));
    assert_null(wb_load_csv(WB_TEST_NOWHERE "/x.csv"));
}

/* Expects x [rows, columns] and, if y is not NULL, y f32 [rows, labels]. */
static void has_values(wb_dataset *d, int64_t rows, int64_t columns, const double *x,
                       int64_t labels, const double *y)
{
    if (!d) fail_msg("%s", wb_error());
    wb_tensor *t[] = {wb_dataset_x(d), wb_dataset_y(d)};
    const double *wanted[] = {x, y};
    for (int k = 0; k < (y ? 2 : 1); k++) {
        const int64_t width = k ? labels : columns;
        assert_int_equal(wb_ndim(t[k]), 2);
        assert_int_equal(wb_dim(t[k], 0), rows);
        assert_int_equal(wb_dim(t[k], 1), width);
        const float *got = wb_data(t[k]);
        for (int64_t i = 0; i < rows * width; i++)
            if (got[i] != (float)wanted[k][i] && !(isnan(got[i]) && isnan(wanted[k][i])))
                fail_msg("%s %lld is %g, not %g", k ? "y" : "x", (long long)i, got[i],
                         wanted[k][i]);
    }
}

static const char houses[] = "id,rooms,colour,price\n"
                             "7,3,red,250.5\n"
                             "8,,blue,300\n"
                             "9,5,NA,410\n"
                             "10,4,red,280\n"
                             "11,12,\"gr\"\"een\",500\n";

TEST_IN_SCOPE(missing_values)
{
    const wb_load_csv_options o = CSV(.label_name = "price", .label_dtype = WB_F32, .skip = "id",
                                      .one_hot = "*");
    const double price[] = {250.5, 300, 410, 280, 500};
    wb_load_csv_options nan = o, mean = o, median = o, drop = o, other = o;
    nan.missing = WB_MISSING_NAN;
    has_values(load(houses, nan), 5, 4,
               (double[]){3, 0, 0, 1, NAN, 1, 0, 0, 5, 0, 0, 0, 4, 0, 0, 1, 12, 0, 1, 0}, 1, price);
    mean.missing = WB_MISSING_MEAN;
    has_values(load(houses, mean), 5, 4,
               (double[]){3, 0, 0, 1, 6, 1, 0, 0, 5, 0, 0, 1, 4, 0, 0, 1, 12, 0, 1, 0}, 1, price);
    median.missing = WB_MISSING_MEDIAN;
    has_values(load(houses, median), 5, 4,
               (double[]){3, 0, 0, 1, 4.5, 1, 0, 0, 5, 0, 0, 1, 4, 0, 0, 1, 12, 0, 1, 0}, 1, price);
    drop.missing = WB_MISSING_DROP;             /* blue is in no row that is left */
    has_values(load(houses, drop), 3, 3, (double[]){3, 0, 1, 4, 0, 1, 12, 1, 0}, 1,
               (double[]){250.5, 280, 500});
    other.missing = WB_MISSING_NAN;
    other.missing_texts = "red,12";             /* also a number; and NA is a word */
    has_values(load(houses, other), 5, 4,
               (double[]){3, 0, 0, 0, NAN, 0, 1, 0, 5, 1, 0, 0, 4, 0, 0, 0, NAN, 0, 0, 1}, 1,
               price);
    /* Texts that are numbers are compared as numbers. */
    has_values(load("rooms,price\n3,1\n-3.00,2\n1.2e1,3\n5,4\n",
                    CSV(.header = true, .missing = WB_MISSING_NAN,
                        .missing_texts = "-3,12,5.0")), 4, 2,
               (double[]){3, 1, NAN, 2, NAN, 3, NAN, 4}, 0, NULL);
    has_values(load("1,inf\n2,3\n", CSV(.missing = WB_MISSING_NAN, .missing_texts = "inf")), 2, 2,
               (double[]){1, NAN, 2, 3}, 0, NULL);
    has_values(load("a,b\n1e999,1\nx,2\n", CSV(.header = true, .one_hot = "*")),
               2, 3, (double[]){1, 0, 1, 0, 1, 2}, 0, NULL);  /* a word, as the next line shows */
    has_values(load("1,NaN\nNULL,?\nnull,4\nN/A,nan\nNone,NAN\n",
                    CSV(.missing = WB_MISSING_NAN)), 5, 2,
               (double[]){1, NAN, NAN, NAN, NAN, 4, NAN, NAN, NAN, NAN}, 0, NULL);
}

TEST_IN_SCOPE(words)
{
    wb_columns *c = NULL;
    has_values(load("size,kind\n1,b\n2,a\n3,b\n",
                    CSV(.header = true, .numbered = "*", .columns = &c)), 3, 2,
               (double[]){1, 1, 2, 0, 3, 1}, 0, NULL);
    assert_int_equal(wb_columns_count(c), 2);
    assert_string_equal(wb_columns_name(c, 1), "kind");
    assert_int_equal(wb_columns_words(c, "kind"), 2);
    assert_int_equal(wb_columns_words(c, "size"), 0);
    assert_string_equal(wb_columns_word(c, "kind", 0), "a");
    REFUSED(wb_columns_word(c, "kind", 2), WB_ERROR_ARGUMENT, "2", "kind");
    REFUSED(wb_columns_word(c, "sort", 0), WB_ERROR_ARGUMENT, "\"sort\"", "\"size\", \"kind\"");
    REFUSED(wb_columns_word(c, NULL, 0), WB_ERROR_ARGUMENT, "label");
    REFUSED(wb_columns_name(c, 2), WB_ERROR_ARGUMENT, "2");
    /* A column has its first word behind numbers; a named one has numbers as words. */
    has_values(load("size,zip,y\n7,20,1\nx,3,0\nx,20,1\n",
                    CSV(.label_name = "y", .one_hot = "*,zip", .columns = &c)),
               3, 4, (double[]){1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0}, 0, NULL);
    assert_string_equal(wb_columns_word(c, "zip", 0), "20");
    assert_string_equal(wb_columns_name(c, 3), "zip");
    assert_int_equal(wb_columns_words(c, NULL), 0);
    /* The same word with and without quotation marks; numbers of words of labels. */
    wb_dataset *d = load("x,y\n1,5\n2,\"5\"\n3,3\n",
                         CSV(.label_name = "y", .numbered = "y", .columns = &c));
    assert_memory_equal(wb_data(wb_dataset_y(d)), ((int[]){1, 1, 0}), 12);
    assert_string_equal(wb_columns_word(c, NULL, 1), "5");
    has_values(load("a,b,c,d\n1,2,3,4\n", CSV(.label_name = "d,b", .label_dtype = WB_F32)), 1, 2,
               (double[]){1, 3}, 2, (double[]){2, 4});
    has_values(load("z,x,y\n1,2,3\n", CSV(.label_name = "y,z", .label_dtype = WB_F32)), 1, 1,
               (double[]){2}, 2, (double[]){1, 3});     /* in the order of the file */
    has_values(load("\"a, b\",c\n1,2\n", CSV(.skip = "\"a, b\"")), 1, 1, (double[]){2}, 0, NULL);
}

TEST_IN_SCOPE(like_another_file)
{
    wb_columns *c = NULL, *same = NULL;
    assert_non_null(load("colour,size,kind\nred,1,b\nblue,4,a\n,1,b\nred,NA,b\n",
                         CSV(.label_name = "kind", .one_hot = "*",
                             .missing = WB_MISSING_MEAN, .columns = &c)));
    char saved[160];
    snprintf(saved, sizeof saved, "%s.columns", path);
    assert_int_equal(wb_save_columns(saved, c), 0);
    wb_columns *read = wb_load_columns(saved);
    for (int k = 0; k < 2; k++) {
        wb_columns *of = k ? read : c;
        /* Another order, a further column, a new word, missing values, no blue. */
        wb_dataset *d = load("kind;what;size;colour\nb;1;7;green\na;2;;red\n",
                             CSV(.like = of, .separator = ';', .columns = &same));
        has_values(d, 2, 3, (double[]){0, 1, 7, 0, 1, 2}, 0, NULL);
        assert_memory_equal(wb_data(wb_dataset_y(d)), ((int[]){1, 0}), 8);
        assert_ptr_equal(same, of);
        d = load("size,colour\n7,blue\n", CSV(.like = of));
        has_values(d, 1, 3, (double[]){1, 0, 7}, 0, NULL);
        assert_true(wb_is_none(wb_dataset_y(d)));
        REFUSED(load("size,kind\n7,b\n", CSV(.like = of)), WB_ERROR_FORMAT, "\"colour\"", ".like");
        assert_null(load("size,colour,size\n7,red,8\n", CSV(.like = of)));
        FAILED(WB_ERROR_FORMAT, "\"size\"", "twice");
        assert_null(load("colour,size,kind\nred,1,c\n", CSV(.like = of)));
        FAILED(WB_ERROR_FORMAT, "line 2, column 3 \"kind\"", "\"c\"", ".like");
        assert_null(load("colour,size\nred,big\n", CSV(.like = of)));
        FAILED(WB_ERROR_FORMAT, "column 2 \"size\"", "\"big\"", ".like");
        const wb_load_csv_options beside[] = {CSV(.header = true), CSV(.label_dtype = WB_I32),
                                              CSV(.label_dtype = WB_F32),
                                              CSV(.missing_texts = "-")};
        for (size_t i = 0; i < WB__COUNT(beside); i++) {
            wb_load_csv_options o = beside[i];
            o.like = of;
            REFUSED(load("size,colour\n7,red\n", o), WB_ERROR_ARGUMENT, "options beside .like");
        }
        assert_non_null(load("size,colour\n7,red\n", CSV(.like = of, .separator = ',')));
        REFUSED(load("kind,size,colour\n,7,red\n", CSV(.like = of)), WB_ERROR_FORMAT,
                "line 2, column 1 \"kind\"", "a value is missing", "without WB_MISSING_DROP");
    }
    /* Without names. */
    assert_non_null(load("1,2,b\n3,4,a\n", CSV(.label = -1, .columns = &c)));
    has_values(load("5,6\n", CSV(.like = c)), 1, 2, (double[]){5, 6}, 0, NULL);
    assert_true(wb_at(wb_dataset_y(load("5,6,b\n", CSV(.like = c))), 0) == 1);
    REFUSED(load("5,6,7,b\n", CSV(.like = c)), WB_ERROR_FORMAT, "4 columns", "has 3");
    REFUSED(load("5,NA\n", CSV(.like = c)), WB_ERROR_FORMAT, "missing", "without .missing");
    char *text = wb_object_format(c);
    assert_true(HAS_FACTS(text, "2 of x", "numbers", "classes a, b"));
    wb_free_text(text);
}

TEST_IN_SCOPE(names_that_are_there_twice)
{
    wb_columns *c = NULL;
    assert_non_null(load("a,a,y\n1,2,0\n", CSV(.header = true, .label = -1, .columns = &c)));
    has_values(load("a,a,y\n5,6,0\n", CSV(.like = c)), 1, 2, (double[]){5, 6}, 0, NULL);
    has_values(load("a,a\n5,6\n", CSV(.like = c)), 1, 2, (double[]){5, 6}, 0, NULL);
    static const char *const others[] = {"b,a,a\n9,5,6\n", "a,a,b\n5,6,9\n", "a,y\n5,0\n",
                                         "y,a,a\n0,5,6\n"};
    for (size_t i = 0; i < WB__COUNT(others); i++) {
        assert_null(load(others[i], CSV(.like = c)));
        FAILED(WB_ERROR_FORMAT, "line 1, column", "\"a\"", ".like has this name twice");
        wb_clear_error();
    }
    assert_non_null(load("a,b,c\n1,2,3\n", CSV(.skip = "b", .columns = &c)));
    has_values(load("b,c,b,a\n1,2,3,4\n", CSV(.like = c)), 1, 2,
               (double[]){4, 2}, 0, NULL);     /* what is left out may be there twice */
}

TEST_IN_SCOPE(columns_after_a_failure)
{
    wb_columns *const before = (wb_columns *)path, *c = before;     /* any address */
    assert_null(load("1,2\n", CSV(.label = 1, .label_name = "a", .columns = &c)));
    assert_null(c);                             /* options that exclude each other */
    c = before;
    assert_null(load("1,x\n", CSV(.columns = &c)));
    assert_null(c);
    c = before;
    assert_null(wb_load_csv(WB_TEST_NOWHERE "/x.csv", .columns = &c));
    assert_null(c);
    c = before;
    wb_load_csv_options bare = CSV(.columns = &c);
    bare.given = NULL;
    REFUSED(load("1,2\n", bare), WB_ERROR_ARGUMENT, "load_csv", "WB_OPTIONS_OF");
    assert_null(c);
    assert_non_null(load("1,2\n", CSV(.columns = &c)));
    wb_columns *const good = c;
    assert_null(load("1,x\n", CSV(.like = c, .columns = &c)));
    assert_ptr_equal(c, good);
    assert_null(load("1,2\n", CSV(.header = true, .like = c, .columns = &c)));
    assert_ptr_equal(c, good);
    has_values(load("3,4\n", CSV(.like = c, .columns = &c)), 1, 2, (double[]){3, 4}, 0, NULL);
    assert_ptr_equal(c, good);
}

TEST_IN_SCOPE(columns_without_a_word)
{
    wb_columns *c = NULL;
    char saved[160];
    snprintf(saved, sizeof saved, "%s.columns", path);
    const wb_load_csv_options o = CSV(.one_hot = "b", .numbered = "c", .missing = WB_MISSING_NAN,
                                      .columns = &c);
    has_values(load("a,b,c\n1,NA,\n2,,\n", o), 2, 2, (double[]){1, NAN, 2, NAN}, 0, NULL);
    assert_int_equal(wb_save_columns(saved, c), 0);
    wb_columns *read = wb_load_columns(saved);
    if (!read) fail_msg("%s", wb_error());
    has_values(load("a,b,c\n3,new,\n", CSV(.like = read)), 1, 2, (double[]){3, NAN}, 0, NULL);
    assert_null(load("b\nNA\n", CSV(.one_hot = "b", .missing = WB_MISSING_NAN)));
    FAILED(WB_ERROR_FORMAT, "x has no column", "no column of words has a word");
    remove(saved);
}

TEST_IN_SCOPE(files_of_columns)
{
    wb_columns *c = NULL;
    char saved[160];
    snprintf(saved, sizeof saved, "%s.columns", path);
    assert_non_null(load("\"a,\"\"1\"\"\",b,c,d\n0.1,\"x\ny\",\"\"\"q\",1\n,z,\xff,2\n",
                         CSV(.label_name = "c", .one_hot = "b", .skip = "d",
                             .missing = WB_MISSING_MEDIAN,
                             .missing_texts = "-,\"a\"\"b\"",
                             .columns = &c)));
    if (setlocale(LC_ALL, "de_DE.UTF-8")) puts("  with the locale de_DE");
    assert_int_equal(wb_save_columns(saved, c), 0);
    wb_columns *read = wb_load_columns(saved);
    setlocale(LC_ALL, "C");
    if (!read) fail_msg("%s", wb_error());
    assert_shown_alike(c, read);
    assert_string_equal(wb_columns_word(read, NULL, 0), "\"q");
    assert_string_equal(wb_columns_word(read, NULL, 1), "\xff");
    has_values(load("\"a,\"\"1\"\"\",b\n-,\"a\"\"b\"\n", CSV(.like = read)), 1, 3,
               (double[]){0.1, 1, 0}, 0, NULL);
    /* Each prefix and each changed byte of a file is read or refused. */
    int64_t n;
    char *text = wb__file_read(saved, &n);
    for (int64_t i = 0; i < n; i++)
        for (int change = 0; change < 3; change++) {
            const char was = text[i];
            text[i] = (char)(change == 1 ? was ^ 1 : change == 2 ? ',' : was);
            put_file(saved, text, (size_t)(change ? n : i));
            wb_scope *s = wb_scope_open();
            wb_columns *other = wb_load_columns(saved);
            if (other) load("b\nz\n", CSV(.like = other));
            wb_scope_close(s);
            text[i] = was;
        }
    wb__free(text);
    static const char *const wrong[] = {
        "", "weber columns,2,\n", "1,2,3\n",
        "weber columns,1,\nheader,no,\nmissing,nan,\nmissing texts,,\nlabel,classes,\n",
        "weber columns,1,\nheader,no,\nmissing,nan,\nmissing texts,,\nlabel,classes,\nword,a,\n",
        "weber columns,1,\nheader,no,\nmissing,nan,\nmissing texts,,\nlabel,classes,\n"
        "numbered,,3\nword,a,\n",
        "weber columns,1,\nheader,no,\nmissing,nan,\nmissing texts,,\nlabel,classes,\n"
        "numbered,,\nword,a,\nword,a,\n",
        "weber columns,1,\nheader,no,\nmissing,nan,\nmissing texts,,\nlabel,numbers,\n"
        "numbers,,\nclasses,,\nword,a,\n",
        "weber columns,1,\nheader,no,\nmissing,nan,\nmissing texts,,\nlabel,classes,\n"
        "numbers,,1e39\n",
    };
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        put_file(saved, wrong[i], strlen(wrong[i]));
        REFUSED(wb_load_columns(saved), WB_ERROR_FORMAT, saved);
    }
    put_file(saved, "", 0);
    REFUSED(wb_load_columns(WB_TEST_NOWHERE "/columns"), WB_ERROR_FILE, WB_TEST_NOWHERE "/columns");
    remove(saved);
}

TEST_IN_SCOPE(options_that_do_not_fit)
{
    const struct {
        wb_load_csv_options o;
        const char *facts[4];
    } wrong[] = {
        {CSV(.label_name = "c"), {"label_name", "\"c\"", "\"a\", \"b\""}},
        {CSV(.skip = "a,x"), {".skip", "\"x\""}},
        {CSV(.skip = "a", .label_name = "a"), {"\"a\"", "twice"}},
        {CSV(.label_name = "a", .one_hot = "a"), {".one_hot", "\"a\"", "label"}},
        {CSV(.one_hot = "a", .numbered = "a"), {".numbered", "\"a\"", "twice"}},
        {CSV(.label_name = "a", .label = 0), {".label = 0", ".label_name"}},
        {CSV(.label = 0, .label_dtype = WB_F64), {".label_dtype", "f64"}},
        {CSV(.missing = (wb_missing)9), {".missing", "9"}},
        {CSV(.separator = '"'), {".separator"}},
    };
    for (size_t i = 0; i < WB__COUNT(wrong); i++) {
        wb_clear_error();
        assert_null(load("a,b\n1,2\n", wrong[i].o));
        if (!failed_with(WB_ERROR_ARGUMENT, wrong[i].facts)) fail_msg("%zu: %s", i, wb_error());
    }
    REFUSED(load("a,a\n1,2\n", CSV(.label_name = "a")), WB_ERROR_ARGUMENT, "1", "2", "\"a\"");
    REFUSED(wb_load_csv(path, .like = NULL), WB_ERROR_ARGUMENT, "like");
}

TEST_IN_SCOPE(hostile_words)
{
    enum { ROWS = 1200, LONG = 1 << 20 };
    char *text = malloc(LONG + 64), *at = text;
    for (int i = 0; i < ROWS; i++) at += sprintf(at, "w%d,1\n", i);
    assert_null(load(text, CSV(.header = false, .one_hot = "*")));
    FAILED(WB_ERROR_FORMAT, "line 1001", "more than 1000 words", ".numbered");
    assert_null(strstr(wb_error(), ".skip"));
    assert_non_null(load(text, CSV(.header = false, .numbered = "*")));
    at = text + sprintf(text, "n\n");
    for (int i = 0; i < ROWS; i++) at += sprintf(at, i == 7 ? "None7\n" : "%d\n", i);
    assert_null(load(text, CSV(.header = true, .one_hot = "*")));
    FAILED(WB_ERROR_FORMAT, "line 9, column 1 \"n\"", "\"None7\" is not a number, as 1000 of 1001");
    memset(text, 'a', LONG);
    strcpy(text + LONG, ",1\nb,2\n");
    wb_columns *c = NULL;
    assert_non_null(load(text, CSV(.label = 0, .columns = &c)));
    assert_int_equal(strlen(wb_columns_word(c, NULL, 0)), LONG);
    assert_null(load(text, CSV()));
    assert_true(strlen(wb_error()) < 600);
    put_file(path, "a\0b,1\n", 6);
    assert_null(wb_load_csv(path, .one_hot = "*", .header = false));
    FAILED(WB_ERROR_FORMAT, "line 1", "byte 0");
    free(text);
}

TEST(every_length_and_every_byte)
{
    static const char text[] = "a,b,\"c\"\n1,2.5e1,\"x\"\n-3,4,y\r\n\n5,6,\"z\"\"\"\n";
    wb_load_csv_options o = WB_OPTIONS_OF(wb_load_csv_options, .header = true, .label = -1);
    for (size_t cut = 0; cut < sizeof text; cut++) IN_SCOPE {
        put_file(path, text, cut);
        wb_load_csv_with(path, &o);
    }
    for (size_t at = 0; at < sizeof text - 1; at++)
        for (int value = 0; value < 256; value++) IN_SCOPE {
            char hurt[sizeof text];
            memcpy(hurt, text, sizeof text);
            hurt[at] = (char)value;
            put_file(path, hurt, sizeof text - 1);
            wb_dataset *d = wb_load_csv_with(path, &o);
            assert_true(!d || wb_dataset_length(d) <= 5);
        }
}

TEST(every_allocation_may_fail)
{
    bool finished = false;
    char saved[160];
    snprintf(saved, sizeof saved, "%s.columns", path);
    for (int64_t n = 1; !finished; n++) {
        wb_scope *s = wb_scope_open();
        wb__alloc_fail_at(n);
        wb_columns *c = NULL, *read = NULL;
        wb_dataset *d = load("p,q,r,s\n,2,a,y\n3,x,b,z\n",
                             CSV(.label_name = "s", .one_hot = "q,*", .skip = "r",
                                 .missing = WB_MISSING_MEDIAN, .columns = &c));
        if (d && !wb_save_columns(saved, c)) read = wb_load_columns(saved);
        if (read) read = load("q,p\n1,2\n", CSV(.like = read)) ? read : NULL;
        if (!read) d = NULL;
        finished = wb__alloc_count() < n;
        wb__alloc_fail_at(0);
        assert_true(finished == (d != NULL));
        if (!d) assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
        wb_scope_close(s);
    }
    remove(saved);
}

static void count_reports(wb_log_level level, const char *text, void *n)
{
    *(int *)n += HAS_LINE(text, path, "column 2", "30 different", "30 rows", ".skip");
}

TEST_IN_SCOPE(many_classes_are_fast)
{
    int reports = 0;
    enum { ROWS = 200000 };
    char *text = malloc(ROWS * 12), *at = text;
    for (int i = 0; i < ROWS; i++) at += sprintf(at, "%d,n%d\n", i % 10, i);
    put_file(path, text, (size_t)(at - text));
    double start = wb__now();
    wb_dataset *d = wb_load_csv(path, .label = -1);
    assert_true(wb__now() - start < 5);
    assert_true(wb_at(wb_dataset_y(d), 0) == 0 && wb_at(wb_dataset_y(d), ROWS - 1) == 111111);
    put_file(path, text, 10 * 5 + 20 * 6);      /* the first 30 rows */
    wb_set_log(count_reports, &reports);
    MADE(wb_load_csv(path, .one_hot = "*", .header = false));
    wb_set_log(NULL, NULL);
    assert_int_equal(reports, 1);
    free(text);
}

TEST_IN_SCOPE(real_files)
{
    char digits[512], iris[512];
    if (!shared_file(digits, sizeof digits, "digits/digits.csv.gz") ||
        !shared_file(iris, sizeof iris, "digits/iris.csv"))
        skip();
    wb_dataset *d;
    MADE(d = wb_load_csv(digits, .label = -1));
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[1797,64] f32");
    assert_true(wb_at(wb_dataset_y(d), 0) == 0 && wb_at(wb_dataset_y(d), 1) == 1 &&
                wb_at(wb_dataset_x(d), 0, 2) == 5);
    MADE(d = wb_load_csv(iris, .header = true, .label = -1));
    assert_string_equal(wb_describe(wb_dataset_x(d)), "[150,4] f32");
    assert_true(wb_at(wb_dataset_y(d), 149) == 2 && wb_at(wb_dataset_x(d), 1, 0) == (double)4.9f);
}

static int make(void **state)
{
    if (make_folder(state)) return 1;
    snprintf(path, sizeof path, "%s/a.csv", folder);
    return 0;
}

int main(void) { return run_cases(make, remove_folder); }
