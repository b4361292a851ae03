/* The warning about a loop that makes plans for ever new shapes. */
#ifndef WB__PLAN_SHAPES_H
#define WB__PLAN_SHAPES_H

#include "engine/request.h"

/* Counts a plan that was built for r, and warns of too many, at most once in the process. */
void wb__plan_shapes_count(const wb__request *r);
void wb__plan_shapes_clear(void);

#endif
