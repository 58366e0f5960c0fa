"""Reading a run directory: what `tracer.open_run` returns."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.config import Clamp, ModelConfig, TrainConfig
from tracer.files.disk import MOST_SAMPLES, MOST_TOKENIZER, BrokenSnapshot, read_bytes, read_lines
from tracer.files.sealed import shapes
from tracer.huggingface import building
from tracer.huggingface.architectures import layout_of
from tracer.measures.abilities import Asked
from tracer.store import about, copies, remote
from tracer.store.about import About
from tracer.store.effects_file import others, read_effects
from tracer.store.layout import (
    NotARun,
    NothingRecorded,
    is_locked,
    names_in,
    resume_path,
    snapshot_path,
    state_path,
    steps_in,
)
from tracer.store.meta import read_meta
from tracer.store.snapshots import broken, load_tensors
from tracer.store.tokenizer_file import read_tokenizer
from tracer.store.trace import is_laid_out, nearest_row, read_trace

if TYPE_CHECKING:
    import xarray as xr
    from tokenizers import Tokenizer

    from tracer.huggingface.architectures import Layout
    from tracer.huggingface.building import Build
    from tracer.interventions.own_clamps import Given
    from tracer.model.protocol import HeadModel


class Run:
    """A run directory, opened for reading. Nothing in it is ever executed or unpickled.

    `config`, `status`, `steps` and `trace` are read afresh, so a live run shows its latest committed state.
    """

    def __init__(self, directory: str | Path) -> None:
        self.dir = Path(directory)
        read_meta(self.dir)

    def __repr__(self) -> str:
        return f"Run({str(self.dir)!r}, status={self.status!r}, {len(self.steps)} snapshots)"

    @functools.cached_property
    def name(self) -> str:
        return self.dir.resolve().name

    @functools.cached_property
    def _is_copy(self) -> bool:
        return copies.is_copy(self.dir)

    def refresh(self) -> Run:
        """Fetch what is new of a run that was opened by its URL; one in a folder is read afresh anyway."""
        if url := copies.origin(self.dir):
            remote.mirror(url, anew=False)
        return self

    @property
    def meta(self) -> dict[str, Any]:
        """run.json: format, config, seeds, versions, corpus name and hash, parameter count, created, status, step."""
        return read_meta(self.dir)

    @property
    def config(self) -> TrainConfig:
        """The configuration of the run; `steps` is what it was last asked to train to."""
        meta = self.meta
        if meta.get("built_with"):
            raise NotARun(
                f"{self.name} is a training of a model of somebody's own, {meta.get('build')}. No state of its "
                f"optimiser is kept to go on with or to fork from: train it anew, `tracer train ... --build "
                f"{meta.get('build')}`"
            )
        if "config" not in meta:
            raise NotARun(f"{self.name} was not trained by `tracer train`: its configuration is its author's")
        return about.trained_by(meta)

    @property
    def corpus_hash(self) -> str | None:
        """Of the text that a run of ours was trained on; None where run.json does not say it."""
        return (self.meta.get("corpus") or {}).get("hash")

    @property
    def about(self) -> About:
        """What every run can say of its model, whoever wrote and trained it."""
        return about.of_meta(self.meta)

    def can(self, what: Asked) -> bool:
        """Can this be had of the run and its model? `why_not` says why not."""
        return not self.why_not(what)

    def why_not(self, what: Asked) -> str:
        """In words, why this cannot be had of the run and its model; or how the run is damaged; empty where it can."""
        try:
            why = self.about.why_not(what)
        except ValueError as error:
            return str(error)
        if what == "prompts" and not why and not self.steps:
            if not self.meta.get("keep_weights", True):
                return "This run keeps no weights (the same `tracer open` without `--no-keep-weights` does)"
            return "" if self.live else "This run keeps no weights"
        if what == "states" and not why and not self._states():
            return self._no_states()
        return why

    def _no_states(self) -> str:
        """In words, why a run of ours has no states beside its resume point."""
        if "state_steps" not in self.meta:
            return "This run was made before states were kept"
        record = self.config.record
        return f"record.state_every={record.state_every} and record.state_mb={record.state_mb:g} leave no state to keep"

    @property
    def live(self) -> bool:
        """Is a process training this run right now? Of one at a URL: was a file of it written just now?"""
        if is_locked(self.dir):
            return True
        return self._is_copy and copies.alive(self.dir) and self.meta["status"] == "training"

    @property
    def status(self) -> str:
        """training, finished, diverged, stopped, or interrupted (its process died without a word)."""
        live = self.live  # before run.json: a run that ends in between says so there first, then lets go of the lock
        status = self.meta["status"]
        return "interrupted" if status == "training" and not live else status

    @property
    def stamp(self) -> str:
        """Changes whenever more of the run is committed; the key for whoever caches what was read."""
        run = str(self.dir)
        traces = [f"{run}/trace.zarr", *(f"{run}/effects.zarr/{name}" for name in names_in(f"{run}/effects.zarr"))]
        files = [f"{run}/run.json", f"{run}/findings.jsonl"]
        files += [f"{trace}/step/c/{name}" for trace in traces for name in names_in(f"{trace}/step/c")]
        return " ".join(map(_changed, files))

    @property
    def job(self) -> str:
        """The key for what one step says: changes when the run is begun anew, and when a job goes on with it by
        `start_step`, which may take steps back. `tracer resume` leaves it: it makes the same steps to the bit."""
        meta = self.meta
        return f"{meta['created']} {meta.get('resumed', '')}"

    @property
    def steps(self) -> list[int]:
        """Steps whose weights are kept, here, at the run's URL or where `tracer.load_hf` found them, in order."""
        meta = self.meta
        there = meta.get("sources", {}) if meta.get("keep_weights", True) else ()
        return sorted({*steps_in(self.dir / "snapshots"), *copies.steps(self.dir, "snapshots"), *map(int, there)})

    @property
    def trace(self) -> xr.Dataset:
        """Everything measured, committed rows only, with named dimensions; each variable's attrs say what it is.

        What is measured on fewer steps than the rest is NaN in between: `trace.pattern.dropna("step", how="all")`.
        Each use opens it anew, for a live run grows; what reads many variables opens it once: `trace = run.trace`.
        """
        path = self.dir / "trace.zarr"
        try:
            if path.exists() and (not self.live or is_laid_out(path)):
                return read_trace(path)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise NotARun(
                f"{path} cannot be read ({error}): it is damaged, or not laid out yet; the snapshots are untouched"
            ) from error
        raise NothingRecorded(f"{self.dir} has no trace.zarr: the run was stopped before its first record")

    def probe(self) -> dict[str, Any]:
        """The tensors that a watched model's records are measured on, by their place in its call."""
        return load_tensors(self.dir / "probe.safetensors")

    @property
    def updates(self) -> xr.Dataset | None:
        """Loss, learning rate and throughput of every update, on `step`; None where only the trace has them."""
        path = self.dir / "updates.zarr"
        return read_trace(path) if path.exists() else None

    @property
    def effects(self) -> xr.Dataset:
        """effect[step probe mode layer head]: change in loss when each head is switched off, from `tracer sweep`.

        Committed rows only, in order of steps; NaN where a step was swept in another mode only.
        """
        found = self._effects()
        if found is None:
            raise NothingRecorded(
                f"{self.name} has not been swept: `tracer sweep {self.dir}` switches every head off once"
            )
        return found

    @property
    def own_effects(self) -> dict[str, xr.Dataset]:
        """What was swept by another metric or on other tokens (`tracer.sweep_run(metric=, tokens=)`), by name.

        Each as `effects`; `attrs` of its variables say which `metric` and which `tokens`.
        """
        found = {of: self._effects(of) for of in others(self.dir / "effects.zarr")}
        return {of: rows for of, rows in found.items() if rows is not None}

    def _effects(self, of: str = "") -> xr.Dataset | None:
        path = self.dir / "effects.zarr"
        try:
            return read_effects(path, of)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise NotARun(f"{path} cannot be read ({error}): remove that folder and sweep again") from error

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        path = self.dir / "tokenizer.json"
        try:
            return read_tokenizer(
                read_bytes(path, self.dir, MOST_TOKENIZER), self.meta.get("digests", {}).get(path.name)
            )
        except FileNotFoundError as error:
            raise NotARun(
                f"{self.dir} has no tokenizer.json: it was not written completely, or the file was removed"
            ) from error
        except (OSError, ValueError) as error:
            raise NotARun(f"{path} cannot be read ({error}): it is cut off, damaged or refused") from error

    def model(
        self,
        step: int | None = None,
        *,
        clamps: bool | Given = True,
        build: Build | None = None,
        layout: Layout | str | Path | None = None,
    ) -> HeadModel:
        """The model after `step` updates (None: the last snapshot), in eval mode on the CPU; a new object each time.

        Of a run of ours, and of a `tracer.Transformer` in a watched loop, it is a `tracer.Transformer`, of every other
        model a `WrappedModel`. It is the model as it was trained, with the clamps of that step; `clamps=False` lets
        them go. Clamps that are functions of one's own are named again: `clamps="L1H2 = module:function"`, or
        {"L1H2": function}; of a model without them the weights can be read, and it does not run. `build`: the function,
        or its name as `module:function`, that builds a model whose code is in no library; the run's weights are put
        into it. `layout`: where that model keeps what writes to its residual stream (`tracer.Layout`, or a file of
        one); the run's own is taken where it has one.
        """
        steps = self.steps
        if not steps:
            no_heads, no_prompts = self.why_not("heads"), self.why_not("prompts")
            why = f"No heads were recorded either: {no_heads}" if no_heads else no_prompts
            raise BrokenSnapshot(f"{self.dir} holds no snapshot yet. {why}".strip(" ."))
        step = steps[-1] if step is None else step
        if step not in steps:
            near = steps[nearest_row(steps, step)]
            raise ValueError(
                f"{self.name} has no snapshot of step {step}; the nearest is {near}, and `run.steps` lists all"
            )
        meta = self.meta
        if not isinstance(clamps, bool):
            from tracer.interventions.own_clamps import texts

            ours = self.config.clamps if "config" in meta else ()
            codes = {one.code for one in ours if one.code}
            now = ((text, Clamp.parse(text)) for text in texts(clamps))
            if others := [text for text, one in now if one not in ours and one.code not in codes]:
                raise ValueError(f"{self.name} was not trained with {others[0]!r}: clamps= names its own clamps again")
        if "config" in meta:
            return self._own_model(step, replace(self.config.model, d_vocab=meta["d_vocab"]), clamps is not False)
        if (config := about.transformer(meta)) is not None:
            return self._own_model(step, config, clamped=False)
        build = build or building.allowed(meta)
        if not build and not meta.get("huggingface"):
            known = meta.get("build") or "mymodule:make_model"
            raise ValueError(
                f"{self.name} was recorded from a {meta.get('class')}, whose code is not in the run. Where the code "
                f"is, and where you trust it: run.model(step, build={known!r}), or {building.SETTING}={known}"
            )
        from tracer.huggingface.loading import rebuild

        told = building.layout_for(meta) if layout is None else layout_of(layout)
        source = meta.get("sources", {}).get(str(step))
        weights = None if source else load_tensors(snapshot_path(self.dir, step))
        return rebuild(meta, source, weights, None if meta.get("huggingface") else build, told)

    def _own_model(self, step: int, config: ModelConfig, clamped: bool) -> HeadModel:
        from tracer.interventions import clamps
        from tracer.model import Transformer

        path = snapshot_path(self.dir, step)
        self._refuse_another(path, config)  # before memory is taken for a model of that size
        model = Transformer(config).eval().requires_grad_(False)
        model.clamps = clamps.edits(self.config, step) if clamped else ()
        model.load_state_dict(load_tensors(path))
        if (self.dir / "tokenizer.json").is_file():
            model.tokenizer = self.tokenizer
        model.bos = self.about.bos
        return model

    def _refuse_another(self, path: Path, config: ModelConfig) -> None:
        """BrokenSnapshot when a snapshot does not hold the tensors of a model of this configuration."""
        import torch

        from tracer.model import Transformer

        try:
            kept = shapes(remote.bring(path), self.dir)
        except (OSError, ValueError) as error:
            raise broken(path, error) from error
        with torch.device("meta"):
            wanted = {name: tuple(tensor.shape) for name, tensor in Transformer(config).state_dict().items()}
        if wrong := [name for name in sorted({*kept, *wanted}) if kept.get(name) != wanted.get(name)]:
            name = wrong[0]
            raise BrokenSnapshot(
                f"snapshot {path.name} of {self.name} does not fit its run.json: {len(wrong)} tensors differ, the "
                f"first is {name}: {list(kept[name]) if name in kept else 'none'} in the file, "
                f"{list(wanted[name]) if name in wanted else 'none'} in the model"
            )

    def log(self) -> list[dict[str, Any]]:
        """One row an interval: what the terminal showed."""
        return read_lines(self.dir / "log.jsonl", {"step": int})

    def findings(self) -> list[dict[str, Any]]:
        """What was found to be wrong while the run was made, as its writer said it: kind, severity, step, heads."""
        return read_lines(self.dir / "findings.jsonl", {"kind": str, "severity": str, "step": int, "heads": list})

    def samples(self, most: int = MOST_SAMPLES) -> list[dict[str, Any]]:
        """Generated text: step, temperature, prompt, text; of a file of at most so many bytes."""
        kinds = {"step": int, "temperature": int | float, "prompt": str, "text": str}
        return read_lines(self.dir / "samples.jsonl", kinds, most)

    def _states(self) -> set[int]:
        return {*steps_in(self.dir / "states"), *copies.steps(self.dir, "states")}

    @property
    def state_steps(self) -> list[int]:
        """Steps whose weights are kept with the optimiser's state, in order, the resume point among them.

        From each of them training goes on to the bit; where there are few, `why_not("states")` says why.
        """
        return sorted(self._states().union(steps_in(self.dir / "resume")))

    def state(self, step: int) -> dict[str, Any]:
        """Weights and optimiser state after `step` updates: tensors named `model.<parameter>` and
        `optimizer.<number>.<parameter's number>.<name>`."""
        if step in self._states():
            return load_tensors(state_path(self.dir, step))
        steps = self.state_steps
        if step in steps:
            return load_tensors(resume_path(self.dir, step))
        lists = f"the nearest is {steps[nearest_row(steps, step)]}, and `run.state_steps` lists all" if steps else ""
        raise ValueError(f"{self.name} has no state of step {step}: {lists or self.why_not('states')}")

    def resume_step(self) -> int | None:
        """The step from which training can go on, or None."""
        steps = steps_in(self.dir / "resume")
        return steps[-1] if steps else None

    def resume_state(self) -> dict[str, Any]:
        """Weights and optimiser state at `resume_step`."""
        step = self.resume_step()
        if step is None:
            raise BrokenSnapshot(
                f"{self.dir} was stopped before its first step, so there is nothing to go on from; start it again "
                f"with `tracer train`, and --overwrite if it holds weights"
            )
        return load_tensors(resume_path(self.dir, step))


def _changed(file: str) -> str:
    """When, in ns; nothing where there is no such file."""
    try:
        return str(os.stat(file).st_mtime_ns)
    except OSError:
        return ""
