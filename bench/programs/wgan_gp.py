"""A Wasserstein GAN with gradient penalty learns a ring of eight blobs; the twin of wgan_gp.c.

wgan_gp.py [FILE]    writes the first weights to FILE, from which wgan_gp.c begins
"""
import math
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

POINTS, BATCH, EPOCHS, NOISE, WIDTH, TURNS = 6400, 128, 40, 8, 64, 5


def ring():
    """Points [POINTS,2] around eight centres on the unit circle."""
    angle = torch.arange(POINTS) * (2 * math.pi / 8)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(POINTS, 2)


def perceptron(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, WIDTH),
        nn.LeakyReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.LeakyReLU(),
        nn.Linear(WIDTH, outputs),
    )


def critic_loss(critic, real, generator):
    with torch.no_grad():
        fake = generator(torch.randn(len(real), NOISE))
    between = torch.lerp(fake, real, torch.rand(len(real), 1)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    return critic(fake).mean() - critic(real).mean() + 0.1 * penalty


def generator_loss(generator, real, critic):
    return -critic(generator(torch.randn(len(real), NOISE))).mean()


def train(loss_of, model, optimiser, real, other):
    loss = loss_of(model, real, other)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss


torch.set_num_threads(2)
torch.manual_seed(1)
critic, generator = perceptron(2, 1), perceptron(NOISE, 2)
if len(sys.argv) > 1:
    both = nn.ModuleDict({"critic": critic, "generator": generator})
    torch.save(both.state_dict(), sys.argv[1])
loader = DataLoader(ring(), BATCH, shuffle=True)
critic_optimiser = torch.optim.Adam(critic.parameters(), 1e-3, betas=(0.5, 0.9))
generator_optimiser = torch.optim.Adam(generator.parameters(), 1e-3, betas=(0.5, 0.9))

losses, ends = [], []
for epoch in range(EPOCHS):
    for batch, real in enumerate(loader):
        loss = train(critic_loss, critic, critic_optimiser, real, generator)
        if batch % TURNS == TURNS - 1:
            critic.requires_grad_(False)
            train(generator_loss, generator, generator_optimiser, real, critic)
            critic.requires_grad_(True)
            losses.append(loss.item())
            ends.append(time.perf_counter())

with torch.no_grad():
    made = generator(torch.randn(POINTS, NOISE))
took = np.median(np.diff(ends)[5:])
print(f"wgan_gp: loss {losses[0]:.4f} -> {np.mean(losses[-100:]):.4f}, {1e3 * took:.2f} ms a step")
print(f"mean distance from the circle: {(made.norm(dim=1) - 1).abs().mean():.4f}")
