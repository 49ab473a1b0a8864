"""Texts in several languages: labels, shares, turns, one vocabulary."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmlab.data.config import by_language
from lmlab.data.corpora.languages import LanguageSplit, prepare_languages, sampling_fractions
from lmlab.data.corpora.text import prepare_text
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.mixed import MixedLoader, apportion
from lmlab.runs.recipe import make_recipe
from lmlab.runs.run import resume, start
from lmlab.tokenizers import Tokenizer, TokenizerWarning, train

ENGLISH = "".join(f"the cat number {i} sat on the mat and looked at the moon.\n" for i in range(400))
GERMAN = "".join(f"die Katze Nummer {i} saß auf der Matte.\n" for i in range(60))


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, Path]:
    paths = {"en": tmp_path / "english.txt", "de": tmp_path / "german.txt"}
    for path, text in zip(paths.values(), (ENGLISH, GERMAN), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def test_labels_are_detected_from_file_names(tmp_path: Path) -> None:
    odd = tmp_path / "en=odd.txt"
    odd.write_text("a file may have such a name")
    assert by_language(["en=a.txt", "de=b/", "en=c.txt"]) == {"en": ["a.txt", "c.txt"], "de": ["b/"]}
    assert by_language(["a.txt", "-", "builtin"]) is None
    assert by_language(None) is None
    with pytest.raises(ValueError, match=r"b\.txt has no language.*en=b\.txt"):
        by_language(["en=a.txt", "b.txt"])


def test_shares_are_smoothed() -> None:
    """XLM's example by hand: sizes 9 and 1 give 3/4 and 1/4 with α = 0.5."""
    assert sampling_fractions({"a": 9, "b": 1}, alpha=0.5) == {"a": 0.75, "b": 0.25}
    assert sampling_fractions({"a": 9, "b": 1}, alpha=1.0) == {"a": 0.9, "b": 0.1}
    assert sampling_fractions({"a": 9, "b": 1}, alpha=0.0) == {"a": 0.5, "b": 0.5}


class Numbered(Loader):
    """A loader that gives its name and the number asked for."""

    batch_size, window, steps_per_epoch = 2, 3, 5.0

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": 6.0}

    def batch(self, step: int) -> Any:
        return self.name, step

    def restarts(self, step: int) -> bool:
        return False

    def plan(self, total_steps: int | None) -> None:
        self.planned = total_steps


def test_each_language_has_its_turns_and_loses_no_batch() -> None:
    mixed = MixedLoader({"a": Numbered("a"), "b": Numbered("b")}, {"a": 0.75, "b": 0.25}, seed=3)
    seen = [mixed.batch(step) for step in range(512)]
    assert Counter(name for name, _ in seen) == {"a": 384, "b": 128}
    for name in "ab":
        assert [number for other, number in seen if other == name] == list(range(384 if name == "a" else 128))
    assert [mixed.batch(step) for step in (500, 7, 300)] == [seen[500], seen[7], seen[300]], "a function of the step"
    switches = [step for step in range(1, 512) if seen[step][0] != seen[step - 1][0]]
    assert [step for step in range(1, 512) if mixed.restarts(step)] == switches


def test_a_corpus_in_two_languages(texts: dict[str, Path], tmp_path: Path) -> None:
    sources = {name: [str(path)] for name, path in texts.items()}
    corpus = prepare_languages(sources, tokenizer="bpe:320", alpha=0.5, cache=tmp_path / "cache")
    train: Any = corpus.train
    assert isinstance(train, LanguageSplit)
    assert list(train.parts()) == ["en", "de"]
    for name, text in (("en", ENGLISH), ("de", GERMAN)):
        part = train.parts()[name]
        assert text.startswith(corpus.tokenizer.decode(part.tokens.tolist()))
        assert 0.85 < part.bytes / len(text.encode()) < 0.95
    sizes = np.array([len(part.tokens) for part in train.parts().values()], dtype=float)
    assert list(train.fractions.values()) == pytest.approx((sizes**0.5 / (sizes**0.5).sum()).tolist())
    everything = corpus.tokenizer.decode(train.tokens.tolist())
    assert everything.endswith(corpus.tokenizer.decode(train.parts()["de"].tokens.tolist()))
    for document, place in zip(("the cat", "die Katze"), train.documents.tolist(), strict=True):
        assert corpus.tokenizer.decode(train.tokens[place : place + 12].tolist()).startswith(document)
    again = prepare_languages(sources, tokenizer="bpe:320", alpha=0.5, cache=tmp_path / "cache")
    assert again.fingerprint == corpus.fingerprint


def test_words_that_are_spelled_have_one_number_in_all_languages(texts: dict[str, Path], tmp_path: Path) -> None:
    """Rare words of every language are in the one tokenizer, so that a model can be given their letters."""
    for path, rare in zip(texts.values(), ("zebra", "Zebrastreifen"), strict=True):
        path.write_text(f"{path.read_text()} {rare} Kilo {rare}\n", encoding="utf-8")
    sources = {name: [str(path)] for name, path in texts.items()}
    corpus = prepare_languages(
        sources, tokenizer="spelled:12", alpha=0.5, split=(1.0, 0.0, 0.0), cache=tmp_path / "cache"
    )
    for name, path in texts.items():
        tokens = corpus.train.parts()[name].tokens
        assert int(tokens.max()) < corpus.tokenizer.vocabulary
        assert corpus.tokenizer.decode(tokens.tolist()).split() == path.read_text(encoding="utf-8").split()
    given = prepare_languages(
        sources, tokenizer=corpus.tokenizer, alpha=0.5, split=(1.0, 0.0, 0.0), cache=tmp_path / "cache"
    )
    assert given.fingerprint == corpus.fingerprint


def test_words_are_looked_for_once(texts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer that has all words, as that of a run, is taken as it is; a word of both languages has one number."""
    sources = {name: [str(path)] for name, path in texts.items()}
    given = train("spelled:4", ["the cat"])

    def prepare(tokenizer: Tokenizer) -> Any:
        return prepare_languages(sources, tokenizer=tokenizer, alpha=0.5, cache=tmp_path / "cache")

    corpus = prepare(given)
    own = corpus.tokenizer
    assert own.encode("the cat") == given.encode("the cat")
    words = {word for text in (ENGLISH, GERMAN) for word in text.split()}
    assert max(own.encode(" ".join(sorted(words)))) < own.vocabulary <= given.vocabulary + len(words)
    asked: list[object] = []

    def counting(paths: Any, **settings: Any) -> Any:
        asked.append(settings["tokenizer"])
        return prepare_text(paths, **settings)

    monkeypatch.setattr("lmlab.data.corpora.languages.prepare_text", counting)
    assert prepare(own).fingerprint == corpus.fingerprint
    assert asked == [own, own], "once for each language"


def test_too_many_words(texts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a language that come too late are unknown, with a warning; those of all languages are an error."""
    sources = {name: [str(path)] for name, path in texts.items()}
    given = train("spelled:4", ["the cat"])

    def prepare(cache: str) -> Any:
        return prepare_languages(
            sources, tokenizer=given, alpha=0.5, split=(1.0, 0.0, 0.0), documents="lines", cache=tmp_path / cache
        )

    monkeypatch.setattr("lmlab.tokenizers.training.MOST_COUNTED", 50)
    with pytest.warns(TokenizerWarning, match="more than 50 different words: those that come later"):
        corpus = prepare("a")
    for name, text in (("en", ENGLISH), ("de", GERMAN)):
        ids = corpus.train.parts()[name].tokens
        assert int(ids.max()) < corpus.tokenizer.vocabulary
        shown = [corpus.tokenizer.show(token) for token in ids.tolist() if token != corpus.tokenizer.boundary]
        pairs = set(zip(shown, text.split(), strict=True))
        assert {found for found, word in pairs if found != word} == {"<unk>"}
        assert 51 <= sum(found == word for found, word in pairs) < 60
    monkeypatch.setattr("lmlab.data.corpora.languages.MOST_COUNTED", 50)
    with (
        pytest.warns(TokenizerWarning),
        pytest.raises(ValueError, match=r"en, de have more than 50 different words.*--tokenizer bpe"),
    ):
        prepare("b")


def test_the_languages_of_validation_must_be_those_of_the_text(texts: dict[str, Path]) -> None:
    sources = {name: [str(path)] for name, path in texts.items()}
    with pytest.raises(ValueError, match="--valid has en, the text has en, de"):
        prepare_languages(sources, tokenizer="bytes", alpha=0.5, valid={"en": sources["en"]})


def test_a_model_learns_two_languages_and_is_resumed_exactly(texts: dict[str, Path], tmp_path: Path) -> None:
    def recipe(budget: str) -> Any:
        return make_recipe(
            {
                "data": {"text": [f"{name}={path}" for name, path in texts.items()], "alpha": 0.3},
                "tokenizer": {"spec": "bpe:300"},
                "model": {"kind": "gpt2", "size": "tiny"},
                "train": {"budget": budget, "batch": 4, "window": 16, "save_seconds": 0},
            }
        )

    whole = start(recipe("12steps"), tmp_path / "whole")
    metrics = whole.progress.best_metrics
    assert {"en_loss", "de_loss"} <= metrics.keys()
    assert whole.progress.best == pytest.approx((metrics["en_loss"] + metrics["de_loss"]) / 2)
    start(recipe("12steps"), tmp_path / "part", interrupted=_after(5))
    resumed = resume(tmp_path / "part")
    assert resumed.progress.best == whole.progress.best


def _after(steps: int) -> Any:
    calls = iter(range(1000))
    return lambda: next(calls) >= steps


def test_hundreds_of_languages_each_have_their_turn() -> None:
    """More languages than the batches of a short round: a longer one."""
    names = [f"l{i}" for i in range(700)]
    fractions = sampling_fractions({name: 1.0 + i for i, name in enumerate(names)}, alpha=1.0)
    mixed = MixedLoader({name: Numbered(name) for name in names}, fractions, seed=0)
    assert mixed.counts.min() == 1
    assert mixed.counts.sum() == mixed.round >= 4 * 700
    assert mixed.counts / mixed.round == pytest.approx(np.array(list(fractions.values())), abs=1.1 / mixed.round)
    seen = [mixed.batch(step) for step in range(mixed.round)]
    assert {name for name, _ in seen} == set(names)
    with pytest.raises(ValueError, match="too few"):
        apportion([0.5, 0.5], 1)


def test_languages_know_their_number_of_batches() -> None:
    mixed = MixedLoader({"a": Numbered("a"), "b": Numbered("b")}, {"a": 0.75, "b": 0.25}, seed=3)
    mixed.plan(300)
    counts = Counter(mixed.batch(step)[0] for step in range(300))
    assert {loader.name: loader.planned for loader in mixed.loaders} == dict(counts)  # type: ignore[attr-defined]
    mixed.plan(None)
    assert [loader.planned for loader in mixed.loaders] == [None, None]  # type: ignore[attr-defined]


def test_two_threads_may_share_the_turns() -> None:
    names = [f"l{i}" for i in range(40)]
    fractions = dict.fromkeys(names, 1 / 40)
    mixed = MixedLoader({name: Numbered(name) for name in names}, fractions, seed=1)
    steps = [256 * turn + place for place in range(0, 256, 8) for turn in (0, 3, 7)]
    alone = {step: (mixed.batch(step), mixed.restarts(step)) for step in steps}
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda step: (mixed.batch(step), mixed.restarts(step)), steps * 20))
    assert together == [alone[step] for step in steps * 20]


def test_the_size_is_known_without_reading_the_text(texts: dict[str, Path], tmp_path: Path) -> None:
    corpus = prepare_languages({name: [str(path)] for name, path in texts.items()}, tokenizer="bytes", alpha=0.5)
    size = corpus.train.size
    assert "tokens" not in vars(corpus.train), "nothing was joined in memory"
    assert size == len(corpus.train.tokens) - 1


def test_short_rows_come_first_in_every_language(texts: dict[str, Path], tmp_path: Path) -> None:
    def weights(name: str, **objective: Any) -> bytes:
        values = {
            "data": {"text": [f"{name}={path}" for name, path in texts.items()], "documents": "lines"},
            "tokenizer": {"spec": "bpe:300"},
            "model": {"kind": "roberta", "size": "tiny"},
            "objective": objective,
            "train": {"budget": "8steps", "batch": 2, "window": 32, "evaluations": 1},
        }
        start(make_recipe(values), tmp_path / name)
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        assert all(line["flops"] > 0 for line in lines if "flops" in line)
        return (tmp_path / name / "last" / "model.safetensors").read_bytes()

    assert weights("plain") == weights("again")
    assert weights("short", short=16, short_fraction=0.5) != weights("plain2")
    values = {"data": {"text": [f"{name}={path}" for name, path in texts.items()]}, "objective": {"short": 16}}
    values |= {"model": {"kind": "roberta", "size": "tiny"}, "tokenizer": {"spec": "bpe:300"}}
    timed = make_recipe({**values, "train": {"budget": "0.2s", "window": 32}})
    assert start(timed, tmp_path / "timed").progress.step > 0, "lengths alternate where the end is not known"
