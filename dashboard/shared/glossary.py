"""Terms of the field in one plain sentence each, for wherever one of them stands."""

from __future__ import annotations

TERMS = {
    "induction head": "a head that, when a token comes again, looks at what followed it the last time.",
    "K-composition": "a head reads, for its keys, what an earlier head wrote: it looks at a token because of what that "
    "head put there.",
    "logit": "the number that the model gives each token before the softmax; 1 more makes a token’s odds 2.7 times as "
    "good.",
    "nats": "the unit of loss and entropy, in natural logarithms: with 1 nat less the right token is 2.7 times as "
    "likely. 0.69 nats are a bit.",
    "OV circuit": "what a head carries over from where it looks: what a token that is looked at adds to the logits.",
    "QK circuit": "what decides where a head looks: how well the query of one token fits the key of another.",
    "residual stream": "the vector of a token, which every layer reads and adds to.",
    "value-weighted": "attention times the length of the value that it carries over: a look at a token from which "
    "nothing comes counts for nothing.",
}


def terms(*names: str) -> str:
    """These terms as a Markdown list."""
    return "\n".join(f"- **{name}**: {TERMS[name]}" for name in names)
