"""A linear-chain conditional random field: the best sequence of tags, not a sequence of best tags.

P(y | x) = exp s(x, y) / Σ_y' exp s(x, y'), with s(x, y) = start[y₁] + Σ_t x_t[y_t] + Σ_t step[y_t−1, y_t] + end[y_T]
(Lafferty et al. 2001; over a neural net's scores x, Lample et al. 2016). The sum over all sequences is the forward
algorithm, the best one Viterbi's; both in log space. Sequences that a scheme of tags forbids have no
probability at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SCHEMES = {"IOB1": ("I", "O", "B"), "IOB2": ("I", "O", "B"), "IOBES": ("I", "O", "B", "E", "S")}
"""Ways to mark spans by tags, and the heads of their tags."""


class Legal(NamedTuple):
    """Which of C tags may begin a sentence, follow each other and end one."""

    start: Tensor  # [C] booleans
    step: Tensor  # [C, C]: from, to
    end: Tensor  # [C]


class CRF(nn.Module):
    """Scores of whole sequences of tags, from scores of single tags ("emissions") and of one tag after another.

    Every sentence has a length of 1 or more; tags and emissions beyond it are ignored.
    """

    def __init__(self, tags: int, *, legal: Legal | None = None) -> None:
        super().__init__()
        if legal is None:
            legal = Legal(*(torch.ones(shape, dtype=torch.bool) for shape in ((tags,), (tags, tags), (tags,))))
        if [tuple(each.shape) for each in legal] != [(tags,), (tags, tags), (tags,)]:
            raise ValueError(f"{tags} tags, but legality of shapes {[tuple(each.shape) for each in legal]}")
        self.start = nn.Parameter(torch.zeros(tags))
        self.step = nn.Parameter(torch.zeros(tags, tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self.legal_start: Tensor
        self.legal_step: Tensor
        self.legal_end: Tensor
        for name, mask in legal._asdict().items():
            self.register_buffer(f"legal_{name}", mask.clone(), persistent=False)  # follows from the names of the tags

    def nll(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Surprisal in nats [B] of tags [B, T] under emissions [B, T, C]; infinite where they are illegal."""
        return self._total(emissions, lengths) - self._score(emissions, tags, lengths)

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor) -> list[list[int]]:
        """The most probable tags of each sentence, by Viterbi's algorithm."""
        start, step, end = self._scores()
        best = start + emissions[:, 0]  # [B, C]: the score of the best sequence that ends in each tag
        same = torch.arange(best.shape[1], device=best.device).expand_as(best)
        pointers = []
        for time in range(1, emissions.shape[1]):
            inside = (time < lengths)[:, None]
            arriving, before = (best[:, :, None] + step).max(1)
            best = torch.where(inside, arriving + emissions[:, time], best)
            pointers.append(torch.where(inside, before, same))
        last = (best + end).argmax(1)
        path = [last]
        for pointer in reversed(pointers):
            last = pointer.gather(1, last[:, None])[:, 0]
            path.append(last)
        rows: list[list[int]] = torch.stack(path[::-1], dim=1).tolist()
        return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]

    def _scores(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of starts, steps and ends, −∞ where illegal."""
        pairs = (self.start, self.legal_start), (self.step, self.legal_step), (self.end, self.legal_end)
        start, step, end = (scores.masked_fill(~legal, -torch.inf) for scores, legal in pairs)
        return start, step, end

    def _total(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """log Σ exp s over all sequences [B], by the forward algorithm."""
        start, step, end = self._scores()
        forward = start + emissions[:, 0]  # [B, C]: over all sequences so far that end in each tag
        for time in range(1, emissions.shape[1]):
            arriving = log_sum_exp(forward[:, :, None] + step, dim=1) + emissions[:, time]
            forward = torch.where((time < lengths)[:, None], arriving, forward)
        return log_sum_exp(forward + end, dim=1)

    def _score(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """s(x, y) [B]."""
        start, step, end = self._scores()
        inside = torch.arange(tags.shape[1], device=tags.device) < lengths[:, None]
        tags = tags.masked_fill(~inside, 0)
        single = emissions.gather(2, tags[:, :, None])[:, :, 0].masked_fill(~inside, 0)
        steps = step[tags[:, :-1], tags[:, 1:]].masked_fill(~inside[:, 1:], 0)
        last = tags.gather(1, lengths[:, None] - 1)[:, 0]
        return start[tags[:, 0]] + single.sum(1) + steps.sum(1) + end[last]


def log_sum_exp(x: Tensor, *, dim: int) -> Tensor:
    """log Σ exp x, with gradients of 0, not NaN, where all x are −∞."""
    highest = x.detach().amax(dim, keepdim=True)
    shift = highest.masked_fill(highest == -torch.inf, 0)
    total = (x - shift).exp().sum(dim)
    none = total == 0
    return total.masked_fill(none, 1).log().masked_fill(none, -torch.inf) + shift.squeeze(dim)


def legal_tags(labels: Sequence[str], *, scheme: str | None) -> Legal:
    """Which tags may begin, follow each other and end in IOB1, IOB2 or IOBES; all may where tags are plain (None)."""
    if scheme is not None and scheme not in SCHEMES:
        raise ValueError(f"scheme={scheme!r}: tags are marked by {', '.join(SCHEMES)}, or None where they are plain")
    parts = [label.partition("-")[::2] for label in labels]
    for label, (head, _) in zip(labels, parts, strict=True):
        if scheme is not None and head not in SCHEMES[scheme]:
            raise ValueError(f"{label!r} is not a tag of {scheme}, whose tags begin with {', '.join(SCHEMES[scheme])}")
    outside = ("O", "")
    may = [[_may_follow(before, after, scheme) for after in parts] for before in parts]
    return Legal(
        torch.tensor([_may_follow(outside, after, scheme) for after in parts], dtype=torch.bool),
        torch.tensor(may, dtype=torch.bool).view(len(parts), len(parts)),
        torch.tensor([_may_follow(before, outside, scheme) for before in parts], dtype=torch.bool),
    )


def _may_follow(before: tuple[str, str], after: tuple[str, str], scheme: str | None) -> bool:
    """Whether a tag, cut into its head and type, may come after another; the ends of a sentence are like O."""
    same_span = before[0] in ("B", "I") and before[1] == after[1]
    if scheme == "IOB1":  # B only parts two spans of a type
        return after[0] != "B" or same_span
    if scheme == "IOB2":
        return after[0] != "I" or same_span
    if scheme == "IOBES":
        return same_span if after[0] in ("I", "E") else before[0] not in ("B", "I")
    return True


def check_legal(
    tags: NDArray[np.integer],
    lengths: NDArray[np.integer],
    *,
    legal: Legal,
    labels: Sequence[str],
    where: Sequence[str] = (),
) -> None:
    """Raise an error that names tags [B, T] to which a CRF gives no probability; `where` locates each sentence."""
    start, step, end = (each.numpy() for each in legal)
    rows = np.arange(len(tags))
    inside = np.arange(tags.shape[1]) < lengths[:, None]
    tags = np.where(inside, tags, 0)
    wrong = np.zeros((len(tags), tags.shape[1] + 1), dtype=bool)  # the step to each position, and the one to the end
    wrong[:, 0] = ~start[tags[:, 0]]
    wrong[:, 1:-1] = ~step[tags[:, :-1], tags[:, 1:]] & inside[:, 1:]
    wrong[rows, lengths] |= ~end[tags[rows, lengths - 1]]
    if not wrong.any():
        return
    row, position = (int(each) for each in np.argwhere(wrong)[0])
    before = labels[tags[row, position - 1]] if position else "the beginning"
    after = labels[tags[row, position]] if position < lengths[row] else "the end"
    named = f"{where[row]}: " if where else ""
    raise ValueError(
        f"{named}{after} may not follow {before} (word {min(position + 1, int(lengths[row]))} of the sentence): "
        "correct the tags, or train without a CRF"
    )
