"""ViT against transformers with the same weights, the FLOP counter, and pictures of other sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from lmlab.config import build
from lmlab.models.vit import ViT, ViTConfig, resize_positions
from lmlab.runs.storage import read_tensors

SETTINGS: dict[str, Any] = {"image": [12, 8], "channels": 3, "patch": 4, "width": 16, "heads": 2, "layers": 3}


def make(**changes: Any) -> ViT:
    torch.manual_seed(0)
    return ViT(build(ViTConfig, {**SETTINGS, **changes}, where="model")).eval()


def pictures(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_hidden_vectors_are_those_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=(12, 8),
        patch_size=4,
        num_channels=3,
        layer_norm_eps=1e-6,
    )
    theirs = transformers.ViTModel(config, add_pooling_layer=False).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(tmp_path)
    ours, weights = make(), read_tensors(tmp_path / "model.safetensors")  # under the names of published files
    found = {
        "patches.weight": weights["embeddings.patch_embeddings.projection.weight"].flatten(1),
        "patches.bias": weights["embeddings.patch_embeddings.projection.bias"],
        "cls": weights["embeddings.cls_token"][0, 0],
        "positions": weights["embeddings.position_embeddings"][0],
        "norm.weight": weights["layernorm.weight"],
        "norm.bias": weights["layernorm.bias"],
    }
    for layer in range(3):
        there, here = f"encoder.layer.{layer}", f"blocks.{layer}"
        for kind in ("weight", "bias"):
            parts = [weights[f"{there}.attention.attention.{name}.{kind}"] for name in ("query", "key", "value")]
            found[f"{here}.attention.query_key_value.{kind}"] = torch.cat(parts)
            found[f"{here}.attention.projection.{kind}"] = weights[f"{there}.attention.output.dense.{kind}"]
            found[f"{here}.attention_norm.{kind}"] = weights[f"{there}.layernorm_before.{kind}"]
            found[f"{here}.feed_forward_norm.{kind}"] = weights[f"{there}.layernorm_after.{kind}"]
            found[f"{here}.feed_forward.expand.{kind}"] = weights[f"{there}.intermediate.dense.{kind}"]
            found[f"{here}.feed_forward.contract.{kind}"] = weights[f"{there}.output.dense.{kind}"]
    ours.load_state_dict(found)
    pixels = pictures(2, 3, 12, 8)
    with torch.no_grad():
        torch.testing.assert_close(
            ours(pixels).hidden, theirs(pixel_values=pixels).last_hidden_state, atol=1e-4, rtol=1e-4
        )


def test_the_order_of_a_batch_changes_nothing() -> None:
    model, pixels = make(), pictures(4, 3, 12, 8)
    with torch.no_grad():
        together = model(pixels).hidden
        alone = torch.cat([model(pixels[number : number + 1]).hidden for number in (2, 0, 3, 1)])
    torch.testing.assert_close(together[[2, 0, 3, 1]], alone)


def test_chosen_positions_are_those_of_the_whole() -> None:
    model, pixels, at = make(), pictures(2, 3, 12, 8), torch.tensor([[0, 3], [0, 6]])
    with torch.no_grad():
        chosen, whole = model.vectors(pixels=pixels, at=at), model(pixels).hidden
    torch.testing.assert_close(chosen, torch.stack([whole[0, [0, 3]], whole[1, [0, 6]]]))


@pytest.mark.parametrize("positions", [None, 1])
def test_flops_are_those_of_the_counter(positions: int | None) -> None:
    model, pixels = make(), pictures(2, 3, 12, 8)
    at = None if positions is None else torch.zeros(2, 1, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.vectors(pixels=pixels, at=at)
    assert model.reading_flops({"pixels": pixels}, positions=positions) == counter.get_total_flops()


def test_positions_are_interpolated_for_other_sizes() -> None:
    model = make()
    with torch.no_grad():
        assert model(pictures(1, 3, 24, 16)).hidden.shape == (1, 1 + 24, 16)
    flat = torch.ones(1 + 6, 4)
    torch.testing.assert_close(resize_positions(flat, (3, 2), (6, 4)), torch.ones(1 + 24, 4))
    with pytest.raises(ValueError, match="multiples of 4"):
        model(pictures(1, 3, 10, 8))


def test_the_side_of_a_patch_is_chosen_or_checked() -> None:
    assert make(patch=None, image=[28, 28]).config.grid == (7, 7)
    assert make(patch=None, image=[64, 64]).config.patch_side == 8
    with pytest.raises(ValueError, match="patch = 5 does not divide pictures of 28 × 28 pixels"):
        make(patch=5, image=[28, 28])
