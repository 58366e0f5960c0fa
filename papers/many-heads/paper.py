"""Many heads, many blocks: from one head to four blocks, each system with one thing changed. Words are in page.md.

Trained in small, a quarter as wide as published, on Python's standard library.
"""

import math

import tracer

NOISE = 0.06
"""nats, ours: 2 sqrt(2) standard deviations (0.020) of the held-out loss over seeds 0 to 2 of four of these systems."""
PLACE = "0xpemulis, 18 February 2026"
PERPLEXITY = {
    "single-head": 67.68, "multi-head-full": 66.48, "multi-head": 65.11, "two-blocks": 55.74, "four-blocks-rms": 48.66,
}  # fmt: skip
"""Published, held-out, at the end."""


def run(name):
    found = tracer.preset(name)
    return tracer.PaperRun(found.description, found.config, preset=name)


def loss(run):
    """Held-out, at the end; no number is above that of a run that diverged."""
    return math.inf if run.status == "diverged" else float(run.trace["val_loss"][-1])


def compared(says, ours, theirs, margin=1):
    """One loss is below another; next to a run that diverged nothing is told."""

    def figure(runs):
        other = loss(runs[theirs])
        return math.nan if other == math.inf else loss(runs[ours]) - other

    return tracer.Claim(
        f"{ours} is {says} {theirs}", (ours, theirs), figure, (None, 0), "nats of held-out loss", noise=NOISE,
        margin=margin, published=f"perplexity {PERPLEXITY[ours]} against {PERPLEXITY[theirs]}", place=PLACE,
    )  # fmt: skip


def broke(runs):
    run = runs["four-blocks"]
    return int(run.meta["step"]) if run.status == "diverged" else math.inf


BATCHES = tracer.preset("four-blocks").config.steps
BETTER = [("multi-head-full", "single-head"), ("multi-head", "single-head"), ("two-blocks", "multi-head")]
BEST = ("two-blocks", "multi-head", "multi-head-full", "single-head")
claims = [compared("better than", *both) for both in BETTER]
claims.insert(2, compared("no worse than", "multi-head", "multi-head-full", margin=0))
claims.append(
    tracer.Claim(
        "four-blocks diverges", ("four-blocks",), broke, (None, BATCHES), "steps", share=1,
        published="NaN in the loss and in every entropy by batch 100", place=PLACE,
    )
)  # fmt: skip
claims += [compared("better than", "four-blocks-rms", other) for other in BEST]

paper = tracer.Paper(
    title="Many heads, many blocks",
    source=f"{PLACE}, https://0xpemulis.net/ml8_transformers.html",
    runs={
        name: run(f"{name}-small")
        for name in ("single-head", "multi-head-full", "multi-head", "two-blocks", "four-blocks", "four-blocks-rms")
    },
    claims=tuple(claims),
    systems=(
        tracer.System(
            "single-head", "The base line", "The same again, where the series on many heads begins.",
            "As before.", "perplexity 67.68, entropy 1.177", perplexity=67.68, entropy=(None, 1.177),
            finding="One head: the baseline",
        ),
        tracer.System(
            "multi-head-full", "Four heads of full rank", "Four heads, each as wide as the model, joined by W_O.",
            "A lower loss than one head; the heads differ.",
            "perplexity 66.48; entropies 0.69, 0.158, 1.011, 0.861: one head nearly one-hot", perplexity=66.48,
            heads=((0.69, 0.158, 1.011, 0.861),),
            finding="Four heads beat one",
        ),
        tracer.System(
            "multi-head", "Four heads of a quarter each", "d_head = d_model / 4: a quarter of the weights.",
            "No worse than full rank.", "perplexity 65.11 with fewer parameters", perplexity=65.11,
            finding="A quarter of the weights is enough",
        ),
        tracer.System(
            "two-blocks", "Two blocks", "A second block on top of the first.", "A lower loss than one block.",
            "perplexity 55.74; the first block's entropies 0.036, 0.013, 0.006, 0.01", perplexity=55.74,
            heads=((0.036, 0.013, 0.006, 0.01),),
            finding="A second block helps",
        ),
        tracer.System(
            "four-blocks", "Four blocks, nothing normalised",
            "Four blocks: the residual stream grows from each to the next.",
            "The loss is not a number within the first hundred batches.",
            "NaN in the loss and in every entropy by batch 100",
            cure="Normalise the input of every sublayer: the next one.",
            finding="Four blocks without normalisation diverge",
        ),
        tracer.System(
            "four-blocks-rms", "Four blocks with RMSNorm", "RMSNorm on the input of each attention and each MLP.",
            "The lowest loss of all, and entropies that stay up.",
            "perplexity 50.37, 48.66 at the end; entropies of block 0 to 3 about 2.1, 0.9, 1.6, 1.5; 23.1 M parameters",
            perplexity=48.66, n_params=23_096_320,
            heads=((2.24, 2.24, 2.28, 1.51), (0.86, 0.90, 1.01, 0.91), (1.53, 1.32, 1.85, 1.56),
                   (1.51, 1.18, 1.99, 1.39)),
            finding="With RMSNorm, four blocks are best",
        ),
    ),
)  # fmt: skip
