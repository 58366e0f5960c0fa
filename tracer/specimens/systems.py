"""The systems of the tutorials behind manyeyes: what each changes, what its author saw, and what must hold here too.

Published figures are from one consumer GPU, 48 MB of Gutenberg text, a vocabulary of 2048 and 4096 windows of 32 tokens
a batch. On other text and in small the values move; the claims, which compare runs of one setting, must not. The last
three tutorials publish modules and exercises instead of figures: `tracer.specimens.exercises` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Size = Literal["small", "published"]
TUTORIALS = (
    "One attention head", "Many heads, many blocks", "Many eyes", "Multi-head attention in one matmul",
    "Multi-head attention and residuals",
)  # fmt: skip


SOURCES: tuple[tuple[str, str] | None, ...] = (
    ("0xpemulis, 1 February 2026", "https://0xpemulis.net/ml7_attention.html"),
    ("0xpemulis, 18 February 2026", "https://0xpemulis.net/ml8_transformers.html"),
    ("37th Chamber, The Opaque Box, chapter 4: Many Eyes",
     "https://37th-chamber.com/library/the-opaque-box/04-many-eyes.html"),
    None,
    ("The Loss Curve, chapter 9: Multi-head and residuals",
     "https://thelosscurve.com/chapters/09-multi-head-residuals"),
)  # fmt: skip
"""Who published each of TUTORIALS and where; None where we know no address."""


@dataclass(frozen=True)
class Specimen:
    """One system: a preset of the same name, in two sizes."""

    tutorial: int
    """Where it is from, an index into TUTORIALS."""
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
    entropy: tuple[float | None, float] | None = None
    """Published mean row entropy at the start, where it was, and at the end, in nats over all 32 rows."""
    heads: tuple[tuple[float, ...], ...] = ()
    """Published entropies at the end, [layer][head]; of the first layers, where not all were."""
    loss: float | None = None
    """Published training loss, where no perplexity was."""
    n_params: int | None = None
    """Parameters as published, which follow from the shapes."""
    cure: str = ""
    """What repairs it, and which specimen does."""
    exercise: bool = False
    """Does its author ask for checks that `tracer.specimens.exercises` runs?"""
    trained: bool = True
    """Is there something to train? Else the exercise is all."""
    beside: str = ""
    """A specimen that its exercise compares it with."""

    def preset(self, size: Size = "small") -> str:
        """The name of its preset."""
        return f"{self.name}-small" if size == "small" else self.name


@dataclass(frozen=True)
class Check:
    """One thing that an exercise asks for."""

    asks: str
    answer: str
    """What came out, in numbers."""
    holds: bool | None = None
    """None: a question without a right answer."""


SPECIMENS = {
    specimen.name: specimen
    for specimen in (
        Specimen(
            0, "single-head-unscaled", "One head, nothing scaled",
            "W_Q, W_K and W_V are N(0, 1), scores are not divided by anything, and nothing passes by the head: "
            "logits = MLP(Attn(X)).",
            "Entropy is almost 0 before the first step: scores in the hundreds leave each row one key.",
            "entropy 0.003 from the first line of the log, loss stuck near 6.4",
            entropy=(0.003, 0.003), loss=6.4,
            cure="Divide scores by sqrt(d), and start the weights smaller: the next one.",
        ),
        Specimen(
            0, "single-head-scaled", "Scaled, but alone",
            "Scores and initial weights are divided by sqrt(d). Still no residual connection.",
            "Entropy starts high and falls again, because the model sees its input through attention only: look at the "
            "share on the token itself.",
            "entropy 1.492 at the start, 0.089 at the end", entropy=(1.492, 0.089),
            cure="Let the input pass by the head, X + Attn(X): the next one.",
        ),
        Specimen(
            0, "single-head-residual", "With a residual connection",
            "X + Attn(X), then X + MLP(X), then W_U.", "Entropy stays: the head is free to look elsewhere.",
            "entropy about 1.16, perplexity 68.28, 6.5 M parameters", perplexity=68.28, entropy=(None, 1.16),
            n_params=6_500_608,
        ),
        Specimen(
            1, "single-head", "The base line", "The same again, where the series on many heads begins.",
            "As before.", "perplexity 67.68, entropy 1.177", perplexity=67.68, entropy=(None, 1.177),
        ),
        Specimen(
            1, "multi-head-full", "Four heads of full rank", "Four heads, each as wide as the model, joined by W_O.",
            "A lower loss than one head; the heads differ.",
            "perplexity 66.48; entropies 0.69, 0.158, 1.011, 0.861: one head nearly one-hot", perplexity=66.48,
            heads=((0.69, 0.158, 1.011, 0.861),),
        ),
        Specimen(
            1, "multi-head", "Four heads of a quarter each", "d_head = d_model / 4: a quarter of the weights.",
            "No worse than full rank.", "perplexity 65.11 with fewer parameters", perplexity=65.11,
        ),
        Specimen(
            1, "two-blocks", "Two blocks", "A second block on top of the first.", "A lower loss than one block.",
            "perplexity 55.74; the first block's entropies 0.036, 0.013, 0.006, 0.01", perplexity=55.74,
            heads=((0.036, 0.013, 0.006, 0.01),),
        ),
        Specimen(
            1, "four-blocks", "Four blocks, nothing normalised",
            "Four blocks: the residual stream grows from each to the next.",
            "The loss is not a number within the first hundred batches.",
            "NaN in the loss and in every entropy by batch 100",
            cure="Normalise the input of every sublayer: the next one.",
        ),
        Specimen(
            1, "four-blocks-rms", "Four blocks with RMSNorm", "RMSNorm on the input of each attention and each MLP.",
            "The lowest loss of all, and entropies that stay up.",
            "perplexity 50.37, 48.66 at the end; entropies of block 0 to 3 about 2.1, 0.9, 1.6, 1.5; 23.1 M parameters",
            perplexity=48.66, n_params=23_096_320,
            heads=((2.24, 2.24, 2.28, 1.51), (0.86, 0.90, 1.01, 0.91), (1.53, 1.32, 1.85, 1.56),
                   (1.51, 1.18, 1.99, 1.39)),
        ),
        Specimen(
            2, "many-eyes", "Heads as modules of their own",
            "Six heads with linear maps of their own, dropout, and a W_O with a bias; the tokens are characters.",
            "The heads differ from the first step, and by more after a hundred.",
            "exercises instead of figures: shapes, parameters, a hundred steps with and without W_O, and a number of "
            "heads that does not divide", exercise=True, beside="many-eyes-bare",
        ),
        Specimen(
            2, "many-eyes-bare", "The same without W_O", "The heads' outputs, side by side, are what the block adds.",
            "Each head can write to its own columns only; whether that costs anything is for the reader to find out.",
            "no figure; a hundred steps are to be compared with those above",
        ),
        Specimen(
            3, "one-matmul", "All heads in one multiplication",
            "One C x C matrix each for Q, K, V and O, without biases, cut into heads by a view.",
            "The same numbers as one head by itself, and as many parameters whatever the number of heads.",
            "five claims, each with an exact answer; C = 768 with 12 heads has 2,359,296 parameters a layer",
            exercise=True, trained=False,
        ),
        Specimen(
            4, "post-norm", "Normalised after the sum",
            "LayerNorm(x + sublayer(x)) without learned parameters: 8 wide, 4 heads of size 2, five words.",
            "Each head looks at “the cat sat on mat” in its own way, and every row leaves with mean 0 and "
            "standard deviation 1.",
            "mean row entropy per head beside log(5) = 1.61, the most that five keys allow",
            exercise=True, trained=False,
        ),
    )
}  # fmt: skip
"""In the order of the tutorials."""
TRAINED = {name: specimen for name, specimen in SPECIMENS.items() if specimen.trained}
