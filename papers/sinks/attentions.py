"""Two attentions that are no setting of our models, as clamps of a head's z: what it gives before W_O."""

import torch


def sigmoids(pattern):
    """sigmoid(score) of weights exp(score) / (1 + sum of exp), which softmax with a sink of logit 0 gives.

    What the positions leave is 1 / (1 + sum), so that exp(score) is their quotient.
    """
    left = (1 - pattern.sum(-1, keepdim=True)).clamp(min=1e-7)
    return pattern / (pattern + left)


def sigmoid(head):
    """Each score through a sigmoid, not divided by a sum (Ramapuram et al. 2024 add a bias; here is none)."""
    return sigmoids(head.pattern) @ head.v


def gate(head):
    """The first half of the values is read; the other half, of the query's own token, gates it number by number.

    So W_V holds both the values' matrix and the gate's, and z is sigmoid(x W_gate) * (pattern v), as in Qiu et al.
    """
    values, gates = head.v.chunk(2, -1)
    z = (head.pattern @ values) * gates.sigmoid()
    return torch.cat([z, torch.zeros_like(z)], -1)
