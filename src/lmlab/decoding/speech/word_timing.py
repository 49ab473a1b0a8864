"""When each word was said, from the cross-attention of a transcript: dynamic time warping over chosen heads.

The weights of each head are normalised over the tokens and smoothed over time by a median; their mean over the heads is
a map of tokens and times, through which the path with the highest sum leads from the first token and time to the last.
Shapes: H heads, T tokens, S positions of the encoder.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MEDIAN = 7
"""Positions over which the weights are smoothed."""


class TranscribedWord(NamedTuple):
    """A word of a transcript, with its time in seconds."""

    text: str
    begin: float
    end: float


def token_times(weights: Tensor) -> NDArray[np.int64]:
    """Weights [H, T, S] of tokens over positions -> the first position of each token [T]."""
    std, mean = torch.std_mean(weights, dim=1, keepdim=True, correction=0)
    normal = median_filter((weights - mean) / std.clamp(min=1e-12))
    tokens, positions = warp(-normal.mean(0).double().cpu().numpy())
    starts: NDArray[np.int64] = positions[np.flatnonzero(np.diff(tokens, prepend=-1))]
    return starts


def median_filter(x: Tensor, size: int = MEDIAN) -> Tensor:
    """The median of `size` neighbours along the last axis; at the ends the values are mirrored."""
    if x.shape[-1] <= size // 2:
        return x
    padded = torch.nn.functional.pad(x, (size // 2, size // 2), mode="reflect")
    return padded.unfold(-1, size, 1).median(-1).values


def warp(cost: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cheapest path through a matrix [T, S] from corner to corner, by steps right, down and diagonal.

    Returned are its rows and its columns.
    """
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    for diagonal in range(2, rows + columns + 1):  # all cells of an anti-diagonal at once
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        before = np.minimum(np.minimum(total[i - 1, j - 1], total[i - 1, j]), total[i, j - 1])
        total[i, j] = cost[i - 1, j - 1] + before
    path = [(rows, columns)]
    while path[-1] != (1, 1):
        i, j = path[-1]
        path.append(min(((i - 1, j - 1), (i - 1, j), (i, j - 1)), key=lambda cell: float(total[cell])))
    found: NDArray[np.int64] = np.array(path[::-1], np.int64) - 1
    return found[:, 0], found[:, 1]


def split_words(tokens: Sequence[int], decode: Callable[[list[int]], str]) -> list[list[int]]:
    """Tokens in groups that are words: a group begins where a space or a new line does, and ends whole characters."""
    words: list[list[int]] = []
    held: list[int] = []
    for token in tokens:
        held.append(token)
        text = decode(held)
        if "�" in text:
            continue  # a part of a character
        alone = not text.strip() or not any(sign.isalnum() for sign in text)
        follows = bool(words) and decode(words[-1])[-1:].isspace()
        if not words or (not alone and (follows or text[:1].isspace())):
            words.append(held)
        else:
            words[-1] = [*words[-1], *held]
        held = []
    if held:
        words.append(held)
    return words


def time_words(
    words: Sequence[list[int]], starts: NDArray[np.int64], decode: Callable[[list[int]], str], *, step: float
) -> list[TranscribedWord]:
    """Words with their times; `starts` has the position of each token, and of the one after the last."""
    edges = [0, *itertools.accumulate(len(word) for word in words)]
    times = [float(starts[edge]) * step for edge in edges]
    return [
        TranscribedWord(decode(word).strip(), *each) for word, *each in zip(words, times[:-1], times[1:], strict=True)
    ]
