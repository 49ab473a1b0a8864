"""Questions with answers, and true or false sentences, about the scenes of scenes.py.

A text is a pure function of its scene. Whether the answer to a question is yes, or a sentence true, is decided by a
fair coin before the text is made, and false ones name colours, shapes and numbers of their own scene where they can:
words alone give little away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from lmlab.data.readers.pictures.scenes import CLEAR, COLOURS, SHAPES, SIZES, UNSEEN, VERSION, Scene, Thing

NUMBERS = ("no", "one", "two", "three")
Rng = np.random.Generator
T = TypeVar("T")


class SceneQuestion(NamedTuple):
    """A question about a scene."""

    kind: str  # colour, shape, size, number, presence, place or side
    text: str
    answer: str


class SceneSentence(NamedTuple):
    """A sentence about a scene."""

    kind: str  # presence, number or place
    text: str
    true: bool


class ShapeCount(NamedTuple):
    """Some of the shapes of a scene by what they have in common, and how many there are."""

    noun: str  # plural, such as `red shapes`
    singular: str
    number: int


def ask(scene: Scene, *, more: bool = False) -> list[SceneQuestion]:
    """Return the questions of a scene: one of each kind that it allows; with `more` up to 16, to learn from.

    Most of the further ones are about places, which need two shapes to be found and compared: from one such question
    about each scene, answers are learnt by heart.
    """
    rng = _generator(scene, 2)
    makers = (_ask_colour, _ask_shape, _ask_size, _ask_number, _ask_presence, _ask_place, _ask_side)
    further = (*makers, _ask_place, _ask_place) if more else ()
    found = (make(scene.things, rng) for make in (*makers, *further))
    return list({question.text: question for question in found if question is not None}.values())


def state(scene: Scene) -> SceneSentence:
    """Return the sentence of a scene: true in half of the scenes."""
    rng = _generator(scene, 3)
    true = bool(rng.integers(2))
    makers = (_state_presence, _state_number, _state_place)
    for number in rng.permutation(len(makers)):
        if (sentence := makers[number](scene.things, rng, true)) is not None:
            return sentence
    raise AssertionError("the number of shapes can always be stated")


def _generator(scene: Scene, purpose: int) -> Rng:
    return np.random.default_rng([VERSION, *scene.seed, purpose])


def _choose(rng: Rng, values: Sequence[T]) -> T:
    return values[int(rng.integers(len(values)))]


def _unique(things: Sequence[Thing], *fields: str) -> Iterator[tuple[Thing, str]]:
    """Yield the things that no other equals in these fields, with the fields in words."""
    words = [" ".join(str(getattr(thing, field)) for field in fields) for thing in things]
    yield from ((thing, name) for thing, name in zip(things, words, strict=True) if words.count(name) == 1)


def _ask_colour(things: Sequence[Thing], rng: Rng) -> SceneQuestion | None:
    known = [*_unique(things, "shape"), *_unique(things, "size", "shape")]
    if not known:
        return None
    thing, name = _choose(rng, known)
    return SceneQuestion("colour", f"what colour is the {name}?", thing.colour)


def _ask_shape(things: Sequence[Thing], rng: Rng) -> SceneQuestion | None:
    known = [*_unique(things, "colour"), *_unique(things, "size", "colour")]
    if not known:
        return None
    thing, name = _choose(rng, known)
    return SceneQuestion("shape", f"what is the {name} shape?", thing.shape)


def _ask_size(things: Sequence[Thing], rng: Rng) -> SceneQuestion | None:
    known = [*_unique(things, "shape"), *_unique(things, "colour", "shape")]
    if not known:
        return None
    size = _choose(rng, sorted({thing.size for thing, _ in known}))
    thing, name = _choose(rng, [(thing, name) for thing, name in known if thing.size == size])
    return SceneQuestion("size", f"what size is the {name}?", thing.size)


def _ask_number(things: Sequence[Thing], rng: Rng) -> SceneQuestion:
    counted = _choose_number(_count(things), rng)
    answer = NUMBERS[counted.number] if counted.number else "none"
    return SceneQuestion("number", f"how many {counted.noun} are there?", answer)


def _ask_presence(things: Sequence[Thing], rng: Rng) -> SceneQuestion:
    present = bool(rng.integers(2))
    return SceneQuestion("presence", f"is there {_sample_thing(things, rng, present)}?", "yes" if present else "no")


def _ask_place(things: Sequence[Thing], rng: Rng) -> SceneQuestion | None:
    true = bool(rng.integers(2))
    if (words := _relate(things, rng, true)) is None:
        return None
    one, relation, two = words
    return SceneQuestion("place", f"is the {one} {relation} the {two}?", "yes" if true else "no")


def _ask_side(things: Sequence[Thing], rng: Rng) -> SceneQuestion | None:
    """In which half of the picture a thing is: one thing is found, and its place is read."""
    known: list[SceneQuestion] = []
    for thing, name in [*_unique(things, "shape"), *_unique(things, "colour", "shape")]:
        for at, low, high in ((thing.x, "left", "right"), (thing.y, "top", "bottom")):
            if abs(at - 0.5) >= CLEAR / 2:
                text = f"is the {name} at the {low} or at the {high}?"
                known.append(SceneQuestion("side", text, low if at < 0.5 else high))
    return _choose(rng, known) if known else None


def _state_presence(things: Sequence[Thing], rng: Rng, true: bool) -> SceneSentence:
    return SceneSentence("presence", f"there is {_sample_thing(things, rng, true)}", true)


def _state_number(things: Sequence[Thing], rng: Rng, true: bool) -> SceneSentence:
    found = _count(things)
    counted = _choose_number(found, rng)
    number = counted.number
    if not true:
        counted = _choose_number([other for other in found if other.number != number], rng)
    noun = f"is one {counted.singular}" if number == 1 else f"are {NUMBERS[number]} {counted.noun}"
    return SceneSentence("number", f"there {noun}", true)


def _state_place(things: Sequence[Thing], rng: Rng, true: bool) -> SceneSentence | None:
    if (words := _relate(things, rng, true)) is None:
        return None
    one, relation, two = words
    return SceneSentence("place", f"the {one} is {relation} the {two}", true)


def _count(things: Sequence[Thing]) -> list[ShapeCount]:
    """Return the number of all shapes, and of those of each kind, colour and size."""
    found = [ShapeCount("shapes", "shape", len(things))]
    for shape in SHAPES:
        plural = f"{shape}es" if shape.endswith("s") else f"{shape}s"
        found.append(ShapeCount(plural, shape, sum(thing.shape == shape for thing in things)))
    for colour in COLOURS:
        found.append(ShapeCount(f"{colour} shapes", f"{colour} shape", sum(thing.colour == colour for thing in things)))
    for size in SIZES:
        found.append(ShapeCount(f"{size} shapes", f"{size} shape", sum(thing.size == size for thing in things)))
    return found


def _choose_number(found: Sequence[ShapeCount], rng: Rng) -> ShapeCount:
    """Return one of these: first the number is sampled, then what is counted, so that small numbers are as frequent."""
    number = _choose(rng, sorted({counted.number for counted in found}))
    return _choose(rng, [counted for counted in found if counted.number == number])


def _sample_thing(things: Sequence[Thing], rng: Rng, present: bool) -> str:
    """Return colour and shape of a thing that is there, or of one that is not but has a colour or shape that is.

    Pairs of `UNSEEN` are named only where the scene has one: elsewhere the answer would always be no.
    """
    pairs = {(thing.colour, thing.shape) for thing in things}
    near = {(colour, shape) for colour, _ in pairs for shape in SHAPES}
    near |= {(colour, shape) for _, shape in pairs for colour in COLOURS}
    unnamed = frozenset() if pairs & UNSEEN else UNSEEN
    colour, shape = _choose(rng, sorted(pairs if present else near - pairs - unnamed))
    return f"{'an' if colour[0] in 'aeiou' else 'a'} {colour} {shape}"


def _relate(things: Sequence[Thing], rng: Rng, true: bool) -> tuple[str, str, str] | None:
    """Return a thing, a relation and another thing, such that the relation holds or does not hold."""
    names = dict([*_unique(things, "colour", "shape"), *_unique(things, "shape")])
    found: list[tuple[str, str, str]] = []
    for one, first in names.items():
        for two, second in names.items():
            if two.x - one.x >= CLEAR:
                found += [(first, "left of", second), (second, "right of", first)]
            if two.y - one.y >= CLEAR:
                found += [(first, "above", second), (second, "below", first)]
    if not found:
        return None
    one_name, relation, two_name = _choose(rng, found)
    return (one_name, relation, two_name) if true else (two_name, relation, one_name)
