"""Birth of a head: Bietti et al. 2023 on bigrams of all rows and of one row. Words are in page.md.

Written by somebody who had this project's documentation alone.
"""

from dataclasses import replace

import torch

import tracer
from tracer import ablate

from .triggers import N_CTX, ORDINARY, TRIGGERS, Fixed, Redrawn, V, kinds, losses_on, sample, targets

base = tracer.TrainConfig(
    steps=300,
    device="cpu",
    model=tracer.ModelConfig(n_layers=2, n_heads=2, d_model=64, n_ctx=N_CTX, norm_gain=False),
    optim=tracer.OptimConfig(name="muon", lr=0.02, adam_lr=4e-3, batch_size=32, warmup=0),
    record=tracer.RecordConfig(every=10, snapshot_every=100, state_every=0),
)
one_layer = replace(base, model=replace(base.model, n_layers=1))


def code(source):
    rows = sample(source)
    probe = tracer.Probe(rows[:, :-1], targets=targets(rows))
    return {"corpus": source, "scalars": [losses_on(source)], "probes": {"seen": probe}}


runs = {
    "two": tracer.PaperRun("two layers, outputs drawn anew in each row", base, code(Redrawn)),
    "one": tracer.PaperRun("one layer, outputs drawn anew in each row", one_layer, code(Redrawn)),
    "fixed": tracer.PaperRun("two layers, outputs the same in all rows", base, code(Fixed)),
}


def last(run, name):
    return float(run.trace[name].dropna("step")[-1])


def curve(run, name):
    """Steps and values of a number at the records that have it."""
    known = run.trace[name].dropna("step")
    return known.step.values, known.values


def halfway(run, name):
    """The step at which a loss is half of the way from its first to its lowest value, between records."""
    steps, values = curve(run, name)
    half = (values[0] + values.min()) / 2
    i = int((values <= half).argmax())
    a, b = values[i - 1], values[i]
    return float(steps[i - 1] + (steps[i] - steps[i - 1]) * (a - half) / (a - b))


def later(runs):
    return halfway(runs["two"], "loss_again") - halfway(runs["two"], "loss_bigram")


def later_when_fixed(runs):
    return halfway(runs["fixed"], "loss_again") - halfway(runs["fixed"], "loss_bigram")


def best(run, name, layer):
    """The head of a layer with the highest score at the end, and the score."""
    scores = run.trace[name].isel(step=-1).sel(layer=layer).values
    return int(scores.argmax()), float(scores.max())


def induction_head(run):
    return best(run, "seen_output", 1)[0]


def previous_head(run):
    return best(run, "seen_previous", 0)[0]


def of_induction_head(run, name):
    return float(run.trace[name].isel(step=-1).sel(layer=1)[induction_head(run)])


def nothing_learnt(runs):
    gain = last(runs["two"], "loss_first") - last(runs["two"], "loss_again")
    return f"outputs that were seen are only {gain:.2f} nats easier" if gain < 0.5 else ""


def without_previous(run):
    """{kind: (loss, loss with the previous-token head replaced by its mean)}, in nats."""
    rows = torch.from_numpy(sample(Redrawn, 128))
    effect = ablate.effect(run.model(), rows, [(0, previous_head(run))], "mean")
    masks = {name: torch.from_numpy(mask) for name, mask in kinds(rows.numpy()).items()}
    return {name: (float(effect.clean[m].mean()), float(effect.ablated[m].mean())) for name, m in masks.items()}


def undone(runs):
    found = without_previous(runs["two"])
    (first, _), (clean, ablated) = found["first"], found["again"]
    return (ablated - clean) / (first - clean)


def bigrams_harmed(runs):
    clean, ablated = without_previous(runs["two"])["bigram"]
    return ablated - clean


def normed(model):
    embedding = model.embed.W_E.detach()
    return embedding / embedding.square().mean(-1, keepdim=True).sqrt()


def copied(run, step=None):
    """Of tokens that can be outputs, the share whose own logit is the highest where the head reads their embedding."""
    model = run.model(step)
    written = normed(model) @ model.OV.AB[1, induction_head(run)]
    return float((model.logits(written[None])[0].argmax(-1) == torch.arange(V))[ORDINARY].float().mean())


def matched(run, step=None):
    """The share of triggers whose best key is the trigger itself, of all tokens as that head of layer 0 writes them."""
    model = run.model(step)
    keys = normed(model) @ model.OV.AB[0, previous_head(run)]
    scores = normed(model) @ model.QK.AB[1, induction_head(run)] @ keys.T
    triggers = list(TRIGGERS)
    return float((scores[triggers].argmax(-1) == torch.tensor(triggers)).float().mean())


ABSTRACT = (
    'we illustrate the fast learning of global bigrams and the slower development of an "induction head" mechanism '
    "for the in-context bigrams"
)

paper = tracer.Paper(
    title="Birth of a Transformer: A Memory Viewpoint",
    source="Bietti, Cabannes, Bouchacourt, Jegou and Bottou 2023, arXiv 2306.00802",
    runs=runs,
    quick=("two",),
    claims=(
        tracer.Claim(
            "global bigrams are half learnt before the outputs of triggers that were seen in the row",
            ("two", "fixed"),
            later,
            (0, None),
            "steps",
            published=ABSTRACT,
            place="abstract",
            order=True,
            control=tracer.Control(
                "outputs that are the same in all rows come nearly as soon as bigrams, though as rare",
                later_when_fixed,
                (None, 40),
                "steps",
            ),
            too_small=nothing_learnt,
        ),
        tracer.Claim(
            "the outputs of triggers come at least 100 steps later than bigrams",
            ("two",),
            later,
            (100, None),
            "steps",
            weaker=(25, None),
            too_small=nothing_learnt,
        ),
        tracer.Claim(
            "in the end a head of layer 1 looks at what followed the trigger before",
            ("two",),
            lambda runs: best(runs["two"], "seen_output", 1)[1],
            (0.6, None),
            "share",
            weaker=(0.3, None),
            published=ABSTRACT,
            place="abstract",
            control=tracer.Control(
                "and not at what followed the other triggers",
                lambda runs: of_induction_head(runs["two"], "seen_other"),
                (None, 0.15),
                "share",
            ),
            too_small=nothing_learnt,
        ),
        tracer.Claim(
            "in the end a head of layer 0 looks from a trigger's output at the trigger before it",
            ("two",),
            lambda runs: best(runs["two"], "seen_previous", 0)[1],
            (0.5, None),
            "share",
            weaker=(0.25, None),
            too_small=nothing_learnt,
        ),
        tracer.Claim(
            "one layer does not get the outputs of triggers right",
            ("one", "two"),
            lambda runs: last(runs["one"], "loss_again") - last(runs["two"], "loss_again"),
            (0.5, None),
            "nats",
            control=tracer.Control(
                "while it knows the global bigrams as well",
                lambda runs: last(runs["one"], "loss_bigram") - last(runs["two"], "loss_bigram"),
                (-0.1, 0.1),
                "nats",
            ),
            too_small=nothing_learnt,
        ),
        tracer.Claim(
            "no induction head where outputs are the same in all rows",
            ("fixed",),
            lambda runs: best(runs["fixed"], "seen_output", 1)[1],
            (None, 0.3),
            "share",
            control=tracer.Control(
                "though they are predicted", lambda runs: last(runs["fixed"], "loss_again"), (None, 0.3), "nats"
            ),
        ),
        tracer.Claim(
            "without that head of layer 0 outputs that were seen are as hard as new ones",
            ("two",),
            undone,
            (0.8, None),
            "of what seeing them gains",
            control=tracer.Control("and bigrams are harmed little", bigrams_harmed, (None, 0.2), "nats"),
            too_small=nothing_learnt,
        ),
        tracer.Claim(
            "W_OV of the induction head is a memory that maps an output's embedding to its own logit",
            ("two",),
            lambda runs: copied(runs["two"]),
            (0.8, None),
            "of outputs",
            control=tracer.Control(
                "which it is not before training",
                lambda runs: copied(runs["two"], 0),
                (None, 0.2),
                "of outputs",
            ),
            too_small=nothing_learnt,
        ),
        tracer.Claim(
            "W_QK of the induction head matches a trigger with itself, as layer 0 writes it one token on",
            ("two",),
            lambda runs: matched(runs["two"]),
            (0.99, None),
            "of triggers",
            control=tracer.Control(
                "which it does not before training",
                lambda runs: matched(runs["two"], 0),
                (None, 0.4),
                "of triggers",
            ),
            too_small=nothing_learnt,
        ),
    ),
    chart=tracer.PaperChart(
        "Bigrams of all rows are learned first, those of one row later; one layer stays at 2.7 nats.",
        ("two", "one"),
        lambda runs: {
            "all rows": curve(runs["two"], "loss_bigram"),
            "this row": curve(runs["two"], "loss_again"),
            "this row, one layer": curve(runs["one"], "loss_again"),
        },
        "loss, nats",
    ),
)
