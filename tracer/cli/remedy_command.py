"""`tracer remedy`: what would have helped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracer.cli.output import EXIT_SICK, EXIT_STOPPED, say, say_json

if TYPE_CHECKING:
    from tracer.diagnosis.futures import Future

ROW = "{:<11} {:<9} {:<15} {:>13} {:>8}  {}"


def remedy(
    run: str, /, finding: str | None = None, tries: tuple[str, ...] = (), before: int | None = None,
    until: int | None = None, json: bool = False, measures: tuple[str, ...] = (), probes: tuple[str, ...] = (),
    scalars: tuple[str, ...] = (), corpus: str | None = None, clamp: tuple[str, ...] = (), loss: str | None = None,
) -> int:  # fmt: skip
    """Train a run again from before a finding: as it was, and with each change that may help, one at a time.

    Each is a run of its own, RUN-FINDING-NAME; what is there already is not trained again. One seed of each: what helps
    here is a lead. The exit status is 5 where nothing helped.

    Args:
        run: A name under checkpoints/, or a directory.
        finding: Its kind, as `tracer diagnose --json` names it; by default the worst.
        tries: Only these changes: rate, faster, warmup, clip, decay, no-decay, qk-clip, sigma, dropout, scale,
            qk-norm, sink, soft-cap, norm.
        before: Begin at the latest state that is kept at or before this step; by default before the finding.
        until: Train to this step; by default to where the run went, or some way past where it diverged.
        json: Print what came of each as JSON.
        measures: The measures, as module:name, that the run was trained with.
        probes: The probes, as module:name, that it was trained with.
        scalars: The functions, as module:name, that it was trained with.
        corpus: The function, as module:name, that made the data of the run, where one did; it runs.
        clamp: The clamps of the run that are functions, "L1H2 = module:function"; they run.
        loss: The function, as module:name, that it was trained on, where one was.
    """
    from tracer.store import open_run
    from tracer.training.remedy import plan, remedy

    what = plan(open_run(run), finding, tries=tries, before=before, until=until)
    if not json:
        say(what.words())
        say(ROW.format("", "status", "the finding", "held-out loss", "best", "what is changed"))
    try:
        found = remedy(
            what.run, what.finding, tries=tries, before=before, until=until, quiet=True,
            progress=None if json else lambda one: say(line(one)), measures=measures, probes=probes, scalars=scalars,
            corpus=corpus, clamp=clamp, loss=loss,
        )  # fmt: skip
    except KeyboardInterrupt:
        say(f"stopped; `tracer remedy {run}` goes on where it stopped")
        return EXIT_STOPPED
    helped = [one.name for one in found if one.helped]
    if json:
        say_json(run=what.run.name, finding=what.finding.kind, since=what.finding.step, start=what.start,
                 until=what.until, futures=[facts(one) for one in found])  # fmt: skip
    else:
        say(
            f"{what.finding.title}: gone with {', '.join(helped) or 'none of these'} (one seed each; > is what the "
            f"finding's advice names)"
        )
    return 0 if helped else EXIT_SICK


def line(one: Future) -> str:
    """What came of it, in one line."""
    since = "gone" if one.helped else "-" if one.since is None else f"since step {one.since:,}"
    losses = ("-" if math.isnan(x) else f"{x:.3f}" if x < 1e4 else f"{x:.1e}" for x in (one.loss, one.best))
    also = f"; bad, too: {', '.join(one.also)}" if one.also else ""
    return ROW.format(f"{'>' if one.named else ' '} {one.name}", one.run.status, since, *losses, one.words + also)


def facts(one: Future) -> dict[str, object]:
    """The same for programs."""
    return {
        "run": one.run.name, "name": one.name, "words": one.words, "named": one.named, "status": one.run.status,
        "helped": one.helped, "since": one.since, "also": list(one.also), "val_loss": one.loss,
        "best_val_loss": one.best,
    }  # fmt: skip
