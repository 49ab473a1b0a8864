"""Greedy generation with a key-value cache: lmlab against `transformers` and CTranslate2, in one process, interleaved.

    python benchmarks/generation.py [--rows small medium 124M] [--batch 1 16] [--repeats 5] [--tokens 128]

Prompts of 32 random tokens are continued by 128 (`--tokens`) with random weights: in float32, by lmlab in bf16 and
int8, too, and by CTranslate2 in int8 where it is installed. lmlab goes through its one decoding loop; transformers
through `generate` with its default dynamic cache, and through a bare loop over its forward pass, which leaves out the
cost of `generate` itself. The texts of float32 must be the same token by token. Printed: new tokens per second (median)
over all texts, prompt included in the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.decoding.generate import generate
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.models.model import Model
from peers import as_names, ctranslate2_models, rounded, same_tokens, same_weights
from timing import make_parser, print_rows, take_turns

ROWS = {  # layers, width, heads, window, vocabulary
    "small": (4, 256, 4, 256, 8192),
    "medium": (6, 384, 6, 256, 8192),
    "124M": (12, 768, 12, 1024, 50257),
}
PROMPT = 32


def models(row: str) -> tuple[Model, nn.Module]:
    """lmlab's model and transformers' with the same weights."""
    import transformers

    layers, width, heads, window, vocabulary = ROWS[row]
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=width, n_head=heads, n_layer=layers, n_positions=window,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config).eval()
    return same_weights(theirs), theirs


def bare_loop(model: nn.Module, prompt: Tensor, tokens: int) -> Tensor:
    """transformers' forward pass with its cache, without `generate`."""
    with torch.inference_mode():
        out = model(prompt, use_cache=True)
        chosen = [out.logits[:, -1].argmax(-1)]
        for _ in range(tokens - 1):
            out = model(chosen[-1][:, None], past_key_values=out.past_key_values, use_cache=True)
            chosen.append(out.logits[:, -1].argmax(-1))
    return torch.stack(chosen, 1)


def write(model: Model, prompt: Tensor, tokens: int) -> Tensor:
    """Through lmlab's decoding loop."""
    steps = generate(model, prompt, tokens=tokens, pick=Sampler(Sampling(temperature=0)))
    return torch.tensor([[drawn.token for drawn in step] for step in steps]).T


def write_by_engine(engine: Any, prompt: Tensor, tokens: int) -> Tensor:
    """By CTranslate2, without its token for the end."""
    found = engine.generate_batch(
        as_names(prompt), max_length=tokens, min_length=tokens, beam_size=1, include_prompt_in_result=False
    )
    return torch.tensor([each.sequences_ids[0] for each in found])


def contestants(row: str, batch: int, tokens: int, *, threads: int) -> dict[str, Callable[[], Tensor]]:
    ours, theirs = models(row)
    prompt = torch.randint(ROWS[row][4], (batch, PROMPT))
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False}
    mask = torch.ones_like(prompt)
    engines = ctranslate2_models(theirs, "GPT2Loader", threads=threads)
    return {
        "lmlab": partial(write, ours, prompt, tokens),
        **{f"lmlab {each}": partial(write, rounded(ours, each), prompt, tokens) for each in ("bf16", "int8")},
        **{name: partial(write_by_engine, engine, prompt, tokens) for name, engine in engines.items()},
        "transformers generate": lambda: theirs.generate(prompt, attention_mask=mask, **options)[:, PROMPT:],
        "transformers bare loop": lambda: bare_loop(theirs, prompt, tokens),
    }


def compare(row: str, batch: int, tokens: int, *, repeats: int, threads: int) -> None:
    runs = contestants(row, batch, tokens, threads=threads)
    same = same_tokens(runs)
    times = take_turns(runs, repeats=repeats)
    print(f"\n{row}, batch {batch}, {PROMPT} + {tokens} tokens")
    print_rows(
        times,
        work=batch * tokens,
        unit="tokens",
        peer="transformers generate",
        note=lambda name, _: f"{same[name]:.1%} the same tokens",
    )


def main() -> None:
    parser = make_parser(__doc__, repeats=5, rows=ROWS)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of each text")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for row, batch in itertools.product(arguments.rows, arguments.batch):
        compare(row, batch, arguments.tokens, repeats=arguments.repeats, threads=arguments.threads)


if __name__ == "__main__":
    main()
