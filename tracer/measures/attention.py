"""What each head attends to: means over the rows of its pattern, and the pattern itself."""

from tracer.measures.chance import (
    UNIFORM,
    uniform_distance,
    uniform_entropy,
    uniform_fixed_distance,
    uniform_one_copy,
    uniform_one_key,
)
from tracer.measures.measure import HEAD, Measure

# fmt: off
ATTENTION = (
    Measure(
        name="entropy", label="Attention entropy", short="H", unit="nats", low=0,
        formula="H_q = -sum_k A_qk ln A_qk, mean over rows q >= 1 and sequences",
        source="Zhai et al. 2023 (2303.06296)",
        probe="text", dims=HEAD,
        note="Grows with the number of keys; exp(H) is the effective number of keys. Low is sharp, and sharp heads "
             "can be healthy: it is collapse only together with trouble in loss or gradient.",
        chance_text=UNIFORM, chance=uniform_entropy
    ),
    Measure(
        name="entropy_normalised", label="Normalised entropy", short="H/max", low=0, high=1,
        formula="H_q / ln(q + 1), mean over rows q >= 1 and sequences",
        source="ours: entropy over that of uniform attention to the same keys",
        probe="text", dims=HEAD,
        note="1 spreads over every key, 0 looks at one. Previous-token and induction heads are sharp (those of "
             "the demo end at 0.19 and 0.41) and healthy.",
        chance_text=UNIFORM, chance=lambda setting: 1.0
    ),
    Measure(
        name="confidence", label="Confidence", short="conf", low=0, high=1,
        formula="max_k A_qk, mean over rows q >= 1 and sequences",
        source="Voita et al. 2019 (1905.09418), there without the end-of-sentence token",
        probe="text", dims=HEAD,
        note="The weight of the one key that it looks at most: 1 is a head that always looks at one token, whichever.",
        chance_text=UNIFORM, chance=uniform_one_key
    ),
    Measure(
        name="previous_token", label="Previous-token attention", short="prev", low=0, high=1,
        formula="A_q,q-1, mean over rows q >= 1 and sequences",
        source="Olsson et al. 2022, Methods",
        probe="text", dims=HEAD,
        note="How much of its attention goes to the token just before: 1 is a head that only looks one back.",
        chance_text=UNIFORM, chance=uniform_one_key
    ),
    Measure(
        name="current_token", label="Current-token attention", short="self", low=0, high=1,
        formula="A_qq, mean over rows q >= 1 and sequences",
        source="ARENA 1.2, without row 0",
        probe="text", dims=HEAD,
        note="How much of its attention goes to the token it stands on.", chance_text=UNIFORM, chance=uniform_one_key
    ),
    Measure(
        name="first_token", label="First-token attention", short="first", low=0, high=1,
        formula="A_q0, mean over rows q >= 1 and sequences",
        source="Xiao et al. 2023 (2309.17453), attention sinks",
        probe="text", dims=HEAD,
        note="Where heads rest when nothing matches: high does not mean that the first token matters.",
        chance_text=UNIFORM, chance=uniform_one_key
    ),
    Measure(
        name="attended_distance", label="Mean attended distance", short="dist", unit="tokens", low=0,
        formula="sum_k A_qk |q - k|, mean over rows q >= 1 and sequences",
        source="Vig and Belinkov 2019 (1906.04284)",
        probe="text", dims=HEAD,
        note="How far back a head looks on average: a mean of 20 may be all at 20, or half at 0 and half at 40.",
        chance_text=UNIFORM, chance=uniform_distance
    ),
    Measure(
        name="fixed_distance", label="Fixed-distance attention", short="fixed", low=0, high=1,
        formula="max over d = 2 .. min(16, n_ctx / 2) of A_q,q-d, mean over rows q > d and sequences",
        source="Derived here: previous-token attention (Olsson et al. 2022) at other distances",
        probe="text", dims=HEAD,
        note="How much of its attention goes to the token d back, whatever it is, at the distance where that is most. "
             "Rows in which this is the first token are left out: heads rest there. Distances above 16 are not tried.",
        chance_text=UNIFORM, chance=uniform_fixed_distance
    ),
    Measure(
        name="fixed_distance_at", label="Fixed distance", short="at d", unit="tokens", low=0,
        formula="the d at which fixed_distance is largest",
        source="Derived here: where fixed_distance is found",
        probe="text", dims=HEAD,
        note="Every head has one: it says something only where fixed_distance is high."
    ),
    Measure(
        name="duplicate_token", label="Duplicate-token attention", short="dup", low=0, high=1,
        formula="sum of A_qk over keys k < q that hold the query's token, mean over the second copy q = 2L+1 .. 3L",
        source="Wang et al. 2022 (2211.00593), as mass per row",
        probe="repeat", dims=HEAD,
        note="Looks back at an earlier copy of the same token. Not the number of transformer_lens detect_head, "
             "which also averages over rows that cannot match.",
        chance_text="uniform attention on the same rows", chance=uniform_one_copy
    ),
    Measure(
        name="duplicate_control", label="Duplicate-token attention without a repeat", short="dup ctrl", low=0, high=1,
        formula="A_qk at the very keys of duplicate_token, in rows whose tokens q = 2L+1 .. 3L are new",
        source="Derived here: the control of duplicate_token",
        probe="control", dims=HEAD,
        note="What positions alone give duplicate_token: near that score where a head looks a fixed number of tokens "
             "back, near chance where it looks for the same token.",
        chance_text="uniform attention on the same rows", chance=uniform_one_copy
    ),
    Measure(
        name="induction", label="Induction score", short="ind", low=0, high=1,
        formula="sum of A_qk over keys k whose previous token is the query's, mean over the second copy q = "
                "2L+1 .. 3L",
        source="prefix matching, Olsson et al. 2022, Methods, as mass per row; periods L .. 2L are ours",
        probe="repeat", dims=HEAD,
        note="Half of an induction head: it looks at the token that came next last time, L to 2L tokens ago, another "
             "distance in each row. Read it beside its control. Whether it copies the token is another measure. Not "
             "the number of transformer_lens detect_head.",
        chance_text="uniform attention on the same rows", chance=uniform_one_copy
    ),
    Measure(
        name="induction_control", label="Induction score without a repeat", short="ctrl", low=0, high=1,
        formula="sum of A_qk over the very keys of the induction score, in rows whose tokens q = 2L+1 .. 3L are new",
        source="ours, the control of induction",
        probe="control", dims=HEAD,
        note="What positions alone give the induction score: near the score where a head looks a fixed number of "
             "tokens back, near chance where it follows the repeat.",
        chance_text="uniform attention on the same rows", chance=uniform_one_copy
    ),
    Measure(
        name="max_logit", label="Largest attention logit", short="max qk",
        formula="max over sequences, rows and visible keys of scale * q . k",
        source="Dehghani et al. 2023 (2302.05442); Wortsman et al. 2023 (2309.14322)",
        probe="text", dims=HEAD,
        note="Steady growth leads to one-hot rows and unstable training."
    ),
    Measure(
        name="pattern", label="Attention pattern", short="A", low=0, high=1,
        formula="A = softmax over keys of scale * q . k",
        source="Vaswani et al. 2017",
        probe="prompts", dims=("step", "prompt", "layer", "head", "query_pos", "key_pos"),
        note="Row: the token that looks. Column: the token it looks at. Kept in float16."
    ),
)
# fmt: on
