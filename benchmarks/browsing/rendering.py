"""A peer's page, written by the peer itself: `python -m benchmarks.browsing.rendering PEER N FILE`."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from benchmarks.browsing.tensors import attention, tokens


def stand_ins() -> None:
    """Both peers import a notebook or a backport only to wrap a string, or to ask for their own version."""
    display: Any = ModuleType("IPython.display")
    display.HTML = display.Javascript = lambda data: SimpleNamespace(data=data)
    display.display = print
    sys.modules |= {"IPython": ModuleType("IPython"), "IPython.display": display}
    sys.modules["importlib_metadata"] = importlib.metadata


def page(peer: str, n: int) -> str:
    """Its HTML for all heads, as it comes."""
    patterns = torch.from_numpy(attention(n))
    if peer == "CircuitsVis":
        from circuitsvis.attention import attention_heads

        names = [f"L{layer}H{head}" for layer in range(patterns.shape[0]) for head in range(patterns.shape[1])]
        return attention_heads(patterns.flatten(0, 1), tokens(n), names).local_src
    import bertviz

    view = getattr(bertviz, peer.removeprefix("BertViz "))
    return view([layer[None] for layer in patterns], tokens(n), html_action="return").data


if __name__ == "__main__":
    stand_ins()
    peer, n, path = sys.argv[1:]
    body = page(peer, int(n))
    Path(path).write_text(
        f'<!DOCTYPE html><html><head><meta charset="utf-8"></head><body>{body}</body></html>', "utf-8"
    )
