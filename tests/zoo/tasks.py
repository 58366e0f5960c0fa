"""What the animals learn from: made of a seed, with the best possible loss known where it can be."""

import random

import torch
from torch import Tensor

TEXT = (
    "The lighthouse at the end of the bay had not been lit for eleven years when Martha Quill bought it for the price "
    "of a good horse. She came by boat in October, with two trunks, a kettle, and a grey cat called Admiral who hated "
    "water. The stairs were sound, the lamp was not. For a week she did nothing but scrape rust and hear the wind, "
    "which had opinions about everything. On the eighth day a fisherman knocked to ask whether she was a ghost. She "
    "said that she had not decided. He brought her herring, a sack of coal, and the news that nobody in the village "
    "would bet more than a shilling on her lasting until Christmas. By November she knew the names of all the rocks: "
    "the Widow, the Three Clerks, Old Tom, and the one that nobody named because it moved. She wrote each of them down "
    "in a ledger, with the hour at which the tide covered it, and beside the last she drew a small, careful question "
    "mark. In December the snow came sideways. Ships that should have passed far out passed close in, feeling for the "
    "land like blind men in a strange room, and every night she stood at the dark glass and counted their lanterns. "
    "When one went out she counted again. It was the cat who found the crate of wicks behind the oil press, still dry "
    "in its wax paper, and it was the fisherman who carried up the oil, forty steps at a time, swearing gently. They "
    "lit the lamp on the shortest day of the year. It smoked, it spat, it caught; and out beyond the Widow a horn "
    "answered, low and astonished, as though somebody had been waiting there for a very long time to be asked."
)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def chain(states: int, sharpness: float, seed: int) -> Tensor:
    """The transition matrix [from, to] of a Markov chain; the greater the sharpness, the surer the next state."""
    return (torch.randn(states, states, generator=seeded(seed)) * sharpness).softmax(-1)


def walks(matrix: Tensor, rows: int, length: int, generator: torch.Generator) -> Tensor:
    """Sequences of a Markov chain, [rows, length], begun anywhere."""
    ids = [torch.randint(0, len(matrix), (rows,), generator=generator)]
    for _ in range(length - 1):
        ids.append(torch.multinomial(matrix[ids[-1]], 1, generator=generator).squeeze(-1))
    return torch.stack(ids, 1)


def floor(matrix: Tensor) -> float:
    """Mean surprise of the next state in nats: no model has a lower loss on that chain."""
    often = torch.matrix_power(matrix.double(), 200)[0]
    return float(-(often[:, None] * matrix.double() * matrix.double().log()).sum())


def copies(rows: int, half: int, vocab: int, generator: torch.Generator) -> Tensor:
    """Random tokens 1 to vocab - 1, a 0, and the same tokens again: the second half can be known."""
    first = torch.randint(1, vocab, (rows, half), generator=generator)
    return torch.cat([first, torch.zeros(rows, 1, dtype=torch.long), first], 1)


def repeats(rows: int, length: int, vocab: int, generator: torch.Generator) -> Tensor:
    """Random tokens that begin anew after a period between a quarter and a half of the length, by row."""
    periods = torch.randint(length // 4, length // 2 + 1, (rows, 1), generator=generator)
    tokens = torch.randint(0, vocab, (rows, length), generator=generator)
    return tokens.gather(1, torch.arange(length) % periods)


def sums(modulus: int) -> tuple[Tensor, Tensor]:
    """All questions [a, b, =] of addition modulo a number, in a random order, and their answers."""
    pairs = torch.cartesian_prod(torch.arange(modulus), torch.arange(modulus))
    pairs = pairs[torch.randperm(len(pairs), generator=seeded(0))]
    return torch.cat([pairs, torch.full((len(pairs), 1), modulus)], 1), pairs.sum(1) % modulus


def sentences(count: int, seed: int) -> str:
    """Plain sentences of a small grammar, as many as one likes."""
    draw = random.Random(seed)
    who = ["the cat", "a dog", "my sister", "the old king", "nobody", "our teacher"]
    does = ["sees", "hears", "likes", "forgets", "follows"]
    where = ["in the garden", "at night", "near the river", "again", "without a word"]
    return " ".join(
        f"{draw.choice(who)} {draw.choice(does)} {draw.choice(who)} {draw.choice(where)}." for _ in range(count)
    )


def encode(text: str) -> tuple[Tensor, int]:
    """Ids of the characters of a text, and how many different ones there are."""
    letters = sorted(set(text))
    return torch.tensor([letters.index(letter) for letter in text]), len(letters)


def windows(ids: Tensor, rows: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random pieces of a text and, shifted by one, their targets."""
    starts = torch.randint(0, len(ids) - length, (rows, 1), generator=generator)
    pieces = ids[starts + torch.arange(length + 1)]
    return pieces[:, :-1], pieces[:, 1:]
