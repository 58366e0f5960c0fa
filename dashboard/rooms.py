"""The height that a picture or a widget will have, kept free until it is there, so that nothing below it moves.

Measured on the demo in a wide window and in one of a phone; what is wrong by some lines moves the page by as much.
"""

from __future__ import annotations

ROOMS = {
    "scrubber": (134, 144), "atlas": (414, 320), "history": (290, 290), "pattern": (694, 444), "reading": (294, 547),
    "ranking": (329, 314), "ends": (370, 605), "passages": (900, 900),
    "loss": (310, 310), "copying": (310, 327), "entropy_curves": (330, 347), "measure_curves": (330, 330),
    "history_carpet": (290, 290), "entropy_curves_carpet": (330, 330), "measure_curves_carpet": (330, 330),
    "context": (310, 310), "positions": (310, 327),
    "timeline": (596, 628), "surface_loss": (379, 379), "surface_slope": (379, 379), "loss_path": (456, 456),
    "undoing": (163, 187), "undoing_lines": (310, 327),
    "tensor_curves": (421, 419), "total_curve": (210, 210), "clip_curve": (210, 210), "matrix_curves": (310, 327),
    "ablate": (212, 212), "prompt_tokens": (167, 216), "next_tokens": (280, 280), "sweep_repeat": (163, 187),
    "sweep_text": (163, 187),
    "composition": (386, 290), "copying_map": (187, 187), "spectrum": (348, 348), "words": (359, 1072),
    "stripes": (410, 410), "logit_tokens": (167, 216), "lens": (152, 168), "logit_heads": (163, 206), "sum": (159, 159),
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
    """How much each picture and widget keeps free, as styles.css takes it."""

    def rules(at: int) -> str:
        return "\n".join(f".st-key-me-{key} {{ --room: {room[at]}px; }}" for key, room in ROOMS.items())

    widgets = "\n".join(
        f":is({', '.join(f'.st-key-{name}_box' for name in names)}) {{ --skeleton: {height}px; }}"
        for height, names in WIDGETS.items()
    )
    return f"{widgets}\n{rules(0)}\n@media (max-width: 640px) {{\n{rules(1)}\n}}"
