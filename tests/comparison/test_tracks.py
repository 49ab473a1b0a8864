"""A track is one object: a toy one, about no text, is evaluated, ranked, written, read back and shown as it is."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from comparison_texts import small
from lmlab.cli.leaderboard import show
from lmlab.comparison import shared_test_data
from lmlab.comparison.folder import Published
from lmlab.comparison.leaderboard import conclusion, headline, make_board, read_entries, read_rankings, to_csv
from lmlab.comparison.plan import Skipped, choose_systems
from lmlab.comparison.plots import AXES, choose_colours, cost_charts, curve_charts
from lmlab.comparison.ranking import rank
from lmlab.comparison.records import COSTS, ComparedRun, TrackScores, write_record
from lmlab.comparison.report import make_report
from lmlab.comparison.runner import Results, evaluate_run
from lmlab.comparison.shared_test_data import make_test_text
from lmlab.comparison.tracks import TRACKS, systems_of, track_of, tracks_of
from lmlab.comparison.tracks.next_token import NextToken
from lmlab.comparison.tracks.track import Track
from lmlab.models import LINEAGE, System
from lmlab.runs.storage import read_json
from toy_track import COLOURS, NamingColours, named

TEXTS = make_test_text([f"Line {i} of a text about nothing at all.\n" for i in range(40)], prompt="Line")
TRACK = NamingColours()


@pytest.fixture
def painters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three systems that name colours; one of them predicts the next token, too."""
    monkeypatch.setitem(TRACKS, "colours", TRACK)
    for name, does in {"vermeer": ("colours",), "monet": ("colours",), "turner": ("next token", "colours")}.items():
        monkeypatch.setitem(LINEAGE, name, System(name, LINEAGE["gpt2"].where, 1880, "nobody", "paints", does=does))


def record(system: str, named: list[str], **more: Any) -> ComparedRun:
    """As it is read from a file."""
    training: dict[str, float] = dict.fromkeys(COSTS, 1.0)
    return ComparedRun.from_json({
        "name": system, "system": system, "seed": 0, "parameters": 10, "embedding_parameters": 0, "training": training,
        "energy_method": "guess", "rate": None, "sweep": [], "lossy": False, "unknown": 0, "sample": "blue",
        "curve": [], "passage": [("blue", 1.0)], "named": named, "weights_sha256": "", **more,
    })  # fmt: skip


def results(conditions: dict[str, Any], *records: ComparedRun) -> Results:
    described = {**conditions, "fingerprints": {each.system: "one" for each in records}}
    failures = [Skipped("monet", "monet", "no light")] if all(each.system != "monet" for each in records) else []
    return Results(described, shared_test_data.Tests(TEXTS, TEXTS), [], {each.name: each for each in records}, failures)


@pytest.mark.usefixtures("painters")
def test_a_toy_track_ranks_two_runs(done: Published) -> None:
    good, poor = record("vermeer", named(35)), record("monet", named(10))
    found = results(done.board["conditions"], poor, good)
    ranking = rank(TRACK, {"vermeer": [good], "monet": [poor]}, found)
    assert [(entry.name, entry.score) for entry in ranking.ranked] == [("vermeer", 0.875), ("monet", 0.25)]
    assert ranking.ranked[0].measured["tried"] == 1
    assert ranking.ranked[0].predicts == "colours"
    (difference,) = ranking.differences
    assert (difference.better, difference.worse) == ("vermeer", "monet")
    assert difference.value == pytest.approx(0.625)
    assert difference.low < 0.625 < difference.high
    assert difference.significant
    assert headline(ranking) == "vermeer names colours best: 0.875 accuracy."
    assert conclusion(ranking).startswith("It names 88% of the colours. monet is 0.625 behind vermeer")


@pytest.mark.usefixtures("painters")
def test_a_toy_track_is_written_read_and_shown(done: Published) -> None:
    found = results(done.board["conditions"], record("vermeer", named(40)))
    board = make_board(found)
    assert [entry["name"] for entry in board["colours"]] == ["vermeer", "monet"]
    assert board["entries"] == board["masked"] == []
    assert "Colours are no text." in board["colours_ranking"]["why"]
    (ranking,) = read_rankings(board)
    assert ranking.track is TRACK
    assert headline(ranking) == "vermeer names colours: 1.000 accuracy.", "alone, it is not called the best"
    assert {entry.name for entry in read_entries(board)} == {"vermeer", "monet"}
    page = make_report(board, {("colours", "vermeer"): [("blue", 1.0)]})
    for words in ("Leaderboard of painters", "accuracy: higher is better", "naming colours", "no light", "<p>blue</p>"):
        assert words in page
    (row, failed) = csv.DictReader(io.StringIO(to_csv(board)))
    assert (row["predicts"], row["accuracy"], row["tried"]) == ("colours", "1.0", "1")
    assert failed["status"] == "failed"


@pytest.mark.usefixtures("painters")
def test_higher_is_better_in_tables_charts_and_notes(done: Published) -> None:
    rising = [dict.fromkeys(AXES, 10.0 * 2**step) | {"valid_accuracy": 0.2 + 0.1 * step} for step in range(4)]
    falling = [{**point, "valid_accuracy": 0.9 - point["valid_accuracy"]} for point in rising]
    better, worse = record("vermeer", named(36), curve=rising), record("monet", named(12), curve=falling)
    worse = replace(worse, training={**worse.training, "joules": 0.5})
    board = make_board(results(done.board["conditions"], worse, better))
    (ranking,) = read_rankings(board)
    assert [entry.name for entry in ranking.ranked] == ["vermeer", "monet"]
    assert [entry["letters"] for entry in board["colours"]] == ["a", "b"]
    assert [entry.last_doubling for entry in ranking.ranked] == pytest.approx([0.1, -0.1])
    assert any("score was still rising: vermeer by 0.10 accuracy (partly" in note for note in board["notes"])
    (chart,) = (each for each in curve_charts(ranking, choose_colours(ranking)) if each.name == "colours-curve-tokens")
    assert [each.extrapolation for each in chart.series] == [pytest.approx((320, 0.7)), pytest.approx((320, 0.4))]
    (cost,) = (each for each in cost_charts(ranking, choose_colours(ranking)) if each.name == "colours-cost-joules")
    assert sorted(cost.front) == [(0.5, 0.3), (1.0, 0.9)], "the cheaper one is worse, so neither beats the other"
    console = Console(file=io.StringIO(), width=140)
    show(board, console)
    shown = console.file.getvalue()
    assert "Accuracy on the test text: higher is better" in shown
    assert shown.index("vermeer") < shown.index("monet")
    page = make_report(board, {})
    assert "<b>vermeer</b> ↑ 0.100" in page
    assert "Higher is better, further left is cheaper" in page
    assert next(csv.DictReader(io.StringIO(to_csv(board))))["accuracy"] == "0.9"


@pytest.mark.usefixtures("painters")
def test_a_system_with_several_abilities_enters_several_tracks(done: Published, tmp_path: Path) -> None:
    assert [track.name for track in tracks_of("turner")] == ["next token", "colours"]
    assert track_of("turner").name == "next token"
    assert {"turner", "gpt2"} <= set(choose_systems("all"))
    assert choose_systems("painters") == ["vermeer", "monet", "turner"]
    assert choose_systems("all,painters").count("turner") == 1
    also = {"colours": {"named": named(40), "lossy": False, "curve": [], "passage": []}}
    bits = record("turner", [], bits=[100.0] * 40, tokens=400, also=also)
    board = make_board(results(done.board["conditions"], bits, record("vermeer", named(0))))
    assert [entry["name"] for entry in board["entries"]] == ["turner"]
    assert board["entries"][0]["bits_per_byte"] == pytest.approx(4000 / TEXTS.sizes.sum())
    assert [(entry["name"], entry["accuracy"]) for entry in board["colours"][:2]] == [("turner", 1.0), ("vermeer", 0.0)]


def test_what_is_measured_of_several_tracks(monkeypatch: pytest.MonkeyPatch, painters: None, tmp_path: Path) -> None:
    monkeypatch.setattr(NextToken, "evaluate", lambda *_: TrackScores(measured={"bits": [1.0] * 40}, lossy=False))
    found = evaluate_run(None, tmp_path, shared_test_data.Tests(TEXTS, TEXTS), system="turner")  # type: ignore[arg-type]
    assert found.own.measured["bits"] == [1.0] * 40
    assert found.also["colours"].measured["named"] == COLOURS
    assert found.in_track("colours") is found.also["colours"]
    assert evaluate_run(None, tmp_path, shared_test_data.Tests(TEXTS, TEXTS), system="vermeer").also == {}  # type: ignore[arg-type]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    also = {"colours": {"named": named(40), "lossy": True, "curve": [], "passage": []}}
    made = record("turner", [], bits=[1.5, 2.5], tokens=4, also=also, data="events", added="elsewhere", run="runs/x")
    assert made.scores.own.measured["bits"] == [1.5, 2.5]
    assert (made.scores.own.lossy, made.scores.also["colours"].lossy) == (False, True)
    assert made.scores.also["colours"].sample == "blue", "what a track lacks is that of the own track"
    write_record(tmp_path, made)
    content = read_json(tmp_path / "scores" / "turner.json")
    assert content["bits"] == [1.5, 2.5]
    assert content["also"]["colours"]["named"] == named(40)
    assert "tokenizer" not in content
    assert ComparedRun.from_json(content).as_json() == content


def test_every_track_has_words_and_systems_of_its_own(book: Path) -> None:
    for name in ("key", "group", "name"):
        assert len({getattr(track, name) for track in TRACKS.values()}) == len(TRACKS)
    assert len({track.score.field for track in TRACKS.values()}) == len(TRACKS)
    assert all(systems_of(track) for track in TRACKS.values())
    assert small(book, models="gpt2,bert").systems == ["gpt2", "bert"]
    assert isinstance(track_of("electra"), Track)
