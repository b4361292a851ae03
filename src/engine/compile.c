/* wb_compile: a function recorded once for each signature of its inputs, then replayed - the plan
 * of the recorded graph run with new inputs, new draws and new numbers.  No graph is built.
 *
 * What a recording holds: which buffer is which input, variable or constant; where in the numbers
 * the draws stand, so that each replay takes its own counters; and who renews the other numbers (an
 * optimiser's step). */
#include "base/parallel.h"
#include "base/philox.h"
#include "engine/request.h"

#include <pthread.h>
#include <string.h>

enum { RECORDINGS = 16, OUTPUTS = 8 };

typedef struct {
    int at;
    uint64_t offset;
} drawing; /* numbers[at], numbers[at + 1]: key and counter */
typedef struct {
    int at, hook, literal;
} renewed; /* numbers[at] is that literal of that hook */

typedef struct {
    wb__replay hook;
    void *context;
} renewal;

typedef struct {
    const wb_device *device;
    wb_dtype dtype;
    int ndim;
    int64_t dims[WB_MAX_DIMS];
} signature;

typedef struct wb__recording {
    int n_in, threads;
    uint64_t retyped;                   /* variables may have become others since */
    signature *in;
    wb__plan *plan;
    int n_buffers, n_leaves, n_targets, n_results;
    int *input_of;                      /* of each leaf: the input it is, -1 */
    wb_tensor **leaf;                   /* else the variable or the constant (counted) */
    signature *result;
    int n_writes;
    wb_tensor **written;                /* variables (counted) */
    int *target;
    int n_out;
    int output[OUTPUTS]; /* the result it is; -1: what is in `fixed`; -2 - j: input j itself */
    wb_tensor *fixed[OUTPUTS];
    wb__number *numbers;
    int n_numbers;
    drawing *draws;
    int n_draws;
    uint64_t base, blocks;              /* the counter when recording began, and how far it came */
    renewed *renewed;
    int n_renewed;
    renewal *renewals;
    int n_renewals, renewals_room;
    void **buffers;
} recording;

struct wb_compiled {
    wb__object object;
    wb_recordable f;
    void *ctx;
    pthread_mutex_t lock;               /* of what follows, and of replays, which share its buffers */
    int n;
    recording *recordings[RECORDINGS];
};

/* ---- recordings ------------------------------------------------------------------------------ */

static void recording_free(recording *r)
{
    if (!r) return;
    if (r->plan) wb__plan_done(r->plan);
    for (int i = 0; r->leaf && i < r->n_leaves; i++) wb__unref(r->leaf[i]);
    for (int i = 0; r->written && i < r->n_writes; i++) wb__unref(r->written[i]);
    for (int i = 0; i < OUTPUTS; i++) wb__unref(r->fixed[i]);
    for (int i = 0; i < r->n_renewals; i++) {
        wb__free(r->renewals[i].context);
        wb__unref(r->renewals[i].hook.holds);
    }
    wb__free(r->renewals);
    wb__free(r->in);
    wb__free(r->input_of);
    wb__free(r->leaf);
    wb__free(r->result);
    wb__free(r->written);
    wb__free(r->target);
    wb__free(r->numbers);
    wb__free(r->draws);
    wb__free(r->renewed);
    wb__free(r->buffers);
    wb__free(r);
}

static void compiled_destroy(void *object)
{
    wb_compiled *c = object;
    for (int i = 0; i < c->n; i++) recording_free(c->recordings[i]);
    pthread_mutex_destroy(&c->lock);
    wb__object_end(c, sizeof *c);
}

const wb__class wb__compiled_class = {.name = "compiled function", .destroy = compiled_destroy};

wb_compiled *wb_compile(wb_recordable f, void *ctx)
{
    if (!f) return wb__fail_null(WB_ERROR_ARGUMENT, "compile: no function");
    wb_compiled *c = wb__object_new(&wb__compiled_class, sizeof *c);
    if (!c) return NULL;
    c->f = f;
    c->ctx = ctx;
    pthread_mutexattr_t again;          /* f may come here again, from within its recording */
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&c->lock, &again);
    pthread_mutexattr_destroy(&again);
    return c;
}

int wb__on_replay(const wb__replay *hook)
{
    recording *r = wb__this_thread()->recording;
    if (!r) return 0;
    if (r->n_renewals == r->renewals_room) {
        int room = r->renewals_room ? 2 * r->renewals_room : 8;
        renewal *more = wb__realloc(r->renewals, (size_t)room * sizeof *more);
        if (!more) return WB_ERROR_MEMORY;
        r->renewals = more;
        r->renewals_room = room;
    }
    renewal n = {.hook = *hook, .context = wb__alloc(hook->bytes + 1)};
    if (!n.context) return WB_ERROR_MEMORY;
    for (int i = 0; i < hook->n;
         i++) { /* known again in the walk by its offset, which a literal has no use for */
        hook->literals[i]->flags |= WB__RENEWED;
        hook->literals[i]->offset = (int64_t)r->n_renewals << 32 | i;
    }
    if (hook->bytes) memcpy(n.context, hook->context, hook->bytes);
    wb__ref(hook->holds);
    r->renewals[r->n_renewals++] = n;
    return 0;
}

/* ---- taking down what was recorded ----------------------------------------------------------- */

static signature signature_of(const wb_tensor *x)
{
    signature s = {.device = wb__device_of(x), .dtype = (wb_dtype)x->dtype, .ndim = x->ndim};
    memcpy(s.dims, x->dims, sizeof s.dims);
    return s;
}

static bool room_for_all(recording *r, const wb__request *q)
{
    r->n_leaves = q->n_leaves;
    r->n_targets = q->n_targets;
    r->n_results = q->n_results;
    r->n_writes = q->n_writes;
    r->n_numbers = q->n_numbers;
    r->n_buffers = r->plan->arena + 1;
    r->input_of = wb__alloc(((size_t)q->n_leaves + 1) * sizeof *r->input_of);
    r->leaf = wb__alloc_zero((size_t)q->n_leaves + 1, sizeof *r->leaf);
    r->result = wb__alloc(((size_t)q->n_results + 1) * sizeof *r->result);
    r->written = wb__alloc_zero((size_t)q->n_writes + 1, sizeof *r->written);
    r->target = wb__alloc(((size_t)q->n_writes + 1) * sizeof *r->target);
    r->numbers = wb__alloc(((size_t)q->n_numbers + 1) * sizeof *r->numbers);
    r->draws = wb__alloc(((size_t)q->n_numbers + 1) * sizeof *r->draws);
    r->renewed = wb__alloc(((size_t)q->n_numbers + 1) * sizeof *r->renewed);
    r->buffers = wb__alloc((size_t)r->n_buffers * sizeof *r->buffers);
    return r->input_of && r->leaf && r->result && r->written && r->target && r->numbers &&
           r->draws && r->renewed && r->buffers;
}

/* Which numbers belong to draws and which to literals that are renewed. */
static void find_numbers(recording *r, const wb__request *q)
{
    int at = 0;
    for (int i = 0; i < q->order.n; i++) {
        const wb_tensor *x = q->order.node[i];
        if (wb__known(x) || !x->n_numbers || x->op == WB__OP_normalise) continue;
        if (x->op != WB__OP_literal) {
            r->draws[r->n_draws++] = (drawing){at, x->number[1].u - r->base};
            at += 2;
            continue;
        }
        if (wb__literal_fixed(x)) continue;
        if (x->flags & WB__RENEWED)
            r->renewed[r->n_renewed++] =
                (renewed){at, (int)(x->offset >> 32), (int)(x->offset & INT32_MAX)};
        at++;
    }
}

static void take_down(recording *r, const wb__request *q, int n_in, wb_tensor *const *in)
{
    for (int i = 0; i < q->n_leaves; i++) {
        wb_tensor *x = q->leaves[i];
        r->input_of[i] = -1;
        for (int j = 0; j < n_in; j++)
            if (in[j] == x) r->input_of[i] = j;
        if (r->input_of[i] < 0) r->leaf[i] = wb__ref(wb__variable_of(x) ? wb__variable_of(x) : x);
    }
    for (int i = 0; i < q->n_results; i++) r->result[i] = signature_of(q->results[i]);
    for (int i = 0; i < q->n_writes; i++) {
        r->written[i] = wb__ref(q->writes[i]->variable);
        r->target[i] = q->targets[i];
    }
    if (q->n_numbers) memcpy(r->numbers, q->numbers, (size_t)q->n_numbers * sizeof *r->numbers);
}

static void find_outputs(recording *r, const wb__request *q, int n, wb_tensor *const *out,
                         wb_tensor *const *in)
{
    r->n_out = n;
    for (int i = 0; i < n; i++) {
        wb_tensor *x = wb__bind(out[i]);
        r->output[i] = -1;
        for (int k = 0; k < q->n_results; k++)
            if (q->results[k] == x) r->output[i] = k;
        for (int j = 0; j < r->n_in; j++)
            if (in[j] == x) r->output[i] = -2 - j;
        if (r->output[i] == -1) r->fixed[i] = wb__ref(wb__variable_of(x) ? wb__variable_of(x) : x);
    }
}

/* What f gets for an input: a constant that is nothing else, so that the recording tells it from
 * any other input, from a variable, and from what f knows by itself. */
static wb_tensor *stand_in(wb_tensor *x) { return wb__alone(wb__bind(x)); }

/* The device of all that a function asked for; NULL where there are several. */
static const wb_device *recorded_on(const wb__thread *t, int n, wb_tensor *const *out)
{
    const wb_device *d = NULL;
    for (int i = 0; i < n + t->n_pending; i++) {
        const wb_device *own = i < n ? out[i]->device : t->pending[i - n]->device;
        if (!own || own == d) continue;
        if (d) return NULL;
        d = own;
    }
    return d ? d : wb_default_device();
}

/* Calls f and makes a plan of what it built; nothing is computed. */
static int record_with(wb_compiled *c, recording *r, int n_in, wb_tensor **in,
                       wb_tensor *const *given)
{
    wb__thread *t = wb__this_thread();
    wb__request q = {0};
    wb_tensor *out[OUTPUTS] = {NULL};
    int status = 0;
    wb_scope *scope = wb_scope_open();
    if (!scope) return WB_ERROR_MEMORY;
    for (int i = 0; i < n_in; i++) {
        if ((in[i] = stand_in(given[i]))) continue;
        wb_scope_close(scope);
        return WB_ERROR_MEMORY;
    }
    wb__rng_state rng = wb__rng_get_state();
    t->recording = r;
    int n = c->f(in, out, c->ctx);
    t->recording = NULL;
    r->base = rng.counter;
    r->blocks = wb__rng_get_state().counter - rng.counter;
    wb__rng_set_state(rng); /* nothing was drawn yet: the first replay draws what f would have */
    if (n < 0 || n > OUTPUTS)
        status = wb_error_code()
                     ? (int)wb_error_code()
                     : wb__fail(WB_ERROR_ARGUMENT, "compile: the function returned %d", n);
    for (int i = 0; i < n && !status; i++) {
        if (!out[i] && !wb_error_code())
            status = wb__fail(WB_ERROR_ARGUMENT, "compile: result %d of the function is NULL", i);
        else if (!wb__operand("compile", out[i])) status = wb_error_code();
        else out[i] = wb__bind(out[i]);
    }
    const wb_device *d = status ? NULL : recorded_on(t, n, out);
    if (!status && !d)
        status = wb__fail(WB_ERROR_UNSUPPORTED, "compile: the function works on several devices");
    if (!status) status = wb__request_fill(&q, d, n, out, true);
    if (!status && !(r->plan = wb__plan_find(&q)))
        status = wb_error_code() ? (int)wb_error_code() : WB_ERROR_MEMORY;
    if (!status && !room_for_all(r, &q)) status = WB_ERROR_MEMORY;
    if (!status) {
        take_down(r, &q, n_in, in);
        find_outputs(r, &q, n, out, in);
        find_numbers(r, &q);
    }
    wb__request_free(&q);
    wb__forget_pending(0);
    int closed = wb_scope_close(scope);
    return status ? status : closed;
}

static int record(wb_compiled *c, recording *r, int n_in, wb_tensor *const *given)
{
    wb_tensor **in = wb__alloc(((size_t)n_in + 1) * sizeof *in);
    int status = in ? record_with(c, r, n_in, in, given) : WB_ERROR_MEMORY;
    wb__free(in);
    return status;
}

/* ---- replaying ------------------------------------------------------------------------------- */

static bool fits(const recording *r, int n, wb_tensor *const *in)
{
    bool same = r->n_in == n && r->threads == wb__threads() && r->retyped == wb__retyped();
    for (int i = 0; same && i < n; i++)
        same = r->in[i].device == wb__device_of(in[i]) &&
               r->in[i].dtype == (wb_dtype)in[i]->dtype && r->in[i].ndim == in[i]->ndim &&
               !memcmp(r->in[i].dims, in[i]->dims, in[i]->ndim * sizeof in[i]->dims[0]);
    return same;
}

static recording *recording_for(wb_compiled *c, int n, wb_tensor *const *in)
{
    for (int i = 0; i < c->n; i++)
        if (fits(c->recordings[i], n, in)) return c->recordings[i];
    recording *r = wb__alloc_zero(1, sizeof *r);
    if (!r) return NULL;
    r->n_in = n;
    r->threads = wb__threads();
    r->retyped = wb__retyped();
    r->in = wb__alloc(((size_t)n + 1) * sizeof *r->in);
    for (int i = 0; r->in && i < n; i++) r->in[i] = signature_of(in[i]);
    if (!r->in || record(c, r, n, in)) {
        recording_free(r);
        return NULL;
    }
    if (c->n == RECORDINGS) {                   /* the oldest goes */
        recording_free(c->recordings[0]);
        memmove(c->recordings, c->recordings + 1, (RECORDINGS - 1) * sizeof *c->recordings);
        c->n--;
    }
    return c->recordings[c->n++] = r;
}

/* Each replay takes the counters that f would take, those of draws that nobody uses too. */
static void renew_numbers(recording *r)
{
    uint64_t key, counter;
    double values[64];
    wb__rng_take(r->blocks, &key, &counter);
    for (int i = 0; i < r->n_draws; i++) {
        r->numbers[r->draws[i].at].u = key;
        r->numbers[r->draws[i].at + 1].u = counter + r->draws[i].offset;
    }
    for (int i = 0; i < r->n_renewals; i++) {
        const renewal *n = &r->renewals[i];
        if (!n->hook.before || n->hook.n > (int)WB__COUNT(values)) continue;
        n->hook.before(n->context, values);
        for (int j = 0; j < r->n_renewed; j++)
            if (r->renewed[j].hook == i)
                r->numbers[r->renewed[j].at].f = values[r->renewed[j].literal];
    }
}

/* An input in the memory of a variable that is written is copied: the plan does not know that they
 * are one. */
static wb_tensor *apart_from_writes(const recording *r, wb_tensor *x)
{
    bool written = false;
    for (int i = 0; i < r->n_writes && !written; i++)
        written = r->written[i]->storage == x->storage;
    if (!written) return x;
    return wb__copied(x, x->storage->device);
}

static int replay(recording *r, wb_tensor *const *in, wb_tensor **made)
{
    int status = wb__plan_room(r->plan);
    for (int i = 0; i < r->n_writes && !status; i++)
        if (r->target[i] >= 0) status = wb__own_memory(r->written[i]);
    if (status) return status;
    for (int i = 0; i < r->n_leaves; i++) {
        int input = r->input_of[i];
        const wb_tensor *x = input >= 0 ? apart_from_writes(r, wb__bind(in[input])) : r->leaf[i];
        if (!x) return WB_ERROR_MEMORY;
        r->buffers[i] = wb__memory_of(x);
    }
    for (int i = 0; i < r->n_writes; i++)
        if (r->target[i] >= r->n_leaves) r->buffers[r->target[i]] = r->written[i]->storage->data;
    for (int i = 0; i < r->n_results; i++) {
        made[i] = wb__empty_on(r->plan->device, r->result[i].dtype, r->result[i].ndim, r->result[i].dims);
        if (!made[i]) return WB_ERROR_MEMORY;
        r->buffers[r->n_leaves + r->n_targets + i] = made[i]->storage->data;
    }
    renew_numbers(r);
    status = wb__plan_run(r->plan, r->buffers, r->numbers, r->n_numbers, NULL);
    for (int i = 0; i < r->n_writes && !status; i++)
        if (r->target[i] >= 0) status = wb__new_version(r->written[i]);
    for (int i = 0; i < r->n_renewals && !status; i++)
        if (r->renewals[i].hook.after) r->renewals[i].hook.after(r->renewals[i].context);
    return status;
}

/* With the lock; inputs are evaluated. */
static int call(wb_compiled *c, int n_in, wb_tensor *const *in, int n_out, wb_tensor **out)
{
    wb_tensor *made[OUTPUTS + 1];
    recording *r = recording_for(c, n_in, in);
    if (!r) return wb_error_code() ? (int)wb_error_code() : WB_ERROR_MEMORY;
    if (n_out > r->n_out)
        return wb__fail(WB_ERROR_ARGUMENT, "call_compiled: %d results wanted, the function gave %d",
                        n_out, r->n_out);
    int status = replay(r, in, made);
    if (status == WB_ERROR_MEMORY) wb__plan_tell_need(r->plan);
    for (int i = 0; i < n_out && !status; i++) {
        wb_tensor *other = r->output[i] < -1 ? wb__bind(in[-2 - r->output[i]]) : r->fixed[i];
        out[i] = r->output[i] >= 0 ? made[r->output[i]] : wb__scope_give(wb__ref(other));
        if (!out[i]) status = WB_ERROR_MEMORY;
    }
    return status;
}

int wb_call_compiled(wb_compiled *c, int n_in, wb_tensor *const *in, int n_out, wb_tensor **out)
{
    if (!c) return wb_error_code() ? (int)wb_error_code() : WB_ERROR_ARGUMENT;
    if (!wb__is(c, &wb__compiled_class))
        return wb__fail(WB_ERROR_ARGUMENT, "call_compiled: a %s is not a compiled function",
                        wb__kind(c));
    if (n_in < 0 || (n_in && !in) || n_out < 0 || (n_out && !out))
        return wb__fail(WB_ERROR_ARGUMENT, "call_compiled: %d inputs, %d results%s", n_in, n_out,
                        (n_in && !in) || (n_out && !out) ? ", and no array of them" : "");
    for (int i = 0; i < n_in; i++)
        if (!wb__operand("call_compiled", in[i]))
            return wb_error_code() ? (int)wb_error_code() : WB_ERROR_ARGUMENT;
    wb__thread *t = wb__this_thread();
    for (int i = 0; i < n_in; i++) {
        wb_tensor *x = wb__bind(in[i]);
        int status = x->storage ? 0 : wb__evaluate(1, &x, NULL);
        if (status) return status;
    }
    int status = t->n_pending ? wb__evaluate_pending() : 0;
    if (status) return status;
    pthread_mutex_lock(&c->lock);
    status = call(c, n_in, in, n_out, out);
    pthread_mutex_unlock(&c->lock);
    return status;
}
