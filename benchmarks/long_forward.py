"""Forward passes over long texts: LSH attention against fused full attention, in time and memory, with plots.

    python benchmarks/long_forward.py [--lengths 4096 8192 16384 32768 65536] [--repeats 5] [--output plots]

Two layers of width 256 with 4 heads and a feed-forward net of 1024, one text, no gradients: `gpt2` (fused causal
attention), `reformer` with LSH-4 in both layers, and with local attention in the first. Contestants take turns; the
memory is the peak of one pass beyond the weights, in a process of its own. `--transformers` adds its Reformer of the
same shape.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lmlab.pages.figures import PALETTE, Chart, Point, Series, save_charts
from long_memory import forward, make, megabytes
from timing import make_parser, take_turns

KINDS = ("gpt2", "reformer", "reformer-local")


def reference(length: int) -> Any:
    """The Reformer of `transformers`, LSH-4 in both layers."""
    import transformers

    transformers.logging.set_verbosity_error()
    columns = 2 ** (length.bit_length() // 2)
    config = transformers.ReformerConfig(
        vocab_size=256, hidden_size=256, num_attention_heads=4, attention_head_size=64, feed_forward_size=1024,
        attn_layers=["lsh", "lsh"], max_position_embeddings=length, axial_pos_shape=[length // columns, columns],
        axial_pos_embds_dim=[64, 192], num_hashes=4, is_decoder=True, use_cache=False,
    )  # fmt: skip
    return transformers.ReformerModel(config).eval()


def main() -> None:
    parser = make_parser(__doc__, repeats=5)
    parser.add_argument("--lengths", nargs="+", type=int, default=[4096, 8192, 16384, 32768, 65536])
    parser.add_argument("--transformers", action="store_true", help="its Reformer too")
    parser.add_argument("--output", type=Path, help="folder for the plots")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    names = [*KINDS, "transformers"] if given.transformers else list(KINDS)
    seconds: dict[str, list[Point]] = {name: [] for name in names}
    memory: dict[str, list[Point]] = {name: [] for name in KINDS}
    print(f"L2 d256 h4, one text, {given.threads} threads; medians of {given.repeats}; memory beyond the weights")
    for length in given.lengths:
        tokens = torch.randint(256, (1, length))
        ways: dict[str, Callable[[], object]] = {}
        for kind in KINDS:
            model = make(kind, layers=2, window=length)
            ways[kind] = lambda model=model, tokens=tokens: forward(model, tokens)
        if given.transformers:
            theirs = reference(length)
            ways["transformers"] = lambda model=theirs, tokens=tokens: forward(model, tokens)
        times = take_turns(ways, repeats=given.repeats)
        print(f"\n{length} tokens")
        for name in names:
            middle = statistics.median(times[name])
            seconds[name].append(Point(length, middle))
            ratio = statistics.median(times["gpt2"]) / middle
            reported = f"  {name:16}{middle:9.3f} s  {ratio:6.2f}x as fast as full attention"
            if name in memory:
                peak = megabytes("forward", name, layers=2, length=length, threads=given.threads)
                memory[name].append(Point(length, peak))
                reported += f"  {peak:8.0f} MB"
            print(reported, flush=True)
    if given.output:
        charts = [
            Chart(
                name,
                title,
                "tokens",
                label,
                [Series(k, c, v) for (k, v), c in zip(found.items(), PALETTE, strict=False)],
                logarithmic=False,
            )
            for name, title, label, found in (
                ("long-forward-time", "One forward pass, L2 d256", "seconds", seconds),
                ("long-forward-memory", "One forward pass, L2 d256", "megabytes beyond the weights", memory),
            )
        ]
        save_charts(charts, given.output)


if __name__ == "__main__":
    main()
