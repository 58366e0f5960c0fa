"""What went wrong in a run, and where: findings with their evidence, the step, and what helps or would tell.

1. Divergence, with its first bad tensor, as a replay or the recorder found it; a residual stream that exploded.
2. What is trained on: a mask that shows the future, other targets than the next token, the same batch at every update,
   positions that are all the same. What came of it: overfitting, a held-out loss that gains nothing, a loss worse than
   guessing, updates that round away.
3. One-hot patterns out of reach, and gradients that vanish into W_Q and W_K behind them.
4. A head that only copies its own token, where no residual connection carries it past the head.
5. Entropy collapse. Attention scores that outgrew the softmax.
6. Update ratios out of band.
7. Weights that never move while others do; a loss that is no better than counting tokens.
8. Heads that look at every key alike, and heads that are copies of each other.
9. Dead heads, which write nothing, and idle heads, where a sweep measured what switching them off costs.

A sharp head is healthy: previous-token and induction heads look at one key. So no finding rests on its
entropy alone.
`RULES` says of each when it is found and why there. A remedy is named where the evidence singles it out; else the
causes that are left, and what would tell them apart (`causes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from tracer.diagnosis import unused
from tracer.diagnosis.findings import Advice, Diagnosis, Finding, Kind, Severity
from tracer.diagnosis.own_rules import OwnRule, Rules, given_rules, rule, say_wrong
from tracer.diagnosis.rules import RULES, Rule, early
from tracer.diagnosis.told import TEXT, told
from tracer.diagnosis.verdict import RunVerdict, verdict
from tracer.diagnosis.words import report
from tracer.measures.aliases import Head
from tracer.store.layout import NothingRecorded

if TYPE_CHECKING:
    import xarray as xr

    from tracer.store import Run

Verdict = RunVerdict  # its name before it was told from that of a head

__all__ = [
    "RULES",
    "Advice",
    "Diagnosis",
    "Finding",
    "Head",
    "Kind",
    "OwnRule",
    "Rule",
    "RunVerdict",
    "Severity",
    "diagnose",
    "examine",
    "report",
    "rule",
    "verdict",
]


def diagnose(run: Run, rules: Rules = ()) -> list[Finding]:
    """Every finding of a run, the worst first; [] for a run in which nothing is known to be wrong.

    Source: ours, each finding names where its threshold is from. Reads the trace and the sweep, never the model.

        for finding in tracer.diagnose(tracer.open_run("four-blocks-0")):
            print(finding.step, finding.title, finding.evidence, finding.advice, sep="; ")

    `rules`: of a user's (`tracer.rule`), looked for beside ours, or `module:name`; one that raises is a RuntimeWarning
    with its name. What such rules found while the run trained is among the findings, as it was told, where they are not
    given again.
    `tracer diagnose four-blocks-0` prints the same.
    """
    if not hasattr(type(run), "trace"):  # asked of the run itself it would be read
        raise TypeError(f"diagnose takes a run, such as tracer.open_run(name), not {type(run).__name__}")
    return examine(run, rules).findings


def examine(run: Run, rules: Rules = (), before: bool = True, trace: xr.Dataset | None = None) -> Diagnosis:
    """`diagnose`, with what there was to look for; `before`: with what rules that are not given found as it trained.

    `trace`: the run's, where it has been read already.
    """
    own = cast("dict[Kind, Rule]", given_rules(rules))
    asked = RULES | own
    trace, effects = _every_update(run, _trace(run) if trace is None else trace), unused.swept(run)
    begun = searches(run.meta, trace, asked) | ({} if effects is None else {"idle": unused.idle(effects)})
    known: list[Kind] = [kind for kind, row in asked.items() if kind in begun and row.can_see(run.meta, trace)]
    found: list[Finding] = []
    wrong: dict[Kind, str] = {}
    for kind in known:
        try:
            found += list(begun[kind])
        except ValueError as error:  # which a user's rule makes of every error
            if kind not in own:
                raise
            wrong[kind] = str(error)
            say_wrong(wrong[kind])
    then = told(run, trace, RULES.keys() | (set(known) - wrong.keys())) if before else []
    texts: dict[Kind, str] = {kind: row.text for kind, row in asked.items()}
    texts |= {one.kind: TEXT for one in then}
    return Diagnosis(
        sorted([*found, *then], key=lambda one: (one.kind != "divergence", one.severity != "bad", one.step)),
        [row.name for kind, row in asked.items() if kind in known and kind not in wrong],
        [row.name for kind, row in asked.items() if kind not in known],
        texts,
        list(wrong.values()),
        {kind: row.name for kind, row in asked.items()},
        early(trace),
    )


def searches(
    meta: dict[str, Any], trace: xr.Dataset, rules: Mapping[Kind, Rule] = RULES
) -> dict[Kind, Iterator[Finding]]:
    """What looks for each kind in a trace. None begins before it is asked; it reads what its rule needs."""
    return {kind: row.search(meta, trace) for kind, row in rules.items() if row.search is not None}


def _trace(run: Run) -> xr.Dataset:
    try:
        trace = run.trace.drop_vars("pattern", errors="ignore")
    except NothingRecorded:
        import xarray as xr

        return xr.Dataset()
    return trace.load()  # a part that is damaged is an error: nothing was found there, and nothing looked for


def _every_update(run: Run, trace: xr.Dataset) -> xr.Dataset:
    """The trace with what was measured at every update, not at the records only."""
    updates = run.updates if trace.sizes else None
    if updates is None or "same_batch" not in updates:
        return trace
    return trace.assign(same_batch=updates["same_batch"].rename(step="update").load())
