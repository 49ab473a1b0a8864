"""A piano roll: notes as bars over time, with arcs from notes to the earlier notes that they attend to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup

from lmlab.pages.figures.palette import PALETTE
from lmlab.pages.figures.svg import LINE, SOFT, drawing, element, label, tooltip

WIDTH, MARGIN, ROW, ARCS = 900.0, 36.0, 5.0, 90.0
"""Pixels: width of the drawing, its margin, the height of a semitone, the room for arcs."""


class RollNote(NamedTuple):
    """A bar of a piano roll."""

    start: float  # in seconds
    end: float
    pitch: int
    given: bool = False  # whether it belongs to the beginning that was given


class RollArc(NamedTuple):
    """A line from a note to an earlier one."""

    later: float  # in seconds
    earlier: float
    weight: float


@dataclass(frozen=True)
class PianoRoll:
    """Notes over time; those of a given beginning are grey."""

    title: str
    notes: Sequence[RollNote]
    arcs: Sequence[RollArc] = ()

    @property
    def inches(self) -> tuple[float, float]:
        return 12.0, 4.0

    @property
    def _pitches(self) -> tuple[int, int]:
        pitches = [note.pitch for note in self.notes] or [60]
        return min(pitches) - 1, max(pitches) + 1

    @property
    def _seconds(self) -> float:
        return max([note.end for note in self.notes], default=1.0) or 1.0

    def html(self) -> Markup:
        low, high = self._pitches
        height = ARCS + (high - low + 1) * ROW + MARGIN
        return drawing(self._parts(low, high), width=WIDTH, height=height, title=self.title)

    def _parts(self, low: int, high: int) -> Iterator[Markup]:
        scale = (WIDTH - 2 * MARGIN) / self._seconds

        def x(seconds: float) -> float:
            return MARGIN + seconds * scale

        def y(pitch: int) -> float:
            return ARCS + (high - pitch) * ROW

        for pitch in range(low, high + 1):
            if pitch % 12 == 0:
                yield element("line", x1=MARGIN, x2=WIDTH - MARGIN, y1=y(pitch), y2=y(pitch), style=f"stroke:{LINE}")
                yield label(MARGIN - 4, y(pitch) + 4, f"C{pitch // 12 - 1}", anchor="end", fill=SOFT)
        strongest = max([arc.weight for arc in self.arcs], default=1.0)
        for arc in self.arcs:
            left, right = x(arc.earlier), x(arc.later)
            rise = min(ARCS - 6, 8 + (right - left) / 4)
            yield element(
                "path",
                tooltip(f"{arc.later:.1f} s attends to {arc.earlier:.1f} s: {arc.weight:.0%}"),
                d=f"M{left:.1f},{ARCS:.1f} Q{(left + right) / 2:.1f},{ARCS - 2 * rise:.1f} {right:.1f},{ARCS:.1f}",
                style=f"fill:none;stroke:{PALETTE[1]};stroke-opacity:{0.15 + 0.65 * arc.weight / strongest:.2f}",
            )
        for note in self.notes:
            colour = PALETTE[9] if note.given else PALETTE[0]
            wide = max(1.5, (note.end - note.start) * scale - 0.5)
            yield element("rect", x=x(note.start), y=y(note.pitch), width=wide, height=ROW - 1, style=f"fill:{colour}")
        yield label(
            WIDTH - MARGIN, ARCS + (high - low + 1) * ROW + 20, f"{self._seconds:.1f} s", anchor="end", fill=SOFT
        )

    def draw(self, axes: Any) -> None:
        for note in self.notes:
            colour = PALETTE[9] if note.given else PALETTE[0]
            axes.barh(note.pitch, note.end - note.start, left=note.start, height=0.8, color=colour)
        low, high = self._pitches
        room = 0.4 * (high - low) if self.arcs else 0.0
        strongest = max([arc.weight for arc in self.arcs], default=1.0)
        for arc in self.arcs:
            rise = room * (0.2 + 0.7 * (arc.later - arc.earlier) / self._seconds)
            parts = [step / 20 for step in range(21)]
            axes.plot(
                [arc.earlier + part * (arc.later - arc.earlier) for part in parts],
                [high + 1 + 4 * rise * part * (1 - part) for part in parts],
                color=PALETTE[1],
                alpha=0.15 + 0.65 * arc.weight / strongest,
            )
        axes.set_ylim(low - 1, high + 1 + room)
        axes.set_xlabel("seconds")
        axes.set_ylabel("MIDI pitch")
