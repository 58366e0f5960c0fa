"""A question to a model, asked of any: ours, one of `load_hf`, or a bare module, which is wrapped for the call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch import nn

from tracer.huggingface.loading import load_hf
from tracer.model.protocol import HeadModel
from tracer.named_code import kind_of

P = ParamSpec("P")
R = TypeVar("R")


def any_model(question: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """The question, whose first argument may also be a model of `transformers` as it is: its hooks are gone after."""

    @wraps(question)
    def asked(model: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not isinstance(model, nn.Module) or isinstance(model, HeadModel):  # pyrefly: ignore[unsafe-overlap]
            return question(model, *args, **kwargs)
        if hasattr(model, "original_model") and hasattr(model, "hook_dict"):
            raise ValueError(
                f"{kind_of(model)} has put its own modules in place of those of the model that it was made of: "
                f"give that model, or a copy of it from before, or tracer.load_hf of its name"
            )
        if model.training:
            raise ValueError("the model is in training mode, where dropout makes every pass another: call model.eval()")
        seen = load_hf(model)
        try:
            return question(seen, *args, **kwargs)
        finally:
            seen.release()

    return asked
