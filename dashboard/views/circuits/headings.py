"""A heading of the Circuits page with its formula, source and value at chance one click away."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard.shared.glossary import terms
from tracer.store import Run

LINKS = {
    "elhage": "https://transformer-circuits.pub/2021/framework/index.html",
    "olsson": "https://transformer-circuits.pub/2022/in-context-learning-and-induction-heads/index.html",
    "lens": "https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens",
}
USED = {
    "COMPOSITION": ("K-composition", "residual stream"),
    "COPYING": ("OV circuit", "logit"),
    "WORDS": ("OV circuit", "QK circuit", "logit"),
    "TRIGRAMS": ("OV circuit", "QK circuit", "logit"),
    "POSITIONS": ("QK circuit",),
    "STRIPES": ("induction head",),
    "LOGIT": ("logit", "residual stream"),
}
"""The terms that each text leans on, of the glossary."""
SMEARED = (
    "smear={}: W_Q and W_K are read here as for one token. Each attention score mixes the {} of two: a token and the "
    "one before it."
)
GATED = "attn_gate=True: W_V W_O is read here before the gate, which each query opens and closes for itself."
NORMS = "Each norm divides by its mean scale; positions are left out, rotary ones too."
COMPOSITION = """
**Which earlier head’s output does a later head use?** The thicker a line, the more of what the earlier head writes is
what the later one reads. For example, an induction head takes its keys from a head that looks at the token before: so
it knows of each token what stood before it, and can find the place after an earlier copy.

{terms[COMPOSITION]}

**In formulas**

**Composition** of head 2 with an earlier head 1: |OV₁ M₂| / (|OV₁| |M₂|) in Frobenius norms, where OV = W_V W_O and
M₂ is what head 2 reads with: QK₂ᵀ for its keys, QK₂ for its queries, OV₂ for its values (QK = W_Q W_Kᵀ). From 0 to 1.

At chance: the mean over 196 pairs of heads with Gaussian weights of the same shapes, close to 1/√d_model; it is
subtracted. Drawn faint is what some pair of a model of random heads reaches in 5 % of all models: a quantile of the
logarithm of their composition, corrected for the number of pairs (Bonferroni). Trained weights are not Gaussian, so
read it as a ranking, and test an edge on Ablate. Each norm divides by its mean scale; positions are left out, rotary
ones too.

An edge from a previous-token head into the keys of a later head is the circuit of an induction head.

Source: [Elhage et al. 2021]({elhage}), Analyzing a Two-Layer Model.
"""
COPYING = """
**When a head looks at a token, does it make the model say that token?** 1: it raises whatever it looks at; 0: no more
than random weights do; −1: it lowers it. For example, an induction head finds what came next the last time and must
then say it: its score is near 1.

{terms[COPYING]}

**In formulas**

**Copying score**: Σλ / Σ|λ| over the eigenvalues λ of the OV circuit W_E W_V W_O W_U. From −1 to 1. A positive
eigenvalue means that a mixture of tokens raises its own logits, a negative one that it lowers them, a complex pair
that it is turned into others. Computed on W_O W_U W_E W_V, which is d_head × d_head and has the same eigenvalues but
zeros.

In the picture the angle is λ's own and the radius is log |λ|, over three decades.

At chance: mean and standard deviation over 200 heads with Gaussian W_V and W_O in this vocabulary. Strong evidence,
not proof: eigenvectors need not be orthogonal.

Source: [Elhage et al. 2021]({elhage}), Detecting Copying Behavior.
"""
WORDS = """
**What does the head do with single tokens, by its weights alone?** *Moves*: looking at the first token raises the
second, a different one. *Copies*: tokens that raise themselves. *Looks*: at the first token it likes to look at the
second. For example, where `open` stands beside `close` under *Moves*, looking at `open` makes the model say `close`.

{terms[WORDS]}

**In formulas**

**OV circuit** W_E W_V W_O W_U: in the row of the token that is looked at, the column of each logit that it changes.
**QK circuit** W_E W_Q W_Kᵀ W_Eᵀ × scale: in the row of the token that looks, its score for each token that it may
look at. Shown are the largest entries; both are made block by block, never as a whole.

**Copied**: tokens whose own logit is the one they raise most. At chance that is 1 of d_vocab.

In a model of one layer both are joined to skip-trigrams A … B → C, below.

This is the direct path from the embedding: later layers also read what earlier heads wrote. Each norm divides by
its mean scale on held-out text; rotary and other positions are left out. Where keys or queries are smeared, each
entry holds for the token and, by another share, for the next.

At chance: 0. A logit counts from what the model says without this look; with a score of 0 for every token the head
attends to all alike.

Source: [Elhage et al. 2021]({elhage}).
"""
TRIGRAMS = """
**Which rules of three tokens does the head hold?** When A stood somewhere before and the model is at B, it says C. For
example *keep* … *in* → *mind*: having read “keep”, it continues “in” with “mind”.

{terms[TRIGRAMS]}

**In formulas**

**Skip-trigram** A … B → C: at B the head looks back at A, and what it moves from there raises the logit of C.
The number is share × OV[A, C], in logits above the mean logit.

**Share** of the attention of B that A gets: p eᴸ / (p eᴸ + 1 − p). L = s[B, A] − ln mean eˢ over the vocabulary is how
much more B looks at A than at the average token (QK), and p is what the place of A gets by itself. Anywhere: p = 1 /
(number of positions). Smeared: p is the mean share that positions alone give to that distance, shown where it is at
least twice that of a head without a preference. All other keys are held at the mean of the vocabulary.

Each A stands once, with the B that look at it most and the C that it raises most, best first; logit and attention are
those of the first of them. The circuits are made block by block, never as a whole.

At chance: a share of p, and 0 logits on average over C.

Source: [Elhage et al. 2021]({elhage}), which reads QK and OV of one-layer models together; the shares are ours.
"""
POSITIONS = """
**Where would the head look if all tokens were the same word,** so that only their places tell them apart? For example,
a line just below the diagonal means that it looks at the token before, whatever that is.

{terms[POSITIONS]}

**In formulas**

**By positions**: softmax of W_pos QK W_posᵀ × scale under the causal mask: what the head would attend to if there
were positions and no tokens. A softmax depends on the size of its scores, which the norm in front of the layer sets:
with the switch on, positions go through that norm, with its gain, at its mean scale on held-out text.

At chance: a row is uniform, 1 / (number of positions it may look at).

Source: [Elhage et al. 2021]({elhage}).
"""
STRIPES = """
**How far back does the head look, on average?** A peak at 1 is the token before. For example, on 25 random tokens that
come twice, an induction head peaks at 24: the token after the earlier copy.

{terms[STRIPES]}

**In formulas**

**Attention by distance**: the mean of A[q, q − d] over the rows q that have such a key, on a start token and two
copies of the same random tokens, one right after the other. Distance 0 is the token itself, 1 the token before, and an
induction head peaks at the period − 1: the token after the earlier copy. The start token is left out as a key, and so
are distances that fewer than 8 rows have.

At chance: what a head that attends evenly gives to that distance, in the sentence above the picture.

Source: the off-diagonals of [Olsson et al. 2022]({olsson}).
"""
LOGIT = """
**Which parts of the model argued for the token that came next, and what would the model have said after each layer?**
For example, +3.5 at a head means that this head alone lifts the logit of that token 3.5 above the average token’s: its
odds 33 times.

{terms[LOGIT]}

**In formulas**

**Direct logit attribution** of a part: its own vector through the final norm, held at the scale of this very pass,
times the column of W_U of the token that follows, minus the mean column. So the numbers are logits above the mean
logit, and they sum to it exactly. Effects through later parts are not in it: Ablate measures those.

**Logit lens**: the final norm and W_U applied to the stream after each layer, as if the model stopped there.

At chance: 0 for an attribution; log p = −ln(d_vocab) and a rank in the middle for the lens.

Sources: [Elhage et al. 2021]({elhage}); [nostalgebraist 2020]({lens}).
"""


def say_smeared(run: Run) -> None:
    """A caption beside a reading of W_Q and W_K, where keys or queries are smeared."""
    if run.can("recipe") and (smear := run.config.model.smear) != "none":
        st.caption(SMEARED.format(smear, smear))


def say_gated(run: Run) -> None:
    """A caption beside a reading of W_V W_O, where what a head gives passes a gate."""
    if run.can("recipe") and run.config.model.attn_gate:
        st.caption(GATED)


def heading(title: str, about: str, key: str, link: Callable[[], None] | None = None) -> None:
    """A subheader, and at its right where it leads and what it means."""
    with st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", key=f"top_{key}"
    ):
        st.header(title, anchor=False, width="content")
        with st.container(horizontal=True, width="content", vertical_alignment="center", gap="medium"):
            if link is not None:
                link()
            with st.popover("What is this?", type="tertiary", icon=":material/help:", width="content"):
                st.markdown(about.format(**LINKS, terms={name: terms(*words) for name, words in USED.items()}))
