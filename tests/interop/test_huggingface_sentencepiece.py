"""Folders whose tokenizer is a SentencePiece model only, as ALBERT's and XLNet's were published."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hf_references import random_reference

import lmlab
from lmlab.interop.huggingface import import_run

sentencepiece: Any = pytest.importorskip("sentencepiece")

TEXTS = ["The planet Mars goes round the Sun.", "Naïve café, ``quoted'' — twice  as long", "don't ask; 12345"]


def prepare(text: str, *, lowercase: bool) -> str:
    """What ALBERT's and XLNet's own tokenizers do before the model (preprocess_text in their authors' code)."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    text = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return text.lower() if lowercase else text


@pytest.mark.parametrize("family", ["albert", "xlnet"])
def test_such_a_folder_reads_texts_as_its_authors_did(
    family: str, shared_data: Callable[[str], Path], tmp_path: Path
) -> None:
    reference = random_reference(family, 1, {"albert": "AlbertForMaskedLM", "xlnet": "XLNetLMHeadModel"}[family])
    reference.resize_token_embeddings(30_010)
    reference.save_pretrained(tmp_path / "hf")
    path = shared_data("sentencepiece") / "albert_spiece.model"
    shutil.copy(path, tmp_path / "hf" / "spiece.model")
    import_run(tmp_path / "hf", tmp_path / "run")
    model, pieces = lmlab.load(tmp_path / "run"), sentencepiece.SentencePieceProcessor(model_file=str(path))
    for text in TEXTS:
        expected = pieces.encode(prepare(text, lowercase=family == "albert"))
        assert model.text_tokenizer.encode(text) == expected
        around = model.text_tokenizer.engine.encode(text, add_special_tokens=True).ids
        ends = [pieces.piece_to_id("[CLS]"), pieces.piece_to_id("[SEP]")]
        assert around == ([ends[0], *expected, ends[1]] if family == "albert" else [*expected, *ends[::-1]])
    assert len(model.fill("the [MASK] of mars").fillings) == 5
    assert model.score("the planet").tokens > 1


def test_a_folder_may_say_otherwise(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    reference = random_reference("albert", 1, "AlbertForMaskedLM")
    reference.resize_token_embeddings(30_010)
    reference.save_pretrained(tmp_path / "hf")
    shutil.copy(shared_data("sentencepiece") / "albert_spiece.model", tmp_path / "hf" / "spiece.model")
    (tmp_path / "hf" / "tokenizer_config.json").write_text('{"do_lower_case": false, "keep_accents": true}')
    import_run(tmp_path / "hf", tmp_path / "run")
    tokenizer = lmlab.load(tmp_path / "run").text_tokenizer
    assert tokenizer.unknown in tokenizer.encode("Mars")
    assert tokenizer.encode("mars") != tokenizer.encode("märs")
