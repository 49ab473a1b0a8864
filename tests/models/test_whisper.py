"""Whisper against transformers with the same weights, and the contract of models that write from sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lmlab.config import build
from lmlab.costs.design import describe
from lmlab.models import LINEAGE, outline
from lmlab.models.abilities import Transcribes, WritesTarget
from lmlab.models.whisper import Whisper, WhisperConfig
from lmlab.runs.model_files import load_weights, model_tensors
from lmlab.runs.storage import read_tensors, write_tensors

SMALL = {"vocabulary": 23, "width": 16, "heads": 2, "layers": 2, "inner": 24, "mels": 6, "frames": 40, "window": 12}


def make(**changes: Any) -> Whisper:
    torch.manual_seed(0)
    model = Whisper(build(WhisperConfig, {**SMALL, "dropout": 0.0, **changes}, where="model")).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def sound(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tokens(*shape: int, seed: int = 2) -> Tensor:
    return torch.randint(0, 23, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("beams", [1, 3])
def test_steps_are_the_forward_pass(beams: int) -> None:
    model, written = make(), tokens(2 * beams, 7)
    whole = model.logits(model(written, sound=sound(2, 6, 31).repeat_interleave(beams, 0)).hidden)
    state = model.begin(model.encode(sound=sound(2, 6, 31)), beams=beams)
    for place in range(7):
        logits, state = model.step(written[:, place : place + 1], state)
        torch.testing.assert_close(logits, whole[:, place], atol=1e-4, rtol=1e-4)


def test_padding_and_order_change_nothing() -> None:
    model, heard, written = make(), sound(3, 6, 33), tokens(3, 8)
    lengths, targets = torch.tensor([33, 20, 7]), torch.tensor([8, 3, 5])
    together = model(written, sound=heard, lengths=lengths, target_lengths=targets).hidden
    turned = model(written.flip(0), sound=heard.flip(0), lengths=lengths.flip(0), target_lengths=targets.flip(0)).hidden
    torch.testing.assert_close(turned.flip(0), together, atol=1e-5, rtol=1e-5)
    for row, (length, target) in enumerate(zip(lengths.tolist(), targets.tolist(), strict=True)):
        alone = model(written[row : row + 1, :target], sound=heard[row : row + 1, :, :length]).hidden[0]
        torch.testing.assert_close(together[row, :target], alone, atol=1e-5, rtol=1e-5)


def test_it_hears_the_whole_sound_and_sees_no_later_token() -> None:
    model, heard, written = make(), sound(1, 6, 30), tokens(1, 8)
    before = model(written, sound=heard).hidden
    later = written.clone()
    later[0, 5] = (later[0, 5] + 1) % 23
    after = model(later, sound=heard).hidden
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])
    for frame in (0, 29):
        other = heard.clone()
        other[:, :, frame] += 1
        assert not torch.equal(model(written, sound=other).hidden[:, 0], before[:, 0])


def test_it_has_its_abilities_and_gradients_reach_all() -> None:
    model = make()
    assert isinstance(model, WritesTarget)
    assert isinstance(model, Transcribes)
    assert {parameter for depth in model.depths() for parameter in depth} == set(model.parameters())
    model(tokens(2, 7), sound=sound(2, 6, 20)).hidden.square().sum().backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in model.parameters())
    layers = model.layers(sound=sound(2, 6, 21), lengths=torch.tensor([21, 8]))
    assert [layer.shape for layer in layers] == [(2, 11, 16)] * 3


def test_saved_and_loaded_is_bit_equal(tmp_path: Path) -> None:
    model, other = make(), make()
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    write_tensors(tmp_path / "model.safetensors", model_tensors(model))
    load_weights(other, read_tensors(tmp_path / "model.safetensors"), source=tmp_path)
    assert torch.equal(
        model(tokens(2, 7), sound=sound(2, 6, 20)).hidden, other(tokens(2, 7), sound=sound(2, 6, 20)).hidden
    )


@pytest.mark.parametrize(("frames", "target"), [(32, 9), (21, 12)])
def test_flops_are_those_of_torch(frames: int, target: int) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    model = make()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model.logits(model(tokens(1, target), sound=sound(1, 6, frames)).hidden)
    assert model.pair_flops(frames, target) + target * model.head_flops() == pytest.approx(counter.get_total_flops())


@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        ("tiny", 37_760_640),
        ("base", 72_593_920),
        ("small", 241_734_912),
        ("medium", 763_857_920),
        ("large-v3", 1_543_490_560),
    ],
)
def test_published_sizes(size: str, parameters: int) -> None:
    """As transformers counts them, the fixed positions of the encoder included."""
    vocabulary = 51_866 if size == "large-v3" else 51_865
    model = outline("whisper", {**LINEAGE["whisper"].sizes[size], "vocabulary": vocabulary})
    counted = sum(parameter.numel() for parameter in model.parameters()) + model.encoder.positions.numel()
    assert counted == parameters


@pytest.mark.parametrize("size", ["tiny", "base", "small", "medium", "large", "large-v3-turbo"])
def test_cost_knows_the_published_sizes(size: str) -> None:
    design = describe("whisper", size=size)
    assert design.published is not None
    assert design.parameters.total == pytest.approx(design.published.parameters, rel=0.05)


def test_it_computes_what_transformers_computes() -> None:
    transformers: Any = pytest.importorskip("transformers")
    model = make()
    config = transformers.WhisperConfig(
        **{"vocab_size": 23, "num_mel_bins": 6, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2},
        **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24},
        **{"max_source_positions": 20, "max_target_positions": 12, "pad_token_id": 0, "bos_token_id": 0},
        **{"eos_token_id": 0, "decoder_start_token_id": 0, "dropout": 0.0},
    )
    theirs = transformers.WhisperForConditionalGeneration(config).eval()
    theirs.load_state_dict(_their_names(model.state_dict()), strict=False)
    heard, written = sound(2, 6, 40), tokens(2, 9)
    expected = theirs(input_features=heard, decoder_input_ids=written).logits
    torch.testing.assert_close(model.logits(model(written, sound=heard).hidden), expected, atol=1e-4, rtol=1e-4)


def _their_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a Whisper by the names of transformers, written out by hand."""
    found = {
        "model.decoder.embed_tokens.weight": state["embedding.weight"],
        "proj_out.weight": state["embedding.weight"],
        "model.encoder.embed_positions.weight": state["encoder.positions"],
        "model.decoder.embed_positions.weight": state["decoder.positions.weight"],
    }
    for end in ("weight", "bias"):
        for ours, name in (("first", "conv1"), ("second", "conv2"), ("norm", "layer_norm")):
            found[f"model.encoder.{name}.{end}"] = state[f"encoder.{ours}.{end}"]
        found[f"model.decoder.layer_norm.{end}"] = state[f"decoder.norm.{end}"]
        for side in ("encoder", "decoder"):
            for block in range(2):
                mine, own = f"{side}.blocks.{block}", f"model.{side}.layers.{block}"
                rows = state[f"{mine}.attention.query_key_value.{end}"].chunk(3 if end == "weight" else 2)
                letters = "qkv" if end == "weight" else "qv"
                found |= {f"{own}.self_attn.{x}_proj.{end}": part for x, part in zip(letters, rows, strict=True)}
                pairs = {
                    "attention.projection": "self_attn.out_proj",
                    "attention_norm": "self_attn_layer_norm",
                    "feed_forward.expand": "fc1",
                    "feed_forward.contract": "fc2",
                    "feed_forward_norm": "final_layer_norm",
                }
                if side == "decoder":
                    rows = state[f"{mine}.cross_attention.key_value.{end}"].chunk(2 if end == "weight" else 1)
                    letters = "kv" if end == "weight" else "v"
                    found |= {f"{own}.encoder_attn.{x}_proj.{end}": part for x, part in zip(letters, rows, strict=True)}
                    pairs |= {
                        "cross_attention.query": "encoder_attn.q_proj",
                        "cross_attention.projection": "encoder_attn.out_proj",
                        "cross_attention_norm": "encoder_attn_layer_norm",
                    }
                found |= {f"{own}.{theirs}.{end}": state[f"{mine}.{ours}.{end}"] for ours, theirs in pairs.items()}
    return found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 15, "heads": 1}, "even width"),
        ({"alignment_heads": [[5, 0]]}, "alignment_heads"),
        ({"suppress": [99]}, "suppress"),
        ({"norm": "post"}, "pre-norm"),
    ],
)
def test_wrong_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_wrong_spectrograms() -> None:
    with pytest.raises(ValueError, match=r"this model reads \[B, 6, F\]"):
        make().encode(sound=sound(1, 5, 20))
    with pytest.raises(ValueError, match="at most 40"):
        make().encode(sound=sound(1, 6, 41))
    with pytest.raises(ValueError, match="needs a recording"):
        make()(tokens(1, 3))
