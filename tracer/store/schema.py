"""What run.json may say: one schema, with bounds, so that a run that a stranger made harms nobody but itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from tracer.config import Clamp
from tracer.huggingface.architectures import layout_of
from tracer.store.about import Kind

MOST_STEPS, MOST_LAYERS, MOST_HEADS, MOST_VOCABULARY = 10**12, 4096, 4096, 1 << 24

MOST_SETTINGS, MOST_TAGS, LONGEST_NAME, LONGEST_TAG, LONGEST_TEXT = 500, 50, 200, 80, 1000
"""What a person says of a run: so many settings and tags, and characters of each."""

Word = Annotated[str, Field(max_length=1000)]
Code = Annotated[str, Field(max_length=300, pattern=r"^[\w.]+:[\w.<>]+$")]
"""`module:name`, as text."""
Step = Annotated[int, Field(ge=-1, le=MOST_STEPS)]
Count = Annotated[int, Field(ge=0, le=MOST_STEPS)]
Vocabulary = Annotated[int, Field(ge=1, le=MOST_VOCABULARY)]
Facts = dict[Word, Any]
Plain = bool | int | float | Word | None
Setting = Plain | Annotated[list[Plain], Field(max_length=MOST_SETTINGS)]


class StrictModel(BaseModel):
    """Strict: 1 is no True, "3" is no 3; whatever a later version adds is let by."""

    model_config = ConfigDict(strict=True, extra="allow")


class Parent(StrictModel):
    run: Word
    step: Count


class Corpus(StrictModel):
    name: Word
    hash: Word | None = None


class RecordedLayer(StrictModel):
    name: Word
    kind: Word
    causal: bool
    n_heads: Annotated[int, Field(ge=1, le=MOST_HEADS)]


ModulePath = Annotated[str, Field(max_length=200, pattern=r"^[\w.]*$")]


class RecordedPaths(StrictModel):
    """A `tracer.Layout`, which is text."""

    blocks: ModulePath
    final: ModulePath | None
    embed: ModulePath
    attention: ModulePath
    norm: ModulePath | None
    out: ModulePath = "o_proj"
    into: Annotated[list[ModulePath], Field(max_length=3)] = ["q_proj", "k_proj", "v_proj"]
    woven: bool = False
    own_norms: Annotated[list[ModulePath], Field(max_length=2)] = ["q_norm", "k_norm"]
    mlp: ModulePath | None = "mlp"
    out_norm: ModulePath | None = None
    mlp_norm: ModulePath | None = None
    embed_norm: ModulePath | None = None
    has_positions: bool = False
    scale: Annotated[float, Field(allow_inf_nan=False)] | None = None
    latent: bool = False
    unembed: ModulePath | None = None
    gated: bool = False
    rotary: Literal["given", "halves", "pairs"] = "given"

    @model_validator(mode="after")
    def whole(self) -> RecordedPaths:
        layout_of(self.model_dump())
        return self


class CheckpointSource(StrictModel):
    path: Word
    revision: Word | None = None


class BadValue(StrictModel):
    step: Count
    where: Word
    layer: Count | None = None
    head: Count | None = None
    value: float | None = None


class Divergence(StrictModel):
    step: Count
    text: str = ""
    non_finite: BadValue | None = None
    exploding: BadValue | None = None
    replayed_from: Count | None = None
    fused: bool = False
    cause: Literal["weight", "activation", "loss", "gradient", "update", "unknown"] | None = None
    """Of a watched loop: what the first bad value was, as `tracer.watching.first_bad` names it,"""
    detail: str = ""
    how: str = ""
    """what else was seen,"""
    loss: Literal["finite", "not finite", "unknown"] | None = None
    """and what the loss of that update was."""


class Replay(StrictModel):
    """Of a stretch that was trained again: whose, and how its weights compare with that run's."""

    run: Word
    created: Annotated[str, Field(max_length=64)] = ""
    """When that run was begun: another may have its name by now."""
    first: Count
    last: Count
    every: Count
    compared: Annotated[list[Count], Field(max_length=10**6)]
    parts: Count | None
    apart: FiniteFloat
    diverged: Count | None = None
    """The step at which that run diverged, too."""
    losses: Count = 0
    """Of a watched loop: losses of updates that were compared,"""
    losses_part: Count | None = None
    """and the first that differ."""


class RemedyOf(StrictModel):
    """Of a training from before a finding of another run, as it was or with one change."""

    run: Word
    created: Annotated[str, Field(max_length=64)]
    """Of that run,"""
    kind: Word
    step: Count
    """and of the finding."""
    name: Word
    words: Word
    named: bool
    """Did the finding's advice speak of this change?"""
    start: Count
    until: Count


def _clamp(text: str) -> str:
    Clamp.parse(text)
    return text


class Meta(StrictModel):
    """What run.json says, whoever trained the model; a run is one that we trained if it has a `config`."""

    format: int
    kind: Kind
    status: Literal["training", "finished", "diverged", "stopped"]
    created: Annotated[str, Field(max_length=64)]
    step: Step
    n_params: Annotated[int, Field(ge=0, le=10**15)]
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    preset: Word | None = None
    parent: Parent | None = None
    corpus: Corpus | None = None
    snapshot_steps: Annotated[list[Count], Field(max_length=10**6)] = []
    state_steps: Annotated[list[Count], Field(max_length=10**6)] = []
    versions: dict[Word, Word | None] = {}
    git: Facts | None = None
    platform: str = ""
    argv: list[str] = []
    pid: Annotated[int, Field(ge=1, le=2**31)] | None = None
    host: Word | None = None
    device: Word | None = None
    cost: dict[Word, float | None] = {}
    divergence: Divergence | None = None
    error: str | None = None
    digests: dict[Word, Annotated[str, Field(max_length=64)]] = {}
    measures: Annotated[list[Code], Field(max_length=1000)] = []
    """Where the code of a user's measures is, `module:name`, which is never imported from here,"""
    probes: dict[Word, Annotated[str, Field(max_length=64)]] = {}
    """and what a user's probes hold, by name."""
    settings: Annotated[dict[Annotated[str, Field(max_length=LONGEST_NAME)], Setting],
                        Field(max_length=MOST_SETTINGS)] = {}  # fmt: skip
    references: Annotated[dict[Annotated[str, Field(max_length=60)], FiniteFloat], Field(max_length=33)] = {}
    """Losses in nats, by name, that the run's own is compared with."""
    tags: Annotated[list[Annotated[str, Field(max_length=LONGEST_TAG)]], Field(max_length=MOST_TAGS)] = []
    """What a person said of the run when it began."""
    scalars: Annotated[list[Code], Field(max_length=1000)] = []
    """Functions that gave numbers at each record, as module:name: text for people, from which nothing is imported."""
    attends: Annotated[list[Word], Field(max_length=1000)] = []
    """Functions that said the patterns of attention that nobody recognises, likewise."""
    loss: Code | None = None
    """Of a training on a loss of a person's own, where its code is, likewise."""
    config: Facts = {}
    """Of a run that `tracer train` made, checked by `TrainConfig` itself."""
    replay: Replay | None = None
    remedy: RemedyOf | None = None
    layers: Annotated[list[RecordedLayer], Field(max_length=MOST_LAYERS)] = []
    """Of every other run: where attention was seen."""
    d_vocab: Vocabulary | None = None
    n_ctx: Annotated[int, Field(ge=1, le=1 << 24)] | None = None
    row: Annotated[int, Field(ge=1, le=1 << 24)] | None = None
    period: Annotated[int, Field(ge=0, le=1 << 24)] | None = None
    bos: Annotated[int, Field(ge=0, le=MOST_VOCABULARY)] | None = None
    steps: Step | None = None
    batch_tokens: Count | None = None
    huggingface: Facts | None = None
    transformer: Facts | None = None
    """The configuration of a `tracer.Transformer` in somebody's loop, checked by `ModelConfig` itself."""
    build: Annotated[str, Field(max_length=200, pattern=r"^[\w.]+:[\w.]+$")] | None = None
    built_with: Facts | None = None
    """Of a training in our loop, the configuration that `build` was called with, checked by `TrainConfig` itself."""
    family: Word | None = None
    layout: RecordedPaths | None = None
    sources: dict[Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,11})$")], CheckpointSource] = {}
    source: str | None = None
    keep_weights: bool = True
    untrained: Annotated[list[Word], Field(max_length=10**6)] | None = None
    """Of a watched run: names of weights that ask for no gradient,"""
    dtype: Word | None = None
    """the precision of most of the others,"""
    constant_positions: Word | None = None
    """where positions are looked up that are all the same; "" where they differ, None where it is not known,"""
    classes: Vocabulary | None = None
    """how many numbers come out for each row, where these are no logits of tokens,"""
    no_heads: Word = ""
    """and why nothing of heads was recorded; empty where `layers` says whose were."""
    clamp: Annotated[list[Annotated[Word, AfterValidator(_clamp)]], Field(max_length=1000)] = []
    """What was held of its heads, and at which steps, in the words of `TrainConfig.clamp`."""

    @model_validator(mode="after")
    def whole(self) -> Meta:
        ours = self.kind == "trained"
        if ours is not bool(self.config) or (ours and self.d_vocab is None):
            raise ValueError("a run that `tracer train` made has a config and a d_vocab, and no other has a config")
        return self


ALWAYS = [name for name, field in Meta.model_fields.items() if field.is_required()]


def missing(meta: dict[str, Any]) -> list[str]:
    """What run.json must say and does not."""
    needed = ("config", "d_vocab") if meta.get("kind") == "trained" else ("layers",)
    return sorted(name for name in (*ALWAYS, *needed) if name not in meta)


def problem(meta: dict[str, Any]) -> str:
    """In words, the first thing in run.json that cannot be; empty where all can."""
    try:
        Meta.model_validate(meta)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        if not first["loc"]:
            return first["msg"]
        place, said = ".".join(map(str, first["loc"])), repr(first["input"])
        return f"{place[:100]}={said[:60] + ' ...' * (len(said) > 60)}: {first['msg'][:200]}"
    return ""
