"""lmlab compare as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comparison_texts import lines

FAST = ["--size", "tiny", "--tokenizer", "bpe:300", "--set", "train.batch=4", "--set", "train.window=16"]


@pytest.fixture
def lmlab(run_command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run a command in a folder that holds book.txt."""
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "book.txt").write_text(lines(500))
    return run_command


def test_compare_resume_add(lmlab, tmp_path: Path) -> None:
    words = ["compare", "book.txt", "--models", "ngram,bow", "--budget", "640tokens", *FAST, "-o", "compared"]
    first = lmlab(*words, "--csv")
    assert first.code == 0, first.err
    assert "lower is better" in first.out
    assert "Report: compared/report.html" in first.out
    assert "'lmlab[report]' adds PNG" in first.out or "SVG and PNG" in first.out
    assert "bow: " in first.err, "without a screen, a line per system"
    board = json.loads((tmp_path / "compared" / "leaderboard.json").read_text())
    assert f"{board['entries'][0]['name']} predicts" in first.out or "has the best score" in first.out
    stamp = (tmp_path / "compared" / "bow" / "model.safetensors").stat().st_mtime_ns
    for again in (
        words,
        [*words, "--resume"],
        ["compare", "--resume", "compared"],
        ["compare", "--resume", "-o", "compared"],
    ):
        shown = lmlab(*again)
        assert shown.code == 0
        assert shown.out == first.out
        assert "compared was finished already with the same settings: nothing was trained" in shown.err
    assert "finished already" not in first.err
    assert (tmp_path / "compared" / "bow" / "model.safetensors").stat().st_mtime_ns == stamp
    trained = lmlab("train", "ngram", "book.txt", "-o", "runs/mine", "--tokenizer", "bytes")
    assert trained.code == 0, trained.err
    added = lmlab("compare", "--add", "runs/mine", "compared")
    assert added.code == 0, added.err
    assert "mine †" in added.out
    assert "† marks runs that were added" in added.out
    refused = lmlab("compare", "--add", "runs/mine", "compared", "--budget", "5min", "--size", "tiny")
    assert refused.code == 2
    assert "takes no --budget, --size" in refused.err


def test_resume_refuses_what_differs_by_name(lmlab, tmp_path: Path) -> None:
    words = ["compare", "book.txt", "--models", "ngram,bow", "--budget", "64tokens", *FAST, "-o", "compared"]
    assert lmlab(*words).code == 0
    stamp = (tmp_path / "compared" / "leaderboard.json").stat().st_mtime_ns
    for options, reported in (
        (["--models", "ngram,gpt2"], "models was ngram,bow, now ngram,gpt2"),
        (["--budget", "5min"], "budget was 64tokens, now 5min"),
        (["--size", "small"], "size was tiny, now small"),
        (["--tokenizer", "bytes"], "tokenizer of ngram was bpe:300, now bytes"),
        (["--seeds", "2"], "seeds was 0, now 0,1"),
        (["--sweep"], "sweep was off, now on"),
        (["--split", "0.5,0.2,0.3"], "split was 0.9,0.05,0.05, now 0.5,0.2,0.3"),
        (["--set", "train.batch=8"], "train.batch was 4, now 8"),
        (["--prompt", "So"], "prompt was not given, now So"),
        (["--overwrite"], "give one of them"),
    ):
        said = lmlab("compare", "--resume", "compared", *options)
        assert said.code == 2, options
        assert reported in said.err
    assert (tmp_path / "compared" / "leaderboard.json").stat().st_mtime_ns == stamp
    same = ["--models", "ngram,bow", "--budget", "64tokens", *FAST]
    assert lmlab("compare", "--resume", "compared", *same).code == 0, "what says the same is no mistake"


def test_a_lossy_tokenizer_is_labelled(lmlab) -> None:
    said = lmlab(
        "compare", "book.txt", "--models", "ngram", "--budget", "640tokens", "--tokenizer", "words", "-o", "words"
    )
    assert said.code == 0, said.err
    assert "ngram lossy" in said.out
    assert "loses part of the text, so the score looks better than it is" in said.out
    assert "would compress" not in said.out


def test_the_bar_knows_how_much_of_any_budget_is_spent() -> None:
    from lmlab.cli.leaderboard import BAR, LiveTable
    from lmlab.comparison.plan import PlannedRun
    from lmlab.training.progress import TrainingProgress

    planned = PlannedRun("gpt2", "gpt2", 0, None)  # type: ignore[arg-type]
    table = LiveTable()
    table.ready([planned], [])
    table.log(planned, {}, TrainingProgress(step=5, fraction=0.5))
    assert table.rows["gpt2"]["bar"].split("[/cyan]")[0].count("━") == BAR // 2
    table.log(planned, {"valid_bits_per_byte": 2.0}, TrainingProgress(step=7, ended="early", fraction=0.7))
    assert table.rows["gpt2"]["bar"].split("[/cyan]")[0].count("━") == BAR
    assert table.rows["gpt2"]["valid"] == "2.000 bits per byte"


def test_masked_systems_get_a_table_of_their_own(lmlab, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmlab.comparison import shared_test_data

    monkeypatch.setattr(shared_test_data, "PART_TOKENS", 300)
    words = ["compare", "book.txt", "--models", "ngram,roberta", "--budget", "640tokens", *FAST, "-o", "both"]
    said = lmlab(*words)
    assert said.code == 0, said.err
    assert "pseudo bits per byte" in said.err
    out = " ".join(said.out.split())
    left, right = out.split("Not comparable with left-to-right scores.")
    assert "ngram predicts the test text: " in left
    assert " best" not in left, "there is nobody to be better than"
    assert "roberta" not in left
    assert "roberta predicts masked tokens: " in right
    assert "Compare masked models only with each other" in right


def test_the_list_tells_what_each_predicts(lmlab) -> None:
    out = lmlab("list").out
    places = [
        out.index(title) for title in ("predict the next token", "predict masked tokens from", "write a target text")
    ]
    assert places[0] < out.index("gpt2") < places[1] < out.index("roberta") < places[2] < out.index("bart ")
    assert "--set objective.KEY=VALUE" in lmlab("list", "bert").out


def test_mistakes_are_one_clear_line(lmlab, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("Far too short.\n" * 40)
    for words, message in (
        (["book.txt", "--models", "gtp2"], "unknown model 'gtp2'; did you mean 'gpt2'"),
        (["book.txt", "--models", "gpt2,bart"], "bart writes a target text from a source"),
        (["book.txt", "--budget", "soon"], "budget 'soon' is not understood"),
        (["book.txt", "--set", "model.width=3"], "train.KEY=VALUE or data.KEY=VALUE"),
        (["book.txt", "--match", "width"], "parameters=2M"),
        (["short.txt", "--models", "ngram"], "at least 4,000 bytes"),
        (["nothing.txt"], "nothing.txt"),
        ([], "name a text"),
    ):
        said = lmlab("compare", *words, "-o", "out")
        assert said.code == 2, said
        assert message in said.err
        assert not (tmp_path / "out").exists()
    assert "-o FOLDER" in lmlab("compare", "book.txt").err
    assert "not a comparison" in lmlab("compare", "--resume", "elsewhere").err
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "scores.json").write_text('{"kind": "comparison", "results": []}')
    assert "give the same command again" in lmlab("compare", "--resume", "study").err


def test_a_budget_too_small_for_one_step_fails_that_system_alone(lmlab) -> None:
    said = lmlab("compare", "book.txt", "--models", "ngram,lstm", "--budget", "10flops", *FAST, "-o", "out")
    assert said.code == 0
    assert "lstm failed: a budget of 10 flops does not pay for one step" in said.out
    assert lmlab("compare", "book.txt", "--models", "lstm", "--budget", "10flops", *FAST, "-o", "alone").code == 1


def test_the_demo_ends_with_the_leaderboard_and_the_longer_run(
    lmlab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lmlab.data.readers import builtin_corpus as builtin

    kept = tmp_path / "kept"
    monkeypatch.setattr(builtin, "cache_folder", lambda: kept)
    monkeypatch.setattr(builtin, "_without_repetition", lambda documents: [("a", lines(500))])
    monkeypatch.setattr(builtin, "_sources", lambda folder: [])
    said = lmlab("demo", "-o", "shown", "--budget", "1step")
    assert said.code == 0, said.err
    for name in ("ngram", "bow", "nplm", "rnn", "lstm", "attention-lm", "gpt2", "transformer-xl"):
        assert f"{name}: " in said.err
    assert "Report: shown/report.html" in said.out
    assert "--budget 5min -o runs/longer" in said.out
    assert said.out.index("lower is better") < said.out.index("Report:")
