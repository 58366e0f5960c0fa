"""`tracer publish`: runs as a site."""

from __future__ import annotations

import tyro

from tracer.cli.output import say


def publish(runs: tyro.conf.Positional[tuple[str, ...]], /, to: str = "site", prompt: str | None = None) -> int:
    """Write a folder that any web server serves: an index of runs, and of each a page that needs no server.

    A page holds the run's film on a prompt, every head with its role, what happened when, health, and the proof card of
    its induction head. No weights are in it, and it asks no other host.

    Args:
        runs: Names under checkpoints/, or directories.
        to: The folder; pages of other runs in it stay.
        prompt: The text that heads are shown on; by default the one that the dashboard begins with.
    """
    from tracer.site import publish

    path = publish(runs, to, prompt=prompt)
    size = sum(file.stat().st_size for file in path.parent.glob("*.html"))
    say(f"{path} lists {len(runs)} run{'s' * (len(runs) > 1)}: open it, or copy the folder ({size / 1e6:.1f} MB) to a "
        "web server")  # fmt: skip
    return 0
