"""Multi-head attention in one matmul: five claims about the module, each with an exact answer. Words are in page.md."""

import tracer


def exercise():
    # whoever reads of it needs no torch; a folder with a dash is no package to a type checker
    from .exercise import one_matmul  # pyrefly: ignore[missing-import]

    return one_matmul()


paper = tracer.Paper(
    title="Multi-head attention in one matmul",
    source="chapter 8 of a series, of which no address is known to us",
    systems=(
        tracer.System(
            "one-matmul", "All heads in one multiplication",
            "One C x C matrix each for Q, K, V and O, without biases, cut into heads by a view.",
            "The same numbers as one head by itself, and as many parameters whatever the number of heads.",
            "five claims, each with an exact answer; C = 768 with 12 heads has 2,359,296 parameters a layer",
            exercise=exercise, finding="One multiplication gives the same heads",
        ),
    ),
)  # fmt: skip
