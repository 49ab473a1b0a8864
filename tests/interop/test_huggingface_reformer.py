"""Reformer and `transformers`: equal with the same hashes, and where they differ, who follows the paper's equations."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_references import TEXT, in_double, make_run, randomise, transformers
from safetensors.torch import save_file
from torch import Tensor

import lmlab
from lmlab.interop.huggingface import export_run, import_run, read_model
from lmlab.layers.attention.lsh import Hashes, LSHAttention, hash_vectors
from lmlab.models.abilities import GivesVectors, PredictsNext, ability
from lmlab.runs import run
from lmlab.runs.recipe import make_recipe

SMALL: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 32, "num_attention_heads": 2, "attention_head_size": 8, "feed_forward_size": 40,
    "attn_layers": ["local", "lsh", "lsh"], "max_position_embeddings": 96, "axial_pos_shape": [8, 12],
    "axial_pos_embds_dim": [8, 24], "lsh_attn_chunk_length": 8, "local_attn_chunk_length": 4, "num_buckets": 8,
    "num_hashes": 2, "hash_seed": 5, "is_decoder": True, "local_attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def make(folder: Path, **changes: Any) -> tuple[Any, Any]:
    """A model of theirs with random weights, and the same as we read it."""
    torch.manual_seed(0)
    reference = transformers.ReformerModelWithLMHead(transformers.ReformerConfig(**{**SMALL, **changes}))
    reference = randomise(reference.eval())
    reference.save_pretrained(folder)
    return reference, read_model(folder)


def text(length: int = 75, rows: int = 2) -> Tensor:
    return torch.randint(60, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("length", [5, 8, 33, 96])
@torch.inference_mode()
def test_logits_are_the_same_with_the_same_hashes(length: int, tmp_path: Path) -> None:
    """With one round in single precision; with several in double, for the reason that the next test shows."""
    reference, model = make(tmp_path / "one", num_hashes=1)
    assert (model.logits(model(text(length)).hidden) - reference(text(length)).logits).abs().max() <= 1e-4
    reference, model = in_double(*make(tmp_path / "two"))
    assert (model.logits(model(text(length)).hidden) - reference(text(length)).logits).abs().max() <= 1e-9


@torch.inference_mode()
def test_theirs_weighs_rounds_by_numbers_that_do_not_add_up_to_one(tmp_path: Path) -> None:
    """The first token sees only itself, so its output is its own value, whatever the rounds: 1 · v.

    In theirs each round has the logarithm -100,000, to which log 2 is added in single precision: steps of 0.0078.
    """
    reference, model = make(tmp_path, attn_layers=["lsh"])
    theirs, ours = reference.reformer.encoder.layers[0].attention.self_attention, model.blocks[0].attention
    x = torch.randn(1, 32, 32, generator=torch.Generator().manual_seed(2))
    value = ours.value(x)[0, 0]
    mixed = ours(x, Hashes(model.rotations))
    torch.testing.assert_close(mixed[0, 0], ours.projection(value), atol=1e-6, rtol=1e-5)
    fraction = (theirs(x).hidden_states[0, 0] / value).mean().item()
    assert abs(fraction - 1) > 1e-3


def lsh(rotations: Tensor, weights: Any, *, reach: int) -> LSHAttention:
    """Our attention by the equations, with the matrices of theirs."""
    layer = LSHAttention(32, 2, head_width=8, factors=[8], reach=reach, stride=1000).double()
    layer.load_state_dict(
        {
            "query_key.weight": weights.query_key.weight,
            "value.weight": weights.value.weight,
            "projection.weight": torch.eye(16, 32).T,
        }
    )
    return layer


def dependence(function: Any, x: Tensor) -> Tensor:
    """[T, T], True where the output at i depends on the value of j, by the gradients of one head."""
    rows = []
    for i in range(x.shape[1]):
        handle: list[Tensor] = []
        out = function(x, handle)[0, i, :8].sum()
        (gradient,) = torch.autograd.grad(out, handle[0])
        rows.append(gradient[0, :, :8].abs().sum(-1) > 1e-9)
    return torch.stack(rows)


def test_by_the_equations_only_a_bucket_is_seen_and_nothing_of_the_future(tmp_path: Path) -> None:
    """P_i⁽ʳ⁾ = {j : h⁽ʳ⁾(q_i) = h⁽ʳ⁾(k_j)} (section 2): theirs sees others too, and whom depends on what follows."""
    reference, model = make(tmp_path, attn_layers=["lsh"])
    reference, model = in_double(reference, model)
    theirs = reference.reformer.encoder.layers[0].attention.self_attention
    ours = lsh(model.rotations, theirs, reach=8)
    torch.manual_seed(3)
    x = torch.randn(1, 64, 32, dtype=torch.double)

    def keeping(module: Any, handle: list[Tensor]) -> Any:
        def keep(_: Any, __: Any, value: Tensor) -> Tensor:
            handle.append(value.detach().requires_grad_())
            return handle[0]

        return module.value.register_forward_hook(keep)

    def run_theirs(x: Tensor, handle: list[Tensor]) -> Tensor:
        hook = keeping(theirs, handle)
        out = theirs(x).hidden_states
        hook.remove()
        return out

    def run_ours(x: Tensor, handle: list[Tensor]) -> Tensor:
        hook = keeping(ours, handle)
        out = ours(x, Hashes(model.rotations))[..., :16]
        hook.remove()
        return out

    q = ours.query_key(x).view(1, 64, 2, 8).transpose(1, 2)
    buckets = hash_vectors(q, model.rotations, [8])[0, 0]  # [R, T] of the first head
    together = (buckets[:, :, None] == buckets[:, None, :]).any(0)
    itself = torch.eye(64, dtype=torch.bool)
    seen = {"theirs": dependence(run_theirs, x), "ours": dependence(run_ours, x)}
    assert not (seen["ours"] & ~together).any()
    assert (seen["theirs"] & ~together & ~itself).sum() > 100, "theirs attends to other buckets"
    near = together.tril(-1)
    assert not (seen["ours"] & ~near & ~itself).any()

    later = x.clone()
    later[:, 40:] = torch.randn(1, 24, 32, dtype=torch.double)
    with torch.no_grad():
        moved = (theirs(later).hidden_states - theirs(x).hidden_states)[:, :40].abs().max()
        kept = (ours(later, Hashes(model.rotations)) - ours(x, Hashes(model.rotations)))[:, :40].abs().max()
    assert moved > 1e-2, "in theirs, what follows changes what was"
    assert kept < 1e-12


@pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
@pytest.mark.parametrize("changes", [{}, {"positions": "learned", "buckets": [2, 4]}, {"predicts": False}])
def test_a_run_opens_there_and_comes_back_bit_by_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    settings = {"attends": "chunk", "chunk": 4, "local_chunk": 4, "hash_seed": 7, **changes}
    model, tokenizer = make_run(tmp_path / "run", "reformer", "bpe:300", **settings)
    export_run(tmp_path / "run", tmp_path / "hf")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "hf")
    name = "ReformerModel" if changes.get("predicts") is False else "ReformerModelWithLMHead"
    assert config.architectures == [name]
    theirs, report = getattr(transformers, name).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    ids = torch.tensor([tokenizer.encode(TEXT[3] * 2)[:32]])
    reference, ours = in_double(theirs.eval(), model)
    with torch.inference_mode():
        hidden = ours(ids).hidden
        found = reference(ids)
        expected = found.last_hidden_state if name == "ReformerModel" else found.logits
        mine = hidden if name == "ReformerModel" else ours.logits(hidden)
    assert (mine - expected).abs().max() <= 1e-4
    import_run(tmp_path / "hf", tmp_path / "back")
    for file in ("config.json", "model.safetensors", "tokenizer.json", "manifest.json"):
        assert (tmp_path / "back" / file).read_bytes() == (tmp_path / "run" / file).read_bytes(), file


def test_a_model_by_the_equations_is_trained_on_before_it_can_be_written(tmp_path: Path) -> None:
    """The refusal says how; what it says works, and gives the same scores there."""
    (tmp_path / "text.txt").write_text("\n".join(TEXT * 4))
    sizes = {"kind": "reformer", "size": "tiny", "chunk": 4, "local_chunk": 4, "window": 32, "hashes": 1}
    values: dict[str, Any] = {
        "data": {"text": [str(tmp_path / "text.txt")]},
        "tokenizer": {"spec": "characters"},
        "model": sizes,
        "train": {"budget": "2steps", "batch": 2, "evaluations": 1},
    }
    run.start(make_recipe(values), tmp_path / "run")
    with pytest.raises(ValueError, match="its reformer has only attends = 'chunk'; train with") as refused:
        export_run(tmp_path / "run", tmp_path / "hf")
    assert "--set model.attends=chunk, or train on from this run with it (--from)" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "hf").exists()

    del values["tokenizer"]
    values |= {"model": {"kind": "reformer", "attends": "chunk"}, "origin": str(tmp_path / "run")}
    run.start(make_recipe(values), tmp_path / "on")
    export_run(tmp_path / "on", tmp_path / "hf")
    theirs = transformers.ReformerModelWithLMHead.from_pretrained(tmp_path / "hf").eval()
    import_run(tmp_path / "hf", tmp_path / "back")
    ids = torch.randint(20, (2, 30), generator=torch.Generator().manual_seed(4))
    for name in ("on", "back"):
        ours: Any = lmlab.load(tmp_path / name).model.eval()
        with torch.inference_mode():
            assert (ours.logits(ours(ids).hidden) - theirs(ids).logits).abs().max() <= 1e-4


def test_a_base_gives_vectors_and_predicts_nothing(tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = transformers.ReformerModel(transformers.ReformerConfig(**SMALL)).eval()
    reference.save_pretrained(tmp_path)
    model = read_model(tmp_path)
    assert ability(model, PredictsNext) is None
    assert ability(model, GivesVectors) is not None
    assert len(model.layers(tokens=text(20))) == 4
    assert math.isfinite(model.body_flops(20))


@pytest.mark.parametrize(
    ("option", "value"), [("is_decoder", False), ("hidden_act", "gelu"), ("lsh_num_chunks_after", 1)]
)
def test_options_that_lmlab_does_not_have_are_refused(option: str, value: Any, tmp_path: Path) -> None:
    config = transformers.ReformerConfig(**SMALL).to_dict()
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["ReformerModel"], option: value}))
    save_file({"x": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"{option} = {value!r} is not supported"):
        read_model(tmp_path)
