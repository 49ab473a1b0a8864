"""A vector for a word from its characters: what a tagger knows of words that it has never seen.

Shapes: B batch, T words, C characters of the longest word, D width of a character, F width of the word's vector.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence


class CharacterWordCNN(nn.Module):
    """A convolution over the characters of a word, and the largest value of each filter (Ma & Hovy 2016, 2.1)."""

    def __init__(self, symbols: int, *, width: int, filters: int, window: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width, padding_idx=0)
        bound = (3 / width) ** 0.5
        nn.init.uniform_(self.embedding.weight, -bound, bound)
        with torch.no_grad():
            self.embedding.weight[0] = 0
        self.convolution = nn.Conv1d(width, filters, window, padding=window // 2)
        self.width = filters

    def forward(self, spellings: Tensor) -> Tensor:
        """spellings [B, T, C], 0 being padding -> [B, T, F]; zero where a word is padding altogether."""
        flat = spellings.flatten(0, 1)  # [N, C]
        scores = self.convolution(self.embedding(flat).transpose(1, 2))  # [N, F, C]
        padding = (flat == 0)[:, None]
        best = scores.masked_fill(padding, -torch.inf).amax(-1)
        best = best.masked_fill(padding.all(-1), 0.0)
        return cast(Tensor, best.view(*spellings.shape[:2], -1))

    def flops(self, letters: int) -> float:
        """Floating-point operations for one word of so many characters, padding included."""
        return 2.0 * letters * self.convolution.weight.numel()

    def flops_of(self, spellings: Tensor) -> float:
        """The same for words spelled [B, T, C]."""
        return spellings.shape[0] * spellings.shape[1] * self.flops(spellings.shape[2])


class CharacterWordLSTM(nn.Module):
    """The last states of an LSTM that reads a word forwards and of one that reads it backwards (Lample et al. 2016)."""

    def __init__(self, symbols: int, *, width: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width, padding_idx=0)
        self.recurrent = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.width = 2 * hidden

    def forward(self, spellings: Tensor) -> Tensor:
        """spellings [B, T, C], 0 being padding -> [B, T, F]; zero where a word is padding altogether."""
        flat = spellings.flatten(0, 1)  # [N, C]
        lengths = (flat != 0).sum(1)
        packed = pack_padded_sequence(
            self.embedding(flat), lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        _, (h, _) = self.recurrent(packed)  # [2, N, H]
        ends = torch.cat([h[0], h[1]], dim=-1) * (lengths > 0)[:, None]
        return ends.view(*spellings.shape[:2], -1)

    def flops(self, letters: int) -> float:
        """Floating-point operations for one word of so many characters."""
        return letters * sum(2.0 * weight.numel() for weight in self.recurrent.parameters() if weight.dim() == 2)

    def flops_of(self, spellings: Tensor) -> float:
        """The same for words spelled [B, T, C], 0 being padding, which is not computed beyond one character."""
        return self.flops(int((spellings != 0).sum(-1).clamp(min=1).sum()))
