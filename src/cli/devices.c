/* `weber devices`: a line for each device, then the backends that do not work and how to get them.
 * probe.c probes each backend. */
#include "base/os.h"
#include "cli/cli.h"
#include "device/device.h"
#include "device/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int devices_text_width(const wb__probe *p)
{
    int width = 0;
    for (int i = 0; i < WB__ROWS; i++) width = WB__MAX(width, (int)strlen(p[i].state));
    return width;
}

/* Prints the lines of a text.  The first line gets the prefix `first`, the other lines get the
 * prefix `others`. */
static void devices_print_lines(const char *text, const char *first, const char *others)
{
    for (const char *line = text; line && *line;) {
        const size_t n = strcspn(line, "\n");
        printf("%s%.*s\n", line == text ? first : others, (int)n, line);
        line += n + (line[n] == '\n');
    }
}

static void devices_print_table(const wb__probe *p)
{
    const int width = devices_text_width(p);
    printf("%-7s  %-*s  devices\n", "backend", width, "state");
    for (int i = 0; i < WB__ROWS; i++) {
        char first[96], others[96];
        if (!p[i].devices || !*p[i].devices) {
            printf("%-7s  %s\n", wb__rows[i].name, p[i].state);
            continue;
        }
        snprintf(first, sizeof first, "%-7s  %-*s  ", wb__rows[i].name, width, p[i].state);
        snprintf(others, sizeof others, "%*s", (int)strlen(first), "");
        devices_print_lines(p[i].devices, first, others);
    }
}

static void devices_print_cure(int row, const wb__probe *p)
{
    if (!p->answered)
        printf("%s: the process that probed it failed, and so would any process that uses it.\n"
               "    Another version of its driver may help.\n", wb__rows[row].name);
    else if (p->reason)
        devices_print_lines(p->reason, wb__row_label(row, p->reason), "    ");
}

static void devices_print_libraries(const wb__row *row, const wb__probe *p)
{
    char first[64];
    snprintf(first, sizeof first, "%s, ", row->name);
    devices_print_lines(p->libraries, first, first);
}

static void devices_print_preference(bool verbose)
{
    wb__registry_lock();
    const wb__preference *p = wb__preference_read();
    if (p->set) printf("preference: %s, by [%s] in %s\n", p->name, p->table, p->path);
    else if (p->failed) printf("preference: cannot be read\n");
    else if (verbose && *p->path) printf("preference: none in %s\n", p->path);
    else printf("preference: none\n");
    wb__registry_unlock();
}

int wb__cli_devices(int n, char **arguments, const char *self)
{
    wb__probe probes[WB__ROWS];
    bool verbose = false, trouble = false;
    double seconds = 20;
    for (int i = 0; i < n; i++) {
        if (!strcmp(arguments[i], "--verbose")) verbose = true;
        else if (!strcmp(arguments[i], "--wait") && i + 1 < n) seconds = atof(arguments[++i]);
        else return -1;
    }
    char program[4096];
    if (wb__os_program(program, sizeof program)) self = program;
    for (int i = 0; i < WB__ROWS; i++)
        wb__cli_run_probe(&probes[i], self, wb__rows[i].name, seconds, verbose);
    devices_print_table(probes);
    for (int i = 0; i < WB__ROWS; i++) trouble = trouble || !probes[i].works;
    if (trouble) printf("\n");
    for (int i = 0; i < WB__ROWS; i++)
        if (!probes[i].works) devices_print_cure(i, &probes[i]);
    printf("\n");
    for (int i = 0; i < WB__ROWS && verbose; i++) devices_print_libraries(&wb__rows[i], &probes[i]);
    wb__cli_print_ranks(self);
    devices_print_preference(verbose);
    for (int i = 0; i < WB__ROWS; i++) wb__probe_free(&probes[i]);
    return 0;
}
