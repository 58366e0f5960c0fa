"""What a page needs to know about a run's model, whoever wrote and trained it."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tracer.config import ModelConfig, TrainConfig
from tracer.config.fields import from_dict
from tracer.huggingface import building
from tracer.huggingface.architectures import ARCHITECTURES
from tracer.measures import Setting, period, probe_words
from tracer.measures.abilities import Asked, Reasons, of_others, of_ours
from tracer.named_code import no_clamp, why_no_corpus
from tracer.store.layout import NotARun

Kind = Literal["trained", "watched", "opened"]
"""Trained by `tracer train`, recorded by `tracer.watch` in somebody's own loop, or opened by `tracer.load_hf`: a fact
to show; what can be had of a run, `About.why_not` says."""


@dataclass(frozen=True)
class About:
    """The same few facts for every run; None where nobody knows."""

    kind: Kind
    n_ctx: int | None
    """Tokens the model takes; of an unknown model, those it was seen to take."""
    d_vocab: int | None
    """None for a model that reads no tokens."""
    period: int | None
    """Block length of Probe R; None when it was not measured on it."""
    steps: int | None
    """Planned updates."""
    row: int | None
    """Tokens of a row of the text that measures are means over."""
    batch_tokens: int | None
    """Tokens of one update."""
    bos: int | None
    """The token put in front of a prompt; None: nothing is."""
    rebuilds: bool
    """Can the weights of a snapshot be turned into a model again? Not when only its author has the code."""
    layers: tuple[str, ...] = ()
    """Path of each layer's attention module, with "(cross)" where it is cross attention; empty for our own models."""
    causal: tuple[bool, ...] = ()
    """By layer; empty means all."""
    author: str = ""
    """Class of a model that others wrote."""
    n_layers: int = field(default=0, compare=False)
    reasons: Reasons = field(default_factory=dict, compare=False, repr=False)
    """What follows from all this: what cannot be had of the model, and why."""

    def why_not(self, what: Asked) -> str:
        """In words, why this cannot be had; empty where it can."""
        return self.reasons.get(what, "")

    @property
    def numbering(self) -> str:
        """Which block of a model each layer is, in words with its author's names; empty where their numbers agree.

        Only modules with attention are counted, so that L1 may be `model.layers.7`.
        """
        found = [re.match(r"(?:.*?\.)?(\d+)(?=\.|$)", path) for path in self.layers]
        blocks = [block for block in found if block]
        if len(blocks) < len(found) or [int(block[1]) for block in blocks] == list(range(len(blocks))):
            return ""
        named = [f"L{number} is {block[0]}" for number, block in enumerate(blocks)]
        return ", ".join(named if len(named) <= 4 else [*named[:3], "…", named[-1]])

    @property
    def probes(self) -> Mapping[str, str]:
        """What measures were taken on, in words, by probe."""
        return probe_words(self.kind)

    @property
    def setting(self) -> Setting | None:
        """What values at chance depend on; None when the sizes are not known."""
        if self.row is None:
            return None
        return Setting(self.row, self.period or 0, self.d_vocab or 0, causal=all(self.causal))


@functools.lru_cache(256)
def _of_config(config: TrainConfig, d_vocab: int, bos: int | None, no_data: str, unrun: str) -> About:
    """About a run that `tracer train` made; `no_data`: why its data cannot be had in this process, `unrun`: why its
    model cannot be run, as it was trained with clamps of somebody's."""
    n_ctx = config.model.n_ctx
    reasons: Reasons = {**of_ours(config.model), "held_out": no_data, **_unrun(unrun)}
    return About(
        "trained", n_ctx, d_vocab, period(d_vocab, n_ctx), config.steps, n_ctx, config.optim.batch_size * n_ctx, bos,
        rebuilds=True, n_layers=config.model.n_layers, reasons=reasons,
    )  # fmt: skip


def _unrun(why: str) -> Reasons:
    """Of a model whose weights are there, and that cannot be run."""
    if not why:
        return {}
    return {"prompts": why, "attribution": why, "entropy_bound": why, "norm_scales": "norms are left out"}


def of_meta(meta: dict[str, Any]) -> About:
    """About any run, from its run.json; NotARun where that is damaged."""
    if "config" not in meta:
        return _of_others(meta)
    config = trained_by(meta)
    no_data = why_no_corpus(config.data.corpus) if config.data.is_own else ""
    return _of_config(config, meta["d_vocab"], meta.get("bos"), no_data, no_clamp(config.own_clamps))


def trained_by(meta: dict[str, Any]) -> TrainConfig:
    """What a run that `tracer train` made was trained by."""
    try:
        return _config(json.dumps(meta["config"]))
    except (TypeError, ValueError) as error:
        raise NotARun(f"run.json holds a config of the wrong kind: {error}") from error


@functools.lru_cache(256)
def _config(text: str) -> TrainConfig:
    return from_dict(TrainConfig, json.loads(text))


def _of_others(meta: dict[str, Any]) -> About:
    layers, ours = meta["layers"], transformer(meta)
    rebuilds = bool(ours or meta.get("huggingface") or building.allowed(meta))
    family = str((meta.get("huggingface") or {}).get("model_type") or meta.get("family") or meta.get("class"))
    known = building.layout_for(meta) or ARCHITECTURES.get(family)
    no_code = "" if rebuilds else "The code of this model is not in the run"
    if no_code and meta.get("build"):
        no_code += f" (where you trust it: `manyeyes --build {meta['build']}`)"
    unknown = (
        f"What the parts of a {family} write to the residual stream is not known: a tracer.Layout (layout=) says it."
    )
    unknown = "" if known or ours else unknown
    no_stream = no_code or unknown
    turned = f"Positions of a {family} are in the scores of queries and keys; no position is a vector of its own."
    return About(
        kind=meta["kind"], n_ctx=meta.get("n_ctx"), d_vocab=meta.get("d_vocab"), period=meta.get("period"),
        steps=meta.get("steps"), row=meta.get("row"), batch_tokens=meta.get("batch_tokens"), bos=meta.get("bos"),
        rebuilds=rebuilds, author=meta.get("class", ""),
        layers=tuple(one["name"] + (" (cross)" if one["kind"] == "cross" else "") for one in layers),
        causal=tuple(bool(one["causal"]) for one in layers), n_layers=len(layers),
        reasons=of_others(
            len(layers), no_code=no_code, no_stream=no_stream, opened=meta["kind"] == "opened",
            no_positions="" if known and known.has_positions else turned, no_heads=meta.get("no_heads", ""),
        )
        | (_of_transformer(ours) if ours and not meta.get("no_heads") else {})
        | (STATELESS if meta.get("built_with") else {}),
    )  # fmt: skip


_ANEW = "a model of one's own leaves no state of its optimiser to go on from: it is trained anew"
STATELESS: Reasons = {"resume": _ANEW, "states": _ANEW}
"""Of a model of somebody's own in our loop."""


def _of_transformer(config: ModelConfig) -> Reasons:
    return {"value_norms": "", **of_ours(config)}


def transformer(meta: dict[str, Any]) -> ModelConfig | None:
    """Of a `tracer.Transformer` that was watched; None of every other model. NotARun where that cannot be."""
    if not meta.get("transformer"):
        return None
    try:
        config = from_dict(ModelConfig, meta["transformer"])
    except (TypeError, ValueError) as error:
        raise NotARun(f"run.json holds a transformer of the wrong kind: {error}") from error
    heads = [one["n_heads"] for one in meta["layers"]]
    if not meta.get("no_heads") and heads != [config.n_heads] * config.n_layers:
        raise NotARun(
            f"run.json speaks of {config.n_layers} layers of {config.n_heads} heads, and lists layers of {heads[:9]}"
        )
    return config
