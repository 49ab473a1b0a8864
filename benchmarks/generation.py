"""Greedy generation with a key-value cache: lmlab against `transformers`, in one process, interleaved.

    python benchmarks/generation.py [--rows small medium 124M] [--batch 1 16] [--repeats 5]

Prompts of 32 random tokens are continued by 128 with random weights, float32. lmlab goes through its one decoding loop;
transformers through `generate` with its default dynamic cache, and through a bare loop over its forward pass, which
leaves out the cost of `generate` itself. The texts must be the same token by token. Printed: new tokens per second
(median) over all texts, prompt included in the time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lmlab.decoding.generate import generate
from lmlab.decoding.sampling import Greedy
from lmlab.models.gpt import GPTConfig
from lmlab.models.gpt2 import GPT2

ROWS = {  # layers, width, heads, window, vocabulary
    "small": (4, 256, 4, 256, 8192),
    "medium": (6, 384, 6, 256, 8192),
    "124M": (12, 768, 12, 1024, 50257),
}
PROMPT, NEW = 32, 128


def models(row: str) -> tuple[GPT2, nn.Module]:
    """lmlab's model and transformers' with the same weights."""
    import transformers

    layers, width, heads, window, vocabulary = ROWS[row]
    torch.manual_seed(0)
    ours = GPT2(
        GPTConfig(vocabulary=vocabulary, width=width, heads=heads, layers=layers, window=window, dropout=0.0)
    ).eval()
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=width, n_head=heads, n_layer=layers, n_positions=window,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config).eval()
    names = {
        "attention_norm": "ln_1",
        "attention.query_key_value": "attn.c_attn",
        "attention.projection": "attn.c_proj",
    }
    names |= {"feed_forward_norm": "ln_2", "feed_forward.expand": "mlp.c_fc", "feed_forward.contract": "mlp.c_proj"}
    body = theirs.transformer
    with torch.no_grad():
        body.wte.weight.copy_(ours.embedding.weight)
        body.wpe.weight.copy_(ours.positions.weight)
        for block, peer in zip(ours.blocks, body.h, strict=True):
            for name, other in names.items():
                for kind in ("weight", "bias"):
                    value = block.get_parameter(f"{name}.{kind}")
                    peer.get_parameter(f"{other}.{kind}").copy_(value.t() if value.ndim == 2 else value)
    return ours, theirs


def bare_loop(model: nn.Module, prompt: Tensor) -> Tensor:
    """transformers' forward pass with its cache, without `generate`."""
    with torch.inference_mode():
        out = model(prompt, use_cache=True)
        chosen = [out.logits[:, -1].argmax(-1)]
        for _ in range(NEW - 1):
            out = model(chosen[-1][:, None], past_key_values=out.past_key_values, use_cache=True)
            chosen.append(out.logits[:, -1].argmax(-1))
    return torch.stack(chosen, 1)


def contestants(row: str, batch: int) -> dict[str, Callable[[], Tensor]]:
    ours, theirs = models(row)
    prompt = torch.randint(ROWS[row][4], (batch, PROMPT))
    greedy = Greedy()
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    mask = torch.ones_like(prompt)
    return {
        "lmlab": lambda: torch.stack(list(generate(ours, prompt, tokens=NEW, pick=greedy)), 1),
        "transformers generate": lambda: theirs.generate(prompt, attention_mask=mask, **options)[:, PROMPT:],
        "transformers bare loop": lambda: bare_loop(theirs, prompt),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for row in arguments.rows:
        for batch in arguments.batch:
            runs = contestants(row, batch)
            texts = {name: run() for name, run in runs.items()}
            same = {name: (text == texts["lmlab"]).float().mean().item() for name, text in texts.items()}
            times: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(arguments.repeats):
                for name, run in runs.items():
                    begin = time.perf_counter()
                    run()
                    times[name].append(time.perf_counter() - begin)
            print(f"\n{row}, batch {batch}, {PROMPT} + {NEW} tokens")
            peer = statistics.median(times["transformers generate"])
            for name, values in times.items():
                seconds = statistics.median(values)
                print(
                    f"  {name:26}{batch * NEW / seconds:9.1f} tokens/s   {peer / seconds:5.2f}x   "
                    f"{same[name]:.1%} the same tokens   ({min(values):.2f}-{max(values):.2f} s)"
                )


if __name__ == "__main__":
    main()
