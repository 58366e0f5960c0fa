"""When to measure and what: from a model and a step to one row of the trace.

Row t is about the weights after t updates: the head statistics, losses and patterns on fixed probes, the loss and the
gradients of training batch t, and the size of the update that follows.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tracer.config import RecordConfig, TrainConfig
from tracer.data import Data, probes, token_strings
from tracer.data.own_probe import OwnRecord, loss_on
from tracer.heads import pattern, probe_errors, probe_scores, stats
from tracer.heads.averages import own_means
from tracer.heads.blocks import HeadStats
from tracer.heads.explicit import stats_from_pattern
from tracer.heads.row_block import OwnRows
from tracer.heads.row_maxima import row_maxima
from tracer.interventions.edits import recording
from tracer.interventions.replacements import pattern_tap
from tracer.measures import CONTROLS, HEAD_MEASURES, MEASURES, REPEAT_MEASURES, SE, Measure, Setting, gradients
from tracer.measures.stream_size import resid_rms
from tracer.model import QK_TAPS, Transformer
from tracer.model.layers import shares, with_sink
from tracer.store import Variable
from tracer.store.chunks import MOST_CHUNK
from tracer.store.trace_layout import HEAD_MEANS, TraceLayout, kept_prompts, layout, own_variables

SCALARS = (
    "train_loss", "val_loss", "icl_score", "repeat_loss", "first_copy_loss", "tokens_seen", "step_ms", "clip_factor",
    "learning_rate",
)  # fmt: skip
UNSURE = (*HEAD_MEANS, "val_loss", "icl_score", "repeat_loss", "first_copy_loss")
"""Means over the rows of a probe: their standard errors are recorded too."""
Read = tuple[Tensor, Tensor]
STREAM, VALUES = "blocks.0.hook_resid_pre", ("hook_v",)
ALL_ROWS = slice(None)
"""Of a user's probe: which rows count is the measure's to say, by nan."""
SHORTEST = 4
"""Positions of the shortest Probe R: a start token, a filler, a token, and that again."""


def doubling(limit: int) -> list[int]:
    """1, 2, 4, 8, ... below a limit: dense where training moves fastest."""
    return [2**i for i in range(64) if 2**i < limit]


def snapshot_steps(config: TrainConfig, model_bytes: int) -> list[int]:
    """0, the last step, and every `snapshot_every`-th, thinned so that all fit in `snapshot_mb`."""
    every, budget = config.record.snapshot_every, config.record.snapshot_mb * 1e6
    while (config.steps // every + 2) * model_bytes > budget and every < config.steps:
        every *= 2
    return sorted({*range(0, config.steps, every), config.steps})


def state_steps(config: TrainConfig, model_bytes: int, first: int = 0) -> list[int]:
    """The `first`, and every `state_every`-th after it but the last, thinned so that all fit in `state_mb`, or none.

    A state is counted as three times the weights: AdamW has two moments beside them, others less. Where they are
    reparametrised, what makes them is a fourth.
    """
    size = (3 + (config.optim.reparam != "none")) * model_bytes
    every, most = config.record.state_every, config.record.state_mb * 1e6 // size
    if not every or not most:
        return []
    while 1 + (config.steps - 1) // every - first // every > most:
        every *= 2
    return [first, *range((first // every + 1) * every, config.steps, every)]


def record_steps(config: TrainConfig, snapshots: list[int]) -> list[int]:
    """Every snapshot, and from `begin` on every `every`-th step, and powers of two before the first of those."""
    every = config.record.every
    asked = {*range(0, config.steps, every), *doubling(min(every, config.steps))}
    return sorted({*(step for step in asked if step >= config.record.begin), *snapshots, config.steps})


class ProbeRecorder:
    """Holds the probes, and measures on them."""

    def __init__(
        self, model: Transformer, config: RecordConfig, data: Data, own: OwnRecord | None = None,
        loss: Measure | None = None,
    ) -> None:  # fmt: skip
        self.device = model.embed.W_E.device
        n_ctx, self.d_vocab = model.config.n_ctx, model.embed.W_E.shape[0]
        if n_ctx < SHORTEST:
            raise ValueError(
                f"n_ctx={n_ctx} is too short to be recorded: the smallest is {SHORTEST}. Every record is taken on "
                f"random tokens that repeat, too (induction, prefix matching, Ablate), and a start token, a filler and "
                f"one token twice are {SHORTEST}. Rows of {n_ctx + 1} tokens fit with {SHORTEST - n_ctx} more in "
                f"front of each; with loss_mask no target there counts (docs/own.md)"
            )
        self.val, self.counted = self._held_out(data, config.val_rows)
        rows, counted = self._held_out(data, config.icl_rows)
        self.context = probes.in_context(rows, data.bos, counted)
        self.icl_every = config.icl_every
        self.repeat = probes.repeated(self.d_vocab, n_ctx, data.bos or 0, batch=config.repeat_rows)
        self.repeat_tokens = self.repeat.tokens.to(self.device)
        control = self.repeat.control[: probes.CONTROL_ROWS].to(self.device)
        self.both = torch.cat([self.repeat_tokens, control])
        """Probe R and its control, read in one pass."""
        self.both_repeat = torch.cat([self.repeat_tokens, self.repeat_tokens[: probes.CONTROL_ROWS]])
        """The tokens by which keys are told: those of Probe R, for the control's rows too."""
        self.n_text = min(config.text_prompts, len(self.val))
        self.n_repeat = min(config.repeat_prompts, len(self.repeat_tokens))
        self.width = min(config.pattern_ctx, n_ctx)
        n_patterns = (self.n_text + self.n_repeat) * model.config.n_layers * model.config.n_heads
        if n_patterns and self.width > (fits := math.isqrt(MOST_CHUNK // (2 * n_patterns))):  # float16
            raise ValueError(
                f"record.pattern_ctx={config.pattern_ctx}: {n_patterns} patterns of {self.width} positions are more "
                f"than a record may hold, {MOST_CHUNK >> 20} MB; at most {fits} fit, or keep those of fewer prompts "
                f"(record.text_prompts={config.text_prompts}, record.repeat_prompts={config.repeat_prompts})"
            )
        self.own = own or OwnRecord.given((), None, print)
        """What a user adds to each record."""
        self.loss = loss
        """What is said of a loss of the user's that is trained on."""
        self.own_tokens = {
            name: probe.fitting(name, self.d_vocab, n_ctx).to(self.device) for name, probe in self.own.probes.items()
        }
        self.is_own = data.is_own  # then nobody else can make these rows again, and they are kept
        self.tokenizer, self.config = data.tokenizer, model.config
        self.params = dict(model.named_parameters())

    def _held_out(self, data: Data, n: int) -> tuple[Tensor, Tensor | None]:
        """Held-out rows, and which of their targets count in a loss."""
        rows = data.val(n)
        counted = data.counted(rows)
        return rows.to(self.device), None if counted is None else counted.to(self.device)

    def layout(self) -> TraceLayout:
        """The variables and coordinates of this run's trace."""
        c = self.config
        prompts = kept_prompts(self.val[: self.n_text].tolist(), self.repeat_tokens[: self.n_repeat].tolist())
        setting = Setting.of(self.d_vocab, c.n_ctx)
        variables, coords = layout(
            (c.n_layers, c.n_heads), self.params, prompts, self.width, lambda ids: token_strings(self.tokenizer, ids),
            scalars=SCALARS, unsure={name: self._sequences(name) for name in UNSURE},
            attrs=lambda name: MEASURES[name].attributes(setting), tokens_are="the probe prompts",
        )  # fmt: skip
        own = self.own.rows if self.loss is None else (*self.own.rows, self.loss)
        variables |= own_variables(
            (c.n_layers, c.n_heads), own, self.own.sequences(len(self.val), len(self.repeat_tokens))
        )  # fmt: skip
        said = MEASURES["loss_by_position"].attributes(setting)
        variables["loss_by_position"] = Variable(("pos",), (c.n_ctx,), attrs=said)
        variables["tokens_seen"] = Variable((), (), "float64", MEASURES["tokens_seen"].attrs)
        if self.is_own:
            counted = torch.ones_like(self.val[:, 1:], dtype=torch.bool) if self.counted is None else self.counted
            coords["held_out_tokens"] = (("row", "token"), self.val.cpu().numpy(), {"long_name": "held-out rows"})
            said = {"long_name": "which targets count in a loss: at j, token j + 1"}
            coords["held_out_counted"] = (("row", "pos"), counted.cpu().numpy(), said)
        return variables, coords

    def _sequences(self, name: str) -> int:
        if name in (*CONTROLS.values(), "first_copy_loss"):
            return len(self.both) - len(self.repeat_tokens)
        if name == "icl_score":
            return len(self.context.full)
        return len(self.repeat_tokens if name in (*REPEAT_MEASURES, "repeat_loss") else self.val)

    @torch.inference_mode()
    def measure(self, model: Transformer, with_patterns: bool, with_context: bool = True) -> dict[str, np.ndarray]:
        """Head statistics and losses on Probe D (held-out text), Probe R (repeated tokens) and its control.

        `with_context`: and the in-context learning score, which takes rows of its own (Probe C).
        """
        training = model.training
        model.eval()
        on_text, on_repeat = self.own.measures.on("text"), self.own.measures.on("repeat")
        held = _held_patterns(model)
        with recording(*QK_TAPS, *held, *(VALUES if on_text else ()), STREAM, "hook_resid_post") as text:
            loss = probes.per_token_loss(model(self.val[:, :-1]), self.val)
        with recording(*QK_TAPS, *held, *(VALUES if on_repeat else ())) as repeat:
            read = _read(model, self.both)
        repeat_losses = self._repeated(model, read)
        context = self._in_context(model) if with_context else {}
        model.train(training)
        copies, n = self.repeat.second_copy, len(self.repeat_tokens)
        layers = range(self.config.n_layers)
        per_layer, errors, own = [], [], []
        for layer in layers:
            of_text, of_both = (
                _stats(model, layer, seen, tokens, rows, asked)
                for seen, tokens, rows, asked in (
                    (text, self.val[:, :-1] if on_text else None, None, on_text),
                    (repeat, self.both_repeat, copies, on_repeat),
                )
            )
            of_repeat, of_control = of_both.sequences(slice(n)), of_both.sequences(slice(n, None))
            per_layer.append(probe_scores(of_text, of_repeat, of_control, copies))
            errors.append(probe_errors(of_text, of_repeat, of_control, copies))
            own.append(
                (own_means(of_text, on_text.names) if on_text else {})
                | (own_means(of_repeat, on_repeat.names, copies) if on_repeat else {})
            )
        row = {name: torch.stack([scores[name] for scores in per_layer]) for name in HEAD_MEASURES}
        row |= {name: torch.stack([of[name] for of in errors]) for name in errors[0]}
        for name, by_row in repeat_losses.items():
            row |= {name: by_row.mean(), name + SE: probes.standard_error(by_row)}
        row |= {name: torch.stack([of[name] for of in own]) for name in own[0]}
        for name, tokens in self.own_tokens.items():
            row |= self._on_own(model, name, tokens)
        row |= context | {
            "val_loss": probes.mean_loss(loss, self.counted),
            "val_loss" + SE: probes.standard_error(_of_rows(probes.mean_loss(loss, self.counted, 1), self.counted)),
            "loss_by_position": probes.mean_loss(loss, self.counted, 0),
            "resid_rms": torch.stack(
                [resid_rms(text[name]) for name in (STREAM, *(f"blocks.{i}.hook_resid_post" for i in layers))]
            ),
        }
        if with_patterns:
            row["pattern"] = torch.stack([self._patterns(model, layer, text, repeat) for layer in layers], dim=1)
        found = gradients.fetch(row)
        self.own.measures.seen(found)
        return found

    def _on_own(self, model: Transformer, probe: str, tokens: Tensor) -> dict[str, Tensor]:
        """The loss on a probe of the user's, and what is measured of heads there."""
        asked = self.own.measures.on(probe)
        with recording(*QK_TAPS, *_held_patterns(model), *VALUES) as seen:
            row = loss_on(probe, model(tokens), tokens)
        found = []
        for layer in range(self.config.n_layers if asked else 0):
            of = _stats(model, layer, seen, tokens, None, asked)
            found.append(own_means(of, asked.names, ALL_ROWS) if asked else {})
        return row | {name: torch.stack([of[name] for of in found]) for name in (found[0] if found else {})}

    def _in_context(self, model: Transformer) -> dict[str, Tensor]:
        """A pass without statistics, of which only the last positions are unembedded."""
        full, short, width = self.context.full, self.context.short, self.context.width
        late, early = (
            self.context.losses(_logits(model, *_read(model, rows[:, :-1]), at=slice(-width, None)))
            for rows in (full, short)
        )
        counted = self.context.counted
        by_row = _of_rows(probes.icl_score(late, early, counted), counted)
        return {"icl_score": by_row.mean(), "icl_score" + SE: probes.standard_error(by_row)}

    def _repeated(self, model: Transformer, read: Read) -> dict[str, Float[Tensor, " batch"]]:
        """By row: the loss on the second copy, and (of the control's rows alone) on the new tokens before it."""
        period, found = self.repeat.period, {}
        for name, n_rows, at in (
            ("repeat_loss", len(self.repeat_tokens), probes.predictable(period)),
            ("first_copy_loss", len(self.both) - len(self.repeat_tokens), probes.new_tokens(period)),
        ):
            x, z = (part[:n_rows] for part in read)
            targets = self.repeat_tokens[:n_rows, at.start : at.stop + 1]
            found[name] = probes.per_token_loss(_logits(model, x, z, at), targets).mean(1)
        return found

    def _patterns(self, model: Transformer, layer: int, text: dict[str, Tensor], repeat: dict[str, Tensor]) -> Tensor:
        """One layer's patterns of the kept prompts, [prompt head query_pos key_pos]; NaN beyond a prompt's end."""
        scale, n, (q, k) = self.config.scale, self.width, model.qk_taps(layer)
        parts = []
        for seen, count in ((text, self.n_text), (repeat, self.n_repeat)):
            first_q, first_k = seen[q][:count, :n], seen[k][:count, :n]
            if model.held(layer):
                p = seen[pattern_tap(layer)][:count, :, :n, :n]
                p = shares(p)[0] if model.config.attention == "sigmoid" else p
            else:
                p = pattern(first_q, first_k, scale=scale, mask=model.visible(layer, first_q))
            full = p.new_full((count, p.shape[1], n, n), float("nan"))
            full[..., : p.shape[-2], : p.shape[-1]] = p
            parts.append(full)
        return torch.cat(parts)

    def before_update(self) -> dict[str, Tensor]:
        """g and w of every tensor and head, and a copy of the weights to measure the update against."""
        grads, self._old = gradients.gradients(self.params), gradients.copies(self.params)
        return {
            "grad_norm": gradients.tensor_norms(grads),
            "weight_norm": gradients.tensor_norms(self._old),
            "head_grad_norm": gradients.head_norms(grads),
            "head_weight_norm": gradients.head_norms(self._old),
        }

    def after_update(self, norms: dict[str, Tensor], clip_factor: Tensor) -> dict[str, np.ndarray]:
        """Adds u, from the true difference of the weights, and g after clipping, which scales every gradient alike."""
        moved = gradients.differences(self._old, self.params)
        ratio = gradients.update_ratio(gradients.tensor_norms(moved), norms["weight_norm"])
        head_ratio = gradients.update_ratio(gradients.head_norms(moved), norms["head_weight_norm"])
        self._old = {}
        clipped = {f"{name}_clipped": norms[name] * clip_factor for name in ("grad_norm", "head_grad_norm")}
        return gradients.fetch({
            **norms, **clipped, "clip_factor": clip_factor, "update_ratio": ratio, "head_update_ratio": head_ratio,
        })  # fmt: skip


def _held_patterns(model: Transformer) -> list[str]:
    """The taps of patterns of which q and k do not tell some heads."""
    return [pattern_tap(layer) for layer in range(model.n_layers) if model.held(layer)]


def _stats(
    model: Transformer,
    layer: int,
    seen: dict[str, Tensor],
    tokens: Tensor | None,
    only: slice | None,
    own: OwnRows | None,
) -> HeadStats:
    """Head statistics of one layer, from q and k where these make the patterns, else from the patterns."""
    (q, k), scale = (seen[name] for name in model.qk_taps(layer)), model.config.scale
    mask, v = model.visible(layer, q), seen[f"blocks.{layer}.attn.{VALUES[0]}"] if own else None
    if not model.held(layer):
        return stats(q, k, tokens, scale=scale, mask=mask, only=only, own=own, own_v=v)
    attention = model.blocks[layer].attn
    largest, keys = attention.capped(row_maxima(q, k, scale=scale, mask=mask)), None
    if mask is not None:
        keys = mask.tril().sum(-1).expand_as(largest)
    made, sink = seen[pattern_tap(layer)], attention.sink_logits(largest)
    largest = largest if sink is None else torch.maximum(largest, sink[:, None])
    softmax, nowhere = model.config.attention == "softmax", model.config.looks_nowhere
    if nowhere:
        made, keys = with_sink(made if softmax else shares(made)[0]), keys if keys is None else keys + 1
    found = stats_from_pattern(
        made, tokens, causal=True, largest=largest if softmax else None, seen=keys, own=own, v=v, extra=int(nowhere)
    )
    found = found if softmax else replace(found, max_logit=largest.amax(-1))
    return found if only is None else replace(found, max_logit=largest[..., only].amax(-1))


def _of_rows(means: Float[Tensor, " batch"], counted: Bool[Tensor, "batch pos"] | None) -> Float[Tensor, " row"]:
    """Means of the rows in which a target counts."""
    return means if counted is None else means[counted.any(1)]


def _read(model: Transformer, tokens: Tensor) -> Read:
    """What enters the last block, and its heads' z: all q and k are there, most of the cost is not."""
    x, attn_pos = model.start(tokens)
    for block in model.blocks[:-1]:
        x = block(x, attn_pos, tokens)
    last = model.blocks[-1]
    return x, last.attn.heads(last.attn_in(x), attn_pos, tokens)


def _logits(model: Transformer, x: Tensor, z: Tensor, at: slice) -> Float[Tensor, "batch pos d_vocab"]:
    """The logits at these positions: from the last block's heads on, each goes by itself."""
    last = model.blocks[-1]
    return model.logits(last.finish(x[:, at], last.write(x[:, at], z[:, at])))
