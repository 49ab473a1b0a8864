"""Tiny Shakespeare, characters, nanoGPT's CPU setting: validation loss to reach 1.88 nats per character.

python benchmarks/shakespeare.py [FOLDER]      about three minutes on 2 cores
"""

from __future__ import annotations

from pathlib import Path

from study import clock, need, read_folder, stream_nats, trained


def main(folder: Path) -> None:
    need("tinyshakespeare")
    lm, corpus, seconds = trained("shakespeare-gpt2", folder)
    nats = stream_nats(lm, corpus.valid)
    print(f"Tiny Shakespeare, {clock()}: {nats.mean():.4f} nats per character on all of the validation text")
    print(f"(strided windows of {lm.model.window}; nanoGPT reports 1.88), {seconds:.0f} s of training")


if __name__ == "__main__":
    main(read_folder(__doc__, default="runs/shakespeare"))
