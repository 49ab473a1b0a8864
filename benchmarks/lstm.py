"""LSTM training (2 x 650, V 10k, T 35, B 20, SGD, as Zaremba et al. 2014's medium) against a bare nn.LSTM loop.

Also the adaptive softmax against the full one on the output layer alone. All variants run in one process by turns;
the figure is the median of the rounds. Run it on an otherwise idle machine:

    python benchmarks/lstm.py [--rounds 7] [--threads 2] [--dropout 0.5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.softmax import AdaptiveSoftmax, Softmax
from lmlab.models.lstm import LSTM
from lmlab.models.model import detach_state

WIDTH, LAYERS, VOCABULARY, WINDOW, BATCH = 650, 2, 10_000, 35, 20
NOMINAL = 130.0
"""GFLOP/s of a single-precision matrix product with 2 threads, for the share of the machine's limit."""


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


def medians(variants: dict[str, Callable[[], None]], *, rounds: int, repeats: int) -> dict[str, float]:
    """Seconds per call of each variant, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, call in variants.items():
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            if number > 0:
                times[name].append((time.perf_counter() - start) / repeats)
    return {name: statistics.median(values) for name, values in times.items()}


def zipf(*shape: int) -> Tensor:
    """Token numbers as frequent as words are: P(r) ∝ 1 / (r + 1)."""
    weights = 1 / torch.arange(1, VOCABULARY + 1, dtype=torch.float64)
    count = torch.Size(shape).numel()
    return torch.multinomial(weights, count, replacement=True).view(*shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=3, help="steps per round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    tokens, targets = zipf(BATCH, WINDOW), zipf(BATCH, WINDOW)
    for dropout in sorted({0.0, options.dropout}):
        bare = bare_step(dropout)
        model, ours = our_step(dropout)
        adaptive_model, adaptive = our_step(dropout, softmax="adaptive")
        variants = {
            "bare nn.LSTM": lambda step=bare: step(tokens, targets),
            "lmlab lstm": lambda step=ours: step(tokens, targets),
            "lmlab lstm, adaptive": lambda step=adaptive: step(tokens, targets),
        }
        seconds = medians(variants, rounds=options.rounds, repeats=options.repeats)
        work = {"bare nn.LSTM": model.flops(WINDOW), "lmlab lstm": model.flops(WINDOW)}
        work["lmlab lstm, adaptive"] = adaptive_model.flops(WINDOW)
        print(f"training step, 2 x 650, V 10k, T 35, B 20, SGD, dropout {dropout}, {options.threads} threads")
        for name, value in seconds.items():
            speed = BATCH * WINDOW / value
            gflops = 3 * work[name] * speed / 1e9
            ratio = seconds["bare nn.LSTM"] / value
            print(
                f"  {name:22s} {speed:8.0f} tok/s  {gflops:6.1f} GFLOP/s ({gflops / NOMINAL:4.0%})  {ratio:5.2f} x bare"
            )

    hidden, flat = torch.randn(BATCH * WINDOW, WIDTH), targets.flatten()
    layers = {
        "nn.Linear + cross_entropy": plain_output_step(),
        "full softmax": output_step(Softmax(WIDTH, VOCABULARY)),
        "adaptive softmax": output_step(AdaptiveSoftmax(WIDTH, VOCABULARY)),
    }
    seconds = medians(
        {name: lambda step=step: step(hidden, flat) for name, step in layers.items()},
        rounds=options.rounds,
        repeats=options.repeats,
    )
    print("output layer alone, forward and backward, Zipfian targets")
    for name, value in seconds.items():
        print(f"  {name:26s} {value * 1e3:7.1f} ms  {seconds['full softmax'] / value:5.2f} x full")


if __name__ == "__main__":
    main()
