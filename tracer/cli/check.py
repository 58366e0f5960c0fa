"""`tracer check`: is a run whole?"""

from __future__ import annotations

from tracer.cli.output import say

EXIT_DAMAGED = 6


def check(run: str, /) -> int:
    """Read every file of a run, compare it with its checksum, and name what is damaged.

    The exit status is 0 when all is whole, 6 otherwise; what is not named stays usable.

    Args:
        run: A name under checkpoints/, or a directory.
    """
    from tracer.store import resolve
    from tracer.store.check import check

    report = check(resolve(run))
    say(str(report))
    return EXIT_DAMAGED if report.damaged else 0
