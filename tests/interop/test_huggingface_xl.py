"""Transformer-XL as `transformers` wrote it before version 5, against a plain computation from that state dict."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hf_references import Draw
from safetensors.torch import load_file, save_file
from torch import Tensor

from lmlab.interop.huggingface import read_model
from lmlab.models.transformer_xl import TransformerXL


def random_checkpoint(seed: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A configuration and a state dict with the names and shapes of `TransfoXLLMHeadModel`."""
    draw = Draw(seed)
    width = draw.width + draw.width % 2 * draw.heads  # the sines need an even one
    d = width // draw.heads
    config = {
        "model_type": "transfo-xl", "architectures": ["TransfoXLLMHeadModel"], "vocab_size": draw.vocabulary,
        "d_model": width, "d_embed": width, "n_head": draw.heads, "d_head": d, "d_inner": draw.inner,
        "n_layer": draw.layers, "mem_len": draw.choose(0, 3, 11), "cutoffs": [], "div_val": 1, "untie_r": False,
        "same_length": False, "clamp_len": -1, "attn_type": 0, "adaptive": True, "pre_lnorm": False,
        "dropout": 0.1, "dropatt": 0.0, "layer_norm_epsilon": 1e-5, "tie_weight": True,
    }  # fmt: skip
    torch.manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.word_emb.emb_layers.0.weight": (draw.vocabulary, width),
        "transformer.r_w_bias": (draw.heads, d),
        "transformer.r_r_bias": (draw.heads, d),
        "crit.out_layers.0.bias": (draw.vocabulary,),
    }
    for i in range(draw.layers):
        layer = f"transformer.layers.{i}"
        shapes |= {
            f"{layer}.dec_attn.qkv_net.weight": (3 * width, width),
            f"{layer}.dec_attn.o_net.weight": (width, width),
            f"{layer}.dec_attn.r_net.weight": (width, width),
            f"{layer}.pos_ff.CoreNet.0.weight": (draw.inner, width),
            f"{layer}.pos_ff.CoreNet.0.bias": (draw.inner,),
            f"{layer}.pos_ff.CoreNet.3.weight": (width, draw.inner),
            f"{layer}.pos_ff.CoreNet.3.bias": (width,),
        }
        for part in ("dec_attn", "pos_ff"):
            shapes |= {f"{layer}.{part}.layer_norm.{kind}": (width,) for kind in ("weight", "bias")}
    return config, {name: torch.randn(shape) * 0.3 for name, shape in shapes.items()}


def compute(config: dict[str, Any], state: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """Log-probabilities [T, V] of one text that is read as a whole: query i meets key j at distance i - j."""
    width, heads, d = config["d_model"], config["n_head"], config["d_head"]
    embeddings = state["transformer.word_emb.emb_layers.0.weight"]
    h = embeddings[tokens] * math.sqrt(width)
    length = len(tokens)
    rates = 1 / (10000 ** (torch.arange(0.0, width, 2.0) / width))
    angles = torch.arange(length).float()[:, None] * rates
    waves = torch.cat([angles.sin(), angles.cos()], dim=-1)  # [distance, D]
    distance = (torch.arange(length)[:, None] - torch.arange(length)).clamp(min=0)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    for i in range(config["n_layer"]):
        layer = {name.split(f"layers.{i}.")[1]: t for name, t in state.items() if f"layers.{i}." in name}
        q, k, v = (part.view(length, heads, d) for part in (h @ layer["dec_attn.qkv_net.weight"].T).chunk(3, dim=-1))
        r = (waves @ layer["dec_attn.r_net.weight"].T).view(length, heads, d)
        content = torch.einsum("ihd,jhd->hij", q + state["transformer.r_w_bias"], k)
        position = torch.einsum("ihd,ijhd->hij", q + state["transformer.r_r_bias"], r[distance])
        weights = ((content + position) / math.sqrt(d)).masked_fill(future, -math.inf).softmax(-1)
        mixed = torch.einsum("hij,jhd->ihd", weights, v).reshape(length, width) @ layer["dec_attn.o_net.weight"].T
        h = _norm(h + mixed, layer, "dec_attn")
        inner = F.relu(F.linear(h, layer["pos_ff.CoreNet.0.weight"], layer["pos_ff.CoreNet.0.bias"]))
        h = _norm(
            h + F.linear(inner, layer["pos_ff.CoreNet.3.weight"], layer["pos_ff.CoreNet.3.bias"]), layer, "pos_ff"
        )
    return F.linear(h, embeddings, state["crit.out_layers.0.bias"]).log_softmax(-1)


def _norm(x: Tensor, layer: dict[str, Tensor], part: str) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], layer[f"{part}.layer_norm.weight"], layer[f"{part}.layer_norm.bias"])


def write(folder: Path, config: dict[str, Any], state: dict[str, Tensor]) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(state, folder / "model.safetensors")


def test_random_configurations_compute_the_same(tmp_path: Path) -> None:
    for seed in range(100):
        config, state = random_checkpoint(seed)
        write(tmp_path / str(seed), config, state)
        model = read_model(tmp_path / str(seed))
        assert isinstance(model, TransformerXL)
        tokens = torch.randint(config["vocab_size"], (13,))
        with torch.inference_mode():
            ours = model.logits(model(tokens[None]).hidden)[0].log_softmax(-1)
        assert (ours - compute(config, state, tokens)).abs().max() <= 1e-4, seed


def test_ties_that_are_written_twice_are_known(tmp_path: Path) -> None:
    config, state = random_checkpoint(3)
    state["crit.out_layers.0.weight"] = state["transformer.word_emb.emb_layers.0.weight"].clone()
    state["transformer.layers.0.dec_attn.r_w_bias"] = state["transformer.r_w_bias"].clone()
    state["transformer.layers.0.dec_attn.r_r_bias"] = state["transformer.r_r_bias"].clone()
    state["transformer.pos_emb.inv_freq"] = torch.ones(config["d_model"] // 2)
    write(tmp_path / "twice", config, state)
    read_model(tmp_path / "twice")
    state["transformer.layers.0.dec_attn.r_w_bias"] += 1
    write(tmp_path / "untied", config, state)
    with pytest.raises(ValueError, match=r"layers\.0\.dec_attn\.r_w_bias differs from transformer\.r_w_bias"):
        read_model(tmp_path / "untied")


@pytest.mark.parametrize(
    ("option", "value"),
    [("untie_r", True), ("cutoffs", [4]), ("div_val", 4), ("same_length", True), ("clamp_len", 1000), ("attn_type", 2)],
)
def test_options_that_lmlab_does_not_have_are_refused(option: str, value: Any, tmp_path: Path) -> None:
    config, state = random_checkpoint(1)
    write(tmp_path / "other", {**config, option: value}, state)
    with pytest.raises(ValueError, match=f"{option} = "):
        read_model(tmp_path / "other")
    left_out = {name: given for name, given in config.items() if name != option}
    write(tmp_path / "default", left_out, state)
    if option != "attn_type":  # of these, transformers takes another value where none is given
        with pytest.raises(ValueError, match=f"{option} = "):
            read_model(tmp_path / "default")


def test_an_odd_width_and_an_adaptive_softmax_cannot_be_written(tmp_path: Path) -> None:
    from hf_references import make_run

    from lmlab.interop.huggingface import export_run

    make_run(tmp_path / "odd", "transformer-xl", "bytes", width=9, heads=3)
    with pytest.raises(ValueError, match="width = 9 is odd"):
        export_run(tmp_path / "odd", tmp_path / "hf")
    make_run(tmp_path / "adaptive", "transformer-xl", "bytes", softmax="adaptive")
    with pytest.raises(ValueError, match="softmax = 'adaptive' cannot be written"):
        export_run(tmp_path / "adaptive", tmp_path / "hf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adaptive", "odd"]
    make_run(tmp_path / "run", "transformer-xl", "bytes")
    export_run(tmp_path / "run", tmp_path / "hf")
    assert "transformer.layers.1.dec_attn.qkv_net.weight" in load_file(tmp_path / "hf/model.safetensors")
