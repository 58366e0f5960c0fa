"""The shortcut and the head: Kawata et al. 2025 on copies at one distance and at many. Words are in page.md."""

from dataclasses import replace

import numpy as np

import tracer

from .copies import Even, Linear, ManyAnywhere, OneAnywhere
from .numbers import accuracies, accuracy, modes, token_before

toy = tracer.preset("induction").config
config = replace(
    toy, device="cpu",
    record=tracer.RecordConfig(every=25, snapshot_every=200, state_every=0, val_rows=32, icl_rows=8, icl_every=600,
                               log_every=600),
)  # fmt: skip
MULTIPLES = (20, 40, 60)
"""Where a block of 20 tokens stood before, in the rows of one length."""


def uniform(about, low, high):
    data = replace(config.data, period_min=low, period_max=high)
    return tracer.PaperRun(about, replace(config, data=data), {"scalars": (accuracies,)})


def own(about, source, steps=600):
    return tracer.PaperRun(about, replace(config, steps=steps), {"scalars": (accuracies,), "corpus": source})


runs = {
    "20": uniform("every block is 20 tokens long", 20, 20),
    "19-21": uniform("lengths of 19 to 21, each as likely", 19, 21),
    "15-25": uniform("lengths of 15 to 25, each as likely", 15, 25),
    "8-30": uniform("lengths of 8 to 30, each as likely; mean 19", 8, 30),
    "6-28": uniform("lengths of 6 to 28, each as likely; mean 17", 6, 28),
    "linear": own("lengths of 6 to 24, as likely as they are long; mean 17", Linear),
    "1-37": own("lengths of 1 to 37, each as likely; mean 19", Even),
    "20-anywhere": own("20 tokens, behind 0 to 24 random ones", OneAnywhere),
    "8-30-anywhere": own("lengths of 8 to 30, behind 0 to 24 random tokens", ManyAnywhere, 900),
}


def at_end(run, test):
    """The share of right predictions by the model as it ended."""
    return accuracy(run.model(), test)


def known(run, name):
    """Steps and values of a number at the records that have it."""
    values = run.trace[name].values
    return run.trace["step"].values[np.isfinite(values)], values[np.isfinite(values)]


def half(run):
    """The step at which half of the copies at new distances are right, between records; nan where it ends below."""
    steps, values = known(run, "copied_new")
    below = np.flatnonzero(values < 0.5)[-1]
    if below + 1 == len(steps):
        return np.nan
    return float(np.interp(0.5, values[below : below + 2], steps[below : below + 2]))


def best_head(run):
    """The largest induction score of a head less its control, at the end."""
    return float((run.trace.induction - run.trace.induction_control)[-1].max())


def rises(runs):
    """The smaller of two rises of the share at new distances: from 20 to 19-21, and from there to 8-30."""
    return float(np.diff([at_end(runs[name], "new") for name in ("20", "19-21", "8-30")]).min())


def back(run, test):
    """The share of predictions that are the token at a multiple of 20 back, and wrong."""
    return modes(run.model(), MULTIPLES, test)["back"]


NOTHING_REPEATS = "right at the same places where nothing repeats (chance 0.016)"

paper = tracer.Paper(
    title="The shortcut and the head: copies at one distance and at many",
    source="Kawata, Song, Bietti, Nishikawa, Suzuki, Vaiter, Wu, NeurIPS 2025, arXiv 2512.18634",
    runs=runs,
    quick=("20", "8-30"),
    claims=(
        tracer.Claim(
            "trained on one distance, 20, the model copies less than 0.15 at new distances",
            ("20",), lambda runs: at_end(runs["20"], "new"), (None, 0.15), "of copies",
            published="when this ratio is large, the model resorts to a positional shortcut and fails to generalize "
            "out-of-distribution (OOD)", place="abstract",
            control=tracer.Control(
                "in rows of the same form it copies at distance 20", lambda runs: at_end(runs["20"], "near"),
                (0.8, None), "of copies",
            ),
        ),
        tracer.Claim(
            "trained on 8 to 30, it copies more than 0.8 at new distances",
            ("8-30",), lambda runs: at_end(runs["8-30"], "new"), (0.8, None), "of copies",
            published="if input sequences exhibit sufficient diversity, measured by a low max-sum ratio of "
            "trigger-to-trigger distances, the trained model implements an induction head and generalizes to unseen "
            "contexts", place="abstract",
            control=tracer.Control(NOTHING_REPEATS, lambda runs: at_end(runs["8-30"], "broken"), (None, 0.05)),
        ),
        tracer.Claim(
            "trained on 15 to 25, it copies more than 0.8 at new distances",
            ("15-25",), lambda runs: at_end(runs["15-25"], "new"), (0.8, None), "of copies",
            control=tracer.Control(NOTHING_REPEATS, lambda runs: at_end(runs["15-25"], "broken"), (None, 0.05)),
        ),
        tracer.Claim(
            "more distances, more copies at new ones: each step of 20, 19-21, 8-30 adds 0.1 or more",
            ("20", "19-21", "8-30"), rises, (0.1, None), "of copies",
        ),
        tracer.Claim(
            "what the model of one distance says at new ones is the token 20, 40 or 60 back, and wrong",
            ("20",), lambda runs: back(runs["20"], "new"), (0.8, None), "of predictions",
            control=tracer.Control(
                "it says so as well where nothing repeats", lambda runs: back(runs["20"], "broken"), (0.8, None),
                "of predictions",
            ),
        ),
        tracer.Claim(
            "a head of 8 to 30 has an induction score of 0.4 above its control",
            ("20", "8-30"), lambda runs: best_head(runs["8-30"]), (0.4, None),
            control=tracer.Control(
                "the best head of the model of one distance", lambda runs: best_head(runs["20"]), (None, 0.1)
            ),
        ),
        tracer.Claim(
            "trained on 8 to 30, it copies more than 0.8 at distance 20 behind 21 to 24 tokens of filler",
            ("8-30",), lambda runs: at_end(runs["8-30"], "shifted"), (0.8, None), "of copies",
        ),
        tracer.Claim(
            "trained on 8 to 30, no head of layer 0 looks at the token before from place 32 on: attention at most 0.1",
            ("8-30",), lambda runs: token_before(runs["8-30"].model(), 32, 63), (None, 0.1), "of attention",
            control=tracer.Control(
                "at places 1 to 15, where first copies stand", lambda runs: token_before(runs["8-30"].model(), 1, 15),
                (0.5, None), "of attention",
            ),
        ),
        tracer.Claim(
            "trained on 8 to 30 behind filler, it copies more than 0.8 there",
            ("8-30-anywhere",), lambda runs: at_end(runs["8-30-anywhere"], "shifted"), (0.8, None), "of copies",
            control=tracer.Control(NOTHING_REPEATS, lambda runs: at_end(runs["8-30-anywhere"], "broken"), (None, 0.05)),
        ),
        tracer.Claim(
            "trained on 8 to 30 behind filler, it copies more than 0.8 at new distances",
            ("8-30-anywhere",), lambda runs: at_end(runs["8-30-anywhere"], "new"), (0.8, None), "of copies",
            control=tracer.Control(NOTHING_REPEATS, lambda runs: at_end(runs["8-30-anywhere"], "broken"), (None, 0.05)),
        ),
        tracer.Claim(
            "trained on one distance behind filler, it still copies less than 0.15 at new distances",
            ("20-anywhere",), lambda runs: at_end(runs["20-anywhere"], "new"), (None, 0.15), "of copies",
            control=tracer.Control(
                "it copies at distance 20 behind filler", lambda runs: at_end(runs["20-anywhere"], "shifted"),
                (0.8, None), "of copies",
            ),
        ),
        tracer.Claim(
            "of equal mean, linear is sooner at half of the new copies: steps, linear (ratio 0.05) less 6-28 (0.10)",
            ("linear", "6-28"), lambda runs: half(runs["linear"]) - half(runs["6-28"]), (None, 0), "steps",
            order=True,
        ),
        tracer.Claim(
            "of equal mean, the lower ratio is sooner there: steps, 8-30 (0.09) less 1-37 (0.24)",
            ("8-30", "1-37"), lambda runs: half(runs["8-30"]) - half(runs["1-37"]), (None, 0), "steps", order=True,
        ),
    ),
    chart=tracer.PaperChart(
        "Trained on many distances, it copies at distances it never saw; trained on one, it does not.", ("20", "8-30"),
        lambda runs: {
            label: known(runs[name], "copied_new") for name, label in (("20", "one length"), ("8-30", "8 to 30"))
        },
        "right copies at new distances",
    ),
)  # fmt: skip
