"""Each way of choosing, against its definition on a few tokens."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlab.decoding import sampling
from lmlab.decoding.sampling import Sampler, Sampling, SamplingOptions

P = torch.tensor([[0.5, 0.25, 0.15, 0.07, 0.03], [0.03, 0.15, 0.5, 0.07, 0.25]])


def uniform(rows, generator):
    return torch.rand(rows, generator=generator, dtype=torch.float64)


def kept(logits):
    return [sorted(row.isfinite().nonzero().flatten().tolist()) for row in logits]


def test_top_k_keeps_the_k_best():
    assert kept(sampling.keep_top_k(P.log(), 2)) == [[0, 1], [2, 4]]
    assert kept(sampling.keep_top_k(P.log(), 99)) == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize(("p", "count"), [(0.4, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3), (0.95, 4), (1.0, 5)])
def test_top_p_keeps_the_fewest_that_reach_p(p, count):
    rows = kept(sampling.keep_top_p(P.log(), p))
    order = [[0, 1, 2, 3, 4], [2, 4, 1, 3, 0]]
    assert rows == [sorted(row[:count]) for row in order]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), p=st.floats(0.01, 0.99), scale=st.floats(0.0, 4.0))
def test_top_p_on_large_vocabularies_is_the_sorted_definition(seed, p, scale):
    logits = torch.randn(3, 1500, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale
    got = sampling.keep_top_p(logits, p).isfinite()
    for row, chosen in zip(logits.softmax(-1), got, strict=True):
        ranked = row.sort(descending=True).values
        fewest = int((ranked.cumsum(0) < p - 1e-12).sum()) + 1
        assert abs(int(chosen.sum()) - fewest) <= (0 if scale > 1e-6 else 1500)  # equal ones tie
        assert row[chosen].sum() >= p - 1e-9
        assert not chosen.all() or fewest == 1500 or scale <= 1e-6


def test_min_p_is_relative_to_the_best():
    assert kept(sampling.keep_min_p(P.log(), 0.3)) == [[0, 1, 2], [1, 2, 4]]
    assert kept(sampling.keep_min_p(P.log(), 0.0)) == [[0, 1, 2, 3, 4]] * 2
    assert kept(sampling.keep_min_p(P.log(), 1.0)) == [[0], [2]]


def test_penalty_divides_positive_and_multiplies_negative_scores():
    logits = torch.tensor([[2.0, -2.0, 3.0]])
    seen = torch.tensor([[True, True, False]])
    assert sampling.penalize(logits, seen, 2.0).tolist() == [[1.0, -4.0, 3.0]]


def test_temperature_divides():
    assert torch.equal(sampling.apply_temperature(P, 0.5), P * 2)


def test_draws_follow_the_distribution():
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([sampling.sample(P.log(), uniform(2, generator)) for _ in range(20_000)])
    for row in range(2):
        fraction = torch.bincount(draws[:, row], minlength=5) / 20_000
        assert (fraction - P[row]).abs().max() < 4 * (0.25 / 20_000) ** 0.5  # four standard errors
    assert abs(torch.corrcoef(draws.T.double())[0, 1]) < 0.05  # rows are independent


def test_left_out_tokens_are_never_drawn():
    logits = torch.full((1, 1000), -torch.inf)
    logits[0, [17, 999]] = 0.0
    generator = torch.Generator().manual_seed(0)
    assert {int(sampling.sample(logits, uniform(1, generator))) for _ in range(200)} == {17, 999}
    logits[0, 999] = -torch.inf
    assert {int(sampling.sample(logits, uniform(1, generator))) for _ in range(50)} == {17}


def test_the_least_uniform_number_draws_the_first_token_that_is_left():
    logits = torch.full((1, 10), -torch.inf)
    logits[0, [3, 5]] = 0.0
    assert int(sampling.sample(logits, torch.zeros(1, dtype=torch.float64))) == 3


def test_a_sampler_starts_again():
    sampler, logits = Sampler(Sampling(seed=4)), torch.randn(1, 50)
    rounds = []
    for _ in range(2):
        sampler.begin(torch.zeros(1, 1, dtype=torch.long))
        rounds.append([int(sampler(logits)) for _ in range(20)])
    assert rounds[0] == rounds[1]


def test_the_same_seed_draws_the_same_whatever_else_draws():
    logits = torch.randn(2, 50)

    def draws(disturb):
        sampler = Sampler(Sampling(seed=11))
        sampler.begin(torch.zeros(2, 1, dtype=torch.long))
        rows = []
        for _ in range(30):
            if disturb:
                torch.rand(3)
            rows.append(sampler(logits).tolist())
        return rows

    assert draws(False) == draws(True)
    assert draws(False) != [Sampler(Sampling(seed=12))(logits).tolist() for _ in range(30)]


def test_temperature_zero_takes_the_best_and_cold_nearly_does():
    logits = torch.randn(4, 30)
    assert torch.equal(Sampler(Sampling(temperature=0))(logits), logits.argmax(-1))
    assert torch.equal(Sampler(Sampling(temperature=1e-4))(logits), logits.argmax(-1))


def test_repetition_penalty_sees_the_prompt_and_its_own_tokens():
    sampler = Sampler(Sampling(temperature=0, repetition_penalty=10.0))
    sampler.begin(torch.tensor([[0]]))
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.5]])
    assert [int(sampler(logits)) for _ in range(4)] == [1, 2, 3, 0]
    sampler.begin(torch.tensor([[3]]))
    assert [int(sampler(logits)) for _ in range(3)] == [0, 1, 2]


def test_filters_apply_in_the_stated_order():
    logits = P[:1].log()
    warm = Sampler(Sampling(temperature=2.0, top_p=0.6))
    flat = (logits / 2).softmax(-1)[0]
    count = int((flat.sort(descending=True).values.cumsum(0) < 0.6).sum()) + 1
    assert len(kept(warm.apply_filters(logits))[0]) == count == 3  # two without the temperature
    assert kept(Sampler(Sampling(top_k=3, top_p=0.8)).apply_filters(logits)) == [
        [0, 1]
    ]  # .5 + .25 is 83% of what top-k left


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_k", 0),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 2.0),
        ("repetition_penalty", 0.0),
        ("presence_penalty", float("inf")),
        ("frequency_penalty", float("nan")),
        ("seed", -1),
    ],
)
def test_values_out_of_bounds_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name} = {value}: it must be"):
        Sampling(**{name: value})


def test_a_bias_for_no_token_is_refused():
    with pytest.raises(ValueError, match=r"logit_bias = .*by its id"):
        Sampling(logit_bias={-1: 2.0})
    with pytest.raises(ValueError, match="logit_bias for token 9: there are 4 tokens"):
        Sampler(Sampling(logit_bias={9: 2.0}))(torch.zeros(1, 4))


def test_a_bias_is_added_and_can_leave_a_token_out():
    logits = torch.tensor([[3.0, 2.0, 1.0]])
    assert int(Sampler(Sampling(temperature=0, logit_bias={2: 2.5}))(logits)) == 2
    assert int(Sampler(Sampling(temperature=0, logit_bias={0: -torch.inf}))(logits)) == 1
    assert logits.tolist() == [[3.0, 2.0, 1.0]]


def test_presence_counts_once_and_frequency_each_time_but_not_the_prompt():
    logits, prompt = torch.tensor([[3.0, 2.5, 0.0]]), torch.tensor([[0, 0, 0]])
    once = Sampler(Sampling(temperature=0, presence_penalty=1.0))
    once.begin(prompt)
    assert [int(once(logits)) for _ in range(4)] == [0, 1, 0, 0]  # 3; 2 against 2.5; 2 against 1.5
    often = Sampler(Sampling(temperature=0, frequency_penalty=1.0))
    often.begin(prompt)
    assert [int(often(logits)) for _ in range(6)] == [0, 1, 0, 1, 0, 1]


def test_the_first_text_is_the_same_however_many_there_are():
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))
    alone, together = Sampler(Sampling(seed=8)), Sampler(Sampling(seed=8))
    alone.begin(torch.zeros(1, 1, dtype=torch.long))
    together.begin(torch.zeros(3, 1, dtype=torch.long))
    one = [int(alone(logits)) for _ in range(30)]
    three = [together(logits.expand(3, -1)).tolist() for _ in range(30)]
    assert one == [row[0] for row in three]
    assert len({tuple(column) for column in zip(*three, strict=True)}) == 3


def test_the_options_by_name_are_those_of_the_record():
    assert list(SamplingOptions.__annotations__) == [each.name for each in fields(Sampling)]
    assert Sampling(top_k=3, temperature=0.5, seed=4).given() == ["temperature", "top_k"]
    assert not Sampling(seed=4).given()


@pytest.mark.parametrize("options", [{"temperature": "hot"}, {"seed": "a"}, {"top_k": True}, {"top_p": [0.5]}])
def test_options_that_are_no_numbers_are_named(options: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=rf"{next(iter(options))} = .*: give a number"):
        Sampling(**options)  # type: ignore[arg-type]


def test_next_to_no_temperature_is_the_best_token() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    for temperature in (1e-300, 1e-38, 1e-7):
        assert Sampler(Sampling(temperature=temperature))(logits).tolist() == [1]
        assert sampling.sample_each(logits, [Sampler(Sampling(temperature=temperature))]) == [1]


def test_words_that_cannot_be_predicted_are_not_penalised() -> None:
    sampler = Sampler(Sampling(repetition_penalty=2.0, temperature=0.0))
    sampler.begin(torch.tensor([[1, 7]]))
    assert sampler(torch.tensor([[2.5, 3.0, 2.0]])).tolist() == [0]
