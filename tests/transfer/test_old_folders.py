"""Fine-tuned runs of versions before 0.6.0: other names of settings and of the folder of controls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lmlab
from lmlab.data.readers.examples import Example
from lmlab.runs.storage import write_manifest
from lmlab.transfer.finetune import finetune, resume_finetuning
from lmlab.transfer.study import read_study
from toy_tasks import write_reviews, write_toy_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
EXAMPLES = [Example("a good film"), Example("bad")]
OLD = {"method": "how", "limit": "take", "max_examples": "take", "sample_seed": "draw"}


def rename(value: Any) -> Any:
    """JSON with the names of settings that version 0.5 wrote."""
    if isinstance(value, dict):
        return {OLD.get(name, name): rename(each) for name, each in value.items()}
    return [rename(each) for each in value] if isinstance(value, list) else value


def test_an_old_run_is_loaded_shown_and_resumed(tmp_path: Path) -> None:
    run, reviews = write_toy_run(tmp_path / "bert", "bert"), write_reviews(tmp_path / "reviews.tsv")
    done = finetune(run, reviews, output=tmp_path / "stars", train={"budget": "2steps", "evaluations": 1})
    before = lmlab.load(done.path).predictor.predict(EXAMPLES)
    for name in ("scores.json", "study.json", "task.json", "recipe.json"):
        path = done.path / name
        path.write_text(json.dumps(rename(json.loads(path.read_text()))))
    write_manifest(done.path)
    (done.path / "controls").rename(done.path / "beside")
    for path in (done.path / "beside").glob("*.json"):
        path.write_text(json.dumps(rename(json.loads(path.read_text()))))
    assert '"how"' in (done.path / "scores.json").read_text()
    assert read_study(done.path) == done.study
    assert lmlab.load(done.path).predictor.predict(EXAMPLES) == before
    again = resume_finetuning(done.path)
    assert not (done.path / "controls").exists(), "what was done is read from the old folder"
    assert [each.values for each in again.study.results] == [each.values for each in done.study.results]
    assert [each.seconds for each in again.study.results[3:]] == [each.seconds for each in done.study.results[3:]]
