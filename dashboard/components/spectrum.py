"""The eigenvalues of one head's OV circuit in the complex plane, its copying score and that of random heads."""

from dashboard.components.host import Part, controlled
from tracer.pictures.scales import head_label

_PART = Part("spectrum")


def spectrum(
    blob: bytes, *, key: str, head: tuple[int, int], score: float, mean: float, sd: float, size: int = 300
) -> None:
    """Draw one head of pictures.spectrum(...)."""
    cue = {
        "label": head_label(*head),
        "score": score if score == score else None,  # nan: a head that writes nothing
        "mean": mean,
        "sd": sd,
        "size": size,
    }
    controlled(_PART, blob, cue, key=key, current=list(head), read=lambda v: v, on_change=None)
