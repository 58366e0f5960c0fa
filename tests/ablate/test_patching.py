"""Activation patching against transformer-lens's, against runs by hand, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformer_lens import patching as theirs
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

import tracer
from tests.causal_families import CAUSAL, QUICK, causal
from tests.models import as_trained
from tests.tiers import quick
from tracer import ablate
from tracer.config import ModelConfig
from tracer.interventions.edits import Edit, applied, recording

CLEAN = torch.randint(2, 50, (3, 7), generator=torch.Generator().manual_seed(0))
CORRUPTED = torch.randint(2, 50, (3, 7), generator=torch.Generator().manual_seed(1))
RIGHT, WRONG = torch.tensor([3, 4, 5]), torch.tensor([6, 7, 8])
DIFFERENCE = ablate.LogitDifference(RIGHT, WRONG)
OURS = {"GPT-2": "GPT2LMHeadModel", "Llama": "LlamaForCausalLM", "GPT-NeoX (Pythia)": "GPTNeoXForCausalLM"}
SWEEPS = {
    "resid_pre": theirs.get_act_patch_resid_pre, "attn_out": theirs.get_act_patch_attn_out,
    "mlp_out": theirs.get_act_patch_mlp_out, "z": theirs.get_act_patch_attn_head_out_all_pos,
}  # fmt: skip


def difference(logits: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(len(logits))
    return logits[rows, -1, RIGHT] - logits[rows, -1, WRONG]


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("into", ["corrupted", "clean"])
def test_transformer_lens_agrees(name: str, into: Any) -> None:
    model, twin = tracer.load_hf(causal(name)), copy.deepcopy(causal(name, "eager")).float()
    bridge: Any = build_bridge_from_module(twin, OURS[name], hf_config=twin.config).eval()
    given, other = (CORRUPTED, CLEAN) if into == "corrupted" else (CLEAN, CORRUPTED)
    with torch.no_grad():
        _, cache = bridge.run_with_cache(other, prepend_bos=False)
        for at, sweep in SWEEPS.items():
            wanted = sweep(bridge, given, cache, lambda logits: difference(logits).mean())
            found = tracer.patch(model, CLEAN, CORRUPTED, at, DIFFERENCE, into=into)
            assert found.dims == (("layer", "head") if at == "z" else ("layer", "pos"))
            torch.testing.assert_close(torch.tensor(found.values), wanted.double(), atol=5e-5, rtol=0)
            assert float(found.std()) > 1e-3


@pytest.fixture(scope="module", params=["ours", *quick(CAUSAL, QUICK)])
def model(request: Any) -> Any:
    sizes: Any = {"n_layers": 3, "n_heads": 4, "d_model": 24, "n_ctx": 12, "d_vocab": 50, "mlp_hidden": (20,)}
    return (
        as_trained(ModelConfig(**sizes), torch.float64)
        if request.param == "ours"
        else tracer.load_hf(causal(request.param))
    )


def test_the_whole_stream_is_the_other_run(model: Any) -> None:
    """At every layer, in both directions; and each row has its own partner's."""
    with torch.no_grad():
        clean, corrupted = difference(model(CLEAN)), difference(model(CORRUPTED))
    for into, wanted in (("corrupted", clean), ("clean", corrupted)):
        found = tracer.patch(model, CLEAN, CORRUPTED, "resid_pre", difference, into=into, dims=("layer",), rows=True)
        assert found.dims == ("layer", "batch")
        for one in torch.tensor(found.values):
            torch.testing.assert_close(one, wanted, atol=1e-5, rtol=0)
    assert found.attrs["clean"] == pytest.approx(float(clean.mean()), abs=1e-5)
    assert found.attrs["corrupted"] == pytest.approx(float(corrupted.mean()), abs=1e-5)
    nothing = tracer.patch(model, CLEAN, CORRUPTED, "resid_pre", dims=("layer",))
    assert nothing.attrs["units"] == "nats" and float(abs(nothing).max()) < 1e-6 < nothing.attrs["corrupted"]


def test_a_cell_by_hand_whatever_the_budget() -> None:
    model = tracer.load_hf(causal("GPT-NeoX (Pythia)"))
    with recording("blocks.1.attn.hook_z") as seen:
        model(CLEAN)
    source = seen["blocks.1.attn.hook_z"]
    with torch.no_grad(), applied([Edit("blocks.1.attn.hook_z", (2,), (5,), source)]):
        wanted = difference(model(CORRUPTED))
    options = {"dims": ("layer", "head", "pos"), "rows": True}
    found = tracer.patch(model, CLEAN, CORRUPTED, "z", DIFFERENCE, **options)
    torch.testing.assert_close(torch.tensor(found.sel(layer=1, head=2, pos=5).values), wanted, atol=1e-6, rtol=0)
    small = tracer.patch(model, CLEAN, CORRUPTED, "z", DIFFERENCE, budget=1, **options)
    torch.testing.assert_close(torch.tensor(small.values), torch.tensor(found.values), atol=1e-6, rtol=0)
    one = slice(1, 2)
    metric = ablate.LogitDifference(RIGHT[one], WRONG[one])
    alone = tracer.patch(model, CLEAN[one], CORRUPTED[one], "z", metric)
    together = tracer.patch(model, CLEAN, CORRUPTED, "z", DIFFERENCE, rows=True)[..., 1]
    torch.testing.assert_close(torch.tensor(alone.values), torch.tensor(together.values), atol=1e-6, rtol=0)


def test_it_is_the_paired_ablation_of_each_head() -> None:
    model = tracer.load_hf(causal("GPT-NeoX (Pythia)"))
    patched = tracer.patch(model, CLEAN, CORRUPTED, "z", DIFFERENCE, into="clean")
    swept = ablate.sweep(model, CLEAN, "paired", reference=CORRUPTED, metric=DIFFERENCE)
    torch.testing.assert_close(torch.tensor(patched.values - patched.attrs["clean"]), torch.tensor(swept.values))


def test_metrics_of_tokens() -> None:
    model = causal("GPT-2")
    with torch.no_grad():
        p = model(CORRUPTED).logits[:, -1].softmax(-1)
    found = tracer.patch(model, CLEAN, CORRUPTED, "z", ablate.Probability(7))
    assert found.attrs["corrupted"] == pytest.approx(float(p[:, 7].mean()))
    assert found.attrs["long_name"] == "probability"


def test_by_default_it_is_the_divergence_of_the_clean_prediction() -> None:
    """From the clean run: what it expects and the patched one does not counts, not the other way round."""
    model = causal("GPT-2")
    with torch.no_grad():
        p, q = (model(tokens).logits[:, -1].double().softmax(-1) for tokens in (CLEAN, CORRUPTED))
    wanted, backward = (float((a * (a / b).log()).sum(-1).mean()) for a, b in ((p, q), (q, p)))
    assert abs(wanted / backward - 1) > 1e-3
    for into in ("corrupted", "clean"):
        found = tracer.patch(model, CLEAN, CORRUPTED, into=into)
        assert found.attrs["corrupted"] == pytest.approx(wanted, rel=1e-5) and abs(found.attrs["clean"]) < 1e-9


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"corrupted": CORRUPTED[:2]}, r"\[3, 7\] and \[2, 7\] are not pairs"),
    ({"at": "resid"}, "nothing that can be patched; there are: z, resid_pre, attn_out, mlp_out"),
    ({"into": "both"}, "into='both'"),
    ({"dims": ["head", "layer"]}, r"cannot be patched by \('head', 'layer'\)"),
    ({"at": "mlp_out", "dims": ("layer", "head")}, r"cannot be patched by \('layer', 'head'\); by: \('layer',\)"),
    ({"metric": "accuracy"}, "metric='accuracy' is none"),
    ({"metric": lambda logits: logits.mean()}, r"metric returned \[\] for 3 rows: it must return one number a row"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "says"), REFUSED)
def test_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tracer.patch(causal("GPT-2"), **dict[str, Any](clean=CLEAN, corrupted=CORRUPTED) | changed)


def test_as_many_cells_go_together_as_the_budget_holds() -> None:
    """Logits twice, and 16 activations of the widest layer, of each token; 8 bytes a number."""
    model = as_trained(ModelConfig(n_layers=1, n_heads=4, d_model=24, n_ctx=12, d_vocab=50), torch.float64)
    cell, rows = 3 * 7 * (2 * 50 + 16 * 24) * 8, list[int]()
    model.register_forward_hook(lambda module, args, output: rows.append(len(args[0])))
    for budget, passes in ((cell * 3 - 1, [6, 6]), (cell * 3, [9, 3]), (1, [3] * 4)):
        del rows[:]
        tracer.patch(model, CLEAN, CORRUPTED, "z", DIFFERENCE, budget=budget)
        assert rows == [3, 3, *passes]
