/* The place of this process among the ranks, by the environment that its launcher has set. */
#ifndef WB__PLACE_H
#define WB__PLACE_H

#include <stdbool.h>

typedef struct {
    int rank, size;
    int local_rank, local_size;         /* rank and size among the ranks of this machine */
} wb__place;

/* Whether a launcher has set its variables. */
bool wb__is_launched(void);
/* Reads the variables of `weber launch`, else of a launcher of MPI, else of Slurm.  0 or an error
 * code; the message names the variable that is missing or wrong. */
int wb__launch_place(wb__place *p);

#endif
