"""Every attack by name, in three sizes: the slice of `make test`, all of it, and what the issue of trust asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests import strangers
from tests.attacks import accounts, damage, fuzz, hostile, kills, links, power, sessions, tokenizers
from tests.attacks.forks import Forks
from tests.attacks.table import Tally

Attack = Callable[[Forks, Path, Path, int, int], Tally]
SIZES = ("quick", "full")


def _kill(command: str) -> Attack:
    return lambda forks, folder, honest, n, seed: kills.attack(forks, folder, command, n, seed)


ATTACKS: dict[str, tuple[Attack, int, int]] = {
    **{f"kill-{command}": (_kill(command), quick, full)
       for command, quick, full in (("train", 3, 150), ("resume", 2, 100), ("fork", 1, 50), ("sweep", 2, 60),
                                    ("open", 2, 80), ("watch", 2, 60))},
    "kill-random": (lambda forks, folder, honest, n, seed: kills.attack_at_random(forks, folder, n, seed), 2, 200),
    "move": (lambda forks, folder, honest, n, seed: kills.attack_by_moving(forks, folder, n, seed), 3, 100),
    "power": (lambda forks, folder, honest, n, seed: power.attack(forks, folder, n, seed), 4, 300),
    "hostile": (lambda forks, folder, honest, n, seed: hostile.attack(forks, folder, honest, n, seed), 20, 600),
    "links": (lambda forks, folder, honest, n, seed: links.attack(forks, folder / "x", honest, n, seed), 6, 1000),
    "tokenizers": (lambda forks, folder, honest, n, seed: tokenizers.attack(forks, folder / "x", honest, n), 4, 100),
    "damage": (lambda forks, folder, honest, n, seed: damage.attack(forks, folder / "x", honest, n, seed), 8, 500),
    "commands": (lambda forks, folder, honest, n, seed: fuzz.commands(forks, folder / "x", honest, n, seed), 16, 2000),
    "calls": (lambda forks, folder, honest, n, seed: fuzz.wrong_calls(forks, folder / "x", honest, n, seed), 200, 2000),
    "sessions": (lambda forks, folder, honest, n, seed: sessions.together(forks, folder, n, seed), 18, 2000),
    "pages": (lambda forks, folder, honest, n, seed: sessions.damaged(folder, honest, n, seed), 9, 4500),
    "accounts": (lambda forks, folder, honest, n, seed: accounts.attack(folder / "x", n, seed), 40, 2000),
    "soak": (lambda forks, folder, honest, n, seed: sessions.soak(forks, folder, n, seed), 0, 60),  # minutes
}  # fmt: skip
"""The attack, how many cases the slice of `make test` has (0: it is not in it), and how many all of it."""


def honest_run(forks: Forks, folder: Path) -> Path:
    """A small run, trained and swept: what most attacks begin with."""
    made = forks.call("tests.attacks.kills:begin", "swept", folder)
    assert made.clean, made.output
    return folder / "run"


def why_not(name: str) -> str:
    """Why this machine cannot make an attack; empty where it can."""
    return strangers.why_not() if name == "accounts" else ""


def run(name: str, forks: Forks, folder: Path, honest: Path, size: str, seed: int) -> Tally:
    attack, *cases = ATTACKS[name]
    return attack(forks, folder, honest, cases[SIZES.index(size)], seed)
