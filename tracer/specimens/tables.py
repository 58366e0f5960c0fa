"""What was published beside what came out here, as Markdown: a table for each tutorial, the claims, the exercises.

`as_json` keeps the figures that the tables are made from, because the runs are too large to keep.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tracer.presets import preset
from tracer.specimens.claims import NOISE, Found, Judgement, Outcome, answers, judged
from tracer.specimens.systems import SPECIMENS, TUTORIALS, Check, Specimen
from tracer.specimens.table_parts import markdown_table, plain
from tracer.training.size import n_params

VERDICTS: dict[bool | None, str] = {True: "yes", False: "**no**"}


@dataclass(frozen=True)
class Drift:
    """The end of one specimen, seed 0, trained with the kernels of one kind of CPU (`python -m benchmarks.drift`)."""

    kernels: str
    """ATEN_CPU_CAPABILITY: the vector instructions that torch sums with."""
    threads: int
    name: str
    outcome: Outcome


def drift_said(found: Sequence[Drift]) -> str:
    """How far runs of one seed end apart on other machines: a sentence and a table."""
    ends: dict[str, list[float]] = {
        "held-out loss": [one.outcome.loss for one in found], "entropy": [one.outcome.entropy_end for one in found],
        "attention on the token itself": [one.outcome.own_token for one in found],
    }  # fmt: skip
    apart = {what: max(values) - min(values) for what, values in ends.items()}
    steps, names = found[0].outcome.step, ", ".join(f"`{name}`" for name in dict.fromkeys(one.name for one in found))
    rows = [
        (one.kernels, str(one.threads), *(f"{values[i]:.5f}" for values in ends.values()))
        for i, one in enumerate(found)
    ]
    return (
        f"One seed does not give the same run to the last digit on every machine: torch adds up in another order with\n"
        f"other vector instructions and another number of threads. Seed 0 of {names}, trained {len(found)} times for\n"
        f"{steps:,} steps with the kernels of {len({one.kernels for one in found})} kinds of CPU, ends with held-out "
        f"losses {apart['held-out loss']:.4f} nats apart,\nentropies {apart['entropy']:.4f} nats apart and attention "
        f"on the token itself {apart['attention on the token itself']:.4f} apart. Two losses\ncount as different from "
        f"{NOISE:.2f} nats on.\n\n"
    ) + markdown_table(("kernels", "threads", *ends), rows)


def tables(seeds: Sequence[Found], exercises: Mapping[str, Sequence[Check]]) -> str:
    """Everything that is known of these specimens; several seeds are told as mean and range."""
    parts = []
    for number, title in enumerate(TUTORIALS):
        mine = [one for one in SPECIMENS.values() if one.tutorial == number]
        known = {one.name: [found[one.name] for found in seeds if one.name in found] for one in mine}
        rows = [row for one in mine if known[one.name] for row in figures(one, known[one.name])]
        asked = [(one.name, [*exercises.get(one.name, ()), *answers(one.name, seeds)]) for one in mine if one.exercise]
        checks = [row for name, done in asked for row in _checked(name, done)]
        if rows or checks:
            parts.append(f"## {title}\n")
        if rows:
            parts.append(markdown_table(("specimen", "figure", "published", "here"), rows))
        if checks:
            parts.append(markdown_table(("exercise", "it asks", "here", "holds"), checks))
    if verdicts := judged(seeds):
        parts.append("## Claims\n")
        parts.append(markdown_table(("claim", "holds here", "evidence"),
                            [(one.claim.text, _told(one), one.evidence) for one in verdicts]))  # fmt: skip
    return "\n".join(parts)


def as_json(seeds: Sequence[Found], exercises: Mapping[str, Sequence[Check]], drift: Sequence[Drift] = ()) -> str:
    """What `tables` is given, to six digits; what is not a number is null."""
    kept = {
        "seeds": [{name: asdict(one) for name, one in found.items()} for found in seeds],
        "exercises": {name: [asdict(check) for check in checks] for name, checks in exercises.items()},
    } | ({"drift": [asdict(one) for one in drift]} if drift else {})
    return json.dumps(plain(kept), indent=1, ensure_ascii=False, allow_nan=False)


def figures(specimen: Specimen, outcomes: Sequence[Outcome]) -> list[tuple[str, str, str, str]]:
    """(specimen, figure, published, here) for everything that its author or this run has a number of."""
    start, end = specimen.entropy or (None, None)
    steps = ", ".join(dict.fromkeys(f"{one.step:,}" for one in outcomes))
    ended = ", ".join(dict.fromkeys(f"{one.status} at step {one.step:,}" for one in outcomes))
    perplexity = [math.exp(one.loss) for one in outcomes]
    rows = [("entropy at the start", _one(start, 3), _many([one.entropy_start for one in outcomes], 3))]
    if all(one.status == "finished" for one in outcomes):
        rows += [
            (f"entropy at the end, step {steps}", _one(end, 3), _many([one.entropy_end for one in outcomes], 3)),
            ("the same by head", _heads(specimen.heads), _heads(outcomes[0].entropies)),
            ("held-out perplexity", _one(specimen.perplexity, 2), _many(perplexity, 2)),
            (
                "held-out loss",
                "–" if specimen.loss is None else f"near {specimen.loss} in training",
                _many([one.loss for one in outcomes], 3),
            ),
            ("attention on the token itself", "–", _many([one.own_token for one in outcomes], 2)),
        ]
        if len(outcomes[0].entropies) == len(outcomes[0].entropies[0]) == 1:
            rows = [row for row in rows if row[0] != "the same by head"]
    else:
        rows.append(("how it ends", specimen.published, ended))
    size = _size(specimen.name)
    published = "–" if specimen.n_params is None else f"{specimen.n_params:,}"
    rows.append(("parameters, at the published size", published, f"{size:,}"))
    return [(f"`{specimen.name}`", *row) for row in rows]


def _size(name: str) -> int:
    """Parameters of a specimen as published."""
    config = preset(name).config
    return n_params(replace(config.model, d_vocab=config.data.vocab_size))


def _checked(name: str, checks: Sequence[Check]) -> list[tuple[str, str, str, str]]:
    return [(f"`{name}`", one.asks, one.answer, VERDICTS.get(one.holds, "–")) for one in checks]


def _told(one: Judgement) -> str:
    return VERDICTS.get(one.holds, "too close to tell" if one.tested else "not tested")


def _one(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _many(values: Sequence[float], digits: int) -> str:
    """The value, or mean and range of several seeds."""
    mean = _one(sum(values) / len(values), digits)
    return mean if len(values) == 1 else f"{mean} ({_one(min(values), digits)} to {_one(max(values), digits)})"


def _heads(entropies: Sequence[Sequence[float]]) -> str:
    """Heads of a layer apart by spaces, layers by slashes."""
    return " / ".join(" ".join(f"{value:.2f}" for value in layer) for layer in entropies) or "–"
