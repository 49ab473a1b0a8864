"""Minimal pairs against sums by brute force, the files of the authors, and figures that they published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lmlab.analysis.minimal_pairs import PUBLISHED, compare_pairs, compare_scores
from lmlab.analysis.pair_sets import Pair, find_difference, read_pairs, read_scored
from lmlab.language_model import LanguageModel
from lmlab.metrics.statistics import wilson
from lmlab.models.abilities import FillsMasks
from lmlab.tokenizers import train
from standins import TEXT, Table, random_model

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")

PAIRS = [
    Pair("the cat sat on the mat .", "the cat sat on mat the .", "order", "a"),
    Pair("a dog ran to the log .", "a dog sat to the log .", "verb", "b"),
    Pair("the dog sat .", "the dog mat .", "verb", "c"),
]


def table_model() -> LanguageModel:
    tokenizer = train("words", [TEXT])
    return LanguageModel(model=Table(tokenizer.vocabulary), tokenizer=tokenizer)


def brute_force(lm: LanguageModel, text: str, region: tuple[int, int] | None) -> float:
    """Words one after another, by the definition."""
    assert lm.tokenizer is not None
    total, before, place = 0.0, [0, lm.tokenizer.boundary], 0
    for word in text.split():
        start = text.index(word, place)
        place = start + len(word)
        token = lm.tokenizer.encode(word)[0]
        if region is None or (start < region[1] and place > region[0]):
            total += float(lm.model.scores[before[-2], before[-1]].log_softmax(-1)[token])
        before.append(token)
    return total


@pytest.mark.parametrize("region", ["full", "critical"])
def test_unknown_words_are_counted(region: str) -> None:
    pairs = [Pair("the yak sat", "the xylophone sat"), Pair("the cat sat", "the yak sat")]
    found = compare_pairs(table_model(), pairs, region=region)
    assert found.unknown == 2, "a sentence of two pairs is read once"
    assert any("2 unknown tokens: the scores are those of the unknown token" in note for note in found.notes())
    assert found.as_json()["unknown"] == 2
    assert not any("unknown" in note for note in compare_pairs(table_model(), PAIRS, region=region).notes())


@pytest.mark.parametrize("region", ["full", "critical"])
def test_scores_are_those_by_hand(region: str) -> None:
    lm = table_model()
    found = compare_pairs(lm, PAIRS, region=region)
    for pair, judged in zip(PAIRS, found.scored, strict=True):
        spans = pair.critical() if region == "critical" else (None, None)
        assert judged.good_score == pytest.approx(brute_force(lm, pair.good, spans[0]), rel=1e-5)
        assert judged.bad_score == pytest.approx(brute_force(lm, pair.bad, spans[1]), rel=1e-5)
    assert found.accuracy.value == sum(each.right for each in found.scored) / 3
    assert [group.phenomenon for group in found.groups()] == ["order", "verb"]
    assert found.groups()[1].pairs == 2


def test_masked_models_are_scored_by_pseudo_likelihood() -> None:
    torch.manual_seed(0)
    tokenizer = train("words", [TEXT]).with_specials(["cls", "sep", "mask", "pad"])
    lm = random_model("bert", tokenizer, width=16, heads=2, layers=1, window=24)
    found = compare_pairs(lm, PAIRS)
    assert found.pseudo
    assert found.scored[1].good_score == pytest.approx(-lm.score(PAIRS[1].good).nats, rel=1e-5)
    assert any("Salazar" in note for note in found.notes())


def test_of_a_masked_model_only_the_critical_tokens_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    tokenizer = train("characters", [TEXT]).with_specials(["cls", "sep", "mask", "pad"])
    lm = random_model("bert", tokenizer, width=16, heads=2, layers=1, window=48)
    (filler,) = [each for each in lm.model.offers() if isinstance(each, FillsMasks)]
    rows: list[int] = []
    read = type(filler).read
    monkeypatch.setattr(
        type(filler), "read", lambda self, **given: (rows.append(len(given["at"])), read(self, **given))[1]
    )
    found = compare_pairs(lm, PAIRS, region="critical")
    assert sum(rows) == len({(text, place) for pair in PAIRS for text, place in critical_places(pair)})
    assert any("Kauf & Ivanova" in note for note in found.notes())
    monkeypatch.undo()
    for pair, judged in zip(PAIRS, found.scored, strict=True):
        for text, span, value in zip(
            (pair.good, pair.bad), pair.critical(), (judged.good_score, judged.bad_score), strict=True
        ):
            nats = lm.score(text).token_nats[0]  # a token is a character here
            assert value == pytest.approx(-nats[slice(*span)].sum(), rel=1e-4)


def critical_places(pair: Pair) -> list[tuple[str, int]]:
    return [
        (text, place)
        for text, span in zip((pair.good, pair.bad), pair.critical(), strict=True)
        for place in range(*span)
    ]


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        ("the cats are here", "the cats is here", ("are", "is")),
        ("no cat ever sat", "a cat ever sat", ("no", "a")),
        ("he saw it", "he saw it now", ("it", "it now")),
        ("the cat sat", "the big cat sat", ("cat", "big cat")),
        ("a b c", "a x y c", ("b", "x y")),
        ("one", "two", ("one", "two")),
    ],
)
def test_the_words_that_differ_are_found(good: str, bad: str, expected: tuple[str, str]) -> None:
    first, second = find_difference(good, bad)
    assert (good[slice(*first)], bad[slice(*second)]) == expected


def test_intervals_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for right, units in [(33, 41), (265, 369), (0, 10), (10, 10), (1, 2)]:
        expected = stats.binomtest(right, units).proportion_ci(method="wilson")
        assert wilson(right, units) == pytest.approx((right / units, expected.low, expected.high), abs=1e-6)


def test_ties_are_not_right_and_are_reported() -> None:
    found = compare_scores(PAIRS, [-1.0, -2.0, -3.0], [-1.0, -3.0, -2.0])
    assert (found.accuracy.value, found.ties) == (pytest.approx(1 / 3), 1)
    assert any("equal scores" in note for note in found.notes())


def test_tables_are_read_and_faults_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("good\tbad\tphenomenon\nthe cats are\tthe cats is\tagreement\n")
    assert read_pairs(file).pairs == [Pair("the cats are", "the cats is", "agreement")]
    file.write_text("good\twrong\na\tb\n")
    with pytest.raises(ValueError, match="line 2: a pair needs the columns good and bad"):
        read_pairs(file)
    file.write_text("good\tbad\na\ta\n")
    with pytest.raises(ValueError, match="they must differ"):
        read_pairs(file)
    with pytest.raises(ValueError, match="does not exist; did you mean"):
        read_pairs(tmp_path / "pair.tsv")


def test_published_accuracies_come_out_of_the_authors_output(shared_data: Callable[[str], Path]) -> None:
    """Gulordava et al. 2018: their items with their scores, through our judge."""
    folder = shared_data("colorlessgreen") / "evaluation_output_English"
    for file, name in [
        ("best_model.tab", "LSTM"),
        ("best_model_srnn.tab", "simple RNN"),
        ("best_model_ngram_lstm.tab", "5-gram LSTM"),
    ]:
        scored = read_scored(folder / file)
        assert len(scored.pairs) == 410
        groups = {group.phenomenon: group for group in compare_scores(scored.pairs, scored.good, scored.bad).groups()}
        assert {kind: group.pairs for kind, group in groups.items()} == {"original": 41, "nonsense": 369}
        for kind, group in groups.items():
            assert round(group.accuracy, 3) == PUBLISHED["Gulordava"][kind][name]


def test_agreement_items_are_the_same_in_both_files(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("colorlessgreen")
    gold, scored = read_pairs(folder / "English" / "generated.gold"), read_scored(folder / "English" / "generated.tab")
    assert gold.name == "Gulordava"
    assert {pair[:3] for pair in gold.pairs} == {pair[:3] for pair in scored.pairs}
    for pair in gold.pairs:
        (a, b), (c, d) = pair.critical()
        assert pair.good[:a] == pair.bad[:c]
        assert pair.good[b:] == pair.bad[d:]
    linzen = read_pairs(folder / "linzen_testset" / "subj_agr_filtered.text")
    assert (linzen.name, len(linzen.pairs)) == ("Linzen", 7489)


def test_blimp_is_read_whole_and_its_published_table_is_ours(shared_data: Callable[[str], Path]) -> None:
    folder = shared_data("blimp")
    found = read_pairs(folder)
    assert (found.name, len(found.pairs)) == ("BLiMP", 67000)
    assert len({pair.paradigm for pair in found.pairs}) == 67
    assert (
        sum(pair.regions is not None for pair in found.pairs) == 38866
    )  # in the others a prefix is cut in the middle of a word
    assert {pair.phenomenon for pair in found.pairs} == set(PUBLISHED["BLiMP"]) - {""}
    lines = (folder / "reference_results_models_summary.jsonl").read_text().splitlines()
    keys = {"5-gram": "ngram", "LSTM": "lstm", "Transformer-XL": "txl", "GPT-2 large": "gpt2"}
    for row in (json.loads(line) for line in lines):
        if row["UID"] == "overall":
            ours = PUBLISHED["BLiMP"][row["linguistics_term"].replace("overall", "")]
            assert ours == pytest.approx({name: row[key] for name, key in keys.items()}, abs=5.1e-4)


def test_what_was_found_tells_itself() -> None:
    found = compare_scores(PAIRS, [-1.0, -2.0, -3.0], [-2.0, -3.0, -2.0])
    reported = found.as_json()
    assert json.loads(json.dumps(reported))["accuracy"] == pytest.approx(2 / 3)
    shown = found._repr_html_()
    assert "66.7% of 3 pairs" in shown
    assert "<svg" in shown
    assert found.table().rows[0][4] == 3


def test_a_short_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("good\tbad\nThe cat\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"pairs.tsv, line 2: 1 columns where the header has 2"):
        read_pairs(tmp_path / "pairs.tsv")
