"""A tag for each word: names, parts of speech, chunks; with or without a conditional random field over the tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.data.readers.examples import Example
from lmlab.layers.crf import CRF, legal_tags
from lmlab.objectives.objective import IGNORE, Batch
from lmlab.progress import ReportProgress
from lmlab.tasks.heads import Classifier
from lmlab.tasks.lm_embeddings import STATES, LanguageStates, with_states
from lmlab.tasks.task import Item, Prediction, Task, TaskConfig
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, Row, pad_rows
from lmlab.tokenizers.spellings import spell_rows
from lmlab.tokenizers.words import Text, read_words


class TaggingConfig(TaskConfig):
    """How tags are learnt."""

    spelling: int | None = Field(
        None, ge=3, description="of taggers: the most characters of a word that are read, with its begin and end marks"
    )
    states: list[str] = Field(
        [], description="of taggers: runs whose frozen language models' states stand beside the words (TagLM)"
    )
    state_layers: Literal["last", "mix"] = Field(
        "last", description="of states: the last layer, or a mix of all layers that the tagger learns (ELMo)"
    )
    vectors: str | None = Field(
        None, description="of taggers: file of word vectors to begin with, in word2vec's or GloVe's text format"
    )
    crf: bool = Field(False, description="a linear-chain conditional random field over the tags (Lafferty et al. 2001)")


class Tagging(Task):
    """Scores of each word's tags from the vector of its first piece (Devlin et al. 2019, section 5.3)."""

    Config: ClassVar[type[TaskConfig]] = TaggingConfig
    name: ClassVar[str] = "tagging"
    config: TaggingConfig

    def __init__(self, config: TaskConfig, tokenizer: Tokenizer, frame: Frame) -> None:
        super().__init__(config, tokenizer, frame)
        self.language = LanguageStates(self.config.states, layers=self.config.state_layers)

    def open(self, run: Path) -> None:
        self.language = self.language.kept_in(run / STATES)

    def outside(self, run: Path) -> list[str]:
        return [folder for folder in self.language.folders if not Path(folder).is_relative_to(run)]

    def complete(self, items: Sequence[Item], *, run: Path, progress: ReportProgress | None = None) -> Sequence[Item]:
        if not self.config.states:
            return items
        self.language.keep(run / STATES)
        return with_states(self.language, items, progress=progress)

    def completion_flops(self, items: Sequence[Item]) -> float:
        return self.language.flops([item.words or () for item in items]) if self.config.states else 0.0

    def outline(self, raw: Sequence[Item]) -> Batch:
        batch = super().batch(raw)
        if raw[0].vectors is None and self.config.spelling is not None:
            batch.inputs["spellings"] = spell_rows([item.words or () for item in raw], longest=self.config.spelling)
        return batch

    def batch(self, raw: Sequence[Item], generator: np.random.Generator | None = None) -> Batch:
        batch = self.outline(raw)
        if raw[0].vectors is None and self.config.states:
            states = [item.states for item in raw]
            if any(each is None for each in states):
                states = list(self.language.read([item.words or () for item in raw]))
            batch.inputs["states"], _ = pad_rows([torch.from_numpy(np.array(each, np.float32)) for each in states])
        return batch

    def items(self, examples: Sequence[Example]) -> list[Item]:
        """Each sentence as one item, or as several where it does not fit into the window."""
        known = {label: number for number, label in enumerate(self.config.labels)}
        found = []
        for number, example in enumerate(examples):
            assert not isinstance(example.a, str)
            if wrong := [tag for tag in example.label or () if tag not in known]:
                raise ValueError(f"{example.where}: tag {wrong[0]!r} is not among {', '.join(known)}")
            tags = None if example.label is None else [known[tag] for tag in example.label]
            text = read_words(example.a, self.tokenizer)
            for first, end in self._cut(text, len(example.a)):
                firsts = text.first_pieces()
                begin = firsts[first] if first else 0
                stop = firsts[end] if end < len(example.a) else len(text.pieces)
                places = {word: firsts[word] - begin for word in range(first, end)}
                label = None if tags is None else tags[first:end]
                if label and first and self.config.crf:
                    label[0] = self._begin(label[0])
                words = tuple(example.a[first:end])
                found.append(Item(number, {"a": text.pieces[begin:stop]}, label, places, words=words))
        return found

    def _begin(self, tag: int) -> int:
        """The tag with which a part of a sentence may begin that was cut within a span: B for I."""
        name, labels = self.config.labels[tag], self.config.labels
        begun = f"B{name[1:]}"
        inside = self.config.scheme is not None and name.startswith("I-") and begun in labels
        return labels.index(begun) if inside else tag

    def _cut(self, text: Text, words: int) -> Iterator[tuple[int, int]]:
        """The words, from and to, of each piece of a sentence that fits into the window."""
        firsts = text.first_pieces()
        ends = [firsts[word + 1] if word + 1 < words else len(text.pieces) for word in range(words)]
        room = None if self.frame.window is None else self.frame.window - self.frame.overhead(self.frame.reads, "a")
        first = 0
        for word in range(words):
            begin = firsts[first] if first else 0
            if room is not None and word > first and ends[word] - begin > room:
                yield first, word
                first = word
        if words:
            yield first, words

    def targets(self, items: Sequence[Item], rows: Sequence[Row] | None) -> tuple[dict[str, Tensor], int]:
        words = [len(item.places or ()) for item in items]
        tags, _ = pad_rows([item.label or [IGNORE] * n for item, n in zip(items, words, strict=True)], pad=IGNORE)
        count = sum(n for item, n in zip(items, words, strict=True) if item.label is not None)
        return {"label": tags, "words": torch.tensor(words)}, count

    def places(self, items: Sequence[Item], rows: Sequence[Row]) -> dict[str, Tensor]:
        if not items:
            return {"at": torch.zeros(len(rows), 1, dtype=torch.long)}
        found = []
        for item, row in zip(items, rows, strict=True):
            standing = next(iter(row.inputs.values())).places("a")
            found.append([standing.get(piece, 0) for piece in (item.places or {}).values()])
        return {"at": pad_rows(found)[0]}

    def make_head(self, width: int) -> dict[str, nn.Module]:
        classes = len(self.config.labels)
        heads: dict[str, nn.Module] = {"label": Classifier(width, classes, dropout=self.config.dropout)}
        if self.config.crf:
            heads["crf"] = CRF(classes, legal=legal_tags(self.config.labels, scheme=self.config.scheme))
        return heads

    def score(self, heads: Mapping[str, nn.Module], vectors: Tensor, batch: Batch) -> Tensor:
        scores: Tensor = heads["label"](vectors)
        return scores

    def total(self, heads: Mapping[str, nn.Module], scores: Tensor, batch: Batch) -> Tensor:
        tags = batch.labels["label"]
        if "crf" not in heads:
            return F.cross_entropy(scores.flatten(0, 1), tags.flatten(), reduction="sum", ignore_index=IGNORE)
        known = tags[:, 0] != IGNORE
        crf: Any = heads["crf"]
        total: Tensor = crf.nll(scores[known], tags[known].clamp(min=0), batch.labels["words"][known]).sum()
        return total

    def decode(self, heads: Mapping[str, nn.Module], scores: Tensor, items: Sequence[Item]) -> list[Any]:
        words = torch.tensor([len(item.places or ()) for item in items])
        shares = scores.float().softmax(-1).cpu()
        if "crf" in heads:
            crf: Any = heads["crf"]
            best = crf.decode(scores, words.to(scores.device))
        else:
            best = [row[:n] for row, n in zip(scores.argmax(-1).tolist(), words.tolist(), strict=True)]
        return [(tags, shares[row, torch.arange(len(tags)), tags].tolist()) for row, tags in enumerate(best)]

    def predictions(
        self, examples: Sequence[Example], items: Sequence[Item], decoded: Sequence[Any]
    ) -> list[Prediction]:
        tags: list[list[str]] = [[] for _ in examples]
        shares: list[list[float]] = [[] for _ in examples]
        for item, (found, probabilities) in zip(items, decoded, strict=True):
            tags[item.number] += [self.config.labels[tag] for tag in found]
            shares[item.number] += probabilities
        return [Prediction(tuple(own), min(each, default=None)) for own, each in zip(tags, shares, strict=True)]
