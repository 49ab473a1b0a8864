"""Reads episodes, in which an agent sees states, acts and gets rewards, from JSON lines and NumPy files.

JSON lines: one episode per line, `{"states": [[…], …], "actions": […], "rewards": […]}`. NumPy (`.npz`): the same
arrays for all episodes in a row, and `indices`, the step at which each episode but the first begins; or `terminals`,
true at the last step of each. Actions are whole numbers (discrete) or numbers and vectors (continuous).
"""

from __future__ import annotations

import itertools
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.config import expand
from lmlab.data.readers.cart_pole import BUILTIN as BUILTIN_CART_POLE
from lmlab.data.readers.cart_pole import make_episodes
from lmlab.data.readers.files import UnpackLimit
from lmlab.data.readers.media import Episode
from lmlab.parsing import load_json

ENDINGS = (".jsonl", ".npz")
NAMES = {
    "states": ("states", "observations", "obs", "state"),
    "actions": ("actions", "acts", "action"),
    "rewards": ("rewards", "rews", "reward"),
}
"""The names of the arrays in files, by what they are."""
LARGEST = 1 << 32
"""Bytes of an array, at most."""
LONGEST_LINE = 1 << 28
"""Bytes of a line of JSON, at most."""


class NamedEpisode(NamedTuple):
    """An episode, and where it is from."""

    name: str
    episode: Episode


def find_episodes(paths: Sequence[str]) -> list[Path | None]:
    """Return the files of paths, folders and globs; None stands for the built-in episodes."""
    found: list[Path | None] = []
    for given in paths:
        if given == BUILTIN_CART_POLE:
            found.append(None)
            continue
        for path in map(Path, sorted(expand(given))):
            inside = sorted(each for each in path.rglob("*") if each.suffix in ENDINGS) if path.is_dir() else [path]
            if not inside or not path.exists():
                raise ValueError(f"{path} has no episodes: give .jsonl or .npz files, or a folder of them")
            found += inside
    return found


def read_episodes(paths: Sequence[Path | None]) -> Iterator[NamedEpisode]:
    """Yield the episodes of files; a ValueError names the file and the episode that is wrong."""
    for path in paths:
        if path is None:
            episodes: Iterator[Mapping[str, Any]] = (each._asdict() for each in make_episodes())
        elif path.suffix == ".npz":
            episodes = _read_npz(path)
        elif path.suffix == ".jsonl":
            episodes = _read_jsonl(path)
        else:
            raise ValueError(f"{path} has no episodes: give .jsonl or .npz files, or a folder of them")
        name = BUILTIN_CART_POLE if path is None else str(path)
        for number, arrays in enumerate(episodes, start=1):
            try:
                yield NamedEpisode(f"{name}:{number}", make_episode(arrays))
            except ValueError as error:
                raise ValueError(f"{name}, episode {number}: {error}") from None


def make_episode(arrays: Mapping[str, Any]) -> Episode:
    """Return the checked episode of arrays or lists by name; a ValueError says what is wrong with them."""
    found = {name: _find(arrays, name) for name in NAMES}
    rewards = _as_numbers("rewards", found["rewards"])
    states, actions = _as_numbers("states", found["states"]), _as_numbers("actions", found["actions"])
    if rewards.ndim != 1 or not len(rewards):
        raise ValueError(f"rewards of shape {list(rewards.shape)}: give one number for each step, and at least one")
    if len(states) == len(rewards) + 1:  # the state after the last action, which nothing follows
        states = states[:-1]
    for name, each in (("states", states), ("actions", actions)):
        if len(each) != len(rewards):
            raise ValueError(f"{len(each):,} {name} and {len(rewards):,} rewards: each step has one of each")
    states = states.reshape(len(states), -1).astype(np.float32)
    whole = np.issubdtype(actions.dtype, np.integer) and (actions.ndim == 1 or actions.shape[1:] == (1,))
    if whole and actions.min() < 0:
        raise ValueError(f"action {actions.min()}: discrete actions are 0, 1, 2 …; write continuous ones as 1.0")
    actions = actions.reshape(-1).astype(np.int64) if whole else actions.reshape(len(actions), -1).astype(np.float32)
    return Episode(states, actions, rewards.astype(np.float32))


def _find(arrays: Mapping[str, Any], name: str) -> Any:
    for own in NAMES[name]:
        if own in arrays:
            return arrays[own]
    known = ", ".join(sorted(map(str, arrays))) or "nothing"
    raise ValueError(f"there are no {name} (found: {known}); an episode has states, actions and rewards")


def _as_numbers(name: str, values: Any) -> NDArray[Any]:
    """Return an array of finite numbers; a ValueError otherwise."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} have rows of different lengths; all steps have the same numbers") from None
    if array.dtype == np.bool_:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be numbers without gaps; found {_first_wrong(values)}")
    if not array.ndim:
        raise ValueError(f"{name} are the single number {array}: give one value for each step")
    with np.errstate(over="ignore"):
        if not np.isfinite(array.astype(np.float32)).all():
            raise ValueError(f"{name} contain NaN, infinity or a number that is too large")
    return array


def _first_wrong(values: Any) -> str:
    flat = values if isinstance(values, list) else [values]
    wrong = (each for each in flat if not isinstance(each, (int, float, list)))
    return repr(next(wrong, "other values"))[:40]


def _read_jsonl(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise ValueError(f"{path}, line {number}: longer than {LONGEST_LINE >> 20} MB")
            if not line.strip():
                continue
            try:
                value = load_json(line)
            except ValueError:
                raise ValueError(f"{path}, line {number}: no JSON; each line is one episode as an object") from None
            if not isinstance(value, dict):
                raise ValueError(f"{path}, line {number}: give an object with states, actions and rewards")
            yield value


def _read_npz(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the episodes of a NumPy archive; arrays of Python objects are never loaded."""
    try:
        with zipfile.ZipFile(path) as archive:
            wanted = {own for names in NAMES.values() for own in names} | {"indices", "terminals", "timeouts", "dones"}
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            limit = UnpackLimit(path)
            for name in archive.namelist():
                limit.check_entry(archive.getinfo(name))
            arrays = {key: _load(archive, name) for key, name in members.items() if key in wanted}
    except (OSError, zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, FileNotFoundError):
            raise ValueError(f"{path} does not exist") from None
        raise ValueError(f"{path} is no readable .npz file: {error}") from None
    try:
        rewards = _as_numbers("rewards", _find(arrays, "rewards"))
        starts = _episode_starts(arrays, len(rewards))
        states = _as_numbers("states", _find(arrays, "states"))
        actions = _as_numbers("actions", _find(arrays, "actions"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    extra = 1 if len(states) == len(rewards) + len(starts) else 0  # a state after the last action of each episode
    if len(states) != len(rewards) + extra * len(starts) or len(actions) != len(rewards):
        raise ValueError(
            f"{path}: {len(states):,} states, {len(actions):,} actions and {len(rewards):,} rewards in {len(starts):,} "
            "episodes; each step has one of each"
        )
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(rewards)], strict=True)):
        shift = number * extra
        yield {
            "states": states[start + shift : end + shift],
            "actions": actions[start:end],
            "rewards": rewards[start:end],
        }


def _load(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Return an array of an archive; a ValueError if it is too large or holds Python objects."""
    with archive.open(name) as file:
        header: BinaryIO = file  # type: ignore[assignment]
        version = np.lib.format.read_magic(header)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(header)
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, which are not loaded")
    if math.prod(shape) * dtype.itemsize > LARGEST:
        raise ValueError(f"{name} has more than {LARGEST >> 30} GB")
    with archive.open(name) as file:
        loaded: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return loaded


def _episode_starts(arrays: Mapping[str, NDArray[Any]], steps: int) -> list[int]:
    """Return the first step of each episode."""
    if "indices" in arrays:
        found = arrays["indices"]
        if found.dtype.kind not in "iu" or found.ndim != 1:
            raise ValueError("indices must be whole numbers: the step at which each episode but the first begins")
        starts = [0, *(int(each) for each in found if each != 0)]
    else:
        ends = [arrays[name] for name in ("terminals", "timeouts", "dones") if name in arrays]
        if not ends:
            raise ValueError("no array says where episodes end: give indices, or terminals (true at each last step)")
        if any(each.shape != (steps,) for each in ends):
            raise ValueError(f"terminals must have one value for each of the {steps:,} steps")
        last = np.flatnonzero(np.any([each.astype(bool) for each in ends], axis=0))
        starts = [0, *(int(each) + 1 for each in last if each + 1 < steps)]
    if any(late <= early for early, late in itertools.pairwise(starts)) or starts[-1] >= max(1, steps):
        raise ValueError(f"indices must increase and stay below the number of steps, {steps:,}")
    return starts
