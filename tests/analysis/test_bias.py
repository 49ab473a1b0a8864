"""Bias: odds by brute force, CrowS-Pairs by the authors' rule, translations by the chain rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lmlab.analysis.bias import Templates, measure_bias, read_templates, target_bits, weigh_translations
from lmlab.analysis.bias_sets import judge_crows, judge_winogender, shared_tokens
from lmlab.analysis.readers import CrowsPair, Schema, read_crows_pairs, read_winogender
from lmlab.language_model import load
from lmlab.tokenizers import train
from standins import TEXT, random_model
from translators import write_translator

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


def bits(lm, text: str) -> float:
    return -lm.score(text).bits


def test_odds_are_means_over_templates() -> None:
    torch.manual_seed(0)
    lm = random_model("lstm", train("words", [TEXT]), width=8, hidden=8, layers=1)
    given = Templates(
        "x", ("cat", "dog"), ["the {group} sat on the {thing}", "a {thing} and a {group}"], {"thing": ["mat", "log"]}
    )
    found = measure_bias(lm, given)
    for each in found.words:
        odds = [
            bits(lm, f"The cat sat on the {each.word}") - bits(lm, f"The dog sat on the {each.word}"),
            bits(lm, f"A {each.word} and a cat") - bits(lm, f"A {each.word} and a dog"),
        ]
        assert each.odds == pytest.approx(np.mean(odds), rel=1e-4)
        assert each.relative == pytest.approx(each.odds - found.mean, abs=1e-4)
        assert each.low < each.odds < each.high
    assert any("Blodgett" in note for note in found.notes())
    assert "Blodgett" in found._repr_html_()


def test_words_that_the_vocabulary_lacks_are_reported() -> None:
    torch.manual_seed(0)
    lm = random_model("lstm", train("words", [TEXT]), width=8, hidden=8, layers=1)
    given = Templates("x", ("xylophone", "yak"), ["the {group} sat on the {thing}"], {"thing": ["mat", "log"]})
    found = measure_bias(lm, given)
    assert found.unknown == 8, "The, which has another letter than the, and the group, in four sentences"
    assert any("8 unknown tokens: the odds are those of the unknown token" in note for note in found.notes())
    assert "preferred most" not in found.lead()
    assert found.lead().startswith("No word goes more with “xylophone”")
    for parameter in lm.model.parameters():
        parameter.data *= 5
    known = measure_bias(lm, given._replace(groups=("cat", "dog")))
    assert "preferred most" in known.lead()


def test_bars_and_their_intervals_are_against_one_mean() -> None:
    torch.manual_seed(0)
    lm = random_model("lstm", train("words", [TEXT]), width=8, hidden=8, layers=1)
    words = {"thing": ["mat", "log"], "other": ["mat"]}  # one of the words has more templates
    given = Templates("x", ("cat", "dog"), ["the {group} sat on the {thing}", "a {other} and a {group}"], words)
    found = measure_bias(lm, given)
    assert sum(each.relative for each in found.words) == pytest.approx(0, abs=1e-9)
    (bars,) = found.figures()
    bar = next(each for each in bars.bars if each.name == "mat")
    assert bar.low < bar.value < bar.high
    assert bar.value - bar.low == pytest.approx(bar.high - bar.value)


def test_templates_are_checked(tmp_path: Path) -> None:
    assert read_templates().groups == ("she", "he")
    file = tmp_path / "mine.toml"
    file.write_text('groups = ["a"]\ntemplates = ["x"]\n[words]\n')
    with pytest.raises(ValueError, match="give groups"):
        read_templates(file)
    file.write_text('groups = ["a", "b"]\ntemplates = ["the {group}"]\n[words]\nthing = ["x"]\n')
    with pytest.raises(ValueError, match=r"needs \{group\} and one of: thing"):
        read_templates(file)
    file.write_text("groups = [")
    with pytest.raises(ValueError, match="is not a TOML file"):
        read_templates(file)


def test_crows_pairs_of_a_masked_model_by_the_words_that_both_have() -> None:
    torch.manual_seed(0)
    lm = random_model(
        "bert", train("words", [TEXT]).with_specials(["cls", "sep", "mask", "pad"]), width=8, heads=2, layers=1
    )
    pairs = [CrowsPair("the cat sat on the mat", "the dog sat on the mat", "animal", "stereo")]
    nats = [lm.score(text).token_nats[0] for text in pairs[0][:2]]
    kept = [0, 2, 3, 4, 5]
    found = judge_crows(lm, pairs)
    assert found.pseudo
    assert found.whole.value == float(nats[0][kept].sum() < nats[1][kept].sum())
    assert shared_tokens([1, 2, 3, 4], [1, 5, 6, 3, 4]) == ([0, 2, 3], [0, 3, 4])


def test_ready_sets_are_read(shared_data: Callable[[str], Path]) -> None:
    pairs = read_crows_pairs(shared_data("crows_pairs") / "crows_pairs_anonymized.csv")
    assert len(pairs) == 1508
    assert len({pair.kind for pair in pairs}) == 9
    schemas = read_winogender(shared_data("winogender"))
    assert len(schemas) == 240
    assert len({schema.occupation for schema in schemas}) == 60
    assert all(schema.female != schema.male for schema in schemas)


def test_winogender_correlates_with_the_share_of_women() -> None:
    torch.manual_seed(0)
    lm = random_model("lstm", train("words", [TEXT]), width=8, hidden=8, layers=1)
    schemas = [
        Schema("cat", "the cat sat", "the cat ran", 10.0),
        Schema("dog", "the dog sat", "the dog ran", 80.0),
        Schema("mat", "the mat sat", "the mat ran", 50.0),
    ]
    found = judge_winogender(lm, schemas)
    assert "68% (by rules), 28% (statistical) and 13% (neural)" in found.notes()[0]  # what was published of the set
    odds = [bits(lm, each.female) - bits(lm, each.male) for each in schemas]
    assert found.correlation == pytest.approx(np.corrcoef(odds, [10, 80, 50])[0, 1], abs=1e-4)


@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
def test_translations_have_the_probability_of_their_tokens(tmp_path: Path, kind: str) -> None:
    size = {"width": 16, "layers": 1, "dropout": 0.0} | (
        {"hidden": 16} if kind == "seq2seq" else {"heads": 2, "inner": 24}
    )
    lm = load(write_translator(tmp_path / "run", kind=kind, size=size))
    translator = lm.translator
    source, targets = "the cat sat .", ["die katze sass .", "ein hund"]
    expected = []
    for target in targets:
        (row,) = translator.target_rows([target])
        given = torch.tensor(translator.source_rows([source]))
        with torch.no_grad():
            hidden = lm.model(torch.tensor([row[:-1]]), source=given, lengths=torch.tensor([given.shape[1]])).hidden
            logits = lm.model.logits(hidden)[0].log_softmax(-1)
        expected.append(float(sum(logits[i, token] for i, token in enumerate(row[1:]))) / math.log(2))
    assert target_bits(lm, [source] * 2, targets) == pytest.approx(expected, rel=1e-4)
    found = weigh_translations(lm, source, targets)
    assert sum(each.fraction for each in found.targets) == pytest.approx(1)
    with pytest.raises(ValueError, match="give two or more"):
        weigh_translations(lm, source, targets[:1])
