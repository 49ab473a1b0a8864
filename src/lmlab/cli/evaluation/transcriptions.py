"""The error rates of a speech recognizer on a table of clips, for lmlab evaluate."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from lmlab.messages import printable


def evaluate_speech(
    run: Path,
    data: str | None,
    *,
    beams: int,
    limit: int | None,
    output: Path | None,
    json_: bool,
    device: str,
) -> None:
    """Print word and character error rates with their 95% intervals; write the transcripts, if asked for."""
    from lmlab.cli.console import Console, progress_bar
    from lmlab.data.readers.clips import read_clips
    from lmlab.language_model import load
    from lmlab.runs.held_out import find_held_out_clips
    from lmlab.training.devices import choose_device

    transcriber = load(run, device=choose_device(device)).transcriber
    clips = (find_held_out_clips(run) if data is None else read_clips(data))[:limit]
    if not clips:
        raise ValueError(f"{data} has no clips: give a table with a path and a text a row")
    said, seconds = [], 0.0
    begin = time.perf_counter()
    with progress_bar("transcribing") as progress:
        for number, clip in enumerate(clips, start=1):
            found = transcriber.transcribe(clip.read(), beams=beams)
            said.append(found.text)
            seconds += found.seconds
            if progress is not None:
                progress(number, len(clips))
    took = time.perf_counter() - begin
    values = error_rates(said, [clip.text for clip in clips])
    values |= {"clips": len(clips), "seconds_of_sound": seconds, "seconds": took, "beams": beams}
    if output is not None:
        rows = (f"{clip.name}\t{text}\n" for clip, text in zip(clips, said, strict=True))
        output.write_text("path\ttext\n" + "".join(rows), encoding="utf-8")
        print(printable(f"wrote {output}"), file=sys.stderr)
    if json_:
        print(json.dumps(values))
        return
    console = Console(highlight=False, soft_wrap=True)
    for name in ("word_error_rate", "character_error_rate"):
        low, high = values["intervals"][name]
        interval = "" if low is None else f"   95% interval {low:.1%} to {high:.1%}"
        console.print(f"[bold]{values[name]:.1%}[/bold] {name.replace('_', ' ')}{interval}")
    console.print(
        f"{values['exact_word_error_rate']:.1%} word error rate with case and punctuation\n"
        f"{len(clips):,} clips, {seconds / 60:.1f} minutes of sound: {took:.1f} s"
    )


def error_rates(said: list[str], true: list[str]) -> dict[str, Any]:
    """Error rates of normalised texts with their intervals, and of texts as they are."""
    from lmlab.metrics.statistics import estimate
    from lmlab.metrics.transcription import CharacterErrorRate, WordErrorRate, normalise

    plain, reference = [normalise(text) for text in said], [normalise(text) for text in true]
    values: dict[str, Any] = {"intervals": {}}
    for metric in (WordErrorRate(), CharacterErrorRate()):
        values[metric.name], low, high = estimate(metric, plain, reference)[:3]
        values["intervals"][metric.name] = [low, high]
        values[f"exact_{metric.name}"] = metric.score(said, true)
    return values
