"""From a request for completions to the sequences for the engine, with all fields checked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lmlab.decoding.sampling import Sampling
from lmlab.decoding.streaming import REPLACEMENT, split_unfinished
from lmlab.decoding.writer import Writer
from lmlab.serve.engine.sequence import GeneratedSequence, OutputPiece
from lmlab.serve.errors import APIError, checking
from lmlab.serve.schemas import ChatCompletion, Completion, Prompt
from lmlab.serve.served import Served
from lmlab.tokenizers.boundary import opening_token, prompt_tokens, puts_boundary, with_boundary, without_boundary
from lmlab.tokenizers.chat_template import BrokenTemplateError, ChatTemplateError

MOST_LOGPROBS = 2**20
"""Log-probabilities in one response: texts, times their tokens, times the alternatives of each."""


@dataclass(frozen=True, kw_only=True)
class PromptText:
    """A prompt: its tokens and its text.

    If the tokens end in the middle of a character, the text does not have it; the continuation starts with it.
    """

    ids: list[int]
    text: str


@dataclass(frozen=True, kw_only=True)
class GenerationPlan:
    """What to generate for a request."""

    served: Served
    writer: Writer
    prompts: list[PromptText]
    sampling: Sampling
    tokens: int
    n: int
    best_of: int
    echo: bool
    logprobs: int | None
    prompt_logprobs: int | None
    stop: list[str]
    beams: int | None
    length_penalty: float
    return_ids: bool

    def framed(self, prompt: PromptText) -> list[int]:
        """A prompt as the model reads it: in its frame, unless it starts with the boundary."""
        return prompt.ids if self._has_no_boundary(prompt) else prompt_tokens(self.writer.frame, prompt.ids)

    def _has_no_boundary(self, prompt: PromptText) -> bool:
        """Whether a prompt gets no boundary: the model reads none, or the prompt has it already."""
        return bool(prompt.ids) and self.writer.frame.row()["tokens"] in ([], prompt.ids[:1])

    @property
    def scores_prompts(self) -> bool:
        """Whether the tokens of prompts are scored: for the response, or for the log-probabilities of a beam search."""
        return self.prompt_top is not None or (self.beams is not None and self.logprobs is not None)

    def opening(self, prompt: PromptText) -> int | None:
        """The token after which the first token of a prompt is scored, if the prompt gets no boundary."""
        alone = self.scores_prompts and self._has_no_boundary(prompt)
        return opening_token(self.writer.frame) if alone else None

    @property
    def warnings(self) -> list[str]:
        """Warnings: only the end of a prompt that is longer than the window is read."""
        window = self.writer.model.window
        if window is None or not self.tokens:  # a prompt that is only scored is read as a whole, in windows
            return []
        before = " with the boundary" if puts_boundary(self.writer.frame) else ""
        return [
            f"prompt {number}: {len(framed)} tokens{before}; only the last {window} were read"
            for number, framed in enumerate(map(self.framed, self.prompts))
            if len(framed) > window
        ]

    @property
    def prompt_top(self) -> int | None:
        """The number of alternatives for each token of a prompt; None if the prompt is not scored."""
        asked = [self.prompt_logprobs, self.logprobs if self.echo else None]
        return max((each for each in asked if each is not None), default=None)

    def sequences(self, send: Callable[[int, OutputPiece], None]) -> list[GeneratedSequence]:
        """The sequences to generate, `best_of` for each prompt; `send` gets the number of a sequence and its pieces."""
        found = []
        for position, prompt in enumerate(self.prompts):
            framed = self.framed(prompt)
            for sample in range(self.best_of):
                number = position * self.best_of + sample
                found.append(
                    GeneratedSequence(
                        prompt=framed,
                        tokens=self.tokens,
                        sampling=self.sampling,
                        decoder=self.writer.tokenizer,
                        send=lambda piece, number=number: send(number, piece),  # type: ignore[misc]
                        sample=sample,
                        boundary=self.writer.end,
                        ends=self.writer.ends,
                        stop=self.stop,
                        top=0 if self.logprobs is None and self.best_of > self.n else self.logprobs,
                        prompt_top=self.prompt_top if sample == 0 else None,
                        opening=self.opening(prompt),
                        unknown=self.writer.tokenizer.unknown,
                    )
                )
        return found


def plan(body: Completion, served: Served) -> GenerationPlan:
    """The plan for a request; an `APIError` names the field that cannot be satisfied."""
    limits, writer = served.limits, _writer(body, served)
    if body.suffix and not limits.lenient:
        raise APIError(
            f"suffix: {served.name} writes from left to right and cannot see what comes after; leave it out, or fill "
            "masks with a masked model at /v1/fill",
            param="suffix",
        )
    prompts = read_prompts(body.prompt, served, "prompt")
    n, tokens = body.n or 1, 16 if body.max_tokens is None else body.max_tokens
    best_of = max(n, body.best_of or n) if limits.lenient else body.best_of or n
    if best_of < n:
        raise APIError(f"best_of = {best_of} with n = {n}: best_of must be at least n", param="best_of")
    if body.stream and best_of > n:
        raise APIError("best_of: which texts are best is known only at the end; not with stream", param="best_of")
    if body.stream_options is not None and not body.stream and not limits.lenient:
        raise APIError("stream_options: only with stream = true", param="stream_options")
    if tokens > limits.tokens:
        raise APIError(f"max_tokens = {tokens}: this server writes at most {limits.tokens}", param="max_tokens")
    if len(prompts) * best_of > min(limits.texts, limits.queue):
        raise APIError(
            f"{len(prompts)} prompts with {best_of} texts each: at most {min(limits.texts, limits.queue)} in a request",
            param="best_of" if best_of > len(prompts) else "prompt",
        )
    if body.use_beam_search and (body.stream or tokens == 0):
        raise APIError("use_beam_search: give max_tokens, and do not stream", param="use_beam_search")
    _check_logprobs(body, prompts, tokens=tokens, best_of=best_of)
    found = GenerationPlan(
        served=served,
        writer=writer,
        prompts=prompts,
        sampling=_sampling(body, served, writer),
        tokens=tokens,
        n=n,
        best_of=best_of,
        echo=bool(body.echo),
        logprobs=body.logprobs,
        prompt_logprobs=body.prompt_logprobs,
        stop=[body.stop] if isinstance(body.stop, str) else list(body.stop or ()),
        beams=best_of if body.use_beam_search else None,
        length_penalty=body.length_penalty or 0.0,
        return_ids=bool(body.return_token_ids),
    )
    if found.scores_prompts or any(not prompt.ids for prompt in prompts):
        _check_opening(writer)
    return found


def _writer(body: Completion, served: Served) -> Writer:
    """The role that continues texts, with the boundary or without it, as requested."""
    writer = served.writer()
    if body.boundary is None:
        return writer
    with checking("boundary"):
        frame = (with_boundary if body.boundary else without_boundary)(writer.frame)
    return replace(writer, frame=frame)


def _check_opening(writer: Writer) -> None:
    """Refuse an empty prompt, or the score of its first token, if the model has no token that starts a text."""
    with checking("prompt"):
        opening_token(writer.frame)


def plan_chat(body: ChatCompletion, served: Served, *, arrived: float) -> GenerationPlan:
    """The same for a request for the next message of a conversation: its rendered text is the prompt.

    `arrived` is when the request arrived, by `time.monotonic`.
    """
    chat = served.chat_writer()
    try:
        ids = served.template_queue.encode(chat, [message.plain() for message in body.messages], arrived=arrived)
    except BrokenTemplateError as error:
        raise APIError(f"{served.name}: {error}", status=500) from None
    except ChatTemplateError as error:
        raise APIError(f"messages: {error}", param="messages") from None
    except ValueError as error:
        raise APIError(f"messages: {error}", param="messages", code="context_length_exceeded") from None
    limits = served.limits
    most = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if most is not None and most > limits.tokens:
        raise APIError(f"max_tokens = {most}: this server writes at most {limits.tokens}", param="max_tokens")
    same = {name: getattr(body, name) for name in Completion.model_fields if name in ChatCompletion.model_fields}
    logprobs = {"logprobs": (body.top_logprobs or 0) if body.logprobs else None}
    length = chat.room(ids, limits.tokens if most is None else most)
    completion = Completion.model_construct(**{**same, **logprobs, "prompt": ids, "max_tokens": length})
    planned = plan(completion, served)
    return replace(planned, writer=chat.writer, stop=[*planned.stop, *chat.end_of_turn.strings])


def _check_logprobs(body: Completion, prompts: Sequence[PromptText], *, tokens: int, best_of: int) -> None:
    """Refuse requests for too many log-probabilities, of generated tokens and of prompts."""
    read = sum(len(prompt.ids) for prompt in prompts)
    count = 0
    if body.logprobs is not None:
        count += (tokens * len(prompts) + (read if body.echo else 0)) * best_of * (1 + body.logprobs)
    if body.prompt_logprobs is not None:
        count += read * best_of * (1 + body.prompt_logprobs)
    if count > MOST_LOGPROBS:
        raise APIError(
            f"{count} log-probabilities: this server sends at most {MOST_LOGPROBS} in a response; ask for fewer texts, "
            "tokens or alternatives",
            param="prompt_logprobs" if body.logprobs is None else "logprobs",
        )


def read_prompts(given: Prompt | None, served: Served, param: str) -> list[PromptText]:
    """The prompts of a request, in any of the four forms; no prompt is the start of a text."""
    several: Sequence[str | list[int]]
    if given is None or isinstance(given, str):
        several = [given or ""]
    elif not given or isinstance(given[0], int):
        several = [given]  # type: ignore[list-item]
    else:
        several = given
    found = []
    for each in several:
        if isinstance(each, str):
            empty = each == served.boundary_name and served.tokenizer.split_special_tokens
            ids = [] if empty else encode(each, served, param)
            found.append(PromptText(ids=ids, text=each))
        else:
            ids = served.token_ids(each, param)
            found.append(PromptText(ids=ids, text=decode_whole(ids, served, param)))
        if len(found[-1].ids) > served.limits.prompt:
            raise APIError(
                f"{param}: {len(found[-1].ids)} tokens; this server reads at most {served.limits.prompt}",
                param=param,
                code="context_length_exceeded",
            )
    return found


def encode(text: str, served: Served, param: str) -> list[int]:
    """The tokens of a text; a 400 that names the field if it cannot be encoded."""
    with checking(param):
        return served.tokenizer.encode(text)


def decode(ids: Sequence[int], served: Served, param: str) -> str:
    """The text of tokens; a 400 that names the field if one cannot be decoded."""
    with checking(param):
        return served.tokenizer.decode(ids)


def decode_whole(ids: Sequence[int], served: Served, param: str) -> str:
    """The same without an unfinished character at the end."""
    text = decode(ids, served, param)
    return split_unfinished(served.tokenizer, ids)[0] if text.endswith(REPLACEMENT) else text


def _sampling(body: Completion, served: Served, writer: Writer) -> Sampling:
    bias: dict[int, float] = {}
    for key, value in (body.logit_bias or {}).items():
        if not (key.isascii() and key.isdecimal() and len(key) < 10 and int(key) < writer.model.vocabulary):
            if served.limits.lenient:
                continue
            raise APIError(
                f"logit_bias: {key[:40]!r} is not a token id; ids are numbers from 0 to {writer.model.vocabulary - 1}",
                param="logit_bias",
            )
        bias[int(key)] = value
    seed = secrets.randbits(62) if body.seed is None else body.seed % 2**63
    nothing = body.top_p == 0  # the smallest nucleus is the best token
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=1 if nothing else body.top_k if body.top_k is not None and body.top_k > 0 else None,
        top_p=None if nothing or body.top_p in (None, 1.0) else body.top_p,
        min_p=body.min_p or None,
        repetition_penalty=body.repetition_penalty or 1.0,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        logit_bias=bias,
        seed=seed,
    )
