/* The state of a thread is set aside and restored; see apart.h. */
#include "engine/compiled/apart.h"

int wb__check_count(int n_out, int n)
{
    if (n_out <= n) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "call_compiled: %d results wanted, the function gave %d",
                    n_out, n);
}

void wb__apart_begin(wb__apart *a, const wb_device *d)
{
    wb__thread *t = wb__this_thread();
    *a = (wb__apart){t->guard, t->pending, t->n_pending, t->pending_capacity, t->recording,
                     t->recorded, wb__use_device(d)};
    t->guard = NULL;
    t->pending = NULL;
    t->n_pending = t->pending_capacity = 0;
    t->recording = NULL;
    t->recorded = 0;
    t->busy++;
}

void wb__apart_end(const wb__apart *a)
{
    wb__thread *t = wb__this_thread();
    t->busy--;
    wb__free(t->pending);
    t->guard = a->guard;
    t->pending = a->pending;
    t->n_pending = a->n_pending;
    t->pending_capacity = a->pending_capacity;
    t->recording = a->recording;
    t->recorded = a->recorded;
    wb__use_device(a->device);
}
