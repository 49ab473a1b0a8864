"""GPT-2 training step: lmlab against `transformers` and a plain eager PyTorch GPT, in one process, interleaved.

    python benchmarks/gpt2_training.py [--rows char small medium] [--dropout 0 0.1] [--repeats 7] [--compile]

All train the same shape on the same tokens with the tanh GELU, one dropout everywhere, tied embeddings, gradient
clipping at 1 and AdamW (lmlab and the plain model with PyTorch's fused one, transformers with its default and with the
fused one). Each also in bf16 by autocast, where the CPU has it; weights, gradients and optimizer stay fp32. glibc
keeps freed buffers, for all alike, as lmlab's training does. Printed: tokens/s (median), the ratio to transformers in
fp32, and the fraction of the machine's matrix limit in fp32 or bf16, which is measured in the same run by a product of
two 1024 x 1024 matrices; FLOPs are counted as 3 forward passes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.models.gpt import GPTConfig
from lmlab.models.gpt2 import GPT2
from lmlab.training.devices import keep_buffers
from timing import BF16, choose_clock, half_steps, make_parser, matrix_limit, print_rows, processor, stepper, take_turns

DECAY = 0.1
ROWS = {  # layers, width, heads, window, batch, vocabulary
    "char": (4, 128, 4, 64, 12, 65),
    "small": (4, 256, 4, 256, 16, 8192),
    "medium": (6, 384, 6, 256, 16, 8192),
}


class PlainBlock(nn.Module):
    """A block as tutorials write it: scaled_dot_product_attention, F.gelu, nn.Dropout."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.p = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        p = self.p if self.training else 0.0
        z = F.scaled_dot_product_attention(split[0], split[1], split[2], is_causal=True, dropout_p=p)
        x = x + self.drop(self.mix(z.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class Plain(nn.Module):
    """An eager GPT-2 with full scores and F.cross_entropy."""

    def __init__(self, layers: int, width: int, heads: int, window: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(window, width)
        self.blocks = nn.ModuleList(PlainBlock(width, heads, dropout) for _ in range(layers))
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(lambda m: nn.init.normal_(m.weight, std=0.02) if isinstance(m, nn.Linear | nn.Embedding) else None)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        x = self.drop(self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1])))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def contestants(row: str, dropout: float, compiled: bool) -> tuple[dict[str, Callable[[], None]], float]:
    """A training step of each model, and the FLOPs of one step."""
    import transformers

    layers, width, heads, window, batch, vocabulary = ROWS[row]
    torch.manual_seed(0)
    tokens = torch.randint(vocabulary, (batch, window + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    ours = GPT2(
        GPTConfig(vocabulary=vocabulary, width=width, heads=heads, layers=layers, window=window, dropout=dropout)
    )

    def our_loss(model: nn.Module = ours) -> Tensor:
        return ours.total_nll(model(inputs).hidden.flatten(0, 1), targets.flatten()) / targets.numel()

    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=width, n_head=heads, n_layer=layers, n_positions=window,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, use_cache=False,
    )  # fmt: skip
    theirs = {fused: transformers.GPT2LMHeadModel(config).train() for fused in (False, True)}
    plain = Plain(layers, width, heads, window, vocabulary, dropout).train()
    ours.train()
    losses: dict[str, tuple[nn.Module, Callable[[], Tensor]]] = {
        "lmlab": (ours, our_loss),
        "transformers": (theirs[False], lambda: theirs[False](inputs, labels=inputs).loss),
        "transformers, fused AdamW": (theirs[True], lambda: theirs[True](inputs, labels=inputs).loss),
        "plain eager, fused AdamW": (plain, lambda: plain(inputs, targets)),
    }
    if compiled:
        faster = torch.compile(ours)
        losses["lmlab --compile"] = (ours, lambda: our_loss(faster))
    steps = {
        name: stepper(model, loss, fused=name != "transformers", decay=DECAY) for name, (model, loss) in losses.items()
    }
    steps |= half_steps(losses, decay=DECAY)
    return steps, 3 * ours.pretraining_flops(window) * targets.numel()


def compare(row: str, dropout: float, *, compiled: bool, repeats: int) -> None:
    steps, flops = contestants(row, dropout, compiled)
    dtypes = (torch.float32, torch.bfloat16)
    limits = {dtype: matrix_limit(dtype) for dtype in dtypes}
    times = take_turns(steps, repeats=repeats, calls=20 if row == "char" else 1)
    limits = {dtype: max(limits[dtype], matrix_limit(dtype)) for dtype in dtypes}
    layers, width, heads, window, batch, vocabulary = ROWS[row]
    shape = f"L{layers} d{width} h{heads} T{window} B{batch} V{vocabulary}"
    fp32, bf16 = (f"{limit / 1e9:.0f}" for limit in limits.values())
    print(f"\n{row} ({shape}), dropout {dropout}; matrix limit {fp32} GFLOP/s, in bf16 {bf16}")
    print_rows(
        times,
        work=batch * window,
        unit="tokens",
        peer="transformers",
        note=lambda name, seconds: f"{flops / seconds / limits[dtypes[name.endswith(BF16)]]:4.0%} of the limit",
    )


def main() -> None:
    parser = make_parser(__doc__, repeats=7, rows=ROWS)
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.1])
    parser.add_argument("--compile", action="store_true", help="add torch.compile of lmlab's model")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    choose_clock(arguments)
    keep_buffers()
    print(processor())
    for row, dropout in itertools.product(arguments.rows, arguments.dropout):
        compare(row, dropout, compiled=arguments.compile, repeats=arguments.repeats)


if __name__ == "__main__":
    main()
