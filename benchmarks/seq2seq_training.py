"""Encoder-decoder training step: lmlab against `transformers`, in one process, interleaved.

    python benchmarks/seq2seq_training.py [--rows transformer bart] [--texts full padded] [--dropout 0 0.1]

Both train 3 + 3 layers, width 256, 4 heads, inner 1024, 8,192 shared tokens, on the same 64 pairs: `transformer`
against Marian (post-norm, sinusoidal positions, ReLU) and `bart` against BART (learnt positions, GELU). `full` pairs
have 32 tokens on each side, `padded` ones 16 to 32. One dropout on embeddings and sublayers, none on attention weights,
gradient clipping at 1 and AdamW (lmlab with PyTorch's fused one, transformers with its default and with the fused one).
glibc keeps freed buffers, for all alike, as lmlab's training does. Printed: target tokens/s (median), the ratio to
transformers, and the share of the machine's matrix limit, which is measured in the same run by a product of two
1024 x 1024 matrices; FLOPs are counted as 3 forward passes over the padded texts. With the same weights, and without
dropout, the first losses must agree.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lmlab.models.bart import Bart, BartConfig
from lmlab.models.transformer import Transformer, TransformerConfig
from lmlab.training.allocator import keep_buffers

LAYERS, WIDTH, HEADS, INNER, VOCABULARY = 3, 256, 4, 1024, 8192
BATCH, LENGTH = 64, 32
IGNORE = -100
SAME = {
    "attention.projection": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.projection": "encoder_attn.out_proj",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward.expand": "fc1",
    "feed_forward.contract": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
JOINED = {
    "attention.query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "cross_attention.key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
}


def matrix_limit() -> float:
    """FLOP/s of a product of two 1024 x 1024 matrices, the best of several."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - begin)
    return 2 * 1024**3 / best


def our_model(row: str, dropout: float) -> Transformer:
    shape = {"vocabulary": VOCABULARY, "width": WIDTH, "heads": HEADS, "layers": LAYERS, "inner": INNER}
    torch.manual_seed(0)
    if row == "bart":
        return Bart(BartConfig.model_validate({**shape, "window": 64, "dropout": dropout}))
    return Transformer(TransformerConfig.model_validate({**shape, "waves": "halves", "dropout": dropout}))


def their_model(row: str, dropout: float, ours: Transformer) -> nn.Module:
    """The peer, with the same weights."""
    import transformers

    shape = {
        "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
        "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER,
        "decoder_ffn_dim": INNER, "max_position_embeddings": 64, "dropout": dropout, "attention_dropout": 0.0,
        "activation_dropout": 0.0, "use_cache": False, "pad_token_id": 0,
    }  # fmt: skip
    if row == "bart":
        theirs = transformers.BartForConditionalGeneration(
            transformers.BartConfig(**shape, activation_function="gelu", scale_embedding=False)
        )
    else:
        theirs = transformers.MarianMTModel(
            transformers.MarianConfig(**shape, activation_function="relu", scale_embedding=True)
        )
    copy_weights(ours, theirs)
    return theirs


@torch.no_grad()
def copy_weights(ours: Transformer, theirs: nn.Module) -> None:
    body = theirs.model
    body.shared.weight.copy_(ours.embedding.weight)
    for stack, other in ((ours.encoder, body.encoder), (ours.decoder, body.decoder)):
        if isinstance(ours, Bart):
            other.embed_positions.weight[2:].copy_(stack.positions.weight)
        for block, layer in zip(stack.blocks, other.layers, strict=True):
            modules = dict(block.named_modules())
            for name in SAME.keys() & modules.keys():
                layer.get_submodule(SAME[name]).load_state_dict(modules[name].state_dict())
            for name in JOINED.keys() & modules.keys():
                for kind in ("weight", "bias"):
                    pieces = getattr(modules[name], kind).chunk(len(JOINED[name]))
                    for part, piece in zip(JOINED[name], pieces, strict=True):
                        layer.get_parameter(f"{part}.{kind}").copy_(piece)


def stepper(model: nn.Module, loss: Callable[[], Tensor], *, fused: bool) -> Callable[[], float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=fused or None)

    def step() -> float:
        begin = time.perf_counter()
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - begin

    return step


def contestants(row: str, texts: str, dropout: float) -> tuple[dict[str, Callable[[], float]], float, int]:
    """A training step of each model, the FLOPs of one step, and its target tokens."""
    ours = our_model(row, dropout)
    theirs = {fused: their_model(row, dropout, ours) for fused in (False, True)}
    torch.manual_seed(1)
    source, text = torch.randint(1, VOCABULARY, (BATCH, LENGTH)), torch.randint(1, VOCABULARY, (BATCH, LENGTH + 1))
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
        "lmlab": stepper(ours, our_loss, fused=True),
        "transformers": stepper(theirs[False], lambda: their_loss(theirs[False]), fused=False),
        "transformers, fused AdamW": stepper(theirs[True], lambda: their_loss(theirs[True]), fused=True),
    }
    return steps, 3 * BATCH * ours.flops_of(LENGTH, LENGTH), count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=["transformer", "bart"], choices=["transformer", "bart"])
    parser.add_argument("--texts", nargs="+", default=["full", "padded"], choices=["full", "padded"])
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.1])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_buffers()
    for row in arguments.rows:
        for texts in arguments.texts:
            for dropout in arguments.dropout:
                steps, flops, count = contestants(row, texts, dropout)
                times: dict[str, list[float]] = {name: [] for name in steps}
                for step in steps.values():
                    step()
                limit = matrix_limit()
                for _ in range(arguments.repeats):
                    for name, step in steps.items():
                        times[name].append(step())
                limit = max(limit, matrix_limit())
                shape = f"{LAYERS}+{LAYERS} d{WIDTH} h{HEADS} V{VOCABULARY} B{BATCH}"
                print(
                    f"\n{row} ({shape}), {texts}, dropout {dropout}; "
                    f"same first loss; matrix limit {limit / 1e9:.0f} GFLOP/s"
                )
                peer = statistics.median(times["transformers"])
                for name, values in times.items():
                    seconds = statistics.median(values)
                    print(
                        f"  {name:28}{count / seconds:10.0f} tokens/s   {peer / seconds:5.2f}x   "
                        f"{flops / seconds / limit:4.0%} of the limit   "
                        f"({min(values) * 1e3:.1f}-{max(values) * 1e3:.1f} ms)"
                    )


if __name__ == "__main__":
    main()
