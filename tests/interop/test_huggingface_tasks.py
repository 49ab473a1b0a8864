"""Heads of tasks cross to `transformers` and back: the same tokens, the same scores, the same names, the same bits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_references import judge, judge_there, make_task_run, transformers

import lmlab
from lmlab.data.readers.examples import Example
from lmlab.interop.huggingface import export_run, import_run
from lmlab.runs.storage import HEADS, TASK, read_json

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
    "llama": ("bpe:300", "Llama"),
    "xlnet": ("unigram:300", "XLNet"),
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
        {"mean": 2.7, "std": 1.6},
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
GIVEN["llama"] = ("classification", "tagging")
GIVEN["bart"] = ("classification", "regression", "spans")
CASES = [(kind, task) for kind in KINDS for task in GIVEN.get(kind, tuple(TASKS))]
MANY = [str(number) for number in range(99)]
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
    assert type(model).__name__ in (prefix + end, f"{prefix}{end}Simple")
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


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_their_pipelines_say_our_labels(kind: str, tmp_path: Path) -> None:
    texts = ["the planet Mars", "Venus goes round"]
    _, settings, _ = TASKS["classification"]
    predictor = make_task_run(tmp_path / "run", kind, KINDS[kind][0], {"kind": "classification", **settings})
    export_run(tmp_path / "run", tmp_path / "hf")
    pipeline = transformers.pipeline("text-classification", str(tmp_path / "hf"))
    for text, said in zip(texts, pipeline(texts), strict=True):
        found = predictor.classify(text)
        assert said["label"] == found.value
        assert said["score"] == pytest.approx(found.probability, abs=1e-4)


def test_their_pipelines_say_our_numbers_and_tags(tmp_path: Path) -> None:
    predictor = make_task_run(
        tmp_path / "stars", "roberta", "bpe:300", {"kind": "regression", **TASKS["regression"][1]}
    )
    export_run(tmp_path / "stars", tmp_path / "stars-hf")
    (said,) = transformers.pipeline("text-classification", str(tmp_path / "stars-hf"))(["the sun"])
    assert said["label"] == "score"
    assert said["score"] == pytest.approx(predictor.classify("the sun").value, abs=1e-4)

    tagger = make_task_run(tmp_path / "tags", "bert", "wordpiece:200", {"kind": "tagging", **TASKS["tagging"][1]})
    export_run(tmp_path / "tags", tmp_path / "tags-hf")
    words = ("the", "planet", "sun", "goes")
    pipeline = transformers.pipeline("token-classification", str(tmp_path / "tags-hf"), ignore_labels=[])
    found = {each["start"]: each["entity"] for each in pipeline(" ".join(words))}
    starts = [0, 4, 11, 15]
    assert [found[start] for start in starts] == list(tagger.tag(words).value)


def test_what_was_changed_there_is_taken_from_there(tmp_path: Path) -> None:
    """Other names of labels, and weights that were trained further, go before what we remember."""
    make_task_run(tmp_path / "run", "gpt2", "bpe:300", {"kind": "regression", **TASKS["regression"][1]})
    export_run(tmp_path / "run", tmp_path / "hf")
    model, reader = open_there(tmp_path / "hf")
    with torch.no_grad():
        model.score.weight += 0.1
    model.save_pretrained(tmp_path / "hf")
    import_run(tmp_path / "hf", tmp_path / "back")
    compare(lmlab.load(tmp_path / "back").predictor, model, reader, TASKS["regression"][2])

    make_task_run(tmp_path / "named", "bert", "wordpiece:200", {"kind": "classification", "labels": ["0", "1"]})
    export_run(tmp_path / "named", tmp_path / "named-hf")
    config = read_json(tmp_path / "named-hf/config.json")
    config |= {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}
    (tmp_path / "named-hf/config.json").write_text(json.dumps(config))
    import_run(tmp_path / "named-hf", tmp_path / "renamed")
    assert lmlab.load(tmp_path / "renamed").predictor.task.config.labels == ["bad", "good"]


def test_without_the_heads_of_pre_training(tmp_path: Path) -> None:
    make_task_run(tmp_path / "run", "electra", "wordpiece:200", {"kind": "classification", "labels": ["a", "b"]})
    export_run(tmp_path / "run", tmp_path / "hf")
    (tmp_path / "hf/lmlab.safetensors").unlink()
    with pytest.warns(UserWarning, match="the heads of pre-training are left out"):
        import_run(tmp_path / "hf", tmp_path / "back")
    back = lmlab.load(tmp_path / "back")
    assert back.model.config.parts == "discriminator"
    assert (tmp_path / "back" / HEADS).read_bytes() == (tmp_path / "run" / HEADS).read_bytes()


@pytest.mark.parametrize(
    ("kind", "task", "words"),
    [
        ("bert", {"kind": "classification", "labels": ["a", "b"], "pool": "mean"}, "--pool cls"),
        ("bert", {"kind": "classification", "labels": ["a", "b"], "pool": "concat"}, "--pool cls"),
        ("bert", {"kind": "regression", "activation": None}, "--set objective.activation=tanh"),
        ("electra", {"kind": "regression", "activation": "tanh"}, "--set objective.activation=gelu"),
        ("bert", {"kind": "classification", "labels": ["a", "b"], "method": "mix"}, "--how full"),
        ("bert", {"kind": "tagging", "labels": ["a", "b"], "method": "frozen", "layers": "sum:all"}, "--layers last"),
        ("bert", {"kind": "tagging", "labels": ["a", "b"], "crf": True}, "no --crf"),
        ("gpt2", {"kind": "regression", "both_orders": True}, "--set objective.both_orders=false"),
        ("gpt2", {"kind": "choice"}, "transformers has no gpt2 for choice: it has only GPT2ForSequenceClassification"),
        ("gpt", {"kind": "spans"}, "transformers has no openai-gpt for spans"),
        ("bart", {"kind": "spans", "frame": {"source": "a boundary b boundary"}}, "which reads the decoder"),
        ("bart", {"kind": "spans", "frame": {"source": "a b", "tokens": "start a b"}}, "a special token at its end"),
        ("bart", {"kind": "spans", "frame": {"source": "a [b] sep", "tokens": "start a b"}}, "boundary at the end"),
        ("transformer", {"kind": "spans"}, "transformers has no marian for spans"),
        (
            "gpt2",
            {"kind": "classification", "labels": MANY, "bias": True},
            "objective.bias=false",
        ),
    ],
)
def test_heads_without_a_place_there(kind: str, task: dict[str, Any], words: str, tmp_path: Path) -> None:
    make_task_run(tmp_path / "run", kind, "bpe:300", task)
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        export_run(tmp_path / "run", tmp_path / "hf")
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("kind", "spec", "values"),
    [
        ("electra", "wordpiece:200", {"parts": "generator", "generator": 0.5}),
        ("electra", "wordpiece:200", {"parts": "discriminator", "head": False}),
        ("roberta", "wordpiece:200", {"offset": 0, "pooler": True}),  # padding comes first
        ("bert", "wordpiece:200", {"segments": 1, "gelu": "tanh", "inner": 37}),
        ("bart", "bpe:300", {"bias": True}),
    ],
)
def test_bodies_of_other_settings(kind: str, spec: str, values: dict[str, Any], tmp_path: Path) -> None:
    task = {"kind": "classification", "labels": ["a", "b"]}
    predictor = make_task_run(tmp_path / "run", kind, spec, task, **values)
    export_run(tmp_path / "run", tmp_path / "hf")
    compare(predictor, *open_there(tmp_path / "hf"), TASKS["classification"][2])
    import_run(tmp_path / "hf", tmp_path / "back")
    for name in RUN:
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name


@pytest.mark.parametrize("kind", ["gpt2", "gpt"])
def test_a_bias_is_taken_up_by_the_last_norm(kind: str, tmp_path: Path) -> None:
    task = {"kind": "classification", "labels": ["a", "b", "c"], "bias": True}
    predictor = make_task_run(tmp_path / "run", kind, "bpe:300", task)
    export_run(tmp_path / "run", tmp_path / "hf")
    compare(predictor, *open_there(tmp_path / "hf"), TASKS["classification"][2])
    import_run(tmp_path / "hf", tmp_path / "back")
    for name in RUN:
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name


def test_an_imported_task_is_exported_as_it_came(tmp_path: Path) -> None:
    make_task_run(tmp_path / "run", "roberta", "bpe:300", {"kind": "classification", "labels": ["a", "b"]})
    export_run(tmp_path / "run", tmp_path / "hf")
    for name in ("lmlab.json", "lmlab.safetensors"):
        (tmp_path / "hf" / name).unlink()
    import_run(tmp_path / "hf", tmp_path / "back")
    export_run(tmp_path / "back", tmp_path / "again")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "hf" / name).read_bytes(), name
