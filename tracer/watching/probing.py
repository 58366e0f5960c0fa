"""Measure somebody's model on fixed inputs, and write what was found as a run directory.

The inputs are a few sequences kept from a real call of the model, and, when it reads tokens and nothing else that
nobody could know, Probe R (random tokens that repeat). The model runs on them in eval mode, without gradients,
uncompiled, with every random state put back afterwards. A watched model without heads is measured as well: its losses,
weights and updates need none.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from tracer.data import probes
from tracer.data.any_tokenizer import Words
from tracer.diagnosis.objective import TARGETS
from tracer.hooks.discovered import DiscoveredAttention, unedited
from tracer.hooks.inputs import Inputs, batch_axis_first, context, logits_of
from tracer.hooks.refusals import CannotWatch, NoHeads, nothing_seen
from tracer.hooks.sites import Layer, plain
from tracer.huggingface.building import same_dice
from tracer.interventions.edits import untouched
from tracer.measures import HEAD_MEASURES, MEASURES, REPEAT_MEASURES, SE, TEXT_MEASURES, Setting
from tracer.measures.gradients import fetch
from tracer.store import FOREIGN_FORMAT, Run, RunWriter, Variable, open_run
from tracer.store.provenance import process, provenance
from tracer.store.trace_layout import Layout, layout, without_heads
from tracer.torch_internals import tree_leaves
from tracer.tracking.tracking import say
from tracer.watching import causality, first_bad, head_weights, stream
from tracer.watching.held_out import HeldOut
from tracer.watching.ranks import Ranks, sharded, split_over
from tracer.watching.signs import COUNTED
from tracer.watching.watcher import FIRST_ROW_ON, Watcher

PROBE_ROWS = 8
"""Sequences of Probe R."""
N_PROMPTS = 2
"""Sequences whose patterns are kept, of the kept batch and of Probe R each."""
WIDTHS = (128, 96, 64, 48, 32)
PATTERN_ROW_BYTES = 4 << 20
"""Patterns are kept for as many first positions, of WIDTHS, as fit in this with all heads together."""
FIRST_ROWS, FIRST_UPDATES = 1024, 4096
"""Room for records and for updates to begin with; it doubles."""
MOST_REASON = 1000
"""Characters of why there are no heads, as in run.json (`tracer.store.schema.Word`)."""
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
)
UNSURE = tuple(name for name in HEAD_MEASURES if name != "max_logit")
"""Means over sequences: their standard errors are recorded too."""
OF_TRAINING = ("untrained", "dtype", "constant_positions", "classes")
"""Facts of the training, which may have changed when it goes on."""
UPDATES = ("train_loss", "learning_rate", "step_ms", "tokens_per_second", "same_batch")
"""Known of every update."""
GATHERING = (list, deque, set, dict, defaultdict, OrderedDict, Counter)
"""In what modules gather things, besides what every module has."""
OF_MODULES = vars(nn.Module()).keys() - {"_buffers"}


class Probing:
    """The probes of one model, and the run directory that their results go to (made at the first measurement)."""

    def __init__(
        self, model: nn.Module, directory: Path, inputs: Inputs, words: Words, facts: dict[str, Any],
        held_out: HeldOut | None = None, *, ranks: Ranks | None = None, resumes: bool = False,
    ) -> None:  # fmt: skip
        self.ranks, self._resumes, self._began = ranks or Ranks(model, directory), resumes, False
        self.model, self.dir, self.inputs, self.words, self.facts = model, directory, inputs, words, facts
        self.held_out = held_out
        self.device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.params = {plain(name): p for name, p in model.named_parameters() if p.requires_grad}
        self.watcher = Watcher(model, keep=N_PROMPTS)
        self.heads: head_weights.HeadMatrices | None = None
        """Which weights are whose, once the model has been measured."""
        self.no_heads = ""
        """Why nothing of heads is measured: a model in training had none in its first pass; empty where it had some."""
        self.writer: RunWriter | None = None
        self.begun: Run | None = None
        """A run of these very probes that goes on, instead of a new one."""
        self.broken = False
        """Was some attention not finite in the last measurement; or NaN in what a model without heads gives first?"""
        self._repeat: Inputs | None = None
        self._control: Inputs | None = None
        self._period: int | None = None
        self._width = 1
        self._blocks: list[nn.Module] = []

    @property
    def shape(self) -> tuple[int, int]:
        """Layers, and heads of a layer that are in this process."""
        layers = [] if self.no_heads else self.watcher.layers
        return len(layers), max((layer.n_heads for layer in layers), default=0)

    def measure(self, step: int, with_patterns: bool) -> dict[str, Any]:
        """One row of the trace, as far as the model's own weights say it; CannotWatch when it cannot be trusted."""
        with undisturbed(self.model, self.device):
            with self._seeing(), stream.sizes(self._blocks) as sizes:
                output = self.inputs.run(self.model)
            row = self._of_heads(output)
            losses = self._losses(output)
            if not self._began:
                self._begin(step)
                with torch.compiler.set_stance("force_eager"), stream.sizes(self._blocks) as sizes:
                    self.inputs.run(self.model)
            if len(sizes) == len(self._blocks) + 1 > 1:
                row |= fetch({"resid_rms": torch.stack([sizes[depth] for depth in range(len(sizes))])})
            patterns = with_patterns and not self.no_heads
            pictures = [self.watcher.pictures(N_PROMPTS, self._width)] if patterns else []
            row |= losses
            if with_patterns and self.facts["kind"] == "watched" and not sharded(self.model):
                row["future_effect"] = causality.future_effect(self.model, self.inputs)
            if self._repeat is not None:
                row |= self._on_repeat(pictures, patterns)
        if patterns:
            row["pattern"] = np.concatenate(pictures)
        return row

    def _seeing(self) -> AbstractContextManager[Any]:
        """Around a pass of the model, which runs uncompiled: its heads are measured, if it has any."""
        return torch.compiler.set_stance("force_eager") if self.no_heads else self.watcher

    def _of_heads(self, output: Any) -> dict[str, Any]:
        """The measures of heads in the pass that has just run, and gave this; none where the first showed no heads."""
        names = (*TEXT_MEASURES, *(name + SE for name in TEXT_MEASURES if name in UNSURE))
        try:
            on_text = {} if self.no_heads else self.watcher.arrays(names)
        except NoHeads:
            if self.facts["kind"] != "watched":  # of a model that is not trained here heads are all there is
                raise
            self.no_heads, on_text = nothing_seen(self.model, self.watcher.map, ran=True)[:MOST_REASON], {}
        if self.no_heads:  # what is masked may be -inf, and what comes after the first may be kept blank
            given = (x for x in tree_leaves(output) if isinstance(x, Tensor) and x.is_floating_point())
            self.broken = any(bool(x.isnan().any()) for x in itertools.islice(given, 1))
            return {}
        self.broken = self.watcher.first_broken() is not None
        return {name: np.full_like(on_text["entropy"], np.nan) for name in HEAD_MEASURES} | on_text

    @property
    def anatomy(self) -> first_bad.Model:
        """What is known of the model, once it has been measured."""
        return first_bad.Model(self.model, self.params, self.watcher, self.heads, tuple(self._blocks))

    def not_finite(self, step: int) -> first_bad.FirstBad | None:
        """The first value that is not finite as the model runs on the kept inputs now; None where there is none."""
        model = self.anatomy
        with undisturbed(self.model, self.device):
            place = None if sharded(self.model) else first_bad.in_forward(model, self.inputs)
        bad = [] if place is not None else model.bad_weights()
        if bad:
            place = model.place(bad[0], self.params[bad[0]])
        if place is None:
            return None
        return first_bad.FirstBad("weight" if place.weight else "activation", place, step, model.count())

    def _losses(self, output: Any) -> dict[str, Any]:
        """The loss on text that nobody trains on, where there is any: given, or the kept one of an opened model."""
        if self.held_out is not None:
            return {"val_loss": self.held_out.loss(self.model, self.inputs)}
        tokens = self.inputs.tokens
        logits = logits_of(output, tokens) if tokens is not None and self.facts["kind"] == "opened" else None
        if logits is None or tokens is None:
            return {}
        return fetch({"val_loss": probes.per_token_loss(logits.float(), tokens).mean()})

    def _on_repeat(self, pictures: list[np.ndarray], with_patterns: bool) -> dict[str, Any]:
        """Probe R and its control: the scores that need repeats, and the losses when every token has logits."""
        assert self._repeat is not None and self._repeat.tokens is not None and self._period is not None
        watcher, tokens = self.watcher, self._repeat.tokens
        assert self._control is not None
        if self.no_heads:
            with self._seeing():
                return self._repeat_losses(self._repeat.run(self.model), tokens, self._period)
        watcher.rows, watcher.repeats = probes.second_copy(self._period), tokens
        try:
            with watcher:
                self._control.run(self.model)
            control = watcher.arrays(("induction", "induction" + SE))
            with watcher:
                output = self._repeat.run(self.model)
        finally:
            watcher.rows, watcher.repeats = FIRST_ROW_ON, None
        row: dict[str, Any] = watcher.arrays((*REPEAT_MEASURES, *(name + SE for name in REPEAT_MEASURES)))
        row |= {name.replace("induction", "induction_control"): value for name, value in control.items()}
        if with_patterns:
            pictures.append(watcher.pictures(N_PROMPTS, self._width))
        return row | self._repeat_losses(output, tokens, self._period)

    def _repeat_losses(self, output: Any, tokens: Tensor, period: int) -> dict[str, Any]:
        """Of Probe R, when every token has logits."""
        logits = logits_of(output, tokens)
        if logits is None:
            return {}
        loss = probes.per_token_loss(logits.float(), tokens)
        return fetch({
            "repeat_loss": probes.repeat_loss(loss, period), "first_copy_loss": probes.first_copy_loss(loss, period),
        })  # fmt: skip

    def _begin(self, step: int) -> None:
        """Lay out the run directory for the layers that were seen."""
        layers, tokens = self.watcher.layers, self.watcher.tokens
        d_vocab, n = self.watcher.d_vocab, self.watcher.n_positions or None
        if self.no_heads:
            tokens, d_vocab = self._looked_up()
            n = None if tokens is None else tokens.shape[1]
        if d_vocab is not None:
            self.words.check(d_vocab)
        if tokens is not None and d_vocab is not None:
            self._make_repeat(tokens, d_vocab)
        if self.no_heads:
            with torch.compiler.set_stance("force_eager"):
                self._blocks = stream.chain(self.model, lambda: self.inputs.run(self.model))
        else:
            self._know_heads(layers)
        self._began = True
        if self.ranks.rank:
            return
        heads, parted = len(self.ranks.split), sharded(self.model)
        watched = self._of_training() if self.facts["kind"] == "watched" else {}
        if parted and (recipe(self.model) is not None or "build" in self.facts):
            self.facts = {name: x for name, x in self.facts.items() if name not in ("build", "family")}
            say(
                f"manyeyes keeps no snapshots in {self.dir.name}: the weights lie in parts on several processes "
                "(FSDP, ZeRO-3), so pages cannot run the model. Everything else is recorded"
            )
        meta = {
            "format": FOREIGN_FORMAT, "class": type(self.model).__name__.removeprefix("FSDP"),
            "layers": [
                {"name": x.name, "kind": x.kind, "causal": x.causal, "n_heads": heads * x.n_heads} for x in layers
            ],
            "n_params": sum(getattr(p, "ds_numel", p.numel()) for p in self.model.parameters()), "d_vocab": d_vocab,
            "n_ctx": (context(self.model) if tokens is not None else None) or n, "row": n, "period": self._period,
            "bos": self.words.bos, "step": step, "device": str(self.device), "no_heads": self.no_heads,
            "huggingface": None if parted else recipe(self.model), "processes": self.ranks.world,
            **provenance(), **process(), **watched, **self.facts,
        }  # fmt: skip
        if self.begun is not None:
            self.writer = RunWriter.reopen(self.begun)
            return
        variables, coords = self._layout(layers)
        if self._resumes:
            self.writer = self._reopen(step, meta, variables, coords)
            return
        writer = RunWriter.create(self.dir, meta, self.words.tokenizer)
        with writer.abandoned_on_error():
            writer.create_trace(FIRST_ROWS, variables, coords)
            if self.facts["kind"] == "watched":
                writer.create_updates(FIRST_UPDATES, self._update_variables())
                writer.keep_probe(self.inputs.tensors())
        self.writer = writer

    def _looked_up(self) -> tuple[Tensor | None, int | None]:
        """Of a model without heads: its tokens, as many rows as it was called with, and how many kinds there are."""
        found = self.watcher.looked_up
        if found is None or not batch_axis_first(self.model) or len(found[0]) != self.inputs.batch:
            return None, None
        return found

    def _know_heads(self, layers: list[Layer]) -> None:
        """Which weights and which part of the stream are whose, and how much is kept of patterns."""
        found = self.watcher.map
        self._find_split(found)
        self._blocks = stream.blocks(self.model, layers)
        if self.facts["kind"] == "watched" and not sharded(self.model):
            self.heads = head_weights.find(self.model, found, self.inputs, self.params)
        n_prompts = self.watcher.n_kept + (N_PROMPTS if self._repeat else 0)
        self._width = min(self.watcher.n_positions, _width(layers, n_prompts))

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

    def _update_variables(self) -> dict[str, Variable]:
        return {
            name: Variable((), (), attrs=attrs(name, self.facts["kind"]), chunk_steps=FIRST_UPDATES) for name in UPDATES
        }

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

    def _find_split(self, found: DiscoveredAttention) -> None:
        """Over which processes are the heads split, if they are?"""
        if self.ranks.world == 1 or not sharded(self.model):
            return
        modules = {plain(name): module for name, module in self.model.named_modules()}
        groups: list[list[int] | None] = []
        with contextlib.ExitStack() as hooks, torch.compiler.set_stance("force_eager"):
            for module in (modules[name] for name, _ in found.keys if name in modules):
                hook = module.register_forward_hook(lambda module, *_: groups.append(split_over(module)))
                hooks.callback(hook.remove)
            self.inputs.run(self.model)
        if groups and groups[0] is not None:
            self.ranks.split = groups[0]

    def _make_repeat(self, tokens: Tensor, d_vocab: int) -> None:
        """Probe R, unless the model has cross attention or inputs that nobody could make up."""
        n = tokens.shape[1]
        size = min(d_vocab, self.words.size or d_vocab)
        if n < 4 or size < 3 or any(layer.kind == "cross" for layer in self.watcher.layers):
            return
        bos = self.words.bos if self.words.bos is not None and self.words.bos < d_vocab else 0
        probe = probes.repeated(size, n, bos, batch=PROBE_ROWS)
        made, control = (self.inputs.with_tokens(x.to(tokens)) for x in (probe.tokens, probe.control))
        if made is None:
            return
        try:
            with Watcher(self.model, keep=0) as trial:
                output = made.run(self.model)
            if not self.no_heads:
                trial.check()
            elif logits_of(output, probe.tokens) is None:  # else it would give nothing
                return
        except Exception:  # it takes inputs of one length only, say: then there is no Probe R
            return
        self._repeat, self._control, self._period = made, control, probe.period

    def _prompts(self) -> dict[str, list[int]]:
        """The kept sequences by name: their token ids, or nothing where the model reads none."""
        kept, tokens = self.watcher.n_kept, self.watcher.tokens
        found = {f"text {i}": tokens[i].tolist() if tokens is not None else [] for i in range(kept)}
        if self._repeat is not None and self._repeat.tokens is not None:
            found |= {f"repeat {i}": self._repeat.tokens[i].tolist() for i in range(N_PROMPTS)}
        return found

    def _layout(self, layers: list[Layer]) -> Layout:
        variables, coords = self._without_heads() if self.no_heads else self._with_heads(layers)
        said = attrs("shifted_loss", self.facts["kind"])
        variables["shifted_loss"] = Variable(("target",), (len(TARGETS),), attrs=said)
        return variables, coords

    def _without_heads(self) -> Layout:
        depths = len(self._blocks) + 1 if self._blocks else 0
        return without_heads(
            self.params, scalars=SCALARS, depths=depths, attrs=lambda name: attrs(name, self.facts["kind"])
        )

    def _with_heads(self, layers: list[Layer]) -> Layout:
        heads, width = (len(layers), len(self.ranks.split) * max(layer.n_heads for layer in layers)), self._width
        prompts = self._prompts()
        tokens = np.full((len(prompts), width), -1, np.int64)
        strings = []
        for i, ids in enumerate(prompts.values()):
            tokens[i, : len(ids[:width])] = ids[:width]
            strings.append(self.words.strings(ids[:width]) if ids else [str(j) for j in range(width)])
        setting = Setting(
            self.watcher.n_positions, self._period or 0, self.watcher.d_vocab or 0, all(x.causal for x in layers)
        )
        return layout(
            heads, self.params, prompts, tokens, strings, scalars=SCALARS,
            unsure={name: (self.inputs.batch or 0) if name in TEXT_MEASURES else PROBE_ROWS for name in UNSURE},
            attrs=lambda name: attrs(name, self.facts["kind"], setting), tokens_are="the kept sequences",
        )  # fmt: skip


@contextlib.contextmanager
def undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """No gradients, eval mode, no edits of others, and afterwards every module and every random state as it was.

    Others: a `watcher.ablate` or a `with watcher:` around the training loop, which sees nothing of this.
    Modules run with copies of their buffers, of other tensors that they hold, and of the lists, dicts and sets that
    they hold, with what is in these; and so may count and replace them, and gather more of them. What they share they
    share as copies. The originals are not touched, so that who else holds them, in another thread, may fill them.
    """
    before = [(module, dict(vars(module))) for module in model.modules()]
    copies: dict[int, Any] = {}
    with torch.no_grad(), untouched(), unedited(), same_dice([device] if device.type == "cuda" else []):
        try:
            for module, was in before:
                vars(module).update({name: _copied(x, copies) for name, x in was.items() if name not in OF_MODULES})
                module.training = False  # eval() may be somebody's code, which does more: LoRA's merges weights
            yield
        finally:
            for module, was in before:
                now = vars(module)  # never empty: another thread may be running the model
                now.update(was)
                for name in now.keys() - was.keys():
                    del now[name]


def _copied(x: Any, copies: dict[int, Any]) -> Any:
    """The one copy of a tensor, or of what modules gather things in, with what is in it; all else is itself."""
    if id(x) in copies:
        return copies[id(x)]
    if type(x) is tuple:
        return tuple(_copied(one, copies) for one in x)
    if type(x) in GATHERING:
        mine = copies[id(x)] = x.copy()  # at once, as another thread may fill it, and before it is met in itself
        if isinstance(mine, dict):
            for name, one in mine.items():
                mine[name] = _copied(one, copies)
        else:
            parts = [_copied(one, copies) for one in mine]
            mine.clear()
            mine.update(parts) if isinstance(mine, set) else mine.extend(parts)
    elif isinstance(x, Tensor) and not isinstance(x, nn.Parameter):
        copies[id(x)] = x.detach().clone()
    return copies.get(id(x), x)


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


def _width(layers: list[Layer], n_prompts: int) -> int:
    heads = len(layers) * max(layer.n_heads for layer in layers)
    fits = [w for w in WIDTHS if 2 * n_prompts * heads * w * w <= PATTERN_ROW_BYTES]
    return fits[0] if fits else WIDTHS[-1]


def attrs(name: str, kind: str, setting: Setting | None = None) -> dict[str, str | float]:
    """The registry row of a measure, as attributes of its array; a watched model's text is of its training batch."""
    own = kind == "watched" and name in ("train_loss", "val_loss")  # what they are is its author's choice
    found = MEASURES[name].attributes(None if own else setting)
    if kind == "watched" and name == "val_loss":
        found |= {"units": "", "formula": "mean loss on the batches given as held_out"}
    return found | {"probe": "train"} if kind == "watched" and found["probe"] == "text" else found
