#!/usr/bin/python3
"""Writes the folders of pretrained/ beside this file, small models of random numbers in the form of
a model hub, and pretrained.safetensors: what PyTorch 2.15 and transformers 5 compute with them, in
f64.

  pretrained/bert         a sentence encoder: BertModel, mean of the tokens, vectors of length 1
  pretrained/distilbert   DistilBertModel
  pretrained/gpt2         GPT2LMHeadModel, with a byte-level BPE of 320 tokens

The names in pretrained.safetensors: "bert.ids", "bert.mask", "bert.types", "bert.hidden",
"bert.pooled", "bert.sentences"; "gpt2.ids", "gpt2.logits", "gpt2.greedy", and the gradients of
"loss", the sum of the products of hidden states or logits with "weights", by Weber's paths:
"bert.grad.layers.tokens.weight".
"""
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import ByteLevelBPETokenizer

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "pretrained"
transformers.logging.set_verbosity_error()
kept = {}

TEXT = """\
A small model of random numbers reads and writes text like this one. The tokens of the text
are pieces of words: the pieces that occur often are long, and the others are short. The model
reads one token after the other, and for each it computes how likely every token is to be the
next one. The likeliest is written, and read again. Nothing of what it writes means anything, since
nothing was learned; it is the numbers that are checked.
"""


def keep(name, x):
    kept[name] = (x.detach().float() if x.is_floating_point() else x.int()).clone().contiguous()


def make(name, cls, config, change=None):
    """Draws a model, so that all its tensors matter, and changes it; saves it, and returns it in
    f64."""
    torch.manual_seed(len(name))
    model = cls(config).eval()
    with torch.no_grad():
        for key, x in model.named_parameters():
            scale = 0.2 if x.ndim == 1 else 0.35
            scale = {"wte": 0.5, "wpe": 1.0}.get(key.split(".")[1], scale)
            scale = 0.5 if "embeddings" in key and x.ndim == 2 else scale
            x.copy_(torch.randn_like(x) * scale + ("norm" in key.lower() and "weight" in key) * 1.0
                    + (("ln_" in key) and "weight" in key) * 1.0)
        if change:
            change(model)
    model.save_pretrained(FOLDER / name)
    for other in (FOLDER / name).glob("generation_config.json"):
        other.unlink()
    (FOLDER / name / "model.safetensors").chmod(0o644)
    return model.double()


def gradients(name, model, result, paths):
    weights = torch.randn(result.shape, dtype=torch.float64).float().double()
    loss = (result * weights).sum()
    loss.backward()
    keep(f"{name}.weights", weights)
    keep(f"{name}.loss", loss)
    grads = {key: x.grad for key, x in model.named_parameters()}
    for key, (path, change) in paths.items():
        keep(f"{name}.grad.{path}", change(grads[key]))


def same(x):
    return x


# ---- BERT ----------------------------------------------------------------------------------------

bert = make("bert", transformers.BertModel, transformers.BertConfig(
    vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=24, max_position_embeddings=20, type_vocab_size=2))
(FOLDER / "bert" / "1_Pooling").mkdir(exist_ok=True)
(FOLDER / "bert" / "1_Pooling" / "config.json").write_text(json.dumps(
    {"word_embedding_dimension": 16, "pooling_mode_cls_token": False,
     "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False,
     "pooling_mode_mean_sqrt_len_tokens": False}, indent=2) + "\n")
(FOLDER / "bert" / "modules.json").write_text(json.dumps(
    [{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
     for i, (path, kind) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling"),
                                       ("2_Normalize", "Normalize")))], indent=2) + "\n")
ids = torch.randint(1, 60, (2, 7))
mask = torch.ones(2, 7, dtype=torch.int64)
mask[1, 4:] = 0
types = torch.zeros(2, 7, dtype=torch.int64)
types[:, 3:] = 1
keep("bert.ids", ids)
keep("bert.mask", mask)
keep("bert.types", types)
keep("bert.plain", bert(ids).last_hidden_state)
result = bert(ids, attention_mask=mask, token_type_ids=types)
hidden = result.last_hidden_state
keep("bert.hidden", hidden)
keep("bert.pooled", result.pooler_output)
keep("bert.first", hidden[:, 0])
keep("bert.max", hidden.masked_fill(mask[:, :, None] == 0, -1e9).amax(1))
total = (hidden * mask[:, :, None]).sum(1)
keep("bert.root", total / mask.sum(1, keepdim=True).double().sqrt())
mean = total / mask.sum(1, keepdim=True)
keep("bert.mean", mean)
keep("bert.sentences", torch.nn.functional.normalize(mean))
block = "layers.block1.layers."
gradients("bert", bert, hidden, {
    "embeddings.word_embeddings.weight": ("layers.tokens.weight", same),
    "embeddings.position_embeddings.weight": ("layers.positions.weight", same),
    "embeddings.token_type_embeddings.weight": ("layers.types.weight", same),
    "embeddings.LayerNorm.weight": ("layers.embed_norm.scale", same),
    "encoder.layer.1.attention.self.query.weight": (block + "attention.q_proj.weight", same),
    "encoder.layer.1.attention.self.key.weight": (block + "attention.k_proj.weight", same),
    "encoder.layer.1.attention.self.value.bias": (block + "attention.v_proj.bias", same),
    "encoder.layer.1.attention.output.dense.weight": (block + "attention.out_proj.weight", same),
    "encoder.layer.1.attention.output.LayerNorm.bias": (block + "norm1.bias", same),
    "encoder.layer.1.intermediate.dense.weight": (block + "dense1.weight", same),
    "encoder.layer.1.output.dense.weight": (block + "dense2.weight", same),
    "encoder.layer.1.output.LayerNorm.weight": (block + "norm2.scale", same)})

# ---- DistilBERT ----------------------------------------------------------------------------------

distilbert = make("distilbert", transformers.DistilBertModel, transformers.DistilBertConfig(
    vocab_size=40, dim=8, n_layers=2, n_heads=2, hidden_dim=12, max_position_embeddings=10))
keep("distilbert.ids", ids % 40)
keep("distilbert.hidden", distilbert(ids % 40, attention_mask=mask).last_hidden_state)

# ---- GPT-2 ---------------------------------------------------------------------------------------

tokenizer = ByteLevelBPETokenizer()
tokenizer.train_from_iterator([TEXT], vocab_size=320, special_tokens=["<|endoftext|>"],
                              show_progress=False)


def prefer_letters(model):
    """Makes tokens that are no ASCII text unlikely."""
    for i in range(320):
        text = tokenizer.decode([i])
        if i == 0 or not (text.isascii() and text.isprintable()):
            model.transformer.wte.weight[i] *= 0.1


gpt2 = make("gpt2", transformers.GPT2LMHeadModel, transformers.GPT2Config(
    vocab_size=320, n_embd=16, n_layer=2, n_head=2, n_positions=48, bos_token_id=0,
    eos_token_id=0), prefer_letters)
tokenizer.save_model(str(FOLDER / "gpt2"))
ids = torch.randint(0, 320, (2, 6))
keep("gpt2.ids", ids)
logits = gpt2(ids).logits
keep("gpt2.logits", logits)
keep("gpt2.greedy", gpt2.generate(ids[:1, :5], max_new_tokens=30, do_sample=False, pad_token_id=0,
                                  eos_token_id=None))
block = "layers.block0.layers."
gradients("gpt2", gpt2, logits, {
    "transformer.wpe.weight": ("layers.positions.weight", same),
    "transformer.h.0.ln_1.weight": (block + "norm1.scale", same),
    "transformer.h.0.attn.c_attn.weight":
        (block + "attention.k_proj.weight", lambda g: g[:, 16:32].T),
    "transformer.h.0.attn.c_attn.bias": (block + "attention.v_proj.bias", lambda g: g[32:]),
    "transformer.h.0.attn.c_proj.weight": (block + "attention.out_proj.weight", lambda g: g.T),
    "transformer.h.0.mlp.c_fc.weight": (block + "dense1.weight", lambda g: g.T),
    "transformer.h.0.mlp.c_proj.weight": (block + "dense2.weight", lambda g: g.T),
    "transformer.ln_f.bias": ("layers.norm.bias", same),
    "transformer.wte.weight": ("layers.tokens.weight", same)})
# The text of example 14: a prompt, and what the model goes on with.
prompt = tokenizer.encode("The").ids
line = gpt2.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0,
                     eos_token_id=None)[0].tolist()
print(json.dumps(tokenizer.decode(line)))

save_file(kept, HERE / "pretrained.safetensors")
(HERE / "pretrained.safetensors").chmod(0o644)
