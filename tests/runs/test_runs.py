"""A run directory is self-contained: it resumes with what it holds, and knows its text wherever it is."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lmlab
from lmlab.runs import run
from lmlab.runs.held_out import held_out
from lmlab.runs.recipe import make_recipe
from lmlab.runs.recipe_record import read_record
from lmlab.runs.storage import read_tensors, write_json, write_manifest
from lmlab.tokenizers import Tokenizer, train
from lmlab.training.settings import FIXED

TEXT = "".join(f"line {i} of {i * 7 % 11} says that {i % 13} is not {i * i % 17}.\n" for i in range(300))
TRAIN = {"budget": "6steps", "batch": 2, "window": 16, "save_seconds": 0}
TINY = {"width": 16, "heads": 2, "layers": 1}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"say {i} and {i % 7}\tsage {i} und {i % 7}\n" for i in range(80)))
    return path


def recipe(text: Any, kind: str = "gpt2", **groups: Any) -> Any:
    values = {"data": {"text": str(text)}, "model": {"kind": kind, **TINY}, "tokenizer": {"spec": "bpe:300"}}
    return make_recipe({**values, "train": TRAIN, **groups})


def after(steps: int) -> Any:
    calls = iter(range(1000))
    return lambda: next(calls) >= steps


def make_old(path: Path) -> dict[str, Any]:
    """Rewrite the recipe of a run as version 0.2 wrote it: all settings of all kinds of data, and no fingerprint."""
    values = json.loads((path / "recipe.json").read_text())
    new = values["data"]
    sides = [f"{part}{side}" for part in ("", "valid_", "test_") for side in ("source", "target", "pairs")]
    old = {"alpha": 0.7, "documents": "file", "longest": 250, "ratio": None, "languages": None}
    old |= dict.fromkeys(("text", "valid", "test", *sides))
    old |= {name: value for name, value in new.items() if name in old or name == "split"}
    for part in ("valid", "test"):
        if isinstance(new[part], dict) and new["kind"] == "pairs":
            old |= {part: None} | {f"{part}_{side}": files for side, files in new[part].items()}
    if new["kind"] == "languages":
        old["text"] = [f"{name}={file}" for name, files in new["text"].items() for file in files]
    values["data"] = old
    del values["encoder_sha256"]
    write_json(path / "recipe.json", values)
    write_manifest(path)
    return values


def weights(path: Path) -> bytes:
    return (path / "last" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("kind", ["text", "languages", "pairs"])
def test_runs_of_version_0_2_load_score_and_resume(kind: str, text: Path, pairs: Path, tmp_path: Path) -> None:
    data = {
        "text": {"text": str(text), "documents": "lines"},
        "languages": {"text": [f"en={text}", f"de={pairs}"], "alpha": 0.3},
        "pairs": {"pairs": str(pairs), "valid_pairs": str(pairs), "longest": 60},
    }[kind]
    model = "transformer" if kind == "pairs" else "gpt2"
    made = recipe(text, model, data=data)
    assert made.data.kind == kind
    run.start(made, tmp_path / "whole")
    run.start(made, tmp_path / "old", interrupted=after(3))
    old = make_old(tmp_path / "old")
    assert len(old["data"]) == 18
    assert "kind" not in old["data"]
    again, fingerprint = read_record(tmp_path / "old")[:2]
    assert again.data.model_copy(update={"given": None}) == made.data.absolute().model_copy(update={"given": None})
    assert fingerprint == old["text_sha256"]
    run.resume(tmp_path / "old")
    assert weights(tmp_path / "old") == weights(tmp_path / "whole")
    if kind != "pairs":
        assert lmlab.load(tmp_path / "old").score(TEXT[:200]).nats > 0
    assert held_out(tmp_path / "old") == held_out(tmp_path / "whole")


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_resuming_needs_no_tokenizer_file(
    kind: str, literal: bool, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a text contains a special token, written out, which is no special token there."""
    if literal:
        text.write_text(TEXT.replace("not 1", "[MASK] 1"))
    train("bpe:300", [TEXT]).save(tmp_path / "tokenizer.json")
    objective = {"pairs": "none"} if kind == "bert" else {}
    made = recipe(text, kind, tokenizer={"spec": str(tmp_path / "tokenizer.json")}, objective=objective)
    run.start(made, tmp_path / "whole")
    run.start(made, tmp_path / "part", interrupted=after(3))
    (tmp_path / "tokenizer.json").unlink()
    monkeypatch.setenv("LMLAB_CACHE", str(tmp_path / "another cache"))
    run.resume(tmp_path / "part")
    assert weights(tmp_path / "part") == weights(tmp_path / "whole")


def test_resuming_needs_no_origin(text: Path, pairs: Path, tmp_path: Path) -> None:
    tokenizers = {"spec": "bpe:300", "source": "characters"}
    data = {"pairs": str(pairs)}
    run.start(recipe(text, "transformer", data=data, tokenizer=tokenizers), tmp_path / "origin")
    values = {"data": data, "model": {"kind": "transformer"}, "train": TRAIN, "origin": str(tmp_path / "origin")}
    run.start(make_recipe(values), tmp_path / "whole")
    run.start(make_recipe(values), tmp_path / "part", interrupted=after(3))
    shutil.rmtree(tmp_path / "origin")
    run.resume(tmp_path / "part")
    assert weights(tmp_path / "part") == weights(tmp_path / "whole")


def test_a_run_finds_its_text_from_anywhere(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run.start(recipe("book.txt"), tmp_path / "run", interrupted=after(3))
    data = json.loads((tmp_path / "run" / "recipe.json").read_text())["data"]
    assert data["text"] == [str(text)]
    assert data["given"] == ["book.txt"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run.resume("../run")
    assert "book.txt: " in (tmp_path / "run" / "README.md").read_text(), "the card names the text as the user did"
    assert str(text) not in (tmp_path / "run" / "README.md").read_text()


def test_a_text_that_has_moved(text: Path, tmp_path: Path) -> None:
    run.start(recipe(text), tmp_path / "run", interrupted=after(3))
    moved, other = tmp_path / "moved.txt", tmp_path / "other.txt"
    text.rename(moved)
    other.write_text(TEXT.upper())
    with pytest.raises(ValueError, match=r"run learns from .*book\.txt, which is not there any more.*NEW"):
        run.resume(tmp_path / "run")
    before = (tmp_path / "run" / "recipe.json").read_bytes()
    with pytest.raises(ValueError, match=r"other\.txt is not the text that .*run was trained on"):
        run.resume(tmp_path / "run", texts={"text": [str(other)]})
    assert (tmp_path / "run" / "recipe.json").read_bytes() == before
    assert run.resume(tmp_path / "run", texts={"text": [str(moved)]}).progress.ended == "budget"
    assert read_record(tmp_path / "run").recipe.data.named == [str(moved)]
    assert held_out(tmp_path / "run")


def test_the_vocabulary_grows_with_another_objective(text: Path, pairs: Path, tmp_path: Path) -> None:
    run.start(recipe(text, "transformer", data={"pairs": str(pairs)}), tmp_path / "origin")
    values = {
        "data": {"text": str(text), "documents": "lines"},
        "model": {"kind": "transformer"},
        "objective": {"kind": "denoising"},
        "train": {**TRAIN, "rate": 1e-9},
        "origin": str(tmp_path / "origin"),
    }
    with pytest.warns(UserWarning, match=r"vocabulary of .*origin grows by 2 special tokens"):
        run.start(make_recipe(values), tmp_path / "grown")
    old, new = (Tokenizer.load(tmp_path / name / "tokenizer.json") for name in ("origin", "grown"))
    assert new.vocabulary == old.vocabulary + 2
    before, now = (read_tensors(tmp_path / name / "model.safetensors") for name in ("origin", "grown"))
    assert {name for name in now if now[name].shape != before[name].shape} == {
        name for name in now if now[name].shape[0] == new.vocabulary
    }
    for name, tensor in now.items():
        assert float((tensor[: len(before[name])] - before[name]).abs().max()) < 1e-6, name
    run.resume(tmp_path / "grown", settings={"budget": "8steps"})
    config = json.loads((tmp_path / "grown" / "config.json").read_text())
    assert config["model"]["vocabulary"] == new.vocabulary


def test_a_source_vocabulary_is_for_pairs(text: Path, pairs: Path, tmp_path: Path) -> None:
    tokenizers = {"spec": "bpe:300", "source": "characters"}
    run.start(recipe(text, "transformer", data={"pairs": str(pairs)}, tokenizer=tokenizers), tmp_path / "origin")
    values = {"data": {"text": str(text)}, "model": {"kind": "transformer"}, "objective": {"kind": "denoising"}}
    with pytest.raises(ValueError, match="origin has a separate vocabulary for the source, which only pairs have"):
        make_recipe({**values, "origin": str(tmp_path / "origin")})


@pytest.mark.parametrize("there", [False, True])
def test_nothing_half_made_is_left(there: bool, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(text)

    def fail(*arguments: Any, **options: Any) -> Any:
        raise ValueError("the first step fails")

    monkeypatch.setattr("lmlab.objectives.causal.Causal.loss", fail)
    if there:
        (tmp_path / "run").mkdir()
    with pytest.raises(ValueError, match="the first step fails"):
        run.start(made, tmp_path / "run")
    assert (tmp_path / "run").exists() == there
    assert not there or not [entry for entry in (tmp_path / "run").iterdir() if not entry.name.startswith(".")]


def test_a_model_without_the_head_that_is_asked_for_leaves_nothing(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"this bert has none: set objective\.pairs=none"):
        recipe(text, "bert", model={"kind": "bert", **TINY, "pairs": False})
    made = recipe(text, "bert", model={"kind": "bert", **TINY, "pairs": False}, objective={"pairs": "none"})
    assert run.start(made, tmp_path / "run").progress.ended == "budget"


def files(path: Path) -> dict[str, tuple[bytes, int]]:
    """All files of a run but its lock, with the time at which each was changed."""
    found = [file for file in path.rglob("*") if file.is_file() and file.name != ".lock"]
    return {str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns) for file in found}


@pytest.mark.parametrize(
    "settings", [{}, {"budget": "4steps"}, {"rate": 0.5}, {"country": "SE", "tensorboard": True}, {"device": "cpu"}]
)
def test_a_finished_run_is_left_alone(settings: dict[str, Any], text: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard" if "tensorboard" in settings else "json")
    done = run.start(recipe(text), tmp_path / "run")
    before = files(tmp_path / "run")
    again = run.resume(tmp_path / "run", settings=settings)
    assert files(tmp_path / "run") == before
    assert not again.trained
    assert again._replace(trained=True, grams=0) == done._replace(grams=0)


def test_a_finished_count_is_left_alone(text: Path, tmp_path: Path) -> None:
    made = make_recipe({"data": {"text": str(text)}, "model": {"kind": "ngram"}, "train": {"budget": "500tokens"}})
    with pytest.warns(UserWarning, match="too few n-grams"):
        done = run.start(made, tmp_path / "run")
    before = files(tmp_path / "run")
    assert run.resume(tmp_path / "run", settings={"budget": "400tokens"})._replace(trained=True) == done
    assert files(tmp_path / "run") == before
    with pytest.warns(UserWarning, match="too few n-grams"):
        assert run.resume(str(tmp_path / "run"), settings={"budget": "600tokens"}).progress.tokens == 600


@pytest.mark.filterwarnings("ignore:too few n-grams")
def test_ngrams_counted_on_disk_score_like_those_counted_in_memory(text: Path, tmp_path: Path) -> None:
    """The files of the count are gone, and so are those of a count that was interrupted."""
    bits = {}
    for memory in (None, "1M"):
        made = make_recipe({"data": {"text": str(text)}, "model": {"kind": "ngram"}, "train": {"memory": memory}})
        bits[memory] = run.start(made, tmp_path / f"{memory}").progress.best_bits
    assert bits["1M"] == pytest.approx(bits[None], rel=0.01)
    assert not (tmp_path / "1M/counting").exists()
    stopped = run.start(made, tmp_path / "stopped", interrupted=after(2))
    assert stopped.interrupted
    assert not (tmp_path / "stopped/counting").exists()


@pytest.mark.parametrize(
    ("kind", "memory", "message"),
    [
        ("gpt2", "1G", "--memory is for counting n-grams on disk; gpt2 is a network"),
        ("ngram", "much", "'much' is no amount"),
    ],
)
def test_memory_that_cannot_be_used(kind: str, memory: str, message: str, text: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        run.start(
            make_recipe({"data": {"text": str(text)}, "model": {"kind": kind}, "train": {"memory": memory}}),
            tmp_path / "run",
        )


@pytest.mark.parametrize("name", FIXED)
def test_what_decides_the_data_cannot_be_changed(name: str, text: Path, tmp_path: Path) -> None:
    run.start(recipe(text), tmp_path / "run", interrupted=after(3))
    before = files(tmp_path / "run")
    other = {"order": "streams", "optimizer": "sgd", "exact": True}.get(name, 7)
    with pytest.raises(ValueError, match=rf"continues .*run as it was started: train\.{name} cannot be changed"):
        run.resume(tmp_path / "run", settings={name: other})
    assert files(tmp_path / "run") == before


def test_what_is_changed_on_the_way_is_a_history(text: Path, tmp_path: Path) -> None:
    """The recipe stays as it was begun: with its changes, each from its step on, it makes the same run again."""
    path = tmp_path / "run"
    run.start(recipe(text), path, interrupted=after(3))
    begun = json.loads((path / "recipe.json").read_text())
    assert "changes" not in begun
    run.resume(path, settings={"rate": 0.001, "clip": None, "seed": 0, "batch": 2}, interrupted=after(2))
    run.resume(path, settings={"budget": "8steps"})
    now = json.loads((path / "recipe.json").read_text())
    changes = now.pop("changes")
    assert now == begun
    assert changes == [{"step": 3, "train": {"rate": 0.001, "clip": None}}, {"step": 5, "train": {"budget": "8steps"}}]
    in_force = read_record(path).recipe.train
    assert (in_force.rate, in_force.clip, in_force.budget) == (0.001, None, "8steps")
    card = (path / "README.md").read_text()
    assert "| changed after step 3 | train.rate from 0.004 to 0.001, train.clip from 1.0 to None |" in card
    assert "| changed after step 5 | train.budget from 6steps to 8steps |" in card

    run.start(recipe(text), tmp_path / "again", interrupted=after(3))
    run.resume(tmp_path / "again", settings=changes[0]["train"], interrupted=after(2))
    run.resume(tmp_path / "again", settings=changes[1]["train"])
    assert weights(tmp_path / "again") == weights(path)


def test_a_change_that_nothing_was_learnt_with_is_replaced(text: Path, tmp_path: Path) -> None:
    run.start(recipe(text), tmp_path / "run", interrupted=after(3))
    run.resume(tmp_path / "run", settings={"rate": 0.1}, interrupted=after(0))
    run.resume(tmp_path / "run", settings={"rate": 0.2})
    changes = json.loads((tmp_path / "run" / "recipe.json").read_text())["changes"]
    assert changes == [{"step": 3, "train": {"rate": 0.2}}]


def test_a_budget_that_is_spent_already(text: Path, tmp_path: Path) -> None:
    run.start(recipe(text), tmp_path / "run", interrupted=after(3))
    before = files(tmp_path / "run")
    with pytest.raises(ValueError, match="a budget of 2steps is spent already, at step 3"):
        run.resume(tmp_path / "run", settings={"budget": "2steps"})
    assert files(tmp_path / "run") == before


def test_a_run_that_stopped_early_goes_on_with_more_patience(text: Path, tmp_path: Path) -> None:
    train = {**TRAIN, "budget": "60steps", "evaluate_every": 2, "patience": 2, "rate": 1e-12}
    stopped = run.start(recipe(text, train=train), tmp_path / "run").progress
    assert stopped.ended == "early"
    assert run.resume(tmp_path / "run", settings={"patience": 4}).progress.step > stopped.step


@pytest.mark.parametrize("what", [str, Path])
def test_paths_may_be_strings(what: Any, text: Path, tmp_path: Path) -> None:
    path = what(tmp_path / "run")
    run.start(recipe(text), path, interrupted=after(3))
    assert run.resume(path).progress.step == 6
    assert held_out(path)


def test_what_is_no_path_or_recipe_is_named(text: Path, tmp_path: Path) -> None:
    for wrong in (None, 3, b"run", ""):
        for call in (partial(run.start, recipe(text)), run.resume, held_out):
            with pytest.raises(ValueError, match=r"path = .*: give the folder of a run"):
                call(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"recipe = .*make_recipe"):
        run.start({"data": {"text": str(text)}}, tmp_path / "run")  # type: ignore[arg-type]


def test_only_what_lmlab_wrote_is_ever_removed(text: Path, tmp_path: Path) -> None:
    """A hidden file, or a tokenizer that somebody keeps, is no beginning of a run; what was put into a run stays."""
    for name in (".git", "tokenizer.json", "config.json"):
        folder = tmp_path / f"of {name}"
        folder.mkdir()
        (folder / name).write_text("precious")
        with pytest.raises(ValueError, match="exists and is not a run directory"):
            run.start(recipe(text), folder, overwrite=True)
        assert (folder / name).read_text() == "precious"
    run.start(recipe(text), tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("precious")
    (tmp_path / "run" / ".hidden").write_text("precious")
    run.start(recipe(text), tmp_path / "run", overwrite=True)
    assert (tmp_path / "run" / "notes.txt").read_text() == "precious"
    assert (tmp_path / "run" / ".hidden").read_text() == "precious"


def test_a_text_that_has_changed_has_no_held_out_part(text: Path, tmp_path: Path) -> None:
    run.start(recipe(text), tmp_path / "run")
    assert "".join(held_out(tmp_path / "run")) in TEXT
    text.write_text("A new beginning.\n" + TEXT)
    with pytest.raises(ValueError, match=r"book\.txt is not the text that .*run was trained on.*has changed"):
        held_out(tmp_path / "run")


def test_what_is_watched_is_checked_before_anything_is_made(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train\.watch = 'accuracie'.*allowed: loss"):
        run.start(recipe(text, train={**TRAIN, "watch": "accuracie"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_clusters_of_a_large_vocabulary_are_allowed(text: Path) -> None:
    chosen = {"kind": "lstm", "width": 64, "hidden": 64, "softmax": "adaptive", "cutoffs": [2000, 10000], "tied": False}
    assert recipe(text, model=chosen).model["cutoffs"] == [2000, 10000]


def test_an_n_gram_of_several_languages_weighs_them_alike(tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text(TEXT)
    (tmp_path / "de.txt").write_text(TEXT.replace("says that", "sagt, dass")[:4000])
    data = {"text": {"en": str(tmp_path / "en.txt"), "de": str(tmp_path / "de.txt")}, "kind": "languages"}
    made = recipe(None, "ngram", data=data, model={"kind": "ngram", "order": 2}, train={"budget": "1epochs"})
    outcome = run.start(made, tmp_path / "run")
    assert outcome.bits_per_byte is not None
    assert 0 < outcome.bits_per_byte < 8
