"""What went wrong in a run, and where: findings with their evidence, the step, and the usual remedy.

1. Divergence, with its first bad tensor, as the replay of the run found it; a residual stream that exploded.
2. One-hot patterns out of reach, and gradients that vanish into W_Q and W_K behind them.
3. A head that only copies its own token, where no residual connection carries it past the head.
4. Entropy collapse: entropy that fell while the loss got worse. Attention scores that outgrew the softmax.
5. Update ratios out of band.
6. Dead heads, which write nothing, and idle heads, where a sweep measured what switching them off costs.

A sharp head is healthy: previous-token and induction heads look at one key. So no finding rests on entropy alone.
`RULES` says of each when it is found and why there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.diagnosis import attention, growth, unused
from tracer.diagnosis.findings import Finding, Head, Kind, Severity, values
from tracer.diagnosis.rules import RULES, Rule
from tracer.diagnosis.words import report

if TYPE_CHECKING:
    import xarray as xr

    from tracer.store import Run

__all__ = ["RULES", "Finding", "Head", "Kind", "Rule", "Severity", "diagnose", "looked_for", "report"]


def diagnose(run: Run) -> list[Finding]:
    """Every finding of a run, the worst first; [] for a run in which nothing is known to be wrong.

    Source: ours, each finding names where its threshold is from. Reads the trace and the sweep, never the model.

        for finding in tracer.diagnose(tracer.open_run("four-blocks-0")):
            print(finding.step, finding.title, finding.evidence, finding.remedy, sep="; ")

    `tracer diagnose four-blocks-0` prints the same.
    """
    found = list(growth.divergence(run.meta))
    trace = _trace(run)
    if trace is not None and trace.sizes["step"]:
        found += [
            *attention.one_hot(trace), *attention.vanishing(trace), *attention.stands_in(run, trace),
            *attention.collapse(trace), *attention.scores(trace), *growth.residual(run.meta, trace),
            *growth.updates(trace), *unused.dead(trace), *unused.idle(run),
        ]  # fmt: skip
    return sorted(found, key=lambda finding: (finding.kind != "divergence", finding.severity != "bad", finding.step))


def looked_for(run: Run) -> tuple[list[str], list[str]]:
    """The names of the rules that this run holds the numbers for, and of those that it does not."""
    trace = _trace(run)
    held = {
        kind: not rule.needs if trace is None else all(values(trace, name) is not None for name in rule.needs)
        for kind, rule in RULES.items()
    } | {"idle": unused.swept(run) is not None}
    return [RULES[kind].name for kind in RULES if held[kind]], [RULES[kind].name for kind in RULES if not held[kind]]


def _trace(run: Run) -> xr.Dataset | None:
    try:
        return run.trace.drop_vars("pattern", errors="ignore").load()
    except ValueError:
        return None
