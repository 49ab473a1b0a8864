"""ViT's training step: lmlab against `ViTForImageClassification` of `transformers`, in one process, interleaved.

    python benchmarks/vit_training.py [--rows tiny small medium] [--repeats 7] [--threads 2]

Both train the same shape on the same pictures of 10 classes: the sizes tiny and small on pictures like those of MNIST
(28 × 28 grey pixels in patches of 4), medium on 64 × 64 pixels in three colours and patches of 8. No dropout, gradient
clipping at 1 and AdamW (lmlab with the fused one of PyTorch, transformers with its default and with the fused one).
lmlab computes the last layer, but for its keys and values, for [CLS] only. Before timing, both are given the same
weights and must have the same loss. Printed: pictures/s (median) and the ratio.
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

CLASSES, DECAY = 10, 0.05
ROWS = {  # layers, width, heads, side, patch, channels, batch
    "tiny": (2, 64, 2, 28, 4, 1, 64),
    "small": (4, 128, 4, 28, 4, 1, 64),
    "medium": (6, 256, 8, 64, 8, 3, 32),
}


def contestants(row: str) -> dict[str, Callable[[], None]]:
    """A training step of each."""
    import transformers

    layers, width, heads, side, patch, channels, batch = ROWS[row]
    torch.manual_seed(0)
    pixels, labels = torch.randn(batch, channels, side, side), torch.randint(0, CLASSES, (batch,))
    config = transformers.ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=side, patch_size=patch, num_channels=channels, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, num_labels=CLASSES, layer_norm_eps=1e-6,
    )  # fmt: skip
    reference = transformers.ViTForImageClassification(config).train()
    body = same_weights(reference).train()
    head = copy.deepcopy(reference.classifier)
    ours = nn.ModuleList([body, head])
    first = torch.zeros(batch, 1, dtype=torch.long)

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
    parser = make_parser(__doc__, repeats=7, rows=ROWS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_buffers()
    for row in options.rows:
        layers, width, heads, side, patch, _, batch = ROWS[row]
        times = take_turns(contestants(row), repeats=options.repeats, calls=3)
        print(f"{row}: pictures of {side} × {side}, patches of {patch}, L{layers} d{width} h{heads}, batch {batch}:")
        print_rows(times, work=batch, unit="pictures", peer="transformers, default AdamW")


if __name__ == "__main__":
    main()
