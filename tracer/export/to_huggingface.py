"""Our models as Hugging Face models of the same logits, and as directories that `from_pretrained` opens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.config import ModelConfig
from tracer.data.tokenizer import BOS
from tracer.export.families import family_of
from tracer.export.folding import fold, heads_fit, is_post_norm, lacks_final_norm, lay
from tracer.model import Transformer
from tracer.store import Run

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


def to_huggingface(source: Run | Transformer, directory: str | Path, step: int | None = None) -> PreTrainedModel:
    """Write a model (of a run: after `step` updates, or the last) as config.json, model.safetensors and the tokenizer.

    `AutoModelForCausalLM.from_pretrained(directory)` and `AutoTokenizer.from_pretrained(directory)` open it.
    """
    if isinstance(source, Transformer) and step is not None:
        raise ValueError(f"step={step} is for runs, and this is a model: give the run, or leave step out")
    directory = new_directory(directory)
    model = source if isinstance(source, Transformer) else own_model(source, step)
    theirs = as_huggingface(model)
    theirs.save_pretrained(directory)
    if model.tokenizer is not None:
        huggingface_tokenizer(model.tokenizer, model.config.n_ctx).save_pretrained(directory)
    return theirs


def own_model(run: Run, step: int | None = None) -> Transformer:
    """The model of a run, after `step` updates or the last; ValueError for one that is not ours."""
    model = run.model(step)
    if not isinstance(model, Transformer):
        raise ValueError("the model of this run came from elsewhere, and can be had there; only ours are exported")
    return model


def new_directory(directory: str | Path) -> Path:
    """ValueError where something is there already."""
    directory = Path(directory)
    if directory.exists() and not (directory.is_dir() and next(directory.iterdir(), None) is None):
        raise ValueError(f"{directory} exists and is not an empty directory: nothing is overwritten, name a new one")
    return directory


def as_huggingface(model: Transformer) -> PreTrainedModel:
    """The model of `transformers` that gives the same logits, in eval mode; ours is untouched."""
    c = model.config
    refuse("Hugging Face", [*clamped(model), *_huggingface_obstacles(c)])
    family = family_of(c)
    stream = lay(c, layer_norm_only=family.layer_norm_only, any_d_head=family.any_d_head, fixed_eps=family.fixed_eps)
    theirs = family.build(c, stream, model.embed.W_E.dtype, model.bos)
    state = family.state(fold(model, stream))
    placeless = {name: state.pop(name) for name in state.keys() - theirs.state_dict().keys()}
    assert not any(weight.any() for weight in placeless.values()), f"{theirs} has no place for {placeless.keys()}"
    theirs.load_state_dict(state, strict=True)
    return theirs.eval()


def huggingface_tokenizer(tokenizer: Tokenizer, n_ctx: int) -> PreTrainedTokenizerFast:
    """A copy that puts the start token, where there is one, in front of every text; it also ends a document, as GPT-2's
    does."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    copy = Tokenizer.from_str(tokenizer.to_str())
    marks: dict[str, Any] = {}
    if (start := tokenizer.token_to_id(BOS)) is not None:
        copy.post_processor = TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, start)])
        marks = {"bos_token": BOS, "eos_token": BOS, "add_bos_token": True}
    return PreTrainedTokenizerFast(
        tokenizer_object=copy, model_max_length=n_ctx, clean_up_tokenization_spaces=False, name_or_path="manyeyes",
        **marks,
    )  # fmt: skip


def refuse(whose: str, in_the_way: list[str]) -> None:
    if in_the_way:
        raise ValueError(f"no model of {whose} computes what this one does. In the way: {'; '.join(in_the_way)}")


def clamped(model: Transformer) -> list[str]:
    """What it holds beside its weights."""
    taps = ", ".join(dict.fromkeys(clamp.tap for clamp in model.clamps))
    return [f"clamps at {taps} (run.model(step, clamps=False) could go)"] if taps else []


def obstacles(c: ModelConfig) -> list[str]:
    """Options that are ours alone, each with what could be in its place."""
    found = {
        "residual=False (True could go)": not c.residual,
        f"mlp_hidden={c.mlp_hidden} (one hidden layer could go, or none)": len(c.mlp_hidden) > 1,
        f"unembed_hidden={c.unembed_hidden} (a single W_U could go)": c.unembed_hidden,
        "positions='shortformer' (all others could go)": c.positions == "shortformer",
        "qk_norm=True (False could go)": c.qk_norm,
        f"attn_softcap={c.attn_softcap} (None could go)": c.attn_softcap is not None,
        f"attention={c.attention!r} ('softmax' could go)": c.attention != "softmax",
        "attn_gate=True (False could go)": c.attn_gate,
        f"sink={c.sink!r} ('none' could go)": c.sink != "none",
        f"smear={c.smear!r} ('none' could go)": c.smear != "none",
    }
    return [option for option, is_there in found.items() if is_there]


def _huggingface_obstacles(c: ModelConfig) -> list[str]:
    """Options that go with others, but not with these."""
    rotary, post, bare = c.positions == "rotary", is_post_norm(c), lacks_final_norm(c)
    cause, divisor = "norm_position='post'" if post else "final_norm=False", f"a divisor of d_model={c.d_model}"
    heads = f"n_heads={c.n_heads} of d_head={c.head_width}"
    found = {
        f"positions='rotary' with {cause} (other positions could go)": rotary and (post or bare),
        "norm_position='post' with mlp_hidden=() (pre could go, or one hidden layer)": post and c.attn_only,
        "norm_position='post' with final_norm=True (pre could go, or no final norm)": post and not bare,
        f"norm_eps={c.norm_eps} with {cause} (more than 0 could go)": (post or bare) and c.norm_eps <= 0,
        f"{heads} with {cause} and LayerNorm ({divisor} could go, and what it gives)":
            (post or bare) and c.norm == "layer" and not heads_fit(c),
        f"n_heads={c.n_heads} with positions='rotary' ({divisor} could go)":
            rotary and c.norm != "layer" and bool(c.d_model % c.n_heads),
    }  # fmt: skip
    return obstacles(c) + [option for option, is_there in found.items() if is_there]
