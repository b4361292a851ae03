/* The cache of keys and values for generation, and positions.
 *
 * A cache is a tree of variables.  Each layer of self-attention that wb_call_cached reaches takes
 * the next pair of the tree, in the order of the calls, so that a layer that is used twice has two
 * pairs.  The position is a variable too: one plan, or one recording of wb_compile, serves all
 * positions. */
#include "nn/attention.h"
#include "nn/transformer.h"

#include <stdio.h>
#include <string.h>

extern const wb__layer_type wb__attention_type;

enum { KV_CACHE_POSITION, KV_CACHE_KEYS, VALUES, KV_CACHE_PARTS };

/* The wb_call_cached that runs on this thread: its cache, the number of layers that have appended
 * to it, and the number of time steps that each of them appended. */
typedef struct { wb_tree *cache; int layers; int64_t steps; } cache_use;
static _Thread_local cache_use *kv_cache_using;

bool wb__cache_used(void) { return kv_cache_using != NULL; }

static void *kv_cache_part(const wb_tree *cache, int i) { return cache->node.children[i].object; }

int64_t wb__cache_length(void)
{
    const wb_tree *keys = kv_cache_using ? kv_cache_part(kv_cache_using->cache, KV_CACHE_KEYS)
                                         : NULL;
    return keys && keys->node.n ? ((const wb_tensor *)kv_cache_part(keys, 0))->dims[2] : 0;
}

/* Calls f for each causal attention layer in `object`, in the order of the children.  Stops if f
 * returns false. */
static bool kv_cache_each_attention(void *object, bool (*f)(const wb_layer *l, void *ctx),
                                    void *ctx)
{
    if (!wb__is_branch(object)) return true;
    const wb__branch *node = object;
    const wb_layer *l = wb__is(object, &wb__layer_class) ? object : NULL;
    if (l && l->type == &wb__attention_type)
        return !((const wb_MultiHeadAttention_options *)l->options)->causal || f(l, ctx);
    for (int i = 0; i < node->n; i++)
        if (!wb_is_none(node->children[i].object) &&
            !kv_cache_each_attention(node->children[i].object, f, ctx))
            return false;
    return true;
}

static bool kv_cache_count_one(const wb_layer *l, void *ctx)
{
    (void)l;
    return ++*(int *)ctx > 0;
}

/* Returns a new variable of zeros that is not trained. */
static wb_tensor *kv_cache_state(const wb_device *device, wb_dtype dtype, int ndim,
                                 const int64_t *dims)
{
    wb_tensor *x = wb_full_array(0, dtype, ndim, dims);
    wb_tensor *v = x ? wb_variable(wb_to(x, device)) : NULL;
    if (v) v->flags |= WB__FROZEN;
    return v;
}

typedef struct { int64_t batch, length; int n; wb_tree *keys, *values; } plan;

static bool kv_cache_add_pair(const wb_layer *l, void *ctx)
{
    plan *p = ctx;
    const wb_MultiHeadAttention_options *o = l->options;
    wb_tensor *weight = wb__dense_typed(wb__layer_child(l, 1));
    const wb_device *device = wb_device_of(weight);
    const int64_t dk[4] = {p->batch, o->kv_heads, p->length, o->qk_dim / o->heads},
                  dv[4] = {p->batch, o->kv_heads, p->length, o->v_dim / o->heads};
    char name[16];
    snprintf(name, sizeof name, "%d", p->n);
    wb_tensor *k = kv_cache_state(device, (wb_dtype)weight->dtype, 4, dk);
    wb_tensor *v = k ? kv_cache_state(device, (wb_dtype)weight->dtype, 4, dv) : NULL;
    return v && wb__branch_put_copy(&p->keys->node, p->n, name, k) &&
           wb__branch_put_copy(&p->values->node, p->n++, name, v);
}

/* Fails if the layer is a Transformer with fewer positions than the cache.  A visit of
 * wb_each_layer. */
static int kv_cache_compare_positions(wb_layer *l, const char *path, void *ctx)
{
    const plan *p = ctx;
    const int64_t rows = wb__transformer_positions(l);
    if (p->length <= rows) return 0;
    return wb__fail(WB_ERROR_ARGUMENT, "attention_cache: the length is %lld, and \"%s%slayers."
                    "positions\" has %lld: a cache of this model is at most so long",
                    (long long)p->length, path, *path ? "." : "", (long long)rows);
}

static bool kv_cache_find_device(const wb_layer *l, void *ctx)
{
    *(const wb_device **)ctx = wb_device_of(wb__dense_typed(wb__layer_child(l, 1)));
    return false;
}

wb_tree *wb_attention_cache(wb_layer *model, int64_t batch, int64_t length)
{
    WB__PUBLIC(wb_attention_cache, NULL);
    if (!wb__expect("attention_cache", model, &wb__layer_class)) return NULL;
    if (batch < 1 || length < 1)
        return wb__fail_null(WB_ERROR_ARGUMENT, "attention_cache: sizes are positive, got a batch "
                             "of %lld and a length of %lld", (long long)batch, (long long)length);
    plan p = {batch, length, 0, NULL, NULL};
    int n = 0;
    const wb_device *device = NULL;
    kv_cache_each_attention(model, kv_cache_count_one, &n);
    kv_cache_each_attention(model, kv_cache_find_device, &device);
    if (!n)
        return wb__fail_null(WB_ERROR_ARGUMENT, "attention_cache: the %s has no "
                             "MultiHeadAttention with .causal = true", model->type->name);
    if (wb_each_layer(model, kv_cache_compare_positions, &p)) return NULL;
    p.keys = wb__tree_new(n);
    p.values = wb__tree_new(n);
    if (!p.keys || !p.values || !kv_cache_each_attention(model, kv_cache_add_pair, &p)) return NULL;
    wb_tensor *position = kv_cache_state(device, WB_I32, 1, (int64_t[]){1});
    return position ? wb_named_tuple(KV_CACHE_PARTS, (const char *[]){"position", "keys", "values"},
                                     (void *[]){position, p.keys, p.values})
                    : NULL;
}

wb_tensor *wb_positions(int64_t n)
{
    wb_tensor *x = wb_arange(n, WB_I32);
    return kv_cache_using && x ? wb_add(x, kv_cache_part(kv_cache_using->cache, KV_CACHE_POSITION))
                               : x;
}

bool wb__cache_fits(const wb_tensor *x, int64_t rows)
{
    if (!kv_cache_using || x->op != WB__OP_add || x->n_in != 2) return true;
    const int64_t length = wb__cache_length();
    if (length <= rows || x->in[1] != wb__bind(kv_cache_part(kv_cache_using->cache,
                                                             KV_CACHE_POSITION))) return true;
    return !wb__fail(WB_ERROR_SHAPE, "Embedding: the cache is of %lld positions, and this table of "
                     "positions has %lld rows: make the cache by attention_cache(model, batch, "
                     "%lld), or shorter", (long long)length, (long long)rows, (long long)rows);
}

/* Returns the cache `cached`, [N, heads, length, d], after the assignment of x, [N, heads, T, d],
 * to its time steps `at`, [T].  If T is 1 returns the old cache: nothing reads the new one then,
 * and a plan writes only the elements of x. */
static wb_tensor *kv_cache_write_to(wb_tensor *cached, wb_tensor *x, wb_tensor *at)
{
    wb_tensor *old = wb__unchanged(cached);     /* the version before the assignment */
    wb_tensor *all = wb_scatter_along(cached, wb_reshape_array(at, 4, (int64_t[]){1, 1, -1, 1}), x,
                                      2, .reduce = WB_SCATTER_SET);
    if (!old || !all || wb_assign(cached, all)) return NULL;
    return x->dims[2] == 1 ? old : all;
}

static bool kv_cache_pair_fits(const wb_tensor *cached, const wb_tensor *x)
{
    bool fits = cached->ndim == 4 && cached->dtype == x->dtype;
    for (int i = 0; fits && i < 4; i++)
        fits = i == 2 ? cached->dims[i] >= x->dims[i] : cached->dims[i] == x->dims[i];
    return fits;
}

/* Sets pair[0] and pair[1] to the next layer's caches of k and v.  False with the error set. */
static bool kv_cache_next_pair(wb_tensor **pair, wb_tensor *k, wb_tensor *v)
{
    const wb_tree *keys = kv_cache_part(kv_cache_using->cache, KV_CACHE_KEYS),
                  *values = kv_cache_part(kv_cache_using->cache, VALUES);
    if (kv_cache_using->layers == keys->node.n)
        return !wb__fail(WB_ERROR_ARGUMENT, "call_cached: the cache is of %d layers, and the model "
                         "calls more: make it by attention_cache of this model", keys->node.n);
    pair[0] = kv_cache_part(keys, kv_cache_using->layers);
    pair[1] = kv_cache_part(values, kv_cache_using->layers);
    if (kv_cache_using->layers && k->dims[2] != kv_cache_using->steps)
        return !wb__fail(WB_ERROR_SHAPE, "call_cached: one layer gets %lld steps, another %lld",
                         (long long)kv_cache_using->steps, (long long)k->dims[2]);
    if (kv_cache_pair_fits(pair[0], k) && kv_cache_pair_fits(pair[1], v)) return true;
    const int64_t length = wb__cache_length();
    if (k->dims[2] > length)
        return !wb__fail(WB_ERROR_SHAPE, "call_cached: got %lld positions at once, and the cache "
                         "has room for %lld: make it by attention_cache(model, batch, %lld), or "
                         "longer, or call with fewer", (long long)k->dims[2], (long long)length,
                         (long long)k->dims[2]);
    return !wb__fail(WB_ERROR_SHAPE, "call_cached: layer %d has keys %s and values %s, its cache "
                     "%s and %s: make it by attention_cache of this model, for this batch",
                     kv_cache_using->layers, wb_describe(k), wb_describe(v),
                     wb_describe(pair[0]), wb_describe(pair[1]));
}

bool wb__cache_append(const wb_layer *l, bool causal, wb__attended *x)
{
    wb_tensor *pair[2] = {NULL, NULL};
    if (!causal)
        return !wb__fail(WB_ERROR_ARGUMENT, "%s: a cache is for causal attention: set .causal",
                         l->type->name);
    if (!kv_cache_next_pair(pair, x->k, x->v)) return false;
    kv_cache_using->steps = x->k->dims[2];
    kv_cache_using->layers++;
    wb_tensor *at = wb_positions(kv_cache_using->steps), *all = wb_arange(pair[1]->dims[2], WB_I32);
    wb_tensor *k = x->k, *v = x->v;
    x->k = kv_cache_write_to(pair[0], k, at);
    x->v = kv_cache_write_to(pair[1], v, at);
    if (kv_cache_using->steps == 1) {
        x->k_now = k;
        x->v_now = v;
        x->here = wb_eq(all, at);
        memcpy(x->operands, (wb_tensor *[]){x->q, x->k, x->v, k, v,
                                            kv_cache_part(kv_cache_using->cache,
                                                          KV_CACHE_POSITION)},
               sizeof x->operands);
    }
    x->mask = wb_le(all, wb_reshape(at, -1, 1));
    return x->k && x->v && x->mask && x->here;
}

static bool is_cache(void *object)
{
    static const char *const names[KV_CACHE_PARTS] = {"position", "keys", "values"};
    const wb_tree *t = object;
    bool good = wb__is(object, &wb__tree_class) && t->node.n == KV_CACHE_PARTS;
    for (int i = 0; good && i < KV_CACHE_PARTS; i++)
        good = !strcmp(t->node.children[i].name, names[i]) &&
               wb__is(t->node.children[i].object, i ? &wb__tree_class : &wb__tensor_class);
    if (!good)
        wb__fail(WB_ERROR_ARGUMENT, "call_cached: the %s is no cache of attention_cache",
                 wb__kind(object));
    return good;
}

wb_tensor *wb_call_cached_array(wb_layer *model, wb_tree *cache, int n, wb_tensor *const *inputs)
{
    WB__EDGE;
    if (!wb__expect("call_cached", model, &wb__layer_class) ||
        !wb__expect("call_cached", cache, &wb__tree_class) || !is_cache(cache))
        return NULL;
    cache_use use = {cache, 0, 0}, *outer = kv_cache_using;
    wb__branch_used(&cache->node);
    const wb__frame f = wb__frame_begin();
    const int pending = wb__pending_count();
    kv_cache_using = &use;
    wb_tensor *y = wb_call_array(model, n, inputs);
    kv_cache_using = outer;
    wb_tensor *position = kv_cache_part(cache, KV_CACHE_POSITION);
    if (y && !use.layers)
        y = wb__fail_null(WB_ERROR_ARGUMENT, "call_cached: the model has no attention of one input "
                          "with .causal");
    const int pairs = ((const wb_tree *)kv_cache_part(cache, KV_CACHE_KEYS))->node.n;
    if (y && use.layers < pairs)
        y = wb__fail_null(WB_ERROR_ARGUMENT, "call_cached: the cache is of %d layers, and the "
                          "model calls %d: make it by attention_cache of this model", pairs,
                          use.layers);
    if (y && wb_assign(position, wb_add(position, wb_scalar_int(use.steps)))) y = NULL;
    if (!y) wb__forget_pending(pending);
    return wb__frame_end(f, y);
}
