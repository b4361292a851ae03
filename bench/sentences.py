#!/usr/bin/env python3
"""Sentences a second of a pretrained encoder: Weber, PyTorch and ONNX Runtime.

  bench/sentences.py BUILD FOLDER [--onnx FILE] [--batch 1] [--threads 1] [--rounds 5]

BUILD is a build folder with bench/sentences_bench, FOLDER one of a model hub with a sentence
encoder, such as all-MiniLM-L6-v2.  FILE is the encoder as tools/export_encoder.py writes it, which
Weber and ONNX Runtime then run too.  The sentences are the hundred of examples/13_sentences.c, in
their order, in batches that are padded to their longest sentence.  All sides get the same tokens,
which are not part of the time.  The sides run in turns; the figures are the medians over the rounds
of each round's fastest repeat.  The page has the greatest difference of a vector's element from
PyTorch's in f64.

The Python must have torch, transformers and tokenizers; PyTorch uses its fused attention.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
REPEATS = 5
options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
options.add_argument("build", type=pathlib.Path)
options.add_argument("folder", type=pathlib.Path)
options.add_argument("--onnx", type=pathlib.Path)
for name, value in (("batch", 1), ("threads", 1), ("rounds", 5)):
    options.add_argument("--" + name, type=int, default=value)
options = options.parse_args()


def batches():
    """[(ids, mask)], i64 [N, T]"""
    import tokenizers
    text = (ROOT / "examples" / "13_sentences.c").read_text()
    sentences = re.findall(r'^    "(.*)",$', text, re.M)
    words = tokenizers.Tokenizer.from_file(str(options.folder / "tokenizer.json"))
    words.enable_truncation(256)
    words.no_padding()
    result = []
    for i in range(0, len(sentences), options.batch):
        lines = [line.ids for line in words.encode_batch(sentences[i:i + options.batch])]
        longest = max(map(len, lines))
        ids = np.zeros((len(lines), longest), np.int64)
        mask = np.zeros_like(ids)
        for row, line in enumerate(lines):
            ids[row, :len(line)] = line
            mask[row, :len(line)] = 1
        result.append((ids, mask))
    return result


def timed(encode, work):
    """(the seconds of the fastest repeat, the vectors)"""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        vectors = [encode(ids, mask) for ids, mask in work]
        best = min(best, time.perf_counter() - start)
    return best, np.concatenate(vectors)


def torch_side(torch, model):
    def encode(ids, mask):
        hidden = model(torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))[0]
        weight = torch.from_numpy(mask)[:, :, None].to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1).numpy()
    return encode


def onnx_side():
    import onnxruntime
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(options.onnx, settings,
                                           providers=["CPUExecutionProvider"])
    return (f"ONNX Runtime {onnxruntime.__version__}",
            lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})[0])


def weber_side(model, file, folder):
    """As timed()."""
    from safetensors.numpy import load_file
    out = folder / "out.safetensors"
    run = subprocess.run([options.build / "bench" / "sentences_bench", model, file, out,
                          "--threads", str(options.threads), "--repeats", str(REPEATS)],
                         check=True, capture_output=True, text=True)
    return min(json.loads(run.stdout)["seconds"]), load_file(out)["vectors"]


def main():
    import torch
    import transformers
    from safetensors.numpy import save_file
    torch.set_num_threads(options.threads)
    work = batches()
    model = transformers.AutoModel.from_pretrained(options.folder).eval()
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        folder = pathlib.Path(folder)
        file = folder / "batches.safetensors"
        save_file({f"{name}{i}": x.astype(np.int32) for i, pair in enumerate(work)
                   for name, x in zip(("ids", "mask"), pair)}, file)
        encode = torch_side(torch, model)
        sides = {"Weber, safetensors": lambda: weber_side(options.folder, file, folder),
                 f"PyTorch {torch.__version__}": lambda: timed(encode, work)}
        if options.onnx:
            name, run = onnx_side()
            sides["Weber, ONNX"] = lambda: weber_side(options.onnx, file, folder)
            sides[name] = lambda: timed(run, work)
        seconds, vectors = {side: [] for side in sides}, {}
        for _ in range(options.rounds):
            for side, measure in sides.items():
                t, vectors[side] = measure()
                seconds[side].append(t)
        wide = transformers.AutoModel.from_pretrained(options.folder).double().eval()
        exact = np.concatenate([torch_side(torch, wide)(ids, mask) for ids, mask in work])
    tokens = sum(int(mask.sum()) for _, mask in work)
    print(f"{len(exact)} sentences, {tokens} tokens, batch {options.batch}, "
          f"{options.threads} threads\n")
    print("| side | sentences/s | ms a batch | difference |")
    print("| --- | --- | --- | --- |")
    worst = 0
    for side, times in seconds.items():
        t = statistics.median(times)
        difference = float(np.abs(vectors[side] - exact).max())
        worst = max(worst, difference)
        print(f"| {side} | {len(exact) / t:.1f} | {1e3 * t / len(work):.2f} | {difference:.1e} |")
    if worst > 1e-5:
        sys.exit("the vectors differ")


if __name__ == "__main__":
    main()
