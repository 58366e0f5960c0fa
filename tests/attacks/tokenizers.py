"""Tokenizers of strangers' runs: each may be refused in words, and none may fill memory, run on, or cut a prompt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.attacks.forks import Forks
from tests.attacks.table import Tally
from tracer.data.tokenizer import train_bpe

HERE = "tests.attacks.tokenizers"
MEGABYTES, SECONDS = 600, 20.0
"""What reading one prompt may take, beyond what a process takes that does nothing."""
MOST = 8
"""Tokens a letter of the prompt may become: four bytes, each a token, and as many again for what a rule adds."""
PROMPT = "the cat sat on the mat, and the dog (who was late) saw it: aaaaaaaaaaaaaaaaaaaaaaaa! " * 20
READ = "the prompt was read"
HONEST = "an honest one"
"""Must be read: what refuses everything would pass all others."""
Rules = dict[str, Any]


def _replace(times: int, by: str) -> list[Rules]:
    return [{"type": "Replace", "pattern": {"String": "a"}, "content": by} for _ in range(times)]


def _nested(kind: str, depth: int) -> str:
    """As text: json's own encoder does not go so deep."""
    inner = "Lowercase" if kind == "normalizers" else "Whitespace"
    opening = '{"type": "Sequence", "' + kind + '": ['
    return opening * depth + '{"type": "' + inner + '"}' + "]}" * depth


SPLIT = {"type": "Split", "pattern": {"Regex": r"((a+)+)+$"}, "behavior": "Isolated", "invert": False}
KINDS: dict[str, Callable[[], Rules]] = {
    HONEST: dict,
    "padding to 2e11": lambda: {"padding": {"strategy": {"Fixed": 200_000_000_000}, "direction": "Right",
                                            "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
                                            "pad_token": "x"}},
    "padding to a multiple of 2e9": lambda: {"padding": {"strategy": "BatchLongest", "direction": "Left",
                                                         "pad_to_multiple_of": 2_000_000_000, "pad_id": 0,
                                                         "pad_type_id": 0, "pad_token": "x"}},
    "truncation to 3": lambda: {"truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst",
                                               "stride": 0}},
    "24 replacements of a by aaa": lambda: {"normalizer": {"type": "Sequence", "normalizers": _replace(24, "aaa")}},
    "a is replaced by a megabyte": lambda: {"normalizer": _replace(1, "b" * (1 << 20))[0]},
    "a megabyte in front": lambda: {"normalizer": {"type": "Prepend", "prepend": "b" * (1 << 20)}},
    "a pattern that tries all ways": lambda: {"pre_tokenizer": SPLIT},
    "rules 5,000 deep": lambda: {"normalizer": _nested("normalizers", 5000)},
    "splits 5,000 deep": lambda: {"pre_tokenizer": _nested("pretokenizers", 5000)},
    "a template of 100,000 texts": lambda: {"post_processor": {
        "type": "TemplateProcessing", "pair": [], "special_tokens": {},
        "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 100_000}},
    "a million added tokens": lambda: {"added_tokens": [
        {"id": 10_000 + i, "content": f"<{i}>", "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True} for i in range(1_000_000)]},
    "an id of 2^32 - 1": lambda: {"added_tokens": [
        {"id": 2**32 - 1, "content": "the", "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}]},
    "a model of no kind": lambda: {"model": {"type": "None"}},
    "a list": lambda: {"model": []},
}  # fmt: skip


def read(folder: str) -> None:
    """A prompt in the run's tokens, as a page shows it, of a model whose context has no end."""
    from tracer.analysis import run_prompts
    from tracer.data import encode_prompt
    from tracer.store import Run

    try:
        run = Run(Path(folder))
        ids = encode_prompt(run.tokenizer, PROMPT, n_ctx=run_prompts.ENDLESS).tokens
        run_prompts.strings(run, ids[:64])
    except (ValueError, OSError, KeyError) as error:
        print(error)  # noqa: T201 - what was refused
        return
    print(READ)  # noqa: T201
    assert len(ids) <= MOST * len(PROMPT), f"{len(ids)} tokens of {len(PROMPT)} letters"
    assert len(ids) > len(PROMPT) / 100, f"the prompt was cut to {len(ids)} tokens"


def nothing(_: str) -> None: ...


def attack(forks: Forks, folder: Path, run: Path, n: int, seed: int = 0) -> Tally:
    tally = Tally("tokenizer of a stranger")
    base = forks.call(f"{HERE}:nothing", "").megabytes
    honest = json.loads(train_bpe([PROMPT], 300).to_str())
    for name, rules in list(KINDS.items())[:n]:
        place = folder / "case"
        shutil.copytree(run, place)
        path = place / "tokenizer.json"
        written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in rules().items()}
        kept = {key: json.dumps(value) for key, value in honest.items()}
        path.write_text("{" + ", ".join(f'"{key}": {value}' for key, value in (kept | written).items()) + "}")
        _forget_digest(place)
        out = forks.call(f"{HERE}:read", place, timeout=120)
        problems = [] if out.clean else [f"status {out.status}, late {out.late}: {out.output[-1500:]}"]
        if name == HONEST and READ not in out.output:
            problems.append(f"an honest one was refused: {out.output[-1500:]}")
        if out.megabytes - base > MEGABYTES or out.seconds > SECONDS:
            problems.append(f"{out.megabytes - base:.0f} MB, {out.seconds:.0f} s")
        tally.case(name, *problems, seconds=out.seconds, megabytes=out.megabytes - base)
        shutil.rmtree(folder)
    return tally


def _forget_digest(place: Path) -> None:
    """A stranger signs their own files: run.json says that this is the tokenizer it was written with."""
    from tracer.store.meta import read_meta, write_meta

    meta = read_meta(place)
    write_meta(place, {**meta, "digests": {k: v for k, v in meta.get("digests", {}).items() if k != "tokenizer.json"}})
