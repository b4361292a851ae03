/* The base layer: errors, the allocator, the pool, the log.  See base_dtype.c and base_philox.c
 * for dtypes and random numbers. */
#include "test.h"

#include "base/base.h"
#include "base/environment.h"
#include "base/sha256.h"
#include "base/os.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

/* Names in files and values of variables reach the log, and do not control a terminal. */
TEST(the_log_escapes_text)
{
    static const struct { const char *text, *logged; } rows[] = {
        {"a\x1b[31mname", "a\\x1b[31mname"},
        {"bell \a, \x7f and \r", "bell \\x07, \\x7f and \\x0d"},
        {"\xc2\x9b" "31m \x9b 31m", "\\xc2\\x9b" "31m \\x9b 31m"},
        {"first\n\tnext", "first\n\tnext"},
        {"caf\xc3\xa9 \xe2\x94\x94", "caf\xc3\xa9 \xe2\x94\x94"},
        {"cut off \xe2\x94", "cut off \\xe2\\x94"}};
    char path[] = "/tmp/weber-log-XXXXXX", text[100] = "", longest[5000];
    wb_set_log(catch_log, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(logged, 0, sizeof logged);
        wb__log(WB_LOG_WARN, "%s", rows[i].text);
        assert_string_equal(logged, rows[i].logged);
    }
    memset(longest, '\x1b', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    memset(logged, 0, sizeof logged);
    wb__log(WB_LOG_WARN, "%s", longest);
    assert_memory_equal(logged, "\\x1b\\x1b\\x1b", 12);
    assert_null(strchr(logged, '\x1b'));
    wb_set_log(NULL, NULL);
    const int file = mkstemp(path), saved = dup(2);
    assert_true(file >= 0 && saved >= 0);
    dup2(file, 2);
    wb__log(WB_LOG_WARN, "%s", rows[0].text);
    dup2(saved, 2);
    close(saved);
    lseek(file, 0, SEEK_SET);
    assert_true(read(file, text, sizeof text - 1) > 0);
    close(file);
    unlink(path);
    assert_string_equal(text, "[ Warning: a\\x1b[31mname\n");
    assert_int_equal(wb__fail(WB_ERROR_FILE, "\x1b[31m \xc2\x9b" "31m \xc3\xa9\n"), WB_ERROR_FILE);
    assert_true(wb__begins(wb_error(), "?[31m ??31m \xc3\xa9\n"));
    wb_clear_error();
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
    assert_string_equal(wb_version(), "0.6.0");
    double t = wb__now();
    assert_true(wb__now() >= t);
}

/* ---- seals ----------------------------------------------------------------------------------- */

static const char *digits_of(const unsigned char sum[WB__SHA256])
{
    static char text[2 * WB__SHA256 + 1];
    for (int i = 0; i < WB__SHA256; i++) snprintf(text + 2 * i, 3, "%02x", sum[i]);
    return text;
}

/* Python's hashlib and hmac have these sums; the first three seals are those of RFC 4231. */
TEST(sums_of_sha256)
{
    static const struct { int n; const char *sum; } sums[] = {
        {0, "e3b0c44298fc1c149afbf4c8996fb924"
            "27ae41e4649b934ca495991b7852b855"},
        {64, "ffe054fe7ae0cb6dc65c3af9b61d5209"
             "f439851db43d0ba5997337df154668eb"},
        {119, "31eba51c313a5c08226adf18d4a359cf"
              "dfd8d2e816b13f4af952f7ea6584dcfb"},
        {1000, "41edece42d63e8d9bf515a9ba6932e1c"
               "20cbc9f5a5d134645adb5db1b9737ea3"}};
    static const struct { const char *key; int n; const char *text, *sum; } seals[] = {
        {"\x0b", 20, "Hi There",
         "b0344c61d8db38535ca8afceaf0bf12b"
         "881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", 1, "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c7"
         "5a003f089d2739839dec58b964ec3843"},
        {"\xaa", 131, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f"
         "8e0bc6213728c5140546040f0ee37f54"},
        {"", 0, "",
         "b613679a0814d9ec772f95d778c35fc5"
         "ff1697c493715653c6c712144292c5ad"}};
    unsigned char sum[WB__SHA256];
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        for (int step = 1; step < 100; step += 31) {        /* also in parts */
            char text[1000];
            wb__sha256 s;
            memset(text, 'a', sizeof text);
            wb__sha256_begin(&s);
            for (int at = 0; at < sums[i].n; at += step)
                wb__sha256_add(&s, text, (size_t)WB__MIN(step, sums[i].n - at));
            wb__sha256_end(&s, sum);
            assert_string_equal(digits_of(sum), sums[i].sum);
        }
    for (size_t i = 0; i < sizeof seals / sizeof *seals; i++) {
        char key[200] = "";
        wb__hmac m;
        for (int k = 0; k < seals[i].n; k++) strcat(key, seals[i].key);
        wb__hmac_begin(&m, key, strlen(key));
        wb__hmac_add(&m, seals[i].text, strlen(seals[i].text));
        wb__hmac_end(&m, sum);
        assert_string_equal(digits_of(sum), seals[i].sum);
    }
    assert_true(wb__same_secret("ab", "ab", 2) && wb__same_secret("ab", "ac", 1));
    assert_false(wb__same_secret("ab", "ac", 2) || wb__same_secret("bb", "ab", 2));
}

/* ---- rights ---------------------------------------------------------------------------------- */

enum { SEES_NOTHING, SEES_THE_FILE, HAS_NO_MORE_RIGHTS };

/* What this program sees of the variables when the test below has started it. */
static int read_variables(void)
{
    if (!wb__os_has_more_rights()) return HAS_NO_MORE_RIGHTS;
    wb_set_log(catch_log, NULL);
    const bool sees = wb__environment_path("WEBER_PNG_LIBRARY") || wb__environment_path("HOME");
    const bool reported = strstr(logged, "WEBER_PNG_LIBRARY has no effect") != NULL;
    const bool others = wb__environment_number("WEBER_NUM_THREADS", 1) == 3;
    return sees || !reported || !others ? SEES_THE_FILE : SEES_NOTHING;
}

static void copy_self(const char *to)
{
    char bytes[1 << 16];
    const int from = open("/proc/self/exe", O_RDONLY), file = open(to, O_WRONLY | O_CREAT, 0700);
    assert_true(from >= 0 && file >= 0);
    for (ssize_t n; (n = read(from, bytes, sizeof bytes)) > 0;)
        assert_true(write(file, bytes, (size_t)n) == n);
    close(from);
    close(file);
}

/* A program that is set-user-ID does not read a variable that names a file. */
TEST(a_program_with_more_rights_reads_no_paths)
{
    int status;
    assert_non_null(wb__environment_text("PATH"));
    assert_ptr_equal(wb__environment_path("PATH"), wb__environment_text("PATH"));
    if (geteuid() || access("/proc/self/exe", R_OK)) {
        print_message("SKIP: only root can make a program for another user\n");
        skip();
    }
    const char *program = test_file("rights");
    copy_self(program);
    assert_int_equal(chmod(program, 04755), 0);
    const pid_t child = fork();
    if (!child) {
        setenv("WEBER_PNG_LIBRARY", "/tmp/planted.so", 1);
        setenv("WEBER_NUM_THREADS", "3", 1);
        if (!setgid(65534) && !setuid(65534)) execl(program, program, "variables", (char *)NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    unlink(program);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == HAS_NO_MORE_RIGHTS || WEXITSTATUS(status) == 99) {
        print_message("SKIP: this system does not start the program with more rights\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), SEES_NOTHING);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "variables")) _exit(read_variables());
    return run_all_cases();
}
