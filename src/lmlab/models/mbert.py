"""mBERT: BERT over one vocabulary for a hundred languages, of which rare ones are read more often than they occur.

Devlin et al. 2018, "Multilingual BERT" (the release notes of BERT's code); the network is unchanged.
"""

from __future__ import annotations

from typing import Any, ClassVar

from lmlab.models.bert import Bert


class MultilingualBert(Bert):
    """BERT with a larger, shared vocabulary that keeps case and accents."""

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {name: size for name, size in Bert.SIZES.items() if name != "large"}
    TOKENIZER: ClassVar[str] = "wordpiece:8192,cased"
