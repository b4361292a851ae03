/* The `weber` command: what is here, and what is in a file.  A thin face over the library. */
#include "weber.h"

#include <stdio.h>
#include <string.h>

static int help(FILE *to, int status)
{
    fputs("weber show FILE       a saved model as a table\n"
          "weber devices         where tensors can be computed, and how\n"
          "weber version\n"
          "weber help\n", to);
    return status;
}

static int show(const char *path)
{
    wb_layer *model = wb_load(path);
    if (!model) {
        fprintf(stderr, "weber: %s\n", wb_error());
        return 1;
    }
    wb_show(model);
    return wb_error_code() == WB_OK ? 0 : 1;
}

static int devices(void)
{
    int n = wb_threads();
    printf("CPUDevice(): %d thread%s\n", n, n == 1 ? "" : "s");
    return 0;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "help";
    int status;
    if (!strcmp(command, "show") && argc == 3) status = show(argv[2]);
    else if (!strcmp(command, "devices") && argc == 2) status = devices();
    else if (!strcmp(command, "version") && argc == 2)
        status = printf("weber %s\n", wb_version()) < 0;
    else if (!strcmp(command, "help")) status = help(stdout, 0);
    else status = help(stderr, 2);
    wb_shutdown();
    return status;
}
