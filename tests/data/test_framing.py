"""Whole batches in their frame: the same rows as `Frame` gives for one item after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlab.data.loaders.framing import FlatTexts, frame_rows
from lmlab.tokenizers.frames import Frame, collate

SPECIALS = {"cls": 90, "sep": 91, "boundary": 92}
TEMPLATES = ["cls:0 a:0 sep:0 b:1 sep:1", "sep cls a sep [sep b sep]", "a:1 boundary", "boundary a [b cls] sep", "b a"]
PAD = 99


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(TEMPLATES),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from(["a", "b", "ab"]),
)
def test_the_rows_are_those_of_the_frame(
    template: str, sizes: list[tuple[int, int]], backwards: bool, letters: str
) -> None:
    frame = Frame(
        templates={"tokens": template},
        specials={"tokens": SPECIALS},
        backwards=("tokens",) if backwards else (),
    )
    letters = "".join(letter for letter in letters if letter in template.replace("boundary", ""))
    if not letters or not (frame.overhead("tokens", letters) or any(map(sum, sizes))):
        return
    stream = np.arange(80, dtype=np.uint16)
    lengths = {"a": np.array([a for a, _ in sizes]), "b": np.array([b for _, b in sizes])}
    starts = {letter: (7 * np.arange(len(sizes)) + place) % 60 for place, letter in enumerate("ab")}
    found = frame_rows(
        frame, "tokens", {letter: FlatTexts(stream, starts[letter], lengths[letter]) for letter in letters}, pad=PAD
    )
    items = [
        {letter: stream[starts[letter][i] : starts[letter][i] + lengths[letter][i]] for letter in letters}
        for i in range(len(sizes))
    ]
    expected = collate(frame.rows(items), pad=PAD)
    assert found.tokens.tolist() == expected["tokens"].tolist()
    assert found.lengths.tolist() == expected["lengths"].tolist()
    if found.segments is not None:
        assert found.segments.tolist() == expected["segments"].tolist()
    else:
        assert "segments" not in expected or not expected["segments"].any()
    for special in {slot.name for slot, _ in found.begins if not slot.is_part}:
        places = found.position_of(special)
        assert found.tokens[np.arange(len(sizes)), places].tolist() == [SPECIALS[special]] * len(sizes)
        sizes_of = ({letter: int(lengths[letter][i]) for letter in letters} for i in range(len(sizes)))
        assert places.tolist() == [frame.position_of(special, "tokens", each) for each in sizes_of]


def test_a_fixed_width_and_what_is_missing() -> None:
    frame = Frame(templates={"tokens": "cls a sep"}, specials={"tokens": {"cls": 1}})
    part = {"a": FlatTexts(np.array([5, 6, 7]), np.array([0, 2]), np.array([2, 1]))}
    with pytest.raises(ValueError, match="no token for sep"):
        frame_rows(frame, "tokens", part)
    whole = Frame(templates={"tokens": "cls a sep"}, specials={"tokens": {"cls": 1, "sep": 2}})
    rows = frame_rows(whole, "tokens", part, width=6)
    assert rows.tokens.tolist() == [[1, 5, 6, 2, 0, 0], [1, 7, 2, 0, 0, 0]]
    assert rows.begin_of("a").tolist() == [1, 1]
    for position_of in (lambda: rows.position_of("mask"), lambda: whole.position_of("mask", "tokens", {"a": 3})):
        with pytest.raises(ValueError, match="no mask in"):
            position_of()
