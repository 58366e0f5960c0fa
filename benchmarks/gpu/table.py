"""The table: each line to the terminal, and all so far to files again, so that a killed run leaves what it had."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


class NotHere(Exception):
    """This machine lacks what a check needs: its message says what."""


@dataclass(frozen=True)
class Line:
    """One row of the table; without `holds` the figure is measured and nothing depends on it."""

    what: str
    figure: str
    wanted: str = ""
    holds: bool | None = None


@dataclass(frozen=True)
class Row(Line):
    """A line in the table."""

    check: str = ""
    seconds: float = 0.0
    not_run: str = ""
    """Why there is no figure."""

    @property
    def verdict(self) -> str:
        if self.not_run:
            return f"NOT RUN: {self.not_run}"
        return {True: "yes", False: "NO", None: "measured"}[self.holds]


def at_most(what: str, found: float, bound: float, unit: str = "") -> Line:
    """A line that holds where a number is at most a bound; nan never is."""
    return Line(what, f"{found:.2g}{unit}", f"at most {bound:g}{unit}", found <= bound)


class Table:
    """Rows as they come; `save` writes them as JSON and Markdown."""

    def __init__(self, out: Path, header: dict[str, str]) -> None:
        self.out, self.header, self.rows = out, header, list[Row]()
        out.mkdir(parents=True, exist_ok=True)
        self.log = out / "log.txt"
        self.log.write_text("")
        for name, value in header.items():
            print(f"{name}: {value}", flush=True)
        self.save()

    def run(self, name: str, check: Callable[[], Iterable[Line]]) -> None:
        """Rows of a check as it yields them; an error is a row that does not hold, its traceback goes to the log."""
        began = time.perf_counter()
        try:
            for line in check():
                self.add(Row(**asdict(line), check=name, seconds=time.perf_counter() - began))
                began = time.perf_counter()
        except NotHere as reason:
            self.add(Row(name, "", check=name, not_run=str(reason)))
        except Exception as error:
            with self.log.open("a") as log:
                log.write(f"{name}\n{traceback.format_exc()}\n")
            last = (traceback.format_exception_only(error)[-1].strip().splitlines() or [""])[-1]
            seconds = time.perf_counter() - began
            self.add(Row(f"{name}: error", last[:200], "no error", False, check=name, seconds=seconds))

    def add(self, row: Row) -> None:
        self.rows.append(row)
        wanted = f"   ({row.wanted})" if row.wanted else ""
        print(f"{row.verdict:9} {row.seconds:6.1f} s  {row.check}: {row.what}   {row.figure}{wanted}", flush=True)
        self.save()

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if row.holds is False]

    def save(self) -> None:
        rows = [{**asdict(row), "verdict": row.verdict} for row in self.rows]
        (self.out / "table.json").write_text(json.dumps({"header": self.header, "rows": rows}, indent=1) + "\n")
        (self.out / "table.md").write_text(self.markdown())

    def markdown(self) -> str:
        """What docs/speed.md carries: where and when, then the table."""
        where = "; ".join(f"{name} {value}" for name, value in self.header.items())
        lines = [f"Measured by `make gpu`: {where}.", "", "| what | figure | wanted | holds |", "|---|---|---|---|"]
        lines += [
            "| "
            + " | ".join(cell.replace("|", "\\|") for cell in (row.what, row.figure, row.wanted, row.verdict))
            + " |"
            for row in self.rows
        ]
        return "\n".join([*lines, ""])
