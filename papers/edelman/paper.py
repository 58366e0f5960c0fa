"""Counting before matching: Edelman et al. 2024 on two symbols, two layers of one head, 100 tokens.

Recipe and tolerances are those that were written down before any of these runs, but for what page.md names.
"""

from dataclasses import replace

import numpy as np
import torch

import tracer

from .chains import LENGTH, Chains, Dirichlet, DoublyStochastic, Iid
from .numbers import fixed, on_dirichlet, on_doubly_stochastic, on_iid

UNIGRAM, BIGRAM = Dirichlet.lines["unigram"], Dirichlet.lines["bigram"]
CLOSE = 0.02
"""nats: a model is at the bigram strategy from the record on after which its loss is never again this much above."""

model = tracer.ModelConfig(
    n_layers=2, n_heads=1, d_model=16, n_ctx=LENGTH, norm="layer", norm_eps=1e-5, positions="rotary",
    init=replace(tracer.ModelConfig().init, embed=0.02, attn=0.02, unembed=0.02),
)  # fmt: skip
config = tracer.TrainConfig(
    steps=1200, device="cpu", model=model,
    optim=tracer.OptimConfig(name="adamw", lr=5e-4, beta2=0.95, weight_decay=0.1, warmup=0, clip=1.0, batch_size=64),
    record=tracer.RecordConfig(every=10, snapshot_every=200, state_every=0, val_rows=128, icl_rows=8, icl_every=1200,
                               log_every=1200),
)  # fmt: skip


def run(about, chains: type[Chains] = Dirichlet, scalars=on_dirichlet, clamp=(), **changes):
    changed = replace(config, model=replace(model, **changes), clamp=clamp)
    return tracer.PaperRun(about, changed, {"corpus": chains, "scalars": (scalars,)})


runs = {
    "dirichlet": run("both rows of each chain drawn from Dirichlet(1, 1): the paper's setting"),
    "doubly-stochastic": run(
        "both symbols are as frequent in every chain: counting them says nothing", DoublyStochastic,
        on_doubly_stochastic
    ),
    "iid": run("the symbol before says nothing: counting symbols is best", Iid, on_iid),
    "one-layer": run("one layer, which cannot look for what followed a symbol", n_layers=1),
    "previous": run("layer 0 looks at the token before, from step 0 on", clamp=("L0 previous",)),
    "no-previous": run("layer 0 may not look at the token before", clamp=("L0 no-previous",)),
}  # fmt: skip


def curve(run, name):
    """(steps, values) of a number at the records that have it: on a busy machine it is not asked at all of them."""
    values = run.trace[name].values
    return run.trace["step"].values[np.isfinite(values)], values[np.isfinite(values)]


def date(run):
    """The first step from which on the loss is within CLOSE of the bigram strategy's; nan where there is none."""
    steps, excess = curve(run, "excess")
    above = np.flatnonzero(~(excess < CLOSE))
    at = above[-1] + 1 if len(above) else 0
    return float(steps[at]) if at < len(steps) else np.nan


def counting_stage(run):
    """Steps at which the unigram strategy is the nearest of the three by KL, of a run that was nearest to uniform first
    and is to bigram last; 0 of another."""
    steps, _ = curve(run, "kl_uniform")
    nearest = np.argmin([curve(run, f"kl_{name}")[1] for name in ("uniform", "unigram", "bigram")], axis=0)
    lasts = np.diff(steps, append=steps[-1])
    return float(lasts[nearest == 1].sum()) if nearest[0] == 0 and nearest[-1] == 2 else 0.0


def longest_near(run, low, high, reach=0.01):
    """Steps of the longest stretch of records in which held-out loss stays within `reach` of one level."""
    steps, loss = curve(run, "val_loss")
    longest = 0
    for level in np.arange(low, high + 1e-9, 0.0025):
        near = np.abs(loss - level) <= reach
        edges = np.flatnonzero(np.diff(np.concatenate([[0], near.astype(int), [0]])))
        for begin, end in edges.reshape(-1, 2):
            longest = max(longest, int(steps[end - 1] - steps[begin]))
    return float(longest)


def last(run, name):
    return float(curve(run, name)[1][-1])


def without(runs, heads, mode="mean"):
    """Loss with heads replaced, beside the exact line: what the ablation adds on these rows to the line and the excess,
    so that the luck of the rows does not count."""
    rows = torch.from_numpy(fixed(Dirichlet, LENGTH)[0])
    found = tracer.ablate.losses(runs["dirichlet"].model(), rows, [[], heads], mode)
    clean, off = found.mean((1, 2)).tolist()
    return BIGRAM + last(runs["dirichlet"], "excess") + off - clean


def no_circuit(runs):
    end = last(runs["dirichlet"], "excess")
    return f"the loss ends {end:.3f} nats above the bigram strategy's: no circuit formed" if not end < CLOSE else ""


STAGES = (
    "after an initial stage in which predictions are uniform, they learn to sub-optimally predict using in-context "
    "single-token statistics (unigrams); then, there is a rapid phase transition to the correct in-context bigram "
    "solution"
)  # fmt: skip

paper = tracer.Paper(
    title="Counting before matching: statistical induction heads",
    source="Edelman, Edelman, Goel, Malach, Tsilivis 2024, arXiv 2402.11004",
    runs=runs,
    quick=("dirichlet",),
    claims=(
        tracer.Claim(
            "between uniform and bigram the model is nearest to unigram, for 50 steps or more",
            ("dirichlet", "doubly-stochastic"), lambda runs: counting_stage(runs["dirichlet"]), (50, None), "steps",
            published=STAGES, place="abstract; Figure 1, right",
            control=tracer.Control(
                "the same on chains where counting symbols says nothing",
                lambda runs: counting_stage(runs["doubly-stochastic"]), (None, 49), "steps",
            ),
        ),
        tracer.Claim(
            f"the loss rests at the unigram line ({UNIGRAM:.3f}, within 0.01) for 50 steps",
            ("dirichlet", "doubly-stochastic"), lambda runs: longest_near(runs["dirichlet"], UNIGRAM, UNIGRAM),
            (50, None), "steps", weaker=(20, None),
            control=tracer.Control(
                "the same stretch of chains without a unigram stage, at any level from 0.60 to 0.68",
                lambda runs: longest_near(runs["doubly-stochastic"], 0.60, 0.68), (None, 49), "steps",
            ),
        ),
        tracer.Claim(
            "it ends at the bigram strategy: expected loss at most 0.015 above it, and not below", ("dirichlet",),
            lambda runs: last(runs["dirichlet"], "excess"), (-0.002, 0.015), "nats",
            published="then, there is a rapid phase transition to the correct in-context bigram solution",
            place="abstract",
            control=tracer.Control(
                "with the context shuffled the last loss rises, as a share of what counting costs there",
                lambda runs: last(runs["dirichlet"], "shuffled_rise") / last(runs["dirichlet"], "counting_rise"),
                (0.7, None),
            ),
        ),
        tracer.Claim(
            "without useful unigrams the bigram solution comes earlier: steps, doubly stochastic less Dirichlet",
            ("dirichlet", "doubly-stochastic"),
            lambda runs: date(runs["doubly-stochastic"]) - date(runs["dirichlet"]), (None, -1), "steps", order=True,
            published="evidence that the presence of the simpler unigram solution may delay formation of the final "
            "bigram solution", place="abstract",
        ),
        tracer.Claim(
            "on i.i.d. chains it counts: it ends nearer to unigram than to bigram", ("iid",),
            lambda runs: last(runs["iid"], "kl_unigram") - last(runs["iid"], "kl_bigram"), (None, 0), "nats",
        ),
        tracer.Claim(
            f"one layer stays at the unigram line: its last held-out loss is above {UNIGRAM - 0.015:.3f}",
            ("one-layer",), lambda runs: last(runs["one-layer"], "val_loss"), (UNIGRAM - 0.015, None), "nats",
        ),
        tracer.Claim(
            f"L0H0 mean-ablated at the end, the loss is back at the unigram line ({UNIGRAM:.3f}, within 0.03)",
            ("dirichlet",), lambda runs: without(runs, [(0, 0)]), (UNIGRAM - 0.03, UNIGRAM + 0.03), "nats",
            control=tracer.Control(
                "both heads mean-ablated: uniform, 0.693 within 0.03", lambda runs: without(runs, [(0, 0), (1, 0)]),
                (0.663, 0.723), "nats",
            ), too_small=no_circuit,
        ),
        tracer.Claim(
            "with layer 0 held at the token before, the bigram solution comes earlier: steps, held less free",
            ("dirichlet", "previous"), lambda runs: date(runs["previous"]) - date(runs["dirichlet"]), (None, -1),
            "steps", order=True,
        ),
        tracer.Claim(
            f"where layer 0 may not look at the token before, the loss stays above {UNIGRAM - 0.03:.3f}",
            ("no-previous",), lambda runs: last(runs["no-previous"], "val_loss"), (UNIGRAM - 0.03, None), "nats",
        ),
    ),
    chart=tracer.PaperChart(
        "Nearest to uniform first, then to counting symbols, then to counting what followed.", ("dirichlet",),
        lambda runs: {name: curve(runs["dirichlet"], f"kl_{name}") for name in ("uniform", "unigram", "bigram")},
        "KL to each strategy, nats", log="xy",
    ),
)  # fmt: skip
