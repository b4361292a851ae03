"""A diffusion model learns to make pictures of discs out of noise; the twin of diffusion.c.

diffusion.py [FILE]    writes the first weights to FILE, from which diffusion.c begins
"""
import math
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

SIDE, PICTURES, BATCH, EPOCHS, TIMES, WIDTH, MADE = 8, 1024, 64, 25, 100, 32, 256


def discs():
    """Pictures [PICTURES,1,SIDE,SIDE] that are 1 in a disc, and -1 around it."""
    i = torch.arange(PICTURES).view(-1, 1, 1, 1)
    down = torch.arange(SIDE).view(-1, 1) - 2 - i % 4
    right = torch.arange(SIDE) - 2 - i // 4 % 4
    return torch.where(down * down + right * right < 3 + i % 5, 1.0, -1.0)


class Block(nn.Module):
    """A residual block that also takes the embedding of the time."""

    def __init__(self):
        super().__init__()
        self.norm1 = nn.GroupNorm(8, WIDTH)
        self.conv1 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.time = nn.Linear(2 * WIDTH, WIDTH)
        self.norm2 = nn.GroupNorm(8, WIDTH)
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(time)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class Denoiser(nn.Module):
    """Noisy pictures [N,1,SIDE,SIDE] and their times [N] -> the noise in them."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(WIDTH, 2 * WIDTH)
        self.first = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.block1 = Block()
        self.block2 = Block()
        self.last = nn.Conv2d(WIDTH, 1, 3, padding=1)

    def forward(self, x, time):
        rate = torch.exp(torch.arange(WIDTH // 2) * (-math.log(1000) / (WIDTH // 2)))
        angle = time[:, None] * rate
        time = F.silu(self.embed(torch.cat([angle.sin(), angle.cos()], 1)))
        return self.last(self.block2(self.block1(self.first(x), time), time))


def loss_of(model, x, kept):
    time = torch.randint(TIMES, (len(x),))
    share = kept[time].view(-1, 1, 1, 1)
    noise = torch.randn_like(x)
    noisy = share.sqrt() * x + (1 - share).sqrt() * noise
    return F.mse_loss(model(noisy, time), noise)


@torch.no_grad()
def make(model, kept):
    """New pictures [MADE,1,SIDE,SIDE]."""
    x = torch.randn(MADE, 1, SIDE, SIDE)
    for t in reversed(range(TIMES)):
        alpha = kept[t] / kept[t - 1] if t > 0 else kept[t]
        noise = model(x, torch.full((MADE,), t))
        x = (x - (1 - alpha) / (1 - kept[t]).sqrt() * noise) / alpha.sqrt()
        if t > 0:
            x += (1 - alpha).sqrt() * torch.randn_like(x)
    return x


torch.set_num_threads(2)
torch.manual_seed(1)
model = Denoiser()
if len(sys.argv) > 1:
    torch.save(model.state_dict(), sys.argv[1])
pictures = discs()
kept = torch.cumprod(1 - torch.linspace(0.001, 0.2, TIMES), 0)
loader = DataLoader(pictures, BATCH, shuffle=True)
optimiser = torch.optim.Adam(model.parameters(), 2e-3)

losses, ends = [], []
for epoch in range(EPOCHS):
    for x in loader:
        loss = loss_of(model, x, kept)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        ends.append(time.perf_counter())

took = np.median(np.diff(ends)[5:])
print(f"diffusion: loss {losses[0]:.4f} -> {np.mean(losses[-50:]):.4f}, {1e3 * took:.2f} ms a step")
start = time.perf_counter()
made = make(model, kept)
print(f"{MADE} pictures in {time.perf_counter() - start:.2f} s")
print(f"mean {made.mean():.3f}, of the data {pictures.mean():.3f}; |x| {made.abs().mean():.3f}")
