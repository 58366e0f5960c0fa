"""One attention head: with nothing scaled, scaled, and with a residual connection. Words are in page.md.

Trained in small, a quarter as wide as published, on Python's standard library.
"""

import tracer


def run(name):
    found = tracer.preset(name)
    return tracer.PaperRun(found.description, found.config, preset=name)


def entropies(run):
    """Mean over heads and rows q >= 1, in nats: before the first step, and at the last record that has one."""
    means = run.trace["entropy"].mean(("layer", "head"), skipna=False).dropna("step")
    return float(means[0]), float(means[-1])


def left(name):
    """The share of its entropy that a run ends with."""

    def figure(runs):
        start, end = entropies(runs[name])
        return end / start

    return figure


PLACE = "0xpemulis, 1 February 2026"
NAMES = ("single-head-unscaled", "single-head-scaled", "single-head-residual")

paper = tracer.Paper(
    title="One attention head",
    source=f"{PLACE}, https://0xpemulis.net/ml7_attention.html",
    runs={name: run(f"{name}-small") for name in NAMES},
    claims=(
        tracer.Claim(
            "unscaled attention is one-hot from the start (entropy below 0.05)", ("single-head-unscaled",),
            lambda runs: entropies(runs["single-head-unscaled"])[0], (None, 0.05), "nats", share=1,
            published="entropy 0.003 from the first line of the log", place=PLACE,
        ),
        tracer.Claim(
            "scaled but without a residual, entropy falls to under a third", ("single-head-scaled",),
            left("single-head-scaled"), (None, 1 / 3), "of the start", share=1,
            published="entropy 1.492 at the start, 0.089 at the end", place=PLACE,
        ),
        tracer.Claim(
            "with it, entropy stays above two thirds of the start", ("single-head-residual",),
            left("single-head-residual"), (2 / 3, None), "of the start", share=1,
            published="entropy stays about 1.16", place=PLACE,
        ),
    ),
    systems=(
        tracer.System(
            "single-head-unscaled", "One head, nothing scaled",
            "W_Q, W_K and W_V are N(0, 1), scores are not divided by anything, and nothing passes by the head: "
            "logits = MLP(Attn(X)).",
            "Entropy is almost 0 before the first step: scores in the hundreds leave each row one key.",
            "entropy 0.003 from the first line of the log, loss stuck near 6.4",
            entropy=(0.003, 0.003), loss=6.4,
            cure="Divide scores by sqrt(d), and start the weights smaller: the next one.",
            finding="Unscaled scores leave each row one key",
        ),
        tracer.System(
            "single-head-scaled", "Scaled, but alone",
            "Scores and initial weights are divided by sqrt(d). Still no residual connection.",
            "Entropy starts high and falls again, because the model sees its input through attention only: look at the "
            "share on the token itself.",
            "entropy 1.492 at the start, 0.089 at the end", entropy=(1.492, 0.089),
            cure="Let the input pass by the head, X + Attn(X): the next one.",
            finding="Without a residual connection, attention falls onto its own token",
        ),
        tracer.System(
            "single-head-residual", "With a residual connection",
            "X + Attn(X), then X + MLP(X), then W_U.", "Entropy stays: the head is free to look elsewhere.",
            "entropy about 1.16, perplexity 68.28, 6.5 M parameters", perplexity=68.28, entropy=(None, 1.16),
            n_params=6_500_608,
            finding="With a residual connection, attention stays free",
        ),
    ),
)  # fmt: skip
