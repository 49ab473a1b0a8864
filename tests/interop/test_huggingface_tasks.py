"""Heads of tasks cross to `transformers` and back: the same tokens, the same scores, the same names, the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hf_references import judge, judge_there, make_task_run, transformers

import lmlab
from lmlab.checkpoint import HEADS, TASK, read_json
from lmlab.data.reading.examples import Example
from lmlab.interop.huggingface import export_run, import_run

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")

KINDS = {
    # ours: tokenizer, theirs
    "bert": ("wordpiece:200", "Bert"),
    "mbert": ("wordpiece:200", "Bert"),
    "roberta": ("bpe:300", "Roberta"),
    "xlm-r": ("unigram:300", "XLMRoberta"),
    "albert": ("unigram:300", "Albert"),
    "electra": ("wordpiece:200", "Electra"),
    "gpt2": ("bpe:300", "GPT2"),
    "gpt": ("bpe:300", "OpenAIGPT"),
    "bart": ("bpe:300", "Bart"),
}
TASKS: dict[str, tuple[str, dict[str, Any], list[Example]]] = {
    # the end of their class, our task, examples
    "classification": (
        "ForSequenceClassification",
        {"labels": ["bad", "good", "so so"]},
        [Example("the planet Mars"), Example("the sun", "and Venus, so does")],
    ),
    "regression": (
        "ForSequenceClassification",
        {"centre": 2.7, "spread": 1.6},
        [Example("the planet Mars"), Example("the sun 7", "and Venus")],
    ),
    "choice": ("ForMultipleChoice", {}, [Example("what goes", choices=("the planet Mars", "Venus", "the sun"))]),
    "tagging": (
        "ForTokenClassification",
        {"labels": ["O", "B-PLACE", "I-PLACE"], "scheme": "IOB2"},
        [Example(("the", "planet", "Mars", "goes", "round"))],
    ),
    "spans": ("ForQuestionAnswering", {}, [Example("what goes?", "the planet Mars goes round the sun")]),
}
GIVEN = {"gpt": ("classification", "regression"), "gpt2": ("classification", "regression", "tagging", "spans")}
GIVEN["bart"] = ("classification", "regression", "spans")
CASES = [(kind, task) for kind in KINDS for task in GIVEN.get(kind, tuple(TASKS))]
RUN = ("config.json", "model.safetensors", "tokenizer.json", "manifest.json", TASK, HEADS)


def open_there(folder: Path) -> tuple[Any, Any]:
    """Their model, which lacks nothing and has nothing too much, and their tokenizer."""
    name = read_json(folder / "config.json")["architectures"][0]
    model, report = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def compare(predictor: Any, model: Any, reader: Any, examples: list[Example]) -> None:
    for example in examples:
        inputs, ours, places = judge(predictor, example)
        tokens, theirs = judge_there(model, reader, example, places)
        if not example.choices:
            assert inputs.get("source", inputs["tokens"]).tolist() == tokens.tolist()
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() <= 1e-4
        assert ours.abs().max() > 1e-3


@pytest.mark.parametrize(("kind", "task"), CASES, ids=lambda each: str(each))
def test_a_run_opens_there_and_comes_back(kind: str, task: str, tmp_path: Path) -> None:
    spec, prefix = KINDS[kind]
    end, settings, examples = TASKS[task]
    predictor = make_task_run(tmp_path / "run", kind, spec, {"kind": task, **settings})
    export_run(tmp_path / "run", tmp_path / "hf")
    model, reader = open_there(tmp_path / "hf")
    assert type(model).__name__ == prefix + end
    compare(predictor, model, reader, examples)

    names = {"regression": ["score"], "choice": ["choice"], "spans": ["start", "end"]}.get(task) or settings["labels"]
    assert list(model.config.id2label.values()) == names
    assert model.config.label2id == {name: number for number, name in enumerate(names)}

    import_run(tmp_path / "hf", tmp_path / "back")
    for name in RUN:
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name

    model.save_pretrained(tmp_path / "again")  # without our own files
    reader.save_pretrained(tmp_path / "again")
    import_run(tmp_path / "again", tmp_path / "from-again")
    back = lmlab.load(tmp_path / "from-again").predictor
    compare(back, model, reader, examples)
    assert back.task.config.labels == predictor.task.config.labels
    assert back.task.config.scheme == settings.get("scheme")
    found, expected = ([each.value for each in some.predict(examples)] for some in (back, predictor))
    assert found == (pytest.approx(expected, abs=1e-4) if task == "regression" else expected)
