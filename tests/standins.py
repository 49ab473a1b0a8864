"""Tiny models that meet the contract in three ways (a table, a recurrent net, a net with a window), and tiny runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmlab.language_model import LanguageModel
from lmlab.models import create, load_class
from lmlab.models.model import NextTokenModel, Output, TokenModelConfig
from lmlab.runs.model_files import model_tensors, write_config
from lmlab.runs.storage import write_tensors
from lmlab.tokenizers import Tokenizer, train

TEXT = (
    "the cat sat on the mat .\nthe dog sat on the log .\na cat and a dog ran to the mat .\n"
    "the naïve café costs 5 € 😀 .\n"
) * 12
SETTINGS: dict[str, dict[str, Any]] = {
    "ngram": {"order": 3},
    "lstm": {"width": 16, "layers": 1},
    "gpt2": {"width": 16, "heads": 2, "layers": 2, "window": 16},
}


class Table:
    """A trigram: the scores of the next token are looked up by the last two. Its state is the last token [B, 1]."""

    window = None
    device = torch.device("cpu")

    def offers(self) -> tuple[object, ...]:
        return (self,)

    def __init__(self, vocabulary: int, *, seed: int = 0, scale: float = 1.5) -> None:
        self.vocabulary = vocabulary
        generator = torch.Generator().manual_seed(seed)
        self.scores = torch.randn(vocabulary, vocabulary, vocabulary, generator=generator) * scale

    def start(self, batch_size: int) -> Tensor:
        return torch.zeros(batch_size, 1, dtype=torch.long)

    def _logits(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([state, tokens], dim=1)
        return self.scores[both[:, :-1], both[:, 1:]], both[:, -1:]

    def step(self, tokens: Tensor, state: Tensor, **inputs: Any) -> tuple[Tensor, Tensor]:
        logits, state = self._logits(tokens, state)
        return logits[:, -1], state

    def score(self, tokens: Tensor, targets: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        logits, state = self._logits(tokens, state)
        return -logits.log_softmax(-1).gather(2, targets[:, :, None]).squeeze(2), state

    def log_probability(self, text: list[int], *, boundary: int) -> float:
        """By the definition, one token after another."""
        total, before = 0.0, [0, boundary]
        for token in text:
            total += self.scores[before[-2], before[-1]].double().log_softmax(-1)[token].item()
            before.append(token)
        return total


class Softmax(nn.Linear):
    def logits(self, hidden: Tensor) -> Tensor:
        return self(hidden)

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self(hidden), targets, reduction="none")

    def total(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return self.nll(hidden, targets).sum()


class TinyGRU(NextTokenModel):
    """Its state holds any length."""

    def __init__(self, vocabulary: int, *, width: int = 16, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.config = TokenModelConfig(vocabulary=vocabulary)
        self.embedding = nn.Embedding(vocabulary, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.output = Softmax(width, vocabulary)
        self.output.weight.data *= 4
        self.eval()

    def forward(self, tokens: Tensor, *, state: Any = None) -> Output:
        hidden, last = self.recurrent(
            self.embedding(tokens), None if state is None else state.transpose(0, 1).contiguous()
        )
        return Output(hidden, last.transpose(0, 1))


class TinyWindow(NextTokenModel):
    """A running mean over at most `window` tokens, each with its position; more tokens in one state are an error.

    It counts how many tokens it has read, to show what a decoding loop costs.
    """

    def __init__(self, vocabulary: int, *, window: int = 8, width: int = 16, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.config = TokenModelConfig(vocabulary=vocabulary)
        self._window = window
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(window, width)
        self.mix = nn.Linear(width, width)
        self.output = Softmax(width, vocabulary)
        self.output.weight.data *= 6
        self.read = 0
        self.eval()

    @property
    def window(self) -> int:
        return self._window

    def start(self, batch_size: int) -> tuple[Tensor, Tensor]:
        width = self.embedding.embedding_dim
        return torch.zeros(batch_size, width), torch.zeros(batch_size, 1, dtype=torch.long)

    def forward(self, tokens: Tensor, *, state: Any = None) -> Output:
        total, place = self.start(len(tokens)) if state is None else state
        places = place + torch.arange(tokens.shape[1])
        self.read += tokens.shape[1]
        vectors = torch.tanh(self.mix(self.embedding(tokens) + self.positions(places)))  # IndexError past the window
        sums = total[:, None] + vectors.cumsum(1)
        return Output(sums / (places + 1)[:, :, None].sqrt(), (sums[:, -1], places[:, -1:] + 1))


def write_run(folder: Path, kind: str, *, spec: str = "bpe:300", text: str = TEXT) -> Path:
    """A run directory without training: an n-gram that has counted a text, or a net with random weights."""
    tokenizer = train(spec, [text])
    tokenizer.save(folder / "tokenizer.json")
    cls = load_class(kind)
    settings = {"vocabulary": tokenizer.vocabulary, **SETTINGS[kind]}
    if kind == "ngram":
        config = cls.Config(**settings, boundary=tokenizer.boundary)
        stream = np.array([tokenizer.boundary, *tokenizer.encode(text), tokenizer.boundary])
        tensors = cls.fit(stream, config=config).tensors()
    else:
        torch.manual_seed(0)
        config = cls.Config(**settings)
        model = cls(config)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.data.normal_(std=0.5)
        tensors = model_tensors(model)
    write_config(folder, kind, config.model_dump())
    write_tensors(folder / "model.safetensors", tensors)
    return folder


def random_model(kind: str, tokenizer: Tokenizer, *, std: float = 0.3, **settings: Any) -> LanguageModel:
    """A model with random weights that are large enough for its layers, and its answers, to differ."""
    model = create(kind, {"vocabulary": tokenizer.vocabulary, **settings}).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=std)
    return LanguageModel(model=model, tokenizer=tokenizer)
