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
MOMENTUM = "0"  # as the exchange sees it, too: with momentum every algorithm would need rates of its own
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


# Learning rates: for 64, 256 and 1,024 samples a step, the best of a few for dense_ring after the last epoch, seed 100; between
# and beyond these, the next one below. (perf/study --tune tries `rates`.)
MODELS = {
    "mlp": Model(("--hidden1", "64", "--hidden2", "32"), 8, ("0.125", "0.25", "0.5", "1"),
                 {64: "0.25", 256: "0.5", 1024: "0.5"}, "test_accuracy", "%", 1),
    "conv": Model(("--hidden1", "4", "--hidden2", "128", "--samples", "30000"), 8, ("0.05", "0.15", "0.3", "0.5"),
                  {64: "0.15", 256: "0.3", 1024: "0.3"}, "test_accuracy", "%", 1),
    "lm": Model(("--hidden1", "64", "--length", "24", "--samples", "20000", "--test-samples", "2000"), 4,
                ("1", "2", "4", "8"), {64: "4", 256: "4"}, "test_bits", "bits per character", -1),
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
    slower: int = 1     # the learning rate is divided by it

    @property
    def name(self):
        """Of its files."""
        parts = [self.model, f"p{self.ranks}", f"b{self.batch}", self.label.replace(", ", "-").replace(" ", "-").replace("/", "-")]
        return "_".join(parts + ([f"e{self.epochs}"] if self.epochs else []))

    @property
    def label(self):
        """What stands in a row of a table, ranks and batch aside."""
        if self.algo == DENSE:
            return DENSE
        words = [" ".join(word for word in (self.algo, self.variant, self.density) if word)]
        words += ["warm-up"] * bool(self.warmup) + [f"rate/{self.slower}"] * (self.slower > 1)
        return ", ".join(words)

    @property
    def dense(self):
        """The cell that this one is compared with."""
        return Cell(self.model, self.ranks, self.batch, DENSE, epochs=self.epochs)

    @property
    def rate(self):
        """The learning rate."""
        lr = MODELS[self.model].lr
        best = lr[max((samples for samples in lr if samples <= self.ranks * self.batch), default=min(lr))]
        return best if self.slower == 1 else f"{float(best) / self.slower:g}"

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
    "published": ("--trimmed", "published"),
}


def cells(models, ranks, batches, algos, **more):
    """All combinations; algos are (name, density, variant)."""
    return [Cell(m, p, b, *a, **(more if a[0] != DENSE else {}))
            for m, p, b, a in itertools.product(models, ranks, batches, algos)]


def tournaments(*densities):
    """With and without adoption, and what the tournament is measured by."""
    return [(name, d, variant) for d in densities
            for name, variant in (("gtopk", ""), ("gtopk", "published"), ("topk_allgather", ""))]


IMAGES = ("mlp", "conv")
RINGS = [("iwp_ring", IWP_DENSITY, ""), ("prune_ring", "0.01", ""), ("prune_ring", "0.001", "")]
EVERYTHING = [(DENSE,), *tournaments("0.001", "0.01"), *RINGS]
# (name, the question, cells), the most important first. Warm-up is Shi et al.'s, an epoch each, down to the density.
GROUPS = (
    ("target", "8 ranks, 12 epochs: as good as dense within half a point?",
     [Cell(m, 8, 32, *a, epochs=12) for m in IMAGES
      for a in ((DENSE,), ("gtopk", "0.001", "", 4), ("iwp_ring", IWP_DENSITY, "", 4))]),
    ("large", "32 ranks, large batch: does keeping the trimmed mass repair the loss?",
     cells(("mlp",), (32,), (32,), EVERYTHING, warmup=4)),
    ("cold", "the same without the density's warm-up", cells(("mlp",), (32,), (32,), tournaments("0.001", "0.01"))),
    ("small", "32 ranks, small batch", cells(("mlp",), (32,), (8,), [(DENSE,), *tournaments("0.001", "0.01")], warmup=4)),
    ("few", "8 ranks, large batch", cells(("mlp",), (8,), (32,), EVERYTHING, warmup=4)),
    ("text", "32 ranks: does a language model tell the same?", cells(("lm",), (32,), (8,), EVERYTHING, warmup=2)),
    ("between", "16 and 4 ranks, large batch",
     cells(("mlp",), (16, 4), (32,), [(DENSE,), *tournaments("0.001", "0.01")], warmup=4)),
    ("conv", "32 ranks, large batch: a convolutional network", cells(("conv",), (32,), (32,), EVERYTHING, warmup=4)),
    ("slower", "32 ranks, large batch, with lower learning rates",
     [cell for slower in (2, 4) for cell in cells(("mlp",), (32,), (32,), tournaments("0.001", "0.01"), warmup=4, slower=slower)]),
    ("few-text", "8 ranks: the language model", cells(("lm",), (8,), (8,), EVERYTHING, warmup=2)),
    ("conv-few", "8 ranks, large batch: the convolutional network", cells(("conv",), (8,), (32,), EVERYTHING, warmup=4)),
    ("few-small", "8 ranks, small batch", cells(IMAGES, (8,), (8,), [(DENSE,), *tournaments("0.001")], warmup=4)),
)


def runs():
    """(group, cell, seed), each cell once, by priority."""
    seen = set()
    for name, _, group in GROUPS:
        for cell in group:
            if cell not in seen:
                seen.add(cell)
                yield from ((name, cell, seed) for seed in SEEDS)
