"""Three arguments that induction heads make in-context learning: Olsson et al. 2022 on random tokens that come again.

Words are in page.md.
"""

from dataclasses import replace

import numpy as np

import tracer

from .numbers import NEW, copied, left, scores

toy = tracer.preset("induction").config
config = replace(
    toy, device="cpu",
    record=tracer.RecordConfig(every=25, snapshot_every=300, state_every=0, val_rows=32, icl_rows=512, icl_every=25,
                               log_every=600),
)  # fmt: skip
FORMED = 0.3
"""A head is an induction head from an induction score of so much above its control."""
MOST = 0.51
"""Most is this share or more: more than one half of up to 49 heads."""


def run(about, steps, **changes):
    return tracer.PaperRun(about, replace(config, steps=steps, model=replace(config.model, **changes)))


runs = {
    "two": run("two layers, attention only: the preset", 600),
    "two-smeared": run("its keys are smeared", 300, smear="keys"),
    "one": run("one layer, which has no earlier head to read", 600, n_layers=1),
    "one-smeared": run("one layer with smeared keys", 300, n_layers=1, smear="keys"),
    "one-queries": run("one layer with smeared queries: as many parameters", 600, n_layers=1, smear="queries"),
}


def above_control(run):
    """Induction scores less their controls, [step layer head]."""
    return (run.trace.induction - run.trace.induction_control).values


def reached(run, value):
    """The step from which on the best head is at `value` or above, between records; nan where it is never below, or
    ends below."""
    steps, best = run.trace["step"].values, above_control(run).max((1, 2))
    below = np.flatnonzero(~(best >= value))
    if not len(below) or below[-1] + 1 == len(steps):
        return np.nan
    crossing = slice(below[-1], below[-1] + 2)
    return float(np.interp(value, best[crossing], steps[crossing]))


def formed_with(run):
    """The share of the last in-context learning score that forms while the best head goes from 0.1 to 0.9 of its
    last score."""
    last = above_control(run)[-1].max()
    score = run.trace["icl_score"].values
    begin, end = (np.interp(reached(run, part * last), run.trace["step"].values, score) for part in (0.1, 0.9))
    return float((end - begin) / score[-1])


def last_score(run):
    return float(run.trace["icl_score"].values[-1])


def halfway(run, last):
    """The first step, between records, at which the in-context learning score passes half of `last`; nan if never, or
    from the first record on."""
    steps, score = run.trace["step"].values, run.trace["icl_score"].values
    passed = np.flatnonzero(score <= last / 2)
    if not len(passed) or passed[0] == 0:
        return np.nan
    crossing = slice(passed[0] - 1, passed[0] + 1)
    return float(np.interp(-last / 2, -score[crossing], steps[crossing]))


def learned_by(runs):
    """When two layers pass half of the last score of the plain ones: with smeared keys, and without, in steps."""
    last = last_score(runs["two"])
    return halfway(runs["two-smeared"], last), halfway(runs["two"], last)


def head_by(runs):
    """When an induction head is there with smeared keys, and without, in steps."""
    return reached(runs["two-smeared"], FORMED), reached(runs["two"], FORMED)


def heads(run):
    """Those that are induction heads at the end, and all others."""
    last = above_control(run)[-1] >= FORMED
    return [tuple(map(int, one)) for one in np.argwhere(last)], [tuple(map(int, one)) for one in np.argwhere(~last)]


def without(runs, which, frozen):
    """The share of the score without all induction heads (which=0), or all others (which=1), of two layers."""
    return float(left(runs["two"].model(), [heads(runs["two"])[which]], frozen)[0])


def others_alone(runs, frozen):
    """By how much of itself the score grows without each head that is no induction head, one at a time."""
    return left(runs["two"].model(), [[one] for one in heads(runs["two"])[1]], frozen) - 1


def no_head(runs):
    found, others = heads(runs["two"])
    if not found:
        return f"no head of two layers ends at an induction score of {FORMED} above its control"
    return "" if others else "all heads are induction heads"


SMEARED = (
    "when we use the smeared-key architecture, in-context learning does indeed form for one-layer models (when it "
    "didn't before), and it forms earlier for two-layer and larger models"
)

paper = tracer.Paper(
    title="Three arguments for induction heads: together, sooner, without",
    source="Olsson, Elhage, Nanda, Joseph et al. 2022, arXiv 2209.11895",
    runs=runs,
    quick=("two", "two-smeared"),
    claims=(
        tracer.Claim(
            "while the best head goes from 0.1 to 0.9 of its induction score, 0.6 of the final score of in-context "
            "learning forms", ("two", "one"), lambda runs: formed_with(runs["two"]), (0.6, None), "of the score",
            published="over 75% of final in-context learning forms in this window", place="Argument 1",
            control=tracer.Control(
                "the final score of one layer, as a share of that of two",
                lambda runs: last_score(runs["one"]) / last_score(runs["two"]), (None, 0.4),
            ), too_small=no_head,
        ),
        tracer.Claim(
            "with smeared keys two layers pass half of the plain ones' last score of in-context learning earlier: "
            "steps, smeared less plain", ("two", "two-smeared"),
            lambda runs: float(np.subtract(*learned_by(runs))), (None, -1), "steps", order=True,
            published=SMEARED, place="Argument 2",
        ),
        tracer.Claim(
            "with smeared keys two layers have an induction head by 0.6 of the steps of plain ones",
            ("two", "two-smeared"), lambda runs: float(np.divide(*head_by(runs))), (None, 0.6), "of the steps",
        ),
        tracer.Claim(
            "with smeared keys the in-context learning score of one layer is 0.8 or more of that of two plain ones",
            ("two", "one", "one-smeared"),
            lambda runs: last_score(runs["one-smeared"]) / last_score(runs["two"]), (0.8, None), "of the score",
            published=SMEARED, place="Argument 2",
            control=tracer.Control(
                "one layer with plain keys", lambda runs: last_score(runs["one"]) / last_score(runs["two"]),
                (None, 0.4),
            ),
        ),
        tracer.Claim(
            "one layer with smeared keys copies more than 0.5 of the second copy", ("one", "one-smeared"),
            lambda runs: copied(runs["one-smeared"].model()), (0.5, None), "of copies",
            control=tracer.Control(
                "one layer with plain keys", lambda runs: copied(runs["one"].model()), (None, 0.15), "of copies"
            ),
        ),
        tracer.Claim(
            "where nothing repeats, its in-context learning score is not below -0.5 nats", ("one-smeared",),
            lambda runs: float(scores(runs["one-smeared"].model(), rows=NEW)[0]), (-0.5, None), "nats",
            control=tracer.Control(
                "where blocks repeat", lambda runs: float(scores(runs["one-smeared"].model())[0]), (None, -2), "nats"
            ),
        ),
        tracer.Claim(
            "one layer with smeared queries, of as many parameters as smeared keys, copies less than 0.15",
            ("one-queries",), lambda runs: copied(runs["one-queries"].model()), (None, 0.15), "of copies",
        ),
        tracer.Claim(
            "with smeared keys the induction head of two layers stands in layer 0: its best score there is 0.3 or more",
            ("two", "two-smeared"), lambda runs: float(above_control(runs["two-smeared"])[-1, 0].max()), (0.3, None),
            control=tracer.Control(
                "the best of layer 0 with plain keys", lambda runs: float(above_control(runs["two"])[-1, 0].max()),
                (None, 0.1),
            ),
        ),
        tracer.Claim(
            "without the induction heads, patterns frozen, less than 0.2 of in-context learning is left", ("two",),
            lambda runs: without(runs, 0, True), (None, 0.2), "of the score",
            published="almost all the in-context learning in small attention-only models appears to come from these "
            "induction heads", place="Argument 3",
            control=tracer.Control(
                "without all other heads, patterns frozen", lambda runs: without(runs, 1, True), (0.8, None),
                "of the score",
            ), too_small=no_head,
        ),
        tracer.Claim(
            "without all other heads and patterns free, less than 0.2 is left: induction heads need them to look",
            ("two",), lambda runs: without(runs, 1, False), (None, 0.2), "of the score",
            control=tracer.Control(
                "the same with patterns frozen", lambda runs: without(runs, 1, True), (0.8, None), "of the score"
            ), too_small=no_head,
        ),
        tracer.Claim(
            "patterns frozen, the score grows without most other heads, one at a time", ("two",),
            lambda runs: float((others_alone(runs, True) > 0).mean()), (MOST, None), "of these heads",
            published="ablating most other attention heads appears to increase in-context learning",
            place="Argument 3, footnote 17", too_small=no_head,
        ),
        tracer.Claim(
            "patterns free, it shrinks without most of them, one at a time", ("two",),
            lambda runs: float((others_alone(runs, False) < 0).mean()), (MOST, None), "of these heads",
            too_small=no_head,
        ),
    ),
    chart=tracer.PaperChart(
        "Two layers gain most of it at a step, with smeared keys sooner; one layer slowly, and a third as much.",
        ("two", "two-smeared", "one"),
        lambda runs: {
            label: (runs[name].trace["step"].values, -runs[name].trace["icl_score"].values)
            for name, label in (("two", "two layers"), ("two-smeared", "keys smeared"), ("one", "one layer"))
        },
        "loss that the context saves, nats",
    ),
)  # fmt: skip
