"""Schemes of tags: recognised, checked and turned into one another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmlab.data.readers.labelled.tag_schemes import (
    SCHEMES,
    SchemeName,
    TaggedSpan,
    are_legal,
    convert,
    find_fault,
    find_scheme,
    spans,
    write_tags,
)

WRITTEN: dict[SchemeName, str] = {
    # two touching spans of a kind, one of another, one of three words: by hand
    "IOB1": "I-PER B-PER I-ORG O I-LOC I-LOC I-LOC",
    "IOB2": "B-PER B-PER B-ORG O B-LOC I-LOC I-LOC",
    "IOBES": "S-PER S-PER S-ORG O B-LOC I-LOC E-LOC",
    "BILOU": "U-PER U-PER U-ORG O B-LOC I-LOC L-LOC",
}
MARKED = [TaggedSpan("PER", 0, 1), TaggedSpan("PER", 1, 2), TaggedSpan("ORG", 2, 3), TaggedSpan("LOC", 4, 7)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme_by_hand(scheme: SchemeName) -> None:
    tags = WRITTEN[scheme].split()
    assert find_scheme([tags]) == scheme
    assert spans(tags, scheme=scheme) == MARKED
    assert write_tags(MARKED, 7, scheme=scheme) == tuple(tags)
    for other in SCHEMES:
        assert convert(tags, source=scheme, target=other) == tuple(WRITTEN[other].split())


@st.composite
def marked_words(draw: st.DrawFn) -> tuple[list[TaggedSpan], int]:
    found, place = [], 0
    for _ in range(draw(st.integers(0, 6))):
        place += draw(st.integers(0, 2))
        end = place + draw(st.integers(1, 3))
        found.append(TaggedSpan(draw(st.sampled_from(["PER", "LOC", "A-B", ""])), place, end))
        place = end
    return found, place + draw(st.integers(0, 2))


@given(marked_words(), st.sampled_from(SCHEMES))
def test_spans_survive_every_scheme(marked: tuple[list[TaggedSpan], int], scheme: SchemeName) -> None:
    found, length = marked
    tags = write_tags(found, length, scheme=scheme)
    assert spans(tags, scheme=scheme) == found
    assert are_legal([tags], scheme)


@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=8))
def test_any_tags_have_the_spans_that_conlleval_sees(tags: list[str]) -> None:
    """A span begins at B, and at I after O or after another kind: brute force over all places."""
    expected = []
    for start, tag in enumerate(tags):
        before = tags[start - 1] if start else "O"
        if tag == "O" or not (tag[0] == "B" or before == "O" or before[2:] != tag[2:]):
            continue
        end = start + 1
        while end < len(tags) and tags[end] == f"I-{tag[2:]}":
            end += 1
        expected.append(TaggedSpan(tag[2:], start, end))
    assert spans(tags) == expected


@pytest.mark.parametrize(
    ("tags", "scheme", "place"),
    [
        ("O I-PER", "IOB2", 1),
        ("B-PER I-LOC", "IOB2", 1),
        ("O B-PER", "IOB1", 1),
        ("O E-PER", "IOBES", 1),
        ("B-PER O", "IOBES", 1),
        ("B-PER E-LOC", "IOBES", 1),
        ("S-PER I-PER", "IOBES", 1),
        ("O B-PER", "IOBES", 1),  # the sentence ends inside it
        ("O L-PER", "BILOU", 1),
        ("B-PER X-PER", "IOB2", 1),
        ("B-PER PER", "IOB2", 1),
        ("O E-PER", "IOB2", 1),
    ],
)
def test_tags_that_are_not_legal_are_found(tags: str, scheme: SchemeName, place: int) -> None:
    fault = find_fault(tags.split(), scheme)
    assert fault is not None
    assert fault.position == place
    assert not are_legal([tags.split()], scheme)


def test_what_is_legal_is_not_complained_of() -> None:
    assert find_fault(["I-PER", "I-PER", "B-PER", "O", "I-LOC"], "IOB1") is None
    assert find_fault(["B", "I", "O", "B"], "IOB2") is None
    assert find_fault([], "IOB2") is None


def test_plain_tags_have_no_scheme() -> None:
    assert find_scheme([["DT", "NN", "-LRB-", "VBZ"]]) is None
    assert find_scheme([["NOUN", "I", "O"]]) is None
    assert find_scheme([["B", "I", "O"]]) == "IOB2"
    assert find_scheme([["O", "O"]]) is None
    assert find_scheme([]) is None


def test_spans_that_overlap_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="do not overlap"):
        write_tags([TaggedSpan("A", 0, 2), TaggedSpan("B", 1, 3)], 3)
    with pytest.raises(ValueError, match="within the 2 words"):
        write_tags([TaggedSpan("A", 1, 3)], 2)
