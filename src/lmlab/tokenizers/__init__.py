"""Tokenizers: each is one `tokenizer.json` that Hugging Face `tokenizers` opens and that encodes the same there.

| spec | pieces | comes back whole |
|---|---|---|
| `characters` | every character of the training text; `<unk>` for others | where every character was seen |
| `bytes` | the 256 bytes of UTF-8 | always |
| `words`, `words:N`, `words:min=K`, `words:N,min=K` | split at white space, newline `<eos>`, rare words `<unk>` | no |
| `spelled`, `spelled:N` … | the same, but rare and new words keep their letters for models that read letters | no |
| `bpe:N` | byte-level byte-pair encoding, as GPT-2 | always |
| `unigram:N` | byte-level unigram model (Kudo 2018) | always |
| `wordpiece:N`, `wordpiece:N,cased` | BERT's WordPiece, `##` continues a word | no |

N is the size of the whole vocabulary, special tokens included. Instead of a spec, the path of a
`tokenizer.json`, of GPT-2's `encoder.json` or `vocab.bpe`, of BERT's `vocab.txt`, or of a folder that holds them.
"""

from __future__ import annotations

from lmlab.tokenizers.files import load
from lmlab.tokenizers.tokenizer import Tokenizer, TokenizerWarning
from lmlab.tokenizers.training import Spec, parse, resolve, train

__all__ = ["Spec", "Tokenizer", "TokenizerWarning", "load", "parse", "resolve", "train"]
