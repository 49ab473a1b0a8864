"""Training memory against depth: reversible layers keep the activations of one, others those of all, with a plot.

    python benchmarks/long_depth.py [--layers 2 4 8 16 24] [--length 4096] [--output plots]

One text of 4,096 tokens, width 256, 4 heads: loss and gradients of `reformer` (LSH-4 and local attention by turns, and
LSH-4 alone) and of `gpt2`. The memory is the peak beyond the weights and their gradients, which grow with depth for
all, in a process of its own for each point.
"""

from __future__ import annotations

from pathlib import Path

from lmlab.pages.figures import PALETTE, Chart, Point, Series, save_charts
from long_memory import megabytes
from timing import make_parser


def main() -> None:
    parser = make_parser(__doc__, repeats=3)
    parser.add_argument("--layers", nargs="+", type=int, default=[2, 4, 8, 16, 24])
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--output", type=Path, help="folder for the plot")
    given = parser.parse_args()
    found: dict[str, list[Point]] = {}
    print(f"one text of {given.length} tokens, width 256; peak of loss and gradients beyond weights and gradients")
    for kind in ("gpt2", "reformer-local", "reformer"):
        found[kind] = []
        for layers in given.layers:
            size = {"layers": layers, "length": given.length, "threads": given.threads}
            peak = sorted(megabytes("learn", kind, **size) for _ in range(given.repeats))[given.repeats // 2]
            found[kind].append(Point(layers, peak))
            print(f"  {kind:16}{layers:4} layers {peak:8.0f} MB", flush=True)
        first, last = found[kind][0].y, found[kind][-1].y
        print(f"  {kind:16}{last / first:8.2f}x from {given.layers[0]} to {given.layers[-1]} layers")
    if given.output:
        series = [Series(kind, colour, points) for (kind, points), colour in zip(found.items(), PALETTE, strict=False)]
        title = f"Training on {given.length} tokens, width 256"
        chart = Chart("long-depth", title, "layers", "megabytes of activations", series, logarithmic=False)
        save_charts([chart], given.output)


if __name__ == "__main__":
    main()
