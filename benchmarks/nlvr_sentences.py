"""Synthetic sentences about synthetic scenes, in the patterns of NLVR's training sentences.

NLVR (Suhr et al. 2017) has two kinds of scenes: three towers of at most four blocks, and three boxes with scattered
shapes. A `Statement` is a sentence with a rule that decides whether it is true of a scene. Every sentence gets as many
scenes in which it is true as scenes in which it is false, so the sentence alone says nothing about the label, and the
scene alone little: one with more shapes more often has the one that is named. The patterns were written from the
training and validation sentences.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

COLOURS = {"black": "Black", "blue": "#0099ff", "yellow": "Yellow"}
KINDS = ("circle", "square", "triangle")
SIZES = {"small": 10, "medium": 20, "big": 30}
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven")
SIDE, STEP, GROUND = 100, 21, 80
"""Of a box: its side, the distance between two blocks of a tower, and the upper edge of the lowest block."""
SNAP = 0.2
"""Probability that a scattered shape touches a wall, in each direction."""
TRIES = 60
"""Scenes that are tried for each truth value of a sentence."""


class Shape(NamedTuple):
    """A shape in a box; the fields are those of NLVR's JSON."""

    type: str
    color: str
    size: int
    x_loc: int
    y_loc: int

    def is_a(self, colour: str | None, kind: str | None = None, size: str | None = None) -> bool:
        return (
            (colour is None or self.color == COLOURS[colour])
            and (kind is None or self.type == kind)
            and (size is None or self.size == SIZES[size])
        )

    def walls(self) -> set[str]:
        """The walls of its box that it touches."""
        most = SIDE - self.size
        gaps = {"left": self.x_loc, "top": self.y_loc, "right": most - self.x_loc, "bottom": most - self.y_loc}
        return {name for name, gap in gaps.items() if gap <= 0}


Box = list[Shape]
Scene = list[Box]
Rule = Callable[[Scene], bool]
Draw = random.Random


class Statement(NamedTuple):
    """A sentence, and the rule by which it is true of a scene."""

    text: str
    rule: Rule


class Count(NamedTuple):
    """Words for a number, such as `at least two`, and the numbers that they allow."""

    words: str
    several: bool
    allows: Callable[[int], bool]


def number(value: int, draw: Draw) -> str:
    return draw.choice([str(value), NUMBERS[value]])


def count(draw: Draw, most: int = 3) -> Count:
    """A number alone means exactly as many, as in the training sentences; `a` means at least one."""
    value = 1 if draw.random() < 0.5 else draw.randint(2, most)
    how = draw.choice(["", "", "exactly", "only", "at least", "at least"])
    if value == 1 and not how and draw.random() < 0.6:
        return Count("a", False, lambda found: found >= 1)
    if how == "at least":
        words = f"{draw.choice(['at least', 'at least', 'atleast'])} {number(value, draw)}"
        return Count(words, value > 1, lambda found: found >= value)
    return Count(f"{how} {number(value, draw)}".strip(), value > 1, lambda found: found == value)


def there(draw: Draw, most: int = 3) -> Count:
    """The same after `there is` or `there are`; sometimes none."""
    if draw.random() < 0.06:
        return Count("there is no", False, lambda found: found == 0)
    found = count(draw, most)
    return found._replace(words=f"there {'are' if found.several else 'is'} {found.words}")


def colour_of(draw: Draw) -> str:
    return draw.choice(list(COLOURS))


# Towers


class Property(NamedTuple):
    """What can follow `a tower with`, and its rule."""

    words: str
    holds: Callable[[Box], bool]


def end_block(tower: Box, end: str) -> Shape:
    """The block at the top, or at the base or bottom; blocks are listed from the base."""
    return tower[-1 if end == "top" else 0]


def above(tower: Box, upper: str, lower: str) -> bool:
    """Whether a block is directly above another."""
    return any(tower[at + 1].is_a(upper) and one.is_a(lower) for at, one in enumerate(tower[:-1]))


def coloured(tower: Box, colour: str) -> int:
    return sum(block.is_a(colour) for block in tower)


def tower_property(draw: Draw) -> Property:
    makers = (_end, _end, _end, _height, _blocks, _order, _mixed, _only, _both)
    return draw.choice(makers)(draw)


def _end(draw: Draw) -> Property:
    colour, end = colour_of(draw), draw.choice(["top", "top", "base", "base", "bottom"])
    at = draw.choice(["at the", "at the", "at the", "at"])
    return Property(f"a {colour} block {at} {end}", lambda tower: end_block(tower, end).is_a(colour))


def _height(draw: Draw) -> Property:
    size, how = draw.randint(1, 4), draw.choice(["", "only", "exactly", "at least", "more than"])
    holds = {"at least": lambda n: n >= size, "more than": lambda n: n > size}.get(how, lambda n: n == size)
    words = f"{how} {number(size, draw)} block{'s' * (size > 1)}".strip()
    return Property(words, lambda tower: holds(len(tower)))


def _blocks(draw: Draw) -> Property:
    colour, found = colour_of(draw), count(draw, 3)
    together = found.several and draw.random() < 0.15
    words = f"{found.words} {colour} block{'s' * found.several}{' stacked together' * together}"
    return Property(words, lambda tower: found.allows(coloured(tower, colour)))


def _order(draw: Draw) -> Property:
    one, two = colour_of(draw), colour_of(draw)
    word = draw.choice(["above", "over", "on top of", "on", "below", "under"])
    upper, lower = (two, one) if word in ("below", "under") else (one, two)
    return Property(f"a {one} block {word} a {two} block", lambda tower: above(tower, upper, lower))


def _mixed(draw: Draw) -> Property:
    one, two = draw.sample(list(COLOURS), 2)
    least = draw.choice([1, 1, 2])
    other = f"a {two} block" if least == 1 else f"{number(2, draw)} {two} blocks"
    return Property(
        f"a {one} block and {other}", lambda tower: coloured(tower, one) >= 1 and coloured(tower, two) >= least
    )


def _only(draw: Draw) -> Property:
    one, two, third = draw.sample(list(COLOURS), 3)
    word = draw.choice(["colors", "colours"])
    return draw.choice(
        [
            Property(
                f"only {one} and {two} blocks",
                lambda tower: len({each.color for each in tower}) == 2 and not coloured(tower, third),
            ),
            Property(f"only {one} blocks", lambda tower: coloured(tower, one) == len(tower)),
            Property(f"blocks of all {number(3, draw)} {word}", lambda tower: len({each.color for each in tower}) == 3),
            Property(
                f"a {one} block, a {two} block and a {third} block",
                lambda tower: len({each.color for each in tower}) == 3,
            ),
            Property("all the blocks of the same color", lambda tower: len({each.color for each in tower}) == 1),
        ]
    )


def _both(draw: Draw) -> Property:
    """Two properties at once."""
    one, two = _height(draw), draw.choice([_end, _blocks])(draw)
    joined = draw.choice(["and", "with", "having", "and it has"])
    return Property(f"{one.words} {joined} {two.words}", lambda tower: one.holds(tower) and two.holds(tower))


def about_towers(draw: Draw) -> Statement:
    makers = (_towers, _towers, _towers, _towers, _ends, _ends, _ends, _tower_blocks, _one_on_another, _the_tower)
    return draw.choice((*makers, _every_tower, _tower_in_box, _second, _same_ends))(draw)


def _towers(draw: Draw) -> Statement:
    found, own = there(draw, 3), tower_property(draw)
    link = draw.choice(["with", "with", "with", "which has", "having", "that has", "that contains"])
    text = f"{found.words} tower{'s' * found.several} {link} {own.words}"
    return Statement(text, lambda scene: found.allows(sum(own.holds(tower) for tower in scene)))


def _ends(draw: Draw) -> Statement:
    """Of blocks as the top or base of a tower."""
    found, colour, end = there(draw, 3), colour_of(draw), draw.choice(["top", "base"])
    own = _height(draw) if draw.random() < 0.4 else None
    text = f"{found.words} {colour} block{'s' * found.several} as the {end} of a tower"
    text += f" with {own.words}" if own else ""
    return Statement(
        text,
        lambda scene: found.allows(
            sum(end_block(each, end).is_a(colour) and (own is None or own.holds(each)) for each in scene)
        ),
    )


def _tower_blocks(draw: Draw) -> Statement:
    found, colour = there(draw, 6), colour_of(draw)
    noun = draw.choice(["block", "block", "block", "item", "square"])
    return Statement(
        f"{found.words} {colour} {noun}{'s' * found.several}",
        lambda scene: found.allows(sum(coloured(tower, colour) for tower in scene)),
    )


def _one_on_another(draw: Draw) -> Statement:
    own = _order(draw)
    one, rest = own.words.split(" ", 1)
    opening, right = draw.choice(
        [("there is a", True), ("there is a", True), ("there is at least one", True), ("there is no", False)]
    )
    assert one == "a"
    return Statement(f"{opening} {rest}", lambda scene: any(own.holds(tower) for tower in scene) is right)


def _the_tower(draw: Draw) -> Statement:
    size, colour, end = draw.randint(1, 4), colour_of(draw), draw.choice(["top", "base"])
    said = NUMBERS[size]
    noun = "block" + "s" * (size > 1)
    text = draw.choice(
        [
            f"the {end} of a {said} {noun} tower is {colour}",
            f"the tower with {said} {noun} has a {colour} block at the {end}",
            f"there is a {said} {noun} tower which has a {colour} block at the {end}",
        ]
    )
    return Statement(text, lambda scene: any(len(t) == size and end_block(t, end).is_a(colour) for t in scene))


def _every_tower(draw: Draw) -> Statement:
    opening = draw.choice(["all 3 towers", "all towers", "all the towers", "each tower"])
    verb = "has" if opening.startswith("each") else draw.choice(["have", "contain"])
    own = draw.choice([_end, _blocks])(draw)
    return Statement(f"{opening} {verb} {own.words}", lambda scene: all(own.holds(tower) for tower in scene))


def _tower_in_box(draw: Draw) -> Statement:
    """Towers as boxes with items, and their tops."""
    colour, size = colour_of(draw), draw.randint(1, 4)
    word = draw.choice(["colors", "colours"])
    return draw.choice(
        [
            Statement(
                f"there is a box with {number(size, draw)} items and {draw.choice(['the ', ''])}{colour} one "
                f"{draw.choice(['is ', ''])}on top",
                lambda scene: any(len(t) == size and t[-1].is_a(colour) for t in scene),
            ),
            Statement(
                f"there is a box with all {number(3, draw)} {word} and a {colour} item on top",
                lambda scene: any(len({b.color for b in t}) == 3 and t[-1].is_a(colour) for t in scene),
            ),
            Statement(f"there is a {colour} item on top", lambda scene: any(t[-1].is_a(colour) for t in scene)),
            Statement(
                f"there is a {colour} tower with only one block",
                lambda scene: any(len(t) == 1 and t[0].is_a(colour) for t in scene),
            ),
        ]
    )


def _second(draw: Draw) -> Statement:
    colour, link = colour_of(draw), draw.choice(["that", "where", "in which"])
    return Statement(
        f"there is a tower {link} the second block from the base is {colour}",
        lambda scene: any(len(t) > 1 and t[1].is_a(colour) for t in scene),
    )


def _same_ends(draw: Draw) -> Statement:
    end, how = draw.choice(["top", "base"]), draw.choice(["only", "exactly", "at least"])
    allows = (lambda same: same >= 2) if how == "at least" else (lambda same: same == 2)

    def rule(scene: Scene) -> bool:
        ends = [end_block(tower, end).color for tower in scene]
        return allows(max(ends.count(each) for each in ends))

    return Statement(f"there are {how} two towers which have the same {end} color", rule)


# Scattered shapes


class Kind(NamedTuple):
    """Words for some shapes, such as `small blue square`, and whether a shape is one of them."""

    words: str
    plural: str
    fits: Callable[[Shape], bool]

    def counted(self, found: Count) -> str:
        return f"{found.words} {self.plural if found.several else self.words}"


def kind_of(draw: Draw, *, walls: float = 0.0) -> Kind:
    """A kind of shape; with the probability `walls` also where it is."""
    colour = draw.choice([None, *COLOURS, *COLOURS])
    kind = draw.choice([None, *KINDS]) if colour else draw.choice(KINDS)
    size = draw.choice(list(SIZES)) if draw.random() < 0.08 else None
    noun = kind or draw.choice(["item", "object", "item", "object", "block"])
    name = " ".join(filter(None, (size, colour, noun)))
    where, holds = wall_phrase(draw) if draw.random() < walls else ("", lambda shape: True)
    tail = f" {where}" if where else ""
    return Kind(name + tail, f"{name}s{tail}", lambda shape: shape.is_a(colour, kind, size) and holds(shape))


def wall_phrase(draw: Draw) -> tuple[str, Callable[[Shape], bool]]:
    touching = draw.choice(["touching", "touching", "closely touching"])
    chosen = draw.random()
    if chosen < 0.4:
        wall = draw.choice(["the wall", "the edge", "the side", "an edge", "the wall", "the edge"])
        return f"{touching} {wall}", lambda shape: bool(shape.walls())
    if chosen < 0.65:
        wall = draw.choice(["any edge", "any edge", "the wall", "the edge", "any wall"])
        return f"not touching {wall}", lambda shape: not shape.walls()
    if chosen < 0.75:
        corner = draw.choice(["a corner", "the corner", "a box corner"])
        return f"{touching} {corner}", lambda shape: len(shape.walls()) > 1
    if chosen < 0.8:
        return "touching the base", lambda shape: "bottom" in shape.walls()
    wall = draw.choice(["bottom", "bottom", "top", "left", "right"])
    ending = draw.choice([" of a box", " of the box", " wall", " wall of a box"])
    return f"{touching} {draw.choice(['the ', 'the ', ''])}{wall}{ending}", lambda shape: wall in shape.walls()


def about_shapes(draw: Draw) -> Statement:
    makers = (_number, _number, _number, _number, _boxes, _boxes, _boxes, _box_colours, _gray, _every_box)
    return draw.choice((*makers, _none_or_all))(draw)


def _number(draw: Draw) -> Statement:
    found, own = there(draw, 5), kind_of(draw, walls=0.75)
    return Statement(
        own.counted(found), lambda scene: found.allows(sum(own.fits(each) for box in scene for each in box))
    )


def _boxes(draw: Draw) -> Statement:
    """Of boxes with a number of shapes of a kind, and perhaps of another kind."""
    found, gray = there(draw, 3), draw.choice(["", "", "grey "])
    wanted = [(count(draw, 4), kind_of(draw, walls=0.3))]
    if draw.random() < 0.4:
        wanted.append((count(draw, 3), kind_of(draw)))
    words = " and ".join(kind.counted(how) for how, kind in wanted)
    text = f"{found.words} {gray}box{'es' * found.several} with {words}"

    def holds(box: Box) -> bool:
        return all(how.allows(sum(kind.fits(each) for each in box)) for how, kind in wanted)

    return Statement(text, lambda scene: found.allows(sum(holds(box) for box in scene)))


def _box_colours(draw: Draw) -> Statement:
    found = there(draw, 3)
    one, two, _ = draw.sample(list(COLOURS), 3)
    word, noun = draw.choice(["color", "colour"]), draw.choice(["items", "objects"])
    pair, both = {COLOURS[one], COLOURS[two]}, f"{one} and {two}"
    words, test = draw.choice(
        [
            (f"{noun} of only {both} {word}", lambda colours: colours == pair),
            (f"only {both} {noun}", lambda colours: colours == pair),
            (f"only {one} {noun}", lambda colours: colours == {COLOURS[one]}),
            (f"{noun} of only one {word}", lambda colours: len(colours) == 1),
            (f"{noun} of all {number(3, draw)} {word}s", lambda colours: len(colours) == 3),
        ]
    )
    return Statement(
        f"{found.words} box{'es' * found.several} with {words}",
        lambda scene: found.allows(sum(test({each.color for each in box}) for box in scene)),
    )


def _gray(draw: Draw) -> Statement:
    """Of one of the boxes and the number of all its shapes."""
    box, verb = draw.choice(["grey box", "grey square", "box"]), draw.choice(["has", "contains"])
    how, size = draw.choice(["exactly", "exactly", "at least"]), draw.randint(1, 7)
    opening = draw.choice([f"one of the {box} {verb}", f"there is a {box} which {verb}", f"there is a {box} with"])
    noun = draw.choice(["object", "item"]) + "s" * (size > 1)
    text, own = f"{opening} {how} {number(size, draw)} {noun}", kind_of(draw)
    named = draw.random() < 0.5
    text += f" one of which is a {own.words}" if named else ""

    def holds(each: Box) -> bool:
        right = len(each) == size if how == "exactly" else len(each) >= size
        return right and (not named or any(own.fits(shape) for shape in each))

    return Statement(text, lambda scene: any(holds(each) for each in scene))


def _every_box(draw: Draw) -> Statement:
    found, own = count(draw, 2), kind_of(draw)
    opening = f"{draw.choice(['each', 'every'])} box {draw.choice(['has', 'contains'])}"
    return Statement(
        f"{opening} {own.counted(found)}",
        lambda scene: all(found.allows(sum(own.fits(each) for each in box)) for box in scene),
    )


def _none_or_all(draw: Draw) -> Statement:
    own, wall = kind_of(draw), draw.choice(["the wall", "the edge", "an edge", "any edge"])

    def chosen(scene: Scene) -> Box:
        return [each for box in scene for each in box if own.fits(each)]

    return draw.choice(
        [
            Statement(f"none of the {own.plural} are touching {wall}", lambda s: not any(e.walls() for e in chosen(s))),
            Statement(f"{own.plural} are not touching {wall}", lambda s: not any(e.walls() for e in chosen(s))),
            Statement(f"all {own.plural} are touching {wall}", lambda s: all(e.walls() for e in chosen(s))),
            Statement(
                f"all {own.plural} are in the same box",
                lambda scene: sum(any(own.fits(each) for each in box) for box in scene) == 1,
            ),
            Statement(
                f"all {number(3, draw)} different colors are touching {wall}",
                lambda scene: len({each.color for box in scene for each in box if each.walls()}) == 3,
            ),
        ]
    )


def about_few(draw: Draw) -> Statement:
    own = kind_of(draw, walls=0.3)
    return Statement(f"there is a {own.words}", lambda scene: any(own.fits(each) for box in scene for each in box))


# Scenes


def towers(draw: Draw) -> Scene:
    """Three towers of one to four blocks."""
    return [
        [Shape("square", draw.choice(list(COLOURS.values())), 20, 40, GROUND - STEP * at) for at in range(size)]
        for size in (draw.randint(1, 4) for _ in range(3))
    ]


def scattered(draw: Draw) -> Scene:
    """Three boxes of one to seven shapes that do not overlap."""
    return [_scatter(draw.randint(1, 7), draw) for _ in range(3)]


def _scatter(size: int, draw: Draw) -> Box:
    box: Box = []
    while len(box) < size:
        side = draw.choice(list(SIZES.values()))
        x, y = (_snap(SIDE - side, draw) for _ in range(2))
        if all(
            max(abs(2 * (x - o.x_loc) + side - o.size), abs(2 * (y - o.y_loc) + side - o.size)) >= side + o.size
            for o in box
        ):
            box.append(Shape(draw.choice(KINDS), draw.choice(list(COLOURS.values())), side, x, y))
    return box


def _snap(most: int, draw: Draw) -> int:
    return draw.choice([0, most]) if draw.random() < SNAP else draw.randint(0, most)


def few(draw: Draw) -> Scene:
    """One or two shapes in one of the boxes."""
    boxes: Scene = [[], [], []]
    boxes[draw.randrange(3)] = _scatter(draw.randint(1, 2), draw)
    return boxes


# Pairs

EASY = 0.15
"""Fraction of the sentences about few shapes: from them it is learnt which word names which region."""
TOWERS = 0.66
"""Fraction of the other sentences that are about towers, as in NLVR."""


def synthetic(pairs: int, seed: int = 0, *, easy: float = EASY) -> Iterator[dict[str, Any]]:
    """Rows of NLVR: each sentence with a scene in which it is true, and one in which it is false.

    `easy` is the fraction of the sentences that are about few shapes.
    """
    draw = random.Random(seed)
    while pairs > 0:
        statement, make = choose(draw, easy)
        found: dict[bool, Scene] = {}
        for _ in range(TRIES):
            scene = make(draw)
            found.setdefault(statement.rule(scene), scene)
            if len(found) == 2:
                break
        if len(found) < 2:
            continue
        pairs -= 1
        text = spell(statement.text, draw)
        for true in draw.sample([True, False], 2):
            boxes = [[shape._asdict() for shape in box] for box in found[true]]
            yield {"sentence": text, "label": str(true).lower(), "structured_rep": boxes}


def choose(draw: Draw, easy: float) -> tuple[Statement, Callable[[Draw], Scene]]:
    """A statement, and the kind of scenes that it is about."""
    if draw.random() < easy:
        return about_few(draw), few
    return (about_towers(draw), towers) if draw.random() < TOWERS else (about_shapes(draw), scattered)


def spell(text: str, draw: Draw) -> str:
    """With or without a capital and a full stop; as in NLVR's file, an `A` at the beginning is missing."""
    text = text[1:] if text.startswith("a") else text
    text = text[0].upper() + text[1:] if draw.random() < 0.5 else text
    return text + "." * (draw.random() < 0.5)
