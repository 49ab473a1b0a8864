"""How well systems predict masked tokens: ranked by pseudo bits per byte of a part of the test text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from lmlab.comparison.entries import Entry
from lmlab.comparison.likelihood import perplexity, score_units
from lmlab.comparison.records import TrackScores, read_validations
from lmlab.comparison.shared_test_data import Tests
from lmlab.comparison.tracks.track import (
    BITS_PER_BYTE,
    Column,
    Curve,
    FigureTexts,
    RankingMetric,
    Separation,
    TextTrack,
    Units,
    Words,
)
from lmlab.decoding.pseudo_likelihood import LONGEST
from lmlab.language_model import LanguageModel
from lmlab.models import find
from lmlab.models.abilities import FillsMasks, require
from lmlab.pages import samples
from lmlab.pages.page import Cell
from lmlab.progress import ReportProgress
from lmlab.tokenizers.frames import collate

MASKED_FRACTION = 0.15
SEED = 15
TOP = 3
BATCH = 16
METRICS = ("pair_accuracy", "detection_accuracy", "original_share")
"""What an objective may measure besides, on validation text; the last is the accuracy of always saying "original"."""


class MaskedTokens(TextTrack):
    """Masked language models. Their scores cannot be compared with those of a left-to-right model."""

    name = "masks"
    key = "masked"
    group = "masked"
    score = RankingMetric(
        metric=BITS_PER_BYTE,
        field="pseudo_bits_per_byte",
        label="pseudo bits per byte",
        column="pseudo b/B",
        unit="bits per byte of pseudo-log-likelihood",
    )
    curve = Curve("valid_loss", "nats per masked token")
    fields = ("masked_perplexity", "masked_accuracy", *METRICS)
    columns = (
        Column("accuracy", "masked_accuracy", "{:.1%}"),
        Column("perplexity", "masked_perplexity", "{:,.1f}"),
        Column("NSP/SOP", "pair_accuracy", "{:.0%}"),
        Column("detected", "detection_accuracy", "{:.1%}"),
    )
    one_tokenizer = (
        "the smaller the tokens, the more of a word is still visible around the masked one, so a "
        "pseudo-log-likelihood depends more on the tokenizer than on the model; give all masked models the same one"
    )
    on_part = True
    words = Words(
        systems="masked models",
        do="predict masked tokens",
        does="predicts masked tokens",
        leading=" in predicting masked tokens",
    )
    separation = Separation(
        banner="masked language models · ranked separately",
        summary="Not comparable with left-to-right scores.",
        why="Masked language models are ranked separately. They predict a token from the text on both sides, while "
        "causal models see only the text before it. Their bits per byte come from the pseudo-log-likelihood (Salazar "
        "et al. 2020): each token in turn is masked and predicted from all others. That is not the probability of the "
        "text, it is usually much lower than any left-to-right score, and it is no compression rate. Compare masked "
        "models only with each other.",
    )
    captions = FigureTexts(
        leaderboard="A masked language model predicts a masked token from the text on both sides. Pseudo bits per "
        "byte is its pseudo-log-likelihood: the surprisal of each held-out token, given all others; the whisker is "
        "the 95% confidence interval. Masked tokens: accuracy and perplexity where 15% of the test text is "
        "masked at once, the same for all. Auxiliary: accuracy of the auxiliary objective (NSP/SOP, or "
        "replaced-token detection) on validation text.",
        curves="Validation cross-entropy (nats per masked token) during training, with masks as in training. Lower "
        "is better; a curve that falls further left is cheaper.",
        costs="Each model at the end of its training, in pseudo bits per byte.",
        samples_title="What they fill in",
        samples="The same held-out sentence with the same masks, filled with the most probable tokens (underlined "
        "where correct). Below: the original token, and the most probable ones, for each mask independently.",
        passages_title="Surprisal of each token, given both sides",
        passages="The same held-out passage, each token masked in turn. The stronger the colour, the higher the "
        "surprisal; point at a token to see it in bits.",
        matrix="How many pseudo bits per byte the model on the left is better than the one above.",
    )

    def evaluate(self, model: LanguageModel, path: Path, tests: Tests, progress: ReportProgress | None) -> TrackScores:
        """The pseudo-log-likelihood of the part, masked tokens all over the test text, and one sentence filled."""
        units = score_units(model, self.test(tests), scorer=model.pseudo_scorer, progress=progress)
        masked = fill_test(model, tests.whole.texts)._asdict()
        cloze = fill_cloze(model, tests.whole.cloze.text)
        measured = {**units.measured, **masked, "filled": cloze.filled, **read_metrics(path)}
        return replace(units, measured=measured, sample=cloze.sample)

    def summarise(self, scores: Sequence[TrackScores], *, same_tokens: bool) -> dict[str, Any]:
        """Perplexity and accuracy of the masked tokens, and the other metrics of the objective."""
        found = [each.measured for each in scores]
        nats = float(np.mean([each["masked_nats"] / each["masked_tokens"] for each in found]))
        measured = {name: float(np.mean([each[name] for each in found])) for name in METRICS if name in found[0]}
        return {
            "masked_perplexity": perplexity(nats),
            "masked_accuracy": float(np.mean([each["masked_right"] / each["masked_tokens"] for each in found])),
            "masked_tokens": found[0]["masked_tokens"],
            **measured,
            "filled": found[0]["filled"],
        }

    def conclusion(self, entry: Entry) -> str:
        return f"It predicts {entry.measured['masked_accuracy']:.0%} of the masked tokens correctly."

    def sample(self, entry: Entry, board: Mapping[str, Any]) -> Markup:
        return samples.filled(board["cloze"], entry.measured["filled"], entry.sample)

    def cells(self, entry: Entry) -> dict[str, Cell]:
        return {"masked tokens": _masked_cell(entry.measured), "auxiliary": _auxiliary_cell(entry.measured)}

    def notes(self, tests: Tests, units: Units, ranked: Sequence[Entry]) -> Iterable[str]:
        yield self.separation.why
        yield _describe_part(units.bytes, int(tests.whole.sizes.sum()))
        if any("pair_accuracy" in entry.measured or "detection_accuracy" in entry.measured for entry in ranked):
            yield (
                "Accuracies of the auxiliary objectives (NSP/SOP, replaced-token detection) are on validation text. "
                "They are different tasks, so they are not used for ranking. Half of the sentence pairs are correct, "
                "so chance is 50%."
            )
        for detector in (entry.kind for entry in ranked if "replaced tokens" in find(entry.kind).does):
            yield (
                f"{detector} has two parts: its generator, the smaller one, predicts the masked tokens here. Its "
                "discriminator, which is used after pre-training, is measured by how many replaced tokens it detects."
            )


def _describe_part(part: int, whole: int) -> str:
    scored = "the whole test text"
    if part < whole:
        scored = (
            f"{part:,} of the {whole:,} bytes of the test text ({part / whole:.0%}), the beginnings of documents "
            "throughout it"
        )
    return (
        f"A pseudo-log-likelihood takes one forward pass for each token, so it is computed on {scored}, the same for "
        f"all masked models. Masked perplexity and accuracy are measured on {MASKED_FRACTION:.0%} of the tokens of the "
        "whole test text, replaced by [MASK], the same for all. All use the same tokenizer, because the smaller the "
        "tokens, the easier it is to predict a masked one from its neighbours."
    )


def read_metrics(path: Path) -> dict[str, float]:
    """The other metrics of the best weights on validation text: of sentence pairs, of replaced tokens."""
    best: dict[str, Any] = next((line for line in reversed(list(read_validations(path))) if line.get("best")), {})
    return {name: best[f"valid_{name}"] for name in METRICS if best.get(f"valid_{name}") is not None}


class MaskedScore(NamedTuple):
    """How well masked tokens were predicted."""

    masked_tokens: int
    masked_nats: float  # the sum over all of them
    masked_right: int  # the most probable token is right


@torch.inference_mode()
def fill_test(model: LanguageModel, texts: list[str]) -> MaskedScore:
    """Mask 15% of the tokens of each text, always the same ones, and let the model predict them.

    All become [MASK], unlike in training, where some are kept or replaced; a long text is read window by window.
    """
    filler, total, right, count = require(model.model, FillsMasks), 0.0, 0, 0
    for inputs, targets in _batches(texts, model, filler):
        at, valid = _positions(targets >= 0)
        hidden = filler.read(**{name: part.to(filler.device) for name, part in inputs.items()}, at=at.to(filler.device))
        scores = filler.logits(hidden[valid.to(hidden.device)]).double().log_softmax(-1)
        wanted = targets.gather(1, at)[valid].to(scores.device)
        total -= float(scores.gather(1, wanted[:, None]).sum())
        right += int((scores.argmax(-1) == wanted).sum())
        count += len(wanted)
    return MaskedScore(count, total, right)


def _positions(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The positions [B, K] of what is chosen [B, T], and which are valid: a row with fewer repeats its last one."""
    counts = chosen.sum(1, keepdim=True)
    order = (~chosen).int().argsort(stable=True, dim=1)
    rank = torch.arange(int(counts.max()))
    return order.gather(1, torch.minimum(rank, (counts - 1).clamp(min=0)).expand(len(chosen), -1)), rank < counts


def choose_positions(length: int, number: int) -> NDArray[np.int64]:
    """The positions of the masked tokens in the `number`-th text, of `length` tokens: 15% of them, at least one."""
    generator = np.random.default_rng([SEED, number])
    return np.sort(generator.permutation(length)[: max(1, round(MASKED_FRACTION * length))])


def _batches(texts: list[str], model: LanguageModel, filler: FillsMasks) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Batches of rows of about equal length: the inputs, and the targets [B, T], -1 for tokens that are not masked."""
    mask = model.text_tokenizer.special("mask")
    content = (filler.window or LONGEST) - model.frame.overhead("tokens", "a")
    items: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for number, ids in enumerate(model.text_tokenizer.encode_batch(texts)):
        if not len(ids):
            continue
        original = ids.astype(np.int64)
        targets = np.full(len(ids), -1)
        positions = choose_positions(len(ids), number)
        targets[positions] = original[positions]
        read = np.where(targets >= 0, mask, original)
        items += [(read[i : i + content], targets[i : i + content]) for i in range(0, len(ids), content)]
    items.sort(key=lambda item: -len(item[0]))
    for group in (items[i : i + BATCH] for i in range(0, len(items), BATCH)):
        rows = model.frame.rows([{"a": read} for read, _ in group])
        inputs = collate(rows)
        wanted = torch.full_like(inputs["tokens"], -1)
        for number, (row, (_, targets)) in enumerate(zip(rows, group, strict=True)):
            wanted[number, list(row.inputs["tokens"].positions("a").values())] = torch.from_numpy(targets)
        yield inputs, wanted


class FilledCloze(NamedTuple):
    """A sentence with its masks filled; the reason if it is too long."""

    sample: str
    filled: list[list[list[Any]]]  # the most probable tokens of each mask


def fill_cloze(model: LanguageModel, text: str) -> FilledCloze:
    """Fill the masks of a sentence."""
    if not text:
        return FilledCloze("", [])
    try:
        found = model.fill(text, top=TOP)
    except ValueError as error:
        return FilledCloze(f"({error})", [])
    return FilledCloze(found.fillings[0].text, [[list(each) for each in mask] for mask in found.candidates])


def _masked_cell(measured: Mapping[str, Any]) -> Cell:
    if measured.get("masked_accuracy") is None:
        return Cell("")
    perplexity = f"{measured['masked_perplexity']:,.1f}" if measured["masked_perplexity"] is not None else "–"
    return Cell(f"{measured['masked_accuracy']:.1%} correct", f"perplexity {perplexity}")


def _auxiliary_cell(measured: Mapping[str, Any]) -> Cell:
    if "pair_accuracy" in measured:
        return Cell(f"{measured['pair_accuracy']:.0%} of pairs", "chance 50%")
    if "detection_accuracy" in measured:
        return Cell(f"{measured['detection_accuracy']:.1%} detected", f"baseline {measured['original_share']:.1%}")
    return Cell("")
