"""The lines of a leaderboard: systems that are ranked or failed, and those that cannot be ranked with the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from lmlab.comparison.records import Curve

OPTIONAL = ("letters", "each_seed", "added")
"""Fields that leaderboard.json has only where they say something."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One system in a ranking: the mean of its runs; one that failed has an `error` and no score."""

    name: str
    kind: str = ""
    predicts: str = ""  # the name of its track
    run: str | Sequence[str] = ()  # the folder of a run that was added, or the names of its runs in the comparison
    seeds: Sequence[int | None] = ()
    score: float | None = None  # under the name of the track's score in leaderboard.json
    low: float | None = None
    high: float | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)  # what only its track measures, by name
    parameters: int = 0
    embedding_parameters: int | None = None
    training: Mapping[str, float] = field(default_factory=dict)  # its costs (`records.COSTS`)
    energy_method: str | None = None
    rate: float | None = None
    sweep: Sequence[Mapping[str, Any]] = ()
    lossy: bool = False
    unknown: int | None = None
    sample: str = ""
    curve: Curve = field(default_factory=list)
    last_doubling: float | None = None
    status: str = "ok"  # or "failed"
    error: str = ""
    each_seed: Sequence[float] | None = None  # the score of each seed, where there are several
    added: str | None = None  # what is known about the training text of a run that was added
    letters: str = ""  # systems that share a letter do not differ significantly

    def to_json(self, score: str) -> dict[str, Any]:
        """The entry in leaderboard.json, where its score is called `score`."""
        if self.status != "ok":
            named = {name: getattr(self, name) for name in ("name", "kind", "predicts", "status", "error")}
            return {**named, score: None}
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "measured":
                found |= value
            elif each.name == "score":
                found[score] = value
            elif each.name != "error" and (each.name not in OPTIONAL or value):
                found[each.name] = value
        return found

    @classmethod
    def from_json(cls, values: Mapping[str, Any], score: str) -> Entry:
        """The entry of a leaderboard.json of any version."""
        known = {each.name for each in fields(cls)} - {"score", "measured"}
        measured = {name: value for name, value in values.items() if name not in known and name != score}
        own = {name: value for name, value in values.items() if name in known}
        return cls(**own, score=values.get(score), measured=measured)


class Unranked(NamedTuple):
    """A system whose score cannot be compared with those of its track."""

    name: str
    score: float
    reason: str

    def to_json(self, score: str) -> dict[str, Any]:
        """The line in leaderboard.json, where its score is called `score`."""
        return {"name": self.name, score: self.score, "reason": self.reason}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], score: str) -> Unranked:
        """The line of a leaderboard.json of any version."""
        return cls(values["name"], values[score], values["reason"])
