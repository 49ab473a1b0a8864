"""Output layers: a distribution over the vocabulary for each hidden vector.

All of them answer to `logits(hidden)`, `nll(hidden, targets)` and `total(hidden, targets)`, so a model can exchange
one for another. Shapes: N places at which a token is predicted, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lmlab.layers.kernels.linear import Prepares, linear

CHUNK_ELEMENTS = 2**24
"""About how many scores are held at once by `linear_cross_entropy`: 64 MB in single precision."""
BLOCK_ELEMENTS = 2**20
"""How many scores become probabilities at a time: few enough for the cache."""
CHUNK_ROWS = 256
"""The fewest rows that a chunk has: with fewer, adding up the weight's gradient costs more than the products."""


class Softmax(Prepares):
    """P(w | h) = softmax(W h + b)_w; W may be the embedding's own matrix.

    Tying the two: Press & Wolf 2017, Inan et al. 2017.
    """

    def __init__(self, width: int, vocabulary: int, *, bias: bool = True, tied: nn.Embedding | None = None) -> None:
        super().__init__()
        if tied is not None and tuple(tied.weight.shape) != (vocabulary, width):
            raise ValueError(
                f"a tied softmax over {vocabulary} tokens of width {width} needs an embedding of that shape, "
                f"not {tuple(tied.weight.shape)}; make the widths equal or do not tie"
            )
        if tied is None:
            bound = 1 / math.sqrt(width)
            self.weight = nn.Parameter(torch.empty(vocabulary, width).uniform_(-bound, bound))
        else:
            self.weight = cast(nn.Parameter, tied.weight)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [..., V] of hidden vectors [..., D]."""
        return linear(hidden, self.weight, self.bias, self.prepared)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Surprisal in nats [N] of targets [N] at hidden vectors [N, D]."""
        rows = _rows(len(self.weight))
        parts = [
            F.cross_entropy(_widen(self.logits(h)), t, reduction="none")
            for h, t in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True)
        ]
        return torch.cat(parts)

    def total(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of `nll`; never holds more than one chunk of the N x V scores."""
        if torch.is_autocast_enabled(hidden.device.type):
            return F.cross_entropy(_widen(self.logits(hidden)), targets, reduction="sum")
        return linear_cross_entropy(hidden, self.weight, self.bias, targets)

    def smoothed(self, hidden: Tensor, targets: Tensor, *, smoothing: float) -> tuple[Tensor, Tensor]:
        """The sum of `nll` with smoothed labels, Σ_n (1 − ε) nll(y_n) + ε · mean_w nll(w), and the plain sum.

        In scores that is nll + ε (s_y − mean_w s_w), and the mean score is h · mean_w W_w + mean b: so smoothing
        costs two products of a vector beside `total`, not a second look at the N × V scores.
        """
        if torch.is_autocast_enabled(hidden.device.type):
            scores = _widen(self.logits(hidden))
            plain = F.cross_entropy(scores, targets, reduction="sum")
            margin = scores.gather(1, targets[:, None]).sum() - scores.mean(1).sum()
        else:
            plain = linear_cross_entropy(hidden, self.weight, self.bias, targets)
            margin = ((F.embedding(targets, self.weight) - self.weight.mean(0)) * hidden).sum()
            if self.bias is not None:
                margin = margin + self.bias[targets].sum() - len(targets) * self.bias.mean()
        return plain + smoothing * margin, plain

    def flops(self) -> float:
        """Floating-point operations per token."""
        return 2.0 * self.weight.numel()

    def extra_repr(self) -> str:
        vocabulary, width = self.weight.shape
        return f"{width}, {vocabulary}, bias={self.bias is not None}"


class AdaptiveSoftmax(nn.Module):
    """Frequent tokens in a short list, rare ones in clusters of ever smaller vectors (Grave et al. 2017).

    P(w | h) = P(w | short list) or P(cluster | h) · P(w | cluster, h), where cluster i sees h projected to
    width / div_value^i. The work per token is then that of the short list for most tokens. It supposes that token
    numbers are sorted by falling frequency: lmlab's `words` tokenizers number by count, and `bpe` nearly so (merges
    are numbered as they were found). With other orders it stays a distribution, but is neither fast nor good.
    """

    def __init__(
        self, width: int, vocabulary: int, *, cutoffs: Sequence[int] | None = None, div_value: float = 4.0
    ) -> None:
        super().__init__()
        if cutoffs is None:
            cutoffs = [cutoff for i, cutoff in enumerate(default_cutoffs(vocabulary)) if width >= div_value ** (i + 1)]
        cutoffs = list(cutoffs)
        if not cutoffs or width < div_value ** len(cutoffs):
            raise ValueError(
                f"cutoffs = {cutoffs}: the last cluster would have vectors of width {width} / {div_value:g}^"
                f"{max(1, len(cutoffs))}, less than 1; give fewer cutoffs or a greater width"
            )
        if cutoffs != sorted(set(cutoffs)) or not 0 < cutoffs[0] <= cutoffs[-1] < vocabulary:
            raise ValueError(
                f"cutoffs = {cutoffs}: give rising token numbers between 1 and {vocabulary - 1} "
                f"(one less than the vocabulary), for instance {default_cutoffs(vocabulary)}"
            )
        self.clusters = nn.AdaptiveLogSoftmaxWithLoss(width, vocabulary, cutoffs, div_value=div_value, head_bias=True)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [..., V], which here are log-probabilities, of hidden vectors [..., D]."""
        scores = self.clusters.log_prob(hidden.reshape(-1, hidden.shape[-1]))
        return scores.view(*hidden.shape[:-1], -1)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Surprisal in nats [N] of targets [N] at hidden vectors [N, D]."""
        return -cast(Tensor, self.clusters(hidden, targets).output)

    def total(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of `nll`."""
        return self.nll(hidden, targets).sum()

    def flops(self) -> float:
        """Floating-point operations per token, if tokens follow Zipf's law: P(token number r) ∝ 1 / (r + 1)."""
        layer = self.clusters
        total = 2.0 * layer.head.weight.numel()
        for start, end, tail in zip(layer.cutoffs[:-1], layer.cutoffs[1:], layer.tail, strict=True):
            share = math.log((end + 1) / (start + 1)) / math.log(layer.n_classes + 1)
            total += share * sum(2.0 * weight.numel() for weight in tail.parameters())
        return total


def default_cutoffs(vocabulary: int) -> list[int]:
    """A short list of a tenth of the vocabulary, at most 2000, and clusters up to five times as far each."""
    cutoffs = [max(1, min(vocabulary // 10, 2000))]
    while 5 * cutoffs[-1] < vocabulary:
        cutoffs.append(5 * cutoffs[-1])
    return cutoffs


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Σ_n −log softmax(W h_n + b)_{y_n}, in memory for one chunk of rows.

    The gradient that arrives from above is one number, so the gradients are computed (up to that factor) together
    with the loss, while a chunk's scores are at hand: dL/ds = softmax(s) − onehot(y), dL/dh = dL/ds · W,
    dL/dW = dL/dsᵀ · h. The [N, V] scores are neither kept nor computed twice.
    """
    wanted = torch.is_grad_enabled() and (
        hidden.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    )
    return cast(Tensor, _LinearCrossEntropy.apply(hidden, weight, bias, targets, wanted))  # type: ignore[no-untyped-call]


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, wanted: bool) -> Tensor:
        count, vocabulary = len(hidden), len(weight)
        total = hidden.new_zeros(())
        d_hidden = torch.empty_like(hidden) if wanted else None
        d_weight = torch.empty_like(weight) if wanted and weight.requires_grad else None
        d_bias = torch.zeros_like(bias) if wanted and bias is not None else None
        chunks = max(1, math.ceil(count / _rows(vocabulary)))
        rows = max(1, math.ceil(count / chunks))
        scores = hidden.new_empty(min(rows, count), vocabulary)
        for start in range(0, count, rows):
            h = hidden[start : start + rows]
            y = targets[start : start + rows, None]
            s = scores[: len(h)]
            if bias is None:
                torch.mm(h, weight.t(), out=s)
            else:
                torch.addmm(bias, h, weight.t(), out=s)
            total -= s.gather(1, y).sum()
            for block in torch.split(s, max(1, BLOCK_ELEMENTS // vocabulary)):
                largest = block.amax(1)
                torch.softmax(block, 1, out=block)
                total += (largest - block.amax(1).log()).sum()  # log Σ exp(s), since the largest p is exp(max s) / Σ
            if d_hidden is None:
                continue
            s.scatter_add_(1, y, s.new_full((), -1).expand_as(y))
            torch.mm(s, weight, out=d_hidden[start : start + rows])
            if d_weight is not None:
                d_weight.addmm_(s.t(), h, beta=0 if start == 0 else 1)
            if d_bias is not None:
                d_bias += s.sum(0)
        if d_weight is not None and count == 0:
            d_weight.zero_()
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = (None if d is None else d * upstream for d in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None, None


def _rows(vocabulary: int) -> int:
    return max(CHUNK_ROWS, CHUNK_ELEMENTS // vocabulary)


def _widen(scores: Tensor) -> Tensor:
    """Half-precision scores as single precision, so that their exponentials can be added up."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
