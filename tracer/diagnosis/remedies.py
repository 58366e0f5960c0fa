"""Changes of how a model is trained, each of which may be what helps: which there are, and which a finding names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tracer.config import TrainConfig
from tracer.diagnosis.findings import Finding

SPEED, TIGHTER, DECAY, DROPOUT, LONGER = 4.0, 4.0, 10.0, 0.1, 4
"""How much of each is tried; ours. A change that helps may help in another amount, too."""
FIRST_CLIP, FIRST_DECAY, FIRST_WARMUP, FIRST_QK_CLIP, SOFTCAP = 1.0, 0.1, 100, 30.0, 30.0
"""Where a run had none."""


@dataclass(frozen=True)
class Remedy:
    """One change."""

    name: str
    words: str
    """What was, and what is instead."""
    config: TrainConfig
    keeps_model: bool = True
    """Can a training go on with it from weights that are there? Else it begins at 0, with the same seed."""


def remedies(config: TrainConfig, start: int = 0) -> list[Remedy]:
    """Those that change something in a training from `start` on: how its weights move first, then the model."""
    optim, model = config.optim, config.model
    warmup = max(LONGER * optim.warmup, FIRST_WARMUP)
    clip = FIRST_CLIP if optim.clip is None else optim.clip / TIGHTER
    decay = max(DECAY * optim.weight_decay, FIRST_DECAY)
    adam, faster = (optim.adam_lr and optim.adam_lr * factor for factor in (1 / SPEED, SPEED))
    dropout = min(0.5, model.dropout + DROPOUT)

    def moved(name: str, words: str, **changes: Any) -> Remedy:
        return Remedy(name, words, replace(config, optim=replace(optim, **changes)))

    def made(name: str, words: str, keeps: bool = False, **changes: Any) -> Remedy:
        return Remedy(name, words, replace(config, model=replace(model, **changes)), keeps)

    found = [
        moved("rate", f"learning rate {optim.lr / SPEED:.3g}, not {optim.lr:.3g}",
              lr=optim.lr / SPEED, adam_lr=adam),
        moved("faster", f"learning rate {optim.lr * SPEED:.3g}, not {optim.lr:.3g}",
              lr=optim.lr * SPEED, adam_lr=faster),
        *([moved("warmup", f"warm-up over {warmup:,} steps, not {optim.warmup:,}", warmup=warmup)]
          if warmup > start + 1 else []),  # else it is over
        moved("clip", f"gradients clipped at {clip:.3g}, "
              + ("not left alone" if optim.clip is None else f"not {optim.clip:.3g}"), clip=clip),
        moved("decay", f"weight decay {decay:.3g}, not {optim.weight_decay:.3g}", weight_decay=decay),
    ]  # fmt: skip
    if optim.weight_decay:
        found.append(moved("no-decay", f"no weight decay, not {optim.weight_decay:.3g}", weight_decay=0.0))
    if not model.qk_norm and model.sink == "none" and model.attn_softcap is None and optim.reparam == "none":
        limit = FIRST_QK_CLIP if optim.qk_clip is None else optim.qk_clip / TIGHTER
        found.append(moved("qk-clip", f"attention logits clipped at {limit:.3g}, "
                           + ("not left alone" if optim.qk_clip is None else f"not {optim.qk_clip:.3g}"),
                           qk_clip=limit))  # fmt: skip
    if optim.reparam == "none" and optim.qk_clip is None:
        found.append(moved("sigma", "matrices of the blocks as gamma V / sigma(V), not as they are", reparam="sigma"))
    if dropout > model.dropout:
        found.append(made("dropout", f"dropout {dropout:.3g}, not {model.dropout:.3g}", True, dropout=dropout))
    if model.attn_scale == "none":
        found.append(made("scale", "scores divided by sqrt(d_head), not left alone", attn_scale="d_head"))
    if not model.qk_norm and optim.qk_clip is None:
        found.append(made("qk-norm", "q and k of each head normed, not left alone", qk_norm=True))
    if not model.looks_nowhere and optim.qk_clip is None:
        found.append(made("sink", "a learned sink beside the keys, not none", sink="learned"))
    if model.attn_softcap is None and optim.qk_clip is None:
        found.append(made("soft-cap", f"attention scores bent to stay within {SOFTCAP:.3g}, not left alone",
                          attn_softcap=SOFTCAP))  # fmt: skip
    if model.norm == "none":
        found.append(made("norm", "a norm in front of each sublayer, not none", norm="rms"))
    return found


SIGNS = {
    "rate": ("lower the learning rate", "too high a learning rate", "steps that are too large", "steps of W_Q and W_K"),
    "faster": ("raise the learning rate", "or too low", "steps that are too small", "are too small or too large"),
    "warmup": ("optim.warmup",), "clip": ("optim.clip",), "decay": ("no decay", "too little decay", "regularisation"),
    "no-decay": ("lower the weight decay",), "dropout": ("dropout",), "scale": ("sqrt(d_head)",),
    "norm": ("model.norm",), "qk-clip": ("steps of W_Q and W_K that are too large",),
    "qk-norm": ("q and k that nothing normalises", "q and k, or W_Q and W_K"), "sink": (),
    "soft-cap": (), "sigma": ("W_Q and W_K, that nothing normalises",),
}  # fmt: skip
"""The words by which the advice of a finding names each; a test holds them to the advice that there is."""


def named(finding: Finding) -> set[str]:
    """The names of the remedies that a finding's advice speaks of, as the one or as a candidate."""
    said = " ".join((finding.advice.remedy, *finding.advice.candidates))
    return {name for name, signs in SIGNS.items() if any(sign in said for sign in signs)}
