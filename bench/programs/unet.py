"""A U-Net finds circles in noisy pictures; the twin of unet.c.

unet.py [FILE]    writes the first weights to FILE, from which unet.c begins
"""
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE, PICTURES, BATCH, EPOCHS, WIDTH, DEPTH = 64, 128, 8, 6, 16, 3


def circles():
    """Pictures [PICTURES,1,SIDE,SIDE] of brighter circles under noise, and their masks."""
    i = torch.arange(PICTURES).view(-1, 1, 1, 1)
    row = torch.arange(SIDE).view(-1, 1)
    column = torch.arange(SIDE)
    inside = (row - 12 - i * 7 % 40) ** 2 + (column - 12 - i * 11 % 40) ** 2 < (6 + i % 9) ** 2
    number = (i * SIDE + row) * SIDE + column
    return 0.4 * inside + number * number % 1009 / 1009, inside.float()


def convolutions(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class Beside(nn.Module):
    """Layers whose result is put beside their input."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return torch.cat([self.layers(x), x], 1)


def unet(inputs, width, depth):
    """Convolutions around a smaller U-Net for pictures of half the size."""
    if depth == 0:
        return convolutions(inputs, width)
    return nn.Sequential(
        convolutions(inputs, width),
        Beside(
            nn.MaxPool2d(2),
            unet(width, 2 * width, depth - 1),
            nn.ConvTranspose2d(2 * width, width, 2, stride=2),
        ),
        convolutions(2 * width, width),
    )


def loss_of(scores, mask):
    p = torch.sigmoid(scores)
    dice = (2 * (p * mask).sum() + 1) / ((p * p).sum() + (mask * mask).sum() + 1)
    return F.binary_cross_entropy_with_logits(scores, mask) + 1 - dice


torch.set_num_threads(2)
torch.manual_seed(1)
model = nn.Sequential(unet(1, WIDTH, DEPTH), nn.Conv2d(WIDTH, 1, 1))
if len(sys.argv) > 1:
    torch.save(model.state_dict(), sys.argv[1])
loader = DataLoader(TensorDataset(*circles()), BATCH)
optimiser = torch.optim.Adam(model.parameters(), 1e-3)

losses, ends = [], []
for epoch in range(EPOCHS):
    for x, y in loader:
        loss = loss_of(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        ends.append(time.perf_counter())

took = np.median(np.diff(ends)[5:])
print(f"unet: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {1e3 * took:.2f} ms a step")
