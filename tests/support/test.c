/* See test.h. */
#include "test.h"

#include "weber.h"

#include <ctype.h>
#include <unistd.h>

enum { MOST_TESTS = 100 };

typedef struct {
    const char *name;
    void (*run)(void);
    int at;
    bool scoped;
} test;

static test tests[MOST_TESTS];
static size_t n_tests;

const char *cases_named;
void (*after_each_test)(void);

/* Constructors run in any order: insertion sorts the tests by their line order. */
void add_test(const char *name, void (*run)(void), int at, bool scoped)
{
    size_t i = n_tests++;
    if (n_tests > MOST_TESTS) abort();
    for (; i && tests[i - 1].at > at; i--) tests[i] = tests[i - 1];
    tests[i] = (test){name, run, at, scoped};
}

wb_scope *open_scope(void)
{
    wb_scope *scope = wb_scope_open();
    if (!scope) fail_msg("opening a scope: %s", wb_error());
    return scope;
}

wb_scope *close_scope(wb_scope *scope)
{
    if (wb_scope_close(scope)) fail_msg("closing a scope: %s", wb_error());
    return NULL;
}

static void run_case(void **state)
{
    const test *t = *state;
    wb_scope *s = t->scoped ? open_scope() : NULL;
    t->run();
    if (s) close_scope(s);
    if (after_each_test) after_each_test();
}

static bool is_named(const char *name)
{
    char copy[1000], *rest = copy;
    snprintf(copy, sizeof copy, "%s", cases_named ? cases_named : "");
    for (char *word; (word = strtok_r(rest, " ", &rest));)
        if (strstr(name, word)) return true;
    return !cases_named;
}

enum { MOST_FILES = 16 };
static char files[MOST_FILES][96];
static int n_files;

const char *test_file(const char *name)
{
    char path[sizeof files[0]];
    snprintf(path, sizeof path, "/tmp/weber-%ld-%s", (long)getpid(), name);
    for (int i = 0; i < n_files; i++)
        if (!strcmp(files[i], path)) return files[i];
    if (n_files == MOST_FILES) abort();
    return strcpy(files[n_files++], path);
}

static int run_group(CMFixtureFunction setup, CMFixtureFunction teardown, bool each)
{
    struct CMUnitTest all[MOST_TESTS];
    size_t n = 0;
    for (size_t i = 0; i < n_tests; i++)
        if (is_named(tests[i].name))
            all[n++] = (struct CMUnitTest){tests[i].name, run_case, each ? setup : NULL,
                                           each ? teardown : NULL, &tests[i]};
    const int failed = _cmocka_run_group_tests("tests", all, n, each ? NULL : setup,
                                               each ? NULL : teardown);
    for (int i = 0; i < n_files; i++) unlink(files[i]);
    wb_shutdown();
    return failed;
}

int run_cases(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    return run_group(setup, teardown, false);
}

int run_cases_each(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    return run_group(setup, teardown, true);
}

int fewer(void)
{
    const char *n = getenv("WEBER_TEST_FEWER");
    return n && atoi(n) > 1 && !getenv("WEBER_TEST_ALL") ? atoi(n) : 1;
}

/* ---- errors ---------------------------------------------------------------------------------- */

enum { MOST_FACTS = 40, LONGEST_TEXT = 16384 };

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* True if text[at] to text[at + n - 1] is not a part of a longer word, number or dotted name. */
static bool is_whole(const char *text, size_t at, size_t n)
{
    if (in_word(text[at]) && at) {
        const char previous = text[at - 1];
        if (in_word(previous) || previous == '-') return false;
        if (previous == '.' && at > 1 && in_word(text[at - 2])) return false;
    }
    if (!in_word(text[at + n - 1])) return true;
    const char next = text[at + n];
    return !in_word(next) && !(next == '.' && in_word(text[at + n + 1]));
}

/* Finds the first occurrence of the fact that overlaps no other fact, and marks it in `taken`. */
static bool take_fact(const char *text, bool *taken, const char *fact)
{
    const size_t n = strlen(fact);
    if (!n) return true;
    for (const char *at = text; (at = strstr(at, fact)) != NULL; at++) {
        const size_t i = (size_t)(at - text);
        if (memchr(taken + i, true, n) || !is_whole(text, i, n)) continue;
        memset(taken + i, true, n);
        return true;
    }
    return false;
}

/* The index of a fact that is missing in the text, or n.  The longest facts are found first, so
 * that "3" does not occupy a part of "[2,3]". */
static size_t missing_fact(const char *text, size_t n, const char *const *facts)
{
    static _Thread_local bool taken[LONGEST_TEXT];
    bool found[MOST_FACTS] = {false};
    if (n > MOST_FACTS || strlen(text) >= LONGEST_TEXT) abort();
    memset(taken, 0, sizeof taken);
    for (size_t k = 0; k < n; k++) {
        size_t longest = n;
        for (size_t i = 0; i < n; i++) {
            if (found[i]) continue;
            if (longest == n || strlen(facts[i]) > strlen(facts[longest])) longest = i;
        }
        found[longest] = true;
        if (!take_fact(text, taken, facts[longest])) return longest;
    }
    return n;
}

static size_t count_facts(const char *const *facts)
{
    size_t n = 0;
    while (facts[n]) n++;
    return n;
}

bool has_facts(const char *text, const char *const *facts)
{
    const size_t n = count_facts(facts), missing = missing_fact(text, n, facts);
    if (missing < n) print_message("not in \"%s\": \"%s\"\n", text, facts[missing]);
    return missing == n;
}

bool has_line(const char *text, const char *const *facts)
{
    const size_t n = count_facts(facts);
    for (const char *line = text, *end; *line; line = end + (*end != 0)) {
        static _Thread_local char copy[LONGEST_TEXT];
        end = line + strcspn(line, "\n");
        if (end - line >= LONGEST_TEXT) abort();
        snprintf(copy, sizeof copy, "%.*s", (int)(end - line), line);
        if (missing_fact(copy, n, facts) == n) return true;
    }
    return false;
}

int lines_of(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '\n';
    return n + 1;
}

bool is_like(const char *text, const char *pattern)
{
    for (; *pattern && *pattern != '*'; text++, pattern++)
        if (*text != *pattern) return false;
    if (!*pattern) return !*text;
    for (;; text++) {
        if (is_like(text, pattern + 1)) return true;
        if (!*text || *text == '\n') return false;
    }
}

bool failed_with(int code, const char *const *facts)
{
    if ((int)wb_error_code() == code) return has_facts(wb_error(), facts);
    print_message("the code is %d, not %d\n", wb_error_code(), code);
    return false;
}

/* ---- printed objects ------------------------------------------------------------------------- */

void assert_shows(void *object, const char *text)
{
    char *shown = object ? wb_object_format(object) : NULL;
    if (!shown) fail_msg("%s", wb_error());
    assert_string_equal(shown, text);
    wb_free_text(shown);
}

void assert_shown_alike(void *a, void *b)
{
    char *text = b ? wb_object_format(b) : NULL;
    if (!text) fail_msg("%s", wb_error());
    assert_shows(a, text);
    wb_free_text(text);
}
