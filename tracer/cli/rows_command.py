"""`tracer rows`: which rows of a batch moved a head, or of a stretch of training."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracer.cli.output import say, say_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from tracer.analysis.row_dates import Moved

HEAD = re.compile(r"L(\d{1,4})H(\d{1,4})")
STRETCH = re.compile(r"(\d{1,18}):(\d{1,18})")
CHANGE = "change"
WITHOUT = (1.0, 5.0, 20.0)
DRAWS = 3
ROW = "{:>4} {:>10} {:>7} {:>5} {:>5} {:>5} {:>5}  {:<5} {}"
OF_STRETCH = "{:>8} {:>4} {:>10}  {:<5} {}"
TRAINING = "{:<28} {:>9} {:>10} {:>9}"
WIDTH = 80


def rows(
    run: str, step: str, /, head: str | None = None, measure: str = "induction", top: int = 5, json: bool = False,
    without: tuple[float, ...] = WITHOUT, draws: int = DRAWS, until: int | None = None, beside: tuple[str, ...] = (),
    measures: tuple[str, ...] = (), probes: tuple[str, ...] = (), scalars: tuple[str, ...] = (),
    corpus: str | None = None, clamp: tuple[str, ...] = (),
) -> int:  # fmt: skip
    """Say which training rows moved a head: of a step, or of a stretch of training, which is then trained without them.

    Of a step, it is made again without each of its rows. Of a stretch (540:664, or `change`: that of the head's score)
    the rows are ranked to first order; then it is trained again without the top 1, 5 and 20 %, and without as many at
    random, and the dates at which the score is halfway are compared. Training goes on from the nearest kept state, in
    this process; what a stretch gave is kept in the run.

    Args:
        run: A name under checkpoints/, or a directory.
        step: Whose update is looked at; two, as 540:664; or `change`.
        head: The head, as L1H2; by default the one whose score ends highest.
        measure: Of heads: induction, previous_token, entropy, ...
        top: Rows that are shown at each end.
        json: Print all that was found as JSON.
        without: Of a stretch: per cent of its rows that are left out.
        draws: Of a stretch: how often as many others are left out, at random, of the same steps and kind.
        until: Of a stretch: train on to this step; by default as far again as it is long.
        beside: Of a stretch: other seeds, asked the same, and laid together.
        measures: The measures, as module:name, that the run was trained with.
        probes: The probes, as module:name, that it was trained with.
        scalars: The functions, as module:name, that it was trained with.
        corpus: The function, as module:name, that made the data of the run, where one did; it runs.
        clamp: The clamps of the run that are functions, "L1H2 = module:function"; they run.
    """
    asked = None if head is None else HEAD.fullmatch(head)
    if head is not None and asked is None:
        raise ValueError(f"{head!r} is no head: write it as L1H2")
    if top < 1:
        raise ValueError(f"top={top} must be at least 1")
    given = None if asked is None else (int(asked[1]), int(asked[2]))
    code: dict[str, Any] = {
        "measures": measures, "probes": probes, "scalars": scalars, "corpus": corpus, "clamp": clamp,
    }  # fmt: skip
    if step.isdecimal():
        if beside or until is not None or (without, draws) != (WITHOUT, DRAWS):
            raise ValueError("--without, --draws, --until and --beside are asked of a stretch, as 540:664")
        return _of_step(run, int(step), given, measure, top, json, code)
    if step != CHANGE and STRETCH.fullmatch(step) is None:
        raise ValueError(f"{step!r} is neither a step nor a stretch: give 112, 540:664 or {CHANGE}")
    from tracer.training.progress import Bar
    from tracer.training.stretch_rows import stretch_rows

    found: list[xr.Dataset] = []
    for name in (run, *beside):
        first, last, at = _stretch(name, step, given, measure)
        with Bar(f"{name}, steps {first:,} to {last:,}", "updates") as bar:
            found.append(stretch_rows(
                name, first, last, at, measure, without=without, draws=draws, until=until,
                progress=None if json else bar.update, **code,
            ))  # fmt: skip
        if not json:
            for text in lines_of_stretch(found[-1], top):
                say(text)
    together = _moved(found)
    if json:
        say_json(stretches=[_stretch_facts(one) for one in found], moved=[_moved_facts(one) for one in together])
    elif len(found) > 1:
        for one in together:
            say(sentence(one))
    return 0


def _of_step(
    run: str, step: int, head: tuple[int, int] | None, measure: str, top: int, json: bool, code: dict[str, Any]
) -> int:  # fmt: skip
    from tracer.analysis.row_dates import head_of_run
    from tracer.store import open_run
    from tracer.training.progress import Bar
    from tracer.training.which_rows import which_rows

    opened = open_run(run)
    with Bar("leaving out", "rows") as bar:
        told = which_rows(
            opened, step, head or head_of_run(opened, measure), measure, progress=None if json else bar.update, **code
        )
    if json:
        say_json(**told.attrs, rows=[_facts(told, i) for i in range(told.sizes["row"])])
        return 0
    for text in lines(told, top):
        say(text)
    return 0


def _stretch(
    name: str, asked: str, head: tuple[int, int] | None, measure: str
) -> tuple[int, int, tuple[int, int]]:  # fmt: skip
    from tracer.analysis.row_dates import head_of_run, steps_of_change
    from tracer.store import open_run

    run = open_run(name)
    at = head or head_of_run(run, measure)
    if (found := STRETCH.fullmatch(asked)) is not None:
        return int(found[1]), int(found[2]), at
    return *steps_of_change(run, at, measure), at


def _moved(found: Sequence[xr.Dataset]) -> list[Moved]:
    """Nothing where nothing was left out."""
    from tracer.analysis.row_dates import dates_moved

    return dates_moved(found) if all("date" in one for one in found) else []


def sentence(one: Moved) -> str:
    """What leaving a share out did over seeds, in words."""
    text = (
        f"over {len(one.most)} runs, without the top {one.share:g} % of rows the score is halfway {one.more:+,.1f} "
        f"steps later than without as many at random (95 % interval {one.more - one.margin:+,.1f} to "
        f"{one.more + one.margin:+,.1f})"
    )
    return text + (f"; {one.never} trainings did not get there: at least so much" if one.never else "")


def lines(told: xr.Dataset, top: int) -> list[str]:
    """A table: the rows that raised the measure most, the highest first, then those that lowered it most."""
    of, n = told.attrs, told.sizes["row"]
    moved = of["after"] - of["before"]
    order = told["effect"].values.argsort()[::-1].tolist()
    shown = order if n <= 2 * top else [*order[:top], *order[-top:]]
    found = [
        f"{of['run']}, step {of['step']:,}: {of['label'].lower()} of {of['head']} {of['before']:.5f} -> "
        f"{of['after']:.5f} ({moved:+.5f}) by an update on {n} rows; {of['same']}",
        "effect: with the row, less without it (exact). share: of the head's gradient, along the sum of all rows",
        ROW.format("row", "effect", "loss", "W_Q", "W_K", "W_V", "W_O", "", "text"),
    ]
    for i in shown:
        shares = ("-" if x != x else f"{x:.0%}" for x in told["share"].values[i])
        mixed = "mixed" if bool(told["mixed_in"][i]) else ""
        found.append(ROW.format(
            i, f"{float(told['effect'][i]):+.2e}", f"{float(told['loss'][i]):.3f}", *shares, mixed,
            _visible(str(told["text"].values[i])),
        ))  # fmt: skip
    return found


def lines_of_stretch(told: xr.Dataset, top: int) -> list[str]:
    """The rows at both ends, and the dates."""
    from tracer.training.stretch_rows import agreement

    of, listed = told.attrs, told.attrs["rows"]
    shown = listed if len(listed) <= 2 * top else [*listed[:top], *listed[-top:]]
    step, slope, alike = agreement(told)
    found = [
        f"{of['run']}, steps {of['first']:,} to {of['last']:,}: {of['label'].lower()} of {of['head']}, "
        f"{told['effect'].size:,} rows",
        f"effect: with the row, less without it, right after its update, to first order; exactly, at step {step:,}, it "
        f"is {slope:.2f} times that (correlation {alike:.3f})",
        OF_STRETCH.format("step", "row", "effect", "", "text"),
    ]
    for row in shown:
        mixed = "mixed" if row["mixed_in"] else ""
        found.append(
            OF_STRETCH.format(f"{row['step']:,}", row["row"], f"{row['effect']:+.2e}", mixed, _visible(row["text"]))
        )
    return [*found, *_dates(told)] if "date" in told else found


def _dates(told: xr.Dataset) -> list[str]:
    of, dates = told.attrs, told["date"].values
    found = [
        f"trained again from step {of['first']:,} to {of['until']:,}; {of['same']}. Date: the score passes "
        f"{of['level']:.4f}, halfway",
        TRAINING.format("", "left out", "date", "moved"),
        TRAINING.format("as it was", 0, _date(dates[0]), ""),
    ]
    for share in of["without"]:
        here = told["share"].values == share
        for words, which in (
            (f"without the top {share:g} %", here & (told["draw"].values < 0)),
            ("without as many at random", here & (told["draw"].values >= 0)),
        ):
            for date, n in zip(dates[which], told["left_out"].values[which], strict=True):
                moved = "" if date != date else f"{date - dates[0]:+,.1f}"
                found.append(TRAINING.format(words, f"{n:,}", _date(date), moved))
    return found


def _date(date: float) -> str:
    return "not by then" if date != date else f"{date:,.1f}"


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:WIDTH])


def _facts(told: xr.Dataset, i: int) -> dict[str, object]:
    row = told.isel(row=i)
    return {
        "row": i, "effect": float(row["effect"]), "loss": float(row["loss"]), "mixed_in": bool(row["mixed_in"]),
        "share": dict(zip(row["matrix"].values.tolist(), row["share"].values.tolist(), strict=True)),
        "gradient": dict(zip(row["matrix"].values.tolist(), row["gradient"].values.tolist(), strict=True)),
        "tokens": row["tokens"].values.tolist(), "text": str(row["text"].values),
    }  # fmt: skip


def _stretch_facts(told: xr.Dataset) -> dict[str, object]:
    from tracer.training.stretch_rows import agreement

    step, slope, alike = agreement(told)
    names = [name for name in ("share", "draw", "left_out", "date") if name in told]
    columns = [told[name].values.tolist() for name in names]
    return {
        **told.attrs, "exact": {"step": step, "slope": slope, "correlation": alike},
        "trainings": [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)],
    }  # fmt: skip


def _moved_facts(one: Moved) -> dict[str, object]:
    return {"share": one.share, "most": one.most, "others": one.others, "never": one.never, "more": one.more,
            "margin": one.margin}  # fmt: skip
