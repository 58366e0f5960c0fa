"""What came of the papers that come with manyeyes, as their folders keep it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tracer.specimens.paper_folder import PAGE, shipped

RESULTS = "results.json"


@dataclass(frozen=True)
class PaperResults:
    """A paper's words, and what `tracer reproduce NAME --table --json` said of its claims."""

    name: str
    title: str
    page: str
    """Markdown, below the title."""
    told: dict[str, Any]
    """As of `tracer.specimens.paper_tables.facts`."""

    @property
    def command(self) -> str:
        """Trains what is missing of these seeds, and judges the claims again."""
        return f"tracer reproduce {self.name} --seeds {' '.join(map(str, self.told['seeds']))}"


def results() -> list[PaperResults]:
    """Of every paper that has some, by name. No code of a paper runs."""
    found = []
    for name, directory in shipped().items():
        if (directory / RESULTS).is_file():
            title, _, page = (directory / PAGE).read_text(encoding="utf-8").partition("\n")
            told = json.loads((directory / RESULTS).read_text(encoding="utf-8"))
            found.append(PaperResults(name, title.removeprefix("# "), page.strip(), told))
    return found
