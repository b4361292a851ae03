"""An actor with noisy weights and a critic learn to balance poles; the twin of actor_critic.c.

actor_critic.py [FILE]    writes the first weights to FILE, from which actor_critic.c begins
"""
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

POLES, MOVES, UPDATES, WIDTH, GAMMA, LAMBDA = 16, 32, 300, 64, 0.99, 0.95


class CartPoles:
    """POLES poles on carts; one that falls, or is up for 500 moves, begins again."""

    def __init__(self):
        self.state = np.zeros((POLES, 4), np.float32)
        self.age = np.zeros(POLES, int)
        self.begun = 0
        for i in range(POLES):
            self.begin(i)

    def begin(self, i):
        self.state[i] = 0.05 * np.sin(37 * (4 * self.begun + np.arange(4)))
        self.age[i] = 0
        self.begun += 1

    def move(self, action):
        place, speed, angle, spin = self.state.T
        cosine, sine = np.cos(angle), np.sin(angle)
        push = (np.where(action == 1, 10, -10) + 0.05 * spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        self.state += 0.02 * np.stack([speed, push - 0.05 * turn * cosine / 1.1, spin, turn], 1)
        self.age += 1
        ended = (abs(self.state[:, 0]) > 2.4) | (abs(self.state[:, 2]) > 0.2095) | (self.age >= 500)
        for i in np.flatnonzero(ended):
            self.begin(i)
        return ended


class NoisyLinear(nn.Module):
    """A linear layer whose weights have noise of a size that it learns."""

    def __init__(self, inputs, outputs):
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_size = nn.Parameter(torch.full((outputs, inputs), 0.5 * bound))
        self.bias_size = nn.Parameter(torch.full((outputs,), 0.5 * bound))
        self.register_buffer("noise_in", torch.zeros(inputs))
        self.register_buffer("noise_out", torch.zeros(outputs))

    def draw(self):
        for noise in self.noise_in, self.noise_out:
            z = torch.randn_like(noise)
            noise.copy_(z.sign() * z.abs().sqrt())

    def forward(self, x):
        weight = self.weight + self.weight_size * torch.outer(self.noise_out, self.noise_in)
        return F.linear(x, weight, self.bias + self.bias_size * self.noise_out)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()
        )
        self.actor = NoisyLinear(WIDTH, 2)
        self.critic = nn.Linear(WIDTH, 1)

    def forward(self, x):
        h = self.body(x)
        return F.log_softmax(self.actor(h), -1), self.critic(h).squeeze(-1)


@torch.no_grad()
def play(agent, poles):
    """States, actions, advantages and returns of MOVES moves, and how many poles ended."""
    states = torch.empty(MOVES, POLES, 4)
    actions = torch.empty(MOVES, POLES, dtype=torch.long)
    values, alive, advantages = (torch.empty(MOVES, POLES) for _ in range(3))
    for t in range(MOVES):
        states[t] = torch.from_numpy(poles.state)
        log_p, values[t] = agent(states[t])
        actions[t] = torch.multinomial(log_p.exp(), 1).squeeze(1)
        alive[t] = torch.from_numpy(~poles.move(actions[t].numpy()))
    _, following = agent(torch.from_numpy(poles.state))
    advantage = torch.zeros(POLES)
    for t in reversed(range(MOVES)):
        surprise = 1 + GAMMA * alive[t] * following - values[t]
        advantage = surprise + GAMMA * LAMBDA * alive[t] * advantage
        advantages[t], following = advantage, values[t]
    returns = advantages + values
    return [x.flatten(0, 1) for x in (states, actions, advantages, returns)], (1 - alive).sum()


def loss_of(agent, states, actions, advantages, returns):
    log_p, values = agent(states)
    chosen = log_p.gather(1, actions.unsqueeze(1)).squeeze(1)
    advantages = (advantages - advantages.mean()) / advantages.std(correction=0)
    entropy = -(log_p.exp() * log_p).sum(1).mean()
    return 0.01 * F.mse_loss(values, returns) - (chosen * advantages).mean() - 0.01 * entropy


torch.set_num_threads(2)
torch.manual_seed(1)
agent, poles = Agent(), CartPoles()
if len(sys.argv) > 1:
    torch.save(agent.state_dict(), sys.argv[1])
optimiser = torch.optim.Adam(agent.parameters(), 3e-3)

lengths, ends = [], []
for update in range(UPDATES):
    agent.actor.draw()
    moves, ended = play(agent, poles)
    loss = loss_of(agent, *moves)
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimiser.step()
    lengths.append(MOVES * POLES / max(1, ended.item()))
    ends.append(time.perf_counter())

took = np.median(np.diff(ends)[5:])
first, last = np.mean(lengths[:50]), np.mean(lengths[-50:])
print(
    f"actor_critic: loss {loss.item():.4f}, moves of a pole {first:.0f} -> {last:.0f},"
    f" {1e3 * took:.2f} ms a step"
)
