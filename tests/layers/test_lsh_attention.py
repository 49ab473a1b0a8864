"""LSH attention against the paper's equations by brute force, and its fast twin against the readable form."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lmlab.layers.attention.lsh import (
    attend_chunks,
    bucket_mask,
    choose_factors,
    hash_vectors,
    normalise,
    or_itself,
    positions_in_buckets,
    rotations_of,
)
from lmlab.layers.attention.multi_head import attend
from lmlab.layers.kernels.sorted_attention import attend_sorted
from tolerances import rounding


def by_the_equations(q: Tensor, v: Tensor, buckets: Tensor, *, reach: int) -> Tensor:
    """One head: q, v [T, d] and buckets [R, T]; each token asks each other one, in plain Python.

    Appendix A of the paper: o_i = Σ_r Σ_{j ∈ P_i⁽ʳ⁾} exp(q_i · k_j − log N_ij − z_i) v_j, where N_ij rounds find j, and
    the token itself has 10⁵ less.
    """
    length, width = q.shape
    k = normalise(q)
    rows = []
    for i in range(length):
        terms: list[tuple[float, int]] = [(float(q[i] @ k[i]) / math.sqrt(width) - 1e5, i)]
        sets = []
        for row in buckets.tolist():
            same = [j for j in range(length) if row[j] == row[i] and j != i]
            before = [j for j in same if j < i][-reach:]
            sets.append(set(before))
        for each in sets:
            for j in each:
                times = sum(j in other for other in sets)
                terms.append((float(q[i] @ k[j]) / math.sqrt(width) - math.log(times), j))
        most = max(score for score, _ in terms)
        weights = [(math.exp(score - most), j) for score, j in terms]
        total = sum(weight for weight, _ in weights)
        rows.append(torch.stack([weight / total * v[j] for weight, j in weights]).sum(0))
    return torch.stack(rows)


def sort(q: Tensor, v: Tensor, places: Tensor, **settings: Any) -> Tensor:
    """The fast twin, with heads first."""
    return attend_sorted(q.transpose(1, 2), v.transpose(1, 2), places, **settings).transpose(1, 2)


def draw(length: int, *, rounds: int, factors: list[int], seed: int = 0, **kind: Any) -> tuple[Tensor, ...]:
    torch.manual_seed(seed)
    q, v = torch.randn(2, 2, 3, length, 8, dtype=torch.double).unbind(0)
    rotations = torch.randn(3, 8, rounds, sum(factors) // 2, dtype=torch.double)
    buckets = hash_vectors(q, rotations, factors)
    counts = torch.zeros(2, 3, rounds, math.prod(factors), dtype=torch.long)
    places, _ = positions_in_buckets(buckets, counts=counts, stride=10_000)
    return q, v, buckets, places


@pytest.mark.parametrize(("length", "rounds", "factors"), [(1, 1, [2]), (9, 2, [4]), (40, 3, [4]), (33, 2, [2, 4])])
def test_attention_follows_the_equations(length: int, rounds: int, factors: list[int]) -> None:
    q, v, buckets, places = draw(length, rounds=rounds, factors=factors)
    k = normalise(q)
    readable = attend(q, k, v, mask=or_itself(bucket_mask(places, places, reach=4), 0))
    quick = sort(q, v, places, reach=4, bound=10**6)
    tolerance = rounding(terms=length * rounds, depth=3, dtype=torch.double)
    for row in range(2):
        for head in range(3):
            expected = by_the_equations(q[row, head], v[row, head], buckets[row, head], reach=4)
            torch.testing.assert_close(readable[row, head], expected, atol=tolerance, rtol=tolerance)
            torch.testing.assert_close(quick[row, head], expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("length", [1, 5, 16, 50, 131])
def test_the_fast_twin_has_the_same_gradients(length: int) -> None:
    q, v, _, places = draw(length, rounds=3, factors=[8])
    found_by, gradients = [], []
    for quick in (False, True):
        a, b = q.clone().requires_grad_(), v.clone().requires_grad_()
        k = normalise(a)
        if quick:
            z = sort(a, b, places, reach=8, bound=10**10)
        else:
            z = attend(a, k, b, mask=or_itself(bucket_mask(places, places, reach=8), 0))
        (z * z.detach().cos()).sum().backward()
        found_by.append(z.detach())
        gradients.append((a.grad, b.grad))
    tolerance = rounding(terms=3 * length, depth=6, dtype=torch.double)
    torch.testing.assert_close(found_by[1], found_by[0], atol=tolerance, rtol=tolerance)
    for quick_one, other in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(quick_one, other, atol=10 * tolerance, rtol=tolerance)


def test_half_precision_loses_no_more_than_its_inputs_do() -> None:
    """Sums over rounds are kept in 32 bits: the error is that of rounding q, v and the result to 8 bits."""
    q, v, _, places = draw(131, rounds=3, factors=[8])
    q, v = q.bfloat16(), v.bfloat16()
    found_by = []
    for wide in (torch.double, torch.bfloat16):
        a, b = q.to(wide).requires_grad_(), v.to(wide).requires_grad_()
        z = sort(a, b, places, reach=8, bound=10**10)
        assert z.dtype == wide
        z.backward(v.to(wide))
        found_by.append([each.double() for each in (z.detach(), a.grad, b.grad) if each is not None])
    for exact, narrow in zip(*found_by, strict=True):
        assert (narrow - exact).norm() / exact.norm() < torch.finfo(torch.bfloat16).eps


def test_a_far_pair_is_not_found_and_a_token_that_finds_nobody_gives_its_own_value() -> None:
    buckets = torch.tensor([[[[0, 1, 0, 0, 0]]]])
    places, counts = positions_in_buckets(buckets, counts=torch.zeros(1, 1, 1, 2, dtype=torch.long), stride=100)
    assert places.flatten().tolist() == [0, 100, 1, 2, 3]
    assert counts.flatten().tolist() == [4, 1]
    seen = bucket_mask(places, places, reach=2)[0, 0]
    assert [row.nonzero().flatten().tolist() for row in seen] == [[], [], [0], [0, 2], [2, 3]]
    v = torch.randn(1, 1, 5, 4)
    q = torch.randn(1, 1, 5, 4)
    z = sort(q, v, places, reach=2, bound=200)
    torch.testing.assert_close(z[0, 0, :2], v[0, 0, :2])


def test_places_token_by_token_are_those_at_once() -> None:
    torch.manual_seed(1)
    buckets = torch.randint(6, (2, 3, 2, 30))
    nobody = torch.zeros(2, 3, 2, 6, dtype=torch.long)
    at_once, after = positions_in_buckets(buckets, counts=nobody, stride=50)
    counts, parts = nobody, []
    for size, start in ((1, 0), (7, 1), (1, 8), (21, 9)):
        places, counts = positions_in_buckets(buckets[..., start : start + size], counts=counts, stride=50)
        parts.append(places)
    assert torch.equal(torch.cat(parts, -1), at_once)
    assert torch.equal(counts, after)


def test_hashing_is_the_axis_that_a_turned_vector_points_along_most() -> None:
    torch.manual_seed(2)
    x = torch.randn(2, 3, 20, 8)
    rotations = torch.randn(3, 8, 2, 4 + 2)
    turned = torch.einsum("bhtd,hdrn->bhrtn", x, rotations)
    first = torch.cat((turned[..., :4], -turned[..., :4]), -1).argmax(-1)
    second = torch.cat((turned[..., 4:], -turned[..., 4:]), -1).argmax(-1)
    assert torch.equal(hash_vectors(x, rotations, [8, 4]), first + 8 * second)


def test_the_seed_alone_tells_the_rotations() -> None:
    size = {"heads": 2, "width": 4, "rounds": 3, "factors": [4]}
    before = torch.get_rng_state()
    one, same, other = (rotations_of(seed, **size) for seed in (5, 5, 6))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before), "the generator of training is left alone"


def test_near_vectors_share_a_bucket_as_often_as_the_theory_says() -> None:
    """With two buckets on a circle, h is the side of a random line: P(same) = 1 − angle / π."""
    draws = rotations_of(0, heads=1, width=2, rounds=20_000, factors=[2])
    for angle in (0.1, 0.5, 1.0, 2.0, 3.0):
        pair = torch.tensor([[1.0, 0.0], [math.cos(angle), math.sin(angle)]])
        buckets = hash_vectors(pair[None, None], draws, [2])[0, 0]
        share = (buckets[:, 0] == buckets[:, 1]).double().mean().item()
        expected = 1 - angle / math.pi
        assert share == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 20_000))


@pytest.mark.parametrize(("window", "chunk", "factors"), [(64, 64, [2]), (1024, 64, [32]), (65536, 64, [32, 64])])
def test_buckets_hold_half_a_chunk(window: int, chunk: int, factors: list[int]) -> None:
    assert choose_factors(window, chunk) == factors


def test_chunks_are_those_of_the_sorted_rounds_one_after_the_other() -> None:
    """The released way, by brute force: own chunk and the one before, of all rounds in a circle, duplicates and all."""
    q, v, buckets, _ = draw(24, rounds=2, factors=[4])
    z = attend_chunks(q, normalise(q), v, buckets, chunk=4)
    for row, head in ((0, 0), (1, 2)):
        k = normalise(q[row, head])
        order = [sorted(range(24), key=lambda t: (line[t], t)) for line in buckets[row, head].tolist()]
        line = [token for each in order for token in each]
        for i in (0, 5, 23):
            scores, values = [], []
            for r in range(2):
                chunk = line.index(i, r * 24) // 4
                for j in line[4 * chunk : 4 * chunk + 4] + [line[(4 * chunk - 4 + n) % 48] for n in range(4)]:
                    if j <= i:
                        scores.append(q[row, head, i] @ k[j] / math.sqrt(8) - (1e5 if i == j else 0))
                        values.append(v[row, head, j])
            expected = torch.stack(scores).softmax(0) @ torch.stack(values)
            torch.testing.assert_close(z[row, head, i], expected)


def test_chunks_hide_what_follows_in_sixteen_bits_too() -> None:
    q, v, buckets, _ = draw(24, rounds=2, factors=[4])
    exact = attend_chunks(q, normalise(q), v, buckets, chunk=4)
    narrow = attend_chunks(*(each.half() for each in (q, normalise(q), v)), buckets, chunk=4)
    assert (narrow.double() - exact).norm() / exact.norm() < 10 * torch.finfo(torch.half).eps
