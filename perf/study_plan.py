# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Sparring authors
"""What the convergence study trains, in order of priority: models, learning rates, cells, groups of cells.

A cell is one set-up; a run is a cell with a seed. To ask another question, add a group at the place of its priority; runs
that several groups share are done once.
"""
import dataclasses
import itertools

SEEDS = (1, 2, 3)
DENSE = "dense_ring"
MOMENTUM = "0.9"
TUNING_SEED = 100
IWP_DENSITY = "0.015625"


@dataclasses.dataclass(frozen=True)
class Model:
    options: tuple  # of spr_train
    epochs: int
    rates: tuple    # learning rates that --tune tries
    lr: dict        # the best of them for dense_ring, by samples of all ranks per step
    metric: str     # of an epoch in spr_train's JSON file
    unit: str
    sign: int       # 1: a higher metric is better; -1: a lower one


# Learning rates: for 64, 256 and 1,024 samples a step that with the lowest test loss after the last epoch, seed TUNING_SEED
# (within 1 %, the lower rate); between and beyond these, the next one below (perf/study --tune).
MODELS = {
    "mlp": Model(("--hidden1", "64", "--hidden2", "32"), 8, ("0.025", "0.05", "0.1", "0.2", "0.4"),
                 {64: "0.05", 256: "0.1", 1024: "0.1"}, "test_accuracy", "%", 1),
    "conv": Model(("--hidden1", "4", "--hidden2", "128", "--samples", "30000"), 8, ("0.0125", "0.025", "0.05", "0.1", "0.2"),
                  {64: "0.025", 256: "0.05", 1024: "0.05"}, "test_accuracy", "%", 1),
    "lm": Model(("--hidden1", "64", "--length", "24", "--samples", "20000", "--test-samples", "2000"), 4,
                ("0.2", "0.4", "0.8", "1.6"), {64: "0.8", 256: "0.8"}, "test_bits", "bits per character", -1),
}
# What --tune trains: (model, ranks, samples per rank and step); dense_ring's result depends on their product alone.
TUNED = [(model, ranks, 32) for model in ("mlp", "conv") for ranks in (2, 8, 32)] + [("lm", ranks, 8) for ranks in (8, 32)]


@dataclasses.dataclass(frozen=True)
class Cell:
    model: str
    ranks: int
    batch: int          # samples per rank and step
    algo: str
    density: str = "1"  # without meaning for dense_ring
    variant: str = ""   # a name of VARIANTS
    warmup: int = 0     # epochs of falling density
    epochs: int = 0     # 0: the model's

    @property
    def name(self):
        """Of its files and in tables."""
        parts = [self.model, f"p{self.ranks}", f"b{self.batch}", self.label.replace(" ", "-")]
        return "_".join(parts + ([f"e{self.epochs}"] if self.epochs else []))

    @property
    def label(self):
        """What stands in a row of a table, ranks and batch aside."""
        return " ".join([self.algo] + [self.variant] * bool(self.variant) + [self.density] * (self.algo != DENSE)
                        + [f"w{self.warmup}"] * bool(self.warmup))

    @property
    def dense(self):
        """The cell that this one is compared with."""
        return Cell(self.model, self.ranks, self.batch, DENSE, epochs=self.epochs)

    @property
    def rate(self):
        """The learning rate."""
        lr = MODELS[self.model].lr
        return lr[max((samples for samples in lr if samples <= self.ranks * self.batch), default=min(lr))]

    def options(self, seed, rate=None):
        """The command line of spr_train."""
        model = MODELS[self.model]
        line = ["--model", self.model, *model.options, "--ranks", self.ranks, "--batch", self.batch, "--algo", self.algo,
                "--epochs", self.epochs or model.epochs, "--lr", rate or self.rate, "--momentum", MOMENTUM, "--seed", seed]
        if self.algo != DENSE:
            line += ["--density", self.density, *VARIANTS[self.variant]]
        if self.warmup:
            line += ["--warmup-epochs", self.warmup, "--warmup", "gtopk"]
        return [str(word) for word in line]


# Options that tell two cells of one algorithm apart.
VARIANTS = {
    "": (),
}


def cells(models, ranks, batches, algos):
    """All combinations; algos are (name, density), (name, density, variant), or (name, density, variant, warm-up)."""
    return [Cell(m, p, b, *a) for m, p, b, a in itertools.product(models, ranks, batches, algos)]


def sparse(density):
    return [("gtopk", density), ("topk_allgather", density)]


IMAGES = ("mlp", "conv")
ALL = [(DENSE,), *sparse("0.001")]
WARMED = [("gtopk", "0.001", "", 4), ("topk_allgather", "0.001", "", 4)]
# (name, the question, cells), the most important first.
GROUPS = (
    ("target", "8 ranks, 12 epochs: as good as dense within half a point?",
     [Cell(m, 8, 32, *a, epochs=12) for m in IMAGES for a in ((DENSE,), ("gtopk", "0.001", "", 4))]),
    ("large", "does keeping the trimmed mass repair the loss at many ranks and large batches?",
     cells(IMAGES, (32,), (32,), ALL)),
    ("warm", "and with the published warm-up of the density?", cells(IMAGES, (32,), (32,), WARMED)),
    ("small", "and at few ranks, or small batches?",
     cells(IMAGES, (8,), (32,), ALL) + cells(IMAGES, (32, 8), (8,), ALL)),
    ("text", "does a language model tell the same?", cells(("lm",), (32, 8), (8,), ALL)),
    ("denser", "what does a hundredth cost, instead of a thousandth?",
     cells(IMAGES, (32, 8), (32, 8), sparse("0.01")) + cells(("lm",), (32, 8), (8,), sparse("0.01"))),
    ("between", "how does it go with the number of ranks?",
     cells(IMAGES, (16, 4), (32,), ALL) + cells(("lm",), (16, 4), (8,), ALL) + cells(IMAGES, (16, 4), (8,), ALL)),
)


def runs():
    """(group, cell, seed), each cell once, by priority."""
    seen = set()
    for name, _, group in GROUPS:
        for cell in group:
            if cell not in seen:
                seen.add(cell)
                yield from ((name, cell, seed) for seed in SEEDS)
