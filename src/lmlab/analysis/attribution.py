"""Gradient × input: how much each token speaks for one prediction (Simonyan et al. 2014; Shrikumar et al. 2017).

    a_i = x_i · ∂ log P(target) / ∂ x_i

x_i being the vector of token i as it enters the model: to first order, what the prediction gains where that vector is
made larger. It is negative where a token speaks against the prediction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lmlab.analysis.view import Viewed
from lmlab.decoding.masked_text import encode_masked_text
from lmlab.layers.watching import watching
from lmlab.models import name_of
from lmlab.models.abilities import FillsBlanks, PredictsNext, require
from lmlab.models.model import Model, NextTokenModel
from lmlab.pages.figures import Bar, Bars, ColouredText, Figure
from lmlab.pages.inspection import Table
from lmlab.tokenizers.boundary import prompt_tokens

MOST_BARS = 60


def _word(token: str) -> str:
    """A token in a sentence: without the space before it, unless it is nothing else."""
    return token.strip() or "␣"


@dataclass(frozen=True)
class Attribution(Viewed):
    """What speaks for a prediction."""

    target: str
    probability: float
    tokens: list[str]
    values: list[float]
    """In nats, to first order."""
    title: str = field(default="What speaks for a prediction", init=False)

    def lead(self) -> str:
        best = max(range(len(self.values)), key=lambda i: self.values[i])
        most = f"most of what speaks for it is “{_word(self.tokens[best])}” ({self.values[best]:+.3f})"
        told = most if self.values[best] > 0 else "to first order no token speaks for it"
        return f"“{_word(self.target)}” has a probability of {self.probability:.2%}; {told}."

    def notes(self) -> list[str]:
        return ["gradient × input: to first order only; tokens that share what they say share the credit by chance"]

    def table(self) -> Table:
        rows = [(i, token, value) for i, (token, value) in enumerate(zip(self.tokens, self.values, strict=True))]
        return Table(("place", "token", "gradient × input"), rows, ("d", "", "+.4f"))

    def figures(self) -> list[Figure]:
        most = max(map(abs, self.values), default=1.0) or 1.0
        pieces = [(token, value) for token, value in zip(self.tokens, self.values, strict=True)]
        drawn: list[Figure] = [ColouredText(f"For “{self.target.strip()}”", pieces, most, unit="+.3f", spaced=True)]
        if len(pieces) <= MOST_BARS:
            drawn.append(
                Bars("By token", [Bar(f"{i} {t}", v) for i, (t, v) in enumerate(pieces)], unit="+.3f", line=0.0)
            )
        return drawn


def attribute(model: Any, text: str, *, target: str | None = None) -> Attribution:
    """What speaks for the next token after a text, or for what fills its one blank; the most probable if none is named.

    `model` is a LanguageModel that predicts the next token or fills blanks, and is a network. Of one that was
    fine-tuned to tell classes, it is what speaks for a class; a tab stands between the two texts of a pair.
    """
    if getattr(model, "own_predictor", None) is not None:
        return _attribute_class(model.predictor, text, target)
    network, tokenizer, frame = model.model, model.text_tokenizer, model.frame
    if not isinstance(network, Model):
        raise ValueError(f"{name_of(network)} has no gradients: take a neural model")
    reads_on = isinstance(network, PredictsNext)
    if reads_on:
        row, place = prompt_tokens(frame, tokenizer.encode(text)), -1
    else:
        filler = require(network, FillsBlanks)
        blanked = encode_masked_text(text, tokenizer, frame)
        if len(blanked.places) != 1:
            raise ValueError(f"{len(blanked.places)} blanks in {text!r}: mark one place with [MASK]")
        row, place = blanked.tokens, blanked.places[0]
    if network.window is not None and len(row) > network.window:
        raise ValueError(f"the text has {len(row)} tokens, and the model reads at most {network.window}: shorten it")
    tokens = torch.tensor([row], device=network.device)
    embedding = _embedding(network)
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), watching(network, embedding) as seen:
        if isinstance(network, NextTokenModel):
            scores = network.logits(network(tokens).hidden[:, -1])[0]
        else:
            at = torch.tensor([[place]], device=network.device)
            scores = filler.logits(filler.read(tokens=tokens, at=at)[:, 0])[0]
        chosen = int(scores.argmax()) if target is None else _token(tokenizer, target)
        if chosen >= len(scores):
            raise ValueError(f"target = {target!r} is read by its letters, but is no word that the model predicts")
        nats = scores.log_softmax(-1)[chosen]
        x = seen[embedding][-1]
        (gradient,) = torch.autograd.grad(nats, x)
    values: Tensor = (gradient * x).sum(-1).reshape(-1)[-len(row) :].detach()
    shown = [tokenizer.show(token) for token in row]
    return Attribution(tokenizer.show(chosen), math.exp(float(nats.detach())), shown, values.double().tolist())


def _attribute_class(predictor: Any, text: str, target: str | None) -> Attribution:
    """The same of a class, by the head over the vectors of the model: what is explained is what `predict` says."""
    network, task = predictor.model, predictor.task
    if task.name != "classification":
        raise ValueError(
            f"this run does {task.name}, and gradients explain the next token, a blank or the class of a text: take a "
            "classifier, or the run that this one was fine-tuned from"
        )
    if not isinstance(network, Model):
        raise ValueError(f"{name_of(network)} has no gradients: take a neural model")
    labels = task.config.labels
    if target is not None and target not in labels:
        raise ValueError(f"target = {target!r} is no class of this run; allowed: {', '.join(labels)}")
    embedding = _embedding(network)
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), watching(network, embedding) as seen:
        scores, batch = predictor.score_classes(text.split("\t"))
        chosen = int(scores.argmax()) if target is None else labels.index(target)
        nats = scores.log_softmax(-1)[chosen]
        found = torch.autograd.grad(nats, seen[embedding], allow_unused=True)
    if "tokens" not in batch.inputs:
        raise ValueError(f"{name_of(network)} reads no single row of tokens: take a model that does")
    rows = batch.inputs["tokens"]  # [B, T]: a pair may be read in both orders
    parts = [
        torch.zeros(x.shape[:2]) if gradient is None else (gradient * x).sum(-1).detach().cpu()
        for gradient, x in zip(found, seen[embedding], strict=True)
    ]
    values = torch.cat([each.reshape(len(rows), -1) for each in parts], dim=1)[:, -rows.shape[1] :]  # [B, T]
    real = torch.arange(rows.shape[1]) < batch.inputs["lengths"].cpu()[:, None]
    shown = [task.tokenizer.show(int(token)) for token in rows.cpu()[real]]
    return Attribution(labels[chosen], math.exp(float(nats.detach())), shown, values[real].double().tolist())


def _embedding(network: torch.nn.Module) -> str:
    """The name of the table of token vectors."""
    names: list[str] = [name for name, module in network.named_modules() if isinstance(module, torch.nn.Embedding)]
    found: list[str] = [name for name in names if name.rpartition(".")[2] == "embedding"]
    if not found:
        raise ValueError(f"{name_of(network)} has no table of token vectors to take gradients at")
    return found[0]


def _token(tokenizer: Any, target: str) -> int:
    """The one token that a target is: with a space before it, where tokens carry one."""
    ids = tokenizer.encode(f" {target.strip()}") if not target.startswith(" ") else tokenizer.encode(target)
    real = [token for token in ids if tokenizer.show(token).strip(" ▁Ġ")]
    if not real:
        raise ValueError(f"target = {target!r} has no token")
    if len(real) > 1:
        shown = ", ".join(repr(tokenizer.show(token)) for token in real[:8]) + ", …" * (len(real) > 8)
        raise ValueError(f"target = {target!r} is {len(real)} tokens ({shown}): one is predicted at a time; give one")
    return int(real[0])
