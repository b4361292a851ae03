"""LeNet-5 on handwritten digits, from Python: examples/05_lenet.c with the same seed has the same
numbers.

    lenet.py [--seed N] [--epochs N] [--drawn N] [--out FOLDER]

The digits are those of the four files of MNIST in the folder $WEBER_DATA, else --drawn N (12000)
digits that this program draws, as 05_lenet.c does.
"""
import argparse
import math
import os
from pathlib import Path

import numpy as np

import weber as wb

SIDE, BATCH, SHIFT = 28, 64, 2

# ---- digits: NumPy arrays, x [N,1,28,28] f32 in 0..1 and y [N] i32 -------------------------------


class Chance:
    """Random numbers in [low, high) for the data, from a counter (splitmix64)."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self, low, high):
        mask = (1 << 64) - 1
        z = self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return low + (high - low) * (((z ^ z >> 31) >> 11) / 9007199254740992)


# Strokes in a unit square, y downwards: a line from (a, b) to (c, d), or an arc around (a, b) with
# radii c and d between two angles, in turns clockwise from the right.
SHAPES = [
    [(.50, .50, .30, .45, 0, 1)],
    [(.35, .20, .55, .05), (.55, .05, .55, .95)],
    [(.50, .30, .28, .25, .5, 1.1), (.73, .45, .22, .95), (.22, .95, .80, .95)],
    [(.47, .28, .26, .23, .55, 1.25), (.47, .73, .30, .23, .75, 1.45)],
    [(.60, .05, .20, .65), (.20, .65, .85, .65), (.65, .35, .65, .95)],
    [(.75, .06, .30, .06), (.30, .06, .27, .45), (.48, .66, .29, .28, .62, 1.42)],
    [(.50, .68, .27, .26, 0, 1), (.76, .66, .53, .58, .5, .72)],
    [(.20, .07, .80, .07), (.80, .07, .42, .95)],
    [(.50, .28, .23, .22, 0, 1), (.50, .72, .28, .24, 0, 1)],
    [(.48, .32, .27, .26, 0, 1), (.22, .36, .53, .58, 0, .22)],
]


def drawn(digit, chance):
    """A digit with random strokes, [28,28]."""
    turn, lean, wide, tall = chance(-.25, .25), chance(-.2, .2), chance(13, 20), chance(16, 21)
    left, top = 14 + chance(-1.5, 1.5), 14 + chance(-1.5, 1.5)
    thickness, wave, phase = chance(.9, 1.6), chance(0, .03), chance(0, 6.28)
    image = np.zeros((SIDE, SIDE), "f4")
    window = np.arange(7)
    for stroke in SHAPES[digit]:
        a, b, p, q, *angles = np.float32(stroke)            # C subtracts them as float
        width, height = float(p - a), float(q - b)
        a, b, p, q = float(a), float(b), float(p), float(q)
        begin, turns = (float(angles[0]), float(angles[1] - angles[0])) if angles else (0, 0)
        for i in range(49):
            t = i / 48
            angle = 6.283185 * (begin + t * turns)
            x = a + p * math.cos(angle) if angles else a + t * width
            y = b + q * math.sin(angle) if angles else b + t * height
            x = (x - .5 + wave * math.sin(7 * y + phase) + lean * (.5 - y)) * wide
            y = (y - .5 + wave * math.sin(9 * x / wide + phase)) * tall
            x, y = (left + x * math.cos(turn) - y * math.sin(turn),
                    top + x * math.sin(turn) + y * math.cos(turn))
            rows, columns = int(y - 3) + window, int(x - 3) + window
            rows = rows[(rows >= 0) & (rows < SIDE) & (rows <= int(y + 3))]
            columns = columns[(columns >= 0) & (columns < SIDE) & (columns <= int(x + 3))]
            ink = 1.3 - np.hypot(columns + .5 - x, rows[:, None] + .5 - y) / thickness
            part = np.ix_(rows, columns)
            image[part] = np.maximum(image[part], np.clip(ink, 0, 1).astype("f4"))
    return image


def find_digits(n, chance):
    """(training set, held-out set, number of epochs that suits them)"""
    folder = Path(os.environ.get("WEBER_DATA") or "nowhere")
    ending = ".gz" if (folder / "train-images-idx3-ubyte.gz").exists() else ""
    if not n and (folder / f"train-images-idx3-ubyte{ending}").exists():
        return *(wb.load_idx(f"{folder}/{part}-images-idx3-ubyte{ending}",
                             f"{folder}/{part}-labels-idx1-ubyte{ending}")
                 for part in ("train", "t10k")), 6
    x, y = np.empty((n or 12000, 1, SIDE, SIDE), "f4"), np.empty(n or 12000, "i4")
    for i in range(len(x)):
        y[i] = int(chance(0, 10))
        x[i, 0] = drawn(y[i], chance)
    return *wb.splitobs(wb.dataset_of(x, y), .8), 10


# ---- the network and its training ----------------------------------------------------------------


def lenet():
    return wb.Chain(wb.Conv(1, 6, (5, 5), wb.relu), wb.MaxPool((2, 2)),
                    wb.Conv(6, 16, (5, 5), wb.relu), wb.MaxPool((2, 2)), wb.Flatten(),
                    wb.Dense(256, 120, wb.relu), wb.Dense(120, 84, wb.relu), wb.Dense(84, 10))


def loss(model, batch):
    return wb.logitcrossentropy(model(batch.x), wb.onehotbatch(batch.y, 10))


def learning_rate(done, peak=3e-3):
    """Rises over the first tenth of the training, then falls along a cosine."""
    if done < .1:
        return peak * max(.02, done / .1)
    return peak * max(.005, .5 * (1 + math.cos(3.14159265 * (done - .1) / .9)))


def train(model, data, epochs, chance):
    def shift(batch):                           # moves each image by up to SHIFT pixels
        x = np.from_dlpack(batch.x)
        moved = np.zeros((batch.n, 1, SIDE + 2 * SHIFT, SIDE + 2 * SHIFT), "f4")
        for image, to in zip(x, moved):
            down, right = (SHIFT + int(chance(-SHIFT, SHIFT + 1)) for _ in range(2))
            to[0, down:down + SIDE, right:right + SIDE] = image[0]
        batch.x = np.ascontiguousarray(moved[:, :, SHIFT:-SHIFT, SHIFT:-SHIFT])

    loader = wb.dataloader(data, BATCH, shuffle=True, drop_last=True, collate=shift)
    state = wb.setup(wb.Adam(), model)
    steps, step = loader.loader_length() * epochs, 0
    for epoch in range(epochs):
        total = 0
        for batch in loader:
            state.adjust(eta=learning_rate(step / steps))
            value, gradients = wb.withgradient(loss, model, batch)
            state.update(model, gradients)
            total += value.item()
            step += 1
        print(f"epoch {epoch + 1}: loss {total / loader.loader_length():.6f}")


def judged(model, data):
    """(number of observations, number that the model gets right)"""
    n = right = 0
    for batch in wb.dataloader(data, 500):
        guess, truth = model(batch.x).onecold(), batch.y
        right += int((np.from_dlpack(guess) == np.from_dlpack(truth)).sum())
        n += batch.n
    return n, right


def main():
    parser = argparse.ArgumentParser(description="LeNet-5 on handwritten digits")
    for option in ("--seed", "--epochs", "--drawn"):
        parser.add_argument(option, type=int, default=int(option == "--seed"))
    parser.add_argument("--out", default=".")
    given = parser.parse_args()
    wb.seed(given.seed)
    chance = Chance(given.seed)
    learn, test, epochs = find_digits(given.drawn, chance)
    model = lenet()
    print(model)
    train(model, learn, given.epochs or epochs, chance)
    n, right = judged(model, test)
    print(f"held out: {100 * right / n:.2f} % right ({right} of {n})")
    file = f"{given.out}/lenet.safetensors"
    wb.save(file, model)
    same = judged(wb.load(file), test) == (n, right)
    print(f"read back from {file}: {'the same' if same else 'another'} result")


if __name__ == "__main__":
    main()
