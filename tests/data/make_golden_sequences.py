#!/usr/bin/python3
"""Writes sequences.safetensors beside this file: results of PyTorch 2.15 for attention and
recurrent layers that nn.safetensors lacks.

golden.py describes the tensors.  Several results are one row.  Each case is drawn from a seed of
its own name, so a new case changes no other one.
"""
import zlib

import torch
import torch.nn.functional as F

import golden
from golden import draw


def case(name, f, params, inputs):
    """params and inputs are functions, called after the seed is set."""
    torch.manual_seed(zlib.crc32(name.encode()))
    golden.case(name, f, params(), inputs())


def row(*results):
    return torch.cat([y.reshape(-1) for y in results])


# ---- attention -----------------------------------------------------------------------------------

def rotated(x, base):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * base ** (-torch.arange(half) / half)
    a, b, c, s = x[..., :half], x[..., half:], torch.cos(angle), torch.sin(angle)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def attention(heads, kv_heads, causal=False, weights=False, base=0):
    def f(p, x):
        q, k, v = (x[0], x[1], x[2]) if len(x) > 1 else (x[0],) * 3
        parts = []
        for name, part, n in (("q", q, heads), ("k", k, kv_heads), ("v", v, kv_heads)):
            y = F.linear(part, p[name + "_proj.weight"], p.get(name + "_proj.bias"))
            y = y.unflatten(-1, (n, -1)).transpose(1, 2)
            parts.append(rotated(y, base) if base and name != "v" else y)
        q, k, v = parts
        bias = x[3] if len(x) > 3 else None
        y = F.scaled_dot_product_attention(q, k, v, bias, is_causal=causal, enable_gqa=True)
        y = F.linear(y.transpose(1, 2).flatten(2), p["out_proj.weight"], p.get("out_proj.bias"))
        if not weights:
            return y
        return row(y, ((q @ k.mT) / q.shape[-1] ** 0.5 + bias).softmax(-1))
    return f


def projections(q, k, v, out, bias):
    sizes = {"q_proj": q, "k_proj": k, "v_proj": v, "out_proj": out}
    p = {n + ".weight": draw(b, a, scale=0.5) for n, (a, b) in sizes.items()}
    if bias:
        p.update({n + ".bias": draw(b, scale=0.5) for n, (_, b) in sizes.items()})
    return p


case("attention_sizes", attention(2, 2, weights=True),
     lambda: projections((6, 4), (5, 4), (4, 8), (8, 3), True),
     lambda: [draw(2, 3, 6), draw(2, 4, 5), draw(2, 4, 4), draw(2, 1, 3, 4)])
case("attention_groups", attention(4, 2, causal=True, base=100.0),
     lambda: projections((8, 8), (8, 4), (8, 4), (8, 8), False), lambda: [draw(2, 5, 8)])


# ---- recurrent layers ----------------------------------------------------------------------------

def recurrent(kind):
    """x and the states -> all outputs and the last states.  The bias is PyTorch's first."""
    def f(p, x):
        layer = getattr(torch.nn, kind)(x[0].shape[-1], x[1].shape[-1], batch_first=True)
        values = {"weight_ih_l0": p["weight_input"], "weight_hh_l0": p["weight_hidden"],
                  "bias_ih_l0": p["bias"], "bias_hh_l0": torch.zeros_like(p["bias"])}
        states = tuple(s[None] for s in x[1:])
        states = states if kind == "LSTM" else states[0]
        y, last = torch.func.functional_call(layer, values, (x[0], states))
        return row(y, *(last if kind == "LSTM" else [last]))
    return f


for kind, gates, states in (("RNN", 1, 1), ("LSTM", 4, 2), ("GRU", 3, 1)):
    case(kind.lower() + "_states", recurrent(kind),
         lambda: {"weight_input": draw(gates * 3, 2), "weight_hidden": draw(gates * 3, 3),
                  "bias": draw(gates * 3)},
         lambda: [draw(2, 4, 2)] + [draw(2, 3) for _ in range(states)])

golden.write("sequences.safetensors", "make_golden_sequences.py with PyTorch 2.15")
