"""Which part of a prompt fits into the model's window when the answer begins."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from lmlab.decoding.chain_rule import windows
from lmlab.language_model import LanguageModel
from lmlab.prompting.items import PromptItem
from lmlab.prompting.templates import Template


class Fitting(NamedTuple):
    """How many prompts were cut to the window, and how many examples remain before each item."""

    cut: int
    whole: list[int]  # complete examples in the window, for each item

    @property
    def fewest(self) -> int:
        return min(self.whole)

    @property
    def most(self) -> int:
        return max(self.whole)

    @property
    def mean(self) -> float:
        return sum(self.whole) / len(self.whole)


def fit_prompts(
    lm: LanguageModel, template: Template, asked: Sequence[PromptItem], prompts: Sequence[Sequence[str]]
) -> Fitting:
    """Compute what the model sees of prompts, each given as its parts: the examples, then the item.

    This is the text before the first token of an answer, as scorer and generator read it. If there are answers to
    choose from, the one that leaves the least room for the prompt counts.
    """
    tokenizer, window = lm.text_tokenizer, lm.writer.model.window
    before = len(lm.writer.frame.row()["tokens"])
    if window is None:
        return Fitting(0, [len(each) - 1 for each in prompts])
    cut, whole = 0, []
    for item, given in zip(asked, prompts, strict=True):
        shots = len(given) - 1

        def length_with(examples: int, given: Sequence[str] = given) -> int:
            return len(tokenizer.encode(template.separator.join(given[-1 - examples :])))

        length, prompt = length_with(shots), template.separator.join(given)
        full = tokenizer.encode_batch([prompt + template.answers(word) for word in item.candidates])
        seen = min((tokens_seen(length, len(ids), window, before=before) for ids in full), default=min(length, window))
        cut += seen < length
        whole.append(shots if seen >= length else max(0, bisect_right(range(shots), seen, key=length_with) - 1))
    return Fitting(cut, whole)


def tokens_seen(length: int, full: int, window: int, *, before: int = 1) -> int:
    """Number of prompt tokens in the window when the answer begins: `length` in the prompt, `full` in the whole text.

    `before` tokens precede the text: the boundary, or nothing. So token i is read at position i + before.
    """
    position = length + before - 1  # of the last token before the answer
    for each in windows(full + before - 1, window):
        if each.start + each.first <= position < each.start + each.length:
            return position - each.start + 1 - (before if each.start == 0 else 0)
    return length
