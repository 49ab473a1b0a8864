"""Beam search against the enumeration of every text."""

from __future__ import annotations

import itertools

import pytest
import torch

from lmlab.decoding.beam_search import Expansion, beam_search, length_penalty_of
from lmlab.decoding.generate import generate
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.models.states import Decoding
from standins import Table, TinyGRU, TinyWindow

BOUNDARY = 1


def every_text(vocabulary: int, tokens: int, boundary: int | None):
    """All texts that end with the boundary, or reach the length limit without it."""
    for length in range(1, tokens + 1):
        for text in itertools.product(range(vocabulary), repeat=length):
            if boundary is None:
                if length == tokens:
                    yield list(text)
            elif boundary not in text[:-1] and (text[-1] == boundary or length == tokens):
                yield list(text)


def brute_force(model: Table, tokens: int, boundary: int | None, alpha: float):
    scored = [
        (text, model.log_probability(text, boundary=BOUNDARY))
        for text in every_text(model.vocabulary, tokens, boundary)
    ]
    return sorted(scored, key=lambda item: -item[1] / length_penalty_of(len(item[0]), alpha))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0, -0.5])
@pytest.mark.parametrize("boundary", [BOUNDARY, None])
def test_with_enough_beams_it_is_the_enumeration(alpha, boundary):
    model, tokens = Table(3, seed=4), 5
    expected = brute_force(model, tokens, boundary, alpha)
    (found,) = beam_search(
        model, torch.tensor([[BOUNDARY]]), tokens=tokens, beams=3**tokens, boundary=boundary, length_penalty=alpha
    )
    assert len(found) == len(expected)
    assert {tuple(h.tokens) for h in found} == {tuple(text) for text, _ in expected}
    for hypothesis, (text, total) in zip(found, expected, strict=True):
        assert hypothesis.score == pytest.approx(total / length_penalty_of(len(text), alpha), abs=1e-5)
        assert hypothesis.log_probability == pytest.approx(
            model.log_probability(hypothesis.tokens, boundary=BOUNDARY), abs=1e-5
        )
        assert hypothesis.finished == (boundary is not None and hypothesis.tokens[-1] == boundary)


def beam_by_hand(model: Table, tokens: int, beams: int):
    """The definition on lists, without a boundary."""
    texts = [([], 0.0)]
    for _ in range(tokens):
        longer = [[*text, token] for text, _ in texts for token in range(model.vocabulary)]
        scored = [(text, model.log_probability(text, boundary=BOUNDARY)) for text in longer]
        texts = sorted(scored, key=lambda item: -item[1])[:beams]
    return texts


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_few_beams_are_the_definition(beams):
    model = Table(7, seed=2)
    (found,) = beam_search(model, torch.tensor([[BOUNDARY]]), tokens=8, beams=beams)
    expected = beam_by_hand(model, 8, beams)
    assert [h.tokens for h in found] == [text for text, _ in expected]
    assert [h.log_probability for h in found] == pytest.approx([total for _, total in expected], abs=1e-5)


def beam_with_ends_by_hand(model: Table, tokens: int, beams: int, alpha: float):
    """The definition on lists: of the best candidates, those that end leave; the beams are refilled; it runs on."""
    texts, ended = [([], 0.0)], []
    for _ in range(tokens):
        longer = [[*text, token] for text, _ in texts for token in range(model.vocabulary)]
        scored = [(text, model.log_probability(text, boundary=BOUNDARY)) for text in longer]
        ranked = sorted(scored, key=lambda item: -item[1])
        ended += [item for item in ranked[:beams] if item[0][-1] == BOUNDARY]
        texts = [item for item in ranked if item[0][-1] != BOUNDARY][:beams]
    return sorted(ended + texts, key=lambda item: -item[1] / length_penalty_of(len(item[0]), alpha))[:beams]


@pytest.mark.parametrize("beams", [1, 2, 3, 5])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_few_beams_with_ends_are_the_definition(beams, alpha, seed):
    model = Table(6, seed=seed)
    options = {"tokens": 9, "beams": beams, "boundary": BOUNDARY, "length_penalty": alpha}
    (found,) = beam_search(model, torch.tensor([[BOUNDARY]]), **options)
    expected = beam_with_ends_by_hand(model, 9, beams, alpha)
    assert [h.tokens for h in found] == [text for text, _ in expected]


@pytest.mark.parametrize("model", [TinyGRU(12), TinyWindow(12, window=6)], ids=["gru", "window"])
def test_one_beam_is_greedy_also_past_a_window(model):
    prompt = torch.tensor([[BOUNDARY, 3]])
    steps = generate(model, prompt, tokens=20, pick=Sampler(Sampling(temperature=0)))
    greedy = [drawn.token for (drawn,) in steps]
    (found,) = beam_search(model, prompt, tokens=20, beams=1)
    assert found[0].tokens == greedy


@pytest.mark.parametrize(
    "model", [Table(6, seed=1), TinyGRU(6), TinyWindow(6, window=5)], ids=["table", "gru", "window"]
)
def test_texts_of_a_batch_are_as_if_alone(model):
    prompts = torch.tensor([[BOUNDARY, 3], [BOUNDARY, 5], [BOUNDARY, 0]])
    options = {"tokens": 9, "beams": 3, "boundary": BOUNDARY, "length_penalty": 0.8}
    together = beam_search(model, prompts, **options)
    for prompt, found in zip(prompts, together, strict=True):
        (alone,) = beam_search(model, prompt[None], **options)
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone], abs=1e-5)


def test_the_search_ends_early_only_when_nothing_can_change():
    """Against a search that is never allowed to stop: the results are the same, and fewer steps were taken."""
    for seed in range(20):
        model = Table(5, seed=seed)
        model.scores[:, :, BOUNDARY] += 2.0
        levels: list[Expansion] = []
        (found,) = beam_search(
            model,
            torch.tensor([[BOUNDARY]]),
            tokens=30,
            beams=4,
            boundary=BOUNDARY,
            length_penalty=1.0,
            watch=levels.append,
        )
        assert len(found) == 4
        if len(levels) < 30:
            best_left = max(level.log_probability[0, level.kept[0, 0]].item() for level in levels[-1:])
            assert best_left / length_penalty_of(30, 1.0) <= found[-1].score + 1e-9


def test_watching_shows_the_tree():
    model, levels = Table(5, seed=3), []
    (found,) = beam_search(model, torch.tensor([[BOUNDARY]]), tokens=4, beams=2, watch=levels.append)
    assert len(levels) == 4
    column, text = 0, []
    for level in reversed(levels):  # the best result, followed back to the root
        candidate = level.kept[0, column]
        text.append(int(level.token[0, candidate]))
        column = int(level.parent[0, candidate])
    assert text[::-1] == found[0].tokens


def test_length_penalty_is_that_of_wu():
    assert length_penalty_of(1, 0.7) == 1.0
    assert length_penalty_of(7, 1.0) == 2.0
    assert length_penalty_of(7, 0.0) == 1.0


def test_impossible_tokens_are_never_results():
    model = Table(3)
    model.scores[:, :, 2] = -torch.inf
    (found,) = beam_search(model, torch.tensor([[BOUNDARY]]), tokens=2, beams=9)
    assert len(found) == 4
    assert all(2 not in h.tokens for h in found)


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="beams = 0"):
        beam_search(Table(3), torch.tensor([[BOUNDARY]]), tokens=2, beams=0)


@pytest.mark.parametrize("kind", ["wu", "power"])
@pytest.mark.parametrize(("shortest", "no_repeat"), [(3, 0), (0, 1), (0, 2), (2, 2)])
def test_with_enough_beams_what_is_forbidden_is_left_out_and_the_rest_is_the_enumeration(shortest, no_repeat, kind):
    model, tokens = Table(3, seed=6), 5

    def allowed(text):
        body = text[:-1] if text[-1] == BOUNDARY else text
        whole = [BOUNDARY, *text]
        runs = [tuple(whole[i : i + no_repeat]) for i in range(len(whole) - no_repeat + 1) if no_repeat]
        repeated = [run for i, run in enumerate(runs) if run in runs[:i] and run[-1] != BOUNDARY]
        return len(body) >= shortest and not repeated

    expected = [text for text in every_text(3, tokens, BOUNDARY) if allowed(text)]
    (found,) = beam_search(
        model,
        torch.tensor([[BOUNDARY]]),
        tokens=tokens,
        beams=3**tokens,
        boundary=BOUNDARY,
        length_penalty=0.7,
        penalty=kind,
        shortest=shortest,
        no_repeat=no_repeat,
    )
    assert {tuple(h.tokens) for h in found} == {tuple(text) for text in expected}
    assert 0 < len(found) < len(list(every_text(3, tokens, BOUNDARY)))
    for hypothesis in found:
        total = model.log_probability(hypothesis.tokens, boundary=BOUNDARY)
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-5)
        assert hypothesis.score == pytest.approx(total / length_penalty_of(len(hypothesis.tokens), 0.7, kind), abs=1e-5)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_each_text_may_have_its_own_greatest_length():
    model = Table(6, seed=3)
    prompts = torch.tensor([[BOUNDARY, 3], [BOUNDARY, 5], [BOUNDARY, 0]])
    options = {"beams": 3, "boundary": BOUNDARY, "length_penalty": 1.0}
    together = beam_search(model, prompts, tokens=[2, 9, 5], **options)
    for prompt, limit, found in zip(prompts, [2, 9, 5], together, strict=True):
        (alone,) = beam_search(model, prompt[None], tokens=limit, **options)
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        assert max(len(h.tokens) for h in found) <= limit


class Counting(Table):
    """Tells how many rows each step has read."""

    def step(self, tokens, state):
        self.rows = [*getattr(self, "rows", []), len(tokens)]
        return super().step(tokens, state)


def test_texts_that_are_done_leave_the_batch():
    model = Counting(6, seed=1)
    prompts = torch.tensor([[BOUNDARY, 3], [BOUNDARY, 5], [BOUNDARY, 0]])
    beam_search(model, prompts, tokens=[2, 9, 5], beams=4)
    assert model.rows == [3] + [12] * 1 + [8] * 3 + [4] * 4


class Sourced(Table):
    """An encoder-decoder: the source (one token) is added to the scores of the table, with a window."""

    window = 6

    def begin(self, source):
        return Decoding({"source": source}, self.start(len(source)))

    def step(self, tokens, state):
        self.shared = [*getattr(self, "shared", []), (len(state.encoded["source"]), len(tokens))]
        logits, decoder = super().step(tokens, state.decoder)
        rows = len(tokens) // len(state.encoded["source"])
        logits = logits + self.scores[0][state.encoded["source"][:, 0]].repeat_interleave(rows, 0)
        return logits, Decoding(state.encoded, decoder)


def test_beams_share_the_memory_of_their_source():
    model = Sourced(6, seed=5)
    source, prompts = torch.tensor([[3], [0], [4]]), torch.full((3, 1), BOUNDARY)
    options = {"beams": 4, "boundary": BOUNDARY, "length_penalty": 1.0}
    state = model.begin(source)
    together = beam_search(model, prompts, tokens=[3, 6, 4], state=state, **options)
    assert {rows // sources for sources, rows in model.shared[1:]} == {4}
    assert {sources for sources, _ in model.shared} == {3, 2, 1}
    for row, limit in enumerate([3, 6, 4]):
        alone = model.begin(source[row : row + 1])
        (found,) = beam_search(model, prompts[:1], tokens=limit, state=alone, **options)
        assert [h.tokens for h in together[row]] == [h.tokens for h in found]
    assert together[0] != together[1]


def test_an_encoder_decoder_is_not_asked_for_more_than_its_positions():
    model = Sourced(6)
    for prompt, most in ((1, 6), (3, 4)):
        given = torch.full((1, prompt), BOUNDARY)
        beam_search(model, given, tokens=most, beams=2, state=model.begin(torch.tensor([[3]])))
        with pytest.raises(ValueError, match=f"at most {most} can be generated"):
            beam_search(model, given, tokens=most + 1, beams=2, state=model.begin(torch.tensor([[3]])))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": [3, 4]}, "2 length limits for 1 prompts"),
        ({"tokens": 0}, "tokens = 0"),
        ({"shortest": 6}, "at least 6 and at most 5"),
        ({"no_repeat": -1}, "no_repeat = -1"),
        ({"prompt": torch.empty(1, 0, dtype=torch.long)}, "boundary"),
    ],
)
def test_impossible_wishes_are_refused(options, message):
    options = {"prompt": torch.tensor([[BOUNDARY]]), "tokens": 5, **options}
    with pytest.raises(ValueError, match=message):
        beam_search(Table(3), options.pop("prompt"), beams=2, **options)


def test_stopping_early_ends_with_the_first_results():
    """Without it the search goes on while a longer text could still win, here until the length limit."""
    steps: dict[bool, int] = {}
    for early in (False, True):
        seen: list[Expansion] = []
        (found,) = beam_search(
            Table(5, seed=3),
            torch.tensor([[BOUNDARY]]),
            tokens=40,
            beams=3,
            boundary=BOUNDARY,
            length_penalty=1.0,
            penalty="power",
            stop_early=early,
            watch=seen.append,
        )
        assert len(found) == 3
        steps[early] = len(seen)
    results = list(itertools.accumulate(int(each.finished.sum()) for each in seen))
    assert results[-1] >= 3 > results[-2]
    assert steps[True] < steps[False]
