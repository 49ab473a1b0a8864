"""Sequence to sequence: predict each token of a target text from its source and from the target's tokens before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.pairs import PairSplit
from lmlab.data.loaders.pairs import PairBatches, PairRows
from lmlab.layers.softmax import Softmax
from lmlab.metrics.metric import StreamingMetric, accuracy
from lmlab.models.abilities import LearnsTarget, State, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import IGNORE, Batch, Loss, PreTraining
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame

SCORES = 2**24
"""About how many scores are held at once in evaluation."""


class Seq2SeqConfig(Config):
    """How a translator is taught."""

    smoothing: float = Field(
        0.0, ge=0, lt=1, description="label smoothing: probability mass spread evenly over all tokens, in training only"
    )
    reverse_source: bool = Field(False, description="reverse the source: read it from the last word to the first")


class TargetLoss(PreTraining):
    """What objectives of encoder-decoders share: the surprisal of a target's tokens, smoothed in training.

    With smoothing, what is minimised is no surprisal: so the plain one is watched as a term of weight 0, `nats`.
    """

    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {"accuracy": accuracy}

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing
        self.loss_weights: Mapping[str, float] = {"target": 1.0, "nats": 0.0} if smoothing else {"target": 1.0}

    @classmethod
    def needs(cls, config: Config) -> tuple[type, ...]:
        return (LearnsTarget,)

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        """Smoothed while the model is in training, plain when it is evaluated; only where there is a target."""
        writer, targets = require(model, LearnsTarget), batch.labels["targets"]
        hidden, _ = writer(**batch.inputs)
        predicted = targets != IGNORE
        hidden, targets = hidden[predicted], targets[predicted]
        if not model.training:
            plain, right = evaluate_targets(writer, hidden, targets)
            return Loss({"target": plain, "nats": plain}, watched={"accuracy": right})
        if not self.smoothing:
            return Loss({"target": writer.total_nll(hidden, targets)})
        total, plain = smoothed_nll(writer, hidden, targets, smoothing=self.smoothing)
        return Loss({"target": total, "nats": plain.detach()})

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        writer = require(model, LearnsTarget)
        return PASSES * (writer.writing_flops(batch.inputs) + batch.counts["target"] * writer.head_flops())


class Seq2Seq(TargetLoss):
    """−log P(y | x) = −Σ_t log P(y_t | y_1 .. y_t-1, x) (Sutskever et al. 2014; Cho et al. 2014).

    The frame adds the special tokens to source and target, and says whether the source is read backwards: that
    brings its first words near to those of the target, and helps where there is no attention (Sutskever et al. 2014,
    section 3.3).
    """

    Config: ClassVar[type[Config]] = Seq2SeqConfig
    reads: ClassVar[tuple[str, ...]] = ("pairs",)
    default_for: ClassVar[tuple[str, ...]] = ("pairs",)
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = True

    def __init__(
        self, config: Seq2SeqConfig | None = None, tokenizer: Tokenizer | None = None, frame: Frame | None = None
    ) -> None:
        self.config, self.frame = config or Seq2SeqConfig(), frame
        super().__init__(self.config.smoothing)

    def loader(self, data: PairSplit, *, batch: int, window: int, seed: int, streams: bool) -> PairBatches:
        """Batches of at most `batch` × `window` tokens per side; a row has at most `window`.

        So `batch` is the number of rows where all are as long as they may be; of shorter ones there are more.
        """
        if self.frame is None:
            raise ValueError("rows of pairs need the frame of their model; give Seq2Seq frame_of(model, tokenizer)")
        return PairBatches(data, frame=self.frame, tokens=batch * window, longest=window, seed=seed)

    def batch(self, raw: PairRows, generator: np.random.Generator | None = None) -> Batch:
        """Source rows x1 .. xn b; target rows b y1 .. ym, to be followed by y1 .. ym b."""
        return pair_batch(*raw, tokens=int(raw.source_lengths.sum() + raw.target_lengths.sum()))


def pair_batch(
    source: np.ndarray, lengths: np.ndarray, target: np.ndarray, target_lengths: np.ndarray, *, tokens: int
) -> Batch:
    """A batch of padded sources [B, S] and of padded targets [B, T + 1]; all tokens but the first are predicted."""
    sources = {"source": torch.from_numpy(source), "lengths": torch.from_numpy(lengths)}
    made = target_batch(torch.from_numpy(target), torch.from_numpy(target_lengths), sources=sources)
    return made._replace(units={"tokens": tokens})


def target_batch(
    target: Tensor,
    lengths: Tensor,
    *,
    sources: Mapping[str, Tensor],
    given: int = 1,
    terms: Sequence[str] = (),
) -> Batch:
    """A batch of padded targets [B, T + 1]: their tokens after the first `given` are predicted from those before them.

    The decoder reads `lengths` [B] tokens of each target, all but its last. The loss of `target`, and that of the
    further `terms`, is divided by the number of predicted tokens.
    """
    positions = torch.arange(target.shape[1] - 1)
    predicted = (positions < lengths[:, None]) & (positions >= given - 1)
    count = int(predicted.sum())
    return Batch(
        {"tokens": target[:, :-1].contiguous(), **sources, "target_lengths": lengths},
        {"targets": target[:, 1:].masked_fill(~predicted, IGNORE)},
        dict.fromkeys(("target", "nats", *terms), count),
    )


def evaluate_targets(model: LearnsTarget, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The plain loss at hidden vectors [N, D], and whether each of the targets [N] has the highest score."""
    total, right = torch.zeros((), device=hidden.device), []
    for h, y in _chunks(model, hidden, targets):
        scores = model.logits(h).float()
        total += F.cross_entropy(scores, y, reduction="sum")
        right.append(scores.argmax(-1) == y)
    return total, torch.cat(right)


def smoothed_nll(model: LearnsTarget, hidden: Tensor, targets: Tensor, *, smoothing: float) -> tuple[Tensor, Tensor]:
    """The sum of (1 − ε) −log P(y) + ε · mean over all w of −log P(w), and the sum of −log P(y).

    Label smoothing: Szegedy et al. 2016, section 7; Vaswani et al. 2017 take ε = 0.1.
    """
    if isinstance(model.output, Softmax):
        return model.output.smoothed(hidden, targets, smoothing=smoothing)
    total = plain = hidden.new_zeros(())
    for h, y in _chunks(model, hidden, targets):
        logarithms = model.logits(h).float().log_softmax(-1)
        nll = F.nll_loss(logarithms, y, reduction="sum")
        total = total + (1 - smoothing) * nll - smoothing * logarithms.mean(-1).sum()
        plain = plain + nll
    return total, plain


def _chunks(model: LearnsTarget, hidden: Tensor, targets: Tensor) -> zip[tuple[Tensor, Tensor]]:
    rows = max(1, SCORES // model.vocabulary)
    return zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True)
