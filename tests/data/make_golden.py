#!/usr/bin/python3
"""Writes nn.safetensors beside this file: results of PyTorch 1.13 for layers, losses and rules.

golden.py describes the tensors.

The numbers are drawn from a fixed seed, and the result is in the repository: run this program only
to add cases.
"""
import numpy as np
import torch
import torch.nn.functional as F

from golden import case, draw, keep, write

torch.manual_seed(20)

# ---- layers --------------------------------------------------------------------------------------

def dense(act):
    return lambda p, x: act(F.linear(x[0], p["weight"], p.get("bias")))


wb = {"weight": draw(3, 4), "bias": draw(3)}
case("dense", dense(lambda y: y), wb, [draw(5, 4)])
case("dense_relu", dense(torch.relu), wb, [draw(5, 4)])
case("dense_tanh", dense(torch.tanh), wb, [draw(2, 3, 4)])
case("dense_gelu", dense(lambda y: F.gelu(y, approximate="tanh")), wb, [draw(5, 4)])
case("dense_no_bias", dense(torch.sigmoid), {"weight": draw(3, 4)}, [draw(5, 4)])


def conv(**k):
    return lambda p, x: F.conv2d(x[0], p["weight"], p.get("bias"), **k)


case("conv", conv(), {"weight": draw(4, 3, 3, 3), "bias": draw(4)}, [draw(2, 3, 6, 5)])
options = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}
case("conv_options", lambda p, x: torch.relu(conv(**options)(p, x)),
     {"weight": draw(4, 2, 3, 2), "bias": draw(4)}, [draw(2, 4, 7, 6)])
case("conv_same", conv(padding="same"), {"weight": draw(2, 3, 4, 3)}, [draw(1, 3, 5, 5)])
case("conv_flip", lambda p, x: F.conv2d(x[0], torch.flip(p["weight"], (2, 3)), p["bias"]),
     {"weight": draw(2, 1, 2, 3), "bias": draw(2)}, [draw(2, 1, 4, 5)])
case("maxpool", lambda p, x: F.max_pool2d(x[0], (2, 3), stride=(2, 1), padding=(1, 1)), {},
     [draw(2, 2, 5, 5)])
case("meanpool", lambda p, x: F.avg_pool2d(x[0], 2, stride=2, padding=1), {}, [draw(2, 2, 5, 5)])
case("globalmax", lambda p, x: x[0].amax((2, 3), keepdim=True), {}, [draw(2, 3, 4, 3)])
case("globalmean", lambda p, x: x[0].mean((2, 3), keepdim=True), {}, [draw(2, 3, 4, 3)])

stats = {"mean": draw(3), "var": draw(3).abs() + 0.5}
affine = {"scale": draw(3), "bias": draw(3)}


def batchnorm(train, after):
    mean, var = stats["mean"].clone(), stats["var"].clone()

    def f(p, x):
        y = F.batch_norm(x[0], mean, var, p["scale"], p["bias"], training=train, momentum=0.2,
                         eps=1e-4)
        after["mean"], after["var"] = mean, var
        return torch.relu(y)
    return f


for mode in ("train", "test"):
    after = {}
    case("batchnorm_" + mode, batchnorm(mode == "train", after), affine, [draw(4, 3, 2, 5)],
         lambda: after)
    for k, v in stats.items():
        keep(f"batchnorm_{mode}.param.{k}", v)
case("layernorm", lambda p, x: F.layer_norm(x[0], (3, 4), p["scale"], p["bias"], eps=1e-5),
     {"scale": draw(3, 4), "bias": draw(3, 4)}, [draw(5, 3, 4)])
case("embedding", lambda p, x: F.embedding(x[0].long(), p["weight"]), {"weight": draw(6, 3)},
     [torch.tensor([[0, 5, 2], [5, 5, 1]], dtype=torch.int32)])


def attention(heads, causal):
    def f(p, x):
        q, k, v = (x + x[:1] * 2)[:3] if len(x) == 1 else x
        def split(name, t):
            y = F.linear(t, p[name + ".weight"], p.get(name + ".bias"))
            return y.reshape(y.shape[0], y.shape[1], heads, -1).transpose(1, 2)
        q, k, v = split("q_proj", q), split("k_proj", k), split("v_proj", v)
        s = q @ k.transpose(2, 3) / np.sqrt(q.shape[3])
        if causal:
            s = s.masked_fill(~torch.ones(s.shape[2:], dtype=torch.bool).tril(), -np.inf)
        y = (s.softmax(3) @ v).transpose(1, 2)
        return F.linear(y.reshape(y.shape[0], y.shape[1], -1), p["out_proj.weight"],
                        p.get("out_proj.bias"))
    return f


def projections(dim, bias):
    p = {}
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        p[name + ".weight"] = draw(dim, dim, scale=0.5)
        if bias:
            p[name + ".bias"] = draw(dim, scale=0.5)
    return p


case("attention_self", attention(2, True), projections(4, False), [draw(2, 3, 4)])
case("attention_cross", attention(4, False), projections(8, True),
     [draw(2, 3, 8), draw(2, 5, 8), draw(2, 5, 8)])


def recurrent(kind, hidden, last):
    gates = {"RNN": 1, "LSTM": 4, "GRU": 3}[kind]

    def f(p, x):
        zeros = torch.zeros(1, x[0].shape[0], hidden)
        weights = [p["weight_input"], p["weight_hidden"], p["bias"], torch.zeros(gates * hidden)]
        run = {"RNN": torch._VF.rnn_tanh, "LSTM": torch._VF.lstm, "GRU": torch._VF.gru}[kind]
        state = (zeros, zeros) if kind == "LSTM" else zeros
        y = run(x[0], state, weights, True, 1, 0.0, False, False, True)[0]
        return y[:, -1] if last else y
    return f


for kind, gates in (("RNN", 1), ("LSTM", 4), ("GRU", 3)):
    for last in (False, True):
        case(kind.lower() + ("_last" if last else ""), recurrent(kind, 3, last),
             {"weight_input": draw(3 * gates, 2), "weight_hidden": draw(3 * gates, 3),
              "bias": draw(3 * gates)}, [draw(2, 4, 2)])
for kind, gates in (("RNN", 1), ("LSTM", 4), ("GRU", 3)):
    def cell(p, x, kind=kind, gates=gates):
        c = getattr(torch.nn, kind + "Cell")(2, 3)
        names = {"weight_ih": p["weight_input"], "weight_hh": p["weight_hidden"],
                 "bias_ih": p["bias"], "bias_hh": torch.zeros(3 * gates)}
        state = (x[1], x[2]) if kind == "LSTM" else x[1]
        y = torch.nn.utils.stateless.functional_call(c, names, (x[0], state))
        return y[0] if kind == "LSTM" else y
    case(kind.lower() + "_cell", cell,
         {"weight_input": draw(3 * gates, 2), "weight_hidden": draw(3 * gates, 3),
          "bias": draw(3 * gates)},
         [draw(4, 2)] + [draw(4, 3) for _ in range(2 if kind == "LSTM" else 1)])

# ---- losses of x and target, with the result y ---------------------------------------------------

eps = float(np.finfo(np.float32).eps)
soft = draw(4, 3).softmax(1).float().double()
target = draw(4, 3).softmax(1).float().double()
target[0] = torch.tensor([0.0, 1.0, 0.0])
p01 = draw(4, 3).sigmoid().float().double()
losses = {
    "mse": (draw(4, 3), lambda x, y: F.mse_loss(x, y)),
    "mae": (draw(4, 3), lambda x, y: F.l1_loss(x, y)),
    "huber": (draw(4, 3, scale=2), lambda x, y: F.huber_loss(x, y, delta=0.7)),
    "crossentropy": (soft, lambda x, y: -(y * (x + eps).log()).sum(1).mean()),
    "logitcrossentropy": (draw(4, 3, scale=3), lambda x, y: F.cross_entropy(x, y)),
    "binarycrossentropy": (
        p01, lambda x, y: (-y * (x + eps).log() - (1 - y) * (1 - x + eps).log()).mean()),
    "logitbinarycrossentropy": (
        draw(4, 3, scale=3), lambda x, y: F.binary_cross_entropy_with_logits(x, y)),
}
for name, (x, f) in losses.items():
    x = x.clone().requires_grad_()
    y = f(x, target)
    y.backward()
    keep(f"loss_{name}.x", x)
    keep(f"loss_{name}.target", target)
    keep(f"loss_{name}.y", y)
    keep(f"loss_{name}.grad", x.grad)

# ---- rules: five steps on two parameters with given gradients ------------------------------------

start = {"0": draw(3, 2), "1": draw(4)}
steps = [{k: draw(*v.shape, scale=3) for k, v in start.items()} for _ in range(5)]
for k in start:
    keep(f"rules.start.{k}", start[k])
    for i, g in enumerate(steps):
        keep(f"rules.gradient{i}.{k}", g[k])


def clip_norm(g, omega):
    n = np.sqrt(sum(float((v ** 2).sum()) for v in g.values()))
    return {k: v * min(omega / n, 1.0) for k, v in g.items()}


rules = {
    "Descent": (lambda p: torch.optim.SGD(p, lr=0.1), None),
    "Momentum": (lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), None),
    "Adam": (lambda p: torch.optim.Adam(p, lr=0.001), None),
    "AdamEps": (lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.9), eps=0.3), None),
    "AdamW": (lambda p: torch.optim.AdamW(p, lr=0.001, weight_decay=0.01), None),
    "WeightDecay": (lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=5e-4), None),
    "ClipGrad": (lambda p: torch.optim.SGD(p, lr=0.1),
                 lambda g: {k: v.clamp(-2, 2) for k, v in g.items()}),
    "ClipNorm": (lambda p: torch.optim.Adam(p, lr=0.01), lambda g: clip_norm(g, 5.0)),
}
for name, (make, change) in rules.items():
    p = {k: v.clone().requires_grad_() for k, v in start.items()}
    optimiser = make(list(p.values()))
    for i, g in enumerate(steps):
        g = change(g) if change else g
        for k in p:
            p[k].grad = g[k].clone()
        optimiser.step()
        for k in p:
            keep(f"rules.{name}.{i}.{k}", p[k])

write("nn.safetensors", "make_golden.py")
