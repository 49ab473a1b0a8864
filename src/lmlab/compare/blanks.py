"""What is measured of a system that fills blanks; none of it can be compared with the score of a left-to-right one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.compare.evaluation import Tests, score_units
from lmlab.decoding.filling import fill
from lmlab.decoding.scoring import Progress
from lmlab.language_model import LanguageModel
from lmlab.models.abilities import FillsBlanks, require
from lmlab.tokenizers import Tokenizer

SHARE = 0.15
SEED = 15
TOP = 3
BATCH = 16
WHY = (
    "Systems that fill blanks are ranked apart. They guess a token from the text on both sides of it, while the others "
    "know only what stands before. Their bits per byte come from the pseudo-log-likelihood (Salazar et al. 2020): each "
    "token in turn is hidden and guessed from all others. That is not the probability of the text, it is usually much "
    "lower than any left-to-right score, and no file could be compressed with it. Compare masked systems with each "
    "other only."
)


def evaluate_blanks(model: LanguageModel, tests: Tests, *, progress: Progress | None = None) -> dict[str, Any]:
    """As JSON: the pseudo-log-likelihood of the part, blanks all over the test text, and one sentence filled."""
    return {
        **score_units(model, tests.part, progress=progress),
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
    for tokens, targets, lengths in _batches(texts, model.tokenizer, filler):
        hidden = filler.read(tokens=tokens.to(filler.device), lengths=lengths.to(filler.device))
        chosen = targets >= 0
        scores = filler.logits(hidden[chosen.to(hidden.device)]).double().log_softmax(-1)
        wanted = targets[chosen].to(scores.device)
        total -= float(scores.gather(1, wanted[:, None]).sum())
        right += int((scores.argmax(-1) == wanted).sum())
        count += len(wanted)
    return Hidden(count, total, right)


def choose_places(length: int, number: int) -> NDArray[np.int64]:
    """The places of the hidden tokens in the `number`-th text, of `length` tokens: 15% of them, at least one."""
    generator = np.random.default_rng([SEED, number])
    return np.sort(generator.permutation(length)[: max(1, round(SHARE * length))])


def _batches(texts: list[str], tokenizer: Tokenizer, filler: FillsBlanks) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Rows [B, T] between [CLS] and [SEP], rows of equal length side by side; targets, -1 where none; and lengths."""
    cls, sep, mask = (tokenizer.role(name) for name in ("cls", "sep", "mask"))
    rows: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for number, ids in enumerate(tokenizer.encode_batch(texts)):
        if not len(ids):
            continue
        content = len(ids) if filler.window is None else filler.window - 2
        original = ids.astype(np.int64)
        targets = np.full(len(ids), -1)
        places = choose_places(len(ids), number)
        targets[places] = original[places]
        read = np.where(targets >= 0, mask, original)
        rows += [(read[i : i + content], targets[i : i + content]) for i in range(0, len(ids), content)]
    rows.sort(key=lambda row: -len(row[0]))
    for group in (rows[i : i + BATCH] for i in range(0, len(rows), BATCH)):
        lengths = torch.tensor([len(read) + 2 for read, _ in group])
        tokens = torch.full((len(group), int(lengths.max())), sep)
        wanted = torch.full_like(tokens, -1)
        tokens[:, 0] = cls
        for row, (read, targets) in enumerate(group):
            tokens[row, 1 : len(read) + 1] = torch.from_numpy(read)
            wanted[row, 1 : len(read) + 1] = torch.from_numpy(targets)
        yield tokens, wanted, lengths


def fill_cloze(model: LanguageModel, text: str) -> dict[str, Any]:
    """The sentence with its blanks filled, and the likeliest tokens of each; the reason, where it is too long."""
    if not text:
        return {"sample": "", "filled": []}
    try:
        found = fill(model.model, text, tokenizer=model.tokenizer, top=TOP)
    except ValueError as error:
        return {"sample": f"({error})", "filled": []}
    return {"sample": found.fillings[0].text, "filled": [[list(each) for each in blank] for blank in found.blanks]}
