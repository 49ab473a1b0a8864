"""Answers in a context: scores of where they begin and end (Devlin et al. 2019, sections 4.2 and 4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from lmlab.data.corpora.checking import LabelSummary
from lmlab.data.readers.examples import Answer, Example, Labelled
from lmlab.metrics.answers import AnswerF1, ExactMatch
from lmlab.metrics.metric import Metric
from lmlab.models.defaults import TaskDefaults
from lmlab.objectives.objective import IGNORE, Batch
from lmlab.pages.evidence import Evidence
from lmlab.tasks import evidence
from lmlab.tasks.heads import Classifier
from lmlab.tasks.records import Item, Prediction, TaskConfig, Wording
from lmlab.tasks.task import order_metrics
from lmlab.tasks.text_task import TextTask, TextTaskConfig
from lmlab.tokenizers.frames import Row, pad_rows
from lmlab.tokenizers.words import SplitText, read_text


class SpansConfig(TextTaskConfig):
    """Settings of question answering."""

    unanswerable: bool = Field(False, description="whether a context may have no answer, as in SQuAD 2.0")
    threshold: float = Field(
        0.0, description="of unanswerable: how much the score of no answer must be above the best answer's"
    )
    stride: int = Field(64, ge=1, description="tokens by which the windows of a long context overlap")
    longest: int = Field(30, ge=1, description="most tokens of an answer")
    best: int = Field(5, ge=1, description="number of answers, the best first")


class Spans(TextTask):
    """Cross-entropy of the first and of the last piece of the answer, in each window of the context."""

    Config: ClassVar[type[TaskConfig]] = SpansConfig
    name: ClassVar[str] = "spans"
    config: SpansConfig
    groups_by_context: ClassVar[bool] = True
    wording: ClassVar[Wording] = Wording(
        goal="to find answers in a text",
        action="finds answers in a text",
        files="a SQuAD file",
        too_long="are read in overlapping windows",
        resampled="paragraphs",
        input='--context page.txt "a question?"',
        ending="json",
    )
    baselines: ClassVar[Mapping[str, str]] = {
        "majority": "lmlab.baselines.majority:MajorityAnswer",
        "bag of words": "lmlab.baselines.span_baselines:AnswerOverlap",
    }

    @classmethod
    def settings_from(cls, labelled: Labelled, defaults: TaskDefaults, *, frozen: bool) -> dict[str, Any]:
        return {
            **super().settings_from(labelled, defaults, frozen=frozen),
            "pool": "cls" if defaults.pool == "cls" else "last",  # the vector that scores no answer
            "unanswerable": any(example.label == () for example in labelled.train),
        }

    @classmethod
    def summarise_labels(cls, labelled: Labelled) -> LabelSummary:
        count = sum(not example.label for example in labelled.train)
        lines = [f"without an answer: {count:,} of {len(labelled.train):,}"] if count else []
        return LabelSummary(unanswered=count, lines=lines)

    @classmethod
    def metrics_of(cls, config: TaskConfig) -> dict[str, Metric]:
        return order_metrics(cls.name, (AnswerF1(), ExactMatch()), main=config.metric)

    @classmethod
    def show_evidence(cls, lines: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Evidence:
        matches = ExactMatch().statistics([line["predicted"] for line in lines], [line["true"] for line in lines])
        right = [bool(row[0]) for row in matches]
        return evidence.make_evidence(
            lines, right, describe=evidence.describe_answer, wrong="answers are not exactly right"
        )

    @property
    def pair(self) -> bool | None:
        return True

    def find_fault(self, example: Example) -> str | None:
        missing = "a question needs the text that has its answer: give it as the second text"
        return super().find_fault(example) or (missing if example.b is None else None)

    def make_example(self, texts: Sequence[str]) -> Example:
        if not texts:
            raise ValueError("there is nothing to predict: give a text")
        if len(texts) != 2:
            given = "1 text is" if len(texts) == 1 else f"{len(texts)} are"
            raise ValueError(f"{given} given: a question and the text that has its answer are needed")
        return Example(texts[0], texts[1])

    def items(self, examples: Sequence[Example]) -> list[Item]:
        texts: dict[str, SplitText] = {}
        questions = self.tokenizer.encode_batch([str(example.a) for example in examples])
        found = []
        for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
            context = example.b or ""
            if context not in texts:
                texts[context] = read_text(context, self.tokenizer)
            text = texts[context]
            span = None if not example.label else find_pieces(text, example.label[0])
            for first, end, asked in self._windows(question, len(text.pieces)):
                label = None
                if example.label is not None:
                    inside = span is not None and first <= span[0] and span[1] < end
                    label = (span[0] - first + 1, span[1] - first + 1) if inside and span else (0, 0)
                parts = {"a": asked, "b": text.pieces[first:end]}
                found.append(Item(number, parts, label, {piece: piece - first for piece in range(first, end)}))
        return found

    def _windows(self, question: Any, pieces: int) -> Iterator[tuple[int, int, Any]]:
        """The pieces, from and to, of each window of a context, and the question that goes with it."""
        window = self.frame.window
        if window is None:
            yield 0, pieces, question
            return
        room = window - self.frame.overhead(self.frame.reads, "ab")
        question = question[: max(1, room // 2)]
        content = room - len(question)
        if content < 1:
            raise ValueError(
                f"a window of {window} tokens is too short for a question and its context; use a larger one"
            )
        step = max(1, content - min(self.config.stride, content // 2))
        for first in range(0, max(1, pieces - content + step), step):
            yield first, min(first + content, pieces), question

    def targets(self, items: Sequence[Item]) -> tuple[dict[str, Tensor], int]:
        ends = [(IGNORE, IGNORE) if item.label is None else item.label for item in items]
        sizes = [len(item.positions or ()) + 1 for item in items]
        return {"label": torch.tensor(ends), "sizes": torch.tensor(sizes)}, sum(
            item.label is not None for item in items
        )

    def positions(self, items: Sequence[Item], rows: Sequence[Row]) -> dict[str, Tensor]:
        if not items:
            return {"at": torch.zeros(len(rows), 1, dtype=torch.long)}
        found = []
        for item, row in zip(items, rows, strict=True):
            framed = next(iter(row.inputs.values()))
            pieces = framed.positions("b")
            none = 0 if self.config.pool == "cls" else len(framed.pieces) - 1  # where all has been read
            found.append([none, *(pieces[piece] for piece in (item.positions or {}).values())])
        return {"at": pad_rows(found)[0]}

    def vectors_of(self, item: Item) -> int:
        return len(item.positions or ()) + 1  # and the one for no answer

    def make_head(self, width: int) -> dict[str, nn.Module]:
        return {"label": Classifier(width, 2, dropout=self.config.dropout)}

    def score(self, heads: Mapping[str, nn.Module], vectors: Tensor, batch: Batch) -> Tensor:
        """[B, K, 2]: how well an answer begins, and ends, at each position; the first is no answer."""
        scores: Tensor = heads["label"](vectors)
        inside = torch.arange(scores.shape[1], device=scores.device) < batch.labels["sizes"][:, None]
        return scores.masked_fill(~inside[..., None], -torch.inf)

    def loss_of(self, heads: Mapping[str, nn.Module], scores: Tensor, batch: Batch) -> Tensor:
        ends = batch.labels["label"]
        first, last = (
            F.cross_entropy(scores[..., end], ends[:, end], reduction="sum", ignore_index=IGNORE) for end in (0, 1)
        )
        return (first + last) / 2

    def decode(self, heads: Mapping[str, nn.Module], scores: Tensor, items: Sequence[Item]) -> list[Any]:
        """Of each window the best spans as (score, first piece, last piece) of the context, and no answer's score."""
        found = []
        for item, row in zip(items, scores.float().cpu().numpy(), strict=True):
            pieces = list(item.positions or {})
            begin, end = row[1 : len(pieces) + 1, 0], row[1 : len(pieces) + 1, 1]
            spans = best_spans(begin, end, longest=self.config.longest, best=self.config.best)
            best = [(score, pieces[first], pieces[last]) for score, first, last in spans]
            found.append((best, float(row[0].sum())))
        return found

    def predictions(
        self, examples: Sequence[Example], items: Sequence[Item], decoded: Sequence[Any]
    ) -> list[Prediction]:
        windows: list[list[Any]] = [[] for _ in examples]
        for item, found in zip(items, decoded, strict=True):
            windows[item.number].append(found)
        contexts = [example.b or "" for example in examples]
        texts = {context: read_text(context, self.tokenizer) for context in dict.fromkeys(contexts)}
        return [self._answer(context, texts[context], own) for context, own in zip(contexts, windows, strict=True)]

    def _answer(
        self, context: str, text: SplitText, windows: Sequence[tuple[list[tuple[float, int, int]], float]]
    ) -> Prediction:
        """The best spans of all windows of a context, each text once."""
        offsets = text.offsets
        best: dict[str, tuple[float, tuple[int, int]]] = {}
        for score, first, last in sorted((span for found, _ in windows for span in found), reverse=True):
            start, end = offsets[first][0], offsets[last][1]
            answer = context[start:end]
            start += len(answer) - len(answer.lstrip())
            if answer.strip():
                best.setdefault(answer.strip(), (score, (start, start + len(answer.strip()))))
        none = min((null for _, null in windows), default=0.0)
        if self.config.unanswerable:
            best[""] = (none - self.config.threshold, (0, 0))
        ranked = sorted(best.items(), key=lambda each: -each[1][0])[: self.config.best] or [("", (0.0, (0, 0)))]
        scores = np.array([score for _, (score, _) in ranked])
        probabilities = np.exp(scores - scores.max())
        probabilities /= probabilities.sum()
        value, (_, span) = ranked[0]
        named = {text: float(each) for (text, _), each in zip(ranked, probabilities, strict=True)}
        return Prediction(value, float(probabilities[0]), named, span if value else None)


def find_pieces(text: SplitText, answer: Answer) -> tuple[int, int] | None:
    """The first and the last piece of an answer; None where the tokenizer left nothing of it."""
    begin, end = answer.start, answer.start + len(answer.text)
    inside = [piece for piece, (first, last) in enumerate(text.offsets) if first < end and last > begin]
    return (inside[0], inside[-1]) if inside else None


def best_spans(begin: NDArray[Any], end: NDArray[Any], *, longest: int, best: int) -> list[tuple[float, int, int]]:
    """The spans with the highest sums of scores, as (score, first, last), the best first; of equal ones the first."""
    if not len(begin):
        return []
    longest = min(longest, len(begin))
    after = np.concatenate([end, np.full(longest - 1, -np.inf, end.dtype)])
    sums = (begin[:, None] + np.lib.stride_tricks.sliding_window_view(after, longest)).ravel()  # [first, length - 1]
    kept = np.flatnonzero(np.isfinite(sums))
    if len(kept) > best:
        least = np.partition(sums[kept], len(kept) - best)[len(kept) - best]
        kept = kept[sums[kept] >= least]
    kept = kept[np.argsort(-sums[kept], kind="stable")[:best]]
    firsts, lengths = np.divmod(kept, longest)
    return [
        (float(sums[index]), int(first), int(first + length))
        for index, first, length in zip(kept, firsts, lengths, strict=True)
    ]
