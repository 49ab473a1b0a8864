"""SentencePiece models are read as the library of that name reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.sentencepiece import load_sentencepiece, read_model

sentencepiece: Any = pytest.importorskip("sentencepiece", reason="needs the extra: pip install 'lmlab[sentencepiece]'")

ODD = [
    "The planet Mars goes round the sun.",
    "Hello  world!   two spaces",
    " leading and trailing ",
    "naïve café ﬁne ½ — “quoted”",
    "Ünïcödé 漢字 emoji 😀 x",
    "I'm, don't; 12345 67.89",
    "tab\tand\nnewline",
    "",
    "ＦＵＬＬ width",
]
TEXT = [
    f"{word} number {number} goes round the sun, and so do its moons" for number in range(60) for word in ("A", "My")
]


def agree(path: Path, texts: list[str]) -> None:
    theirs, ours = sentencepiece.SentencePieceProcessor(model_file=str(path)), load_sentencepiece(path)
    for text in texts:
        ids = theirs.encode(text)
        assert ours.encode(text, add_special_tokens=False).ids == ids, text
        if theirs.unk_id() not in ids:
            assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("name", ["albert_spiece.model", "test_sentencepiece.model"])
def test_real_vocabularies(name: str, shared_data: Callable[[str], Path]) -> None:
    plays = next(shared_data("tinyshakespeare").glob("*.txt")).read_text(encoding="utf-8").splitlines()
    agree(shared_data("sentencepiece") / name, ODD + plays[:1500])


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"byte_fallback": True, "vocab_size": 400},
        {
            "byte_fallback": True,
            "vocab_size": 400,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
        },
        {"add_dummy_prefix": False},
    ],
    ids=["plain", "bytes", "every space", "no prefix"],
)
def test_vocabularies_of_every_kind(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(TEXT))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "model"),
        model_type=kind,
        minloglevel=2,
        hard_vocab_limit=False,
        **{"vocab_size": 90, **options},
    )
    agree(tmp_path / "model.model", ODD + TEXT[:40])
    tokenizer = Tokenizer.load(tmp_path / "model.model")
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode(TEXT[3]) == tokenizer.encode(TEXT[3])


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"nothing of the kind", b"\x0a\xff\xff\xff\xff\x0f", bytes(range(256)), b"\x0a\x02\x18\x01"):
        path = tmp_path / "bad.model"
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a SentencePiece model"):
            read_model(path)
