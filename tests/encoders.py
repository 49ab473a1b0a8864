"""What the tests of masked models share: random shapes and batches, and weights in Hugging Face's names as ours."""

from __future__ import annotations

import random
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lmlab.models.abilities import FillsMasks, ScoresSentencePairs, require

Weights = Mapping[str, Tensor]


def random_shapes(count: int, seed: int) -> list[dict[str, int]]:
    """Sizes of small encoders, odd ones included."""
    draw = random.Random(seed)
    drawn = []
    for _ in range(count):
        heads = draw.randint(1, 5)
        drawn.append(
            {
                "vocabulary": draw.randint(5, 300),
                "width": heads * draw.randint(1, 17),
                "heads": heads,
                "layers": draw.randint(1, 3),
                "window": draw.randint(2, 40),
                "inner": draw.randint(1, 90),
                "segments": draw.randint(1, 3),
            }
        )
    return drawn


def their_sizes(shape: Mapping[str, int]) -> dict[str, int]:
    """The sizes of a shape by the names of Hugging Face's settings."""
    return {
        "vocab_size": shape["vocabulary"],
        "hidden_size": shape["width"],
        "num_attention_heads": shape["heads"],
        "num_hidden_layers": shape["layers"],
        "max_position_embeddings": shape["window"],
        "intermediate_size": shape["inner"],
        "type_vocab_size": shape["segments"],
    }


def batch_of(shape: Mapping[str, int], rows: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens, segments, lengths, and the mask that says the same."""
    tokens = torch.randint(3, shape["vocabulary"], (rows, shape["window"]))
    segments = torch.randint(shape["segments"], tokens.shape)
    lengths = torch.randint(1, shape["window"] + 1, (rows,))
    return tokens, segments, lengths, (torch.arange(shape["window"]) < lengths[:, None]).long()


def renamed(theirs: Weights, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Weights and biases of their modules, under our names for these."""
    return {f"{our}.{kind}": theirs[f"{their}.{kind}"] for our, their in names.items() for kind in ("weight", "bias")}


def embedding_weights(theirs: Weights, prefix: str) -> dict[str, Tensor]:
    """The three tables and their norm."""
    return {
        "embedding.weight": theirs[f"{prefix}.word_embeddings.weight"],
        "positions.weight": theirs[f"{prefix}.position_embeddings.weight"],
        "segments.weight": theirs[f"{prefix}.token_type_embeddings.weight"],
        **renamed(theirs, {"embedding_norm": f"{prefix}.LayerNorm"}),
    }


def head_weights(theirs: Weights, dense: str, norm: str) -> dict[str, Tensor]:
    """The layer before the scores, and the table with which it is tied."""
    (table,) = (name for name in theirs if name.endswith("word_embeddings.weight"))
    return {**renamed(theirs, {"output.transform": dense, "output.norm": norm}), "output.softmax.weight": theirs[table]}


def block_weights(theirs: Weights, ours: str, prefix: str) -> dict[str, Tensor]:
    """One layer of BERT's and its descendants' files; queries, keys and values become one matrix."""
    names = {
        "attention.projection": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "feed_forward.expand": "intermediate.dense",
        "feed_forward.contract": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    }
    weights = renamed(theirs, {f"{ours}.{our}": f"{prefix}.{their}" for our, their in names.items()})
    for kind in ("weight", "bias"):
        parts = [theirs[f"{prefix}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
        weights[f"{ours}.attention.query_key_value.{kind}"] = torch.cat(parts)
    return weights


def filler(model: object) -> FillsMasks:
    """The part of a model that fills blanks."""
    return require(model, FillsMasks)


def score_pairs(model: object, hidden: Tensor) -> Tensor:
    """The scores of the sentence-pair head."""
    return require(model, ScoresSentencePairs).score_pairs(hidden)


def attention_weights_of(model: nn.Module) -> list[str]:
    """Where attention passes its weights: who watches these has them computed in the open, which torch can count."""
    return [name for name, _ in model.named_modules() if name.endswith("probabilities")]
