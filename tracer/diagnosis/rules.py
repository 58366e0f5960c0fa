"""What is looked for: each rule in words, with where its numbers come from, and what a run must hold for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.config.field_docs import fields_in_help
from tracer.diagnosis import attention_faults, generalising, growth, learning, objective, still, symmetry, unused
from tracer.diagnosis.attention_faults import BATCHES, CHANGES, ENTROPY, FLOAT32_RANGE, JOB, NEEDS_PULL, ONE_HOT
from tracer.diagnosis.findings import Finding, Kind, values
from tracer.diagnosis.generalising import EVEN, FAR, FLAT, GAIN, KEPT, LEARNED, RECORDS, RISE, STEPS, WORSE
from tracer.diagnosis.growth import GREW
from tracer.diagnosis.learning import ENOUGH, PAIRS
from tracer.diagnosis.objective import CLOSE, COMMON, LEAKS, SILENT, TWICE_CLOSE, UPDATES
from tracer.diagnosis.still import SAME
from tracer.diagnosis.symmetry import ALIKE, EQUAL, SHOWN, SPREAD, STATISTICS
from tracer.diagnosis.unused import IDLE_LOSS, WRITES

if TYPE_CHECKING:
    import xarray as xr


@fields_in_help
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
    records: int = 1
    """Rows, at least, in which each of the variables has a value."""
    asks: Callable[[dict[str, Any], xr.Dataset], bool] | None = None
    """Of a run that holds all of that: can what is looked for be seen in it? None: yes."""

    def can_see(self, meta: dict[str, Any], trace: xr.Dataset) -> bool:
        """Does the run hold what this rule needs?"""
        enough = all(_records(trace, name) >= self.records for name in self.needs)
        return enough and (self.asks is None or self.asks(meta, trace))


def _records(trace: xr.Dataset, name: str) -> int:
    """Rows in which something has a value."""
    known = values(trace, name)
    return 0 if known is None else int(np.isfinite(known).reshape(len(known), -1).any(axis=1).sum())


def early(trace: xr.Dataset) -> bool:
    """Is there a training loss, in fewer than the 8 rows from which the rules of the loss judge one?

    Overfitting, training rows unlike the held-out ones, a loss worse than guessing, a classifier that learns nothing:
    of all that a shorter run shows nothing, so that no finding in it means nothing either. A model without a training
    has no loss of one.
    """
    return 0 < _records(trace, "train_loss") < RECORDS


def _counted(meta: dict[str, Any], trace: xr.Dataset) -> bool:
    """Is the loss of counting known, and the loss beside it?"""
    if meta.get("loss"):  # of somebody's own: that of counting is not what it was to beat
        return False
    if meta.get("references", {}).get("unigram"):
        return _records(trace, "val_loss") >= ENOUGH
    if values(trace, "unigram_loss") is None or values(trace, "train_loss") is None:
        return False
    both = np.isfinite(trace["unigram_loss"].values) & np.isfinite(trace["train_loss"].values)
    return int(both.sum()) >= ENOUGH and objective.target(meta, trace) in (None, objective.NEXT)


RULES: dict[Kind, Rule] = {
    "divergence": Rule(
        "divergence", (), growth.divergence,
        "Found when the loss is not a finite number, or in a watched loop the weights after an update. `tracer train` "
        "then repeats the last steps with every activation, gradient and weight watched: what grew first is what first "
        "passed 100 times its own first value. In a watched loop nothing is repeated: the model is looked at once, at "
        "that update. The first bad tensor is the first, in order of computation, that holds a value that is not "
        "finite.",
    ),
    "leak": Rule(
        "a mask that shows the future", ("future_effect", "shifted_loss", "train_loss"), objective.leak,
        f"Found when the training loss is that of the next token, and the logits of a position change by more than "
        f"{LEAKS:.0%} of their spread as the tokens behind it are exchanged. A causal model's do not change; an "
        "encoder, which sees everything on purpose, is trained on other targets.",
        asks=lambda meta, trace: objective.target(meta, trace) is not None,
    ),
    "rows": Rule(
        "rows of a batch that see each other", ("row_effect", "shifted_loss", "train_loss"), objective.rows_mixed,
        f"Found when the training loss is that of the next token of each row, and the logits of a row change by more "
        f"than {LEAKS:.0%} of their spread with the row that stands beside it.",
        asks=lambda meta, trace: objective.target(meta, trace) is not None,
    ),
    "targets": Rule(
        "targets other than the next token", ("shifted_loss", "train_loss", "future_effect"), objective.targets,
        f"Found when the loss of a causal model is, to {CLOSE:.0%}, the cross-entropy of its logits against the token "
        "itself, the one before, the one after the next, or the row read backwards, and not against the next token; "
        f"or when it is, to {TWICE_CLOSE:.0%}, that of the probabilities taken for logits, which is softmax taken "
        "twice; or when it is minus the cross-entropy.",
        asks=lambda meta, trace: objective.target(meta, trace) is not None or objective.twice(trace)
        or objective.upside_down(trace),
    ),
    "one-token": Rule(
        "one token that is most of the text", ("common_token", "shifted_loss", "train_loss"), objective.one_token,
        f"Found when one token makes up {COMMON:.0%} or more of a batch, the median of the records, and the loss is "
        "that of the next token wherever it stands: padding that counts, or text that the tokenizer does not know.",
        asks=lambda meta, trace: bool(meta.get("d_vocab")) and objective.target(meta, trace) is not None,
    ),
    "silent": Rule(
        "rows of a batch that teach nothing", ("silent_rows",), objective.silent,
        f"Found when in {SILENT:.0%} or more of the rows of a batch, the median of the records, the gradient of every "
        "logit is exactly 0.",
        records=SHOWN,
    ),
    "repeated": Rule(
        "the same batch at every update", ("same_batch",), objective.repeated,
        f"Found when the last {UPDATES} updates or more, and half of all, took one and the same batch.",
        records=UPDATES,
    ),
    "positions": Rule(
        "positions that are all the same", (), objective.positions,
        "Found when the model, at the first record, looks up one row of a table of positions for all places of a row, "
        "or is given position ids that are all equal. A model without positions looks up none.",
        asks=lambda meta, trace: meta.get("constant_positions") is not None and "step" in trace.sizes,
    ),
    "overfit": Rule(
        "overfitting", ("train_loss", "val_loss"), generalising.overfit,
        f"Found when the held-out loss stays, in its last tenth, above its best by more than {CHANGES:g} times its "
        f"usual change and by {RISE:.0%} of the best and of what was gained, while the training loss went on falling.",
        records=RECORDS,
    ),
    "mismatch": Rule(
        "training rows unlike the held-out ones", ("train_loss", "val_loss"), generalising.mismatch,
        f"Found when the training loss fell by {LEARNED:.0%} or more, and the held-out loss never by a "
        f"{'fifth' if KEPT == 0.2 else KEPT} of that, without rising as in overfitting.",
        records=RECORDS,
    ),
    "chance": Rule(
        "a loss worse than guessing", ("train_loss",), generalising.chance,
        f"Found when the training loss, a cross-entropy of tokens, ends more than {WORSE - 1:.0%} above ln(d_vocab), "
        "that of a guess among all tokens, and higher than it began, or lower and falling no more, or was above it "
        f"throughout and began at more than {FAR:g} times as much.",
        records=RECORDS, asks=lambda meta, trace: bool(meta.get("d_vocab")) and generalising.in_nats(meta, trace),
    ),
    "flat": Rule(
        "a classifier that learns nothing", ("train_loss",), generalising.flat,
        f"Found when the loss of a model that gives each row one number a class stays within {EVEN:.0%} of "
        f"ln(classes), that of a guess, and falls by less than {FLAT:.0%} of it in {STEPS} updates or more.",
        records=RECORDS, asks=lambda meta, trace: int(meta.get("classes") or 0) > 1,
    ),
    "rounding": Rule(
        "updates that do not change the weights", ("unmoved",), still.rounding,
        f"Found when, in the median matrix, {SAME[True]:.0%} of the weights ({SAME[False]:.0%} in float32) are the "
        "same to the bit from one record to the next, although gradients arrive and steps are made; or when all are, "
        "and no optimiser was seen to step.",
        records=still.SHOWN,
    ),
    "one-hot": Rule(
        "one-hot attention out of reach", (*ENTROPY, "max_logit"), attention_faults.one_hot,
        f"Found when a head's normalised entropy stays below {ONE_HOT} (one key, to two digits) and its largest score "
        f"stays above {FLOAT32_RANGE:.0f}: a key whose score is that far below the largest gets exactly 0 in float32, "
        "and nothing can be learned through a 0. Healthy sharp heads, which look at the previous token or continue a "
        "repetition, are far from both: those of the demo end at 0.19 and 0.41, with scores of 11 and 13.",
    ),
    "vanishing": Rule(
        "gradients that vanish into W_Q and W_K", NEEDS_PULL, attention_faults.vanishing,
        f"Found when normalised entropy stays below {ONE_HOT} and gradient times weight of W_Q and W_K together, the "
        f"median of {BATCHES} records, stays below a hundredth of that of W_V and W_O: the loss answers a hundred "
        "times less to where the head looks than to what it passes on. A head that gives "
        f"{JOB:.0%} of its attention to one kind of key (previous, own, first or repeated tokens) may have settled, "
        "and is left alone while its scores are of usual size.",
        records=BATCHES,
    ),
    "stands-in": Rule(
        "heads that stand in for a residual connection", ("current_token",), attention_faults.stands_in,
        f"Found when, in a model without residual connections, a head keeps more than {JOB:.0%} of its attention on "
        "the token itself: the head has become the connection that is missing.",
        asks=lambda meta, trace: not meta.get("config", {}).get("model", {}).get("residual", True),
    ),
    "collapse": Rule(
        "entropy collapse", ENTROPY, attention_faults.collapse,
        f"Found when a head's normalised entropy stays below a third of its highest value and the loss "
        f"stays, in its last tenth, above its best by more than {CHANGES:g} times its usual change between records; or "
        f"when the mean over heads fell to {ONE_HOT} or less, from ten times that, previous-token and induction heads "
        "left out. "
        "Zhai et al. speak of "
        "collapse when low entropy comes with unstable training; low entropy alone is a sharp head.",
        records=ENOUGH,
    ),
    "scores": Rule(
        "exploding attention scores", ("max_logit",), attention_faults.scores,
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
        "that of every tensor (no bias) is below 2e-5 and the loss did not fall. About 1e-3 is the rule of thumb of "
        "CS231n and Karpathy.",
        records=growth.RECORDS,
    ),
    "frozen": Rule(
        "weights that never move", ("update_ratio", "grad_norm"), learning.frozen,
        "Found when, to the last record, the update of a tensor or of a head's part of it is exactly 0 while others "
        "move; or when a whole block asks for no gradient while one below it, or the embedding, does. Weights may be "
        "frozen on purpose: heads that a clamp holds are left out, as are embeddings, blocks with adapters and blocks "
        "from the bottom up.",
        records=SHOWN,
    ),
    "unigram": Rule(
        "a loss no better than counting tokens", (), learning.unigram,
        f"Found when the held-out loss, in a watched loop the training loss, ends less than {GAIN:.0%} "
        "below that of a model that knows only how frequent each token is, and did not fall by as much over the last "
        f"half of the records. In a watched loop only where counting pairs of tokens, or repeating what followed the "
        f"same token before, would do {PAIRS:.0%} better: else there may be nothing to learn.",
        asks=_counted,
    ),
    "uniform": Rule(
        "attention that does not choose", ENTROPY, symmetry.uniform,
        f"Found when a head's normalised entropy stays above 1 - {ALIKE:.0e}: scores then differ by {SPREAD} nats, so "
        "that no key gets a percent more than another. Where every head does it, attention only averages.",
        records=SHOWN,
    ),
    "clones": Rule(
        "heads that are copies of each other", STATISTICS, symmetry.clones,
        f"Found when two heads of a layer stay equal, to {EQUAL:.1%}, in the norms and gradients of all four matrices "
        "and in what they look at; in what they look at alone where weights are not known by head. Norms of random "
        "matrices differ by more.",
        records=SHOWN,
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
