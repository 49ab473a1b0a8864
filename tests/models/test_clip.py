"""CLIP against transformers with the same weights, and what must change nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from captioned import SETTINGS, VOCABULARY, make_model
from lmlab.layers.kernels.gelu import quick_gelu
from lmlab.models.abilities import MatchesPictures, ability
from lmlab.models.clip import Clip, ClipConfig
from lmlab.runs.model_files import load_weights, model_tensors
from lmlab.runs.storage import read_tensors, write_tensors

LENGTHS = torch.tensor([9, 3, 5, 2])
NAMES = {
    "text_model.embeddings.token_embedding.weight": "text_encoder.embedding.weight",
    "text_model.embeddings.position_embedding.weight": "text_encoder.positions.weight",
    "text_model.final_layer_norm": "text_encoder.norm",
    "vision_model.embeddings.class_embedding": "picture_encoder.class_vector",
    "vision_model.embeddings.patch_embedding.weight": "picture_encoder.patches.weight",
    "vision_model.embeddings.position_embedding.weight": "picture_encoder.positions.weight",
    "vision_model.pre_layrnorm": "picture_encoder.entry_norm",
    "vision_model.post_layernorm": "picture_encoder.norm",
    "visual_projection": "picture_projection",
    "logit_scale": "log_scale",
    "text_model.encoder.layers": "text_encoder.blocks",
    "vision_model.encoder.layers": "picture_encoder.blocks",
    "self_attn.out_proj": "attention.projection",
    "layer_norm1": "attention_norm",
    "layer_norm2": "feed_forward_norm",
    "mlp.fc1": "feed_forward.expand",
    "mlp.fc2": "feed_forward.contract",
}


def inputs(rows: int = 4, *, image: tuple[int, int] = (8, 12)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(rows, 3, *image, generator=generator)
    return pixels, torch.randint(0, VOCABULARY - 2, (rows, 9), generator=generator)


def convert(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of transformers by our names; queries, keys and values are one matrix here."""
    found = {}
    for name, tensor in theirs.items():
        if "k_proj" in name or "v_proj" in name or "position_ids" in name:
            continue
        if "q_proj" in name:
            tensor = torch.cat([theirs[name.replace("q_proj", f"{letter}_proj")] for letter in "qkv"])
            name = name.replace("self_attn.q_proj", "attention.query_key_value")
        for old, new in NAMES.items():
            name = name.replace(old, new)
        found[name] = tensor
    return found


@pytest.fixture(params=["quick_gelu", "gelu"])
def pair(request: pytest.FixtureRequest) -> tuple[Any, Clip]:
    """A model of transformers with random weights, biases and norms too, and ours with the same."""
    transformers: Any = pytest.importorskip("transformers")
    text = {
        **{"vocab_size": VOCABULARY, "hidden_size": 12, "intermediate_size": 48, "num_hidden_layers": 3},
        **{"num_attention_heads": 3, "max_position_embeddings": 9, "hidden_act": request.param},
        **{"bos_token_id": 28, "eos_token_id": 29, "pad_token_id": 29},
    }
    vision = {
        **{"hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2},
        **{"image_size": 12, "patch_size": 4, "hidden_act": request.param},
    }
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=10)
    torch.manual_seed(3)
    reference = transformers.CLIPModel(config).eval()
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    gelu = {"quick_gelu": "quick", "gelu": "exact"}[request.param]
    ours = make_model(image=12, gelu=gelu).eval()
    load_weights(ours, convert(reference.state_dict()), source=Path("transformers"))
    return reference, ours


@torch.no_grad()
def test_embeddings_and_logits_are_those_of_transformers(pair: tuple[Any, Clip]) -> None:
    reference, ours = pair
    pixels, tokens = inputs(image=(12, 12))
    for row, length in enumerate(LENGTHS.tolist()):
        tokens[row, length - 1 :] = 29  # the end of the text, and after it padding
    mask = torch.arange(9) < LENGTHS[:, None]
    theirs = reference(input_ids=tokens, pixel_values=pixels, attention_mask=mask.long())
    pictures, texts = ours.embed_pictures(pixels), ours.embed_texts(tokens, LENGTHS)
    torch.testing.assert_close(pictures, theirs.image_embeds, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(texts, theirs.text_embeds, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.scale() * pictures @ texts.T, theirs.logits_per_image, atol=1e-4, rtol=1e-4)
    hidden = ours(tokens=tokens, lengths=LENGTHS).hidden
    torch.testing.assert_close(hidden[mask], theirs.text_model_output.last_hidden_state[mask], atol=1e-4, rtol=1e-4)


def test_the_quick_gelu_is_its_formula() -> None:
    x = torch.linspace(-6, 6, 101, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(quick_gelu(x), x * torch.sigmoid(1.702 * x))
    assert torch.autograd.gradcheck(quick_gelu, (x,))


@torch.no_grad()
def test_batch_order_and_padding_change_nothing() -> None:
    model = make_model().eval()
    pixels, tokens = inputs()
    pictures, texts = model.embed_pictures(pixels), model.embed_texts(tokens, LENGTHS)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model.embed_pictures(pixels[order]), pictures[order], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model.embed_texts(tokens[order], LENGTHS[order]), texts[order], atol=1e-5, rtol=1e-5)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model.embed_texts(tokens[row : row + 1, :length])
        torch.testing.assert_close(alone[0], texts[row], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(model.embed_pictures(pixels[row : row + 1])[0], pictures[row], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_one_vector_is_computed_as_in_the_whole() -> None:
    """The last block works at the class vector, or at the last token, alone."""
    model = make_model().eval()
    pixels, tokens = inputs()
    pictures = torch.nn.functional.normalize(model.picture_projection(model(pixels).hidden[:, 0]), dim=-1)
    torch.testing.assert_close(model.embed_pictures(pixels), pictures, atol=1e-5, rtol=1e-5)
    hidden = model(tokens=tokens, lengths=LENGTHS).hidden[torch.arange(4), LENGTHS - 1]
    texts = torch.nn.functional.normalize(model.text_projection(hidden), dim=-1)
    torch.testing.assert_close(model.embed_texts(tokens, LENGTHS), texts, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_saved_and_loaded_is_equal(tmp_path: Path) -> None:
    model, path = make_model().eval(), tmp_path / "model.safetensors"
    write_tensors(path, model_tensors(model))
    torch.manual_seed(9)
    other = Clip(model.config).eval()
    load_weights(other, read_tensors(path), source=path)
    pixels, tokens = inputs()
    assert torch.equal(model.embed_pictures(pixels), other.embed_pictures(pixels))
    assert torch.equal(model.embed_texts(tokens, LENGTHS), other.embed_texts(tokens, LENGTHS))


def test_layers_and_depths() -> None:
    model = make_model().eval()
    pixels, tokens = inputs()
    assert [layer.shape for layer in model.layers(pixels=pixels)] == [(4, 7, 16)] * 3
    texts = model.layers(tokens=tokens, lengths=LENGTHS)
    assert [layer.shape for layer in texts] == [(4, 9, 12)] * 4
    assert torch.equal(texts[-1], model(tokens=tokens, lengths=LENGTHS).hidden)
    flat = [parameter for depth in model.depths() for parameter in depth]
    assert len(flat) == len(set(flat))
    assert set(flat) == set(model.parameters())
    assert len(model.depths()) == 1 + 3 + 1
    assert ability(model, MatchesPictures) is model


def test_flops_are_those_that_torch_counts() -> None:
    model = make_model()
    pixels, tokens = inputs()
    given = {"pixels": pixels, "tokens": tokens, "lengths": LENGTHS}
    counter = FlopCounterMode(display=False)
    with torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH), counter:
        model.embed_pictures(pixels)
        model.embed_texts(tokens, LENGTHS)
    assert model.matching_flops(given) == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert model.body_flops(9) == model.picture_flops() + model.text_flops(9)


def test_the_scale_is_clipped_at_100_and_can_fall_again() -> None:
    model = make_model()
    assert model.scale().item() == pytest.approx(1 / 0.07, rel=1e-6)
    with torch.no_grad():
        model.log_scale.fill_(9.0)
    scale = model.scale()
    assert scale.item() == pytest.approx(100, rel=1e-6)
    assert model.log_scale.item() == pytest.approx(math.log(100))
    scale.backward()
    assert model.log_scale.grad is not None
    assert model.log_scale.grad > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch": 5}, "patch = 5 does not divide pictures of 8 × 12"),
        ({"text_heads": 5}, "5 heads do not divide the width 12"),
        ({"temperature": 0.001}, "give at least 0.01"),
    ],
)
def test_sizes_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClipConfig(**{**SETTINGS, **changes})


def test_inputs_that_do_not_fit() -> None:
    model = make_model()
    with pytest.raises(ValueError, match=r"pictures of shape \[3, 12, 8\]: this model reads \[3, 8, 12\]"):
        model(torch.zeros(1, 3, 12, 8))
    with pytest.raises(ValueError, match="either pictures"):
        model()
    with pytest.raises(ValueError, match="10"):
        model.embed_texts(torch.zeros(1, 10, dtype=torch.long))
