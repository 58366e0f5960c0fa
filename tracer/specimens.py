"""The systems of the tutorials behind manyeyes: what each changes, what its author saw, and what must hold here too.

Published figures are from one consumer GPU, 48 MB of Gutenberg text, a vocabulary of 2048 and 4096 windows of 32 tokens
a batch. On other text and in small the values move; the claims, which compare runs of one setting, must not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Size = Literal["small", "published"]


@dataclass(frozen=True)
class Specimen:
    """One system: a preset of the same name, in two sizes."""

    name: str
    title: str
    changed: str
    """What is different from the one before."""
    expects: str
    """What to look for while it trains."""
    published: str
    """What its author saw, in his units."""
    perplexity: float | None = None
    """Published held-out perplexity at the end."""
    entropy: tuple[float, float] | None = None
    """Published mean row entropy at the start and at the end, in nats over all 32 rows."""
    cure: str = ""
    """What repairs it, and which specimen does."""

    def preset(self, size: Size = "small") -> str:
        """The name of its preset."""
        return f"{self.name}-small" if size == "small" else self.name


SPECIMENS = {
    specimen.name: specimen
    for specimen in (
        Specimen(
            "single-head-unscaled", "One head, nothing scaled",
            "W_Q, W_K and W_V are N(0, 1), scores are not divided by anything, and nothing passes by the head: "
            "logits = MLP(Attn(X)).",
            "Entropy is almost 0 before the first step: scores in the hundreds leave each row one key.",
            "entropy 0.003 from the first line of the log, loss stuck near 6.4",
            entropy=(0.003, 0.003), cure="Divide scores by sqrt(d), and start the weights smaller: the next one.",
        ),
        Specimen(
            "single-head-scaled", "Scaled, but alone",
            "Scores and initial weights are divided by sqrt(d). Still no residual connection.",
            "Entropy starts high and falls again, because the model sees its input through attention only: look at the "
            "share on the token itself.",
            "entropy 1.492 at the start, 0.089 at the end", entropy=(1.492, 0.089),
            cure="Let the input pass by the head, X + Attn(X): the next one.",
        ),
        Specimen(
            "single-head-residual", "With a residual connection",
            "X + Attn(X), then X + MLP(X), then W_U.", "Entropy stays: the head is free to look elsewhere.",
            "entropy about 1.16, perplexity 68.28, 6.5 M parameters", perplexity=68.28, entropy=(1.492, 1.16),
        ),
        Specimen(
            "single-head", "The base line", "The same again, where the series on many heads begins.",
            "As before.", "perplexity 67.68, entropy 1.177", perplexity=67.68, entropy=(1.492, 1.177),
        ),
        Specimen(
            "multi-head-full", "Four heads of full rank", "Four heads, each as wide as the model, joined by W_O.",
            "A lower loss than one head; the heads differ.",
            "perplexity 66.48; entropies 0.69, 0.158, 1.011, 0.861: one head nearly one-hot", perplexity=66.48,
        ),
        Specimen(
            "multi-head", "Four heads of a quarter each", "d_head = d_model / 4: a quarter of the weights.",
            "No worse than full rank.", "perplexity 65.11 with fewer parameters", perplexity=65.11,
        ),
        Specimen(
            "two-blocks", "Two blocks", "A second block on top of the first.", "A lower loss than one block.",
            "perplexity 55.74; the first block's entropies 0.036, 0.013, 0.006, 0.01", perplexity=55.74,
        ),
        Specimen(
            "four-blocks", "Four blocks, nothing normalised", "Four blocks: the residual stream grows from each to the "
            "next.", "The loss is not a number within the first hundred batches.",
            "NaN in the loss and in every entropy by batch 100",
            cure="Normalise the input of every sublayer: the next one.",
        ),
        Specimen(
            "four-blocks-rms", "Four blocks with RMSNorm", "RMSNorm on the input of each attention and each MLP.",
            "The lowest loss of all, and entropies that stay up.",
            "perplexity 50.37, 48.66 at the end; entropies of block 0 to 3 about 2.1, 0.9, 1.6, 1.5; 23.1 M parameters",
            perplexity=48.66,
        ),
    )
}  # fmt: skip
"""In the order of the tutorials."""
