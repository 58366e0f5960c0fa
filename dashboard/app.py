"""manyeyes: see every attention head, at every step of training.

`streamlit run` finds `app` here and serves it behind `access.Guard`, with the page of `first_response`; each session
runs this file as its script.
"""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

# `streamlit run dashboard/app.py` puts dashboard/ on the path, not the folder that holds both packages
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

if __name__ == "__main__":
    from dashboard import turns, warming

    warming.wait()
    from dashboard.frame import draw

    warming.keep()
    with turns.turn():
        draw()
else:
    from dashboard import turns
    from dashboard.access import guard
    from dashboard.first_response import routes
    from dashboard.warming import lifespan
    from tracer.store.descriptors import raise_descriptors

    sys.setswitchinterval(turns.SWITCH)
    raise_descriptors()
    app = st.App(__file__, middleware=[guard()], routes=routes(), lifespan=lifespan)
