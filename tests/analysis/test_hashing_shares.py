"""How often vectors share a bucket, against the theory of a circle; and the picture of it."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest

from lmlab.analysis.hashing import circle_buckets, share_buckets
from lmlab.pages.figures import draw_circles


@pytest.mark.parametrize("rounds", [1, 3])
def test_two_buckets_on_a_circle_are_the_sides_of_a_line(rounds: int) -> None:
    """A random line parts two directions with probability angle / π, in each round anew."""
    degrees = [10.0, 60.0, 120.0, 170.0]
    found = share_buckets(degrees, width=2, buckets=2, rounds=rounds, pairs=4000)
    for angle, fraction in zip(degrees, found, strict=True):
        expected = 1 - (angle / 180) ** rounds
        assert fraction == pytest.approx(expected, abs=5 * math.sqrt(20 * expected * (1 - expected) / 4000) + 0.01)


def test_near_vectors_share_a_bucket_more_often_and_more_rounds_find_more() -> None:
    one = share_buckets([0.0, 10.0, 40.0, 90.0], width=16, buckets=8, rounds=1)
    four = share_buckets([0.0, 10.0, 40.0, 90.0], width=16, buckets=8, rounds=4)
    assert one[0] == four[0] == 1.0
    assert one == sorted(one, reverse=True)
    assert all(more >= less for more, less in zip(four, one, strict=True))


def test_opposite_directions_have_opposite_buckets() -> None:
    for buckets in circle_buckets(rounds=3, buckets=4, steps=360):
        assert all((buckets[place] - buckets[place - 180]) % 4 == 2 for place in range(360))


def test_the_picture_has_each_sector_and_point_once() -> None:
    rounds = [[0] * 90 + [1] * 90 + [2] * 90 + [3] * 90, [0] * 360]
    root = ET.fromstring(draw_circles(rounds, [20, 40]))
    tag = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{tag}path")) == 4 + 1
    assert len(root.findall(f"{tag}circle")) == 4
    texts = [text.text for text in root.findall(f"{tag}text")]
    assert texts.count("x") == texts.count("y") == 2
    assert "round 1: same bucket" in texts
    apart = ET.fromstring(draw_circles(rounds[:1], [20, 100]))
    assert "round 1: different buckets" in [text.text for text in apart.findall(f"{tag}text")]


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"buckets": 3}, "an even number"), ({"width": 1}, "a width of at least 2"), ({"degrees": [200.0]}, "0 to 180")],
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, object], says: str) -> None:
    settings = {"degrees": [10.0], "width": 4, "buckets": 4, **changes}
    with pytest.raises(ValueError, match=says):
        share_buckets(settings.pop("degrees"), **settings)  # type: ignore[arg-type]
