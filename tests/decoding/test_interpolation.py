"""Linear mixtures: probabilities add up, and the learnt weights are the best ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmlab.decoding.chain_rule import score_tokens
from lmlab.decoding.generate import StatefulReader, generate
from lmlab.decoding.interpolation import InterpolatedModel, learn_weights
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.models.abilities import PredictsNext
from standins import Table, TinyGRU, TinyWindow

BOUNDARY = 1
V = 9


@pytest.fixture
def documents():
    generator = np.random.default_rng(1)
    return [generator.integers(0, V, length) for length in (30, 4, 17)]


def test_a_mixture_is_a_language_model():
    assert isinstance(InterpolatedModel([Table(V), TinyGRU(V)]), PredictsNext)


def test_step_is_the_weighted_sum_of_probabilities():
    parts, weights = [Table(V), TinyGRU(V)], [0.3, 0.7]
    text = torch.tensor([[BOUNDARY, 4, 5], [BOUNDARY, 2, 2]])
    with torch.inference_mode():
        got = StatefulReader(InterpolatedModel(parts, weights=weights), batch=2).read(text).exp()
        expected = sum(
            w * StatefulReader(part, batch=2).read(text).softmax(-1) for w, part in zip(weights, parts, strict=True)
        )
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(got.sum(-1), torch.ones(2))


def test_scores_are_those_of_mixed_probabilities_each_part_with_its_own_context(documents):
    parts, weights = [TinyGRU(V), TinyWindow(V, window=6)], [0.25, 0.75]
    mixed = score_tokens(InterpolatedModel(parts, weights=weights), documents, boundary=BOUNDARY)
    alone = [score_tokens(part, documents, boundary=BOUNDARY) for part in parts]
    for got, first, second in zip(mixed, *alone, strict=True):
        np.testing.assert_allclose(np.exp(-got), 0.25 * np.exp(-first) + 0.75 * np.exp(-second), rtol=1e-9)


def test_its_own_score_agrees_with_its_steps(documents):
    mixture = InterpolatedModel([Table(V), TinyGRU(V)], weights=[0.5, 0.5])
    text = torch.as_tensor(documents[0])[None]
    with torch.inference_mode():
        nats, _ = mixture.score(text[:, :-1], text[:, 1:], mixture.start(1))
        for place in (1, 7, 20):
            logits, _ = mixture.step(text[:, :place], mixture.start(1))
            assert nats[0, place - 1].item() == pytest.approx(-logits[0, text[0, place]].item(), rel=1e-4)


def test_it_generates_past_the_smallest_window():
    mixture = InterpolatedModel([TinyWindow(V, window=6), TinyGRU(V)])
    assert mixture.window == 6
    greedy = Sampler(Sampling(temperature=0))
    assert len(list(generate(mixture, torch.tensor([[BOUNDARY]]), tokens=20, pick=greedy))) == 20


def test_a_weight_of_zero_leaves_a_model_out(documents):
    table = Table(V)
    mixture = InterpolatedModel([table, TinyGRU(V)], weights=[1.0, 0.0])
    for got, expected in zip(
        score_tokens(mixture, documents, boundary=BOUNDARY),
        score_tokens(table, documents, boundary=BOUNDARY),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected)


def test_learnt_weights_are_the_best_on_a_grid(documents):
    parts = [Table(V), Table(V, seed=1, scale=0.5)]
    nats = [np.concatenate(score_tokens(part, documents, boundary=BOUNDARY)) for part in parts]
    weight, other = learn_weights(nats)
    assert weight + other == pytest.approx(1.0)
    grid = np.linspace(0.0005, 0.9995, 1000)
    totals = [-np.log(w * np.exp(-nats[0]) + (1 - w) * np.exp(-nats[1])).sum() for w in grid]
    assert weight == pytest.approx(grid[int(np.argmin(totals))], abs=2e-3)


def test_learnt_weights_find_the_mixture_that_made_the_data():
    generator = np.random.default_rng(0)
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.1, 0.8])
    tokens = generator.choice(3, size=50_000, p=0.35 * p + 0.65 * q)
    assert learn_weights([-np.log(p[tokens]), -np.log(q[tokens])])[0] == pytest.approx(0.35, abs=0.02)


def test_a_model_that_finds_a_token_impossible_is_outvoted():
    weights = learn_weights([np.array([1.0, np.inf, 1.0]), np.array([2.0, 2.0, 2.0])])
    assert 0 < weights[0] < 1
    mixed = InterpolatedModel([Table(3), Table(3)], weights=weights).mix_nats([np.array([np.inf]), np.array([2.0])])
    assert mixed[0] == pytest.approx(2.0 - np.log(weights[1]))


@pytest.mark.parametrize("weights", [[0.5, 0.6], [1.0], [1.5, -0.5]])
def test_weights_that_are_no_distribution_are_refused(weights):
    with pytest.raises(ValueError, match="one per model"):
        InterpolatedModel([Table(V), Table(V)], weights=weights)


def test_different_vocabularies_are_refused():
    with pytest.raises(ValueError, match=r"one vocabulary; these have \[4, 9\]"):
        InterpolatedModel([Table(4), Table(9)])
