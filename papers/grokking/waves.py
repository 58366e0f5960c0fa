"""Images over all pairs of numbers modulo P as sums of waves: how much one frequency explains, and what is left of
logits that keep some waves, or lack them. All in float64.

An image is [..., P, P] by a and b. Its discrete Fourier transform has a number for each pair of frequencies (i, j);
those of frequency k are the eight in which i and j are 0, k or -k, and not both 0.
"""

import numpy as np


def shares(images):
    """The share of an image's variance over pairs that each single frequency 1 to (P - 1) / 2 explains, [..., k].

    nan of an image that is nearly the same everywhere.
    """
    power = np.abs(np.fft.fft2(images)) ** 2
    power[..., 0, 0] = 0
    k = np.arange(1, power.shape[-1] // 2 + 1)
    eight = [(k, 0 * k), (-k, 0 * k), (0 * k, k), (0 * k, -k), (k, k), (-k, -k), (k, -k), (-k, k)]
    total = power.sum((-2, -1))[..., None]
    return sum(power[..., i, j] for i, j in eight) / np.where(total > 1e-9, total, np.nan)


def sum_waves(p, frequencies):
    """cos w(a + b) and sin w(a + b) of these frequencies, each of length 1, [pair, 2 * frequency]."""
    angles = 2 * np.pi / p * np.outer(np.add.outer(np.arange(p), np.arange(p)).ravel(), frequencies)
    return np.concatenate([np.cos(angles), np.sin(angles)], 1) * 2**0.5 / p


def sum_shares(logits):
    """The share of the variance of logits [P, P, answer] that cos w(a + b) and sin w(a + b) explain, for each frequency
    1 to (P - 1) / 2. What all answers of a pair have in common is left out: softmax does not see it."""
    p = len(logits)
    flat = (logits - logits.mean(-1, keepdims=True)).reshape(p * p, -1)
    power = ((sum_waves(p, np.arange(1, p // 2 + 1)).T @ flat) ** 2).sum(-1)
    return power.reshape(2, -1).sum(0) / ((flat - flat.mean(0)) ** 2).sum()


def key_frequencies(logits, most=0.95):
    """The fewest frequencies whose shares, the largest first, make `most` of all that waves of a + b explain."""
    found = sum_shares(logits)
    order = np.argsort(-found)
    enough = np.searchsorted(found[order].cumsum(), most * found.sum()) + 1
    return sorted((1 + order[:enough]).tolist())


def without(logits, frequencies):
    """Logits [P, P, answer] less their waves cos w(a + b) and sin w(a + b) of these frequencies."""
    return logits - _projected(logits, frequencies)


def only(logits, frequencies):
    """The mean of logits over all pairs, and their waves cos w(a + b) and sin w(a + b) of these frequencies."""
    return logits.mean((0, 1)) + _projected(logits, frequencies)


def _projected(logits, frequencies):
    waves = sum_waves(len(logits), frequencies)
    return (waves @ (waves.T @ logits.reshape(len(waves), -1))).reshape(logits.shape)


def by_difference(image):
    """The share of the variance of an image [P, P] that a - b explains, modulo P."""
    at = np.arange(len(image))
    means = np.array([image[(at + d) % len(image), at].mean() for d in at])
    return float(means.var() / image.var())
