"""What a command reads is never written over, and a study is never replaced by another one unasked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmlab.runs.recipe import make_recipe
from lmlab.runs.recipe_record import read_record
from lmlab.runs.run import start
from lmlab.runs.run_files import check_not_read
from toy_tasks import write_reviews, write_tagged

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
STEPS = ("--no-controls", "--set", "train.budget=2steps", "--set", "train.evaluations=1")
TUNING = ("--how", "ulmfit", "--set", "language.budget=2steps", "--set", "language.batch=2")
TUNING = (*TUNING, "--set", "language.window=8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    (root / "book.txt").write_text("the cat sat on the mat .\na dog ran .\n" * 200)
    for seed, name in enumerate(("general", "other")):
        recipe = make_recipe(
            {
                "data": {"text": str(root / "book.txt")},
                "tokenizer": {"spec": "bpe:300"},
                "model": {"kind": "lstm", "size": "tiny"},
                "train": {"budget": "2steps", "evaluations": 1, "batch": 2, "window": 8, "seed": seed},
            }
        )
        start(recipe, root / name)
    write_reviews(root / "reviews.tsv")
    write_tagged(root / "names.conll")
    (root / "vectors.txt").write_text("cat 0.1 0.2\nmat 0.3 0.4\n")
    return root


@pytest.fixture
def here(made: Path, tmp_path: Path, run_command: Callable[..., Any]) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "link").symlink_to("general")
    shutil.copy(tmp_path / "vectors.txt", tmp_path / "other")
    shutil.copy(tmp_path / "book.txt", tmp_path / "other")
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    """All files but those of the locks, which are empty."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "arguments",
    [
        "finetune tagger names.conll -o general --states general",
        "finetune tagger names.conll -o general --states other --states link",
        "finetune tagger names.conll -o other --vectors other/vectors.txt",
        "finetune tagger names.conll -o other --set objective.vectors=other/vectors.txt",
        "finetune tagger names.conll -o general --states general --examples 4",
        "finetune general reviews.tsv -o link",
        "train lstm book.txt -o general --from general",
        "train lstm book.txt -o link --from general",
        "train lstm book.txt -o general --tokenizer general/tokenizer.json",
        "train lstm other/*.txt -o other",
        "train lstm book.txt --valid other/book.txt -o other",
    ],
)
def test_what_is_read_is_not_replaced(here: Path, run_command: Callable[..., Any], arguments: str) -> None:
    before = content(here)
    said = run_command(*arguments.split(), "--overwrite")
    assert said.code == 2, said
    assert "read by this command: choose another folder" in said.err
    assert content(here) == before


def test_what_is_beside_or_inside_what_is_read_is_free(tmp_path: Path) -> None:
    check_not_read(tmp_path / "run", [tmp_path / "run-lm", tmp_path / "ru*", "run", tmp_path])
    with pytest.raises(ValueError, match=r"run holds .*safetensors, which is read by this command"):
        check_not_read(tmp_path / "run", [tmp_path / "run" / "*" / "model.safetensors"])
    with pytest.raises(ValueError, match="run is read by this command"):
        check_not_read(tmp_path / "run", [tmp_path / "run"])


def test_an_ensemble_is_not_written_over(here: Path, run_command: Callable[..., Any]) -> None:
    for name in ("one", "two"):
        said = run_command("finetune", "general", "reviews.tsv", "-o", name, *STEPS)
        assert said.code == 0, said.err
    before = content(here)
    for command in (("predict", "one", "good film"), ("evaluate", "one", "reviews.tsv")):
        said = run_command(*command, "--mix", "two", "-o", "two/scores.json", "--overwrite")
        assert said.code == 2
        assert "two/scores.json is a file of what is read" in said.err
    assert content(here) == before


def test_the_text_of_a_comparison_is_kept(here: Path, run_command: Callable[..., Any]) -> None:
    command = ("--models", "ngram", "--budget", "1s", "-o", "compared")
    said = run_command("compare", "book.txt", *command)
    assert said.code == 0, said.err
    shutil.copy(here / "book.txt", here / "compared")
    before = content(here)
    said = run_command("compare", "compared/book.txt", *command, "--overwrite")
    assert said.code == 2
    assert "which is read" in said.err
    assert content(here) == before


# ULMFiT's language model


def test_ulmfit_does_not_tune_in_its_own_source(here: Path, run_command: Callable[..., Any]) -> None:
    (here / "general").rename(here / "stars-lm")
    before = content(here)
    for more in ((), ("--overwrite",)):
        said = run_command("finetune", "stars-lm", "reviews.tsv", "-o", "stars", *TUNING, *STEPS, *more)
        assert said.code == 2
        assert "the folder of the tuned language model, stars-lm is read by this command" in said.err
        assert "--overwrite" not in said.err
    assert content(here) == before


def test_ulmfit_replaces_its_own_language_model_alone(here: Path, run_command: Callable[..., Any]) -> None:
    shutil.copytree(here / "other", here / "stars-lm")
    command = ("finetune", "general", "reviews.tsv", *TUNING, *STEPS)
    before = content(here)
    for more in ((), ("--overwrite",)):
        said = run_command(*command, "-o", "stars", *more)
        assert said.code == 2
        assert "stars-lm, where the language model would be tuned, holds another run, which is not replaced" in said.err
    assert content(here) == before
    assert run_command(*command, "-o", "new").code == 0
    said = run_command(*command, "-o", "new", "--resume")
    assert said.code == 0, said.err
    tuned = (here / "new-lm" / "model.safetensors").read_bytes()
    said = run_command(*command, "-o", "new", "--resume", "--set", "language.seed=3")
    assert said.code == 2
    assert "new-lm was tuned with other settings or texts" in said.err
    assert (here / "new-lm" / "model.safetensors").read_bytes() == tuned
    said = run_command(*command, "-o", "new", "--overwrite", "--set", "language.seed=3")
    assert said.code == 0, said.err
    assert read_record(here / "new-lm").recipe.train.seed == 3


def test_a_language_model_of_the_user_is_no_part_of_what_began_with_it(
    here: Path, run_command: Callable[..., Any]
) -> None:
    """Though it has the name that ULMFiT would give its own."""
    assert run_command("train", "lstm", "book.txt", "-o", "x-lm", "--from", "general", "--budget", "2steps").code == 0
    assert run_command("finetune", "x-lm", "reviews.tsv", "-o", "x", *STEPS).code == 0
    before = content(here)
    said = run_command("finetune", "general", "reviews.tsv", "-o", "x", *TUNING, *STEPS, "--overwrite")
    assert said.code == 2
    assert "holds another run, which is not replaced" in said.err
    assert content(here) == before


# Studies

CURVE = ("finetune", "general", "reviews.tsv", "--examples", "4,all", "-o", "study")
COMPARISON = ("compare", "reviews.tsv", "--runs", "general,other", "--how", "frozen,full", "-o", "study")
FEW = ("--set", "train.budget=2steps", "--set", "train.evaluations=1")


def replaced(command: tuple[str, ...], old: str, new: str) -> list[str]:
    return [new if part == old else part for part in command]


def check_refused(said: Any, names: str, before: dict[str, bytes], here: Path) -> None:
    assert said.code == 2, said
    assert f"study was started with other settings ({names})" in said.err
    assert content(here) == before


def test_a_curve_is_not_gone_on_with_as_another(here: Path, run_command: Callable[..., Any]) -> None:
    said = run_command(*CURVE, *FEW)
    assert said.code == 0, said.err
    assert write_reviews(here / "others.tsv", count=56)
    before = content(here)
    for command, names in (
        ((*CURVE, *FEW, "--epochs", "2"), "epochs"),
        ((*CURVE, *FEW, "--how", "frozen"), "how"),
        ((*CURVE, *FEW, "--set", "train.rate=0.5", "--set", "objective.dropout=0.3"), "objective.dropout, train.rate"),
        ((*CURVE, *FEW[:2]), "train.evaluations"),
        ((*replaced(CURVE, "general", "other"), *FEW), "runs"),
        ((*replaced(CURVE, "reviews.tsv", "others.tsv"), *FEW), "data"),
        ((*replaced(CURVE, "4,all", "4"), *FEW), "examples"),
        ((*CURVE, *FEW, "--seed", "1"), "seeds"),
        ((*CURVE[:3], "--how", "frozen", "--layers", "all", "-o", "study", *FEW), "kind, how, layers, examples"),
    ):
        check_refused(run_command(*command, "--resume"), names, before, here)
    scores = (here / "study" / "scores.json").read_bytes()
    trial = here / "study" / "trials" / "general-full-all-seed-0.json"
    kept = trial.read_bytes()
    said = run_command(*replaced(CURVE, "general", str(here / "general")), *FEW, "--device", "cpu", "--resume")
    assert said.code == 0, "the same by another path, and on another device"
    assert trial.read_bytes() == kept
    said = run_command(*replaced(CURVE, "4,all", "4,8,all"), *FEW, "--seeds", "2", "--resume")
    assert said.code == 0, said.err
    assert trial.read_bytes() == kept, "what was done stays"
    assert (here / "study" / "scores.json").read_bytes() != scores
    check_refused(run_command(*CURVE, *FEW, "--resume"), "seeds, examples", content(here), here)
    assert run_command(*CURVE, *FEW, "--epochs", "2", "--overwrite").code == 0
    assert run_command(*CURVE, *FEW, "--epochs", "2", "--resume").code == 0


def test_a_comparison_is_not_gone_on_with_as_another(here: Path, run_command: Callable[..., Any]) -> None:
    said = run_command(*COMPARISON, *FEW)
    assert said.code == 0, said.err
    before = content(here)
    for command, names in (
        ((*replaced(COMPARISON, "general,other", "other"), *FEW), "runs"),
        ((*replaced(COMPARISON, "frozen,full", "full,scratch"), *FEW), "how"),
        ((*COMPARISON, *FEW, "--epochs", "3"), "epochs"),
    ):
        check_refused(run_command(*command, "--resume"), names, before, here)
    (here / "study" / "study.json").unlink()  # as of a study before it was kept
    before = content(here)
    command = (*replaced(COMPARISON, "general,other", "other"), *FEW, "--resume")
    check_refused(
        run_command(*command),
        "trials/general-frozen-all-seed-0.json, trials/general-full-all-seed-0.json",
        before,
        here,
    )
    assert run_command(*replaced(COMPARISON, "frozen,full", "full,frozen"), *FEW, "--resume").code == 0


def test_a_study_that_was_interrupted_is_gone_on_with_as_it_was_begun(
    here: Path, run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lmlab.runs import run

    real, made = run.start, []

    def stop_at_the_second(*arguments: Any, **options: Any) -> Any:
        if made:
            raise KeyboardInterrupt
        made.append(real(*arguments, **options))
        return made[0]

    with monkeypatch.context() as patched:
        patched.setattr(run, "start", stop_at_the_second)
        assert run_command(*CURVE, *FEW).code == 130
    assert not (here / "study" / "scores.json").exists()
    check_refused(run_command(*CURVE, *FEW, "--epochs", "2"), "epochs", content(here), here)
    assert run_command(*CURVE, *FEW).code == 0


def test_nothing_is_left_of_a_study_that_could_not_begin(
    here: Path, run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lmlab.runs import run

    def fail(*arguments: Any, **options: Any) -> Any:
        raise ValueError("no such device")

    before = sorted(here.rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr(run, "start", fail)
        assert run_command(*replaced(CURVE, "study", "new/study"), *FEW).code == 2
    assert sorted(here.rglob("*")) == before


def test_seeds_of_a_run_are_not_left_out(here: Path, run_command: Callable[..., Any]) -> None:
    command = ("finetune", "general", "reviews.tsv", "-o", "stars", *STEPS)
    assert run_command(*command, "--seeds", "2").code == 0
    before = content(here)
    said = run_command(*command, "--resume")
    assert said.code == 2
    assert "stars was started with other settings (seeds)" in said.err
    assert content(here) == before
    assert run_command(*command, "--seeds", "3", "--resume").code == 0
