"""Output layers: a distribution over the vocabulary for each hidden vector.

All of them answer to `logits(hidden)`, `nll(hidden, targets)` and `total(hidden, targets)`, so a model can exchange
one for another. Shapes: N positions at which a token is predicted, D width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.kernels.cross_entropy import chunk_rows, linear_cross_entropy
from lmlab.layers.kernels.linear import Linear, Prepares, is_rounded, linear
from lmlab.layers.kernels.training_linear import half_precision


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
        rows = chunk_rows(len(self.weight))
        parts = [
            F.cross_entropy(_widen(self.logits(h)), t, reduction="none")
            for h, t in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True)
        ]
        return torch.cat(parts)

    def total(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum of `nll`; never holds more than one chunk of the N x V scores."""
        if is_rounded(self):
            return self.nll(hidden, targets).sum()
        if _narrows_otherwise(hidden):
            return F.cross_entropy(_widen(self.logits(hidden)), targets, reduction="sum")
        return linear_cross_entropy(hidden, self.weight, self.bias, targets)

    def smoothed(self, hidden: Tensor, targets: Tensor, *, smoothing: float) -> tuple[Tensor, Tensor]:
        """The sum of `nll` with smoothed labels, Σ_n (1 − ε) nll(y_n) + ε · mean_w nll(w), and the plain sum.

        In scores that is nll + ε (s_y − mean_w s_w), and the mean score is h · mean_w W_w + mean b: so smoothing
        costs two more products of a vector, and does not recompute the N × V scores.
        """
        if _narrows_otherwise(hidden):
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


class SampledSoftmax(Softmax):
    """A full softmax that is trained on a sample of the vocabulary (Jean et al. 2015, Jozefowicz et al. 2016).

        loss = −log ( exp(s'_y) / (exp(s'_y) + Σ_{w ∈ S, w ≠ y} exp(s'_w)) ),    s'_w = W_w · h + b_w − log q_w

    S are the distinct tokens of `samples` draws from the log-uniform distribution p_w = log((w + 2) / (w + 1)) /
    log(V + 1), which is near to Zipf's law where ids go from the frequent to the rare; a whole batch shares them.
    q_w = 1 − (1 − p_w)^samples is the probability that w is in S: taken off, the frequent tokens, which are drawn so
    often, push no harder than they would in the full softmax. Scores in evaluation (`nll`, `logits`) are exact.
    """

    def __init__(self, width: int, vocabulary: int, *, samples: int, bias: bool = True) -> None:
        super().__init__(width, vocabulary, bias=bias)
        self.samples = samples

    def total(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The sum over targets [N] at hidden vectors [N, D] of the loss above; exact with as many samples as tokens."""
        if self.samples >= len(self.weight) or hidden.is_meta:
            return super().total(hidden, targets)
        sample = draw_log_uniform(len(self.weight), self.samples, device=hidden.device)
        return self.total_among(hidden, targets, sample)

    def total_among(self, hidden: Tensor, targets: Tensor, sample: Tensor) -> Tensor:
        """The same for the distinct tokens [S] that were drawn."""
        both = torch.cat([targets, sample])
        rows = F.embedding(both, self.weight)  # [N + S, D]
        shift = -self.log_drawn(both) if self.bias is None else self.bias[both] - self.log_drawn(both)  # [N + S]
        count = len(targets)
        own = _widen((hidden * rows[:count]).sum(-1)) + shift[:count]  # [N]
        others = _widen(torch.addmm(shift[count:].to(hidden.dtype), hidden, rows[count:].T))  # [N, S]
        others = others.masked_fill(targets[:, None] == sample, -torch.inf)
        return (torch.logaddexp(own, others.logsumexp(-1)) - own).sum()

    def log_drawn(self, tokens: Tensor) -> Tensor:
        """log q_w of tokens."""
        fraction = torch.log1p(1 / (tokens.double() + 1)) / math.log(len(self.weight) + 1)
        return torch.log(-torch.expm1(self.samples * torch.log1p(-fraction))).to(self.weight.dtype)

    def flops(self) -> float:
        """Floating-point operations per token in training: of the distinct tokens that are drawn, on average."""
        vocabulary, width = self.weight.shape
        if self.samples >= vocabulary:
            return 2.0 * width * vocabulary
        edges = np.log(np.arange(1, vocabulary + 2)) / math.log(vocabulary + 1)
        return 2.0 * width * float((1 - (1 - np.diff(edges)) ** self.samples).sum())


def draw_log_uniform(vocabulary: int, draws: int, *, device: torch.device | str | None = None) -> Tensor:
    """The distinct tokens [S], in rising order, of draws with P(w) = log((w + 2) / (w + 1)) / log(V + 1)."""
    even = torch.rand(draws, dtype=torch.float64, device=device)
    return cast(Tensor, torch.unique((torch.exp(even * math.log(vocabulary + 1)).long() - 1).clamp_(0, vocabulary - 1)))


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
            fraction = math.log((end + 1) / (start + 1)) / math.log(layer.n_classes + 1)
            total += fraction * sum(2.0 * weight.numel() for weight in tail.parameters())
        return total


def default_cutoffs(vocabulary: int) -> list[int]:
    """A short list of a tenth of the vocabulary, at most 2000, and clusters up to five times as far each."""
    cutoffs = [max(1, min(vocabulary // 10, 2000))]
    while 5 * cutoffs[-1] < vocabulary:
        cutoffs.append(5 * cutoffs[-1])
    return cutoffs


def _narrows_otherwise(hidden: Tensor) -> bool:
    """Whether autocast is on in a way that `linear_cross_entropy` does not know: on a GPU, or in fp16."""
    return torch.is_autocast_enabled(hidden.device.type) and half_precision(hidden.device) is None


def _widen(scores: Tensor) -> Tensor:
    """Half-precision scores as single precision, so that their exponentials can be added up."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


class MaskedHead(nn.Module):
    """P(w | h) = softmax(E LN(f(W h + b)) + c)_w: one more layer, then the token embeddings E themselves.

    Devlin et al. 2019, as published: the vector at a mask is projected to the space of the embeddings, whose
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
