"""Cached proofs for the Ablate page: effects over training, the verdict on a head, the smallest circuit.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import ablation
from dashboard.loading.kept import OF_A_STEP, kept, of_run
from tracer.measures.aliases import Head, Progress
from tracer.named_code import TESTS, remembered
from tracer.store import Run

if TYPE_CHECKING:
    from tracer.ablate import Verdict

LONGEST_PAIR = 64
"""Tokens of a prompt of a pair whose activations are patched one position at a time."""


@st.cache_data(max_entries=64, show_spinner="Putting the head to the tests …", hash_funcs=OF_A_STEP)
def verdict(run: Run, step: int, head: tuple[int, int], tests: tuple[str, ...] = ()) -> Verdict:
    """The card of one head, with these tests besides; ValueError where the model does not let it be drawn up."""
    from tracer.ablate import verdict as compute

    return compute(run, *head, step, tests=tests)


def own_tests() -> tuple[tuple[str, ...], str]:
    """The tests of a person's own that this server was started with (`manyeyes --tests`), and why one is none."""
    from tracer.ablate.own_tests import given_tests

    tests = remembered(TESTS)
    try:
        given_tests(tests)
    except ValueError as error:
        return (), str(error)
    return tests, ""


@dataclass(frozen=True)
class Circuit:
    """A few heads that keep a behaviour, and how they were found; shares are of the behaviour with all heads on."""

    heads: list[Head]
    share: float
    reached: bool
    curve: list[float]
    """The share before the first choice and after each."""
    choices: list[tuple[Head, bool, float]]
    """Head, whether it was taken (or dropped again), and the share after it."""
    repeated: tuple[float, float]
    """Loss of repeated tokens with all heads on, and with only these."""
    new: tuple[float, float]
    """The same of tokens that are read for the first time."""


def circuit(run: Run, step: int, mode: str, frozen: bool, target: float, progress: Progress) -> Circuit:
    """The heads that keep `target` of the gain on repeated tokens; ValueError where there is nothing to keep."""
    from tracer.ablate import build_up, losses
    from tracer.ablate.parts import every_head
    from tracer.data.probes import first_copy_loss, repeat_loss

    def search() -> Circuit:
        model, given = loading.model(run, step), ablation.batches(run)
        probe, how = given.repeat, {"frozen": frozen, "reference": given.reference("repeat", mode)}
        found = build_up(model, probe.tokens, mode, target=target, progress=progress, **how)
        choices = [(s.head, s.taken, s.share) for s in found.steps]
        off = [head for head in every_head(model) if head not in found.heads]
        both = losses(model, probe.tokens, [(), off], mode, **how)
        (before, after), (new_before, new_after) = (
            [float(of(one, probe.period)) for one in both] for of in (repeat_loss, first_copy_loss)
        )
        return Circuit(
            found.heads, found.share, found.reached, found.curve, choices, (before, after), (new_before, new_after)
        )

    return kept("circuit", (*of_run(run), step, mode, frozen, target), search)


@dataclass(frozen=True)
class Patched:
    """Of each cell that was patched, the share of the difference between clean and corrupted runs that it restores."""

    share: np.ndarray
    """[layer head] or [layer pos]: 1 as the clean run, 0 as the corrupted one."""
    clean: float
    corrupted: float
    right: list[int]
    """The likeliest next token after each clean prompt, and after each corrupted one."""
    wrong: list[int]


Rows = tuple[tuple[int, ...], ...]


@st.cache_data(max_entries=64, show_spinner="Patching …", hash_funcs=OF_A_STEP)
def patched(run: Run, step: int, clean: Rows, corrupted: Rows, at: str, into: str) -> Patched:
    """ValueError for prompts that are no pairs, or that have one answer."""
    import torch

    from tracer.ablate import LogitDifference, patch

    if len(clean) != len(corrupted):
        raise ValueError(f"{len(clean)} clean prompts and {len(corrupted)} corrupted ones: give as many lines in each")
    for i, lengths in enumerate(zip(map(len, clean), map(len, corrupted), strict=True), 1):
        if set(lengths) != {len(clean[0])}:
            raise ValueError(
                f"line {i} has {lengths[0]} and {lengths[1]} tokens, and the first clean prompt {len(clean[0])}: all "
                f"must be equally long, so that positions correspond"
            )
    model = loading.model(run, step)
    pairs = torch.tensor(clean), torch.tensor(corrupted)
    with torch.no_grad():
        right, wrong = (model(tokens)[:, -1].argmax(-1) for tokens in pairs)
    if True in (same := (right == wrong).tolist()):
        raise ValueError(
            f"line {same.index(True) + 1}: the likeliest next token is the same after both prompts, so no logits differ"
        )
    found = patch(model, *pairs, at, LogitDifference(right, wrong), into=into)
    best, worst = found.attrs["clean"], found.attrs["corrupted"]
    return Patched(((found - worst) / (best - worst)).values, best, worst, right.tolist(), wrong.tolist())
