#!/usr/bin/python3
"""Writes sequences.safetensors beside this file: results for attention and recurrent layers that
nn.safetensors lacks.

PyTorch 2.15 computes the results, by its own functions where it has them: RNN, LSTM, GRU and
scaled_dot_product_attention.  Three results are formulas that this file transcribes, since PyTorch
has no such function: recurrence_own is a cell that the test has too, gruv3 is the formula of
Flux's GRUv3Cell, and attention_groups turns queries and keys by the published formula of rotary
positions.  The weights of attention_sizes are their formula, softmax of q k' / sqrt(d) + bias.

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

def suffixes(layers, directions):
    return [("" if k == 0 else f"_l{k}") + ("_reverse" if d else "")
            for k in range(layers) for d in range(directions)]


def stacked(kind, layers, directions, states=0, lengths=True, whole=True):
    """x, the states and the lengths -> all outputs and, if `whole`, the last states."""
    def f(p, x):
        own_bias = "bias_hidden" in p
        layer = getattr(torch.nn, kind)(x[0].shape[-1], 3, layers, batch_first=True,
                                        bidirectional=directions == 2)
        values = {}
        for s in suffixes(layers, directions):
            t = s if s.startswith("_l") else "_l0" + s
            values["weight_ih" + t] = p["weight_input" + s]
            values["weight_hh" + t] = p["weight_hidden" + s]
            values["bias_ih" + t] = p["bias" + s]
            values["bias_hh" + t] = (p["bias_hidden" + s] if own_bias else
                                     torch.zeros_like(p["bias" + s]))
        first = tuple(x[1:1 + states])
        first = None if not states else first if kind == "LSTM" else first[0]
        y = x[0]
        if lengths:
            y = torch.nn.utils.rnn.pack_padded_sequence(y, x[-1], True, enforce_sorted=False)
        y, last = torch.func.functional_call(layer, values, (y, first))
        if lengths:
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, True, total_length=x[0].shape[1])
        return row(y, *(last if kind == "LSTM" else [last])) if whole else y
    return f


def stacked_params(gates, layers, directions, own_bias=False):
    p = {}
    for i, s in enumerate(suffixes(layers, directions)):
        p["weight_input" + s] = draw(gates * 3, 2 if i < directions else 3 * directions)
        p["weight_hidden" + s] = draw(gates * 3, 3)
        p["bias" + s] = draw(gates * 3)
        if own_bias:
            p["bias_hidden" + s] = draw(gates * 3)
    return p


def gruv3(p, x):
    """The formula of Flux's GRUv3Cell."""
    y, h = [], x[1]
    (wr, wz, wn), (ur, uz, un) = p["weight_input"].chunk(3), p["weight_hidden"].chunk(3)
    br, bz, bn = p["bias"].chunk(3)
    for t in range(x[0].shape[1]):
        now = x[0][:, t]
        r = torch.sigmoid(now @ wr.T + h @ ur.T + br)
        z = torch.sigmoid(now @ wz.T + h @ uz.T + bz)
        n = torch.tanh(now @ wn.T + (r * h) @ un.T + bn)
        h = (1 - z) * n + z * h
        y.append(h)
    return row(torch.stack(y, 1), h)


LENGTHS = torch.tensor([2, 4, 1])
case("lstm_deep", stacked("LSTM", 2, 2, states=2), lambda: stacked_params(4, 2, 2),
     lambda: [draw(3, 4, 2), draw(4, 3, 3), draw(4, 3, 3), LENGTHS])
case("gru_deep", stacked("GRU", 2, 2), lambda: stacked_params(3, 2, 2, own_bias=True),
     lambda: [draw(3, 4, 2), LENGTHS])
case("rnn_deep", stacked("RNN", 3, 1, states=1, lengths=False),
     lambda: stacked_params(1, 3, 1), lambda: [draw(2, 4, 2), draw(3, 2, 3)])
case("rnn_both", stacked("RNN", 1, 2, lengths=False, whole=False),
     lambda: stacked_params(1, 1, 2), lambda: [draw(2, 4, 2)])
case("lstm_lengths", stacked("LSTM", 1, 1), lambda: stacked_params(4, 1, 1),
     lambda: [draw(3, 4, 2), LENGTHS])
case("gruv3", gruv3, lambda: stacked_params(3, 1, 1), lambda: [draw(2, 4, 2), draw(2, 3)])


def own_cell(p, x):
    """A cell of nobody: the output, a state and a second one of another size, by autograd."""
    h, m, y = torch.zeros(2, 3), torch.ones(2, 1), []
    for t in range(x[0].shape[1]):
        h = torch.tanh(x[0][:, t] @ p["cell.weight"].T + h * p["cell.gain"] * m)
        m = 0.5 * m + h.mean(1, keepdim=True)
        y.append(h * m)
    return row(torch.stack(y, 1), h, m)


case("recurrence_own", own_cell, lambda: {"cell.weight": draw(3, 2), "cell.gain": draw(3)},
     lambda: [draw(2, 4, 2)])

golden.write("sequences.safetensors", "make_golden_sequences.py with PyTorch 2.15")
