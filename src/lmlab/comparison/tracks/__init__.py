"""Tracks: the questions under which systems are compared, one file each.

A system takes part in a track if it has its ability (`System.does`); a system with several abilities takes part in
several. To add a track, write a subclass of `Track` and add it to `TRACKS`.
"""

from __future__ import annotations

from lmlab.comparison.tracks.both_directions import BothDirections
from lmlab.comparison.tracks.masked import MaskedTokens
from lmlab.comparison.tracks.media import MEDIA
from lmlab.comparison.tracks.next_token import NextToken
from lmlab.comparison.tracks.sequences import SEQUENCES
from lmlab.comparison.tracks.track import Track
from lmlab.comparison.variants import system_of
from lmlab.models import LINEAGE, find
from lmlab.models.descriptions import DESCRIPTIONS

TRACKS: dict[str, Track] = {track.name: track for track in (NextToken(), BothDirections(), MaskedTokens())}


def tracks_of(system: str, tokenizer: str = "") -> list[Track]:
    """The tracks of a system, the one that it is known for first; a ValueError if there is none.

    `tokenizer` is its spec: with one of music or pixels there is one track, that of the next token.
    """
    does = find(system_of(system)).does
    if sequences := SEQUENCES.get(tokenizer.partition(":")[0]):
        if sequences.has(system):
            return [sequences]
        raise ValueError(f"{system} {DESCRIPTIONS[does[0]].does}, so lmlab compare cannot rank it on {tokenizer}")
    if media := [track for track in MEDIA.values() if track.has(system)]:
        return [*media]
    if found := [TRACKS[name] for name in does if name in TRACKS and TRACKS[name].has(system)]:
        return found
    known = DESCRIPTIONS[does[0]]
    data = "on plain text " if "text" in find(system_of(system)).reads or does[0] == "target text" else ""
    raise ValueError(
        f"{system} {known.does}, so it has no score {data}and lmlab compare cannot rank it; "
        + (known.instead.format(name=system) or f"use it with {known.uses}")
    )


def track_of(system: str, tokenizer: str = "") -> Track:
    """The track of what a system is known for."""
    return tracks_of(system, tokenizer)[0]


def all_tracks() -> list[Track]:
    """All tracks: of text, and of data that are not text."""
    return [*TRACKS.values(), *SEQUENCES.values(), *MEDIA.values()]


def systems_of(track: Track) -> list[str]:
    """Every system of the lineage that can take part."""
    return [name for name in LINEAGE if track.has(name)]
