"""On CUDA a step is made with kernels that add in one order; what the user's program chose is left as it was."""

import pytest
import torch

from tracer.training.repeatable import deterministic, repeatable


def settings() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        deterministic.fill_uninitialized_memory,
    )


@pytest.mark.parametrize("chosen", [(False, False), (True, True)], ids=str)
@pytest.mark.parametrize("error", [False, True])
def test_torch_is_strict_on_cuda_and_then_as_it_was(chosen: tuple[bool, bool], error: bool) -> None:
    try:
        torch.use_deterministic_algorithms(chosen[0], warn_only=chosen[1])
        before = settings()
        try:
            with repeatable(torch.device("cuda")):
                assert settings() == (True, False, False)
                if error:
                    raise OverflowError
        except OverflowError:
            pass
        assert settings() == before
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_cpu_needs_none_of_it() -> None:
    with repeatable(torch.device("cpu")):
        assert settings()[:2] == (False, False)
