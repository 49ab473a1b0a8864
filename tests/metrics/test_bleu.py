"""BLEU and chrF: what sacrebleu says, and what to do where it is missing."""

from __future__ import annotations

import sys

import pytest

from lmlab.metrics.bleu import translation_metrics

REFERENCE = "A man rides a red bicycle ."


def test_the_same_text_has_the_best_scores_and_case_matters_unless_asked():
    pytest.importorskip("sacrebleu")
    for metric in translation_metrics().values():
        assert metric.corpus_score([REFERENCE], [[REFERENCE]]).score == pytest.approx(100)
        assert metric.corpus_score([REFERENCE.upper()], [[REFERENCE]]).score < 50
    for metric in translation_metrics(lowercase=True).values():
        assert metric.corpus_score([REFERENCE.upper()], [[REFERENCE]]).score == pytest.approx(100)


def test_where_sacrebleu_is_missing_it_is_reported_what_needs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(ValueError, match=r"^BLEU and chrF need sacrebleu: pip install 'lmlab\[eval\]'$"):
        translation_metrics()
    with pytest.raises(ValueError, match=r"^train.watch = 'bleu' needs sacrebleu: pip install 'lmlab\[eval\]'$"):
        translation_metrics(needs="train.watch = 'bleu' needs")
