"""Two verdicts on counting before matching again, from a model's weights alone: float64, and no code of this project.

`python independent.py MODEL.safetensors` prints what a model of two layers of one head, LayerNorm and rotary positions
does on chains that are drawn here: JSON of nats and of shares.
"""

import json
import sys

import numpy as np
from safetensors.numpy import load_file

LENGTH, ROWS, OF_LINE, SEED = 100, 3000, 20_000, 20_240_211


def chains(rng, n):
    """Symbols 1 and 2 [n, LENGTH] of chains whose rows are Dirichlet(1, 1), and the chance of 2 at each place."""
    to_two = rng.random((n, 2))  # after a 1, and after a 2
    stationary = to_two[:, 0] / (to_two[:, 0] + 1 - to_two[:, 1])
    rows, chance = np.empty((n, LENGTH), int), np.empty((n, LENGTH))
    for at in range(LENGTH):
        chance[:, at] = stationary if at == 0 else np.where(rows[:, at - 1] == 2, to_two[:, 1], to_two[:, 0])
        rows[:, at] = 1 + (rng.random(n) < chance[:, at])
    return rows, chance


def counted(rows, context):
    """The chance of a 2 by counts that begin at one: of all symbols so far, or of those after the last one."""
    said = np.full(rows.shape, 0.5)
    for at in range(1, LENGTH):
        seen = rows[:, :at] == 2
        if context:
            after = rows[:, : at - 1] == rows[:, at - 1 : at]
            said[:, at] = ((after & seen[:, 1:]).sum(1) + 1) / (after.sum(1) + 2)
        else:
            said[:, at] = (seen.sum(1) + 1) / (at + 2)
    return said


def cross(chance, said):
    return -chance * np.log(said) - (1 - chance) * np.log1p(-said)


def normed(x, gain, shift):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + shift


def turned(x):
    """Rotary positions of one head: the pair (i, i + half) by its place times 10000^(-i / half)."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[1])[:, None] / 10_000 ** (np.arange(half) / half)
    pair = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([pair.real, pair.imag], -1)


def probabilities(weights, rows, off=()):
    """[n, LENGTH, 3]: of the symbol at each place, with the heads of layers `off` writing their mean at that place."""
    tokens = np.concatenate([np.zeros((len(rows), 1), int), rows[:, :-1]], 1)
    stream = weights["embed.W_E"][tokens]
    for layer in range(2):
        W = {name: weights[f"blocks.{layer}.attn.W_{name}"][0] for name in "QKVO"}
        x = normed(stream, weights[f"blocks.{layer}.ln1.w"], weights[f"blocks.{layer}.ln1.b"])
        q, k, v = turned(x @ W["Q"]), turned(x @ W["K"]), x @ W["V"]
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        pattern = np.exp(scores - scores.max(-1, keepdims=True)) * np.tri(LENGTH)
        z = pattern / pattern.sum(-1, keepdims=True) @ v
        stream = stream + (z.mean(0) if layer in off else z) @ W["O"]
    logits = normed(stream, weights["ln_final.w"], weights["ln_final.b"]) @ weights["unembed.W_U"]
    chances = np.exp(logits - logits.max(-1, keepdims=True))
    return chances / chances.sum(-1, keepdims=True)


def of_two(chances):
    return chances[..., 2] / (chances[..., 1] + chances[..., 2])


def loss(weights, rows, off=()):
    """Nats of each symbol that came."""
    return -np.log(np.take_along_axis(probabilities(weights, rows, off), rows[..., None], -1)[..., 0])


def main(path):
    weights = {name: one.astype(float) for name, one in load_file(path).items()}
    rng = np.random.default_rng(SEED)
    rows, chance = chains(rng, ROWS)
    bigram, unigram, said = counted(rows, True), counted(rows, False), of_two(probabilities(weights, rows))
    mixed = rows.copy()
    mixed[:, :-2] = rng.permuted(rows[:, :-2], axis=1)
    lost = cross(chance, of_two(probabilities(weights, mixed)))[:, -1].mean() - cross(chance, said)[:, -1].mean()
    counting = (cross(chance, unigram) - cross(chance, bigram))[:, -1].mean()
    many, their = chains(rng, OF_LINE)
    line, exact = cross(their, counted(many, True)).mean(), cross(chance, bigram).mean()
    found = {
        "excess": (cross(chance, said) - cross(chance, bigram))[:, 1:].mean(),
        "shuffled": lost / counting,
        "without the first": line + loss(weights, rows, (0,)).mean() - exact,
        "without both": line + loss(weights, rows, (0, 1)).mean() - exact,
    }  # fmt: skip
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
