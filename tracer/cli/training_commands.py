"""Commands that train: `tracer train`, `resume`, `fork` and `replay`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import tyro

from tracer.cli import configs, trainings
from tracer.cli.output import EXIT_CLAIM
from tracer.config import TrainConfig

Tracker = Literal["wandb", "tensorboard", "mlflow", "trackio"]
Config = Annotated[TrainConfig, tyro.conf.arg(name="")]
ConfigFile = Annotated[str, tyro.conf.arg(name="config")]
Settings = tyro.conf.UseAppendAction[Sequence[tuple[str, ...]]]
"""--set a=1 b=2, or --set a=1 --set b=2: without it the last would replace the others, silently."""


def train_command(
    preset: str | None, theirs: TrainConfig, from_file: bool = False, code: configs.Code = configs.NO_CODE
) -> Callable[..., str]:  # fmt: skip
    def train(
        config_file: ConfigFile = tyro.MISSING, config: Config = theirs, seeds: tuple[int, ...] = (),
        set: Settings = (), track: tuple[Tracker, ...] = (), overwrite: bool = False,
        measures: tuple[str, ...] = code["measures"], probes: tuple[str, ...] = code["probes"],
        scalars: tuple[str, ...] = code["scalars"], note: str = "", tags: tuple[str, ...] = (),
        rules: tuple[str, ...] = code["rules"], loss: str | None = next(iter(code["loss"]), None),
        build: str | None = next(iter(code["build"]), None), layout: str | None = None,
    ) -> str:  # fmt: skip
        """Train a run, or one for each seed and each value of each setting.

        Args:
            config_file: Settings in YAML or JSON: those of a preset that it may name, or a run.json.
            seeds: Train a run with each of these, one after the other.
            set: Train a run with each of these values: optim.lr=1e-3,3e-3 (several settings: every combination).
            track: Tell these experiment trackers what is recorded.
            overwrite: Replace runs of that name, if there are any.
            measures: Measures of heads of your own, as module:name of modules that can be imported from here. They run
                with your rights.
            probes: Rows of tokens of your own, as module:name, that every record is measured on.
            scalars: Functions f(model, step), as module:name, that give numbers at each record: {name: number, or an
                array of [layer] or [layer, head]}.
            note: What the page Runs shows beside the run.
            tags: Words by which runs are found: `tracer ls --find tag=WORD`.
            rules: Rules of your own, as module:name, looked for beside ours while it trains.
            loss: A function (logits, batch) of your own, as module:name, that is trained on instead of the next-token
                loss.
            build: A function of the configuration, as module:name, that makes the model: tokens [batch pos] to logits
                [batch pos d_vocab]. It runs with your rights.
            layout: A YAML or JSON file of a tracer.Layout for that model: where it keeps what writes to its residual
                stream.
        """
        if seeds or set:
            alone = {"loss": loss, "build": build, "layout": layout}
            own = {"measures": measures, "probes": probes, "scalars": scalars, "rules": rules}
            own |= {word: (name,) if name else () for word, name in alone.items()}
            return trainings.train_all(config, preset, seeds, sum(set, ()), track, overwrite, own, note, tags)
        from tracer.watching.train import train

        return train(
            config, preset=preset, track=track, overwrite=overwrite, measures=measures, probes=probes, scalars=scalars,
            note=note, tags=tags, rules=rules, loss=loss, build=build, layout=layout,
        ).status  # fmt: skip

    return train if from_file else functools.partial(train, "")


def resume(
    run: str, /, steps: int | None = None, measures: tuple[str, ...] = (), probes: tuple[str, ...] = (),
    scalars: tuple[str, ...] = (), corpus: str | None = None, rules: tuple[str, ...] = (), clamp: tuple[str, ...] = (),
    loss: str | None = None,
) -> str:  # fmt: skip
    """Go on with a run from its last resume point, to the bit.

    Args:
        run: A name under checkpoints/, or a directory.
        steps: Train up to this step instead of the planned one.
        measures: The measures, as module:name, that it was trained with.
        probes: The probes, as module:name, that it was trained with.
        scalars: The functions, as module:name, that it was trained with.
        corpus: The function, as module:name, that made the data of the run, where one did; it runs.
        rules: Rules of your own, as module:name, looked for beside ours.
        clamp: The clamps of the run that are functions, "L1H2 = module:function"; they run.
        loss: The function, as module:name, that it was trained on, where one was.
    """
    from tracer.training import loop

    return loop.resume(
        run, steps, measures=measures, probes=probes, scalars=scalars, corpus=corpus, rules=rules, clamp=clamp,
        loss=loss,
    ).status  # fmt: skip


STRETCH = re.compile(r"(\d+):(\d+)")


def replay(
    parent: str, steps: str, /, run: str | None = None, every: int = 1, snapshot_every: int | None = None,
    overwrite: bool = False, measures: tuple[str, ...] = (), probes: tuple[str, ...] = (),
    scalars: tuple[str, ...] = (), corpus: str | None = None, clamp: tuple[str, ...] = (), loss: str | None = None,
) -> str | int:  # fmt: skip
    """Train a stretch of a run again with every step recorded, and compare the weights with the run's to the bit.

    Training goes on from the nearest state that is kept before it; what comes out is a run of its own. The exit status
    is 4 where weights differ.

    Args:
        parent: A name under checkpoints/, or a directory.
        steps: The first and the last step, as 540:664.
        run: Name of the new run; by default the parent's with the steps.
        every: Record each step whose number it divides.
        snapshot_every: Keep weights and patterns every so many steps; by default as the parent does.
        overwrite: Replace the run of that name, if there is one.
        measures: The measures, as module:name, that the parent was trained with, and others.
        probes: The probes, as module:name, and others.
        scalars: The functions, as module:name, and others.
        corpus: The function, as module:name, that made the data of the parent, where one did; it runs.
        clamp: The clamps of the parent that are functions, "L1H2 = module:function"; they run.
        loss: The function, as module:name, that it was trained on, where one was.
    """
    from tracer.training import replay as replays

    if (found := STRETCH.fullmatch(steps)) is None:
        raise ValueError(f"{steps!r} is no stretch: write its first and its last step, as 540:664")
    first, last = map(int, found.groups())
    again = replays.replay(
        parent, first, last, every, run, overwrite=overwrite, snapshot_every=snapshot_every,
        measures=measures, probes=probes, scalars=scalars, corpus=corpus, clamp=clamp, loss=loss,
    )  # fmt: skip
    facts = again.meta.get("replay") or {}
    return again.status if facts.get("parts") is None else EXIT_CLAIM


def fork_command(named: str | None) -> Callable[..., str]:
    from tracer.store import open_run

    theirs = replace(open_run(named).config, run=None) if named else TrainConfig()

    def fork(
        parent: str, /, step: int, config: Config = theirs, *, overwrite: bool = False,
        measures: tuple[str, ...] = (), probes: tuple[str, ...] = (), scalars: tuple[str, ...] = (), note: str = "",
        tags: tuple[str, ...] = (), rules: tuple[str, ...] = (), loss: str | None = None,
    ) -> str:  # fmt: skip
        """Train a new run from a snapshot of another, on the batches that came next there, with its settings or others.

        Args:
            parent: A name under checkpoints/, or a directory.
            step: Where to begin: a step whose weights are kept. The optimizer goes on, too, where its state of that
                step is kept (--record.state-every of the parent); else it starts fresh.
            overwrite: Replace the run of that name, if there is one.
            measures: The measures, as module:name, that the parent was trained with, and others.
            probes: The probes, as module:name, and others.
            scalars: The functions, as module:name, and others.
            note: What the page Runs shows beside the run.
            tags: Words by which runs are found: `tracer ls --find tag=WORD`.
            rules: Rules of your own, as module:name, looked for beside ours.
            loss: The function, as module:name, that is trained on: the parent's, or another; next-token for none.
        """
        if parent != named:
            raise ValueError(
                f"name the parent first, its settings are the defaults: tracer fork {parent} --step {step}"
            )
        from tracer.training import loop

        return loop.fork(
            parent, step, config, overwrite=overwrite, measures=measures, probes=probes, scalars=scalars, note=note,
            tags=tags, rules=rules, loss=loss,
        ).status  # fmt: skip

    return fork
