/* Parts of `weber doctor`. */
#ifndef WB__DOCTOR_H
#define WB__DOCTOR_H

#include "backend/cpu/isa.h"

/* variables.c: the variables of the environment that the library and its scripts read, ended by
 * NULL. */
extern const char *const wb__cli_variables[];

/* doctor_speed.c: times a small training and prints the result beside what is usual.  Returns 0 or
 * an error code. */
int wb__cli_time_training(void);
const char *wb__cli_isa_name(wb__isa_level level);

#endif
