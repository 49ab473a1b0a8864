"""Composers continue music: token by token by sampling, from a beginning or from nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from lmlab.decoding.generate import Report, continue_tokens
from lmlab.decoding.sampling import Sampling
from lmlab.layers.watching import watching
from lmlab.models.abilities import PredictsNext, learns_by_gradient
from lmlab.tokenizers.processors.notes import Music, MusicTokenizer, Performance

ARCS = 40
"""Arcs of attention that a picture shows, at most."""
LEAST_SECONDS = 0.5
"""The shortest time that an arc reaches back."""


class Composition(NamedTuple):
    """Generated music."""

    ids: tuple[int, ...]  # with those of the beginning
    given: int  # tokens of the beginning
    performance: Performance
    ended: bool  # whether the model ended the piece


class Arc(NamedTuple):
    """A note that attends to an earlier one: positions in the tokens, and the weight."""

    later: int
    earlier: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class Composer:
    """A model that predicts the next token, with a tokenizer of music."""

    model: PredictsNext
    tokenizer: MusicTokenizer

    def compose(
        self,
        prime: Music | None = None,
        *,
        tokens: int,
        sampling: Sampling,
        most: int | None = None,
        report: Report = lambda done, total: None,
    ) -> Composition:
        """Return a beginning and its continuation by at most `tokens` tokens; `most` tokens of the beginning count."""
        given = [] if prime is None else self.tokenizer.encode(prime)[:most].tolist()
        boundary = self.tokenizer.boundary
        (made,) = continue_tokens(self.model, given, boundary=boundary, tokens=tokens, sampling=sampling, report=report)
        return Composition(made.ids, made.given, self.tokenizer.decode(made.ids), made.ended)

    def find_arcs(self, composition: Composition, *, count: int = ARCS) -> list[Arc]:
        """Return the strongest attention of notes to earlier notes, over all layers and heads; none without attention.

        Only the tokens that fit into one window are read. Of each later note the strongest arc counts.
        """
        network = self.model
        if not learns_by_gradient(network):
            return []
        names = [name for name, _ in network.named_modules() if name.endswith("attention.probabilities")]
        ids = [self.tokenizer.boundary, *composition.ids][: self.model.window]
        if not names or len(ids) < 2:
            return []
        with torch.inference_mode(), watching(network, *names) as seen:
            network(torch.tensor([ids], device=self.model.device))
        shape = (len(ids), len(ids))
        weights = [each[0].amax(0) for name in names for each in seen[name] if each.shape[-2:] == shape]
        if not weights:
            return []
        strongest = torch.stack(weights).amax(0)[1:, 1:]  # [T, T] without the boundary
        spans = self.tokenizer.spans(composition.ids[: len(ids) - 1])
        seconds = torch.tensor([span.seconds for span in spans])
        notes = torch.tensor([span.pitch is not None for span in spans])
        far = seconds[:, None] - seconds[None] >= LEAST_SECONDS
        strongest = strongest.cpu() * (far & notes[:, None] & notes[None])
        best = strongest.max(1)
        order = best.values.argsort(descending=True)[:count].tolist()
        found = [Arc(later, int(best.indices[later]), float(best.values[later])) for later in order]
        return [arc for arc in found if arc.weight > 0]
