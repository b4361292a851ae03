/* The precision of products, and whether runs are deterministic: two settings of the process.  Both
 * are part of a plan's key (request.c) and of its steps (wb__step_blank in plan/stages.h). */
#include "base/environment.h"
#include "base/mutex.h"
#include "engine/request.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const numerics_names[] = {
    [WB__PRECISION_HIGHEST] = "highest", [WB__PRECISION_HIGH] = "high",
    [WB__PRECISION_MEDIUM] = "medium"};

static _Atomic int numerics_precision = WB__PRECISION_HIGHEST;
static _Atomic bool numerics_deterministic;
static wb__once numerics_once = WB__ONCE_INIT;

static int numerics_index_of(const char *name)
{
    for (int i = 0; i < (int)WB__COUNT(numerics_names); i++)
        if (!strcmp(name, numerics_names[i])) return i;
    return -1;
}

static void numerics_read_environment(void)
{
    const char *name = wb__environment_text("WEBER_MATMUL_PRECISION");
    const int found = name && *name ? numerics_index_of(name) : WB__PRECISION_HIGHEST;
    if (found >= 0) numerics_precision = found;
    else
        wb__log(WB_LOG_WARN,
                "WEBER_MATMUL_PRECISION is \"%s\": it is highest, high or medium.\n"
                "The precision stays highest.", name);
    numerics_deterministic = wb__environment_switch("WEBER_DETERMINISTIC", false);
}

static void numerics_read_once(void) { wb__once_run(&numerics_once, numerics_read_environment); }

int wb_set_matmul_precision(const char *name)
{
    numerics_read_once();
    const int index = name ? numerics_index_of(name) : -1;
    if (index < 0)
        return wb__fail(WB_ERROR_ARGUMENT,
                        "set_matmul_precision: \"%s\" is none of highest, high, medium",
                        name ? name : "NULL");
    numerics_precision = index;
    return 0;
}

const char *wb_matmul_precision(void) { return numerics_names[wb__numerics().precision]; }

void wb_set_deterministic(bool on)
{
    numerics_read_once();
    numerics_deterministic = on;
}

bool wb_deterministic(void) { return wb__numerics().deterministic; }

wb__numerics_now wb__numerics(void)
{
    numerics_read_once();
    return (wb__numerics_now){(uint8_t)numerics_precision, numerics_deterministic};
}
