"""Equal conditions: which systems meet on which text, with which tokenizer, budget, sizes and seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from lmlab.comparison.matching import match_width, parse_match
from lmlab.comparison.tracks import TRACKS, systems_of, tracks_of
from lmlab.comparison.variants import folder_name, parse_variant, system_of
from lmlab.config import Config, suggest
from lmlab.costs.parameters import count_parameters
from lmlab.data import make_config
from lmlab.data.config import AnyData, DataConfig
from lmlab.data.corpora.corpus import Corpus
from lmlab.models import LINEAGE, find, load_class, outline
from lmlab.objectives import load_objective
from lmlab.runs.recipe import Recipe, make_recipe
from lmlab.tokenizers import parse
from lmlab.tokenizers.inspecting import text_fingerprint
from lmlab.tokenizers.processors import is_processor, make_processor
from lmlab.tokenizers.training import is_path
from lmlab.training.budget import Budget, parse_budget

OWN = {
    "ngram": "bpe:8192",
    "nplm": "bpe:8192",
    "bow": "bpe:8192",
    "rnn": "bytes",
    "gru": "bytes",
    "lstm": "bytes",
    "awd-lstm": "bytes",
    "attention-lm": "bpe:4096",
    "gpt": "bpe:4096",
    "gpt2": "bpe:4096",
    "transformer-xl": "bytes",
}
"""`--tokenizer own`: what each system was known for, without loss. Models over words get large pieces in their place,
for words lose text; recurrent nets and Transformer-XL read bytes, as on enwik8; GPTs read byte-pair encodings. Masked
systems all read the same, the one for all others: see `Track.one_tokenizer`."""
OTHERS = "bpe:4096"
MIN_TEST_BYTES = 200
"""Bytes of test text below which no comparison is worth its name."""
SWEEP_FACTORS = (1 / 3, 1.0, 3.0)
SWEEP_FRACTION = 0.2
"""`--sweep` spends this fraction of the budget on the rates, the same on each; the best gets the rest."""
TRAINING = {"evaluations": 20}


class Conditions(Config):
    """What is the same for all; saved in `conditions.json`, so that a comparison can be resumed."""

    data: AnyData
    systems: list[str] = Field(min_length=1, description="names of the models")
    budget: str = Field(description="training budget of each model")
    tokenizers: dict[str, str] = Field(description="tokenizer of each model")
    size: str | None = Field(None, description="size preset of every model")
    match: str | None = Field(None, description="parameters, or parameters=N")
    seeds: list[int] = Field([0], min_length=1, description="random seeds; each model is trained once with each")
    sweep: bool = Field(False, description="learning-rate sweep: choose each rate by three short runs")
    prompt: str | None = Field(None, description="prompt of the samples; by default words of the test text")
    train: dict[str, Any] = Field(default_factory=dict, description="training settings, the same for all")


class PlannedRun(NamedTuple):
    """One run of the comparison."""

    name: str  # of the run directory
    system: str
    seed: int
    recipe: Recipe
    tokenizer: str = ""  # its spec


class Skipped(NamedTuple):
    """A system that cannot take part, and why."""

    name: str
    system: str
    reason: str


def make_conditions(
    text: Sequence[str],
    *,
    models: str,
    budget: str,
    tokenizers: Sequence[str] = (),
    size: str | None = None,
    match: str | None = None,
    seeds: int = 1,
    seed: int = 0,
    sweep: bool = False,
    prompt: str | None = None,
    data: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
) -> Conditions:
    """Conditions as the command line gives them; everything that can be known to be wrong is found here."""
    if "-" in text:
        raise ValueError("a comparison reads its text more than once: save standard input to a file and give the file")
    systems = choose_systems(models)
    for system in systems:
        parse_variant(system)
    parse_budget(budget)
    if match is not None:
        parse_match(match)
    if seeds < 1:
        raise ValueError(f"--seeds {seeds}: give at least 1")
    config = make_config({"text": list(text), **(data or {})}, reads=_common_reads(systems))
    if config.kind == "mixture":
        raise ValueError(f"{', '.join(config.named)}: systems are compared on one kind of data; give one kind only")
    chosen = choose_tokenizers(systems, tokenizers, data=config)
    for system, spec in chosen.items():
        for track in tracks_of(system, spec):
            track.check()
    conditions = Conditions(
        data=config,
        systems=systems,
        budget=budget,
        tokenizers=chosen,
        size=size,
        match=match,
        seeds=list(range(seed, seed + seeds)),
        sweep=sweep,
        prompt=prompt,
        train=dict(train or {}),
    )
    for system in systems:
        _recipe(conditions, system, seed=seed)
    return conditions


def choose_systems(text: str) -> list[str]:
    """Names with commas between them; `all` are systems that predict the next token, `masked` those that fill masks."""
    groups = {track.group: systems_of(track) for track in TRACKS.values()}
    names: list[str] = []
    grouped: set[str] = set()  # a system with several abilities is in several groups
    for word in filter(None, map(str.strip, text.split(","))):
        if word in groups:
            names += [name for name in groups[word] if name not in grouped]
            grouped.update(groups[word])
            continue
        tracks_of(word)
        names.append(word)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"--models {text}: name each model once, separated by commas, or write {' or '.join(groups)}")
    return names


def _common_reads(systems: Sequence[str]) -> tuple[str, ...]:
    """The kinds of data that all systems learn from; a ValueError if there is none."""
    reads = {system: find(system_of(system)).reads for system in systems}
    common = [kind for kind in reads[systems[0]] if all(kind in each for each in reads.values())]
    if not common:
        kinds = {each[0]: system for system, each in reversed(reads.items())}
        described = " and ".join(f"{system} learns from {kind}" for kind, system in kinds.items())
        raise ValueError(f"--models: {described}; compare systems that learn from the same data")
    return tuple(common)


def choose_tokenizers(
    systems: Sequence[str], given: Sequence[str], *, data: DataConfig | None = None
) -> dict[str, str]:
    """One tokenizer for all, or `own`, or `SYSTEM=SPEC` for some of them; by default that of the data.

    Systems that read no text have none, "", and those of pictures or recordings with texts have their own.
    """
    common: str | None = None
    special: dict[str, str] = {}
    for text in given:
        name, equals, spec = text.partition("=")
        if equals and name in LINEAGE:
            if name not in map(system_of, systems):
                raise ValueError(f"--tokenizer {text}: {name} is not in --models{suggest(name, systems)}")
            special[name] = _written(spec)
        else:
            common = text if text == "own" else _written(text)
    chosen = {}
    for system in systems:
        base, usual = system_of(system), _usual_tokenizer(system, data)
        own = OWN.get(base, OTHERS) if _by_tokens(system) else usual
        chosen[system] = special.get(base, usual if common is None else own if common == "own" else common)
    return chosen


def _usual_tokenizer(system: str, data: DataConfig | None) -> str:
    if data is None:
        return OTHERS
    if _by_tokens(system):
        return data.usual_tokenizer(OTHERS) or OTHERS
    return data.usual_tokenizer(find(system_of(system)).tokenizer) or ""


def _by_tokens(system: str) -> bool:
    return all(track.by_tokens for track in tracks_of(system))


def _written(spec: str) -> str:
    if is_processor(spec):
        return make_processor(spec).spec
    return spec if is_path(spec) else str(parse(spec))


def check_corpora(corpora: Mapping[str, Corpus], conditions: Conditions) -> None:
    """There is enough test text, and the scores on it can be compared."""
    corpus = next(iter(corpora.values()))
    fraction = conditions.data.split[2] if len(conditions.data.split) > 2 else 0.0
    if corpus.test is None:
        raise ValueError(
            "no test text is held out, but models are ranked by it; "
            + (
                "give --test besides --valid"
                if getattr(conditions.data, "valid", None)
                else "give --split a third fraction, or give --test a separate text"
            )
        )
    if corpus.sequence_tokenizer is not None:
        _check_sequences(corpora, conditions)
        return
    if not all(map(_by_tokens, conditions.systems)):
        if conditions.sweep and corpus.valid is None:
            raise ValueError("--sweep needs validation data, and none are held out; give --split three fractions")
        return
    size = corpus.test.as_text().bytes
    if size < MIN_TEST_BYTES:
        more = (
            f"a text of at least {MIN_TEST_BYTES / fraction:,.0f} bytes, a larger third fraction in --split, or "
            if fraction
            else ""
        )
        raise ValueError(
            f"the test text has {size} bytes; a comparison needs at least {MIN_TEST_BYTES}: "
            f"give {more}a longer text to --test"
        )
    if conditions.sweep and corpus.valid is None:
        raise ValueError(
            "--sweep needs validation text, and none is held out; give --split three fractions, or --valid"
        )
    fingerprints = {spec: text_fingerprint(corpus.text_tokenizer) for spec, corpus in corpora.items()}
    for track in TRACKS.values():
        specs = {system: spec for system, spec in conditions.tokenizers.items() if track.has(system)}
        if len({fingerprints[spec] for spec in specs.values()}) < 2:
            continue
        if track.one_tokenizer:
            raise ValueError(f"{' and '.join(specs)} would use different tokenizers: {track.one_tokenizer}")
        for system, spec in specs.items():
            if corpora[spec].loses(corpora[spec].test):
                raise ValueError(
                    f"{system} would use {spec}, which is lossy (case, spacing or rare words are lost), and other "
                    "models use another tokenizer: it would be scored on an easier text, so the scores would not be "
                    "comparable. Give all models the same --tokenizer, or lossless ones (bpe:N, unigram:N, bytes)"
                )


def _check_sequences(corpora: Mapping[str, Corpus], conditions: Conditions) -> None:
    """All systems have the same tokens, because scores are per token; and there is validation data for --sweep."""
    if len(corpora) > 1:
        raise ValueError(
            f"--tokenizer {' and '.join(corpora)}: scores of music and pixels are per token, so all models need the "
            "same tokenizer"
        )
    if conditions.sweep and next(iter(corpora.values())).valid is None:
        raise ValueError("--sweep needs validation data, and none are held out; give --split three fractions")


def plan(conditions: Conditions, corpora: Mapping[str, Corpus]) -> tuple[list[PlannedRun], list[Skipped]]:
    """The runs to make, in the order of the systems, and the systems that cannot take part."""
    target = matched_parameters(conditions, corpora)
    planned_runs: list[PlannedRun] = []
    skipped: list[Skipped] = []
    for system in conditions.systems:
        counted = not trains(system)
        seeds = conditions.seeds[:1] if counted else conditions.seeds
        try:
            for seed in seeds:
                recipe = _recipe(conditions, system, seed=seed)
                if target is not None and not counted:
                    known = _settings_from_corpus(recipe, corpora[conditions.tokenizers[system]])
                    matched = match_width(system_of(system), {**recipe.model, **known}, target=target)
                    kept = {name: value for name, value in matched.items() if name not in known}
                    recipe = recipe.model_copy(update={"model": kept})
                folder = folder_name(system)
                name = folder if len(seeds) == 1 and len(conditions.seeds) == 1 else f"{folder}-seed{seed}"
                spec = conditions.tokenizers[system]
                planned_runs.append(PlannedRun(folder if counted else name, system, seed, recipe, spec))
        except ValueError as error:
            skipped.append(Skipped(system, system, str(error)))
    return planned_runs, skipped


def matched_parameters(conditions: Conditions, corpora: Mapping[str, Corpus]) -> int | None:
    """The number of parameters that all get: as asked, else the median of the presets, to two digits."""
    if conditions.match is None:
        return None
    given = parse_match(conditions.match)
    if given is not None:
        return given
    counts = []
    for system in filter(trains, conditions.systems):
        recipe = _recipe(conditions, system, seed=0)
        known = _settings_from_corpus(recipe, corpora[conditions.tokenizers[system]])
        counts.append(count_parameters(outline(system_of(system), {**recipe.model, **known})).total)
    return int(float(f"{statistics.median_low(counts):.2g}")) if counts else None


def trains(system: str) -> bool:
    """Whether a system learns by gradients; an n-gram counts."""

    return find(system_of(system)).trained_by == "gradient"


def budget_of(conditions: Conditions, system: str, corpus: Corpus) -> str:
    """The budget of one system. Counting reads the text once, or as much of it as tokens or epochs allow."""
    budget = parse_budget(conditions.budget)
    if trains(system) or budget.unit != "epochs":
        return conditions.budget
    return write_budget(Budget(min(1.0, budget.amount) * (corpus.train.size + 1), "tokens"))


def write_budget(budget: Budget) -> str:
    """A budget as it is written in a recipe."""
    return f"{budget.amount!r}{budget.unit}"


def _recipe(conditions: Conditions, system: str, *, seed: int) -> Recipe:
    train = {**TRAINING, **conditions.train, "budget": conditions.budget, "seed": seed}
    variant = parse_variant(system)
    return make_recipe(
        {
            "data": conditions.data.model_dump(),
            "tokenizer": {"spec": conditions.tokenizers[system] or None},
            "model": {"kind": variant.system, "size": variant.size or conditions.size, **variant.settings},
            "train": train,
        }
    )


def read_fingerprints(conditions: Conditions, corpora: Mapping[str, Corpus]) -> dict[str, str]:
    """What identifies the tokenizer of each system, with the special tokens that it needs."""
    return {
        system: _fingerprint(_recipe(conditions, system, seed=0), corpora[conditions.tokenizers[system]])
        for system in conditions.systems
    }


def _fingerprint(recipe: Recipe, corpus: Corpus) -> str:
    if corpus.sequence_tokenizer is not None:
        return corpus.sequence_tokenizer.fingerprint
    if corpus.tokenizer is None:
        return ""
    return text_fingerprint(corpus.text_tokenizer.with_specials(load_objective(recipe.objective["kind"]).specials))


def _settings_from_corpus(recipe: Recipe, corpus: Corpus) -> dict[str, Any]:
    """Settings of a model that only the text knows."""
    specials = load_objective(recipe.objective["kind"]).specials
    config: Any = load_class(recipe.kind).Config
    known: dict[str, Any] = config.from_corpus(corpus.with_specials(specials))
    usual = {name: value for name, value in config.usual(corpus).items() if name not in recipe.model}
    return {**usual, **known}
