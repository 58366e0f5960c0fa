"""Clamps of a training: those that a person gives, functions of their own tried out before anything is trained."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from tracer.config import Clamp, TrainConfig
from tracer.huggingface.building import same_dice
from tracer.interventions import clamps
from tracer.interventions.edits import recording
from tracer.interventions.own_clamps import Given, texts
from tracer.model import Transformer
from tracer.named_code import why_no_clamp


def with_these(config: TrainConfig, given: Given) -> TrainConfig:
    """The configuration with what a person gives beside its own clamps; their code may run in this process."""
    new = [text for text in texts(given) if Clamp.parse(text) not in config.clamps]
    return replace(config, clamp=(*config.clamp, *new)) if new else config


def named_again(run: str, config: TrainConfig, given: Given) -> None:
    """ValueError where a run goes on and its own clamps are not all named again, or others are given."""
    now = [Clamp.parse(text) for text in texts(given)]
    if others := [one for one in now if one not in config.clamps]:
        held = ", ".join(f'"{one}"' for one in config.clamps) or "nothing"
        raise ValueError(
            f'{run} is trained with clamp={held}, not with "{others[0]}": a run goes on as it is; `tracer fork {run} '
            f'--step STEP --clamp "{others[0]}"` trains another'
        )
    if missing := [one for one in config.own_clamps if one not in now]:
        again = " ".join(f'"{one}"' for one in config.own_clamps)
        raise ValueError(
            f'{run} was trained with clamp "{missing[0]}". Code is never taken from a run directory: name the same '
            f"again, --clamp {again}"
        )


def try_out(model: Transformer, config: TrainConfig, tokens: Tensor) -> None:
    """ValueError where a clamp of a user's own is not named, or gives on these tokens [batch pos] what can be none.

    Each is tried twice and alone, whatever steps it is held at; random states stay as they were.
    """
    for clamp in config.own_clamps:
        if why := why_no_clamp(str(clamp), clamp.code):
            raise ValueError(why)
    training = model.training
    model.eval()
    with torch.no_grad(), same_dice():
        for clamp in config.own_clamps:
            model.clamps = clamps.edits(replace(config, clamp=(str(replace(clamp, start=0, stop=None)),)), 0)
            tap, seen = model.clamps[0].tap, []
            for _ in range(2):  # from other random states
                with recording(tap) as one:
                    model(tokens)
                seen.append(one[tap])
            if not torch.allclose(*seen, rtol=1e-3, atol=1e-5):
                raise ValueError(
                    f"clamp {str(clamp)!r}: {clamp.code} gave something else for the same tokens the second time: it "
                    f"must be a function of the head alone, so that a run that was stopped goes on as it would have"
                )
    model.clamps = ()
    model.train(training)
