"""The decoding loop: the same as reading everything anew at each step, for any kind of state."""

from __future__ import annotations

import math

import pytest
import torch

from lmlab.decoding.generate import StatefulReader, generate
from lmlab.decoding.sampling import Sampler, Sampling
from standins import Table, TinyGRU, TinyWindow

BOUNDARY = 1
PROMPT = torch.tensor([[BOUNDARY, 4, 2]])


def draw(model, prompt=PROMPT, *, tokens=12, pick=None, **options):
    """All that was drawn, row by row."""
    rows = {}
    for step in generate(model, prompt, tokens=tokens, pick=pick or Sampler(Sampling(temperature=0)), **options):
        for drawn in step:
            rows.setdefault(drawn.row, []).append(drawn)
    return [rows[row] for row in sorted(rows)]


def run(*given, **options):
    return [[drawn.token for drawn in row] for row in draw(*given, **options)]


@torch.inference_mode()
def greedy_anew(model, prompt, tokens):
    """Reads the whole text from the start for each token."""
    text = list(prompt)
    for _ in range(tokens):
        logits, _ = model.step(torch.tensor([text]), model.start(1))
        text.append(int(logits[0].argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize("model", [Table(9), TinyGRU(9), TinyWindow(9, window=64)], ids=["table", "gru", "window"])
def test_greedy_is_what_reading_again_gives(model):
    assert run(model, tokens=20) == [greedy_anew(model, PROMPT[0].tolist(), 20)]


@torch.inference_mode()
def windowed_by_hand(model, prompt, tokens):
    """What is in the window is kept by hand, as the docstring of Reader says."""
    seen, out = list(prompt)[-model.window :], []
    for _ in range(tokens):
        logits, _ = model.step(torch.tensor([seen]), model.start(1))
        out.append(int(logits[0].argmax()))
        seen.append(out[-1])
        if len(seen) > model.window:
            seen = seen[-(model.window // 2) :]
    return out


@pytest.mark.parametrize("length", [1, 5, 8, 9, 30])
def test_past_the_window_the_last_half_is_read_again(length):
    model = TinyWindow(50, window=8)
    prompt = [BOUNDARY, *torch.randint(2, 50, (length - 1,), generator=torch.Generator().manual_seed(3)).tolist()]
    expected = windowed_by_hand(model, prompt, 40)
    model.read = 0
    assert run(model, torch.tensor([prompt]), tokens=40) == [expected]
    assert model.read <= length + 2 * 40  # amortised: each token is read at most about twice


def test_a_window_of_one_token_works():
    assert len(run(TinyWindow(9, window=1), tokens=5)[0]) == 5


def test_every_row_is_as_if_alone():
    model, generator = TinyWindow(30, window=8), torch.Generator().manual_seed(5)
    prompts = torch.randint(2, 30, (4, 6), generator=generator)
    together = run(model, prompts, tokens=15)
    assert together == [run(model, prompt[None], tokens=15)[0] for prompt in prompts]
    assert len({tuple(row) for row in together}) > 1


def test_samples_share_one_reading_of_the_prompt_and_differ():
    model = TinyWindow(30, window=64)
    rows = run(model, torch.randint(2, 30, (1, 40)), tokens=8, samples=5, pick=Sampler(Sampling(seed=2)))
    assert len(rows) == 5
    assert len({tuple(row) for row in rows}) == 5
    assert model.read == 40 + 7


def test_samples_of_several_prompts_stay_with_their_prompt():
    model = Table(9)
    prompts = torch.tensor([[BOUNDARY, 3], [BOUNDARY, 5]])
    rows = run(model, prompts, tokens=6, samples=2)
    assert rows[0] == rows[1] == greedy_anew(model, [BOUNDARY, 3], 6)
    assert rows[2] == rows[3] == greedy_anew(model, [BOUNDARY, 5], 6)


def test_rows_end_at_the_boundary_and_the_loop_ends_with_the_last():
    options = {"tokens": 200, "samples": 6, "boundary": BOUNDARY}
    rows = draw(Table(4), torch.tensor([[BOUNDARY]]), pick=Sampler(Sampling(seed=1)), **options)
    for row in rows:
        assert [drawn.ended for drawn in row] == [""] * (len(row) - 1) + ["boundary"]
        assert [drawn.token == BOUNDARY for drawn in row] == [False] * (len(row) - 1) + [True]
    lengths = {len(row) for row in rows}
    assert len(lengths) > 1
    assert max(lengths) < 200


def test_rows_end_by_length_or_where_they_are_stopped():
    rows = draw(Table(9), PROMPT, tokens=5, samples=3, pick=Sampler(Sampling(seed=1)))
    assert [[drawn.ended for drawn in row] for row in rows] == [["", "", "", "", "length"]] * 3
    asked = []

    def stops(row, token):
        asked.append((row, token))
        return row == 1 and len([each for each in asked if each[0] == 1]) == 2

    rows = draw(Table(9), PROMPT, tokens=5, samples=3, pick=Sampler(Sampling(seed=1)), stops=stops)
    assert [row[-1].ended for row in rows] == ["length", "stop", "length"]
    assert [len(row) for row in rows] == [5, 2, 5]
    assert asked[:3] == [(row, rows[row][0].token) for row in range(3)]


@pytest.mark.parametrize("model", [Table(9), TinyGRU(9), TinyWindow(9, window=64)], ids=["table", "gru", "window"])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
def test_surprisals_are_those_of_scoring_the_text(model, temperature):
    """Of the model's own distribution, whatever the temperature."""
    from lmlab.decoding.chain_rule import score_tokens

    pick = Sampler(Sampling(seed=3, temperature=temperature, top_k=5, repetition_penalty=1.3))
    rows = draw(model, PROMPT, tokens=15, samples=2, pick=pick, top=0)
    texts = [[*PROMPT[0, 1:].tolist(), *(drawn.token for drawn in row)] for row in rows]
    for row, nats in zip(rows, score_tokens(model, texts, boundary=BOUNDARY), strict=True):
        assert [drawn.nats for drawn in row] == pytest.approx(nats[2:].tolist(), rel=1e-4)
        assert all(drawn.top == () for drawn in row)


def test_the_best_tokens_come_with_their_surprisals():
    (row,) = draw(Table(9), PROMPT, top=3)
    for drawn in row:
        assert len(drawn.top) == 3
        assert drawn.top[0] == (drawn.token, pytest.approx(drawn.nats))  # greedy takes the best
        assert [nats for _, nats in drawn.top] == sorted(nats for _, nats in drawn.top)
    (all_of_them,) = draw(Table(9), PROMPT, tokens=1, top=99)
    assert sum(math.exp(-nats) for _, nats in all_of_them[0].top) == pytest.approx(1.0)
    (unasked,) = draw(Table(9), PROMPT, tokens=1)
    assert math.isnan(unasked[0].nats)


def test_without_a_boundary_it_runs_to_the_length():
    rows = run(Table(4), torch.tensor([[BOUNDARY]]), tokens=50, samples=6, pick=Sampler(Sampling(seed=1)))
    assert all(len(row) == 50 and BOUNDARY in row for row in rows)


def test_it_streams_and_leaves_gradients_on_outside():
    stream = generate(TinyGRU(9), PROMPT, tokens=3, pick=Sampler(Sampling(temperature=0)))
    (first,) = next(stream)
    assert (first.row, first.ended) == (0, "")
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert len(list(stream)) == 2


def test_reader_rows_change_places():
    model = TinyWindow(20, window=6)
    texts = torch.randint(2, 20, (3, 5), generator=torch.Generator().manual_seed(0))
    more = torch.randint(2, 20, (2, 4), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        reader = StatefulReader(model, batch=3)
        reader.read(texts)
        reader.reorder(torch.tensor([2, 0]))
        got = reader.read(more)  # does not fit: the last tokens of the right texts must be read again
        expected, _ = model.step(torch.cat([texts[[2, 0]], more], 1)[:, -4:], model.start(2))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("options", [{"tokens": -1}, {"samples": 0}, {"top": -1}])
def test_bad_numbers_are_refused(options):
    with pytest.raises(ValueError, match="must be at least"):
        run(Table(4), **{"tokens": 3, **options})


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="boundary"):
        run(Table(4), torch.empty(1, 0, dtype=torch.long))


def test_what_begins_from_a_source_says_so():
    class Sourced:
        vocabulary, window, device = 9, None, torch.device("cpu")

        def step(self, tokens, state): ...

        def score(self, tokens, targets, state): ...

    with pytest.raises(ValueError, match="Sourced starts from a source"):
        StatefulReader(Sourced(), batch=1)
