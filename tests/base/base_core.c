/* The base layer: errors, the allocator, the pool, the log.  See base_dtype.c and base_philox.c
 * for dtypes and random numbers. */
#include "test.h"

#include "base/base.h"
#include "base/environment.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

TEST(values_of_variables_that_are_refused_have_no_effect)
{
    static const struct { const char *name, *value; double number; } numbers[] = {
        {"WEBER_NUM_THREADS", "8", 8}, {"WEBER_NUM_THREADS", "1e1", 10},
        {"WEBER_NUM_THREADS", "8,4", -7}, {"WEBER_NUM_THREADS", "2.5", -7},
        {"WEBER_NUM_THREADS", "0", -7}, {"WEBER_NUM_THREADS", "", -7},
        {"WEBER_NUM_THREADS", "8 threads", -7}, {"WEBER_NUM_THREADS", "inf", -7},
        {"WEBER_GPU_TIMING", "2.5", 2.5}, {"WEBER_GPU_TIMING", "-1", -7},
    };
    static const struct { const char *value; bool off, on; } switches[] = {
        {"0", false, false}, {"1", true, true}, {"", false, true}, {"yes", false, true},
        {"true", false, true}, {"10", false, true}, {"off", false, true},
    };
    char why[320];
    for (size_t i = 0; i < WB__COUNT(numbers); i++) {
        const char *name = numbers[i].name;
        setenv(name, numbers[i].value, 1);
        assert_true(wb__environment_number(name, -7) == numbers[i].number);
        assert_int_equal(wb__environment_takes(name, numbers[i].value, why, sizeof why),
                         numbers[i].number >= 0 || !*numbers[i].value);
        unsetenv(name);
        assert_true(wb__environment_number(name, -7) == -7);
    }
    for (size_t i = 0; i < WB__COUNT(switches); i++) {
        const char *name = "WEBER_DETERMINISTIC", *value = switches[i].value;
        setenv(name, value, 1);
        assert_int_equal(wb__environment_switch(name, false), switches[i].off);
        assert_int_equal(wb__environment_switch(name, true), switches[i].on);
        assert_int_equal(wb__environment_takes(name, value, why, sizeof why),
                         switches[i].off == switches[i].on || !*value);
        unsetenv(name);
    }
    assert_false(wb__environment_takes("WEBER_DEBUG", "plan, chek ,all", why, sizeof why));
    assert_true(wb__begins(why, "WEBER_DEBUG has \"chek\", which has no effect: it is a list"));
    assert_true(wb__environment_takes("WEBER_DEBUG", " plan,,check ", why, sizeof why));
    assert_true(wb__environment_takes("WEBER_CACHE_DIR", "any text", why, sizeof why));
}

TEST(errors_travel)
{
    wb_clear_error();
    assert_string_equal(wb_error(), "");
    assert_int_equal(wb_error_code(), WB_OK);
    assert_int_equal(wb__fail(WB_ERROR_SHAPE, "sizes %d and %d", 3, 4), WB_ERROR_SHAPE);
    assert_string_equal(wb_error(), "sizes 3 and 4 (W0200)");
    assert_null(wb__fail_null(WB_ERROR_FILE, "loading: %s", wb_error()));
    assert_string_equal(wb_error(), "loading: sizes 3 and 4 (W0200)");
    assert_int_equal(wb_error_code(), WB_ERROR_FILE);

    char huge[20000];
    memset(huge, 'x', sizeof huge - 1);
    huge[sizeof huge - 1] = 0;
    wb__fail(WB_ERROR_ARGUMENT, "%s", huge);
    size_t n = strlen(wb_error());
    assert_true(n > 1000 && n < sizeof huge);
    assert_string_equal(wb_error() + n - 11, "... (W0400)");
    wb__fail(WB_ERROR_MEMORY, NULL);
    assert_string_equal(wb_error(), "out of memory (W0100)");
}

/* The page of a message follows from its status and format; see tests/errors.py. */
TEST(messages_name_their_page)
{
    static const struct { int status; const char *format, *expected; } cases[] = {
        {WB_ERROR_SHAPE, "x: shapes do not broadcast: a", "W0201"},
        {WB_ERROR_DTYPE, "x: shapes do not broadcast: a", "W0300"},
        {WB_ERROR_INTERNAL, "x", "W1100"},
    };
    char expected[64];
    for (size_t i = 0; i < WB__COUNT(cases); i++) {
        snprintf(expected, sizeof expected, "%s (%s)", cases[i].format, cases[i].expected);
        wb__fail(cases[i].status, cases[i].format, "");
        assert_string_equal(wb_error(), expected);
    }
    /* what is inserted does not matter, unless it is a message with a page */
    wb__fail(WB_ERROR_SHAPE, "%s", "shapes do not broadcast");
    assert_string_equal(wb_error(), "shapes do not broadcast (W0200)");
    wb__fail(WB_ERROR_FILE, "%s (W201) (W12345)", "a");
    assert_string_equal(wb_error(), "a (W201) (W12345) (W0500)");
    /* a message that quotes others */
    wb__fail(WB_ERROR_SHAPE, "x: shapes do not broadcast");
    wb__fail(WB_ERROR_ARGUMENT, "batch 3: %s; and so on", wb_error());
    assert_string_equal(wb_error(), "batch 3: x: shapes do not broadcast; and so on (W0201)");
    wb__fail(WB_ERROR_ARGUMENT, "the log %s is closed: %s", "a", wb_error());
    assert_true(strstr(wb_error(), "so on (W0420)") && !strstr(wb_error(), "W0201"));
    wb__failed_in("layers", "3");
    assert_true(!strncmp(wb_error(), "layers.3: the log", 17) && strstr(wb_error(), "(W0420)"));
    /* those of the program */
    wb_fail(WB_ERROR_SHAPE, "mine: %d", 3);
    assert_string_equal(wb_error(), "mine: 3");
    wb__fail(WB_ERROR_SHAPE, "x: shapes do not broadcast");
    wb_fail(WB_ERROR_NUMBER, "mine: %s", wb_error());
    assert_string_equal(wb_error(), "mine: x: shapes do not broadcast (W0201)");
}

/* The functions of test.h that check messages, which all tests use. */
TEST(facts_of_a_message)
{
    const char *text = "sum: no axis 2 in [2,3] f32\n  \"layers.12.bias\", [2] f64, -1.5";
    assert_true(HAS_FACTS(text, "sum", "2", "[2,3] f32", "\"layers.12.bias\"", "[2] f64", "-1.5"));
    assert_true(HAS_FACTS(text, "axis", "f32", "f64", "3", "2", "2"));
    static const char *const absent[] = {"ax",   "12",     "1",  "1.5",    "5",
                                         "bias", "layers", "32", "[2] f6", "layers.12"};
    for (size_t i = 0; i < WB__COUNT(absent); i++) assert_false(HAS_FACTS(text, absent[i]));
    assert_false(HAS_FACTS(text, "sum", "sum"));
    assert_false(HAS_FACTS(text, "3", "[2,3]"));
    assert_true(HAS_LINE(text, "f64", "[2]") && HAS_LINE(text, "f32", "sum"));
    assert_false(HAS_LINE(text, "f64", "sum"));
    assert_int_equal(lines_of(text), 2);
    assert_true(is_like("a: 1 b\nc", "a:*\nc") && is_like("abc", "*") && is_like("", "*"));
    assert_false(is_like("a: 1\nb\nc", "a:*\nc") || is_like("abc", "ab") || is_like("ab", "*c"));
    wb__fail(WB_ERROR_SHAPE, "sum: no axis 2");
    assert_true(failed_with(WB_ERROR_SHAPE, FACTS("sum", "2")));
    assert_false(failed_with(WB_ERROR_DTYPE, FACTS("sum", "2")));
    assert_false(failed_with(WB_ERROR_SHAPE, FACTS("sum", "3")));
}

static void *fail_elsewhere(void *unused)
{
    wb__fail(WB_ERROR_NUMBER, "another thread's");
    return NULL;
}

TEST(errors_belong_to_their_thread)
{
    wb__fail(WB_ERROR_SHAPE, "mine");
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, fail_elsewhere, NULL), 0);
    pthread_join(t, NULL);
    assert_string_equal(wb_error(), "mine (W0200)");
}

TEST(memory_is_counted)
{
    int64_t before = wb_memory_used();
    char *a = wb__alloc(1000);
    assert_int_equal((uintptr_t)a % 16, 0);
    assert_true(wb_memory_used() >= before + 1000);
    a = wb__realloc(a, 5000);
    memset(a, 1, 5000);
    assert_true(wb_memory_used() >= before + 5000 && wb_memory_peak() >= before + 5000);
    for (size_t n = 1; n < 300; n += 7) {
        char *b = wb__alloc_aligned(n);
        assert_int_equal((uintptr_t)b % 64, 0);
        memset(b, 2, n);
        wb__free(b);
    }
    char *z = wb__alloc_zero(100, 8);
    for (int i = 0; i < 800; i++) assert_int_equal(z[i], 0);
    wb__free(z);
    wb__free(a);
    wb__free(NULL);
    char *text = wb__printf("%s-%d", "layer", 7), *copy = wb__strdup(text);
    assert_string_equal(copy, "layer-7");
    wb__free(text);
    wb__free(copy);
    assert_int_equal(wb_memory_used(), before);
}

TEST(impossible_sizes_fail)
{
    wb_clear_error();
    assert_null(wb__alloc(SIZE_MAX));
    assert_int_equal(wb_error_code(), WB_ERROR_MEMORY);
    assert_null(wb__alloc_aligned(SIZE_MAX - 20));
    assert_null(wb__alloc_zero(SIZE_MAX / 2, 3));
    void *a = wb__alloc(8);
    assert_null(wb__realloc(a, SIZE_MAX - 3));
    wb__free(a);
}

TEST(the_nth_allocation_fails)
{
    void *warm = wb__pool_get(100);
    wb__pool_put(warm, 100);
    wb__alloc_fail_at(3);
    void *a = wb__alloc(1), *b = wb__pool_get(100), *c = wb__pool_get(100), *d = wb__alloc(1);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(c);
    assert_non_null(d);
    assert_int_equal(wb__alloc_count(), 4);
    wb__alloc_fail_at(0);
    wb__free(a);
    wb__pool_put(b, 100);
    wb__free(d);
    assert_string_equal(strstr(wb_error(), "out of memory"), wb_error());
}

static void *use_pool(void *given)
{
    for (int round = 0; round < 3; round++) {
        void *blocks[200];
        for (size_t i = 0; i < 200; i++) memset(blocks[i] = wb__pool_get(i * 6 + 1), 3, i * 6 + 1);
        for (size_t i = 0; i < 200; i++) wb__pool_put(blocks[i], i * 6 + 1);
    }
    wb__pool_put(given, 64);
    return NULL;
}

TEST(the_pool_gives_back)
{
    wb__pool_trim();
    int64_t before = wb_memory_used();
    use_pool(wb__pool_get(64));
    wb__pool_trim();
    assert_int_equal(wb_memory_used(), before);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, use_pool, wb__pool_get(64)), 0);
    pthread_join(t, NULL);
    assert_int_equal(wb_memory_used(), before);     /* a thread's end empties its free lists */
}

static void *counting(void *context, void *block, size_t bytes)
{
    (*(int *)context)++;
    if (bytes) return realloc(block, bytes);
    free(block);
    return NULL;
}

TEST(the_allocator_is_replaceable)
{
    wb__pool_trim();
    assert_int_equal(wb_memory_used(), 0);
    int calls = 0;
    wb_set_allocator(&(wb_allocator){counting, &calls});
    char *a = wb__alloc_zero(10, 10);
    assert_int_equal(a[99], 0);
    wb_clear_error();
    wb_set_allocator(NULL);                         /* refused: only the old one can free `a` */
    assert_int_equal(wb_error_code(), WB_ERROR_ARGUMENT);
    wb__free(a);
    assert_int_equal(calls, 2);
    wb_set_allocator(NULL);
}

static char logged[8000];
static wb_log_level logged_level;
static void catch_log(wb_log_level level, const char *text, void *context)
{
    logged_level = level;
    strncpy(logged, text, sizeof logged - 1);
}

TEST(the_log_calls_its_function)
{
    wb_set_log(catch_log, NULL);
    wb__log(WB_LOG_WARN, "%d of %s", 3, "them");
    assert_string_equal(logged, "3 of them");
    assert_int_equal(logged_level, WB_LOG_WARN);
    wb__log(WB_LOG_INFO, "%5000d", 1);
    assert_int_equal(strlen(logged), 5000);
    wb_set_log(NULL, NULL);
}

TEST(the_log_prints_as_julia_does)
{
    char path[] = "/tmp/weber-log-XXXXXX", text[400] = "";
    int file = mkstemp(path), saved = dup(2);
    assert_true(file >= 0 && saved >= 0);
    dup2(file, 2);
    wb__log(WB_LOG_INFO, "one");
    wb__log(WB_LOG_WARN, "first\nnext\nlast");
    wb__log(WB_LOG_ERROR, "one\n");
    dup2(saved, 2);
    close(saved);
    lseek(file, 0, SEEK_SET);
    assert_true(read(file, text, sizeof text - 1) > 0);
    close(file);
    unlink(path);
    assert_string_equal(text, "[ Info: one\n┌ Warning: first\n│ next\n└ last\n[ Error: one\n");
}

TEST(debug_topics)
{
    setenv("WEBER_DEBUG", "plan, kernel", 1);
    assert_true(wb__debug("plan"));
    assert_true(wb__debug("kernel"));
    assert_false(wb__debug("pla"));
    assert_false(wb__debug("sync"));
    setenv("WEBER_DEBUG", "sync", 1);               /* the variable is read only once */
    assert_false(wb__debug("sync"));
    assert_string_equal(wb_version(), "0.5.0");
    double t = wb__now();
    assert_true(wb__now() >= t);
}

int main(void) { return run_all_cases(); }
