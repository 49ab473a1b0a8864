"""BLEU and chrF of translations, as sacrebleu computes them: on plain text, with a signature to quote."""

from __future__ import annotations

from typing import Any


def translation_metrics(*, lowercase: bool = False, needs: str = "BLEU and chrF need") -> dict[str, Any]:
    """The metrics `bleu` and `chrf`; where sacrebleu is missing, the ValueError says what `needs` it."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise ValueError(f"{needs} sacrebleu: pip install 'lmlab[eval]'") from None
    return {"bleu": BLEU(lowercase=lowercase), "chrf": CHRF(lowercase=lowercase)}
