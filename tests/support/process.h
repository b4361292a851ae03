/* Child processes, for tests of loading, of the environment and of the program's output. */
#ifndef TEST_PROCESS_H
#define TEST_PROCESS_H

#include <stdbool.h>

/* The result of a process: its exit status, or minus the signal's number, and its output. */
typedef struct {
    int status;
    char out[1 << 16], err[1 << 16];
} process;

/* Runs a program in a folder.  `environment` ("NAME=value") and `arguments` end with NULL.  Weber's
 * own variables are removed from the environment first.  After a minute the process is killed. */
void process_run(process *p, const char *folder, const char *const *environment,
                 const char *const *arguments);

/* An empty folder with a Project.toml, so that no search goes above it.  Its name is valid until
 * the next call.  process_file writes a file into it, process_text reads one ("" if none). */
const char *process_folder(void);
void process_file(const char *folder, const char *name, const char *text);
const char *process_text(const char *folder, const char *name);
void process_remove(const char *folder);

/* The path of this program, valid for the whole test. */
const char *process_self(void);

/* Runs this program again with the words of a script for device_script.c. */
#define SCRIPT(p, folder, environment, ...)                                                      \
    process_run(p, folder, environment, (const char *const[]){process_self(), "script",          \
                                                              __VA_ARGS__, NULL})
#define ENVIRONMENT(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Executes the words of a script, each a call of a device function, and prints one line for
 * each. */
int device_script(int n, char **words);

#endif
