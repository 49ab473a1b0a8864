"""Budgets are kept, failures stay alone, and an interrupted comparison ends as if it had never stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comparison_texts import SETTINGS, lines, small
from killing import kill_while_saving
from lmlab.comparison import runner
from lmlab.comparison.conditions import describe_changes
from lmlab.comparison.folder import Published, run_comparison
from lmlab.comparison.runner import Interruption
from lmlab.training import energy_meter
from lmlab.training.energy_meter import Cost


def figures(folder: Path) -> list[Any]:
    """All that must be the same in every repetition: everything but clocks and meters."""
    board = json.loads((folder / "leaderboard.json").read_text())
    names = ("name", "seeds", "bits_per_byte", "low", "high", "perplexity", "parameters", "sample", "rate")
    clockless = [
        {
            **{name: entry[name] for name in names},
            "training": {name: entry["training"][name] for name in ("tokens", "steps", "flops")},
            "curve": [(point["tokens"], point["valid_bits_per_byte"]) for point in entry["curve"]],
        }
        for entry in board["entries"]
    ]
    return [clockless, board["ties"], board["differences"], board["units"], board["notes"][:1]]


def entries(done: Published) -> dict[str, Any]:
    return {entry["name"]: entry for entry in done.board["entries"]}


def test_the_folder_holds_what_is_promised(done: Published, book: Path) -> None:
    folder = done.report.parent
    for name in ("conditions.json", "leaderboard.json", "leaderboard.csv", "report.html", "gpt2/model.safetensors"):
        assert (folder / name).is_file(), name
    ranked = done.board["entries"]
    assert {entry["name"] for entry in ranked} == {"ngram", "nplm", "gpt2"}
    assert [entry["bits_per_byte"] for entry in ranked] == sorted(entry["bits_per_byte"] for entry in ranked)
    assert all(entry["low"] <= entry["bits_per_byte"] <= entry["high"] for entry in ranked)
    conditions = json.loads((folder / "conditions.json").read_text())
    assert conditions["data"]["text"] == [str(book)]
    assert conditions["versions"]["torch"]
    assert conditions["text"]["test"]["bytes"] == done.board["units"]["bytes"]


def test_the_ranking_is_by_the_exact_score(done: Published) -> None:
    import lmlab
    from lmlab.runs.held_out import held_out

    folder = done.report.parent
    for name, entry in entries(done).items():
        score = lmlab.load(folder / name).score(held_out(folder / name))
        assert entry["bits_per_byte"] == pytest.approx(score.bits_per_byte)
        assert entry["perplexity"] == pytest.approx(score.perplexity)


def test_the_same_seed_gives_the_same_figures_and_another_does_not(done: Published, book: Path, tmp_path: Path) -> None:
    run_comparison(small(book), tmp_path / "again")
    assert figures(tmp_path / "again") == figures(done.report.parent)
    other = entries(run_comparison(small(book, models="ngram,gpt2", seed=1), tmp_path / "other"))
    assert other["gpt2"]["bits_per_byte"] != entries(done)["gpt2"]["bits_per_byte"]
    assert other["ngram"]["bits_per_byte"] == entries(done)["ngram"]["bits_per_byte"]


def test_killed_and_gone_on_with_it_ends_the_same(done: Published, book: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    options = [f"--set=train.{name}={value}" for name, value in {**SETTINGS, "save_seconds": 0}.items()]
    command = [
        "compare", str(book), "--models", "ngram,nplm,gpt2",
        "--budget", "1280tokens", "--tokenizer", "bpe:300", "--size", "tiny", "--split", "0.8,0.1,0.1", *options,
        "-o", str(folder),
    ]  # fmt: skip
    kill_while_saving(*command, run="gpt2", saves=3)
    assert (folder / "scores" / "nplm.json").is_file()
    assert not (folder / "scores" / "gpt2.json").exists()
    before = (folder / "scores" / "nplm.json").read_bytes()
    run_comparison(small(book, train={**SETTINGS, "save_seconds": 0}), folder)
    assert (folder / "scores" / "nplm.json").read_bytes() == before, "what was done is not done again"
    assert figures(folder) == figures(done.report.parent)


def test_an_interrupted_comparison_is_resumed(done: Published, book: Path, tmp_path: Path) -> None:
    calls = iter(range(1000))
    with pytest.raises(Interruption):
        run_comparison(small(book), tmp_path / "stopped", interrupted=lambda: next(calls) > 25)
    assert not (tmp_path / "stopped" / "leaderboard.json").exists()
    run_comparison(small(book), tmp_path / "stopped")
    assert figures(tmp_path / "stopped") == figures(done.report.parent)


def test_a_folder_left_before_its_recipe_is_made_again(done: Published, book: Path, tmp_path: Path) -> None:
    folder = tmp_path / "left"
    run_comparison(small(book), folder)
    (folder / "scores" / "gpt2.json").unlink()
    (folder / "gpt2" / "recipe.json").unlink()
    run_comparison(small(book), folder)
    assert figures(folder) == figures(done.report.parent)


@pytest.mark.parametrize(("budget", "unit"), [("1300tokens", "tokens"), ("21steps", "steps"), ("3e9flops", "flops")])
def test_no_system_gets_more_than_its_budget(book: Path, tmp_path: Path, budget: str, unit: str) -> None:
    amount = float(budget.removesuffix(unit))
    found = entries(run_comparison(small(book, budget=budget, models="ngram,nplm,lstm,gpt2"), tmp_path / "kept"))
    for name, entry in found.items():
        spent = entry["training"][unit]
        assert spent <= amount, name
        if name != "ngram":
            assert spent > 0.7 * amount, f"{name} is given what is there"
    if unit == "tokens":
        assert found["ngram"]["training"]["tokens"] == 1300


def test_a_sweep_is_paid_from_the_same_budget(book: Path, tmp_path: Path) -> None:
    budget = 100 * 64
    done = run_comparison(small(book, budget=f"{budget}tokens", models="ngram,nplm", sweep=True), tmp_path / "swept")
    entry = entries(done)["nplm"]
    tried = entry["sweep"]
    assert len(tried) == 3
    assert entry["rate"] == min(tried, key=lambda one: one["valid_loss"])["rate"]
    assert [one["rate"] / tried[1]["rate"] for one in tried] == pytest.approx([1 / 3, 1, 3])
    assert sum(one["training"]["tokens"] for one in tried) == pytest.approx(0.2 * budget, rel=0.1)
    assert 0.9 * budget < entry["training"]["tokens"] <= budget
    assert entries(done)["ngram"]["training"]["tokens"] <= budget


def test_a_budget_in_time_is_what_training_takes(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        """Every reading is a hundredth of a second after the one before."""

        method = "a clock of paper"

        def __init__(self, *arguments: object, **options: object) -> None: ...

        def lap(self) -> Cost:
            return Cost(0.01, 0.01, 0.1)

    monkeypatch.setattr(energy_meter, "EnergyMeter", Clock)
    found = entries(run_comparison(small(book, budget="1s", models="nplm,gpt2"), tmp_path / "timed"))
    for entry in found.values():
        assert 0.97 <= entry["training"]["seconds"] <= 1.02
        assert entry["training"]["wall_seconds"] > entry["training"]["seconds"], "validation comes on top"


def test_a_failing_system_does_not_take_the_others_down(book: Path, tmp_path: Path) -> None:
    done = run_comparison(small(book, budget="3e7flops", models="lstm,ngram,nplm"), tmp_path / "failing")
    failed = entries(done)["lstm"]
    assert failed["status"] == "failed"
    assert "does not pay for one step" in failed["error"]
    assert done.board["entries"][-1] is failed
    assert {name for name, entry in entries(done).items() if entry["status"] == "ok"} == {"ngram", "nplm"}
    assert "does not pay for one step" in done.report.read_text()


def test_when_all_fail_the_report_says_so(book: Path, tmp_path: Path) -> None:
    done = run_comparison(small(book, budget="10flops", models="lstm,gpt2"), tmp_path / "hopeless")
    assert {entry["status"] for entry in done.board["entries"]} == {"failed"}
    assert "No model could be trained" in done.report.read_text()


def test_several_seeds_make_one_entry(book: Path, tmp_path: Path) -> None:
    done = run_comparison(small(book, models="ngram,nplm", budget="640tokens", seeds=2), tmp_path / "seeds")
    entry = entries(done)["nplm"]
    assert entry["seeds"] == [0, 1]
    assert entry["run"] == ["nplm-seed0", "nplm-seed1"]
    assert len(set(entry["each_seed"])) == 2
    assert entry["bits_per_byte"] == pytest.approx(sum(entry["each_seed"]) / 2)
    assert entries(done)["ngram"]["seeds"] == [0], "counting knows no chance"


def test_other_conditions_or_another_text_are_refused(book: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(lines(400))
    folder = tmp_path / "compared"
    run_comparison(small(text, models="ngram"), folder)
    with pytest.raises(ValueError, match=r"started with other settings \(budget was 1280tokens, now 1M"):
        run_comparison(small(text, models="ngram", budget="1Mtokens"), folder)
    text.write_text(lines(500))
    with pytest.raises(ValueError, match="has changed"):
        run_comparison(small(text, models="ngram"), folder)
    done = run_comparison(small(text, models="ngram", budget="1Mtokens"), folder, overwrite=True)
    assert done.board["conditions"]["budget"] == "1Mtokens"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="not a comparison"):
        run_comparison(small(text), tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").is_file()


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """A comparison of two systems, with the text beside it."""
    (tmp_path / "text.txt").write_text(lines(400))
    run_comparison(small(tmp_path / "text.txt", models="ngram,nplm"), tmp_path / "compared")
    return tmp_path / "compared"


def test_what_is_replaced_is_only_what_was_written_here(compared: Path) -> None:
    text = compared.parent / "text.txt"
    outside = compared.parent / "thesis"
    outside.mkdir()
    (outside / "curve-flops.svg").write_text("mine")
    mine = ("notes.txt", "plots/drawn-by-hand.png", "plots/cost-x.svg/a.tex", "scores/own.json", "nplm/remarks.md")
    for name in mine:
        (compared / name).parent.mkdir(exist_ok=True)
        (compared / name).write_text("mine")
    (compared / "sweep").symlink_to(outside)
    done = run_comparison(small(text, models="ngram"), compared, overwrite=True)
    assert [entry["name"] for entry in done.board["entries"]] == ["ngram"]
    assert all((compared / name).read_text() == "mine" for name in mine)
    assert (outside / "curve-flops.svg").is_file()
    assert {path.name for path in (compared / "nplm").iterdir()} == {"remarks.md"}
    assert {path.name for path in (compared / "scores").iterdir()} == {"ngram.json", "own.json"}


@pytest.mark.parametrize("kind", ["a file in a run", "a folder", "a run of their own", "a link"])
def test_what_stands_in_the_place_of_a_run_is_reported_before_anything_is_removed(compared: Path, kind: str) -> None:
    text = compared.parent / "text.txt"
    if kind == "a file in a run":
        (compared / "nplm" / "remarks.md").write_text("mine")
    elif kind == "a link":
        (compared / "nplm").rename(compared.parent / "elsewhere")
        (compared / "nplm").symlink_to(compared.parent / "elsewhere")
    else:
        (compared / "rnn").mkdir()
        (compared / "rnn" / ("recipe.json" if "run" in kind else "thesis.tex")).write_text("{}")
    before = sorted(path for path in compared.rglob("*") if path.name != ".lock")
    with pytest.raises(ValueError, match="was not written by the comparison"):
        run_comparison(small(text, models="ngram,nplm,rnn"), compared, overwrite=True)
    assert sorted(path for path in compared.rglob("*") if path.name != ".lock") == before


def test_a_comparison_is_not_replaced_by_one_that_cannot_be_made(compared: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        run_comparison(small(compared.parent / "absent.txt"), compared, overwrite=True)
    assert (compared / "leaderboard.json").is_file()
    assert (compared / "nplm" / "model.safetensors").is_file()


def test_nothing_is_left_where_nothing_was_begun(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        run_comparison(small(tmp_path / "absent.txt"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_run_is_scored_on_the_device_that_trained_it(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored_on: list[str] = []

    def watch(path: Path, *, device: object) -> object:
        scored_on.append(str(device))
        return load(path)

    load = runner.load
    monkeypatch.setattr(runner, "load", watch)
    monkeypatch.setattr(runner, "choose_device", lambda name: f"device of {name}")
    run_comparison(
        small(book, models="bow", budget="64tokens", train={**SETTINGS, "device": "cpu"}), tmp_path / "placed"
    )
    assert scored_on == ["device of cpu"]


def test_what_differs_is_reported_in_words(book: Path, tmp_path: Path) -> None:
    before = small(book).model_dump()
    now = small(
        book,
        models="ngram,gpt2",
        tokenizers=["bpe:300", "gpt2=bytes"],
        size=None,
        sweep=True,
        data={"split": [0.6, 0.2, 0.2]},
        train={**SETTINGS, "batch": 8},
    ).model_dump()
    assert describe_changes(before, before) == []
    assert set(describe_changes(before, now)) == {
        "models was ngram,nplm,gpt2, now ngram,gpt2",
        "tokenizer of gpt2 was bpe:300, now bytes",
        "size was tiny, now not given",
        "sweep was off, now on",
        "split was 0.8,0.1,0.1, now 0.6,0.2,0.2",
        "train.batch was 4, now 8",
    }


@pytest.mark.parametrize("tokens", [20_000, 300], ids=["whole", "part"])
def test_comparison_score_and_report_print_the_same_number(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    """The same text for all three: a masked model's too; only a part of a long one is scored."""
    from typer.testing import CliRunner

    from lmlab.cli import app
    from lmlab.comparison import shared_test_data

    monkeypatch.setattr(shared_test_data, "PART_TOKENS", tokens)
    folder = tmp_path / "one"
    board = run_comparison(small(book, models="gpt2,bert"), folder).board
    expected = {"gpt2": board["entries"][0]["bits_per_byte"], "bert": board["masked"][0]["pseudo_bits_per_byte"]}
    for name, value in expected.items():
        scored = CliRunner().invoke(app, ["score", str(folder / name), "--held-out", "--json"])
        assert json.loads(scored.stdout)["bits_per_byte"] == pytest.approx(value, rel=1e-6)
        reported = json.loads(CliRunner().invoke(app, ["report", str(folder / name), "--json"]).stdout)
        assert reported["held_out"]["bits_per_byte"] == pytest.approx(value, rel=1e-6)
        assert reported["text"] == "the test text"
        shown = CliRunner().invoke(app, ["score", str(folder / name), "--held-out"]).stdout
        assert "the test text:" in shown
