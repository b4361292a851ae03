/* The settings of a model hub's folder.  Each setting is honoured, or is known to change nothing,
 * or is refused by its name. */
#include "io/pretrained/pretrained.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- families -------------------------------------------------------------------------------- */

/* clang-format off */
#define V WB__HUB_VOCABULARY
#define P WB__HUB_POSITIONS
#define T WB__HUB_TYPES
#define W WB__HUB_WIDTH
#define I WB__HUB_INNER
static const wb__hub_row bert_rows[] = {
    {"embeddings.word_embeddings", "tokens", WB__HUB_TABLE, V, W},
    {"embeddings.position_embeddings", "positions", WB__HUB_TABLE, P, W},
    {"embeddings.token_type_embeddings", "types", WB__HUB_TABLE, T, W},
    {"embeddings.LayerNorm", "embed_norm", WB__HUB_NORM, W, 0},
    {"encoder.layer.%d.attention.self.query", "attention.q_proj", WB__HUB_DENSE, W, W},
    {"encoder.layer.%d.attention.self.key", "attention.k_proj", WB__HUB_DENSE, W, W},
    {"encoder.layer.%d.attention.self.value", "attention.v_proj", WB__HUB_DENSE, W, W},
    {"encoder.layer.%d.attention.output.dense", "attention.out_proj", WB__HUB_DENSE, W, W},
    {"encoder.layer.%d.attention.output.LayerNorm", "norm1", WB__HUB_NORM, W, 0},
    {"encoder.layer.%d.intermediate.dense", "dense1", WB__HUB_DENSE, I, W},
    {"encoder.layer.%d.output.dense", "dense2", WB__HUB_DENSE, W, I},
    {"encoder.layer.%d.output.LayerNorm", "norm2", WB__HUB_NORM, W, 0},
    {"pooler.dense", "pooler", WB__HUB_DENSE, W, W},
    {0}};
static const wb__hub_row distilbert_rows[] = {
    {"embeddings.word_embeddings", "tokens", WB__HUB_TABLE, V, W},
    {"embeddings.position_embeddings", "positions", WB__HUB_TABLE, P, W},
    {"embeddings.LayerNorm", "embed_norm", WB__HUB_NORM, W, 0},
    {"transformer.layer.%d.attention.q_lin", "attention.q_proj", WB__HUB_DENSE, W, W},
    {"transformer.layer.%d.attention.k_lin", "attention.k_proj", WB__HUB_DENSE, W, W},
    {"transformer.layer.%d.attention.v_lin", "attention.v_proj", WB__HUB_DENSE, W, W},
    {"transformer.layer.%d.attention.out_lin", "attention.out_proj", WB__HUB_DENSE, W, W},
    {"transformer.layer.%d.sa_layer_norm", "norm1", WB__HUB_NORM, W, 0},
    {"transformer.layer.%d.ffn.lin1", "dense1", WB__HUB_DENSE, I, W},
    {"transformer.layer.%d.ffn.lin2", "dense2", WB__HUB_DENSE, W, I},
    {"transformer.layer.%d.output_layer_norm", "norm2", WB__HUB_NORM, W, 0},
    {0}};
static const wb__hub_row gpt2_rows[] = {
    {"wte", "tokens", WB__HUB_TABLE, V, W},
    {"wpe", "positions", WB__HUB_TABLE, P, W},
    {"h.%d.ln_1", "norm1", WB__HUB_NORM, W, 0},
    {"h.%d.attn.c_attn", "attention", WB__HUB_JOINED, W, W},
    {"h.%d.attn.c_proj", "attention.out_proj", WB__HUB_TURNED, W, W},
    {"h.%d.ln_2", "norm2", WB__HUB_NORM, W, 0},
    {"h.%d.mlp.c_fc", "dense1", WB__HUB_TURNED, I, W},
    {"h.%d.mlp.c_proj", "dense2", WB__HUB_TURNED, W, I},
    {"ln_f", "norm", WB__HUB_NORM, W, 0},
    {"lm_head", "head", WB__HUB_HEAD, V, W},
    {0}};
#undef V
#undef P
#undef T
#undef W
#undef I

static const char *const bert_buffers[] = {"embeddings.position_ids", "embeddings.token_type_ids",
                                           NULL},
                  *const gpt2_buffers[] = {"h.%d.attn.bias", "h.%d.attn.masked_bias", NULL};
static const wb__hub_family
    bert = {.type = "bert", .prefix = "bert.", .drops_attention = true, .rows = bert_rows,
            .buffers = bert_buffers},
    distilbert = {.type = "distilbert", .prefix = "distilbert.", .rows = distilbert_rows,
                  .buffers = bert_buffers},
    gpt2 = {.type = "gpt2", .prefix = "transformer.", .causal = true, .norm_first = true,
            .drops_attention = true, .rows = gpt2_rows, .buffers = gpt2_buffers};

static const struct {
    const wb__hub_family *family;
    const char *name;
    bool head;
    const char *left_out;
} architectures[] = {
    {.family = &bert, .name = "BertModel"},
    {.family = &bert, .name = "BertForMaskedLM", .left_out = "cls."},
    {.family = &bert, .name = "BertForPreTraining", .left_out = "cls."},
    {.family = &distilbert, .name = "DistilBertModel"},
    {.family = &distilbert, .name = "DistilBertForMaskedLM", .left_out = "vocab_"},
    {.family = &gpt2, .name = "GPT2LMHeadModel", .head = true},
    {.family = &gpt2, .name = "GPT2Model"},
};

/* ---- the settings of each family ------------------------------------------------------------- */

typedef enum { SIZE, SIZE_OR_NULL, CONFIG_NUMBER, CONFIG_ACTIVATION, FLAG_OFF, FIXED } setting_kind;
typedef struct {
    const char *key;
    setting_kind kind;
    size_t at;                          /* the offset of the field in wb__hub_config */
    double otherwise;                   /* CONFIG_NUMBER: the value if the setting is missing */
    const char *value;                  /* CONFIG_ACTIVATION: the value if it is missing; FIXED: the
                                           only value, which a missing setting has too */
} setting;
#define AT(field) offsetof(wb__hub_config, field)
#define SIZE_OF(id) AT(sizes[WB__HUB_##id])

static const setting bert_settings[] = {
    {"vocab_size", SIZE, .at = SIZE_OF(VOCABULARY)},
    {"hidden_size", SIZE, .at = SIZE_OF(WIDTH)},
    {"num_hidden_layers", SIZE, .at = AT(blocks)},
    {"num_attention_heads", SIZE, .at = AT(heads)},
    {"intermediate_size", SIZE, .at = SIZE_OF(INNER)},
    {"max_position_embeddings", SIZE, .at = SIZE_OF(POSITIONS)},
    {"type_vocab_size", SIZE, .at = SIZE_OF(TYPES)},
    {"hidden_act", CONFIG_ACTIVATION, .value = "gelu"},
    {"hidden_dropout_prob", CONFIG_NUMBER, .at = AT(dropout), .otherwise = 0.1},
    {"attention_probs_dropout_prob", CONFIG_NUMBER, .at = AT(attention_dropout), .otherwise = 0.1},
    {"layer_norm_eps", CONFIG_NUMBER, .at = AT(eps), .otherwise = 1e-12},
    {"position_embedding_type", FIXED, .value = "absolute"},
    {"is_decoder", FIXED, .value = "false"},
    {0}};
static const setting distilbert_settings[] = {
    {"vocab_size", SIZE, .at = SIZE_OF(VOCABULARY)},
    {"dim", SIZE, .at = SIZE_OF(WIDTH)},
    {"n_layers", SIZE, .at = AT(blocks)},
    {"n_heads", SIZE, .at = AT(heads)},
    {"hidden_dim", SIZE, .at = SIZE_OF(INNER)},
    {"max_position_embeddings", SIZE, .at = SIZE_OF(POSITIONS)},
    {"activation", CONFIG_ACTIVATION, .value = "gelu"},
    {"dropout", CONFIG_NUMBER, .at = AT(dropout), .otherwise = 0.1},
    {"attention_dropout", CONFIG_NUMBER, .at = AT(attention_dropout), .otherwise = 0.1},
    {"sinusoidal_pos_embds", FIXED, .value = "false"},
    {0}};
static const setting gpt2_settings[] = {
    {"vocab_size", SIZE, .at = SIZE_OF(VOCABULARY)},
    {"n_embd", SIZE, .at = SIZE_OF(WIDTH)},
    {"n_layer", SIZE, .at = AT(blocks)},
    {"n_head", SIZE, .at = AT(heads)},
    {"n_inner", SIZE_OR_NULL, .at = SIZE_OF(INNER)},
    {"n_positions", SIZE, .at = SIZE_OF(POSITIONS)},
    {"activation_function", CONFIG_ACTIVATION, .value = "gelu_new"},
    {"resid_pdrop", CONFIG_NUMBER, .at = AT(dropout), .otherwise = 0.1},
    {"embd_pdrop", CONFIG_NUMBER, .at = AT(embed_dropout), .otherwise = 0.1},
    {"attn_pdrop", CONFIG_NUMBER, .at = AT(attention_dropout), .otherwise = 0.1},
    {"layer_norm_epsilon", CONFIG_NUMBER, .at = AT(eps), .otherwise = 1e-5},
    {"scale_attn_weights", FIXED, .value = "true"},
    {"scale_attn_by_inverse_layer_idx", FIXED, .value = "false"},
    {"tie_word_embeddings", FLAG_OFF, .at = AT(untied)},
    {0}};
static const setting common_settings[] = {
    {"add_cross_attention", FIXED, .value = "false"},
    {"is_encoder_decoder", FIXED, .value = "false"},
    {"cross_attention_hidden_size", FIXED, .value = "null"},
    {"pruned_heads", FIXED, .value = "{}"},
    {0}};

/* Settings that change nothing in the results of the model here: names, tokens, training, choices
 * of the generation, heads that are not built, the precision of training. */
static const char *const config_harmless[] = {
    "afn", "architectures", "attn_implementation", "bad_words_ids", "begin_suppress_tokens",
    "bos_token_id", "chunk_size_feed_forward", "classifier_dropout", "cls_token_id",
    "decoder_start_token_id", "directionality", "diversity_penalty", "do_sample", "dtype",
    "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id",
    "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
    "forced_eos_token_id", "gradient_checkpointing", "id2label", "initializer_range", "label2id",
    "length_penalty", "max_length", "min_length", "model_type", "n_ctx", "n_special",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_labels", "num_return_sequences",
    "output_attentions", "output_hidden_states", "output_past", "output_scores", "pad_token_id",
    "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
    "pooler_size_per_head", "pooler_type", "predict_special_tokens", "prefix", "problem_type",
    "qa_dropout", "remove_invalid_values", "reorder_and_upcast_attn", "repetition_penalty",
    "return_dict", "return_dict_in_generate", "sep_token_id", "seq_classif_dropout",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "suppress_tokens", "task_specific_params", "temperature",
    "tf_legacy_loss", "tie_encoder_decoder", "tie_weights_", "tie_word_embeddings",
    "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version",
    "typical_p", "use_bfloat16", "use_cache"};
/* clang-format on */

bool wb__hub_is_plain(const char *name)
{
    return name && *name && *name != '.' && !strchr(name, '/') && !strchr(name, '\\');
}

wb__json *wb__hub_json(const char *folder, const char *name)
{
    char *path = wb__printf("%s/%s", folder, name);
    wb__json *root = path ? wb__json_file(path) : NULL;
    wb__free(path);
    return root;
}

/* A configuration while it is read.  `wrong` has a line for each setting that is refused. */
typedef struct {
    wb__hub_config *c;                  /* the result */
    const wb__json *root;
    wb__text wrong;
} config_reading;

static void config_add_value(wb__text *t, const wb__json *v)
{
    const char *text = wb__json_text(v);
    if (!v) wb__text_add(t, "missing");
    else if (text) wb__text_add(t, "\"%.60s\"", text);
    else if (wb__json_is(v, WB__JSON_INTEGER)) wb__text_add(t, "%lld", (long long)v->is.integer);
    else if (wb__json_is(v, WB__JSON_REAL)) wb__text_add(t, "%g", v->is.real);
    else
        wb__text_add(t, "%s", wb__json_is(v, WB__JSON_TRUE)    ? "true"
                              : wb__json_is(v, WB__JSON_FALSE) ? "false"
                              : wb__json_is(v, WB__JSON_NULL)  ? "null"
                              : wb__json_is(v, WB__JSON_LIST)  ? "a list"
                                                               : "an object");
}

static void config_refuse(config_reading *r, const char *key, const wb__json *v, const char *cure)
{
    enum { MOST = 6000 };
    if (r->wrong.length > MOST) return;
    wb__text_add(&r->wrong, "\n  \"%.100s\" is ", key);
    config_add_value(&r->wrong, v);
    wb__text_add(&r->wrong, "; %s", cure);
}

static void config_read_size(config_reading *r, const setting *s, const wb__json *v)
{
    const int64_t n = wb__json_integer(v);
    if (s->kind == SIZE_OR_NULL && (!v || wb__json_is(v, WB__JSON_NULL))) return;
    memcpy((char *)r->c + s->at, &n, sizeof n);
    if (!wb__json_is(v, WB__JSON_INTEGER) || n < 1 || n > INT_MAX)
        config_refuse(r, s->key, v, "it is a number from 1 to 2147483647");
}

static void config_read_number(config_reading *r, const setting *s, const wb__json *v)
{
    const bool real = wb__json_is(v, WB__JSON_REAL), eps = s->at == AT(eps);
    const double x = !v ? s->otherwise : real ? v->is.real : (double)wb__json_integer(v);
    memcpy((char *)r->c + s->at, &x, sizeof x);
    if ((v && !real && !wb__json_is(v, WB__JSON_INTEGER)) || !(x >= 0 && x < 1) || (eps && x == 0))
        config_refuse(r, s->key, v, eps ? "it is a number above 0 and below 1"
                                        : "it is a probability, from 0 and below 1");
}

static void config_read_activation(config_reading *r, const setting *s, const wb__json *v)
{
    static const struct { const char *name; wb_function f; } known[] = {
        {"gelu", wb_gelu_erf}, {"gelu_new", wb_gelu}, {"gelu_pytorch_tanh", wb_gelu},
        {"gelu_fast", wb_gelu}, {"relu", wb_relu}, {"silu", wb_swish}, {"swish", wb_swish},
        {"tanh", wb_tanh}};
    const char *name = v ? wb__json_text(v) : s->value;
    for (size_t i = 0; name && i < WB__COUNT(known); i++)
        if (!strcmp(known[i].name, name)) {
            r->c->activation = known[i].f;
            return;
        }
    config_refuse(r, s->key, v,
                  "known are gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, relu, silu, "
                  "swish and tanh");
}

static void config_read_fixed(config_reading *r, const setting *s, const wb__json *v)
{
    wb__text found = {0};
    config_add_value(&found, v);
    const char *text = wb__json_text(v) ? wb__json_text(v) : found.text;
    const bool empty = wb__json_is(v, WB__JSON_OBJECT) && !wb__json_members(v);
    const bool nothing = wb__json_is(v, WB__JSON_NULL) && strcmp(s->value, "true");
    if (v && text && strcmp(text, s->value) && !(empty && !strcmp(s->value, "{}")) && !nothing) {
        char cure[80];
        snprintf(cure, sizeof cure, "this library computes %s", s->value);
        config_refuse(r, s->key, v, cure);
    }
    if (found.failed) r->wrong.failed = true;
    wb__free(found.text);
}

static void config_read_setting(config_reading *r, const setting *s, const wb__json *v)
{
    switch (s->kind) {
    case SIZE: case SIZE_OR_NULL: config_read_size(r, s, v); break;
    case CONFIG_NUMBER: config_read_number(r, s, v); break;
    case CONFIG_ACTIVATION: config_read_activation(r, s, v); break;
    case FIXED: config_read_fixed(r, s, v); break;
    case FLAG_OFF: {
        const bool off = wb__json_is(v, WB__JSON_FALSE);
        memcpy((char *)r->c + s->at, &off, sizeof off);
        if (v && !off && !wb__json_is(v, WB__JSON_TRUE))
            config_refuse(r, s->key, v, "it is true or false");
    }
    }
}

static bool config_has_key(const setting *list, const char *key)
{
    while (list->key && strcmp(list->key, key)) list++;
    return list->key;
}

static void config_read_settings(config_reading *r, const setting *own)
{
    const wb__json *v;
    for (const setting *s = own; s->key; s++)
        config_read_setting(r, s, wb__json_get(r->root, s->key));
    for (const setting *s = common_settings; s->key; s++)
        config_read_setting(r, s, wb__json_get(r->root, s->key));
    WB__JSON_EACH_MEMBER(r->root, v, i) {
        const char *key = wb__json_key(v);
        size_t k = 0;
        while (k < WB__COUNT(config_harmless) && strcmp(config_harmless[k], key)) k++;
        if (*key != '_' && k == WB__COUNT(config_harmless) && !config_has_key(own, key) &&
            !config_has_key(common_settings, key))
            config_refuse(r, key, v, "no such setting is known: remove it if it changes nothing");
    }
}

/* Sets c->family and c->head by "model_type" and "architectures".  False with the error set. */
static bool config_read_family(const char *folder, const wb__json *root, wb__hub_config *c)
{
    const wb__json *names = wb__json_get(root, "architectures");
    const char *type = wb__json_text(wb__json_get(root, "model_type"));
    const char *name = wb__json_count(names) ? wb__json_text(wb__json_after(names, true)) : NULL;
    wb__text known = {0};
    size_t i = 0;
    for (; i < WB__COUNT(architectures); i++) {
        if (type && !strcmp(architectures[i].family->type, type) &&
            (!name || !strcmp(architectures[i].name, name)))
            break;
        wb__text_add(&known, i ? ", %s (%s)" : "%s (%s)", architectures[i].name,
                     architectures[i].family->type);
    }
    if (i == WB__COUNT(architectures))
        wb__fail(WB_ERROR_UNSUPPORTED, "%s/config.json: the model is \"%.100s\" of model_type "
                 "\"%.100s\"; known are %s", folder, name ? name : "", type ? type : "",
                 known.text ? known.text : "others");
    wb__free(known.text);
    if (i == WB__COUNT(architectures)) return false;
    c->family = architectures[i].family;
    c->head = architectures[i].head;
    c->left_out = architectures[i].left_out;
    return true;
}

/* Sets and checks what depends on several settings, or on none. */
static void config_complete(config_reading *r)
{
    wb__hub_config *c = r->c;
    const int64_t width = c->sizes[WB__HUB_WIDTH];
    if (!c->sizes[WB__HUB_INNER]) c->sizes[WB__HUB_INNER] = 4 * width;
    if (c->family != &gpt2) c->embed_dropout = c->dropout;
    if (c->family == &distilbert) c->eps = 1e-12;
    if (!r->wrong.length && c->heads > 0 && width % c->heads)
        wb__text_add(&r->wrong, "\n  %lld heads do not divide the width of %lld",
                     (long long)c->heads, (long long)width);
}

int wb__hub_config_read(const char *folder, wb__hub_config *c)
{
    wb__json *root = wb__hub_json(folder, "config.json");
    if (!root) return wb_error_code();
    config_reading r = {.c = c, .root = root};
    if (!config_read_family(folder, root, c)) return wb__free(root), wb_error_code();
    config_read_settings(&r, c->family == &bert   ? bert_settings
                             : c->family == &gpt2 ? gpt2_settings
                                                  : distilbert_settings);
    config_complete(&r);
    int status = r.wrong.failed ? wb__fail(WB_ERROR_MEMORY, NULL) : 0;
    if (!status && r.wrong.length)
        status = wb__fail(WB_ERROR_UNSUPPORTED, "%s/config.json: settings of \"%s\" are wrong, or "
                          "ask for what this library does not compute:%s", folder,
                          c->family->type, r.wrong.text);
    wb__free(r.wrong.text);
    wb__free(root);
    return status;
}
