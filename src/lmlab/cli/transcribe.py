"""lmlab transcribe: the text of recordings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.options import Device, Json, Overwrite, Weights
from lmlab.cli.texts import check_outputs
from lmlab.messages import printable

if TYPE_CHECKING:
    from lmlab.decoding.speech.transcriber import Segment, Transcript


def transcribe(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of a speech recognizer.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Recordings: WAV, or FLAC, OGG and MP3.")],
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Segments with their times.")] = False,
    words: Annotated[bool, typer.Option("--words", help="The time of each word, from cross-attention.")] = False,
    srt: Annotated[bool, typer.Option("--srt", help="Write subtitles in the format SubRip.")] = False,
    language: Annotated[str | None, typer.Option(help="Language code, such as en. (default: detected)")] = None,
    task: Annotated[str, typer.Option(help="transcribe, or translate to English.")] = "transcribe",
    beams: Annotated[int, typer.Option(min=1, max=64, help="Beams of the search; 1 is greedy.")] = 1,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write.")] = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    weights: Weights = "fp32",
) -> None:
    """Write the text of recordings, of any length.

    Examples:

      lmlab transcribe runs/whisper speech.wav

      lmlab transcribe runs/tiny.en talk.flac --timestamps --words

      lmlab transcribe runs/base interview.wav --srt -o interview.srt --language de

    Long recordings are read in windows. Published models write time tokens, and a window begins where the last segment
    ended; other models are given windows that end where it is quiet. Word times come from the cross-attention of the
    model's alignment heads, or of all heads of the upper half of its decoder. FLAC, OGG and MP3 need
    lmlab\\[audio].
    """
    from lmlab.cli.console import progress_bar
    from lmlab.data.readers.sounds import read_sound
    from lmlab.language_model import load
    from lmlab.training.devices import choose_device

    check_outputs({"-o": output}, inputs=[run, *files], overwrite=overwrite)
    if srt and json_:
        raise ValueError("--srt and --json are two formats; give one of them")
    if srt and len(files) > 1:
        raise ValueError(f"--srt with {len(files)} recordings: a subtitle file is of one recording; give one at a time")
    sounds = [read_sound(file) for file in files]
    transcriber = load(run, device=choose_device(device), weights=weights).transcriber
    timed = timestamps or (srt and transcriber.tokens.first_time is not None)
    found: list[Transcript] = []
    for file, sound in zip(files, sounds, strict=True):
        with progress_bar(f"transcribing {printable(file.name)}") as progress:
            found.append(
                transcriber.transcribe(
                    sound,
                    language=language,
                    task=task,
                    timestamps=timed,
                    words=words,
                    beams=beams,
                    progress=progress,
                )
            )
    content = _format(files, found, srt=srt, json_=json_, timed=timestamps or words)
    if output is None:
        sys.stdout.write(content)
    else:
        from lmlab.runs.storage import write_bytes

        write_bytes(output, content.encode())
        print(printable(f"wrote {output}"), file=sys.stderr)


def _format(files: list[Path], found: list[Transcript], *, srt: bool, json_: bool, timed: bool) -> str:
    """The transcripts as text, subtitles or JSON lines."""
    if json_:
        import json

        rows = ({"file": str(file), **_record(each)} for file, each in zip(files, found, strict=True))
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    parts = []
    for file, each in zip(files, found, strict=True):
        name = f"{file}: " if len(files) > 1 and not timed else ""
        head = f"{file}\n" if len(files) > 1 and timed else ""
        if srt:
            parts.append(to_srt(each.segments))
        elif timed:
            parts.append(head + "".join(map(_show, each.segments)))
        else:
            parts.append(f"{name}{each.text}\n")
    return printable("".join(parts))


def _record(each: Transcript) -> dict[str, Any]:
    segments = [{**segment._asdict(), "words": [word._asdict() for word in segment.words]} for segment in each.segments]
    return {"text": each.text, "seconds": each.seconds, "language": each.language, "segments": segments}


def _show(segment: Segment) -> str:
    lines = [f"[{_clock(segment.begin)} --> {_clock(segment.end)}] {segment.text}"]
    lines += [f"  {_clock(word.begin)} {word.text}" for word in segment.words]
    return "".join(f"{line}\n" for line in lines)


def to_srt(segments: list[Segment]) -> str:
    """Segments as numbered subtitles."""
    blocks = (
        f"{number}\n{_clock(each.begin, ',')} --> {_clock(each.end, ',')}\n{each.text}\n"
        for number, each in enumerate(segments, start=1)
    )
    return "\n".join(blocks)


def _clock(seconds: float, point: str = ".") -> str:
    """A time as 00:01:02.500."""
    thousandths = round(1000 * seconds)
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"
