"""A heading of the Circuits page with its formula, source and value at chance one click away."""

from __future__ import annotations

import streamlit as st

LINKS = {
    "elhage": "https://transformer-circuits.pub/2021/framework/index.html",
    "olsson": "https://transformer-circuits.pub/2022/in-context-learning-and-induction-heads/index.html",
    "lens": "https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens",
}
STYLE = '<style>[data-testid="stPopoverBody"] p a { text-decoration: underline !important; }</style>'
"""A link within a sentence is told apart by more than its colour."""
NORMS = "Norms, their gains and rotations are left out."
COMPOSITION = """
**Composition** of head 2 with an earlier head 1: |OV₁ M₂| / (|OV₁| |M₂|) in Frobenius norms, where OV = W_V W_O and
M₂ is what head 2 reads with: QK₂ᵀ for its keys, QK₂ for its queries, OV₂ for its values (QK = W_Q W_Kᵀ). From 0 to 1.

At chance: the mean over 196 pairs of heads with Gaussian weights of the same shapes, close to 1/√d_model; it is
subtracted, and what lies within 2 of their standard deviations is drawn faint. Trained weights are not Gaussian, so
read it as a ranking, and test an edge on Ablate.

An induction head reads the keys of a previous-token head: K.

Source: [Elhage et al. 2021]({elhage}), Analyzing a Two-Layer Model.
"""
COPYING = """
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
**OV circuit** W_E W_V W_O W_U: in the row of the token that is looked at, the column of each logit that it changes.
**QK circuit** W_E W_Q W_Kᵀ W_Eᵀ × scale: in the row of the token that looks, its score for each token that it may
look at. Shown are the largest entries; both are made block by block, never as a whole.

**Copied**: tokens whose own logit is the one they raise most. At chance that is 1 of d_vocab.

A skip-trigram A … B → C of a one-layer model joins both: B looks at A, and A raises C.

This is the direct path from the embedding: later layers also read what earlier heads wrote. Norms, their gains and
rotations are left out, and positions too.

Source: [Elhage et al. 2021]({elhage}).
"""
POSITIONS = """
**By positions**: softmax of W_pos QK W_posᵀ × scale under the causal mask: what the head would attend to if there
were positions and no tokens. A softmax depends on the size of its scores, which the norm in front of the layer sets:
with the switch on, each position goes through that norm alone, with its gain.

At chance: a row is even, 1 / (number of positions it may look at).

Source: [Elhage et al. 2021]({elhage}).
"""
STRIPES = """
**Attention by distance**: the mean of A[q, q − d] over the rows q that have such a key, on Probe R: a start token and
two copies of the same random tokens. Distance 0 is the token itself, 1 the token before, and an induction head peaks
at the period − 1: the token after the earlier copy. The start token is left out as a key, and so are distances that
fewer than 8 rows have.

At chance: heads that attend evenly, the dashed value at that distance.

Source: the off-diagonals of [Olsson et al. 2022]({olsson}).
"""
LOGIT = """
**Direct logit attribution** of a part: its own vector through the final norm, held at the scale of this very pass,
times the column of W_U of the token that follows, minus the mean column. So the numbers are logits above the mean
logit, and they sum to it exactly. Effects through later parts are not in it: Ablate measures those.

**Logit lens**: the final norm and W_U applied to the stream after each layer, as if the model stopped there.

At chance: 0 for an attribution; log p = −ln(d_vocab) and a rank in the middle for the lens.

Sources: [Elhage et al. 2021]({elhage}); [nostalgebraist 2020]({lens}).
"""


def heading(title: str, about: str, key: str) -> None:
    """A subheader, and at its right what it means."""
    with st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", key=f"{key}_top"
    ):
        st.header(title, anchor=False, width="content")
        with st.popover("What is this?", type="tertiary", icon=":material/help:", width="content"):
            st.markdown(about.format(**LINKS))
