"""What each step of the tour asks for, when it is done, and what there is to say then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dashboard import loading, state, theme
from dashboard.loading import ablation, head_scores, prompt_attention, prompt_tokens
from dashboard.loading.ablation import Cost, Setup
from dashboard.loading.run_summaries import summary
from dashboard.shared import choosers
from tracer.analysis import head_sets
from tracer.analysis.when_causal import LEAST_EFFECT, LEAST_SCORE, Rise, rise
from tracer.measures import MEASURES
from tracer.pictures.payload import visible
from tracer.store import Run, nearest_row

GUESSES = {
    "copying": "Copying: the loss on repeated tokens rises, that on ordinary text hardly does",
    "everything": "Everything: both rise about alike",
    "nothing": "Nothing to speak of: other heads do the same work",
}
OUTCOMES = {
    "copying": "copying broke, and little else",
    "everything": "everything broke alike",
    "nothing": "nothing broke that could be told from chance",
}
START, END = 0.1, 0.9
"""Between these shares of its final score a head is being born. Ours."""


@dataclass(frozen=True)
class Done:
    """What there is to say about a deed; a hint while it is not `complete`."""

    complete: bool
    lines: list[str]


@dataclass(frozen=True)
class Story:
    """The run, and the head that the tour is about."""

    run: Run
    head: tuple[int, int]
    weakest: tuple[int, int]
    steps: np.ndarray
    curve: np.ndarray
    """Its induction score, [step]."""
    born: Rise

    @property
    def label(self) -> str:
        return theme.head_label(*self.head)

    @property
    def key(self) -> str:
        """What a prediction belongs to."""
        return f"{self.run.dir.resolve()} {self.label}"

    def task(self, at: int) -> str:
        """What to do, as Markdown of our own words."""
        return (
            "Each tile is a head, and the colour of its top its *induction score*: how much, when a token comes again, "
            "it looks at what followed the last time. Choose the head with the strongest colour.",
            f"{self.label} could not do this from the start. Drag the step, or press `[` and `]`, to where its "
            "induction score is on its way up.",
            f"In the text below the pattern, click a token that has occurred before. What does {self.label} look at "
            "from there?",
            f"On Ablate one can switch {self.label} off. What will break? Say it before you look.",
            f"Switch off {self.label}, and only that.",
            f"{self.label} is built on a head below it that looks at the token before. Train this model once more from "
            f"step {self.start:,}, and this time keep every head of {_layers(self.head[0])} from looking there (clamp "
            f"`{', '.join(self.clamps)}`). Does an induction head still form?",
        )[at - 1]

    @property
    def last(self) -> int:
        """The last step that there is: the sixth trains the run again, which takes a head below and a run of ours."""
        return 6 if self.clamps and self.run.can("resume") else 5

    @property
    def start(self) -> int:
        """Where the run is trained from once more."""
        return self.run.steps[0]

    @property
    def clamps(self) -> tuple[str, ...]:
        """No head below the induction head may look at the token before."""
        return tuple(f"L{layer} no-previous" for layer in range(self.head[0]))

    def again(self) -> Run | None:
        """The newest run that was forked from this one like that."""
        parent = {"run": self.run.name, "step": self.start}
        for run in loading.runs():
            meta = run.meta
            told = meta.get("parent") or {}
            if {k: told.get(k) for k in parent} == parent and tuple(meta["config"].get("clamp", ())) == self.clamps:
                return run
        return None

    def setting(self, at: int) -> dict[str, Any]:
        """The choices with which a step begins, its deed undone."""
        shown: dict[str, Any] = {"measure": "induction", "step": None, "token": None, "off": ()}
        shown |= {"mode": "zero", "frozen": False, "find": "", "other_step": None, "other_prompt": ""}
        if at == 2:
            shown["step"] = self.run.steps[0]
        layer, head = self.weakest if at == 1 else self.head
        return {**shown, "layer": layer, "head": head}

    def done(self, at: int, guess: str | None) -> Done | None:
        """What was done of a step so far, other than predicting; None while there is nothing to say."""
        if at == 6:
            return self._prevented()
        if at == 5:
            return self._switched(guess)
        return (self._found, self._scrubbed, self._asked)[at - 1]()

    def _found(self) -> Done | None:
        focus = state.read().focus
        if focus != self.head:
            return None
        chance = MEASURES["induction"].at_chance(self.run.about.setting)
        by_chance = "" if chance is None else f"; uniform attention would have {theme.fmt(chance, 'induction')}"
        return Done(True, [f"{self.label} it is: {theme.fmt(float(self.curve[-1]), 'induction')}{by_chance}."])

    def _scrubbed(self) -> Done | None:
        step = choosers.step_in_force(self.run.steps)
        first, last = birth(self.steps, self.curve, self.run.steps)
        score = theme.fmt(float(self.curve[nearest_row(self.steps, step)]), "induction")
        if first <= step <= last:
            final = theme.fmt(self.born.final, "induction")
            return Done(True, [f"Here: {score} at step {step:,}, on the way to {final}. Half of it is passed by step "
                               f"{self.born.step:,}."])  # fmt: skip
        if step == self.run.steps[0]:
            return None
        way = (
            "not yet: go on until it rises." if step < first else "it is there already: go back until it is on its way."
        )
        return Done(False, [f"{score} at step {step:,}, {way}"])

    def _asked(self) -> Done | None:
        chosen = state.read()
        if chosen.token is None:
            return None
        try:
            text = prompt_tokens.encode(self.run, chosen.prompt or prompt_tokens.example(self.run), cut=True)
        except ValueError:  # the page says what is wrong with the prompt
            return None
        at = chosen.token
        if at >= len(text.tokens):
            return None
        shown = prompt_attention.of_text(self.run, choosers.step_in_force(self.run.steps), text.tokens, text.strings)
        row = shown.window(*self.head, slice(at, at + 1), slice(0, at + 1))[0]
        return looked_at(self.label, text.strings, row)

    def _switched(self, guess: str | None) -> Done | None:
        chosen = state.read()
        if chosen.off != (self.head,):
            return None
        step = choosers.step_in_force(self.run.steps)
        try:
            costs = ablation.costs(Setup.of(self.run, step, chosen.off, chosen.mode, chosen.frozen))
        except ValueError:
            return None
        return Done(True, verdict(self.label, guess, costs))

    def _prevented(self) -> Done | None:
        again = self.again()
        if again is None:
            return None
        facts = summary(again)
        if again.live or facts.best is None:
            at = f"step {facts.step:,} of {facts.steps:,}" if facts.steps else f"step {facts.step:,}"
            so_far = f": its strongest induction head scores {_score(facts.score)} so far" if facts.stands_out else ""
            return Done(
                False, [f"{again.name} is at {at}{so_far}. Here {self.label} was born by step {self.born.step:,}."]
            )
        if again.status != "finished":
            return Done(False, [f"{again.name} ended at step {facts.step:,}, before it was done."])
        return Done(True, prevented(self.label, float(self.curve[-1]), facts.score if facts.stands_out else None))


def prevented(label: str, here: float, there: float | None) -> list[str]:
    """What came of training without a look at the token before; `there` None: no head there is above its control."""
    strongest = "no head there stands out" if there is None else f"its strongest induction head scores {_score(there)}"
    numbers = f"{strongest}, {label} here {_score(here)}"
    if there is None or there < START * here:
        return [
            f"None formed: {numbers}.",
            "Same weights at the start, same batches, one look forbidden. That the head below is needed is no longer a "
            "guess from curves that rise one after the other: it was taken away, and nothing came. That is one "
            "training; with another seed a model may find another way.",
        ]
    if there < here / 2:
        return [
            f"A weaker one formed: {numbers}.",
            "It found another way, or a part of one: see what its heads look at.",
        ]
    return [
        f"One formed all the same: {numbers}.",
        "This model needs no look at the token before. See what it does instead.",
    ]


def _score(value: float) -> str:
    return theme.fmt(value, "induction")


def _layers(below: int) -> str:
    return "layer 0" if below == 1 else f"layers 0 to {below - 1}"


def story(run: Run) -> Story | None:
    """None where no head of the run came to look back, that was not measured, or its model cannot be run."""
    trace = loading.trace(run)
    if not run.steps or run.why_not("prompts") or not ablation.repeats(run):
        return None
    if not trace.sizes["step"] or not head_scores.holds(trace, "induction"):
        return None
    head, values = head_scores.induction_head(trace), trace["induction"].values
    if head is None:
        return None
    seen = np.isfinite(values[:, *head])
    steps, curve = trace["step"].values[seen], values[seen][:, *head]
    born = rise(steps, curve, LEAST_SCORE)
    if born.step is None:
        return None
    last = np.where(head_scores.head_exists(trace), values[seen][-1], np.inf)
    layer, weakest = np.unravel_index(int(np.nan_to_num(last, nan=np.inf).argmin()), last.shape)
    return Story(run, head, (int(layer), int(weakest)), steps, curve, born)


def birth(steps: np.ndarray, curve: np.ndarray, snapshots: list[int]) -> tuple[int, int]:
    """The snapshots between which a score rises from a tenth to nine tenths of its final value, at least one."""
    final = curve[-1]
    low = np.flatnonzero(curve < START * final)
    first = int(steps[min(low[-1] + 1, len(steps) - 1)]) if len(low) else int(steps[0])
    last = int(steps[np.flatnonzero((curve >= END * final) & (steps >= first))[0]])
    half = rise(steps, curve, LEAST_SCORE).step
    nearest = snapshots[nearest_row(snapshots, first if half is None else half)]
    return min(first, nearest), max(last, nearest)


def looked_at(label: str, strings: list[str], row: np.ndarray) -> Done:
    """Where the last token of `row` looks most, and whether something like it came right before there."""
    at, best = len(row) - 1, int(row.argmax())
    here, there = (f"“{visible(strings[i])}”" for i in (at, best))
    look = f"{label} looks from {here} most at {there}, {at - best} back, with {row[best]:.0%} of its attention"
    if strings[at] not in strings[:at]:
        return Done(False, [f"{look}. But {here} is new here: click one that has occurred before."])
    if best and strings[best - 1] == strings[at]:
        return Done(True, [f"{look}: what followed {here} the last time."])
    share = sum(float(row[i]) for i in range(1, at + 1) if strings[i - 1] == strings[at])
    return Done(True, [f"{look}; on what followed {here} earlier lie {share:.0%}. Try others: it is not always this."])


def outcome(costs: dict[str, Cost]) -> str:
    """Which of the guesses came true: what is under 0.05 nats, or within its interval of none, is nothing."""
    rises = {name: cost.change.mean if _is_sure(cost) else 0.0 for name, cost in costs.items()}
    if max(rises.values()) < LEAST_EFFECT:
        return "nothing"
    return "copying" if rises["repeat"] > 2 * rises.get("text", 0.0) else "everything"


def verdict(label: str, guess: str | None, costs: dict[str, Cost]) -> list[str]:
    """The prediction beside the measurement, how sure it is, and what it does not say."""
    came = outcome(costs)
    if guess is None:
        first = f"Measured: {OUTCOMES[came]}."
    elif guess == came:
        first = f"As you predicted: {OUTCOMES[came]}."
    else:
        first = f"Not as you predicted ({GUESSES[guess].partition(':')[0].lower()}): {OUTCOMES[came]}."
    names = {"repeat": "repeated tokens", "text": "ordinary text"}
    lines = [first, "; ".join(f"{_cost(cost)} on {names.get(name, name)}" for name, cost in costs.items()) + "."]
    if abs(costs["repeat"].change.mean) < head_sets.SMALL:
        return [*lines, head_sets.REDUNDANCY]
    caution = (
        f"That is what this model loses without {label} as it stands. Another head may take over part of the work, "
        "here or when training goes on: try other sets as well, and a control of as many other heads."
    )
    return [*lines, caution]


def _is_sure(cost: Cost) -> bool:
    change = cost.change
    return not np.isfinite(change.low) or not change.low <= 0 <= change.high


def _cost(cost: Cost) -> str:
    change = cost.change
    if not np.isfinite(change.low):
        return f"{theme.signed(change.mean)} nats (1 sequence, so no interval)"
    sure = "" if _is_sure(cost) else ", so it could be nothing"
    return (
        f"{theme.signed(change.mean)} nats (95 % interval {theme.interval(change.low, change.high)}, "
        f"{change.n} sequences{sure})"
    )
