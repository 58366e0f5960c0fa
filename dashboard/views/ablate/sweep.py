"""The Ablate page on how sure an effect is: every head by itself, and random sets of as many."""

from __future__ import annotations

from collections import Counter
from math import comb, prod

import numpy as np
import streamlit as st

from dashboard import theme
from dashboard.loading import ablation
from dashboard.loading.ablation import Setup, Swept
from dashboard.shared.asking import asked
from dashboard.shared.mount import draw
from dashboard.views.ablate.own_metric import choose_metric, draw_own_heads
from tracer.analysis import head_sets
from tracer.config import DRAWS
from tracer.measures.aliases import Head
from tracer.pictures import headmap
from tracer.store import Run

AT_ONCE = 128
"""Forward passes that are not worth a question."""
RANDOM_SETS = 30
NAMED = 8
"""Heads of a sentence; of more only the number is said."""
TABLE = """<style>
.numbers { width: 100%; border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
.numbers th { text-align: right; font-weight: 400; opacity: .7; font-size: .8rem; }
.numbers th:first-child, .numbers td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.numbers td { text-align: right; }
.numbers th, .numbers td { padding: .4rem 0 .4rem .7rem; white-space: nowrap;
  border-bottom: 1px solid rgb(127 127 127 / .25); }
.numbers th:first-child, .numbers td:first-child { padding-left: 0; }
.numbers tr:last-child td { border-bottom: 0; }
.numbers i { display: block; font-style: normal; opacity: .7; font-size: .8rem; }
@media (max-width: 640px) { .numbers th { white-space: normal; vertical-align: bottom; } }
</style>"""


def draw_sweep(run: Run, setup: Setup) -> None:
    if (own := choose_metric(run)) is not None:
        draw_own_heads(own, setup)
        return
    st.caption("Change in loss, in nats a token, when only that head is off.")
    model = setup.model
    n_heads = sum(model.heads_of_layers)
    passes = n_heads * (DRAWS if setup.mode == "resample" else 1)
    few = passes <= AT_ONCE and not ablation.is_large(run)
    if not asked(f"sweep {setup.run}", f"Measure {n_heads} heads", key="sweep_heads", at_once=few):
        return
    found = ablation.sweep(setup.opened, setup.step, setup.mode, setup.frozen)
    for column, name in zip(st.columns(2, gap="large"), found, strict=False):
        swept = found[name]
        with column:
            picture = headmap.picture(
                swept.effect, title=probe_title(name, setup), scale=ablation.change_scale(swept.effect),
                off=setup.off, marked=swept.sure, notes=_notes(swept),
            )  # fmt: skip
            draw(picture, key=f"sweep_{name}")
            st.caption(_sure(swept))
    st.caption(head_sets.REDUNDANCY)
    if any(np.isfinite(swept.low).any() for swept in found.values()):
        n = max(int(np.isfinite(swept.effect).sum()) for swept in found.values())
        st.caption(
            f"Dot: the head's 95 % interval excludes 0; by chance {n / 20:.1f} of {n} heads get one. Significant: "
            f"below 5 % after correction for {n} tries (Holm 1979)."
        )


def probe_title(name: str, setup: Setup) -> str:
    return "Repeated tokens" if name == "repeat" else ablation.batches(setup.opened).title


def _notes(swept: Swept) -> list[list[str]]:
    return [
        [f"95 % interval {theme.interval(a, b)}" if np.isfinite(a) else "" for a, b in zip(*row, strict=True)]
        for row in zip(swept.low, swept.high, strict=True)
    ]


def _sure(swept: Swept) -> str:
    """How many heads are marked, and which of them hold; where none could, why, and how many sequences it takes."""
    if not np.isfinite(swept.low).any():
        return "1 sequence, so no intervals."
    n, marked = int(np.isfinite(swept.effect).sum()), int(swept.sure.sum())
    dots = f"A dot for {marked} of {n} heads. "
    if swept.too_few:
        return dots + swept.too_few
    kept = [(int(a), int(b)) for a, b in np.argwhere(swept.corrected)]
    names = ": " + " ".join(theme.head_label(*h) for h in kept) if 0 < len(kept) <= min(NAMED, n - 1) else ""
    return f"{dots}Significant: {len(kept) or 'none'} of {n} (Holm-corrected){names}."


def draw_null(setup: Setup) -> None:
    """Beside random sets, on demand; how many there are says how small p can be at all."""
    there = count_sets(setup.off, setup.model.heads_of_layers)
    heads = "as many heads" if len(setup.off) > 1 else "one head"
    if there == 0:
        st.caption("Whole layers are off: no other set has as many heads in each layer to compare with.")
        return
    tried = min(there, RANDOM_SETS)
    whole = f"the {there} other set{'s' * (there > 1)}" if there <= RANDOM_SETS else f"{RANDOM_SETS} random sets"
    few = f"There are {there:,} other sets of {heads} in the same layers"
    if there == 1:
        few = f"There is 1 other set of {heads} in the same layers"
    least = f"{few}, so p can't be below {1 / (1 + tried):.2f}{'' if tried == there else f' with {tried}'}."
    if not asked(f"null {setup}", f"Compare with {whole}", key="null", icon=":material/casino:", why=least,
                 help="Is it these heads, or would any do?"):  # fmt: skip
        return
    try:
        found = ablation.null(setup, RANDOM_SETS)
    except ValueError as error:
        st.text(theme.sentence(str(error)))
        return
    many, low, high = len(found.others), float(found.others.min()), float(found.others.max())
    less = int((found.others < found.effect).sum())
    whose = f"{many} of {there:,} other sets of {heads}" if many < there else f"The {many} other sets of {heads}"
    st.markdown(
        f"{whose} in the same layers cost {theme.interval(low, high)} nats on "
        f"{ablation.WORDS[ablation.batches(setup.opened).main(setup.mode).name]}, "
        f"median {theme.signed(float(np.median(found.others)))}. "
        f"Yours cost {theme.signed(found.effect)}, more than "
        f"**{less} of {many}** (p = {found.p:.2f}; with {many} sets it can't be below {found.smallest_p:.2f})."
    )


def count_sets(off: tuple[Head, ...], n_heads: list[int]) -> int:
    """Other sets with as many heads in each layer."""
    return prod(comb(n_heads[layer], size) for layer, size in Counter(layer for layer, _ in off).items()) - 1
