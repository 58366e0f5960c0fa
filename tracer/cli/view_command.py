"""`tracer view`, which is `manyeyes`: its words, and what they say."""

from __future__ import annotations

import sys
from collections.abc import Callable

import tyro

from tracer.cli import serving
from tracer.cli.arguments import value
from tracer.cli.serving import HERE


def view_command(args: list[str]) -> Callable[..., int]:
    here = (value(args, "--host") or HERE[0]) in HERE

    def view(
        runs: tyro.conf.Positional[tuple[str, ...]] = (), /, host: str = HERE[0], port: int | None = None,
        read_only: bool = not here, browser: bool = here and sys.stdin.isatty(), build: tuple[str, ...] = (),
        token: bool = False, layout: str | None = None, pages: str | None = None, clamp: tuple[str, ...] = (),
        measures: tuple[str, ...] = (), tests: tuple[str, ...] = (), roles: tuple[str, ...] = (),
        rules: tuple[str, ...] = (),
    ) -> int:  # fmt: skip
        """Open the dashboard in the browser: every run of a folder, or one run, or the offer to train the demo.

        Without a name it shows the runs below checkpoints/, or below the folders that MANYEYES_RUNS names.
        `manyeyes` is the same command. Ctrl-C ends it.

        Args:
            runs: A run (its name under checkpoints/, its directory or its URL), or folders of runs, or their URLs.
            host: Where to listen. Any other name than localhost lets others in: they are asked for a token, which is
                printed here or taken from MANYEYES_TOKEN.
            port: Default: the first free one from 8501.
            read_only: Let nobody start or stop anything, or name a path. Default: when others are let in.
            browser: Open the page. Default: when a person is at the terminal, and the page is for this machine.
            build: Functions, as module:function, that may run to build models of runs that name the same ones
                (`tracer.watch(..., build=...)`), from modules that can be imported from here. The code runs with your
                rights.
            token: Ask everybody for a token, also on localhost. Linux tells accounts apart: there other accounts of
                this machine are asked anyway, and you are not. macOS does not.
            layout: A YAML or JSON file that says where such models keep what writes to their residual stream (the
                fields of tracer.Layout), for runs that do not say it themselves.
            pages: A folder of pages of your own: each file.py with `def page(run, selection)`, in Streamlit, stands in
                the menu. The code runs with your rights, for everybody who opens the page.
            clamp: Clamps that are functions, "L1H2 = module:function", which may run where a run was trained with the
                same ones. The code runs with your rights.
            measures: Measures of your own, as module:name, that Find takes over a corpus too. The code runs with your
                rights.
            tests: Tests of your own on the verdict card of Ablate (tracer.head_test), as module:name. The code runs
                with your rights.
            roles: Roles of heads of your own on Circuits (tracer.role), as module:name.
            rules: Rules of your own (tracer.rule), as module:name, that Health looks for beside ours. The code runs
                with your rights.
        """
        return serving.view(
            runs, host, port, read_only, browser, build, token, layout, pages, clamp, measures, tests, roles,
            rules,
        )  # fmt: skip

    return view
