"""What a card shows of its run at once: every head at both ends of training, its entropy and its loss."""

from __future__ import annotations

import base64

import streamlit as st

from dashboard import theme
from dashboard.shared.spark import STYLE, markup
from dashboard.views.specimens import data as reading
from tracer.measures.chance import uniform_entropy
from tracer.measures.setting import Setting
from tracer.store import Run

FIGURES = """<style>
.small { display: flex; flex-wrap: wrap; gap: .9rem 1.5rem; align-items: flex-end; }
.small figure { margin: 0; } .small .curve { flex: 1 1 8rem; max-width: 15rem; }
.small > figure > img { display: block; image-rendering: pixelated; }
.small figcaption { font-size: .75rem; line-height: 1.4; margin-bottom: .3rem; opacity: .72; }
</style>"""


TALLEST, WIDEST = 7, 13
"""Of an image, in rem."""


def draw_small(run: Run) -> None:
    """Images only: nothing of it needs a script."""
    patterns = reading.small_ends(run, theme.is_dark())
    about = run.config.model
    height = min(TALLEST, WIDEST * about.n_layers / about.n_heads)
    parts = [
        f"<figure><figcaption>{when}, step {step:,}</figcaption><img style='height:{height:g}rem' "
        f"alt='The pattern of every head at step {step:,}' "
        f"src='data:image/png;base64,{base64.b64encode(image).decode()}'></figure>"
        for when, (step, image) in zip(("start", "now" if run.live else "end"), patterns, strict=False)
    ]
    # entropies of all cards on one scale, from one key to all keys alike: what stays must not look as what falls
    ends = {"entropy": (0.0, uniform_entropy(Setting(about.n_ctx, 0, 0)))}
    parts += [
        f"<figure class='curve'>{markup(values, label=name, height=64, ends=ends.get(name))}</figure>"
        for name, values in reading.course(run).items()
    ]
    if parts:
        st.html(f"{STYLE}{FIGURES}<div class='small'>{''.join(parts)}</div>")
