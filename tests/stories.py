"""The real small Llama of the shared data: its weights as a model of ours, and the pieces of its vocabulary."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmlab.models import create
from lmlab.models.llama import Llama


def read_stories(path: Path) -> Llama:
    """The layout is in SOURCE.txt beside it; pairs (2i, 2i + 1) are turned there, and (i, i + d/2) here."""
    content = path.read_bytes()
    width, inner, layers, heads, groups, vocabulary, window = struct.unpack("7i", content[:28])
    numbers, at = torch.from_numpy(np.frombuffer(content, np.float32, offset=28).copy()), 0

    def take(*shape: int) -> Tensor:
        nonlocal at
        at += int(np.prod(shape))
        return numbers[at - int(np.prod(shape)) : at].view(shape)

    def turned(matrices: Tensor, count: int) -> Tensor:
        return matrices.view(layers, count, -1, 2, width).transpose(2, 3).reshape(layers, -1, width)

    keys = groups * width // heads
    embedding, attention_norm = take(vocabulary, width), take(layers, width)
    query, key = turned(take(layers, width, width), heads), turned(take(layers, keys, width), groups)
    value, projection, norm = take(layers, keys, width), take(layers, width, width), take(layers, width)
    gate, contract, up = take(layers, inner, width), take(layers, width, inner), take(layers, inner, width)
    settings = {"vocabulary": vocabulary, "width": width, "inner": inner, "layers": layers, "heads": heads}
    model: Any = create("llama", {**settings, "key_value_heads": groups, "window": window})
    parts = {
        "attention_norm": attention_norm,
        "attention.query": query,
        "attention.key_value": torch.cat((key, value), 1),
        "attention.projection": projection,
        "feed_forward_norm": norm,
        "feed_forward.expand": torch.cat((gate, up), 1),
        "feed_forward.contract": contract,
    }
    state = {f"blocks.{i}.{name}.weight": each[i] for name, each in parts.items() for i in range(layers)}
    model.load_state_dict(
        {**state, "embedding.weight": embedding, "output.weight": embedding, "norm.weight": take(width)}
    )
    return model.eval()


class Piece(NamedTuple):
    """A piece of the vocabulary as its file has it, with its score."""

    content: bytes
    score: float


def read_vocabulary(path: Path) -> list[Piece]:
    content, at, pieces = path.read_bytes(), 4, []
    while at < len(content):
        score, length = struct.unpack_from("fi", content, at)
        pieces.append(Piece(content[at + 8 : at + 8 + length], score))
        at += 8 + length
    return pieces


def read_pieces(path: Path) -> list[bytes]:
    """The bytes that each token stands for."""
    found = [(piece, re.fullmatch(rb"<0x([0-9A-F]{2})>", piece)) for piece, _ in read_vocabulary(path)]
    return [piece if byte is None else bytes.fromhex(byte[1].decode()) for piece, byte in found]
