"""How weights and their gradients move: of each tensor, and of each head's own slice."""

from tracer.measures.measure import HEAD_MATRIX, PARAM, Measure

# fmt: off
WEIGHTS = (
    Measure(
        name="grad_norm", label="Gradient norm", short="g", low=0,
        formula="l2 norm of the gradient of the training loss, before clipping",
        source="ours",
        probe="train", dims=PARAM,
        note="Grows with the size of the tensor."
    ),
    Measure(
        name="grad_norm_clipped", label="Clipped gradient norm", short="gc", low=0,
        formula="l2 norm of the gradient of the training loss, after clipping: what the optimiser is given",
        source="ours",
        probe="train", dims=PARAM,
        note="The gradient norm itself where nothing is clipped."
    ),
    Measure(
        name="weight_norm", label="Weight norm", short="w", low=0,
        formula="l2 norm of the weights",
        source="ours",
        probe="weights", dims=PARAM,
        note="Grows with the size of the tensor."
    ),
    Measure(
        name="update_ratio", label="Update ratio", short="u", low=0,
        formula="||W_t+1 - W_t|| / ||W_t||, from the true step",
        source="CS231n notes, ratio of weights:updates; Karpathy, nn-zero-to-hero, lecture 4",
        probe="train", dims=PARAM,
        note="Read it as a power of ten. 1e-3 is a rule of thumb from SGD; Adam and Muon are often higher early on. "
             "Undefined for weights that are all 0."
    ),
    Measure(
        name="head_grad_norm", label="Gradient norm of a head", short="g", low=0,
        formula="l2 norm of the gradient of the head's own slice of W_Q, W_K, W_V or W_O, before clipping",
        source="ours",
        probe="train", dims=HEAD_MATRIX,
        note="Q and K move the pattern, V and O what is written; they often move at different times."
    ),
    Measure(
        name="head_grad_norm_clipped", label="Clipped gradient norm of a head", short="gc", low=0,
        formula="l2 norm of the gradient of the head's own slice of W_Q, W_K, W_V or W_O, after clipping",
        source="ours",
        probe="train", dims=HEAD_MATRIX
    ),
    Measure(
        name="head_weight_norm", label="Weight norm of a head", short="w", low=0,
        formula="l2 norm of the head's own slice of W_Q, W_K, W_V or W_O",
        source="ours",
        probe="weights", dims=HEAD_MATRIX
    ),
    Measure(
        name="head_update_ratio", label="Update ratio of a head", short="u", low=0,
        formula="||W_t+1 - W_t|| / ||W_t|| of the head's own slice of W_Q, W_K, W_V or W_O",
        source="as update_ratio",
        probe="train", dims=HEAD_MATRIX,
        note="Read it as a power of ten."
    ),
)
# fmt: on
