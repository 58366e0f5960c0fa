"""The run directory of a model that others wrote: what its run.json says, what its trace holds, and how it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from tracer.config.fields import to_dict
from tracer.data.any_tokenizer import Words
from tracer.data.own_probe import OwnRecord
from tracer.diagnosis.objective import TARGETS
from tracer.hooks.inputs import Inputs, context
from tracer.hooks.refusals import CannotWatch
from tracer.hooks.sites import Layer, plain
from tracer.measures import HEAD, MEASURES, TEXT_MEASURES, Setting
from tracer.model import Transformer
from tracer.store import FORMAT, Run, RunWriter, Variable, open_run
from tracer.store.provenance import process, provenance
from tracer.store.trace_layout import HEAD_MEANS, TraceLayout, layout, own_variables, without_heads
from tracer.tracking.tracking import say
from tracer.watching import causality
from tracer.watching.every_update import UPDATES_IN_CHUNK
from tracer.watching.ranks import Ranks, sharded
from tracer.watching.signs import COUNTED

PROBE_ROWS = 8
"""Sequences of Probe R."""
FIRST_ROWS, FIRST_UPDATES = 1024, UPDATES_IN_CHUNK
"""Room for records and for updates to begin with; it doubles."""
SCALARS = (
    "train_loss",
    "val_loss",
    "repeat_loss",
    "first_copy_loss",
    "step_ms",
    "learning_rate",
    "clip_factor",
    "unmoved",
    *COUNTED,
    "silent_rows",
    "future_effect",
    "row_effect",
)
OF_TRAINING = (
    "untrained", "dtype", "constant_positions", "classes", "measures", "probes", "scalars", "settings", "tags", "clamp",
    "attends",
)  # fmt: skip
"""Facts of the training, which may have changed when it goes on."""
UPDATES = ("train_loss", "learning_rate", "step_ms", "tokens_per_second", "same_batch")
"""Known of every update."""


@dataclass(frozen=True)
class FirstLook:
    """What the first measurement of a model showed of it."""

    layers: list[Layer]
    no_heads: str
    """Why nothing of heads is measured; empty where there are some."""
    tokens: Tensor | None
    """[batch pos] ids that the model read; None where it reads none."""
    d_vocab: int | None
    row: int | None
    """Positions of a sequence."""
    period: int | None
    """Of Probe R; None where the model does not run on it."""
    prompts: Mapping[str, Sequence[int]]
    """The sequences whose patterns are kept, by name; no ids where the model reads none."""
    width: int
    """First positions of which patterns are kept."""
    depths: int
    """Of the residual stream at which its size is measured; of a model without heads."""
    own: OwnRecord
    """What a user adds to each record."""


class RunDirectory:
    """Where the results of one model's probes go, once it has been seen."""

    def __init__(
        self, directory: Path, model: nn.Module, inputs: Inputs, words: Words, facts: dict[str, Any], ranks: Ranks
    ) -> None:  # fmt: skip
        self.dir, self.model, self.inputs, self.words, self.ranks = directory, model, inputs, words, ranks
        self.facts = facts
        self.kind = facts["kind"]
        self.params = {plain(name): p for name, p in model.named_parameters() if p.requires_grad}

    def begin(self, step: int, seen: FirstLook, device: str, begun: Run | None, resumes: bool) -> RunWriter:
        """A new run; or one that goes on: `begun`, of these very inputs, or (`resumes`) the one that is there."""
        meta = self._meta(step, seen, device)
        if begun is not None:
            return RunWriter.reopen(begun)
        variables, coords = self._layout(seen)
        if resumes:
            return self._reopen(step, meta, variables, coords)
        writer = RunWriter.create(self.dir, meta, self.words.tokenizer)
        with writer.abandoned_on_error():
            writer.create_trace(FIRST_ROWS, variables, coords)
            if self.kind == "watched":
                writer.create_updates(FIRST_UPDATES, self._update_variables())
                writer.keep_probe(self.inputs.tensors())
        return writer

    def _meta(self, step: int, seen: FirstLook, device: str) -> dict[str, Any]:
        heads, parted = len(self.ranks.split), sharded(self.model)
        facts = self.facts
        if parted and (recipe(self.model) is not None or "build" in facts):
            facts = {name: x for name, x in facts.items() if name not in ("build", "family")}
            say(
                f"manyeyes keeps no snapshots in {self.dir.name}: the weights lie in parts on several processes "
                "(FSDP, ZeRO-3), so pages cannot run the model. Everything else is recorded"
            )
        return {
            "format": FORMAT, "class": type(self.model).__name__.removeprefix("FSDP"),
            "layers": [
                {"name": x.name, "kind": x.kind, "causal": x.causal, "n_heads": heads * x.n_heads} for x in seen.layers
            ],
            "attends": sorted({x.code for x in seen.layers if x.code}),
            "n_params": sum(getattr(p, "ds_numel", p.numel()) for p in self.model.parameters()),
            "d_vocab": seen.d_vocab,
            "n_ctx": (context(self.model) if seen.tokens is not None else None) or seen.row, "row": seen.row,
            "period": seen.period, "bos": self.words.bos, "step": step, "device": device, "no_heads": seen.no_heads,
            "huggingface": None if parted else recipe(self.model),
            "transformer": None if parted or not isinstance(self.model, Transformer) else to_dict(self.model.config),
            "processes": self.ranks.world,
            **provenance(), **process(), **(self._of_training() if self.kind == "watched" else {}), **seen.own.facts,
            **facts,
        }  # fmt: skip

    def _of_training(self) -> dict[str, Any]:
        """Facts of the training that a trace has no place for: weights that ask for no gradient, the precision of most
        of the others, where positions are looked up that are all the same, and the classes of a classifier."""
        sizes: Counter[str] = Counter()
        for p in self.params.values():
            sizes[str(p.dtype).removeprefix("torch.")] += p.numel()
        untrained = [plain(name) for name, p in self.model.named_parameters() if not p.requires_grad]
        alone = self.ranks.world == 1  # else the others do not come along
        fixed = causality.constant_positions(self.model, self.inputs) if alone else None
        return {
            "untrained": untrained, "dtype": sizes.most_common(1)[0][0] if sizes else None,
            "constant_positions": fixed, "classes": causality.classes(self.model, self.inputs) if alone else None,
        }  # fmt: skip

    def _reopen(
        self, step: int, meta: dict[str, Any], variables: dict[str, Variable], coords: dict[str, Any]
    ) -> RunWriter:  # fmt: skip
        """Go on with the run of this model; what it recorded from this step on belonged to a future that was lost."""
        run = open_run(self.dir)
        old, params = run.meta, run.trace["param"].values.tolist()
        for what, was, now in (
            ("layers", old["layers"], meta["layers"]), ("weights", params, coords["param"][1].tolist()),
            ("length of a row", old["row"], meta["row"]), ("Probe R", old["period"], meta["period"]),
        ):  # fmt: skip
            if was != now:
                raise CannotWatch(f"{self.dir} was recorded from another model: its {what} differ; choose another run=")
        for name, digest in (old.get("probes") or {}).items():
            if meta["probes"].get(name, digest) != digest:
                raise CannotWatch(
                    f"{self.dir} was begun with another probe {name}: give the same, or choose another run="
                )
        meta["probes"] = {**(old.get("probes") or {}), **meta["probes"]}
        meta["measures"] = list(dict.fromkeys([*(old.get("measures") or ()), *meta["measures"]]))
        writer = RunWriter.reopen(run)
        with writer.abandoned_on_error():
            assert writer.trace is not None
            forget = ("error", "recording_stopped", "divergence")
            writer.meta = {k: v for k, v in old.items() if k not in forget} | {
                "resumed": [*old.get("resumed", []), step], "processes": self.ranks.world,
                **{name: meta[name] for name in OF_TRAINING if name in meta},
            }  # fmt: skip
            writer.trace.add(variables)
            if writer.updates is None:
                writer.create_updates(FIRST_UPDATES, self._update_variables())
            else:
                writer.updates.add(self._update_variables())
            for group, room in ((writer.trace, FIRST_ROWS), (writer.updates, FIRST_UPDATES)):
                assert group is not None
                group.extend(room, step)
            writer.take_back(step)
            writer.status("training")
        return writer

    def _update_variables(self) -> dict[str, Variable]:
        said = {name: attrs(name, self.kind, ours="built_with" in self.facts) for name in UPDATES}
        return {name: Variable((), (), attrs=said[name], chunk_steps=FIRST_UPDATES) for name in UPDATES}

    def _layout(self, seen: FirstLook) -> TraceLayout:
        variables, coords = self._with_heads(seen) if not seen.no_heads else without_heads(
            self.params, scalars=SCALARS, depths=seen.depths,
            attrs=lambda name: attrs(name, self.kind, ours="built_with" in self.facts),
        )  # fmt: skip
        heads = (0, 0) if seen.no_heads else self._heads(seen)
        rows = [row for row in seen.own.rows if row.dims != HEAD or not seen.no_heads]
        variables |= own_variables(heads, rows, self._sequences(seen))
        variables["shifted_loss"] = Variable(("target",), (len(TARGETS),), attrs=attrs("shifted_loss", self.kind))
        return variables, coords

    def _heads(self, seen: FirstLook) -> tuple[int, int]:
        return len(seen.layers), len(self.ranks.split) * max(layer.n_heads for layer in seen.layers)

    def _sequences(self, seen: FirstLook) -> dict[str, int]:
        return seen.own.sequences(self.inputs.batch or 0, PROBE_ROWS)

    def _with_heads(self, seen: FirstLook) -> TraceLayout:
        heads, rows = self._heads(seen), self._sequences(seen)
        numbers = [str(i) for i in range(seen.width)]  # where the model reads no tokens
        causal = all(x.causal for x in seen.layers)
        setting, ours = Setting(seen.row or 0, seen.period or 0, seen.d_vocab or 0, causal), "built_with" in self.facts
        return layout(
            heads, self.params, seen.prompts, seen.width, lambda ids: self.words.strings(ids) if ids else numbers,
            scalars=SCALARS,
            unsure={name: rows["text" if name in TEXT_MEASURES else "repeat"] for name in HEAD_MEANS},
            attrs=lambda name: attrs(name, self.kind, setting, ours), tokens_are="the kept sequences",
        )  # fmt: skip


def recipe(model: nn.Module) -> dict[str, Any] | None:
    """What rebuilds a causal Hugging Face model around its weights: its config. None for every other model."""
    own = next(kind for kind in type(model).__mro__ if not issubclass(kind, FSDPModule))  # which FSDP2 derives from it
    if not own.__module__.startswith("transformers."):
        return None
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    config: Any = getattr(model, "config", None)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or MODEL_FOR_CAUSAL_LM_MAPPING[type(config)] is not own:
        return None
    return {**config.to_diff_dict(), "model_type": config.model_type}


def attrs(name: str, kind: str, setting: Setting | None = None, ours: bool = False) -> dict[str, str | float]:
    """The registry row of a measure, as attributes of its array; a watched model's text is of its training batch.

    `ours`: the loop is, so that its losses are what they are of any model of ours.
    """
    own = kind == "watched" and name in ("train_loss", "val_loss") and not ours  # what they are is its author's choice
    found = MEASURES[name].attributes(None if own else setting)
    if own and name == "val_loss":
        found |= {"units": "", "formula": "mean loss on the batches given as held_out"}
    return found | {"probe": "train"} if kind == "watched" and found["probe"] == "text" else found
