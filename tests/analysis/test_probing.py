"""Probes: fits against scikit-learn, codes by hand, labels of a small tree, and what a model can and cannot know."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lmlab.analysis.probing import LabelledVectors, _read, description_length, fit, predict_right, probe
from lmlab.analysis.probing_sets import SETS, ProbedSentence, ProbeLabel, ask, ask_sentences
from lmlab.analysis.readers import read_treebank
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.statistics import Scores, wilson
from lmlab.runs.model_files import set_spellings
from lmlab.tokenizers import train
from standins import TEXT, random_model

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")

TREE = """# text = the cats sat
1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tcats\tcat\tNOUN\tNNS\tNumber=Plur\t3\tnsubj:outer\t_\t_
2-3\tcatssat\t_\t_\t_\t_\t_\t_\t_\t_
3\tsat\tsit\tVERB\tVBD\tTense=Past|VerbForm=Fin\t0\troot\t_\t_

1\ta\ta\tDET\tDT\t_\t2\tdet\t_\t_
2\tdog\tdog\tNOUN\tNN\tNumber=Sing\t0\troot\t_\t_
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree.conllu"
    path.write_text(TREE)
    return path


def test_labels_of_a_tree_by_hand(tree: Path) -> None:
    sentences = read_treebank(tree)
    labels = {name: [[q.label for q in item.questions] for item in ask(sentences, name)] for name in SETS}
    assert labels == {
        "pos": [["DET", "NOUN", "VERB"], ["DET", "NOUN"]],
        "xpos": [["DT", "NNS", "VBD"], ["DT", "NN"]],
        "number": [["Plur"], ["Sing"]],
        "tense": [["Past"]],
        "depth": [["2", "1", "0"], ["1", "0"]],
        "distance": [["right 1", "right 1"], ["right 1"]],
        "relation": [["det", "nsubj"], ["det"]],
    }
    assert [q.positions for q in ask(sentences, "relation")[0].questions] == [(0, 1), (1, 2)]
    tree.write_text(TREE.replace("\t2\tdet", "\t9\tdet"))
    with pytest.raises(ValueError, match="line 2: a head is not a word of its sentence"):
        read_treebank(tree)


def test_a_linear_probe_is_scikit_learns_regression() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 300)
    x = generator.normal(size=(300, 6)) + 0.8 * np.eye(6)[y]
    fitted = fit(LabelledVectors(torch.tensor(x, dtype=torch.float32), torch.tensor(y)), classes=3, decay=1e-3)
    scaled = (x - x.mean(0)) / x.std(0)
    theirs = linear_model.LogisticRegression(C=1 / (2 * 1e-3 * 300), tol=1e-8, max_iter=1000).fit(scaled, y)
    ours = fitted.log_probabilities(torch.tensor(x, dtype=torch.float32)).exp().numpy()
    assert np.abs(ours - theirs.predict_proba(scaled)).max() < 5e-3


def test_only_a_hidden_layer_reads_an_exclusive_or() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(800, 2, generator=generator)
    examples = LabelledVectors(x, ((x[:, 0] > 0) ^ (x[:, 1] > 0)).long())
    assert predict_right(fit(examples, classes=2), examples).sum() < 520
    assert predict_right(fit(examples, classes=2, kind="mlp"), examples).sum() > 760


def test_the_online_code_by_hand() -> None:
    """What cannot be read costs about the uniform code; what can be read, next to nothing."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (2000,), generator=generator)
    noise = torch.randn(2000, 8, generator=generator)
    telling = torch.eye(4)[labels]
    assert description_length(LabelledVectors(noise, labels), classes=4) == pytest.approx(4000, rel=0.1)
    assert description_length(LabelledVectors(telling, labels), classes=4) < 300
    few = LabelledVectors(noise[:6], labels[:6])
    assert description_length(few, classes=6) == pytest.approx(6 * math.log2(6))  # one portion, the uniform code


def items(count: int, seed: int) -> list[ProbedSentence]:
    """Sentences of words, each with a letter that its own first letter gives, and one that the word before gives."""
    generator = np.random.default_rng(seed)
    words = ["cat", "mat", "dog", "log", "sat", "ran", "the", "on"]
    found = []
    for _ in range(count):
        chosen = generator.choice(words, 6).tolist()
        found.append(ProbedSentence(chosen, [ProbeLabel((place,), chosen[place][0]) for place in range(6)]))
    return found


@pytest.mark.parametrize("kind", ["lstm", "bert"])
def test_words_are_read_from_the_embeddings_and_control_is_learnt_by_heart(kind: str) -> None:
    torch.manual_seed(0)
    shape = {"width": 16, "hidden": 16, "layers": 1} if kind == "lstm" else {"width": 16, "heads": 2, "layers": 1}
    lm = random_model(kind, train("words", [TEXT]).with_specials(["cls", "sep", "mask", "pad"]), **shape)
    found = probe(lm, items(60, 0), items(30, 1), name="first letter", length=True)
    assert [each.layer for each in found.layers] == [0, 1]
    first = found.layers[0]
    assert first.accuracy > 0.95
    assert first.control is not None
    assert first.control > 0.9  # eight words: a random label of each is learnt by heart, so nothing is selective
    assert first.selectivity == pytest.approx(first.accuracy - first.control)
    assert first.compression is not None
    assert first.compression > 2
    assert found.examples == (360, 180)
    assert "Hewitt" in found._repr_html_()


def test_answers_of_one_sentence_are_resampled_together() -> None:
    """The interval of an accuracy is that of groups of answers, one group for each sentence."""
    torch.manual_seed(0)
    lm = random_model("lstm", train("words", [TEXT]), width=1, hidden=1, layers=1)
    tested = items(30, 1)
    found = probe(lm, items(60, 0), tested, control=False, twin=False).layers[0]
    read, judged = _read(lm, items(60, 0)), _read(lm, tested)
    numbers = {label: number for number, label in enumerate(sorted({each.label for each in read.answers}))}
    learnt, true = (torch.tensor([numbers[each.label] for each in part.answers]) for part in (read, judged))
    fitted = fit(LabelledVectors(read.layers[0], learnt), classes=len(numbers))
    right = predict_right(fitted, LabelledVectors(judged.layers[0], true)).tolist()
    sentences = [number for number in range(30) for _ in range(6)]
    assert [answer.sentence for answer in judged.answers] == sentences
    expected = Scores(Accuracy(), {"probe": [right]}, [True] * 180, groups=sentences).estimate("probe")
    assert (found.accuracy, found.low, found.high) == expected
    assert 0 < expected.value < 1
    assert expected != wilson(sum(right), 180)


def test_vectors_are_means_over_pieces_and_pairs_are_joined() -> None:
    torch.manual_seed(0)
    lm = random_model("gpt2", train("characters", [TEXT]), width=8, heads=2, layers=1, window=12)
    words = ["the", "cat", "sat", "mat"]
    read = _read(
        lm,
        [
            ProbedSentence(words, [ProbeLabel((1,), "a"), ProbeLabel((3,), "c")]),
            ProbedSentence(["dog"], [ProbeLabel((), "d")]),
        ],
    )
    assert [answer.label for answer in read.answers] == ["a", "d"]  # 11 of 15 characters are read
    assert read.left_out == 1
    (vectors,) = lm.embed("the cat sat")
    expected = vectors.vectors[4:7].mean(0)
    assert np.allclose(read.layers[1][0], expected, atol=1e-5)
    pair = _read(lm, [ProbedSentence(words, [ProbeLabel((0, 1), "b")])])
    the = vectors.vectors[:3].mean(0)
    assert np.allclose(pair.layers[1][0], np.concatenate([the, expected, the * expected]), atol=1e-5)


def test_the_twin_reads_letters_too() -> None:
    tokenizer = train("spelled:6", [TEXT])
    shape = {"vocabulary": tokenizer.predicted, "width": 6, "cells": 9, "filters": [[2, 6]], "letter_width": 4}
    lm = random_model("lm-1b", tokenizer, **shape)
    set_spellings(lm.model, tokenizer)
    found = probe(lm, items(20, 0), items(10, 1), control=False)
    assert found.layers[0].random is not None
    assert found.layers[0].random > 0.5  # its vectors differ from word to word


def test_classes_that_were_never_learnt_cannot_judge() -> None:
    lm = random_model("lstm", train("words", [TEXT]), width=8, hidden=8, layers=1)
    asked = ask_sentences(["the cat sat", "a dog ran"], ["a", "b"])
    with pytest.raises(ValueError, match=r"none of the 2 test labels is among the training classes .*\(a, b\)"):
        probe(lm, asked, ask_sentences(["the cat sat", "a dog ran"], ["c", "d"]), twin=False)


def test_fitting_leaves_the_common_generator_alone() -> None:
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    before = torch.random.get_rng_state()
    first, second = (fit(LabelledVectors(x, y), classes=2, kind="mlp", seed=3) for _ in range(2))
    description_length(LabelledVectors(x, y), classes=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first.log_probabilities(x), second.log_probabilities(x))


def test_sentences_have_no_types_and_no_control() -> None:
    torch.manual_seed(0)
    lm = random_model("lstm", train("words", [TEXT]), width=8, hidden=8, layers=1)
    texts = ["the cat sat", "a dog ran", "the cat ran", "a dog sat"] * 8
    asked = ask_sentences(texts, ["cat" if "cat" in text else "dog" for text in texts])
    found = probe(lm, asked, asked, twin=False)
    assert found.layers[0].control is None
    assert found.layers[0].random is None
    assert found.layers[0].accuracy == 1.0
    with pytest.raises(ValueError, match="probe 'tree' is not known; allowed: linear, mlp"):
        probe(lm, asked, asked, kind="tree")


def test_a_real_treebank(shared_data: Callable[[str], Path]) -> None:
    sentences = read_treebank(shared_data("ud_english_ewt") / "en_ewt-ud-dev.conllu")
    assert len(sentences) == 2001
    assert {q.label for item in ask(sentences, "number") for q in item.questions} >= {"Sing", "Plur"}
    assert max(sentence.depth(place) for sentence in sentences for place in range(len(sentence.words))) > 8
