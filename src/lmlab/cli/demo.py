"""lmlab demo: a few systems on the built-in corpus, with their scores and samples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

SYSTEMS: dict[str, dict[str, Any]] = {
    # what each is given: seconds of training on a laptop; counting takes what it takes
    "ngram": {"budget": "1epochs"},
    "nplm": {"budget": "15s"},
    "lstm": {"budget": "30s"},
    "gpt2": {"budget": "30s"},
}
PROMPT = "Return a new"


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the runs go.")] = Path("runs/demo"),
) -> None:
    """Train a few systems on Python's own documentation, and show their scores and samples (about two minutes)."""
    from rich.console import Console

    from lmlab import run
    from lmlab.cli.progress import TrainingDisplay
    from lmlab.recipe import make_recipe

    console = Console(highlight=False)
    console.print(
        "Text: the documentation inside your own Python. Tokenizer: bpe:2048, the same for all.\n"
        "Each system learns to predict the next token; the score is bits per byte of held-out text: lower is better.\n"
    )
    for name, settings in SYSTEMS.items():
        values = {
            "data": {"text": "builtin"},
            "tokenizer": {"spec": "bpe:2048"},
            "model": {"kind": name},
            "train": {**settings, "evaluations": 3},
        }
        with TrainingDisplay() as display:
            run.start(make_recipe(values), output / name, overwrite=True, reporter=display)
    console.print(_results(output))
    console.print(
        f'\nNext:  lmlab generate {output}/gpt2 "{PROMPT}"    lmlab score {output}/lstm FILE --tokens\n'
        "       lmlab train gpt2 YOUR_TEXT -o runs/mine --budget 10min      lmlab list"
    )


def _results(output: Path) -> Any:
    """Score every run on the test text, exactly, and let each go on from the same words."""
    from rich.table import Table

    from lmlab import load
    from lmlab.checkpoint import read_json
    from lmlab.models import find
    from lmlab.run import held_out

    rows = []
    for name in SYSTEMS:
        lm = load(output / name)
        score = lm.score(held_out(output / name))
        steps = read_json(output / name / "recipe.json")["train"]["budget"]
        sample = lm.generate(PROMPT, tokens=30, temperature=0.7, top_p=0.95, seed=1)
        rows.append((score.bits_per_byte, name, steps, " ".join((PROMPT + str(sample)).split())))
    table = Table(
        "system", "what it is", "budget", "bits/byte", f'goes on from "{PROMPT}"',
        title="Held-out text, best first", show_lines=True,
    )  # fmt: skip
    for bits, name, steps, sample in sorted(rows):
        table.add_row(f"[bold]{name}[/bold]", find(name).summary, steps, f"[bold]{bits:.3f}[/bold]", sample)
    return table
