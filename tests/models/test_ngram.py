"""The n-gram against a brute-force dictionary implementation, hand-computed values, and the law that all sums to 1."""

from __future__ import annotations

import math
import warnings
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from lmlab.models import create
from lmlab.models.abilities import PredictsNext
from lmlab.models.ngram import NGram
from lmlab.models.states import reorder_state
from lmlab.ngrams.counting import count_ngrams, look_up, sort_with_positions
from lmlab.ngrams.smoothing import find_discounts, held_out_weights, histogram

SMOOTHINGS = ["modified-kneser-ney", "kneser-ney", "jelinek-mercer", "add-k", "backoff"]


def fit(tokens, **settings) -> NGram:
    valid = settings.pop("valid", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NGram.fit(np.array(tokens), config=NGram.Config(**settings), valid=valid)


def zipf(length: int, vocabulary: int, *, seed: int = 0, sentence: float = 0.1) -> np.ndarray:
    """Text in which each word leans on the one before it, in sentences of about 1/`sentence` words."""
    random = np.random.default_rng(seed)
    words = 1 + random.zipf(1.3, length) % (vocabulary - 1)
    follow = random.random(length) < 0.5
    words[1:][follow[1:]] = 1 + (words[:-1][follow[1:]] * 7) % (vocabulary - 1)
    words[random.random(length) < sentence] = 0
    return np.concatenate([[0], words, [0]])


def sentences_of(tokens, boundary: int) -> list[tuple[int, ...]]:
    """The sentences, each with the boundary at its beginning and end."""
    found, current = [], (boundary,)
    for token in list(tokens)[1:]:
        current += (int(token),)
        if token == boundary:
            found.append(current)
            current = (boundary,)
    return [*found, current] if len(current) > 1 else found


class BruteKneserNey:
    """Interpolated Kneser–Ney from the formulas of Chen & Goodman 1998 with dictionaries, a token at a time."""

    def __init__(self, tokens, *, order: int, vocabulary: int, boundary: int, modified: bool = True) -> None:
        self.order, self.vocabulary = order, vocabulary
        raw = [Counter() for _ in range(order + 1)]
        for sentence in sentences_of(tokens, boundary):
            for end in range(1, len(sentence)):
                for n in range(1, min(order, end + 1) + 1):
                    raw[n][sentence[end - n + 1 : end + 1]] += 1
        self.counts = [Counter() for _ in range(order + 1)]
        self.counts[order] = raw[order]
        for n in range(1, order):
            before = defaultdict(set)
            for gram in raw[n + 1]:
                before[gram[1:]].add(gram[0])
            for gram, count in raw[n].items():
                opens = n > 1 and gram[0] == boundary
                self.counts[n][gram] = count if opens else len(before[gram])
        self.after = defaultdict(dict)
        for gram, count in (item for counts in self.counts for item in counts.items()):
            self.after[gram[:-1]][gram[-1]] = count
        self.discounts = [None] + [self._discounts(self.counts[n], modified) for n in range(1, order + 1)]

    @staticmethod
    def _discounts(counts: Counter, modified: bool) -> list[float]:
        n = Counter(counts.values())
        y = n[1] / (n[1] + 2 * n[2])
        if not modified:
            return [0, y, y, y]
        return [0, 1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3]]

    def probability(self, word: int, context: tuple[int, ...]) -> float:
        n = len(context) + 1
        lower = self.probability(word, context[1:]) if n > 1 else 1 / self.vocabulary
        after = self.after[context]
        total = sum(after.values())
        if total == 0:
            return lower
        table = self.discounts[n]
        gamma = sum(table[min(count, 3)] for count in after.values()) / total
        count = after.get(word, 0)
        return (count - table[min(count, 3)]) / total + gamma * lower


@pytest.mark.parametrize("modified", [True, False])
@pytest.mark.parametrize(("order", "boundary"), [(1, 0), (2, 0), (3, 4), (4, 0)])
def test_kneser_ney_equals_brute_force(order: int, boundary: int, modified: bool) -> None:
    vocabulary = 310  # the last ids are never seen
    tokens = zipf(1500, 300, seed=order)
    if boundary:
        tokens = np.where(tokens == 0, boundary, np.where(tokens == boundary, 0, tokens))
    name = "modified-kneser-ney" if modified else "kneser-ney"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # fixed discounts would be warned of
        config = NGram.Config(vocabulary=vocabulary, order=order, boundary=boundary, smoothing=name)
        model = NGram.fit(tokens, config=config)
    brute = BruteKneserNey(tokens, order=order, vocabulary=vocabulary, boundary=boundary, modified=modified)
    contexts = [(boundary,), (boundary, 7, 309), (boundary, 309, 3)] + [
        s[:n] for s in sentences_of(tokens, boundary)[:6] for n in (2, 3, 4)
    ]
    for context in contexts:
        if boundary in context[1:]:
            continue
        short = context[max(0, len(context) - order + 1) :]
        padded = np.array([[boundary] * max(0, order - 1 - len(short)) + list(short)], dtype=np.int64)
        ours = model.log_probabilities(padded.reshape(1, order - 1))[0]
        expected = [math.log(brute.probability(word, short)) for word in range(vocabulary)]
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10)


def test_bigrams_by_hand() -> None:
    """Sentences "a a", "a b", "a": boundary 0, a 1, b 2, and 3, which is never seen.

    Bigrams: 0a 3, aa 1, ab 1, a0 2, b0 1, so n = 3, 1, 1, 0; Y = 3/5; D = 0.6, 0.2, 3. Continuations: a after {0, a} 2,
    b after {a} 1, 0 after {a, b} 2, in all 5; none is 3, so the fixed discounts 0.5, 1, 1.5 are taken.
    """
    with pytest.warns(UserWarning, match="order 1 "):
        model = NGram.fit(np.array([0, 1, 1, 0, 1, 2, 0, 1, 0]), config=NGram.Config(vocabulary=4, order=2))
    left = (1 + 0.5 + 1) / 5
    uni = np.array([(2 - 1) / 5, (2 - 1) / 5, (1 - 0.5) / 5, 0]) + left / 4
    expected = {
        0: uni,
        1: np.array([(2 - 0.2) / 4, (1 - 0.6) / 4, (1 - 0.6) / 4, 0]) + (0.6 + 0.6 + 0.2) / 4 * uni,
        2: np.array([1 - 0.6, 0, 0, 0]) + 0.6 * uni,
        3: uni,
    }
    for context, row in expected.items():
        np.testing.assert_allclose(np.exp(model.log_probabilities(np.array([[context]])))[0], row, atol=1e-12)


def test_add_k_by_hand() -> None:
    """p(w|c) = (C(cw) + k) / (C(c) + kV); contexts at the beginning of a sentence are full contexts."""
    model = fit([0, 1, 1, 2, 0, 1, 1, 1, 0], vocabulary=4, order=3, smoothing="add-k", k=0.5)
    rows = np.exp(model.log_probabilities(np.array([[0, 0], [0, 1], [1, 1], [1, 2], [2, 1]])))
    expected = [
        [0.5 / 4, 2.5 / 4, 0.5 / 4, 0.5 / 4],
        [0.5 / 4, 2.5 / 4, 0.5 / 4, 0.5 / 4],
        [1.5 / 5, 1.5 / 5, 1.5 / 5, 0.5 / 5],
        [1.5 / 3, 0.5 / 3, 0.5 / 3, 0.5 / 3],
        [0.25] * 4,
    ]
    np.testing.assert_allclose(rows, expected, atol=1e-12)


def test_backoff_by_hand() -> None:
    """Bigrams 01 twice, 11 once, 12 once, 10 once, 20 once: D = 4 / (4 + 2) of the bigrams; unigrams D = 1/3."""
    model = fit([0, 1, 1, 2, 0, 1, 0], vocabulary=4, order=2, smoothing="backoff")
    d1, d2 = 1 / (1 + 2 * 1), 4 / (4 + 2 * 1)  # unigrams 0: 2, 1: 3, 2: 1
    uni = np.array([(2 - d1) / 6, (3 - d1) / 6, (1 - d1) / 6, 3 * d1 / 6])
    alpha0 = (d2 / 2) / (1 - uni[1])
    row0 = [alpha0 * uni[0], (2 - d2) / 2, alpha0 * uni[2], alpha0 * uni[3]]
    row1 = [(1 - d2) / 3, (1 - d2) / 3, (1 - d2) / 3, d2]  # token 3 alone is left to back off to
    rows = np.exp(model.log_probabilities(np.array([[0], [1], [3]])))
    np.testing.assert_allclose(rows, [row0, row1, uni], atol=1e-12)


def test_jelinek_mercer_interpolates_and_tunes_by_likelihood() -> None:
    """The weights found by EM are a maximum of the held-out likelihood: no small change of one of them raises it."""
    tokens, valid = zipf(3000, 30, seed=1), zipf(800, 30, seed=2)
    levels = count_ngrams(tokens, vocabulary=30, boundary=0, order=3)
    weights = held_out_weights(levels, valid, boundary=0)
    sentences = sentences_of(tokens, 0)
    grams = Counter(s[e - n + 1 : e + 1] for s in sentences for e in range(1, len(s)) for n in (1, 2, 3) if n <= e + 1)

    def probability(word: int, context: tuple[int, ...], lambdas: np.ndarray) -> float:
        lower = probability(word, context[1:], lambdas) if context else 1 / 30
        total = sum(count for gram, count in grams.items() if len(gram) == len(context) + 1 and gram[:-1] == context)
        weight = lambdas[len(context)]
        return weight * grams[(*context, word)] / total + (1 - weight) * lower if total else lower

    def likelihood(lambdas: np.ndarray) -> float:
        cases = Counter((s[e], s[max(0, e - 2) : e]) for s in sentences_of(valid[:300], 0) for e in range(1, len(s)))
        return sum(many * math.log(probability(*case, lambdas)) for case, many in cases.items())

    short = held_out_weights(levels, valid[:300], boundary=0, rounds=2000)
    best = likelihood(short)
    for n in range(3):
        for change in (-0.03, 0.03):
            moved = short.copy()
            moved[n] = np.clip(moved[n] + change, 1e-4, 1 - 1e-4)
            assert likelihood(moved) <= best + 1e-6
    model = fit(tokens, vocabulary=30, order=3, smoothing="jelinek-mercer", valid=valid)
    for context in [(0,), (0, 5), (5, 6), (29, 28)]:
        padded = np.array([[0] * (2 - len(context)) + list(context)])
        expected = [math.log(probability(word, context, weights)) for word in range(30)]
        np.testing.assert_allclose(model.log_probabilities(padded)[0], expected, atol=1e-10)


streams = st.integers(2, 6).flatmap(
    lambda vocabulary: st.tuples(
        st.just(vocabulary), st.integers(0, vocabulary - 1), st.lists(st.integers(0, vocabulary - 1), min_size=1)
    )
)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@settings(deadline=None, max_examples=60)
@given(
    stream=streams, order=st.integers(1, 5), unseen=st.integers(0, 2), least=st.sampled_from([[], [1, 2], [1, 1, 3]])
)
def test_every_distribution_sums_to_one(smoothing, stream, order, unseen, least) -> None:
    vocabulary, boundary, tokens = stream
    if len(tokens) == 1 and tokens[0] == boundary:
        tokens = [boundary, boundary]
    model = fit(
        tokens,
        vocabulary=vocabulary + unseen,
        order=order,
        smoothing=smoothing,
        boundary=boundary,
        minimum_counts=least[:order],
    )
    padded = np.array([boundary] * (order - 1) + tokens)
    contexts = np.lib.stride_tricks.sliding_window_view(padded, order - 1 or 1)[:, : order - 1]
    anything = np.random.default_rng(0).integers(0, model.vocabulary, (20, order - 1))
    contexts = torch.from_numpy(np.concatenate([contexts, anything]))
    logs = model.log_probabilities(model._advance(contexts).numpy())
    assert np.isfinite(logs).all()
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0, atol=1e-9)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("order", [1, 2, 5])
def test_score_is_the_chain_of_steps(smoothing: str, order: int) -> None:
    model = fit(zipf(2000, 40), vocabulary=42, order=order, smoothing=smoothing)
    random = torch.Generator().manual_seed(0)
    text = torch.stack([torch.from_numpy(zipf(60, 42, seed=seed)[:61]) for seed in (3, 4)])
    text[1, 20:] = torch.randint(42, (41,), generator=random)
    whole, end = model.score(text[:, :-1], text[:, 1:], model.start(2))
    state, steps = model.start(2), []
    for t in range(60):
        logits, state = model.step(text[:, t : t + 1], state)
        steps.append(-logits.gather(1, text[:, t + 1 :][:, :1]))
    torch.testing.assert_close(whole, torch.cat(steps, dim=1), atol=1e-5, rtol=1e-5)
    assert torch.equal(end, state)
    jumped, _ = model.step(text[:, :-1], model.start(2))
    torch.testing.assert_close(jumped, logits)
    state, pieces = model.start(2), []
    for begin, stop in ((0, 1), (1, 7), (7, 60)):
        piece, state = model.score(text[:, begin:stop], text[:, begin + 1 : stop + 1], state)
        pieces.append(piece)
    assert torch.equal(torch.cat(pieces, dim=1), whole)
    alone = [model.score(row[None, :-1], row[None, 1:], model.start(1))[0] for row in text]
    assert torch.equal(torch.cat(alone), whole)


def test_targets_need_not_be_the_tokens_that_follow() -> None:
    model = fit(zipf(1000, 20), vocabulary=20, order=3)
    text = torch.from_numpy(zipf(30, 20, seed=5))[None]
    targets = text.flip(1)
    nats, _ = model.score(text, targets, model.start(1))
    state, expected = model.start(1), []
    for t in range(text.shape[1]):
        logits, state = model.step(text[:, t : t + 1], state)
        expected.append(-logits[0, targets[0, t]])
    torch.testing.assert_close(nats[0], torch.stack(expected))


def test_context_does_not_cross_the_boundary() -> None:
    model = fit(zipf(1000, 20), vocabulary=20, order=4)
    after_text, state = model.step(torch.tensor([[3, 5, 0]]), model.start(1))
    fresh, _ = model.step(torch.tensor([[0]]), model.start(1))
    assert torch.equal(after_text, fresh)
    assert torch.equal(state, model.start(1))
    _, state = model.step(torch.tensor([[3, 0, 7]]), model.start(1))
    assert state.tolist() == [[0, 0, 7]]


def test_meets_the_contract_and_beams_reorder() -> None:
    model = create("ngram", {"vocabulary": 10}, size="tiny")
    assert isinstance(model, PredictsNext)
    assert (model.config.order, model.window, model.vocabulary) == (3, None, 10)
    logits, state = model.step(torch.tensor([[0, 1], [0, 2]]), model.start(2))
    torch.testing.assert_close(logits, torch.full((2, 10), -math.log(10)))
    assert reorder_state(state, torch.tensor([1, 1])).tolist() == [[0, 2], [0, 2]]


@pytest.mark.parametrize("order", [1, 3])
def test_tensors_round_trip_through_safetensors(order: int) -> None:
    model = fit(zipf(500, 12), vocabulary=13, order=order, minimum_counts=[1, 1, 2][:order])
    again = NGram.from_tensors(model.config, load(save(model.tensors())))
    text = torch.from_numpy(zipf(200, 13, seed=9))[None]
    before, after = (m.score(text[:, :-1], text[:, 1:], m.start(1))[0] for m in (model, again))
    assert torch.equal(before, after)
    assert again.parameters == model.parameters
    damaged = model.tensors()
    damaged["1.keys"] = damaged["1.keys"][:-1]
    with pytest.raises(ValueError, match="equal lengths"):
        NGram.from_tensors(model.config, damaged)
    with pytest.raises(ValueError, match=r"4\.keys"):
        NGram.from_tensors(
            fit(zipf(500, 12), vocabulary=13, order=4).config, fit(zipf(500, 12), vocabulary=13, order=3).tensors()
        )


def test_pruning_drops_rare_ngrams_and_keeps_the_order_of_the_rest() -> None:
    tokens = zipf(4000, 50)
    full = fit(tokens, vocabulary=50, order=3)
    pruned = fit(tokens, vocabulary=50, order=3, minimum_counts=[1, 2, 3])
    grams = Counter(
        s[e - n + 1 : e + 1] for s in sentences_of(tokens, 0) for e in range(1, len(s)) for n in (2, 3) if n <= e + 1
    )
    kept = [sum(count >= least for gram, count in grams.items() if len(gram) == n) for n, least in ((2, 2), (3, 3))]
    assert [len(level.keys) for level in pruned.levels[1:]] == kept
    assert pruned.parameters < full.parameters
    frequent = max((gram for gram in grams if len(gram) == 3), key=grams.__getitem__)
    a, b = (m.log_probabilities(np.array([frequent[:2]]))[0, frequent[2]] for m in (full, pruned))
    assert a == pytest.approx(b, abs=0.3)


def test_trained_model_beats_the_untrained_and_higher_orders_help() -> None:
    train, test = zipf(20_000, 60, seed=0), torch.from_numpy(zipf(3000, 60, seed=1))[None]
    nats = {}
    for order in (1, 2):
        model = fit(train, vocabulary=60, order=order)
        nats[order] = model.score(test[:, :-1], test[:, 1:], model.start(1))[0].mean().item()
    assert nats[2] < nats[1] - 0.1 < math.log(60) - 0.1


def test_discounts_of_modified_kneser_ney() -> None:
    """n1 = 4, n2 = 2, n3 = 1, n4 = 1: Y = 4 / 8; D = 1 - 2Y/2, 2 - 3Y/2, 3 - 4Y."""
    (table,) = find_discounts([histogram(np.array([1, 1, 1, 1, 2, 2, 3, 4, 9, 0]))], modified=True)
    np.testing.assert_allclose(table, [0, 0.5, 1.25, 1.0])
    (table,) = find_discounts([histogram(np.array([1, 1, 1, 1, 2, 2, 3, 4, 9, 0]))], modified=False)
    np.testing.assert_allclose(table, [0, 0.5, 0.5, 0.5])
    with pytest.warns(UserWarning, match="fixed discounts 0.5, 1, 1.5"):
        (table,) = find_discounts([histogram(np.array([5, 5]))], modified=True)
    assert table.tolist() == [0, 0.5, 1, 1.5]


def test_sorting_and_look_up_agree_with_numpy() -> None:
    random = np.random.default_rng(0)
    for bound in (50, 2**40, 2**62):
        values = random.integers(0, bound, 1000)
        keys, places = sort_with_positions(values, bound=bound)
        np.testing.assert_array_equal(places, np.argsort(values, kind="stable"))
        np.testing.assert_array_equal(keys, values[places])
        table = np.unique(values[:500])
        index = {key: rank for rank, key in enumerate(table.tolist())}
        for wanted in (values, values[:10], np.append(values, bound - 1)):
            np.testing.assert_array_equal(look_up(table, wanted), [index.get(key, -1) for key in wanted.tolist()])


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [([], "no token"), ([0], "no token"), ([0, 7], "token 7 is outside"), ([0, -1], "token -1"), ([[0, 1]], "1-D")],
)
def test_unusable_tokens_are_refused(tokens, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        NGram.fit(np.array(tokens, np.int64), config=NGram.Config(vocabulary=5))


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": 0},
        {"k": 0.0},
        {"boundary": 5},
        {"smoothing": "laplace"},
        {"minimum_counts": [2]},
        {"minimum_counts": [1, 3, 2]},
    ],
)
def test_unusable_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="model"):
        create("ngram", {"vocabulary": 5, **wrong})


def test_progress_rises_to_one() -> None:
    seen: list[float] = []
    NGram.fit(zipf(2000, 300), config=NGram.Config(vocabulary=300, order=2), progress=lambda _, done: seen.append(done))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_unsigned_memory_maps_are_read_as_they_are(tmp_path) -> None:
    tokens = zipf(1000, 200)
    np.save(tmp_path / "tokens.npy", tokens.astype(np.uint16))
    mapped = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    config = NGram.Config(vocabulary=60_000, order=4)
    wide, narrow = (NGram.fit(stream, config=config).tensors() for stream in (tokens, mapped))
    assert all(torch.equal(wide[name], narrow[name]) for name in wide)
