"""The same items answered by a run that was fine-tuned on the task."""

from __future__ import annotations

import random

from lmlab.language_model import LanguageModel
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.intervals import Estimate, estimate
from lmlab.prompting.items import Items
from lmlab.tasks.predicting import answers


def score_finetuned(lm: LanguageModel, items: Items, *, most: int | None = None, seed: int = 0) -> Estimate:
    """The main measure of a fine-tuned run on the items that `ask` asks with the same `most` and `seed`."""
    asked = list(items.asked)
    if most is not None and most < len(asked):
        asked = random.Random(seed).sample(asked, most)
    examples = [item.example for item in asked if item.example is not None]
    if len(examples) < len(asked):
        raise ValueError("finetuned: these items were made from text; a fine-tuned run needs labelled examples")
    predictor = lm.predictor
    predicted, true = answers(predictor.predict(examples), examples)
    measures = predictor.task.measures
    measure = Accuracy() if predictor.task.name == "classification" else next(iter(measures.values()))
    return estimate(measure, predicted, true)
