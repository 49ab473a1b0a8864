"""lmlab generate: let a model write."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.errors import format_option
from lmlab.cli.options import (
    MOST_TEXTS,
    Boundary,
    Device,
    Json,
    LengthPenalty,
    MinP,
    Overwrite,
    Run,
    SamplingSeed,
    Temperature,
    TopK,
    TopP,
    Trace,
    Weights,
)
from lmlab.cli.texts import check_outputs, choose_boundary, is_stream, text_of

if TYPE_CHECKING:
    from lmlab.decoding.chat_writer import ChatWriter
    from lmlab.decoding.sampling import Sampling
    from lmlab.pages.search_tree import SearchTree


_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def generate(
    run: Run,
    prompt: Annotated[str, typer.Argument(help="Beginning of the text, or message; '-' reads standard input.")] = "",
    chat: Annotated[bool, typer.Option("--chat", help="Answer a chat message, or chat on the terminal.")] = False,
    system: Annotated[str | None, typer.Option(help="System message, with --chat.")] = None,
    tokens: Annotated[
        int | None,
        typer.Option("-n", "--tokens", min=0, help="Maximum number of tokens to generate. (default: 100; chat: 500)"),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=MOST_TEXTS, help="Number of texts to generate.")] = 1,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1, repeated tokens become less probable.")] = 1.0,
    beams: Annotated[
        int | None, typer.Option(min=1, max=MOST_TEXTS, help="Beam search with this beam size, instead of sampling.")
    ] = None,
    length_penalty: LengthPenalty = 0.0,
    trace: Trace = None,
    overwrite: Overwrite = False,
    stop: Annotated[list[str] | None, typer.Option(help=r"End before this string (\n: newline); repeatable.")] = None,
    seed: SamplingSeed = 0,
    boundary: Boundary = None,
    json_: Json = False,
    device: Device = "auto",
    weights: Weights = "fp32",
) -> None:
    """Continue a text by sampling or beam search.

    Tokens are shown as they are generated.

    Examples:

      lmlab generate runs/book "Once upon a time" --tokens 200

      lmlab generate runs/book "The" --samples 5 --temperature 0.8 --top-p 0.95 --seed 7

      lmlab generate runs/book "The" --beams 5 --length-penalty 0.6

      lmlab generate runs/book "The" --tokens 12 --beams 3 --trace search.html

      lmlab generate runs/chat --chat "What goes round the sun?" --system "Answer in one word."

      lmlab generate runs/chat --chat

    --chat is for chat models that were imported with a chat template. Without a message it starts a conversation, in
    which the model sees the earlier messages.

    The text ends after --tokens, before a --stop string, or where the model ends the document or its message. Runs
    trained by lmlab read the boundary token before a prompt; imported ones read what their own tokenizer puts there.
    """
    from lmlab.cli.trace import check_trace, write_trace
    from lmlab.decoding.sampling import Sampling
    from lmlab.language_model import load
    from lmlab.tokenizers.boundary import describe_boundary, opening_token, puts_boundary
    from lmlab.training.devices import choose_device

    check_trace(trace, beams=beams)
    check_outputs({"--trace": trace}, inputs=[run, prompt if is_stream(prompt) else None], overwrite=overwrite)
    _check_chat(chat, system, {"--beams": beams, "--boundary": boundary})
    sampling = Sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
    )
    _check_beams(beams, sampling, samples=samples, length_penalty=length_penalty)
    prompt = text_of(prompt)
    lm = load(run, device=choose_device(device), weights=weights)
    common: dict[str, Any] = {
        "sampling": sampling,
        "tokens": tokens if tokens is not None else 500 if chat else 100,
        "samples": samples,
        "stop": [each.replace(r"\n", "\n").replace(r"\t", "\t") for each in stop or []],
    }
    try:
        if chat:
            _chat(lm.chat_writer, prompt, system, seed, common, json_=json_)
            return
        writer = choose_boundary(lm, boundary).writer
        usual = puts_boundary(writer.frame) and opening_token(writer.frame) == writer.tokenizer.boundary
        line = describe_boundary(writer.frame, writer.tokenizer)
        if line and (boundary is not None or not usual):
            print(line, file=sys.stderr)
        if beams is not None:
            trees: list[SearchTree] = []
            watch = trees.append if trace is not None else None
            found = writer.generate(prompt, beams=beams, length_penalty=length_penalty, trace=watch, **common)
            if trace is not None:
                write_trace(trees, trace, model=run.name)
            _print(found, prompt, seed, json_=json_)
        elif samples == 1 and not json_:
            _print_stream((pieces[0] for pieces in writer.stream(prompt, **common)), prompt)
        else:
            _print(_collect(writer.stream(prompt, **common), samples, common["tokens"]), prompt, seed, json_=json_)
    except KeyboardInterrupt:
        print()
        raise typer.Exit(130) from None


def _check_beams(beams: int | None, sampling: Sampling, *, samples: int, length_penalty: float) -> None:
    """A ValueError where options do not go with --beams, or need it."""
    if beams is None:
        if length_penalty != 0.0:
            raise ValueError("--length-penalty ranks the texts of a beam search: give --beams too")
        return
    if given := sampling.given():
        options = ", ".join(map(format_option, given))
        raise ValueError(f"--beams {beams} with {options}: beam search draws nothing; leave out one or the other")
    if samples > beams:
        raise ValueError(f"--samples {samples} with --beams {beams}: a search gives at most as many texts as beams")


def _check_chat(chat: bool, system: str | None, others: dict[str, Any]) -> None:
    """A ValueError where options do not go with --chat, or need it."""
    if system is not None and not chat:
        raise ValueError("--system is a message of a chat: give --chat too")
    if chat and (given := [name for name, value in others.items() if value is not None]):
        why = "answers are sampled" if given[0] == "--beams" else "the chat template writes the special tokens"
        raise ValueError(f"{given[0]} with --chat: {why}; leave out one or the other")


def _chat(chat: ChatWriter, prompt: str, system: str | None, seed: int, common: dict[str, Any], *, json_: bool) -> None:
    """Answer a message, or those of a conversation on the terminal."""
    from lmlab.cli.generate import HELP, begin_conversation, converse, read_line

    if prompt:
        messages = [*begin_conversation(system), {"role": "user", "content": prompt}]
        stream, samples = chat.stream(messages, **common), common["samples"]
        if samples == 1 and not json_:
            _print_stream((pieces[0] for pieces in stream), "")
        else:
            _print(_collect(stream, samples, common["tokens"]), "" if not json_ else prompt, seed, json_=json_)
        return
    if not sys.stdin.isatty():
        raise ValueError("there is no message: give one, as in lmlab generate RUN --chat MESSAGE, or '-' to read it")
    if json_ or common["samples"] > 1:
        raise ValueError("--json and --samples are for one message: give it, as in lmlab generate RUN --chat MESSAGE")
    print(HELP, file=sys.stderr)
    converse(chat, system=system, read=read_line, show=_show, **common)


def _collect(stream: Iterable[list[str]], samples: int, tokens: int) -> list[str]:
    from lmlab.cli.console import progress_bar

    texts = [""] * samples
    with progress_bar("generating") as progress:
        for done, pieces in enumerate(stream, start=1):
            texts = [text + piece for text, piece in zip(texts, pieces, strict=True)]
            progress(done, tokens)
    return texts


def _safe(text: str) -> str:
    """Text that cannot steer a terminal; unchanged where standard output is none."""
    return text.translate(_CONTROL) if sys.stdout.isatty() else text


def _print_prompt(prompt: str) -> None:
    from rich.text import Text

    from lmlab.cli.console import Console

    Console(highlight=False, soft_wrap=True).print(Text(_safe(prompt), style="bold"), end="")


def _print_stream(pieces: Iterable[str], prompt: str) -> None:
    rest = iter(pieces)
    first = next(rest, "")  # before anything is shown: it may be an error
    _print_prompt(prompt)
    for piece in chain([first], rest):
        _show(piece)
    print()


def _show(piece: str) -> None:
    if piece:
        sys.stdout.write(_safe(piece))
        sys.stdout.flush()


def _print(texts: list[str], prompt: str, seed: int, *, json_: bool) -> None:
    if json_:
        import json

        print(json.dumps({"prompt": prompt, "samples": texts, "seed": seed}, ensure_ascii=False))
        return
    from lmlab.cli.console import Console

    console = Console(highlight=False)
    for number, text in enumerate(texts, start=1):
        if len(texts) > 1:
            console.rule(f"{number} of {len(texts)}")
        _print_stream([text], prompt)


HELP = "Write a message and press Enter. /new begins a new conversation; /exit or Ctrl-D ends."
"""What is shown before the first message."""


def begin_conversation(system: str | None) -> list[dict[str, str]]:
    """The messages with which a conversation begins: that of the system, or none."""
    return [] if system is None else [{"role": "system", "content": system}]


def converse(
    chat: ChatWriter,
    *,
    system: str | None,
    read: Callable[[], str],
    show: Callable[[str], None],
    **options: Any,
) -> None:
    """Answer messages until there are no more; `read` gives the next one, `show` is given the pieces of an answer.

    Ctrl-C ends an answer early, and what was written of it stays in the conversation. An answer that cannot be given is
    told, and its message is left out.
    """
    messages = begin_conversation(system)
    while (text := _next(read)) is not None:
        if text == "/new":
            messages = begin_conversation(system)
            show("(new conversation)\n")
            continue
        if not text:
            continue
        asked = [*messages, {"role": "user", "content": text}]
        try:
            answer = _show_answer(chat.stream(asked, **options), show)
        except ValueError as error:
            show(f"error: {error}\n")
            continue
        messages = [*asked, {"role": "assistant", "content": answer}]


def _next(read: Callable[[], str]) -> str | None:
    """The next message; None where there is none."""
    try:
        text = read().strip()
    except (EOFError, KeyboardInterrupt):
        return None
    return None if text == "/exit" else text


def _show_answer(pieces: Iterator[list[str]], show: Callable[[str], None]) -> str:
    answer = ""
    try:
        for (piece,) in pieces:
            show(piece)
            answer += piece
    except KeyboardInterrupt:
        pass
    show("\n")
    return answer


def read_line() -> str:
    """A message from the terminal."""
    print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
