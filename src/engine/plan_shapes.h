/* The warning about a loop that makes plans for ever new shapes. */
#ifndef WB__PLAN_SHAPES_H
#define WB__PLAN_SHAPES_H

#include "engine/request.h"

/* Called when a plan was built for r.  Warns at most once in the process. */
void wb__plan_shapes_count(const wb__request *r);
void wb__plan_shapes_clear(void);

#endif
