"""What is measured of a system that fills blanks; none of it can be compared with the score of a left-to-right one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.compare.held_out import Tests
from lmlab.compare.likelihood import perplexity, score_units
from lmlab.compare.records import Entry, Record, read_validations
from lmlab.decoding.pseudo_likelihood import LONGEST
from lmlab.language_model import LanguageModel
from lmlab.models import find
from lmlab.models.abilities import FillsBlanks, require
from lmlab.pages.page import Cell
from lmlab.progress import ReportProgress
from lmlab.tokenizers.frames import collate

SHARE = 0.15
SEED = 15
TOP = 3
BATCH = 16
METRICS = ("pair_accuracy", "detection_accuracy", "original_share")
"""What an objective may measure besides, on validation text; the last is what a detector gets that never suspects."""
WHY = (
    "Masked language models are ranked separately. They predict a token from the text on both sides, while causal "
    "models see only the text before it. Their bits per byte come from the pseudo-log-likelihood (Salazar et al. "
    "2020): each token in turn is masked and predicted from all others. That is not the probability of the text, it is "
    "usually much lower than any left-to-right score, and it is no compression rate. Compare masked models only with "
    "each other."
)


def measure_blanks(model: LanguageModel, path: Path, tests: Tests, progress: ReportProgress | None) -> Record:
    """What the track of masked systems wants to know of a run."""
    return {**evaluate_blanks(model, tests, progress=progress), **read_metrics(path)}


def read_metrics(path: Path) -> dict[str, float]:
    """What else was measured of the best weights on validation text: of sentence pairs, of replaced tokens."""
    best: dict[str, Any] = next((line for line in reversed(list(read_validations(path))) if line.get("best")), {})
    return {name: best[f"valid_{name}"] for name in METRICS if best.get(f"valid_{name}") is not None}


def summarise_blanks(records: Sequence[Record], *, same_tokens: bool) -> Entry:
    """Perplexity and accuracy of the hidden tokens, and what else the objective measures."""
    nats = float(np.mean([each["masked_nats"] / each["blanks"] for each in records]))
    measured = {name: float(np.mean([each[name] for each in records])) for name in METRICS if name in records[0]}
    return {
        "masked_perplexity": perplexity(nats),
        "masked_accuracy": float(np.mean([each["masked_right"] / each["blanks"] for each in records])),
        "blanks": records[0]["blanks"],
        **measured,
        "filled": records[0]["filled"],
    }


def evaluate_blanks(model: LanguageModel, tests: Tests, *, progress: ReportProgress | None = None) -> dict[str, Any]:
    """As JSON: the pseudo-log-likelihood of the part, blanks all over the test text, and one sentence filled."""
    return {
        **score_units(model, tests.part, scorer=model.pseudo_scorer, progress=progress),
        **fill_test(model, tests.whole.texts)._asdict(),
        **fill_cloze(model, tests.whole.cloze.text),
    }


class Hidden(NamedTuple):
    """How well hidden tokens were guessed."""

    blanks: int
    masked_nats: float  # of all of them together
    masked_right: int  # guessed at the first try


@torch.inference_mode()
def fill_test(model: LanguageModel, texts: list[str]) -> Hidden:
    """Hide 15% of the tokens of each text, always the same ones, and let the model guess them.

    All become [MASK], unlike in training, where some stay or are changed; a long text is read window by window.
    """
    filler, total, right, count = require(model.model, FillsBlanks), 0.0, 0, 0
    for inputs, targets in _batches(texts, model, filler):
        at, there = _places(targets >= 0)
        hidden = filler.read(**{name: part.to(filler.device) for name, part in inputs.items()}, at=at.to(filler.device))
        scores = filler.logits(hidden[there.to(hidden.device)]).double().log_softmax(-1)
        wanted = targets.gather(1, at)[there].to(scores.device)
        total -= float(scores.gather(1, wanted[:, None]).sum())
        right += int((scores.argmax(-1) == wanted).sum())
        count += len(wanted)
    return Hidden(count, total, right)


def _places(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The places [B, K] of what is chosen [B, T], and which of them are: a row with fewer has its last one again."""
    counts = chosen.sum(1, keepdim=True)
    order = (~chosen).int().argsort(stable=True, dim=1)
    rank = torch.arange(int(counts.max()))
    return order.gather(1, torch.minimum(rank, (counts - 1).clamp(min=0)).expand(len(chosen), -1)), rank < counts


def choose_places(length: int, number: int) -> NDArray[np.int64]:
    """The places of the hidden tokens in the `number`-th text, of `length` tokens: 15% of them, at least one."""
    generator = np.random.default_rng([SEED, number])
    return np.sort(generator.permutation(length)[: max(1, round(SHARE * length))])


def _batches(texts: list[str], model: LanguageModel, filler: FillsBlanks) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """What the model reads, rows of about equal length side by side; and the targets [B, T], -1 where none."""
    mask = model.text_tokenizer.special("mask")
    content = (filler.window or LONGEST) - model.frame.overhead("tokens", "a")
    items: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for number, ids in enumerate(model.text_tokenizer.encode_batch(texts)):
        if not len(ids):
            continue
        original = ids.astype(np.int64)
        targets = np.full(len(ids), -1)
        places = choose_places(len(ids), number)
        targets[places] = original[places]
        read = np.where(targets >= 0, mask, original)
        items += [(read[i : i + content], targets[i : i + content]) for i in range(0, len(ids), content)]
    items.sort(key=lambda item: -len(item[0]))
    for group in (items[i : i + BATCH] for i in range(0, len(items), BATCH)):
        rows = model.frame.rows([{"a": read} for read, _ in group])
        inputs = collate(rows)
        wanted = torch.full_like(inputs["tokens"], -1)
        for number, (row, (_, targets)) in enumerate(zip(rows, group, strict=True)):
            wanted[number, list(row.inputs["tokens"].places("a").values())] = torch.from_numpy(targets)
        yield inputs, wanted


def fill_cloze(model: LanguageModel, text: str) -> dict[str, Any]:
    """The sentence with its blanks filled, and the likeliest tokens of each; the reason, where it is too long."""
    if not text:
        return {"sample": "", "filled": []}
    try:
        found = model.fill(text, top=TOP)
    except ValueError as error:
        return {"sample": f"({error})", "filled": []}
    return {"sample": found.fillings[0].text, "filled": [[list(each) for each in blank] for blank in found.blanks]}


def hidden_cell(entry: Entry) -> Cell:
    """Accuracy and perplexity of the masked tokens."""
    if entry.get("masked_accuracy") is None:
        return Cell("")
    surprise = f"{entry['masked_perplexity']:,.1f}" if entry["masked_perplexity"] is not None else "–"
    return Cell(f"{entry['masked_accuracy']:.1%} correct", f"perplexity {surprise}")


def besides_cell(entry: Entry) -> Cell:
    """The other metrics of the objective."""
    if "pair_accuracy" in entry:
        return Cell(f"{entry['pair_accuracy']:.0%} of pairs", "chance 50%")
    if "detection_accuracy" in entry:
        return Cell(f"{entry['detection_accuracy']:.1%} detected", f"baseline {entry['original_share']:.1%}")
    return Cell("")


def tell_blanks(tests: Tests, units: Mapping[str, Any], ranked: Sequence[Entry]) -> Iterator[str]:
    """Why masked systems stand apart, and on what they were measured."""
    yield WHY
    whole, part = int(tests.whole.sizes.sum()), units["bytes"]
    share = part / whole
    yield (
        "A pseudo-log-likelihood takes one forward pass for each token, so it is computed on "
        + (
            "the whole test text"
            if share == 1
            else f"{part:,} of the {whole:,} bytes of the test text ({share:.0%}), the beginnings of documents "
            "throughout it"
        )
        + f", the same for all masked models. Masked perplexity and accuracy are measured on {SHARE:.0%} of the tokens "
        "of the whole test text, replaced by [MASK], the same for all. All use the same tokenizer, because the "
        "smaller the tokens, the easier it is to predict a masked one from its neighbours."
    )
    if any("pair_accuracy" in entry or "detection_accuracy" in entry for entry in ranked):
        yield (
            "Accuracies of the auxiliary objectives (NSP/SOP, replaced-token detection) are on validation text. They "
            "are different tasks, so they are not used for ranking. Half of the sentence pairs are correct, so chance "
            "is 50%."
        )
    for detector in (entry["kind"] for entry in ranked if "replaced tokens" in find(entry["kind"]).does):
        yield (
            f"{detector} has two parts: its generator, the smaller one, predicts the masked tokens here. Its "
            "discriminator, which is used after pre-training, is measured by how many replaced tokens it detects."
        )
