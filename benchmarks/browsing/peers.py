"""BertViz and CircuitsVis as they are on PyPI, kept apart from this environment, and the scripts that they load."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from tracer.files.disk import cache_folder

PACKAGES = ("bertviz==1.4.1", "circuitsvis==1.43.3")
SCRIPTS = {
    "require.min.js": ("nbclassic==1.3.3", "nbclassic/static/components/requirejs/require.js"),
    "jquery.min.js": ("nbclassic==1.3.3", "nbclassic/static/components/jquery/jquery.min.js"),
    "d3.min.js": ("mpld3==0.5.12", "mpld3/js/d3.v5.min.js"),
}
"""What BertViz takes from a CDN, and a package on PyPI that ships it."""
PEERS = {
    "BertViz head_view": "document.querySelectorAll('#vis svg line').length > 0",
    "BertViz model_view": "document.querySelectorAll('#vis svg line').length > 1000",
    "CircuitsVis": "document.querySelectorAll('canvas').length >= 144",
}
"""Each view with all heads, and when it is there: in their favour as soon as its elements exist."""


def folder() -> Path:
    return cache_folder() / "peers"


def install() -> None:
    """Download once, without dependencies: both need nothing but torch and numpy to write their pages."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq"]
    if not (folder() / "circuitsvis").exists():
        subprocess.run([*pip, "install", "--no-deps", "--target", str(folder()), *PACKAGES], check=True)
    scripts = folder() / "scripts"
    scripts.mkdir(exist_ok=True)
    for name, (package, inside) in SCRIPTS.items():
        if not (scripts / name).exists():
            subprocess.run([*pip, "download", "--no-deps", "-d", str(folder() / "wheels"), package], check=True)
            (wheel,) = (folder() / "wheels").glob(f"{package.split('==')[0]}-*.whl")
            (scripts / name).write_bytes(zipfile.ZipFile(wheel).read(inside))


def script(url: str) -> Path | None:
    """The local copy of what a page asks a CDN for."""
    name = re.sub(r"(?<!\.min)\.js$", ".min.js", url.rpartition("/")[2])
    path = folder() / "scripts" / name
    return path if path.exists() else None


def write(peer: str, n: int, path: Path) -> None:
    """The peer's page of n tokens."""
    found = os.pathsep.join([str(folder()), os.getcwd()])
    command = [sys.executable, "-m", "benchmarks.browsing.rendering", peer, str(n), str(path)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": found}, timeout=300)
