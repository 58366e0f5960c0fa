"""A zoo of training runs, sick and healthy, by somebody who has not read how the diagnosis decides.

Each animal is a plain training loop with its own model, data and optimiser, watched by `tracer.watch`. It asserts by
losses, weights and facts of its own, never by a diagnosis, that it is what it is declared to be.
`python -m tests.zoo [names]` trains them and prints what `tracer.diagnose` says of each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Animal:
    """A training run: `train` writes its run directory at the path that it is given, and returns that path."""

    name: str
    what: str
    train: Callable[[Path], Path]
    words: tuple[str, ...] = ()
    """Of a sick one, in lower case: a diagnosis that names the illness contains at least one of them."""

    @property
    def sick(self) -> bool:
        return bool(self.words)

    @property
    def room(self) -> str:
        """The file that it lives in: sick, healthy or again."""
        return self.train.__module__.rpartition(".")[2]


Train = Callable[[Path], Path]
ZOO: dict[str, Animal] = {}


def sick(what: str, *words: str) -> Callable[[Train], Train]:
    """Declare a sick animal: what is wrong with it, in one sentence, and words that name it."""
    assert words and all(word == word.lower() for word in words)
    return lambda train: _enter(Animal(train.__name__, what, train, words))


def healthy(what: str) -> Callable[[Train], Train]:
    """Declare a healthy animal: why one might suspect it, in one sentence."""
    return lambda train: _enter(Animal(train.__name__, what, train))


declared_sick, declared_healthy = sick, healthy
"""By names that no module beside has: an import of `tests.zoo.sick` takes the other one."""


def _enter(animal: Animal) -> Train:
    assert animal.name not in ZOO, animal.name
    ZOO[animal.name] = animal
    return animal.train


def ending(losses: Sequence[float], of: int = 20) -> float:
    """Mean of the last losses."""
    return sum(losses[-of:]) / len(losses[-of:])
