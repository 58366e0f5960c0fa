"""What a paper is here: its runs, and its claims, each with its figure, tolerance and control.

`papers/<name>/paper.py` makes one of doors of tracer that anybody has; `tracer reproduce` trains, asks and judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tracer.config import TrainConfig
from tracer.config.field_docs import fields_in_help
from tracer.presets import preset
from tracer.specimens.paper_chart import PaperChart
from tracer.specimens.systems import System
from tracer.store import Run

SeedRuns = Mapping[str, Run]
"""The runs of one seed, by their names in the paper."""
Ends = tuple[float | None, float | None]
"""The least and the largest of what agrees; None for no end."""
CODE = ("corpus", "scalars", "measures", "probes", "clamp", "loss", "rules")
"""Words of `tracer.train` that a run of a paper may be trained with."""


@fields_in_help
@dataclass(frozen=True)
class PaperRun:
    """One training of a paper, which is run once for each seed."""

    about: str
    """What it is for, in a line that is printed as it is trained."""
    config: TrainConfig
    """Its `run` and `seed` are set by `tracer reproduce`."""
    code: Mapping[str, Any] = field(default_factory=dict)
    """Code that it is trained with, by the words of `tracer.train`: corpus, scalars, measures, probes, clamp, loss,
    rules."""
    preset: str = ""
    """The preset that `config` is of: the run is called after it, so that one which somebody trained is found."""

    def __post_init__(self) -> None:
        if not isinstance(self.config, TrainConfig):
            raise ValueError(f"config of a PaperRun is {type(self.config).__name__}, and not a tracer.TrainConfig")
        if unknown := [word for word in self.code if word not in CODE]:
            raise ValueError(f"code of a PaperRun has {', '.join(unknown)}; it may have {', '.join(CODE)}")
        if self.preset:
            preset(self.preset)


@fields_in_help
@dataclass(frozen=True)
class Control:
    """What must come out if the claim has no trivial explanation; where it does not, the seed does not support it."""

    text: str
    """What is controlled, in a sentence."""
    figure: Callable[[SeedRuns], float]
    """One number of the runs of a seed, in `unit`; nan where it is not known. It is asked of the claim's runs."""
    within: Ends
    """The least and the largest figure that will do, in `unit`, ends included; None for no end."""
    unit: str = ""
    """Of the figure and the ends: a word or two that are printed behind them."""

    def __post_init__(self) -> None:
        _check_ends("control", self.text, self.within)


@fields_in_help
@dataclass(frozen=True)
class Claim:
    """Something that a paper says, or that we predict, as a number of one seed's runs and what it must be.

    Each seed is asked by itself, so that runs are compared within a seed. ValueError where a field cannot be.
    """

    text: str
    """What is claimed, in a sentence."""
    needs: tuple[str, ...]
    """Names of the runs that it is asked of; a seed that lacks one of them is not asked."""
    figure: Callable[[SeedRuns], float]
    """One number of these runs, {name: tracer.Run} of one seed, in `unit`; nan where it is not known, such as a date
    that was not found."""
    within: Ends
    """(least, largest) in `unit`, None for no end: it holds in a seed whose figure is in here, ends included."""
    unit: str = ""
    """Of the figure and the ends: a word or two that are printed behind them, such as "steps", "nats", "of heads"."""
    published: str = ""
    """The published figure, in the author's words; empty for a prediction of our own, which is marked as ours."""
    place: str = ""
    """Where it was published: a figure, a section, a file of the authors' code."""
    weaker: Ends | None = None
    """Ends as of `within`: a figure in here supports the claim in a weaker form; None where there is none."""
    share: float = 0.9
    """The share of seeds in which it must hold, above 0.5 and at most 1."""
    order: bool = False
    """Is it an order, of which chance would give half of the seeds? Then it is told by the exact sign test alone."""
    noise: float | None = None
    """How far apart, in `unit`, the figures of two seeds may be by themselves. Then the mean over seeds is judged, not
    each seed: n seeds make noise / sqrt(n) of it. It holds inside `within` by `margin` times that, fails once outside
    by as much as noise makes, and is too close to tell between. A seed without a figure is not counted."""
    margin: float = 1
    """Of a claim with `noise`: 1 where the mean must be further inside than noise alone explains, 0 where inside does,
    as of "no worse than"."""
    control: Control | None = None
    """What must come out as well; a seed in which it does not supports nothing. None where the claim needs none."""
    too_small: Callable[[SeedRuns], str] | None = None
    """Says why a seed's models are too small to ask, such as that no head formed; empty where they are not."""

    def __post_init__(self) -> None:
        if isinstance(self.needs, str) or not self.needs:
            raise ValueError(f"claim {self.text!r:.60}: needs={self.needs!r} must be a tuple of names of runs")
        if not callable(self.figure):
            raise ValueError(f"claim {self.text!r:.60}: figure must be a function of the runs of a seed")
        if bool(self.published) != bool(self.place):
            raise ValueError(f"claim {self.text!r:.60}: published= and place= go together; without both it is ours")
        if not 0.5 < self.share <= 1:
            raise ValueError(f"claim {self.text!r:.60}: share={self.share} must be above 0.5 and at most 1")
        if self.noise is not None and (self.noise <= 0 or self.order or self.weaker or self.control):
            raise ValueError(f"claim {self.text!r:.60}: noise={self.noise:g} must be above 0; with it goes no order, "
                             "weaker or control")  # fmt: skip
        for ends in (self.within, self.weaker):
            if ends is not None:
                _check_ends("claim", self.text, ends)

    @property
    def ours(self) -> bool:
        """Is it a prediction of our own, which nobody published?"""
        return not self.published


@fields_in_help
@dataclass(frozen=True)
class Paper:
    """A publication as runs and claims; ValueError where they do not fit together."""

    title: str
    """Printed above its claims."""
    source: str
    """Authors, year and where it is to be read."""
    runs: Mapping[str, PaperRun] = field(default_factory=dict)
    """Its trainings, by the names that claims need them by; the run of seed 1 is called FOLDER-NAME-1."""
    claims: tuple[Claim, ...] = ()
    """Each with a text of its own, in the order in which they are printed."""
    quick: tuple[str, ...] = ()
    """Runs of `tracer reproduce --quick`, which should take two minutes at most; empty for all of them."""
    tests: tuple[Any, ...] = ()
    """Tests of heads (`tracer.head_test`) that every head of its exported models is put to, on their cards."""
    systems: tuple[System, ...] = ()
    """Of a tutorial: what it builds, one after the other, with published figures and exercises (`tracer.System`)."""
    chart: PaperChart | None = None
    """What it is known by, drawn from its runs (`tracer.PaperChart`); None: nothing is drawn."""

    def __post_init__(self) -> None:
        if not self.systems and not (self.runs and self.claims):
            raise ValueError("a paper has one run and one claim at least")
        for name, run in self.runs.items():
            if not isinstance(run, PaperRun):
                raise ValueError(f"runs[{name!r}] is {type(run).__name__}, and not a tracer.PaperRun")
        drawn = [("chart", self.chart.needs)] if self.chart else []
        asked = [(f"claim {one.text!r:.60}", one.needs) for one in self.claims]
        for what, names in (("quick", self.quick), *drawn, *asked):
            if unknown := [name for name in names if name not in self.runs]:
                raise ValueError(f"{what} names {', '.join(unknown)}; the runs are {', '.join(self.runs)}")
        presets = [run.preset for run in self.runs.values() if run.preset]
        if twice := [one for one in dict.fromkeys(presets) if presets.count(one) > 1]:
            raise ValueError(f"two runs are of the preset {twice[0]}, and would be called the same")
        if len({claim.text for claim in self.claims}) < len(self.claims):
            raise ValueError("two claims have the same text")
        if self.tests:
            from tracer.ablate.own_tests import given_tests

            given_tests(self.tests)


def inside(value: float, ends: Ends | None) -> bool:
    """Is a number between two ends? nan is not."""
    if ends is None:
        return False
    low, high = ends
    return value == value and (low is None or value >= low) and (high is None or value <= high)


def _check_ends(what: str, text: str, ends: Ends) -> None:
    if len(ends) != 2 or ends == (None, None) or (None not in ends and ends[0] > ends[1]):  # pyrefly: ignore[unsupported-operation]
        raise ValueError(f"{what} {text!r:.60}: {ends} must be two ends that rise, one of which may be None")
