"""Damaged files: what can still be read says what it said before, what cannot is an error, `check` names it."""

from __future__ import annotations

import json
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.attacks.forks import Forks
from tests.attacks.table import Tally

HERE = "tests.attacks.damage"


def values(directory: str, into: str) -> None:
    """Everything that a run says, part by part, as checksums; a refusal in words as None; and what `check` names."""
    from tracer.store import open_run
    from tracer.store.check import check

    place, told = Path(directory), {}
    try:
        damaged = check(place).damaged
    except ValueError as error:  # no run any more
        damaged = {"run.json": str(error)}
    parts: dict[str, Callable[[], Any]] = {}
    try:
        run = open_run(place)
        parts = {
            "about": lambda: str(run.about), "config": lambda: str(run.config), "log": lambda: str(run.log()),
            "samples": lambda: str(run.samples()), "tokenizer": lambda: run.tokenizer.to_str(),
            "resume": lambda: _tensors(run.resume_state()), "effects": lambda: run.effects["effect"].values.tobytes(),
            "steps": lambda: str(run.steps), "status": lambda: run.status,
        }  # fmt: skip
        parts |= {f"weights {s}": lambda s=s: _tensors(run.model(s).state_dict()) for s in run.steps}  # pyrefly: ignore[missing-attribute]
        parts |= {f"state {s}": lambda s=s: _tensors(run.state(s)) for s in run.state_steps}
        trace = run.trace  # once, for arrays are read where they are asked for
        parts |= {f"trace {n}": lambda n=n: _bytes(trace[n].values) for n in map(str, trace.variables)}
    except (ValueError, OSError) as error:
        assert str(error), type(error)
    for name, part in parts.items():
        try:
            found = part()
            told[name] = zlib.crc32(found if isinstance(found, bytes) else found.encode())
        except (ValueError, OSError) as error:
            assert str(error), type(error)
            told[name] = None
    Path(into).write_text(json.dumps({"told": told, "damaged": damaged}))


def _bytes(values: Any) -> bytes:
    return values.tobytes() if values.dtype.kind in "biuf" else str(values.tolist()).encode()


def _tensors(state: dict[str, Any]) -> bytes:
    return b"".join(state[name].contiguous().numpy().tobytes() for name in sorted(state))


def harm(path: Path, draw: random.Random) -> str:
    """One damage of one file, in words."""
    content = bytearray(path.read_bytes())
    kinds = ["a bit", "cut off", "zeros", "noise", "longer", "gone", "empty"]
    if path.suffix == ".json":
        kinds += ["a value"] * 5
    kind = draw.choice(kinds)
    at = draw.randrange(max(1, len(content)))
    if kind == "gone":
        path.unlink()
        return kind
    if kind == "a value":
        told = json.loads(content)
        before = json.dumps(told)
        while json.dumps(told) == before:  # what is drawn may be what is there
            _change(told, draw)
        content = bytearray(json.dumps(told, indent=1).encode())
    elif kind == "a bit" and content:
        content[at] ^= 1 << draw.randrange(8)
    elif kind in ("cut off", "empty"):
        del content[at if kind == "cut off" else 0 :]
    elif kind in ("zeros", "noise"):
        n = min(len(content) - at, draw.choice([1, 16, 512]))
        content[at : at + n] = bytes(n) if kind == "zeros" else draw.randbytes(n)
    else:
        content += draw.randbytes(draw.choice([1, 100]))
    path.write_bytes(content)
    return f"{kind} at {at}"


def _change(told: Any, draw: random.Random) -> None:
    """Another value somewhere in JSON."""
    while True:
        keys = list(told) if isinstance(told, dict) else list(range(len(told)))
        if not keys:
            return
        key = draw.choice(keys)
        if isinstance(told[key], dict | list) and told[key] and draw.random() < 0.8:
            told = told[key]
            continue
        if isinstance(told, dict) and draw.random() < 0.2:
            del told[key]
        else:
            told[key] = draw.choice([None, -1, 0, 10**9, "x", [], {}, True, 0.5])
        return


def victims(run: Path, n: int, draw: random.Random) -> Iterator[Path]:
    """n files of a run, of every kind as many, as paths inside it."""
    groups: dict[str, list[Path]] = {}
    for file in sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file()):
        if "lock" not in file.name:
            groups.setdefault(file.parts[0] + file.suffix, []).append(file)
    kinds = sorted(groups)
    yield from (draw.choice(groups[kinds[i % len(kinds)]]) for i in range(n))


def attack(forks: Forks, folder: Path, run: Path, n: int, seed: int = 0) -> Tally:
    """`n` damages, each of one file of an honest run, every part of which is asked for afterwards."""
    tally, draw = Tally("damaged file x every accessor"), random.Random(seed)
    folder.mkdir(parents=True)
    honest = forks.call(f"{HERE}:values", run, folder / "honest.json")
    assert honest.clean, honest.output
    before = json.loads((folder / "honest.json").read_text())["told"]
    for file in victims(run, n, draw):
        place = folder / "case"
        shutil.copytree(run, place)
        what = harm(place / file, draw)
        same = (place / file).exists() and (place / file).read_bytes() == (run / file).read_bytes()
        out = forks.call(f"{HERE}:values", place, folder / "told.json", timeout=120)
        problems = []
        if not out.clean:
            problems.append(f"status {out.status}, late {out.late}: {out.output[-1500:]}")
        else:
            after = json.loads((folder / "told.json").read_text())
            if not same and not after["damaged"]:
                problems.append("check says that it is whole")
            if not file.suffix or file.suffix == ".safetensors":  # numbers; run.json may be changed by hand
                named = {"steps"} if "it names snapshots" in after["damaged"].get("run.json", "") else set()
                wrong = [k for k, v in after["told"].items() if v not in (None, before.get(k)) and k not in named]
                problems += [f"{k} says something else" for k in wrong]
        tally.case(f"{file}: {what}", *problems, seconds=out.seconds, megabytes=0)
        shutil.rmtree(place)
    return tally
