"""Encoder-decoder training step: lmlab against `transformers`, in one process, interleaved.

    python benchmarks/seq2seq_training.py [--rows transformer bart] [--texts full padded] [--dropout 0 0.1]

Both train 3 + 3 layers, width 256, 4 heads, inner 1024, 8,192 shared tokens, on the same 64 pairs: `transformer`
against Marian (post-norm, sinusoidal positions, ReLU) and `bart` against BART (learnt positions, GELU). `full` pairs
have 32 tokens on each side, `padded` ones 16 to 32. One dropout on embeddings and sublayers, none on attention weights,
gradient clipping at 1 and AdamW (lmlab with PyTorch's fused one, transformers with its default and with the fused one).
glibc keeps freed buffers, for all alike, as lmlab's training does. Printed: target tokens/s (median), the ratio to
transformers, and the fraction of the machine's matrix limit, which is measured in the same run by a product of two
1024 x 1024 matrices; FLOPs are counted as 3 forward passes over the padded texts. With the same weights, and without
dropout, the first losses must agree.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lmlab.training.devices import keep_buffers
from peers import same_weights, translator
from timing import make_parser, matrix_limit, print_rows, stepper, take_turns

SHAPE = {"layers": 3, "width": 256, "heads": 4, "inner": 1024, "vocabulary": 8192}
BATCH, LENGTH = 64, 32
IGNORE = -100
DECAY = 0.01


def contestants(row: str, texts: str, dropout: float) -> tuple[dict[str, Callable[[], None]], float, int]:
    """A training step of each model, the FLOPs of one step, and its target tokens."""
    torch.manual_seed(0)
    settings = {"attention_dropout": 0.0, "activation_dropout": 0.0, "use_cache": False, "pad_token_id": 0}
    reference = translator(row, **SHAPE, dropout=dropout, **settings)
    ours = same_weights(reference)
    theirs = {fused: copy.deepcopy(reference) for fused in (False, True)}
    torch.manual_seed(1)
    source, text = (torch.randint(1, SHAPE["vocabulary"], (BATCH, length)) for length in (LENGTH, LENGTH + 1))
    lengths = torch.full((BATCH,), LENGTH)
    sizes = torch.full((BATCH,), LENGTH)
    if texts == "padded":
        lengths, sizes = (torch.randint(LENGTH // 2, LENGTH + 1, (BATCH,)) for _ in range(2))
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    inputs = text[:, :-1].contiguous()
    targets = text[:, 1:].masked_fill(torch.arange(LENGTH) >= sizes[:, None], IGNORE)
    wanted = (targets != IGNORE).flatten().nonzero()[:, 0]
    count = len(wanted)

    def our_loss() -> Tensor:
        hidden = ours(inputs, source=source, lengths=lengths, target_lengths=sizes).hidden.flatten(0, 1)
        return ours.total_nll(hidden.index_select(0, wanted), targets.flatten()[wanted]) / count

    def their_loss(model: nn.Module) -> Tensor:
        loss: Tensor = model(input_ids=source, attention_mask=mask, decoder_input_ids=inputs, labels=targets).loss
        return loss

    for model in (ours, *theirs.values()):
        model.eval()
    with torch.no_grad():
        one, two = our_loss().item(), their_loss(theirs[False]).item()
    if abs(one - two) > 1e-4:
        raise SystemExit(f"the models differ: first loss {one} of lmlab, {two} of transformers")
    for model in (ours, *theirs.values()):
        model.train()
    steps = {
        "lmlab": stepper(ours, our_loss, fused=True, decay=DECAY),
        "transformers": stepper(theirs[False], lambda: their_loss(theirs[False]), fused=False, decay=DECAY),
        "transformers, fused AdamW": stepper(theirs[True], lambda: their_loss(theirs[True]), fused=True, decay=DECAY),
    }
    return steps, 3 * BATCH * LENGTH * ours.pretraining_flops(LENGTH), count


def compare(row: str, texts: str, dropout: float, *, repeats: int) -> None:
    steps, flops, count = contestants(row, texts, dropout)
    limit = matrix_limit()
    times = take_turns(steps, repeats=repeats)
    limit = max(limit, matrix_limit())
    shape = "{layers}+{layers} d{width} h{heads} V{vocabulary}".format(**SHAPE)
    reported = f"same first loss; matrix limit {limit / 1e9:.0f} GFLOP/s"
    print(f"\n{row} ({shape} B{BATCH}), {texts}, dropout {dropout}; {reported}")
    print_rows(
        times,
        work=count,
        unit="tokens",
        peer="transformers",
        note=lambda _, seconds: f"{flops / seconds / limit:4.0%} of the limit",
    )


def main() -> None:
    parser = make_parser(__doc__, repeats=7, rows=("transformer", "bart"))
    parser.add_argument("--texts", nargs="+", default=["full", "padded"], choices=["full", "padded"])
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.1])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_buffers()
    for row, texts, dropout in itertools.product(arguments.rows, arguments.texts, arguments.dropout):
        compare(row, texts, dropout, repeats=arguments.repeats)


if __name__ == "__main__":
    main()
