"""An induction head with parts of its circuit held while it forms: Singh et al. 2024. Words are in page.md."""

from dataclasses import replace

import numpy as np

import tracer

from .clamps import HEAD, copy, match, match_and_copy, own_token, previous
from .exemplars import FewShot, Items100, Items200, Labels10, Labels15
from .numbers import fixed, on, one_by_one, right_share, with_heads

EITHER = float(np.log(2))
"""nats: the loss of saying either label of the row."""
HALF = EITHER / 2
FORMED = {"previous_item": 0.7, "match": 0.9, "copied": 0.7}
"""A part is there from the record on after which it is never again below this."""
STRAIGHT = 0.75
"""How long a loss that falls by a straight line takes from 1.25 to 0.8 of ln 2, beside from 0.8 to 0.2 of it."""
THIRD = 0.333
"""The same of a part that rises by a straight line: to a fifth of its way, beside from there to four fifths."""

model = tracer.ModelConfig(n_layers=2, n_heads=8, d_model=64, n_ctx=5, positions="rotary", norm="layer", norm_eps=1e-5)
config = tracer.TrainConfig(
    device="cpu", model=model,
    optim=tracer.OptimConfig(name="adamw", lr=1e-3, weight_decay=0.0, warmup=0, batch_size=128),
    record=tracer.RecordConfig(every=5, snapshot_every=100, state_every=0, val_rows=64, repeat_rows=8, icl_rows=8,
                               icl_every=1000, log_every=1000),
)  # fmt: skip
ONE_HEAD = {f"L1H{head}": "off" for head in range(model.n_heads) if head != HEAD}
A, A_WRONG, B = {"L0": previous}, {"L0": own_token}, {f"L1H{HEAD}": match}


def run(about, steps=200, source=FewShot, loss=None, clamp=None, **record):
    changed = replace(config, steps=steps, record=replace(config.record, **record))
    code = {"corpus": source, "scalars": [on(source, loss)], "clamp": clamp or {}}
    return tracer.PaperRun(about, changed, code | ({"loss": loss} if loss else {}))


def of_one(about, *args, clamp=None, **options):
    """With one head of layer 1, the others off."""
    return run(about, *args, clamp=ONE_HEAD | (clamp or {}), **options)


runs = {
    "all-heads": run("nothing held, eight heads in layer 1", 900, every=20),
    "one-head": of_one("nothing held, one head in layer 1", 1200, every=20),
    "a": of_one("A held: labels look at their items in layer 0", 400, clamp=A),
    "b": of_one("B held, and so A: the head of layer 1 looks at the right label", 250, clamp=B),
    "c": of_one("C held: the scores of this head are what is said", 300, loss=copy),
    "a-c": of_one("A and C held: what is left is B", loss=copy, clamp=A),
    "b-c": of_one("B and C held: what is left is A", 300, loss=match_and_copy),
    "wrong-c": of_one("A held at the wrong place, each token at itself, and C held", loss=copy, clamp=A_WRONG),
    "a-c-100": of_one("A and C held, 100 classes", source=Items100, loss=copy, clamp=A),
    "a-c-200": of_one("A and C held, 200 classes", source=Items200, loss=copy, clamp=A),
    "b-10": of_one("B held, 10 labels", 250, Labels10, clamp=B),
    "b-15": of_one("B held, 15 labels", 250, Labels15, clamp=B),
    "b-200": of_one("B held, 200 classes", 250, Items200, clamp=B),
    "a-c-15": of_one("A and C held, 15 labels", source=Labels15, loss=copy, clamp=A),
}


def curve(run, name):
    """(steps, values) of a number at the records that have it; of heads, of the one that is asked: of layer 0 the best
    one at the end, where any may do."""
    values = run.trace[name].values
    if name == "match":
        values = values[:, 1, HEAD]
    elif name == "previous_item":
        values = values[:, 0, HEAD if "loss_match_and_copy" in run.trace else values[-1, 0].argmax()]
    return run.trace["step"].values[np.isfinite(values)], values[np.isfinite(values)]


def reached(steps, values, level):
    """The step, between records, from which on values stay at a level or above; nan where they end below."""
    below = np.flatnonzero(values < level)
    if not len(below):
        return 0.0
    at = below[-1]
    return float(np.interp(level, values[at : at + 2], steps[at : at + 2])) if at + 1 < len(steps) else np.nan


def date(run, part):
    return reached(*curve(run, part), FORMED[part])


def fallen(run, to):
    """The step from which on the loss with what is held stays at or below `to`."""
    steps, loss = curve(run, "said_loss")
    return reached(steps, -loss, -to)


def rest(run):
    """How long the loss rests before it falls: steps from 1.25 to 0.8 of ln 2, beside those from 0.8 to 0.2 of it."""
    early, late, end = (fallen(run, part * EITHER) for part in (1.25, 0.8, 0.2))
    return (late - early) / (end - late)


def rest_of(run, part):
    """How long a part rests before it rises: steps to a fifth of its way to FORMED, beside those to four fifths."""
    steps, values = curve(run, part)
    early, late = (reached(steps, values, values[0] + way * (FORMED[part] - values[0])) for way in (0.2, 0.8))
    return early / (late - early)


def beside(runs, name, other, part):
    """The date of a part in one run, as a share of that in the other."""
    return date(runs[name], part) / date(runs[other], part)


def sooner(runs, name):
    return fallen(runs[name], HALF) / fallen(runs["one-head"], HALF)


def delay(runs, names, part):
    """The smaller of the quotients of dates that follow each other."""
    dates = np.array([date(runs[name], part) for name in names])
    return float((dates[1:] / dates[:-1]).min())


def layer_by_head(runs, step=None):
    return one_by_one(runs["all-heads"].model(step), fixed(FewShot))


def losses_of_lead(runs, step=None):
    """By how much the lead of the right label falls with each head that is switched off."""
    return -np.diff([lead for lead, _ in layer_by_head(runs, step)[0]])


def alone_beside_together(runs):
    steps, alone = layer_by_head(runs)
    nothing = steps[-1][0]
    return (sum(alone) - len(alone) * nothing) / (steps[0][0] - nothing)


def let_go(runs):
    """The share that is right with B no longer held."""
    model = runs["b"].model(clamps=False)
    model.clamps = tracer.clamp.edits(runs["one-head"].config, 0)
    return right_share(model, fixed(FewShot))


def of_others(runs):
    """The most that a head of layer 0 which nothing asks of looks from labels to items."""
    return float(np.delete(runs["b-c"].trace["previous_item"].values[-1, 0], HEAD).max())


def on_rows(runs, **which):
    return right_share(runs["all-heads"].model(), fixed(FewShot, **which))


def drawn(runs):
    """The losses from where they are below 2 nats, a little above a guess of the label."""
    curves = {"nothing held": curve(runs["one-head"], "said_loss")}
    curves |= {f"{part} held": curve(runs[name], "said_loss") for name, part in EACH.items()}
    return {label: (steps[loss < 2], loss[loss < 2]) for label, (steps, loss) in curves.items()}


def without_layer_1(**which):
    """The control of what is right in rows of a kind: either label is right in half of them."""
    return tracer.Control(
        "without the heads of layer 1",
        lambda runs: with_heads(runs["all-heads"].model(), fixed(FewShot, **which), [])[1], (None, 0.6), "of rows",
    )  # fmt: skip


SUBCIRCUITS = (
    "By clamping subsets of activations throughout training, we then identify three underlying subcircuits that "
    "interact to drive IH formation, yielding the phase change."
)
ADDITIVE = "Using this framework, we delineate the diverse and additive nature of IHs."
DATA = (
    "Furthermore, these subcircuits shed light on data-dependent properties of formation, such as phase change timing"
)
RESTS = tracer.Control("with nothing held it rests", lambda runs: rest(runs["one-head"]), (1, None))
WRONG = tracer.Control(
    "with A held at the wrong place and C held, the loss ends near ln 2 (0.693)",
    lambda runs: float(curve(runs["wrong-c"], "said_loss")[1][-1]), (0.6, None), "nats",
)  # fmt: skip
EACH = {"a": "A", "b": "B", "c": "C"}
WATCHED = {"b": ("A and B", "C"), "a-c": ("A and C", "B"), "b-c": ("B and C", "A")}


def smooth(name):
    return tracer.Claim(
        f"with {WATCHED[name][0]} held the loss does not rest before it falls: {STRAIGHT} is a straight line",
        (name, "one-head"), lambda runs: rest(runs[name]), (None, STRAIGHT), published=SUBCIRCUITS, place="abstract",
        control=RESTS,
    )  # fmt: skip


def earlier(name, part, control, *needs):
    return tracer.Claim(
        f"with {WATCHED[name][0]} held, {WATCHED[name][1]} is there in half of the steps that it takes with nothing "
        "held", (name, "one-head", *needs), lambda runs: beside(runs, name, "one-head", part), (None, 0.5),
        "of the steps", control=control,
    )  # fmt: skip


paper = tracer.Paper(
    title="What needs to go right: an induction head with parts of its circuit held",
    source="Singh, Moskovitz, Hill, Chan, Saxe 2024, arXiv 2404.07129",
    runs=runs,
    quick=("one-head", "b", "a-c"),
    claims=(
        smooth("b"),
        smooth("a-c"),
        tracer.Claim(
            "with B and C held A does not rest before it rises: 0.333 is a straight line", ("b-c", "all-heads"),
            lambda runs: rest_of(runs["b-c"], "previous_item"), (None, THIRD), published=SUBCIRCUITS, place="abstract",
            control=tracer.Control(
                "with nothing held, and eight heads, it rests",
                lambda runs: rest_of(runs["all-heads"], "previous_item"), (1, None),
            ),
        ),
        earlier(
            "b", "copied",
            tracer.Control("with the clamp off at test, it is right in so many rows", let_go, (None, 0.7), "of rows"),
        ),
        earlier(
            "a-c", "match",
            tracer.Control(
                "A held at the wrong place: B ends at", lambda runs: float(curve(runs["wrong-c"], "match")[1][-1]),
                (None, 0.6),
            ), "wrong-c",
        ),
        earlier(
            "b-c", "previous_item",
            tracer.Control("heads of layer 0 of which nothing is asked end at most at", of_others, (None, 0.6)),
        ),
        *(
            tracer.Claim(
                f"{part} held alone, the loss is at half of ln 2 in three quarters of the steps or less",
                (name, "one-head", "wrong-c"), lambda runs, name=name: sooner(runs, name), (None, 0.75),
                "of the steps", control=WRONG,
            ) for name, part in EACH.items()
        ),
        tracer.Claim(
            "eight heads: without the best one of layer 1, 0.95 of rows are still right", ("all-heads",),
            lambda runs: layer_by_head(runs)[0][1][1], (0.95, None), "of rows", published=ADDITIVE, place="abstract",
            control=tracer.Control(
                "without all of them", lambda runs: layer_by_head(runs)[0][-1][1], (None, 0.6), "of rows"
            ),
        ),
        tracer.Claim(
            "each head that is switched off, the best first, takes 0.3 or more off the lead of the right label",
            ("all-heads",), lambda runs: float(losses_of_lead(runs).min()), (0.3, None), "of a logit",
            published=ADDITIVE, place="abstract",
            control=tracer.Control(
                "before training, the most that one takes", lambda runs: float(losses_of_lead(runs, 0).max()),
                (None, 0.2), "of a logit",
            ),
        ),
        tracer.Claim(
            "what heads give alone sums to what they give together, within 0.7 to 1.4", ("all-heads",),
            alone_beside_together, (0.7, 1.4),
            control=tracer.Control(
                "before training, what they give together", lambda runs: abs(sum(losses_of_lead(runs, 0))),
                (None, 0.2), "of a logit",
            ),
        ),
        tracer.Claim(
            "eight heads: 0.95 of rows are right with pairs of labels that were held out", ("all-heads",),
            lambda runs: on_rows(runs, held=True), (0.95, None), "of rows",
            control=without_layer_1(held=True),
        ),
        tracer.Claim(
            "eight heads: more than 0.6 of rows are right with items that no training row has (either label: 0.5)",
            ("all-heads",), lambda runs: on_rows(runs, new=True), (0.6, None), "of rows",
            control=without_layer_1(new=True),
        ),
        tracer.Claim(
            "more classes delay B: from 50 to 100 and from 100 to 200, each 1.1 times as many steps or more",
            ("a-c", "a-c-100", "a-c-200", "b", "b-200"),
            lambda runs: delay(runs, ("a-c", "a-c-100", "a-c-200"), "match"), (1.1, None), published=DATA,
            place="abstract",
            control=tracer.Control(
                "and not C: 200 classes beside 50", lambda runs: beside(runs, "b-200", "b", "copied"), (0.8, 1.25)
            ),
        ),
        tracer.Claim(
            "more labels delay C: from 5 to 10 and from 10 to 15, each 1.1 times as many steps or more",
            ("b", "b-10", "b-15", "a-c", "a-c-15"), lambda runs: delay(runs, ("b", "b-10", "b-15"), "copied"),
            (1.1, None), published=DATA, place="abstract",
            control=tracer.Control(
                "and not B: 15 labels beside 5", lambda runs: beside(runs, "a-c-15", "a-c", "match"), (0.8, 1.25)
            ),
        ),
    ),
    chart=tracer.PaperChart(
        "With nothing held the loss rests at saying either label. With B or C held it falls at once, with A held "
        "after a rest at guessing a label.", ("one-head", *EACH), drawn, "loss with what is held, nats",
        levels={"a label": float(np.log(FewShot.labels)), "either label of the row": EITHER},
    ),
)  # fmt: skip
