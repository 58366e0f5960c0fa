"""`tracer watch-run`: look at a run while it is made, and run a command for each thing that goes wrong."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from dataclasses import asdict

from tracer.cli.output import say

NAMED = ("run", "kind", "severity", "step", "title")
POLL = 1.0
"""Seconds between two looks at whether there is anything new."""


def watch_run(run: str, /, on_finding: str | None = None, once: bool = False) -> str:
    """Diagnose a run as its training goes on; print each kind of finding when it comes up, until the run ends.

    Args:
        run: A name under checkpoints/, or a directory.
        on_finding: A command to run for each: it is given the finding as JSON on its standard input, and RUN, KIND,
            SEVERITY, STEP and TITLE as MANYEYES_RUN, MANYEYES_KIND and so on. It is not run by a shell.
        once: Look once, at a run that may have ended, and do not wait.
    """
    from tracer.diagnosis import diagnose
    from tracer.store import open_run

    watched, told, stamp = open_run(run), set(), ""
    command = shlex.split(on_finding) if on_finding else []
    while True:
        watched.refresh()
        live = watched.live  # before the last look, so that nothing is missed between the two
        if watched.stamp != stamp:
            stamp = watched.stamp
            for finding in diagnose(watched):
                if finding.kind in told:
                    continue
                told.add(finding.kind)
                text = f"{watched.name}: {finding.severity}: {finding.title}, since step {finding.step:,}"
                say("".join(c if c.isprintable() else "�" for c in text))
                if command:
                    facts = {"run": str(watched.dir), **asdict(finding)}
                    said = {f"MANYEYES_{key.upper()}": str(facts[key]) for key in NAMED}
                    subprocess.run(command, input=json.dumps(facts), text=True, env=os.environ | said, check=False)
        if once or not live:
            return watched.status
        time.sleep(POLL)
