"""What the speed benchmarks against `transformers` share: the same model on both sides, and whether they agree."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.interop.huggingface import read_model
from lmlab.models.model import Model
from timing import half_steps, stepper

WINDOW, START = 64, 0
"""Positions of a translator, and the token that begins its texts."""


def same_weights(theirs: nn.Module) -> Model:
    """lmlab's model with the shape, dropout and weights of one of theirs, by way of a folder."""
    import transformers

    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return read_model(Path(folder))


def translator(
    row: str, *, layers: int, width: int, heads: int, inner: int, vocabulary: int, **settings: Any
) -> nn.Module:
    """Their BART, or Marian, which is lmlab's `transformer`, with as many layers on both sides."""
    import transformers

    shape = {
        "vocab_size": vocabulary, "d_model": width, "encoder_layers": layers, "decoder_layers": layers,
        "encoder_attention_heads": heads, "decoder_attention_heads": heads, "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner, "max_position_embeddings": WINDOW, "decoder_start_token_id": START,
    }  # fmt: skip
    if row == "bart":
        bart = transformers.BartConfig(**shape, **settings, activation_function="gelu", scale_embedding=False)
        return transformers.BartForConditionalGeneration(bart)
    marian = transformers.MarianConfig(**shape, **settings, activation_function="relu", scale_embedding=True)
    return transformers.MarianMTModel(marian)


def training_steps(
    losses: Mapping[str, Callable[[], Tensor]], models: Iterable[nn.Module], *, decay: float, halves: bool = False
) -> dict[str, Callable[[], None]]:
    """A training step for each loss and its model; all must have the same first loss without dropout.

    `transformers` has its default AdamW, the others the fused one of PyTorch. With `halves` those also in bf16.
    """
    by_name = dict(zip(losses, models, strict=True))
    with torch.no_grad():
        values = [loss().item() for name, loss in losses.items() if by_name[name].eval()]
    if max(values) - min(values) > 1e-4:
        raise SystemExit(f"the losses differ: {values}")
    steps = {
        name: stepper(by_name[name].train(), loss, fused=name != "transformers", decay=decay)
        for name, loss in losses.items()
    }
    return steps | (half_steps({name: (by_name[name], losses[name]) for name in losses}, decay=decay) if halves else {})


def same_tokens(runs: Mapping[str, Callable[[], Tensor]]) -> dict[str, float]:
    """The fraction of the tokens of each that lmlab writes, too; fewer than 99% are no rounding, and the end."""
    texts = {name: run() for name, run in runs.items()}
    fractions = {name: (text == texts["lmlab"]).float().mean().item() for name, text in texts.items()}
    if min(fractions.values()) < 0.99:
        raise SystemExit(f"the texts differ: {fractions}")
    return fractions
