"""Score a fine-tuned run on the items of a prompted task."""

from __future__ import annotations

import random
from typing import NamedTuple

from lmlab.data.readers.examples import Example
from lmlab.data.readers.labelled.labels import check_known
from lmlab.language_model import LanguageModel
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.statistics import Estimate, estimate
from lmlab.prompting.items import Items
from lmlab.tasks.predicting import answers


class Finetuned(NamedTuple):
    """The score of a fine-tuned run, and the examples that it was tested on."""

    score: Estimate
    examples: list[Example]


def score_finetuned(lm: LanguageModel, items: Items, *, most: int | None = None, seed: int = 0) -> Finetuned:
    """The main metric of a fine-tuned run on the items that `ask` uses with the same `most` and `seed`."""
    asked = list(items.asked)
    if most is not None and most < len(asked):
        asked = random.Random(seed).sample(asked, most)
    examples = [item.example for item in asked if item.example is not None]
    if len(examples) < len(asked):
        raise ValueError("finetuned: these items were made from text; a fine-tuned run needs labelled examples")
    predictor = lm.predictor
    if predictor.task.config.labels:
        check_known(examples, predictor.task.config.labels, split="these items")
    predicted, true = answers(predictor.predict(examples), examples)
    metrics = predictor.task.metrics
    metric = Accuracy() if predictor.task.name == "classification" else next(iter(metrics.values()))
    return Finetuned(estimate(metric, predicted, true), examples)
