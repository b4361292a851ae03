/* The reference package of safetensors, and PyTorch, if they are installed: they read the files
 * of Weber, Weber reads their files, and Weber refuses the files that they refuse. */
#include "golden.h"
#include "python.h"

#include <dirent.h>
#include <unistd.h>

static char folder[64];

static const char *in_folder(const char *name, const char *ending)
{
    static char paths[4][400];
    static int turn;
    char *path = paths[turn++ & 3];
    snprintf(path, 400, "%s/%s%s", folder, name, ending);
    return path;
}

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/weber-reference-%ld", (long)getpid());
    char command[100];
    snprintf(command, sizeof command, "mkdir -p %s", folder);
    return system(command);
}

static int drop_folder(void **state)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    (void)!system(command);
    return golden_close(state);
}

/* ---- the format ------------------------------------------------------------------------------ */

/* The bytes of the tensor of this name, as rule() of safetensors_files.py defines them. */
static void rule(const char *name, bool flags, int64_t n, uint8_t *out)
{
    unsigned seed = 0;
    for (const char *c = name; *c; c++) seed += (unsigned char)*c;
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)(((unsigned)i * 37 + seed * 11) % (flags ? 2 : 251));
}

/* Integer k of an entry that was widened, and one as the file has it. */
static int64_t integer(const wb__entry *e, int64_t k)
{
    return e->dtype == WB_I64 ? ((const int64_t *)e->data)[k] : ((const int32_t *)e->data)[k];
}
static int64_t stored(const uint8_t *at, wb__narrow_int narrow)
{
    const int low = at[0] | at[1] << 8;
    if (narrow == WB__NARROW_U32) return low | (int64_t)at[2] << 16 | (int64_t)at[3] << 24;
    return narrow == WB__NARROW_I16 && low > 32767 ? low - 65536 : low;
}

static void read_its_files(void)
{
    wb__table t;
    uint8_t want[256];
    if (wb__st_load(in_folder("reference", ".safetensors"), true, &t)) fail_msg("%s", wb_error());
    assert_int_equal(t.n, 90);
    assert_string_equal(wb__table_note(&t, "by"), "the reference");
    assert_string_equal(wb__table_note(&t, "\xc3\xa9"), "\xe2\x82\xac");
    for (int i = 0; i < t.n; i++) {
        const wb__entry *e = &t.entries[i];
        assert_true(e->bytes <= 256);
        const wb__narrow_int narrow = wb__st_narrow(e);
        const int64_t width = narrow ? wb__narrow_bytes(narrow) : 1;
        const int64_t n = narrow ? e->bytes / (int64_t)wb__dtype_size(e->dtype) * width : e->bytes;
        rule(e->name, !strncmp(e->type, "BOOL", 4), n, want);
        for (int64_t k = 0; narrow && k < n / width; k++)
            assert_true(integer(e, k) == stored(want + k * width, narrow));
        if (!narrow && n && memcmp(e->data, want, (size_t)n)) fail_msg("%s differs", e->name);
        assert_memory_equal(e->name, e->type, strlen(e->type));
    }
    const wb__entry *e = wb__table_find(&t, "I32.2x3");
    assert_true(e->dtype == WB_I32 && e->ndim == 2 && e->dims[0] == 2 && e->dims[1] == 3);
    assert_int_equal(wb__table_find(&t, "U16.3")->dtype, WB_I32);
    assert_int_equal(wb__table_find(&t, "U64.3")->dtype, 0);
    assert_int_equal(wb__table_find(&t, "U16.1x1x1x1x1x1x1x1x1")->axes, 9);
    wb__table_free(&t);
}

/* Weber reads the files good-* and refuses bad-* and strict-*: see safetensors_files.py. */
static void agree_on_errors(void)
{
    int counts[3] = {0, 0, 0};
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (const struct dirent *f; (f = readdir(d));) {
        static const char *const kinds[] = {"good-", "bad-", "strict-"};
        for (int k = 0; k < 3; k++) {
            wb__table t;
            if (strncmp(f->d_name, kinds[k], strlen(kinds[k]))) continue;
            counts[k]++;
            wb_clear_error();
            int status = wb__st_load(in_folder(f->d_name, ""), true, &t);
            if (!status) wb__table_free(&t);
            if (!status != (k == 0)) fail_msg("%s: %s", f->d_name, status ? wb_error() : "is read");
            if (status) FAILED(WB_ERROR_FORMAT, in_folder(f->d_name, ""), "byte");
        }
    }
    closedir(d);
    assert_true(counts[0] >= 10 && counts[1] >= 40 && counts[2] >= 7);
}

static void write_for_it(void)
{
    static const struct { const char *word; wb_dtype dtype; } rows[] = {
        {"F64", WB_F64}, {"F32", WB_F32}, {"F16", WB_F16}, {"BF16", WB_BF16}, {"I64", WB_I64},
        {"I32", WB_I32}, {"I8", WB_I8},   {"U8", WB_U8},   {"BOOL", WB_BOOL}};
    static const int64_t dims[] = {3, 2, 5}, none[] = {4, 0};
    static uint8_t values[WB__COUNT(rows)][3][240];
    wb__st_out out[3 * WB__COUNT(rows)];
    int n = 0;
    for (size_t i = 0; i < WB__COUNT(rows); i++) {
        for (int s = 0; s < 3; s++) {
            const int64_t size = s == 0 ? 30 : s == 1 ? 1 : 0;
            const int64_t bytes = size * (int64_t)wb_dtype_bytes(rows[i].dtype);
            char *name = NULL;
            assert_non_null(name = wb__printf("%s.\xc3\xa9%d", rows[i].word, s));
            rule(name, rows[i].dtype == WB_BOOL, bytes, values[i][s]);
            out[n++] = (wb__st_out){name, rows[i].dtype, s == 0 ? 3 : s == 1 ? 0 : 2,
                                    s ? none : dims, bytes, values[i][s], NULL};
        }
    }
    const wb__note note = {"note", "\xc3\xa9\n\""};
    if (wb__st_save(NULL, in_folder("weber", ".safetensors"), n, out, 1, &note))
        fail_msg("%s", wb_error());
    for (int i = 0; i < n; i++) wb__free(out[i].name);
    const char *written = in_folder("weber", ".safetensors");
    assert_int_equal(python_script("io/safetensors_files.py check", written), 0);
}

TEST(the_reference)
{
    if (!python_has("safetensors")) skip();
    assert_int_equal(python_script("io/safetensors_files.py write", folder), 0);
    read_its_files();
    agree_on_errors();
    write_for_it();
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

static wb_layer *tied(void)
{
    wb_layer *m = wb_Chain(wb_Embedding(11, 4), wb_Dense(4, 11, .bias = false));
    return wb_tie(m, "layers.1.weight", "layers.0.weight") ? NULL : m;
}

/* The models that torch_models.py builds under these names. */
static wb_layer *model_named(const char *name, bool flip)
{
#define IS(what) (!strcmp(name, what))
    if (IS("mlp"))
        return wb_Chain(wb_Dense(5, 7, wb_relu), wb_Dense(7, 7, wb_tanh), wb_Dense(7, 3));
    if (IS("cnn"))
        return wb_Chain(wb_Conv(2, 4, {3}, wb_relu, .pad = {1}, .groups = 2, .flip = flip),
                        wb_BatchNorm(4), wb_MaxPool({2}), wb_Dropout(0.5), wb_Flatten(),
                        wb_Dense(36, 3));
    if (IS("tokens")) return wb_Chain(wb_Embedding(11, 8), wb_LayerNorm({8}));
    if (IS("tied")) return tied();
    if (IS("block"))
        return wb_Chain(wb_named("encoder", wb_Chain(wb_Dense(4, 6, wb_gelu), wb_LayerNorm({6}))),
                        wb_named("head", wb_Dense(6, 2)));
    if (IS("rnn")) return wb_RNN(4, 3);
    if (IS("lstm")) return wb_LSTM(4, 3);
    if (IS("gru")) return wb_GRU(4, 3);
    if (IS("gru_of_two")) return wb_GRU(4, 3, .hidden_bias = true);
    if (IS("deep")) return wb_LSTM(4, 3, .layers = 2, .bidirectional = true);
    if (IS("line"))
        return wb_Chain(wb_Conv1d(2, 4, {3}, wb_relu, .pad = {1}, .groups = 2, .flip = flip),
                        wb_InstanceNorm(4, .affine = true, .track_stats = true),
                        wb_ConvTranspose1d(4, 2, {3}, .stride = {2}, .outpad = {1}, .flip = flip));
    if (IS("volume"))
        return wb_Chain(wb_Conv(2, 4, {2, 3, 1}, .flip = flip), wb_GroupNorm(4, 2, wb_relu),
                        wb_ConvTranspose(4, 2, {1, 2, 2}, .flip = flip));
    if (IS("image"))
        return wb_Chain(wb_ConvTranspose(2, 4, {2, 3}, .groups = 2, .flip = flip),
                        wb_PixelShuffle(2), wb_RMSNorm({12}), wb_Upsample(.scale = {2}));
    if (IS("tbag")) return wb_EmbeddingBag(11, 4, .mode = WB_BAG_MAX);
    if (IS("attention")) return wb_MultiHeadAttention(8, 2, .bias = true);
    return wb_MultiHeadAttention(8, 2);
#undef IS
}

static const char *const models[] = {"mlp",        "cnn",       "tokens",         "tied",
                                     "block",      "rnn",       "lstm",           "gru",
                                     "gru_of_two", "deep",      "line",           "volume",
                                     "image",      "tbag",      "attention",
                                     "attention_plain"};

static wb_tensor *input_of(const char *name)
{
    static const int32_t tokens[6] = {1, 10, 3, 0, 7, 2};
    if (!strcmp(name, "mlp")) return wb_randn(3, 5);
    if (!strcmp(name, "cnn")) return wb_randn(2, 2, 6, 6);
    if (!strcmp(name, "block")) return wb_randn(3, 4);
    if (!strcmp(name, "line")) return wb_randn(2, 2, 7);
    if (!strcmp(name, "volume")) return wb_randn(2, 2, 4, 5, 3);
    if (!strcmp(name, "image")) return wb_randn(2, 2, 5, 4);
    if (name[0] == 't') return wb_from(tokens, WB_I32, 2, (int64_t[]){2, 3});
    return wb_randn(2, 5, name[0] == 'a' ? 8 : 4);
}

static int draw(wb_tensor *x, const char *path, void *ctx)
{
    bool variance = strstr(path, ".var") != NULL;
    wb_tensor *r = variance ? wb_rand_array(WB_F32, 1, wb_dims(x))
                            : wb_randn_array(WB_F32, (int)wb_ndim(x), wb_dims(x));
    return wb_assign(x, variance ? wb_add(r, wb_scalar(0.5)) : r);
}

static void write_for_torch(const char *name)
{
    wb_layer *m = model_named(name, true);
    assert_int_equal(wb_each_tensor(m, draw, NULL), 0);
    wb_tensor *x = input_of(name), *y = wb_call(m, x);
    if (!y) fail_msg("%s: %s", name, wb_error());
    assert_int_equal(wb_save(in_folder(name, ".weber.safetensors"), m, .names = WB_NAMES_TORCH), 0);
    wb_tree *data = wb_named_tuple(2, (const char *[]){"x", "y"}, (void *[]){x, y});
    assert_int_equal(wb_save(in_folder(name, ".data.safetensors"), data), 0);
}

static void read_from_torch(const char *name, wb_names names, bool flip)
{
    wb_layer *m = model_named(name, flip);
    if (wb_load_state(in_folder(name, ".torch.safetensors"), m, .names = names))
        fail_msg("%s", wb_error());
    wb_tree *data = wb_load_tensors(in_folder(name, ".result.safetensors"));
    wb_tensor *y = data ? wb_call(m, wb_get(data, "x")) : NULL,
              *want = data ? wb_get(data, "y") : NULL;
    if (!y || !want) fail_msg("%s: %s", name, wb_error());
    assert_string_equal(wb_describe(y), wb_describe(want));
    const float *a = wb_data(y), *b = wb_data(want);
    for (int64_t i = 0; i < wb_size(y); i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f + 1e-4f * fabsf(b[i])))
            fail_msg("%s[%lld] is %g, PyTorch has %g", name, (long long)i, (double)a[i],
                     (double)b[i]);
}

TEST(pytorch)
{
    if (!python_has("torch") || !python_has("safetensors.torch")) skip();
    for (size_t i = 0; i < WB__COUNT(models); i++) write_for_torch(models[i]);
    assert_int_equal(python_script("io/torch_models.py both", folder), 0);
    for (size_t i = 0; i < WB__COUNT(models); i++) {
        read_from_torch(models[i], WB_NAMES_AUTO, i & 1);
        read_from_torch(models[i], WB_NAMES_TORCH, !(i & 1));
    }
}

int main(void) { return run_cases(make_folder, drop_folder); }
