"""Episodes from files: formats, what is refused, splits, windows."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmlab.data import make_config, prepare
from lmlab.data.corpora.episodes import EpisodeSplit, fit_processor, make_split
from lmlab.data.loaders.episode_windows import EpisodeLoader, cut_windows
from lmlab.data.readers.cart_pole import failed, make_episodes, move
from lmlab.data.readers.episode_files import make_episode, read_episodes
from lmlab.data.readers.media import Episode

ONE = {"states": [[0.0, 1.0], [2.0, 3.0]], "actions": [0, 1], "rewards": [1, 0.5]}


def write_lines(path: Path, *episodes: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, episodes)))
    return path


def read(path: Path) -> list[Episode]:
    return [each.episode for each in read_episodes([path])]


def refusal(path: Path) -> str | None:
    """The file that an error names; None if there is no error. Errors of other types are not caught."""
    try:
        read(path)
    except ValueError as error:
        return str(path) if str(path) in str(error) else str(error)
    return None


def test_json_lines_and_numpy_files_give_the_same(tmp_path: Path) -> None:
    made = list(make_episodes(3))
    lines = write_lines(
        tmp_path / "a.jsonl", *({name: value.tolist() for name, value in each._asdict().items()} for each in made)
    )
    joined = {name: np.concatenate([getattr(each, name) for each in made]) for name in Episode._fields}
    lengths = [len(each.rewards) for each in made]
    np.savez(tmp_path / "b.npz", **joined, indices=np.cumsum(lengths)[:-1])
    ends = np.zeros(sum(lengths), bool)
    ends[np.cumsum(lengths) - 1] = True
    np.savez(tmp_path / "c.npz", **joined, terminals=ends)
    for path in (lines, tmp_path / "b.npz", tmp_path / "c.npz"):
        for found, expected in zip(read(path), made, strict=True):
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6)
            assert found.actions.dtype == np.int64


def test_a_state_after_the_last_action_is_left_out(tmp_path: Path) -> None:
    """The format of the library imitation: obs, acts, rews, one more state for each episode."""
    states = np.arange(10.0)[:, None]
    np.savez(tmp_path / "a.npz", obs=states, acts=np.zeros((8, 1), np.float32), rews=np.ones(8), indices=np.array([5]))
    first, second = read(tmp_path / "a.npz")
    assert first.states[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert second.states[:, 0].tolist() == [6, 7, 8]
    assert first.actions.dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": None}, "no rewards"),
        ({"rewards": [1, None]}, "rewards must be numbers without gaps; found None"),
        ({"rewards": [1]}, "2 actions and 1 rewards|2 states and 1 rewards|each step has one of each"),
        ({"states": [[0.0, 1.0], [2.0]]}, "rows of different lengths"),
        ({"states": [[0.0, float("nan")], [2.0, 3.0]]}, "states contain NaN"),
        ({"actions": [0, -1]}, "action -1: discrete actions are 0, 1, 2"),
        ({"actions": ["left", "right"]}, "actions must be numbers"),
        ({"rewards": [], "states": [], "actions": []}, "at least one"),
    ],
)
def test_what_is_wrong_with_an_episode_is_reported_in_one_line(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    values = {name: value for name, value in {**ONE, **changes}.items() if value is not None}
    path = write_lines(tmp_path / "a.jsonl", ONE, values)
    with pytest.raises(ValueError, match=rf"a\.jsonl, episode 2: .*({message})"):
        read(path)


def test_python_objects_in_a_numpy_file_are_never_loaded(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return (Path(tmp_path / "ran").touch, ())

    np.savez(tmp_path / "a.npz", obs=np.zeros((2, 1)), acts=np.array([Payload(), 1], object), rews=np.ones(2))
    with pytest.raises(ValueError, match="holds Python objects, which are not loaded"):
        read(tmp_path / "a.npz")
    np.savez(
        tmp_path / "b.npz", obs=np.zeros((2, 1)), acts=[0, 1], rews=np.ones(2), infos=np.array([Payload()], object)
    )
    with pytest.raises(ValueError, match="no array says where episodes end"):
        read(tmp_path / "b.npz")
    assert not (tmp_path / "ran").exists()


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
def test_damaged_files_raise_our_own_error(tmp_path_factory: Any, noise: bytes, at: int, byte: int) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, states=np.zeros((4, 2)), actions=np.zeros(4, np.int64), rewards=np.ones(4), indices=np.array([2]))
    damaged = bytearray(buffer.getvalue())
    damaged[min(at, len(damaged) - 1)] = byte
    folder = tmp_path_factory.mktemp("damaged")
    for name, content in (("a.npz", bytes(damaged)), ("b.npz", noise), ("c.jsonl", noise)):
        (folder / name).write_bytes(content)
        assert refusal(folder / name) in (None, str(folder / name))


def test_an_array_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("rewards.npy", header.getvalue())
    with pytest.raises(ValueError, match="more than 4 GB"):
        read(tmp_path / "a.npz")


def test_episodes_of_two_environments_are_refused(tmp_path: Path) -> None:
    other = {**ONE, "states": [[0.0], [1.0]]}
    path = write_lines(tmp_path / "a.jsonl", ONE, other)
    with pytest.raises(ValueError, match="must be of one environment"):
        prepare(make_config({"kind": "episodes", "episodes": [str(path)]}), processor=None)


def test_the_built_in_physics_are_those_of_gymnasium() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    environment = gymnasium.make("CartPole-v1").unwrapped
    environment.reset(seed=1)
    environment.state = state = np.array(environment.state, np.float64)
    for action in np.random.default_rng(0).integers(0, 2, 60).tolist():
        _, _, over, *_ = environment.step(action)
        state = move(state, action)
        np.testing.assert_allclose(environment.state, state, rtol=1e-12)
        assert over == failed(state)
        if over:
            break


def test_splits_hold_whole_episodes_and_equal_ones_stay_together(tmp_path: Path) -> None:
    corpus = prepare(make_config({"text": ["builtin:cart-pole"]}, reads=("episodes",)), processor=None)
    parts = [corpus.train, corpus.valid, corpus.test]
    assert sum(len(part.starts) for part in parts if isinstance(part, EpisodeSplit)) == 240
    again = prepare(make_config({"text": ["builtin:cart-pole"]}, reads=("episodes",)), processor=None)
    assert again.fingerprint == corpus.fingerprint
    path = write_lines(tmp_path / "same.jsonl", *[ONE] * 20)
    same = prepare(make_config({"kind": "episodes", "episodes": [str(path)]}), processor=None)
    assert (same.valid, same.test) == (None, None)


def test_returns_to_go_are_the_sums_of_what_follows() -> None:
    episode = make_episode({"states": np.zeros((4, 1)), "actions": [0, 1, 0, 1], "rewards": [1, 2, 3, 4]})
    split = make_split([episode, episode], fit_processor([episode]))
    assert (split.returns * 10).tolist() == pytest.approx([10, 9, 7, 4] * 2)
    assert split.episode_returns.tolist() == [10, 10]
    assert split.actions[:2].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_an_epoch_visits_every_action_once(epoch: int) -> None:
    episodes = list(make_episodes(7))
    data = make_split(episodes, fit_processor(episodes))
    loader = EpisodeLoader(data, batch=3, window=6, seed=2)
    seen = []
    for number in range(loader.count):
        batch = loader.batch(epoch * loader.count + number)
        for row, length in enumerate(batch.lengths.tolist()):
            assert length <= 6
            seen += batch.states[row, :length].tolist()
            assert not batch.states[row, length:].any()
    assert sorted(seen) == sorted(data.states.tolist())
    again = EpisodeLoader(data, batch=3, window=6, seed=2).batch(epoch * loader.count)
    np.testing.assert_array_equal(again.states, loader.batch(epoch * loader.count).states)


def test_windows_count_time_from_the_start_of_the_episode() -> None:
    episodes = list(make_episodes(2))
    data = make_split(episodes, fit_processor(episodes))
    for start, length, time in cut_windows(data, window=5).tolist():
        owner = int(np.searchsorted(data.starts, start, side="right")) - 1
        assert time == start - data.starts[owner]
        assert start + length <= data.starts[owner] + data.lengths[owner]
