"""lmlab tokenize: how a text is cut into tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmlab.cli.options import Json, TrainingText

if TYPE_CHECKING:
    from rich.text import Text

    from lmlab.cli.console import Console
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.inspecting import InspectedToken, TokenizedText

BACKGROUNDS = ("black on cyan", "black on yellow")
UNKNOWN = "white on red"
MOST_SHOWN = 400
"""Tokens of a text that are shown; --json has all."""
MOST_QUOTED = 60
SPACE, NEWLINE, TAB = "·", "⏎", "⇥"


def tokenize(
    given: Annotated[
        list[str],
        typer.Argument(metavar="RUN|SPEC... TEXT", help="Runs, tokenizer files or specs; then the text."),
    ],
    file: Annotated[str | None, typer.Option(help="Text file to read, instead of TEXT.")] = None,
    training_text: TrainingText = None,
    json_: Json = False,
) -> None:
    """Show how a tokenizer splits a text into tokens.

    Examples:

      lmlab tokenize runs/book "It was the best of times"

      lmlab tokenize bytes bpe:1000 unigram:1000 words --training-text book.txt "It was the best of times"

      lmlab tokenize runs/book --file chapter.txt --json

    A tokenizer is a run directory, a tokenizer.json file, a folder with the files of GPT-2 or BERT, or a spec such as
    bpe:4096, which is trained on --training-text. A text of '-' is read from standard input. A dot is a space, ⏎ a
    newline; unknown tokens are red. With several tokenizers, each has its own line.
    """
    names, text = _given(given, file)
    from lmlab.tokenizers.inspecting import TokenizedText

    cuttings = [(name, TokenizedText(text, tokenizer)) for name, tokenizer in _find_all(names, training_text or [])]
    if json_:
        import json

        for name, cutting in cuttings:
            print(json.dumps({"name": name, **cutting.as_dict()}, ensure_ascii=False))
        return
    from lmlab.cli.console import Console

    console = Console(highlight=False)
    if len(cuttings) == 1:
        _show_one(cuttings[0][1], console)
    else:
        _show_several(cuttings, console)


def _given(given: list[str], file: str | None) -> tuple[list[str], str]:
    """The tokenizers that are named, and the text: the last argument, unless there is a file."""
    from lmlab.cli.texts import read_documents, text_of

    if file is not None:
        return given, "".join(read_documents([file], documents="file"))
    *names, text = given
    if not names:
        raise ValueError(
            f'which text? give it after the tokenizer: lmlab tokenize {text} "It was the best of times", or --file FILE'
        )
    return names, text_of(text)


def _find_all(names: Sequence[str], train: list[str]) -> Iterator[tuple[str, Tokenizer]]:
    """Each tokenizer with the name that it is shown under; those given as a spec are trained on the texts named."""
    from lmlab.cli.texts import read_documents
    from lmlab.tokenizers import parse
    from lmlab.tokenizers import train as train_tokenizer
    from lmlab.tokenizers.files import load_imported
    from lmlab.tokenizers.training import KINDS

    specs = [name for name in names if name.partition(":")[0] in KINDS]
    texts = read_documents(train, documents="file") if train and specs else []
    if train and not specs:
        raise ValueError(
            f"--training-text trains tokenizers given as a spec, such as bpe:1000; {names[0]} is trained already"
        )
    for name in names:
        if name not in specs:
            if not Path(name).exists() and "/" not in name and not name.endswith(".json"):
                parse(name)  # says which specs there are
            yield name, load_imported(Path(name))
            if (source := Path(name) / "source_tokenizer.json").is_file():
                yield f"{name} (source)", load_imported(source)
        elif texts or parse(name).kind == "bytes":
            yield name, train_tokenizer(name, texts)
        else:
            raise ValueError(f"{name} has to be trained first: name a text to train it on with --training-text FILE")


def _show_one(cutting: TokenizedText, console: Console) -> None:
    """The pieces in colour with their ids below them, and the figures."""
    from rich.text import Text

    shown = cutting.tokens[:MOST_SHOWN]
    for row in _rows(shown, console.width):
        pieces, ids = Text(), Text()
        for number, (token, label, width) in row:
            pieces.append(_pad(label, width), style=_style(cutting, token, number))
            pieces.append(" ")
            ids.append(str(token.id).ljust(width) + " ", style="dim")
        console.print(pieces, soft_wrap=True)
        console.print(ids, soft_wrap=True)
    if len(cutting.ids) > len(shown):
        console.print(f"… and {len(cutting.ids) - len(shown):,} more tokens (--json has all of them)")
    tokenizer = cutting.tokenizer
    console.print(f"\n{_describe(tokenizer)}: {_figures(cutting)}", soft_wrap=True)
    console.print(_round_trip(cutting), soft_wrap=True, markup=False)
    if cutting.unknown:
        lost = list(dict.fromkeys(repr(token.text) for token in cutting.tokens if cutting.is_unknown(token)))
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        console.print(f"unknown: {', '.join(lost[:5])}{more}", soft_wrap=True, markup=False)


def _show_several(cuttings: Sequence[tuple[str, TokenizedText]], console: Console) -> None:
    """One line for each tokenizer, so that the cuts can be seen side by side."""
    from rich.table import Table
    from rich.text import Text

    cuts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    cuts.add_column(overflow="fold", max_width=32)
    cuts.add_column(overflow="fold")
    figures = Table("tokenizer", box=None, padding=(0, 2, 0, 0))
    for column in ("types", "tokens", "bytes/token", "unknown", "lossless"):
        figures.add_column(column, justify="right", no_wrap=True)
    for name, cutting in cuttings:
        pieces = Text()
        for number, token in enumerate(cutting.tokens[:MOST_SHOWN]):
            pieces.append("" if console.color_system or not number else "|")
            pieces.append(_label(token), style=_style(cutting, token, number))
        pieces.append("…" if len(cutting.ids) > MOST_SHOWN else "")
        cuts.add_row(Text(name), pieces)
        figures.add_row(
            Text(name),
            f"{cutting.tokenizer.vocabulary:,}",
            f"{len(cutting.ids):,}",
            f"{cutting.bytes_per_token:.2f}" if cutting.ids else "–",
            f"{cutting.unknown:,}",
            "yes" if cutting.lossless else "no",
        )
    console.print(cuts)
    console.print(figures)
    console.print(f"{cuttings[0][1].bytes:,} bytes, {cuttings[0][1].words:,} words")


def _rows(tokens: Sequence[InspectedToken], width: int) -> Iterator[list[tuple[int, tuple[InspectedToken, str, int]]]]:
    """Tokens with their numbers, labels and widths, as many in a row as fit; a row ends after a newline."""
    from rich.cells import cell_len

    row: list[tuple[int, tuple[InspectedToken, str, int]]] = []
    used = 0
    for number, token in enumerate(tokens):
        label = _label(token)
        wide = max(cell_len(label), len(str(token.id)))
        if row and used + wide > width:
            yield row
            row, used = [], 0
        row.append((number, (token, label, wide)))
        used += wide + 1
        if label.endswith(NEWLINE):
            yield row
            row, used = [], 0
    if row:
        yield row


def _label(token: InspectedToken) -> str:
    """A piece as it is shown: white space as signs, where it is white space of the text."""
    label = token.piece.replace(" ", SPACE)
    if "\n" in token.text or "\t" in token.text:
        label = label.replace("\\n", NEWLINE).replace("\\t", TAB)
    return label


def _pad(label: str, width: int) -> str:
    from rich.cells import set_cell_size

    return set_cell_size(label, width)


def _style(cutting: TokenizedText, token: InspectedToken, number: int) -> str:
    return UNKNOWN if cutting.is_unknown(token) else BACKGROUNDS[number % 2]


def _describe(tokenizer: Tokenizer) -> str:
    """What a tokenizer is, and how much is in it."""
    if not tokenizer.is_open:
        return f"{tokenizer.spec}, {tokenizer.vocabulary:,} types"
    seen = f"{tokenizer.vocabulary - 1:,} spellings were seen, and new words are read by their letters"
    return f"{tokenizer.spec} ({tokenizer.predicted:,} words are predicted, {seen})"


def _figures(cutting: TokenizedText) -> Text:
    from rich.text import Text

    counts = f"{len(cutting.ids):,} tokens, {cutting.bytes:,} bytes, {cutting.words:,} words"
    if cutting.bytes_per_token is None:
        return Text(counts)
    fertility = f", {cutting.tokens_per_word:.2f} tokens per word" if cutting.tokens_per_word else ""
    return Text(f"{counts}; {cutting.bytes_per_token:.2f} bytes per token{fertility}")


def _round_trip(cutting: TokenizedText) -> str:
    """Whether the text comes back from its ids, and if not, from where on it differs."""
    if cutting.lossless and cutting.tokenizer.lossy:
        return "lossless: this text comes back from its ids, byte for byte; others may lose case, spaces or rare words"
    if cutting.lossless:
        return "lossless: decoding the ids gives the text back, byte for byte"
    if cutting.decoded == cutting.text:
        some = f"{cutting.unknown:,} of {len(cutting.ids):,} tokens"
        return f"lossy: {some} can only be predicted as unknown (they are read by their letters)"
    text, back = cutting.text, cutting.decoded
    same = next((i for i, (a, b) in enumerate(zip(text, back, strict=False)) if a != b), min(len(text), len(back)))
    first = max(0, same - MOST_QUOTED // 3)
    quoted = [repr(each[first : first + MOST_QUOTED]) for each in (text, back)]
    loss = "lossy" if cutting.tokenizer.lossy else "not lossless"
    return f"{loss}: from character {same} on, {quoted[0]} comes back as {quoted[1]}"
