"""Why a circuit is not defined in a model, in one sentence; empty where it is."""

from __future__ import annotations

from tracer.config import ModelConfig

SEVERED = "residual=False: each layer replaces the stream"
BARE = "attn_out=False: heads write side by side, without W_O"


def composition(model: ModelConfig) -> str:
    """A head reads an earlier one through the stream between them."""
    if model.n_layers < 2:
        return "One layer: there is no earlier head to read."
    if not model.attn_out:
        return f"{BARE}, so there is no OV circuit to compare with."
    return f"{SEVERED}, so later heads read no earlier head directly." if not model.residual else ""


def vocabulary(model: ModelConfig) -> str:
    """Tokens go into a head and out of it through the stream."""
    if not model.attn_out:
        return f"{BARE}, so a head has no path of its own to the logits."
    if model.unembed_hidden:
        return f"unembed_hidden={model.unembed_hidden}: an MLP makes the logits, so there is no W_U."
    return f"{SEVERED}, so no token reaches a head and the logits directly." if _severed(model) else ""


def trigrams(model: ModelConfig) -> str:
    """Of one layer: the head's own path to the logits."""
    if not model.residual and model.mlp_hidden:
        return "residual=False: the MLP stands between the heads and the logits."
    return vocabulary(model)


def ignored(model: ModelConfig) -> str:
    """What skip-trigrams leave out of a model of one layer."""
    left_out = {"none": [], "rotary": ["rotations"]}.get(model.positions, ["what a token and a position make together"])
    if model.norm != "none":
        left_out.append("that norms vary (they are held at their mean scale)")
    if model.mlp_hidden:
        left_out.insert(0, "the MLP, which reads what the head writes")
    if not left_out:
        return "One layer, no MLP, no norms, no positions: the head does nothing else."
    so_far = "" if model.mlp_hidden else "One layer and no MLP: the head has no other way to the logits. "
    return f"{so_far}Left out: {'; '.join(left_out)}."


def positions(model: ModelConfig) -> str:
    """Positions that are vectors in what a head reads."""
    if model.positions == "rotary":
        return "positions=rotary: queries and keys are turned by their distance; no position is a vector of its own."
    if model.positions == "none":
        return "positions=none: heads know no positions."
    added = model.positions != "shortformer"
    return f"{SEVERED}, so positions reach the first layer only." if added and _severed(model) else ""


def _severed(model: ModelConfig) -> bool:
    return not model.residual and model.n_layers > 1
