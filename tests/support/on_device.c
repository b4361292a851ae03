/* Linked into every test program; without its variables it does nothing.
 *
 *   WEBER_TEST_DEVICE=NAME   that backend's first device becomes the default device
 *   WEBER_TEST_NEEDS=NAME    the tests are about that backend, and open it themselves
 *
 * If the backend does not work, the program is skipped and prints the reason.  With
 * WEBER_TEST_MUST=1 it fails instead: a test double always works. */
#include "weber.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77 };

static void need(const char *name)
{
    wb_using(name);
    if (wb_functional(name)) return;
    const bool must = getenv("WEBER_TEST_MUST");
    printf("%s: %s is not functional here: %s\n", must ? "FAILED" : "SKIP", name, wb_why_not(name));
    fflush(stdout);
    _Exit(must ? 1 : SKIPPED);
}

__attribute__((constructor)) static void choose_device(void)
{
    const char *needed = getenv("WEBER_TEST_NEEDS"), *name = getenv("WEBER_TEST_DEVICE");
    if (needed && *needed) {            /* a child process tests it: this one opens no backend */
        pid_t child = fork();
        int status = 0;
        if (child == 0) {
            need(needed);
            _Exit(0);
        }
        if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
            WEXITSTATUS(status))
            _Exit(WEXITSTATUS(status));
    }
    if (!name || !*name) return;
    need(name);
    wb_set_default_device(wb_device_at(name, 0));
}
