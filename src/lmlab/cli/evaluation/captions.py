"""The scores of a captioner on pictures with captions, for lmlab evaluate."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from lmlab.messages import printable


def evaluate_captions(
    run: Path,
    data: str | None,
    *,
    columns: str | None,
    beams: int,
    limit: int | None,
    output: Path | None,
    json_: bool,
    device: str,
) -> None:
    """Print exact match and BLEU with their 95% intervals; write the captions, if asked for."""
    from lmlab.cli.console import Console, progress_bar
    from lmlab.data.readers.labelled.columns import parse_columns
    from lmlab.language_model import load
    from lmlab.training.devices import choose_device
    from lmlab.transfer.evaluation import open_picture_texts

    captioner = load(run, device=choose_device(device)).captioner
    found = open_picture_texts(
        run, data, processor=captioner.processor, columns=parse_columns(columns) if columns else None
    )
    split = found.split
    if "caption" not in split.fields:
        raise ValueError(f"{data or run} has no captions: name their column, --columns caption=NAME")
    references = dict(islice(split.captions().items(), limit))
    begin = time.perf_counter()
    with progress_bar("captioning") as progress:
        captions = captioner.caption([split.pixels[each] for each in references], beams=beams, progress=progress)
    said = [each[0].text if each else "" for each in captions]
    values = score_captions(said, list(references.values()))
    values |= {"pictures": len(said), "captions": split.size, "split": found.name, "beams": beams}
    values["seconds"] = time.perf_counter() - begin
    if output is not None:
        names = dict(zip(split.pictures.tolist(), split.names, strict=True))
        rows = (f"{names[picture]}\t{text}\n" for picture, text in zip(references, said, strict=True))
        output.write_text("picture\tcaption\n" + "".join(rows), encoding="utf-8")
        print(printable(f"wrote {output}"), file=sys.stderr)
    if json_:
        print(json.dumps(values))
        return
    console = Console(highlight=False, soft_wrap=True)
    low, high = values["intervals"]["exact_match"]
    interval = "" if low is None else f"   95% interval {low:.1%} to {high:.1%}"
    console.print(f"[bold]{values['exact_match']:.1%}[/bold] of the captions equal a reference{interval}")
    if values["bleu"] is not None:
        low, high = values["intervals"]["bleu"]
        interval = "" if low is None else f"   95% interval {low:.1f} to {high:.1f}"
        console.print(f"[bold]{values['bleu']:.2f}[/bold] BLEU{interval}   {values['bleu_signature']}", markup=True)
    part = "" if found.name is None else f" ({found.name})"
    source = data or f"{run}'s own data"
    console.print(f"{len(said):,} pictures of {source}{part}: {values['seconds']:.1f} s", markup=False)


def score_captions(said: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Exact match and BLEU with their intervals; BLEU is None where sacrebleu is not installed."""
    from lmlab.metrics.captions import CaptionBleu, ExactCaption
    from lmlab.metrics.statistics import estimate

    values: dict[str, Any] = {"intervals": {}, "bleu": None}
    metrics: list[ExactCaption | CaptionBleu] = [ExactCaption()]
    try:
        metrics.append(CaptionBleu())
    except ValueError as missing:
        values["notes"] = [str(missing)]
    for metric in metrics:
        values[metric.name], low, high = estimate(metric, said, references)[:3]
        values["intervals"][metric.name] = [low, high]
        if isinstance(metric, CaptionBleu):
            values["bleu_signature"] = metric.signature
    return values
