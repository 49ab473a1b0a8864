"""Transformer-XL evaluation: segments with memory against a window that slides token by token, in one process.

    python benchmarks/transformer_xl.py [--contexts 128 512] [--repeats 5]

Both ways use the same layers and give each token at least `context` tokens to look back on. With memory, a text is read
in segments of that length, once; without, each token needs a fresh window (the better of 1 and 16 windows at a time
counts). Dai et al. 2019 (table 9) report up to 1,874 times at a context of 3,800 on a GPU. Also printed: generation,
token by token with memory. Medians; scores over the vocabulary are included on both sides, for the predicted tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from lmlab.models.transformer_xl import TransformerXL, TransformerXLConfig
from timing import make_parser, take_turns


def with_memory(model: TransformerXL, text: Tensor, *, context: int) -> int:
    """Score a text [1, N + 1] segment by segment; gives the number of predicted tokens."""
    state = model.start(1)
    tokens = text.shape[1] - 1
    for begin in range(0, tokens, context):
        end = min(begin + context, tokens)
        _, state = model.score(text[:, begin:end], text[:, begin + 1 : end + 1], state)
    return tokens


def with_window(model: TransformerXL, text: Tensor, *, context: int, batch: int) -> int:
    """Score the token after each of `batch` windows of the text by a fresh pass over each."""
    windows = text[0, : context + batch - 1].unfold(0, context, 1)
    hidden = model(windows, state=None).hidden[:, -1]
    model.nll(hidden, text[0, context : context + batch])
    return batch


def one_by_one(model: TransformerXL, text: Tensor, *, context: int) -> int:
    """Read 32 tokens one at a time after a memory of `context` tokens."""
    _, state = model(text[:, :context], state=model.start(1))
    for at in range(context, context + 32):
        _, state = model.step(text[:, at : at + 1], state)
    return 32


def main() -> None:
    parser = make_parser(__doc__, repeats=5)
    parser.add_argument("--contexts", nargs="+", type=int, default=[128, 512])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for context in arguments.contexts:
        torch.manual_seed(0)
        config = TransformerXLConfig(
            vocabulary=8192, width=256, heads=4, layers=4, inner=1024, memory=context, dropout=0.0
        )
        model = TransformerXL(config).eval()
        text = torch.randint(config.vocabulary, (1, max(8 * context, context + 64) + 1))
        ways: dict[str, Callable[[], int]] = {
            "segments with memory": lambda m=model, t=text, c=context: with_memory(m, t, context=c),
            "sliding window, batch 1": lambda m=model, t=text, c=context: with_window(m, t, context=c, batch=1),
            "sliding window, batch 16": lambda m=model, t=text, c=context: with_window(m, t, context=c, batch=16),
            "one by one with memory": lambda m=model, t=text, c=context: one_by_one(m, t, context=c),
        }
        with torch.inference_mode():
            tokens = {name: way() for name, way in ways.items()}
            times = take_turns(ways, repeats=arguments.repeats)
        rates = {name: tokens[name] / statistics.median(values) for name, values in times.items()}
        best = max(rates["sliding window, batch 1"], rates["sliding window, batch 16"])
        print(f"\ncontext {context} (L4 d256 h4 V8192)")
        for name, rate in rates.items():
            print(f"  {name:26}{rate:10.1f} tokens/s   {rate / best:7.1f}x the best sliding window")


if __name__ == "__main__":
    main()
