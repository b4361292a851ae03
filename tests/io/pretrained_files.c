/* Folders of a model hub that wb_load_pretrained reads, and those that it refuses: names with a
 * prefix, several files, settings that are not computed, tensors that do not fit, hostile sizes,
 * wrong calls.  The folders are copies of tests/data/pretrained with one change. */
#include "folder.h"

#include "base/files/file.h"
#include "io/safetensors/safetensors.h"
#include "tree/tree.h"
#include "weber.h"

#include <sys/stat.h>

#define SOURCE(name) WB_TEST_DATA "/pretrained/" name

/* ---- copies with a change -------------------------------------------------------------------- */

/* Writes FOLDER/name as SOURCE/from, with the first `find`, if not NULL, replaced. */
static void put_text(const char *from, const char *name, const char *find, const char *replacement)
{
    int64_t n;
    char *text = wb__file_read(from, &n), *at = find ? strstr(text, find) : NULL;
    if (find && !at) fail_msg("no %s in %s", find, from);
    char *changed = !find ? wb__strdup(text)
                          : wb__printf("%.*s%s%s", (int)(at - text), text, replacement,
                                       at + strlen(find));
    put_file(in_folder(name), changed, strlen(changed));
    wb__free(text);
    wb__free(changed);
}

/* A change of the tensors: those whose names contain `drop` are left out, unless it is NULL; the
 * names get the prefix, and in them `find` is replaced; `added` is a further tensor; all have the
 * dtype, if it is not 0, or the tensor named `one` alone. */
typedef struct {
    const char *drop, *keep, *prefix, *find, *replacement, *added, *one;
    wb_tensor *value;
    wb_dtype dtype;
} change;

static void put_tensors(const char *from, const char *name, change c)
{
    enum { MOST = 100 };
    const char *names[MOST];
    void *tensors[MOST];
    int n = 0;
    wb_tree *all = wb_load_tensors(from);
    MADE(all);
    for (int i = 0; i < all->node.n; i++) {
        const char *old = all->node.children[i].name;
        wb_tensor *x = all->node.children[i].object;
        if ((c.drop && strstr(old, c.drop)) || (c.keep && !strstr(old, c.keep))) continue;
        const char *at = c.find ? strstr(old, c.find) : NULL;
        names[n] = wb__printf("%s%.*s%s%s", c.prefix ? c.prefix : "",
                              (int)(at ? at - old : (ptrdiff_t)strlen(old)), old,
                              at ? c.replacement : "", at ? at + strlen(c.find) : "");
        if (c.dtype && (!c.one || !strcmp(old, c.one))) x = wb_astype(x, c.dtype);
        if (c.value && c.one && !strcmp(old, c.one)) x = c.value;
        tensors[n++] = x;
    }
    if (c.added) names[n] = wb__strdup(c.added), tensors[n++] = c.value;
    wb_tree *tree = wb__tree_new(n);    /* whose names may have dots */
    for (int i = 0; i < n; i++) {
        assert_true(wb__branch_put_copy(&tree->node, i, names[i], tensors[i]));
        wb__free((void *)(uintptr_t)names[i]);
    }
    WORKS(wb_save(in_folder(name), tree));
}

static void put_model(const char *family, change c)
{
    char from[300];
    snprintf(from, sizeof from, SOURCE("%s/config.json"), family);
    put_text(from, "config.json", NULL, NULL);
    snprintf(from, sizeof from, SOURCE("%s/model.safetensors"), family);
    unlink(in_folder("model.safetensors.index.json"));
    put_tensors(from, "model.safetensors", c);
}

static wb_tensor *ids_of(int64_t n, int64_t t, int32_t value)
{
    return wb_full_array(value, WB_I32, 2, (int64_t[]){n, t});
}

/* The model in the folder computes what that of SOURCE(family) computes. */
static void computes_the_same(const char *family)
{
    char from[300];
    snprintf(from, sizeof from, SOURCE("%s"), family);
    wb_layer *a = wb_load_pretrained(from), *b = wb_load_pretrained(folder);
    MADE(a && b);
    wb_tensor *x = wb_call(a, ids_of(2, 5, 3)), *y = wb_call(b, ids_of(2, 5, 3));
    MADE(x && y);
    assert_int_equal(wb_size(x), wb_size(y));
    assert_memory_equal(wb_data(x), wb_data(y), (size_t)wb_size(x) * 4);
}

/* ---- what is accepted ------------------------------------------------------------------------ */

TEST_IN_SCOPE(names_may_have_the_prefix_of_a_head)
{
    put_model("bert", (change){.prefix = "bert."});
    computes_the_same("bert");
    put_model("bert", (change){.find = "LayerNorm.weight", .replacement = "LayerNorm.gamma"});
    computes_the_same("bert");
    put_model("distilbert", (change){.prefix = "distilbert."});
    computes_the_same("distilbert");
    put_model("gpt2", (change){.find = "transformer.", .replacement = ""});
    computes_the_same("gpt2");
}

TEST_IN_SCOPE(constants_and_other_heads_are_left_out)
{
    put_model("bert", (change){.added = "embeddings.position_ids",
                               .value = wb_arange(20, WB_I64)});
    computes_the_same("bert");
    put_model("gpt2", (change){.added = "transformer.h.1.attn.bias",
                               .value = wb_full_array(1, WB_F32, 2, (int64_t[]){48, 48})});
    computes_the_same("gpt2");
    put_model("bert", (change){.added = "cls.predictions.bias", .value = wb_zeros(60)});
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "cls.predictions.bias", "[60] f32");
    put_text(SOURCE("bert/config.json"), "config.json", "BertModel", "BertForMaskedLM");
    computes_the_same("bert");
    put_model("bert", (change){.drop = "pooler"});
    computes_the_same("bert");
    REFUSED(wb_load_pretrained(folder, .output = WB_PRETRAINED_POOLED), WB_ERROR_FORMAT,
            "pooler.dense.weight", "pooler.dense.bias", "[16,16]");
}

TEST_IN_SCOPE(parameters_have_the_dtype_of_the_file)
{
    put_model("gpt2", (change){.dtype = WB_BF16});
    wb_layer *model = wb_load_pretrained(folder);
    MADE(model);
    assert_int_equal(wb_dtype_of(wb_get(model, "layers.block1.layers.attention.q_proj.weight")),
                     WB_BF16);
    wb_tensor *y = wb_call(model, ids_of(1, 4, 7));
    MADE(y);
    assert_true(isfinite(wb_item(wb_sum(wb_astype(y, WB_F32)))));
}

/* A head of its own, and one that is tied in config.json. */
TEST_IN_SCOPE(a_head_may_be_a_tensor_of_its_own)
{
    wb_tree *all = wb_load_tensors(SOURCE("gpt2/model.safetensors"));
    MADE(all);
    wb_tensor *table = NULL;
    for (int i = 0; i < all->node.n; i++)
        if (strstr(all->node.children[i].name, "wte")) table = all->node.children[i].object;
    put_model("gpt2", (change){.added = "lm_head.weight", .value = table});
    computes_the_same("gpt2");
    put_model("gpt2", (change){.added = "lm_head.weight", .value = wb_mul(table, 2)});
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "lm_head.weight", "[320,16] f32");

    put_text(SOURCE("gpt2/config.json"), "config.json", "\"tie_word_embeddings\": true",
             "\"tie_word_embeddings\": false");
    wb_layer *own = wb_load_pretrained(folder), *tied = wb_load_pretrained(SOURCE("gpt2"));
    MADE(own && tied);
    wb_tensor *x = wb_call(tied, ids_of(1, 3, 9)), *y = wb_call(own, ids_of(1, 3, 9));
    assert_true(wb_item(wb_max(wb_abs(wb_sub(wb_mul(x, 2), y)))) < 1e-4);
    put_tensors(SOURCE("gpt2/model.safetensors"), "model.safetensors", (change){0});
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "lm_head.weight", "[320,16]");
}

TEST_IN_SCOPE(gpt2_without_a_head)
{
    put_model("gpt2", (change){0});
    put_text(SOURCE("gpt2/config.json"), "config.json", "GPT2LMHeadModel", "GPT2Model");
    wb_layer *model = wb_load_pretrained(folder);
    MADE(model);
    wb_tensor *y = wb_call(model, ids_of(2, 3, 1));
    assert_int_equal(wb_dim(y, 2), 16);
    REFUSED(wb_load_pretrained(folder, .output = WB_PRETRAINED_POOLED), WB_ERROR_UNSUPPORTED,
            "gpt2", "pooler");
}

/* ---- several files --------------------------------------------------------------------------- */

static void put_index(const char *text)
{
    unlink(in_folder("model.safetensors"));
    put_file(in_folder("model.safetensors.index.json"), text, strlen(text));
}

/* An index of the tensors of the two files, as "name": "file". */
static char *index_text(const char *skip)
{
    wb__text t = {0};
    wb__text_add(&t, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (int f = 0, n = 0; f < 2; f++) {
        const char *name = f ? "model-2.safetensors" : "model-1.safetensors";
        wb__table table;
        WORKS(wb__st_load(in_folder(name), true, &table));
        for (int i = 0; i < table.n; i++)
            if (!skip || strcmp(skip, table.entries[i].name))
                wb__text_add(&t, "%s\"%s\": \"%s\"", n++ ? ", " : "", table.entries[i].name, name);
        wb__table_free(&table);
    }
    wb__text_add(&t, "}}");
    return wb__text_take(&t);
}

TEST_IN_SCOPE(several_files)
{
    const char *from = SOURCE("bert/model.safetensors");
    put_text(SOURCE("bert/config.json"), "config.json", NULL, NULL);
    put_tensors(from, "model-1.safetensors", (change){.drop = "layer.1."});
    put_tensors(from, "model-2.safetensors", (change){.keep = "layer.1."});
    char *text = index_text(NULL);
    put_index(text);
    computes_the_same("bert");
    wb__free(text);

    text = index_text("encoder.layer.1.output.dense.bias");
    put_index(text);
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "weight_map", folder);
    wb__free(text);
    put_index("{\"weight_map\": {\"encoder.layer.1.output.dense.bias\": \"model-1.safetensors\"}}");
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "encoder.layer.1.output.dense.bias");
    put_index("{\"weight_map\": {\"a\": \"../model-1.safetensors\"}}");
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "../model-1.safetensors");
    put_index("{\"weight_map\": {\"a\": \"model-3.safetensors\"}}");
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FILE, in_folder("model-3.safetensors"));
    put_index("{\"weight_map\": [1]}");
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "weight_map");
    unlink(in_folder("model.safetensors.index.json"));
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FILE, "model.safetensors", folder);
}

/* ---- tensors that do not fit ----------------------------------------------------------------- */

TEST_IN_SCOPE(all_differences_are_listed)
{
    put_model("bert", (change){.drop = "layer.1.output.dense", .added = "extra.weight",
                               .value = wb_zeros(2, 3)});
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "extra.weight", "[2,3] f32",
            "encoder.layer.1.output.dense.weight", "[16,24]", "encoder.layer.1.output.dense.bias",
            "[16]");
    put_model("bert", (change){.one = "embeddings.position_embeddings.weight",
                               .value = wb_zeros(19, 16)});
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "embeddings.position_embeddings.weight",
            "[19,16] f32", "[20,16] f32");
    put_model("bert", (change){.one = "encoder.layer.0.output.dense.bias", .dtype = WB_F16});
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "encoder.layer.0.output.dense.bias",
            "[16] f16", "[16] f32");
    put_model("gpt2", (change){.one = "transformer.h.0.attn.c_attn.weight",
                               .value = wb_zeros(48, 16)});
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "transformer.h.0.attn.c_attn.weight",
            "[48,16] f32", "[16,48] f32");
    put_model("bert", (change){.dtype = WB_I32});
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, "embeddings.LayerNorm.weight",
            "[16] i32");
}

TEST_IN_SCOPE(damaged_files)
{
    put_model("bert", (change){0});
    int64_t n;
    char *data = wb__file_read(SOURCE("bert/model.safetensors"), &n);
    put_file(in_folder("model.safetensors"), data, (size_t)n - 5);
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, in_folder("model.safetensors"));
    put_file(in_folder("model.safetensors"), "", 0);
    assert_null(wb_load_pretrained(folder));
    wb__free(data);
    REFUSED(wb_load_pretrained(in_folder("nowhere")), WB_ERROR_FILE, in_folder("nowhere"));
    REFUSED(wb_load_pretrained(NULL), WB_ERROR_ARGUMENT, "load_pretrained");
    REFUSED(wb_load_pretrained(SOURCE("bert"), .output = 3), WB_ERROR_ARGUMENT, ".output", "3");
}

/* ---- settings -------------------------------------------------------------------------------- */

static const struct {
    const char *family, *find, *replacement;
    int code;
    const char *facts[4];
} settings[] = {
    {"bert", "\"bert\"", "\"t5\"", WB_ERROR_UNSUPPORTED, {"model_type", "t5"}},
    {"bert", "\"model_type\"", "\"_\"", WB_ERROR_UNSUPPORTED, {"model_type"}},
    {"bert", "BertModel", "BertForQuestionAnswering", WB_ERROR_UNSUPPORTED,
     {"BertForQuestionAnswering"}},
    {"bert", "{", "{\"position_embedding_type\": \"relative_key\",", WB_ERROR_UNSUPPORTED,
     {"position_embedding_type", "relative_key"}},
    {"bert", "{", "{\"quantization_config\": {\"bits\": 4}, \"sparse\": 3,", WB_ERROR_UNSUPPORTED,
     {"quantization_config", "sparse", "3"}},
    {"bert", "\"gelu\"", "\"gelu_10\"", WB_ERROR_UNSUPPORTED, {"hidden_act", "gelu_10"}},
    {"bert", "\"hidden_dropout_prob\": 0.1", "\"hidden_dropout_prob\": 1.5", WB_ERROR_UNSUPPORTED,
     {"hidden_dropout_prob", "1.5"}},
    {"bert", "\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": 0", WB_ERROR_UNSUPPORTED,
     {"layer_norm_eps", "0"}},
    {"bert", "\"num_attention_heads\": 2", "\"num_attention_heads\": 3", WB_ERROR_UNSUPPORTED,
     {"3", "16"}},
    {"bert", "\"num_attention_heads\": 2", "\"num_attention_heads\": 0", WB_ERROR_UNSUPPORTED,
     {"num_attention_heads", "0"}},
    {"bert", "\"hidden_size\": 16", "\"hidden_size\": -16", WB_ERROR_UNSUPPORTED,
     {"hidden_size", "-16"}},
    {"bert", "\"hidden_size\": 16", "\"hidden_size\": \"16\"", WB_ERROR_UNSUPPORTED,
     {"hidden_size"}},
    {"bert", "\"hidden_size\": 16", "\"hidden_size\": 9000000000000000000", WB_ERROR_UNSUPPORTED,
     {"hidden_size", "9000000000000000000"}},
    {"bert", "\"vocab_size\"", "\"_v\"", WB_ERROR_UNSUPPORTED, {"vocab_size", "missing"}},
    /* No memory is allocated by these sizes: the tensors of the file have others. */
    {"bert", "\"hidden_size\": 16", "\"hidden_size\": 2147483646", WB_ERROR_FORMAT,
     {"embeddings.word_embeddings.weight", "[60,2147483646] f32"}},
    {"bert", "\"vocab_size\": 60", "\"vocab_size\": 2147483647", WB_ERROR_FORMAT,
     {"embeddings.word_embeddings.weight", "[2147483647,16] f32"}},
    {"bert", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1000000000", WB_ERROR_FORMAT,
     {"1000000000"}},
    {"bert", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 39", WB_ERROR_FORMAT,
     {"encoder.layer.2.attention.self.query.weight", "more"}},
    {"bert", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", WB_ERROR_FORMAT,
     {"encoder.layer.1.attention.self.query.weight", "[16,16] f32"}},
    {"gpt2", "\"scale_attn_by_inverse_layer_idx\": false",
     "\"scale_attn_by_inverse_layer_idx\": true", WB_ERROR_UNSUPPORTED,
     {"scale_attn_by_inverse_layer_idx", "true"}},
    {"gpt2", "\"scale_attn_weights\": true", "\"scale_attn_weights\": false", WB_ERROR_UNSUPPORTED,
     {"scale_attn_weights", "false"}},
    {"gpt2", "\"n_inner\": null", "\"n_inner\": 60", WB_ERROR_FORMAT,
     {"transformer.h.0.mlp.c_fc.weight", "[16,60] f32"}},
    {"gpt2", "\"add_cross_attention\": false", "\"add_cross_attention\": true",
     WB_ERROR_UNSUPPORTED, {"add_cross_attention", "true"}},
    {"distilbert", "\"sinusoidal_pos_embds\": false", "\"sinusoidal_pos_embds\": true",
     WB_ERROR_UNSUPPORTED, {"sinusoidal_pos_embds"}},
    {"bert", "{", "{\"a\" 1,", WB_ERROR_FORMAT, {"config.json"}},
};

TEST_IN_SCOPE(settings_that_are_not_computed_are_refused)
{
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char from[300];
        put_model(settings[i].family, (change){0});
        snprintf(from, sizeof from, SOURCE("%s/config.json"), settings[i].family);
        put_text(from, "config.json", settings[i].find, settings[i].replacement);
        wb_clear_error();
        assert_null(wb_load_pretrained(folder));
        if (!failed_with(settings[i].code, settings[i].facts))
            fail_msg("%s: %s", settings[i].replacement, wb_error());
    }
    put_file(in_folder("config.json"), "{\0}", 3);
    REFUSED(wb_load_pretrained(folder), WB_ERROR_FORMAT, in_folder("config.json"));
}

TEST_IN_SCOPE(settings_are_honoured)
{
    /* A narrow epsilon and another activation change the result. */
    static const char *const changes[][2] = {
        {"\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": 0.5"}, {"\"gelu\"", "\"relu\""}};
    wb_tensor *plain = wb_call(wb_load_pretrained(SOURCE("bert")), ids_of(1, 4, 5));
    for (int i = 0; i < 2; i++) {
        put_model("bert", (change){0});
        put_text(SOURCE("bert/config.json"), "config.json", changes[i][0], changes[i][1]);
        wb_tensor *y = wb_call(wb_load_pretrained(folder), ids_of(1, 4, 5));
        MADE(y);
        assert_true(wb_item(wb_max(wb_abs(wb_sub(plain, y)))) > 1e-3);
    }
    put_text(SOURCE("bert/config.json"), "config.json", "\"hidden_dropout_prob\": 0.1",
             "\"hidden_dropout_prob\": 0");
    char *text = wb_object_format(wb_load_pretrained(folder));
    assert_null(strstr(text, "dropout1"));
    assert_non_null(strstr(text, "dropout=0.1"));
    wb_free_text(text);
}

/* ---- sentence encoders ----------------------------------------------------------------------- */

static void put_sentences(const char *find, const char *replacement, bool pooling)
{
    put_model("bert", (change){0});
    put_text(SOURCE("bert/modules.json"), "modules.json", pooling ? NULL : find, replacement);
    mkdir(in_folder("1_Pooling"), 0777);
    put_text(SOURCE("bert/1_Pooling/config.json"), "1_Pooling/config.json", pooling ? find : NULL,
             replacement);
}

#define SENTENCES() wb_load_pretrained(folder, .output = WB_PRETRAINED_SENTENCES)

TEST_IN_SCOPE(sentence_encoders)
{
    put_sentences(NULL, NULL, false);
    MADE(SENTENCES());
    put_sentences("models.Pooling", "models.Dense", false);
    REFUSED(SENTENCES(), WB_ERROR_UNSUPPORTED, "Dense", in_folder("modules.json"));
    put_sentences("\"1_Pooling\"", "\"../1_Pooling\"", false);
    REFUSED(SENTENCES(), WB_ERROR_FORMAT, "../1_Pooling");
    put_sentences("\"pooling_mode_cls_token\": false", "\"pooling_mode_cls_token\": true", true);
    REFUSED(SENTENCES(), WB_ERROR_UNSUPPORTED, "2", in_folder("1_Pooling/config.json"));
    put_sentences("{", "{\"pooling_mode_lasttoken\": true,", true);
    REFUSED(SENTENCES(), WB_ERROR_UNSUPPORTED, "pooling_mode_lasttoken");
    put_sentences("\"word_embedding_dimension\": 16", "\"word_embedding_dimension\": 17", true);
    REFUSED(SENTENCES(), WB_ERROR_FORMAT, "17", "16");
    put_sentences(NULL, NULL, false);
    put_file(in_folder("modules.json"), "[]", 2);
    REFUSED(SENTENCES(), WB_ERROR_FORMAT, "0");
    unlink(in_folder("modules.json"));
    REFUSED(SENTENCES(), WB_ERROR_FILE, in_folder("modules.json"));
}

/* ---- calls ----------------------------------------------------------------------------------- */

TEST_IN_SCOPE(wrong_calls)
{
    wb_layer *bert = wb_load_pretrained(SOURCE("bert")), *gpt2 = wb_load_pretrained(SOURCE("gpt2"));
    wb_tensor *ids = ids_of(2, 5, 3), *floats = wb_zeros(2, 5);
    REFUSED(wb_call(bert, ids_of(1, 21, 3)), WB_ERROR_SHAPE, "21", "20");
    REFUSED(wb_call(bert, wb_full_array(1, WB_I32, 1, (int64_t[]){4})), WB_ERROR_SHAPE, "[4] i32");
    REFUSED(wb_call(bert, floats), WB_ERROR_DTYPE, "[2,5] f32");
    REFUSED(wb_call(bert, ids, floats), WB_ERROR_SHAPE, "[2,5] f32");
    REFUSED(wb_call(bert, ids, ids_of(2, 4, 1)), WB_ERROR_SHAPE, "[2,4] i32", "[2,5]");
    REFUSED(wb_call(bert, ids, ids, ids_of(1, 5, 0)), WB_ERROR_SHAPE, "[1,5] i32", "[2,5] i32");
    REFUSED(wb_call(bert, ids, ids, ids, ids), WB_ERROR_ARGUMENT, "4");
    REFUSED(wb_call(gpt2, ids, ids, ids), WB_ERROR_ARGUMENT, "types");
    const int32_t outside[] = {1, 60}, negative[] = {-1, 3}, types[] = {0, 2};
    const int64_t dims[] = {1, 2};
    wb_tensor *of_types = wb_from(types, WB_I32, 2, dims);
    REFUSED(wb_call(bert, wb_from(outside, WB_I32, 2, dims)), WB_ERROR_ARGUMENT, "60", "59");
    REFUSED(wb_call(bert, wb_from(negative, WB_I32, 2, dims)), WB_ERROR_ARGUMENT, "-1", "59");
    REFUSED(wb_call(bert, ids_of(1, 2, 1), ids_of(1, 2, 1), of_types), WB_ERROR_ARGUMENT, "2", "1");
    REFUSED(wb_load(SOURCE("gpt2")), WB_ERROR_FILE, SOURCE("gpt2"), "wb_load_pretrained");
    REFUSED(wb_load(SOURCE("gpt2") "/model.safetensors"), WB_ERROR_FORMAT, "wb_load_state",
            "wb_load_tensors", "wb_load_pretrained");
    REFUSED(wb_attention_cache(gpt2, 2, 49), WB_ERROR_ARGUMENT, "attention_cache", "49", "48",
            "\"layers.positions\"");
    MADE(wb_attention_cache(gpt2, 2, 48));
    REFUSED(wb_call_cached(bert, wb_attention_cache(gpt2, 2, 20), ids), WB_ERROR_ARGUMENT,
            "causal");
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST_IN_SCOPE(memory_runs_out)
{
    put_sentences(NULL, NULL, false);
    wb_layer *model = NULL;
    for (int64_t n = 1; !model; n += n < 200 ? 1 : 17) IN_SCOPE {
        wb_clear_error();
        wb__alloc_fail_at(n);
        model = SENTENCES();
        wb__alloc_fail_at(0);
        if (!model && wb_error_code() != WB_ERROR_MEMORY)
            fail_msg("allocation %lld: %s", (long long)n, wb_error());
    }
}

int main(void) { return run_cases(make_folder, remove_folder); }
