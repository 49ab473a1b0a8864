"""Pictures are prepared in bounded memory, and reading them is a small part of a training step.

    python benchmarks/picture_reading.py [--pictures 15000 60000] [--side 32] [--steps 200] [--threads 2]

First, folders of PNG files of random pixels are written to a temporary folder and prepared, each number in a process
of its own: printed are the peak of its memory, the pixels that it wrote, and pictures per second. The peak must not
grow with the pixels. Then a ViT (tiny, batches of 64, all augmentations) is trained, and the time in which the batches
are made is compared with the time of the steps.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from timing import make_parser


def write_pictures(folder: Path, count: int, side: int) -> None:
    """Pictures of two classes: random pixels on a coarse grid."""
    from PIL import Image

    numbers = np.random.default_rng(0)
    for number in range(count):
        home = folder / ("a" if number % 2 else "b")
        home.mkdir(parents=True, exist_ok=True)
        coarse = numbers.integers(0, 256, (4, 4, 3)).astype(np.uint8)
        pixels = np.kron(coarse, np.ones((side // 4, side // 4, 1), np.uint8))
        Image.fromarray(pixels).save(home / f"{number}.png")


def prepare(folder: Path, count: int) -> None:
    """Prepare a folder in this process, and print what it took."""
    from lmlab.data.corpora.pictures.images import ImagesConfig, open_pictures

    config = ImagesConfig(images=[str(folder)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    found = open_pictures(config, config.images, given=None, progress=None)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pixels = sum(split.pixels.nbytes for split in found.splits.values())
    print(
        f"{count:8,} pictures: peak {peak / 1024:7.0f} MiB ({(peak - before) / 1024:.0f} more than before), pixels "
        f"{pixels / 2**20:6.0f} MiB, {count / seconds:8,.0f} pictures/s",
        flush=True,
    )


def measure_reading(folder: Path, steps: int) -> None:
    """Print the fraction of a training step in which its batch is made, without prefetching."""
    from lmlab.data.corpora.pictures.images import ImagesConfig, prepare
    from lmlab.models import create
    from lmlab.objectives import complete_settings, create_objective
    from lmlab.training.learner import Learner

    config = ImagesConfig(images=[str(folder)])
    corpus = prepare(config)
    shape = {"image": [corpus.media.height, corpus.media.width], "channels": corpus.media.channels}
    model = create("vit", shape, size="tiny")
    task = {"kind": "picture_classification", "crop": 2, "flip": True, "colour": 0.2}
    objective = create_objective(complete_settings(task, corpus), None, None, corpus.media)
    learner = Learner(model, objective, objective.heads(model))
    optimizer = torch.optim.AdamW(learner.parameters(), lr=1e-3, fused=True)
    loader = objective.loader(corpus.train, batch=64, window=1, seed=0, streams=False)
    reading = training = 0.0
    for step in range(steps):
        begin = time.perf_counter()
        batch = objective.batch(loader.batch(step), np.random.default_rng([0, step]))
        middle = time.perf_counter()
        loss = objective.loss(model, learner.heads, batch).sums["label"] / 64
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= steps // 10:
            reading += middle - begin
            training += time.perf_counter() - middle
    fraction = reading / (reading + training)
    print(f"batches take {fraction:.1%} of the time of a step ({steps} steps of 64 pictures); lmlab makes them ahead")


def main() -> None:
    parser = make_parser(__doc__, repeats=1)
    parser.add_argument("--pictures", type=int, nargs="*", default=[15_000, 60_000])
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--prepare", nargs=2, help="used for the processes of their own")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.prepare:
        prepare(Path(options.prepare[0]), int(options.prepare[1]))
        return
    with tempfile.TemporaryDirectory() as home:
        os.environ["LMLAB_CACHE"] = f"{home}/cache"
        for count in options.pictures:
            folder = Path(home) / str(count)
            write_pictures(folder, count, options.side)
            subprocess.run([sys.executable, __file__, "--prepare", str(folder), str(count)], check=True)
        measure_reading(Path(home) / str(options.pictures[0]), options.steps)


if __name__ == "__main__":
    main()
