"""The facts of a report on one run as plain data: curve, scores, cost, settings, samples, surprisal, tokenizer.

Runs differ in what they have: an n-gram has no curve, an imported model no cost, a translator no plain text. A part
that does not exist is None, and `left_out` says why.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lmlab.comparison.likelihood import SAMPLE_BYTES, choose_scored_part, perplexity, score_units
from lmlab.comparison.shared_test_data import make_cloze, make_test_text
from lmlab.comparison.tracks.masked import fill_cloze
from lmlab.costs.parameters import count_parameters
from lmlab.language_model import LanguageModel, load
from lmlab.models import LINEAGE
from lmlab.models.abilities import FillsMasks, PredictsBothWays, PredictsNext, WritesTarget, ability
from lmlab.progress import ReportProgress
from lmlab.runs.held_out import find_held_out
from lmlab.runs.recipe_record import read_record
from lmlab.runs.storage import METRICS, read_json, verify_metrics
from lmlab.tasks.predicting import as_dict
from lmlab.tokenizers.inspecting import TokenizedText, loses_text
from lmlab.tokenizers.processors.pictures import PictureProcessor
from lmlab.transfer.evaluation import find_held_out_pictures
from lmlab.units import read_speed, training_seconds

Facts = dict[str, Any]
T = TypeVar("T")

TEMPERATURES = (0.3, 0.7, 1.0)
PROMPTS = 2
CLOZES = 3
SENTENCES = 4
"""Translations that are shown."""
PAIRS_SCORED = 200
OF_TEXT = ("held-out text", "surprisal", "samples", "tokenizer")
"""Parts that a run of pictures cannot have."""
PICTURES = 2000
"""Held-out pictures that are predicted, evenly spread."""
CHARACTERS_READ = 30_000
"""Characters of held-out text from which the figures of the tokenizer are computed."""
PIECES = 80
"""Tokens that are shown as an example of the tokenizer."""
END = "■"
"""The end of a target, which is predicted too."""
SOURCE_LETTERS = 160
TARGET_TOKENS = 40
"""Longer sources are not shown, and alignments of longer targets are not plotted."""
OTHER_TEXT = "the text given with --file"
PATHS = ("text", "valid", "test", "source", "target", "pairs", "valid_source", "valid_target", "valid_pairs")


class Shown(NamedTuple):
    """The data of a report: documents, or pairs of a source and a target, and their name."""

    name: str
    texts: list[str]
    pairs: list[tuple[str, str]]


def gather_facts(
    run: str | Path,
    *,
    texts: Sequence[str] | None = None,
    device: Any = "cpu",
    progress: ReportProgress | None = None,
) -> Facts:
    """All facts of a report about a run; `texts` replace its own held-out text."""
    run = Path(run)
    model = load(run, device=device)
    left_out: dict[str, str] = {}

    def attempt(part: str, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except ValueError as error:
            left_out[part] = str(error)
            return None

    given = Shown(OTHER_TEXT, list(texts or ()), [])
    held = given if texts else attempt("held-out text", lambda: _held_out(run)) or given
    lines = _read_lines(run)
    unit = next((speed[0] for line in reversed(lines) if (speed := read_speed(line))), "tokens")
    score = attempt("surprisal", lambda: _surprisal(model, held, progress))
    pictures = model.own_predictor is not None and isinstance(model.processor, PictureProcessor)
    facts = {
        "run": run.resolve().name,
        "text": held.name,
        **_about(run, model),
        "validation": attempt("validation", lambda: _validation(lines)),
        "held_out": score and score["figures"],
        "curve": attempt("learning curve", lambda: _curve(lines, unit)),
        "cost": attempt("cost", lambda: _cost(lines, unit)),
        "samples": attempt("samples", lambda: _samples(model, held)),
        "surprisal": score and score["passages"],
        "evidence": attempt("mistakes", lambda: _mistakes(run, model)) if pictures else None,
        "tokenizer": attempt("tokenizer", lambda: _tokenizer(model, held)),
        "changes": attempt("changes", lambda: _changes(run)),
        "settings": _settings(run),
        "left_out": left_out,
    }
    if pictures:  # what only text has is not missing
        facts["left_out"] = {name: why for name, why in left_out.items() if name not in OF_TEXT}
    return facts


def _held_out(run: Path) -> Shown:
    if not (run / "recipe.json").is_file():
        raise ValueError("the run was imported, so it has no held-out text; give one with --file FILE")
    split, items = find_held_out(run)
    pairs = [item for item in items if isinstance(item, tuple)]
    return Shown(f"the {split} text", [item for item in items if isinstance(item, str)], pairs)


def _read_lines(run: Path) -> list[dict[str, Any]]:
    path = run / METRICS
    if not path.is_file():
        return []
    verify_metrics(run)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.strip() and line.endswith("\n")]  # the last may be half written


def _about(run: Path, model: LanguageModel) -> Facts:
    """The system, and how large it is."""
    kind = str(read_json(run / "config.json")["kind"])
    system = LINEAGE.get(kind)
    known = {} if system is None else {"summary": system.summary, "year": system.year, "paper": system.paper}
    return {"kind": kind, **known, "parameters": count_parameters(model.model)._asdict()}


def _validation(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The validation scores of the best weights."""
    measured = [line for line in lines if line.get("valid_loss") is not None]
    if not measured:
        raise ValueError("no validation is recorded for this run")
    best = next((line for line in reversed(measured) if line.get("best")), measured[-1])
    values = {name.removeprefix("valid_"): value for name, value in best.items() if name.startswith("valid_")}
    return {"step": best["step"], **{name: value for name, value in values.items() if value is not None}}


def _curve(lines: Sequence[dict[str, Any]], unit: str) -> Facts:
    """Learning curves of training and validation; in bits per byte if the loss is the likelihood of the text."""
    valid = [line for line in lines if line.get("valid_loss") is not None]
    train = [line for line in lines if line.get("loss") is not None]
    if len(valid) + len(train) < 2:
        raise ValueError("there is no curve: " + ("the model was measured once" if valid else "nothing was recorded"))
    in_bits = all(line.get("valid_bits_per_byte") is not None for line in valid) and all(
        line.get("bits_per_byte") is not None for line in train
    )
    name = "bits_per_byte" if in_bits else "loss"
    return {
        "unit": "bits per byte" if in_bits else "loss (nats per prediction)",
        "counted": unit,
        "train": [_point(line, unit, line[name]) for line in train],
        "valid": [_point(line, unit, line[f"valid_{name}"]) for line in valid],
    }


def _point(line: dict[str, Any], unit: str, value: float) -> dict[str, float]:
    """A point of a curve; seconds are of training alone."""
    return {"step": line["step"], unit: line[unit], "seconds": training_seconds(line), "value": value}


def _cost(lines: Sequence[dict[str, Any]], unit: str) -> Facts:
    if not lines:
        raise ValueError("the run has no record of its training (metrics.jsonl), so its cost is not known")
    last = lines[-1]
    return {
        "finished": "parameters" in last,
        "steps": last["step"],
        "counted": unit,
        unit: last[unit],
        "flops": last.get("flops"),
        **last["cost"],
    }


def _surprisal(model: LanguageModel, held: Shown, progress: ReportProgress | None) -> Facts:
    """The score on held-out text, as `lmlab score --held-out` and a comparison have it, and a passage of it."""
    if held.pairs:
        return _target_surprisal(model, held.pairs)
    if not any(text.strip() for text in held.texts):
        raise ValueError("there is no text to score")
    part = choose_scored_part(model, make_test_text(held.texts, prompt=None))
    scores = score_units(model, part, progress=progress)
    bits, tokens = sum(scores.measured["bits"]), scores.measured["tokens"]
    size = sum(len(text.encode()) for text in part.texts)
    figures = {
        "bits_per_byte": bits / max(1, size),
        "perplexity": perplexity(bits / tokens * math.log(2)),
        "tokens": tokens,
        "bytes": size,
        "of_bytes": sum(len(text.encode()) for text in held.texts),
        "unknown": scores.unknown,
        "lossy": scores.lossy,
        "pseudo": model.scorer.rule.pseudo,
    }
    return {"figures": figures, "passages": [{"pieces": scores.passage}]}


def _mistakes(run: Path, model: LanguageModel) -> Facts:
    """The confusion matrix and the worst mistakes on held-out pictures, at most `PICTURES` of them."""
    held = find_held_out_pictures(run)
    if held is None:
        raise ValueError("the run has no held-out pictures of its own; score a folder with lmlab evaluate")
    step = max(1, math.ceil(len(held.examples) / PICTURES))
    examples = [held.examples[number] for number in range(0, len(held.examples), step)]
    predictor = model.predictor
    pairs = zip(examples, predictor.predict(examples), strict=True)
    lines = [{**as_dict(example, found), "true": example.label} for example, found in pairs]
    found = predictor.task.show_evidence(lines, predictor.task.config.labels)
    return {
        "split": held.split,
        "count": found.count,
        "wrong": found.wrong,
        "summary": found.summary,
        "confusion": None if found.confusion is None else found.confusion._asdict(),
        "mistakes": [asdict(each) for each in found.mistakes],
    }


def _target_surprisal(model: LanguageModel, pairs: Sequence[tuple[str, str]]) -> Facts:
    """The same of reference translations, each given its source."""
    sources, targets = zip(*pairs[:PAIRS_SCORED], strict=True)
    nats = model.translator.score(sources, targets)
    rows = model.translator.target_rows(targets[:SENTENCES])
    passages = []
    for source, row, surprisals in zip(sources, rows, nats, strict=False):
        pieces = [*map(model.text_tokenizer.show, row[1:-1]), END]
        bits = (surprisals / math.log(2)).tolist()
        passages.append({"source": source, "pieces": list(zip(pieces, bits, strict=True))})
    total, count = sum(float(each.sum()) for each in nats), sum(map(len, nats))
    size = sum(len(text.encode()) for text in targets)
    figures = {
        "bits_per_byte": total / math.log(2) / max(1, size),
        "perplexity": perplexity(total / max(1, count)),
        "tokens": count,
        "bytes": size,
        "of_bytes": sum(len(target.encode()) for _, target in pairs),
        "unknown": 0,
        "lossy": loses_text(model.text_tokenizer, targets),
        "pseudo": False,
    }
    return {"figures": figures, "passages": passages}


def _samples(model: LanguageModel, held: Shown) -> Facts:
    """Samples for held-out text: translations, continuations or fillings, as the model can."""
    if ability(model.model, WritesTarget) is not None:
        return {"translations" if held.pairs else "reconstructions": _translations(model, held)}
    if any(ability(model.model, kind) is not None for kind in (PredictsNext, PredictsBothWays)):
        return {"continuations": _continuations(model, held.texts)}
    if ability(model.model, FillsMasks) is not None:
        return {"masked": _fillings(model, held.texts)}
    raise ValueError("the model neither continues texts, nor predicts masked tokens, nor writes a target")


def _continuations(model: LanguageModel, texts: Sequence[str]) -> list[Facts]:
    """Continuations of the first words of held-out text, or of an empty text if there is none."""
    prompts = list(dict.fromkeys(make_test_text(part, prompt=None).prompt for part in _parts(texts, PROMPTS))) or [""]
    found = []
    for prompt in prompts:
        for temperature in TEMPERATURES:
            text = model.generate(prompt, tokens=_sample_tokens(model, texts), temperature=temperature, seed=0)
            found.append({"prompt": prompt, "temperature": temperature, "text": str(text)})
    return found


def _sample_tokens(model: LanguageModel, texts: Sequence[str]) -> int:
    """About as much text from every tokenizer."""
    if not texts:
        return SAMPLE_BYTES // 4
    cutting = TokenizedText(texts[0][:2000], model.text_tokenizer)
    return max(1, round(SAMPLE_BYTES / (cutting.bytes_per_token or 4)))


def _fillings(model: LanguageModel, texts: Sequence[str]) -> list[Facts]:
    """Sentences with masked words, and what the model puts there."""
    clozes = dict.fromkeys(make_cloze(part) for part in _parts(texts, CLOZES))
    found = [{**cloze._asdict(), **fill_cloze(model, cloze.text)._asdict()} for cloze in clozes if cloze.text]
    if not found:
        raise ValueError("there is no sentence whose words could be masked")
    return found


def _translations(model: LanguageModel, held: Shown) -> list[Facts]:
    """Sources, translations, references, and alignments if the model has attention.

    A model that learnt to repair plain text is given sentences with words left out.
    """
    pairs = held.pairs or [
        (" ".join(cloze.text.replace("[MASK]", " ").split()), _restore(cloze.text, cloze.answers))
        for cloze in dict.fromkeys(make_cloze(part) for part in _parts(held.texts, SENTENCES))
        if cloze.text
    ]
    if not pairs:
        raise ValueError("there is no sentence to write from")
    pairs = [pair for pair in pairs if 0 < len(pair[0].strip()) <= SOURCE_LETTERS][:SENTENCES] or list(pairs[:1])
    sources = [source for source, _ in pairs]
    written = [each[0] if each else None for each in model.translator.translate(sources)]
    found: list[Facts] = []
    for (source, reference), translation in zip(pairs, written, strict=True):
        fact: Facts = {"source": source, "text": translation.text if translation else "", "reference": reference}
        if translation is not None and len(translation.tokens) <= TARGET_TOKENS:
            with suppress(ValueError):  # a decoder without attention aligns nothing
                fact["alignment"] = model.alignments(source, [translation])[0]._asdict()
        found.append(fact)
    return found


def _restore(text: str, answers: Sequence[str]) -> str:
    for answer in answers:
        text = text.replace("[MASK]", answer, 1)
    return text


def _parts(texts: Sequence[str], count: int) -> list[list[str]]:
    """Documents in `count` groups; if there are fewer documents, parts of whole lines."""
    if len(texts) >= count:
        return [list(texts[number::count]) for number in range(count)]
    whole = "\n".join(texts)
    size = len(whole) // count + 1
    stretches = [whole[start : start + size] for start in range(0, len(whole), size)]
    return [
        [stretch if not number else stretch.partition("\n")[2] or stretch] for number, stretch in enumerate(stretches)
    ]


def _tokenizer(model: LanguageModel, held: Shown) -> Facts:
    """The tokenizer, and how it splits held-out text."""
    tokenizer = model.text_tokenizer
    facts: Facts = {"spec": tokenizer.spec, "vocabulary": tokenizer.vocabulary}
    if model.source_tokenizer is not None:
        facts["source"] = {"spec": model.source_tokenizer.spec, "vocabulary": model.source_tokenizer.vocabulary}
    text = "\n".join(held.texts or [target for _, target in held.pairs])[:CHARACTERS_READ]
    facts["lossy"] = loses_text(tokenizer, [text]) if text else tokenizer.lossy
    if text.strip():
        cutting = TokenizedText(text, tokenizer)
        unknown = [cutting.is_unknown(token) for token in cutting.tokens[:PIECES]]
        shown = [token.piece for token in cutting.tokens[:PIECES]]
        facts |= {
            "bytes_per_token": cutting.bytes_per_token,
            "tokens_per_word": cutting.tokens_per_word,
            "unknown_share": cutting.unknown / max(1, len(cutting.ids)),
            "pieces": list(zip(shown, unknown, strict=True)),
        }
    return facts


def _changes(run: Path) -> list[Facts]:
    """The settings that were changed during training, with their steps."""
    if not (run / "recipe.json").is_file():
        raise ValueError("the run was imported, so how it was trained is not known")
    recipe = read_json(run / "recipe.json")
    return [each for each in recipe.get("changes") or [] if isinstance(each, dict)]


def _settings(run: Path) -> dict[str, dict[str, Any]]:
    """All settings in groups; texts by the names that the user gave, without their folders."""
    if not (run / "recipe.json").is_file():
        return {"model": dict(read_json(run / "config.json")["model"])}
    recipe = read_record(run).recipe
    data = {name: value for name, value in recipe.data.model_dump().items() if name not in (*PATHS, "given")}
    return {
        "data": {"text": ", ".join(Path(name).name or name for name in recipe.data.named), **data},
        "tokenizer": recipe.tokenizer.model_dump(),
        "model": dict(read_json(run / "config.json")["model"]),
        "objective": dict(recipe.objective),
        "train": recipe.train.model_dump(),
    }
