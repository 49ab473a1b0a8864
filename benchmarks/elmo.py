"""Words by their letters: the character CNN with and without its memory, sampled against full softmax, ELMo's training.

    letters   vectors of Zipf-distributed words without gradients: each at its place, each distinct word of a batch
              once, and cached; aim: cached at least 5x as fast as at each place
    softmax   loss and gradients of an output layer over 250,000 words: sampled against full, and what each keeps for
              the gradients besides the weights; aim: at least 4x, memory that does not grow with the vocabulary
    training  ELMo (both directions) against a loop of bare nn.LSTMs with projections over an embedding table, with the
              same softmax and optimizer; aim: at least 0.9x

All variants run in one process by turns; the figure is the median of the rounds. Run it on an otherwise idle machine:

    python benchmarks/elmo.py [letters softmax training] [--repeats 7] [--threads 2] [--scale 1.0]
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from lmlab.layers.characters import CharacterCNN, SpelledTokens
from lmlab.layers.softmax import SampledSoftmax, Softmax
from lmlab.models.elmo import Elmo
from lmlab.models.states import detach_state
from lmlab.objectives.bidirectional import Bidirectional
from lmlab.tokenizers.spellings import spell
from timing import make_parser, print_rows, stepper, take_turns

PARTS = ("letters", "softmax", "training")
FILTERS = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
BATCH, WINDOW = 16, 32


def zipf_tokens(vocabulary: int, *shape: int, seed: int = 0) -> Tensor:
    """Tokens of a log-uniform distribution, as words of a text that are numbered by frequency."""
    even = np.random.default_rng(seed).random(shape)
    drawn = np.exp(even * math.log(vocabulary + 1)).astype(np.int64) - 1
    return torch.from_numpy(drawn.clip(0, vocabulary - 1))


def made_up_letters(vocabulary: int) -> Callable[[Tensor], Tensor]:
    """Spellings of made-up words of 2 to 12 letters."""
    generator = np.random.default_rng(1)
    words = [bytes(generator.integers(97, 123, generator.integers(2, 13)).tolist()) for _ in range(vocabulary)]
    table = torch.from_numpy(spell(words)).long()
    return lambda tokens: table[tokens]


def time_letters(repeats: int, scale: float) -> None:
    vocabulary = 50_000
    filters = [[wide, max(1, round(number * scale))] for wide, number in FILTERS]
    network = CharacterCNN(512, filters=filters, letter_width=16, highways=2, activation="relu")
    spelled = made_up_letters(vocabulary)
    batches = [zipf_tokens(vocabulary, BATCH, WINDOW, seed=seed) for seed in range(20)]
    layers = {"at each place": SpelledTokens(network, once=False), "cached": SpelledTokens(network)}
    for layer in layers.values():
        layer.spell_by(spelled)
    fresh = SpelledTokens(network.requires_grad_(False))
    fresh.spell_by(spelled)

    def read(layer: SpelledTokens) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                for tokens in batches:
                    layer(tokens)

        return run

    def once() -> None:
        for tokens in batches:  # as in training, but of weights that do not learn
            fresh(tokens)

    contestants = {"at each place": read(layers["at each place"]), "once in a batch": once}
    contestants["cached"] = read(layers["cached"])
    print(f"\nletters: {sum(n for _, n in filters)} filters, batches of {BATCH} x {WINDOW} words", flush=True)
    times = take_turns(contestants, repeats=repeats)
    print_rows(times, work=len(batches) * BATCH * WINDOW, unit="words", peer="at each place")


def kept_bytes(layer: Softmax, hidden: Tensor, targets: Tensor) -> int:
    """What autograd keeps of the loss besides the weights."""
    own = {parameter.untyped_storage()._cdata for parameter in layer.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer.total(hidden, targets)
    return sum(size for key, size in kept.items() if key not in own)


def time_softmax(repeats: int, scale: float) -> None:
    width, positions, samples = 512, 512, 8192
    for vocabulary in (round(50_000 * scale), round(250_000 * scale)):
        targets = zipf_tokens(vocabulary, positions)
        hidden = torch.randn(positions, width, requires_grad=True)
        layers: dict[str, Softmax] = {
            "full": Softmax(width, vocabulary),
            "sampled": SampledSoftmax(width, vocabulary, samples=min(samples, vocabulary // 4)),
        }

        def step(layer: Softmax, hidden: Tensor = hidden, targets: Tensor = targets) -> Callable[[], None]:
            def run() -> None:
                layer.zero_grad(set_to_none=True)
                layer.total(hidden, targets).backward()  # type: ignore[no-untyped-call]

            return run

        print(f"\nsoftmax: {vocabulary:,} words, {positions} places, width {width}, {samples} draws", flush=True)
        times = take_turns({name: step(layer) for name, layer in layers.items()}, repeats=repeats)
        kept = {name: kept_bytes(layer, hidden, targets) for name, layer in layers.items()}
        print_rows(
            times, work=positions, unit="positions", peer="full", note=lambda n, _, k=kept: f"keeps {k[n] / 1e6:.1f} MB"
        )


class Bare(nn.Module):
    """Two language models as one writes them with torch alone: a table of word vectors, nn.LSTMs, a shared softmax."""

    def __init__(self, vocabulary: int, width: int, cells: int, output: Softmax) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstms = nn.ModuleList(nn.LSTM(width, cells, 2, batch_first=True, proj_size=width) for _ in range(2))
        self.output = output
        self.states: list[tuple[Tensor, Tensor] | None] = [None, None]

    def forward(self, ways: list[Tensor]) -> Tensor:
        total = torch.zeros(())
        for number, (raw, lstm) in enumerate(zip(ways, self.lstms, strict=True)):
            y, state = lstm(self.embedding(raw[:, :-1]), self.states[number])
            self.states[number] = (state[0].detach(), state[1].detach())
            total = total + self.output.total(y.flatten(0, 1), raw[:, 1:].flatten())
        return total / (2 * ways[0][:, 1:].numel())


class Ours:
    """The loss of lmlab's ELMo on one batch after another, with its state carried."""

    def __init__(self, model: Elmo, raws: list[Tensor]) -> None:
        self.model, self.raws = model, itertools.cycle(raws)
        self.objective, self.state = Bidirectional(), None

    def __call__(self) -> Tensor:
        raw = next(self.raws)
        batch = self.objective.batch((raw, raw.flip(1)))
        loss = self.objective.loss(self.model, {}, batch, self.state)
        self.state = detach_state(loss.state)
        return loss.sums["both"] / batch.counts["both"]


class Theirs:
    """The same of the bare loop."""

    def __init__(self, model: Bare, raws: list[Tensor]) -> None:
        self.model, self.raws = model, itertools.cycle(raws)

    def __call__(self) -> Tensor:
        raw = next(self.raws)
        loss: Tensor = self.model([raw, raw.flip(1)])
        return loss


def time_training(repeats: int, scale: float) -> None:
    vocabulary, samples = 10_000, 2048
    for width, cells in ((round(128 * scale), round(512 * scale)), (round(256 * scale), round(1024 * scale))):
        settings = {
            "vocabulary": vocabulary,
            "width": width,
            "cells": cells,
            "reset_probability": 0.0,
            "samples": samples,
        }
        model = Elmo(Elmo.Config.model_validate(settings)).train()
        model.spell_by(made_up_letters(vocabulary))
        bare = Bare(vocabulary, width, cells, SampledSoftmax(width, vocabulary, samples=samples))
        raws = [zipf_tokens(vocabulary, BATCH, WINDOW + 1, seed=seed) for seed in range(8)]
        print(f"\ntraining: width {width}, {cells} cells, 2 layers each way, {BATCH} x {WINDOW} words", flush=True)
        contestants = {
            "bare nn.LSTM": stepper(bare, Theirs(bare, raws), fused=True, decay=0.01),
            "lmlab elmo": stepper(model, Ours(model, raws), fused=True, decay=0.01),
        }
        times = take_turns(contestants, repeats=repeats, calls=3)
        print_rows(times, work=BATCH * WINDOW, unit="words", peer="bare nn.LSTM")


def main() -> None:
    parser = make_parser(__doc__, repeats=7)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all, if none is named")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes; 1 is what is reported")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message="LSTM with projections")
    run = {"letters": time_letters, "softmax": time_softmax, "training": time_training}
    for part in options.parts or PARTS:
        run[part](options.repeats, options.scale)


if __name__ == "__main__":
    main()
