"""Which rows of a batch moved a head: the loss of each, its part of the head's gradient, and the step without it.

1. The training goes on from the nearest state that is kept at or before the step, as it was, to the step.
2. The gradient of each row alone is taken, of its part of the batch's loss: these add up to the batch's.
3. The step is made, and made again from the same state without each row in turn: its gradient is taken out of the sum,
   and the mean keeps its denominator. What a measure of the head is then, against what it is with all rows, is exact.
   Where QK-clip scales a head, it goes by the largest logit of the whole batch, with and without the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import xarray as xr
from torch import Tensor

from tracer.data import token_strings
from tracer.data.own_probe import Probes
from tracer.data.own_source import Make
from tracer.heads.own_measures import Measures
from tracer.interventions.own_clamps import Given
from tracer.measures import HEAD_MEASURES, MEASURES
from tracer.measures.aliases import Head, Progress
from tracer.measures.gradients import MATRICES
from tracer.store import Run
from tracer.tracking.scalar_functions import Scalars
from tracer.training.again import Again, Tensors
from tracer.training.job import IGNORED, Job, Micro, dropout_seed, forward_backward, hold, micro_batches, update
from tracer.training.repeatable import repeatable


def which_rows(
    run: Run | str | Path, step: int, head: Head, measure: str = "induction", *, progress: Progress | None = None,
    measures: Measures = (), probes: Probes = None, scalars: Scalars | Sequence[Scalars] = (),
    corpus: str | Make | None = None, clamp: Given = (),
) -> xr.Dataset:  # fmt: skip
    """What each training row of a step did to a head.

    Args:
        run: A run of `tracer.train`, or its name; trained here again, in this process, from the nearest kept state.
        step: Whose update is looked at: that from `step` to `step + 1` updates.
        head: (layer, head).
        measure: Of heads, as a record has it: on held-out text, or on repeated tokens.
        measures, probes, scalars, corpus, clamp: Those of the run, named again, as in `tracer.fork`.

    Returns:
        By `row` of the batch: `loss` (nats, mean over its targets that count), `gradient` [row matrix] (norm of its
        gradient in the head's slice of W_Q, W_K, W_V, W_O), `share` [row matrix] (that gradient along the sum of all:
        the shares of a matrix add up to 1, and one may be negative), `effect` (the measure after the step, less the
        measure after the step without the row: exact), `mixed_in` (is it from `data.mix`?), `tokens` and `text`.
        Attributes: `before` and `after` (the measure, with all rows), and `same`, in words: what could be compared with
        the run, and whether it is equal to the bit.

    Source: ours; the step without a row is what influence functions (Koh and Liang 2017) estimate to first order.
    Cost: an update for each step from the kept state, then a backward pass, an update and the
    run's probes for each row.

    Raises:
        ValueError: For a step that made no update, a head or a measure that is not there, a loss of one's own.
    """
    if measure not in HEAD_MEASURES:
        raise ValueError(f"{measure!r} is no measure of heads that every record has: {', '.join(HEAD_MEASURES)}")
    again = Again(
        run, step, step + 1, head, measures=measures, probes=probes, scalars=scalars, corpus=corpus, clamp=clamp
    )

    def read() -> float:
        scores = again.recorder.measure(again.job.raw, with_patterns=False, with_context=False)[measure]
        return float(scores[again.head])

    again.go_to(step)
    found = without_each(again, read, progress or (lambda done, of: None))
    weights = found.attrs.pop("weights")
    same = ", ".join(
        f"{what} {'equal' if is_same else 'not equal'} to the bit"
        for what, is_same in again.same(step, weights, found.attrs["batch_loss"])
    )
    row, (layer, at) = MEASURES[measure], again.head
    return found.assign_attrs(
        run=again.parent.name, step=step, start=again.start, head=f"L{layer}H{at}", measure=measure, label=row.label,
        unit=row.unit, same=same or "nothing was kept of this step to compare with",
    )  # fmt: skip


def without_each(again: Again, read: Callable[[], float], progress: Progress) -> xr.Dataset:
    """The step that comes next, with all its rows and without each; afterwards all is as it was before it."""
    job, step, head = again.job, again.step, again.head
    hold(job, step)
    kept = again.kept()
    before = read()
    job.raw.train()
    batch_loss = float(forward_backward(job, step))
    whole = {name: p.grad.detach().clone() for name, p in job.raw.named_parameters() if p.grad is not None}
    update(job, step)
    after = read()
    n = job.config.optim.batch_size
    losses, effects = np.full(n, np.nan), np.full(n, np.nan)
    norms, shares = np.full((n, len(MATRICES)), np.nan), np.full((n, len(MATRICES)), np.nan)
    names = [f"blocks.{head[0]}.attn.W_{matrix}" for matrix in MATRICES]
    again.back(kept, step)
    batch = micro_batches(job, step, 0, 1)
    for row in range(n):
        progress(row, n)
        losses[row], grads = _of_row(job, step, row, batch)
        for i, name in enumerate(names):
            if name in grads:
                mine, all_rows = (g[name][head[1]].double().flatten() for g in (grads, whole))
                norms[row, i], square = float(mine.norm()), float(all_rows @ all_rows)
                shares[row, i] = float(mine @ all_rows) / square if square else math.nan
        for name, p in job.raw.named_parameters():
            p.grad = whole[name] - grads[name] if name in whole else None
        update(job, step)
        effects[row] = after - read()
        again.back(kept, step)
    progress(n, n)
    rows = job.data.train(step, n)
    text = ["".join(token_strings(job.data.tokenizer, ids)) for ids in rows.tolist()]
    return xr.Dataset(
        {
            "loss": ("row", losses, {"units": "nats"}), "gradient": (("row", "matrix"), norms),
            "share": (("row", "matrix"), shares), "effect": ("row", effects),
            "mixed_in": ("row", job.data.mixed_in(step, n)), "tokens": (("row", "pos"), rows.numpy()),
        },
        {"row": np.arange(n), "matrix": list(MATRICES), "text": ("row", text)},
        {"before": before, "after": after, "batch_loss": batch_loss,
         "weights": {name.removeprefix("model."): x for name, x in kept.items() if name.startswith("model.")}},
    )  # fmt: skip


def _of_row(job: Job, step: int, row: int, batch: tuple[list[Micro], int | None]) -> tuple[float, Tensors]:
    """The mean loss of a row of the batch, and the gradient of its part of the batch's loss."""
    params = {name: p for name, p in job.raw.named_parameters() if p.requires_grad}
    micros, n_counted = batch
    total = n_counted or sum(answer.numel() for _, answer in micros)
    with repeatable(job.accelerator.device):
        if job.config.model.dropout:  # whose numbers hang on all rows before it
            torch.manual_seed(dropout_seed(job.config.seed, step, 0))
            size = len(micros[0][0])
            with torch.no_grad():
                for rows, _ in micros[: row // size]:
                    _logits(job, rows)
            (rows, answers), at = micros[row // size], row % size
            logits, answer = _logits(job, rows)[at], answers[at]
        else:
            rows, answers = (torch.cat(part) for part in zip(*micros, strict=True))
            logits, answer = _logits(job, rows[row : row + 1])[0], answers[row]
        loss = F.cross_entropy(logits, answer, reduction="sum")
        grads = torch.autograd.grad(loss / total, list(params.values()), allow_unused=True)
    found = {name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(params.items(), grads, strict=True)}
    return float(loss.detach()) / max(1, int((answer != IGNORED).sum())), found


def _logits(job: Job, rows: Tensor) -> Tensor:
    with torch.autocast(job.accelerator.device.type, torch.bfloat16, enabled=job.bf16):
        return job.raw(rows[:, :-1]).float()
