"""A variational autoencoder of pictures of digits; the twin of vae.c.

vae.py [FILE]    writes the first weights to FILE, from which vae.c begins
"""
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE, PICTURES, BATCH, EPOCHS, LATENT = 28, 1280, 64, 6, 16

# Row, column, height and width of the seven segments, and the segments of each digit.
SEGMENTS = [
    (0, 0, 2, 10), (0, 8, 9, 2), (8, 8, 9, 2), (15, 0, 2, 10), (8, 0, 9, 2), (0, 0, 9, 2),
    (7, 0, 2, 10),
]
DIGITS = [0x3F, 0x06, 0x5B, 0x4F, 0x66, 0x6D, 0x7D, 0x07, 0x7F, 0x6F]


def digits():
    """Digits [PICTURES,1,SIDE,SIDE] of seven segments at different places, in 0..1."""
    pictures = torch.zeros(PICTURES, 1, SIDE, SIDE)
    for i in range(PICTURES):
        top, left, ink = 2 + i * 3 % 8, 4 + i * 7 % 11, 0.6 + i % 5 / 10
        for k, (row, column, height, width) in enumerate(SEGMENTS):
            if DIGITS[i % 10] >> k & 1:
                row, column = row + top, column + left
                pictures[i, 0, row:row + height, column:column + width] = ink
    return pictures


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * 49, 2 * LATENT),
        )
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, 64 * 49), nn.ReLU(), nn.Unflatten(1, (64, 7, 7)),
            nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, 2, 1),
        )

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        z = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        return self.decoder(z), mean, log_variance


def loss_of(model, x):
    """The negative evidence lower bound of a picture, in nats."""
    scores, mean, log_variance = model(x)
    reconstruction = F.binary_cross_entropy_with_logits(scores, x, reduction="sum")
    divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum()
    return (reconstruction + divergence) / len(x)


torch.set_num_threads(2)
torch.manual_seed(1)
model = VAE()
if len(sys.argv) > 1:
    torch.save(model.state_dict(), sys.argv[1])
loader = DataLoader(TensorDataset(digits()), BATCH)
optimiser = torch.optim.Adam(model.parameters(), 1e-3)

losses, ends = [], []
for epoch in range(EPOCHS):
    for (x,) in loader:
        loss = loss_of(model, x)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        ends.append(time.perf_counter())

took = np.median(np.diff(ends)[5:])
print(f"vae: loss {losses[0]:.2f} -> {losses[-1]:.2f}, {1e3 * took:.2f} ms a step")
