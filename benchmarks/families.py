"""What can be asked of which architecture, each answer proved on a tiny random model in float64: docs/families.md.

    python -m benchmarks.families

A cell is the largest difference between an answer and what it must equal. transformers computes norms and softmaxes in
float32 whatever a model is in, so that 1e-6 is rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

import tracer
from tests.causal_families import CAUSAL, causal
from tests.models import as_trained
from tracer import ablate
from tracer.config import ModelConfig
from tracer.interventions.edits import Edit, applied, recording
from tracer.model import Transformer

PAGE = Path(__file__).parents[1] / "docs" / "families.md"
TOKENS = torch.randint(2, 50, (3, 8), generator=torch.Generator().manual_seed(0))
OTHER = torch.randint(2, 50, (3, 8), generator=torch.Generator().manual_seed(1))
HEAD = (0, 1)


def parts(model: Any) -> float:
    """Parts sum to the stream of every layer."""
    stream = model.residual_stream(TOKENS)
    found = [far(stream.parts(i).sum(0), one.resid_pre) for i, one in enumerate(stream.layers)]
    return max(*found, far(stream.parts().sum(0), stream.final))


def attribution(model: Any) -> float:
    """`tracer.logit_attribution` sums to the logit (before a cap)."""
    found = tracer.logit_attribution(model, TOKENS)
    total = found.embed + found.heads.sum(("layer", "head")) + found.mlps.sum("layer") + found.biases
    return float(abs(total - found.logit).max())


def lens(model: Any) -> float:
    """`tracer.logit_lens` at the last layer is the model's output."""
    found = tracer.logit_lens(model, TOKENS)
    wanted = model(TOKENS).log_softmax(-1).gather(-1, torch.tensor(found.target.values)[..., None])[..., 0]
    return far(torch.tensor(found.log_p.values[-1]), wanted)


def patterns(model: Any) -> float:
    """Patterns and z rebuilt from the stream and weights (rotations, norms of q and k, caps, ALiBi) are the model's."""
    stream, worst = model.residual_stream(TOKENS), 0.0
    with recording("hook_pattern") as seen:
        model(TOKENS)
    for i, one in enumerate(stream.layers):
        for head in range(model.n_heads):
            pattern = seen[f"blocks.{i}.attn.hook_pattern"][:, head].double()
            scores = one.seen_scores(one.scores(head), head).masked_fill(pattern == 0, -torch.inf)
            worst = max(worst, far(scores.softmax(-1), pattern), far(pattern @ one.whole("v", head), one.z[:, :, head]))
    return worst


def written(model: Any) -> float:
    """What attention adds is z W_O + b_O, through the norm behind it: composition and copying are of these weights."""
    stream, weights = model.residual_stream(TOKENS), model.head_weights()
    with recording("hook_attn_out") as seen:
        model(TOKENS)
    assert all(torch.equal(one.weights.W_O, W_O) for one, W_O in zip(stream.layers, weights.W_O, strict=True))
    return max(far(one.attn_out, seen[f"blocks.{i}.hook_attn_out"]) for i, one in enumerate(stream.layers))


def positions(model: Any) -> float:
    """The vectors of positions are the same for other tokens: what a head attends to by positions alone is theirs."""
    one, two = (model.residual_stream(tokens).pos_embed for tokens in (TOKENS, OTHER))
    if one is None:
        raise ValueError("positions are in the scores (rotary, ALiBi), not in the stream")
    return far(one, two)


def heads_off(model: Any) -> float:
    """A head off is a model with zeros in W_O."""
    with applied(ablate.plan([HEAD], "zero")):
        found = model(TOKENS)
    if isinstance(model, Transformer):
        W_O = model.blocks[HEAD[0]].attn.W_O
        assert W_O is not None
        weight, part = W_O, W_O[HEAD[1]]
    else:
        attention = dict(model.model.get_submodule(model.layers[0].name).named_children())
        out = next(attention[name] for name in ("o_proj", "out_proj", "c_proj", "dense") if name in attention)
        with recording("hook_z") as seen:
            model(TOKENS)
        d_head = seen["blocks.0.attn.hook_z"].shape[-1]
        columns = slice(HEAD[1] * d_head, (HEAD[1] + 1) * d_head)
        weight = out.weight
        part = weight[columns] if type(out).__name__ == "Conv1D" else weight[:, columns]
    kept = weight.clone()
    part.zero_()
    wanted = model(TOKENS)
    weight.copy_(kept)
    assert far(found, model(TOKENS)) > 1e-3
    return far(found, wanted)


def mlps_off(model: Any) -> float:
    """The last MLP off is the stream without what it wrote."""
    stream, last = model.residual_stream(TOKENS), model.n_layers - 1
    with applied(ablate.planner(model, TOKENS)([ablate.MLP(last)])[0]):
        return far(model(TOKENS), model.logits(stream.final - stream.mlp_out[last]))


def edges(model: Any) -> float:
    """An edge cut is z without its mass times v."""
    with recording("hook_pattern", "hook_v", "hook_z") as seen:
        model(TOKENS)
    pattern, v, z = (seen[f"blocks.0.attn.hook_{name}"].double() for name in ("pattern", "v", "z"))
    wanted = z[:, 5, 1] - pattern[:, 1, 5, 3, None] * v[:, 3, 1 * v.shape[2] // z.shape[2]]
    with applied(ablate.planner(model, TOKENS)([ablate.Edge(0, 1, 5, 3)])[0]), recording("hook_z") as after:
        model(TOKENS)
    return far(after["blocks.0.attn.hook_z"][:, 5, 1], wanted)


def paths(model: Any) -> float:
    """All paths into the next layer are the head, but for the MLP between."""
    plans = ablate.planner(model, TOKENS, "paired", reference=OTHER)
    every: Any = [ablate.Path(HEAD, (1, head), into) for head in range(model.n_heads) for into in ("q", "k", "v")]
    (cuts,) = plans(every)
    with recording("hook_mlp_out") as clean:
        model(TOKENS)
    mlp, z = Edit("blocks.0.hook_mlp_out", instead=clean["blocks.0.hook_mlp_out"]), "blocks.1.attn.hook_z"
    with applied([*plans([HEAD])[0], mlp]), recording("hook_z") as off:
        model(TOKENS)
    with applied(cuts), recording("hook_z") as cut:
        model(TOKENS)
    return far(cut[z], off[z])


def patching(model: Any) -> float:
    """The whole stream patched is the other run."""
    return float(abs(tracer.patch(model, TOKENS, OTHER, "resid_pre", dims=("layer",))).max())


def repair(model: Any) -> float:
    """The direct effect is what is missed, what the norm gives back and what others do."""
    found = ablate.self_repair(model, TOKENS, HEAD)
    return abs(found.direct - found.missed - found.by_norm - found.by_others)


def card(model: Any) -> float:
    """How many of the six tests of the card cannot be measured."""
    return float(sum("Not measured" in str(test) for test in ablate.verdict(model, 1, 0, sequences=4).tests))


QUESTIONS: dict[str, Callable[[Any], float]] = {
    "stream": parts,
    "attribution": attribution,
    "lens": lens,
    "QK, V": patterns,
    "OV": written,
    "positions": positions,
    "heads": heads_off,
    "MLPs": mlps_off,
    "edges": edges,
    "paths": paths,
    "patch": patching,
    "self-repair": repair,
    "card": card,
}
"""By column; the first line of each says what must be equal."""


def far(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).abs().max())


def models() -> dict[str, Any]:
    sizes: Any = {"n_layers": 3, "n_heads": 4, "d_model": 32, "n_ctx": 64, "d_vocab": 50, "mlp_hidden": (40,)}
    hf: Any = transformers
    falcon = hf.FalconConfig(vocab_size=50, hidden_size=32, num_hidden_layers=3, num_attention_heads=4)
    return {
        "ours": lambda: as_trained(ModelConfig(**sizes), torch.float64),
        "ours, rotary": lambda: as_trained(ModelConfig(**sizes, positions="rotary", norm="layer"), torch.float64),
        **{name: (lambda name=name: tracer.load_hf(causal(name))) for name in CAUSAL},
        "Falcon (not known)": lambda: tracer.load_hf(hf.FalconForCausalLM(falcon).eval().requires_grad_(False)),
    }


@torch.no_grad()
def answers(model: Any) -> list[float | str]:
    """By question: the difference, or the reason why there is none."""
    found: list[float | str] = []
    for ask in QUESTIONS.values():
        try:
            found.append(ask(model))
        except ValueError as error:
            found.append(str(error))
    return found


def page(table: dict[str, list[float | str]]) -> str:
    reasons: list[str] = []

    def cell(answer: float | str) -> str:
        if isinstance(answer, str):
            if answer not in reasons:
                reasons.append(answer)
            return f"({reasons.index(answer) + 1})"
        assert math.isfinite(answer)
        return f"{answer:.0f}" if answer in (0, 1) else f"{answer:.0e}"

    rows = [f"| {name} | {' | '.join(map(cell, found))} |" for name, found in table.items()]
    lines = [
        "# What can be asked of which architecture",
        "",
        "Written by `python -m benchmarks.families`. A cell is the largest difference between an answer and what it",
        "must equal, on a tiny random model in float64. Norms and softmaxes of transformers are in float32 whatever a",
        "model is in: up to 1e-5 is rounding. In brackets: refused, with the reason below.",
        "",
        f"| | {' | '.join(QUESTIONS)} |",
        f"|---|{'---|' * len(QUESTIONS)}",
        *rows,
        "",
        *(f"- **{name}**: {ask.__doc__}" for name, ask in QUESTIONS.items()),
        "",
        *(f"({i}) {reason}" + "  " for i, reason in enumerate(reasons, 1)),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page({name: answers(make()) for name, make in models().items()}))
