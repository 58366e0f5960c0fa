"""What can be had of a model and its run, or in words why not: the one place to ask for pages and for `tracer`.

A reason is empty where it can be had. Another kind of model is another function here that fills the same table.
"""

from __future__ import annotations

from typing import Literal

from tracer.config import ModelConfig

Asked = Literal[
    "heads", "prompts", "recipe", "training", "resume", "held_out", "tokenizer", "composition", "composition_curve",
    "vocabulary", "trigrams", "positions", "norm_scales", "value_norms", "attribution", "entropy_bound", "states",
]  # fmt: skip
"""heads: they were seen and recorded; prompts: the model reads any text, and its heads can be switched off; recipe: its
configuration and its optimiser's; training: it learned while recorded; resume: we may stop, resume and fork it;
held_out: text that it never trains on; tokenizer: one is always there; composition: who reads whom, also over training
(composition_curve); vocabulary: heads over tokens; norm_scales: norms are held at their mean scale; value_norms:
||v W_O||; attribution: parts of a logit; states: training can be had again from steps before its last."""
Reasons = dict[Asked, str]
OF_HEADS: tuple[Asked, ...] = (
    "heads", "prompts", "composition", "composition_curve", "vocabulary", "trigrams", "positions", "norm_scales",
    "value_norms", "attribution", "entropy_bound",
)  # fmt: skip
"""What a model without heads has none of."""

SEVERED = "residual=False: each layer replaces the stream"
BARE = "attn_out=False: heads write side by side, without W_O"
OPENED = "its steps are weights that were downloaded or saved, and nothing was trained here"
SMEARED = "smear={}: each is mixed with that of the token before; this reading knows no such mixture."
GATED = "attn_gate=True: each query scales what it reads, so the values at a key have no one length."
ALONE = "One layer: there is no earlier head to read."


def of_ours(model: ModelConfig) -> Reasons:
    """Of a model that `tracer train` made: everything that its shape allows."""
    reads, bound = _composition(model), _entropy_bound(model)
    found: Reasons = {
        "composition": reads, "composition_curve": reads, "vocabulary": _vocabulary(model),
        "trigrams": _trigrams(model), "positions": _positions(model),
    }  # fmt: skip
    if bound:
        found["entropy_bound"] = bound
    if model.attn_gate:
        found["value_norms"] = GATED
    return found


def of_others(
    n_layers: int, *, no_code: str, no_stream: str, no_positions: str, opened: bool, no_heads: str = ""
) -> Reasons:
    """Of a model whose weights and stream others laid out, with reasons why its code is not there, its stream not
    known, its positions no vectors; what heads do is seen wherever it can be run, unless it has none."""
    found: Reasons = {
        "heads": "",
        "prompts": no_code,
        "recipe": "its configuration is its author's",
        "training": OPENED if opened else "",
        "resume": "the program that trains it is somebody else's",
        "states": "the program that trains it is somebody else's",
        "held_out": "the text it was trained on is not in the run",
        "tokenizer": "it may have come without one",
        "composition": ALONE if n_layers < 2 else "",
        "composition_curve": no_stream or (ALONE if n_layers < 2 else ""),
        "positions": no_stream or no_positions,
        "norm_scales": no_stream and "norms are left out",
        "value_norms": "the norm of v W_O is read only in models that `tracer train` made",
        "attribution": no_stream,
        "entropy_bound": "It needs the weights of a model trained here.",
    }
    return found | dict.fromkeys(OF_HEADS, no_heads) if no_heads else found


def _composition(model: ModelConfig) -> str:
    """A head reads an earlier one through the stream between them."""
    if model.n_layers < 2:
        return ALONE
    if not model.attn_out:
        return f"{BARE}, so there is no OV circuit to compare with."
    return f"{SEVERED}, so later heads read no earlier head directly." if not model.residual else ""


def _vocabulary(model: ModelConfig) -> str:
    """Tokens go into a head and out of it through the stream."""
    if not model.attn_out:
        return f"{BARE}, so a head has no path of its own to the logits."
    if model.unembed_hidden:
        return f"unembed_hidden={model.unembed_hidden}: an MLP makes the logits, so there is no W_U."
    return f"{SEVERED}, so no token reaches a head and the logits directly." if _severed(model) else ""


def _trigrams(model: ModelConfig) -> str:
    """Of one layer: the head's own path to the logits."""
    if model.smear != "none":
        return SMEARED.format(model.smear)
    if not model.residual and model.mlp_hidden:
        return "residual=False: the MLP stands between the heads and the logits."
    return _vocabulary(model)


def _positions(model: ModelConfig) -> str:
    """Positions that are vectors in what a head reads."""
    if model.smear != "none":
        return SMEARED.format(model.smear)
    if model.positions == "rotary":
        return "positions=rotary: queries and keys are turned by their distance; no position is a vector of its own."
    if model.positions == "none":
        return "positions=none: heads know no positions."
    added = model.positions != "shortformer"
    return f"{SEVERED}, so positions reach the first layer only." if added and _severed(model) else ""


def _entropy_bound(model: ModelConfig) -> str:
    """W_Q and W_K say how large the scores of a row can be, and these how low its entropy."""
    if model.qk_norm:
        return "qk_norm=True: q and k are normed, so W_Q and W_K bound no score."
    if model.smear != "none":
        return f"smear={model.smear}: scores are of two tokens each, and W_Q and W_K bound those of one."
    if model.attention == "sigmoid":
        return "attention=sigmoid: rows are no softmax of the scores that W_Q and W_K make."
    if model.attn_softcap is not None:
        return f"attn_softcap={model.attn_softcap:g}: scores are bent, and no longer what W_Q and W_K make."
    return "" if model.sink == "none" else f"sink={model.sink}: rows hold a key that no W_K makes."


def _severed(model: ModelConfig) -> bool:
    return not model.residual and model.n_layers > 1
