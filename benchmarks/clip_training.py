"""CLIP's training step: lmlab against `CLIPModel` of `transformers`, in one process, interleaved.

    python benchmarks/clip_training.py [--repeats 7] [--threads 2] [--batch 64]

Both train the same shape on the same pictures and texts: 64 × 64 pixels in patches of 8, 4 layers of width 128 on each
side, texts of 8 to 16 tokens that are padded to 16, vocabulary 4096, x σ(1.702 x) as GELU, gradient clipping at 1 and
AdamW (lmlab with the fused one of PyTorch, transformers with its default and with the fused one). lmlab computes the
last block at one position alone, and no padding. Before timing, both are given the same weights and must have the same
loss. Printed: pairs/s (median) and the ratio.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lmlab.training.devices import keep_buffers
from peers import same_weights, training_steps
from timing import make_parser, print_rows, take_turns

LAYERS, WIDTH, HEADS, SIDE, PATCH, WINDOW, VOCABULARY, SPACE = 4, 128, 4, 64, 8, 16, 4096, 128
DECAY = 0.1


def contestants(batch: int) -> dict[str, Callable[[], None]]:
    """A training step of each."""
    import transformers

    torch.manual_seed(0)
    pixels = torch.randn(batch, 3, SIDE, SIDE)
    lengths = torch.randint(WINDOW // 2, WINDOW + 1, (batch,))
    tokens = torch.randint(0, VOCABULARY - 2, (batch, WINDOW))
    mask = torch.arange(WINDOW) < lengths[:, None]
    tokens = tokens.masked_fill(torch.arange(WINDOW) >= lengths[:, None] - 1, VOCABULARY - 1)  # the end, and padding

    each = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "hidden_size": WIDTH}
    each |= {"intermediate_size": 4 * WIDTH}
    text = {**each, "vocab_size": VOCABULARY, "max_position_embeddings": WINDOW, "eos_token_id": VOCABULARY - 1}
    text |= {"bos_token_id": VOCABULARY - 2, "pad_token_id": VOCABULARY - 1}
    vision = {**each, "image_size": SIDE, "patch_size": PATCH}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=SPACE)
    reference = transformers.CLIPModel(config)
    ours: Any = same_weights(reference)
    theirs = {name: copy.deepcopy(reference) for name in ("default", "fused")}
    own = torch.arange(batch)

    def our_loss() -> Tensor:
        scores = ours.scale() * ours.embed_pictures(pixels) @ ours.embed_texts(tokens, lengths).T
        return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2

    def their_loss(name: str) -> Tensor:
        found = theirs[name](input_ids=tokens, attention_mask=mask.long(), pixel_values=pixels, return_loss=True)
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
    parser.add_argument("--batch", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_buffers()
    times = take_turns(contestants(arguments.batch), repeats=arguments.repeats)
    print(
        f"L{LAYERS} d{WIDTH} h{HEADS}, {SIDE} × {SIDE} pixels, patches of {PATCH}, B{arguments.batch}; same first loss"
    )
    print_rows(times, work=arguments.batch, unit="pairs", peer="transformers")


if __name__ == "__main__":
    main()
