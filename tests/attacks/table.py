"""What came out of an attack: how many cases, which failed, and the worst that was seen."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """One row of the table."""

    test: str
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Of the slowest case."""
    megabytes: float = 0.0
    """Of the largest."""

    def case(self, name: str, *problems: str, seconds: float = 0.0, megabytes: float = 0.0) -> None:
        self.cases += 1
        self.failures += [f"{name}: {problem}" for problem in problems]
        self.seconds, self.megabytes = max(self.seconds, seconds), max(self.megabytes, megabytes)

    @property
    def worst(self) -> str:
        said = [f"{self.seconds:.1f} s"] * bool(self.seconds) + [f"{self.megabytes:.0f} MB"] * bool(self.megabytes)
        return ", ".join(said) or "-"


def table(tallies: list[Tally]) -> str:
    """Rows for a terminal and for docs/trust.md alike."""
    rows = [("test", "cases", "failures", "worst case")]
    rows += [(one.test, f"{one.cases:,}", str(len(one.failures)), one.worst) for one in tallies]
    return "\n".join([_line(rows[0]), "|---|---|---|---|", *map(_line, rows[1:])])


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
