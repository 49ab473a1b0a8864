"""The peer of the study of transfer: a plain loop over `AutoModelFor…` of `transformers`, with padded batches.

It begins with the same weights, and has the same examples, epochs, batch, peak rate, warm-up, decay and clipping; the
optimizer is PyTorch's fused AdamW, the schedule that of `transformers`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmlab.data.readers.examples import Example
from lmlab.data.readers.labelled.labels import find_labels
from lmlab.tasks.records import Prediction
from lmlab.tasks.spans import best_spans
from transferring import Found, OpenTask, Setup

IGNORE, STRIDE, LONGEST = -100, 64, 30
Features = list[dict[str, Any]]


class Texts:
    """Classes, or a number, for one text or two."""

    def __init__(self, tokenizer: Any, *, window: int, labels: Sequence[str]) -> None:
        self.tokenizer, self.window, self.labels = tokenizer, window, list(labels)

    def create(self, folder: str) -> nn.Module:
        from transformers import AutoModelForSequenceClassification

        model: nn.Module = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(self.labels) or 1)
        return model

    def encode(self, examples: Sequence[Example]) -> Features:
        second = [each.b for each in examples] if examples[0].b is not None else None
        rows = self.tokenizer([each.a for each in examples], second, truncation=True, max_length=self.window)
        found = [{name: rows[name][i] for name in rows} for i in range(len(examples))]
        for features, example in zip(found, examples, strict=True):
            features["labels"] = self.labels.index(example.label) if self.labels else float(example.label)
        return found

    def decode(self, features: Features, outputs: Sequence[Any], examples: Sequence[Example]) -> list[Prediction]:
        scores = [each["logits"] for each in outputs]
        if not self.labels:
            return [Prediction(float(each[0])) for each in scores]
        return [Prediction(self.labels[int(each.argmax())]) for each in scores]


class Tags(Texts):
    """A tag for each word, at its first piece."""

    def create(self, folder: str) -> nn.Module:
        from transformers import AutoModelForTokenClassification

        model: nn.Module = AutoModelForTokenClassification.from_pretrained(folder, num_labels=len(self.labels))
        return model

    def encode(self, examples: Sequence[Example]) -> Features:
        words = [list(each.a) for each in examples]
        rows = self.tokenizer(words, is_split_into_words=True, truncation=True, max_length=self.window)
        found = []
        for i, example in enumerate(examples):
            owners = rows.word_ids(i)
            firsts = [owner is not None and owner not in owners[:position] for position, owner in enumerate(owners)]
            features = {name: rows[name][i] for name in rows}
            features["labels"] = [
                self.labels.index(example.label[owner]) if first else IGNORE
                for owner, first in zip(owners, firsts, strict=True)
            ]
            features["_words"] = [owner if first else None for owner, first in zip(owners, firsts, strict=True)]
            found.append(features)
        return found

    def decode(self, features: Features, outputs: Sequence[Any], examples: Sequence[Example]) -> list[Prediction]:
        found = []
        for own, output, example in zip(features, outputs, examples, strict=True):
            tags = ["O"] * len(example.a)
            for position, word in enumerate(own["_words"]):
                if word is not None:
                    tags[word] = self.labels[int(output["logits"][position].argmax())]
            found.append(Prediction(tuple(tags)))
        return found


class Answers(Texts):
    """The first and the last piece of an answer, in each window of the context."""

    def create(self, folder: str) -> nn.Module:
        from transformers import AutoModelForQuestionAnswering

        model: nn.Module = AutoModelForQuestionAnswering.from_pretrained(folder)
        return model

    def encode(self, examples: Sequence[Example]) -> Features:
        rows = self.tokenizer(
            [each.a for each in examples],
            [each.b for each in examples],
            truncation="only_second",
            max_length=self.window,
            stride=min(STRIDE, self.window // 4),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        found = []
        names = [name for name in rows if name not in ("overflow_to_sample_mapping", "offset_mapping")]
        for i, number in enumerate(rows["overflow_to_sample_mapping"]):
            answer = examples[number].label[0]
            inside = [position for position, part in enumerate(rows.sequence_ids(i)) if part == 1]
            offsets = rows["offset_mapping"][i]
            begin, end = answer.start, answer.start + len(answer.text)
            its = [position for position in inside if offsets[position][0] < end and offsets[position][1] > begin]
            whole = its and offsets[its[0]][0] <= begin and offsets[its[-1]][1] >= end
            features = {name: rows[name][i] for name in names}
            features |= {"start_positions": its[0] if whole else 0, "end_positions": its[-1] if whole else 0}
            features |= {"_number": number, "_inside": inside, "_offsets": offsets}
            found.append(features)
        return found

    def decode(self, features: Features, outputs: Sequence[Any], examples: Sequence[Example]) -> list[Prediction]:
        best: list[tuple[float, str]] = [(-math.inf, "")] * len(examples)
        for own, output in zip(features, outputs, strict=True):
            inside, offsets, number = own["_inside"], own["_offsets"], own["_number"]
            begin, end = (output[name].numpy()[inside] for name in ("start_logits", "end_logits"))
            for score, first, last in best_spans(begin, end, longest=LONGEST, best=1):
                text = (examples[number].b or "")[offsets[inside[first]][0] : offsets[inside[last]][1]]
                best[number] = max(best[number], (score, text.strip()))
        return [Prediction(text) for _, text in best]


KINDS: dict[str, type[Texts]] = {"classification": Texts, "regression": Texts, "tagging": Tags, "spans": Answers}


def collate(tokenizer: Any, features: Features) -> dict[str, Tensor]:
    """A padded batch, with labels; names that begin with _ are not for the model."""
    plain = [{name: value for name, value in each.items() if name[0] != "_"} for each in features]
    labels = [each.pop("labels") for each in plain if "labels" in each]
    batch: dict[str, Tensor] = dict(tokenizer.pad(plain, return_tensors="pt"))
    if labels and isinstance(labels[0], list):
        longest = batch["input_ids"].shape[1]
        labels = [[*each, *[IGNORE] * (longest - len(each))] for each in labels]
    return {**batch, "labels": torch.tensor(labels)} if labels else batch


def learn_with_peer(setup: Setup, task: OpenTask, folder: Path, *, window: int, ours: Found) -> Found:
    """The same as lmlab's result `ours`, in the plain loop."""
    import transformers
    from transformers import AutoTokenizer, get_linear_schedule_with_warmup

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    labelled = task.taken(setup).labelled
    scheme = labelled.scheme and "IOB2"
    named = labelled.task in ("classification", "tagging")
    labels = find_labels(labelled.train, scheme=scheme) if named else ()
    began = time.perf_counter()
    torch.manual_seed(setup.seed)
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    kind = KINDS[labelled.task](tokenizer, window=window, labels=labels)
    model = kind.create(str(folder)).train()
    features = kind.encode(labelled.train)
    batch = min(setup.batch, len(features))
    epochs = max(1, round(ours.epochs))
    steps = epochs * math.ceil(len(features) / batch)
    matrices = [each for each in model.parameters() if each.dim() >= 2]
    others = [each for each in model.parameters() if each.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=ours.rate, betas=(0.9, 0.999), fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(0.1 * steps), steps)
    generator = np.random.default_rng(setup.seed)
    start = time.perf_counter()
    for _ in range(epochs):
        order = generator.permutation(len(features))
        for first in range(0, len(order), batch):
            inputs = collate(tokenizer, [features[i] for i in order[first : first + batch]])
            model(**inputs).loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
    training = time.perf_counter() - start
    predictions = predict(model.eval(), tokenizer, kind, task.dev)
    return Found(
        values=task.score(predictions),
        seconds=time.perf_counter() - began,
        training=training,
        examples=len(labelled.train),
        epochs=epochs,
        rate=ours.rate,
        steps=steps,
    )


@torch.inference_mode()
def predict(model: Callable[..., Any], tokenizer: Any, kind: Texts, examples: Sequence[Example]) -> list[Prediction]:
    """What a model of theirs says of examples."""
    features = kind.encode(examples)
    outputs: list[Any] = [None] * len(features)
    order = sorted(range(len(features)), key=lambda i: -len(features[i]["input_ids"]))
    for first in range(0, len(order), 16):
        chosen = order[first : first + 16]
        inputs = collate(tokenizer, [features[i] for i in chosen])
        for name in ("labels", "start_positions", "end_positions"):
            inputs.pop(name, None)
        found = model(**inputs)
        for position, i in enumerate(chosen):
            outputs[i] = {name: value[position] for name, value in found.items()}
    return kind.decode(features, outputs, examples)
