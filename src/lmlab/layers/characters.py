"""Tokens read by their letters: a convolution over the letters of each word in place of a table of word vectors.

Kim et al. 2016, Jozefowicz et al. 2016 (section 3.3), Peters et al. 2018. Shapes: N words, L letters, C width of a
letter, F filters in all, D width of a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

ALPHABET = 261
"""The 256 bytes, the marks of the ends of texts and words, and padding."""
PADDING = ALPHABET - 1

Activation = Literal["relu", "tanh"]
Spell = Callable[[Tensor], Tensor]
"""Tokens [N] -> their letters [N, L]."""

KEPT = 1 << 28
"""Numbers that the vectors of words may take when they are cached: 1 GB."""


USUAL_LETTERS = 8
"""Of a word, its marks included."""


def spell_number(tokens: Tensor) -> Tensor:
    """Letters [N, 8] of tokens without text: the hexadecimal digits of their ids."""
    return 48 + ((tokens[:, None] >> torch.arange(0, 4 * USUAL_LETTERS, 4, device=tokens.device)) & 15)


class Highway(nn.Module):
    """y = g∘f(W x + b) + (1 − g)∘x, g = σ(U x + c): a layer around which what is good already can pass.

    Srivastava et al. 2015. The gate begins nearly shut (c = −2), so that most of x passes.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x: Tensor) -> Tensor:
        g = torch.sigmoid(self.gate(x))
        return x + g * (torch.relu(self.transform(x)) - x)


class CharacterCNN(nn.Module):
    """Letters of words to vectors: filters of several widths, the largest answer of each, highways, a projection.

        c_i = E l_i                                      a vector for each letter
        f_k = max_i act(W_k · [c_i; …; c_{i+w−1}] + b_k)   for every filter k, w letters wide
        v   = P highway(…highway(f)) + p

    `filters` are pairs (w, how many). A filter goes over the padding too, so short words are seen to be short.
    """

    def __init__(
        self,
        width: int,
        *,
        filters: Sequence[Sequence[int]],
        letter_width: int,
        highways: int,
        activation: Activation,
    ) -> None:
        super().__init__()
        count = sum(number for _, number in filters)
        self.embedding = nn.Embedding(ALPHABET, letter_width)
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)
        self.convolutions = nn.ModuleList(nn.Conv1d(letter_width, number, wide) for wide, number in filters)
        self.activation = cast(Callable[[Tensor], Tensor], getattr(torch, activation))
        self.highways = nn.ModuleList(Highway(count) for _ in range(highways))
        self.projection = nn.Linear(count, width)
        self.widest = max(wide for wide, _ in filters)

    def forward(self, letters: Tensor) -> Tensor:
        """letters [N, L] -> [N, D]."""
        c = self.embedding(self.trim(letters)).transpose(1, 2)  # [N, C, L]
        found = [convolution(c).max(dim=-1).values for convolution in self.convolutions]
        f = self.activation(torch.cat(found, dim=-1))  # [N, F]; the activation rises, so it may come after the maximum
        for highway in self.highways:
            f = highway(f)
        return cast(Tensor, self.projection(f))

    def trim(self, letters: Tensor) -> Tensor:
        """Letters without most of the padding that all words have: where a filter sees padding alone, once will do."""
        longest = letters.shape[1] if letters.is_meta else int((letters != PADDING).any(0).sum())
        missing = self.widest - letters.shape[1]
        if missing > 0:
            letters = F.pad(letters, (0, missing), value=PADDING)
        return letters[:, : min(letters.shape[1], longest + self.widest)]

    def flops(self, letters: int) -> float:
        """Floating-point operations of one word of this many letters: all are matrix products."""
        total = 2.0 * self.projection.weight.numel()
        total += sum(4.0 * cast(Highway, each).gate.weight.numel() for each in self.highways)
        for each in self.convolutions:
            convolution = cast(nn.Conv1d, each)
            positions = max(letters, self.widest) - convolution.kernel_size[0] + 1
            total += 2.0 * positions * convolution.weight.numel()
        return total


class SpelledTokens(nn.Module):
    """The token layer of models that read letters: in place of an embedding table, the `CharacterCNN` of each word.

    A word has the same vector in any context. So in training the distinct words of a batch are computed once, and
    without gradients a word is computed once for all: its vector is cached until the weights change.
    """

    def __init__(self, network: CharacterCNN, *, once: bool = True) -> None:
        super().__init__()
        self.network = network
        self.once = once
        self.spell: Spell = spell_number
        self._kept: tuple[tuple[int, ...], Tensor, Tensor] | None = None  # weight versions, vectors, which are computed

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [B, T] -> [B, T, D]."""
        if not self.once or tokens.is_meta:  # of shapes alone nobody knows which words are the same
            return self._compute(tokens.flatten()).view(*tokens.shape, -1)
        if torch.is_grad_enabled():
            return self._compute_once(tokens)
        return self._recall(tokens)

    def spell_by(self, spell: Spell) -> None:
        """Read tokens by these letters from now on."""
        self.spell, self._kept = spell, None

    def _compute(self, tokens: Tensor) -> Tensor:
        return cast(Tensor, self.network(self.spell(tokens)))

    def _compute_once(self, tokens: Tensor) -> Tensor:
        words, positions = torch.unique(tokens, return_inverse=True)
        return F.embedding(positions, self._compute(words))

    def _recall(self, tokens: Tensor) -> Tensor:
        """The vectors of tokens; new ones are computed and cached."""
        vectors, there = self._memory(int(tokens.max()) + 1 if tokens.numel() else 1)
        if len(there) == 0:  # too many words to remember
            return self._compute_once(tokens)
        new = torch.unique(tokens[~there[tokens]])
        if len(new):
            vectors[new] = self._compute(new).to(vectors.dtype)
            there[new] = True
        return F.embedding(tokens, vectors)

    def _memory(self, count: int) -> tuple[Tensor, Tensor]:
        """Vectors and flags of at least `count` words under the weights as they are; empty where these are too many."""
        now = tuple(part for each in self.parameters() for part in (each.data_ptr(), each._version))
        weight = self.network.projection.weight
        kept = self._kept if self._kept is not None and self._kept[0] == now else None
        if kept is not None and len(kept[2]) >= count:
            return kept[1], kept[2]
        rows = 1 << (count - 1).bit_length()
        if rows * len(weight) > KEPT:
            return weight.new_zeros(0, len(weight)), torch.zeros(0, dtype=torch.bool)
        with torch.inference_mode(False):  # they outlive the call
            vectors = torch.zeros(rows, len(weight), dtype=weight.dtype, device=weight.device)
            there = torch.zeros(rows, dtype=torch.bool, device=weight.device)
        if kept is not None:
            there[: len(kept[2])] = kept[2]  # flags first: another thread writes a vector and then its flag
            vectors[: len(kept[1])] = kept[1]
        self._kept = (now, vectors, there)
        return vectors, there

    def flops(self) -> float:
        """Floating-point operations per token, as if every token were a new word of usual length."""
        return self.network.flops(USUAL_LETTERS)

    def flops_of(self, tokens: Tensor) -> float:
        """The same for all these tokens; each distinct word is computed once."""
        words = torch.unique(tokens) if self.once else tokens.flatten()
        return len(words) * self.network.flops(self.network.trim(self.spell(words)).shape[1])


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
        """Floating-point operations for one word of this many characters, padding included."""
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
        """Floating-point operations for one word of this many characters."""
        return letters * sum(2.0 * weight.numel() for weight in self.recurrent.parameters() if weight.dim() == 2)

    def flops_of(self, spellings: Tensor) -> float:
        """The same for words spelled [B, T, C], 0 being padding, which is not computed beyond one character."""
        return self.flops(int((spellings != 0).sum(-1).clamp(min=1).sum()))
