"""Tokenizers and corpus preparation against Hugging Face `tokenizers` itself, on the same text in the same process.

For byte-level BPE (and WordPiece): training time, and megabytes per second of encoding from scratch and again. Then, in
processes of their own, the time and the peak memory of preparing a large file and a file that is one line without
spaces. The ids are checked to be equal. Run it on an otherwise idle machine:

    python benchmarks/tokenization.py [TEXT] [--size 8192] [--megabytes 1024] [--line 300]

TEXT defaults to WikiText-2's training text in LMLAB_DATA; with --megabytes 0 nothing large is written to disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Peer
from tokenizers import decoders, models, pre_tokenizers, trainers

from lmlab.tokenizers import Tokenizer, train
from timing import take_turns

DATA = Path(os.environ.get("LMLAB_DATA", Path(__file__).parents[2] / "shared" / "data"))
PIECE = 1 << 16


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def train_peer(size: int, pieces: list[str]) -> Peer:
    peer = Peer(models.BPE())
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
    )
    peer.train_from_iterator(pieces, trainer)
    return peer


def compare(name: str, tokenizer: Tokenizer, pieces: list[str], megabytes: float) -> None:
    first, ours = timed(lambda: tokenizer.encode_batch(pieces))
    again, _ = timed(lambda: tokenizer.encode_batch(pieces))
    theirs, encodings = timed(lambda: tokenizer.engine.encode_batch(pieces, add_special_tokens=False))
    assert [ids.tolist() for ids in ours] == [encoding.ids for encoding in encodings], "the same ids"
    print(
        f"encode {name:16} lmlab {megabytes / first:6.1f} MB/s, again {megabytes / again:6.1f}; "
        f"tokenizers {megabytes / theirs:6.1f} MB/s; ratio {theirs / first:.2f}"
    )


PREPARE = """
import sys, time
from pathlib import Path
from lmlab.data.corpora.text import prepare_text
start = time.perf_counter()
corpus = prepare_text([sys.argv[1]], tokenizer=sys.argv[2], cache=Path(sys.argv[3]))
cold = time.perf_counter() - start
start = time.perf_counter()
prepare_text([sys.argv[1]], tokenizer=sys.argv[2], cache=Path(sys.argv[3]))
warm = time.perf_counter() - start
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 2**20
print(f"{len(corpus.train.tokens):,} training tokens; {cold:.0f} s, cached {warm:.1f} s; peak memory {peak:.2f} GiB")
"""


def prepare_large(data: bytes, megabytes: int, tokenizer: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        with path.open("wb") as file:
            for _ in range(-(-megabytes * 2**20 // len(data))):
                file.write(data)
        print(f"prepare {name}, {path.stat().st_size / 2**20:.0f} MiB, {tokenizer}: ", end="", flush=True)
        subprocess.run([sys.executable, "-c", PREPARE, str(path), tokenizer, folder + "/cache"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="?", type=Path, default=DATA / "wikitext2" / "train.txt")
    parser.add_argument("--repeats", type=int, default=7, help="rounds of training")
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--line", type=int, default=300)
    options = parser.parse_args()
    data = options.text.read_bytes()
    text = data.decode()
    pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
    megabytes = len(data) / 1e6
    warnings.simplefilter("ignore")

    bpe = train(f"bpe:{options.size}", pieces)
    times = take_turns(
        {
            "lmlab": lambda: train(f"bpe:{options.size}", pieces),
            "tokenizers": lambda: train_peer(options.size, pieces),
        },
        repeats=options.repeats,
    )
    ours, theirs = (statistics.median(values) for values in times.values())
    print(
        f"train  bpe:{options.size} on {megabytes:.1f} MB: "
        f"lmlab {ours:.2f} s, tokenizers {theirs:.2f} s; ratio {theirs / ours:.2f}"
    )
    compare(f"bpe:{options.size}", bpe, pieces, megabytes)
    for spec in (f"wordpiece:{options.size}", "words", "characters", "bytes"):
        compare(spec, train(spec, pieces), pieces, megabytes)
    if options.megabytes:
        prepare_large(data, options.megabytes, f"bpe:{options.size}", "a large file")
    if options.line:
        prepare_large(b"".join(data.split()), options.line, f"bpe:{options.size}", "one line without spaces")


if __name__ == "__main__":
    main()
