"""`tracer rows`: which rows of a batch moved a head."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracer.cli.output import say, say_json

if TYPE_CHECKING:
    import xarray as xr

HEAD = re.compile(r"L(\d{1,4})H(\d{1,4})")
ROW = "{:>4} {:>10} {:>7} {:>5} {:>5} {:>5} {:>5}  {:<5} {}"
WIDTH = 80


def rows(
    run: str, step: int, /, head: str, measure: str = "induction", top: int = 5, json: bool = False,
    measures: tuple[str, ...] = (), probes: tuple[str, ...] = (), scalars: tuple[str, ...] = (),
    corpus: str | None = None, clamp: tuple[str, ...] = (),
) -> int:  # fmt: skip
    """Say which training rows of a step moved a head: the step is made again without each of them.

    Training goes on from the nearest state that is kept before the step, in this process; nothing is written.

    Args:
        run: A name under checkpoints/, or a directory.
        step: Whose update is looked at.
        head: The head, as L1H2.
        measure: Of heads: induction, previous_token, entropy, ...
        top: Rows that are shown at each end.
        json: Print all rows as JSON.
        measures: The measures, as module:name, that the run was trained with.
        probes: The probes, as module:name, that it was trained with.
        scalars: The functions, as module:name, that it was trained with.
        corpus: The function, as module:name, that made the data of the run, where one did; it runs.
        clamp: The clamps of the run that are functions, "L1H2 = module:function"; they run.
    """
    from tracer.training.progress import Bar
    from tracer.training.which_rows import which_rows

    if (found := HEAD.fullmatch(head)) is None:
        raise ValueError(f"{head!r} is no head: write it as L1H2")
    if top < 1:
        raise ValueError(f"top={top} must be at least 1")
    with Bar("leaving out", "rows") as bar:
        told = which_rows(
            run, step, (int(found[1]), int(found[2])), measure, progress=None if json else bar.update,
            measures=measures, probes=probes, scalars=scalars, corpus=corpus, clamp=clamp,
        )  # fmt: skip
    if json:
        say_json(**told.attrs, rows=[_facts(told, i) for i in range(told.sizes["row"])])
        return 0
    for text in lines(told, top):
        say(text)
    return 0


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
        text = str(told["text"].values[i])
        text = "".join(c if c.isprintable() else " " for c in text[:WIDTH])
        mixed = "mixed" if bool(told["mixed_in"][i]) else ""
        found.append(ROW.format(
            i, f"{float(told['effect'][i]):+.2e}", f"{float(told['loss'][i]):.3f}", *shares, mixed, text
        ))  # fmt: skip
    return found


def _facts(told: xr.Dataset, i: int) -> dict[str, object]:
    row = told.isel(row=i)
    return {
        "row": i, "effect": float(row["effect"]), "loss": float(row["loss"]), "mixed_in": bool(row["mixed_in"]),
        "share": dict(zip(row["matrix"].values.tolist(), row["share"].values.tolist(), strict=True)),
        "gradient": dict(zip(row["matrix"].values.tolist(), row["gradient"].values.tolist(), strict=True)),
        "tokens": row["tokens"].values.tolist(), "text": str(row["text"].values),
    }  # fmt: skip
