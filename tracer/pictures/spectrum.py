"""Packing the eigenvalues of every head's OV circuit, for the part that draws them in the complex plane."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tracer.pictures.payload import pack


def spectrum(eigenvalues: ArrayLike) -> bytes:
    """Complex eigenvalues [layer head d_head], each head's largest first."""
    found = np.asarray(eigenvalues, np.complex64)
    if found.ndim != 3:
        raise ValueError(f"eigenvalues must be [layer head d_head], got shape {found.shape}")
    order = np.argsort(-np.abs(found), axis=-1, kind="stable")
    found = np.take_along_axis(found, order, -1)
    return pack({}, values=np.stack([found.real, found.imag], -1).astype(np.float32))
