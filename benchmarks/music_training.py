"""Music Transformer: training step and generation against transformers' GPT-2 of the same shape, in one process.

    python benchmarks/music_training.py [--rows short long] [--repeats 7] [--threads 2]

transformers has no Music Transformer; its GPT-2 of the same layers, width, heads, feed-forward width, window and
vocabulary has the same matrix products but those with the distances, so the ratio is a lower bound of what skewing
costs. lmlab's own GPT-2 takes part for the same reason. All train on the same tokens without dropout, with tied
embeddings, gradient clipping at 1 and the fused AdamW. Generation is greedy with a cache, one piece. Printed: tokens/s
(median) and the ratio to transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.decoding.generate import continue_tokens
from lmlab.decoding.sampling import Sampling
from lmlab.models import create
from lmlab.training.devices import keep_buffers
from timing import make_parser, print_rows, stepper, take_turns

VOCABULARY, DECAY = 389, 0.01
ROWS = {  # layers, width, heads, window, batch, generated tokens
    "short": (4, 128, 4, 256, 16, 200),
    "long": (4, 256, 4, 1024, 4, 500),
}


def make(row: str) -> dict[str, Any]:
    """The models of a row."""
    import transformers

    layers, width, heads, window, _, _ = ROWS[row]
    torch.manual_seed(0)
    shape = {"vocabulary": VOCABULARY, "width": width, "heads": heads, "layers": layers, "window": window}
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=width, n_head=heads, n_layer=layers, n_positions=window,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=None,
    )  # fmt: skip
    relative = {"inner": 4 * width, "distances": window, "dropout": 0.0}
    return {
        "music-transformer": create("music-transformer", {**shape, **relative}),
        "lmlab gpt2": create("gpt2", {**shape, "dropout": 0.0}),
        "transformers gpt2": transformers.GPT2LMHeadModel(config),
    }


def training(models: dict[str, Any], row: str) -> dict[str, Callable[[], None]]:
    """A training step of each model."""
    _, _, _, window, batch, _ = ROWS[row]
    tokens = torch.randint(VOCABULARY, (batch, window + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss_of(name: str, model: Any) -> Callable[[], Tensor]:
        if name.startswith("transformers"):
            return lambda: model(inputs, labels=inputs, use_cache=False).loss
        return lambda: model.total_nll(model(inputs).hidden.flatten(0, 1), targets.flatten()) / targets.numel()

    return {
        name: stepper(model.train(), loss_of(name, model), fused=True, decay=DECAY) for name, model in models.items()
    }


def generation(models: dict[str, Any], row: str) -> dict[str, Callable[[], object]]:
    """The greedy continuation of one token by each model."""
    count = ROWS[row][5]
    greedy = Sampling(temperature=0.0, logit_bias={0: float("-inf")})

    def write(name: str, model: nn.Module) -> Callable[[], object]:
        model.eval()
        if name.startswith("transformers"):
            own: Any = model
            start = torch.zeros(1, 1, dtype=torch.long)
            return lambda: own.generate(start, max_new_tokens=count, min_new_tokens=count, do_sample=False)
        reader: Any = model
        return lambda: continue_tokens(reader, [], boundary=0, tokens=count, sampling=greedy)

    return {name: write(name, model) for name, model in models.items()}


def main() -> None:
    parser = make_parser(__doc__, repeats=7, rows=ROWS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_buffers()
    for row in options.rows:
        models, (layers, width, heads, window, batch, count) = make(row), ROWS[row]
        shape = f"L{layers} d{width} h{heads} T{window}"
        print(f"training step, {shape} B{batch} V{VOCABULARY}")
        times = take_turns(training(models, row), repeats=options.repeats)
        print_rows(times, work=batch * window, unit="tokens", peer="transformers gpt2")
        print(f"generation of {count} tokens, {shape}")
        times = take_turns(generation(models, row), repeats=options.repeats)
        print_rows(times, work=count, unit="tokens", peer="transformers gpt2")


if __name__ == "__main__":
    main()
