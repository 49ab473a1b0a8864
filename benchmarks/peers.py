"""What the speed benchmarks against `transformers` share: the same model on both sides, and whether they agree."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.interop.huggingface import read_model
from lmlab.layers.kernels.linear import round_weights
from lmlab.layers.kernels.low_precision import check_precision
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


def same_tokens(
    runs: Mapping[str, Callable[[], Tensor]], *, may_differ: tuple[str, ...] = ("int8", "bf16")
) -> dict[str, float]:
    """The fraction of the tokens of each that lmlab writes, too; fewer than 99% are no rounding, and the end.

    Those whose names end as in `may_differ` may write others.
    """
    texts = {name: run() for name, run in runs.items()}
    fractions = {name: (text == texts["lmlab"]).float().mean().item() for name, text in texts.items()}
    if min(value for name, value in fractions.items() if not name.endswith(may_differ)) < 0.99:
        raise SystemExit(f"the texts differ: {fractions}")
    return fractions


def rounded(model: Model, precision: str) -> Model:
    """A copy of lmlab's model with weights in bf16 or int8."""
    copied = copy.deepcopy(model)
    round_weights(copied, check_precision(precision))
    return copied


def ctranslate2_models(theirs: nn.Module, loader: str, *, threads: int) -> dict[str, Any]:
    """A model of transformers in CTranslate2, by the type in which it computes; none where it is not installed."""
    try:
        import ctranslate2
        from ctranslate2.converters import transformers as converters
    except ImportError:
        print("ctranslate2 is not installed, so it is left out")
        return {}
    if loader == "BartLoader":  # settings that its converter reads, and transformers has no longer
        theirs.config.normalize_before = False
        theirs.config.normalize_embedding = "Marian" not in type(theirs).__name__
    spec = getattr(converters, loader)().get_model_spec(theirs)
    names = [f"t{number}" for number in range(theirs.config.vocab_size)]
    encodes = loader == "BertLoader"
    if hasattr(spec, "register_source_vocabulary"):
        spec.register_source_vocabulary(names)
        spec.register_target_vocabulary(names)
    else:
        spec.register_vocabulary(names)
    spec.config.unk_token = names[-1]
    for token, name in {"bos_token": names[START], "eos_token": names[-2]}.items() if not encodes else ():
        setattr(spec.config, token, name)
    if hasattr(spec.config, "decoder_start_token"):
        spec.config.decoder_start_token, spec.config.add_source_eos = names[START], False
    spec.validate()
    spec.optimize(quantization="float32")
    kind = {"GPT2Loader": ctranslate2.Generator, "BertLoader": ctranslate2.Encoder}.get(loader, ctranslate2.Translator)
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        return {
            f"ctranslate2 {name}": kind(folder, device="cpu", compute_type=name, intra_threads=threads, inter_threads=1)
            for name in ("float32", "int8")
        }


def as_names(tokens: Tensor) -> list[list[str]]:
    """Tokens [B, T] as CTranslate2 is given them."""
    return [[f"t{token}" for token in row] for row in tokens.tolist()]
