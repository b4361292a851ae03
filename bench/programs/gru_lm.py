"""A GRU learns to continue a text of letters; the twin of gru_lm.c.

The state is carried from each window of the text to the next one; gradients stay in a window.

gru_lm.py [FILE]    writes the first weights to FILE, from which gru_lm.c begins
"""
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

LETTERS, STREAMS, WINDOW, WINDOWS, WIDTH, EPOCHS = 31, 16, 32, 20, 192, 8


def text(n):
    """n letters, each of which depends on the two before it and on chance."""
    letters, seed = [1, 2], 1
    for i in range(2, n):
        seed = (seed * 1103515245 + 12345) % 2**31
        chance = seed // 65536 % 3
        letters.append((11 * letters[i - 1] + letters[i - 2] % 3 + chance) % LETTERS)
    return torch.tensor(letters)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(LETTERS, WIDTH)
        self.gru = nn.GRU(WIDTH, WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, x, state):
        y, state = self.gru(self.embed(x), state)
        return self.head(y), state


torch.set_num_threads(2)
torch.manual_seed(1)
model = LanguageModel()
if len(sys.argv) > 1:
    torch.save(model.state_dict(), sys.argv[1])
optimiser = torch.optim.AdamW(model.parameters(), 2e-3)
letters = text(STREAMS * WINDOWS * WINDOW + 1)
now = letters[:-1].view(STREAMS, -1).split(WINDOW, 1)
following = letters[1:].view(STREAMS, -1).split(WINDOW, 1)

losses, ends = [], []
for epoch in range(EPOCHS):
    state = torch.zeros(2, STREAMS, WIDTH)
    for x, y in zip(now, following):
        scores, state = model(x, state.detach())
        loss = F.cross_entropy(scores.flatten(0, 1), y.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimiser.step()
        losses.append(loss.item())
        ends.append(time.perf_counter())

took = np.median(np.diff(ends)[5:])
print(f"gru_lm: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {1e3 * took:.2f} ms a step")
