/* Weber, chapter 7: models from the folder of a model hub. */
#ifndef WEBER_PRETRAINED_H
#define WEBER_PRETRAINED_H

#include "weber/files.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a model of wb_load_pretrained computes.
 *
 * WB_PRETRAINED_TOKENS: BERT and DistilBERT give the last hidden states [N,T,width],
 * GPT2LMHeadModel the logits [N,T,vocabulary], GPT2Model the hidden states behind its last norm.
 * WB_PRETRAINED_POOLED: BERT gives [N,width], the tanh of the layer "pooler" of the first token.
 * WB_PRETRAINED_SENTENCES: a vector [N,width] for each text, as the folder's modules.json describes
 * it for a sentence encoder: the mean over the tokens of the mask, their sum over the root of
 * their number, their maximum, or the first token; then, with "Normalize", of length 1. */
enum { WB_PRETRAINED_TOKENS, WB_PRETRAINED_POOLED, WB_PRETRAINED_SENTENCES };

/** Options of wb_load_pretrained. */
#define wb_load_pretrained_options_(OPT, ARG)                                                      \
    OPT(int64_t, output, WB_PRETRAINED_TOKENS)
WB_OPTIONS(wb_load_pretrained_options);
/** Loads the model in a folder of a model hub, on the default device: wb_load_pretrained("gpt2").
 * The folder has config.json and model.safetensors, or model.safetensors.index.json and the files
 * that it names; WB_PRETRAINED_SENTENCES also reads modules.json and what it names.  "model_type"
 * in config.json is
 *   "bert"         BertModel; of BertForMaskedLM and BertForPreTraining the encoder, without the
 *                  head ("cls.")
 *   "distilbert"   DistilBertModel; of DistilBertForMaskedLM the encoder ("vocab_" is left out)
 *   "gpt2"         GPT2LMHeadModel, GPT2Model
 *
 *   wb_call(model, ids)   wb_call(model, ids, mask)   wb_call(model, ids, mask, types)
 *   ids, mask, types [N,T] integer; mask also bool
 * Tokens whose mask is 0 are padding: no token attends to them, and a sentence's vector leaves them
 * out.  `types` are the token types of BERT; without them they are 0.  GPT-2 is causal, and works
 * with wb_attention_cache and wb_call_cached; then the mask is [N,length] of the cache.
 *
 * The model is a layer of Weber's own layers: Embedding, LayerNorm, MultiHeadAttention, Dense and
 * Dropout in a Transformer, so that it is trained, moved, printed, and saved and loaded by wb_save
 * and wb_load.  Its parameters have the dtype that they have in the file; docs/pretrained.md lists
 * their paths.  The head of GPT-2 is the table of the tokens (wb_tie), unless "tie_word_embeddings"
 * is false.
 *
 * Errors of the call: more positions than the model has; inputs of other shapes; ids or types
 * outside the tables, if the host can read them.  Errors: another model_type or architecture; a
 * setting of config.json, or a tensor, that does not fit, all in one message
 * (docs/pretrained.md); a damaged file; an output that the model does not have. */
WB_API wb_layer *wb_load_pretrained_with(const char *folder, const wb_load_pretrained_options *o);

#ifdef __cplusplus
}
#else
#define wb_load_pretrained(...) WB_LOAD_PRETRAINED_(__VA_ARGS__, )
#define WB_LOAD_PRETRAINED_(folder, ...) \
    WB_CALL_WITH_(wb_load_pretrained_with((folder), \
                                          WB_GET_(wb_load_pretrained_options, __VA_ARGS__)))
#endif

#endif
