"""Models that PyTorch exports, as cases for nodes.c, and their table in docs/onnx.md.

    exports.py write FOLDER    writes the cases into the folder, if it does not have them
    exports.py check FOLDER    compares the table with the results of nodes.c, FOLDER/results.txt
    exports.py page FOLDER     replaces the table

The models have the forms of those that people export, random weights and small sizes.  Each is
exported with other sizes of batch and length than those of its case, by the exporter of TorchScript
(dynamo=False), and where the package onnxscript is installed by that of torch.export.  A case has
PyTorch's outputs; and, if the first input is floating, the gradient of the mean of the squared
first output with respect to it.  See cases.py for the folder and page.py for the table.
"""
import importlib.util
import io
import logging
import math
import warnings
from importlib.metadata import version

import torch
from torch import nn
from torch.nn import functional as F

import cases
import page

BATCH, LENGTH = {0: "batch"}, {0: "batch", 1: "length"}


def images(channels=3, size=32):
    return [BATCH], lambda batch, length: (torch.randn(batch, channels, size, size),)


def sequences(features):
    return [LENGTH], lambda batch, length: (torch.randn(batch, length, features),)


def tokens(count):
    return [LENGTH], lambda batch, length: (torch.randint(0, count, (batch, length)),)


# ---- networks for images -------------------------------------------------------------------------

def conv_norm(into, out, kernel=3, activation=nn.ReLU, **more):
    layers = [nn.Conv2d(into, out, kernel, padding=kernel // 2, bias=False, **more),
              nn.BatchNorm2d(out)]
    return nn.Sequential(*layers, *([activation()] if activation else []))


class Residual(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.inner = nn.Sequential(conv_norm(into, out, stride=stride),
                                   conv_norm(out, out, activation=None))
        self.outer = nn.Identity()
        if stride != 1 or into != out:
            self.outer = conv_norm(into, out, 1, None, stride=stride)

    def forward(self, x):
        return F.relu(self.inner(x) + self.outer(x))


def resnet():
    layers = [conv_norm(3, 16, 7, stride=2), nn.MaxPool2d(3, 2, 1)]
    for into, out, stride in ((16, 16, 1), (16, 24, 2), (24, 32, 2), (32, 48, 2)):
        layers += [Residual(into, out, stride), Residual(out, out, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10))


class Squeeze(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)

    def forward(self, x):
        scale = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.up(F.relu(self.down(scale))))


class Inverted(nn.Module):
    def __init__(self, into, out, stride, activation, squeeze):
        super().__init__()
        inner = into * 4
        self.skips = stride == 1 and into == out
        self.layers = nn.Sequential(
            conv_norm(into, inner, 1, activation),
            conv_norm(inner, inner, 3, activation, stride=stride, groups=inner),
            Squeeze(inner) if squeeze else nn.Identity(), conv_norm(inner, out, 1, None))

    def forward(self, x):
        return x + self.layers(x) if self.skips else self.layers(x)


def mobilenet(activation, squeeze):
    layers = [conv_norm(3, 8, 3, activation, stride=2)]
    for into, out, stride in ((8, 12, 1), (12, 12, 1), (12, 16, 2), (16, 16, 1)):
        layers.append(Inverted(into, out, stride, activation, squeeze))
    layers += [conv_norm(16, 40, 1, activation), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(40, 10))


def double_conv(into, out, norm):
    return nn.Sequential(nn.Conv2d(into, out, 3, padding=1), norm(out), nn.LeakyReLU(0.1),
                         nn.Conv2d(out, out, 3, padding=1), norm(out), nn.LeakyReLU(0.1))


class UNet(nn.Module):
    """Skip connections; one step up is a transposed convolution, the other an interpolation."""

    def __init__(self, norm, mode):
        super().__init__()
        self.mode = mode
        self.down1, self.down2 = double_conv(3, 8, norm), double_conv(8, 12, norm)
        self.middle = double_conv(12, 16, norm)
        self.up2, self.up1 = nn.ConvTranspose2d(16, 12, 2, 2), nn.Conv2d(12, 8, 1)
        self.join2, self.join1 = double_conv(24, 12, norm), double_conv(16, 8, norm)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.join2(torch.cat([self.up2(c), b], 1))
        corners = False if self.mode == "bilinear" else None
        wide = F.interpolate(b, scale_factor=2.0, mode=self.mode, align_corners=corners)
        return torch.sigmoid(self.out(self.join1(torch.cat([self.up1(wide), a], 1))))


class VAE(nn.Module):
    """The noise is an input; gives the picture, the means and the logarithms of the variances."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 16, 3, 2, 1),
                                     nn.ELU(), nn.Flatten())
        self.mean, self.spread = nn.Linear(256, 6), nn.Linear(256, 6)
        self.widen = nn.Linear(6, 256)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1), nn.SELU(),
            nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Sigmoid())

    def forward(self, x, noise):
        h = self.encoder(x)
        mean, spread = self.mean(h), self.spread(h)
        z = mean + noise * torch.exp(0.5 * spread)
        return self.decoder(self.widen(z).view(-1, 16, 4, 4)), mean, spread


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 24, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 24))
        self.places = nn.Parameter(torch.randn(1, 17, 24))
        layer = nn.TransformerEncoderLayer(24, 3, 48, 0.1, "gelu", batch_first=True,
                                           norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.encoder(x))[:, 0])


# ---- networks for texts --------------------------------------------------------------------------

class Attention(nn.Module):
    """Attention of four heads, of 32 features, written out or as one function"""

    def __init__(self, causal, fused):
        super().__init__()
        self.causal, self.fused = causal, fused
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.register_buffer("keep", torch.tril(torch.ones(64, 64, dtype=torch.bool)))

    def forward(self, x, bias=None):
        n, t, _ = x.size()
        q, k, v = (part.view(n, t, 4, 8).transpose(1, 2) for part in self.qkv(x).split(32, 2))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(8)
            if self.causal:
                lowest = torch.finfo(scores.dtype).min
                scores = scores.masked_fill(~self.keep[:t, :t], lowest)
            scores = scores if bias is None else scores + bias
            y = torch.softmax(scores, -1) @ v
        return self.out(y.transpose(1, 2).reshape(n, t, 32))


class Block(nn.Module):
    def __init__(self, causal, fused, activation):
        super().__init__()
        self.attention = Attention(causal, fused)
        self.norm1, self.norm2 = nn.LayerNorm(32, 1e-6), nn.LayerNorm(32, 1e-6)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(approximate=activation),
                                 nn.Linear(64, 32), nn.Dropout(0.1))


class BertBlock(Block):
    def forward(self, x, bias):
        x = self.norm1(x + self.attention(x, bias))
        return self.norm2(x + self.mlp(x))


class BERT(nn.Module):
    """Token numbers and a mask of 0 and 1; gives all states and the pooled first one."""

    def __init__(self, fused):
        super().__init__()
        self.words, self.kinds = nn.Embedding(50, 32, padding_idx=0), nn.Embedding(2, 32)
        self.places, self.norm = nn.Embedding(64, 32), nn.LayerNorm(32, 1e-12)
        self.register_buffer("numbers", torch.arange(64).unsqueeze(0))
        self.blocks = nn.ModuleList(BertBlock(False, fused, "none") for _ in range(2))
        self.pool = nn.Linear(32, 32)

    def forward(self, ids, mask):
        places = self.numbers[:, :ids.size(1)]
        x = self.words(ids) + self.kinds(torch.zeros_like(ids)) + self.places(places)
        x = self.norm(x)
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for block in self.blocks:
            x = block(x, bias)
        return x, torch.tanh(self.pool(x[:, 0]))


def bert_inputs(batch, length):
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length - 2:] = 0
    return torch.randint(0, 50, (batch, length)), mask


class GPTBlock(Block):
    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.blocks = nn.ModuleList(GPTBlock(True, fused, "tanh") for _ in range(2))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 50, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.size(1), device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# ---- recurrent networks, sounds, others ----------------------------------------------------------

class Recurrent(nn.Module):
    """Gives the output of each step and the last states."""

    def __init__(self, kind, **more):
        super().__init__()
        self.cells = kind(6, 8, batch_first=True, **more)
        self.head = nn.Linear(16 if more.get("bidirectional") else 8, 4)

    def forward(self, x):
        y, states = self.cells(x)
        return (self.head(y), *(states if isinstance(states, tuple) else (states,)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.cells = nn.Embedding(50, 6), nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, ids, h, c):
        y, (h, c) = self.cells(self.words(ids), (h, c))
        return F.log_softmax(self.head(y), -1), h, c


def filters(bands, bins):
    """Triangles over the bins of a spectrum, such as those of the mel scale"""
    centres = torch.linspace(0, 1, bands + 2) ** 2 * (bins - 1)
    at = torch.arange(bins)[:, None]
    rising = (at - centres[:-2]) / (centres[1:-1] - centres[:-2]).clamp(min=1)
    falling = (centres[2:] - at) / (centres[2:] - centres[1:-1]).clamp(min=1)
    return torch.minimum(rising, falling).clamp(min=0)


class Sound(nn.Module):
    """Spectrum, mel bands, logarithm, mean and deviation, then two convolutions"""

    def __init__(self, by_convolution):
        super().__init__()
        self.by_convolution = by_convolution
        window = torch.hann_window(64)
        angle = 2 * math.pi * torch.outer(torch.arange(33), torch.arange(64)) / 64
        waves = torch.cat([torch.cos(angle), -torch.sin(angle)]) * window
        self.register_buffer("window", window)
        self.register_buffer("waves", waves[:, None])
        self.register_buffer("bands", filters(12, 33))
        self.layers = nn.Sequential(nn.Conv1d(12, 16, 3, padding=1), nn.SiLU(),
                                    nn.Conv1d(16, 8, 3, 2, padding=1), nn.BatchNorm1d(8))

    def forward(self, x):
        if self.by_convolution:
            real, imaginary = F.conv1d(x[:, None], self.waves, stride=16).chunk(2, 1)
        else:
            y = torch.stft(x, 64, 16, window=self.window, return_complex=False)
            real, imaginary = y[..., 0], y[..., 1]
        power = (real ** 2 + imaginary ** 2).transpose(1, 2)
        mel = torch.log(torch.clamp(power @ self.bands, min=0.1)).transpose(1, 2)
        mel = (mel - mel.mean(2, keepdim=True)) / (mel.std(2, keepdim=True) + 1e-3)
        return self.layers(mel)


def sounds():
    return [LENGTH], lambda batch, length: (torch.randn(batch, 64 * length),)


class Looping(nn.Module):
    """A loop and a condition that TorchScript keeps, as Loop and If"""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(self.layer(x))
        if x.dim() == 2:
            x = x * 2
        else:
            x = x.sum(1)
        return x


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(),
                         nn.Linear(16, 3), nn.Softmax(-1))


def small_inputs():
    return [BATCH], lambda batch, length: (torch.randn(batch, 8),)


def states(batch, length):
    return (torch.randint(0, 50, (batch, length)), torch.randn(1, batch, 8),
            torch.randn(1, batch, 8))


# name: (model, (dynamic axes, inputs), opsets of the exporter of TorchScript)
MODELS = {
    "mlp": (mlp, small_inputs(), (9, 11, 13, 17, 20)),
    "resnet": (resnet, images(), (9, 11, 13, 17, 20)),
    "mobilenetv2": (lambda: mobilenet(nn.ReLU6, False), images(), (9, 11, 17)),
    "mobilenetv3": (lambda: mobilenet(nn.Hardswish, True), images(), (11, 17)),
    "unet_batch": (lambda: UNet(nn.BatchNorm2d, "nearest"), images(size=16), (9, 11, 18)),
    "unet_instance": (lambda: UNet(lambda n: nn.InstanceNorm2d(n, affine=True), "bilinear"),
                      images(size=16), (11, 17)),
    "unet_group": (lambda: UNet(lambda n: nn.GroupNorm(4, n), "nearest"), images(size=16), (17,)),
    "vae": (VAE, ([BATCH, BATCH], lambda batch, length: (torch.rand(batch, 1, 16, 16),
                                                         torch.randn(batch, 6))), (9, 17)),
    "vit": (ViT, images(), (14, 17, 20)),
    "bert": (lambda: BERT(False), ([LENGTH, LENGTH], bert_inputs), (11, 14, 17)),
    "bert_fused": (lambda: BERT(True), ([LENGTH, LENGTH], bert_inputs), (17,)),
    "gpt2": (lambda: GPT(False), tokens(50), (11, 13, 17)),
    "gpt2_fused": (lambda: GPT(True), tokens(50), (17, 20)),
    "lstm": (lambda: Recurrent(nn.LSTM), sequences(6), (9, 14, 17)),
    "lstm_both_ways": (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True),
                       sequences(6), (17,)),
    "lstm_tagger": (Tagger, ([LENGTH, {1: "batch"}, {1: "batch"}], states), (17,)),
    "gru": (lambda: Recurrent(nn.GRU, num_layers=2), sequences(6), (9, 17)),
    "rnn": (lambda: Recurrent(nn.RNN, bidirectional=True), sequences(6), (17,)),
    "sound_stft": (lambda: Sound(False), sounds(), (17,)),
    "sound_conv": (lambda: Sound(True), sounds(), (13, 17)),
    "scripted": (lambda: torch.jit.script(Looping()), small_inputs(), (13, 17)),
}
EXTERNAL = ("resnet-17",)                       # with its weights in a file of their own
UNROLLED = ("rnn",)                             # torch.export writes each step, of a fixed length


# ---- exporting -----------------------------------------------------------------------------------

def prepare(model):
    """Gives statistics and parameters that begin as 0 or 1 random values; sets test mode."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and (tensor == tensor.flatten()[0]).all():
            low, high = (0.5, 1.5) if name.endswith(("weight", "var")) else (-0.5, 0.5)
            nn.init.uniform_(tensor, low, high)
    return model.eval()


def names(prefix, n):
    return [f"{prefix}{i}" for i in range(n)]


def torchscript(model, axes, inputs, outputs, opset):
    """The bytes of the export.  `outputs` are named, with a dynamic batch."""
    into, out, file = names("x", len(inputs)), names("y", outputs), io.BytesIO()
    torch.onnx.export(model, inputs, file, dynamo=False, opset_version=opset, input_names=into,
                      output_names=out, dynamic_axes=dict(zip(into, axes)))
    return file.getvalue()


def by_dynamo(model, axes, inputs, outputs):
    shapes = tuple({axis: torch.export.Dim(name) for axis, name in each.items()} for each in axes)
    program = torch.onnx.export(model, inputs, dynamo=True, dynamic_shapes=shapes, verbose=False,
                                input_names=names("x", len(inputs)),
                                output_names=names("y", outputs))
    return program.model_proto.SerializeToString()


def add(suite, name, group, model, exported, inputs):
    """A case: the outputs of PyTorch, and the gradient of the first input"""
    floating = inputs[0].is_floating_point()
    first, *others = (value.clone() for value in inputs)
    results = model(first.requires_grad_(floating), *others)
    results = results if isinstance(results, tuple) else (results,)
    grad = torch.autograd.grad((results[0] ** 2).mean(), first)[0].numpy() if floating else None
    values = [value.detach().numpy() for value in results]
    least = min(float(abs(value).max()) for value in values)
    suite.add(name, group, exported, [value.numpy() for value in inputs], values, rtol=1e-4,
              atol=1e-4 * min(1.0, least), flags="t", grad=grad, external=name in EXTERNAL)


def export_all(suite, dynamo):
    for name, (make, (axes, draw), opsets) in MODELS.items():
        torch.manual_seed(len(name))
        model = prepare(make())
        sample, inputs = draw(2, 9), draw(3, 14)
        with torch.no_grad():
            results = model(*sample)
        outputs = len(results) if isinstance(results, tuple) else 1
        for opset in opsets:
            exported = torchscript(model, axes, sample, outputs, opset)
            add(suite, f"{name}-{opset}", f"TorchScript, opset {opset}", model, exported, inputs)
        if dynamo and not isinstance(model, torch.jit.ScriptModule):
            if name in UNROLLED:
                inputs = draw(3, 9)
            exported = by_dynamo(model, axes, sample, outputs)
            add(suite, f"{name}-dynamo", "torch.export", model, exported, inputs)


def write(folder):
    dynamo = importlib.util.find_spec("onnxscript") is not None
    script = f" and onnxscript {version('onnxscript')}" if dynamo else " without onnxscript"
    suite = cases.Suite(folder, f"PyTorch {torch.__version__.partition('+')[0]}{script}", __file__)
    if suite.made:
        return
    torch.backends.mha.set_fastpath_enabled(False)  # one function, which is not exported
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    export_all(suite, dynamo)
    suite.end()


if __name__ == "__main__":
    page.run(write, "exports")
