"""Every head switched off by itself at every snapshot of a run: when in training does a head become causal?

1. What is missing in the run's effects.zarr is a list of (step, modes).
2. Each process takes every n-th of them; the first one writes, in order of steps. Fewer snapshots than processes are
   shared by layers where the model is one of others, of which each head is a pass; heads of ours are one batch.
3. A step is done once its row is committed, so a sweep that was killed, or a run that has grown, only needs the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.ablate import DRAWS, MODES, sweep
from tracer.analysis.eval_sequences import MORE, Batches, batches
from tracer.store import EffectsWriter, Run, open_run
from tracer.training.interrupts import any_process, interrupts
from tracer.training.malloc import keep_freed_memory

if TYPE_CHECKING:
    import xarray as xr

Progress = Callable[[int, int], None]
Todo = tuple[int, list[str]]


def sweep_run(
    run: Run | str | Path,
    modes: Iterable[str] = MODES,
    steps: Iterable[int] | None = None,
    draws: int = DRAWS,
    frozen: bool = False,
    progress: Progress | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """The change in mean next-token loss from switching off each head: `effect[step probe mode layer head]`, in nats.

    Probe `repeat` is Probe R at its predictable positions, `text` the run's held-out text. Heads of a run that was
    trained with clamps are switched off with the clamps of that step in force. Computed once: the numbers stay in the
    run as `run.effects`, which is what this returns. `progress` is given (snapshots done, snapshots to do).
    A Ctrl-C stops after the snapshot at hand and raises KeyboardInterrupt; called again, this goes on from there.
    Processes give the numbers of one process when each uses as many threads.
    """
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list, gather_object

    run = run if isinstance(run, Run) else open_run(run)
    modes, wanted = _modes(modes), _steps(run, steps)
    keep_freed_memory()  # a quarter of the time of a small model's sweep
    state, found = PartialState(cpu=not _gpu()), batches(run)
    with ExitStack() as stack:
        writer = None
        if state.is_main_process:
            writer = EffectsWriter(run.dir, _coords(found), _attrs(draws, seed, found), len(run.steps))
            stack.callback(writer.close)
        asked = stack.enter_context(interrupts())
        todo = _missing(writer, wanted, modes, frozen) if writer else []
        todo = broadcast_object_list([todo])[0]
        tell = progress if progress is not None and state.is_main_process else lambda done, of: None
        tell(0, len(todo))
        for begin in range(0, len(todo), state.num_processes):
            if any_process(asked()):
                raise KeyboardInterrupt
            turn, rows = todo[begin : begin + state.num_processes], []
            parts = state.num_processes // len(turn) if run.why_not("recipe") else 1
            mine, part = divmod(state.process_index, parts)
            if mine < len(turn):
                step, missing = turn[mine]
                rows = _effects(run, step, missing, found, draws, frozen, seed, state.device, slice(part, None, parts))
            rows = gather_object(rows)
            if writer:
                for (mode, step), effect in _whole(rows).items():
                    writer.append(mode, frozen, step, effect)
            tell(begin + len(turn), len(todo))
    state.wait_for_everyone()
    return run.effects


def _effects(
    run: Run, step: int, modes: list[str], found: Batches, draws: int, frozen: bool, seed: int, device: Any,
    part: slice,
) -> list[tuple[str, int, np.ndarray]]:  # fmt: skip
    """(mode, step, effect[probe layer head]) of a part of the layers of one snapshot, nan in the others."""
    model: Any = run.model(step)
    model.to(device)
    layers = range(model.n_layers)[part]
    whole = {"layer": range(model.n_layers)}
    return [
        (mode, step, np.stack([
            sweep(
                model, tokens.to(device), mode, layers=layers, positions=where, reference=found.reference(name, mode),
                frozen=frozen, draws=draws, seed=seed,
            ).reindex(whole).values
            for name, tokens, where in found.sequences()
        ]))
        for mode in (modes if layers else ())
    ]  # fmt: skip


def _whole(rows: list[tuple[str, int, np.ndarray]]) -> dict[tuple[str, int], np.ndarray]:
    """Parts of the layers put together."""
    found: dict[tuple[str, int], np.ndarray] = {}
    for mode, step, effect in rows:
        there = found.setdefault((mode, step), effect)
        found[mode, step] = np.where(np.isnan(there), effect, there)
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
    if run.about.why_not("prompts"):
        raise ValueError(f"{run.name} was recorded from a model whose code is not in the run: its heads stay on")
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


def _coords(found: Batches) -> dict[str, Any]:
    return {"probe": (("probe",), np.array([name for name, *_ in found.sequences()]), {})}


def _attrs(draws: int, seed: int, found: Batches) -> dict[str, Any]:
    return {
        "long_name": "change in next-token loss when the head is off", "units": "nats",
        "formula": "mean loss with the head's z replaced - mean loss of the clean run, at the probe's loss positions",
        "source": "Olsson et al. 2022, ablations; metrics of tracer.ablate", "draws": draws, "seed": seed,
        "mean_of": f"{MORE} times as many sequences",
        "n_sequences": {name: len(tokens) for name, tokens, _ in found.sequences()},
    }  # fmt: skip


def _gpu() -> bool:
    import torch

    return torch.cuda.is_available()
