"""Grokking, by heads: sums modulo a prime, by heart first and by waves later.

After Power et al. 2022, Nanda et al. 2023 and Zhong et al. 2023. Words are in page.md.
"""

from dataclasses import replace

import numpy as np
import torch

import tracer

from .numbers import (
    answers,
    attention,
    headless,
    logits_of,
    loss_of,
    of_answers,
    of_shuffled,
    of_sums,
    right,
    right_alike,
    right_without,
    structured,
)
from .sums import N_TRAIN, P, Shuffled, Sums, exactly, trained_on
from .waves import by_difference, key_frequencies, only, shares, without

WIDTH, NEURONS = 64, 128
model = tracer.ModelConfig(
    n_layers=1, n_heads=4, d_model=WIDTH, n_ctx=4, mlp_hidden=(NEURONS,), norm="none",
    init=replace(tracer.ModelConfig().init, embed=WIDTH**-0.5, pos=WIDTH**-0.5, mlp=WIDTH**-0.5, unembed=P**-0.5),
)  # fmt: skip
config = tracer.TrainConfig(
    steps=2500, device="cpu", model=model,
    optim=tracer.OptimConfig(lr=5e-3, weight_decay=1.0, beta2=0.98, warmup=10, clip=None, batch_size=N_TRAIN),
    record=tracer.RecordConfig(every=50, snapshot_every=50, state_every=0, val_rows=64, repeat_rows=4, icl_rows=8,
                               icl_every=100_000, log_every=500, text_prompts=2, repeat_prompts=0),
)  # fmt: skip


def uniform(head):
    """Every query looks at all tokens so far alike."""
    n = head.tokens.shape[1]
    return torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]


def run(about, source=Sums, scalars=of_sums, weight_decay=1.0, **code):
    changed = replace(config, optim=replace(config.optim, weight_decay=weight_decay))
    return tracer.PaperRun(about, changed, {"corpus": source, "scalars": (scalars,), "loss": exactly} | code)


runs = {
    "decay": run("weight decay 1, as Nanda's"),
    "no-decay": run("without weight decay", weight_decay=0.0),
    "shuffled": run("the same answers given to other pairs", Shuffled, of_shuffled),
    "uniform": run("every head attends to all tokens alike", clamp={"L0": uniform}),
}

HELD, TRAINED = ~trained_on(), trained_on()
ALL = [(0, head) for head in range(4)]
GUESS = float(np.log(P))
DRAWS = 10
"""Random sets beside a set that was chosen."""


def ends(run, name):
    """The last value of a number, one or [head]."""
    return run.trace[name].values[-1]


def first(run, name, least):
    """The first record at which a number is `least` or more, as a step; nan if there is none."""
    passed = np.flatnonzero(run.trace[name].values >= least)
    return float(run.trace["step"].values[passed[0]]) if len(passed) else np.nan


def falls(run, curve, level=GUESS / 10):
    """The first snapshot from which on a loss is below a level, as a step; nan where it never is."""
    above = [step for step, value in zip(run.steps, curve, strict=True) if not value < level]
    later = [step for step in run.steps if not above or step > above[-1]]
    return float(later[0]) if later else np.nan


_found, _filtered = {}, {}
"""By run; several claims ask for them."""


def found(run):
    """What a model knows in the end: its key frequencies, and DRAWS sets of as many others."""
    if run not in _found:
        keys = key_frequencies(logits_of(run.model()))
        others, rng = np.setdiff1d(np.arange(1, P // 2 + 1), keys), np.random.default_rng(0)
        n = min(len(keys), len(others))
        _found[run] = keys, [rng.choice(others, n, replace=False) for _ in range(DRAWS)]
    return _found[run]


def filtered(run):
    """Losses at each snapshot, [step] by name: held-out pairs by whole logits; by the key frequencies alone
    (restricted), trained pairs by logits without them (excluded); and both with as many other frequencies."""
    if run not in _filtered:
        rows = [of_snapshot(logits_of(run.model(step)), *found(run)) for step in run.steps]
        _filtered[run] = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return _filtered[run]


def of_snapshot(logits, keys, others):
    """Those losses of one model, by name."""

    def loss(of, where):
        return loss_of(of, answers(Sums))[where].mean()

    return {
        "test": loss(logits, HELD),
        "restricted": loss(only(logits, keys), HELD),
        "excluded": loss(without(logits, keys), TRAINED),
        "other": np.mean([loss(only(logits, one), HELD) for one in others]),
        "less other": np.mean([loss(without(logits, one), TRAINED) for one in others]),
    }  # fmt: skip


def sooner(run):
    """Steps from the fall of the held-out loss to that of the restricted loss; below 0 where this comes first."""
    return falls(run, filtered(run)["restricted"]) - falls(run, filtered(run)["test"])


def before(run, name):
    """A filtered loss at the last snapshot at which whole logits lose more than a guess on held-out pairs."""
    curves = filtered(run)
    return float(curves[name][np.flatnonzero(curves["test"] > GUESS)[-1]])


def right_less(run, frequencies):
    """The share of held-out pairs that are right by logits without some frequencies."""
    return right(without(logits_of(run.model()), frequencies), answers(Sums), HELD)


def by_filter(run):
    """The share of held-out pairs that are right by the waves of a + b in the logits, of all frequencies."""
    return right(only(logits_of(run.model()), np.arange(1, P // 2 + 1)), answers(Sums), HELD)


def at_random(which, n):
    """A mean over DRAWS random sets of n neurons."""
    rng = np.random.default_rng(1)
    return float(np.mean([which(rng.choice(NEURONS, n, replace=False)) for _ in range(DRAWS)]))


def neurons_cost(run, n=None):
    """Right answers to held-out pairs without the n best explained neurons (all structured ones by default), and
    without as many random ones."""
    trained = run.model()
    chosen = structured(trained) if n is None else structured(trained, 0)[:n]
    return right_without(trained, chosen), at_random(lambda which: right_without(trained, which), len(chosen))


def difference_share(run, clamps=True):
    """The share of the variance of the right answers' logits, less the mean of each pair's, that a - b explains."""
    logits = logits_of(run.model(clamps=clamps))
    return by_difference(of_answers(logits - logits.mean(-1, keepdims=True), answers(Sums)))


def heads(run, n):
    """The share of the variance of each head's image, its attention from "=" to a, that its best n frequencies explain,
    [head]."""
    return np.sort(shares(attention(run.model())))[:, -n:].sum(-1)


def between(run):
    """Steps from the record at which all trained pairs are right to that at which 0.99 of held-out pairs are."""
    return first(run, "right_test", 0.99) - first(run, "right_train", 1)


def at_memory(run):
    """The share of held-out pairs that are right at the first record at which all trained pairs are."""
    return float(run.trace["right_test"].values[run.trace["step"].values == first(run, "right_train", 1)][0])


def shrinks(run, at):
    """The norm of all weights at a step, as a share of the largest before."""
    steps, norms = run.trace["step"].values, run.trace["size_of_weights"].values
    return float(norms[steps == at][0] / norms[steps <= at].max()) if at == at else np.nan


def another(runs):
    """What a - b explains where heads attend alike, less what it does where they are free."""
    return difference_share(runs["uniform"], {"L0": uniform}) - difference_share(runs["decay"])


def not_there(runs):
    """Why a model has no circuit to take apart."""
    share = float(ends(runs["decay"], "right_test"))
    return "" if share > 0.99 else f"in the end {share:.2f} of held-out pairs are right: it has not generalised"


def decay(text, figure, within, unit="", needs=("decay",), **more):
    """A claim about the run with weight decay, once it has generalised."""
    return tracer.Claim(text, needs, lambda runs: figure(runs["decay"]), within, unit, too_small=not_there, **more)


NANDA = "Nanda, as quoted in a review"
BOTH, FREE_OR_NOT = ("decay", "no-decay"), ("decay", "uniform")

paper = tracer.Paper(
    title="Grokking, by heads: first by heart, then by waves",
    source="Power, Burda, Edwards, Babuschkin, Misra 2022, arXiv 2201.02177; Nanda, Chan, Lieberum, Smith, Steinhardt "
    "2023, arXiv 2301.05217; Zhong, Liu, Tegmark, Andreas 2023, arXiv 2306.17844",
    runs=runs,
    quick=("decay",),
    claims=(
        tracer.Claim(
            "when all trained pairs are right, less than 0.3 of held-out pairs are", ("decay",),
            lambda runs: at_memory(runs["decay"]), (None, 0.3), "of held-out pairs",
            published="improvement in generalization can happen well past the point of overfitting",
            place="Power, abstract",
            control=tracer.Control(
                "trained pairs right by step 300: the step", lambda runs: first(runs["decay"], "right_train", 1),
                (None, 300), "",
            ),
        ),
        tracer.Claim(
            "500 steps or more later, 0.99 of held-out pairs are right", ("decay",),
            lambda runs: between(runs["decay"]), (500, None), "steps",
            published="improvement in generalization can happen well past the point of overfitting",
            place="Power, abstract",
        ),
        tracer.Claim(
            "without weight decay less than 0.5 of held-out pairs are right in the end", BOTH,
            lambda runs: float(ends(runs["no-decay"], "right_test")), (None, 0.5), "of held-out pairs",
            published="without weight decay never", place=f"{NANDA}, appendix D.1",
            control=tracer.Control(
                "trained pairs that are right", lambda runs: float(ends(runs["no-decay"], "right_train")), (1, None)
            ), too_small=not_there,
        ),
        tracer.Claim(
            "where the same answers are given to other pairs, less than 0.05 of held-out pairs are right in the end",
            ("shuffled",), lambda runs: float(ends(runs["shuffled"], "right_test")), (None, 0.05), "of held-out pairs",
            control=tracer.Control(
                "trained pairs that are right", lambda runs: float(ends(runs["shuffled"], "right_train")), (0.99, None)
            ),
        ),
        decay(
            "the weights shrink by a tenth or more before 0.99 of held-out pairs are right: their norm, as a share of "
            "the largest before", lambda run: shrinks(run, first(run, "right_test", 0.99)), (None, 0.9), needs=BOTH,
            control=tracer.Control(
                "without weight decay, at the end", lambda runs: shrinks(runs["no-decay"], config.steps), (0.95, None)
            ),
        ),
        decay(
            "in the end at most 6 of 23 frequencies are key frequencies", lambda run: len(found(run)[0]), (None, 6),
            "frequencies", needs=BOTH, published="5 of 56; 3 or 4 in other seeds", place=NANDA,
            control=tracer.Control(
                "without weight decay", lambda runs: len(found(runs["no-decay"])[0]), (10, None), "frequencies"
            ),
        ),
        decay(
            "without the waves of the key frequencies in its logits, less than 0.1 of held-out pairs are right",
            lambda run: right_less(run, found(run)[0]), (None, 0.1), "of held-out pairs",
            published="removing the key frequencies costs about .99 of accuracy, random ones about .000",
            place="GROKVERSE, p = 113",
            control=tracer.Control(
                "the least right without as many other frequencies, of ten draws",
                lambda runs: min(right_less(runs["decay"], one) for one in found(runs["decay"])[1]), (0.95, None),
                "of held-out pairs",
            ),
        ),
        decay(
            "the restricted loss is below a tenth of a guess 100 steps or more before the held-out loss: steps, the "
            "first less the other", sooner,
            (None, -100), "steps", needs=BOTH,
            published="grokking, rather than being a sudden shift, arises from the gradual amplification of structured "
            "mechanisms encoded in the weights", place="Nanda, abstract",
            control=tracer.Control(
                "the restricted loss without weight decay, at the end, as a share of a guess",
                lambda runs: float(filtered(runs["no-decay"])["restricted"][-1] / GUESS), (0.25, None),
            ),
        ),
        decay(
            "when the held-out loss is still above a guess, the restricted loss is below a quarter of one",
            lambda run: before(run, "restricted") / GUESS, (None, 0.25), "of a guess",
            control=tracer.Control(
                "with as many other frequencies", lambda runs: before(runs["decay"], "other") / GUESS, (0.9, None),
                "of a guess",
            ),
        ),
        decay(
            "then the excluded loss of trained pairs, all of which are right, is above half of a guess",
            lambda run: before(run, "excluded") / GUESS, (0.5, None), "of a guess",
            control=tracer.Control(
                "without as many other frequencies", lambda runs: before(runs["decay"], "less other") / GUESS,
                (None, 0.25), "of a guess",
            ),
        ),
        tracer.Claim(
            "but the filter generalises by itself: without weight decay, logits restricted to all waves of a + b are "
            "right for more than 0.5 of held-out pairs", ("no-decay",), lambda runs: by_filter(runs["no-decay"]),
            (0.5, None), "of held-out pairs",
            control=tracer.Control(
                "its whole logits", lambda runs: float(ends(runs["no-decay"], "right_test")), (None, 0.3),
                "of held-out pairs",
            ),
        ),
        decay(
            "one frequency explains 0.95 or more of each head's attention from = to a: the least of four heads",
            lambda run: heads(run, 1).min(), (0.95, None), "of variance", weaker=(0.8, None), needs=BOTH,
            published="99.0, 98.5, 99.1 and 97.9 %", place=NANDA,
            control=tracer.Control(
                "the most of four heads without weight decay", lambda runs: heads(runs["no-decay"], 1).max(),
                (None, 0.5), "of variance",
            ),
        ),
        decay(
            "two frequencies explain 0.85 or more of each head's attention from = to a: the least of four heads",
            lambda run: heads(run, 2).min(), (0.85, None), "of variance", needs=BOTH,
            control=tracer.Control(
                "the most of four heads without weight decay", lambda runs: heads(runs["no-decay"], 2).max(),
                (None, 0.6), "of variance",
            ),
        ),
        decay(
            "with all four heads writing nothing the loss of all pairs is above 10",
            lambda run: headless(run.model(), ALL), (10, None), "nats", published="24.3", place=NANDA,
            control=tracer.Control(
                "with all heads on", lambda runs: headless(runs["decay"].model(), []), (None, 0.01), "nats"
            ),
        ),
        decay(
            "neurons, the figure that misleads: one frequency explains 0.85 or more of most neurons, and without them "
            "less than 0.3 of held-out pairs are right", lambda run: neurons_cost(run)[0], (None, 0.3),
            "of held-out pairs",
        ),
        decay(
            "its control: without as many random neurons as many are right, within 0.1: it says nothing of waves",
            lambda run: float(np.subtract(*neurons_cost(run))), (-0.1, 0.1), "of held-out pairs",
            published="removing structured neurons is no worse than random ones: the rule selects 88-98 %",
            place="GROKVERSE, p = 113",
            control=tracer.Control(
                "the share of neurons that the rule selects",
                lambda runs: len(structured(runs["decay"].model())) / NEURONS, (0.85, None), "of neurons",
            ),
        ),
        decay(
            "without the quarter of neurons that one frequency explains best, fewer held-out pairs are right than "
            "without as many random neurons: by 0.1 or more",
            lambda run: float(np.subtract(*neurons_cost(run, NEURONS // 4))), (None, -0.1), "of held-out pairs",
        ),
        tracer.Claim(
            "where every head attends to all tokens alike from the start, 0.99 of held-out pairs are right in the end",
            FREE_OR_NOT, lambda runs: float(ends(runs["uniform"], "right_test")), (0.99, None), "of held-out pairs",
            published="Some networks trained to perform modular addition implement a familiar Clock algorithm; others "
            "implement a previously undescribed, less intuitive, but comprehensible procedure which we term the Pizza "
            "algorithm", place="Zhong, abstract",
            control=tracer.Control(
                "the model of free heads, held so in the end", lambda runs: right_alike(runs["decay"].model()),
                (None, 0.6), "of held-out pairs",
            ), too_small=not_there,
        ),
        tracer.Claim(
            "it does so by another circuit: a - b explains more of the variance of its right answers' logits than with "
            "free heads, by 0.1 or more", FREE_OR_NOT, another, (0.1, None), "of variance", too_small=not_there,
        ),
        tracer.Claim(
            "and sooner: the step at which 0.99 of held-out pairs are right, less that with free heads", FREE_OR_NOT,
            lambda runs: first(runs["uniform"], "right_test", 0.99) - first(runs["decay"], "right_test", 0.99),
            (None, -100), "steps",
        ),
    ),
    chart=tracer.PaperChart(
        "Pairs that it was trained on are right long before those that it never saw.", ("decay",),
        lambda runs: {
            label: (runs["decay"].trace["step"].values, runs["decay"].trace[name].values)
            for name, label in (("right_train", "trained on"), ("right_test", "held out"))
        },
        "pairs that are right, share", log="x",
    ),
)  # fmt: skip
