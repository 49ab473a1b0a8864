"""Spans and their scores against conlleval's own output, a plain port of its rules, and seqeval."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import seqeval.metrics
from hypothesis import given
from hypothesis import strategies as st

from lmlab.metrics.tagging import Span, SpanF1, SpanPrecision, SpanRecall, TagAccuracy, scores_by_type, spans

ENDS = {"BB", "BO", "BS", "IB", "IO", "IS", "EE", "EI", "EO", "EB", "ES", "SS", "SB", "SI", "SE", "SO"}
STARTS = {"BB", "IB", "OB", "EB", "SB", "OI", "EE", "EI", "OE", "SI", "SE", "OS", "BS", "IS", "ES", "SS"}


def conlleval_counts(predicted: list[list[str]], true: list[list[str]]) -> tuple[int, int, int]:
    """Correct, found and true chunks in conlleval's own way: one pass, and pairs of tags that end or start one."""

    def split(tag: str) -> tuple[str, str]:
        head, _, rest = tag.partition("-")
        return head, rest

    correct = found = there = 0
    for said, gold in zip(predicted, true, strict=True):
        inside = False
        last = [("O", ""), ("O", "")]
        for pair in [*zip(gold, said, strict=True), ("O", "O")]:
            now = [split(tag) for tag in pair]
            ends = [a[0] + b[0] in ENDS or (a[0] != "O" and a[1] != b[1]) for a, b in zip(last, now, strict=True)]
            starts = [a[0] + b[0] in STARTS or (b[0] != "O" and a[1] != b[1]) for a, b in zip(last, now, strict=True)]
            if inside:
                if all(ends) and last[0][1] == last[1][1]:
                    inside, correct = False, correct + 1
                elif ends[0] != ends[1] or now[0][1] != now[1][1]:
                    inside = False
            if all(starts) and now[0][1] == now[1][1]:
                inside = True
            there += starts[0]
            found += starts[1]
            last = now
    return correct, found, there


def test_output_of_the_official_script(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("conlleval")
    true, predicted = [[]], [[]]
    for line in (folder / "output.txt").read_text().splitlines():
        if not line.strip():
            true.append([])
            predicted.append([])
        else:
            *_, gold, said = line.split()
            true[-1].append(gold)
            predicted[-1].append(said)
    printed = (folder / "result.txt").read_text()
    overall = re.search(r"accuracy: +([\d.]+)%; precision: +([\d.]+)%; recall: +([\d.]+)%; FB1: +([\d.]+)", printed)
    assert overall is not None
    metrics = (TagAccuracy(), SpanPrecision(), SpanRecall(), SpanF1())
    assert [f"{100 * each.score(predicted, true):.2f}" for each in metrics] == list(overall.groups())
    table = {
        name: f"{100 * each.precision:.2f} {100 * each.recall:.2f} {100 * each.f1:.2f} {each.predicted}"
        for name, each in scores_by_type(predicted, true).items()
    }
    rows = re.findall(r"(\w+): precision: +([\d.]+)%; recall: +([\d.]+)%; FB1: +([\d.]+) +(\d+)", printed)
    assert table == {name: " ".join(numbers) for name, *numbers in rows}
    totals = re.search(r"with (\d+) phrases; found: (\d+) phrases; correct: (\d+)", printed)
    assert totals is not None
    correct, found, there = SpanF1().statistics(predicted, true).sum(0)
    assert (there, found, correct) == tuple(map(int, totals.groups()))


TAG = st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y", "S-Y", "I", "B"])
SENTENCES = st.lists(st.lists(st.tuples(TAG, TAG), max_size=12), min_size=1, max_size=5)


@given(SENTENCES)
def test_spans_of_any_sequence_are_those_of_the_script(sentences: list[list[tuple[str, str]]]) -> None:
    predicted = [[said for said, _ in sentence] for sentence in sentences]
    true = [[gold for _, gold in sentence] for sentence in sentences]
    assert tuple(SpanF1().statistics(predicted, true).sum(0)) == conlleval_counts(predicted, true)


TWO = st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"])


@given(st.lists(st.lists(st.tuples(TWO, TWO), min_size=1, max_size=12), min_size=1, max_size=5))
def test_of_iob_tags_seqeval_says_the_same(sentences: list[list[tuple[str, str]]]) -> None:
    predicted = [[said for said, _ in sentence] for sentence in sentences]
    true = [[gold for _, gold in sentence] for sentence in sentences]
    for metric, reference in (
        (SpanF1(), seqeval.metrics.f1_score),
        (SpanPrecision(), seqeval.metrics.precision_score),
        (SpanRecall(), seqeval.metrics.recall_score),
        (TagAccuracy(), seqeval.metrics.accuracy_score),
    ):
        expected = (
            reference(true, predicted, zero_division=0) if metric.name != "accuracy" else reference(true, predicted)
        )
        assert metric.score(predicted, true) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("I-A I-A B-A O", [("A", 0, 2), ("A", 2, 3)]),  # IOB1
        ("B-A I-A B-A O", [("A", 0, 2), ("A", 2, 3)]),  # IOB2
        ("B-A E-A S-A O S-B", [("A", 0, 2), ("A", 2, 3), ("B", 4, 5)]),  # IOBES
        ("B-A E-A B-A E-A", [("A", 0, 2), ("A", 2, 4)]),
        ("O I-A", [("A", 1, 2)]),  # illegal in IOB2
        ("B-A I-B", [("A", 0, 1), ("B", 1, 2)]),
        ("I-A I-B I-A", [("A", 0, 1), ("B", 1, 2), ("A", 2, 3)]),
        ("S-A I-A", [("A", 0, 1), ("A", 1, 2)]),
        ("B-A-1 I-A-1 I-A-2", [("A-1", 0, 2), ("A-2", 2, 3)]),  # a type may have a hyphen
        ("B I O I", [("", 0, 2), ("", 3, 4)]),  # and may be missing
    ],
)
def test_worked_spans(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert spans(tags.split()) == [Span(*each) for each in expected]


def test_no_spans_score_0_and_no_words_no_number() -> None:
    assert SpanF1().score([["O"]], [["O"]]) == SpanRecall().score([["O"]], [["O"]]) == 0
    assert np.isnan(TagAccuracy().score([[]], [[]]))
    with pytest.raises(ValueError, match="1 tags for a sentence of 2 words"):
        SpanF1().score([["O"]], [["O", "O"]])
