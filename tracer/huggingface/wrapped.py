"""A causal language model that others wrote, as a `HeadModel`: tokens in, logits out, edits obeyed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tracer.hooks.discovered import DiscoveredAttention
from tracer.hooks.inputs import logits_of
from tracer.hooks.interceptor import AttentionInterceptor
from tracer.hooks.refusals import UNSEEN, CannotWatch, NoHeads, nothing_seen, refuse
from tracer.hooks.sites import Layer, Sites, bare
from tracer.huggingface.architectures import Layout, architecture_of
from tracer.huggingface.attention_weights import head_weights, refuse_offloaded, unembedding
from tracer.huggingface.stream_taps import StreamTaps
from tracer.huggingface.streams import check_scores, residual_stream
from tracer.interventions.edits import active, applied, refuse_unknown_taps, untouched, visiting
from tracer.interventions.named_hooks import FwdHooks, TapCache, hooked, kept_in
from tracer.model.protocol import HeadWeights, Reuse, check_tokens, check_vocabulary, device_of
from tracer.model.residual_stream import ResidualStream

TAPS = ("q", "k", "v", "z", "pattern")
"""Of each layer; without q and k, which nobody sees, where a model computes its pattern itself."""


class WrappedModel(nn.Module):
    """Safe from any number of threads: edits travel with the call, and the hooks on the model only name its modules.

    Errors: CannotWatch when its attention cannot be seen or is none; ValueError for tokens that it cannot take.
    """

    def __init__(
        self, model: nn.Module, *, n_ctx: int, d_vocab: int, tokenizer: Any = None, bos: int | None = None,
        run: Callable[[nn.Module, Tensor], Any] | None = None, layout: Layout | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model = bare(model)
        self.n_ctx, self.d_vocab, self.tokenizer, self.bos = n_ctx, d_vocab, tokenizer, bos
        self._run, self.own_layout = run or alone, layout
        self._map, self._sites = DiscoveredAttention(), Sites(self.model)
        self._stream: StreamTaps | None = None
        self._sites.attach()
        try:
            self._census()
        except BaseException:
            self.release()
            raise

    @torch.no_grad()
    def _census(self) -> None:
        """One small forward pass, to learn which heads there are and that they can be trusted."""
        if str(getattr(getattr(self.model, "config", None), "_attn_implementation", "")) in UNSEEN:
            raise NoHeads(nothing_seen(self.model, self._map))
        with visiting(lambda call: None):
            self(torch.arange(min(7, self.n_ctx, self.d_vocab))[None].to(device_of(self.model)))
        refuse(self.model, self._map)
        ahead = [layer.name for layer in self._map.layers if layer.kind == "self" and not layer.causal]
        if ahead:
            raise CannotWatch(
                f"{ahead[0]} looks ahead, so that what this {type(self.model).__name__} says of the next token means "
                f"nothing: it is no causal language model (BERT's become one with is_decoder=True); to see its heads "
                f"use tracer.watch(model)"
            )
        self._taps = [
            f"blocks.{i}.attn.hook_{tap}" for i, layer in enumerate(self.layers) for tap in TAPS
            if not (layer.by_hand and tap in ("q", "k"))
        ]  # fmt: skip
        self._scores_checked = False
        self.why_no_stream = ""
        """Why its residual stream is not seen; empty where it is."""
        try:
            if self.own_layout is not None:
                self.own_layout.check(self.model, [layer.name for layer in self.layers])
            self._stream = StreamTaps(self.model, self.layout, self.layers)
            self._taps += self._stream.names
        except (ValueError, AttributeError) as error:  # AttributeError: a module is not where its family has it
            self.why_no_stream = str(error)

    def release(self) -> None:
        """Take the hooks off the model, which stays as it was; this view of it ends here."""
        self._sites.detach()
        if self._stream is not None:
            self._stream.remove()

    @property
    def layout(self) -> Layout:
        """What its parts are called; ValueError where nobody has said it and its family is not known."""
        return self.own_layout or architecture_of(self.model)

    def check_layout(self) -> None:
        """ValueError, with what is missing, where its own layout is not that of the model."""
        if self.why_no_stream:
            raise ValueError(self.why_no_stream)
        self.residual_stream(torch.arange(min(7, self.n_ctx, self.d_vocab))[None].to(device_of(self.model)))

    @property
    def layers(self) -> list[Layer]:
        """By layer: the module's path, causal or not, how many heads."""
        return list(self._map.layers)

    @property
    def n_layers(self) -> int:
        return len(self._map.layers)

    @property
    def n_heads(self) -> int:
        return max(self.heads_of_layers)

    @property
    def heads_of_layers(self) -> list[int]:
        return [layer.n_heads for layer in self._map.layers]

    def head_weights(self) -> HeadWeights:
        """ValueError, saying what is missing, where they cannot be told apart."""
        refuse_offloaded(self.model)
        with self._by_layout():
            return head_weights(self.model, self.layout, self.layers)

    def residual_stream(self, tokens: Int[Tensor, "batch pos"]) -> ResidualStream:
        """A forward pass under the edits in force, as sums; ValueError, with the reason, where it cannot be said."""
        if self.why_no_stream:
            raise ValueError(self.why_no_stream)
        refuse_offloaded(self.model)
        with self._by_layout():
            if not self._scores_checked:
                with untouched():
                    check_scores(self)
                self._scores_checked = True
            return residual_stream(self, tokens)

    @contextmanager
    def _by_layout(self) -> Iterator[None]:
        """ValueError where modules that a layout names are not what it takes them for: a run from anywhere may hold
        any names."""
        try:
            yield
        except Exception as error:
            if self.own_layout is None or isinstance(error, ValueError):
                raise
            raise ValueError(
                f"layout: its modules are not what they are named as: {type(error).__name__}: {error}"
            ) from error

    @property
    def why_no_mlps(self) -> str:
        return self.why_no_stream and f"the MLPs of this model cannot be switched off: {self.why_no_stream}"

    @property
    def why_not_now(self) -> str:
        if self.model.training:
            return "the model is in training mode, where dropout makes every pass another: call model.eval()"
        return ""

    @property
    def reuse(self) -> Reuse:
        return "" if self.why_no_stream else "begins"

    def input_taps(self, layer: int) -> None:
        return None

    def beginning(self, layer: int, x: Float[Tensor, "batch pos d_model"]) -> AbstractContextManager[None]:
        """Edited passes inside, in this thread, run from this block on, which x enters."""
        assert self._stream is not None
        return self._stream.beginning(layer, x)

    @torch.no_grad()
    def logits(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_vocab"]:
        """From what leaves the last block to the next token's logits: the final norm, the unembedding, the cap."""
        refuse_offloaded(self.model)
        with self._by_layout():
            return unembedding(self.model, self.layout)(x)

    @property
    def taps(self) -> list[str]:
        """The names that `run_with_hooks` takes: transformer-lens's; those of the stream where it is seen."""
        return list(self._taps)

    def run_with_hooks(
        self, tokens: Int[Tensor, "batch pos"], fwd_hooks: FwdHooks = ()
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """The logits with function(activation, hook) called at each named tap: [(name, function), ...].

        As in transformer-lens: what a function returns stands instead, None leaves what is there; a name may be a
        function of a tap's name. Nothing of it lives on the model. ValueError, with the names that exist, for a name
        of none, and with the reason where the residual stream has none.
        """
        try:
            edits = hooked(fwd_hooks, self._taps)
        except ValueError as error:
            raise ValueError(f"{error}. {self.why_no_stream}".rstrip(". ")) from None
        with applied(edits):
            return self(tokens)

    def run_with_cache(
        self, tokens: Int[Tensor, "batch pos"], names_filter: Any = None
    ) -> tuple[Float[Tensor, "batch pos d_vocab"], TapCache]:
        """Logits and the activations of every tap, or of those that `names_filter` names, as in transformer-lens."""
        cache = TapCache()
        return self.run_with_hooks(tokens, kept_in(cache, names_filter)), cache

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        check_tokens(tokens, self.n_ctx)
        check_vocabulary(tokens, self.d_vocab)
        if active() is None:
            output = self._run(self.model, tokens)
        else:
            if self._map.layers:
                refuse_unknown_taps(self._taps)
            tapped = nullcontext() if self._stream is None else self._stream.running()
            with AttentionInterceptor(self._sites, self._map), tapped:
                output = self._run(self.model, tokens)
        logits = logits_of(output, tokens)
        if logits is None:
            raise CannotWatch(
                f"{type(self.model).__name__} returned no logits [batch pos d_vocab] for {tuple(tokens.shape)} tokens"
            )
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def alone(model: nn.Module, tokens: Tensor) -> Any:
    """The way to call a model that takes ids and nothing else."""
    return model(tokens)
