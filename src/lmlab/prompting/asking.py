"""Zero-shot and few-shot prompting: a model chooses or writes the answer of each item after some examples."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from lmlab.data.readers.examples import Example
from lmlab.data.readers.labelled.labels import check_known
from lmlab.decoding.scorer import ChainRule
from lmlab.language_model import LanguageModel
from lmlab.messages import ArgumentError
from lmlab.metrics.answers import AnswerF1, ExactMatch, normal_words
from lmlab.metrics.bleu import translation_metrics
from lmlab.metrics.classification import Accuracy
from lmlab.metrics.statistics import Estimate, estimate, shared_groups
from lmlab.progress import ReportProgress
from lmlab.prompting.fitting import Fitting, fit_prompts
from lmlab.prompting.items import PromptItem, PromptItems
from lmlab.prompting.templates import NORMALISATIONS, Template
from lmlab.tasks.predicting import answers


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers of a model with one number of examples, and their scores."""

    shots: int
    predicted: list[Any]
    true: list[Any]
    scores: dict[str, Estimate]
    """The main metric first."""
    prompt: str
    """The prompt of the first item, as an example."""
    first: str
    """The model's answer to it: the word for a class, or the text that it wrote."""
    fitting: Fitting
    """How many prompts were cut to the model's window."""

    @property
    def main(self) -> str:
        return next(iter(self.scores))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The answers for each number of examples, and the majority baseline."""

    answers: list[Answers]
    majority: Estimate
    items: int
    repeated: int = 0
    """Number of examples with the content of an item; they are never shown before it."""


def ask(
    lm: LanguageModel,
    template: Template,
    items: PromptItems,
    *,
    shots: Sequence[int] = (0,),
    seed: int = 0,
    most: int | None = None,
    batch: int = 16,
    progress: ReportProgress | None = None,
) -> Asked:
    """Let a model that predicts the next token answer items, with each of these numbers of examples before an item.

    At most `most` items are used, sampled with the seed. Each item has its own examples, sampled with the seed; those
    for fewer shots are the last of those for more. An example with the content of the item is never shown before it.
    """
    rule = ChainRule(lm.writer.model, lm.writer.frame)
    asked = list(items.asked)
    if most is not None and most < len(asked):
        asked = random.Random(seed).sample(asked, most)
    same = Counter(each.content for each in items.pool)
    left = len(items.pool) - max((same[item.content] for item in asked), default=0)
    if max(shots) > left:
        raise ArgumentError(
            "shots",
            max(shots),
            f"there are {len(items.pool)} examples to choose from, without the item itself {left}; give fewer "
            "shots, or more examples",
        )
    done = 0

    def report(more: int, total: int) -> None:
        if progress is not None:
            progress(done + more, len(shots) * total)

    found = []
    for count in shots:
        parts = [
            sample_examples(template, item, items.pool, shots=count, seed=[seed, number])
            for number, item in enumerate(asked)
        ]
        fitting = fit_prompts(lm, template, asked, parts)
        prompts = [template.separator.join(each) for each in parts]
        if template.kind == "choose":
            answered = _choose(lm, template, asked, prompts, rule=rule, batch=batch, report=report)
        else:
            answered = _write(lm, template, asked, prompts, report=report)
        true = [item.answer for item in asked]
        found.append(Answers(shots=count, true=true, prompt=prompts[0], fitting=fitting, **answered._asdict()))
        done += len(asked)
    contents, own = Counter(item.content for item in asked), set(map(id, asked))
    repeated = sum(contents[each.content] > (id(each) in own) for each in items.pool)
    majority = _majority(template, asked, items.pool)
    return Asked(answers=found, majority=majority, items=len(asked), repeated=repeated)


def sample_examples(
    template: Template, item: PromptItem, pool: Sequence[PromptItem], *, shots: int, seed: list[int]
) -> list[str]:
    """The parts of a prompt: `shots` examples, sampled from the pool without the item, and the item."""
    if not shots:
        return [template.asks(item.fields)]
    order = np.random.default_rng(seed).permutation(len(pool))
    others = (pool[number] for number in order if pool[number].content != item.content)
    sampled = list(islice(others, shots))
    shown = [template.asks(each.fields) + template.answers(each.shown) for each in reversed(sampled)]
    return [*shown, template.asks(item.fields)]


def continuation_nats(
    lm: LanguageModel, rule: ChainRule, pairs: Sequence[tuple[str, str]], *, batch: int = 16
) -> list[tuple[float, int]]:
    """The surprisal of each continuation after its prompt, and its number of tokens.

    Prompt and continuation are encoded as one text, since a token may cross their boundary. The tokens beyond the
    length of the encoded prompt are the continuation, as in lm-evaluation-harness, so both agree item by item.
    """
    tokenizer = lm.text_tokenizer
    whole = tokenizer.encode_batch([prompt + continuation for prompt, continuation in pairs])
    before = [len(ids) for ids in tokenizer.encode_batch([prompt for prompt, _ in pairs])]
    nats = rule.nats([ids.astype(np.int64) for ids in whole], batch=batch, progress=None)
    return [(float(each[start:].sum()), max(0, len(each) - start)) for each, start in zip(nats, before, strict=True)]


class _Answered(NamedTuple):
    """What was chosen or written for each item, its scores, and the answer to the first item as text."""

    predicted: list[Any]
    scores: dict[str, Estimate]
    first: str


def _choose(
    lm: LanguageModel,
    template: Template,
    asked: Sequence[PromptItem],
    prompts: Sequence[str],
    *,
    rule: ChainRule,
    batch: int,
    report: ReportProgress,
) -> _Answered:
    """Choose the most probable candidate of each item, by the sum of log-probabilities or a normalised one."""
    priors: dict[str, float] = {}
    predicted: dict[str, list[int]] = {name: [] for name in NORMALISATIONS}
    prior = template.prior or template.prompt.rsplit("}", 1)[-1] or " "
    for start in range(0, len(asked), batch):
        group = range(start, min(start + batch, len(asked)))
        words = dict.fromkeys(template.answers(word) for number in group for word in asked[number].candidates)
        new = [word for word in words if word not in priors]
        for word, (nats, _) in zip(
            new, continuation_nats(lm, rule, [(prior, word) for word in new], batch=batch), strict=True
        ):
            priors[word] = nats
        pairs = [(prompts[number], template.answers(word)) for number in group for word in asked[number].candidates]
        scores = iter(zip(pairs, continuation_nats(lm, rule, pairs, batch=batch), strict=True))
        for number in group:
            own = [next(scores) for _ in asked[number].candidates]
            logs = {
                "sum": [-nats for _, (nats, _) in own],
                "length": [-nats / max(1, count) for _, (nats, count) in own],
                "prior": [priors[word] - nats for (_, word), (nats, _) in own],
            }
            for name, values in logs.items():
                predicted[name].append(int(np.argmax(values)))
        report(group[-1] + 1, len(asked))
    true = [item.answer for item in asked]
    order = [template.normalise, *(name for name in NORMALISATIONS if name != template.normalise)]
    scores_by = {
        f"by {name}" if number else "accuracy": estimate(Accuracy(), predicted[name], true)
        for number, name in enumerate(order)
    }
    chosen = predicted[order[0]]
    return _Answered(chosen, scores_by, asked[0].candidates[chosen[0]])


def _write(
    lm: LanguageModel,
    template: Template,
    asked: Sequence[PromptItem],
    prompts: Sequence[str],
    *,
    report: ReportProgress,
) -> _Answered:
    """Write an answer to each item by greedy decoding."""
    written = []
    for number, prompt in enumerate(prompts, start=1):
        text = str(lm.generate(prompt, tokens=template.tokens, temperature=0.0, stop=template.stop)).strip()
        written.append(_first_word(text) if template.first_word else text)
        report(number, len(prompts))
    true = [item.answer for item in asked]
    groups = _contexts(asked)
    scores = {metric.name: estimate(metric, written, true, groups=groups) for metric in (ExactMatch(), AnswerF1())}
    if template.bleu:
        bleu = translation_metrics(needs="BLEU needs")["bleu"]
        scores["bleu"] = Estimate(bleu.corpus_score(written, [[each[0] for each in true]]).score / 100, None, None)
    return _Answered(written, scores, written[0])


def _first_word(text: str) -> str:
    words = text.split()
    return words[0].strip(".,;:!?\"'“”‘’()") if words else ""


def _majority(template: Template, asked: Sequence[PromptItem], pool: Sequence[PromptItem]) -> Estimate:
    """The score of always giving the most frequent answer of the pool."""
    true = [item.answer for item in asked]
    if template.kind == "choose":
        (commonest, _), *_ = Counter(item.answer for item in pool).most_common(1)
        return estimate(Accuracy(), [commonest] * len(true), true)
    answers = Counter(" ".join(normal_words(item.answer[0])) for item in pool)
    (word, _), *_ = answers.most_common(1)
    return estimate(ExactMatch(), [word] * len(true), true, groups=_contexts(asked))


def _contexts(asked: Sequence[PromptItem]) -> Sequence[Hashable] | None:
    """The context of each question, if several questions are about the same one; None if each has its own."""
    return shared_groups([item.fields["b"] or number for number, item in enumerate(asked)])


class FinetunedScore(NamedTuple):
    """The score of a fine-tuned run, and the examples that it was tested on."""

    score: Estimate
    examples: list[Example]


def score_finetuned(lm: LanguageModel, items: PromptItems, *, most: int | None = None, seed: int = 0) -> FinetunedScore:
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
    return FinetunedScore(estimate(metric, predicted, true), examples)
