"""lmlab evaluate: how well a translator translates."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.texts import MOST_TEXTS, OVERWRITE, check_outputs

if TYPE_CHECKING:
    from lmlab.decoding.translation import Translator


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory of a translator.")],
    source: Annotated[Path | None, typer.Option(help="Source sentences, one per line.")] = None,
    target: Annotated[Path | None, typer.Option(help="Their reference translations, line by line.")] = None,
    beams: Annotated[
        int, typer.Option(min=1, max=MOST_TEXTS, help="Beam size: hypotheses kept at each step; 1 is greedy search.")
    ] = 5,
    length_penalty: Annotated[
        float,
        typer.Option(help="0 ranks by probability, which favours short texts; 0.6 to 1 evens that out (Wu 2016)."),
    ] = 0.6,
    no_repeat: Annotated[int, typer.Option(min=0, help="Never repeat an n-gram of N tokens; 0 allows it.")] = 0,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case (lower and upper letters).")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the translations to this file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Batch size in sentences; changes only the speed.")] = 32,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Translate a test set and measure BLEU, chrF and loss.

    It also counts exact matches with the reference.

    Example:

      lmlab evaluate runs/en-de --source test.en --target test.de --beams 5

    BLEU and chrF are those of sacrebleu, with its signature; quote both. They need: pip install 'lmlab\\[eval]'
    """
    from lmlab.cli.bars import counting
    from lmlab.language_model import load
    from lmlab.metrics.bleu import translation_metrics
    from lmlab.training.loop import choose_device

    check_outputs({"-o": output}, inputs=[run, source, target], overwrite=overwrite)
    metrics = translation_metrics(lowercase=lowercase)
    model = load(run, device=choose_device(device))
    translator = model.translator
    if source is None or target is None:
        raise ValueError("there is nothing to translate: give --source FILE and --target FILE")
    sources, references = _read(source, target)
    values = _loss(translator, sources, references, batch)
    begin = time.perf_counter()
    with counting("translating") as progress:
        found = model.translate(
            sources,
            beams=beams,
            length_penalty=length_penalty,
            no_repeat=no_repeat,
            longest=None,
            batch=batch,
            progress=progress,
        )
    seconds = time.perf_counter() - begin
    if output is not None:
        output.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        print(f"wrote {output}", file=sys.stderr)
    fold = str.casefold if lowercase else str
    same = sum(fold(a) == fold(b) for a, b in zip(found, references, strict=True))
    for name, metric in metrics.items():
        values[name] = metric.corpus_score(list(found), [references]).score
        values[f"{name}_signature"] = str(metric.get_signature())
    values |= {"exact_match": same / len(references), "sentences": len(references), "seconds": seconds}
    values |= {"beams": beams, "length_penalty": length_penalty}
    _print(values, json_=json_)


def _read(source: Path, target: Path) -> tuple[list[str], list[str]]:
    from lmlab.data.reading.pairs import Aligned, read_pairs
    from lmlab.data.reading.text import Source

    for path in (source, target):
        if not path.is_file():
            raise ValueError(f"{path} does not exist, or is no file")
    pairs = list(read_pairs(Aligned(Source(str(source), source), Source(str(target), target))))
    if not any(map(any, pairs)):
        raise ValueError(f"{source} and {target} are empty: there is nothing to evaluate")
    sources, references = zip(*pairs, strict=True)
    return list(sources), list(references)


def _loss(translator: Translator, sources: list[str], references: list[str], batch: int) -> dict[str, Any]:
    import math

    from lmlab.cli.bars import counting

    with counting("scoring") as progress:
        nats = translator.score(sources, references, batch=batch, progress=progress)
    total, count = float(sum(part.sum() for part in nats)), sum(map(len, nats))
    return {"loss": total / count, "perplexity": math.exp(min(700.0, total / count)), "target_tokens": count}


def _print(values: dict[str, Any], *, json_: bool) -> None:
    if json_:
        import json

        print(json.dumps(values))
        return
    from rich.console import Console

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
