"""What is looked for: each rule in words, with where its numbers come from, and what a run must hold for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracer.diagnosis import attention, growth, learning, symmetry, unused
from tracer.diagnosis.attention import BATCHES, CHANGES, ENTROPY, FLOAT32_RANGE, JOB, NEEDS_PULL, ONE_HOT
from tracer.diagnosis.findings import Finding, Kind
from tracer.diagnosis.growth import GREW
from tracer.diagnosis.learning import GAIN
from tracer.diagnosis.symmetry import ALIKE, EQUAL, SPREAD, STATISTICS
from tracer.diagnosis.unused import IDLE_LOSS, WRITES

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Rule:
    """One sickness."""

    name: str
    """In a list of what was looked for."""
    needs: tuple[str, ...]
    """Variables of the trace."""
    search: Callable[[dict[str, Any], xr.Dataset], Iterator[Finding]] | None
    """What looks for it in a trace, begun only where that holds what the rule needs; None: it is asked of a sweep."""
    text: str
    """When it is found, and why there."""


RULES: dict[Kind, Rule] = {
    "divergence": Rule(
        "divergence", (), growth.divergence,
        "Found when the loss is not a finite number, or in a watched loop the weights after an update. `tracer train` "
        "then repeats the last steps with every activation, gradient and weight watched: what grew first is what first "
        "passed 100 times its own first value. In a watched loop nothing is repeated: the model is looked at once, at "
        "that update. The first bad tensor is the first, in order of computation, that holds a value that is not "
        "finite.",
    ),
    "one-hot": Rule(
        "one-hot attention out of reach", (*ENTROPY, "max_logit"), attention.one_hot,
        f"Found when a head's normalised entropy stays below {ONE_HOT} (one key, to two digits) and its largest score "
        f"stays above {FLOAT32_RANGE:.0f}: a key whose score is that far below the largest gets exactly 0 in float32, "
        "and nothing can be learned through a 0. Healthy sharp heads, which look at the previous token or continue a "
        "repetition, are far from both: those of the demo end at 0.19 and 0.41, with scores of 11 and 13.",
    ),
    "vanishing": Rule(
        "gradients that vanish into W_Q and W_K", NEEDS_PULL, attention.vanishing,
        f"Found when normalised entropy stays below {ONE_HOT} and gradient times weight of W_Q and W_K together, the "
        f"median of {BATCHES} records, stays below a hundredth of that of W_V and W_O: the loss answers a hundred "
        "times less to where the head looks than to what it passes on. A head that gives "
        f"{JOB:.0%} of its attention to one kind of key (previous, own, first or repeated tokens) may have settled, "
        "and is left alone while its scores are of usual size.",
    ),
    "stands-in": Rule(
        "heads that stand in for a residual connection", ("current_token",), attention.stands_in,
        f"Found when, in a model without residual connections, a head keeps more than {JOB:.0%} of its attention on "
        "the token itself: the head has become the connection that is missing.",
    ),
    "collapse": Rule(
        "entropy collapse", (*ENTROPY, "val_loss"), attention.collapse,
        f"Found when a head's normalised entropy stays below a third of its highest value and the held-out loss "
        f"stays, in its last tenth, above its best by more than {CHANGES:g} times its usual change between records. "
        "Zhai et al. speak of "
        "collapse when low entropy comes with unstable training; low entropy alone is a sharp head.",
    ),
    "scores": Rule(
        "exploding attention scores", ("max_logit",), attention.scores,
        f"Found when a head's largest score stays above {FLOAT32_RANGE:.0f}, from which keys get exactly no attention "
        "in float32. Steady growth of scores is how Dehghani et al. and Wortsman et al. saw large runs begin to break.",
    ),
    "residual": Rule(
        "an exploding residual stream", ("resid_rms",), growth.residual,
        f"Found when the stream of the typical token stays more than {GREW:.0f} times as large as at the first record, "
        "or than 1, the size that a norm hands on, if it began smaller. The demo's ends 6 % larger.",
    ),
    "updates": Rule(
        "update ratios out of band", ("update_ratio",), growth.updates,
        "Found when the median of a weight's update ratio over the last quarter of the records is 0.1 or more, or when "
        "that of every tensor is below 1e-4. About 1e-3 is the rule of thumb of CS231n and Karpathy.",
    ),
    "frozen": Rule(
        "weights that never move", ("update_ratio", "grad_norm"), learning.frozen,
        "Found when, to the last record, the update of a tensor or of a head's part of it is exactly 0 while others "
        "move. Weights may be frozen on purpose; heads that a clamp holds are left out.",
    ),
    "unigram": Rule(
        "a loss no better than counting tokens", ("val_loss",), learning.unigram,
        f"Found when the held-out loss ends less than {GAIN:.0%} below that of a model that knows only how frequent "
        "each token is, and did not fall by as much over the last half of the records.",
    ),
    "uniform": Rule(
        "attention that does not choose", ENTROPY, symmetry.uniform,
        f"Found when a head's normalised entropy stays above 1 - {ALIKE:.0e}: scores then differ by {SPREAD} nats, so "
        "that no key gets a percent more than another. Where every head does it, attention only averages.",
    ),
    "clones": Rule(
        "heads that are copies of each other", STATISTICS, symmetry.clones,
        f"Found when two heads of a layer stay equal, to {EQUAL:.1%}, in the norms and gradients of all four matrices "
        "and in what they look at; in what they look at alone where weights are not known by head. Norms of random "
        "matrices differ by more.",
    ),
    "dead": Rule(
        "dead heads", ("head_weight_norm",), unused.dead,
        f"Found when ||W_V|| ||W_O||, the most of its input that a head can write, stays below {WRITES:.0%} of that of "
        "the median head of its layer, or of the stream that it is added to.",
    ),
    "idle": Rule(
        "idle heads", (), None,
        f"Found when, at the last step that `tracer sweep` took, no loss changes by {IDLE_LOSS} nats as the head is "
        "given the output it had on another sequence. A head can seem idle because another does the same.",
    ),
}  # fmt: skip
