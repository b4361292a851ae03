"""Exchanges models between PyTorch and Weber, for io_reference.c.

    torch_models.py both FOLDER

For each model of MODELS: reads the weights NAME.weber.safetensors that Weber wrote into the same
module of PyTorch, strictly, and compares its result with Weber's in NAME.data.safetensors.  Then
writes the weights of a new module to NAME.torch.safetensors, and its input and result to
NAME.result.safetensors.
"""
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn

torch.manual_seed(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 6), nn.GELU(approximate="tanh"), nn.LayerNorm(6))
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.encoder(x))


class Attention(nn.MultiheadAttention):
    def __init__(self, bias):
        super().__init__(8, 2, bias=bias, batch_first=True)

    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


class Tied(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Embedding(11, 4), nn.Linear(4, 11, bias=False))
        self[1].weight = self[0].weight


def recurrent(kind, own_bias=False, **more):
    module = kind(4, 3, batch_first=True, **more)
    if not own_bias and kind is nn.GRU:     # Weber's GRU has this bias only with .hidden_bias
        with torch.no_grad():
            module.bias_hh_l0[6:] = 0
    return module


# name: (module, shape of its input; None: class indices)
MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 7), nn.Tanh(),
                                  nn.Linear(7, 3)), (3, 5)),
    "cnn": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.ReLU(),
                                  nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Dropout(0.5),
                                  nn.Flatten(), nn.Linear(36, 3)), (2, 2, 6, 6)),
    "tokens": (lambda: nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8)), None),
    "tied": (Tied, None),
    "block": (Block, (3, 4)),
    "rnn": (lambda: recurrent(nn.RNN), (2, 5, 4)),
    "lstm": (lambda: recurrent(nn.LSTM), (2, 5, 4)),
    "gru": (lambda: recurrent(nn.GRU), (2, 5, 4)),
    "gru_of_two": (lambda: recurrent(nn.GRU, own_bias=True), (2, 5, 4)),
    "deep": (lambda: recurrent(nn.LSTM, num_layers=2, bidirectional=True), (2, 5, 4)),
    "line": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3, padding=1, groups=2), nn.ReLU(),
                                   nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
                                   nn.ConvTranspose1d(4, 2, 3, stride=2, output_padding=1)),
             (2, 2, 7)),
    "volume": (lambda: nn.Sequential(nn.Conv3d(2, 4, (2, 3, 1)), nn.GroupNorm(2, 4), nn.ReLU(),
                                     nn.ConvTranspose3d(4, 2, (1, 2, 2))), (2, 2, 4, 5, 3)),
    "image": (lambda: nn.Sequential(nn.ConvTranspose2d(2, 4, (2, 3), groups=2), nn.PixelShuffle(2),
                                    nn.RMSNorm(12), nn.Upsample(scale_factor=2)), (2, 2, 5, 4)),
    "tbag": (lambda: nn.EmbeddingBag(11, 4, mode="max"), None),
    "attention": (lambda: Attention(True), (2, 5, 8)),
    "attention_plain": (lambda: Attention(False), (2, 5, 8)),
}


def run(module, x):
    module.eval()
    with torch.no_grad():
        y = module(x.long() if x.dtype == torch.int32 else x)
    return y[0] if isinstance(y, tuple) else y


def both(folder):
    for name, (make, shape) in MODELS.items():
        path = os.path.join(folder, name)
        module = make()
        module.load_state_dict(load_file(path + ".weber.safetensors"), strict=True)
        data = load_file(path + ".data.safetensors")
        y = run(module, data["x"])
        if y.shape != data["y"].shape or not torch.allclose(y, data["y"], rtol=1e-4, atol=1e-5):
            sys.exit("%s: %s\n%s" % (name, y, data["y"]))
        module = make()
        for buffer in [b for n, b in module.named_buffers() if "running" in n]:
            buffer.uniform_(0.5, 2)
        for parameter in module.parameters():
            if parameter.ndim == 1 and not isinstance(module, nn.RNNBase):
                nn.init.uniform_(parameter, -1, 1)
        x = torch.randint(0, 11, (2, 5), dtype=torch.int32) if shape is None else torch.randn(shape)
        weights = {k: v.clone() for k, v in module.state_dict().items()}
        save_file(weights, path + ".torch.safetensors")
        save_file({"x": x, "y": run(module, x).contiguous()}, path + ".result.safetensors")
    print(len(MODELS))


if __name__ == "__main__":
    {"both": both}[sys.argv[1]](sys.argv[2])
