"""All that a batch says about an ablation: predictions, every other head, and what the rest gives back of one.

Switching one head off may cost little although it does much: later heads and the final norm make up for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tracer.ablate.estimates import Estimate, estimate
from tracer.ablate.parts import Part, check_heads, name
from tracer.ablate.planner import averaged, inputs, planner
from tracer.ablate.repeats import by_row
from tracer.config.field_docs import fields_in_help
from tracer.data.probes import ProbeR, per_token_loss
from tracer.heads import head_means, stats_from_pattern
from tracer.heads.call import AttentionCall
from tracer.huggingface.any_model import any_model
from tracer.interventions.edits import Edit, applied, recording, visiting
from tracer.interventions.replacements import DRAWS, Mode, z_tap
from tracer.measures import MEASURES, REPEAT_MEASURES, TEXT_MEASURES
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel, check_vocabulary

if TYPE_CHECKING:
    import xarray as xr

RUNS = ["clean", "ablated"]
READ = ("sequence", "pos")
Arrays = dict[str, Tensor]

VARIABLES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "loss": (
        ("run", *READ),
        {"long_name": "loss of the next token", "units": "nats", "valid_min": 0.0,
         "formula": "-ln p(next token); nan where the sequence ends", "source": "standard"},
    ),
    "kl": (
        READ,
        {"long_name": "divergence of the prediction", "units": "nats", "valid_min": 0.0,
         "formula": "KL(clean || ablated) = sum_t p_clean(t) ln(p_clean(t) / p_ablated(t))",
         "source": "Kullback and Leibler 1951"},
    ),
    "logit": (
        ("run", *READ, "token"),
        {"long_name": "logit of a chosen token", "units": "", "formula": "logits[token]", "source": "standard"},
    ),
    "probability": (
        ("run", *READ, "token"),
        {"long_name": "probability of a chosen token", "units": "", "valid_min": 0.0, "valid_max": 1.0,
         "formula": "softmax(logits)[token]", "source": "standard"},
    ),
    "logit_difference": (
        ("run", *READ),
        {"long_name": "logit difference", "units": "", "formula": "logits[right] - logits[wrong]",
         "source": "Wang et al. 2022 (2211.00593)"},
    ),
    "top_token": (
        ("run", *READ, "rank"),
        {"long_name": "likeliest next tokens", "units": "", "valid_min": 0,
         "formula": "token ids by falling probability", "source": "standard"},
    ),
    "top_probability": (
        ("run", *READ, "rank"),
        {"long_name": "probability of the likeliest next tokens", "units": "", "valid_min": 0.0, "valid_max": 1.0,
         "formula": "softmax(logits), sorted", "source": "standard"},
    ),
}  # fmt: skip
"""Dimensions and attributes of what `outcomes` returns."""
SMALL, LARGE = 0.25, 1.0
"""Nats of loss below which an effect is called small, logits from which a direct effect is called large. Ours."""


@any_model
@torch.no_grad()
def outcomes(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    parts: Iterable[Part],
    mode: Mode | str = "zero",
    *,
    chosen: Iterable[int] = (),
    pair: tuple[int, int] | None = None,
    top: int = 5,
    rows: slice = slice(None),
    positions: Iterable[int] | None = None,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    frozen: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> xr.Dataset:
    """What the model predicts on a batch with and without some parts: `VARIABLES`, [run sequence pos ...].

    `chosen` are the tokens whose logit and probability are read, `pair` the (right, wrong) tokens of the logit
    difference, `rows` the positions that are read; the rest as in `effect`. With resample every number is the mean over
    draws, kl too, and the top tokens are those of the mean probabilities. Needs two arrays of logits at a time.
    """
    import xarray as xr

    read = list(chosen)
    check_vocabulary(torch.tensor([*read, *(pair or ())]), model.d_vocab)
    if not 1 <= top <= model.d_vocab:
        raise ValueError(f"top={top} tokens of {model.d_vocab}: ask for 1 to {model.d_vocab}")
    plans = planner(
        model, tokens, mode, positions=positions, reference=reference, frozen=frozen, draws=draws, seed=seed
    )(parts)
    seen = inputs(model, tokens)
    before = model(seen)

    def measure(logits: Tensor) -> Arrays:
        loss = per_token_loss(logits, tokens)
        loss = torch.nn.functional.pad(loss, (0, seen.shape[1] - loss.shape[1]), value=float("nan"))[:, rows]
        logits = logits[:, rows]
        found = {"loss": loss, "softmax": logits.softmax(-1), "logit": logits[..., read]}
        found["probability"] = found["softmax"][..., read]
        found["kl"] = torch.stack([_divergence(*logs) for logs in zip(before[:, rows], logits, strict=True)])
        if pair is not None:
            found["logit_difference"] = logits[..., pair[0]] - logits[..., pair[1]]
        return found

    def ablated(edits: list[Edit]) -> Arrays:
        with applied(edits):
            return measure(model(seen))

    runs = [measure(before), _mean(ablated(edits) for edits in plans)]
    for run in runs:
        run["top_probability"], run["top_token"] = run.pop("softmax").topk(top)
    arrays = {name: torch.stack([run[name] for run in runs]) for name in runs[0]} | {"kl": runs[1]["kl"]}
    coords = {"run": RUNS, "sequence": range(len(tokens)), "pos": range(seen.shape[1])[rows], "rank": range(top)}
    return xr.Dataset(
        {name: (VARIABLES[name][0], arrays[name].cpu().numpy(), VARIABLES[name][1]) for name in VARIABLES
         if name in arrays and (read or "token" not in VARIABLES[name][0])},
        coords | ({"token": read} if read else {}),
        {"mode": mode, "frozen": frozen, "n_sequences": len(tokens)} | ({"pair": list(pair)} if pair else {}),
    )  # fmt: skip


def _divergence(clean: Float[Tensor, "pos d_vocab"], ablated: Float[Tensor, "pos d_vocab"]) -> Float[Tensor, " pos"]:
    """KL of two rows of logits; in float64, where it is never below 0 by more than rounding."""
    p, q = (logits.double().log_softmax(-1) for logits in (clean, ablated))
    return (p.exp() * (p - q)).sum(-1).clamp_min(0)


def change(found: xr.Dataset) -> xr.Dataset:
    """Ablated minus clean, of every variable that has both and can be subtracted."""
    both = found[[name for name in found.data_vars if "run" in found[name].dims and not str(name).startswith("top_")]]
    return both.sel(run="ablated", drop=True) - both.sel(run="clean", drop=True)


def _mean(results: Iterable[Arrays]) -> Arrays:
    """The mean over draws, one draw in memory at a time."""
    total: Arrays = {}
    n = 0
    for arrays in results:
        n += 1
        total = {name: value + total[name] if total else value for name, value in arrays.items()}
    return {name: value / n for name, value in total.items()}


@any_model
@torch.no_grad()
def head_outcomes(
    model: HeadModel,
    parts: Iterable[Part],
    mode: Mode | str = "zero",
    *,
    repeat: ProbeR,
    text: Int[Tensor, "batch pos"] | None = None,
    positions: Iterable[int] | None = None,
    frozen: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> xr.Dataset:
    """What the rest of the network did: the measures of every head, `[run layer head]`, with and without some parts.

    duplicate_token and induction are measured on Probe R's second copy, the others on `text` (left out without it).
    Replacements come from the same batch. Where patterns are edited (edges, frozen) measures are those of the edited
    pattern, of which max_logit is not known (nan). A mean over draws has no fixed_distance_at.
    """
    import xarray as xr

    parts = list(parts)
    jobs: list[tuple[Tensor, slice, list[str]]] = [(repeat.tokens, repeat.second_copy, list(REPEAT_MEASURES))]
    if text is not None:
        jobs.append((text, slice(1, None), [name for name in TEXT_MEASURES if name != "fixed_distance_at"]))
    found: dict[str, Tensor] = {}
    for tokens, rows, names in jobs:
        plans = planner(model, tokens, mode, positions=positions, frozen=frozen, draws=draws, seed=seed)(parts)
        seen = inputs(model, tokens)
        clean, *ablated = (_measures(model, seen, rows, edits) for edits in ([], *plans))
        for measure in names:
            of_draws = torch.stack([one[measure] for one in ablated])
            found[measure] = torch.stack([clean[measure], of_draws.mean(0)])
    return xr.Dataset(
        {
            measure: (("run", "layer", "head"), values.cpu().numpy(), MEASURES[measure].attrs)
            for measure, values in found.items()
        },
        {"run": RUNS, "layer": np.arange(model.n_layers), "head": np.arange(model.n_heads)},
        {"mode": mode, "frozen": frozen},
    )  # fmt: skip


def _measures(model: HeadModel, tokens: Int[Tensor, "batch pos"], rows: slice, edits: list[Edit]) -> Arrays:
    """Every head measure, [layer head], under some edits; nan where a layer has fewer heads."""
    with applied(edits):
        if not any(edit.tap.endswith("hook_pattern") for edit in edits):
            return per_head(model, tokens, lambda call: head_means(call.stats(tokens), rows))
        with recording("hook_pattern") as seen:
            model(tokens)
    found: Arrays = {}
    for tap, pattern in seen.items():
        means = head_means(stats_from_pattern(pattern, tokens, causal=True), rows)
        _put(found, model, int(tap.split(".")[1]), 0, means)
    return found


def per_head(
    model: HeadModel, tokens: Int[Tensor, "batch pos"], read: Callable[[AttentionCall], Mapping[str, Tensor]]
) -> Arrays:  # fmt: skip
    """What is read of every attention of a pass, by name [layer head]; nan where a layer has fewer heads."""
    found: Arrays = {}
    with torch.no_grad(), visiting(lambda call: _put(found, model, call.layer, call.first_head, read(call))):
        model(tokens)
    return found


def _put(into: Arrays, model: HeadModel, layer: int, first: int, values: Mapping[str, Float[Tensor, " head"]]) -> None:
    for measure, value in values.items():
        table = into.setdefault(measure, value.new_full((model.n_layers, model.n_heads), float("nan")))
        table[layer, first : first + len(value)] = value


@fields_in_help
@dataclass(frozen=True)
class Repair:
    """What one head gives the right next token directly, and what of it is missed when the head is off.

    Logits are relative to the mean over the vocabulary. direct = missed + by_norm + by_others.
    """

    head: Head
    """(layer, head)."""
    direct: float
    """Direct logit attribution of what is replaced, with the final norm's scale held at the clean run's."""
    missed: float
    """By how much the logit really falls."""
    by_norm: float
    """What the final norm gives back: without this head the stream is shorter, so everything else counts more."""
    by_others: float
    """What later heads and MLPs give back, by doing something else than before."""
    loss: Estimate
    """Change in loss on the same tokens."""

    def words(self) -> str | None:
        """The finding with its numbers, or None when the effect is not small or the direct effect is not large."""
        if not (self.loss.mean < SMALL and self.direct >= LARGE):
            return None
        by_norm, by_others = (f"{x:.1f}".replace("-0.0", "0.0") for x in (self.by_norm, self.by_others))
        return (
            f"Switching {name(self.head)} off costs only {self.loss.mean:+.2f} nats, although it writes "
            f"{self.direct:.1f} logits straight to the right token. That logit falls by {self.missed:.1f}: the final "
            f"norm gives back {by_norm}, the other heads and MLPs {by_others}. A small effect "
            f"of one head does not mean that it is unused: others may do the same work, so switch off sets as well."
        )


@any_model
@torch.no_grad()
def self_repair(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    head: Head,
    mode: Mode | str = "zero",
    *,
    loss_positions: slice | Bool[Tensor, "batch loss_pos"] = slice(None),
    draws: int = DRAWS,
    seed: int = 0,
) -> Repair:
    """Direct effect of a head on the right next token against its whole effect, means over some loss positions.

    Source: direct logit attribution with the clean norm scale (transformer_lens ActivationCache.logit_attrs), direction
    W_U[token] - mean of W_U, before any cap of logits; self-repair, Rushing and Nanda 2024 (2402.15390); the
    split into norm and others is ours.
    """
    (chosen,) = check_heads(model, [head])
    layer, index = chosen
    seen = inputs(model, tokens)
    last, tap = f"blocks.{model.n_layers - 1}.hook_resid_post", z_tap(layer)
    plans = planner(model, tokens, mode, draws=draws, seed=seed)([chosen])
    stream = model.residual_stream(seen)
    end, writer = stream.end, stream.layers[layer]

    def centred(logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, "batch loss_pos"]:
        """Logit of the right next token over the mean of all."""
        right = tokens[:, 1:, None]
        return logits[:, : right.shape[1]].gather(-1, right).squeeze(-1) - logits[:, : right.shape[1]].mean(-1)

    def at_end(x: Tensor) -> Float[Tensor, "batch loss_pos"]:
        return centred(end(x, capped=False))

    ours, clean = at_end(stream.final), per_token_loss(stream.logits, tokens)

    def parts() -> Float[Tensor, "part batch loss_pos"]:
        with recording(tap, last) as ablated:
            loss = per_token_loss(model(seen), tokens)
        change = writer.gated(ablated[tap].to(writer.z) - writer.z)[:, :, index] @ writer.weights.W_O[index]
        lost = -writer.rewritten(change)
        direct = centred(end.held(lost, stream.final))
        missed, norm_only = ours - at_end(ablated[last].to(lost)), at_end(stream.final - lost)
        return torch.stack([direct, missed, direct - (ours - norm_only), ours - norm_only - missed, loss - clean])

    read = loss_positions
    if isinstance(read, slice):
        read = torch.zeros_like(tokens[:, 1:], dtype=torch.bool)
        read[:, loss_positions] = True
    *found, delta = averaged(plans, parts)
    direct, missed, by_norm, by_others = (float(part[read].mean()) for part in found)
    return Repair(chosen, direct, missed, by_norm, by_others, estimate(by_row(delta, read)))
