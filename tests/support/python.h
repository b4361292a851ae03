/* Running Python beside a test: the interpreter that WEBER_TEST_PYTHON names, else python3. */
#ifndef PYTHON_H
#define PYTHON_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline const char *python(void)
{
    const char *named = getenv("WEBER_TEST_PYTHON");
    return named && *named ? named : "python3";
}

/* True if Python runs and has this module ("sys" is always there).  Else the reason is printed. */
static inline bool python_has(const char *module)
{
    char command[600];
    snprintf(command, sizeof command, "'%s' -c 'import %s' 2>/dev/null", python(), module);
    if (system(command) == 0) return true;
    printf("SKIP: %s has no module %s (set WEBER_TEST_PYTHON to one that has)\n", python(), module);
    fflush(stdout);
    return false;
}

/* Runs a script of tests/ with an action ("io/npz_files.py check") and an argument.  Returns 0 on
 * success. */
static inline int python_script(const char *name, const char *argument)
{
    char command[1200];
    snprintf(command, sizeof command, "'%s' %s/../%s '%s'", python(), WB_TEST_DATA, name, argument);
    fflush(stdout);
    return system(command);
}

#endif
