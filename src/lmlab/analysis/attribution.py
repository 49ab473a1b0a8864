"""Attribution: which tokens a prediction depends on, by gradients.

Gradient × input (Simonyan et al. 2014; Shrikumar et al. 2017) gives each token i of one text the value

    a_i = x_i · ∂ log P(target) / ∂ x_i

with x_i the vector of the token as it enters the model: to first order, the change of the prediction when that vector
grows. It is negative where a token lowers the probability of the prediction. `gradient_by_distance` gives the size of
the gradient as a function of the distance to the prediction, averaged over a text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lmlab.analysis.view import Viewed
from lmlab.decoding.masked_text import encode_masked_text
from lmlab.layers.watching import watching
from lmlab.messages import ArgumentError
from lmlab.models import name_of
from lmlab.models.abilities import FillsMasks, PredictsNext, require
from lmlab.models.model import Model, NextTokenModel
from lmlab.pages.figures import Bar, Bars, ColouredText, Figure, Lines
from lmlab.pages.views import Table
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
        explained = most if self.values[best] > 0 else "to first order no token speaks for it"
        return f"“{_word(self.target)}” has a probability of {self.probability:.2%}; {explained}."

    def notes(self) -> list[str]:
        return ["gradient × input: to first order only. Credit between redundant tokens is arbitrary."]

    def table(self) -> Table:
        rows = [(i, token, value) for i, (token, value) in enumerate(zip(self.tokens, self.values, strict=True))]
        return Table(("position", "token", "gradient × input"), rows, ("d", "", "+.4f"))

    def figures(self) -> list[Figure]:
        most = max(map(abs, self.values), default=1.0) or 1.0
        pieces = [(token, value) for token, value in zip(self.tokens, self.values, strict=True)]
        drawn: list[Figure] = [ColouredText(f"For “{self.target.strip()}”", pieces, most, unit="+.3f", spaced=True)]
        if len(pieces) <= MOST_BARS:
            drawn.append(
                Bars("By token", [Bar(f"{i} {t}", v) for i, (t, v) in enumerate(pieces)], unit="+.3f", line=0.0)
            )
        return drawn


def attribute(model: Any, text: str, *, prediction: str | None = None) -> Attribution:
    """Attribute the prediction of the next token, or of one masked token, to the tokens of a text.

    `model` is a LanguageModel that predicts the next token or masked tokens, and is a network. For one that was
    fine-tuned to classify, the class is explained; a tab separates the two texts of a pair.
    """
    if getattr(model, "own_predictor", None) is not None:
        return _attribute_class(model.predictor, text, prediction)
    network, tokenizer, frame = model.model, model.text_tokenizer, model.frame
    if not isinstance(network, Model):
        raise ValueError(f"{name_of(network)} has no gradients: use a neural model")
    reads_on = isinstance(network, PredictsNext)
    if reads_on:
        row, position = prompt_tokens(frame, tokenizer.encode(text)), -1
    else:
        filler = require(network, FillsMasks)
        masked = encode_masked_text(text, tokenizer, frame)
        if len(masked.positions) != 1:
            raise ValueError(f"{len(masked.positions)} masks in {text!r}: give a text with one [MASK]")
        row, position = masked.tokens, masked.positions[0]
    if network.window is not None and len(row) > network.window:
        raise ValueError(f"the text has {len(row)} tokens, and the model reads at most {network.window}: shorten it")
    tokens = torch.tensor([row], device=network.device)
    embedding = _embedding(network)
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), watching(network, embedding) as seen:
        if isinstance(network, NextTokenModel):
            scores = network.logits(network(tokens).hidden[:, -1])[0]
        else:
            at = torch.tensor([[position]], device=network.device)
            scores = filler.logits(filler.read(tokens=tokens, at=at)[:, 0])[0]
        chosen = int(scores.argmax()) if prediction is None else _token(tokenizer, prediction)
        if chosen >= len(scores):
            raise ArgumentError(
                "prediction", repr(prediction), "the model reads it by its letters, and never predicts it"
            )
        nats = scores.log_softmax(-1)[chosen]
        x = seen[embedding][-1]
        (gradient,) = torch.autograd.grad(nats, x)
    values: Tensor = (gradient * x).sum(-1).reshape(-1)[-len(row) :].detach()
    shown = [tokenizer.show(token) for token in row]
    return Attribution(tokenizer.show(chosen), math.exp(float(nats.detach())), shown, values.double().tolist())


def _attribute_class(predictor: Any, text: str, prediction: str | None) -> Attribution:
    """The same of a class, by the head over the vectors of the model: what is explained is what `predict` says."""
    network, task = predictor.model, predictor.task
    if task.name != "classification":
        raise ValueError(
            f"this run does {task.name}, and gradients explain the next token, a masked token or the class of a "
            f"text: use a "
            "classifier, or the run that this one was fine-tuned from"
        )
    if not isinstance(network, Model):
        raise ValueError(f"{name_of(network)} has no gradients: use a neural model")
    labels = task.config.labels
    if prediction is not None and prediction not in labels:
        raise ArgumentError("prediction", repr(prediction), f"no class of this run; allowed: {', '.join(labels)}")
    embedding = _embedding(network)
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), watching(network, embedding) as seen:
        scores, batch = predictor.score_classes(text.split("\t"))
        chosen = int(scores.argmax()) if prediction is None else labels.index(prediction)
        nats = scores.log_softmax(-1)[chosen]
        found = torch.autograd.grad(nats, seen[embedding], allow_unused=True)
    if "tokens" not in batch.inputs:
        raise ValueError(f"{name_of(network)} does not read a single row of tokens: use a model that does")
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


def _token(tokenizer: Any, prediction: str) -> int:
    """The one token of a word: with a space before it, where tokens include it."""
    text = prediction if prediction.startswith(" ") else f" {prediction.strip()}"
    ids = tokenizer.encode(text)
    real = [token for token in ids if tokenizer.show(token).strip(" ▁Ġ")]
    if not real:
        raise ArgumentError("prediction", repr(prediction), "it has no token")
    if len(real) > 1:
        shown = ", ".join(repr(tokenizer.show(token)) for token in real[:8]) + ", …" * (len(real) > 8)
        raise ArgumentError("prediction", repr(prediction), f"give one token; these are {len(real)}: {shown}")
    return int(real[0])


STRETCHES, AT_ONCE = 64, 16
"""Stretches of a text over which the mean is taken, and those that are read at once."""


def gradient_by_distance(model: NextTokenModel, tokens: Tensor) -> Tensor:
    """‖∂ loss / ∂ x_{T−d}‖ for each distance d: how much the last prediction depends on the embedding d tokens back.

    tokens [B, T+1] -> mean norm over the batch [T]; entry 0 belongs to the token just before the predicted one. In a
    simple RNN it falls (vanishes) or grows (explodes) exponentially with d, because ∂h_t/∂h_{t−d} is a product of d
    Jacobians (Bengio et al. 1994, Pascanu et al. 2013); gates are there to keep it up.
    """
    if tokens.dim() != 2 or tokens.shape[1] < 2:
        raise ValueError(f"tokens of shape {tuple(tokens.shape)}: give [B, T+1] with T of at least 1")
    was_training = model.training
    try:
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), watching(model, "embedding") as seen:
            hidden = model.eval()(tokens[:, :-1]).hidden[:, -1]
            loss = model.nll(hidden, tokens[:, -1]).sum()
            (gradient,) = torch.autograd.grad(loss, seen["embedding"][-1])  # [B, T, D]
    finally:
        model.train(was_training)
    length = tokens.shape[1] - 1
    norms: Tensor = torch.linalg.vector_norm(gradient[:, -length:], dim=-1)
    return torch.flip(norms.mean(dim=0), [0])


class Reach(NamedTuple):
    """The mean norm of the gradient at each distance: the first is that of the token just before the predicted one."""

    run: str
    norms: list[float]

    def fraction(self, distance: int) -> float:
        """What is left of the gradient at a distance, which is 1 for the token just before."""
        return self.norms[distance - 1] / self.norms[0] if self.norms[0] else math.nan


@dataclass(frozen=True)
class GradientsByDistance(Viewed):
    """How far back the predictions of runs depend on what was read."""

    runs: list[Reach]
    stretches: int
    title: str = field(default="Gradients by distance", init=False)

    @property
    def farthest(self) -> int:
        return min(len(each.norms) for each in self.runs)

    def lead(self) -> str:
        explained = ", ".join(f"{each.fraction(self.farthest):.2g} in {each.run}" for each in self.runs)
        return (
            f"Of the gradient just before a prediction, this fraction is left {self.farthest} tokens back: {explained}."
        )

    def notes(self) -> list[str]:
        return [
            f"mean over {self.stretches} stretches of text, each read from a fresh state, in a run's own tokens",
            "in a simple RNN it falls or grows exponentially (Bengio et al. 1994, Pascanu et al. 2013); what a "
            "gradient reaches can be learnt from, but need not be",
        ]

    def table(self) -> Table:
        rows = [(d, *(each.norms[d - 1] for each in self.runs)) for d in range(1, self.farthest + 1)]
        return Table(("distance", *(each.run for each in self.runs)), rows, ("d", *[".3g"] * len(self.runs)))

    def figures(self) -> list[Figure]:
        steps = [str(distance) for distance in range(1, self.farthest + 1)]
        left = [(each.run, [each.fraction(d) for d in range(1, self.farthest + 1)]) for each in self.runs]
        lines = [(run, [math.log10(value) if value > 0 else math.nan for value in own]) for run, own in left]
        return [Lines("log₁₀ of the norm, against that at distance 1", steps, lines, ".1f", "tokens back")]


def read_gradients(models: Mapping[str, Any], text: str, *, distance: int = 32) -> GradientsByDistance:
    """How far back LanguageModels that predict the next token depend on a text, as a mean over stretches of it."""
    if distance < 2:
        raise ArgumentError("by_distance", distance, "give 2 or more")
    found, fewest = [], STRETCHES
    for name, model in models.items():
        network = model.model
        if not isinstance(network, NextTokenModel) or "embedding" not in dict(network.named_children()):
            raise ValueError(
                f"{name}: {name_of(network)} has no gradients from the next token to embeddings; use a neural "
                "model that predicts the next token, such as rnn, lstm or gpt2"
            )
        if network.window is not None and network.window < distance:
            raise ArgumentError("by_distance", distance, f"{name} reads at most {network.window} tokens")
        ids = torch.tensor(model.text_tokenizer.encode(text), dtype=torch.long, device=network.device)
        count = min(STRETCHES, len(ids) // (distance + 1))
        if not count:
            raise ValueError(f"{len(ids)} tokens of text for {name}: give more than {distance}, or a lower distance")
        apart = len(ids) // count
        rows = torch.stack([ids[n * apart : n * apart + distance + 1] for n in range(count)])  # [B, T+1]
        parts = [gradient_by_distance(network, part) * len(part) for part in torch.split(rows, AT_ONCE)]
        found.append(Reach(name, (torch.stack(parts).sum(0) / count).double().tolist()))
        fewest = min(fewest, count)
    return GradientsByDistance(found, fewest)
