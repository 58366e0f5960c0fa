"""`tracer demo`: train the demo while the dashboard shows it, then say which heads do the work, with the proof."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace

from tracer.cli import serving
from tracer.cli.output import say
from tracer.config import TrainConfig
from tracer.presets import preset
from tracer.store import Run


def demo(
    run: str | None = None, seed: int = 0, steps: int | None = None, port: int | None = None,
    dashboard: bool = True, stay: bool | None = None,
) -> str:  # fmt: skip
    """Train the demo preset while the dashboard shows it live, then measure what its induction heads are for.

    Args:
        run: Name under checkpoints/, or a directory. Default: demo-SEED. A run that exists is continued or just shown.
        seed: Of the weights and the order of the data.
        steps: Number of updates, instead of the preset's.
        port: Where the dashboard listens. Default: the first free one from 8501.
        dashboard: Start the dashboard.
        stay: Keep the dashboard open afterwards. Default: only when a person is at the terminal.
    """
    config = preset("demo").config
    config = replace(config, run=run or f"demo-{seed}", seed=seed, steps=steps or config.steps)
    with contextlib.ExitStack() as stack:
        server = None
        if dashboard:
            server, at = stack.enter_context(serving.dashboard(port=port))
            say(f"dashboard: {serving.address('localhost', at, run=config.run or '')}")
        trained = _train_or_continue(config)
        if trained.status == "finished":
            say(verdict(trained))
        if server is not None and (sys.stdin.isatty() if stay is None else stay):
            say("The dashboard stays open; Ctrl-C ends it.")
            with contextlib.suppress(KeyboardInterrupt):
                server.wait()
        return trained.status


def _train_or_continue(config: TrainConfig) -> Run:
    from tracer.store import open_run, resolve
    from tracer.training.loop import resume, train

    directory = resolve(config.run or "demo")
    existing = open_run(directory) if (directory / "run.json").exists() else None
    if existing is None or (existing.resume_step() is None and not existing.live):  # ended before its first step
        return train(config, preset="demo")
    if existing.live:
        say(f"{existing.name} is being trained by another process")
        return existing
    if existing.status == "finished":
        say(f"{existing.name} is there already (finished); remove {directory} to train it again")
        return existing
    return resume(directory)


def verdict(run: Run) -> str:
    """Which heads are induction heads, what repeated-token loss does without them, and the card of the strongest."""
    import numpy as np
    import torch

    from tracer import ablate
    from tracer.analysis.prompt_attention import induction as induction_of
    from tracer.analysis.training_curves import course
    from tracer.data import probes
    from tracer.measures.strongest import induction_head

    rise = next((curve for curve in course(run.trace) if curve.name == "induction"), None)
    last_row = run.trace.isel(step=-1)
    scores, recorded, previous = (last_row[x].values for x in ("induction", "induction_control", "previous_token"))
    best = induction_head(scores, recorded)
    if best is None:
        return "strongest induction head        none stands out: no head's score is above its control, without a repeat"
    model = run.model()
    probe = probes.repeated(model.d_vocab, model.n_ctx)
    control = induction_of(model, probe.control, probe.second_copy, repeats=probe.tokens)
    last = model.n_layers - 1
    ranked = sorted(range(model.n_heads), key=lambda head: -scores[last, head])
    strong = [head for head in ranked if scores[last, head] > 0.4]
    layer, head = best
    p_layer, p_head = (int(i) for i in np.unravel_index(previous.argmax(), previous.shape))
    ahead, back, without = scores[layer, head], previous[p_layer, p_head], float(control[layer, head])
    lines = [
        f"strongest induction head        L{layer}H{head}  {ahead:.2f} of its attention goes to what came next before",
        f"  its control, without a repeat         {without:.2f} of it goes to the same places",
        f"strongest previous-token head   L{p_layer}H{p_head}  {back:.2f} of its attention on text goes one token back",
    ]

    if rise is not None and (formed := rise.change) is not None:
        lines.append(
            f"L{rise.heads[0][0]}H{rise.heads[0][1]} formed between step {formed.onset} and step {formed.end}, "
            f"half of the way at {formed.midpoint} (95 % interval {formed.low} to {formed.high})"
        )

    def cost(heads: list[tuple[int, int]]) -> float:
        with torch.inference_mode():
            return float(ablate.effect(model, probe.tokens, heads).delta[:, probe.predictable].mean())

    others = [(last, h) for h in reversed(ranked) if h not in strong][: max(len(strong), 1)]
    sets = {
        "the previous-token head": [(p_layer, p_head)],
        "the strongest induction head": [(layer, head)],
        "all induction heads of the last layer": [(last, h) for h in strong],
        "as many other heads of that layer": others,
    }
    costs = {name: cost(heads) for name, heads in sets.items() if heads}
    for name, change in costs.items():
        labels = " ".join(f"L{a}H{b}" for a, b in sets[name])
        lines.append(f"without {name:38} {change:+6.2f} nats on repeated tokens   ({labels})")
    if costs["the strongest induction head"] < 0.5:
        lines.append("A small effect of one head does not mean that it is unused: others may do the same work.")
    return "\n".join([*lines, "", str(ablate.verdict(run, layer, head))])
