"""The duplication task of the Reformer's paper: 0w0w, learnt with one number of hashes and tried with others.

w are random tokens; the second w is to be predicted from the first, which only attention over half of the sequence can
do. The paper (Kitaev et al. 2020, section 5, table 2) has sequences of 1024, a vocabulary of 128 and 150,000 steps of
one layer of width 256; LSH-4 then has 99.9% with 4 hashes, 100% with 8, 99.4% with 2 and 91.9% with 1. Here minutes on
a CPU must do; the length of the sequences is printed.

    python benchmarks/duplication.py --length 256 --minutes 12
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor

from lmlab.models import create
from lmlab.models.reformer import Reformer

PAPER = {8: 1.0, 4: 0.999, 2: 0.994, 1: 0.919}


def sequences(rows: int, length: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    """[rows, length], each 0w0w with tokens 1 … vocabulary − 1 in w."""
    w = torch.randint(1, vocabulary, (rows, length // 2 - 1), generator=generator)
    zero = w.new_zeros(rows, 1)
    return torch.cat((zero, w, zero, w), 1)


def second_half(model: Reformer, text: Tensor) -> tuple[Tensor, Tensor]:
    """The vectors before each token of the second w, and these tokens."""
    hidden = model(text[:, :-1]).hidden[:, text.shape[1] // 2 :]
    return hidden.flatten(0, 1), text[:, text.shape[1] // 2 + 1 :].flatten()


@torch.no_grad()
def accuracy(model: Reformer, hashes: int, *, length: int, vocabulary: int, rows: int = 64, seeds: int = 4) -> float:
    """The fraction of tokens of the second w that are right, over several seeds of the hash."""
    model.eval()
    generator = torch.Generator().manual_seed(12345)
    right, count = 0, 0
    for seed in range(seeds):
        model.set_hashes(hashes, seed=1000 + seed)
        hidden, targets = second_half(model, sequences(rows, length, vocabulary, generator))
        right += int((model.logits(hidden).argmax(-1) == targets).sum())
        count += len(targets)
    return right / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=256, help="tokens of 0w0w")
    parser.add_argument("--vocabulary", type=int, default=128)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--chunk", type=int, default=16)
    parser.add_argument("--hashes", type=int, default=4, help="rounds of hashing while learning")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="JSON with the figures")
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    model = create(
        "reformer",
        {
            "vocabulary": given.vocabulary, "width": given.width, "heads": 4, "layers": 1, "inner": given.width,
            "window": given.length, "chunk": given.chunk, "hashes": given.hashes, "attention": ["lsh"],
            "positions": "learned", "dropout": 0.0,
        },
    )  # fmt: skip
    assert isinstance(model, Reformer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.rate, betas=(0.9, 0.98), weight_decay=0.0)
    generator = torch.Generator().manual_seed(given.seed)
    task = {"length": given.length, "vocabulary": given.vocabulary}
    start, step = time.monotonic(), 0
    while (spent := time.monotonic() - start) < 60 * given.minutes:
        model.train()
        rate = given.rate * min(1.0, (step + 1) / 100) * max(0.05, 1 - spent / (60 * given.minutes))
        for group in optimizer.param_groups:
            group["lr"] = rate
        hidden, targets = second_half(model, sequences(given.batch, generator=generator, **task))
        loss = model.total_nll(hidden, targets) / len(targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 100 == 0:
            fraction = accuracy(model, given.hashes, rows=8, seeds=1, **task)
            model.set_hashes(given.hashes, seed=0)
            print(f"step {step}  {spent:6.0f} s  loss {loss.item():.3f}  accuracy {fraction:.3f}", flush=True)
    print(
        f"\n0w0w of {given.length} tokens, vocabulary {given.vocabulary}, one layer, width {given.width}, {step} steps"
    )
    print(f"learnt with LSH-{given.hashes}; tried with\n\nhashes   here     paper (1024 tokens)")
    found = {hashes: accuracy(model, hashes, **task) for hashes in (8, 4, 2, 1)}
    for hashes, fraction in found.items():
        print(f"{hashes:6}  {fraction:6.1%}   {PAPER[hashes]:6.1%}")
    if given.output:
        given.output.write_text(json.dumps({**task, "steps": step, "accuracy": found}))


if __name__ == "__main__":
    main()
