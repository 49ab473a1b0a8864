"""What each way of learning a task does to the weights of a model, and the settings that it begins with."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lmlab.data.corpora.examples import ExamplesConfig, fingerprint, read, sample_examples
from lmlab.data.readers.examples import Example, Labelled
from lmlab.language_model import load
from lmlab.models import find, frame_of
from lmlab.runs.finetuning import start_from_pooler
from lmlab.runs.storage import read_tensors
from lmlab.tasks import load_task
from lmlab.tasks.heads import Classifier
from lmlab.transfer.finetune import finetune
from lmlab.transfer.folder import finetune_trial
from lmlab.transfer.recipe import plan_finetuning, usual_epochs
from lmlab.transfer.results import Interval, Result, rows_of
from lmlab.transfer.study import run_study
from lmlab.transfer.study_plans import SHARED_TRAIN, plan_comparison, plan_controls
from lmlab.transfer.task_data import TaskData, open_data
from lmlab.transfer.trials import Trial, plan_trial, run_trial
from toy_tasks import EXAMPLES, toy_model, toy_tokenizer, write_reviews, write_squad, write_tagged, write_toy_run
from translators import write_translator

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("place")
    for kind in ("bert", "gpt2", "lstm", "bart"):
        write_toy_run(root / kind, kind)
    write_reviews(root / "reviews.tsv")
    return root


@pytest.fixture
def reviews(place: Path) -> TaskData:
    return open_data(place / "reviews.tsv")


def learn(place: Path, data: TaskData, output: Path, **changes: Any) -> dict[str, Tensor]:
    """The weights of the model after a trial."""
    settings = {"budget": "6steps", "evaluations": 1, **changes.pop("train", {})}
    trial = Trial(origin=place / changes.pop("kind", "bert"), train=settings, **changes)
    assert finetune_trial(trial, data, output, controls=False) is not None
    return read_tensors(output / "last" / "model.safetensors")


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in after.items() if not tensor.equal(before[name])}


def test_gradual_unfreezing_leaves_lower_layers_alone_at_first(place: Path, reviews: TaskData, tmp_path: Path) -> None:
    """The head learns first, then one layer after another from the top, the embeddings last."""
    begun = read_tensors(place / "bert" / "model.safetensors")
    *depths, _ = describe_depths("bert", place)  # what only predicts tokens learns nothing here
    moved = []
    for number in range(len(depths) + 1):
        train = {"unfreeze": 2, "budget": f"{2 * number + 2}steps"}
        after = learn(place, reviews, tmp_path / str(number), method="gradual", train=train)
        moved.append(changed(begun, after))
    assert moved[0] == set(), "only the head"
    for number, names in enumerate(moved):
        for frozen in depths[: len(depths) - number]:
            assert not names & frozen
        assert all(names & learnt for learnt in depths[len(depths) - number :]), "one more with every stage"
    assert moved[-1] & depths[0], "the embeddings have learnt in the end"
    usual = plan_finetuning(place / "bert", reviews.labelled, reviews.config, method="gradual").train
    assert usual.unfreeze is not None
    assert usual.layer_decay < 1
    steps = float(usual.budget.removesuffix("epochs")) * math.ceil(48 / usual.batch)
    assert usual.unfreeze * len(depths) <= 0.65 * steps, "all of it learns before the end"


@pytest.mark.parametrize(
    ("method", "steps_per_epoch", "epochs"),
    [("full", 4, 100), ("full", 10, 50), ("full", 32, 16), ("full", 250, 3), ("frozen", 4, 125), ("gradual", 4, 100)],
)
def test_few_examples_are_read_often_enough_for_some_hundred_steps(
    method: str, steps_per_epoch: int, epochs: int
) -> None:
    assert usual_epochs(method, steps_per_epoch) == epochs


def describe_depths(kind: str, place: Path) -> list[set[str]]:
    model = toy_model(kind, toy_tokenizer())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [{names[id(parameter)] for parameter in depth} for depth in model.depths()]


@pytest.mark.parametrize("kind", ["bert", "gpt2", "lstm", "bart"])
def test_all_weights_learn_unless_they_are_frozen(kind: str, place: Path, reviews: TaskData, tmp_path: Path) -> None:
    begun = read_tensors(place / kind / "model.safetensors")
    full = learn(place, reviews, tmp_path / "full", kind=kind)
    assert changed(begun, full) & describe_depths(kind, place)[0], "down to the embeddings"
    for how in ("frozen", "mix"):
        assert not changed(begun, learn(place, reviews, tmp_path / how, kind=kind, method=how))


def test_scratch_knows_nothing_of_its_origin(place: Path, reviews: TaskData, tmp_path: Path) -> None:
    """Another origin of the same shape gives the same weights; another seed others."""
    write_toy_run(tmp_path / "other" / "bert", "bert", seed=9)
    full = learn(place, reviews, tmp_path / "full")
    scratch = learn(place, reviews, tmp_path / "scratch", method="scratch")
    other = learn(tmp_path / "other", reviews, tmp_path / "again", method="scratch")
    seeded = learn(place, reviews, tmp_path / "seeded", method="scratch", seed=1)
    assert changed(full, scratch)
    assert not changed(scratch, other)
    assert changed(scratch, seeded)
    assert {name: tensor.shape for name, tensor in scratch.items()} == {
        name: tensor.shape for name, tensor in full.items()
    }


def test_the_head_begins_with_the_pooler() -> None:
    model = toy_model("bert", toy_tokenizer())
    if not isinstance(getattr(model, "pooler", None), torch.nn.Linear):
        pytest.skip("this BERT has no pooler")
    heads = torch.nn.ModuleDict({"label": Classifier(16, 2, activation="tanh")})
    start_from_pooler(model, heads)
    assert heads["label"].dense.weight.equal(model.pooler.weight)
    start_from_pooler(model, torch.nn.ModuleDict({"label": Classifier(16, 2)}))


def describe_task(labelled: Labelled, defaults: Any, *, method: str) -> dict[str, Any]:
    return load_task(labelled.task).settings_from(labelled, defaults, frozen=method == "frozen")


def test_settings_follow_from_model_and_data(place: Path, tmp_path: Path) -> None:
    """[CLS] for encoders, the last token for what reads from left to right, the mean for what is frozen."""
    write_squad(tmp_path / "qa.json", unanswerable=True)
    write_tagged(tmp_path / "names.conll")
    for kind, pool in (("bert", "cls"), ("gpt2", "last"), ("lstm", "last"), ("bart", "mean")):
        for how, expected in (("full", pool), ("frozen", "mean")):
            labelled = Labelled(task="classification", train=EXAMPLES["classification"])
            assert describe_task(labelled, find(kind).task, method=how)["pool"] == expected
    qa = open_data(tmp_path / "qa.json").labelled
    assert describe_task(qa, find("bert").task, method="full")["unanswerable"]
    assert [describe_task(qa, find(kind).task, method="full")["pool"] for kind in ("bert", "gpt2")] == ["cls", "last"]
    names = open_data(tmp_path / "names.conll")
    found = plan_finetuning(place / "bert", names.labelled, names.config).objective
    labels = list(names.task.labels_of(names.labelled))
    assert (found["labels"], found["scheme"], found["window"]) == (labels, "IOB2", 48)
    scores = Labelled(task="regression", train=EXAMPLES["regression"])
    reported = describe_task(scores, find("gpt2").task, method="full")
    assert (reported["mean"], reported["both_orders"]) == (pytest.approx(2.6), True)
    assert not describe_task(scores, find("bert").task, method="full")["both_orders"]
    pairs = [example._replace(label="1") for example in EXAMPLES["regression"]]
    for form, both in (("GLUE: MRPC", True), ("GLUE: RTE", None)):
        paraphrases = Labelled(task="classification", train=pairs, format=form)
        assert describe_task(paraphrases, find("gpt2").task, method="full").get("both_orders") == both
    same = [example._replace(label=1.0) for example in EXAMPLES["regression"]]
    assert describe_task(replace(scores, train=same), find("bert").task, method="full")["std"] == 1.0


def test_a_reader_from_the_end_stays_one(reviews: TaskData, tmp_path: Path) -> None:
    """Sutskever et al. 2014 reverse their sources: so does what is fine-tuned from it, and from that again."""
    run = write_translator(tmp_path / "both", kind="seq2seq", size={"width": 16, "layers": 1})
    frame_of(load(run).model, toy_tokenizer(), backwards=True).save(run)
    learn(tmp_path, reviews, tmp_path / "once", kind="both")
    learn(tmp_path, reviews, tmp_path / "twice", kind="once")
    for name in ("once", "twice"):
        task = load(tmp_path / name).predictor.task
        rows = task.frame.rows([{"a": [5, 6, 7]}])
        assert rows[0].inputs["source"].pieces[:3] == [7, 6, 5]
    assert not plan_finetuning(write_translator(tmp_path / "plain"), reviews.labelled, reviews.config).objective[
        "backwards"
    ]


def test_controls_have_the_settings_that_suit_it(place: Path, reviews: TaskData) -> None:
    train = {"rate": 1e-5, "batch": 8, "device": "cpu", "decay": 0.3}
    trial = Trial(origin=place / "bert", task={"dropout": 0.3, "pool": "max"}, train=train, epochs=4)
    frozen, scratch = plan_controls(trial, reviews, seeds=1)
    assert (frozen.method, scratch.method) == ("frozen", "scratch")
    assert set(frozen.train) == set(scratch.train) == {"batch", "device"} <= set(SHARED_TRAIN)
    assert frozen.task == {"dropout": 0.3}, "a pool for a model that learns is none for a frozen one"
    assert scratch.task == trial.task
    assert scratch.epochs is not None
    assert 2 < scratch.epochs < 4, "both together cost as much as the run"
    assert "92% of the steps" in scratch.note
    assert plan_controls(replace(trial, method="frozen"), reviews, seeds=3) == []
    controls = plan_controls(replace(trial, method="mix"), reviews, seeds=2)
    assert [each.method for each in controls] == ["frozen", "frozen"]


def test_epochs_are_those_of_all_windows(place: Path, tmp_path: Path) -> None:
    """A context that is read in several windows is several rows, and each is to be learnt from."""
    write_squad(tmp_path / "qa.json")
    data = open_data(tmp_path / "qa.json")
    settings = {"window": 16, "batch": 4, "evaluations": 1}
    trial = Trial(origin=place / "bert", epochs=1.0, train=settings, task={"stride": 2})
    done = run_trial(plan_trial(trial, data), tmp_path / "qa")
    assert done is not None
    assert done.steps > len(data.labelled.train) / 4


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 30, 100])
def test_draws_have_every_class(count: int) -> None:
    examples = [Example(f"text {i}", label="abc"[min(2, i // 60)]) for i in range(100)]
    examples[-1] = examples[-1]._replace(label="rare")
    drawn = sample_examples(examples, count, seed=1)
    assert len(drawn) == count
    assert len({example.a for example in drawn}) == count
    assert drawn == sample_examples(examples, count, seed=1)
    assert count == 100 or drawn != sample_examples(examples, count, seed=2)
    counts = Counter(example.label for example in drawn)
    assert len(counts) == min(3, count)
    if count >= 10:
        assert counts["a"] == pytest.approx(0.6 * count, abs=2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("label", [lambda i: "abc"[min(2, i // 40)], float], ids=["classes", "scores"])
def test_fewer_examples_are_among_more(seed: int, label: Any) -> None:
    """A learning curve adds examples; those of a class stay in proportion."""
    examples = [Example(f"text {i}", label=label(i)) for i in range(100)]
    drawn = [sample_examples(examples, count, seed=seed) for count in (1, 4, 8, 16, 50, 100)]
    for fewer, more in itertools.pairwise(drawn):
        assert set(fewer) < set(more)
    if isinstance(examples[0].label, str):
        counts = Counter(example.label for example in drawn[3])
        assert counts["a"] == pytest.approx(0.4 * 16, abs=1)
        assert counts["c"] == pytest.approx(0.2 * 16, abs=1)


def test_examples_are_the_same_wherever_they_are(tmp_path: Path) -> None:
    one, other = (
        read(ExamplesConfig(examples=[str(write_reviews(tmp_path / name))]))[0] for name in ("a.tsv", "b.tsv")
    )
    assert fingerprint((one.train,)) == fingerprint((other.train,))
    assert fingerprint((one.train,)) != fingerprint((one.train[1:],))
    relabelled = [one.train[0]._replace(label="other"), *one.train[1:]]
    assert fingerprint((one.train,)) != fingerprint((relabelled,))
    taken = read(ExamplesConfig(examples=[str(tmp_path / "a.tsv")], max_examples=7, sample_seed=2))[0]
    assert len(taken.train) == 7
    assert taken.test == one.test
    with pytest.raises(ValueError, match="2 files of examples: give one"):
        read(ExamplesConfig(examples=["a.tsv", "b.tsv"]))


def test_rows_are_means_over_seeds() -> None:
    def result(seed: int, value: float, how: str = "full") -> Result:
        values = {"accuracy": Interval(value=value, low=0.1, high=0.9)}
        return Result(
            name="bert", method=how, examples=9, seed=seed, split="test", count=4, values=values, seconds=seed
        )

    full, frozen = rows_of([result(0, 0.5), result(0, 0.7, "frozen"), result(1, 0.9), result(2, 0.1)])
    assert full.values["accuracy"].value == pytest.approx(0.5)
    assert full.seeds == [0.5, 0.9, 0.1]
    half = 4.302652729911275 * 0.4 / 3**0.5  # Student's t of two degrees of freedom; and 0.4 over the test examples
    assert full.values["accuracy"].high == pytest.approx(0.5 + (half**2 + 0.4**2) ** 0.5)
    assert full.seconds == 1.0
    assert frozen.values["accuracy"] == Interval(value=0.7, low=0.1, high=0.9)


def test_a_comparison_is_over_runs_ways_and_seeds(place: Path, tmp_path: Path) -> None:
    trial = Trial(origin=place)
    runs = [place / "bert", place / "gpt2"]
    trials = plan_comparison(runs, ["full", "frozen"], seeds=2, trial=trial)
    assert len({each.name for each in trials}) == 8
    with pytest.raises(ValueError, match="--how half: allowed are full"):
        plan_comparison(runs, ["half"], seeds=1, trial=trial)
    write_toy_run(tmp_path / "bert", "bert")
    with pytest.raises(ValueError, match="two runs have the same name"):
        plan_comparison([place / "bert", tmp_path / "bert"], ["full"], seeds=1, trial=trial)


def test_the_best_of_a_comparison_is_set_against_the_others(place: Path, reviews: TaskData, tmp_path: Path) -> None:
    """On the same examples, by the predictions that were kept; a second look at finished trials says the same."""
    trial = Trial(origin=place, train={"budget": "6steps", "evaluations": 1})
    compared = plan_comparison([place / "bert", place / "gpt2"], ["frozen"], seeds=2, trial=trial)
    trials = [plan_trial(each, reviews) for each in compared]
    study = run_study("comparison", trials, reviews, tmp_path)
    assert study is not None
    means = {row.label: row.values[study.metric].value or 0.0 for row in study.rows}
    pairs = {frozenset((each.better, each.worse)): each for each in study.differences}
    assert len(pairs) == 1 + 2 * 2, "both runs, and each against each baseline"
    found = pairs[frozenset(("bert frozen", "gpt2 frozen"))]
    assert means[found.better] >= means[found.worse]
    assert found.value == pytest.approx(abs(means["bert frozen"] - means["gpt2 frozen"]))
    assert found.low is None or found.low <= found.value <= (found.high or 0)
    again = run_study("comparison", trials, reviews, tmp_path)
    assert again is not None
    assert (again.rows[2:], again.differences) == (study.rows[2:], study.differences)


def test_gpts_language_loss_is_learnt_too(place: Path, reviews: TaskData, tmp_path: Path) -> None:
    with_it = learn(place, reviews, tmp_path / "with", kind="gpt2", task={"auxiliary": 0.5})
    without = learn(place, reviews, tmp_path / "without", kind="gpt2")
    assert changed(with_it, without)
    with pytest.raises(ValueError, match=r"auxiliary = 0\.5 .* --how frozen"):
        finetune(
            place / "gpt2",
            place / "reviews.tsv",
            output=tmp_path / "frozen",
            how="frozen",
            settings={"auxiliary": 0.5},
            controls=False,
        )
    assert not (tmp_path / "frozen").exists()


def test_a_measure_where_less_is_better_is_ranked_so() -> None:
    from lmlab.pages.scores import ScoreRow, ShownScore, clamp
    from lmlab.transfer.results import over_seeds

    seeds = [Interval(value=value, low=value - 0.1, high=value + 0.1, better="lower") for value in (1.2, 1.5)]
    assert over_seeds(seeds).better == "lower"
    given: dict[str, Any] = {"label": "", "name": "", "method": "full", "examples": 1, "layers": "last", "values": {}}
    assert ScoreRow(**given, seeds=[1.2, 1.5, None], better="lower").worst_seed == 1.5
    assert ScoreRow(**given, seeds=[1.2, 1.5, None], better="higher").worst_seed == 1.2
    assert clamp(ShownScore(1.0, None, 1.5), "mean_error").high == 1.5, "it is no fraction"
    assert clamp(ShownScore(1.0, None, 1.5), "accuracy").high == 1.0
