"""A convolution and a GRU in both directions transcribe sequences of tones, trained with CTC; the
twin of speech_ctc.c.

speech_ctc.py [FILE]    writes the first weights to FILE, from which speech_ctc.c begins
"""
import math
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RATE, TONE, MOST, TONES, SOUNDS, BATCH, EPOCHS = 8000, 640, 6, 8, 256, 32, 25
SAMPLES, FRAME, HOP, WIDTH = TONE * MOST, 128, 64, 64


def speech():
    """Sounds [SOUNDS,SAMPLES] of 3 to 6 tones under noise, their labels [SOUNDS,MOST] with 0 behind
    the last tone, and the numbers of tones."""
    i = torch.arange(SOUNDS).view(-1, 1)
    k = torch.arange(MOST)
    sample = torch.arange(SAMPLES)
    labels = (1 + (i * 5 + i * k + k * k * 3) % TONES) * (k < 3 + i % 4)
    label = labels.repeat_interleave(TONE, 1)
    turns = (300 + 350 * label) * sample % RATE / RATE
    number = i * SAMPLES + sample
    noise = number * number % 1009 / 1009 - 0.5
    sounds = (label > 0) * (2 * math.pi * turns).sin() + noise
    return sounds, labels, (labels > 0).sum(1)


class Recogniser(nn.Module):
    """Sounds [N,SAMPLES] -> the scores [N,T,1 + TONES] of the blank and the tones."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(FRAME // 2 + 1)
        self.conv = nn.Conv1d(FRAME // 2 + 1, WIDTH, 5, padding=2)
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * WIDTH, 1 + TONES)
        self.register_buffer("window", torch.hann_window(FRAME), persistent=False)

    def forward(self, sounds):
        spectrum = torch.stft(sounds, FRAME, HOP, window=self.window, return_complex=True)
        x = self.norm((spectrum.abs().square() + 1e-3).log())
        x = self.conv(x).relu().transpose(1, 2)
        x, _ = self.gru(x)
        return self.output(x)


def loss_of(scores, labels, lengths):
    log_probs = scores.log_softmax(2).transpose(0, 1)
    return F.ctc_loss(log_probs, labels, torch.full_like(lengths, len(log_probs)), lengths)


def right(scores, labels, lengths):
    """The fraction of sounds whose most probable path becomes their labels."""
    count = 0
    for path, label, length in zip(scores.argmax(2), labels, lengths):
        text = path.unique_consecutive()
        count += torch.equal(text[text > 0], label[:length])
    return count / len(labels)


torch.set_num_threads(2)
torch.manual_seed(1)
model = Recogniser()
if len(sys.argv) > 1:
    torch.save(model.state_dict(), sys.argv[1])
sounds, labels, lengths = speech()
loader = DataLoader(TensorDataset(sounds, labels, lengths), BATCH)
optimiser = torch.optim.Adam(model.parameters(), 5e-3)

losses, ends = [], []
for epoch in range(EPOCHS):
    for batch in loader:
        loss = loss_of(model(batch[0]), *batch[1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        ends.append(time.perf_counter())

with torch.no_grad():
    accuracy = right(model(sounds), labels, lengths)
took = np.median(np.diff(ends)[5:])
print(f"speech_ctc: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {1e3 * took:.2f} ms a step")
print(f"{100 * accuracy:.1f} % of the sounds are transcribed without an error")
