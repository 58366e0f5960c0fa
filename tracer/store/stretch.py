"""Which part of a training can be had again, from which kept state, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.store.run import Run


@dataclass(frozen=True)
class Stretch:
    """Steps `first` to `last` of a run, trained again from `start` to `stop`, where its weights are known."""

    run: Run
    first: int
    last: int
    start: int
    stop: int

    @property
    def seconds(self) -> float | None:
        """Of its updates, by what those of the run took; None where it does not say."""
        run, meta = self.run, self.run.meta
        done = meta["step"] - _begin(run)
        took = meta.get("cost", {}).get("training_seconds")
        return None if took is None or done <= 0 else took * (self.stop - self.start) / done

    def cost(self, every: int) -> str:
        """In words, what is about to be done, and how long the run says that it takes."""
        records = 1 + (self.stop - self.first) // every
        begins = f"kept state of step {self.start:,}" if self.start in self.run.state_steps else "beginning of the run"
        text = (
            f"{self.run.name}, steps {self.first:,} to {self.last:,}: {self.stop - self.start:,} updates from the "
            f"{begins}, about {records:,} records"
        )
        each = self.run.meta.get("cost", {}).get("recording_ms")
        if self.seconds is None or each is None:
            return text
        return f"{text}; about {self.seconds + records * each / 1000:,.0f} s at the run's own pace"


def stretch(run: Run, first: int, last: int) -> Stretch:
    """From where steps `first` to `last` can be had to the bit, and how far they can be compared.

    That is the nearest state at or before `first`, else the run's beginning, and the first snapshot at or after `last`.
    """
    trained, begin = min(run.meta["step"], run.config.steps), _begin(run)  # NotARun where it is not one of ours
    if not begin <= first < last <= trained:
        raise ValueError(
            f"{run.name} was trained from step {begin} to {trained}: give two of these steps, the earlier one first, "
            f"as in {begin}:{trained} (here {first}:{last})"
        )
    starts = [step for step in run.state_steps if step <= first]
    if not starts:
        parent = run.meta.get("parent")
        if parent and parent["optimizer"] == "continued":
            raise ValueError(
                f"{run.name} keeps no state at or before step {first}, and went on with the optimizer of "
                f"{parent['run']}: replay a later stretch, or {parent['run']} itself"
            )
        starts = [begin]  # the optimizer was fresh there
    start = max(starts)
    known = [step for step in run.steps if step >= last]
    return Stretch(run, first, last, start, min(known, default=last))


def _begin(run: Run) -> int:
    """The step that a run was trained from."""
    return (run.meta.get("parent") or {}).get("step", 0)
