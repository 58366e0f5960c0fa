"""A picture of ours as a plain page, three files and nothing else, and the same in Streamlit (app.py)."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from benchmarks.browsing.tensors import attention, tokens
from tracer.pictures import payload, source
from tracer.pictures.atlas import pack
from tracer.pictures.pattern import pack as pack_one
from tracer.pictures.scales import Scale

SCALE = Scale(label="Induction score", unit="", lo=0.0, hi=1.0, palette="score", chance=0.03)
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><style>body {{ margin: 16px }}
{css}</style></head><body><div class="st-key-one">{html}</div><script type="module">
import part from "./{name}.js";
globalThis.manyeyes.cues.set("one", {cue});
const data = new Uint8Array(await (await fetch("./{name}.bin")).arrayBuffer());
part({{ data, parentElement: document.querySelector(".st-key-one"), setStateValue() {{}} }});
</script></body></html>"""


@functools.cache
def atlas(n: int, seed: int = 0) -> bytes:
    """Every head of n tokens, as the Heads page packs them."""
    patterns = attention(n, seed)
    return pack(patterns, {"score": patterns[:, :, -1, n // 2]})


@functools.cache
def pattern(n: int, seed: int = 0) -> bytes:
    """The first head of n tokens, exactly."""
    return pack_one(attention(n, seed)[0, 2], tokens(n), label="L0H2")


def cue(name: str, blob: bytes) -> dict[str, object]:
    """What the reader chose: nothing yet."""
    return {"value": None, "seen": 0, "measure": "score", "scales": {"score": SCALE.payload()}, "max_cell": 176,
            "max_size": 640, "order": "index", "lit": None, "version": payload.unpack(blob)[0]["version"]}  # fmt: skip


def write(name: str, blob: bytes, folder: Path) -> tuple[str, int]:
    """(file name, bytes of all three files) of a page that shows this part."""
    part, stem = source(name), f"{name}-{len(blob)}"
    html = PAGE.format(css=part.css, html=part.html, cue=json.dumps(cue(name, blob)), name=stem)
    files = {f"{stem}.html": html.encode(), f"{stem}.js": part.js.encode(), f"{stem}.bin": blob}
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return f"{stem}.html", sum(map(len, files.values()))
