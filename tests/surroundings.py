"""The environment of every test: one thread, no network, caches of its own in a scratch folder."""

import os


def surroundings(scratch: str) -> dict[str, str]:
    return {
        "MANYEYES_CACHE": f"{scratch}/manyeyes",
        "HF_HOME": f"{scratch}/huggingface",
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",  # torch's own is read by CPUs it was not compiled for
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # as many workers as cores; more is a check
        "TOKENIZERS_PARALLELISM": "false",
        "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
        "STREAMLIT_SERVER_HEADLESS": "true",
    }
