/* Models from the folder of a model hub compute what PyTorch computes with the same files
 * (tests/data/make_golden_pretrained.py): outputs, gradients, generation with and without a cache.
 * They are saved, converted and trained as any layer. */
#define GOLDEN_FILE WB_TEST_DATA "/pretrained.safetensors"
#include "golden.h"

#include "nn/transformer.h"

#include <unistd.h>

#define FOLDER(name) WB_TEST_DATA "/pretrained/" name

static wb_layer *loaded(const char *folder, int64_t output)
{
    wb_layer *model = wb_load_pretrained(folder, .output = output);
    if (!model) fail_msg("%s: %s", folder, wb_error());
    return model;
}

/* The inputs ids, mask and types of the golden BERT. */
static wb_tensor *bert_call(wb_layer *model)
{
    return wb_call(model, golden_want("bert.ids"), golden_want("bert.mask"),
                   golden_want("bert.types"));
}

/* ---- outputs --------------------------------------------------------------------------------- */

TEST_IN_SCOPE(bert_gives_hidden_states)
{
    wb_layer *model = loaded(FOLDER("bert"), WB_PRETRAINED_TOKENS);
    assert_golden(bert_call(model), "bert.hidden", 1e-5);
    assert_golden(wb_call(model, golden_want("bert.ids")), "bert.plain", 1e-5);
    wb_tensor *keep = wb_ne(golden_want("bert.mask"), 0);
    assert_golden(wb_call(model, golden_want("bert.ids"), keep, golden_want("bert.types")),
                  "bert.hidden", 1e-5);
}

TEST_IN_SCOPE(bert_gives_its_pooled_output)
{
    assert_golden(bert_call(loaded(FOLDER("bert"), WB_PRETRAINED_POOLED)), "bert.pooled", 1e-5);
}

TEST_IN_SCOPE(sentences_are_means_of_length_1)
{
    wb_layer *model = loaded(FOLDER("bert"), WB_PRETRAINED_SENTENCES);
    assert_golden(bert_call(model), "bert.sentences", 1e-5);
    char *text = wb_object_format(model);
    assert_non_null(strstr(text, "pooling = TokenPool(mean, normalise=true)"));
    assert_non_null(strstr(text, "attention = MultiHeadAttention(16; nheads=2, bias=true"));
    wb_free_text(text);
}

TEST_IN_SCOPE(tokens_are_pooled_in_four_ways)
{
    static const char *const names[] = {"bert.first", "bert.mean", "bert.max", "bert.root"};
    wb_tensor *hidden = golden_want("bert.hidden"), *mask = golden_want("bert.mask");
    for (int kind = 0; kind < WB__TOKENS_KINDS; kind++)
        assert_golden(wb_call(wb__token_pool(kind, false), hidden, mask), names[kind], 1e-5);
    /* Without a mask all tokens count. */
    wb_tensor *y = wb_call(wb__token_pool(WB__TOKENS_MEAN, false), hidden);
    assert_true(wb_item(wb_max(wb_abs(wb_sub(y, wb_mean(hidden, .axes = {1}))))) < 1e-6);
    /* bf16 is reduced in f32. */
    wb_tensor *half = wb_call(wb__token_pool(WB__TOKENS_MEAN, true), wb_astype(hidden, WB_BF16));
    assert_int_equal(wb_dtype_of(half), WB_BF16);
}

TEST_IN_SCOPE(distilbert_gives_hidden_states)
{
    wb_layer *model = loaded(FOLDER("distilbert"), WB_PRETRAINED_TOKENS);
    wb_tensor *y = wb_call(model, golden_want("distilbert.ids"), golden_want("bert.mask"));
    assert_golden(y, "distilbert.hidden", 1e-5);
}

TEST_IN_SCOPE(gpt2_gives_logits)
{
    wb_layer *model = loaded(FOLDER("gpt2"), WB_PRETRAINED_TOKENS);
    assert_golden(wb_call(model, golden_want("gpt2.ids")), "gpt2.logits", 1e-5);
    assert_ptr_equal(wb_get(model, "layers.head.weight"), wb_get(model, "layers.tokens.weight"));
}

/* ---- gradients ------------------------------------------------------------------------------- */

typedef struct { const char *name; wb_tree *gradients; int n; } comparison;

static int compare(wb_tensor *x, const char *path, void *ctx)
{
    comparison *c = ctx;
    const char *name = NAME("%s.grad.%s", c->name, path);
    if (!wb__table_find(&golden, name)) return 0;
    assert_golden(wb_astype(wb_get(c->gradients, path), WB_F32), name, 1e-6);
    c->n++;
    return 0;
}

/* In f64, as PyTorch computed them. */
static wb_layer *wide(const char *folder)
{
    wb_layer *model = loaded(folder, WB_PRETRAINED_TOKENS);
    MADE(model = wb_to(model, wb_default_device(), .dtype = WB_F64));
    return wb_testmode(model);
}

static void check_gradients(const char *name, wb_layer *model, wb_tensor *y, int n)
{
    wb_tensor *weights = wb_astype(golden_want(NAME("%s.weights", name)), WB_F64);
    wb_tensor *loss = wb_sum(wb_mul(y, weights));
    assert_golden(wb_astype(loss, WB_F32), NAME("%s.loss", name), 1e-6);
    comparison c = {name, wb_gradient(loss, model), 0};
    MADE(c.gradients);
    wb_each_tensor(model, compare, &c);
    assert_int_equal(c.n, n);
}

TEST_IN_SCOPE(gradients_of_bert)
{
    wb_layer *model = wide(FOLDER("bert"));
    check_gradients("bert", model, bert_call(model), 12);
}

TEST_IN_SCOPE(gradients_of_gpt2)
{
    wb_layer *model = wide(FOLDER("gpt2"));
    /* The tied table has two paths, and one gradient. */
    check_gradients("gpt2", model, wb_call(model, golden_want("gpt2.ids")), 9);
}

/* ---- generation ------------------------------------------------------------------------------ */

enum { PROMPT = 5, LENGTH = 35 };

static int32_t likeliest(wb_tensor *logits)
{
    wb_tensor *best = wb_argmax(wb_slice(logits, 1, wb_dim(logits, 1) - 1, wb_dim(logits, 1)), -1);
    MADE(best);
    return (int32_t)wb_item(best);
}

static const int32_t *greedy_text(void)
{
    static int32_t ids[LENGTH];
    const wb__entry *e = wb__table_find(&golden, "gpt2.greedy");
    assert_non_null(e);
    assert_int_equal(e->dims[1], LENGTH);
    memcpy(ids, e->data, sizeof ids);
    return ids;
}

TEST_IN_SCOPE(greedy_text_without_a_cache)
{
    const int32_t *want = greedy_text();
    int32_t line[LENGTH];
    wb_layer *model = loaded(FOLDER("gpt2"), WB_PRETRAINED_TOKENS);
    memcpy(line, want, PROMPT * sizeof *line);
    for (int n = PROMPT; n < LENGTH; n++)
        line[n] = likeliest(wb_call(model, wb_from(line, WB_I32, 2, (int64_t[]){1, n})));
    assert_memory_equal(line, want, sizeof line);
}

typedef struct { wb_layer *model; wb_tree *cache; } writer;

static int step(wb_tensor *const *inputs, wb_tensor **outputs, void *ctx)
{
    const writer *w = ctx;
    outputs[0] = wb_call_cached(w->model, w->cache, inputs[0]);
    return outputs[0] ? 1 : -1;
}

TEST_IN_SCOPE(greedy_text_with_a_cache_and_one_plan)
{
    const int32_t *want = greedy_text();
    int32_t line[LENGTH];
    writer w = {loaded(FOLDER("gpt2"), WB_PRETRAINED_TOKENS), NULL};
    MADE(w.cache = wb_attention_cache(w.model, 1, 48));
    wb_compiled *compiled = wb_compile(step, &w);
    memcpy(line, want, PROMPT * sizeof *line);
    for (int n = 1; n < LENGTH; n++) {
        wb_tensor *y, *x = wb_from(line + n - 1, WB_I32, 2, (int64_t[]){1, 1});
        if (wb_call_compiled(compiled, 1, &x, 1, &y)) fail_msg("%s", wb_error());
        if (n >= PROMPT) line[n] = likeliest(y);
    }
    assert_memory_equal(line, want, sizeof line);
    /* The prompt in one call. */
    WORKS(wb_assign(wb_get(w.cache, "position"), wb_full_array(0, WB_I32, 1, (int64_t[]){1})));
    wb_tensor *y = wb_call_cached(w.model, w.cache,
                                  wb_from(want, WB_I32, 2, (int64_t[]){1, PROMPT}));
    assert_int_equal(likeliest(y), want[PROMPT]);
    wb_object_free(compiled);
}

/* ---- as any layer ---------------------------------------------------------------------------- */

static void saved_and_loaded(const char *folder, int64_t output, wb_tensor *ids)
{
    const char *file = test_file("pretrained.safetensors");
    wb_layer *model = loaded(folder, output), *again;
    WORKS(wb_save(file, model));
    MADE(again = wb_load(file));
    wb_each_tensor(model, same_bits_in, again);
    wb_tensor *x = wb_call(model, ids), *y = wb_call(again, ids);
    MADE(x && y);
    assert_memory_equal(wb_data(x), wb_data(y), (size_t)wb_size(x) * 4);
    assert_shown_alike(model, again);
    unlink(file);
}

TEST_IN_SCOPE(models_are_saved_and_loaded)
{
    saved_and_loaded(FOLDER("bert"), WB_PRETRAINED_SENTENCES, golden_want("bert.ids"));
    saved_and_loaded(FOLDER("bert"), WB_PRETRAINED_POOLED, golden_want("bert.ids"));
    saved_and_loaded(FOLDER("gpt2"), WB_PRETRAINED_TOKENS, golden_want("gpt2.ids"));
}

TEST_IN_SCOPE(a_model_is_converted)
{
    wb_tensor *y = bert_call(wide(FOLDER("bert")));
    MADE(y);
    assert_int_equal(wb_dtype_of(y), WB_F64);
    assert_golden(wb_astype(y, WB_F32), "bert.hidden", 1e-6);
}

static wb_tensor *loss_of(wb_layer *model, wb_batch batch, void *ctx)
{
    wb_tensor *y = wb_call(model, batch.x);
    return y ? wb_mean(wb_mul(y, y)) : NULL;
}

/* In train mode the Dropout layers of config.json act, and the optimiser reaches all parameters. */
TEST_IN_SCOPE(a_model_is_trained)
{
    wb_layer *model = loaded(FOLDER("bert"), WB_PRETRAINED_TOKENS);
    wb_layer *before = wb_clone(model);
    wb_opt_state *state = wb_setup(wb_Adam(0.01), model);
    wb_tree *gradients;
    wb_tensor *x = golden_want("bert.ids"), *losses[2];
    for (int i = 0; i < 2; i++) {
        MADE(losses[i] = wb_withgradient(loss_of, model, (wb_batch){.x = x, .n = 2}, &gradients,
                                         NULL));
        assert_true(isfinite(wb_item(losses[i])));
        WORKS(wb_update(state, model, gradients));
    }
    assert_true(wb_item(losses[0]) != wb_item(losses[1]));
    const char *paths[] = {"layers.tokens.weight", "layers.block1.layers.dense1.weight",
                           "layers.block0.layers.attention.k_proj.weight"};
    for (int i = 0; i < 3; i++) {
        wb_tensor *x = wb_get(model, paths[i]), *y = wb_get(before, paths[i]);
        assert_memory_not_equal(wb_data(x), wb_data(y), (size_t)wb_size(x) * 4);
    }
}

int main(void) { return run_cases(golden_open, golden_close); }
