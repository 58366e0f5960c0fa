"""What commands print: lines for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from tracer.files.disk import finite


def say(text: str) -> None:
    """A line, at once, also where a program reads it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say_json(**facts: Any) -> None:
    """One JSON object; what is not finite is null."""
    say(json.dumps(finite(facts), indent=1, allow_nan=False))
