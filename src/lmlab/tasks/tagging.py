"""A tag for each word: names, parts of speech, chunks; with or without a conditional random field over the tags.

Data flow: `items` splits sentences into parts that fit the window; `batch` pads them, with spellings and the states of
frozen language models; `positions` says which vectors are read, the first piece of each word; `score` gives the scores
of the tags, from which `loss_of` computes the loss, and `decode` and `predictions` the tags. tasks/task.py calls them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.data.corpora.checking import LabelSummary, format_counts
from lmlab.data.corpora.examples import all_examples
from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.labelled.labels import find_labels
from lmlab.layers.crf import CRF, legal_tags
from lmlab.metrics.metric import Metric
from lmlab.metrics.tagging import SpanF1, SpanPrecision, SpanRecall, TagAccuracy, scores_by_type
from lmlab.models.defaults import TaskDefaults
from lmlab.objectives.objective import IGNORE, Batch
from lmlab.pages.evidence import Evidence, TypeScores
from lmlab.progress import ReportProgress
from lmlab.tasks import evidence
from lmlab.tasks.heads import Classifier
from lmlab.tasks.lm_embeddings import STATES, LanguageStates, with_states
from lmlab.tasks.records import Item, Prediction, TaskConfig, Wording
from lmlab.tasks.task import order_metrics
from lmlab.tasks.text_task import TextTask, TextTaskConfig
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, Row, pad_rows
from lmlab.tokenizers.spellings import spell_rows
from lmlab.tokenizers.words import read_words


class TaggingConfig(TextTaskConfig):
    """Settings of tagging."""

    spelling: int | None = Field(
        None, ge=3, description="tagger: most characters of a word, with its begin and end marks"
    )
    states: list[str] = Field(
        [], description="tagger: runs of frozen language models whose states are added to the words (TagLM)"
    )
    state_layers: Literal["last", "mix"] = Field(
        "last", description="tagger with states: their last layer, or a learnt mix of all layers (ELMo)"
    )
    vectors: str | None = Field(
        None, description="tagger: file of initial word vectors, in word2vec's or GloVe's text format"
    )
    crf: bool = Field(False, description="a linear-chain conditional random field over the tags (Lafferty et al. 2001)")


class Tagging(TextTask):
    """Scores of each word's tags from the vector of its first piece (Devlin et al. 2019, section 5.3)."""

    Config: ClassVar[type[TaskConfig]] = TaggingConfig
    name: ClassVar[str] = "tagging"
    config: TaggingConfig

    wording: ClassVar[Wording] = Wording(
        goal="to tag words",
        action="tags words",
        files="a CoNLL file, or JSON with lists of words and tags",
        too_long="are read in parts",
        input='"the words of a sentence"',
        ending="conll",
    )
    baselines: ClassVar[Mapping[str, str]] = {
        "majority": "lmlab.baselines.majority:MajorityTag",
        "bag of words": "lmlab.baselines.word_tagger:WordTagger",
    }

    def __init__(self, config: TaskConfig, tokenizer: Tokenizer | None = None, frame: Frame | None = None) -> None:
        super().__init__(config, tokenizer, frame)
        self.language = LanguageStates(self.config.states, layers=self.config.state_layers)

    @classmethod
    def settings_from(cls, labelled: Labelled, defaults: TaskDefaults, *, frozen: bool) -> dict[str, Any]:
        return {**super().settings_from(labelled, defaults, frozen=frozen), "scheme": scheme_of(labelled)}

    @classmethod
    def labels_of(cls, labelled: Labelled) -> tuple[str, ...]:
        examples = [example for example in all_examples(labelled) if example.label is not None]
        return find_labels(examples, scheme=scheme_of(labelled))

    @classmethod
    def summarise_labels(cls, labelled: Labelled) -> LabelSummary:
        tags = Counter(tag for example in labelled.train for tag in example.label)
        if labelled.scheme is None:
            return LabelSummary(counts=tags, lines=format_counts(tags, "tags"))
        spans = {tag.partition("-")[2] or tag: number for tag, number in tags.items() if tag.startswith("B")}
        kinds = f"kind{'s' * (len(spans) != 1)} of spans, {sum(spans.values()):,} in all"
        return LabelSummary(counts=spans, lines=format_counts(spans, kinds))  # every span begins once, and O is none

    @classmethod
    def metrics_of(cls, config: TaskConfig) -> dict[str, Metric]:
        assert isinstance(config, TextTaskConfig)
        offered: tuple[Metric, ...] = (SpanF1(), SpanPrecision(), SpanRecall(), TagAccuracy())
        return order_metrics(cls.name, offered if config.scheme else (TagAccuracy(),), main=config.metric)

    @classmethod
    def show_evidence(cls, lines: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Evidence:
        predicted, true = [line["predicted"] for line in lines], [line["true"] for line in lines]
        found: dict[str, Any]
        if any(label.partition("-")[0] == "B" for label in labels):
            by_type = scores_by_type(predicted, true)
            found = {"types": [TypeScores(name, **each._asdict()) for name, each in by_type.items()]}
        else:
            pairs = Counter(pair for line in lines for pair in zip(line["true"], line["predicted"], strict=True))
            found = evidence.count_confusions(pairs, labels)
        return evidence.make_evidence(
            lines,
            [one == other for one, other in zip(predicted, true, strict=True)],
            describe=evidence.describe_tags,
            wrong="sentences have a wrong tag",
            note="Below a word is its tag; in red: predicted ≠ true.",
            counted="words",
            **found,
        )

    @property
    def pair(self) -> bool | None:
        """False: an example is one sentence."""
        return False

    def to_input(self, text: str | Sequence[str]) -> str | tuple[str, ...]:
        """The words of a text."""
        return split_words(text) if isinstance(text, str) else tuple(text)

    def find_fault(self, example: Example) -> str | None:
        """What is wrong with an example that a user gives in Python; None if nothing is."""
        words = not isinstance(example.a, str) and all(isinstance(word, str) for word in example.a)
        return None if words else "tagging reads the words of a sentence: give a list of words, each a str"

    def make_example(self, texts: Sequence[str]) -> Example:
        if not texts:
            raise ValueError("there is nothing to predict: give a text")
        return Example(split_words(" ".join(texts)))

    def format_prediction(self, example: Example, found: Prediction, *, top: int) -> str:
        pairs = zip(example.a, found.value, strict=True)
        line = " ".join(word if tag == "O" else f"{word}/{tag}" for word, tag in pairs)
        return f"{line}   (no spans)" if self.config.scheme is not None and set(found.value) == {"O"} else line

    def open(self, run: Path) -> None:
        """Use the copies of the frozen language models that a run keeps."""
        self.language = self.language.kept_in(run / STATES)

    def external_folders(self, run: Path) -> list[str]:
        """The frozen language models that are not inside a run, and so may be missing after it was moved."""
        return [folder for folder in self.language.folders if not Path(folder).is_relative_to(run)]

    def precompute(self, items: Sequence[Item], *, run: Path, progress: ReportProgress | None = None) -> Sequence[Item]:
        if not self.config.states:
            return items
        self.language.keep(run / STATES)
        return with_states(self.language, items, progress=progress)

    def precompute_flops(self, items: Sequence[Item]) -> float:
        return self.language.flops([item.words or () for item in items]) if self.config.states else 0.0

    def flops_batch(self, raw: Sequence[Item]) -> Batch:
        """A batch without the states of frozen language models: enough to count FLOPs, and quick to make."""
        batch = super().batch(raw)
        # item.vectors: outputs of a frozen model, computed before; then the model needs no further inputs.
        if raw[0].vectors is None and self.config.spelling is not None:
            batch.inputs["spellings"] = spell_rows([item.words or () for item in raw], longest=self.config.spelling)
        return batch

    def batch(self, raw: Sequence[Item], generator: np.random.Generator | None = None) -> Batch:
        batch = self.flops_batch(raw)
        if raw[0].vectors is None and self.config.states:
            states = [item.states for item in raw]
            if any(each is None for each in states):
                states = list(self.language.read([item.words or () for item in raw]))
            batch.inputs["states"], _ = pad_rows([torch.from_numpy(np.array(each, np.float32)) for each in states])
        return batch

    def items(self, examples: Sequence[Example]) -> list[Item]:
        """Each sentence as one item, or as several where it does not fit into the window."""
        tag_ids = {label: number for number, label in enumerate(self.config.labels)}
        items = []
        for number, example in enumerate(examples):
            assert not isinstance(example.a, str)
            if unknown := [tag for tag in example.label or () if tag not in tag_ids]:
                raise ValueError(f"{example.where}: tag {unknown[0]!r} is not among {', '.join(tag_ids)}")
            tags = None if example.label is None else [tag_ids[tag] for tag in example.label]
            text = read_words(example.a, self.tokenizer)
            first_pieces = text.first_pieces()
            # The first part begins at piece 0, which may be white space before the first word.
            starts = [first_pieces[word] if word else 0 for word in range(len(example.a))]
            ends = [*starts[1:], len(text.pieces)]
            for words in self._split_to_fit(starts, ends):
                start, end = starts[words[0]], ends[words[-1]]
                label = None if tags is None else tags[words.start : words.stop]
                if label and words.start and self.config.crf:
                    label[0] = self._as_first_tag(label[0])
                positions = {word: first_pieces[word] - start for word in words}
                part = tuple(example.a[words.start : words.stop])
                items.append(Item(number, {"a": text.pieces[start:end]}, label, positions, words=part))
        return items

    def _split_to_fit(self, starts: Sequence[int], ends: Sequence[int]) -> Iterator[range]:
        """Yield the words of each part that fits into the window; word i has the pieces from starts[i] to ends[i]."""
        frame, first, words = self.frame, 0, len(starts)
        room = None if frame.window is None else frame.window - frame.overhead(frame.reads, "a")
        for word in range(words):
            if room is not None and word > first and ends[word] - starts[first] > room:
                yield range(first, word)
                first = word
        if words:
            yield range(first, words)

    def _as_first_tag(self, tag: int) -> int:
        """B-X instead of I-X for a part that begins inside a span: the CRF forbids I-X at the start of a text.

        A span that is cut in two is thus predicted as two.
        """
        name, labels = self.config.labels[tag], self.config.labels
        begins = f"B{name[1:]}"
        inside = self.config.scheme is not None and name.partition("-")[0] == "I" and begins in labels
        return labels.index(begins) if inside else tag

    def targets(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], int]:
        words = [len(item.positions or ()) for item in items]
        tags, _ = pad_rows([item.label or [IGNORE] * n for item, n in zip(items, words, strict=True)], pad=IGNORE)
        count = sum(n for item, n in zip(items, words, strict=True) if item.label is not None)
        return {"label": tags, "words": torch.tensor(words)}, count

    def positions(self, items: Sequence[Item], rows: Sequence[Row]) -> dict[str, Tensor]:
        if not items:
            return {"at": torch.zeros(len(rows), 1, dtype=torch.long)}
        found = []
        for item, row in zip(items, rows, strict=True):
            pieces = next(iter(row.inputs.values())).positions("a")
            # A word whose first piece was truncated gets the vector at position 0.
            found.append([pieces.get(piece, 0) for piece in (item.positions or {}).values()])
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

    def loss_of(self, heads: Mapping[str, nn.Module], scores: Tensor, batch: Batch) -> Tensor:
        tags = batch.labels["label"]
        if "crf" not in heads:
            return F.cross_entropy(scores.flatten(0, 1), tags.flatten(), reduction="sum", ignore_index=IGNORE)
        known = tags[:, 0] != IGNORE
        crf: Any = heads["crf"]
        total: Tensor = crf.nll(scores[known], tags[known].clamp(min=0), batch.labels["words"][known]).sum()
        return total

    def decode(self, heads: Mapping[str, nn.Module], scores: Tensor, items: Sequence[Item]) -> list[Any]:
        """The best tags of each item, and the softmax of each tag at its word (also with a CRF: no marginals)."""
        words = torch.tensor([len(item.positions or ()) for item in items])
        probabilities = scores.float().softmax(-1).cpu()
        if "crf" in heads:
            crf: Any = heads["crf"]
            best = crf.decode(scores, words.to(scores.device))
        else:
            best = [row[:n] for row, n in zip(scores.argmax(-1).tolist(), words.tolist(), strict=True)]
        return [(tags, probabilities[row, torch.arange(len(tags)), tags].tolist()) for row, tags in enumerate(best)]

    def predictions(
        self, examples: Sequence[Example], items: Sequence[Item], decoded: Sequence[Any]
    ) -> list[Prediction]:
        tags: list[list[str]] = [[] for _ in examples]
        confidence: list[list[float]] = [[] for _ in examples]
        for item, (found, probabilities) in zip(items, decoded, strict=True):
            tags[item.number] += [self.config.labels[tag] for tag in found]
            confidence[item.number] += probabilities
        # A sentence is as confident as its least confident tag.
        return [Prediction(tuple(own), min(each, default=None)) for own, each in zip(tags, confidence, strict=True)]


def scheme_of(labelled: Labelled) -> str | None:
    """The scheme of the tags as the reader gives them: IOB2, whatever the file has; None for plain tags."""
    return "IOB2" if labelled.scheme else None


def split_words(text: str) -> tuple[str, ...]:
    """The words of a sentence, punctuation marks as separate words.

    A word with a full stop inside (U.S., 3.5) stays whole, with the marks around it, as do marks alone (...).
    """
    found: list[str] = []
    for word in text.split():
        match = re.fullmatch(r"([(\[{\"“‘]*)(.*?)([.,;:!?)\]}\"”’…]*)", word, re.S)
        before, core, after = ("", "", "") if match is None else match.groups()
        if not core or "." in core:
            before, core, after = "", word, ""
        found += [*before, core, *after]
    return tuple(found)
