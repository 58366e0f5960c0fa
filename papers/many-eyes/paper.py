"""Many eyes: heads that are modules of their own, and what their author asks of the reader. Words are in page.md."""

import math
from itertools import combinations

import numpy as np

import tracer

NOISE = 0.088
"""nats, ours, of a hundred steps on characters: 2 sqrt(2) standard deviations (0.031) of the held-out loss."""
BOTH = ("many-eyes", "many-eyes-bare")


def run(name):
    found = tracer.preset(name)
    return tracer.PaperRun(found.description, found.config, preset=name)


def exercise():
    # whoever reads of it needs no torch; a folder with a dash is no package to a type checker
    from .exercise import many_eyes  # pyrefly: ignore[missing-import]

    return many_eyes()


def heads_apart(pattern):
    """Total variation between two heads of one layer: the share of attention that they give to different keys.

    Of patterns [prompt layer head query_pos key_pos]; mean over pairs, rows q >= 1 and prompts.
    """
    pairs = combinations(range(pattern.shape[2]), 2)
    rows = pattern[..., 1:, :].astype(np.float64)
    return float(np.nanmean([np.abs(rows[:, :, a] - rows[:, :, b]).sum(-1) / 2 for a, b in pairs]))


def apart(run):
    """At the first and at the last step of which patterns were kept."""
    pattern = run.trace["pattern"]
    corner = pattern.isel(layer=0, head=0, query_pos=0, key_pos=0).values
    kept = np.flatnonzero(np.isfinite(corner).any(axis=1))
    return heads_apart(pattern[kept[0]].values), heads_apart(pattern[kept[-1]].values)


def w_o(seeds):
    """What the projection does to the loss."""
    asks = f"{int(seeds[0]['many-eyes'].meta['step'])} steps with W_O and without"
    runs = [(name, of[name]) for of in seeds for name in BOTH]
    if lost := [f"{name} {one.status} at step {one.meta['step']:,}" for name, one in runs if one.status == "diverged"]:
        return tracer.Check(asks, f"{'; '.join(lost)}: no two losses to compare")
    given, bare = (float(np.mean([of[name].trace["val_loss"][-1] for of in seeds])) for name in BOTH)
    gap, limit = given - bare, NOISE / math.sqrt(len(seeds))
    better = "too close to tell" if abs(gap) <= limit else "better with" if gap < 0 else "better without"
    over = f" over {len(seeds)} seeds" if len(seeds) > 1 else ""
    return tracer.Check(
        asks, f"held-out loss {given:.3f} with, {bare:.3f} without{over}: {better}; seeds alone make {limit:.3f}"
    )


def answers(seeds):
    trained = [of["many-eyes"] for of in seeds if "many-eyes" in of]
    both = [of for of in seeds if set(BOTH) <= set(of)]
    found = [w_o(both)] if both else []
    if trained:
        start, end = np.array([apart(one) for one in trained]).mean(axis=0)
        told = (
            f"two heads of a block give {start:.0%} of their attention to different keys before the first step, "
            f"{end:.0%} after the last"
        )
        found.append(tracer.Check("do the heads differ?", told))
    return found


paper = tracer.Paper(
    title="Many eyes",
    source="37th Chamber, The Opaque Box, chapter 4: Many Eyes, "
    "https://37th-chamber.com/library/the-opaque-box/04-many-eyes.html",
    runs={name: run(f"{name}-small") for name in BOTH},
    systems=(
        tracer.System(
            "many-eyes", "Heads as modules of their own",
            "Six heads with linear maps of their own, dropout, and a W_O with a bias; the tokens are characters.",
            "The heads differ from the first step, and by more after a hundred.",
            "exercises instead of figures: shapes, parameters, a hundred steps with and without W_O, and a number of "
            "heads that does not divide", exercise=exercise, answers=answers,
            finding="Heads drift apart within a hundred steps",
        ),
        tracer.System(
            "many-eyes-bare", "The same without W_O", "The heads' outputs, side by side, are what the block adds.",
            "Each head can write to its own columns only; whether that costs anything is for the reader to find out.",
            "no figure; a hundred steps are to be compared with those above",
            finding="Without W_O: what does it cost?",
        ),
    ),
)  # fmt: skip
