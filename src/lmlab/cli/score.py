"""lmlab score: how well a model predicts a text, exactly."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from lmlab.decoding.scoring import Score
    from lmlab.language_model import LanguageModel
    from lmlab.progress import ReportProgress

HEAT = ("green", "cyan", "yellow", "magenta", "red")
"""Backgrounds for surprisals below 1, 3, 6 and 10 bits, and above: colours that every terminal has."""
BOUNDS = (1.0, 3.0, 6.0, 10.0)


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files, folders, globs, .gz, or '-' for standard input."),
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="Score this text (may be given several times).")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show each token with its surprisal in bits.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
    mix: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN[=WEIGHT]",
            help="Mix in another model with the same tokenizer, with this weight; without any, all count the same.",
        ),
    ] = None,
    learn_weights: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Learn the weights of --mix on this held-out text, in place of giving them."),
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(
            help="What one document is: file, lines, blank or endoftext; as the run was trained, if not given."
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Texts scored side by side; changes speed, not the result.")] = 16,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    country: Annotated[
        str | None,
        typer.Option(help="Whose electricity, for CO2e: SE, DE, US …; LMLAB_COUNTRY or the world's, if not given."),
    ] = None,
) -> None:
    """Measure bits per byte and perplexity on texts.

    Perplexity is given per token and per word; lower is better. Every token counts, the first too, each predicted from
    all that the model can see before it in its document. A model that fills blanks (bert …) guesses each token from all
    others instead: its pseudo-log-likelihood.

    Examples:

      lmlab score runs/book test.txt

      lmlab score runs/book --text "The cat sat on the mat." --tokens

      lmlab score runs/nplm test.txt --mix runs/trigram --learn-weights valid.txt

    Bits per byte compare any two models on the same text, perplexity per token only models with the same tokenizer.
    """
    from lmlab.cli.bars import counting
    from lmlab.cli.texts import documents_of, read_documents
    from lmlab.costs.countries import find_grid
    from lmlab.language_model import load
    from lmlab.training.costs import Meter
    from lmlab.training.loop import choose_device

    place, grid = choose_device(device), find_grid(country)
    how = documents or documents_of(run)
    texts = [*(text or []), *(read_documents(files, documents=how) if files else [])]
    if not texts:
        raise ValueError("nothing to score: give FILE (or - for standard input), or --text TEXT")
    with counting("scoring") as progress:
        model = load(run, device=place)
        if mix:
            others, given = zip(*map(_run_and_weight, mix), strict=True)
            parts = [load(other, device=place) for other in others]
            held_out = read_documents(learn_weights, documents=how) if learn_weights else None
            model = _mixture(model, parts, list(given), held_out, batch, progress)
        elif learn_weights:
            raise ValueError("--learn-weights learns the weights of a mixture: give --mix RUN too")
        meter = Meter(place)
        result = model.score(texts, batch=batch, progress=progress)
        cost = meter.lap().as_dict(method=meter.method, grid=grid)
    weights = getattr(model.model, "weights", None)
    if json_:
        _print_json(result, cost, tokens=tokens, weights=weights, documents=how)
    else:
        _print(result, model, cost, tokens=tokens, weights=weights)


def _run_and_weight(given: str) -> tuple[str, float | None]:
    """RUN=WEIGHT in two; a directory whose name has an equals sign needs no weight to be found."""
    path, equals, weight = given.rpartition("=")
    if not equals or Path(given).is_dir():
        return given, None
    try:
        return path, float(weight)
    except ValueError:
        raise ValueError(f"--mix {given}: {weight!r} is no weight; write --mix RUN=0.5") from None


def _mixture(
    model: LanguageModel,
    others: list[LanguageModel],
    given: list[float | None],
    held_out: list[str] | None,
    batch: int,
    progress: ReportProgress,
) -> LanguageModel:
    """The models mixed with the given weights, with learnt ones, or with equal ones."""
    weights = [weight for weight in given if weight is not None]
    if held_out:
        if weights:
            raise ValueError("--learn-weights learns all weights: give --mix without =WEIGHT")
        return model.mix(others, weights=model.mix(others).learn_mixture(held_out, batch=batch, progress=progress))
    if not weights:
        return model.mix(others)
    if len(weights) < len(given):
        raise ValueError("some --mix have a weight and some do not: give each one, or none for equal weights")
    if min(weights) < 0 or sum(weights) > 1:
        raise ValueError(f"--mix weights {weights}: none may be negative, and together at most 1 (RUN has the rest)")
    return model.mix(others, weights=[1 - sum(weights), *weights])


def _print_json(
    result: Score, cost: dict[str, Any], *, tokens: bool, weights: list[float] | None, documents: str
) -> None:
    import json
    import math

    values: dict[str, object] = {**result.as_dict(), "documents": documents, "cost": cost}
    if weights is not None:
        values["weights"] = weights
    if tokens:
        values["surprisals"] = [
            {"token": token, "bits": bits if math.isfinite(bits) else None} for token, bits in result.surprisals
        ]
    print(json.dumps(values, ensure_ascii=False))


def _print(
    result: Score, model: LanguageModel, cost: dict[str, Any], *, tokens: bool, weights: list[float] | None
) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    totals = console
    if tokens and console.is_terminal:
        _print_heat(console, result, spaced=model.tokenizer.lossy)
    elif tokens:
        sys.stdout.writelines(f"{token}\t{bits:.4f}\n" for token, bits in result.surprisals)
        totals = Console(highlight=False, soft_wrap=True, stderr=True)
    pseudo = "pseudo-" if result.pseudo else ""
    totals.print(
        f"[bold]{result.bits_per_byte:.4f}[/bold] {pseudo}bits per byte\n"
        f"[bold]{_readable(result.perplexity)}[/bold] {pseudo}perplexity per token, "
        f"[bold]{_readable(result.word_perplexity)}[/bold] per word\n"
        f"{result.nats:,.1f} nats over {result.tokens:,} tokens, {result.words:,} words, {result.bytes:,} bytes\n"
        f"{cost['seconds']:.2f} s, {cost['joules']:.3g} J ({cost['energy_method']}), {cost['grams']:.2g} g CO2e "
        f"({cost['country']})"
    )
    if weights is not None:
        totals.print(f"mixture weights: {', '.join(f'{weight:.4f}' for weight in weights)} (RUN first)")
    if result.pseudo:
        totals.print(
            "note: this is the pseudo-log-likelihood, each token guessed from all others (Salazar et al. 2020): "
            "not comparable with left-to-right scores, only with those of other models that fill blanks."
        )
    if result.lossy:
        share = f" {result.unknown:,} of {result.tokens:,} tokens are unknown." if result.unknown else ""
        totals.print(
            f"note: the tokenizer ({model.tokenizer.spec}) loses part of the text, so bits per byte flatter the model: "
            f"compare it only with models of the same tokenizer.{share}"
        )


def _readable(value: float) -> str:
    return f"{value:,.2f}" if value < 1e6 else f"{value:.3g}"


def _print_heat(console: Console, result: Score, *, spaced: bool) -> None:
    """The text with each token on a background that shows its surprisal."""
    from rich.text import Text

    legend = Text("bits: ")
    for name, colour in zip((*(f"below {bound:g}" for bound in BOUNDS), "more"), HEAT, strict=True):
        legend.append(f" {name} ", style=f"black on {colour}")
    console.print(legend)
    line = Text()
    for token, bits in result.surprisals:
        line.append(token, style=f"black on {HEAT[sum(bits >= bound for bound in BOUNDS)]}")
        if token.endswith(("\\n", "<eos>")):
            console.print(line)
            line = Text()
        elif spaced:
            line.append(" ")
    console.print(line)
