"""ViT on MNIST in three sizes, against a small convolutional network and two linear baselines, at equal FLOPs.

    python benchmarks/vit_mnist.py [--budget 1.2e13] [--only tiny cnn …] [--runs FOLDER]

All systems see the same 53,334 training pictures (6,666 of the 60,000 choose the checkpoint) in batches of 64, shifted
by up to one pixel, and are scored once on the 10,000 test pictures. A ViT is trained as a user would train it:

    lmlab train vit mnist/ -o RUN --size tiny --set model.patch=7 --set objective.crop=1 --budget 1.2e13flops

The convolutional network has two convolutions of 3 × 3 with 32 and 64 channels, each followed by ReLU and pooling, and
a hidden layer of 128: AdamW, cosine schedule, the best of its validations. Its FLOPs are counted by torch. Runs are
kept in --runs; a finished run is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from lmlab import load
from lmlab.data.corpora.pictures.images import ImagesConfig, Pictures, open_pictures
from lmlab.data.loaders.augmentation import Augmentation, augment
from lmlab.metrics.statistics import wilson
from lmlab.training.devices import keep_buffers
from lmlab.transfer.evaluation import evaluate_file
from study import complete, need

PATCH, BATCH, CROP, VALIDATIONS = 7, 64, 1, 10
SIZES: dict[str, dict[str, Any]] = {
    "width 32": {"width": 32, "heads": 4, "layers": 4},
    "tiny": {"size": "tiny"},
    "small": {"size": "small"},
}


def train_vit(name: str, budget: float, folder: Path, data: Path) -> dict[str, Any]:
    """The test accuracy of a ViT of one size."""
    settings = {
        "data": {"images": str(data)},
        "model": {"kind": "vit", "patch": PATCH, **SIZES[name]},
        "objective": {"crop": CROP},
        "train": {"budget": f"{budget:g}flops", "batch": BATCH, "evaluations": VALIDATIONS, "evaluation_tokens": 3000},
    }
    run = complete(settings, folder / name.replace(" ", "-"))
    found = evaluate_file(load(run).predictor, data, run=run)
    line = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    right = sum(each.value == example.label for each, example in zip(found.predictions, found.examples, strict=True))
    return {
        "right": right,
        "of": len(found.examples),
        "parameters": line["parameters"]["total"],
        "pictures": line["examples"],
        "steps": line["step"],
        "flops": line["flops"],
        "cpu": line["cost"]["cpu_seconds"],
    }


class ConvolutionalNetwork(nn.Sequential):
    """Two convolutions with pooling, and two linear layers."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10),
        )  # fmt: skip


def train_cnn(budget: float, pictures: Pictures, folder: Path) -> dict[str, Any]:
    """The test accuracy of the convolutional network after as many FLOPs."""
    if (path := folder / "cnn.json").is_file():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    torch.manual_seed(0)
    model = ConvolutionalNetwork()
    per_picture = training_flops(model)
    steps = int(budget / (per_picture * BATCH))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    warmup = min(200, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: cosine(step, steps, warmup))
    pixels, labels = arrays(pictures, "train")
    best, kept, cpu = -1, model.state_dict(), time.process_time()
    for step in range(steps):
        generator = np.random.default_rng([0, step])
        rows = epoch_order(len(labels), step)
        shifted = augment(pixels[rows], Augmentation(crop=CROP), generator)
        loss = F.cross_entropy(model(pictures.processor.normalise(shifted)), labels[rows])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) * VALIDATIONS // steps > step * VALIDATIONS // steps:
            right, of = score(model, pictures, "valid", limit=3000)
            print(f"cnn: step {step + 1} of {steps}, loss {loss:.4f}, valid {right / of:.4f}", flush=True)
            if right > best:
                best, kept = right, {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(kept)
    right, of = score(model, pictures, "test")
    record = {
        "right": right,
        "of": of,
        "parameters": sum(each.numel() for each in model.parameters()),
        "pictures": steps * BATCH,
        "steps": steps,
        "flops": steps * BATCH * per_picture,
        "cpu": time.process_time() - cpu,
    }
    path.write_text(json.dumps(record))
    return record


def training_flops(model: nn.Module) -> float:
    """FLOPs of the forward and backward pass of one picture."""
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 1, 28, 28)).sum().backward()
    model.zero_grad(set_to_none=True)
    return float(counter.get_total_flops())


def cosine(step: int, steps: int, warmup: int) -> float:
    """The fraction of the peak rate, as in lmlab: a linear rise, then a cosine down to a tenth."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + float(np.cos(np.pi * (step - warmup) / max(1, steps - warmup))))


def epoch_order(rows: int, step: int) -> np.ndarray:
    """The rows of a batch: every epoch visits each once, in a new order."""
    epoch, position = divmod(step, rows // BATCH)
    return np.random.default_rng([1, epoch]).permutation(rows)[position * BATCH : (position + 1) * BATCH]


def arrays(pictures: Pictures, split: str) -> tuple[np.ndarray, Tensor]:
    """Pixels [N, H, W, C] and the numbers of the classes [N]."""
    part = pictures.splits[split]
    return part.pixels[part.pictures], torch.tensor([int(str(label)) for label in part.labels])


def score(
    model: Callable[[Tensor], Tensor], pictures: Pictures, split: str, *, limit: int | None = None
) -> tuple[int, int]:
    """The number of pictures whose class is right, and of all."""
    pixels, labels = (each[:limit] for each in arrays(pictures, split))
    if isinstance(model, nn.Module):
        model.eval()
    with torch.inference_mode():
        parts = [model(pictures.processor.normalise(pixels[k : k + 500])).argmax(1) for k in range(0, len(pixels), 500)]
    if isinstance(model, nn.Module):
        model.train()
    return int((torch.cat(parts) == labels).sum()), len(labels)


def score_baselines(pictures: Pictures) -> dict[str, tuple[int, int]]:
    """The most frequent class, and the class whose mean picture is nearest."""
    pixels, labels = arrays(pictures, "train")
    flat = torch.from_numpy(pixels.reshape(len(pixels), -1)).float() / 255
    means = torch.stack([flat[labels == number].mean(0) for number in range(10)])
    common = int(labels.bincount().argmax())
    test, truth = arrays(pictures, "test")
    nearest = torch.cdist(torch.from_numpy(test.reshape(len(test), -1)).float() / 255, means).argmin(1)
    return {
        "majority": (int((truth == common).sum()), len(truth)),
        "nearest mean": (int((nearest == truth).sum()), len(truth)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=1.2e13, help="FLOPs of training for each system")
    parser.add_argument("--only", nargs="*", default=["tiny", "cnn", "width 32", "small"], help="systems to train")
    parser.add_argument("--runs", type=Path, default=Path("runs/vit-mnist"), help="folder of the runs")
    options = parser.parse_args()
    need("mnist")
    keep_buffers()
    data = Path(os.environ["LMLAB_DATA"]) / "mnist"
    options.runs.mkdir(parents=True, exist_ok=True)
    config = ImagesConfig(images=[str(data)])
    pictures = open_pictures(config, config.images, given=None, progress=None)
    rows = {}
    for name in options.only:
        rows[name] = (
            train_cnn(options.budget, pictures, options.runs)
            if name == "cnn"
            else train_vit(name, options.budget, options.runs, data)
        )
        print(name, json.dumps(rows[name]), flush=True)
    print(f"\n{'':14}{'accuracy':>9}  {'95% interval':>16}{'parameters':>12}{'pictures':>12}{'FLOPs':>10}{'CPU s':>8}")
    for name, (right, of) in score_baselines(pictures).items():
        print(f"{name:14}{right / of:9.2%}")
    for name, row in rows.items():
        interval = wilson(row["right"], row["of"])
        between = f"{interval.low:.2%} to {interval.high:.2%}"
        print(
            f"{name:14}{row['right'] / row['of']:9.2%}  {between:>16}{row['parameters']:12,}{row['pictures']:12,}"
            f"{row['flops']:10.2g}{row['cpu']:8.0f}"
        )


if __name__ == "__main__":
    main()
