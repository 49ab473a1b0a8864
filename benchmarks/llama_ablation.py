"""What is each of LLaMA's four changes worth? Each taken back alone, under three budgets, beside GPT-2.

    python benchmarks/llama_ablation.py [FOLDER] [--text wikitext2] [--budgets 3e11 1.5e12 7.5e12] [--size tiny]

Every variant is LLaMA with one of its changes undone: LayerNorm for RMS norm, learnt positions for rotary ones, a GELU
net of the same number of weights for SwiGLU, keys and values of their own for all heads. They are models like any
other (a few lines each, below), compared by `lmlab compare`: same text, tokenizer, budget in FLOPs and rate, so
each score is exact bits per byte of held-out text with its interval. Worth is how many bits are lost without the
change. FLOPs are counted, not timed, so the table is the same on a busy machine; a second call takes what it finds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.cli.leaderboard import LiveTable
from lmlab.comparison.folder import run_comparison
from lmlab.comparison.plan import make_conditions
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.kernels.gelu import gelu_tanh
from lmlab.layers.positions import LearnedPositions, Rotary
from lmlab.models import LINEAGE
from lmlab.models.gpt import initialise
from lmlab.models.llama import Block, Llama, LlamaConfig
from study import clock, need


class LayerNormBlock(Block):
    def __init__(self, config: LlamaConfig, rotary: Rotary) -> None:
        super().__init__(config, rotary)
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(config.width), nn.LayerNorm(config.width)


class LayerNormLlama(Llama):
    block = LayerNormBlock

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.norm = nn.LayerNorm(config.width)


class UnturnedBlock(Block):
    def __init__(self, config: LlamaConfig, rotary: Rotary) -> None:
        super().__init__(config, rotary)
        self.attention.rotary = None


class LearnedPositionsLlama(Llama):
    block = UnturnedBlock

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.positions = LearnedPositions(config.window, config.width)

    def embed(self, tokens: Tensor, start: int | Tensor) -> Tensor:
        assert self.positions is not None
        x: Tensor = self.embedding(tokens) + self.positions(start, tokens.shape[1])
        return x


class GeluBlock(Block):
    def __init__(self, config: LlamaConfig, rotary: Rotary) -> None:
        super().__init__(config, rotary)
        self.feed_forward = FeedForward(config.width, 3 * config.inner // 2, activation=gelu_tanh).apply(initialise)


class GeluLlama(Llama):
    block = GeluBlock


OWN_KEYS = {name: {**size, "key_value_heads": size["heads"]} for name, size in LINEAGE["llama"].sizes.items()}
VARIANTS: dict[str, tuple[type[Llama], str]] = {
    "layer-norm": (LayerNormLlama, "RMS norm"),
    "learnt-positions": (LearnedPositionsLlama, "rotary positions"),
    "gelu": (GeluLlama, "SwiGLU"),
    "own-keys": (Llama, "shared keys and values"),
}


def register() -> None:
    """The variants as rows of the lineage, found in this file by the name under which it runs."""
    sys.modules.setdefault("llama_ablation", sys.modules[__name__])
    for name, (cls, change) in VARIANTS.items():
        where = LINEAGE["llama"].where if cls is Llama else f"llama_ablation:{cls.__name__}"
        sizes = OWN_KEYS if cls is Llama else LINEAGE["llama"].sizes
        row = replace(LINEAGE["llama"], name=f"llama-{name}", where=where, sizes=sizes, paper="this script")
        LINEAGE[row.name] = replace(row, summary=f"LLaMA without {change}")


def board(budget: float, arguments: argparse.Namespace) -> dict[str, Any]:
    """Bits per byte with half their interval, and tokens, by system; made now or earlier."""
    folder = arguments.folder / f"{arguments.text}-{budget:g}"
    if not (folder / "leaderboard.json").is_file():
        data = Path(os.environ["LMLAB_DATA"]) / arguments.text
        builtin = arguments.text == "builtin"
        conditions = make_conditions(
            ["builtin"] if builtin else [str(data / "train.txt")],
            models=",".join(["gpt2", "llama", *(f"llama-{name}" for name in VARIANTS)]),
            budget=f"{budget:g}flops",
            size=arguments.size,
            data={} if builtin else {"valid": [str(data / "valid.txt")], "test": [str(data / "test.txt")]},
            train={"evaluations": 2},
            seeds=arguments.seeds,
        )
        with LiveTable() as watcher:
            run_comparison(conditions, folder, watcher=watcher)
    entries = json.loads((folder / "leaderboard.json").read_text(encoding="utf-8"))["entries"]
    return {entry["kind"]: entry for entry in entries}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/llama-ablation"))
    parser.add_argument("--text", choices=["builtin", "brown", "wikitext2"], default="wikitext2")
    parser.add_argument("--budgets", nargs="+", type=float, default=[3e11, 1.5e12, 7.5e12])
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.text != "builtin":
        need(arguments.text)
    torch.set_num_threads(arguments.threads)
    register()
    budgets = sorted(arguments.budgets)
    boards = [board(budget, arguments) for budget in budgets]
    print(f"\n### {arguments.text}, {arguments.size}, {clock()}: bits per byte, and what is lost against LLaMA\n")
    print(f"| system | {' | '.join(f'{budget:g} FLOPs' for budget in budgets)} |\n|{'---|' * (1 + len(budgets))}")
    for system in ("llama", *(f"llama-{name}" for name in VARIANTS), "gpt2"):
        change = VARIANTS.get(system.removeprefix("llama-"), (None, ""))[1]
        cells = []
        for each in boards:
            bits, spread = each[system]["bits_per_byte"], (each[system]["high"] - each[system]["low"]) / 2
            lost = bits - each["llama"]["bits_per_byte"]
            cells.append(f"{bits:.3f} ±{spread:.3f}" + ("" if system == "llama" else f" ({lost:+.3f})"))
        print(f"| {f'without {change}' if change else f'`{system}`'} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
