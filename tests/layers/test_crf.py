"""The CRF against the sum over, and the best of, all sequences, one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lmlab.layers.crf import CRF, Legal, check_legal, legal_tags, log_sum_exp

IOB2 = ["O", "B-X", "I-X", "B-Y", "I-Y"]
IOBES = ["O", "B-X", "I-X", "E-X", "S-X"]


def make(labels: list[str], scheme: str | None, *, seed: int = 0) -> CRF:
    torch.manual_seed(seed)
    crf = CRF(len(labels), legal=legal_tags(labels, scheme=scheme)).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter, std=1.5)
    return crf


@torch.no_grad()
def score(crf: CRF, emissions: Tensor, tags: tuple[int, ...]) -> float:
    """s(x, y) of one sentence as it is defined; −∞ where the tags are illegal."""
    legal = crf.legal_start[tags[0]] and crf.legal_end[tags[-1]]
    legal = legal and all(crf.legal_step[a, b] for a, b in itertools.pairwise(tags))
    if not legal:
        return -math.inf
    total = crf.start[tags[0]] + crf.end[tags[-1]] + sum(emissions[t, tag] for t, tag in enumerate(tags))
    return float(total + sum(crf.step[a, b] for a, b in itertools.pairwise(tags)))


CASES = [(IOB2, "IOB2"), (IOB2, "IOB1"), (IOBES, "IOBES"), (["N", "V", "D"], None)]


@pytest.mark.parametrize(("labels", "scheme"), CASES, ids=lambda each: str(each)[:8])
def test_surprisal_and_best_sequence_are_those_of_all_sequences(labels: list[str], scheme: str | None) -> None:
    crf = make(labels, scheme)
    lengths = torch.tensor([4, 1, 3, 2])
    emissions = torch.randn(4, 4, len(labels), dtype=torch.float64) * 2
    decoded = crf.decode(emissions, lengths)
    for row, length in enumerate(lengths.tolist()):
        sequences = list(itertools.product(range(len(labels)), repeat=length))
        scores = torch.tensor([score(crf, emissions[row], each) for each in sequences], dtype=torch.float64)
        assert tuple(decoded[row]) == sequences[int(scores.argmax())]
        tags = torch.zeros(len(sequences), 4, dtype=torch.long)
        tags[:, length:] = -100  # what stands beyond the end is not looked at
        tags[:, :length] = torch.tensor(sequences)
        found = crf.nll(emissions[row].expand(len(sequences), -1, -1), tags, lengths[row].expand(len(sequences)))
        torch.testing.assert_close(found, scores.logsumexp(0) - scores)
        assert (-found.detach()).exp().sum().item() == pytest.approx(1)


def test_what_stands_beyond_the_end_changes_nothing() -> None:
    crf = make(IOB2, "IOB2")
    emissions = torch.randn(1, 3, 5, dtype=torch.float64)
    tags = torch.tensor([[1, 2, 0]])
    longer = torch.cat([emissions, torch.full((1, 2, 5), 1e3, dtype=torch.float64)], dim=1)
    lengths = torch.tensor([3])
    torch.testing.assert_close(
        crf.nll(longer, torch.tensor([[1, 2, 0, 4, -1]]), lengths), crf.nll(emissions, tags, lengths)
    )
    assert crf.decode(longer, lengths) == crf.decode(emissions, lengths)


@pytest.mark.parametrize(("labels", "scheme"), CASES, ids=lambda each: str(each)[:8])
def test_gradients_are_those_of_finite_differences(labels: list[str], scheme: str | None) -> None:
    crf = make(labels, scheme)
    lengths = torch.tensor([3, 1])
    tags = torch.tensor([[1, 2, 0], [0, 0, 0]] if scheme != "IOB1" else [[2, 1, 0], [0, 0, 0]])
    if scheme == "IOBES":
        tags = torch.tensor([[1, 3, 0], [4, 0, 0]])
    emissions = torch.randn(2, 3, len(labels), dtype=torch.float64, requires_grad=True)

    def nll(emissions: Tensor, start: Tensor, step: Tensor, end: Tensor) -> Tensor:
        values = {"start": start, "step": step, "end": end}
        return torch.func.functional_call(
            _Loss(crf), {f"crf.{k}": v for k, v in values.items()}, (emissions, tags, lengths)
        )

    assert torch.autograd.gradcheck(nll, (emissions, crf.start, crf.step, crf.end))


class _Loss(torch.nn.Module):
    def __init__(self, crf: CRF) -> None:
        super().__init__()
        self.crf = crf

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.crf.nll(*inputs)


def test_gradients_of_a_long_sentence_with_far_scores_are_numbers() -> None:
    crf = CRF(5, legal=legal_tags(IOB2, scheme="IOB2"))
    emissions = (torch.randn(2, 200, 5) * 200).requires_grad_()
    loss = crf.nll(emissions, torch.zeros(2, 200, dtype=torch.long), torch.tensor([200, 7]))
    assert bool(loss.isfinite().all())
    loss.sum().backward()
    for each in (emissions, *crf.parameters()):
        assert each.grad is not None
        assert bool(each.grad.isfinite().all())
    assert float(crf.step.grad[0, 2]) == 0  # I after O: forbidden, so never learnt
    assert float(emissions.grad[1, 7:].abs().sum()) == 0


def test_decoded_tags_are_always_legal_even_against_the_emissions() -> None:
    torch.manual_seed(0)
    legal = legal_tags(IOBES, scheme="IOBES")
    crf = CRF(5, legal=legal)
    lengths = torch.randint(1, 12, (64,))
    decoded = crf.decode(torch.randn(64, 11, 5) * 50, lengths)
    assert [len(each) for each in decoded] == lengths.tolist()
    tags = np.array([each + [0] * (11 - len(each)) for each in decoded])
    check_legal(tags, lengths.numpy(), legal=legal, labels=IOBES)


def test_a_chain_is_learnt_that_no_single_place_shows() -> None:
    """Tags alternate, and emissions say only where the sentence begins: steps must carry the rest."""
    torch.manual_seed(0)
    crf = CRF(2)
    tags = torch.tensor([[0, 1] * 4, [1, 0] * 4])
    emissions = torch.zeros(2, 8, 2)
    emissions[0, 0, 0] = emissions[1, 0, 1] = 3.0
    lengths = torch.tensor([8, 8])
    optimizer = torch.optim.SGD(crf.parameters(), lr=0.5)
    for _ in range(50):
        optimizer.zero_grad()
        crf.nll(emissions, tags, lengths).mean().backward()
        optimizer.step()
    assert crf.decode(emissions, lengths) == tags.tolist()


def test_log_sum_exp_of_nothing_is_nothing_with_no_gradient() -> None:
    x = torch.tensor([[-math.inf, -math.inf], [1.0, -math.inf], [1.0, 2.0]], requires_grad=True)
    result = log_sum_exp(x, dim=1)
    torch.testing.assert_close(result, torch.logsumexp(x, 1))
    result[1:].sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[0, 0], [1, 0], [0.26894, 0.73106]]), atol=1e-5, rtol=0)


def follows(legal: Legal, labels: list[str], before: str, after: str) -> bool:
    return bool(legal.step[labels.index(before), labels.index(after)])


def test_what_may_follow_what() -> None:
    two = legal_tags(IOB2, scheme="IOB2")
    assert [follows(two, IOB2, a, "I-X") for a in IOB2] == [False, True, True, False, False]
    assert two.start.tolist() == [True, True, False, True, False]
    assert two.end.all()
    one = legal_tags(IOB2, scheme="IOB1")
    assert [follows(one, IOB2, a, "B-X") for a in IOB2] == [False, True, True, False, False]
    assert one.start.tolist() == [True, False, True, False, True]
    five = legal_tags(IOBES, scheme="IOBES")
    assert five.step.int().tolist() == [
        # O B I E S
        [1, 1, 0, 0, 1],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [1, 1, 0, 0, 1],
        [1, 1, 0, 0, 1],
    ]
    assert five.start.tolist() == [True, True, False, False, True]
    assert five.end.tolist() == [True, False, False, True, True]
    assert all(each.all() for each in legal_tags(["NN", "B-X"], scheme=None))


def test_bad_schemes_tags_and_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="scheme='BILOU': tags are marked by IOB1, IOB2, IOBES"):
        legal_tags(IOB2, scheme="BILOU")
    with pytest.raises(ValueError, match="'E-X' is not a tag of IOB2"):
        legal_tags(IOBES, scheme="IOB2")
    with pytest.raises(ValueError, match="4 tags, but legality of shapes"):
        CRF(4, legal=legal_tags(IOB2, scheme="IOB2"))


def test_illegal_gold_tags_are_named_and_have_no_probability() -> None:
    legal = legal_tags(IOB2, scheme="IOB2")
    tags, lengths = np.array([[0, 1, 2], [0, 4, 4]]), np.array([3, 2])
    with pytest.raises(
        ValueError, match=r"^a.txt, line 7: I-Y may not follow O \(word 2 of the sentence\): correct the tags, or train"
    ):
        check_legal(tags, lengths, legal=legal, labels=IOB2, where=["a.txt, line 3", "a.txt, line 7"])
    with pytest.raises(ValueError, match=r"^I-X may not follow the beginning \(word 1"):
        check_legal(np.array([[2]]), np.array([1]), legal=legal, labels=IOB2)
    five = legal_tags(IOBES, scheme="IOBES")
    with pytest.raises(ValueError, match=r"^the end may not follow B-X \(word 2"):
        check_legal(np.array([[0, 1, 0]]), np.array([2]), legal=five, labels=IOBES)
    check_legal(np.array([[0, 1, 2], [3, 4, 2]]), lengths, legal=legal, labels=IOB2)  # I-X is beyond the end
    nll = CRF(5, legal=legal).nll(torch.randn(2, 3, 5), torch.from_numpy(tags), torch.from_numpy(lengths))
    assert nll.isfinite().tolist() == [True, False]


def test_real_sentences_are_legal(shared_data: Callable[[str], Path]) -> None:
    """CoNLL-2003 is in IOB1, and not in IOB2."""
    labels = ["O", *(f"{head}-{kind}" for head in "BI" for kind in ("PER", "LOC", "ORG", "MISC"))]
    text = (shared_data("conll2003") / "eng.testa").read_text()
    sentences = [
        [labels.index(line.split()[-1]) for line in block.splitlines()] for block in text.split("\n\n") if block.strip()
    ]
    lengths = np.array([len(each) for each in sentences])
    tags = np.array([each + [0] * (lengths.max() - len(each)) for each in sentences])
    check_legal(tags, lengths, legal=legal_tags(labels, scheme="IOB1"), labels=labels)
    with pytest.raises(ValueError, match="may not follow"):
        check_legal(tags, lengths, legal=legal_tags(labels, scheme="IOB2"), labels=labels)
