"""CLIP (`clip`): `CLIPModel`, with the special tokens of its texts and the processor of its pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.config import build
from lmlab.interop.huggingface.families.vit import read_sides
from lmlab.interop.huggingface.pictures import PictureSettings
from lmlab.interop.huggingface.table import Architecture, Family, Only, Setting, Weight, fused, linear
from lmlab.models import find
from lmlab.runs.storage import read_json, write_json
from lmlab.tokenizers.frames import make_frame

if TYPE_CHECKING:
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.frames import Frame
    from lmlab.tokenizers.processors.pictures import PictureProcessor

TEXT, VISION = "text_config", "vision_config"
SCALE = 2.6592
"""Their initial logarithm of the scale."""


@dataclass(frozen=True)
class ClipFiles(PictureSettings):
    """The picture settings, and the start and end of texts, which their tokenizer and `config.json` name."""

    def read_frame(self, folder: Path, tokenizer: Tokenizer, config: Any) -> Frame | None:
        return make_frame(find("clip").frame, tokenizer)

    def write(self, folder: Path, config: Any, tokenizer: Any, frame: Any, processor: PictureProcessor) -> None:
        super().write(folder, config, tokenizer, frame, processor)
        start, end = (int(frame.specials["tokens"][name]) for name in ("cls", "boundary"))
        ids = {"bos_token_id": start, "eos_token_id": end, "pad_token_id": end}
        written = read_json(folder / "config.json")
        for name in ("decoder_start_token_id", "forced_eos_token_id", *ids):
            written.pop(name, None)
        written[TEXT] = {**written[TEXT], **ids, "projection_dim": config.space}
        written[VISION] = {**written[VISION], "projection_dim": config.space}
        write_json(folder / "config.json", written)
        shown = {"bos_token": tokenizer.show(start), "eos_token": tokenizer.show(end), "pad_token": tokenizer.show(end)}
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            known = read_json(folder / name)
            write_json(folder / name, {**{key: known[key] for key in known if key != "cls_token"}, **shown})


def write_patch(ours: Mapping[str, Any]) -> int:
    """The side of a patch, also where a run leaves it to the size of the pictures."""
    from lmlab.models.clip import ClipConfig

    return build(ClipConfig, ours, where="model").patch_side


def write_side(ours: Mapping[str, Any]) -> int:
    """The side of a picture; a ValueError where it is not square."""
    height, width = ours["image"]
    if height != width:
        raise ValueError(
            f"pictures of {height} × {width} pixels cannot be written: transformers has squares only; train with "
            f"--set data.size={max(height, width)}"
        )
    return int(height)


def _stack(ours: str, theirs: str) -> tuple[Weight, ...]:
    """The rows of the blocks of one encoder."""
    mine, layer = f"{ours}.blocks.{{}}", f"{theirs}.encoder.layers.{{}}"
    return (
        *fused(f"{mine}.attention.query_key_value", *(f"{layer}.self_attn.{letter}_proj" for letter in "qkv")),
        *linear(f"{mine}.attention.projection", f"{layer}.self_attn.out_proj"),
        *linear(f"{mine}.attention_norm", f"{layer}.layer_norm1"),
        *linear(f"{mine}.feed_forward_norm", f"{layer}.layer_norm2"),
        *linear(f"{mine}.feed_forward.expand", f"{layer}.mlp.fc1"),
        *linear(f"{mine}.feed_forward.contract", f"{layer}.mlp.fc2"),
    )


CLIP = Family(
    kind="clip",
    model_type="clip",
    prefix="",
    architectures=(Architecture("CLIPModel"),),
    nested=(TEXT, VISION),
    settings=(
        Setting("vocabulary", f"{TEXT}.vocab_size", default=49408),
        Setting("window", f"{TEXT}.max_position_embeddings", default=77),
        Setting("text_width", f"{TEXT}.hidden_size", default=512),
        Setting("text_heads", f"{TEXT}.num_attention_heads", default=8),
        Setting("text_layers", f"{TEXT}.num_hidden_layers", default=12),
        Setting("image", f"{VISION}.image_size", default=224, read=read_sides, written=write_side),
        Setting("channels", f"{VISION}.num_channels", default=3),
        Setting("patch", f"{VISION}.patch_size", default=32, written=write_patch),
        Setting("width", f"{VISION}.hidden_size", default=768),
        Setting("heads", f"{VISION}.num_attention_heads", default=12),
        Setting("layers", f"{VISION}.num_hidden_layers", default=12),
        Setting("gelu", f"{TEXT}.hidden_act", default="quick_gelu", words={"quick_gelu": "quick", "gelu": "exact"}),
        Setting("epsilon", f"{TEXT}.layer_norm_eps", default=1e-5),
        Setting("space", "projection_dim", default=512),
        Setting(
            "temperature",
            "logit_scale_init_value",
            default=SCALE,
            read=lambda value: math.exp(-value),
            written=lambda ours: -math.log(ours["temperature"]),
        ),
    ),
    options=(
        Only(f"{VISION}.hidden_act", lambda config: (config.get(f"{TEXT}.hidden_act", "quick_gelu"),), "quick_gelu"),
        Only(f"{VISION}.layer_norm_eps", lambda config: (config.get(f"{TEXT}.layer_norm_eps", 1e-5),), 1e-5),
        Only(f"{TEXT}.intermediate_size", lambda config: (4 * config.get(f"{TEXT}.hidden_size", 512),), 2048),
        Only(f"{VISION}.intermediate_size", lambda config: (4 * config.get(f"{VISION}.hidden_size", 768),), 3072),
        Only(f"{TEXT}.attention_dropout", (0.0,), training=True),
        Only(f"{VISION}.attention_dropout", (0.0,), training=True),
        Only("tie_word_embeddings", (False, True)),
    ),
    weights=(
        Weight("text_encoder.embedding.weight", "text_model.embeddings.token_embedding.weight"),
        Weight("text_encoder.positions.weight", "text_model.embeddings.position_embedding.weight"),
        *_stack("text_encoder", "text_model"),
        *linear("text_encoder.norm", "text_model.final_layer_norm"),
        Weight("picture_encoder.class_vector", "vision_model.embeddings.class_embedding"),
        Weight("picture_encoder.patches.weight", "vision_model.embeddings.patch_embedding.weight"),
        Weight("picture_encoder.positions.weight", "vision_model.embeddings.position_embedding.weight"),
        *linear("picture_encoder.entry_norm", "vision_model.pre_layrnorm"),
        *_stack("picture_encoder", "vision_model"),
        *linear("picture_encoder.norm", "vision_model.post_layernorm"),
        Weight("picture_projection.weight", "visual_projection.weight"),
        Weight("text_projection.weight", "text_projection.weight"),
        Weight("log_scale", "logit_scale"),
    ),
    ignored=(r"(text|vision)_model\.embeddings\.position_ids",),
    specials=("<|startoftext|>", "<|endoftext|>"),
    boundary="<|endoftext|>",
    template=("cls $A boundary", "cls $A $B boundary"),
    files=ClipFiles("CLIPImageProcessor"),
)
