"""lmlab evaluate of a translator."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lmlab.messages import printable

if TYPE_CHECKING:
    from lmlab.decoding.translator import Translator


class Search(NamedTuple):
    """How translations are searched."""

    beams: int
    length_penalty: float
    no_repeat: int
    batch: int


def evaluate_translations(
    run: Path,
    source: Path | None,
    target: Path | None,
    search: Search,
    *,
    lowercase: bool,
    limit: int | None,
    output: Path | None,
    json_: bool,
    device: str,
) -> None:
    """Print BLEU, chrF, exact match and the loss of target tokens, on two files or on the held-out pairs."""
    from lmlab.cli.console import progress_bar
    from lmlab.language_model import load
    from lmlab.metrics.bleu import translation_metrics
    from lmlab.training.devices import choose_device

    metrics = translation_metrics(lowercase=lowercase)
    model = load(run, device=choose_device(device))
    translator = model.translator
    pairs = (_read_held_out(run) if source is None and target is None else _read(source, target))[:limit]
    sources, references = [list(side) for side in zip(*pairs, strict=True)]
    values = _loss(translator, sources, references, search.batch)
    begin = time.perf_counter()
    with progress_bar("translating") as progress:
        found = model.translate(
            sources,
            **search._asdict(),
            longest=None,
            progress=progress,
        )
    seconds = time.perf_counter() - begin
    if output is not None:
        output.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        print(printable(f"wrote {output}"), file=sys.stderr)
    fold = str.casefold if lowercase else str
    same = sum(fold(a) == fold(b) for a, b in zip(found, references, strict=True))
    for name, metric in metrics.items():
        values[name] = metric.corpus_score(list(found), [references]).score
        values[f"{name}_signature"] = str(metric.get_signature())
    values |= {"exact_match": same / len(references), "sentences": len(references), "seconds": seconds}
    values |= {"beams": search.beams, "length_penalty": search.length_penalty}
    _print(values, json_=json_)


def _read(source: Path | None, target: Path | None) -> list[tuple[str, str]]:
    from lmlab.data.readers.pairs import Aligned, read_pairs
    from lmlab.data.readers.text import Source

    if source is None or target is None:
        raise ValueError("there is nothing to translate: give --source FILE and --target FILE")
    for path in (source, target):
        if not path.is_file():
            raise ValueError(f"{path} does not exist, or is not a file")
    pairs = list(read_pairs(Aligned(Source(str(source), source), Source(str(target), target))))
    if not any(map(any, pairs)):
        raise ValueError(f"{source} and {target} are empty: there is nothing to evaluate")
    return pairs


def _read_held_out(run: Path) -> list[tuple[str, str]]:
    """The pairs that a translator held out; a ValueError where it was not trained on pairs."""
    from lmlab.data.corpora.pairs import PairSplit
    from lmlab.runs.held_out import find_held_out_split

    if not (run / "recipe.json").is_file():
        raise ValueError(f"{run} has no recipe.json, so its data are not known: give --source FILE and --target FILE")
    split = find_held_out_split(run).split
    if not isinstance(split, PairSplit):
        raise ValueError(f"{run} was not trained on pairs of texts: give --source FILE and --target FILE")
    return list(split.texts())


def _loss(translator: Translator, sources: list[str], references: list[str], batch: int) -> dict[str, Any]:
    import math

    from lmlab.cli.console import progress_bar

    with progress_bar("scoring") as progress:
        nats = translator.score(sources, references, batch=batch, progress=progress)
    total, count = float(sum(part.sum() for part in nats)), sum(map(len, nats))
    return {"loss": total / count, "perplexity": math.exp(min(700.0, total / count)), "target_tokens": count}


def _print(values: dict[str, Any], *, json_: bool) -> None:
    if json_:
        import json

        print(json.dumps(values))
        return
    from lmlab.cli.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{values['bleu']:.2f}[/bold] BLEU   {values['bleu_signature']}\n"
        f"[bold]{values['chrf']:.2f}[/bold] chrF   {values['chrf_signature']}\n"
        f"[bold]{values['exact_match']:.1%}[/bold] of {values['sentences']:,} sentences are exactly the reference\n"
        f"[bold]{values['loss']:.4f}[/bold] nats per target token, perplexity {values['perplexity']:,.2f} "
        f"({values['target_tokens']:,} tokens)\n"
        f"{values['beams']} beams, length penalty {values['length_penalty']:g}: {values['seconds']:.1f} s, "
        f"{values['sentences'] / values['seconds']:,.1f} sentences/s"
    )
