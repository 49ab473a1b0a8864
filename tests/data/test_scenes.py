"""Built-in scenes: what the texts say is what the pictures show, and splits share no content."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from lmlab.data.readers.pictures.scene_files import COUNTS, SIDE, find_scenes
from lmlab.data.readers.pictures.scene_texts import ask, state
from lmlab.data.readers.pictures.scenes import (
    CLEAR,
    COLOURS,
    PARTS,
    SHAPES,
    SIZES,
    UNSEEN,
    Scene,
    Thing,
    describe,
    make_scene,
    paint,
)

SCENES = {part: [make_scene(part, index) for index in range(300)] for part in PARTS}
ALL = [scene for scenes in SCENES.values() for scene in scenes]


def holds(one: Thing, relation: str, two: Thing) -> bool:
    """Whether a relation between two shapes is true, by their places alone."""
    return {
        "left of": one.x < two.x,
        "right of": one.x > two.x,
        "above": one.y < two.y,
        "below": one.y > two.y,
    }[relation]


def named(scene: Scene, words: str) -> list[Thing]:
    """The shapes that have all of these words: sizes, colours and shapes."""
    singular = {f"{shape}es" if shape.endswith("s") else f"{shape}s": shape for shape in SHAPES}
    wanted = {singular.get(word, word) for word in words.split()} - {"shape", "shapes"}
    assert wanted <= {*SIZES, *COLOURS, *SHAPES}, words
    return [thing for thing in scene.things if wanted <= {thing.size, thing.colour, thing.shape}]


def test_a_scene_is_a_function_of_split_index_and_seed() -> None:
    assert make_scene("train", 7) == SCENES["train"][7]
    assert np.array_equal(paint(make_scene("train", 7), 48), paint(SCENES["train"][7], 48))
    assert make_scene("train", 7, seed=1) != make_scene("train", 7)
    with pytest.raises(ValueError, match="scene -1 of 'train'"):
        make_scene("train", -1)


def test_splits_share_no_caption_and_unseen_pairs_are_only_in_theirs() -> None:
    captions = {part: {describe(scene.things) for scene in scenes} for part, scenes in SCENES.items()}
    captions["other seed"] = {describe(make_scene("train", index, seed=5).things) for index in range(300)}
    for one in ("train", "other seed"):
        for two in ("valid", "test", "unseen"):
            assert not captions[one] & captions[two]
    for part, scenes in SCENES.items():
        for scene in scenes:
            unseen = any((thing.colour, thing.shape) in UNSEEN for thing in scene.things)
            assert unseen == (part == "unseen")


def test_shapes_are_inside_do_not_touch_and_differ() -> None:
    assert Counter(len(scene.things) for scene in ALL).keys() == {1, 2, 3}
    for scene in ALL:
        assert len({thing.label for thing in scene.things}) == len(scene.things)
        for number, one in enumerate(scene.things):
            assert min(one.box) > 0
            assert max(one.box) < 1
            for two in scene.things[number + 1 :]:
                assert (one.x - two.x) ** 2 + (one.y - two.y) ** 2 > (one.radius + two.radius) ** 2


def test_captions_are_true() -> None:
    for scene in ALL:
        caption, things = describe(scene.things), scene.things
        labels = re.findall(r"a ((?:small|large) \w+ \w+)", caption)
        assert sorted(labels) == sorted(thing.label for thing in things)
        order = [named(scene, label)[0] for label in labels]
        if len(order) == 3:
            assert order[0].x + CLEAR <= order[1].x
            assert order[1].x + CLEAR <= order[2].x
        elif len(order) == 2:
            (relation,) = re.findall(r"left of|above", caption)
            assert holds(order[0], relation, order[1])
        else:
            for word, true in {"left": things[0].x < 1 / 3, "right": things[0].x > 2 / 3}.items():
                assert (word in caption.split()) == true
            for word, true in {"top": things[0].y < 1 / 3, "bottom": things[0].y > 2 / 3}.items():
                assert (word in caption.split()) == true


def test_answers_are_right() -> None:
    numbers = {"none": 0, "one": 1, "two": 2, "three": 3}
    kinds = Counter()
    for scene, question in [(each, question) for each in ALL for question in ask(each, more=True)]:
        kinds[question.kind] += 1
        text = question.text.removesuffix("?")
        if found := re.fullmatch(r"what (colour|size) is the (.+)", text):
            (thing,) = named(scene, found[2])
            assert question.answer == getattr(thing, found[1])
        elif found := re.fullmatch(r"what is the (.+) shape", text):
            (thing,) = named(scene, found[1])
            assert question.answer == thing.shape
        elif found := re.fullmatch(r"how many (.+) are there", text):
            assert numbers[question.answer] == len(named(scene, found[1]))
        elif found := re.fullmatch(r"is there an? (.+)", text):
            assert question.answer == ("yes" if named(scene, found[1]) else "no")
        elif found := re.fullmatch(r"is the (.+) at the (left|top) or at the (right|bottom)", text):
            (thing,) = named(scene, found[1])
            at = thing.x if found[2] == "left" else thing.y
            assert question.answer == (found[2] if at < 0.5 else found[3])
        else:
            found = re.fullmatch(r"is the (.+) (left of|right of|above|below) the (.+)", text)
            assert found is not None, text
            (one,), (two,) = named(scene, found[1]), named(scene, found[3])
            assert question.answer == ("yes" if holds(one, found[2], two) else "no")
    assert kinds.keys() == {"colour", "shape", "size", "number", "presence", "place", "side"}
    assert min(kinds.values()) > len(ALL) / 12


def test_sentences_are_true_or_false_as_stated() -> None:
    numbers = {"no": 0, "is one": 1, "two": 2, "three": 3}
    for scene in ALL:
        sentence = state(scene)
        if found := re.fullmatch(r"there is an? (.+)", sentence.text):
            true = bool(named(scene, found[1]))
        elif found := re.fullmatch(r"there (?:are )?(no|is one|two|three) (.+)", sentence.text):
            true = len(named(scene, found[2])) == numbers[found[1]]
        else:
            found = re.fullmatch(r"the (.+) is (left of|right of|above|below) the (.+)", sentence.text)
            assert found is not None, sentence.text
            (one,), (two,) = named(scene, found[1]), named(scene, found[3])
            true = holds(one, found[2], two)
        assert sentence.true == true, sentence


def test_words_alone_give_little_away() -> None:
    """Yes and no, true and false are balanced, and no pair of UNSEEN is named where the answer is always no."""
    scenes = [make_scene("train", index) for index in range(2000)]
    questions = [question for scene in scenes for question in ask(scene)]
    for kind in ("presence", "place"):
        answers = Counter(question.answer for question in questions if question.kind == kind)
        assert abs(answers["yes"] / answers.total() - 0.5) < 0.1
    assert abs(np.mean([state(scene).true for scene in scenes]) - 0.5) < 0.05
    texts = " ".join(question.text for question in questions)
    assert not any(f"{colour} {shape}" in texts for colour, shape in UNSEEN)


def test_the_picture_shows_the_shapes() -> None:
    """The colour at the centre of each shape is the nearest to the colour that its label names, in two sizes."""
    names, values = list(COLOURS), np.array(list(COLOURS.values()), float)
    for scene in ALL[::10]:
        for size in (32, 48):
            picture = paint(scene, size)
            assert picture.shape == (size, size, 3)
            for thing in scene.things:
                pixel = picture[int(thing.y * size), int(thing.x * size)].astype(float)
                assert names[int(((values - pixel) ** 2).sum(1).argmin())] == thing.colour


def test_shapes_have_their_forms() -> None:
    """Covered areas by the formulas of geometry, and corners that only some shapes reach."""
    fine = (np.arange(400) + 0.5) / 200 - 1
    u, v = np.broadcast_arrays(fine[None, :], fine[:, None])
    area = {name: float(inside(u, v).mean() * 4) for name, inside in SHAPES.items()}
    inner = 0.45
    expected = {
        "circle": np.pi * 0.95,
        "square": 1.7**2,
        "triangle": 0.55 * 1.8 * 1.8,
        "star": 10 * 0.5 * inner * np.sin(np.pi / 5),
        "cross": 4 * 0.64 * 0.95 - 0.64**2,
    }
    assert area == pytest.approx(expected, rel=0.02)


def test_the_rows_of_a_split_are_made_when_they_are_read() -> None:
    files = find_scenes.__wrapped__("scenes")
    assert files.valid is not None
    scene, row = make_scene("valid", 3), files.valid[3]
    assert row.texts == {"caption": describe(scene.things)}
    assert np.array_equal(row.picture.read(), paint(scene, SIDE))
    assert len(files.valid) == COUNTS["valid"]
    assert files.valid[:2] == list(files.valid)[:2]
    assert "_rows" in vars(files.valid)
    assert "_rows" not in vars(files.train), "no row of this split was read"
