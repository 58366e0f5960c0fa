"""The cache of the hub on this machine, and what is taken out of it again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tracer.huggingface.loading import CannotOpen, here


@contextlib.contextmanager
def passing(source: Mapping[str, Any]) -> Iterator[None]:
    """Whatever weights of a revision come into the cache of the hub meanwhile leave it again; no others do."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE).resolve() / f"models--{source['path'].replace('/', '--')}"
    before = set(folder.rglob("*"))
    try:
        yield
    finally:
        with contextlib.suppress(CannotOpen):  # not even its config came
            for link in Path(here(source["path"], source["revision"])).glob("*.safetensors"):
                if (file := link.resolve()) not in before:
                    link.unlink()
                    file.unlink(missing_ok=True)  # where the cache has no links, it is the same
