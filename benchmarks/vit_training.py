"""ViT's training step: lmlab against `ViTForImageClassification` of `transformers`, in one process, interleaved.

    python benchmarks/vit_training.py [--repeats 7] [--threads 2]

Both train the same shape (pictures of 64 × 64 pixels in patches of 8, L6 d256 h8, batches of 32, 10 classes) on the
same pictures: no dropout, gradient clipping at 1 and AdamW (lmlab with the fused one of PyTorch, transformers with its
default and with the fused one). lmlab computes the last layer, but for its keys and values, for [CLS] only. Before
timing, both are given the same weights and must have the same loss. Printed: pictures/s (median) and the ratio.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.training.devices import keep_buffers
from peers import same_weights
from timing import make_parser, print_rows, stepper, take_turns

SIDE, PATCH, LAYERS, WIDTH, HEADS, BATCH, CLASSES = 64, 8, 6, 256, 8, 32, 10
DECAY = 0.05


def contestants() -> dict[str, Callable[[], None]]:
    """A training step of each."""
    import transformers

    torch.manual_seed(0)
    pixels, labels = torch.randn(BATCH, 3, SIDE, SIDE), torch.randint(0, CLASSES, (BATCH,))
    config = transformers.ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * WIDTH,
        image_size=SIDE, patch_size=PATCH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        num_labels=CLASSES, layer_norm_eps=1e-6,
    )  # fmt: skip
    reference = transformers.ViTForImageClassification(config).train()
    body = same_weights(reference).train()
    head = copy.deepcopy(reference.classifier)
    ours = nn.ModuleList([body, head])
    first = torch.zeros(BATCH, 1, dtype=torch.long)

    def our_loss() -> Tensor:
        return F.cross_entropy(head(body.vectors(pixels=pixels, at=first)[:, 0]), labels)

    def their_loss(model: nn.Module) -> Tensor:
        found: Tensor = model(pixel_values=pixels, labels=labels).loss
        return found

    torch.testing.assert_close(our_loss(), their_loss(reference), atol=1e-4, rtol=1e-4)
    theirs = {name: copy.deepcopy(reference) for name in ("default", "fused")}
    return {
        "lmlab": stepper(ours, our_loss, fused=True, decay=DECAY),
        **{
            f"transformers, {name} AdamW": stepper(
                model, lambda model=model: their_loss(model), fused=name == "fused", decay=DECAY
            )
            for name, model in theirs.items()
        },
    }


def main() -> None:
    options = make_parser(__doc__, repeats=7).parse_args()
    torch.set_num_threads(options.threads)
    keep_buffers()
    times = take_turns(contestants(), repeats=options.repeats, calls=3)
    print(f"pictures of {SIDE} × {SIDE}, patches of {PATCH}, L{LAYERS} d{WIDTH} h{HEADS}, batch {BATCH}:")
    print_rows(times, work=BATCH, unit="pictures", peer="transformers, default AdamW")


if __name__ == "__main__":
    main()
