"""Errors on unusual input: loops, drops and inventions by hand, and both kinds of model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lmlab.analysis.alignment import Alignment
from lmlab.analysis.errors import Loop, find_errors, find_loop, find_loop_in, provoke, unaligned
from lmlab.language_model import load
from lmlab.tokenizers import train
from standins import TEXT, random_model
from translators import write_translator

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b c d", None),
        ("a a b", None),
        ("x a a a b", Loop(["a"], 3)),
        ("a b a b a b a b", Loop(["a", "b"], 4)),
        ("a b a b a b a c", Loop(["a", "b"], 3)),
        ("a a a x y x y x y", Loop(["x", "y"], 3)),
        ("q r s q r s q r", None),
        ("", None),
    ],
)
def test_loops_by_hand(text: str, expected: Loop | None) -> None:
    assert find_loop(text.split()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sssssssssssssss", Loop(["s"], 15)),
        ("the ssssssssss", Loop(["s"], 10)),
        ("well ... sss --- !!!", None),
        ("ahahahahahahah", Loop(["ah"], 7)),
        ("thecatthecatthecat", Loop(["thecat"], 3)),
        ("a a a bbbbbbbbbbbb", Loop(["a"], 3)),
        ("", None),
    ],
)
def test_loops_within_words_by_hand(text: str, expected: Loop | None) -> None:
    assert find_loop_in(text) == expected


def test_a_model_of_letters_falls_into_a_loop() -> None:
    torch.manual_seed(0)
    tokenizer = train("bytes", [TEXT])
    lm = random_model("lstm", tokenizer, width=8, hidden=8, layers=1)
    for parameter in lm.model.parameters():
        parameter.data.zero_()
    lm.model.output.bias.data[tokenizer.encode("s")[0]] = 9.0
    found = find_errors(lm, ["the dog"], tokens=30)
    assert found.lead() == "8 of 8 outputs fall into a loop."
    assert all(each.loop == Loop(["s"], 30) for each in found.outputs)
    for row in found.table().rows:
        assert found.table().format_row(row)[4:] == ["–", "–", "–"], (
            "nothing was counted: neither attention nor pairs of words"
        )


def test_what_is_dropped_and_invented_by_hand() -> None:
    weights = [[0.9, 0.05, 0.0, 0.05], [0.1, 0.1, 0.1, 0.7], [0.0, 0.0, 0.0, 1.0]]
    found = unaligned(Alignment(["a", "b", "c", "end"], ["x", "y", "end"], weights))
    assert found == (["c"], ["y"])  # b gets 0.15 in all, c only 0.1; y looks at the boundary


def test_provoked_sources_say_what_they_are() -> None:
    tried = provoke(["the cat sat"], seed=1)
    assert tried[0] == ("as it is", "the cat sat")
    kinds = dict(tried)
    assert sorted(kinds["scrambled"].split()) == ["cat", "sat", "the"]
    assert kinds["doubled"] == "the cat sat the cat sat"
    assert len(set(kinds["one word repeated"].split())) == 1
    assert kinds["syllable repeated"] == " ".join(["ag"] * 20)
    assert provoke(["the cat sat"], seed=1) == tried


def test_a_model_that_knows_one_word_falls_into_a_loop() -> None:
    torch.manual_seed(0)
    tokenizer = train("words", [TEXT])
    lm = random_model("lstm", tokenizer, width=8, hidden=8, layers=1)
    (cat,) = tokenizer.encode("cat")
    for parameter in lm.model.parameters():
        parameter.data.zero_()
    lm.model.output.bias.data[cat] = 9.0
    found = find_errors(lm, ["the dog", "the mat"], tokens=9)
    assert all(each.loop == Loop(["cat"], 9) for each in found.outputs)
    assert {kind.kind: kind.loops for kind in found.kinds()}["as it is"] == 2
    assert "“cat” 9 times" in found._repr_html_()


def test_translators_are_aligned(tmp_path: Path) -> None:
    lm = load(write_translator(tmp_path / "run"))
    found = find_errors(lm, ["the cat sat ."], tokens=10)
    assert found.aligned
    assert all(kind.dropped is not None and kind.invented is not None for kind in found.kinds())
    assert {each.kind for each in found.outputs} == {
        "as it is", "scrambled", "doubled", "one word repeated", "syllable repeated"
    }  # fmt: skip
    with pytest.raises(ValueError, match="no source to try"):
        find_errors(lm, [" "])
