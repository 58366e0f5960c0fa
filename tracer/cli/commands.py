"""The command line: every command is a function, its help its docstring, its status what it returns."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from tracer.cli import configs, serving, settings, trainings
from tracer.cli.demo import demo
from tracer.cli.ls import ls
from tracer.cli.output import say, say_json
from tracer.cli.serving import HERE
from tracer.cli.watch_run import watch_run
from tracer.config import DRAWS, TrainConfig
from tracer.presets import PRESETS
from tracer.store.descriptors import raise_descriptors, silence

if TYPE_CHECKING:
    import xarray as xr

EXIT_USAGE, EXIT_DIVERGED, EXIT_CLAIM, EXIT_SICK, EXIT_DAMAGED, EXIT_STOPPED = 2, 3, 4, 5, 6, 130
NARROWEST = 40
"""Columns in which help can be set; of 1 it never ends."""
EXIT_OF_RUN = {"diverged": EXIT_DIVERGED, "stopped": EXIT_STOPPED}

Tracker = Literal["wandb", "tensorboard", "mlflow", "trackio"]
Config = Annotated[TrainConfig, tyro.conf.arg(name="")]
ConfigFile = Annotated[str, tyro.conf.arg(name="config")]


def main(args: list[str] | None = None) -> None:
    """Train small transformers and watch every attention head: `tracer COMMAND --help`, `tracer --version`."""
    _run(sys.argv[1:] if args is None else args)


def manyeyes(args: list[str] | None = None) -> None:
    """The command `manyeyes`, which is `tracer view`."""
    args = ["view", *(sys.argv[1:] if args is None else args)]
    _run(args[1:] if args[1:] == ["--version"] else args)


def _run(args: list[str]) -> None:
    """Read the words of a command line, do what they say, and end the program with its status."""
    raise_descriptors()
    sys.stdout, sys.stderr = (stream or io.StringIO() for stream in (sys.stdout, sys.stderr))  # `>&-`
    if isinstance(sys.stdout, io.TextIOWrapper):  # a letter that the locale (LC_ALL=C) lacks ends no list
        sys.stdout.reconfigure(errors="replace")
    if shutil.get_terminal_size().columns < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so starts what a script runs with &; Stop is sent as Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.showwarning = _warn
    if args == ["--version"]:
        say(f"manyeyes {version('manyeyes')}")
        return
    try:
        status = _commands(args).cli(
            prog="tracer", description=main.__doc__, args=args or ["--help"], registry=settings.registry()
        )
    except BrokenPipeError:  # nobody reads on (`tracer ls | head`)
        silence()
        status = 0
    except (settings.WrongSetting, ValueError, OSError, MemoryError) as error:  # mistakes of a user: one line is enough
        sys.stderr.write(f"error: {str(error) or 'not enough memory'}\n".encode("utf-8", "replace").decode())
        status = EXIT_USAGE
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        sys.stderr.write(f"error: not enough memory for that: {str(error).splitlines()[0]}\n")
        status = EXIT_USAGE
    except KeyboardInterrupt:
        say("interrupted; `tracer resume RUN` goes on if training had begun, else start it again the same way")
        status = EXIT_STOPPED
    sys.exit(EXIT_OF_RUN.get(status, 0) if isinstance(status, str) else status)


def _warn(message: Warning | str, kind: type[Warning], *_: object, **__: object) -> None:
    """What a command has to say: a line, without the place in its code that says it."""
    sys.stderr.write(f"{message}\n" if issubclass(kind, RuntimeWarning) else f"{kind.__name__}: {message}\n")


def _commands(args: list[str]) -> tyro.extras.SubcommandApp:
    app, presets = tyro.extras.SubcommandApp(), tyro.extras.SubcommandApp()
    if args[:1] in (["train"], ["fork"]) and (corpus := _value(args, "--data.corpus")):
        configs.allow(corpus)
    if args[:1] in (["train"], ["fork"]):
        configs.name_clamps(_values(args, "--clamp"))
    # a file or a parent is opened before the options are read: its settings are their defaults
    if args[:1] == ["train"] and (path := _value(args, "--config")):
        theirs, preset = configs.read(path)
        said = [one for one in configs.ALONE if _value(args, f"--{one}")]
        app.command(name="train", help=f"Train what {path} says; any of its settings can be overridden.")(
            _train(preset, theirs, from_file=True, code=configs.code(path, said))
        )
    else:
        for name, preset in PRESETS.items():
            presets.command(name=name, help=preset.description)(_train(name, preset.config))
        app.command(presets, name="train", help="Train a preset, or --config FILE; any setting can be overridden.")
    named = args[1] if args[:1] == ["fork"] and len(args) > 1 and not args[1].startswith("-") else None
    for command in (
        resume, _fork(named), sweep, diagnose, watch_run, check, open, ls, export, demo, _view(args), reproduce,
    ):  # fmt: skip
        app.command(command)
    return app


def _view(args: list[str]) -> Callable[..., int]:
    here = (_value(args, "--host") or HERE[0]) in HERE

    def view(
        runs: tyro.conf.Positional[tuple[str, ...]] = (), /, host: str = HERE[0], port: int | None = None,
        read_only: bool = not here, browser: bool = here and sys.stdin.isatty(), build: tuple[str, ...] = (),
        token: bool = False, layout: str | None = None, pages: str | None = None, clamp: tuple[str, ...] = (),
        measures: tuple[str, ...] = (), tests: tuple[str, ...] = (), roles: tuple[str, ...] = (),
    ) -> int:  # fmt: skip
        """Open the dashboard in the browser: every run of a folder, or one run, or the offer to train the demo.

        Without a name it shows the runs below checkpoints/, or below the folders that MANYEYES_RUNS names.
        `manyeyes` is the same command. Ctrl-C ends it.

        Args:
            runs: A run (its name under checkpoints/, its directory or its URL), or folders of runs, or their URLs.
            host: Where to listen. Any other name than localhost lets others in: they are asked for a token, which is
                printed here or taken from MANYEYES_TOKEN.
            port: Default: the first free one from 8501.
            read_only: Let nobody start or stop anything, or name a path. Default: when others are let in.
            browser: Open the page. Default: when a person is at the terminal, and the page is for this machine.
            build: Functions, as module:function, that may run to build models of runs that name the same ones
                (`tracer.watch(..., build=...)`), from modules that can be imported from here. The code runs with your
                rights.
            token: Ask everybody for a token, also on localhost. Linux tells accounts apart: there other accounts of
                this machine are asked anyway, and you are not. macOS does not.
            layout: A YAML or JSON file that says where such models keep what writes to their residual stream (the
                fields of tracer.Layout), for runs that do not say it themselves.
            pages: A folder of pages of your own: each file.py with `def page(run, selection)`, in Streamlit, stands in
                the menu. The code runs with your rights, for everybody who opens the page.
            clamp: Clamps that are functions, "L1H2 = module:function", which may run where a run was trained with the
                same ones. The code runs with your rights.
            measures: Measures of your own, as module:name, that Find takes over a corpus too. The code runs with your
                rights.
            tests: Tests of your own on the verdict card of Ablate (tracer.head_test), as module:name. The code runs
                with your rights.
            roles: Roles of heads of your own on Circuits (tracer.role), as module:name.
        """
        return serving.view(
            runs, host, port, read_only, browser, build, token, layout, pages, clamp, measures, tests, roles
        )  # fmt: skip

    return view


def _value(args: list[str], option: str) -> str | None:
    """What follows an option; None where it is not given."""
    for word, following in zip(args, [*args[1:], None], strict=False):
        if word == option or word.startswith(f"{option}="):
            return following if word == option else word.partition("=")[2]
    return None


def _values(args: list[str], option: str) -> list[str]:
    """All that follows an option, up to the next."""
    found: list[str] = []
    for i, word in enumerate(args):
        if word == option:
            found += itertools.takewhile(lambda one: not one.startswith("--"), args[i + 1 :])
        elif word.startswith(f"{option}="):
            found.append(word.partition("=")[2])
    return found


Settings = tyro.conf.UseAppendAction[Sequence[tuple[str, ...]]]
"""--set a=1 b=2, or --set a=1 --set b=2: without it the last would replace the others, silently."""


def _train(
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


def _fork(named: str | None) -> Callable[..., str]:
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


def sweep(
    run: str,
    /,
    modes: tuple[Literal["zero", "mean", "resample"], ...] = ("zero", "mean", "resample"),
    steps: tuple[int, ...] | None = None,
    draws: int = DRAWS,
    frozen: bool = False,
    build: str | None = None,
    json: bool = False,
    metric: str | None = None,
    tokens: str | None = None,
    layout: str | None = None,
    clamp: tuple[str, ...] = (),
) -> int:
    """Switch every head off by itself at every snapshot, and keep what it costs in the run (`run.effects`).

    Another metric, or other tokens, are kept apart (`run.own_effects`). What is there already is not computed again.
    `accelerate launch -m tracer sweep RUN` shares the work.

    Args:
        run: A name under checkpoints/, or a directory.
        modes: What is put in place of a head's output.
        steps: Only these snapshots.
        draws: Other sequences that resample takes a replacement from, for a mean.
        frozen: Hold every pattern at the clean run's.
        build: The function, as module:function, that builds the model, where the run names the same one; it runs.
        json: Print, as JSON, where the numbers are and what they are of.
        metric: What is measured instead of the loss: kl (KL to the model with nothing off), or a function of (logits,
            targets, clean) as module:name, from a module that can be imported from here; it runs.
        tokens: A file to measure on instead of the run's probes: whole numbers [sequence pos] in .npy, or text.
        layout: A YAML or JSON file of a tracer.Layout for that model, where the run does not say it: passes then begin
            at the layer of a head.
        clamp: The clamps of the run that are functions, "L1H2 = module:function"; they run.
    """
    from accelerate import PartialState

    from tracer.analysis.run_sweep import sweep_run
    from tracer.huggingface import building
    from tracer.store import open_run
    from tracer.training.progress import Bar

    building.allow(*([build] if build else []), layout=layout)
    configs.name_clamps(clamp)
    opened = open_run(run)
    try:
        with contextlib.nullcontext() if json else Bar("sweeping", "ablations") as bar:
            found = sweep_run(
                opened, modes, steps, draws, frozen, bar.update if bar else None, metric=metric, tokens=tokens
            )
    except KeyboardInterrupt:
        if PartialState().is_main_process:
            say(f"stopped; `tracer sweep {run}` goes on where it stopped")
        return EXIT_STOPPED
    if PartialState().is_main_process:
        n = found.sizes["step"]
        if json:
            say_json(
                run=opened.name, effects=str(opened.dir / "effects.zarr"), steps=found["step"].values.tolist(),
                modes=found["mode"].values.tolist(), probes=found["probe"].values.tolist(),
                **{name: found["effect"].attrs[name] for name in ("metric", "tokens") if name in found["effect"].attrs},
            )  # fmt: skip
            return 0
        say(f"{opened.name}: {n} snapshot{'s' * (n != 1)} swept, into {opened.dir / 'effects.zarr'}")
        if metric:
            say(_largest(found))
    return 0


def _largest(found: xr.Dataset) -> str:
    """The heads that a metric of a person's own changes most with, at the last step."""
    effect = found["effect"].isel(step=-1)
    effect = effect.mean([dim for dim in effect.dims if dim not in ("layer", "head")])
    heads = effect.stack(of=("layer", "head")).dropna("of")
    order = abs(heads.values).argsort()[::-1][:8]
    told = [f"L{heads['layer'].values[i]}H{heads['head'].values[i]} {heads.values[i]:+.4g}" for i in order]
    return f"at step {int(found['step'][-1])}, mean over modes and probes: {', '.join(told)}"


def diagnose(run: str, /, why: bool = False, json: bool = False, rules: tuple[str, ...] = ()) -> int:
    """Say what went wrong in a run, the worst first: evidence, since when, in which heads, and what helps.

    The exit status is 0 when nothing bad was found (there may be something to watch), 5 otherwise.

    Args:
        run: A name under checkpoints/, or a directory.
        why: Say also when each finding is made, and where its numbers come from.
        json: Print the findings as JSON.
        rules: Rules of your own, as module:name, looked for beside ours.
    """
    from tracer.diagnosis import examine, report
    from tracer.store import open_run

    opened = open_run(run)
    diagnosis = examine(opened, rules)
    if json:
        say_json(run=opened.name, **asdict(diagnosis))
    else:
        say(report(opened.name, diagnosis, why))
    return EXIT_SICK if any(one.severity == "bad" for one in diagnosis.findings) else 0


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


def open(
    model: str, /, run: str | None = None, revisions: tuple[str, ...] = (), keep_weights: bool = True,
    bos: bool | None = None, json: bool = False, layout: str | None = None,
) -> int:  # fmt: skip
    """Measure every head of a causal Hugging Face model; each checkpoint is a step of the run.

    Args:
        model: A local directory (its checkpoint-N folders are steps), or a name on the hub.
        run: Name under checkpoints/, or a directory. Default: the model's name.
        revisions: Names on the hub whose numbers are steps: step0 step1000 step143000; step0:step5000 for those
            between, or all.
        keep_weights: --no-keep-weights removes each revision's weights from the cache of the hub once it is read,
            where this command downloaded them. What is measured stays; Circuits and Ablate need weights.
        bos: Begin every sequence with the start token. Default: when the tokenizer has one.
        json: Print, as JSON, which run was made.
        layout: A YAML or JSON file of a tracer.Layout: where a model of no known architecture keeps what writes to its
            residual stream, for Circuits and logit attribution.
    """
    from tracer.watching.opening import open_hf

    def tell(done: int, of: int, step: int) -> None:
        if not json:
            say(f"step {step} measured ({done} of {of})")

    made = open_hf(
        model, run, revisions=revisions or None, bos=bos, keep_weights=keep_weights, progress=tell, layout=layout
    )
    if json:
        say_json(run=made.name, directory=str(made.dir), model=made.meta["class"], layers=made.meta["layers"],
               steps=made.steps)  # fmt: skip
        return 0
    say(f"{made.name}: {made.meta['class']}, {len(made.about.layers)} layers, into {made.dir}")
    return 0


def export(
    run: str, directory: str, /, step: int | None = None,
    to: Literal["huggingface", "transformer-lens"] = "huggingface",
) -> int:  # fmt: skip
    """Write the model of a run for another library; its logits stay the same.

    Args:
        run: A name under checkpoints/, or a directory.
        directory: Where to write; it must be new or empty.
        step: The model after this many updates instead of the last snapshot.
        to: huggingface writes what AutoModelForCausalLM and AutoTokenizer open; transformer-lens a TransformerBridge,
            with the lines of Python that open it in README.md.
    """
    from transformers.utils import logging

    from tracer.export.bridge import save_bridge
    from tracer.export.to_huggingface import own_model, to_huggingface
    from tracer.store import open_run

    logging.disable_progress_bar()
    if to == "transformer-lens":
        save_bridge(own_model(open_run(run), step), directory)
        say(f"TransformerBridge written: {directory}/README.md has the lines that open it")
        return 0
    model = to_huggingface(open_run(run), directory, step)
    say(f"{type(model).__name__} written: AutoModelForCausalLM.from_pretrained({directory!r}) opens it")
    return 0


def reproduce(
    names: tyro.conf.Positional[tuple[str, ...]] = (),
    /,
    size: Literal["small", "published"] = "small",
    corpus: str | None = None,
    seeds: tuple[int, ...] = (0,),
    table: bool = False,
    json: bool = False,
) -> int:
    """Train specimens that are not trained yet, run the exercises, and print what was published beside it.

    Args:
        names: Specimens, all by default.
        size: small, for a CPU, or as published, for a GPU.
        corpus: A text file or folder instead of python-stdlib.
        seeds: Of the weights and the order of the data; several are told as mean and range.
        table: Print the tables of what is trained already, and train nothing.
        json: Print the figures that the tables are made from.
    """
    from tracer.specimens import reproduce as series
    from tracer.specimens.claims import judged
    from tracer.specimens.exercises import EXERCISES
    from tracer.specimens.tables import as_json, tables

    asked = series.named(names)
    found = (series.trained if table else series.reproduce)(names, size, corpus, seeds)
    checks = {name: EXERCISES[name]().checks for name in asked if name in EXERCISES}
    say("\n" * (not table) + (as_json if json else tables)(found, checks))
    return 0 if all(verdict.holds is not False for verdict in judged(found)) else EXIT_CLAIM
