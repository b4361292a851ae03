/* The command-line program `weber`. */
#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"
#include "device/device.h"
#include "device/registry.h"

#include <stdio.h>
#include <string.h>

static int command_help(FILE *to, int status)
{
    fputs("weber new [--cxx] NAME        a folder with a program, a CMakeLists.txt and a Makefile\n"
          "weber doctor                  what is installed or missing, how to get it, and how\n"
          "                              fast a small training is beside what is usual\n"
          "weber explain [PAGE|WORDS]    the cause and the cure of an error message that ends in\n"
          "                              the name of a page, such as (W0201), or the whole\n"
          "                              message; the pages and topics that have some words, such\n"
          "                              as early stopping; the list of both\n"
          "weber show FILE               what is in a file of one of the formats that `weber\n"
          "                              doctor` lists\n"
          "weber convert IN OUT          from one of these formats to another, by OUT's ending; a\n"
          "                              model stays a model where the format has models, else\n"
          "                              its tensors are written by name\n"
          "                              --torch: by PyTorch's names; --tensor NAME: one, to .npy\n"
          "                              BSON: --key NAME: the variable (model); --structs: the\n"
          "                              layers themselves, for the Flux of --flux VERSION (0.16)\n"
          "weber devices [--verbose]     what is here to compute on, what is missing and how to\n"
          "                              get it; --verbose: paths, parts, what drivers print;\n"
          "                              --wait SECONDS for each driver's answer (20)\n"
          "weber backend [NAME|none]     the preferred backend, in LocalPreferences.toml: shows,\n"
          "                              sets or removes it\n"
          "weber launch -np N [--] PROGRAM [ARGUMENT...]\n"
          "                              starts N processes of a program on this machine, the\n"
          "                              ranks of a training; --help: more\n"
          "weber version\n"
          "weber help\n", to);
    return status;
}

static int show_preference(void)
{
    wb__registry_lock();
    const wb__preference *p = wb__preference_read();
    const bool failed = p->failed;
    if (p->set) printf("%s, by [%s] in %s\n", p->name, p->table, p->path);
    else if (!failed) printf("none\n");
    wb__registry_unlock();
    return failed;
}

static int set_preference(const char *name)
{
    if (!wb_set_gpu_backend(strcmp(name, "none") ? name : NULL)) return 0;
    fprintf(stderr, "weber: %s\n", wb_error());
    return 1;
}

static const char *const command_commands[] = {
    "new", "doctor", "explain", "show", "convert", "devices", "backend", "launch", "version",
    "help", "--version", "--help", NULL};
enum { MOST_CHANGES = 2 };              /* characters by which a misspelt word may differ */

static bool is_command(const char *word)
{
    for (const char *const *c = command_commands; *c; c++)
        if (!strcmp(word, *c)) return true;
    /* "probe" and "open" are for processes that probe.c and doctor_library.c start */
    return !strcmp(word, "-h") || !strcmp(word, "probe") || !strcmp(word, "open");
}

static int command_unknown(const char *word)
{
    const char *nearest = wb__cli_nearest(word, command_commands, MOST_CHANGES);
    wb__text message = {0};
    wb__text_add(&message, "weber: there is no command \"");
    wb__text_foreign(&message, word);
    wb__text_raw(&message, "\"", 1);
    if (nearest) wb__text_add(&message, "; perhaps it is `weber %s`", nearest);
    char *text = wb__text_take(&message);
    fprintf(stderr, "%s; `weber help` lists the commands\n", text ? text : "weber: no command");
    wb__free(text);
    return 2;
}

int main(int argc, char **argv)
{
    if (!wb__os_keep_standard_files()) {
        fprintf(stderr, "weber: a standard file is closed, and /dev/null cannot be opened: %s\n",
                wb__os_reason());
        return 1;
    }
    const char *command = argc > 1 ? argv[1] : "help";
    int status;
    if (!is_command(command)) status = command_unknown(command);
    else if (!strcmp(command, "show") && argc == 3) status = wb__cli_show(argv[2]);
    else if (!strcmp(command, "convert")) status = wb__cli_convert(argc - 2, argv + 2);
    else if (!strcmp(command, "devices"))
        status = wb__cli_devices(argc - 2, argv + 2, argv[0]);
    else if (!strcmp(command, "backend") && argc == 2) status = show_preference();
    else if (!strcmp(command, "backend") && argc == 3) status = set_preference(argv[2]);
    else if (!strcmp(command, "new")) status = wb__cli_new(argc - 2, argv + 2, argv[0]);
    else if (!strcmp(command, "doctor")) status = wb__cli_doctor(argc - 2, argv + 2, argv[0]);
    else if (!strcmp(command, "explain") && argc == 3 &&
             (!strcmp(argv[2], "--help") || !strcmp(argv[2], "-h")))
        status = command_help(stdout, 0);
    else if (!strcmp(command, "explain")) status = wb__cli_explain(argc - 2, argv + 2);
    else if (!strcmp(command, "launch")) status = wb__cli_launch(argc - 2, argv + 2);
    else if (!strcmp(command, "probe") && argc == 3) status = wb__cli_probe(argv[2]);
    else if (!strcmp(command, "open") && argc == 3) status = wb__cli_open(argv[2]);
    else if ((!strcmp(command, "version") || !strcmp(command, "--version")) && argc == 2)
        status = printf("weber %s\n", wb_version()) < 0;
    else if (!strcmp(command, "help") || !strcmp(command, "--help") || !strcmp(command, "-h"))
        status = command_help(stdout, 0);
    else status = -1;
    if (status < 0) status = command_help(stderr, 2);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "weber: standard output: %s\n", wb__os_reason());
        status = status ? status : 1;
    }
    wb_shutdown();
    return status;
}
