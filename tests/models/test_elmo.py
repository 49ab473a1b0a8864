"""ELMo: each direction against torch's LSTMs, what it may see, its objective, its scores and its vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lmlab
from lmlab.data.corpora.text import prepare_text
from lmlab.models.abilities import PredictsBothWays, PredictsNext, ability, require
from lmlab.models.elmo import Elmo, ElmoConfig
from lmlab.models.states import detach_state
from lmlab.objectives.bidirectional import Bidirectional
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe
from losses import loss_of, mean_of
from tolerances import rounding

CLOSE = rounding(terms=24, depth=8)
WORDS = 19


def make(**values: Any) -> Elmo:
    torch.manual_seed(0)
    fields = {
        "vocabulary": WORDS, "width": 6, "cells": 9, "letter_width": 4, "filters": [[1, 4], [3, 5]], "softmax": "full",
    }  # fmt: skip
    return Elmo(ElmoConfig.model_validate(fields | values)).eval()


def tokens(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(0, WORDS, shape, generator=torch.Generator().manual_seed(seed))


def reference(model: Elmo, row: Tensor) -> list[Tensor]:
    """The vectors of every layer of one text [T], by torch's LSTM cells, one time and direction after another."""
    x = model.embedding(row[None])[0]
    both = []
    for number, stack in enumerate(model.recurrent):
        layers = [list(x if number == 0 else x.flip(0))]
        for depth, layer in enumerate(stack.layers):  # type: ignore[union-attr]
            theirs = nn.LSTMCell(6, 9)
            weights = layer.fused.state_dict()
            for name in ("weight_ih", "bias_ih", "bias_hh"):
                getattr(theirs, name).data.copy_(weights[f"{name}_l0"])
            projection, recurrent = weights["weight_hr_l0"], weights["weight_hh_l0"]
            theirs.weight_hh.data.copy_(recurrent @ projection)  # U h = (U P) (o∘tanh c)
            m, c = torch.zeros(1, 9), torch.zeros(1, 9)
            out = []
            for vector in layers[-1]:
                m, c = theirs(vector[None], (m, c))
                h = (m @ projection.T)[0]
                out.append(h + vector if depth > 0 else h)
            layers.append(out)
        both.append([torch.stack(layer if number == 0 else layer[::-1]) for layer in layers])
    return [torch.cat(pair, dim=-1) for pair in zip(*both, strict=True)]


@torch.no_grad()
def test_layers_by_torchs_cells() -> None:
    model, rows, lengths = make(), tokens(3, 8), torch.tensor([8, 3, 5])
    found = model.layers(tokens=rows, lengths=lengths)
    assert [tuple(layer.shape) for layer in found] == [(3, 8, 12)] * 3
    for row, length, *layers in zip(rows, lengths.tolist(), *found, strict=True):
        for ours, theirs in zip(layers, reference(model, row[:length]), strict=True):
            torch.testing.assert_close(ours[:length], theirs, atol=CLOSE, rtol=CLOSE)


@torch.no_grad()
def test_neither_direction_sees_what_it_predicts() -> None:
    """A changed token changes predictions after it in one direction, before it in the other, and never of itself."""
    model = make()
    forward, backward = require(model, PredictsBothWays).directions()
    text = tokens(1, 9)
    changed = text.clone()
    changed[0, 4] = (changed[0, 4] + 1) % WORDS

    def nats(row: Tensor, direction: PredictsNext) -> Tensor:
        """Of the tokens 1 … 7 of the first text, predicted within another."""
        found, _ = direction.score(
            row[:, :-1], text[:, 1:] if direction is forward else text.flip(1)[:, 1:], direction.start(1)
        )
        return found[0]

    ahead = nats(text, forward) - nats(changed, forward)
    assert not ahead[:4].any(), "tokens 1 to 4 are predicted from what stands before them"
    assert ahead[4:].any()
    back = nats(text.flip(1), backward) - nats(changed.flip(1), backward)
    assert not back[:4].any()
    assert back[4:].any()


@torch.no_grad()
def test_training_never_shows_a_direction_what_it_predicts() -> None:
    """The same of the very batches and vectors by which it is trained."""
    model, objective = make(), Bidirectional()
    text = tokens(2, 8)
    both = require(model, PredictsBothWays)
    for place in range(8):
        changed = text.clone()
        changed[:, place] = (changed[:, place] + 3) % WORDS
        read = []
        for row in (text, changed):
            batch = objective.batch((row, row.flip(1)))
            read.append(both.read(**batch.inputs)[:2])
        ahead, back = ((one != other).any(-1).any(0) for one, other in zip(*read, strict=True))  # [7] each
        assert not ahead[:place].any(), "the vector that predicts token k is made of tokens before k"
        assert not back[: 7 - place].any()


def test_the_loss_is_the_mean_of_both_directions() -> None:
    model, objective = make(), Bidirectional()
    text = tokens(2, 8)
    batch = objective.batch((text, text.flip(1)))
    loss = loss_of(objective, model, batch)
    forward, backward = require(model, PredictsBothWays).directions()
    ahead, _ = forward.score(text[:, :-1], text[:, 1:], forward.start(2))
    back, _ = backward.score(text.flip(1)[:, :-1], text.flip(1)[:, 1:], backward.start(2))
    torch.testing.assert_close(mean_of(objective, batch, loss), (ahead.mean() + back.mean()) / 2)
    torch.testing.assert_close(loss.sums["forward"], ahead.sum().detach())
    torch.testing.assert_close(loss.sums["backward"], back.sum().detach())


def test_states_are_carried_in_both_directions() -> None:
    """Two halves of a stream with the state between them are the whole, from either end."""
    model = make()
    both = require(model, PredictsBothWays)
    text, other = tokens(2, 10), tokens(2, 10, seed=5)
    whole = both.read(text, other)
    first = both.read(text[:, :6], other[:, :6])
    second = both.read(text[:, 6:], other[:, 6:], detach_state(first[2]))
    for number in range(2):
        joined = torch.cat([first[number], second[number]], dim=1)
        torch.testing.assert_close(joined, whole[number], atol=CLOSE, rtol=CLOSE)


def test_streams_of_both_directions(tmp_path: Path) -> None:
    """The backward stream is the text from its end: what follows in it stands before in the text."""
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"w{i}" for i in range(200)) + "\n")
    corpus = prepare_text([text], tokenizer="spelled", split=(1, 0, 0), cache=tmp_path)
    loader = Bidirectional().loader(corpus.train, batch=2, window=10, seed=0, streams=True)  # type: ignore[arg-type]
    first, second = loader.batch(0), loader.batch(1)
    assert torch.equal(first[0][:, -1], second[0][:, 0])
    assert torch.equal(first[1][:, -1], second[1][:, 0])
    stream = corpus.train.tokens.tolist()
    for row in first[1].tolist():
        place = stream.index(row[0])
        assert row == stream[place - 10 : place + 1][::-1]


def test_without_a_softmax_it_gives_vectors_alone() -> None:
    model = make(softmax="none")
    assert ability(model, PredictsBothWays) is None
    assert ability(make(), PredictsBothWays) is not None
    assert ability(make(), PredictsNext) is None
    with pytest.raises(ValueError, match="predict each token from either side"):
        require(model, PredictsBothWays)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elmo")
    text = folder / "text.txt"
    lines = [f"the {a} cat sees {b} dogs" for a in ("black", "white", "red", "old") for b in ("two", "three", "four")]
    text.write_text("\n".join(lines * 12) + "\n")
    recipe = make_recipe(
        {
            "data": {"text": str(text)},
            "tokenizer": {"spec": "spelled:14"},
            "model": {"kind": "elmo", "size": "tiny", "width": 16, "cells": 24},
            "train": {"budget": "40steps", "batch": 4, "window": 12, "evaluations": 2, "device": "cpu"},
        }
    )
    run.start(recipe, folder / "run")
    return folder / "run"


def test_scores_of_each_direction_and_their_mean(trained: Path) -> None:
    model = lmlab.load(trained)
    found = model.score(["the black cat sees two unicorns", "old dogs"])
    assert found.nats == pytest.approx(sum(found.directions.values()) / 2)
    assert found.unknown == 1
    assert found.lossy
    assert set(found.as_dict()) >= {"forward", "backward"}
    assert found.in_direction("forward").perplexity == pytest.approx(np.exp(found.directions["forward"] / 8))
    forward, backward = require(model.model, PredictsBothWays).directions()
    ids = [1, *model.text_tokenizer.encode("old dogs"), 1]
    row = torch.tensor([ids])
    with torch.no_grad():
        ahead, _ = forward.score(row[:, :2], row[:, 1:3], forward.start(1))
        back, _ = backward.score(row.flip(1)[:, :2], row.flip(1)[:, 1:3], backward.start(1))
    alone = model.score("old dogs")
    assert alone.directions["forward"] == pytest.approx(float(ahead.sum()), rel=1e-5)
    assert alone.directions["backward"] == pytest.approx(float(back.sum()), rel=1e-5)


def test_the_same_sentence_always_has_the_same_vectors(trained: Path) -> None:
    """Fresh states by default; carried ones on demand, and then what came before matters."""
    model = lmlab.load(trained)
    texts = ["the cat sees", "a platypus", "the cat sees"]
    first, _, last = model.embed(texts, layers="concat:all")
    np.testing.assert_array_equal(first.vectors, last.vectors)
    alone = model.embed("the cat sees", layers="concat:all")[0]
    np.testing.assert_allclose(first.vectors, alone.vectors, atol=1e-6)
    assert first.vectors.shape == (3, 4 * 16)
    begin, _, later = model.embed(texts, layers="last", carry_state=True)
    np.testing.assert_allclose(begin.vectors, model.embed("the cat sees")[0].vectors, atol=1e-6)
    assert not np.allclose(begin.vectors, later.vectors, atol=1e-4)


def test_mixes_with_weights_and_norms(trained: Path) -> None:
    model = lmlab.load(trained)
    layers = [model.embed("a platypus sees", layers=number)[0].vectors for number in range(3)]
    mixed = model.embed("a platypus sees", layers="mix:0.2,0.3,0.5")[0].vectors
    np.testing.assert_allclose(mixed, 0.2 * layers[0] + 0.3 * layers[1] + 0.5 * layers[2], atol=1e-6)
    normed = [(each - each.mean(1, keepdims=True)) / np.sqrt(each.var(1, keepdims=True) + 1e-5) for each in layers]
    np.testing.assert_allclose(model.embed("a platypus sees", layers="mix:norm")[0].vectors, sum(normed) / 3, atol=1e-4)
    with pytest.raises(ValueError, match="2 weights, and this model 3 layers"):
        model.embed("a cat", layers="mix:0.5,0.5")


def test_only_recurrent_models_carry_a_state() -> None:
    from lmlab.analysis.layer_vectors import check_stateful
    from lmlab.models import create

    small = {"vocabulary": 9, "width": 8, "heads": 2, "layers": 1, "window": 8}
    with pytest.raises(ValueError, match="gpt2 has no recurrent state"):
        check_stateful(create("gpt2", small))
    check_stateful(make())


@pytest.mark.filterwarnings("ignore")
def test_tasks_are_learnt_from_it(trained: Path, tmp_path: Path) -> None:
    """A mix of frozen layers, whose weights are kept; words that neither text nor examples have had are read."""
    rows = [f"the {a} {b}\t{label}" for label, words in (("warm", ("redder", "red")), ("cold", ("white", "whiter")))
            for a in words for b in ("cat", "dog", "fox", "hen", "owl", "ape", "bee", "cow")]  # fmt: skip
    data = tmp_path / "colours.tsv"
    data.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    settings = {"mix_decay": 0.001, "mix_norm": True, "mix_dropout": 0.05}
    found = lmlab.finetune(
        trained,
        data,
        output=tmp_path / "mixed",
        how="mix",
        settings=settings,
        train={"rate": 0.05},
        epochs=100,
        controls=False,
    )
    (result,) = found.study.results
    assert result.mix is not None
    assert sum(result.mix) == pytest.approx(1, abs=1e-5)
    assert len(result.mix) == 3
    assert result.gamma is not None
    model = lmlab.load(tmp_path / "mixed")
    warm, cold = (model.classify(f"the {word} yak").scores["warm"] for word in ("red", "white"))
    assert warm > cold
