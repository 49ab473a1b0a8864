"""BERT's masked training step: lmlab against `BertForMaskedLM` of `transformers`, in one process, interleaved.

    python benchmarks/bert_training.py [--dropout 0 0.1] [--repeats 7] [--threads 2]

Both train the same shape (L4 d256 h4 T256 B16, vocabulary 8192) on the same tokens with 15% masks: exact GELU, one
dropout everywhere, tied embeddings, no pooler and no sentence pairs, gradient clipping at 1 and AdamW (lmlab with
the fused one of PyTorch, transformers with its default and with the fused one); also in bf16 by autocast. glibc keeps
freed buffers, for both alike, as lmlab does in training. lmlab computes scores, and the last layer but for its keys and
values, at the masks only; the last row has the head of transformers called at the masks only, too.
Before timing, both are given the same weights and must have the same loss. Printed: tokens/s (median) and the ratio.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from lmlab.models.abilities import FillsMasks, require
from lmlab.training.devices import keep_buffers
from peers import same_weights, training_steps
from timing import choose_clock, make_parser, print_rows, processor, take_turns

LAYERS, WIDTH, HEADS, WINDOW, BATCH, VOCABULARY = 4, 256, 4, 256, 16, 8192
MASKS = round(0.15 * WINDOW)
MASK = 4
DECAY = 0.01


def contestants(dropout: float) -> dict[str, Callable[[], None]]:
    """A training step of each."""
    import transformers

    torch.manual_seed(0)
    text = torch.randint(5, VOCABULARY, (BATCH, WINDOW))
    positions = torch.rand(BATCH, WINDOW).argsort(1)[:, :MASKS]
    targets = text.gather(1, positions)
    inputs = text.scatter(1, positions, MASK)
    labels = torch.full_like(text, -100).scatter(1, positions, targets)
    at = (torch.arange(BATCH)[:, None] * WINDOW + positions).flatten()

    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
        intermediate_size=4 * WIDTH, max_position_embeddings=WINDOW,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    reference = transformers.BertForMaskedLM(config)
    ours = same_weights(reference)
    theirs = {name: copy.deepcopy(reference) for name in ("default", "fused", "masks")}

    filler = require(ours, FillsMasks)

    def our_loss() -> Tensor:
        hidden = filler.read(tokens=inputs, at=positions).flatten(0, 1)
        return filler.total_nll(hidden, targets.flatten()) / targets.numel()

    def their_loss_at_masks() -> Tensor:
        hidden = theirs["masks"].bert(inputs).last_hidden_state.flatten(0, 1)[at]
        return F.cross_entropy(theirs["masks"].cls(hidden), targets.flatten())

    losses = {
        "lmlab": our_loss,
        "transformers": lambda: theirs["default"](inputs, labels=labels).loss,
        "transformers, fused AdamW": lambda: theirs["fused"](inputs, labels=labels).loss,
        "transformers, fused, head at masks only": their_loss_at_masks,
    }
    return training_steps(losses, (ours, *theirs.values()), decay=DECAY, halves=True)


def main() -> None:
    parser = make_parser(__doc__, repeats=7)
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.1])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    choose_clock(arguments)
    keep_buffers()
    print(processor())
    for dropout in arguments.dropout:
        times = take_turns(contestants(dropout), repeats=arguments.repeats)
        shape = f"L{LAYERS} d{WIDTH} h{HEADS} T{WINDOW} B{BATCH} V{VOCABULARY}"
        print(f"\n{shape}, {MASKS} masks a row, dropout {dropout}; same first loss")
        print_rows(times, work=BATCH * WINDOW, unit="tokens", peer="transformers")


if __name__ == "__main__":
    main()
