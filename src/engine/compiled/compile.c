/* wb_compile records a function once for each signature of its inputs.  A replay runs the plan of
 * the recorded graph with new inputs, new random numbers and new literals, and builds no graph.
 *
 * A recording has:
 *   - the input, variable or constant in each buffer that the plan reads;
 *   - the source of each number of the plan that a replay sets: the random state, an input, or a
 *     callback that gives, for example, an optimiser's step count;
 *   - its notes (recording.h), which decide whether the recording can still be replayed. */
#include "base/mutex.h"
#include "base/parallel.h"
#include "base/numbers/philox.h"
#include "engine/compiled/apart.h"
#include "engine/compiled/signature.h"
#include "engine/evaluate.h"
#include "engine/request.h"

#include <string.h>

enum {
    RECORDINGS = 16,
    COMPILE_OUTPUTS = 8,
    SPARE_INPUTS = 16           /* NULLs behind the inputs, in case the function reads too many */
};

/* One or two of the plan's numbers that each replay sets.  Their source depends on `hook`:
 *   >= 0        numbers[at] = values[literal], where `values` is what the callback
 *               notes.renewals[hook].hook.before writes
 *   OF_INPUT    numbers[at] = the value of input number `literal`
 *   OF_DRAW     numbers[at], numbers[at + 1] = the key and the counter of random numbers */
enum { OF_INPUT = -1, OF_DRAW = -2 };
typedef struct {
    int at, hook, literal;
    uint64_t offset;                    /* of OF_DRAW: the counter minus recording.base */
} renewed;

/* A buffer that the plan reads: input number `input`; the variable or constant `tensor` (NO_INPUT);
 * or the guard of the optimiser step before (BEFORE, guard.c). */
enum { NO_INPUT = -1, BEFORE = -2 };
typedef struct {
    int input;
    wb_tensor *tensor;                  /* holds a reference */
    int64_t at;                         /* byte of the tensor at which the buffer begins */
    wb__value_read reads;               /* during a replay */
} compile_leaf;

typedef struct {
    wb_tensor *variable;                /* holds a reference */
    int target;                         /* wb__request.targets of the write */
} compile_write;

typedef struct {
    wb__recording notes;
    int n_in, threads;                  /* number of inputs; wb_threads of the plan */
    const wb_device *default_device;    /* the default device of the thread */
    bool training;                      /* whether the thread was inside wb_withgradient */
    wb__signature *in;                  /* signatures of the inputs */
    wb__plan *plan;
    int n_leaves, n_targets, n_results, n_writes;
    compile_leaf *leaves;
    compile_write *writes;
    wb__signature *results;             /* signatures of the results */
    int guard;                          /* 1 + index of the result that must be finite, or 0 */
    const char *guarded_by;             /* name of the guard in messages */
    bool late;                          /* the device looks at the guard; the host reads it late */
    int n_out;
    /* output[i]: index of a result; -1: the tensor fixed[i]; -2 - j: input j itself. */
    int output[COMPILE_OUTPUTS];
    wb_tensor *fixed[COMPILE_OUTPUTS];
    wb__number *numbers;
    int n_numbers;
    uint64_t base, blocks;              /* first random counter of the recording; their number */
    renewed *renewed;
    int n_renewed;
    void **buffers;                     /* memory of each buffer of the plan */
    size_t *offsets;                    /* in bytes; 0 for buffers that are no leaf */
} recording;

struct wb_compiled {
    wb__object object;
    wb_recordable f;
    void *ctx;
    int rank;                           /* wb__thread_rank of the thread that made it */
    wb__mutex lock;                     /* guards the fields below and the buffers of replays */
    int n;                              /* number of recordings */
    recording *recordings[RECORDINGS];
};

/* ---- recordings ------------------------------------------------------------------------------ */

static void recording_free(recording *r)
{
    if (!r) return;
    if (r->plan) wb__plan_done(r->plan);
    for (int i = 0; r->leaves && i < r->n_leaves; i++) wb__unref(r->leaves[i].tensor);
    for (int i = 0; r->writes && i < r->n_writes; i++) wb__unref(r->writes[i].variable);
    for (int i = 0; i < COMPILE_OUTPUTS; i++) wb__unref(r->fixed[i]);
    wb__recording_drop(&r->notes);
    wb__free(r->in);
    wb__free(r->leaves);
    wb__free(r->writes);
    wb__free(r->results);
    wb__free(r->numbers);
    wb__free(r->renewed);
    wb__free(r->buffers);
    wb__free(r->offsets);
    wb__free(r);
}

static void compiled_destroy(void *object)
{
    wb_compiled *c = object;
    for (int i = 0; i < c->n; i++) recording_free(c->recordings[i]);
    wb__mutex_destroy(&c->lock);
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
    c->rank = wb__thread_rank;
    wb__mutex_init(&c->lock);
    return c;
}

/* ---- calling the function -------------------------------------------------------------------- */

/* Returns an array, which the caller frees: the n_in inputs in `given`, or n_in NULLs if `given` is
 * NULL, and then SPARE_INPUTS NULLs.  Returns NULL if memory runs out. */
static wb_tensor **compile_inputs_of(int n_in, wb_tensor *const *given)
{
    wb_tensor **in = wb__alloc_zero((size_t)n_in + SPARE_INPUTS, sizeof *in);
    if (in && given) memcpy(in, given, (size_t)n_in * sizeof *in);
    return in;
}

WB__PROGRAM_CALL(f_call, f_run, int, const wb_compiled *of; wb_tensor *const *in;
                 wb_tensor **out;, c->of->f(c->in, c->out, c->of->ctx))
/* Calls f.  An error that was set before the call is set again if f sets none. */
static int compile_call_function(const wb_compiled *c, int n_in, wb_tensor *const *in, int *n,
                                 wb_tensor **out)
{
    wb__error_kept kept;
    int status = 0;
    wb__error_keep(&kept), wb_clear_error();
    f_call of = {c, in, out, 0};
    *n = wb__call_program(f_run, &of) ? of.result : -1;
    if (*n < 0 || *n > COMPILE_OUTPUTS)
        status = wb_error_code()
                     ? (int)wb_error_code()
                     : wb__fail(WB_ERROR_ARGUMENT, "compile: the function returned %d, not the "
                                "number of its results, which is at most %d", *n, COMPILE_OUTPUTS);
    for (int i = 0; i < *n && !status; i++) {
        if (out[i] && wb__operand("compile", out[i])) continue;
        status = wb_error_code()
                     ? (int)wb_error_code()
                     : wb__fail(WB_ERROR_ARGUMENT, "compile: result %d of the function is NULL; it "
                                "was called with %d input%s", i, n_in, n_in == 1 ? "" : "s");
    }
    if (!status && !wb_error_code()) wb__error_restore(&kept);
    return status;
}

/* Calls f while another function is recorded; f becomes a part of that recording. */
static int call_while_recording(const wb_compiled *c, int n_in, wb_tensor *const *given, int n_out,
                                wb_tensor **result)
{
    wb_tensor *out[COMPILE_OUTPUTS] = {NULL}, **in = compile_inputs_of(n_in, given);
    const int pending = wb__pending_count();
    int n, status = in ? compile_call_function(c, n_in, in, &n, out) : WB_ERROR_MEMORY;
    if (!status) status = wb__check_count(n_out, n);
    if (!status) memcpy(result, out, (size_t)n_out * sizeof *out);
    else wb__forget_pending(pending);
    wb__free(in);
    return status;
}

/* ---- building a recording -------------------------------------------------------------------- */

/* Fills r->renewed with the numbers of the plan that replays set. */
static void find_renewed_numbers(recording *r, const wb__request *q)
{
    int at = 0;
    for (int i = 0; i < q->order.n; i++) {
        const wb_tensor *x = q->order.node[i];
        if (wb__known(x) || !x->n_numbers || x->op == WB__OP_normalize) continue;
        const bool literal = x->op == WB__OP_literal;
        if (literal && wb__literal_fixed(x)) continue;
        renewed *n = &r->renewed[r->n_renewed];
        *n = (renewed){.at = at, .hook = OF_DRAW};
        if (!literal) n->offset = x->number[1].u - r->base;
        else *n = (renewed){.at = at, .hook = x->renewed.hook, .literal = x->renewed.number};
        r->n_renewed += !literal || x->flags & WB__RENEWED;
        at += x->n_numbers;
    }
}

/* Copies the parts of the request that replays need.  Takes over q->numbers.  False: no memory. */
static bool copy_request(recording *r, wb__request *q, int n_in, wb_tensor *const *in)
{
    const size_t n_buffers = (size_t)wb__plan_buffers(r->plan);
    r->n_leaves = q->n_leaves;
    r->n_targets = q->n_targets;
    r->n_results = q->n_results;
    r->n_writes = q->n_writes;
    r->n_numbers = q->n_numbers;
    r->leaves = wb__alloc_zero((size_t)q->n_leaves + 1, sizeof *r->leaves);
    r->writes = wb__alloc_zero((size_t)q->n_writes + 1, sizeof *r->writes);
    r->results = wb__alloc(((size_t)q->n_results + 1) * sizeof *r->results);
    r->renewed = wb__alloc(((size_t)q->n_numbers + 1) * sizeof *r->renewed);
    r->buffers = wb__alloc(n_buffers * sizeof *r->buffers);
    r->offsets = wb__alloc_zero(n_buffers, sizeof *r->offsets);
    if (!r->leaves || !r->writes || !r->results || !r->renewed || !r->buffers || !r->offsets)
        return false;
    r->numbers = q->numbers;
    q->numbers = NULL;
    for (int i = 0; i < q->n_leaves; i++) {
        wb_tensor *x = q->leaves[i].tensor;
        compile_leaf *l = &r->leaves[i];
        *l = (compile_leaf){.input = NO_INPUT, .at = q->leaves[i].at};
        for (int j = 0; j < n_in; j++)
            if (in[j] == x) l->input = j;
        if (q->guard && i == q->before_leaf) l->input = BEFORE;
        if (l->input == NO_INPUT) l->tensor = wb__ref(wb__variable_of(x) ? wb__variable_of(x) : x);
    }
    for (int i = 0; i < q->n_results; i++) r->results[i] = wb__signature_of(q->results[i]);
    for (int i = 0; i < q->n_writes; i++)
        r->writes[i] = (compile_write){wb__ref(q->writes[i]->variable), q->targets[i]};
    return true;
}

static void find_outputs(recording *r, const wb__request *q, int n, wb_tensor *const *out,
                         wb_tensor *const *in)
{
    r->n_out = n;
    for (int i = 0; i < n; i++) {
        wb_tensor *x = out[i];
        r->output[i] = -1;
        for (int k = 0; k < q->n_results; k++)
            if (q->results[k] == x) r->output[i] = k;
        for (int j = 0; j < r->n_in; j++)
            if (in[j] == x) r->output[i] = -2 - j;
        if (r->output[i] == -1) r->fixed[i] = wb__ref(wb__variable_of(x) ? wb__variable_of(x) : x);
    }
}

/* Returns the tensor that f gets in place of input i.  For a number it is a literal that replays
 * set; for another tensor it is a new constant, which differs from every other tensor. */
static wb_tensor *placeholder_of_input(wb_tensor *x, int i)
{
    if (!wb__number_kind_of(x)) return wb__constant_of("call_compiled", x);
    wb_tensor *number = wb__argument(x->number[0].f, (wb_dtype)x->dtype);
    if (!number) return NULL;
    number->flags |= x->flags & WB__WEAK;
    wb__renewed(number, OF_INPUT, i);
    return number;
}

/* Returns the one device of f's results and writes.  NULL, with the error set, if there are
 * several. */
static const wb_device *device_of_recording(const wb__thread *t, int n, wb_tensor *const *out)
{
    const wb_device *d = NULL;
    for (int i = 0; i < n + t->n_pending; i++) {
        const wb_device *own = i < n ? out[i]->device : t->pending[i - n]->device;
        if (!own || own == d) continue;
        if (d)
            return wb__fail_null(WB_ERROR_UNSUPPORTED, "compile: the function works on several"
                                 " devices");
        d = own;
    }
    return d ? d : wb_default_device();
}

/* Plans the graph that f built, without running it, and fills in the recording.  Returns 0 or an
 * error code. */
static int make_plan(recording *r, int n, wb_tensor **out, int n_in, wb_tensor *const *in)
{
    wb__thread *t = wb__this_thread();
    wb__request q = {0};
    wb_tensor *roots[COMPILE_OUTPUTS + 1];
    for (int i = 0; i < n; i++)
        if (!(out[i] = wb__version("call_compiled", out[i]))) return (int)wb_error_code();
    const wb_device *d = device_of_recording(t, n, out);
    if (!d) return wb_error_code();
    for (int i = 0; i < n; i++)         /* a result without a device is computed from numbers only,
                                           and gets device d */
        if (wb__device_of(out[i]) != d && !(out[i] = wb__with_device(out[i], d)))
            return WB_ERROR_MEMORY;
    memcpy(roots, out, (size_t)n * sizeof *roots);
    int n_roots = n;
    if (t->guard) roots[n_roots++] = t->guard;
    int status = wb__evaluate_captured(t, n_roots, roots);
    if (wb__guard_may_be_late(t->guard, d)) {
        q.guard = t->guard;
        q.before = wb__guard_finite(d, t->guard);
        if (!q.before) return wb__error_or(WB_ERROR_MEMORY);
    }
    r->late = q.guard != NULL;
    if (!status) status = wb__request_fill(&q, d, n_roots, roots, true);
    if (!status && !(r->plan = wb__plan_find(&q)))
        status = wb__error_or(WB_ERROR_MEMORY);
    if (!status && !copy_request(r, &q, n_in, in)) status = WB_ERROR_MEMORY;
    if (!status) {
        find_outputs(r, &q, n, out, in);
        find_renewed_numbers(r, &q);
        for (int i = 0; t->guard && i < q.n_results; i++)
            if (q.results[i] == t->guard) r->guard = i + 1;
        r->guarded_by = t->guarded_by;
    }
    wb__request_free(&q);
    return status;
}

/* Calls f, notes which random counters f reserved, and restores the thread's state. */
static int record_call(const wb_compiled *c, recording *r, int n_in, wb_tensor *const *in,
                       int *n, wb_tensor **out)
{
    wb__thread *t = wb__this_thread();
    const wb_device *device = t->device;
    const wb__rng_state rng = wb__rng_get_state();
    const uint64_t seedings = wb__rng_seedings();
    const int status = compile_call_function(c, n_in, in, n, out);
    r->base = rng.counter;
    r->blocks = wb__rng_get_state().counter - rng.counter;
    if (wb__rng_seedings() != seedings) wb__duty_fails(WB__OF_wb_seed);
    if (t->device != device) wb__duty_fails(WB__OF_wb_set_default_device);
    wb__rng_set_state(rng); /* the first replay draws what f would have drawn */
    t->device = device;
    return status;
}

/* Records the function for inputs like these.  Returns 0 or an error code. */
static int record_function(wb_compiled *c, recording *r, int n_in, wb_tensor *const *given)
{
    wb_tensor *out[COMPILE_OUTPUTS] = {NULL}, **in = compile_inputs_of(n_in, NULL);
    wb_scope *scope = in ? wb_scope_open() : NULL;
    if (!scope) {
        wb__free(in);
        return WB_ERROR_MEMORY;
    }
    int n = 0, status = 0;
    wb__recording_begin(&r->notes, scope);
    for (int i = 0; i < n_in && !status; i++)
        if (!(in[i] = wb__ref(placeholder_of_input(given[i], i)))) status = WB_ERROR_MEMORY;
    if (!status) status = record_call(c, r, n_in, in, &n, out);
    if (!status && !r->notes.failed) status = make_plan(r, n, out, n_in, in);
    if (status) wb__recording_fail(&r->notes, status);
    for (int i = 0; i < n_in; i++) wb__unref(in[i]);    /* the references taken above */
    wb__forget_pending(0);
    r->notes.scope = NULL;
    const int closed = wb_scope_close(scope);
    wb__free(in);
    status = wb__recording_end(&r->notes);
    return status ? status : closed;
}

/* ---- replaying ------------------------------------------------------------------------------- */

static bool recording_has_inputs(const recording *r, int n, wb_tensor *const *in)
{
    const wb__thread *t = wb__this_thread();
    bool same = r->n_in == n && r->threads == wb__threads() &&
                r->default_device == wb_default_device() && r->training == (t->training > 0);
    for (int i = 0; same && i < n; i++) {
        const wb__signature s = wb__signature_of(in[i]);
        same = wb__same_signature(&r->in[i], &s);
    }
    return same;
}

static void drop_recording(wb_compiled *c, int i)
{
    recording_free(c->recordings[i]);
    memmove(c->recordings + i, c->recordings + i + 1, (size_t)(--c->n - i) * sizeof *c->recordings);
}

/* Returns the recording that fits the inputs, or a new one; NULL: failed. */
static recording *find_or_record(wb_compiled *c, int n, wb_tensor *const *in)
{
    for (int i = 0; i < c->n; i++) {
        recording *r = c->recordings[i];
        if (!recording_has_inputs(r, n, in)) continue;
        const wb__fit fit = wb__recording_fit(&r->notes);
        if (fit == WB__FITS) return r;
        if (fit == WB__FITS_NEVER) drop_recording(c, i--);
    }
    recording *r = wb__alloc_zero(1, sizeof *r);
    if (!r) return NULL;
    r->n_in = n;
    r->threads = wb__threads();
    r->default_device = wb_default_device();
    r->training = wb__this_thread()->training > 0;
    r->in = wb__alloc(((size_t)n + 1) * sizeof *r->in);
    for (int i = 0; r->in && i < n; i++) r->in[i] = wb__signature_of(in[i]);
    if (!r->in || record_function(c, r, n, in)) {
        recording_free(r);
        return NULL;
    }
    if (c->n == RECORDINGS) drop_recording(c, 0); /* drops the oldest one */
    return c->recordings[c->n++] = r;
}

/* Sets the numbers of a replay, and reserves as many random counters as f would. */
static void set_replay_numbers(recording *r, wb_tensor *const *in)
{
    uint64_t key, counter;
    double values[64];
    wb__rng_take(r->blocks, &key, &counter);
    for (int i = 0; i < r->n_renewed; i++) {
        const renewed *n = &r->renewed[i];
        wb__number *to = &r->numbers[n->at];
        if (n->hook == OF_INPUT) to->f = in[n->literal]->number[0].f;
        if (n->hook != OF_DRAW) continue;
        to[0].u = key;
        to[1].u = counter + n->offset;
    }
    for (int i = 0; i < r->notes.n_renewals; i++) {
        const wb__renewal *n = &r->notes.renewals[i];
        if (!n->hook.before || n->hook.n > (int)WB__COUNT(values)) continue;
        n->hook.before(n->context, values);
        for (int j = 0; j < r->n_renewed; j++)
            if (r->renewed[j].hook == i)
                r->numbers[r->renewed[j].at].f = values[r->renewed[j].literal];
    }
}

/* Returns the input x, or a copy of x if the recording writes the memory of x.  NULL: the copy
 * failed. */
static wb_tensor *copy_if_written(const recording *r, wb_tensor *x)
{
    bool written = false;
    for (int i = 0; i < r->n_writes && !written; i++)
        written = r->writes[i].variable->storage == x->storage;
    return written ? wb__copied(x, x->storage->device) : x;
}

/* The tensor of a leaf; NULL: the guard of the step before. */
static wb_tensor *tensor_of_leaf(const compile_leaf *l, wb_tensor *const *in)
{
    return l->input < 0 ? l->tensor : in[l->input];
}

/* Sets the buffers of the prepared forms.  Inputs have forms too, since a model may be an input. */
static void bind_forms(recording *r, wb_tensor *const *in)
{
    const wb__plan *p = r->plan;
    const uint64_t run = p->n_forms ? wb__form_run() : 0;
    for (int i = 0; i < p->n_forms; i++)
        r->buffers[p->arena + 1 + i] =
            wb__form_of(p, i, tensor_of_leaf(&r->leaves[p->forms[i].leaf], in), run);
}

/* Sets the buffers of a replay; makes the tensors of its results. */
static int compile_bind_buffers(recording *r, wb_tensor *const *in, wb_tensor **made)
{
    wb_tensor *before = NULL;
    for (int i = 0; i < r->n_results; i++) {
        const wb__signature *s = &r->results[i];
        if (!(made[i] = wb__empty_on(r->plan->device, s->dtype, s->ndim, s->dims)))
            return wb__error_or(WB_ERROR_MEMORY);
        r->buffers[r->n_leaves + r->n_targets + i] = made[i]->storage->data;
    }
    int status = 0;
    if (r->late)
        status = wb__guard_before(r->plan->device, made[r->guard - 1], false, &before);
    else if (r->n_writes) status = wb__guard_confirm();
    if (status) return status;
    for (int i = 0; i < r->n_leaves; i++) {
        const compile_leaf *l = &r->leaves[i];
        const wb_tensor *x = l->input == BEFORE ? before
                           : l->input == NO_INPUT ? l->tensor
                           : copy_if_written(r, in[l->input]);
        if (!x) return WB_ERROR_MEMORY;
        r->buffers[i] = wb__memory_of(x, l->at, &r->offsets[i]);
    }
    for (int i = 0; i < r->n_writes; i++)
        if (r->writes[i].target >= r->n_leaves)
            r->buffers[r->writes[i].target] = r->writes[i].variable->storage->data;
    bind_forms(r, in);
    return 0;
}

/* Runs the plan of the recording once, and sets made[i] to its results. */
static int replay_recording(recording *r, wb_tensor *const *in, wb_tensor **made)
{
    wb__thread *t = wb__this_thread();
    int status = wb__plan_check_memory(r->plan);
    t->failed_late = false;
    for (int i = 0; i < r->n_writes && !status; i++)
        if (r->writes[i].target >= 0) status = wb__own_memory(r->writes[i].variable);
    if (!status) status = compile_bind_buffers(r, in, made);
    if (status) return status;
    const wb__rng_state rng = wb__rng_get_state();
    set_replay_numbers(r, in);
    wb_tensor *guard = r->guard ? made[r->guard - 1] : NULL;
    const wb__guard now = wb__guard_of(r->late ? NULL : guard);
    status = wb__plan_run(r->plan, r->buffers, r->offsets, r->numbers, r->n_numbers, &now);
    if (status == WB__PLAN_AGAIN) wb__rng_set_state(rng);
    if (!status && r->late) status = wb__guard_confirm_before();
    if (status == WB_ERROR_NUMBER && !t->failed_late) wb__fail_guard(guard, r->guarded_by);
    if (!status && r->late) wb__guard_begin_late(guard, r->guarded_by);
    for (int i = 0; i < r->n_writes && !status; i++)
        if (r->writes[i].target >= 0) status = wb__new_version(r->writes[i].variable);
    return status ? status : wb__recording_replayed(&r->notes);
}

/* Replays the recording, with the variables that the plan writes claimed and the others read
 * (claims.c). */
static int replay_claimed(recording *r, wb_tensor *const *in, wb_tensor **made)
{
    int status = 0, claimed = 0, begun = 0, alone = wb__alone_begin();
    for (; claimed < r->n_writes; claimed++)
        if ((status = wb__claim(r->writes[claimed].variable, "call_compiled"))) break;
    for (; !status && !alone && begun < r->n_leaves; begun++) {
        wb_tensor *x = tensor_of_leaf(&r->leaves[begun], in);
        if (x && !wb__bind_begin("call_compiled", x, &r->leaves[begun].reads))
            status = (int)wb_error_code();
    }
    if (!status) status = replay_recording(r, in, made);
    while (begun--) wb__value_end(&r->leaves[begun].reads);
    while (claimed--) wb__unclaim(r->writes[claimed].variable);
    if (alone) wb__alone_end();
    return status;
}

/* Replays the recording that fits the inputs; first makes one if none fits.  The caller holds
 * c->lock.  Each input is evaluated or a number.  If this function returns WB__PLAN_AGAIN, it has
 * dropped the recording, and the caller calls again. */
static int replay_or_record(wb_compiled *c, int n_in, wb_tensor *const *in, int n_out,
                            wb_tensor **out)
{
    wb_tensor *made[COMPILE_OUTPUTS + 1];
    recording *r = find_or_record(c, n_in, in);
    if (!r) return wb__error_or(WB_ERROR_MEMORY);
    int status = wb__check_count(n_out, r->n_out);
    if (!status) status = replay_claimed(r, in, made);
    if (status == WB_ERROR_MEMORY) wb__plan_report_memory(r->plan);
    for (int i = 0; status == WB__PLAN_AGAIN && i < c->n; i++)
        if (c->recordings[i] == r) drop_recording(c, i);
    for (int i = 0; i < n_out && !status; i++) {
        const int from = r->output[i];
        wb_tensor *other = from < -1 ? wb__version("call_compiled", in[-2 - from]) : r->fixed[i];
        out[i] = from >= 0 ? made[from] : wb__scope_give(wb__ref(other));
        if (!out[i]) status = wb__error_or(WB_ERROR_MEMORY);
    }
    return status;
}

int wb_call_compiled(wb_compiled *c, int n_in, wb_tensor *const *in, int n_out, wb_tensor **out)
{
    WB__EDGE;
    if (!wb__expect("call_compiled", c, &wb__compiled_class)) return wb_error_code();
    if (c->rank != wb__thread_rank)     /* the ranks would wait for the lock and for each other */
        return wb__fail(WB_ERROR_ARGUMENT, "call_compiled: made by another rank: compile it here");
    if (n_in < 0 || (n_in && !in) || n_out < 0 || (n_out && !out))
        return wb__fail(WB_ERROR_ARGUMENT, "call_compiled: %d inputs, %d results%s", n_in, n_out,
                        (n_in && !in) || (n_out && !out) ? ", and no array of them" : "");
    for (int i = 0; i < n_in; i++)
        if (!wb__operand("call_compiled", in[i])) return wb__error_or(WB_ERROR_ARGUMENT);
    wb__thread *t = wb__this_thread();
    if (t->recording) return call_while_recording(c, n_in, in, n_out, out);
    int status = 0;
    for (int i = 0; i < n_in && !status; i++)
        if (!in[i]->storage && !wb__number_kind_of(in[i])) status = wb__evaluate(1, in + i, NULL);
    if (!status && t->n_pending) status = wb__evaluate_pending();
    if (status) return status;
    wb__ref(c);                         /* the function may free its own object */
    wb__mutex_lock(&c->lock);
    wb__error_kept kept;                /* set again if the call succeeds */
    wb__error_keep(&kept);
    while ((status = replay_or_record(c, n_in, in, n_out, out)) == WB__PLAN_AGAIN) wb_clear_error();
    if (!status) wb__error_restore(&kept);
    wb__mutex_unlock(&c->lock);
    wb__unref(c);
    return status;
}
