"""What a cached function keeps of a run, and what takes so long that a bar says how far it is.

The latter is kept as a cached function keeps, which would replay the bar.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import streamlit as st

from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run


def of_run(run: Run) -> tuple[str, str]:
    """What keys begin with: the directory and the job, which copies of a run share."""
    return str(run.dir.resolve()), run.job


AS_RECORDED: dict[str | type, Callable[[Any], Any]] = {Run: lambda run: (str(run.dir.resolve()), run.stamp)}
"""`hash_funcs` of what is read of a whole run: read again when more of it is committed."""
OF_A_STEP: dict[str | type, Callable[[Any], Any]] = {Run: of_run}
"""`hash_funcs` of what a step says: kept until a job goes on with the run, which may take steps back."""
OF_A_PROMPT: dict[str | type, Callable[[Any], Any]] = {PromptPatterns: lambda shown: (*shown.look, shown.step)}
"""`hash_funcs` of what is made of every head on a prompt: its look says the run, its job, the prompt, what is off."""
Result = TypeVar("Result")
MOST = 32


def kept(name: str, key: Hashable, make: Callable[[], Result]) -> Result:
    """What `make` made for this key since the server started; of each name the latest MOST are kept."""
    found = _kept(name)
    result = found.get(key)
    if result is None:
        result = found[key] = make()
        for old in list(found)[:-MOST]:  # of a copy: other sessions are threads
            found.pop(old, None)
    return result


def known(name: str, key: Hashable) -> Any:
    """What is kept for this key; None where nothing was made yet."""
    return _kept(name).get(key)


@st.cache_resource(show_spinner=False)
def _kept(name: str) -> dict[Hashable, Any]:
    return {}
