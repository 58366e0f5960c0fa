"""Multi-head attention and residuals: five words, four heads of size 2, each row normalised. Words are in page.md."""

import tracer


def exercise():
    # whoever reads of it needs no torch; a folder with a dash is no package to a type checker
    from .exercise import post_norm  # pyrefly: ignore[missing-import]

    return post_norm()


paper = tracer.Paper(
    title="Multi-head attention and residuals",
    source="The Loss Curve, chapter 9: Multi-head and residuals, "
    "https://thelosscurve.com/chapters/09-multi-head-residuals",
    systems=(
        tracer.System(
            "post-norm", "Normalised after the sum",
            "LayerNorm(x + sublayer(x)) without learned parameters: 8 wide, 4 heads of size 2, five words.",
            "Each head looks at “the cat sat on mat” in its own way, and every row leaves with mean 0 and "
            "standard deviation 1.",
            "mean row entropy per head beside log(5) = 1.61, the most that five keys allow", exercise=exercise,
            finding="Every row leaves with mean 0 and standard deviation 1",
        ),
    ),
)  # fmt: skip
