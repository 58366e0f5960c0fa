"""What there is one of in a model: its losses, its clock, its learning rate, its stream."""

from tracer.measures.chance import KNOWS_NOTHING, knows_nothing
from tracer.measures.measure import Measure

# fmt: off
SCALARS = (
    Measure(
        name="train_loss", label="Training loss", short="train", unit="nats", low=0, worse="high",
        formula="mean cross-entropy of the next token on the batch of that step",
        source="standard",
        probe="train", dims=("step",),
        note="exp of it is the perplexity. A mixed source counts with its share of rows.", chance_text=KNOWS_NOTHING,
        chance=knows_nothing
    ),
    Measure(
        name="val_loss", label="Validation loss", short="val", unit="nats", low=0, worse="high",
        formula="mean cross-entropy of the next token on held-out text",
        source="standard",
        probe="held_out", dims=("step",),
        note="exp of it is the perplexity.", chance_text=KNOWS_NOTHING, chance=knows_nothing
    ),
    Measure(
        name="loss_by_position", label="Loss by position", short="loss", unit="nats", low=0, worse="high",
        formula="mean cross-entropy at each position, which predicts the next token",
        source="Olsson et al. 2022, 2D in-context plots",
        probe="text", dims=("step", "pos"),
        note="Later positions know more; how much more is in-context learning.", chance_text=KNOWS_NOTHING,
        chance=knows_nothing
    ),
    Measure(
        name="icl_score", label="In-context learning score", short="ICL", unit="nats", palette="diverging",
        formula="mean loss of the last eighth of a row after the whole context minus after a tenth of it, same tokens",
        source="Olsson et al. 2022 (tokens 500 and 50 of 512); the same tokens twice is ours",
        probe="text", dims=("step",),
        note="Negative means that context helps. The same tokens with and without it: one token here and another there "
             "differ by far more than context does.", chance_text="a model that makes no use of context",
        chance=lambda setting: 0.0
    ),
    Measure(
        name="repeat_loss", label="Loss on repeated tokens", short="repeat", unit="nats", low=0, worse="high",
        formula="mean loss at positions 2L+1 .. 3L-1: tokens s_2 .. s_L of the second copy",
        source="Olsson et al. 2022",
        probe="repeat", dims=("step",),
        note="Only copying can bring it down; the first token of the copy is left out, as nothing announces it.",
        chance_text=KNOWS_NOTHING, chance=knows_nothing
    ),
    Measure(
        name="first_copy_loss", label="Loss on such tokens when new", short="first", unit="nats", low=0,
        formula="mean loss at positions 1 .. 2L-1: the tokens before the second copy",
        source="ours, the control of repeat_loss",
        probe="repeat", dims=("step",),
        note="These tokens are random, so it stays at or above chance; a model of text rises above it.",
        chance_text=KNOWS_NOTHING, chance=knows_nothing
    ),
    Measure(
        name="tokens_seen", label="Training tokens seen", short="tokens", unit="tokens", low=0,
        formula="step * batch size * context length",
        source="standard",
        probe="clock", dims=("step",)
    ),
    Measure(
        name="step_ms", label="Time of a step", short="ms", unit="ms", low=0,
        formula="wall time of one training step, mean since the last record, without recording",
        source="standard",
        probe="clock", dims=("step",)
    ),
    Measure(
        name="tokens_per_second", label="Throughput", short="tok/s", unit="tokens/s", low=0,
        formula="tokens that the model was called with, in all processes, over the time of the step without recording",
        source="standard",
        probe="clock", dims=("step",)
    ),
    Measure(
        name="learning_rate", label="Learning rate", short="lr", low=0,
        formula="warm-up, then constant",
        source="standard",
        probe="train", dims=("step",)
    ),
    Measure(
        name="resid_rms", label="Size of the residual stream", short="rms", low=0,
        formula="root mean square of a vector, median over tokens; depth 0 enters the first block, depth d leaves "
                "block d",
        source="Heimersheim and Turner 2023 follow norms through depth; the root mean square and the median are ours",
        probe="text", dims=("step", "depth"),
        note="A norm in front of a sublayer hides its size. The median, as a few tokens may be far larger than the "
             "rest."
    ),
    Measure(
        name="clip_factor", label="Gradient clipping factor", short="clip", low=0, high=1,
        formula="norm of all gradients after clipping over that before it, at most 1",
        source="Pascanu et al. 2013",
        probe="train", dims=("step",),
        note="1: nothing was clipped. Clipping by norm multiplies every gradient by it."
    ),
    Measure(
        name="same_batch", label="Batch equal to the one before", short="same", low=0, high=1,
        formula="1 where the update's batch is that of the update before it, else 0",
        source="ours",
        probe="train", dims=("step",),
        note="By a fingerprint of all tensors that the model is called with, of up to 4,096 numbers of each."
    ),
    Measure(
        name="unmoved", label="Weights that did not change", short="still", low=0, high=1,
        formula="median over matrices: share of up to 4,096 weights equal, to the bit, to those of the record before",
        source="ours",
        probe="weights", dims=("step",),
        note="1 where updates are 0 or round away; rows of an embedding whose tokens did not come stay as well."
    ),
    Measure(
        name="unigram_loss", label="Loss of counting tokens", short="count", unit="nats", low=0,
        formula="mean -ln of each next token's share of the tokens in earlier batches, on the batch of that step",
        source="standard",
        probe="train", dims=("step",),
        note="Every token counts once more than it was seen. Known once 64 were seen for each of the vocabulary.",
        chance_text=KNOWS_NOTHING, chance=knows_nothing
    ),
    Measure(
        name="bigram_loss", label="Loss of counting pairs", short="pairs", unit="nats", low=0,
        formula="mean -ln of each next token's share after the token before it, in earlier batches, on the batch of "
                "that step",
        source="standard",
        probe="train", dims=("step",),
        note="Of vocabularies of up to 512 tokens. Shares begin as those of single tokens, with the weight of 4 pairs.",
        chance_text=KNOWS_NOTHING, chance=knows_nothing
    ),
    Measure(
        name="copy_loss", label="Loss of copying", short="copies", unit="nats", low=0,
        formula="mean -ln p of each next token, on the batch of that step: p = h [it is what followed the same token "
                "last in this row] + (1 - h) (its share among the tokens in earlier batches)",
        source="ours",
        probe="train", dims=("step",),
        note="h: how often that was right in the batches of earlier records. A token that is new in its row gets its "
             "share.",
        chance_text=KNOWS_NOTHING, chance=knows_nothing
    ),
    Measure(
        name="common_token", label="Share of the most frequent token", short="common", low=0, high=1,
        formula="number of the most frequent token in the batch of that step, over that of all its tokens",
        source="standard",
        probe="train", dims=("step",),
        note="Padding counts, whether the loss leaves it out or not."
    ),
    Measure(
        name="silent_rows", label="Rows without gradient", short="silent", low=0, high=1,
        formula="share of the rows of that step's batch in which the gradient of every logit is exactly 0",
        source="ours",
        probe="train", dims=("step",),
        note="Of models that return the logits of which the loss is taken."
    ),
    Measure(
        name="shifted_loss", label="Loss against other targets", short="shift", unit="nats", low=0,
        formula="mean cross-entropy of the batch's logits against the token before, the token itself, the next, the "
                "one after it, and the row read backwards (from its last token, from the last but one); last, of the "
                "next token where the probabilities are taken for logits",
        source="ours",
        probe="train", dims=("step", "target"),
        note="The one that equals the training loss is what the model is trained to predict.",
        chance_text=KNOWS_NOTHING, chance=knows_nothing
    ),
    Measure(
        name="future_effect", label="Effect of later tokens", short="leak", low=0,
        formula="root mean square change of the logits in front of the middle of a row as its second half is replaced, "
                "over their standard deviation",
        source="ours",
        probe="train", dims=("step",),
        note="0 where attention is causal; more where a mask shows the future, as an encoder's does on purpose."
    ),
    Measure(
        name="row_effect", label="Effect of other rows", short="rows", low=0,
        formula="root mean square change of the logits of a row as the row beside it, the same once more, gets its "
                "tokens in another order, over their standard deviation",
        source="ours",
        probe="train", dims=("step",),
        note="0 where each row is read by itself; more where something mixes the rows of a batch."
    ),
)
# fmt: on
