/* A small GPT against PyTorch: its losses over 100 steps of AdamW from equal initial weights
 * (tests/golden/make_gpt.py).  The relative error of each loss is at most 1e-6 in f64; in f32 1e-4
 * for the first 20 steps, then 1e-3. */
#include "reference.h"

#include "engine/tensor.h"
#include "io/safetensors/safetensors.h"
#include "weber/train.h"

enum {
    LAYERS = 2,
    HEADS = 2,
    WIDTH = 32,
    TOKENS = 32,
    VOCABULARY = 65,
    BATCH = 4,
    STEPS = 100,
    MOST = 64
};

static wb__table file;

typedef struct {
    int n;
    const char *name[MOST];
    void *w[MOST];
    char text[MOST][24];
} model;

/* A token of the training text, as in make_gpt.py. */
static int character(int step, int row, int at)
{
    return ((at * at + 7 * row + 3 * at + 5 * (step % 10)) * 31 / 8) % VOCABULARY;
}

/* A weight of the file as a variable.  Dots in its name become underscores: in paths of a tree dots
 * separate names. */
static void add(model *m, const char *name, wb_dtype dtype)
{
    const wb__entry *t = wb__table_find(&file, name);
    if (!t) fail_msg("no %s in gpt.safetensors", name);
    snprintf(m->text[m->n], sizeof m->text[0], "%s", name);
    for (char *c = m->text[m->n]; *c; c++) if (*c == '.') *c = '_';
    m->name[m->n] = m->text[m->n];
    m->w[m->n++] = wb_variable(wb_astype(wb_from(t->data, t->dtype, t->ndim, t->dims), dtype));
}

static wb_tensor *get(const model *m, int layer, const char *name)
{
    char text[24];
    if (layer >= 0) snprintf(text, sizeof text, "%d_%s", layer, name);
    else snprintf(text, sizeof text, "%s", name);
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->name[i], text)) return m->w[i];
    fail_msg("no weight %s", text);
    return NULL;
}

static wb_tensor *norm(const model *m, int layer, const char *scale, const char *bias, wb_tensor *x)
{
    return wb_add(wb_mul(wb_normalize(x, 1, 1e-5), get(m, layer, scale)), get(m, layer, bias));
}

static wb_tensor *heads(wb_tensor *x)
{
    return wb_permute(wb_reshape(x, BATCH, TOKENS, HEADS, WIDTH / HEADS), 0, 2, 1, 3);
}

static wb_tensor *loss_of(const model *m, int step, wb_dtype dtype)
{
    int32_t in[BATCH * TOKENS], out[BATCH * TOKENS];
    for (int i = 0; i < BATCH * TOKENS; i++) {
        in[i] = character(step, i / TOKENS, i % TOKENS);
        out[i] = character(step, i / TOKENS, i % TOKENS + 1);
    }
    wb_tensor *x =
        wb_add(wb_take(get(m, -1, "token"), wb_from(in, WB_I32, 2, (int64_t[]){BATCH, TOKENS})),
               get(m, -1, "place"));
    for (int i = 0; i < LAYERS; i++) {
        wb_tensor *y = norm(m, i, "norm1_scale", "norm1_bias", x);
        wb_tensor *q = heads(wb_linear(y, get(m, i, "q"), WB_NONE)),
                  *k = heads(wb_linear(y, get(m, i, "k"), WB_NONE));
        wb_tensor *a = wb_attention(q, k, heads(wb_linear(y, get(m, i, "v"), WB_NONE)),
                                    wb_causal_mask(TOKENS, TOKENS));
        x = wb_add(x, wb_linear(wb_reshape(wb_permute(a, 0, 2, 1, 3), BATCH, TOKENS, WIDTH),
                                get(m, i, "o"), WB_NONE));
        y = wb_gelu(wb_linear(norm(m, i, "norm2_scale", "norm2_bias", x), get(m, i, "up"),
                              get(m, i, "up_bias")));
        x = wb_add(x, wb_linear(y, get(m, i, "down"), get(m, i, "down_bias")));
    }
    wb_tensor *logits = wb_reshape(
        wb_linear(norm(m, -1, "norm_scale", "norm_bias", x), get(m, -1, "head"), WB_NONE),
        BATCH * TOKENS, VOCABULARY);
    wb_tensor *targets = wb_astype(
        wb_onehotbatch(wb_from(out, WB_I32, 1, (int64_t[]){BATCH * TOKENS}), VOCABULARY), dtype);
    return wb_logitcrossentropy(logits, targets);
}

static void train(wb_dtype dtype)
{
    static model m;
    wb_scope *s = wb_scope_open();
    m.n = 0;
    add(&m, "token", dtype);
    add(&m, "place", dtype);
    static const char *const parts[] = {"q",           "k",          "v",           "o",
                                        "up",          "up_bias",    "down",        "down_bias",
                                        "norm1.scale", "norm1.bias", "norm2.scale", "norm2.bias"};
    for (int i = 0; i < LAYERS; i++)
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            char name[24];
            snprintf(name, sizeof name, "%d.%s", i, parts[p]);
            add(&m, name, dtype);
        }
    add(&m, "norm.scale", dtype);
    add(&m, "norm.bias", dtype);
    add(&m, "head", dtype);
    wb_tree *tree = wb_named_tuple(m.n, m.name, m.w);
    for (int i = 0; tree && i < m.n; i++) m.w[i] = wb_get(tree, m.name[i]);
    wb_opt_state *o = wb_setup(wb_AdamW(.eta = 3e-3, .beta = {0.9, 0.99}, .lambda = 0.1), tree);
    const wb__entry *want = wb__table_find(&file, dtype == WB_F64 ? "losses_f64" : "losses_f32");
    if (!o || !want) fail_msg("%s", wb_error());
    for (int step = 0; step < (fewer() > 1 ? STEPS / 4 : STEPS); step++) {
        wb_scope *inner = wb_scope_open();
        wb_tensor *loss = loss_of(&m, step, dtype);
        wb_tree *g = loss ? wb_gradient(loss, tree) : NULL;
        if (!g || wb_update(o, tree, g)) fail_msg("step %d: %s", step, wb_error());
        double got = wb_item(loss), w;
        float single;                   /* copied: tensors of a mapped file may be unaligned */
        const char *at = (const char *)want->data + (size_t)step * wb__dtype_size(dtype);
        if (dtype == WB_F64) memcpy(&w, at, sizeof w);
        else memcpy(&single, at, sizeof single), w = (double)single;
        double allowed = dtype == WB_F64 ? 1e-6 : step < 20 ? 1e-4 : 1e-3;
        if (!(fabs(got - w) <= allowed * w))
            fail_msg("step %d in %s: the loss is %.12g, PyTorch's %.12g", step,
                     wb_dtype_name(dtype), got, w);
        if (wb_scope_close(inner)) fail_msg("step %d: %s", step, wb_error());
    }
    wb_scope_close(s);
}

TEST(f64)
{
    need_dtype(WB_F64);
    train(WB_F64);
}
TEST(f32) { train(WB_F32); }

int main(void)
{
    if (wb__st_load(WB_TEST_DATA "/gpt.safetensors", true, &file))
        return fprintf(stderr, "%s\n", wb_error()), 1;
    int failed = run_all_cases();
    wb__table_free(&file);
    wb_shutdown();
    return failed;
}
