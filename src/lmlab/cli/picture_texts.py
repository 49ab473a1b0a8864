"""Pictures and texts in one space, for lmlab evaluate, predict and embed."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.messages import printable

if TYPE_CHECKING:
    from lmlab.analysis.pictures.matching import Matcher, Vectors
    from lmlab.data.readers.media import Picture
    from lmlab.data.readers.pictures.sources import PictureRow
    from lmlab.language_model import LanguageModel


def evaluate_matches(
    run: Path,
    data: str | None,
    *,
    columns: str | None,
    templates: list[str] | None,
    limit: int | None,
    json_: bool,
    device: str,
) -> None:
    """Print recall in both directions on captions, and zero-shot accuracy on classes, whichever the data have."""
    from lmlab.analysis.pictures.matching import PLAIN
    from lmlab.cli.console import progress_bar

    matcher = open_matcher(run, device)
    rows, split = find_test_rows(run, data, columns)
    rows = rows[:limit]
    begin = time.perf_counter()
    values: dict[str, Any] = {"intervals": {}, "chance": {}}
    with progress_bar("reading pictures") as progress:
        matcher = replace(matcher, progress=progress)
        if all(row.texts.get("caption") for row in rows):
            values |= recalls(matcher, rows, values)
        if all(row.label for row in rows) and len({row.label for row in rows}) > 1:
            values |= zero_shot(matcher, rows, templates or PLAIN, values)
    if not values["intervals"]:
        raise ValueError(
            f"{data or run} has neither captions nor several classes: give a table with the columns picture and "
            "caption, or a folder with a folder of pictures for each class"
        )
    values |= {"rows": len(rows), "split": split, "seconds": time.perf_counter() - begin}
    print(json.dumps(values) if json_ else printable(format_scores(values, data or f"{run}'s own data")))


def find_test_rows(run: Path, data: str | None, columns: str | None) -> tuple[Sequence[PictureRow], str | None]:
    """The rows to evaluate on, and their split: of the data that a run learnt from (the default), those held out."""
    from lmlab.analysis.pictures.matching import held_out_rows
    from lmlab.data.corpora.pictures.captions import CaptionsConfig
    from lmlab.data.corpora.pictures.images import split_pictures
    from lmlab.data.readers.labelled.columns import split_columns
    from lmlab.data.readers.pictures.files import find_pictures
    from lmlab.data.readers.pictures.sources import PictureFiles
    from lmlab.runs.recipe_record import read_record

    named = None if columns is None else split_columns(columns)
    own = read_record(run).recipe.data if (run / "recipe.json").is_file() else None
    if data is None and not isinstance(own, CaptionsConfig):
        raise ValueError(
            f"on which pictures? {run} does not say what it learnt from: lmlab evaluate {run} captions.tsv"
        )
    is_own = data is None or (
        isinstance(own, CaptionsConfig) and own.captions == CaptionsConfig(captions=[data]).absolute().captions
    )
    if isinstance(own, CaptionsConfig) and is_own and named in (None, own.columns):
        parts, _, _ = split_pictures(own, own.captions, lambda stage, done, total: None)
        files = PictureFiles(train=parts["train"], valid=parts.get("valid"), test=parts.get("test"))
        rows, split = held_out_rows(files)
        if split is None:
            print(f"warning: {run} has learnt from all of {data or 'its own data'}: this is no test", file=sys.stderr)
        return rows, split
    if data is None:
        raise ValueError("--columns names the columns of DATA: name a table, too")
    return held_out_rows(find_pictures(data, columns=named))


def recalls(matcher: Matcher, rows: Sequence[PictureRow], values: dict[str, Any]) -> dict[str, Any]:
    """Recall@k by name; intervals and chance are added to those of `values`."""
    from lmlab.analysis.pictures.matching import match_captions, score_retrieval

    matching, problems = match_captions(matcher, rows)
    _warn(problems)
    found = score_retrieval(matching)
    values["intervals"] |= {name: [each.estimate.low, each.estimate.high] for name, each in found.items()}
    values["chance"] |= {name: each.chance for name, each in found.items()}
    counts = {"pictures": len(set(matching.picture_numbers)), "captions": len(set(matching.caption_numbers))}
    return {**{name: each.estimate.value for name, each in found.items()}, **counts}


def zero_shot(
    matcher: Matcher, rows: Sequence[PictureRow], templates: Sequence[str], values: dict[str, Any]
) -> dict[str, Any]:
    """The accuracy of zero-shot labels beside that of the most frequent class; its interval is added to `values`."""
    from lmlab.analysis.pictures.matching import score_zero_shot, unique_sources

    sources, source_numbers = unique_sources(rows)
    read = matcher.embed_sources(sources)
    _warn(read.problems)
    own = {number: row for row, number in enumerate(read.numbers)}
    kept = [number for number, source in enumerate(source_numbers) if source in own]
    true = [str(rows[number].label) for number in kept]
    labels = sorted(set(true))
    found = matcher.classify(read.vectors[[own[source_numbers[number]] for number in kept]], labels, templates)
    score = score_zero_shot(found, true)
    values["intervals"]["accuracy"] = [score.low, score.high]
    values["chance"]["accuracy"] = 1 / len(labels)
    majority = max(map(true.count, labels)) / len(true)
    return {"accuracy": score.value, "majority": majority, "classes": len(labels), "templates": list(templates)}


def _warn(problems: Sequence[str]) -> None:
    for problem in problems:
        print(printable(f"warning: skipped: {problem}"), file=sys.stderr)


def format_scores(values: dict[str, Any], data: str) -> str:
    """Scores with their intervals and chance, a line each."""
    lines = []
    for name, (low, high) in values["intervals"].items():
        direction, _, k = name.replace("_", " ").partition(" at ")
        words = f"recall@{k}, {direction}" if k else "zero-shot accuracy"
        interval = "" if low is None else f"   95% interval {low:.1%} to {high:.1%}"
        chance = f"   chance {values['chance'][name]:.1%}"
        majority = "" if k else f", most frequent class {values['majority']:.1%}"
        lines.append(f"{values[name]:6.1%} {words:<26}{interval}{chance}{majority}")
    counts = [f"{values[name]:,} {name}" for name in ("pictures", "captions", "classes") if name in values]
    split = f" ({values['split']})" if values["split"] else ""
    read = f"{values['rows']:,} rows of {data}{split}: {values['seconds']:.1f} s"
    return "\n".join([*lines, f"{', '.join(counts)}; {read}"])


def predict_labels(
    run: Path,
    paths: list[str],
    labels: str,
    templates: list[str] | None,
    *,
    top: int,
    json_: bool,
    device: str,
    weights: str = "fp32",
) -> list[str]:
    """A line for each picture: its most probable labels, without training."""
    from lmlab.analysis.pictures.matching import PLAIN, check_labels, read_rows, unique_sources
    from lmlab.cli.console import progress_bar

    if not paths:
        raise ValueError("there is nothing to predict: give the path of a picture, or a folder")
    names = [label.strip() for label in labels.split(",") if label.strip()]
    check_labels(names, templates or PLAIN)
    matcher = open_matcher(run, device, weights)
    sources, _ = unique_sources([row for path in paths for row in read_rows(path)])
    with progress_bar("reading pictures") as progress:
        read = replace(matcher, progress=progress).embed_sources(sources)
    _warn(read.problems)
    found = matcher.classify(read.vectors, names, templates or PLAIN)
    lines = []
    for row, number in enumerate(read.numbers):
        ranked = found.ranked(row)
        if json_:
            record = {"picture": sources[number].name, "value": ranked[0][0], "probabilities": dict(ranked)}
            lines.append(json.dumps(record, ensure_ascii=False))
        else:
            best = "  ".join(f"{label} {probability:.1%}" for label, probability in ranked[:top])
            lines.append(printable(f"{sources[number].name}: {best}"))
    return lines


def embed_both(run: Path, file: str, *, device: str, weights: str = "fp32") -> tuple[list[str], Vectors]:
    """The names and unit vectors of the pictures of a folder, table or zip file, or of the lines of a text."""
    from lmlab.analysis.pictures.matching import read_rows, unique_sources
    from lmlab.cli.console import progress_bar
    from lmlab.cli.texts import read_lines
    from lmlab.data.readers.media import ENDINGS
    from lmlab.data.readers.pictures.files import BUILTIN, TABLES

    matcher = open_matcher(run, device, weights)
    endings = (*ENDINGS["images"], *TABLES, ".zip")
    if not (Path(file).is_dir() or file.lower().endswith(endings) or file.startswith(BUILTIN)):
        texts = read_lines(file)
        if not texts:
            raise ValueError(f"{file}: there is no line to embed")
        return texts, matcher.embed_texts(texts)
    sources, _ = unique_sources(read_rows(file))
    with progress_bar("reading pictures") as progress:
        read = replace(matcher, progress=progress).embed_sources(sources)
    _warn(read.problems)
    return [sources[number].name for number in read.numbers], read.vectors


def names_picture(text: str) -> bool:
    """Whether a text is the name of a picture: of a file, or of a row of test data."""
    from lmlab.data.readers.media import ENDINGS

    return text.lower().endswith(ENDINGS["images"]) or re.fullmatch(r"test:\d+", text) is not None


def shown_picture(model: LanguageModel, run: Path, name: str) -> Picture:
    """The picture that a user names, in the size that a run reads: a file, or test:N of the run's own data."""
    from lmlab.analysis.pictures.text_attention import open_picture
    from lmlab.data.readers.pictures.regions import width_of
    from lmlab.runs.held_out import find_picture
    from lmlab.tokenizers.processors.pictures import PictureProcessor

    found = find_picture(run, name)
    if found.regions is not None or not isinstance(model.processor, PictureProcessor):
        return open_picture(model, found)
    if (width := getattr(model.model.config, "region_width", None)) not in (
        None,
        width_of(None, model.processor.shape),
    ):
        raise ValueError(
            f"{run} reads regions that are vectors of {width} numbers, which {name} has not: name a picture of its own "
            "data, as test:0"
        )
    return found._replace(pixels=model.processor.process(found.pixels))


def open_matcher(run: Path, device: str, weights: str = "fp32") -> Matcher:
    """The role of a run that gives pictures and texts vectors in one space."""
    from lmlab.language_model import load
    from lmlab.training.devices import choose_device

    return load(run, device=choose_device(device), weights=weights).matcher
