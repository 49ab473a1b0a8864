"""The page of a study: every kind and task is drawn, in well-formed HTML, with nothing that is no number."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lmlab.pages.evidence import Calibration, Confusion, describe_calibration
from lmlab.pages.figures import ReliabilityBin
from lmlab.tasks.evidence import LONGEST, shorten
from lmlab.transfer.report import find_shown, gather_facts, write_report
from lmlab.transfer.results import Interval, Result
from lmlab.transfer.study import Study
from lmlab.transfer.study_plans import DECK_LAYERS

EVIL = "<script>alert('x')</script> & \"quoted\" <b>"
METRICS = {
    "classification": ("accuracy", "macro_f1"),
    "regression": ("pearson", "spearman"),
    "choice": ("accuracy",),
    "tagging": ("f1", "precision", "recall", "accuracy"),
    "spans": ("f1", "exact_match"),
}
LABELS = {"classification": ["bad", EVIL], "tagging": ["O", "B-PER", "I-PER", "B-LOC"]}
LINES: dict[str, list[dict[str, Any]]] = {
    "classification": [
        {"text": f"fine {EVIL}", "predicted": "bad", "true": EVIL, "probability": 0.93},
        {"text": "dull " * 200, "second": "long", "predicted": "bad", "true": "bad", "probability": 0.8},
        {"text": "odd\u2028line\x85", "predicted": EVIL, "true": "bad", "probability": None},
        {"text": "not labelled", "predicted": "bad", "true": None, "probability": 0.6},
    ],
    "regression": [
        {"text": "a", "second": EVIL, "predicted": 1.5, "true": 4.0, "probability": None},
        {"text": "b", "second": "c", "predicted": 2.5, "true": 2.0, "probability": None},
    ],
    "choice": [
        {"text": "who", "choices": ["he", EVIL, "it"], "predicted": 1, "true": 0, "probability": 0.7},
        {"text": "what", "choices": ["a", "b"], "predicted": 1, "true": 1, "probability": 0.9},
    ],
    "tagging": [
        {
            "text": ["so", "said", "Ann", EVIL],
            "predicted": ["O", "O", "O", "B-LOC"],
            "true": ["O", "O", "B-PER", "I-PER"],
            "probability": 0.4,
        },
        {"text": ["yes"] * 90, "predicted": ["B-LOC"] * 90, "true": ["O"] * 89 + ["B-LOC"], "probability": 0.2},
    ],
    "spans": [
        {"text": f"Who? {EVIL}", "second": f"{'so ' * 300}Ann", "predicted": EVIL, "true": ["Ann"], "probability": 0.2},
        {"text": "When?", "second": "In 1920.", "predicted": "", "true": ["1920"], "probability": 0.9},
        {"text": "Where?", "second": "In 1920.", "predicted": "In", "true": [], "probability": 0.5},
        {
            "text": "Why?",
            "second": "Since it rained.",
            "predicted": "it rained",
            "true": ["it rained"],
            "probability": 1,
        },
    ],
}


def make_result(task: str, *, value: float | None = 0.72, method: str = "full", **values: Any) -> Result:
    low, high = (None, None) if value is None else (value - 0.05, value + 0.04)
    scores = {name: Interval(value=value, low=low, high=high) for name in METRICS[task]}
    given: dict[str, Any] = {"name": "bert", "run": "runs/bert", "examples": 800, "seconds": 3.5, "joules": 40.0}
    if method == "baseline":
        given |= {"run": None, "joules": 0.0}
    else:
        given |= {"flops": 1e9, "steps": 120}
    return Result(method=method, split="test", count=4, values=scores, **(given | values))


def make_study(kind: Any, task: str, results: list[Result], **values: Any) -> Study:
    given: dict[str, Any] = {"data": f"folder/{EVIL}.tsv", "check": [f"labels: {EVIL}"]}
    return Study(
        kind=kind,
        task=task,
        format="TSV with a header",
        labels=LABELS.get(task, []),
        counts={"train": 800, "valid": 4, "test": 4},
        metric=METRICS[task][0],
        results=results,
        **(given | values),
    )


def write_lines(folder: Path, task: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predictions.jsonl").write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in LINES[task]), encoding="utf-8"
    )


class Checker(HTMLParser):
    """Every element is closed in its turn; gathers the text."""

    EMPTY = frozenset({"meta", "br", "input", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.seen.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def check_page(study: Study, folder: Path) -> Checker:
    """The page is well formed, has nothing from outside and shows no value that is none."""
    page = write_report(study, folder).read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert not checker.open
    assert "script" not in checker.seen
    assert "link" not in checker.seen
    assert "src=" not in page.replace("-src", "")
    assert not re.search(r"\b(nan|NaN|None|inf)\b", page), re.findall(r".{40}\b(?:nan|NaN|None|inf)\b.{40}", page)
    assert EVIL not in page
    assert "$" not in checker.text
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert ElementTree.fromstring(drawing).get("aria-label")
    return checker


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("task", METRICS)
def test_a_run_of_every_task(task: str, seeds: int, tmp_path: Path) -> None:
    write_lines(tmp_path, task)
    results = [
        make_result(task, method="baseline", name="majority", value=None if task == "regression" else 0.5),
        make_result(task, method="baseline", name="bag of words", value=0.6),
    ]
    for method in ("full", "frozen", "scratch"):
        results += [make_result(task, method=method, seed=seed, value=0.7 - 0.1 * seed) for seed in range(seeds)]
    checker = check_page(make_study("run", task, results), tmp_path)
    for reported in ("majority", "bag of words", "frozen", "scratch", "Cost", "pre-training", "not known", "predict"):
        assert reported in checker.text
    if seeds > 1:
        assert "the worst of 3 seeds" in checker.text
        assert "50.0" in checker.text
    else:
        assert "each seed" not in checker.text
    assert ("Can its confidence be trusted?" in checker.text) == (task in ("classification", "choice"))
    assert ("The largest errors" in checker.text) == (task == "regression")
    assert ("How well each type is found" in checker.text) == (task == "tagging")


def test_a_notebook_shows_the_scores() -> None:
    results = [make_result("tagging", method="baseline", name="majority", value=None)]
    results += [make_result("tagging", method="full", seed=seed, value=0.7 - 0.1 * seed) for seed in range(2)]
    checker = Checker()
    shown = make_study("run", "tagging", results)._repr_html_()
    checker.feed(shown)
    assert not checker.open
    assert EVIL not in shown
    assert checker.seen.count("tr") == 3  # the head, the baseline, and both seeds in one
    assert "65.0" in checker.text
    assert "nan" not in checker.text


def test_mistakes_come_surest_first_and_say_what_is_true(tmp_path: Path) -> None:
    write_lines(tmp_path, "spans")
    found = gather_facts(make_study("run", "spans", [make_result("spans")]), tmp_path).evidence
    assert found is not None
    assert found.wrong == 3
    assert [mistake.confidence for mistake in found.mistakes] == ["90.0% sure", "50.0% sure", "20.0% sure"]
    assert found.mistakes[-1].texts[1].endswith("Ann"), "the context is shown where the answer is"
    write_lines(tmp_path, "tagging")
    found = gather_facts(make_study("run", "tagging", [make_result("tagging")]), tmp_path).evidence
    assert found is not None
    assert found.mistakes[0].words[2] == ("Ann", "B-PER", "O")
    assert len(found.mistakes[1].words) < 40
    assert {each.type: each.gold for each in found.types} == {"LOC": 1, "PER": 1}


def test_confusions_count_every_labelled_example(tmp_path: Path) -> None:
    write_lines(tmp_path, "classification")
    study = make_study("run", "classification", [make_result("classification")])
    found = gather_facts(study, tmp_path).evidence
    assert found is not None
    assert found.confusion == Confusion(["bad", EVIL], [[1, 1], [1, 0]])
    assert found.calibration is not None
    assert found.calibration.accuracy == 0.5
    assert sum(each.size for each in found.calibration.bins) == 2
    many = study.model_copy(update={"labels": [f"class {i}" for i in range(40)]})
    few = gather_facts(many, tmp_path).evidence
    assert few is not None
    assert few.confusion is None
    assert "most frequent confusions" in check_page(many, tmp_path).text


def test_ten_right_answers_do_not_make_a_model_underconfident() -> None:
    """Wilson's interval of 10 of 10 begins at 0.72, so that a confidence of 0.95 is within it; of 400, at 0.99."""

    def shown(count: int) -> str:
        return describe_calibration(Calibration([ReliabilityBin(90.0, 100.0, count, 95.0, 100.0)], 0.05, 0.95, 1.0))

    assert "in so few examples" in shown(10)
    assert "underconfident" in shown(400)


def test_nothing_wrong_is_reported(tmp_path: Path) -> None:
    write_lines(tmp_path, "choice")
    (tmp_path / "predictions.jsonl").write_text(json.dumps(LINES["choice"][1]) + "\n")
    assert "There is none: all 1" in check_page(make_study("run", "choice", [make_result("choice")]), tmp_path).text


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_learning_curve(seeds: int, tmp_path: Path) -> None:
    results = []
    for size in (10, 100, 800):
        results.append(make_result("choice", method="baseline", name="majority", examples=size, value=0.3))
        for seed in range(seeds):
            value = None if size == 10 else 0.4 + size / 4000 - 0.1 * seed
            command = "lmlab finetune runs/bert 'a file.tsv' --how full --alone -o runs/best"
            results.append(make_result("choice", examples=size, seed=seed, value=value, command=command))
    write_lines(tmp_path / "trials" / "bert-full-all-seed-0", "choice")
    checker = check_page(make_study("curve", "choice", results), tmp_path)
    assert "How many examples are needed" in checker.text
    assert "svg" in checker.seen
    assert "The worst mistakes" in checker.text, "predictions are found among the trials"
    assert "lmlab finetune runs/bert 'a file.tsv' --how full" in checker.text


def test_layers_are_named_in_words(tmp_path: Path) -> None:
    results = [make_result("tagging", method="baseline", name="majority", value=0.1)]
    for number, layers in enumerate(DECK_LAYERS):
        results.append(make_result("tagging", method="frozen", layers=layers, value=0.91 + number / 100))
    study = make_study("layers", "tagging", results)
    write_lines(tmp_path / "trials" / "bert-frozen-all-seed-0-concat_-4", "tagging")
    checker = check_page(study, tmp_path)
    for name in (
        "embedding layer",
        "last layer",
        "second-to-last layer",
        "sum of all layers",
        "last four, side by side",
    ):
        assert name in checker.text
    assert "The worst mistakes" in checker.text


def test_a_comparison_is_led_by_the_best_mean_not_by_the_best_seed(tmp_path: Path) -> None:
    results = [
        make_result("choice", name=name, run=f"runs/{name}", method=method, seed=seed, value=value)
        for name, method, values in (
            ("lstm", "full", (0.9, 0.1)),
            ("gpt2", "full", (0.7, 0.6)),
            ("gpt2", "frozen", (0.6, 0.6)),
        )
        for seed, value in enumerate(values)
    ]
    study = make_study("comparison", "choice", results, pretraining={"runs/gpt2": {"seconds": 9e3, "joules": 5e6}})
    shown = find_shown(study)
    assert shown is not None
    assert (shown.name, shown.method, shown.seed) == ("gpt2", "full", 0)
    text = check_page(study, tmp_path).text
    assert "gpt2, full comes first" in text
    assert "Differences were not tested" in text
    assert "2.5 h" in text
    assert "1.39 kWh" in text
    assert "not known" in text
    assert "113.5" not in text, "an interval keeps to what a score can be"


def test_a_mix_of_layers(tmp_path: Path) -> None:
    results = [make_result("choice", method="mix", seed=seed, mix=[0.2, 0.3, 0.5], gamma=1.25) for seed in range(2)]
    text = check_page(make_study("run", "choice", results), tmp_path).text
    assert "γ = 1.250" in text
    assert "embeddings" in text
    assert "layer 2" in text
    assert "50.0%" in text


def test_a_study_of_baselines_alone(tmp_path: Path) -> None:
    check_page(make_study("run", "choice", [make_result("choice", method="baseline", name="majority")]), tmp_path)


def test_a_model_that_ran_away_has_a_page_too(tmp_path: Path) -> None:
    nan = float("nan")
    lines = [{**LINES["regression"][0], "predicted": nan}, {**LINES["regression"][1], "probability": nan}]
    (tmp_path / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    check_page(make_study("run", "regression", [make_result("regression", value=None)]), tmp_path)


@pytest.mark.parametrize("value", [None, -0.4, 0.0, 1.0])
def test_scores_at_the_edge(value: float | None, tmp_path: Path) -> None:
    write_lines(tmp_path, "regression")
    checker = check_page(make_study("run", "regression", [make_result("regression", value=value)] * 2), tmp_path)
    assert ("–" if value is None else f"{100 * value:.1f}".replace("-", "−")) in checker.text


def test_long_texts_are_cut_between_words() -> None:
    text = " ".join(f"word{i}" for i in range(200))
    assert shorten("a  b\nc") == "a b c"
    cut = shorten(text)
    assert len(cut) <= LONGEST + 2
    assert cut.endswith(" …")
    assert set(cut[:-2].split()) <= set(text.split())
    cut = shorten(text, around="word150")
    assert cut.startswith("… word")
    assert " word150 " in cut
    assert set(cut[2:-2].split()) <= set(text.split())
    assert len(shorten("x" * 1000)) <= LONGEST + 2
