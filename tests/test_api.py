"""The public Python API: few names, found by completion, with helpful errors."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import lmlab
from lmlab.comparison.folder import Published
from standins import TEXT

SMALL = {"size": "tiny", "tokenizer": "characters", "device": "cpu"}


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT * 20, encoding="utf-8")
    return path


def test_dir_shows_the_api_alone() -> None:
    assert dir(lmlab) == sorted([*lmlab.__all__, "__version__"])
    for name in lmlab.__all__:
        assert callable(getattr(lmlab, name)), name


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'train'"):
        lmlab.trian  # type: ignore[attr-defined]  # noqa: B018


def test_importing_lmlab_imports_no_torch() -> None:
    code = "import sys, lmlab; dir(lmlab); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_train_gives_a_run_that_can_be_loaded(book: Path, tmp_path: Path) -> None:
    options = {**SMALL, "budget": "3steps", "settings": {"model.layers": 1}}
    run = lmlab.train("gpt2", book, output=tmp_path / "run", **options)
    assert f"{tmp_path / 'run'}" in repr(run)
    assert "bits per byte" in repr(run)
    lm = run.load()
    assert lm.model.config.layers == 1
    again = lmlab.train("gpt2", book, output=tmp_path / "run", **options)
    assert not again.trained
    with pytest.raises(ValueError, match="other settings"):
        lmlab.train("gpt2", book, output=tmp_path / "run", **{**options, "budget": "4steps"})


def test_compare_ranks_models(book: Path, tmp_path: Path) -> None:
    options = {"models": ["ngram", "bow"], "budget": "2steps", "size": "tiny", "tokenizer": "characters"}
    for _ in range(2):  # the second time nothing is left to train
        done = lmlab.compare(book, output=tmp_path / "compared", **options)
        assert isinstance(done, Published)
        assert done.report.is_file()


def test_the_signatures_of_the_api_name_their_arguments() -> None:
    for function in (lmlab.train, lmlab.finetune, lmlab.compare):
        parameters = inspect.signature(function).parameters
        assert "output" in parameters
        assert all(each.kind is not each.VAR_POSITIONAL for each in parameters.values())
    assert {"budget", "models", "seeds", "overwrite"} <= inspect.signature(lmlab.compare).parameters.keys()
    with pytest.raises(TypeError, match=r"compare\(\) has no argument 'bugdet'; did you mean 'budget'\?"):
        lmlab.compare("book.txt", output="compared", bugdet="3steps")  # type: ignore[call-arg]


def test_a_misspelt_keyword_names_the_right_one(book: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"train\(\) has no argument 'bugdet'; did you mean 'budget'\?"):
        lmlab.train("gpt2", book, output=tmp_path / "run", bugdet="3steps")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"load\(\) has no argument 'devcie'; did you mean 'device'\?"):
        lmlab.load(tmp_path / "run", devcie="cpu")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"path = 3: give a path"):
        lmlab.load(3)  # type: ignore[arg-type]
    lm = lmlab.train("ngram", book, output=tmp_path / "run", tokenizer="characters").load()
    with pytest.raises(TypeError, match=r"generate\(\) has no argument 'temprature'; did you mean 'temperature'\?"):
        lm.generate("the", temprature=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"surprisal\(\) has no argument 'by_tokens'; did you mean 'by_token'\?"):
        lm.surprisal("the", by_tokens=True)  # type: ignore[call-arg]


def test_analyses_are_methods(book: Path, tmp_path: Path) -> None:
    from lmlab.analysis.attention import read_attention
    from lmlab.analysis.surprisal import read_surprisals

    lm = lmlab.train("gpt2", book, output=tmp_path / "run", budget="2steps", **SMALL).load()
    text = TEXT[:30]
    assert lm.surprisal(text).as_json() == read_surprisals(lm, text).as_json()
    assert lm.attention(text, layer=0).as_json() == read_attention(lm, text)["self"].of(layer=0).as_json()
    with pytest.raises(ValueError, match="kind = cross: this model has self"):
        lm.attention(text, kind="cross")
    assert lm.attribution(text, prediction="a").target.strip() == "a"
    assert len(lm.neighbours("t", top=3).neighbours) == 3
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("good\tbad\nthe cat\tcat the\n", encoding="utf-8")
    assert len(lm.minimal_pairs(pairs).scored) == 1
    assert {"attention", "surprisal", "attribution", "neighbours", "minimal_pairs", "cells", "bias"} <= {*dir(lm)}
