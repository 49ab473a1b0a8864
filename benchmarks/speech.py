"""Whisper from scratch on 25 minutes of one voice, the control without sound, and published weights beside it.

    python benchmarks/speech.py FOLDER                      # trains, or resumes, and prints the error rates
    python benchmarks/speech.py FOLDER --published RUN      # and those of a converted model on the same clips

The data are 568 telephone prompts (`asterisk_speech` in LMLAB_DATA). 80% of the texts are for training, 5% for
validation and 15% for testing; equal texts stay together. Texts are compared in lower case without punctuation; the
search has 5 beams. The control (objective.silent) learns the same texts from silence: what it gets right is not heard.
One seed: differences between seeds are not part of the intervals, which are over clips.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lmlab
from lmlab.cli.evaluation.transcriptions import error_rates
from lmlab.data.corpora.recordings import SpeechConfig, split_clips
from lmlab.data.readers.clips import SpeechClip
from study import need

DATA = Path(os.environ["LMLAB_DATA"])  # set by study where it is not
SPLIT = [0.8, 0.05, 0.15]
RUNS: dict[str, dict[str, Any]] = {
    "from scratch": {
        "budget": "5000steps",
        "settings": {"objective.ctc": 2.0, "objective.token_noise": 0.4, "train.warmup": 300},
    },
    "without sound": {"budget": "300steps", "settings": {"objective.silent": True, "objective.ctc": 0}},
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--budget", help="of the run from scratch, such as 2000steps")
    arguments.add_argument("--published", type=Path, help="run directory of converted weights")
    arguments.add_argument("--clips", type=int, help="score this many test clips only")
    given = arguments.parse_args()
    need("asterisk_speech")
    table = DATA / "asterisk_speech" / "clips.tsv"
    clips = split_clips(SpeechConfig(speech=[str(table)], split=SPLIT))["test"][: given.clips]
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, case in RUNS.items():
        path = given.folder / name.replace(" ", "-")
        longer = given.budget if name == "from scratch" else None
        train(path, table, budget=longer or case["budget"], settings=case["settings"])
        print_curve(path)
        print_rates(name, path, clips)
    if given.published is not None:
        print_rates("published", given.published, clips)


def train(path: Path, table: Path, *, budget: str, settings: dict[str, Any]) -> None:
    """Train a run, resume one that was interrupted, or leave one that is complete."""
    if (path / "README.md").is_file():
        return
    if (path / "recipe.json").is_file():
        from lmlab.runs.run import resume

        resume(path)
        return
    values = {"data.split": SPLIT, "train.log_every": 50, "train.evaluations": 20, **settings}
    lmlab.train("whisper", table, output=path, budget=budget, settings=values)


def print_curve(path: Path) -> None:
    """The validation loss in nats per byte, by step."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    points = [f"{line['step']}: {line['valid_nats']:.2f}" for line in lines if "valid_nats" in line]
    print(f"{path.name}: validation nats per byte by step: {', '.join(points)}", flush=True)


def print_rates(name: str, run: Path, clips: Sequence[SpeechClip]) -> None:
    """Word and character error rate on the test clips, with intervals, and some transcripts."""
    transcriber = lmlab.load(run).transcriber
    said = [transcriber.transcribe(clip.read(), beams=5).text for clip in clips]
    values = error_rates(said, [clip.text for clip in clips])
    for metric in ("word_error_rate", "character_error_rate"):
        low, high = values["intervals"][metric]
        interval = "" if low is None else f" ({low:.1%} to {high:.1%})"
        print(f"{name}: {metric} {values[metric]:.1%}{interval}, {len(clips)} clips", flush=True)
    for clip, text in list(zip(clips, said, strict=True))[:6]:
        print(f"  {clip.text!r} -> {text!r}", flush=True)


if __name__ == "__main__":
    main()
