"""What commands print, lines for people and JSON for programs, and the statuses that they end with."""

from __future__ import annotations

import json
import sys
from typing import Any

from tracer.files.disk import finite

EXIT_USAGE, EXIT_DIVERGED, EXIT_CLAIM, EXIT_SICK, EXIT_DAMAGED, EXIT_STOPPED = 2, 3, 4, 5, 6, 130
EXIT_OF_RUN = {"diverged": EXIT_DIVERGED, "stopped": EXIT_STOPPED}


def say(text: str) -> None:
    """A line, at once, also where a program reads it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say_aside(text: str) -> None:
    """A line for a person, where a program reads what is said."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say_json(**facts: Any) -> None:
    """One JSON object; what is not finite is null."""
    say(json.dumps(finite(facts), indent=1, allow_nan=False))
