"""A residual network learns the angles of stripes; then its frozen body gets a new head, which
learns their widths; the twin of fine_tune.c.

fine_tune.py [FILE]    writes the first weights to FILE, from which fine_tune.c begins
"""
import math
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE, PICTURES, BATCH, EPOCHS, ANGLES, WIDTHS = 32, 384, 32, 4, 4, 3


def stripes():
    """Noisy pictures [PICTURES,1,SIDE,SIDE] of stripes, and the classes of angle and width."""
    i = torch.arange(PICTURES).view(-1, 1, 1, 1)
    angle, width = i % ANGLES, i // ANGLES % WIDTHS
    turn = math.pi * angle.double() / ANGLES
    row = torch.arange(SIDE).view(-1, 1)
    column = torch.arange(SIDE)
    place = turn.cos() * column + turn.sin() * row
    number = (i * SIDE + row) * SIDE + column
    noise = number * number % 1009 / 1009
    pictures = (2 * math.pi * place / (4 + 3 * width) + i).sin().float() + noise
    return pictures, angle.flatten(), width.flatten()


class Sum(nn.Module):
    """The sum of the results of layers."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return sum(layer(x) for layer in self.layers)


def block(inputs, outputs):
    """A residual block, which halves the size of pictures."""
    return nn.Sequential(
        Sum(
            nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
            ),
            nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=2, bias=False),
                nn.BatchNorm2d(outputs),
            ),
        ),
        nn.ReLU(),
    )


def train(name, model, optimiser, loader):
    losses, ends = [], []
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            ends.append(time.perf_counter())
    took = np.median(np.diff(ends)[5:])
    print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {1e3 * took:.2f} ms a step")


torch.set_num_threads(2)
torch.manual_seed(1)
body = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    block(16, 32),
    block(32, 64),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
)
model = nn.Sequential(body, nn.Linear(64, ANGLES))
tuned = nn.Sequential(body, nn.Linear(64, WIDTHS))
if len(sys.argv) > 1:
    torch.save(nn.ModuleDict({"model": model, "head": tuned[1]}).state_dict(), sys.argv[1])
pictures, angle, width = stripes()
angles = DataLoader(TensorDataset(pictures, angle), BATCH)
widths = DataLoader(TensorDataset(pictures, width), BATCH)

train("train", model, torch.optim.Adam(model.parameters(), 1e-3), angles)
body.requires_grad_(False).eval()
train("fine_tune", tuned, torch.optim.Adam(tuned[1].parameters(), 1e-2), widths)
with torch.no_grad():
    right = (tuned(pictures).argmax(1) == width).float().mean()
print(f"{100 * right:.1f} % of the widths are right")
