"""XLNet's permutation training step: lmlab against `XLNetLMHeadModel` of `transformers`, in one process, interleaved.

    python benchmarks/xlnet_training.py [--dropout 0 0.1] [--memory 0 128] [--repeats 7] [--threads 2]

Both train the same shape (L4 d256 h4 T128 B16, vocabulary 8192) on the same tokens with the same order in each row, of
which the last sixth is predicted; with a memory, both are given the same one and make the next. Exact GELU, one dropout
everywhere, tied embeddings, gradient clipping at 1 and AdamW (lmlab with the fused one of PyTorch, transformers with
its default and with the fused one). lmlab has the query stream, the last layer and the scores only where something is
predicted. Before timing, both are given the same weights and must have the same loss. Printed: tokens/s (median) and
the ratio.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lmlab.layers.attention.two_stream import permutation_masks
from lmlab.models.abilities import FillsInOrder, require
from lmlab.models.transformer_xl import Memory
from lmlab.training.devices import keep_buffers
from peers import same_weights, training_steps
from timing import make_parser, print_rows, take_turns

LAYERS, WIDTH, HEADS, WINDOW, BATCH, VOCABULARY = 4, 256, 4, 128, 16, 8192
PREDICTED = WINDOW // 6
DECAY = 0.01


def contestants(dropout: float, memory: int, window: int) -> dict[str, Callable[[], None]]:
    """A training step of each."""
    import transformers

    torch.manual_seed(0)
    text = torch.randint(5, VOCABULARY, (BATCH, window))
    at = torch.rand(BATCH, window).argsort(1)[:, : max(1, window // 6)]
    order = torch.zeros_like(text).scatter(1, at, torch.rand(at.shape).argsort(1) + 1)
    targets = text.gather(1, at)
    itself = torch.eye(window, dtype=torch.bool) & (order > 0)[..., None]
    hidden = (~permutation_masks(order, at)[0] | itself).float()
    mapping = F.one_hot(at, window).float()
    past = torch.randn(LAYERS, BATCH, memory, WIDTH)

    config = transformers.XLNetConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, n_head=HEADS, n_layer=LAYERS, d_inner=4 * WIDTH, dropout=dropout,
        mem_len=memory or None, use_mems_train=memory > 0, use_mems_eval=memory > 0,
    )  # fmt: skip
    reference = transformers.XLNetLMHeadModel(config)
    ours = same_weights(reference)
    theirs = {name: copy.deepcopy(reference) for name in ("default", "fused")}
    filler: Any = require(ours, FillsInOrder)
    state = Memory(tuple(past.unbind()), projected=False) if memory else None
    mems = [layer.transpose(0, 1).contiguous() for layer in past.unbind()] if memory else None

    def our_loss() -> Tensor:
        vectors = filler.read_in_order(tokens=text, order=order, at=at, state=state)[0].flatten(0, 1)
        return filler.total_nll(vectors, targets.flatten()) / targets.numel()

    def their_loss(name: str) -> Tensor:
        found = theirs[name](text, perm_mask=hidden, target_mapping=mapping, mems=mems, labels=targets)
        loss: Tensor = found.loss
        return loss

    losses: dict[str, Callable[[], Tensor]] = {
        "lmlab": our_loss,
        "transformers": lambda: their_loss("default"),
        "transformers, fused AdamW": lambda: their_loss("fused"),
    }
    return training_steps(losses, (ours, *theirs.values()), decay=DECAY)


def main() -> None:
    parser = make_parser(__doc__, repeats=7)
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.1])
    parser.add_argument("--memory", nargs="+", type=int, default=[0, 128])
    parser.add_argument("--window", type=int, default=WINDOW)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_buffers()
    for memory in arguments.memory:
        for dropout in arguments.dropout:
            times = take_turns(contestants(dropout, memory, arguments.window), repeats=arguments.repeats)
            shape = f"L{LAYERS} d{WIDTH} h{HEADS} T{arguments.window} M{memory} B{BATCH} V{VOCABULARY}"
            print(f"\n{shape}, a sixth predicted, dropout {dropout}; same first loss")
            print_rows(times, work=BATCH * arguments.window, unit="tokens", peer="transformers")


if __name__ == "__main__":
    main()
