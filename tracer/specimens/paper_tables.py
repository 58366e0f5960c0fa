"""What came of a paper's claims: a value that JSON keeps, and what the terminal and the page of docs make of it."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, get_args

from tracer.specimens.chart_points import chart_points
from tracer.specimens.paper_folder import PaperFolder
from tracer.specimens.paper_runs import seconds
from tracer.specimens.paper_verdicts import ClaimAnswer, PaperVerdict, exit_status, told_ends
from tracer.specimens.system_figures import figures, outcome, published_size
from tracer.specimens.systems import System
from tracer.specimens.table_parts import markdown_table, plain
from tracer.store import Run

WIDTH = 96
COLUMNS = (16, 44, 34)
"""Verdict, claim, what came out here."""
VERDICTS = get_args(PaperVerdict)
"""In the order in which they are counted."""
HOLDS = {True: "yes", False: "no", None: "–"}
"""Of a check; None of a question."""


def facts(
    folder: PaperFolder, found: Mapping[int, Mapping[str, Run]], answers: Sequence[ClaimAnswer]
) -> dict[str, Any]:
    """All that is to be said, as plain values; numbers to six digits, what is not one is null."""
    paper = folder.paper
    spent = {name: [seconds(runs[name]) for runs in found.values() if name in runs] for name in paper.runs}
    return plain(
        {
            "paper": folder.name,
            "title": paper.title,
            "source": paper.source,
            "digest": folder.digest,
            "seeds": list(found),
            "status": exit_status(answers),
            "runs": {
                name: {
                    "about": of.about,
                    "steps": of.config.steps,
                    "seeds": len(spent[name]),
                    "seconds": sum(spent[name]),
                }
                for name, of in paper.runs.items()
            },
            "claims": [_claim(one) for one in answers],
        }
        | ({"systems": {one.name: _system(folder, one, found) for one in paper.systems}} if paper.systems else {})
        | ({"chart": chart_points(paper.chart, found)} if paper.chart else {})
    )


def _system(folder: PaperFolder, system: System, found: Mapping[int, Mapping[str, Run]]) -> dict[str, Any]:
    """Its figures beside those published, and what came of its exercise; none of what nobody trained."""
    outcomes = {seed: outcome(runs[system.name]) for seed, runs in found.items() if system.name in runs}
    checks = [*(system.exercise().checks if system.exercise else ()),
              *(system.answers(list(found.values())) if system.answers else ())]  # fmt: skip
    size = published_size(folder.paper.runs[system.name]) if outcomes else 0
    return {
        "outcomes": {str(seed): asdict(one) for seed, one in outcomes.items()},
        "figures": figures(system, list(outcomes.values()), size) if outcomes else [],
        "checks": [asdict(one) for one in checks],
    }


def _claim(one: ClaimAnswer) -> dict[str, Any]:
    claim, mean = one.claim, one.mean
    control = claim.control
    return {
        "claim": claim.text, "verdict": one.verdict, "why": one.why, "ours": claim.ours, "published": claim.published,
        "place": claim.place, "unit": claim.unit, "expected": told_ends(claim.within, claim.unit),
        "within": claim.within, "weaker": claim.weaker, "order": claim.order, "needs": claim.needs,
        **({"noise": claim.noise, "margin": claim.margin} if claim.noise is not None else {}),
        "mean": None if mean is None else mean[0], "interval": None if mean is None else mean[1:],
        "supporting": one.supporting, "counted": one.counted, "share_interval": one.share, "p": one.p,
        "figures": {str(seed): seen.figure for seed, seen in one.seeds.items()},
        "errors": {str(seed): seen.error for seed, seen in one.seeds.items() if seen.error},
        "control": None if control is None else {
            "text": control.text, "within": control.within, "unit": control.unit,
            "figures": {str(seed): seen.control for seed, seen in one.seeds.items()},
        },
    }  # fmt: skip


def as_text(told: Mapping[str, Any]) -> str:
    """For a terminal: a row a claim, under it where it is from, what was asked, and its control."""
    rows = [f"{told['title']}", f"{told['source']}", *([spent(told)] if told["runs"] else []), ""]
    for claim in told["claims"]:
        cells = (claim["verdict"], claim["claim"], _here(claim))
        lines = [textwrap.wrap(cell, width - 2) or [""] for cell, width in zip(cells, COLUMNS, strict=True)]
        for i in range(max(map(len, lines))):
            cut = (line[i] if i < len(line) else "" for line in lines)
            rows.append("".join(cell.ljust(width) for cell, width in zip(cut, COLUMNS, strict=True)).rstrip())
        under = [_origin(claim), claim["why"], *([_control(claim["control"])] if claim["control"] else [])]
        margin = " " * COLUMNS[0]
        rows += [line for text in under for line in textwrap.wrap(text, WIDTH, initial_indent=margin,
                                                                   subsequent_indent=margin)]  # fmt: skip
        rows.append("")
    published, checks = _systems(told)
    lines = [f"{name}, {figure}: {here}{f'; published {theirs}' if theirs != '–' else ''}"
             for name, figure, theirs, here in published]  # fmt: skip
    lines += [f"{name}, {asks}: {answer}{f'; {holds}' if holds != '–' else ''}" for name, asks, answer, holds in checks]
    rows += [line for text in lines for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]
    wrong = (told.get("chart") or {}).get("error", "")
    rows += textwrap.wrap(wrong, WIDTH, subsequent_indent="  ")
    return "\n".join([*rows, *([""] if (lines or wrong) and told["claims"] else []), _count(told)]).strip()


def as_markdown(told: Mapping[str, Any], page: str) -> str:
    """For a page: the words of the paper's folder, then its claims and its runs as tables."""
    claims = [(f"**{one.verdict}**", f"{one.claim} ({one.origin})", one.here, one.control) for one in rows(told)]
    runs = [
        (
            f"`{name}`",
            of["about"],
            f"{of['steps']:,}",
            str(of["seeds"]),
            "–" if of["seconds"] is None else f"{of['seconds'] / 60:.1f}",
        )
        for name, of in told["runs"].items()
    ]
    published, checks = ([(f"`{name}`", *rest) for name, *rest in rows] for rows in _systems(told))
    return "\n".join([
        page.strip(), "", *([f"{spent(told)}. {_count(told)}".rstrip(), ""] if runs else []),
        *([markdown_table(("verdict", "claim", "here", "control"), claims)] if claims else []),
        *([markdown_table(("system", "figure", "published", "here"), published)] if published else []),
        *([markdown_table(("exercise", "it asks", "here", "holds"), checks)] if checks else []),
        *([markdown_table(("run", "what it is for", "steps", "seeds", "minutes"), runs)] if runs else []),
    ])  # fmt: skip


def _systems(told: Mapping[str, Any]) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """(system, figure, published, here) of all figures, and (system, what is asked, here, holds) of all checks."""
    systems = told.get("systems", {}).items()
    checks: list[tuple[str, ...]] = [
        (name, one["asks"], one["answer"], HOLDS[one["holds"]]) for name, of in systems for one in of["checks"]
    ]
    return [(name, *row) for name, of in systems for row in of["figures"]], checks


class Row(NamedTuple):
    """A claim of a paper in words."""

    verdict: str
    claim: str
    origin: str
    """Where it was published, or that it is a prediction of ours."""
    here: str
    """The mean over seeds with its interval, in how many seeds it is supported, and how many it takes."""
    control: str


def rows(told: Mapping[str, Any]) -> list[Row]:
    """Every claim."""
    return [
        Row(
            claim["verdict"], claim["claim"], _origin(claim), f"{_here(claim)}: {claim['why']}",
            _control(claim["control"]).removeprefix("control: ") if claim["control"] else "–",
        )
        for claim in told["claims"]
    ]  # fmt: skip


def spent(told: Mapping[str, Any]) -> str:
    """The seeds, how many trainings, how long they took."""
    return f"{_seeds(told)}; {_minutes(told)}"


def _here(claim: Mapping[str, Any]) -> str:
    """The mean over seeds with its 95 % interval; the share of seeds with its own, where seeds are what is counted."""
    if claim["mean"] is None:
        return "–"
    low, high = claim["interval"]
    mean, *ends = _numbers(claim["mean"], *([] if low is None else [low, high]))
    mean += f" ({ends[0]} to {ends[1]})" if ends else ""
    unit, counted = f" {claim['unit']}".rstrip(), claim["counted"]
    if not counted or claim.get("noise"):
        return f"{mean}{unit}"
    low, high = claim["share_interval"]
    return f"{mean}{unit}; {claim['supporting']} of {counted} ({low:.2f} to {high:.2f})"


def _published(claim: Mapping[str, Any]) -> str:
    return "ours, not published" if claim["ours"] else f"{claim['published']} ({claim['place']})"


def _origin(claim: Mapping[str, Any]) -> str:
    return "our prediction, not published" if claim["ours"] else f"published: {_published(claim)}"


def _control(control: Mapping[str, Any]) -> str:
    known = [value for value in control["figures"].values() if value is not None]
    (mean,) = _numbers(sum(known) / len(known)) if known else ["not known"]
    return f"control: {control['text']}: {mean} {control['unit']} (must be {told_ends(control['within'])})".replace(
        "  ", " "
    )


def _seeds(told: Mapping[str, Any]) -> str:
    seeds = told["seeds"]
    return f"Seed {seeds[0]}" if len(seeds) == 1 else f"Seeds {', '.join(map(str, seeds))}"


def _minutes(told: Mapping[str, Any]) -> str:
    runs = told["runs"].values()
    n, known = sum(of["seeds"] for of in runs), [of["seconds"] for of in runs if of["seconds"] is not None]
    clock = f", {sum(known) / 60:.1f} minutes" if known else ""
    return f"{n} training{'s' * (n != 1)}{clock}"


def counted(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How many claims have each verdict, what holds first: ("holds", "4 hold"), ("fails", "1 fails")."""
    verdicts = Counter(claim["verdict"] for claim in told["claims"])
    ranked = sorted(verdicts.items(), key=lambda one: VERDICTS.index(one[0]))
    return [(verdict, f"{n} {verdict.removesuffix('s') if n > 1 else verdict}") for verdict, n in ranked]


def _count(told: Mapping[str, Any]) -> str:
    if not (n := len(told["claims"])):
        return ""
    return f"Of {n} claim{'s' * (n > 1)}: {', '.join(words for _, words in counted(told))}."


def _numbers(*values: float) -> list[str]:
    """With as many digits each: none where one is large, or all are whole; no zero below zero."""
    digits = 0 if max(map(abs, values)) >= 10 or all(value == round(value) for value in values) else 3
    return [f"{round(value, digits) + 0.0:,.{digits}f}" for value in values]
