"""lmlab predict and evaluate of fine-tuned runs: files with labels and without, a line for each row, folders."""

from __future__ import annotations

import io
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lmlab.data.readers.examples import Example
from lmlab.models import load_class
from lmlab.tasks import load_task
from lmlab.tasks.records import Prediction
from lmlab.transfer.finetune import finetune
from toy_tasks import toy_task, write_reviews, write_squad, write_tagged, write_toy_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")
TRAIN = {"budget": "2steps", "evaluations": 1}


class Runs(NamedTuple):
    """Fine-tuned runs."""

    stars: str
    pairs: str
    names: str
    answers: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("runs")
    bert = write_toy_run(root / "bert", "bert")
    rows = [f"a cat {i} sat\ta dog {'sat' if i % 3 else 'ran'} {i}\t{('yes', 'no')[i % 2]}" for i in range(30)]
    (root / "pairs.tsv").write_text("sentence1\tsentence2\tlabel\n" + "\n".join(rows) + "\n")
    write_reviews(root / "stars.tsv")
    write_tagged(root / "names.conll")
    write_squad(root / "answers.json")
    files = ("stars.tsv", "pairs.tsv", "names.conll", "answers.json")
    for file in files:
        finetune(bert, root / file, output=root / Path(file).stem, controls=False, train=TRAIN)
    return Runs(*(str(root / Path(file).stem) for file in files))


@pytest.fixture
def piped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """A function that puts a text into a pipe, and gives the name of the pipe."""

    def put(text: str, how: str) -> str:
        if how != "fifo":
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
            return how
        path = tmp_path / f"pipe-{len(list(tmp_path.iterdir()))}"
        os.mkfifo(path)
        threading.Thread(target=path.write_text, args=(text,), daemon=True).start()
        return str(path)

    return put


PIPES = [
    "-",
    "/dev/stdin",
    pytest.param("fifo", marks=pytest.mark.skipif(os.name == "nt", reason="there are no named pipes")),
]


@pytest.mark.parametrize("how", PIPES)
def test_texts_come_through_pipes(
    how: str, runs: Runs, said: Callable[..., Any], piped: Callable[[str, str], str], run_command: Callable[..., Any]
) -> None:
    found, _ = said(runs.stars, piped("the film was good\nthe cat was bad\n", how))
    assert [each["text"] for each in found] == ["the film was good", "the cat was bad"]
    (alone,), _ = said(runs.stars, "the film was good")
    assert alone["scores"] == pytest.approx(found[0]["scores"], abs=1e-5)
    rows = Path(runs.stars).with_suffix(".tsv").read_text()
    whole = run_command("evaluate", runs.stars, piped(rows, how), "--json")
    assert whole.code == 0, whole.err
    assert json.loads(whole.out)["examples"] == len(rows.splitlines()) - 1
    learnt = run_command("finetune", str(Path(runs.stars).parent / "bert"), piped(rows, how), "-o", "new")
    assert learnt.code == 2
    assert "examples are read more than once; save them to a file" in learnt.err


@pytest.mark.parametrize("how", PIPES)
def test_prompts_and_masked_texts_come_through_pipes(
    how: str, runs: Runs, piped: Callable[[str, str], str], run_command: Callable[..., Any]
) -> None:
    bert = str(Path(runs.stars).parent / "bert")
    direct = run_command("fill", bert, "the [MASK] sat", "--json")
    assert direct.code == 0, direct.err
    assert run_command("fill", bert, piped("the [MASK] sat\n", how), "--json").out == direct.out
    direct = run_command("tokenize", bert, "the cat", "--json")
    assert run_command("tokenize", bert, piped("the cat", how), "--json").out == direct.out


@pytest.mark.parametrize("text", ["./reviews", "/nowhere/reviews", "~/reviews", "notes.md"])
def test_a_text_that_looks_like_a_file_is_noted(text: str, runs: Runs, said: Callable[..., Any]) -> None:
    (found,), reported = said(runs.stars, text)
    assert found["text"] == text
    assert f"note: {text} looks like the name of a file (does not exist), and is taken as the text itself" in reported
    _, reported = said(runs.stars, "good/bad film, e.g. this.")
    assert "note" not in reported


def test_a_device_is_not_a_text(runs: Runs, run_command: Callable[..., Any]) -> None:
    result = run_command("predict", runs.stars, "/dev/null")
    assert result.code == 2
    assert "/dev/null is neither a file nor a folder" in result.err


@pytest.fixture
def said(run_command: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """The predictions of a command, and what it writes on standard error."""

    def predict(*arguments: str) -> tuple[list[dict[str, Any]], str]:
        result = run_command("predict", *arguments, "--json", "-o", "out.jsonl", "--overwrite")
        assert result.code == 0, result.err
        return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()], result.err

    return predict


def test_a_line_for_each_row(runs: Runs, said: Callable[..., Any], tmp_path: Path) -> None:
    texts = ["a good film", "bad", "the cat was nice"]
    for name, text in {
        "x.tsv": "text\n" + "\n".join(texts),
        "y.tsv": "text\tlabel\n" + "".join(f"{each}\t\n" for each in texts),
        "z.csv": "text,label\n" + "".join(f"{each},{'' if i else 'unheard of'}\n" for i, each in enumerate(texts)),
        "x.jsonl": "".join(json.dumps({"text": each}) + "\n" for each in texts),
    }.items():
        (tmp_path / name).write_text(text)
        lines, _ = said(runs.stars, name)
        assert [line["text"] for line in lines] == texts, name
    (tmp_path / "pairs.tsv").write_text("a cat sat\ta dog\na dog\ta cat sat\na cat sat\ta dog\n")
    lines, _ = said(runs.pairs, "pairs.tsv")
    pair = ("a cat sat", "a dog")
    assert [(line["text"], line["second"]) for line in lines] == [pair, pair[::-1], pair]
    (tmp_path / "x.conll").write_text("Ada\nran\n\nin\nLondon\n")
    lines, _ = said(runs.names, "x.conll")
    assert [line["text"] for line in lines] == [["Ada", "ran"], ["in", "London"]]
    asked = [{"question": "who ?", "context": "Ada ran"}, {"question": "where ?", "context": "in London"}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(each) + "\n" for each in asked))
    lines, _ = said(runs.answers, "q.jsonl")
    assert [(line["text"], line["second"]) for line in lines] == [("who ?", "Ada ran"), ("where ?", "in London")]


def test_what_is_left_out_is_reported(runs: Runs, said: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("text\tlabel\na good film\tpos\n\tneg\n\nbad\t\n")
    lines, error = said(runs.stars, "x.tsv")
    assert [line["text"] for line in lines] == ["a good film", "bad"]
    assert "x.tsv: rows left out: 1 with nothing in them, 1 with no text" in error
    assert "column text read; not read: label" in error
    (tmp_path / "q.txt").write_text("who ?\n\nwhere ?\n")
    (tmp_path / "page.txt").write_text("Ada ran in London")
    lines, error = said(runs.answers, "q.txt", "--context", "page.txt")
    assert len(lines) == 2
    assert "1 with no text" in error
    (tmp_path / "odd.csv").write_text(
        "words,others\na good film,so it was indeed\nthe film was sad,it was a bad film\n" * 2
    )
    lines, _ = said(runs.stars, "odd.csv", "--columns", "text=others")
    assert lines[0]["text"] == "so it was indeed"


def test_a_file_for_another_task_names_what_the_run_does(
    runs: Runs, run_command: Callable[..., Any], tmp_path: Path
) -> None:
    write_reviews(tmp_path / "reviews.tsv")
    write_tagged(tmp_path / "names.conll")
    for run, data, words in (
        (runs.names, ["reviews.tsv"], "this run tags words, and reviews.tsv is for classification; give a CoNLL file"),
        (runs.stars, ["names.conll"], "this run classifies texts, and names.conll is for tagging"),
    ):
        result = run_command("evaluate", run, *data)
        assert result.code == 2
        assert words in result.err
        assert "--task" not in result.err


def test_where_nothing_is_found_it_is_reported() -> None:
    spans, plain = (toy_task("tagging", load_class("bert"), scheme=scheme) for scheme in ("IOB2", None))
    example = Example(("Ada", "ran"))
    assert spans.format_prediction(example, Prediction(("O", "O")), top=1) == "Ada ran   (no spans)"
    assert spans.format_prediction(example, Prediction(("B-PER", "O")), top=1) == "Ada/B-PER ran"
    assert plain.format_prediction(example, Prediction(("O", "O")), top=1) == "Ada ran"


def test_what_to_try_with_a_task_fits_its_files() -> None:
    endings = {
        task: load_task(task).example_commands()[1].split()[-1] for task in ("tagging", "spans", "classification")
    }
    assert endings == {"tagging": "more.conll", "spans": "more.json", "classification": "more.tsv"}


def test_one_line_says_how_texts_are_given(runs: Runs, run_command: Callable[..., Any]) -> None:
    for run, texts, words in (
        (
            runs.stars,
            ["x", "y"],
            "this run reads one text, and 2 are given: put several texts into a file, one per line",
        ),
        (runs.pairs, ["x"], "this run reads the two texts of a pair"),
        (runs.stars, ["x", "--columns", "a=1"], "--columns is for a file"),
    ):
        result = run_command("predict", run, *texts)
        assert result.code == 2
        assert words in result.err
        assert result.err.count("error:") == 1


def test_progress_is_reported(
    runs: Runs, run_command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import contextmanager

    reported: list[tuple[int, int]] = []

    @contextmanager
    def counting(what: str) -> Any:
        yield lambda done, total: reported.append((done, total))

    monkeypatch.setattr("lmlab.cli.console.progress_bar", counting)
    (tmp_path / "x.txt").write_text("a good film\n" * 5)
    assert run_command("predict", runs.stars, "x.txt").code == 0
    assert reported[-1] == (5, 5)
    write_reviews(tmp_path / "test.tsv", count=7)
    assert run_command("evaluate", runs.stars, "test.tsv").code == 0
    assert reported[-1] == (7, 7)


def test_a_score_on_what_was_trained_on_is_called_too_good(
    runs: Runs, run_command: Callable[..., Any], tmp_path: Path
) -> None:
    trained = json.loads(Path(runs.stars, "recipe.json").read_text())["data"]["examples"][0]
    said = run_command("evaluate", runs.stars, trained)
    assert f"{runs.stars} was trained on" in said.err
    assert "the score is too good" in said.err
    assert json.loads(run_command("evaluate", runs.stars, trained, "--json").out)["trained_on"] > 0
    (tmp_path / "other.tsv").write_text("text\tlabel\nquite another film\tgood\nand one more\tbad\n")
    assert "too good" not in run_command("evaluate", runs.stars, "other.tsv").err


def test_what_speaks_for_a_class(runs: Runs, run_command: Callable[..., Any]) -> None:
    (label,) = [json.loads(run_command("predict", runs.stars, "a good film", "--json").out)["predicted"]]
    said = run_command("inspect", "gradients", runs.stars, "a good film")
    assert said.code == 0, said.err
    assert f"“{label}” has a probability of" in said.out
    said = run_command("inspect", "gradients", runs.names, "Ada ran")
    assert said.code == 2
    assert "this run does tagging" in said.err


def test_all_runs_of_an_ensemble_are_asked_what_they_were_trained_on(
    runs: Runs, run_command: Callable[..., Any], tmp_path: Path
) -> None:
    trained = json.loads(Path(runs.stars, "recipe.json").read_text())["data"]["examples"][0]
    rows = [f"quite another film {number}\t{('pos', 'neg')[number % 2]}\n" for number in range(30)]
    (tmp_path / "own.tsv").write_text("text\tlabel\n" + "".join(rows))
    bert = write_toy_run(tmp_path / "bert", "bert")
    finetune(bert, tmp_path / "own.tsv", output=tmp_path / "second", controls=False, train=TRAIN)
    said = run_command("evaluate", "second", trained, "--mix", runs.stars, "--json")
    assert said.code == 0, said.err
    assert f"{runs.stars} was trained on" in said.err
    assert "second was trained on" not in said.err
    assert json.loads(said.out)["trained_on"] > 0


def test_what_was_held_out_is_evaluated(runs: Runs, run_command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for name, count in (("train", 40), ("dev", 12), ("test", 8)):
        write_reviews(tmp_path / "set" / f"{name}.tsv", count=count)

    def reported(data: str) -> tuple[str | None, int]:
        values = json.loads(run_command("evaluate", runs.stars, data, "--json").out)
        return values["split"], values["examples"]

    assert reported("set") == ("test", 8)
    assert "8 examples of set (test):" in run_command("evaluate", runs.stars, "set").out
    assert reported("set/train.tsv") == (None, 40)
    (tmp_path / "set" / "test.tsv").write_text("text\nno label at all\n")
    assert reported("set") == ("valid", 12), "a test of GLUE has no labels"
    (tmp_path / "set" / "dev.tsv").unlink()
    assert reported("set") == ("train", 40)
    shutil.rmtree(tmp_path / "set")
    for label in ("pos", "neg"):
        (tmp_path / "set" / label).mkdir(parents=True)
        (tmp_path / "set" / label / "1.txt").write_text("a good film")
    assert reported("set") == (None, 2)
