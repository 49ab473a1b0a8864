"""Episodes as a corpus: states, actions, rewards and returns to go, of whole episodes in the splits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lmlab.data.config import DataConfig, Paths
from lmlab.data.corpora.corpus import Corpus, Dataset, Processor
from lmlab.data.corpora.preparing import ReportStage, digest
from lmlab.data.corpora.sequences import EncodedItem, EncodingSettings, open_sequences
from lmlab.data.corpora.splitting import NAMES, deal_items, main_fractions
from lmlab.data.corpora.store import open_home
from lmlab.data.readers.episode_files import NamedEpisode, find_episodes, read_episodes
from lmlab.data.readers.files import cache_folder
from lmlab.data.readers.media import Episode, digest_media
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.processors.episode_scaling import LEAST_STD, EpisodeProcessor
from lmlab.tokenizers.processors.steps import EpisodeTokens

REPORT_EVERY = 100


class EpisodesConfig(DataConfig):
    """Episodes of an agent."""

    PATHS: ClassVar[tuple[str, ...]] = ("episodes", "valid", "test")
    what: ClassVar[str] = "episodes"

    kind: Literal["episodes"] = "episodes"
    episodes: Paths = Field(
        description=".jsonl or .npz files with states, actions and rewards, folders of them, or builtin:cart-pole"
    )
    valid: Paths | None = Field(None, description="validation episodes; by default a part of `episodes`")
    test: Paths | None = Field(None, description="test episodes; by default a part of `episodes`")

    def usual_tokenizer(self, of_system: str | None) -> str | None:
        """Bins of returns, states and actions, for a system that reads tokens."""
        return None if of_system is None else EpisodeTokens.kind


@dataclass(frozen=True)
class EpisodeSplit(Dataset):
    """A split of episodes, one after another."""

    states: NDArray[np.float32]  # [N, S], normalised
    actions: NDArray[np.float32]  # [N, A], as vectors
    returns: NDArray[np.float32]  # [N], what is still to be gained, scaled
    starts: NDArray[np.int64]  # [E]
    lengths: NDArray[np.int64]  # [E]
    rewards: NDArray[np.float32]  # [N]

    @property
    def size(self) -> int:
        """The number of actions."""
        return len(self.states)

    @property
    def episode_returns(self) -> NDArray[np.float64]:
        """The sum of the rewards of each episode [E]."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.starts)

    def first(self, count: int | None) -> EpisodeSplit:
        """The first `count` episodes; None: all."""
        starts, lengths = self.starts[:count], self.lengths[:count]
        steps = slice(int(starts[-1] + lengths[-1]))
        return EpisodeSplit(
            self.states[steps], self.actions[steps], self.returns[steps], starts, lengths, self.rewards[steps]
        )

    def sizes(self) -> dict[str, int]:
        return {"items": len(self.starts)}

    def describe(self) -> str:
        returns = self.episode_returns
        return (
            f"{len(self.starts):,} episodes, {self.size:,} actions, returns {returns.min():.4g} to {returns.max():.4g} "
            f"(mean {returns.mean():.4g})"
        )


def prepare(
    config: EpisodesConfig,
    *,
    processor: str | Processor | None,
    source: str | Tokenizer | None = None,
    media: Processor | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Return the corpus of a recipe's episodes; `media` are the scales of a run that is resumed or continued.

    With a tokenizer (`steps`) they are sequences of tokens.
    """
    tokens = as_episode_tokens(processor)
    given = {name: getattr(config, own) for name, own in zip(NAMES, config.PATHS, strict=True)}
    named = {name: read_all(paths, progress) for name, paths in given.items() if paths is not None}
    parts = split_episodes(named, main_fractions(config.split, named))
    if tokens is not None:
        return _prepare_tokens(parts, tokens if isinstance(processor, EpisodeTokens) else None, bins=tokens.bins)
    scales = media if isinstance(media, EpisodeProcessor) else fit_processor(parts["train"])
    splits = {name: make_split(episodes, scales) for name, episodes in parts.items()}
    fingerprint = _digest(parts)
    return Corpus(
        processor=scales,
        train=splits["train"],
        valid=splits.get("valid"),
        test=splits.get("test"),
        fingerprint=digest([scales.fingerprint, fingerprint]),
        text_fingerprint=fingerprint,
        folder=cache_folder(),
        media=scales,
    )


def as_episode_tokens(processor: str | Processor | None) -> EpisodeTokens | None:
    """Return the tokenizer of episodes that is named or given; None if there is none, and episodes stay numbers."""
    if isinstance(processor, EpisodeTokens):
        return processor
    if isinstance(processor, str) and processor.partition(":")[0] == EpisodeTokens.kind:
        return EpisodeTokens.from_spec(processor.partition(":")[2])
    if isinstance(processor, str):
        raise ValueError(f"tokenizer {processor!r} does not encode episodes; give {EpisodeTokens.forms}")
    return None


def _prepare_tokens(parts: dict[str, list[Episode]], fitted: EpisodeTokens | None, *, bins: int) -> Corpus:
    """Return episodes as sequences of tokens; a tokenizer that is not given is fitted to the training episodes."""
    tokenizer = fitted or EpisodeTokens(bins, fit_processor(parts["train"]))
    for episodes in parts.values():
        check_scales(episodes, tokenizer.scales)

    def encode() -> Iterator[EncodedItem]:
        for name, episodes in parts.items():
            for number, each in enumerate(episodes, start=1):
                yield EncodedItem(f"{name} {number}", tokenizer.encode(each.states, each.actions, each.rewards), name)

    return open_sequences(open_home(cache_folder()), EncodingSettings(tokenizer, {}, _digest(parts)), encode)


def _digest(parts: dict[str, list[Episode]]) -> str:
    return digest(["episodes", 1, {name: [digest_media(each) for each in own] for name, own in parts.items()}])


def read_all(paths: Sequence[str], progress: ReportStage | None = None) -> list[NamedEpisode]:
    """Return all episodes of files; a ValueError if there is none, or if they do not fit together."""
    found: list[NamedEpisode] = []
    for each in read_episodes(find_episodes(paths)):
        found.append(each)
        if progress is not None and len(found) % REPORT_EVERY == 0:
            progress("reading", len(found), 0)
    if not found:
        raise ValueError(f"{', '.join(paths)}: there are no episodes; each has states, actions and rewards")
    first = found[0]
    for name, episode in found[1:]:
        if episode.states.shape[1:] != first.episode.states.shape[1:]:
            raise ValueError(
                f"{name} has states of {episode.states.shape[1]} numbers, and {first.name} of "
                f"{first.episode.states.shape[1]}; all episodes must be of one environment"
            )
        if episode.actions.shape[1:] != first.episode.actions.shape[1:]:
            raise ValueError(f"{name} and {first.name} have actions of different kinds; give those of one environment")
    return found


def split_episodes(named: dict[str, list[NamedEpisode]], fractions: dict[str, float]) -> dict[str, list[Episode]]:
    """Return the episodes of each split; equal episodes stay together, and too few of them are all for training."""
    main = [each.episode for each in named["train"]]
    hashes = np.array([int(digest_media(each)[:16], 16) for each in main], np.uint64)
    dealt = None
    if 1 < len(fractions) < len(set(hashes.tolist())):
        dealt = deal_items(np.array([len(each.rewards) for each in main]), hashes, fractions)
    parts = {"train": main}
    if dealt is not None:
        parts = {name: [main[number] for number in own] for name, own in dealt.items()}
    for name, episodes in named.items():
        if name != "train":
            parts[name] = [each.episode for each in episodes]
    return {name: episodes for name, episodes in parts.items() if episodes}


def fit_processor(episodes: Sequence[Episode]) -> EpisodeProcessor:
    """Return the scales of training episodes."""
    states = np.concatenate([each.states for each in episodes]).astype(np.float64)
    actions = np.concatenate([each.actions for each in episodes])
    returns = [math.fsum(each.rewards.tolist()) for each in episodes]
    discrete = actions.ndim == 1
    return EpisodeProcessor(
        state_mean=states.mean(0).tolist(),
        state_std=np.maximum(states.std(0), LEAST_STD).tolist(),
        actions=int(actions.max()) + 1 if discrete else actions.shape[1],
        discrete=discrete,
        action_low=() if discrete else actions.min(0).tolist(),
        action_high=() if discrete else actions.max(0).tolist(),
        return_scale=max(1.0, *(abs(each) for each in returns)),
        longest=max(len(each.rewards) for each in episodes),
        best=max(returns),
        mean=math.fsum(returns) / len(returns),
    )


def check_scales(episodes: Sequence[Episode], processor: EpisodeProcessor) -> None:
    """Raise a ValueError if episodes have other states or actions than those that a model has learnt."""
    actions = np.concatenate([each.actions for each in episodes])
    if processor.discrete and (actions.ndim > 1 or actions.max() >= processor.actions):
        raise ValueError(
            f"these episodes have other actions than 0 … {processor.actions - 1}, which the model has learnt"
        )
    width = episodes[0].states.shape[1]
    if width != processor.state_width:
        raise ValueError(f"states of {width} numbers: the model has learnt states of {processor.state_width}")


def make_split(episodes: Sequence[Episode], processor: EpisodeProcessor) -> EpisodeSplit:
    """Return episodes as the inputs of a model."""
    check_scales(episodes, processor)
    lengths = np.array([len(each.rewards) for each in episodes], np.int64)
    actions = np.concatenate([each.actions for each in episodes])
    return EpisodeSplit(
        states=processor.states(np.concatenate([each.states for each in episodes])),
        actions=processor.action_vectors(actions),
        returns=np.concatenate([processor.returns_to_go(each.rewards) for each in episodes]).astype(np.float32),
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        rewards=np.concatenate([each.rewards for each in episodes]),
    )
