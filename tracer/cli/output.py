"""What commands print: lines for people, JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from typing import Any


def say(text: str) -> None:
    """A line, at once, also where a program reads it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say_json(**facts: Any) -> None:
    """One JSON object; what is not finite is null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    say(json.dumps(plain(facts), indent=1, allow_nan=False))
