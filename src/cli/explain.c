/* `weber explain`: the pages of docs/errors.md, and the topics of docs/site/tasks.md.  CMake puts
 * both into the program. */
#include "base/text.h"
#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern const char wb__cli_errors_md[], wb__cli_site_tasks_md[];     /* the texts of the files */

#define EXPLAIN_PAGE "\n### W"
#define TOPIC "\n## "
enum { EXPLAIN_LEAST = 3 };             /* characters that a text needs to be looked for in pages */

static const char *explain_line_end(const char *at) { return at + strcspn(at, "\n"); }

/* Whether the n characters of a page contain the words, in upper or lower case. */
static bool explain_has(const char *page, size_t n, const char *words)
{
    const size_t length = strlen(words);
    for (size_t i = 0; i + length <= n; i++)
        if (!strncasecmp(page + i, words, length)) return true;
    return false;
}

/* Prints the titles of the pages that contain the words; of all pages for "".  Returns how many. */
static int explain_list(const char *words)
{
    int found = 0;
    const char *next;
    for (const char *at = strstr(wb__cli_errors_md, EXPLAIN_PAGE); at; at = next) {
        const char *title = at + strlen(EXPLAIN_PAGE) - 1;
        next = strstr(title, EXPLAIN_PAGE);
        if (!explain_has(title, next ? (size_t)(next - title) : strlen(title), words)) continue;
        if (!found++ && *words) printf("pages that have \"%s\":\n", words);
        printf("%.*s\n", (int)(explain_line_end(title) - title), title);
    }
    return found;
}

/* Whether the text is the number of a page: W0201, w0201 or 201. */
static bool explain_is_number(const char *text)
{
    text += *text == 'W' || *text == 'w';
    return text[strspn(text, "0123456789")] == 0;
}

/* Returns the number of a page that is the text, or with which a message ends, as in "...
 * (W0201)".  -1 if there is none. */
static int explain_number_of(const char *text)
{
    int number = -1, n = 0, found;
    for (const char *at = text; (at = strstr(at, "(W")); at++)
        if (sscanf(at, "(W%4d%n", &found, &n) == 1 && n == 6 && at[n] == ')') number = found;
    if (number >= 0 || !explain_is_number(text)) return number;
    text += *text == 'W' || *text == 'w';
    return *text && strlen(text) <= 4 ? atoi(text) : -1;
}

/* Prints a line in which links have no addresses: "[data](data.md)" is printed as "data". */
static void explain_print_line(const char *at, const char *stop)
{
    while (at < stop) {
        const char *middle = *at == '[' ? strstr(at, "](") : NULL;
        const char *end = middle && middle < stop ? strchr(middle, ')') : NULL;
        if (end && end < stop) {
            printf("%.*s", (int)(middle - at - 1), at + 1);
            at = end + 1;
        } else putchar(*at++);
    }
    putchar('\n');
}

/* Prints a page up to the next heading.  Fenced code is indented instead. */
static void explain_print_page(const char *at)
{
    bool code = false;
    const char *next = strstr(at, "\n##");
    const char *end = next ? next : at + strlen(at);
    while (end > at && end[-1] == '\n') end--;
    while (at < end) {
        const char *stop = explain_line_end(at);
        if (wb__begins(at, "```")) code = !code;
        else if (code) printf("    %.*s\n", (int)(stop - at), at);
        else explain_print_line(at, stop);
        at = stop + (*stop != 0);
    }
}

/* ---- topics ---------------------------------------------------------------------------------- */

static size_t explain_word_length(const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    return n;
}

/* Whether the word is common in questions, such as "how", whatever their topic is. */
static bool explain_is_common(const char *word, size_t n)
{
    static const char *const common[] = {
        "a", "an", "and", "another", "are", "as", "at", "be", "between", "by", "can", "do", "does",
        "for", "from", "get", "have", "how", "i", "in", "into", "is", "it", "make", "me", "model",
        "my", "of", "on", "one", "or", "other", "our", "out", "should", "the", "there", "to", "use",
        "using", "way", "we", "weber", "what", "when", "where", "which", "why", "with", "you"};
    for (size_t i = 0; i < WB__COUNT(common); i++)
        if (strlen(common[i]) == n && !strncasecmp(word, common[i], n)) return true;
    return false;
}

/* Returns the length of a word without an ending, as in weight-s, copy-ing, clip-ped. */
static size_t explain_stem(const char *word, size_t n)
{
    static const char *const endings[] = {"ing", "ed", "es", "s"};
    for (size_t i = 0; i < WB__COUNT(endings); i++) {
        const size_t e = strlen(endings[i]);
        if (n < e + 3 || strncasecmp(word + n - e, endings[i], e)) continue;
        n -= e;
        if (i < 2 && n > 3 && word[n - 1] == word[n - 2]) n--;          /* clipp */
        break;
    }
    return n > 3 && (word[n - 1] == 'e' || word[n - 1] == 'y') ? n - 1 : n;
}

/* Whether a word of the text begins with the stem. */
static bool explain_has_stem(const char *text, const char *end, const char *word, size_t n)
{
    for (size_t length; text < end; text += length ? length : 1) {
        length = explain_word_length(text);
        if (length >= n && !strncasecmp(text, word, n)) return true;
    }
    return false;
}

/* Whether the text answers a question: whether it has all words of the question but the common ones
 * (explain_is_common), at least one.  All texts answer "". */
static bool explain_answers(const char *text, const char *end, const char *question)
{
    int words = !*question;
    for (size_t n; *question; question += n ? n : 1) {
        n = explain_word_length(question);
        if (!n || explain_is_common(question, n)) continue;
        if (!explain_has_stem(text, end, question, explain_stem(question, n))) return false;
        words++;
    }
    return words > 0;
}

typedef enum { COUNT, TITLES, TEXTS } explain_what;

/* Counts or prints the topics whose titles, or with `whole` whose texts, answer a question. */
static int explain_visit(const char *question, bool whole, explain_what shown)
{
    int found = 0;
    const char *next;
    for (const char *at = strstr(wb__cli_site_tasks_md, TOPIC); at; at = next) {
        const char *title = at + strlen(TOPIC);
        next = strstr(title, TOPIC);
        const char *end = !whole ? explain_line_end(title) : next ? next : title + strlen(title);
        if (!explain_answers(title, end, question)) continue;
        if (shown == TITLES) printf("%.*s\n", (int)(explain_line_end(title) - title), title);
        if (shown == TEXTS && found) putchar('\n');
        if (shown == TEXTS) explain_print_page(title);
        found++;
    }
    return found;
}

/* Prints the topics that answer a question: the texts of one or two, only the titles of more.
 * Topics whose titles answer the question come first.  Returns their number. */
static int explain_print_topics(const char *question, bool behind_pages)
{
    enum { PRINTED = 2 };
    const bool whole = !explain_visit(question, false, COUNT);
    const int n = explain_visit(question, whole, COUNT);
    if (n && behind_pages) putchar('\n');
    if (n > PRINTED) printf("topics that have \"%s\":\n", question);
    return explain_visit(question, whole, n > PRINTED ? TITLES : TEXTS);
}

static int explain_print_one(const char *text)
{
    char head[32];
    const int number = explain_number_of(text);
    snprintf(head, sizeof head, EXPLAIN_PAGE "%04d:", number);
    const char *page = number < 0 ? NULL : strstr(wb__cli_errors_md, head);
    if (page) {
        explain_print_page(page + strlen(EXPLAIN_PAGE) - 1);
        return 0;
    }
    const bool is_text = number < 0 && !explain_is_number(text) && strlen(text) >= EXPLAIN_LEAST;
    const int pages = is_text ? explain_list(text) : 0;
    if (is_text && explain_print_topics(text, pages > 0) + pages > 0) return 0;
    fprintf(stderr, "weber explain: no page %s \"%s\"; `weber explain` lists all pages\n",
            is_text ? "contains" : "is named", text);
    return 1;
}

int wb__cli_explain(int n, char **words)
{
    wb__text t = {0};
    if (!n) {
        explain_list("");
        printf("\ntopics: `weber explain WORDS` prints those that have the words\n");
        explain_visit("", true, TITLES);
        return 0;
    }
    /* a message without quotation marks arrives as many words */
    for (int i = 0; i < n; i++) wb__text_add(&t, i ? " %s" : "%s", words[i]);
    char *text = wb__text_take(&t);
    const int status = text ? explain_print_one(text) : wb__cli_print_error();
    wb__free(text);
    return status;
}
