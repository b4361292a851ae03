/* Processes of their own, for what can only be shown in one: loading, the environment, what is
 * printed. */
#ifndef TEST_PROCESS_H
#define TEST_PROCESS_H

#include <stdbool.h>

/* What a process left: its exit status, or minus the signal's number, and what it wrote. */
typedef struct {
    int status;
    char out[16384], err[16384];
} process;

/* Runs a program in a folder.  `environment` and `arguments` end with NULL; variables of Weber's
 * are removed first, "NAME=value" is set.  After a minute the process is killed. */
void process_run(process *p, const char *folder, const char *const *environment,
                 const char *const *arguments);

/* An empty folder that is a project of its own, so that no search goes above it; its name is kept
 * until the next call.  process_file writes a file into it, process_text reads one ("" if none). */
const char *process_folder(void);
void process_file(const char *folder, const char *name, const char *text);
const char *process_text(const char *folder, const char *name);
void process_remove(const char *folder);

/* The words of a script for device_script.c, run by this very program. */
#define SCRIPT(p, folder, environment, ...)                                                      \
    process_run(p, folder, environment, (const char *const[]){"/proc/self/exe", "script",        \
                                                              __VA_ARGS__, NULL})
#define ENVIRONMENT(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Does what each word says with the functions of devices, and prints a line a word. */
int device_script(int n, char **words);

#endif
