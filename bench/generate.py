#!/usr/bin/env python3
"""Tokens per second of a GPT with a cache of keys and values: Weber, PyTorch and llama.cpp.

  bench/generate.py BUILD [--model small|gpt2] [--dtype f32|bf16|int8] [--tokens N] [--batch 1]
                    [--threads 1] [--rounds 5] [--hub]

BUILD is a build folder with bench/generate_bench.  small: 256 characters of a small GPT; gpt2: 64
tokens of GPT-2 124M.  With --hub, of gpt2, Weber loads the model by wb_load_pretrained from a
folder in the form of a model hub.  All sides have the same weights and generate the most likely
token each time.  The page has the number of tokens that equal Weber's; in f32 PyTorch's must be
all.  In bf16 sides round differently, and llama.cpp rounds GELU, keys and values to f16.  In int8
Weber has the model of wb_quantize, PyTorch multiplies by linear_dynamic, and llama.cpp is left out.
The sides run in turns; the figures are the medians over the rounds of each round's fastest repeat.

Each token reads all weights once, so the memory's bandwidth is the limit of gpt2.  It is measured
in the same run, with as many threads, as the fastest reading of 512 MiB.

The Python must have PyTorch (./run bench --rivals).  PyTorch is eager, with one product for query,
key and value.  llama.cpp is measured if the Python has it.  PyPI has its source, which pip compiles
for this machine's processor (seven minutes on one core):

  CMAKE_ARGS=-DLLAVA_BUILD=OFF build/bench-venv/bin/pip install llama-cpp-python gguf
"""
import argparse
import json
import logging
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

REPEATS = 5
SIZES = {"small": (65, 256, 128, 4, 4, 256), "gpt2": (50257, 1024, 768, 12, 12, 64)}
options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
options.add_argument("build", type=pathlib.Path)
options.add_argument("--model", choices=list(SIZES), default="small")
options.add_argument("--dtype", choices=["f32", "bf16", "int8"], default="f32")
for name, value in (("tokens", 0), ("batch", 1), ("threads", 1), ("rounds", 5)):
    options.add_argument("--" + name, type=int, default=value)
options.add_argument("--hub", action="store_true")
options = options.parse_args()
if options.hub and options.model != "gpt2":
    sys.exit("--hub is of --model gpt2")
CLASSES, LENGTH, WIDTH, HEADS, BLOCKS, TOKENS = SIZES[options.model]
TIED = options.model == "gpt2"          # the head is the table of the tokens
HEAD = "layers.0.layers.0.weight" if TIED else f"layers.{BLOCKS + 2}.weight"


def weights(torch):
    """The weights by Weber's names; large enough that the text is no repetition."""
    torch.manual_seed(1)
    w = {}

    def draw(name, *shape, scale=0.08):
        w[name] = torch.randn(*shape) * scale

    def norm(name):
        draw(name + ".scale", WIDTH, scale=0.1)
        w[name + ".scale"] += 1
        draw(name + ".bias", WIDTH)

    def dense(name, out, inner):
        draw(name + ".weight", out, inner)
        draw(name + ".bias", out)

    draw("layers.0.layers.0.weight", CLASSES, WIDTH, scale=0.05 if TIED else 1)
    draw("layers.0.layers.1.layers.1.weight", LENGTH, WIDTH, scale=1)
    for i in range(BLOCKS):
        at = f"layers.{i + 1}.layers"
        norm(f"{at}.0.layers.layers.0")
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            dense(f"{at}.0.layers.layers.1.{part}", WIDTH, WIDTH)
        norm(f"{at}.1.layers.layers.0")
        dense(f"{at}.1.layers.layers.1", 4 * WIDTH, WIDTH)
        dense(f"{at}.1.layers.layers.2", WIDTH, 4 * WIDTH)
    norm(f"layers.{BLOCKS + 1}")
    if not TIED:
        draw(HEAD, CLASSES, WIDTH)
    return w


def bytes_of_token(w):
    """The bytes of the weights that one token reads: without the tables, except for the head."""
    table = "layers.0.layers."
    count = sum(x.numel() for name, x in w.items()
                if name == HEAD or not (name.startswith(table) and name.endswith(".weight")))
    return count * {"f32": 4, "bf16": 2, "int8": 1}[options.dtype]


def save(w, path):
    header, at = {}, 0
    for name, x in w.items():
        header[name] = {"dtype": "F32", "shape": list(x.shape),
                        "data_offsets": [at, at + 4 * x.numel()]}
        at += 4 * x.numel()
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for x in w.values():
            f.write(x.numpy().tobytes())


def save_hub(torch, w, folder):
    """Writes the folder of a model hub: the weights by GPT-2's names, matrices [in, out]."""
    hub = {"wte.weight": w["layers.0.layers.0.weight"],
           "wpe.weight": w["layers.0.layers.1.layers.1.weight"]}

    def norm(name, of):
        hub[name + ".weight"], hub[name + ".bias"] = w[of + ".scale"], w[of + ".bias"]

    def turned(name, *of):
        hub[name + ".weight"] = torch.cat([w[part + ".weight"] for part in of]).T.contiguous()
        hub[name + ".bias"] = torch.cat([w[part + ".bias"] for part in of])

    for i in range(BLOCKS):
        attention, perceptron = (f"layers.{i + 1}.layers.{part}.layers.layers." for part in (0, 1))
        norm(f"h.{i}.ln_1", attention + "0")
        turned(f"h.{i}.attn.c_attn", *(f"{attention}1.{part}_proj" for part in "qkv"))
        turned(f"h.{i}.attn.c_proj", attention + "1.out_proj")
        norm(f"h.{i}.ln_2", perceptron + "0")
        turned(f"h.{i}.mlp.c_fc", perceptron + "1")
        turned(f"h.{i}.mlp.c_proj", perceptron + "2")
    norm("ln_f", f"layers.{BLOCKS + 1}")
    folder.mkdir()
    save(hub, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": CLASSES,
        "n_positions": LENGTH, "n_embd": WIDTH, "n_layer": BLOCKS, "n_head": HEADS}))


def torch_side(torch, w, tokens, batch):
    """Returns a function that generates, and returns the characters."""
    F = torch.nn.functional
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    w = {name: x.to(dtype) for name, x in w.items()}
    blocks = []
    for i in range(BLOCKS):
        at = f"layers.{i + 1}.layers"
        p = {k[len(at) + 1:]: v for k, v in w.items() if k.startswith(at + ".")}
        parts = [f"0.layers.layers.1.{part}_proj." for part in "qkv"]
        p["in.weight"] = torch.cat([p[part + "weight"] for part in parts])
        p["in.bias"] = torch.cat([p[part + "bias"] for part in parts])
        blocks.append(p)
    keys, values = ([torch.zeros(batch, HEADS, LENGTH, WIDTH // HEADS, dtype=dtype) for _ in blocks]
                    for _ in range(2))

    def norm(x, p, name):
        return F.layer_norm(x, (WIDTH,), p[name + ".scale"], p[name + ".bias"])

    packed = {}

    def quantised(x, weight, bias):
        """F.linear with i8 weights, which are packed once."""
        if id(weight) not in packed:
            n = len(weight)
            q = torch.quantize_per_channel(weight, weight.abs().amax(1) / 127,
                                           torch.zeros(n, dtype=torch.int64), 0, torch.qint8)
            packed[id(weight)] = torch.ops.quantized.linear_prepack(q, bias)
        return torch.ops.quantized.linear_dynamic(x, packed[id(weight)])

    product = quantised if options.dtype == "int8" else F.linear

    def linear(x, p, name):
        return product(x, p[name + ".weight"], p[name + ".bias"])

    def step(x, at):
        y = F.embedding(x, w["layers.0.layers.0.weight"])
        y = y + w["layers.0.layers.1.layers.1.weight"][at:at + 1]
        for p, k, v in zip(blocks, keys, values):
            joint = linear(norm(y, p, "0.layers.layers.0"), p, "in")
            q, k_now, v_now = (part.view(batch, 1, HEADS, -1).transpose(1, 2)
                               for part in joint.split(WIDTH, 2))
            k[:, :, at:at + 1] = k_now
            v[:, :, at:at + 1] = v_now
            a = F.scaled_dot_product_attention(q, k[:, :, :at + 1], v[:, :, :at + 1])
            y = y + linear(a.transpose(1, 2).reshape(batch, 1, WIDTH), p,
                           "0.layers.layers.1.out_proj")
            z = F.gelu(linear(norm(y, p, "1.layers.layers.0"), p, "1.layers.layers.1"),
                       approximate="tanh")
            y = y + linear(z, p, "1.layers.layers.2")
        y = norm(y, w, f"layers.{BLOCKS + 1}")
        return product(y, w[HEAD], None).argmax(-1)

    def generate():
        x = torch.arange(batch).remainder(CLASSES).view(batch, 1)
        line = x.flatten().tolist()
        for at in range(tokens):
            x = step(x, at)
            line += x.flatten().tolist()
        return line
    return generate


def save_gguf(gguf, w, path):
    """Writes the weights by llama.cpp's names: matrices in the dtype, vectors in f32 as always."""
    import numpy as np
    dtype = getattr(gguf.GGMLQuantizationType, options.dtype.upper())
    file = gguf.GGUFWriter(path, "gpt2")
    file.add_vocab_size(CLASSES)
    file.add_context_length(LENGTH)
    file.add_embedding_length(WIDTH)
    file.add_feed_forward_length(4 * WIDTH)
    file.add_block_count(BLOCKS)
    file.add_head_count(HEADS)
    file.add_layer_norm_eps(1e-5)
    file.add_tokenizer_model("no_vocab")

    def put(name, *parts):
        x = np.concatenate([w[part].numpy() for part in parts])
        kind = dtype if x.ndim > 1 else gguf.GGMLQuantizationType.F32
        file.add_tensor(name, gguf.quantize(x, kind), raw_dtype=kind)

    def both(name, *parts, weight="weight"):
        put(name + ".weight", *(f"{part}.{weight}" for part in parts))
        put(name + ".bias", *(f"{part}.bias" for part in parts))

    put("token_embd.weight", "layers.0.layers.0.weight")
    put("position_embd.weight", "layers.0.layers.1.layers.1.weight")
    for i in range(BLOCKS):
        to, at = f"blk.{i}.", f"layers.{i + 1}.layers."
        attention, perceptron = at + "0.layers.layers.", at + "1.layers.layers."
        both(to + "attn_norm", attention + "0", weight="scale")
        both(to + "attn_qkv", *(f"{attention}1.{part}_proj" for part in "qkv"))
        both(to + "attn_output", attention + "1.out_proj")
        both(to + "ffn_norm", perceptron + "0", weight="scale")
        both(to + "ffn_up", perceptron + "1")
        both(to + "ffn_down", perceptron + "2")
    both("output_norm", f"layers.{BLOCKS + 1}", weight="scale")
    if not TIED:
        put("output.weight", HEAD)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def llama_side(w, path, tokens, batch):
    """Returns the name of the side and a function as torch_side's; None without llama.cpp."""
    try:
        import gguf
        import llama_cpp as llama
        import numpy as np
    except ImportError as error:
        print(f"llama.cpp is left out: {error} (the head of generate.py says how to get it).")
        return None
    logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
    save_gguf(gguf, w, path)
    settings = llama.llama_context_default_params()
    settings.n_ctx, settings.n_seq_max = LENGTH * batch, batch
    settings.n_threads = settings.n_threads_batch = options.threads
    model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
    context = llama.llama_init_from_model(model, settings) if model else None
    if not context:
        sys.exit("llama.cpp does not load the model")
    now = llama.llama_batch_init(batch, 0, 1)

    def step(x, at):
        now.n_tokens = batch
        for i in range(batch):
            now.token[i], now.pos[i], now.logits[i] = x[i], at, True
            now.n_seq_id[i], now.seq_id[i][0] = 1, i
        if llama.llama_decode(context, now):
            sys.exit("llama.cpp fails")
        scores = np.ctypeslib.as_array(llama.llama_get_logits(context), (batch, CLASSES))
        return scores.argmax(-1).tolist()

    def generate():
        llama.llama_memory_clear(llama.llama_get_memory(context), False)
        x = [i % CLASSES for i in range(batch)]
        line = list(x)
        for at in range(tokens):
            x = step(x, at)
            line += x
        return line
    return f"llama.cpp (llama-cpp-python {llama.__version__})", generate


def timed(generate):
    """(the seconds of the fastest repeat, the text)"""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        line = generate()
        best = min(best, time.perf_counter() - start)
    return best, line


def weber_side(file, tokens, rates):
    """As timed(); appends the memory's bandwidth to `rates`."""
    command = [options.build / "bench" / "generate_bench", file]
    for name in ("model", "dtype", "batch", "threads"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--tokens", str(tokens), "--repeats", str(REPEATS), "--hub", str(int(options.hub))]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(run.stdout)
    rates.append(statistics.median(result["bytes_per_second"]))
    return min(result["seconds"]), result["tokens"]


def main():
    import torch
    tokens = options.tokens or TOKENS
    torch.set_num_threads(options.threads)
    w, rates = weights(torch), []
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        file = pathlib.Path(folder) / "gpt.safetensors"
        if options.hub:
            file = pathlib.Path(folder) / "gpt2"
            save_hub(torch, w, file)
        else:
            save(w, file)
        torch_generate = torch_side(torch, w, tokens, options.batch)
        sides = {"Weber": lambda: weber_side(file, tokens, rates),
                 f"PyTorch {torch.__version__}": lambda: timed(torch_generate)}
        llama = None
        if options.dtype != "int8":
            llama = llama_side(w, pathlib.Path(folder) / "gpt.gguf", tokens, options.batch)
        if llama:
            sides[llama[0]] = lambda: timed(llama[1])
        seconds, texts = {side: [] for side in sides}, {}
        for _ in range(options.rounds):
            for side, measure in sides.items():
                t, texts[side] = measure()
                seconds[side].append(t)
    rate, need = statistics.median(rates), bytes_of_token(w)
    line = texts["Weber"]
    print(f"{options.model}, {options.dtype}: {tokens} tokens, batch {options.batch}, "
          f"{options.threads} threads, {len(set(line))} different tokens; a token reads "
          f"{need / 1e6:.1f} MB, the memory's bandwidth is {rate / 1e9:.1f} GB/s\n")
    print("| side | tokens/s | a token | share of the bandwidth | equal tokens |")
    print("| --- | --- | --- | --- | --- |")
    for side, times in seconds.items():
        t = statistics.median(times) / tokens
        equal = next((i for i, pair in enumerate(zip(line, texts[side])) if pair[0] != pair[1]),
                     len(line)) // options.batch - 1
        print(f"| {side} | {options.batch / t:.1f} | {1e6 * t:.0f} us | {need / t / rate:.2f} "
              f"| {equal} of {tokens} |")
    if options.dtype == "f32" and any(text != line for side, text in texts.items()
                                      if not side.startswith("llama.cpp")):
        sys.exit("the texts differ")


if __name__ == "__main__":
    main()
