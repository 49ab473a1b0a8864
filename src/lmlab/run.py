"""Carry out a recipe in a run directory, from text to trained weights; or go on where one was interrupted."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lmlab.checkpoint import write_bytes, write_config, write_json, write_manifest
from lmlab.config import build
from lmlab.costs.countries import find_grid
from lmlab.data.corpora.corpus import Corpus, prepare
from lmlab.data.corpora.languages import by_language, prepare_languages
from lmlab.data.corpora.pairs import PairCorpus, prepare_pairs
from lmlab.jobs import Job, Plan, Reporter, Silent, create_job, likelihood_bits
from lmlab.models import find, load_class
from lmlab.objectives import load_objective
from lmlab.recipe import DataConfig, Recipe, read_recipe
from lmlab.tokenizers import Tokenizer
from lmlab.training.card import describe_quality, model_card
from lmlab.training.costs import Cost, second_opinion
from lmlab.training.lock import hold
from lmlab.training.progress import Progress

PAIR_FIELDS = {
    *(f"{part}{side}" for part in ("", "valid_", "test_") for side in ("source", "target", "pairs")),
    "split",
    "languages",
    "longest",
    "ratio",
}


class Outcome(NamedTuple):
    """What a run came to."""

    path: Path
    progress: Progress
    bits_per_byte: float | None  # on validation text, of the best weights
    parameters: int
    interrupted: bool
    embedding_parameters: int = 0
    grams: float = 0.0  # of CO2e
    predicts: str = "next token"

    @property
    def quality(self) -> str:
        """How well it does on validation text, in words."""
        return f"{describe_quality(self.progress, self.bits_per_byte)} on validation text"

    @property
    def next_step(self) -> str:
        """What a user may want to do with it now."""
        return {
            "next token": f'lmlab generate {self.path} "Once upon a time"   or: lmlab score {self.path} FILE',
            "blanks": f'lmlab fill {self.path} "this is a [MASK]"   or: lmlab embed {self.path} FILE -o out.npy',
            "target text": f"lmlab translate {self.path} FILE   or: lmlab evaluate {self.path} --source … --target …",
        }[self.predicts]


def start(
    recipe: Recipe,
    path: Path,
    *,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train a new model in a new run directory."""
    if path.exists() and not _is_fresh(path):
        if not (path.is_dir() and (path / "recipe.json").is_file()):
            raise ValueError(f"{path} exists and is not a run directory; choose another -o")
        if not overwrite:
            raise ValueError(f"{path} holds a run already; go on with --resume {path}, or replace it with --overwrite")
    reporter = reporter or Silent()
    corpus = prepare_corpus(
        recipe.data, tokenizer=recipe.tokenizer.spec, source=recipe.tokenizer.source, progress=reporter.stage
    )
    tokenizer = full_tokenizer(recipe, corpus)
    config = model_config(recipe, tokenizer, _source_tokenizer(corpus))
    job = create_job(recipe, dataclasses.replace(corpus, tokenizer=tokenizer), config)
    path.mkdir(parents=True, exist_ok=True)
    with hold(path):
        _clear(path)
        tokenizer.save(path / "tokenizer.json")
        if (source := _source_tokenizer(corpus)) is not None:
            source.save(path / "source_tokenizer.json")
        write_config(path, recipe.kind, config.model_dump())
        _write_recipe(path, recipe, corpus)
        write_manifest(path)
        return _carry_out(job, Plan(recipe, path, corpus, job.parameters), reporter, interrupted)


def _is_fresh(path: Path) -> bool:
    """Whether a folder is empty, or holds only what a run that was killed at its very start has left there."""
    begun = {"tokenizer.json", "source_tokenizer.json", "config.json"}
    return path.is_dir() and all(entry.name in begun or entry.name.startswith(".") for entry in path.iterdir())


def resume(
    path: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Go on with a run: the same text, the same random numbers, as if it had never stopped.

    `settings` of training may be changed on the way: a larger budget extends the run, a lower rate saves it.
    """
    if not (path / "recipe.json").is_file():
        raise ValueError(f"{path} is not a run directory: it has no recipe.json, so there is nothing to resume")
    reporter = reporter or Silent()
    with hold(path):
        recipe, fingerprint = read_recipe(path, settings=settings)
        corpus = reopen_corpus(recipe, path, reporter)
        if fingerprint is not None and corpus.text_fingerprint != fingerprint:
            raise ValueError(
                f"the text of {path} has changed since the run began, so it cannot be resumed; start a new run"
            )
        tokenizer = full_tokenizer(recipe, corpus)
        config = model_config(recipe, tokenizer, _source_tokenizer(corpus))
        job = create_job(recipe, dataclasses.replace(corpus, tokenizer=tokenizer), config)
        if settings:
            _write_recipe(path, recipe, corpus)
            write_manifest(path)
        return _carry_out(job, Plan(recipe, path, corpus, job.parameters), reporter, interrupted)


def held_out(path: Path) -> list[Any]:
    """The test documents of a run (its validation documents where no test text was kept); pairs, of a translator."""
    recipe, _ = read_recipe(path)
    corpus = reopen_corpus(recipe, path, Silent())
    split = corpus.test or corpus.valid
    if split is None:
        raise ValueError(f"no text of {path} was held out")
    return list(split.texts())


def reopen_corpus(recipe: Recipe, path: Path, reporter: Reporter) -> Corpus | PairCorpus:
    """The text of a run, encoded with the run's own tokenizer: from the cache if it is still there."""
    tokenizer = Tokenizer.load(path / "tokenizer.json")
    own_source = path / "source_tokenizer.json"
    source = Tokenizer.load(own_source) if own_source.is_file() else None
    corpus = prepare_corpus(
        recipe.data, tokenizer=recipe.tokenizer.spec, source=recipe.tokenizer.source, progress=reporter.stage
    )
    again = [full_tokenizer(recipe, corpus), _source_tokenizer(corpus)]
    if [each and each.fingerprint for each in again] != [each and each.fingerprint for each in (tokenizer, source)]:
        corpus = prepare_corpus(recipe.data, tokenizer=tokenizer, source=source, progress=reporter.stage)
    return corpus


def full_tokenizer(recipe: Recipe, corpus: Corpus | PairCorpus) -> Tokenizer:
    """The tokenizer of a corpus with the special tokens that the objective needs."""
    return corpus.tokenizer.with_roles(load_objective(recipe.objective["kind"]).roles)


def _source_tokenizer(corpus: Corpus | PairCorpus) -> Tokenizer | None:
    return corpus.source_tokenizer if isinstance(corpus, PairCorpus) else None


def _write_recipe(path: Path, recipe: Recipe, corpus: Corpus | PairCorpus) -> None:
    write_json(path / "recipe.json", {**recipe.model_dump(), "text_sha256": corpus.text_fingerprint})


def prepare_corpus(
    data: DataConfig,
    *,
    tokenizer: str | Tokenizer,
    source: str | Tokenizer | None = None,
    progress: Callable[[str, int, int], None],
) -> Corpus | PairCorpus:
    """The text of a recipe or a comparison as tokens; `source` is the tokenizer of a translator's source."""
    if data.parallel:
        return prepare_pairs(
            **data.model_dump(include=PAIR_FIELDS), tokenizer=tokenizer, source_tokenizer=source, progress=progress
        )
    assert data.text is not None, "a recipe names some text"
    languages = by_language(data.text)
    if languages is not None:
        return prepare_languages(
            languages,
            tokenizer=tokenizer,
            alpha=data.alpha,
            valid=by_language(data.valid),
            test=by_language(data.test),
            split=data.split,
            documents=data.documents,
            progress=progress,
        )
    return prepare(
        data.text,
        tokenizer=tokenizer,
        valid=data.valid,
        test=data.test,
        split=data.split,
        documents=data.documents,
        progress=progress,
    )


def model_config(recipe: Recipe, tokenizer: Tokenizer, source: Tokenizer | None = None) -> Any:
    """The model's settings, with what only the tokenizer knows filled in."""
    cls = load_class(recipe.kind)
    known: dict[str, Any] = {"vocabulary": tokenizer.vocabulary}
    if "boundary" in cls.Config.model_fields:
        known["boundary"] = tokenizer.boundary
    if source is not None:
        known["source_vocabulary"] = source.vocabulary
    for name, value in known.items():
        if recipe.origin is None and recipe.model.get(name, value) != value:
            raise ValueError(f"model.{name} = {recipe.model[name]} is not the tokenizer's {value}; leave it out")
    return build(cls.Config, {**known, **recipe.model} if recipe.origin else {**recipe.model, **known}, where="model")


def _clear(path: Path) -> None:
    for entry in path.iterdir():
        if entry.name == ".lock":
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _carry_out(job: Job, plan: Plan, reporter: Reporter, interrupted: Callable[[], bool]) -> Outcome:
    reporter.begin(plan)
    with second_opinion(find_grid(plan.recipe.train.country)) as opinion:
        progress, parameters = job.carry_out(plan.path, reporter, interrupted)
    bits = None
    if isinstance(plan.corpus, Corpus) and load_objective(plan.recipe.objective["kind"]).likelihood:
        bits = likelihood_bits(progress.best, progress.best_measures, plan.corpus.valid)
    if progress.ended:
        card = model_card(
            plan.recipe, plan.corpus, progress, parameters=parameters, bits=bits, second_opinion=opinion.text
        )
        write_bytes(plan.path / "README.md", card.encode())
    return Outcome(
        plan.path,
        progress,
        bits,
        parameters.total,
        interrupted=not progress.ended,
        embedding_parameters=parameters.embedding,
        grams=find_grid(plan.recipe.train.country).grams(Cost(*progress.cost).joules),
        predicts=find(plan.recipe.kind).predicts,
    )
