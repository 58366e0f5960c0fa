"""`tracer.watch(model)`: see, measure and switch off the heads of a model that nobody prepared.

with tracer.watch(model) as watcher:
    model(ids)
watcher.read().entropy              # an xarray.Dataset on [layer, head], the measures of a trace
watcher.pattern(layer=3, head=5)    # the exact pattern
with watcher.ablate({(3, 5)}):
    model(ids)                      # that head writes nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from torch import nn

from tracer.watching.not_recording import NotRecording

if TYPE_CHECKING:
    from tracer.data.own_probe import Probes
    from tracer.diagnosis.own_rules import Rules
    from tracer.heads.own_measures import Measures
    from tracer.huggingface.architectures import Layout
    from tracer.tracking.scalar_functions import Scalars
    from tracer.tracking.telling import OnFinding, OnRecord
    from tracer.watching.recorder import LoopRecorder
    from tracer.watching.training_passes import Looks
    from tracer.watching.watcher import Watcher


@overload
def watch(model: nn.Module, run: None = None, *, keep: int = 1, measures: Measures = ()) -> Watcher: ...


@overload
def watch(
    model: nn.Module, run: str | Path, *, tokenizer: Any = None, share: float = 0.01, every: int | None = None,
    rows: int | None = None, snapshot_mb: float = 500.0, build: str | None = None, held_out: Any = None,
    start_step: int | None = None, max_logits: Looks = "share", track: str | Sequence[str] | None = None,
    on_record: OnRecord | None = None, on_finding: OnFinding | None = None, measures: Measures = (),
    probes: Probes = None, scalars: Scalars | Sequence[Scalars] = (), settings: Any = None, note: str = "",
    tags: str | Sequence[str] = (), layout: Layout | str | Path | None = None, rules: Rules = (),
    replay: str | Path | None = None, steps: tuple[int, int] | None = None,
) -> LoopRecorder: ...  # fmt: skip


def watch(
    model: nn.Module, run: str | Path | None = None, *, keep: int = 1, measures: Measures = (), **options: Any
) -> Watcher | LoopRecorder:  # fmt: skip
    """See the heads of any PyTorch model: once, or all through a training loop that records a run directory.

    Without `run`: a context manager whose forward passes are measured (`Watcher`); `keep` is the number of sequences
    whose patterns can be asked for afterwards.
    With `run`: call `.step(loss)` once an update (`LoopRecorder`), and `checkpoints/<run>` fills up and can be looked
    at live; a path (`a/b`, `./a`, `/a`) is the folder itself. Where it holds a run already, a warning names the free
    one beside it (`<run>-2`) that is recorded into.
    `tokenizer`: a Hugging Face one, a `tokenizers.Tokenizer`, anything with decode(ids), or such a function. `share`:
    of the training time that measuring may take; `every`: measure every so many steps instead. `rows`: so many
    sequences of the first batch with gradients are kept as the probe, all that it has at most; unless told a sixteenth
    of it, up to 8. Of a loop without gradients it is the first batch after its first step. `snapshot_mb`: for weights,
    which a resumed job may exceed by its own last ones; kept of causal Hugging Face models, of a `tracer.Transformer`,
    and of those that `build` names how to build: `module:function`, without arguments, so that pages can run them later
    on other prompts. Only the name is written; see `tracer.huggingface.building` for who may run it. `layout`
    (`tracer.Layout`, or a file of one) says where such a model keeps what writes to its residual stream, for Circuits,
    logit attribution and logit lens; with `build`, one whose parts do not add up is refused at once.
    `held_out`: a batch that is not trained on, as the model is called with it (a tensor, a tuple of arguments, a
    mapping of them), or a loader of such batches, of which the first 8 are kept: every record then has the loss on it
    (`val_loss`). A list of tensors is one batch where the model is called with such ones in training, else a loader of
    token ids. One that may be either, or that the model cannot be called with, is left out, with a warning.
    `start_step`: updates that were made before, by a job that this one resumes; over 0 its run is gone on with.
    `max_logits`: which training passes are looked at for the largest logit of every head, exactly: those that half of
    `share` pays for ("share"), each ("every": 2 to 5 % of a step at 1,024 tokens), or "never"; `recorder.max_logits`
    then has those of each step. `track`: "wandb", "tensorboard", "mlflow" or "trackio", or several. `on_record`: called
    with the step and `recorder.last` after each record. `on_finding`: called with each kind of finding
    (`tracer.diagnose`) as it comes up; where it returns "stop", or is the word "stop" and the finding is bad,
    `recorder.should_stop` is set: save, and end the loop. `rules`: of one's own (`tracer.rule`), looked for beside
    ours; one that raises is left out, with a warning.
    `measures`: measures of heads of one's own (`tracer.measure`), recorded beside ours, or read once; `probes`: rows of
    tokens of one's own (`tracer.Probe`) by name.
    `scalars`: functions f(model, step), or their `module:name`, that give numbers at each record, in eval mode and
    without gradients: {name: number, or an array of [layer] or [layer, head]}. `recorder.log` takes such numbers at any
    step. A function that half of `share` does not pay for is asked at fewer records.
    `replay`, `steps`: the run that this same script recorded before, and a stretch of it: every step from the first to
    the last is recorded now, with all of it, on the sequences that were kept then, and weights and losses are compared
    with those of then, to the bit. A word says what came of it (`recorder.replayed`); pages draw the stretch into the
    curves of that run. The script may begin at a checkpoint of its own (`start_step`).
    `settings`: what you set, as a mapping or argparse's object, by which runs are found and compared, as by `tags`;
    `note` is the one that the page Runs shows. A job that resumes leaves what it does not give.
    With several processes, call it in each: statistics are of all of them, and rank 0 writes.
    Seen are F.scaled_dot_product_attention, nn.MultiheadAttention, flex_attention, and softmax-times-values written by
    hand, in blocks of queries too; keys that are no positions (sinks, learned keys) are in `layers[i].extra`. Of
    other attention a person says the pattern (`tracer.attends`). What cannot be measured truthfully is refused
    (`CannotWatch`), in a training loop with a warning. Of a model in which no attention is seen (Mamba, a CNN, an MLP),
    or none that can be told apart, a loop is recorded without heads: a warning says why, and losses, gradients,
    weights, updates and signs of health are there (`run.why_not("heads")`).
    """
    if run is None:
        if options:
            raise TypeError(f"{', '.join(options)}: only with run=, for recording a training loop")
        from tracer.watching.watcher import Watcher

        return Watcher(model, keep, measures)
    try:
        from tracer.watching.recorder import LoopRecorder
    except ImportError as error:  # torch moved what it never promised
        return cast("LoopRecorder", NotRecording(run, error))
    return LoopRecorder(model, run, measures=measures, **options)
