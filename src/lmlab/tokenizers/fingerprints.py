"""Whether two tokenizers make the same tokens of every text."""

from __future__ import annotations

import hashlib
import json

from lmlab.tokenizers.tokenizer import Tokenizer


def text_fingerprint(tokenizer: Tokenizer) -> str:
    """The SHA-256 of what a tokenizer does with text: special tokens, which no text has, and their places are left out.

    So what fills blanks has the one of what predicts the next token, where it has [MASK] and the like besides.
    """
    settings = json.loads(tokenizer.engine.to_str())
    settings["added_tokens"] = [each for each in settings["added_tokens"] if not each["special"]]
    settings["post_processor"] = None
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
