"""BERT's masked training step: lmlab against `BertForMaskedLM` of `transformers`, in one process, interleaved.

    python benchmarks/bert_training.py [--dropout 0 0.1] [--repeats 7] [--threads 2]

Both train the same shape (L4 d256 h4 T256 B16, vocabulary 8192) on the same tokens with 15% blanks: exact GELU, one
dropout everywhere, tied embeddings, no pooler and no sentence pairs, gradient clipping at 1 and AdamW (lmlab with
the fused one of PyTorch, transformers with its default and with the fused one). glibc keeps freed buffers, for both
alike, as lmlab does in training. lmlab computes scores, and the last layer but for its keys and values, at the blanks
only; the last row has the head of transformers called at the blanks only, too.
Before timing, both are given the same weights and must have the same loss. Printed: tokens/s (median) and the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.models.bert import Bert, BertConfig
from lmlab.training.allocator import keep_buffers

LAYERS, WIDTH, HEADS, WINDOW, BATCH, VOCABULARY = 4, 256, 4, 256, 16, 8192
BLANKS = round(0.15 * WINDOW)
MASK = 4


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


def copy_weights(model: Bert, reference: nn.Module) -> None:
    """The weights of ours into theirs."""
    tables = {"embedding": "word_embeddings", "positions": "position_embeddings", "segments": "token_type_embeddings"}
    names = {f"{ours}.weight": f"bert.embeddings.{theirs}.weight" for ours, theirs in tables.items()}
    names["output.softmax.bias"] = "cls.predictions.bias"
    modules = {
        "embedding_norm": "bert.embeddings.LayerNorm",
        "output.transform": "cls.predictions.transform.dense",
        "output.norm": "cls.predictions.transform.LayerNorm",
    }
    for i in range(LAYERS):
        layer = f"bert.encoder.layer.{i}"
        modules |= {
            f"blocks.{i}.attention.projection": f"{layer}.attention.output.dense",
            f"blocks.{i}.attention_norm": f"{layer}.attention.output.LayerNorm",
            f"blocks.{i}.feed_forward.expand": f"{layer}.intermediate.dense",
            f"blocks.{i}.feed_forward.contract": f"{layer}.output.dense",
            f"blocks.{i}.feed_forward_norm": f"{layer}.output.LayerNorm",
        }
        for kind in ("weight", "bias"):
            parts = model.get_parameter(f"blocks.{i}.attention.query_key_value.{kind}").chunk(3)
            for part, name in zip(parts, ("query", "key", "value"), strict=True):
                reference.get_parameter(f"{layer}.attention.self.{name}.{kind}").data.copy_(part)
    names |= {f"{ours}.{kind}": f"{their}.{kind}" for ours, their in modules.items() for kind in ("weight", "bias")}
    for ours, theirs in names.items():
        reference.get_parameter(theirs).data.copy_(model.get_parameter(ours))


def contestants(dropout: float) -> dict[str, Callable[[], float]]:
    """A training step of each."""
    import transformers

    torch.manual_seed(0)
    text = torch.randint(5, VOCABULARY, (BATCH, WINDOW))
    places = torch.rand(BATCH, WINDOW).argsort(1)[:, :BLANKS]
    targets = text.gather(1, places)
    inputs = text.scatter(1, places, MASK)
    labels = torch.full_like(text, -100).scatter(1, places, targets)
    at = (torch.arange(BATCH)[:, None] * WINDOW + places).flatten()

    shape = {"vocabulary": VOCABULARY, "width": WIDTH, "heads": HEADS, "layers": LAYERS, "window": WINDOW}
    ours = Bert(BertConfig.model_validate({**shape, "dropout": dropout, "pooler": False, "pairs": False}))
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=LAYERS,
        intermediate_size=4 * WIDTH, max_position_embeddings=WINDOW,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    theirs = {name: transformers.BertForMaskedLM(config) for name in ("default", "fused", "blanks")}
    for reference in theirs.values():
        copy_weights(ours, reference)

    def our_loss() -> Tensor:
        hidden = ours(inputs, at=places).hidden.flatten(0, 1)
        return ours.total_nll(hidden, targets.flatten()) / targets.numel()

    def their_loss_at_blanks() -> Tensor:
        hidden = theirs["blanks"].bert(inputs).last_hidden_state.flatten(0, 1)[at]
        return F.cross_entropy(theirs["blanks"].cls(hidden), targets.flatten())

    losses = {
        "lmlab": our_loss,
        "transformers": lambda: theirs["default"](inputs, labels=labels).loss,
        "transformers, fused AdamW": lambda: theirs["fused"](inputs, labels=labels).loss,
        "transformers, fused, head at blanks only": their_loss_at_blanks,
    }
    models: dict[str, nn.Module] = dict(zip(losses, (ours, *theirs.values()), strict=True))
    with torch.no_grad():
        values = [loss().item() for name, loss in losses.items() if models[name].eval()]
    if max(values) - min(values) > 1e-4:
        raise SystemExit(f"the losses differ: {values}")
    return {name: stepper(models[name].train(), loss, fused=name != "transformers") for name, loss in losses.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.1])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_buffers()
    for dropout in arguments.dropout:
        steps = contestants(dropout)
        times: dict[str, list[float]] = {name: [] for name in steps}
        for step in steps.values():
            step()
        for _ in range(arguments.repeats):
            for name, step in steps.items():
                times[name].append(step())
        print(
            f"\nL{LAYERS} d{WIDTH} h{HEADS} T{WINDOW} B{BATCH} V{VOCABULARY}, {BLANKS} blanks a row, dropout {dropout}"
        )
        peer = statistics.median(times["transformers"])
        for name, values in times.items():
            seconds = statistics.median(values)
            print(
                f"  {name:42}{BATCH * WINDOW / seconds:10.0f} tokens/s   {peer / seconds:5.2f}x   "
                f"({min(values) * 1e3:.0f}-{max(values) * 1e3:.0f} ms)"
            )


if __name__ == "__main__":
    main()
