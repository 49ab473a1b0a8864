"""XLM-R: RoBERTa over one vocabulary of 250 thousand pieces for a hundred languages.

Conneau et al. 2020, "Unsupervised Cross-lingual Representation Learning at Scale" (on arXiv 2019).
"""

from __future__ import annotations

from typing import ClassVar

from lmlab.models.roberta import Roberta


class XLMRoberta(Roberta):
    """RoBERTa with a larger, shared vocabulary of unigram pieces; the network is unchanged."""

    TOKENIZER: ClassVar[str] = "unigram:8192"
