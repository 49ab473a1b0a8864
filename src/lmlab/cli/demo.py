"""lmlab demo: eight language models, compared on the built-in corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MODELS = "ngram,bow,nplm,rnn,lstm,attention-lm,gpt2,transformer-xl"
TOKENIZER = "bpe:2048"
PROMPT = "Return a new"
LONGER = "5min"


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the comparison.")] = Path("runs/demo"),
    budget: Annotated[str, typer.Option(help="Training budget of each model.")] = "15s",
) -> None:
    """Train and compare eight models in about three minutes.

    They read Python's own documentation, and each is trained for fifteen seconds.
    """
    from rich.markup import escape

    from lmlab.cli.compare import watch
    from lmlab.cli.console import Console
    from lmlab.comparison.compare import compare as compare_models

    console = Console(highlight=False)
    console.print(
        "Eight language models, from counting (1998) to Transformers (2019), read the documentation in your Python.\n"
        f"Each learns for [bold]{escape(budget)}[/bold] to predict the next piece of text. Then all have to predict\n"
        "text that none has seen: the fewer bits per byte one needs, the better it knows what comes next.\n"
    )
    watch(
        lambda **watching: compare_models(
            "builtin",
            output=output,
            models=MODELS,
            budget=budget,
            tokenizer=TOKENIZER,
            size="tiny",
            prompt=PROMPT,
            split=[0.94, 0.03, 0.03],
            settings={"train.evaluations": 8, "train.evaluation_tokens": 8192},
            overwrite=True,
            **watching,
        ),
        output,
    )
    longer = f"lmlab compare builtin --models {MODELS} --tokenizer {TOKENIZER} --budget {LONGER} -o runs/longer"
    console.print(
        f"\nThis is little time for a network. Let each have {LONGER}, and see the ranking change:\n"
        f"  [bold]{longer}[/bold]\n"
        "On your own text:  lmlab compare YOUR_TEXT --models all -o runs/mine\n"
        f'Let one write:     lmlab generate {output}/lstm "{PROMPT}"\n'
        f"Look at them all:  lmlab studio {output}",
        soft_wrap=True,
    )
