"""What we state of FLOPs is what torch counts for a training step: every system, in pre-training and on tasks.

`torch.utils.flop_counter` sees matrix products and convolutions, forwards and backwards. It does not see into fused
kernels and does not know products that are added in place, so here

- attention runs as plain products (`SDPBackend.MATH`) in texts of one tile, where nothing is left out as causal;
- oneDNN is off, with which torch's LSTM runs as plain products, too;
- `addmm_`, `baddbmm_` and `mv`, which our own kernels call, are given the formulas of their twins.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lmlab.costs.benchmark import synthetic_task
from lmlab.costs.design import describe
from lmlab.data.corpora.episodes import fit_processor, make_split
from lmlab.data.loaders.examples import ExampleLoader
from lmlab.data.readers.cart_pole import make_episodes
from lmlab.data.readers.examples import Example
from lmlab.models import LINEAGE, create, load_class, systems_that_read
from lmlab.objectives.actions import Actions
from lmlab.objectives.objective import Batch, weighted_mean
from lmlab.tasks.flops import batch_flops
from lmlab.tasks.frozen_vectors import hash_weights, vectors_flops, with_vectors
from lmlab.tasks.lm_embeddings import LanguageStates
from lmlab.training.learner import Learner
from lmlab.training.settings import TrainConfig
from toy_tasks import EXAMPLES, toy_task, toy_tokenizer, write_toy_run

NETWORKS = [name for name in systems_that_read("text") if name != "ngram"]
WITHIN = 0.02
aten = torch.ops.aten
UNKNOWN = {
    aten.addmm_: lambda _, a, b, **__: 2 * a[0] * a[1] * b[1],
    aten.baddbmm_: lambda _, a, b, **__: 2 * a[0] * a[1] * a[2] * b[2],
    aten.mv: lambda a, _, **__: 2 * a[0] * a[1],
}


class NoModules(nullcontext[None]):
    """In place of torch's record of modules, whose hooks cannot live with the inner backward pass of a Reformer."""

    parents = frozenset({"Global"})


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    counter = FlopCounterMode(display=False, custom_mapping=UNKNOWN)
    counter.mod_tracker = NoModules()  # type: ignore[assignment]
    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH), counter:
        yield counter


def count_step(learner: Learner, batch: Batch, state: Any = None) -> tuple[int, Any]:
    """The FLOPs that torch counts for the forward and backward pass over a batch, and the state after it."""
    learner.train()
    with counting() as counter:
        loss = learner(batch, state)
        weighted_mean(loss.sums, batch.counts, learner.objective.loss_weights).backward()  # type: ignore[no-untyped-call]
    learner.zero_grad()
    return counter.get_total_flops(), loss.state


def lesson(name: str, **settings: Any) -> tuple[Any, Any, Any]:
    """A small model of a system, its own objective, and a loader of made-up text."""
    design = describe(name, size="tiny", vocabulary=500, settings={**plain(name), **settings})
    model = create(name, design.settings or {}, size="tiny")
    objective, text = synthetic_task(model, design, tokens=6_000, seed=0)
    streams = TrainConfig(**LINEAGE[name].training).streams(stateful=model.stateful)
    loader = objective.loader(text, batch=16, window=min(32, design.window), seed=0, streams=streams)
    return model, objective, loader


def plain(name: str) -> dict[str, Any]:
    """Settings with which every system computes the same for each batch: without dropout, where it has any."""
    fields = load_class(name).Config.model_fields
    return {field: 0.0 for field in fields if field.endswith("dropout")}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_of_pre_training_is_what_torch_counts(name: str) -> None:
    """Batch by batch, and on average: padding, repeated words and a memory that fills up."""
    model, objective, loader = lesson(name)
    learner, state, counted, tokens = Learner(model, objective), None, 0, 0
    for place in range(min(3, int(loader.steps_per_epoch))):
        batch = objective.batch(loader.batch(place), np.random.default_rng([0, place]))
        carried = min(model.memory, place * loader.window) if state is not None else 0
        found, after = count_step(learner, batch, state)
        assert objective.batch_flops(model, batch, memory_length=carried) == pytest.approx(found, rel=WITHIN)
        if carried == model.memory:
            counted, tokens = counted + found, tokens + batch.units["tokens"]
        state = after if model.stateful and not loader.restarts(place + 1) else None
    stated = objective.step_flops(model, {}, loader) / loader.units_per_step["tokens"]
    assert stated == pytest.approx(counted / tokens, rel=2 * WITHIN), "of a mean batch, whatever its batches are"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("reformer", {"window": 128, "chunk": 4}),  # long enough to be sorted
        ("reformer", {"window": 128, "chunk": 4, "attends": "chunk"}),
        ("transformer", {"decoder_layers": 1, "norm": "pre"}),
        ("seq2seq", {"attention": "additive", "cell": "gru"}),
        ("seq2seq", {"attention": "none", "bidirectional": False}),
        ("rnn", {"hidden": 96}),
        ("nplm", {"direct": True}),
        ("lm-1b", {"once": False, "samples": 100}),
        ("bert", {"direction": "left-to-right"}),
        ("lstm", {"connections": "highway", "layers": 2}),
    ],
)
def test_settings_that_change_what_is_computed_change_the_flops(name: str, settings: dict[str, Any]) -> None:
    model, objective, loader = lesson(name, **settings)
    batch = objective.batch(loader.batch(0), np.random.default_rng(0))
    found, _ = count_step(Learner(model, objective), batch)
    assert objective.batch_flops(model, batch) == pytest.approx(found, rel=WITHIN)


@pytest.mark.parametrize("variant", ["skip-gram", "cbow"])
def test_word_vectors(variant: str) -> None:
    model, objective, loader = lesson("word2vec")
    objective.config = objective.config.model_copy(update={"variant": variant})
    batch = objective.batch(loader.batch(0), np.random.default_rng(0))
    found, _ = count_step(Learner(model, objective), batch)
    assert objective.batch_flops(model, batch) == pytest.approx(found, rel=1e-9)


@cache
def tokenizer() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return toy_tokenizer()


def tasked(name: str, kind: str, **settings: Any) -> tuple[Any, Any, Any, list[Any]]:
    """A small model of a system, a task, its heads, and items of unequal lengths."""
    cls, own = load_class(name), tokenizer()
    values = {"vocabulary": own.vocabulary, "boundary": own.boundary, "window": 64, **plain(name)}
    model = create(name, {key: each for key, each in values.items() if key in cls.Config.model_fields}, size="tiny")
    if settings.get("method") in ("frozen", "mix"):
        model.requires_grad_(False)
    task = toy_task(kind, cls, tokenizer=own, **settings)
    return model, task, task.heads(model), task.items(examples(kind))


def examples(kind: str) -> list[Example]:
    """Texts of unequal lengths, up to the window; of these many and not too short.

    So what a batch has once (the vectors of distances, the gradient of the state before the first token that nobody
    needs, the row by which the width of vectors is found) is little beside the rest.
    """
    longer = []
    for each in EXAMPLES[kind] * 4:
        words = each.a.split() if isinstance(each.a, str) else list(each.a)
        times = max(1, 24 // len(words)) if each.b is None else 1
        longer.append(each._replace(a=" ".join(words * times) if isinstance(each.a, str) else tuple(words * times)))
        if kind == "tagging":
            longer[-1] = longer[-1]._replace(label=each.label * times)
    return longer


@pytest.mark.parametrize("kind", ["classification", "tagging"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_of_a_task_is_what_torch_counts(name: str, kind: str) -> None:
    """The part of the model that the task reads, and its head: no vocabulary, no generator, no decoder."""
    model, task, heads, items = tasked(name, kind)
    batch = task.batch(items)
    found, _ = count_step(Learner(model, task, heads), batch)
    assert batch_flops(task, model, heads, batch) == pytest.approx(found, rel=WITHIN)


@pytest.mark.parametrize("kind", ["regression", "choice", "spans"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "bart"])
def test_other_tasks(name: str, kind: str) -> None:
    model, task, heads, items = tasked(name, kind)
    batch = task.batch(items)
    found, _ = count_step(Learner(model, task, heads), batch)
    assert batch_flops(task, model, heads, batch) == pytest.approx(found, rel=WITHIN)
    loader = ExampleLoader(items, batch=2, window=64, seed=0, tokens=task.length_of)
    epoch = [count_step(Learner(model, task, heads), task.batch(loader.batch(k)))[0] for k in range(loader.count)]
    assert task.step_flops(model, heads, loader) == pytest.approx(np.mean(epoch), rel=WITHIN)


def test_a_decoder_that_reads_the_text_again_is_counted() -> None:
    model, task, heads, items = tasked("bart", "classification", frame={"source": "a boundary", "tokens": "a boundary"})
    batch = task.batch(items)
    found, _ = count_step(Learner(model, task, heads), batch)
    assert batch_flops(task, model, heads, batch) == pytest.approx(found, rel=WITHIN)


@pytest.mark.parametrize("how", ["frozen", "mix"])
@pytest.mark.parametrize("kind", ["classification", "choice", "tagging"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "elmo", "electra", "transformer"])
def test_a_frozen_model_is_paid_once_and_forwards(name: str, kind: str, how: str) -> None:
    """Its vectors cost one forward pass; a step of training then costs the head."""
    pooled: dict[str, Any] = {} if kind == "tagging" else {"activation": "tanh"}
    model, task, heads, items = tasked(name, kind, method=how, **pooled)
    with counting() as counter:
        items = with_vectors(task, model, items, weights=hash_weights(model))
    assert vectors_flops(task, model, items_of(items)) == pytest.approx(counter.get_total_flops(), rel=WITHIN)
    batch = task.batch(items)
    found, _ = count_step(Learner(model, task, heads), batch)
    assert batch_flops(task, model, heads, batch) == pytest.approx(found, rel=1e-9)
    assert batch_flops(task, model, heads, task.batch(items_of(items))) == pytest.approx(found, rel=1e-9), "in advance"


def items_of(items: list[Any]) -> list[Any]:
    """The same before their vectors were computed."""
    return [replace(item, vectors=None) for item in items]


@pytest.mark.parametrize("auxiliary", [0.0, 0.5])
def test_the_vocabulary_is_paid_only_by_models_that_predict_it(auxiliary: float) -> None:
    """A language-model loss beside that of the task takes the output layer, too."""
    model, task, heads, items = tasked("gpt2", "classification", auxiliary=auxiliary)
    batch = task.batch(items)
    found, _ = count_step(Learner(model, task, heads), batch)
    stated = batch_flops(task, model, heads, batch)
    assert stated == pytest.approx(found, rel=WITHIN)
    scores = 3 * model.head_flops() * (int(batch.inputs["lengths"].sum()) - len(items))
    other = batch_flops(toy_task("classification", type(model), tokenizer=tokenizer()), model, heads, batch)
    assert stated - other == pytest.approx(scores if auxiliary else 0.0)


def test_long_texts_are_read_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very long ones the first segments are read without gradients."""
    for name in ("lmlab.tasks.long_texts.LEARNT", "lmlab.tasks.flops.LEARNT"):
        monkeypatch.setattr(name, 2)
    model, task, heads, _ = tasked("awd-lstm", "classification", segment=16)
    items = task.items([Example("the cat sat on the mat . " * 9, label="pos") for _ in range(3)])
    batch = task.batch(items)
    found, _ = count_step(Learner(model, task, heads), batch)
    assert batch_flops(task, model, heads, batch) == pytest.approx(found, rel=WITHIN)


@pytest.mark.parametrize("name", ["gpt2", "elmo", "bert"])
def test_states_of_frozen_language_models_are_one_forward_pass(name: str, tmp_path: Path) -> None:
    language = LanguageStates([str(write_toy_run(tmp_path / name, name))])
    words = [each.a for each in examples("tagging") if isinstance(each.a, tuple)]
    assert language.readers, "loaded"
    with counting() as counter:
        language.read(words)
    assert language.flops(words) == pytest.approx(counter.get_total_flops(), rel=WITHIN)


@pytest.mark.parametrize("characters", ["cnn", "lstm", "none"])
def test_the_tagger_pays_for_its_characters(characters: str) -> None:
    own = tokenizer()
    model = create("tagger", {"vocabulary": own.vocabulary, "characters": characters, "dropout": 0.0}, size="small")
    task: Any = toy_task("tagging", type(model), tokenizer=own, crf=True, spelling=20)
    batch, heads = task.batch(task.items(examples("tagging"))), task.heads(model)
    found, _ = count_step(Learner(model, task, heads), batch)
    stated = batch_flops(task, model, heads, batch)
    assert stated == pytest.approx(found, rel=WITHIN)
    assert (stated > 1.05 * batch_flops(task, model, heads, batch._replace(inputs=without(batch)))) == (
        characters != "none"
    )


def without(batch: Batch) -> dict[str, Any]:
    return {name: each for name, each in batch.inputs.items() if name != "spellings"}


@pytest.mark.parametrize("settings", [{}, {"returns": False}])
def test_actions_of_episodes(settings: dict[str, Any]) -> None:
    sizes = {"states": 4, "actions": 2, "discrete": True, "longest": 500, "width": 32, "layers": 2, "dropout": 0.0}
    model, objective = create("decision-transformer", {**sizes, **settings}), Actions()
    episodes = list(make_episodes(6))
    data = make_split(episodes, fit_processor(episodes))
    batch = objective.batch(objective.loader(data, batch=4, window=20, seed=0, streams=False).batch(0))
    counted, _ = count_step(Learner(model, objective), batch)
    assert objective.batch_flops(model, batch) == pytest.approx(counted, rel=0.02)
