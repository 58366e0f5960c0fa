"""What of transformer-lens is imported, and what stands in for the libraries that it then does without."""

import sys
import threading

import pytest

from tracer.model.lens import Absent, Deferred, deferring

NAMES = """
import sys
import tracer.model
later = {"datasets", "pandas", "transformers"}
assert not later & set(sys.modules), later & set(sys.modules)
import torch
with torch.device("meta"):  # as a snapshot's shapes are compared, before its weights are read
    tracer.model.Transformer(tracer.ModelConfig(n_layers=1, n_heads=1, d_model=4, d_vocab=5, n_ctx=4))
assert "torch._dynamo" not in sys.modules, "torch's compiler, which takes a second"
from transformer_lens import evals, patching
from transformer_lens.utilities import hf_utils, keep_single_column, tokenize_utils
assert not isinstance(1, hf_utils.Dataset)
assert not later & set(sys.modules), "no instance of what was never imported"
import datasets, pandas, transformers
rows = hf_utils.Dataset.from_dict({"a": [1, 2], "b": [3, 4]})
assert type(rows) is datasets.Dataset and isinstance(rows, hf_utils.Dataset)
assert not isinstance(rows, hf_utils.IterableDataset)
assert keep_single_column(rows, "b").column_names == ["b"]
assert evals.load_dataset.real() is hf_utils.load_dataset.real() is datasets.load_dataset
assert tokenize_utils.AutoTokenizer.from_pretrained == transformers.AutoTokenizer.from_pretrained
assert type(patching.pd.DataFrame({"a": [1]})) is pandas.DataFrame
"""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that has just begun: a worker of pytest has threads."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    sys.modules.pop("wave", None)


def test_a_package_that_is_not_there_yet_is_itself_when_it_is_used(alone: None) -> None:
    with deferring("wave", "json"):
        import json
        import wave
    assert isinstance(wave, Absent) and "wave" not in sys.modules
    assert not isinstance(json, Absent), "what is there already stays"
    error = wave.Error
    assert isinstance(error, Deferred) and not isinstance(ValueError(), error) and "wave" not in sys.modules
    assert type(error("so")).__module__ == "wave" and isinstance(sys.modules["wave"].Error(), error)
    with pytest.raises(TypeError, match="Mine cannot be made of Error: import wave first"):
        type("Mine", (error,), {})


def test_an_import_that_fails_leaves_nothing_behind(alone: None) -> None:
    with pytest.raises(ModuleNotFoundError), deferring("wave"):
        import wave  # noqa: F401

        import no_such_module  # noqa: F401  # pyrefly: ignore[missing-import]
    assert "wave" not in sys.modules and not any(isinstance(one, Absent) for one in sys.modules.values())


def test_beside_other_threads_nothing_is_put_off() -> None:
    sys.modules.pop("wave", None)
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    with deferring("wave"):
        import wave
    done.set()
    other.join()
    assert not isinstance(wave, Absent) and sys.modules["wave"] is wave
