"""Run directories that strangers made: each is opened, or refused in words, within bounds of time and memory."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.attacks.forks import Forks
from tests.attacks.table import Tally

HERE = "tests.attacks.hostile"
SECONDS, MEGABYTES = 2.0, 600.0
"""Of looking at a run in every way; memory beyond what a process takes that has imported everything."""
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    10**400,
    "",
    "x" * 5000,
    "<b>",
    "\u202e",
    [],
    {},
    [[]],
    {"a": {}},
    [None] * 999,
    "../..",
    "/dev/zero",
]
CONFIG_NUMBERS = [-1, 0, 10**9 + 7, 10**400, 1.5, "3", None, [], True]

Make = Callable[[Path], object]


def look(directory: str) -> None:
    """Every accessor of a run, and its line on the page; whatever is wrong is a ValueError or an OSError."""
    from tracer.store import broken_runs, list_runs, open_run
    from tracer.store.check import check

    place = Path(directory)
    for run in list_runs(place.parent):
        run.name.encode()
    for name, reason in broken_runs(place.parent).items():
        (name + reason).encode()
        assert len(reason) < 3000 and "\n" not in name, reason
    try:
        run = open_run(place)
    except (ValueError, OSError):
        return
    from dashboard.loading.run_summaries import summary

    asks: list[Callable[[], Any]] = [
        lambda: repr(run), lambda: run.config, lambda: run.about, lambda: run.status, lambda: run.live,
        lambda: run.stamp, lambda: run.steps, lambda: run.why_not("prompts"), run.log, run.samples, run.resume_step,
        run.resume_state, lambda: run.why_not("states"), lambda: [run.state(step) for step in run.state_steps],
        run.model, lambda: run.tokenizer.get_vocab_size(),
        lambda: run.effects.load(), lambda: run.trace.drop_vars("pattern", errors="ignore").load(),
        lambda: run.trace["pattern"][-1].load(), lambda: str(check(place)), lambda: summary(run),
    ]  # fmt: skip
    for ask in asks:
        try:
            ask()
        except (ValueError, OSError) as error:
            assert str(error), type(error)
        except KeyError as error:
            assert error.args == ("pattern",), error


def nothing(directory: str) -> None:
    """What a case costs by itself."""


def changed(**facts: Any) -> Make:
    """run.json with other values; a name with dots goes inside."""

    def make(folder: Path) -> None:
        meta = json.loads((folder / "run.json").read_text())
        for name, value in facts.items():
            inside = meta
            *path, last = name.split("__")
            for part in path:
                inside = inside.setdefault(part, {})
            inside[last] = copy.deepcopy(value)
        (folder / "run.json").write_text(json.dumps(meta))

    return make


def _away(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def written(name: str, content: bytes) -> Make:
    def make(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _away(path)
        path.write_bytes(content)

    return make


def linked(name: str, to: str) -> Make:
    def make(folder: Path) -> None:
        path = folder / name
        _away(path)
        path.symlink_to(to)

    return make


def pipe(name: str) -> Make:
    def make(folder: Path) -> None:
        _away(folder / name)
        os.mkfifo(folder / name)

    return make


def holes(name: str, size: int) -> Make:
    """A file that says it is huge and takes no room."""

    def make(folder: Path) -> None:
        with (folder / name).open("wb") as f:
            f.truncate(size)

    return make


def array(name: str, change: Callable[[dict[str, Any]], object]) -> Make:
    """The metadata of one array of the trace, in both places, with a change."""

    def make(folder: Path) -> None:
        group = folder / "trace.zarr" / "zarr.json"
        meta = json.loads(group.read_text())
        change(meta["consolidated_metadata"]["metadata"][name])
        group.write_text(json.dumps(meta))
        (group.parent / name / "zarr.json").write_text(json.dumps(meta["consolidated_metadata"]["metadata"][name]))

    return make


def pickling(folder: Path) -> None:
    """A trace of format 2 whose compressor is pickle: it ran os.system."""
    import pickle  # noqa: TID251 - what an attacker writes

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {folder}/EXECUTED",)

    shutil.rmtree(folder / "trace.zarr")
    written("trace.zarr/.zgroup", b'{"zarr_format": 2}')(folder)
    meta = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "fill_value": None, "order": "C",
            "compressor": None, "filters": [{"id": "pickle", "protocol": 5}]}  # fmt: skip
    written("trace.zarr/step/.zarray", json.dumps(meta).encode())(folder)
    written("trace.zarr/step/0", pickle.dumps([Evil()]))(folder)
    both = {"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}, "step/.zarray": meta}}
    written("trace.zarr/.zmetadata", json.dumps(both).encode())(folder)


def bomb(folder: Path) -> None:
    """A chunk that unpacks to 4 GB."""
    from numcodecs.zstd import Zstd

    block = bytes(Zstd(level=3).encode(bytes(1 << 20)))
    frame = block[:4] + bytes([0xE0]) + struct.pack("<Q", 4 << 30) + block[5 + 4 :]
    written("trace.zarr/entropy/c.0.0.0", frame)(folder)


def grid(*chunk: int) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": chunk}}


def many_rows(folder: Path) -> None:
    """10^8 declared rows, in one chunk."""
    told("step", shape=[10**8], chunk_grid=grid(10**8))(folder)


def large_tokenizer(folder: Path) -> None:
    """A million added tokens, in 123 MB."""
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text())
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    told["added_tokens"] += [{"id": 1000 + i, "content": f"token number {i}", **plain} for i in range(200_000)]
    path.write_text(json.dumps(told))


def headers(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry).encode()
    return struct.pack("<Q", len(text)) + text


def told(name: str, **metadata: Any) -> Make:
    """Other words in the metadata of an array."""
    return array(name, lambda meta: meta.update(metadata))


def codecs(*names: str) -> Make:
    return told("entropy", codecs=[{"name": name, "configuration": {}} for name in names])


def attributes(name: str, **words: Any) -> Make:
    """More attributes of an array, by which other readers of Zarr change what its values are."""
    return array(name, lambda meta: meta["attributes"].update(words))


ATTRIBUTES: tuple[dict[str, Any], ...] = (
    {"scale_factor": "x"}, {"scale_factor": 1e308, "add_offset": 1e308}, {"_FillValue": "AAA"}, {"_FillValue": {}},
    {"missing_value": [1, 2]}, {"units": "days since 1970-01-01"}, {"units": "days since x"}, {"dtype": "object"},
    {"_Encoding": "x"}, {"coordinates": 5}, {"units": 5, "label": None, "range": "x"}, {"x": "y" * 200_000},
)  # fmt: skip
METADATA: tuple[tuple[str, Any], ...] = (
    *(("fill_value", value) for value in ("NaN", "x" * 10_000, None, [], {}, 10**400)),
    ("dimension_names", [5]), ("dimension_names", ["step", "step"]), ("attributes", 5), ("attributes", [1]),
    ("chunk_grid", grid(10**12)), ("codecs", [{"name": "bytes", "configuration": 5}, {"name": "zstd"}]),
)  # fmt: skip
ARRAYS = ("step", "entropy", "param")
FIELDS = ("format", "status", "created", "step", "n_params", "d_vocab", "preset", "config", "seed", "parent", "corpus",
          "snapshot_steps", "state_steps", "versions", "pid", "host", "cost", "divergence", "error", "digests",
          "device", "git", "platform", "argv", "references")  # fmt: skip
SIZES = (
    "n_layers",
    "n_heads",
    "d_model",
    "d_head",
    "n_ctx",
    "d_vocab",
    "mlp_hidden",
    "norm",
    "positions",
    "dropout",
    "init",
)
LONG = {"length_bytes": 4 * 10**9}
PANIC = b'{"version":"1.0","added_tokens":[],"model":{"type":"BPE","vocab":{"a":4294967295},"merges":[["a","b"]]}}'
HUGE = {"embed.W_E": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}
NAMED: dict[str, Make] = {
    "deep JSON": written("run.json", b"[" * 10**6),
    "deep and closed": written("run.json", b'{"format":1,"a":' + b"[" * 500 + b"]" * 500 + b"}"),
    "NaN": written("run.json", b'{"format": NaN}'),
    "lone surrogate": written("run.json", b'{"format": 1, "status": "\\ud800"}'),
    "no UTF-8": written("run.json", b"\xff\xfe{}"),
    "empty run.json": written("run.json", b""),
    "run.json of 1 TB": holes("run.json", 1 << 40),
    "run.json is a pipe": pipe("run.json"),
    "run.json is endless": linked("run.json", "/dev/zero"),
    "run.json is another's": linked("run.json", "/etc/hostname"),
    "run.json leads to itself": linked("run.json", "run.json"),
    "run.json of 5,000 digits": written("run.json", b'{"format": 1' + b"0" * 5000 + b"}"),
    "tokenizer is a pipe": pipe("tokenizer.json"),
    "tokenizer is endless": linked("tokenizer.json", "/dev/zero"),
    "tokenizer of 200,000 words": large_tokenizer,
    "tokenizer of 1 TB": holes("tokenizer.json", 1 << 40),
    "tokenizer that panics": written("tokenizer.json", PANIC),
    "tokenizer is deep": written("tokenizer.json", b'{"model":' * 5000),
    "log is a pipe": pipe("log.jsonl"),
    "log of 1 TB": holes("log.jsonl", 1 << 40),
    "log of other things": written("log.jsonl", b'[]\n3\n"x"\n{"step": [' + b"[" * 9999 + b"\n{}\n\xff\n"),
    "samples of other things": written("samples.jsonl", b'{"step": "x"}\nnull\n{"temperature": {}}\n'),
    "lock is a pipe": pipe("lock"),
    "odd snapshot names": lambda folder: [
        (folder / "snapshots" / f"{name}.safetensors").write_bytes(b"")
        for name in ("\u00b2", "\u0663\u0663\u0663\u0663\u0663\u0663", "-00001", "1e3", "9" * 12, "000000 ", "10")
    ],
    "snapshot is a pipe": pipe("snapshots/000003.safetensors"),
    "snapshot is endless": linked("snapshots/000003.safetensors", "/dev/zero"),
    "snapshot of 1 TB": holes("snapshots/000006.safetensors", 1 << 40),
    "snapshot's header is huge": written("snapshots/000006.safetensors", b"\xff" * 8 + b"{}"),
    "snapshot declares a terabyte": written("snapshots/000006.safetensors", headers(HUGE)),
    "snapshot's header is deep": written("snapshots/000006.safetensors", struct.pack("<Q", 99999) + b"[" * 99999),
    "snapshot is a pickle": written("snapshots/000006.safetensors", b"cposix\nsystem\n(S'touch EXECUTED'\ntR."),
    "snapshots lead elsewhere": linked("snapshots", "/etc"),
    "states are a file": lambda folder: (shutil.rmtree(folder / "states"), (folder / "states").write_bytes(b"")),
    "resume is a file": lambda folder: (shutil.rmtree(folder / "resume"), (folder / "resume").write_bytes(b"")),
    "trace of format 2 with pickle": pickling,
    "trace is a pipe": lambda folder: (shutil.rmtree(folder / "trace.zarr"), os.mkfifo(folder / "trace.zarr")),
    "trace is elsewhere": linked("trace.zarr", "/etc"),
    "trace.zarr/zarr.json of 1 TB": holes("trace.zarr/zarr.json", 1 << 40),
    "a chunk unpacks to 4 GB": bomb,
    "a chunk is gzip": written("trace.zarr/entropy/c.0.0.0", gzip.compress(bytes(1 << 20))),
    "a chunk is endless": linked("trace.zarr/entropy/c.0.0.0", "/dev/zero"),
    "a chunk is another's": linked("trace.zarr/entropy/c.0.0.0", "/etc/passwd"),
    "a chunk is a pipe": pipe("trace.zarr/entropy/c.0.0.0"),
    "a chunk of 1 TB": holes("trace.zarr/entropy/c.0.0.0", 1 << 40),
    "10^8 rows": many_rows,
    "10^18 rows": told("entropy", shape=[10**18, 2, 4]),
    "negative rows": told("entropy", shape=[-1, 2, 4]),
    "a chunk of 10^12": told("entropy", chunk_grid=grid(10**6, 1000, 1000)),
    "objects": told("entropy", data_type="object"),
    "a structure": told("entropy", data_type={"name": "structured", "configuration": {}}),
    "names of 10^9 letters": told("param", data_type={"name": "fixed_length_utf32", "configuration": LONG}),
    "10^9 strings": told("param", shape=[10**9]),
    "gzip": codecs("bytes", "gzip"), "blosc": codecs("bytes", "blosc"), "pickle": codecs("numcodecs.pickle"),
    "json2": codecs("numcodecs.json2"), "sharding": codecs("sharding_indexed"), "no codec": codecs(),
    "zstd twice": codecs("bytes", "zstd", "zstd"), "codecs are words": told("entropy", codecs="zstd"),
    "a storage transformer": told("entropy", storage_transformers=[{"name": "x"}]),
    "no dimension names": told("entropy", dimension_names=None),
    **{f"attributes of {name}: {str(words)[:60]}": attributes(name, **words)
       for name, words in itertools.product(ARRAYS, ATTRIBUTES)},
    **{f"{field} of {name} is {str(value)[:60]}": told(name, **{field: value})
       for name, (field, value) in itertools.product(ARRAYS, METADATA)},
    "effects are a pipe": pipe("effects.zarr"),
    "effects of another kind": written("effects.zarr/zero/zarr.json", b'{"zarr_format": 3, "node_type": "group"}'),
    "a folder in itself": linked("inside", "."),
    "10,000 files": lambda folder: [(folder / "snapshots" / f"{i:06d}.safetensors").touch() for i in range(10_000)],
}  # fmt: skip


def directories(seed: int = 0) -> Iterator[tuple[str, Make]]:
    """The named ones, then every field of run.json and every size with odd values, in an order drawn from the seed."""
    drawn = [
        (f"{field}={str(value)[:20]}", changed(**{field: value})) for field, value in itertools.product(FIELDS, ODD)
    ]
    drawn += [
        (f"config.model.{field}={str(value)[:20]}", changed(**{f"config__model__{field}": value}))
        for field, value in itertools.product(SIZES, CONFIG_NUMBERS)
    ]
    random.Random(seed).shuffle(drawn)
    named = list(NAMED.items())
    random.Random(seed).shuffle(named)
    yield from itertools.chain(named, drawn)


def attack(forks: Forks, folder: Path, run: Path, n: int | None = None, seed: int = 0) -> Tally:
    """Look at `n` of them (None: all); `run` is an honest run to begin with."""
    tally = Tally("hostile run directory")
    (folder / "runs").mkdir(parents=True)
    base = max(forks.call(f"{HERE}:nothing", "").megabytes for _ in range(2))
    for name, make in itertools.islice(directories(seed), n):
        place = folder / "runs" / "case"
        shutil.copytree(run, place)
        make(place)
        out = forks.call(f"{HERE}:look", place, timeout=120)
        problems = [] if out.clean else [f"status {out.status}, late {out.late}: {out.output[-1500:]}"]
        if (place / "EXECUTED").exists() or (folder / "EXECUTED").exists():
            problems.append("its code ran")
        if out.megabytes - base > MEGABYTES:
            problems.append(f"{out.megabytes - base:.0f} MB")
        tally.case(name, *problems, seconds=out.seconds, megabytes=out.megabytes - base)
        shutil.rmtree(place)
    return tally
