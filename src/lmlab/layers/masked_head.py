"""The output layer of models that fill blanks."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from lmlab.layers.kernels.linear import Linear
from lmlab.layers.softmax import Softmax


class MaskedHead(nn.Module):
    """P(w | h) = softmax(E LN(f(W h + b)) + c)_w: one more layer, then the token embeddings E themselves.

    Devlin et al. 2019, as published: the vector at a blank is turned into one that lies among the embeddings, whose
    width it takes. All of it runs only where there is something to predict.
    """

    def __init__(
        self, width: int, *, tied: nn.Embedding, activation: Callable[[Tensor], Tensor], epsilon: float = 1e-12
    ) -> None:
        super().__init__()
        vocabulary, embedding_width = tied.weight.shape
        self.transform = Linear(width, embedding_width)
        self.activation = activation
        self.norm = nn.LayerNorm(embedding_width, eps=epsilon)
        self.softmax = Softmax(embedding_width, vocabulary, tied=tied)

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden vectors [..., D] -> vectors of the embeddings' width, from which the scores are computed."""
        x: Tensor = self.norm(self.activation(self.transform(hidden)))
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [..., V] of hidden vectors [..., D]."""
        return self.softmax.logits(self(hidden))

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Surprisal in nats [N] of targets [N] at hidden vectors [N, D]."""
        return self.softmax.nll(self(hidden), targets)

    def total(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of `nll`."""
        return self.softmax.total(self(hidden), targets)

    def flops(self) -> float:
        """Floating-point operations per predicted token."""
        return 2.0 * self.transform.weight.numel() + self.softmax.flops()
