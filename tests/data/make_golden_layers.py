#!/usr/bin/python3
"""Writes layers.safetensors beside this file: results of PyTorch 2.15 for norms, layers of images,
embeddings and others that nn.safetensors lacks.

golden.py describes the tensors.  Each case is drawn from a seed of its own name, so a new case
changes no other one.
"""
import zlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import golden
from golden import draw, keep


def case(name, f, params, inputs, after=None):
    """params and inputs are functions, called after the seed is set."""
    torch.manual_seed(zlib.crc32(name.encode()))
    golden.case(name, f, params(), inputs(), after)


def norm_params(*shape):
    return lambda: {"scale": draw(*shape), "bias": draw(*shape)}


def nothing():
    return {}


# ---- norms ---------------------------------------------------------------------------------------

case("groupnorm", lambda p, x: torch.relu(F.group_norm(x[0], 2, p["scale"], p["bias"], eps=1e-3)),
     norm_params(6), lambda: [draw(3, 6, 4, 2)])
case("groupnorm_plain", lambda p, x: F.group_norm(x[0], 3), nothing, lambda: [draw(2, 6)])
case("instancenorm", lambda p, x: F.instance_norm(x[0]), nothing, lambda: [draw(2, 3, 4, 2)])
for mode in ("train", "test"):
    torch.manual_seed(7)
    stats = {"mean": draw(3), "var": draw(3).abs() + 0.5}
    after = {}

    def instance(p, x, mode=mode, after=after, stats=stats):
        mean, var = stats["mean"].clone(), stats["var"].clone()
        y = F.instance_norm(x[0], mean, var, p["scale"], p["bias"], use_input_stats=mode == "train",
                            momentum=0.2, eps=1e-4)
        after["mean"], after["var"] = mean, var
        return torch.tanh(y)

    case("instancenorm_" + mode, instance, norm_params(3), lambda: [draw(4, 3, 5)], lambda: after)
    for k, v in stats.items():
        keep(f"instancenorm_{mode}.param.{k}", v)
case("rmsnorm", lambda p, x: F.rms_norm(x[0], (3, 4), p["scale"], eps=1e-3),
     lambda: {"scale": draw(3, 4)}, lambda: [draw(5, 3, 4)])
case("rmsnorm_plain", lambda p, x: F.rms_norm(x[0], (4,), eps=2.0 ** -23), nothing,
     lambda: [draw(5, 4, scale=1e-3)])

# ---- others --------------------------------------------------------------------------------------

case("scale", lambda p, x: torch.relu(x[0] * p["scale"] + p["bias"]), norm_params(3, 4),
     lambda: [draw(2, 3, 4)])
case("bilinear", lambda p, x: torch.tanh(F.bilinear(x[0], x[1], p["weight"], p["bias"])),
     lambda: {"weight": draw(2, 3, 4), "bias": draw(2)}, lambda: [draw(5, 2, 3), draw(5, 2, 4)])
case("bilinear_one", lambda p, x: F.bilinear(x[0], x[0], p["weight"]),
     lambda: {"weight": draw(2, 3, 3)}, lambda: [draw(5, 3)])
case("maxout", lambda p, x: torch.stack(
    [F.linear(x[0], p[f"layers.{i}.weight"], p[f"layers.{i}.bias"]) for i in range(3)]).amax(0),
     lambda: {f"layers.{i}.{k}": draw(*s) for i in range(3)
              for k, s in (("weight", (2, 4)), ("bias", (2,)))}, lambda: [draw(5, 4)])
case("pixelshuffle", lambda p, x: F.pixel_shuffle(x[0], 3), nothing, lambda: [draw(2, 18, 2, 3)])
case("depthwise", lambda p, x: F.conv2d(x[0], p["weight"], p["bias"], groups=3),
     lambda: {"weight": draw(6, 1, 2, 3), "bias": draw(6)}, lambda: [draw(2, 3, 4, 5)])


def index(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


case("embedding_padding", lambda p, x: F.embedding(x[0].long(), p["weight"], padding_idx=2),
     lambda: {"weight": draw(6, 3)}, lambda: [index([0, 5, 2], [2, 5, 1])])
for mode in ("mean", "sum", "max"):
    def bag(p, x, mode=mode):
        return F.embedding_bag(x[0].long(), p["weight"], x[1].long() if len(x) == 2 else None,
                               mode=mode)
    case("bag_" + mode, bag, lambda: {"weight": draw(6, 3)},
         lambda: [index([0, 5, 2], [2, 5, 1])])
    case(f"bag_{mode}_offsets", bag, lambda: {"weight": draw(6, 3)},
         lambda: [index(0, 5, 2, 2, 1), index(0, 0, 2, 5)])

# ---- signals in space ----------------------------------------------------------------------------

NAMES = {3: "linear", 4: "bilinear", 5: "trilinear"}


def resized(sizes, mode, corners=None):
    def f(p, x):
        name = NAMES[x[0].dim()] if mode == "linear" else mode
        return F.interpolate(x[0], size=sizes, mode=name, align_corners=corners)
    return f


case("nearest_1d", resized([9], "nearest"), nothing, lambda: [draw(2, 3, 4)])
case("nearest_2d", resized([6, 4], "nearest"), nothing, lambda: [draw(2, 3, 3, 4)])
case("nearest_3d", resized([4, 3, 5], "nearest"), nothing, lambda: [draw(1, 2, 2, 3, 4)])
for mode, corners in (("corners", True), ("centres", False)):
    case(f"linear_1d_{mode}", resized([9], "linear", corners), nothing, lambda: [draw(2, 3, 4)])
    case(f"linear_2d_{mode}", resized([6, 5], "linear", corners), nothing,
         lambda: [draw(2, 3, 3, 4)])
    case(f"linear_3d_{mode}", resized([4, 5, 2], "linear", corners), nothing,
         lambda: [draw(1, 2, 2, 3, 4)])
case("adaptive_mean_1d", lambda p, x: F.adaptive_avg_pool1d(x[0], 3), nothing,
     lambda: [draw(2, 3, 7)])
case("adaptive_mean_2d", lambda p, x: F.adaptive_avg_pool2d(x[0], (3, 2)), nothing,
     lambda: [draw(2, 3, 7, 4)])
case("adaptive_mean_3d", lambda p, x: F.adaptive_avg_pool3d(x[0], (2, 3, 4)), nothing,
     lambda: [draw(1, 2, 3, 4, 3)])
case("adaptive_max_1d", lambda p, x: F.adaptive_max_pool1d(x[0], 3), nothing,
     lambda: [draw(2, 3, 7)])
case("adaptive_max_2d", lambda p, x: F.adaptive_max_pool2d(x[0], (3, 2)), nothing,
     lambda: [draw(2, 3, 7, 4)])
case("adaptive_max_3d", lambda p, x: F.adaptive_max_pool3d(x[0], (2, 3, 4)), nothing,
     lambda: [draw(1, 2, 3, 4, 3)])
case("adaptive_fixed", lambda p, x: F.avg_pool2d(x[0], (3, 2), stride=(2, 2)), nothing,
     lambda: [draw(2, 3, 7, 4)])



def weights(*shape, bias=4):
    return lambda: {"weight": draw(*shape), "bias": draw(bias)}


case("conv1d", lambda p, x: F.conv1d(x[0], p["weight"], p["bias"]), weights(4, 3, 3),
     lambda: [draw(2, 3, 6)])
case("conv1d_options", lambda p, x: torch.relu(
    F.conv1d(F.pad(x[0], (2, 1)), p["weight"], p["bias"], stride=2, dilation=2, groups=2)),
     weights(4, 2, 3), lambda: [draw(2, 4, 9)])
case("conv3d", lambda p, x: F.conv3d(x[0], p["weight"], p["bias"]), weights(4, 3, 2, 3, 2),
     lambda: [draw(2, 3, 4, 5, 3)])
case("conv3d_options", lambda p, x: F.conv3d(
    x[0], p["weight"], p["bias"], stride=(2, 1, 3), padding=(1, 2, 0), dilation=(2, 1, 2),
    groups=2), weights(4, 2, 3, 2, 2), lambda: [draw(2, 4, 6, 3, 7)])
case("conv_transpose1d", lambda p, x: F.conv_transpose1d(
    x[0], p["weight"], p["bias"], stride=3, padding=1, output_padding=2, groups=2),
     weights(4, 2, 3), lambda: [draw(2, 4, 5)])
case("conv_transpose3d", lambda p, x: F.conv_transpose3d(
    x[0], p["weight"], p["bias"], stride=(2, 1, 3), padding=(1, 0, 1), output_padding=(1, 0, 2),
    dilation=(2, 1, 1), groups=2), weights(4, 2, 3, 2, 2), lambda: [draw(2, 4, 3, 3, 2)])
for name, mode in (("reflect", "reflect"), ("replicate", "replicate"), ("circular", "circular")):
    case("conv_" + name, lambda p, x, mode=mode: F.conv2d(
        F.pad(x[0], (1, 0, 2, 1), mode=mode), p["weight"], p["bias"]), weights(4, 2, 3, 2),
         lambda: [draw(1, 2, 4, 3)])
case("maxpool1d", lambda p, x: F.max_pool1d(x[0], 3, stride=2, padding=1), nothing,
     lambda: [draw(2, 2, 7)])
case("meanpool1d", lambda p, x: F.avg_pool1d(x[0], 3, stride=2, padding=1), nothing,
     lambda: [draw(2, 2, 7)])
case("maxpool3d", lambda p, x: F.max_pool3d(x[0], (3, 2, 2), stride=(1, 2, 1), padding=(1, 0, 1)),
     nothing, lambda: [draw(2, 2, 4, 5, 3)])
case("meanpool3d", lambda p, x: F.avg_pool3d(x[0], (3, 2, 2), stride=(1, 2, 1), padding=(1, 0, 1)),
     nothing, lambda: [draw(2, 2, 4, 5, 3)])
case("unfold", lambda p, x: F.unfold(x[0], (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)),
     nothing, lambda: [draw(2, 3, 6, 5)])
case("fold", lambda p, x: F.fold(x[0], (6, 5), (3, 2), dilation=(1, 2), padding=(1, 0),
                                 stride=(2, 1)), nothing, lambda: [draw(2, 12, 9)])
case("lpnormpool", lambda p, x: F.lp_pool2d(x[0], 3, (2, 3), stride=(1, 2)), nothing,
     lambda: [draw(2, 2, 5, 7).abs() + 0.25])


# ---- WeightNorm ----------------------------------------------------------------------------------

def normed(module, names, call, dim=0):
    """A case of PyTorch's weight_norm of `module`; names is PyTorch's name of each parameter."""
    for path in names.values():
        if path.endswith("original0"):
            parametrizations.weight_norm(module, path.split(".")[-2], dim)
    return lambda p, x: call(lambda *inputs: torch.func.functional_call(
        module, {names[k]: v for k, v in p.items()}, inputs), x)


ONE = {"layer.weight": "parametrizations.weight.original1", "layer.bias": "bias",
       "g": "parametrizations.weight.original0"}


def normed_params(weight, g, bias=None):
    return lambda: {"layer.weight": draw(*weight), "g": draw(*g) if g else draw(1)[0]} | (
        {"layer.bias": draw(*bias)} if bias else {})


def one(module, dim=0):
    return normed(module, ONE, lambda f, x: f(x[0]), dim)


case("weightnorm", one(nn.Linear(4, 3)), normed_params((3, 4), (3, 1), (3,)), lambda: [draw(2, 4)])
case("weightnorm_dim", one(nn.Linear(4, 3), 1), normed_params((3, 4), (1, 4), (3,)),
     lambda: [draw(2, 4)])
case("weightnorm_whole", one(nn.Linear(4, 3), None), normed_params((3, 4), (), (3,)),
     lambda: [draw(2, 4)])
case("weightnorm_conv", one(nn.Conv2d(4, 6, (3, 2), groups=2)),
     normed_params((6, 2, 3, 2), (6, 1, 1, 1), (6,)), lambda: [draw(2, 4, 5, 4)])
case("weightnorm_transpose", one(nn.ConvTranspose1d(3, 4, 3), 1),
     normed_params((3, 4, 3), (1, 4, 1), (4,)), lambda: [draw(2, 3, 5)])
case("weightnorm_embedding", one(nn.Embedding(5, 3)), normed_params((5, 3), (5, 1)),
     lambda: [torch.tensor([[0, 4, 1], [1, 1, 3]])])


def over_steps(f, x):
    y, states = [], (x[1], x[2])
    for t in range(x[0].shape[1]):
        states = f(x[0][:, t], states)
        y.append(states[0])
    return torch.stack(y, 1)


class Cell(nn.LSTMCell):
    """With one bias, as Weber's."""
    def __init__(self):
        super().__init__(2, 3)
        self.bias_hh = nn.Parameter(torch.zeros(12), requires_grad=False)


case("weightnorm_lstm", normed(Cell(), {
    "cell.layer.layer.weight_input": "parametrizations.weight_ih.original1",
    "cell.layer.layer.weight_hidden": "parametrizations.weight_hh.original1",
    "cell.layer.layer.bias": "bias_ih",
    "cell.layer.g": "parametrizations.weight_ih.original0",
    "cell.g": "parametrizations.weight_hh.original0"}, over_steps),
     lambda: {"cell.layer.layer.weight_input": draw(12, 2),
              "cell.layer.layer.weight_hidden": draw(12, 3), "cell.layer.layer.bias": draw(12),
              "cell.layer.g": draw(12, 1), "cell.g": draw(12, 1)},
     lambda: [draw(2, 4, 2), draw(2, 3), draw(2, 3)])

golden.write("layers.safetensors", "make_golden_layers.py")
