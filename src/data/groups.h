/* Groups of observations with equal labels. */
#ifndef WB__GROUPS_H
#define WB__GROUPS_H

#include "data/dataset.h"

/* Group k has the observations index[start[k]] .. index[start[k + 1] - 1], in ascending order.  The
 * groups are in the order of their labels.  The arrays are blocks of wb__alloc. */
typedef struct {
    int64_t n, groups;              /* number of observations; of groups */
    int64_t *index, *start;
    int64_t *key;                   /* a number for each group, in the order of the labels */
} wb__grouping;

/* Groups the elements of `labels`, which has one number for each of n observations.  Returns 0, or
 * an error code with nothing to free. */
int wb__group_labels(const char *what, wb_tensor *labels, int64_t n, wb__grouping *g);
/* Groups the observations of d by `labels`, or by the y of d if `labels` is NULL. */
int wb__group_dataset(const char *what, wb_dataset *d, wb_tensor *labels, wb__grouping *g);
/* Groups the n observations by `keys`, a block that it takes over, also on failure. */
int wb__group_keys(int64_t n, int64_t *keys, wb__grouping *g);
void wb__group_free(wb__grouping *g);

#endif
