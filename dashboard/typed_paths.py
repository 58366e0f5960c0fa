"""The path or name that a person types, of a text or a model: is it on this machine?"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tracer.config import CORPORA

CHECKPOINT = re.compile(r"(?:checkpoint|step|revision)[-_]?(\d+)")
"""Of the folders that `tracer open` takes as steps."""


def why_no_text(corpus: str) -> str:
    """Why no text can be read there; empty where it may be, or where it is a name on the hub."""
    try:
        if corpus in CORPORA or corpus.startswith("hf:") or Path(corpus).expanduser().exists():
            return ""
    except (OSError, ValueError, RuntimeError):  # a name too long, with a zero byte, or of nobody's home
        pass
    return f"there is no file or folder {corpus[:200]!r} on this machine"


def model_name(model: str) -> str:
    """What a run of a Hugging Face model is called: the last part of its path, in the letters of a run's name."""
    last = re.sub(r"[^A-Za-z0-9._-]+", "-", model.strip().rstrip("/").rpartition("/")[2]).lstrip("._-")
    return last[:60] or "model"


def checkpoints(directory: Path) -> list[int]:
    """Steps of the folders checkpoint-500, checkpoint-1000, ... that a training with transformers leaves behind."""
    try:
        names = os.listdir(directory)
    except OSError:  # whoever runs this may not read it
        return []
    return sorted(int(found[1]) for found in map(CHECKPOINT.fullmatch, names) if found)


def why_no_model(model: str) -> str:
    """Why no Hugging Face model can be at this path; empty where one may be, or where it is a name on the hub."""
    directory = os.path.expanduser(model)
    there = os.path.isdir(directory)  # as isfile, it takes a name that is too long, or with a zero byte, for no file
    if os.path.isfile(os.path.join(directory, "config.json")) or there and checkpoints(Path(directory)):
        return ""
    if there:
        return (
            f"{model} holds no model: save_pretrained writes a config.json beside the weights, and a training leaves "
            "folders such as checkpoint-500"
        )
    return f"{model} is no directory of this machine" if model.startswith(("/", "~", ".")) else ""
