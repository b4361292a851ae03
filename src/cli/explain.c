/* `weber explain`: the pages of docs/errors.md, which CMake puts into the program. */
#include "base/text.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern const char wb__cli_errors_md[];  /* the text of docs/errors.md */

#define HEAD "\n### W"

static const char *line_end(const char *at) { return at + strcspn(at, "\n"); }

/* Whether the n characters of a page have the words, in any case of letters. */
static bool has(const char *page, size_t n, const char *words)
{
    const size_t length = strlen(words);
    for (size_t i = 0; i + length <= n; i++)
        if (!strncasecmp(page + i, words, length)) return true;
    return false;
}

/* Prints the titles of the pages that have the words; all pages have "".  Returns the number of
 * pages. */
static int list(const char *words)
{
    int found = 0;
    const char *next;
    for (const char *at = strstr(wb__cli_errors_md, HEAD); at; at = next) {
        const char *title = at + strlen(HEAD) - 1;
        next = strstr(title, HEAD);
        if (!has(title, next ? (size_t)(next - title) : strlen(title), words)) continue;
        if (!found++ && *words) printf("pages that have \"%s\":\n", words);
        printf("%.*s\n", (int)(line_end(title) - title), title);
    }
    return found;
}

/* Whether the text is the name of a page, or like one: W0201, w0201, 201. */
static bool is_number(const char *text)
{
    text += *text == 'W' || *text == 'w';
    return text[strspn(text, "0123456789")] == 0;
}

/* Returns the number of a page as in W0201, w0201 or 201, or of the last (W0201) in a message; -1:
 * there is none. */
static int number_of(const char *text)
{
    int number = -1, n = 0, found;
    for (const char *at = text; (at = strstr(at, "(W")); at++)
        if (sscanf(at, "(W%4d%n", &found, &n) == 1 && n == 6 && at[n] == ')') number = found;
    if (number >= 0 || !is_number(text)) return number;
    text += *text == 'W' || *text == 'w';
    return *text && strlen(text) <= 4 ? atoi(text) : -1;
}

/* Prints a page from its heading to the next one.  Fenced code is indented instead. */
static void print_page(const char *at)
{
    bool code = false;
    const char *next = strstr(at, "\n##");
    const char *end = next ? next : at + strlen(at);
    while (end > at && end[-1] == '\n') end--;
    while (at < end) {
        const char *stop = line_end(at);
        if (wb__begins(at, "```")) code = !code;
        else printf("%s%.*s\n", code ? "    " : "", (int)(stop - at), at);
        at = stop + (*stop != 0);
    }
}

static int explain(const char *text)
{
    enum { LEAST = 3 };                 /* letters of a word that is looked for */
    char head[32];
    const int number = number_of(text);
    snprintf(head, sizeof head, HEAD "%04d:", number);
    const char *page = number < 0 ? NULL : strstr(wb__cli_errors_md, head);
    if (page) {
        print_page(page + strlen(HEAD) - 1);
        return 0;
    }
    const bool is_text = number < 0 && !is_number(text) && strlen(text) >= LEAST;
    if (is_text && list(text)) return 0;
    fprintf(stderr, "weber explain: no page %s \"%s\"; `weber explain` lists all pages\n",
            is_text ? "contains" : "is named", text);
    return 1;
}

int wb__cli_explain(int n, char **words)
{
    wb__text t = {0};
    if (!n) {
        list("");
        return 0;
    }
    /* a message without quotes is many words */
    for (int i = 0; i < n; i++) wb__text_add(&t, i ? " %s" : "%s", words[i]);
    char *text = wb__text_take(&t);
    const int status = text ? explain(text) : wb__cli_print_error();
    wb__free(text);
    return status;
}
