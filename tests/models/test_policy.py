"""Policy: pictures and commands in, actions as words out; and the built-in world that it acts in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmlab
from lmlab.analysis.policies.success_rates import measure_success
from lmlab.data.readers.pictures.scenes import UNSEEN
from lmlab.data.readers.robot_world import (
    LIMIT,
    MISSIONS,
    best_action,
    demonstrate,
    find_world,
    is_on,
    make_mission,
    move_hand,
    paint_world,
    read_action,
    write_action,
)
from lmlab.layers.convolution import modulate
from lmlab.models import create
from lmlab.models.policy import Policy
from tolerances import of_blocks

SIZES: dict[str, Any] = {
    **{"vocabulary": 19, "image": [16, 16], "channels": 3, "convolutions": [4, 8]},
    **{"width": 16, "heads": 2, "layers": 2, "inner": 24, "dropout": 0.0, "window": 8},
}


def make() -> Policy:
    torch.manual_seed(0)
    model = create("policy", SIZES)
    assert isinstance(model, Policy)
    return model.eval()


def inputs(rows: int = 3) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "pixels": torch.randn(rows, 3, 16, 16, generator=generator),
        "source": torch.randint(0, 19, (rows, 5), generator=generator),
        "lengths": torch.tensor([5, 2, 4][:rows]),
        "tokens": torch.randint(0, 19, (rows, 4), generator=generator),
    }


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    scale = max(1.0, float(other.abs().max()))
    torch.testing.assert_close(one, other, atol=of_blocks(4, width=16, growth=8) * scale, rtol=0)


def test_padding_of_commands_changes_nothing() -> None:
    model, given = make(), inputs()
    with torch.no_grad():
        together = model(**given).hidden
        for row, length in enumerate(given["lengths"].tolist()):
            alone = {name: value[row : row + 1] for name, value in given.items() if name != "lengths"}
            close(model(**{**alone, "source": alone["source"][:, :length]}).hidden[0], together[row])


def test_writing_step_by_step_gives_the_same() -> None:
    model, given = make(), inputs()
    source = {name: given[name] for name in ("pixels", "source", "lengths")}
    with torch.no_grad():
        at_once = model.logits(model(**given).hidden)
        state: Any = model.begin(model.encode(**source))
        for t in range(4):
            scores, state = model.step(given["tokens"][:, t : t + 1], state)
            close(scores, at_once[:, t])


@pytest.mark.parametrize("name", ["pixels", "source"])
def test_picture_and_command_matter(name: str) -> None:
    model, given = make(), inputs()
    with torch.no_grad():
        before = model(**given).hidden
        given[name] = given[name].flip(0)
        assert (model(**given).hidden - before).abs().max() > 1e-3


def test_the_command_changes_what_the_convolutions_see_only_with_film() -> None:
    given = inputs()
    for film in (True, False):
        torch.manual_seed(0)
        model = create("policy", {**SIZES, "film": film, "layers": 1}).eval()
        assert isinstance(model, Policy)
        seen: list[torch.Tensor] = []
        model.regions.net.register_forward_hook(lambda module, args, output, seen=seen: seen.append(output))
        with torch.no_grad():
            model(**given)
            model(**{**given, "source": given["source"].flip(1)[:, :3], "lengths": torch.tensor([3, 3, 3])})
        assert torch.equal(seen[0], seen[1]) != film


def test_modulation_scales_and_shifts_channels() -> None:
    x = torch.arange(8.0).view(1, 2, 2, 2)
    changed = modulate(x, torch.tensor([[1.0, -1.0, 0.5, 3.0]]))
    torch.testing.assert_close(changed[0, 0], 2 * x[0, 0] + 0.5)
    torch.testing.assert_close(changed[0, 1], torch.full((2, 2), 3.0))
    assert modulate(x, None) is x


def test_the_actions_of_the_expert_reach_the_goal() -> None:
    for index in range(30):
        mission = make_mission("train", index)
        hand = mission.start
        assert not is_on(mission.goal, hand)
        for _ in range(LIMIT):
            move = read_action(best_action(mission, hand))
            assert move is not None
            hand = move_hand(hand, move)
        assert is_on(mission.goal, hand)


def test_actions_are_read_as_they_are_written() -> None:
    for across in np.linspace(-1, 1, 9).tolist():
        assert read_action(write_action(across, -across)) == (across, -across)
    for wrong in ("", "x4", "x9 y0", "y0 x0", "x-1 y0", "red", "x4 y4 x4", "x² y0"):
        assert read_action(wrong) is None
    assert move_hand((0.0, 1.0), (-1.0, 1.0)) == (0.0, 1.0), "the hand stays in the picture"


def test_splits_have_other_missions_and_unseen_goals() -> None:
    commands = {part: {make_mission(part, index).command for index in range(40)} for part in ("train", "unseen")}
    pairs = {f"{colour} {shape}" for colour, shape in UNSEEN}
    assert all(any(pair in command for pair in pairs) for command in commands["unseen"])
    assert not any(pair in command for pair in pairs for command in commands["train"])
    assert make_mission("test", 3) == make_mission("test", 3)
    first = make_mission("test", 0)
    assert (paint_world(first.scene, first.start) != paint_world(first.scene, (0.5, 0.5))).any()
    assert len(list(demonstrate(first, 0))) <= LIMIT


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has learnt two missions by heart."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("policy")
    lines = ["picture\tcommand\taction"]
    for index in range(2):
        mission = make_mission("test", index)
        for number, (hand, action) in enumerate(demonstrate(mission, index)):
            image.fromarray(paint_world(mission.scene, hand)).save(folder / f"{index}-{number}.png")
            lines.append(f"{index}-{number}.png\t{mission.command}\t{action}")
    (folder / "table.tsv").write_text("\n".join(lines) + "\n")
    settings = {"train.batch": 8, "train.warmup": 5, "train.rate": 0.004, "data.split": [1.0], "train.seed": 1}
    small = {"model.width": 32, "model.inner": 64, "model.convolutions": [8, 16], "model.layers": 1}
    lmlab.train(
        "policy", str(folder / "table.tsv"), output=folder / "run", budget="500steps", settings={**settings, **small}
    )
    return folder / "run"


def test_it_learns_to_act_from_a_table(run: Path) -> None:
    follower = lmlab.load(run).command_follower
    missions = [make_mission("test", index) for index in range(2)]
    right = 0
    for mission in missions:
        hands = [hand for hand, _ in demonstrate(mission, missions.index(mission))]
        actions = follower.respond([paint_world(mission.scene, hand) for hand in hands], [mission.command] * len(hands))
        right += sum(found == best_action(mission, hand) for found, hand in zip(actions, hands, strict=True))
    total = sum(1 for index, mission in enumerate(missions) for _ in demonstrate(mission, index))
    assert right / total > 0.8


def test_success_rates_have_intervals_and_a_control(run: Path) -> None:
    rates, first = measure_success(lmlab.load(run).command_follower, run="run", missions=3)
    assert [(row.command, row.number) for row in rates.rows] == [(True, 3), (False, 3)] * 2
    assert all(0 <= row.success <= 1 for row in rates.rows)
    assert len(first.frames) == first.steps >= 1


def test_other_environments_are_refused(run: Path) -> None:
    with pytest.raises(ValueError, match="give builtin:world"):
        lmlab.load(run).act("CartPole-v1")


def test_a_table_without_commands_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"captions, for captioner.*policy learns from builtin:world or"):
        lmlab.train("policy", "builtin:scenes", output=tmp_path / "run", budget="1steps")
    assert not (tmp_path / "run").exists()


def test_the_built_in_rows_name_their_split() -> None:
    files = find_world("world")
    assert files.valid is not None
    assert len({row.picture.name.split("/")[2] for row in files.valid}) == MISSIONS["valid"]
