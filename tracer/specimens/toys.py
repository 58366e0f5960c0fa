"""A paper's trained models for others: weights that other libraries open, what is known of each, and checksums.

A directory for each model of each seed, after its last step, with a card: the tests of the head that its trace calls
the strongest induction head, the paper's own tests of every head, and what its measures recorded of heads last. Beside
them the paper's claims as they came out of these runs, and `SHA256SUMS` of every file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tracer.ablate.own_tests import OwnTest, given_tests, own_test
from tracer.ablate.verdict_card import SEQUENCES, verdict
from tracer.analysis.training_curves import strongest
from tracer.config.field_docs import fields_in_help
from tracer.config.fields import to_dict
from tracer.data.probes import repeated
from tracer.export.bridge import save_bridge
from tracer.export.to_huggingface import clamped, new_directory, own_model, to_huggingface
from tracer.measures import HEAD, MEASURES, described, measures_in
from tracer.model import Transformer
from tracer.specimens.paper import SeedRuns
from tracer.specimens.paper_folder import PaperFolder
from tracer.specimens.table_parts import markdown_table
from tracer.store import Run

SUMS = "SHA256SUMS"
OPENING = """`manyeyes/` of a model opens so, from its directory:

```python
import json
from pathlib import Path

import tracer
from safetensors.torch import load_file
from tracer.config.fields import from_dict

model = tracer.Transformer(from_dict(tracer.ModelConfig, json.loads(Path("manyeyes/config.json").read_text())))
model.load_state_dict(load_file("manyeyes/model.safetensors"))
model.eval()
```

`transformer-lens/README.md` has the lines for that library, where one could be written; `huggingface/` is what
`transformers.AutoModelForCausalLM.from_pretrained` opens. All of them give the same logits.
"""


@fields_in_help
@dataclass(frozen=True)
class Toy:
    """One model that was written."""

    name: str
    """Of the run, and of the model's directory."""
    about: str
    """What the run is for."""
    step: int
    """After so many updates."""
    parameters: int
    """How many the model has."""
    refused: dict[str, str]
    """Why a library cannot have it, by the library."""
    card: str
    """The headline of its card, or why it has none."""


def write_toys(
    folder: PaperFolder, found: Mapping[int, SeedRuns], told: Mapping[str, Any], directory: str | Path
) -> list[Toy]:
    """Every run of a paper that is done, for other libraries, with README.md, claims.json (`told`) and SHA256SUMS.

    ValueError where the directory holds something, or no run is done. A model that a library cannot express is not
    written for it, and README.md says what is in the way.
    """
    runs = [(folder.paper.runs[name].about, run) for of in found.values() for name, run in of.items()]
    if not runs:
        raise ValueError(f"no run of {folder.name} is done, so there is nothing to write: reproduce it first")
    directory = new_directory(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tests = given_tests(folder.paper.tests)
    toys = [_write(about, run, directory / run.name, tests) for about, run in runs]
    (directory / "claims.json").write_text(json.dumps(told, indent=1, allow_nan=False), encoding="utf-8")
    (directory / "README.md").write_text(_readme(folder, toys), encoding="utf-8")
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    sums = {path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (directory / SUMS).write_text("".join(f"{sums[name]}  {name}\n" for name in sums), encoding="utf-8")
    return toys


def _write(about: str, run: Run, directory: Path, tests: Sequence[OwnTest]) -> Toy:
    from safetensors.torch import save_file

    model, step = own_model(run), run.steps[-1]
    ours = directory / "manyeyes"
    ours.mkdir(parents=True)
    (ours / "config.json").write_text(json.dumps(to_dict(model.config), indent=1), encoding="utf-8")
    save_file({name: x.contiguous() for name, x in model.state_dict().items()}, ours / "model.safetensors")
    others: dict[str, Callable[[Transformer, Path], Any]] = {
        "transformer-lens": save_bridge, "Hugging Face": to_huggingface,
    }  # fmt: skip
    held = clamped(model)
    refused = {"manyeyes": f"without {held[0]}"} if held else {}
    for library, save in others.items():
        try:
            save(model, directory / library.replace(" ", "").lower())
        except ValueError as error:
            _, _, way = str(error).partition("In the way: ")
            refused[library] = way or str(error)
    card = _card(run)
    own = "".join(f"\n\n{part}" for part in (_own_tests(run, tests), _own_measures(run)) if part)
    (directory / "card.txt").write_text(f"{card}{own}\n", encoding="utf-8")
    n = sum(x.numel() for x in model.parameters())
    return Toy(run.name, about, step, n, refused, card.splitlines()[0])


def _card(run: Run) -> str:
    """The tests of the strongest induction head at the last step, without the lines that name this machine's files."""
    head = strongest(run.trace)
    if head is None:
        return "No head's induction score stands out above its control."
    try:
        found = verdict(run, *head)
    except ValueError as error:  # such as weights that are not finite
        return f"L{head[0]}H{head[1]} could not be tested: {error}"
    return "\n".join([found.headline, *map(str, found.tests)])


def _own_tests(run: Run, tests: Sequence[OwnTest]) -> str:
    """The paper's tests of every head at the last step, on the random tokens that ours are taken on; "" of none."""
    if not tests:
        return ""
    model = run.model(run.steps[-1])
    tokens = repeated(model.d_vocab, model.n_ctx, getattr(model, "bos", None) or 0, batch=SEQUENCES).tokens
    rows = [
        replace(found, name=f"L{head[0]}H{head[1]} {found.name}")
        for test in tests
        for head in product(range(model.n_layers), range(model.n_heads))
        for found in [own_test(test, model, head, tokens)]
    ]
    return "\n".join(["Tests of the paper:", *map(str, rows)])


def _own_measures(run: Run) -> str:
    """What the last record has of every head that is no measure of ours: a paper's own, its probes, its scalars."""
    lines = []
    for name in measures_in(run.trace):
        if name not in MEASURES:
            of, values = described(name, HEAD, run.trace[name].attrs), run.trace[name].values[-1]
            heads = ", ".join(f"L{layer}H{head} {value:.3g}" for (layer, head), value in np.ndenumerate(values))
            unit = f", {of.unit}" if of.unit else ""
            lines.append(f"{of.label} ({name}{unit}): {heads}")
    return "\n".join(["Recorded of heads by the paper, at the last step:", *lines]) if lines else ""


def _readme(folder: PaperFolder, toys: list[Toy]) -> str:
    paper = folder.paper
    rows = [
        (f"`{toy.name}`", toy.about, f"{toy.step:,}", f"{toy.parameters:,}",
         *("no" if library in toy.refused else "yes" for library in ("transformer-lens", "Hugging Face")), toy.card)
        for toy in toys
    ]  # fmt: skip
    columns = ("model", "what for", "steps", "parameters", "transformer-lens", "Hugging Face", "its strongest head")
    why = [
        f"- `{toy.name}`: {reason} ({', '.join(library for library, of in toy.refused.items() if of == reason)})"
        for toy in toys for reason in dict.fromkeys(toy.refused.values())
    ]  # fmt: skip
    return "\n".join([
        f"# Trained models: {paper.title}", "", f"Source: {paper.source}", "",
        "Small transformers whose heads and training are known, as `tracer reproduce "
        f"{folder.name}` trained and judged them: claims.json holds what is claimed of them with every figure, "
        f"card.txt of a model the tests of its heads. `sha256sum -c {SUMS}` checks the files.", "",
        markdown_table(columns, rows), *(["What is in the way of a library, or left out:", "", *why, ""] * bool(why)),
        OPENING,
    ])  # fmt: skip
