"""Every head switched off by itself at every snapshot of a run: when in training does a head become causal?

1. What is missing in the run's effects.zarr is a list of (step, modes).
2. Each process takes every n-th of them; the first one writes, in order of steps. Fewer snapshots than processes are
   shared by layers where the model is one of others, of which each head is a pass; heads of ours are one batch.
3. A step is done in a mode once its row is committed, so a sweep that was killed, or a run that has grown, only needs
   the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.ablate import sweep
from tracer.ablate.metrics import AnyMetric, Loss, Metric, OwnMetric, fingerprint, metric_of, told
from tracer.analysis.eval_sequences import Batches, batches
from tracer.analysis.given_tokens import Given, GivenTokens, given_tokens
from tracer.interventions.replacements import DRAWS, MODES, MORE
from tracer.measures.aliases import Progress
from tracer.model.protocol import device_of
from tracer.store import EffectsWriter, Run, open_run
from tracer.training.interrupts import any_process, interrupts, processes
from tracer.training.malloc import keep_freed_memory

if TYPE_CHECKING:
    import xarray as xr

ALL = slice(None)
Todo = tuple[int, list[str]]
Row = tuple[int, np.ndarray]
"""A step, and its effect[probe layer head], nan in the layers that another process took."""


class _Stopped(Exception):
    """Asked to stop within a row."""


def sweep_run(
    run: Run | str | Path,
    modes: Iterable[str] = MODES,
    steps: Iterable[int] | None = None,
    draws: int = DRAWS,
    frozen: bool = False,
    progress: Progress | None = None,
    seed: int = 0,
    metric: AnyMetric | None = None,
    tokens: Given | None = None,
) -> xr.Dataset:
    """The change in mean next-token loss from switching off each head: `effect[step probe mode layer head]`, in nats.

    Probe `repeat` is Probe R at its predictable positions, where mean and resample are taken from rows without a
    repeat, `text` the run's held-out text, as far as there are such (`Batches.sequences`); nan where a mode finds no
    other sequence to take from, which `modes` leaves out where it is so of both. Heads of a run that was trained with
    clamps are switched off with the clamps of that step in force.
    `metric`: another thing to measure, as in `ablate.sweep`: "kl", a function of (logits, targets, clean) at the top of
    a module, its name "module:name", `LogitDifference(...)`. `tokens`: one probe, `tokens`, instead of the two: ids
    [sequence pos], or a file of them (.npy) or of text. Numbers of each metric, of its code and of each set of tokens
    are kept apart, in `run.own_effects`.
    Computed once: the numbers stay in the run as `run.effects` or one of `run.own_effects`, which is what this returns.
    `progress` is given (ablations done, ablations to do): one is a head off on a probe with one replacement, of which
    resample draws several. A Ctrl-C stops after those at hand and raises KeyboardInterrupt; called again, this goes on
    after the last mode of a snapshot that was whole. Processes give the numbers of one process when each uses as many
    threads.
    """
    from accelerate.utils import broadcast_object_list, gather_object

    run = run if isinstance(run, Run) else open_run(run)
    asked_for, wanted = _modes(modes), _steps(run, steps)
    keep_freed_memory()  # a quarter of the time of a small model's sweep
    measured = None if metric is None or metric == "loss" else metric_of(metric)
    state, found = processes(), batches(run) if tokens is None else given_tokens(tokens, run)
    of, own = _of(measured, found)
    modes = [mode for mode in asked_for if mode in found.modes]
    if not modes:
        found.sequences(asked_for[0])  # says why not
    with ExitStack() as stack:
        writer = None
        if state.is_main_process:
            coords = {"probe": (("probe",), np.array([one.name for one in found.sequences()]), {})}
            writer = EffectsWriter(run.dir, coords, _attrs(draws, seed, found) | own, len(run.steps), of)
            stack.callback(writer.close)
        asked = stack.enter_context(interrupts())
        todo = _missing(writer, wanted, modes, frozen) if writer else []
        todo = broadcast_object_list([todo])[0]
        heads = run.trace.sizes["layer"] * run.trace.sizes["head"]
        each = {mode: len(found.sequences(mode)) * heads * (draws if mode == "resample" else 1) for mode in modes}
        tell = progress if progress is not None and state.is_main_process else lambda done, of: None
        done, all_ = 0, sum(each[mode] for _, missing in todo for mode in missing)
        tell(0, all_)
        for begin in range(0, len(todo), state.num_processes):
            turn = todo[begin : begin + state.num_processes]
            parts = state.num_processes // len(turn) if run.why_not("recipe") else 1
            mine, part = divmod(state.process_index, parts)
            step, missing = turn[mine] if mine < len(turn) else (0, [])
            model: Any = run.model(step) if missing else None
            if missing:
                model.to(state.device)
            for mode in modes:
                cost = each[mode] * sum(mode in left for _, left in turn)

                def heard(share: float, done: int = done, cost: int = cost) -> None:
                    if asked():
                        raise _Stopped
                    if share < 1:  # the end of a mode is told once it is kept
                        tell(done + int(share * cost), all_)

                rows: list[Row | None] = []
                try:
                    if mode in missing and (layers := range(model.n_layers)[part::parts]):
                        rows = [(step, _effect(model, layers, mode, found, draws, frozen, seed, heard, measured))]
                except _Stopped:
                    rows = [None]
                rows = gather_object(rows)
                if writer and None not in rows:
                    for step_, effect in _whole(row for row in rows if row is not None).items():
                        writer.append(mode, frozen, step_, effect)
                if None in rows or any_process(asked()):
                    raise KeyboardInterrupt
                done += cost
                if cost:
                    tell(done, all_)
    state.wait_for_everyone()
    return run.own_effects[of] if of else run.effects


def _of(metric: Metric | OwnMetric | None, found: Batches | GivenTokens) -> tuple[str, dict[str, Any]]:
    """What numbers of another metric or of other tokens are called in the run, and what they say of themselves."""
    given = found if isinstance(found, GivenTokens) else None
    if metric is None and given is None:
        return "", {}
    metric = metric or Loss()
    name, tokens = told(metric), given.told if given else "the run's probes"
    words = re.sub(r"\W+", "_", name.partition("(")[0].rpartition(":")[2])[:40]
    key = sha256(f"{fingerprint(metric)} {given.hash if given else ''}".encode()).hexdigest()[:12]
    return f"{words}-{key}", {
        "long_name": f"change in {metric.long_name} when the head is off", "units": metric.units, "metric": name,
        "tokens": tokens, "source": f"metric {name}",
        "formula": "mean of the metric with the head's z replaced - its mean of the clean run",
    }  # fmt: skip


def _effect(
    model: Any, layers: range, mode: str, found: Batches | GivenTokens, draws: int, frozen: bool, seed: int,
    heard: Callable[[float], None], metric: Metric | OwnMetric | None,
) -> np.ndarray:  # fmt: skip
    """effect[probe layer head] of some layers of one snapshot, nan in the others; `heard` is told the share done."""
    device, probes = device_of(model), found.sequences(mode)
    effects = {one.name: np.full((model.n_layers, model.n_heads), np.nan) for one in found.sequences()}
    for i, (name, tokens, where) in enumerate(probes):
        effects[name] = sweep(
            model, tokens.to(device), mode, layers=layers, metric=_at(metric, where),
            reference=found.reference(name, mode),
            frozen=frozen, draws=draws, seed=seed,
            progress=lambda done, of, i=i: heard((i + done / of) / len(probes)),
        ).reindex(layer=range(model.n_layers)).values  # fmt: skip
    return np.stack(list(effects.values()))


def _at(metric: Metric | OwnMetric | None, where: slice) -> Metric | OwnMetric:
    """The metric at the loss positions of a probe that count, where it says nothing of positions itself."""
    if metric is None:
        return Loss(where)
    return replace(metric, positions=where) if isinstance(metric, OwnMetric) and metric.positions == ALL else metric


def _whole(rows: Iterable[Row]) -> dict[int, np.ndarray]:
    """Parts of the layers put together."""
    found: dict[int, np.ndarray] = {}
    for step, effect in rows:
        there = found.setdefault(step, effect)
        found[step] = np.where(np.isnan(there), effect, there)
    return found


def _missing(writer: EffectsWriter, wanted: list[int], modes: list[str], frozen: bool) -> list[Todo]:
    there = {mode: writer.steps(mode, frozen) for mode in modes}
    todo = [(step, [mode for mode in modes if step not in there[mode]]) for step in wanted]
    return [(step, missing) for step, missing in todo if missing]


def _modes(modes: Iterable[str]) -> list[str]:
    chosen = list(dict.fromkeys([modes] if isinstance(modes, str) else modes))
    if not chosen or not set(chosen) <= set(MODES):
        raise ValueError(f"modes={', '.join(chosen) or 'none'}: choose among {', '.join(MODES)}")
    return chosen


def _steps(run: Run, steps: Iterable[int] | None) -> list[int]:
    kept = run.steps
    if no_heads := run.about.why_not("heads"):
        raise ValueError(f"{run.name} has no heads to switch off: {no_heads}")
    if why := run.about.why_not("prompts"):
        if run.about.kind == "trained":  # with a clamp that nobody here has named
            raise ValueError(f"{run.name} cannot be run: {why}")
        build = run.meta.get("build")
        again = f"; where you trust it: `tracer sweep {run.name} --build {build}`" if build else ""
        raise ValueError(f"{run.name} was recorded from a model whose code is not in the run: its heads stay on{again}")
    if not kept:
        why = run.why_not("prompts")
        raise ValueError(f"{run.name} holds no snapshot{f'. {why}' if why else ' yet'}: there is nothing to sweep")
    chosen = kept if steps is None else sorted(set(steps))
    if unknown := [step for step in chosen if step not in kept]:
        raise ValueError(
            f"{run.name} has no snapshot of step {', '.join(map(str, unknown))}; it has those of "
            f"{', '.join(map(str, kept))}"
        )
    return chosen


def _attrs(draws: int, seed: int, found: Batches | GivenTokens) -> dict[str, Any]:
    alone = isinstance(found, GivenTokens)
    return {
        "long_name": "change in next-token loss when the head is off", "units": "nats",
        "formula": "mean loss with the head's z replaced - mean loss of the clean run, at the probe's loss positions",
        "source": "Olsson et al. 2022, ablations; metrics of tracer.ablate", "draws": draws, "seed": seed,
        "mean_of": "the others" if alone else f"{MORE} times as many sequences, for `repeat` without a repeat",
        "drawn_from": "the others" if alone else "other sequences, for `repeat` without a repeat",
        "n_sequences": {name: len(tokens) for name, tokens, _ in found.sequences()},
    }  # fmt: skip
