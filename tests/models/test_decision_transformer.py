"""Decision Transformer: causality, padding, steps as the whole, acting, behaviour cloning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lmlab
from lmlab.analysis.policies.action_errors import measure_actions
from lmlab.analysis.policies.reached_returns import summarise
from lmlab.data.corpora.episodes import make_split, read_all
from lmlab.decoding.actor import open_environment, write_film
from lmlab.models.decision_transformer import DecisionTransformer, DecisionTransformerConfig
from lmlab.runs.run import resume
from tolerances import of_blocks

SIZES: dict[str, Any] = {"width": 16, "heads": 2, "layers": 2, "window": 6, "longest": 30, "dropout": 0.0}


def make(*, discrete: bool = True, **changes: Any) -> DecisionTransformer:
    torch.manual_seed(0)
    config = DecisionTransformerConfig(**{"states": 3, "actions": 2, "discrete": discrete, **SIZES, **changes})
    model = DecisionTransformer(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def inputs(rows: int = 2, steps: int = 6) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "states": torch.randn(rows, steps, 3, generator=generator),
        "actions": torch.eye(2)[torch.randint(0, 2, (rows, steps), generator=generator)],
        "returns": torch.rand(rows, steps, generator=generator),
        "timesteps": torch.arange(steps).repeat(rows, 1),
    }


@pytest.mark.parametrize("name", ["states", "actions", "returns"])
def test_an_action_depends_on_what_came_before_it_alone(name: str) -> None:
    model, given = make(), inputs()
    with torch.no_grad():
        before = model.scores(model(**given).hidden)
        given[name] = given[name].clone()
        given[name][:, 3] += 1
        after = model.scores(model(**given).hidden)
    changed = 4 if name == "actions" else 3
    torch.testing.assert_close(before[:, :changed], after[:, :changed])
    assert all((before[:, t] - after[:, t]).abs().max() > 1e-4 for t in range(changed, 6))


def test_padding_changes_nothing() -> None:
    model, given = make(), inputs()
    with torch.no_grad():
        whole = model(**given).hidden
        short = model(**{name: value[:, :4] for name, value in given.items()}).hidden
    torch.testing.assert_close(whole[:, :4], short)


@pytest.mark.parametrize("returns", [True, False])
def test_steps_give_the_scores_of_the_last_window(returns: bool) -> None:
    model, steps = make(returns=returns), 9
    given = inputs(steps=steps)
    history, before = model.start(2), None
    for t in range(steps):
        with torch.no_grad():
            scores, history = model.step(given["states"][:, t], history, returns=given["returns"][:, t], actions=before)
            first = max(0, t + 1 - 6)
            window = {name: value[:, first : t + 1] for name, value in given.items()}
            expected = model.scores(model(**window).hidden[:, -1])
        before = given["actions"][:, t]
        tolerance = of_blocks(2, width=16, growth=8) * float(expected.abs().max())
        torch.testing.assert_close(scores, expected, atol=tolerance, rtol=0)


def test_behaviour_cloning_does_not_read_the_return() -> None:
    model, given = make(returns=False), inputs()
    with torch.no_grad():
        one = model(**given).hidden
        other = model(**{**given, "returns": given["returns"] + 5}).hidden
    torch.testing.assert_close(one, other)


def test_continuous_actions_stay_between_minus_one_and_one() -> None:
    model = make(discrete=False)
    with torch.no_grad():
        scores = model.scores(100 * model(**inputs()).hidden)
    assert scores.abs().max() <= 1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decisions") / "run"
    lmlab.train(
        "decision-transformer",
        "builtin:cart-pole",
        output=folder,
        size="tiny",
        budget="25steps",
        settings={"train.batch": 16, "train.warmup": 5, "train.evaluate_every": 25},
    )
    return folder


def test_a_run_acts_and_reports_what_it_reaches(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    actor = lmlab.load(run).actor
    environment = open_environment("CartPole-v1", actor.processor)
    played = actor.play_all(environment, targets=[30.0, 500.0], episodes=2, seed=3)
    again = actor.play(environment, target=500.0, seed=3)
    assert again.rewards == played[500.0][0].rewards
    view = summarise(played, actor.processor, run="run", env="CartPole-v1")
    assert [row.asked for row in view.rows] == [30.0, 500.0]
    assert [len(row.returns) for row in view.rows] == [2, 2]
    assert "reached" in str(view.figures()[0].html())
    with pytest.raises(ValueError, match="has learnt states of 4 numbers"):
        open_environment("Pendulum-v1", actor.processor)
    with pytest.raises(ValueError, match="cannot be opened"):
        open_environment("NoSuchThing-v0", actor.processor)


def test_a_film_is_written(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    write_film([np.full((8, 8, 3), 40 * k, np.uint8) for k in range(3)], tmp_path / "film.gif")
    with image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 3


def test_it_predicts_actions_better_than_one_action(run: Path, tmp_path: Path) -> None:
    actor = lmlab.load(run).actor
    data = make_split([each.episode for each in read_all(["builtin:cart-pole"])], actor.processor)
    found = measure_actions(actor, data, run="run")
    assert found.actions == 59_718
    assert found.action_error.value < found.baseline_error.value - 0.1


def test_resuming_a_finished_run_keeps_the_scales(run: Path) -> None:
    before = lmlab.load(run).processor
    outcome = resume(run)
    assert not outcome.trained
    assert lmlab.load(run).processor == before
    assert "validation episodes" in outcome.quality
