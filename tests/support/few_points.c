/* Splits the spaces of fused kernels as if they had more points than a GPU can count: with
 * WEBER_TEST_POINTS=N a launch has at most N.  The linker redirects the calls of wb__gpu_step to
 * this file.  The program fails if no step was split. */
#include "backend/gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic int *split;              /* in all processes together */
static uint32_t points;
static pid_t creator;

__attribute__((constructor)) static void read_points(void)
{
    const char *value = getenv("WEBER_TEST_POINTS");
    points = value ? (uint32_t)atoll(value) : 0;
    creator = getpid();
    split = mmap(NULL, sizeof *split, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (split == MAP_FAILED) abort();
}

__attribute__((destructor)) static void check_split(void)
{
    if (!points || getpid() != creator) return;
    printf("%d steps were split into launches of at most %u points\n", *split, points);
    fflush(stdout);
    if (!*split) _exit(1);
}

int __real_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work);
int __wrap_wb__gpu_step(const wb__gpu_target *t, const wb__step *step, wb__gpu_work **work)
{
    wb__gpu_target few = *t;
    wb__gpu_work *whole = NULL;
    int e = __real_wb__gpu_step(t, step, points ? &whole : work);
    if (!points) return e;
    few.max_points = points;
    if (!e) e = __real_wb__gpu_step(&few, step, work);
    if (!e && (*work)->n > whole->n) ++*split;
    wb__gpu_work_free(whole);
    return e;
}
