"""One BERT twice: in transformers with random weights, and in lmlab with the same ones."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from encoders import block_weights, embedding_weights, head_weights
from lmlab.models import create
from lmlab.models.model import Model


def bert_pair(vocabulary: int, *, width: int, heads: int, layers: int, window: int) -> tuple[Model, Any]:
    """Our model and their `BertForMaskedLM`, both in evaluation mode."""
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        max_position_embeddings=window,
        intermediate_size=4 * width,
    )
    reference = transformers.BertForMaskedLM(config).eval()
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=0.3)
    theirs = reference.state_dict()
    weights = {
        **embedding_weights(theirs, "bert.embeddings"),
        **head_weights(theirs, "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
        "output.softmax.bias": theirs["cls.predictions.bias"],
    }
    for i in range(layers):
        weights |= block_weights(theirs, f"blocks.{i}", f"bert.encoder.layer.{i}")
    shape = {"width": width, "heads": heads, "layers": layers, "window": window}
    model = create("bert", {"vocabulary": vocabulary, **shape, "pooler": False, "pairs": False}).eval()
    model.load_state_dict(weights)
    return model, reference
