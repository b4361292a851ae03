#!/usr/bin/env python3
"""Models what a data-parallel step costs: checks the model on measurements, and predicts clusters.

    scale_model.py [FILE] [--check]         fits the measurements of `bench/ranks.py --collect`
                                            (default: bench/results/ranks-epyc-2.json), predicts
                                            those that are held out, and prints every point
    scale_model.py --table                  what to expect of GPUs, and every assumption
    scale_model.py --document FILE [--write]    compares a document's table with that of --table,
                                            or writes it there

--check: the exit status is 1 if a held-out point is more than 15 % off, or is missing.

The model.  A model is a list of tensors with parameters and FLOPs.  A step of a rank computes

    forward and backward pass    t1 b      b: observations of the rank; by FLOPs, the backward pass
                                           of a layer twice its forward pass, from the last one on
    the rest, such as updates    t0

and reduces its gradients in buckets, one after the other, as Weber packs them.  A bucket's
allreduce begins when its last gradient is there and the allreduce before it has ended, and the rest
of the step when all have; without overlap they follow the backward pass.

On one machine, p ranks of one thread share c cores.  Ranks that compute at the same time slow each
other down by a fitted share.  More ranks than cores take turns.  If the cores cannot divide them
evenly, a step takes longer than p / c times, by a fitted share of the difference to ceil(p / c),
and by a fitted delay until the last rank has had its turn.

An allreduce has the rounds and the bytes of the algorithm that Open MPI 4.1 chooses for the size
(coll_tuned_decision_fixed.c).  A round takes a latency.  With more ranks than cores it takes a turn
of all ranks, and more turns if its messages are announced first, as from 4 KiB on.  The ranks
receive and add bytes, at one speed those that fit into the cache and at another speed the rest; the
cores share this work.

On GPUs an allreduce is the faster of a ring and a tree, with the formulas of NCCL's own tuning.
"""
import argparse
import json
import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "bench/results/ranks-epyc-2.json"
LIMIT = 0.15
BUCKET = 25000000       # bytes, the default of wb_DistributedOptimizer

# ---- models: lists of tensors: (parameters, FLOPs of the forward pass for one observation) -------


def dense(inputs, outputs, times=1, bias=True):
    return [(inputs * outputs, 2 * inputs * outputs * times)] + [(outputs, 0)] * bias


def conv(inputs, outputs, kernel, size, bias=False):
    """`size`: width and height of the output"""
    weights = inputs * outputs * kernel * kernel
    return [(weights, 2 * weights * size * size)] + [(outputs, 0)] * bias


def norm(channels):
    return [(channels, 0)] * 2


def vgg():
    layers = []
    for inputs, outputs, size in ((3, 32, 32), (32, 32, 32), (32, 64, 16), (64, 64, 16),
                                  (64, 128, 8), (128, 128, 8)):
        layers += conv(inputs, outputs, 3, size, True)
    return layers + dense(2048, 256) + dense(256, 10)


def resnet20():
    layers, widths = conv(3, 16, 3, 32) + norm(16), [16] * 4 + [32] * 3 + [64] * 3
    for inputs, outputs in zip(widths, widths[1:]):
        size = 32 * 16 // outputs
        layers += conv(inputs, outputs, 3, size) + norm(outputs)
        layers += conv(outputs, outputs, 3, size) + norm(outputs)
    return layers + dense(64, 10)


def resnet50():
    layers, inputs = conv(3, 64, 7, 112) + norm(64), 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width, size = 64 << stage, 56 >> stage
        for block in range(blocks):
            before = size * (2 if stage and not block else 1)
            layers += conv(inputs, width, 1, before) + norm(width)
            layers += conv(width, width, 3, size) + norm(width)
            layers += conv(width, 4 * width, 1, size) + norm(4 * width)
            if not block:
                layers += conv(inputs, 4 * width, 1, size) + norm(4 * width)
            inputs = 4 * width
    return layers + dense(2048, 1000)


def gpt(blocks, width, length, words):
    """The gradient of the embedding, which is the last layer too, is complete at the very end."""
    layers = [(words * width, 0), (length * width, 0)]
    for _ in range(blocks):
        layers += norm(width) + dense(width, 3 * width, length)
        layers += [(0, 4 * length * length * width)] + dense(width, width, length)
        layers += norm(width) + dense(width, 4 * width, length) + dense(4 * width, width, length)
    return layers + norm(width) + [(0, 2 * width * words * length)]


MODELS = {
    "W2": dense(784, 256) + dense(256, 10),
    "W3": conv(1, 6, 5, 24, True) + conv(6, 16, 5, 8, True) + dense(256, 120) + dense(120, 84)
    + dense(84, 10),
    "W4a": vgg(),
    "W4b": resnet20(),
    "W5": gpt(4, 128, 128, 65),
    "W6": dense(64, 4 * 128, 50, False) + dense(128, 4 * 128, 50) + dense(128, 10),
    "ResNet-50": resnet50(),
    "GPT-2 124M": gpt(12, 768, 1024, 50304),
}


def parameters(name):
    return sum(tensor[0] for tensor in MODELS[name])


def flops(name):
    """Of the forward and the backward pass of one observation."""
    return 3 * sum(tensor[1] for tensor in MODELS[name])


def buckets(name, limit):
    """[(share of forward and backward pass after which it is complete, bytes)], and the loss."""
    whole, done, found, waiting = flops(name), flops(name) / 3, [], 0
    for size, work in reversed(MODELS[name]):
        if waiting and size and waiting + 4 * size > limit:
            found.append((done / whole, waiting))
            waiting = 0
        done += 2 * work
        waiting += 4 * size
    return found + [(1.0, waiting + 4)]


def step_time(compute, rest, parts, allreduce, overlap):
    if not overlap:
        return compute + sum(allreduce(size) for _, size in parts) + rest
    end = 0.0
    for ready, size in parts:
        end = max(end, ready * compute) + allreduce(size)
    return max(end, compute) + rest


# ---- one machine whose cores the ranks share -----------------------------------------------------


def algorithm(ranks, size):
    """(rounds, bytes of a message, bytes that all ranks together receive or add, divided by 1.5) of
    Open MPI"""
    power = 1 << int(math.log2(ranks))
    more, steps = ranks - power, int(math.log2(power))
    if size < 16 or (size < 4096 if ranks < 4 else size < 8192):    # recursive doubling
        return steps + 2 * (more > 0), size, (4 / 3 * power * steps + 2 * more) * size
    if ranks < 4 and size < 262144:                                 # ring
        return 2 * (ranks - 1), size / ranks, 2 * (ranks - 1) * size
    # Rabenseifner: halving, doubling; a rank beyond the power of two passes its data to another one
    return 2 * steps + 3 * (more > 0), size / 2, (2 * (power - 1) + 7 / 3 * more) * size


class Machine:
    """Constants in microseconds and bytes."""
    ANNOUNCED = 4000            # bytes of a message; its header is a part of the 4 KiB

    def __init__(self, cores, latency, turn, announced, near, far, cache, slower, uneven, late):
        self.cores, self.latency, self.turn, self.announced = cores, latency, turn, announced
        self.near, self.far, self.cache = near, far, cache      # us a byte; bytes
        self.slower, self.uneven, self.late = slower, uneven, late  # shares; us of a step

    def shared(self, ranks):
        """How many times longer `ranks` compute than one alone."""
        even = max(1.0, ranks / self.cores)
        whole = math.ceil(ranks / self.cores)
        return (even + self.uneven * (whole - even)) * (1 + self.slower * (ranks > 1))

    def allreduce(self, ranks, size):
        if ranks == 1:
            return 0.0
        rounds, message, work = algorithm(ranks, size)
        crowd = ranks / self.cores
        fits = min(1.0, self.cache / (2 * ranks * size))
        speed = fits * self.near + (1 - fits) * self.far
        turn = self.announced if message > self.ANNOUNCED else self.turn
        return (rounds * (self.latency if crowd <= 1 else turn * crowd)
                + work * speed / min(ranks, self.cores))


def minimum(function, start, turns=1500):
    """The point near `start` at which a function is smallest, by the simplex of Nelder and Mead."""
    n = len(start)
    simplex = [list(start)] + [[x + (0.5 if i == j else 0) for j, x in enumerate(start)]
                               for i in range(n)]
    simplex = sorted((function(x), x) for x in simplex)
    for _ in range(turns):
        centre = [sum(x[j] for _, x in simplex[:-1]) / n for j in range(n)]

        def along(k):
            x = [c + k * (w - c) for c, w in zip(centre, simplex[-1][1])]
            return function(x), x
        new = along(-1)
        if new[0] < simplex[0][0]:
            new = min(new, along(-2))
        elif new[0] >= simplex[-2][0]:
            new = min(along(-0.5), along(0.5))
            if new[0] >= simplex[-1][0]:
                best = simplex[0][1]
                simplex = [simplex[0]] + [
                    (function(y), y) for y in ([(a + b) / 2 for a, b in zip(x, best)]
                                               for _, x in simplex[1:])]
                simplex.sort()
                continue
        simplex = sorted(simplex[:-1] + [new])
    return simplex[0][1]


class Point:
    def __init__(self, row):
        words = row["point"].split()
        self.name, self.us, self.spread = row["point"], row["us"], row["spread"]
        self.kind, self.workload, self.ranks, self.batch = words[0], "", 1, 0
        if self.kind == "reduce":
            self.ranks, self.size = int(words[1]), int(words[2])
        elif self.kind == "step":
            self.ranks, self.workload, self.batch = int(words[1]), words[2], int(words[3])
        else:
            self.workload, self.batch, self.speed, self.bucket = words[1], *map(int, words[2:])

    def held_out(self, whole):
        """`whole`: the batch of one rank alone, the largest of the workload."""
        if self.kind == "reduce":
            return self.ranks in (3, 6) or self.size == 1000000
        if self.kind == "step" and self.ranks == 1:
            return self.batch == whole // 2
        return self.kind == "network" or self.ranks in (3, 6) or self.workload in ("W4b", "W6")


RULE = """Held out: allreduces of 3 and 6 ranks, and of 1,000,000 bytes; steps of 3 and 6 ranks, and
of W4b and W6 with several ranks; of one rank, that of half the batch; all steps over simulated
networks."""


class Fit:
    def __init__(self, data):
        self.points = [Point(row) for row in data["points"]]
        self.whole = {}
        for p in self.points:
            self.whole[p.workload] = max(self.whole.get(p.workload, 0), p.batch)
        self.alone = {name: self.line(name) for name in self.whole if name}
        self.cores = data["about"]["cores"]
        self.machine = self.fit()

    def used(self, kind):
        return [p for p in self.points if p.kind == kind and not p.held_out(self.whole[p.workload])]

    def missing(self):
        """The points of 2 to 7 ranks that the file should have, and has not."""
        wanted = [f"reduce {ranks} {size}" for size in sorted(
            {p.size for p in self.points if p.kind == "reduce"}) for ranks in range(2, 8)]
        wanted += [f"step {ranks} {name} {self.whole[name] // ranks}" for name in self.alone
                   for ranks in range(1, 8)]
        return [name for name in wanted if name not in {p.name for p in self.points}]

    def line(self, name):
        """(t0, t1) of a workload: the line of the smallest relative errors, neither negative."""
        points = [(p.batch, p.us) for p in self.used("step") if p.workload == name and p.ranks == 1]
        a = sum(1 / y**2 for _, y in points)
        b = sum(x / y**2 for x, y in points)
        c = sum(x**2 / y**2 for x, y in points)
        d, e = sum(1 / y for _, y in points), sum(x / y for x, y in points)
        t0, t1 = ((x / (a * c - b * b)) for x in (d * c - e * b, a * e - b * d))
        return (t0, t1) if t0 > 0 and t1 > 0 else (0.0, e / c) if t1 > 0 else (d / a, 0.0)

    def fit(self):
        """The constants with the smallest sum of squared logarithms of predicted / measured."""
        def error(kind, machine):
            return sum(math.log(self.predict(p, machine) / p.us)**2 for p in self.used(kind)
                       if p.ranks > 1)

        def of_reduce(x):
            return Machine(self.cores, *map(math.exp, x), 0, 0, 0)
        first = minimum(lambda x: error("reduce", of_reduce(x)),
                        [math.log(x) for x in (1, 3, 10, 1.5e-4, 3e-4, 16e6)])

        def of_step(x):
            return Machine(self.cores, *map(math.exp, first), abs(x[0]), abs(x[1]),
                           100 * abs(x[2]))
        return of_step(minimum(lambda x: error("step", of_step(x)), [0.1, 0.1, 0.1]))

    def predict(self, p, machine=None):
        machine = machine or self.machine
        if p.kind == "reduce":
            return machine.allreduce(p.ranks, p.size)
        t0, t1 = self.alone[p.workload]
        if p.kind == "network":
            return step_time(t1 * p.batch, t0, buckets(p.workload, p.bucket),
                             lambda size: 100 + size / p.speed, True)
        longer = machine.shared(p.ranks)
        rest = longer * t0 + (machine.late if p.ranks > machine.cores else 0)
        return step_time(longer * t1 * p.batch, rest, buckets(p.workload, BUCKET),
                         lambda size: machine.allreduce(p.ranks, size), False)


def report(path, check):
    if not path.exists():
        sys.exit(f"{path} is missing: bench/ranks.py --collect {path} measures in 14 minutes")
    data = json.loads(path.read_text())
    fit = Fit(data)
    m, off, held = fit.machine, [], []
    print(f"{path.name}: {data['about']['machine']}, {data['about']['mpi']}; {data['command']}")
    print(f"fitted: a round {m.latency:.2f} us, a turn of more ranks than cores {m.turn:.2f} us, "
          f"of announced\n  messages {m.announced:.2f} us; a rank receives or adds "
          f"{1e-3 / m.near:.2f} GB/s in a cache of {m.cache / 1e6:.1f} MB and "
          f"{1e-3 / m.far:.2f} GB/s beyond;\n  two ranks slow each other by "
          f"{100 * m.slower:.1f} %; uneven numbers go {100 * m.uneven:.0f} % of the way to the "
          f"next even one;\n  a delay of {m.late:.0f} us")
    for name, (t0, t1) in fit.alone.items():
        print(f"  {name}: {t0:.1f} us a step and {t1:.2f} us an observation")
    print(RULE)
    print(f"{'point':32s}{'measured':>12s}{'predicted':>12s}{'error':>8s}{'spread':>8s}")
    for p in fit.points:
        predicted = fit.predict(p)
        error, out = predicted / p.us - 1, p.held_out(fit.whole[p.workload])
        held += [p.kind] * out
        if out and abs(error) > LIMIT:
            off.append(p.kind)
        print(f"{p.name:32s}{p.us:12.1f}{predicted:12.1f}{100 * error:+7.1f}%{100 * p.spread:7.1f}%"
              f"  {'held out' if out else ''}{' *' if out and abs(error) > LIMIT else ''}")
    missing = fit.missing()
    for name in missing:
        print(f"{name} is missing")
    for kind in dict.fromkeys(held):
        print(f"{kind}: {held.count(kind)} points are held out; {off.count(kind)} of them are more "
              f"than {100 * LIMIT:.0f} % off")
    return 1 if check and (off or missing) else 0


# ---- clusters of GPUs ----------------------------------------------------------------------------


class Cluster:
    """Constants in microseconds and bytes."""
    NODE = 8                    # GPUs
    NVLINK = 400e3              # bytes a us
    PEAK = 989e6                # FLOPs a us
    # Latencies of a message, of NCCL's src/graph/tuning.cc: ring (simple) and tree, by NVLink and
    # by network; the base of both.
    RING, TREE, BASE, TREE_SHARE = (3.4, 14.0), (4.0, 14.0), 8.4, 0.92

    def __init__(self, name, network):
        self.name, self.network = name, network     # bytes a us of a node

    def allreduce(self, gpus, size):
        nodes = math.ceil(gpus / self.NODE)
        speed = self.NVLINK if nodes == 1 else min(self.NVLINK, self.network)
        across = 2 * nodes if nodes > 1 else 0
        bytes_on_a_link = 2 * (gpus - 1) / gpus * size
        ring = ((2 * (gpus - 1) - across) * self.RING[0] + across * self.RING[1]
                + bytes_on_a_link / speed)
        if nodes == 1:
            return self.BASE + ring
        tree = (2 * ((self.NODE - 1) * self.TREE[0] + math.ceil(math.log2(nodes)) * self.TREE[1])
                + bytes_on_a_link / (self.TREE_SHARE * speed))
        return self.BASE + min(ring, tree)


CLUSTERS = (Cluster("8 x InfiniBand 400 Gbit/s", 8 * 45e3), Cluster("1 x 100 Gbit/s", 11e3))
# Model: observations a step of a GPU, what they are, of how many units, and the share of the peak.
TRAINED = {"ResNet-50": (128, "images", 1, 0.08), "GPT-2 124M": (16, "tokens", 1024, 0.40)}
SIZES = (8, 64, 1000)


def assumptions():
    """A paragraph in lines of the document."""
    c = Cluster
    works = ", ".join(
        f"{name} with {batch} {f'x {of} ' if of > 1 else ''}{what} a GPU "
        f"({batch * flops(name) / 1e12:.1f} TFLOP a step) at {100 * share:.0f} %"
        for name, (batch, what, of, share) in TRAINED.items())
    networks = " or ".join(f"{k.network / 1e3:.0f} GB/s ({k.name})" for k in CLUSTERS)
    return wrap(
        f"Assumed, not measured: NVIDIA H100 (SXM), {c.NODE} a node, ranks of WB_NCCL; {works} of "
        f"the peak of {c.PEAK / 1e6:.0f} TFLOP/s (bf16); gradients in f32, in buckets of "
        f"{BUCKET / 1e6:.0f} MB. An allreduce passes {c.NVLINK / 1e3:.0f} GB/s by NVLink, and from "
        f"node to node {networks}. A message takes {c.RING[0]} us by NVLink and {c.RING[1]:.0f} us "
        f"by network in a ring, {c.TREE[0]:.0f} and {c.TREE[1]:.0f} us in a tree, and a call "
        f"{c.BASE} us more (the constants of NCCL's `src/graph/tuning.cc`); the faster of both is "
        "used. Not in the model: reading data, ranks that are slower than others, other traffic on "
        "the network.")


def table():
    """The lines of the document."""
    lines = assumptions() + [
        "", "| model | GPUs | network of a node | computing | allreduce | efficiency, no overlap |"
        " with overlap | a second, with overlap |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, (batch, what, of, share) in TRAINED.items():
        compute, parts = batch * flops(name) / (share * Cluster.PEAK), buckets(name, BUCKET)
        for gpus in SIZES:
            for cluster in CLUSTERS[:1] if gpus <= Cluster.NODE else CLUSTERS:
                def allreduce(size, gpus=gpus, cluster=cluster):
                    return cluster.allreduce(gpus, size)
                bare, over = (step_time(compute, 0, parts, allreduce, o) for o in (False, True))
                lines.append(
                    f"| {name} | {gpus:,} | {cluster.name if gpus > Cluster.NODE else 'none'} | "
                    f"{compute / 1e3:.1f} ms | {(bare - compute) / 1e3:.2f} ms | "
                    f"{100 * compute / bare:.0f} % | {100 * compute / over:.0f} % | "
                    f"{human(gpus * batch * of / over * 1e6)} {what} |")
    return lines


def human(x):
    return f"{x / 1e6:.1f} million" if x >= 1e6 else f"{x:,.0f}"


def wrap(text, columns=100):
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= columns:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


BEGIN, END = "<!-- made by tools/scale_model.py -->", "<!-- end of what is made -->"


def document(path, writes):
    text = path.read_text()
    match = re.search(f"(?<={BEGIN}\n).*?(?={END}\n)", text, re.S)
    if not match:
        print(f"{path} has no {BEGIN}")
        return 1
    made = "\n".join(table()) + "\n"
    if writes:
        path.write_text(text[:match.start()] + made + text[match.end():])
    elif match.group(0) != made:
        print(f"{path} is not what the model gives: tools/scale_model.py --document {path} --write")
        return 1
    return 0


def main():
    options = argparse.ArgumentParser()
    options.add_argument("file", nargs="?", type=Path, default=MEASURED)
    options.add_argument("--check", action="store_true")
    options.add_argument("--table", action="store_true")
    options.add_argument("--document", type=Path)
    options.add_argument("--write", action="store_true")
    options = options.parse_args()
    if options.document:
        return document(options.document, options.write)
    if options.table:
        print("\n".join(table()))
        return 0
    return report(options.file, options.check)


if __name__ == "__main__":
    sys.exit(main())
