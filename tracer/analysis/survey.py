"""What every head does over a corpus: distances, entropy, sink, and looks drawn from all of them, in bounded memory.

1. Pack the corpus into rows as long as the context; run the model over some rows at once, its kernels as they are.
2. Of every layer's attention make one row of the pattern in SAMPLE, in each row of tokens from another place on: every
   query is as likely as any other. Keep sums of its entropy and sink share; its mass by distance; its sharpest look
   (not at itself nor at the first token).
3. Of a head's looks keep the STRONGEST, and KEPT drawn uniformly from all: each look gets a random number, the smallest
   stay. Deciles and typical passages are of these.

Source: ours; the uniform sample beside the maxima as Bricken et al. 2023 show features, the reservoir by random keys as
Efraimidis and Spirakis 2006. Means over a sample: `n_looks` says of how many looks. Their standard errors are those of
a ratio of two sums over rows (Cochran 1977, section 6.4): looks of one row are no independent draws, rows are.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tracer import data
from tracer.analysis.eval_sequences import batches
from tracer.analysis.max_activating import LOGITS, largest_key
from tracer.analysis.survey_measures import OWN, OwnSums, empty, names_in, ratio_error, variables
from tracer.data.corpora import documents
from tracer.data.tokenizer import ids_of
from tracer.heads.call import AttentionCall
from tracer.heads.own_measures import Measures
from tracer.huggingface.any_model import any_model
from tracer.interventions.edits import visiting
from tracer.measures.aliases import Progress
from tracer.model.protocol import HeadModel, check_vocabulary, device_of
from tracer.store import Run
from tracer.store.surveys import newest_survey, read_survey, write_survey
from tracer.training.interrupts import any_process, processes

if TYPE_CHECKING:
    import xarray as xr

SAMPLE = 16
"""One query in so many is looked at."""
KEPT, STRONGEST = 256, 16
"""Looks of each head."""
AT_ONCE = 2**12
"""Tokens that are read at once."""
SAVE_EVERY = 32
"""Batches between two savings of a survey that is kept in a run."""
FIELDS = ("row", "query", "key", "score", "first")
MEANS = ("entropy", "sink", "sharpest", "mass")
SQUARES = ("looks_squared", *(f"{name}{sums}" for name in MEANS for sums in ("_squared", "_by_looks")))
"""For standard errors, sums over rows: of the square of a row's looks; of that of its sum of each measure; and of both
together."""
SUMS = ("n_looks", *MEANS, *SQUARES)
Corpus = str | Path | Iterable[str] | Int[Tensor, "row pos"]


@any_model
def survey(
    run_or_model: Run | HeadModel, corpus: Any = None, *, step: int | None = None, tokens: int = 2**16,
    length: int | None = None, budget_mb: float = 64.0, measures: Measures = (), progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> xr.Dataset:  # fmt: skip
    """Every head over a corpus: means, mass by distance, its strongest looks and a uniform sample of all.

    `corpus`: a file, a folder or a name as in `DataConfig.corpus`; texts; rows of tokens [row pos]; None: the run's own
    held-out text. `tokens`: how many are read; `length`: of a row, at most the context. A run keeps the survey beside
    its weights, saves it while it grows, and goes on where it ended; `progress` is given (tokens read, to read), and
    `stop` is asked after each batch. Processes that a launcher started (`accelerate launch`) and that all call it share
    the rows, and all return the same. ValueError for a corpus that cannot be read, or that `budget_mb` cannot hold.
    `measures`: of one's own (`tracer.measure`), over the corpus whatever their probe: then it is read from the start
    each time, for nobody knows whether their code is what it was.

    On [layer, head]: `entropy` (nats), `sink` (share of the first token), `sharpest` (largest share of another token
    than itself and the first), a measure of one's own by its name, `n_looks`; [.., distance]: `mass`, share of
    attention 0, 1, 2, 3-4, 5-8, ... back; of each of these means its standard error over rows, `entropy_se`, ... (nan
    of one row); [.., strongest] and [.., kept]: `row`, `query`, `key`, `score` of looks and the share of the `first`
    token there, row -1 where there is none; [row, pos]: `tokens`. `attrs`: `corpus`, `tokens_read` of
    `tokens_to_read`, ...
    """
    run = run_or_model if isinstance(run_or_model, Run) else None
    model: Any = run_or_model
    if run is not None:
        model = run.model(step)
        step = run.steps[-1] if step is None else step
    rows = rows_of(model, run, corpus, tokens, min(length or model.n_ctx, model.n_ctx))
    own = OwnSums(measures, lambda why: warnings.warn(why, RuntimeWarning, stacklevel=2))
    nothing = partial(_empty, (model.n_layers, model.n_heads), rows.numpy().astype(np.int32), own.ask.names)
    found, words = nothing(), _in_words(corpus, run)
    told = own.told(words)
    if (size := sum(array.nbytes for array in found.values()) / 1e6) > budget_mb:
        raise ValueError(f"this survey takes {size:.1f} MB, budget_mb={budget_mb}: read fewer tokens, or allow more")
    asked = rows.numpy().tobytes() + " ".join(sorted(own.ask.names)).encode()
    name = f"{step}-{hashlib.sha256(asked).hexdigest()[:16]}"
    if run is not None and not own.all and (kept := _whole(read_survey(run.dir, name))) is not None:
        found, words, _ = kept
    first, n = int(found["done"][0]), rows.shape[1]
    at_once = max(1, min(AT_ONCE, LOGITS // model.d_vocab) // n)
    state = processes()
    rank, world = state.process_index, state.num_processes
    mine, done = nothing(), first
    """What this process read since all put theirs together, and how many rows all of them have read."""
    try:
        for batch, begin in enumerate(range(first, len(rows), at_once * world), 1):
            if any_process(stop()):
                break
            here = begin + at_once * rank
            if here < len(rows):
                _scan(model, rows[here : here + at_once], here, mine, own)
                own.drop(mine)
            done = min(len(rows), begin + at_once * world)
            save = batch % SAVE_EVERY == 0
            if save or world == 1:
                found, mine = _together(found, mine, done), nothing()
            if save and run is not None and rank == 0:
                write_survey(run.dir, name, found, words, told)
            if progress is not None and rank == 0:
                progress(done * n, rows.numel())
        found = _together(found, mine, done)
    finally:  # also when it is interrupted: the batches that were put together are kept, and no part of another
        if run is not None and rank == 0 and int(found["done"][0]) > first:
            write_survey(run.dir, name, found, words, told)
    whole = _dataset(found, words, told)
    own.of.seen({name: whole[name].values for name in own.ask.names if name in whole})
    return whole


def _together(found: dict[str, np.ndarray], mine: dict[str, np.ndarray], done: int) -> dict[str, np.ndarray]:
    """What all found and what each process read since, in every process: new arrays, so none is ever half of both.

    Only the tokens, which nobody writes to, are shared.
    """
    from accelerate.utils import gather_object

    found = {name: array if name == "tokens" else array.copy() for name, array in found.items()}
    found["done"][0] = done
    for part in gather_object([mine]):
        for name in found:
            if name in SUMS or name.startswith(OWN):
                found[name] += part[name]
        flat, new = ({name: x.reshape(-1, x.shape[-1]) for name, x in one.items() if x.ndim == 3}
                     for one in (found, part))  # fmt: skip
        of_kind = {kind: {field: new[f"{field}_{kind}"] for field in FIELDS} for kind in ("strongest", "kept")}
        _keep(flat, "strongest", of_kind["strongest"], flat["score_strongest"], new["score_strongest"])
        flat["lot"][...] = _keep(flat, "kept", of_kind["kept"], -flat["lot"], -new["lot"]) * -1
    return found


def kept_survey(run: Run, step: int) -> xr.Dataset | None:
    """The survey of a step that was made last; None where there is none."""
    name = newest_survey(run.dir, step)
    found = None if name is None else _whole(read_survey(run.dir, name))
    return None if found is None else _dataset(*found)


def _in_words(corpus: Any, run: Run | None) -> str:
    if corpus is None and run is not None and run.about.why_not("held_out"):
        return batches(run).title.lower()
    if corpus is None:
        return "held-out text"
    if isinstance(corpus, str | Path):
        return str(corpus)
    return "rows of tokens" if isinstance(corpus, Tensor | np.ndarray) else "texts"


def rows_of(model: Any, run: Run | None, corpus: Any, tokens: int, length: int) -> Int[Tensor, "row pos"]:
    """The rows of tokens that are read, all of one length."""
    if length < 2 or tokens < 2:
        raise ValueError(f"length={length} and tokens={tokens}: a look needs rows of at least 2 tokens")
    if corpus is None:
        found = None if run is None else _held_out(run, tokens, length)
        if found is None:
            raise ValueError("there is no held-out text here: give a corpus (a file, a folder, texts, rows of tokens)")
    elif isinstance(corpus, Tensor | np.ndarray):
        found = torch.as_tensor(corpus)
        if found.ndim != 2 or found.dtype.is_floating_point:
            raise ValueError(f"rows of tokens are whole numbers [row pos], not {found.dtype} {list(found.shape)}")
        if not found.numel():
            raise ValueError(f"rows of tokens are empty, {list(found.shape)}: give at least one row")
    else:
        texts = documents(str(corpus)) if isinstance(corpus, str | Path) else corpus
        found = _packed(model, run, texts, tokens, length)
    found = found[:, :length].cpu().long()[: max(1, tokens // min(length, found.shape[1]))]
    check_vocabulary(found, model.d_vocab)
    return found


def _held_out(run: Run, tokens: int, length: int) -> Tensor | None:
    if run.about.why_not("held_out"):
        return batches(run).text
    config = run.config
    return data.build(config.data, config.model.n_ctx, config.seed).val(max(1, tokens // length))


def _packed(model: Any, run: Run | None, texts: Iterable[str], tokens: int, length: int) -> Tensor:
    """Texts one after the other, cut into rows, each with the start token in front where prompts have one."""
    words = getattr(model, "tokenizer", None)
    if words is None:
        raise ValueError("this model has no tokenizer: give rows of tokens, or set model.tokenizer")
    bos = run.about.bos if run is not None else getattr(model, "bos", 0)
    room, ids = length - (bos is not None), []
    for text in texts:
        ids += ids_of(words, text)
        if len(ids) >= tokens:
            break
    if len(ids) < 2:
        raise ValueError(f"the corpus has {len(ids)} tokens: at least 2 are needed")
    room = min(room, len(ids))
    rows = torch.tensor(ids[: len(ids) // room * room]).view(-1, room)
    return rows if bos is None else torch.nn.functional.pad(rows, (1, 0), value=bos)


def _empty(
    shape: tuple[int, int], rows: Int[np.ndarray, "row pos"], measures: Iterable[str] = ()
) -> dict[str, np.ndarray]:
    """Nothing read yet: all arrays of [layer head], in their final size."""
    kept = {f"{field}_{kind}": np.full((*shape, size), -1, np.float32 if field in ("score", "first") else np.int32)
            for kind, size in (("kept", KEPT), ("strongest", STRONGEST)) for field in FIELDS}  # fmt: skip
    distances = (bin_of(rows.shape[1] - 1) + 1,)
    sums = {name: np.zeros(shape + distances * name.startswith("mass")) for name in SUMS}
    return {
        **sums, **kept, **empty(measures, shape),
        "lot": np.full((*shape, KEPT), np.inf, np.float32), "tokens": rows.astype(np.int32, copy=False),
        "done": np.zeros(1, np.int64),
    }  # fmt: skip


def _whole(kept: tuple[dict[str, np.ndarray], str, str] | None) -> tuple[dict[str, np.ndarray], str, str] | None:
    """What a file held; ValueError where it is no survey of ours: files come from anywhere.

    None for one without sums of squares: older ones looked at the same few places of all rows of a batch.
    """
    if kept is None or "looks_squared" not in kept[0]:
        return None
    arrays = kept[0]
    tokens, heads = arrays.get("tokens", np.zeros(0)), arrays.get("entropy", np.zeros(0))
    if tokens.ndim == heads.ndim == 2 and tokens.shape[1] > 1:
        ours = _empty((heads.shape[0], heads.shape[1]), tokens, names_in(arrays))
        ends = {"row": tokens.shape[0], "query": tokens.shape[1], "key": tokens.shape[1]}
        if (
            {name: (x.shape, x.dtype) for name, x in arrays.items()} == {n: (x.shape, x.dtype) for n, x in ours.items()}
            and 0 <= int(arrays["done"][0]) <= len(tokens)
            and all(((x := arrays[f"{field}_{kind}"]) >= -1).all() and (x < end).all()
                    for field, end in ends.items() for kind in ("kept", "strongest"))
        ):  # fmt: skip
            return kept
    raise ValueError("the survey that this run keeps is damaged: remove the folder surveys in it and survey again")


def bin_of(distance: int) -> int:
    """0, 1, 2, 3-4, 5-8, 9-16, ... tokens back."""
    return distance if distance < 2 else 1 + math.ceil(math.log2(distance))


@torch.no_grad()
def _scan(model: Any, rows: Int[Tensor, "batch pos"], begin: int, found: dict[str, np.ndarray], own: OwnSums) -> None:
    """Read some rows, the first of which is number `begin`, into what was found."""
    n = rows.shape[1]
    rng = np.random.default_rng([begin, n])
    starts = torch.from_numpy(1 + rng.integers(min(SAMPLE, n - 1), size=len(rows)))
    """Each row has its own: one for a whole batch would say of a few places what is meant of all."""
    groups = [(torch.arange(int(start), n, SAMPLE), torch.where(starts == start)[0]) for start in starts.unique()]
    bins = torch.tensor([bin_of(d) for d in range(n)])

    def see(call: AttentionCall) -> None:
        if call.shape[1] == call.positions:  # cross attention looks at something else
            for at, some in groups:
                look(call.sequences(some), at, some)

    def look(call: AttentionCall, at: Tensor, some: Tensor) -> None:
        """At these queries of some of the rows."""
        back = at[:, None] - torch.arange(n)
        other = (torch.arange(n) > 0) & (back > 0)
        pattern = call.pattern(at).float().cpu()
        weights = pattern[..., : call.positions]
        into = {name: found[name][call.layer, call.heads] for name in found if name not in ("tokens", "done")}
        looks = weights * other
        key = largest_key(looks)
        score = looks.gather(-1, key[..., None])[..., 0]
        mass = weights.new_zeros(*weights.shape[:2], into["mass"].shape[-1])
        mass.index_add_(-1, bins[back.clamp(min=0)].flatten(), weights.flatten(2))
        of_rows = {
            "entropy": torch.special.entr(pattern).sum((2, 3)), "sink": weights[..., 0].sum(2),
            "sharpest": score.sum(2), "mass": mass,
        }  # fmt: skip
        into["n_looks"] += len(some) * len(at)
        into["looks_squared"] += len(some) * len(at) ** 2
        for name, sums in of_rows.items():
            sums = sums.double().numpy()
            into[name] += sums.sum(0)
            into[f"{name}_squared"] += (sums**2).sum(0)
            into[f"{name}_by_looks"] += sums.sum(0) * len(at)
        own.add(into, call, at, rows[some])
        place = (begin + some)[:, None, None].expand(score.shape)
        new = {"row": place, "query": at.expand(score.shape), "key": key, "score": score, "first": weights[..., 0]}
        flat = {name: x.transpose(0, 1).flatten(1).numpy() for name, x in new.items()}
        lots = rng.random(flat["score"].shape, np.float32)
        _keep(into, "strongest", flat, into["score_strongest"], flat["score"])
        into["lot"][...] = _keep(into, "kept", flat, -into["lot"], -lots) * -1

    with visiting(see):
        model(rows.to(device_of(model)))


def _keep(
    into: dict[str, np.ndarray], kind: str, new: dict[str, np.ndarray], old_rank: np.ndarray, new_rank: np.ndarray
) -> np.ndarray:
    """Of looks that were kept and new ones [head look], those of the highest rank; returns their ranks."""
    rank, size = np.concatenate([old_rank, new_rank], 1), old_rank.shape[1]
    best = np.argsort(-rank, axis=1, kind="stable")[:, :size]
    for field in FIELDS:
        old = into[f"{field}_{kind}"]
        old[...] = np.take_along_axis(np.concatenate([old, new[field].astype(old.dtype)], 1), best, 1)
    return np.take_along_axis(rank, best, 1)


def _dataset(found: dict[str, np.ndarray], corpus: str, told: str) -> xr.Dataset:
    import xarray as xr

    heads = ("layer", "head")
    looks = np.where(found["n_looks"] > 0, found["n_looks"], np.nan)
    means = {name: found[name] / (looks[..., None] if name == "mass" else looks) for name in MEANS}

    def over(name: str) -> tuple[str, ...]:
        return (*heads, "distance") if name == "mass" else heads

    ends = [0, 1, *(2**i for i in range(1, found["mass"].shape[-1] - 1))]
    names = [str(b) if a == b else f"{a}-{b}" for a, b in zip([0, *(e + 1 for e in ends[:-1])], ends, strict=True)]
    read, of = int(found["done"][0]) * found["tokens"].shape[1], found["tokens"].size
    return xr.Dataset(
        {
            **{name: (over(name), values) for name, values in means.items()},
            **{f"{name}_se": (over(name), _standard_error(found, name, means[name])) for name in means},
            **variables(found, int(found["done"][0]), told),
            "n_looks": (heads, found["n_looks"].astype(np.int64)),
            **{f"{field}_{kind}": ((*heads, kind), found[f"{field}_{kind}"])
               for kind in ("kept", "strongest") for field in FIELDS},
            "tokens": (("row", "pos"), found["tokens"]),
        },
        coords={"layer": range(looks.shape[0]), "head": range(looks.shape[1]), "distance": names},
        attrs={"tokens_read": read, "tokens_to_read": of, "complete": int(read == of), "one_query_in": SAMPLE,
               "corpus": corpus},
    )  # fmt: skip


def _standard_error(found: dict[str, np.ndarray], name: str, mean: np.ndarray) -> np.ndarray:
    looks, squared = found["n_looks"], found["looks_squared"]
    if name == "mass":
        looks, squared = looks[..., None], squared[..., None]
    return ratio_error(mean, looks, found[f"{name}_squared"], found[f"{name}_by_looks"], squared, int(found["done"][0]))


def deciles(found: xr.Dataset, layer: int, head: int, each: int = 1) -> list[tuple[int, list[int]]]:
    """(decile, places in `kept`) of a head's looks by score, the highest tenth first; within a tenth, as drawn."""
    one = found.isel(layer=layer, head=head)
    there = np.flatnonzero(one["row_kept"].values >= 0)
    order = there[np.argsort(one["score_kept"].values[there], kind="stable")]
    parts = np.array_split(order, 10)
    return [(10 - i, sorted(part.tolist())[:each]) for i, part in enumerate(parts[::-1])]
