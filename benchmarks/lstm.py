"""LSTM training (2 x 650, V 10k, T 35, B 20, SGD, as Zaremba et al. 2014's medium) against a bare nn.LSTM loop.

Also the adaptive softmax against the full one on the output layer alone. All variants run in one process by turns;
the figure is the median of the rounds. Run it on an otherwise idle machine:

    python benchmarks/lstm.py [--repeats 7] [--threads 2] [--dropout 0.5]
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.softmax import AdaptiveSoftmax, Softmax
from lmlab.models.lstm import LSTM
from lmlab.models.states import detach_state
from timing import make_parser, matrix_limit, print_rows, take_turns

WIDTH, LAYERS, VOCABULARY, WINDOW, BATCH = 650, 2, 10_000, 35, 20


class Bare(nn.Module):
    """What one writes by hand with torch alone."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, dropout=dropout, batch_first=True)
        self.output = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, state = self.lstm(self.drop(self.embedding(tokens)), state)
        return self.output(self.drop(y)), state


def bare_step(dropout: float) -> Callable[[Tensor, Tensor], None]:
    model = Bare(dropout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state: tuple[Tensor, Tensor] | None = None

    def step(tokens: Tensor, targets: Tensor) -> None:
        nonlocal state
        optimizer.zero_grad(set_to_none=True)
        if state is not None:
            state = (state[0].detach(), state[1].detach())
        scores, state = model(tokens, state)
        F.cross_entropy(scores.view(-1, VOCABULARY), targets.view(-1)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()

    return step


def our_step(dropout: float, **settings: object) -> tuple[LSTM, Callable[[Tensor, Tensor], None]]:
    fields = {"vocabulary": VOCABULARY, "width": WIDTH, "hidden": WIDTH, "layers": LAYERS, "dropout": dropout}
    model = LSTM(LSTM.Config.model_validate({**fields, **settings}))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = None

    def step(tokens: Tensor, targets: Tensor) -> None:
        nonlocal state
        optimizer.zero_grad(set_to_none=True)
        hidden, state = model(tokens, state=detach_state(state))
        loss = model.total_nll(hidden.flatten(0, 1), targets.flatten()) / targets.numel()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()

    return model, step


def output_step(layer: Softmax | AdaptiveSoftmax) -> Callable[[Tensor, Tensor], None]:
    """Loss and gradients of the output layer alone."""

    def step(hidden: Tensor, targets: Tensor) -> None:
        layer.zero_grad(set_to_none=True)
        layer.total(hidden.detach().requires_grad_(), targets).backward()

    return step


def plain_output_step() -> Callable[[Tensor, Tensor], None]:
    layer = nn.Linear(WIDTH, VOCABULARY)

    def step(hidden: Tensor, targets: Tensor) -> None:
        layer.zero_grad(set_to_none=True)
        F.cross_entropy(layer(hidden.detach().requires_grad_()), targets, reduction="sum").backward()

    return step


def zipf(*shape: int) -> Tensor:
    """Token numbers as frequent as words are: P(r) ∝ 1 / (r + 1)."""
    weights = 1 / torch.arange(1, VOCABULARY + 1, dtype=torch.float64)
    count = torch.Size(shape).numel()
    return torch.multinomial(weights, count, replacement=True).view(*shape)


def main() -> None:
    parser = make_parser(__doc__, repeats=7)
    parser.add_argument("--steps", type=int, default=3, help="steps of each contestant in a round")
    parser.add_argument("--dropout", type=float, default=0.5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    tokens, targets = zipf(BATCH, WINDOW), zipf(BATCH, WINDOW)
    for dropout in sorted({0.0, options.dropout}):
        bare = bare_step(dropout)
        model, ours = our_step(dropout)
        adaptive_model, adaptive = our_step(dropout, softmax="adaptive")
        contestants = {
            "bare nn.LSTM": lambda step=bare: step(tokens, targets),
            "lmlab lstm": lambda step=ours: step(tokens, targets),
            "lmlab lstm, adaptive": lambda step=adaptive: step(tokens, targets),
        }
        limit = matrix_limit()
        times = take_turns(contestants, repeats=options.repeats, calls=options.steps)
        limit = max(limit, matrix_limit())
        models = {"bare nn.LSTM": model, "lmlab lstm": model, "lmlab lstm, adaptive": adaptive_model}
        work = {name: 3 * each.pretraining_flops(WINDOW) * targets.numel() for name, each in models.items()}
        print(f"\ntraining step, 2 x 650, V 10k, T 35, B 20, SGD, dropout {dropout}, {options.threads} threads")
        print_rows(
            times,
            work=targets.numel(),
            unit="tokens",
            peer="bare nn.LSTM",
            note=lambda name, seconds, work=work, limit=limit: f"{work[name] / seconds / limit:4.0%} of the limit",
        )

    hidden, flat = torch.randn(BATCH * WINDOW, WIDTH), targets.flatten()
    layers = {
        "nn.Linear + cross_entropy": plain_output_step(),
        "full softmax": output_step(Softmax(WIDTH, VOCABULARY)),
        "adaptive softmax": output_step(AdaptiveSoftmax(WIDTH, VOCABULARY)),
    }
    times = take_turns(
        {name: lambda step=step: step(hidden, flat) for name, step in layers.items()},
        repeats=options.repeats,
        calls=options.steps,
    )
    print("\noutput layer alone, forward and backward, Zipfian targets")
    print_rows(times, work=len(flat), unit="tokens", peer="full softmax")


if __name__ == "__main__":
    main()
