"""What heads can do by their weights alone: whose output they read (composition), and whether they copy.

Rows multiply from the left: q = x W_Q, QK = W_Q W_K^T, OV = W_V W_O. Norms and rotations are left out, and so is
that keys or queries may be smeared: each matrix then reads both of the tokens that are mixed.
"""

from __future__ import annotations

from typing import Literal

import torch
from einops import einsum
from jaxtyping import Complex, Float
from torch import Tensor

from tracer.measures.aliases import Progress

AT_ONCE = 2**26
"""Numbers of the products of pairs of heads that are held at once: 256 MB in float32."""
In = Float[Tensor, "layer head d_model d_head"]
Out = Float[Tensor, "layer head d_head d_model"]
Pairs = Float[Tensor, "layer1 head1 layer2 head2"]


def composition(
    into: Literal["q", "k", "v"], W_Q: In, W_K: In, W_V: In, W_O: Out, progress: Progress | None = None
) -> Pairs:
    """How much of what head 1 writes head 2 reads: |OV1 M2|_F / (|OV1|_F |M2|_F), M2 = QK2, QK2^T or OV2 for q, k, v.

    Source: Elhage et al. 2021, "Analyzing a Two-Layer Model". 0 to 1, 0 for a head that writes or reads
    nothing; nan unless layer1 < layer2, and where weights are not finite. Random heads have about 1 / sqrt(d_model)
    (`random_composition`): subtract it.
    `progress` is told how many pairs are done, and of how many. A pair costs d_head^2 d_model multiplications.
    """
    left, right = {"q": (W_Q, W_K.mT), "k": (W_K, W_Q.mT), "v": (W_V, W_O)}[into]
    # A norm stays where orthonormal columns leave the outside: |V O A B| = |R O A S^T|, V = Q R and B^T = Q' S
    writes = torch.linalg.qr(W_V, mode="r").R @ W_O
    reads = left @ torch.linalg.qr(right.mT, mode="r").R.mT
    write_norm, read_norm = torch.linalg.matrix_norm(writes), torch.linalg.matrix_norm(reads)
    n_layers, n_heads = left.shape[:2]
    pairs = left.new_full((n_layers, n_heads) * 2, float("nan"))
    done, total = 0, n_heads**2 * n_layers * (n_layers - 1) // 2
    for layer in range(1, n_layers):
        step = max(1, AT_ONCE // (layer * n_heads * writes.shape[2] * reads.shape[3]))
        for some in (slice(start, start + step) for start in range(0, n_heads, step)):
            products = einsum(writes[:layer], reads[layer, some],
                              "layer1 head1 i d_model, head2 d_model j -> layer1 head1 head2 i j")  # fmt: skip
            norms = einsum(write_norm[:layer], read_norm[layer, some], "layer1 head1, head2 -> layer1 head1 head2")
            found = torch.linalg.matrix_norm(products) / norms
            pairs[:layer, :, layer, some] = torch.where(norms == 0, 0.0, found)
            done += found.numel()
            if progress is not None:
                progress(done, total)
    return pairs


def random_composition(d_model: int, d_head: int, n: int = 200, seed: int = 0) -> tuple[float, float]:
    """Mean and standard deviation of `composition` between heads whose weights are independent Gaussians.

    Source: Elhage et al. 2021 subtract "the empirical expected amount for random matrices of the same shapes"; the mean
    is close to 1 / sqrt(d_model).
    """
    found = _random_pairs(d_model, d_head, n, seed)
    return float(found.mean()), float(found.std())


def stands_out(d_model: int, d_head: int, pairs: int, n: int = 200, seed: int = 0) -> float:
    """The composition above which a pair of heads stands out: of a model of random heads, which has so many `pairs`,
    one is above it in 5 % of all models.

    Derived here: a quantile of Student's t, 1 - 0.05 / pairs (Bonferroni, right however pairs hang together), of the
    logarithm of what `n` random pairs compose, which is less skew than what they compose.
    """
    from scipy.special import stdtrit

    found = _random_pairs(d_model, d_head, n, seed).log()
    return float((found.mean() + stdtrit(found.numel() - 1, 1 - 0.05 / pairs) * found.std()).exp())


def _random_pairs(d_model: int, d_head: int, n: int, seed: int) -> Float[Tensor, "head1 head2"]:
    generator = torch.Generator().manual_seed(seed)
    side = max(2, round(n**0.5))
    W_Q, W_K, W_V, W_O = (
        torch.randn(2, side, *shape, generator=generator) for shape in ((d_model, d_head),) * 3 + ((d_head, d_model),)
    )
    return composition("k", W_Q, W_K, W_V, W_O)[0, :, 1]


def copying(
    W_V: In, W_O: Out, W_E: Float[Tensor, "d_vocab d_model"], W_U: Float[Tensor, "d_model d_vocab"]
) -> Float[Tensor, "layer head"]:
    """sum(lambda) / sum|lambda| over the eigenvalues of W_E OV W_U: 1 when every token raises its own logit.

    Source: Elhage et al. 2021, "Detecting Copying Behavior". -1 to 1, nan for a head that writes nothing; strong
    evidence, not proof: eigenvectors need not be orthogonal.
    """
    found = eigenvalues(W_V, W_O, W_E, W_U)
    return found.real.sum(-1) / found.abs().sum(-1)


def eigenvalues(
    W_V: In, W_O: Out, W_E: Float[Tensor, "d_vocab d_model"], W_U: Float[Tensor, "d_model d_vocab"]
) -> Complex[Tensor, "layer head d_head"]:
    """The eigenvalues of W_E OV W_U that may differ from 0: those of the d_head x d_head matrix W_O W_U W_E W_V.

    Source: Elhage et al. 2021, "Detecting Copying Behavior". Positive: a mixture of tokens raises its own logits.
    nan for a head whose matrix is not finite.
    """
    around = W_U @ W_E
    small = einsum(W_O, around, "layer head i d_model, d_model d_model2 -> layer head i d_model2") @ W_V
    finite = small.isfinite().all(-1).all(-1)[..., None]
    found = torch.linalg.eigvals(small.where(finite[..., None], 0.0))  # of nan, MKL ends the process
    return found.masked_fill(~finite, torch.nan)


def random_copying(
    W_E: Float[Tensor, "d_vocab d_model"],
    W_U: Float[Tensor, "d_model d_vocab"],
    d_head: int,
    n: int = 200,
    seed: int = 0,
) -> tuple[float, float]:
    """Mean and standard deviation of `copying` for heads with independent Gaussian weights in this vocabulary.

    Source: ours, the null of `copying`: about 0 and 1.6 / d_head.
    """
    generator = torch.Generator().manual_seed(seed)
    W_V = torch.randn(1, n, len(W_U), d_head, generator=generator).to(W_E)
    W_O = torch.randn(1, n, d_head, len(W_U), generator=generator).to(W_E)
    found = copying(W_V, W_O, W_E, W_U)
    return float(found.mean()), float(found.std())


def position_pattern(
    W_pos: Float[Tensor, "pos d_model"],
    W_Q: Float[Tensor, "d_model d_head"],
    W_K: Float[Tensor, "d_model d_head"],
    scale: float,
) -> Float[Tensor, "query_pos key_pos"]:
    """What a head attends to by positions alone: softmax of W_pos QK W_pos^T * scale under the causal mask.

    Source: Elhage et al. 2021. A head that looks one token back shows a subdiagonal; without any preference a row is
    1 / (query_pos + 1).
    """
    scores = (W_pos @ W_Q) @ (W_pos @ W_K).T * scale
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1)
