"""Options of `tracer.watch(model, run=...)` that no recording can have."""

from __future__ import annotations

from pathlib import Path

from tracer.store import is_address


def refuse_wrong_options(
    run: str | Path, share: float, every: int | None, rows: int | None, start_step: int | None, again: bool,
    steps: tuple[int, int] | None,
) -> None:  # fmt: skip
    """ValueError, with what would do; `again`: is a run made again?"""
    if not 0 < share <= 1:
        raise ValueError(f"share={share} must be over 0 and at most 1: the part of training time for measuring")
    if every is not None and every < 1:
        raise ValueError(f"every={every} must be at least 1, or None to let `share` decide")
    if rows is not None and rows < 1:
        raise ValueError(f"rows={rows} must be at least 1: sequences of the first batch that are kept as the probe")
    if is_address(run):
        raise ValueError(
            f"run={str(run)!r} is an address: a training is recorded into a folder of this machine. Copy it there "
            f"afterwards: runs are read from addresses, and written to folders only"
        )
    if start_step is not None and start_step < 0:
        raise ValueError(f"start_step={start_step} must be at least 0: updates that were made before this job")
    if steps is not None and not again:
        raise ValueError(f"steps={steps} are those of a run that is made again: name it, replay=...")
