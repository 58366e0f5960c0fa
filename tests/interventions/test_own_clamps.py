"""Clamps of a user's own: a function that gives a head's pattern, or its z, in every pass, and who may run it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.interventions.test_clamps import MODEL, TOKENS, tiny
from tracer import ablate
from tracer.analysis import prompt_attention
from tracer.analysis.entropy_bound import bound
from tracer.cli import configs, trainings
from tracer.cli.arguments import values
from tracer.config import Clamp, TrainConfig
from tracer.data.probes import per_token_loss
from tracer.interventions import clamps
from tracer.interventions.edits import Edit, applied, recording
from tracer.interventions.own_clamps import ClampedHead, texts
from tracer.model import Transformer
from tracer.named_code import CLAMPS, NAMED, why_no_clamp
from tracer.training import loop
from tracer.training.clamping import try_out, with_these

HERE = "tests.interventions.test_own_clamps"


def previous(head: Any) -> torch.Tensor:
    """The perfect previous-token head, the same in every sequence; row 0 sees itself."""
    n = head.tokens.shape[1]
    return torch.eye(n)[[0, *range(n - 1)]]


def first_copy(head: Any) -> torch.Tensor:
    """A pattern made of tokens: on the first place where a query's token stood, itself included."""
    same = (head.tokens[:, :, None] == head.tokens[:, None]).float()
    return torch.nn.functional.one_hot(same.argmax(-1), same.shape[-1])


def halved(head: Any) -> torch.Tensor:
    """Half its own, half on itself."""
    head.pattern *= 0.5  # a copy: other heads keep theirs
    return head.pattern + 0.5 * torch.eye(head.pattern.shape[-1]).to(head.pattern)


def turned(head: Any) -> torch.Tensor:
    """z of its own pattern and values, upside down."""
    return -(head.pattern @ head.v)


def nothing(head: Any) -> torch.Tensor:
    return torch.zeros_like(head.z)


def clamped(*clamp: str, given: Any = None, **changes: Any) -> Transformer:
    config = TrainConfig(model=MODEL, clamp=clamp)
    model = Transformer(replace(MODEL, **changes)).eval()
    model.clamps = clamps.edits(with_these(config, given or clamp), 0)
    return model


@pytest.mark.parametrize(
    ("text", "expected", "again"),
    [
        ("L1H2 = m.n:f", Clamp(1, 2, "pattern", code="m.n:f"), "L1H2 = m.n:f"),
        ("L1H2=m:f 3:", Clamp(1, 2, "pattern", 3, None, "m:f"), "L1H2 = m:f 3:"),
        ("L1 z = m:C.f :5", Clamp(1, None, "z", 0, 5, "m:C.f"), "L1 z = m:C.f 0:5"),
        ("L0H1 off", Clamp(0, 1, "off"), "L0H1 off"),
    ],
)
def test_the_words(text: str, expected: Clamp, again: str) -> None:
    assert Clamp.parse(text) == expected and str(expected) == again and Clamp.parse(again) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("L1H2 = hf:f", "is not understood"),
        ("L1H2 pattern = m:f", r"write .*\"L1H2 = module:function\" .* or \"L1H2 z = module:function\""),
        ("L2H0 = m:f", "'L2H0 = m:f': this model has layers 0 to 1 and heads 0 to 3"),
        ("L0H4 z = m:f", "'L0H4 z = m:f': this model has layers 0 to 1 and heads 0 to 3"),
        (("L0H1 = m:f", "L0 = m:g"), "'L0H1 = m:f' and 'L0 = m:g' give one head two of the same"),
    ],
)
def test_words_that_are_none(given: str | tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TrainConfig(model=MODEL, clamp=(given,) if isinstance(given, str) else given)
    TrainConfig(model=MODEL, clamp=("L0H1 = m:f :3", "L0H1 = m:g 3:", "L0H1 z = m:g"))


def test_a_function_is_given_by_its_name_or_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(NAMED, f"{HERE}:previous", raising=False)
    assert texts({"L0H1 2:4": previous, "L1H0 z": f"{HERE}:turned", "L1H1": "off"}) == (
        f"L0H1 = {HERE}:previous 2:4", f"L1H0 z = {HERE}:turned", "L1H1 off",
    )  # fmt: skip
    assert NAMED[f"{HERE}:previous"] is previous
    config = TrainConfig(model=MODEL, clamp=("L0H1 off",))
    assert with_these(config, ["L0H1 off", "L1 previous"]).clamp == ("L0H1 off", "L1 previous")
    with pytest.raises(ValueError, match=r"clamp='nowhere:f': nowhere cannot be imported"):
        texts("L0H1 = nowhere:f")
    with pytest.raises(
        ValueError, match=f"clamp 'L0H1 = {HERE}:HERE': {HERE}:HERE is a str, and no function of a head"
    ):
        texts(f"L0H1 = {HERE}:HERE")
    with pytest.raises(
        ValueError, match=r"functions of 'L0H0' and 'L0H1' are both called .*<lambda>: give each a name"
    ):
        texts({"L0H0": lambda head: head.pattern, "L0H1": lambda head: head.z})


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_perfect_previous_is_the_word_previous(positions: Any) -> None:
    """By every way through a model: logits, thumbs, sweeps from the shared prefix, and beside other clamps."""
    ours = clamped(f"L0H2 = {HERE}:previous", "L0H1 no-previous", positions=positions)
    word = clamped("L0H2 previous", "L0H1 no-previous", positions=positions)
    torch.testing.assert_close(ours(TOKENS), word(TOKENS), atol=1e-6, rtol=0)
    looks = [prompt_attention.look(model, TOKENS[:1]).pattern(0, head) for model in (ours, word) for head in (1, 2)]
    np.testing.assert_allclose(looks[:2], looks[2:], atol=1e-6)
    for mode, frozen in (("zero", False), ("resample", True)):
        found, expected = (ablate.sweep(model, TOKENS, mode, frozen=frozen) for model in (ours, word))
        np.testing.assert_allclose(found, expected, atol=1e-6)
    unbound, free = bound(ours, TOKENS), bound(Transformer(replace(MODEL, positions=positions)).eval(), TOKENS)
    assert torch.isnan(unbound.entropy[0, 2]) and unbound.entropy.isnan().sum() == 1
    torch.testing.assert_close(unbound.by_scores[0, 3], free.by_scores[0, 3])


@torch.no_grad()
def test_a_pattern_of_tokens_and_a_z_of_ones_own() -> None:
    held = clamped(f"L1H0 = {HERE}:first_copy", f"L0H3 = {HERE}:halved", f"L1H2 z = {HERE}:turned")
    free = Transformer(MODEL).eval()
    with recording("hook_pattern", "hook_z", "hook_v") as seen:
        held(TOKENS)
    with recording("hook_pattern") as clean:
        free(TOKENS)
    first, was = (x["blocks.0.attn.hook_pattern"] for x in (seen, clean))
    assert torch.equal(first[:, :3], was[:, :3])
    torch.testing.assert_close(first[:, 3], was[:, 3] / 2 + torch.eye(12) / 2)
    second, v, z = (seen[f"blocks.1.attn.hook_{what}"] for what in ("pattern", "v", "z"))
    rows = [[tokens.index(token) for token in tokens] for tokens in TOKENS.tolist()]
    assert second[:, 0].argmax(-1).tolist() == rows and (second[:, 0].amax(-1) == 1).all()
    torch.testing.assert_close(z[:, :, 0], v[torch.arange(3)[:, None], torch.tensor(rows), 0])
    torch.testing.assert_close(z[:, :, 2], -(second[:, 2] @ v[:, :, 2]))
    assert [c.tap for c in held.clamps] == [
        "blocks.0.attn.hook_pattern",
        "blocks.1.attn.hook_z",
        "blocks.1.attn.hook_pattern",
    ]
    for frozen in (False, True):  # heads of layer 0 off, all at once from the shared prefix, and one by one
        hold = [Edit("blocks.1.attn.hook_pattern", instead=second)] if frozen else []
        losses = []
        for off in ((), *((head,) for head in range(4))):
            with applied([Edit("blocks.0.attn.hook_z", off), *hold]):
                losses.append(float(per_token_loss(held(TOKENS), TOKENS).mean()))
        swept = ablate.sweep(held, TOKENS, "zero", frozen=frozen).sel(layer=0).values
        assert swept.tolist() == pytest.approx([loss - losses[0] for loss in losses[1:]], abs=1e-5)


def test_gradients_of_a_pattern_of_tokens_are_those_by_hand() -> None:
    """They flow through v and W_O alone; float64, one layer of attention and nothing else, by hand in numpy."""
    small = replace(MODEL, n_layers=1, norm="none", positions="none")
    model = Transformer(small).double()
    model.clamps = clamps.edits(with_these(TrainConfig(model=small), {"L0H1": first_copy}), 0)
    weight = torch.randn(3, 12, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (model(TOKENS) * weight).sum().backward()
    attn = model.blocks[0].attn
    assert attn.W_O is not None and attn.W_O.grad is not None and attn.W_Q.grad is not None
    assert attn.W_V.grad is not None and attn.W_K.grad is not None
    W_E, W_U, W_V, W_O = (w.detach().numpy() for w in (model.embed.W_E, model.W_U, attn.W_V[1], attn.W_O[1]))
    x, out = W_E[TOKENS.numpy()], weight.numpy() @ W_U.T
    p = np.stack([np.eye(12)[[row.index(token) for token in row]] for row in TOKENS.tolist()])
    grad_v = np.einsum("bqk,bqd->bkd", p, out @ W_O.T)
    np.testing.assert_allclose(attn.W_V.grad[1], np.einsum("bkm,bkd->md", x, grad_v), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(attn.W_O.grad[1], np.einsum("bqd,bqm->dm", p @ x @ W_V, out), rtol=1e-12, atol=1e-12)
    for grad in (attn.W_Q.grad, attn.W_K.grad):
        assert [bool((grad[head] == 0).all()) for head in range(4)] == [False, True, False, False]


def test_gradients_flow_through_what_is_made_of_its_own() -> None:
    """Of half its own pattern: the slope along a direction of W_Q, against a difference."""
    small = replace(MODEL, n_layers=1)
    model = Transformer(small).double()
    model.clamps = clamps.edits(with_these(TrainConfig(model=small), {"L0H1": halved, "L0H3 z": nothing}), 0)
    model(TOKENS)[:, :, 0].sum().backward()
    W_Q, h = model.blocks[0].attn.W_Q, 1e-5
    assert W_Q.grad is not None and (W_Q.grad[3] == 0).all() and (W_Q.grad[1] != 0).any()
    slope, values = W_Q.grad[1].square().sum(), []
    with torch.no_grad():
        for sign in (1, -2):
            W_Q[1] += sign * h * W_Q.grad[1]
            values.append(model(TOKENS)[:, :, 0].sum())
    torch.testing.assert_close((values[0] - values[1]) / (2 * h), slope, rtol=1e-6, atol=0)


@torch.no_grad()
def test_the_pattern_of_another_model() -> None:
    """Which is run inside: what is recorded, edited or shown around the clamped model is that of it alone."""
    donor = Transformer(MODEL, seed=5).eval()

    def theirs(head: ClampedHead) -> torch.Tensor:
        with recording(tap := f"blocks.{head.layer}.attn.hook_pattern") as seen:
            donor(head.tokens)
        return seen[tap][:, head.head]

    held = clamped(given={"L1H2": theirs})
    with recording("hook_pattern") as of_donor:
        donor(TOKENS)
    with recording("hook_pattern") as seen:
        held(TOKENS)
    with recording("hook_pattern") as clean:
        Transformer(MODEL).eval()(TOKENS)
    expected = clean["blocks.1.attn.hook_pattern"].clone()
    expected[:, 2] = of_donor["blocks.1.attn.hook_pattern"][:, 2]
    torch.testing.assert_close(seen["blocks.1.attn.hook_pattern"], expected)
    assert torch.equal(seen["blocks.0.attn.hook_pattern"], clean["blocks.0.attn.hook_pattern"])


def wrong_shape(head: Any) -> torch.Tensor:
    return head.pattern[:, :, :5]


def not_a_number(head: Any) -> torch.Tensor:
    return head.pattern * float("nan")


def not_one(head: Any) -> torch.Tensor:
    return head.pattern * torch.linspace(1, 0.5, 12)[:, None]


def negative(head: Any) -> torch.Tensor:
    return head.pattern.roll(1, 0) * 3 - head.pattern * 2


def ahead(head: Any) -> torch.Tensor:
    return head.pattern.flip(-1)


def no_tensor(head: Any) -> None:
    head.pattern[:] = 0


def failing(head: Any) -> torch.Tensor:
    return head.nowhere


def by_dice(head: Any) -> torch.Tensor:
    return (torch.rand_like(head.pattern)).masked_fill(head.pattern == 0, -9).softmax(-1).tril() / 1


WRONG = [
    (
        "L1H2 =",
        wrong_shape,
        r"returned \[3, 12, 5\], and not a pattern \[batch query_pos key_pos\], here \[3, 12, 12\]",
    ),
    ("L1H2 z =", wrong_shape, r"returned \[3, 12, 5\], and not z \[batch pos d_head\], here \[3, 12, 4\]"),
    ("L1H2 =", not_a_number, "returned weights that are not finite"),
    ("L1H2 z =", lambda head: head.z / 0, "returned numbers that are not finite"),
    ("L1H2 =", not_one, r"rows that do not sum to 1, such as 0.955 in row 1: divide by the sum"),
    ("L1H2 =", negative, "returned negative weights"),
    ("L1H2 =", ahead, "weights on tokens that come after the query"),
    ("L1H2 =", no_tensor, "returned NoneType, and no tensor"),
    ("L1H2 5:6 =", failing, "failing raised AttributeError: 'ClampedHead' object has no attribute 'nowhere'"),
    ("L1H2 =", by_dice, "gave something else for the same tokens the second time"),
]


@pytest.mark.parametrize(("where", "function", "words"), WRONG)
def test_what_can_be_no_clamp_is_refused_before_step_1(where: str, function: Any, words: str) -> None:
    config = with_these(TrainConfig(model=MODEL), {where.removesuffix(" ="): function})
    model = Transformer(MODEL).train()
    with pytest.raises(ValueError, match=f"clamp '{where.split(' 5')[0].removesuffix(' =')} =.*{words}"):
        try_out(model, config, TOKENS)


@torch.no_grad()
def test_a_model_that_diverged_is_no_mistake_of_the_function() -> None:
    model = clamped(given={"L0H3": halved, "L1H2 z": turned})
    model.blocks[0].attn.W_Q[3] = float("nan")
    assert model(TOKENS).isnan().any()


def test_trying_out_leaves_no_trace() -> None:
    model, state = Transformer(MODEL).train(), torch.get_rng_state()
    try_out(model, with_these(TrainConfig(model=MODEL), {"L0H1": previous, "L0H2 z": turned}), TOKENS)
    assert model.clamps == () and model.training and torch.equal(state, torch.get_rng_state())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("runs") / "held"
    held = {"L0H2 2:4": previous, "L1H1 z": f"{HERE}:turned", "L1H3": "off"}
    return loop.train(replace(tiny(directory), steps=5), quiet=True, clamp=held)


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which nobody has named the functions."""
    for name in ("previous", "turned"):
        monkeypatch.delitem(NAMED, f"{HERE}:{name}", raising=False)


OWN = (f"L0H2 = {HERE}:previous 2:4", f"L1H1 z = {HERE}:turned")


def test_a_run_says_what_was_held_and_measures_it(run: Any) -> None:
    assert run.meta["config"]["clamp"] == [*OWN, "L1H3 off"]
    previous_token = run.trace["previous_token"].sel(layer=0, head=2).values
    assert (previous_token == 1).tolist() == [False, False, True, True, False, False]
    grads = run.trace["head_grad_norm"].sel(layer=0, head=2, matrix=["Q", "K"]).values
    assert (grads == 0).all(-1).tolist() == [False, False, True, True, False, False]
    kept = run.trace["pattern"].sel(prompt="text 0", layer=0, head=2).dropna("step", how="all")
    assert np.isfinite(kept).any()


def test_a_head_of_the_last_layer_is_measured_as_it_was_held(tmp_path: Path) -> None:
    run = loop.train(replace(tiny(tmp_path / "last"), steps=2), quiet=True, clamp={"L1H2": previous})
    held = run.trace["previous_token"].sel(layer=1).values == 1
    assert held[:, 2].all() and held.sum() == len(held)


def test_where_nobody_named_it_a_model_is_read_and_not_run(run: Any, stranger: None) -> None:
    model = run.model(5)
    assert model.W_Q.shape[:2] == (2, 4) and "entropy" in run.trace
    words = rf'clamp "L1H1 z = {HERE}:turned" is code, which is never taken from a run directory: name it, `--clamp'
    with pytest.raises(ValueError, match=words):
        model(TOKENS)
    told = f'(where you trust it: `manyeyes --clamp "{OWN[0]}" "{OWN[1]}"`)'
    assert told in run.why_not("prompts") and not run.can("attribution") and run.can("composition")
    free = run.model(5, clamps=False)(TOKENS)
    assert not torch.allclose(run.model(5, clamps=OWN)(TOKENS), free) and run.can("prompts")


def test_a_person_names_it_for_the_dashboard(run: Any, stranger: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLAMPS, f"other:f,{HERE}:turned,{HERE}:previous")
    assert run.can("prompts")
    run.model(5)(TOKENS)


def test_who_goes_on_names_it_again(run: Any, stranger: None) -> None:
    with pytest.raises(ValueError, match=rf'name the same again, --clamp "{OWN[0]}" "{OWN[1]}"'):
        loop.resume(run.dir, steps=8)
    with pytest.raises(ValueError, match=rf'name the same again, --clamp "{OWN[0]}" "{OWN[1]}"'):
        loop.resume(run.dir, steps=8, clamp=OWN[1])
    with pytest.raises(ValueError, match=r'is trained with clamp=.*, not with "L0 off": .* `tracer fork held --step'):
        loop.resume(run.dir, steps=8, clamp=[*OWN, "L0 off"])
    NAMED.pop(f"{HERE}:previous")
    with pytest.raises(ValueError, match=rf'clamp "{OWN[0]}" is code, .* name it, `--clamp "{OWN[0]}"`'):
        loop.fork(run, 4, replace(run.config, run=str(run.dir.parent / "forked"), steps=8), clamp=OWN[1])
    assert not (run.dir.parent / "forked").exists()


def test_a_command_line_and_a_file_name_it_and_a_run_does_not(run: Any, stranger: None, tmp_path: Any) -> None:
    assert values(["train", "demo", "--clamp", "a", "b", "--run", "c", "--clamp=d"], "--clamp") == ["a", "b", "d"]
    config, _ = configs.read(run.dir / "run.json")
    assert config.clamp[0] == OWN[0] and f"{HERE}:previous" not in NAMED
    with pytest.raises(ValueError, match="is code, which is never taken from a run directory"):
        trainings.train_all(config, None, (0, 1), (), ())
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"preset": "induction", "clamp": [OWN[0]]}))
    assert configs.read(path)[0].clamp == OWN[:1] and NAMED[f"{HERE}:previous"] is previous
    assert config.clamp == (*OWN, "L1H3 off")


@pytest.mark.parametrize("given", [None, 5, previous, [previous], {5: previous}, {"L0\nH1": previous}])
def test_what_is_no_clamp_is_refused_in_words(given: Any) -> None:
    with pytest.raises(ValueError, match=r"^clamp.*(is no clamp|says no head): write"):
        texts(given)


def test_a_module_without_it_is_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, words in (("nosuch:f", "nosuch"), (f"{HERE}:HERE", "is a str, and no function of a head")):
        monkeypatch.setenv(CLAMPS, name)
        assert words in why_no_clamp(f"L0H1 = {name}", name) and name not in NAMED
        with pytest.raises(ValueError, match=words):
            configs.name_clamps([f"L0H1 = {name}"])


def test_only_the_run_s_own_clamps_are_named_again(run: Any) -> None:
    for other in ("L0H0 off", {"L0H2": first_copy}):
        with pytest.raises(ValueError, match=r"held was not trained with 'L0H"):
            run.model(5, clamps=other)
    run.model(5, clamps=run.meta["config"]["clamp"])


def test_a_model_keeps_the_function_it_was_made_with() -> None:
    def of(shift: float) -> Transformer:
        def turn(head: Any) -> torch.Tensor:
            return head.z + shift

        return clamped(given={"L0H1 z": turn})

    one = of(1.0)
    before = one(TOKENS)
    assert not torch.allclose(of(3.0)(TOKENS), before)
    torch.testing.assert_close(one(TOKENS), before)
