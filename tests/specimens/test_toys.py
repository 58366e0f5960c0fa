"""Models of a paper, written for others: opened again from the files alone, by each library and by README's lines."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import tracer
from tracer.cli.commands import main
from tracer.data.probes import repeated
from tracer.presets import preset
from tracer.specimens.paper_folder import load
from tracer.specimens.reproduction import Reproduction

PAPER = """'Words.'

import tracer
config = tracer.TrainConfig(steps=2)

@tracer.head_test(label="At the start", at_least=0.4, text="To the first token.")
def at_start(model, tokens, layer, head):
    return model.run_with_cache(tokens)[1]["pattern", layer][:, head, :, 0].mean(-1)

@tracer.head_test(at_least=1)
def broken(model, tokens, layer, head):
    return 1 / 0

paper = tracer.Paper(
    "Copies", "nobody 2026", {"toy": tracer.PaperRun("it copies", config), "smeared": tracer.PaperRun("s", config)},
    (tracer.Claim("c", ("toy",), lambda runs: float(runs["toy"].trace["induction"].max()), (0.5, None)),),
    tests=(at_start, broken),
)
"""


@tracer.measure(label="To the start", unit="share")
def own(rows: tracer.RowBlock) -> torch.Tensor:
    return rows.pattern[..., 0]


@pytest.fixture
def found(tmp_path: Path, trained_toy: Path, monkeypatch: pytest.MonkeyPatch) -> Reproduction:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/paper.py").write_text(PAPER)
    toy = preset("induction").config
    record = replace(toy.record, val_rows=2, repeat_rows=2, icl_rows=2)
    small = replace(toy, run="checkpoints/smeared", steps=2, device="cpu", record=record)
    smeared = tracer.train(replace(small, model=replace(toy.model, smear="keys")), quiet=True, measures=own)
    return Reproduction(load("./mine"), {0: {"toy": tracer.open_run(trained_toy), "smeared": smeared}}, [])


def code(readme: Path) -> str:
    (block,) = re.findall("```python\n(.*?)```", readme.read_text(), re.DOTALL)
    return block


def opened(readme: Path, name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What README's lines make of the files there."""
    monkeypatch.chdir(place)
    made: dict[str, Any] = {}
    exec(code(readme), made)
    return made[name]


@torch.no_grad()
def test_every_library_opens_the_same_model(
    found: Reproduction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy, smeared = found.write("toys")
    there = tmp_path / "toys"
    assert (toy.name, toy.about, smeared.name) == ("toy", "it copies", "smeared") and toy.refused == {}
    model = found.runs[0]["toy"].model()
    tokens = torch.randint(1, model.d_vocab, (2, model.n_ctx))
    ours = opened(there / "README.md", "model", there / "toy", monkeypatch)
    assert torch.equal(ours(tokens), model(tokens))
    bridge = opened(there / "toy/transformer-lens/README.md", "bridge", there / "toy/transformer-lens", monkeypatch)
    theirs = AutoModelForCausalLM.from_pretrained(there / "toy/huggingface")(tokens).logits
    for logits in (bridge(tokens), theirs):
        torch.testing.assert_close(logits, model(tokens), rtol=1e-4, atol=1e-4)
    card = (there / "toy/card.txt").read_text()
    assert toy.card == card.splitlines()[0] and "is an induction head" in toy.card and str(tmp_path) not in card
    one = opened(there / "README.md", "model", there / "smeared", monkeypatch)
    assert torch.equal(one(tokens), found.runs[0]["smeared"].model()(tokens))
    assert sorted(path.name for path in (there / "smeared").iterdir()) == ["card.txt", "manyeyes"]
    assert "is not an induction head: 0 of" in smeared.card


@torch.no_grad()
def test_a_card_has_the_papers_own_tests_and_measures_of_every_head(found: Reproduction) -> None:
    found.write("toys")
    whole = {name: Path(f"toys/{name}/card.txt").read_text() for name in ("toy", "smeared")}
    for name, card in whole.items():
        run = found.runs[0][name]
        model, made = run.model(), found.folder.paper.tests[0]
        tokens = repeated(model.d_vocab, model.n_ctx, batch=32).tokens
        assert card.count("Tests of the paper:") == 1 and card.count(" Broken") + card.count(" broken") == 8
        assert "raised ZeroDivisionError: division by zero" in card
        for layer in range(2):
            for head in range(4):
                (line,) = re.findall(rf"^(pass|fail)  L{layer}H{head} At the start +([\d.]+)", card, re.M)
                value = float(made(model, tokens, layer, head).mean())
                assert line[0] == ("pass" if value >= 0.4 else "fail")
                assert float(line[1]) == pytest.approx(value, abs=0.01)
    assert "Recorded of heads" not in whole["toy"]
    last = found.runs[0]["smeared"].trace["own"].values[-1]
    (line,) = re.findall(r"^To the start \(own, share\): (.*)$", whole["smeared"], re.M)
    assert line.split(", ") == [f"L{layer}H{head} {last[layer, head]:.3g}" for layer in (0, 1) for head in range(4)]


def test_what_is_beside_the_models(found: Reproduction, tmp_path: Path) -> None:
    found.write("toys")
    there = tmp_path / "toys"
    lines = [line.split("  ", 1) for line in (there / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in lines}
    files = {path.relative_to(there).as_posix(): path for path in there.rglob("*") if path.is_file()}
    assert sums.keys() == files.keys() - {"SHA256SUMS"}
    assert all(sums[name] == hashlib.sha256(files[name].read_bytes()).hexdigest() for name in sums)
    assert json.loads((there / "claims.json").read_text()) == json.loads(json.dumps(found.told))
    readme = (there / "README.md").read_text()
    assert readme.startswith("# Trained models: Copies\n\nSource: nobody 2026\n")
    assert "| `smeared` | s | 2 |" in readme and "| no | no |" in readme
    assert "- `smeared`: smear='keys' ('none' could go) (transformer-lens, Hugging Face)" in readme
    with pytest.raises(ValueError, match="nothing is overwritten, name a new one"):
        found.write("toys")
    with pytest.raises(ValueError, match=r"no run of mine is done, .*: reproduce it first"):
        replace(found, runs={0: {}}).write("more")
    assert not (tmp_path / "more").exists()


def test_the_command_writes_them_and_refuses_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    small = "tracer.TrainConfig(steps=2, device='cpu', model=tracer.ModelConfig(n_layers=1, n_heads=1, d_model=8, "
    small += "n_ctx=16), data=tracer.DataConfig(corpus='repeated-random', vocab_size=40, period_min=3, period_max=6))"
    once = PAPER.replace("tracer.TrainConfig(steps=2)", small).replace(', "smeared": tracer.PaperRun("s", config)', "")
    (tmp_path / "mine/paper.py").write_text(once)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/something").touch()

    def status(*args: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["reproduce", *args])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    code, said = status("./mine", "--toys", "full")
    assert code == 2 and "full exists and is not an empty directory" in said
    assert not (tmp_path / "checkpoints").exists()
    code, said = status("./mine", "--toys", "toys")
    assert code == 1 and re.search(r"1 models? written, 0\.\d MB: toys/README\.md", said), said  # its claim fails
    assert (tmp_path / "toys/mine-toy/huggingface/model.safetensors").exists()
    code, said = status("one-matmul", "--toys", "more")
    assert code == 2 and "--toys: one-matmul trains no model" in said
    code, said = status("single-head", "--toys", "more")
    assert code == 2 and "--toys is of one paper" in said
