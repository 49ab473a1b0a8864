"""lmlab finetune and predict, as a user runs them: from a run and a file to a run that does the task."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from markupsafe import escape

import lmlab
from lmlab.language_model import load
from lmlab.runs.storage import read_json, read_tensors
from lmlab.transfer.finetune import finetune
from lmlab.transfer.folder import Finetuned
from lmlab.transfer.study_plans import DECK_LAYERS, plan_layers
from lmlab.transfer.trials import Trial
from standins import write_run
from toy_tasks import write_reviews, write_squad, write_tagged, write_toy_run
from translators import write_translator

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning", "ignore:too few n-grams")
QUICK = ["--set", "train.budget=4steps", "--set", "train.evaluations=1"]
TRAIN = {"budget": "4steps", "evaluations": 1}
BOB = {"id": "q7", "question": "who ?", "answers": [{"text": "Bob", "answer_start": 0}]}


class Place(NamedTuple):
    """Where runs to begin with and files to learn from are."""

    root: Path
    bert: Path
    gpt2: Path
    reviews: Path
    tagged: Path
    squad: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("place")
    return Place(
        root,
        write_toy_run(root / "bert", "bert"),
        write_toy_run(root / "gpt2", "gpt2"),
        write_reviews(root / "reviews.tsv"),
        write_tagged(root / "names.conll"),
        write_squad(root / "questions.json"),
    )


@pytest.fixture(scope="module")
def stars(place: Place) -> Finetuned:
    return finetune(place.bert, place.reviews, output=place.root / "stars", seeds=2, train=TRAIN)


def test_from_a_file_to_a_prediction(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    said = run_command("finetune", str(place.gpt2), str(place.reviews), "-o", "stars", "--json", *QUICK)
    assert said.code == 0, said.err
    study = json.loads(said.out)
    assert [(each["name"], each["method"]) for each in study["results"]] == [
        ("majority", "baseline"),
        ("bag of words", "baseline"),
        ("gpt2", "full"),
        ("gpt2", "frozen"),
        ("gpt2", "scratch"),
    ]
    assert study == read_json(tmp_path / "stars" / "scores.json")
    assert (study["labels"], study["metric"]) == (["neg", "pos"], "accuracy")
    said = run_command("predict", "stars", "a good film", "--json")
    line = json.loads(said.out)
    assert line["predicted"] in ("neg", "pos")
    assert line["scores"].keys() == {"neg", "pos"}
    found = load(tmp_path / "stars").classify("a good film")
    assert (found.value, found.probability) == (line["predicted"], line["probability"])
    several = lmlab.load(tmp_path / "stars").classify(["a good film", "the film was bad and sad"])
    assert several[0].scores == pytest.approx(found.scores, rel=1e-5)
    (tmp_path / "lines.txt").write_text("a good film\n\na bad film\n")
    said = run_command("predict", "stars", "lines.txt", "-o", "out.jsonl", "--json")
    assert said.code == 0
    lines = [json.loads(each) for each in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [each["text"] for each in lines] == ["a good film", "a bad film"]
    assert run_command("predict", "stars", "lines.txt", "-o", "out.jsonl").code == 2, "it is there already"


def test_what_stands_beside_a_score(stars: Finetuned) -> None:
    results = stars.study.results
    assert [(each.method, each.seed) for each in results] == [
        *[("baseline", 0)] * 2,
        ("full", 0),
        ("full", 1),
        ("frozen", 0),
        ("scratch", 0),
        ("frozen", 1),
        ("scratch", 1),
    ]
    assert all(each.steps == 4 for each in results if each.method in ("full", "scratch"))
    assert all(each.split == "test" and each.count == 6 for each in results)
    predictions = [json.loads(line) for line in (stars.path / "predictions.jsonl").read_text().splitlines()]
    right = sum(each["predicted"] == each["true"] for each in predictions)
    assert results[2].values["accuracy"].value == pytest.approx(right / len(predictions))
    beside = {each.name for each in (stars.path / "controls").iterdir() if each.is_dir()}
    assert beside - {"baselines"} == {
        f"bert-{how}-all-seed-{seed}" for how in ("frozen", "scratch") for seed in (0, 1)
    } | {"bert-full-all-seed-1"}
    assert not list((stars.path / "controls").rglob("*.safetensors")), "their weights are not kept"


def test_a_copy_does_the_same(stars: Finetuned, place: Place, tmp_path: Path) -> None:
    """A run is all that it needs: neither its origin nor its examples have to be where they were."""
    texts = ["a good film", "the cat was sad", "", "x y z"]
    shutil.copytree(stars.path, tmp_path / "elsewhere" / "copy")
    moved = tmp_path / "gone"
    before = load(stars.path).classify(texts)
    place.bert.rename(moved)
    try:
        assert load(tmp_path / "elsewhere" / "copy").classify(texts) == before
    finally:
        moved.rename(place.bert)
    task = read_json(tmp_path / "elsewhere" / "copy" / "task.json")
    assert (task["kind"], task["labels"]) == ("classification", ["neg", "pos"])


def test_a_fine_tuned_run_learns_another_task(stars: Finetuned, place: Place, tmp_path: Path) -> None:
    done = finetune(
        stars.path, place.tagged, output=tmp_path / "ner", controls=False, train=TRAIN, settings={"crf": True}
    )
    assert len(load(done.path).predictor.tag("Ada ran in London").value) == 4
    assert read_json(done.path / "recipe.json")["origin"] == str(stars.path)
    with pytest.raises(ValueError, match="this run does tagging, not classification"):
        load(done.path).classify("Ada")


def test_tags_and_answers(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    for name, data, more in (("ner", place.tagged, ["--crf"]), ("qa", place.squad, [])):
        said = run_command("finetune", str(place.bert), str(data), "-o", name, "--no-controls", *more, *QUICK)
        assert said.code == 0, said.err
    said = run_command("predict", "ner", "Ada ran in London", "--json")
    assert len(json.loads(said.out)["predicted"]) == 4
    (tmp_path / "page.txt").write_text("Ada wrote it in London .\n")
    said = run_command("predict", "qa", "--context", "page.txt", "who wrote it ?", "--json")
    line = json.loads(said.out)
    assert line["predicted"] == "Ada wrote it in London .\n"[slice(*line["span"])]
    assert "give --context FILE" in run_command("predict", "qa", "who ?").err
    assert "this run does tagging" in run_command("predict", "ner", "--context", "page.txt", "who ?").err
    assert run_command("predict", "qa", "--context", "nowhere.txt", "who ?").code == 2
    (tmp_path / "empty.txt").write_text("\n")
    assert "is empty" in run_command("predict", "ner", "empty.txt").err
    said = run_command("predict", str(place.bert), "a text")
    assert said.code == 2
    assert "has not learnt a task" in said.err


def test_choices_scores_and_pairs(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    rows = [f"Ada {i} sat on\tthe mat {i}\tthe log\t{1 + i % 2}" for i in range(30)]
    (tmp_path / "choices.tsv").write_text("question\tchoice1\tchoice2\tanswer\n" + "\n".join(rows) + "\n")
    rows = [f"a cat {i} sat\ta dog {'sat' if i % 3 else 'ran'} {i}\t{(i % 7) / 2}" for i in range(30)]
    (tmp_path / "scores.tsv").write_text("text_a\ttext_b\tscore\n" + "\n".join(rows) + "\n")
    for name in ("choices", "scores"):
        said = run_command("finetune", str(place.gpt2), f"{name}.tsv", "-o", name, "--no-controls", *QUICK)
        assert said.code == 0, said.err
    found = json.loads(run_command("predict", "choices", "who ?", "Ada", "the cat", "a mat", "--json").out)
    assert found["predicted"] in (0, 1, 2)
    assert found["scores"].keys() == {"Ada", "the cat", "a mat"}
    assert "give it with two choices or more" in run_command("predict", "choices", "who ?", "Ada").err
    task = read_json(tmp_path / "scores" / "task.json")
    assert task["both_orders"], "similarity has no order (Radford et al. 2018)"
    one, other = (
        json.loads(run_command("predict", "scores", *pair, "--json").out)["predicted"]
        for pair in (("a cat", "a dog ran"), ("a dog ran", "a cat"))
    )
    assert one == pytest.approx(other, rel=1e-4)
    assert 0 < one < 3, "the scale of the file"


def test_a_curve_goes_on_where_it_was(
    place: Place, run_command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["finetune", str(place.bert), str(place.reviews), "--examples", "4,all,1000", "--seeds", "2"]
    command += ["-o", "curve"]
    said = run_command(*command, "--json", *QUICK)
    assert said.code == 0, said.err
    results = json.loads(said.out)["results"]
    assert [each["examples"] for each in results if each["method"] == "full"] == [4, 4, 48, 48], "1000 is all there are"
    assert [each["examples"] for each in results if each["name"] == "majority"] == [4, 4, 48]
    assert not (tmp_path / "curve" / "recipe.json").exists()
    from lmlab.runs import run

    def fail(*args: Any, **options: Any) -> None:
        raise AssertionError("nothing is to be done")

    with monkeypatch.context() as patched:
        patched.setattr(run, "start", fail)
        shown = run_command(*command, "--json", *QUICK)
        assert shown.code == 0, "a finished study is shown again"
        assert json.loads(shown.out)["results"] == results
        assert "curve was finished already with the same settings: nothing was trained" in shown.err
        for change, named in ((["--seeds", "3"], "more seeds"), (["--examples", "4,8,all"], "more examples")):
            refused = run_command(*command, *change, "--json", *QUICK)
            assert refused.code == 2
            assert named in refused.err
            assert "add to it with --resume" in refused.err
        refused = run_command(*command, "--json", "--set", "train.budget=5steps", *QUICK[2:])
        assert refused.code == 2
        assert "started with other settings (train.budget)" in refused.err
        again = json.loads(run_command(*command, "--resume", "--json", *QUICK).out)["results"]
        alone = run_command("finetune", "--resume", "curve", "--json")
        assert alone.code == 0, alone.err
        assert [each for each in json.loads(alone.out)["results"] if each["method"] == "full"] == [
            each for each in again if each["method"] == "full"
        ]
    trained = [each for each in results if each["method"] == "full"]
    assert [each for each in again if each["method"] == "full"] == trained
    other = run_command(*command, "--overwrite", "--json", "--set", "train.budget=3steps")
    steps = [each["steps"] for each in json.loads(other.out)["results"] if each["method"] == "full"]
    assert steps == [3] * 4, "other settings are another study"
    only = json.loads(run_command(*command[:3], "--examples", "all", "-o", "all", "--json", *QUICK).out)
    assert only["kind"] == "curve"


def test_a_curve_of_tags_knows_the_tags_of_all_examples(
    place: Place, run_command: Callable[..., Any], tmp_path: Path
) -> None:
    said = run_command("finetune", str(place.bert), str(place.tagged), "--examples", "1,2", "-o", "curve", *QUICK)
    assert said.code == 0, said.err


def test_a_tag_that_is_only_held_out(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    """Where one file is split, a rare tag may come to lie in any part of it."""
    lines = [f"w{i} B-RARE{i}\nx{i} O\n" for i in range(20)]
    (tmp_path / "rare.conll").write_text("\n".join(lines))
    said = run_command("finetune", str(place.bert), "rare.conll", "-o", "ner", "--no-controls", *QUICK)
    assert said.code == 0, said.err


def test_layers_are_compared(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    said = run_command(
        *("finetune", str(place.bert), str(place.reviews), "--how", "frozen", "--layers", "all", "-o", "layers"),
        *("--json", *QUICK),
    )
    assert said.code == 0, said.err
    study = json.loads(said.out)
    assert study["kind"] == "layers"
    rows = [each["layers"] for each in study["results"] if each["method"] == "frozen"]
    assert rows == ["first", "last", "second-to-last", "sum:all", "concat:all"], "it has two layers, not four"
    assert len({(tmp_path / "layers" / "trials" / f"bert-frozen-all-seed-0{end}").name for end in rows}) == 5
    deep = tmp_path / "deep"
    shutil.copytree(place.bert, deep)
    config = json.loads((deep / "config.json").read_text())
    (deep / "config.json").write_text(json.dumps({**config, "model": {**config["model"], "layers": 4}}))
    assert [each.layers for each in plan_layers(Trial(origin=deep), seeds=1)] == list(DECK_LAYERS)


@pytest.mark.parametrize("layers", ["concat:-9:", "sum:1:9", "7", "concat:0,5"])
def test_layers_that_are_not_there_are_refused(
    layers: str, place: Place, run_command: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("good food\n")
    has = "this model has the layers 0 (embeddings) to 2"
    options = ("--how", "frozen", "--layers", layers, "--no-controls", "-o", "frozen", *QUICK)
    said = run_command("finetune", str(place.bert), str(place.reviews), *options)
    assert said.code == 2
    assert has in said.err
    assert not (tmp_path / "frozen").exists()
    said = run_command("embed", str(place.bert), "texts.txt", "--layers", layers, "-o", "vectors.npy")
    assert said.code == 2
    assert has in said.err
    assert not (tmp_path / "vectors.npy").exists()


def test_the_mix_is_reported(place: Place, tmp_path: Path) -> None:
    done = finetune(place.bert, place.reviews, output=tmp_path / "mix", how="mix", controls=False, train=TRAIN)
    (result,) = done.study.results
    assert result.mix is not None
    assert sum(result.mix) == pytest.approx(1)
    assert len(result.mix) == 3
    assert result.gamma is not None
    before, after = (read_tensors(run / "model.safetensors") for run in (place.bert, done.path))
    assert all(before[name].equal(after[name]) for name in after), "the model has learnt nothing"


def test_only_a_look(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    said = run_command("finetune", str(place.bert), str(place.reviews), "--check", "-o", "stars")
    assert said.code == 0
    assert "train 48, valid 6, test 6" in said.out
    reported = json.loads(run_command("finetune", str(place.bert), str(place.reviews), "--check", "--json").out)
    assert reported
    assert not (tmp_path / "stars").exists()


def test_nothing_left_to_hold_out(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    """Examples that all occur in training hold nothing out; to score others in their place would be a lie."""
    header, *rows = place.reviews.read_text().splitlines()
    for name, part in (("train", rows[:40]), ("valid", [*rows[:2], *rows[40:]]), ("test", rows[:6])):
        (tmp_path / f"{name}.tsv").write_text("\n".join([header, *part]) + "\n")
    command = ("finetune", str(place.bert), "train.tsv")
    cases = [
        (("--valid", "valid.tsv", "--test", "test.tsv"), "leaks: all 6 examples of test occur in train or valid, too"),
        (("--valid", "train.tsv"), "leaks: all 40 examples of valid occur in train, too"),
    ]
    for options, message in cases:
        said = run_command(*command, *options, "--check")
        assert said.code == 0
        assert message in said.out
        for before in (command, ("compare", "train.tsv", "--runs", str(place.bert))):
            said = run_command(*before, *options, "-o", "new", *QUICK)
            assert said.code == 2
            assert f"error: {message}" in said.err
            assert not (tmp_path / "new").exists()
    reported = json.loads(run_command(*command, "--valid", "valid.tsv", "--check", "--json").out)
    left = reported["examples"]["valid"]
    assert left == 22, "what is given is scored whole"
    assert reported["leaks"]["valid"] >= 2
    said = run_command(*command, "--valid", "valid.tsv", "-o", "new", "--no-controls", "--json", *QUICK)
    study = json.loads(said.out)
    assert (study["counts"]["valid"], study["results"][0]["count"]) == (left, left)
    assert any(f"valid {left}" in line for line in study["check"])


def test_runs_are_not_lost(stars: Finetuned, place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copytree(stars.path, tmp_path / "stars")
    weights = (tmp_path / "stars" / "model.safetensors").read_bytes()
    command = ["finetune", str(place.bert), str(place.reviews), "-o", "stars", "--no-controls", "--seeds", "2", *QUICK]
    said = run_command(*command)
    assert said.code == 2
    assert "--resume" in said.err
    assert "--overwrite" in said.err
    said = run_command(*command, "--resume", "--set", "train.rate=0.5")
    assert said.code == 2
    assert "started with other settings (train.rate)" in said.err
    assert (tmp_path / "stars" / "model.safetensors").read_bytes() == weights
    said = run_command(*command, "--resume")
    assert said.code == 0, said.err
    assert (tmp_path / "stars" / "model.safetensors").read_bytes() == weights, "it was finished"
    (tmp_path / "stars" / "mine.txt").write_text("kept")
    said = run_command(*command[:-4], "--overwrite", *QUICK, "--seed", "5")
    assert said.code == 0, said.err
    assert (tmp_path / "stars" / "model.safetensors").read_bytes() != weights
    assert (tmp_path / "stars" / "mine.txt").read_text() == "kept"
    assert not (tmp_path / "stars" / "controls" / "bert-full-all-seed-1").exists(), "of the run before"


@pytest.mark.parametrize("more", [[], ["--overwrite"], ["--examples", "4"], ["--examples", "4", "--overwrite"]])
def test_what_is_not_ours_is_left_alone(
    place: Place, run_command: Callable[..., Any], tmp_path: Path, more: list[str]
) -> None:
    (tmp_path / "mine" / "controls").mkdir(parents=True)
    (tmp_path / "mine" / "controls" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("text")
    for output in ("mine", "file"):
        said = run_command("finetune", str(place.bert), str(place.reviews), "-o", output, *more, *QUICK)
        assert said.code == 2, said.err
        assert "choose another -o" in said.err
    assert (tmp_path / "mine" / "controls" / "thesis.txt").read_text() == "years of work"


def test_a_study_does_not_go_into_a_run(stars: Finetuned, place: Place, run_command: Callable[..., Any]) -> None:
    before = (stars.path / "scores.json").read_bytes()
    output = str(stars.path)
    said = run_command("finetune", str(place.bert), str(place.reviews), "--examples", "4", "-o", output, *QUICK)
    assert said.code == 2
    assert (stars.path / "scores.json").read_bytes() == before


FILES = {
    "empty.tsv": "",
    "header.tsv": "text\tlabel\n",
    "one.tsv": "text\tlabel\n" + "".join(f"a film {i}\tpos\n" for i in range(9)),
    "unequal.tsv": "text\tlabel\na good film\tpos\na bad film\tneg\tmore\n" + "nice\tpos\nsad\tneg\n" * 5,
    "test.tsv": "text\tlabel\nwhat a film\tmixed\n",
    "illegal.conll": "Ada B-PER\nran E-PER\nx Q-PER\n\nthe O\ncat O\n",
    "answer.json": json.dumps({"version": "1.1", "data": [{"paragraphs": [{"context": "Ada ran", "qas": [BOB]}]}]}),
}
BAD = {
    "a missing column": (["reviews.tsv", "--columns", "a=review"], ["review"]),
    "a label seen only in test": (["reviews.tsv", "--test", "test.tsv"], ["test.tsv, line 2", "mixed"]),
    "an answer that is not in its context": (["answer.json"], ["answer.json", "q7"]),
    "tags that are no legal sequence": (["illegal.conll"], ["illegal.conll", "line"]),
    "unequal columns": (["unequal.tsv"], ["unequal.tsv", "line 3"]),
    "an empty file": (["empty.tsv"], ["empty.tsv"]),
    "a header alone": (["header.tsv"], ["header.tsv"]),
    "one class only": (["one.tsv"], ["one.tsv", "pos"]),
    "a file that is not there": (["nowhere.tsv"], ["nowhere.tsv"]),
    "a way that is none": (["reviews.tsv", "--how", "half"], ["--how half", "full, frozen"]),
    "a pool that is none": (["reviews.tsv", "--pool", "min"], ["pool"]),
    "a pool of words": (["names.conll", "--pool", "max"], ["--pool"]),
    "a CRF over classes": (["reviews.tsv", "--crf"], ["--crf is for tagging"]),
    "layers of a model that learns": (["reviews.tsv", "--layers", "first"], ["--how frozen"]),
    "layers that are none": (["reviews.tsv", "--how", "frozen", "--layers", "9"], ["layer"]),
    "two studies": (["reviews.tsv", "--how", "frozen", "--layers", "all", "--examples", "4"], ["--examples"]),
    "no number of examples": (["reviews.tsv", "--examples", "many"], ["--examples many"]),
    "no examples": (["reviews.tsv", "--examples", "0"], ["1 or more"]),
    "another group": (["reviews.tsv", "--set", "model.width=8"], ["model"]),
    "an option as a setting": (["reviews.tsv", "--set", "objective.how=frozen"], ["--how frozen"]),
    "an unknown setting": (["reviews.tsv", "--set", "objective.pol=max"], ["pol", "pool"]),
    "an unknown measure": (["reviews.tsv", "--set", "train.watch=bleu"], ["train.watch"]),
    "a language loss without a language": (["reviews.tsv", "--set", "objective.auxiliary=0.5"], ["bert"]),
    "a window that is too large": (["reviews.tsv", "--set", "train.window=4096"], ["4096", "48"]),
    "a task that it is not": (["questions.json", "--task", "tagging"], ["its task is spans, not tagging"]),
    "a tiny budget": (["reviews.tsv", "--set", "train.budget=nothing"], ["budget"]),
}


@pytest.mark.parametrize("batch", ["0", "-1", "2.5", "many"])
@pytest.mark.parametrize("command", ["finetune", "tagger", "compare"])
def test_a_batch_of_nothing(
    place: Place, run_command: Callable[..., Any], tmp_path: Path, batch: str, command: str
) -> None:
    """Nothing that is derived from it is complained of, and nothing is divided by it."""
    begin = {
        "finetune": ("finetune", str(place.bert), str(place.reviews)),
        "tagger": ("finetune", "tagger", str(place.tagged)),
        "compare": ("compare", str(place.reviews), "--runs", str(place.bert)),
    }[command]
    said = run_command(*begin, "-o", "new", "--set", f"train.batch={batch}")
    assert said.code == 2
    error = said.err[said.err.index("error: ") :]
    assert error.startswith("error: train.batch = ")
    assert "warmup" not in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_nothing_is_written(
    case: str, place: Place, run_command: Callable[..., Any], tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    shutil.copy(place.reviews, tmp_path / "reviews.tsv")
    shutil.copy(place.tagged, tmp_path / "names.conll")
    shutil.copy(place.squad, tmp_path / "questions.json")
    arguments, words = BAD[case]
    before = sorted(tmp_path.rglob("*"))
    said = run_command("finetune", str(place.bert), *arguments, "-o", "out/run")
    assert said.code == 2, said
    error = said.err[said.err.index("error: ") :]
    for word in words:
        assert word in error
    assert "unexpected" not in error
    assert sorted(tmp_path.rglob("*")) == before, "nothing is left"


def test_runs_that_cannot_learn_a_task(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "counts").mkdir()
    write_run(tmp_path / "counts", "ngram")
    write_translator(tmp_path / "de-en", source_spec="words")
    for run, words in (
        ("counts", "it counts words and has no vectors"),
        ("de-en", "source_tokenizer.json"),
        ("nowhere", "is not a run directory"),
        ("tager", "did you mean 'tagger'?"),
    ):
        said = run_command("finetune", run, str(place.reviews), "-o", "new")
        assert said.code == 2
        assert words in said.err
        assert said.err.count("error:") == 1
        assert not (tmp_path / "new").exists()
    assert "give -o RUN" in run_command("finetune", str(place.bert), str(place.reviews)).err


def test_the_encoder_of_a_translator_learns_a_task(place: Place, tmp_path: Path) -> None:
    run = write_translator(tmp_path / "both")
    done = finetune(run, place.reviews, output=tmp_path / "stars", controls=False, train=TRAIN)
    assert load(done.path).classify("the cat sat").value in ("neg", "pos")


def test_what_is_read_is_not_written_over(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    for output in (str(place.bert), str(place.root)):
        said = run_command("finetune", str(place.bert), str(place.reviews), "-o", output, "--overwrite", *QUICK)
        assert said.code == 2
        assert "read by this command: choose another folder" in said.err
    said = run_command("finetune", str(place.bert), str(place.reviews), "-o", "nowhere", "--resume", *QUICK)
    assert "there is nothing to resume" in said.err
    assert not (tmp_path / "nowhere").exists()


def test_names_of_files_that_are_not_there_are_no_texts(stars: Finetuned, run_command: Callable[..., Any]) -> None:
    assert "does not exist, and looks like the name of a file" in run_command("predict", str(stars.path), "no.txt").err
    assert "the text is empty" in run_command("predict", str(stars.path), "  ").err


def test_the_page_of_a_fine_tuned_run_is_made_again(stars: Finetuned, run_command: Callable[..., Any]) -> None:
    stars.study.write(stars.path)
    said = run_command("report", str(stars.path))
    assert said.code == 0, said.err
    assert "Scores and baselines" in (stars.path / "report.html").read_text()


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [
        ({"seeds": 0}, "seeds = 0"),
        ({"epochs": 0}, "epochs = 0"),
        ({"epochs": "3"}, "epochs = '3'"),
        ({"columns": "a=text"}, "columns = 'a=text'"),
    ],
)
def test_python_checks_as_the_command_line_does(place: Place, tmp_path: Path, wrong: Any, reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        finetune(place.bert, place.reviews, output=tmp_path / "x", **wrong)
    assert not (tmp_path / "x").exists()


def test_the_command_of_a_study_repeats_its_best(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    """All options that matter are in it, and the run that it makes has the very predictions."""
    header, *rows = place.reviews.read_text().splitlines()
    for name, part in (("my train.tsv", rows[:36]), ("dev.tsv", rows[36:48]), ("test.tsv", rows[48:])):
        (tmp_path / name).write_text("\n".join([header.replace("label", "stars"), *part]) + "\n")
    more = ["--valid", "dev.tsv", "--test", "test.tsv", "--columns", "a=text,label=stars", "--epochs", "1.5"]
    more += ["--seed", "7", "--set", "train.batch=8", "--set", "train.rate=0.01"]
    more += ["--leaks", "train", "--drop-bad-labels"]
    studies = {
        "compared": ["compare", "my train.tsv", "--runs", f"{place.bert},{place.gpt2}", "--how", "frozen,full", *more],
        "curve": ["finetune", str(place.bert), "my train.tsv", "--examples", "8,all", "--pool", "max", *more],
        "layers": ["finetune", str(place.gpt2), "my train.tsv", "--how", "frozen", "--layers", "all", *more],
    }
    for name, command in studies.items():
        said = run_command(*command, "-o", name)
        assert said.code == 0, said.err
        again = shlex.split(said.out.partition("as a run that can be used: ")[2].partition(" Report:")[0])
        assert str(escape(shlex.join(again))) in (tmp_path / name / "report.html").read_text()
        assert again[-2:] == ["-o", "runs/best"]
        said = run_command(*again[1:-1], f"best-{name}", "--json")
        assert said.code == 0, said.err
        (result,) = json.loads(said.out)["results"]
        study = read_json(tmp_path / name / "scores.json")
        same = [each for each in study["results"] if each["command"] == shlex.join(again) and each["examples"] == 36]
        assert [each["values"] for each in same] == [result["values"]]
        kept = [path.read_bytes() for path in (tmp_path / name / "trials").glob("*/predictions.jsonl")]
        assert (tmp_path / f"best-{name}" / "predictions.jsonl").read_bytes() in kept


def test_a_choice_stands_beside_chance(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    """The majority of the training examples may be wrong of every test example; guessing is right of a third."""
    rows = [f"Ada {i} sat on\tthe mat {i}\tthe log\ta dog\t{i % 2 + 1 if i else 3}" for i in range(30)]
    tested = [f"Ada {i} ran to\tthe mat {i}\tthe log\ta dog\t3" for i in range(30, 42)]
    header = "question\tchoice1\tchoice2\tchoice3\tanswer\n"
    (tmp_path / "choices.tsv").write_text(header + "\n".join(rows) + "\n")
    (tmp_path / "test.tsv").write_text(header + "\n".join(tested) + "\n")
    said = run_command("finetune", str(place.gpt2), "choices.tsv", "--test", "test.tsv", "-o", "run", "--json", *QUICK)
    assert said.code == 0, said.err
    study = json.loads(said.out)
    scores = {row["label"]: row["values"]["accuracy"] for row in study["rows"]}
    assert scores["majority"]["value"] == 0
    assert scores["chance"]["value"] == pytest.approx(1 / 3)
    assert scores["chance"]["low"] is None, "it is known, not estimated"
    assert {"gpt2 full", "chance"} in [{each["better"], each["worse"]} for each in study["differences"]]
    page = (tmp_path / "run" / "report.html").read_text()
    best = max(scores, key=lambda label: scores[label]["value"])
    assert (best == "gpt2 full") == ("below" not in page.partition("<h1>")[2].partition("</h1>")[0])
    assert "chance" in page


def test_what_chooses_is_reported_and_can_be_set(place: Place, run_command: Callable[..., Any], tmp_path: Path) -> None:
    header, *rows = write_reviews(tmp_path / "all.tsv", count=180).read_text().splitlines()
    for name, part in (("train", rows[:140]), ("dev", rows[140:])):
        (tmp_path / f"{name}.tsv").write_text("\n".join([header, *(f"{i} {row}" for i, row in enumerate(part))]) + "\n")
    command = ["finetune", str(place.bert), "train.tsv", "--valid", "dev.tsv"]
    line = "selection: 14 of the 140 training examples are held out and choose the checkpoint; valid is only scored"
    assert line in run_command(*command, "--check").out
    said = run_command(*command, "-o", "run", "--no-controls", *QUICK)
    assert line in said.err
    page = (tmp_path / "run" / "report.html").read_text()
    assert line in page
    assert "No model learnt from them, and no checkpoint was chosen on them." in page
    assert "selection: none (--select 0)" in run_command(*command, "--select", "0", "--check").out
    assert "28 of the 140" in run_command(*command, "--select", "0.2", "--check").out
    refused = run_command(*command, "--test", "all.tsv", "--select", "0.2", "--check")
    assert refused.code == 2
    assert "--select 0.2: it is for --valid without test examples" in refused.err
