"""Skip-trigrams: what a head of a one-layer model says after "A ... B", by weights alone.

1. OV: A, where it is looked at, raises the logit of C by OV[A, C] above the mean logit.
2. QK: B scores A by s[B, A]; its lift L = s[B, A] - ln mean_k e^s[B, k] compares A with the tokens of the vocabulary.
3. The share of B's attention that A gets, in a place that by itself would get `place`: with all other keys held at the
   mean of the vocabulary it is place e^L / (place e^L + 1 - place).
4. A skip-trigram "A ... B -> C" adds share x OV[A, C] to the logit of C.

`place` = 1 / n leaves positions out: one key of n. `place` = the share that positions alone give to what stands d back
smears the attention over distances: then A is the token d before B, and tokens only sway what positions have settled.

Source: Elhage et al. 2021 read the QK and OV circuits of one-layer models together as skip-trigrams; the shares are
ours. Exact but for the norms, and for the terms in which a token meets a position. At chance a share is `place`, and
what is added 0 on average.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.analysis import token_circuits


class Sources(NamedTuple):
    """Of every token A the few B that look at it most, and the few C that it raises most, the best first."""

    looks: Int[Tensor, "d_vocab few"]
    lifts: Float[Tensor, "d_vocab few"]
    raises: Int[Tensor, "d_vocab few"]
    logits: Float[Tensor, "d_vocab few"]


class Trigrams(NamedTuple):
    """The strongest A, each with its best B and C, the largest value first."""

    sources: Int[Tensor, " k"]
    values: Float[Tensor, " k"]
    """What the best B and C of each A make: share x logit."""
    looks: Int[Tensor, "k few"]
    shares: Float[Tensor, "k few"]
    raises: Int[Tensor, "k few"]
    logits: Float[Tensor, "k few"]


def sources(
    who: Float[Tensor, "d_vocab d_head"],
    whom: Float[Tensor, "d_head d_vocab"],
    left: Float[Tensor, "d_vocab d_head"],
    right: Float[Tensor, "d_head d_vocab"],
    few: int = 3,
) -> Sources:
    """From the halves of QK (`who` @ `whom`, scaled) and of OV (`left` @ `right`), made block by block.

    4 d_vocab^2 d_head FLOPs, `vocabulary.BLOCK` + 4 d_vocab few numbers of memory.
    """
    n = len(left)
    few, step = min(few, n), max(1, token_circuits.BLOCK // n)
    centred = right - right.mean(1, keepdim=True)  # a logit counts from the mean logit
    best = who.new_full((few, n), -torch.inf)
    at = torch.zeros(few, n, dtype=torch.int64, device=who.device)
    raises, logits = [], []
    for start in range(0, n, step):
        scores = who[start : start + step] @ whom
        lift = scores - (scores.logsumexp(1, keepdim=True) - math.log(n))
        found, rows = lift.topk(min(few, len(lift)), dim=0)
        best, kept = torch.cat([best, found]).topk(few, dim=0)
        at = torch.cat([at, rows + start]).gather(0, kept)
        found, cols = (left[start : start + step] @ centred).topk(few, dim=1)
        raises.append(cols)
        logits.append(found)
    return Sources(at.T, best.T, torch.cat(raises), torch.cat(logits))


def share(lift: Tensor, place: float) -> Tensor:
    """Of B's attention, what A gets in a place that by itself would get `place`, strictly between 0 and 1."""
    return torch.sigmoid(lift + math.log(place / (1 - place)))


def strongest(found: Sources, place: float, k: int) -> Trigrams:
    """The k tokens A of the largest value; each stands once, or one look would fill the list."""
    shares = share(found.lifts, place)
    values, at = (shares[:, 0] * found.logits[:, 0]).topk(min(k, len(shares)))
    return Trigrams(at, values, found.looks[at], shares[at], found.raises[at], found.logits[at])
