"""Output layers against torch's own losses, and against sums written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lmlab.layers.kernels import cross_entropy
from lmlab.layers.kernels.cross_entropy import linear_cross_entropy
from lmlab.layers.softmax import AdaptiveSoftmax, SampledSoftmax, Softmax, default_cutoffs, draw_log_uniform


@pytest.fixture(params=[1, 3, 100])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of rows per chunk; 7 rows do not divide evenly into chunks of 3."""
    monkeypatch.setattr(cross_entropy, "CHUNK_ROWS", request.param)
    monkeypatch.setattr(cross_entropy, "CHUNK_ELEMENTS", 1)
    return int(request.param)


def problem(bias: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    b = torch.randn(11, dtype=torch.float64, requires_grad=True) if bias else None
    return hidden, weight, b, torch.tensor([0, 10, 3, 3, 7, 1, 10])


@pytest.mark.parametrize("bias", [True, False])
def test_linear_cross_entropy_equals_torch(chunk: int, bias: bool) -> None:
    hidden, weight, b, targets = problem(bias)
    inputs = [t for t in (hidden, weight, b) if t is not None]
    expected = F.cross_entropy(F.linear(hidden, weight, b), targets, reduction="sum")
    expected_gradients = torch.autograd.grad(3 * expected, inputs)
    actual = linear_cross_entropy(hidden, weight, b, targets)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(torch.autograd.grad(3 * actual, inputs), expected_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_linear_cross_entropy_passes_gradcheck(chunk: int) -> None:
    hidden, weight, b, targets = problem()
    assert torch.autograd.gradcheck(lambda h, w, c: linear_cross_entropy(h, w, c, targets), (hidden, weight, b))


def test_frozen_weight_and_no_grad() -> None:
    hidden, weight, b, targets = problem()
    assert b is not None
    expected = F.cross_entropy(F.linear(hidden, weight, b), targets, reduction="sum")
    (expected_gradient,) = torch.autograd.grad(expected, [hidden], retain_graph=True)
    frozen = linear_cross_entropy(hidden, weight.detach(), b.detach(), targets)
    frozen.backward()
    torch.testing.assert_close(hidden.grad, expected_gradient)
    with torch.no_grad():
        loss = linear_cross_entropy(hidden, weight, b, targets)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected.detach())


def test_no_rows_give_zero_loss_and_zero_gradient() -> None:
    layer = Softmax(4, 6)
    loss = layer.total(torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()


def test_large_scores_do_not_overflow() -> None:
    hidden = torch.tensor([[200.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0]])
    loss = linear_cross_entropy(hidden, weight, None, torch.tensor([1]))
    loss.backward()
    assert loss.item() == pytest.approx(400)
    assert hidden.grad is not None
    assert hidden.grad.item() == pytest.approx(2)


def test_by_hand() -> None:
    """Scores log 1, log 2, log 5 give probabilities 1/8, 2/8, 5/8."""
    layer = Softmax(1, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 2.0, 5.0]).log()[:, None])
    hidden = torch.ones(3, 1)
    nll = layer.nll(hidden, torch.tensor([0, 1, 2]))
    torch.testing.assert_close(nll, -torch.tensor([1 / 8, 2 / 8, 5 / 8]).log())


def test_total_is_the_sum_of_nll(chunk: int) -> None:
    torch.manual_seed(1)
    layer = Softmax(5, 11)
    hidden, targets = torch.randn(7, 5), torch.randint(11, (7,))
    nll = layer.nll(hidden, targets)
    assert nll.shape == (7,)
    torch.testing.assert_close(nll, F.cross_entropy(layer.logits(hidden), targets, reduction="none"))
    torch.testing.assert_close(layer.total(hidden, targets), nll.sum())


def test_total_under_autocast_is_near_and_has_gradients(chunk: int) -> None:
    torch.manual_seed(1)
    layer = Softmax(5, 11)
    hidden, targets = torch.randn(7, 5, requires_grad=True), torch.randint(11, (7,))
    expected = layer.total(hidden, targets)
    near = torch.autograd.grad(expected, (hidden, layer.weight, layer.bias))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = layer.total(hidden, targets)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=0)
    for ours, theirs in zip(torch.autograd.grad(actual, (hidden, layer.weight, layer.bias)), near, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=3e-2, atol=2e-2)


def test_tied_weights_are_one_parameter_with_both_gradients() -> None:
    torch.manual_seed(2)
    embedding = nn.Embedding(11, 5)
    layer = Softmax(5, 11, tied=embedding)
    assert layer.weight is embedding.weight
    tokens, targets = torch.tensor([0, 1]), torch.tensor([3, 4])
    layer.total(embedding(tokens), targets).backward()
    ours = embedding.weight.grad
    embedding.weight.grad = None
    F.cross_entropy(embedding(tokens) @ embedding.weight.T, targets, reduction="sum").backward()
    torch.testing.assert_close(ours, embedding.weight.grad)
    with pytest.raises(ValueError, match="needs an embedding of that shape"):
        Softmax(6, 11, tied=embedding)


def test_adaptive_softmax_equals_its_definition() -> None:
    """P(w) is the short list's probability, or that of the cluster times that of the word in it."""
    torch.manual_seed(3)
    layer = AdaptiveSoftmax(8, 20, cutoffs=[4, 10], div_value=2)
    hidden = torch.randn(6, 8)
    head = (hidden @ layer.clusters.head.weight.T + layer.clusters.head.bias).softmax(-1)
    expected = [head[:, :4]]
    for number, (project, expand) in enumerate(layer.clusters.tail):
        inside = (hidden @ project.weight.T @ expand.weight.T).softmax(-1)
        expected.append(head[:, 4 + number, None] * inside)
    probabilities = torch.cat(expected, dim=1)
    torch.testing.assert_close(layer.logits(hidden).exp(), probabilities)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(6))
    targets = torch.tensor([0, 3, 4, 9, 10, 19])
    nll = layer.nll(hidden, targets)
    torch.testing.assert_close(nll, -probabilities[torch.arange(6), targets].log())
    torch.testing.assert_close(layer.total(hidden, targets), nll.sum())


def test_operations_per_token() -> None:
    assert Softmax(8, 20).flops() == 2 * 8 * 20
    head, tails = 2 * 8 * (4 + 2), [2 * (8 * 4 + 4 * 6), 2 * (8 * 2 + 2 * 10)]
    actual = AdaptiveSoftmax(8, 20, cutoffs=[4, 10], div_value=2).flops()
    assert head < actual < head + sum(tails)
    fractions = [math.log(11 / 5) / math.log(21), math.log(21 / 11) / math.log(21)]
    assert actual == pytest.approx(head + sum(s * t for s, t in zip(fractions, tails, strict=True)))


def test_adaptive_softmax_takes_any_leading_shape() -> None:
    layer = AdaptiveSoftmax(8, 20)
    hidden = torch.randn(2, 3, 8)
    assert layer.logits(hidden).shape == (2, 3, 20)
    torch.testing.assert_close(layer.logits(hidden)[1, 2], layer.logits(hidden[1, 2][None])[0])


@pytest.mark.parametrize("vocabulary", [2, 5, 6, 65, 9999, 10000, 300_000])
def test_default_cutoffs_are_valid(vocabulary: int) -> None:
    cutoffs = default_cutoffs(vocabulary)
    assert cutoffs
    assert all(0 < cutoff < vocabulary for cutoff in cutoffs)
    AdaptiveSoftmax(16, min(vocabulary, 10000))


@pytest.mark.parametrize("cutoffs", [[5, 5], [9, 3], [20], [0, 4]])
def test_wrong_cutoffs_are_named(cutoffs: list[int]) -> None:
    with pytest.raises(ValueError, match=r"rising token numbers between 1 and 19"):
        AdaptiveSoftmax(16, 20, cutoffs=cutoffs)


def test_clusters_without_width_are_refused_or_left_out() -> None:
    with pytest.raises(ValueError, match="give fewer cutoffs"):
        AdaptiveSoftmax(8, 20, cutoffs=[4, 10])
    with pytest.raises(ValueError, match="a greater width"):
        AdaptiveSoftmax(3, 20)
    assert all(parameter.numel() > 0 for parameter in AdaptiveSoftmax(8, 1000).parameters())


def sampled(vocabulary: int = 40, samples: int = 12) -> SampledSoftmax:
    torch.manual_seed(3)
    layer = SampledSoftmax(5, vocabulary, samples=samples).double()
    nn.init.normal_(layer.bias)
    return layer


def inclusion(word: int, vocabulary: int, draws: int) -> float:
    """The probability that a word is among the draws, by the law itself."""
    fraction = (math.log(word + 2) - math.log(word + 1)) / math.log(vocabulary + 1)
    return 1 - (1 - fraction) ** draws


def test_sampled_softmax_by_brute_force() -> None:
    """One place and one sampled token after another, each corrected by how probable it was to be drawn."""
    layer = sampled()
    hidden = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    targets, sample = torch.tensor([0, 3, 17, 39, 5, 3]), torch.tensor([0, 1, 3, 8, 17, 30])

    def corrected(h: torch.Tensor, word: int) -> torch.Tensor:
        assert layer.bias is not None
        return layer.weight[word] @ h + layer.bias[word] - math.log(inclusion(word, 40, 12))

    expected = torch.zeros((), dtype=torch.float64)
    for h, target in zip(hidden, targets.tolist(), strict=True):
        own = corrected(h, target).exp()
        others = [corrected(h, word).exp() for word in sample.tolist() if word != target]
        expected = expected - torch.log(own / (own + sum(others)))
    actual = layer.total_among(hidden, targets, sample)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(
        torch.autograd.grad(actual, [hidden, *layer.parameters()]),
        torch.autograd.grad(expected, [hidden, *layer.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_draws_follow_the_log_uniform_law() -> None:
    """Each token is among the draws as often as its probability says: within five standard deviations."""
    torch.manual_seed(0)
    rounds, counts = 4000, torch.zeros(30)
    for _ in range(rounds):
        counts[draw_log_uniform(30, 8)] += 1
    for word, count in enumerate(counts.tolist()):
        expected = inclusion(word, 30, 8)
        assert abs(count / rounds - expected) < 5 * math.sqrt(expected * (1 - expected) / rounds)


def test_sampled_softmax_is_exact_in_evaluation_and_with_all_tokens() -> None:
    layer = sampled(samples=40)
    hidden, targets = torch.randn(7, 5, dtype=torch.float64), torch.randint(0, 40, (7,))
    exact = F.cross_entropy(F.linear(hidden, layer.weight, layer.bias), targets, reduction="none")
    torch.testing.assert_close(layer.nll(hidden, targets), exact)
    torch.testing.assert_close(layer.total(hidden, targets), exact.sum())
    torch.testing.assert_close(sampled(samples=3).nll(hidden, targets), exact)


def test_many_draws_come_near_to_the_full_softmax() -> None:
    """The more is drawn, the nearer is the loss on the sample to that on the vocabulary."""
    hidden, targets = torch.randn(50, 5, dtype=torch.float64), torch.randint(0, 400, (50,))
    gaps = []
    for samples in (20, 390):
        layer = sampled(vocabulary=400, samples=samples)
        torch.manual_seed(1)
        drawn = sum(float(layer.total(hidden, targets).detach()) for _ in range(20)) / 20
        gaps.append(abs(drawn - float(layer.nll(hidden, targets).sum().detach())))
    assert gaps[1] < gaps[0] / 2
