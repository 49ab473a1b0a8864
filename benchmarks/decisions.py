"""Decision Transformer: the return that is reached against the return that is asked for, beside behaviour cloning.

CartPole and Pendulum. The expert episodes of the data folder (rollouts) are mixed with episodes of a random policy, of
half-trained policies (linear ones, found by random search and stopped early: of 200 random ones those whose return is
at several quantiles) and of worse experts: on CartPole they act at random in some of the steps, on Pendulum, where no
linear policy is better than a random one, they have a fraction of the expert's torque. So the data have returns from
poor to good, and a poor return is not only bad luck: other actions lead to it. For each seed a
Decision Transformer and behaviour cloning (the same model without returns) learn from all of them; a third model clones
the best tenth of the episodes.

    python benchmarks/decisions.py -o FOLDER [--env CartPole-v1] [--seeds 3] [--budget 1000steps]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import lmlab
from lmlab.decoding.actor import open_environment
from lmlab.metrics.episode_return import EpisodeReturn
from lmlab.metrics.statistics import Scores
from study import need

ENVIRONMENTS = {"CartPole-v1": "cartpole_expert.npz", "Pendulum-v1": "pendulum_expert.npz"}
ASKED = {"CartPole-v1": (50, 100, 200, 300, 400, 450, 500), "Pendulum-v1": (-1400, -1000, -600, -300, -150)}
NOISES = (1.0, 0.5, 0.2)
"""Probabilities of a random action, of the policies beside the expert."""
TORQUES = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Factors of the expert's actions, of the worse experts where actions are continuous."""
QUANTILES = (0.3, 0.6, 0.8, 0.9, 0.95, 0.98)
"""Of the returns of random linear policies, for those that count as half-trained."""
EACH = 40
"""Episodes of each of these policies."""
Policy = Callable[[NDArray[np.float64]], Any]
Steps = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""The states, actions and rewards of an episode."""


def read_expert(name: str) -> dict[str, NDArray[np.float64]]:
    path = Path(os.environ["LMLAB_DATA"], "rollouts", ENVIRONMENTS[name])
    with np.load(path) as arrays:
        return {key: arrays[key] for key in ("obs", "acts", "rews", "indices")}


def play(environment: Any, policy: Policy, seed: int) -> Steps:
    observed, _ = environment.reset(seed=seed)
    steps, over = [], False
    while not over:
        action = policy(observed)
        after, reward, ended, cut, _ = environment.step(action)
        steps.append((observed, action, reward))
        observed, over = after, ended or cut
    states, actions, rewards = (np.array([step[part] for step in steps]) for part in range(3))
    return states, actions, rewards


def linear_policy(environment: Any, numbers: np.random.Generator) -> Policy:
    """A random linear map of the state to an action."""
    weights = numbers.normal(size=environment.observation_space.shape)
    if hasattr(environment.action_space, "n"):
        return lambda state: int(weights @ state > 0)
    most = environment.action_space.high
    return lambda state: np.clip(2 * (weights @ state) * most, -most, most).astype(np.float32)


def half_trained(environment: Any, numbers: np.random.Generator, *, tried: int = 200) -> list[Policy]:
    """Random linear policies, from poor to good."""
    policies = [linear_policy(environment, numbers) for _ in range(tried)]
    scores = [np.mean([play(environment, policy, seed)[2].sum() for seed in range(3)]) for policy in policies]
    order = np.argsort(scores)
    return [policies[order[int(quantile * tried)]] for quantile in QUANTILES]


def make_episodes(name: str, path: Path) -> dict[str, float]:
    """Write the mixed episodes as JSON lines; returns the best and the mean return."""
    expert = read_expert(name)
    starts = [0, *expert["indices"].tolist()]
    ends = [*expert["indices"].tolist(), len(expert["acts"])]
    rows: list[Steps] = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        states = expert["obs"][start + number : end + number]
        rows.append((states, expert["acts"][start:end], expert["rews"][start:end]))
    seen = np.concatenate([states for states, _, _ in rows])
    scale = seen.std(0)
    known = seen / scale
    environment, numbers = gymnasium.make(name), np.random.default_rng(0)
    environment.action_space.seed(0)

    def expert_action(state: NDArray[np.float64]) -> Any:
        """The expert's action in the most similar of its states."""
        return expert["acts"][int(((known - state / scale) ** 2).sum(1).argmin())]

    def noisy(noise: float) -> Policy:
        """The expert's action, or a random one."""
        return lambda state: environment.action_space.sample() if numbers.random() < noise else expert_action(state)

    def weaker(factor: float) -> Policy:
        """A fraction of the expert's action."""
        return lambda state: (factor * expert_action(state)).astype(np.float32)

    policies = [*map(noisy, NOISES), *half_trained(environment, numbers)]
    if not hasattr(environment.action_space, "n"):
        policies = [noisy(1.0), *half_trained(environment, numbers)[:2], *map(weaker, TORQUES)]
    for policy in policies:
        rows += [play(environment, policy, int(numbers.integers(2**31))) for _ in range(EACH)]
    returns = []
    with path.open("w") as file:
        for states, actions, rewards in rows:
            returns.append(float(rewards.sum()))
            episode = {"states": states.tolist(), "actions": actions.tolist(), "rewards": rewards.tolist()}
            file.write(json.dumps(episode) + "\n")
    return {"best": max(returns), "mean": float(np.mean(returns)), "episodes": len(returns)}


def keep_best(path: Path, target: Path, *, fraction: float = 0.1) -> None:
    """Write the episodes with the largest returns."""
    lines = path.read_text().splitlines()
    lines.sort(key=lambda line: -sum(json.loads(line)["rewards"]))
    target.write_text("\n".join(lines[: max(10, round(fraction * len(lines)))]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--env", choices=list(ENVIRONMENTS), default="CartPole-v1")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", default="1000steps")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--episodes", type=int, default=20, help="acted for each return that is asked for")
    options = parser.parse_args()
    need("rollouts")
    folder = options.output / options.env
    folder.mkdir(parents=True, exist_ok=True)
    data, best_data = folder / "episodes.jsonl", folder / "best.jsonl"
    facts = make_episodes(options.env, data)
    keep_best(data, best_data)
    print(f"{options.env}: {facts['episodes']:,} episodes, best return {facts['best']:.1f}, mean {facts['mean']:.1f}")
    systems = {
        "decision transformer": (data, {}),
        "behaviour cloning": (data, {"model.returns": False}),
        "cloning the best 10%": (best_data, {"model.returns": False}),
    }
    reached: dict[str, dict[float, list[list[list[float]]]]] = {}
    for name, (source, settings) in systems.items():
        for seed in range(options.seeds):
            run = folder / f"{name.replace(' ', '-')}-{seed}"
            if not (run / "README.md").is_file():
                lmlab.train(
                    "decision-transformer",
                    str(source),
                    output=run,
                    size=options.size,
                    budget=options.budget,
                    settings={**settings, "train.seed": seed},
                )
            actor = lmlab.load(run).actor
            asked = ASKED[options.env] if name == "decision transformer" else ASKED[options.env][-1:]
            environment = open_environment(options.env, actor.processor)
            played = actor.play_all(environment, targets=asked, episodes=options.episodes, seed=1000)
            for target, own in played.items():
                reached.setdefault(name, {}).setdefault(target, []).append([each.rewards for each in own])
    for name, targets in reached.items():
        for target, seeds in targets.items():
            truth = list(range(options.episodes))
            value, low, high = Scores(EpisodeReturn(), {name: seeds}, truth).estimate(name)[:3]
            means = ", ".join(f"{np.mean([sum(each) for each in seed]):.1f}" for seed in seeds)
            interval = "" if low is None else f" [{low:.1f}, {high:.1f}]"
            print(f"{name}: asked {target:g}, reached {value:.1f}{interval} (seeds: {means})", flush=True)


if __name__ == "__main__":
    main()
