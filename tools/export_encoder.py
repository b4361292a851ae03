#!/usr/bin/env python3
"""Exports a sentence encoder of a model hub's folder from PyTorch to an ONNX file.

    export_encoder.py FOLDER FILE.onnx [--opset 17]

FOLDER has config.json, model.safetensors and modules.json, such as that of all-MiniLM-L6-v2, and
the mean of the tokens as its pooling.  The file's inputs are input_ids and attention_mask, i64
[batch, length]; its output is "vectors", f32 [batch, width], of length 1 if modules.json has
Normalize.  Prints the greatest difference between PyTorch and ONNX Runtime, if that is installed.
The Python must have torch, transformers and onnx.
"""
import argparse
import json
import pathlib
import sys

import torch
import transformers


class Encoder(torch.nn.Module):
    """The model, the mean of its tokens, and their norm."""

    def __init__(self, folder):
        super().__init__()
        modules = json.loads((folder / "modules.json").read_text())
        kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
        if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
            sys.exit(f"{folder}: modules.json lists {kinds}")
        pooling = json.loads((folder / modules[1]["path"] / "config.json").read_text())
        if [key for key, value in pooling.items() if value is True and key != "include_prompt"] != \
                ["pooling_mode_mean_tokens"]:
            sys.exit(f"{folder}: the pooling is not the mean of the tokens alone")
        self.model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager")
        self.normalise = len(kinds) == 3

    def forward(self, input_ids, attention_mask):
        hidden = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[:, :, None].to(hidden.dtype)
        vectors = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(vectors, dim=1) if self.normalise else vectors


def example(batch, length, vocabulary):
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length // 2:] = 0
    return torch.randint(vocabulary, (batch, length)), mask


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("file", type=pathlib.Path)
    options.add_argument("--opset", type=int, default=17)
    options = options.parse_args()
    encoder = Encoder(options.folder).eval()
    vocabulary = encoder.model.config.vocab_size
    sizes = {0: "batch", 1: "length"}
    with torch.no_grad():
        torch.onnx.export(encoder, example(2, 9, vocabulary), options.file, dynamo=False,
                          opset_version=options.opset,
                          input_names=["input_ids", "attention_mask"], output_names=["vectors"],
                          dynamic_axes={"input_ids": sizes, "attention_mask": sizes,
                                        "vectors": {0: "batch"}})
    print(f"{options.file}: {options.file.stat().st_size} bytes, opset {options.opset}")
    try:
        import onnxruntime
    except ImportError:
        return
    session = onnxruntime.InferenceSession(options.file, providers=["CPUExecutionProvider"])
    ids, mask = example(3, 20, vocabulary)
    got = session.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})[0]
    with torch.no_grad():
        difference = (torch.from_numpy(got) - encoder(ids, mask)).abs().max()
    print(f"the greatest difference of ONNX Runtime: {difference:.1e}")


if __name__ == "__main__":
    main()
