"""What the Transformers that read a window of tokens share: a stack of blocks, and a cache of keys and values."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.cache import KeyValueCache, Slot
from lmlab.layers.positions import check_window
from lmlab.layers.watching import note_layer
from lmlab.models.abilities import State
from lmlab.models.model import Heads, NextTokenModel, Output, TokenModelConfig, by_depth


class WindowedConfig(TokenModelConfig):
    """What every Transformer with a window is told."""

    width: int = Field(128, ge=1, description="hidden size: width of the token vectors")
    heads: Heads = 4
    layers: int = Field(4, ge=1, description="Transformer blocks")
    window: int = Field(128, ge=2, description="context length: the most tokens that the model reads at once")


class WindowedTransformer(NextTokenModel):
    """Blocks of attention over at most `window` tokens; the state is their key-value cache."""

    config: WindowedConfig
    embedding: nn.Embedding
    positions: nn.Module | None
    blocks: nn.ModuleList
    norm: nn.Module
    """After the last block; the identity where the blocks norm what they give."""

    @property
    def window(self) -> int:
        return self.config.window

    def start(self, batch_size: int, **inputs: Any) -> KeyValueCache:
        return KeyValueCache.empty(
            batch_size,
            layers=self.config.layers,
            heads=self.config.heads,
            head_width=self.config.width // self.config.heads,
            window=self.config.window,
            like=self.embedding.weight,
        )

    def embed(self, tokens: Tensor, start: int | Tensor) -> Tensor:
        """The vectors [B, T, D] of tokens at the positions from `start`, or from `start[i]` in row i."""
        raise NotImplementedError

    def forward(
        self,
        tokens: Tensor,
        *,
        state: State = None,
        lengths: Tensor | None = None,
    ) -> Output:
        """A fresh text (state None) is read without a cache; a state from `start` is read on from."""
        length = tokens.shape[1]
        check_window(0 if state is None else state.length, length, self.config.window)
        x = self.embed(tokens, 0 if state is None else state.start)
        slots: list[Slot] | list[None] = [None] * len(self.blocks)
        if state is not None:
            state, slots = state.advance(length, window=self.config.window)
        for block, slot in zip(self.blocks, slots, strict=True):
            note_layer(x)
            x = block(x, slot)
        x = self.norm(x)
        note_layer(x)
        return Output(x, state)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return super().step(tokens, self.start(len(tokens)) if state is None else state)

    def depths(self) -> list[list[nn.Parameter]]:
        *below, last = self.blocks
        return by_depth(self, (self.embedding, self.positions), *((block,) for block in below), (last, self.norm))

    def body_flops(self, window: int, *, share: float = 1.0, remembered: int = 0) -> float:
        """2 per weight of a product, and 4·T·D per layer for QKᵀ and its product with V.

        Attention is counted for all T keys, as profilers count it, though a causal kernel leaves out about half.
        """
        weights = sum(module.weight.numel() for module in self.modules() if isinstance(module, nn.Linear))
        return 2.0 * weights + 4.0 * window * self.config.width * self.config.layers
