"""A transformer encoder forecasts a series from windows over its past; the twin of time_series.c.

time_series.py [FILE]    writes the first weights to FILE, from which time_series.c begins
"""
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

LENGTH, PAST, FUTURE, STRIDE, BATCH, EPOCHS = 4096, 64, 8, 4, 32, 8
WIDTH, HEADS, LAYERS = 32, 4, 2


def series():
    """Two waves, the second of which grows and shrinks, and noise."""
    t = torch.arange(LENGTH)
    wave = (0.3 * t).sin() + (0.0173 * t).sin() * (0.9 * t).sin()
    return wave + 0.2 * (t * t % 1009) / 1009


class Forecaster(nn.Module):
    """The past [N,PAST] of a series -> its future [N,FUTURE]."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(1, WIDTH)
        self.place = nn.Parameter(0.1 * torch.randn(PAST, WIDTH))
        layers = [
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(LAYERS)
        ]
        self.encoder = nn.Sequential(*layers)
        self.head = nn.Linear(PAST * WIDTH, FUTURE)

    def forward(self, past):
        x = self.encoder(self.embed(past.unsqueeze(2)) + self.place)
        return self.head(x.flatten(1))


def loss_of(model, window):
    return F.mse_loss(model(window[:, :PAST]), window[:, PAST:])


torch.set_num_threads(2)
torch.manual_seed(1)
model = Forecaster()
if len(sys.argv) > 1:
    torch.save(model.state_dict(), sys.argv[1])
windows = series().unfold(0, PAST + FUTURE, STRIDE)
learn, test = windows.split([800, len(windows) - 800])
loader = DataLoader(learn, BATCH)
optimiser = torch.optim.AdamW(model.parameters(), 1e-3)

losses, ends = [], []
for epoch in range(EPOCHS):
    for window in loader:
        loss = loss_of(model, window)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        ends.append(time.perf_counter())

model.eval()
with torch.no_grad():
    later = loss_of(model, test)
took = np.median(np.diff(ends)[5:])
print(f"time_series: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {1e3 * took:.2f} ms a step")
print(f"on later windows: {later:.4f}")
