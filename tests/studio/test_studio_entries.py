"""The list of runs: what each was trained on, its scores, its note and its colour."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.analysis.test_attention_maps import ATTENTIVE
from tests.analysis.test_forward_pass import MASKED, NEXT

from lmlab.comparison.plots import choose_colours
from lmlab.pages.figures.palette import PALETTE, number_colours
from lmlab.studio.entries import describe_text, find_score
from lmlab.studio.notes import LONGEST
from lmlab.studio.run_store import RunStore
from studio_texts import KNOWS, TOKEN

STATIC = Path(__file__).parents[2] / "src/lmlab/studio/static"


@pytest.fixture
def runs(studio_runs: Path, tmp_path: Path) -> Path:
    for name in ("counts", "demo/lstm"):
        shutil.copytree(studio_runs / name, tmp_path / Path(name).name)
    return tmp_path


@pytest.fixture
def client(runs: Path, client_of: Callable[..., Any]) -> Any:
    from starlette.testclient import TestClient

    from lmlab.studio.app import make_app

    app: Any = make_app(runs, token=TOKEN)
    return TestClient(app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False, headers=KNOWS)


def entry(client: Any, name: str) -> Any:
    return {run["name"]: run for run in client.get("/studio/api/runs").json()["runs"]}[name]


def save(client: Any, note: str, before: str = "", run: str = "lstm") -> Any:
    return client.post("/studio/api/note", json={"run": run, "note": note, "before": before})


def test_a_run_says_its_text_and_its_score(client: Any, runs: Path) -> None:
    found = entry(client, "lstm")
    lines = [json.loads(line) for line in (runs / "lstm/metrics.jsonl").read_text().splitlines()]
    best = min(line["valid_bits_per_byte"] for line in lines if line.get("valid_bits_per_byte") is not None)
    assert found["score"] == {"value": best, "unit": "bits per byte", "higher": False, "test": None}
    assert found["text"]["name"] == "book.txt"
    assert found["text"]["id"] == entry(client, "counts")["text"]["id"] != ""


def test_the_score_on_test_data_is_that_of_the_leaderboard(client: Any, runs: Path) -> None:
    board = {"entries": [{"name": "lstm", "run": ["lstm"], "bits_per_byte": 1.25}, {"run": ["a", "counts"]}, 7]}
    (runs / "leaderboard.json").write_text(json.dumps(board))
    assert entry(client, "lstm")["score"]["test"] == 1.25
    assert entry(client, "counts")["score"]["test"] is None


@pytest.mark.parametrize("damage", ["[]", '{"entries": {}}', '{"entries": [{"run": ["lstm"], "bits_per_byte": "x"}]}'])
def test_a_damaged_leaderboard_gives_no_score(client: Any, runs: Path, damage: str) -> None:
    (runs / "leaderboard.json").write_text(damage)
    assert entry(client, "lstm")["score"]["test"] is None


def test_a_score_is_bits_per_byte_then_accuracy_then_the_loss() -> None:
    bits = {"valid_bits_per_byte": 2.0, "valid_accuracy": 0.5, "valid_loss": 1.0}
    assert find_score([bits, {"valid_bits_per_byte": 1.5}], 1.7) == {
        **{"value": 1.5, "unit": "bits per byte", "higher": False, "test": 1.7}
    }
    accuracy = find_score([{"valid_accuracy": 0.5}, {"valid_accuracy": 0.75, "valid_bits_per_byte": None}], 1.7)
    assert accuracy == {"value": 0.75, "unit": "accuracy", "higher": True, "test": None}
    assert find_score([{"valid_loss": 3.0}, {"valid_loss": "x"}], None) == {
        **{"value": 3.0, "unit": "nats per prediction", "higher": False, "test": None}
    }
    assert find_score([{"loss": 1.0}], None) is None


def test_the_names_of_texts_have_no_folders() -> None:
    given = {"data": {"given": [f"/home/me/{n}.txt" for n in range(5)]}, "text_sha256": "a" * 64}
    assert describe_text(given) == {"name": "0.txt, 1.txt, 2.txt …", "id": "a" * 16}
    assert describe_text({"data": {"text": "builtin"}}) == {"name": "builtin", "id": ""}
    assert describe_text({"data": {"kind": "pairs", "source": ["x/en"]}}) == {"name": "en", "id": ""}
    assert describe_text({}) is None
    assert describe_text({"data": [], "text_sha256": 3}) is None


def test_a_note_is_saved_with_the_run_changed_and_removed(client: Any, runs: Path) -> None:
    assert entry(client, "lstm")["note"] == ""
    assert save(client, "the bést\nrun\n").json() == {"note": "the bést\nrun"}
    assert (runs / "lstm/notes.md").read_text(encoding="utf-8") == "the bést\nrun\n"
    assert entry(client, "lstm")["note"] == "the bést\nrun"
    shutil.move(runs / "lstm", runs / "moved")
    assert entry(client, "moved")["note"] == "the bést\nrun"
    assert save(client, "", "the bést\nrun", run="moved").json() == {"note": ""}
    assert not (runs / "moved/notes.md").exists()


def test_a_note_that_was_changed_elsewhere_is_not_overwritten(client: Any, runs: Path) -> None:
    (runs / "lstm/notes.md").write_text("from the editor\n")
    answer = save(client, "mine")
    assert answer.status_code == 400
    assert "changed meanwhile" in answer.text
    (runs / "lstm/notes.md").write_text("x" * (4 * LONGEST + 1))
    assert "longer than" in save(client, "mine", "x" * LONGEST).text
    assert len((runs / "lstm/notes.md").read_text()) == 4 * LONGEST + 1


def test_a_note_is_not_written_through_a_link(client: Any, runs: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("")
    os.symlink(victim, runs / "lstm/notes.md")
    assert "link" in save(client, "mine").text
    assert victim.read_text() == ""
    assert save(client, "x" * (LONGEST + 1)).status_code == 400
    assert save(client, "mine", run="../lstm").status_code == 400


def test_an_entry_is_read_again_only_if_a_file_of_the_run_has_changed(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmlab.studio.run_store.SETTLED", -1.0)
    store, read = RunStore(runs), list[str]()
    real = __import__("lmlab.studio.entries", fromlist=["describe"]).describe
    monkeypatch.setattr(
        "lmlab.studio.run_store.describe",
        lambda name, *given, **more: (read.append(name), real(name, *given, **more))[1],
    )
    first = store.summaries()
    assert store.summaries() == first
    assert read == ["counts", "lstm"]
    with (runs / "lstm/metrics.jsonl").open("a") as file:
        file.write('{"valid_bits_per_byte": 0.125}\n')
    assert {run["name"]: run["valid"] for run in store.summaries()}["lstm"] == 0.125
    assert read == ["counts", "lstm", "lstm"]
    shutil.copytree(runs / "lstm", runs / "deep/er/copy")
    assert [run["name"] for run in store.summaries()] == ["counts", "deep/er/copy", "lstm"]
    shutil.rmtree(runs / "deep")
    assert [run["name"] for run in store.summaries()] == ["counts", "lstm"]


def test_up_to_ten_runs_have_ten_colours() -> None:
    found = number_colours({f"run {n}": 3 for n in range(10)})
    assert sorted(found.values()) == list(range(10))
    assert number_colours({"a": 14, "b": 4, "c": 2}) == {"a": 4, "b": 5, "c": 2}


def age(run: Path, seconds: float) -> None:
    """Let a run have been begun at a time."""
    for name in ("config.json", "recipe.json", "frame.json", "tokenizer.json"):
        if (run / name).is_file():
            os.utime(run / name, (seconds, seconds))


def test_a_run_keeps_its_colour_when_others_are_added(runs: Path) -> None:
    age(runs / "counts", 1000)
    age(runs / "lstm", 2000)
    before = colours(runs)
    for number, name in enumerate(("a", "b/c", "z")):
        shutil.copytree(runs / "lstm", runs / name)
        age(runs / name, 3000 + number)
        assert before.items() <= colours(runs).items()
        before = colours(runs)
    assert len(set(before.values())) == 5


def test_the_runs_of_a_comparison_have_the_colours_of_its_report(runs: Path) -> None:
    compared = runs / "compared"
    for name in ("lstm", "counts", "gru-2"):
        shutil.copytree(runs / name.replace("gru-2", "lstm"), compared / name)
        age(compared / name, 1000 + len(name))
    (compared / "leaderboard.json").write_text('{"entries": []}')
    for name in ("lstm", "counts"):
        age(runs / name, 9000)
    kinds = {"lstm": "lstm", "counts": "ngram", "gru-2": "lstm"}
    ranking: Any = SimpleNamespace(ranked=[SimpleNamespace(name=name, kind=kind) for name, kind in kinds.items()])
    report = choose_colours(ranking)
    shown = colours(runs)
    assert {name: PALETTE[shown[f"compared/{name}"]] for name in kinds} == report
    assert len(set(shown.values())) == 5


def colours(folder: Path) -> dict[str, int]:
    return {each["name"]: each["colour"] for each in RunStore(folder).summaries()}


def test_runs_that_read_no_text_are_not_offered_for_one(client: Any, runs: Path) -> None:
    assert {"next token", "vectors"} <= set(entry(client, "lstm")["does"])
    recipe = json.loads((runs / "lstm/recipe.json").read_text())
    for kind, able in (("notes", False), ("episodes", False), ("mixture", True)):
        recipe["data"]["kind"] = kind
        (runs / "lstm/recipe.json").write_text(json.dumps(recipe))
        assert ("next token" in entry(client, "lstm")["does"]) == able
    config = json.loads((runs / "counts/config.json").read_text())
    (runs / "counts/recipe.json").unlink()
    (runs / "counts/config.json").write_text(json.dumps({**config, "kind": "captioner"}))
    assert entry(client, "counts")["does"] == ["captions"]


def test_more_runs_than_colours_share_them_evenly() -> None:
    found = Counter(number_colours({f"run {n}": 3 for n in range(25)}).values())
    assert sorted(found.values()) == [2] * 5 + [3] * 5


def test_the_views_offer_the_systems_that_they_can_show() -> None:
    """The lists of the page against those of the tests of the analyses, which try every system."""
    source = (STATIC / "systems.js").read_text()
    lists = [each.partition(".split(")[0] for each in source.split("new Set(")[1:]]
    listed = [set("".join(re.findall(r'"([^"]+)"', each)).split()) for each in lists]
    attentive, stepped = listed
    translators = {"transformer", "bart", "seq2seq"}
    assert attentive == {*ATTENTIVE, "mbert", "xlm-r", *translators}
    assert stepped == {"ngram", *(kind for kind, _ in (NEXT | MASKED).values()), "mbert", "xlm-r"}


def test_the_studio_has_the_palette_of_the_reports() -> None:
    css = (STATIC / "studio.css").read_text()
    assert tuple(re.findall(r"--c\d: (#\w+);", css)) == PALETTE
