"""N-grams of a long text within little memory: time, peak memory and size, beside KenLM's tools where they are built.

    python benchmarks/ngram_memory.py TEXT [--memory 1G] [--order 5] [--vocabulary 8192] [--kenlm FOLDER]

TEXT is a large text file. Both estimate from the same tokens (bpe:N), one line of the text for a sentence. FOLDER has
KenLM's `lmplz` and `build_binary` (cmake in its source distribution builds them); without it only lmlab is measured.
Every stage runs in a process of its own, whose peak memory is read when it ends. The estimates are compared on
10,000 tokens of the text.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lmlab.models.ngram import NGram
from lmlab.runs.storage import read_tensors, write_tensors
from lmlab.units import parse_bytes

BOUNDARY = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--memory", default="1G")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--kenlm", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.text.parent) as name:
        folder = Path(name)
        measure("tokenizing", encode, given.text, folder, given.vocabulary)
        tokens = np.memmap(folder / "tokens", np.uint32, "r")
        config = NGram.Config(vocabulary=given.vocabulary, order=given.order, boundary=BOUNDARY)
        print(f"{given.text.stat().st_size / 1e6:,.0f} MB, {len(tokens):,} tokens, order {given.order}, one process")
        measure(f"lmlab, --memory {given.memory}", count, folder, config, parse_bytes(given.memory))
        model = NGram.from_tensors(config, read_tensors(folder / "model.safetensors"))
        ngrams, size = sum(level.size for level in model.levels), (folder / "model.safetensors").stat().st_size
        print(f"  {ngrams:,} n-grams, {size / 1e6:,.0f} MB: {size / ngrams:.2f} bytes each")
        if given.kenlm is not None:
            measure("KenLM, lmplz", run_lmplz, given.kenlm, folder, given.order, given.memory)
            measure("KenLM, build_binary -q 8 -b 8 -a 22 trie", run_build_binary, given.kenlm, folder)
            size = (folder / "kenlm.trie").stat().st_size
            print(f"  {size / 1e6:,.0f} MB: {size / ngrams:.2f} bytes each")
            compare(model, tokens[:10_000].astype(np.int64), folder / "kenlm.trie")


def measure(name: str, work: Callable[..., None], *arguments: object) -> None:
    """Run work in a process of its own; print its time and the peak memory of it and the programs that it starts."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_measured, args=(sender, work, arguments))
    begin = time.perf_counter()
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{name} failed")
    seconds, peak = receiver.recv()
    print(f"{name}: {time.perf_counter() - begin:,.0f} s ({seconds:,.0f} s of CPU), {peak / 1e6:,.2f} GB at most")


def _measured(sender: object, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    work(*arguments)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in used)
    sender.send((seconds, max(each.ru_maxrss for each in used)))  # type: ignore[attr-defined]


def encode(text: Path, folder: Path, vocabulary: int) -> None:
    """Write the tokens as numbers, and as lines of numbers for KenLM."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    with text.open(encoding="utf-8") as file:
        tokenizer.train_from_iterator((file.readline() for _ in range(500_000)), trainer)
    with (
        text.open(encoding="utf-8") as file,
        (folder / "tokens").open("wb") as out,
        (folder / "lines").open("w") as lines,
    ):
        while block := file.readlines(2**22):
            for each in tokenizer.encode_batch([line.rstrip("\n") for line in block if line.strip()]):
                if each.ids:
                    np.array([*each.ids, BOUNDARY], np.uint32).tofile(out)
                    lines.write(" ".join(map(str, each.ids)) + "\n")


def count(folder: Path, config: NGram.Config, memory: int) -> None:
    tokens = np.memmap(folder / "tokens", np.uint32, "r")
    (folder / "counting").mkdir()
    model = NGram.fit_on_disk(tokens, config=config, memory=memory, folder=folder / "counting")
    write_tensors(folder / "model.safetensors", model.tensors())
    for file in (folder / "counting").iterdir():
        file.unlink()


def run_lmplz(tools: Path, folder: Path, order: int, memory: str) -> None:
    command = [str(tools / "lmplz"), "-o", str(order), "-S", memory, "-T", str(folder), "--discount_fallback"]
    with (folder / "lines").open("rb") as lines, (folder / "arpa").open("wb") as arpa:
        subprocess.run(command, stdin=lines, stdout=arpa, stderr=subprocess.DEVNULL, check=True)


def run_build_binary(tools: Path, folder: Path) -> None:
    command = [
        str(tools / "build_binary"),
        "-q",
        "8",
        "-b",
        "8",
        "-a",
        "22",
        "-T",
        str(folder),
        "trie",
        "arpa",
        "kenlm.trie",
    ]
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def compare(model: NGram, tokens: np.ndarray, trie: Path) -> None:
    """The mean surprisal of the same tokens by both, in nats."""
    import kenlm

    theirs, lines = kenlm.Model(os.fspath(trie)), np.split(tokens, np.flatnonzero(tokens == BOUNDARY) + 1)[:-1]
    ours = model.surprisal(np.concatenate([[BOUNDARY], *lines])[None])[0]
    scores = [score for line in lines for score, *_ in theirs.full_scores(" ".join(map(str, line[:-1].tolist())))]
    nats = -np.log(10.0) * np.array(scores)
    print(
        f"nats per token of {len(ours):,} tokens: lmlab {ours.mean():.4f}, KenLM {nats.mean():.4f}; "
        f"largest difference of one {np.abs(ours - nats).max():.3f} (both are quantized)"
    )


if __name__ == "__main__":
    main()
