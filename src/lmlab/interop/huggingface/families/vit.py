"""ViT (`vit`): `ViTModel`, and `ViTForImageClassification` with the head of a run. Its pooler is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmlab.config import build
from lmlab.interop.huggingface.pictures import PictureSettings
from lmlab.interop.huggingface.table import Architecture, Family, Only, Setting, TaskHead, Weight, fused, linear
from lmlab.interop.huggingface.transforms import Patches, Squeezed

LAYER = "vit.encoder.layer.{}."


def patch_side(ours: Mapping[str, Any]) -> int:
    """The side of a patch, also where a run leaves it to the size of the pictures."""
    from lmlab.models.vit import ViTConfig

    return build(ViTConfig, ours, where="model").patch_side


def read_sides(size: Any) -> Any:
    """Their size of pictures, a number or two, as height and width."""
    return [size, size] if isinstance(size, int) else size


def write_sides(ours: Mapping[str, Any]) -> int | list[int]:
    """Height and width as one number where they are equal."""
    height, width = ours["image"]
    return int(height) if height == width else [height, width]


VIT = Family(
    kind="vit",
    model_type="vit",
    prefix="vit.",
    architectures=(Architecture("ViTModel", prefixed=False),),
    settings=(
        Setting("image", "image_size", default=224, read=read_sides, written=write_sides),
        Setting("channels", "num_channels", default=3),
        Setting("patch", "patch_size", default=16, written=patch_side),
        Setting("width", "hidden_size"),
        Setting("heads", "num_attention_heads"),
        Setting("layers", "num_hidden_layers"),
        Setting(
            "inner",
            "intermediate_size",
            written=lambda ours: 4 * ours["width"] if ours["inner"] is None else ours["inner"],
        ),
        Setting("dropout", "hidden_dropout_prob", also=("attention_probs_dropout_prob",), default=0.0),
        Setting("epsilon", "layer_norm_eps", default=1e-12),
    ),
    options=(Only("hidden_act", ("gelu",)), Only("qkv_bias", (True,))),
    weights=(
        Weight("patches.weight", "vit.embeddings.patch_embeddings.projection.weight", Patches()),
        Weight("patches.bias", "vit.embeddings.patch_embeddings.projection.bias"),
        Weight("cls", "vit.embeddings.cls_token", Squeezed(0, axes=2)),
        Weight("positions", "vit.embeddings.position_embeddings", Squeezed(0)),
        *fused(
            "blocks.{}.attention.query_key_value",
            *(f"{LAYER}attention.attention.{name}" for name in ("query", "key", "value")),
        ),
        *linear("blocks.{}.attention.projection", f"{LAYER}attention.output.dense"),
        *linear("blocks.{}.attention_norm", f"{LAYER}layernorm_before"),
        *linear("blocks.{}.feed_forward_norm", f"{LAYER}layernorm_after"),
        *linear("blocks.{}.feed_forward.expand", f"{LAYER}intermediate.dense"),
        *linear("blocks.{}.feed_forward.contract", f"{LAYER}output.dense"),
        *linear("norm", "vit.layernorm"),
    ),
    ignored=(r"vit\.pooler\.dense\.(weight|bias)", r"vit\.embeddings\.mask_token"),
    tokenized=False,
    files=PictureSettings("ViTImageProcessor"),
    heads=(
        TaskHead(
            "ViTForImageClassification",
            ("picture_classification",),
            linear("label.out", "classifier"),
            pool="cls",
            dropout=None,
        ),
    ),
)
