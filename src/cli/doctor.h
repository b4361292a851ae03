/* Parts of `weber doctor`. */
#ifndef WB__DOCTOR_H
#define WB__DOCTOR_H

#include "backend/cpu/isa.h"
#include "base/os.h"

/* doctor_library.c: loads the shared library beside this program, whose path is `self`, as a
 * program would, and prints the outcome.  `package` returns the package with the library that a
 * message of the dynamic linker misses, or NULL.  Returns the number of problems. */
int wb__cli_check_library(const char *self, const char *(*package)(const char *reason));

/* doctor_program.c: compiles and runs a program of five lines, by pkg-config and by CMake, and
 * prints what fails and the cure.  Returns the number of problems. */
int wb__cli_check_programs(const char *self);
/* Runs a program in a folder; `text` gets its output, with `errors` also that to standard error.
 * False: the program cannot be run. */
bool wb__cli_capture(const char *const *words, const char *folder, bool errors, char *text,
                     size_t size, wb__os_end *end);

/* doctor_speed.c: times a small training and prints the result beside a usual one.  Sets
 * *threads_are_slow to whether it is much slower on all threads than on one.  Returns 0 or an error
 * code. */
int wb__cli_time_training(bool *threads_are_slow);
const char *wb__cli_isa_name(wb__isa_level level);

#endif
