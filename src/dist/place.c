/* The place of this process among the ranks (place.h). */
#include "dist/place.h"

#include "base/base.h"
#include "base/environment.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The environment variables of one launcher. */
typedef struct { const char *rank, *size, *local_rank, *local_size; } place_names;

static const place_names place_weber = {"WEBER_RANK", "WEBER_SIZE", "WEBER_LOCAL_RANK",
                                        "WEBER_LOCAL_SIZE"};
static const place_names open_mpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
static const place_names place_mpich = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS"};
static const place_names place_slurm = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
                                        "SLURM_STEP_TASKS_PER_NODE"};

/* Returns the value of a variable; NULL: the variable is not set, or empty. */
static const char *place_value_of(const char *name)
{
    const char *value = wb__environment_text(name);
    return value && *value ? value : NULL;
}

static bool is_any_set(const place_names *n)
{
    return place_value_of(n->rank) || place_value_of(n->size);
}

/* Returns the launcher's variables.  A launcher of MPI that runs inside a job of Slurm leaves
 * Slurm's variables set, which then describe the job.  srun may set PMI_RANK, but no
 * MPI_LOCALRANKID. */
static const place_names *place_variables(void)
{
    if (is_any_set(&place_weber)) return &place_weber;
    if (is_any_set(&open_mpi)) return &open_mpi;
    if (is_any_set(&place_mpich) &&
        (place_value_of(place_mpich.local_rank) || !place_value_of(place_slurm.rank)))
        return &place_mpich;
    if (place_value_of(place_slurm.rank)) return &place_slurm;
    return NULL;
}

/* Reads a number from `least` to `most`. */
static int place_read_number(const char *name, const place_names *n, int least, int most,
                             int *number)
{
    const char *value = place_value_of(name);
    char *end;
    if (!value)
        return wb__fail(WB_ERROR_ARGUMENT, "ranks: %s is not set, but %s is", name,
                        place_value_of(n->rank) ? n->rank : n->size);
    errno = 0;
    const long x = strtol(value, &end, 10);
    if (end == value || *end || errno)
        return wb__fail(WB_ERROR_ARGUMENT, "ranks: %s is \"%s\", which is not a number", name,
                        value);
    if (x < least || x > most)
        return wb__fail(WB_ERROR_ARGUMENT, "ranks: %s is %ld: it must be from %d to %d", name, x,
                        least, most);
    *number = (int)x;
    return 0;
}

/* Reads the number of ranks on this machine from Slurm's list for all machines: "4(x2),3" means 4,
 * 4 and 3. */
static int place_read_machine(const char *name, int most, int *number)
{
    const char *list = place_value_of(name);
    int machine, first = 0;
    if (!list) list = place_value_of(name = "SLURM_TASKS_PER_NODE");
    if (!list)
        return wb__fail(WB_ERROR_ARGUMENT, "ranks: neither %s nor %s is set, but %s is",
                        place_slurm.local_size, name, place_slurm.rank);
    const int status = place_read_number("SLURM_NODEID", &place_slurm, 0, INT_MAX - 1, &machine);
    if (status) return status;
    for (const char *at = list; *at;) {
        char *end;
        const long tasks = strtol(at, &end, 10);
        long times = 1;
        if (end == at || tasks < 1) break;
        if (wb__begins(end, "(x")) {
            at = end + 2;
            times = strtol(at, &end, 10);
            if (end == at || times < 1 || *end++ != ')') break;
        }
        if (*end && *end != ',') break;
        if (machine - first < times) {
            if (tasks > most) break;
            *number = (int)tasks;
            return 0;
        }
        first += (int)times;            /* is at most `machine` */
        at = end + (*end == ',');
    }
    return wb__fail(WB_ERROR_ARGUMENT, "ranks: %s is \"%s\", which has no number of tasks from 1 to"
                    " %d for the machine %d, SLURM_NODEID", name, list, most, machine);
}

bool wb__is_launched(void) { return place_variables() != NULL; }

int wb__launch_place(wb__place *p)
{
    const place_names *n = place_variables();
    if (!n)
        return wb__fail(WB_ERROR_ARGUMENT, "ranks: this process has no number, since %s is not set:"
                        " start the program by `weber launch -np N PROGRAM`, srun or mpirun",
                        place_weber.rank);
    int status = place_read_number(n->size, n, 1, INT_MAX, &p->size);
    if (!status) status = place_read_number(n->rank, n, 0, p->size - 1, &p->rank);
    if (!status && n == &place_slurm)
        status = place_read_machine(n->local_size, p->size, &p->local_size);
    else if (!status) status = place_read_number(n->local_size, n, 1, p->size, &p->local_size);
    if (!status)
        status = place_read_number(n->local_rank, n, 0, p->local_size - 1, &p->local_rank);
    return status;
}
