"""Switch heads off and measure what it costs, exactly: every number comes from a forward pass with the heads replaced.

An ablation replaces z (a head's output before W_O) at all or some query positions:
    zero      z = 0
    mean      z = mean over the other sequences of a reference batch, at each position by itself
    resample  z = that of another sequence of the same batch (a seeded permutation without fixed points), mean of draws
    On rows that all repeat themselves (Probe R) the other sequences must not: a head that only signals a repeat writes
    the same in all of them, and stays on. Give `reference=probes.repeated(...).control`, as the card and the pages do.
    paired    z = that of the same row of a reference batch: clean and corrupted prompts (`patch` sweeps them)
The same is done to whole layers (`Attention`, `MLP`), to the attention mass of single query -> key edges (`Edge`), and
to what one head reads of an earlier one (`Path`).
`frozen=True` also holds every other pattern at the clean run's (Olsson et al. 2022, "pattern-preserving"), so that only
what the head writes through values changes. Effects are metric[ablated] - metric[clean].
"""

from tracer.ablate.effects import Effect, effect, pairs, sweep
from tracer.ablate.estimates import (
    Estimate,
    Null,
    agree,
    benjamini_hochberg,
    disagreements,
    estimate,
    holm,
    null,
    random_sets,
)
from tracer.ablate.gradient_estimates import attribution, integrated_gradients
from tracer.ablate.induction_tests import HeadTest
from tracer.ablate.many_sets import BUDGET, losses, metric_under_ablation
from tracer.ablate.metrics import AnyMetric, LogitDifference, LogProb, Loss, Metric, OwnMetric, Probability, kl
from tracer.ablate.outcomes import Repair, change, head_outcomes, outcomes, self_repair
from tracer.ablate.parts import MLP, Attention, Edge, Part, Path, check_heads
from tracer.ablate.patching import patch
from tracer.ablate.planner import Plans, averaged, freeze, inputs, planner, reference_z, zeroed
from tracer.ablate.search import Found, build_up, knock_down, repeat_gain
from tracer.ablate.verdict_card import Verdict, verdict
from tracer.interventions.replacements import DRAWS, MODES, Mode, derangement, plan
from tracer.measures.aliases import Head

Finding = HeadTest  # its name before it was told from that of a diagnosis

__all__ = [
    "BUDGET", "DRAWS", "MLP", "MODES", "AnyMetric", "Attention", "Edge", "Effect", "Estimate", "Found", "Head",
    "HeadTest", "LogProb", "LogitDifference", "Loss", "Metric", "Mode", "Null", "OwnMetric", "Part", "Path", "Plans",
    "Probability", "Repair", "Verdict", "agree", "attribution", "averaged", "benjamini_hochberg", "build_up", "change",
    "check_heads", "derangement", "disagreements", "effect", "estimate", "freeze", "head_outcomes", "holm", "inputs",
    "integrated_gradients", "kl", "knock_down", "losses", "null", "outcomes", "pairs", "patch", "plan", "planner",
    "random_sets", "metric_under_ablation", "reference_z", "repeat_gain", "self_repair", "sweep", "verdict", "zeroed",
]  # fmt: skip
