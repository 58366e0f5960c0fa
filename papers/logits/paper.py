"""Attention logits that explode at high rates, and six remedies, in two layers under Muon and AdamW.

After Zhai et al. 2023, Wortsman et al. 2023 and Kimi K2 2025. Words are in page.md.
"""

from dataclasses import replace

import tracer

from .numbers import end, entropy, known, largest, left, same, zhai

model = tracer.ModelConfig(n_layers=2, n_heads=4, d_model=64, n_ctx=32, mlp_hidden=(256,))
optim = tracer.OptimConfig(name="muon", adam_lr=3e-3, weight_decay=0.0, warmup=0, batch_size=16)
config = tracer.TrainConfig(
    steps=200, device="cpu", model=model, optim=optim, data=tracer.DataConfig(vocab_size=512),
    record=tracer.RecordConfig(every=10, snapshot_every=200, state_every=0, val_rows=32, repeat_rows=2, icl_rows=2,
                               icl_every=200, log_every=200),
)  # fmt: skip
TRAINS = 0.4
"""nats above the best run without a remedy: one that ends higher is lost."""
BAND = 2
"""Logits have left their band above so many times the largest of the run at a rate of 0.02."""
BEHIND = 0.1
"""nats above the run with QK-norm at the same rate: there the loss has left its band."""


def run(about, rate, qk_norm=False, cap=None, **changes):
    of = replace(optim, lr=rate, **changes)
    return tracer.PaperRun(about, replace(config, optim=of, model=replace(model, qk_norm=qk_norm, attn_softcap=cap)))


def adamw(about, rate, qk_norm=False, **changes):
    return run(f"AdamW at {rate}{about}", rate, qk_norm, name="adamw", adam_lr=None, **changes)


runs = {
    "none-02": run("Muon at 0.02", 0.02),
    "none-05": run("Muon at 0.05", 0.05),
    "none-10": run("Muon at 0.1", 0.1),
    "none-30": run("Muon at 0.3", 0.3),
    "norm-02": run("Muon at 0.02, q and k normed", 0.02, qk_norm=True),
    "norm-10": run("Muon at 0.1, q and k normed", 0.1, qk_norm=True),
    "norm-30": run("Muon at 0.3, q and k normed", 0.3, qk_norm=True),
    "clip-02": run("Muon at 0.02, QK-clip at 5", 0.02, qk_clip=5.0),
    "clip-30": run("Muon at 0.3, QK-clip at 10", 0.3, qk_clip=10.0),
    "clip-high-10": run("Muon at 0.1, QK-clip at 100, as in K2", 0.1, qk_clip=100.0),
    "never-10": run("Muon at 0.1, QK-clip at 1e9, which is never reached", 0.1, qk_clip=1e9),
    "slow-30": run("Muon at 0.3, W_Q and W_K at a tenth of it", 0.3, qk_lr_factor=0.1),
    "cap-02": run("Muon at 0.02, a soft cap of 30", 0.02, cap=30.0),
    "cap-30": run("Muon at 0.3, a soft cap of 30", 0.3, cap=30.0),
    "warm-30": run("Muon at 0.3, after 100 steps of warm-up", 0.3, warmup=100),
    "adam-none-1": adamw("", 0.01),
    "adam-none-3": adamw("", 0.03),
    "adam-norm-3": adamw(", q and k normed", 0.03, qk_norm=True),
    "adam-norm-10": adamw(", q and k normed", 0.1, qk_norm=True),
    "adam-clip-3": adamw(", QK-clip at 10", 0.03, qk_clip=10.0),
    "adam-warm-3": adamw(", after 100 steps of warm-up", 0.03, warmup=100),
}
RATES = ("none-02", "none-05", "none-10", "none-30")


def excess(runs, name):
    """How far a run ends above the best without a remedy: under AdamW that at 0.01, under Muon those of RATES."""
    plain = ("adam-none-1", "adam-none-3") if name.startswith("adam") else RATES
    return end(runs[name]) - min(end(runs[one]) for one in plain)


def edge(runs):
    """The largest rate without a remedy at which Muon trains."""
    return max(config_of(one).lr for one in RATES if excess(runs, one) <= TRAINS)


def config_of(name):
    return runs[name].config.optim


def wins(name):
    """The rate of a run that trains beside the edge without a remedy; 0 where it is lost."""

    def times(found):
        trains = excess(found, name) <= TRAINS
        return round(config_of(name).lr / edge(found), 6) if trains else 0.0

    return times


def gains(name, plain):
    """How much lower a run ends than one without a remedy, in nats."""
    return lambda found: end(found[plain]) - end(found[name])


def lag(plain, normed):
    """Steps from where the logits leave their band to where the loss does, both for good."""

    def steps(found):
        at, logits = largest(found[plain])
        band = BAND * largest(found["none-02"])[1].max()
        (records, loss), (_, beside) = (known(found[one], "val_loss") for one in (plain, normed))
        both = min(len(loss), len(beside))  # a run that diverged has fewer
        behind = loss[:both] - beside[:both] > BEHIND
        return left(records[:both], behind) - left(at, logits > band)

    return steps


def of_band(name):
    """The largest logit of a run in its last half, beside the band."""
    return lambda found: float(late(found[name]).max() / (BAND * largest(found["none-02"])[1].max()))


def late(run):
    steps, logits = largest(run)
    return logits[steps >= steps[-1] / 2]


def rise(name, control, unit=""):
    """The claim that a remedy at 0.3 trains where three times less did not without one."""
    return tracer.Claim(
        f"{control}: Muon trains at 0.3, three times the largest rate at which it does without a remedy, or more",
        (*RATES, name), wins(name), (3, None), "times",
        control=tracer.Control(
            "without a remedy it is lost there: nats above the best", lambda found: excess(found, "none-30"),
            (TRAINS, None), "nats",
        ),
    )  # fmt: skip


def led(plain, normed, rate):
    return tracer.Claim(
        f"Muon at {rate}: the largest logit leaves its band 10 steps or more before the loss does",
        ("none-02", plain, normed), lag(plain, normed), (10, None), "steps",
        control=tracer.Control(
            "with QK-norm at this rate the logits stay inside: the largest beside the band", of_band(normed),
            (None, 1), "of the band",
        ),
    )  # fmt: skip


ZHAI = "when doubling the default learning rate, all attention entropy collapses to near zero and training diverges"
K2 = "maximum attention logits quickly exceed 1000"

paper = tracer.Paper(
    title="Exploding logits and six remedies",
    source="Zhai, Likhomanenko, Littwin, Busbridge, Ramapuram, Zhang, Gu, Susskind 2023, arXiv 2303.06296; Wortsman, "
    "Liu, Xiao, Everett et al. 2023, arXiv 2309.14322; Kimi Team 2025, Kimi K2, arXiv 2507.20534",
    runs=runs,
    quick=(*RATES, "norm-30", "slow-30"),
    claims=(
        tracer.Claim(
            "Muon at 0.3, nothing holds the logits: the largest passes 1000 within 200 steps", ("none-02", "none-30"),
            lambda found: float(largest(found["none-30"])[1].max()), (1000, None), published=K2,
            place="Kimi K2, on MuonClip: vanilla Muon, 9B of 53B parameters active",
            control=tracer.Control(
                "at 0.02, in as many steps", lambda found: float(largest(found["none-02"])[1].max()), (None, 30)
            ),
        ),
        led("none-10", "norm-10", 0.1),
        led("none-30", "norm-30", 0.3),
        tracer.Claim(
            "Muon at 0.1 without a remedy is lost: it ends more than 0.4 above the best rate", RATES,
            lambda found: excess(found, "none-10"), (TRAINS, None), "nats",
            control=tracer.Control(
                "at half of that, 0.05, it trains", lambda found: excess(found, "none-05"), (None, TRAINS), "nats"
            ),
        ),
        tracer.Claim(
            "at this edge, with the rate doubled from 0.05 to 0.1, the mean normalised entropy ends below 0.05",
            ("none-05", "none-10"), lambda found: entropy(found["none-10"]), (None, 0.05), published=ZHAI,
            place="on vision transformers",
            control=tracer.Control("at 0.05", lambda found: entropy(found["none-05"]), (0.2, None)),
        ),
        tracer.Claim(
            "Muon at 0.3: no head is spared, the largest normalised entropy of a head ends below 0.05", ("none-30",),
            lambda found: float(known(found["none-30"], "entropy_normalised")[1][-1].max()), (None, 0.05),
        ),
        rise("norm-30", "QK-norm"),
        rise("clip-30", "QK-clip at 10"),
        rise("slow-30", "W_Q and W_K at a tenth of the rate"),
        rise("cap-30", "a soft cap of 30"),
        rise("warm-30", "100 steps of warm-up"),
        tracer.Claim(
            "the fifth remedy, a lower rate, beats the others: the best of these at 0.3 ends 0.1 or more above 0.02",
            ("none-02", "norm-30", "clip-30", "slow-30", "warm-30"),
            lambda found: min(end(found[one]) for one in ("norm-30", "clip-30", "slow-30", "warm-30"))
            - end(found["none-02"]), (0.1, None), "nats",
        ),
        tracer.Claim(
            "QK-clip at 5, which binds from the start, costs nothing at 0.02: its loss is within 0.03",
            ("none-02", "clip-02"), lambda found: end(found["clip-02"]) - end(found["none-02"]), (-0.03, 0.03), "nats",
            control=tracer.Control(
                "the largest logit from step 100 on, beside that without", lambda found:
                float(late(found["clip-02"]).max() / late(found["none-02"]).max()), (None, 0.75),
            ),
        ),
        tracer.Claim(
            "QK-norm costs nothing at 0.02: its loss is within 0.03", ("none-02", "norm-02"),
            lambda found: end(found["norm-02"]) - end(found["none-02"]), (-0.03, 0.03), "nats",
        ),
        tracer.Claim(
            "a soft cap of 30 costs nothing at 0.02: its loss is within 0.03", ("none-02", "cap-02"),
            lambda found: end(found["cap-02"]) - end(found["none-02"]), (-0.03, 0.03), "nats",
        ),
        tracer.Claim(
            "QK-clip at 100 holds the logits at 0.1 but not the entropy, which ends below 0.1",
            ("none-10", "clip-high-10"), lambda found: entropy(found["clip-high-10"]), (None, 0.1),
            control=tracer.Control(
                "it binds: its largest logit beside that without", lambda found:
                float(late(found["clip-high-10"]).max() / late(found["none-10"]).max()), (None, 0.6),
            ),
        ),
        tracer.Claim(
            "QK-clip that is never reached leaves the run equal to the bit: the largest difference of a weight",
            ("none-10", "clip-high-10", "never-10"),
            lambda found: same(found["none-10"].model(), found["never-10"].model()), (0, 0),
            control=tracer.Control(
                "with a bound that is reached, 100", lambda found:
                same(found["none-10"].model(), found["clip-high-10"].model()), (0.01, None),
            ),
        ),
        tracer.Claim(
            "QK-clip at 10 still binds at 0.3 in the last 100 steps: the largest logit is at the bound or above",
            ("clip-30",), lambda found: float(late(found["clip-30"]).min()), (10, None),
            control=tracer.Control(
                "and below three times the bound", lambda found: float(late(found["clip-30"]).max()), (None, 30)
            ),
        ),
        tracer.Claim(
            "Zhai's bound from the weights says nothing here: below 0.01 nats in every head also at 0.02",
            ("none-02",), lambda found: float(zhai(found["none-02"].model()).max()), (None, 0.01), "nats",
            control=tracer.Control(
                "though entropies are high there: normalised", lambda found: entropy(found["none-02"]), (0.5, None)
            ),
        ),
        tracer.Claim(
            "not Muon alone: under AdamW at 0.03 the largest logit passes 100", ("adam-none-1", "adam-none-3"),
            lambda found: float(largest(found["adam-none-3"])[1].max()), (100, None),
            control=tracer.Control("at 0.01", lambda found: float(largest(found["adam-none-1"])[1].max()), (None, 30)),
        ),
        tracer.Claim(
            "under AdamW at 0.03 normalised entropy ends below 0.1", ("adam-none-1", "adam-none-3"),
            lambda found: entropy(found["adam-none-3"]), (None, 0.1),
            control=tracer.Control("at 0.01", lambda found: entropy(found["adam-none-1"]), (0.5, None)),
        ),
        tracer.Claim(
            "under AdamW at 0.03 QK-norm gains 0.2 or more", ("adam-none-3", "adam-norm-3"),
            gains("adam-norm-3", "adam-none-3"), (0.2, None), "nats",
        ),
        tracer.Claim(
            "under AdamW at 0.03 QK-clip at 10 gains 0.2 or more", ("adam-none-3", "adam-clip-3"),
            gains("adam-clip-3", "adam-none-3"), (0.2, None), "nats",
        ),
        tracer.Claim(
            "under AdamW at 0.03 a warm-up of 100 steps gains 0.2 or more", ("adam-none-3", "adam-warm-3"),
            gains("adam-warm-3", "adam-none-3"), (0.2, None), "nats",
        ),
        tracer.Claim(
            "under AdamW at 0.1, where embeddings move as fast, QK-norm does not rescue the run: it is lost",
            ("adam-none-1", "adam-none-3", "adam-norm-10"), lambda found: excess(found, "adam-norm-10"),
            (TRAINS, None), "nats",
            control=tracer.Control(
                "though its largest logit stays below 30", lambda found: float(largest(found["adam-norm-10"])[1].max()),
                (None, 30),
            ),
        ),
    ),
    chart=tracer.PaperChart(
        "The higher the rate, the further the largest logit of attention grows.", RATES,
        lambda runs: {f"rate {runs[name].config.optim.lr:g}": largest(runs[name]) for name in RATES},
        "largest attention logit", levels={"Wortsman: lost above": 1e4}, log="y",
    ),
)  # fmt: skip
