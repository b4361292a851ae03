"""A vision transformer learns ten kinds of waves; the twin of vit.c.

vit.py [FILE]    writes the first weights to FILE, from which vit.c begins
"""
import math
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIDE, PATCH, PICTURES, BATCH, EPOCHS = 10, 32, 4, 320, 16, 5
WIDTH, HEADS, DEPTH, TOKENS, STEPS, WARMUP = 128, 4, 4, (SIDE // PATCH) ** 2, 100, 20


def waves():
    """Pictures [PICTURES,3,SIDE,SIDE] of waves under noise; the direction is the class."""
    i = torch.arange(PICTURES).view(-1, 1, 1, 1)
    channel = torch.arange(3).view(-1, 1, 1)
    row = torch.arange(SIDE).view(-1, 1)
    column = torch.arange(SIDE)
    angle = math.pi * (i % CLASSES) / CLASSES
    along = torch.cos(angle) * column + torch.sin(angle) * row
    number = ((i * 3 + channel) * SIDE + row) * SIDE + column
    noise = 2 * (number * number % 1009 / 1009) - 1
    return torch.sin(0.8 * along + channel + 0.1 * i) + noise, torch.arange(PICTURES) % CLASSES


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(TOKENS + 1, WIDTH))
        self.blocks = nn.Sequential(*[
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(DEPTH)
        ])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x)[:, 0]))


torch.set_num_threads(2)
torch.manual_seed(1)
model = VisionTransformer()
if len(sys.argv) > 1:
    torch.save(model.state_dict(), sys.argv[1])
loader = DataLoader(TensorDataset(*waves()), BATCH)
optimiser = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
schedule = SequentialLR(
    optimiser,
    [LinearLR(optimiser, 0.1, total_iters=WARMUP), CosineAnnealingLR(optimiser, STEPS - WARMUP)],
    [WARMUP],
)

losses, ends = [], []
for epoch in range(EPOCHS):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
        ends.append(time.perf_counter())

took = np.median(np.diff(ends)[5:])
print(f"vit: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {1e3 * took:.2f} ms a step")
