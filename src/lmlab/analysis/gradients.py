"""How far back a model learns: the gradient that reaches a token, by its distance."""

from __future__ import annotations

import torch
from torch import Tensor

from lmlab.layers.watching import watching
from lmlab.models.model import NextTokenModel


def gradient_by_distance(model: NextTokenModel, tokens: Tensor) -> Tensor:
    """‖∂ loss / ∂ x_{T−d}‖ for each distance d: how much the last prediction depends on the embedding d tokens back.

    tokens [B, T+1] -> mean norm over the batch [T]; entry 0 belongs to the token just before the predicted one. In a
    simple RNN it falls (vanishes) or grows (explodes) exponentially with d, because ∂h_t/∂h_{t−d} is a product of d
    Jacobians (Bengio et al. 1994, Pascanu et al. 2013); gates are there to keep it up.
    """
    if tokens.dim() != 2 or tokens.shape[1] < 2:
        raise ValueError(f"tokens of shape {tuple(tokens.shape)}: give [B, T+1] with T of at least 1")
    was_training = model.training
    try:
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), watching(model, "embedding") as seen:
            hidden = model.eval()(tokens[:, :-1]).hidden[:, -1]
            loss = model.nll(hidden, tokens[:, -1]).sum()
            (gradient,) = torch.autograd.grad(loss, seen["embedding"][-1])  # [B, T, D]
    finally:
        model.train(was_training)
    length = tokens.shape[1] - 1
    norms: Tensor = torch.linalg.vector_norm(gradient[:, -length:], dim=-1)
    return torch.flip(norms.mean(dim=0), [0])
