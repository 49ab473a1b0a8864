"""Small guards that users asked for: broken weights, missing runs and checkpoints, misspelt arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_runs import TEXT, after, recipe

import lmlab
from lmlab.cli import main
from lmlab.interop.huggingface.heads import MOST_LABELS, read_labels
from lmlab.runs import run


def test_resuming_without_a_checkpoint_says_that_it_starts_from_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    run.start(recipe(tmp_path / "book.txt"), tmp_path / "run", interrupted=after(3))
    for name in ("last", "previous"):
        for path in (tmp_path / "run" / name).glob("*"):
            path.unlink()
        if (tmp_path / "run" / name).is_dir():
            (tmp_path / "run" / name).rmdir()
    with pytest.warns(UserWarning, match="has no checkpoint yet: it starts from the beginning"):
        run.resume(tmp_path / "run")


def test_a_run_that_does_not_exist_is_not_one_without_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "data.tsv").write_text("text\tlabel\na\tb\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["lmlab", "evaluate", "missing", "data.tsv"])
    with pytest.raises(SystemExit):
        main()
    assert "missing does not exist" in capsys.readouterr().err


def test_a_misspelt_argument_of_finetune_names_the_right_one() -> None:
    finetune: Any = lmlab.finetune
    with pytest.raises(TypeError, match="epochs"):
        finetune("run", "data.tsv", epoch=1)


@pytest.mark.parametrize("count", [10**12, -1, 2.5, "many"])
def test_the_number_of_labels_of_an_imported_classifier_is_limited(count: Any) -> None:
    with pytest.raises(ValueError, match=f"from 1 to {MOST_LABELS:,}"):
        read_labels({"num_labels": count}, where="config.json")
