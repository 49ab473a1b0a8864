"""BLEU and chrF of translations, as sacrebleu computes them: on plain text, with a signature to quote."""

from __future__ import annotations

from typing import Any

from lmlab.metrics.metric import Direction


def translation_metrics(*, lowercase: bool = False, needs: str = "BLEU and chrF need") -> dict[str, Any]:
    """sacrebleu's `bleu` and `chrf`; where it is missing, the ValueError says what `needs` it."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise ValueError(f"{needs} sacrebleu: pip install 'lmlab[eval]'") from None
    return {"bleu": BLEU(lowercase=lowercase), "chrf": CHRF(lowercase=lowercase)}


class Bleu:
    """BLEU of a whole set of translations (Papineni et al. 2002): no mean of sentences."""

    better: Direction = "higher"

    def __init__(self, *, needs: str = "BLEU needs") -> None:
        self._bleu = translation_metrics(needs=needs)["bleu"]
        self._texts: list[str] = []
        self._references: list[str] = []

    def add(self, watched: tuple[str, str]) -> None:
        """A translation and its reference."""
        text, reference = watched
        self._texts.append(text)
        self._references.append(reference)

    def value(self) -> float:
        if not self._texts:
            return float("nan")
        return float(self._bleu.corpus_score(self._texts, [self._references]).score)
