/* The libraries that connect ranks, for `weber devices`. */
#include "base/mistakes.h"
#include "base/os.h"
#include "cli/cli.h"
#include "dist/dist.h"
#include "weber/distributed.h"

#include <stdio.h>
#include <string.h>

#define CLI_RANKS_TEXT_(x) #x
#define CLI_RANKS_TEXT(x) CLI_RANKS_TEXT_(x)
#define CLI_RANKS_VERSION CLI_RANKS_TEXT(WB_VERSION_MAJOR) "." CLI_RANKS_TEXT(WB_VERSION_MINOR)
#ifdef __APPLE__
#define LIBRARY(name) "libweber-" name "." CLI_RANKS_VERSION ".dylib"
#else
#define LIBRARY(name) "libweber-" name ".so." CLI_RANKS_VERSION
#endif

/* The library "mpi" is built with mpicc, which often belongs to one of the other two. */
static const char *const cli_ranks_libraries[] = {LIBRARY("mpi"), LIBRARY("mpi-openmpi"),
                                                  LIBRARY("mpi-mpich")};

/* Returns a library that is installed with this program, or that the dynamic linker finds,
 * opened. */
static void *cli_ranks_open_library(const char *name, const char *program, char *path, size_t size)
{
    if (!wb__cli_installed(program, name, path, size)) snprintf(path, size, "%s", name);
    return wb__os_library_open(path, WB__OS_FOR_HANDLE);
}

/* Whether the dynamic linker did not find the library itself, as opposed to one that it needs: the
 * message begins with the missing file, or, on macOS, has the name of the library. */
static bool cli_ranks_is_missing(const char *path, const char *message)
{
    return !strchr(path, '/') && strstr(message, path);
}

/* Returns the library's table of functions, or NULL if it has none. */
static const wb_distributed_backend *cli_ranks_table_of(void *library)
{
    const wb_distributed_backend *(*get)(void) = NULL;
    void *symbol = wb__os_library_find(library, "wb_distributed_mpi");
    memcpy(&get, &symbol, sizeof get);          /* ISO C has no conversion between the two */
    return get ? get() : NULL;
}

/* Prints the state of NCCL and RCCL, which are opened at run time. */
static void cli_ranks_print_nccl(void)
{
    const wb_distributed_backend *b = wb_distributed_nccl();
    wb_clear_error();
    for (int i = 0;; i++) {
        const char *text = b->library(i);
        if (!text && !wb_error_code()) return;
        char message[WB__ERROR_BYTES];
        wb__error_plain(message, sizeof message);
        const char *reason = strstr(message, "CCL: ");      /* the error begins with the backend */
        if (text)
            printf("ranks: %.*s: %s, for ranks with a GPU each\n", (int)strcspn(text, " "), text,
                   text);
        else printf("ranks: %s\n", reason ? reason - 1 : message);
        wb_clear_error();
    }
}

void wb__cli_print_ranks(const char *program)
{
    char path[WB__OS_PATH];
    int found = 0;
    for (size_t i = 0; i < WB__COUNT(cli_ranks_libraries); i++) {
        void *library = cli_ranks_open_library(cli_ranks_libraries[i], program, path, sizeof path);
        const char *reason = library ? NULL : wb__os_library_reason();
        if (!library && cli_ranks_is_missing(path, reason)) continue;
        found++;
        const wb_distributed_backend *b = library ? cli_ranks_table_of(library) : NULL;
        if (!b) printf("ranks: MPI: %s does not work: %s\n", path, reason ? reason : "no table");
        else if (b->version != WB__DIST_VERSION)
            printf("ranks: MPI: %s is of another version of Weber\n", path);
        else printf("ranks: MPI: %s, in %s\n", b->library(0), cli_ranks_libraries[i]);
    }
    if (!found)
        printf("ranks: MPI: not built in: install libopenmpi-dev or libmpich-dev, and build Weber"
               " again\n");
    cli_ranks_print_nccl();
}
