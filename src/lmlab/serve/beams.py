"""Completions by beam search, with log-probabilities where they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import torch

from lmlab.decoding.beam_search import Hypothesis, beam_search
from lmlab.decoding.streaming import TextStream
from lmlab.serve.engine.prefill import piece_size, score_prompt
from lmlab.serve.engine.prefix_cache import PrefixCache
from lmlab.serve.engine.sequence import OutputPiece
from lmlab.serve.errors import NotANumberError
from lmlab.serve.planning import GenerationPlan, PromptText
from lmlab.serve.responses import CompletionChoice

T = TypeVar("T")


def search(plan: GenerationPlan, pause: Callable[[], None]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The choices of a beam search for each prompt, and the usage; `pause` is called after each of its steps."""
    assert plan.beams is not None
    choices: list[dict[str, Any]] = []
    read = written = 0
    for prompt in plan.prompts:
        (found,) = beam_search(
            plan.writer.model,
            torch.tensor([plan.framed(prompt)], device=plan.writer.model.device),
            tokens=plan.tokens,
            beams=plan.beams,
            boundary=plan.writer.end,
            length_penalty=plan.length_penalty,
            watch=lambda _: pause(),
        )
        if not found or not all(math.isfinite(each.log_probability) for each in found):
            raise NotANumberError(plan.served.name)
        read += len(prompt.ids)
        for hypothesis in found[: plan.n]:
            written += len(hypothesis.tokens)
            choices.append(_choice(plan, prompt, hypothesis, pause).whole(len(choices)))
    return choices, {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _choice(plan: GenerationPlan, prompt: PromptText, found: Hypothesis, pause: Callable[[], None]) -> CompletionChoice:
    framed = plan.framed(prompt)
    choice = CompletionChoice(plan, prompt)
    scored = None
    if plan.logprobs is not None or plan.prompt_top is not None:
        every = [*framed, *found.tokens]
        top = max(plan.logprobs or 0, plan.prompt_top or 0)
        no_cache = PrefixCache(piece_size(plan.writer.model), capacity=0)
        work = score_prompt(
            plan.writer.model,
            every,
            no_cache,
            top=top,
            opening=plan.opening(prompt),
            unknown=plan.writer.tokenizer.unknown,
        )
        scored = _finish(work, pause)
        choice.add(OutputPiece(prompt=scored[: len(prompt.ids)]))
    stream = TextStream(plan.writer.tokenizer, prompt=framed, stop=plan.stop)
    for number, token in enumerate(found.written):
        text = stream.add(token)
        own = None if scored is None else scored[len(prompt.ids) + number]
        choice.add(OutputPiece(token=token, text=text, scored=own, finish="stop" if stream.stopped else ""))
        if stream.stopped:
            return choice
    if found.finished:
        own = None if scored is None else scored[-1]
        choice.add(OutputPiece(token=found.tokens[-1], text=stream.finish(), scored=own, finish="stop"))
    else:
        choice.add(OutputPiece(text=stream.finish(), finish="length"))
    return choice


def _finish(work: Generator[int, None, T], pause: Callable[[], None]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        pause()
