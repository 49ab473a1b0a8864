"""The model card of a run, with its price tag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmlab.models import find
from lmlab.training.costs import GRAMS_PER_KWH, Cost
from lmlab.training.loop import Progress

if TYPE_CHECKING:
    from lmlab.data.corpus import Corpus
    from lmlab.recipe import Recipe


def model_card(recipe: Recipe, corpus: Corpus, progress: Progress, *, parameters: int, bits: float | None) -> str:
    """What this model is, how well it does and what it cost, in Markdown."""
    system = find(recipe.kind)
    cost = Cost(*progress.cost)
    settings = "\n".join(f"| {name} | {value} |" for name, value in recipe.model.items())
    ended = {"budget": "the budget was spent", "early": "validation stood still"}.get(progress.ended, "interrupted")
    quality = f"{bits:.4f} bits per byte" if bits is not None else "no validation text was held out"
    lossy = " (lossy tokenizer: bits per byte flatter it)" if corpus.tokenizer.lossy and bits is not None else ""
    gradients = f"\n| optimizer | {recipe.train.optimizer}, rate {recipe.train.rate:g}, {recipe.train.schedule} |"
    counted = recipe.kind == "ngram"
    how = (
        f"one count of {progress.tokens:,} tokens"
        if counted
        else f"{progress.step:,} steps, {progress.tokens:,} tokens"
    )
    return f"""# {recipe.kind}

{system.summary} ({system.paper}), trained with lmlab.

| | |
|---|---|
| validation | {quality}{lossy} |
| parameters | {parameters:,} |
| tokenizer | {corpus.tokenizer.spec}, {corpus.tokenizer.vocabulary:,} types |
| text | {", ".join(recipe.data.text)}: {corpus.train.bytes:,} bytes, {len(corpus.train.tokens):,} tokens for training |
| training | {how}, until {ended} |

## Price tag
| | |
|---|---|
| training FLOPs | {progress.flops:.3g} |
| time | {cost.seconds:,.1f} s ({cost.cpu_seconds:,.1f} CPU s) |
| energy | {cost.joules / 3600:.3g} Wh (method: {progress.energy_method}) |
| CO2e | {cost.grams:.3g} g (at {GRAMS_PER_KWH:g} g/kWh, the world's average of 2024, Ember) |

## Settings
| setting | value |
|---|---|
{settings}
| budget | {recipe.train.budget} |{"" if counted else gradients}
| seed | {recipe.train.seed} |

Use it: `lmlab generate RUN "prompt"`, `lmlab score RUN file.txt`, or in Python `lmlab.load("RUN")`, where RUN is this
folder.
"""
