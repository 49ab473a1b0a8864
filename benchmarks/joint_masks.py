"""How well are two and three missing tokens predicted together? BERT alone, BERT one after another, and XLNet.

    python benchmarks/joint_masks.py [FOLDER] [--text builtin] [--budget 1.5e12flops] [--size tiny] [--masks 2 3]

BERT and XLNet are trained on the same text with the same tokenizer and the same budget in FLOPs. Then neighbouring
tokens of held-out text are taken out, the same for both, and the joint log-likelihood of what stood there is measured:

- BERT alone: the sum of log P(token | the rest), all masks open, as BERT is trained;
- BERT jointly: the chain rule, one mask filled after another from left to right;
- XLNet alone and XLNet: the same two; the second in one pass, as it is trained, and from right to left as well.

What is gained by the chain rule is what the missing tokens say about each other. In nats per mask, with the standard
error over places; pairs are of the same places, so differences are more certain than the figures. Counted in FLOPs, not
timed: a busy machine changes nothing. A second call takes the runs that it finds.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmlab import load
from lmlab.language_model import LanguageModel
from lmlab.models.abilities import FillsInOrder, FillsMasks, ability, require
from lmlab.runs import run
from lmlab.runs.held_out import reopen_corpus
from lmlab.runs.jobs import Silent
from lmlab.runs.recipe import make_recipe
from lmlab.runs.recipe_record import read_record
from study import clock

CONTEXT = 48
ROWS = 64


class Rows(NamedTuple):
    """Passages in their frame, with masks at the same places of each text."""

    tokens: Tensor  # [N, T]
    at: Tensor  # [N, K]


def trained(kind: str, arguments: argparse.Namespace) -> tuple[LanguageModel, Any]:
    path = arguments.folder / f"{kind}-{arguments.size}-{arguments.budget}"
    if not (path / "README.md").is_file():
        model: dict[str, Any] = {"kind": kind, "size": arguments.size}
        model |= {"pairs": False, "initial": arguments.initial} if kind == "bert" else {}
        objective = {"pairs": "none"} if kind == "bert" else {}
        recipe = make_recipe(
            {
                "data": {"text": [arguments.text]},
                "tokenizer": {"spec": arguments.tokenizer},
                "model": model,
                "objective": objective,
                "train": {"budget": arguments.budget, "evaluations": 3},
            }
        )
        run.start(recipe, path, overwrite=path.exists())
    return load(path), reopen_corpus(read_record(path), path, Silent())


def passages(corpus: Any, model: LanguageModel, *, masks: int, count: int) -> Rows:
    """Stretches of the test text within documents, with `masks` neighbouring tokens missing in the middle."""
    split = corpus.test or corpus.valid
    stream, boundary = np.asarray(split.tokens).astype(np.int64), model.text_tokenizer.boundary
    chance = np.random.default_rng(masks)
    rows, positions = [], []
    for _ in range(50 * count):
        start = int(chance.integers(0, len(stream) - CONTEXT))
        piece = stream[start : start + CONTEXT]
        if boundary in piece:
            continue
        framed = model.frame.rows([{"a": piece}])[0].inputs["tokens"]
        first = framed.positions("a")[int(chance.integers(CONTEXT // 4, 3 * CONTEXT // 4))]
        rows.append(framed.pieces)
        positions.append(range(first, first + masks))
        if len(rows) == count:
            break
    return Rows(torch.tensor(rows), torch.tensor([list(each) for each in positions]))


@torch.inference_mode()
def alone(model: LanguageModel, rows: Rows) -> Tensor:
    """Σ log P(token | all but the masks) of each passage [N]."""
    filler, mask = require(model.model, FillsMasks), model.text_tokenizer.special("mask")
    targets = rows.tokens.gather(1, rows.at)
    scores = filler.fill(tokens=rows.tokens.scatter(1, rows.at, mask), at=rows.at).double().log_softmax(-1)
    return scores.gather(2, targets[..., None])[..., 0].sum(1)


@torch.inference_mode()
def one_after_another(model: LanguageModel, rows: Rows) -> Tensor:
    """Σ log P(token | the rest, and the masks before it) [N], by filling in what stood there."""
    filler, mask = require(model.model, FillsMasks), model.text_tokenizer.special("mask")
    tokens, total = rows.tokens.scatter(1, rows.at, mask), torch.zeros(len(rows.tokens), dtype=torch.float64)
    for number in range(rows.at.shape[1]):
        here = rows.at[:, number:]
        target = rows.tokens.gather(1, here[:, :1])
        scores = filler.fill(tokens=tokens, at=here)[:, 0].double().log_softmax(-1)
        total += scores.gather(1, target)[:, 0]
        tokens = tokens.scatter(1, here[:, :1], target)
    return total


@torch.inference_mode()
def in_order(model: LanguageModel, rows: Rows, *, backwards: bool) -> Tensor:
    """The same in one pass, as a permutation model is trained [N]."""
    filler = require(model.model, FillsInOrder)
    ranks = torch.arange(1, rows.at.shape[1] + 1)
    ranks = (ranks.flip(0) if backwards else ranks).expand_as(rows.at)
    order = torch.zeros_like(rows.tokens).scatter(1, rows.at, ranks)
    hidden, _ = filler.read_in_order(tokens=rows.tokens, order=order, at=rows.at)
    scores = filler.logits(hidden).double().log_softmax(-1)
    return scores.gather(2, rows.tokens.gather(1, rows.at)[..., None])[..., 0].sum(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/joint-masks"))
    parser.add_argument("--text", default="builtin")
    parser.add_argument("--tokenizer", default="bpe:2048")
    parser.add_argument("--budget", default="1.5e12flops")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--initial", choices=["published", "scaled"], default="scaled", help="BERT's first weights")
    parser.add_argument("--masks", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"\n### {arguments.text}, {arguments.size}, {arguments.budget}, {clock()}: joint nats, lower is better\n")
    print(f"| | {' | '.join(f'{count} masks' for count in arguments.masks)} |")
    print(f"|{'---|' * (1 + len(arguments.masks))}")
    table: dict[str, list[str]] = {}
    for kind in ("bert", "xlnet"):
        model, corpus = trained(kind, arguments)
        ways = {f"{kind}, each mask alone": alone, f"{kind}, one after another": one_after_another}
        if ability(model.model, FillsInOrder) is not None:
            ways |= {
                f"{kind}, left to right in one pass": lambda lm, rows: in_order(lm, rows, backwards=False),
                f"{kind}, right to left in one pass": lambda lm, rows: in_order(lm, rows, backwards=True),
            }
        for count in arguments.masks:
            rows = passages(corpus, model, masks=count, count=arguments.passages)
            for name, measure in ways.items():
                parts = [
                    measure(model, Rows(rows.tokens[i : i + ROWS], rows.at[i : i + ROWS]))
                    for i in range(0, len(rows.tokens), ROWS)
                ]
                nats = -torch.cat(parts)
                error = float(nats.std()) / math.sqrt(len(nats))
                table.setdefault(name, []).append(f"{float(nats.mean()):.3f} ±{error:.3f}")
    for name, cells in table.items():
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
