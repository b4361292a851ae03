/* The state of a thread is set aside and restored; see apart.h. */
#include "engine/compiled/apart.h"
#include "engine/evaluate.h"
#include "engine/graph.h"

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

static bool is_known_or_captured(const wb_tensor *x)
{
    return wb__is_leaf(x) || x->recorded != wb__this_thread()->recorded;
}

int wb__evaluate_captured(wb__thread *t, int n, wb_tensor *const *out)
{
    wb__order order = {0};
    int n_captured = 0, status = 0;
    wb__order_begin(&order);
    for (int i = 0; i < n + t->n_pending && !status; i++)
        if (!wb__order_add(&order, i < n ? out[i] : t->pending[i - n], is_known_or_captured))
            status = WB_ERROR_MEMORY;
    for (int i = 0; i < order.n; i++) {
        wb_tensor *x = order.node[i];
        if (!wb__is_leaf(x) && x->recorded != t->recorded && x->device)
            order.node[n_captured++] = x;
    }
    if (!status && n_captured) {
        wb__apart apart;
        wb__apart_begin(&apart, t->device);
        status = wb__evaluate(n_captured, order.node, NULL);
        wb__apart_end(&apart);
    }
    wb__order_free(&order);
    return status;
}
