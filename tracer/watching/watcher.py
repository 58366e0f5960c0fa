"""What `tracer.watch(model)` returns: a context manager that measures each forward pass of a model."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tracer.heads.averages import means_and_errors, own_means
from tracer.heads.call import AttentionCall
from tracer.heads.definitions import SQUARE
from tracer.heads.own_measures import Measures, OnProbe, OwnMeasures, given
from tracer.heads.row_block import OwnRows
from tracer.hooks.discovered import DiscoveredAttention, editing, held_of
from tracer.hooks.fused_modules import keep_outputs
from tracer.hooks.interceptor import AttentionInterceptor
from tracer.hooks.refusals import CannotWatch, refuse
from tracer.hooks.sites import Layer, Sites, bare
from tracer.interventions.edits import recording, visiting
from tracer.interventions.replacements import MODES, Mode, head_of, plan, z_tap
from tracer.measures import MEASURES, REPEAT_MEASURES, TEXT_MEASURES
from tracer.measures.aliases import Head
from tracer.tracking.tracking import say
from tracer.watching.padding import hidden, real_rows, without_padding

if TYPE_CHECKING:
    import xarray as xr


MEASURED = (*TEXT_MEASURES, *REPEAT_MEASURES)
"""The head measures that one forward pass gives."""
FIRST_ROW_ON = slice(1, None)
"""Query rows q >= 1: row 0 of a causal pattern sees one key only."""
KEPT_BYTES = 256 * 2**20
"""A model that makes its own patterns has them kept for `pattern` up to this size; of others q and k are kept."""
CACHES = ("past_key_values", "past_key_value", "layer_past")
"""What Hugging Face calls keys and values that are kept from one token to the next."""


class Watcher:
    """A context manager; inside it, in this thread, each forward pass of the model is measured.

    The model's own kernels run, and its outputs and gradients are its own to the bit, unless heads are ablated. (Of
    torch's own encoder layers in eval mode see `fused_modules`.)
    Afterwards the model is as it was: nothing of it is replaced, hooks are removed, compiled parts are compiled again.
    """

    def __init__(self, model: nn.Module, keep: int, measures: Measures = ()) -> None:
        self.model = bare(model)
        self.keep = keep
        self.own_measures = OwnMeasures(given(measures), say)
        """Of the user's, on whatever the model is given."""
        self.own: OwnRows | None = OnProbe(self.own_measures.all, self.own_measures) if measures else None
        """Those that are asked in the passes that come."""
        self.map, self.sites = DiscoveredAttention(), Sites(self.model)
        self.rows = FIRST_ROW_ON
        """The query rows that measures are means over."""
        self.repeats: Tensor | None = None
        """Tokens whose earlier copies count instead of those of the model's own: Probe R, while its control runs."""
        self.tokens: Tensor | None = None
        """Token ids of the last forward pass, where the model looked some up and attention runs over these."""
        self.d_vocab: int | None = None
        """Rows of the table that they were looked up in."""
        self._stack = contextlib.ExitStack()
        self._inside, self._thread = False, 0
        self._masks: list[Tensor] = []
        """Those of the calls that are kept, each once: layers have the same ones, or the same few."""
        self._calls: dict[int, list[AttentionCall]] = {}
        self._measures: dict[int, dict[str, list[Tensor]]] = {}
        self._broken: dict[int, Tensor] = {}
        self._real: tuple[Tensor | None, Tensor | None] = (None, None)
        self._fresh = True
        self.interceptor: AttentionInterceptor | None = None

    def __enter__(self) -> Watcher:
        self._look()
        self._stack.enter_context(visiting(self._see))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()
        self._inside = False

    def _look(self) -> None:
        """Eyes open: hooks that name modules, the mode, and compiled parts run as they were written."""
        if self._inside:
            raise CannotWatch("this watcher is in use already: one `with` at a time; for two threads make two watchers")
        self._thread = threading.get_ident()
        self.sites.begin = self._begin
        self.sites.attach()
        self._inside = True  # not before: of a model that takes no hooks nothing is in use
        self._stack.callback(self.sites.detach)
        self.interceptor = AttentionInterceptor(self.sites, self.map, say)
        self._stack.enter_context(keep_outputs(self.model, AttentionInterceptor, self._edited))
        self._stack.enter_context(torch.compiler.set_stance("force_eager"))
        self._stack.enter_context(self.interceptor)

    def _edited(self) -> bool:
        here = None if self.interceptor is None else self.interceptor.here()
        return here is not None and bool(here.edits) or bool(held_of(self.map))

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() != self._thread:  # another thread runs the model
            return
        assert self.interceptor is not None
        self._fresh, self.interceptor.tokens = True, None  # what was seen before stands until attention is seen again
        self.interceptor.cached = any(kwargs.get(name) is not None for name in CACHES)
        self._real = real_rows(module, args, kwargs)

    def _see(self, call: AttentionCall) -> Tensor | None:
        if self.interceptor is None or not self.interceptor.showing:  # another model's
            return None
        try:
            return self._measure(call)
        except Exception as error:  # somebody's forward pass is under way: it goes on, and `check` will tell
            self.map.problem(f"layer {call.layer} could not be measured ({type(error).__name__}: {error})")
            return None

    def _measure(self, call: AttentionCall) -> Tensor | None:
        assert self.interceptor is not None
        if self._fresh:
            self._fresh, self._calls, self._measures, self._broken, self._masks = False, {}, {}, {}, []
            self.tokens, self.d_vocab = None, self.interceptor.d_vocab
        batch, query_pos, _ = call.shape
        key_pos = call.positions
        tokens = self.interceptor.tokens
        layer = self.map.layers[call.layer]
        cross = layer.kind == "cross"
        fits = not cross and tokens is not None and tokens.shape == (batch, query_pos) and query_pos == key_pos
        counted = tokens if self.repeats is None else self.repeats
        found = call.stats(counted if fits else None, z=self.interceptor.wants_z, own=self.own)
        if cross:  # queries and keys are counted apart, even where there are as many
            nowhere = torch.full_like(found["entropy"], float("nan"))
            found = replace(found, rows={**found.rows, **dict.fromkeys(SQUARE, nowhere)}, back=found.back[:, :, :0])
        if fits:
            self.tokens = tokens
        real = self._real[cross or layer.causal]
        if real is not None and real.shape == (batch, query_pos):
            found = without_padding(found, call, real, not cross and query_pos == key_pos)
        rows = self.rows
        if not cross and query_pos != key_pos:  # keys of earlier passes are kept: row 0 may see many
            rows, one = slice(None), found["entropy_normalised"].isnan()
            found = hidden(found, one & ~found["entropy"].isnan())
        broken = (found["entropy"].isnan() & (found.lse != float("-inf"))).any()
        self._broken[call.layer] = broken | self._broken.get(call.layer, broken)
        means = self._measures.setdefault(call.layer, {})
        own = {} if self.own is None else own_means(found, self.own.names, rows)
        for name, values in {**means_and_errors(found, rows), **own}.items():
            means.setdefault(name, []).append(values)
        size = self.keep * call.n_heads * query_pos * call.shape[2] * 4 if call.weights is not None else 0
        if size <= KEPT_BYTES:
            self._calls.setdefault(call.layer, []).append(self._kept(call.first(self.keep, values=False)))
        return found.z

    def _kept(self, call: AttentionCall) -> AttentionCall:
        """With the mask of an earlier call, where it is the same."""
        mask = call.mask
        if mask is None:
            return call
        alike = [x for x in self._masks if (x.shape, x.dtype, x.device) == (mask.shape, mask.dtype, mask.device)]
        same = next((x for x in alike if torch.equal(x, mask)), None)
        if same is None:
            self._masks.append(mask)
            return call
        return replace(call, mask=same)

    @property
    def looked_up(self) -> tuple[Tensor, int] | None:
        """Token ids [batch pos] of the last forward pass and the rows of the table that they were looked up in, whether
        attention ran over them or not; None where none were."""
        ids, rows = (None, None) if self.interceptor is None else (self.interceptor.tokens, self.interceptor.d_vocab)
        return None if ids is None or rows is None else (ids, rows)

    @property
    def layers(self) -> list[Layer]:
        """What was seen so far, in the order in which it runs: name, self or cross, causal or not, heads."""
        return list(self.map.layers)

    def check(self) -> None:
        """A CannotWatch that says why, when what was seen cannot be trusted or nothing was seen."""
        refuse(self.model, self.map)

    def read(self) -> xr.Dataset:
        """The head measures of the last forward pass, on [layer, head]: means over its sequences and rows q >= 1.

        Names and definitions are those of a trace (`tracer.measures`), measured on the tokens that the model was given:
        induction and duplicate_token count rows whose token did not occur before as 0, and are nan without tokens.
        nan also where a layer has fewer heads than others. Measures of one's own that were given are there too.
        """
        import xarray as xr

        own = {one.row.name: one.row for one in self.own_measures.all}
        values, layers = self.arrays((*MEASURED, *own)), self.layers
        said = {"probe": "the tokens that the model was given"}
        if (where := self.first_broken()) is not None:
            warnings.warn(
                f"activations are not finite; first seen in layer {where}, {layers[where].name}", stacklevel=2
            )
        return xr.Dataset(
            {n: (("layer", "head"), value, (own.get(n) or MEASURES[n]).attrs | said) for n, value in values.items()},
            coords={
                "layer": range(len(layers)), "head": range(values["entropy"].shape[1]),
                "module": ("layer", [one.name for one in layers]), "kind": ("layer", [one.kind for one in layers]),
                "causal": ("layer", [one.causal for one in layers]),
                "extra_keys": ("layer", [" ".join(one.extra) for one in layers]),
            },
        )  # fmt: skip

    def arrays(self, names: Iterable[str] = MEASURED) -> dict[str, Float[np.ndarray, "layer head"]]:
        """What `read` returns, without the labels; `<name>_se` is a mean's standard error over sequences."""
        self.check()
        if not self._measures:
            raise CannotWatch(
                "no forward pass has run inside the watch: call the model inside `with tracer.watch(...)`"
            )
        shape = (len(self.layers), max(layer.n_heads for layer in self.layers))
        values = {name: np.full(shape, np.nan, np.float32) for name in names}
        for index, means in self._measures.items():
            for name in set(values) & set(means):
                row = torch.cat(means[name]).float().cpu().numpy()
                values[name][index, : len(row)] = row
        return values

    def pictures(self, n: int, width: int) -> Float[np.ndarray, "prompt layer head query_pos key_pos"]:
        """The first rows and columns of every head's pattern of the first n kept sequences; nan where there is none."""
        heads = max(layer.n_heads for layer in self.layers)
        found = np.full((min(n, self.n_kept), len(self.layers), heads, width, width), np.nan, np.float16)
        for layer, calls in self._calls.items():
            for call in calls:
                part = call.pattern(slice(0, width))[: len(found), :, :, :width].float().cpu().numpy()
                at = call.heads
                found[: len(part), layer, at, : part.shape[2], : part.shape[3]] = part
        return found

    @property
    def n_kept(self) -> int:
        """Sequences of the last forward pass that `pattern` knows."""
        return max((call.shape[0] for calls in self._calls.values() for call in calls), default=0)

    @property
    def n_positions(self) -> int:
        """The largest number of queries in the last forward pass."""
        return max((call.shape[1] for calls in self._calls.values() for call in calls), default=0)

    def first_broken(self) -> int | None:
        """The first layer of the last forward pass whose attention was not finite, or None."""
        return min((layer for layer, broken in self._broken.items() if bool(broken)), default=None)

    def call(self, layer: int, head: int) -> AttentionCall:
        """One head's q, k and v (or its own weights) of the last forward pass, for its first `keep` sequences."""
        self.check()
        self._exists(layer, head)
        for call in self._calls.get(layer, []):
            if call.first_head <= head < call.first_head + call.n_heads:
                return call.head(head - call.first_head)
        raise CannotWatch(
            f"layer {layer} makes its own patterns, which for this input are over {KEPT_BYTES >> 20} MB: watch a "
            f"shorter input, or use F.scaled_dot_product_attention in the model"
        )

    def pattern(
        self, layer: int, head: int, rows: slice = slice(None), cols: slice = slice(None), sequence: int = 0
    ) -> Float[Tensor, "query_pos key_pos"]:
        """One head's exact pattern of the last forward pass, or a window of it; rows are queries, columns keys.

        The last columns are no positions where `layers[layer].extra` names some: a learned key, one of zeros, a sink.
        """
        if sequence < 0:
            raise ValueError(f"there is no sequence {sequence}: they are counted from 0 on")
        if sequence >= self.keep:
            raise ValueError(f"sequence {sequence} is not kept: watch(model, keep={sequence + 1}) keeps it")
        call = self.call(layer, head)
        if sequence >= call.shape[0]:
            raise ValueError(f"there is no sequence {sequence}: the last forward pass had {call.shape[0]}, from 0 on")
        return call.pattern(rows)[sequence, 0, :, cols].cpu()

    @contextlib.contextmanager
    def ablate(
        self,
        heads: Iterable[Head],
        mode: Mode | str = "zero",
        reference: Callable[[], Any] | None = None,
        draw: int = 0,
        same: bool = False,
    ) -> Iterator[None]:
        """Inside this block the model runs, in this thread, with z of these heads (before W_O) replaced.

        zero: z = 0. mean: z averaged over all sequences of a reference batch, at each position; where that batch is the
        input itself, row for row, say same=True, and each sequence is left out of its own mean: a mean of n that holds
        it says too small an effect, by 1/n or so. What the input is, is not compared by itself. resample: z of
        another sequence of that batch (the `draw`-th seeded shuffle). `reference` runs the model on that batch, which
        has the same number of positions, and for resample of sequences, as the input: `lambda: model(batch)`.
        """
        with contextlib.ExitStack() as stack:
            if not self._inside:
                self._look()
                stack.callback(self.__exit__)
            if not self.map.layers:
                raise CannotWatch("its heads are not known yet: run the model once inside `with tracer.watch(model)`")
            chosen = self._checked(heads)
            z: dict[str, Tensor] | None = None
            if mode not in MODES:
                raise ValueError(f"there is no ablation mode {mode!r}; there are: {', '.join(MODES)}")
            if same and mode != "mean":
                raise ValueError(f"same=True is only for mode='mean', not {mode!r}: leave it out")
            if mode != "zero":
                if reference is None:
                    raise ValueError(f"mode={mode!r} needs reference=, a function that runs the model on a batch")
                taps = {z_tap(layer) for layer, _ in chosen}
                with torch.no_grad(), recording(*taps) as seen:
                    reference()
                z = dict(seen)
                if taps - z.keys():
                    raise ValueError(
                        f"reference= did not run this {type(self.model).__name__}: give a function that does, "
                        f"lambda: model(batch)"
                    )
            # which of them the model will read is not known here: the mean is over all of the reference, unless said
            plain = mode == "mean" and not same
            own = torch.full((1,), -1, device=next(iter(z.values())).device) if plain and z else None
            edits = plan(chosen, mode, z, own, draw)
            if z is not None:
                edits = [replace(edit, instead=Fitting(edit.instead)) for edit in edits]
            stack.enter_context(editing(self.map, edits))
            yield

    def _checked(self, heads: Iterable[Head]) -> list[Head]:
        self.check()
        chosen = sorted({head_of(head) for head in heads})
        if not chosen:
            raise ValueError("the set of heads is empty: name at least one (layer, head)")
        for layer, head in chosen:
            self._exists(layer, head)
            if why := self.layers[layer].no_z:
                raise CannotWatch(why)
        return chosen

    def _exists(self, layer: int, head: int) -> None:
        """A ValueError that says which layers and heads there are, where this one is none of them."""
        layers = self.layers
        n_heads = layers[layer].n_heads if 0 <= layer < len(layers) else 0
        if not 0 <= head < n_heads:
            raise ValueError(
                f"L{layer}H{head} does not exist: this model has layers 0 to {len(layers) - 1}"
                + (f", layer {layer} has heads 0 to {n_heads - 1}" if n_heads else "")
            )


@dataclass(frozen=True, eq=False)
class Fitting:
    """z of a reference batch, for an input of the same shape."""

    z: Any

    def __call__(self, activation: Float[Tensor, "batch pos head d_head"]) -> Tensor:
        (batch, pos), (rows, there) = activation.shape[:2], self.z.shape[:2]
        if pos != there or rows not in (1, batch):
            raise ValueError(
                f"the reference batch has {rows} sequences of {there} positions (1 for mode='mean'), the input {batch} "
                f"of {pos}: run the model on as many in reference="
            )
        return self.z
