"""Commands about runs and models that are there: sweep, diagnose, check, open, export, reproduce."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from tracer.cli import configs
from tracer.cli.output import EXIT_CLAIM, EXIT_DAMAGED, EXIT_SICK, EXIT_STOPPED, say, say_aside, say_json
from tracer.config import DRAWS

if TYPE_CHECKING:
    import xarray as xr


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
    quick: bool = False,
    page: str | None = None,
    toys: str | None = None,
) -> int:
    """Train what a paper needs and lacks, judge its claims, and print what was published beside what came out.

    The exit status is 0 where all claims hold, 1 where one fails or is weaker, 3 where one could not be decided, or its
    code raised. Of several papers, or of specimens, it is 4 where a claim does not hold.

    Args:
        names: A paper, such as edelman, or its folder, such as ./my-paper; or specimens of the tutorials, which are
            papers too, all by default.
        size: Of tutorials: small, for a CPU, or as published, for a GPU.
        corpus: Of tutorials: a text file or folder instead of python-stdlib.
        seeds: Of the weights and the order of the data; several are told together.
        table: Print what is known of what is trained already, and train nothing.
        json: Print the figures as JSON.
        quick: Of one paper: train no more than takes two minutes; what that cannot decide is not tested.
        page: Of one paper: write its words, with every claim and run in tables, into this file, as Markdown.
        toys: Of one paper: write its trained models into this new directory, for transformer-lens and Hugging Face,
            with their claims, the tests of their heads, and checksums.
    """
    from tracer.specimens.paper_folder import is_paper
    from tracer.specimens.paper_verdicts import DOES_NOT_HOLD
    from tracer.specimens.reproduction import reproduce
    from tracer.specimens.tutorials import named

    folders, one = named(names, size, corpus), len(names) == 1 and is_paper(names[0])
    of_one = {"--quick": quick or None, "--page": page, "--toys": toys}
    if not one and (which := [flag for flag, value in of_one.items() if value is not None]):
        raise ValueError(f"{which[0]} is of one paper: name it, as edelman or ./my-paper")
    if page is not None:
        folders[0].check_page(Path(page))
    if toys is not None:
        from tracer.export.to_huggingface import new_directory

        if not folders[0].paper.runs:
            raise ValueError(f"--toys: {folders[0].name} trains no model, so there is none to write")
        new_directory(toys)  # before hours of training
    tell = say_aside if json else say
    try:
        found = [reproduce(folder, seeds, quick=quick, train=not table, say=tell) for folder in folders]
    except KeyboardInterrupt:
        asked = ["--size", size] if size != "small" else []
        asked += ["--seeds", *map(str, seeds)] if seeds != (0,) else []
        asked += [f"--{flag}" for flag, on in (("quick", quick), ("json", json)) if on]
        for flag, value in (("--corpus", corpus), ("--page", page), ("--toys", toys)):
            asked += [flag, value] if value is not None else []
        tell(f"stopped; `{shlex.join(['tracer', 'reproduce', *names, *asked])}` goes on where it stopped")
        return EXIT_STOPPED
    if json:
        say_json(**(found[0].told if one else {"papers": [each.told for each in found]}))
    else:
        say("\n" * (not table) + "\n\n".join(map(str, found)))
    if page is not None:
        Path(page).write_text(found[0].page, encoding="utf-8")
        tell(f"page written: {page}")
    if toys is not None:
        from transformers.utils import logging

        logging.disable_progress_bar()
        written = found[0].write(toys)
        size_of = sum(path.stat().st_size for path in Path(toys).rglob("*") if path.is_file()) / 1e6
        models = f"{len(written)} model{'s' * (len(written) != 1)}"
        tell(f"{models} written, {size_of:.1f} MB: {toys}/README.md has the lines that open them")
    if one:
        return found[0].status
    return EXIT_CLAIM if any(each.status == DOES_NOT_HOLD for each in found) else 0
