"""Tiny labelled sets of every task, with a tokenizer that reads them, and tiny runs to learn them from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lmlab.data.readers.examples import Answer, Example
from lmlab.metrics.metric import Metric
from lmlab.models import load_class, system_of
from lmlab.models.model import Model
from lmlab.objectives import create_objective
from lmlab.runs.model_files import model_tensors, write_config
from lmlab.runs.storage import write_manifest, write_tensors
from lmlab.tasks import load_task
from lmlab.tasks.task import Task
from lmlab.tokenizers import Tokenizer, train

TEXT = "the a cat dog bird sat ran on to mat log good bad nice sad film was in London Ada wrote it who where . ?\n"
WORDS = TEXT.split()[:-2]


def toy_tokenizer(spec: str = "words") -> Tokenizer:
    return train(spec, [TEXT * 20]).with_specials(["cls", "sep", "mask"])


def _span(question: str, context: str, answer: str) -> Example:
    return Example(question, context, label=(Answer(answer, context.index(answer)),))


def _tagged(sentence: str, tags: tuple[str, ...]) -> Example:
    return Example(tuple(sentence.split()), label=tags)


EXAMPLES: dict[str, list[Example]] = {
    "classification": [
        Example("a good film", label="pos"),
        Example("a bad film was sad", label="neg"),
        Example("nice", label="pos"),
        Example("the film was bad", label="neg"),
        Example("the cat was good and the dog was nice on the mat", label="pos"),
        Example("sad", label="neg"),
    ],
    "regression": [
        Example("a cat sat", "a dog sat", label=3.0),
        Example("the bird ran to the log", "the bird ran to the log", label=5.0),
        Example("a good film", "bad", label=0.5),
        Example("the mat", "the cat sat on the mat", label=2.0),
        Example("Ada wrote it in London", "it was in London", label=2.5),
    ],
    "choice": [
        Example("the cat sat on", choices=("the mat", "Ada"), label=0),
        Example("Ada wrote it", choices=("in the bird", "to sat", "in London"), label=2),
        Example("a film was", choices=("good", "on", "log the a"), label=0),
        Example("who", choices=("to", "Ada", "ran", "in"), label=1),
    ],
    "tagging": [
        _tagged("Ada wrote it in London .", ("B-PER", "O", "O", "O", "B-LOC", "O")),
        _tagged("the cat sat", ("O", "O", "O")),
        Example(("London",), label=("B-LOC",)),
        _tagged("Ada Ada ran to the log in London", ("B-PER", "I-PER", *"OOOOO", "B-LOC")),
    ],
    "spans": [
        _span("who wrote it ?", "Ada wrote it in London .", "Ada"),
        _span("where ?", "Ada wrote it in London .", "London"),
        _span("where was the cat ?", "the cat sat on the mat in London and the dog ran to the log", "on the mat"),
        Example("who sat ?", "the film was bad .", label=()),
    ],
}
LABELS = {"classification": ["neg", "pos"], "tagging": ["O", "B-LOC", "B-PER", "I-LOC", "I-PER"]}
SETTINGS: dict[str, dict[str, Any]] = {
    "classification": {"labels": LABELS["classification"]},
    "regression": {"mean": 2.6, "std": 1.5},
    "choice": {},
    "tagging": {"labels": LABELS["tagging"], "scheme": "IOB2"},
    "spans": {"unanswerable": True},
}


def toy_task(kind: str, cls: type[Model], *, tokenizer: Tokenizer | None = None, **settings: Any) -> Task:
    """A task as it is learnt from a system: its frame and pool, no dropout."""
    system = system_of(cls)
    assert system is not None
    usual, pooled = system.task, {}
    if kind in ("classification", "regression", "choice"):
        pooled = {"pool": usual.pool, "activation": usual.activation}
    values = {"kind": kind, "frame": dict(usual.frame), "dropout": 0.0, **pooled, **SETTINGS[kind], **settings}
    task: Any = create_objective(values, tokenizer or toy_tokenizer(), None)
    return task


def toy_model(kind: str, tokenizer: Tokenizer, *, std: float = 0.3, seed: int = 0, **settings: Any) -> Any:
    """A tiny model of a system with weights large enough for texts to differ, in evaluation mode."""
    cls = load_class(kind)
    values = {
        "width": 16,
        "hidden": 16,
        "heads": 2,
        "layers": 2,
        "window": 48,
        "dropout": 0.0,
        "vocabulary": tokenizer.vocabulary,
    }
    known = {name: value for name, value in {**values, **settings}.items() if name in cls.Config.model_fields}
    torch.manual_seed(seed)
    model = cls(cls.Config(**known))
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=std)
    return model.eval()


def toy_heads(task: Task, model: Model, *, seed: int = 0) -> nn.ModuleDict:
    """Heads whose scores are not all zero."""
    torch.manual_seed(seed)
    heads = nn.ModuleDict(task.heads(model))
    for parameter in heads.parameters():
        nn.init.normal_(parameter, std=0.5)
    return heads.eval()


def write_toy_run(folder: Path, kind: str, *, spec: str = "words", seed: int = 0, **settings: Any) -> Path:
    """A run directory of a tiny model that was not trained, from which a task can be learnt."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = toy_tokenizer(spec)
    tokenizer.save(folder / "tokenizer.json")
    model = toy_model(kind, tokenizer, seed=seed, **settings)
    write_config(folder, kind, model.config.model_dump())
    write_tensors(folder / "model.safetensors", model_tensors(model))
    write_manifest(folder)
    return folder


def write_reviews(path: Path, *, count: int = 60) -> Path:
    """A TSV of reviews of two classes that a few words tell apart."""
    lines = ["text\tlabel"]
    for number in range(count):
        word, label = [("good", "pos"), ("bad", "neg"), ("nice", "pos"), ("sad", "neg")][number % 4]
        noun = ("film", "cat", "dog", "bird", "mat")[number % 5]
        lines.append(f"the {noun} {'was ' * (1 + number // 20)}{word} {WORDS[number % 12]}\t{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_tagged(path: Path, *, count: int = 30) -> Path:
    """A CoNLL file of two columns with names in it."""
    sentences = []
    for number in range(count):
        verb, noun = ("sat", "ran", "wrote")[number % 3], WORDS[number % len(WORDS)]
        rows = [("Ada", "B-PER"), (verb, "O"), ("in", "O"), ("London", "B-LOC"), (noun, "O"), (f"x{number}", "O")]
        sentences.append("".join(f"{word} {tag}\n" for word, tag in rows[number % 2 :]))
    path.write_text("\n".join(sentences))
    return path


def write_squad(path: Path, *, count: int = 12, unanswerable: bool = False) -> Path:
    """Questions about short contexts."""
    paragraphs = []
    for number in range(count):
        context = f"Ada wrote it in London . the {WORDS[2 + number % 20]} sat on the mat {number}"
        answers = [("who wrote it ?", "Ada"), ("where ?", "London")]
        qas: list[dict[str, Any]] = [
            {"id": f"{number}-{i}", "question": q, "answers": [{"text": a, "answer_start": context.index(a)}]}
            for i, (q, a) in enumerate(answers)
        ]
        if unanswerable:
            qas = [{**each, "is_impossible": False} for each in qas]
            qas.append({"id": f"{number}-n", "question": "who was sad ?", "answers": [], "is_impossible": True})
        paragraphs.append({"context": context, "qas": qas})
    version = "v2.0" if unanswerable else "1.1"
    path.write_text(json.dumps({"version": version, "data": [{"title": "x", "paragraphs": paragraphs}]}))
    return path


def scores_of(task: Task, model: Model, heads: nn.ModuleDict, examples: Sequence[Example]) -> list[Any]:
    """The scores of each item of examples, each read alone, cut to its own size."""
    found = []
    for item in task.items(examples):
        scores, _ = task.scores_and_losses(model, heads, task.batch([item]))
        found.append(scores[0])
    return found


def metrics_for(kind: str, **settings: Any) -> dict[str, Metric]:
    """The metrics of a task with these settings, the main one first."""
    cls = load_task(kind)
    return cls.metrics_of(cls.Config(**settings))
