/* `weber explain`: the pages of docs/errors.md, which CMake puts into the program. */
#include "cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char wb__cli_errors_md[];  /* the text of docs/errors.md */

#define HEAD "\n### W"

static const char *line_end(const char *at) { return at + strcspn(at, "\n"); }

static void list(FILE *to)
{
    for (const char *at = strstr(wb__cli_errors_md, HEAD); at; at = strstr(at + 1, HEAD)) {
        const char *title = at + strlen(HEAD) - 1;
        fprintf(to, "%.*s\n", (int)(line_end(title) - title), title);
    }
}

/* Returns the number of a page as in W0201, w0201 or 201; -1: it is none. */
static int number_of(const char *name)
{
    name += *name == 'W' || *name == 'w';
    char *end;
    const long number = strtol(name, &end, 10);
    return isdigit((unsigned char)*name) && !*end && number < 10000 ? (int)number : -1;
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

int wb__cli_explain(int n, char **words)
{
    if (n > 1) return -1;
    if (!n) {
        list(stdout);
        return 0;
    }
    char head[32];
    const int number = number_of(words[0]);
    snprintf(head, sizeof head, HEAD "%04d:", number);
    const char *page = number < 0 ? NULL : strstr(wb__cli_errors_md, head);
    if (page) {
        print_page(page + strlen(HEAD) - 1);
        return 0;
    }
    fprintf(stderr, "weber explain: no page is named \"%s\"; there are:\n", words[0]);
    list(stderr);
    return 1;
}
