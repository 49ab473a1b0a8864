"""VisualBERT to `transformers` and back: the same vectors and scores, the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hf_references import ROLES, make_run, transformers
from torch import Tensor

import lmlab
from lmlab.interop.huggingface import export_run, import_run, read_model
from lmlab.models.abilities import FillsMasks, require
from lmlab.runs.model_files import load_model
from regions import make_inputs

pytestmark = pytest.mark.filterwarnings("ignore::lmlab.tokenizers.TokenizerWarning")
SHAPE: dict[str, Any] = {
    **{"vocab_size": 23, "hidden_size": 15, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 22},
    **{"max_position_embeddings": 12, "visual_embedding_dim": 7, "pad_token_id": 0},
}


def theirs_of(inputs: dict[str, Tensor], visual: Tensor) -> dict[str, Tensor]:
    """Our inputs as theirs: masks in place of lengths."""
    words, regions = inputs["tokens"].shape[1], visual.shape[1]
    return {
        "input_ids": inputs["tokens"],
        "attention_mask": (torch.arange(words) < inputs["lengths"][:, None]).long(),
        "visual_embeds": visual,
        "visual_attention_mask": (torch.arange(regions) < inputs["region_lengths"][:, None]).long(),
        "visual_token_type_ids": torch.ones(visual.shape[:2], dtype=torch.long),
    }


def real(inputs: dict[str, Tensor]) -> Tensor:
    """[B, T + R], False at padding."""
    words = torch.arange(inputs["tokens"].shape[1]) < inputs["lengths"][:, None]
    regions = torch.arange(inputs["regions"].shape[1]) < inputs["region_lengths"][:, None]
    return torch.cat([words, regions], dim=1)


@pytest.mark.parametrize("name", ["VisualBertForPreTraining", "VisualBertModel"])
@torch.no_grad()
def test_theirs_have_the_same_outputs_here(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = getattr(transformers, name)(transformers.VisualBertConfig(**SHAPE)).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    theirs.tie_weights()
    theirs.save_pretrained(tmp_path)
    ours = read_model(tmp_path)
    inputs = make_inputs()
    expected = theirs(**theirs_of(inputs, inputs["regions"]))
    inside = real(inputs)
    if name == "VisualBertModel":
        hidden = ours(**inputs).hidden
        torch.testing.assert_close(hidden[inside], expected.last_hidden_state[inside], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(ours.pool(hidden), expected.pooler_output, atol=1e-4, rtol=1e-4)
        return
    both = ours.read_both(**inputs)
    torch.testing.assert_close(ours.match(both.joint), expected.seq_relationship_logits, atol=1e-4, rtol=1e-4)
    words = inside[:, :9]
    found = require(ours, FillsMasks).logits(both.words[words])
    torch.testing.assert_close(found, expected.prediction_logits[:, :9][words], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"locations": False, "head": False, "pairs": False}])
def test_ours_open_in_transformers_and_come_back_bit_by_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    run, folder, back = (tmp_path / name for name in ("run", "hf", "back"))
    model, _ = make_run(run, "visualbert", "wordpiece:200", roles=ROLES, region_width=7, **changes)
    export_run(run, folder)
    name = "VisualBertModel" if changes else "VisualBertForPreTraining"
    theirs = getattr(transformers, name).from_pretrained(folder).eval()
    inputs = make_inputs()
    boxes = inputs["boxes"]
    area = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    located = torch.cat([inputs["regions"], boxes, area[..., None]], dim=-1)
    with torch.no_grad():
        expected = theirs(**theirs_of(inputs, inputs["regions"] if changes else located), output_hidden_states=True)
        hidden, inside = model(**inputs).hidden, real(inputs)
        torch.testing.assert_close(hidden[inside], expected.hidden_states[-1][inside], atol=1e-4, rtol=1e-4)
    import_run(folder, back)
    again, _ = load_model(back)
    assert again.config == model.config
    for (one, two), other in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(two, other), one


def test_vilbert_has_no_counterpart(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "vilbert", "wordpiece:200", roles=ROLES, region_width=7)
    with pytest.raises(ValueError, match="transformers has no model like vilbert"):
        export_run(tmp_path / "run", tmp_path / "hf")
    assert lmlab.load(tmp_path / "run").fill("The planet [MASK]")
