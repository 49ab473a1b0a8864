"""Decision Transformers of `transformers`: the same actions, in both directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import lmlab
from lmlab.interop.huggingface import export_run, import_run, read_model
from tolerances import of_blocks

transformers = pytest.importorskip("transformers")
STEPS = 7


def write_theirs(folder: Path, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"state_dim": 5, "act_dim": 3, "hidden_size": 24, "n_layer": 2, "n_head": 3, "max_ep_len": 40}
    usual = {"vocab_size": 1, "bos_token_id": 0, "eos_token_id": 0}
    model = transformers.DecisionTransformerModel(transformers.DecisionTransformerConfig(**usual, **sizes, **changes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.eval().save_pretrained(folder)
    return model


def episodes() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "states": torch.randn(2, STEPS, 5, generator=generator),
        "actions": torch.rand(2, STEPS, 3, generator=generator) * 2 - 1,
        "returns": torch.rand(2, STEPS, generator=generator),
        "timesteps": torch.arange(3, 3 + STEPS).repeat(2, 1),
    }


def actions_of_theirs(model: Any, given: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        found = model(
            states=given["states"],
            actions=given["actions"],
            rewards=torch.zeros(2, STEPS, 1),
            returns_to_go=given["returns"][..., None],
            timesteps=given["timesteps"],
            attention_mask=torch.ones(2, STEPS, dtype=torch.long),
        )
    actions: torch.Tensor = found.action_preds
    return actions


@pytest.mark.parametrize("action_tanh", [True, False])
def test_actions_are_those_of_transformers(action_tanh: bool, tmp_path: Path) -> None:
    theirs, given = write_theirs(tmp_path / "theirs", action_tanh=action_tanh), episodes()
    ours: Any = read_model(tmp_path / "theirs")
    with torch.no_grad():
        found = ours.scores(ours(**given).hidden)
    expected = actions_of_theirs(theirs, given)
    tolerance = of_blocks(2, width=24, growth=8) * float(expected.abs().max())
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def test_there_and_back(tmp_path: Path) -> None:
    theirs, given = write_theirs(tmp_path / "theirs"), episodes()
    with pytest.warns(UserWarning, match=r"has no processor\.json with the scales"):
        import_run(tmp_path / "theirs", tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "again")
    again = transformers.DecisionTransformerModel.from_pretrained(tmp_path / "again").eval()
    expected = actions_of_theirs(theirs, given)
    tolerance = of_blocks(2, width=24, growth=8) * float(expected.abs().max())
    torch.testing.assert_close(actions_of_theirs(again, given), expected, atol=tolerance, rtol=0)
    import_run(tmp_path / "again", tmp_path / "second")
    first, second = lmlab.load(tmp_path / "run"), lmlab.load(tmp_path / "second")
    assert second.processor == first.processor
    for name, value in first.model.state_dict().items():
        torch.testing.assert_close(second.model.state_dict()[name], value)


def test_behaviour_cloning_cannot_be_written(tmp_path: Path) -> None:
    lmlab.train(
        "decision-transformer",
        "builtin:cart-pole",
        output=tmp_path / "run",
        size="tiny",
        budget="1steps",
        settings={"model.returns": False, "train.batch": 2},
    )
    with pytest.raises(ValueError, match="returns"):
        export_run(tmp_path / "run", tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
