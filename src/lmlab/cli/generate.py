"""lmlab generate: let a model write."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.texts import BOUNDARY, MOST_TEXTS, OVERWRITE, check_outputs, choose_boundary, is_stream, text_of
from lmlab.cli.trace import HELP as TRACE

if TYPE_CHECKING:
    from lmlab.decoding.chat_writer import ChatWriter
    from lmlab.decoding.search_tree import SearchTree

_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def generate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    prompt: Annotated[
        str, typer.Argument(help="The beginning of the text, or a message; '-' reads it from standard input.")
    ] = "",
    chat: Annotated[
        bool, typer.Option("--chat", help="Answer PROMPT as a chat message; without PROMPT, chat on the terminal.")
    ] = False,
    system: Annotated[str | None, typer.Option(help="With --chat: the system message.")] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "-n", "--tokens", min=0, help="Maximum number of tokens to generate. (default: 100; with --chat 500)"
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=MOST_TEXTS, help="Number of texts (samples) to generate.")] = 1,
    temperature: Annotated[
        float, typer.Option(help="Sampling temperature: below 1 is safer, above 1 bolder; 0 takes the best token.")
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(help="Top-k sampling: draw only from the k most probable tokens.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Nucleus sampling: draw from the smallest set of tokens with probability p.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Draw only tokens with at least p times the probability of the best one.")
    ] = None,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1 makes tokens that were already used less likely (1.2 is usual).")
    ] = 1.0,
    beams: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_TEXTS, help="Beam search with this beam size, in place of sampling."),
    ] = None,
    length_penalty: Annotated[
        float, typer.Option(help="With --beams: 0 ranks by probability, which favours short texts; 1 evens that out.")
    ] = 0.0,
    trace: Annotated[str | None, typer.Option(metavar="OUT", help=f"With --beams: {TRACE}")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=f"With --trace: {OVERWRITE}")] = False,
    stop: Annotated[
        list[str] | None, typer.Option(help=r"End before this string; \n is a new line (may be given several times).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same text.")] = 0,
    boundary: Annotated[bool | None, typer.Option("--boundary/--no-boundary", help=BOUNDARY)] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Generate text from a prompt.

    Tokens are shown as they come.

    Examples:

      lmlab generate runs/book "Once upon a time" --tokens 200

      lmlab generate runs/book "The" --samples 5 --temperature 0.8 --top-p 0.95 --seed 7

      lmlab generate runs/book "The" --beams 5 --length-penalty 0.6

      lmlab generate runs/book "The" --tokens 12 --beams 3 --trace search.html

      lmlab generate runs/chat --chat "What goes round the sun?" --system "Answer in one word."

      lmlab generate runs/chat --chat

    --chat is for chat models that were imported with a chat template. Without a message it begins a conversation, in
    which the model sees what was said before.

    It ends after --tokens, before a --stop string, or where the model ends the document or its message. Runs trained by
    lmlab read the boundary token before a prompt; imported ones read what their own tokenizer puts there.
    """
    from lmlab.cli.trace import check_trace, write_trace
    from lmlab.decoding.sampling import Sampling
    from lmlab.language_model import load
    from lmlab.tokenizers.boundary import describe_boundary, opening_token, puts_boundary
    from lmlab.training.devices import choose_device

    check_trace(trace, beams=beams)
    check_outputs({"--trace": trace}, inputs=[run, prompt if is_stream(prompt) else None], overwrite=overwrite)
    _check_chat(chat, system, {"--beams": beams, "--boundary": boundary})
    prompt = text_of(prompt)
    lm = load(run, device=choose_device(device))
    common: dict[str, Any] = {
        "sampling": Sampling(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
        ),
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
        elif length_penalty != 0.0:
            raise ValueError("--length-penalty ranks the texts of a search: give --beams too")
        elif samples == 1 and not json_:
            _print_stream((pieces[0] for pieces in writer.stream(prompt, **common)), prompt)
        else:
            _print(_collect(writer.stream(prompt, **common), samples, common["tokens"]), prompt, seed, json_=json_)
    except KeyboardInterrupt:
        print()
        raise typer.Exit(130) from None


def _check_chat(chat: bool, system: str | None, others: dict[str, Any]) -> None:
    """A ValueError where options do not go with --chat, or need it."""
    if system is not None and not chat:
        raise ValueError("--system is a message of a chat: give --chat too")
    if chat and (given := [name for name, value in others.items() if value is not None]):
        why = "answers are sampled" if given[0] == "--beams" else "the chat template writes the special tokens"
        raise ValueError(f"{given[0]} with --chat: {why}; leave out one or the other")


def _chat(chat: ChatWriter, prompt: str, system: str | None, seed: int, common: dict[str, Any], *, json_: bool) -> None:
    """Answer a message, or those of a conversation on the terminal."""
    from lmlab.cli.chat import HELP, begin_conversation, converse, read_line

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
    from lmlab.cli.bars import counting

    texts = [""] * samples
    with counting("generating") as progress:
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
