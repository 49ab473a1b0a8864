"""The choices of a response, built from the pieces that the engine sends: whole, or one chunk at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lmlab.decoding.chain_rule import TokenScore
from lmlab.serve.engine.sequence import OutputPiece
from lmlab.serve.planning import GenerationPlan, PromptText
from lmlab.serve.token_ids import Offsets

LEAST = -9999.0
"""In offset of minus infinity, which JSON does not have."""


def logprob(nats: float) -> float:
    return max(-nats, LEAST)


class PromptScores(NamedTuple):
    """The log-probabilities of a prompt as they are sent, made once for all of its texts."""

    fields: dict[str, list[Any]]
    logprobs: list[dict[str, Any]]


def format_prompt_scores(plan: GenerationPlan, prompt: PromptText, scored: Sequence[TokenScore]) -> PromptScores:
    """The log-probabilities of the tokens of a prompt, as far as the request asks for them."""
    fields, names, logprobs = _empty(), plan.served.names, []
    if plan.echo and plan.logprobs is not None:
        offsets = _prompt_offsets(plan, prompt)
        for token, each, offset in zip(prompt.ids, scored, offsets, strict=True):
            _add_logprobs(fields, plan, token, each, offset)
    if plan.prompt_logprobs is not None:
        for token, each in zip(prompt.ids, scored, strict=False):
            every = {**dict(each.top[: plan.prompt_logprobs]), token: each.nats}
            numbers = plan.served.client_ids(list(every))
            logprobs.append(
                {
                    str(number): {"logprob": logprob(nats), "decoded_token": names[one]}
                    for number, (one, nats) in zip(numbers, every.items(), strict=True)
                }
            )
    return PromptScores(fields, logprobs)


def _prompt_offsets(plan: GenerationPlan, prompt: PromptText) -> list[int]:
    """The offset of each token of a prompt in the text of the request, which a tokenizer may have changed."""
    tokenizer = plan.writer.tokenizer
    if tokenizer.decode(prompt.ids) != prompt.text:
        ids, spans = tokenizer.encode_with_offsets(prompt.text)
        if ids == prompt.ids:
            return [start for start, _ in spans]
    offsets = Offsets(tokenizer)
    return [offsets.add(token) for token in prompt.ids]


def _add_logprobs(
    fields: dict[str, list[Any]], plan: GenerationPlan, token: int, scored: TokenScore, offset: int
) -> None:
    names = plan.served.names
    fields["tokens"].append(names[token])
    fields["token_logprobs"].append(logprob(scored.nats))
    every = {names[each]: logprob(nats) for each, nats in scored.top[: plan.logprobs or 0]}
    fields["top_logprobs"].append({**every, names[token]: logprob(scored.nats)})
    fields["text_offset"].append(offset)


class CompletionChoice:
    """One text of a response.

    The boundary that ends a text is among its tokens, with its log-probability and no text: evaluation harnesses expect
    one entry for each generated token.
    """

    def __init__(self, plan: GenerationPlan, prompt: PromptText) -> None:
        self.plan, self.prompt = plan, prompt
        self.text, self.finish = "", ""
        self.ids: list[int] = []
        self.total = 0.0
        self.prompt_scores: PromptScores | None = None
        self._echoed = not plan.echo
        self._fields: dict[str, list[Any]] = _empty()
        self._offsets = Offsets(
            plan.writer.tokenizer,
            start=len(prompt.text) if plan.echo else 0,
            prompt=plan.framed(prompt),
        )

    def add(self, piece: OutputPiece) -> dict[str, Any]:
        """Add a piece; return the new part, as a choice of a chunk."""
        text, fields = "", _empty()
        if piece.prompt is not None and self.prompt_scores is None:
            self.prompt_scores = format_prompt_scores(self.plan, self.prompt, piece.prompt)
        if not self._echoed and (piece.token is not None or piece.finish or piece.prompt is not None):
            self._echoed = True
            text += self.prompt.text
            if self.plan.logprobs is not None and self.prompt_scores is not None:
                fields = {name: list(values) for name, values in self.prompt_scores.fields.items()}
        if piece.token is not None:
            self.ids.append(piece.token)
            if piece.scored is not None:
                self.total += piece.scored.nats
                if self.plan.logprobs is not None:
                    _add_logprobs(fields, self.plan, piece.token, piece.scored, self._offsets.add(piece.token))
        text += piece.text
        self.text += text
        self.finish = piece.finish
        for name, values in fields.items():
            self._fields[name] += values
        delta: dict[str, Any] = {
            "text": text,
            "logprobs": None if self.plan.logprobs is None else fields,
            "finish_reason": _reason(piece.finish),
        }
        if self.plan.return_ids:
            delta["token_ids"] = [] if piece.token is None else [piece.token]
        return delta

    def whole(self, index: int) -> dict[str, Any]:
        """The choice of a response without streaming; tokens from a stop string on are left out."""
        fields = self._fields
        if self.finish == "stop" and not any(map(self.plan.writer.is_end, self.ids[-1:])):
            count = sum(offset < len(self.text) for offset in fields["text_offset"])
            kept = max(count, len(self.prompt.ids) if self.plan.echo else 0)
            fields = {name: values[:kept] for name, values in fields.items()}
        choice: dict[str, Any] = {
            "index": index,
            "text": self.text,
            "logprobs": None if self.plan.logprobs is None else fields,
            "finish_reason": _reason(self.finish),
        }
        if self.plan.prompt_logprobs is not None:
            choice["prompt_logprobs"] = self.prompt_logprobs()
        if self.plan.return_ids:
            choice["prompt_token_ids"], choice["token_ids"] = self.plan.served.client_ids(self.prompt.ids), self.ids
        return choice

    def prompt_logprobs(self) -> list[dict[str, Any]]:
        """For each token of the prompt its alternatives by id, in the format of vLLM; the first one too."""
        return [] if self.prompt_scores is None else self.prompt_scores.logprobs


def best(choices: Sequence[CompletionChoice], count: int) -> list[CompletionChoice]:
    """The `count` choices with the greatest mean log-probability per token, best first; all in order if no more."""
    if count == len(choices):
        return list(choices)
    return sorted(choices, key=lambda choice: choice.total / max(1, len(choice.ids)))[:count]


def _empty() -> dict[str, list[Any]]:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def _reason(finish: str) -> str | None:
    return {"": None, "stop": "stop", "length": "length"}.get(finish, "stop")
