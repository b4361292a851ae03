/* wb_distributed_synchronize: one rank's values for all ranks.  The ranks first compare what their
 * objects consist of, since a broadcast of different sizes would never end, or mix up tensors. */
#include "base/options.h"
#include "base/text.h"
#include "dist/dist.h"
#include "optim/optim.h"

static const char sync_what[] = "distributed_synchronize";

/* The contents of an object: its variables, and the step counts of an optimiser's state. */
typedef struct {
    wb_tensor **variable;
    char **path;                        /* the path of each variable in the object */
    int n, capacity, paths;             /* number of variables; room for them, and for paths */
    wb_opt_state *state;                /* NULL: the object is no state */
} sync_contents;

static void sync_clear(sync_contents *c)
{
    for (int i = 0; i < c->n; i++) wb__free(c->path[i]);
    wb__free(c->path);
    wb__free(c->variable);
}

static int sync_add_variable(sync_contents *c, wb_tensor *x, const char *path)
{
    if (!x) return 0;
    if (x->op != WB__OP_variable)
        return wb__fail(WB_ERROR_ARGUMENT, "%s: %s is not a variable: make it one with"
                        " wb_variable", sync_what, wb_describe(x));
    char *copy = wb__strdup(path);
    if (!copy || !wb__reserve(&c->variable, &c->capacity, c->n + 1, sizeof *c->variable) ||
        !wb__reserve(&c->path, &c->paths, c->n + 1, sizeof *c->path)) {
        wb__free(copy);
        return WB_ERROR_MEMORY;
    }
    c->path[c->n] = copy;
    c->variable[c->n++] = x;
    return 0;
}

static int sync_add_leaf(const wb__leaf *l, void *ctx) { return sync_add_variable(ctx, l->x,
                                                                                  l->path); }

/* Returns the first path of the parameter of a slot. */
static const char *sync_path_of_slot(const wb_opt_state *s, int slot)
{
    for (int i = 0; i < s->n_paths; i++)
        if (s->paths[i].slot == slot) return s->paths[i].path;
    return "";
}

static int sync_add_moments(sync_contents *c, int slot)
{
    wb__text t = {0};
    int status = 0;
    for (int k = 0; k < c->state->n_moments && !status; k++) {
        wb__text_add(&t, "moment %d of %s", k, sync_path_of_slot(c->state, slot));
        char *path = wb__text_take(&t);
        status = path ? sync_add_variable(c, c->state->slots[slot].moments[k], path)
                      : WB_ERROR_MEMORY;
        wb__free(path);
    }
    return status;
}

static int sync_add_state(sync_contents *c, wb_opt_state *s)
{
    int status = 0;
    c->state = s;
    for (int i = 0; i < WB__SCALING && !status; i++)
        status = sync_add_variable(c, s->scaling[i], "loss scaling");
    /* in a divided state each rank keeps its own moments */
    for (int i = 0; i < s->n && !status && !wb__is_divided(s); i++) status = sync_add_moments(c, i);
    return status;
}

static int sync_list_contents(sync_contents *c, void *object)
{
    if (wb__is(object, &wb__tensor_class)) return sync_add_variable(c, object, "the variable");
    if (wb__is(object, &wb__opt_state_class)) return sync_add_state(c, object);
    if (wb__is_branch(object))
        return wb__walk(sync_what, object, NULL, WB__DISTINCT, sync_add_leaf, c);
    wb__not_a(sync_what, object, "tensor, layer, tree or state");
    return wb__error_or(WB_ERROR_ARGUMENT);
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Returns a hash of the dtypes and shapes of an object's variables, in order. */
static int64_t sync_hash_of(const sync_contents *c)
{
    uint64_t h = (uint64_t)c->n;
    for (int i = 0; i < c->n; i++) {
        const wb_tensor *x = c->variable[i];
        h = wb__mix(h, x->dtype);
        h = wb__mix(h, (uint64_t)x->ndim);
        for (int k = 0; k < x->ndim; k++) h = wb__mix(h, (uint64_t)x->dims[k]);
    }
    return (int64_t)(h >> 1);
}

int wb__extremes(int n, const int64_t *mine, int64_t *least, int64_t *most)
{
    wb__collective c = {.communicator = wb__world(), .kind = WB__COLLECT_ALLREDUCE,
                        .op = WB__RANKS_MIN, .dtype = WB_I64, .n = n, .from = mine, .to = least};
    wb__collective_begin(&c);
    wb__collective max = c;
    max.op = WB__RANKS_MAX;
    max.to = most;
    return wb__collective_end(wb__collective_begin(&max));
}

static int compare_contents(const sync_contents *c)
{
    int64_t mine[] = {sync_hash_of(c), c->state ? c->state->counts->accumulated : 0}, least[2],
    most[2];
    const int status = wb__extremes(2, mine, least, most);
    if (status) return status;
    if (least[0] != most[0])
        return wb__fail(WB_ERROR_SHAPE, "%s: the objects of the ranks differ; that of rank %d has"
                        " %d variables: build the same model on all ranks", sync_what,
                        wb__world()->rank, c->n);
    if (mine[1]) return wb__sums_whole(sync_what, c->state);
    return !most[1] ? 0 : wb__fail(WB_ERROR_ARGUMENT, "%s: the state of another rank is in the"
                                   " middle of an accumulation: call wb_update on all ranks equally"
                                   " often", sync_what);
}

/* ---- comparing values ------------------------------------------------------------------------ */

static _Atomic bool sync_comparing; /* a rank has WEBER_DEBUG=dist, so all ranks take part */

int wb__comparing_agree(void)
{
    int64_t least = 0, most = 0;
    const int64_t mine = wb__debug("dist");
    const int status = wb__extremes(1, &mine, &least, &most);
    sync_comparing = !status && most;
    return status;
}

/* Sets *sum to the checksum of the values of x.  Returns 0 or an error code. */
static int checksum_of(wb_tensor *x, int64_t *sum)
{
    const size_t bytes = (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype);
    wb__value_read r;
    const wb_tensor *from = wb__value_begin(sync_what, x, &r);
    if (!from) return wb_error_code();
    const unsigned char *values = wb__storage_read(from->storage);
    const int status = values ? 0 : wb__error_or(WB_ERROR_MEMORY);
    if (values) values += from->offset;
    uint64_t h = bytes;
    for (size_t i = 0; !status && i < bytes; i += sizeof h) {
        uint64_t word = 0;
        memcpy(&word, values + i, WB__MIN(sizeof word, bytes - i));
        h = wb__mix(h, word);
    }
    wb__value_end(&r);
    *sum = (int64_t)(h >> 1);
    return status;
}

/* Logs the variables whose checksums differ, on each rank that has WEBER_DEBUG=dist. */
static void log_different(const sync_contents *c, const char *when, const int64_t *least,
                          const int64_t *most)
{
    wb__text t = {0};
    int n = 0;
    if (!wb__debug("dist")) return;
    for (int i = 0; i < c->n; i++)
        if (least[i] != most[i])
            wb__text_add(&t, "%s%s", n++ ? ", " : "", c->path[i]);
    char *names = wb__text_take(&t);
    wb__log(WB_LOG_DEBUG, "dist: rank %d: %s, %d of %d tensors differ between the ranks%s%s",
            wb__world()->rank, when, n, c->n, n ? ": " : "", names ? names : "");
    wb__free(names);
}

static int compare_values(const sync_contents *c, const char *when)
{
    int64_t *sums = wb__alloc_zero(3 * (size_t)c->n + 1, sizeof *sums);
    if (!sums) return WB_ERROR_MEMORY;
    int64_t *least = sums + c->n, *most = least + c->n;
    int status = 0;
    for (int i = 0; i < c->n && !status; i++) status = checksum_of(c->variable[i], &sums[i]);
    if (!status) status = wb__extremes(c->n, sums, least, most);
    if (!status) log_different(c, when, least, most);
    wb__free(sums);
    return status;
}

/* ---- broadcasting ---------------------------------------------------------------------------- */

int wb__from_rank(void *values, wb_dtype dtype, int64_t n, int root)
{
    const wb__collective c = {.communicator = wb__world(), .kind = WB__COLLECT_BROADCAST,
                              .dtype = dtype, .n = n, .root = root, .to = values};
    return wb__collective_end(wb__collective_begin(&c));
}

static int share_variable(wb_tensor *x, int root)
{
    const size_t bytes = (size_t)x->size * wb__dtype_size((wb_dtype)x->dtype);
    void *copy = wb__alloc_aligned(bytes + 1);
    int status = copy ? wb_copy_out(x, copy, bytes) : WB_ERROR_MEMORY;
    if (!status) status = wb__from_rank(copy, (wb_dtype)x->dtype, x->size, root);
    if (!status && wb__world()->rank != root) status = wb__overwrite(x, copy, bytes);
    wb__free(copy);
    return status;
}

/* Fails for a divided state that one rank alone has loaded: its step counts do not fit the moments
 * of the other ranks.  Returns 0 or an error code. */
static int refuse_other_steps(const wb_opt_state *s)
{
    int64_t least = 0, most = 0, status = 0;
    for (int i = 0; i < s->n && !status && least == most; i++)
        status = wb__extremes(1, &s->counts->slot[i].steps, &least, &most);
    if (status || least == most) return (int)status;
    return wb__fail(WB_ERROR_ARGUMENT, "%s: the state is divided over the ranks, which have made"
                    " %lld to %lld steps: each rank has moments of its own, so all ranks must load"
                    " the checkpoint", sync_what, (long long)least, (long long)most);
}

static int share_options(wb_Rule_options *o, int root)
{
    double numbers[WB__RULE_NUMBERS];
    for (int i = 0; i < WB__RULE_NUMBERS; i++) numbers[i] = *wb__rule_number(o, i);
    const int status = wb__from_rank(numbers, WB_F64, WB__RULE_NUMBERS, root);
    for (int i = 0; i < WB__RULE_NUMBERS && !status; i++) *wb__rule_number(o, i) = numbers[i];
    return status;
}

/* Shares hyperparameters, also those of parts of the model, step counts, and which parameters are
 * frozen. */
static int share_settings(wb_opt_state *s, int root)
{
    int status = 0;
    for (int p = 0; p < s->rule->n && !status; p++)
        status = share_options(&s->rule->parts[p].o, root);
    status = status ? status : wb__from_rank(&s->counts->updates, WB_I64, 1, root);
    s->changes++;
    for (int i = 0; i < s->n && !status; i++) {
        wb__slot *slot = &s->slots[i];
        int64_t words[] = {s->counts->slot[i].steps, slot->frozen, slot->own != NULL};
        status = wb__from_rank(words, WB_I64, WB__COUNT(words), root);
        if (status) break;
        s->counts->slot[i].steps = words[0];
        wb__setting_set(s, &slot->frozen, words[1] != 0);
        status = wb__slot_own(s, slot, words[2] != 0);
        for (int p = 0; slot->own && p < s->rule->n && !status; p++)
            status = share_options(&slot->own[p], root);
    }
    return status;
}

static int share_contents(const sync_contents *c, int root)
{
    int status = compare_contents(c);
    if (!status && wb__is_divided(c->state)) status = refuse_other_steps(c->state);
    if (!status && sync_comparing) status = compare_values(c, "before the broadcast");
    for (int i = 0; i < c->n && !status; i++) status = share_variable(c->variable[i], root);
    return !status && c->state ? share_settings(c->state, root) : status;
}

int wb_distributed_synchronize_with(void *object, const wb_distributed_synchronize_options *given)
{
    WB__PUBLIC(wb_distributed_synchronize_with, wb_error_code());
    wb_distributed_synchronize_options o;
    sync_contents c = {0};
    if (WB__NULL(object)) return wb__error_or(WB_ERROR_ARGUMENT);
    if (!wb__read_options(sync_what, wb_distributed_synchronize_options, &o, given, NULL))
        return wb_error_code();
    if (o.root < 0 || o.root >= wb_distributed_size())
        return wb__fail(WB_ERROR_ARGUMENT, "%s: there is no rank %d of %d", sync_what, o.root,
                        wb_distributed_size());
    int status = wb__evaluate_pending();
    if (!status) status = wb__guard_confirm();
    if (!status) status = sync_list_contents(&c, object);
    if (!status && wb__world()) status = share_contents(&c, o.root);
    wb__collective_report(sync_what);
    sync_clear(&c);
    return status;
}

int wb__compare_ranks(void *object, const char *when)
{
    sync_contents c = {0};
    if (!sync_comparing) return 0;
    int status = wb__evaluate_pending();
    if (!status) status = wb__guard_confirm();
    if (!status) status = sync_list_contents(&c, object);
    if (!status) status = compare_contents(&c);
    if (!status) status = compare_values(&c, when);
    sync_clear(&c);
    return status;
}
