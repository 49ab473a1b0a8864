"""A track is one object: a made-up one is measured, ranked, written, read back and shown without any other change."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare_texts import small
from lmlab.compare import held_out
from lmlab.compare.comparison import Published
from lmlab.compare.held_out import make_test_text
from lmlab.compare.leaderboard import headline, make_board, read_entries, read_rankings, to_csv, verdict
from lmlab.compare.plan import Skipped, choose_systems
from lmlab.compare.ranking import rank
from lmlab.compare.records import COSTS
from lmlab.compare.report import make_report
from lmlab.compare.runner import Results, measure
from lmlab.compare.tracks import NEXT_TOKEN, TRACKS, Track, systems_of, track_of, tracks_of
from lmlab.models import LINEAGE, System

TEXTS = make_test_text([f"Line {i} of a text about nothing at all.\n" for i in range(40)], prompt="Line")
COLOURS = replace(
    NEXT_TOKEN,
    name="colours",
    key="colours",
    group="painters",
    measure=lambda model, path, tests, progress: {"right": [1.0] * 40, "lossy": False, "passage": []},
    summarise=lambda records, *, same_tokens: {"tried": len(records)},
    sums="right",
    sizes=lambda test: test.sizes * 0 + 2,  # two questions for each unit
    ranks_by="accuracy",
    better="higher",
    fields=("tried",),
    columns={"tried": ("tried", "{}")},
    cells={"tried": lambda entry: str(entry["tried"])},
    verdict=lambda entry: f"It names {entry['accuracy']:.0%} of the colours.",
    show=lambda entry, board: f"<p>{entry['sample']}</p>",
    words=replace(
        NEXT_TOKEN.words,
        systems="painters",
        do="name colours",
        does="names colours",
        score="accuracy",
        column="accuracy",
        unit="accuracy",
        apart="naming colours",
        why="Colours are no text.",
        not_with="Not comparable with anything.",
    ),
)


@pytest.fixture
def painters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three systems that name colours, of which one predicts the next token, too."""
    monkeypatch.setitem(TRACKS, "colours", COLOURS)
    for name, does in {"vermeer": ("colours",), "monet": ("colours",), "turner": ("next token", "colours")}.items():
        monkeypatch.setitem(LINEAGE, name, System(name, LINEAGE["gpt2"].where, 1880, "nobody", "paints", does=does))


def record(system: str, right: list[float], **more: Any) -> dict[str, Any]:
    training: dict[str, float] = dict.fromkeys(COSTS, 1.0)
    return {
        "name": system, "system": system, "seed": 0, "parameters": 10, "embedding_parameters": 0, "training": training,
        "energy_method": "guess", "rate": None, "sweep": [], "lossy": False, "unknown": 0, "sample": "blue",
        "curve": [], "passage": [("blue", 1.0)], "right": right, **more,
    }  # fmt: skip


def results(conditions: dict[str, Any], *records: dict[str, Any]) -> Results:
    described = {**conditions, "fingerprints": {each["system"]: "one" for each in records}}
    failures = [Skipped("monet", "monet", "no light")] if all(each["system"] != "monet" for each in records) else []
    return Results(described, held_out.Tests(TEXTS, TEXTS), [], {each["name"]: each for each in records}, failures)


@pytest.mark.usefixtures("painters")
def test_a_made_up_contest_ranks_two_runs(done: Published) -> None:
    good, poor = record("vermeer", [2.0] * 30 + [1.0] * 10), record("monet", [1.0] * 20 + [0.0] * 20)
    found = results(done.board["conditions"], poor, good)
    ranking = rank(COLOURS, {"vermeer": [good], "monet": [poor]}, found)
    assert [(entry["name"], entry["accuracy"]) for entry in ranking.ranked] == [("vermeer", 0.875), ("monet", 0.25)]
    assert ranking.ranked[0]["tried"] == 1
    assert ranking.ranked[0]["predicts"] == "colours"
    (difference,) = ranking.differences
    assert (difference.better, difference.worse) == ("vermeer", "monet")
    assert difference.value == pytest.approx(0.625)
    assert difference.low < 0.625 < difference.high
    assert difference.significant
    assert headline(ranking) == "vermeer names colours best: 0.875 accuracy."
    assert verdict(ranking).startswith("It names 88% of the colours. monet is 0.625 behind vermeer")


@pytest.mark.usefixtures("painters")
def test_a_made_up_contest_is_written_read_and_shown(done: Published) -> None:
    found = results(done.board["conditions"], record("vermeer", [2.0] * 40))
    board = make_board(found)
    assert [entry["name"] for entry in board["colours"]] == ["vermeer", "monet"]
    assert board["entries"] == board["blanks"] == []
    assert "Colours are no text." in board["colours_ranking"]["why"]
    (ranking,) = read_rankings(board)
    assert ranking.track is COLOURS
    assert headline(ranking) == "vermeer names colours: 1.000 accuracy.", "alone, it is not called the best"
    assert {entry["name"] for entry in read_entries(board)} == {"vermeer", "monet"}
    page = make_report(board, {("colours", "vermeer"): [("blue", 1.0)]})
    for words in ("Leaderboard of painters", "accuracy: higher is better", "naming colours", "no light", "<p>blue</p>"):
        assert words in page
    (row, failed) = csv.DictReader(io.StringIO(to_csv(board)))
    assert (row["predicts"], row["accuracy"], row["tried"]) == ("colours", "1.0", "1")
    assert failed["status"] == "failed"


@pytest.mark.usefixtures("painters")
def test_a_system_with_several_abilities_enters_several_contests(done: Published, tmp_path: Path) -> None:
    assert [track.name for track in tracks_of("turner")] == ["next token", "colours"]
    assert track_of("turner").name == "next token"
    assert {"turner", "gpt2"} <= set(choose_systems("all"))
    assert choose_systems("painters") == ["vermeer", "monet", "turner"]
    assert choose_systems("all,painters").count("turner") == 1
    also = {"colours": {"right": [2.0] * 40, "lossy": False, "curve": [], "passage": []}}
    bits = record("turner", [], bits=[100.0] * 40, tokens=400, also=also)
    board = make_board(results(done.board["conditions"], bits, record("vermeer", [0.0] * 40)))
    assert [entry["name"] for entry in board["entries"]] == ["turner"]
    assert board["entries"][0]["bits_per_byte"] == pytest.approx(4000 / TEXTS.sizes.sum())
    assert [(entry["name"], entry["accuracy"]) for entry in board["colours"][:2]] == [("turner", 1.0), ("vermeer", 0.0)]


def test_what_is_measured_of_several_contests(monkeypatch: pytest.MonkeyPatch, painters: None, tmp_path: Path) -> None:
    exact = replace(NEXT_TOKEN, measure=lambda model, path, tests, progress: {"bits": [1.0] * 40})
    monkeypatch.setitem(TRACKS, "next token", exact)
    found = measure(None, tmp_path, held_out.Tests(TEXTS, TEXTS), system="turner")  # type: ignore[arg-type]
    assert found["bits"] == [1.0] * 40
    assert found["also"]["colours"]["right"] == [1.0] * 40
    assert "also" not in measure(None, tmp_path, held_out.Tests(TEXTS, TEXTS), system="vermeer")  # type: ignore[arg-type]


def test_every_contest_has_words_and_systems_of_its_own(book: Path) -> None:
    for name in ("key", "group", "ranks_by", "name"):
        assert len({getattr(track, name) for track in TRACKS.values()}) == len(TRACKS)
    assert all(systems_of(track) for track in TRACKS.values())
    assert small(book, models="gpt2,bert").systems == ["gpt2", "bert"]
    assert isinstance(track_of("electra"), Track)
