"""The height that a picture or a widget will have, kept free until it is there, so that nothing below it moves.

Measured on the demo in a wide window and in one of a phone; what is wrong by some lines moves the page by as much.
"""

from __future__ import annotations

ROOMS = {
    "scrubber": (134, 144), "atlas": (414, 320), "history": (290, 290), "pattern": (694, 444), "reading": (294, 547),
    "passages": (900, 900),
    "loss": (310, 310), "copying": (310, 327), "entropy_curves": (330, 347), "measure_curves": (330, 330),
    "history_carpet": (290, 290), "entropy_curves_carpet": (330, 330), "measure_curves_carpet": (330, 330),
    "context": (310, 310), "positions": (310, 327),
    "undoing": (163, 187), "undoing_lines": (310, 327),
    "tensor_curves": (421, 419), "total_curve": (210, 210), "clip_curve": (210, 210), "matrix_curves": (310, 327),
    "ablate": (212, 212), "prompt_tokens": (167, 216), "sweep_repeat": (163, 187),
    "sweep_text": (163, 187),
    "composition": (386, 290), "copying_map": (187, 187),
    "stripes": (410, 410), "logit_tokens": (167, 216), "logit_heads": (163, 206),
}  # fmt: skip
"""By the key of the picture, in pixels."""
WIDGETS = {
    64: ("run", "measure", "find", "kind", "step", "compare", "training_measure", "phase", "head"),
    98: ("prompt",),
    56: ("axis", "quantity", "mode", "into"),
    30: ("history", "loss", "heads_view", "surface", "path"),
    23: ("order", "frozen"),
}
"""By their height, the keys without "_box"."""


def css() -> str:
    """The rules; a part says of itself that it is drawn (shared.js)."""

    def rules(at: int) -> str:
        return "\n".join(f".st-key-me-{key}:not(:has([data-drawn])) {{ min-height: {room[at]}px; }}"
                         for key, room in ROOMS.items())  # fmt: skip

    widgets = "\n".join(
        f":is({', '.join(f'.st-key-{name}_box' for name in names)}) [data-testid=stSkeleton] {{ height: {height}px; }}"
        for height, names in WIDGETS.items()
    )
    parts = "[class*=st-key-me-] [data-testid=stSkeleton] { display: none; }"
    return f"{widgets}\n{parts}\n{rules(0)}\n@media (max-width: 640px) {{\n{rules(1)}\n}}"
