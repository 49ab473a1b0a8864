"""lmlab score: how well a model predicts a text, exactly."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.options import Batch, Boundary, ByToken, Country, Device, Json, Run, Text, Weights

if TYPE_CHECKING:
    from lmlab.cli.console import Console
    from lmlab.decoding.scorer import Score
    from lmlab.language_model import LanguageModel
    from lmlab.progress import ReportProgress

    Scores = list[tuple[str, Score]]  # with the name of each text

HEAT = ("green", "cyan", "yellow", "magenta", "red")
"""Backgrounds for surprisals below 1, 3, 6 and 10 bits, and above: colours that every terminal has."""
BOUNDS = (1.0, 3.0, 6.0, 10.0)
LONGEST_NAME = 40
"""Characters of a text that name it in a table."""


def score(
    run: Run,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files, folders, globs, .gz, or '-' for standard input."),
    ] = None,
    text: Text = None,
    held_out: Annotated[bool, typer.Option("--held-out", help="Score the held-out text of the run.")] = False,
    by_token: ByToken = False,
    json_: Json = False,
    mix: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN[=WEIGHT]", help="Average with this run; repeatable. (default: equal weights)"),
    ] = None,
    learn_weights: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Learn the weights of --mix on this text.")
    ] = None,
    documents: Annotated[
        str | None, typer.Option(help="Document separator: file, lines, blank or endoftext. (default: as trained)")
    ] = None,
    boundary: Boundary = None,
    batch: Batch = 16,
    device: Device = "auto",
    weights: Weights = "fp32",
    country: Country = None,
) -> None:
    """Measure bits per byte and perplexity on texts.

    Perplexity is given per token and per word; lower is better. Every token counts, the first too, each predicted from
    all that the model can see before it in its document. A masked language model (bert …) predicts each token from all
    others instead: its pseudo-log-likelihood. ELMo predicts from both ends: each direction, and their mean.

    Examples:

      lmlab score runs/book --held-out

      lmlab score runs/book another-book.txt

      lmlab score runs/book --text "The cat sat on the mat." --by-token

      lmlab score runs/nplm test.txt --mix runs/trigram --learn-weights valid.txt

    Bits per byte compare any two models on the same text, perplexity per token only models with the same tokenizer.
    A warning is printed where the run was trained on the text: such a score is too good.
    """
    from lmlab.cli.console import Console, progress_bar
    from lmlab.cli.texts import check_outputs, choose_boundary, documents_of, read_documents
    from lmlab.comparison.joining import MAX_SHARED, fraction_trained_on
    from lmlab.comparison.likelihood import choose_scored_part
    from lmlab.comparison.shared_test_data import make_test_text
    from lmlab.costs.countries import find_grid
    from lmlab.decoding.scorer import add_scores
    from lmlab.language_model import load
    from lmlab.training.devices import choose_device
    from lmlab.training.energy_meter import EnergyMeter

    found_device, grid = choose_device(device), find_grid(country)
    how = documents or documents_of(run)
    check_outputs({}, inputs=[run, *(files or [])])
    groups = [(each, [each]) for each in text or []]
    if files:
        name = ", ".join("standard input" if file == "-" else file for file in files)
        groups.append((name, read_documents(files, documents=how)))
    given = [each for _, group in groups for each in group]
    if held_out:
        groups.append(_held_out(run))
    if not groups:
        raise ValueError("nothing to score: give FILE (or - for standard input), --text TEXT, or --held-out")
    with progress_bar("scoring") as progress:
        model = choose_boundary(load(run, device=found_device, weights=weights), boundary)
        if mix:
            others, weighted = zip(*map(_run_and_weight, mix), strict=True)
            parts = [choose_boundary(load(other, device=found_device, weights=weights), boundary) for other in others]
            other_text = read_documents(learn_weights, documents=how) if learn_weights else None
            model = _mixture(model, parts, list(weighted), other_text, batch, progress)
        elif learn_weights:
            raise ValueError("--learn-weights learns the weights of a mixture: give --mix RUN too")
        if held_out:
            name, texts = groups[-1]
            part = choose_scored_part(model, make_test_text(texts, prompt=None))
            groups[-1] = (name if part.texts == texts else f"part of {name}", part.texts)
        meter = EnergyMeter(found_device)
        found = model.scorer.score_groups([group for _, group in groups], batch=batch, progress=progress)
        cost = meter.lap().as_dict(method=meter.method, grid=grid)
    fraction = fraction_trained_on(run, given) if given else 0.0
    if fraction is not None and fraction > MAX_SHARED:
        print(
            f"warning: {run} was trained on {fraction:.0%} of this text (by its long lines), so the score is too good; "
            f"score what it has not seen: lmlab score {shlex.quote(str(run))} --held-out",
            file=sys.stderr,
        )
    mixing = getattr(model.model, "weights", None)
    scores = [(name, each) for (name, _), each in zip(groups, found, strict=True)]
    if json_:
        _print_json(scores, cost, by_token=by_token, weights=mixing, documents=how, fraction=fraction)
        return
    console = Console(highlight=False, soft_wrap=True)
    output = Console(highlight=False, soft_wrap=True, stderr=True) if by_token and not console.is_terminal else console
    if by_token:
        _print_tokens(console, scores, spaced=model.text_tokenizer.lossy)
    if len(scores) > 1:
        _print_table(output, scores)
    elif held_out:
        output.print(f"{scores[0][0]}:")
    _print(output, add_scores(found), model, cost, weights=mixing)


def _held_out(run: Path) -> tuple[str, list[str]]:
    """The name and the documents of the text that a run has never seen."""
    from lmlab.runs.held_out import find_held_out

    if not (run / "recipe.json").is_file():
        raise ValueError(f"--held-out: {run} has no recipe.json, which would say what text was held out; give FILE")
    split, found = find_held_out(run)
    if not all(isinstance(each, str) for each in found):
        raise ValueError(f"--held-out: {run} learns from pairs of texts; give them to: lmlab evaluate {run} --source …")
    return f"the {split} text", found


def _run_and_weight(given: str) -> tuple[str, float | None]:
    """RUN=WEIGHT in two; a directory whose name has an equals sign needs no weight to be found."""
    path, equals, weight = given.rpartition("=")
    if not equals or Path(given).is_dir():
        return given, None
    try:
        return path, float(weight)
    except ValueError:
        raise ValueError(f"--mix {given}: {weight!r} is not a weight; write --mix RUN=0.5") from None


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
    scores: Scores,
    cost: dict[str, Any],
    *,
    by_token: bool,
    weights: list[float] | None,
    documents: str,
    fraction: float | None,
) -> None:
    import json
    import math

    from lmlab.decoding.scorer import add_scores

    result = add_scores([each for _, each in scores])
    values: dict[str, object] = {**result.as_dict(), "documents": documents, "trained_on": fraction, "cost": cost}
    if len(scores) > 1:
        values["texts"] = [{"name": name, **each.as_dict()} for name, each in scores]
    if weights is not None:
        values["weights"] = weights
    if by_token:
        values["surprisals"] = [
            {"token": token, "bits": bits if math.isfinite(bits) else None} for token, bits in result.surprisals
        ]
    print(json.dumps(values, ensure_ascii=False))


def _print_tokens(console: Console, scores: Scores, *, spaced: bool) -> None:
    """Each token with its surprisal: coloured on a screen, else as columns under their names."""
    if not console.is_terminal:
        sys.stdout.write("token\tbits\n")
    for name, each in scores:
        if console.is_terminal:
            _print_heat(console, each, spaced=spaced, title=name if len(scores) > 1 else "")
        else:
            sys.stdout.writelines(f"{token}\t{bits:.4f}\n" for token, bits in each.surprisals)


def _print_table(console: Console, scores: Scores) -> None:
    """Several texts apart."""
    from rich.table import Table
    from rich.text import Text

    pseudo = "pseudo-" if any(each.pseudo for _, each in scores) else ""
    table = Table("text", title_justify="left")
    for heading in (f"{pseudo}bits per byte", f"{pseudo}perplexity per token", "per word", "bits", "tokens", "bytes"):
        table.add_column(heading, justify="right")
    for name, each in scores:
        short = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
        lossy = " (lossy)" if each.lossy else ""
        table.add_row(
            Text(" ".join(short.split())),
            f"{each.bits_per_byte:.4f}{lossy}",
            _readable(each.perplexity),
            _readable(each.word_perplexity),
            f"{each.bits:,.1f}",
            f"{each.tokens:,}",
            f"{each.bytes:,}",
        )
    console.print(table, soft_wrap=False)
    console.print("All of them together:")


def _print(
    totals: Console, result: Score, model: LanguageModel, cost: dict[str, Any], *, weights: list[float] | None
) -> None:
    pseudo = "pseudo-" if result.pseudo else ""
    totals.print(
        f"[bold]{result.bits_per_byte:.4f}[/bold] {pseudo}bits per byte{' (lossy)' if result.lossy else ''}\n"
        f"[bold]{_readable(result.perplexity)}[/bold] {pseudo}perplexity per token, "
        f"[bold]{_readable(result.word_perplexity)}[/bold] per word\n"
        f"{result.bits:,.1f} bits ({result.nats:,.1f} nats) over {result.tokens:,} tokens, {result.words:,} words, "
        f"{result.bytes:,} bytes\n"
        f"{cost['seconds']:.2f} s, {cost['joules']:.3g} J ({cost['energy_method']}), {cost['grams']:.2g} g CO2e "
        f"({cost['country']})"
    )
    if line := _describe_boundary(model):
        totals.print(line, markup=False)
    if result.directions:
        each = [(name, result.in_direction(name)) for name in result.directions]
        directions = ", ".join(
            f"{name} {one.bits_per_byte:.4f} bits per byte (perplexity {_readable(one.perplexity)})"
            for name, one in each
        )
        totals.print(f"the mean of two directions: {directions}")
    if weights is not None:
        totals.print(f"mixture weights: {', '.join(f'{weight:.4f}' for weight in weights)} (RUN first)")
    if result.approximation:
        from lmlab.models import name_of

        totals.print(
            f"exact for {result.approximation}: another seed hashes otherwise (model.hash_seed: lmlab list "
            f"{name_of(model.model)})"
        )
    if result.pseudo:
        totals.print(
            "note: this is the pseudo-log-likelihood, each token predicted from all others (Salazar et al. 2020): "
            "not comparable with left-to-right scores, only with those of other masked language models."
        )
    if result.lossy:
        fraction = f" {result.unknown:,} of {result.tokens:,} tokens are unknown." if result.unknown else ""
        totals.print(
            f"note: the tokenizer ({model.text_tokenizer.spec}) loses part of the text, so bits per byte are too low "
            f"(lossy): compare it only with models of the same tokenizer.{fraction}"
        )


def _describe_boundary(model: LanguageModel) -> str:
    """Describe the token before a text, if it is not the boundary as for all models that lmlab trains."""
    from lmlab.tokenizers.boundary import describe_boundary, opening_token, puts_boundary

    frame, tokenizer = model.frame, model.text_tokenizer
    line = describe_boundary(frame, tokenizer)
    if not line or (puts_boundary(frame) and opening_token(frame) == tokenizer.boundary):
        return ""
    return line if puts_boundary(frame) else f"{line}; the first token is predicted from it"


def _readable(value: float) -> str:
    return f"{value:,.2f}" if value < 1e6 else f"{value:.3g}"


def _print_heat(console: Console, result: Score, *, spaced: bool, title: str) -> None:
    """The text with each token on a background that shows its surprisal."""
    from rich.text import Text

    legend = Text(f"{title}\n" if title else "")
    legend.append(f"{result.bits:,.1f} bits over {result.tokens:,} tokens; bits of each: ")
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
