"""Where attention goes that nobody wants: sinks of one layer on a chain with triggers, under five attentions.

After Guo et al. 2024, Gu et al. 2024, Kaul et al. 2024 and Qiu et al. 2025. Words are in page.md.
"""

from dataclasses import replace

import numpy as np

import tracer

from .attentions import gate, sigmoid
from .numbers import costs, on_backcopy, on_gate, on_plain, on_sigmoid, rests
from .rows import LENGTH, Backcopy, Plain

model = tracer.ModelConfig(
    n_layers=1, n_heads=1, d_model=64, n_ctx=LENGTH, mlp_hidden=(128,), positions="sinusoidal"
)  # fmt: skip
config = tracer.TrainConfig(
    steps=800, device="cpu", model=model,
    optim=tracer.OptimConfig(name="adamw", lr=3e-3, weight_decay=0.1, warmup=50, batch_size=16),
    record=tracer.RecordConfig(every=100, snapshot_every=200, state_every=0, val_rows=64, repeat_rows=8, icl_rows=8,
                               icl_every=800, log_every=800),
)  # fmt: skip
SAME = 0.02
"""nats: models whose losses differ by more have not learned the same, and are not compared."""
SINK = 0.5
"""A head rests on the start token from this share of its attention on."""


def run(about, source=Backcopy, scalars=on_backcopy, clamp=None, lr=3e-3, **changes):
    changed = replace(config, model=replace(model, **changes), optim=replace(config.optim, lr=lr))
    code = {"corpus": source, "scalars": (scalars,)} | ({"clamp": {"L0 z": clamp}} if clamp else {})
    return tracer.PaperRun(about, changed, code)


runs = {
    "softmax": run("softmax attention"),
    "softmax1": run("one more in the denominator: a key of logit 0, of which nothing is read", sink="zero"),
    "learned": run("the same, with a logit that each head learns", sink="learned"),
    "sigmoid": run("a sigmoid of each score, not normalised", scalars=on_sigmoid, clamp=sigmoid, sink="zero"),
    "gate": run("softmax, and a gate of the query's own on what is read", scalars=on_gate, clamp=gate),
    "plain": run("softmax on rows without triggers: nothing asks for a look back", Plain, on_plain),
    "slow": run("softmax at a quarter of the rate: trained less", lr=7.5e-4),
}


def last(run, name):
    """The last value of a number that is known, an array of [layer, head] or one number."""
    values = run.trace[name].values
    known = np.isfinite(values).reshape(len(values), -1).any(1)
    return values[known][-1]


def course(run, name):
    """Steps, and the most of any head there, at the records that have a number."""
    values = run.trace[name].values.reshape(run.trace.sizes["step"], -1)
    known = np.isfinite(values).any(1)
    return run.trace["step"].values[known], np.nanmax(values[known], 1)


def dormant(run):
    """The head that gives the start token most at symbols beside at triggers, (layer, head)."""
    difference = last(run, "start_symbol") - last(run, "start_trigger")
    return tuple(map(int, np.unravel_index(np.argmax(difference), difference.shape)))


def of_dormant(run, name):
    return float(last(run, name)[dormant(run)])


def most(run):
    """The most that a head gives the start token at symbols."""
    return float(last(run, "start_symbol").max())


def loss(run):
    return float(last(run, "val_loss"))


def beside(runs, name):
    """The most of a run beside the most of softmax, as a share."""
    return most(runs[name]) / most(runs["softmax"])


def apart(runs):
    """By how much the losses of the five attentions differ."""
    losses = [loss(runs[name]) for name in FIVE]
    return max(losses) - min(losses)


def void(name):
    """Why an attention cannot be compared with softmax."""

    def why(runs):
        if most(runs["softmax"]) < SINK:
            return "softmax itself has no sink to remove"
        difference = loss(runs[name]) - loss(runs["softmax"])
        return f"its loss is {difference:+.3f} nats from that of softmax" if abs(difference) > SAME else ""

    return why


def less_than_slow(name):
    """The control of every remedy: it must do more than training less does."""
    return tracer.Control(
        "softmax at a quarter of the rate gives it more: the difference",
        lambda runs: most(runs["slow"]) - most(runs[name]), (0, None), "of attention",
    )  # fmt: skip


def cost(runs, which):
    """What the loss rises by without the dormant head of softmax: at triggers (0), at symbols (1)."""
    return costs(runs["softmax"].model(), [dormant(runs["softmax"])])[which]


def nowhere(name):
    """The claim that a head which may look nowhere does so at symbols, and not at triggers."""
    return tracer.Claim(
        f"{'softmax1' if name == 'softmax1' else 'learned sink'}: at symbols all tokens together get less than 0.5 of "
        "the attention", (name,), lambda runs: rests(runs[name].model())[0][1], (None, 0.5), "of attention",
        control=tracer.Control(
            "at triggers", lambda runs: rests(runs[name].model())[1][1], (0.8, None), "of attention"
        ),
    )  # fmt: skip


DRAWN = ("softmax", "softmax1", "sigmoid", "gate")
FIVE = ("softmax", "softmax1", "learned", "sigmoid", "gate")
GUO = (
    "an active-dormant mechanism, where attention heads become sinks for specific input domains while remaining "
    "non-sinks for others"
)
TOKENS = (
    'certain so-called "sink tokens" receiving disproportionately high attention weights, exhibiting significantly '
    "smaller value states, and having much larger residual-state norms than those of other tokens"
)

paper = tracer.Paper(
    title="Sinks: where attention goes that nobody wants",
    source="Guo, Pai, Bai, Jiao, Jordan, Mei 2024, arXiv 2410.13835; Gu, Pang, Du, Liu, Zhang, Du, Wang, Lin 2024, "
    "arXiv 2410.10781; Kaul, Ma, Elezi, Deng 2024, arXiv 2410.17174; Qiu, Wang, Zheng, Huang et al. 2025, arXiv "
    "2505.06708",
    runs=runs,
    quick=("softmax", "learned"),
    claims=(
        tracer.Claim(
            "softmax: a head gives the start token more than 0.5 of its attention where nothing is to be copied, at "
            "symbols", ("softmax",), lambda runs: of_dormant(runs["softmax"], "start_symbol"), (SINK, None),
            "of attention", published=GUO, place="Guo, abstract",
            control=tracer.Control(
                "the same head at triggers", lambda runs: of_dormant(runs["softmax"], "start_trigger"), (None, 0.2),
                "of attention",
            ),
        ),
        tracer.Claim(
            "softmax: in this head the start token's value is less than half as long as the others'",
            ("softmax", "learned"),
            lambda runs: of_dormant(runs["softmax"], "start_value"), (None, 0.5), "of their length",
            published=TOKENS, place="Guo, abstract",
            control=tracer.Control(
                "with a learned sink, where the start token is not what it rests on",
                lambda runs: of_dormant(runs["learned"], "start_value"), (0.5, None), "of their length",
            ),
        ),
        tracer.Claim(
            "softmax: with the start token left out, place 0 gets less than half of what the start token had: the head "
            "looks for the token, and not for the place", ("softmax",),
            lambda runs: of_dormant(runs["softmax"], "place_symbol") / of_dormant(runs["softmax"], "start_symbol"),
            (None, 0.5), "of it",
        ),
        tracer.Claim(
            "softmax: the start token's stream ends more than twice as long as the others'", ("softmax",),
            lambda runs: float(last(runs["softmax"], "start_stream")), (2, None), "of their length",
            published=TOKENS, place="Guo, abstract",
        ),
        tracer.Claim(
            "softmax: with nothing written by this head the loss behind triggers rises by more than 0.5", ("softmax",),
            lambda runs: cost(runs, 0), (0.5, None), "nats",
            control=tracer.Control(
                "its rise behind symbols, as a share of that", lambda runs: cost(runs, 1) / cost(runs, 0), (None, 0.1)
            ),
        ),
        tracer.Claim(
            "softmax: with nothing written by this head the loss behind symbols stays within 0.05", ("softmax",),
            lambda runs: cost(runs, 1), (-0.05, 0.05), "nats",
        ),
        tracer.Claim(
            "without triggers, where nothing is ever to be copied, no head gives the start token more than 0.2 at "
            "symbols", ("plain",), lambda runs: most(runs["plain"]), (None, 0.2), "of attention",
        ),
        tracer.Claim(
            "softmax at a quarter of the rate: the start token gets less than half as much", ("softmax", "slow"),
            lambda runs: beside(runs, "slow"), (None, 0.5), "of that of softmax",
        ),
        tracer.Claim(
            "all five attentions learn the same: their held-out losses are within 0.02", FIVE, apart, (None, SAME),
            "nats",
        ),
        tracer.Claim(
            "softmax1: the start token gets less than half as much as under softmax", ("softmax", "softmax1", "slow"),
            lambda runs: beside(runs, "softmax1"), (None, 0.5), "of that of softmax",
            published="our methods reduce the attention proportion on the first token from 65% to 3.3%",
            place="Kaul, abstract: softmax1 with an optimizer of theirs",
            control=less_than_slow("softmax1"), too_small=void("softmax1"),
        ),
        tracer.Claim(
            "learned sink: no head gives the start token 0.1 of its attention at symbols",
            ("softmax", "learned", "slow"), lambda runs: most(runs["learned"]), (None, 0.1), "of attention",
            control=less_than_slow("learned"), too_small=void("learned"),
        ),
        tracer.Claim(
            "learned sink: the head that rests gives it more than half of its attention at symbols",
            ("softmax", "learned"), lambda runs: 1 - of_dormant(runs["learned"], "mass_symbol"), (0.5, None),
            "of attention", too_small=void("learned"),
        ),
        tracer.Claim(
            "sigmoid, not normalised: no head gives the start token 0.05 at symbols", ("softmax", "sigmoid", "slow"),
            lambda runs: most(runs["sigmoid"]), (None, 0.05), "of attention", weaker=(None, 0.25),
            published="After relaxing such dependence by replacing softmax attention with other attention operations, "
            "such as sigmoid attention without normalization, attention sinks do not emerge in LMs up to 1B parameters",
            place="Gu, abstract", control=less_than_slow("sigmoid"), too_small=void("sigmoid"),
        ),
        tracer.Claim(
            "output gate: the start token gets less than half as much as under softmax", ("softmax", "gate", "slow"),
            lambda runs: beside(runs, "gate"), (None, 0.5), "of that of softmax",
            published="we find this sparse gating mechanism mitigates 'attention sink'", place="Qiu, abstract",
            control=less_than_slow("gate"), too_small=void("gate"),
        ),
        tracer.Claim(
            "output gate: the start token's value is at least half as long as the others'", ("softmax", "gate"),
            lambda runs: of_dormant(runs["gate"], "start_value"), (0.5, None), "of their length",
            too_small=void("gate"),
        ),
        tracer.Claim(
            "softmax: at symbols the start token and the query's own token together get more than 0.7 of the attention",
            ("softmax",), lambda runs: rests(runs["softmax"].model())[0][0], (0.7, None), "of attention",
            control=tracer.Control(
                "at triggers", lambda runs: rests(runs["softmax"].model())[1][0], (None, 0.2), "of attention"
            ),
        ),
        nowhere("softmax1"),
        nowhere("learned"),
    ),
    chart=tracer.PaperChart(
        "Softmax comes to rest on the start token, gated or not; softmax1 leaves it later, a sigmoid at once.", DRAWN,
        lambda runs: {name: course(runs[name], "start_symbol") for name in DRAWN},
        "attention on the start token",
    ),
)  # fmt: skip
