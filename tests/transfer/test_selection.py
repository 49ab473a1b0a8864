"""What chooses a checkpoint is not what is scored."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lmlab.data.corpora.example_splits import FEWEST_TO_SELECT, hold_out_selection, name_text
from lmlab.data.corpora.examples import ExamplesConfig, parts_of, read
from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.labelled import read_examples
from lmlab.runs.storage import read_json
from lmlab.transfer.evaluation import find_trained_on
from lmlab.transfer.finetune import finetune
from lmlab.transfer.task_data import describe_selection, open_data
from toy_tasks import WORDS, write_tagged, write_toy_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


def write_coin_flips(path: Path, count: int, *, seed: int, start: int = 0) -> Path:
    """Texts whose labels are independent of them."""
    generator = random.Random(seed)
    lines = [
        f"{' '.join(generator.choices(WORDS, k=8))} {start + i}\t{generator.choice(['neg', 'pos'])}"
        for i in range(count)
    ]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_run(tmp_path_factory.mktemp("place") / "bert", "bert")


def texts(part: Sequence[Example] | None) -> set[str]:
    return {name_text(example) for example in part or ()}


def test_part_of_train_is_held_out_to_choose(tmp_path: Path) -> None:
    train = [Example(f"text {i // 2}", label="ab"[i // 2 % 3 == 0]) for i in range(400)]  # each text twice
    labelled = Labelled(task="classification", train=train, valid=[Example("other", label="a")])
    found = hold_out_selection(labelled, fraction=0.1)
    assert found.valid == labelled.valid
    assert len(found.selection or ()) == pytest.approx(40, abs=4)
    assert not texts(found.selection) & texts(found.train)
    assert Counter([*found.train, *(found.selection or ())]) == Counter(train)
    counts = Counter(example.label for example in found.selection or ())
    assert counts["b"] / counts["a"] == pytest.approx(0.5, abs=0.2)
    assert found == hold_out_selection(labelled, fraction=0.1), "the same again"
    assert found.selection != hold_out_selection(labelled, fraction=0.1, seed=1).selection
    assert hold_out_selection(replace(labelled, test=train[:1]), fraction=0.1).selection is None, "valid chooses"
    few = replace(labelled, train=train[: 2 * (FEWEST_TO_SELECT - 1)])
    assert hold_out_selection(few, fraction=0.1).selection == ()
    assert hold_out_selection(few, fraction=0.1).train == few.train


def test_recipes_of_earlier_versions_read_the_same_examples(tmp_path: Path) -> None:
    train, valid = (write_coin_flips(tmp_path / f"{i}.tsv", 150, seed=i, start=200 * i) for i in (1, 2))
    old = read(ExamplesConfig(examples=[str(train)], valid=[str(valid)]))[0]
    assert (len(parts_of(old)[0]), len(parts_of(old)[1] or ()), parts_of(old)[2]) == (150, 150, None)
    new = open_data(train, valid=valid).labelled
    assert [len(part or ()) for part in parts_of(new)] == [134, 16, 150]


def test_the_labels_of_valid_change_no_weight(run: Path, tmp_path: Path) -> None:
    """The same texts with other labels give other scores of the same model."""
    train = write_coin_flips(tmp_path / "train.tsv", 120, seed=1)
    valid = write_coin_flips(tmp_path / "valid.tsv", 40, seed=2, start=500)
    flipped = tmp_path / "flipped.tsv"
    flipped.write_text(valid.read_text().replace("\tneg", "\tother").replace("\tpos", "\tneg").replace("other", "pos"))
    done = [
        finetune(run, train, valid=path, output=tmp_path / path.stem, how="frozen", epochs=6, controls=False)
        for path in (valid, flipped)
    ]
    for name in ("model.safetensors", "head.safetensors"):
        assert (done[0].path / name).read_bytes() == (done[1].path / name).read_bytes()
    one, other = (each.study.results[0].values["accuracy"].value or 0.0 for each in done)
    assert one + other == pytest.approx(1)
    study = done[0].study
    assert (study.results[0].split, study.results[0].count) == ("valid", 40)
    assert study.counts == {"train": 108, "selection": 12, "valid": 40, "test": 0}
    assert study.check[-1] == (
        "selection: 12 of the 120 training examples are held out and choose the checkpoint; valid is only scored"
    )
    assert "on the 12 examples that chose the checkpoint" in (done[0].path / "README.md").read_text()


def test_scores_of_coin_flips_are_those_of_chance(run: Path, tmp_path: Path) -> None:
    """Chosen on the examples that are scored, the best of ten checkpoints came to 55 to 60."""
    scores, count = [], 60
    for seed in range(12):
        train = write_coin_flips(tmp_path / "train.tsv", 120, seed=10 + seed)
        valid = write_coin_flips(tmp_path / "valid.tsv", count, seed=100 + seed, start=500)
        done = finetune(
            run,
            train,
            valid=valid,
            output=tmp_path / "run",
            how="frozen",
            seed=seed,
            epochs=10,
            controls=False,
            train={"rate": 0.05},
            overwrite=seed > 0,
        )
        scores.append(done.study.results[0].values["accuracy"].value or 0.0)
    error = 0.5 / np.sqrt(count * len(scores))
    assert abs(np.mean(scores) - 0.5) < 2.5 * error


def test_too_few_to_choose_by_keeps_the_last_checkpoint(run: Path, tmp_path: Path) -> None:
    train = write_coin_flips(tmp_path / "train.tsv", 40, seed=1)
    valid = write_coin_flips(tmp_path / "valid.tsv", 20, seed=2, start=500)
    done = finetune(run, train, valid=valid, output=tmp_path / "run", epochs=2, controls=False)
    assert done.study.counts["selection"] == 0
    assert done.study.check[-1] == (
        "selection: none (fewer than 100 different training texts), the last checkpoint is kept; valid is only scored"
    )
    assert (done.path / "model.safetensors").read_bytes() == (done.path / "last" / "model.safetensors").read_bytes()
    assert read_json(done.path / "recipe.json")["train"]["watch"] == "loss"
    assert "none: the last checkpoint is kept" in (done.path / "README.md").read_text()


def test_nothing_is_reported_where_a_test_set_is_scored(tmp_path: Path) -> None:
    train, valid, test = (write_coin_flips(tmp_path / f"{i}.tsv", 120, seed=i, start=200 * i) for i in (1, 2, 3))
    assert describe_selection(open_data(train)) == []
    assert describe_selection(open_data(train, valid=valid, test=test)) == []
    (line,) = describe_selection(open_data(train, valid=valid, select=0))
    assert "--select 0" in line


def test_a_tagger_of_few_sentences_needs_nothing_to_choose_by(tmp_path: Path) -> None:
    write_tagged(tmp_path / "train.conll", count=30)
    write_tagged(tmp_path / "valid.conll", count=40)
    lines = (tmp_path / "valid.conll").read_text().replace("London", "Paris")
    (tmp_path / "valid.conll").write_text(lines)
    done = finetune(
        "tagger",
        tmp_path / "train.conll",
        valid=tmp_path / "valid.conll",
        output=tmp_path / "run",
        controls=False,
        train={"budget": "3steps"},
    )
    assert done.study.results[0].split == "valid"


def test_examples_that_chose_the_checkpoint_count_as_seen(run: Path, tmp_path: Path) -> None:
    data = write_coin_flips(tmp_path / "train.tsv", 100, seed=1)
    valid = write_coin_flips(tmp_path / "valid.tsv", 20, seed=2, start=100)
    done = finetune(
        run, data, valid=valid, output=tmp_path / "new", controls=False, train={"budget": "2steps", "batch": 4}
    )
    assert len(find_trained_on(done.path, read_examples(data).train)) == 100, "90 were trained on, 10 chose"
    assert not find_trained_on(done.path, read_examples(valid).train)
