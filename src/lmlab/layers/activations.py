"""The unit and its activations: the smallest parts of every net."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def unit(x: Tensor, w: Tensor, b: Tensor | float = 0.0) -> Tensor:
    """z = w · x + b, the weighted sum of one unit (or of each row of x [..., D]) before its activation."""
    return x @ w + b


def sigmoid(z: Tensor) -> Tensor:
    """σ(z) = 1 / (1 + e^−z), between 0 and 1: a probability or a gate."""
    return torch.sigmoid(z)


def tanh(z: Tensor) -> Tensor:
    """tanh(z) = (e^z − e^−z) / (e^z + e^−z), between −1 and 1: the classic hidden unit."""
    return torch.tanh(z)


def relu(z: Tensor) -> Tensor:
    """max(0, z)."""
    return torch.relu(z)


def gelu(z: Tensor) -> Tensor:
    """z · Φ(z), where Φ is the normal distribution function (Hendrycks & Gimpel 2016, eq. 1)."""
    return torch.nn.functional.gelu(z)


def gelu_tanh(z: Tensor) -> Tensor:
    """z/2 · (1 + tanh(√(2/π) (z + 0.044715 z³))), the approximation of GELU that GPT and GPT-2 use."""
    return z / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
