"""Options that several commands share, so that a word means the same everywhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

MOST_TEXTS = 10_000
"""Texts generated or searched at once, at most: each needs memory."""

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
NeuralRun = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of a neural model.")]

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Weights = Annotated[str, typer.Option(help="Precision of the weights: fp32, bf16 or int8 (CPU).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
OverwriteRun = Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")]
OutputRun = Annotated[Path | None, typer.Option("-o", "--output", help="Run directory to create.")]
OutputAnalysis = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write a file: .html, .png, .json or .csv.")
]
OutputFile = Annotated[Path | None, typer.Option("-o", "--output", help="File to write. (default: the screen)")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume an interrupted run from its last checkpoint.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="GROUP.KEY=VALUE", help="Change one setting; repeatable.")
]

Processes = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Train in N processes.", rich_help_panel="Several processes"),
]
Parallel = Annotated[
    str,
    typer.Option(help="ddp, or fsdp: divide the weights, too.", rich_help_panel="Several processes"),
]

Batch = Annotated[int, typer.Option(min=1, help="Batch size; affects only speed.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Maximum number of items to read.")]
Top = Annotated[int, typer.Option(min=1, help="Number of results to show.")]
Text = Annotated[list[str] | None, typer.Option(help="Text to read, instead of FILE; repeatable.")]
TrainingText = Annotated[
    list[str] | None, typer.Option("--training-text", metavar="FILE", help="Text to train on; repeatable.")
]
Mix = Annotated[list[Path] | None, typer.Option("--mix", metavar="RUN", help="Average with this run; repeatable.")]
Versus = Annotated[Path | None, typer.Option("--versus", metavar="RUN", help="Compare with this run.")]
ByToken = Annotated[bool, typer.Option("--by-token", help="Show the surprisal of each token, in bits.")]
NoControls = Annotated[bool, typer.Option("--no-controls", help="Leave out the baselines and controls.")]
Boundary = Annotated[
    bool | None,
    typer.Option("--boundary/--no-boundary", help="Read the boundary token before a text. (default: as trained)"),
]

Temperature = Annotated[float, typer.Option(help="Sampling temperature; 0 takes the most probable token.")]
TopK = Annotated[int | None, typer.Option(help="Sample from the k most probable tokens.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus sampling: smallest set with probability p.")]
MinP = Annotated[float | None, typer.Option(help="Minimum probability, relative to the best token.")]
SamplingSeed = Annotated[int, typer.Option(help="Random seed.")]
Beams = Annotated[int, typer.Option(min=1, max=MOST_TEXTS, help="Beam size; 1 is greedy search.")]
LengthPenalty = Annotated[float, typer.Option(help="0 ranks by probability; 0.6 to 1 favours longer texts.")]
NoRepeat = Annotated[int, typer.Option(min=0, metavar="N", help="Never repeat an n-gram of N tokens; 0: off.")]
Trace = Annotated[str | None, typer.Option(metavar="OUT", help="Write the search tree: .html, .json, or - for screen.")]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut lines that are too long.")]

Size = Annotated[str | None, typer.Option(help="Preset: tiny, small … (see: lmlab list MODEL).")]
Country = Annotated[str | None, typer.Option(help="Country of the electricity: SE, DE … (default: world)")]
Split = Annotated[str | None, typer.Option(help="Fractions of train, valid and test. (default: 0.9,0.05,0.05)")]
Documents = Annotated[
    str | None, typer.Option(help="Document separator: file, lines, blank or endoftext. (default: file)")
]
Valid = Annotated[list[str] | None, typer.Option(metavar="FILE", help="Text for validation. (default: part of TEXT)")]
Test = Annotated[list[str] | None, typer.Option(metavar="FILE", help="Text for testing. (default: part of TEXT)")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of random seeds to repeat with.")]
Columns = Annotated[str | None, typer.Option(help="Columns by name or number: a=review,label=stars.")]
Templates = Annotated[
    list[str] | None, typer.Option("--template", help='Text around a label: "a picture of a {}"; repeatable.')
]
Epochs = Annotated[float | None, typer.Option(min=0.01, help="Passes over the examples. (default: 3; frozen: 20)")]
Leaks = Annotated[str, typer.Option(help="Test examples also in training: keep, train or test.")]
DropBadLabels = Annotated[bool, typer.Option("--drop-bad-labels", help="Skip rows whose score is not a number.")]

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")]
AllowHost = Annotated[list[str] | None, typer.Option(help="Further host name of this server; repeatable.")]
Token = Annotated[str | None, typer.Option(hidden=True)]
"""Deprecated, since `ps` shows it: LMLAB_TOKEN and --token-file replace it."""


def parse_fractions(text: str | None) -> list[float] | None:
    """The numbers of --split."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--split {text}: give numbers with commas between them, for instance 0.9,0.05,0.05") from None


def split_commas(option: str, text: str, *, example: str) -> list[str]:
    """The parts of a value between commas; a ValueError where there is none."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"{option} {text}: give names with commas between them, for instance {option} {example}")
    return parts


def run_in_processes(processes: int | None, *, reads: Iterable[str] = ()) -> None:
    """Start this command in several processes and end with them; nothing if one is wanted, or they are these."""
    if processes is None or processes == 1 or "TORCHELASTIC_RUN_ID" in os.environ:
        return
    if "-" in reads:
        raise ValueError("several processes cannot share standard input: save it to a file, and name that")
    from lmlab.cli import errors
    from lmlab.training.distributed.launching import launch

    if errors.debugging.get():
        os.environ["LMLAB_DEBUG"] = "1"
    ended = launch([word for word in sys.argv[1:] if word != "--debug"], processes=processes)
    if ended.message:
        print(f"error: {ended.message}", file=sys.stderr)
    raise SystemExit(ended.status)
