"""Greedy generation with a key-value cache: lmlab against `transformers`, in one process, interleaved.

    python benchmarks/generation.py [--rows small medium 124M] [--batch 1 16] [--repeats 5]

Prompts of 32 random tokens are continued by 128 with random weights, float32. lmlab goes through its one decoding loop;
transformers through `generate` with its default dynamic cache, and through a bare loop over its forward pass, which
leaves out the cost of `generate` itself. The texts must be the same token by token. Printed: new tokens per second
(median) over all texts, prompt included in the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from lmlab.decoding.generate import generate
from lmlab.decoding.sampling import Sampler, Sampling
from lmlab.models.model import Model
from peers import same_tokens, same_weights
from timing import make_parser, print_rows, take_turns

ROWS = {  # layers, width, heads, window, vocabulary
    "small": (4, 256, 4, 256, 8192),
    "medium": (6, 384, 6, 256, 8192),
    "124M": (12, 768, 12, 1024, 50257),
}
PROMPT, NEW = 32, 128


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
    drawing = {"tokens": NEW, "pick": Sampler(Sampling(temperature=0))}
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    mask = torch.ones_like(prompt)
    return {
        "lmlab": lambda: (
            torch.tensor([[drawn.token for drawn in step] for step in generate(ours, prompt, **drawing)]).T
        ),
        "transformers generate": lambda: theirs.generate(prompt, attention_mask=mask, **options)[:, PROMPT:],
        "transformers bare loop": lambda: bare_loop(theirs, prompt),
    }


def compare(row: str, batch: int, *, repeats: int) -> None:
    runs = contestants(row, batch)
    same = same_tokens(runs)
    times = take_turns(runs, repeats=repeats)
    print(f"\n{row}, batch {batch}, {PROMPT} + {NEW} tokens")
    print_rows(
        times,
        work=batch * NEW,
        unit="tokens",
        peer="transformers generate",
        note=lambda name, _: f"{same[name]:.1%} the same tokens",
    )


def main() -> None:
    parser = make_parser(__doc__, repeats=5, rows=ROWS)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 16])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for row, batch in itertools.product(arguments.rows, arguments.batch):
        compare(row, batch, repeats=arguments.repeats)


if __name__ == "__main__":
    main()
