"""The seq2seq objective: the form of its batches, the loss at real places alone, label smoothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from framed import pair_frame
from lmlab.config import build
from lmlab.data.corpora.pairs import prepare_pairs
from lmlab.data.loaders.pairs import PairBatches, PairRows
from lmlab.layers.softmax import AdaptiveSoftmax, Softmax
from lmlab.models.abilities import State
from lmlab.models.model import EncoderDecoder, Output
from lmlab.models.transformer import Transformer, TransformerConfig
from lmlab.objectives.objective import IGNORE
from lmlab.objectives.seq2seq import Seq2Seq, Seq2SeqConfig, smoothed_nll
from lmlab.tokenizers import train
from lmlab.tokenizers.frames import Frame
from losses import loss_of, mean_of

B = 9
TOKENIZER = train("characters", ["abcdefsxyz"])
RAW = PairRows(
    source=np.array([[1, 2, 3, B], [4, 5, B, B]]),
    source_lengths=np.array([4, 3]),
    target=np.array([[B, 6, B, B], [B, 7, 8, B]]),
    target_lengths=np.array([2, 3]),
)


class Stub(EncoderDecoder):
    """Hidden vectors that depend on the target token and on the mean of the source's real tokens."""

    def __init__(self, *, adaptive: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.config = SimpleNamespace(vocabulary=10)  # type: ignore[assignment]
        self.embedding = nn.Embedding(10, 6)
        self.output = AdaptiveSoftmax(6, 10, cutoffs=[4], div_value=2) if adaptive else Softmax(6, 10)

    def encode(self, *, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        return source

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
    assert batch.labels["targets"].tolist() == [[6, B, IGNORE], [7, 8, B]]
    assert batch.units["tokens"] == 4 + 3 + 2 + 3


def loader_of(folder: Path, frame: Frame) -> PairBatches:
    (folder / "p.tsv").write_text("abc\tx\nde\tyz\n")
    corpus = prepare_pairs(pairs=folder / "p.tsv", tokenizer=TOKENIZER, split=(1,), cache=folder)
    return Seq2Seq(frame=frame).loader(corpus.train, batch=2, window=8, seed=0, streams=False)


def test_the_source_reversed(tmp_path: Path) -> None:
    batch = Seq2Seq().batch(loader_of(tmp_path, pair_frame(TOKENIZER, backwards=True)).batch(0))
    end = TOKENIZER.boundary
    assert sorted(batch.inputs["source"].tolist()) == sorted(
        [[*TOKENIZER.encode("cba"), end], [*TOKENIZER.encode("ed"), end, end]]
    )
    assert sorted(batch.inputs["tokens"].tolist()) == sorted(
        [[end, *TOKENIZER.encode("x"), end], [end, *TOKENIZER.encode("yz")]]
    )


def test_another_token_begins_the_target(tmp_path: Path) -> None:
    (start,) = TOKENIZER.encode("s")
    batch = Seq2Seq().batch(loader_of(tmp_path, pair_frame(TOKENIZER, start=start)).batch(0))
    assert batch.inputs["tokens"][:, 0].tolist() == [start, start]
    assert set(batch.labels["targets"].flatten().tolist()) == {*TOKENIZER.encode("xyz"), TOKENIZER.boundary, IGNORE}
    with pytest.raises(ValueError, match="frame_of"):
        Seq2Seq().loader(None, batch=2, window=8, seed=0, streams=False)  # type: ignore[arg-type]


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
    loss = loss_of(objective, model, batch)
    expected = expected_loss(model, smoothing=smoothing)
    torch.testing.assert_close(loss.sums["target"], expected)
    assert (batch.counts["target"], loss.state) == (5, None)
    ours, theirs = (torch.autograd.grad(each, list(model.parameters())) for each in (loss.sums["target"], expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)
    if smoothing:
        plain = loss.sums["nats"]
        assert (plain.requires_grad, batch.counts["nats"], objective.loss_weights["nats"]) == (False, 5, 0.0)
        torch.testing.assert_close(plain, expected_loss(model, smoothing=0.0).detach())


def test_a_model_is_judged_without_smoothing() -> None:
    model = Stub().eval()
    objective = Seq2Seq(Seq2SeqConfig(smoothing=0.3))
    batch = objective.batch(RAW)
    with torch.inference_mode():
        loss = loss_of(objective, model, batch)
        torch.testing.assert_close(loss.sums["target"], expected_loss(model, smoothing=0.0))
        hidden, _ = model(**batch.inputs)
        right = (model.logits(hidden).argmax(-1) == batch.labels["targets"]).sum()
    assert (int(loss.watched["accuracy"].sum()), loss.watched["accuracy"].numel()) == (int(right), 5)


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
    frame = pair_frame(corpus.tokenizer, corpus.source_tokenizer)
    objective = Seq2Seq(Seq2SeqConfig(smoothing=0.1), frame=frame)
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
        batch = objective.batch(loader.batch(step))
        loss = loss_of(objective, model, batch)
        optimizer.zero_grad()
        mean_of(objective, batch, loss).backward()
        optimizer.step()
        losses.append(loss.sums["nats"].item() / batch.counts["nats"])
    assert losses[-1] < 0.15 * losses[0]
    model.eval()
    with torch.inference_mode():
        evaluated = loss_of(objective, model, objective.batch(loader.batch(0)))
    assert evaluated.watched["accuracy"].all()
    stated = 3 * model.pretraining_flops(3) * loader.units_per_step["targets"]
    assert objective.step_flops(model, {}, loader) == pytest.approx(stated)


def test_settings_are_bounded() -> None:
    with pytest.raises(ValueError, match=r"objective\.smoothing = 1\.5"):
        build(Seq2SeqConfig, {"smoothing": 1.5}, where="objective")
    with pytest.raises(ValueError, match="did you mean 'smoothing'"):
        build(Seq2SeqConfig, {"smothing": 0.1}, where="objective")
