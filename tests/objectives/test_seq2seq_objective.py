"""The seq2seq objective: the form of its batches, the loss at real places alone, label smoothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.config import build
from lmlab.data.batches.pairs import PairRows
from lmlab.data.corpora.pairs import prepare_pairs
from lmlab.layers.softmax import AdaptiveSoftmax, Softmax
from lmlab.models.model import EncoderDecoder, Output, State
from lmlab.models.transformer import Transformer, TransformerConfig
from lmlab.objectives.objective import IGNORE
from lmlab.objectives.seq2seq import Seq2Seq, Seq2SeqConfig, reverse, smoothed_nll

torch.set_num_threads(1)
B = 9
RAW = PairRows(
    source=np.array([[1, 2, 3, B], [4, 5, B, B]]),
    source_lengths=np.array([4, 3]),
    target=np.array([[B, 6, B, B], [B, 7, 8, B]]),
    target_lengths=np.array([2, 3]),
)


class Stub(EncoderDecoder):
    """Hidden vectors that depend on the target token and on the mean of the source's real tokens."""

    def __init__(self, *, start: int | None = None, adaptive: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = SimpleNamespace(vocabulary=10, start=start)  # type: ignore[assignment]
        self.embedding = nn.Embedding(10, 6)
        self.output = AdaptiveSoftmax(6, 10, cutoffs=[4], div_value=2) if adaptive else Softmax(6, 10)

    def forward(
        self,
        tokens: Tensor,
        *,
        source: Tensor | None = None,
        lengths: Tensor | None = None,
        target_lengths: Tensor | None = None,
        state: State = None,
    ) -> Output:
        assert source is not None
        assert lengths is not None
        real = torch.arange(source.shape[1]) < lengths[:, None]
        mean = (self.embedding(source) * real[..., None]).sum(1) / lengths[:, None]
        return Output(torch.tanh(self.embedding(tokens) + mean[:, None]), None)


def test_batches_by_hand() -> None:
    batch = Seq2Seq().batch(RAW)
    assert batch.inputs["source"].tolist() == RAW.source.tolist()
    assert batch.inputs["lengths"].tolist() == [4, 3]
    assert batch.inputs["tokens"].tolist() == [[B, 6, B], [B, 7, 8]]
    assert batch.targets.tolist() == [[6, B, IGNORE], [7, 8, B]]
    assert batch.tokens == 4 + 3 + 2 + 3


def test_the_source_reversed() -> None:
    batch = Seq2Seq(Seq2SeqConfig(reverse_source=True)).batch(RAW)
    assert batch.inputs["source"].tolist() == [[3, 2, 1, B], [5, 4, B, B]]
    assert batch.inputs["tokens"].tolist() == [[B, 6, B], [B, 7, 8]]
    assert reverse(np.array([[B]]), np.array([1])).tolist() == [[B]]


def expected_loss(model: Stub, *, smoothing: float) -> Tensor:
    """Pair by pair, without padding."""
    total = torch.zeros(())
    for source, n, target, m in zip(*RAW, strict=True):
        tokens, goal = torch.from_numpy(target[:m])[None], torch.from_numpy(target[1 : m + 1])
        hidden, _ = model(tokens, source=torch.from_numpy(source[:n])[None], lengths=torch.tensor([n]))
        total = total + F.cross_entropy(model.logits(hidden[0]), goal, reduction="sum", label_smoothing=smoothing)
    return total


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_the_loss_is_that_of_the_real_places(smoothing: float, adaptive: bool) -> None:
    model = Stub(adaptive=adaptive)
    objective = Seq2Seq(Seq2SeqConfig(smoothing=smoothing))
    batch = objective.batch(RAW)
    loss, state = objective.loss(model, batch)
    expected = expected_loss(model, smoothing=smoothing)
    torch.testing.assert_close(loss.total, expected)
    assert (loss.count, state) == (5, None)
    ours, theirs = (torch.autograd.grad(each, list(model.parameters())) for each in (loss.total, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)
    if smoothing:
        plain, count = loss.measures["nats"]
        assert (plain.requires_grad, count) == (False, 5)
        torch.testing.assert_close(plain, expected_loss(model, smoothing=0.0).detach())


def test_a_model_is_judged_without_smoothing() -> None:
    model = Stub().eval()
    objective = Seq2Seq(Seq2SeqConfig(smoothing=0.3))
    batch = objective.batch(RAW)
    with torch.inference_mode():
        loss, _ = objective.loss(model, batch)
        torch.testing.assert_close(loss.total, expected_loss(model, smoothing=0.0))
        hidden, _ = model(**batch.inputs)
        right = (model.logits(hidden).argmax(-1) == batch.targets).sum()
    assert (int(loss.measures["accuracy"][0]), loss.measures["accuracy"][1]) == (int(right), 5)


def test_another_token_begins_the_target() -> None:
    objective = Seq2Seq()
    batch = objective.batch(RAW)
    model, other = Stub(), Stub(start=3)
    assert batch.inputs["tokens"][0, 0] == B
    changed = batch._replace(inputs={**batch.inputs, "tokens": torch.tensor([[3, 6, B], [3, 7, 8]])})
    torch.testing.assert_close(objective.loss(other, batch)[0].total, objective.loss(model, changed)[0].total)
    assert batch.inputs["tokens"][0, 0] == B, "the batch itself stays as it was"


@pytest.mark.parametrize("bias", [True, False])
def test_smoothing_equals_torch_in_double_precision(bias: bool) -> None:
    torch.manual_seed(1)
    model = Stub()
    model.output = Softmax(6, 10, bias=bias).double()
    if bias:
        nn.init.normal_(model.output.bias)  # type: ignore[arg-type]
    hidden, targets = torch.randn(7, 6, dtype=torch.float64, requires_grad=True), torch.randint(10, (7,))
    wanted = [hidden, *model.output.parameters()]
    total, plain = smoothed_nll(model, hidden, targets, smoothing=0.2)
    scores = model.logits(hidden)
    expected = F.cross_entropy(scores, targets, reduction="sum", label_smoothing=0.2)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plain, F.cross_entropy(scores, targets, reduction="sum"), rtol=1e-12, atol=1e-12)
    for mine, other in zip(torch.autograd.grad(total, wanted), torch.autograd.grad(expected, wanted), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


def test_smoothing_under_autocast_is_near() -> None:
    layer = Stub().output
    assert isinstance(layer, Softmax)
    hidden, targets = torch.randn(7, 6), torch.randint(10, (7,))
    expected, _ = layer.smoothed(hidden, targets, smoothing=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual, _ = layer.smoothed(hidden, targets, smoothing=0.1)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=0)


def test_a_small_transformer_learns_a_dictionary(tmp_path: Path) -> None:
    """Word for word: after a few steps the loss of 40 pairs is a fraction of the first one."""
    words = {"a": "uno", "b": "due", "c": "tre", "d": "sei"}
    pairs = [(a, b) for a in words for b in words]
    lines = [f"{a} {b}\t{words[a]} {words[b]}\n" for a, b in pairs * 3]
    (tmp_path / "p.tsv").write_text("".join(lines))
    corpus = prepare_pairs(
        pairs=tmp_path / "p.tsv", tokenizer="words", source_tokenizer="words", split=(1,), cache=tmp_path
    )
    assert corpus.source_tokenizer is not None
    objective = Seq2Seq(Seq2SeqConfig(smoothing=0.1))
    loader = objective.loader(corpus.train, batch=16, window=4, seed=0, streams=False)
    torch.manual_seed(0)
    sizes = {"width": 32, "heads": 2, "layers": 1, "inner": 64, "dropout": 0.0}
    vocabularies = {
        "vocabulary": corpus.tokenizer.vocabulary,
        "source_vocabulary": corpus.source_tokenizer.vocabulary,
    }
    model = Transformer(build(TransformerConfig, {**sizes, **vocabularies}, where="model"))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for step in range(120):
        loss, _ = objective.loss(model, objective.batch(loader.batch(step)))
        optimizer.zero_grad()
        loss.mean.backward()
        optimizer.step()
        losses.append(loss.measures["nats"][0].item() / loss.count)
    assert losses[-1] < 0.15 * losses[0]
    model.eval()
    with torch.inference_mode():
        judged, _ = objective.loss(model, objective.batch(loader.batch(0)))
    right, count = judged.measures["accuracy"]
    assert int(right) == count
    assert objective.flops(model, loader) == pytest.approx(model.flops(3) * loader.units_per_step["targets"])


def test_settings_are_bounded() -> None:
    with pytest.raises(ValueError, match=r"objective\.smoothing = 1\.5"):
        build(Seq2SeqConfig, {"smoothing": 1.5}, where="objective")
    with pytest.raises(ValueError, match="did you mean 'smoothing'"):
        build(Seq2SeqConfig, {"smothing": 0.1}, where="objective")
